//! Which model a name means, and what it takes to use it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nexus_core::provider::{
    EventStream, Model, ModelCall, ModelError, Models as _, Provider, ProviderError,
};

use super::*;
use nexus_models::ollama::Ollama;

const KEYS: &[(&str, &str)] = &[("OPENAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")];

pub(super) fn catalog(config: &Value, env: &[(&str, &str)]) -> ModelCatalog {
    let env: Vec<(String, String)> =
        env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let lookup = move |name: &str| {
        env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    ModelCatalog::new(&load(config).unwrap(), Arc::new(lookup), Fallbacks::none())
}

fn two_providers() -> Value {
    json!({"providers": {
        "openai": {"models": {"fast": {"id": "gpt-x", "context_window": 5000}, "both": {}}},
        "claude": {"type": "anthropic", "models": {"deep/er": {"id": "c-1", "reasoning": true}, "both": {}}},
    }})
}

fn facts(model: Result<Model, ModelError>) -> Result<(String, String, String, u32, bool), String> {
    let facts = |model: Model| {
        let it = &*model.info;
        let names = (it.alias.clone(), it.provider_name.clone(), it.id.clone());
        (names.0, names.1, names.2, it.context_window, !it.reasoning.is_off())
    };
    model.map(facts).map_err(|error| error.to_string())
}

#[track_caller]
fn check(name: Option<&str>, expected: Result<(&str, &str, &str, u32, bool), &str>) {
    let expected = expected
        .map(|(alias, provider, id, window, reasoning)| {
            (alias.into(), provider.into(), id.into(), window, reasoning)
        })
        .map_err(String::from);
    assert_eq!(facts(catalog(&two_providers(), KEYS).resolve(name)), expected);
}

#[test]
fn a_name_means_one_model() {
    check(None, Ok(("fast", "openai", "gpt-x", 5000, false)));
    check(Some("fast"), Ok(("fast", "openai", "gpt-x", 5000, false)));
    check(Some("openai/fast"), Ok(("openai/fast", "openai", "gpt-x", 5000, false)));
    check(Some("deep/er"), Ok(("deep/er", "claude", "c-1", 128_000, true)));
    check(Some("claude/deep/er"), Ok(("claude/deep/er", "claude", "c-1", 128_000, true)));
    check(Some("openai/org/new"), Ok(("openai/org/new", "openai", "org/new", 128_000, false)));
    check(Some("claude/both"), Ok(("claude/both", "claude", "both", 128_000, false)));
    check(
        Some("both"),
        Err(
            "model both cannot be used: several providers have a model of this name; say openai/both or claude/both",
        ),
    );
    let known = "(known: fast, both, deep/er, both, openai/ID, claude/ID)";
    for name in ["slow", "other/slow", "openai/", "openai", ""] {
        check(Some(name), Err(&format!("unknown model: {name} {known}")));
    }
}

#[test]
fn the_default_model_can_be_named() {
    let mut config = two_providers();
    config["default_model"] = json!("claude/both");
    assert_eq!(catalog(&config, KEYS).resolve(None).unwrap().alias, "claude/both");
    config["default_model"] = json!("gone");
    assert!(catalog(&config, KEYS).resolve(None).is_err());

    let twins =
        json!({"providers": {"openai": {"models": {"m": {}}}, "anthropic": {"models": {"m": {}}}}});
    assert_eq!(catalog(&twins, KEYS).resolve(None).unwrap().alias, "openai/m");
}

#[test]
fn the_key_is_asked_for_when_it_is_needed() {
    let reason =
        |config: Value, env: &[(&str, &str)]| catalog(&config, env).resolve(Some("p/m")).map(drop);
    let missing = |variable: &str| {
        let reason = format!(
            "the environment variable {variable} (key of p) is not set; set it and start again"
        );
        Err(ModelError::Unusable { name: "p/m".into(), reason })
    };
    let provider = |provider: Value| json!({"providers": {"p": provider}});
    let openai = provider(json!({"type": "openai"}));
    assert_eq!(reason(openai.clone(), &[]), missing("OPENAI_API_KEY"));
    assert_eq!(reason(openai.clone(), &[("OPENAI_API_KEY", " \n")]), missing("OPENAI_API_KEY"));
    assert_eq!(reason(openai, KEYS), Ok(()));

    let own_key = provider(json!({"type": "anthropic", "api_key_env": "MINE"}));
    assert_eq!(reason(own_key.clone(), KEYS), missing("MINE"));
    assert_eq!(reason(own_key, &[("MINE", "k")]), Ok(()));

    let own_server = provider(json!({"type": "openai", "base_url": "http://127.0.0.1:8000"}));
    assert_eq!(reason(own_server, &[]), Ok(()), "a server of one's own often needs no key");
    assert_eq!(reason(provider(json!({"type": "ollama"})), &[]), Ok(()));
    assert_eq!(reason(provider(json!({"type": "openai", "auth_method": "none"})), &[]), Ok(()));
    let gateway = provider(json!({"type": "ollama", "api_key_env": "MINE"}));
    assert_eq!(reason(gateway, &[]), missing("MINE"));
}

#[test]
fn a_provider_is_built_once() {
    let catalog = catalog(&two_providers(), KEYS);
    let (first, second) =
        (catalog.resolve(Some("fast")).unwrap(), catalog.resolve(Some("openai/x")).unwrap());
    assert!(Arc::ptr_eq(&first.provider, &second.provider));
}

/// OpenAI's model when none is named, and its window.
fn openai_usual() -> (&'static str, u32) {
    ("gpt-6.1-sol", 922_000)
}

#[test]
fn a_key_in_the_environment_is_enough() {
    let check = |env: &[(&str, &str)], provider: &str, base_url: &str, id: &str, window: u32| {
        let catalog = catalog(&json!({}), env);
        let model = catalog.resolve(None).unwrap();
        assert_eq!(
            (model.provider_name.as_str(), model.id.as_str(), model.context_window),
            (provider, id, window)
        );
        assert_eq!(catalog.default_settings().base_url, base_url);
        let described = catalog.describe(Path::new("/h"));
        assert!(described.contains(id) && described.contains("_API_KEY is set"), "{described}");
        // The name is stored with agents, so it has to be understood again.
        assert_eq!(catalog.resolve(Some(&model.alias)).unwrap().id, id);
    };
    let (anthropic, openai) = (("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "k"));
    let router = ("OPENROUTER_API_KEY", "k");
    let sonnet = "claude-sonnet-5-5";
    check(
        &[router, openai, anthropic],
        "anthropic",
        "https://api.anthropic.com/v1",
        sonnet,
        1_000_000,
    );
    for url in ["https://proxy/claude", "https://proxy/claude/v1/"] {
        check(
            &[anthropic, ("ANTHROPIC_BASE_URL", url)],
            "anthropic",
            "https://proxy/claude/v1",
            sonnet,
            1_000_000,
        );
    }
    let (id, window) = openai_usual();
    check(&[router, openai], "openai", "https://api.openai.com/v1", id, window);
    // Who imitates OpenAI imitates its chat completions, over which newer models take no tools.
    let local = ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1");
    check(
        &[openai, local, ("ANTHROPIC_API_KEY", "")],
        "openai",
        "http://127.0.0.1:1/v1",
        "gpt-5.2",
        272_000,
    );
    check(&[router], "openrouter", "https://openrouter.ai/api/v1", "openrouter/auto", 128_000);
}

#[test]
fn a_configured_provider_without_models_has_its_usual_one() {
    let id = |provider: Value| {
        let config = json!({"providers": {"p": provider}});
        catalog(&config, &[("K", "k")]).resolve(None).map(|model| model.id.clone())
    };
    let without_models = ModelError::Unusable {
        name: "default".into(),
        reason: "provider p names no models; name one under providers.p.models, as in {\"llama3.2\": {}}, or ask for p/ID"
            .into(),
    };
    assert_eq!(
        id(json!({"type": "anthropic", "api_key_env": "K"})),
        Ok("claude-sonnet-5-5".into())
    );
    let azure = json!({"type": "azure", "api_key_env": "K", "base_url": "https://x.openai.azure.com", "deployment": "d"});
    assert_eq!(id(azure), Ok("d".into()));
    assert_eq!(
        id(json!({"type": "openai", "base_url": "http://127.0.0.1:1"})),
        Err(without_models.clone())
    );
    assert_eq!(id(json!({"type": "ollama"})), Err(without_models));
}

#[test]
fn without_any_model_the_user_is_told_what_to_do() {
    let catalog = catalog(&json!({"default_model": "x"}), &[]);
    assert_eq!(catalog.resolve(None).map(drop), Err(ModelError::NoneConfigured));
    let told = catalog.describe(Path::new("/h/.nexus3"));
    assert!(
        told.contains("ANTHROPIC_API_KEY") && told.contains("/h/.nexus3/config.json"),
        "{told}"
    );
    let example = told.lines().last().unwrap();
    assert!(load(&serde_json::from_str(example).unwrap()).is_ok(), "{example}");
}

#[test]
fn a_provider_that_cannot_work_is_refused_at_once() {
    let check = |provider: Value, key: &str, reason: &str| {
        check_error(json!({"providers": {"p": provider}}), &format!("providers.p{key}: {reason}"));
    };
    let kinds = "openai, anthropic, openrouter, azure, ollama, gemini, local";
    check(json!({}), ".type", &format!("is missing; it is one of {kinds}"));
    check(json!({"type": "gpt"}), ".type", &format!("\"gpt\" is not one of {kinds}"));
    let methods = "bearer, api-key, x-api-key, x-goog-api-key, none";
    check(
        json!({"type": "openai", "auth_method": "x"}),
        ".auth_method",
        &format!("\"x\" is not one of {methods}"),
    );
    let no_effect = "has no effect with auth_method none";
    check(
        json!({"type": "openai", "auth_method": "none", "api_key_env": "K"}),
        ".api_key_env",
        no_effect,
    );
    let no_key = "needs api_key_env, the variable that holds the key";
    check(json!({"type": "ollama", "auth_method": "bearer"}), ".auth_method", no_key);
    check(json!({"type": "azure"}), ".base_url", "a provider of type azure needs a base_url");
    check(
        json!({"type": "openai", "models": {"": {}}}),
        ".models.",
        "an alias is one line of 1 to 128 bytes",
    );
    for url in ["file:///etc/passwd", "127.0.0.1:8000/v1", "localhost:8000"] {
        let reason = format!("{url:?} does not begin with http:// or https://; write http://{url}");
        check(json!({"type": "openai", "base_url": url}), ".base_url", &reason);
    }
    let reason = "the base_url is not usable: it must not hold a query or fragment";
    check(json!({"type": "openai", "base_url": "HTTP://x/v1?a"}), ".base_url", reason);
    let reason = "the header \"a b\" in extra_headers cannot be sent";
    check(json!({"type": "openai", "extra_headers": {"a b": "c"}}), ".extra_headers", reason);
    let reason = "a key is not kept in a file; put it into an environment variable and name that, as in \"api_key_env\": \"MY_API_KEY\"";
    check(json!({"type": "openai", "api_key": "sk-secret"}), ".api_key", reason);
    let error = Tree::new().write("home", r#"{"providers": {"a/b": {"type": "openai"}}}"#).error();
    assert!(error.contains("providers.a/b: a provider's name may hold only"), "{error}");
}

/// A provider that is never called.
struct Silent;

#[async_trait::async_trait]
impl Provider for Silent {
    async fn stream(&self, _: ModelCall) -> Result<EventStream, ProviderError> {
        Err(ProviderError::Timeout)
    }
}

/// The catalog of a machine on which models can run, with or without an Ollama.
fn here(config: &Value, env: &[(&str, &str)], ollama: bool, installed: bool) -> ModelCatalog {
    let env: Vec<(String, String)> =
        env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let lookup = move |name: &str| {
        env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let found = move || {
        ollama.then(|| Ollama { base_url: "http://127.0.0.1:1/v1".into(), model: "qwen".into() })
    };
    let built_in = Some(BuiltIn {
        provider: Arc::new(Silent),
        installed: Arc::new(AtomicBool::new(installed)),
    });
    let fallbacks = Fallbacks { ollama: &found, built_in };
    ModelCatalog::new(&load(config).unwrap(), Arc::new(lookup), fallbacks)
}

#[test]
fn without_configuration_a_key_comes_first_then_ollama_then_the_built_in_model() {
    let check = |env, ollama, id: &str, told: &str| {
        let catalog = here(&json!({}), env, ollama, true);
        let model = catalog.resolve(None).unwrap();
        assert_eq!((model.id.as_str(), model.brief), (id, told.contains("built in")));
        let described = catalog.describe(Path::new("/h"));
        assert!(described.contains(told), "{described}");
    };
    check(KEYS, true, "claude-sonnet-5-5", "because ANTHROPIC_API_KEY is set");
    check(&[], true, "qwen", "because an Ollama answers here");
    check(&[], false, BUILT_IN.1, "smollm2-135m (SmolLM2-135M-Instruct.Q4_1 of local), built in");
    let bare = here(&json!({}), &[], false, false);
    assert_eq!(bare.resolve(None).map(drop), Err(ModelError::NoneConfigured));
    let named = bare.resolve(Some(BUILT_IN.0)).map(|model| model.id.clone());
    assert_eq!(named, Ok(BUILT_IN.1.into()));
    let nowhere = bare.describe(Path::new("/h"));
    assert!(nowhere.contains("nexus3 model pull"), "{nowhere}");
}

#[test]
fn a_configured_provider_leaves_no_room_for_what_was_found() {
    let config = json!({"providers": {"openai": {"api_key_env": "K"}}});
    let catalog = here(&config, &[("K", "k")], true, true);
    assert_eq!(catalog.resolve(None).unwrap().id, openai_usual().0);
}

#[test]
fn a_local_model_is_named_by_path_or_by_name() {
    let check = |provider: Value, name: Option<&str>, expected: (&str, &str, u32)| {
        let catalog = here(&json!({"providers": {"local": provider}}), &[], false, true);
        let model = catalog.resolve(name).unwrap();
        let got = (model.alias.as_str(), model.id.as_str(), model.context_window);
        assert_eq!(got, expected);
    };
    check(json!({}), None, (BUILT_IN.0, BUILT_IN.1, 8192));
    check(json!({"path": "/m/own.gguf"}), None, ("own", "/m/own.gguf", 8192));
    check(json!({"path": "~/own.gguf"}), None, ("own", "/users/me/own.gguf", 8192));
    let two =
        json!({"models": {"a": {"id": "A.Q8_0"}, "b": {"id": "~/b.gguf", "context_window": 2048}}});
    check(two.clone(), None, ("a", "A.Q8_0", 8192));
    check(two.clone(), Some("b"), ("b", "/users/me/b.gguf", 2048));
    check(two, Some("local/Other"), ("local/Other", "Other", 8192));
}

/// Whoever may call the server, or bring a project along, must not choose which files it opens.
#[test]
fn the_file_of_a_local_model_is_named_by_its_provider_alone() {
    let models = json!({"own": {"id": "/m/own.gguf"}});
    let named = |name: &str| {
        let path = json!({"providers": {"local": {"models": models}}, "default_model": name});
        let catalog = here(&path, &[], false, true);
        [Some(name), None].map(|asked| catalog.resolve(asked).map(|model| model.id.clone()))
    };
    for path in ["local//etc/passwd", "local/./x", "local/../x", "local/a/b", "local//m/own.gguf"] {
        for refused in named(path) {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("in the configuration alone"), "{path}: {error}");
            assert!(error.contains("providers.local.models"), "{path}: {error}");
        }
    }
    for name in ["own", "local/own"] {
        assert!(named(name).into_iter().all(|id| id.is_ok_and(|id| id == "/m/own.gguf")), "{name}");
    }
}

#[test]
fn what_a_local_provider_has_no_use_for_is_refused() {
    let check = |provider: Value, key: &str, reason: &str| {
        check_error(json!({"providers": {"p": provider}}), &format!("providers.p.{key}: {reason}"));
    };
    let nothing = "has no meaning for a provider of type local";
    check(json!({"type": "local", "base_url": "http://x"}), "base_url", nothing);
    for (key, value) in [
        ("wire", json!("chat")),
        ("request_timeout", json!(1)),
        ("first_event_timeout", json!(1)),
        ("idle_timeout", json!(1)),
        ("queue_timeout", json!(1)),
        ("max_concurrent_calls", json!(1)),
        ("requests_per_minute", json!(1)),
        ("tokens_per_minute", json!(1)),
        ("cache_ttl", json!("1h")),
        ("keep_alive", json!("1h")),
        ("routing", json!({})),
        ("ca_file", json!("/ca.pem")),
        ("proxy", json!("http://x")),
        ("insecure_http", json!(true)),
    ] {
        check(json!({"type": "local", key: value}), key, nothing);
    }
    let model = |key: &str, value: Value| json!({"type": "local", "models": {"m": {key: value}}});
    check(model("extra_body", json!({})), "models.m.extra_body", nothing);
    check(model("input", json!(["image"])), "models.m.input", nothing);
    let only = "has no meaning but for a provider of type local";
    check(json!({"type": "openai", "path": "/m.gguf"}), "path", only);
    let error = load(&json!({"providers": {"local": {"path": "m.gguf"}}})).unwrap_err();
    assert!(error.to_string().contains("providers.local.path"), "{error}");
}
