//! Results that many calls share.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Deserializer;
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// A value whose JSON is made once, however often it is sent. On the wire it is the value itself.
#[derive(Debug)]
pub struct Shared<T>(Arc<(T, OnceLock<Box<RawValue>>)>);

impl<T> Shared<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new((value, OnceLock::new())))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (value, encoded) = &*self.0;
        let raw = match encoded.get() {
            Some(raw) => raw,
            None => {
                let raw = to_raw_value(value).map_err(S::Error::custom)?;
                encoded.get_or_init(|| raw)
            }
        };
        raw.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

impl<T: JsonSchema> JsonSchema for Shared<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
