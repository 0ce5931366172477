//! A client: asks for one thing after the other, remembers what was answered, and checks what is there against it.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use fastrand::Rng;
use futures_util::future::try_join_all;
use serde_json::Value;
use tokio::sync::watch;

use crate::observe;
use crate::rpc::{Answer, Caller, Gone, Refusal};
use crate::turn::{Turn, continuation};
use crate::world::{
    NARROW, Op, Session, Setting, View, WIDE, World, differences, legal, looks_like,
};

/// Names that one client uses, again and again: what is made under the name of something that is gone must not inherit
/// anything.
const NAMES: usize = 6;

/// A conversation that is longer is ended, so that a long run stays as quick as it began.
const LINES_MAX: usize = 60;

/// Each client has names of its own, so that the order of what it was answered is the order of what happened.
pub struct Client {
    number: usize,
    prefix: String,
    rng: Rng,
    work: PathBuf,
    /// What its sessions may look like: one world, or two that cannot be told apart yet.
    worlds: Vec<World>,
    /// What was asked for and not answered.
    pending: Option<Op>,
    /// Whether it let go of that call: a turn may have been cancelled by it.
    let_go: bool,
    /// Every world it went through with what was asked for next, where a run wants to know.
    trail: Option<Vec<(World, Op)>>,
    /// How many in a hundred calls it does not wait for.
    drops: u8,
    made: u64,
    pub acknowledged: u64,
    pub dropped: u64,
    pub refused: u64,
    /// Turns that were found half done.
    pub cut: u64,
}

/// What tells clients that it is enough, and counts what they were answered.
#[derive(Clone)]
pub struct Clock {
    pub stop: Arc<AtomicBool>,
    pub acknowledged: watch::Sender<u64>,
}

impl Clock {
    pub fn new() -> Self {
        Self { stop: Arc::default(), acknowledged: watch::Sender::new(0) }
    }

    /// Lets `running` clients work until so many answers have arrived, does `then`, and lets them stop.
    pub async fn drive<T>(
        &self,
        enough: u64,
        running: impl Future<Output = anyhow::Result<T>>,
        then: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<T> {
        let mut running = pin!(running);
        let mut acknowledged = self.acknowledged.subscribe();
        let reached = acknowledged.wait_for(|count| *count >= enough);
        let ended = tokio::select! {
            // All are done before it was enough: the server is gone, or one of them found a defect.
            ended = &mut running => Some(ended),
            _ = tokio::time::timeout(ROUND_MAX, reached) => None,
        };
        then.await?;
        self.stop.store(true, Ordering::Relaxed);
        match ended {
            Some(ended) => ended,
            None => running.await,
        }
    }
}

/// A round takes well under a second; this is for a machine that is busy with something else.
const ROUND_MAX: Duration = Duration::from_secs(60);

/// Lets the clients do `work` side by side. Of several that fail the first is told.
pub async fn together(
    mut clients: Vec<Client>,
    work: impl AsyncFn(&mut Client) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Client>> {
    try_join_all(clients.iter_mut().map(async |client| work(client).await)).await?;
    Ok(clients)
}

impl Client {
    pub fn new(number: usize, seed: u64, work: PathBuf) -> Self {
        Self {
            number,
            prefix: format!("c{number}-"),
            rng: Rng::with_seed(seed.wrapping_mul(1_000).wrapping_add(number as u64)),
            work,
            worlds: vec![World::new()],
            pending: None,
            let_go: false,
            trail: None,
            drops: 0,
            made: 0,
            acknowledged: 0,
            dropped: 0,
            refused: 0,
            cut: 0,
        }
    }

    /// Also remembers every world it goes through.
    pub fn with_trail(mut self) -> Self {
        self.trail = Some(Vec::new());
        self
    }

    /// Does not wait for the answer of so many in a hundred calls.
    pub fn with_drops(mut self, percent: u8) -> Self {
        self.drops = percent;
        self
    }

    /// Every other client, so that two kinds of callers can be told apart.
    pub fn is_odd(&self) -> bool {
        self.number % 2 == 1
    }

    pub fn world(&self) -> &World {
        &self.worlds[0]
    }

    /// The agents whose last turn was cut off.
    pub fn unfinished(&self) -> Vec<String> {
        let cut =
            self.world().iter().filter(|(_, it)| !it.saved && !continuation(&it.lines).is_empty());
        cut.map(|(name, _)| name.clone()).collect()
    }

    /// Asks until the server is gone or it is told to stop. A refusal because of the store is looked into at once and
    /// then passed over, any other is a defect.
    pub async fn run(&mut self, caller: &mut Caller, clock: &Clock) -> anyhow::Result<()> {
        while self.run_until_refused(caller, clock).await?.is_some() {
            if !self.check_if_there(caller).await? {
                break;
            }
        }
        Ok(())
    }

    /// Checks what is there, unless the server goes away meanwhile.
    async fn check_if_there(&mut self, caller: &mut Caller) -> anyhow::Result<bool> {
        match self.check(caller).await {
            Ok(()) => Ok(true),
            Err(error) if error.is::<Gone>() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The same until the store refuses something.
    pub async fn run_until_refused(
        &mut self,
        caller: &mut Caller,
        clock: &Clock,
    ) -> anyhow::Result<Option<Refusal>> {
        while !clock.stop.load(Ordering::Relaxed) {
            caller.first = self.rng.usize(..caller.servers());
            let op = self.next();
            match self.ask(caller, op).await? {
                Asked::Done => clock.acknowledged.send_modify(|count| *count += 1),
                Asked::Refused(refusal) => return Ok(Some(refusal)),
                Asked::Dropped if self.check_if_there(caller).await? => {}
                Asked::Dropped | Asked::Gone => break,
            }
        }
        Ok(None)
    }

    /// Asks for one thing.
    pub async fn ask(&mut self, caller: &mut Caller, op: Op) -> anyhow::Result<Asked> {
        if let Some(trail) = &mut self.trail {
            trail.push((self.worlds[0].clone(), op.clone()));
        }
        let (method, params) = op.call(&self.work);
        self.pending = Some(op.clone());
        self.let_go = self.rng.u8(..100) < self.drops;
        let answer = match self.let_go {
            true => caller.call_and_drop(method, &params, &mut self.rng).await?,
            false => caller.call(method, &params).await,
        };
        match answer {
            Answer::Done(result) => {
                check_answer(&op, &result)?;
                self.acknowledged += 1;
                // Which of several ends it came to is seen when it is looked for.
                if op.ends(&self.worlds[0]).len() == 1 {
                    self.done(&op, &result);
                }
                Ok(Asked::Done)
            }
            Answer::Refused(refusal) => {
                ensure!(
                    refusal.is_of_the_store(),
                    "{op:?} was refused: {refusal:?}; of its sessions these are saved: {:?}",
                    self.world().iter().map(|(name, it)| (name, it.saved)).collect::<Vec<_>>()
                );
                self.refused += 1;
                // Whole or not at all; only a turn may have got somewhere.
                if op.turn_of().is_none() {
                    self.pending = None;
                }
                Ok(Asked::Refused(refusal))
            }
            Answer::Unsent => {
                self.dropped += 1;
                self.pending = None;
                Ok(Asked::Dropped)
            }
            Answer::Dropped => {
                self.dropped += 1;
                Ok(Asked::Dropped)
            }
            Answer::Gone => Ok(Asked::Gone),
        }
    }

    fn done(&mut self, op: &Op, result: &Value) {
        self.pending = None;
        // There may have been too little to summarise.
        if result["compacted"] != false {
            self.worlds = self.worlds.iter().map(|world| op.apply(world)).collect();
            self.worlds.dedup_by(|a, b| alike(a, b));
        }
    }

    /// Checks what is there, and goes on from it.
    pub async fn check(&mut self, caller: &mut Caller) -> anyhow::Result<()> {
        let seen = observe::view(caller, &self.prefix).await?;
        self.settle(&seen)
    }

    fn settle(&mut self, seen: &View) -> anyhow::Result<()> {
        let pending = self.pending.take();
        let mut worlds: Vec<World> = match &pending {
            Some(op) => {
                self.worlds.iter().flat_map(|world| legal(world, op, seen, self.let_go)).collect()
            }
            None => self.worlds.iter().filter(|world| looks_like(world, seen)).cloned().collect(),
        };
        worlds.dedup_by(|a, b| alike(a, b));
        if worlds.is_empty() {
            bail!(
                "{}: what is there is not what was answered, with {pending:?} not answered: {:#?}",
                self.prefix,
                differences(&self.worlds[0], seen)
            );
        }
        if let Some(Op::Send { name, turn }) = &pending {
            let lines = seen.get(name).map_or(&[][..], |seen| &seen.lines);
            observe::check_intents(&turn.tokens(), lines, &self.work)?;
        }
        let half = pending.as_ref().and_then(Op::turn_of).and_then(|name| worlds[0].get(name));
        self.cut += u64::from(half.is_some_and(|session| !continuation(&session.lines).is_empty()));
        self.worlds = worlds;
        observe::check_effects(&self.worlds[0], &self.work)
    }

    /// Checks that what is there was the whole truth at some moment: for a disk that forgot what came after.
    pub async fn check_past(&mut self, caller: &mut Caller) -> anyhow::Result<()> {
        let seen = observe::view(caller, &self.prefix).await?;
        let trail = self.trail.as_deref().unwrap_or_default();
        let known = trail.iter().any(|(world, op)| !legal(world, op, &seen, false).is_empty());
        ensure!(
            known || looks_like(&self.worlds[0], &seen),
            "{}: what is there was never the case: {seen:#?}",
            self.prefix
        );
        Ok(())
    }

    /// What to ask for next: something that must succeed.
    fn next(&mut self) -> Op {
        // Until it is known whether a name was kept, nothing else can be foreseen.
        if self.worlds.len() > 1 {
            let differs = |name: &&String| self.worlds[0][*name].kept != self.worlds[1][*name].kept;
            if let Some(name) = self.worlds[0].keys().find(differs) {
                return Op::Keep { name: name.clone() };
            }
        }
        let world = self.worlds[0].clone();
        let names: Vec<_> = (0..NAMES).map(|n| format!("{}{n}", self.prefix)).collect();
        let (used, free): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| world.contains_key(name));
        self.made += 1;
        let uid = self.made;
        let free = match free.is_empty() {
            true => None,
            false => Some(free[self.rng.usize(..free.len())].clone()),
        };
        if let Some(name) = &free
            && (used.is_empty() || self.rng.u8(..100) < 15)
        {
            return Op::Create { name: name.clone(), prompt: format!("prompt {uid}"), uid };
        }
        let name = used[self.rng.usize(..used.len())].clone();
        let session = &world[&name];
        if session.lines.len() > LINES_MAX {
            return Op::Delete { name };
        }
        let dice = self.rng.u8(..100);
        let whole = continuation(&session.lines).is_empty();
        // A copy of a turn that was cut off could go on beside it, and do the rest of its work twice.
        let to = free.filter(|_| whole);
        match (session.saved, to, dice) {
            (true, Some(to), 0..20) => Op::Load { from: name, to, uid },
            (true, Some(to), 20..35) => Op::Clone { from: name, to, uid },
            (true, Some(to), 35..50) => Op::Rename { from: name, to },
            (true, _, 50..75) => Op::Delete { name },
            (true, ..) => Op::Load { from: name.clone(), to: name, uid },
            (false, _, 0..50) if !whole => Op::Resume { name },
            (false, Some(to), 0..6) => Op::Rename { from: name, to },
            (false, Some(to), 6..12) => Op::Clone { from: name, to, uid },
            (false, to, 12..22) if whole => {
                // Again over the copy that was saved last, or under a new name.
                let is_copy = |it: &&String| world[*it].copy_of == Some(session.uid);
                let old = used.iter().filter(|it| world[*it].saved).find(is_copy);
                match old.cloned().or(to) {
                    Some(to) => Op::SaveAs { from: name, to, uid },
                    None => Op::Keep { name },
                }
            }
            (false, _, 22..27) => Op::Keep { name },
            (false, _, 27..35) => Op::Destroy { name },
            (false, _, 35..38) => Op::Delete { name },
            (false, _, 38..45) => Op::Set { name, setting: self.setting(uid) },
            (false, _, 45..49) if whole => Op::Compact { name },
            (false, _, 50..56) => Op::Remember { name, memory: format!("memory {uid}") },
            (false, ..) => Op::Send { name, turn: self.turn(uid) },
        }
    }

    fn setting(&mut self, uid: u64) -> Setting {
        match self.rng.u8(..3) {
            0 => Setting::Prompt(format!("prompt {uid}")),
            1 => Setting::Model(if self.rng.bool() { NARROW } else { WIDE }),
            _ => Setting::LacksTool(self.rng.bool()),
        }
    }

    /// Every second turn only talks, the others work.
    pub fn turn(&mut self, uid: u64) -> Turn {
        let steps = if self.rng.bool() { 0 } else { self.rng.usize(1..4) };
        Turn { id: format!("{}{uid}", self.prefix), steps, width: self.rng.usize(1..4) }
    }
}

/// What became of what was asked for.
#[derive(Debug)]
pub enum Asked {
    Done,
    Refused(Refusal),
    /// It was not waited for. Whatever it came to, it has come to it.
    Dropped,
    Gone,
}

/// Whether two worlds differ at most in which of two equal copies was saved last: no copy is ever saved of a copy, so
/// that is never seen.
fn alike(a: &World, b: &World) -> bool {
    let same = |(name, session): (&String, &Session)| {
        b.get(name).is_some_and(|other| *session == Session { uid: session.uid, ..other.clone() })
    };
    a.len() == b.len() && a.iter().all(same)
}

fn check_answer(op: &Op, result: &Value) -> anyhow::Result<()> {
    let fine = match op {
        Op::Send { turn, .. } => result["content"] == turn.answer(),
        Op::Resume { .. } => result["content"].as_str().is_some_and(|it| it.starts_with("done ")),
        Op::Destroy { .. } => result["success"] == true,
        Op::Delete { .. } => result["deleted"] == true,
        Op::Compact { .. } => {
            result["compacted"] == true || result["reason"] == "nothing_to_compact"
        }
        _ => true,
    };
    ensure!(fine, "{op:?} was answered with {result}");
    Ok(())
}
