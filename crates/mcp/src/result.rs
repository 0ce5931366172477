//! What a model is told of a result.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nexus_core::attach::{ATTACHMENTS_MAX, Intake, Wanted};
use nexus_core::message::{ATTACHED_BYTES_MAX, Attachment, Part};
use nexus_core::tool::ToolOutput;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// Of one result: about what a model can make use of in one answer.
pub const SHOWN_BYTES_MAX: usize = 50_000;

/// Of one that is longer.
const BEGINNING_BYTES: usize = 40_000;
const END_BYTES: usize = 8_000;

/// A result as a model is shown it. Images are shown to those that see, and never spelt out.
pub async fn output(result: &CallToolResult, intake: &dyn Intake) -> ToolOutput {
    let mut shown = Shown::default();
    for content in &result.content {
        match content {
            ContentBlock::Image(image) => {
                shown.blob("image", &image.mime_type, &image.data, intake).await;
            }
            ContentBlock::Resource(embedded) => match &embedded.resource {
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    let kind = mime_type.as_deref().unwrap_or("data");
                    shown.blob(&format!("resource {uri}"), kind, blob, intake).await;
                }
                other => shown.text(resource(other)),
            },
            other => shown.text(words(other)),
        }
    }
    let (mut text, attachments) = shown.parts();
    let structured = result.structured_content.as_ref().filter(|it| **it != Value::Null);
    if text.is_empty()
        && let Some(structured) = structured
    {
        text = structured.to_string();
    }
    if text.is_empty() {
        text = "The tool said nothing.".into();
    }
    ToolOutput { text, attachments, change: None }
}

/// What is shown so far.
#[derive(Default)]
pub struct Shown {
    texts: Vec<String>,
    attachments: Vec<Attachment>,
}

impl Shown {
    pub fn text(&mut self, text: String) {
        self.texts.push(text);
    }

    /// An image is shown, as one that is read from a file; what is none is named.
    pub async fn blob(&mut self, what: &str, kind: &str, base64: &str, intake: &dyn Intake) {
        let size = base64.len() / 4 * 3;
        let named = format!("[{what}, {kind}, about {size} bytes");
        let is_image = kind.starts_with("image/") && self.attachments.len() < ATTACHMENTS_MAX;
        let attached: u64 = self.attachments.iter().map(Attachment::size).sum();
        let has_room = attached + size as u64 <= ATTACHED_BYTES_MAX;
        let bytes = match is_image && has_room {
            true => BASE64.decode(base64).map_err(|_| "it is no base64".to_owned()),
            false => return self.text(format!("{named}: not shown]")),
        };
        let taken = match bytes {
            Ok(bytes) => intake.bytes(bytes, "the image", Wanted::Image).await,
            Err(why) => Err(why),
        };
        match taken.map(|taken| taken.named(None)) {
            Ok(Part::Attachment(image)) => {
                self.attachments.push(image);
                self.text(format!("[{what}, {kind}]"));
            }
            Ok(_) => self.text(format!("{named}: not shown]")),
            Err(why) => self.text(format!("{named}: not shown: {why}]")),
        }
    }

    pub fn parts(self) -> (String, Vec<Attachment>) {
        (self.texts.join("\n"), self.attachments)
    }
}

fn words(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Audio(audio) => {
            let size = audio.data.len() / 4 * 3;
            format!("[sound, {}, about {size} bytes: not shown]", audio.mime_type)
        }
        ContentBlock::ResourceLink(link) => format!("{}: {}", link.name, link.uri),
        _ => "[content of an unknown kind: not shown]".into(),
    }
}

fn resource(contents: &ResourceContents) -> String {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => format!("{uri}:\n{text}"),
        _ => "[a resource of an unknown kind: not shown]".into(),
    }
}

/// A text that is too long for one answer: its beginning and its end. `kept` is how the whole is called.
pub fn cut(text: &str, kept: Option<&str>) -> String {
    let bytes = text.len();
    let beginning = &text[..text.floor_char_boundary(BEGINNING_BYTES)];
    let end = &text[text.ceil_char_boundary(bytes - END_BYTES)..];
    let (from, left_out) = (beginning.len(), bytes - beginning.len() - end.len());
    let how = match kept {
        Some(uri) => format!("mcp_read {{\"uri\": \"{uri}\", \"offset\": {from}}} reads on"),
        None => "ask for less of it".into(),
    };
    format!(
        "{beginning}\n[The result has {bytes} bytes, of which {left_out} are left out here: {how}.]\n{end}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn check(result: Value, expected: &str) {
        let output = output(&serde_json::from_value(result).unwrap(), &()).await;
        assert_eq!((output.text.as_str(), output.attachments.len()), (expected, 0));
    }

    #[tokio::test]
    async fn texts_are_joined_and_what_is_no_text_is_named() {
        let texts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        check(json!({"content": texts}), "a\nb").await;
        let image = json!({"type": "image", "mimeType": "image/png", "data": "AAAA"});
        check(
            json!({"content": [image]}),
            "[image, image/png, about 3 bytes: not shown: the image is not taken: nothing here can look at it]",
        )
        .await;
        let image = json!({"type": "image", "mimeType": "image/png", "data": "?"});
        check(
            json!({"content": [image]}),
            "[image, image/png, about 0 bytes: not shown: it is no base64]",
        )
        .await;
        let sound = json!({"type": "audio", "mimeType": "audio/wav", "data": "AAAA"});
        check(json!({"content": [sound]}), "[sound, audio/wav, about 3 bytes: not shown]").await;
        let inside = json!({"uri": "file:///x", "text": "t"});
        check(json!({"content": [{"type": "resource", "resource": inside}]}), "file:///x:\nt")
            .await;
        let blob = json!({"uri": "x:/y", "mimeType": "application/zip", "blob": "AAAA"});
        check(
            json!({"content": [{"type": "resource", "resource": blob}]}),
            "[resource x:/y, application/zip, about 3 bytes: not shown]",
        )
        .await;
        let link = json!({"type": "resource_link", "name": "x", "uri": "file:///x"});
        check(json!({"content": [link]}), "x: file:///x").await;
        check(json!({"content": [], "structuredContent": {"a": 1}}), "{\"a\":1}").await;
        check(json!({"content": []}), "The tool said nothing.").await;
    }

    #[test]
    fn of_a_long_text_the_beginning_and_the_end_are_shown() {
        let text = format!("{}é{}é{}", "a".repeat(39_999), "b".repeat(20_000), "c".repeat(7_999));
        let shown = cut(&text, Some("mcp-result:1"));
        let left_out = text.len() - 39_999 - 7_999;
        let words = format!(
            "\n[The result has {} bytes, of which {left_out} are left out here: \
             mcp_read {{\"uri\": \"mcp-result:1\", \"offset\": 39999}} reads on.]\n",
            text.len()
        );
        assert_eq!(shown, format!("{}{words}{}", "a".repeat(39_999), "c".repeat(7_999)));
        assert!(cut(&text, None).contains("left out here: ask for less of it.]"));
    }
}
