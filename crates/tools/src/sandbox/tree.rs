//! The family of a launcher: every process that descends from it, found and ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, RawPid, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
    setpriority_process,
};

/// Between two rounds of killing. A family that forks as fast as it can is caught up with within a few.
const ROUND: Duration = Duration::from_millis(5);

/// Asks every descendant of this process to end, and after `grace` makes them. Goes on for as long as there are any and
/// does not return: whoever reaps them ends the process.
pub(super) fn end(grace: Duration) -> ! {
    go_first();
    signal(Signal::TERM);
    // A stopped process sees no other signal than the last.
    signal(Signal::CONT);
    std::thread::sleep(grace);
    loop {
        signal(Signal::KILL);
        std::thread::sleep(ROUND);
    }
}

/// Whoever watches over a crowd must not wait in line with it for the processor. Only root may do this.
pub(super) fn go_first() {
    const FIRST: i32 = -20;
    let _ = setpriority_process(None, FIRST);
}

/// Groups first: the kernel signals all of a group at once, so that none of it forks meanwhile. Then each by itself.
fn signal(signal: Signal) {
    let family = Family::find();
    for group in family.groups.into_iter().filter_map(Pid::from_raw) {
        // A failure means that it is empty by now.
        let _ = kill_process_group(group, signal);
    }
    // A number read from /proc may be another process's when the signal is sent. Who is found in the family again
    // after a handle on the number was opened is the right one.
    let handles: Vec<(RawPid, OwnedFd)> = family
        .members
        .into_iter()
        .filter_map(|pid| Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?)))
        .collect();
    let still = Family::find().members;
    for (_, handle) in handles.iter().filter(|(pid, _)| still.contains(pid)) {
        let _ = pidfd_send_signal(handle, signal);
    }
}

/// The descendants of this process that have not ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Family {
    pub members: BTreeSet<RawPid>,
    /// Process groups in which there is nobody else. A descendant may have joined the server's.
    groups: BTreeSet<RawPid>,
}

impl Family {
    pub fn find() -> Self {
        let stat = |pid: RawPid| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let processes: Vec<Process> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Process::parse(pid, &stat(pid)?))
            .collect();
        Self::of(getpid().as_raw_pid(), &processes)
    }

    fn of(ancestor: RawPid, processes: &[Process]) -> Self {
        // A family that forks without end has thousands of members, and is to be found before it has more.
        let mut children: BTreeMap<RawPid, Vec<RawPid>> = BTreeMap::new();
        for process in processes {
            children.entry(process.parent).or_default().push(process.pid);
        }
        let mut descendants = BTreeSet::new();
        let mut parents = vec![ancestor];
        while let Some(parent) = parents.pop() {
            let found = children.get(&parent).into_iter().flatten().copied();
            parents.extend(found.filter(|pid| descendants.insert(*pid)));
        }
        let (ours, others): (Vec<&Process>, Vec<_>) =
            processes.iter().partition(|process| descendants.contains(&process.pid));
        let foreign: BTreeSet<RawPid> = others.iter().map(|process| process.group).collect();
        let mut groups: BTreeSet<RawPid> = ours.iter().map(|process| process.group).collect();
        groups.retain(|group| !foreign.contains(group));
        let members = ours.iter().filter(|process| !process.ended).map(|process| process.pid);
        Self { members: members.collect(), groups }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: RawPid,
    parent: RawPid,
    group: RawPid,
    /// It ended, and waits to be reaped.
    ended: bool,
}

impl Process {
    /// Reads a line of `/proc/{pid}/stat`: `pid (name) state parent group …`, where the name may hold anything.
    fn parse(pid: RawPid, stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        Some(Self { pid, parent, group: fields.next()?.parse().ok()?, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_hide_a_process() {
        let process = Process { pid: 7, parent: 3, group: 5, ended: false };
        assert_eq!(Process::parse(7, "7 (a) R 1 (b)) S 3 5 5 0 -1"), Some(process));
        assert_eq!(Process::parse(7, "7 (a"), None);
    }

    #[test]
    fn descendants_are_found_through_those_that_ended() {
        let process = |pid, parent, group, ended| Process { pid, parent, group, ended };
        let processes = [
            process(5, 4, 5, false),
            process(6, 5, 9, false),
            process(4, 3, 3, true),
            process(3, 2, 3, false),
            process(9, 1, 9, false),
            process(2, 9, 2, false),
            process(10, 9, 10, false),
        ];
        let expected =
            Family { members: BTreeSet::from([3, 5, 6]), groups: BTreeSet::from([3, 5]) };
        assert_eq!(Family::of(2, &processes), expected);
    }
}
