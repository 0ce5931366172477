//! Commands that go on in a copy of the shown session.

use nexus_protocol::conversation::MessageEntry;
use nexus_protocol::session::{CloneSession, CloneSessionParams};

use super::agents::everybody;
use super::flags::{Flags, nothing, optional};
use super::messages::Backwards;
use super::sessions;
use crate::cx::{Choice, Chosen, Cx, Done, Front, Refused, refuse};
use crate::figures::brief;

/// Longest name of an agent, in characters.
const NAME_CHARS_MAX: usize = 62;

/// Most messages to choose from; who wants to go further back forks and goes on from there.
const MESSAGES_MAX: usize = 100;

/// Longest part of a message in the list, in characters.
const SHOWN_CHARS_MAX: usize = 80;

pub async fn fork(cx: &Cx, rest: &str) -> Done {
    let given = optional(rest, "/fork [NAME]")?;
    let agent = cx.shown()?;
    let dest_session = match given {
        Some(name) => name,
        None => free_name(cx, agent).await?,
    };
    go_on(cx, agent, dest_session, None).await
}

/// Goes on in a copy that ends before a message of the person's, which comes back into the input.
pub async fn rewind(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/rewind")?;
    let agent = cx.shown()?;
    let messages = own_messages(cx, agent).await?;
    if messages.is_empty() {
        return refuse("There is no message of yours to go back to.");
    }
    let items = messages.iter().map(|message| brief(&message.content, SHOWN_CHARS_MAX));
    let title = "Go back to before".to_owned();
    let choice = Choice { title, items: items.collect(), can_delete: false };
    let Some(Chosen::Item(number)) = cx.choose(choice).await else { return Ok(()) };
    let Some(message) = messages.into_iter().nth(number) else { return Ok(()) };
    match message.index.checked_sub(1) {
        Some(upto) => {
            let name = free_name(cx, agent).await?;
            go_on(cx, agent, name, Some(upto)).await?;
        }
        // Nothing would be left to copy.
        None => cx.tell(Front::Fresh),
    }
    cx.dim("Files stay as they are.");
    cx.tell(Front::Fill(message.content));
    Ok(())
}

/// What the person said, the last first.
async fn own_messages(cx: &Cx, agent: &str) -> Result<Vec<MessageEntry>, Refused> {
    let is_own = |message: &MessageEntry| {
        let meta = message.meta.as_ref();
        let is_of_agent = meta.is_some_and(|meta| meta.source_agent_id.is_some());
        message.role == "user" && !is_of_agent && !message.content.trim().is_empty()
    };
    let (mut own, mut pages) = (Vec::new(), Backwards::new(cx, agent));
    while let Some(page) = pages.next().await? {
        own.extend(page.into_iter().rev().filter(is_own));
        if own.len() >= MESSAGES_MAX {
            break;
        }
    }
    own.truncate(MESSAGES_MAX);
    Ok(own)
}

/// Copies a session, as far as the message `upto`, and shows the copy.
async fn go_on(cx: &Cx, agent: &str, dest_session: String, upto: Option<u64>) -> Done {
    let params = CloneSessionParams { src_session: agent.into(), dest_session, upto };
    let copy = cx.server::<CloneSession>(params).await?.dest_session;
    cx.dim(format!("going on in {copy}, a copy of {agent}"));
    sessions::load(cx, &copy, &Flags::default()).await
}

/// `api-2` for `api`, `api-3` for `api-2`: the first that nobody has.
async fn free_name(cx: &Cx, name: &str) -> Result<String, Refused> {
    let mut taken: Vec<String> =
        everybody(cx).await?.iter().map(|agent| agent.agent_id.clone()).collect();
    taken.extend(sessions::all(cx).await?.into_iter().map(|session| session.name));
    Ok(next_name(name, &taken))
}

fn next_name(name: &str, taken: &[String]) -> String {
    let name = name.trim_start_matches('.');
    let (base, number) = match name.rsplit_once('-').map(|(base, end)| (base, end.parse::<u32>())) {
        Some((base, Ok(number))) if !base.is_empty() => (base, number),
        _ => (name, 1),
    };
    let names = (number.saturating_add(1)..).map(|number| {
        let end = format!("-{number}");
        let base: String = base.chars().take(NAME_CHARS_MAX - end.len()).collect();
        base + &end
    });
    let mut free = names.filter(|name| !taken.contains(name));
    free.next().unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies() {
        let check = |name: &str, taken: &[&str], next: &str| {
            let taken: Vec<_> = taken.iter().map(|name| name.to_string()).collect();
            assert_eq!(next_name(name, &taken), next);
        };
        check("api", &["api"], "api-2");
        check("api", &["api", "api-2"], "api-3");
        check("api-2", &["api-2"], "api-3");
        check("-2", &[], "-2-2");
        check(".1", &[".1"], "1-2");
        check(&"a".repeat(60), &[], &("a".repeat(60) + "-2"));
        check(&"a".repeat(62), &[], &("a".repeat(60) + "-2"));
    }
}
