//! A summary without a model: what stands in when none could make one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::transcript::without_middle;
use crate::list::List;
use crate::message::{Role, SharedMessage};
use crate::redact::redact;
use crate::tool::Need;
use crate::toolbox::Toolbox;

/// How many of the user's messages are quoted, of the first and of the last.
const QUOTED: usize = 5;

/// Files that are named. A work of more has a shape that names do not tell.
const FILES_MAX: usize = 40;

/// Bytes of each text that is quoted, from what is good to what is better than nothing.
const SIZES: [usize; 5] = [2_000, 800, 300, 120, 40];

const HEAD: &str =
    "No model could summarise the earlier part of this conversation. What is known of it:";

/// What happened in the part of a conversation.
#[derive(Default)]
struct Facts {
    earlier: Vec<String>,
    asked: Vec<String>,
    written: Vec<String>,
    calls: BTreeMap<String, u64>,
    error: Option<String>,
}

/// The longest digest of `older` that has at most so many tokens. `None` when there is none. In need, to say that there
/// was something will do.
pub(super) fn digest(
    older: &List<SharedMessage>,
    toolbox: &Toolbox,
    in_need: bool,
    most: u64,
    count: impl Fn(&str) -> u64,
) -> Option<String> {
    let facts = Facts::of(older, toolbox);
    let sized = SIZES.iter().map(|size| redact(&facts.told(*size)));
    let at_least = in_need.then(|| format!("[{} earlier messages left out.]", older.len()));
    sized.chain(at_least).find(|text| count(text) <= most)
}

impl Facts {
    fn of(older: &List<SharedMessage>, toolbox: &Toolbox) -> Self {
        let mut facts = Self::default();
        let mut asking: Option<&SharedMessage> = None;
        for message in older.iter() {
            match message.role {
                Role::Summary => facts.earlier.push(message.text().into_owned()),
                Role::User if message.has_words() => facts.asked.push(message.text().into_owned()),
                Role::User => {}
                Role::Assistant => {
                    asking = Some(message);
                    for call in message.calls() {
                        *facts.calls.entry(call.name.clone()).or_default() += 1;
                    }
                }
                Role::Tool if message.meta.failed => {
                    facts.error = Some(message.text().into_owned());
                }
                Role::Tool => {
                    let id = message.tool_call_id.as_deref();
                    let calls = asking.into_iter().flat_map(|asking| asking.calls());
                    let call = calls.into_iter().find(|call| Some(&*call.id) == id);
                    let tool = call.and_then(|call| Some((call, toolbox.fixed(&call.name)?)));
                    let needs = tool.and_then(|(call, tool)| tool.needs(&call.arguments).ok());
                    facts.wrote(needs.into_iter().flatten());
                }
            }
        }
        facts
    }

    fn wrote(&mut self, needs: impl Iterator<Item = Need>) {
        for need in needs {
            if let Need::Write(path) = need {
                self.written.retain(|it| *it != path);
                self.written.push(path);
            }
        }
    }

    /// With so many bytes of each text.
    fn told(&self, bytes: usize) -> String {
        let mut told = HEAD.to_owned();
        let mut line = |what: &str, text: &str| {
            let _ = write!(told, "\n\n{what} {}", without_middle(text, bytes));
        };
        for earlier in &self.earlier {
            line("An earlier summary:", earlier);
        }
        let left_out = self.asked.len().saturating_sub(2 * QUOTED);
        for (number, asked) in self.asked.iter().enumerate() {
            if left_out > 0 && number == QUOTED {
                line(&format!("[{left_out} more messages of the user.]"), "");
            }
            if number < QUOTED || number >= QUOTED + left_out {
                line("The user:", asked);
            }
        }
        if !self.written.is_empty() {
            let known = self.written.len().saturating_sub(FILES_MAX);
            let more =
                if known > 0 { format!(" and {known} others before") } else { String::new() };
            line("Files written:", &format!("{}{more}", self.written[known..].join(", ")));
        }
        if !self.calls.is_empty() {
            let times = |(name, count): (&String, &u64)| format!("{name} ({count})");
            let calls: Vec<_> = self.calls.iter().map(times).collect();
            line("Tools called:", &calls.join(", "));
        }
        if let Some(error) = &self.error {
            line("The last error:", error);
        }
        told
    }
}
