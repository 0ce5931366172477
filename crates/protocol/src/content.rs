//! What is said to an agent: a text, or parts with images and files among them. The shapes of the Model Context Protocol
//! and of the Agent Client Protocol are taken too.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::params::object::{self, Object};
use crate::params::{BLANK, NonBlank};
use crate::schema::{has, lacks, rule, says};

/// Most parts of a message. Ten times as many as it may have attachments, and a text around each.
pub const PARTS_MAX: usize = 256;

/// A text that is not blank, or a list of parts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    Text(NonBlank),
    Parts(Vec<ContentPart>),
}

/// A part of what is said. Which members it has depends on `type`: `text` has `text`; `image` and `file` have a `path`, or
/// `data` with `mime_type`; `resource` and `resource_link` are as in the Model Context Protocol.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("allOf" = members_by_type()))]
pub struct ContentPart {
    pub r#type: PartType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Absolute, or relative to the agent's directory. It is read with the agent's permissions, whoever names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The bytes in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("contentEncoding" = "base64"))]
    pub data: Option<String>,
    /// What the bytes are said to be. They are looked at, whatever it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The same, as the Model Context Protocol calls it.
    #[serde(default, rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub mime_type_too: Option<String>,
    /// What it is called; a path's last name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of a `resource_link`, or of an image without data: `file://…`, which is a path. Other addresses are refused, unless
    /// `images.allow_urls` is set; then the model's service fetches the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// The same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(
        default,
        deserialize_with = "object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub resource: Option<Resource>,
    /// Of a `resource_link`; passed over, as the next three are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
    /// Passed over.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// Which members a part of each type has.
fn members_by_type() -> Value {
    let both = |one: Value, other: Value| json!({"allOf": [one, other]});
    let attached = json!({"oneOf": [
        both(has(&["path"]), lacks(&["data", "uri", "url"])),
        both(has(&["data"]), lacks(&["path"])),
        both(json!({"anyOf": [has(&["uri"]), has(&["url"])]}), lacks(&["path", "data"])),
    ]});
    let only = |one: &str, other: &str| both(has(&[one]), lacks(&[other]));
    let resource = json!({"properties": {"resource": {
        "type": "object", "oneOf": [only("text", "blob"), only("blob", "text")],
    }}, "required": ["resource"]});
    json!([
        rule(says("type", &["text"]), has(&["text"])),
        rule(says("type", &["image", "file"]), attached),
        rule(says("type", &["resource"]), resource),
        rule(says("type", &["resource_link"]), has(&["uri"])),
    ])
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartType {
    #[default]
    Text,
    Image,
    File,
    Resource,
    ResourceLink,
}

/// What a part of the type `resource` holds: a text, or bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Its last name is what it is called. It is not fetched.
    pub uri: String,
    #[serde(default, rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("contentEncoding" = "base64"))]
    pub blob: Option<String>,
    /// Passed over.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

impl ContentPart {
    pub fn text(text: impl Into<String>) -> Self {
        Self { r#type: PartType::Text, text: Some(text.into()), ..Self::default() }
    }

    /// A file of whatever kind.
    pub fn file(path: impl Into<String>) -> Self {
        Self { r#type: PartType::File, path: Some(path.into()), ..Self::default() }
    }
}

impl From<NonBlank> for Content {
    fn from(text: NonBlank) -> Self {
        Self::Text(text)
    }
}

/// Told by its JSON type, so that what is wrong inside is said of the part it is in.
impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Said;

        impl<'de> Visitor<'de> for Said {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of parts")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Content, E> {
                self.visit_string(text.to_owned())
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Content, E> {
                NonBlank::new(text).map(Content::Text).ok_or_else(|| E::custom(BLANK))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
                let mut parts = Vec::new();
                while let Some(Object(part)) = list.next_element()? {
                    if parts.len() == PARTS_MAX {
                        let most = format_args!("content has at most {PARTS_MAX} parts");
                        return Err(A::Error::custom(most));
                    }
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
        }

        deserializer.deserialize_any(Said)
    }
}

impl JsonSchema for Content {
    fn schema_name() -> Cow<'static, str> {
        "Content".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (text, part) =
            (NonBlank::json_schema(generator), generator.subschema_for::<ContentPart>());
        schemars::json_schema!({
            "description": "A text that is not blank, or a list of parts.",
            "anyOf": [
                text,
                {"type": "array", "items": part, "minItems": 1, "maxItems": PARTS_MAX},
            ],
        })
    }
}

/// `%20` is a blank. `None` for what is no UTF-8, or half an escape.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}
