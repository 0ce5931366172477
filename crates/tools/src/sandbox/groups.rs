//! Control groups of the kernel (version 2): they hold the memory and the processes of a command and of all it starts at
//! every moment and whoever it runs as, where this process may make one.
//!
//! That is where a group above its own is its user's and passes the controllers on: beneath systemd's manager of a user (a
//! desktop's terminal), and for root on most machines. Nothing is switched on that is off: whose groups those are, others
//! decide.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{geteuid, getpid};

use super::limits::{Bound, Limits};

/// What a group has to be given by the one above.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// With this begins the name of each; the number of the process that made it follows.
const NAME: &str = "nexus3-";

/// Where groups can be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The one that they are made in.
    above: PathBuf,
    /// The one that this process is in.
    own: PathBuf,
}

/// A group of one command. It goes when this is dropped, unless somebody is in it still.
#[derive(Debug)]
pub(super) struct Group(Meter);

/// What the kernel counts in a group.
#[derive(Clone, Debug)]
pub(super) struct Meter(PathBuf);

/// Where this process can make groups; `None` where the kernel has none or it may not. Looked for once.
pub(super) fn place() -> Option<&'static Place> {
    static FOUND: OnceLock<Option<Place>> = OnceLock::new();
    let find = || {
        let root = mounted(&fs::read_to_string("/proc/self/mountinfo").ok()?)?;
        Place::find(&root, &fs::read_to_string("/proc/self/cgroup").ok()?)
    };
    FOUND.get_or_init(find).as_ref()
}

/// Where all groups of version 2 are seen, by lines as `36 35 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw`.
fn mounted(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (part, at) = (fields.next()?, fields.next()?);
        (after.starts_with("cgroup2 ") && part == "/").then(|| at.into())
    })
}

impl Place {
    fn find(root: &Path, groups: &str) -> Option<Self> {
        Self::all(root, groups).into_iter().find(Self::works)
    }

    /// Those with the controllers, the nearest first, by lines as `0::/user.slice/user-1000.slice/session-2.scope`.
    fn all(root: &Path, groups: &str) -> Vec<Self> {
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        // What lies outside of this namespace has no name that leads there.
        let own = own.filter(|own| own.split('/').all(|part| part != ".."));
        let Some(own) = own.map(|own| root.join(own)) else { return Vec::new() };
        let above = own.ancestors().take_while(|group| group.starts_with(root));
        let places = above.map(|above| Self { above: above.into(), own: own.clone() });
        places.filter(Self::has_controllers).collect()
    }

    fn has_controllers(&self) -> bool {
        let given = fs::read_to_string(self.above.join("cgroup.subtree_control"));
        let given = given.unwrap_or_default();
        CONTROLLERS.iter().all(|wanted| given.split_ascii_whitespace().any(|it| it == *wanted))
    }

    /// Whether a group can be made, bounded, entered and left again.
    fn works(&self) -> bool {
        let is_ours = fs::metadata(&self.above).is_ok_and(|it| it.uid() == geteuid().as_raw());
        let may_write = |path: PathBuf| OpenOptions::new().write(true).open(path).is_ok();
        is_ours
            && [&self.above, &self.own].iter().all(|it| may_write(it.join("cgroup.procs")))
            && self.make().is_ok_and(|group| {
                ["memory.max", "pids.max", "cgroup.procs"]
                    .iter()
                    .all(|it| may_write(group.file(it)))
            })
    }

    fn make(&self) -> io::Result<Group> {
        self.sweep();
        let own = getpid().as_raw_pid();
        for attempt in 0.. {
            let path = self.above.join(format!("{NAME}{own}-{attempt}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Group(Meter(path))),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes what processes left that were killed before they tidied up. A group in which somebody is stays.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.above).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let maker = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next());
            if maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// Has `start` start processes in a group of such limits, in which this process is for as long as that takes. Where it
    /// cannot be had after all, they start without one.
    pub fn within<T>(&self, limits: Limits, start: impl FnOnce() -> T) -> (Option<Group>, T) {
        let group = self.make().and_then(|group| {
            group.bound(limits)?;
            group.enter()?;
            Ok(group)
        });
        let started = start();
        let Ok(group) = group else { return (None, started) };
        // This process is small, and ends with the command: it stays within if it cannot leave.
        let _ = fs::write(self.own.join("cgroup.procs"), "0");
        (Some(group), started)
    }
}

impl Group {
    fn bound(&self, limits: Limits) -> io::Result<()> {
        let write = |name: &str, value: String| fs::write(self.file(name), value);
        write("memory.max", limits.memory_bytes.to_string())?;
        // All of it goes, and nothing of it goes on in halves. Where the machine swaps, that counts beside memory, and is
        // not to be had.
        write("memory.oom.group", "1".into())?;
        let _ = write("memory.swap.max", "0".into());
        // This process is in it for a moment.
        write("pids.max", limits.processes.saturating_add(1).to_string())
    }

    /// Moves this process and all its threads.
    fn enter(&self) -> io::Result<()> {
        fs::write(self.file("cgroup.procs"), "0")
    }

    pub fn meter(&self) -> &Meter {
        &self.0
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }
}

impl Meter {
    /// The bound that the command met, as far as the kernel has told.
    pub fn exceeded(&self, limits: Limits) -> Option<Bound> {
        let count = |file: &str, name: &str| {
            let text = fs::read_to_string(self.0.join(file)).unwrap_or_default();
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let value = lines.find(|(it, _)| *it == name).and_then(|(_, value)| value.parse().ok());
            value.unwrap_or(0_u64)
        };
        if count("memory.events", "oom_kill") > 0 {
            return Some(Bound::Memory);
        }
        if count("pids.events", "max") > 0 {
            return Some(Bound::Processes);
        }
        let taken = Duration::from_micros(count("cpu.stat", "usage_usec"));
        (taken > limits.processor_time).then_some(Bound::ProcessorTime)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The next one who makes a group tries again.
        let _ = fs::remove_dir(&self.0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { memory_bytes: 1 << 20, processes: 3, processor_time: Duration::from_secs(2) };

    #[test]
    fn groups_of_version_2_are_found_among_others() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs rw\n\
                      31 30 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      32 30 0:28 /x /elsewhere rw - cgroup2 cgroup2 rw\n\
                      33 30 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mounted(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mounted("31 30 0:27 / /sys/fs/cgroup rw - cgroup cgroup rw,pids\n"), None);
    }

    /// Directories that look as groups do, of which none has rules.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new(groups: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (name, given) in groups {
                let group = dir.path().join(name);
                fs::create_dir_all(&group).unwrap();
                fs::write(group.join("cgroup.subtree_control"), given).unwrap();
                fs::write(group.join("cgroup.procs"), "").unwrap();
            }
            Self(dir)
        }
    }

    #[test]
    fn the_nearest_group_that_passes_controllers_on_is_taken() {
        let fake = Fake::new(&[
            ("", "cpu memory pids\n"),
            ("a", "memory pids\n"),
            ("a/b", "memory\n"),
            ("a/b/c", ""),
        ]);
        for (own, expected) in [
            ("0::/a/b/c\n", Some("a")),
            ("4:memory:/x\n0::/a\n", Some("a")),
            ("0::/\n", Some("")),
            ("4:memory:/x\n", None),
        ] {
            let nearest = Place::all(fake.0.path(), own).into_iter().next().map(|it| it.above);
            assert_eq!(nearest, expected.map(|name| fake.0.path().join(name)), "{own}");
        }
        assert_eq!(Place::all(fake.0.path(), "0::/../a\n"), []);
        // A directory is no group: what is made in it has no files to bound it by.
        assert_eq!(Place::find(fake.0.path(), "0::/a/b/c\n"), None);
        assert_eq!(fs::read_dir(fake.0.path().join("a")).unwrap().count(), 3, "nothing is left");
    }

    #[test]
    fn what_the_kernel_tells_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group(Meter(dir.path().join("g")));
        fs::create_dir(&group.0.0).unwrap();
        group.bound(LIMITS).unwrap();
        let written = |name: &str| fs::read_to_string(group.file(name)).unwrap();
        assert_eq!((written("memory.max"), written("pids.max")), ("1048576".into(), "4".into()));
        let told = |name: &str, text: &str| fs::write(group.file(name), text).unwrap();
        assert_eq!(group.meter().exceeded(LIMITS), None);
        told("cpu.stat", "usage_usec 2000000\nuser_usec 9000000\n");
        told("pids.events", "max 0\n");
        told("memory.events", "low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n");
        assert_eq!(group.meter().exceeded(LIMITS), None);
        told("cpu.stat", "usage_usec 2000001\n");
        assert_eq!(group.meter().exceeded(LIMITS), Some(Bound::ProcessorTime));
        told("pids.events", "max 1\n");
        assert_eq!(group.meter().exceeded(LIMITS), Some(Bound::Processes));
        told("memory.events", "oom_kill 1\n");
        assert_eq!(group.meter().exceeded(LIMITS), Some(Bound::Memory));
    }

    /// Whatever this machine lets us: with groups, the kernel tells; without, nothing is left of the attempt.
    #[test]
    fn a_group_is_left_behind_by_nobody() {
        let Some(place) = place() else { return };
        let (group, own) =
            place.within(LIMITS, || fs::read_to_string("/proc/self/cgroup").unwrap());
        let group = group.unwrap();
        let name = group.0.0.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(own.contains(&name), "{own}");
        let back = fs::read_to_string("/proc/self/cgroup").unwrap();
        assert!(!back.contains(&name), "{back}");
        let path = group.0.0.clone();
        drop(group);
        assert!(!path.exists());
    }
}
