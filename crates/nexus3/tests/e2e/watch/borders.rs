//! Who may watch what, how much, and what ends a watch.

use nexus_client::{NexusClient, StreamItem, UnixClient, WatchItem, WatchStream};
use nexus_protocol::params::NonBlank;
use nexus_protocol::turn::SendParams;
use nexus_protocol::watch::WatchParams;
use nexus_testkit::{Gate, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{Watched, kinds, text};
use crate::harness::process::Process;
use crate::harness::wire::{Transport, request, run};
use crate::harness::{Http, Server, Setup, Wire, eventually, within};
use crate::support::{create, say};

over_every_wire_of_messages! {
    what_is_asked_wrongly_is_refused_by_its_rule,
    it_cannot_stand_in_a_batch,
}

async fn what_is_asked_wrongly_is_refused_by_its_rule(wire: &Wire) {
    create(wire, "a").await;
    let long = "ä".repeat(65);
    let many = |count: usize| vec!["a"; count];
    let refused = [
        (json!({"agents": ["nobody"]}), "Unknown agent: nobody"),
        (json!({"agents": ["a/b"]}), "agent name may hold only"),
        (json!({"agents": []}), "agents names 1 to 1000 agents"),
        (json!({"agents": many(1_001)}), "agents names 1 to 1000 agents"),
        (json!({"name": long}), "name has at most 64 characters"),
        (json!({"name": "a\u{1b}[2J"}), "none of them a control character"),
        (json!({"agents": ["a"], "after": {"a": -2}}), "the index of a message is -1 or more"),
        (json!({"agents": ["a"], "after": {"b": 1}}), "after names an agent that is not watched"),
        (json!({"agents": ["a"], "until": 1}), "until"),
        (json!({"agents": "a"}), "agents"),
    ];
    for (params, rule) in refused {
        let (notifications, answer) =
            wire.open(request(1, "watch", params.clone())).await.all().await;
        assert_eq!(notifications, [json!(null); 0], "{params}");
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(rule), "{answer}");
    }
    let fits = json!({"agents": many(1_000), "name": &long[..128], "after": {"a": -1}});
    Watched::open(wire, fits).await.unwatch(wire).await;
}

async fn it_cannot_stand_in_a_batch(wire: &Wire) {
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "watch"},
        {"jsonrpc": "2.0", "id": 2, "method": "rpc.version"},
        {"jsonrpc": "2.0", "method": "watch"},
    ]);
    let answers = wire.exchange(batch.to_string()).await;
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0]["error"]["code"], -32600);
    assert!(answers[0]["error"]["message"].as_str().unwrap().contains("batch"), "{answers:?}");
    assert!(answers[1]["result"]["version"].is_string());
}

#[tokio::test]
async fn over_http_it_needs_a_way_back() {
    let server = Server::start().await;
    let response = server.ask(server.post(request(1, "watch", json!({})))).await;
    let error = &response.answer()["error"];
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().contains("Accept: text/event-stream"), "{error}");
}

/// A watch over HTTP as the agent `who`.
async fn as_agent(server: &Server, who: &str, params: Value) -> Http {
    let post = server.post(request(1, "watch", params)).header("X-Nexus-Agent", who);
    let mut connection = Http::connect(server.address).await;
    connection.write(&post.header("Accept", "text/event-stream").bytes()).await;
    connection
}

/// The text of a chunk or two, until it holds `wanted`.
async fn read_until(connection: &mut Http, wanted: &str) -> String {
    let mut read = String::new();
    while !read.contains(wanted) {
        let chunk = within(wanted, connection.chunk()).await;
        let chunk = chunk.unwrap_or_else(|| panic!("ended before {wanted}: {read}"));
        read.push_str(&String::from_utf8(chunk).unwrap());
    }
    read
}

async fn refused_with(mut connection: Http, code: &str) {
    connection.head().await.unwrap();
    let answer = read_until(&mut connection, "\"error\"").await;
    assert!(
        answer.contains(&format!("\"code\":{code}")) && !answer.contains("snapshot"),
        "{answer}"
    );
}

#[tokio::test]
async fn an_agent_sees_its_line_and_nobody_else() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "root", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "own", "parent_agent_id": "root"})).await;
    wire.ok("create_agent", json!({"agent_id": "sister", "parent_agent_id": "root"})).await;
    create(&wire, "other").await;
    let mut all = as_agent(&server, "own", json!({})).await;
    all.head().await.unwrap();
    let first = read_until(&mut all, "\"snapshot\"").await;
    assert!(first.contains("\"own\"") && first.contains("\"root\""), "{first}");
    assert!(!first.contains("sister") && !first.contains("other"), "{first}");
    for who in ["other", "sister"] {
        let refused = as_agent(&server, "own", json!({"agents": [who]})).await;
        refused_with(refused, "-32003").await;
        say(&wire, who, "x").await;
    }
    let approver = as_agent(&server, "own", json!({"approver": true})).await;
    refused_with(approver, "-32003").await;
    let mut above = as_agent(&server, "root", json!({})).await;
    above.head().await.unwrap();
    let first = read_until(&mut above, "\"snapshot\"").await;
    assert!(first.contains("sister") && !first.contains("other"), "{first}");
    wire.ok("create_agent", json!({"agent_id": "late", "parent_agent_id": "root"})).await;
    say(&wire, "other", "x").await;
    let told = read_until(&mut above, "agent_created").await;
    assert!(told.contains("late") && !told.contains("other"), "{told}");
    // With its name go the rights of its token.
    wire.ok("rename_session", json!({"old_name": "own", "new_name": "new"})).await;
    let last = read_until(&mut all, "\"reason\"").await;
    assert!(!last.contains("late") && !last.contains("sister"), "{last}");
    assert!(last.contains("agent_renamed") && last.contains("\"gone\""), "{last}");
}

#[tokio::test]
async fn nobody_ends_anothers_watch() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let watch = Watched::open(&wire, json!({"agents": ["a"]})).await;
    let params = json!({"watch_id": watch.id});
    let ended = crate::support::as_agent(&server, "a", "unwatch", params).await.unwrap();
    assert_eq!(ended, json!({"ended": false}));
    watch.unwatch(&wire).await;
}

/// Hanging up ends the watch and nothing else.
#[tokio::test]
async fn who_hangs_up_stops_no_turn() {
    for transport in [Transport::Http, Transport::Unix, Transport::Memory] {
        run(transport, Setup::new(), async |wire: &Wire| {
            create(wire, "a").await;
            let gate = Gate::new();
            wire.model().push(Reply::text("so far").then_gate(&gate).then_text(", done"));
            let mut watch = Watched::open(wire, json!({"agents": ["a"], "name": "me"})).await;
            let turn = wire.open(request(1, "send", json!({"agent_id": "a", "content": "x"})));
            let leave = async {
                watch.until("delta").await;
                drop(watch);
                eventually("the watch to end", async || {
                    let watch = Watched::open(wire, json!({})).await;
                    let watchers = watch.snapshot["watchers"].clone();
                    watch.unwatch(wire).await;
                    watchers == json!([])
                })
                .await;
                gate.release();
            };
            let (turn, ()) = tokio::join!(turn, leave);
            assert_eq!(turn.all().await.1["result"]["content"], "so far, done");
        })
        .await;
    }
}

#[tokio::test]
async fn a_connection_has_as_many_watches_as_it_may_and_no_more() {
    let mut stdio = Setup::new().stdio().await;
    for id in 0..64 {
        stdio.send(request(id, "watch", json!({}))).await;
        assert_eq!(stdio.message().await["params"]["event"]["type"], "snapshot", "{id}");
    }
    stdio.send(request(64, "watch", json!({}))).await;
    let refused = stdio.message().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(64), &json!(-32001)));
    let details = refused["error"]["data"]["details"].as_str().unwrap();
    assert!(details.contains("as many watches open as it may (64)"), "{details}");
    stdio.send(request("end", "unwatch", json!({"watch_id": "watch_7"}))).await;
    let two = [stdio.message().await, stdio.message().await];
    assert!(two.iter().any(|it| it["id"] == "end" && it["result"]["ended"] == true), "{two:?}");
    stdio.send(request(65, "watch", json!({}))).await;
    assert_eq!(stdio.message().await["params"]["event"]["type"], "snapshot");
    let (rest, status) = stdio.finish().await;
    assert_eq!(status.code(), Some(0), "{rest:?}");
}

/// Text of which more is said than is kept for one who does not read.
#[tokio::test]
async fn who_does_not_read_has_a_gap_and_can_fill_it() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let post = server.post(request(1, "watch", json!({"agents": ["a"]})));
    let mut slow = Http::connect(server.address).await;
    slow.write(&post.header("Accept", "text/event-stream").bytes()).await;
    slow.head().await.unwrap();
    read_until(&mut slow, "\"snapshot\"").await;
    let answer = "\u{1}".repeat(100_000);
    for _ in 0..40 {
        wire.model().push(Reply::text(answer.clone()));
        say(&wire, "a", "x").await;
    }
    // What was sent before it is there, and in order; then the gap, then the answer.
    let last = read_until(&mut slow, "\"reason\"").await;
    assert!(last.contains(r#""event":{"type":"gap"}"#) && last.contains(r#""reason":"gap""#));
    let mut watch = Watched::open(&wire, json!({"agents": ["a"], "after": {"a": 9}})).await;
    for index in 10..80 {
        assert_eq!(watch.next().await.unwrap()["event"]["index"], index);
    }
    watch.unwatch(&wire).await;
}

#[tokio::test]
async fn a_server_that_stops_says_so_and_then_answers() {
    let mut server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let mut watch = Watched::open(&wire, json!({"agents": ["a"]})).await;
    server.signal(Signal::TERM);
    let stopping = watch.until("server_stopping").await.pop().unwrap();
    assert!(stopping["event"]["grace_ms"].is_u64());
    let answer = watch.next().await.unwrap_err();
    assert_eq!(answer["result"]["reason"], "stopping");
    assert_eq!(server.exit().await.code(), Some(0));
}

/// The cursor is the index of a message on disk and nothing else: after any death nothing is lost, nothing doubled.
#[tokio::test]
async fn after_a_kill_a_watch_goes_on_where_it_was() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let mut watch = Watched::open(&wire, json!({"agents": ["a"], "deltas": false})).await;
    say(&wire, "a", "one").await;
    let events = watch.until("turn_ended").await;
    let last = events.iter().rev().find(|it| it["event"]["type"] == "message").unwrap();
    let index = last["event"]["index"].as_i64().unwrap();
    say(&wire, "a", "two").await;
    let server = server.restart().await;
    let wire = server.wire();
    let params = json!({"agents": ["a"], "deltas": false, "after": {"a": index}});
    let mut watch = Watched::open(&wire, params).await;
    say(&wire, "a", "three").await;
    let events = watch.until("turn_ended").await;
    let messages = events.iter().filter(|it| it["event"]["type"] == "message");
    let said: Vec<_> = messages
        .map(|it| {
            let message = &it["event"]["message"];
            (message["index"].as_i64().unwrap(), message["content"].as_str().unwrap())
        })
        .collect();
    let hello = "Hello from the scripted model.";
    assert_eq!(said, [(2, "two"), (3, hello), (4, "three"), (5, hello)]);
}

#[tokio::test]
async fn more_agents_than_one_snapshot_holds_come_in_several() {
    run(Transport::Http, Setup::new(), async |wire: &Wire| {
        let make = |number: usize| json!({"jsonrpc": "2.0", "id": number, "method": "create_agent", "params": {"agent_id": format!(".a{number}")}});
        for hundred in 0..6 {
            let batch: Vec<_> = (0..84).map(|one| make(hundred * 84 + one)).collect();
            wire.exchange(json!(batch).to_string()).await;
        }
        let mut watch = Watched::open(wire, json!({})).await;
        assert_eq!(watch.snapshot["agents"].as_array().unwrap().len(), 500);
        assert_eq!(watch.snapshot["more"], true);
        let rest = watch.next().await.unwrap();
        assert_eq!(rest["event"]["agents"].as_array().unwrap().len(), 4);
        assert_eq!((&rest["event"]["type"], rest["event"].get("more")), (&json!("snapshot"), None));
        watch.unwatch(wire).await;
    })
    .await;
}

/// The events of one turn, as the client of Rust gives them out, and that the watch ended by itself.
async fn follow(mut watch: WatchStream, stop: impl Future<Output = ()>) {
    let mut kinds = Vec::new();
    let mut stop = std::pin::pin!(Some(stop));
    while let Some(item) = within("an item", watch.next()).await {
        match item.unwrap() {
            WatchItem::Event(event) => {
                let raw: Value = serde_json::from_str(watch.raw().unwrap().get()).unwrap();
                assert_eq!(raw["sequence"], event.sequence);
                kinds.push(raw["event"]["type"].as_str().unwrap().to_string());
            }
            WatchItem::Unknown(raw) => panic!("{raw}"),
            WatchItem::Done(result) => {
                assert_eq!(result.reason, "gone");
                break;
            }
        }
        if kinds.last().is_some_and(|kind| kind == "turn_ended")
            && let Some(stop) = stop.as_mut().as_pin_mut()
        {
            stop.await;
        }
    }
    assert!(watch.next().await.is_none());
    assert_eq!((&*kinds[0], &**kinds.last().unwrap()), ("snapshot", "agent_ended"));
}

/// What it is told, and what it streams on the socket.
#[tokio::test]
async fn the_client_of_rust_watches_and_streams() {
    let server = Server::start().await;
    let wire = server.wire();
    let http = NexusClient::builder()
        .url(format!("http://{}", server.address))
        .token(server.token.clone().unwrap())
        .build()
        .unwrap();
    let unix = UnixClient::new(server.socket.clone().unwrap());
    for over_socket in [false, true] {
        create(&wire, "a").await;
        let params = WatchParams { agents: Some(vec!["a".into()]), ..WatchParams::default() };
        let watch = match over_socket {
            true => unix.watch(params).await.unwrap(),
            false => http.watch(params).await.unwrap(),
        };
        let end = async { drop(wire.ok("destroy_agent", json!({"agent_id": "a"})).await) };
        let turn = async {
            let params = SendParams::new(NonBlank::new("Hi").unwrap());
            let mut stream = unix.send_stream("a", params).await.unwrap();
            let mut said = String::new();
            while let Some(item) = stream.next().await {
                match item.unwrap() {
                    StreamItem::Text(text) => said.push_str(&text),
                    StreamItem::Done(result) => assert_eq!(result.content, said),
                    _ => {}
                }
            }
            assert_eq!(said, "Hello from the scripted model.");
        };
        tokio::join!(follow(watch, end), turn);
        let nobody = WatchParams { agents: Some(vec!["nobody".into()]), ..WatchParams::default() };
        let refused = match over_socket {
            true => unix.watch(nobody).await.unwrap().next().await.unwrap().unwrap_err(),
            false => http.watch(nobody).await.unwrap().next().await.unwrap().unwrap_err(),
        };
        assert!(refused.to_string().contains("Unknown agent: nobody"), "{refused}");
    }
}

/// `nexus3 rpc watch`: a line of JSON for each event, until the server stops.
#[tokio::test]
async fn the_command_prints_lines() {
    let mut server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let port = server.address.port().to_string();
    let command = server.world.command(["rpc", "-p", &port, "watch", "a", "--no-deltas"]);
    let (mut process, _stdin, stdout) = Process::spawn(command);
    let mut lines = BufReader::new(stdout).lines();
    let mut next = async || -> Option<Value> {
        let line = within("a line", lines.next_line()).await.unwrap()?;
        Some(serde_json::from_str(&line).unwrap())
    };
    assert_eq!(next().await.unwrap()["event"]["type"], "snapshot");
    say(&wire, "a", "Hi").await;
    let mut events = Vec::new();
    while events.last().is_none_or(|it: &Value| it["event"]["type"] != "turn_ended") {
        events.push(next().await.unwrap());
    }
    assert!(!kinds(&events).contains(&"delta"));
    assert_eq!(text(&events, 1), "");
    assert_eq!(server.terminate().await.code(), Some(0));
    assert_eq!(next().await.unwrap()["event"]["type"], "server_stopping");
    assert_eq!(next().await, None);
    assert_eq!(process.exit().await.code(), Some(0), "{}", process.log().text());
}

#[tokio::test]
async fn one_that_another_process_has_is_said_to_be_elsewhere() {
    let (server, gate) = (Server::start().await, Gate::new());
    let wire = server.wire();
    create(&wire, "here").await;
    server.model().push(Reply::text("done").held_by(&gate));
    let (mut other, stdin, _stdout) =
        Process::spawn(server.world.command(["exec", "--agent", "there", "Hi"]));
    drop(stdin);
    server.model().wait_for_requests(1).await;
    let watched = Watched::open(&wire, json!({})).await;
    let agents = watched.snapshot["agents"].as_array().unwrap();
    let status = |name: &str| {
        let agent = agents.iter().find(|it| it["agent_id"] == name);
        agent.map(|agent| agent["status"].clone())
    };
    assert_eq!((status("here"), status("there")), (Some(json!("idle")), Some(json!("elsewhere"))));
    gate.release();
    assert!(other.exit().await.success());
    let watched = Watched::open(&wire, json!({})).await;
    let agents = watched.snapshot["agents"].as_array().unwrap();
    assert!(agents.iter().all(|agent| agent["status"] != "elsewhere"), "{agents:?}");
}
