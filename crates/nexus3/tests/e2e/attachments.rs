//! Images and files with messages: what is taken, from whom, and what a model is shown of it.

use std::fs;
use std::os::unix::fs::symlink;

use nexus_testkit::{RecordedRequest, Reply};
use serde_json::{Value, json};

use crate::harness::{Provider, Setup, Wire, process};
use crate::support::{as_agent, create, say};

/// A PNG of one pixel.
pub const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// How every PNG begins, in base64.
const PNG_START: &str = "iVBORw0KGgo";

/// A PDF of one page.
const PDF: &str = "%PDF-1.7\n1 0 obj <</Type/Pages/Count 1>> endobj\n%%EOF";

/// A model that can look at everything, and one that cannot.
fn seeing() -> Setup {
    Setup::new().provider_keys(json!({"models": {
        "scripted": {"input": ["text", "image", "pdf"]},
        "blind": {"context_window": 200_000, "input": ["text"]},
    }}))
}

over_every_wire! {
    an_image_is_shown_and_told_of: seeing(),
    shapes_of_other_protocols_are_taken: seeing(),
    what_is_not_taken_is_refused_by_name: seeing(),
    a_model_that_cannot_look_is_refused_what_is_new_and_told_of_what_is_old: seeing(),
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mime_type": "image/jpeg", "name": "dot.png"})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// What the user said last, as the model was shown it, without the time.
fn said(request: &RecordedRequest) -> Vec<Value> {
    let messages = request.body["messages"].as_array().unwrap();
    let user = messages.iter().rfind(|message| message["role"] == "user").unwrap();
    let parts = user["content"].as_array().unwrap_or_else(|| panic!("{user} has no parts"));
    let time = |part: &&Value| part["text"].as_str().is_some_and(|it| it.starts_with("Current"));
    parts.iter().filter(|part| !time(part)).cloned().collect()
}

fn url(part: &Value) -> &str {
    part["image_url"]["url"].as_str().unwrap_or_else(|| panic!("{part} is no image"))
}

async fn send(wire: &Wire, content: Value) -> Value {
    wire.ok("send", json!({"agent_id": "a", "content": content})).await
}

async fn an_image_is_shown_and_told_of(wire: &Wire) {
    create(wire, "a").await;
    wire.model().push(Reply::text("A dot."));
    let answer = send(wire, json!([text("What is "), image(), text("this?")])).await;
    assert_eq!(answer["content"], "A dot.");
    let parts = said(&wire.model().last_request());
    let [before, shown, after] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!((before, after), (&text("What is \n\n"), &text("this?")));
    assert!(url(shown).starts_with(&format!("data:image/png;base64,{PNG_START}")), "{shown}");

    let page = wire.ok("get_messages", json!({"agent_id": "a"})).await;
    let message = &page["messages"][0];
    assert_eq!(message["content"], "What is \n\nthis?");
    let [attachment] = message["attachments"].as_array().unwrap().as_slice() else {
        panic!("{message}")
    };
    let named = [&attachment["type"], &attachment["mime_type"], &attachment["name"]];
    assert_eq!(named, ["image", "image/png", "dot.png"]);
    assert_eq!(attachment["sha256"].as_str().unwrap().len(), 64);
    assert!(attachment["size"].as_u64().unwrap() > 50);
    assert!(!page.to_string().contains(PNG_START), "no bytes: {page}");
    assert!(page["messages"][1].get("attachments").is_none());

    // Alone it will do too, and it is shown again with what is said next.
    send(wire, json!([image()])).await;
    say(wire, "a", "And now?").await;
    let asked = wire.model().last_request().body.to_string();
    assert_eq!(asked.matches(PNG_START).count(), 2, "{asked}");
}

async fn shapes_of_other_protocols_are_taken(wire: &Wire) {
    create(wire, "a").await;
    let blob = json!({"uri": "zed:///dot.png", "mimeType": "image/png", "blob": PNG});
    let notes = json!({"uri": "file:///n/notes.md", "mimeType": "text/markdown", "text": "# N"});
    send(
        wire,
        json!([
            {"type": "text", "text": "Look", "annotations": {"audience": ["user"]}},
            {"type": "image", "data": PNG, "mimeType": "image/png", "uri": "zed:///dot.png"},
            {"type": "resource", "resource": blob},
            {"type": "resource", "resource": notes, "_meta": {}},
        ]),
    )
    .await;
    let parts = said(&wire.model().last_request());
    let [look, one, two, notes] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!((look, notes), (&text("Look\n\n"), &text("File notes.md:\n\n# N")));
    assert!([one, two].iter().all(|it| url(it).starts_with("data:image/png;base64,")));
}

async fn what_is_not_taken_is_refused_by_name(wire: &Wire) {
    create(wire, "a").await;
    let check = async |content: Value, at: &str, words: &str| {
        let fault = wire.refused("send", json!({"agent_id": "a", "content": content})).await;
        assert_eq!(fault.code, -32602, "{content}: {fault:?}");
        assert_eq!(fault.data["path"], at, "{content}: {fault:?}");
        assert!(fault.message.contains(words), "{content}: {fault:?}");
    };
    check(json!([]), "/content", "must not be blank").await;
    check(json!([text(" ")]), "/content", "must not be blank").await;
    check(json!([text("x"), {"type": "image"}]), "/content/1/path", "is missing").await;
    check(json!([{"type": "image", "data": "%"}]), "/content/0/data", "is not base64").await;
    let taken = "PNG, JPEG, WebP and GIF";
    check(json!([{"type": "image", "data": "aGVsbG8="}]), "/content/0", taken).await;
    let data = "UEsDBAAAAAA=";
    check(json!([{"type": "file", "data": data, "name": "a.zip"}]), "/content/0", "PDF").await;
    for address in ["https://example.test/a.png", "http://example.test/a.png"] {
        let image = json!([text("x"), {"type": "image", "path": address}]);
        check(image, "/content/1", "images.allow_urls").await;
        let link = json!([{"type": "resource_link", "uri": address, "name": "a"}]);
        check(link, "/content/0", "images.allow_urls").await;
    }
    check(json!([{"type": "image", "path": "data:image/png;base64,AA"}]), "/content/0/path", "")
        .await;
    let many = |count: usize| json!(vec![image(); count]);
    check(many(21), "/content", "at most 20 attachments, and this one 21").await;
    assert_eq!(wire.model().request_count(), 0, "nothing of it was paid for");
    send(wire, many(20)).await;
}

async fn a_model_that_cannot_look_is_refused_what_is_new_and_told_of_what_is_old(wire: &Wire) {
    create(wire, "a").await;
    send(wire, json!([text("Look"), image()])).await;
    wire.ok("set_model", json!({"agent_id": "a", "model": "blind"})).await;
    let fault = wire.refused("send", json!({"agent_id": "a", "content": [image()]})).await;
    assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/content/0")));
    assert_eq!(fault.message, "Model blind takes no images; these do: scripted");
    say(wire, "a", "What was it?").await;
    let asked = wire.model().last_request().body.to_string();
    assert!(!asked.contains(PNG_START), "{asked}");
    assert!(asked.contains("[An image, dot.png, ") && asked.contains("you cannot look at it.]"));
}

fn decoded_png() -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(PNG).unwrap()
}

#[tokio::test]
async fn a_path_is_read_with_the_agents_permissions() {
    let server = seeing().start().await;
    let (wire, work) = (server.wire(), server.world.work());
    let outside = server.world.path("outside.png");
    fs::write(&outside, decoded_png()).unwrap();
    fs::write(work.join("dot.dat"), decoded_png()).unwrap();
    fs::write(work.join("doc.pdf"), PDF).unwrap();
    fs::write(work.join("notes.md"), "# Notes").unwrap();
    symlink(&outside, work.join("link.png")).unwrap();
    create(&wire, "a").await;
    let file = |path: &str| json!({"type": "file", "path": path});
    let inside = work.join("doc.pdf").display().to_string();
    send(&wire, json!([file("dot.dat"), file(&inside), file("notes.md")])).await;
    let parts = said(&server.model().last_request());
    assert!(url(&parts[0]).starts_with("data:image/png"));
    assert_eq!(parts[1]["file"]["filename"], "doc.pdf");
    assert_eq!(parts[2], text("File notes.md:\n\n# Notes"));

    let outside = outside.display().to_string();
    let home = server.world.home().join("config.json").display().to_string();
    let link = format!("file://{outside}");
    let link = json!({"type": "resource_link", "uri": link, "name": "x"});
    for part in [file(&outside), file("link.png"), file("../outside.png"), file(&home), link] {
        let params = json!({"agent_id": "a", "content": [text("Look"), part]});
        let fault = wire.refused("send", params).await;
        assert_eq!(fault.code, -32602, "{part}: {fault:?}");
        assert_eq!(
            (&fault.data["path"], &fault.data["rule"]),
            (&json!("/content/1"), &json!("path"))
        );
    }
    let missing = json!({"agent_id": "a", "content": [file("none.png")]});
    assert!(wire.refused("send", missing).await.message.contains("no such file"));

    // Who speaks to an agent that may read more sees no more by it.
    let trusted = json!({"agent_id": "top", "preset": "trusted"});
    wire.ok("create_agent", trusted).await;
    wire.ok("create_agent", json!({"agent_id": "kid", "parent_agent_id": "top"})).await;
    let params = json!({"agent_id": "top", "content": [text("Look"), file(&outside)]});
    wire.ok("send", params.clone()).await;
    let (code, why) = as_agent(&server, "kid", "send", params).await.unwrap_err();
    assert_eq!(code, -32602);
    assert!(why.contains("lies outside what this agent may read"), "{why}");
}

#[tokio::test]
async fn read_file_shows_the_model_an_image() {
    let server = seeing().provider(Provider::Anthropic).start().await;
    let wire = server.wire();
    fs::write(server.world.work().join("dot.png"), decoded_png()).unwrap();
    create(&wire, "a").await;
    server.model().push(Reply::tool_call("read_file", json!({"path": "dot.png"})));
    server.model().push(Reply::text("A dot."));
    assert_eq!(say(&wire, "a", "Look at dot.png").await, "A dot.");
    let asked = server.model().last_request().body;
    let result = &asked["messages"][2]["content"][0];
    assert_eq!(result["type"], "tool_result");
    let words = "dot.png is an image: PNG, 1 × 1 pixels.";
    assert_eq!(result["content"][0], text(words));
    assert_eq!(result["content"][1]["source"]["media_type"], "image/png");
    let page = wire.ok("get_messages", json!({"agent_id": "a"})).await;
    assert_eq!(page["messages"][2]["attachments"][0]["name"], "dot.png");
}

/// What was sent before the server was killed is sent after it, to the letter.
#[tokio::test]
async fn an_image_outlives_the_server() {
    let server = seeing().provider(Provider::Anthropic).start().await;
    create(&server.wire(), "a").await;
    send(&server.wire(), json!([text("Look"), image()])).await;
    let before = server.model().last_request().body["messages"][0]["content"].clone();
    let told = server.wire().ok("get_messages", json!({"agent_id": "a"})).await;
    let server = server.restart().await;
    let again = server.wire().ok("get_messages", json!({"agent_id": "a"})).await;
    assert_eq!(again["messages"][0]["attachments"], told["messages"][0]["attachments"]);
    say(&server.wire(), "a", "And now?").await;
    let after = server.model().last_request().body["messages"][0]["content"].clone();
    let unmarked = |mut content: Value| {
        let blocks = content.as_array_mut().unwrap().iter_mut();
        blocks.for_each(|block| drop(block.as_object_mut().unwrap().remove("cache_control")));
        content
    };
    assert_eq!(unmarked(after), unmarked(before));
}

#[tokio::test]
async fn addresses_are_handed_on_where_they_are_allowed() {
    let server = seeing().config(json!({"images": {"allow_urls": true}})).start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let address = "https://example.test/a.png";
    send(&wire, json!([text("Look"), {"type": "image", "url": address}])).await;
    assert_eq!(url(&said(&server.model().last_request())[1]), address);
    let page = wire.ok("get_messages", json!({"agent_id": "a"})).await;
    let told = json!({"type": "image", "mime_type": "image/*", "url": address});
    assert_eq!(page["messages"][0]["attachments"], json!([told]));
}

#[tokio::test]
async fn files_are_attached_from_the_shell() {
    let server = seeing().start().await;
    let world = server.world.clone();
    fs::write(world.work().join("dot.png"), decoded_png()).unwrap();
    create(&server.wire(), "a").await;
    let port = server.address.port().to_string();
    let sent = ["rpc", "-p", &port, "send", "a", "Look", "--attach", "dot.png"];
    let output = process::run(world.command(sent)).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(url(&said(&world.model.last_request())[1]).starts_with("data:image/png"));
    drop(server);

    let executed = ["exec", "Look", "--attach", "dot.png", "--attach", "dot.png"];
    let output = process::run(world.command(executed)).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(said(&world.model.last_request()).len(), 3);
    let output = process::run(world.command(["exec", "--attach", "/etc/none.png"])).await;
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("lies outside what this agent may read"), "{}", output.stderr);
}
