//! Servers that somebody else runs, over HTTP: both eras, what they are told, and what becomes of those that misbehave.

pub mod elsewhere;

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use self::elsewhere::Elsewhere;
use super::{status, tool, user, with_entry};
use crate::harness::{Server, eventually, within};
use crate::speakers::{installed, script};

const ERAS: [&str; 2] = ["modern", "older"];

/// A server of nexus3 with the one elsewhere as `s`, and an agent that may use it.
async fn using(entry: Value) -> Server {
    let server = with_entry(entry).start().await;
    user(&server.wire(), "a").await;
    server
}

fn echo() -> Value {
    json!({"text": "hi"})
}

#[tokio::test]
async fn an_agent_uses_a_server_of_either_era_that_answers_in_either_way() {
    for (era, version) in ERAS.into_iter().zip(["2026-07-28", "2025-11-25"]) {
        for way in ["json", "events"] {
            let elsewhere = Elsewhere::start(&format!("{era} {way}")).await;
            let server = using(json!({"url": elsewhere.url, "headers": {"X-Key": "k"}})).await;
            let wire = server.wire();
            assert_eq!(tool(&wire, "a", "echo", echo()).await, "echo: hi", "{era} {way}");
            let stands = status(&wire, "a").await;
            assert_eq!(
                (&stands["state"], &stands["protocol_version"]),
                (&json!("ready"), &json!(version))
            );
            assert_eq!(stands["sandbox"], "none: it runs elsewhere");
            let listed = wire.ok("mcp_list_servers", json!({"agent_id": "a"})).await;
            assert_eq!(listed["servers"][0]["transport"], "http");
            let heard = elsewhere.heard();
            assert!(heard.iter().all(|it| it.header("x-key") == "k"), "{era} {way}");
            let call = heard.iter().find(|it| it.method() == "tools/call").unwrap();
            assert_eq!(call.header("mcp-protocol-version"), version);
            if era == "modern" {
                assert_eq!(
                    (call.header("mcp-method"), call.header("mcp-name")),
                    ("tools/call", "echo")
                );
            }
        }
    }
}

/// The session of the older era is ended with the connection, and made anew once where the server has forgotten it.
#[tokio::test]
async fn sessions_are_kept_renewed_and_ended() {
    let elsewhere = Elsewhere::start("older").await;
    let server = using(json!({"url": elsewhere.url})).await;
    let wire = server.wire();
    assert_eq!(tool(&wire, "a", "echo", echo()).await, "echo: hi");
    elsewhere.forget_sessions();
    assert_eq!(tool(&wire, "a", "echo", echo()).await, "echo: hi");
    wire.ok("mcp_disconnect", json!({"agent_id": "a", "server": "s"})).await;
    eventually("the session to be ended", async || {
        elsewhere
            .heard()
            .iter()
            .any(|it| it.verb == "DELETE" && it.header("mcp-session-id") == "session-2")
    })
    .await;
    let calls = elsewhere.heard().iter().filter(|it| it.method() == "tools/call").count();
    assert_eq!(calls, 3, "the one in the forgotten session was refused, and made again");
}

#[tokio::test]
async fn what_goes_wrong_elsewhere_is_a_sentence_and_the_turn_goes_on() {
    for era in ERAS {
        let elsewhere = Elsewhere::start(era).await;
        let server = using(json!({"url": elsewhere.url, "timeout": 1})).await;
        let wire = server.wire();
        for (does, part) in [
            ("broken", "its answer is no message"),
            ("html", "it answers with text/html"),
            ("error", r"it answered HTTP 500: out of\norder"),
            ("refused", "no such luck"),
            ("hang", "said nothing for 1 s"),
            ("huge", "more than 16 MiB"),
            ("huge-event", "more than 16 MiB"),
            ("away", "it leads on to http://169.254.169.254"),
        ] {
            let told = tool(&wire, "a", does, json!({})).await;
            assert!(told.starts_with("Failed: ") && told.contains(part), "{era} {does}: {told}");
            // It is there for the next.
            let next = tool(&wire, "a", "echo", echo()).await;
            assert_eq!(next, "echo: hi", "{era} after {does}");
        }
        let calls = elsewhere.heard().iter().filter(|it| it.method() == "tools/call").count();
        assert_eq!(calls, 16, "{era}: nothing was called twice");
    }
}

/// An answer that breaks off is not waited for, and the call is not made again.
#[tokio::test]
async fn an_answer_that_breaks_off_fails_the_call() {
    for era in ERAS {
        let elsewhere = Elsewhere::start(era).await;
        let server = using(json!({"url": elsewhere.url, "timeout": 5})).await;
        let wire = server.wire();
        for does in ["cut", "cut-events"] {
            let told = tool(&wire, "a", does, json!({})).await;
            assert!(told.starts_with("Failed: "), "{era} {does}: {told}");
        }
        let calls = elsewhere.heard().iter().filter(|it| it.method() == "tools/call").count();
        assert_eq!(calls, 2, "{era}");
        assert_eq!(tool(&wire, "a", "echo", echo()).await, "echo: hi", "{era}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_had_says_why() {
    let closed = Elsewhere::closed().await;
    let elsewhere = Elsewhere::start("modern strange").await;
    let at = |path: &str| format!("{}{path}", elsewhere.origin());
    for (entry, state, part) in [
        (json!({"url": closed}), "idle", "it cannot be reached"),
        (json!({"url": at("/away")}), "idle", "it leads on to http://169.254.169.254"),
        (json!({"url": at("/page")}), "idle", "it answers with text/html"),
        (json!({"url": at("/unknown")}), "needs_auth", "it wants to know who asks (HTTP 401)"),
        (json!({"url": at("/forbidden")}), "idle", "it answered HTTP 403"),
        (
            json!({"url": at("/unknown"), "headers": {"Authorization": "Bearer x"}}),
            "needs_auth",
            "it does not take what headers.Authorization says (HTTP 401)",
        ),
        (
            json!({"url": at("/forbidden"), "headers": {"authorization": "Bearer x"}}),
            "needs_auth",
            "it does not take what headers.Authorization says (HTTP 403)",
        ),
        (json!({"url": at("/mute"), "startup_timeout": 1}), "idle", "not ready within 1 s"),
        (json!({"url": "http://example.com/"}), "idle", "http is for this machine alone"),
        (json!({"url": "https://10.0.0.1/"}), "idle", "10.0.0.1, which is no address of the world"),
        (json!({"url": "https://169.254.169.254/"}), "idle", "no address of the world"),
        (
            json!({"url": at("/x"), "headers": {"X": "${NO_SUCH}"}}),
            "idle",
            "headers.X: the environment has no NO_SUCH",
        ),
        (
            json!({"url": at("/x"), "headers": {"Mcp-Session-Id": "x"}}),
            "idle",
            "is set by the protocol",
        ),
        (json!({"url": at("/x"), "headers": {"a b": "x"}}), "idle", "is no name of a header"),
    ] {
        let server = using(entry.clone()).await;
        let wire = server.wire();
        let refused = wire.refused("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
        let why = format!("{refused:?}");
        assert!(why.contains(part), "{entry}: {why}");
        let stands = status(&wire, "a").await;
        assert_eq!(stands["state"], state, "{entry}");
        assert!(stands["last_error"].as_str().unwrap().contains(part), "{entry}: {stands}");
    }
    assert!(elsewhere.heard().iter().all(|it| it.path != "/x"), "nothing was sent");
}

/// A redirect within the origin is followed, with the headers; one that leaves it is not.
#[tokio::test]
async fn a_redirect_is_followed_within_the_origin() {
    let elsewhere = Elsewhere::start("modern").await;
    let url = format!("{}/moved", elsewhere.origin());
    let server = using(json!({"url": url, "headers": {"X-Key": "k"}})).await;
    assert_eq!(tool(&server.wire(), "a", "echo", echo()).await, "echo: hi");
}

/// Who came in once and is not known any more.
#[tokio::test]
async fn a_server_that_forgets_who_asks_says_so() {
    let elsewhere = Elsewhere::start("modern").await;
    let server = using(json!({"url": elsewhere.url})).await;
    let wire = server.wire();
    assert_eq!(tool(&wire, "a", "echo", echo()).await, "echo: hi");
    let told = tool(&wire, "a", "unknown", json!({})).await;
    assert_eq!(told, "Failed: it wants to know who asks (HTTP 401): nexus3 mcp login s");
    assert_eq!(tool(&wire, "a", "echo", echo()).await, "echo: hi");
}

/// What is in the address or the headers is nobody's business but the server's.
#[tokio::test]
async fn secrets_are_not_shown() {
    let elsewhere = Elsewhere::start("modern").await;
    let url = format!("{}/mcp?key=${{SECRET}}", elsewhere.origin());
    let entry = json!({"url": url, "headers": {"Authorization": "Bearer ${SECRET}"}});
    let setup = with_entry(entry).env("SECRET", "s3cr3t");
    let world = setup.world().await;
    let listed = world.command(["mcp", "list", "--json"]).output().await.unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let listed = &listed["servers"][0];
    assert_eq!((&listed["url"], &listed["headers"]), (&json!(url), &json!(["Authorization"])));
    let server = setup.start_in(&world).await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(tool(&wire, "a", "echo", echo()).await, "echo: hi");
    let heard = elsewhere.heard();
    assert!(heard.iter().all(|it| it.header("authorization") == "Bearer s3cr3t"));
    assert!(heard.iter().all(|it| it.path == "/mcp?key=s3cr3t"));
    drop(elsewhere);
    let told = tool(&wire, "a", "echo", echo()).await;
    assert!(told.contains("it cannot be reached") && !told.contains("s3cr3t"), "{told}");
    let stands = status(&wire, "a").await.to_string();
    assert!(!stands.contains("s3cr3t"), "{stands}");
}

#[tokio::test]
async fn a_server_made_with_the_python_sdk_is_used() {
    let Some(installed) = installed() else { return };
    for way in ["json", "events"] {
        let mut command = Command::new(installed.join("python/bin/python"));
        command.arg("-B").arg(script("server.py")).arg(way);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut running = command.spawn().unwrap();
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
        let port = within("its port", lines.next_line()).await.unwrap().unwrap();
        let server = using(json!({"url": format!("http://127.0.0.1:{port}/mcp")})).await;
        let wire = server.wire();
        assert_eq!(tool(&wire, "a", "add", json!({"a": 2, "b": 3})).await, "5");
        assert_eq!(tool(&wire, "a", "count", json!({"to": 3})).await, "counted to 3");
        assert_eq!(status(&wire, "a").await["protocol_version"], "2026-07-28", "{way}");
    }
}
