//! Servers of the tests' own methods, called over their real sockets.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::*;
use crate::transport::unix::FRAME_BYTES_MAX;

struct World {
    server: RpcServer,
    _directory: tempfile::TempDir,
}

impl World {
    /// A server with a few methods, started.
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = RpcServer::new(directory.path().join("run/rpc.sock"));
        server.register("echo", async |params| Ok(Value::Object(params)));
        server.register("fail", async |_| Err(RpcError::invalid_param("a", "must be even")));
        server.register("panic", async |_| panic!("no"));
        server.register("fill", async |params| {
            let bytes = params["bytes"].as_u64().unwrap_or_default();
            Ok("x".repeat(bytes as usize).into())
        });
        server.start().unwrap();
        Self { server, _directory: directory }
    }

    async fn connect(&self) -> Peer {
        Peer(UnixStream::connect(self.server.socket_path()).await.unwrap())
    }

    /// The answer to one message on a connection of its own.
    async fn ask(&self, message: Value) -> Value {
        self.connect().await.ask(message.to_string().as_bytes()).await
    }

    #[track_caller]
    fn is_gone(&self) {
        assert!(!self.server.is_running() && !self.server.socket_path().exists());
    }
}

struct Peer(UnixStream);

impl Peer {
    async fn ask(&mut self, message: &[u8]) -> Value {
        self.send(message).await;
        self.receive().await
    }

    async fn send(&mut self, message: &[u8]) {
        self.0.write_all(&(message.len() as u32).to_be_bytes()).await.unwrap();
        self.0.write_all(message).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let length = self.0.read_u32().await.unwrap();
        let mut body = vec![0; length as usize];
        self.0.read_exact(&mut body).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }
}

fn call(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

#[tokio::test]
async fn a_method_is_called_with_its_parameters() {
    let world = World::start();
    let answer = world.ask(call("echo", json!({"a": 1}))).await;
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}));
    let bare = world.ask(json!({"jsonrpc": "2.0", "id": "x", "method": "echo"})).await;
    assert_eq!(bare, json!({"jsonrpc": "2.0", "id": "x", "result": {}}));
}

#[tokio::test]
async fn what_fails_has_the_code_of_its_failure() {
    let world = World::start();
    let cases = [
        (call("nothing", json!({})), -32601),
        (call("echo", json!([1])), -32602),
        (call("fail", json!({})), -32602),
        (call("panic", json!({})), -32603),
        (json!({"jsonrpc": "1.0", "id": 1, "method": "echo"}), -32600),
    ];
    for (message, code) in cases {
        let answer = world.ask(message.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{message}: {answer}");
    }
    let mut peer = world.connect().await;
    assert_eq!(peer.ask(b"{").await["error"]["code"], -32700);
    let after = peer.ask(call("echo", json!({})).to_string().as_bytes()).await;
    assert_eq!(after["result"], json!({}));
}

#[tokio::test]
async fn a_batch_is_answered_together_and_a_notification_not_at_all() {
    let world = World::start();
    let notice = json!({"jsonrpc": "2.0", "method": "echo", "params": {"quiet": true}});
    let mut other = call("nothing", json!({}));
    other["id"] = json!(2);
    let answers = world.ask(json!([call("echo", json!({"a": 1})), notice, other])).await;
    let codes: Vec<_> = answers.as_array().unwrap().iter().map(|it| &it["error"]["code"]).collect();
    assert_eq!(codes, [&Value::Null, &json!(-32601)]);

    let mut peer = world.connect().await;
    peer.send(notice.to_string().as_bytes()).await;
    let next = peer.ask(call("echo", json!({"b": 2})).to_string().as_bytes()).await;
    assert_eq!(next["result"], json!({"b": 2}));
}

#[tokio::test]
async fn the_largest_answer_is_sent_and_a_larger_one_refused() {
    let world = World::start();
    let around = json!({"jsonrpc": "2.0", "id": 1, "result": ""}).to_string().len();
    let fill = |bytes: usize| call("fill", json!({"bytes": bytes}));
    let whole = world.ask(fill(FRAME_BYTES_MAX - around)).await;
    assert_eq!(whole["result"].as_str().unwrap().len(), FRAME_BYTES_MAX - around);
    let refused = world.ask(fill(FRAME_BYTES_MAX - around + 1)).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32603)));
    let half = fill(FRAME_BYTES_MAX / 2);
    let batch = world.ask(json!([half, half])).await;
    assert!(batch[0]["result"].is_string() && batch[1]["error"]["code"] == -32603);
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused() {
    let world = World::start();
    let mut peer = world.connect().await;
    peer.0.write_all(&(FRAME_BYTES_MAX as u32 + 1).to_be_bytes()).await.unwrap();
    assert_eq!(peer.receive().await["error"]["code"], -32600);
}

#[tokio::test]
async fn many_peers_are_served_at_once() {
    let world = World::start();
    let (first, second) = (world.connect(), world.connect());
    let (mut first, mut second) = (first.await, second.await);
    let gate = Arc::new(tokio::sync::Barrier::new(2));
    world.server.register("meet", move |_| {
        let gate = gate.clone();
        async move { Ok(gate.wait().await.is_leader().into()) }
    });
    let message = call("meet", json!({})).to_string();
    let (a, b) = tokio::join!(first.ask(message.as_bytes()), second.ask(message.as_bytes()));
    assert_ne!(a["result"], b["result"]);
}

#[tokio::test]
async fn it_is_there_from_start_to_stop_and_can_start_again() {
    let mut world = World::start();
    assert!(world.server.is_running());
    let mode = std::fs::metadata(world.server.socket_path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(world.server.start(), Err(BindError::Live(_))));
    assert!(world.server.is_running());
    world.server.stop().await;
    world.is_gone();
    world.server.stop().await;
    world.server.start().unwrap();
    assert_eq!(world.ask(call("echo", json!({}))).await["result"], json!({}));
    world.server.stop().await;
    world.is_gone();
}

#[tokio::test]
async fn a_call_that_runs_is_finished_before_the_server_stops() {
    let mut world = World::start();
    let (began, begun) = tokio::sync::oneshot::channel();
    let began = std::sync::Mutex::new(Some(began));
    let (go, gone) = tokio::sync::watch::channel(false);
    world.server.register("wait", move |_| {
        let _ = began.lock().unwrap().take().unwrap().send(());
        let mut gone = gone.clone();
        async move { Ok(gone.wait_for(|gone| *gone).await.is_ok().into()) }
    });
    let mut idle = world.connect().await;
    let mut busy = world.connect().await;
    busy.send(call("wait", json!({})).to_string().as_bytes()).await;
    begun.await.unwrap();
    let stopped = async {
        world.server.stop().await;
    };
    let finished = async {
        // The end of the idle connection says that the server is stopping.
        assert_eq!(idle.0.read(&mut [0]).await.unwrap(), 0);
        go.send(true).unwrap();
        assert_eq!(busy.receive().await["result"], true);
    };
    tokio::join!(stopped, finished);
    world.is_gone();
}

#[tokio::test]
async fn who_drops_it_ends_it() {
    let World { server, _directory } = World::start();
    let path = server.socket_path().to_owned();
    let mut idle = UnixStream::connect(&path).await.unwrap();
    drop(server);
    // Closed, or reset where it had not been accepted yet.
    assert!(matches!(idle.read(&mut [0]).await, Ok(0) | Err(_)));
    while path.exists() {
        tokio::task::yield_now().await;
    }
}
