//! What stands between the conversation and the input and wants an answer.

use nexus_protocol::permission::{ApprovalDecision, RespondApprovalParams};
use tokio::sync::oneshot;

use super::App;
use super::approve::{FormEntry, missing_lines};
use crate::cx::{Choice, Chosen, Front, Leaving};
use crate::focus::Caller;
use crate::keys::{Code, Key};
use crate::shown::Shown;
use crate::style::{Colour, Line, Style};

/// A question that stands in front of approvals. What is typed before it was there for a moment is still the input's, but
/// where a key of the person opened it.
pub enum Panel {
    Confirm {
        question: String,
        reply: Option<oneshot::Sender<bool>>,
    },
    Choose(Choosing),
    Search(Search),
    /// Something that is written in the input, where the draft stood before.
    Entry {
        asks: Asks,
        draft: String,
    },
    /// Leaving, while turns run.
    Quit {
        turns: u64,
    },
}

/// What is asked for in the input.
pub enum Asks {
    /// A sentence for the model, with the denial of this approval.
    Denial(String),
    /// What stands in the next field of a form.
    Field(FormEntry),
    /// Where to start a server.
    Port,
    /// Where to look for servers.
    Ports,
    /// Where a server is.
    Url,
}

impl Asks {
    /// What is asked, in at most so many rows; `written` stands in the input.
    fn rows(&self, width: usize, rows_max: usize, written: &str) -> Vec<Line> {
        let question = match self {
            Self::Field(entry) => return entry.rows(width, rows_max, written),
            Self::Denial(_) => "What should the model be told? Enter denies, Esc goes back",
            Self::Port => "On which port is it to listen? Esc goes back",
            Self::Ports => "Which ports? As 8765,9000-9005; Esc goes back",
            Self::Url => "Where is it? As http://127.0.0.1:8765; Esc goes back",
        };
        let rows = Line::styled(question, Style::colour(Colour::Yellow)).broken(width);
        part(rows, 0, rows_max)
    }

    pub fn prompt(&self) -> &'static str {
        match self {
            Self::Denial(_) => "deny> ",
            Self::Field(_) => "answer> ",
            Self::Port => "port> ",
            Self::Ports => "ports> ",
            Self::Url => "URL> ",
        }
    }
}

pub struct Choosing {
    pub choice: Choice,
    pub filter: String,
    pub at: usize,
    pub reply: Option<oneshot::Sender<Option<Chosen>>>,
    /// What is done with the choice when nobody waits for it.
    pub then: Then,
    /// Nobody asked for it: who leaves it goes on as he was.
    pub is_uncalled: bool,
    /// A key opened it, in the place of another: it has the keys as soon as it is seen.
    pub is_opened: bool,
}

impl Choosing {
    /// A list that is chosen from for the terminal itself.
    pub fn then(then: Then, title: &str, items: Vec<String>) -> Self {
        let choice = Choice { title: title.into(), items, can_delete: false };
        let (is_uncalled, is_opened) = (false, false);
        Self { choice, filter: String::new(), at: 0, reply: None, then, is_uncalled, is_opened }
    }

    pub fn opened(self) -> Self {
        Self { is_opened: true, ..self }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Reply,
    Lobby,
    Sessions,
    Server,
}

/// The search in the history.
#[derive(Default)]
pub struct Search {
    pub query: String,
    pub at: usize,
    /// What stood in the input before.
    pub draft: String,
}

/// Rows of a list that are seen at once.
const LIST_ROWS: usize = 8;

impl Choosing {
    /// The items that the filter leaves, by their numbers.
    pub fn left(&self) -> Vec<usize> {
        let words = self.filter.to_lowercase();
        let items = self.choice.items.iter().enumerate();
        items.filter(|(_, item)| item.to_lowercase().contains(&words)).map(|(at, _)| at).collect()
    }
}

impl App {
    /// What a command asks of the person, or of the screen.
    pub(super) async fn asked(&mut self, front: Front) {
        self.is_dirty = true;
        match front {
            Front::Say(lines) => self.finished.extend(lines),
            Front::Show(agent) => {
                if let Some(session) = &mut self.session {
                    session.show(agent);
                }
            }
            Front::Fresh => {
                if let Some(session) = &mut self.session {
                    session.fresh();
                }
            }
            Front::Confirm(question, reply) => {
                self.ask(Panel::Confirm { question, reply: Some(reply) });
            }
            Front::Choose(choice, reply) => {
                let choosing = Choosing::then(Then::Reply, "", Vec::new());
                let choosing = Choosing { choice, reply: Some(reply), ..choosing };
                self.ask(Panel::Choose(choosing));
            }
            // What is being written is not replaced; the history has the other.
            Front::Fill(text) if !self.editor.is_empty() => self.history.add(&text),
            Front::Fill(text) => self.editor.set(&text),
            Front::Page(text, reply) => {
                self.page(&text).await;
                let _ = reply.send(());
            }
            Front::Edit(text, reply) => {
                let edited = self.edit(&text).await;
                let _ = reply.send(edited);
            }
            Front::Copy(text) => self.copy(&text),
            Front::Whisper(to) => {
                if let Some(session) = &mut self.session {
                    session.whisper = to;
                }
            }
            Front::Clear => self.clear(),
            Front::Theme(name) => self.theme(&name),
            Front::Leave(leaving) => self.leave(leaving),
            Front::AskAgain(approval) => self.ask_again(&approval),
            Front::Lobby(lobby) => self.enter_lobby(lobby, false),
            Front::LobbyAgain(lobby) => self.enter_lobby(lobby, true),
            Front::Begin => self.choose_session(),
            Front::Fail(why) => self.fail(&why),
        }
        self.look_at_approvals();
    }

    /// Puts a question on the screen, or behind the one that is there.
    pub(super) fn ask(&mut self, panel: Panel) {
        match self.panel {
            Some(_) => self.questions.push_back(panel),
            None => {
                self.panel = Some(panel);
                self.focus.forget();
            }
        }
    }

    /// Puts one in front of whatever stands there, which comes back after it.
    pub(super) fn ask_first(&mut self, panel: Panel) {
        if let Some(before) = self.panel.replace(panel) {
            self.questions.push_front(before);
        }
        self.focus.forget();
    }

    /// The question is answered or left; the next one takes its place.
    pub(super) fn close_panel(&mut self) {
        self.panel = self.questions.pop_front();
        self.focus.forget();
        self.is_dirty = true;
    }

    /// Who put the question or list that is to stand on the screen.
    pub(super) fn asker(&self) -> Option<Caller> {
        match &self.panel {
            // They are written in the input.
            Some(Panel::Entry { .. } | Panel::Search(_)) => None,
            Some(Panel::Confirm { .. } | Panel::Choose(_) | Panel::Quit { .. }) => {
                Some(Caller::Person)
            }
            None => self.approval.is_some().then_some(Caller::Other),
        }
    }

    /// Whether a key is the panel's: one that is known to be meant for a question, or leaves any.
    pub(super) fn is_panels(&self, key: Key, is_questions: bool) -> bool {
        let leaves = match key.code {
            Code::Escape => true,
            Code::Char('c' | 'd') => key.ctrl && self.editor.is_empty(),
            _ => false,
        };
        match &self.panel {
            None => false,
            Some(Panel::Entry { .. } | Panel::Search(_)) => true,
            Some(Panel::Choose(choosing)) if choosing.is_opened => leaves || self.focus.sees(),
            Some(_) => leaves || is_questions,
        }
    }

    /// Whoever writes wants no list of conversations.
    pub(super) fn close_lobby_for_text(&mut self) {
        let is_lobby = matches!(&self.panel, Some(Panel::Choose(it)) if it.then == Then::Lobby);
        if is_lobby && !self.editor.is_empty() {
            self.close_panel();
        }
    }

    /// A key for the question.
    pub(super) async fn panel_key(&mut self, key: Key) {
        if key.code == Code::Tab && key.shift && self.focus.has() {
            return self.focus.leave();
        }
        let Some(panel) = self.panel.take() else { return };
        match panel {
            Panel::Confirm { question, mut reply } => {
                let answer = match key.code {
                    Code::Char('p') if !key.ctrl => {
                        let text = Shown::from(question.as_str());
                        self.panel = Some(Panel::Confirm { question, reply });
                        return self.page(text.as_str()).await;
                    }
                    Code::Char('y' | 'Y') if !key.ctrl => Some(true),
                    Code::Char('n' | 'N') | Code::Enter | Code::Escape => Some(false),
                    Code::Char('c' | 'd') if key.ctrl => Some(false),
                    _ => None,
                };
                match answer {
                    Some(answer) => {
                        let word = if answer { "y" } else { "n" };
                        self.finished.push(Line::plain(format!("{question} [y/N] {word}")));
                        if let Some(reply) = reply.take() {
                            let _ = reply.send(answer);
                        }
                        self.close_panel();
                    }
                    None => self.panel = Some(Panel::Confirm { question, reply }),
                }
            }
            Panel::Choose(choosing) => self.choose_key(choosing, key),
            Panel::Search(search) => self.search_key(search, key),
            Panel::Entry { asks, draft } => self.entry_key(asks, draft, key),
            Panel::Quit { turns } => match key.code {
                Code::Char('w') => {
                    self.close_panel();
                    self.is_waiting_to_leave = true;
                }
                Code::Char('d') => self.leave(Leaving::Detach),
                Code::Char('c') if !key.ctrl => self.leave(Leaving::Cancel),
                Code::Escape | Code::Char('c') => self.close_panel(),
                _ => self.panel = Some(Panel::Quit { turns }),
            },
        }
    }

    /// A key while something is written in the input that is no message.
    fn entry_key(&mut self, asks: Asks, draft: String, key: Key) {
        match key.code {
            Code::Enter => {
                let text = self.editor.clear().trim().to_owned();
                if let Asks::Field(entry) = asks {
                    return self.fill(entry, draft, &text);
                }
                self.editor.set(&draft);
                self.close_panel();
                match asks {
                    Asks::Denial(approval) => {
                        let message = Some(text).filter(|text| !text.is_empty());
                        let params = RespondApprovalParams::new(approval, ApprovalDecision::Deny);
                        self.respond(RespondApprovalParams { message, ..params });
                    }
                    asks => self.server_entered(&asks, &text),
                }
            }
            Code::Escape => {
                self.editor.set(&draft);
                self.close_panel();
                if !matches!(asks, Asks::Denial(_) | Asks::Field(_)) {
                    self.offer_servers_again();
                }
            }
            _ => {
                self.edit_key(key);
                self.completion = None;
                self.panel = Some(Panel::Entry { asks, draft });
            }
        }
    }

    fn choose_key(&mut self, mut choosing: Choosing, key: Key) {
        if choosing.then == Then::Server && self.server_key(choosing.at, key) {
            return;
        }
        let left = choosing.left();
        let chosen = |at: usize| left.get(at).copied();
        let answer = match key.code {
            Code::Enter => match chosen(choosing.at) {
                Some(item) => Some(Some(Chosen::Item(item))),
                None => return self.panel = Some(Panel::Choose(choosing)),
            },
            Code::Escape => Some(None),
            Code::Char('c' | 'd') if key.ctrl => Some(None),
            Code::Delete if choosing.choice.can_delete => {
                chosen(choosing.at).map(|item| Some(Chosen::Delete(item)))
            }
            Code::Char('d') if choosing.choice.can_delete && choosing.filter.is_empty() => {
                chosen(choosing.at).map(|item| Some(Chosen::Delete(item)))
            }
            Code::Up => {
                choosing.at = choosing.at.saturating_sub(1);
                None
            }
            Code::Down | Code::Tab => {
                choosing.at = (choosing.at + 1).min(left.len().saturating_sub(1));
                None
            }
            Code::Backspace => {
                choosing.filter.pop();
                choosing.at = 0;
                None
            }
            Code::Char(digit @ '1'..='9')
                if choosing.then != Then::Reply && choosing.filter.is_empty() =>
            {
                chosen(digit as usize - '1' as usize).map(|item| Some(Chosen::Item(item)))
            }
            Code::Char('q') if choosing.then == Then::Lobby && choosing.filter.is_empty() => {
                Some(None)
            }
            Code::Char('b') if choosing.then == Then::Sessions && choosing.filter.is_empty() => {
                Some(None)
            }
            Code::Char(c) if !key.ctrl && !key.alt => {
                choosing.filter.push(c);
                choosing.at = 0;
                None
            }
            _ => None,
        };
        let Some(answer) = answer else { return self.panel = Some(Panel::Choose(choosing)) };
        self.close_panel();
        match choosing.then {
            Then::Reply => {
                if let Some(reply) = choosing.reply.take() {
                    let _ = reply.send(answer);
                }
            }
            Then::Lobby => self.chosen_in_lobby(answer, choosing.is_uncalled),
            Then::Sessions => self.chosen_session(answer),
            Then::Server => self.chosen_server(answer),
        }
    }

    fn search_key(&mut self, mut search: Search, key: Key) {
        let found = |search: &Search| -> Option<String> {
            self.history.search(&search.query).get(search.at).map(|text| (*text).to_owned())
        };
        match key.code {
            Code::Enter | Code::Tab | Code::Right => {
                let text = found(&search).unwrap_or(search.draft);
                self.editor.set(&text);
                return self.close_panel();
            }
            Code::Escape => {
                self.editor.set(&search.draft);
                return self.close_panel();
            }
            Code::Char('c' | 'g') if key.ctrl => {
                self.editor.set(&search.draft);
                return self.close_panel();
            }
            Code::Char('r') if key.ctrl => search.at += 1,
            Code::Up => search.at += 1,
            Code::Char('s') if key.ctrl => search.at = search.at.saturating_sub(1),
            Code::Down => search.at = search.at.saturating_sub(1),
            Code::Backspace => {
                search.query.pop();
                search.at = 0;
            }
            Code::Char(c) if !key.ctrl && !key.alt => {
                search.query.push(c);
                search.at = 0;
            }
            _ => {}
        }
        if found(&search).is_none() {
            search.at = search.at.saturating_sub(1);
        }
        self.panel = Some(Panel::Search(search));
    }

    /// The question that one key answers, if there is one.
    pub(super) fn confirm(&self) -> Option<Confirm> {
        let (words, answers) = match &self.panel {
            Some(Panel::Confirm { question, .. }) => (question.clone(), "[y/N] "),
            Some(Panel::Quit { turns }) => {
                let words = match turns {
                    1 => "1 turn runs:".to_owned(),
                    turns => format!("{turns} turns run:"),
                };
                (words, "[w]ait, [d]etach, [c]ancel, Esc ")
            }
            _ => return None,
        };
        let mut answers = Line::plain(answers);
        if !self.focus.has() {
            answers.push("Shift-Tab to answer", Style::DIM);
        }
        Some(Confirm { words: Line::styled(words, Style::colour(Colour::Yellow)), answers })
    }

    /// The question or list as rows.
    pub(super) fn panel_rows(&self, width: usize, rows_max: usize) -> Vec<Line> {
        let title = Style::colour(Colour::Yellow);
        match &self.panel {
            None => Vec::new(),
            Some(Panel::Confirm { .. } | Panel::Quit { .. }) => {
                self.confirm().map(|it| it.rows(width, rows_max)).unwrap_or_default()
            }
            Some(Panel::Entry { asks, .. }) => asks.rows(width, rows_max, self.editor.raw()),
            Some(Panel::Search(search)) => {
                let found = self.history.search(&search.query);
                let text = found.get(search.at).copied().unwrap_or("nothing found");
                let first = text.lines().next().unwrap_or_default();
                let words = format!("search `{}`: ", search.query);
                vec![Line::styled(words, title).with(first, Style::PLAIN)]
            }
            Some(Panel::Choose(choosing)) => {
                let mut rows = choose_rows(choosing, width, rows_max);
                if let Some(title) = rows.first_mut()
                    && !(choosing.is_opened || self.focus.has())
                {
                    title.push("  Shift-Tab to choose", Style::DIM);
                }
                rows
            }
        }
    }
}

/// A question that one key answers.
pub struct Confirm {
    words: Line,
    /// The keys, and what they do.
    answers: Line,
}

impl Confirm {
    /// All of it; `None` where that has no room.
    pub fn whole(&self, width: usize, rows_max: usize) -> Option<Vec<Line>> {
        let mut line = self.words.clone().with(" ", Style::PLAIN);
        line.spans.extend(self.answers.spans.iter().cloned());
        let rows = line.broken(width);
        (rows.len() <= rows_max).then_some(rows)
    }

    /// As much of it as has room, and how many rows are missing: what is to be done, or to what, may be among them.
    fn rows(&self, width: usize, rows_max: usize) -> Vec<Line> {
        if let Some(rows) = self.whole(width, rows_max) {
            return rows;
        }
        let (mut rows, answers) = (self.words.broken(width), self.answers.broken(width));
        let all = rows.len();
        rows.truncate(rows_max.saturating_sub(answers.len() + 1));
        rows.push(missing_lines(all - rows.len(), "p"));
        rows.extend(answers);
        rows
    }
}

/// As many of the rows as have room, from the chosen one on as far as there are so many, and how many more there are.
pub fn part(rows: Vec<Line>, chosen: usize, rows_max: usize) -> Vec<Line> {
    if rows.len() <= rows_max {
        return rows;
    }
    let Some(count) = rows_max.checked_sub(1) else { return Vec::new() };
    let more = rows.len() - count;
    let mut part: Vec<Line> = rows.into_iter().skip(chosen.min(more)).take(count).collect();
    part.push(Line::styled(format!("… {more} more"), Style::DIM));
    part
}

/// The title, and the part of the list in which the chosen item is.
fn choose_rows(choosing: &Choosing, width: usize, rows_max: usize) -> Vec<Line> {
    let title = match choosing.filter.is_empty() {
        true => choosing.choice.title.clone(),
        false => format!("{} `{}`", choosing.choice.title, choosing.filter),
    };
    let mut rows = Line::styled(title, Style::colour(Colour::Yellow)).broken(width);
    rows.truncate(rows_max.saturating_sub(2).max(1));
    let left = choosing.left();
    let (first, count) = window(choosing.at, left.len(), rows_max.saturating_sub(rows.len()));
    for (at, item) in left.iter().enumerate().skip(first).take(count) {
        let text = choosing.choice.items[*item].as_str();
        let (mark, style) = match at == choosing.at {
            true => ("› ", Style::BOLD),
            false => ("  ", Style::PLAIN),
        };
        rows.push(Line::styled(format!("{mark}{text}"), style));
    }
    let below = left.len() - first - count;
    if below > 0 && rows.len() < rows_max {
        rows.push(Line::styled(format!("  … {below} more"), Style::DIM));
    }
    rows
}

/// Which of `all` items stand in so many rows, and how many: the chosen one among them, and a row for how many there are
/// below where there is room for two.
fn window(chosen: usize, all: usize, rows_max: usize) -> (usize, usize) {
    let most = LIST_ROWS.min(rows_max).max(1);
    let from = |count: usize| (chosen + 1).saturating_sub(count);
    let is_cut = |count: usize| from(count) + count < all;
    match is_cut(most) && most == rows_max && most > 2 {
        true => (from(most - 1), most - 1),
        false => (from(most), most.min(all - from(most).min(all))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a list of so many items, of which one is chosen.
    #[track_caller]
    fn check(items: usize, at: usize, rows_max: usize, expected: &[&str]) {
        let items = (1..=items).map(|number| number.to_string()).collect();
        let choosing = Choosing { at, ..Choosing::then(Then::Reply, "Which?", items) };
        let rows: Vec<String> =
            choose_rows(&choosing, 80, rows_max).iter().map(Line::text).collect();
        assert_eq!(rows, expected);
        assert!(rows.len() <= rows_max);
    }

    #[test]
    fn a_question_that_is_cut_says_so_and_stands_whole_where_there_is_no_panel() {
        let confirm = Confirm {
            words: Line::plain("Destroy 'a' and the 3 agents beneath it?"),
            answers: Line::plain("[y/N] "),
        };
        let rows = |rows_max: usize| -> Vec<String> {
            confirm.rows(10, rows_max).iter().map(Line::text).collect()
        };
        let whole = ["Destroy 'a", "' and the ", "3 agents b", "eneath it?", " [y/N] "];
        assert_eq!(rows(5), whole);
        assert_eq!(rows(4), ["Destroy 'a", "' and the ", "… 2 more lines: p", "[y/N] "]);
        assert_eq!(confirm.whole(10, 5).unwrap().len(), 5);
        assert_eq!(confirm.whole(10, 4), None);
    }

    #[test]
    fn the_chosen_item_is_always_seen() {
        check(2, 0, 10, &["Which?", "› 1", "  2"]);
        check(20, 0, 5, &["Which?", "› 1", "  2", "  3", "  … 17 more"]);
        check(20, 9, 5, &["Which?", "  8", "  9", "› 10", "  … 10 more"]);
        check(20, 19, 5, &["Which?", "  17", "  18", "  19", "› 20"]);
        check(4, 3, 3, &["Which?", "  3", "› 4"]);
        check(4, 1, 3, &["Which?", "  1", "› 2"]);
        check(4, 1, 2, &["Which?", "› 2"]);
    }
}
