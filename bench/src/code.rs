//! `validate_code`: one check at a time in every language, and a batch against the same calls one after another.

use std::time::Instant;

use anyhow::ensure;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::Bench;
use crate::client::{Until, hammer, post};
use crate::server::{Server, config_without_model};
use crate::stats::{median, ms};
use crate::table::{Row, Table};

const LINES: usize = 200;
const BATCH: usize = 100;

/// Some lines of everyday code in each language, with rules where there are some. Repeated until there are enough.
const SAMPLES: [(&str, &str, &[&str]); 17] = [
    (
        "javascript",
        "export function f(list) {\n  const total = list.reduce((sum, it) => sum + it.price * it.count, 0);\n  if (total === 0) {\n    return null;\n  }\n  return { total, name: `sum of ${list.length}` };\n}\n",
        &["no-unused-vars", "no-undef", "eqeqeq", "prefer-const", "no-unreachable"],
    ),
    (
        "typescript",
        "export function f(list: Array<{ price: number; count: number }>): number | null {\n  const total = list.reduce((sum, it) => sum + it.price * it.count, 0);\n  if (total === 0) {\n    return null;\n  }\n  return total as number;\n}\n",
        &["no-unused-vars", "no-undef", "eqeqeq", "prefer-const", "no-unreachable"],
    ),
    (
        "jsx",
        "export const F = ({ items }) => (\n  <ul>\n    {items.map((it) => <li key={it.id}>{it.name}</li>)}\n  </ul>\n);\n",
        &[],
    ),
    (
        "tsx",
        "export const F = ({ items }: { items: Item[] }) => (\n  <ul>\n    {items.map((it) => <li key={it.id}>{it.name}</li>)}\n  </ul>\n);\n",
        &[],
    ),
    (
        "python",
        "def f(items: list[dict]) -> float | None:\n    total = sum(it['price'] * it['count'] for it in items)\n    if total == 0:\n        return None\n    return round(total, 2)\n\n",
        &["F401", "F821", "F841"],
    ),
    (
        "rust",
        "pub fn f(items: &[Item]) -> Option<u64> {\n    let total: u64 = items.iter().map(|it| it.price * it.count).sum();\n    if total == 0 {\n        return None;\n    }\n    Some(total)\n}\n",
        &[],
    ),
    (
        "go",
        "func f(items []Item) (int, error) {\n\ttotal := 0\n\tfor _, it := range items {\n\t\ttotal += it.Price * it.Count\n\t}\n\treturn total, nil\n}\n",
        &[],
    ),
    (
        "java",
        "class A {\n  int f(List<Item> items) {\n    int total = 0;\n    for (Item it : items) {\n      total += it.price() * it.count();\n    }\n    return total;\n  }\n}\n",
        &[],
    ),
    (
        "c",
        "int f(const struct item *items, int n) {\n  int total = 0;\n  for (int i = 0; i < n; i++) {\n    total += items[i].price * items[i].count;\n  }\n  return total;\n}\n",
        &[],
    ),
    (
        "cpp",
        "int f(const std::vector<Item>& items) {\n  int total = 0;\n  for (const auto& it : items) {\n    total += it.price * it.count;\n  }\n  return total;\n}\n",
        &[],
    ),
    (
        "bash",
        "f() {\n  local total=0\n  for it in \"$@\"; do\n    total=$((total + it))\n  done\n  echo \"$total\"\n}\n",
        &[],
    ),
    ("json", "", &[]),
    ("yaml", "- name: sum\n  items:\n    - price: 1\n      count: 2\n  text: \"a: b\"\n", &[]),
    ("toml", "[[item]]\nname = \"sum\"\nprice = 1\ncount = [1, 2]\n\n", &[]),
    (
        "html",
        "<ul class=\"items\">\n  <li><a href=\"#\">one</a></li>\n  <li>two &amp; three</li>\n</ul>\n",
        &[],
    ),
    ("css", ".item > a:hover {\n  color: #fff;\n  margin: 0 auto;\n}\n", &[]),
    (
        "sql",
        "SELECT a.name, sum(b.price * b.count) AS total\nFROM items a\nJOIN sales b ON a.id = b.item\nWHERE b.day > '2026-01-01'\nGROUP BY a.name;\n",
        &[],
    ),
];

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(&config_without_model()).await?;
    for (language, lines, rules) in SAMPLES {
        let code = code(language, lines);
        let params = json!({"code": code, "language": language, "rules": rules});
        let request = server.request("/", "validate_code", &params);
        let checked = server.connect().await?.result(&request).await?;
        ensure!(checked["valid"] == json!(true), "{language}: {checked}");
        // What is built up on first use is not what is measured.
        let calls = bench.count(200);
        hammer(server.address, std::slice::from_ref(&request), Until::Calls(20)).await?;
        let load = hammer(server.address, &[request], Until::Calls(calls)).await?;
        let p50 = ms(load.latencies.p50());
        let rules = if rules.is_empty() { "syntax" } else { "with rules" };
        table.add(
            Row::new(format!("validate_code, {LINES} lines of {language}, {rules}"))
                .measured(format!("p50 {p50:.2} ms, p99 {:.2} ms", ms(load.latencies.p99())))
                .reach("< 5 ms", p50 < 5.0),
        );
    }
    let (_, javascript, rules) = SAMPLES[0];
    // A batch saves the way to the checks and shares the cores; the work of a linter it cannot save.
    let syntax = json!({"code": javascript, "language": "javascript"});
    table.add(batch(bench, &server, "the syntax of 7 lines", &syntax).await?);
    let snippet = json!({"code": javascript, "language": "javascript", "rules": rules});
    table.add(batch(bench, &server, "7 lines", &snippet).await?);
    let long =
        json!({"code": code("javascript", javascript), "language": "javascript", "rules": rules});
    table.add(batch(bench, &server, "200 lines", &long).await?);
    Ok(())
}

/// Code of the length that is asked for.
fn code(language: &str, lines: &str) -> String {
    if language == "json" {
        let items: Vec<Value> = (0..LINES - 2).map(|n| json!({"name": "it", "price": n})).collect();
        return format!(
            "[\n{}\n]\n",
            items.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n")
        );
    }
    lines.repeat(LINES / lines.lines().count())
}

/// A batch of calls against the same calls one after another, in turns.
async fn batch(bench: &Bench, server: &Server, what: &str, params: &Value) -> anyhow::Result<Row> {
    let calls: Vec<Value> = (0..BATCH)
        .map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "validate_code", "params": params}))
        .collect();
    let headers = format!("authorization: Bearer {}\r\n", server.token);
    let batch: Bytes = post("/", &headers, &Value::from(calls).to_string());
    let single = server.request("/", "validate_code", params);
    let mut connection = server.connect().await?;
    let (mut together, mut apart) = (Vec::new(), Vec::new());
    for round in 0..=bench.rounds() * 2 {
        let started = Instant::now();
        connection.call(&batch).await?;
        let batched = ms(started.elapsed());
        let started = Instant::now();
        for _ in 0..BATCH {
            connection.result(&single).await?;
        }
        // The first round starts the workers.
        if round > 0 {
            together.push(batched);
            apart.push(ms(started.elapsed()));
        }
    }
    let ratio = median(apart.iter().zip(&together).map(|(apart, together)| apart / together));
    Ok(Row::new(format!("  a batch of {BATCH} checks of {what} of javascript"))
        .measured(format!("{:.1} ms", median(together)))
        .baseline(format!("{:.1} ms one by one", median(apart)))
        .ratio(ratio)
        .reach("≥ 5", ratio >= 5.0))
}
