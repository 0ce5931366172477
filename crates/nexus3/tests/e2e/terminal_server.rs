//! The server that a terminal started: what only its terminal may do there, and when it ends.

mod life;
mod rights;

use std::collections::VecDeque;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::harness::process::Process;
use crate::harness::wire::request;
use crate::harness::{Framed, HttpRequest, Response, Setup, World, eventually};

/// A terminal and the server that it started.
pub struct Terminal {
    pub world: Arc<World>,
    pub process: Process,
    channel: Option<Framed>,
    /// What came while something else was waited for.
    passed: VecDeque<Value>,
    last_id: u64,
}

/// Any free port, as the usual one of the home.
pub fn setup() -> Setup {
    Setup::new().server(json!({"port": 0}))
}

impl Terminal {
    pub async fn start(setup: Setup) -> Self {
        let world = setup.world().await;
        Self::start_in(&setup, &world)
    }

    pub fn start_in(setup: &Setup, world: &Arc<World>) -> Self {
        let (own, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let mut command = setup.terminal_server(world);
        command.stdin(OwnedFd::from(theirs));
        let channel = Some(Framed::over(UnixStream::from_std(own).unwrap()));
        let process = Process::spawn_on(command);
        Self { world: world.clone(), process, channel, passed: VecDeque::new(), last_id: 0 }
    }

    fn channel(&mut self) -> &mut Framed {
        self.channel.as_mut().expect("the terminal is there")
    }

    /// Asks without waiting for the answer.
    pub async fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let message = request(id, method, params);
        self.channel().send(message.as_ref()).await;
        id
    }

    /// The next message for which `wanted` holds, among those that were passed over first.
    pub async fn wait_for(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.passed.iter().position(&wanted) {
            return self.passed.remove(at).unwrap();
        }
        loop {
            let message = self.channel().message().await;
            if wanted(&message) {
                return message;
            }
            self.passed.push_back(message);
        }
    }

    pub async fn answer(&mut self, id: u64) -> Value {
        self.wait_for(|message| message.get("method").is_none() && message["id"] == id).await
    }

    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(id).await
    }

    pub async fn ok(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.call(method, params).await;
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    pub async fn hello(&mut self) -> Value {
        self.ok("terminal.hello", json!({})).await
    }

    /// Hangs up.
    pub fn hang_up(&mut self) {
        self.channel = None;
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub fn log_file(&self) -> PathBuf {
        self.world.home().join("logs/server.log")
    }

    /// Waits for a line of the log.
    pub async fn logs(&self, text: &str) {
        eventually(text, async || self.log().contains(text)).await;
    }

    pub async fn exit(&mut self) -> ExitStatus {
        self.process.exit().await
    }
}

/// Another client of the server, over HTTP.
pub struct Other {
    address: std::net::SocketAddr,
    token: String,
}

impl Other {
    pub fn of(hello: &Value) -> Self {
        let url = hello["url"].as_str().unwrap();
        let token = fs::read_to_string(hello["token_file"].as_str().unwrap()).unwrap();
        Self { address: url.strip_prefix("http://").unwrap().parse().unwrap(), token }
    }

    pub fn post(&self, method: &str, params: Value) -> HttpRequest {
        HttpRequest::post(self.address, "/", request(1, method, params)).bearer(Some(&self.token))
    }

    pub async fn ask(&self, request: HttpRequest) -> Response {
        let mut connection = crate::harness::Http::connect(self.address).await;
        connection.write_some(&request.bytes()).await;
        connection.response().await
    }

    /// The answer's result, or its error.
    pub async fn call(&self, method: &str, params: Value) -> Value {
        answer(self.ask(self.post(method, params)).await.answer())
    }

    /// Opens a watch and returns the connection that it lasts for.
    pub async fn watch(&self) -> crate::harness::Http {
        let mut connection = crate::harness::Http::connect(self.address).await;
        let request = self.post("watch", json!({})).header("Accept", "text/event-stream");
        connection.write_some(&request.bytes()).await;
        connection
    }
}

/// The result, or the error.
pub fn answer(mut answer: Value) -> Value {
    match answer.get("error") {
        Some(error) => error.clone(),
        None => answer["result"].take(),
    }
}
