//! The Landlock half of a policy: what the calling thread, and all it starts, may do to files and to other processes.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use super::policy::Policy;

/// The rights this was written and tested against.
const RIGHTS: ABI = ABI::V6;

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const EXECUTE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
/// Everything but device files and their ioctls.
const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    Execute | ReadFile | ReadDir | WriteFile | Truncate | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSock
    | MakeFifo | MakeSym | Refer
});

/// What a program needs to be loaded and to run, and what anybody may know of the machine. Not `/etc` as a whole, nor
/// `/proc`, where the command lines of other processes lie.
const SYSTEM: [&str; 31] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel",
    "/sys/devices/system/cpu",
];

/// What a program that only looks needs of it: what it is loaded from, and the time zone. It could show all it may read.
const SYSTEM_TO_LOOK: [&str; 14] = [
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/local/lib",
    "/usr/local/libexec",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
];

/// What `/proc` tells of the machine, for those who read anywhere. Nothing of its processes, whose command lines are full of
/// secrets; not even of the command's own, which have no place there yet.
const MACHINE: [&str; 13] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/stat",
    "/proc/swaps",
    "/proc/sys",
    "/proc/uptime",
    "/proc/version",
    "/proc/vmstat",
];

/// Devices without a disk, a terminal or a person behind them.
const DEVICES: [(&str, BitFlags<AccessFs>); 5] = [
    ("/dev/null", make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate})),
    ("/dev/zero", make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate})),
    ("/dev/full", make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate})),
    ("/dev/random", make_bitflags!(AccessFs::{ReadFile})),
    ("/dev/urandom", make_bitflags!(AccessFs::{ReadFile})),
];

/// Rules in one policy. Around a blocked path every neighbour needs a rule of its own; ten thousand take some 50 ms.
const RULES_MAX: usize = 10_000;

/// Takes from the calling thread what `policy` does not allow. `tmp` is the command's own directory.
pub(super) fn confine(policy: &Policy, tmp: Option<&Path>) -> Result<(), String> {
    let level = match policy.required {
        true => CompatLevel::HardRequirement,
        false => CompatLevel::BestEffort,
    };
    let failed = |error: landlock::RulesetError| error.to_string();
    let mut ruleset = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(RIGHTS))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(RIGHTS)))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    for rule in rules(policy, tmp)? {
        ruleset = ruleset.add_rule(PathBeneath::new(rule.fd, rule.access)).map_err(failed)?;
    }
    let status = ruleset.restrict_self().map_err(failed)?;
    if policy.required && status.ruleset != RulesetStatus::FullyEnforced {
        return Err(format!("landlock is {:?}", status.ruleset));
    }
    Ok(())
}

struct PathRule {
    fd: OwnedFd,
    access: BitFlags<AccessFs>,
}

fn rules(policy: &Policy, tmp: Option<&Path>) -> Result<Vec<PathRule>, String> {
    let mut rules = Rules { blocked: resolved(&policy.blocked), found: Vec::new() };
    let (read, system) = match policy.programs {
        Some(_) => (READ, SYSTEM_TO_LOOK.as_slice()),
        None => (EXECUTE, SYSTEM.as_slice()),
    };
    let reads_all = policy.read.contains(Path::new("/"));
    // These are symlinks on many systems, and only root can turn them elsewhere.
    for root in system.iter().filter(|_| !reads_all).flat_map(fs::canonicalize) {
        rules.grant(&root, read)?;
    }
    for (device, access) in DEVICES {
        rules.grant(Path::new(device), access)?;
    }
    for program in policy.programs.iter().flatten() {
        rules.grant(program, EXECUTE)?;
    }
    for root in &policy.read {
        rules.grant(root, read)?;
    }
    for root in MACHINE.iter().filter(|_| reads_all) {
        rules.grant(Path::new(root), read)?;
    }
    for root in policy.write.iter().map(PathBuf::as_path).chain(tmp) {
        rules.grant(root, WRITE)?;
    }
    for root in &policy.own {
        if let Some((fd, kind)) = open(root) {
            rules.add(fd, kind, WRITE)?;
        }
    }
    Ok(rules.found)
}

struct Rules {
    blocked: BTreeSet<PathBuf>,
    found: Vec<PathRule>,
}

impl Rules {
    /// Allows `access` beneath `root`, except in what is blocked. Landlock cannot subtract: a directory on the way to a
    /// blocked path gets no rule itself, and its other entries, as they are now, get one each.
    fn grant(&mut self, root: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
        if self.blocked.iter().any(|blocked| root.starts_with(blocked)) {
            return Ok(());
        }
        let Some((fd, kind)) = open(root) else { return Ok(()) };
        let whole_system = root == Path::new("/");
        let blocked_inside: Vec<_> =
            self.blocked.iter().filter(|blocked| blocked.starts_with(root)).collect();
        if blocked_inside.is_empty() && !whole_system {
            return self.add(fd, kind, access);
        }
        // The right to list reaches all the way down. It tells nothing of a blocked file but its name.
        if !blocked_inside.iter().any(|blocked| blocked.is_dir()) {
            self.add(fd, kind, access & AccessFs::ReadDir)?;
        }
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            // From a raw disk one could read what is blocked, and in `/proc` what others do. What is harmless there has
            // rules of its own.
            if !(whole_system && ["dev", "proc"].iter().any(|tree| entry.file_name() == *tree)) {
                self.grant(&entry.path(), access)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        fd: OwnedFd,
        kind: FileType,
        access: BitFlags<AccessFs>,
    ) -> Result<(), String> {
        let access = match kind {
            FileType::Directory => access,
            _ => access & AccessFs::from_file(RIGHTS),
        };
        if self.found.len() == RULES_MAX {
            return Err(format!("more than {RULES_MAX} files lie beside blocked paths"));
        }
        if !access.is_empty() {
            self.found.push(PathRule { fd, access });
        }
        Ok(())
    }
}

/// Opens what a rule is about. Nothing on the way may be a symlink: an earlier command of the same agent may have put
/// one in the place of a directory it can write to. What cannot be opened is not granted.
fn open(path: &Path) -> Option<(OwnedFd, FileType)> {
    let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_SYMLINKS);
    let fd = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve).ok()?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd).ok()?.st_mode);
    (kind != FileType::Symlink).then_some((fd, kind))
}

/// The paths and where they lead.
fn resolved(paths: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let leads_to = paths.iter().filter_map(|path| fs::canonicalize(path).ok());
    paths.iter().cloned().chain(leads_to).collect()
}
