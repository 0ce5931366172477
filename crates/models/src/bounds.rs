//! How much of an answer is taken. A service that never ends, by mistake or by malice, must cost one call and not the
//! memory of the server.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, SeqAccess, Visitor};
use serde_json::Value;

/// What one answer may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// What a model says in one answer: its text, and its tool calls with their arguments. A million tokens.
    pub answer_bytes_max: u32,
    /// One event of it. Some services send an answer in a single one.
    pub event_bytes_max: u32,
    /// All that is sent for one answer: what is said, its envelope, pings, comments, and thoughts that are not passed
    /// on. The longest answers there are have 128,000 tokens, and each takes up to 700 bytes of envelope.
    pub body_bytes_max: u32,
    /// Tool calls of one answer. Models make a handful.
    pub calls_max: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            answer_bytes_max: 4 << 20,
            event_bytes_max: 4 << 20,
            body_bytes_max: 256 << 20,
            calls_max: 256,
        }
    }
}

/// Entries that one event may list: choices, or fragments of tool calls. An empty one has two bytes on the wire and a
/// hundred in memory.
const LISTED_MAX: usize = 1024;

/// A list of an event, which may also be null.
pub(super) fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_any(Few(PhantomData))
}

struct Few<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {LISTED_MAX} entries")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            if entries.len() == LISTED_MAX {
                return Err(de::Error::invalid_length(LISTED_MAX + 1, &self));
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// What a service says beside its answer, if it can be read: the bill must not cost the answer.
pub fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_an_event_just_under_and_just_over() {
        #[derive(serde::Deserialize)]
        struct Event {
            #[serde(default, deserialize_with = "few")]
            list: Vec<u8>,
        }
        let read = |text: &str| serde_json::from_str::<Event>(text).map(|event| event.list.len());
        let of = |count: usize| format!("{{\"list\":[{}]}}", vec!["1"; count].join(","));
        assert_eq!(read("{}").unwrap(), 0);
        assert_eq!(read("{\"list\":null}").unwrap(), 0);
        assert_eq!(read(&of(LISTED_MAX)).unwrap(), LISTED_MAX);
        let error = read(&of(LISTED_MAX + 1)).unwrap_err().to_string();
        assert!(error.contains("a list of at most 1024 entries"), "{error}");
        assert!(read("{\"list\":{}}").is_err());
    }

    #[test]
    fn what_cannot_be_read_beside_an_answer_is_passed_over() {
        #[derive(serde::Deserialize)]
        struct Event {
            #[serde(default, deserialize_with = "lenient")]
            count: Option<u64>,
        }
        for (said, count) in [
            ("{}", None),
            ("{\"count\":7}", Some(7)),
            ("{\"count\":null}", None),
            ("{\"count\":\"7\"}", None),
            ("{\"count\":-7}", None),
            ("{\"count\":{\"a\":[1]}}", None),
        ] {
            assert_eq!(serde_json::from_str::<Event>(said).unwrap().count, count, "{said}");
        }
    }
}
