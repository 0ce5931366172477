//! A connection with a server: the handshake of either era, its list of tools, and calls.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Fuse, FusedFuture as _};
use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::inquiry::People;
use nexus_core::mcp::{Lookup, SERVER_TOOLS_MAX};
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelTaskParams, ClientRequest,
    DetailedTask, GetTaskParams, InputResponses, PaginatedRequestParams, PingRequest,
    ProgressNotificationParam, ProtocolVersion, ServerResult, SubscriptionFilter, Tool,
    UpdateTaskParams,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, Peer, PeerRequestOptions,
    RunningService, ServiceError,
};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clean;
use crate::elicit::Inquiries;
use crate::hub::{Handler, Hub, Offer};
use crate::lookup::{self, LookupError};
use crate::place::Place;
use crate::remote;
use crate::sleep::Awake;

/// Of one list. Two thousand tools fit in few.
pub const PAGES_MAX: usize = 64;

/// For what is known to be on its way when a connection closes: how the process ended.
const OBITUARY_MAX: Duration = Duration::from_secs(8);

/// To tell a server that nobody waits any more. One that does not read is not waited for.
const CANCEL_MAX: Duration = Duration::from_millis(500);

/// For a sign of life after a sleep.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// Before a server that wants nothing but to be called again is called again; longer each time.
const AGAIN: Duration = Duration::from_millis(100);

pub struct Connection {
    peer: Peer<RoleClient>,
    hub: Arc<Hub>,
    offer: Offer,
    pub protocol_version: String,
    pub server_info: Option<(String, String)>,
    /// Of the process that watches over the server, where it is one.
    pub pid: Option<u32>,
    pub started_at: Timestamp,
    /// When it was last known to be one.
    pub awake: Awake,
    /// Cancelled by whoever has no more use for it.
    pub end: CancellationToken,
    /// How it ended, once it has.
    pub obituary: watch::Sender<Option<String>>,
}

/// The task that carries messages, which ends with the connection.
pub type Running = RunningService<RoleClient, Handler>;

/// A call, by whom and for whom it is made.
pub struct ServerCall<'a> {
    pub user: &'a AgentId,
    pub tool: &'a str,
    pub arguments: Map<String, Value>,
    pub cancel: &'a CancellationToken,
    /// Whom the server may ask.
    pub people: &'a dyn People,
    /// The task that it had begun, when it is not to be made again.
    pub ticket: Option<&'a str>,
}

/// What a server answers to a call.
pub enum Called {
    Done(CallToolResult),
    /// It goes on with it, and can be asked for the task of this name.
    Task(String),
}

/// Why it is not known how a task stands.
pub enum PollError {
    /// The server does not know it, or makes no sense.
    Refused(String),
    /// It may be known the next time.
    Unreached(CallError),
}

/// Why a call has no result.
pub enum CallError {
    /// The server's connection is gone, and this is how it ended.
    Ended(String),
    /// Nothing came for so long.
    Silent(Duration),
    Cancelled,
    /// The server refused it, or answered what makes no sense.
    Refused(String),
    /// The server does not know who asks, or wants more of them; then what it wants.
    Unknown {
        why: String,
        challenge: Option<String>,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(why) | Self::Refused(why) | Self::Unknown { why, .. } => f.write_str(why),
            Self::Silent(_) => f.write_str("it said nothing in time"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl Connection {
    /// Speaks first, as the newer era has it unless `legacy`, and finds out with whom.
    pub async fn open(
        transport: impl Transport<RoleClient> + 'static,
        pid: Option<u32>,
        legacy: bool,
        offer: Offer,
    ) -> Result<(Self, Running, Arc<Notify>), String> {
        let hub = Arc::<Hub>::default();
        let listed = Arc::new(Notify::new());
        let handler = Handler { hub: hub.clone(), listed: listed.clone(), offer: offer.clone() };
        let older = ProtocolVersion::V_2025_11_25;
        let mode = match legacy {
            true => ClientLifecycleMode::Initialize,
            false => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(older),
            },
        };
        let running = handler.serve_with_lifecycle(transport, mode).await;
        let running = running.map_err(|error| not_opened(&error))?;
        let peer = running.peer().clone();
        let info = peer.peer_info().ok_or("the handshake left nothing known of it")?;
        let named = info.server_info.as_ref();
        let connection = Self {
            hub,
            offer,
            protocol_version: info.protocol_version.to_string(),
            server_info: named.map(|it| (it.name.clone(), it.version.clone())),
            pid,
            started_at: Timestamp::now(),
            awake: Awake::now(),
            end: CancellationToken::new(),
            obituary: watch::Sender::new(None),
            peer,
        };
        Ok((connection, running, listed))
    }

    /// The tools it has, as far as they are within the bounds, and whether those were met.
    pub async fn list(&self) -> Result<(Vec<Tool>, bool), String> {
        let info = self.peer.peer_info();
        if info.is_some_and(|info| info.capabilities.tools.is_none()) {
            return Ok((Vec::new(), false));
        }
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = self.peer.list_tools(Some(params)).await;
            let page = page.map_err(|error| {
                let why = match &error {
                    ServiceError::TransportSend(sent) => sent.error.downcast_ref(),
                    _ => None,
                };
                let why = why.map_or_else(|| error.to_string(), remote::words);
                format!("its tools cannot be listed: {why}")
            })?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if tools.len() > SERVER_TOOLS_MAX {
                tools.truncate(SERVER_TOOLS_MAX);
                return Ok((tools, true));
            }
            if cursor.is_none() {
                return Ok((tools, false));
            }
        }
        Ok((tools, true))
    }

    /// Whether it has resources.
    pub fn has_resources(&self) -> bool {
        self.peer.peer_info().is_some_and(|info| info.capabilities.resources.is_some())
    }

    /// What it says that models should know of it.
    pub fn instructions(&self) -> Option<String> {
        clean::instructions(self.peer.peer_info()?.instructions.as_deref()?)
    }

    /// Looks at what it has beside tools.
    pub async fn look_up(&self, lookup: &Lookup, timeout: Duration) -> Result<Value, CallError> {
        match lookup::ask(&self.peer, lookup, timeout).await {
            Ok(found) => Ok(found),
            Err(LookupError::Call(error)) => Err(error),
            Err(LookupError::Service(error)) => Err(self.failed(error).await),
        }
    }

    /// Has the server of the newer era say when its list changes; that of the older does so unasked.
    pub async fn listen(self: Arc<Self>, listed: Arc<Notify>) {
        let info = self.peer.peer_info();
        let tells = info.is_some_and(|info| {
            let tools = info.capabilities.tools.as_ref();
            !info.protocol_version.has_initialize()
                && tools.is_some_and(|tools| tools.list_changed == Some(true))
        });
        if !tells {
            return;
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let Ok(mut changes) = self.peer.listen(filter).await else { return };
        while let Ok(Some(_)) = changes.next().await {
            listed.notify_one();
        }
    }

    /// Makes a call and waits for its result, for as long as something comes within `timeout`, and answers what the server
    /// wants to know for it.
    pub async fn call(
        &self,
        call: &mut ServerCall<'_>,
        server: &str,
        timeout: Duration,
        mut place: Place<'_>,
        mut show: impl FnMut(ProgressNotificationParam),
    ) -> Result<Called, CallError> {
        let inquiries = Inquiries::new(server, &self.offer, call.people);
        let mut params = CallToolRequestParams::new(call.tool.to_owned());
        params.arguments = Some(std::mem::take(&mut call.arguments));
        let mut pause = AGAIN;
        loop {
            let said = self.once(call, params.clone(), timeout, &inquiries, &mut place, &mut show);
            let wanted = match said.await? {
                ServerResult::CallToolResult(result) => return Ok(Called::Done(result)),
                ServerResult::CreateTaskResult(begun) => {
                    return Ok(Called::Task(begun.task.task_id));
                }
                ServerResult::InputRequiredResult(wanted) => wanted,
                _ => {
                    let why = "the server's answer is no result of a tool";
                    return Err(CallError::Refused(why.into()));
                }
            };
            place.leave();
            inquiries.count().map_err(CallError::Refused)?;
            let requests = wanted.input_requests.unwrap_or_default();
            let answered = async {
                if requests.is_empty() {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                let responses = inquiries.answer_all(requests).await.map_err(CallError::Refused)?;
                place.resume().await;
                Ok(responses)
            };
            let answered = call.cancel.run_until_cancelled(answered).await;
            let responses = answered.unwrap_or(Err(CallError::Cancelled))?;
            params.input_responses = (!responses.is_empty()).then_some(responses);
            params.request_state = wanted.request_state;
        }
    }

    /// Says it once, and what comes back.
    async fn once(
        &self,
        call: &ServerCall<'_>,
        params: CallToolRequestParams,
        timeout: Duration,
        inquiries: &Inquiries<'_>,
        place: &mut Place<'_>,
        show: &mut impl FnMut(ProgressNotificationParam),
    ) -> Result<ServerResult, CallError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let mut handle = match sent.await {
            Ok(handle) => handle,
            Err(error) => return Err(self.failed(error).await),
        };
        let mut listening = self.hub.listen(call.user.clone(), handle.progress_token.clone());
        let mut asking = pin!(Fuse::terminated());
        let mut until = Instant::now() + timeout;
        let given_up = loop {
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    while let Ok(heard) = listening.progress.try_recv() {
                        show(heard);
                    }
                    return match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                        Ok(result) => Ok(result),
                        Err(error) => Err(self.failed(error).await),
                    };
                }
                Some(heard) = listening.progress.recv() => {
                    until = Instant::now() + timeout;
                    show(heard);
                }
                Some(put) = listening.questions.recv(), if asking.is_terminated() => {
                    place.leave();
                    asking.set(inquiries.answer(put).fuse());
                }
                answered = &mut asking, if !asking.is_terminated() => match answered {
                    Ok(()) => until = Instant::now() + timeout,
                    Err(why) => break CallError::Refused(why),
                },
                () = call.cancel.cancelled() => break CallError::Cancelled,
                // While it waits for a person, its silence is none.
                () = tokio::time::sleep_until(until), if asking.is_terminated() => {
                    break CallError::Silent(timeout);
                }
            }
        };
        let told = handle.cancel(Some("nobody waits for it any more".into()));
        let _ = tokio::time::timeout(CANCEL_MAX, told).await;
        Err(given_up)
    }

    /// How a task stands.
    pub async fn get_task(&self, id: &str, timeout: Duration) -> Result<DetailedTask, PollError> {
        let asked = self.peer.get_task(GetTaskParams::new(id));
        match tokio::time::timeout(timeout, asked).await {
            Ok(Ok(now)) if now.task.task.task_id == id => Ok(now.task),
            Ok(Ok(_)) => Err(PollError::Refused("the server speaks of another task".into())),
            Ok(Err(ServiceError::McpError(error))) => {
                Err(PollError::Refused(format!("the server refused it: {}", error.message)))
            }
            Ok(Err(ServiceError::UnexpectedResponse)) => {
                Err(PollError::Refused("the server's answer makes no sense".into()))
            }
            Ok(Err(error)) => Err(PollError::Unreached(self.failed(error).await)),
            Err(_) => Err(PollError::Unreached(CallError::Silent(timeout))),
        }
    }

    /// Tells a task what it wants to know.
    pub async fn answer_task(
        &self,
        id: &str,
        answers: InputResponses,
        timeout: Duration,
    ) -> Result<(), CallError> {
        let told = self.peer.update_task(UpdateTaskParams::new(id, answers));
        match tokio::time::timeout(timeout, told).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.failed(error).await),
            Err(_) => Err(CallError::Silent(timeout)),
        }
    }

    /// Tells a server that nobody waits for its task any more.
    pub async fn cancel_task(&self, id: &str) {
        let told = self.peer.cancel_task(CancelTaskParams::new(id));
        let _ = tokio::time::timeout(CANCEL_MAX, told).await;
    }

    /// Whether somebody answers at the other end. What is answered does not matter: the newer era has no word for this.
    pub async fn answers(&self) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let answered = tokio::time::timeout(PROBE_MAX, self.peer.send_request(ping)).await;
        matches!(
            answered,
            Ok(Ok(_) | Err(ServiceError::McpError(_) | ServiceError::UnexpectedResponse))
        )
    }

    /// Nothing can be said to the server any more.
    pub fn is_closed(&self) -> bool {
        self.peer.is_transport_closed()
    }

    async fn failed(&self, error: ServiceError) -> CallError {
        match error {
            ServiceError::McpError(error) => {
                CallError::Refused(format!("the server refused it: {}", error.message))
            }
            ServiceError::TransportSend(error) => match error.error.downcast_ref() {
                Some(error) => remote_failed(error),
                None => CallError::Ended(self.how_it_ended().await),
            },
            ServiceError::TransportClosed => CallError::Ended(self.how_it_ended().await),
            error => CallError::Refused(error.to_string()),
        }
    }

    /// How the connection ended, which is known a moment after it did.
    async fn how_it_ended(&self) -> String {
        let mut obituary = self.obituary.subscribe();
        let known = tokio::time::timeout(OBITUARY_MAX, obituary.wait_for(Option::is_some)).await;
        let known = known.ok().and_then(Result::ok).and_then(|text| (*text).clone());
        known.unwrap_or_else(|| "its connection was closed".into())
    }
}

fn remote_failed(error: &remote::Failure) -> CallError {
    let why = remote::words(error);
    match error {
        StreamableHttpError::AuthRequired(_) => CallError::Unknown { why, challenge: None },
        StreamableHttpError::InsufficientScope(error) => {
            let challenge = Some(error.www_authenticate_header.clone());
            CallError::Unknown { why, challenge }
        }
        _ => CallError::Refused(why),
    }
}

/// Why a handshake came to nothing.
fn not_opened(error: &ClientInitializeError) -> String {
    match error {
        // That is how the older era is tried, after the newer.
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => not_opened(fallback),
        ClientInitializeError::TransportError { error: sent, .. } => {
            match sent.error.downcast_ref() {
                Some(error) => remote::words(error),
                None => format!("the handshake failed: {error}"),
            }
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused the handshake: {}", error.message)
        }
        error => format!("the handshake failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;
    use crate::transport::{Breach, Pipes};

    /// A server of the older era, which answers to a ping so, or not at all.
    async fn opened(pong: Option<Value>) -> (Connection, Running) {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(theirs);
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line).unwrap();
                let mut answer = match message["method"].as_str() {
                    Some("initialize") => json!({"result": {
                        "protocolVersion": "2025-11-25", "capabilities": {},
                        "serverInfo": {"name": "test", "version": "1"},
                    }}),
                    Some("ping") => match &pong {
                        Some(pong) => pong.clone(),
                        None => continue,
                    },
                    _ => continue,
                };
                answer["jsonrpc"] = json!("2.0");
                answer["id"] = message["id"].clone();
                write.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            }
        });
        let (read, write) = tokio::io::split(ours);
        let pipes = Pipes::new(read, write, Breach::default());
        let (connection, running, _) =
            Connection::open(pipes, None, true, Offer::default()).await.unwrap();
        (connection, running)
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_answers_is_there() {
        let refused = json!({"error": {"code": -32601, "message": "unknown method"}});
        for (pong, answers) in
            [(Some(json!({"result": {}})), true), (Some(refused), true), (None, false)]
        {
            let (connection, running) = opened(pong.clone()).await;
            assert_eq!(connection.answers().await, answers, "{pong:?}");
            drop(running);
        }
    }

    /// With whom one speaks who answers to the first of each method so, and so much later, once it was asked for the
    /// handshake of the older era.
    async fn greeted(answers: &[(&str, Value, u64)]) -> Result<String, String> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let answers: Vec<_> =
            answers.iter().map(|(method, it, at)| (method.to_string(), it.clone(), *at)).collect();
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(theirs);
            let mut lines = BufReader::new(read).lines();
            let mut asked = std::collections::HashMap::new();
            while !asked.contains_key("initialize") {
                let line = lines.next_line().await.unwrap().unwrap();
                let message: Value = serde_json::from_str(&line).unwrap();
                asked.insert(message["method"].as_str().unwrap().to_owned(), message["id"].clone());
            }
            for (method, mut answer, after) in answers {
                tokio::time::sleep(Duration::from_secs(after)).await;
                answer["jsonrpc"] = json!("2.0");
                answer["id"] = asked[&method].clone();
                write.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            }
            while let Ok(Some(_)) = lines.next_line().await {}
        });
        let (read, write) = tokio::io::split(ours);
        let pipes = Pipes::new(read, write, Breach::default());
        let opened = Connection::open(pipes, None, false, Offer::default()).await;
        opened.map(|(connection, _running, _)| connection.protocol_version)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_starts_slowly_is_of_its_era() {
        const ASKED: &str = "server/discover";
        const SHAKEN: &str = "initialize";
        let newer = || {
            json!({"result": {"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}})
        };
        let older = || {
            json!({"result": {"protocolVersion": "2025-11-25", "capabilities": {},
                "serverInfo": {"name": "test", "version": "1"}}})
        };
        let refused = || json!({"error": {"code": -32600, "message": "no"}});
        let unknown = || json!({"error": {"code": -32601, "message": "unknown"}});
        let no = Err("it refused the handshake: no".to_owned());
        for (answers, expected) in [
            (vec![(ASKED, newer(), 9), (SHAKEN, refused(), 0)], Ok("2026-07-28".to_owned())),
            (vec![(SHAKEN, refused(), 9), (ASKED, newer(), 2)], Ok("2026-07-28".to_owned())),
            (vec![(SHAKEN, refused(), 9), (ASKED, newer(), 4)], no.clone()),
            (vec![(ASKED, newer(), 9)], Ok("2026-07-28".to_owned())),
            (vec![(ASKED, newer(), 9), (SHAKEN, older(), 2)], Ok("2025-11-25".to_owned())),
            (vec![(ASKED, newer(), 9), (SHAKEN, older(), 4)], Ok("2026-07-28".to_owned())),
            (vec![(ASKED, unknown(), 9), (SHAKEN, older(), 0)], Ok("2025-11-25".to_owned())),
            (vec![(SHAKEN, older(), 9), (ASKED, newer(), 0)], Ok("2025-11-25".to_owned())),
            (vec![(ASKED, unknown(), 9), (SHAKEN, refused(), 0)], no.clone()),
            (vec![(SHAKEN, refused(), 9), (ASKED, unknown(), 1)], no.clone()),
            (vec![(SHAKEN, refused(), 9)], no.clone()),
        ] {
            assert_eq!(greeted(&answers).await, expected, "{answers:?}");
        }
    }
}
