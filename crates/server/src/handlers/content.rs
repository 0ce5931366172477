//! What is said to an agent, from the wire to the core.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use nexus_core::attach::{Given, Piece, Taken, Wanted};
use nexus_core::{Agent, message};
use nexus_protocol::RpcError;
use nexus_protocol::content::{Content, ContentPart, PartType, Resource, percent_decoded};

use crate::cx::Cx;
use crate::errors::wire;

/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Makes of what a caller says what the agent is told.
pub async fn taken(cx: &Cx, agent: &Agent, content: Content) -> Result<message::Content, RpcError> {
    let parts = match content {
        Content::Text(text) => return Ok(text.into_string().into()),
        Content::Parts(parts) => parts,
    };
    // To decode what is megabytes long takes its time.
    let decoded = tokio::task::spawn_blocking(|| pieces(parts)).await;
    let pieces = decoded.map_err(|error| RpcError::internal(error.to_string()))??;
    let attacher = &cx.services().engine.attacher;
    attacher.take(&cx.caller.requester, agent, pieces).await.map_err(wire)
}

fn pieces(parts: Vec<ContentPart>) -> Result<Vec<Piece>, RpcError> {
    parts.into_iter().enumerate().map(|(at, part)| piece(part, At(at))).collect()
}

fn piece(part: ContentPart, at: At) -> Result<Piece, RpcError> {
    match part.r#type {
        PartType::Text => part.text.map(Piece::Text).ok_or_else(|| at.missing("text")),
        PartType::Image => attached(part, Wanted::Image, at),
        PartType::File => attached(part, Wanted::Any, at),
        PartType::Resource => resource(part.resource.ok_or_else(|| at.missing("resource"))?, at),
        PartType::ResourceLink => {
            let uri = part.uri.ok_or_else(|| at.missing("uri"))?;
            Ok(Piece::Attached {
                wanted: Wanted::Any,
                name: part.name,
                given: at.link("uri", uri)?,
            })
        }
    }
}

fn attached(part: ContentPart, wanted: Wanted, at: At) -> Result<Piece, RpcError> {
    let given = match (part.path, part.data, part.uri.or(part.url)) {
        // Where there are bytes, an address says where they came from and no more.
        (None, Some(data), _) => Given::Bytes(at.decoded("data", &data)?),
        (Some(path), None, None) => match is_address(&path) {
            true => at.link("path", path)?,
            false => Given::Path(path),
        },
        (None, None, Some(uri)) => at.link("uri", uri)?,
        (None, None, None) => return Err(at.missing("path")),
        (Some(_), ..) => return Err(at.bad("path", "stands alone: no data and no uri beside it")),
    };
    Ok(Piece::Attached { wanted, name: part.name, given })
}

/// What a client has read itself. Its address is not looked at but for the last name in it.
fn resource(resource: Resource, at: At) -> Result<Piece, RpcError> {
    let name = resource.uri.rsplit('/').next().filter(|name| !name.is_empty());
    let name = name.map(str::to_owned);
    match (resource.text, resource.blob) {
        (Some(text), None) => match Taken::Text(text).named(name) {
            message::Part::Text(text) => Ok(Piece::Text(text)),
            _ => Err(at.bad("resource/text", "is no text")),
        },
        (None, Some(blob)) => {
            let given = Given::Bytes(at.decoded("resource/blob", &blob)?);
            Ok(Piece::Attached { wanted: Wanted::Any, name, given })
        }
        _ => Err(at.bad("resource", "has either a text or a blob")),
    }
}

/// Where a part stands in the content.
#[derive(Clone, Copy)]
struct At(usize);

impl At {
    fn bad(self, member: &str, complaint: &str) -> RpcError {
        let Self(at) = self;
        let name = member.replace('/', ".");
        RpcError::invalid_param(
            format!("/content/{at}/{member}"),
            format!("content.{at}.{name} {complaint}"),
        )
    }

    fn missing(self, member: &str) -> RpcError {
        self.bad(member, "is missing")
    }

    fn decoded(self, member: &str, text: &str) -> Result<Vec<u8>, RpcError> {
        if text.starts_with("data:") {
            return Err(self.bad(member, "is base64 alone, without data: and a type before it"));
        }
        BASE64.decode(text).map_err(|error| self.bad(member, &format!("is not base64: {error}")))
    }

    /// A place that an address names: a file of this machine, or something elsewhere.
    fn link(self, member: &str, uri: String) -> Result<Given, RpcError> {
        let Some(place) = uri.strip_prefix("file://") else {
            return match uri.starts_with("http://") || uri.starts_with("https://") {
                true => Ok(Given::Address(uri)),
                false => Err(self.bad(member, "is no address that is taken: file://… is")),
            };
        };
        let path = place.strip_prefix("localhost").unwrap_or(place);
        let path = path.starts_with('/').then(|| percent_decoded(path)).flatten();
        path.map(Given::Path).ok_or_else(|| self.bad(member, "names no file of this machine"))
    }
}

fn is_address(text: &str) -> bool {
    ["file://", "http://", "https://", "data:"].iter().any(|scheme| text.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What becomes of one part, or the complaint and where it is about.
    fn check(part: Value, expected: &str) {
        let content: Content = serde_json::from_value(json!([part.clone()])).unwrap();
        let Content::Parts(parts) = content else { panic!("{part} is no part") };
        let got = match pieces(parts) {
            Ok(pieces) => format!("{:?}", pieces[0]),
            Err(error) => {
                let path = error.data.unwrap()["path"].as_str().unwrap().to_owned();
                format!("{} @{path}", error.message)
            }
        };
        assert_eq!(got, expected, "{part}");
    }

    fn attached(wanted: &str, name: &str, given: &str) -> String {
        format!("Attached {{ wanted: {wanted}, name: {name}, given: {given} }}")
    }

    #[test]
    fn parts_of_our_own_are_read() {
        check(json!({"type": "text", "text": "a"}), "Text(\"a\")");
        check(json!({"type": "text"}), "content.0.text is missing @/content/0/text");
        check(
            json!({"type": "image", "path": "a.png"}),
            &attached("Image", "None", "Path(\"a.png\")"),
        );
        check(
            json!({"type": "file", "data": "QUI", "mime_type": "text/plain", "name": "n"}),
            &attached("Any", "Some(\"n\")", "Bytes([65, 66])"),
        );
        check(json!({"type": "file"}), "content.0.path is missing @/content/0/path");
        let both = "content.0.path stands alone: no data and no uri beside it @/content/0/path";
        check(json!({"type": "file", "path": "a", "data": "QUI="}), both);
        check(
            json!({"type": "image", "data": "data:image/png;base64,QUI="}),
            "content.0.data is base64 alone, without data: and a type before it @/content/0/data",
        );
        check(
            json!({"type": "image", "data": "?"}),
            "content.0.data is not base64: Invalid symbol 63, offset 0. @/content/0/data",
        );
    }

    #[test]
    fn parts_of_other_protocols_are_read() {
        check(
            json!({"type": "image", "data": "QUI=", "mimeType": "image/png", "uri": "x:y"}),
            &attached("Image", "None", "Bytes([65, 66])"),
        );
        let resource = |inside: Value| json!({"type": "resource", "resource": inside});
        check(
            resource(json!({"uri": "file:///a/b.txt", "mimeType": "text/plain", "text": "t"})),
            "Text(\"File b.txt:\\n\\nt\")",
        );
        check(
            resource(json!({"uri": "zed:///c.pdf", "blob": "QUI="})),
            &attached("Any", "Some(\"c.pdf\")", "Bytes([65, 66])"),
        );
        check(
            resource(json!({"uri": "x"})),
            "content.0.resource has either a text or a blob @/content/0/resource",
        );
        let link = |uri: &str| json!({"type": "resource_link", "uri": uri, "name": "n"});
        let found = |path: &str| attached("Any", "Some(\"n\")", path);
        check(link("file:///a%20b/%C3%A9"), &found("Path(\"/a b/é\")"));
        check(link("file://localhost/a"), &found("Path(\"/a\")"));
        let nowhere = "content.0.uri names no file of this machine @/content/0/uri";
        for uri in ["file://elsewhere/a", "file:///a%2", "file:///%ff", "file://"] {
            check(link(uri), nowhere);
        }
        check(link("https://x/a.png"), &found("Address(\"https://x/a.png\")"));
        check(
            link("ftp://x/a"),
            "content.0.uri is no address that is taken: file://… is @/content/0/uri",
        );
        let address = "Address(\"http://x/a\")";
        check(json!({"type": "image", "path": "http://x/a"}), &attached("Image", "None", address));
        check(json!({"type": "image", "url": "http://x/a"}), &attached("Image", "None", address));
    }
}
