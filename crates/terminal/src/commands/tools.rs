//! Commands about tool calls: the last ones, and one in full.

use nexus_protocol::conversation::{MessageEntry, ToolCallEntry};

use super::flags::{exactly, optional};
use super::messages::Backwards;
use crate::cx::{Cx, Done, Refused, refuse};
use crate::figures::brief;
use crate::style::{Line, Style};
use crate::toolview::{short, telling};

/// How many calls are listed when nobody says.
const CALLS_DEFAULT: usize = 10;

/// Most calls that are listed.
const CALLS_MAX: usize = 1_000;

/// Longest argument and longest beginning of a result in a list, in characters.
const SHOWN_CHARS_MAX: usize = 80;

/// A call and what it came to.
struct Use {
    call: ToolCallEntry,
    /// Absent while it runs, and when it was cut off.
    result: Option<String>,
}

pub async fn tools(cx: &Cx, rest: &str) -> Done {
    let most = match optional(rest, "/tools [N]")?.map(|number| number.parse::<usize>()) {
        None => CALLS_DEFAULT,
        Some(Ok(number @ 1..=CALLS_MAX)) => number,
        Some(_) => return refuse(format!("Usage: /tools [N], with N from 1 to {CALLS_MAX}")),
    };
    let uses = last(cx, most).await?;
    if uses.is_empty() {
        cx.note("No tool calls.");
    }
    cx.say_all(uses.iter().rev().map(entry).collect());
    Ok(())
}

fn entry(made: &Use) -> Line {
    let Use { call, result } = made;
    let result = match result {
        Some(result) => brief(result, SHOWN_CHARS_MAX),
        None if call.cut => "cut off before it ran".into(),
        None => "no result".into(),
    };
    Line::styled(format!("[{}] ", short(&call.id)), Style::DIM)
        .with(call.name.as_str(), Style::BOLD)
        .with(
            format!("  {}", brief(&telling(&call.name, &call.arguments), SHOWN_CHARS_MAX)),
            Style::PLAIN,
        )
        .with(format!("  {result}"), Style::DIM)
}

/// One call in full.
pub async fn tool(cx: &Cx, rest: &str) -> Done {
    let [id] = exactly(rest, "/tool last|ID")?;
    let found = match id.as_str() {
        "last" => last(cx, 1).await?.into_iter().next(),
        id => find(cx, id).await?,
    };
    let Some(Use { call, result }) = found else {
        return refuse(match id.as_str() {
            "last" => "No tool calls.".to_owned(),
            id => format!("No tool call '{id}'. /tools lists the last ones."),
        });
    };
    let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
    let result = result.as_deref().unwrap_or("(no result)");
    cx.page(format!("{} [{}]\n\n{arguments}\n\n{result}\n", call.name, call.id)).await;
    Ok(())
}

/// The last calls, the newest first.
async fn last(cx: &Cx, most: usize) -> Result<Vec<Use>, Refused> {
    let (mut uses, mut results) = (Vec::new(), Vec::new());
    let mut pages = Backwards::new(cx, cx.shown()?);
    while let Some(page) = pages.next().await? {
        gather(page, |_| true, &mut uses, &mut results);
        if uses.len() >= most {
            break;
        }
    }
    uses.truncate(most);
    Ok(uses)
}

/// The call of this id, or the only one whose id begins or ends so.
async fn find(cx: &Cx, wanted: &str) -> Result<Option<Use>, Refused> {
    let (mut uses, mut results) = (Vec::new(), Vec::new());
    let fits = |id: &str| id.starts_with(wanted) || id.ends_with(wanted);
    let mut pages = Backwards::new(cx, cx.shown()?);
    while let Some(page) = pages.next().await? {
        gather(page, fits, &mut uses, &mut results);
        if let Some(whole) = uses.iter().position(|made| made.call.id == wanted) {
            return Ok(Some(uses.swap_remove(whole)));
        }
    }
    match uses.as_slice() {
        [] | [_] => Ok(uses.pop()),
        [one, other, ..] => {
            let ids = format!("{}, {}", one.call.id, other.call.id);
            refuse(format!("'{wanted}' fits {} calls ({ids}): say more of the id.", uses.len()))
        }
    }
}

/// Takes the calls of a page, the last first. A result stands behind its call, so it was met before.
fn gather(
    page: Vec<MessageEntry>,
    fits: impl Fn(&str) -> bool,
    uses: &mut Vec<Use>,
    results: &mut Vec<(String, String)>,
) {
    for message in page.into_iter().rev() {
        if let Some(id) = message.tool_call_id.filter(|id| fits(id)) {
            results.push((id, message.content));
            continue;
        }
        for call in message.tool_calls.into_iter().rev().filter(|call| fits(&call.id)) {
            let met = results.iter().rposition(|(id, _)| *id == call.id);
            let result = met.map(|at| results.swap_remove(at).1);
            uses.push(Use { call, result });
        }
    }
}
