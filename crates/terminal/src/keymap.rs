//! What keys do on the input, and how a person has it otherwise: `terminal.keys` of the configuration.
//!
//! Enter, Esc, Ctrl-C, Ctrl-D and what is typed are always what they are: by them one sends and gets out.

use std::collections::BTreeMap;

use crate::keys::{Code, Key};

/// What a key can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    NewLine,
    Suspend,
    Redraw,
    Editor,
    LastTool,
    Tree,
    Search,
    Approval,
    Complete,
    Older,
    Newer,
    NextAgent,
    Left,
    Right,
    WordLeft,
    WordRight,
    LineStart,
    LineEnd,
    DeleteLeft,
    DeleteRight,
    DeleteWord,
    DeleteWordLeft,
    DeleteWordRight,
    DeleteToStart,
    DeleteToEnd,
    Yank,
    Undo,
    Redo,
}

/// Every action: its name in the configuration, and the keys it has unless others are configured.
const ACTIONS: &[(Action, &str, &[&str])] = &[
    (Action::NewLine, "new_line", &["alt-enter", "shift-enter", "ctrl-j"]),
    (Action::Suspend, "suspend", &["ctrl-z"]),
    (Action::Redraw, "redraw", &["ctrl-l"]),
    (Action::Editor, "editor", &["ctrl-x ctrl-e", "ctrl-g"]),
    (Action::LastTool, "last_tool", &["ctrl-o"]),
    (Action::Tree, "tree", &["ctrl-t"]),
    (Action::Search, "search", &["ctrl-r"]),
    (Action::Approval, "approval", &["shift-tab"]),
    (Action::Complete, "complete", &["tab"]),
    (Action::Older, "older", &["up", "ctrl-p"]),
    (Action::Newer, "newer", &["down", "ctrl-n"]),
    (Action::NextAgent, "next_agent", &["alt-a"]),
    (Action::Left, "left", &["left", "ctrl-b"]),
    (Action::Right, "right", &["right", "ctrl-f"]),
    (Action::WordLeft, "word_left", &["ctrl-left", "alt-left", "alt-b"]),
    (Action::WordRight, "word_right", &["ctrl-right", "alt-right", "alt-f"]),
    (Action::LineStart, "line_start", &["home", "ctrl-a"]),
    (Action::LineEnd, "line_end", &["end", "ctrl-e"]),
    (Action::DeleteLeft, "delete_left", &["backspace", "ctrl-h"]),
    (Action::DeleteRight, "delete_right", &["delete"]),
    (Action::DeleteWord, "delete_word", &["ctrl-w"]),
    (Action::DeleteWordLeft, "delete_word_left", &["alt-backspace", "ctrl-backspace"]),
    (Action::DeleteWordRight, "delete_word_right", &["alt-d", "alt-delete", "ctrl-delete"]),
    (Action::DeleteToStart, "delete_to_start", &["ctrl-u"]),
    (Action::DeleteToEnd, "delete_to_end", &["ctrl-k"]),
    (Action::Yank, "yank", &["ctrl-y"]),
    (Action::Undo, "undo", &["ctrl-_", "ctrl--"]),
    (Action::Redo, "redo", &["alt-_"]),
];

/// One key, or one after another.
type Chord = (Option<Key>, Key);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap(Vec<(Chord, Action)>);

/// What a key comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Action(Action),
    /// The first of two.
    First,
    Free,
}

impl Default for Keymap {
    fn default() -> Self {
        let mut keymap = Self(Vec::new());
        keymap.fill(&[]);
        keymap
    }
}

impl Keymap {
    /// What is configured, by the names of actions; a default key that is given to another action is that one's. The
    /// error names what is wrong below `terminal.keys`.
    pub fn new(configured: &BTreeMap<String, Vec<String>>) -> Result<Self, String> {
        let mut keymap = Self(Vec::new());
        let mut named = Vec::new();
        for (name, keys) in configured {
            let Some((action, ..)) = ACTIONS.iter().find(|(_, known, _)| known == name) else {
                let known: Vec<&str> = ACTIONS.iter().map(|(_, name, _)| *name).collect();
                return Err(format!(
                    "{name}: there is no such action; there are {}",
                    known.join(", ")
                ));
            };
            named.push(*action);
            for key in keys {
                let chord = chord(key).map_err(|why| format!("{name}: {key:?} {why}"))?;
                if let Some(other) = keymap.of(chord) {
                    return Err(format!(
                        "{name}: {key:?} is configured for {} too",
                        name_of(other)
                    ));
                }
                keymap.0.push((chord, *action));
            }
        }
        keymap.fill(&named);
        if let Some(key) = keymap.hidden() {
            return Err(format!("{key} begins two keys and is one by itself"));
        }
        Ok(keymap)
    }

    /// Gives everybody else the usual keys, as far as they are free.
    fn fill(&mut self, named: &[Action]) {
        for (action, _, keys) in ACTIONS.iter().filter(|(action, ..)| !named.contains(action)) {
            for chord in keys.iter().filter_map(|key| chord(key).ok()) {
                let begins = chord.0.is_some_and(|first| self.of((None, first)).is_some());
                if self.of(chord).is_none() && !begins {
                    self.0.push((chord, *action));
                }
            }
        }
    }

    fn of(&self, chord: Chord) -> Option<Action> {
        self.0.iter().find(|(known, _)| *known == chord).map(|(_, action)| *action)
    }

    /// The action whose key could never be pressed alone, since it begins another's.
    fn hidden(&self) -> Option<&'static str> {
        let first = self.0.iter().filter_map(|((first, _), _)| *first);
        first.filter_map(|first| self.of((None, first))).map(name_of).next()
    }

    /// What the key does, after the one that was the first of two.
    pub(crate) fn find(&self, before: Option<Key>, key: Key) -> Bound {
        let unshifted = Key { shift: false, ..key };
        for key in [key, unshifted] {
            if let Some(action) = before.and_then(|_| self.of((before, key))) {
                return Bound::Action(action);
            }
            if let Some(action) = self.of((None, key)) {
                return Bound::Action(action);
            }
            if self.0.iter().any(|((first, _), _)| *first == Some(key)) {
                return Bound::First;
            }
        }
        Bound::Free
    }
}

fn name_of(action: Action) -> &'static str {
    ACTIONS.iter().find(|(known, ..)| *known == action).map_or("", |(_, name, _)| name)
}

fn chord(text: &str) -> Result<Chord, String> {
    let keys: Vec<&str> = text.split_whitespace().collect();
    match keys.as_slice() {
        [one] => Ok((None, key(one)?)),
        [first, second] => Ok((Some(key(first)?), key(second)?)),
        _ => Err("is no key, and not two".into()),
    }
}

/// `ctrl-g`, `alt-enter`, `shift-tab`, `home`.
fn key(text: &str) -> Result<Key, String> {
    let lower = text.to_lowercase();
    let (mut rest, mut key) = (lower.as_str(), Key::plain(Code::Enter));
    loop {
        let modifier = match rest {
            _ if rest.starts_with("ctrl-") => &mut key.ctrl,
            _ if rest.starts_with("alt-") => &mut key.alt,
            _ if rest.starts_with("shift-") => &mut key.shift,
            _ => break,
        };
        *modifier = true;
        rest = &rest[rest.find('-').map_or(0, |at| at + 1)..];
    }
    let mut characters = rest.chars();
    key.code = match rest {
        "enter" => Code::Enter,
        "tab" => Code::Tab,
        "backspace" => Code::Backspace,
        "delete" => Code::Delete,
        "esc" | "escape" => Code::Escape,
        "up" => Code::Up,
        "down" => Code::Down,
        "left" => Code::Left,
        "right" => Code::Right,
        "home" => Code::Home,
        "end" => Code::End,
        "pageup" => Code::PageUp,
        "pagedown" => Code::PageDown,
        _ => match (characters.next(), characters.next()) {
            (Some(letter), None) => Code::Char(letter),
            _ => {
                return Err("is no key: ctrl-, alt- and shift- before a letter, enter, tab, backspace, delete, up, \
                            down, left, right, home, end, pageup or pagedown"
                    .into());
            }
        },
    };
    let is_fixed = match key.code {
        Code::Escape => true,
        Code::Enter => !(key.ctrl || key.alt || key.shift),
        Code::Char('c' | 'd') => key.ctrl && !key.alt,
        _ => false,
    };
    if is_fixed {
        return Err("cannot be given away: Enter, Esc, Ctrl-C and Ctrl-D are the ways to send and to get out".into());
    }
    if matches!(key.code, Code::Char(_)) && !key.ctrl && !key.alt {
        return Err("is a letter that is typed: it needs ctrl- or alt-".into());
    }
    // A terminal says these by other names.
    match key.code {
        Code::Char('i') if key.ctrl => Err("is Tab to a terminal".into()),
        Code::Char('m') if key.ctrl => Err("is Enter to a terminal".into()),
        _ => Ok(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &[&str])]) -> Result<Keymap, String> {
        let text = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        Keymap::new(&entries.iter().map(|(name, keys)| ((*name).to_owned(), text(keys))).collect())
    }

    #[test]
    fn without_configuration_every_action_has_its_keys() {
        let keymap = Keymap::default();
        assert_eq!(map(&[]).unwrap(), keymap);
        for (action, name, keys) in ACTIONS {
            for text in *keys {
                let (before, key) = chord(text).unwrap();
                assert_eq!(keymap.find(before, key), Bound::Action(*action), "{name} {text}");
            }
        }
        assert_eq!(keymap.find(None, Key::ctrl('x')), Bound::First);
        assert_eq!(keymap.find(None, Key::ctrl('q')), Bound::Free);
        assert_eq!(keymap.find(None, Key::plain(Code::Char('a'))), Bound::Free);
        // Alt-A is Alt-a with Shift, and what is no second key is what it is alone.
        assert_eq!(
            keymap.find(Some(Key::ctrl('x')), Key::ctrl('l')),
            Bound::Action(Action::Redraw)
        );
    }

    #[test]
    fn what_is_configured_wins_over_what_is_usual() {
        let keymap = map(&[("tree", &["ctrl-g"]), ("last_tool", &[]), ("redraw", &["ctrl-x r"])]);
        let refused = keymap.unwrap_err();
        assert!(refused.starts_with("redraw: \"ctrl-x r\" is a letter"), "{refused}");
        let keymap =
            map(&[("tree", &["Ctrl-G"]), ("last_tool", &[]), ("redraw", &["ctrl-x ctrl-r"])]);
        let keymap = keymap.unwrap();
        assert_eq!(keymap.find(None, Key::ctrl('g')), Bound::Action(Action::Tree));
        assert_eq!(keymap.find(None, Key::ctrl('t')), Bound::Free);
        assert_eq!(keymap.find(None, Key::ctrl('o')), Bound::Free);
        let prefix = Some(Key::ctrl('x'));
        assert_eq!(keymap.find(prefix, Key::ctrl('r')), Bound::Action(Action::Redraw));
        assert_eq!(keymap.find(prefix, Key::ctrl('e')), Bound::Action(Action::Editor));
        // A key that is given away begins no other.
        let keymap = map(&[("tree", &["ctrl-x"])]).unwrap();
        assert_eq!(keymap.find(None, Key::ctrl('x')), Bound::Action(Action::Tree));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let check = |entries: &[(&str, &[&str])], expected: &str| {
            let refused = map(entries).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        };
        check(&[("fly", &["ctrl-g"])], "fly: there is no such action; there are new_line, suspend");
        check(&[("tree", &["ctrl-gg"])], "tree: \"ctrl-gg\" is no key");
        check(&[("tree", &[""])], "tree: \"\" is no key, and not two");
        check(&[("tree", &["x"])], "is a letter that is typed");
        check(&[("tree", &["shift-x"])], "is a letter that is typed");
        for key in ["enter", "esc", "alt-esc", "ctrl-c", "ctrl-d"] {
            check(&[("tree", &[key])], "cannot be given away");
        }
        check(&[("tree", &["ctrl-i"])], "is Tab to a terminal");
        check(&[("redraw", &["ctrl-q"]), ("tree", &["ctrl-q"])], "configured for redraw too");
        check(&[("redraw", &["ctrl-q"]), ("tree", &["ctrl-q ctrl-e"])], "redraw begins two keys");
    }
}
