//! What a tree of agents may take: just under each bound, and just over it.

use nexus_core::account::Exceeded;
use nexus_core::authority::Action;
use nexus_core::authority::AskedBy;
use nexus_core::lifecycle::{AccessError, AgentSpec, CreateError, ListQuery};
use nexus_core::rights::PermissionChange;
use nexus_core::session::{LoadSpec, SessionError};
use nexus_core::settings::SettingsError;
use nexus_core::turn::{TurnError, TurnInput};
use nexus_core::{Agent, Hand, Requester};
use serde_json::json;

use crate::fakes::{ADMIN, Script, World, child, history, id, named, trusted, until};

fn own(name: &str) -> Requester {
    Requester::Agent(id(name))
}

/// Whether the agent `who` could make one of this name beneath itself; if not, the bound.
async fn makes(world: &World, who: &str, name: &str) -> Result<Agent, Exceeded> {
    match world.engine.agents.create(&own(who), named(name)).await {
        Ok(agent) => Ok(agent),
        Err(CreateError::Access(AccessError::Exceeded(exceeded))) => Err(exceeded),
        Err(error) => panic!("{error}"),
    }
}

fn children(parent: &str, max: usize) -> Option<Exceeded> {
    Some(Exceeded::Children { parent: id(parent), max })
}

fn agents(root: &str, max: usize) -> Option<Exceeded> {
    Some(Exceeded::Agents { root: id(root), max })
}

#[tokio::test]
async fn an_agent_makes_so_many_children_and_no_more() {
    let world = World::with(|settings| settings.tree.children_max = 3);
    world.make(trusted("p")).await;
    for name in ["a", ".b", "c"] {
        makes(&world, "p", name).await.unwrap();
    }
    let refused = makes(&world, "p", ".d").await.err();
    assert_eq!(refused, children("p", 3));
    assert!(refused.unwrap().to_string().contains("server.max_children"));
    assert_eq!(makes(&world, "p", "d").await.err(), children("p", 3));
    // The administrator is not bound, and what it made counts.
    world.make(child("e", "p")).await;
    world.engine.agents.destroy(&ADMIN, &id("a")).await.unwrap();
    assert_eq!(makes(&world, "p", "d").await.err(), children("p", 3));
    world.engine.agents.destroy(&own("p"), &id(".b")).await.unwrap();
    makes(&world, "p", "d").await.unwrap();
    // Those that are stored count after a restart too, and so does what a tool makes.
    let world = world.restarted(|settings| settings.tree.children_max = 3);
    assert_eq!(makes(&world, "p", "f").await.err(), children("p", 3));
    let parent = world.find("p").await.unwrap();
    world.model.call_echo(json!({"make": "f"}));
    world.say(&parent, "go").await.unwrap();
    assert!(history(&parent)[2].contains("server.max_children"), "{:?}", history(&parent));
}

#[tokio::test]
async fn a_tree_has_so_many_agents_and_saved_sessions_and_no_more() {
    let world = World::with(|settings| settings.tree.agents_max = 5);
    let sessions = &world.engine.sessions;
    world.make(trusted("p")).await;
    makes(&world, "p", "a").await.unwrap();
    makes(&world, "p", ".b").await.unwrap();
    // Beneath it; and of itself, which nobody stands above.
    sessions.copy(&own("p"), &id("a"), &id("a2")).await.unwrap();
    sessions.save(&own("p"), &id("p"), &id("p2")).await.unwrap();
    assert_eq!(makes(&world, "p", "c").await.err(), agents("p", 5));
    let full = |refused: SessionError| match refused {
        SessionError::Access(AccessError::Exceeded(exceeded)) => Some(exceeded),
        error => panic!("{error}"),
    };
    let copied = sessions.copy(&own("p"), &id("a"), &id("x")).await;
    assert_eq!(full(copied.unwrap_err()), agents("p", 5));
    let saved = sessions.save(&own("p"), &id("p"), &id("x")).await;
    assert_eq!(full(saved.unwrap_err()), agents("p", 5));
    let as_x = LoadSpec {
        session: id("a2"),
        agent: Some(id("x")),
        preset: None,
        model: None,
        hand: Hand::Program,
    };
    let loaded = sessions.load(&own("p"), as_x.clone()).await;
    assert_eq!(full(loaded.err().unwrap()), agents("p", 5));
    // A new name is no way around it.
    sessions.rename(&own("p"), &id("p"), &id("q")).await.unwrap();
    assert_eq!(makes(&world, "q", "c").await.err(), agents("q", 5));
    sessions.copy(&ADMIN, &id("a"), &id("theirs")).await.unwrap();
    for name in ["a2", "theirs"] {
        assert!(sessions.delete(&own("q"), &id(name)).await.unwrap());
    }
    sessions.copy(&own("q"), &id("a"), &id("a2")).await.unwrap();
    assert_eq!(makes(&world, "q", "c").await.err(), agents("q", 5));
    world.engine.agents.destroy(&own("q"), &id(".b")).await.unwrap();
    sessions.load(&own("q"), as_x).await.unwrap();
    assert_eq!(makes(&world, "q", "c").await.err(), agents("q", 5));
    // Another tree has room of its own.
    world.make(trusted("r")).await;
    makes(&world, "r", "c").await.unwrap();
}

#[tokio::test]
async fn many_at_once_make_as_many_as_there_is_room_for() {
    let world = World::with(|settings| settings.tree.children_max = 5);
    world.make(trusted("p")).await;
    let tries = (0..20).map(|n| {
        let world = world.clone();
        let name = if n % 2 == 0 { format!("k{n}") } else { format!(".k{n}") };
        tokio::spawn(async move { makes(&world, "p", &name).await.is_ok() })
    });
    let made = futures_util::future::join_all(tries).await;
    assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 5);
}

fn asked_by_agent(content: &str) -> TurnInput {
    TurnInput { content: content.into(), asked_by: AskedBy::Agent, ..TurnInput::default() }
}

#[tokio::test]
async fn what_agents_ask_for_leaves_room_for_other_trees_and_for_the_administrator() {
    let world = World::with(|settings| {
        (settings.max_concurrent, settings.max_queued) = (4, 8);
        settings.tree.turns_max = 5;
    });
    world.make(trusted("p")).await;
    let (one, two) = (world.make(child("a", "p")).await, world.make(child("b", "p")).await);
    let other = world.make(trusted("r")).await;
    world.model.script((0..3).map(|_| Script::Hang("")));
    let turns = &world.engine.turns;
    let mut held = Vec::new();
    for agent in [&one, &two, &one, &two, &one] {
        held.push(turns.start(agent, asked_by_agent("x")).await.unwrap());
    }
    for agent in [&one, &two] {
        let refused = turns.start(agent, asked_by_agent("x")).await.err();
        let bound = Exceeded::Turns { max: 5 };
        assert!(matches!(&refused, Some(TurnError::Exceeded(it)) if *it == bound), "{refused:?}");
        let compacted = turns.compact(agent, true, AskedBy::Agent).await;
        assert!(matches!(compacted, Err(TurnError::Exceeded(_))), "{compacted:?}");
    }
    world.model.wait_for_calls(2).await;
    held.push(turns.start(&other, asked_by_agent("x")).await.unwrap());
    world.model.wait_for_calls(3).await;
    // Three of the four places to run hang, which is all that agents get; the last is there for the administrator.
    let fourth = world.make(named("s")).await;
    let waits = turns.start(&fourth, asked_by_agent("x")).await.unwrap();
    let third = world.make(named("t")).await;
    assert_eq!(world.say(&third, "hi").await.unwrap().content, "ok");
    assert!(fourth.snapshot().conversation.is_empty(), "it waits");
    for turn in held.iter().chain([&waits]) {
        turn.cancel.cancel();
    }
    for turn in held.into_iter().chain([waits]) {
        assert!(turn.wait(None).await.unwrap().cancelled);
    }
    turns.start(&one, asked_by_agent("x")).await.unwrap().wait(None).await.unwrap();
}

/// Also where all of it is asked of one agent.
#[tokio::test]
async fn what_agents_ask_of_one_agent_leaves_room_in_its_line() {
    let world = World::with(|settings| {
        settings.max_queued = 1_000;
        settings.tree.turns_max = 1_000;
    });
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("")]);
    let turns = &world.engine.turns;
    let mut asked = vec![turns.start(&agent, asked_by_agent("x")).await.unwrap()];
    world.model.wait_for_calls(1).await;
    let refused = loop {
        match turns.start(&agent, asked_by_agent("x")).await {
            Ok(turn) => asked.push(turn),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, TurnError::Overloaded), "{refused:?}");
    assert_eq!(asked.len(), 225);
    for _ in 0..32 {
        asked.push(world.start(&agent, "x").await.unwrap());
    }
    assert!(matches!(world.start(&agent, "x").await, Err(TurnError::Overloaded)));
    agent.cancel_all();
    for turn in asked {
        assert!(turn.wait(None).await.unwrap().cancelled);
    }
}

#[tokio::test]
async fn the_conversations_of_a_tree_take_so_much_memory_and_no_more() {
    const MAX: usize = 100_000;
    let world = World::with(|settings| {
        settings.tree.memory_bytes_max = MAX;
        settings.compaction.enabled = false;
    });
    world.make(trusted("p")).await;
    let kid = world.make(child(".k", "p")).await;
    let other = world.make(child(".l", "p")).await;
    // Nobody answers, so the model is not shown them again; but they are there.
    let long = "x".repeat(300);
    let refused = loop {
        world.model.script([Script::Fail]);
        match world.say(&kid, &long).await {
            Err(TurnError::Provider(_)) => {}
            ended => break ended,
        }
    };
    let bound = Exceeded::Memory { max: MAX };
    assert!(matches!(&refused, Err(TurnError::Exceeded(it)) if *it == bound), "{refused:?}");
    let taken = kid.account().memory_bytes();
    assert!((MAX..MAX + 1_000).contains(&taken), "not long after the bound: {taken}");
    assert!(kid.look().conversation.memory_bytes() > MAX - 10_000);
    let refused = world.say(&other, "hi").await;
    assert!(matches!(refused, Err(TurnError::Exceeded(_))), "the same tree: {refused:?}");
    let stranger = world.agent("stranger").await;
    let failed = world.say(&stranger, "hi").await;
    assert!(matches!(failed, Err(TurnError::Provider(_))), "as the model was told: {failed:?}");
    world.engine.agents.destroy(&ADMIN, &id(".k")).await.unwrap();
    until(|| kid.account().memory_bytes() < MAX).await;
    assert!(world.say(&other, "hi").await.is_ok());
}

#[tokio::test]
async fn what_callers_write_into_settings_counts_too() {
    let world = World::with(|settings| settings.tree.memory_bytes_max = 100_000);
    let parent = world.make(trusted("p")).await;
    let tuning = &world.engine.tuning;
    tuning.set_system_prompt(&parent, "x".repeat(90_000)).await.unwrap();
    makes(&world, "p", ".a").await.unwrap();
    tuning.set_system_prompt(&parent, "x".repeat(99_999)).await.unwrap();
    let refused = tuning.set_system_prompt(&parent, "x".repeat(100_001)).await;
    assert!(matches!(refused, Err(SettingsError::Exceeded(_))), "{refused:?}");
    assert_eq!(makes(&world, "p", ".b").await.err(), Some(Exceeded::Memory { max: 100_000 }));
    tuning.set_system_prompt(&parent, "short".into()).await.unwrap();
    makes(&world, "p", ".b").await.unwrap();
}

/// What waits to be said is in memory before it is anywhere else.
#[tokio::test]
async fn what_waits_to_be_said_counts_too() {
    let world = World::with(|settings| settings.tree.memory_bytes_max = 100_000);
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("")]);
    let running = world.start(&agent, "hi").await.unwrap();
    world.model.wait_for_calls(1).await;
    let waiting = world.start(&agent, &"x".repeat(100_000)).await.unwrap();
    let refused = world.start(&agent, "hi").await.err();
    assert!(matches!(refused, Some(TurnError::Exceeded(_))), "{refused:?}");
    waiting.cancel.cancel();
    waiting.wait(None).await.unwrap();
    assert!(world.start(&agent, "hi").await.is_ok());
    running.cancel.cancel();
}

/// A turn that goes on for ever fills memory by itself.
#[tokio::test]
async fn a_turn_ends_at_the_step_with_which_its_tree_is_full() {
    let world = World::with(|settings| {
        settings.tree.memory_bytes_max = 4_000;
        settings.max_tool_iterations = 100;
    });
    let agent = world.agent(".a").await;
    world.model.script((0..100).map(|_| Script::Call(vec![("echo", json!({"text": "x"}))])));
    let ended = world.say(&agent, "go").await;
    assert!(matches!(ended, Err(TurnError::Exceeded(Exceeded::Memory { .. }))), "{ended:?}");
    assert!(world.model.calls().len() < 20);
    assert!(agent.look().interrupted().is_some(), "it can be resumed when there is room");
}

#[tokio::test]
async fn an_agent_brings_nothing_into_memory_when_its_tree_is_full() {
    let world = World::with(|settings| settings.tree.memory_bytes_max = 1_500);
    world.make(trusted("p")).await;
    let kid = world.make(child("k", "p")).await;
    world.say(&kid, "hi").await.unwrap();
    let world = world.restarted(|settings| settings.tree.memory_bytes_max = 1_500);
    let parent = world.find("p").await.unwrap();
    while world.say(&parent, "hi").await.is_ok() {}
    let read = async |who: Requester| {
        world.engine.agents.find(&who, &id("k"), Action::Read).await.map(drop)
    };
    let refused = read(own("p")).await;
    assert!(matches!(refused, Err(AccessError::Exceeded(_))), "{refused:?}");
    read(ADMIN).await.unwrap();
    read(own("p")).await.unwrap();
}

#[tokio::test]
async fn calls_beyond_the_bound_of_a_step_are_refused_and_the_turn_goes_on() {
    let world = World::with(|settings| settings.max_calls_per_step = 3);
    let agent = world.agent("a").await;
    let calls = |count: usize| {
        let call = |n: usize| ("echo", json!({"text": format!("r{n}")}));
        Script::Call((0..count).map(call).collect())
    };
    let refusal = "Tool: Refused: one step may make at most 3 tool calls (max_calls_per_step), \
                   and this call came after them: make it in the next step.";
    world.model.script([calls(3), calls(5)]);
    assert_eq!(world.say(&agent, "go").await.unwrap().content, "ok");
    let shown = world.model.last_context();
    let results: Vec<_> = shown.iter().filter(|line| line.starts_with("Tool")).collect();
    let [r0, r1, r2] = ["Tool: r0", "Tool: r1", "Tool: r2"];
    assert_eq!(results, [r0, r1, r2, r0, r1, r2, refusal, refusal]);
    assert!(agent.look().interrupted().is_none());
}

#[tokio::test]
async fn an_agent_has_so_many_places_and_tools_and_no_more() {
    let world = World::new();
    let places = |count: usize| AgentSpec {
        write_paths: (0..count).map(|n| format!("/usr/{n}")).collect(),
        ..AgentSpec::default()
    };
    let tools = |count: usize, longest: &str| {
        let names = (1..count).map(|n| n.to_string()).chain([longest.to_string()]);
        names.collect::<Vec<_>>()
    };
    let without = |disable_tools| AgentSpec { disable_tools, ..AgentSpec::default() };
    let (long, longer) = ("x".repeat(128), "x".repeat(129));
    for (spec, fits) in [
        (places(1_000), true),
        (places(1_001), false),
        (without(tools(1_000, &long)), true),
        (without(tools(1_001, "x")), false),
        (without(tools(1, &longer)), false),
    ] {
        assert_eq!(world.engine.agents.create(&ADMIN, spec).await.is_ok(), fits);
    }
    let agent = world.agent("a").await;
    let disable = async |disable_tools| {
        let change = PermissionChange { disable_tools, ..PermissionChange::default() };
        world.engine.permits.set(&ADMIN, &agent, change).await.is_ok()
    };
    assert!(disable(tools(999, "x")).await);
    assert!(!disable(tools(2, "y")).await);
    assert!(disable(tools(1, "y")).await);
    assert!(!disable(tools(1, "z")).await, "they add up");
}

/// One that is listed costs its page and not all there are.
#[tokio::test]
async fn temporary_agents_come_by_page_in_the_order_in_which_they_were_made() {
    let world = World::new();
    world.make(trusted("p")).await;
    let mut made = Vec::new();
    for n in 0..25 {
        let parent = (n % 2 == 0).then(|| id("p"));
        let spec = AgentSpec { name: Some(".".into()), parent, ..AgentSpec::default() };
        made.push(world.make(spec).await.id());
    }
    for requester in [ADMIN, own("p")] {
        let mut listed = Vec::new();
        let mut after = None;
        loop {
            let query = ListQuery { after: after.clone(), limit: Some(4) };
            let page = world.engine.agents.list(&requester, query).await.unwrap();
            listed.extend(page.cards.iter().map(|card| card.record.id.clone()));
            after = listed.last().cloned();
            if !page.more {
                break;
            }
        }
        let beneath = requester != ADMIN;
        let seen = made.iter().enumerate().filter(|(n, _)| !beneath || n % 2 == 0);
        let expected: Vec<_> = seen.map(|(_, id)| id.clone()).collect();
        assert_eq!(listed[1..], expected, "{requester:?}");
    }
    let card = &world.cards().await[0];
    assert_eq!((card.record.id.clone(), card.child_count), (id("p"), 13));
    world.engine.agents.destroy(&ADMIN, &made[4]).await.unwrap();
    world.engine.sessions.save(&ADMIN, &made[6], &id("kept")).await.unwrap();
    let card = &world.cards().await[0];
    assert_eq!((card.record.id.clone(), card.child_count), (id("p"), 12));
    let behind = ListQuery { after: Some(made[4].clone()), limit: Some(4) };
    let gone = world.engine.agents.list(&ADMIN, behind).await.err();
    assert!(matches!(gone, Some(AccessError::Unknown(_))), "{gone:?}");
}

/// So many as the administrator may make. Whoever looked at all of them for each of them would not come to an end.
#[tokio::test]
async fn ten_thousand_agents_are_made_listed_and_ended() {
    const AGENTS: usize = 10_000;
    let world = World::new();
    world.make(trusted("p")).await;
    for _ in 0..AGENTS {
        world.make(child(".", "p")).await;
    }
    for requester in [ADMIN, own("p")] {
        let (mut listed, mut after) = (0, None);
        loop {
            let query = ListQuery { after: after.take(), limit: Some(1_000) };
            let page = world.engine.agents.list(&requester, query).await.unwrap();
            listed += page.cards.len();
            after = page.cards.last().map(|card| card.record.id.clone());
            if !page.more {
                break;
            }
        }
        assert_eq!(listed, AGENTS + 1);
        let sessions = world.engine.sessions.list(&requester, 9_000, 1_000, true).await.unwrap();
        assert_eq!((sessions.total, sessions.sessions.len()), (AGENTS as u64 + 1, 1_000));
    }
    assert_eq!(world.cards().await[0].child_count, AGENTS as u64);
    assert!(makes(&world, "p", ".x").await.is_err());
    world.engine.sessions.rename(&ADMIN, &id("p"), &id("q")).await.unwrap();
    let gone = world.engine.agents.destroy(&ADMIN, &id("q")).await.unwrap();
    assert_eq!(gone.len(), AGENTS + 1);
    assert!(world.cards().await.is_empty());
}
