//! What is written of a service, and what becomes of it.

use nexus_core::provider::Models as _;
use nexus_models::{AuthMethod, CacheTtl, Kind, ProviderSettings, Wire};

use super::*;

fn settings(provider: Value) -> ProviderSettings {
    let config = load(&json!({"providers": {"p": provider}})).unwrap();
    let Backend::Service(settings) = config.providers[0].backend.clone() else {
        panic!("{config:?}")
    };
    *settings
}

#[track_caller]
fn refused(provider: Value, key: &str, reason: &str) {
    check_error(json!({"providers": {"p": provider}}), &format!("providers.p.{key}: {reason}"));
}

#[test]
fn every_key_of_a_service_reaches_its_settings() {
    let config = load(&json!({"providers": {"p": {
        "type": "azure", "wire": "chat", "api_key_env": "K", "base_url": "https://x/y", "auth_method": "bearer",
        "extra_headers": {"X-A": "1", "X-B": "2"}, "api_version": "v", "deployment": "d",
        "first_event_timeout": 1.5, "idle_timeout": 2.5, "queue_timeout": 3.5, "max_concurrent_calls": 7,
        "requests_per_minute": 8, "tokens_per_minute": 9, "max_retries": 0, "retry_backoff": 2,
        "ca_file": "~/ca.pem", "proxy": "http://127.0.0.1:1", "insecure_http": true,
    }}}));
    let entry = &config.unwrap().providers[0];
    let Backend::Service(settings) = &entry.backend else { panic!("{entry:?}") };
    assert_eq!(
        (entry.name.as_str(), settings.kind, entry.key_env.as_deref()),
        ("p", Kind::Azure, Some("K"))
    );
    assert_eq!(
        (settings.base_url.as_str(), settings.auth_method, settings.wire),
        ("https://x/y", AuthMethod::Bearer, Wire::Chat)
    );
    assert_eq!(settings.extra_headers, [("X-A".into(), "1".into()), ("X-B".into(), "2".into())]);
    assert_eq!(
        (settings.api_version.as_deref(), settings.deployment.as_deref()),
        (Some("v"), Some("d"))
    );
    let milliseconds = Duration::from_millis;
    assert_eq!(
        (settings.first_event_timeout, settings.idle_timeout, settings.queue_timeout),
        (milliseconds(1500), milliseconds(2500), milliseconds(3500))
    );
    assert_eq!(
        (settings.max_concurrent_calls, settings.requests_per_minute, settings.tokens_per_minute),
        (7, Some(8), Some(9))
    );
    assert_eq!((settings.max_retries, settings.retry_backoff), (0, Duration::from_secs(2)));
    assert_eq!(settings.ca_file.as_deref(), Some(Path::new("/users/me/ca.pem")));
    assert_eq!(settings.proxy.as_deref(), Some("http://127.0.0.1:1"));
    assert!(settings.insecure_http);
}

#[test]
fn what_only_one_kind_has_reaches_it_and_no_other() {
    let anthropic = settings(json!({"type": "anthropic", "cache_ttl": "1h"}));
    assert_eq!((anthropic.prompt_caching, anthropic.cache_ttl), (true, CacheTtl::OneHour));
    let plain = settings(json!({"type": "anthropic", "prompt_caching": false}));
    assert_eq!((plain.prompt_caching, plain.cache_ttl), (false, CacheTtl::FiveMinutes));
    let routing = json!({"order": ["a"], "allow_fallbacks": false});
    let router = settings(json!({"type": "openrouter", "routing": routing}));
    assert_eq!(router.routing.map(Value::Object), Some(routing));

    let only = |kind: &str| format!("has an effect only on providers of the type {kind}");
    for (key, value, kind) in [
        ("prompt_caching", json!(true), "anthropic or openrouter"),
        ("cache_ttl", json!("5m"), "anthropic or openrouter"),
        ("keep_alive", json!("1h"), "ollama"),
        ("routing", json!({}), "openrouter"),
    ] {
        refused(json!({"type": "openai", key: value}), key, &only(kind));
    }
    refused(
        json!({"type": "anthropic", "cache_ttl": "1h", "prompt_caching": false}),
        "cache_ttl",
        "has no effect without prompt_caching",
    );
    refused(
        json!({"type": "anthropic", "cache_ttl": "2h"}),
        "cache_ttl",
        "invalid value: string \"2h\", expected one of 5m, 1h",
    );
    refused(
        json!({"type": "ollama", "wire": "chat", "keep_alive": "1h"}),
        "keep_alive",
        "cannot be said over the wire chat",
    );
}

#[test]
fn a_time_has_its_unit() {
    for time in ["30m", "1h30m", "-1s", "0s", "1.5h", "100ms"] {
        assert_eq!(
            settings(json!({"type": "ollama", "keep_alive": time})).keep_alive.as_deref(),
            Some(time)
        );
    }
    for time in ["30", "-1", "m", "-", "1 h", "1d", "1..5h", "1h-2m"] {
        refused(
            json!({"type": "ollama", "keep_alive": time}),
            "keep_alive",
            "is a time with its unit, such as 30m or 24h; -1s is for ever",
        );
    }
}

#[test]
fn a_wire_is_one_that_the_service_speaks() {
    for (provider, wire) in [
        (json!({"type": "openai"}), Wire::Responses),
        (json!({"type": "openai", "wire": "chat"}), Wire::Chat),
        (json!({"type": "openai", "base_url": "http://127.0.0.1:1"}), Wire::Chat),
        (
            json!({"type": "openai", "base_url": "http://127.0.0.1:1", "wire": "responses"}),
            Wire::Responses,
        ),
        (json!({"type": "azure", "base_url": "https://x.openai.azure.com"}), Wire::Chat),
        (
            json!({"type": "azure", "base_url": "https://x.openai.azure.com/openai/v1"}),
            Wire::Responses,
        ),
        (json!({"type": "anthropic"}), Wire::Messages),
        (json!({"type": "openrouter"}), Wire::Chat),
        (json!({"type": "gemini"}), Wire::GenerateContent),
        (json!({"type": "ollama"}), Wire::Ollama),
        (json!({"type": "ollama", "wire": "chat"}), Wire::Chat),
    ] {
        assert_eq!(settings(provider.clone()).wire, wire, "{provider}");
    }
    for (kind, wire, spoken) in [
        ("openai", "messages", "responses, chat"),
        ("anthropic", "chat", "messages"),
        ("openrouter", "responses", "chat"),
        ("gemini", "chat", "generate_content"),
        ("ollama", "responses", "ollama, chat"),
        ("openai", "converse", "responses, chat"),
    ] {
        let reason =
            format!("{wire:?} is not spoken by providers of the type {kind}, but {spoken}");
        refused(json!({"type": kind, "wire": wire}), "wire", &reason);
    }
}

#[test]
fn one_timeout_stands_for_both_where_it_is_set() {
    let seconds = Duration::from_secs;
    let times = |provider: Value| {
        let settings = settings(provider);
        (settings.first_event_timeout, settings.idle_timeout)
    };
    assert_eq!(times(json!({"type": "openai"})), (seconds(300), seconds(120)));
    assert_eq!(times(json!({"type": "ollama"})), (seconds(900), seconds(120)));
    assert_eq!(times(json!({"type": "openai", "request_timeout": 7})), (seconds(7), seconds(7)));
    assert_eq!(
        times(json!({"type": "openai", "request_timeout": 7, "idle_timeout": 9})),
        (seconds(7), seconds(9))
    );
}

#[test]
fn what_goes_out_with_every_call_is_bounded() {
    let frame = json!({"a": ""}).to_string().len();
    let routing =
        |bytes: usize| json!({"type": "openrouter", "routing": {"a": "x".repeat(bytes - frame)}});
    assert!(settings(routing(4096)).routing.is_some());
    refused(routing(4097), "routing", "is larger than 4096 bytes");
    refused(
        json!({"type": "openrouter", "routing": []}),
        "routing",
        "invalid type: sequence, expected an object",
    );
}

#[test]
fn a_path_and_an_address_are_what_they_say() {
    refused(
        json!({"type": "openai", "ca_file": "ca.pem"}),
        "ca_file",
        "\"ca.pem\" is not an absolute path (or one that starts with ~/) without ..",
    );
    let no_proxy = json!({"type": "openai", "proxy": "http://"});
    refused(no_proxy, "proxy", "the proxy is not usable: empty host");
    refused(
        json!({"type": "openai", "proxy": "10.0.0.1:3128"}),
        "proxy",
        "\"10.0.0.1:3128\" does not begin with http:// or https://; write http://10.0.0.1:3128",
    );
}

/// A key that has to be sent is not sent in the clear; one that need not be is left at home.
#[test]
fn a_key_goes_over_plain_http_to_this_machine_alone() {
    let provider = |more: Value| {
        let mut provider = json!({"type": "anthropic", "api_key_env": "K"});
        provider.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        provider
    };
    refused(
        provider(json!({"base_url": "http://10.0.0.1"})),
        "base_url",
        "the base_url begins with http:// and is not on this machine, so anybody on the way could read the key; \
         use https://, or set insecure_http to true",
    );
    for good in [
        json!({"base_url": "http://127.0.0.1"}),
        json!({"base_url": "https://10.0.0.1"}),
        json!({"base_url": "http://10.0.0.1", "insecure_http": true}),
    ] {
        assert_eq!(settings(provider(good)).kind, Kind::Anthropic);
    }
    let own = |more: Value| {
        let mut own = json!({"type": "openai", "base_url": "http://10.0.0.1"});
        own.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config = json!({"providers": {"own": own}});
        let catalog = super::models::catalog(&config, &[("OPENAI_API_KEY", "k")]);
        let entry = catalog.providers().next().unwrap();
        assert!(catalog.resolve(Some("own/m")).is_ok());
        catalog.settings(entry).unwrap().api_key
    };
    assert_eq!(own(json!({})), None);
    assert_eq!(own(json!({"insecure_http": true})).as_deref(), Some("k"));
    assert_eq!(own(json!({"base_url": "http://127.0.0.1"})).as_deref(), Some("k"));
}

#[test]
fn doors_are_open_unless_they_are_closed() {
    let config = load(&json!({})).unwrap();
    let doors = &config.doors;
    assert!(doors.mcp && doors.openai && doors.websocket && doors.expose.is_empty());
    for closed in ["mcp", "openai", "websocket"] {
        let doors = load(&json!({"doors": {closed: false}})).unwrap().doors;
        let open = [("mcp", doors.mcp), ("openai", doors.openai), ("websocket", doors.websocket)];
        assert_eq!(open.map(|(door, is_open)| is_open == (door != closed)), [true; 3]);
    }
    let said = json!({"doors": {"expose": {"critic": "Reviews."}}});
    let config = load(&said).unwrap();
    let critic = nexus_core::AgentId::parse("critic").unwrap();
    assert_eq!(config.doors.expose.get(&critic).map(String::as_str), Some("Reviews."));
    let bad = load(&json!({"doors": {"expose": {"../x": "?"}}})).unwrap_err().to_string();
    assert!(bad.contains("doors.expose.../x: "), "{bad}");
    assert!(load(&json!({"doors": {"mcp": "yes"}})).is_err());
}
