//! A process of the program and its log.

use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use super::within;

/// A running process of the program. Killed by its id when dropped.
pub struct Process {
    child: Child,
    log: Log,
}

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Output {
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    pub fn spawn(mut command: Command) -> (Self, ChildStdin, ChildStdout) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self::spawn_on(command);
        let child = &mut process.child;
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        (process, stdin, stdout)
    }

    /// The same with the input that the command has.
    pub fn spawn_on(mut command: Command) -> Self {
        command.stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().expect("the program can be started");
        let log = Log::collect(child.stderr.take().unwrap());
        Self { child, log }
    }

    pub fn id(&self) -> u32 {
        self.child.id().expect("the process has not been waited for")
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    pub fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("the process has not been waited for");
        kill_process(Pid::from_raw(id as i32).unwrap(), signal)
            .expect("the process can be signalled");
    }

    /// The most memory it ever had.
    pub fn memory_peak_bytes(&self) -> usize {
        let peak = self.status("VmHWM:");
        peak.strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
    }

    /// How many files it may open, and how many it could have at most.
    pub fn open_files_max(&self) -> (String, String) {
        let id = self.child.id().expect("the process has not been waited for");
        let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let mut numbers = line.split_whitespace().map(String::from);
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    /// What the kernel says of it under a name.
    pub fn status(&self, name: &str) -> String {
        let id = self.child.id().expect("the process has not been waited for");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let found = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        found.trim().to_owned()
    }

    /// Waits for the end.
    pub async fn exit(&mut self) -> ExitStatus {
        within("the process to end", self.child.wait()).await.unwrap()
    }
}

/// The command line of the program in `home`'s world, with nothing inherited but the path.
pub fn command(
    program: &str,
    dir: &Path,
    home: &Path,
    cwd: &Path,
    args: impl IntoIterator<Item = impl Into<OsString>>,
) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", dir).env("NEXUS3_HOME", home).current_dir(cwd);
    // A port where nothing listens: what is configured on the developer's machine answers nobody here.
    command.env("OLLAMA_HOST", "127.0.0.1:1");
    command.args(args.into_iter().map(Into::into));
    command
}

/// Runs a command to its end with nothing on standard input.
pub async fn run(mut command: Command) -> Output {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output =
        within("a command to end", command.output()).await.expect("the program can be started");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Output { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// What a process writes to standard error, line by line, while it runs and after.
#[derive(Clone)]
pub struct Log(watch::Receiver<Written>);

#[derive(Clone, Default)]
struct Written {
    lines: Vec<String>,
    ended: bool,
}

impl Log {
    fn collect(stderr: ChildStderr) -> Self {
        let (sender, receiver) = watch::channel(Written::default());
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                sender.send_modify(|written| written.lines.push(line));
            }
            sender.send_modify(|written| written.ended = true);
        });
        Self(receiver)
    }

    pub fn text(&self) -> String {
        self.0.borrow().lines.join("\n")
    }

    /// The lines so far as JSON; `Null` for one that is not.
    pub fn lines(&self) -> Vec<Value> {
        self.0.borrow().lines.iter().map(|line| parse(line)).collect()
    }

    /// The first line for which `wanted` holds, now or later.
    pub async fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let found = |written: &Written| written.lines.iter().map(|l| parse(l)).find(|l| wanted(l));
        let mut written = self.0.clone();
        let waiting = written.wait_for(|written| written.ended || found(written).is_some());
        let got = match tokio::time::timeout(super::WAIT_MAX, waiting).await {
            Ok(written) => written.ok().and_then(|written| found(&written)),
            Err(_) => None,
        };
        got.unwrap_or_else(|| panic!("the log does not say {what}:\n{}", self.text()))
    }

    /// The whole log of a process that has ended.
    pub async fn complete(&self) -> String {
        let mut written = self.0.clone();
        let _ = within("the end of the log", written.wait_for(|written| written.ended)).await;
        self.text()
    }
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}
