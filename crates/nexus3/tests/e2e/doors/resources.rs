//! Conversations and approvals as resources.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::host::{ERAS, Era, Host};
use crate::harness::Server;
use crate::support::{create, say};

#[tokio::test]
async fn conversations_are_listed_and_read() {
    for era in ERAS {
        let server = Server::start().await;
        let wire = server.wire();
        create(&wire, "a").await;
        server.model().push(Reply::text("hello"));
        say(&wire, "a", "hi").await;
        let host = Host::connect(&server, era, json!({})).await;
        let listed = host.ok("resources/list", json!({})).await;
        let uris: Vec<_> =
            listed["resources"].as_array().unwrap().iter().map(|it| &it["uri"]).collect();
        assert_eq!(json!(uris), json!(["nexus3://agent/a/messages", "nexus3://agent/a/approvals"]));
        let templates = host.ok("resources/templates/list", json!({})).await;
        assert_eq!(
            templates["resourceTemplates"][0]["uriTemplate"],
            "nexus3://agent/{agent_id}/messages"
        );
        let read = host.ok("resources/read", json!({"uri": "nexus3://agent/a/messages"})).await;
        let text: Value =
            serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text["messages"][1]["content"], "hello");
        let code = if era == Era::Modern { -32602 } else { -32002 };
        for uri in
            ["nexus3://agent/nobody/messages", "nexus3://agent/a/secrets", "file:///etc/passwd"]
        {
            let unknown = host.call("resources/read", json!({"uri": uri})).await;
            assert_eq!(unknown["error"]["code"], code, "{unknown}");
        }
        let of = json!({"type": "ref/resource", "uri": "nexus3://agent/{agent_id}/messages"});
        let params = json!({"ref": of, "argument": {"name": "agent_id", "value": "a"}});
        let completed = host.ok("completion/complete", params).await;
        assert_eq!(completed["completion"]["values"], json!(["a"]));
    }
}

#[tokio::test]
async fn a_host_is_told_when_a_conversation_goes_on() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let uri = "nexus3://agent/a/messages";
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    let wanted = json!({"notifications": {"resourceSubscriptions": [uri, "file:///etc/passwd"]}});
    let mut told = host.open("subscriptions/listen", wanted).await;
    let first = told.next().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    assert_eq!(first["params"]["notifications"]["resourceSubscriptions"], json!([uri]), "{first}");
    // The watch may be opened a moment after the host was told that it is.
    let next = async {
        let next = told.next().await;
        assert_eq!(
            (&next["method"], &next["params"]["uri"]),
            (&json!("notifications/resources/updated"), &json!(uri))
        );
    };
    let talking = async {
        loop {
            say(&wire, "a", "hi").await;
        }
    };
    tokio::select! {
        () = next => {}
        () = talking => {}
    }
}

#[tokio::test]
async fn a_session_subscribes_and_stops() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let uri = "nexus3://agent/a/messages";
    let host = Host::connect(&server, Era::Legacy, json!({})).await;
    let mut stream = host.listen().await;
    host.ok("resources/subscribe", json!({"uri": uri})).await;
    say(&wire, "a", "hi").await;
    let told = stream.next().await;
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (&json!("notifications/resources/updated"), &json!(uri))
    );
    host.ok("resources/unsubscribe", json!({"uri": uri})).await;
    let unknown = host.call("resources/subscribe", json!({"uri": "file:///x"})).await;
    assert!(unknown.get("error").is_some(), "{unknown}");
    for number in 0..64 {
        let uri = format!(
            "nexus3://agent/{}/messages",
            if number == 0 { "a".into() } else { format!("a{number}") }
        );
        if number > 0 {
            create(&wire, &format!("a{number}")).await;
        }
        host.ok("resources/subscribe", json!({"uri": uri})).await;
    }
    let over = host.call("resources/subscribe", json!({"uri": "nexus3://agent/a/approvals"})).await;
    assert!(over["error"]["message"].as_str().unwrap().contains("at most 64"), "{over}");
}
