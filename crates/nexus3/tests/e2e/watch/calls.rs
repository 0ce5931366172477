//! What tool calls do, as those who watch are told: what commands print while they run, and what becomes of files.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{Watched, asking};
use crate::harness::Wire;
use crate::harness::wire::request;
use crate::support::say;

over_every_wire_of_messages! {
    a_change_of_a_file_is_told_with_its_diff,
    what_a_command_prints_is_told_while_it_runs: asking("ask"),
}

/// A trusted agent `a` in a directory of its own.
async fn trusted(wire: &Wire) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let cwd = dir.path().canonicalize().unwrap();
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted", "cwd": cwd})).await;
    dir
}

async fn a_change_of_a_file_is_told_with_its_diff(wire: &Wire) {
    let dir = trusted(wire).await;
    let file = dir.path().canonicalize().unwrap().join("note");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    let mut watch = Watched::open(wire, json!({"agents": ["a"], "deltas": false})).await;
    let edit = json!({"path": "note", "old_string": "two", "new_string": "2"});
    wire.model().push(Reply::tool_call("edit_file", edit));
    wire.model().push(Reply::tool_call("read_file", json!({"path": "note"})));
    wire.model().push(Reply::text("Done."));
    say(wire, "a", "x").await;
    let events = watch.until("turn_ended").await;
    let mut results = events.iter().map(|it| &it["event"]).filter(|it| it["type"] == "tool_result");
    let diff = "@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
    assert_eq!(
        results.next().unwrap()["change"],
        json!({"path": file, "diff": diff, "added": 1, "removed": 1, "truncated": false})
    );
    assert_eq!(results.next().unwrap().get("change"), None);
    watch.unwatch(wire).await;
}

/// The command goes on only when its first words have come.
async fn what_a_command_prints_is_told_while_it_runs(wire: &Wire) {
    let dir = trusted(wire).await;
    let mut watch = Watched::open(wire, json!({"agents": ["a"]})).await;
    let without = Watched::open(wire, json!({"agents": ["a"], "deltas": false})).await;
    let script = "echo öne; echo error >&2; while [ ! -e go ]; do sleep 0.02; done; echo two";
    wire.model().push(Reply::tool_call("shell_UNSAFE", json!({"command": script})));
    wire.model().push(Reply::text("Done."));
    let follow = async {
        let asked = watch.until("approval_requested").await.pop().unwrap();
        let id = &asked["event"]["approval"]["approval_id"];
        wire.ok("respond_approval", json!({"approval_id": id, "decision": "allow_once"})).await;
        let first = printed_until(&mut watch, "öne\n").await;
        std::fs::write(dir.path().join("go"), "").unwrap();
        let rest = watch.until("tool_result").await;
        let result = &rest.last().unwrap()["event"];
        assert!(result["content"].as_str().unwrap().contains("two"), "{result}");
        let all = format!("{first}{}", printed(&rest));
        for word in ["öne\n", "error\n", "two\n"] {
            assert_eq!(all.matches(word).count(), 1, "{all}");
        }
        let mut outputs = rest.iter().filter(|it| it["event"]["type"] == "tool_output");
        assert!(outputs.all(|it| it["event"]["id"] == result["id"]));
        watch.until("turn_ended").await;
    };
    let turn = wire.open(request(1, "send", json!({"agent_id": "a", "content": "x"})));
    let (turn, ()) = tokio::join!(turn, follow);
    turn.all().await;
    watch.unwatch(wire).await;
    let (told, _) = without.unwatch(wire).await;
    assert!(told.iter().any(|it| it["event"]["type"] == "tool_result"));
    assert_eq!(printed(&told), "");
}

/// What was printed up to these words, which come before the call has ended.
async fn printed_until(watch: &mut Watched, words: &str) -> String {
    let mut all = String::new();
    while !all.contains(words) {
        let event = watch.next().await.unwrap();
        assert_ne!(event["event"]["type"], "tool_result", "{all}");
        all.push_str(&printed(&[event]));
    }
    all
}

fn printed(events: &[Value]) -> String {
    let events = events.iter().map(|it| &it["event"]).filter(|it| it["type"] == "tool_output");
    events.map(|it| it["text"].as_str().unwrap()).collect()
}
