//! What is written of a model, and what becomes of it.

use nexus_core::model::{Effort, Inputs, Reasoning};
use nexus_core::usage::{Prices, Rates};

use super::*;

fn model(model: Value) -> ModelEntry {
    let config = load(&json!({"providers": {"openai": {"models": {"m": model, "n": {}}}}}));
    config.unwrap().providers.remove(0).models.remove(0)
}

#[track_caller]
fn refused(model: Value, key: &str, reason: &str) {
    check_error(
        json!({"providers": {"openai": {"models": {"m": model, "n": {}}}}}),
        &format!("providers.openai.models.m.{key}: {reason}"),
    );
}

#[test]
fn every_key_of_a_model_reaches_its_entry() {
    assert_eq!(model(json!({})), ModelEntry::named("m"));
    let entry = model(json!({
        "id": "i", "context_window": 2048, "max_output_tokens": 512,
        "reasoning": {"effort": "high", "budget_tokens": 4096, "display": "none"},
        "input": ["text", "image"], "price": {"input": 1, "output": 2.5, "cache_read": 0.1},
        "fallback": ["n"], "fallback_on_refusal": true, "extra_body": {"top_p": 0.5, "deep": {"er": [null]}},
    }));
    let base = Rates {
        input: 1_000_000_000,
        output: 2_500_000_000,
        cache_read: Some(100_000_000),
        cache_write: None,
    };
    let expected = ModelEntry {
        alias: "m".into(),
        id: "i".into(),
        context_window: Some(2048),
        max_output_tokens: Some(512),
        reasoning: Reasoning::Asked {
            effort: Some(Effort::High),
            budget_tokens: Some(4096),
            shown: false,
        },
        inputs: Some(Inputs { image: true, pdf: false }),
        prices: Some(Prices { base, tiers: Vec::new() }),
        fallback: vec!["n".into()],
        fallback_on_refusal: true,
        extra_body: json!({"top_p": 0.5, "deep": {"er": [null]}}).as_object().unwrap().clone(),
    };
    assert_eq!(entry, expected);
}

#[test]
fn reasoning_is_a_switch_or_says_more() {
    assert_eq!(model(json!({"reasoning": false})).reasoning, Reasoning::Off);
    assert_eq!(model(json!({"reasoning": true})).reasoning, Reasoning::On);
    let usual = Reasoning::Asked { effort: None, budget_tokens: None, shown: true };
    assert_eq!(model(json!({"reasoning": {}})).reasoning, usual);
    assert_eq!(model(json!({"reasoning": {"display": "stream"}})).reasoning, usual);
    for effort in Effort::ALL {
        let asked = model(json!({"reasoning": {"effort": effort.name()}})).reasoning;
        assert_eq!(asked.effort(), Some(effort));
    }
    refused(
        json!({"reasoning": "high"}),
        "reasoning",
        "invalid type: string \"high\", expected true, false or an object",
    );
    refused(
        json!({"reasoning": {"effort": "huge"}}),
        "reasoning.effort",
        "invalid value: string \"huge\", expected one of none, minimal, low, medium, high, xhigh, max",
    );
    refused(
        json!({"reasoning": {"efort": "low"}}),
        "reasoning.efort",
        "unknown field `efort`, expected one of `effort`, `budget_tokens`, `display`",
    );
}

#[test]
fn a_price_says_both_and_is_none_below_nothing() {
    for price in [json!({"input": 1}), json!({"output": 1}), json!({})] {
        refused(json!({"price": price}), "price", "needs input and output");
    }
    let priced = |input: f64| json!({"price": {"input": input, "output": 0}});
    for good in [0.0, 1_000_000.0] {
        assert!(model(priced(good)).prices.is_some());
    }
    for bad in [-0.001, 1_000_000.5] {
        let reason = format!("{bad} is not a number of dollars from 0 to 1000000");
        refused(priced(bad), "price.input", &reason);
    }
    // One file may say a part of it, as long as the whole is said.
    let config = Tree::new()
        .write(
            "home",
            r#"{"providers": {"openai": {"models": {"m": {"price": {"input": 1, "output": 1}}}}}}"#,
        )
        .write("a/b/c", r#"{"providers": {"openai": {"models": {"m": {"price": {"input": 2}}}}}}"#)
        .trust("a/b/c")
        .load()
        .unwrap();
    let base = &config.providers[0].models[0].prices.as_ref().unwrap().base;
    assert_eq!((base.input, base.output), (2_000_000_000, 1_000_000_000));
}

#[test]
fn inputs_are_named() {
    assert_eq!(model(json!({"input": []})).inputs, Some(Inputs::default()));
    let both = Some(Inputs { image: true, pdf: true });
    assert_eq!(model(json!({"input": ["pdf", "image"]})).inputs, both);
    refused(
        json!({"input": ["audio"]}),
        "input[0]",
        "invalid value: string \"audio\", expected one of text, image, pdf",
    );
}

#[test]
fn what_the_program_writes_itself_is_not_written_by_a_configuration() {
    for (provider, own, free) in [
        (json!({"type": "openai"}), "input", "thinking"),
        (json!({"type": "openai", "wire": "chat"}), "messages", "thinking"),
        (json!({"type": "anthropic"}), "thinking", "reasoning_effort"),
        (json!({"type": "ollama"}), "options", "thinking"),
        (json!({"type": "gemini"}), "generationConfig", "safetySettings"),
        (json!({"type": "openrouter"}), "provider", "transforms"),
    ] {
        let with = |key: &str| {
            let mut provider = provider.clone();
            provider["models"] = json!({"m": {"extra_body": {"a": 1, key: 1}}});
            json!({"providers": {"p": provider}})
        };
        let place = "providers.p.models.m.extra_body";
        check_error(with(own), &format!("{place}: {own} is written by the program itself"));
        assert!(load(&with(free)).is_ok(), "{provider} {free}");
    }
    let frame = json!({"a": ""}).to_string().len();
    let body = |bytes: usize| json!({"extra_body": {"a": "x".repeat(bytes - frame)}});
    assert!(!model(body(16_384)).extra_body.is_empty());
    refused(body(16_385), "extra_body", "is larger than 16384 bytes");
}

#[test]
fn what_takes_a_models_place_is_there_and_another() {
    let with = |fallback: Value| {
        json!({"providers": {
            "openai": {"models": {"m": {"fallback": fallback}, "n": {"fallback": ["m"]}, "both": {}}},
            "anthropic": {},
            "claude": {"type": "anthropic", "models": {"both": {}}},
        }})
    };
    for good in [
        json!([]),
        json!(["n"]),
        json!(["openai/n", "claude/both", "claude/any-id"]),
        json!(["claude-sonnet-5-5"]),
    ] {
        assert!(load(&with(good.clone())).is_ok(), "{good}");
    }
    let place = "providers.openai.models.m.fallback";
    for (bad, reason) in [
        (
            json!(["gone"]),
            "there is no model \"gone\"; it is an alias, provider/alias or provider/id",
        ),
        (
            json!(["x/n"]),
            "there is no model \"x/n\"; it is an alias, provider/alias or provider/id",
        ),
        (json!(["m"]), "\"m\" is the model itself"),
        (json!(["openai/m"]), "\"openai/m\" is the model itself"),
        (json!(["n", "openai/n"]), "\"openai/n\" is named twice"),
        (
            json!(["both"]),
            "several providers have a model \"both\"; say openai/both or claude/both",
        ),
    ] {
        check_error(with(bad), &format!("{place}: {reason}"));
    }
    let many = |count: usize| with((0..count).map(|number| format!("claude/{number}")).collect());
    assert!(load(&many(8)).is_ok());
    check_error(many(9), &format!("{place}: more than 8 names"));
    refused(
        json!({"fallback_on_refusal": true}),
        "fallback_on_refusal",
        "has no effect without fallback",
    );
}
