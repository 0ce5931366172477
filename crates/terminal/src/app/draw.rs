//! The live part: open text, marks of other agents, what happens now, the input and the status.

use std::time::Duration;

use nexus_protocol::agent::AgentEntry;

use super::{App, FLOOD_FRAME, FLOOD_LINES, FRAME};
use crate::compose::compose;
use crate::focus::has_room;
use crate::screen::{Live, Reflow};
use crate::session::{Mark, Session};
use crate::shown::Shown;
use crate::style::{Colour, Line, Style};
use crate::view::Activity;

/// Who asks, what, how much is missing, and how to answer.
const QUESTION_ROWS_MIN: usize = 4;

/// The one level of permissions that asks nobody.
const ABOVE_TRUSTED: &str = "yolo";

/// Rows of open text: few, since an emulator that gets narrow and low at once pushes what is above into its scrollback.
const OPEN_ROWS_MAX: usize = 3;

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

impl App {
    /// Prints what is finished and draws the rest.
    pub(super) fn draw(&mut self) -> std::io::Result<()> {
        // A frame for another size than the emulator has now would leave its rows behind.
        if self.tty.size() != (self.screen.width(), self.rows) {
            self.resized.get_or_insert_with(std::time::Instant::now);
            self.focus.unseen();
            return Ok(());
        }
        let live = self.live();
        let finished = std::mem::take(&mut self.finished);
        let out = self.new_title() + &self.screen.frame(&finished, live);
        self.is_dirty = false;
        self.drawn = std::time::Instant::now();
        self.pace = if finished.len() > FLOOD_LINES { FLOOD_FRAME } else { FRAME };
        self.rest.printed(finished.len());
        match out.is_empty() {
            true => Ok(()),
            false => self.tty.write(&out),
        }
    }

    /// Names the window after the agent, when that is another one.
    fn new_title(&mut self) -> String {
        let agent = self.session.as_ref().and_then(|session| session.agent());
        let title = Shown::from(agent.map_or("nexus3".into(), |agent| format!("{agent} · nexus3")));
        if !self.options.settings.title || title.as_str() == self.title {
            return String::new();
        }
        title.as_str().clone_into(&mut self.title);
        format!("\x1b]0;{}\x07", title.as_str())
    }

    /// At most half of the rows, but for a question that needs more to be one.
    fn live(&mut self) -> Live {
        let width = self.screen.width();
        let at = std::time::Instant::now();
        if !has_room(self.rows, width) {
            return self.live_in_place(at);
        }
        let asks = self.asker().is_some();
        let question_rows = if asks { QUESTION_ROWS_MIN } else { 0 };
        // The input and the status are there whatever else is.
        let half = self.rows / 2;
        let input_max = (self.rows * 2 / 5).min(half.saturating_sub(1 + question_rows)).max(1);
        let (input_rows, mut caret) = self.input_rows(input_max);
        let mut room = half.saturating_sub(input_rows.len() + 1);
        let status = self.status(width);
        let now = self.now();
        let asked_max = |app: &Self| {
            let said = usize::from(app.marks().is_some()) + usize::from(now.is_some());
            asked_rows_max(app.rows, input_rows.len(), said)
        };
        // Which keys stand there follows from whether the question has them. It is not given any that hide what they answer.
        self.focus.drawn(at, asks && self.is_question_seen(width, asked_max(self)));
        self.look_at_focus(at);
        let asked = self.panels(asked_max(self));
        let marks = self.marks();
        room = room.saturating_sub(asked.len());
        let now = now.filter(|_| room > 0);
        room -= usize::from(now.is_some());
        let marks = marks.filter(|_| room > 0);
        room -= usize::from(marks.is_some());
        let mut rows = self.open_text(room.min(OPEN_ROWS_MAX));
        rows.extend(marks);
        rows.extend(now);
        rows.extend(asked);
        let (above, below) = match self.screen.reflow() {
            Reflow::Above => (Some(status), None),
            _ => (None, Some(status)),
        };
        rows.extend(above);
        caret.0 += rows.len();
        rows.extend(input_rows);
        rows.extend(below);
        held(Live { rows, caret }, self.rows)
    }

    /// The input alone; in its place, while it is empty, what one key answers, where all of it has room. Nothing else can be
    /// answered there, since it would not be seen.
    fn live_in_place(&mut self, at: std::time::Instant) -> Live {
        let width = self.screen.width();
        let is_empty = self.editor.is_empty();
        let question = |app: &Self| app.confirm().filter(|_| is_empty)?.whole(width, app.rows);
        self.focus.drawn(at, question(self).is_some());
        self.look_at_focus(at);
        if let Some(rows) = question(self) {
            let caret = (rows.len() - 1, rows.last().map_or(0, Line::width));
            return Live { rows, caret };
        }
        let (rows, caret) = self.input_rows((self.rows * 2 / 5).max(1));
        Live { rows, caret }
    }

    /// The rows of the input around the caret, and that.
    fn input_rows(&self, rows_max: usize) -> (Vec<Line>, (usize, usize)) {
        let style = Style::colour(Colour::Cyan).bold();
        let input = compose(&self.editor, &self.prompt(), style, self.screen.width());
        let first = (input.caret.0 + 1).saturating_sub(rows_max);
        let rows = input.rows.into_iter().skip(first).take(rows_max).collect();
        (rows, (input.caret.0 - first, input.caret.1))
    }

    /// The text that is not finished; what does not fit is finished.
    fn open_text(&mut self, room: usize) -> Vec<Line> {
        let Some(view) = self.session.as_mut().and_then(|session| session.view.as_mut()) else {
            return Vec::new();
        };
        self.finished.extend(view.overflow(room.max(1)));
        let mut open = view.open();
        let surplus = open.len().saturating_sub(room);
        open.drain(..surplus);
        open
    }

    /// Lists and questions, whichever stands there.
    fn panels(&self, rows_max: usize) -> Vec<Line> {
        let width = self.screen.width();
        let panel = self.panel_rows(width, rows_max);
        if !panel.is_empty() {
            return panel;
        }
        let approval = self.approval_rows(width, rows_max);
        if !approval.is_empty() {
            return approval;
        }
        self.completion.as_ref().map(|list| list.rows(rows_max)).unwrap_or_default()
    }

    /// Whether the question of those rows says what it asks.
    fn is_question_seen(&self, width: usize, rows_max: usize) -> bool {
        self.panel.is_some() || self.is_approval_seen(width, rows_max)
    }

    pub(super) fn prompt(&self) -> String {
        if let Some(super::panel::Panel::Entry { asks, .. }) = &self.panel {
            return asks.prompt().into();
        }
        let session = self.session.as_ref();
        let name = session.and_then(|session| {
            session.whisper.clone().or_else(|| session.agent().map(ToOwned::to_owned))
        });
        name.map_or_else(|| "> ".into(), |name| format!("{name}> "))
    }

    /// What happens now, in plain words; or a hint.
    fn now(&self) -> Option<Line> {
        if let Some((hint, _)) = &self.hint {
            return Some(Line::styled(hint.as_str(), Style::colour(Colour::Yellow)));
        }
        let Some(session) = &self.session else {
            // What was found stands there to choose from.
            let is_looking = self.panel.is_none();
            return is_looking.then(|| Line::styled("looking for the server", Style::DIM));
        };
        if !session.is_connected {
            return Some(Line::styled("not connected", Style::colour(Colour::Yellow)));
        }
        let view = session.view.as_ref()?;
        let (activity, lasts) = view.activity()?;
        let queued = match view.queued().len() {
            0 => String::new(),
            queued => format!(" · queued {queued}"),
        };
        let words = format!("{} {} s{queued} · Esc cancels", said(activity), lasts.as_secs());
        Some(match self.options.settings.motion {
            true => Line::styled(spinner(lasts), Style::colour(Colour::Cyan))
                .with(format!(" {words}"), Style::DIM),
            false => Line::styled(words, Style::DIM),
        })
    }

    /// Other agents of whom there is something to see.
    fn marks(&self) -> Option<Line> {
        let session = self.session.as_ref()?;
        let mut line = Line::default();
        for (number, mark) in self.marked().into_iter().enumerate() {
            let waits = session.waits_for_leave(&mark.agent.agent_id);
            let (sign, style) = match mark {
                _ if waits => (" !".to_owned(), Style::colour(Colour::Yellow)),
                _ if mark.is_running => (" ⧗".to_owned(), Style::colour(Colour::Cyan)),
                _ if mark.has_failed => (" ✗".to_owned(), Style::colour(Colour::Red)),
                _ => (format!(" ●{}", mark.unseen), Style::colour(Colour::Green)),
            };
            if number > 0 {
                line.push("  ", Style::PLAIN);
            }
            line.push(mark.agent.agent_id.as_str(), Style::PLAIN);
            line.push(sign, style);
        }
        let waiting = session.approvals.len();
        if waiting > 0 && !self.focus.has() {
            let words = match waiting {
                1 => "  ! 1 approval (Shift-Tab)".to_owned(),
                waiting => format!("  ! {waiting} approvals (Shift-Tab)"),
            };
            line.push(words, Style::colour(Colour::Yellow).bold());
        }
        (!line.spans.is_empty()).then_some(line)
    }

    /// The agents that have a mark, in the order of their numbers.
    pub(super) fn marked(&self) -> Vec<&Mark> {
        let Some(session) = &self.session else { return Vec::new() };
        let shown = session.agent();
        let marks = session.agents.iter().filter(|mark| {
            Some(mark.agent.agent_id.as_str()) != shown
                && (mark.is_running || session.is_to_be_looked_at(mark))
        });
        marks.collect()
    }

    /// Items from the left; those that do not fit are left out, from the right.
    fn status(&self, width: usize) -> Line {
        let Some(session) = &self.session else { return Line::styled("nexus3", Style::DIM) };
        let mut items = Vec::new();
        let mark = session.mark();
        match (session.agent(), mark) {
            (Some(agent), Some(mark)) => {
                items.push(agent.to_owned());
                items.push(mark.agent.model.clone().unwrap_or_else(|| "no model".into()));
                items.push(mark.agent.permission_level.to_lowercase());
                items.push(home_relative(&mark.agent.cwd));
            }
            (Some(agent), None) => items.push(agent.to_owned()),
            (None, _) => {
                items.push("new session".into());
                items.extend(session.making.model.clone());
                items.extend(session.making.preset.clone());
                items.push(home_relative(&session.making.cwd.to_string_lossy()));
            }
        }
        if let Some((total, budget)) = session.tokens
            && budget > 0
        {
            items.push(gauge(total, budget));
        }
        if session.watchers.len() > 1 {
            items.push(format!("{} watching", session.watchers.len()));
        }
        let mut line = Line::default();
        for (number, item) in items.iter().enumerate() {
            let text = if number == 0 { item.clone() } else { format!(" · {item}") };
            let is_dangerous = item == ABOVE_TRUSTED;
            let piece = Line::plain(text.as_str());
            if line.width() + piece.width() > width.saturating_sub(1) {
                break;
            }
            let style = if is_dangerous { Style::colour(Colour::Red).bold() } else { Style::DIM };
            line.push(text, style);
        }
        line
    }
}

/// Rows for what is asked, beside those of the input, the status, and what else is said.
pub(super) fn asked_rows_max(rows: usize, input_rows: usize, said: usize) -> usize {
    let beside = input_rows + 1;
    let room = (rows / 2).saturating_sub(beside + said);
    room.max(QUESTION_ROWS_MIN).min(rows.saturating_sub(beside))
}

/// Never more rows than the screen has, or all that is drawn after it would be at a wrong place; the input is below.
fn held(mut live: Live, rows_max: usize) -> Live {
    let surplus = live.rows.len().saturating_sub(rows_max);
    live.rows.drain(..surplus);
    live.caret.0 = live.caret.0.saturating_sub(surplus);
    live
}

fn gauge(total: u64, budget: u64) -> String {
    let percent = total * 100 / budget;
    let full = (percent * 6).div_ceil(100).min(6) as usize;
    let bar = format!("{}{}", "▓".repeat(full), "░".repeat(6 - full));
    format!("{}/{} {bar} {percent} %", thousands(total), thousands(budget))
}

fn thousands(number: u64) -> String {
    if number < 1_000 { number.to_string() } else { format!("{}k", number / 1_000) }
}

fn said(activity: &Activity) -> String {
    match activity {
        Activity::Waiting => "waiting".into(),
        Activity::Held(why) => format!("waiting: {why}"),
        Activity::Thinking => "thinking".into(),
        Activity::Writing => "writing".into(),
        Activity::Running(tool) => format!("running {tool}"),
        Activity::Approval => "waiting for approval".into(),
    }
}

fn spinner(lasts: Duration) -> &'static str {
    SPINNER[(lasts.as_millis() / 100 % SPINNER.len() as u128) as usize]
}

/// `~/src` for what is below the person's own directory.
pub fn home_relative(path: &str) -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    match path.strip_prefix(home.as_str()) {
        Some(rest) if !home.is_empty() && (rest.is_empty() || rest.starts_with('/')) => {
            format!("~{rest}")
        }
        _ => path.to_owned(),
    }
}

/// What a person is told first. Of which agent there is something to be told stands below, once one is shown
/// ([`crate::session::Session`]).
pub fn banner(session: &Session) -> Vec<Line> {
    let info = &session.info;
    let place = info.url.clone().or_else(|| info.socket.clone()).unwrap_or_default();
    let whose = if session.own.is_some() { "own" } else { "attached" };
    let agents = match info.agents {
        1 => "1 agent".to_owned(),
        agents => format!("{agents} agents"),
    };
    let watching = match info.watchers.len() {
        0 => String::new(),
        watching => format!(", {watching} watching"),
    };
    vec![
        Line::styled(format!("nexus3 {}", info.version), Style::BOLD)
            .with("  /help for commands", Style::DIM),
        Line::styled(
            format!("server {place} (pid {}, {whose}, {agents}{watching})", info.pid),
            Style::DIM,
        ),
    ]
}

/// The agent that is shown first: what it is, and in red what is to be known of it before anything is said.
pub fn introduction(agent: &AgentEntry, is_plain: bool) -> Vec<Line> {
    let level = agent.permission_level.to_lowercase();
    let model = agent.model.as_deref().unwrap_or("no model");
    let place = home_relative(&agent.cwd);
    let parts = [agent.agent_id.as_str(), model, place.as_str(), level.as_str()];
    let words = format!("agent {}", parts.join(if is_plain { ", " } else { " · " }));
    let mut lines = vec![Line::styled(words, Style::DIM)];
    if level == ABOVE_TRUSTED {
        let words =
            format!("{level}: {} may do whatever you may, and nobody is asked", agent.agent_id);
        lines.push(Line::styled(words, Style::colour(Colour::Red).bold()));
    }
    lines
}

/// What the emulator does with lines when its width changes. It is not asked: what it is called says it.
pub fn reflow() -> Reflow {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let (term, program) = (of("TERM"), of("TERM_PROGRAM"));
    let is_tmux = std::env::var_os("TMUX").is_some();
    let is_old = std::env::var_os("XTERM_VERSION").is_some()
        || term == "linux"
        || term.starts_with("rxvt")
        || (term.starts_with("screen") && !is_tmux);
    match program.as_str() {
        "vscode" | "Hyper" | "Tabby" => Reflow::Above,
        _ if is_old => Reflow::None,
        _ => Reflow::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_rows_are_drawn_than_the_screen_has() {
        let live = |rows: usize, caret| {
            let rows = (0..rows).map(|row| Line::plain(row.to_string())).collect();
            Live { rows, caret }
        };
        assert_eq!(held(live(6, (4, 2)), 6), live(6, (4, 2)));
        let kept = held(live(9, (7, 2)), 6);
        assert_eq!(kept.caret, (4, 2));
        assert_eq!(kept.rows.iter().map(Line::text).collect::<String>(), "345678");
    }

    #[test]
    fn what_is_asked_the_input_and_the_status_have_room_on_any_screen() {
        for rows in 6..60 {
            for input_rows in 1..=(rows * 2 / 5).max(1) {
                let asked = asked_rows_max(rows, input_rows, 2);
                assert!(asked + input_rows < rows, "{rows} {input_rows}");
                assert!(input_rows > 1 || asked >= QUESTION_ROWS_MIN, "{rows}");
            }
        }
    }
}
