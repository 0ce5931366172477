//! The table of errors, row by row, on every transport. That a refused caller gets -32003 is proven in `identity`: only
//! HTTP has callers who are not the administrator.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Setup, Wire};

over_every_wire_of_messages! {
    what_is_no_json_is_a_parse_error,
    nesting_ends_at_128,
    what_is_no_request_says_which_member_is_wrong,
}

over_every_wire! {
    an_unknown_method_is_named,
    positional_params_are_refused,
    absent_params_may_be_null,
    a_bad_parameter_is_named_and_pointed_at,
    agents_that_cannot_be_are_bad_parameters,
    a_request_id_in_flight_is_refused,
    a_provider_that_fails_is_an_internal_error: without_retries(),
    a_provider_that_limits_is_a_rate_limit: without_retries(),
    a_turn_that_takes_too_long_times_out,
    without_a_provider_turns_are_unavailable: Setup::new().unconfigured(),
    a_full_queue_is_an_overload: Setup::new().server(json!({"max_concurrent": 1, "max_queued": 1})),
}

fn without_retries() -> Setup {
    Setup::new().provider_keys(json!({"max_retries": 0}))
}

/// Sends `message`, which must be answered with this error and without an id.
async fn check(wire: &Wire, message: impl AsRef<[u8]>, code: i64, text: &str) {
    let answer = wire.exchange(message.as_ref()).await;
    let shown = String::from_utf8_lossy(&message.as_ref()[..message.as_ref().len().min(200)]);
    assert_eq!(answer["id"], Value::Null, "{shown}: {answer}");
    assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
    assert!(answer["error"]["message"].as_str().unwrap().starts_with(text), "{shown}: {answer}");
}

/// Calls `method`, which must be refused as a bad parameter at `path`.
async fn check_params(wire: &Wire, method: &str, params: Value, text: &str, path: &str) {
    let fault = wire.refused(method, params.clone()).await;
    assert_eq!((fault.code, &*fault.message), (-32602, text), "{method} {params}");
    assert_eq!(fault.data, json!({"path": path}), "{method} {params}");
}

async fn what_is_no_json_is_a_parse_error(wire: &Wire) {
    let messages: [&[u8]; 9] = [
        b"nope",
        b"{",
        b"[",
        b"{]",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"rpc.version\",\"id\":1",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"rpc.version\",\"id\":01}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"rpc.version\",\"id\":1} {}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\",\"id\":1}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"send\",\"params\":{\"content\":\"\xc3(\"},\"id\":1}",
    ];
    for message in messages {
        check(wire, message, -32700, "Invalid JSON: ").await;
    }
}

async fn nesting_ends_at_128(wire: &Wire) {
    // The request and its params are two levels.
    let of = |depth: usize| {
        let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
        format!(
            r#"{{"jsonrpc":"2.0","method":"rpc.version","id":1,"params":{{"x":{open}{close}}}}}"#
        )
    };
    let answer = wire.exchange(of(128)).await;
    assert_eq!(answer["error"]["message"], "Unknown parameter: x");
    check(wire, of(129), -32700, "Invalid JSON: ").await;
    check(wire, of(100_000), -32700, "Invalid JSON: ").await;
    check(wire, "[".repeat(100_000), -32700, "Invalid JSON: ").await;
    let in_a_string = request("[{".repeat(200), "rpc.version", json!({}));
    assert_eq!(wire.exchange(in_a_string).await["result"]["name"], "nexus3");
}

async fn what_is_no_request_says_which_member_is_wrong(wire: &Wire) {
    for (message, text) in [
        (r#"{"method":"m","id":1}"#, "jsonrpc must be '2.0'"),
        (r#"{"jsonrpc":"1.0","method":"m","id":1}"#, "jsonrpc must be '2.0'"),
        (r#"{"jsonrpc":2.0,"method":"m","id":1}"#, "jsonrpc must be '2.0'"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "method must be a string"),
        (r#"{"jsonrpc":"2.0","method":1,"id":1}"#, "method must be a string"),
        (r#"{"jsonrpc":"2.0","method":null,"id":1}"#, "method must be a string"),
        (r#"{"jsonrpc":"2.0","method":"","id":1}"#, "method must not be empty"),
        (r#"{"jsonrpc":"2.0","method":"m","params":"x","id":1}"#, "params must be an object"),
        (r#"{"jsonrpc":"2.0","method":"m","params":7,"id":1}"#, "params must be an object"),
        (r#"{"jsonrpc":"2.0","method":"m","params":false,"id":1}"#, "params must be an object"),
        (r#"{"jsonrpc":"2.0","method":"m","id":1,"extra":1}"#, "unknown member: extra"),
        (r#"{"jsonrpc":"2.0","method":"m","id":1,"result":1}"#, "unknown member: result"),
        (r#"{"jsonrpc":"2.0","method":"m","id":1,"ID":1}"#, "unknown member: ID"),
        (r#"{"jsonrpc":"2.0","method":"m","method":"n","id":1}"#, "duplicate member: method"),
        (r#"{"jsonrpc":"2.0","method":"m","id":1,"id":2}"#, "duplicate member: id"),
        ("true", "a request must be an object"),
    ] {
        check(wire, message, -32600, text).await;
    }
}

async fn an_unknown_method_is_named(wire: &Wire) {
    for name in ["nope", "rpc.", "Send", "send ", "zwölf", "\u{1f600}"] {
        let fault = wire.refused(name, json!({})).await;
        assert_eq!((fault.code, fault.message), (-32601, format!("Method not found: {name}")));
    }
}

async fn positional_params_are_refused(wire: &Wire) {
    for method in ["send", "list_agents", "create_agent", "rpc.version"] {
        for params in [json!([]), json!(["x"]), json!([{"agent_id": "main"}])] {
            let fault = wire.refused(method, params).await;
            assert_eq!(fault.code, -32602);
            assert_eq!(
                fault.message,
                "Positional params (array) not supported, use named params (object)"
            );
        }
    }
}

async fn absent_params_may_be_null(wire: &Wire) {
    let none = wire.exchange(r#"{"jsonrpc":"2.0","method":"rpc.version","id":1}"#).await;
    for params in ["null", "{}"] {
        let message =
            format!(r#"{{"jsonrpc":"2.0","method":"rpc.version","params":{params},"id":1}}"#);
        assert_eq!(wire.exchange(message).await, none);
    }
    check_params(wire, "send", Value::Null, "Missing required parameter: content", "/content")
        .await;
}

async fn a_bad_parameter_is_named_and_pointed_at(wire: &Wire) {
    for (method, params, text, path) in [
        ("send", json!({}), "Missing required parameter: content", "/content"),
        (
            "send",
            json!({"content": 7}),
            "content must be string or array, got: integer",
            "/content",
        ),
        (
            "send",
            json!({"content": null}),
            "content must be string or array, got: null",
            "/content",
        ),
        ("send", json!({"content": "x", "sream": true}), "Unknown parameter: sream", "/sream"),
        ("send", json!({"content": "x", "a/b~c": 1}), "Unknown parameter: a/b~c", "/a~1b~0c"),
        (
            "send",
            json!({"content": "x", "stream": 1}),
            "stream must be boolean, got: integer",
            "/stream",
        ),
        (
            "send",
            json!({"content": "x", "timeout_ms": 0}),
            "timeout_ms must be at least 1, got: 0",
            "/timeout_ms",
        ),
        ("cancel", json!({}), "Missing required parameter: request_id", "/request_id"),
        (
            "cancel",
            json!({"request_id": 1.5}),
            "request_id must be integer or string, got: number",
            "/request_id",
        ),
        ("get_messages", json!({"limit": 0}), "limit must be between 1 and 2000, got: 0", "/limit"),
        (
            "get_messages",
            json!({"limit": 2001}),
            "limit must be between 1 and 2000, got: 2001",
            "/limit",
        ),
        ("get_messages", json!({"offset": -1}), "offset must be at least 0, got: -1", "/offset"),
        ("list_agents", json!({"x": 1}), "Unknown parameter: x", "/x"),
        ("rpc.discover", json!({"x": 1}), "Unknown parameter: x", "/x"),
        ("destroy_agent", json!({}), "Missing required parameter: agent_id", "/agent_id"),
        (
            "create_agent",
            json!({"allowed_write_paths": ["/a", 1]}),
            "allowed_write_paths.1 must be string, got: integer",
            "/allowed_write_paths/1",
        ),
    ] {
        check_params(wire, method, params, text, path).await;
    }
    for limit in [1, 2000] {
        wire.ok("get_messages", json!({"limit": limit})).await;
    }
}

async fn agents_that_cannot_be_are_bad_parameters(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "low", "preset": "sandboxed"})).await;
    for (method, params, path) in [
        ("send", json!({"agent_id": "nobody", "content": "x"}), "/agent_id"),
        ("get_context", json!({"agent_id": "nobody"}), "/agent_id"),
        ("get_context", json!({"agent_id": "not a name"}), "/agent_id"),
        ("get_context", json!({"agent_id": 7}), "/agent_id"),
        ("create_agent", json!({"agent_id": "low"}), "/agent_id"),
        ("create_agent", json!({"agent_id": "line\n"}), "/agent_id"),
        ("create_agent", json!({"preset": "yolo"}), "/preset"),
        ("create_agent", json!({"preset": "trusted", "parent_agent_id": "low"}), "/preset"),
        ("create_agent", json!({"parent_agent_id": "nobody"}), "/parent_agent_id"),
    ] {
        let fault = wire.refused(method, params.clone()).await;
        assert_eq!(fault.code, -32602, "{method} {params}: {fault:?}");
        assert_eq!(fault.data["path"], path, "{method} {params}: {fault:?}");
    }
}

async fn a_request_id_in_flight_is_refused(wire: &Wire) {
    wire.model().push(Reply::hang());
    wire.ok("create_agent", json!({"agent_id": "a"})).await;
    let params = json!({"agent_id": "a", "content": "x", "request_id": "twice"});
    let second = async {
        wire.model().wait_for_requests(1).await;
        let fault = wire.refused("send", params.clone()).await;
        assert_eq!(
            (fault.code, &fault.data),
            (-32602, &json!({"path": "/request_id"})),
            "{fault:?}"
        );
        wire.ok("cancel", json!({"agent_id": "a", "request_id": "twice"})).await;
    };
    let (first, ()) = tokio::join!(wire.ok("send", params.clone()), second);
    assert_eq!(first["cancelled"], true);
    // The name is free again.
    assert_eq!(wire.ok("send", params.clone()).await["request_id"], "twice");
}

async fn a_provider_that_fails_is_an_internal_error(wire: &Wire) {
    for status in [400, 401, 500, 503] {
        wire.model().push(Reply::status(status).message("the key sk-secret is bad"));
        assert_eq!(wire.refused("send", json!({"content": "x"})).await.code, -32603, "{status}");
    }
}

async fn a_provider_that_limits_is_a_rate_limit(wire: &Wire) {
    wire.model().push(Reply::status(429).retry_after("7"));
    let fault = wire.refused("send", json!({"content": "x"})).await;
    assert_eq!((fault.code, &*fault.message), (-32002, "Rate limit exceeded"));
    assert_eq!(
        (&fault.data["retry_after_ms"], &fault.data["scope"]),
        (&json!(7000), &json!("upstream"))
    );
}

async fn a_turn_that_takes_too_long_times_out(wire: &Wire) {
    wire.model().push(Reply::hang());
    let fault = wire.refused("send", json!({"content": "x", "timeout_ms": 200})).await;
    assert_eq!((fault.code, &*fault.message), (-32000, "Execution timeout"));
    assert_eq!(fault.data["type"], "TIMEOUT");
    // On a slow machine the time may be over before the model is asked.
    wire.model().wait_for_disconnects(wire.model().request_count()).await;
}

async fn without_a_provider_turns_are_unavailable(wire: &Wire) {
    let fault = wire.refused("send", json!({"content": "x"})).await;
    assert_eq!(fault.code, -32001);
    assert!(fault.data.get("retry_after_ms").is_none(), "trying again does not help: {fault:?}");
    assert!(!fault.data["recovery_suggestions"].as_array().unwrap().is_empty());
}

async fn a_full_queue_is_an_overload(wire: &Wire) {
    wire.model().set_default(Reply::hang());
    let agents = ["running", "waiting"];
    for agent in agents.iter().chain(&["refused"]) {
        wire.ok("create_agent", json!({"agent_id": agent})).await;
    }
    let send =
        |agent| wire.ok("send", json!({"agent_id": agent, "content": "x", "request_id": agent}));
    let third = async {
        wire.model().wait_for_requests(1).await;
        // Which of the two runs is not said; that both are in is.
        crate::harness::eventually("both turns to be in flight", async || {
            let list = wire.ok("list_agents", json!({})).await;
            let running = list["agents"].as_array().unwrap().iter();
            running.filter(|agent| agent["status"] == "running").count() == 2
        })
        .await;
        let fault = wire.refused("send", json!({"agent_id": "refused", "content": "x"})).await;
        assert_eq!(fault.code, -32001, "{fault:?}");
        assert!(fault.data["retry_after_ms"].is_u64(), "{fault:?}");
        // Reads and control do not wait behind turns.
        wire.ok("get_context", json!({"agent_id": "running"})).await;
        for agent in agents {
            wire.ok("cancel", json!({"agent_id": agent, "request_id": agent})).await;
        }
    };
    let (first, second, ()) = tokio::join!(send(agents[0]), send(agents[1]), third);
    assert_eq!((&first["cancelled"], &second["cancelled"]), (&json!(true), &json!(true)));
}
