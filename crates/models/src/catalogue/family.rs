//! Models by names that the table does not have: with a date, through a router, or newer than the table.

use super::{By, Entry, Known, Shop, Table};

/// Names of vendors in the ids of routers and gateways, and the table's.
const VENDORS: [(&str, &str); 21] = [
    ("anthropic", "anthropic"),
    ("azure", "azure"),
    ("bedrock", "bedrock"),
    ("cerebras", "cerebras"),
    ("dashscope", "dashscope"),
    ("deepseek", "deepseek"),
    ("deepseek-ai", "deepseek"),
    ("gemini", "gemini"),
    ("google", "gemini"),
    ("groq", "groq"),
    ("mistral", "mistral"),
    ("mistralai", "mistral"),
    ("moonshot", "moonshot"),
    ("moonshotai", "moonshot"),
    ("openai", "openai"),
    ("qwen", "dashscope"),
    ("vertex_ai", "vertex"),
    ("x-ai", "xai"),
    ("xai", "xai"),
    ("z-ai", "zai"),
    ("zai", "zai"),
];

/// Vendors whose models nobody else can run: behind a gateway they are what they are at home. The window of a model
/// whose weights are free is that of the server that runs it.
const CLOSED: [&str; 4] = ["anthropic", "openai", "gemini", "xai"];

pub(super) fn known(table: Table<'_>, shop: Shop, id: &str) -> Option<Known> {
    match shop {
        Shop::Vendors(vendors) => {
            let own = vendors.first().and_then(|vendor| named(table, vendor, id));
            own.or_else(|| vendors.iter().find_map(|vendor| spelled(table, vendor, id)))
                .or_else(|| vendors.iter().find_map(|vendor| sibling(table, vendor, id)))
        }
        Shop::Router => elsewhere(table, id),
        Shop::Unknown => elsewhere(table, id)
            .or_else(|| CLOSED.iter().find_map(|vendor| spelled(table, vendor, id))),
    }
}

fn named(table: Table<'_>, vendor: &str, id: &str) -> Option<Known> {
    let entry = table.find(&format!("{vendor}/{id}"))?;
    Some(Known { entry, by: By::Name })
}

/// The model under its name, or its name without what does not tell it from others.
fn spelled(table: Table<'_>, vendor: &str, id: &str) -> Option<Known> {
    let id = id.strip_prefix("models/").unwrap_or(id);
    let mut names = [Some(id), undated(id)].into_iter().flatten();
    let entry = names.find_map(|name| table.find(&format!("{vendor}/{name}")))?;
    Some(Known { entry, by: By::Family })
}

/// The model that a router's or a gateway's `vendor/id` means. Routers write versions with a point where makers write
/// them with a dash, and say behind a colon how the model is served.
fn elsewhere(table: Table<'_>, id: &str) -> Option<Known> {
    let (vendor, id) = id.split_once('/')?;
    let (_, vendor) = VENDORS.iter().find(|(name, _)| *name == vendor)?;
    let (plain, served) = match id.split_once(':') {
        Some((plain, served)) if *vendor != "bedrock" => (plain, Some(served)),
        _ => (id, None),
    };
    let dashed = plain.replace('.', "-");
    let names = [plain, &dashed];
    let found = names.iter().find_map(|name| spelled(table, vendor, name));
    let found = found.or_else(|| names.iter().find_map(|name| sibling(table, vendor, name)));
    let mut known = found?;
    if served.is_some() {
        // Free, faster or longer: the price is another one.
        known.entry.price = None;
    }
    Some(known)
}

/// The nearest relative of a model that is newer, or older, than the table: it has most in common with it, but not the
/// price and not the end.
fn sibling(table: Table<'_>, vendor: &str, id: &str) -> Option<Known> {
    let key = format!("{vendor}/{}", undated(id).unwrap_or(id));
    let around = table.neighbours(&key).into_iter().flatten();
    let alike = |entry: &Entry| pieces_in_common(&entry.key, &key);
    // Of two as near, the one before: a model is mostly like the one that it followed.
    let nearest = around.rev().max_by_key(alike)?;
    let is_near = alike(&nearest) >= SIBLING_PIECES_MIN;
    let entry = Entry { price: None, retires: None, ..nearest };
    is_near.then_some(Known { entry, by: By::Family })
}

/// The vendor, the name and a part of its version or kind: `anthropic`, `claude`, `opus`.
const SIBLING_PIECES_MIN: usize = 3;

fn pieces_in_common(one: &str, other: &str) -> usize {
    let pieces = |key| str::split(key, ['/', '-', '.', '@', ':']);
    pieces(one).zip(pieces(other)).take_while(|(one, other)| one == other).count()
}

/// An id without the date at its end, or the word that stands for the newest.
fn undated(id: &str) -> Option<&str> {
    const DATED: [&str; 6] =
        ["-####-##-##", "-########", "@########", "-latest", "@latest", "@default"];
    let rest = DATED.iter().find_map(|end| {
        let at = id.len().checked_sub(end.len())?;
        let (rest, found) = (id.get(..at)?, id.get(at..)?);
        let fits = |(byte, wanted): (u8, u8)| match wanted {
            b'#' => byte.is_ascii_digit(),
            wanted => byte == wanted,
        };
        found.bytes().zip(end.bytes()).all(fits).then_some(rest)
    });
    rest.filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = concat!(
        "{}\n",
        r#"{"key":"anthropic/claude-fable-5-1","price":{"input":1,"output":1}}"#,
        "\n",
        r#"{"key":"anthropic/claude-opus-4-5","window":5}"#,
        "\n",
        r#"{"key":"anthropic/claude-opus-4-8","window":8}"#,
        "\n",
        r#"{"key":"anthropic/claude-sonnet-4-5","price":{"input":1,"output":1}}"#,
        "\n",
        r#"{"key":"azure/gpt-5"}"#,
        "\n",
        r#"{"key":"deepseek/deepseek-chat"}"#,
        "\n",
        r#"{"key":"gemini/gemini-3.8-flash"}"#,
        "\n",
        r#"{"key":"openai/gpt-5"}"#,
        "\n",
        r#"{"key":"openai/gpt-5.6-sol"}"#,
        "\n",
    );

    #[track_caller]
    fn check(shop: Shop, id: &str, expected: Option<(&str, By)>) {
        let known = known(Table::new(TABLE.as_bytes()), shop, id);
        let found = known.as_ref().map(|known| (known.entry.key.as_str(), known.by));
        assert_eq!(found, expected, "{id}");
    }

    const ANTHROPIC: Shop = Shop::Vendors(&["anthropic"]);
    const OPENAI: Shop = Shop::Vendors(&["openai"]);

    #[test]
    fn a_name_is_a_name_and_its_spellings_are_its_familys() {
        let sonnet = "anthropic/claude-sonnet-4-5";
        check(ANTHROPIC, "claude-sonnet-4-5", Some((sonnet, By::Name)));
        for id in [
            "claude-sonnet-4-5-20250929",
            "claude-sonnet-4-5-2025-09-29",
            "claude-sonnet-4-5@20250929",
            "claude-sonnet-4-5-latest",
            "claude-sonnet-4-5@default",
        ] {
            check(ANTHROPIC, id, Some((sonnet, By::Family)));
        }
        let gemini = Some(("gemini/gemini-3.8-flash", By::Family));
        check(Shop::Vendors(&["gemini"]), "models/gemini-3.8-flash", gemini);
    }

    #[test]
    fn what_is_newer_than_the_table_has_its_nearest_relative() {
        check(ANTHROPIC, "claude-fable-5-2", Some(("anthropic/claude-fable-5-1", By::Family)));
        check(ANTHROPIC, "claude-opus-6", Some(("anthropic/claude-opus-4-8", By::Family)));
        check(ANTHROPIC, "claude-opus-4-1", Some(("anthropic/claude-opus-4-5", By::Family)));
        check(ANTHROPIC, "claude-opus-4-9", Some(("anthropic/claude-opus-4-8", By::Family)));
        check(OPENAI, "gpt-5.6-terra", Some(("openai/gpt-5.6-sol", By::Family)));
        check(OPENAI, "gpt-7", None);
        check(OPENAI, "something-else", None);
        check(OPENAI, "", None);
        // A relative's price is not its own.
        let table = Table::new(TABLE.as_bytes());
        assert_eq!(known(table, ANTHROPIC, "claude-fable-5-2").unwrap().entry.price, None);
        let dated = known(table, ANTHROPIC, "claude-sonnet-4-5-20250929").unwrap();
        assert!(dated.entry.price.is_some());
    }

    #[test]
    fn a_router_says_whose_the_model_is() {
        let sonnet = Some(("anthropic/claude-sonnet-4-5", By::Family));
        check(Shop::Router, "anthropic/claude-sonnet-4.5", sonnet);
        check(Shop::Router, "anthropic/claude-sonnet-4.5:thinking", sonnet);
        check(
            Shop::Router,
            "google/gemini-3.8-flash",
            Some(("gemini/gemini-3.8-flash", By::Family)),
        );
        check(Shop::Router, "openrouter/auto", None);
        check(Shop::Router, "claude-sonnet-4-5", None);
        let table = Table::new(TABLE.as_bytes());
        let price = |id: &str| known(table, Shop::Router, id).unwrap().entry.price;
        assert!(price("anthropic/claude-sonnet-4.5").is_some());
        assert_eq!(price("anthropic/claude-sonnet-4.5:free"), None);
    }

    #[test]
    fn behind_an_unknown_address_only_what_nobody_else_can_run_is_recognised() {
        check(Shop::Unknown, "gpt-5", Some(("openai/gpt-5", By::Family)));
        check(Shop::Unknown, "openai/gpt-5", Some(("openai/gpt-5", By::Family)));
        check(Shop::Unknown, "gpt-5-2025-08-07", Some(("openai/gpt-5", By::Family)));
        check(Shop::Unknown, "deepseek-chat", None);
        check(Shop::Unknown, "gpt-5.6-terra", None);
    }

    #[test]
    fn a_second_vendor_is_asked_for_the_name_before_the_first_for_a_relative() {
        let azure = Shop::Vendors(&["azure", "openai"]);
        check(azure, "gpt-5", Some(("azure/gpt-5", By::Name)));
        check(azure, "gpt-5.6-sol", Some(("openai/gpt-5.6-sol", By::Family)));
        check(azure, "my-deployment", None);
    }

    #[test]
    fn only_dates_are_dates() {
        for (id, expected) in [
            ("m-20250929", Some("m")),
            ("m-2025092", None),
            ("m-2025-9-29", None),
            ("-20250929", None),
            ("m-lätest", None),
            ("ä", None),
            ("m-latest", Some("m")),
        ] {
            assert_eq!(undated(id), expected, "{id}");
        }
    }
}
