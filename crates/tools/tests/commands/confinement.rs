//! What a command cannot do.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use nexus_core::permission::{Permissions, Reach};
use nexus_tools::sandbox::{Command, End, Limits, Policy, Stdin, strength};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{SECRET, World, launcher};

#[tokio::test]
async fn nothing_outside_can_be_changed() {
    let world = World::new().await;
    let outside = world.outside.display().to_string();
    symlink(&world.outside, world.cwd.join("link")).unwrap();
    std::fs::write(world.cwd.join("own"), "").unwrap();
    std::fs::create_dir(world.outside.join("dir")).unwrap();
    for script in [
        "echo x > OUT/new",
        "echo x >> OUT/secret",
        "> OUT/secret",
        "echo x > link/new",
        "echo x > ../outside/new",
        "echo x > /proc/self/root/OUT/new",
        "cd OUT && echo x > new",
        "mkdir OUT/new",
        "rm OUT/secret",
        "rmdir OUT/dir",
        "mv OUT/secret .",
        "mv own OUT/new",
        "ln OUT/secret hard",
        "ln own OUT/new",
        "ln -s x OUT/new",
        "mkfifo OUT/new",
        "truncate -s 0 OUT/secret",
        "cp own OUT/new",
        "dd if=/dev/null of=OUT/secret",
        "bash -c 'bash -c \"echo x > OUT/new\"'",
        "mknod device b 8 0",
        "mount -t tmpfs none OUT",
        "unshare -r -m true",
        "chroot . /bin/true",
    ] {
        let said = world.shell(world.trusted(), &script.replace("OUT", &outside)).await;
        assert!(!said.starts_with("exit 0,"), "{script}: {said}");
    }
    let mut left: Vec<_> = std::fs::read_dir(&world.outside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["dir", "secret"]);
    assert_eq!(std::fs::read_to_string(world.outside.join("secret")).unwrap(), SECRET);
    assert!(!world.cwd.join("hard").exists() && !world.cwd.join("device").exists());
}

#[tokio::test]
async fn nothing_outside_can_be_read() {
    let world = World::new().await;
    let outside = world.outside.display().to_string();
    symlink(world.outside.join("secret"), world.cwd.join("link")).unwrap();
    for script in [
        "cat OUT/secret",
        "cat link",
        "cat ../outside/secret",
        "ls OUT",
        "cat /proc/self/root/OUT/secret",
        "cat < OUT/secret",
        "cp OUT/secret x",
        "ln OUT/secret x && cat x",
        "cat /etc/shadow",
        "ls /root /home",
        "cat /proc/1/cmdline",
        "ls /tmp",
    ] {
        let said = world.shell(world.confined(), &script.replace("OUT", &outside)).await;
        assert!(!said.starts_with("exit 0,") && !said.contains(SECRET), "{script}: {said}");
    }
}

#[tokio::test]
async fn what_is_allowed_works() {
    let world = World::new().await;
    for permissions in [world.trusted(), world.confined()] {
        let script = "set -e; echo hello > f; cat f; ls; mkdir -p d/e; mv f d/e; chmod +x d/e/f; rm -r d; \
                      echo t > $TMPDIR/t; cat $TMPDIR/t; echo x > /dev/null; cat <(echo sub); date > /dev/null";
        let said = world.shell(permissions.clone(), script).await;
        assert!(said.starts_with("exit 0,") && said.ends_with("hello\nf\nt\nsub\n"), "{said}");
        let said =
            world.python(permissions, "import json, os; print(json.dumps(os.listdir()))").await;
        assert!(said.ends_with("[]\n"), "{said}");
    }
}

#[tokio::test]
async fn the_private_directory_is_private_and_goes() {
    let world = World::new().await;
    let said = world.shell(world.confined(), "stat -c %a $TMPDIR; echo $TMPDIR; echo $HOME").await;
    let lines: Vec<&str> = said.lines().skip(1).collect();
    assert_eq!(lines[0], "700", "{said}");
    assert_eq!(lines[1], lines[2], "a home it may not read is replaced");
    assert!(lines[1].contains("nexus3-") && !std::path::Path::new(lines[1]).exists(), "{said}");
}

#[tokio::test]
async fn blocked_paths_are_left_out_of_what_is_readable_around_them() {
    let world = World::new().await;
    for dir in ["blocked/deep", "open"] {
        std::fs::create_dir_all(world.cwd.join(dir)).unwrap();
    }
    for file in ["blocked/f", "blocked/deep/f", "open/f", "open/blocked_file", "beside"] {
        std::fs::write(world.cwd.join(file), SECRET).unwrap();
    }
    symlink(world.cwd.join("blocked"), world.cwd.join("open/link")).unwrap();
    let blocked =
        ["blocked", "open/blocked_file"].map(|path| world.cwd.join(path)).into_iter().collect();
    for base in [world.trusted(), world.confined()] {
        let permissions =
            Permissions { blocked: std::collections::BTreeSet::clone(&blocked), ..base };
        for script in [
            "cat blocked/f",
            "cat blocked/deep/f",
            "ls blocked",
            "cat open/blocked_file",
            "cat open/link/f",
            "echo x > blocked/f",
            "echo x > open/blocked_file",
            "rm open/blocked_file",
            "mv blocked elsewhere",
            "mv open elsewhere",
        ] {
            let said = world.shell(permissions.clone(), script).await;
            assert!(!said.starts_with("exit 0,") && !said.contains(SECRET), "{script}: {said}");
        }
        let said = world.shell(permissions.clone(), "cat beside open/f && ls open").await;
        assert!(said.starts_with("exit 0,") && said.contains(SECRET), "{said}");
    }
    assert!(world.cwd.join("open/blocked_file").exists());
}

#[tokio::test]
async fn the_servers_own_files_are_out_of_reach_of_those_who_read_anywhere() {
    let world = World::new().await;
    let token = world.hidden.join("token").display().to_string();
    let said = world.shell(world.trusted(), &format!("cat {token}")).await;
    assert!(said.contains("Permission denied") && !said.contains(SECRET), "{said}");
    let said = world.shell(world.yolo(), &format!("cat {token}")).await;
    assert!(said.contains(SECRET), "{said}");
}

#[tokio::test]
async fn a_directory_swapped_for_a_link_widens_nothing() {
    let world = World::new().await;
    let swapped = world.cwd.join("swapped");
    symlink(&world.outside, &swapped).unwrap();
    let reach = Reach::beneath([swapped.clone()]);
    let permissions = Permissions { read: reach.clone(), write: reach, ..world.confined() };
    for script in ["cat swapped/secret", "echo x > swapped/new"] {
        let said = world.shell(permissions.clone(), script).await;
        assert!(said.contains("Permission denied"), "{script}: {said}");
    }
    assert!(!world.outside.join("new").exists());
}

/// Somebody gave leave for a directory, and by now a link has its name.
#[tokio::test]
async fn a_directory_that_became_a_link_is_not_entered() {
    let world = World::new().await;
    symlink(&world.outside, world.cwd.join("swapped")).unwrap();
    let command = Command {
        argv: vec!["touch".into(), "made".into()],
        cwd: world.cwd.join("swapped"),
        env: BTreeMap::new(),
        stdin: Stdin::Empty,
        policy: None,
        tmp: None,
        limits: Limits::default(),
        timeout: Duration::from_secs(60),
    };
    let refused = launcher().run(&command, &CancellationToken::new(), &()).await.unwrap_err();
    assert!(refused.to_string().ends_with("leads through a link by now"), "{refused}");
    assert!(!world.outside.join("made").exists());
}

const CONNECT: &str = "import socket
s = socket.create_connection(('127.0.0.1', PORT), 5)
print('connected')";

#[tokio::test]
async fn there_is_no_network_without_leave() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let code = CONNECT.replace("PORT", &listener.local_addr().unwrap().port().to_string());
    let said = world.python(world.confined(), &code).await;
    assert!(said.contains("Operation not permitted") && !said.contains("connected\n"), "{said}");
    let said = world.python(world.trusted(), &code).await;
    assert!(said.ends_with("connected\n"), "{said}");
    let families = "import socket
for family in (socket.AF_INET6, socket.AF_UNIX, socket.AF_PACKET, socket.AF_NETLINK, socket.AF_VSOCK):
    try:
        socket.socket(family, socket.SOCK_DGRAM)
        print('made')
    except PermissionError:
        pass
print(len(socket.socketpair()))";
    let said = world.python(world.confined(), families).await;
    assert!(said.starts_with("exit 0,") && said.ends_with("s\n2\n"), "{said}");
}

#[tokio::test]
async fn the_services_of_this_machine_are_out_of_reach_even_with_the_network() {
    let world = World::new().await;
    let path = world.cwd.join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    let code = format!(
        "import socket
s = socket.socket(socket.AF_UNIX)
s.connect({path:?})
print('connected')"
    );
    let said = world.python(world.trusted(), &code).await;
    assert!(said.contains("Operation not permitted"), "{said}");
    let said = world.python(world.yolo(), &code).await;
    assert!(said.ends_with("connected\n"), "{said}");
}

/// Each by its number and arguments that would otherwise not fail with this error.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn dangerous_calls_are_refused() {
    let world = World::new().await;
    let code = "import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    libc.syscall(*[ctypes.c_long(arg) for arg in args])
    print(name, errno.errorcode.get(ctypes.get_errno(), 'none'))
call('ptrace', 101, 0, 0, 0, 0)
call('process_vm_readv', 310, 1, 0, 0, 0, 0, 0)
call('unshare', 272, 0x10000000)
call('setns', 308, -1, 0)
call('clone', 56, 0x10000000 | 17, 0, 0, 0, 0)
call('mount', 165, 0, 0, 0, 0, 0)
call('pivot_root', 155, 0, 0)
call('chroot', 161, 0)
call('bpf', 321, 0, 0, 0)
call('perf_event_open', 298, 0, 0, -1, -1, 0)
call('keyctl', 250, 0, 0, 0, 0, 0)
call('io_uring_setup', 425, 0, 0)
call('userfaultfd', 323, 0)
call('open_by_handle_at', 304, -1, 0, 0)
call('kexec_load', 246, 0, 99, 0, 0)
call('init_module', 175, 0, 0, 0)
call('reboot', 169, 0, 0, 0)
call('tiocsti', 16, 0, 0x5412, 0)
call('prlimit', 302, 1, 7, 0, 0)
call('setpriority', 141, 0, os.getpid(), 19)
call('ioprio_set', 251, 1, os.getpid(), 3 << 13)
call('raw', 41, 17, 3, 0)
call('netlink', 41, 16, 3, 9)";
    for permissions in [world.confined(), world.trusted()] {
        let said = world.python(permissions.clone(), code).await;
        for line in said.lines().skip(1) {
            assert!(line.ends_with(" EPERM"), "{line}");
        }
        assert_eq!(said.lines().count(), 24, "{said}");
        // Where the C library has another way, and where another number would be.
        let other = &code[..code.find("call('ptrace'").unwrap()];
        let other = format!("{other}call('clone3', 435, 0, 0)\ncall('x32', 0x40000000 | 39)");
        let said = world.python(permissions, &other).await;
        assert!(said.ends_with("clone3 ENOSYS\nx32 ENOSYS\n"), "{said}");
    }
}

#[tokio::test]
async fn other_processes_are_out_of_reach() {
    let world = World::new().await;
    let server = std::process::id();
    for script in [
        format!("kill -0 {server}"),
        "kill -9 $PPID".into(),
        format!("cat /proc/{server}/environ"),
        format!("cat /proc/{server}/cmdline"),
        format!("cat /proc/{server}/status"),
        format!("ls /proc/{server}"),
        format!("cat /proc/{server}/task/{server}/comm"),
        "cat /proc/1/cmdline".into(),
        "cat /proc/$PPID/cmdline".into(),
        format!("ls -l /proc/{server}/fd/"),
        format!("cat /proc/{server}/mem"),
        format!("prlimit --pid {server} --nofile=10"),
    ] {
        let said = world.shell(world.trusted(), &script).await;
        assert!(!said.starts_with("exit 0,"), "{script}: {said}");
    }
    let said = world.shell(world.trusted(), "nice -n 19 echo low && ionice -c 3 echo idle").await;
    assert!(said.ends_with("low\nidle\n"), "{said}");
    // Its own it may end.
    let said = world.shell(world.trusted(), "sleep 100 & kill $!; wait $!; echo $?").await;
    assert!(said.contains("143\n"), "{said}");
}

#[tokio::test]
async fn the_environment_holds_no_secret() {
    let world = World::new().await;
    for permissions in [world.trusted(), world.yolo()] {
        let said = world.shell(permissions, "env; cat /proc/$PPID/environ").await;
        assert!(!said.contains(SECRET) && said.contains("TERM=dumb"), "{said}");
        assert!(!said.contains("CARGO_MANIFEST_DIR"), "{said}");
    }
}

/// What a person's own command line holds, such as a token, is nobody else's.
#[tokio::test]
async fn no_other_process_is_seen() {
    let world = World::new().await;
    let mut person =
        std::process::Command::new("sleep").arg("1000").env("WHO", SECRET).spawn().unwrap();
    let script = "for dir in /proc/[0-9]*; do cat $dir/cmdline $dir/comm $dir/stat; done 2> /dev/null; echo end";
    for permissions in [world.trusted(), world.confined()] {
        let said = world.shell(permissions, script).await;
        assert!(said.ends_with(" s\nend\n"), "{said}");
    }
    // What the machine is, anybody may know.
    let machine =
        "head -1 /proc/meminfo /proc/cpuinfo /proc/stat > /dev/null && cat /proc/sys/kernel/ostype";
    for permissions in [world.trusted(), world.confined()] {
        let said = world.shell(permissions, machine).await;
        assert!(said.ends_with(" s\nLinux\n"), "{said}");
    }
    person.kill().unwrap();
    person.wait().unwrap();
}

/// Memory, semaphores and messages of the user's other processes have no path that Landlock could look at.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn what_processes_share_by_number_is_out_of_reach() {
    let world = World::new().await;
    let code = "import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    libc.syscall(*[ctypes.c_long(arg) for arg in args])
    print(name, errno.errorcode.get(ctypes.get_errno(), 'none'))
call('shmget', 29, 0, 4096, 0o1600)
call('shmat', 30, 0, 0, 0)
call('shmctl', 31, 0, 0, 0)
call('semget', 64, 0, 1, 0o1600)
call('semop', 65, 0, 0, 0)
call('semtimedop', 220, 0, 0, 0, 0)
call('semctl', 66, 0, 0, 0, 0)
call('msgget', 68, 0, 0o1600)
call('msgsnd', 69, 0, 0, 0, 0)
call('msgrcv', 70, 0, 0, 0, 0, 0)
call('msgctl', 71, 0, 0, 0)
call('mq_open', 240, 0, 0, 0, 0)
call('mq_unlink', 241, 0)
call('migrate_pages', 256, 1, 0, 0, 0)
call('move_pages', 279, 1, 0, 0, 0, 0, 0)";
    for permissions in [world.confined(), world.trusted()] {
        let said = world.python(permissions, code).await;
        assert_eq!(said.lines().count(), 16, "{said}");
        for line in said.lines().skip(1) {
            assert!(line.ends_with(" EPERM"), "{line}");
        }
    }
    // At the highest level commands are not held.
    let unheld = "import ctypes
libc = ctypes.CDLL(None)
print(libc.shmctl(libc.shmget(0, 4096, 0o600), 0, None))";
    let said = world.python(world.yolo(), unheld).await;
    assert!(said.ends_with(" s\n0\n"), "{said}");
}

/// For a command that may write nowhere, modes and times are beyond Landlock, not beyond us.
#[tokio::test]
async fn who_only_looks_changes_no_metadata_and_starts_nothing_else() {
    let world = World::new().await;
    let file = world.cwd.join("f");
    std::fs::write(&file, "").unwrap();
    let before = file.metadata().unwrap();
    let python = std::path::Path::new("/usr/bin/python3").canonicalize().unwrap();
    let loader = std::path::Path::new("/lib64/ld-linux-x86-64.so.2").canonicalize().unwrap();
    let programs = [python.clone(), loader].into_iter().collect();
    let code = "import os
attempts = [
    lambda: os.chmod('f', 0o777),
    lambda: os.utime('f', (1, 1)),
    lambda: os.setxattr('f', 'user.a', b'b'),
    lambda: os.chown('f', 1, 1),
    lambda: open('f', 'w'),
    lambda: open('/tmp/new', 'w'),
    lambda: os.execv('/bin/sh', ['sh', '-c', 'echo ran']),
]
for attempt in attempts:
    try:
        attempt()
        print('done')
    except PermissionError:
        print('refused')";
    let policy = Policy::to_look(&world.yolo(), &Default::default(), programs, strength());
    let command = Command {
        argv: vec![python.to_str().unwrap().into(), "-c".into(), code.into()],
        cwd: world.cwd.clone(),
        env: BTreeMap::new(),
        stdin: Stdin::Empty,
        policy: Some(policy),
        tmp: None,
        limits: Limits::default(),
        timeout: Duration::from_secs(60),
    };
    let outcome = launcher().run(&command, &CancellationToken::new(), &()).await.unwrap();
    assert_eq!(outcome.end, End::Exited(0), "{}", outcome.stderr);
    assert_eq!(outcome.stdout.to_string(), "refused\n".repeat(7));
    let after = file.metadata().unwrap();
    assert_eq!(after.permissions().mode(), before.permissions().mode());
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
}

#[tokio::test]
async fn too_many_neighbours_of_a_blocked_path_are_an_answer() {
    let world = World::new().await;
    let crowd = world.cwd.join("crowd");
    std::fs::create_dir(&crowd).unwrap();
    for number in 0..10_001 {
        std::fs::write(crowd.join(number.to_string()), "").unwrap();
    }
    let blocked = [crowd.join("0")].into_iter().collect();
    let permissions = Permissions { blocked, ..world.confined() };
    let said = world.call(permissions, "exec", json!({"argv": ["true"]})).await.unwrap_err();
    assert!(said.contains("was not run") && said.contains("10000"), "{said}");
}

#[tokio::test]
async fn a_datagram_reaches_no_service_of_this_machine() {
    let world = World::new().await;
    let path = world.cwd.join("log");
    let service = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    service.set_nonblocking(true).unwrap();
    let code = format!(
        "import socket
for kind in (socket.SOCK_DGRAM, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
    try:
        a, b = socket.socketpair(socket.AF_UNIX, kind)
        a.sendto(b'forged', {path:?})
    except PermissionError:
        print('refused')"
    );
    let said = world.python(world.trusted(), &code).await;
    let heard = service.recv(&mut [0; 16]);
    assert!(heard.is_err() && said.ends_with("s\nrefused\nrefused\nrefused\n"), "{said}");
}
