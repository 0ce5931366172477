//! A transport as a case sees it: messages go in, answers and notifications come out.

mod direct;
mod exchange;
mod pipes;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nexus_config::Config;
use nexus_core::Requester;
use nexus_server::DirectAgentApi;
use nexus_server::transport::memory::MemoryConnection;
use nexus_testkit::ScriptedModel;
use nexus_tools::sandbox::Launcher;
use nexus3::wiring::{self, Logs, Wired};
use serde_json::{Value, json};

use super::{Fault, Framed, Http, HttpRequest, Server, Setup, World, check, within};
pub use exchange::Exchange;
use pipes::Pipes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Http,
    Unix,
    Stdio,
    Memory,
    /// The typed interface in the process, `DirectAgentApi`.
    Direct,
}

/// The server scope of one server over one transport, as the administrator.
pub struct Wire {
    world: Arc<World>,
    link: Link,
    /// The server, when it was started for this wire.
    server: Option<Server>,
    next_id: AtomicU64,
}

enum Link {
    Http { post: HttpRequest, address: std::net::SocketAddr, idle: Mutex<Vec<Http>> },
    Unix { path: PathBuf, idle: Mutex<Vec<Framed>> },
    Stdio(Pipes),
    Memory(Wired),
    Direct(Wired),
}

impl Wire {
    /// A server of its own, reached over `transport`.
    pub async fn over(transport: Transport, setup: Setup) -> Self {
        let world = setup.world().await;
        Self::beside(transport, setup, &world).await
    }

    /// The same in a world that may have another one.
    pub async fn beside(transport: Transport, setup: Setup, world: &Arc<World>) -> Self {
        match transport {
            Transport::Http => {
                let server = setup.start_in(world).await;
                Self::to(&server).owning(server)
            }
            Transport::Unix => {
                let server = setup.start_in(world).await;
                let path = server.socket.clone().unwrap();
                let link = Link::Unix { path, idle: Mutex::default() };
                Self::new(&server.world, link).owning(server)
            }
            Transport::Stdio => Self::new(world, Link::Stdio(Pipes::new(setup.stdio_in(world)))),
            Transport::Memory => Self::new(world, Link::Memory(wired(world, Logs::none()).await)),
            Transport::Direct => Self::new(world, Link::Direct(wired(world, Logs::none()).await)),
        }
    }

    /// HTTP to a server that runs, with its token.
    pub fn to(server: &Server) -> Self {
        let link =
            Link::Http { post: server.post(""), address: server.address, idle: Mutex::default() };
        Self::new(&server.world, link)
    }

    fn new(world: &Arc<World>, link: Link) -> Self {
        Self { world: world.clone(), link, server: None, next_id: AtomicU64::new(1) }
    }

    fn owning(self, server: Server) -> Self {
        Self { server: Some(server), ..self }
    }

    pub fn model(&self) -> &ScriptedModel {
        &self.world.model
    }

    /// Where agents work that were given no directory.
    pub fn work(&self) -> PathBuf {
        self.world.work()
    }

    /// Sends a message and returns its answer, checked.
    pub async fn exchange(&self, message: impl AsRef<[u8]>) -> Value {
        check::message(&self.exchange_raw(message).await)
    }

    /// Sends a message and returns the text of its answer.
    pub async fn exchange_raw(&self, message: impl AsRef<[u8]>) -> String {
        self.deliver(message.as_ref()).await.expect("the message was not answered")
    }

    /// Sends a message that must not be answered.
    pub async fn silent(&self, message: impl AsRef<[u8]>) {
        let message = message.as_ref();
        let asked = String::from_utf8_lossy(message);
        match &self.link {
            Link::Http { .. } | Link::Memory(_) => {
                assert_eq!(self.deliver(message).await, None, "{asked}");
            }
            Link::Direct(_) => panic!("a typed call is always answered: {asked}"),
            Link::Unix { path, .. } => {
                // Answers come in order: the next one must be that of the next request.
                let mut connection = Framed::connect(path).await;
                connection.send(message).await;
                connection.send(MARK.as_bytes()).await;
                assert_eq!(connection.message().await["id"], "mark", "{asked}");
                connection.end_input().await;
                assert_eq!(connection.frame().await, None, "{asked}");
            }
            Link::Stdio(pipes) => {
                // An answer that comes late is found when the wire is finished.
                pipes.send(message).await;
                assert_eq!(self.exchange(MARK).await["id"], "mark", "{asked}");
            }
        }
    }

    /// Sends a message whose answer may arrive in pieces.
    pub async fn open(&self, message: impl AsRef<[u8]>) -> Exchange {
        let message = message.as_ref();
        match &self.link {
            Link::Http { post, address, .. } => {
                let request = post.clone().header("Accept", "application/json, text/event-stream");
                let mut connection = Http::connect(*address).await;
                connection.write(&request.body(message).bytes()).await;
                Exchange::http(connection).await
            }
            Link::Unix { path, .. } => {
                let mut connection = Framed::connect(path).await;
                connection.send(message).await;
                Exchange::unix(connection)
            }
            Link::Stdio(pipes) => Exchange::stdio(pipes.begin(message).await),
            Link::Memory(wired) => {
                let (connection, notifications) =
                    MemoryConnection::open(wired.dispatcher.clone(), Requester::Administrator);
                Exchange::memory(connection, notifications, message.to_vec())
            }
            Link::Direct(_) => Exchange::body(self.exchange_raw(message).await),
        }
    }

    /// Calls a method with an id of its own.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut answer = self.exchange(request(id, method, params)).await;
        assert_eq!(answer["id"], id);
        match answer.get("error") {
            Some(error) => Err(Fault::of(error)),
            None => Ok(answer["result"].take()),
        }
    }

    /// Calls a method that must succeed.
    pub async fn ok(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params.clone()).await;
        answer.unwrap_or_else(|fault| panic!("{method} {params}: {fault:?}"))
    }

    /// Calls a method that must fail.
    pub async fn refused(&self, method: &str, params: Value) -> Fault {
        match self.call(method, params.clone()).await {
            Err(fault) => fault,
            Ok(result) => panic!("{method} {params}: {result}"),
        }
    }

    /// Stops a server that was started for this wire. It must end well, and have said nothing that nobody asked for.
    pub async fn finish(self) {
        if let Some(mut server) = self.server {
            assert_eq!(server.terminate().await.code(), Some(0), "{}", server.log().text());
        }
        match self.link {
            Link::Http { .. } | Link::Unix { .. } => {}
            Link::Stdio(pipes) => pipes.finish().await,
            Link::Memory(wired) | Link::Direct(wired) => {
                wired.engine.turns.stop(std::time::Duration::ZERO).await;
                wired.engine.close().await.unwrap();
            }
        }
    }

    /// Sends a message and returns the text of its answer, if it gets one.
    async fn deliver(&self, message: &[u8]) -> Option<String> {
        match &self.link {
            Link::Http { post, address, idle } => {
                let kept = idle.lock().unwrap().pop();
                let mut connection = match kept {
                    Some(connection) => connection,
                    None => Http::connect(*address).await,
                };
                connection.write(&post.clone().body(message).bytes()).await;
                let response = connection.response().await;
                assert_eq!(response.status == 202, response.body.is_empty(), "{response:?}");
                idle.lock().unwrap().push(connection);
                (response.status != 202).then(|| String::from_utf8(response.body).unwrap())
            }
            Link::Unix { path, idle } => {
                let kept = idle.lock().unwrap().pop();
                let mut connection = match kept {
                    Some(connection) => connection,
                    None => Framed::connect(path).await,
                };
                connection.send(message).await;
                let answer = connection.frame().await;
                idle.lock().unwrap().push(connection);
                answer
            }
            Link::Stdio(pipes) => within("an answer", pipes.begin(message).await.recv()).await,
            Link::Memory(wired) => {
                let (connection, _notifications) =
                    MemoryConnection::open(wired.dispatcher.clone(), Requester::Administrator);
                let answer = within("an answer", connection.request(message.to_vec())).await;
                answer.map(|answer| String::from_utf8(answer).expect("an answer is UTF-8"))
            }
            Link::Direct(wired) => {
                let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
                Some(within("an answer", direct::answer(&api, message)).await)
            }
        }
    }
}

/// A request whose answer shows that what was sent before it got none.
const MARK: &str = r#"{"jsonrpc":"2.0","method":"rpc.version","id":"mark"}"#;

/// A request as a client writes it.
pub fn request(id: impl Into<Value>, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params, "id": id.into()}).to_string()
}

/// Runs a case over one transport.
pub async fn run(transport: Transport, setup: Setup, case: impl AsyncFn(&Wire)) {
    let wire = Wire::over(transport, setup).await;
    case(&wire).await;
    wire.finish().await;
}

/// An engine in this process, wired as the binary wires its own.
pub async fn wired(world: &World, logs: Logs) -> Wired {
    let (home, work) = (world.home(), world.work());
    let config = Config::load(&home, &work, &|_| None).unwrap();
    // This process is no launcher; the binary is.
    let launcher = Launcher::new(env!("CARGO_BIN_EXE_nexus3").into());
    wiring::wire(&home, &work, &config, logs, launcher).await.unwrap()
}

/// Makes one test for each transport, the typed interface included, of every case that is named, and so of its failure.
/// A case is an `async fn(&Wire)`; after a colon may stand the [`Setup`] that it needs.
macro_rules! over_every_wire {
    ($($case:ident $(: $setup:expr)?),+ $(,)?) => { $(
        wire_tests! { $case [$($setup)?] http Http, unix Unix, stdio Stdio, memory Memory, direct Direct }
    )+ };
}

/// The same for cases that a typed call cannot say: notifications, batches, streams, and messages that are wrong.
macro_rules! over_every_wire_of_messages {
    ($($case:ident $(: $setup:expr)?),+ $(,)?) => { $(
        wire_tests! { $case [$($setup)?] http Http, unix Unix, stdio Stdio, memory Memory }
    )+ };
}

macro_rules! wire_tests {
    ($case:ident [] $($rest:tt)+) => { wire_tests! { $case [$crate::harness::Setup::new()] $($rest)+ } };
    ($case:ident [$setup:expr] $($test:ident $transport:ident),+) => {
        mod $case {
            use super::*;
            use crate::harness::wire::{Transport, run};

            $(
                #[tokio::test]
                async fn $test() {
                    run(Transport::$transport, $setup, $case).await;
                }
            )+
        }
    };
}
