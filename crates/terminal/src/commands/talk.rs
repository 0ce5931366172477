//! Commands that talk to agents and stop them.

use nexus_protocol::conversation::GetContext;
use nexus_protocol::params::NoParams;
use nexus_protocol::turn::{
    Cancel, CancelParams, RequestId, ResumeTurn, ResumeTurnParams, SendResult,
};
use nexus_protocol::watch::TurnEntry;

use super::agents::everybody;
use super::flags::{exactly, nothing, refuse_flags, split};
use crate::cx::{Cx, Done, Front, Refused, refuse};
use crate::figures::{lines, request};
use crate::style::{Line, Style};

/// One message, and its answer when it comes.
pub async fn send(cx: &Cx, rest: &str) -> Done {
    let (name, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if name.is_empty() || text.trim().is_empty() {
        return refuse("Usage: /send NAME TEXT");
    }
    let answer = cx.send(name, text.trim_start()).await?;
    // What the shown agent says is printed as it says it.
    if cx.agent.as_deref() != Some(name) {
        cx.say_all(answered(name, &answer));
    }
    Ok(())
}

fn answered(name: &str, answer: &SendResult) -> Vec<Line> {
    let mut said = vec![Line::styled(format!("{name}:"), Style::BOLD)];
    said.extend(lines(answer.content.trim_end()));
    if answer.stop_reason != "end_turn" {
        said.push(Line::styled(format!("({name} stopped: {})", answer.stop_reason), Style::DIM));
    }
    said
}

pub async fn whisper(cx: &Cx, rest: &str) -> Done {
    let [name] = exactly(rest, "/whisper NAME")?;
    if !everybody(cx).await?.iter().any(|agent| agent.agent_id == name) {
        return refuse(format!("Agent '{name}' doesn't exist."));
    }
    cx.dim(format!("What you write goes to {name} until /over."));
    cx.tell(Front::Whisper(Some(name)));
    Ok(())
}

pub async fn over(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/over")?;
    cx.tell(Front::Whisper(None));
    Ok(())
}

pub async fn cancel(cx: &Cx, rest: &str) -> Done {
    let words = split(rest)?;
    refuse_flags(&words)?;
    let (agent, id) = match words.as_slice() {
        [] => (cx.shown()?.to_owned(), None),
        [word] if is_agent(cx, word).await? => (word.clone(), None),
        [word] => (cx.shown()?.to_owned(), Some(word)),
        [name, id] => (name.clone(), Some(id)),
        _ => return refuse("Usage: /cancel [NAME] [ID]"),
    };
    let turns = cx.of::<GetContext>(&agent, NoParams {}).await?.turns;
    let is_meant = |turn: &&TurnEntry| match id {
        Some(id) => request(&turn.request_id) == *id,
        None => turn.status == "running",
    };
    let Some(turn) = turns.iter().find(is_meant) else {
        return refuse(match id {
            Some(id) => format!("No turn '{id}' runs or waits in {agent}."),
            None => format!("No turn runs in {agent}."),
        });
    };
    let request_id: RequestId = turn.request_id.clone();
    let name = request(&request_id);
    let cancelled = cx.of::<Cancel>(&agent, CancelParams { request_id }).await?;
    cx.note(match cancelled.cancelled {
        true => format!("Cancelled {name} in {agent}."),
        false => format!("{name} was over already."),
    });
    Ok(())
}

async fn is_agent(cx: &Cx, word: &str) -> Result<bool, Refused> {
    Ok(everybody(cx).await?.iter().any(|agent| agent.agent_id == word))
}

/// Goes on with what was cut off. What is said then is printed as it is said.
pub async fn go_on(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/continue")?;
    let agent = cx.shown()?;
    let context = cx.of::<GetContext>(agent, NoParams {}).await?;
    let Some(cut) = context.interrupted_turn else {
        return refuse(format!("No turn of {agent} was cut off."));
    };
    cx.dim(format!("going on with {}", request(&cut.request_id)));
    let params =
        ResumeTurnParams { request_id: Some(cut.request_id), ..ResumeTurnParams::default() };
    cx.of::<ResumeTurn>(agent, params).await?;
    Ok(())
}
