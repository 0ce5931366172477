//! Approvals on the screen: one at a time, oldest first, and answered by nobody who did not look at it.

use std::sync::Arc;
use std::time::Instant;

use nexus_client::{Api as _, Target};
use nexus_protocol::form::{Choice, Field, Filling};
use nexus_protocol::permission::{
    ApprovalDecision, ApprovalEntry, ApprovalGrant, ApprovalKind, ExplainPermission,
    ExplainPermissionParams, Preview, RespondApproval, RespondApprovalParams,
};
use serde_json::Value;

use super::App;
use super::panel::{Asks, Panel, part};
use crate::cx::Front;
use crate::keys::{Code, Key};
use crate::shown::Shown;
use crate::style::{Colour, Line, Style};
use crate::toolview::{for_shell, raw_line};

/// Rows of a diff, a command or a message that are shown in the panel; the rest is in the pager.
const PREVIEW_LINES: usize = 12;

impl App {
    /// The approval that is asked for now: the oldest that was not answered here.
    fn asked_approval(&self) -> Option<&ApprovalEntry> {
        let session = self.session.as_ref()?;
        session.approvals.iter().find(|approval| !self.answered.contains(&approval.approval_id))
    }

    /// Another one may stand there now, and then nobody has looked at it yet.
    pub(super) fn look_at_approvals(&mut self) {
        let asked = self.asked_approval().map(|approval| approval.approval_id.clone());
        if asked != self.approval {
            // A question in front of it keeps what it has.
            if self.panel.is_none() {
                self.focus.forget();
            }
            self.is_dirty = true;
            self.approval = asked;
            if self.approval.is_some() && self.options.settings.bell_approval {
                let _ = self.tty.write("\x07");
            }
        }
    }

    /// Gives the keys to the question that stands on the screen.
    pub(super) fn turn_to_question(&mut self) {
        if self.asker().is_some() {
            self.focus.turn_to(Instant::now());
        }
    }

    /// Whether the key was the question's.
    pub(super) async fn approval_key(&mut self, key: Key) -> bool {
        let Some(approval) = self.asked_approval() else { return false };
        let id = approval.approval_id.clone();
        if key.ctrl || key.alt {
            return false;
        }
        match key.code {
            Code::Char('y' | '1') if is_question(approval) => {
                let schema = approval.schema.clone().unwrap_or_default();
                let draft = self.editor.clear();
                self.next_field(FormEntry::new(id, &schema), draft);
            }
            Code::Char('n' | '3') if is_question(approval) => {
                self.respond(RespondApprovalParams::new(id, ApprovalDecision::Decline));
            }
            Code::Char('c' | '4') if is_question(approval) => {
                self.respond(RespondApprovalParams::new(id, ApprovalDecision::Cancel));
            }
            Code::Char('y' | '1') => {
                self.respond(RespondApprovalParams::new(id, ApprovalDecision::AllowOnce));
            }
            Code::Char('a' | '2') if can_grant(approval) => {
                self.respond(RespondApprovalParams::new(id, ApprovalDecision::AllowSession));
            }
            Code::Char('s' | '5') if approval.has_server() => {
                self.respond(RespondApprovalParams::allow_server(id));
            }
            Code::Char('n' | '3') => {
                self.respond(RespondApprovalParams::new(id, ApprovalDecision::Deny));
            }
            Code::Char('d') if !is_question(approval) => {
                let draft = self.editor.clear();
                self.panel = Some(Panel::Entry { asks: Asks::Denial(id), draft });
            }
            Code::Char('p') => {
                let text = everything(approval);
                self.page(&text).await;
            }
            Code::Char('?') if !is_question(approval) => self.explain(),
            Code::Escape => self.focus.leave(),
            Code::Tab if key.shift => self.focus.leave(),
            _ => return false,
        }
        true
    }

    pub(super) fn respond(&mut self, params: RespondApprovalParams) {
        let Some(session) = &self.session else { return };
        let (link, cx) = (Arc::clone(&session.link), session.cx());
        let id = params.approval_id.clone();
        self.answered.insert(id.clone());
        tokio::spawn(async move {
            if let Err(error) = link.call::<RespondApproval>(&Target::Server, params).await {
                cx.warn(error.to_string());
                cx.tell(Front::AskAgain(id));
            }
        });
        self.look_at_approvals();
    }

    pub(super) fn ask_again(&mut self, id: &str) {
        self.answered.remove(id);
        self.look_at_approvals();
    }

    /// Takes what was written for a field of a form.
    pub(super) fn fill(&mut self, mut entry: FormEntry, draft: String, written: &str) {
        entry.fault = entry.filling.take(written).err();
        self.next_field(entry, draft);
    }

    /// Asks for the next field; when there is none, the form is sent.
    fn next_field(&mut self, entry: FormEntry, draft: String) {
        if entry.filling.field().is_some() {
            self.panel = Some(Panel::Entry { asks: Asks::Field(entry), draft });
            return;
        }
        self.editor.set(&draft);
        self.close_panel();
        let params = RespondApprovalParams::new(entry.approval, ApprovalDecision::Accept);
        self.respond(RespondApprovalParams { content: Some(entry.filling.content()), ..params });
    }

    /// The gate's own words.
    fn explain(&self) {
        let (Some(session), Some(approval)) = (&self.session, self.asked_approval()) else {
            return;
        };
        let (link, cx) = (Arc::clone(&session.link), session.cx());
        let target = Target::Agent(approval.agent_id.clone());
        let params = ExplainPermissionParams {
            tool: approval.tool.clone(),
            arguments: Some(approval.arguments.clone()),
        };
        tokio::spawn(async move {
            match link.call::<ExplainPermission>(&target, params).await {
                Ok(said) => {
                    let rule = said.rule.unwrap_or_else(|| "allowed".into());
                    cx.note(format!("{rule}: {}", said.reason.unwrap_or_default()));
                }
                Err(error) => cx.warn(error.to_string()),
            }
        });
    }

    /// What is asked, as rows of the screen.
    pub(super) fn approval_rows(&self, width: usize, rows_max: usize) -> Vec<Line> {
        let Some((asked, answers)) = self.asked_question(width) else { return Vec::new() };
        let keys = match self.focus.has() {
            true => answers,
            false => Line::styled("Shift-Tab to answer", Style::DIM),
        };
        asked.rows(&keys, width, rows_max, "p").lines
    }

    /// Whether those rows say what is asked, once the keys that answer it stand below.
    pub(super) fn is_approval_seen(&self, width: usize, rows_max: usize) -> bool {
        let asked = self.asked_question(width);
        asked.is_some_and(|(asked, answers)| asked.rows(&answers, width, rows_max, "p").is_seen)
    }

    /// What is asked, and the keys that answer it.
    fn asked_question(&self, width: usize) -> Option<(Question, Line)> {
        let approval = self.asked_approval()?;
        let waiting = self.session.as_ref().map_or(0, |session| session.approvals.len());
        Some((Question::of(approval, waiting), answers(approval, width)))
    }
}

/// What is asked beside who asks, where there is no panel; `keys` say how to answer.
pub fn question(approval: &ApprovalEntry, keys: &Line) -> Vec<Line> {
    let rows = Question::of(approval, 1).rows(keys, usize::MAX, usize::MAX, "/approvals");
    rows.lines.into_iter().skip(1).collect()
}

/// How to answer, as far as there is room. What has the highest number goes first; 0 always stands there.
fn answers(approval: &ApprovalEntry, width: usize) -> Line {
    let mut answers = if is_question(approval) {
        vec![("y answer", 0), ("n decline", 0), ("c cancel", 2), ("p all", 1), ("Esc later", 3)]
    } else {
        let mut answers = vec![("y once", 0)];
        answers.extend(can_grant(approval).then_some(("a session", 1)));
        answers.extend(approval.has_server().then_some(("s server", 2)));
        answers.extend([("n deny", 0), ("d deny, saying why", 3), ("p all", 0)]);
        answers.extend([("? rule", 5), ("Esc later", 4)]);
        answers
    };
    loop {
        let words: Vec<&str> = answers.iter().map(|(words, _)| *words).collect();
        let line = Line::styled(words.join(" · "), Style::BOLD);
        let last = answers.iter().map(|(_, order)| *order).max().unwrap_or(0);
        if last == 0 || line.width() <= width {
            return line;
        }
        answers.retain(|(_, order)| *order != last);
    }
}

/// What a person decides upon.
#[derive(Default)]
struct Question {
    who: Line,
    reason: Line,
    /// On what it would be done: a file, another agent.
    subject: Vec<Line>,
    /// What a yes would do, line by line.
    shown: Vec<Line>,
    /// Where that is, and what a yes for longer would allow.
    below: Vec<Line>,
}

impl Question {
    fn of(approval: &ApprovalEntry, waiting: usize) -> Self {
        let yellow = Style::colour(Colour::Yellow);
        let mut who = approval.lineage.join(" › ");
        if !who.is_empty() {
            who.push_str(" › ");
        }
        who.push_str(&approval.agent_id);
        let mut who = Line::styled(format!("? {who}: {}", approval.tool), yellow.bold());
        if waiting > 1 {
            who.push(format!("  1 of {waiting}"), Style::DIM);
        }
        if let Some(left) = approval.expires_at.as_deref().and_then(time_left) {
            who.push(format!("  {left} left"), Style::DIM);
        }
        let mut asked = Self {
            who,
            reason: Line::plain(approval.reason.as_str()),
            below: grants(approval),
            ..Self::default()
        };
        let Self { subject, shown, below, .. } = &mut asked;
        if is_question(approval) {
            let message = approval.message.as_deref().unwrap_or_default();
            // A stranger's words: none of them may pass for ours.
            let quoted = |line| Line::styled("│ ", Style::DIM).with(line, Style::PLAIN);
            shown.extend(message.lines().map(quoted));
            below.extend(approval.url.iter().map(|url| judged(&[("", url)], "", Style::PLAIN)));
            return asked;
        }
        match &approval.preview {
            Some(Preview::Diff(change)) => {
                let cut = if change.truncated { ", cut" } else { "" };
                let size = format!("  +{} -{}{cut}", change.added, change.removed);
                subject.push(judged(&[("", &change.path)], &size, Style::PLAIN));
                shown.extend(change.diff.lines().map(raw_line));
            }
            Some(Preview::Command { argv, command, code, cwd, sandbox }) => {
                let text = command.clone().or_else(|| code.clone());
                let text = text.or_else(|| argv.as_ref().map(for_shell)).unwrap_or_default();
                shown.extend(text.lines().map(|line| judged(&[("", line)], "", Style::PLAIN)));
                let held = format!(", held by {sandbox}");
                below.insert(0, judged(&[("in ", cwd)], &held, Style::DIM));
            }
            Some(Preview::Agent { target, content }) => {
                subject.push(Line::plain(format!("to {target}:")));
                shown.extend(content.lines().map(Line::plain));
            }
            Some(Preview::Write { path, bytes }) => {
                let size = format!("  {bytes} bytes");
                subject.push(judged(&[("", path)], &size, Style::PLAIN));
            }
            None => {
                shown.push(judged(&[("", &approval.arguments.to_string())], "", Style::PLAIN));
            }
        }
        asked
    }

    /// As rows: nothing of it may be beyond the edge of the screen unseen. Of too much it is said how much is missing, and
    /// what shows it. Who asks, that and how to answer always stand there, though it be more than `rows_max`; then what a
    /// yes would do counts for more than why it is asked, and than all of a long name.
    fn rows(self, keys: &Line, width: usize, rows_max: usize, all: &str) -> Rows {
        let broken = |lines: Vec<Line>| -> Vec<Line> {
            lines.iter().flat_map(|line| line.broken(width)).collect()
        };
        let (mut rows, keys) = (self.who.broken(width), keys.broken(width));
        let mut parts = [vec![self.reason], self.subject, self.shown, self.below].map(broken);
        let [reason, subject, shown, below] = [0, 1, 2, 3];
        let room = rows_max.saturating_sub(keys.len());
        let mut missing = rows.len() + parts.iter().map(Vec::len).sum::<usize>();
        if missing > room || parts[shown].len() > PREVIEW_LINES {
            // Beside who asks: a row of what, and how much is missing.
            rows.truncate(room.saturating_sub(2).max(1));
            missing -= rows.len();
            let (mut room, mut kept) = (room.saturating_sub(rows.len() + 1), [0; 4]);
            let all_of = usize::MAX;
            for (part, most) in [
                (subject, all_of),
                (shown, 1),
                (below, all_of),
                (reason, all_of),
                (shown, PREVIEW_LINES - 2),
            ] {
                let more = most.min(parts[part].len() - kept[part]).min(room);
                kept[part] += more;
                room -= more;
            }
            for (part, kept) in parts.iter_mut().zip(kept) {
                part.truncate(kept);
                missing -= kept;
            }
        } else {
            missing = 0;
        }
        let [reason, subject, shown, below] = parts;
        let is_seen = missing == 0 || !(subject.is_empty() && shown.is_empty() && below.is_empty());
        rows.extend(reason.into_iter().chain(subject).chain(shown));
        if missing > 0 {
            rows.push(missing_lines(missing, all));
        }
        rows.extend(below.into_iter().chain(keys));
        Rows { lines: rows, is_seen }
    }

    /// All of it, for the pager.
    fn text(self) -> String {
        let lines = [self.who, self.reason].into_iter().chain(self.subject);
        let lines = lines.chain(self.shown).chain(self.below);
        lines.map(|line| line.text() + "\n").collect()
    }
}

/// A question on the screen.
struct Rows {
    lines: Vec<Line>,
    /// Something of what a yes would do stands there. Before that nobody can say it.
    is_seen: bool,
}

/// So many lines have no room, and this shows them.
pub fn missing_lines(missing: usize, all: &str) -> Line {
    let lines = if missing == 1 { "line" } else { "lines" };
    Line::styled(format!("… {missing} more {lines}: {all}"), Style::DIM)
}

/// A form that is being filled in.
pub struct FormEntry {
    approval: String,
    filling: Filling,
    /// What was wrong with what was written last.
    fault: Option<String>,
}

impl FormEntry {
    fn new(approval: String, schema: &Value) -> Self {
        Self { approval, filling: Filling::new(schema), fault: None }
    }

    /// The field in at most so many rows. Of a stranger's choices those are seen that begin with the one that somebody is
    /// writing.
    pub fn rows(&self, width: usize, rows_max: usize, written: &str) -> Vec<Line> {
        let Some(field) = self.filling.field() else { return Vec::new() };
        let fault =
            self.fault.iter().map(|it| Line::styled(it.as_str(), Style::colour(Colour::Red)));
        let head = fault.chain(field_words(field)).flat_map(|line| line.broken(width)).collect();
        let meant = meant(field.kind.choices(), written);
        let (mut choices, mut chosen) = (Vec::new(), 0);
        for (at, line) in choice_rows(field).enumerate() {
            if Some(at) == meant {
                chosen = choices.len();
            }
            choices.extend(line.broken(width));
        }
        // Half of the room is the choices', or what they need of it.
        let head_max = rows_max - choices.len().min(rows_max / 2);
        let mut rows = part(head, 0, head_max);
        rows.extend(part(choices, chosen, rows_max - rows.len()));
        rows
    }
}

/// The choice that somebody is writing, by its number or its name.
fn meant(choices: &[Choice], written: &str) -> Option<usize> {
    let word = written.rsplit(',').next().unwrap_or_default().trim();
    let number = word.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let is_named = |it: &Choice| it.label.starts_with(word) || it.value.starts_with(word);
    let named = || choices.iter().position(is_named);
    number.filter(|at| *at < choices.len()).or_else(named)
}

/// A field of a form, as a person is asked for it.
pub fn field_rows(field: &Field) -> Vec<Line> {
    field_words(field).into_iter().chain(choice_rows(field)).collect()
}

fn field_words(field: &Field) -> Vec<Line> {
    let mut words = format!("{}: {}", field.label, field.kind.hint());
    if let Some(default) = field.default_words() {
        words.push_str(&format!("; {default} when empty"));
    } else if !field.required {
        words.push_str("; may stay empty");
    }
    let mut rows = vec![Line::styled(words, Style::colour(Colour::Yellow))];
    rows.extend(field.description.iter().map(|it| Line::styled(it.as_str(), Style::DIM)));
    rows
}

fn choice_rows(field: &Field) -> impl Iterator<Item = Line> {
    let choices = field.kind.choices().iter().enumerate();
    choices.map(|(at, it)| Line::plain(format!("{}) {}", at + 1, it.label)))
}

/// Whether a server wants to know something, and nobody's leave is asked for.
pub fn is_question(approval: &ApprovalEntry) -> bool {
    approval.kind == ApprovalKind::Elicitation
}

/// What is granted for the session is named; where nothing is, it is not offered, and never for what no sandbox holds.
pub fn can_grant(approval: &ApprovalEntry) -> bool {
    approval.grant.is_some() && approval.tool != "shell_UNSAFE"
}

/// What a yes for longer than once would allow.
fn grants(approval: &ApprovalEntry) -> Vec<Line> {
    let line = |pieces: &[(&str, &str)], rest: &str| judged(pieces, rest, Style::DIM);
    match &approval.grant {
        Some(ApprovalGrant::Write { path }) => {
            vec![line(&[("for the session: may write ", path)], "")]
        }
        Some(ApprovalGrant::Command { tool, dir }) if can_grant(approval) => {
            vec![line(&[("for the session: ", tool), (" without asking in ", dir)], "")]
        }
        Some(ApprovalGrant::Mcp { server, tool }) => vec![
            line(
                &[("for the session: ", tool), (" of the MCP server ", server)],
                " without asking",
            ),
            line(&[("for the server: all tools that ", server)], " has now without asking"),
        ],
        _ => Vec::new(),
    }
}

/// Pieces of ours, each before a path or a command: what is not ASCII in those is underlined, since it may only look like
/// what it seems to be.
fn judged(pieces: &[(&str, &str)], rest: &str, style: Style) -> Line {
    let mut line = Line::default();
    for (words, judged) in pieces {
        line.push(*words, style);
        line.spans.extend(Shown::suspicious(judged, style));
    }
    line.push(rest, Style::DIM);
    line
}

/// All that is known of it, for the pager.
fn everything(approval: &ApprovalEntry) -> String {
    let arguments = serde_json::to_string_pretty(&approval.arguments).unwrap_or_default();
    let text = format!("{}\n{arguments}\n", Question::of(approval, 1).text());
    Shown::from(text).as_str().to_owned()
}

fn time_left(until: &str) -> Option<String> {
    let until: jiff::Timestamp = until.parse().ok()?;
    let seconds = until.duration_since(jiff::Timestamp::now()).as_secs();
    Some(match seconds {
        ..0 => "0 s".into(),
        0..120 => format!("{seconds} s"),
        _ => format!("{} min", seconds / 60),
    })
}

#[cfg(test)]
pub(crate) mod tests;
