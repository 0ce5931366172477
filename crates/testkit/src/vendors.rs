//! The vendors' own clients, in Python: they read what the scripted model says, and their types check what we send.
//!
//! `make vendors` installs them. Where they are missing, what needs them is passed over, with a word on standard error;
//! with `NEXUS3_VENDORS=required`, as `make test` sets it, that is a failure.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::receiver::Received;
use crate::wire::Wire;

/// What a vendor's types say of request bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The clients are not installed.
    Skipped,
    /// One finding for each body, in their order.
    Found(Vec<Finding>),
}

/// What is wrong with one body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// What is missing or not of its type, each with its place: `messages.0.content: …`.
    pub errors: Vec<String>,
    /// Keys that the types do not know, each with its place: `messages.1.reasoning_content`.
    pub unknown: Vec<String>,
}

impl Finding {
    pub fn is_fine(&self) -> bool {
        self.errors.is_empty() && self.unknown.is_empty()
    }
}

/// Holds each body against the vendor's own types of a request for a stream.
pub fn validate(wire: Wire, bodies: &[Value]) -> Checked {
    let Some(python) = python() else { return Checked::Skipped };
    let mut command = script(&python, "validate.py");
    command.arg(wire.name());
    let findings: Vec<Finding> =
        answers(command, bodies).iter().map(|line| finding(line)).collect();
    Checked::Found(findings)
}

/// What the definitions of OpenTelemetry's protocol read in each request: `resource`, `scope` and `spans`. `None` where
/// they are not installed.
pub fn read_spans(requests: &[Received]) -> Option<Vec<Value>> {
    let lines: Vec<Value> = (requests.iter())
        .map(|it| json!({"type": it.headers["content-type"], "body": STANDARD.encode(&it.body)}))
        .collect();
    let read = answers(script(&python()?, "otlp.py"), &lines);
    let parse = |line: &String| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    Some(read.iter().map(parse).collect())
}

/// The line that a script prints for each line that it is given.
fn answers(mut command: Command, lines: &[Value]) -> Vec<String> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdin = child.stdin.take();
    // A thread of its own: the answers fill their pipe while the bodies are still being written.
    let writing = std::thread::spawn(move || stdin.map(|mut to| to.write_all(text.as_bytes())));
    let output = child.wait_with_output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?} failed");
    assert!(matches!(writing.join(), Ok(Some(Ok(())))), "{command:?} did not read to the end");
    let said =
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(said.len(), lines.len(), "{command:?} says nothing of some lines");
    said
}

/// Panics unless each body is what the vendor's types allow, but for keys that `is_allowed` takes by their place.
pub fn assert_valid(wire: Wire, bodies: &[Value], is_allowed: impl Fn(&str) -> bool) {
    let Checked::Found(findings) = validate(wire, bodies) else { return };
    for (body, mut finding) in bodies.iter().zip(findings) {
        finding.unknown.retain(|place| !is_allowed(place));
        assert!(finding.is_fine(), "{} refuses {body:#}: {finding:#?}", wire.name());
    }
}

/// What the vendor's client understands when it asks the scripted model at `root` once for each of `questions`, which
/// are `stream` or `whole`. `None` where the clients are not installed. Takes as long as the answers do: not for an async
/// thread that serves them.
pub fn read(root: &str, wire: Wire, questions: &[&str]) -> Option<Vec<Value>> {
    let python = python()?;
    let mut command = script(&python, "read.py");
    command.arg(root).arg(wire.name()).args(questions);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?} failed after {said}");
    let heard = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    Some(said.lines().map(heard).collect())
}

/// The interpreter that has the clients.
fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = root.join("target/vendors");
    if installed.join("installed").exists() {
        return Some(installed.join("bin/python"));
    }
    let is_required = std::env::var_os("NEXUS3_VENDORS").is_some_and(|value| value == "required");
    assert!(!is_required, "the vendors' clients are missing: run make vendors");
    eprintln!("skipped: the vendors' clients are not installed (make vendors)");
    None
}

fn script(python: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    // Isolated from what else is installed or set for this user.
    command.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("vendors").join(name));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
    {
        command.env_remove(name);
    }
    command
}

fn finding(line: &str) -> Finding {
    let told: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let strings = |name: &str| {
        let told = told[name].as_array().into_iter().flatten();
        told.filter_map(|it| it.as_str().map(str::to_owned)).collect()
    };
    Finding { errors: strings("errors"), unknown: strings("unknown") }
}
