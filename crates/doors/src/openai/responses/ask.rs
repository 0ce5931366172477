//! What is asked for at `/v1/responses`, read as a chat: agents and models are asked the same way by both.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::ask::{
    AnswerSchema, CalledFunction, Chat, Fields, MESSAGES_MAX, Message, Part, Role, Tool, ToolCall,
    any_object, file, image, logprobs,
};
use super::super::failure::Failure;

/// `POST /v1/responses`.
pub struct Ask {
    /// With what `input` says as its messages.
    pub chat: Chat,
    pub instructions: Option<String>,
    /// The answer that this goes on from.
    pub previous: Option<String>,
    /// The answer can be asked for again, and gone on from.
    pub store: bool,
    /// What of the request is said again in its answer.
    pub echo: Map<String, Value>,
}

/// What is in the answer whatever was asked for, as OpenAI has it when nothing was said.
fn defaults() -> Map<String, Value> {
    let all = json!({
        "background": false, "instructions": null, "max_output_tokens": null, "metadata": {},
        "parallel_tool_calls": true, "previous_response_id": null, "reasoning": {"effort": null, "summary": null},
        "store": true, "temperature": null, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [],
        "top_p": null, "truncation": "disabled", "user": null,
    });
    match all {
        Value::Object(all) => all,
        _ => Map::new(),
    }
}

/// What cannot be had here, whoever is asked, with the reason.
const REFUSED: [(&str, &str); 3] = [
    (
        "conversation",
        "there are no conversation objects; previous_response_id goes on from an answer",
    ),
    ("prompt", "there are no stored prompts"),
    (
        "background",
        "nothing runs in the background; a plain turn of an agent goes on when its caller is gone",
    ),
];

impl Ask {
    /// `referred` finds an item of an answer that was given before, by its name.
    pub fn read(body: &[u8], referred: impl Fn(&str) -> Option<Value>) -> Result<Self, Failure> {
        let mut fields = Fields::read(body)?;
        let mut echo = defaults();
        for (name, value) in &mut echo {
            if let Some(asked) = fields.peek(name) {
                *value = asked.clone();
            }
        }
        for (name, why) in REFUSED {
            if !matches!(fields.take::<Value>(name)?, None | Some(Value::Bool(false))) {
                return Err(Failure::invalid(name, format!("{name}: {why}")));
            }
        }
        let model: String = fields.required("model")?;
        let messages = match fields.required("input")? {
            Input::Text(text) => vec![Message::of(Role::User, text)],
            Input::Items(items) => said(items, referred)?,
        };
        let metadata: Map<String, Value> = fields.take("metadata")?.unwrap_or_default();
        let session = metadata.get("nexus_session").and_then(Value::as_str).map(str::to_owned);
        let included: Vec<String> = fields.take("include")?.unwrap_or_default();
        let wants_logprobs = included.iter().any(|it| it == LOGPROBS);
        let logprobs = logprobs(&mut fields, wants_logprobs)?;
        fields.take::<StreamOptions>("stream_options")?;
        let text: Text = fields.take("text")?.unwrap_or_default();
        let tokens_max = fields.take("max_output_tokens")?;
        let truncation: Option<Truncation> = fields.take("truncation")?;
        let instructions: Option<String> = fields.take("instructions")?;
        let previous = fields.take("previous_response_id")?;
        let store = fields.take("store")?.unwrap_or(true);
        let stream = fields.take("stream")?.unwrap_or(false);
        let tools = tools(&mut fields)?;
        // What is left is named as not applied.
        if included.iter().any(|it| it != LOGPROBS) {
            fields.put("include");
        }
        if text.verbosity.is_some() {
            fields.put("text.verbosity");
        }
        if matches!(truncation, Some(Truncation::Auto)) {
            fields.put("truncation");
        }
        let chat = Chat {
            model,
            messages,
            stream,
            include_usage: false,
            choices: 1,
            tools,
            schema: text.format.schema()?,
            tokens_max,
            logprobs,
            session,
            rest: fields,
        };
        let instructions = instructions.filter(|it| !it.trim().is_empty());
        Ok(Self { chat, instructions, previous, store, echo })
    }
}

/// Asks for them beside each text.
const LOGPROBS: &str = "message.output_text.logprobs";

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a text or a list of items")]
enum Input {
    Text(String),
    Items(Vec<Value>),
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct StreamOptions {}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Truncation {
    Auto,
    Disabled,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct Text {
    #[serde(default)]
    format: Format,
    verbosity: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "an object with type")]
enum Format {
    #[default]
    Text,
    JsonObject,
    JsonSchema {
        schema: Option<Map<String, Value>>,
        strict: Option<bool>,
    },
}

impl Format {
    fn schema(self) -> Result<Option<AnswerSchema>, Failure> {
        match self {
            Self::Text => Ok(None),
            Self::JsonObject => Ok(Some(any_object())),
            Self::JsonSchema { schema: Some(schema), strict } => {
                Ok(Some(AnswerSchema { schema, is_strict: strict == Some(true) }))
            }
            Self::JsonSchema { schema: None, .. } => {
                Err(Failure::invalid("text.format", "text.format: schema is missing"))
            }
        }
    }
}

fn tools(fields: &mut Fields) -> Result<Vec<Tool>, Failure> {
    #[derive(Deserialize)]
    #[serde(expecting = "a tool")]
    struct Written {
        r#type: String,
        name: Option<String>,
        description: Option<String>,
        parameters: Option<Value>,
    }
    let written: Vec<Written> = fields.take("tools")?.unwrap_or_default();
    let read = |(index, it): (usize, Written)| match it.name {
        Some(name) if it.r#type == "function" => Ok(Tool::new(name, it.description, it.parameters)),
        _ => Err(Tool::refused(index)),
    };
    written.into_iter().enumerate().map(read).collect()
}

/// What is said, item by item.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "an item")]
enum Item {
    Message {
        role: Role,
        content: Content,
    },
    FunctionCall {
        call_id: String,
        name: String,
        arguments: String,
    },
    FunctionCallOutput {
        call_id: String,
        output: Content,
    },
    /// What a model thought is for its provider alone, and is not believed when somebody else brings it.
    Reasoning {},
    #[serde(rename = "item_reference")]
    Reference {
        id: String,
    },
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "content must be a text or a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<Value>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "a part")]
enum WrittenPart {
    #[serde(alias = "output_text", alias = "text")]
    InputText {
        text: String,
    },
    Refusal {
        refusal: String,
    },
    InputImage {
        image_url: Option<String>,
    },
    InputFile {
        file_data: Option<String>,
        filename: Option<String>,
    },
}

fn said(
    items: Vec<Value>,
    referred: impl Fn(&str) -> Option<Value>,
) -> Result<Vec<Message>, Failure> {
    if items.is_empty() || items.len() > MESSAGES_MAX {
        let message =
            format!("input must be a text, or 1 to {MESSAGES_MAX} items, got: {}", items.len());
        return Err(Failure::invalid("input", message));
    }
    let mut messages = Vec::new();
    for (index, written) in items.into_iter().enumerate() {
        let at = format!("input[{index}]");
        let item = match item(&at, written)? {
            Item::Reference { id } => {
                let unknown = || Failure::invalid(&at, format!("{at}: there is no item {id:?}"));
                item(&at, referred(&id).ok_or_else(unknown)?)?
            }
            item => item,
        };
        add(&mut messages, &at, item)?;
    }
    Ok(messages)
}

fn item(at: &str, mut written: Value) -> Result<Item, Failure> {
    let is_untyped = matches!(written.get("type"), None | Some(Value::Null));
    if let Value::Object(members) = &mut written
        && is_untyped
    {
        let kind = if members.contains_key("role") { "message" } else { "item_reference" };
        members.insert("type".into(), kind.into());
    }
    serde_json::from_value(written).map_err(|error| Failure::invalid(at, format!("{at}: {error}")))
}

/// Adds an item to what was said. All that the assistant says at once, in texts and calls, is one message.
fn add(messages: &mut Vec<Message>, at: &str, item: Item) -> Result<(), Failure> {
    let message = match item {
        Item::Reasoning {} | Item::Reference { .. } => return Ok(()),
        Item::Message { role: Role::Tool, .. } => {
            let message = format!("{at}: what a tool says is a function_call_output");
            return Err(Failure::invalid(at, message));
        }
        Item::Message { role, content } => {
            Message { parts: parts(at, content)?, ..Message::of(role, "") }
        }
        Item::FunctionCall { call_id, name, arguments } => {
            let call = ToolCall { id: call_id, function: CalledFunction { name, arguments } };
            Message { parts: Vec::new(), calls: vec![call], ..Message::of(Role::Assistant, "") }
        }
        Item::FunctionCallOutput { call_id, output } => Message {
            parts: parts(at, output)?,
            call_id: Some(call_id),
            ..Message::of(Role::Tool, "")
        },
    };
    match messages.last_mut() {
        Some(last) if last.role == Role::Assistant && message.role == Role::Assistant => {
            last.calls.extend(message.calls);
            match (&mut last.parts[..], &message.parts[..]) {
                ([Part::Text(before)], [Part::Text(text)]) => before.push_str(text),
                _ => last.parts.extend(message.parts),
            }
        }
        _ => messages.push(message),
    }
    Ok(())
}

fn parts(at: &str, content: Content) -> Result<Vec<Part>, Failure> {
    match content {
        Content::Text(text) => Ok(vec![Part::Text(text)]),
        Content::Parts(parts) => {
            let read = |(number, it)| part(&format!("{at}.content[{number}]"), it);
            parts.into_iter().enumerate().map(read).collect()
        }
    }
}

fn part(at: &str, written: Value) -> Result<Part, Failure> {
    let wrong = |why: String| Failure::invalid(at, format!("{at}: {why}"));
    let written = serde_json::from_value(written).map_err(|error| wrong(error.to_string()))?;
    let no_files = || wrong("there are no stored files: send the data itself".into());
    match written {
        WrittenPart::InputText { text } | WrittenPart::Refusal { refusal: text } => {
            Ok(Part::Text(text))
        }
        WrittenPart::InputImage { image_url } => Ok(image(image_url.ok_or_else(no_files)?)),
        WrittenPart::InputFile { file_data, filename } => {
            file(at, &file_data.ok_or_else(no_files)?, filename)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(change: &Value) -> Result<Ask, Failure> {
        let mut body = json!({"model": "m", "input": "x"});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let known = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "known"}]});
        Ask::read(body.to_string().as_bytes(), |id| (id == "msg_1").then(|| known.clone()))
    }

    #[track_caller]
    fn refused(change: Value, param: &str) {
        let failure = read(&change).err().unwrap();
        assert_eq!(failure.to_json()["error"]["param"], param, "{change}");
        assert_eq!(failure.status, 400, "{change}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        refused(json!({"model": null}), "model");
        refused(json!({"input": null}), "input");
        refused(json!({"input": []}), "input");
        refused(
            json!({"input": vec![json!({"role": "user", "content": "x"}); MESSAGES_MAX + 1]}),
            "input",
        );
        refused(json!({"input": [{"role": "king", "content": "x"}]}), "input[0]");
        refused(json!({"input": [{"role": "tool", "content": "x"}]}), "input[0]");
        refused(json!({"input": [{"type": "web_search_call", "id": "1"}]}), "input[0]");
        refused(json!({"input": [{"type": "function_call", "name": "f"}]}), "input[0]");
        refused(json!({"input": [{"type": "item_reference", "id": "msg_2"}]}), "input[0]");
        let audio = json!([{"role": "user", "content": [{"type": "input_audio"}]}]);
        refused(json!({"input": audio}), "input[0].content[0]");
        let stored =
            json!([{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]);
        refused(json!({"input": stored}), "input[0].content[0]");
        refused(json!({"tools": [{"type": "web_search"}]}), "tools[0]");
        refused(json!({"tools": [{"type": "function"}]}), "tools[0]");
        refused(json!({"text": {"format": {"type": "xml"}}}), "text");
        refused(json!({"text": {"format": {"type": "json_schema", "name": "n"}}}), "text.format");
        refused(json!({"background": true}), "background");
        refused(json!({"conversation": "conv_1"}), "conversation");
        refused(json!({"prompt": {"id": "p"}}), "prompt");
        refused(json!({"max_output_tokens": 0}), "max_output_tokens");
        refused(json!({"truncation": "some"}), "truncation");
        refused(json!({"metadata": "x"}), "metadata");
        refused(json!({"store": 1}), "store");
        refused(json!({"top_logprobs": 21}), "top_logprobs");
    }

    #[test]
    fn what_is_right_is_taken_and_the_rest_is_left() {
        let ask = read(&json!({
            "instructions": "Be kind.", "store": false, "previous_response_id": "resp_1", "background": false,
            "metadata": {"nexus_session": "s", "a": "b"}, "max_output_tokens": 5, "temperature": 0.5,
            "include": ["reasoning.encrypted_content"], "truncation": "auto", "stream_options": {"include_obfuscation": false},
            "text": {"format": {"type": "json_object"}, "verbosity": "low"}, "service_tier": "auto",
        }));
        let ask = ask.unwrap();
        assert_eq!((ask.instructions.as_deref(), ask.store), (Some("Be kind."), false));
        assert_eq!(
            (ask.previous.as_deref(), ask.chat.session.as_deref()),
            (Some("resp_1"), Some("s"))
        );
        assert_eq!(ask.chat.schema, Some(any_object()));
        let left = ["temperature", "service_tier", "include", "text.verbosity", "truncation"];
        assert_eq!(ask.chat.rest.left(), left);
        assert_eq!(
            (&ask.echo["temperature"], &ask.echo["metadata"]["a"]),
            (&json!(0.5), &json!("b"))
        );
        let logprobs = |change: Value| read(&change).unwrap().chat.logprobs;
        assert_eq!(logprobs(json!({"include": [LOGPROBS]})), Some(0));
        assert_eq!(logprobs(json!({"top_logprobs": 20})), Some(20));
        assert_eq!(logprobs(json!({"top_logprobs": 0})), None);
    }

    #[test]
    fn what_the_assistant_says_at_once_is_one_message() {
        let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
        let ask = read(&json!({"input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"id": "msg_1"}, {"type": "message", "role": "assistant", "content": "!"}, call("1"), call("2"),
            {"type": "function_call_output", "call_id": "1", "output": "r"},
            {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "s"}]},
        ]}));
        let messages = ask.unwrap().chat.messages;
        let seen: Vec<_> = messages
            .iter()
            .map(|it| (it.role, it.text(), it.calls.len(), it.call_id.as_deref()))
            .collect();
        let expected = [
            (Role::User, "a".to_owned(), 0, None),
            (Role::Assistant, "known!".to_owned(), 2, None),
            (Role::Tool, "r".to_owned(), 0, Some("1")),
            (Role::Tool, "s".to_owned(), 0, Some("2")),
        ];
        assert_eq!(seen, expected);
    }
}
