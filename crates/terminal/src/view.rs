//! One agent's conversation as it is shown: what happened, made into lines that are printed once.
//!
//! What is printed comes from the server's events alone, for turns of this terminal and of others alike. An event may tell
//! what a message told before, or the other way round: after a reconnection, or when a terminal comes in the middle of a
//! turn. So everything that is printed is noted by its name, and said once.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nexus_protocol::conversation::{MessageEntry, ToolCallEntry};
use nexus_protocol::permission::{ApprovalKind, FileChange};
use nexus_protocol::turn::RequestId;
use nexus_protocol::usage::Usage;
use nexus_protocol::watch::{Asked, Event, Happened, Piece, TurnEntry, TurnFailure, WatchedAgent};

use crate::code::Highlighter;
use crate::figures::{count, request};
use crate::links;
use crate::markdown::{Look, Markdown};
use crate::options::{Reasoning, Settings};
use crate::shown::{Shown, Sieve};
use crate::style::{Colour, Line, Style};
use crate::toolview::{self, Outcome};

pub struct View {
    pub agent: String,
    settings: Settings,
    /// What is said now, on its way to lines.
    text: Text,
    /// Of the last message that is printed; -1 before the first.
    last_index: i64,
    turn: Option<Turn>,
    /// Turns that wait, and what they were asked.
    queue: Vec<(RequestId, String)>,
    /// Turns of which the question is printed.
    asked: HashSet<String>,
    /// Turns that this terminal began.
    own: HashSet<String>,
    /// Calls that are printed, with the names of their tools, and results.
    calls: HashMap<String, String>,
    results: HashSet<String>,
    /// How things stood when the watch began, until what was missed before it is printed.
    standing: Option<TurnEntry>,
    /// The turn that is shown was over then.
    has_ended: bool,
    /// How many messages there were: what was missed is printed when they are. 0 when it is.
    caught_up_at: u64,
    /// Something that the agent would do waits for somebody's leave.
    waits_for_approval: bool,
    /// What the messages say that were printed last of a turn which this did not see from its beginning.
    told: Option<Told>,
}

/// As far as a turn is printed from its messages.
struct Told {
    turn: String,
    /// What it said last, and how many calls it made.
    text: String,
    calls: usize,
}

/// The turn that runs.
struct Turn {
    id: RequestId,
    began: Instant,
    activity: Activity,
    step: u32,
    /// Characters of the step's text that are printed.
    said: u64,
    thought: Option<Thought>,
    tools: usize,
    /// What the call that runs has put out last.
    output: String,
    /// It only summarises, and says so itself.
    is_compaction: bool,
}

/// The text of one step on its way to lines.
struct Text {
    sieve: Sieve,
    markdown: Markdown,
    dir: Option<PathBuf>,
}

struct Thought {
    began: Instant,
    sieve: Sieve,
    /// What of it is not a whole line yet.
    rest: String,
}

/// What happens now, in plain words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    Waiting,
    /// The provider lets it wait.
    Held(String),
    Thinking,
    Writing,
    Running(String),
    /// For somebody's leave.
    Approval,
}

/// Who asks for a turn that is a compaction.
const COMPACTION: &str = "compact";

/// Most of a call's output that stands in the live part.
const OUTPUT_BYTES_MAX: usize = 4 << 10;

impl View {
    pub fn new(agent: String, settings: Settings, look: Look) -> Self {
        Self {
            agent,
            settings,
            text: Text::new(look),
            last_index: -1,
            turn: None,
            queue: Vec::new(),
            asked: HashSet::new(),
            own: HashSet::new(),
            calls: HashMap::new(),
            results: HashSet::new(),
            standing: None,
            has_ended: false,
            caught_up_at: 0,
            waits_for_approval: false,
            told: None,
        }
    }

    pub fn last_index(&self) -> i64 {
        self.last_index
    }

    /// Messages before this are not shown: the conversation is taken up behind them.
    pub fn begin_at(&mut self, index: u64) {
        self.last_index = index as i64 - 1;
    }

    /// A turn of this terminal.
    pub fn own(&mut self, id: &RequestId) {
        self.own.insert(request(id));
    }

    /// The turn that ran is over, and nobody tells its end.
    pub fn forget_turn(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        self.close_text(&mut lines);
        self.turn = None;
        lines
    }

    /// Whether the turn's question is on the screen, so that its end will be.
    pub fn was_asked(&self, id: &RequestId) -> bool {
        self.asked.contains(&request(id))
    }

    /// Where the agent works: links to its files can be opened.
    pub fn work_in(&mut self, dir: &str) {
        if self.text.dir.as_deref() != Some(Path::new(dir)) {
            self.text.dir = Some(dir.into());
        }
    }

    /// What is said from here on looks like this.
    pub fn look_as(&mut self, look: Look) {
        self.text.markdown.look_as(look);
    }

    pub fn running(&self) -> Option<&RequestId> {
        self.turn.as_ref().map(|turn| &turn.id)
    }

    /// What runs, for how long, and how many wait.
    pub fn activity(&self) -> Option<(&Activity, std::time::Duration)> {
        self.turn.as_ref().map(|turn| match self.waits_for_approval {
            true => (&Activity::Approval, turn.began.elapsed()),
            false => (&turn.activity, turn.began.elapsed()),
        })
    }

    pub fn queued(&self) -> &[(RequestId, String)] {
        &self.queue
    }

    pub fn wait_for_approval(&mut self, does: bool) {
        self.waits_for_approval = does;
    }

    /// Whether all that was said before the watch began is printed.
    pub fn has_caught_up(&self) -> bool {
        self.last_index + 1 >= self.caught_up_at as i64
    }

    /// The text that is not finished, as it stands.
    pub fn open(&self) -> Vec<Line> {
        let mut lines = self.text.open();
        let Some(turn) = &self.turn else { return lines };
        lines.extend(
            turn.output
                .lines()
                .rev()
                .take(3)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .map(|line| Line::styled(format!("  {line}"), Style::DIM)),
        );
        lines
    }

    /// Rows of the open text that do not fit into the live part become finished.
    pub fn overflow(&mut self, rows_max: usize) -> Vec<Line> {
        self.text.overflow(rows_max)
    }

    /// What happened, as lines that are finished.
    pub fn happened(&mut self, happened: Happened) -> Vec<Line> {
        let mut lines = Vec::new();
        let id = happened.request_id;
        match happened.event {
            Event::Snapshot(snapshot) => {
                let agent = snapshot
                    .agents
                    .into_iter()
                    .find(|watched| watched.agent.agent_id == self.agent);
                if let Some(agent) = agent {
                    self.stands(agent, &mut lines);
                }
                return lines;
            }
            Event::Message { index, message } => {
                self.message(index, *message, &mut lines);
                if index + 1 >= self.caught_up_at {
                    self.take_up(&mut lines);
                }
                return lines;
            }
            _ => {}
        }
        // Whatever is no message is of now: what was missed is printed.
        self.take_up(&mut lines);
        match happened.event {
            Event::TurnQueued { asked, .. } => {
                self.queue.extend(id.map(|id| (id, asked.content)));
            }
            Event::TurnStarted { asked, resumed, .. } => {
                if let Some(id) = id {
                    self.begin(id, &asked, resumed, &mut lines);
                }
            }
            Event::Delta(piece) => self.piece(piece, &mut lines),
            Event::Reasoning(piece) => self.thought(&piece.text, &mut lines),
            Event::ToolCall(call) => {
                self.close_text(&mut lines);
                self.call(call, &mut lines);
            }
            Event::ToolStarted { id } => {
                let name = self.calls.get(&id).cloned();
                if let (Some(turn), Some(name)) = (&mut self.turn, name) {
                    turn.output.clear();
                    turn.activity = Activity::Running(name);
                }
            }
            Event::ToolOutput { text, .. } => self.output(&text),
            Event::ToolProgress { progress, total, message, .. } => {
                let mut line = match total {
                    Some(total) => format!("{progress}/{total}"),
                    None => progress.to_string(),
                };
                if let Some(message) = message {
                    line = format!("{line} {message}");
                }
                self.output(&format!("{line}\n"));
            }
            Event::ToolResult { id, content, failed, refused_by, change, .. } => {
                if let Some(turn) = &mut self.turn {
                    turn.output.clear();
                    turn.activity = Activity::Waiting;
                }
                let refused_by = refused_by.as_deref();
                let outcome = Outcome { content: &content, failed, refused_by };
                self.result(&id, outcome, change.as_ref(), &mut lines);
            }
            Event::Waiting { reason, wait_ms } => {
                let words = match wait_ms {
                    Some(wait) => {
                        format!("{} ({} s)", reason.replace('_', " "), wait.div_ceil(1_000))
                    }
                    None => reason.replace('_', " "),
                };
                if let Some(turn) = &mut self.turn {
                    turn.activity = Activity::Held(words);
                }
            }
            Event::ApprovalRequested { approval }
                if approval.agent_id == self.agent
                    && approval.kind != ApprovalKind::Elicitation
                    && !self.settings.plain =>
            {
                self.close_text(&mut lines);
                let yellow = Style::colour(Colour::Yellow);
                lines.push(Line::styled("? waits for approval", yellow));
            }
            Event::Fallback { from, to, reason } => {
                self.close_step(&mut lines);
                let words = match self.settings.plain {
                    true => format!("{from} is replaced by {to}: {reason}"),
                    false => format!("{from} → {to}: {reason}"),
                };
                lines.push(Line::styled(words, Style::DIM));
            }
            Event::Compacted { tokens_before, tokens_after } => {
                let (before, after) = (count(tokens_before), count(tokens_after));
                let words = format!("Compacted: {before} -> {after} tokens");
                lines.push(Line::styled(words, Style::DIM));
            }
            Event::TurnEnded { status, error, duration_ms, usage, cost_usd, .. } => {
                let Some(id) = id else { return lines };
                self.queue.retain(|(queued, _)| queued != &id);
                let is_running = self.turn.as_ref().is_some_and(|turn| turn.id == id);
                if is_running {
                    self.close_text(&mut lines);
                    let turn = self.turn.take();
                    if error.is_none() && turn.as_ref().is_some_and(|turn| turn.is_compaction) {
                        return lines;
                    }
                    let tools = turn.map_or(0, |turn| turn.tools);
                    lines.push(match (self.settings.plain, &error) {
                        (false, _) => ended(&status, error, duration_ms, tools, &usage, cost_usd),
                        (true, Some(error)) => Line::plain(format!("{status}: {}", error.message)),
                        (true, None) => Line::plain(format!("{status}, {} s", duration_ms / 1_000)),
                    });
                }
            }
            _ => {}
        }
        lines
    }

    /// What a call that runs puts out; the end of it is shown.
    fn output(&mut self, text: &str) {
        if let Some(turn) = &mut self.turn {
            turn.output.push_str(text);
            let surplus = turn.output.len().saturating_sub(OUTPUT_BYTES_MAX);
            let surplus = turn.output.ceil_char_boundary(surplus);
            turn.output.drain(..surplus);
        }
    }

    /// A message of the conversation; what of it was printed as it came is not printed again.
    pub fn message(&mut self, index: u64, message: MessageEntry, lines: &mut Vec<Line>) {
        if (index as i64) <= self.last_index {
            return;
        }
        self.last_index = index as i64;
        let meta = message.meta.as_ref();
        let id = meta.and_then(|meta| meta.request_id.clone());
        match message.role.as_str() {
            "user" => {
                let is_asked = id.as_ref().is_some_and(|id| !self.asked.insert(request(id)));
                if !is_asked && !message.content.is_empty() {
                    let from = meta.and_then(|meta| {
                        meta.source_agent_id.clone().or_else(|| meta.source.clone())
                    });
                    self.close_text(lines);
                    lines.extend(self.question(&message.content, id.as_ref(), from));
                }
            }
            "assistant" => {
                let is_now = matches!((&self.turn, &id), (Some(turn), Some(id)) if turn.id == *id);
                if is_now {
                    self.rest_of_step(&message.content, lines);
                } else {
                    lines.extend(self.text.push(&message.content));
                    lines.extend(self.text.finish());
                    self.tell(id.as_ref(), &message);
                }
                for call in message.tool_calls {
                    self.call(call, lines);
                }
                if meta.is_some_and(|meta| meta.interrupted) && !is_now {
                    lines.push(Line::styled("… cut off", Style::DIM));
                }
            }
            "tool" => {
                if let Some(call) = &message.tool_call_id {
                    let content = message.content.as_str();
                    let outcome = Outcome { content, failed: false, refused_by: None };
                    self.result(call, outcome, None, lines);
                }
            }
            _ => lines.push(Line::styled("… what came before is summarised", Style::DIM)),
        }
    }

    /// Notes what is printed of a turn from a message of it.
    fn tell(&mut self, turn: Option<&RequestId>, message: &MessageEntry) {
        let turn = turn.map(request);
        let told = self.told.take().filter(|told| turn.as_ref() == Some(&told.turn));
        self.told = turn.map(|turn| Told {
            turn,
            text: message.content.clone(),
            calls: told.map_or(0, |told| told.calls) + message.tool_calls.len(),
        });
    }

    /// How things stand when a watch begins.
    fn stands(&mut self, agent: WatchedAgent, lines: &mut Vec<Line>) {
        let count = agent.agent.message_count;
        let mut turns = agent.turns;
        let running = match turns.first() {
            Some(turn) if turn.status == "running" => Some(turns.remove(0)),
            _ => None,
        };
        self.queue = turns.into_iter().map(|turn| (turn.request_id, turn.asked.content)).collect();
        let running_id = running.as_ref().map(|running| &running.request_id);
        self.has_ended = self.turn.as_ref().is_some_and(|turn| running_id != Some(&turn.id));
        self.standing = running;
        self.caught_up_at = count;
        if self.has_caught_up() {
            self.take_up(lines);
        }
    }

    /// What was missed is printed: ends a turn that ended while nobody looked, and goes on with one that runs already.
    fn take_up(&mut self, lines: &mut Vec<Line>) {
        self.caught_up_at = 0;
        if std::mem::take(&mut self.has_ended) {
            self.close_text(lines);
            let lasted = self.turn.take().map_or(0, |turn| turn.began.elapsed().as_millis());
            lines.push(match self.settings.plain {
                false => {
                    let words = format!("─ {}.{} s", lasted / 1_000, lasted % 1_000 / 100);
                    Line::styled(words + " · its end was not seen", Style::DIM)
                }
                true => Line::plain(format!("ended, {} s", lasted / 1_000)),
            });
        }
        let Some(entry) = self.standing.take() else { return };
        let id = entry.request_id;
        if self.turn.as_ref().is_none_or(|turn| turn.id != id) {
            self.begin(id, &entry.asked, false, lines);
        }
        let Some(running) = entry.running else { return };
        // The text is that of all steps; the end of it is of this one.
        let before = running.text.chars().count().saturating_sub(running.offset as usize);
        let text: String = running.text.chars().skip(before).collect();
        let offset = running.offset - text.chars().count() as u64;
        if self.has_told(&text, running.open_calls.first()) {
            if let Some(turn) = &mut self.turn {
                (turn.step, turn.said) = (running.step, running.offset);
            }
        } else if !text.is_empty() {
            self.piece(Piece { step: running.step, offset, text }, lines);
        }
        if !running.open_calls.is_empty() {
            self.close_text(lines);
        }
        for call in running.open_calls {
            let name = call.name.clone();
            self.call(call, lines);
            if let Some(turn) = &mut self.turn {
                turn.activity = Activity::Running(name);
            }
        }
    }

    /// Whether this text of the turn that runs is printed from the step's message: a call of that is, or there is none that
    /// runs any more and the message said the same.
    fn has_told(&self, text: &str, open_call: Option<&ToolCallEntry>) -> bool {
        match open_call {
            Some(call) => self.calls.contains_key(&call.id),
            None => self.told_of_turn().is_some_and(|told| told.calls > 0 && told.text == text),
        }
    }

    /// What is printed of the turn that runs from its messages.
    fn told_of_turn(&self) -> Option<&Told> {
        let turn = request(&self.turn.as_ref()?.id);
        self.told.as_ref().filter(|told| told.turn == turn)
    }

    fn begin(&mut self, id: RequestId, asked: &Asked, resumed: bool, lines: &mut Vec<Line>) {
        self.close_text(lines);
        self.queue.retain(|(queued, _)| queued != &id);
        if self.asked.insert(request(&id)) && !asked.content.is_empty() {
            let from = asked.source_agent_id.clone().or_else(|| asked.source.clone());
            lines.extend(self.question(&asked.content, Some(&id), from));
        } else if resumed {
            let words = if self.settings.plain { "goes on" } else { "▶ goes on" };
            lines.push(Line::styled(words, Style::DIM));
        }
        self.turn = Some(Turn {
            id,
            began: Instant::now(),
            activity: Activity::Waiting,
            step: 0,
            said: 0,
            thought: None,
            tools: 0,
            output: String::new(),
            is_compaction: asked.content.is_empty() && asked.source.as_deref() == Some(COMPACTION),
        });
        let tools = if resumed { 0 } else { self.told_of_turn().map_or(0, |told| told.calls) };
        if let Some(turn) = &mut self.turn {
            turn.tools = tools;
        }
    }

    fn question(&self, content: &str, id: Option<&RequestId>, from: Option<String>) -> Vec<Line> {
        let is_own = id.is_some_and(|id| self.own.contains(&request(id)));
        let from = from.filter(|from| !is_own && !from.starts_with("terminal:"));
        let (mark, style) = match from {
            Some(from) if self.settings.plain => (format!("from {from}: "), Style::PLAIN),
            Some(from) => (format!("▶ from {from}: "), Style::colour(Colour::Magenta)),
            None => ("you> ".to_owned(), Style::colour(Colour::Cyan).bold()),
        };
        if is_own && self.settings.plain {
            // It stands where it was typed.
            return Vec::new();
        }
        let mut lines = vec![Line::default()];
        for (number, text) in Shown::from(content).as_str().lines().enumerate() {
            lines.push(match number {
                0 => Line::styled(mark.as_str(), style).with(text, Style::PLAIN),
                _ => Line::plain(text),
            });
        }
        lines
    }

    fn piece(&mut self, piece: Piece, lines: &mut Vec<Line>) {
        if self.turn.as_ref().is_some_and(|turn| turn.step != piece.step) {
            self.close_step(lines);
        }
        self.end_thought(lines);
        let Some(turn) = &mut self.turn else { return };
        turn.step = piece.step;
        turn.activity = Activity::Writing;
        // What is known already is passed over.
        let known = turn.said.saturating_sub(piece.offset);
        let end = piece.offset + piece.text.chars().count() as u64;
        // And what is behind something that was missed waits for the message, which has all of it.
        if end <= turn.said || piece.offset > turn.said {
            return;
        }
        let text = match known {
            0 => piece.text.as_str(),
            _ => {
                let from = piece.text.char_indices().nth(known as usize);
                from.map_or("", |(at, _)| &piece.text[at..])
            }
        };
        turn.said = end;
        lines.extend(self.text.push(text));
    }

    /// What of a step's text did not come as it was made.
    fn rest_of_step(&mut self, content: &str, lines: &mut Vec<Line>) {
        self.end_thought(lines);
        let Some(turn) = &mut self.turn else { return };
        let rest = content.char_indices().nth(turn.said as usize);
        if let Some((at, _)) = rest {
            lines.extend(self.text.push(&content[at..]));
        }
        self.close_step(lines);
    }

    fn thought(&mut self, text: &str, lines: &mut Vec<Line>) {
        let how = self.settings.reasoning;
        let Some(turn) = &mut self.turn else { return };
        turn.activity = Activity::Thinking;
        let thought = turn.thought.get_or_insert_with(|| Thought {
            began: Instant::now(),
            sieve: Sieve::default(),
            rest: String::new(),
        });
        if how == Reasoning::Text {
            thought.rest.push_str(&thought.sieve.push(text));
            while let Some(end) = thought.rest.find('\n') {
                let line: String = thought.rest.drain(..=end).collect();
                lines.push(Line::styled(line.trim_end_matches('\n'), Style::DIM));
            }
        }
    }

    fn end_thought(&mut self, lines: &mut Vec<Line>) {
        let Some(thought) = self.turn.as_mut().and_then(|turn| turn.thought.take()) else { return };
        match self.settings.reasoning {
            Reasoning::Time => {
                let words = format!("thought {} s", thought.began.elapsed().as_secs());
                lines.push(Line::styled(words, Style::DIM));
            }
            Reasoning::Text if !thought.rest.is_empty() => {
                lines.push(Line::styled(thought.rest, Style::DIM));
            }
            Reasoning::Text | Reasoning::Off => {}
        }
    }

    /// What comes next is no text of the step. How much of it was said is known until its message has come, which has all
    /// of it again.
    fn close_text(&mut self, lines: &mut Vec<Line>) {
        self.end_thought(lines);
        lines.extend(self.text.finish());
    }

    /// What is said next is another step's, or said anew.
    fn close_step(&mut self, lines: &mut Vec<Line>) {
        self.close_text(lines);
        if let Some(turn) = &mut self.turn {
            turn.said = 0;
        }
    }

    fn call(&mut self, call: ToolCallEntry, lines: &mut Vec<Line>) {
        if self.calls.contains_key(&call.id) {
            return;
        }
        let short = toolview::short(&call.id);
        lines.push(match self.settings.plain {
            true => toolview::call_in_words(&call, short),
            false => toolview::call(&call, short),
        });
        if let Some(turn) = &mut self.turn {
            turn.tools += 1;
        }
        self.calls.insert(call.id, call.name);
    }

    fn result(
        &mut self,
        id: &str,
        outcome: Outcome<'_>,
        change: Option<&FileChange>,
        lines: &mut Vec<Line>,
    ) {
        if !self.results.insert(id.to_owned()) {
            return;
        }
        self.close_text(lines);
        let (short, settings) = (toolview::short(id), &self.settings);
        lines.extend(match change {
            Some(change) if !outcome.failed => toolview::diff(change, short, settings.diff_lines),
            _ if settings.plain => toolview::result_in_words(outcome, short, settings.tool_lines),
            _ => toolview::result(outcome, short, settings.tool_lines),
        });
    }
}

impl Text {
    fn new(look: Look) -> Self {
        let markdown = Markdown::new(look).with_highlighter(Highlighter::new(look.theme));
        Self { sieve: Sieve::default(), markdown, dir: None }
    }

    fn open(&self) -> Vec<Line> {
        self.placed(self.markdown.open())
    }

    fn overflow(&mut self, rows_max: usize) -> Vec<Line> {
        let lines = self.markdown.overflow(rows_max);
        self.placed(lines)
    }

    /// With links that lead where they may.
    fn placed(&self, mut lines: Vec<Line>) -> Vec<Line> {
        links::place(&mut lines, self.dir.as_deref());
        lines
    }

    fn push(&mut self, text: &str) -> Vec<Line> {
        let clean = self.sieve.push(text);
        let lines = self.markdown.push(&clean);
        self.placed(lines)
    }

    fn finish(&mut self) -> Vec<Line> {
        let rest = self.sieve.finish();
        let mut lines = self.markdown.push(&rest);
        lines.extend(self.markdown.finish());
        self.placed(lines)
    }
}

/// A whole answer at once.
pub fn whole(content: &str, look: Look) -> Vec<Line> {
    let mut text = Text::new(look);
    let mut lines = text.push(content);
    lines.extend(text.finish());
    lines
}

fn ended(
    status: &str,
    error: Option<TurnFailure>,
    duration_ms: u64,
    tools: usize,
    usage: &Usage,
    cost: Option<f64>,
) -> Line {
    let mut words = format!("─ {}.{} s", duration_ms / 1_000, duration_ms % 1_000 / 100);
    match tools {
        0 => {}
        1 => words += " · 1 tool",
        _ => words += &format!(" · {tools} tools"),
    }
    if usage.input > 0 || usage.output > 0 {
        words += &format!(" · {} in", count(usage.input));
        if usage.cache_read > 0 {
            words += &format!(" ({} cached)", count(usage.cache_read));
        }
        words += &format!(" {} out", count(usage.output));
    }
    if let Some(cost) = cost.filter(|cost| *cost > 0.0) {
        words += &format!(" · ${cost:.3}");
    }
    let line = Line::styled(words, Style::DIM);
    let red = Style::colour(Colour::Red);
    match (status, error) {
        ("done", _) => line,
        ("failed", Some(error)) => line.with(format!(" · failed: {}", error.message), red),
        ("halted", _) => line.with(" · stopped at its limit of steps: /continue", red),
        ("truncated", _) => line.with(" · the answer was cut by a limit", red),
        (status, _) => line.with(format!(" · {status}"), Style::colour(Colour::Yellow)),
    }
}
