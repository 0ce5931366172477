//! A stranger's template in a process of its own: both sides of it. Steps and what is written are counted where templates
//! run; what they keep in variables is not, and a text that is doubled thirty times would take the server with it. To read
//! one is no safer: what is the same every time is computed then.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde_json::{Value, json};

use super::{Conversation, WRITTEN_BYTES_MAX, read, run};

/// Says to a program that it is to be this process, as its first argument.
pub const WRITER_ARGUMENT: &str = "__template";

/// What the process may take beside what it has. A template takes some kilobytes for a message.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// A template that takes all of its steps needs a part of it.
const PROCESSOR_SECONDS_MAX: u64 = 30;

/// One that gets half of a core has all of its processor time by then.
const LASTS_MAX: Duration = Duration::from_secs(60);

/// Processes of this kind at once, in the whole server. One that does its work is there for some milliseconds.
const AT_ONCE_MAX: usize = 2;

/// What is told of a refusal: it goes into the log and to whoever asked.
const REASON_BYTES_MAX: usize = 1 << 10;

/// An answer of the process. JSON has six bytes for a byte that it cannot show.
const ANSWER_BYTES_MAX: usize = 6 * WRITTEN_BYTES_MAX + 6 * REASON_BYTES_MAX;

/// Between two looks at whether anybody still waits.
const LOOK: Duration = Duration::from_millis(20);

/// Has a template written elsewhere. Blocks. When `stopped` says so, that is ended.
pub fn written(
    source: &str,
    conversation: &Conversation,
    stopped: &dyn Fn() -> bool,
) -> Result<String, String> {
    ask(&json!({"source": source, "conversation": conversation}), LASTS_MAX, stopped)
}

/// Has it found out elsewhere whether a template can be used at all. Blocks.
pub fn check(source: &str) -> Result<(), String> {
    ask(&json!({"source": source}), LASTS_MAX, &|| false).map(drop)
}

fn ask(order: &Value, lasts_max: Duration, stopped: &dyn Fn() -> bool) -> Result<String, String> {
    let failed = |error: io::Error| format!("a process for it cannot be started: {error}");
    let _place = Place::wait_for(stopped)?;
    let began = Instant::now();
    let (mut writer, mut socket) = start().map_err(failed)?;
    socket.set_write_timeout(Some(LASTS_MAX)).map_err(failed)?;
    socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
    // One that is gone already is noticed when its answer is missing.
    let _ = socket
        .write_all(order.to_string().as_bytes())
        .and_then(|()| socket.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
            Err(error) if is_passing(&error) => {}
            Err(_) => break,
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err("what runs the model's chat template says too much".into());
        }
        if stopped() {
            return Err(CANCELLED.into());
        }
        if began.elapsed() >= lasts_max {
            let seconds = lasts_max.as_secs();
            return Err(format!("the model's chat template takes more than {seconds} s"));
        }
    }
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let said = |member: &str| answer.get(member).and_then(Value::as_str).map(str::to_owned);
    match (said("written"), said("refused")) {
        (Some(written), _) => Ok(written),
        (None, Some(why)) => Err(why),
        (None, None) => Err(writer.0.wait().map_or_else(|error| error.to_string(), why)),
    }
}

const CANCELLED: &str = "the call was cancelled";

/// Whether a read only has to be tried again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
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
        // What allocators do when there is no more, and what happens at the end of the stack.
        let mib = MEMORY_BYTES_MAX >> 20;
        return format!(
            "the model's chat template takes more than {mib} MiB of memory, or nests too deep"
        );
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

/// One of the places for such processes, taken.
struct Place;

static TAKEN: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

impl Place {
    fn wait_for(stopped: &dyn Fn() -> bool) -> Result<Self, String> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken == AT_ONCE_MAX {
            if stopped() {
                return Err(CANCELLED.into());
            }
            let woken = FREED.wait_timeout(taken, LOOK);
            taken = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += 1;
        Ok(Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        FREED.notify_one();
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
    let done = match order.get("conversation") {
        Some(conversation) => run(source, conversation),
        None => read(source).map(|_| String::new()),
    };
    let answer = match done {
        Ok(written) => json!({"written": written}),
        Err(mut why) => {
            why.truncate(why.floor_char_boundary(REASON_BYTES_MAX));
            json!({"refused": why})
        }
    };
    server.write_all(answer.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Template;

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

    fn write(source: &str) -> Result<String, String> {
        let conversation = json!({"messages": [{"role": "user", "content": "hi"}]});
        written(source, &conversation, &|| false)
    }

    const TOO_MUCH: &str =
        "the model's chat template takes more than 256 MiB of memory, or nests too deep";

    #[test]
    fn a_template_that_doubles_a_text_ends_with_its_process() {
        assert_eq!(write("{{ messages[0].content }}!").unwrap(), "hi!");
        for doubled in ["ns.s ~ ns.s", "ns.s + ns.s", "[ns.s, ns.s] | join"] {
            let source = format!(
                "{{% set ns = namespace(s='xxxxxxxx') %}}{{% for a in range(40) %}}\
                 {{% set ns.s = {doubled} %}}{{% endfor %}}"
            );
            assert_eq!(write(&source).unwrap_err(), TOO_MUCH);
        }
        let why = write("{{ raise_exception('no system message') }}").unwrap_err();
        assert!(why.contains("no system message"), "{why}");
    }

    #[test]
    fn a_template_that_takes_all_there_is_when_it_is_read_is_refused() {
        let texts = vec!["('x'*100000000)"; 100].join("~");
        let sum = vec!["1"; 100_000].join("+");
        for source in [format!("{{% set x = {texts} %}}"), format!("{{{{ {sum} }}}}")] {
            let made = Template::new(Some(source), String::new(), String::new());
            assert_eq!(made.map(drop).unwrap_err(), TOO_MUCH);
        }
        let made = Template::new(Some("{% if %}".into()), String::new(), String::new());
        let why = made.map(drop).unwrap_err();
        assert!(why.starts_with("the model's chat template is unusable (syntax error: "), "{why}");
    }

    #[test]
    fn a_refusal_is_told_as_far_as_anybody_reads_it() {
        let why = write("{{ raise_exception('é'*5000000) }}").unwrap_err();
        assert!((REASON_BYTES_MAX - 1..=REASON_BYTES_MAX).contains(&why.len()), "{}", why.len());
        // What is written has its own limit, even where each letter of it is six.
        let longest = write(&format!("{{{{ '\u{1}' * {WRITTEN_BYTES_MAX} }}}}"));
        assert_eq!(longest.unwrap().len(), WRITTEN_BYTES_MAX);
    }

    #[test]
    fn nobody_waits_for_a_template_that_nobody_wants() {
        let order = json!({"source": "", "conversation": {}});
        assert_eq!(ask(&order, LASTS_MAX, &|| true).unwrap_err(), CANCELLED);
        let late = ask(&order, Duration::ZERO, &|| false).unwrap_err();
        assert_eq!(late, "the model's chat template takes more than 0 s");

        let places: Vec<_> = (0..AT_ONCE_MAX).map(|_| Place::wait_for(&|| false)).collect();
        assert!(Place::wait_for(&|| true).is_err(), "no more at once");
        drop(places);
        assert_eq!(ask(&order, LASTS_MAX, &|| false).unwrap(), "");
    }
}
