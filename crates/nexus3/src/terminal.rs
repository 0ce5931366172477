//! `nexus3 serve --terminal`: the server that a terminal started. Its standard input is one end of a pair of sockets, of
//! which the terminal has the other; its log is a file.

mod leaving;
mod log_file;
mod place;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use nexus_core::store::Contact;
use nexus_core::visible;
use nexus_protocol::terminal::{ANOTHER_RUNS, TerminalHelloResult};
use nexus_server::terminal::Terminal;
use nexus_server::transport::channel::Channel;
use rustix::net::{AddressFamily, SocketType, sockopt};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::ServeOptions;
use crate::on_runtime;
use crate::serve::{self, Company};
use crate::wiring::{self, OpenStore, Wired};
use leaving::Leaving;
pub use leaving::left;
use place::Place;
pub use place::{AnotherRuns, server_of};

/// A server that is to be the terminal's.
pub struct Started {
    /// Until it is served.
    channel: Option<UnixStream>,
    /// What the program was started with as its standard error. Until the server listens: then the terminal, which reads
    /// there why it does not, has nothing more to wait for.
    person: Option<File>,
    place: Option<Place>,
}

/// Serves the terminal. With a port of its own it is one more server of its home; without, it is the one that others
/// look for, of which there is one.
pub fn serve(
    port: Option<u16>,
    options: ServeOptions,
    open_store: OpenStore<'_>,
) -> anyhow::Result<ExitCode> {
    let channel = take_channel()?;
    // Ctrl-Z, Ctrl-C and a hang-up are for those who share the terminal's session.
    rustix::process::setsid().context("this process cannot have a session of its own")?;
    let home = wiring::home()?;
    let person = Some(File::from(log_file::redirect(&home)?));
    let mut started = Started { channel: Some(channel), person, place: None };
    let serving = async {
        if port.is_none() {
            started.place = Some(Place::take(&home)?);
        }
        serve::serve(port, Company::Terminal(&mut started), options, open_store).await
    };
    let ended = on_runtime(serving);
    if let (Err(error), Some(person)) = (&ended, &mut started.person) {
        let _ = writeln!(person, "Error: {}", visible::text(&format!("{error:#}")));
    }
    match ended {
        Err(error) if error.is::<AnotherRuns>() => Ok(ExitCode::from(ANOTHER_RUNS)),
        ended => ended,
    }
}

impl Started {
    /// Serves the terminal, now that others can be told where the server is.
    pub fn begin(
        &mut self,
        wired: &Wired,
        port: u16,
        contact: &Contact,
        token_file: Option<&Path>,
        stop: &CancellationToken,
    ) -> anyhow::Result<(Leaving, JoinHandle<()>)> {
        let text = |path: &Path| path.display().to_string();
        let hello = TerminalHelloResult {
            url: contact.url.clone().unwrap_or_default(),
            port,
            token_file: token_file.map(text),
            socket: contact.socket.as_deref().map(text),
            pid: std::process::id(),
        };
        if let Some(place) = &mut self.place {
            place.tell(&hello);
        }
        let (terminal, wished) = Terminal::new(hello);
        let _ = wired.dispatcher.services().terminal.set(terminal);
        let channel = self.channel.take().context("the terminal is served already")?;
        let channel = tokio::net::UnixStream::from_std(channel)?;
        let (channel, answered) = Channel::serve(wired.dispatcher.clone(), channel, stop.clone());
        self.person = None;
        Ok((Leaving { channel, wished, _place: self.place.take() }, answered))
    }
}

/// Takes the terminal's socket from standard input, where nothing that this program starts can find it: who speaks there
/// may give `yolo`.
fn take_channel() -> anyhow::Result<UnixStream> {
    let stdin = io::stdin();
    let is_socket = sockopt::socket_domain(&stdin)
        .is_ok_and(|domain| domain == AddressFamily::UNIX)
        && sockopt::socket_type(&stdin).is_ok_and(|kind| kind == SocketType::STREAM);
    ensure!(is_socket, "--terminal: standard input must be a connected Unix socket");
    let own: OwnedFd = stdin.as_fd().try_clone_to_owned()?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    let channel = UnixStream::from(own);
    channel.set_nonblocking(true)?;
    Ok(channel)
}
