//! Which models there are: `list_models` over every wire, and `nexus3 models` without a server.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::harness::{Output, Server, Setup, Wire, World, process};
use crate::support::{as_agent, create};

over_every_wire! {
    a_list_has_exactly_its_members: several(),
    a_page_is_a_part_of_the_list: several(),
    what_was_not_configured_is_listed_too_when_it_is_asked_for: several(),
    a_bad_query_is_named: several(),
}

fn several() -> Setup {
    Setup::new().config(json!({"providers": {
        "claude": {"type": "anthropic", "api_key_env": "MISSING", "models": {"deep": {
            "id": "claude-opus-4-5", "max_output_tokens": 1000, "reasoning": {"effort": "high", "budget_tokens": 2048},
            "price": {"input": 1, "output": 2.5, "cache_read": 0.1, "cache_write": 1.25},
        }}},
        "gpt": {"type": "openai", "wire": "chat", "models": {"gpt-6.1-sol": {}}},
    }}))
}

async fn aliases(wire: &Wire, params: Value) -> Vec<String> {
    let page = wire.ok("list_models", params).await;
    let models = page["models"].as_array().unwrap().iter();
    models.map(|model| model["alias"].as_str().unwrap().to_owned()).collect()
}

async fn a_list_has_exactly_its_members(wire: &Wire) {
    let page = wire.ok("list_models", json!({})).await;
    let none = json!({"kind": "none", "efforts": [], "always_on": false, "asked": false, "effort": null,
        "budget_tokens": null});
    let scripted = json!({
        "alias": "scripted", "provider": "scripted", "id": "scripted", "wire": "chat", "context_window": 200_000,
        "max_output_tokens": null, "input": ["text"], "reasoning": none, "capabilities": [], "price": null, "tools": null,
        "schemas": null, "wires": [], "retires": null,
        "sources": {"context_window": "configuration", "max_output_tokens": "assumed", "input": "assumed",
            "reasoning": "assumed", "price": "assumed"},
        "available": true, "key_set": true, "default": true,
    });
    let deep = json!({
        "alias": "deep", "provider": "claude", "id": "claude-opus-4-5", "wire": "messages", "context_window": 200_000,
        "max_output_tokens": 1000, "input": ["text", "image", "pdf"],
        "reasoning": {"kind": "budget", "efforts": [], "always_on": false, "asked": true, "effort": "high",
            "budget_tokens": 2048},
        "capabilities": ["image", "pdf", "reasoning", "schemas", "tools"],
        "price": {"input": 1.0, "output": 2.5, "cache_read": 0.1, "cache_write": 1.25},
        "tools": true, "schemas": true, "wires": [], "retires": null,
        "sources": {"context_window": "catalogue", "max_output_tokens": "configuration", "input": "catalogue",
            "reasoning": "catalogue", "price": "configuration"},
        "available": false, "reason": "the key of claude is not set", "key_set": false, "default": false,
    });
    assert_eq!(page["default"], "scripted");
    assert_eq!(page["models"][0], scripted);
    assert_eq!(page["models"][1], deep);
    let sol = &page["models"][2];
    assert_eq!((&sol["wire"], &sol["context_window"]), (&json!("chat"), &json!(922_000)));
    let above = json!([{"tokens": 272_000, "input": 4.0, "output": 15.0, "cache_read": 0.2, "cache_write": 5.0}]);
    assert_eq!(sol["price"]["above"], above);
    assert_eq!(
        (&page["total"], &page["offset"], &page["limit"]),
        (&json!(3), &json!(0), &json!(100))
    );
}

async fn a_page_is_a_part_of_the_list(wire: &Wire) {
    assert_eq!(aliases(wire, json!({})).await, ["scripted", "deep", "gpt-6.1-sol"]);
    assert_eq!(aliases(wire, json!({"offset": 1, "limit": 1})).await, ["deep"]);
    assert_eq!(aliases(wire, json!({"offset": 3})).await, [""; 0]);
    assert_eq!(aliases(wire, json!({"provider": "gpt"})).await, ["gpt-6.1-sol"]);
}

async fn what_was_not_configured_is_listed_too_when_it_is_asked_for(wire: &Wire) {
    let all = aliases(wire, json!({"provider": "claude", "all": true, "limit": 1000})).await;
    assert_eq!(all[0], "deep");
    assert!(all.contains(&"claude/claude-sonnet-5-5".into()), "{all:?}");
    assert!(!all.contains(&"claude/claude-opus-4-5".into()), "it is there by its alias");
    let page = wire.ok("list_models", json!({"provider": "claude", "all": true, "limit": 2})).await;
    assert_eq!(page["total"], all.len());
    assert_eq!(page["models"].as_array().unwrap().len(), 2);
}

async fn a_bad_query_is_named(wire: &Wire) {
    let fault = wire.refused("list_models", json!({"provider": "x"})).await;
    assert_eq!((fault.code, fault.data["path"].as_str()), (-32602, Some("/provider")));
    assert!(fault.message.contains("known: scripted, claude, gpt"), "{}", fault.message);
    for (params, path) in [
        (json!({"limit": 0}), "/limit"),
        (json!({"limit": 1001}), "/limit"),
        (json!({"offset": -1}), "/offset"),
        (json!({"all": "yes"}), "/all"),
    ] {
        let fault = wire.refused("list_models", params).await;
        assert_eq!((fault.code, fault.data["path"].as_str()), (-32602, Some(path)));
    }
    for limit in [1, 1000] {
        wire.ok("list_models", json!({"limit": limit})).await;
    }
}

#[tokio::test]
async fn agents_see_what_there_is() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let seen = as_agent(&server, "a", "list_models", json!({})).await.unwrap();
    assert_eq!(seen, server.wire().ok("list_models", json!({})).await);
}

async fn models(world: &World, args: &[&str]) -> Output {
    process::run(world.command([&["models"], args].concat())).await
}

#[tokio::test]
async fn the_command_says_what_the_method_does_without_a_server() {
    let server = several().start().await;
    let listed = server.wire().ok("list_models", json!({})).await;
    let world = server.world.clone();
    drop(server);
    let printed: Value = serde_json::from_str(&models(&world, &["--json"]).await.stdout).unwrap();
    assert_eq!(printed["models"], listed["models"]);

    let table = models(&world, &[]).await;
    assert_eq!(table.code, Some(0));
    for part in ["scripted *", "deep", "1k", "image, pdf", "asked: high", "922k", "2.5"] {
        assert!(table.stdout.contains(part), "{part}: {}", table.stdout);
    }
    assert!(table.stdout.contains("the key is not set for: claude, gpt"), "{}", table.stdout);
    let all = models(&world, &["--provider", "gpt", "--all"]).await.stdout;
    assert!(all.contains("gpt/gpt-5.2") && !all.contains("claude"), "{all}");
    let unknown = models(&world, &["--provider", "x"]).await;
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("unknown provider: x"), "{}", unknown.stderr);
}

/// A server that says of its model what vLLM does, for as long as it is asked.
fn vllm() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let Ok(length) = stream.read(&mut request) else { return };
            let asked = String::from_utf8_lossy(&request[..length]).into_owned();
            let body = match asked.starts_with("GET /v1/models ") {
                true => json!({"data": [{"id": "qwen", "max_model_len": 40_960}]}).to_string(),
                false => "{}".into(),
            };
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn what_a_service_says_when_it_is_asked_is_kept() {
    let own = json!({"type": "openai", "base_url": vllm(), "models": {"qwen": {}}});
    let claude = json!({"type": "anthropic", "api_key_env": "MISSING"});
    let setup = Setup::new().config(json!({"providers": {"own": own, "claude": claude}}));
    let world = setup.world().await;
    let window = async || {
        let printed = models(&world, &["--provider", "own", "--json"]).await.stdout;
        let printed: Value = serde_json::from_str(&printed).unwrap();
        let model = &printed["models"][0];
        (model["context_window"].clone(), model["sources"]["context_window"].clone())
    };
    assert_eq!(window().await, (json!(128_000), json!("assumed")));
    let asked = models(&world, &["refresh", "--provider", "own"]).await;
    assert_eq!((asked.code, &*asked.stdout), (Some(0), "own: 1 model\n"), "{asked:?}");
    assert_eq!(window().await, (json!(40_960), json!("provider")));

    // A server takes it with its start, and one that is not reached takes nothing away.
    let server = setup.clone().start_in(&world).await;
    let page = server.wire().ok("list_models", json!({"provider": "own"})).await;
    assert_eq!(page["models"][0]["context_window"], 40_960);
    let failed = models(&world, &["refresh", "--provider", "claude"]).await;
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains("claude: the environment variable MISSING is not set"));
    assert_eq!(window().await, (json!(40_960), json!("provider")));
    let unknown = models(&world, &["refresh", "--provider", "x"]).await;
    assert!(unknown.stderr.contains("unknown provider: x (known: "), "{}", unknown.stderr);
}

#[tokio::test]
async fn without_any_model_the_command_says_what_to_do() {
    let world = Setup::new().unconfigured().world().await;
    let output = models(&world, &[]).await;
    // The built-in model is always there to be fetched.
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("smollm2-135m"), "{output:?}");
}
