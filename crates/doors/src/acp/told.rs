//! What a turn comes to, as updates of a session: in pieces while it is made, or from the messages that were written down.
//! Nothing is told twice, and what was missed of the pieces is made up for by the messages.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agent_client_protocol_schema::v1::{
    CompactionStatus, CompactionUpdate, ContentChunk, MessageId, Notice, NoticeSeverity, Plan,
    SessionUpdate, ToolCallContent, ToolCallId, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields,
};
use nexus_protocol::conversation::{MessageEntry, ToolCallEntry};
use nexus_protocol::watch::{Event, Piece};
use serde_json::Value;

use super::tools;

/// What a command prints is shown so often at most: each time it is all of it.
const PRINTED_EVERY: Duration = Duration::from_millis(500);

/// Longest piece of a text. Some clients read no line of more than 64 KiB.
const CHUNK_BYTES_MAX: usize = 16 << 10;

pub struct Told {
    cwd: PathBuf,
    /// The turn's name, which makes names of messages and calls unlike those of other turns.
    turn: String,
    said: Said,
    thought: Said,
    /// By the ids that the model gave them.
    calls: HashMap<String, HeldCall>,
}

/// How much of a step's text is told.
#[derive(Default)]
struct Said {
    step: u32,
    chars: u64,
    /// Its message was told; what comes is the next step.
    is_whole: bool,
}

struct HeldCall {
    shown: ToolCallId,
    name: String,
    arguments: Value,
    /// The plan that it shows. Of such a call nothing else is told.
    plan: Option<Plan>,
    is_over: bool,
    printed: String,
    printed_at: Option<Instant>,
}

impl Told {
    pub fn new(turn: String, cwd: PathBuf) -> Self {
        let said = Said { is_whole: true, ..Said::default() };
        Self { cwd, turn, said, thought: Said::default(), calls: HashMap::new() }
    }

    /// Something that happened in the turn.
    pub fn happened(&mut self, event: &Event) -> Vec<SessionUpdate> {
        match event {
            Event::Delta(piece) => {
                let new = self.said.take(piece).unwrap_or_default();
                let chunks = self.chunks(piece.step, &new);
                chunks.map(SessionUpdate::AgentMessageChunk).collect()
            }
            Event::Reasoning(piece) => {
                let new = self.thought.take(piece).unwrap_or_default();
                let chunks = self.chunks(piece.step, &new);
                chunks.map(SessionUpdate::AgentThoughtChunk).collect()
            }
            Event::Message { message, .. } => self.message(message),
            Event::ToolCall(call) => self.called(call),
            Event::ToolStarted { id } => {
                let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
                self.changed(id, fields)
            }
            Event::ToolOutput { id, text } => self.printed(id, text),
            Event::ToolProgress { id, progress, total, message } => {
                let far = match total {
                    Some(total) => format!("{progress} of {total}"),
                    None => progress.to_string(),
                };
                let far = message.iter().fold(far, |far, message| format!("{far}: {message}"));
                let fields = ToolCallUpdateFields::new().content(vec![tools::text(far)]);
                self.changed(id, fields)
            }
            Event::ToolResult { id, content, failed, change, .. } => {
                let changed = change.as_ref().map(tools::diffs).unwrap_or_default();
                self.answered(id, content, *failed, changed)
            }
            Event::Waiting { reason, .. } => {
                let title = format!("The model's provider lets the turn wait: {reason}");
                vec![SessionUpdate::Notice(Notice::new(NoticeSeverity::Info, title))]
            }
            Event::Fallback { from, to, reason } => {
                let title = format!("{to} takes over from {from}: {reason}");
                vec![SessionUpdate::Notice(Notice::new(NoticeSeverity::Warning, title))]
            }
            Event::Compacted { tokens_before, .. } => {
                let id = format!("{}/{tokens_before}", self.turn);
                let update = CompactionUpdate::new(id, CompactionStatus::Completed);
                vec![SessionUpdate::CompactionUpdate(update)]
            }
            _ => Vec::new(),
        }
    }

    /// A message that was written down, as far as it is not told. What a person said is theirs to show.
    pub fn message(&mut self, message: &MessageEntry) -> Vec<SessionUpdate> {
        match (message.role.as_str(), &message.tool_call_id) {
            ("assistant", _) => {
                let (step, rest) = self.said.rest(&message.content);
                let chunks = self.chunks(step, &rest);
                let mut updates: Vec<_> = chunks.map(SessionUpdate::AgentMessageChunk).collect();
                for call in message.tool_calls.iter().filter(|call| !call.cut) {
                    updates.extend(self.called(call));
                }
                updates
            }
            ("tool", Some(id)) => {
                let failed =
                    ["Failed: ", "Refused: "].iter().any(|it| message.content.starts_with(it));
                let call = self.calls.get(id).filter(|_| !failed);
                let written =
                    call.and_then(|it| tools::written(&it.name, &it.arguments, &self.cwd));
                self.answered(id, &message.content, failed, written.into_iter().collect())
            }
            _ => Vec::new(),
        }
    }

    /// What the model thought before it said a message, where that was kept.
    pub fn thought(&self, text: &str) -> Vec<SessionUpdate> {
        let chunks = self.chunks(self.said.step + 1, text);
        chunks.map(SessionUpdate::AgentThoughtChunk).collect()
    }

    /// The open call of a tool with these arguments, by the name under which it is shown.
    pub fn open_call(&self, tool: &str, arguments: &Value) -> Option<ToolCallId> {
        let mut open = self.calls.values().filter(|call| !call.is_over);
        let call = open.find(|call| call.name == tool && call.arguments == *arguments)?;
        Some(call.shown.clone())
    }

    /// A tool was called whose name begins so.
    pub fn has_called(&self, tools: &str) -> bool {
        self.calls.values().any(|call| call.name.starts_with(tools))
    }

    /// Calls that nothing was heard of any more, since the turn ended before they did.
    pub fn left(&mut self) -> Vec<SessionUpdate> {
        let open = self.calls.values_mut().filter(|call| !call.is_over && call.plan.is_none());
        let left = |call: &mut HeldCall| {
            call.is_over = true;
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Failed);
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call.shown.clone(), fields))
        };
        open.map(left).collect()
    }

    fn called(&mut self, entry: &ToolCallEntry) -> Vec<SessionUpdate> {
        let before = self.calls.get(&entry.id);
        if before.is_some_and(|call| !call.is_over || call.arguments == entry.arguments) {
            return Vec::new();
        }
        // Some models begin to count anew with each step.
        let again = if before.is_some() { format!(".{}", self.said.step) } else { String::new() };
        let shown = ToolCallId::new(format!("{}/{}{again}", self.turn, entry.id));
        let plan = tools::plan(entry);
        let mut call = tools::call(entry, &self.cwd);
        call.tool_call_id = shown.clone();
        let held = HeldCall {
            shown,
            name: entry.name.clone(),
            arguments: entry.arguments.clone(),
            plan: plan.clone(),
            is_over: false,
            printed: String::new(),
            printed_at: None,
        };
        self.calls.insert(entry.id.clone(), held);
        if plan.is_some() { Vec::new() } else { vec![SessionUpdate::ToolCall(call)] }
    }

    fn printed(&mut self, id: &str, text: &str) -> Vec<SessionUpdate> {
        let Some(call) = self.calls.get_mut(id) else { return Vec::new() };
        call.printed.push_str(text);
        if call.printed_at.is_some_and(|at| at.elapsed() < PRINTED_EVERY) {
            return Vec::new();
        }
        call.printed_at = Some(Instant::now());
        let content = vec![tools::text(tools::shown(&call.printed))];
        self.changed(id, ToolCallUpdateFields::new().content(content))
    }

    fn answered(
        &mut self,
        id: &str,
        text: &str,
        failed: bool,
        mut content: Vec<ToolCallContent>,
    ) -> Vec<SessionUpdate> {
        if content.is_empty() {
            content.push(tools::text(tools::shown(text)));
        }
        let status = if failed { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
        let fields = ToolCallUpdateFields::new().status(status).content(content);
        let mut updates = self.changed(id, fields);
        if let Some(call) = self.calls.get_mut(id) {
            // What the tool did not take is the model's to mend.
            let shown = call.plan.clone().filter(|_| !call.is_over && !failed);
            updates.extend(shown.map(SessionUpdate::Plan));
            call.is_over = true;
            call.printed = String::new();
        }
        updates
    }

    /// Nothing is said of a call that is over.
    fn changed(&self, id: &str, fields: ToolCallUpdateFields) -> Vec<SessionUpdate> {
        let open = self.calls.get(id).filter(|call| !call.is_over && call.plan.is_none());
        let update = |call: &HeldCall| ToolCallUpdate::new(call.shown.clone(), fields);
        open.map(update).map(SessionUpdate::ToolCallUpdate).into_iter().collect()
    }

    fn chunks(&self, step: u32, text: &str) -> impl Iterator<Item = ContentChunk> {
        chunks(format!("{}/{step}", self.turn), text)
    }
}

/// A text in pieces that every client can read.
pub fn chunks(message: String, text: &str) -> impl Iterator<Item = ContentChunk> {
    let id = MessageId::new(message);
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, behind) = rest.split_at(rest.floor_char_boundary(CHUNK_BYTES_MAX));
        rest = behind;
        let chunk = || ContentChunk::new(piece.to_owned().into()).message_id(id.clone());
        (!piece.is_empty()).then(chunk)
    })
}

impl Said {
    /// What of a piece is not told yet. What stands behind something that was missed waits for the message.
    fn take(&mut self, piece: &Piece) -> Option<String> {
        if piece.step > self.step {
            *self = Self { step: piece.step, ..Self::default() };
        }
        if piece.step < self.step || self.is_whole || piece.offset > self.chars {
            return None;
        }
        let known = usize::try_from(self.chars - piece.offset).ok()?;
        let rest = behind(&piece.text, known)?;
        self.chars += rest.chars().count() as u64;
        Some(rest.to_owned())
    }

    /// The step that a message ends, and what of it is not told yet.
    fn rest(&mut self, content: &str) -> (u32, String) {
        if self.is_whole {
            *self = Self { step: self.step + 1, ..Self::default() };
        }
        self.is_whole = true;
        let known = usize::try_from(self.chars).unwrap_or(usize::MAX);
        (self.step, behind(content, known).unwrap_or_default().to_owned())
    }
}

/// What stands behind so many characters; `None` for nothing.
fn behind(text: &str, chars: usize) -> Option<&str> {
    let (at, _) = text.char_indices().nth(chars)?;
    Some(&text[at..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told() -> Told {
        Told::new("t".into(), "/w".into())
    }

    fn delta(step: u32, offset: u64, text: &str) -> Event {
        Event::Delta(Piece { step, offset, text: text.into() })
    }

    fn message(value: Value) -> Event {
        let message = serde_json::from_value(value).unwrap();
        Event::Message { index: 1, message: Box::new(message) }
    }

    fn says(content: &str, calls: Value) -> Event {
        message(json!({"index": 1, "role": "assistant", "content": content, "tool_calls": calls}))
    }

    /// Each update as `who/name: what`.
    fn check(told: &mut Told, event: &Event, expected: &[&str]) {
        let shown = told.happened(event).into_iter().map(|update| {
            let update = json!(update);
            let text = |at: &str| update.pointer(at).and_then(Value::as_str).unwrap_or_default();
            match text("/sessionUpdate") {
                "agent_message_chunk" => {
                    format!("{}: {}", text("/messageId"), text("/content/text"))
                }
                "agent_thought_chunk" => {
                    format!("{}? {}", text("/messageId"), text("/content/text"))
                }
                "tool_call" => format!("{} {}", text("/toolCallId"), text("/title")),
                "tool_call_update" => format!(
                    "{} {} {}",
                    text("/toolCallId"),
                    text("/status"),
                    text("/content/0/content/text")
                ),
                other => other.to_owned(),
            }
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{event:?}");
    }

    #[test]
    fn pieces_come_once_and_messages_make_up_for_what_was_missed() {
        let told = &mut told();
        check(told, &delta(1, 0, "Grüß"), &["t/1: Grüß"]);
        check(told, &delta(1, 2, "üß dich"), &["t/1:  dich"]);
        check(told, &delta(1, 20, "missed before"), &[]);
        check(told, &says("Grüß dich, Welt", json!([])), &["t/1: , Welt"]);
        check(told, &delta(1, 15, "late"), &[]);
        check(told, &delta(2, 0, "b"), &["t/2: b"]);
        check(told, &says("b", json!([])), &[]);
        // A step of which no piece came.
        check(told, &says("whole", json!([])), &["t/3: whole"]);
        check(told, &delta(3, 0, "whole"), &[]);
        check(told, &delta(4, 0, "on"), &["t/4: on"]);
    }

    #[test]
    fn a_long_text_comes_in_pieces() {
        let check = |text: &str, expected: usize| {
            let shown: Vec<_> = chunks("m".into(), text).map(|it| json!(it)).collect();
            let all = shown.iter().map(|it| it["content"]["text"].as_str().unwrap());
            assert_eq!((all.collect::<String>().as_str(), shown.len()), (text, expected));
        };
        check("", 0);
        check(&"x".repeat(CHUNK_BYTES_MAX), 1);
        check(&"x".repeat(CHUNK_BYTES_MAX + 1), 2);
        check(&"€".repeat(CHUNK_BYTES_MAX / 3 + 1), 2);
    }

    #[test]
    fn thoughts_are_told_apart() {
        let told = &mut told();
        let piece = Piece { step: 1, offset: 0, text: "hm".into() };
        check(told, &Event::Reasoning(piece), &["t/1? hm"]);
        check(told, &delta(1, 0, "so"), &["t/1: so"]);
    }

    #[test]
    fn a_call_is_told_from_its_events_or_from_its_messages() {
        let call = json!({"id": "c", "name": "glob", "arguments": {"pattern": "*"}});
        let entry = || Event::ToolCall(serde_json::from_value(call.clone()).unwrap());
        let result = json!({"id": "c", "content": "a b", "failed": false, "duration_ms": 1});
        let mut result: Value = result;
        result["type"] = "tool_result".into();
        let result: Event = serde_json::from_value(result).unwrap();
        let written = json!({"index": 2, "role": "tool", "content": "a b", "tool_call_id": "c"});
        let told = &mut told();
        check(told, &entry(), &["t/c glob *"]);
        check(told, &says("", json!([call])), &[]);
        check(told, &Event::ToolStarted { id: "c".into() }, &["t/c in_progress "]);
        let printed = |text: &str| Event::ToolOutput { id: "c".into(), text: text.into() };
        check(told, &printed("a"), &["t/c  a"]);
        check(told, &printed(" b"), &[]);
        check(told, &result, &["t/c completed a b"]);
        check(told, &message(written.clone()), &[]);
        check(told, &Event::ToolStarted { id: "c".into() }, &[]);
        // The same id for something else is another call.
        let other = json!([{"id": "c", "name": "glob", "arguments": {"pattern": "x"}}]);
        check(told, &says("", other), &["t/c.2 glob x"]);
        assert!(told.open_call("glob", &json!({"pattern": "*"})).is_none());
        assert!(told.open_call("glob", &json!({"pattern": "x"})).is_some());
        assert_eq!((told.left().len(), told.left().len()), (1, 0));
        let told = &mut self::told();
        check(told, &says("look", json!([call])), &["t/1: look", "t/c glob *"]);
        check(told, &message(written), &["t/c completed a b"]);
    }
}
