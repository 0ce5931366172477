//! Calls and watches on one stream, whose other end a test serves by hand.

use nexus_protocol::agent::ListAgents;
use nexus_protocol::agent::ListAgentsParams;
use nexus_protocol::watch::Event;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::WatchItem;

struct Peer(UnixStream);

impl Peer {
    /// What the client says next.
    async fn read(&mut self) -> Value {
        let mut header = [0; 4];
        self.0.read_exact(&mut header).await.unwrap();
        let mut body = vec![0; u32::from_be_bytes(header) as usize];
        self.0.read_exact(&mut body).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    async fn write(&mut self, message: Value) {
        let message = message.to_string();
        let header = u32::try_from(message.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&header, message.as_bytes()].concat()).await.unwrap();
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        self.write(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// Tells a watch something; the first time with the id of its call.
    async fn tell(&mut self, watch_id: &str, sequence: u64, opened_by: Option<&Value>) {
        self.tell_of(watch_id, sequence, opened_by, "a").await;
    }

    async fn tell_of(&mut self, id: &str, sequence: u64, opened_by: Option<&Value>, agent: &str) {
        let mut params = json!({"watch_id": id, "sequence": sequence, "at": "now",
            "event": {"type": "agent_renamed", "to": agent}});
        if let Some(request) = opened_by {
            params["task_id"] = request["id"].clone();
        }
        self.write(json!({"jsonrpc": "2.0", "method": "watch_event", "params": params})).await;
    }
}

fn pair() -> (ChannelClient, Peer) {
    let (own, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ChannelClient::from_std(own).unwrap(), Peer(UnixStream::from_std(theirs).unwrap()))
}

fn to_server() -> Target {
    Target::Server
}

/// The number of the next event of a watch.
async fn sequence(watch: &mut WatchStream) -> u64 {
    match watch.next().await.unwrap().unwrap() {
        WatchItem::Event(event) => {
            assert!(matches!(event.happened.event, Event::AgentRenamed { .. }));
            event.sequence
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn answers_find_their_calls_in_any_order() {
    let (client, mut peer) = pair();
    let serve = async {
        let (one, two) = (peer.read().await, peer.read().await);
        let (first, second) = match one["method"] == "first" {
            true => (one, two),
            false => (two, one),
        };
        assert_eq!(second["params"], json!({"agent_id": "a"}));
        peer.answer(&second, json!(2)).await;
        peer.answer(&first, json!(1)).await;
    };
    let (agent, none) = (Target::Agent("a".into()), json!({}));
    let server = to_server();
    let first = client.call_value(&server, "first", &none);
    let second = client.call_value(&agent, "second", &none);
    let (first, second, ()) = tokio::join!(first, second, serve);
    assert_eq!((first.unwrap(), second.unwrap()), (json!(1), json!(2)));
}

#[tokio::test]
async fn typed_calls_and_errors_of_the_server() {
    let (client, mut peer) = pair();
    let serve = async {
        let request = peer.read().await;
        assert_eq!(request["method"], "list_agents");
        peer.answer(&request, json!({"agents": []})).await;
        let request = peer.read().await;
        let error = json!({"code": -32601, "message": "no"});
        peer.write(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    };
    let call = async {
        let listed = client.call::<ListAgents>(&Target::Server, ListAgentsParams::default()).await;
        assert!(listed.unwrap().agents.is_empty());
        let refused = client.call_value(&Target::Server, "nope", &json!({})).await;
        assert!(matches!(refused, Err(CallError::Rpc(error)) if error.code == -32601));
    };
    tokio::join!(serve, call);
}

#[tokio::test]
async fn watches_are_told_apart_beside_a_call() {
    let (client, mut peer) = pair();
    let mut one = client.watch(WatchParams::default()).await.unwrap();
    let opened_one = peer.read().await;
    let mut two = client.watch(WatchParams::default()).await.unwrap();
    let opened_two = peer.read().await;
    peer.tell("watch_8", 1, Some(&opened_two)).await;
    peer.tell("watch_7", 1, Some(&opened_one)).await;
    peer.tell("watch_8", 2, None).await;
    peer.tell("watch_9", 5, None).await;
    let server = to_server();
    let params = json!({});
    let call = client.call_value(&server, "x", &params);
    let serve = async {
        let request = peer.read().await;
        peer.tell("watch_7", 2, None).await;
        peer.answer(&request, json!("y")).await;
    };
    assert_eq!(tokio::join!(call, serve).0.unwrap(), "y");
    for expected in [1, 2] {
        assert_eq!(sequence(&mut one).await, expected);
        assert_eq!(sequence(&mut two).await, expected);
    }
    let over = json!({"watch_id": "watch_7", "reason": "unwatched", "events": 2});
    peer.answer(&opened_one, over).await;
    assert!(matches!(one.next().await, Some(Ok(WatchItem::Done(over))) if over.events == 2));
    assert!(one.next().await.is_none());
    // The one that has ended is not ended again; the other one is.
    drop(one);
    drop(two);
    let unwatch = peer.read().await;
    assert_eq!(
        (&unwatch["method"], &unwatch["params"]["watch_id"]),
        (&json!("unwatch"), &json!("watch_8"))
    );
    let open = client.shared.lock();
    assert!(open.watches.is_empty() && open.named.is_empty() && open.calls.is_empty());
}

#[tokio::test]
async fn a_watch_that_was_left_before_it_had_a_name_is_ended_when_it_has() {
    let (client, mut peer) = pair();
    drop(client.watch(WatchParams::default()).await.unwrap());
    let opened = peer.read().await;
    peer.tell("watch_3", 1, Some(&opened)).await;
    assert_eq!(peer.read().await["params"]["watch_id"], "watch_3");
}

#[tokio::test]
async fn a_watch_that_nobody_reads_holds_up_no_call_and_ends() {
    let (client, mut peer) = pair();
    let mut watch = client.watch(WatchParams::default()).await.unwrap();
    let opened = peer.read().await;
    let long = "a".repeat(5 << 20);
    peer.tell_of("watch_1", 1, Some(&opened), &long).await;
    for sequence in 2..=4 {
        peer.tell_of("watch_1", sequence, None, &long).await;
    }
    let unwatch = peer.read().await;
    assert_eq!(
        (&unwatch["method"], &unwatch["params"]["watch_id"]),
        (&json!("unwatch"), &json!("watch_1"))
    );
    let server = to_server();
    let params = json!({});
    let call = client.call_value(&server, "x", &params);
    let serve = async {
        let request = peer.read().await;
        peer.answer(&request, json!(1)).await;
    };
    tokio::join!(call, serve).0.unwrap();
    for expected in 1..=4 {
        assert_eq!(sequence(&mut watch).await, expected);
    }
    let error = watch.next().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("watch again"), "{error}");
}

#[tokio::test]
async fn a_call_that_was_dropped_is_forgotten_and_one_that_is_late_has_a_limit() {
    let (client, mut peer) = pair();
    let client = client.timeout(Duration::from_millis(1));
    let late = client.call_value(&Target::Server, "x", &json!({})).await;
    assert!(matches!(late, Err(CallError::Timeout(_))));
    let request = peer.read().await;
    peer.answer(&request, json!(1)).await;
    assert!(client.shared.lock().calls.is_empty());
}

#[tokio::test]
async fn the_end_of_the_server_ends_all_that_waits() {
    let (client, mut peer) = pair();
    let mut watch = client.watch(WatchParams::default()).await.unwrap();
    peer.read().await;
    let (server, params) = (to_server(), json!({}));
    let call = client.call_value(&server, "x", &params);
    let serve = async {
        peer.read().await;
        drop(peer);
    };
    let lost = tokio::join!(call, serve).0;
    assert!(matches!(lost, Err(CallError::Transport(why)) if why == ENDED));
    client.closed().await;
    assert!(matches!(watch.next().await, Some(Err(CallError::Transport(_)))));
    let unsent = client.call_value(&Target::Server, "x", &json!({})).await;
    assert!(matches!(unsent, Err(CallError::Connect(_))));
}

#[tokio::test]
async fn the_last_clone_hangs_up() {
    let (client, mut peer) = pair();
    drop(client.clone());
    let (server, params) = (to_server(), json!({}));
    let call = client.call_value(&server, "x", &params);
    let serve = async {
        let request = peer.read().await;
        peer.answer(&request, json!(1)).await;
    };
    tokio::join!(call, serve).0.unwrap();
    drop(client);
    assert_eq!(peer.0.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn what_is_no_message_ends_the_client() {
    let (client, mut peer) = pair();
    peer.0.write_all(b"\0\0\0\x02{]").await.unwrap();
    client.closed().await;
    let refused = client.call_value(&Target::Server, "x", &json!({})).await;
    assert!(matches!(refused, Err(CallError::Connect(why)) if why.starts_with("not an answer")));
}

#[tokio::test]
async fn a_call_has_the_size_of_a_frame_at_most() {
    let (client, mut peer) = pair();
    let envelope = r#"{"jsonrpc":"2.0","method":"x","params":"","id":1}"#.len();
    for over in [0, 1] {
        let text = json!("a".repeat(crate::unix::FRAME_BYTES_MAX - envelope + over));
        let (server, read) = (to_server(), async {
            if over == 0 {
                let request = peer.read().await;
                peer.answer(&request, json!(1)).await;
            }
        });
        let sent = tokio::join!(client.call_value(&server, "x", &text), read).0;
        assert_eq!(sent.is_ok(), over == 0, "{over}: {sent:?}");
    }
}
