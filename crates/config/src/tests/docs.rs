//! `docs/configuration.md` says what the program does.

use super::*;

const DOCS: &str = include_str!("../../../../docs/configuration.md");

#[test]
fn the_example_loads() {
    let example = DOCS.rsplit("```json").next().and_then(|rest| rest.split("```").next()).unwrap();
    load(&serde_json::from_str(example).unwrap()).unwrap();
}

/// The keys of a section are learnt from what is said about one that does not exist.
#[test]
fn every_key_is_described() {
    let sections = [
        "",
        "providers.openai.",
        "providers.openai.models.m.",
        "providers.openai.models.m.reasoning.",
        "providers.openai.models.m.price.",
        "permissions.",
        "permissions.presets.p.",
        "permissions.presets.p.tool_permissions.t.",
        "compaction.",
        "context.",
        "images.",
        "server.",
        "terminal.",
        "auth.",
        "doors.",
        "mcp.",
        "auth.hmac.",
        "auth.hmac.keys.k.",
    ];
    for section in sections {
        let error = load(&at(&format!("{section}no such key"), json!(1))).unwrap_err().to_string();
        let (_, keys) = error.split_once("expected").unwrap();
        for key in keys.split('`').skip(1).step_by(2) {
            let described =
                [format!("`{key}`"), format!("`{key}."), format!(".{key}`"), format!(".{key}.")];
            assert!(
                described.iter().any(|form| DOCS.contains(form)),
                "{section}{key} is not described"
            );
        }
    }
}
