//! A store that fails once, in each write of a fixed piece of work: the caller is told, memory and store agree, and the
//! next try succeeds.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use crate::client::{Asked, Client};
use crate::commits;
use crate::fault::Fault;
use crate::inside::Inside;
use crate::observe;
use crate::place::Place;
use crate::report::Tally;
use crate::rpc::{Answer, Caller};
use crate::turn::{Turn, granted};
use crate::world::{Op, Setting};

/// More writes than the work has: a store that is always asked for more would otherwise be broken for ever.
const JOBS_MAX: u64 = 500;

/// How often whoever gives leave looks whether somebody asks for it.
const LOOK: Duration = Duration::from_millis(1);

/// The agent that needs leave.
const ASKING: &str = "c0-asking";

/// What happens between the failure and the next try.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    /// The server is stopped, and another one goes on.
    Restart,
}

enum Step {
    Ask(Op),
    /// Every agent leaves memory.
    Unload,
}

/// `thorough` does both between each failure and the next try, otherwise one of them, by turns from `seed` on.
pub async fn run(seed: u64, thorough: bool) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for at in 1..JOBS_MAX {
        let mut ways = vec![Between::Nothing, Between::Restart];
        if !thorough {
            ways.swap_remove((at.wrapping_add(seed) % 2) as usize);
        }
        for between in ways {
            let place = Place::new(None).await?;
            match run_once(&place, at, between).await {
                Ok(Some(once)) => tally = tally.and(once),
                Ok(None) => return Ok(tally),
                Err(error) => {
                    let about = format!("{}, then {between:?}", Fault::FailJob(at));
                    let kept = place.keep();
                    return Err(error).with_context(|| format!("{about}; see {}", kept.display()));
                }
            }
        }
    }
    bail!("the work never ends")
}

/// `None` when the work has fewer jobs than this.
async fn run_once(place: &Place, at: u64, between: Between) -> anyhow::Result<Option<Tally>> {
    let mut server = Inside::start(place, Fault::FailJob(at)).await?;
    let mut client = Client::new(0, 0, place.work());
    let mut broken = false;
    for step in work() {
        let op = match step {
            Step::Unload => {
                server.unload().await;
                continue;
            }
            Step::Ask(op) => op,
        };
        let mut next = Some(op);
        while let Some(op) = next.take() {
            let asked = ask(&server, &mut client, op.clone()).await?;
            let Asked::Refused(refusal) = asked else { continue };
            ensure!(!broken, "it failed once, and then {op:?} was refused: {refusal:?}");
            broken = true;
            client.check(&mut server.caller(false)).await.context("in memory, after a refusal")?;
            if let Between::Restart = between {
                server.stop().await?;
                server = Inside::start(place, Fault::None).await?;
                client.check(&mut server.caller(false)).await.context("after a restart")?;
            }
            next = again(&client, op);
        }
    }
    commits::check_work(&client)?;
    check_leave(&client)?;
    let reached = broken || server.jobs() >= at;
    client.check(&mut server.caller(false)).await.context("in memory, at the end")?;
    server.stop().await?;
    let server = Inside::start(place, Fault::None).await?;
    client.check(&mut server.caller(false)).await.context("after the last restart")?;
    server.stop().await?;
    observe::check_database(&place.home())?;
    let tally = Tally::of(&[client]).effects(observe::count_effects(&place.work())?);
    Ok(reached.then_some(tally))
}

/// Asks for something while somebody gives leave for whatever is asked.
async fn ask(server: &Inside, client: &mut Client, op: Op) -> anyhow::Result<Asked> {
    let asks = matches!(&op, Op::Send { turn, .. } if turn.asks());
    let mut caller = server.caller(false);
    let asked = tokio::select! {
        asked = client.ask(&mut caller, op) => asked?,
        failed = give_leave(server.caller(false)) => bail!("leave cannot be given: {failed:?}"),
    };
    match asked {
        Asked::Done if asks => client.check(&mut caller).await?,
        Asked::Done | Asked::Refused(_) => {}
        asked => bail!("{asked:?}"),
    }
    Ok(asked)
}

/// Allows everything, for the session. What the store refuses to write down is answered again.
async fn give_leave(mut caller: Caller) -> anyhow::Error {
    loop {
        let waiting = match caller.ok("list_approvals", &json!({})).await {
            Ok(answer) => answer["approvals"].as_array().cloned().unwrap_or_default(),
            Err(error) => return error,
        };
        for approval in waiting {
            let id = &approval["approval_id"];
            let answer = json!({"approval_id": id, "decision": "allow_session"});
            match caller.call("respond_approval", &answer).await {
                Answer::Done(_) => {}
                Answer::Refused(refusal) if refusal.is_of_the_store() => {}
                answer => return anyhow::anyhow!("{answer:?}"),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Makes sure that somebody was asked and gave leave: one of two times, as only one thing fails.
fn check_leave(client: &Client) -> anyhow::Result<()> {
    let asking = client.world().get(ASKING).context("the asking agent is gone")?;
    ensure!(granted(&asking.lines) == Some(true), "nobody gave leave: {asking:?}");
    Ok(())
}

/// How to try again: what was not done at all is asked for once more, a turn that was cut off goes on.
fn again(client: &Client, op: Op) -> Option<Op> {
    let Op::Send { name, turn } = &op else { return Some(op) };
    let said = client.world().get(name).map_or(&[][..], |session| &session.lines);
    let unfinished = client.unfinished().contains(name);
    match said.contains(&format!("user {}", turn.text())) {
        true => unfinished.then(|| Op::Resume { name: name.clone() }),
        false => Some(op),
    }
}

/// What `commits` does, with agents that leave memory in between, and what needs somebody's leave.
fn work() -> Vec<Step> {
    let name = || ASKING.to_string();
    let set = |setting| Step::Ask(Op::Set { name: name(), setting });
    let asks = |id: &str| {
        let turn = Turn { id: format!("out-{id}"), steps: 1, width: 1 };
        Step::Ask(Op::Send { name: name(), turn })
    };
    let mut steps = vec![
        Step::Ask(Op::Create { name: name(), prompt: "asking".into(), uid: 1_000 }),
        set(Setting::Trusted),
        asks("one"),
        Step::Unload,
        asks("two"),
        set(Setting::Aside),
        Step::Unload,
    ];
    for (number, op) in commits::work().into_iter().enumerate() {
        steps.push(Step::Ask(op));
        if number % 4 == 3 {
            steps.push(Step::Unload);
        }
    }
    steps.push(Step::Unload);
    steps
}
