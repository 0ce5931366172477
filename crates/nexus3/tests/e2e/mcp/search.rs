//! Servers with many tools: the model is shown how to find them, and calls what it found.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{entry, status, tool, user, with, with_entry};
use crate::harness::{Setup, Wire, eventually};
use crate::support::{history, say};

/// The names of tools that the model was shown last.
fn shown(wire: &Wire) -> Vec<String> {
    let request = wire.model().requests().pop().unwrap();
    let tools = request.body["tools"].as_array().unwrap().clone();
    tools.iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned()).collect()
}

fn of_servers(names: &[String]) -> Vec<&String> {
    names.iter().filter(|name| name.starts_with("mcp_s_")).collect()
}

#[tokio::test]
async fn few_tools_are_shown_and_many_are_found() {
    let few = with("").start().await;
    user(&few.wire(), "a").await;
    say(&few.wire(), "a", "hi").await;
    let names = shown(&few.wire());
    assert!(of_servers(&names).len() > 10 && !names.contains(&"tool_search".into()), "{names:?}");
    let [all, mcp] = tokens(&few.wire()).await;
    assert!(mcp > 100 && mcp < all, "{mcp} of {all}");
    let stands = status(&few.wire(), "a").await;
    assert_eq!(stands["tools"][0]["state"], "offered");
    assert!(stands["context_tokens"].as_u64().unwrap() > 100, "{}", stands["context_tokens"]);

    // 2,000 of them: what finds and calls them is shown, and a line for the server.
    let many = with("many").start().await;
    let wire = many.wire();
    user(&wire, "a").await;
    say(&wire, "a", "hi").await;
    let names = shown(&wire);
    assert!(of_servers(&names).is_empty(), "{names:?}");
    let finders = ["tool_search", "mcp_call", "mcp_read"].map(String::from);
    assert!(names.ends_with(&finders), "{names:?}");
    let request = wire.model().requests().pop().unwrap();
    let search = request.body["tools"].as_array().unwrap().iter().rev().nth(2).unwrap().clone();
    let words = search["function"]["description"].as_str().unwrap();
    assert!(words.ends_with("\n- s: 2000 tools") && !words.contains("t17"), "{words}");
    let [all, mcp] = tokens(&wire).await;
    assert!(mcp > 50 && mcp < 1_500 && mcp < all, "{mcp} of {all}");
    let stands = status(&wire, "a").await;
    assert_eq!(
        (&stands["tools"][0]["state"], &stands["context_tokens"]),
        (&json!("deferred"), &json!(0))
    );
}

/// Of all tools, and of those of servers.
async fn tokens(wire: &Wire) -> [u64; 2] {
    let count = wire.ok("get_tokens", json!({"agent_id": "a"})).await;
    ["tools", "mcp"].map(|part| count[part].as_u64().unwrap())
}

#[tokio::test]
async fn a_tool_is_found_and_called_and_goes_by_its_own_name() {
    let server = with_entry(entry("", json!({"defer": "always"}))).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let found = {
        wire.model().push(Reply::tool_call("tool_search", json!({"query": "echo", "limit": 1})));
        wire.model().push(Reply::text("done"));
        say(&wire, "a", "find it").await;
        let lines = history(&wire, "a").await;
        lines[lines.len() - 2].clone()
    };
    assert!(
        found.starts_with("tool: mcp_s_echo\n") && found.contains("\"required\":[\"text\"]"),
        "{found}"
    );
    let call = json!({"tool": "mcp_s_echo", "arguments": {"text": "hello"}});
    wire.model().push(Reply::tool_call("mcp_call", call));
    wire.model().push(Reply::text("done"));
    say(&wire, "a", "call it").await;
    assert!(of_servers(&shown(&wire)).is_empty());
    let messages = wire.ok("get_messages", json!({"agent_id": "a"})).await["messages"].clone();
    let messages = messages.as_array().unwrap();
    let made = &messages[messages.len() - 3]["tool_calls"][0];
    assert_eq!(
        (&made["name"], &made["arguments"]),
        (&json!("mcp_s_echo"), &json!({"text": "hello"}))
    );
    assert_eq!(messages[messages.len() - 2]["content"], "echo: hello");
    // And by its own name.
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "again"})).await, "echo: again");
    assert_eq!(status(&wire, "a").await["calls"], 2);
}

#[tokio::test]
async fn what_is_not_there_or_not_allowed_is_refused_as_itself() {
    let server = with_entry(entry("", json!({"defer": "always"}))).start().await;
    let wire = server.wire();
    // One of the server's tools, handed down by name.
    wire.ok("create_agent", json!({"agent_id": "a", "mcp": {"s": ["echo"]}})).await;
    let answer = async |name: &str, arguments: Value| {
        wire.model().push(Reply::tool_call(name, arguments));
        wire.model().push(Reply::text("done"));
        say(&wire, "a", "go").await;
        let lines = history(&wire, "a").await;
        lines[lines.len() - 2].strip_prefix("tool: ").unwrap().to_owned()
    };
    let found = answer("tool_search", json!({"query": "does fail", "limit": 20})).await;
    assert_eq!(found, "Nothing was found among 1 tools. Try other words.");
    let refused = answer("mcp_call", json!({"tool": "mcp_s_fail", "arguments": {}})).await;
    assert!(refused.contains("may not use the tool fail"), "{refused}");
    let missing = answer("mcp_call", json!({"tool": "mcp_s_nothing"})).await;
    assert_eq!(
        missing,
        "Failed: there is no tool mcp_s_nothing: tool_search finds those there are"
    );
    let wrong = answer("mcp_call", json!({"tool": "mcp_s_echo", "arguments": [1]})).await;
    assert!(wrong.contains("text"), "{wrong}");
    // It is a way to tools of servers alone.
    let own =
        answer("mcp_call", json!({"tool": "read_file", "arguments": {"path": "/etc/passwd"}}))
            .await;
    assert!(own.starts_with("Failed: there is no tool read_file"), "{own}");
    let limit = answer("tool_search", json!({"query": "x", "limit": 21})).await;
    assert!(limit.starts_with("Failed: limit must be 1 to 20"), "{limit}");
}

#[tokio::test]
async fn how_much_is_shown_is_configured() {
    let config = |tokens: u64, defer: &str| {
        let servers = json!({"s": entry("", json!({"defer": defer}))});
        Setup::new().config(json!({"mcp": {"defer_tokens": tokens}, "mcp_servers": servers}))
    };
    for (tokens, defer, is_shown) in
        [(0, "auto", false), (0, "never", true), (100_000, "auto", true)]
    {
        let server = config(tokens, defer).start().await;
        user(&server.wire(), "a").await;
        say(&server.wire(), "a", "hi").await;
        let names = shown(&server.wire());
        assert_eq!(!of_servers(&names).is_empty(), is_shown, "{tokens} {defer}: {names:?}");
        assert_eq!(names.contains(&"mcp_call".into()), !is_shown, "{tokens} {defer}: {names:?}");
    }
}

/// By what is meant, with the built-in embedder: no word of the query is in the tool's.
#[tokio::test]
async fn a_tool_is_found_by_what_is_meant() {
    let server = with_entry(entry("tells", json!({"defer": "always"}))).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let search = async |query: &str| {
        let arguments = json!({"query": query, "limit": 1});
        wire.model().push(Reply::tool_call("tool_search", arguments));
        wire.model().push(Reply::text("done"));
        say(&wire, "a", "find it").await;
        let lines = history(&wire, "a").await;
        lines[lines.len() - 2].clone()
    };
    for (query, name) in
        [("weather forecast", "t1"), ("write an email", "t2"), ("delete files permanently", "t3")]
    {
        // The first search may be quicker than what tells meanings apart.
        eventually("it is found", async || {
            search(query).await.starts_with(&format!("tool: mcp_s_{name}\n"))
        })
        .await;
    }
    let kept = server.world.home().join("mcp/meanings");
    eventually("they are kept", async || kept.exists()).await;
    let nothing = search("quantum physics").await;
    assert!(nothing.starts_with("tool: Nothing was found"), "{nothing}");
}
