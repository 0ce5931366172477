//! Colours of code, found line by line on a thread of its own.

#[cfg(test)]
mod tests;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

use crate::shown::Shown;
use crate::style::{Colour, Line, Style};

/// What code waits for its colours; then it is plain.
pub const WAIT_MAX: Duration = Duration::from_millis(20);
/// Longer lines are plain.
pub const LINE_CHARS_MAX: usize = 2_000;
/// Batches that wait for the thread. When it is as far behind as that, the rest of the code is plain.
const BATCHES_MAX: usize = 256;

/// Whose colours these are: the palette's in every theme, since that is the user's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    #[default]
    Ansi,
    /// No colour at all.
    Mono,
    /// For palettes of dark letters.
    Light,
    /// For palettes of bright letters.
    Dark,
}

/// What comes to be painted, in its order.
#[derive(Debug, PartialEq, Eq)]
pub enum Job {
    /// Code of this language begins.
    Begin(String),
    Line(String),
}

/// Colours code. The thread and what it knows of languages exist from the first code on.
pub struct Highlighter {
    theme: Theme,
    worker: Option<Worker>,
    /// Lines were left out, so the rest of this code cannot be understood.
    lost: bool,
    sent: u64,
    /// The batch whose last line has come.
    done: u64,
}

struct Worker {
    batches: SyncSender<Batch>,
    painted: Receiver<Painted>,
}

struct Batch {
    number: u64,
    theme: Theme,
    jobs: Vec<Job>,
}

enum Painted {
    Line { batch: u64, index: usize, line: Line },
    End { batch: u64 },
}

impl Highlighter {
    pub fn new(theme: Theme) -> Self {
        Self { theme, worker: None, lost: false, sent: 0, done: 0 }
    }

    pub fn set_theme(&mut self, theme: Theme) {
        self.theme = theme;
    }

    /// For each line in order its colours, or nothing where it stays plain. It waits [`WAIT_MAX`] at most, and not at all
    /// while the thread is still busy with what was given up before: one slow line costs that time once.
    pub fn paint(&mut self, jobs: Vec<Job>) -> Vec<Option<Line>> {
        self.paint_within(jobs, WAIT_MAX)
    }

    fn paint_within(&mut self, jobs: Vec<Job>, wait_max: Duration) -> Vec<Option<Line>> {
        let mut lines = vec![None; jobs.iter().filter(|job| matches!(job, Job::Line(_))).count()];
        if self.theme == Theme::Mono {
            return lines;
        }
        let worker = self.worker.get_or_insert_with(Worker::start);
        while let Ok(painted) = worker.painted.try_recv() {
            if let Painted::End { batch } = painted {
                self.done = batch;
            }
        }
        let wait = if self.done == self.sent { wait_max } else { Duration::ZERO };
        self.lost &= !jobs.iter().any(|job| matches!(job, Job::Begin(_)));
        let batch = Batch { number: self.sent + 1, theme: self.theme, jobs };
        if self.lost || worker.batches.try_send(batch).is_err() {
            self.lost = true;
            return lines;
        }
        self.sent += 1;
        let deadline = Instant::now() + wait;
        while self.done < self.sent {
            match worker.painted.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Painted::Line { batch, index, line }) if batch == self.sent => {
                    if let Some(place) = lines.get_mut(index) {
                        *place = Some(line);
                    }
                }
                Ok(Painted::Line { .. }) => {}
                Ok(Painted::End { batch }) => self.done = batch,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        lines
    }
}

impl Worker {
    /// It ends when its highlighter is gone. Without a thread all code is plain.
    fn start() -> Self {
        let (batches, inbox) = mpsc::sync_channel::<Batch>(BATCHES_MAX);
        let (outbox, painted) = mpsc::channel();
        let run = move || {
            let mut painter = Painter::default();
            for batch in inbox {
                let mut index = 0;
                for job in batch.jobs {
                    let Some(text) = painter.take(job) else { continue };
                    if let Some(line) = painter.line(&text, batch.theme) {
                        let _ = outbox.send(Painted::Line { batch: batch.number, index, line });
                    }
                    index += 1;
                }
                let _ = outbox.send(Painted::End { batch: batch.number });
            }
        };
        let _ = thread::Builder::new().name("code".into()).spawn(run);
        Self { batches, painted }
    }
}

/// What the thread has: languages, and how far it has read.
#[derive(Default)]
struct Painter {
    syntaxes: Option<SyntaxSet>,
    roles: Vec<(Scope, Role)>,
    reading: Option<(ParseState, ScopeStack)>,
}

impl Painter {
    /// The line to paint, if the job is one.
    fn take(&mut self, job: Job) -> Option<String> {
        match job {
            Job::Line(text) => Some(text),
            Job::Begin(language) => {
                self.begin(&language);
                None
            }
        }
    }

    fn begin(&mut self, language: &str) {
        self.reading = None;
        if language.is_empty() {
            return;
        }
        let syntaxes = self.syntaxes.get_or_insert_with(two_face::syntax::extra_newlines);
        if self.roles.is_empty() {
            self.roles = ROLES
                .iter()
                .filter_map(|(name, role)| Some((Scope::new(name).ok()?, *role)))
                .collect();
        }
        let language = match language {
            "shell" | "console" | "zsh" => "bash",
            "jsonc" | "json5" => "json",
            "csharp" => "cs",
            other => other,
        };
        let syntax = syntaxes.find_syntax_by_token(language);
        self.reading = syntax.map(|syntax| (ParseState::new(syntax), ScopeStack::new()));
    }

    fn line(&mut self, text: &str, theme: Theme) -> Option<Line> {
        let (state, stack) = self.reading.as_mut()?;
        if text.chars().nth(LINE_CHARS_MAX).is_some() {
            return None;
        }
        let whole = format!("{text}\n");
        let found = state.parse_line(&whole, self.syntaxes.as_ref()?).ok();
        let mut line = Line::default();
        let mut from = 0;
        for (at, change) in found? {
            push(&mut line, text.get(from..at.min(text.len())), role(stack, &self.roles), theme);
            from = at.min(text.len());
            stack.apply(&change).ok()?;
        }
        push(&mut line, text.get(from..), role(stack, &self.roles), theme);
        Some(line)
    }
}

fn push(line: &mut Line, text: Option<&str>, role: Role, theme: Theme) {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return };
    line.push(Shown::from(text), role.style(theme));
}

/// The innermost scope that says something decides.
fn role(stack: &ScopeStack, roles: &[(Scope, Role)]) -> Role {
    let of = |scope: &Scope| {
        roles.iter().find(|(prefix, _)| prefix.is_prefix_of(*scope)).map(|(_, role)| *role)
    };
    stack.as_slice().iter().rev().find_map(of).unwrap_or(Role::Plain)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Plain,
    Comment,
    Text,
    Constant,
    Keyword,
    Function,
    Type,
    Heading,
    Added,
    Removed,
}

/// The first that fits holds.
const ROLES: &[(&str, Role)] = &[
    ("comment", Role::Comment),
    ("constant", Role::Constant),
    ("meta.interpolation", Role::Plain),
    ("meta.template.expression", Role::Plain),
    ("string", Role::Text),
    ("keyword.operator", Role::Plain),
    ("keyword", Role::Keyword),
    ("storage", Role::Keyword),
    ("variable.language", Role::Keyword),
    ("entity.name.tag", Role::Keyword),
    ("entity.name.function", Role::Function),
    ("support.function", Role::Function),
    ("variable.function", Role::Function),
    ("entity.name.section", Role::Heading),
    ("entity.name", Role::Type),
    ("entity.other", Role::Type),
    ("support.type", Role::Type),
    ("support.class", Role::Type),
    ("markup.heading", Role::Heading),
    ("markup.inserted", Role::Added),
    ("markup.deleted", Role::Removed),
    ("meta.diff", Role::Comment),
];

impl Role {
    fn style(self, theme: Theme) -> Style {
        let [plain, bright, on_light] = match self {
            Self::Plain => return Style::PLAIN,
            Self::Heading => return Style::BOLD,
            Self::Comment => [Colour::BrightBlack; 3],
            Self::Text | Self::Added => [Colour::Green, Colour::BrightGreen, Colour::Green],
            Self::Constant => [Colour::Yellow, Colour::BrightYellow, Colour::Red],
            Self::Keyword => [Colour::Magenta, Colour::BrightMagenta, Colour::Magenta],
            Self::Function => [Colour::Blue, Colour::BrightBlue, Colour::Blue],
            Self::Type => [Colour::Cyan, Colour::BrightCyan, Colour::Cyan],
            Self::Removed => [Colour::Red, Colour::BrightRed, Colour::Red],
        };
        match theme {
            Theme::Mono => Style::PLAIN,
            Theme::Ansi => Style::colour(plain),
            Theme::Dark => Style::colour(bright),
            Theme::Light => Style::colour(on_light),
        }
    }
}

impl Theme {
    /// How code within prose looks.
    pub fn code(self) -> Style {
        match self {
            Self::Mono => Style::BOLD,
            Self::Ansi => Style::colour(Colour::Cyan),
            Self::Dark => Style::colour(Colour::BrightCyan),
            Self::Light => Style::colour(Colour::Blue),
        }
    }
}
