//! `/copy`, `/export`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::super::export::COPY_BYTES_MAX;
use crate::testing::{Stage, page};

fn stage(messages: Vec<Value>) -> Stage {
    Stage::with(move |_, params| Ok(page(&messages, params)))
}

fn answer(content: &str) -> Vec<Value> {
    vec![
        json!({"role": "assistant", "content": "earlier"}),
        json!({"role": "assistant", "content": content}),
        json!({"role": "assistant", "content": " ", "tool_calls": []}),
        json!({"role": "user", "content": "thanks"}),
    ]
}

#[tokio::test]
async fn copies_the_last_answer_or_its_code() {
    let text = "Run:\n```sh\nls\n```\nthen\n```\ncd\n```";
    let calls = json!([["get_messages", {
        "agent_id": "main", "offset": 0, "from_end": true, "limit": 200,
    }]]);
    let check = async |line: &str, told: &[&str]| {
        stage(answer(text)).check(line, calls.clone(), told).await;
    };
    check("/copy", &["copied 33 characters", &format!("[copy {text}]")]).await;
    for line in ["/copy code", "/copy 1", "/copy 1 code"] {
        check(line, &["copied 3 characters", "[copy ls\n]"]).await;
    }
    check("/copy 2 code", &["copied 3 characters", "[copy cd\n]"]).await;
    check("/copy 3 code", &["The last answer has 2 code blocks."]).await;
    stage(vec![]).check("/copy", calls, &["No answer yet."]).await;
    for line in ["/copy 0", "/copy x", "/copy 1 2", "/copy 1 code x"] {
        let usage = ["Usage: /copy, /copy code, or /copy N code"];
        stage(vec![]).check(line, json!([]), &usage).await;
    }
}

#[tokio::test]
async fn copies_a_hundred_kilobytes_at_most() {
    let most = "x".repeat(COPY_BYTES_MAX);
    let told = stage(answer(&most)).run("/copy").await.told;
    assert_eq!(told[1].len(), COPY_BYTES_MAX + "[copy ]".len());
    let told = stage(answer(&format!("{most}x"))).run("/copy").await.told;
    assert_eq!(told, ["It has 100,001 bytes, and 100,000 can be copied: try /export."]);
}

fn conversation() -> Vec<Value> {
    vec![
        json!({"role": "user", "content": "List it."}),
        json!({"role": "assistant", "content": "Yes.", "tool_calls": [
            {"id": "a1", "name": "exec", "arguments": {"argv": ["ls"]}},
        ]}),
        json!({"role": "tool", "content": "```\n", "tool_call_id": "a1"}),
        json!({"role": "system", "content": "They listed it."}),
        json!({
            "role": "user", "content": "And this?",
            "meta": {"at": "2026-11-17T03:00:00Z", "source_agent_id": "worker"},
            "attachments": [{"type": "image", "mime_type": "image/png", "name": "a.png"}],
        }),
    ]
}

const EXPORTED: &str = "\
# main

## You

List it.

## main

Yes.

### exec `a1`

```json
{
  \"argv\": [
    \"ls\"
  ]
}
```

### Result of `a1`

````
```
````

## Summary of what was said before

They listed it.

## From worker

And this?

*image: a.png (image/png)*
";

fn stage_in(directory: &Path, messages: Vec<Value>) -> Stage {
    let mut stage = stage(messages);
    stage.making.cwd = directory.into();
    stage
}

#[tokio::test]
async fn writes_a_file_for_one_person() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = stage_in(dir.path(), conversation());
    let calls = json!([["get_messages", {"agent_id": "main", "offset": 0, "limit": 200}]]);
    stage.check("/export", calls, &["Wrote 5 messages to main.md."]).await;
    let file = dir.path().join("main.md");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), EXPORTED);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let told = stage.run("/export sub/x.md").await.told;
    assert_eq!(told, ["Wrote 5 messages to sub/x.md."]);
    let absolute = dir.path().join("absolute.md");
    let told = stage.run(&format!("/export {}", absolute.display())).await.told;
    assert_eq!(told, [format!("Wrote 5 messages to {}.", absolute.display())]);
    // Nothing is left beside what was written.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[tokio::test]
async fn exports_every_page() {
    let dir = tempfile::tempdir().unwrap();
    let many = (0..401).map(|at| json!({"role": "user", "content": format!("<{at}>")}));
    let mut stage = stage_in(dir.path(), many.collect());
    let seen = stage.run("/export").await;
    assert_eq!(seen.told, ["Wrote 401 messages to main.md."]);
    assert_eq!(seen.calls.as_array().unwrap().len(), 3);
    let text = std::fs::read_to_string(dir.path().join("main.md")).unwrap();
    for at in 0..401 {
        assert_eq!(text.matches(&format!("<{at}>")).count(), 1);
    }
}

#[tokio::test]
async fn replaces_a_file_after_a_question_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("main.md");
    std::fs::write(&file, "mine").unwrap();
    let question = "[ask main.md exists. Replace it?]";
    stage_in(dir.path(), conversation()).check("/export", json!([]), &[question]).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let seen = stage_in(dir.path(), conversation()).saying_yes().run("/export").await;
    assert_eq!(seen.told, [question, "Wrote 5 messages to main.md."]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), EXPORTED);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn follows_no_links() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, dir.path().join("main.md")).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("sub")).unwrap();
    let mut stage = stage_in(dir.path(), conversation()).saying_yes();
    stage.check("/export", json!([]), &["main.md is there, and is no file."]).await;
    let refused = stage.run("/export sub/x.md").await;
    assert!(refused.told[0].starts_with("sub/x.md: "), "{:?}", refused.told);
    assert_eq!(refused.calls, json!([]));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn what_could_not_be_read_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::new(&[("get_messages", json!("elsewhere"))]);
    stage.making.cwd = dir.path().into();
    assert_eq!(stage.run("/export").await.told, ["elsewhere"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
