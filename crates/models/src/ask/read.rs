//! What services answer when they are asked which models they have, as entries of the catalogue whose keys are ids. An
//! answer is read as far as it can be: what is not there or not understood is not known.

use nexus_core::model::Effort;
use serde_json::Value;

use crate::catalogue::{Entry, Input, Price, Rate, ThinkingKind, Thinks};

/// Anthropic's `/v1/models`, and the id to go on behind when there are more.
pub fn anthropic(page: &Value) -> (Vec<Entry>, Option<String>) {
    let more = page["has_more"].as_bool().unwrap_or(false);
    let last = page["last_id"].as_str().filter(|_| more).map(String::from);
    let entries = list(&page["data"]).filter_map(|model| {
        let can = |capability: &str| model["capabilities"][capability]["supported"].as_bool();
        Some(Entry {
            key: model["id"].as_str()?.to_owned(),
            window: tokens(&model["max_input_tokens"]),
            output: tokens(&model["max_tokens"]),
            inputs: can("image_input").map(|image| inputs(image, can("pdf_input") == Some(true))),
            thinking: claude_thinks(&model["capabilities"]),
            schemas: can("structured_outputs"),
            retires: model["retires_at"].as_str().and_then(day),
            ..Entry::default()
        })
    });
    (entries.collect(), last)
}

fn claude_thinks(capabilities: &Value) -> Option<Thinks> {
    let thinking = &capabilities["thinking"];
    if !thinking["supported"].as_bool()? {
        return Some(Thinks::default());
    }
    let takes = |kind: &str| thinking["types"][kind]["supported"].as_bool();
    let effort = &capabilities["effort"];
    if takes("adaptive") != Some(true) {
        return Some(Thinks { kind: ThinkingKind::Budget, ..Thinks::default() });
    }
    let can_rest = takes("disabled")?;
    let known = |level: &Effort| match level {
        Effort::None => can_rest,
        level => effort[level.name()]["supported"].as_bool().unwrap_or(false),
    };
    Some(Thinks {
        kind: ThinkingKind::Effort,
        efforts: Effort::ALL.into_iter().filter(known).collect(),
        always_on: !can_rest,
        replayed_always: false,
    })
}

/// OpenRouter's `/api/v1/models`.
pub fn openrouter(answer: &Value) -> Vec<Entry> {
    let entries = list(&answer["data"]).filter_map(|model| {
        let takes =
            |kind: &str| list(&model["architecture"]["input_modalities"]).any(|it| it == kind);
        let parameters = &model["supported_parameters"];
        let has = |name: &str| list(parameters).any(|it| it == name);
        let says = |known: bool| parameters.is_array().then_some(known);
        let thinks = Thinks {
            kind: if has("reasoning") { ThinkingKind::Effort } else { ThinkingKind::None },
            ..Thinks::default()
        };
        // What the service promises may be less than what the model can.
        let served = &model["top_provider"];
        Some(Entry {
            key: model["id"].as_str()?.to_owned(),
            window: tokens(&served["context_length"]).or_else(|| tokens(&model["context_length"])),
            output: tokens(&served["max_completion_tokens"]),
            inputs: model["architecture"]["input_modalities"]
                .is_array()
                .then(|| inputs(takes("image"), takes("file"))),
            thinking: says(has("reasoning")).map(|_| thinks),
            price: openrouter_price(&model["pricing"]),
            tools: says(has("tools")),
            schemas: says(has("structured_outputs")),
            retires: model["expiration_date"].as_str().and_then(day),
            ..Entry::default()
        })
    });
    entries.collect()
}

/// Dollars for one token, as texts; -1 where it depends on who serves the call.
fn openrouter_price(pricing: &Value) -> Option<Price> {
    let dollars = |key: &str| {
        let text = pricing[key].as_str()?;
        let dollars: f64 = text.parse().ok()?;
        (dollars >= 0.0 && dollars.is_finite()).then(|| (dollars * 1e15).round() / 1e9)
    };
    let base = Rate {
        input: dollars("prompt")?,
        output: dollars("completion")?,
        cache_read: dollars("input_cache_read"),
        cache_write: dollars("input_cache_write"),
    };
    Some(Price { base, above: Vec::new() })
}

/// Gemini's `/v1beta/models`, and the page to go on with when there are more.
pub fn gemini(page: &Value) -> (Vec<Entry>, Option<String>) {
    let entries = list(&page["models"]).filter_map(|model| {
        let talks = list(&model["supportedGenerationMethods"]).any(|it| it == "generateContent");
        let name = model["name"].as_str().filter(|_| talks)?;
        Some(Entry {
            key: name.strip_prefix("models/").unwrap_or(name).to_owned(),
            window: tokens(&model["inputTokenLimit"]),
            output: tokens(&model["outputTokenLimit"]),
            ..Entry::default()
        })
    });
    let next = page["nextPageToken"].as_str().filter(|next| !next.is_empty());
    (entries.collect(), next.map(String::from))
}

/// What servers that speak as OpenAI does answer to `/v1/models`. The list is everybody's, the figures in it are vLLM's,
/// Groq's, Together's, Mistral's and others', each under a name of its own. Models without any are left out.
pub fn compatible(answer: &Value) -> Vec<Entry> {
    const WINDOWS: [&str; 5] =
        ["max_model_len", "context_window", "context_length", "max_context_length", "n_ctx"];
    let of = |model: &Value, names: &[&str]| names.iter().find_map(|name| tokens(&model[*name]));
    // Together answers with the list alone.
    let models = if answer.is_array() { answer } else { &answer["data"] };
    let entries = list(models).filter_map(|model| {
        let can = |capability: &str| model["capabilities"][capability].as_bool();
        let window = of(model, &WINDOWS)?;
        Some(Entry {
            key: model["id"].as_str()?.to_owned(),
            window: Some(window),
            output: of(model, &["max_completion_tokens"]),
            inputs: can("vision").map(|image| inputs(image, false)),
            tools: can("function_calling"),
            ..Entry::default()
        })
    });
    entries.collect()
}

/// The models in a list of the same form, with figures or without.
pub fn ids(answer: &Value) -> Vec<String> {
    list(&answer["data"]).filter_map(|model| Some(model["id"].as_str()?.to_owned())).collect()
}

/// llama.cpp's `/props`, which holds for the one model that it has loaded.
pub fn llama_cpp(id: &str, props: &Value) -> Option<Entry> {
    let window = tokens(&props["default_generation_settings"]["n_ctx"])?;
    let image = props["modalities"]["vision"].as_bool();
    Some(Entry {
        key: id.to_owned(),
        window: Some(window),
        inputs: image.map(|image| inputs(image, false)),
        ..Entry::default()
    })
}

/// The names in Ollama's `/api/tags`.
pub fn ollama_names(tags: &Value) -> Vec<String> {
    list(&tags["models"]).filter_map(|model| Some(model["name"].as_str()?.to_owned())).collect()
}

/// Ollama's `/api/show` of one model.
pub fn ollama(name: &str, shown: &Value) -> Entry {
    let info = shown["model_info"].as_object();
    let mut lengths =
        info.into_iter().flatten().filter(|(key, _)| key.ends_with(".context_length"));
    let can = |capability: &str| list(&shown["capabilities"]).any(|it| it == capability);
    let says = |known: bool| shown["capabilities"].is_array().then_some(known);
    let thinks = Thinks {
        kind: if can("thinking") { ThinkingKind::Effort } else { ThinkingKind::None },
        ..Thinks::default()
    };
    Entry {
        key: name.to_owned(),
        window: lengths.find_map(|(_, length)| tokens(length)),
        inputs: says(true).map(|_| inputs(can("vision"), false)),
        thinking: says(true).map(|_| thinks),
        tools: says(can("tools")),
        ..Entry::default()
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn inputs(image: bool, pdf: bool) -> Vec<Input> {
    let taken = [(Input::Image, image), (Input::Pdf, pdf)];
    taken.into_iter().filter(|(_, taken)| *taken).map(|(input, _)| input).collect()
}

/// Fewer than this is no conversation: a service that says so means something else.
const TOKENS_MIN: u64 = 256;

fn tokens(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64().filter(|count| *count >= TOKENS_MIN)?).ok()
}

/// The day of a time as in RFC 3339.
fn day(time: &str) -> Option<String> {
    let day = time.get(..10)?;
    let is_day = day.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    is_day.then(|| day.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn anthropic_says_windows_inputs_and_how_its_models_think() {
        let supported = |yes: bool| json!({"supported": yes});
        let model = |id: &str, adaptive: bool, disabled: bool| {
            json!({
                "id": id, "type": "model", "max_input_tokens": 200_000, "max_tokens": 64_000,
                "retires_at": "2027-01-31T00:00:00Z",
                "capabilities": {
                    "image_input": supported(true), "pdf_input": supported(false),
                    "structured_outputs": supported(true),
                    "thinking": {"supported": true, "types": {
                        "adaptive": supported(adaptive), "enabled": supported(!adaptive), "disabled": supported(disabled),
                    }},
                    "effort": {"supported": adaptive, "low": supported(true), "medium": supported(true),
                        "high": supported(true), "max": supported(false), "xhigh": null},
                },
            })
        };
        let page = json!({"data": [model("old", false, true), model("new", true, true), model("always", true, false),
            {"id": "bare"}, {}], "has_more": true, "last_id": "bare"});
        let (entries, next) = anthropic(&page);
        assert_eq!(next.as_deref(), Some("bare"));
        let old = &entries[0];
        assert_eq!((old.window, old.output), (Some(200_000), Some(64_000)));
        assert_eq!((old.inputs.clone(), old.schemas), (Some(vec![Input::Image]), Some(true)));
        assert_eq!(old.retires.as_deref(), Some("2027-01-31"));
        assert_eq!(old.thinking.as_ref().unwrap().kind, ThinkingKind::Budget);
        let new = entries[1].thinking.as_ref().unwrap();
        assert_eq!((new.kind, new.always_on), (ThinkingKind::Effort, false));
        assert_eq!(new.efforts, [Effort::None, Effort::Low, Effort::Medium, Effort::High]);
        let always = entries[2].thinking.as_ref().unwrap();
        assert_eq!((always.always_on, always.efforts.first()), (true, Some(&Effort::Low)));
        assert_eq!(entries[3], Entry { key: "bare".into(), ..Entry::default() });
        assert_eq!(entries.len(), 4);
        assert_eq!(anthropic(&json!({"data": [], "has_more": false, "last_id": "x"})).1, None);
    }

    #[test]
    fn openrouter_says_what_is_served_and_what_it_costs() {
        let answer = json!({"data": [{
            "id": "a/b", "context_length": 1_000_000,
            "top_provider": {"context_length": 200_000, "max_completion_tokens": 8192},
            "architecture": {"input_modalities": ["text", "image", "file"]},
            "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003", "request": "0"},
            "supported_parameters": ["tools", "reasoning"], "expiration_date": "2026-12-01",
        }, {"id": "auto", "context_length": 2_000_000, "pricing": {"prompt": "-1", "completion": "-1"}}]});
        let entries = openrouter(&answer);
        let first = &entries[0];
        assert_eq!((first.window, first.output), (Some(200_000), Some(8192)));
        assert_eq!(first.inputs, Some(vec![Input::Image, Input::Pdf]));
        assert_eq!((first.tools, first.schemas), (Some(true), Some(false)));
        assert_eq!(first.thinking.as_ref().unwrap().kind, ThinkingKind::Effort);
        let base = first.price.as_ref().unwrap().base;
        assert_eq!((base.input, base.output, base.cache_read), (3.0, 15.0, Some(0.3)));
        assert_eq!(first.retires.as_deref(), Some("2026-12-01"));
        let second = Entry { key: "auto".into(), window: Some(2_000_000), ..Entry::default() };
        assert_eq!(entries[1], second);
    }

    #[test]
    fn gemini_says_windows_page_by_page() {
        let page = json!({"models": [
            {"name": "models/g", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536,
             "supportedGenerationMethods": ["generateContent", "countTokens"]},
            {"name": "models/embed", "inputTokenLimit": 2048, "supportedGenerationMethods": ["embedContent"]},
        ], "nextPageToken": "n"});
        let (entries, next) = gemini(&page);
        let expected = Entry {
            key: "g".into(),
            window: Some(1_048_576),
            output: Some(65_536),
            ..Entry::default()
        };
        assert_eq!((entries, next), (vec![expected], Some("n".into())));
        assert_eq!(gemini(&json!({"models": [], "nextPageToken": ""})).1, None);
    }

    #[test]
    fn compatible_servers_say_it_each_in_its_own_words() {
        let window =
            |model: Value| compatible(&json!({"data": [model]})).first().and_then(|it| it.window);
        for name in ["max_model_len", "context_window", "context_length", "max_context_length"] {
            assert_eq!(window(json!({"id": "m", name: 32_768})), Some(32_768), "{name}");
        }
        assert_eq!(window(json!({"id": "m", "owned_by": "openai"})), None);
        assert_eq!(window(json!({"id": "m", "max_model_len": 0})), None);
        assert_eq!(window(json!({"id": "m", "max_model_len": 1e12})), None);
        let alone = compatible(&json!([{"id": "m", "context_length": 4096}]));
        assert_eq!(alone[0].window, Some(4096));
        let mistral = compatible(&json!({"data": [{"id": "m", "max_context_length": 4096,
            "capabilities": {"vision": true, "function_calling": false}}]}));
        assert_eq!(mistral[0].inputs, Some(vec![Input::Image]));
        assert_eq!(mistral[0].tools, Some(false));
        let groq = compatible(
            &json!({"data": [{"id": "m", "context_window": 4096, "max_completion_tokens": 1024}]}),
        );
        assert_eq!(groq[0].output, Some(1024));
        assert_eq!(ids(&json!({"data": [{"id": "a"}, {}, {"id": "b"}]})), ["a", "b"]);
    }

    #[test]
    fn what_runs_at_home_says_what_it_has_loaded() {
        let props = json!({"default_generation_settings": {"n_ctx": 65_536}, "modalities": {"vision": true}});
        let loaded = llama_cpp("m", &props).unwrap();
        assert_eq!((loaded.window, loaded.inputs), (Some(65_536), Some(vec![Input::Image])));
        assert_eq!(llama_cpp("m", &json!({})), None);

        assert_eq!(ollama_names(&json!({"models": [{"name": "a:1b"}, {"x": 1}]})), ["a:1b"]);
        let shown = json!({"capabilities": ["completion", "tools", "thinking"],
            "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960, "qwen3.block_count": 28}});
        let entry = ollama("a:1b", &shown);
        assert_eq!((entry.window, entry.tools), (Some(40_960), Some(true)));
        assert_eq!(entry.inputs, Some(Vec::new()));
        assert_eq!(entry.thinking.unwrap().kind, ThinkingKind::Effort);
        assert_eq!(ollama("m", &json!({})), Entry { key: "m".into(), ..Entry::default() });
    }

    #[test]
    fn nonsense_says_nothing() {
        for odd in [json!(null), json!([]), json!("x"), json!({"data": {"id": 1}, "models": 3})] {
            assert!(anthropic(&odd).0.is_empty() && openrouter(&odd).is_empty(), "{odd}");
            assert!(gemini(&odd).0.is_empty() && compatible(&odd).is_empty(), "{odd}");
            assert!(ids(&odd).is_empty() && ollama_names(&odd).is_empty(), "{odd}");
        }
        for odd in ["2026", "2026-1-01T", "soon-enough", "äääääääääää"] {
            assert_eq!(day(odd), None, "{odd}");
        }
    }
}
