//! Whether and with what callers sign their requests.

use super::*;
use crate::{Hmac, HmacKey, HmacMode};

#[test]
fn nobody_signs_unless_somebody_says_so() {
    assert_eq!(load(&json!({})).unwrap().hmac, Hmac::default());
    for (mode, expected) in
        [("off", HmacMode::Off), ("optional", HmacMode::Optional), ("required", HmacMode::Required)]
    {
        let config = load(&json!({"auth": {"hmac": {"mode": mode}}})).unwrap();
        assert_eq!(config.hmac.mode, expected);
    }
}

#[test]
fn every_key_reaches_its_entry() {
    let keys = json!({
        "all": {"secret_env": "A"},
        "some": {"secret_env": "B", "methods": ["get_*", "send"], "agent_id": "w"},
    });
    let hmac = json!({"mode": "required", "secret_env": "OWN", "keys": keys});
    let hmac = load(&json!({"auth": {"hmac": hmac}})).unwrap().hmac;
    assert_eq!(hmac.secret_env.as_deref(), Some("OWN"));
    let all = HmacKey { secret_env: "A".into(), methods: None, agent: None };
    let some = HmacKey {
        secret_env: "B".into(),
        methods: Some(vec!["get_*".into(), "send".into()]),
        agent: AgentId::parse("w").ok(),
    };
    assert_eq!(hmac.keys, [("all".into(), all), ("some".into(), some)].into());
}

#[test]
fn what_can_be_no_key_is_refused_by_name() {
    let check = |name: &str, key: Value, expected: &str| {
        let error = load(&json!({"auth": {"hmac": {"keys": {name: key}}}})).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check("k", json!({}), "auth.hmac.keys.k: missing field `secret_env`");
    check("k l", json!({"secret_env": "A"}), "auth.hmac.keys.k l: name must be 1 to 64 letters");
    let with = |name: &str, value: Value| json!({"secret_env": "A", name: value});
    check("k", with("methods", json!([])), "auth.hmac.keys.k.methods: methods must name");
    check("k", with("methods", json!(["a b"])), "auth.hmac.keys.k.methods: methods must hold");
    check("k", with("agent_id", json!("a b")), "auth.hmac.keys.k.agent_id: ");
    check("k", with("secret", json!("x")), "auth.hmac.keys.k");
}
