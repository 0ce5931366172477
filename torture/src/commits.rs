//! Death at every commit of a fixed piece of work, before it and after it.

use anyhow::{Context as _, ensure};

use crate::client::{Asked, Client};
use crate::fault::Fault;
use crate::observe;
use crate::place::Place;
use crate::report::Tally;
use crate::turn::Turn;
use crate::world::{NARROW, Op, Setting};

/// More commits than the work has: a server that never dies would otherwise be killed for ever.
const COMMITS_MAX: u64 = 500;

pub async fn run(program: Option<&std::path::Path>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for fault in [Fault::DieBefore, Fault::DieAfter] {
        for at in 1..COMMITS_MAX {
            let place = Place::new(program).await?;
            match run_once(&place, fault(at)).await {
                Ok(once) => {
                    let died = once.kills > 0;
                    tally = tally.and(once);
                    if !died {
                        break;
                    }
                }
                Err(error) => {
                    let kept = place.keep();
                    return Err(error)
                        .with_context(|| format!("{}; see {}", fault(at), kept.display()));
                }
            }
        }
    }
    Ok(tally)
}

async fn run_once(place: &Place, fault: Fault) -> anyhow::Result<Tally> {
    let mut server = place.start("server", fault).await?;
    let mut client = Client::new(0, 0, place.work());
    let mut caller = server.caller();
    let mut work = work().into_iter();
    let died = loop {
        let Some(op) = work.next() else { break false };
        match client.ask(&mut caller, op).await? {
            Asked::Done => {}
            Asked::Gone => break true,
            asked => anyhow::bail!("{asked:?}"),
        }
    };
    if died {
        server.gone().await?;
    } else {
        check_work(&client)?;
        server.kill().await?;
    }
    let server = place.start("server", Fault::None).await?;
    let mut caller = server.caller();
    client.check(&mut caller).await?;
    // Whatever was cut off goes on, and nothing is done twice.
    for name in client.unfinished() {
        client.ask(&mut caller, Op::Resume { name }).await?;
    }
    client.check(&mut caller).await?;
    observe::check_database(&place.home())?;
    server.kill().await?;
    let tally = Tally::of(&[client]).effects(observe::count_effects(&place.work())?);
    Ok(tally.kills(u64::from(died)))
}

/// Makes sure that the work did what it is there for.
pub fn check_work(client: &Client) -> anyhow::Result<()> {
    // Of what came after the compaction.
    let copy = client.world().get("c0-clone").context("the copy is gone")?;
    ensure!(copy.lines.iter().any(|line| line == "summary"), "nothing was compacted: {copy:?}");
    Ok(())
}

/// Each kind of change at least once, and turns with tools one after the other and side by side.
pub fn work() -> Vec<Op> {
    let name = |name: &str| format!("c0-{name}");
    let set = |agent: &str, setting| Op::Set { name: name(agent), setting };
    let turn = |id: &str, steps, width| Turn { id: format!("c0-{id}"), steps, width };
    let mut uid = 0;
    let mut next = || {
        uid += 1;
        uid
    };
    vec![
        Op::Create { name: name("a"), prompt: "first".into(), uid: next() },
        Op::Send { name: name("a"), turn: turn("talk", 0, 0) },
        Op::Send { name: name("a"), turn: turn("one", 2, 1) },
        set("a", Setting::Prompt("second".into())),
        set("a", Setting::Model(NARROW)),
        set("a", Setting::LacksTool(true)),
        Op::Compact { name: name("a") },
        Op::Remember { name: name("a"), memory: "tea".into() },
        Op::Keep { name: name("a") },
        Op::SaveAs { from: name("a"), to: name("copy"), uid: next() },
        Op::Send { name: name("a"), turn: turn("many", 1, 3) },
        Op::SaveAs { from: name("a"), to: name("copy"), uid: next() },
        Op::Clone { from: name("copy"), to: name("clone"), uid: next() },
        Op::Load { from: name("clone"), to: name("clone"), uid: next() },
        Op::Load { from: name("copy"), to: name("other"), uid: next() },
        Op::Rename { from: name("a"), to: name("b") },
        Op::Send { name: name("b"), turn: turn("renamed", 1, 1) },
        Op::Destroy { name: name("b") },
        Op::Destroy { name: name("other") },
        Op::Delete { name: name("copy") },
        Op::Load { from: name("b"), to: name("b"), uid: next() },
        Op::Delete { name: name("b") },
        Op::Create { name: name("a"), prompt: "again".into(), uid: next() },
        Op::Send { name: name("a"), turn: turn("last", 1, 2) },
    ]
}
