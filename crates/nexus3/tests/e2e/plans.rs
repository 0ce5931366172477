//! Tasks and plans: what executors did, what planners may answer, and what of a run is there after anything.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::select_all;
use nexus_testkit::{Gate, Reply, StopSaid, last_user_text};
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Server, Setup, Wire, eventually};

over_every_wire! {
    a_task_says_what_it_came_to,
    what_a_task_changed_is_what_differs_on_disk,
    a_task_that_may_not_write_writes_nothing,
    what_is_not_done_is_not_a_success,
    a_task_stays_in_its_directory,
    a_late_task_is_cancelled_and_its_files_are_told,
    a_plan_is_mended_or_refused,
    a_plan_is_carried_out_in_its_order,
    what_failed_is_not_built_upon,
    nobody_overwrites_what_another_task_wrote,
    a_task_is_tried_as_often_as_it_may,
    a_plan_is_ended_and_goes_on,
    all_are_told_what_is_shared,
    a_task_asked_for_twice_is_done_once,
}

over_every_wire_of_messages! {
    progress_is_streamed,
}

/// What a planner of these tests answers: tasks, each with what it depends on.
fn plan(tasks: &[(&str, &[&str])]) -> Value {
    let tasks: Vec<_> = tasks.iter().map(|(id, needs)| task(id, needs)).collect();
    json!({"explanation": "so", "estimated_time_seconds": 5, "tasks": tasks})
}

fn task(id: &str, needs: &[&str]) -> Value {
    json!({"id": id, "type": "code_generation", "description": format!("do {id}"), "dependencies": needs,
           "priority": 1})
}

/// What the model was asked, as text.
type Asked = Arc<Mutex<Vec<String>>>;

/// Lets the model answer each task by its id.
fn answering(wire: &Wire, answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Asked {
    let asked = Asked::default();
    let told = asked.clone();
    wire.model().set_script(move |request| {
        told.lock().unwrap().push(request.to_string());
        let asked = last_user_text(request).unwrap_or_default();
        let id = asked.rsplit("do ").next().unwrap_or_default();
        answer(id, request)
    });
    asked
}

fn last(asked: &Asked) -> String {
    asked.lock().unwrap().last().unwrap().clone()
}

fn is_after_tool(request: &Value) -> bool {
    request["messages"].as_array().and_then(|all| all.last()).is_some_and(|it| it["role"] == "tool")
}

fn writing(path: &str, content: &str) -> Reply {
    Reply::tool_call("write_file", json!({"path": path, "content": content}))
}

async fn execute(wire: &Wire, options: Value) -> Value {
    let params = json!({"task_type": "code_generation", "prompt": "do it", "options": options});
    wire.ok("execute_task", params).await
}

async fn a_task_says_what_it_came_to(wire: &Wire) {
    std::fs::write(wire.work().join("main.js"), "let a = 1;").unwrap();
    wire.model().push(Reply::text("Here:\n```js\nlet b = 2;\n```\nThat is all.").usage(30, 12));
    let context = json!({
        "files": ["main.js"], "current_directory": wire.work(), "dependencies": ["react"],
        "constraints": ["no globals", {"size": 3}], "anything": "else",
    });
    let options = json!({"language": "javascript", "framework": "react", "style_guide": "airbnb", "color": 1});
    let params = json!({"task_type": "code_generation", "prompt": "Write b", "context": context, "options": options});
    let result = wire.ok("execute_task", params).await;
    assert_eq!(result["status"], "success");
    assert_eq!(result["output"]["code"], "let b = 2;");
    assert_eq!(result["output"]["explanation"], "Here:\nThat is all.");
    for list in ["files_modified", "files_created", "files_deleted"] {
        assert_eq!(result["output"][list], json!([]));
    }
    assert_eq!(result["metadata"]["tokens_used"], 42);
    assert_eq!(result["metadata"]["model"], "scripted");
    let told = wire.model().last_request().body.to_string();
    for part in ["let a = 1;", "main.js", "react", "no globals", "airbnb", "javascript", "Write b"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    // Its agent is gone.
    assert_eq!(wire.ok("list_agents", json!({})).await["agents"], json!([]));
    for (params, path) in [
        (json!({"task_type": "cooking", "prompt": "x"}), "/task_type"),
        (json!({"task_type": "testing", "prompt": " "}), "/prompt"),
        (json!({"task_type": "testing", "prompt": "a\u{0}b"}), "/prompt"),
        (
            json!({"task_type": "testing", "prompt": "x", "options": {"timeout_ms": 0}}),
            "/options/timeout_ms",
        ),
        (
            json!({"task_type": "testing", "prompt": "x", "context": {"files": ["a\nb"]}}),
            "/context/files/0",
        ),
    ] {
        let fault = wire.refused("execute_task", params).await;
        assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!(path)), "{fault:?}");
    }
    for (files, refused) in [(20, false), (21, true)] {
        wire.model().push(Reply::text("seen"));
        let context = json!({"files": vec!["main.js"; files]});
        let params = json!({"task_type": "analysis", "prompt": "x", "context": context});
        let path = wire.call("execute_task", params).await.err().map(|it| it.data["path"].clone());
        assert_eq!(path, refused.then(|| json!("/context/files")));
    }
    for (bytes, refused) in [(512 << 10, false), ((512 << 10) + 1, true)] {
        wire.model().push(Reply::text("read"));
        let prompt = "some words ".repeat(bytes)[..bytes].to_owned();
        let params = json!({"task_type": "analysis", "prompt": prompt});
        let fault = wire.call("execute_task", params).await.err();
        let path = fault.map(|it| it.data["path"].clone());
        assert_eq!(path, refused.then(|| json!("/prompt")));
    }
    let wide = json!({"task_type": "analysis", "prompt": "p".repeat(512 << 10)});
    let fault = wire.refused("execute_task", wide).await;
    assert!(fault.message.contains("window is 200000"), "{fault:?}");
    assert_eq!(fault.data["path"], "/prompt");
    let long = json!({"user_request": "p".repeat((512 << 10) + 1)});
    let fault = wire.refused("create_plan", long).await;
    assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/user_request")), "{fault:?}");
    let unknown = json!({"task_type": "testing", "prompt": "x", "colour": 1});
    assert_eq!(wire.refused("execute_task", unknown).await.code, -32602);
}

async fn what_a_task_changed_is_what_differs_on_disk(wire: &Wire) {
    let work = wire.work();
    for (name, text) in [("kept", "same"), ("old", "before")] {
        std::fs::write(work.join(name), text).unwrap();
    }
    let calls = writing("sub/new", "new")
        .then_tool_call("write_file", json!({"path": "kept", "content": "same"}))
        .then_tool_call("write_file", json!({"path": "old", "content": "after"}));
    wire.model().push(calls);
    wire.model().push(Reply::text("done"));
    let result = execute(wire, json!({"write": true})).await;
    assert_eq!(result["status"], "success", "{result}");
    assert_eq!(result["output"]["files_created"], json!(["sub/new"]));
    assert_eq!(result["output"]["files_modified"], json!(["old"]));
    assert_eq!(std::fs::read_to_string(work.join("old")).unwrap(), "after");
}

async fn a_task_that_may_not_write_writes_nothing(wire: &Wire) {
    wire.model().push(writing("new", "new"));
    wire.model().push(Reply::text("I could not."));
    let result = execute(wire, json!({})).await;
    assert_eq!(result["output"]["files_created"], json!([]));
    assert!(!wire.work().join("new").exists());
}

async fn what_is_not_done_is_not_a_success(wire: &Wire) {
    let cut = || Reply::text("a").stop(StopSaid::MaxTokens);
    let cases = [
        (vec![Reply::refusal("I will not.")], "the model refused"),
        (vec![cut(), cut(), cut(), cut()], "the answer was cut at the limit of its length"),
        (vec![Reply::nothing(), Reply::nothing()], "the model said nothing"),
        (vec![Reply::text("Half of it.\nINCOMPLETE: no tests")], "no tests"),
    ];
    for (replies, reason) in cases {
        replies.into_iter().for_each(|reply| wire.model().push(reply));
        let result = execute(wire, json!({})).await;
        assert_eq!((&result["status"], &result["reason"]), (&json!("partial"), &json!(reason)));
    }
    wire.model().push(Reply::status(400).message("bad"));
    let params = json!({"task_type": "testing", "prompt": "x"});
    assert_eq!(wire.refused("execute_task", params).await.code, -32603);
}

async fn a_task_stays_in_its_directory(wire: &Wire) {
    let outside = wire.work().parent().unwrap().join("outside");
    std::fs::create_dir_all(wire.work().join("in")).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret words").unwrap();
    std::os::unix::fs::symlink(&outside, wire.work().join("in/link")).unwrap();
    let secret = outside.join("secret");
    for file in ["../../outside/secret", "link/secret", secret.to_str().unwrap(), "/dev/zero"] {
        let context = json!({"files": [file], "current_directory": "in"});
        let params = json!({"task_type": "analysis", "prompt": "x", "context": context});
        let fault = wire.refused("execute_task", params).await;
        assert_eq!(fault.code, -32602, "{file}: {fault:?}");
        assert_eq!(fault.data["path"], "/context/files/0", "{file}: {fault:?}");
    }
    let params = json!({"task_type": "analysis", "prompt": "x", "context": {"current_directory": "nowhere"}});
    let fault = wire.refused("execute_task", params).await;
    assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/context/current_directory")));
    // Nor does the model get out.
    let calls = writing("../out", "x")
        .then_tool_call("write_file", json!({"path": "link/x", "content": "x"}));
    wire.model().push(calls);
    wire.model().push(Reply::text("done"));
    let context = json!({"current_directory": "in"});
    let params = json!({"task_type": "code_generation", "prompt": "x", "context": context, "options": {"write": true}});
    let result = wire.ok("execute_task", params).await;
    assert_eq!(result["output"]["files_created"], json!([]));
    assert!(!wire.work().join("out").exists() && !outside.join("x").exists());
    assert!(!wire.model().requests().iter().any(|it| it.body.to_string().contains("secret words")));
}

async fn a_late_task_is_cancelled_and_its_files_are_told(wire: &Wire) {
    wire.model().push(writing("begun", "x"));
    wire.model().push(Reply::hang());
    let options = json!({"write": true, "timeout_ms": 1_500});
    let params = json!({"task_type": "code_generation", "prompt": "x", "options": options});
    let fault = wire.refused("execute_task", params).await;
    assert_eq!((fault.code, &fault.data["type"]), (-32000, &json!("TIMEOUT")));
    assert_eq!(fault.data["files_created"], json!(["begun"]));
    assert_eq!(wire.ok("list_agents", json!({})).await["agents"], json!([]));
}

async fn a_plan_is_mended_or_refused(wire: &Wire) {
    let good = plan(&[("a", &[]), ("b", &["a"])]);
    let ask = json!({"user_request": "Build it", "current_state": {"completed_tasks": ["x"]}});
    // As it is, in a fence, and after two answers that are none.
    wire.model().push(Reply::text(good.to_string()));
    let made = wire.ok("create_plan", ask.clone()).await;
    assert_eq!(made["plan"]["tasks"], good["tasks"]);
    assert!(made["plan"]["plan_id"].as_str().unwrap().starts_with("plan_"));
    wire.model().push(Reply::text(format!("Sure!\n```json\n{good}\n```")));
    wire.ok("create_plan", ask.clone()).await;
    let before = wire.model().request_count();
    wire.model().push(Reply::text("I think we should begin with a."));
    wire.model().push(Reply::text(plan(&[("a", &["b"]), ("b", &["a"])]).to_string()));
    wire.model().push(Reply::text(good.to_string()));
    wire.ok("create_plan", ask.clone()).await;
    assert_eq!(wire.model().request_count(), before + 3);
    let told = wire.model().last_request().body.to_string();
    assert!(
        told.contains("in a circle: a -> b -> a") && told.contains("completed_tasks"),
        "{told}"
    );
    // Never a third time, and never made up.
    let mut unknown = good.clone();
    unknown["tasks"][0]["type"] = json!("cooking");
    let bad = [
        ("{\"tasks\": [".to_owned(), "no object of JSON"),
        (plan(&[("a", &[]), ("a", &[])]).to_string(), "two tasks have the id a"),
        (plan(&[("a", &["nothing"])]).to_string(), "depends on nothing"),
        (plan(&[]).to_string(), "no tasks"),
        (unknown.to_string(), "cooking"),
    ];
    for (answer, fault) in bad {
        let before = wire.model().request_count();
        (0..3).for_each(|_| wire.model().push(Reply::text(answer.clone())));
        let refused = wire.refused("create_plan", ask.clone()).await;
        assert_eq!((refused.code, &refused.data["type"]), (-32000, &json!("PARSE_ERROR")));
        let details = refused.data["details"].as_str().unwrap();
        assert!(details.contains(fault), "{details}");
        assert_eq!(wire.model().request_count(), before + 3, "asked again twice");
    }
    let constrained =
        json!({"user_request": "x", "constraints": {"max_tasks": 1, "time_limit_seconds": 300}});
    (0..3).for_each(|_| wire.model().push(Reply::text(good.to_string())));
    let refused = wire.refused("create_plan", constrained).await;
    assert!(refused.data["details"].as_str().unwrap().contains("at most 1"), "{refused:?}");
    for bad in [json!({"max_tasks": 0}), json!({"time_limit_seconds": 0}), json!({"max": 1})] {
        let params = json!({"user_request": "x", "constraints": bad});
        assert_eq!(wire.refused("create_plan", params).await.code, -32602);
    }
    wire.model().push(Reply::refusal("no"));
    let refused = wire.refused("create_plan", ask).await;
    assert_eq!((refused.code, &refused.data["type"]), (-32000, &json!("EXECUTION_ERROR")));
    let listed = wire.ok("list_plans", json!({"limit": 2})).await;
    assert_eq!((listed["plans"].as_array().unwrap().len(), &listed["has_more"]), (2, &json!(true)));
    let last = listed["plans"][1]["plan_id"].clone();
    let rest = wire.ok("list_plans", json!({"after": last})).await;
    assert_eq!((rest["plans"].as_array().unwrap().len(), &rest["has_more"]), (1, &json!(false)));
}

async fn a_plan_is_carried_out_in_its_order(wire: &Wire) {
    let all = answering(wire, |id, request| match (id, is_after_tool(request)) {
        ("a", false) => writing("a.txt", "from a"),
        (id, _) => Reply::text(format!("{id} is done")).usage(10, 5),
    });
    let plan = plan(&[("c", &["a", "b"]), ("a", &[]), ("b", &[])]);
    let params = json!({"plan": plan, "options": {"write": true, "max_parallel": 2}});
    let ran = wire.ok("run_plan", params).await;
    assert_eq!(ran["status"], "success", "{ran}");
    for id in ["a", "b", "c"] {
        assert_eq!(ran["tasks"][id]["status"], "success");
        assert_eq!(ran["tasks"][id]["output"]["text"], format!("{id} is done"));
    }
    assert_eq!(ran["tasks"]["a"]["output"]["files_created"], json!(["a.txt"]));
    assert_eq!(ran["tasks"]["b"]["tokens_used"], 15);
    // What it builds on was handed over.
    let asked = last(&all);
    for part in ["do c", "a is done", "b is done", "a.txt"] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    let stands = wire.ok("get_plan", json!({"plan_id": ran["plan_id"]})).await;
    assert_eq!((&stands["status"], &stands["tasks"]), (&json!("success"), &ran["tasks"]));
    // What is done is not done again.
    let before = wire.model().request_count();
    let again = wire.ok("run_plan", json!({"plan_id": ran["plan_id"]})).await;
    assert_eq!((&again["status"], &again["tasks"]), (&json!("success"), &ran["tasks"]));
    assert_eq!(wire.model().request_count(), before);
    // So is a plan that is handed over with its name; one that was changed is another.
    let mut named = plan.clone();
    named["plan_id"] = ran["plan_id"].clone();
    let again = wire.ok("run_plan", json!({"plan": named})).await;
    assert_eq!((&again["plan_id"], &again["tasks"]), (&ran["plan_id"], &ran["tasks"]));
    assert_eq!(wire.model().request_count(), before);
    named["tasks"][2]["description"] = json!("do something else");
    let fault = wire.refused("run_plan", json!({"plan": named})).await;
    assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/plan/tasks")), "{fault:?}");
    assert!(fault.message.contains("leave plan_id out"), "{fault:?}");
    named["plan_id"] = json!("plan_0000000000000000");
    assert_eq!(wire.refused("run_plan", json!({"plan": named})).await.code, -32602);
    for params in
        [json!({}), json!({"plan_id": "plan_x"}), json!({"plan_id": "plan_0000000000000000"})]
    {
        assert_eq!(wire.refused("run_plan", params).await.code, -32602);
    }
    let cyclic = json!({"plan": {"tasks": [task("a", &["a"])]}});
    let fault = wire.refused("run_plan", cyclic).await;
    assert!(fault.message.contains("circle"), "{fault:?}");
}

async fn what_failed_is_not_built_upon(wire: &Wire) {
    answering(wire, |id, _| match id {
        "bad" => Reply::status(400).message("no"),
        id => Reply::text(format!("{id} is done")),
    });
    let tasks: &[(&str, &[&str])] = &[
        ("bad", &[]),
        ("after", &["bad"]),
        ("later", &["after"]),
        ("free", &[]),
        ("more", &["free"]),
    ];
    let run = async |on_failure: &str| {
        let options = json!({"max_parallel": 1, "on_failure": on_failure});
        wire.ok("run_plan", json!({"plan": plan(tasks), "options": options})).await
    };
    let stopped = run("stop").await;
    assert_eq!(stopped["status"], "failed", "{stopped}");
    assert_eq!(stopped["tasks"]["bad"]["status"], "failed");
    assert_eq!(stopped["tasks"]["free"]["status"], "skipped");
    assert_eq!(stopped["tasks"]["free"]["error"], "the run stopped at task bad");
    let went_on = run("continue").await;
    assert_eq!(went_on["status"], "partial");
    for id in ["free", "more"] {
        assert_eq!(went_on["tasks"][id]["status"], "success");
    }
    for id in ["after", "later"] {
        assert_eq!(went_on["tasks"][id]["status"], "skipped");
        assert_eq!(went_on["tasks"][id]["error"], "it depends on task bad, which is not done");
    }
    // Asked for again, only what is not done is done.
    answering(wire, |id, _| Reply::text(format!("{id} is done")));
    let before = wire.model().request_count();
    let again = wire.ok("run_plan", json!({"plan_id": went_on["plan_id"]})).await;
    assert_eq!(again["status"], "success");
    assert_eq!(wire.model().request_count(), before + 3);
    assert_eq!(again["tasks"]["bad"]["attempts"], 2);
}

async fn nobody_overwrites_what_another_task_wrote(wire: &Wire) {
    answering(wire, |id, request| match is_after_tool(request) {
        false => writing("shared.txt", id),
        true => Reply::text("done"),
    });
    let tasks: &[(&str, &[&str])] = &[("a", &[]), ("b", &[]), ("c", &["a"])];
    let options = json!({"write": true, "max_parallel": 1, "on_failure": "continue"});
    let ran = wire.ok("run_plan", json!({"plan": plan(tasks), "options": options})).await;
    assert_eq!(ran["tasks"]["a"]["status"], "success");
    assert_eq!(ran["tasks"]["b"]["status"], "partial");
    let reason = ran["tasks"]["b"]["error"].as_str().unwrap();
    assert!(reason.contains("shared.txt") && reason.contains("task a"), "{reason}");
    // Who builds on it may.
    assert_eq!(ran["tasks"]["c"]["status"], "success");
    assert_eq!(std::fs::read_to_string(wire.work().join("shared.txt")).unwrap(), "c");
}

async fn a_task_is_tried_as_often_as_it_may(wire: &Wire) {
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    let asked = answering(wire, move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::text("half\nINCOMPLETE: the rest"),
        1 => Reply::status(400).message("no"),
        _ => Reply::text("done"),
    });
    let options = json!({"max_attempts": 3});
    let ran = wire.ok("run_plan", json!({"plan": plan(&[("a", &[])]), "options": options})).await;
    assert_eq!((&ran["status"], &ran["tasks"]["a"]["attempts"]), (&json!("success"), &json!(3)));
    let told = last(&asked);
    assert!(told.contains("begun before and not finished"), "{told}");
    tried.store(0, Ordering::SeqCst);
    let mut own = plan(&[("a", &[])]);
    own["tasks"][0]["max_attempts"] = json!(1);
    let ran = wire.ok("run_plan", json!({"plan": own, "options": options})).await;
    assert_eq!(ran["tasks"]["a"]["status"], "partial");
    for bad in [json!({"max_attempts": 6}), json!({"max_parallel": 0}), json!({"max_parallel": 65})]
    {
        let params = json!({"plan": plan(&[("a", &[])]), "options": bad});
        assert_eq!(wire.refused("run_plan", params).await.code, -32602);
    }
}

async fn a_plan_is_ended_and_goes_on(wire: &Wire) {
    answering(wire, |id, _| match id {
        "slow" => Reply::hang(),
        id => Reply::text(format!("{id} is done")),
    });
    wire.model().push(Reply::text(
        plan(&[("quick", &[]), ("slow", &["quick"]), ("last", &["slow"])]).to_string(),
    ));
    let made = wire.ok("create_plan", json!({"user_request": "x"})).await;
    let id = &made["plan"]["plan_id"];
    let run = async || wire.ok("run_plan", json!({"plan_id": id})).await;
    let end = async || {
        eventually("the slow task", async || {
            wire.ok("get_plan", json!({"plan_id": id})).await["tasks"]["slow"]["status"]
                == "running"
        })
        .await;
        let beside = wire.refused("run_plan", json!({"plan_id": id})).await;
        assert_eq!(beside.code, -32001, "{beside:?}");
        wire.ok("cancel_plan", json!({"plan_id": id})).await
    };
    let (ran, ended) = tokio::join!(run(), end());
    assert_eq!(ended["cancelled"], true);
    assert_eq!(ran["status"], "cancelled", "{ran}");
    let status = |ran: &Value, id: &str| ran["tasks"][id]["status"].as_str().unwrap().to_owned();
    assert_eq!(
        ["quick", "slow", "last"].map(|id| status(&ran, id)),
        ["success", "cancelled", "cancelled"]
    );
    assert_eq!(wire.ok("cancel_plan", json!({"plan_id": id})).await["cancelled"], false);
    answering(wire, |id, _| Reply::text(format!("{id} is done")));
    let before = wire.model().request_count();
    let ran = run().await;
    assert_eq!(ran["status"], "success");
    assert_eq!(wire.model().request_count(), before + 2);
    // A run that takes too long says how far it got.
    answering(wire, |id, _| if id == "slow" { Reply::hang() } else { Reply::text("done") });
    let options = json!({"timeout_ms": 1_500});
    let params = json!({"plan": plan(&[("quick", &[]), ("slow", &["quick"])]), "options": options});
    let fault = wire.refused("run_plan", params).await;
    assert_eq!((fault.code, &fault.data["type"]), (-32000, &json!("TIMEOUT")));
    assert_eq!(fault.data["tasks"]["quick"]["status"], "success", "{fault:?}");
    let stands = wire.ok("get_plan", json!({"plan_id": fault.data["plan_id"]})).await;
    assert_eq!(stands["status"], "cancelled");
}

async fn all_are_told_what_is_shared(wire: &Wire) {
    let data = json!({"key": "style", "value": "no semicolons anywhere"});
    let add = json!({"action": "add", "context_type": "state", "data": data});
    wire.ok("update_context", add).await;
    wire.model().push(Reply::text(plan(&[("a", &[])]).to_string()));
    wire.ok("create_plan", json!({"user_request": "x"})).await;
    let told = || wire.model().last_request().body.to_string().contains("no semicolons anywhere");
    assert!(told());
    wire.model().push(Reply::text("done"));
    execute(wire, json!({})).await;
    assert!(told());
}

async fn a_task_asked_for_twice_is_done_once(wire: &Wire) {
    let options = json!({"idempotency_key": "k"});
    wire.model().set_default(Reply::text("done"));
    let first = execute(wire, options.clone()).await;
    assert_eq!(execute(wire, options.clone()).await, first);
    assert_eq!(wire.model().request_count(), 1);
    let other = json!({"task_type": "testing", "prompt": "another", "options": options});
    let fault = wire.refused("execute_task", other).await;
    assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/options/idempotency_key")));
    let params = json!({"plan": plan(&[("a", &[]), ("b", &[])]), "options": options});
    let first = wire.ok("run_plan", params.clone()).await;
    assert_eq!(wire.ok("run_plan", params).await, first, "one plan, run once");
    assert_eq!(wire.model().request_count(), 3);
}

async fn progress_is_streamed(wire: &Wire) {
    let events = async |method: &str, params: Value| {
        let (notifications, answer) = wire.open(request(1, method, params)).await.all().await;
        let text: String = notifications
            .iter()
            .filter(|it| it["method"] == "stream_data")
            .map(|it| it["params"]["chunk"].as_str().unwrap())
            .collect();
        let events = notifications.iter().filter(|it| it["method"] == "stream_event");
        let events: Vec<_> = events.map(|it| it["params"]["event"].clone()).collect();
        assert_eq!(notifications.last().unwrap()["method"], "stream_end");
        (text, events, answer["result"].clone())
    };
    wire.model().push(Reply::chunks(["Here ", "it is."]));
    let options = json!({"stream": true});
    let params = json!({"task_type": "analysis", "prompt": "x", "options": options});
    let (text, _, result) = events("execute_task", params).await;
    assert_eq!((text.as_str(), &result["output"]["text"]), ("Here it is.", &json!("Here it is.")));
    wire.model().push(Reply::text(plan(&[("a", &[])]).to_string()));
    let (text, _, made) =
        events("create_plan", json!({"user_request": "x", "options": options})).await;
    assert_eq!(made["plan"]["explanation"], text);
    answering(wire, |_, _| Reply::text("done"));
    let params = json!({"plan": plan(&[("a", &[]), ("b", &["a"])]), "options": options});
    let (_, told, _) = events("run_plan", params).await;
    let told: Vec<_> = told
        .iter()
        .filter(|it| it["type"] == "task_status")
        .map(|it| format!("{} {}", it["task_id"].as_str().unwrap(), it["status"].as_str().unwrap()))
        .collect();
    assert_eq!(told, ["a running", "a success", "b running", "b success"]);
}

#[tokio::test]
async fn after_a_kill_nothing_done_is_repeated() {
    let server = Server::start().await;
    let wire = server.wire();
    let gate = Gate::new();
    let held = gate.clone();
    let asked = answering(&wire, move |id, request| match (id, is_after_tool(request)) {
        ("first", false) => writing("first.txt", "1"),
        ("cut", false) => writing("cut.txt", "1"),
        ("cut", true) => Reply::text("done").held_by(&held),
        (id, _) => Reply::text(format!("{id} is done")),
    });
    let tasks: &[(&str, &[&str])] = &[("first", &[]), ("cut", &["first"]), ("last", &["cut"])];
    wire.model().push(Reply::text(plan(tasks).to_string()));
    let made = wire.ok("create_plan", json!({"user_request": "x"})).await;
    let id = made["plan"]["plan_id"].clone();
    let params = json!({"plan_id": id, "options": {"write": true}});
    let mut connection = server.http().await;
    connection.write(&server.post(request(1, "run_plan", params.clone())).bytes()).await;
    eventually("the second task to have written", async || {
        server.world.work().join("cut.txt").exists()
    })
    .await;
    let server = server.restart().await;
    let wire = server.wire();
    let stands = wire.ok("get_plan", json!({"plan_id": id})).await;
    assert_eq!(stands["status"], "interrupted");
    assert_eq!(stands["tasks"]["first"]["status"], "success");
    assert_eq!(stands["tasks"]["cut"]["status"], "running");
    gate.release();
    let before = wire.model().request_count();
    let ran = wire.ok("run_plan", params).await;
    assert_eq!(ran["status"], "success", "{ran}");
    assert_eq!(
        (&ran["tasks"]["first"]["attempts"], &ran["tasks"]["cut"]["attempts"]),
        (&json!(1), &json!(2))
    );
    let asked = asked.lock().unwrap().split_off(before);
    assert!(asked.iter().all(|it| !it.contains("\\ndo first\"")), "{asked:?}");
}

#[tokio::test]
async fn an_agent_sees_its_own_plans_alone() {
    let server = Server::start().await;
    let wire = server.wire();
    let token = async |name: &str| {
        wire.ok("create_agent", json!({"agent_id": name, "preset": "trusted"})).await;
        let made = wire.ok("create_agent_token", json!({"agent_id": name})).await;
        made["token"].as_str().unwrap().to_owned()
    };
    let (own, other) = (token("own").await, token("other").await);
    let ask = async |token: &str, method: &str, params: Value| {
        let post = server.post(request(1, method, params)).bearer(Some(token));
        server.ask(post).await.answer()
    };
    server.model().set_default(Reply::text(plan(&[("a", &[])]).to_string()));
    let made = ask(&own, "create_plan", json!({"user_request": "x"})).await;
    let id = made["result"]["plan"]["plan_id"].clone();
    for method in ["get_plan", "run_plan", "cancel_plan"] {
        let refused = ask(&other, method, json!({"plan_id": id})).await;
        assert_eq!(refused["error"]["message"], format!("Unknown plan: {}", id.as_str().unwrap()));
    }
    assert_eq!(ask(&other, "list_plans", json!({})).await["result"]["plans"], json!([]));
    assert_eq!(ask(&own, "list_plans", json!({})).await["result"]["plans"][0]["plan_id"], id);
    assert_eq!(ask(&own, "run_plan", json!({"plan_id": id})).await["result"]["status"], "success");
    // Nor do its executors get out of what it may do.
    let context = json!({"current_directory": "/"});
    let params = json!({"task_type": "analysis", "prompt": "x", "context": context});
    let made = ask(&own, "execute_task", params.clone()).await;
    assert!(made["result"].is_object(), "a trusted agent reads anywhere: {made}");
    wire.ok("create_agent", json!({"agent_id": "low", "preset": "sandboxed"})).await;
    let low = wire.ok("create_agent_token", json!({"agent_id": "low"})).await;
    let refused = ask(low["token"].as_str().unwrap(), "execute_task", params).await;
    assert_eq!(refused["error"]["code"], -32003, "{refused}");
}

/// What a hostile agent begins and leaves to itself stays in memory until it is over.
#[tokio::test]
async fn a_tree_runs_so_many_plans_at_once() {
    let keys = json!({"max_children": 100, "max_tree_turns": 100});
    let server = Setup::new().server(keys).start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "own", "preset": "trusted"})).await;
    let made = wire.ok("create_agent_token", json!({"agent_id": "own"})).await;
    let token = made["token"].as_str().unwrap();
    server.model().set_default(Reply::hang());
    let run = async |token: Option<&str>| {
        let params = json!({"plan": plan(&[("a", &[])]), "options": {"timeout_ms": 600_000}});
        server.ask(server.post(request(1, "run_plan", params)).bearer(token)).await.answer()
    };
    let mut running: Vec<_> = (0..65).map(|_| Box::pin(run(Some(token)))).collect();
    // One too many: it is the first that is answered.
    let (refused, _, left) = select_all(running.drain(..)).await;
    let details = refused["error"]["data"]["details"].as_str().unwrap_or_default();
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    assert!(details.contains("64 plans"), "{refused}");
    assert!(refused["error"]["data"]["retry_after_ms"].is_u64(), "{refused}");
    let listed = wire.ok("list_plans", json!({"limit": 100})).await;
    assert_eq!(listed["plans"].as_array().unwrap().len(), 64, "what is refused is not kept");
    // The administrator's run beside them.
    server.model().set_default(Reply::text("done"));
    assert_eq!(run(server.token.as_deref()).await["result"]["status"], "success");
    let id = listed["plans"][0]["plan_id"].clone();
    assert_eq!(wire.ok("cancel_plan", json!({"plan_id": id})).await["cancelled"], true);
    let (ended, _, _left) = select_all(left).await;
    assert!(ended["result"].is_object(), "{ended}");
    assert_eq!(run(Some(token)).await["result"]["status"], "success", "there is room again");
}

#[tokio::test]
async fn many_plans_run_side_by_side() {
    let server = Setup::new().server(json!({"max_concurrent": 4, "max_queued": 8})).start().await;
    let wire = server.wire();
    answering(&wire, |id, _| Reply::text(format!("{id} is done")));
    let run = async |_| {
        let params =
            json!({"plan": plan(&[("a", &[]), ("b", &["a"])]), "options": {"timeout_ms": 60_000}});
        wire.ok("run_plan", params).await["status"].clone()
    };
    let ran = futures_util::future::join_all((0..100).map(run)).await;
    assert_eq!(ran, vec![json!("success"); 100]);
}

#[tokio::test]
async fn a_plan_from_the_command_line() {
    let server = Server::start().await;
    let script = |request: &Value| {
        let asked = last_user_text(request).unwrap_or_default();
        match asked.contains("Make a plan") {
            true => Reply::text(plan(&[("a", &[]), ("b", &["a"])]).to_string()),
            false if is_after_tool(request) => Reply::text("written"),
            false if asked.ends_with("do a") => writing("a.txt", "a"),
            false => Reply::text("b is done"),
        }
    };
    server.model().set_script(script);
    let made = server.cli(["plan", "Build it"]).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains("b (code_generation, after a)\n    do b"), "{made:?}");
    let id = made.stdout.trim_end().rsplit(' ').next().unwrap().to_owned();
    let ran = server.cli(["run-plan", &id, "--write"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("a: success\n    + a.txt\nb: success\n"), "{ran:?}");
    assert!(ran.stderr.contains("a running\na success\nb running\nb success\n"), "{ran:?}");
    // Nothing is left to do, and the server beside it knows.
    assert_eq!(server.cli(["run-plan", &id]).await.code, Some(0));
    let stands = server.wire().ok("get_plan", json!({"plan_id": id})).await;
    assert_eq!(stands["status"], "success");
    // From a file, as a stream of JSON, and one that fails.
    std::fs::write(
        server.world.work().join("plan.json"),
        json!({"plan": plan(&[("bad", &[])])}).to_string(),
    )
    .unwrap();
    server.model().set_script(|_| Reply::text("half\nINCOMPLETE: the rest"));
    let ran = server.cli(["run-plan", "plan.json", "--json"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let last: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["result"]["tasks"]["bad"]["status"], "partial");
    for (args, code) in [
        (vec!["plan", " "], 1),
        (vec!["run-plan", "plan_0000000000000000"], 1),
        (vec!["run-plan", "nowhere.json"], 1),
        (vec!["plan"], 2),
        (vec!["plan", "x", "--max-parallel", "65"], 2),
    ] {
        let refused = server.cli(args.clone()).await;
        assert_eq!(refused.code, Some(code), "{args:?}: {refused:?}");
        assert!(!refused.stderr.is_empty());
    }
}

/// The example of the README, with the client that seed 002 prints.
#[tokio::test]
async fn the_orchestrator_of_the_readme_runs() {
    let server = Server::start().await;
    server.model().set_script(|request| {
        let asked = last_user_text(request).unwrap_or_default();
        match asked.contains("Make a plan") {
            true => Reply::text(plan(&[("a", &[]), ("b", &["a"])]).to_string()),
            false if is_after_tool(request) => Reply::text("```js\nlet unused = 1;\n```"),
            false if asked.ends_with("do a") => writing("a.js", "let unused = 1;"),
            false => Reply::text("b is done"),
        }
    });
    let example =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/orchestrator/orchestrate.js");
    let path = std::env::var("PATH").unwrap();
    let script = format!(
        "export PATH=\"$(dirname \"$0\"):{path}\"; command -v node >/dev/null || exit 77; exec node {example} 'Build it'"
    );
    let ran = crate::harness::process::run(server.world.shell(&script)).await;
    if ran.code == Some(77) {
        eprintln!("node is not on this machine: its example is not run");
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let expected = "a: do a\nb: do b\na success a.js\n  line 1: `unused` is never used (no-unused-vars)\nb success\n\
                    success: ";
    assert!(ran.stdout.starts_with(expected), "{ran:?}");
}

/// The same over HTTP, as the README has it for curl.
#[tokio::test]
async fn the_readmes_lines_for_curl_run() {
    let server = Server::start().await;
    server.model().set_script(|request| {
        let asked = last_user_text(request).unwrap_or_default();
        match asked.contains("Make a plan") {
            true => Reply::text(plan(&[("a", &[])]).to_string()),
            false => Reply::text("done"),
        }
    });
    let readme = include_str!("../../../../README.md");
    let (_, section) = readme.split_once("and with curl:\n\n```sh\n").unwrap();
    let (lines, _) = section.split_once("```").unwrap();
    let token = server.post("").head_bytes();
    let token = String::from_utf8(token).unwrap();
    let token = token.lines().find_map(|line| line.split_once("Bearer ")).unwrap().1.to_owned();
    let script = format!(
        "export PATH=\"$(dirname \"$0\"):{path}\"; command -v curl >/dev/null || exit 77\n\
         auth() {{ printf 'Authorization: Bearer {token}\\n'; }}\nset -e\n{lines}",
        path = std::env::var("PATH").unwrap(),
        lines = lines.replace("127.0.0.1:8765", &server.address.to_string()),
    );
    let ran = crate::harness::process::run(server.world.shell(&script)).await;
    if ran.code == Some(77) {
        eprintln!("curl is not on this machine: its lines are not run");
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("a: success\n"), "{ran:?}");
    assert!(ran.stdout.contains("`a` is never used"), "{ran:?}");
}
