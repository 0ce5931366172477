//! Images and documents on the newer wires: where a model can look at them, and where it cannot.

use nexus_core::message::{Attachment, AttachmentKind, Blob, Source};
use nexus_core::model::Inputs;
use nexus_testkit::vendors;

use super::*;

const ALL: Inputs = Inputs { image: true, pdf: true };
const NONE: Inputs = Inputs { image: false, pdf: false };

const IMAGE: &str = "[An image, a.png, 3 bytes: you cannot look at it.]";
const PDF: &str = "[A file, b.pdf, 3 bytes: you cannot look at it.]";
const URL: &str = "[An image, https://x/c.png: you cannot look at it.]";

fn image(bytes: &str) -> Attachment {
    Attachment {
        kind: AttachmentKind::Image,
        media_type: "image/png".into(),
        name: Some("a.png".into()),
        source: Source::Blob(Blob::new(bytes.as_bytes())),
    }
}

/// A user shows three things, and a tool returns one.
fn conversation(wire: Wire, inputs: Inputs) -> ModelCall {
    let pdf = Attachment {
        kind: AttachmentKind::File { pages: 1 },
        media_type: "application/pdf".into(),
        name: Some("b.pdf".into()),
        source: Source::Blob(Blob::new(*b"pdf")),
    };
    let elsewhere = Attachment { source: Source::Address("https://x/c.png".into()), ..image("") };
    let parts = [image("one"), pdf, elsewhere].map(Part::Attachment);
    let parts = [Part::text("Compare")].into_iter().chain(parts).chain([Part::text("these.")]);
    let returned = Message::tool_result("c1", "It is one.", Meta::default());
    let mut call = call(
        wire,
        [
            Arc::new(Message::of_parts(Role::User, parts.collect(), Meta::default())),
            own(wire, vec![calls("c1", "read_file")]),
            Arc::new(returned.with_attachments(vec![image("two")])),
        ],
    );
    Arc::make_mut(&mut call.model).inputs = inputs;
    call
}

#[test]
fn openai_is_shown_parts_also_in_what_a_call_came_to() {
    let body = body(Wire::Responses, &conversation(Wire::Responses, ALL));
    let text = |text: &str| json!({"type": "input_text", "text": text});
    let image = |url: &str| json!({"type": "input_image", "detail": "auto", "image_url": url});
    let pdf = "data:application/pdf;base64,cGRm";
    assert_eq!(
        body["input"][0]["content"],
        json!([
            text("Compare"),
            image("data:image/png;base64,b25l"),
            {"type": "input_file", "filename": "b.pdf", "file_data": pdf},
            image("https://x/c.png"),
            text("these."),
        ])
    );
    let output = json!([text("It is one."), image("data:image/png;base64,dHdv")]);
    assert_eq!(body["input"][2]["output"], output);
}

#[test]
fn gemini_is_shown_inline_data_behind_results_too() {
    let body = body(Wire::GenerateContent, &conversation(Wire::GenerateContent, ALL));
    let inline = |kind: &str, data: &str| json!({"inlineData": {"mimeType": kind, "data": data}});
    assert_eq!(
        body["contents"][0]["parts"],
        json!([
            {"text": "Compare"},
            inline("image/png", "b25l"),
            inline("application/pdf", "cGRm"),
            {"text": URL},
            {"text": "these."},
        ])
    );
    let parts = &body["contents"][2]["parts"];
    assert_eq!(parts[0]["functionResponse"]["response"], json!({"output": "It is one."}));
    assert_eq!(parts[1], inline("image/png", "dHdv"));
}

#[test]
fn ollama_is_shown_images_and_told_of_the_rest() {
    let body = body(Wire::Ollama, &conversation(Wire::Ollama, ALL));
    let content = format!("Compare\n\n{PDF}\n\n{URL}\n\nthese.");
    let user = json!({"role": "user", "content": content, "images": ["b25l"]});
    assert_eq!(body["messages"][0], user);
    let result = &body["messages"][2];
    assert_eq!((&result["content"], &result["images"]), (&json!("It is one."), &json!(["dHdv"])));
}

#[test]
fn a_model_that_cannot_look_is_told_what_there_is() {
    for wire in WIRES {
        let body = body(wire, &conversation(wire, NONE)).to_string();
        for words in [IMAGE, PDF, URL, &format!("It is one.\\n{IMAGE}")] {
            assert!(body.contains(words), "{wire:?}: {words} is not in {body}");
        }
        assert!(!body.contains("b25l") && !body.contains("dHdv"), "{wire:?}: {body}");
    }
}

#[test]
fn the_vendors_types_take_what_is_shown() {
    for (wire, theirs) in [
        (Wire::Responses, nexus_testkit::Wire::Responses),
        (Wire::GenerateContent, nexus_testkit::Wire::GenerateContent),
        (Wire::Ollama, nexus_testkit::Wire::Ollama),
    ] {
        let bodies = [ALL, NONE].map(|inputs| body(wire, &conversation(wire, inputs)));
        vendors::assert_valid(theirs, &bodies, |_| false);
    }
}
