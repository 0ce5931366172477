//! What a server says and asks beside answers, and whom it concerns.
//!
//! One connection carries the calls of many agents. Progress names its call; a question of the older era does not, so it is
//! put only where all calls under way are one agent's: nobody answers for another agent without knowing.

#![expect(deprecated, reason = "servers still ask for roots and sampling")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use nexus_core::AgentId;
use nexus_core::mcp::{ServerEntry, Way};
use reqwest::Url;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestMethod, CreateMessageRequestParams,
    CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationCapability,
    ElicitationCreateRequestMethod, ErrorData, FormElicitationCapability, Implementation,
    JsonObject, ListRootsRequestMethod, ListRootsResult, ProgressNotificationParam, ProgressToken,
    ProtocolVersion, Root, RootsCapabilities, SamplingCapability, TASKS_EXTENSION_ID,
    UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::lock;

/// Progress that waits to be shown; more says nothing.
const PROGRESS_MAX: usize = 16;

/// Questions that wait behind the one that is asked.
const QUESTIONS_MAX: usize = 4;

/// What a server may ask of us. What it may not is not offered to it, and refused.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    pub elicitation: bool,
    pub sampling: bool,
    /// The directories it is for, where it may know them.
    roots: Option<Vec<Root>>,
}

impl Offer {
    pub fn of(entry: &ServerEntry) -> Self {
        let roots = match &entry.way {
            Way::Program(program) if entry.roots => {
                let sandbox = program.sandbox.read.iter().chain(&program.sandbox.write);
                let dirs = program.cwd.iter().chain(sandbox);
                let url = dirs.filter_map(|dir| Url::from_directory_path(dir).ok());
                Some(url.map(|url| Root::new(url.as_str())).collect())
            }
            _ => None,
        };
        Self { elicitation: entry.elicitation, sampling: entry.sampling, roots }
    }

    /// The answer to a server that wants to know its directories, if it may.
    pub fn list_roots(&self) -> Option<ListRootsResult> {
        self.roots.clone().map(ListRootsResult::new)
    }

    fn capabilities(&self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        if self.elicitation {
            let form = FormElicitationCapability::new().with_schema_validation(true);
            let elicitation = ElicitationCapability::new().with_form(form);
            capabilities.elicitation = Some(elicitation.with_url(UrlElicitationCapability::new()));
        }
        capabilities.sampling = self.sampling.then(SamplingCapability::default);
        let tasks = (TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
        capabilities.extensions.get_or_insert_default().extend([tasks]);
        capabilities.roots = self.roots.as_ref().map(|_| RootsCapabilities::default());
        capabilities
    }
}

/// Hears what a server says and asks.
#[derive(Clone)]
pub struct Handler {
    pub hub: Arc<Hub>,
    pub listed: Arc<Notify>,
    pub offer: Offer,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("nexus3", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(self.offer.capabilities(), us)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.hub.tell(params);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.listed.notify_one();
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if !self.offer.elicitation {
            return Err(ErrorData::method_not_found::<ElicitationCreateRequestMethod>());
        }
        self.hub.ask(|reply| Put::Elicitation(params, reply), &context.ct).await
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        if !self.offer.sampling {
            return Err(ErrorData::method_not_found::<CreateMessageRequestMethod>());
        }
        self.hub.ask(|reply| Put::Sampling(params, reply), &context.ct).await
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        let refused = ErrorData::method_not_found::<ListRootsRequestMethod>;
        self.offer.list_roots().ok_or_else(refused)
    }
}

/// The calls under way.
#[derive(Default)]
pub struct Hub(Mutex<HashMap<ProgressToken, Waiting>>);

struct Waiting {
    user: AgentId,
    progress: mpsc::Sender<ProgressNotificationParam>,
    questions: mpsc::Sender<Put>,
}

/// A question of a server to the people of a call. An answer that is an error is for the server.
pub enum Put {
    Elicitation(ElicitRequestParams, Answer<ElicitResult>),
    Sampling(CreateMessageRequestParams, Answer<CreateMessageResult>),
}

pub type Answer<T> = oneshot::Sender<Result<T, String>>;

/// What concerns one call.
pub struct Listening<'a> {
    hub: &'a Hub,
    token: ProgressToken,
    pub progress: mpsc::Receiver<ProgressNotificationParam>,
    pub questions: mpsc::Receiver<Put>,
}

impl Hub {
    pub fn listen(&self, user: AgentId, token: ProgressToken) -> Listening<'_> {
        let (heard, progress) = mpsc::channel(PROGRESS_MAX);
        let (put, questions) = mpsc::channel(QUESTIONS_MAX);
        let waiting = Waiting { user, progress: heard, questions: put };
        lock(&self.0).insert(token.clone(), waiting);
        Listening { hub: self, token, progress, questions }
    }

    fn tell(&self, params: ProgressNotificationParam) {
        if let Some(waiting) = lock(&self.0).get(&params.progress_token) {
            // One who does not keep up has enough to show.
            let _ = waiting.progress.try_send(params.clone());
        }
    }

    /// Puts a question and waits for the answer, which is the server's. One that the server withdraws is not asked any
    /// longer: whoever asks sees that nobody waits.
    async fn ask<T>(
        &self,
        question: impl FnOnce(Answer<T>) -> Put,
        withdrawn: &CancellationToken,
    ) -> Result<T, ErrorData> {
        let refused = |why| ErrorData::invalid_request(why, None);
        let (reply, answer) = oneshot::channel();
        self.put(question(reply)).map_err(refused)?;
        match withdrawn.run_until_cancelled(answer).await {
            Some(Ok(answer)) => answer.map_err(|why| ErrorData::invalid_params(why, None)),
            Some(Err(_)) | None => Err(refused("the call for which this is asked is over")),
        }
    }

    /// Puts a question to the people of the agent whose calls are under way; or why not.
    fn put(&self, question: Put) -> Result<(), &'static str> {
        let calls = lock(&self.0);
        let mut waiting = calls.values();
        let one = waiting.next().ok_or("no call is under way for which this could be asked")?;
        if waiting.any(|other| other.user != one.user) {
            return Err(
                "calls of several agents are under way, and it cannot be known for whom this is asked",
            );
        }
        one.questions.try_send(question).map_err(|_| "too many questions at once")
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        lock(&self.hub.0).remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;
    use serde_json::json;

    use super::*;

    fn question() -> Put {
        let schema = json!({"type": "object", "properties": {}});
        let params = json!({"message": "?", "requestedSchema": schema});
        Put::Elicitation(serde_json::from_value(params).unwrap(), oneshot::channel().0)
    }

    fn listen<'a>(hub: &'a Hub, user: &str, number: i64) -> Listening<'a> {
        hub.listen(AgentId::parse(user).unwrap(), ProgressToken(NumberOrString::Number(number)))
    }

    #[test]
    fn a_question_is_put_only_where_it_is_clear_whose_it_is() {
        let hub = Hub::default();
        assert!(hub.put(question()).unwrap_err().contains("no call"));
        let mut first = listen(&hub, "a", 1);
        let mut again = listen(&hub, "a", 2);
        assert!(hub.put(question()).is_ok());
        assert!(first.questions.try_recv().is_ok() || again.questions.try_recv().is_ok());
        let other = listen(&hub, "b", 3);
        assert!(hub.put(question()).unwrap_err().contains("several agents"));
        drop(other);
        drop(again);
        for _ in 0..QUESTIONS_MAX {
            assert!(hub.put(question()).is_ok());
        }
        assert!(hub.put(question()).unwrap_err().contains("too many"));
        drop(first);
        assert!(hub.put(question()).unwrap_err().contains("no call"));
    }
}
