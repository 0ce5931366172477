//! The server under measurement: the real binary, a home of its own on disk, its log in a file as a user would have it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Http, post};

/// Longest wait for a server to come up.
const START_MAX: Duration = Duration::from_secs(10);

/// A home, a working directory and a place for the log and the socket, removed when dropped.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new(config: &Value) -> anyhow::Result<Self> {
        let place = Self { dir: tempfile::Builder::new().prefix("nexus-bench-").tempdir()? };
        fs::create_dir(place.home())?;
        fs::create_dir(place.cwd())?;
        fs::write(place.home().join("config.json"), config.to_string())?;
        Ok(place)
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn cwd(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("rpc.sock")
    }

    pub fn log(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The server's command line in this place.
    pub fn command(&self, args: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(binary()?);
        command.args(args).env("NEXUS3_HOME", self.home()).current_dir(self.cwd());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(self.log())?);
        Ok(command)
    }
}

/// The program to measure, where it is not the one beside this.
static MEASURED: OnceLock<PathBuf> = OnceLock::new();

/// Measures another program from now on.
pub fn measure(program: PathBuf) -> anyhow::Result<()> {
    // Servers start in directories of their own.
    let program = std::path::absolute(program)?;
    MEASURED.set(program).map_err(|_| anyhow!("--server was given twice"))
}

/// The server's program, which lies beside this one unless another was named.
pub fn binary() -> anyhow::Result<PathBuf> {
    let binary = match MEASURED.get() {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("nexus3"),
    };
    if !binary.exists() {
        bail!("{} is not there: cargo build --release -p nexus3", binary.display());
    }
    Ok(binary)
}

/// A configuration with one model behind `model_url` and room for many turns.
pub fn config(model_url: &str) -> Value {
    json!({
        "default_model": "scripted",
        "providers": {"bench": {
            "type": "openai",
            "base_url": model_url,
            "max_concurrent_calls": 1024,
            "models": {"scripted": {"context_window": 10_000_000}},
        }},
        "server": {"max_concurrent": 128},
    })
}

/// For what never calls a model.
pub fn config_without_model() -> Value {
    config("http://127.0.0.1:9/v1")
}

pub struct Server {
    process: Process,
    pub place: Place,
    pub address: SocketAddr,
    pub token: String,
}

impl Server {
    pub async fn start(config: &Value) -> anyhow::Result<Self> {
        Self::start_at(Place::new(config)?).await
    }

    /// Starts a server on what another one left.
    pub async fn start_at(place: Place) -> anyhow::Result<Self> {
        let socket = place.socket();
        let args = ["serve", "0", "--socket", socket.to_str().context("a path that is no text")?];
        let process = Process(place.command(&args)?.spawn()?);
        let said = listening(&place.log()).await?;
        let url = said["url"].as_str().unwrap_or_default();
        let token_file = said["token_file"].as_str().unwrap_or_default();
        Ok(Self {
            address: url.trim_start_matches("http://").parse()?,
            token: fs::read_to_string(token_file)?.trim().to_owned(),
            process,
            place,
        })
    }

    /// Stops the server as a person would, so that its database is in one file.
    pub async fn stop(mut self) -> anyhow::Result<Place> {
        let stop = self.request("/", "shutdown_server", &json!({}));
        self.connect().await?.result(&stop).await?;
        self.process.0.wait()?;
        Ok(self.place)
    }

    /// Kills the server and keeps what it left.
    pub fn into_place(self) -> Place {
        drop(self.process);
        self.place
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A call of `method`, with `params` as they stand in JSON.
    pub fn request(&self, path: &str, method: &str, params: &Value) -> Bytes {
        self.request_with(path, "", method, params)
    }

    pub fn request_with(&self, path: &str, headers: &str, method: &str, params: &Value) -> Bytes {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let headers = format!("authorization: Bearer {}\r\n{headers}", self.token);
        post(path, &headers, &body.to_string())
    }

    pub async fn connect(&self) -> anyhow::Result<Http> {
        Http::connect(self.address).await
    }

    /// Makes agents named `{prefix}0`, `{prefix}1`, …
    pub async fn create_agents(&self, prefix: &str, count: usize) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        for index in 0..count {
            let params = json!({"agent_id": format!("{prefix}{index}")});
            connection.result(&self.request("/", "create_agent", &params)).await?;
        }
        Ok(())
    }
}

/// What the server says of itself once it serves.
async fn listening(log: &Path) -> anyhow::Result<Value> {
    let started = Instant::now();
    while started.elapsed() < START_MAX {
        for line in fs::read_to_string(log)?.lines() {
            match serde_json::from_str::<Value>(line) {
                Ok(mut line) if line["message"] == "listening" => return Ok(line["data"].take()),
                _ => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("the server did not come up: {}", fs::read_to_string(log)?)
}

/// A process that ends with its owner.
pub struct Process(pub Child);

impl Process {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Memory in use, from the kernel.
pub fn rss_kib(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.context("no VmRSS")?.trim().trim_end_matches(" kB").parse()?)
}

/// Runs `work` and tells what a process used meanwhile.
pub async fn cpu_during<T>(
    pid: u32,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(T, Duration)> {
    let before = cpu(pid)?;
    let done = work.await?;
    Ok((done, cpu(pid)?.saturating_sub(before)))
}

/// Time the process's threads have run so far. Finer than the ticks of `/proc/PID/stat`; threads that have ended are
/// missing, so it is for stretches in which none does.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Time the process has run so far, in user and in kernel mode, its ended threads included. In ticks of 10 ms: for work
/// that takes a second or more of it.
pub fn process_cpu(pid: u32) -> anyhow::Result<Duration> {
    // The kernel tells every program of hundredths, whatever it counts in itself.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the program's name in parentheses, which may hold anything.
    let (_, fields) = stat.rsplit_once(')').context("no name in a process's stat")?;
    let ticks =
        |field: Option<&str>| field.context("a short stat")?.parse::<u32>().context("ticks");
    let mut fields = fields.split_whitespace().skip(11);
    Ok(TICK * (ticks(fields.next())? + ticks(fields.next())?))
}
