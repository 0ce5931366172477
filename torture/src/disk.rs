//! A full disk: a file system of a few hundred kilobytes, or where none can be mounted a limit on the size of files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Resource, Rlimit, prlimit};

use crate::client::{Client, Clock, together};
use crate::fault::Fault;
use crate::kills::check;
use crate::observe;
use crate::place::{Place, Server};
use crate::report::Tally;

const CLIENTS: usize = 3;

/// Room for a new home and some dozens of turns.
const SMALL_KIB: u64 = 1_024;

const LARGE_KIB: u64 = 64 * 1_024;

/// Answers after which there is no more to be learnt.
const ENOUGH: u64 = 100;

pub async fn run(place: &Place, seed: u64) -> anyhow::Result<Tally> {
    let disk = Disk::mount(&place.home())?;
    place.prepare_home()?;
    let server = place.start("server", Fault::None).await?;
    eprintln!("disk: {}", disk.describe());
    let clients = (0..CLIENTS).map(|n| Client::new(n, seed, place.work())).collect();

    disk.narrow(&server)?;
    let clock = Clock::new();
    let clients = together(clients, async |client| {
        let refusal = client.run_until_refused(&mut server.caller(), &clock).await?;
        let refusal = refusal.context("the disk never was full")?;
        ensure!(disk.fits(&refusal.message), "a full disk is not named: {refusal:?}");
        Ok(())
    })
    .await?;
    // Reads go on, and show what was answered.
    let clients = check(&server, clients).await.context("while the disk is full")?;

    disk.widen(&server)?;
    let clock = Clock::new();
    let running = together(clients, async |client| client.run(&mut server.caller(), &clock).await);
    let clients = clock.drive(ENOUGH, running, async { Ok(()) }).await?;
    let clients = check(&server, clients).await.context("when there was room again")?;
    server.kill().await?;
    let server = place.start("server", Fault::None).await?;
    let clients = check(&server, clients).await.context("after a restart")?;
    observe::check_database(&place.home())?;
    server.kill().await?;
    let tally = Tally::of(&clients).kills(2);
    Ok(tally.effects(observe::count_effects(&place.work())?))
}

enum Disk {
    Mounted(PathBuf),
    /// What may not be mounted is limited: no file of the server may grow beyond this.
    Limited,
}

impl Disk {
    fn mount(at: &Path) -> anyhow::Result<Self> {
        let mounted = command("mount", &["-t", "tmpfs", "-o", &options(SMALL_KIB), "tmpfs"], at);
        Ok(if mounted.is_ok() { Self::Mounted(at.to_path_buf()) } else { Self::Limited })
    }

    fn describe(&self) -> String {
        match self {
            Self::Mounted(_) => format!("a tmpfs of {SMALL_KIB} KiB"),
            Self::Limited => {
                format!("files of at most {SMALL_KIB} KiB; no tmpfs can be mounted here")
            }
        }
    }

    fn narrow(&self, server: &Server) -> anyhow::Result<()> {
        self.limit(server, Some(SMALL_KIB << 10))
    }

    fn widen(&self, server: &Server) -> anyhow::Result<()> {
        match self {
            Self::Mounted(at) => {
                let options = format!("remount,{}", options(LARGE_KIB));
                command("mount", &["-o", &options], at)
            }
            Self::Limited => self.limit(server, None),
        }
    }

    fn limit(&self, server: &Server, bytes: Option<u64>) -> anyhow::Result<()> {
        if let Self::Limited = self {
            let limit = Rlimit { current: bytes, maximum: None };
            prlimit(server.pid(), Resource::Fsize, limit)?;
        }
        Ok(())
    }

    /// Whether this is how such a disk is to be spoken of.
    fn fits(&self, message: &str) -> bool {
        match self {
            Self::Mounted(_) => message == "There is no space left on the disk",
            Self::Limited => message == "The store cannot be written",
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Self::Mounted(at) = self
            && let Err(error) = command("umount", &["--lazy"], at)
        {
            eprintln!("disk: {error:#}");
        }
    }
}

fn options(kib: u64) -> String {
    format!("size={kib}k,mode=0700")
}

fn command(program: &str, args: &[&str], at: &Path) -> anyhow::Result<()> {
    let output = Command::new(program).args(args).arg(at).output().context(program.to_string())?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
