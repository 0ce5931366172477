//! How much memory there is.

use std::fs;
use std::path::Path;

use crate::Fault;

/// Left to the rest of the machine and to keys and values.
const RESERVE_BYTES: u64 = 128 << 20;

/// Refuses what would not fit, before the machine begins to swap or to kill.
pub fn check(needed: u64, available: Option<u64>) -> Result<(), Fault> {
    match available {
        Some(available) if needed + RESERVE_BYTES > available => Err(Fault::Memory {
            needed_mib: (needed + RESERVE_BYTES) >> 20,
            available_mib: available >> 20,
        }),
        _ => Ok(()),
    }
}

/// What can be had: the least of what the machine, the control groups of this process (a container is one) and its own
/// limit leave. `None` where the kernel says nothing.
pub fn available() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = of_groups(&read("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    let process = of_process(&read("/proc/self/limits"), &read("/proc/self/status"));
    [of_machine(&read("/proc/meminfo")), groups, process].into_iter().flatten().min()
}

/// What the kernel gives without swapping.
fn of_machine(meminfo: &str) -> Option<u64> {
    kibibytes(meminfo, "MemAvailable:")
}

/// What is left of the address space this process may use (`ulimit -v`).
fn of_process(limits: &str, status: &str) -> Option<u64> {
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(kibibytes(status, "VmSize:")?))
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// What the groups leave, each within those above it.
fn of_groups(memberships: &str, root: &Path) -> Option<u64> {
    memberships
        .lines()
        .filter_map(|line| {
            // ID:CONTROLLERS:PATH
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let (group, root) = match controllers {
                "" => (&GROUP, root.to_owned()),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    (&OLD_GROUP, root.join("memory"))
                }
                _ => return None,
            };
            let own = root.join(path.trim_start_matches('/'));
            let all = own.ancestors().take_while(|directory| directory.starts_with(&root));
            all.filter_map(|directory| group.left(directory)).min()
        })
        .min()
}

/// The files of a control group.
struct Group {
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: pages of files that the kernel gives up when memory runs short. They count as used.
    given_up: &'static str,
}

const GROUP: Group =
    Group { limit: "memory.max", used: "memory.current", given_up: "inactive_file " };

/// Of the first version.
const OLD_GROUP: Group = Group {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    given_up: "total_inactive_file ",
};

impl Group {
    fn left(&self, directory: &Path) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let number = |text: &str| text.trim().parse::<u64>().ok();
        // Without a limit it says `max`.
        let (limit, used) = (number(&read(self.limit)?)?, number(&read(self.used)?)?);
        let stat = read("memory.stat").unwrap_or_default();
        let given_up = stat.lines().find_map(|line| number(line.strip_prefix(self.given_up)?));
        Some(limit.saturating_sub(used.saturating_sub(given_up.unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        let gib = 1 << 30;
        assert!(check(gib, Some(gib + RESERVE_BYTES)).is_ok());
        assert!(check(gib, None).is_ok());
        let refused = check(gib, Some(gib + RESERVE_BYTES - 1)).unwrap_err().to_string();
        assert!(refused.contains("1152 MiB") && refused.contains("1151 MiB"), "{refused}");
    }

    #[test]
    fn the_kernel_is_read_rightly() {
        assert_eq!(of_machine("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(of_machine("MemTotal: 9 kB\n"), None);
        let limits = |soft: &str| format!("Max address space         {soft}  unlimited  bytes\n");
        let status = "Name:\tx\nVmSize:\t    1024 kB\n";
        assert_eq!(of_process(&limits("3145728"), status), Some(2 << 20));
        assert_eq!(of_process(&limits("1000"), status), Some(0));
        assert_eq!(of_process(&limits("unlimited"), status), None);
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }

    /// Writes the files of a group: its limit, what is used, and what of that would be given up.
    fn write(directory: &Path, group: &Group, [limit, used, given_up]: [&str; 3]) {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join(group.limit), format!("{limit}\n")).unwrap();
        fs::write(directory.join(group.used), format!("{used}\n")).unwrap();
        let stat = format!("anon 7\n{}{given_up}\n", group.given_up);
        fs::write(directory.join("memory.stat"), stat).unwrap();
    }

    #[test]
    fn a_container_has_what_its_groups_leave() {
        for (group, root, membership) in
            [(&GROUP, "", "0::/pod/box\n"), (&OLD_GROUP, "memory", "1:cpu:/\n4:memory:/pod/box\n")]
        {
            let mount = tempfile::tempdir().unwrap();
            let root = mount.path().join(root);
            let left = || of_groups(membership, mount.path());
            assert_eq!(left(), None, "without such files");
            write(&root.join("pod/box"), group, ["1000", "300", "100"]);
            assert_eq!(left(), Some(800));
            write(&root.join("pod"), group, ["900", "500", "0"]);
            assert_eq!(left(), Some(400), "the group above has less");
            // Seen from inside, the container's group is the root.
            write(&root, group, ["50", "60", "0"]);
            assert_eq!(left(), Some(0));
            write(&root, group, ["max", "60", "0"]);
            assert_eq!(left(), Some(400));
        }
    }
}
