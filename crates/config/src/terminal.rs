//! How the conversation on a terminal looks, and what its agents are given.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, Error as _};

use super::value::{Choice, Choices};
use super::{Fault, Permissions, presets, schema, text};

/// The section `terminal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Of agents that the terminal makes; never one of level yolo.
    pub preset: String,
    /// `ansi`, `mono`, `light` or `dark`.
    pub theme: &'static str,
    pub wrap: Wrap,
    /// Columns at which prose is broken at the latest.
    pub width_max: usize,
    /// Lines that are shown of a tool's result.
    pub tool_lines: usize,
    /// Lines that are shown of a change of a file.
    pub diff_lines: usize,
    pub reasoning: Thoughts,
    /// Whether anything moves while a turn runs.
    pub motion: bool,
    pub plain: bool,
    pub bell: Bell,
    /// Whether the window is given a title.
    pub title: bool,
    pub editor: Option<String>,
    pub pager: Option<String>,
    /// Whether what was typed is kept for the next time.
    pub history: bool,
    /// Keys by the names of what they do.
    pub keys: BTreeMap<String, Vec<String>>,
}

/// Who breaks lines of prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    /// We do, at words.
    Word,
    /// The terminal does, and may do it anew when its window changes.
    Terminal,
}

/// What is shown of what a model thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoughts {
    Time,
    Text,
    Off,
}

/// What the bell rings for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell {
    pub approval: bool,
    pub turn: bool,
}

/// What a directory that nobody trusted may set here: how wide and how long things are shown. The others could start
/// programs, give agents more, or hide from a person what happens.
pub(super) const UNTRUSTED_KEYS: [&str; 4] = ["wrap", "width_max", "tool_lines", "diff_lines"];

pub(super) fn resolve(
    written: schema::Terminal,
    permissions: &Permissions,
) -> Result<Terminal, Fault> {
    let preset = written.preset.map_or_else(|| "trusted".into(), text);
    presets::check_default(permissions, &preset)
        .map_err(|reason| Fault::new(&["terminal", "preset"], reason))?;
    let bell = written.bell.map(|it| it.0);
    Ok(Terminal {
        preset,
        theme: written.theme.map_or("ansi", |it| it.0),
        wrap: match written.wrap.map(|it| it.0) {
            Some("terminal") => Wrap::Terminal,
            _ => Wrap::Word,
        },
        width_max: written.width_max.map_or(100, |it| it.0 as usize),
        tool_lines: written.tool_lines.map_or(6, |it| it.0 as usize),
        diff_lines: written.diff_lines.map_or(40, |it| it.0 as usize),
        reasoning: match written.reasoning.map(|it| it.0) {
            Some("text") => Thoughts::Text,
            Some("off") => Thoughts::Off,
            _ => Thoughts::Time,
        },
        motion: written.motion.unwrap_or(true),
        plain: written.plain.unwrap_or(false),
        bell: Bell {
            approval: matches!(bell, Some("approval" | "both")),
            turn: matches!(bell, Some("turn" | "both")),
        },
        title: written.title.unwrap_or(true),
        editor: written.editor.map(text),
        pager: written.pager.map(text),
        history: written.history.unwrap_or(true),
        keys: written.keys.map_or_else(BTreeMap::new, |keys| {
            keys.into_entries().map(|(action, keys)| (action, keys.0)).collect()
        }),
    })
}

/// The name of a theme.
#[derive(Debug)]
pub(super) struct Theme(&'static str);

impl<'de> Deserialize<'de> for Theme {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.ends_with(".tmTheme") {
            let themes = Themes::ALL.join(", ");
            return Err(D::Error::custom(format_args!(
                "files of themes (.tmTheme) are not supported; there are {themes}"
            )));
        }
        let name = serde::de::value::StringDeserializer::new(name);
        Choice::<Themes>::deserialize(name).map(|it| Self(it.0))
    }
}

#[derive(Debug)]
struct Themes;

impl Choices for Themes {
    const ALL: &'static [&'static str] = &["ansi", "mono", "light", "dark"];
}
