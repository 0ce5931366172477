//! Watching agents, on every transport.

mod borders;
mod calls;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use nexus_testkit::{Gate, Reply, StopSaid};
use serde_json::{Value, json};

use crate::harness::wire::{Exchange, request};
use crate::harness::{Setup, Wire, within};
use crate::support::{create, say};

over_every_wire_of_messages! {
    a_turn_is_told_from_its_beginning_to_its_end,
    who_comes_in_the_middle_has_what_was_said_so_far,
    what_was_missed_is_sent_first,
    without_deltas_there_are_states_and_messages,
    tool_calls_are_told_with_what_came_of_them,
    what_waits_in_line_is_shown_and_can_be_cancelled,
    a_turn_that_fails_says_why: Setup::new().provider_keys(json!({"max_retries": 0})),
    an_answer_that_is_cut_is_truncated,
    agents_come_change_and_go,
    later_descendants_are_seen_and_others_are_not,
    what_asks_for_leave_is_shown_and_told_once: asking("ask"),
    with_auto_it_is_asked_only_while_somebody_shows_it: asking("auto"),
    a_watch_ends_when_nothing_is_left_to_see,
    two_who_watch_are_told_the_same,
}

pub fn asking(mode: &str) -> Setup {
    Setup::new().config(json!({"permissions": {"approvals": mode}}))
}

/// A watch that was opened, and what it was told first.
pub struct Watched {
    exchange: Exchange,
    pub id: String,
    pub snapshot: Value,
    sequence: u64,
}

impl Watched {
    pub async fn open(wire: &Wire, params: Value) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let task = format!("watch-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut exchange = wire.open(request(&*task, "watch", params)).await;
        let first = exchange.next().await.unwrap();
        assert!(first["error"].is_null(), "{first}");
        let params = &first["params"];
        assert_eq!(
            (&params["sequence"], &params["event"]["type"]),
            (&json!(1), &json!("snapshot"))
        );
        assert_eq!((params.get("agent_id"), &params["task_id"]), (None, &json!(task)));
        let id = params["watch_id"].as_str().unwrap().to_string();
        Self { exchange, id, snapshot: params["event"].clone(), sequence: 1 }
    }

    /// The next notification's parameters, or the answer.
    pub async fn next(&mut self) -> Result<Value, Value> {
        let mut message = self.exchange.next().await.expect("an answer");
        if message.get("method").is_none() {
            return Err(message);
        }
        assert_eq!(message["method"], "watch_event");
        let params = message["params"].take();
        self.sequence += 1;
        assert_eq!(
            (&params["watch_id"], &params["sequence"]),
            (&json!(self.id), &json!(self.sequence))
        );
        Ok(params)
    }

    /// All up to the event of this type, which comes last.
    pub async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await.unwrap_or_else(|answer| panic!("{kind}: {answer}"));
            let found = event["event"]["type"] == kind;
            events.push(event);
            if found {
                return events;
            }
        }
    }

    /// Ends it, and returns what was told meanwhile and the result.
    pub async fn unwatch(mut self, wire: &Wire) -> (Vec<Value>, Value) {
        assert_eq!(wire.ok("unwatch", json!({"watch_id": self.id})).await, json!({"ended": true}));
        let mut events = Vec::new();
        loop {
            match self.next().await {
                Ok(event) => events.push(event),
                Err(answer) => {
                    assert_eq!(answer["result"]["events"], self.sequence, "{answer}");
                    return (events, answer["result"].clone());
                }
            }
        }
    }
}

pub fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> =
        events.iter().map(|event| event["event"]["type"].as_str().unwrap()).collect();
    // However often it was cut.
    kinds.dedup_by(|a, b| *a == "delta" && *b == "delta");
    kinds
}

/// The text of one step, put together by its places.
pub fn text(events: &[Value], step: u64) -> String {
    let mut text = String::new();
    for event in events.iter().map(|event| &event["event"]) {
        if event["type"] == "delta" && event["step"] == step {
            assert_eq!(event["offset"], text.chars().count(), "without gap or overlap");
            text.push_str(event["text"].as_str().unwrap());
        }
    }
    text
}

async fn a_turn_is_told_from_its_beginning_to_its_end(wire: &Wire) {
    create(wire, "a").await;
    let mut watch = Watched::open(wire, json!({"agents": ["a"]})).await;
    let agents = watch.snapshot["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 1);
    assert_eq!((&agents[0]["agent_id"], &agents[0]["turns"]), (&json!("a"), &json!([])));
    wire.model().push(Reply::chunks(["It ", "wörks", "."]).usage(120, 9));
    let params = json!({"agent_id": "a", "content": "Hi", "request_id": "t", "source": "test"});
    wire.ok("send", params).await;
    let events = watch.until("turn_ended").await;
    let expected =
        ["turn_queued", "turn_started", "message", "delta", "usage", "message", "turn_ended"];
    let mut found = kinds(&events);
    // The question is written down while the model already answers.
    let question = found.iter().position(|kind| *kind == "message").unwrap();
    found.remove(question);
    found.insert(2, "message");
    assert_eq!(found, expected);
    assert_eq!(text(&events, 1), "It wörks.");
    for event in &events {
        assert_eq!(
            (&event["agent_id"], &event["request_id"]),
            (&json!("a"), &json!("t")),
            "{event}"
        );
    }
    let (queued, started) = (&events[0]["event"], &events[1]["event"]);
    assert_eq!(
        queued,
        &json!({"type": "turn_queued", "content": "Hi", "source": "test", "position": 0})
    );
    assert_eq!(
        started,
        &json!({"type": "turn_started", "content": "Hi", "source": "test", "model": "scripted"})
    );
    assert_eq!(events[1]["request_id"], "t");
    let messages: Vec<_> = events.iter().filter(|it| it["event"]["type"] == "message").collect();
    assert_eq!(messages[0]["event"]["index"], 0);
    assert_eq!(messages[1]["event"]["index"], 1);
    let shown = wire.ok("get_messages", json!({"agent_id": "a"})).await;
    assert_eq!(messages[1]["event"]["message"], shown["messages"][1], "as get_messages shows it");
    let ended = &events.last().unwrap()["event"];
    assert_eq!((&ended["status"], &ended["message_count"]), (&json!("done"), &json!(2)));
    assert_eq!(ended["usage"]["input"], 120);
    let (rest, result) = watch.unwatch(wire).await;
    assert_eq!(rest, [json!(null); 0]);
    assert_eq!(result["reason"], "unwatched");
    assert_eq!(wire.ok("unwatch", json!({"watch_id": "watch_1"})).await, json!({"ended": false}));
}

async fn who_comes_in_the_middle_has_what_was_said_so_far(wire: &Wire) {
    create(wire, "a").await;
    let (first, second) = (Gate::new(), Gate::new());
    wire.model().push(
        Reply::text("One, ").then_gate(&first).then_text("zwölf").then_gate(&second).then_text("."),
    );
    let params = json!({"agent_id": "a", "content": "Hi", "request_id": 7, "stream": true});
    let mut sent = wire.open(request(1, "send", params)).await;
    let mut streamed = String::new();
    while streamed != "One, " {
        let message = sent.next().await.unwrap();
        streamed.push_str(message["params"]["chunk"].as_str().unwrap_or_default());
    }
    let mut watch = Watched::open(wire, json!({})).await;
    let turns = &watch.snapshot["agents"][0]["turns"];
    assert_eq!(turns.as_array().unwrap().len(), 1, "{turns}");
    let turn = &turns[0];
    assert_eq!((&turn["request_id"], &turn["status"]), (&json!(7), &json!("running")));
    assert_eq!(
        (&turn["text"], &turn["step"], &turn["offset"]),
        (&json!("One, "), &json!(1), &json!(5))
    );
    assert!(turn["started_at"].is_string() && turn["content"] == "Hi", "{turn}");
    let context = wire.ok("get_context", json!({"agent_id": "a"})).await;
    assert_eq!(context["turns"], *turns, "get_context says the same");
    assert_eq!(watch.snapshot["agents"][0]["running_request_id"], 7);
    first.release();
    let delta = watch.until("delta").await.pop().unwrap();
    assert_eq!((&delta["event"]["offset"], &delta["event"]["text"]), (&json!(5), &json!("zwölf")));
    second.release();
    let delta = watch.until("delta").await.pop().unwrap();
    assert_eq!((&delta["event"]["offset"], &delta["event"]["text"]), (&json!(10), &json!(".")));
    watch.until("turn_ended").await;
    sent.all().await;
    watch.unwatch(wire).await;
}

async fn what_was_missed_is_sent_first(wire: &Wire) {
    create(wire, "a").await;
    for _ in 0..3 {
        say(wire, "a", "x").await;
    }
    for (after, expected) in [(-1, 0..6), (0, 1..6), (4, 5..6), (5, 6..6), (99, 6..6)] {
        let params = json!({"agents": ["a"], "after": {"a": after}});
        let mut watch = Watched::open(wire, params).await;
        assert_eq!(watch.snapshot["agents"][0]["message_count"], 6);
        for index in expected {
            let event = watch.next().await.unwrap();
            assert_eq!(
                (&event["event"]["type"], &event["event"]["index"]),
                (&json!("message"), &json!(index))
            );
        }
        let (rest, _) = watch.unwatch(wire).await;
        assert_eq!(rest, [json!(null); 0], "after {after}");
    }
    let mut watch = Watched::open(wire, json!({"agents": ["a"], "after": {"a": 3}})).await;
    say(wire, "a", "x").await;
    let events = watch.until("turn_ended").await;
    let messages = events.iter().filter(|it| it["event"]["type"] == "message");
    let indexes: Vec<_> = messages.map(|it| it["event"]["index"].as_u64().unwrap()).collect();
    assert_eq!(indexes, [4, 5, 6, 7], "what was missed, and what came then");
    watch.unwatch(wire).await;
}

async fn without_deltas_there_are_states_and_messages(wire: &Wire) {
    create(wire, "a").await;
    let mut watch = Watched::open(wire, json!({"agents": ["a"], "deltas": false})).await;
    say(wire, "a", "x").await;
    let events = watch.until("turn_ended").await;
    assert!(!kinds(&events).contains(&"delta"), "{:?}", kinds(&events));
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "message").count(), 2);
    watch.unwatch(wire).await;
}

async fn tool_calls_are_told_with_what_came_of_them(wire: &Wire) {
    create(wire, "a").await;
    let mut watch = Watched::open(wire, json!({"agents": ["a"], "deltas": false})).await;
    wire.model().push(
        Reply::text("Look.")
            .then_tool_call("list_directory", json!({"path": "."}))
            .then_tool_call("no_such_tool", json!({"a": 1})),
    );
    wire.model().push(Reply::text("Done."));
    say(wire, "a", "x").await;
    let events = watch.until("turn_ended").await;
    let of = |kind: &str| -> Vec<&Value> {
        events.iter().map(|it| &it["event"]).filter(|it| it["type"] == kind).collect()
    };
    let (calls, results) = (of("tool_call"), of("tool_result"));
    assert_eq!((calls.len(), results.len()), (2, 2));
    assert_eq!(
        (&calls[1]["name"], &calls[1]["arguments"]),
        (&json!("no_such_tool"), &json!({"a": 1}))
    );
    let result = |call: &Value| results.iter().find(|it| it["id"] == call["id"]).unwrap();
    assert_eq!(result(calls[0])["failed"], false, "{:?}", results);
    assert_eq!(result(calls[0]).get("refused_by"), None);
    assert_eq!(
        (&result(calls[1])["failed"], &result(calls[1])["refused_by"]),
        (&json!(true), &json!("known"))
    );
    assert!(result(calls[0])["duration_ms"].is_u64());
    assert!(of("tool_started").iter().any(|it| it["id"] == calls[0]["id"]));
    watch.unwatch(wire).await;
}

async fn what_waits_in_line_is_shown_and_can_be_cancelled(wire: &Wire) {
    create(wire, "a").await;
    let gate = Gate::new();
    wire.model().push(Reply::text("first").then_gate(&gate));
    let mut watch = Watched::open(wire, json!({"agents": ["a"], "deltas": false})).await;
    let send = |id: &str| {
        let params = json!({"agent_id": "a", "content": id, "request_id": id});
        request(id, "send", params)
    };
    let first = wire.open(send("first"));
    let second = async {
        watch.until("turn_started").await;
        let second = wire.open(send("second"));
        let told = async {
            let queued = watch.until("turn_queued").await.pop().unwrap();
            assert_eq!(
                (&queued["request_id"], &queued["event"]["position"]),
                (&json!("second"), &json!(1))
            );
            let agents = crate::support::entry(wire, "a").await;
            assert_eq!(
                (&agents["running_request_id"], &agents["queued"]),
                (&json!("first"), &json!(1))
            );
            let again = Watched::open(wire, json!({"agents": ["a"]})).await;
            let turns = again.snapshot["agents"][0]["turns"].clone();
            assert_eq!(
                (&turns[1]["request_id"], &turns[1]["status"]),
                (&json!("second"), &json!("queued"))
            );
            assert_eq!((turns[1].get("text"), &turns[1]["content"]), (None, &json!("second")));
            again.unwatch(wire).await;
            wire.ok("cancel", json!({"agent_id": "a", "request_id": "second"})).await;
            let ended = watch.until("turn_ended").await.pop().unwrap();
            assert_eq!(
                (&ended["request_id"], &ended["event"]["status"]),
                (&json!("second"), &json!("cancelled"))
            );
            gate.release();
        };
        let (second, ()) = tokio::join!(second, told);
        second.all().await;
    };
    let (first, ()) = tokio::join!(first, second);
    first.all().await;
    let ended = watch.until("turn_ended").await.pop().unwrap();
    assert_eq!(
        (&ended["request_id"], &ended["event"]["status"]),
        (&json!("first"), &json!("done"))
    );
    watch.unwatch(wire).await;
}

async fn a_turn_that_fails_says_why(wire: &Wire) {
    create(wire, "a").await;
    let mut watch = Watched::open(wire, json!({"agents": ["a"]})).await;
    wire.model().push(Reply::status(400));
    let fault = wire.refused("send", json!({"agent_id": "a", "content": "x"})).await;
    let ended = watch.until("turn_ended").await.pop().unwrap();
    assert_eq!(ended["event"]["status"], "failed");
    assert_eq!(ended["event"]["error"]["code"], fault.code, "as the call was told");
    watch.unwatch(wire).await;
}

async fn an_answer_that_is_cut_is_truncated(wire: &Wire) {
    create(wire, "a").await;
    let mut watch = Watched::open(wire, json!({"agents": ["a"]})).await;
    wire.model().push(Reply::text("half").stop(StopSaid::MaxTokens));
    let params = json!({"agent_id": "a", "content": "x", "max_output_tokens": 1});
    wire.ok("send", params).await;
    let ended = watch.until("turn_ended").await.pop().unwrap();
    assert_eq!(ended["event"]["status"], "truncated");
    watch.unwatch(wire).await;
}

async fn agents_come_change_and_go(wire: &Wire) {
    let mut watch = Watched::open(wire, json!({})).await;
    assert_eq!(watch.snapshot["agents"], json!([]));
    create(wire, "a").await;
    let made = watch.until("agent_created").await.pop().unwrap();
    assert_eq!(
        (&made["agent_id"], &made["event"]["agent"]["agent_id"]),
        (&json!("a"), &json!("a"))
    );
    wire.ok("set_cwd", json!({"agent_id": "a", "cwd": wire.work()})).await;
    let changed = watch.until("agent_changed").await.pop().unwrap();
    assert_eq!(changed["event"]["cwd"], json!(wire.work().canonicalize().unwrap()));
    wire.ok("rename_session", json!({"old_name": "a", "new_name": "b"})).await;
    let renamed = watch.until("agent_renamed").await.pop().unwrap();
    assert_eq!((&renamed["agent_id"], &renamed["event"]["to"]), (&json!("a"), &json!("b")));
    say(wire, "b", "x").await;
    for event in watch.until("turn_ended").await {
        assert_eq!(event["agent_id"], "b");
    }
    wire.ok("destroy_agent", json!({"agent_id": "b"})).await;
    let ended = watch.until("agent_ended").await.pop().unwrap();
    assert_eq!(ended["agent_id"], "b");
    watch.unwatch(wire).await;
}

async fn later_descendants_are_seen_and_others_are_not(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "root", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "child", "parent_agent_id": "root"})).await;
    create(wire, "other").await;
    let mut watch = Watched::open(wire, json!({"agents": ["root"], "descendants": true})).await;
    let mut alone = Watched::open(wire, json!({"agents": ["root"]})).await;
    let names = |watch: &Watched| -> Vec<String> {
        let agents = watch.snapshot["agents"].as_array().unwrap();
        agents.iter().map(|it| it["agent_id"].as_str().unwrap().into()).collect()
    };
    assert_eq!(
        (names(&watch), names(&alone)),
        (vec!["root".into(), "child".into()], vec!["root".into()])
    );
    wire.ok("create_agent", json!({"agent_id": "late", "parent_agent_id": "root"})).await;
    create(wire, "stranger").await;
    say(wire, "stranger", "x").await;
    say(wire, "other", "x").await;
    say(wire, "late", "x").await;
    let events = watch.until("turn_ended").await;
    for event in &events {
        assert_eq!(event["agent_id"], "late", "{event}");
    }
    assert_eq!(kinds(&events)[0], "agent_created");
    say(wire, "root", "x").await;
    for event in alone.until("turn_ended").await {
        assert_eq!(event["agent_id"], "root", "{event}");
    }
    watch.unwatch(wire).await;
    alone.unwatch(wire).await;
}

/// A turn that asks for leave to write where it may not. Returns the file.
fn asks(wire: &Wire) -> PathBuf {
    let path = wire.work().parent().unwrap().join("outside");
    let write = json!({"path": path, "content": "x"});
    wire.model().push(Reply::tool_call("write_file", write));
    wire.model().push(Reply::text("Done."));
    path
}

async fn what_asks_for_leave_is_shown_and_told_once(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted"})).await;
    let mut watch = Watched::open(wire, json!({"agents": ["a"]})).await;
    asks(wire);
    let answer = async {
        let asked = watch.until("approval_requested").await.pop().unwrap();
        let id = asked["event"]["approval"]["approval_id"].clone();
        let again = Watched::open(wire, json!({"agents": ["a"]})).await;
        assert_eq!(again.snapshot["approvals"][0]["approval_id"], id);
        let open = &again.snapshot["agents"][0]["turns"][0]["open_calls"];
        assert_eq!(open[0]["name"], "write_file", "{open}");
        let (rest, _) = again.unwatch(wire).await;
        assert_eq!(rest, [json!(null); 0], "what was shown is not told again");
        wire.ok("respond_approval", json!({"approval_id": id, "decision": "deny"})).await;
        let decided = watch.until("approval_decided").await.pop().unwrap();
        assert_eq!(decided["event"]["approval"]["status"], "denied");
        assert_eq!(
            watch.until("tool_result").await.pop().unwrap()["event"]["refused_by"],
            "approval"
        );
    };
    let turn = wire.open(request(1, "send", json!({"agent_id": "a", "content": "x"})));
    let (turn, ()) = tokio::join!(turn, answer);
    turn.all().await;
    watch.unwatch(wire).await;
}

async fn with_auto_it_is_asked_only_while_somebody_shows_it(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted"})).await;
    // One who only looks is nobody who answers.
    let mut watch = Watched::open(wire, json!({"agents": ["a"]})).await;
    asks(wire);
    say(wire, "a", "x").await;
    let events = watch.until("turn_ended").await;
    let result = events.iter().find(|it| it["event"]["type"] == "tool_result").unwrap();
    let content = result["event"]["content"].as_str().unwrap();
    assert!(content.contains("nobody watches who could give it (approvals: auto)"), "{content}");
    let shows = Watched::open(wire, json!({"agents": ["a"], "approver": true})).await;
    let path = asks(wire);
    let answer = async {
        let asked = watch.until("approval_requested").await.pop().unwrap();
        let id = &asked["event"]["approval"]["approval_id"];
        wire.ok("respond_approval", json!({"approval_id": id, "decision": "allow_once"})).await;
    };
    let turn = wire.open(request(1, "send", json!({"agent_id": "a", "content": "x"})));
    let (turn, ()) = tokio::join!(turn, answer);
    turn.all().await;
    assert!(path.exists());
    shows.unwatch(wire).await;
    watch.unwatch(wire).await;
}

async fn a_watch_ends_when_nothing_is_left_to_see(wire: &Wire) {
    create(wire, "a").await;
    let mut watch = Watched::open(wire, json!({"agents": ["a"]})).await;
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    watch.until("agent_ended").await;
    let answer = within("the answer", watch.next()).await.unwrap_err();
    assert_eq!(answer["result"]["reason"], "gone");
}

async fn two_who_watch_are_told_the_same(wire: &Wire) {
    create(wire, "a").await;
    let mut first = Watched::open(wire, json!({"agents": ["a"], "name": "pts/1"})).await;
    let mut second = Watched::open(wire, json!({"agents": ["a"], "name": "pts/2"})).await;
    assert_eq!(second.snapshot["watchers"], json!(["pts/1", "pts/2"]));
    let told = first.until("watchers").await.pop().unwrap();
    assert!(!told["event"]["watchers"].as_array().unwrap().is_empty());
    say(wire, "a", "x").await;
    let both = [first.until("turn_ended").await, second.until("turn_ended").await].map(|events| {
        let events = events.into_iter().filter(|it| it["event"]["type"] != "watchers");
        let events = events.filter(|it| it["event"]["type"] != "delta");
        events.map(|it| (it["at"].clone(), it["event"].clone())).collect::<Vec<_>>()
    });
    assert_eq!(both[0], both[1]);
    first.unwatch(wire).await;
    second.unwatch(wire).await;
}
