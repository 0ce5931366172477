//! `/sessions`, `/resume`, `/save`, `/clone`, `/rename`, `/delete`, `/fork`, `/rewind`.

use serde_json::{Value, json};

use crate::cx::Chosen;
use crate::testing::{Stage, agent, agents, context, page, session, sessions};

fn listed(offset: u64) -> Value {
    json!(["list_sessions", {"offset": offset, "limit": 1000}])
}

fn answers(live: &[Value], kept: &[Value]) -> Vec<(&'static str, Value)> {
    vec![
        ("list_agents", agents(live)),
        ("list_sessions", sessions(kept)),
        ("load_session", json!({"restored": true, "agent_id": "old", "message_count": 45})),
        ("get_context", context(json!({}))),
        ("delete_session", json!({"deleted": true, "session_name": "old"})),
    ]
}

fn loaded(name: &str) -> [Value; 2] {
    [json!(["load_session", {"session_name": name}]), json!(["get_context", {"agent_id": "old"}])]
}

#[tokio::test]
async fn chooses_a_session_to_go_on_with() {
    let kept = [session("old", json!({})), session("one", json!({"message_count": 1}))];
    let mut stage = Stage::new(&answers(&[], &kept)).choosing(&[Chosen::Item(0)]);
    let seen = stage.run("/sessions").await;
    assert!(seen.told[0].starts_with("[choose Sessions: old ("), "{:?}", seen.told);
    assert!(seen.told[0].contains("d ago, 45 messages)  /src/api | one ("), "{:?}", seen.told);
    assert_eq!(seen.told[1..], ["[show old]"]);
    let [load, context] = loaded("old");
    assert_eq!(seen.calls, json!([listed(0), ["list_agents", {}], listed(0), load, context]));
    let left = Stage::new(&answers(&[], &kept)).run("/sessions").await;
    assert_eq!((left.told.len(), left.calls), (1, json!([listed(0)])));
    let none = Stage::new(&answers(&[], &[])).run("/sessions").await;
    assert_eq!(none.told, ["No sessions."]);
}

#[tokio::test]
async fn deletes_from_the_list_after_a_question() {
    let (live, kept) = ([agent("old", json!({}))], [session("old", json!({}))]);
    let delete = [Chosen::Delete(0)];
    let question = "[ask Its agent ends then. Delete session 'old' (45 messages)?]";
    let seen = Stage::new(&answers(&live, &kept)).choosing(&delete).run("/sessions").await;
    assert_eq!(seen.told[1], question);
    assert_eq!(seen.calls, json!([listed(0), ["list_agents", {}], listed(0)]));
    let mut stage = Stage::new(&answers(&live, &kept)).choosing(&delete).saying_yes();
    let seen = stage.run("/sessions").await;
    assert_eq!(seen.told[1..3], [question, "Deleted old."]);
    assert_eq!(seen.calls[2], json!(["delete_session", {"session_name": "old"}]));
    assert_eq!(seen.calls[3], listed(0));
    let mut stage = Stage::new(&answers(&[], &kept)).choosing(&delete);
    assert_eq!(stage.run("/sessions").await.told[1], "[ask Delete session 'old' (45 messages)?]");
}

#[tokio::test]
async fn lists_of_many_pages_are_read_to_their_end() {
    let mut stage = Stage::with(|method, params| {
        let offset = params["offset"].as_u64().unwrap_or_default();
        let name = if offset == 0 { "first" } else { "second" };
        Ok(match method {
            "list_sessions" => {
                let entries = [session(name, json!({"cwd": "/elsewhere"}))];
                json!({"total": 2, "offset": offset, "limit": 1, "sessions": entries})
            }
            "list_agents" => agents(&[]),
            "load_session" => json!({"restored": true, "agent_id": "old", "message_count": 1}),
            _ => context(json!({})),
        })
    });
    let [load, context] = loaded("second");
    let calls = json!([["list_agents", {}], listed(0), listed(1), load, context]);
    stage.check("/resume second", calls, &["[show old]"]).await;
}

#[tokio::test]
async fn resumes_by_name_or_what_changed_last_here() {
    let kept = [
        session("main", json!({})),
        session("far", json!({"cwd": "/elsewhere"})),
        session("old", json!({})),
    ];
    let [load, context] = loaded("old");
    let calls = json!([listed(0), ["list_agents", {}], listed(0), load, context]);
    Stage::new(&answers(&[], &kept)).check("/resume", calls, &["[show old]"]).await;
    let seen = Stage::new(&answers(&[], &kept[..2])).run("/resume").await;
    assert_eq!(seen.calls[3], json!(["load_session", {"session_name": "far"}]));
    let live = [agent("old", json!({"status": "stored"}))];
    let calls = json!([["list_agents", {}], context]);
    Stage::new(&answers(&live, &kept)).check("/resume old", calls, &["[show old]"]).await;
    let calls = json!([["list_agents", {}], listed(0)]);
    let unknown = ["Session not found: nobody"];
    Stage::new(&answers(&[], &kept)).check("/resume nobody", calls, &unknown).await;
    let none = ["No last session to resume"];
    Stage::new(&answers(&[], &kept[..1])).check("/resume", json!([listed(0)]), &none).await;
    Stage::new(&[]).check("/resume a b", json!([]), &["Usage: /resume [NAME]"]).await;
}

#[tokio::test]
async fn saves_under_a_name() {
    let saved = |agent: &str| json!({"saved": true, "session_name": "kept", "agent_id": agent});
    let call = |agent: &str, name: &str| json!([["save_session", {"agent_id": agent, "session_name": name}]]);
    let mut stage = Stage::new(&[("save_session", saved("main"))]);
    stage.check("/save", call("main", "main"), &["Saved as kept."]).await;
    stage.check("/save kept", call("main", "kept"), &["Saved as kept."]).await;
    stage.check("/save a b", json!([]), &["Usage: /save [NAME]"]).await;
    let temporary = ["Cannot save with temp name '.2'. Provide a name: /save myname"];
    stage.check("/save .2", json!([]), &temporary).await;
    let mut stage = Stage::new(&[("save_session", saved("kept"))]).showing(Some(".1"));
    let temporary = ["Cannot save with temp name '.1'. Provide a name: /save myname"];
    stage.check("/save", json!([]), &temporary).await;
    stage.check("/save kept", call(".1", "kept"), &["Saved as kept."]).await;
}

#[tokio::test]
async fn clones_and_renames() {
    let answers = [
        ("clone_session", json!({"cloned": true, "src_session": "a", "dest_session": "b"})),
        ("rename_session", json!({"renamed": true, "old_name": "a", "new_name": "b"})),
    ];
    let mut stage = Stage::new(&answers);
    let calls = json!([["clone_session", {"src_session": "a", "dest_session": "b"}]]);
    stage.check("/clone a b", calls, &["Copied a to b."]).await;
    let calls = json!([["rename_session", {"old_name": "a", "new_name": "b"}]]);
    stage.check("/rename a b", calls.clone(), &["a is now b."]).await;
    // Of the one that is shown whoever shows it says so.
    Stage::new(&answers).showing(Some("a")).check("/rename a b", calls, &[]).await;
    stage.check("/clone a", json!([]), &["Usage: /clone SRC DEST"]).await;
    stage.check("/rename a b c", json!([]), &["Usage: /rename OLD NEW"]).await;
    let taken = "There is a session of that name";
    let mut stage =
        Stage::new(&[("clone_session", json!(taken)), ("rename_session", json!(taken))]);
    assert_eq!(stage.run("/clone a b").await.told, [taken]);
    assert_eq!(stage.run("/rename a b").await.told, [taken]);
}

#[tokio::test]
async fn deletes_and_asks_when_an_agent_works_on_it() {
    let asked = json!(["list_agents", {}]);
    let gone = json!([asked, ["delete_session", {"session_name": "old"}]]);
    let stored = agent("old", json!({"status": "stored"}));
    for live in [&[][..], std::slice::from_ref(&stored)] {
        Stage::new(&answers(live, &[])).check("/delete old", gone.clone(), &["Deleted old."]).await;
    }
    let child = agent("child", json!({"parent_agent_id": "old"}));
    let question = "[ask Its agent ends then with child. Delete session 'old'?]";
    let live = [stored, child];
    Stage::new(&answers(&live, &[])).check("/delete old", json!([asked]), &[question]).await;
    let live = [agent("old", json!({"running_request_id": "r"}))];
    let question = "[ask Its agent ends then (1 turn runs). Delete session 'old'?]";
    let mut stage = Stage::new(&answers(&live, &[])).saying_yes();
    stage.check("/delete old", gone, &[question, "Deleted old."]).await;
    let mut unknown = answers(&[], &[]);
    unknown[4].1["deleted"] = json!(false);
    assert_eq!(Stage::new(&unknown).run("/delete old").await.told, ["Session not found: old"]);
    Stage::new(&[]).check("/delete", json!([]), &["Usage: /delete NAME"]).await;
}

#[tokio::test]
async fn forks_into_a_copy() {
    let mut answers = answers(&[agent("main", json!({}))], &[session("main-2", json!({}))]);
    let cloned = json!({"cloned": true, "src_session": "main", "dest_session": "main-3"});
    answers.push(("clone_session", cloned));
    let clone =
        |name: &str| json!(["clone_session", {"src_session": "main", "dest_session": name}]);
    let [load, context] = loaded("main-3");
    let told = ["going on in main-3, a copy of main", "[show old]"];
    let calls = json!([["list_agents", {}], listed(0), clone("main-3"), load, context]);
    Stage::new(&answers).check("/fork", calls, &told).await;
    let calls = json!([clone("idea"), load, context]);
    Stage::new(&answers).check("/fork idea", calls, &told).await;
    Stage::new(&[]).check("/fork a b", json!([]), &["Usage: /fork [NAME]"]).await;
    let mut stage = Stage::new(&[("clone_session", json!("It exists"))]);
    assert_eq!(stage.run("/fork idea").await.told, ["It exists"]);
}

fn said() -> Vec<Value> {
    vec![
        json!({"role": "user", "content": "one"}),
        json!({"role": "assistant", "content": "1"}),
        json!({"role": "user", "content": "two\nlines"}),
        json!({"role": "user", "content": "from another",
            "meta": {"at": "2026-11-17T03:00:00Z", "source_agent_id": "worker"}}),
        json!({"role": "user", "content": "", "context": "go on"}),
        json!({"role": "assistant", "content": "2"}),
    ]
}

fn rewinding(messages: Vec<Value>) -> Stage {
    Stage::with(move |method, params| {
        Ok(match method {
            "list_agents" => agents(&[agent("main", json!({}))]),
            "list_sessions" => sessions(&[]),
            "clone_session" => {
                json!({"cloned": true, "src_session": "main", "dest_session": "main-2"})
            }
            "load_session" => {
                json!({"restored": true, "agent_id": "main-2", "message_count": 2})
            }
            "get_context" => context(json!({})),
            _ => page(&messages, params),
        })
    })
}

fn read_back() -> Value {
    json!(["get_messages", {"agent_id": "main", "offset": 0, "from_end": true, "limit": 200}])
}

#[tokio::test]
async fn rewinds_to_before_a_message() {
    let list = "[choose Go back to before: two … | one]";
    let calls = json!([
        read_back(),
        ["list_agents", {}],
        listed(0),
        ["clone_session", {"src_session": "main", "dest_session": "main-2", "upto": 1}],
        ["load_session", {"session_name": "main-2"}],
        ["get_context", {"agent_id": "main-2"}],
    ]);
    let told = [
        list,
        "going on in main-2, a copy of main",
        "[show main-2]",
        "Files stay as they are.",
        "[fill two\nlines]",
    ];
    rewinding(said()).choosing(&[Chosen::Item(0)]).check("/rewind", calls, &told).await;
    let told = [list, "[fresh]", "Files stay as they are.", "[fill one]"];
    let mut stage = rewinding(said()).choosing(&[Chosen::Item(1)]);
    stage.check("/rewind", json!([read_back()]), &told).await;
    rewinding(said()).check("/rewind", json!([read_back()]), &[list]).await;
    let none = ["There is no message of yours to go back to."];
    rewinding(vec![]).check("/rewind", json!([read_back()]), &none).await;
}

#[tokio::test]
async fn what_cannot_be_copied_is_not_put_into_the_input() {
    let mut stage = Stage::with(|method, params| match method {
        "clone_session" => Err(nexus_protocol::error::RpcError::invalid_params("Between a call")),
        "list_agents" => Ok(agents(&[])),
        "list_sessions" => Ok(sessions(&[])),
        _ => Ok(page(&said(), params)),
    })
    .choosing(&[Chosen::Item(0)]);
    assert_eq!(stage.run("/rewind").await.told[1..], ["Between a call"]);
}

#[tokio::test]
async fn a_hundred_messages_to_rewind_to() {
    let messages = (0..101).map(|at| json!({"role": "user", "content": format!("<{at}>")}));
    let told = rewinding(messages.collect()).run("/rewind").await.told;
    assert!(told[0].starts_with("[choose Go back to before: <100> | "), "{told:?}");
    assert!(told[0].ends_with(" | <1>]"), "{told:?}");
}
