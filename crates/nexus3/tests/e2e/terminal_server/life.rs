//! When a server ends that a terminal started.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use nexus_testkit::{Gate, Reply};
use rustix::process::Signal;
use serde_json::json;

use super::{Other, Terminal, setup};
use crate::harness::process::{self, Process};
use crate::harness::{Setup, within};

/// A turn that runs until the gate is opened.
async fn begin_turn(terminal: &mut Terminal) -> Gate {
    let gate = Gate::new();
    terminal.ok("create_agent", json!({"agent_id": "a"})).await;
    terminal.world.model.push(Reply::text("the end").held_by(&gate));
    terminal.ask("send", json!({"agent_id": "a", "content": "x"})).await;
    within("the model to be asked", terminal.world.model.wait_for_requests(1)).await;
    gate
}

/// What the agent said last, as the next server of the home finds it.
async fn last_said(terminal: &Terminal) -> String {
    let server = Setup::new().start_in(&terminal.world).await;
    let page = server.wire().ok("get_messages", json!({"agent_id": "a", "from_end": true})).await;
    let last = page["messages"].as_array().unwrap().last().unwrap().clone();
    last["content"].as_str().unwrap_or_default().to_string()
}

#[tokio::test]
async fn it_ends_with_its_terminal() {
    let mut terminal = Terminal::start(setup()).await;
    let hello = terminal.hello().await;
    terminal.hang_up();
    assert!(terminal.exit().await.success());
    let token_file = hello["token_file"].as_str().unwrap();
    assert!(!fs::exists(token_file).unwrap() && !terminal.world.socket().exists());
}

#[tokio::test]
async fn turns_that_run_finish_first() {
    let mut terminal = Terminal::start(setup()).await;
    let other = Other::of(&terminal.hello().await);
    let gate = begin_turn(&mut terminal).await;
    terminal.hang_up();
    terminal.logs("the terminal has left").await;
    assert_eq!(other.call("server_info", json!({})).await["turns_running"], 1);
    gate.release();
    assert!(terminal.exit().await.success());
    assert_eq!(last_said(&terminal).await, "the end");
}

#[tokio::test]
async fn it_stays_when_it_is_told_to() {
    let mut terminal = Terminal::start(setup()).await;
    let other = Other::of(&terminal.hello().await);
    let gate = begin_turn(&mut terminal).await;
    // The last word counts, while there is time for one.
    terminal.ok("terminal.leave", json!({"turns": "finish"})).await;
    assert_eq!(terminal.ok("terminal.stay", json!({})).await, json!({}));
    terminal.hang_up();
    terminal.logs("this server stays").await;
    gate.release();
    crate::harness::eventually("the turn to end", async || {
        other.call("server_info", json!({})).await["turns"] == 0
    })
    .await;
    assert_eq!(other.call("server_info", json!({})).await["watches"], 0);
    terminal.process.signal(Signal::TERM);
    assert!(terminal.exit().await.success());
}

#[tokio::test]
async fn it_finishes_when_the_terminal_takes_its_leave() {
    let mut terminal = Terminal::start(setup()).await;
    terminal.ask("watch", json!({})).await;
    terminal.wait_for(|message| message["method"] == "watch_event").await;
    let gate = begin_turn(&mut terminal).await;
    // Its own watch keeps it from nothing.
    assert_eq!(terminal.ok("terminal.leave", json!({"turns": "finish"})).await, json!({}));
    terminal.logs("the terminal has left").await;
    assert_eq!(terminal.ok("server_info", json!({})).await["turns_running"], 1);
    gate.release();
    terminal.wait_for(|it| it["params"]["event"]["type"] == "server_stopping").await;
    assert!(terminal.exit().await.success());
    assert_eq!(last_said(&terminal).await, "the end");
}

#[tokio::test]
async fn it_cancels_when_the_terminal_says_so() {
    let mut terminal = Terminal::start(setup()).await;
    let gate = begin_turn(&mut terminal).await;
    terminal.ok("terminal.leave", json!({"turns": "cancel"})).await;
    terminal.hang_up();
    assert!(terminal.exit().await.success());
    assert_ne!(last_said(&terminal).await, "the end");
    gate.release();
}

#[tokio::test]
async fn it_stays_while_somebody_else_watches() {
    for leave in [None, Some("finish"), Some("cancel")] {
        let mut terminal = Terminal::start(setup()).await;
        let other = Other::of(&terminal.hello().await);
        let watch = other.watch().await;
        crate::harness::eventually("the watch", async || {
            other.call("server_info", json!({})).await["watches"] == 1
        })
        .await;
        let gate = begin_turn(&mut terminal).await;
        if let Some(turns) = leave {
            terminal.ok("terminal.leave", json!({"turns": turns})).await;
        }
        terminal.hang_up();
        terminal.logs("the terminal has left").await;
        gate.release();
        crate::harness::eventually("the turn to end", async || {
            other.call("server_info", json!({})).await["turns"] == 0
        })
        .await;
        assert_eq!(other.call("server_info", json!({})).await["watches"], 1);
        drop(watch);
        assert!(terminal.exit().await.success());
    }
}

#[tokio::test]
async fn a_terminal_that_is_killed_is_one_that_hung_up() {
    let world = setup().world().await;
    let (own, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut holder = world.shell("exec sleep 1000");
    holder.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    holder.stdin(OwnedFd::from(own));
    let mut holder = Process::spawn_on(holder);
    let mut command = setup().terminal_server(&world);
    command.stdin(OwnedFd::from(theirs));
    let mut server = Process::spawn_on(command);
    // Whoever waits for its sentence sees that there is none.
    assert_eq!(server.log().complete().await, "");
    holder.signal(Signal::KILL);
    holder.exit().await;
    assert!(server.exit().await.success());
}

#[tokio::test]
async fn signals_of_the_terminal_are_not_for_it() {
    let mut terminal = Terminal::start(setup()).await;
    terminal.hello().await;
    for signal in [Signal::INT, Signal::HUP] {
        terminal.process.signal(signal);
    }
    terminal.hello().await;
    terminal.process.signal(Signal::TERM);
    assert!(terminal.exit().await.success());
    assert!(terminal.log().contains("stopping"));
}

#[tokio::test]
async fn of_two_that_start_at_once_one_serves_and_names_itself() {
    let setup = setup();
    let world = setup.world().await;
    let mut both = [Terminal::start_in(&setup, &world), Terminal::start_in(&setup, &world)];
    let [one, two] = &mut both;
    let first_ended = tokio::select! {
        status = one.process.exit() => (0, status),
        status = two.process.exit() => (1, status),
    };
    let (loser, status) = first_ended;
    assert_eq!(status.code(), Some(75));
    let winner = 1 - loser;
    let hello = both[winner].hello().await;
    let said = both[loser].process.log().complete().await;
    assert!(said.contains("another server is there already"), "{said}");
    assert!(said.contains(&format!("process {}", hello["pid"])), "{said}");
    // One that has a port of its own is one more.
    let own = setup.clone().no_socket().arg("0");
    let mut third = Terminal::start_in(&own, &world);
    assert_ne!(third.hello().await["port"], hello["port"]);
    third.hang_up();
    assert!(third.exit().await.success());
    // The place is free again when its server has ended.
    both[winner].hang_up();
    assert!(both[winner].exit().await.success());
    let mut next = Terminal::start_in(&setup, &world);
    next.hello().await;
}

#[tokio::test]
async fn the_usual_port_may_be_somebody_elses() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut terminal = Terminal::start(Setup::new().server(json!({"port": port}))).await;
    let hello = terminal.hello().await;
    assert_ne!(hello["port"], port);
    assert!(terminal.log().contains(&format!("port {port} is somebody else's")));
}

#[tokio::test]
async fn the_usual_port_may_be_that_of_another_server_of_the_home() {
    let world = setup().world().await;
    let server = Setup::new().start_in(&world).await;
    let port = server.address.port();
    let config = fs::read_to_string(world.home().join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["server"]["port"] = port.into();
    fs::write(world.home().join("config.json"), config.to_string()).unwrap();
    let mut terminal = Terminal::start_in(&Setup::new().no_socket(), &world);
    assert_eq!(terminal.exit().await.code(), Some(75));
    let said = terminal.process.log().complete().await;
    assert!(said.contains(&format!("http://127.0.0.1:{port}")), "{said}");
    // And so may be the socket.
    fs::write(world.home().join("config.json"), config.to_string().replace(&port.to_string(), "0"))
        .unwrap();
    let mut terminal = Terminal::start_in(&Setup::new(), &world);
    assert_eq!(terminal.exit().await.code(), Some(75));
    let said = terminal.process.log().complete().await;
    assert!(said.contains(world.socket().to_str().unwrap()), "{said}");
}

#[tokio::test]
async fn without_a_socket_there_is_no_terminal() {
    let world = setup().world().await;
    let refused = process::run(setup().terminal_server(&world)).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("must be a connected Unix socket"), "{}", refused.stderr);
}
