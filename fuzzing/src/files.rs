//! Readers of files: a session to import, weights, the configuration.

use std::fs;
use std::path::Path;

use nexus_config::Config;
use nexus_local::Backend;
use nexus3::session_file::SessionFile;

use crate::must;

pub const SESSIONS: &[&[u8]] = &[
    br#"{"format":"nexus3.session","version":1,"session":{"name":"a","created_at":"2026-01-20T09:11:02Z","updated_at":"2026-01-21T09:11:02Z","provenance":"user","depth":0,"model":null,"cwd":"/w","system_prompt":null,"permissions":{"level":"trusted","preset":"trusted","read":null,"write":["/w"],"blocked":[],"disabled_tools":[],"network":true,"commands":true,"agents":true},"ceiling":null,"grants":{"write_paths":[],"exec_dirs":{}}},"messages":[{"role":"user","at":"2026-01-20T09:11:03Z","content":"Hi"},{"role":"assistant","at":"2026-01-20T09:11:04Z","content":"","tool_calls":[{"id":"c1","name":"git","arguments":{"a":[2]}}]},{"role":"tool","at":"2026-01-20T09:11:05Z","content":"ok","tool_call_id":"c1"},{"role":"summary","at":"2026-01-20T09:11:07Z","content":"sum","covers":1}]}"#,
    br#"{"agent_id":"a","created_at":"2026-01-20T09:11:02","modified_at":"2026-01-20T09:11:02","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}],"system_prompt":"","working_directory":"/w","permission_level":"trusted"}"#,
];

pub const CONFIGS: &[&[u8]] = &[
    br#"{"default_model":"m","providers":{"p":{"type":"openai","base_url":"http://127.0.0.1:1/v1","models":{"m":{"id":"x","context_window":8192}}}},"permissions":{"approvals":"ask","presets":{"mine":{"extends":"sandboxed","blocked_paths":["~/x"]}}},"server":{"max_concurrent":4}}"#,
    br#"{"compaction":{"trigger_threshold":0.9},"context":{"ancestor_depth":2}}"#,
];

/// A head of version 3 with one tensor and two values.
pub const WEIGHTS: &[&[u8]] = &[
    b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x14\0\0\0\0\0\0\0general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama\x15\0\0\0\0\0\0\0tokenizer.ggml.tokens\x09\0\0\0\x08\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0a\x01\0\0\0\0\0\0\0b\x01\0\0\0\0\0\0\0t\x02\0\0\0\x20\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0",
];

pub fn session(bytes: &[u8]) {
    with_file("session.json", bytes, |path| drop(SessionFile::read(path)));
}

pub fn gguf(bytes: &[u8]) {
    with_file("m.gguf", bytes, |path| drop(Backend::Own.inspect(path)));
}

/// The only file is the user's own, and so is all that can be refused.
pub fn config(bytes: &[u8]) {
    with_file("config.json", bytes, |path| {
        let home = path.parent().unwrap_or(path);
        if let Err(error) = Config::load(home, home, &|_| None) {
            assert!(error.to_string().contains("config.json"), "{error}");
        }
    });
}

fn with_file(name: &str, bytes: &[u8], read: impl FnOnce(&Path)) {
    let dir = must(tempfile::tempdir());
    let path = dir.path().join(name);
    must(fs::write(&path, bytes));
    read(&path);
}
