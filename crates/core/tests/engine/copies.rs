//! What a copy of a session, and an agent that is made of one, has of the agent it comes from.

use nexus_core::approval::Decision;
use nexus_core::lifecycle::AgentSpec;
use nexus_core::permission::Grants;
use nexus_core::rights::PermissionChange;
use nexus_core::session::LoadSpec;
use nexus_core::{Agent, Requester};
use serde_json::json;

use crate::fakes::{ADMIN, World, child, id, trusted};

/// A world with an agent `a` that was given leave to write `/etc/x` for as long as it lives.
async fn granted() -> (World, Agent) {
    let world = World::asking();
    let agent = world.make(AgentSpec { cwd: Some("/usr".into()), ..trusted("a") }).await;
    world.model.call_echo(json!({"write": "/etc/x", "text": "written"}));
    let turn = world.start(&agent, "go").await.unwrap();
    let approval = loop {
        match world.engine.approvals.list(&ADMIN, None, false).await.unwrap().pop() {
            Some(approval) => break approval,
            None => tokio::task::yield_now().await,
        }
    };
    world.engine.approvals.respond(&ADMIN, &approval.id, Decision::AllowSession).await.unwrap();
    turn.wait(None).await.unwrap();
    assert!(has_grant(&agent));
    (world, agent)
}

fn has_grant(agent: &Agent) -> bool {
    agent.look().settings.grants != Grants::default()
}

async fn load(world: &World, session: &str, agent: &str) -> Agent {
    let spec = LoadSpec {
        session: id(session),
        agent: Some(id(agent)),
        preset: None,
        model: None,
        hand: Default::default(),
    };
    world.engine.sessions.load(&ADMIN, spec).await.unwrap()
}

#[tokio::test]
async fn what_an_agent_was_granted_is_no_copys() {
    let (world, agent) = granted().await;
    let sessions = &world.engine.sessions;
    sessions.copy(&ADMIN, &id("a"), &id("cloned")).await.unwrap();
    sessions.save(&ADMIN, &id("a"), &id("saved")).await.unwrap();
    // What the agent loses later its copies never had.
    let narrowed = PermissionChange { preset: Some("sandboxed".into()), ..Default::default() };
    world.engine.permits.set(&ADMIN, &agent, narrowed).await.unwrap();
    for (session, name) in [("cloned", "cloned"), ("saved", "b"), ("saved", ".t")] {
        let loaded = load(&world, session, name).await;
        assert!(!has_grant(&loaded), "{session} as {name}");
        assert_eq!(loaded.look().conversation.len(), 4, "and all that was said");
    }
}

#[tokio::test]
async fn what_an_agent_was_granted_ends_with_it() {
    for again in ["a", "other", ".t"] {
        let (world, _) = granted().await;
        world.engine.sessions.save(&ADMIN, &id("a"), &id("a")).await.unwrap();
        world.engine.agents.destroy(&ADMIN, &id("a")).await.unwrap();
        let loaded = load(&world, "a", again).await;
        assert!(!has_grant(&loaded), "as {again}");
    }
}

#[tokio::test]
async fn an_agent_that_goes_on_has_what_it_was_granted() {
    let (world, _) = granted().await;
    let world = world.restarted(|_| {});
    assert!(has_grant(&load(&world, "a", "a").await));
}

/// A copy outlives those who hold its source down.
#[tokio::test]
async fn a_copy_holds_no_more_than_its_ancestors_when_it_was_made() {
    let world = World::new();
    let parent = world.make(trusted("p")).await;
    world.make(child("k", "p")).await;
    let without = |tool: &str| PermissionChange {
        disable_tools: vec![tool.into()],
        ..PermissionChange::default()
    };
    world.engine.permits.set(&ADMIN, &parent, without("echo")).await.unwrap();
    let sessions = &world.engine.sessions;
    sessions.copy(&ADMIN, &id("k"), &id("cloned")).await.unwrap();
    world.engine.permits.set(&ADMIN, &parent, without("exec")).await.unwrap();
    let beneath = load(&world, "cloned", "beneath").await;
    sessions.save(&ADMIN, &id("k"), &id("saved")).await.unwrap();
    let disabled = |agent: &Agent| {
        let permissions = &agent.look().settings.permissions;
        ["echo", "exec"].map(|tool| permissions.disabled_tools.contains(tool))
    };
    assert_eq!(disabled(&beneath), [true, true]);
    world.engine.agents.destroy(&ADMIN, &id("p")).await.unwrap();
    assert_eq!(disabled(&load(&world, "cloned", "cloned").await), [true, false]);
    assert_eq!(disabled(&load(&world, "saved", "saved").await), [true, true]);
}

#[tokio::test]
async fn agents_mark_themselves_and_stop_nobody() {
    let world = World::new();
    world.make(trusted("p")).await;
    world.make(child("k", "p")).await;
    let engine = &world.engine;
    for (who, whom) in [("k", "k"), ("p", "k"), ("p", "p")] {
        engine.agents.shut_down(&Requester::Agent(id(who)), &id(whom)).await.unwrap();
    }
    assert!(world.cards().await.iter().all(|card| card.record.progress.should_shutdown));
    assert!(!engine.agents.stop_requested().is_cancelled());
    assert!(engine.agents.request_stop(&Requester::Agent(id("p"))).is_err());
    engine.agents.shut_down(&ADMIN, &id("k")).await.unwrap();
    assert!(engine.agents.stop_requested().is_cancelled());
}

/// So its first call finds in the provider's cache what its source has left there.
#[tokio::test]
async fn a_copy_shares_the_prefix_of_its_source_and_its_place_in_a_cache() {
    let world = World::new();
    let agent = world.agent("a").await;
    for word in ["one", "two"] {
        world.say(&agent, word).await.unwrap();
    }
    world.engine.sessions.copy(&ADMIN, &id("a"), &id("copy")).await.unwrap();
    let copy = load(&world, "copy", "b").await;
    world.say(&copy, "three").await.unwrap();
    world.say(&agent, "four").await.unwrap();
    let other = world.agent("other").await;
    world.say(&other, "one").await.unwrap();
    let calls = world.model.calls();
    let [_, source, copied, went_on, other] = &calls[..] else { panic!("{}", calls.len()) };
    for later in [copied, went_on] {
        assert_eq!(later.asker.conversation, source.asker.conversation);
        assert_eq!((&later.system, &later.tools), (&source.system, &source.tools));
        let mut begins = source.messages.iter().zip(later.messages.iter());
        assert!(begins.all(|(a, b)| a.role == b.role && a.parts == b.parts));
        assert_eq!(later.messages.len(), source.messages.len() + 2);
    }
    assert_eq!(source.asker.conversation.len(), 32);
    assert_ne!(other.asker.conversation, source.asker.conversation);
}
