//! Calls that are carried out once, however often they are made.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::params::{BLANK, is_blank};

/// Longest key. An UUID has 36 bytes; names that people make up are longer.
pub const KEY_BYTES_MAX: usize = 255;

/// Names a call for whoever makes it again: not blank, at most [`KEY_BYTES_MAX`] bytes, no control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct IdempotencyKey(String);

/// What a call says of being made again.
#[derive(Clone, Debug)]
pub struct Once<'a> {
    pub key: &'a IdempotencyKey,
    /// Where the key stands in the parameters, as a JSON pointer.
    pub path: &'static str,
    /// Where the text of a streamed call stands in its result, as a JSON pointer; `None` for a call that does not stream.
    pub text: Option<&'static str>,
}

impl IdempotencyKey {
    /// The error is what is wrong with it; the parameter's name goes before it.
    pub fn new(text: impl Into<String>) -> Result<Self, String> {
        let text = text.into();
        match text.len() {
            _ if is_blank(&text) => Err(BLANK.into()),
            got if got > KEY_BYTES_MAX => {
                Err(format!("must be at most {KEY_BYTES_MAX} bytes long, got: {got}"))
            }
            _ if text.chars().any(char::is_control) => {
                Err("must not have control characters".into())
            }
            _ => Ok(Self(text)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for IdempotencyKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl JsonSchema for IdempotencyKey {
    fn schema_name() -> Cow<'static, str> {
        "IdempotencyKey".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": KEY_PATTERN
        })
    }
}

/// No control character, and one that is no white space.
pub(crate) const KEY_PATTERN: &str = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
