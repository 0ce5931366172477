//! One entry of litellm's table as one of ours.

use nexus_core::model::Effort;
use nexus_models::catalogue::{Entry, Input, Price, Rate, ThinkingKind, Thinks, Tier};
use serde_json::Value;

/// Providers of theirs, and our names for them.
const VENDORS: [(&str, &str); 17] = [
    ("anthropic", "anthropic"),
    ("azure", "azure"),
    ("bedrock", "bedrock"),
    ("bedrock_converse", "bedrock"),
    ("cerebras", "cerebras"),
    ("dashscope", "dashscope"),
    ("deepseek", "deepseek"),
    ("fireworks_ai", "fireworks"),
    ("gemini", "gemini"),
    ("groq", "groq"),
    ("mistral", "mistral"),
    ("moonshot", "moonshot"),
    ("ollama", "ollama"),
    ("openai", "openai"),
    ("together_ai", "together"),
    ("xai", "xai"),
    ("zai", "zai"),
];

/// The entry, if it is of a model that one can talk to and whose window is known.
pub fn entry(name: &str, value: &Value) -> Option<Entry> {
    let provider = value["litellm_provider"].as_str()?;
    let mode = value["mode"].as_str()?;
    let (vendor, id) = vendor_and_id(provider, name)?;
    if !matches!(mode, "chat" | "responses") || id.contains(['"', '\\']) || !id.is_ascii() {
        return None;
    }
    let number = |key: &str| value[key].as_f64().filter(|number| *number > 0.0);
    let window = number("max_input_tokens").or_else(|| number("max_tokens"))? as u32;
    let says = |key: &str| value[key].as_bool().unwrap_or(false);
    let inputs =
        [(Input::Image, says("supports_vision")), (Input::Pdf, says("supports_pdf_input"))];
    let chat =
        endpoints(value).is_none_or(|mut paths| paths.any(|it| it.ends_with("/chat/completions")));
    let responses_only = mode == "responses" && !chat && matches!(vendor, "openai" | "azure");
    Some(Entry {
        key: format!("{vendor}/{id}"),
        window: Some(window),
        output: number("max_output_tokens").map(|number| number as u32),
        inputs: Some(
            inputs.into_iter().filter(|(_, taken)| *taken).map(|(input, _)| input).collect(),
        ),
        thinking: Some(thinks(vendor, id, value)),
        cache_minimum: number("prompt_cache_min_tokens").map(|number| number as u32),
        price: price(value),
        tools: Some(says("supports_function_calling")),
        schemas: Some(
            says("supports_response_schema") || says("supports_native_structured_output"),
        ),
        wires: if responses_only { vec!["responses".into()] } else { Vec::new() },
        retires: value["deprecation_date"].as_str().map(String::from),
    })
}

fn endpoints(value: &Value) -> Option<impl Iterator<Item = &str>> {
    Some(value["supported_endpoints"].as_array()?.iter().filter_map(Value::as_str))
}

/// Our vendor and the id that the service itself knows the model by.
fn vendor_and_id<'a>(provider: &str, name: &'a str) -> Option<(&'static str, &'a str)> {
    if provider.starts_with("vertex_ai") {
        return Some(("vertex", name.strip_prefix("vertex_ai/").unwrap_or(name)));
    }
    let (theirs, vendor) = VENDORS.iter().find(|(theirs, _)| *theirs == provider)?;
    let id = name.strip_prefix(theirs).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name);
    let kept = match *vendor {
        // Prices by region of a model that is called by its name without.
        "azure" => !id.contains('/'),
        "bedrock" => !id.contains('/') && !name.starts_with("bedrock/"),
        // The service knows its models by their whole path alone.
        "fireworks" => id.starts_with("accounts/fireworks/models/"),
        // Of those that one runs oneself the table has windows that were an early default of the program and no limit of
        // theirs.
        "ollama" => id.ends_with("-cloud"),
        // Stands for all that were made from the model, which is there too.
        "openai" => !id.starts_with("ft:"),
        _ => true,
    };
    kept.then_some((vendor, id))
}

/// How the model thinks. The table says that it does, and seldom how one asks for it; where nothing here knows, it is
/// not asked for.
fn thinks(vendor: &str, id: &str, value: &Value) -> Thinks {
    let says = |key: &str| value[key].as_bool().unwrap_or(false);
    if !says("supports_reasoning") {
        return Thinks::default();
    }
    let always_on = says("thinking_always_on");
    let effort = |efforts: Vec<Effort>, always_on: bool| Thinks {
        kind: ThinkingKind::Effort,
        efforts,
        always_on,
        replayed_always: false,
    };
    let budget = Thinks { kind: ThinkingKind::Budget, always_on, ..Thinks::default() };
    let base = |minimal: bool| {
        let levels = [Effort::Minimal, Effort::Low, Effort::Medium, Effort::High];
        levels.into_iter().filter(move |level| minimal || *level != Effort::Minimal)
    };
    let beyond = || {
        let levels = [
            (Effort::Xhigh, says("supports_xhigh_reasoning_effort")),
            (Effort::Max, says("supports_max_reasoning_effort")),
        ];
        levels.into_iter().filter(|(_, has)| *has).map(|(level, _)| level)
    };
    if let Some(levels) = value["reasoning_effort_levels"].as_array() {
        let mut levels: Vec<_> =
            levels.iter().filter_map(Value::as_str).filter_map(Effort::parse).collect();
        levels.sort();
        let can_rest = levels.contains(&Effort::None);
        return match levels.is_empty() {
            true => Thinks { always_on, ..Thinks::default() },
            false => effort(levels, !can_rest),
        };
    }
    let is_claude = id.contains("claude");
    match vendor {
        _ if is_claude && says("supports_adaptive_thinking") => {
            let none = (!always_on).then_some(Effort::None);
            effort(none.into_iter().chain(base(false)).chain(beyond()).collect(), always_on)
        }
        _ if is_claude => budget,
        "openai" | "azure" => {
            let none = says("supports_none_reasoning_effort").then_some(Effort::None);
            let levels = base(says("supports_minimal_reasoning_effort")).chain(beyond());
            effort(none.into_iter().chain(levels).collect(), none.is_none())
        }
        "gemini" | "vertex" if id.contains("gemini-2.5") => {
            // The smaller ones take a budget of nothing.
            Thinks { always_on: id.contains("pro"), ..budget }
        }
        "gemini" | "vertex" if id.contains("gemini") => {
            let minimal = value["supports_minimal_reasoning_effort"].as_bool().unwrap_or(true);
            effort(base(minimal).collect(), true)
        }
        // Whoever serves them, these take an effort and think always.
        _ if id.contains("gpt-oss") => effort(base(false).collect(), true),
        _ => Thinks { always_on, ..Thinks::default() },
    }
}

fn price(value: &Value) -> Option<Price> {
    if let Some(ranges) = value["tiered_pricing"].as_array() {
        return by_ranges(ranges);
    }
    let base = rate(value, "")?;
    // No service is free: it means that nobody wrote the price down.
    if base.input == 0.0 && base.output == 0.0 {
        return None;
    }
    let start = "input_cost_per_token_above_";
    let thousands = value
        .as_object()?
        .keys()
        .filter_map(|key| key.strip_prefix(start)?.strip_suffix("k_tokens")?.parse::<u64>().ok());
    let mut thousands: Vec<u64> = thousands.collect();
    thousands.sort_unstable();
    let tier = |thousands: u64| {
        let rate = rate(value, &format!("_above_{thousands}k_tokens"))?;
        Some(Tier { tokens: thousands * 1000, rate })
    };
    let window = value["max_input_tokens"].as_u64().unwrap_or(u64::MAX);
    let reached = |tier: &Tier| tier.tokens < window;
    let above = thousands.into_iter().filter_map(tier).filter(reached).collect();
    Some(Price { base, above })
}

/// Prices by the length of the input, each with its range.
fn by_ranges(ranges: &[Value]) -> Option<Price> {
    let tiers = ranges.iter().map(|range| {
        let tokens = range["range"].get(0)?.as_f64()? as u64;
        Some(Tier { tokens, rate: rate(range, "")? })
    });
    let mut tiers: Vec<Tier> = tiers.collect::<Option<_>>()?;
    tiers.sort_by_key(|tier| tier.tokens);
    let base = tiers.first().filter(|tier| tier.tokens == 0)?.rate;
    Some(Price { base, above: tiers.split_off(1) })
}

fn rate(value: &Value, end: &str) -> Option<Rate> {
    let dollars = |key: &str| Some(per_million(value[format!("{key}{end}")].as_f64()?));
    let above_zero = |dollars: &f64| *dollars > 0.0;
    Some(Rate {
        input: dollars("input_cost_per_token")?,
        output: dollars("output_cost_per_token")?,
        cache_read: dollars("cache_read_input_token_cost").filter(above_zero),
        cache_write: dollars("cache_creation_input_token_cost").filter(above_zero),
    })
}

/// Rounded to billionths, which is what a price of ours can say.
fn per_million(dollars: f64) -> f64 {
    (dollars * 1e15).round() / 1e9
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(more: Value) -> Value {
        let mut value =
            json!({"litellm_provider": "openai", "mode": "chat", "max_input_tokens": 1000});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        value
    }

    #[test]
    fn only_models_that_one_talks_to_are_taken() {
        let taken = |name: &str, more: Value| entry(name, &with(more)).map(|entry| entry.key);
        assert_eq!(taken("m", json!({})), Some("openai/m".into()));
        assert_eq!(taken("m", json!({"mode": "embedding"})), None);
        assert_eq!(taken("m", json!({"litellm_provider": "elsewhere"})), None);
        assert_eq!(taken("m", json!({"max_input_tokens": null})), None);
        assert_eq!(taken("ft:m", json!({})), None);
        assert_eq!(taken("m\"", json!({})), None);
        let azure = json!({"litellm_provider": "azure"});
        assert_eq!(taken("azure/m", azure.clone()), Some("azure/m".into()));
        assert_eq!(taken("azure/eu/m", azure), None);
        let ollama = json!({"litellm_provider": "ollama"});
        assert_eq!(taken("ollama/m:1b", ollama.clone()), None);
        assert_eq!(taken("ollama/m:1b-cloud", ollama), Some("ollama/m:1b-cloud".into()));
        let bedrock = json!({"litellm_provider": "bedrock_converse"});
        assert_eq!(taken("us.a.m-v1:0", bedrock.clone()), Some("bedrock/us.a.m-v1:0".into()));
        assert_eq!(taken("bedrock/us-east-1/m", bedrock), None);
        let vertex = json!({"litellm_provider": "vertex_ai-anthropic_models"});
        assert_eq!(taken("vertex_ai/m@default", vertex), Some("vertex/m@default".into()));
    }

    #[test]
    fn prices_are_for_a_million_tokens_with_those_of_long_inputs() {
        let price = |more: Value| entry("m", &with(more)).unwrap().price;
        let long = json!({
            "max_input_tokens": 300_000,
            "input_cost_per_token": 1.75e-7, "output_cost_per_token": 2e-6,
            "cache_read_input_token_cost": 1e-8, "cache_creation_input_token_cost": 0,
            "input_cost_per_token_above_200k_tokens": 4e-6,
            "output_cost_per_token_above_200k_tokens": 8e-6,
            "input_cost_per_token_above_200k_tokens_priority": 9.0,
            "input_cost_per_token_above_512k_tokens": 4e-6,
            "output_cost_per_token_above_512k_tokens": 8e-6,
        });
        let base = Rate { input: 0.175, output: 2.0, cache_read: Some(0.01), cache_write: None };
        let rate = Rate { input: 4.0, output: 8.0, ..Rate::default() };
        let above = vec![Tier { tokens: 200_000, rate }];
        assert_eq!(price(long), Some(Price { base, above }));
        let free = json!({"input_cost_per_token": 0.0, "output_cost_per_token": 0.0});
        assert_eq!(price(free), None);
        assert_eq!(price(json!({"input_cost_per_token": 1e-6})), None);
        let ranges = json!({"tiered_pricing": [
            {"range": [256_000.0, 1e6], "input_cost_per_token": 2e-6, "output_cost_per_token": 2e-6},
            {"range": [0, 256_000.0], "input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6},
        ]});
        let rate = |dollars: f64| Rate { input: dollars, output: dollars, ..Rate::default() };
        let above = vec![Tier { tokens: 256_000, rate: rate(2.0) }];
        assert_eq!(price(ranges), Some(Price { base: rate(1.0), above }));
    }

    #[track_caller]
    fn check_thinking(name: &str, more: Value, kind: ThinkingKind, efforts: &str, always_on: bool) {
        let mut value = with(json!({"supports_reasoning": true}));
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let thinks = entry(name, &value).unwrap().thinking.unwrap();
        let names: Vec<_> = thinks.efforts.iter().map(|effort| effort.name()).collect();
        assert_eq!(
            (thinks.kind, names.join(" ").as_str(), thinks.always_on),
            (kind, efforts, always_on),
            "{name}"
        );
    }

    #[test]
    fn thinking_is_asked_for_as_each_family_has_it() {
        use ThinkingKind::{Budget, Effort, None};
        let of = |provider: &str| json!({"litellm_provider": provider});
        check_thinking("claude-4-5", of("anthropic"), Budget, "", false);
        let adaptive = json!({"litellm_provider": "anthropic", "supports_adaptive_thinking": true,
            "supports_max_reasoning_effort": true});
        check_thinking("claude-5", adaptive, Effort, "none low medium high max", false);
        let always = json!({"litellm_provider": "anthropic", "supports_adaptive_thinking": true,
            "thinking_always_on": true});
        check_thinking("claude-5-5", always, Effort, "low medium high", true);
        check_thinking("o3", of("openai"), Effort, "low medium high", true);
        let none = json!({"supports_none_reasoning_effort": true, "supports_minimal_reasoning_effort": true,
            "supports_xhigh_reasoning_effort": true});
        check_thinking("gpt", none, Effort, "none minimal low medium high xhigh", false);
        check_thinking("gemini/gemini-2.5-pro", of("gemini"), Budget, "", true);
        check_thinking("gemini/gemini-2.5-flash", of("gemini"), Budget, "", false);
        check_thinking(
            "gemini/gemini-3-flash",
            of("gemini"),
            Effort,
            "minimal low medium high",
            true,
        );
        check_thinking("groq/openai/gpt-oss-20b", of("groq"), Effort, "low medium high", true);
        let levels =
            json!({"litellm_provider": "mistral", "reasoning_effort_levels": ["high", "none"]});
        check_thinking("mistral/m", levels, Effort, "none high", false);
        check_thinking("xai/grok", of("xai"), None, "", false);
        check_thinking("m", json!({"supports_reasoning": false}), None, "", false);
    }

    #[test]
    fn what_only_one_wire_reaches_is_known() {
        let wires = |more: Value| entry("m", &with(more)).unwrap().wires;
        let only = json!({"mode": "responses", "supported_endpoints": ["/v1/responses"]});
        assert_eq!(wires(only), ["responses"]);
        let both = json!({"supported_endpoints": ["/v1/chat/completions", "/v1/responses"]});
        assert_eq!(wires(both), [""; 0]);
    }
}
