//! What is wrong, too much or not known is answered clearly, and nothing else suffers from it.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::editor::{Desk, Editor};

const LINE_BYTES_MAX: usize = 16 << 20;

/// A line that is no request is answered with an error of no id, and the next is read as ever.
async fn check(editor: &mut Editor, line: &[u8], code: i64, why: &str) {
    editor.write(&[line, b"\n"].concat()).await;
    let answer = editor.find(|it| it.get("method").is_none()).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{answer}");
    let said = answer["error"]["message"].as_str().unwrap();
    assert!(said.starts_with(why), "{said}");
    editor.ok("session/list", json!({})).await;
}

#[tokio::test]
async fn lines_that_are_no_messages_are_answered() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    check(&mut editor, b"{", -32700, "Invalid JSON").await;
    check(&mut editor, b"\xff\xfe", -32700, "Invalid JSON").await;
    check(&mut editor, b"{\"method\": \"\xff\"}", -32700, "Invalid JSON").await;
    check(&mut editor, b"[]", -32600, "Messages do not come in batches").await;
    check(&mut editor, b"7", -32600, "This is no message").await;
    check(&mut editor, b"{}", -32600, "A message has a method").await;
    check(&mut editor, b"{\"method\": 7}", -32600, "This is no message").await;
    let line = |bytes: usize| {
        let empty = r#"{"jsonrpc":"2.0","id":"long","method":"none","params":{"x":""}}"#;
        let filled = format!(r#""x":"{}""#, "x".repeat(bytes - empty.len()));
        empty.replace(r#""x":"""#, &filled)
    };
    check(&mut editor, line(LINE_BYTES_MAX + 1).as_bytes(), -32600, "A message has at most").await;
    editor.write(format!("{}\n\n", line(LINE_BYTES_MAX)).as_bytes()).await;
    let answer = editor.find(|it| it["id"] == "long").await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert_eq!(editor.finish().await, Some(0));
}

#[tokio::test]
async fn what_is_not_known_is_said_so() {
    let desk = Desk::embedded().await;
    let mut editor = desk.silent(&[]);
    let (code, why) = editor.refused("session/list", json!({})).await;
    assert_eq!((code, why.as_str()), (-32600, "The first request is initialize"));
    editor.ok("initialize", json!({"protocolVersion": "new"})).await;
    let (code, why) = editor.refused("session/fork", json!({})).await;
    assert_eq!((code, why.as_str()), (-32601, "Method not found: session/fork"));
    editor.notify("$/unknown", json!({})).await;
    editor.notify("session/cancel", json!({"sessionId": "none"})).await;
    editor.notify("$/cancel_request", json!({"requestId": 99})).await;
    let nowhere = json!({"sessionId": "none", "prompt": [{"type": "text", "text": "x"}]});
    let (code, why) = editor.refused("session/prompt", nowhere).await;
    assert_eq!(code, -32002, "{why}");
    for method in ["session/load", "session/resume"] {
        let params = json!({"sessionId": "none", "cwd": editor.cwd, "mcpServers": []});
        let (code, why) = editor.refused(method, params).await;
        assert_eq!((code, why.as_str()), (-32002, "There is no session none"));
    }
    let (code, why) = editor.refused("session/close", json!({"sessionId": "none"})).await;
    assert_eq!(code, -32002, "{why}");
    for (cwd, code) in [(desk.world.path("none"), -32602), ("work".into(), -32602)] {
        let (got, why) = editor.refused("session/new", json!({"cwd": cwd, "mcpServers": []})).await;
        assert_eq!(got, code);
        assert!(why.starts_with("cwd: "), "{why}");
    }
    let (code, why) = editor.refused("session/new", json!({"mcpServers": []})).await;
    assert_eq!(code, -32602, "{why}");
    assert_eq!(editor.ok("authenticate", json!({"methodId": "x"})).await, json!({}));
    let refused = desk.silent(&["--preset", "none"]);
    let mut editor = refused;
    editor.ok("initialize", json!({"protocolVersion": 1})).await;
    let params = json!({"cwd": editor.cwd, "mcpServers": []});
    let (code, why) = editor.refused("session/new", params).await;
    assert!(code == -32602 && why.contains("none"), "{why}");
}

/// As many as there may be wait, and one more is refused.
#[tokio::test]
async fn so_many_requests_may_wait() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    desk.world.model.push(Reply::text("begun").then_hang());
    let mut ids = vec![editor.begin(&session, "1").await];
    editor.update("agent_message_chunk").await;
    for _ in 1..256 {
        ids.push(editor.begin(&session, "more").await);
    }
    let one_more = editor.begin(&session, "one more").await;
    let answer = editor.answer(one_more).await;
    let why = &answer["error"]["message"];
    assert_eq!(why, "256 requests wait for their answers already", "{answer}");
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    for id in ids {
        assert_eq!(editor.stopped(id).await, "cancelled");
    }
    editor.ok("session/list", json!({})).await;
}
