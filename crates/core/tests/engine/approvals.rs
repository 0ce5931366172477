//! A question is decided once, when its answer is on disk, and everybody is told the same.

use nexus_core::Agent;
use nexus_core::approval::{ApprovalMode, Decision, RespondError, Response};
use nexus_core::engine::Settings;
use nexus_core::lifecycle::AgentSpec;
use nexus_core::preview::{Grant, Preview};
use nexus_core::store::{
    ApprovalAnswer, ApprovalRecord, ApprovalStatus, ApprovalStore as _, StoreError,
};
use nexus_core::turn::TurnHandle;
use serde_json::json;

use crate::fakes::{ADMIN, LONG, World, child, history, id, trusted};

/// A world with an agent `name` whose turn waits for leave to write `/etc/x`.
async fn asking(name: &str) -> (World, Agent, TurnHandle, ApprovalRecord) {
    let world = World::asking();
    let agent = world.make(AgentSpec { cwd: Some("/usr".into()), ..trusted(name) }).await;
    world.model.call_echo(json!({"write": "/etc/x", "text": "written"}));
    let turn = world.start(&agent, "go").await.unwrap();
    let approval = loop {
        match world.engine.approvals.list(&ADMIN, None, false).await.unwrap().pop() {
            Some(approval) => break approval,
            None => tokio::task::yield_now().await,
        }
    };
    (world, agent, turn, approval)
}

async fn stored(world: &World, approval: &ApprovalRecord) -> ApprovalStatus {
    world.store.approval(&approval.id).await.unwrap().unwrap().record.answer.status
}

fn is_granted(agent: &Agent) -> bool {
    agent.look().settings.grants.write_paths.contains(std::path::Path::new("/etc/x"))
}

#[tokio::test]
async fn an_answer_that_could_not_be_stored_decides_nothing_and_the_next_one_does() {
    let answers = [
        (Decision::AllowOnce, ApprovalStatus::AllowedOnce, "Tool: written"),
        (Decision::AllowSession, ApprovalStatus::AllowedSession, "Tool: written"),
        (Decision::Deny, ApprovalStatus::Denied, "Tool: Refused: it was denied."),
    ];
    for (decision, status, told) in answers {
        for name in ["a", ".a"] {
            let (world, agent, turn, approval) = asking(name).await;
            world.store.fail_next(1, StoreError::Busy);
            let respond =
                async || world.engine.approvals.respond(&ADMIN, &approval.id, decision).await;
            let failed = respond().await;
            assert!(matches!(failed, Err(RespondError::Store(StoreError::Busy))), "{failed:?}");
            assert_eq!(stored(&world, &approval).await, ApprovalStatus::Pending);
            let waiting = world.engine.approvals.list(&ADMIN, None, false).await.unwrap();
            assert_eq!(waiting, std::slice::from_ref(&approval), "it still waits");
            assert!(!is_granted(&agent));

            assert_eq!(respond().await.unwrap().answer.status, status);
            turn.wait(None).await.unwrap();
            assert_eq!(history(&agent)[2], told);
            assert_eq!(stored(&world, &approval).await, status);
            assert_eq!(is_granted(&agent), decision == Decision::AllowSession);
            assert!(matches!(respond().await, Err(RespondError::Decided(_))));
        }
    }
}

#[tokio::test]
async fn a_denial_with_words_is_told_to_the_model_and_kept_with_who_said_it() {
    let (world, agent, turn, approval) = asking("a").await;
    let message = "write to /tmp instead!".to_owned();
    let response = Response::Denial(message.clone());
    let denied = world.engine.approvals.respond(&ADMIN, &approval.id, response).await.unwrap();
    turn.wait(None).await.unwrap();
    assert_eq!(history(&agent)[2], "Tool: Refused: denied: write to /tmp instead!");
    let by = Some("administrator".into());
    assert_eq!(
        denied.answer,
        ApprovalAnswer { status: ApprovalStatus::Denied, by, message: Some(message) }
    );
    let again = world.restarted(|_| {});
    let kept = again.engine.approvals.list(&ADMIN, None, true).await.unwrap();
    assert_eq!(kept, [denied]);
}

#[tokio::test]
async fn an_approval_says_who_asks_until_when_for_what_and_who_answered() {
    let world = World::with(|settings| {
        settings.approvals = ApprovalMode::Ask { timeout: LONG };
        settings.commands_confined = false;
    });
    world.make(trusted("p")).await;
    let agent = world.make(child("k", "p")).await;
    world.model.call_echo(json!({"look": "x", "text": "seen"}));
    let turn = world.start(&agent, "go").await.unwrap();
    let approval = loop {
        match world.engine.approvals.list(&ADMIN, None, false).await.unwrap().pop() {
            Some(approval) => break approval,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(approval.lineage, [id("p")]);
    assert_eq!(approval.turn.as_ref(), Some(&turn.id));
    assert_eq!(approval.expires_at, approval.created_at.checked_add(LONG).ok());
    let dir = agent.look().settings.cwd.display().to_string();
    assert_eq!(approval.grant, Some(Grant::Command { tool: "echo".into(), dir }));
    let preview = Preview::Agent { target: "nobody".into(), content: "seen".into() };
    assert_eq!(approval.preview.as_deref(), Some(&preview));
    assert_eq!(approval.answer, ApprovalStatus::Pending.into());
    let parent = nexus_core::Requester::Agent(id("p"));
    let allowed = Decision::AllowOnce;
    let answered = world.engine.approvals.respond(&parent, &approval.id, allowed).await.unwrap();
    assert_eq!(answered.answer.by.as_deref(), Some("p"));
    turn.wait(None).await.unwrap();
    let kept = world.engine.approvals.list(&ADMIN, None, true).await.unwrap();
    assert_eq!(kept, [answered]);
}

/// Its parent is in the store alone, and the store does not answer.
#[tokio::test]
async fn an_answer_to_an_agent_of_which_too_little_is_known_decides_nothing() {
    let asking = |settings: &mut Settings| {
        settings.approvals = ApprovalMode::Ask { timeout: LONG };
        settings.commands_confined = false;
    };
    let world = World::with(asking);
    world.make(trusted("p")).await;
    world.make(child("k", "p")).await;
    let world = world.restarted(asking);
    let agent = world.find("k").await.unwrap();
    world.model.call_echo(json!({"look": "x", "text": "seen"}));
    let turn = world.start(&agent, "go").await.unwrap();
    let approval = loop {
        match world.engine.approvals.list(&ADMIN, None, false).await.unwrap().pop() {
            Some(approval) => break approval,
            None => tokio::task::yield_now().await,
        }
    };
    let respond =
        async || world.engine.approvals.respond(&ADMIN, &approval.id, Decision::AllowOnce).await;
    world.store.fail_next(1, StoreError::Busy);
    let failed = respond().await;
    assert!(matches!(failed, Err(RespondError::Store(_))), "{failed:?}");
    assert_eq!(stored(&world, &approval).await, ApprovalStatus::Pending);
    respond().await.unwrap();
    turn.wait(None).await.unwrap();
    assert_eq!(history(&agent)[2], "Tool: seen");
}

#[tokio::test]
async fn of_two_answers_at_once_one_decides() {
    for name in ["a", ".a"] {
        let (world, agent, turn, approval) = asking(name).await;
        let held = world.store.hold();
        let (engine, of) = (world.engine.clone(), approval.id.clone());
        let first = tokio::spawn(async move {
            engine.approvals.respond(&ADMIN, &of, Decision::AllowSession).await
        });
        world.store.until_waiting(1).await;
        let second = world.engine.approvals.respond(&ADMIN, &approval.id, Decision::Deny).await;
        assert!(matches!(second, Err(RespondError::Deciding(_))), "{second:?}");
        drop(held);
        assert_eq!(first.await.unwrap().unwrap().answer.status, ApprovalStatus::AllowedSession);
        turn.wait(None).await.unwrap();
        assert_eq!(history(&agent)[2], "Tool: written");
        assert_eq!(stored(&world, &approval).await, ApprovalStatus::AllowedSession);
    }
}

#[tokio::test]
async fn an_agent_that_was_renamed_keeps_its_question_and_its_grant() {
    for name in ["a", ".a"] {
        let (world, agent, turn, approval) = asking(name).await;
        let sessions = &world.engine.sessions;
        match name {
            "a" => sessions.rename(&ADMIN, &id("a"), &id("b")).await.unwrap(),
            _ => drop(sessions.save(&ADMIN, &id(".a"), &id("b")).await.unwrap()),
        }
        let waiting = world.engine.approvals.list(&ADMIN, None, false).await.unwrap();
        assert_eq!(waiting, [ApprovalRecord { agent: id("b"), ..approval.clone() }]);
        let own = nexus_core::Requester::Agent(id("b"));
        let own = world.engine.approvals.respond(&own, &approval.id, Decision::AllowOnce).await;
        assert!(matches!(own, Err(RespondError::Own)), "{own:?}");

        let allowed = Decision::AllowSession;
        let answered = world.engine.approvals.respond(&ADMIN, &approval.id, allowed).await.unwrap();
        assert_eq!(answered.agent, id("b"));
        turn.wait(None).await.unwrap();
        assert_eq!(history(&agent)[2], "Tool: written");
        assert!(is_granted(&agent));
        let again = world.restarted(|_| {});
        assert!(is_granted(&again.find("b").await.unwrap()));
    }
}

/// The rename is on its way to the disk when the answer comes.
#[tokio::test]
async fn a_rename_that_is_under_way_loses_no_grant() {
    let (world, agent, turn, approval) = asking("a").await;
    let held = world.store.hold();
    let engine = world.engine.clone();
    let renaming =
        tokio::spawn(async move { engine.sessions.rename(&ADMIN, &id("a"), &id("b")).await });
    world.store.until_waiting(1).await;
    let (engine, of) = (world.engine.clone(), approval.id.clone());
    let answering =
        tokio::spawn(
            async move { engine.approvals.respond(&ADMIN, &of, Decision::AllowSession).await },
        );
    tokio::task::yield_now().await;
    drop(held);
    renaming.await.unwrap().unwrap();
    answering.await.unwrap().unwrap();
    turn.wait(None).await.unwrap();
    assert_eq!(history(&agent)[2], "Tool: written");
    assert!(is_granted(&world.restarted(|_| {}).find("b").await.unwrap()));
}

#[tokio::test]
async fn a_turn_that_is_cancelled_waits_for_an_answer_that_is_being_written() {
    let (world, agent, turn, approval) = asking("a").await;
    let held = world.store.hold();
    let (engine, of) = (world.engine.clone(), approval.id.clone());
    let answering =
        tokio::spawn(
            async move { engine.approvals.respond(&ADMIN, &of, Decision::AllowSession).await },
        );
    world.store.until_waiting(1).await;
    turn.cancel.cancel();
    tokio::task::yield_now().await;
    drop(held);
    assert_eq!(answering.await.unwrap().unwrap().answer.status, ApprovalStatus::AllowedSession);
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert_eq!(stored(&world, &approval).await, ApprovalStatus::AllowedSession);
    assert_eq!(history(&agent)[2], "Tool: Interrupted: the turn was cancelled.");
    assert!(is_granted(&agent), "what was answered stands");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_question_is_written_down_though_the_store_fails_at_first() {
    let (world, agent, turn, approval) = asking("a").await;
    world.store.fail_when({
        let mut failed = false;
        move |call| {
            let fails = call.method == "settle_approval" && !std::mem::replace(&mut failed, true);
            fails.then_some(StoreError::DiskFull)
        }
    });
    turn.cancel.cancel();
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert_eq!(history(&agent)[2], "Tool: Refused: the turn was cancelled.");
    while stored(&world, &approval).await == ApprovalStatus::Pending {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert_eq!(stored(&world, &approval).await, ApprovalStatus::Cancelled);
    while !world.engine.approvals.list(&ADMIN, None, false).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}
