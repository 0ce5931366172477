//! Prompts of MCP servers, as commands of a session: `/SERVER:PROMPT`. Those of servers that run are offered; nothing is
//! started for the sake of a list.

use std::time::Duration;

use agent_client_protocol_schema::v1::{
    AvailableCommand, AvailableCommandInput, Error, UnstructuredCommandInput,
};
use nexus_protocol::content::Content;
use nexus_protocol::mcp::{
    McpGetPrompt, McpGetPromptParams, McpListServers, McpListServersParams, McpPrompts,
    McpPromptsParams,
};
use nexus_protocol::params::NonBlank;
use nexus_protocol::{Api, Target};
use serde_json::{Map, Value};

use super::fault;

/// Commands that are offered at most: an editor shows them in a list.
const OFFERED_MAX: usize = 100;

/// Longest description of one, in characters: it is a stranger's.
const DESCRIPTION_CHARS_MAX: usize = 200;

/// How long a server is waited for that does not say what it has.
const ANSWER: Duration = Duration::from_secs(2);

/// Those of the servers that run, as far as they can be typed.
pub async fn available<A: Api>(api: &A, agent: &str) -> Vec<AvailableCommand> {
    let target = Target::Agent(agent.into());
    let listing = api.call::<McpPrompts>(&target, McpPromptsParams::default());
    let listed = tokio::time::timeout(ANSWER, listing).await;
    let prompts = listed.ok().and_then(Result::ok).map(|listed| listed.prompts).unwrap_or_default();
    prompts.iter().filter_map(command).take(OFFERED_MAX).collect()
}

fn command(prompt: &Map<String, Value>) -> Option<AvailableCommand> {
    let text = |name: &str| prompt.get(name).and_then(Value::as_str);
    let (server, name) = (text("server")?, text("name")?);
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return None;
    }
    let meant = text("description").or_else(|| text("title")).unwrap_or_default();
    let meant: String = meant.chars().filter(|c| !c.is_control()).collect();
    let meant: String = meant.chars().take(DESCRIPTION_CHARS_MAX).collect();
    let meant =
        if meant.is_empty() { format!("A prompt of the MCP server {server}") } else { meant };
    let arguments = arguments_of(prompt);
    let hint = arguments.iter().map(|(name, _)| format!("{name}=…")).collect::<Vec<_>>().join(" ");
    let input = (!arguments.is_empty())
        .then(|| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
    Some(AvailableCommand::new(format!("{server}:{name}"), meant).input(input))
}

/// Its arguments by name, and whether it needs them.
fn arguments_of(prompt: &Map<String, Value>) -> Vec<(&str, bool)> {
    let arguments = prompt.get("arguments").and_then(Value::as_array);
    arguments
        .into_iter()
        .flatten()
        .filter_map(|it| Some((it["name"].as_str()?, it["required"] == true)))
        .collect()
}

/// What a prompt says, where a text asks for one of a server that the agent sees; `None` for any other text.
pub async fn asked<A: Api>(api: &A, agent: &str, text: &str) -> Result<Option<Content>, Error> {
    let Some((server, name, rest)) = parts(text) else { return Ok(None) };
    let target = Target::Agent(agent.into());
    let params = McpListServersParams::default();
    let Ok(listed) = api.call::<McpListServers>(&target, params).await else { return Ok(None) };
    if !listed.servers.iter().any(|it| it.name == server && it.visible) {
        return Ok(None);
    }
    let params = McpPromptsParams { server: Some(server.into()) };
    let prompts =
        api.call::<McpPrompts>(&target, params).await.map_err(|error| fault::of(&error))?;
    let known =
        prompts.prompts.iter().find(|it| it.get("name").and_then(Value::as_str) == Some(name));
    let missing = || fault::invalid_params(format!("The MCP server {server} has no prompt {name}"));
    let arguments = arguments(&arguments_of(known.ok_or_else(missing)?), rest)?;
    let params = McpGetPromptParams {
        server: server.into(),
        name: name.into(),
        arguments: (!arguments.is_empty()).then_some(arguments),
    };
    let filled = api.call::<McpGetPrompt>(&target, params).await;
    let text = said(&filled.map_err(|error| fault::of(&error))?.messages)?;
    let blank = || fault::invalid_params(format!("The prompt {name} says nothing"));
    NonBlank::new(text).map(Content::Text).map(Some).ok_or_else(blank)
}

/// Server, prompt and what stands behind them.
fn parts(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim().strip_prefix('/')?;
    let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (server, name) = command.split_once(':')?;
    let is_server = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (!server.is_empty() && server.chars().all(is_server) && !name.is_empty()).then_some((
        server,
        name,
        rest.trim(),
    ))
}

/// `name=value` for each; a single one may stand without its name.
fn arguments(known: &[(&str, bool)], rest: &str) -> Result<Map<String, Value>, Error> {
    let starts = |rest: &str| {
        let named = rest.split_once('=').map(|(name, _)| name);
        named.is_some_and(|name| known.iter().any(|(it, _)| *it == name))
    };
    let mut given = Map::new();
    if let ([(name, _)], false) = (known, rest.is_empty() || starts(rest)) {
        given.insert((*name).to_owned(), rest.into());
    } else {
        // A value goes on to the next name that is known.
        let mut last: Option<String> = None;
        for word in rest.split_whitespace() {
            match (word.split_once('='), &last) {
                (Some((name, value)), _) if starts(word) => {
                    given.insert(name.to_owned(), value.into());
                    last = Some(name.to_owned());
                }
                (_, Some(name)) => {
                    if let Some(Value::String(value)) = given.get_mut(name) {
                        value.push(' ');
                        value.push_str(word);
                    }
                }
                (_, None) => {
                    let names: Vec<_> = known.iter().map(|(name, _)| format!("{name}=…")).collect();
                    let why = match names.is_empty() {
                        true => "The prompt takes no arguments".to_owned(),
                        false => format!("The arguments of the prompt are {}", names.join(" ")),
                    };
                    return Err(fault::invalid_params(why));
                }
            }
        }
    }
    match known.iter().find(|(name, is_needed)| *is_needed && !given.contains_key(*name)) {
        Some((name, _)) => Err(fault::invalid_params(format!("The prompt needs {name}=…"))),
        None => Ok(given),
    }
}

/// The messages of a prompt as one that a person says.
fn said(messages: &[Value]) -> Result<String, Error> {
    let mut said = Vec::new();
    for message in messages {
        let content = &message["content"];
        let text = match content["type"].as_str() {
            Some("text") => content["text"].as_str(),
            Some("resource") => content["resource"]["text"].as_str(),
            _ => None,
        };
        let other = || fault::invalid_params("The prompt has a part that is no text");
        let text = text.ok_or_else(other)?;
        said.push(match message["role"].as_str() {
            Some("assistant") => format!("Assistant: {text}"),
            _ => text.to_owned(),
        });
    }
    Ok(said.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_names_a_server_and_its_prompt() {
        assert_eq!(parts(" /s:greet a b \n"), Some(("s", "greet", "a b")));
        assert_eq!(parts("/a-1:b:c"), Some(("a-1", "b:c", "")));
        for text in ["s:greet", "/greet", "/:x", "/s:", "/S:x", "/s s:x", "/a/b:c"] {
            assert_eq!(parts(text), None, "{text}");
        }
    }

    fn check(known: &[(&str, bool)], rest: &str, expected: Value) {
        let got = match arguments(known, rest) {
            Ok(given) => Value::Object(given),
            Err(error) => json!(error.message),
        };
        assert_eq!(got, expected, "{rest}");
    }

    #[test]
    fn arguments_are_named_unless_there_is_one() {
        check(&[], "", json!({}));
        check(&[], "x", json!("The prompt takes no arguments"));
        let one = &[("who", true)];
        check(one, "Ada Lovelace", json!({"who": "Ada Lovelace"}));
        check(one, "who=Ada Lovelace", json!({"who": "Ada Lovelace"}));
        check(one, "a=b", json!({"who": "a=b"}));
        check(one, "", json!("The prompt needs who=…"));
        let two = &[("who", true), ("how", false)];
        check(
            two,
            "who=Ada Lovelace how=well a=b",
            json!({"who": "Ada Lovelace", "how": "well a=b"}),
        );
        check(two, "how=", json!("The prompt needs who=…"));
        check(two, "Ada", json!("The arguments of the prompt are who=… how=…"));
    }

    #[test]
    fn what_can_be_typed_is_offered() {
        let prompt = |name: &str, more: Value| {
            let mut prompt = json!({"server": "s", "name": name});
            prompt.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let offered = command(prompt.as_object().unwrap());
            offered.map(|it| {
                (it.name.clone(), it.description.clone(), json!(it.input)["hint"].clone())
            })
        };
        let own = "A prompt of the MCP server s".to_owned();
        assert_eq!(prompt("a", json!({})), Some(("s:a".into(), own, Value::Null)));
        let arguments = json!([{"name": "x"}, {"name": "y"}]);
        let all = prompt("a", json!({"description": "Do\u{1b} it", "arguments": arguments}));
        assert_eq!(all, Some(("s:a".into(), "Do it".into(), json!("x=… y=…"))));
        assert_eq!(prompt("a b", json!({})), None);
        assert_eq!(prompt("", json!({})), None);
        let long = prompt("a", json!({"description": "x".repeat(DESCRIPTION_CHARS_MAX + 1)}));
        assert_eq!(long.unwrap().1.chars().count(), DESCRIPTION_CHARS_MAX);
    }

    #[test]
    fn what_a_prompt_says_is_text() {
        let text = |role: &str, text: &str| json!({"role": role, "content": {"type": "text", "text": text}});
        let file = json!({"role": "user", "content": {"type": "resource", "resource": {"uri": "x:", "text": "c"}}});
        let all = said(&[text("user", "a"), text("assistant", "b"), file]).unwrap();
        assert_eq!(all, "a\n\nAssistant: b\n\nc");
        let image = json!({"role": "user", "content": {"type": "image", "data": ""}});
        assert!(said(&[image]).is_err());
    }
}
