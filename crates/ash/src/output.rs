//! What people read of a result. It was written by others: each entry stays on its line, and no character of it
//! commands the terminal.

use std::io::{self, Write};

use serde_json::Value;

/// So much of an entry stands in a list.
const PREVIEW_CHARS_MAX: usize = 60;

pub fn found(result: &Value, out: &mut dyn Write) -> io::Result<()> {
    let entries = entries(result);
    if entries.is_empty() {
        return writeln!(out, "No memories found.");
    }
    for entry in entries {
        let similarity = entry["similarity"].as_f64().unwrap_or_default();
        writeln!(out, "[{similarity:.2}] {}", text(entry, "content"))?;
    }
    Ok(())
}

pub fn listed(result: &Value, out: &mut dyn Write) -> io::Result<()> {
    let entries = entries(result);
    if entries.is_empty() {
        return writeln!(out, "No memories found.");
    }
    let width = |name: &str, least: &str| {
        let widths = entries.iter().map(|entry| text(entry, name).chars().count());
        widths.max().unwrap_or_default().max(least.len())
    };
    let (id, source) = (width("id", "ID"), width("source", "Source"));
    writeln!(out, "{:<id$}  {:<source$}  Content", "ID", "Source")?;
    for entry in entries {
        let content = preview(&text(entry, "content"));
        writeln!(out, "{:<id$}  {:<source$}  {content}", text(entry, "id"), text(entry, "source"))?;
    }
    writeln!(out, "Total: {}", entries.len())
}

pub fn added(result: &Value, out: &mut dyn Write) -> io::Result<()> {
    let scope = if result["shared"] == true { " (shared)" } else { "" };
    writeln!(out, "Memory added{scope}: {}", text(result, "id"))
}

/// That nothing was deleted is an error, and not said here.
pub fn deleted(result: &Value, out: &mut dyn Write) -> io::Result<()> {
    match result["deleted"] == true {
        true => writeln!(out, "Memory deleted."),
        false => Ok(()),
    }
}

/// `text` on one line.
pub fn line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

fn entries(result: &Value) -> &[Value] {
    result.as_array().map_or(&[], Vec::as_slice)
}

fn text(entry: &Value, name: &str) -> String {
    line(entry[name].as_str().unwrap_or("-"))
}

fn preview(content: &str) -> String {
    match content.char_indices().nth(PREVIEW_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &content[..end]),
        None => content.into(),
    }
}
