//! Port lists, token files, and what a probe reports of each kind of server.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::testing::{FORBIDDEN_BODY, FakeServer, Reply};

const LONG: Duration = Duration::from_secs(20);

/// A server of ours that knows the token `right`, or none when `open`.
async fn nexus(open: bool) -> FakeServer {
    FakeServer::start(move |seen| {
        let token = seen.headers.get("authorization").map(|value| value.as_bytes());
        if !open && token != Some(b"Bearer right") {
            return Reply::json(if token.is_some() { 403 } else { 401 }, FORBIDDEN_BODY);
        }
        match seen.body["method"].as_str() {
            Some("rpc.version") => Reply::version(),
            _ => Reply::result(json!({"agents": []})),
        }
    })
    .await
}

fn home_with(files: &[(&str, u32, &str)]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for (name, mode, text) in files {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
    }
    home
}

/// Probes `server`, with a token in its port's file (if any) and one in the environment (if any).
async fn check(server: &FakeServer, file: Option<&str>, api_key: Option<&str>, expected: &str) {
    let port = server.address.port();
    let name = token::file_name(port);
    let files: Vec<_> = file.iter().map(|text| (name.as_str(), 0o600, *text)).collect();
    let home = home_with(&files);
    let environment =
        Environment { api_key: api_key.map(Into::into), home: Some(home.path().into()) };
    let found = probe_server("127.0.0.1", port, LONG, &environment).await;
    let json = serde_json::to_value(&found).unwrap();
    let got = format!("{} {} agents: {}", json["detection"], json["auth"], json["agents"]);
    assert_eq!(got.replace('"', ""), expected);
    assert_eq!(found.token_path.is_some(), file.is_some());
    assert_eq!(found.base_url, server.url());
    assert_eq!(found.error, None);
}

#[tokio::test]
async fn how_a_server_takes_the_token() {
    let server = nexus(false).await;
    check(&server, Some("right"), None, "nexus_server ok agents: []").await;
    check(&server, Some("right"), Some("wrong"), "nexus_server ok agents: []").await;
    check(&server, None, Some("right"), "nexus_server ok agents: []").await;
    check(&server, Some("wrong"), None, "nexus_server invalid_token agents: null").await;
    check(&server, None, None, "nexus_server required agents: null").await;
    let server = nexus(true).await;
    check(&server, Some("any"), None, "nexus_server disabled agents: []").await;
    let server = FakeServer::start(|_| Reply::json(200, "{}")).await;
    check(&server, Some("right"), Some("right"), "other_service null agents: null").await;
    assert!(server.seen().iter().all(|seen| !seen.headers.contains_key("authorization")));
}

#[tokio::test]
async fn the_default_servers_token_is_not_shown_to_others() {
    let server = nexus(false).await;
    let home = home_with(&[("rpc.token", 0o600, "right")]);
    let environment = Environment { api_key: None, home: Some(home.path().into()) };
    let found = probe_server("127.0.0.1", server.address.port(), LONG, &environment).await;
    assert_eq!((found.auth, found.token_present), (Some(Auth::Required), false));
}

#[test]
fn no_token_goes_to_another_machine() {
    let home = home_with(&[("rpc-9000.token", 0o600, "right")]);
    for environment in [
        Environment { api_key: None, home: Some(home.path().into()) },
        Environment { api_key: Some("key".into()), home: None },
    ] {
        for (host, expected) in
            [("127.0.0.1", true), ("[::1]", true), ("127.0.0.2", false), ("example.com", false)]
        {
            let found = token_for(&environment, host, 9000).unwrap().token;
            assert_eq!(found.is_some(), expected, "{host}");
        }
    }
}

#[tokio::test]
async fn a_token_file_that_cannot_be_trusted_is_reported() {
    let server = nexus(false).await;
    let port = server.address.port();
    let home = home_with(&[(&token::file_name(port), 0o644, "right")]);
    let environment = Environment { api_key: None, home: Some(home.path().into()) };
    let found = probe_server("127.0.0.1", port, LONG, &environment).await;
    assert_eq!(found.auth, Some(Auth::Required));
    assert!(found.error.unwrap().contains("others may read it (mode 0644)"));
}

#[tokio::test]
async fn many_ports_by_number() {
    let servers = [nexus(true).await, nexus(false).await];
    let mut ports: Vec<_> = servers.iter().map(|server| server.address.port()).collect();
    ports.sort_unstable_by(|a, b| b.cmp(a));
    let found = discover_servers("127.0.0.1", &ports, LONG, &Environment::default()).await;
    ports.reverse();
    assert_eq!(found.iter().map(|server| server.port).collect::<Vec<_>>(), ports);
    assert!(found.iter().all(|server| server.detection == Detection::NexusServer));
}

#[test]
fn token_files_by_port() {
    let names =
        ["rpc.token", "rpc-9000.token", "rpc-0.token", "rpc-09.token", "rpc-70000.token", "x"];
    let home = home_with(&names.map(|name| (name, 0o600, "t")));
    let ports = discover_token_ports(home.path()).unwrap();
    let expected = [(8765, "rpc.token"), (9000, "rpc-9000.token")];
    assert_eq!(ports, expected.map(|(port, name)| (port, home.path().join(name))).into());
    assert!(discover_token_ports(&home.path().join("absent")).is_err());
}

#[test]
fn port_specs() {
    let check = |spec: &str, expected: &[u16]| {
        assert_eq!(parse_port_spec(spec).as_deref(), Ok(expected), "{spec}");
    };
    check("8765", &[8765]);
    check("8765,9000-9005", &[8765, 9000, 9001, 9002, 9003, 9004, 9005]);
    check(" 9001 , 9000 - 9002 ,9001", &[9001, 9000, 9002]);
    check("1,65535", &[1, 65535]);
    check("7-7", &[7]);
    assert_eq!(parse_port_spec("1-65535,1-65535").unwrap().len(), 65535);

    let refuse = |spec: &str, expected: &str| {
        let error = parse_port_spec(spec).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{spec}: {error}");
    };
    refuse("", "\"\" is not a port");
    refuse("1,", "\"\" is not a port");
    refuse("0", "\"0\" is not a port");
    refuse("65536", "\"65536\" is not a port");
    refuse("-5", "\"\" is not a port");
    refuse("1-2-3", "\"2-3\" is not a port");
    refuse("+80", "\"+80\" is not a port");
    refuse("http", "\"http\" is not a port");
    refuse("9005-9000", "the range 9005-9000 runs backwards");
}
