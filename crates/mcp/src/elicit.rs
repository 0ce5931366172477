//! What servers ask while a call runs: questions on their way to people, and the answers back.

#![expect(deprecated, reason = "servers still ask for sampling")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nexus_core::inquiry::{Asking, Complete, Inquiry, People, Reply, Wants};
use reqwest::Url;
use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, InputRequest, InputRequests, InputResponses,
};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::clean::is_seen;
use crate::hub::{Offer, Put};
use crate::sample::{self, Wanted};
use crate::schema;

/// Questions within one call. Who asks more asks without end.
const ROUNDS_MAX: u32 = 10;

/// Of one question: as much as a person reads before an answer.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
const SCHEMA_BYTES_MAX: usize = 32 << 10;
const URL_BYTES_MAX: usize = 2_048;

/// What a server may ask within one call, and whom.
pub struct Inquiries<'a> {
    server: &'a str,
    offer: &'a Offer,
    people: &'a dyn People,
    asked: AtomicU32,
}

impl<'a> Inquiries<'a> {
    pub fn new(server: &'a str, offer: &'a Offer, people: &'a dyn People) -> Self {
        Self { server, offer, people, asked: AtomicU32::new(0) }
    }

    /// Counts a round; an error when it is one too many.
    pub fn count(&self) -> Result<(), String> {
        match self.asked.fetch_add(1, Ordering::Relaxed) >= ROUNDS_MAX {
            true => Err(format!("the server asked more than {ROUNDS_MAX} times within one call")),
            false => Ok(()),
        }
    }

    /// Answers a question of the older era, unless it is withdrawn before. An error is for the call.
    pub async fn answer(&self, put: Put) -> Result<(), String> {
        self.count()?;
        match put {
            Put::Elicitation(params, reply) => put_to(reply, self.elicit(params)).await,
            Put::Sampling(params, reply) => put_to(reply, self.sample(params)).await,
        }
        Ok(())
    }

    /// All that a server of the newer era wants before it goes on; or why it does not get it.
    pub async fn answer_all(&self, requests: InputRequests) -> Result<InputResponses, String> {
        let mut responses = InputResponses::new();
        for (key, request) in requests {
            let response = match request {
                InputRequest::Elicitation(request) if self.offer.elicitation => {
                    serde_json::to_value(self.elicit(request.params).await?)
                }
                InputRequest::CreateMessage(request) if self.offer.sampling => {
                    serde_json::to_value(self.sample(request.params).await?)
                }
                InputRequest::ListRoots(_) if let Some(roots) = self.offer.list_roots() => {
                    serde_json::to_value(roots)
                }
                other => return Err(self.not_offered(&other)),
            };
            responses.insert(key, response.map_err(|error| error.to_string())?);
        }
        Ok(responses)
    }

    fn not_offered(&self, request: &InputRequest) -> String {
        let what = match request {
            InputRequest::Elicitation(_) => "elicitation",
            InputRequest::ListRoots(_) => "roots",
            InputRequest::CreateMessage(_) => "sampling",
            _ => "something unknown",
        };
        format!("the MCP server {} asks for {what}, which it was not offered", self.server)
    }

    /// Puts a question to people. An error says why it cannot be asked.
    async fn elicit(&self, params: ElicitRequestParams) -> Result<ElicitResult, String> {
        let asking = asking(self.server, params)?;
        let has_form = matches!(asking.inquiry.wants, Wants::Form(_));
        Ok(match self.people.ask(asking).await {
            Reply::Accept(form) if has_form => {
                ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(form))
            }
            Reply::Accept(_) => ElicitResult::new(ElicitationAction::Accept),
            Reply::Decline => ElicitResult::new(ElicitationAction::Decline),
            Reply::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    /// Has the agent's model say something, if people let it. An error says why it does not.
    async fn sample(
        &self,
        params: CreateMessageRequestParams,
    ) -> Result<CreateMessageResult, String> {
        let Wanted { asking, sample, stops } = Wanted::of(self.server, params)?;
        Ok(sample::answer(&stops, self.people.sample(asking, sample).await?))
    }
}

/// Gives an answer back, unless the question is withdrawn before there is one.
async fn put_to<T>(
    mut reply: oneshot::Sender<Result<T, String>>,
    answer: impl Future<Output = Result<T, String>>,
) {
    tokio::select! {
        biased;
        () = reply.closed() => {}
        answer = answer => drop(reply.send(answer)),
    }
}

/// Whether a person would read all of it.
pub fn check_length(message: &str) -> Result<(), String> {
    match message.len() > MESSAGE_BYTES_MAX {
        true => Err(format!("a question has at most {MESSAGE_BYTES_MAX} bytes")),
        false => Ok(()),
    }
}

/// A question as people are asked it.
fn asking(server: &str, params: ElicitRequestParams) -> Result<Asking, String> {
    let (message, wants, complete) = match params {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema = serde_json::to_value(requested_schema);
            let schema = schema.map_err(|error| error.to_string())?;
            let complete = complete(&schema)?;
            (message, Wants::Form(schema), complete)
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            let complete: Complete = Arc::new(|form| match form.is_empty() {
                true => Ok(form),
                false => Err("content is for forms, and here is none".into()),
            });
            (message, visit(&url)?, complete)
        }
        _ => return Err("a question of this kind cannot be put".into()),
    };
    check_length(&message)?;
    let message = message.chars().filter(|c| is_seen(*c)).collect();
    Ok(Asking { inquiry: Inquiry { server: server.into(), message, wants }, complete })
}

/// Fills in what a person left out, and holds the form against its schema.
fn complete(schema: &Value) -> Result<Complete, String> {
    if schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err(format!("a form has at most {SCHEMA_BYTES_MAX} bytes"));
    }
    let validator = schema::compile_form(schema)?;
    let properties = schema["properties"].as_object();
    let default =
        |(name, field): (&String, &Value)| Some((name.clone(), field.get("default")?.clone()));
    let defaults: Map<String, Value> =
        properties.into_iter().flatten().filter_map(default).collect();
    Ok(Arc::new(move |form| {
        let mut whole = form;
        for (name, value) in &defaults {
            whole.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let form = Value::Object(whole);
        schema::check(&validator, &form)?;
        match form {
            Value::Object(form) => Ok(form),
            _ => Ok(Map::new()),
        }
    }))
}

/// An address that a person can judge by what it looks like.
fn visit(written: &str) -> Result<Wants, String> {
    if written.len() > URL_BYTES_MAX {
        return Err(format!("an address has at most {URL_BYTES_MAX} bytes"));
    }
    let url = Url::parse(written).map_err(|error| format!("it is no address: {error}"))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err("an address begins with https:// or http://".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "an address that names a user is not shown: its host is not what it looks like".into(),
        );
    }
    // With the host as the network knows it, whatever alphabet it was written in.
    let host = url.authority().to_owned();
    Ok(Wants::Visit { url: url.into(), host })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form(message: &str, properties: Value) -> ElicitRequestParams {
        let schema = json!({"type": "object", "properties": properties});
        serde_json::from_value(json!({"message": message, "requestedSchema": schema})).unwrap()
    }

    fn asked_to_visit(url: &str) -> Result<Asking, String> {
        let params = json!({"mode": "url", "message": "m", "url": url, "elicitationId": "1"});
        asking("s", serde_json::from_value(params).unwrap())
    }

    #[test]
    fn what_is_left_out_has_its_default_and_the_form_is_checked() {
        let properties = json!({
            "name": {"type": "string", "default": "Ada"},
            "age": {"type": "integer", "minimum": 1},
            "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "mail": {"type": "string", "format": "email"},
        });
        let asked = asking("s", form("who\u{200b}?\u{1b}", properties)).unwrap();
        assert_eq!(asked.inquiry.message, "who?");
        let complete =
            |form: Value| (asked.complete)(form.as_object().unwrap().clone()).map(Value::Object);
        assert_eq!(complete(json!({})), Ok(json!({"name": "Ada", "colour": "red"})));
        assert_eq!(
            complete(json!({"name": "Eve", "age": 1})),
            Ok(json!({"name": "Eve", "age": 1, "colour": "red"}))
        );
        assert!(complete(json!({"age": 0})).unwrap_err().starts_with("/age: "));
        assert!(complete(json!({"mail": "ada@example.com"})).is_ok());
        assert!(complete(json!({"mail": "nobody"})).unwrap_err().starts_with("/mail: "));
        assert!(complete(json!({"colour": "blue"})).unwrap_err().starts_with("/colour: "));
    }

    #[test]
    fn just_the_longest_question_is_put_and_a_longer_one_not() {
        let message = |bytes: usize| asking("s", form(&"a".repeat(bytes), json!({})));
        assert!(message(MESSAGE_BYTES_MAX).is_ok());
        assert!(message(MESSAGE_BYTES_MAX + 1).is_err());
        let bare = json!({"type": "object", "properties": {"a": {"type": "string", "title": ""}}});
        let room = SCHEMA_BYTES_MAX - bare.to_string().len();
        let title = |bytes: usize| {
            let field = json!({"a": {"type": "string", "title": "t".repeat(bytes)}});
            asking("s", form("m", field))
        };
        assert!(title(room).is_ok());
        assert!(title(room + 1).is_err());
        let path =
            |bytes: usize| asked_to_visit(&format!("https://a.example/{}", "p".repeat(bytes)));
        assert!(path(URL_BYTES_MAX - 18).is_ok());
        assert!(path(URL_BYTES_MAX - 17).is_err());
    }

    #[test]
    fn an_address_is_what_it_looks_like() {
        let shown = |url: &str| asked_to_visit(url).map(|asking| asking.inquiry.wants);
        let ok = |url: &str, host: &str| Ok(Wants::Visit { url: url.into(), host: host.into() });
        assert_eq!(shown("https://a.example/x?y"), ok("https://a.example/x?y", "a.example"));
        assert_eq!(shown("http://a.example:81"), ok("http://a.example:81/", "a.example:81"));
        assert_eq!(
            shown("https://аpple.example/"),
            ok("https://xn--pple-43d.example/", "xn--pple-43d.example")
        );
        for refused in ["javascript:alert(1)", "file:///etc/passwd", "no", "https://a@b.example/"] {
            assert!(shown(refused).is_err(), "{refused}");
        }
        let asked = asked_to_visit("https://a.example/").unwrap();
        let some = Map::from_iter([("a".to_owned(), json!(1))]);
        assert!((asked.complete)(some).is_err() && (asked.complete)(Map::new()).is_ok());
    }
}
