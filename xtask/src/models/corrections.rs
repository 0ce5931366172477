//! What the table is known to have wrong, or not yet. Each with its reason; one that has no effect any more is an error,
//! so that this list does not outlive what it mends.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use nexus_models::catalogue::Entry;

type Entries = BTreeMap<String, Entry>;

pub fn apply(entries: &mut Entries) -> anyhow::Result<()> {
    for (missing, like) in MISSING {
        let relative = entries.get(like).with_context(|| format!("{like} is gone"))?;
        let entry = Entry { key: missing.into(), price: None, retires: None, ..relative.clone() };
        let before = entries.insert(missing.into(), entry);
        ensure!(before.is_none(), "{missing} is in the table by now: take it off the list");
    }
    let mut mended = 0;
    for (_, entry) in entries.iter_mut().filter(|(key, _)| is_replayed(key)) {
        let thinking = entry.thinking.get_or_insert_default();
        thinking.replayed_always = true;
        mended += 1;
    }
    ensure!(mended > 0, "no model of DeepSeek's is left");
    Ok(())
}

/// Announced and answering, but not in this version of the table; everything but the price is as with the other.
const MISSING: [(&str, &str); 3] = [
    ("anthropic/claude-fable-5-2", "anthropic/claude-fable-5-1"),
    ("anthropic/claude-mythos-5-2", "anthropic/claude-mythos-5-1"),
    ("openai/gpt-6.1-terra", "openai/gpt-6.1-sol"),
];

/// DeepSeek answers 400 to a later turn whose earlier calls come without what was thought before them. The table does not
/// say so. Its own service alone: who else runs the weights does not ask for it.
fn is_replayed(key: &str) -> bool {
    let id = key.strip_prefix("deepseek/").unwrap_or_default();
    id.starts_with("deepseek-v4") || matches!(id, "deepseek-reasoner" | "deepseek-flash")
}
