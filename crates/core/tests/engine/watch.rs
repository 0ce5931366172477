//! Watching: whoever begins whenever sees everything once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nexus_core::lifecycle::AgentSpec;
use nexus_core::observe::TurnEnd;
use nexus_core::watch::{Event, Happening, Interest, Over, Owner, TooMany, Watch};
use nexus_core::watching::{Outset, WatchError, WatchSpec};
use nexus_core::{AgentId, Requester, TurnId};
use serde_json::json;

use crate::fakes::{ADMIN, Script, World, id, named, until};

fn spec(agents: Option<&[&str]>) -> WatchSpec {
    WatchSpec {
        agents: agents.map(|names| names.iter().map(|name| id(name)).collect()),
        descendants: false,
        interest: Interest { deltas: true, ..Interest::default() },
    }
}

async fn open(world: &World, spec: WatchSpec) -> (Watch, Outset) {
    let caller = Owner { requester: ADMIN, connection: 0 };
    world.engine.watching.open(caller, spec).await.unwrap()
}

/// What one who watches has put together.
#[derive(Default)]
struct Puzzle {
    /// Messages of each agent, by index.
    next_index: HashMap<AgentId, u64>,
    /// Turns that run or wait.
    turns: HashMap<(AgentId, TurnId), Step>,
    ended: usize,
}

#[derive(Default)]
struct Step {
    running: bool,
    number: u32,
    offset: u64,
    open_calls: usize,
}

impl Puzzle {
    fn new(standing: &Outset) -> Self {
        let mut puzzle = Self::default();
        for agent in &standing.agents {
            let id = &agent.card.record.id;
            puzzle.next_index.insert(id.clone(), agent.card.record.message_count);
            for (card, live) in &agent.turns {
                let step = Step {
                    running: card.running,
                    number: live.step,
                    offset: live.offset,
                    open_calls: live.open_calls.len(),
                };
                puzzle.turns.insert((id.clone(), card.id.clone()), step);
            }
        }
        puzzle
    }

    /// Puts in the next piece, which must fit.
    fn put(&mut self, told: &Happening) {
        let Some(agent) = told.agent.clone() else { return };
        if let Event::Message { index, .. } = &told.event {
            let next = self.next_index.entry(agent).or_default();
            assert_eq!(*index, *next, "a message is missing, or told again");
            *next += 1;
            return;
        }
        let Some(turn) = told.turn.clone() else { return };
        let key = (agent, turn);
        if let Event::TurnQueued { .. } = &told.event {
            assert!(self.turns.insert(key, Step::default()).is_none(), "queued twice");
            return;
        }
        let step = self.turns.get_mut(&key).unwrap_or_else(|| panic!("not known: {told:?}"));
        match &told.event {
            Event::TurnStarted { .. } => assert!(!std::mem::replace(&mut step.running, true)),
            Event::Delta(piece) => {
                if piece.step != step.number {
                    assert!(piece.step > step.number, "{told:?}");
                    (step.number, step.offset) = (piece.step, 0);
                }
                assert_eq!(piece.offset, step.offset, "a gap, or an overlap");
                step.offset += piece.text.chars().count() as u64;
                assert_eq!(piece.end, step.offset);
            }
            Event::ToolCall(_) => step.open_calls += 1,
            Event::ToolResult { .. } => {
                assert!(step.open_calls > 0, "a result of no call");
                step.open_calls -= 1;
            }
            Event::TurnEnded { ended, message_count, .. } => {
                assert!(matches!(ended.end, TurnEnd::Done | TurnEnd::Halted), "{told:?}");
                assert_eq!(step.open_calls, 0);
                assert_eq!(*message_count, self.next_index[&key.0], "all of it was told before");
                self.turns.remove(&key);
                self.ended += 1;
            }
            _ => {}
        }
    }
}

/// Two agents talk, with tools, while others begin to watch in all kinds of moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_begins_in_whatever_moment_sees_everything_once() {
    const TURNS: usize = 60;
    let world = World::new();
    let mut talking = Vec::new();
    for name in ["a", "b"] {
        // One with a window for all of it.
        let spec = AgentSpec { model: Some("sees".into()), ..named(name) };
        let (world, agent) = (world.clone(), world.make(spec).await);
        talking.push(tokio::spawn(async move {
            for turn in 0..TURNS {
                let echo = vec![("echo", json!({"text": "x", "yields": turn % 5}))];
                world.model.script([Script::Spell("zwölf Boxkämpfer"), Script::Call(echo)]);
                world.say(&agent, "go").await.unwrap();
            }
        }));
    }
    let mut watching = Vec::new();
    let opened = Arc::new(AtomicUsize::new(0));
    for number in 0..150_u64 {
        let (world, opened) = (world.clone(), opened.clone());
        watching.push(tokio::spawn(async move {
            for _ in 0..number * 7 {
                tokio::task::yield_now().await;
            }
            let named = ["a"];
            let spec = spec((number % 2 == 0).then_some(&named));
            let requester = Requester::Administrator;
            let caller = Owner { requester, connection: number as usize };
            let (mut watch, standing) = world.engine.watching.open(caller, spec).await.unwrap();
            opened.fetch_add(1, Ordering::Relaxed);
            let mut puzzle = Puzzle::new(&standing);
            let over = loop {
                match watch.next().await {
                    Ok(told) => puzzle.put(&told),
                    Err(over) => break over,
                }
            };
            assert_eq!(over, Over::Stopping);
            assert!(puzzle.turns.is_empty());
            let total: u64 = puzzle.next_index.values().sum();
            (puzzle.next_index.len(), total)
        }));
    }
    for talk in talking {
        talk.await.unwrap();
    }
    let watches = world.engine.watching.watches();
    until(|| opened.load(Ordering::Relaxed) == watching.len()).await;
    watches.close();
    let messages = |name: &'static str| {
        let world = world.clone();
        async move { world.find(name).await.unwrap().look().conversation.len() }
    };
    let (a, both) = (messages("a").await, messages("a").await + messages("b").await);
    for (number, watch) in watching.into_iter().enumerate() {
        let expected = if number % 2 == 0 { (1, a) } else { (2, both) };
        assert_eq!(watch.await.unwrap(), expected, "{number}");
    }
    assert_eq!(watches.count(), 0);
}

#[tokio::test]
async fn where_nobody_watches_nothing_is_kept() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.say(&agent, "x").await.unwrap();
    let (mut watch, standing) = open(&world, spec(None)).await;
    assert_eq!(standing.agents[0].card.record.message_count, 2);
    drop(agent);
    world.engine.agents.destroy(&ADMIN, &id("a")).await.unwrap();
    let told = watch.next().await.unwrap();
    assert!(matches!(told.event, Event::AgentEnded), "{told:?}");
}

#[tokio::test]
async fn callers_have_their_share_of_watches() {
    let world = World::new();
    world.agent("a").await;
    let agent = || Owner { requester: Requester::Agent(id("a")), connection: 1 };
    let of_admin = |connection| Owner { requester: ADMIN, connection };
    let open = async |caller| world.engine.watching.open(caller, spec(None)).await.map(|it| it.0);
    let refused = |opened: Result<Watch, WatchError>| match opened.map(drop) {
        Err(WatchError::TooMany(too_many)) => too_many,
        other => panic!("{other:?}"),
    };
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(open(agent()).await.unwrap());
    }
    // On another connection it is still the same agent.
    let elsewhere = Owner { connection: 2, ..agent() };
    assert_eq!(refused(open(elsewhere).await), TooMany::OfCaller);
    for connection in 0..960 {
        held.push(open(of_admin(connection / 60)).await.unwrap());
    }
    assert_eq!(refused(open(of_admin(99)).await), TooMany::All);
    // Agents leave the last places to the administrator.
    held.truncate(1023);
    held.remove(0);
    assert_eq!(refused(open(agent()).await), TooMany::All);
    assert!(open(of_admin(99)).await.is_ok());
}

#[tokio::test]
async fn a_turn_that_panics_or_never_begins_is_told_to_be_over() {
    let world = World::new();
    let agent = world.agent("a").await;
    let (mut watch, _) = open(&world, spec(None)).await;
    world.model.script([Script::Panic, Script::Hang("so far")]);
    assert!(world.say(&agent, "x").await.is_err());
    let mut ends = Vec::new();
    let next_end = async |watch: &mut Watch| loop {
        let told = watch.next().await.unwrap();
        if let Event::TurnEnded { ended, .. } = &told.event {
            return ended.end;
        }
    };
    ends.push(next_end(&mut watch).await);
    let running = world.start(&agent, "y").await.unwrap();
    let waiting = world.start(&agent, "z").await.unwrap();
    waiting.cancel.cancel();
    ends.push(next_end(&mut watch).await);
    running.cancel.cancel();
    ends.push(next_end(&mut watch).await);
    assert_eq!(ends, [TurnEnd::Failed, TurnEnd::Cancelled, TurnEnd::Cancelled]);
}
