//! The interface describes itself.

use serde_json::json;

use crate::harness::Wire;

over_every_wire! { the_version_says_what_to_expect, every_method_that_is_described_is_there }

async fn the_version_says_what_to_expect(wire: &Wire) {
    let version = wire.ok("rpc.version", json!({})).await;
    let expected = json!({
        "name": "nexus3",
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": "1",
        "features": ["batch", "streaming", "durable-agents", "agent-tokens", "response-schema", "signed-requests", "watch"],
        "default_model": "scripted",
        "default_provider": "scripted",
    });
    assert_eq!(version, expected);
}

async fn every_method_that_is_described_is_there(wire: &Wire) {
    let document = wire.ok("rpc.discover", json!({})).await;
    assert!(document["openrpc"].as_str().unwrap().starts_with("1."));
    let methods = document["methods"].as_array().unwrap();
    assert!(methods.len() > 10, "{document}");
    for method in methods {
        // Positional parameters are refused by a method, not before one was found.
        let name = method["name"].as_str().unwrap();
        assert_eq!(wire.refused(name, json!([])).await.code, -32602, "{name}");
    }
}
