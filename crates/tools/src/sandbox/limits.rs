//! What a command and all it starts may take together. The kernel has limits for single processes, and for groups only
//! where it lets the launcher make [one](super::groups); elsewhere the launcher looks at the whole family several times a
//! second and ends it when it is beyond a bound.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, RawPid, Resource, Rlimit, getpid, getrlimit, prlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::groups::{self, Meter};
use super::tree::{self, Family};

/// The most that a command and all it starts may take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Without what files back.
    pub memory_bytes: u64,
    /// With their threads.
    pub processes: u64,
    pub processor_time: Duration,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    Memory,
    Processes,
    ProcessorTime,
}

/// Such that no honest command meets them.
impl Default for Limits {
    fn default() -> Self {
        /// For a machine that does not say.
        const UNKNOWN: u64 = 8 << 30;
        let machine = fs::read_to_string("/proc/meminfo").ok();
        let machine = machine.and_then(|text| kib(&text, "MemTotal:"));
        Self {
            // Whoever takes more brings everybody to a halt.
            memory_bytes: machine.map_or(UNKNOWN, |total| total / 4 * 3),
            // More than the widest build starts, less than a kernel can bear.
            processes: 4_096,
            // A quarter of an hour of sixteen cores.
            processor_time: Duration::from_secs(4 * 3600),
        }
    }
}

impl Limits {
    /// What is said of a command that was ended.
    pub(crate) fn exceeded(&self, bound: Bound) -> String {
        match bound {
            Bound::Memory => {
                format!(
                    "took more than {} MiB of memory (commands.memory)",
                    self.memory_bytes >> 20
                )
            }
            Bound::Processes => format!(
                "had more than {} processes and threads (commands.processes)",
                self.processes
            ),
            Bound::ProcessorTime => format!(
                "took more than {} s of processor time (commands.processor_time)",
                self.processor_time.as_secs_f64()
            ),
        }
    }

    fn first_exceeded(&self, usage: &Usage) -> Option<Bound> {
        if usage.memory_bytes > self.memory_bytes {
            Some(Bound::Memory)
        } else if usage.processes > self.processes {
            Some(Bound::Processes)
        } else {
            (usage.processor_time > self.processor_time).then_some(Bound::ProcessorTime)
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory_bytes, processes, processor_time } = self;
        let (mib, seconds) = (memory_bytes >> 20, processor_time.as_secs_f64());
        let holder = match groups::place() {
            Some(_) => "the kernel (cgroup v2) and its launcher",
            None => "its launcher",
        };
        write!(
            f,
            "{mib} MiB of memory, {processes} processes and threads, {seconds} s of processor time for each command, held by {holder}"
        )
    }
}

/// Between two looks, each of which goes through all processes of the machine. A family takes a gigabyte or two meanwhile,
/// or starts some hundred processes.
const LOOK: Duration = Duration::from_millis(250);

/// What the kernel counts for a user is everything that is theirs, so it gets this much more than one command may have:
/// enough for a desktop full of threads.
const OTHERS_OF_THE_USER: u64 = 8_192;

/// Has the kernel hold what it can of the limits for this process and all it starts. A family that forks without end
/// leaves no time to look at it. The kernel does not bound root so.
pub(super) fn take(limits: Limits) -> io::Result<()> {
    let most = limits.processes.saturating_add(OTHERS_OF_THE_USER);
    let now = getrlimit(Resource::Nproc);
    let least = |had: Option<u64>| Some(had.map_or(most, |had| had.min(most)));
    let limit = Rlimit { current: least(now.current), maximum: least(now.maximum) };
    Ok(setrlimit(Resource::Nproc, limit)?)
}

/// Ends the family of this process when it takes too much, by what the kernel counts where it does, and says so in
/// `exceeded`.
pub(super) fn watch(
    limits: Limits,
    command: Pid,
    group: Option<&Meter>,
    exceeded: &OnceLock<Bound>,
) {
    tree::go_first();
    // For one process the kernel keeps count between two looks, and when we are kept from looking.
    let seconds = limits.processor_time.as_secs().saturating_add(1);
    let limit = Rlimit { current: Some(seconds), maximum: Some(seconds.saturating_add(1)) };
    // A failure means that it has ended.
    let _ = prlimit(Some(command), Resource::Cpu, limit);
    loop {
        std::thread::sleep(LOOK);
        let bound = match group {
            Some(group) => group.exceeded(limits),
            None => limits.first_exceeded(&Usage::of_family(limits)),
        };
        if let Some(bound) = bound {
            let _ = exceeded.set(bound);
            tree::end(Duration::ZERO);
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    memory_bytes: u64,
    processes: u64,
    processor_time: Duration,
}

impl Usage {
    /// What the family of this process takes.
    fn of_family(limits: Limits) -> Self {
        let mut usage = Self::of(&Family::find().members);
        // What processes share was counted for each of them. To know better takes the kernel longer.
        if usage.memory_bytes > limits.memory_bytes {
            usage.memory_bytes = Family::find().members.iter().map(|pid| share(*pid)).sum();
        }
        usage
    }

    /// What these descendants of this process take, and what those that ended took.
    fn of(members: &BTreeSet<RawPid>) -> Self {
        let mut usage = Self::default();
        for pid in members {
            let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
            let field = |name: &str| kib(&status, name).unwrap_or(0);
            usage.memory_bytes += field("RssAnon:") + field("RssShmem:");
            usage.processes += number(&status, "Threads:").unwrap_or(1);
        }
        let time = |pid: RawPid| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let taken = |pid: RawPid, own| time(pid).and_then(|stat| processor_time(&stat, own));
        usage.processor_time = members.iter().filter_map(|pid| taken(*pid, true)).sum();
        usage.processor_time += taken(getpid().as_raw_pid(), false).unwrap_or_default();
        usage
    }
}

/// What a process has of the memory it shares, and all of its own. Without leave to know, what it has in all.
fn share(pid: RawPid) -> u64 {
    let of = |file: &str, fields: [&str; 2]| {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        Some(fields.iter().filter_map(|field| kib(&text, field)).sum())
    };
    of("smaps_rollup", ["Pss_Anon:", "Pss_Shmem:"])
        .or_else(|| of("status", ["RssAnon:", "RssShmem:"]))
        .unwrap_or(0)
}

/// From a line of `/proc/{pid}/stat`: the time of children that ended, and with `own` also that of the process itself.
fn processor_time(stat: &str, own: bool) -> Option<Duration> {
    /// Of what the kernel shows, whatever its own clock.
    const TICKS_PER_SECOND: u64 = 100;
    let (from, fields) = if own { (11, 4) } else { (13, 2) };
    let counts = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(from).take(fields);
    let ticks: u64 = counts.filter_map(|count| count.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// The value of a line such as `MemTotal:  16 kB`, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    Some(number(text, name)? << 10)
}

fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { memory_bytes: 10 << 20, processes: 3, processor_time: Duration::from_secs(2) };

    #[test]
    fn what_is_beyond_a_bound_is_named() {
        let most = Usage {
            memory_bytes: LIMITS.memory_bytes,
            processes: LIMITS.processes,
            processor_time: LIMITS.processor_time,
        };
        assert_eq!(LIMITS.first_exceeded(&most), None);
        for (usage, bound, said) in [
            (
                Usage { memory_bytes: (10 << 20) + 1, ..Usage::default() },
                Bound::Memory,
                "took more than 10 MiB of memory (commands.memory)",
            ),
            (
                Usage { processes: 4, ..Usage::default() },
                Bound::Processes,
                "had more than 3 processes and threads (commands.processes)",
            ),
            (
                Usage { processor_time: Duration::from_millis(2010), ..Usage::default() },
                Bound::ProcessorTime,
                "took more than 2 s of processor time (commands.processor_time)",
            ),
        ] {
            assert_eq!(LIMITS.first_exceeded(&usage), Some(bound));
            assert_eq!(LIMITS.exceeded(bound), said);
        }
    }

    #[test]
    fn the_kernels_words_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 100 50 30 20 20 0 1 0 5";
        assert_eq!(processor_time(stat, true), Some(Duration::from_secs(2)));
        assert_eq!(processor_time(stat, false), Some(Duration::from_millis(500)));
        assert_eq!(kib("A:  1 kB\nRssAnon:\t      12 kB\n", "RssAnon:"), Some(12 << 10));
        assert_eq!(kib("A:  1 kB\n", "RssAnon:"), None);
        assert!(Limits::default().memory_bytes > 64 << 20);
        assert!(share(getpid().as_raw_pid()) > 0);
    }
}
