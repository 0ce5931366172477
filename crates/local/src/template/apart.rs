//! A stranger's template in a process of its own: both sides of it. Steps and what is written are counted where templates
//! run; what they keep in variables is not, and a text that is doubled thirty times would take the server with it.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde_json::{Value, json};

use super::{Conversation, run};

/// Says to a program that it is to be this process, as its first argument.
pub const WRITER_ARGUMENT: &str = "__template";

/// What the process may take beside what it has. A template takes some kilobytes for a message.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// A template that takes all of its steps needs a part of it.
const PROCESSOR_SECONDS_MAX: u64 = 30;

/// Has a template written elsewhere. Blocks.
pub fn written(source: &str, conversation: &Conversation) -> Result<String, String> {
    let failed = |error: io::Error| format!("a process for it cannot be started: {error}");
    let (mut writer, mut socket) = start().map_err(failed)?;
    let order = json!({"source": source, "conversation": conversation});
    // One that is gone already is noticed when its answer is missing.
    let _ = socket
        .write_all(order.to_string().as_bytes())
        .and_then(|()| socket.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer);
    let answer: Value =
        read.ok().and_then(|_| serde_json::from_slice(&answer).ok()).unwrap_or_default();
    let said = |member: &str| answer.get(member).and_then(Value::as_str).map(str::to_owned);
    match (said("written"), said("refused")) {
        (Some(written), _) => Ok(written),
        (None, Some(why)) => Err(why),
        (None, None) => Err(writer.0.wait().map_or_else(|error| error.to_string(), why)),
    }
}

fn start() -> io::Result<(Writer, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .arg0("nexus3")
        .arg(WRITER_ARGUMENT)
        .env_clear()
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok((Writer(child), ours))
}

/// Why it ended without an answer.
fn why(status: ExitStatus) -> String {
    let signal = status.signal();
    if signal == Some(Signal::ABORT.as_raw()) {
        // What allocators do when there is no more.
        let mib = MEMORY_BYTES_MAX >> 20;
        return format!("the model's chat template takes more than {mib} MiB of memory");
    }
    if [Signal::XCPU, Signal::KILL].iter().any(|it| signal == Some(it.as_raw())) {
        return format!(
            "the model's chat template takes more than {PROCESSOR_SECONDS_MAX} s of processor time"
        );
    }
    format!("the model's chat template broke what runs it ({status})")
}

/// A process that ends with whoever waits for it.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        // A failure means that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes for the server at the other end of standard input. To be called first in `main`, while the process has one
/// thread, when the first argument is [`WRITER_ARGUMENT`]. `close_in` takes from the process what it does not need, and
/// bounds its memory.
pub fn writer_main(close_in: impl FnOnce(u64) -> io::Result<()>) -> ! {
    let server = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let served = server.and_then(|server| serve(&server, close_in));
    std::process::exit(i32::from(served.is_err()))
}

fn serve(mut server: &UnixStream, close_in: impl FnOnce(u64) -> io::Result<()>) -> io::Result<()> {
    let most = Some(PROCESSOR_SECONDS_MAX);
    setrlimit(Resource::Cpu, Rlimit { current: most, maximum: most })?;
    close_in(MEMORY_BYTES_MAX)?;
    let mut order = Vec::new();
    server.read_to_end(&mut order)?;
    let order: Value = serde_json::from_slice(&order)?;
    let source = order["source"].as_str().unwrap_or_default();
    let answer = match run(source, &order["conversation"]) {
        Ok(written) => json!({"written": written}),
        Err(why) => json!({"refused": why}),
    };
    server.write_all(answer.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test: this program is also the process in which templates are run, and is started again with this name.
    #[test]
    fn __template() {
        if std::env::args().nth(1).is_some_and(|first| first == WRITER_ARGUMENT) {
            writer_main(|memory_bytes_max| {
                // What the test program has mapped counts too.
                let most = Some(memory_bytes_max + (64 << 20));
                Ok(setrlimit(Resource::Data, Rlimit { current: most, maximum: most })?)
            });
        }
    }

    fn check(source: &str) -> Result<String, String> {
        written(source, &json!({"messages": [{"role": "user", "content": "hi"}]}))
    }

    #[test]
    fn a_template_that_doubles_a_text_ends_with_its_process() {
        assert_eq!(check("{{ messages[0].content }}!").unwrap(), "hi!");
        for doubled in ["ns.s ~ ns.s", "ns.s + ns.s", "[ns.s, ns.s] | join"] {
            let source = format!(
                "{{% set ns = namespace(s='xxxxxxxx') %}}{{% for a in range(40) %}}\
                 {{% set ns.s = {doubled} %}}{{% endfor %}}"
            );
            let why = check(&source).unwrap_err();
            assert_eq!(why, "the model's chat template takes more than 256 MiB of memory");
        }
        let why = check("{{ raise_exception('no system message') }}").unwrap_err();
        assert!(why.contains("no system message"), "{why}");
    }
}
