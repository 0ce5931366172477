//! What OpenAI's clients ask for.

use std::num::NonZeroU32;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::failure::Failure;

/// Most messages of a request. A conversation of this length has been compacted long ago.
pub const MESSAGES_MAX: usize = 10_000;

/// Answers that may be asked for at once.
pub const CHOICES_MAX: u32 = 8;

/// The members of a request that nobody has looked at yet. What is left in the end is not applied.
pub struct Fields(Map<String, Value>);

/// Requests larger than this are read off the async threads.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Reads a request, where it keeps nobody else waiting.
pub async fn reading<T: Send + 'static>(
    body: &Bytes,
    read: impl FnOnce(&[u8]) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    if body.len() <= INLINE_BYTES_MAX {
        return read(body);
    }
    let body = body.clone();
    let read = tokio::task::spawn_blocking(move || read(&body)).await;
    read.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

impl Fields {
    pub fn read(body: &[u8]) -> Result<Self, Failure> {
        let invalid = |error| Failure::malformed(format!("the body is not valid JSON: {error}"));
        match serde_json::from_slice(body).map_err(invalid)? {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(Failure::malformed("the body must be a JSON object")),
        }
    }

    /// Takes a member; `null` is as good as none.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        match self.0.shift_remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| Failure::invalid(name, format!("{name}: {error}"))),
        }
    }

    pub fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, Failure> {
        let missing = || Failure::invalid(name, format!("{name} is missing"));
        self.take(name)?.ok_or_else(missing)
    }

    pub fn peek(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Leaves something that was taken and is not applied.
    pub fn put(&mut self, name: &str) {
        self.0.insert(name.into(), true.into());
    }

    /// Names of what is left and says something.
    pub fn left(&self) -> Vec<String> {
        let says = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(members) => !members.is_empty(),
            _ => true,
        };
        self.0.iter().filter(|(_, value)| says(value)).map(|(name, _)| name.clone()).collect()
    }
}

/// `POST /v1/chat/completions`, as far as it means the same to agents and models; `/v1/responses` is read as one, too.
pub struct Chat {
    pub model: String,
    pub messages: Vec<Message>,
    pub stream: bool,
    pub include_usage: bool,
    pub choices: u32,
    pub tools: Vec<Tool>,
    /// What the answer has to satisfy.
    pub schema: Option<AnswerSchema>,
    pub tokens_max: Option<NonZeroU32>,
    /// How many tokens beside each of the answer are told with their likelihood, where that is asked for.
    pub logprobs: Option<u32>,
    /// The name of the conversation.
    pub session: Option<String>,
    pub rest: Fields,
}

#[derive(Clone, Debug, PartialEq, Default)]
pub struct AnswerSchema {
    pub schema: Map<String, Value>,
    /// The service itself is to hold the answer to it.
    pub is_strict: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub role: Role,
    pub parts: Vec<Part>,
    /// Of the assistant.
    pub calls: Vec<ToolCall>,
    /// Of a tool: what it answers.
    pub call_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

impl Role {
    /// What it says are instructions.
    pub fn instructs(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    /// Bytes in base64, of this kind, with a name where they are a file.
    Data {
        media_type: String,
        data: String,
        name: Option<String>,
        is_image: bool,
    },
    /// An image that is somewhere else.
    Address(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a call of a tool")]
pub struct ToolCall {
    pub id: String,
    pub function: CalledFunction,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "an object with name and arguments")]
pub struct CalledFunction {
    pub name: String,
    /// JSON, as the model wrote it.
    pub arguments: String,
}

/// A tool of the caller's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: String,
    pub parameters: Value,
}

impl Chat {
    pub fn read(body: &[u8]) -> Result<Self, Failure> {
        let mut fields = Fields::read(body)?;
        let model: String = fields.required("model")?;
        let written: Vec<Value> = fields.required("messages")?;
        if written.is_empty() || written.len() > MESSAGES_MAX {
            let message = format!("messages must be 1 to {MESSAGES_MAX}, got: {}", written.len());
            return Err(Failure::invalid("messages", message));
        }
        let messages = written.into_iter().enumerate().map(|(index, it)| message(index, it));
        let messages = messages.collect::<Result<_, _>>()?;
        let choices: u32 = fields.take("n")?.unwrap_or(1);
        if !(1..=CHOICES_MAX).contains(&choices) {
            let message = format!("n must be 1 to {CHOICES_MAX}, got: {choices}");
            return Err(Failure::invalid("n", message));
        }
        let options: Option<StreamOptions> = fields.take("stream_options")?;
        let tokens_max = fields.take("max_completion_tokens")?;
        let tokens_max = fields.take("max_tokens")?.or(tokens_max);
        let wants_logprobs = fields.take("logprobs")?.unwrap_or(false);
        Ok(Self {
            model,
            messages,
            stream: fields.take("stream")?.unwrap_or(false),
            include_usage: options.and_then(|it| it.include_usage).unwrap_or(false),
            choices,
            tools: tools(&mut fields)?,
            schema: schema(fields.take("response_format")?)?,
            tokens_max,
            logprobs: logprobs(&mut fields, wants_logprobs)?,
            session: session(&mut fields)?,
            rest: fields,
        })
    }
}

/// As many as OpenAI takes.
const TOP_LOGPROBS_MAX: u32 = 20;

pub fn logprobs(fields: &mut Fields, is_wanted: bool) -> Result<Option<u32>, Failure> {
    let top: Option<u32> = fields.take("top_logprobs")?;
    if top.is_some_and(|top| top > TOP_LOGPROBS_MAX) {
        let message = format!("top_logprobs must be 0 to {TOP_LOGPROBS_MAX}");
        return Err(Failure::invalid("top_logprobs", message));
    }
    Ok(top.filter(|top| *top > 0).or(is_wanted.then_some(0)))
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// Of metadata, the name of the conversation is all that means something here.
fn session(fields: &mut Fields) -> Result<Option<String>, Failure> {
    #[derive(Default, Deserialize)]
    #[serde(expecting = "an object")]
    struct Metadata {
        nexus_session: Option<String>,
        #[serde(flatten)]
        others: Map<String, Value>,
    }
    let metadata: Metadata = fields.take("metadata")?.unwrap_or_default();
    if !metadata.others.is_empty() {
        fields.put("metadata");
    }
    Ok(metadata.nexus_session)
}

#[derive(Deserialize)]
#[serde(expecting = "a message")]
struct WrittenMessage {
    role: Role,
    content: Option<WrittenContent>,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "content must be a text or a list of parts")]
enum WrittenContent {
    Text(String),
    Parts(Vec<Value>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "a part")]
enum WrittenPart {
    Text { text: String },
    Refusal { refusal: String },
    ImageUrl { image_url: ImageUrl },
    File { file: File },
}

#[derive(Deserialize)]
#[serde(expecting = "an object with url")]
struct ImageUrl {
    url: String,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with file_data")]
struct File {
    file_data: String,
    filename: Option<String>,
}

fn message(index: usize, written: Value) -> Result<Message, Failure> {
    let at = format!("messages[{index}]");
    let wrong = |error: serde_json::Error| Failure::invalid(&at, format!("{at}: {error}"));
    let WrittenMessage { role, content, tool_calls, tool_call_id } =
        serde_json::from_value(written).map_err(wrong)?;
    let parts = match content {
        None => Vec::new(),
        Some(WrittenContent::Text(text)) => vec![Part::Text(text)],
        Some(WrittenContent::Parts(parts)) => {
            let read = |(number, it)| part(&format!("{at}.content[{number}]"), it);
            parts.into_iter().enumerate().map(read).collect::<Result<_, _>>()?
        }
    };
    let calls = tool_calls.unwrap_or_default();
    let says_nothing = parts.is_empty() && calls.is_empty() && role != Role::Assistant;
    if says_nothing {
        return Err(Failure::invalid(&at, format!("{at}: content is missing")));
    }
    if role == Role::Tool && tool_call_id.is_none() {
        return Err(Failure::invalid(&at, format!("{at}: tool_call_id is missing")));
    }
    Ok(Message { role, parts, calls, call_id: tool_call_id })
}

fn part(at: &str, written: Value) -> Result<Part, Failure> {
    let wrong = |why: String| Failure::invalid(at, format!("{at}: {why}"));
    let written = serde_json::from_value(written).map_err(|error| wrong(error.to_string()))?;
    match written {
        WrittenPart::Text { text } | WrittenPart::Refusal { refusal: text } => Ok(Part::Text(text)),
        WrittenPart::ImageUrl { image_url } => Ok(image(image_url.url)),
        WrittenPart::File { file: File { file_data, filename } } => file(at, &file_data, filename),
    }
}

/// An image at an address, which may hold it.
pub fn image(url: String) -> Part {
    match data(&url) {
        None => Part::Address(url),
        Some((media_type, data)) => {
            let (media_type, data) = (media_type.into(), data.into());
            Part::Data { media_type, data, name: None, is_image: true }
        }
    }
}

pub fn file(at: &str, url: &str, name: Option<String>) -> Result<Part, Failure> {
    let wrong = || Failure::invalid(at, format!("{at}: file_data must be data:TYPE;base64,DATA"));
    let (media_type, data) = data(url).ok_or_else(wrong)?;
    let (media_type, data) = (media_type.into(), data.into());
    Ok(Part::Data { media_type, data, name, is_image: false })
}

/// The kind and the base64 of `data:KIND;base64,DATA`.
fn data(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    Some((head.strip_suffix(";base64")?, data))
}

fn tools(fields: &mut Fields) -> Result<Vec<Tool>, Failure> {
    #[derive(Deserialize)]
    #[serde(expecting = "a tool")]
    struct Written {
        r#type: String,
        function: Option<Function>,
    }
    #[derive(Deserialize)]
    #[serde(expecting = "an object with name")]
    struct Function {
        name: String,
        description: Option<String>,
        parameters: Option<Value>,
    }
    for older in ["functions", "function_call"] {
        if fields.take::<Value>(older)?.is_some() {
            let message = format!("{older} is not taken: say it as tools and tool_choice");
            return Err(Failure::invalid(older, message));
        }
    }
    let written: Vec<Written> = fields.take("tools")?.unwrap_or_default();
    let read = |(index, it): (usize, Written)| match it.function {
        Some(Function { name, description, parameters }) if it.r#type == "function" => {
            Ok(Tool::new(name, description, parameters))
        }
        _ => Err(Tool::refused(index)),
    };
    written.into_iter().enumerate().map(read).collect()
}

impl Tool {
    pub fn new(name: String, description: Option<String>, parameters: Option<Value>) -> Self {
        let parameters = parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        Self { name, description: description.unwrap_or_default(), parameters }
    }

    /// One that is no function of the caller's.
    pub fn refused(index: usize) -> Failure {
        let at = format!("tools[{index}]");
        let message = format!("{at}: only tools of the type function are taken");
        Failure::invalid(at, message)
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "an object with type")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: NamedSchema },
}

#[derive(Deserialize)]
#[serde(expecting = "an object with schema")]
struct NamedSchema {
    schema: Option<Map<String, Value>>,
    strict: Option<bool>,
}

fn schema(format: Option<ResponseFormat>) -> Result<Option<AnswerSchema>, Failure> {
    Ok(match format {
        None | Some(ResponseFormat::Text) => None,
        Some(ResponseFormat::JsonObject) => Some(any_object()),
        Some(ResponseFormat::JsonSchema { json_schema: NamedSchema { schema, strict } }) => {
            match schema {
                Some(schema) => Some(AnswerSchema { schema, is_strict: strict == Some(true) }),
                None => {
                    let message = "response_format: json_schema.schema is missing";
                    return Err(Failure::invalid("response_format", message));
                }
            }
        }
    })
}

/// The schema of `json_object`.
pub fn any_object() -> AnswerSchema {
    let schema = Map::from_iter([("type".to_owned(), "object".into())]);
    AnswerSchema { schema, is_strict: false }
}

impl Message {
    pub fn of(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())], calls: Vec::new(), call_id: None }
    }

    /// What it says, without what stands beside the text.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Data { .. } | Part::Address(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    pub fn has_attachments(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Text(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(change: Value, param: &str) {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let failure = Chat::read(body.to_string().as_bytes()).err().unwrap();
        assert_eq!(failure.to_json()["error"]["param"], param, "{change}");
        assert_eq!(failure.status, 400, "{change}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        refused(json!({"model": null}), "model");
        refused(json!({"model": 3}), "model");
        refused(json!({"messages": []}), "messages");
        refused(json!({"messages": "x"}), "messages");
        refused(json!({"messages": [{"role": "king", "content": "x"}]}), "messages[0]");
        refused(json!({"messages": [{"role": "user"}]}), "messages[0]");
        refused(json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0]");
        let audio = json!([{"role": "user", "content": [{"type": "input_audio"}]}]);
        refused(json!({"messages": audio}), "messages[0].content[0]");
        refused(json!({"n": 0}), "n");
        refused(json!({"n": 9}), "n");
        refused(json!({"n": 100}), "n");
        refused(json!({"stream": "yes"}), "stream");
        refused(json!({"max_tokens": 0}), "max_tokens");
        refused(json!({"tools": [{"type": "web_search"}]}), "tools[0]");
        refused(json!({"functions": []}), "functions");
        refused(json!({"logprobs": true, "top_logprobs": TOP_LOGPROBS_MAX + 1}), "top_logprobs");
        refused(json!({"response_format": {"type": "xml"}}), "response_format");
        refused(
            json!({"response_format": {"type": "json_schema", "json_schema": {}}}),
            "response_format",
        );
        for body in ["", "{", "[]", "null", "3"] {
            assert!(Chat::read(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_words_of_the_interface() {
        let check = |messages: Value, expected: &str| {
            let body = json!({"model": "m", "messages": messages}).to_string();
            let failure = Chat::read(body.as_bytes()).err().unwrap();
            assert_eq!(failure.to_json()["error"]["message"], expected);
        };
        check(json!([3]), "messages[0]: invalid type: integer `3`, expected a message");
        let content = json!([{"role": "user", "content": 3}]);
        check(content, "messages[0]: content must be a text or a list of parts");
        let image = json!([{"type": "image_url", "image_url": "data:"}]);
        check(
            json!([{"role": "user", "content": image}]),
            "messages[0].content[0]: invalid type: string \"data:\", expected an object with url",
        );
    }

    #[test]
    fn what_is_right_is_taken_and_the_rest_is_left() {
        let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}});
        let body = json!({
            "model": "m", "n": 8, "temperature": 0.5, "user": null, "logit_bias": {}, "store": false, "seed": 1,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, image]},
                {"role": "assistant", "content": null, "refusal": null}],
            "stream_options": {"include_usage": true}, "max_tokens": 5, "top_logprobs": 2,
        });
        let chat = Chat::read(body.to_string().as_bytes()).unwrap();
        assert_eq!((chat.choices, chat.include_usage, chat.logprobs), (8, true, Some(2)));
        assert_eq!(chat.tokens_max.map(u32::from), Some(5));
        assert_eq!(chat.rest.left(), ["temperature", "seed"]);
        assert!(chat.messages[0].has_attachments() && !chat.messages[1].has_attachments());
        let data = Part::Data {
            media_type: "image/png".into(),
            data: "AA==".into(),
            name: None,
            is_image: true,
        };
        assert_eq!(chat.messages[0].parts[1], data);
    }
}
