//! Several processes on one store: what another one does is heeded here.

use std::time::Duration;

use nexus_core::approval::{ApprovalMode, Decision, RespondError};
use nexus_core::gate::Explanation;
use nexus_core::lifecycle::{AccessError, AgentSpec};
use nexus_core::rights::PermissionChange;
use nexus_core::store::StoreError;
use nexus_core::turn::TurnError;
use nexus_core::{AgentId, Requester};
use serde_json::json;

use crate::fakes::{ADMIN, LONG, Script, World, child, history, id, trusted, until};

#[tokio::test]
async fn a_parent_that_is_narrowed_elsewhere_narrows_its_children_here_at_once() {
    let here = World::new();
    let there = here.beside();
    // The parent lives there, its child here.
    there.make(trusted("p")).await;
    there.make(child("k", "p")).await;
    there.engine.agents.sweep(Duration::ZERO, Duration::ZERO).await;
    let parent = there.find("p").await.unwrap();
    let kid = here.find("k").await.unwrap();
    let held = here.find("p").await;
    assert!(matches!(held, Err(AccessError::Store(StoreError::HeldElsewhere { .. }))));
    let look = json!({"read": "/etc/hostname", "text": "seen"});
    assert_eq!(here.engine.gate.explain(&kid, "echo", &look).await, Explanation::Allowed);

    let off = PermissionChange { disable_tools: vec!["echo".into()], ..Default::default() };
    there.engine.permits.set(&ADMIN, &parent, off).await.unwrap();
    let refused = here.engine.gate.explain(&kid, "echo", &look).await;
    assert!(
        matches!(&refused, Explanation::Refused(why) if why.rule() == "enabled"),
        "{refused:?}"
    );
    here.model.call_echo(look.clone());
    here.say(&kid, "look").await.unwrap();
    assert_eq!(history(&kid)[2], "Tool: Refused: the tool echo is disabled for this agent.");
    let on = PermissionChange { enable_tools: vec!["echo".into()], ..Default::default() };
    there.engine.permits.set(&ADMIN, &parent, on).await.unwrap();
    assert_eq!(here.engine.gate.explain(&kid, "echo", &look).await, Explanation::Allowed);
}

#[tokio::test]
async fn what_is_asked_elsewhere_is_listed_here_and_answered_there() {
    let here = World::new();
    let there =
        here.beside_with(|settings| settings.approvals = ApprovalMode::Ask { timeout: LONG });
    there.make(trusted("p")).await;
    let mut turns = Vec::new();
    for name in ["a", ".t"] {
        let agent = there.make(AgentSpec { cwd: Some("/usr".into()), ..trusted(name) }).await;
        there.model.call_echo(json!({"write": "/etc/x", "text": "written"}));
        turns.push(there.start(&agent, "go").await.unwrap());
        until(|| there.engine.load().approvals == turns.len()).await;
    }
    let listed = async |world: &World, requester: &Requester, of: Option<&AgentId>| {
        world.engine.approvals.list(requester, of, false).await.unwrap()
    };
    let asked = listed(&there, &ADMIN, None).await;
    let [of_a, of_temp] = &asked[..] else { panic!("{asked:?}") };
    let shown = std::slice::from_ref(of_a);
    assert_eq!(listed(&here, &ADMIN, None).await, shown, "temporary agents are their process's");
    assert_eq!(listed(&here, &ADMIN, Some(&id("a"))).await, shown);
    assert_eq!(listed(&here, &ADMIN, Some(&id("p"))).await, []);
    assert_eq!(listed(&here, &Requester::Agent(id("a")), None).await, shown);
    assert_eq!(listed(&here, &Requester::Agent(id("p")), None).await, []);
    // Whoever watches here is shown what can be answered here.
    assert_eq!(here.engine.load().approvals, 0);

    let answer = Decision::AllowOnce;
    let refused = here.engine.approvals.respond(&ADMIN, &of_a.id, answer).await;
    assert!(matches!(refused, Err(RespondError::Elsewhere { .. })), "{refused:?}");
    for asked in [of_a, of_temp] {
        there.engine.approvals.respond(&ADMIN, &asked.id, answer).await.unwrap();
    }
    for turn in turns {
        turn.wait(None).await.unwrap();
    }
    assert_eq!(listed(&here, &ADMIN, None).await, []);
}

#[tokio::test]
async fn a_family_of_which_a_child_lives_here_is_not_ended_elsewhere() {
    let here = World::new();
    let there = here.beside();
    there.make(trusted("p")).await;
    there.make(child("k", "p")).await;
    there.engine.close().await.unwrap();
    let kid = here.find("k").await.unwrap();
    let again = here.beside();
    let refused = again.engine.agents.destroy(&ADMIN, &id("p")).await;
    assert!(matches!(refused, Err(AccessError::Store(StoreError::HeldElsewhere { .. }))));
    assert!(here.say(&kid, "still here").await.is_ok());
}

#[tokio::test]
async fn a_process_that_was_taken_for_dead_ends_its_turns_and_begins_anew() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.say(&agent, "hello").await.unwrap();
    world.model.script([Script::Hang("half")]);
    let running = world.start_named(&agent, "running").await.unwrap();
    let waiting = world.start_named(&agent, "waiting").await.unwrap();
    world.model.wait_for_calls(2).await;
    world.store.revoke();
    // Whoever touches an agent finds out.
    let again = world.find("a").await.unwrap();
    for turn in [running, waiting] {
        let ended = turn.wait(None).await;
        assert!(matches!(ended, Err(TurnError::Store(StoreError::LeaseLost))), "{ended:?}");
    }
    let late = world.say(&agent, "late").await;
    assert!(matches!(late, Err(TurnError::Store(StoreError::LeaseLost))), "{late:?}");
    assert_eq!(history(&again), ["User: hello", "Assistant: ok", "User: running"]);
    world.say(&again, "again").await.unwrap();
    assert_eq!(history(&again).len(), 5);
}

#[tokio::test]
async fn an_agent_that_another_process_took_over_is_lost_here() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.say(&agent, "hello").await.unwrap();
    world.model.script([Script::Call(vec![("echo", json!({"yields": 200}))])]);
    let running = world.start_named(&agent, "running").await.unwrap();
    let waiting = world.start_named(&agent, "waiting").await.unwrap();
    let there = world.restarted(|_| {});
    let taken = there.find("a").await.unwrap();
    // It finds out with its next write.
    for turn in [running, waiting] {
        let ended = turn.wait(None).await;
        assert!(matches!(ended, Err(TurnError::Store(StoreError::LeaseLost))), "{ended:?}");
    }
    let elsewhere = world.find("a").await;
    assert!(matches!(elsewhere, Err(AccessError::Store(StoreError::HeldElsewhere { .. }))));
    there.say(&taken, "mine").await.unwrap();
    there.engine.close().await.unwrap();
    let back = world.find("a").await.unwrap();
    assert_eq!(history(&back), history(&taken));
}

#[tokio::test]
async fn an_agent_that_was_ended_elsewhere_ends_here() {
    let world = World::new();
    let agent = world.agent("a").await;
    let there = world.restarted(|_| {});
    there.engine.agents.destroy(&ADMIN, &id("a")).await.unwrap();
    let sent = world.say(&agent, "hello").await;
    assert!(matches!(sent, Err(TurnError::Store(StoreError::Ended))), "{sent:?}");
    assert!(matches!(world.find("a").await, Err(AccessError::Unknown(_))));
    assert!(world.cards().await.is_empty());
}
