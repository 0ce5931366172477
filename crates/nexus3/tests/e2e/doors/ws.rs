//! The methods over a WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::host::is_busy;
use crate::harness::{HttpRequest, Server, Setup, check, eventually, within};
use crate::support::create;

pub struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn open(server: &Server, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let mut request = format!("ws://{}/ws", server.address).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(server.address).await.unwrap();
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        match within("the handshake", opened).await {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn with(server: &Server, token: &str) -> Self {
        let bearer = format!("Bearer {token}");
        Self::open(server, &[("Authorization", &bearer)]).await.unwrap()
    }

    pub async fn of(server: &Server) -> Self {
        Self::with(server, server.token.as_deref().unwrap()).await
    }

    pub async fn send(&mut self, text: impl Into<String>) {
        let sent = self.0.send(Message::text(text.into()));
        within("the server to read", sent).await.unwrap();
    }

    async fn call(&mut self, id: u64, method: &str, params: Value) {
        self.send(
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        )
        .await;
    }

    /// The next message; `Err` with the code when it is closed.
    pub async fn next(&mut self) -> Result<Value, Option<u16>> {
        loop {
            match within("a message", self.0.next()).await {
                Some(Ok(Message::Text(text))) => return Ok(check::message(&text)),
                Some(Ok(Message::Close(frame))) => return Err(frame.map(|it| it.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }
}

#[tokio::test]
async fn methods_are_called_and_streamed_side_by_side() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let gate = Gate::new();
    server.model().push(Reply::text("One ").then_gate(&gate).then_text("two."));
    let mut socket = Socket::of(&server).await;
    socket.call(1, "send", json!({"agent_id": "a", "content": "x", "stream": true})).await;
    assert_eq!(socket.next().await.unwrap()["method"], "stream_start");
    assert_eq!(socket.next().await.unwrap()["params"]["chunk"], "One ");
    socket.call(2, "list_agents", json!({})).await;
    let listed = socket.next().await.unwrap();
    assert_eq!(
        (&listed["id"], &listed["result"]["agents"][0]["agent_id"]),
        (&json!(2), &json!("a"))
    );
    gate.release();
    let mut last = socket.next().await.unwrap();
    while last["id"] != 1 {
        last = socket.next().await.unwrap();
    }
    assert_eq!(last["result"]["content"], "One two.");
    socket.send("{").await;
    assert_eq!(socket.next().await.unwrap()["error"]["code"], -32700);
}

#[tokio::test]
async fn who_hangs_up_has_cancelled_what_it_streams() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().push(Reply::text("So").then_hang());
    let mut socket = Socket::of(&server).await;
    socket.call(1, "send", json!({"agent_id": "a", "content": "x", "stream": true})).await;
    socket.next().await.unwrap();
    socket.next().await.unwrap();
    drop(socket);
    eventually("the turn to end", async || !is_busy(&server, "a").await).await;
}

#[tokio::test]
async fn only_who_may_is_let_in() {
    let server = Server::start().await;
    let bearer = format!("Bearer {}", server.token.as_deref().unwrap());
    let own = format!("http://{}", server.address);
    let right = ("Authorization", bearer.as_str());
    for (headers, status) in [
        (vec![], 401),
        (vec![("Authorization", "Bearer wrong")], 403),
        (vec![right, ("Origin", "https://evil.example")], 403),
        (vec![right, ("Origin", own.as_str())], 403),
        (vec![right, ("Host", "evil.example")], 403),
        (vec![right, ("Sec-WebSocket-Version", "8")], 426),
    ] {
        assert_eq!(Socket::open(&server, &headers).await.err(), Some(status), "{headers:?}");
    }
    // A token in the address is none.
    let path = format!("/ws?token={}", server.token.as_deref().unwrap());
    let plain = |path: &str| HttpRequest::post(server.address, path, "").verb("GET");
    assert_eq!(server.ask(plain(&path)).await.status, 401);
    let response = server.ask(plain("/ws").bearer(server.token.as_deref())).await;
    assert_eq!((response.status, response.header("upgrade")), (426, Some("websocket")));
    let posted = plain("/ws").verb("POST").bearer(server.token.as_deref());
    assert_eq!(server.ask(posted).await.status, 405);
}

#[tokio::test]
async fn a_door_that_is_closed_is_not_there() {
    let server = Setup::new().config(json!({"doors": {"websocket": false}})).start().await;
    let bearer = format!("Bearer {}", server.token.as_deref().unwrap());
    let refused = Socket::open(&server, &[("Authorization", bearer.as_str())]).await.err();
    assert_eq!(refused, Some(404));
}

#[tokio::test]
async fn a_message_of_ten_mebibytes_is_taken_and_a_larger_one_is_not() {
    let server = Server::start().await;
    let of_length = |bytes: usize| {
        let call = |name: &str| {
            json!({"jsonrpc": "2.0", "id": 1, "method": "get_context", "params": {"agent_id": name}})
                .to_string()
        };
        call(&"x".repeat(bytes - call("").len()))
    };
    let most = 10 * 1024 * 1024;
    let mut socket = Socket::of(&server).await;
    socket.send(of_length(most)).await;
    assert_eq!(socket.next().await.unwrap()["error"]["code"], -32602);
    let _ = socket.0.send(Message::text(of_length(most + 1))).await;
    assert!(matches!(socket.next().await, Err(None | Some(1009))));
    let mut socket = Socket::of(&server).await;
    socket.0.send(Message::binary(vec![1])).await.unwrap();
    assert_eq!(socket.next().await, Err(Some(1003)));
}

#[tokio::test]
async fn an_agent_sends_no_larger_message_than_by_any_other_way() {
    let server = Setup::new().server(json!({"body_bytes_max": 4_096})).start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let made = wire.ok("create_agent_token", json!({"agent_id": "a"})).await;
    let mut socket = Socket::with(&server, made["token"].as_str().unwrap()).await;
    let padded = |bytes: usize| {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "rpc.version"}).to_string();
        format!("{call:bytes$}")
    };
    socket.send(padded(4_096)).await;
    assert_eq!(socket.next().await.unwrap()["id"], 1);
    socket.send(padded(4_097)).await;
    assert_eq!(socket.next().await, Err(Some(1009)));
    // The administrator has frames of ten mebibytes.
    let mut socket = Socket::of(&server).await;
    socket.send(padded(4_097)).await;
    assert_eq!(socket.next().await.unwrap()["id"], 1);
}

/// A server with eight places, and an agent's token.
async fn with_eight_places() -> (Server, String) {
    let server = Setup::new().server(json!({"max_connections": 8})).start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let made = wire.ok("create_agent_token", json!({"agent_id": "a"})).await;
    (server, made["token"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn sockets_that_an_agent_does_not_use_make_room() {
    let (server, token) = with_eight_places().await;
    let mut sockets = Vec::new();
    for _ in 0..20 {
        sockets.push(Socket::with(&server, &token).await);
        let listed = server.wire().ok("list_agents", json!({})).await;
        assert_eq!(listed["agents"][0]["agent_id"], "a");
    }
    // Of one tree two stay; those that had to go are told good-bye.
    for socket in &mut sockets[..18] {
        assert!(socket.next().await.is_err());
    }
    for socket in &mut sockets[18..] {
        socket.call(1, "rpc.version", json!({})).await;
        assert_eq!(socket.next().await.unwrap()["id"], 1);
    }
}

#[tokio::test]
async fn sockets_that_an_agent_uses_leave_room_for_others() {
    let (server, token) = with_eight_places().await;
    let mut sockets = Vec::new();
    let mut watch = Value::Null;
    for _ in 0..2 {
        let mut socket = Socket::with(&server, &token).await;
        socket.call(1, "watch", json!({"agents": ["a"]})).await;
        watch = socket.next().await.unwrap()["params"]["watch_id"].clone();
        sockets.push(socket);
    }
    let bearer = format!("Bearer {token}");
    let refused = Socket::open(&server, &[("Authorization", bearer.as_str())]).await.err();
    assert_eq!(refused, Some(503));
    let wire = server.wire();
    create(&wire, "b").await;
    let made = wire.ok("create_agent_token", json!({"agent_id": "b"})).await;
    let mut other = Socket::with(&server, made["token"].as_str().unwrap()).await;
    other.call(1, "rpc.version", json!({})).await;
    assert_eq!(other.next().await.unwrap()["id"], 1);
    // It is not the sockets that are too many, but what they are used for.
    sockets[1].call(2, "unwatch", json!({"watch_id": watch})).await;
    let mut answered = 0;
    while answered < 2 {
        answered += usize::from(!sockets[1].next().await.unwrap()["id"].is_null());
    }
    eventually("room", async || {
        Socket::open(&server, &[("Authorization", bearer.as_str())]).await.is_ok()
    })
    .await;
}

/// Frames as no client writes them.
#[tokio::test]
async fn who_does_not_speak_websocket_is_told_so() {
    let server = Server::start().await;
    for (frame, code) in [
        (&[0x81, 1, b'x'][..], 1002),
        (&[0x80, 0x80, 0, 0, 0, 0], 1002),
        (&[0xf1, 0x80, 0, 0, 0, 0], 1002),
        (&[0x81, 0x82, 0, 0, 0, 0, 0xff, 0xfe], 1007),
    ] {
        let mut socket = Socket::of(&server).await;
        socket.0.get_mut().write_all(frame).await.unwrap();
        assert_eq!(socket.next().await, Err(Some(code)), "{frame:x?}");
    }
}

/// The seventeenth waits until one of them ends.
#[tokio::test]
async fn sixteen_calls_run_at_once() {
    let server = Server::start().await;
    let gate = Gate::new();
    let mut socket = Socket::of(&server).await;
    for number in 0..16 {
        create(&server.wire(), &format!("a{number}")).await;
        server.model().push(Reply::text("Done.").held_by(&gate));
        socket
            .call(number, "send", json!({"agent_id": format!("a{number}"), "content": "x"}))
            .await;
    }
    eventually("all to run", async || server.model().request_count() == 16).await;
    socket.call(99, "list_agents", json!({})).await;
    gate.release();
    let mut ids = Vec::new();
    for _ in 0..17 {
        ids.push(socket.next().await.unwrap()["id"].as_u64().unwrap());
    }
    assert_ne!(ids[0], 99);
    ids.sort_unstable();
    assert_eq!(ids, (0..16).chain([99]).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_key_opens_it_as_its_agent_until_it_is_revoked() {
    let server = Server::start().await;
    let wire = server.wire();
    let params = json!({"name": "k", "doors": ["websocket"]});
    let key = wire.ok("create_key", params).await["key"].as_str().unwrap().to_owned();
    let mut socket = Socket::with(&server, &key).await;
    socket.call(1, "list_agents", json!({})).await;
    let listed = socket.next().await.unwrap();
    assert_eq!(listed["result"]["agents"][0]["agent_id"], "door-k", "{listed}");
    let own = json!({"agent_id": "door-k", "config": {"name": "s", "command": "true"}});
    for (id, method, params) in [(2, "create_key", json!({"name": "x"})), (3, "mcp_connect", own)] {
        socket.call(id, method, params).await;
        let refused = socket.next().await.unwrap();
        assert_eq!(refused["error"]["code"], -32003, "{refused}");
    }
    wire.ok("revoke_key", json!({"name": "k"})).await;
    assert_eq!(socket.next().await, Err(Some(1008)));
    let bearer = format!("Bearer {key}");
    assert_eq!(Socket::open(&server, &[("Authorization", bearer.as_str())]).await.err(), Some(403));
    let other = wire.ok("create_key", json!({"name": "o", "doors": ["openai"]})).await;
    let bearer = format!("Bearer {}", other["key"].as_str().unwrap());
    assert_eq!(Socket::open(&server, &[("Authorization", bearer.as_str())]).await.err(), Some(403));
}

/// A server that stops says good-bye, and ends.
#[tokio::test]
async fn a_server_that_stops_closes_it() {
    let mut server = Server::start().await;
    let mut socket = Socket::of(&server).await;
    socket.call(1, "list_agents", json!({})).await;
    socket.next().await.unwrap();
    assert!(server.terminate().await.success());
    assert!(matches!(socket.next().await, Err(None | Some(1000))));
}
