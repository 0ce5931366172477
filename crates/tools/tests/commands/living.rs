//! Commands that live as long as somebody talks to them.

use std::collections::BTreeMap;
use std::time::Duration;

use nexus_tools::sandbox::{Command, End, LaunchError, Limits, Living, Stdin};
use rustix::process::{Pid, test_kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::support::{World, eventually, launcher};

async fn live(world: &World, argv: &[&str], stdin: Stdin) -> Living {
    let command = Command {
        argv: argv.iter().map(ToString::to_string).collect(),
        cwd: world.cwd.clone(),
        env: BTreeMap::from([("PATH".into(), std::env::var("PATH").unwrap())]),
        stdin,
        policy: None,
        tmp: None,
        limits: Limits::default(),
        timeout: Duration::MAX,
    };
    launcher().live(&command).await.unwrap()
}

#[tokio::test]
async fn what_is_said_is_read_and_the_end_of_input_is_seen() {
    let world = World::new().await;
    let Living { mut stdin, stdout, mut leash, .. } = live(&world, &["cat"], Stdin::Live).await;
    let mut lines = BufReader::new(stdout).lines();
    for line in ["one", "two"] {
        stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some(line));
    }
    drop(stdin);
    assert_eq!(leash.ended().await.unwrap(), End::Exited(0));
    assert_eq!(lines.next_line().await.unwrap(), None);
}

/// A long order does not fit in the piece that travels with the handle.
#[tokio::test]
async fn an_order_of_any_length_arrives_with_its_input() {
    let world = World::new().await;
    let long = "x".repeat(100_000);
    let script = ["sh", "-c", "cat; printf %s \"$0\" | wc -c", &long];
    let Living { mut stdin, stdout, leash: _leash, .. } = live(&world, &script, Stdin::Live).await;
    stdin.write_all(b"first\n").await.unwrap();
    drop(stdin);
    let mut lines = BufReader::new(stdout).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("first"));
    assert_eq!(lines.next_line().await.unwrap().unwrap().trim(), "100000");
}

#[tokio::test]
async fn all_of_it_ends_with_its_leash_even_when_it_reads_nothing() {
    let world = World::new().await;
    let script = ["sh", "-c", "trap '' TERM; (trap '' TERM; sleep 1000) & echo $!; sleep 1000"];
    for dropped in [false, true] {
        let Living { stdin, stdout, leash, .. } = live(&world, &script, Stdin::Live).await;
        let mut lines = BufReader::new(stdout).lines();
        let pid: i32 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
        // Into a pipe that nobody empties, until it is full.
        while stdin.try_write(&[b'x'; 4096]).is_ok() {}
        let gone = || test_kill_process(Pid::from_raw(pid).unwrap()).is_err();
        assert!(!gone());
        match dropped {
            true => drop(leash),
            false => assert_eq!(leash.end().await.unwrap(), End::Cancelled),
        }
        assert!(dropped || gone());
        eventually("the family to end", gone).await;
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_so_when_it_ends() {
    let world = World::new().await;
    let mut missing = live(&world, &["/no/such/program"], Stdin::Live).await.leash;
    let why = missing.ended().await.unwrap_err();
    assert!(
        matches!(&why, LaunchError::NotStarted(text) if text.contains("/no/such/program")),
        "{why}"
    );
}
