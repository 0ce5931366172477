//! Walking a directory tree within an agent's permissions, on several threads.
//!
//! ripgrep's own walker opens directories by their paths, and one that is swapped for a link meanwhile leads it
//! elsewhere. Here each directory is opened beneath the handle of the tree's root with links forbidden, and each file by
//! its name in its opened directory. What `.gitignore` means is still ripgrep's to say.

use std::collections::VecDeque;
use std::io::{BufRead as _, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::files::{Directory, FileSystem, Files, Opened, READ, file_system, kind, open_in};

/// Threads of one walk. More gain little, and agents walk side by side.
const THREADS_MAX: usize = 8;

/// Files that a thread takes at once: enough that it is not the queue that is slow, few enough that the threads end
/// together.
const FILES_AT_ONCE: usize = 32;

/// How much of a `.gitignore` is read. Each line costs time, and one written to cost much would hold up every search.
const IGNORE_BYTES_MAX: u64 = 64 << 10;

/// A regular file met on a walk.
pub(super) struct Found<'a> {
    dir: &'a OwnedFd,
    name: &'a Path,
    /// From the root of the walk.
    pub path: &'a Path,
}

impl Found<'_> {
    pub fn open(&self) -> Result<Opened, String> {
        open_in(self.dir, self.name, "")
    }
}

/// Visits the files beneath `root` that `.gitignore` does not hide, in no order. Each thread makes a visitor of its own;
/// one that returns false ends the walk. Returns how many directories could not be read.
pub(super) fn walk<V>(files: &Files, root: &Directory, visitor: impl Fn() -> V + Sync) -> usize
where
    V: FnMut(&Found<'_>) -> bool,
{
    let walk = Walk {
        files,
        root,
        blocked: files.blocked_beneath(&root.real).map(Path::to_path_buf).collect(),
        queue: Mutex::new(Queue::default()),
        changed: Condvar::new(),
        ended: AtomicBool::new(false),
        unreadable: AtomicUsize::new(0),
    };
    let ignored = walk.ignored_above();
    walk.push([Job::Directory(PathBuf::new(), ignored)]);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| walk.work(visitor()));
        }
        walk.work(visitor());
    });
    walk.unreadable.into_inner()
}

struct Walk<'a> {
    files: &'a Files,
    root: &'a Directory,
    blocked: Vec<PathBuf>,
    queue: Mutex<Queue>,
    changed: Condvar,
    ended: AtomicBool,
    unreadable: AtomicUsize,
}

/// What is to be done. The walk is over when this is empty and nobody works.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    working: usize,
}

enum Job {
    /// From the root.
    Directory(PathBuf, Option<Arc<Ignored>>),
    /// Names in an opened directory, whose path from the root comes second.
    Files(Arc<OwnedFd>, PathBuf, Vec<PathBuf>),
}

/// What one directory's ignore files say, and where to ask if they say nothing.
struct Ignored {
    rules: Gitignore,
    above: Option<Arc<Ignored>>,
}

impl Walk<'_> {
    fn work<V: FnMut(&Found<'_>) -> bool>(&self, mut visit: V) {
        // Also when a visitor panics: the other threads must not wait for this one.
        let _end = EndOnPanic(self);
        while let Some(job) = self.next() {
            match job {
                Job::Directory(path, ignored) => self.enter(&path, ignored),
                Job::Files(dir, path, names) => {
                    for name in &names {
                        let path = path.join(name);
                        if self.over() {
                            break;
                        }
                        if !visit(&Found { dir: &dir, name, path: &path }) {
                            self.ended.store(true, Ordering::Relaxed);
                        }
                    }
                }
            }
            self.lock().working -= 1;
            self.changed.notify_all();
        }
    }

    /// The next job, or nothing once the walk is over.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if self.over() {
                return None;
            }
            if let Some(job) = queue.jobs.pop_back() {
                queue.working += 1;
                return Some(job);
            }
            if queue.working == 0 {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.files.stopped()
    }

    /// The last jobs are taken first: files before further directories, so that few handles are open at a time.
    fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        self.lock().jobs.extend(jobs);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, path: &Path, ignored: Option<Arc<Ignored>>) {
        let jobs = open_beneath(&self.root.fd, path).and_then(|dir| self.list(dir, path, ignored));
        match jobs {
            Ok(jobs) => self.push(jobs),
            Err(_) => drop(self.unreadable.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn list(
        &self,
        dir: OwnedFd,
        path: &Path,
        ignored: Option<Arc<Ignored>>,
    ) -> rustix::io::Result<Vec<Job>> {
        if file_system(&dir)? != FileSystem::Ordinary {
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        let mut has_rules = false;
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let name = super::files::name(&entry);
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    kind(&rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?)
                }
                known => known,
            };
            has_rules |= IGNORE_FILES.iter().any(|file| name == Path::new(file));
            entries.push((name.to_path_buf(), kind));
        }
        let real = self.root.real.join(path);
        let ignored = if has_rules { rules(&dir, &real, ignored) } else { ignored };
        let (mut jobs, mut names) = (Vec::new(), Vec::new());
        for (name, kind) in entries {
            let is_dir = kind == FileType::Directory;
            let special = [".", "..", ".git"].iter().any(|special| name == Path::new(special));
            if special || !(is_dir || kind == FileType::RegularFile) {
                continue;
            }
            let place = real.join(&name);
            if self.blocked.iter().any(|blocked| place.starts_with(blocked))
                || ignored.as_ref().is_some_and(|ignored| ignored.hides(&place, is_dir))
            {
                continue;
            }
            match is_dir {
                true => jobs.push(Job::Directory(path.join(name), ignored.clone())),
                false => names.push(name),
            }
        }
        let dir = Arc::new(dir);
        let shares = names.chunks(FILES_AT_ONCE);
        jobs.extend(shares.map(|share| Job::Files(dir.clone(), path.into(), share.to_vec())));
        Ok(jobs)
    }

    /// The rules of the repository that the root lies in, as far as the agent may read them.
    fn ignored_above(&self) -> Option<Arc<Ignored>> {
        let mut dirs = Vec::new();
        for real in self.root.real.ancestors() {
            let dir = self.files.directory(real.to_str()?).ok()?;
            let top = rustix::fs::statat(&dir.fd, ".git", AtFlags::SYMLINK_NOFOLLOW).is_ok();
            dirs.push(dir);
            if top {
                // The root's own rules are read when it is entered.
                let above = dirs.into_iter().skip(1).rev();
                return above.fold(None, |ignored, dir| rules(&dir.fd, &dir.real, ignored));
            }
        }
        None
    }
}

struct EndOnPanic<'a, 'b>(&'a Walk<'b>);

impl Drop for EndOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _queue = self.0.lock();
            self.0.ended.store(true, Ordering::Relaxed);
            self.0.changed.notify_all();
        }
    }
}

impl Ignored {
    fn hides(&self, place: &Path, is_dir: bool) -> bool {
        match self.rules.matched(place, is_dir) {
            Match::Ignore(_) => true,
            Match::Whitelist(_) => false,
            Match::None => self.above.as_ref().is_some_and(|above| above.hides(place, is_dir)),
        }
    }
}

/// Later ones are stronger.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

fn rules(dir: &OwnedFd, real: &Path, above: Option<Arc<Ignored>>) -> Option<Arc<Ignored>> {
    let mut builder = GitignoreBuilder::new(real);
    for name in IGNORE_FILES {
        let Ok(opened) = open_in(dir, Path::new(name), "") else { continue };
        let lines = std::io::BufReader::new(opened.file.take(IGNORE_BYTES_MAX)).lines();
        for line in lines.map_while(Result::ok).filter(|line| is_compilable(line)) {
            // A line that is no pattern hides nothing.
            let _ = builder.add_line(None, &line);
        }
    }
    match builder.build() {
        Ok(rules) if !rules.is_empty() => Some(Arc::new(Ignored { rules, above })),
        _ => above,
    }
}

/// Longest pattern for names, and deepest nesting of its braces. The library that compiles them calls itself for each
/// level: one that nests without end, in an argument or in a cloned repository's `.gitignore`, would end the server.
const PATTERN_BYTES_MAX: usize = 1_000;
const PATTERN_DEPTH_MAX: usize = 10;

pub(super) fn is_compilable(pattern: &str) -> bool {
    // Braces that were quoted count too: nobody has ten of them open.
    let depth = pattern.bytes().scan(0_usize, |depth, byte| {
        match byte {
            b'{' => *depth += 1,
            b'}' => *depth = depth.saturating_sub(1),
            _ => {}
        }
        Some(*depth)
    });
    pattern.len() <= PATTERN_BYTES_MAX && depth.max().unwrap_or(0) <= PATTERN_DEPTH_MAX
}

#[cfg(target_os = "linux")]
fn open_beneath(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = READ | OFlags::DIRECTORY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(_: &OwnedFd, _: &Path) -> rustix::io::Result<OwnedFd> {
    Err(rustix::io::Errno::NOSYS)
}
