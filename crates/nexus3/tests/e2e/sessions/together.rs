//! Many callers at once on one name: whatever they are told, some order of their calls must explain it.

use std::collections::{BTreeMap, HashSet};

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::{Server, Wire};
use crate::support::{create, names, sessions};

const CALLERS: usize = 32;
const ROUNDS: u64 = 6;

/// What a caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Deed {
    /// `save_session` of `x` under its own name.
    Keep,
    /// `save_session` of `x` under the name `copy`.
    Copy,
    /// `rename_session` of `x` to `y`.
    Away,
    /// `rename_session` of `y` to `x`.
    Back,
    Delete,
    Send,
}

/// What it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Told {
    Done,
    /// There is nobody of that name.
    Unknown,
    /// The new name is taken.
    Taken,
    /// `send`: the agent ended while it ran.
    Cancelled,
}

/// Where the one agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    X,
    Y,
    Gone,
}

#[tokio::test]
async fn what_many_callers_are_told_has_an_order_that_explains_it() {
    let server = Server::start().await;
    server.model().set_default(Reply::echo());
    let wire = server.wire();
    for round in 0..ROUNDS {
        create(&wire, "x").await;
        let deeds = (0..CALLERS).map(|caller| deed(round, caller as u64));
        let calls = deeds.enumerate().map(|(caller, deed)| perform(&wire, deed, caller));
        let told = futures_util::future::join_all(calls).await;
        let sessions = sessions(&wire).await;
        let place = match sessions.iter().find(|name| *name != "copy").map(String::as_str) {
            Some("x") => Place::X,
            Some("y") => Place::Y,
            Some(other) => panic!("a session that nobody made: {other}"),
            None => Place::Gone,
        };
        assert!(is_explained(&told, place), "round {round}: {told:?} do not lead to {place:?}");
        let copied = told.contains(&(Deed::Copy, Told::Done));
        assert_eq!(sessions.iter().any(|name| name == "copy"), copied, "round {round}: {told:?}");
        check_histories(&wire, place, copied, &told).await;
        for name in sessions {
            wire.ok("delete_session", json!({"session_name": name})).await;
        }
        assert_eq!(names(&wire).await, [""; 0]);
    }
}

/// A mix that differs from round to round; deleting is rare, or little else would be seen.
fn deed(round: u64, caller: u64) -> Deed {
    let draw = (caller * 7 + round * 13 + caller * caller * (round + 3)) % 16;
    match draw {
        0 if round % 2 == 1 => Deed::Delete,
        0..=2 => Deed::Keep,
        3..=5 => Deed::Copy,
        6..=8 => Deed::Away,
        9..=11 => Deed::Back,
        _ => Deed::Send,
    }
}

async fn perform(wire: &Wire, deed: Deed, caller: usize) -> (Deed, Told) {
    let (method, params) = match deed {
        Deed::Keep => ("save_session", json!({"agent_id": "x", "session_name": "x"})),
        Deed::Copy => ("save_session", json!({"agent_id": "x", "session_name": "copy"})),
        Deed::Away => ("rename_session", json!({"old_name": "x", "new_name": "y"})),
        Deed::Back => ("rename_session", json!({"old_name": "y", "new_name": "x"})),
        Deed::Delete => ("delete_session", json!({"session_name": "x"})),
        Deed::Send => ("send", json!({"agent_id": "x", "content": format!("m{caller}")})),
    };
    let told = match wire.call(method, params).await {
        Ok(answer) if answer["deleted"] == false => Told::Unknown,
        Ok(answer) if answer["cancelled"] == true => Told::Cancelled,
        Ok(_) => Told::Done,
        Err(fault) => {
            assert_eq!(fault.code, -32602, "{deed:?}: {fault:?}");
            match fault.message {
                text if text.starts_with("Unknown ") => Told::Unknown,
                text if text == "The agent was ended" => Told::Cancelled,
                text if text.ends_with(" exists already") => Told::Taken,
                text => panic!("{deed:?}: {text}"),
            }
        }
    };
    (deed, told)
}

/// Whether the calls, one after another in some order, can have been told this and left the agent there. Calls that
/// asked the same and were told the same are one kind: only how many are left of each matters.
fn is_explained(told: &[(Deed, Told)], end: Place) -> bool {
    let ended = told.contains(&(Deed::Delete, Told::Done));
    if !ended && told.iter().any(|(_, told)| *told == Told::Cancelled) {
        return false;
    }
    let mut kinds: BTreeMap<(Deed, Told), u32> = BTreeMap::new();
    for kind in told {
        *kinds.entry(*kind).or_default() += 1;
    }
    let (kinds, counts): (Vec<_>, Vec<_>) = kinds.into_iter().unzip();
    let mut seen = HashSet::new();
    let mut open = vec![(Place::X, counts)];
    while let Some((place, left)) = open.pop() {
        if place == end && left.iter().all(|count| *count == 0) {
            return true;
        }
        if !seen.insert((place, left.clone())) {
            continue;
        }
        for (at, (deed, told)) in kinds.iter().enumerate().filter(|(at, _)| left[*at] > 0) {
            if let Some(next) = step(place, *deed, *told) {
                let mut left = left.clone();
                left[at] -= 1;
                open.push((next, left));
            }
        }
    }
    false
}

/// Where the agent is after a call, if the call can be told this.
fn step(place: Place, deed: Deed, told: Told) -> Option<Place> {
    let at = match deed {
        Deed::Back => Place::Y,
        _ => Place::X,
    };
    match (told, deed) {
        (Told::Unknown, _) => (place != at).then_some(place),
        // There is only one agent, so its other name is never taken.
        (Told::Taken, _) => None,
        (Told::Done, _) if place != at => None,
        (Told::Done, Deed::Away) => Some(Place::Y),
        (Told::Done, Deed::Back) => Some(Place::X),
        (Told::Done, Deed::Delete) => Some(Place::Gone),
        (Told::Done, Deed::Keep | Deed::Copy | Deed::Send) => Some(place),
        // It found the agent, which ended later.
        (Told::Cancelled, _) => (place == at).then_some(place),
    }
}

/// What was acknowledged is in the history, once; a copy holds its beginning.
async fn check_histories(wire: &Wire, place: Place, copied: bool, told: &[(Deed, Told)]) {
    let whole = match place {
        Place::X => Some(said(wire, "x").await),
        Place::Y => Some(said(wire, "y").await),
        Place::Gone => None,
    };
    if let Some(whole) = &whole {
        let sent = told.iter().enumerate().filter(|(_, told)| **told == (Deed::Send, Told::Done));
        let mut expected: Vec<_> = sent.map(|(caller, _)| format!("m{caller}")).collect();
        let mut kept: Vec<_> = whole.iter().step_by(2).cloned().collect();
        expected.sort();
        kept.sort();
        assert_eq!(kept, expected);
        assert!(whole.chunks(2).all(|pair| pair[0] == pair[1]), "{whole:?}");
    }
    if copied {
        wire.ok("load_session", json!({"session_name": "copy"})).await;
        let copy = said(wire, "copy").await;
        if let Some(whole) = whole {
            assert_eq!(copy[..], whole[..copy.len()]);
        }
    }
}

async fn said(wire: &Wire, agent: &str) -> Vec<String> {
    let page = wire.ok("get_messages", json!({"agent_id": agent})).await;
    let messages = page["messages"].as_array().unwrap().iter();
    messages.map(|message: &Value| message["content"].as_str().unwrap().to_string()).collect()
}

#[test]
fn the_model_tells_right_from_wrong() {
    use {Deed::*, Told::*};
    assert!(is_explained(&[(Away, Done), (Back, Done), (Send, Done)], Place::X));
    assert!(is_explained(&[(Away, Done), (Send, Unknown)], Place::Y));
    assert!(is_explained(&[(Send, Cancelled), (Delete, Done)], Place::Gone));
    assert!(!is_explained(&[(Send, Cancelled)], Place::X));
    assert!(!is_explained(&[(Send, Unknown)], Place::X));
    assert!(!is_explained(&[(Away, Done), (Away, Done)], Place::Y));
    assert!(!is_explained(&[(Delete, Done), (Delete, Done)], Place::Gone));
    assert!(!is_explained(&[(Delete, Done)], Place::X));
    assert!(!is_explained(&[(Delete, Done), (Back, Done), (Away, Done)], Place::X));
}
