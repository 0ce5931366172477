//! What a model is told of a result.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// Of one result: about what a model can make use of in one answer.
const RESULT_BYTES_MAX: usize = 50_000;

/// The words of a result. What is no text is named, never spelt out.
pub fn text(result: &CallToolResult) -> String {
    let parts: Vec<String> = result.content.iter().map(part).collect();
    let mut text = parts.join("\n");
    if text.is_empty()
        && let Some(structured) =
            result.structured_content.as_ref().filter(|it| **it != Value::Null)
    {
        text = structured.to_string();
    }
    if text.is_empty() {
        text = "The tool said nothing.".into();
    }
    cut(text)
}

fn part(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => left_out("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => left_out("sound", &audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("{uri}:\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("data");
                format!("{uri}: {}", left_out("resource", kind, blob))
            }
            _ => "[a resource of an unknown kind: not shown]".into(),
        },
        ContentBlock::ResourceLink(link) => format!("{}: {}", link.name, link.uri),
        _ => "[content of an unknown kind: not shown]".into(),
    }
}

fn left_out(what: &str, kind: &str, base64: &str) -> String {
    format!("[{what}, {kind}, about {} bytes: not shown]", base64.len() / 4 * 3)
}

fn cut(mut text: String) -> String {
    if text.len() > RESULT_BYTES_MAX {
        let bytes = text.len();
        text.truncate(text.floor_char_boundary(RESULT_BYTES_MAX));
        text.push_str(&format!(
            "\n[The result has {bytes} bytes; what follows the first {RESULT_BYTES_MAX} was left out. Ask for less of it.]"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(result: Value, expected: &str) {
        assert_eq!(text(&serde_json::from_value(result).unwrap()), expected);
    }

    #[test]
    fn texts_are_joined_and_what_is_no_text_is_named() {
        check(
            json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
            "a\nb",
        );
        check(
            json!({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]}),
            "[image, image/png, about 3 bytes: not shown]",
        );
        let inside = json!({"uri": "file:///x", "text": "t"});
        check(json!({"content": [{"type": "resource", "resource": inside}]}), "file:///x:\nt");
        check(
            json!({"content": [{"type": "resource_link", "name": "x", "uri": "file:///x"}]}),
            "x: file:///x",
        );
        check(json!({"content": [], "structuredContent": {"a": 1}}), "{\"a\":1}");
        check(json!({"content": []}), "The tool said nothing.");
    }

    #[test]
    fn just_the_longest_is_whole_and_one_byte_more_is_cut() {
        assert_eq!(cut("a".repeat(RESULT_BYTES_MAX)).len(), RESULT_BYTES_MAX);
        let cut = cut(format!("{}é", "a".repeat(RESULT_BYTES_MAX - 1)));
        let kept = "a".repeat(RESULT_BYTES_MAX - 1);
        assert!(cut.starts_with(&kept) && cut.contains("has 50001 bytes"), "{}", &cut[49_990..]);
    }
}
