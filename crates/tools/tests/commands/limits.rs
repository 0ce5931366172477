//! What a command may take, and what is said of one that took more.

use std::collections::BTreeMap;
use std::time::Duration;

use nexus_tools::sandbox::{Bound, Command, End, Limits, Stdin};
use tokio_util::sync::CancellationToken;

use crate::support::{World, launcher};

/// Runs a shell script within `limits`.
async fn run(limits: Limits, script: &str) -> End {
    let world = World::new().await;
    let path = std::env::var("PATH").unwrap();
    let command = Command {
        argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
        cwd: world.cwd.clone(),
        env: BTreeMap::from([("PATH".into(), path)]),
        stdin: Stdin::Empty,
        policy: None,
        tmp: None,
        limits,
        timeout: Duration::from_secs(120),
    };
    launcher().run(&command, &CancellationToken::new(), &()).await.unwrap().end
}

/// How long something goes on that is to be looked at and found within its bounds.
const A_WHILE: u32 = 1;
/// And what is ended before that.
const FOR_EVER: u32 = 1000;

/// A program that has `mib` of memory.
fn holding(mib: u32, seconds: u32) -> String {
    format!("python3 -c 'import time; x = b\"x\" * ({mib} << 20); time.sleep({seconds})'")
}

#[tokio::test]
async fn memory_is_bounded_for_all_of_a_command() {
    let limits = Limits { memory_bytes: 400 << 20, ..Limits::default() };
    assert_eq!(run(limits, &holding(300, A_WHILE)).await, End::Exited(0));
    assert_eq!(run(limits, &holding(500, FOR_EVER)).await, End::Exceeded(Bound::Memory));
    let two = format!("{} & {} & wait", holding(300, FOR_EVER), holding(300, FOR_EVER));
    assert_eq!(run(limits, &two).await, End::Exceeded(Bound::Memory));
    // What two processes share is there once.
    let forked = "python3 -c 'import os, time; x = b\"x\" * (300 << 20); os.fork(); time.sleep(1)'";
    assert_eq!(run(limits, forked).await, End::Exited(0));
}

#[tokio::test]
async fn processes_and_threads_are_bounded() {
    let limits = Limits { processes: 30, ..Limits::default() };
    let many = |count: u32, seconds: u32| {
        format!("for i in $(seq {count}); do sleep {seconds} & done; wait")
    };
    assert_eq!(run(limits, &many(20, A_WHILE)).await, End::Exited(0));
    assert_eq!(run(limits, &many(40, FOR_EVER)).await, End::Exceeded(Bound::Processes));
    // Threads count too.
    let threads = "python3 -c 'import threading, time
for i in range(40): threading.Thread(target=time.sleep, args=[1000]).start()'";
    assert_eq!(run(limits, threads).await, End::Exceeded(Bound::Processes));
}

/// Between two looks the kernel keeps a family that forks without end within bounds, but for root's.
#[tokio::test]
async fn the_kernel_counts_the_processes_of_the_user() {
    let limits = Limits { processes: 30, ..Limits::default() };
    let said = |most: u32| {
        let limit = "min(resource.getrlimit(resource.RLIMIT_NPROC))";
        format!("python3 -c 'import resource, sys; sys.exit(not 0 < {limit} <= {most})'")
    };
    assert_eq!(run(limits, &said(30 + 8192)).await, End::Exited(0));
    assert_eq!(run(limits, &said(30)).await, End::Exited(1));
}

#[tokio::test]
async fn processor_time_is_bounded_for_all_of_a_command() {
    let limits = Limits { processor_time: Duration::from_secs(1), ..Limits::default() };
    let burn = "while :; do :; done";
    assert_eq!(run(limits, "sleep 1").await, End::Exited(0));
    assert_eq!(run(limits, burn).await, End::Exceeded(Bound::ProcessorTime));
    // One after the other, each within the bound.
    let short = "while :; do timeout 0.2 sh -c 'while :; do :; done'; done";
    assert_eq!(run(limits, short).await, End::Exceeded(Bound::ProcessorTime));
}

#[tokio::test]
async fn an_agent_is_told_which_bound_it_met() {
    let world = World::with_limits(Limits { memory_bytes: 100 << 20, ..Limits::default() }).await;
    let arguments = serde_json::json!({"command": holding(300, FOR_EVER)});
    for permissions in [world.trusted(), world.yolo()] {
        let said = world.call(permissions, "shell_UNSAFE", arguments.clone()).await.unwrap_err();
        assert_eq!(said, "it took more than 100 MiB of memory (commands.memory) and was ended");
    }
}
