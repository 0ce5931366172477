//! However a command ends, nothing of it is left.

use std::path::Path;
use std::time::{Duration, Instant};

use nexus_core::permission::Permissions;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{World, eventually};

/// Forks into sessions of their own, twice, deaf to SIGTERM, some stopped, each leaving its number; and does not end.
const FAMILY: &str = "import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def stay(name):
    with open('pid-' + name + '.new', 'w') as file:
        file.write(str(os.getpid()))
    os.rename('pid-' + name + '.new', 'pid-' + name)
    if name == 'stopped':
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        time.sleep(100)
for name in ('child', 'daemon', 'stopped', 'grandchild'):
    if os.fork() == 0:
        if name != 'child':
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
        if name == 'grandchild' and os.fork() != 0:
            os._exit(0)
        stay(name)
stay('first')";

const MEMBERS: [&str; 5] = ["child", "daemon", "stopped", "grandchild", "first"];

fn family(timeout_s: u64) -> Value {
    json!({"code": FAMILY, "timeout_s": timeout_s})
}

fn all_there(cwd: &Path) -> bool {
    MEMBERS.iter().all(|name| cwd.join(format!("pid-{name}")).exists())
}

fn alive(cwd: &Path) -> Vec<&'static str> {
    let lives = |name: &&str| {
        let pid = std::fs::read_to_string(cwd.join(format!("pid-{name}"))).unwrap();
        test_kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap()).is_ok()
    };
    MEMBERS.into_iter().filter(lives).collect()
}

async fn check_timeout(world: &World, permissions: Permissions) {
    let started = Instant::now();
    let said = world.call(permissions, "run_python", family(8)).await.unwrap_err();
    assert!(said.starts_with("timed out after 8 s"), "{said}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(all_there(&world.cwd), "the family was not complete in time");
    assert_eq!(alive(&world.cwd), Vec::<&str>::new());
}

#[tokio::test]
async fn a_timeout_ends_the_whole_family() {
    let world = World::new().await;
    check_timeout(&world, world.confined()).await;
}

#[tokio::test]
async fn a_timeout_ends_the_whole_family_without_a_sandbox_too() {
    let world = World::new().await;
    check_timeout(&world, world.yolo()).await;
}

#[tokio::test]
async fn cancelling_ends_the_whole_family() {
    let world = World::new().await;
    let cancel = CancellationToken::new();
    let call = world.call_with(world.confined(), "run_python", family(100), cancel.clone());
    let cancelling = async {
        eventually("the family", || all_there(&world.cwd)).await;
        cancel.cancel();
    };
    let (said, ()) = tokio::join!(call, cancelling);
    assert_eq!(said.unwrap_err(), "cancelled");
    assert_eq!(alive(&world.cwd), Vec::<&str>::new());
}

/// Through the gate: the turn is over when its command is, and the model was told what it came to.
#[tokio::test]
async fn a_cancelled_turn_is_over_when_the_family_is() {
    let world = World::new().await;
    let turn = world.turn("run_python", family(100)).await;
    eventually("the family", || all_there(&world.cwd)).await;
    turn.cancel.cancel();
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert_eq!(alive(&world.cwd), Vec::<&str>::new());
    let now = world.agent.snapshot();
    let told = now.conversation.history_from(0).next_back().unwrap();
    assert_eq!(told.text(), "Interrupted: the turn was cancelled.\ncancelled");
}

#[tokio::test]
async fn dropping_the_call_ends_the_whole_family() {
    let world = World::new().await;
    let call = world.call(world.confined(), "run_python", family(100));
    tokio::select! {
        said = call => panic!("{said:?}"),
        () = eventually("the family", || all_there(&world.cwd)) => {}
    }
    eventually("the family's end", || alive(&world.cwd).is_empty()).await;
}

#[tokio::test]
async fn what_is_left_running_ends_with_the_command() {
    let world = World::new().await;
    let started = Instant::now();
    let script = "setsid sleep 1000 & sleep 1000 & echo $!";
    let said = world.shell(world.confined(), script).await;
    assert!(said.starts_with("exit 0,"), "{said}");
    let pid = said.lines().nth(1).and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw).unwrap();
    assert!(test_kill_process(pid).is_err());
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// Forks as fast as it can into groups of their own.
#[tokio::test]
async fn a_family_that_keeps_forking_is_caught_up_with() {
    let world = World::new().await;
    let code = "import os, time
end = time.time() + 100
for _ in range(8):
    if os.fork() == 0:
        while time.time() < end:
            if os.fork() == 0:
                os.setsid()
            else:
                os._exit(0)
time.sleep(100)";
    let arguments = json!({"code": code, "timeout_s": 2});
    let said = world.call(world.confined(), "run_python", arguments).await.unwrap_err();
    assert!(said.starts_with("timed out"), "{said}");
}

#[tokio::test]
async fn sleeping_can_be_cancelled() {
    let world = World::new().await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let said = world.call_with(world.confined(), "sleep", json!({"seconds": 100}), cancel).await;
    assert_eq!(said.unwrap_err(), "cancelled");
    let said = world.call(world.confined(), "sleep", json!({"seconds": 0})).await;
    assert_eq!(said.unwrap(), "Waited 0 s.");
}
