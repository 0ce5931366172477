//! The conversation on a screen: one loop that takes keys, news of the server and what commands ask, and draws.

mod approve;
mod complete;
mod draw;
mod input;
mod leave;
mod lobby;
mod outside;
mod panel;
mod rest;
mod servers;

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};

use crate::code::Theme;
use crate::cx::{Front, Leaving};
use crate::editor::Editor;
use crate::focus::Focus;
use crate::follow::News;
use crate::guard::Guard;
use crate::history::History;
use crate::keys::{Decoder, Input, Key};
use crate::link::Traced;
use crate::markdown::{Look, Wrap};
use crate::options::{Options, ServerChoice};
use crate::screen::Screen;
use crate::session::Session;
use crate::start::{self, Found};
use crate::style::{Line, Style};
use crate::tty::Tty;
#[cfg(test)]
pub(crate) use approve::tests::asked_on;
pub(crate) use approve::{can_grant, field_rows, is_question, question as approval_lines};
pub(crate) use draw::{banner, introduction};
pub(crate) use lobby::{
    Lobby, begin as begin_session, describe_lobby, offer as offer_lobby, open_in as open_session,
};
use panel::Panel;
use rest::Rest;

/// An Esc is an Esc when nothing came after it for so long.
const ESCAPE: Duration = Duration::from_millis(25);

/// At most 60 frames a second for what the server tells; what is typed is drawn at once.
const FRAME: Duration = Duration::from_millis(16);

/// And a quarter of that while so much is printed with each that nobody can read it: a frame ends with the live part, which
/// costs as much however little came with it.
const FLOOD_FRAME: Duration = Duration::from_millis(66);
const FLOOD_LINES: usize = 8;

/// Lines that wait to be printed. More are printed at once: a screen does not show them anyway, and what waits takes many
/// times the memory of its text.
const WAITING_LINES_MAX: usize = 512;

/// A size counts when it has not changed for so long.
const RESIZE: Duration = Duration::from_millis(30);

/// How often the one thing that moves does.
const SPIN: Duration = Duration::from_millis(100);

/// How often the list of files is looked at while it grows.
const WALK: Duration = Duration::from_millis(50);

/// How long a hint stands.
const HINT: Duration = Duration::from_secs(2);

/// News that are taken before the next look at the keys.
const NEWS_MAX: usize = 256;

pub(crate) struct App {
    tty: Tty,
    screen: Screen,
    rows: usize,
    decoder: Decoder,
    editor: Editor,
    history: History,
    options: Options,
    /// `None` until a server answered.
    session: Option<Session>,
    /// What was said before that.
    early: VecDeque<String>,
    panel: Option<Panel>,
    /// Questions that wait for the one on the screen.
    questions: VecDeque<Panel>,
    /// The approval that is asked for now.
    approval: Option<String>,
    /// Whether what is asked has the keys.
    focus: Focus,
    completion: Option<complete::Completion>,
    walk: complete::Walk,
    hint: Option<(String, Instant)>,
    /// Ctrl-C or Esc was pressed just now.
    pressed: Option<(Pressed, Instant)>,
    /// Whether there may be colours, whatever the theme.
    has_colours: bool,
    /// What the window is called.
    title: String,
    finished: Vec<Line>,
    is_dirty: bool,
    drawn: Instant,
    /// When what the server tells is drawn next, after that.
    pace: Duration,
    resized: Option<Instant>,
    rest: Rest,
    /// With which exit code, and how.
    leaving: Option<(u8, Leaving)>,
    /// The person leaves when no turn runs any more.
    is_waiting_to_leave: bool,
    /// Approvals that were answered here; the server says when they are decided.
    answered: HashSet<String>,
    lobby: Option<lobby::Lobby>,
    /// Servers to choose from.
    servers: Vec<nexus_client::DiscoveredServer>,
    channels: Channels,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pressed {
    Quit,
    Escape,
    /// The first of two keys.
    First(Key),
}

struct Channels {
    /// Bounded: while an editor has the screen, whoever tells news waits, and the server keeps what it can.
    news: Receiver<News>,
    news_sender: Sender<News>,
    front: UnboundedReceiver<Front>,
    front_sender: UnboundedSender<Front>,
    traced: UnboundedReceiver<Traced>,
    traced_sender: UnboundedSender<Traced>,
}

impl Channels {
    fn new() -> Self {
        let (news_sender, news) = channel(1_024);
        let (front_sender, front) = unbounded_channel();
        let (traced_sender, traced) = unbounded_channel();
        Self { news, news_sender, front, front_sender, traced, traced_sender }
    }
}

/// Runs until the person leaves; the exit code.
pub async fn run(options: Options) -> std::io::Result<u8> {
    let mut tty = Tty::open()?;
    crate::tty::restore_before_panics();
    tty.raw()?;
    let typed_before = tty.typed_before();
    let (width, rows) = tty.size();
    let screen = Screen::new(width, options.settings.colours, draw::reflow());
    let history_file = options.settings.history.then(|| options.home.join("history"));
    let history = History::open(history_file, options.cwd.to_string_lossy().into_owned());
    let mut app = App {
        tty,
        screen,
        rows,
        decoder: Decoder::default(),
        editor: Editor::default(),
        history,
        session: None,
        early: VecDeque::new(),
        panel: None,
        questions: VecDeque::new(),
        approval: None,
        focus: Focus::default(),
        completion: None,
        walk: complete::Walk::default(),
        hint: None,
        pressed: None,
        has_colours: options.settings.colours,
        title: String::new(),
        finished: Vec::new(),
        is_dirty: true,
        drawn: Instant::now(),
        pace: FRAME,
        resized: None,
        rest: Rest::default(),
        options,
        leaving: None,
        is_waiting_to_leave: false,
        answered: HashSet::new(),
        lobby: None,
        servers: Vec::new(),
        channels: Channels::new(),
    };
    if app.options.settings.title {
        app.tty.write("\x1b[22;0t")?;
    }
    app.draw()?;
    // Without a guard everything works but the recovery from a kill.
    let guard = Guard::start(&app.options.program).ok();
    app.connect();
    let inputs = app.decoder.push(&typed_before);
    app.typed(inputs).await;
    let code = app.serve().await;
    if let Some(guard) = guard {
        guard.dismiss();
    }
    code
}

impl App {
    /// Looks for a server, beside everything else.
    fn connect(&self) {
        let options = self.options.clone();
        let (news, traced) =
            (self.channels.news_sender.clone(), self.channels.traced_sender.clone());
        tokio::spawn(async move {
            if let ServerChoice::Found { .. } = options.server {
                let _ = news.send(News::Servers(start::discover(&options).await)).await;
                return;
            }
            let told = match start::find(&options, &traced).await {
                Ok(found) => News::Back(Box::new(found)),
                Err(why) => News::NoServer(why),
            };
            let _ = news.send(told).await;
        });
    }

    async fn serve(mut self) -> std::io::Result<u8> {
        let mut signals = Signals::new()?;
        let mut bytes = vec![0; 64 << 10];
        while self.leaving.is_none() {
            let wake = self.wake();
            tokio::select! {
                biased;
                read = self.tty.read(&mut bytes) => {
                    let read = read.unwrap_or(0);
                    if read == 0 {
                        // The terminal is gone, and with it everybody who could read a farewell.
                        self.leave_by_signal();
                        break;
                    }
                    let inputs = self.decoder.push(&bytes[..read]);
                    self.typed(inputs).await;
                    self.draw()?;
                }
                _ = signals.window.recv() => {
                    self.resized = Some(Instant::now());
                    self.focus.unseen();
                }
                _ = signals.terminate.recv() => self.leave_by_signal(),
                _ = signals.hangup.recv() => self.leave_by_signal(),
                // Meant for a program that had the screen.
                _ = signals.interrupt.recv() => {}
                Some(front) = self.channels.front.recv() => self.asked(front).await,
                Some(traced) = self.channels.traced.recv() => self.traced(&traced),
                Some(news) = self.channels.news.recv() => self.news(news),
                () = sleep_until(wake), if wake.is_some() => self.woken().await,
            }
            let is_due =
                || self.drawn.elapsed() >= self.pace || self.finished.len() >= WAITING_LINES_MAX;
            if self.is_dirty && self.resized.is_none() && is_due() {
                self.draw()?;
            }
        }
        Ok(self.farewell().await)
    }

    /// When there is something to do though nothing comes; never, when nothing moves.
    fn wake(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut times = Vec::new();
        if self.is_dirty && self.resized.is_none() {
            times.push(self.drawn + self.pace);
        }
        if self.decoder.waits() {
            times.push(now + ESCAPE);
        }
        if let Some(at) = self.resized {
            times.push(at + RESIZE);
        }
        if let Some((_, at)) = &self.hint {
            times.push(*at + HINT);
        }
        if self.moves() && self.resized.is_none() {
            times.push(self.drawn + SPIN);
        }
        if self.is_walking() {
            times.push(now + WALK);
        }
        times.extend(self.rest.due());
        let before = self.focus.has();
        times.extend(self.look_at_focus(now));
        self.is_dirty |= before != self.focus.has();
        times.into_iter().min()
    }

    /// Looks whether what is asked has the keys now. Returns when to look again.
    fn look_at_focus(&mut self, now: Instant) -> Option<Instant> {
        self.focus.look(now, self.asker()?, self.editor.is_empty())
    }

    async fn woken(&mut self) {
        let now = Instant::now();
        self.rest.look(now);
        let settled = self.decoder.settle();
        if !settled.is_empty() {
            self.typed(settled).await;
        }
        if self.resized.is_some_and(|at| now >= at + RESIZE) {
            self.resized = None;
            self.resize();
        }
        if self.hint.as_ref().is_some_and(|(_, at)| now >= *at + HINT) {
            self.hint = None;
            self.is_dirty = true;
        }
        if self.is_walking() {
            self.complete();
            self.is_dirty = true;
        }
        self.is_dirty |= self.moves();
    }

    /// Whether files are asked for that are still being found.
    fn is_walking(&self) -> bool {
        self.editor.word().1.starts_with('@') && self.walk.is_young()
    }

    /// Whether a turn runs in the conversation that is shown.
    pub(crate) fn runs(&self) -> bool {
        let view = self.session.as_ref().and_then(|session| session.view.as_ref());
        view.is_some_and(|view| view.running().is_some())
    }

    /// Whether the spinner turns.
    fn moves(&self) -> bool {
        let view = self.session.as_ref().and_then(|session| session.view.as_ref());
        view.is_some_and(|view| view.activity().is_some()) || self.session.is_none()
    }

    fn resize(&mut self) {
        let (width, rows) = self.tty.size();
        self.rows = rows;
        self.screen.resize(width);
        // What is asked is drawn anew, and has to be seen anew.
        self.focus.unseen();
        self.look_anew();
    }

    /// Text looks as the size and the settings say from here on.
    fn look_anew(&mut self) {
        let look = self.look();
        if let Some(session) = &mut self.session {
            session.look = look;
            session.options.settings = self.options.settings.clone();
            if let Some(view) = &mut session.view {
                view.look_as(look);
            }
        }
        self.is_dirty = true;
    }

    pub(crate) fn look(&self) -> Look {
        let settings = &self.options.settings;
        let wrap = if settings.wrap_words { Wrap::Word } else { Wrap::Terminal };
        let theme = match settings.theme.as_str() {
            "mono" => Theme::Mono,
            "light" => Theme::Light,
            "dark" => Theme::Dark,
            _ => Theme::Ansi,
        };
        let theme = if settings.colours { theme } else { Theme::Mono };
        Look { width: self.screen.width().min(settings.width_max), wrap, theme }
    }

    fn news(&mut self, news: News) {
        self.take(news);
        for _ in 0..NEWS_MAX {
            if self.finished.len() >= WAITING_LINES_MAX {
                break;
            }
            match self.channels.news.try_recv() {
                Ok(news) => self.take(news),
                Err(_) => break,
            }
        }
    }

    fn take(&mut self, news: News) {
        self.is_dirty = true;
        let was_running = self.runs();
        match (&mut self.session, news) {
            (Some(session), news) => {
                let lines = session.take(news);
                self.finished.extend(lines);
            }
            (None, News::Back(found)) => self.begin(*found),
            (None, News::Servers(servers)) => self.choose_server(servers),
            (None, News::NoServer(why)) => {
                self.fail(&why);
            }
            (None, _) => {}
        }
        self.look_at_approvals();
        if was_running && !self.runs() && self.options.settings.bell_turn {
            let _ = self.tty.write("\x07");
        }
        if let Some(code) = self.session.as_ref().and_then(|session| session.over) {
            self.leaving = Some((code, Leaving::Stopped));
        }
        let running = self.session.as_ref().map(|session| session.turns());
        // Where nothing runs any more there is nothing to ask.
        let is_leaving = self.is_waiting_to_leave || matches!(self.panel, Some(Panel::Quit { .. }));
        if is_leaving && running == Some(0) {
            self.leave_quietly();
        }
    }

    /// A server answers.
    fn begin(&mut self, found: Found) {
        let channels = &self.channels;
        let session = Session::new(
            self.options.clone(),
            found,
            self.look(),
            channels.news_sender.clone(),
            channels.front_sender.clone(),
            channels.traced_sender.clone(),
        );
        self.finished.extend(draw::banner(&session));
        // Somebody waits for this, and it comes once.
        self.pace = Duration::ZERO;
        self.session = Some(session);
        self.choose_session();
        while let Some(text) = self.early.pop_front() {
            self.say(&text);
        }
    }

    fn traced(&mut self, traced: &Traced) {
        let call = &traced.call;
        let words = format!("→ {} {}", call.method, call.params);
        self.finished.push(Line::styled(words, Style::DIM));
        let answer: String = traced.answer.chars().take(2_000).collect();
        self.finished.push(Line::styled(format!("← {answer}"), Style::DIM));
        self.is_dirty = true;
    }

    async fn typed(&mut self, inputs: Vec<Input>) {
        for input in inputs {
            self.input(input).await;
            if self.leaving.is_some() {
                return;
            }
        }
        self.is_dirty = true;
    }

    /// Tells what was said to whom it is for.
    pub(crate) fn say(&mut self, text: &str) {
        match &mut self.session {
            Some(session) => self.finished.extend(session.say(text)),
            None => self.early.push_back(text.to_owned()),
        }
    }

    pub(crate) fn hint(&mut self, text: &str) {
        self.hint = Some((text.to_owned(), Instant::now()));
        self.is_dirty = true;
    }
}

struct Signals {
    window: Signal,
    terminate: Signal,
    hangup: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            window: signal(SignalKind::window_change())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

async fn sleep_until(at: Option<Instant>) {
    if let Some(at) = at {
        tokio::time::sleep_until(at.into()).await;
    }
}
