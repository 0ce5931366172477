//! Images and documents in request bodies: where a model can look at them, and where it cannot.

use nexus_core::message::{Attachment, AttachmentKind, Blob, Source};
use nexus_core::model::Inputs;
use nexus_testkit::Wire;
use serde_json::{Value, json};

use super::requests::sent;
use super::*;

const ALL: Inputs = Inputs { image: true, pdf: true };
const NONE: Inputs = Inputs { image: false, pdf: false };

fn image(bytes: &str) -> Attachment {
    Attachment {
        kind: AttachmentKind::Image,
        media_type: "image/png".into(),
        name: Some("a.png".into()),
        source: Source::Blob(Blob::new(bytes.as_bytes())),
    }
}

fn document() -> Attachment {
    Attachment {
        kind: AttachmentKind::File { pages: 1 },
        media_type: "application/pdf".into(),
        name: Some("b.pdf".into()),
        source: Source::Blob(Blob::new(*b"pdf")),
    }
}

fn elsewhere() -> Attachment {
    Attachment { source: Source::Address("https://x/c.png".into()), ..image("") }
}

/// A user shows three things, and a tool returns one twice: the second time it failed.
fn conversation(inputs: Inputs) -> ModelCall {
    let parts = vec![
        Part::text("Compare "),
        Part::Attachment(image("one")),
        Part::Attachment(document()),
        Part::Attachment(elsewhere()),
        Part::text("with this."),
    ];
    let asks = ["c1", "c2"].map(|id| ToolCall::new(id, "read_file", json!({})));
    let result = |id: &str, failed| {
        let meta = Meta { failed, ..Meta::default() };
        Message::tool_result(id, "It is an image.", meta).with_attachments(vec![image("two")])
    };
    let mut call = call([
        Arc::new(Message::of_parts(Role::User, parts, Meta::default())),
        Message::new(Role::Assistant, "", Meta::default()).with_tool_calls(asks.into()).into(),
        result("c1", false).into(),
        result("c2", true).into(),
    ]);
    let model = ModelInfo { inputs, ..(*call.model).clone() };
    call.model = Arc::new(model);
    call
}

async fn messages(kind: Kind, call: ModelCall) -> Value {
    body(kind, call).await["messages"].take()
}

async fn body(kind: Kind, call: ModelCall) -> Value {
    let change = |settings: &mut ProviderSettings| {
        settings.prompt_caching = false;
        settings.wire = if kind == Kind::OpenAi { crate::Wire::Chat } else { settings.wire };
    };
    sent(kind, call, change).await
}

#[tokio::test]
async fn anthropic_is_shown_blocks() {
    let written = messages(Kind::Anthropic, conversation(ALL)).await;
    let image = |data: &str| {
        let source = json!({"type": "base64", "media_type": "image/png", "data": data});
        json!({"type": "image", "source": source})
    };
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "cGRm"});
    assert_eq!(
        written[0]["content"],
        json!([
            {"type": "text", "text": "Compare "},
            image("b25l"),
            {"type": "document", "source": pdf, "title": "b.pdf"},
            {"type": "image", "source": {"type": "url", "url": "https://x/c.png"}},
            {"type": "text", "text": "with this."},
        ])
    );
    assert_eq!(
        written[2]["content"],
        json!([
            {"type": "tool_result", "tool_use_id": "c1",
             "content": [{"type": "text", "text": "It is an image."}, image("dHdv")]},
            {"type": "tool_result", "tool_use_id": "c2", "is_error": true,
             "content": "It is an image.\n[An image, a.png, 3 bytes: you cannot look at it.]"},
        ])
    );
}

#[tokio::test]
async fn chat_is_shown_parts_and_what_tools_return_behind_their_results() {
    let written = messages(Kind::OpenAi, conversation(ALL)).await;
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let (one, two) = (image("data:image/png;base64,b25l"), image("data:image/png;base64,dHdv"));
    assert_eq!(
        written[1],
        json!({"role": "user", "content": [
            {"type": "text", "text": "Compare "},
            one,
            {"type": "file", "file":
                {"filename": "b.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
            image("https://x/c.png"),
            {"type": "text", "text": "with this."},
        ]})
    );
    let tail: Vec<_> = written.as_array().unwrap().iter().skip(3).cloned().collect();
    let result =
        |id: &str| json!({"role": "tool", "content": "It is an image.", "tool_call_id": id});
    let label = json!({"type": "text", "text": "What the tools returned beside their words:"});
    let shown = json!({"role": "user", "content": [label, two, two]});
    assert_eq!(tail, [result("c1"), result("c2"), shown.clone()]);

    // The next request has all of it, and the next words of the user do not stand alone.
    let mut answered = conversation(ALL);
    answered.messages.push(assistant("Equal."));
    let answered = messages(Kind::OpenAi, answered).await;
    let before = written.as_array().unwrap();
    assert_eq!(&answered.as_array().unwrap()[..before.len()], &before[..]);
    let mut cancelled = conversation(ALL);
    cancelled.messages.push(user("Well?"));
    let cancelled = messages(Kind::OpenAi, cancelled).await;
    let last = cancelled.as_array().unwrap().last().unwrap().clone();
    let said = json!({"type": "text", "text": "Well?"});
    assert_eq!(last, json!({"role": "user", "content": [label, two, two, said]}));
}

/// As after a change of the model.
#[tokio::test]
async fn a_model_that_cannot_look_is_told_what_there_is() {
    let image = "[An image, a.png, 3 bytes: you cannot look at it.]";
    let pdf = "[A file, b.pdf, 3 bytes: you cannot look at it.]";
    let url = "[An image, https://x/c.png: you cannot look at it.]";
    let words = ["Compare ", image, pdf, url, "with this."];
    let text = |text: &str| json!({"type": "text", "text": text});
    let result = format!("It is an image.\n{image}");
    for kind in FORMATS {
        let written = messages(kind, conversation(NONE)).await;
        let bytes = written.to_string();
        assert!(!bytes.contains("base64") && !bytes.contains("b25l"), "{bytes}");
        let user = written.as_array().unwrap().iter().find(|it| it["role"] == "user").unwrap();
        assert_eq!(user["content"], json!(words.map(text)), "{kind:?}");
        assert_eq!(bytes.matches(&result.replace('\n', "\\n")).count(), 2, "{kind:?}: {bytes}");
    }
    // Each kind for itself.
    let only_images = conversation(Inputs { image: true, pdf: false });
    let written = messages(Kind::Anthropic, only_images).await.to_string();
    assert!(written.contains("b25l") && written.contains(pdf) && !written.contains("cGRm"));
}

/// What the vendors' own types say of it.
#[tokio::test]
async fn bodies_with_attachments_are_what_the_vendors_types_say() {
    for (kind, wire) in [(Kind::OpenAi, Wire::Chat), (Kind::Anthropic, Wire::Messages)] {
        let bodies = [body(kind, conversation(ALL)).await, body(kind, conversation(NONE)).await];
        nexus_testkit::vendors::assert_valid(wire, &bodies, |_| false);
    }
}
