//! Tools that the model is not shown: found by words and by what is meant, and called by name.

use std::sync::Arc;

use async_trait::async_trait;
use nexus_core::fuse::{FUSED_DEPTH, MEANING_WEIGHT, WORDS_WEIGHT, fuse};
use nexus_core::permission::{Permissions, ToolClass};
use nexus_core::provider::ToolSpec;
use nexus_core::tool::{CALL_TOOL, Invocation, Need, SEARCH_TOOL, Tool, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clean::IN_ITS_WORDS;
use crate::meaning::Meanings;

/// What is found at most, and when nobody says.
const LIMIT_MAX: usize = 20;
const LIMIT: usize = 5;

/// Most of what is answered. A tool's schema may be long.
const ANSWER_BYTES_MAX: usize = 50_000;

/// As in most searches by words (BM25).
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.75;

/// A word of a tool's name says more than one of its description.
const NAME_WEIGHT: usize = 3;

/// Gives the tools that can be found.
pub type All = Box<dyn Fn() -> Arc<[Arc<dyn Tool>]> + Send + Sync>;

/// A tool for tools that the model is not shown. Everybody may use it; what it leads to is judged as what it is.
pub struct Finder {
    spec: ToolSpec,
    does: Does,
}

enum Does {
    /// Finds tools, and says how they are called.
    Search(All, Arc<Meanings>),
    /// Calls a tool that was found. The turn puts the tool itself in its place; what comes here names none.
    Call,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    query: String,
    server: Option<String>,
    limit: Option<usize>,
}

impl Finder {
    /// `tool_search`.
    pub fn search(all: All, meanings: Arc<Meanings>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, in a few words."},
                "server": {"type": "string", "description": "Only of this server."},
                "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "description": "Most tools to find, 5 when absent."},
            },
            "required": ["query"],
            "additionalProperties": false,
        });
        let description = "Finds tools of MCP servers by what they do, and returns their descriptions and the schemas of \
                           their arguments. Call what you found with mcp_call. There are:";
        Self::new(SEARCH_TOOL, description, &parameters, Does::Search(all, meanings))
    }

    /// `mcp_call`.
    pub fn call() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "tool": {"type": "string", "description": "The tool's name, as tool_search gave it."},
                "arguments": {"type": "object", "description": "Its arguments."},
            },
            "required": ["tool"],
            "additionalProperties": false,
        });
        let description = "Calls a tool of an MCP server that tool_search found.";
        Self::new(CALL_TOOL, description, &parameters, Does::Call)
    }

    fn new(name: &str, description: &str, parameters: &Value, does: Does) -> Self {
        let (name, description) = (name.into(), description.into());
        Self {
            spec: ToolSpec { name, description, parameters: parameters.to_string().into() },
            does,
        }
    }
}

#[async_trait]
impl Tool for Finder {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self) -> ToolClass {
        ToolClass::Look
    }

    fn needs(&self, _: &Value) -> Result<Vec<Need>, String> {
        Ok(Vec::new())
    }

    async fn run(&self, call: Invocation) -> Result<ToolOutput, String> {
        match &self.does {
            Does::Search(all, meanings) => {
                let wanted = serde_json::from_value(call.arguments).map_err(|it| it.to_string())?;
                search(&all(), meanings, wanted, &call.access.permissions).await.map(Into::into)
            }
            Does::Call => Err(match call.arguments["tool"].as_str() {
                Some(tool) => format!("there is no tool {tool}: tool_search finds those there are"),
                None => "tool is missing: the name of a tool, as tool_search gave it".into(),
            }),
        }
    }
}

/// Describes the tools that fit best, of those that an agent may use.
async fn search(
    all: &[Arc<dyn Tool>],
    meanings: &Arc<Meanings>,
    wanted: Wanted,
    permissions: &Permissions,
) -> Result<String, String> {
    let limit = wanted.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(format!("limit must be 1 to {LIMIT_MAX}, got: {limit}"));
    }
    let seen = |tool: &&Arc<dyn Tool>| {
        tool.origin().is_some_and(|origin| {
            permissions.offers_of(origin, &tool.spec().name)
                && wanted.server.as_ref().is_none_or(|server| *server == origin.server)
        })
    };
    let seen: Vec<_> = all.iter().filter(seen).collect();
    let mut answer = String::new();
    let meant = meanings
        .nearest(seen.iter().map(|tool| meaning(tool.spec())).collect(), wanted.query.clone());
    let meant = meant.await;
    let words = ranked(&seen, &wanted.query);
    let lists = [(WORDS_WEIGHT, &words[..]), (MEANING_WEIGHT, &meant[..])];
    for tool in fuse(&lists, limit).into_iter().filter_map(|(place, _)| seen.get(place)) {
        let ToolSpec { name, description, parameters } = tool.spec();
        let entry = format!("{name}\n{description}\narguments: {parameters}\n\n");
        if answer.len() + entry.len() > ANSWER_BYTES_MAX {
            break;
        }
        answer.push_str(&entry);
    }
    if answer.is_empty() {
        return Ok(format!("Nothing was found among {} tools. Try other words.", seen.len()));
    }
    Ok(answer)
}

/// What a tool is about, for who looks for what is meant: what is said of it, without whose words they are. Its name only
/// where nothing is, since names are mostly short for something.
fn meaning(spec: &ToolSpec) -> String {
    match spec.description.split_once(IN_ITS_WORDS) {
        Some((_, said)) => said.to_owned(),
        None => words(&spec.name).join(" "),
    }
}

/// The places of tools in which words of the query occur, best first.
fn ranked(tools: &[&Arc<dyn Tool>], query: &str) -> Vec<(usize, f32)> {
    let documents: Vec<Vec<String>> = tools.iter().map(|tool| document(tool.spec())).collect();
    let mut wanted = words(query);
    wanted.sort();
    wanted.dedup();
    let lengths: usize = documents.iter().map(Vec::len).sum();
    let average = lengths as f64 / documents.len().max(1) as f64;
    let mut scores = vec![0.0; tools.len()];
    for word in &wanted {
        let counts = documents.iter().map(|words| words.iter().filter(|it| fits(it, word)).count());
        let counts: Vec<f64> = counts.map(|count| count as f64).collect();
        let having = counts.iter().filter(|count| **count > 0.0).count() as f64;
        let rarity = (1.0 + (documents.len() as f64 - having + 0.5) / (having + 0.5)).ln();
        for (score, (count, words)) in scores.iter_mut().zip(counts.iter().zip(&documents)) {
            let length = 1.0 - LENGTH + LENGTH * words.len() as f64 / average;
            *score += rarity * count * (SATURATION + 1.0) / (count + SATURATION * length);
        }
    }
    let scored = scores.into_iter().map(|score: f64| score as f32).enumerate();
    let mut found: Vec<_> = scored.filter(|(_, score)| *score > 0.0).collect();
    found.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    found.truncate(FUSED_DEPTH as usize);
    found
}

/// Whether a word is meant by another: the same, or its beginning, as `file` is by `files`.
fn fits(word: &str, wanted: &str) -> bool {
    let (shorter, longer) = if word.len() < wanted.len() { (word, wanted) } else { (wanted, word) };
    longer == shorter || (shorter.len() >= 4 && longer.starts_with(shorter))
}

fn document(spec: &ToolSpec) -> Vec<String> {
    let name = words(&spec.name);
    let names = std::iter::repeat_n(name, NAME_WEIGHT).flatten();
    names.chain(words(&spec.description)).collect()
}

/// Words in small letters; `readFile` and `read_file` are two.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut was_small = false;
    for c in text.chars() {
        if (!c.is_alphanumeric() || (c.is_uppercase() && was_small)) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_small = c.is_lowercase();
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(ToolSpec);

    #[async_trait]
    impl Tool for Named {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn class(&self) -> ToolClass {
            ToolClass::Mcp
        }

        fn needs(&self, _: &Value) -> Result<Vec<Need>, String> {
            Ok(Vec::new())
        }

        async fn run(&self, _: Invocation) -> Result<ToolOutput, String> {
            Err("never run".into())
        }
    }

    fn tool(name: &str, description: &str) -> Arc<dyn Tool> {
        let (name, description) = (name.into(), description.into());
        Arc::new(Named(ToolSpec { name, description, parameters: "{}".into() }))
    }

    #[test]
    fn the_best_comes_first_and_what_has_no_word_of_it_not_at_all() {
        let all = [
            tool("mcp_files_readTextFile", "Reads a file as text."),
            tool("mcp_files_write_file", "Writes a file."),
            tool("mcp_git_log", "Shows the commits of a repository, with the files they changed."),
            tool("mcp_time_now", "Says what time it is."),
        ];
        let all: Vec<_> = all.iter().collect();
        let found = |query: &str| -> Vec<String> {
            ranked(&all, query).iter().map(|(place, _)| all[*place].spec().name.clone()).collect()
        };
        assert_eq!(found("read a file")[0], "mcp_files_readTextFile");
        assert_eq!(found("write files")[0], "mcp_files_write_file");
        assert_eq!(found("commit history"), ["mcp_git_log"]);
        assert_eq!(found("TIME"), ["mcp_time_now"]);
        assert!(found("weather").is_empty() && found("").is_empty() && found("…").is_empty());
    }

    #[test]
    fn words_are_parted_where_a_person_would() {
        assert_eq!(words("mcp_a-readTextFile2 ÄB"), ["mcp", "a", "read", "text", "file2", "äb"]);
        assert!(fits("files", "file") && fits("file", "files") && !fits("fil", "file"));
    }
}
