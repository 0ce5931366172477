//! What a person said in an editor, as an agent is told it.

use agent_client_protocol_schema::v1::{
    ContentBlock, EmbeddedResource, EmbeddedResourceResource, Error, ResourceLink,
};
use nexus_protocol::content::{Content, ContentPart, PARTS_MAX, PartType, percent_decoded};
use nexus_protocol::params::NonBlank;

use super::fault;

/// Longest text that an editor puts beside what is said.
pub const EMBEDDED_BYTES_MAX: usize = 256 << 10;

pub fn said(blocks: Vec<ContentBlock>) -> Result<Content, Error> {
    if blocks.len() > PARTS_MAX {
        return Err(fault::invalid_params(format!("A prompt has at most {PARTS_MAX} parts")));
    }
    // Words and names of files are one text; what has bytes of its own is a part beside it.
    let mut parts: Vec<ContentPart> = Vec::new();
    for block in blocks {
        let part = part(block)?;
        match (parts.last_mut().and_then(|it| it.text.as_mut()), &part.text) {
            (Some(text), Some(more)) => text.push_str(more),
            _ => parts.push(part),
        }
    }
    let blank = || fault::invalid_params("The prompt is blank");
    match <[ContentPart; 1]>::try_from(parts) {
        Ok([ContentPart { text: Some(text), .. }]) => {
            NonBlank::new(text).map(Content::Text).ok_or_else(blank)
        }
        Ok([part]) => Ok(Content::Parts(vec![part])),
        Err(parts) if parts.is_empty() => Err(blank()),
        Err(parts) => Ok(Content::Parts(parts)),
    }
}

fn part(block: ContentBlock) -> Result<ContentPart, Error> {
    match block {
        ContentBlock::Text(text) => Ok(ContentPart::text(text.text)),
        ContentBlock::ResourceLink(link) => Ok(ContentPart::text(mention(&link))),
        ContentBlock::Resource(EmbeddedResource { resource, .. }) => embedded(resource),
        ContentBlock::Image(image) => Ok(ContentPart {
            r#type: PartType::Image,
            data: Some(image.data),
            mime_type: Some(image.mime_type),
            ..ContentPart::default()
        }),
        ContentBlock::Audio(_) => Err(fault::invalid_params("Sound is not understood here")),
        _ => Err(fault::invalid_params("A part of the prompt is of a kind that is not known")),
    }
}

/// A file is named by its path, which the agent can open; anything else by its address.
fn mention(link: &ResourceLink) -> String {
    place(&link.uri).unwrap_or_else(|| link.uri.clone())
}

/// What the editor has read itself, with its place before it.
fn embedded(resource: EmbeddedResourceResource) -> Result<ContentPart, Error> {
    match resource {
        EmbeddedResourceResource::TextResourceContents(held) => {
            if held.text.len() > EMBEDDED_BYTES_MAX {
                let (bytes, uri) = (held.text.len(), held.uri);
                return Err(fault::invalid_params(format!(
                    "{uri} has {bytes} bytes; at most {EMBEDDED_BYTES_MAX} are put into a prompt: link to it instead"
                )));
            }
            let place = place(&held.uri).unwrap_or(held.uri);
            Ok(ContentPart::text(format!("\n\nFile {place}:\n\n{}\n\n", held.text)))
        }
        EmbeddedResourceResource::BlobResourceContents(held) => Ok(ContentPart {
            r#type: PartType::File,
            name: place(&held.uri).and_then(|it| it.rsplit('/').next().map(str::to_owned)),
            data: Some(held.blob),
            mime_type: held.mime_type,
            ..ContentPart::default()
        }),
        _ => Err(fault::invalid_params("A resource has a text or a blob")),
    }
}

/// The path in `file:///a%20b#L1`, without what stands behind `#`.
fn place(uri: &str) -> Option<String> {
    let path = uri.strip_prefix("file://")?;
    let path = path.strip_prefix("localhost").unwrap_or(path);
    let path = path.split(['#', '?']).next().filter(|path| path.starts_with('/'))?;
    percent_decoded(path)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What becomes of a prompt, as JSON, or the complaint.
    fn check(prompt: Value, expected: Value) {
        let blocks = serde_json::from_value(prompt.clone()).unwrap();
        let got = match said(blocks) {
            Ok(content) => json!(content),
            Err(error) => json!({"error": error.message}),
        };
        assert_eq!(got, expected, "{prompt}");
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    #[test]
    fn words_and_names_of_files_are_one_text() {
        let link = json!({"type": "resource_link", "name": "b c", "uri": "file:///a/b%20c#L3"});
        let page = json!({"type": "resource_link", "name": "p", "uri": "https://example.org/"});
        check(json!([text("look at "), link, text(".")]), json!("look at /a/b c."));
        check(json!([page]), json!("https://example.org/"));
        let odd = json!({"type": "resource_link", "name": "b", "uri": "file:///a%2"});
        check(json!([odd]), json!("file:///a%2"));
        check(json!([text(" "), text("\n")]), json!({"error": "The prompt is blank"}));
        check(json!([]), json!({"error": "The prompt is blank"}));
    }

    #[test]
    fn what_has_bytes_stands_beside_the_text() {
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let part = json!({"type": "image", "data": "AAAA", "mime_type": "image/png"});
        check(json!([text("see"), image]), json!([text("see"), part]));
        let blob = json!({"type": "resource", "resource": {
            "uri": "file:///a/b.pdf", "blob": "AAAA", "mimeType": "application/pdf",
        }});
        let part = json!({
            "type": "file", "data": "AAAA", "mime_type": "application/pdf", "name": "b.pdf",
        });
        check(json!([blob]), json!([part]));
        let sound = json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"});
        check(json!([sound]), json!({"error": "Sound is not understood here"}));
    }

    #[test]
    fn a_text_that_the_editor_has_read_is_taken_up_to_its_bound() {
        let held = |bytes: usize| {
            let text = "x".repeat(bytes);
            json!([{"type": "resource", "resource": {"uri": "file:///a/b", "text": text}}])
        };
        let most = "x".repeat(EMBEDDED_BYTES_MAX);
        check(held(EMBEDDED_BYTES_MAX), json!(format!("\n\nFile /a/b:\n\n{most}\n\n")));
        let why = "file:///a/b has 262145 bytes; at most 262144 are put into a prompt: link to it instead";
        check(held(EMBEDDED_BYTES_MAX + 1), json!({"error": why}));
    }

    #[test]
    fn a_prompt_has_so_many_parts() {
        check(json!(vec![text("x"); PARTS_MAX]), json!("x".repeat(PARTS_MAX)));
        let why = json!({"error": "A prompt has at most 256 parts"});
        check(json!(vec![text("x"); PARTS_MAX + 1]), why);
    }
}
