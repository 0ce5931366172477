//! Servers that one agent was connected to, beside those of the configuration.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::ServerSource;

/// Of one entry, as JSON. Longer than any that means something.
pub const OWN_BYTES_MAX: usize = 64 << 10;

/// Where an entry has what is nobody's business.
const SECRET: [&str; 2] = ["env", "headers"];

/// Words before a key that are no part of it.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// The servers that an agent has of its own, and of its ancestors' those that it was handed by name; the nearest first.
pub type OwnServers = Arc<[OwnServer]>;

/// A server of one agent, as it is kept with it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnServer {
    /// Tells it from all others, whatever they are called.
    pub id: u64,
    pub name: String,
    pub source: ServerSource,
    /// Its entry, as it stands in a configuration. Values that are written out are null.
    pub config: Map<String, Value>,
    /// The entry with those values, where it has any, or is not kept. It lives in memory alone, and so long its agent stays
    /// there.
    #[serde(skip)]
    pub whole: Option<Arc<Map<String, Value>>>,
}

impl OwnServer {
    pub fn new(name: String, source: ServerSource, config: Map<String, Value>) -> Self {
        let mut kept = config.clone();
        for key in SECRET {
            let Some(Value::Object(values)) = kept.get_mut(key) else { continue };
            let written_out = |value: &&mut Value| !value.as_str().is_some_and(names_variables);
            values.values_mut().filter(written_out).for_each(|value| *value = Value::Null);
        }
        let has_values = kept != config || source == ServerSource::Client;
        Self {
            id: crate::random_number(),
            name,
            source,
            config: kept,
            whole: has_values.then(|| Arc::new(config)),
        }
    }

    /// The entry as it was given, as far as that is known.
    pub fn entry(&self) -> &Map<String, Value> {
        self.whole.as_deref().unwrap_or(&self.config)
    }

    /// The values that are not known any more.
    pub fn lost(&self) -> Vec<String> {
        if self.whole.is_some() {
            return Vec::new();
        }
        let of = |key: &'static str| {
            let values = self.config.get(key).and_then(Value::as_object).into_iter().flatten();
            values
                .filter(|(_, value)| value.is_null())
                .map(move |(name, _)| format!("{key}.{name}"))
        };
        SECRET.into_iter().flat_map(of).collect()
    }

    /// Whether it is connected to the same as `other`.
    pub fn is_like(&self, other: &Self) -> bool {
        self.source == other.source && self.entry() == other.entry()
    }

    /// About how much memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let bytes = |config: &Map<String, Value>| {
            serde_json::to_string(config).map_or(0, |text| text.len())
        };
        let whole = self.whole.as_deref().map_or(0, bytes);
        size_of::<Self>() + self.name.len() + bytes(&self.config) + whole
    }
}

/// Values of `env` and `headers` are not for logs.
impl fmt::Debug for OwnServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("OwnServer");
        shown.field("id", &self.id).field("name", &self.name).field("source", &self.source);
        shown.finish_non_exhaustive()
    }
}

/// What a client brought along is there for as long as the client is, and is not kept.
pub(crate) fn keep<S: Serializer>(servers: &[OwnServer], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(servers.iter().filter(|it| it.source != ServerSource::Client))
}

pub(crate) fn keeps_none(servers: &[OwnServer]) -> bool {
    servers.iter().all(|it| it.source == ServerSource::Client)
}

/// Whether a value is nothing but names of variables, so that it can be found again.
fn names_variables(value: &str) -> bool {
    let scheme = |scheme: &&str| {
        value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let mut rest = SCHEMES.iter().find(|it| scheme(it)).map_or(value, |it| &value[it.len()..]);
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    while let Some((name, after)) = rest.strip_prefix("${").and_then(|it| it.split_once('}')) {
        if !is_name(name) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own(source: ServerSource, config: Value) -> OwnServer {
        OwnServer::new("s".into(), source, config.as_object().unwrap().clone())
    }

    #[test]
    fn values_are_not_kept_but_where_to_find_them_is() {
        for (value, kept) in [
            ("", true),
            ("${TOKEN}", true),
            ("${A}${B_2}", true),
            ("Bearer ${TOKEN}", true),
            ("bearer ${TOKEN}", true),
            ("hush", false),
            ("Bearer hush", false),
            ("hush${TOKEN}", false),
            ("${TOKEN}hush", false),
            ("${TOKEN:-hush}", false),
            ("${hush", false),
            ("Bearer é${A}", false),
        ] {
            let own = own(ServerSource::Agent, json!({"command": "x", "env": {"K": value}}));
            let stored = serde_json::to_string(&own).unwrap();
            assert_eq!(own.whole.is_none(), kept, "{value:?}");
            assert!(!stored.contains("hush") && !format!("{own:?}").contains("hush"), "{value:?}");
            assert_eq!(own.entry()["env"]["K"], value);
            let read: OwnServer = serde_json::from_str(&stored).unwrap();
            let lost = if kept { Vec::new() } else { vec!["env.K".to_owned()] };
            assert_eq!(read.lost(), lost, "{value:?}");
        }
    }

    #[test]
    fn what_a_client_brought_along_is_not_kept() {
        #[derive(Serialize)]
        struct Kept(#[serde(serialize_with = "keep")] Vec<OwnServer>);
        let servers = vec![
            own(ServerSource::Client, json!({"command": "x"})),
            own(ServerSource::Agent, json!({"command": "y"})),
        ];
        assert!(keeps_none(&servers[..1]) && !keeps_none(&servers));
        assert!(servers[0].whole.is_some() && servers[1].whole.is_none());
        let kept = serde_json::to_value(Kept(servers)).unwrap();
        assert_eq!(kept.as_array().unwrap().len(), 1);
        assert_eq!(kept[0]["config"]["command"], "y");
    }

    #[test]
    fn the_same_entry_is_the_same_connection() {
        let entry =
            |value: &str| own(ServerSource::Agent, json!({"command": "x", "env": {"K": value}}));
        assert!(entry("a").is_like(&entry("a")) && entry("a").id != entry("a").id);
        assert!(!entry("a").is_like(&entry("b")), "another key is another connection");
    }
}
