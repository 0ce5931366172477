//! The client over HTTP.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming as Body;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use nexus_protocol::answer;
use nexus_protocol::envelope::Call;
use nexus_protocol::key::Door;
use nexus_protocol::turn::{Send as SendMessage, SendParams, SendResult};
use nexus_protocol::watch::{Watch, WatchParams};
use nexus_protocol::{Api, CallError, Method, Target, WatchApi};
use nexus_signing::{NoSigningKey, SigningKey};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::incoming::Incoming;
use crate::retry::{Again, retrying, timeout_for};
use crate::stream::SendStream;
use crate::token::{self, Environment, Token};
use crate::watch::WatchStream;
use crate::{PORT_DEFAULT, detection, outgoing};

/// Largest answer that is read. A page of 2,000 long messages fits; a stranger's endless body does not fill the memory.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A server on this machine accepts at once or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Says on whose behalf a call is made; lowers the caller to that agent's rights.
const AGENT_HEADER: &str = "x-nexus-agent";

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// Calls a server over HTTP. Connections are kept and shared; calls may be made side by side.
pub struct NexusClient {
    http: Client<HttpConnector, Full<Bytes>>,
    /// `http://host:port`, without a path.
    origin: String,
    authorization: Mutex<Option<HeaderValue>>,
    /// Where the token is looked for again when it is refused: a server that was started anew has another.
    found: Option<(Environment, u16)>,
    identity: Option<HeaderValue>,
    signing_key: Option<SigningKey>,
    timeout: Option<Duration>,
    door: Option<Door>,
    id_last: AtomicU64,
    warnings: Vec<String>,
}

/// Options of a [`NexusClient`].
#[derive(Debug)]
pub struct Builder {
    url: String,
    credentials: Credentials,
    identity: Option<String>,
    signing_key: Option<Result<SigningKey, NoSigningKey>>,
    timeout: Option<Duration>,
}

#[derive(Debug)]
enum Credentials {
    /// Looked up, and only for this machine: a token file's secret is not sent elsewhere.
    Found(Environment),
    Given(String),
    None,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("not the URL of a server: {url}: {problem}")]
    Url { url: String, problem: String },
    #[error(transparent)]
    Token(#[from] token::Error),
    #[error("not the name of an agent: {0:?}")]
    Identity(String),
    #[error(transparent)]
    SigningKey(#[from] NoSigningKey),
}

impl NexusClient {
    /// A client for `http://127.0.0.1:8765` with the token that is found for it, until told otherwise.
    pub fn builder() -> Builder {
        Builder {
            url: format!("http://127.0.0.1:{PORT_DEFAULT}"),
            signing_key: SigningKey::of_process(),
            credentials: Credentials::Found(Environment::of_process()),
            identity: None,
            timeout: None,
        }
    }

    /// Says of every call that it was made of one of another protocol.
    pub fn through(mut self, door: Door) -> Self {
        self.door = Some(door);
        self
    }

    /// What a person should be told about the search for the token.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Calls a method known by name only.
    pub async fn call_value(
        &self,
        target: &Target,
        method: &str,
        params: &Value,
    ) -> Result<Value, CallError> {
        let call = self.prepare(target, method, params)?;
        self.exchange(call, self.timeout, Again::of_value(params)).await
    }

    /// Sends a message and returns its answer as it is made.
    pub async fn send_stream(
        &self,
        agent_id: &str,
        params: SendParams,
    ) -> Result<SendStream, CallError> {
        let params = SendParams { stream: Some(true), ..params };
        let target = Target::Agent(agent_id.into());
        let (id, incoming) = self.open::<SendMessage>(&target, &params).await?;
        Ok(SendStream::new(id, incoming, self.timeout))
    }

    /// Watches agents: everything that happens to them. The watch has no time limit.
    pub async fn watch(&self, params: WatchParams) -> Result<WatchStream, CallError> {
        let (id, incoming) = self.open::<Watch>(&Target::Server, &params).await?;
        Ok(WatchStream::new(id, incoming))
    }

    /// Begins a call whose answer comes in pieces, and returns what comes. An answer that refuses it is an error.
    async fn open<M: Method>(
        &self,
        target: &Target,
        params: &M::Params,
    ) -> Result<(u64, Incoming), CallError> {
        let call = self.prepare(target, M::NAME, params)?;
        let opening = retrying(self.timeout, Again::of::<M>(params), || async {
            let response = self.post(&call, EVENT_STREAM).await?;
            if is_event_stream(&response) {
                return Ok(Incoming::events(response.into_body()));
            }
            let body = read_body(response).await?;
            answer::result::<M::Result>(answer::envelope(&body)?, call.id)?;
            Ok(Incoming::Answer(Some(body)))
        });
        Ok((call.id, opening.await?))
    }

    fn prepare<P: Serialize>(
        &self,
        target: &Target,
        method: &str,
        params: &P,
    ) -> Result<Prepared, CallError> {
        let path = match target {
            Target::Server => "/rpc".to_string(),
            Target::Agent(agent_id) => format!("/agent/{}", escape(agent_id)),
        };
        let uri = format!("{}{path}", self.origin).parse();
        let uri: Uri = uri.map_err(|error| CallError::Call(format!("{path}: {error}")))?;
        let id = self.id_last.fetch_add(1, Ordering::Relaxed) + 1;
        let body = serde_json::to_vec(&Call::new(id, method, params).through(self.door))
            .map_err(|error| CallError::Call(error.to_string()))?;
        Ok(Prepared { id, uri, body: body.into() })
    }

    async fn exchange<R: DeserializeOwned>(
        &self,
        call: Prepared,
        timeout: Option<Duration>,
        again: Again,
    ) -> Result<R, CallError> {
        retrying(timeout, again, || async {
            let body = read_body(self.post(&call, JSON).await?).await?;
            answer::result(answer::envelope(&body)?, call.id)
        })
        .await
    }

    async fn post(
        &self,
        call: &Prepared,
        accept: &'static str,
    ) -> Result<Response<Body>, CallError> {
        let authorization = self.authorization().clone();
        let response = self.post_as(authorization.clone(), call, accept).await?;
        if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            && let Some(other) = self.found_anew(authorization.as_ref())
        {
            return self.post_as(Some(other), call, accept).await;
        }
        Ok(response)
    }

    /// Another token than the one that was refused, where one is found by now.
    fn found_anew(&self, refused: Option<&HeaderValue>) -> Option<HeaderValue> {
        let (environment, port) = self.found.as_ref()?;
        let other = token::find(environment, *port).ok()?.token.as_ref().and_then(bearer);
        let other = other.filter(|other| Some(other) != refused)?;
        *self.authorization() = Some(other.clone());
        Some(other)
    }

    fn authorization(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.authorization.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn post_as(
        &self,
        authorization: Option<HeaderValue>,
        call: &Prepared,
        accept: &'static str,
    ) -> Result<Response<Body>, CallError> {
        let body = outgoing::signed(self.signing_key.as_ref(), &call.body)?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = call.uri.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization);
        }
        if let Some(identity) = &self.identity {
            headers.insert(AGENT_HEADER, identity.clone());
        }
        self.http.request(request).await.map_err(|error| match error.is_connect() {
            true => CallError::Connect(outgoing::cause(&error)),
            false => CallError::Transport(outgoing::cause(&error)),
        })
    }
}

impl WatchApi for NexusClient {
    type Watch = WatchStream;

    async fn send_held(&self, agent_id: &str, params: SendParams) -> Result<SendResult, CallError> {
        self.send_stream(agent_id, params).await?.finish().await
    }

    async fn watch(&self, params: WatchParams) -> Result<WatchStream, CallError> {
        self.watch(params).await
    }
}

impl Api for NexusClient {
    async fn call<M: Method>(
        &self,
        target: &Target,
        params: M::Params,
    ) -> Result<M::Result, CallError> {
        let call = self.prepare(target, M::NAME, &params)?;
        self.exchange(call, timeout_for(M::KIND, self.timeout), Again::of::<M>(&params)).await
    }
}

/// A call that is ready to be sent, more than once if need be.
struct Prepared {
    id: u64,
    uri: Uri,
    body: Bytes,
}

impl Builder {
    /// `http://host:port`. The server speaks plain HTTP on loopback, so there is no `https`.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// The token to send, whatever the URL.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.credentials = Credentials::Given(token.into());
        self
    }

    /// Sends no token, and looks for none.
    pub fn without_token(mut self) -> Self {
        self.credentials = Credentials::None;
        self
    }

    /// Where to look for the token; the process's own environment unless told otherwise.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.credentials = Credentials::Found(environment);
        self
    }

    /// Makes every call with the rights of this agent only (`X-Nexus-Agent`).
    pub fn agent_identity(mut self, agent_id: impl Into<String>) -> Self {
        self.identity = Some(agent_id.into());
        self
    }

    /// Signs every call with this key, `ID:SECRET`; that of the environment (`NEXUS3_SIGNING_KEY`) unless told otherwise.
    pub fn signing_key(mut self, key: &str) -> Self {
        self.signing_key = Some(SigningKey::parse(key));
        self
    }

    /// How long a call may take, its retries included. Without it a read has 30 s and all else no limit, since it may
    /// wait for a turn.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub fn build(self) -> Result<NexusClient, BuildError> {
        let server = Server::parse(&self.url)
            .map_err(|problem| BuildError::Url { url: self.url.clone(), problem })?;
        let (mut warnings, mut found) = (Vec::new(), None);
        let token = match self.credentials {
            Credentials::Given(text) => Token::read(&text, "the caller")?,
            Credentials::Found(environment) if server.is_ours => {
                let lookup = token::find(&environment, server.port)?;
                warnings = lookup.warnings;
                found = Some((environment, server.port));
                lookup.token
            }
            Credentials::Found(_) | Credentials::None => None,
        };
        let identity = self.identity.map(|name| match HeaderValue::from_str(&name) {
            Ok(value) => Ok(value),
            Err(_) => Err(BuildError::Identity(name)),
        });
        Ok(NexusClient {
            http: http_client(),
            origin: server.origin,
            authorization: Mutex::new(token.as_ref().and_then(bearer)),
            found,
            identity: identity.transpose()?,
            signing_key: self.signing_key.transpose()?,
            door: None,
            timeout: self.timeout,
            id_last: AtomicU64::new(0),
            warnings,
        })
    }
}

struct Server {
    origin: String,
    port: u16,
    is_ours: bool,
}

impl Server {
    fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
        if uri.scheme_str() != Some("http") {
            return Err("it must start with http://".into());
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("it must not have a path".into());
        }
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it must not have a user; the token goes apart".into());
        }
        let (host, port) = (authority.host(), authority.port_u16().unwrap_or(80));
        Ok(Self {
            origin: format!("http://{}", detection::authority(address_of(host), port)),
            port,
            is_ours: is_ours(host),
        })
    }
}

/// The name `localhost` means two addresses, of which somebody else may have the other. A server is on this one.
fn address_of(host: &str) -> &str {
    if host.eq_ignore_ascii_case("localhost") { "127.0.0.1" } else { host }
}

/// Whether a URL of a server is one of this machine; the error says why it is none at all.
pub fn is_of_this_machine(url: &str) -> Result<bool, String> {
    Server::parse(url).map(|server| server.is_ours)
}

/// Whether `host` is where servers of this machine listen, so that a token found here may go there. On the further
/// addresses of the loopback network, as on any other machine, listens somebody else.
pub(crate) fn is_ours(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    matches!(address_of(host), "127.0.0.1" | "::1")
}

fn http_client() -> Client<HttpConnector, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector)
}

/// The header's value, marked so that nothing prints it. A [`Token`] always fits into a header.
fn bearer(token: &Token) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.as_str())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn is_event_stream(response: &Response<Body>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENT_STREAM.as_bytes()))
}

async fn read_body(response: Response<Body>) -> Result<Bytes, CallError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => CallError::Answer(format!("it is over {ANSWER_BYTES_MAX} bytes")),
        false => CallError::Transport(outgoing::cause(&*error)),
    })?;
    let body = body.to_bytes();
    if body.is_empty() {
        return Err(CallError::Answer(format!("HTTP {status} without a body")));
    }
    Ok(body)
}

/// An agent's name as one segment of a path. Names that are right have nothing to escape; a wrong one must reach the
/// server as a wrong name, not as another path.
fn escape(segment: &str) -> String {
    let escaped = segment.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests;
