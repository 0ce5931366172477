//! The oracle: what one client's sessions must look like after what was answered to it, and may look like after what was
//! not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::turn::{Turn, continuation, granted, is_cancelled, is_cut, normal};

/// The sessions of one client, by name.
pub type World = BTreeMap<String, Session>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// A saved one, in which nobody works.
    pub saved: bool,
    /// Saved by name: it outlives its agent. Cannot be seen from outside until that ends.
    pub kept: bool,
    pub lines: Vec<String>,
    /// What was granted in the lines before this one was granted to another agent, and ended with it or was never its own.
    pub grants_from: usize,
    pub settings: Settings,
    /// What is remembered for it. A copy remembers nothing.
    pub memories: BTreeSet<String>,
    /// Tells a session from a later one of the same name.
    pub uid: u64,
    pub copy_of: Option<u64>,
}

/// What can be seen of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub saved: bool,
    pub lines: Vec<String>,
    pub settings: Settings,
    pub memories: BTreeSet<String>,
    /// Whether it was granted anything for its session.
    pub granted: bool,
}

/// What an agent is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub prompt: String,
    pub model: String,
    /// Works in the directory `aside` of the agents' directory.
    pub aside: bool,
    pub trusted: bool,
    /// Is not offered [`TOOL`].
    pub lacks_tool: bool,
}

/// The model that agents have at first, and one with so small a window that it is worth compacting.
pub const WIDE: &str = "scripted";
pub const NARROW: &str = "narrow";

/// A tool that is taken from agents and given back.
pub const TOOL: &str = "glob";

impl Settings {
    pub fn new(prompt: &str) -> Self {
        let model = WIDE.into();
        Self { prompt: prompt.into(), model, aside: false, trusted: false, lacks_tool: false }
    }
}

/// A change to an agent's settings.
#[derive(Clone, Debug)]
pub enum Setting {
    Prompt(String),
    Model(&'static str),
    Aside,
    Trusted,
    LacksTool(bool),
}

pub type View = BTreeMap<String, Seen>;

/// What a client asks for.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        name: String,
        prompt: String,
        uid: u64,
    },
    Send {
        name: String,
        turn: Turn,
    },
    Resume {
        name: String,
    },
    Set {
        name: String,
        setting: Setting,
    },
    Compact {
        name: String,
    },
    Remember {
        name: String,
        memory: String,
    },
    /// Saves an agent under its own name.
    Keep {
        name: String,
    },
    /// Saves a copy, in place of an older copy of the same agent.
    SaveAs {
        from: String,
        to: String,
        uid: u64,
    },
    Clone {
        from: String,
        to: String,
        uid: u64,
    },
    /// Makes an agent of a saved session, of itself or of a copy.
    Load {
        from: String,
        to: String,
        uid: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Destroy {
        name: String,
    },
    Delete {
        name: String,
    },
}

impl Op {
    /// The call that asks for it. `cwd` is where agents leave the traces of their tool calls.
    pub fn call(&self, cwd: &std::path::Path) -> (&'static str, Value) {
        match self {
            Self::Create { name, prompt, .. } => (
                "create_agent",
                json!({"agent_id": name, "cwd": cwd, "allowed_write_paths": [cwd],
                    "system_prompt": prompt}),
            ),
            Self::Send { name, turn } => {
                ("send", json!({"agent_id": name, "content": turn.text(), "request_id": turn.id}))
            }
            Self::Resume { name } => ("resume_turn", json!({"agent_id": name})),
            Self::Set { name, setting } => setting.call(name, cwd),
            Self::Compact { name } => ("compact", json!({"agent_id": name})),
            Self::Remember { name, memory } => {
                ("memory.add", json!({"user_id": memories_of(name), "content": memory}))
            }
            Self::Keep { name } => {
                ("save_session", json!({"agent_id": name, "session_name": name}))
            }
            Self::SaveAs { from, to, .. } => {
                ("save_session", json!({"agent_id": from, "session_name": to}))
            }
            Self::Clone { from, to, .. } => {
                ("clone_session", json!({"src_session": from, "dest_session": to}))
            }
            Self::Load { from, to, .. } => {
                ("load_session", json!({"session_name": from, "agent_id": to}))
            }
            Self::Rename { from, to } => {
                ("rename_session", json!({"old_name": from, "new_name": to}))
            }
            Self::Destroy { name } => ("destroy_agent", json!({"agent_id": name})),
            Self::Delete { name } => ("delete_session", json!({"session_name": name})),
        }
    }

    /// The agent whose turn this runs: it alone may be found half done.
    pub fn turn_of(&self) -> Option<&str> {
        match self {
            Self::Send { name, .. } | Self::Resume { name } => Some(name),
            _ => None,
        }
    }

    /// The worlds in which it is done. Of a turn that asks for leave there are two: nobody can be asked when the question
    /// cannot be written down.
    pub fn ends(&self, before: &World) -> Vec<World> {
        let mut ends = vec![self.apply(before)];
        if let Self::Send { name, turn } = self
            && turn.asks()
        {
            let mut denied = ends[0].clone();
            let new = before.get(name).map_or(0, |session| session.lines.len());
            change(&mut denied, name, |it| {
                for line in &mut it.lines[new..] {
                    *line = line.replace(" ok", " denied");
                }
            });
            ends.push(denied);
        }
        ends
    }

    /// The world after it was done.
    pub fn apply(&self, before: &World) -> World {
        let mut world = before.clone();
        let copy = |world: &World, from: &str, uid: u64| {
            world.get(from).map(|session| Session {
                saved: true,
                kept: true,
                grants_from: session.lines.len(),
                memories: BTreeSet::new(),
                uid,
                copy_of: None,
                ..session.clone()
            })
        };
        match self {
            Self::Create { name, prompt, uid } => {
                let session = Session {
                    saved: false,
                    kept: false,
                    lines: Vec::new(),
                    grants_from: 0,
                    settings: Settings::new(prompt),
                    memories: BTreeSet::new(),
                    uid: *uid,
                    copy_of: None,
                };
                world.insert(name.clone(), session);
            }
            Self::Send { name, turn } => {
                change(&mut world, name, |it| it.lines.extend(turn.lines()))
            }
            Self::Resume { name } => {
                change(&mut world, name, |it| it.lines.extend(continuation(&it.lines)));
            }
            Self::Set { name, setting } => {
                change(&mut world, name, |it| setting.apply(&mut it.settings));
            }
            Self::Compact { name } => {
                change(&mut world, name, |it| it.lines.push("summary".into()));
            }
            Self::Remember { name, memory } => {
                change(&mut world, name, |it| it.memories.extend([memory.clone()]));
            }
            Self::Keep { name } => change(&mut world, name, |it| it.kept = true),
            Self::SaveAs { from, to, uid } => {
                let of = world.get(from).map(|session| session.uid);
                let made = copy(&world, from, *uid).map(|made| Session { copy_of: of, ..made });
                world.extend(made.map(|made| (to.clone(), made)));
            }
            Self::Clone { from, to, uid } => {
                let made = copy(&world, from, *uid);
                world.extend(made.map(|made| (to.clone(), made)));
            }
            Self::Load { from, to, .. } if from == to => change(&mut world, from, |it| {
                it.saved = false;
                it.copy_of = None;
            }),
            Self::Load { from, to, uid } => {
                let made = copy(&world, from, *uid);
                let made = made.map(|made| Session { saved: false, kept: false, ..made });
                world.extend(made.map(|made| (to.clone(), made)));
            }
            Self::Rename { from, to } => {
                let moved = world.remove(from);
                world.extend(moved.map(|session| (to.clone(), session)));
            }
            Self::Destroy { name } => match world.get_mut(name) {
                Some(session) if session.kept => {
                    session.saved = true;
                    session.grants_from = session.lines.len();
                }
                _ => drop(world.remove(name)),
            },
            Self::Delete { name } => drop(world.remove(name)),
        }
        world
    }
}

impl Setting {
    fn call(&self, name: &str, cwd: &std::path::Path) -> (&'static str, Value) {
        match self {
            Self::Prompt(prompt) => {
                ("set_system_prompt", json!({"agent_id": name, "system_prompt": prompt}))
            }
            Self::Model(model) => ("set_model", json!({"agent_id": name, "model": model})),
            Self::Aside => ("set_cwd", json!({"agent_id": name, "cwd": cwd.join("aside")})),
            Self::Trusted => ("set_permissions", json!({"agent_id": name, "preset": "trusted"})),
            Self::LacksTool(true) => {
                ("set_permissions", json!({"agent_id": name, "disable_tools": [TOOL]}))
            }
            Self::LacksTool(false) => {
                ("set_permissions", json!({"agent_id": name, "enable_tools": [TOOL]}))
            }
        }
    }

    fn apply(&self, settings: &mut Settings) {
        match self {
            Self::Prompt(prompt) => settings.prompt.clone_from(prompt),
            Self::Model(model) => settings.model = (*model).into(),
            Self::Aside => settings.aside = true,
            Self::Trusted => settings.trusted = true,
            Self::LacksTool(lacks) => settings.lacks_tool = *lacks,
        }
    }
}

/// The user that an agent is to its memories.
pub fn memories_of(name: &str) -> String {
    format!("agent:{name}")
}

fn change(world: &mut World, name: &str, change: impl FnOnce(&mut Session)) {
    if let Some(session) = world.get_mut(name) {
        change(session);
    }
}

/// What may be there when `op` was asked for and it is not known what became of it: of several worlds that look like
/// `seen`, all. None when what is seen is not legal. A turn whose caller `let_go` may have been cancelled by that.
pub fn legal(before: &World, op: &Op, seen: &View, let_go: bool) -> Vec<World> {
    let mut worlds = Vec::new();
    if looks_like(before, seen) {
        worlds.push(before.clone());
    }
    for after in op.ends(before) {
        match op.turn_of() {
            Some(name) => {
                let cut = cut(before, &after, name, seen, let_go);
                worlds.extend(cut.filter(|it| it != before));
            }
            None if looks_like(&after, seen) => worlds.push(after),
            None => {}
        }
    }
    worlds
}

/// The world in which the turn of `name` got as far as is seen.
fn cut(before: &World, after: &World, name: &str, seen: &View, let_go: bool) -> Option<World> {
    let (was, full, found) = (before.get(name)?, after.get(name)?, seen.get(name)?);
    let is_cut = if let_go { is_cancelled } else { is_cut };
    if !is_cut(&full.lines, &found.lines, was.lines.len()) {
        return None;
    }
    let mut world = before.clone();
    change(&mut world, name, |it| it.lines = normal(&found.lines));
    looks_like(&world, seen).then_some(world)
}

/// What is different, in words; empty when nothing is.
pub fn differences(world: &World, seen: &View) -> Vec<String> {
    let mut found = Vec::new();
    for (name, session) in world {
        let Some(view) = seen.get(name) else {
            found.push(format!("{name} is lost: {session:?}"));
            continue;
        };
        let own = session.lines.get(session.grants_from..).unwrap_or_default();
        let granted = granted(own).is_none_or(|granted| granted == view.granted);
        let should = (session.saved, &session.settings, &session.memories);
        if should != (view.saved, &view.settings, &view.memories) || !granted {
            found.push(format!("{name} should be {session:?} and is {view:?}"));
        }
        if normal(&session.lines) != normal(&view.lines) {
            found.push(format!(
                "{name} should have said {:#?} and has said {:#?}",
                session.lines, view.lines
            ));
        }
    }
    let back = seen.keys().filter(|name| !world.contains_key(*name));
    found.extend(back.map(|name| format!("{name} is there and should not be")));
    found
}

pub fn looks_like(world: &World, seen: &View) -> bool {
    differences(world, seen).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(world: &World) -> View {
        let view = |it: &Session| Seen {
            saved: it.saved,
            lines: it.lines.clone(),
            settings: it.settings.clone(),
            memories: it.memories.clone(),
            granted: false,
        };
        world.iter().map(|(name, session)| (name.clone(), view(session))).collect()
    }

    fn world() -> World {
        Op::Create { name: "a".into(), prompt: "p".into(), uid: 1 }.apply(&World::new())
    }

    #[test]
    fn what_was_asked_for_happened_or_not_and_nothing_else() {
        let op = Op::Rename { from: "a".into(), to: "b".into() };
        let (before, after) = (world(), op.apply(&world()));
        assert_eq!(legal(&before, &op, &seen(&before), false), std::slice::from_ref(&before));
        assert_eq!(legal(&before, &op, &seen(&after), false), std::slice::from_ref(&after));
        let both: View = seen(&before).into_iter().chain(seen(&after)).collect();
        assert!(legal(&before, &op, &both, false).is_empty());
        assert!(legal(&before, &op, &View::new(), false).is_empty());
    }

    #[test]
    fn a_turn_may_have_got_anywhere() {
        let turn = Turn { id: "t".into(), steps: 1, width: 1 };
        let op = Op::Send { name: "a".into(), turn };
        let (before, after) = (world(), op.apply(&world()));
        for length in 0..=after["a"].lines.len() {
            let mut view = seen(&after);
            view.get_mut("a").unwrap().lines.truncate(length);
            assert_eq!(legal(&before, &op, &view, false).len(), 1, "{length}");
        }
        let mut other = seen(&after);
        other.get_mut("a").unwrap().settings.prompt = "q".into();
        assert!(legal(&before, &op, &other, false).is_empty());
    }

    #[test]
    fn a_keep_cannot_be_seen() {
        let op = Op::Keep { name: "a".into() };
        assert_eq!(legal(&world(), &op, &seen(&world()), false).len(), 2);
    }
}
