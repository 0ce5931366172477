//! Which server, where `--connect` names none.

use nexus_testkit::Reply;
use rustix::process::Signal;

use crate::harness::{Server, Setup};

use super::screen::{Desk, Key, Screen};

/// A desk with two servers that a terminal did not start.
async fn with_servers() -> (Desk, Server, Server) {
    let desk = Desk::new().await;
    let one = Setup::new().no_socket().start_in(&desk.world).await;
    let two = Setup::new().no_socket().start_in(&desk.world).await;
    (desk, one, two)
}

fn url(server: &Server) -> String {
    format!("http://127.0.0.1:{}", server.address.port())
}

async fn menu(desk: &Desk, servers: &[&Server]) -> Screen {
    let screen = desk.open(&["--connect"]);
    for server in servers {
        screen.wait_for(&format!("{} [ready]", url(server))).await;
    }
    screen.read().await;
    screen
}

#[tokio::test]
async fn those_that_refuse_the_token_that_was_given_are_said_to() {
    let (desk, one, two) = with_servers().await;
    let screen = desk.open(&["--connect", "--api-key", "nxk_of_somebody_else"]);
    for server in [&one, &two] {
        screen.wait_for(&format!("{} [token rejected]", url(server))).await;
    }
    assert!(!screen.text().contains("looking for the server"), "{}", screen.text());
}

#[tokio::test]
async fn one_is_chosen_by_its_number_or_its_address() {
    let (desk, one, two) = with_servers().await;
    let (first, last) = match one.address.port() < two.address.port() {
        true => (&one, &two),
        false => (&two, &one),
    };
    let screen = menu(&desk, &[first, last]).await;
    screen.type_text("2").await;
    screen.wait_for(&format!("server {} (pid {}, attached", url(last), last.status("Pid:"))).await;
    drop(screen);
    let screen = menu(&desk, &[first, last]).await;
    screen.key(Key::Enter).await;
    screen.wait_for(&format!("server {} (pid ", url(first))).await;
    drop(screen);
    let screen = menu(&desk, &[first, last]).await;
    screen.type_text("u").await;
    screen.wait_for("URL> ").await;
    screen.type_text("http://192.0.2.1:8765").await;
    screen.key(Key::Enter).await;
    screen.wait_for("servers are on this machine").await;
    screen.wait_for("1) http").await;
    screen.type_text("u").await;
    screen.wait_for("URL> ").await;
    screen.type_text(&url(last)).await;
    screen.key(Key::Enter).await;
    screen.wait_for(&format!("server {} (pid ", url(last))).await;
}

#[tokio::test]
async fn other_ports_can_be_looked_at() {
    let (desk, one, two) = with_servers().await;
    let hidden = Setup::new().no_socket().arg("--no-auth").start().await;
    let screen = menu(&desk, &[&one, &two]).await;
    assert!(!screen.text().contains(&url(&hidden)));
    screen.type_text("s").await;
    screen.wait_for("ports> ").await;
    screen.type_text("x").await;
    screen.key(Key::Enter).await;
    screen.wait_for("1) http").await;
    screen.type_text("s").await;
    screen.wait_for("ports> ").await;
    screen.type_text(&hidden.address.port().to_string()).await;
    screen.key(Key::Enter).await;
    screen.wait_for(&format!("{} [no auth]", url(&hidden))).await;
    screen.type_text("s").await;
    screen.wait_for("ports> ").await;
    screen.key(Key::Escape).await;
    screen.wait_for("1) http").await;
}

#[tokio::test]
async fn one_can_be_started_beside_or_in_the_place_of_another() {
    let (desk, mut one, two) = with_servers().await;
    let screen = menu(&desk, &[&one, &two]).await;
    screen.type_text("n").await;
    screen.wait_for(", own, ").await;
    drop(screen);

    let port = one.address.port();
    let screen = menu(&desk, &[&one, &two]).await;
    screen.type_text("p").await;
    screen.wait_for("port> ").await;
    screen.type_text("70000").await;
    screen.key(Key::Enter).await;
    screen.wait_for("a port is a number from 1 to 65535").await;
    let number = screen.number_of(&url(&one));
    for _ in 1..number {
        screen.type_text("\x1b[B").await;
    }
    screen.wait_for(&format!("› {number}) {}", url(&one))).await;
    screen.type_text("r").await;
    screen
        .wait_for(&format!("Stop {}, with 0 agents, and start a server in its place?", url(&one)))
        .await;
    screen.read().await;
    screen.type_text("n").await;
    screen.wait_for("1) http").await;
    assert!(!one.status("Pid:").is_empty());
    for _ in 1..number {
        screen.type_text("\x1b[B").await;
    }
    screen.wait_for(&format!("› {number}) {}", url(&one))).await;
    screen.type_text("r").await;
    screen.wait_for("in its place?").await;
    screen.read().await;
    screen.type_text("y").await;
    assert!(one.exit().await.success());
    screen.wait_for(&format!("server http://127.0.0.1:{port} (pid ")).await;
    screen.wait_for(", own, ").await;
}

#[tokio::test]
async fn the_choice_can_be_left_and_there_may_be_none() {
    let (desk, one, two) = with_servers().await;
    for leave in ["q", "\x04", "\x03"] {
        let mut screen = menu(&desk, &[&one, &two]).await;
        screen.type_text(leave).await;
        assert_eq!(screen.exit().await.code(), Some(0));
        screen.wait_until_in_order().await;
    }
    drop((one, two));
    let none = Desk::new().await;
    let mut screen = none.open(&["--connect"]);
    assert_eq!(screen.exit().await.code(), Some(1));
    screen.wait_for("No server was found.").await;
}

/// Its agent is made with the first call, and so in no list.
#[tokio::test]
async fn a_server_that_is_named_has_its_main_agent() {
    let desk = Desk::new().await;
    let server = Setup::new().start_in(&desk.world).await;
    let screen = desk.open_at(&url(&server));
    screen.wait_for("main> ").await;
    screen.say("Hello.").await;
    screen.wait_for_end().await;
}

/// Somebody else's server that dies is somebody else's to start again.
#[tokio::test]
async fn an_attached_server_is_waited_for_and_not_replaced() {
    let desk = Desk::new().await;
    let mut server = Setup::new().start_in(&desk.world).await;
    let screen = desk.open(&["--fresh"]);
    screen.wait_for(", attached, ").await;
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    server.signal(Signal::KILL);
    server.exit().await;
    screen.wait_for("; connecting again").await;
    screen.say("Lost?").await;
    screen.wait_for("not connected: nothing was sent").await;
    let server = Setup::new().start_in(&desk.world).await;
    screen.wait_for(&format!("connected again (pid {})", server.status("Pid:"))).await;
    desk.model().push(Reply::text("Not at all."));
    screen.key(Key::Enter).await;
    screen.wait_for("Not at all.").await;
    assert_eq!(screen.count("you> Lost?"), 1);
}
