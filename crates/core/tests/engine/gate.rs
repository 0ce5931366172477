//! The gate, approvals and grants; agents that ask each other.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nexus_core::approval::{ApprovalMode, Decision, RespondError};
use nexus_core::authority::Action;
use nexus_core::events::{EventSink, TurnEvent};
use nexus_core::gate::Explanation;
use nexus_core::lifecycle::{AccessError, AgentSpec, CreateError};
use nexus_core::permission::{Grants, Level, Reach};
use nexus_core::rights::PermissionChange;
use nexus_core::store::{ApprovalRecord, ApprovalStatus, ApprovalStore as _};
use nexus_core::turn::{TurnHandle, TurnInput};
use nexus_core::{Agent, Requester};
use serde_json::{Value, json};

use crate::fakes::{ADMIN, LONG, Script, World, history, id};

fn preset(name: &str, preset: &str) -> AgentSpec {
    AgentSpec {
        name: Some(name.into()),
        preset: Some(preset.into()),
        cwd: Some(base().display().to_string()),
        ..AgentSpec::default()
    }
}

fn base() -> PathBuf {
    std::env::temp_dir().canonicalize().unwrap()
}

/// What the gate says: `ok`, `ask: …`, or `rule: …`.
async fn check(world: &World, agent: &Agent, tool: &str, arguments: Value, expected: &str) {
    let got = match world.engine.gate.explain(agent, tool, &arguments).await {
        Explanation::Allowed => "ok".into(),
        Explanation::NeedsApproval(reason) => format!("ask: {reason}"),
        Explanation::Refused(refusal) => format!("{}: {refusal}", refusal.rule()),
    };
    assert!(got.starts_with(expected), "{tool} {arguments}: {got}, expected {expected}");
}

#[tokio::test]
async fn a_sandboxed_agent_stays_in_its_directory() {
    let world = World::new();
    let agent = world.engine.agents.create(&ADMIN, preset("a", "sandboxed")).await.unwrap();
    let check =
        async |tool, arguments, expected| check(&world, &agent, tool, arguments, expected).await;
    check("nope", json!({}), "known: there is no tool named nope").await;
    check("echo", json!([1]), "schema: the arguments do not fit the tool").await;
    check("echo", json!({"read": "x"}), "ok").await;
    check(
        "echo",
        json!({"read": "/etc/passwd"}),
        "path: /etc/passwd lies outside what this agent may read",
    )
    .await;
    check("echo", json!({"read": "../x/../../etc"}), "path: ").await;
    check("echo", json!({"read": "a\0b"}), "path: ").await;
    check("echo", json!({"write": "x"}), "path: x lies outside what this agent may write").await;
    check(
        "exec",
        json!({"command": "ls"}),
        "level: this agent's level (sandboxed) allows no commands",
    )
    .await;
    check("echo", json!({"look": "git log"}), "ok").await;
    check(
        "echo",
        json!({"manage": "x"}),
        "level: this agent's permissions exclude agent management",
    )
    .await;
    check("echo", json!({"message": "other"}), "target_agent: ").await;
}

#[tokio::test]
async fn a_trusted_agent_asks_before_it_writes_elsewhere_or_runs_commands() {
    let world = World::new();
    let agent = world.engine.agents.create(&ADMIN, preset("a", "trusted")).await.unwrap();
    let check =
        async |tool, arguments, expected| check(&world, &agent, tool, arguments, expected).await;
    check("echo", json!({"read": "/etc/hostname"}), "ok").await;
    check("echo", json!({"write": "x"}), "ok").await;
    check("echo", json!({"write": "/etc/x"}), "ask: write /etc/x").await;
    check(
        "echo",
        json!({"read": "/protected/rpc.token"}),
        "path: /protected/rpc.token is a blocked path",
    )
    .await;
    check("exec", json!({"command": "ls"}), "ask: run a command with exec in ").await;
    check(
        "exec",
        json!({"command": "x", "yolo": "push --force"}),
        "level: push --force is refused below the level yolo",
    )
    .await;
    check("echo", json!({"look": "git log"}), "ok").await;

    let unconfined = World::with(|settings| settings.commands_confined = false);
    let agent = unconfined.engine.agents.create(&ADMIN, preset("a", "trusted")).await.unwrap();
    let dir = base().display().to_string();
    let expected = &format!("ask: run a command with echo in {dir} without a kernel sandbox");
    check_in(&unconfined, &agent, json!({"look": "git log"}), expected).await;
}

#[tokio::test]
async fn nobody_is_asked_whether_an_agent_may_configure_the_server() {
    let world = World::new();
    let agent = world.engine.agents.create(&ADMIN, preset("a", "trusted")).await.unwrap();
    for path in [".nexus3/config.json", "x/.Nexus3/mcp.json", "/etc/.nexus3/config.json", ".nexus3"]
    {
        let expected = format!("path: {path} lies in a .nexus3 directory");
        check_in(&world, &agent, json!({"write": path}), &expected).await;
        check_in(&world, &agent, json!({"read": path}), "ok").await;
    }
    check_in(&world, &agent, json!({"write": "x.nexus3/y"}), "ok").await;
}

#[tokio::test]
async fn what_git_runs_is_written_with_leave_only() {
    let world = World::new();
    let trusted = world.engine.agents.create(&ADMIN, preset("a", "trusted")).await.unwrap();
    let dir = base().display().to_string();
    let spec = |name: &str, paths: &[&str]| AgentSpec {
        write_paths: paths.iter().map(ToString::to_string).collect(),
        ..preset(name, "sandboxed")
    };
    let sandboxed = world.engine.agents.create(&ADMIN, spec("b", &["."])).await.unwrap();
    let given = world.engine.agents.create(&ADMIN, spec("c", &[".", "x/.git"])).await.unwrap();
    for path in [".git", ".GIT/config", "x/.git/hooks/pre-commit"] {
        check_in(&world, &trusted, json!({"write": path}), &format!("ask: write {dir}/")).await;
        let expected = format!("path: {path} lies in a .git directory");
        check_in(&world, &sandboxed, json!({"write": path}), &expected).await;
        check_in(&world, &sandboxed, json!({"read": path}), "ok").await;
    }
    check_in(&world, &given, json!({"write": "x/.git/config"}), "ok").await;
    check_in(&world, &given, json!({"write": ".git/config"}), "path: ").await;
    check_in(&world, &sandboxed, json!({"write": ".gitignore"}), "ok").await;
}

#[tokio::test]
async fn a_name_cannot_add_words_to_a_question() {
    let world = World::new();
    let agent = world.engine.agents.create(&ADMIN, preset("a", "trusted")).await.unwrap();
    let write = json!({"write": "/srv/x\nharmless"});
    check_in(&world, &agent, write, "ask: write /srv/x\u{fffd}harmless").await;
}

#[tokio::test]
async fn the_kernels_own_trees_are_refused_before_the_call() {
    let world = World::new();
    let dir = tempfile::tempdir().unwrap();
    let link = |name: &str, to: &str| {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(to, &link).unwrap();
        link.display().to_string()
    };
    let (tree, magic) = (link("tree", "/proc"), link("magic", "/proc/self/root/etc"));
    let agent = world.engine.agents.create(&ADMIN, preset("a", "trusted")).await.unwrap();
    for path in ["/proc", "/proc/1/environ", "/proc/sys/x", "/sys/kernel", "/dev/sda", &tree] {
        let expected = format!("path: {path} belongs to the kernel");
        check_in(&world, &agent, json!({"read": path}), &expected).await;
        check_in(&world, &agent, json!({"write": path}), &expected).await;
    }
    let magic = [&magic, &format!("{magic}/passwd"), "/proc/self/cwd", "/proc/self/environ"];
    for path in magic {
        let expected = format!("path: {path} leads through a link of the kernel's");
        check_in(&world, &agent, json!({"read": path}), &expected).await;
    }
    for path in ["/dev/shm", "/dev/shm/x", "/proc/../etc/hostname", "/processes"] {
        check_in(&world, &agent, json!({"read": path}), "ok").await;
    }
}

#[tokio::test]
async fn leave_for_a_command_is_for_the_directory_it_runs_in() {
    let world = World::asking();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["a/deep", "b"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("a", root.join("link")).unwrap();
    let spec = AgentSpec { cwd: root.to_str().map(Into::into), ..preset("a", "trusted") };
    let agent = world.engine.agents.create(&ADMIN, spec).await.unwrap();
    let command = |dir: &str| json!({"command": "x", "in": dir});
    let asks = |dir: &str| format!("ask: run a command with exec in {}", root.join(dir).display());
    let check = async |dir: &str, expected: &str| {
        check(&world, &agent, "exec", command(dir), expected).await;
    };
    check("link", &asks("a")).await;
    check("missing", "path: missing: no such file or directory").await;
    world.model.script([Script::Call(vec![("exec", command("link"))])]);
    let turn = world.engine.turns.start(&agent, TurnInput::default()).await.unwrap();
    let approval = pending(&world).await;
    assert!(approval.reason.ends_with(&root.join("a").display().to_string()), "{approval:?}");
    world.engine.approvals.respond(&ADMIN, &approval.id, Decision::AllowSession).await.unwrap();
    turn.wait(None).await.unwrap();
    assert_eq!(agent.look().settings.grants.exec_dirs["exec"], [root.join("a")].into());
    for (dir, expected) in
        [("a", "ok"), ("a/deep", "ok"), ("b", &asks("b")), (".", &asks("")), ("link/..", &asks(""))]
    {
        check(dir, expected.trim_end_matches('/')).await;
    }
}

async fn check_in(world: &World, agent: &Agent, arguments: Value, expected: &str) {
    check(world, agent, "echo", arguments, expected).await;
}

#[tokio::test]
async fn without_anybody_to_ask_what_needs_approval_is_denied_and_the_model_is_told() {
    let world = World::new();
    let agent = world.engine.agents.create(&ADMIN, preset("a", "trusted")).await.unwrap();
    world.model.script([Script::Call(vec![("echo", json!({"write": "/etc/x"}))])]);
    world.say(&agent, "go").await.unwrap();
    assert!(
        history(&agent)[2].contains("this server denies what needs approval"),
        "{:?}",
        history(&agent)
    );
}

/// An agent whose turn waits for leave to write `/etc/x`.
async fn asking(timeout: Duration) -> (World, Agent, TurnHandle, ApprovalRecord) {
    let world = World::with(|settings| settings.approvals = ApprovalMode::Ask { timeout });
    let agent = world.engine.agents.create(&ADMIN, preset("a", "trusted")).await.unwrap();
    world
        .model
        .script([Script::Call(vec![("echo", json!({"write": "/etc/x", "text": "written"}))])]);
    let turn = world.engine.turns.start(&agent, TurnInput::default()).await.unwrap();
    let approval = pending(&world).await;
    (world, agent, turn, approval)
}

/// The approval that waits, as soon as one does.
async fn pending(world: &World) -> ApprovalRecord {
    loop {
        match world.engine.approvals.list(&ADMIN, None, false).await.unwrap().pop() {
            Some(approval) => return approval,
            None => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn leave_for_once_is_for_once() {
    let (world, agent, turn, approval) = asking(LONG).await;
    assert_eq!(
        (approval.reason.as_str(), approval.answer.status),
        ("write /etc/x", ApprovalStatus::Pending)
    );
    let own = world
        .engine
        .approvals
        .respond(&Requester::Agent(id("a")), &approval.id, Decision::AllowOnce)
        .await;
    assert!(matches!(own, Err(RespondError::Own)));
    world.agent("stranger").await;
    let stranger = Requester::Agent(id("stranger"));
    assert!(world.engine.approvals.list(&stranger, None, false).await.unwrap().is_empty());
    let hidden = world.engine.approvals.respond(&stranger, &approval.id, Decision::AllowOnce).await;
    assert!(matches!(hidden, Err(RespondError::Unknown(_))), "as one that is not there");

    world.engine.approvals.respond(&ADMIN, &approval.id, Decision::AllowOnce).await.unwrap();
    turn.wait(None).await.unwrap();
    assert_eq!(history(&agent)[2], "Tool: written");
    check_in(&world, &agent, json!({"write": "/etc/x"}), "ask: ").await;
    let again = world.engine.approvals.respond(&ADMIN, &approval.id, Decision::Deny).await;
    assert!(matches!(again, Err(RespondError::Decided(_))));
    let unknown = world.engine.approvals.respond(&ADMIN, "appr_x", Decision::Deny).await;
    assert!(matches!(unknown, Err(RespondError::Unknown(_))));
}

#[tokio::test]
async fn leave_for_the_session_is_a_grant_that_survives_a_restart() {
    let (world, agent, turn, approval) = asking(LONG).await;
    world.engine.approvals.respond(&ADMIN, &approval.id, Decision::AllowSession).await.unwrap();
    turn.wait(None).await.unwrap();
    check_in(&world, &agent, json!({"write": "/etc/x"}), "ok").await;
    check_in(&world, &agent, json!({"write": "/etc/y"}), "ask: ").await;

    let again = world.restarted(|_| {});
    let restored = again.engine.agents.find(&ADMIN, &id("a"), Action::Read).await.unwrap();
    check_in(&again, &restored, json!({"write": "/etc/x"}), "ok").await;
}

#[tokio::test]
async fn leave_that_came_too_late_lets_nothing_through() {
    for decision in [Decision::AllowOnce, Decision::AllowSession] {
        let (world, agent, turn, approval) = asking(LONG).await;
        let change = PermissionChange { preset: Some("sandboxed".into()), ..Default::default() };
        world.engine.permits.set(&ADMIN, &agent, change).await.unwrap();
        let answered = world.engine.approvals.respond(&ADMIN, &approval.id, decision).await;
        assert!(matches!(answered, Err(RespondError::TooMuch(_))), "{answered:?}");
        turn.wait(None).await.unwrap();
        let told = &history(&agent)[2];
        assert_eq!(told, "Tool: Refused: /etc/x lies outside what this agent may write.");
        assert_eq!(agent.look().settings.grants, Grants::default());
        let stored = world.store.approval(&approval.id).await.unwrap().unwrap();
        assert_eq!(stored.record.answer.status, ApprovalStatus::Denied);
    }
}

/// The agent is narrowed while the yes is on its way.
#[tokio::test]
async fn leave_that_a_narrowing_overtakes_lets_nothing_through() {
    let (world, agent, turn, approval) = asking(LONG).await;
    let held = world.store.hold();
    let narrowing = tokio::spawn({
        let (engine, agent) = (world.engine.clone(), agent.clone());
        let change = PermissionChange { preset: Some("sandboxed".into()), ..Default::default() };
        async move { engine.permits.set(&ADMIN, &agent, change).await.map(drop) }
    });
    world.store.until_waiting(1).await;
    let answering = tokio::spawn({
        let (engine, of) = (world.engine.clone(), approval.id.clone());
        async move { engine.approvals.respond(&ADMIN, &of, Decision::AllowSession).await }
    });
    // It looks at the agent as it was, and then waits behind what narrows it; or it comes last of all.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    drop(held);
    narrowing.await.unwrap().unwrap();
    let answered = answering.await.unwrap();
    assert!(matches!(answered, Err(RespondError::TooMuch(_))), "{answered:?}");
    turn.wait(None).await.unwrap();
    assert_eq!(agent.look().settings.grants, Grants::default());
    let told = &history(&agent)[2];
    assert_eq!(told, "Tool: Refused: /etc/x lies outside what this agent may write.");
}

#[tokio::test]
async fn leave_for_a_link_that_leads_elsewhere_by_now_lets_nothing_through() {
    let world = World::asking();
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    let agent = world.engine.agents.create(&ADMIN, preset("a", "trusted")).await.unwrap();
    let write = json!({"write": link.join("x").to_str(), "text": "written"});
    world.model.script([Script::Call(vec![("echo", write)])]);
    let turn = world.engine.turns.start(&agent, TurnInput::default()).await.unwrap();
    let approval = pending(&world).await;
    assert_eq!(approval.reason, "write /etc/x");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/usr", &link).unwrap();
    let answered = world.engine.approvals.respond(&ADMIN, &approval.id, Decision::AllowOnce).await;
    assert!(matches!(answered, Err(RespondError::TooMuch(_))), "{answered:?}");
    turn.wait(None).await.unwrap();
    let told = &history(&agent)[2];
    assert!(told.contains("it would touch something else by now than was approved"), "{told}");
}

#[tokio::test]
async fn a_refusal_tells_nothing_of_what_lies_outside() {
    let world = World::new();
    let agent = world.engine.agents.create(&ADMIN, preset("a", "sandboxed")).await.unwrap();
    for (there, not_there) in [
        ("/etc/passwd/x", "/etc/no-such/x"),
        ("/etc/ssl/../x", "/etc/no-such/../x"),
        ("/proc/self/environ", "/proc/0/environ"),
    ] {
        for path in [there, not_there] {
            let expected = format!("path: {path} lies outside what this agent may read");
            check_in(&world, &agent, json!({"read": path}), &expected).await;
            let look = json!({"look": "git log", "in": path, "read": path});
            check_in(&world, &agent, look, &expected).await;
            let expected = format!("path: {path} lies outside what this agent may write");
            check_in(&world, &agent, json!({"write": path}), &expected).await;
        }
    }
}

#[tokio::test]
async fn a_denial_a_timeout_and_a_cancel_end_the_wait() {
    let (world, agent, turn, approval) = asking(LONG).await;
    world.engine.approvals.respond(&ADMIN, &approval.id, Decision::Deny).await.unwrap();
    turn.wait(None).await.unwrap();
    assert_eq!(history(&agent)[2], "Tool: Refused: it was denied.");

    let (_, agent, turn, _) = asking(Duration::from_millis(20)).await;
    turn.wait(None).await.unwrap();
    assert_eq!(history(&agent)[2], "Tool: Refused: nobody approved it in time.");

    let (world, _, turn, _) = asking(LONG).await;
    turn.cancel.cancel();
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert!(world.engine.approvals.list(&ADMIN, None, false).await.unwrap().is_empty());
    let kept = world.engine.approvals.list(&ADMIN, None, true).await.unwrap();
    assert_eq!(kept[0].answer.status, ApprovalStatus::Cancelled);
}

#[tokio::test]
async fn what_an_agent_asked_ends_with_it() {
    let world = World::asking();
    let all = async || world.engine.approvals.list(&ADMIN, None, true).await.unwrap();
    for name in [".t", "p"] {
        let agent = world.engine.agents.create(&ADMIN, preset(name, "trusted")).await.unwrap();
        world.model.script([Script::Call(vec![("echo", json!({"write": "/etc/x"}))])]);
        let turn = world.engine.turns.start(&agent, TurnInput::default()).await.unwrap();
        pending(&world).await;
        assert_eq!(all().await.len(), 1);
        world.engine.agents.destroy(&ADMIN, &id(name)).await.unwrap();
        // It may fail: what it did cannot be written down any more.
        let _ = turn.wait(None).await;
        assert_eq!(all().await, [], "{name}");
    }
    // One that slipped in as its agent ended is not shown to the next of that name, and what that one asks is, whatever the
    // clock says.
    let agent = world.engine.agents.create(&ADMIN, preset(".t", "trusted")).await.unwrap();
    let asked = |name: &str, born: u64, at: &str| ApprovalRecord {
        id: name.into(),
        agent: id(".t"),
        born,
        tool: "echo".into(),
        arguments: json!({}),
        reason: "write /etc/x".into(),
        created_at: at.parse().unwrap(),
        lineage: Vec::new(),
        turn: None,
        expires_at: None,
        grant: None,
        preview: None,
        inquiry: None,
        answer: ApprovalStatus::Denied.into(),
    };
    let born = agent.look().born;
    let old = asked("appr_old", born ^ 1, "2999-01-01T00:00:00Z");
    world.store.put_approval(old).await.unwrap();
    assert_eq!(all().await, []);
    let own = asked("appr_own", born, "2000-01-01T00:00:00Z");
    world.store.put_approval(own.clone()).await.unwrap();
    assert_eq!(all().await, [own]);
}

#[tokio::test]
async fn permissions_change_within_the_ceiling_only() {
    let world = World::new();
    world.engine.agents.create(&ADMIN, preset("p", "trusted")).await.unwrap();
    let spec = AgentSpec { parent: Some(id("p")), ..preset("k", "sandboxed") };
    let kid = world.engine.agents.create(&ADMIN, spec).await.unwrap();
    let set = async |agent: &Agent, preset: Option<&str>, off: &[&str], on: &[&str]| {
        let texts = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let change = PermissionChange {
            preset: preset.map(Into::into),
            disable_tools: texts(off),
            enable_tools: texts(on),
            hand: Default::default(),
        };
        world.engine.permits.set(&ADMIN, agent, change).await
    };
    assert!(matches!(set(&kid, Some("trusted"), &[], &[]).await, Err(CreateError::Ceiling(_))));
    set(&kid, None, &["echo"], &[]).await.unwrap();
    check_in(&world, &kid, json!({}), "enabled: the tool echo is disabled").await;
    set(&kid, Some("worker"), &[], &[]).await.unwrap();
    assert_eq!(kid.look().settings.permissions.preset, "worker");
    assert!(set(&kid, Some("yolo"), &[], &[]).await.is_err());

    let parent = world.engine.agents.find(&ADMIN, &id("p"), Action::Read).await.unwrap();
    set(&parent, Some("sandboxed"), &[], &[]).await.unwrap();
    let permissions = parent.snapshot().settings.permissions.clone();
    assert_eq!(permissions.level, Level::Sandboxed);
    assert_eq!(permissions.write, Reach::nowhere(), "trusted less, it writes nowhere");
    set(&parent, Some("trusted"), &[], &[]).await.unwrap();
    let own = Requester::Agent(id("p"));
    let own = world.engine.permits.set(&own, &parent, PermissionChange::default()).await;
    assert!(matches!(own, Err(CreateError::Access(AccessError::Denied(_)))));
}

#[tokio::test]
async fn whoever_narrows_a_parent_narrows_its_children() {
    let world = World::new();
    let parent = world.engine.agents.create(&ADMIN, preset("p", "trusted")).await.unwrap();
    let spec = AgentSpec { parent: Some(id("p")), ..preset("k", "sandboxed") };
    let kid = world.engine.agents.create(&ADMIN, spec).await.unwrap();
    check_in(&world, &kid, json!({"read": "x"}), "ok").await;
    let change = PermissionChange { disable_tools: vec!["echo".into()], ..Default::default() };
    world.engine.permits.set(&ADMIN, &parent, change).await.unwrap();
    check_in(&world, &kid, json!({"read": "x"}), "enabled: ").await;
}

#[tokio::test]
async fn a_parent_asks_its_children_in_parallel() {
    let world = World::with(|settings| settings.max_concurrent = 1);
    let parent = world.engine.agents.create(&ADMIN, preset("p", "trusted")).await.unwrap();
    for name in ["k1", "k2", "k3"] {
        let spec = AgentSpec { parent: Some(id("p")), ..preset(name, "sandboxed") };
        world.engine.agents.create(&ADMIN, spec).await.unwrap();
    }
    let ask = |name: &str| ("echo", json!({"message": name, "text": format!("work, {name}")}));
    world.model.script([Script::Call(vec![ask("k1"), ask("k2"), ask("k3")])]);
    world.say(&parent, "go").await.unwrap();
    assert_eq!(history(&parent)[2..5], ["Tool: ok", "Tool: ok", "Tool: ok"]);
    let kid = world.engine.agents.find(&ADMIN, &id("k2"), Action::Read).await.unwrap();
    assert_eq!(history(&kid), ["User: work, k2", "Assistant: ok"]);
}

#[tokio::test]
async fn what_a_child_asks_for_is_seen_on_its_parents_stream() {
    struct Asked(Arc<Mutex<Vec<String>>>);
    impl EventSink for Asked {
        fn event(&mut self, event: TurnEvent<'_>) -> bool {
            if let TurnEvent::ApprovalRequested(approval) = event {
                self.0.lock().unwrap().push(approval.agent.to_string());
            }
            true
        }
    }
    // Without a kernel sandbox even a sandboxed agent has to ask before it looks.
    let world = World::with(|settings| {
        settings.commands_confined = false;
        settings.approvals = ApprovalMode::Ask { timeout: Duration::from_millis(20) };
    });
    let parent = world.engine.agents.create(&ADMIN, preset("p", "trusted")).await.unwrap();
    let spec = AgentSpec { parent: Some(id("p")), ..preset("k", "sandboxed") };
    world.engine.agents.create(&ADMIN, spec).await.unwrap();
    world.model.script([
        Script::Call(vec![("echo", json!({"message": "k", "text": "look"}))]),
        Script::Call(vec![("echo", json!({"look": "git log"}))]),
    ]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let sink = Some(Box::new(Asked(asked.clone())) as Box<dyn EventSink>);
    let input = TurnInput { content: "go".into(), sink, ..TurnInput::default() };
    world.engine.turns.start(&parent, input).await.unwrap().wait(None).await.unwrap();
    assert_eq!(*asked.lock().unwrap(), ["k"]);
}

#[tokio::test]
async fn an_asked_turn_ends_when_the_time_of_the_asking_call_does() {
    let timeout = Duration::from_millis(200);
    let world = World::with(|settings| settings.tool_timeout = timeout);
    let parent = world.engine.agents.create(&ADMIN, preset("p", "trusted")).await.unwrap();
    let spec = AgentSpec { parent: Some(id("p")), ..preset("k", "sandboxed") };
    let kid = world.engine.agents.create(&ADMIN, spec).await.unwrap();
    let ask = |name: &str| Script::Call(vec![("echo", json!({"message": name, "text": "?"}))]);
    world.model.script([ask("k"), Script::Hang("half an"), Script::Say("done")]);
    world.say(&parent, "go").await.unwrap();
    assert_eq!(kid.turns_in_flight(), 0);
    assert_eq!(history(&kid)[1], "Assistant: half an [interrupted]");
    let told = &history(&parent)[2];
    assert!(told.contains("agent k did not answer") && told.contains("was cancelled"), "{told}");
}

#[tokio::test]
async fn a_cancelled_turn_takes_the_one_it_asked_along() {
    let world = World::new();
    let parent = world.engine.agents.create(&ADMIN, preset("p", "trusted")).await.unwrap();
    let spec = AgentSpec { parent: Some(id("p")), ..preset("k", "sandboxed") };
    let kid = world.engine.agents.create(&ADMIN, spec).await.unwrap();
    let ask = Script::Call(vec![("echo", json!({"message": "k", "text": "?"}))]);
    world.model.script([ask, Script::Hang("half an")]);
    let turn = world.engine.turns.start(&parent, TurnInput::default()).await.unwrap();
    world.model.wait_for_calls(2).await;
    turn.cancel.cancel();
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert_eq!(kid.turns_in_flight(), 0);
}

#[tokio::test]
async fn two_agents_that_wait_for_each_other_are_told() {
    let world = World::new();
    let parent = world.engine.agents.create(&ADMIN, preset("p", "trusted")).await.unwrap();
    let spec = AgentSpec { parent: Some(id("p")), ..preset("k", "sandboxed") };
    let kid = world.engine.agents.create(&ADMIN, spec).await.unwrap();
    let ask = |name: &str| Script::Call(vec![("echo", json!({"message": name, "text": "?"}))]);
    world.model.script([ask("k"), ask("p")]);
    world.say(&parent, "go").await.unwrap();
    assert!(
        history(&kid)[2].contains("is itself waiting for this agent's answer"),
        "{:?}",
        history(&kid)
    );
}
