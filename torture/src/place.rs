//! Where a run happens: a home, the agents' directory, the model and the servers' logs. Kept when the oracle fails.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nexus_testkit::ScriptedModel;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use crate::ended::{Ended, Log};
use crate::fault::Fault;
use crate::rpc::{Address, Caller};
use crate::turn;
use crate::world::{NARROW, WIDE};

/// Longest wait for a server to come up or to end. Long, for a loaded machine; only a failing run sees it.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub struct Place {
    dir: TempDir,
    /// The program to torture instead of this one, where no fault is to be injected.
    program: Option<PathBuf>,
    pub model: ScriptedModel,
}

impl Place {
    pub async fn new(program: Option<&Path>) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("nexus-torture-").tempdir()?;
        let model = ScriptedModel::start().await;
        model.set_script(turn::script);
        // Whole, because servers are started in a directory of their own.
        let program = program.map(Path::canonicalize).transpose().context("the program")?;
        let place = Self { dir, program, model };
        for dir in [place.work(), place.work().join("aside"), place.path("outside")] {
            fs::create_dir(dir)?;
        }
        place.prepare_home()?;
        Ok(place)
    }

    /// Makes the home, or makes it again on what was mounted there.
    pub fn prepare_home(&self) -> anyhow::Result<()> {
        if !self.home().exists() {
            fs::DirBuilder::new().mode(0o700).create(self.home())?;
        }
        let provider = json!({"type": "openai", "base_url": self.model.url(),
            "models": {WIDE: {"context_window": 1_000_000}, NARROW: {"context_window": 10_000}}});
        let config = json!({"providers": {"scripted": provider}, "default_model": WIDE,
            "permissions": {"approvals": "ask"},
            "compaction": {"recent_preserve_ratio": 0.01}});
        Ok(fs::write(self.home().join("config.json"), config.to_string())?)
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Where agents leave the traces of their tool calls.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Leaves everything on disk for whoever looks into it.
    pub fn keep(self) -> PathBuf {
        self.dir.keep()
    }

    /// Starts a server and waits until it listens.
    pub async fn start(&self, name: &str, fault: Fault) -> anyhow::Result<Server> {
        let socket = self.path(&format!("{name}.sock"));
        let mut args: Vec<OsString> = vec!["0".into(), "--socket".into(), socket.clone().into()];
        args.extend(["--log-dir".into(), self.path("logs").into()]);
        let mut command = match (&self.program, fault) {
            (Some(program), Fault::None) => {
                let mut command = Command::new(program);
                command.arg("serve");
                command
            }
            (_, fault) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("serve").arg(fault.to_string());
                command
            }
        };
        command.args(args).env_clear().env("HOME", self.dir.path());
        command.env("NEXUS3_HOME", self.home()).current_dir(self.work());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child =
            command.kill_on_drop(true).spawn().context("the server cannot be started")?;
        let (pid, stderr) = (child.id(), child.stderr.take());
        let (Some(pid), Some(stderr)) = (pid, stderr) else { bail!("the server ended at once") };
        let log = OpenOptions::new().create(true).append(true).open(self.path("server.log"))?;
        let (data, ended) = follow(stderr, log).await?;
        let text = |name: &str| data[name].as_str().context(format!("the server names no {name}"));
        let http = text("url")?.trim_start_matches("http://").parse()?;
        let token = fs::read_to_string(text("token_file")?)?.trim().to_string();
        Ok(Server { child, address: Address { socket, http, token, pid, ended } })
    }
}

/// Copies the log to a file, and returns when it says that the server listens, with what it says of that.
async fn follow(stderr: ChildStderr, log: File) -> anyhow::Result<(Value, Ended)> {
    let mut log = tokio::fs::File::from_std(log);
    let mut lines = BufReader::new(stderr).lines();
    let mut last = String::new();
    let data = loop {
        let line = tokio::time::timeout(WAIT_MAX, lines.next_line()).await;
        let Some(line) = line.context("the server does not come up")?? else {
            bail!("the server did not start: {last}");
        };
        log.write_all(format!("{line}\n").as_bytes()).await?;
        let mut entry: Value = serde_json::from_str(&line).unwrap_or_default();
        if entry["message"] == "listening" {
            break entry["data"].take();
        }
        last = line;
    };
    let (calls, ended) = Log::new();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            if entry["message"] == "RPC Request" {
                calls.note(&entry["data"]["id"].to_string());
            }
            let _ = log.write_all(format!("{line}\n").as_bytes()).await;
        }
    });
    Ok((data, ended))
}

/// A running server. Killed when dropped.
pub struct Server {
    child: Child,
    pub address: Address,
}

impl Server {
    pub fn caller(&self) -> Caller {
        Caller::new(vec![self.address.clone()])
    }

    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.address.pid).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("a process id")?, signal)?)
    }

    pub fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.address.pid).ok()?)
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.start_kill()?;
        self.gone().await
    }

    /// Waits until it has ended, by whatever.
    pub async fn gone(&mut self) -> anyhow::Result<()> {
        tokio::time::timeout(WAIT_MAX, self.child.wait()).await.context("it does not end")??;
        Ok(())
    }
}
