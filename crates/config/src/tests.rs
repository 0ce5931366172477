//! The configuration as its user sees it: files in, values or a sentence out.

mod any;
mod auth;
mod docs;
mod entries;
mod figures;
mod mcp;
mod models;
mod presets;
mod service;
mod terminal;
mod trust;

use std::error::Error as _;
use std::fs;

use serde_json::{Value, json};

use super::*;

/// A home and the directories `a/b/c`, the last of which is worked in.
pub(super) struct Tree {
    root: tempfile::TempDir,
}

impl Tree {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b/c")).unwrap();
        fs::create_dir_all(root.path().join("home")).unwrap();
        Self { root }
    }

    pub fn write(self, place: &str, text: impl AsRef<[u8]>) -> Self {
        self.put(place, text);
        self
    }

    /// `home` for the home's file, else the directory whose `.nexus3/config.json` is written.
    fn put(&self, place: &str, text: impl AsRef<[u8]>) {
        let file = self.file(place);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    pub fn trust(self, place: &str) -> Self {
        trust(&self.home(), &self.root.path().join(place)).unwrap();
        self
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    fn file(&self, place: &str) -> PathBuf {
        match place {
            "home" => self.home().join("config.json"),
            dir => self.root.path().join(dir).join(".nexus3/config.json"),
        }
    }

    pub fn load(&self) -> Result<Config, ConfigError> {
        let env = |name: &str| (name == "HOME").then(|| "/users/me".to_string());
        Config::load(&self.home(), &self.root.path().join("a/b/c"), &env)
    }

    /// The error with its causes, paths shortened to the tree.
    pub fn error(&self) -> String {
        let error = self.load().unwrap_err();
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        let root = self.root.path().canonicalize().unwrap();
        format!("{error}{cause}").replace(&format!("{}/", root.display()), "")
    }
}

/// The configuration that comes from one value in the home's file.
pub(super) fn load(value: &Value) -> Result<Config, ConfigError> {
    Tree::new().write("home", value.to_string()).load()
}

/// What is said about one value in the home's file, without the file's name.
#[track_caller]
pub(super) fn check_error(value: Value, expected: &str) {
    let error = Tree::new().write("home", value.to_string()).error();
    assert_eq!(error.strip_prefix("home/config.json: ").unwrap_or(&error), expected, "{value}");
}

#[test]
fn without_files_everything_has_its_default() {
    let config = Tree::new().load().unwrap();
    assert_eq!((config.max_tool_iterations, config.max_concurrent_tools), (100, 10));
    assert_eq!(config.max_calls_per_step, 128);
    assert_eq!((config.default_model, config.providers.len()), (None, 0));
    assert_eq!(config.permissions.default_preset, "sandboxed");
    let compaction = Compaction {
        enabled: true,
        model: None,
        trigger_threshold: 0.9,
        recent_preserve_ratio: 0.25,
    };
    assert_eq!(config.compaction, compaction);
    let names = ["NEXUS.md", "AGENTS.md", "CLAUDE.md", "README.md"].map(String::from).to_vec();
    assert_eq!(config.context, Context { ancestor_depth: 2, instruction_files: names });
    assert_eq!(config.images, Images { side_max: 1568, allow_urls: false });
    let server = Server {
        host: "localhost".into(),
        port: 8765,
        metrics_port: None,
        max_concurrent: 32,
        max_queued: 1024,
        tree: Bounds {
            children_max: 64,
            agents_max: 1024,
            turns_max: 256,
            memory_bytes_max: 268_435_456,
        },
        max_connections: 1024,
        body_bytes_max: 1_048_576,
        answer_bytes_max: 16_777_216,
        header_bytes_max: 32_768,
        header_count_max: 128,
        request_read_timeout: Duration::from_secs(30),
        socket: None,
        socket_idle_timeout: Duration::from_secs(300),
        shutdown_grace: Duration::from_secs(10),
        agent_idle_timeout: Duration::from_secs(1800),
        temp_agent_idle_timeout: Duration::from_secs(86_400),
        rate_limit: RateLimit::default(),
    };
    assert_eq!(config.server, server);
}

#[test]
fn a_missing_home_is_no_error() {
    let tree = Tree::new();
    fs::remove_dir(tree.home()).unwrap();
    assert!(tree.load().is_ok());
}

#[test]
fn nearer_files_win_key_by_key() {
    let tree = Tree::new()
        .write("home", r#"{"max_tool_iterations": 1, "max_concurrent_tools": 1, "default_model": "h",
                           "compaction": {"model": "h", "enabled": false}, "context": {"instruction_files": ["X.md"]}}"#)
        .write("a", r#"{"max_tool_iterations": 2, "max_concurrent_tools": 2, "compaction": {"trigger_threshold": 0.5}}"#)
        .write("a/b", r#"{"max_tool_iterations": 3, "context": {"instruction_files": ["Y.md", "Z.md"]}}"#)
        .write("a/b/c", r#"{"max_tool_iterations": 4}"#);
    let config = tree.load().unwrap();
    assert_eq!((config.max_tool_iterations, config.max_concurrent_tools), (4, 2));
    assert_eq!(config.default_model.as_deref(), Some("h"));
    let compaction = Compaction {
        enabled: false,
        model: Some("h".into()),
        trigger_threshold: 0.5,
        recent_preserve_ratio: 0.25,
    };
    assert_eq!(config.compaction, compaction);
    assert_eq!(config.context.instruction_files, ["Y.md", "Z.md"]);
}

#[test]
fn null_resets_a_key_or_a_section() {
    let tree = Tree::new()
        .write("home", r#"{"max_tool_iterations": 1, "default_model": null, "compaction": {"model": "h", "enabled": false}}"#)
        .write("a/b/c", r#"{"max_tool_iterations": null, "compaction": {"model": null}}"#);
    let config = tree.load().unwrap();
    assert_eq!(config.max_tool_iterations, 100);
    assert_eq!((config.compaction.model, config.compaction.enabled), (None, false));
    let config = Tree::new()
        .write("home", r#"{"compaction": {"enabled": false}}"#)
        .write("a/b/c", r#"{"compaction": null}"#)
        .load()
        .unwrap();
    assert!(config.compaction.enabled);
}

#[test]
fn only_two_ancestors_are_read_and_not_the_home_again() {
    let tree = Tree::new().write("", r#"{"max_tool_iterations": 7}"#);
    assert_eq!(tree.load().unwrap().max_tool_iterations, 100, "the root is three directories up");

    // The home of the user is an ancestor: its `.nexus3` is theirs, and may hold any key.
    let tree = Tree::new().write("a/b", r#"{"server": {"port": 1}, "max_tool_iterations": 7}"#);
    let home = tree.root.path().join("a/b/.nexus3");
    let config = Config::load(&home, &tree.root.path().join("a/b/c"), &|_| None).unwrap();
    assert_eq!((config.server.port, config.max_tool_iterations), (1, 7));
}

#[test]
fn an_error_names_the_file_and_the_key() {
    check_error(json!({"sever": {}}), UNKNOWN_TOP);
    check_error(json!({"server": {"prot": 1}}), UNKNOWN_SERVER);
    check_error(
        json!({"providers": {"x": {"models": {"m": {"window": 1}}}}}),
        "providers.x.models.m.window: unknown field `window`, expected one of `id`, `context_window`, `max_output_tokens`, \
         `reasoning`, `input`, `price`, `fallback`, `fallback_on_refusal`, `extra_body`",
    );
    check_error(json!({"sever": null}), UNKNOWN_TOP);
    check_error(
        json!({"max_tool_iterations": "9"}),
        "max_tool_iterations: invalid type: string \"9\", expected a whole number from 1 to 10000",
    );
    check_error(
        json!({"server": ["127.0.0.1", 80]}),
        "server: invalid type: sequence, expected an object",
    );
    check_error(json!({"providers": []}), "providers: invalid type: sequence, expected an object");
    check_error(
        json!({"compaction": {"enabled": 1}}),
        "compaction.enabled: invalid type: integer `1`, expected a boolean",
    );
    check_error(
        json!({"context": {"instruction_files": ["a.md", null]}}),
        "context.instruction_files[1]: invalid type: null, expected a string",
    );
    check_error(
        json!({"memory": {"embeddings": {"provider": "p", "model": "m"}}}),
        "memory.embeddings: missing field `dimensions`",
    );
    check_error(json!([]), ": the file must hold an object");

    let tree = Tree::new().write("a/b", r#"{"contxt": 1}"#);
    assert!(
        tree.error().starts_with("a/b/.nexus3/config.json: contxt: unknown field"),
        "{}",
        tree.error()
    );
}

const UNKNOWN_TOP: &str = "sever: unknown field `sever`, expected one of `default_model`, `providers`, \
    `max_tool_iterations`, `max_concurrent_tools`, `max_calls_per_step`, `skill_timeout`, `permissions`, `commands`, \
    `compaction`, `context`, `images`, `memory`, `tasks`, `server`, `terminal`, `auth`, `doors`, `mcp`";
const UNKNOWN_SERVER: &str = "server.prot: unknown field `prot`, expected one of `host`, `port`, `metrics_port`, \
    `max_concurrent`, `max_queued`, `max_children`, `max_tree_agents`, `max_tree_turns`, `tree_memory_bytes_max`, `max_connections`, `body_bytes_max`, `answer_bytes_max`, `header_bytes_max`, `header_count_max`, \
    `request_read_timeout`, `socket`, `socket_idle_timeout`, `shutdown_grace`, `agent_idle_timeout`, `temp_agent_idle_timeout`, `rate_limit`";

#[test]
fn every_number_has_its_range() {
    // Key, lowest, highest, how the range is called.
    let whole = [
        ("max_tool_iterations", 1_u64, 10_000_u64),
        ("max_concurrent_tools", 1, 256),
        ("max_calls_per_step", 1, 10_000),
        ("providers.openai.max_retries", 0, 10),
        ("providers.openai.max_concurrent_calls", 1, 1024),
        ("providers.openai.requests_per_minute", 1, 1_000_000),
        ("providers.openai.tokens_per_minute", 1, 4_000_000_000),
        ("providers.openai.models.m.context_window", 1024, 10_000_000),
        ("providers.openai.models.m.max_output_tokens", 16, 10_000_000),
        ("providers.openai.models.m.reasoning.budget_tokens", 1024, 1_000_000),
        ("images.max_side", 64, 2000),
        ("memory.recall", 0, 20),
        ("context.ancestor_depth", 0, 10),
        ("server.port", 0, 65_535),
        ("server.metrics_port", 0, 65_535),
        ("server.max_concurrent", 1, 4096),
        ("server.max_queued", 0, 1_000_000),
        ("server.max_children", 0, 1_000_000),
        ("server.max_tree_agents", 0, 1_000_000),
        ("server.max_tree_turns", 0, 1_000_000),
        ("server.tree_memory_bytes_max", 65_536, 4_294_967_295),
        ("server.max_connections", 1, 65_536),
        ("server.body_bytes_max", 1024, 104_857_600),
        ("server.answer_bytes_max", 1024, 1_073_741_824),
        ("server.header_bytes_max", 8192, 1_048_576),
        ("server.header_count_max", 8, 1024),
        ("server.rate_limit.calls_per_minute", 1, 1_000_000),
        ("server.rate_limit.failed_logins_per_minute", 1, 1_000_000),
        ("server.rate_limit.methods.send", 1, 1_000_000),
        ("terminal.width_max", 20, 1000),
        ("terminal.tool_lines", 0, 1000),
        ("terminal.diff_lines", 0, 10_000),
    ];
    for (key, min, max) in whole {
        for good in [min, max] {
            assert!(load(&at(key, json!(good))).is_ok(), "{key} {good}");
        }
        let below = if min == 0 { json!(-1) } else { json!(min - 1) };
        for bad in [below, json!(max + 1), json!(u64::MAX), json!(1e300), json!(min as f64 + 0.5)] {
            let number = bad.as_f64().unwrap();
            check_error(
                at(key, bad),
                &format!("{key}: {number} is not a whole number from {min} to {max}"),
            );
        }
    }
    let parts = [
        ("providers.openai.request_timeout", 0.1, 3600.0, "a number of seconds"),
        ("providers.openai.first_event_timeout", 0.1, 3600.0, "a number of seconds"),
        ("providers.openai.idle_timeout", 0.1, 3600.0, "a number of seconds"),
        ("providers.openai.queue_timeout", 0.1, 3600.0, "a number of seconds"),
        ("providers.openai.retry_backoff", 0.01, 60.0, "a number of seconds"),
        ("server.request_read_timeout", 0.1, 600.0, "a number of seconds"),
        ("server.socket_idle_timeout", 0.1, 86_400.0, "a number of seconds"),
        ("server.shutdown_grace", 0.0, 600.0, "a number of seconds"),
        ("server.agent_idle_timeout", 0.1, 2_592_000.0, "a number of seconds"),
        ("server.temp_agent_idle_timeout", 0.1, 2_592_000.0, "a number of seconds"),
        ("compaction.trigger_threshold", 0.1, 1.0, "a number"),
        ("compaction.recent_preserve_ratio", 0.01, 0.9, "a number"),
    ];
    for (key, min, max, kind) in parts {
        for bad in [min - 0.001, max + 0.001, -1e300] {
            check_error(
                at(key, json!(bad)),
                &format!("{key}: {bad} is not {kind} from {min} to {max}"),
            );
        }
        for good in [min, max] {
            let error = load(&at(key, json!(good))).map_err(|error| error.to_string()).err();
            assert!(error.is_none_or(|error| error.contains("must be below")), "{key} {good}");
        }
    }
}

/// `{"a": {"b": value}}` for the key `a.b`.
fn at(key: &str, value: Value) -> Value {
    key.rsplit('.').fold(value, |value, part| json!({ part: value }))
}

#[test]
fn compaction_must_free_something() {
    check_error(
        json!({"compaction": {"trigger_threshold": 0.2}}),
        "compaction.recent_preserve_ratio: must be below compaction.trigger_threshold, or compacting frees nothing",
    );
}

#[test]
fn only_loopback_hosts_are_taken() {
    for host in ["127.0.0.1", "localhost", "::1"] {
        assert_eq!(load(&json!({"server": {"host": host}})).unwrap().server.host, host);
    }
    check_error(
        json!({"server": {"host": "0.0.0.0"}}),
        "server.host: invalid value: string \"0.0.0.0\", expected one of 127.0.0.1, localhost, ::1",
    );
}

#[test]
fn a_socket_path_is_absolute_or_in_the_users_home() {
    let socket = |path: &str| {
        load(&json!({"server": {"socket": path}})).map(|config| config.server.socket.unwrap())
    };
    assert_eq!(socket("/run/x.sock").unwrap(), Path::new("/run/x.sock"));
    assert_eq!(socket("~/x.sock").unwrap(), Path::new("/users/me/x.sock"));
    for bad in ["x.sock", "~other/x", "/a/../b"] {
        let reason = "is not an absolute path (or one that starts with ~/) without ..";
        check_error(
            json!({"server": {"socket": bad}}),
            &format!("server.socket: {bad:?} {reason}"),
        );
    }
}

#[test]
fn a_socket_path_fits_into_the_kernels_room() {
    // A long directory needs room for the draft, a long name for itself.
    for (directory, name) in [(95, 1), (11, 95)] {
        let path = |name: usize| format!("/{}/{}", "d".repeat(directory - 1), "n".repeat(name));
        assert_eq!(check_socket_path(Path::new(&path(name))), Ok(()));
        let longer = format!("/{}/{}", "d".repeat(directory), "n".repeat(name));
        let refused = check_socket_path(Path::new(&longer)).unwrap_err();
        assert!(refused.starts_with("too long for a socket by 1 bytes"), "{refused}");
    }
    let long = format!("/{}", "x".repeat(200));
    let error = Tree::new().write("home", json!({"server": {"socket": long}}).to_string()).error();
    assert!(error.contains("server.socket: too long for a socket by 94 bytes"), "{error}");
}

#[test]
fn instruction_files_are_names_without_directories() {
    for bad in ["../x.md", "a/b.md", "..", "/etc/passwd"] {
        let value = json!({"context": {"instruction_files": [bad]}});
        let reason = format!("{bad:?} is not a file name (a name without a directory)");
        check_error(value, &format!("context.instruction_files[0]: {reason}"));
    }
    let names = |count: usize| json!({"context": {"instruction_files": vec!["a.md"; count]}});
    assert!(load(&names(INSTRUCTION_FILES_MAX)).is_ok());
    check_error(names(INSTRUCTION_FILES_MAX + 1), "context.instruction_files: more than 16 names");
}

#[test]
fn text_is_one_line_that_says_something() {
    assert!(load(&json!({"default_model": "x".repeat(4096)})).is_ok());
    check_error(
        json!({"default_model": "x".repeat(4097)}),
        "default_model: is longer than 4096 bytes",
    );
    check_error(json!({"default_model": " "}), "default_model: must not be empty");
    check_error(json!({"default_model": "a\nb"}), "default_model: holds a control character");
}

#[test]
fn broken_files_say_where() {
    let check =
        |text: &[u8], expected: &str| assert_eq!(Tree::new().write("home", text).error(), expected);
    check(b"{\n  \"default_model\": ,\n}", "home/config.json:2:20: expected value");
    check(b"", "home/config.json:1:0: EOF while parsing a value");
    check(b"{} x", "home/config.json:1:4: trailing characters");
    check(b"{\"a\": \"\xff\"}", "home/config.json:1:8: invalid unicode code point");
    check("[".repeat(100_000).as_bytes(), "home/config.json:1:128: recursion limit exceeded");
}

#[test]
fn a_file_may_be_one_mebibyte() {
    let padded = |bytes: usize| format!("{{}}{}", " ".repeat(bytes - 2));
    assert!(Tree::new().write("home", padded(1024 * 1024)).load().is_ok());
    let error = Tree::new().write("home", padded(1024 * 1024 + 1)).error();
    assert_eq!(error, "cannot read home/config.json: larger than 1048576 bytes");
}

#[test]
fn what_is_not_a_file_is_refused() {
    let tree = Tree::new();
    fs::create_dir(tree.file("home")).unwrap();
    assert_eq!(tree.error(), "cannot read home/config.json: not a regular file");
}
