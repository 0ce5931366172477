//! A server's start and end: its port, its token file, its signals.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nexus_testkit::Reply;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::process::Process;
use crate::harness::wire::request;
use crate::harness::{Server, Setup, eventually};

const VERSION: &str = r#"{"jsonrpc":"2.0","method":"rpc.version","id":1}"#;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_token_lies_in_a_private_file_named_after_the_port() {
    let server = Setup::new().unconfigured().start().await;
    let file = server.token_file.clone().unwrap();
    assert_eq!(file, server.world.home().join(format!("rpc-{}.token", server.address.port())));
    assert_eq!((mode(&file), mode(&server.world.home())), (0o600, 0o700));
    let token = server.token.clone().unwrap();
    let random = token.strip_prefix("nxk_").expect("a prefix");
    assert_eq!(random.len(), 43, "32 bytes in base64 without padding");
    assert!(random.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
}

#[tokio::test]
async fn the_token_is_fresh_at_each_start() {
    let mut server = Server::start().await;
    let (file, old) = (server.token_file.clone().unwrap(), server.token.clone());
    server.signal(Signal::KILL);
    server.exit().await;
    // What a crash left behind is replaced, its mode included.
    assert_eq!(fs::read_to_string(&file).ok(), old);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let server = Setup::new().port(server.address.port()).start_in(&server.world).await;
    assert_eq!((server.token_file.as_ref(), mode(&file)), (Some(&file), 0o600));
    assert_ne!(server.token, old);
}

#[tokio::test]
async fn the_port_opens_after_the_token_is_written() {
    let mut server = Server::start().await;
    let (file, old, port) =
        (server.token_file.clone().unwrap(), server.token.clone(), server.address.port());
    server.signal(Signal::KILL);
    server.exit().await;
    let command = server.world.command(["serve", &port.to_string(), "--no-socket"]);
    let (_process, _stdin, _stdout) = Process::spawn(command);
    eventually("the port to be open", async || {
        tokio::net::TcpStream::connect(server.address).await.is_ok()
    })
    .await;
    assert_ne!(fs::read_to_string(&file).ok(), old, "the token of a server that is dead");
}

#[tokio::test]
async fn a_clean_stop_removes_the_token_and_the_socket() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut server = Server::start().await;
        // Where the tests themselves run under `nohup`, so does the server.
        if signal == Signal::HUP && ignores_hangup(&server.status("SigIgn:")) {
            continue;
        }
        server.signal(signal);
        ended_cleanly(&mut server).await;
    }
    for method in ["shutdown_server", "shutdown"] {
        let mut server = Server::start().await;
        assert_eq!(server.wire().ok(method, json!({})).await["success"], true);
        ended_cleanly(&mut server).await;
    }
}

/// The terminal of a server that was started with `nohup` may be closed.
#[tokio::test]
async fn a_hangup_that_is_ignored_when_it_starts_stays_ignored() {
    let world = Setup::new().world().await;
    let nohup = world.shell(r#"trap "" HUP; exec "$0" serve 0 --no-socket"#);
    let (mut process, _stdin, _stdout) = Process::spawn(nohup);
    process.log().wait_for("listening", |line| line["message"] == "listening").await;
    assert!(ignores_hangup(&process.status("SigIgn:")));
    process.signal(Signal::TERM);
    assert_eq!(process.exit().await.code(), Some(0));
}

/// SIGHUP is the first bit of a mask.
fn ignores_hangup(mask: &str) -> bool {
    u64::from_str_radix(mask, 16).unwrap() & 1 == 1
}

async fn ended_cleanly(server: &mut Server) {
    assert_eq!(server.exit().await.code(), Some(0), "{}", server.log().text());
    assert!(!server.token_file.as_ref().unwrap().exists());
    assert!(!server.socket.as_ref().unwrap().exists());
    let log = server.log().complete().await;
    assert!(!log.contains(server.token.as_ref().unwrap()), "the token is in no log");
}

#[tokio::test]
async fn a_stop_lets_turns_finish_and_closes_idle_connections() {
    let mut server = Server::start().await;
    let gate = nexus_testkit::Gate::new();
    server.model().push(Reply::text("finished").held_by(&gate));
    let (mut idle, mut idle_socket) = (server.http().await, server.unix().await);
    idle.write(&server.post(VERSION).bytes()).await;
    assert_eq!(idle.response().await.status, 200);
    idle_socket.send(VERSION.as_bytes()).await;
    idle_socket.message().await;
    let (mut busy, mut busy_socket) = (server.http().await, server.unix().await);
    busy.write(&server.post(request(1, "send", json!({"content": "x"}))).bytes()).await;
    server.model().wait_for_requests(1).await;
    server.model().push(Reply::text("finished too").held_by(&gate));
    let create = request(1, "create_agent", json!({"agent_id": "a"}));
    busy_socket.send(create.as_bytes()).await;
    busy_socket.message().await;
    let send = request(2, "send", json!({"agent_id": "a", "content": "x"}));
    busy_socket.send(send.as_bytes()).await;
    server.model().wait_for_requests(2).await;

    server.signal(Signal::TERM);
    assert_eq!(idle.rest().await, b"");
    assert_eq!(idle_socket.frame().await, None);
    gate.release();
    assert_eq!(busy.response().await.answer()["result"]["content"], "finished");
    assert_eq!(busy_socket.message().await["result"]["content"], "finished too");
    assert_eq!(server.exit().await.code(), Some(0));
}

#[tokio::test]
async fn turns_that_outlast_the_grace_are_cancelled_and_answered() {
    let mut server = Setup::new().server(json!({"shutdown_grace": 0.1})).start().await;
    server.model().push(Reply::text("so far").then_hang());
    let mut busy = server.http().await;
    busy.write(&server.post(request(1, "send", json!({"content": "x"}))).bytes()).await;
    server.model().wait_for_requests(1).await;
    server.signal(Signal::INT);
    let answer = busy.response().await.answer();
    assert_eq!(answer["result"]["cancelled"], true, "{answer}");
    assert_eq!(server.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut server = Setup::new().server(json!({"shutdown_grace": 600})).start().await;
    server.model().push(Reply::hang());
    let mut busy = server.http().await;
    busy.write(&server.post(request(1, "send", json!({"content": "x"}))).bytes()).await;
    server.model().wait_for_requests(1).await;
    server.signal(Signal::INT);
    server.log().wait_for("stopping", |line| line["message"] == "stopping").await;
    server.signal(Signal::INT);
    assert_eq!(server.exit().await.code(), Some(1));
    assert!(!server.token_file.as_ref().unwrap().exists());
}

#[tokio::test]
async fn only_loopback_can_be_bound() {
    let world = Setup::new().unconfigured().world().await;
    for host in ["0.0.0.0", "::", "192.168.0.1", "example.com", "127.0.0.2", ""] {
        let output = Setup::new().arg("--host").arg(host).fails_in(&world).await;
        assert_eq!(output.code, Some(1), "{host}");
        let expected = "binds only to 127.0.0.1, localhost or ::1";
        assert!(output.stderr.contains(expected), "{host}: {}", output.stderr);
        assert!(!world.home().exists() && !world.socket().exists(), "{host}: nothing was touched");
    }
    let server = Setup::new().arg("--host").arg("localhost").start().await;
    assert_eq!(server.ask(server.post(VERSION)).await.status, 200);
}

/// Clients of `localhost` try both addresses, so nobody else may have one of them.
#[tokio::test]
async fn both_loopback_addresses_are_taken_unless_one_was_named() {
    // One that is free on the other address: somebody's connection may have it just now.
    let (_other, taken) = loop {
        let Ok(other) = std::net::TcpListener::bind("[::1]:0") else {
            eprintln!("there is no IPv6 on this machine: not tried");
            return;
        };
        let taken = other.local_addr().unwrap().port();
        if std::net::TcpListener::bind(("127.0.0.1", taken)).is_ok() {
            break (other, taken);
        }
    };
    let world = Setup::new().unconfigured().world().await;
    for setup in [Setup::new(), Setup::new().arg("--host").arg("localhost")] {
        let output = setup.port(taken).fails_in(&world).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains(&format!("port {taken} is in use on ::1")), "{output:?}");
        assert!(output.stderr.contains("--host 127.0.0.1"), "{output:?}");
        assert!(!world.home().exists() && !world.socket().exists(), "nothing was touched");
    }
    let server = Setup::new().arg("--host").arg("127.0.0.1").port(taken).start().await;
    assert_eq!(server.address.to_string(), format!("127.0.0.1:{taken}"));

    let server = Server::start().await;
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
    let port = server.address.port();
    let mut other = crate::harness::Http::connect(([0, 0, 0, 0, 0, 0, 0, 1], port).into()).await;
    other.write_some(&server.post(VERSION).bytes()).await;
    assert_eq!(other.response().await.status, 200);
    assert!(std::net::TcpListener::bind(("::1", port)).is_err());
}

#[tokio::test]
async fn a_home_that_others_may_write_is_warned_of() {
    let world = Setup::new().world().await;
    fs::set_permissions(world.home(), fs::Permissions::from_mode(0o777)).unwrap();
    let server = Setup::new().start_in(&world).await;
    let warned = |line: &serde_json::Value| {
        let text = line["message"].as_str().unwrap_or_default();
        line["level"] == "WARN" && text.contains("(mode 0777)") && text.contains("chmod 700")
    };
    server.log().wait_for("that the home is open", warned).await;
    let doctor = server.cli(["doctor"]).await;
    assert!(doctor.code == Some(0) && doctor.stdout.contains("chmod 700"), "{doctor:?}");
    fs::set_permissions(world.home(), fs::Permissions::from_mode(0o700)).unwrap();
    let server = server.restart().await;
    assert!(!server.log().lines().iter().any(warned));
    assert!(!server.cli(["doctor"]).await.stdout.contains("chmod"));
}

#[tokio::test]
async fn a_home_of_another_user_is_refused() {
    let world = Setup::new().world().await;
    if std::os::unix::fs::chown(world.home(), Some(65_534), None).is_err() {
        eprintln!("only root can give files away: not tried");
        return;
    }
    let commands = [["serve", "0"], ["exec", "Hi"], ["trust", "--list"], ["doctor", "--salvage=x"]];
    for command in commands {
        let output = crate::harness::process::run(world.command(command)).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains("belongs to another user (65534"), "{output:?}");
        assert!(output.stderr.contains("NEXUS3_HOME"), "{output:?}");
    }
}

#[tokio::test]
async fn a_second_server_on_the_port_gives_up_and_touches_nothing() {
    let server = Server::start().await;
    let second = Setup::new().port(server.address.port()).socket(server.world.path("second.sock"));
    let output = second.fails_in(&server.world).await;
    assert_eq!(output.code, Some(1));
    let expected = format!("port {} is in use", server.address.port());
    assert!(output.stderr.contains(&expected), "{}", output.stderr);
    assert_eq!(output.stdout, "");
    let token = fs::read_to_string(server.token_file.as_ref().unwrap()).unwrap();
    assert_eq!(Some(token), server.token);
    assert!(!server.world.path("second.sock").exists());
    assert_eq!(server.ask(server.post(VERSION)).await.status, 200);
}

#[tokio::test]
async fn two_servers_on_two_ports_share_a_home() {
    let first = Server::start().await;
    let second = Setup::new().socket(first.world.path("2.sock")).start_in(&first.world).await;
    assert_ne!(first.token, second.token);
    first.wire().ok("create_agent", json!({"agent_id": "a"})).await;
    // The agent is live in the first; the second says where it is.
    let fault = second.wire().refused("get_context", json!({"agent_id": "a"})).await;
    assert_eq!(fault.code, -32001, "{fault:?}");
    let mut second = second;
    assert_eq!(second.terminate().await.code(), Some(0));
    assert_eq!(first.ask(first.post(VERSION)).await.status, 200);
    assert!(first.token_file.as_ref().unwrap().exists());
}
