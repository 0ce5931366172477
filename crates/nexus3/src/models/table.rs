//! The list of models as a person reads it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use nexus_protocol::model::{ModelEntry, ModelPrice};

const HEAD: [&str; 8] =
    ["model", "provider", "window", "answer", "takes", "thinks", "$ in", "$ out"];

/// Columns that hold figures, which stand at their right.
const FIGURES: [usize; 4] = [2, 3, 6, 7];

pub fn draw(models: &[ModelEntry]) -> String {
    let rows: Vec<[String; 8]> = models.iter().map(row).collect();
    let mut widths = HEAD.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in std::iter::once(&HEAD.map(str::to_uppercase)).chain(&rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let space = " ".repeat(widths[column] - cell.chars().count());
            let (before, behind) = if FIGURES.contains(&column) {
                (space, String::new())
            } else {
                (String::new(), space)
            };
            let _ = write!(line, "{before}{cell}{behind}  ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let notes = notes(models);
    if !notes.is_empty() {
        let _ = write!(out, "\n{notes}");
    }
    out
}

fn row(model: &ModelEntry) -> [String; 8] {
    let sources = &model.sources;
    let marked = |figure: String, source: &str| match source {
        "assumed" => format!("{figure}?"),
        "family" => format!("{figure}~"),
        _ => format!("{figure} "),
    };
    let alias = match model.default {
        true => format!("{} *", model.alias),
        false => model.alias.clone(),
    };
    let output = model.max_output_tokens.map_or_else(
        || " ".to_owned(),
        |output| marked(tokens(output), &sources.max_output_tokens),
    );
    let price = |of: fn(&ModelPrice) -> f64| {
        let Some(price) = &model.price else { return "- ".to_owned() };
        let rises = if price.above.is_empty() { " " } else { "+" };
        dollars(of(price)) + rises
    };
    let more: Vec<_> = model.input.iter().filter(|it| *it != "text").map(String::as_str).collect();
    [
        alias,
        model.provider.clone(),
        marked(tokens(model.context_window), &sources.context_window),
        output,
        more.join(", "),
        thinks(model),
        price(|price| price.rates.input),
        price(|price| price.rates.output),
    ]
}

fn thinks(model: &ModelEntry) -> String {
    let reasoning = &model.reasoning;
    let asked = match (&reasoning.effort, reasoning.budget_tokens, reasoning.asked) {
        (Some(effort), ..) => format!("asked: {effort}"),
        (None, Some(budget), _) => format!("asked: {} tokens", tokens(budget)),
        (None, None, true) => "asked".to_owned(),
        (None, None, false) => String::new(),
    };
    let can = match (reasoning.kind.as_str(), reasoning.always_on) {
        ("none", _) => "",
        (_, true) => "always",
        (_, false) => "can",
    };
    let parts: Vec<_> =
        [can, &asked].into_iter().filter(|part| !part.is_empty()).map(str::to_owned).collect();
    parts.join(", ")
}

/// A number of tokens as people say it: `1M`, `1.05M`, `922k`, `8k`.
fn tokens(count: u32) -> String {
    let rounded = |number: f64| {
        let text = format!("{number:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}M", rounded((f64::from(count) / 10_000.0).floor() / 100.0)),
    }
}

/// At most four digits behind the point, and none that say nothing.
fn dollars(price: f64) -> String {
    let text = format!("{price:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What the marks mean, as far as they occur, and what a person should know.
fn notes(models: &[ModelEntry]) -> String {
    let mut notes = String::new();
    let has = |source: &str| {
        let of = |model: &ModelEntry| {
            let output =
                (model.max_output_tokens.is_some()).then_some(&model.sources.max_output_tokens);
            model.sources.context_window == source || output.is_some_and(|it| it == source)
        };
        models.iter().any(of)
    };
    if models.iter().any(|model| model.default) {
        notes += "* answers when no model is named\n";
    }
    if has("family") {
        notes += "~ as the nearest model has it that is known\n";
    }
    if has("assumed") {
        notes += "? assumed: nobody said it; nexus3 models refresh asks the providers\n";
    }
    if models.iter().any(|model| model.price.is_some()) {
        notes += "$ for a million tokens\n";
    }
    let rises = |model: &ModelEntry| model.price.as_ref().is_some_and(|it| !it.above.is_empty());
    if models.iter().any(rises) {
        notes += "+ and more when the input is long\n";
    }
    let without_key: BTreeSet<&str> =
        models.iter().filter(|it| !it.key_set).map(|model| model.provider.as_str()).collect();
    if !without_key.is_empty() {
        let names = without_key.into_iter().collect::<Vec<_>>().join(", ");
        let _ = writeln!(notes, "the key is not set for: {names}");
    }
    for model in models.iter().filter(|model| model.default || models.len() <= REMARKS_MAX) {
        if let Some(day) = &model.retires {
            let _ = writeln!(notes, "{} ends on {day}", model.alias);
        }
        if !model.wires.is_empty() && !model.wires.contains(&model.wire) {
            let (only, spoken) = (model.wires.join(" or "), &model.wire);
            let _ = writeln!(notes, "{} answers over {only} alone, not {spoken}", model.alias);
        }
    }
    notes
}

/// Of a longer list, what there is to say of each model would be longer than the list.
const REMARKS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use nexus_protocol::model::{ModelPriceAbove, ModelRates, ModelReasoning, ModelSources};

    use super::*;

    fn model(alias: &str) -> ModelEntry {
        let source = |name: &str| name.to_owned();
        ModelEntry {
            alias: alias.into(),
            provider: "p".into(),
            id: alias.into(),
            wire: "chat".into(),
            context_window: 128_000,
            max_output_tokens: None,
            input: vec!["text".into()],
            reasoning: ModelReasoning {
                kind: "none".into(),
                efforts: Vec::new(),
                always_on: false,
                asked: false,
                effort: None,
                budget_tokens: None,
            },
            capabilities: Vec::new(),
            price: None,
            tools: None,
            schemas: None,
            wires: Vec::new(),
            retires: None,
            sources: ModelSources {
                context_window: source("assumed"),
                max_output_tokens: source("assumed"),
                input: source("assumed"),
                reasoning: source("assumed"),
                price: source("assumed"),
            },
            available: true,
            reason: None,
            key_set: true,
            default: false,
        }
    }

    #[test]
    fn a_list_is_read_at_a_glance() {
        let rates =
            |input: f64| ModelRates { input, output: 10.5, cache_read: None, cache_write: None };
        let above = vec![ModelPriceAbove { tokens: 272_000, rates: rates(4.0) }];
        let mut known = ModelEntry {
            default: true,
            context_window: 1_050_000,
            max_output_tokens: Some(128_000),
            input: ["text", "image", "pdf"].map(String::from).to_vec(),
            price: Some(ModelPrice { rates: rates(2.0), above }),
            retires: Some("2027-01-31".into()),
            ..model("claude")
        };
        known.sources.context_window = "catalogue".into();
        known.sources.max_output_tokens = "family".into();
        known.reasoning.kind = "effort".into();
        known.reasoning.always_on = true;
        known.reasoning.asked = true;
        known.reasoning.effort = Some("high".into());
        let unknown = ModelEntry {
            provider: "own".into(),
            key_set: false,
            wires: vec!["responses".into()],
            ..model("qwen")
        };
        let expected = "\
MODEL     PROVIDER  WINDOW  ANSWER  TAKES       THINKS               $ IN  $ OUT
claude *  p         1.05M    128k~  image, pdf  always, asked: high    2+  10.5+
qwen      own        128k?                                             -      -

* answers when no model is named
~ as the nearest model has it that is known
? assumed: nobody said it; nexus3 models refresh asks the providers
$ for a million tokens
+ and more when the input is long
the key is not set for: own
claude ends on 2027-01-31
qwen answers over responses alone, not chat
";
        assert_eq!(draw(&[known, unknown]), expected);
    }

    #[test]
    fn numbers_are_short() {
        for (count, expected) in [
            (999, "999"),
            (1000, "1k"),
            (8192, "8k"),
            (999_999, "999k"),
            (1_000_000, "1M"),
            (1_048_576, "1.04M"),
            (10_000_000, "10M"),
        ] {
            assert_eq!(tokens(count), expected);
        }
        for (price, expected) in [(0.0, "0"), (2.0, "2"), (0.175, "0.175"), (0.00001, "0")] {
            assert_eq!(dollars(price), expected);
        }
    }
}
