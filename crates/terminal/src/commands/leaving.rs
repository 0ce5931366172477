//! Commands that leave, and the one that clears the screen.

use nexus_protocol::params::NoParams;
use nexus_protocol::server::{ServerInfo, ServerInfoResult, ShutdownServer};

use super::flags::nothing;
use crate::cx::{Cx, Done, Front, Leaving, terminal_name};
use crate::figures::counted;

pub async fn quit(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/quit")?;
    cx.tell(Front::Leave(Leaving::Quit));
    Ok(())
}

pub async fn detach(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/detach")?;
    cx.tell(Front::Leave(Leaving::Detach));
    Ok(())
}

/// Stops the server, after a question when somebody would miss it.
pub async fn shutdown(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/shutdown")?;
    let info = cx.server::<ServerInfo>(NoParams {}).await?;
    if let Some(question) = question(&info, &terminal_name())
        && !cx.confirm(question).await
    {
        return Ok(());
    }
    cx.note(cx.server::<ShutdownServer>(NoParams {}).await?.message);
    cx.tell(Front::Leave(Leaving::Stopped));
    Ok(())
}

/// What is asked before the server stops; `None` when nothing runs and only this terminal watches.
fn question(info: &ServerInfoResult, us: &str) -> Option<String> {
    let named = info.watchers.iter().filter(|name| *name != us);
    let mut others: Vec<_> = named.cloned().collect();
    let nameless = info.watches.saturating_sub(info.watchers.len() as u64);
    if nameless > 0 {
        others.push(counted(nameless, "nameless client"));
    }
    let runs = match info.turns {
        0 => None,
        1 => Some("1 turn runs or waits".to_owned()),
        turns => Some(format!("{turns} turns run or wait")),
    };
    let watched = match others.as_slice() {
        [] => None,
        [one] => Some(format!("{one} watches")),
        _ => Some(format!("{} watch", others.join(", "))),
    };
    let why = match (runs, watched) {
        (None, None) => return None,
        (Some(why), None) | (None, Some(why)) => why,
        (Some(runs), Some(watched)) => format!("{runs}, and {watched}"),
    };
    Some(format!("{why}. Stop the server?"))
}

/// Pushes the screen up.
pub async fn clear(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/clear")?;
    cx.tell(Front::Clear);
    Ok(())
}
