//! The conversation without a screen: lines and words alone, for a pipe, a dumb terminal or a screen reader. No escape
//! sequence is ever written, nothing is drawn twice, and each thing is said once.

use std::collections::HashSet;
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nexus_client::{Api as _, Target};
use nexus_protocol::form::Filling;
use nexus_protocol::permission::{
    ApprovalDecision, ApprovalEntry, RespondApproval, RespondApprovalParams,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel, unbounded_channel};
use tokio::sync::oneshot;

use crate::app::{
    approval_lines, begin_session, can_grant, describe_lobby, field_rows, is_question,
};
use crate::cx::{Chosen, Front, Leaving};
use crate::follow::News;
use crate::markdown::{Look, Wrap};
use crate::options::Options;
use crate::session::Session;
use crate::start;
use crate::style::Line;

/// A line that comes sooner than this after a question was not meant for it.
const QUIET: Duration = Duration::from_millis(500);

/// Ctrl-C twice within this ends it.
const AGAIN: Duration = Duration::from_secs(2);

/// The prompt waits so long for what comes of a line that was typed, or of a turn: it would stand in front of that.
const HOLD: Duration = Duration::from_millis(150);

/// Columns at which prose is broken, where nobody says how many there are.
const WIDTH: usize = 80;

struct Plain {
    session: Session,
    /// What the next line answers, since when.
    question: Option<(Question, Instant)>,
    /// Approvals that were asked for, and those that were answered.
    asked: HashSet<String>,
    interrupted: Option<Instant>,
    leaving: Option<(u8, Leaving)>,
    /// Whether the prompt stands at the end of the output.
    is_prompted: bool,
    /// When a line was typed last, or a turn ran.
    busy: Instant,
}

enum Question {
    Confirm(oneshot::Sender<bool>),
    Choose(usize, oneshot::Sender<Option<Chosen>>),
    Lobby(crate::app::Lobby),
    Approval(Box<ApprovalEntry>),
    /// The next field of the form of this approval.
    Field(String, Filling),
}

/// Runs until the input ends; the exit code.
pub async fn run(options: Options) -> io::Result<u8> {
    let (news_sender, mut news) = channel(1_024);
    let (front_sender, mut front) = unbounded_channel();
    let (traced_sender, mut traced) = unbounded_channel();
    let found = match start::find(&options, &traced_sender).await {
        Ok(found) => found,
        Err(why) => {
            print(&[Line::plain(why)], options.settings.charset.is_some())?;
            return Ok(1);
        }
    };
    let theme = crate::code::Theme::Mono;
    let look = Look { width: WIDTH.min(options.settings.width_max), wrap: Wrap::Word, theme };
    let session = Session::new(options, found, look, news_sender, front_sender, traced_sender);
    let mut plain = Plain {
        session,
        question: None,
        asked: HashSet::new(),
        interrupted: None,
        leaving: None,
        is_prompted: false,
        busy: Instant::now(),
    };
    if let Some(charset) = &plain.session.options.settings.charset {
        let words =
            format!("The locale says {charset}, not UTF-8: whatever is not ASCII is shown as ?");
        plain.print(&[Line::plain(words)])?;
    }
    plain.print(&crate::app::banner(&plain.session))?;
    begin_session(&plain.session, true);
    let mut lines = lines();
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminates = signal(SignalKind::terminate())?;
    let mut hangups = signal(SignalKind::hangup())?;
    while plain.leaving.is_none() {
        plain.ask_for_leave()?;
        plain.prompt()?;
        tokio::select! {
            biased;
            line = lines.recv() => match line {
                Some(line) => plain.line(&line)?,
                None => plain.leaving = Some((0, Leaving::Quit)),
            },
            _ = interrupts.recv() => plain.interrupt()?,
            _ = terminates.recv() => plain.leaving = Some((0, plain.session.by_signal())),
            _ = hangups.recv() => plain.leaving = Some((0, plain.session.by_signal())),
            Some(call) = traced.recv() => {
                let words = format!("{} {}: {}", call.call.method, call.call.params, call.answer);
                plain.print(&[Line::plain(words)])?;
            }
            Some(asked) = front.recv() => plain.front(asked)?,
            Some(told) = news.recv() => plain.news(told)?,
            () = tokio::time::sleep(plain.held()), if plain.is_held() => {}
        }
    }
    Ok(plain.farewell().await)
}

/// What is typed, line by line, from a thread: a read of standard input cannot be given up.
fn lines() -> Receiver<String> {
    let (sender, lines) = channel(64);
    std::thread::spawn(move || {
        // What is no UTF-8 is no end either.
        for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
            if sender.blocking_send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    lines
}

impl Plain {
    fn news(&mut self, news: News) -> io::Result<()> {
        let lines = self.session.take(news);
        if let Some(code) = self.session.over {
            self.leaving = Some((code, Leaving::Stopped));
        }
        // An approval that is over is no question any more.
        let asked = match &self.question {
            Some((Question::Approval(approval), _)) => Some(&approval.approval_id),
            Some((Question::Field(id, _), _)) => Some(id),
            _ => None,
        };
        let is_open = |id: &str| self.session.approvals.iter().any(|it| it.approval_id == id);
        if asked.is_some_and(|id| !is_open(id)) {
            self.question = None;
        }
        self.print(&lines)
    }

    /// How long the prompt still waits.
    fn held(&self) -> Duration {
        HOLD.saturating_sub(self.busy.elapsed())
    }

    /// Whether it waits for nothing but time.
    fn is_held(&self) -> bool {
        !self.is_prompted && !self.session.is_busy() && !self.held().is_zero()
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.is_prompted = false;
        self.busy = Instant::now();
        let text = line.trim();
        if let Some((question, since)) = self.question.take() {
            if since.elapsed() >= QUIET || !matches!(question, Question::Approval(_)) {
                return self.answer(question, text);
            }
            // It was on its way before the question could be read.
            self.question = Some((question, Instant::now()));
        }
        if text.is_empty() {
            return Ok(());
        }
        let lines = self.session.say(text);
        self.print(&lines)
    }

    fn answer(&mut self, question: Question, text: &str) -> io::Result<()> {
        match question {
            Question::Confirm(reply) => {
                let _ = reply.send(matches!(text, "y" | "Y" | "yes"));
            }
            Question::Choose(count, reply) => {
                let number = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                let _ = reply.send(number.filter(|at| *at < count).map(Chosen::Item));
            }
            Question::Lobby(lobby) => {
                if text == "q" {
                    self.leaving = Some((0, Leaving::Quit));
                    return Ok(());
                }
                let number = if text.is_empty() { Ok(1) } else { text.parse::<usize>() };
                match number {
                    Ok(2) => {}
                    Ok(number) => {
                        let at = if number == 1 { 0 } else { number.saturating_sub(3) };
                        match lobby.sessions.get(at).filter(|_| number != 0) {
                            Some(entry) => crate::app::open_session(&self.session, &entry.name),
                            None => {
                                return self
                                    .print(&[Line::plain("no such number: a fresh session")]);
                            }
                        }
                    }
                    // Whoever writes something else wants to talk.
                    Err(_) => {
                        let lines = self.session.say(text);
                        self.print(&lines)?;
                    }
                }
            }
            Question::Approval(approval) => {
                if text == "5" && approval.has_server() {
                    self.respond(RespondApprovalParams::allow_server(approval.approval_id));
                    return Ok(());
                }
                let decision = match text {
                    "1" if is_question(&approval) => {
                        let schema = approval.schema.unwrap_or_default();
                        return self.ask_field(approval.approval_id, Filling::new(&schema));
                    }
                    "3" if is_question(&approval) => ApprovalDecision::Decline,
                    "4" if is_question(&approval) => ApprovalDecision::Cancel,
                    "1" => ApprovalDecision::AllowOnce,
                    "2" if can_grant(&approval) => ApprovalDecision::AllowSession,
                    "3" => ApprovalDecision::Deny,
                    _ => {
                        self.question = Some((Question::Approval(approval), Instant::now()));
                        let lines = self.session.say(text);
                        return self.print(&lines);
                    }
                };
                self.respond(RespondApprovalParams::new(approval.approval_id, decision));
            }
            Question::Field(id, mut filling) => {
                if let Err(fault) = filling.take(text) {
                    self.print(&[Line::plain(fault)])?;
                }
                return self.ask_field(id, filling);
            }
        }
        Ok(())
    }

    /// Asks for the next field of a form; when there is none, the form is sent.
    fn ask_field(&mut self, id: String, filling: Filling) -> io::Result<()> {
        if let Some(field) = filling.field() {
            let lines = field_rows(field);
            self.question = Some((Question::Field(id, filling), Instant::now()));
            return self.print(&lines);
        }
        let params = RespondApprovalParams::new(id, ApprovalDecision::Accept);
        self.respond(RespondApprovalParams { content: Some(filling.content()), ..params });
        Ok(())
    }

    fn respond(&self, params: RespondApprovalParams) {
        let (link, cx) = (Arc::clone(&self.session.link), self.session.cx());
        tokio::spawn(async move {
            let id = params.approval_id.clone();
            if let Err(error) = link.call::<RespondApproval>(&Target::Server, params).await {
                cx.warn(error.to_string());
                cx.tell(Front::AskAgain(id));
            }
        });
    }

    /// Puts the oldest approval that nobody was asked about.
    fn ask_for_leave(&mut self) -> io::Result<()> {
        if self.question.is_some() {
            return Ok(());
        }
        let next = self.session.approvals.iter();
        let Some(approval) = next.into_iter().find(|it| !self.asked.contains(&it.approval_id))
        else {
            return Ok(());
        };
        let (approval, lines) = (Box::new(approval.clone()), asks(approval));
        self.asked.insert(approval.approval_id.clone());
        self.print(&lines)?;
        self.question = Some((Question::Approval(approval), Instant::now()));
        Ok(())
    }

    fn front(&mut self, front: Front) -> io::Result<()> {
        let now = Instant::now();
        match front {
            Front::Say(lines) => return self.print(&lines),
            Front::Show(agent) => self.session.show(agent),
            Front::Fresh => self.session.fresh(),
            Front::Whisper(to) => self.session.whisper = to,
            Front::Confirm(question, reply) => {
                self.print(&[Line::plain(format!("{question} [y/N]"))])?;
                self.question = Some((Question::Confirm(reply), now));
            }
            Front::Choose(choice, reply) => {
                let mut lines = vec![Line::plain(choice.title.as_str())];
                let items = choice.items.iter().enumerate();
                lines.extend(items.map(|(at, item)| Line::plain(format!("{}) {item}", at + 1))));
                self.print(&lines)?;
                self.question = Some((Question::Choose(choice.items.len(), reply), now));
            }
            Front::Lobby(lobby) | Front::LobbyAgain(lobby) => {
                if lobby.sessions.is_empty() || self.session.view.is_some() {
                    return Ok(());
                }
                self.print(&describe_lobby(&lobby))?;
                self.question = Some((Question::Lobby(lobby), now));
            }
            Front::Page(text, reply) => {
                let shown = crate::shown::Shown::from(text);
                let lines: Vec<Line> = shown.as_str().lines().map(Line::plain).collect();
                self.print(&lines)?;
                let _ = reply.send(());
            }
            Front::Edit(_, reply) => {
                let _ = reply.send(None);
                return self.print(&[Line::plain("There is no editor in the plain form.")]);
            }
            Front::Fill(text) => {
                let words = format!("To say it again: {text}");
                return self.print(&[Line::plain(words)]);
            }
            Front::Copy(_) => {
                return self.print(&[Line::plain("The plain form has no way to the clipboard.")]);
            }
            Front::Clear | Front::Theme(_) => {
                return self.print(&[Line::plain("The plain form draws nothing.")]);
            }
            Front::Leave(leaving) => self.leaving = Some((0, leaving)),
            Front::AskAgain(approval) => drop(self.asked.remove(&approval)),
            Front::Begin => begin_session(&self.session, true),
            Front::Fail(why) => {
                self.print(&[Line::plain(why)])?;
                self.leaving = Some((1, Leaving::Quit));
            }
        }
        Ok(())
    }

    fn interrupt(&mut self) -> io::Result<()> {
        let is_again = self.interrupted.is_some_and(|at| at.elapsed() < AGAIN);
        self.interrupted = Some(Instant::now());
        // The terminal wrote a sign for the key, and no end of the line.
        self.is_prompted = true;
        if self.session.cancel() {
            return self.print(&[Line::plain("cancelling; Ctrl-C again to quit")]);
        }
        if is_again {
            self.leaving = Some((0, Leaving::Quit));
            return Ok(());
        }
        self.print(&[Line::plain("Ctrl-C again to quit")])
    }

    fn print(&mut self, lines: &[Line]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let is_ascii = self.session.options.settings.charset.is_some();
        if std::mem::take(&mut self.is_prompted) {
            print(&[Line::default()], is_ascii)?;
        }
        print(lines, is_ascii)
    }

    fn prompt(&mut self) -> io::Result<()> {
        if self.session.is_busy() {
            self.busy = Instant::now();
        }
        if self.is_prompted || self.leaving.is_some() || !self.held().is_zero() {
            return Ok(());
        }
        self.is_prompted = true;
        let name = self.session.whisper.as_deref().or(self.session.agent());
        let mut out = io::stdout().lock();
        write!(out, "{}> ", crate::shown::Shown::from(name.unwrap_or_default()).as_str())?;
        out.flush()
    }

    async fn farewell(mut self) -> u8 {
        let (code, leaving) = self.leaving.unwrap_or((0, Leaving::Quit));
        self.session.leave(leaving).await;
        if code == 0 {
            let _ = self.print(&[Line::plain("Goodbye!")]);
        }
        code
    }
}

/// The question, with numbers for its answers. The numbers never change what they mean.
fn asks(approval: &ApprovalEntry) -> Vec<Line> {
    let words = match is_question(approval) {
        true => format!("{} is asked something: {}", approval.agent_id, approval.tool),
        false => format!("{} asks for leave: {}", approval.agent_id, approval.tool),
    };
    let mut lines = vec![Line::plain(words)];
    let keys = Line::plain(match can_grant(approval) {
        _ if is_question(approval) => "1) answer  3) decline  4) cancel",
        true if approval.has_server() => {
            "1) allow once  2) allow for the session  3) deny  5) allow the server's tools"
        }
        true => "1) allow once  2) allow for the session  3) deny",
        false => "1) allow once  3) deny",
    });
    lines.extend(approval_lines(approval, &keys));
    lines
}

/// Signs of ours in the letters that every locale has; what else is not among those is a question mark.
fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '…' => out.push_str("..."),
            '•' => out.push('*'),
            '─' => out.push('-'),
            '│' => out.push('|'),
            '›' => out.push('>'),
            c if c.is_ascii() => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

fn print(lines: &[Line], is_ascii: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        let mut text = line.text().replace('\n', " ");
        if is_ascii {
            text = ascii(&text);
        }
        writeln!(out, "{text}")?;
    }
    out.flush()
}
