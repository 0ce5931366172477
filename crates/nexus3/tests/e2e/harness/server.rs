//! A running `nexus3 serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use nexus_testkit::ScriptedModel;
use rustix::process::Signal;
use tokio::process::{ChildStdin, ChildStdout};

use super::process::{self, Log, Output, Process};
use super::{Framed, Http, HttpRequest, Response, Setup, Wire, World};

pub struct Server {
    pub world: Arc<World>,
    pub address: SocketAddr,
    pub url: String,
    /// `None` with `--no-auth`.
    pub token_file: Option<PathBuf>,
    pub token: Option<String>,
    pub socket: Option<PathBuf>,
    setup: Setup,
    process: Process,
    /// Held open: what the server does when they close is not what is tested.
    _pipes: (ChildStdin, ChildStdout),
}

impl Server {
    pub async fn start() -> Self {
        Setup::new().start().await
    }

    pub(super) async fn start_with(setup: Setup, world: Arc<World>) -> Self {
        let (process, stdin, stdout) = Process::spawn(setup.command(&world));
        let line = process.log().wait_for("listening", |line| line["message"] == "listening").await;
        let path = |name: &str| line["data"][name].as_str().map(PathBuf::from);
        let url = line["data"]["url"].as_str().unwrap().to_string();
        let token_file = path("token_file");
        Self {
            address: url.strip_prefix("http://").unwrap().parse().unwrap(),
            url,
            token: token_file.as_ref().map(|file| std::fs::read_to_string(file).unwrap()),
            token_file,
            socket: path("socket"),
            world,
            setup,
            process,
            _pipes: (stdin, stdout),
        }
    }

    pub fn model(&self) -> &ScriptedModel {
        &self.world.model
    }

    /// HTTP with the server token.
    pub fn wire(&self) -> Wire {
        Wire::to(self)
    }

    /// A raw HTTP connection.
    pub async fn http(&self) -> Http {
        Http::connect(self.address).await
    }

    /// A raw connection to the socket.
    pub async fn unix(&self) -> Framed {
        Framed::connect(self.socket.as_ref().expect("the server has a socket")).await
    }

    /// `POST /` with the server token.
    pub fn post(&self, body: impl Into<Vec<u8>>) -> HttpRequest {
        HttpRequest::post(self.address, "/", body).bearer(self.token.as_deref())
    }

    /// Sends a request on a connection of its own.
    pub async fn ask(&self, request: HttpRequest) -> Response {
        let mut connection = self.http().await;
        connection.write_some(&request.bytes()).await;
        connection.response().await
    }

    /// Another command of the program in the same world.
    pub async fn cli<S: Into<OsString>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        process::run(self.world.command(args)).await
    }

    pub fn log(&self) -> &Log {
        self.process.log()
    }

    /// What the kernel says of the process under a name.
    pub fn status(&self, name: &str) -> String {
        self.process.status(name)
    }

    /// How many files the kernel lets it open, and how many it could have at most.
    pub fn open_files_max(&self) -> (String, String) {
        self.process.open_files_max()
    }

    pub fn memory_peak_bytes(&self) -> usize {
        self.process.memory_peak_bytes()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for the end of the process.
    pub async fn exit(&mut self) -> ExitStatus {
        self.process.exit().await
    }

    /// Asks it to stop, as an operator does, and waits.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.exit().await
    }

    /// `kill -9`, and the same again in the same world.
    pub async fn restart(mut self) -> Self {
        self.signal(Signal::KILL);
        self.exit().await;
        Self::start_with(self.setup.clone(), self.world.clone()).await
    }
}
