//! The worker's side: a process that checks one code after the other, and whose end harms nobody.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};

use super::frame::{self, Answer, LENGTH_BYTES, Order};
use super::pool::AHEAD_MAX;
use super::{Language, Trouble, check};

/// The argument that makes the program a worker. Not for people.
pub const WORKER_ARGUMENT: &str = "__check";

/// Memory of one check beside its stack: twice what the densest code of the greatest length takes.
pub(crate) const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// What parsers and linters may take that call themselves for each level of nesting. Only what is used takes memory.
const STACK_BYTES: usize = 512 << 20;

/// Serves the server at the other end of standard input until that goes. To be called first in `main`, while the process
/// has one thread, when the first argument is [`WORKER_ARGUMENT`]. `close_in` takes from the process what it does not
/// need, and bounds its memory.
pub fn worker_main(close_in: impl FnOnce(u64) -> io::Result<()>) -> ! {
    let served = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(UnixStream::from)
        .and_then(|server| serve(server, close_in));
    std::process::exit(match served {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("nexus3 {WORKER_ARGUMENT}: {error}");
            1
        }
    })
}

/// Reads what is to be checked. The check runs on a thread of its own, so that the end of the server is noticed, and
/// ends it, whatever it is at.
fn serve(server: UnixStream, close_in: impl FnOnce(u64) -> io::Result<()>) -> io::Result<()> {
    close_in(MEMORY_BYTES_MAX + STACK_BYTES as u64)?;
    // What a parser says when it breaks is the code's fault, and nobody reads it.
    std::panic::set_hook(Box::new(|_| {}));
    let answers = server.try_clone()?;
    let (orders, given) = sync_channel(AHEAD_MAX);
    let work = move || {
        let _ = work(&given, answers);
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work)?;
    let mut server = io::BufReader::with_capacity(64 << 10, server);
    loop {
        let mut length = [0; LENGTH_BYTES];
        match server.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        server.read_exact(&mut body)?;
        if orders.send(body).is_err() {
            return Ok(());
        }
    }
}

fn work(orders: &Receiver<Vec<u8>>, mut answers: UnixStream) -> io::Result<()> {
    for order in orders {
        let answer = catch_unwind(AssertUnwindSafe(|| carry_out(&order)));
        answers.write_all(&frame::encode(&answer.unwrap_or(Answer::Broke))?)?;
    }
    Ok(())
}

fn carry_out(order: &[u8]) -> Answer {
    let Ok(Order { language, code, rules }) = serde_json::from_slice(order) else {
        return Answer::Broke;
    };
    let Some(language) = Language::parse(language) else { return Answer::Broke };
    match check(&code, language, &rules) {
        Ok(report) => Answer::Checked(report.into()),
        Err(Trouble::TooDeep) => Answer::TooDeep,
        Err(Trouble::Broke) => Answer::Broke,
    }
}
