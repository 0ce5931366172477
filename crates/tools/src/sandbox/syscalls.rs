//! The seccomp half of a policy: system calls that the calling thread, and all it starts, are refused.

use std::collections::BTreeMap;

use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// What of the calls that are not always refused is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls {
    pub network: bool,
    /// Change modes, owners, times and extended attributes, which Landlock does not look at.
    pub metadata: bool,
}

/// Refuses the calling thread what `calls` does not allow, and the rights of an administrator.
pub(super) fn refuse(calls: Calls) -> Result<(), String> {
    drop_capabilities()?;
    for filter in filters(calls)? {
        seccompiler::apply_filter(&filter).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What a command that runs as root keeps of root's rights: its own way with files and users. Everything that reaches
/// the kernel, the machine or the network's configuration goes.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

fn drop_capabilities() -> Result<(), String> {
    let held = rustix::thread::capabilities(None).map_err(|error| error.to_string())?;
    if !held.effective.contains(CapabilitySet::SETPCAP) {
        // Without it a program neither has the rights in question nor gains them: `no_new_privs` is set.
        return Ok(());
    }
    for capability in held.permitted.difference(KEPT).iter() {
        remove_capability_from_bounding_set(capability)
            .map_err(|error| format!("dropping a capability: {error}"))?;
    }
    Ok(())
}

fn filters(calls: Calls) -> Result<Vec<BpfProgram>, String> {
    let target: TargetArch = std::env::consts::ARCH
        .try_into()
        .map_err(|_| format!("system calls of {} are not known", std::env::consts::ARCH))?;
    let mut not_permitted = always_refused()?;
    not_permitted.insert(libc::SYS_socket, socket_rules(calls.network)?);
    not_permitted.insert(libc::SYS_socketpair, socketpair_rules()?);
    if !calls.metadata {
        not_permitted.extend(METADATA.map(|call| (call, Vec::new())));
        #[cfg(target_arch = "x86_64")]
        not_permitted.extend(METADATA_X86.map(|call| (call, Vec::new())));
    }
    // Its flags lie in memory, where a filter cannot look. The C library falls back to `clone` when there is none.
    let not_there = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let compile = |rules, errno: i32| -> Result<BpfProgram, String> {
        let refusal = SeccompAction::Errno(errno.unsigned_abs());
        SeccompFilter::new(rules, SeccompAction::Allow, refusal, target)
            .and_then(BpfProgram::try_from)
            .map_err(|error| error.to_string())
    };
    let mut filters = vec![compile(not_permitted, libc::EPERM)?, compile(not_there, libc::ENOSYS)?];
    if cfg!(target_arch = "x86_64") {
        filters.push(no_x32());
    }
    Ok(filters)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn always_refused() -> Result<Rules, String> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend([libc::SYS_ioperm, libc::SYS_iopl].map(|call| (call, Vec::new())));
    // New namespaces, above all a user namespace, in which one is root.
    let spaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let clone = spaces.map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        rule([when(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    rules.insert(libc::SYS_clone, clone.into_iter().collect::<Result<_, _>>()?);
    // Typing into a terminal, and file attributes such as "immutable".
    let ioctl = [libc::TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR];
    let ioctl = ioctl.map(|request| rule([when(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, ioctl.into_iter().collect::<Result<_, _>>()?);
    // The limits of other processes of the same user, the server among them.
    rules.insert(libc::SYS_prlimit64, vec![rule([when(0, SeccompCmpOp::Ne, 0)?])?]);
    // Their priorities likewise; a command may lower its own.
    let kinds = [(libc::SYS_setpriority, PRIO_PROCESS), (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS)];
    for (call, process) in kinds {
        let others =
            [rule([when(0, SeccompCmpOp::Ne, process)?])?, rule([when(1, SeccompCmpOp::Ne, 0)?])?];
        rules.insert(call, others.into());
    }
    Ok(rules)
}

/// Without the network, no sockets at all; pairs of them are another call. With it, still none to the services of this
/// machine: whoever can speak to the session bus, to a container daemon or to this server's own Unix socket can have
/// them act outside the sandbox.
fn socket_rules(network: bool) -> Result<Vec<SeccompRule>, String> {
    if !network {
        return Ok(Vec::new());
    }
    let family = |op, family: i32| when(0, op, u64::from(family.unsigned_abs()));
    Ok(vec![
        rule([
            family(SeccompCmpOp::Ne, libc::AF_INET)?,
            family(SeccompCmpOp::Ne, libc::AF_INET6)?,
            family(SeccompCmpOp::Ne, libc::AF_NETLINK)?,
        ])?,
        // Name resolution asks netlink for routes and addresses. Its other protocols configure the kernel.
        rule([
            family(SeccompCmpOp::Eq, libc::AF_NETLINK)?,
            when(2, SeccompCmpOp::Ne, u64::from(libc::NETLINK_ROUTE.unsigned_abs()))?,
        ])?,
    ])
}

/// Either end of a pair of datagram sockets can be used to write to any other socket on this machine, such as the
/// system's log. Streams stay with each other.
fn socketpair_rules() -> Result<Vec<SeccompRule>, String> {
    const KIND: u64 = 0xf;
    let is = |kind: i32| when(1, SeccompCmpOp::MaskedEq(KIND), u64::from(kind.unsigned_abs()));
    // For Unix sockets the kernel takes `RAW` to mean `DGRAM`.
    Ok(vec![rule([is(libc::SOCK_DGRAM)?])?, rule([is(libc::SOCK_RAW)?])?])
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, String> {
    SeccompRule::new(conditions.into()).map_err(|error| error.to_string())
}

fn when(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
        .map_err(|error| error.to_string())
}

/// Refuses the x32 calls of x86-64 kernels, which do the same under other numbers.
fn no_x32() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const CALL_NUMBER: u32 = 0;
    const X32_BIT: u32 = 0x4000_0000;
    let refusal = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    vec![
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: CALL_NUMBER },
        sock_filter { code: JUMP_IF_SET, jt: 0, jf: 1, k: X32_BIT },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: refusal.into() },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: SeccompAction::Allow.into() },
    ]
}

const PRIO_PROCESS: u64 = 0;
const IOPRIO_WHO_PROCESS: u64 = 1;
const TIOCLINUX: u64 = 0x541c;
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;

/// Calls that no build, test or tool of a developer needs, and that reach other processes, the kernel or the machine.
const REFUSED: [i64; 62] = [
    // Memory, semaphores and messages that all processes of a user share by a number or a name. Neither Landlock nor the
    // file system knows of them.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Other processes.
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // What the file system looks like.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Ways into the kernel that are wide, or that a filter cannot see through.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
];

/// Numbers that the `libc` crate does not have for every target; they are the same on all of them.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_FILE_SETATTR: i64 = 469;

const METADATA: [i64; 15] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
];

/// The older forms, which only x86-64 has.
#[cfg(target_arch = "x86_64")]
const METADATA_X86: [i64; 6] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
