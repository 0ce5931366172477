//! A connection with a server: the handshake of either era, its list of tools, and calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use nexus_core::mcp::SERVER_TOOLS_MAX;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig,
    ClientRequest, Implementation, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, ServerResult, SubscriptionFilter, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, NotificationContext, Peer,
    PeerRequestOptions, RunningService, ServiceError,
};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lock;
use crate::remote;

/// Of one list. Two thousand tools fit in few.
const PAGES_MAX: usize = 64;

/// For what is known to be on its way when a connection closes: how the process ended.
const OBITUARY_MAX: Duration = Duration::from_secs(8);

/// To tell a server that nobody waits any more. One that does not read is not waited for.
const CANCEL_MAX: Duration = Duration::from_millis(500);

/// Progress that waits to be shown; more says nothing.
const PROGRESS_MAX: usize = 16;

pub struct Connection {
    peer: Peer<RoleClient>,
    hub: Arc<Hub>,
    pub protocol_version: String,
    pub server_info: Option<(String, String)>,
    /// Of the process that watches over the server, where it is one.
    pub pid: Option<u32>,
    pub started_at: Timestamp,
    /// Cancelled by whoever has no more use for it.
    pub end: CancellationToken,
    /// How it ended, once it has.
    pub obituary: watch::Sender<Option<String>>,
}

/// The task that carries messages, which ends with the connection.
pub type Running = RunningService<RoleClient, Handler>;

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

impl Connection {
    /// Speaks first, as the newer era has it unless `legacy`, and finds out with whom.
    pub async fn open(
        transport: impl Transport<RoleClient> + 'static,
        pid: Option<u32>,
        legacy: bool,
    ) -> Result<(Self, Running, Arc<Notify>), String> {
        let hub = Arc::<Hub>::default();
        let listed = Arc::new(Notify::new());
        let handler = Handler { hub: hub.clone(), listed: listed.clone() };
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
            protocol_version: info.protocol_version.to_string(),
            server_info: named.map(|it| (it.name.clone(), it.version.clone())),
            pid,
            started_at: Timestamp::now(),
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

    /// Makes a call and waits for its result, for as long as something comes within `timeout`.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        timeout: Duration,
        cancel: &CancellationToken,
        mut show: impl FnMut(ProgressNotificationParam),
    ) -> Result<CallToolResult, CallError> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let mut handle = match sent.await {
            Ok(handle) => handle,
            Err(error) => return Err(self.failed(error).await),
        };
        let mut progress = self.hub.listen(handle.progress_token.clone());
        let mut until = Instant::now() + timeout;
        let given_up = loop {
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    return match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                        Ok(result) => result_of(result),
                        Err(error) => Err(self.failed(error).await),
                    };
                }
                Some(heard) = progress.heard.recv() => {
                    until = Instant::now() + timeout;
                    show(heard);
                }
                () = cancel.cancelled() => break CallError::Cancelled,
                () = tokio::time::sleep_until(until) => break CallError::Silent(timeout),
            }
        };
        let told = handle.cancel(Some("nobody waits for it any more".into()));
        let _ = tokio::time::timeout(CANCEL_MAX, told).await;
        Err(given_up)
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

fn result_of(result: ServerResult) -> Result<CallToolResult, CallError> {
    match result {
        ServerResult::CallToolResult(result) => Ok(result),
        ServerResult::InputRequiredResult(_) => Err(CallError::Refused(
            "the server asks for something from a person, which nexus3 does not pass on yet".into(),
        )),
        _ => Err(CallError::Refused("the server's answer is no result of a tool".into())),
    }
}

/// What a server may tell and ask of us beside answers. What is not offered to it is refused.
#[derive(Clone)]
pub struct Handler {
    hub: Arc<Hub>,
    listed: Arc<Notify>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("nexus3", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
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
}

/// Who waits for progress of which call.
#[derive(Default)]
pub struct Hub(Mutex<HashMap<ProgressToken, mpsc::Sender<ProgressNotificationParam>>>);

struct Listening<'a> {
    hub: &'a Hub,
    token: ProgressToken,
    heard: mpsc::Receiver<ProgressNotificationParam>,
}

impl Hub {
    fn listen(&self, token: ProgressToken) -> Listening<'_> {
        let (sender, heard) = mpsc::channel(PROGRESS_MAX);
        lock(&self.0).insert(token.clone(), sender);
        Listening { hub: self, token, heard }
    }

    fn tell(&self, params: ProgressNotificationParam) {
        if let Some(sender) = lock(&self.0).get(&params.progress_token) {
            // One who does not keep up has enough to show.
            let _ = sender.try_send(params.clone());
        }
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        lock(&self.hub.0).remove(&self.token);
    }
}
