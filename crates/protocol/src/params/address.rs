//! Parameters read past the member that names their agent.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::CowStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::value::RawValue;

pub const AGENT_ID: &str = "agent_id";

/// An object in which `agent_id` is set aside: whatever is made of the object does not see it.
pub struct BesideAddress<'s, 'de, D> {
    pub json: D,
    pub agent_id: &'s mut Option<&'de RawValue>,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for BesideAddress<'_, 'de, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.json.deserialize_map(Members { visitor, agent_id: self.agent_id })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Shows a visitor, or a reader of members, all of them but the address.
struct Members<'s, 'de, V> {
    visitor: V,
    agent_id: &'s mut Option<&'de RawValue>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Members<'_, 'de, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Members { visitor: map, agent_id: self.agent_id })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'_, 'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(Name(name)) = self.visitor.next_key()? {
            if name != AGENT_ID {
                return seed.deserialize(CowStrDeserializer::new(name)).map(Some);
            }
            if self.agent_id.replace(self.visitor.next_value()?).is_some() {
                return Err(A::Error::duplicate_field(AGENT_ID));
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.visitor.next_value_seed(seed)
    }
}

/// A member's name, borrowed from the text where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
