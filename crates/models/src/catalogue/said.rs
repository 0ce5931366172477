//! What services said of their models when they were asked, in the form of the shipped table, by the name of the provider
//! in the configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Entry, Table};

/// Of one provider. The largest router has less than a thousand.
pub const MODELS_MAX: usize = 4096;

/// Of all together.
pub const BYTES_MAX: usize = 4 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said(Vec<u8>);

/// The first line.
#[derive(Debug, Default, Serialize, Deserialize)]
struct First {
    #[serde(default)]
    providers: BTreeMap<String, Asked>,
}

/// Who was asked, and when. Another address is another service, of which nothing was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub base_url: String,
    /// A time as in RFC 3339.
    pub at: String,
}

impl Said {
    /// Takes any bytes: what cannot be read says nothing.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// When the provider at this address was asked last.
    pub fn asked(&self, provider: &str, base_url: &str) -> Option<Asked> {
        let asked = self.first().providers.remove(provider);
        asked.filter(|asked| asked.base_url == base_url)
    }

    pub fn find(&self, provider: &str, base_url: &str, id: &str) -> Option<Entry> {
        let entry = self.table().find(&format!("{provider}/{id}"))?;
        self.asked(provider, base_url).map(|_| entry)
    }

    /// Everything the provider at this address said.
    pub fn models(&self, provider: &str, base_url: &str) -> impl Iterator<Item = Entry> {
        let asked = self.asked(provider, base_url).is_some();
        let prefix = asked.then(|| format!("{provider}/"));
        prefix.into_iter().flat_map(|prefix| self.table().starting_with(&prefix))
    }

    /// The same with what a provider said just now in place of what it said before. `models` are its own, whose keys are
    /// their ids as it knows them; what is beyond the bounds is left out.
    pub fn with(&self, provider: &str, asked: Asked, models: Vec<Entry>) -> Self {
        let mut first = self.first();
        first.providers.insert(provider.to_owned(), asked);
        let own = format!("{provider}/");
        let others = self.table().starting_with("").filter(|entry| !entry.key.starts_with(&own));
        let mut entries: BTreeMap<String, Entry> =
            others.map(|entry| (entry.key.clone(), entry)).collect();
        for entry in models.into_iter().filter(|entry| is_id(&entry.key)).take(MODELS_MAX) {
            let key = format!("{own}{}", entry.key);
            entries.insert(key.clone(), Entry { key, ..entry });
        }
        let mut bytes = serde_json::to_vec(&first).unwrap_or_default();
        for entry in entries.values() {
            let line = serde_json::to_vec(entry).unwrap_or_default();
            if bytes.len() + 1 + line.len() >= BYTES_MAX {
                break;
            }
            bytes.push(b'\n');
            bytes.extend(line);
        }
        bytes.push(b'\n');
        Self(bytes)
    }

    fn table(&self) -> Table<'_> {
        Table::new(&self.0)
    }

    fn first(&self) -> First {
        serde_json::from_slice(self.table().first_line()).unwrap_or_default()
    }
}

/// Whether a key can be searched for as it is written: JSON would write a quote or a control character otherwise.
fn is_id(id: &str) -> bool {
    const ID_BYTES_MAX: usize = 256;
    !id.is_empty()
        && id.len() <= ID_BYTES_MAX
        && !id.chars().any(|it| it.is_control() || it == '"' || it == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(base_url: &str) -> Asked {
        Asked { base_url: base_url.into(), at: "2026-11-16T00:00:00Z".into() }
    }

    fn entry(id: &str, window: u32) -> Entry {
        Entry { key: id.into(), window: Some(window), ..Entry::default() }
    }

    #[test]
    fn what_was_said_is_found_by_provider_and_address() {
        let said = Said::default()
            .with("router", asked("http://r"), vec![entry("z/m", 2), entry("a/m", 1)])
            .with("own", asked("http://o"), vec![entry("m", 3)]);
        let window = |provider: &str, url: &str, id: &str| {
            said.find(provider, url, id).and_then(|entry| entry.window)
        };
        assert_eq!(window("router", "http://r", "z/m"), Some(2));
        assert_eq!(window("own", "http://o", "m"), Some(3));
        assert_eq!(window("own", "http://r", "m"), None, "another service now");
        assert_eq!(window("own", "http://o", "z/m"), None);
        assert_eq!(said.models("router", "http://r").count(), 2);
        assert_eq!(said.models("router", "http://o").count(), 0);
        assert_eq!(said.asked("own", "http://o"), Some(asked("http://o")));
    }

    #[test]
    fn a_second_answer_replaces_the_first() {
        let said = Said::default()
            .with("p", asked("http://p"), vec![entry("old", 1)])
            .with("p2", asked("http://p"), vec![entry("m", 1)])
            .with("p", asked("http://p"), vec![entry("new", 1)]);
        let keys: Vec<_> = said.models("p", "http://p").map(|entry| entry.key).collect();
        assert_eq!(keys, ["p/new"]);
        assert!(said.find("p2", "http://p", "m").is_some());
    }

    #[test]
    fn what_is_no_id_or_too_much_is_left_out() {
        let odd = vec![entry("", 1), entry("a\"b", 1), entry("a\nb", 1), entry("m", 1)];
        let said = Said::default().with("p", asked("u"), odd);
        assert_eq!(said.models("p", "u").count(), 1);

        let many = |count: usize| (0..count).map(|number| entry(&number.to_string(), 1)).collect();
        for (count, expected) in [(MODELS_MAX, MODELS_MAX), (MODELS_MAX + 1, MODELS_MAX)] {
            let said = Said::default().with("p", asked("u"), many(count));
            assert_eq!(said.models("p", "u").count(), expected);
        }
        // Long lines meet the other bound first.
        let long = (0..MODELS_MAX).map(|number| Entry {
            retires: Some("x".repeat(2048)),
            ..entry(&number.to_string(), 1)
        });
        let said = Said::default().with("p", asked("u"), long.collect());
        assert!(said.as_bytes().len() <= BYTES_MAX);
        let count = said.models("p", "u").count();
        assert!(count > 1000 && count < MODELS_MAX, "{count}");
    }

    #[test]
    fn damaged_bytes_say_nothing() {
        for bytes in ["", "\n\n", "[]\n{\"key\":\"p/m\"}", "{\"providers\":1}\n{\"key\":\"p/m\"}\n"]
        {
            let said = Said::from_bytes(bytes.into());
            assert_eq!(said.find("p", "u", "m"), None, "{bytes}");
            assert!(said.with("p", asked("u"), vec![entry("m", 1)]).find("p", "u", "m").is_some());
        }
    }
}
