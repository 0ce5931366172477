//! How far calls are, as those are told who look on.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{user, with};
use crate::harness::Wire;
use crate::harness::wire::request;
use crate::watch::Watched;

/// Lets the agent `a` call a tool, and returns the events of the stream of its turn.
async fn streamed(wire: &Wire, tool: &str) -> Vec<Value> {
    wire.model().push(Reply::tool_call(format!("mcp_s_{tool}"), json!({})));
    wire.model().push(Reply::text("done"));
    let send = json!({"agent_id": "a", "content": "go", "stream": true});
    let (told, answer) = wire.open(request(1, "send", send)).await.all().await;
    assert_eq!(answer["result"]["content"], "done", "{answer}");
    let told = told.into_iter().filter(|it| it["method"] == "stream_event");
    told.map(|mut it| it["params"]["event"].take()).collect()
}

fn of<'a>(events: impl IntoIterator<Item = &'a Value>, kind: &str) -> Vec<&'a Value> {
    events.into_iter().filter(|it| it["type"] == kind).collect()
}

#[tokio::test]
async fn progress_is_told_to_the_stream_and_to_those_who_watch() {
    let server = with("").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let mut watch = Watched::open(&wire, json!({"agents": ["a"], "deltas": false})).await;
    let events = streamed(&wire, "slow").await;
    let id = &of(&events, "tool_call")[0]["id"];
    let progress = of(&events, "tool_progress");
    let at = |step: u64| json!({"type": "tool_progress", "id": id, "progress": step, "total": 20, "message": "at it"});
    assert_eq!(*progress[0], at(1));
    let steps: Vec<_> = progress.iter().map(|it| it["progress"].as_u64().unwrap()).collect();
    assert!(steps.len() > 1 && steps.is_sorted(), "{steps:?}");
    let kinds: Vec<_> = events.iter().map(|it| it["type"].as_str().unwrap()).collect();
    let last = kinds.iter().rposition(|it| *it == "tool_progress").unwrap();
    assert!(last < kinds.iter().position(|it| *it == "tool_result").unwrap(), "{kinds:?}");

    let watched = watch.until("turn_ended").await;
    let watched: Vec<Value> = watched.into_iter().map(|mut it| it["event"].take()).collect();
    assert_eq!(of(&watched, "tool_progress"), progress);
    assert_eq!(of(&watched, "tool_output"), Vec::<&Value>::new());
    watch.unwatch(&wire).await;
}

#[tokio::test]
async fn a_server_that_says_too_much_is_told_in_part_and_without_what_nobody_sees() {
    let server = with("").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let events = streamed(&wire, "flood").await;
    let progress = of(&events, "tool_progress");
    assert!((1..2_000).contains(&progress.len()), "{} of 20,000", progress.len());
    for told in progress {
        assert!(told["progress"].is_u64() && told.get("total").is_none(), "{told}");
        let expected = format!("a b{}", "x".repeat(497));
        assert_eq!(told["message"], expected);
    }
    assert_eq!(of(&events, "tool_result")[0]["content"], "flooded");
}
