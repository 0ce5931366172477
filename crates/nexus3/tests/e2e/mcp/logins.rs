//! Logins at servers elsewhere, beside what the conformance suite asks: who may bring the answer, what is kept, how it is
//! renewed, and who is told.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use super::remote::elsewhere::Elsewhere;
use super::{status, tool, user, with_entry};
use crate::harness::{Http, Server, Setup, World, within};

const WANTED: &str = "Failed: it wants to know who asks (HTTP 401): nexus3 mcp login s";

/// `nexus3 mcp login s`, and what it prints.
struct Login {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Where the person is sent.
    address: String,
}

impl Login {
    async fn start(world: &World, more: &[&str]) -> Self {
        let mut command = world.command(["mcp", "login", "s"].iter().chain(more));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = String::new();
        while !address.starts_with("http") {
            address = within("an address", lines.next_line()).await.unwrap().unwrap();
        }
        Self { child, lines, address }
    }

    /// Whether it came to something, and what was said.
    async fn end(mut self) -> (bool, String) {
        drop(self.child.stdin.take());
        let mut said = String::new();
        while let Some(line) = within("its end", self.lines.next_line()).await.unwrap() {
            said.push_str(&line);
        }
        let output = within("its end", self.child.wait_with_output()).await.unwrap();
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        (output.status.success(), said)
    }
}

/// What a browser gets, and where it is sent on.
async fn visit(address: &str) -> (u16, String) {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let mut http = Http::connect(host.parse().unwrap()).await;
    http.write(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).await;
    let response = http.response().await;
    (response.status, response.header("location").unwrap_or_default().to_owned())
}

/// Where the person is brought back to, who said yes.
async fn agreed(login: &Login) -> String {
    let (status, back) = visit(&login.address).await;
    assert_eq!(status, 302);
    back
}

async fn with_login() -> (Elsewhere, Server) {
    let elsewhere = Elsewhere::start("modern login").await;
    let server = with_entry(json!({"url": elsewhere.url})).start().await;
    user(&server.wire(), "a").await;
    (elsewhere, server)
}

async fn echo(server: &Server) -> String {
    tool(&server.wire(), "a", "echo", json!({"text": "hi"})).await
}

async fn log_in(server: &Server) {
    let login = Login::start(&server.world, &[]).await;
    assert_eq!(visit(&agreed(&login).await).await.0, 200);
    let (done, said) = login.end().await;
    assert!(done && said.contains("logged in: s"), "{said}");
}

#[tokio::test]
async fn the_call_after_a_login_goes_through() {
    let (_elsewhere, server) = with_login().await;
    let wire = server.wire();
    for _ in 0..6 {
        let refused = wire.refused("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
        assert_eq!(refused.code, -32001, "{refused:?}");
    }
    assert_eq!(status(&wire, "a").await["state"], "needs_auth");
    log_in(&server).await;
    wire.ok("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
    assert_eq!(echo(&server).await, "echo: hi");
    assert_eq!(status(&wire, "a").await["state"], "ready");
    let kept: Vec<_> = fs::read_dir(server.world.home().join("mcp/auth")).unwrap().collect();
    for file in kept {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let server = server.restart().await;
    assert_eq!(echo(&server).await, "echo: hi", "it outlives the process");
}

/// One that is in no configuration is named by its address, and the login is for it alone.
#[tokio::test]
async fn a_person_logs_in_at_a_server_of_one_agent() {
    let elsewhere = Elsewhere::start("modern login").await;
    let server = Setup::new().start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    // What stands in an address is nothing for models and logs.
    let url = format!("{}?key=hush", elsewhere.url);
    let connect = json!({"agent_id": "a", "config": {"name": "s", "url": url}});
    let refused = wire.refused("mcp_connect", connect.clone()).await;
    assert_eq!(refused.code, -32001, "{refused:?}");
    let advice = refused.data["recovery_suggestions"].to_string();
    assert!(advice.contains("(nexus3 mcp login s URL)"), "{advice}");
    assert!(!format!("{refused:?}").contains("hush"), "{refused:?}");
    let unknown = server.cli(["mcp", "login", "s"]).await;
    assert_eq!((unknown.code, unknown.stderr.contains("no MCP server s")), (Some(1), true));
    let private = server.cli(["mcp", "logout", "s", "--private"]).await;
    assert_eq!(private.code, Some(2), "{}", private.stderr);
    let login = Login::start(&server.world, &[&url]).await;
    assert_eq!(visit(&agreed(&login).await).await.0, 200);
    let (done, said) = login.end().await;
    assert!(done && said.contains("logged in: s"), "{said}");
    wire.ok("mcp_connect", connect).await;
    assert_eq!(echo(&server).await, "echo: hi");
    let other = server.cli(["mcp", "logout", "s", &elsewhere.url]).await;
    assert_eq!(other.stdout, "there was no login: s\n", "{}", other.stderr);
    let out = server.cli(["mcp", "logout", "s", &url]).await;
    assert_eq!((out.code, out.stdout.as_str()), (Some(0), "logged out: s\n"), "{}", out.stderr);
}

/// What is known of a login is told, and never what one is let in by.
#[tokio::test]
async fn how_a_login_stands_is_told() {
    let (elsewhere, server) = with_login().await;
    let wire = server.wire();
    let auth = async || status(&wire, "a").await["auth"].clone();
    assert_eq!(auth().await, json!({"state": "none"}));
    let connect = json!({"agent_id": "a", "server": "s"});
    assert_eq!(wire.refused("mcp_connect", connect.clone()).await.code, -32001);
    assert_eq!(auth().await, json!({"state": "needed"}));
    let port = server.address.port().to_string();
    let line = ["mcp", "status", "s", "--agent", "a", "--port", &port];
    let printed = server.cli(line).await.stdout;
    assert!(printed.contains("\n  login: needed (nexus3 mcp login s)\n"), "{printed}");
    let tried = server.cli(["mcp", "test", "s"]).await.stderr;
    assert!(tried.ends_with("\n  Log in: nexus3 mcp login s\n"), "{tried}");
    log_in(&server).await;
    wire.ok("mcp_connect", connect).await;
    assert_eq!(echo(&server).await, "echo: hi");
    let now = auth().await;
    assert_eq!(now["state"], "logged_in");
    let until: jiff::Timestamp = now["expires_at"].as_str().unwrap().parse().unwrap();
    assert!(until > jiff::Timestamp::now(), "{now}");
    let stands = status(&wire, "a").await.to_string();
    let printed = server.cli(line).await.stdout;
    assert!(printed.contains("\n  login: logged in, until "), "{printed}");
    assert!(printed.contains("\n  to the agent a:\n    "), "{printed}");
    for secret in ["token-", "renew-", "client\""] {
        assert!(!stands.contains(secret) && !printed.contains(secret), "{stands} {printed}");
    }
    elsewhere.forget_logins();
    assert_eq!(echo(&server).await, WANTED);
    assert_eq!(auth().await, json!({"state": "needed"}));
    // Nobody logs in at a program, nor where everybody is let in.
    let program = super::with("").start().await;
    user(&program.wire(), "a").await;
    assert_eq!(status(&program.wire(), "a").await.get("auth"), None);
    let open = Elsewhere::start("modern").await;
    let server = with_entry(json!({"url": open.url})).start().await;
    user(&server.wire(), "a").await;
    assert_eq!(echo(&server).await, "echo: hi");
    assert_eq!(status(&server.wire(), "a").await["auth"], json!({"state": "none"}));
}

#[tokio::test]
async fn a_server_that_is_gone_wants_no_login() {
    let (elsewhere, server) = with_login().await;
    let wire = server.wire();
    let connect = json!({"agent_id": "a", "server": "s"});
    assert_eq!(wire.refused("mcp_connect", connect.clone()).await.code, -32001);
    drop(elsewhere);
    assert_eq!(wire.refused("mcp_connect", connect).await.code, -32000);
    assert_eq!(status(&wire, "a").await["state"], "idle");
}

#[tokio::test]
async fn nobody_but_the_person_brings_the_answer() {
    let (_elsewhere, server) = with_login().await;
    let login = Login::start(&server.world, &[]).await;
    let back = agreed(&login).await;
    let forged = back.replace("state=", "state=x");
    for (address, what) in [
        (forged.as_str(), "another's state"),
        (back.split('?').next().unwrap(), "nothing"),
        (&back.replace("/callback", "/other"), "another place"),
    ] {
        assert_eq!(visit(address).await.0, 404, "{what}");
    }
    assert_eq!(visit(&back).await.0, 200);
    assert!(login.end().await.0);

    let login = Login::start(&server.world, &[]).await;
    let back = agreed(&login).await;
    let (before, _) = back.split_once("code=").unwrap();
    let state = back.split(['?', '&']).find(|it| it.starts_with("state=")).unwrap();
    let denied = format!("{}?error=access_denied&{state}", before.split('?').next().unwrap());
    assert_eq!(visit(&denied).await.0, 400);
    let (done, said) = login.end().await;
    assert!(!done && said.contains("the login was refused (access_denied)"), "{said}");
}

#[tokio::test]
async fn the_address_can_be_brought_by_hand() {
    let (_elsewhere, server) = with_login().await;
    for (typed, part) in
        [("", "not the address"), ("http://127.0.0.1/callback?code=1&state=2", "not the address")]
    {
        let mut login = Login::start(&server.world, &["--paste"]).await;
        login
            .child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(format!("{typed}\n").as_bytes())
            .await
            .unwrap();
        let (done, said) = login.end().await;
        assert!(!done && said.contains(part), "{said}");
    }
    let mut login = Login::start(&server.world, &["--paste"]).await;
    let back = format!("{}\n", agreed(&login).await);
    login.child.stdin.as_mut().unwrap().write_all(back.as_bytes()).await.unwrap();
    let (done, said) = login.end().await;
    assert!(done, "{said}");
    assert_eq!(echo(&server).await, "echo: hi");
    let gone = server.cli(["mcp", "logout", "s"]).await;
    assert_eq!(gone.stdout, "logged out: s\n");
    let again = server.cli(["mcp", "logout", "s"]).await;
    assert_eq!(again.stdout, "there was no login: s\n");
    assert_eq!(echo(&server).await, WANTED);
}

/// A token that the server takes no more is renewed, once, and the call is made with the new one.
#[tokio::test]
async fn a_login_is_renewed_until_it_is_refused() {
    let (elsewhere, server) = with_login().await;
    log_in(&server).await;
    assert_eq!(echo(&server).await, "echo: hi");
    for _ in 0..2 {
        elsewhere.forget_tokens();
        assert_eq!(echo(&server).await, "echo: hi");
    }
    assert_eq!(elsewhere.renewals(), 2);
    elsewhere.forget_logins();
    assert_eq!(echo(&server).await, WANTED);
    assert_eq!(status(&server.wire(), "a").await["state"], "needs_auth");
    log_in(&server).await;
    assert_eq!(echo(&server).await, "echo: hi");
}

/// Two processes of one home that find the token gone renew it one after the other, and neither loses the login.
#[tokio::test]
async fn two_processes_share_a_login() {
    let (elsewhere, server) = with_login().await;
    log_in(&server).await;
    elsewhere.forget_tokens();
    let test = || server.cli(["mcp", "test", "s", "echo", r#"{"text": "hi"}"#]);
    let (one, two, three) = tokio::join!(test(), test(), test());
    for output in [one, two, three] {
        assert!(output.code == Some(0) && output.stdout.contains("echo: hi"), "{output:?}");
    }
    assert_eq!(echo(&server).await, "echo: hi");
}

/// Neither a server of the same name elsewhere, nor anybody who looks, is told the token.
#[tokio::test]
async fn a_token_is_for_one_server() {
    let [elsewhere, other] =
        [Elsewhere::start("modern login").await, Elsewhere::start("modern").await];
    let setup = Setup::new();
    let world = setup.world().await;
    let configure = |url: &str| {
        let servers = json!({"servers": {"s": {"url": url}}});
        fs::write(world.home().join("mcp.json"), servers.to_string()).unwrap();
    };
    configure(&elsewhere.url);
    let server = setup.start_in(&world).await;
    user(&server.wire(), "a").await;
    log_in(&server).await;
    assert_eq!(echo(&server).await, "echo: hi");
    let stands = status(&server.wire(), "a").await.to_string();
    assert!(!stands.contains("token-"), "{stands}");
    configure(&other.url);
    let server = server.restart().await;
    assert_eq!(echo(&server).await, "echo: hi");
    let told = |it: &Elsewhere| {
        it.heard().iter().any(|it| it.header("authorization").starts_with("Bearer token-"))
    };
    assert!(told(&elsewhere) && !told(&other));
}

#[tokio::test]
async fn where_nobody_logs_in_that_is_said() {
    let elsewhere = Elsewhere::start("modern").await;
    for (entry, part) in [
        (json!({"url": elsewhere.url}), "it lets everybody in"),
        (
            json!({"url": elsewhere.url, "headers": {"Authorization": "x"}}),
            "headers.Authorization says who asks",
        ),
        (json!({"command": "x"}), "it is a program of this machine"),
        (json!({"url": Elsewhere::closed().await}), "it cannot be reached"),
        (
            json!({"url": format!("{}/mute", elsewhere.origin()), "startup_timeout": 1}),
            "it was not ready within 1 s",
        ),
        (json!({"url": elsewhere.url, "enabled": false}), "it is disabled"),
        (
            json!({"url": format!("{}/unknown", elsewhere.origin())}),
            "does not let us make ourselves known",
        ),
    ] {
        let world = with_entry(entry.clone()).world().await;
        let output =
            within("the end", world.command(["mcp", "login", "s"]).output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(part), "{entry}: {output:?}");
    }
}

/// What nobody trusted is not even asked where one logs in.
#[tokio::test]
async fn a_stranger_is_not_logged_in_at() {
    let elsewhere = Elsewhere::start("modern login").await;
    let world = Setup::new().world().await;
    let servers = json!({"mcpServers": {"s": {"url": elsewhere.url}}});
    fs::write(world.work().join(".mcp.json"), servers.to_string()).unwrap();
    let output = within("the end", world.command(["mcp", "login", "s"]).output()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("a project brought it along"),
        "{said}"
    );
    assert!(elsewhere.heard().is_empty());
}
