//! `nexus3 mcp import`: servers that other programs have, as entries of `mcp.json` in the home.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use nexus_core::mcp::server_name;
use serde_json::{Map, Value, json};

use super::edit;
use crate::output::say;
use crate::wiring;

/// Of one file. Some programs keep their whole history in it.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Another program that has servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    Claude,
    Cursor,
    Vscode,
    Codex,
}

impl From {
    /// The files that it may have them in, beneath the user's home, and the key they stand under.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Claude => &[
                (".claude.json", "mcpServers"),
                (".config/Claude/claude_desktop_config.json", "mcpServers"),
                ("Library/Application Support/Claude/claude_desktop_config.json", "mcpServers"),
            ],
            Self::Cursor => &[(".cursor/mcp.json", "mcpServers")],
            Self::Vscode => &[
                (".config/Code/User/mcp.json", "servers"),
                ("Library/Application Support/Code/User/mcp.json", "servers"),
            ],
            Self::Codex => &[(".codex/config.toml", "mcp_servers")],
        }
    }
}

/// A server of another program, as it would be here.
#[derive(Debug, PartialEq)]
struct Taken {
    entry: Value,
    /// Keys that mean nothing here.
    left_out: Vec<String>,
}

pub fn run(from: From, write: bool) -> anyhow::Result<ExitCode> {
    let user_home = std::env::home_dir().context("there is no home directory")?;
    let found = found(from, &user_home)?;
    if found.is_empty() {
        let places: Vec<_> = from.files().iter().map(|(file, _)| format!("~/{file}")).collect();
        say(format!("no MCP server was found ({})\n", places.join(", ")))?;
        return Ok(ExitCode::SUCCESS);
    }
    let home = wiring::home()?;
    let mut failed = false;
    for (written, theirs) in found {
        let (line, fails) = match take(&home, &written, theirs, write) {
            Ok(line) => (line, false),
            Err(error) => (format!("{written}: left out: {error:#}"), true),
        };
        failed |= fails;
        say(format!("{line}\n"))?;
    }
    if !write {
        say("nothing was written: --write takes them over\n")?;
    }
    Ok(if failed && write { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn take(home: &Path, written: &str, theirs: Value, write: bool) -> anyhow::Result<String> {
    let name = server_name(written).context("it cannot be the name of a server")?;
    let Taken { entry, left_out } = taken(theirs)?;
    let shown = shown(&entry);
    match write {
        true => edit::insert(home, &name, entry)?,
        false => edit::check(&name, &entry)?,
    }
    let without = match left_out.is_empty() {
        true => String::new(),
        false => format!(" (without {})", left_out.join(", ")),
    };
    let done = if write { "added" } else { "can be taken over" };
    Ok(format!("{name}: {done}: {shown}{without}"))
}

/// What is run or asked, with the names of what it is told.
fn shown(entry: &Value) -> String {
    let words = |value: &Value| match value {
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        value => value.as_str().unwrap_or_default().to_owned(),
    };
    let mut line = words(&entry["command"]);
    for more in [words(&entry["args"]), words(&entry["url"])] {
        if !more.is_empty() {
            line =
                [line, more].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ");
        }
    }
    for key in ["env", "headers"] {
        if let Some(told) = entry[key].as_object().filter(|told| !told.is_empty()) {
            let names: Vec<_> = told.keys().map(String::as_str).collect();
            line.push_str(&format!(", {key}: {}", names.join(", ")));
        }
    }
    line
}

/// The servers in the files of a program, by the names they have there.
fn found(from: From, user_home: &Path) -> anyhow::Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for (file, key) in from.files() {
        let file = user_home.join(file);
        let Some(text) = read(&file)? else { continue };
        let parsed: anyhow::Result<Value> = match file.extension().is_some_and(|it| it == "toml") {
            true => text.parse::<toml::Table>().map_err(Into::into).map(of_table),
            false => serde_json::from_str(&without_comments(&text)).map_err(Into::into),
        };
        let parsed = parsed.with_context(|| file.display().to_string())?;
        if let Some(Value::Object(servers)) = parsed.get(key).cloned() {
            found.extend(servers);
        }
    }
    Ok(found)
}

fn read(file: &PathBuf) -> anyhow::Result<Option<String>> {
    match fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
        Ok(found) if found.len() > FILE_BYTES_MAX => bail!("{}: it is too long", file.display()),
        Ok(_) => {}
    }
    fs::read_to_string(file).map(Some).with_context(|| file.display().to_string())
}

/// JSON as editors write it: comments become blanks, and a comma before a closing bracket too.
fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    // Where the last comma stands, while nothing but blanks came after it.
    let mut comma = None;
    while let Some(next) = rest.chars().next() {
        let taken = match next {
            '"' => string_bytes(rest),
            '/' if rest.starts_with("//") => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            '/' if rest.starts_with("/*") => {
                rest = &rest[rest.find("*/").map_or(rest.len(), |end| end + 2)..];
                plain.push(' ');
                continue;
            }
            _ => next.len_utf8(),
        };
        if let (']' | '}', Some(at)) = (next, comma) {
            plain.replace_range(at..=at, " ");
        }
        if !next.is_whitespace() {
            comma = (next == ',').then_some(plain.len());
        }
        plain.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    plain
}

/// The length of the string that a text begins with, and of all of it when that does not end.
fn string_bytes(text: &str) -> usize {
    let mut is_escaped = false;
    let ends = |(_, c): &(usize, char)| {
        let ends = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    };
    text.char_indices().skip(1).find(ends).map_or(text.len(), |(at, _)| at + 1)
}

fn of_table(table: toml::Table) -> Value {
    Value::Object(table.into_iter().map(|(key, value)| (key, of_toml(value))).collect())
}

fn of_toml(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => json!(text),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) => json!(number),
        toml::Value::Boolean(is) => json!(is),
        toml::Value::Datetime(at) => json!(at.to_string()),
        toml::Value::Array(items) => items.into_iter().map(of_toml).collect(),
        toml::Value::Table(table) => of_table(table),
    }
}

/// An entry of another program in our words. Each has its own for the same.
fn taken(theirs: Value) -> anyhow::Result<Taken> {
    let Value::Object(theirs) = theirs else { bail!("its entry is no object") };
    let mut entry = Map::new();
    let mut headers = Map::new();
    let mut left_out = Vec::new();
    for (key, value) in theirs {
        match key.as_str() {
            "type" if value == "sse" => bail!("the transport of 2024 (sse) is not spoken here"),
            "command" | "args" | "env" | "cwd" | "url" | "enabled" | "disabled" => {
                entry.insert(key, own_variables(value)?);
            }
            "type" => {}
            "headers" | "http_headers" => {
                let Value::Object(told) = own_variables(value)? else {
                    bail!("{key} is no object")
                };
                headers.extend(told);
            }
            "env_http_headers" => {
                let Value::Object(told) = value else { bail!("{key} is no object") };
                let named = |(name, of): (String, Value)| {
                    Some((name, json!(format!("${{{}}}", of.as_str()?))))
                };
                headers.extend(told.into_iter().filter_map(named));
            }
            "bearer_token_env_var" => {
                let name = value.as_str().context("bearer_token_env_var is no text")?;
                headers.insert("Authorization".into(), json!(format!("Bearer ${{{name}}}")));
            }
            "startup_timeout_sec" => drop(entry.insert("startup_timeout".into(), value)),
            "tool_timeout_sec" => drop(entry.insert("timeout".into(), value)),
            "enabled_tools" | "disabled_tools" => {
                let ours = if key == "enabled_tools" { "allow" } else { "deny" };
                let tools = entry.entry("tools").or_insert(json!({}));
                tools[ours] = value;
            }
            _ => left_out.push(key),
        }
    }
    if !headers.is_empty() {
        entry.insert("headers".into(), headers.into());
    }
    Ok(Taken { entry: entry.into(), left_out })
}

/// `${env:NAME}` of other programs is `${NAME}` here. What they would ask a person for is nowhere to be found.
fn own_variables(value: Value) -> anyhow::Result<Value> {
    Ok(match value {
        Value::String(text) => {
            if let Some((_, rest)) = text.split_once("${input:") {
                bail!("it wants to ask for {}", rest.split('}').next().unwrap_or(rest));
            }
            json!(text.replace("${env:", "${"))
        }
        Value::Array(items) => {
            items.into_iter().map(own_variables).collect::<anyhow::Result<Vec<_>>>()?.into()
        }
        Value::Object(members) => {
            let own = |(key, value)| Ok((key, own_variables(value)?));
            members.into_iter().map(own).collect::<anyhow::Result<Map<_, _>>>()?.into()
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(theirs: Value, ours: Value, without: &[&str]) {
        let found = taken(theirs).unwrap();
        assert_eq!(found.entry, ours);
        assert_eq!(found.left_out, without);
        edit::check("s", &found.entry).unwrap();
    }

    #[test]
    fn comments_and_last_commas_are_passed_over() {
        let read = |text: &str| serde_json::from_str::<Value>(&without_comments(text)).ok();
        let text = r#"// the servers
            {"a": [1, 2, /* three, */ ], // no more
             "url": "https://x/*y*/", "b": "q\"//\\", /**/ }"#;
        let expected = json!({"a": [1, 2], "url": "https://x/*y*/", "b": "q\"//\\"});
        assert_eq!(read(text), Some(expected));
        assert_eq!(read(r#"{"a": "ä,]"}"#), Some(json!({"a": "ä,]"})));
        for broken in ["[1,,]", "{\"a", "/*", "//", "[1,] ,]"] {
            assert_eq!(read(broken), None, "{broken}");
        }
    }

    #[test]
    fn entries_of_others_are_said_in_our_words() {
        check(
            json!({"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"K": "${env:V}"}}),
            json!({"command": "npx", "args": ["-y", "x"], "env": {"K": "${V}"}}),
            &[],
        );
        check(
            json!({"type": "http", "url": "https://x/mcp", "headers": {"A": "Bearer ${env:T}"}, "gallery": true}),
            json!({"url": "https://x/mcp", "headers": {"A": "Bearer ${T}"}}),
            &["gallery"],
        );
        check(
            json!({"url": "https://x/mcp", "bearer_token_env_var": "T", "http_headers": {"B": "c"},
                "env_http_headers": {"D": "E"}, "startup_timeout_sec": 20, "tool_timeout_sec": 30,
                "enabled_tools": ["a"], "disabled_tools": ["b"], "enabled": false}),
            json!({"url": "https://x/mcp", "startup_timeout": 20, "timeout": 30, "enabled": false,
                "headers": {"Authorization": "Bearer ${T}", "B": "c", "D": "${E}"},
                "tools": {"allow": ["a"], "deny": ["b"]}}),
            &[],
        );
        for (theirs, part) in [
            (json!(5), "no object"),
            (json!({"type": "sse", "url": "https://x"}), "2024"),
            (json!({"command": "x", "env": {"K": "${input:key}"}}), "wants to ask for key"),
        ] {
            let why = taken(theirs).unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn values_are_not_shown() {
        let entry = json!({"command": "npx", "args": ["-y", "x"], "env": {"KEY": "s3cr3t"}});
        assert_eq!(shown(&entry), "npx -y x, env: KEY");
        let entry = json!({"url": "https://x/mcp", "headers": {"Authorization": "s3cr3t"}});
        assert_eq!(shown(&entry), "https://x/mcp, headers: Authorization");
    }

    #[test]
    fn each_program_has_its_own_file() {
        let home = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = home.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let names = |from| {
            let found = found(from, home.path()).unwrap();
            found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert!(names(From::Claude).is_empty());
        write(".claude.json", r#"{"history": [], "mcpServers": {"a": {"command": "x"}}}"#);
        write(".cursor/mcp.json", r#"{"mcpServers": {"b": {"url": "https://x"}}}"#);
        write(
            ".config/Code/User/mcp.json",
            r#"{"inputs": [], "servers": {"c": {"command": "x"}}}"#,
        );
        write(
            ".codex/config.toml",
            "model = \"x\"\n[mcp_servers.d]\ncommand = \"x\"\nargs = [\"y\"]\n",
        );
        let all = [From::Claude, From::Cursor, From::Vscode, From::Codex].map(names);
        assert_eq!(all, [["a"], ["b"], ["c"], ["d"]]);
        let (_, codex) = found(From::Codex, home.path()).unwrap().remove(0);
        assert_eq!(codex, json!({"command": "x", "args": ["y"]}));
        write(".cursor/mcp.json", "{");
        assert!(found(From::Cursor, home.path()).unwrap_err().to_string().contains("mcp.json"));
    }
}
