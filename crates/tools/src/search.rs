//! Tools that look through a tree: by name and by content. What git ignores is left out.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use globset::{GlobBuilder, GlobSet};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};
use nexus_core::permission::ToolClass;
use nexus_core::tool::Need;
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::FileTool;
use super::files::{Files, Opened, kind};
use super::text::{OUTPUT_BYTES_MAX, listed, start};
use super::walk::{Found, is_compilable, walk};

pub(super) struct Glob;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GlobArgs {
    pattern: String,
    path: Option<String>,
}

impl FileTool for Glob {
    const NAME: &'static str = "glob";
    const DESCRIPTION: &'static str = "Find files by name: *.rs or src/**/*.rs.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = GlobArgs;
    type Output = String;

    fn needs(args: &GlobArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Read(args.path.clone().unwrap_or_else(here))])
    }

    fn run(args: GlobArgs, files: &Files) -> Result<String, String> {
        /// Most names that are gathered before they are put in order.
        const NAMES_MAX: usize = 100_000;
        let pattern = Pattern::new(&args.pattern)?;
        let path = args.path.unwrap_or_else(here);
        let root = files.directory(&path)?;
        let names = Mutex::new(Vec::new());
        let unreadable = walk(files, &root, || {
            |found: &Found<'_>| {
                if !pattern.matches(found.path) {
                    return true;
                }
                let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
                names.push(shown(&path, found.path));
                names.len() < NAMES_MAX
            }
        });
        let mut names = names.into_inner().unwrap_or_else(PoisonError::into_inner);
        names.sort();
        let (list, count) = listed(&names);
        let mut answer = match (count, count < names.len()) {
            (0, _) => "No file matches.\n".into(),
            (_, true) => format!("[{count} of {} files; narrow the pattern]\n{list}", names.len()),
            _ => list,
        };
        note_unreadable(&mut answer, unreadable);
        Ok(answer)
    }
}

pub(super) struct SearchText;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchTextArgs {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    ignore_case: Option<bool>,
    context: Option<usize>,
}

impl FileTool for SearchText {
    const NAME: &'static str = "search_text";
    const DESCRIPTION: &'static str = "Search file contents for a regex, as ripgrep does.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = SearchTextArgs;
    type Output = String;

    fn needs(args: &SearchTextArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Read(args.path.clone().unwrap_or_else(here))])
    }

    fn run(args: SearchTextArgs, files: &Files) -> Result<String, String> {
        let search = Search::new(&args, files)?;
        let path = args.path.unwrap_or_else(here);
        let unreadable = match kind(&files.stat(&path)?.0) {
            FileType::Directory => {
                let root = files.directory(&path)?;
                walk(files, &root, || search.visitor(&path))
            }
            _ => {
                let mut searcher = search.searcher();
                search.search(&mut searcher, &search.matcher, files.open(&path)?, path);
                0
            }
        };
        let mut answer = search.answer();
        note_unreadable(&mut answer, unreadable);
        Ok(answer)
    }
}

/// What one compiled pattern may take. The search through one piece of a file, which nothing interrupts, takes time with
/// the size of the pattern and the length of the piece: some seconds for the largest.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Longest line that is held in memory; a file with a longer one is no text.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Size of a pattern times length of a line, which is searched as one piece. Beyond it, a file is searched up to the line.
const EFFORT_MAX: usize = 64 << 30;

/// The pattern, compiled, and within which size.
fn compile(args: &SearchTextArgs) -> Result<(RegexMatcher, usize), String> {
    /// Most patterns fit.
    const SMALL_BYTES: usize = 4 << 10;
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(args.ignore_case.unwrap_or(false)).line_terminator(Some(b'\n'));
    builder.dfa_size_limit(10 * PATTERN_BYTES_MAX);
    let mut size = SMALL_BYTES;
    loop {
        match builder.size_limit(size).build(&args.pattern) {
            Ok(matcher) => return Ok((matcher, size)),
            Err(_) if size < PATTERN_BYTES_MAX => size *= 2,
            Err(error) => return Err(format!("the pattern does not work: {error}")),
        }
    }
}

/// One search and what it has found so far.
struct Search<'a> {
    files: &'a Files,
    matcher: RegexMatcher,
    only: Option<Pattern>,
    line_bytes_max: usize,
    context_lines: usize,
    results: Mutex<Vec<Hits>>,
    bytes: AtomicUsize,
}

/// What was found in one file.
struct Hits {
    path: String,
    lines: String,
    cut: bool,
}

impl<'a> Search<'a> {
    fn new(args: &SearchTextArgs, files: &'a Files) -> Result<Self, String> {
        /// More context than this is better read with `read_file`.
        const CONTEXT_LINES_MAX: usize = 20;
        let (matcher, pattern_bytes) = compile(args)?;
        Ok(Self {
            files,
            matcher,
            line_bytes_max: (EFFORT_MAX / pattern_bytes).min(LINE_BYTES_MAX),
            only: args.glob.as_deref().map(Pattern::new).transpose()?,
            context_lines: args.context.unwrap_or(0).min(CONTEXT_LINES_MAX),
            results: Mutex::default(),
            bytes: AtomicUsize::new(0),
        })
    }

    /// What a thread of the walk does with each file. It has a matcher of its own, since the scratch space within one is
    /// handed out under a lock.
    fn visitor(&self, path: &str) -> impl FnMut(&Found<'_>) -> bool {
        let (mut searcher, matcher) = (self.searcher(), self.matcher.clone());
        move |found| {
            if self.only.as_ref().is_none_or(|only| only.matches(found.path))
                && let Ok(opened) = found.open()
            {
                self.search(&mut searcher, &matcher, opened, shown(path, found.path));
            }
            self.bytes.load(Ordering::Relaxed) < OUTPUT_BYTES_MAX
        }
    }

    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_number(true)
            .heap_limit(Some(self.line_bytes_max))
            .before_context(self.context_lines)
            .after_context(self.context_lines)
            .build()
    }

    fn search(
        &self,
        searcher: &mut Searcher,
        matcher: &RegexMatcher,
        opened: Opened,
        path: String,
    ) {
        let mut hits = Hits { path, lines: String::new(), cut: false };
        let reader = Stoppable { files: self.files, file: opened.file };
        // A file that breaks off in the middle still has what was found in it.
        let _ = searcher.search_reader(matcher, reader, &mut hits);
        if hits.lines.is_empty() {
            return;
        }
        self.bytes.fetch_add(hits.lines.len() + hits.path.len(), Ordering::Relaxed);
        self.results.lock().unwrap_or_else(PoisonError::into_inner).push(hits);
    }

    /// The finds of each file under its name, in the order of the names.
    fn answer(self) -> String {
        let mut results = self.results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by(|a, b| a.path.cmp(&b.path));
        if results.is_empty() {
            return "Nothing matches.\n".into();
        }
        let cut =
            results.iter().any(|hits| hits.cut) || self.bytes.into_inner() >= OUTPUT_BYTES_MAX;
        let mut answer = String::new();
        if cut {
            answer.push_str("[cut: there are more matches; narrow the pattern, path or glob]\n");
        }
        for Hits { path, lines, .. } in results {
            if answer.len() + path.len() + lines.len() > OUTPUT_BYTES_MAX + 1000 {
                break;
            }
            let _ = write!(answer, "{path}\n{lines}");
        }
        answer
    }
}

/// Most that one file may take of the answer, so that others are seen too.
const HITS_BYTES_MAX: usize = OUTPUT_BYTES_MAX / 2;

/// Longest part of a line that is shown: minified files have lines of megabytes.
const LINE_SHOWN_BYTES_MAX: usize = 300;

impl Hits {
    fn push(&mut self, number: Option<u64>, mark: char, line: &[u8]) {
        let line = &line[..line.len().min(LINE_SHOWN_BYTES_MAX * 4)];
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches(['\n', '\r']);
        let shown = start(line, LINE_SHOWN_BYTES_MAX);
        let cut = if shown.len() < line.len() { "…" } else { "" };
        let _ = writeln!(self.lines, "{}{mark} {shown}{cut}", number.unwrap_or(0));
    }
}

impl Sink for &mut Hits {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.push(found.line_number(), ':', found.bytes());
        self.cut = self.lines.len() > HITS_BYTES_MAX;
        Ok(!self.cut)
    }

    fn context(&mut self, _: &Searcher, around: &SinkContext<'_>) -> Result<bool, io::Error> {
        if *around.kind() != SinkContextKind::Other {
            self.push(around.line_number(), '-', around.bytes());
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.lines.push_str("--\n");
        Ok(true)
    }
}

/// A file whose reading ends with the call.
struct Stoppable<'a> {
    files: &'a Files,
    file: std::fs::File,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.files.stopped() { Ok(0) } else { self.file.read(buffer) }
    }
}

/// A pattern for paths: without a slash it is one for names at any depth.
struct Pattern {
    glob: GlobSet,
    name_only: bool,
}

impl Pattern {
    fn new(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("./").unwrap_or(text);
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err("the pattern is relative to path: it has no leading / and no ..".into());
        }
        if !is_compilable(text) {
            return Err("the pattern is too long, or its braces nest too deeply".into());
        }
        // A set of one: to compile a single pattern panics where it cannot be done.
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .build()
            .and_then(|glob| GlobSet::builder().add(glob).build())
            .map_err(|error| format!("the pattern does not work: {}", error.kind()))?;
        Ok(Self { glob, name_only: !text.contains('/') })
    }

    fn matches(&self, path: &Path) -> bool {
        match (self.name_only, path.file_name()) {
            (true, Some(name)) => self.glob.is_match(name),
            _ => self.glob.is_match(path),
        }
    }
}

fn here() -> String {
    ".".into()
}

/// A file's path such that the model can give it to another tool.
fn shown(path: &str, found: &Path) -> String {
    match path {
        "." => found.display().to_string(),
        path => Path::new(path).join(found).display().to_string(),
    }
}

fn note_unreadable(answer: &mut String, count: usize) {
    if count > 0 {
        let noun = if count == 1 { "directory" } else { "directories" };
        let _ = writeln!(answer, "[{count} {noun} could not be read]");
    }
}
