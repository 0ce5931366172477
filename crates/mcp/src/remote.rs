//! A server elsewhere, over HTTP: rmcp's transport, with a client of our own that reads within bounds, follows nobody
//! away, and says in words what went wrong.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, try_unfold};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use nexus_core::mcp::Remote;
use nexus_core::visible;
use nexus_json::MESSAGE_VALUES_MAX;
use nexus_outward::cause;
use nexus_sse::{Decoder, Head};
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
    LOCATION, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, JsonRpcRequest,
    ServerJsonRpcMessage,
};
use rmcp::transport::auth::AuthClient;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, SseError, StreamableHttpClient,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use rmcp::transport::{AuthorizationManager, StreamableHttpClientTransport};
use serde_json::json;
use sse_stream::Sse;
use thiserror::Error;

use crate::address::Guard;
use crate::era::of_era;
use crate::ground::Ground;
use crate::server::CALLS_MAX;
use crate::transport::{Breach, MESSAGE_BYTES_MAX, too_full, too_long};
use crate::variables;

const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Of a page that says why something is refused, so much is read, and for so long.
const PAGE_BYTES_MAX: usize = 64 << 10;
const PAGE_MAX: Duration = Duration::from_secs(5);

/// Of such a page, so much is said.
const PAGE_SHOWN_MAX: usize = 300;

/// Within one origin. More of them lead in a circle.
const REDIRECTS_MAX: usize = 3;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Headers that the protocol sets.
const RESERVED: [HeaderName; 7] =
    [ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING, SESSION, LAST_EVENT];

/// Names that begin so are the protocol's too.
const RESERVED_PREFIX: &str = "mcp-";

/// Whether a server does not know who asks, by what it said last.
pub type Unknown = Arc<AtomicBool>;

/// Why a server elsewhere was not reached, or not understood.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Unreached(pub String);

pub type Failure = StreamableHttpError<Unreached>;

/// What rmcp sends its messages with.
#[derive(Clone)]
pub struct Http {
    client: Client,
    breach: Breach,
    unknown: Unknown,
    /// The user says who asks: nobody logs in.
    has_authorization: bool,
}

/// Where a server is, and what it is told with each request.
pub struct Address {
    pub url: Url,
    pub headers: HashMap<HeaderName, HeaderValue>,
    guard: Arc<Guard>,
}

impl Address {
    /// With its variables filled in, unless what is written cannot be used.
    pub fn new(remote: &Remote, ground: &Ground) -> Result<Self, String> {
        let url = variables::fill(&remote.url, &ground.variables);
        let url = url.map_err(|why| format!("url: {why}"))?;
        // Whatever is wrong with it, it may have a secret in it.
        let url = Url::parse(&url).map_err(|error| format!("url: {error}"))?;
        let guard = Guard::new(&url, remote.private)?;
        Ok(Self { headers: headers(remote, ground)?, url, guard })
    }

    /// Whether the user says who asks.
    pub fn has_authorization(&self) -> bool {
        self.headers.contains_key(&AUTHORIZATION)
    }
}

/// The transport to a server.
pub fn transport(
    address: Address,
    manager: AuthorizationManager,
    http: Http,
) -> StreamableHttpClientTransport<AuthClient<Http>> {
    let config = StreamableHttpClientTransportConfig::with_uri(address.url.as_str())
        .max_concurrent_requests(CALLS_MAX)
        .max_sse_event_size(MESSAGE_BYTES_MAX)
        .custom_headers(address.headers);
    StreamableHttpClientTransport::with_client(AuthClient::new(http, manager), config)
}

fn headers(remote: &Remote, ground: &Ground) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let header = |(name, value): (&String, &String)| {
        let wrong = |why: &str| format!("headers.{name}: {why}");
        let header = HeaderName::try_from(name).map_err(|_| wrong("is no name of a header"))?;
        if RESERVED.contains(&header) || header.as_str().starts_with(RESERVED_PREFIX) {
            return Err(wrong("is set by the protocol"));
        }
        let value = variables::fill(value, &ground.variables).map_err(|why| wrong(&why))?;
        let value = HeaderValue::try_from(value);
        let mut value = value.map_err(|_| wrong("its value cannot stand in a header"))?;
        value.set_sensitive(true);
        Ok((header, value))
    };
    remote.headers.iter().map(header).collect()
}

/// Another origin is another server, and would be told what is for this one.
fn within_origin(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let first = attempt.previous().first().map(Url::origin);
    let same = first == Some(attempt.url().origin());
    // The older ones turn a message into a question without one.
    let keeps =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    match same && keeps && attempt.previous().len() <= REDIRECTS_MAX {
        true => attempt.follow(),
        false => attempt.stop(),
    }
}

impl Http {
    pub async fn new(address: &Address, breach: Breach, unknown: Unknown) -> Result<Self, String> {
        let guard = address.guard.clone();
        let client = nexus_outward::client(&address.url, move |builder| {
            let builder = builder.tcp_nodelay(true).connect_timeout(CONNECT_MAX);
            Ok(builder.dns_resolver(guard).redirect(Policy::custom(within_origin)))
        });
        let has_authorization = address.has_authorization();
        Ok(Self { client: client.await?, breach, unknown, has_authorization })
    }

    /// What a server says that does not know who asks; `None` where it does not care.
    pub async fn challenge(&self, address: &Address) -> Result<Option<String>, String> {
        let asked = json!({"jsonrpc": "2.0", "id": 0, "method": "ping"});
        let request = self.post(address.url.as_str()).body(asked.to_string());
        match self.send(request, address.headers.clone(), None, None).await {
            Err(StreamableHttpError::AuthRequired(challenge)) => {
                Ok(Some(challenge.www_authenticate_header))
            }
            Err(error) => Err(words(&error)),
            Ok(_) => Ok(None),
        }
    }

    fn post(&self, url: &str) -> RequestBuilder {
        self.client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
    }

    /// Sends a request, and reads as much of the answer as says whether it was taken.
    async fn send(
        &self,
        request: RequestBuilder,
        headers: HashMap<HeaderName, HeaderValue>,
        session: Option<Arc<str>>,
        token: Option<String>,
    ) -> Result<Response, Failure> {
        let mut headers: HeaderMap = headers.into_iter().collect();
        if let Some(token) = token.filter(|_| !self.has_authorization) {
            let bearer = HeaderValue::try_from(format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|_| refused("its token cannot stand in a header"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        if let Some(session) = session {
            let session = HeaderValue::try_from(&*session);
            headers.insert(SESSION, session.map_err(|_| refused("its session has no name"))?);
        }
        // Until it says otherwise: who cannot be reached wants no login.
        self.unknown.store(false, Ordering::Relaxed);
        let sent = request.headers(headers).send().await;
        let response =
            sent.map_err(|error| refused(format!("it cannot be reached: {}", cause(&error))))?;
        let status = response.status();
        let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|it| it.to_str().ok());
        let challenge = challenge.unwrap_or_default();
        let is_forbidden = status == StatusCode::FORBIDDEN;
        let wants_more = is_forbidden && challenge.contains("insufficient_scope");
        let is_refused = is_forbidden && self.has_authorization;
        let is_unknown = status == StatusCode::UNAUTHORIZED || wants_more || is_refused;
        self.unknown.store(is_unknown, Ordering::Relaxed);
        if is_unknown {
            return Err(match (self.has_authorization, wants_more) {
                (true, _) => refused(format!(
                    "it does not take what headers.Authorization says (HTTP {})",
                    status.as_u16()
                )),
                (false, true) => StreamableHttpError::InsufficientScope(
                    InsufficientScopeError::new(challenge.into(), None),
                ),
                (false, false) => {
                    StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge.into()))
                }
            });
        }
        if status.is_redirection() {
            let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| response.url().join(to).ok());
            let to = to.map_or("nowhere".into(), |to| to.origin().ascii_serialization());
            return Err(refused(format!(
                "it leads on to {to} (HTTP {}), which is not followed: its url has to be where it is",
                status.as_u16()
            )));
        }
        Ok(response)
    }

    /// A whole answer, which has an end.
    async fn whole(&self, mut response: Response) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        loop {
            let piece = response.chunk().await;
            let piece = piece
                .map_err(|error| refused(format!("its answer broke off: {}", cause(&error))))?;
            match piece {
                Some(piece) => body.extend_from_slice(&piece),
                None if nexus_json::values(&body) > MESSAGE_VALUES_MAX => {
                    return Err(refused(self.breached(too_full())));
                }
                None => return Ok(body),
            }
            if body.len() > MESSAGE_BYTES_MAX {
                return Err(refused(self.breached(too_long())));
            }
        }
    }

    fn breached(&self, why: String) -> String {
        self.breach.set(why.clone());
        why
    }

    /// The events of an answer, each within the bound.
    fn events(&self, response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let pieces = response.bytes_stream().map_err(|error| Unreached(cause(&error)));
        let http = self.clone();
        events(pieces, move |why| Unreached(http.breached(why))).boxed()
    }
}

impl StreamableHttpClient for Http {
    type Error = Unreached;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let in_session = session.is_some();
        let request = self.post(&uri).body(serde_json::to_vec(&message)?);
        let response = self.send(request, headers, session, token).await?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        if !status.is_success() {
            return refusal(&message, response).await;
        }
        let JsonRpcMessage::Request(request) = message else {
            // Whatever it says to that, nobody waits for it.
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        let session = response.headers().get(SESSION).and_then(|it| it.to_str().ok());
        let session = session.map(str::to_owned);
        match kind(&response) {
            Kind::Events => Ok(StreamableHttpPostResponse::Sse(self.events(response), session)),
            Kind::Json => {
                let body = self.whole(response).await?;
                let answer = serde_json::from_slice(&body);
                let answer = answer
                    .map_err(|error| refused(format!("its answer is no message: {error}")))?;
                let answer = match asks_for_era(&request) {
                    true => of_era(answer, &request.id),
                    false => answer,
                };
                Ok(StreamableHttpPostResponse::Json(answer, session))
            }
            Kind::Other(kind) => Err(refused(format!("it answers with {kind}, and not with MCP"))),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        // It ends by itself where it cannot be ended.
        self.send(self.client.delete(&*uri), headers, Some(session), token).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let mut request = self.client.get(&*uri).header(ACCEPT, "text/event-stream");
        if let Some(last_event) = last_event {
            request = request.header(LAST_EVENT, last_event);
        }
        let response = self.send(request, headers, session, token).await?;
        match (response.status(), kind(&response)) {
            (status, Kind::Events) if status.is_success() => Ok(self.events(response)),
            // Most of those that have nothing to tell by themselves say so, with one number or another.
            (status, _) if status.is_client_error() => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            (status, _) => Err(refused(format!("it has no stream (HTTP {})", status.as_u16()))),
        }
    }
}

/// What an answer is.
enum Kind {
    Json,
    Events,
    Other(String),
}

fn kind(response: &Response) -> Kind {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or("something without a type").to_ascii_lowercase();
    match kind.split(';').next().unwrap_or_default().trim() {
        "application/json" => Kind::Json,
        "text/event-stream" => Kind::Events,
        other => Kind::Other(other.chars().take(PAGE_SHOWN_MAX).collect()),
    }
}

fn asks_for_era(request: &JsonRpcRequest<ClientRequest>) -> bool {
    matches!(request.request, ClientRequest::DiscoverRequest(_))
}

/// What a server says that takes a message not: an error of the protocol where it is one.
async fn refusal(
    message: &ClientJsonRpcMessage,
    response: Response,
) -> Result<StreamableHttpPostResponse, Failure> {
    let status = response.status();
    let page = page(response).await;
    let JsonRpcMessage::Request(request) = message else {
        return Err(refused(format!("it refused a message (HTTP {})", status.as_u16())));
    };
    let said = match serde_json::from_slice(&page) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
        _ => None,
    };
    let error = match said {
        Some(error) => error,
        // A server of the older era knows nothing of the question, and may say so in any way.
        None if asks_for_era(request) => {
            ErrorData::invalid_request(format!("HTTP {}", status.as_u16()), None)
        }
        None => {
            let page = String::from_utf8_lossy(&page);
            let page: String = visible::line(&page).chars().take(PAGE_SHOWN_MAX).collect();
            let colon = if page.is_empty() { "" } else { ": " };
            return Err(refused(format!("it answered HTTP {}{colon}{page}", status.as_u16())));
        }
    };
    // Who refuses before reading has no id to answer to.
    let error = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
    Ok(StreamableHttpPostResponse::Json(error, None))
}

/// What went wrong, in words.
pub fn words(error: &Failure) -> String {
    match error {
        StreamableHttpError::Client(Unreached(why)) => why.clone(),
        StreamableHttpError::AuthRequired(_) => "it wants to know who asks (HTTP 401)".into(),
        StreamableHttpError::InsufficientScope(_) => {
            "it wants more than the login gave (HTTP 403)".into()
        }
        StreamableHttpError::Auth(error) => format!("its login cannot be used: {error}"),
        error => error.to_string(),
    }
}

/// What came of a page in time.
async fn page(mut response: Response) -> Vec<u8> {
    let mut page = Vec::new();
    let reading = async {
        while page.len() < PAGE_BYTES_MAX
            && let Ok(Some(piece)) = response.chunk().await
        {
            page.extend_from_slice(&piece);
        }
    };
    let _ = tokio::time::timeout(PAGE_MAX, reading).await;
    page.truncate(PAGE_BYTES_MAX);
    page
}

fn refused(why: impl Into<String>) -> Failure {
    StreamableHttpError::Client(Unreached(why.into()))
}

/// The events of a body. It ends at one that is too long or holds too much; one that breaks off in its middle is none.
fn events(
    pieces: impl Stream<Item = Result<Bytes, Unreached>> + Send + 'static,
    refuse: impl Fn(String) -> Unreached + Send + 'static,
) -> impl Stream<Item = Result<Sse, SseError>> + Send + 'static {
    let reading = (pieces.boxed(), Decoder::new(EVENT_BYTES_MAX), refuse);
    try_unfold(reading, async |(mut pieces, mut decoder, refuse)| {
        loop {
            let event = match decoder.next_whole() {
                Err(_) => return Err(broken(refuse(too_long()))),
                Ok(Some(event)) if is_too_full(&event) => return Err(broken(refuse(too_full()))),
                Ok(event) => event.map(sse),
            };
            if let Some(event) = event {
                return Ok::<_, SseError>(Some((event, (pieces, decoder, refuse))));
            }
            match pieces.try_next().await.map_err(broken)? {
                Some(piece) => decoder.push(&piece),
                None => return Ok(None),
            }
        }
    })
}

fn is_too_full(event: &nexus_sse::Event<'_>) -> bool {
    event.data.is_some_and(|data| nexus_json::values(data) > MESSAGE_VALUES_MAX)
}

fn broken(refusal: Unreached) -> SseError {
    SseError::Body(Box::new(refusal))
}

/// An event as the transport takes it.
fn sse(event: nexus_sse::Event<'_>) -> Sse {
    let Head { event: kind, id, retry } = event.head.clone();
    let data = event.data.map(|data| String::from_utf8_lossy(data).into_owned());
    Sse { event: kind, data, id, retry }
}

/// The data of an event: a message.
const EVENT_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    async fn read(pieces: Vec<Vec<u8>>) -> Vec<Result<Sse, String>> {
        let pieces = stream::iter(pieces.into_iter().map(|piece| Ok(Bytes::from(piece))));
        let events = events(pieces, Unreached);
        events.map_err(|error| error.to_string()).collect().await
    }

    #[tokio::test]
    async fn events_come_with_what_stands_beside_them() {
        let said = b"id: 7\nretry: 5\n\nevent: message\ndata: {}\n\nunknown\n\ndata: cut";
        let heard = read(vec![said.to_vec()]).await;
        let [Ok(first), Ok(second)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((first.id.as_deref(), first.retry, &first.data), (Some("7"), Some(5), &None));
        assert_eq!(
            (second.event.as_deref(), second.data.as_deref()),
            (Some("message"), Some("{}"))
        );
    }

    #[tokio::test]
    async fn just_the_longest_event_passes_and_one_byte_more_does_not() {
        let event = |bytes: usize, end: &str| {
            [b"data: ".as_slice(), &vec![b'a'; bytes], end.as_bytes()].concat()
        };
        for end in ["\n\n", "\r\n\r\n", "\r\r"] {
            // Each is within the bound, whatever they come to together.
            let heard = read(vec![event(EVENT_BYTES_MAX, end), event(EVENT_BYTES_MAX, end)]).await;
            assert!(heard.len() == 2 && heard.iter().all(Result::is_ok), "with {end:?}");
        }
        let heard = read(vec![event(EVENT_BYTES_MAX + 1, "\n\n"), event(1, "\n\n")]).await;
        let [Err(error)] = &heard[..] else { panic!("{} events", heard.len()) };
        assert!(error.contains("16 MiB"), "{error}");
    }

    #[tokio::test]
    async fn an_event_of_just_so_many_values_passes_and_one_more_does_not() {
        let of = |values: usize| format!("data: [{}]\n\n", vec!["0"; values - 1].join(","));
        let full = of(MESSAGE_VALUES_MAX).into_bytes();
        let heard = read(vec![full.clone(), full]).await;
        assert!(heard.len() == 2 && heard.iter().all(Result::is_ok));
        for before in ["", ": \"\n", ": \"\r"] {
            let over = format!("{before}{}", of(MESSAGE_VALUES_MAX + 1));
            let heard = read(vec![over.into_bytes()]).await;
            let [Err(error)] = &heard[..] else { panic!("{} events", heard.len()) };
            assert!(error.contains("524288 JSON values"), "{before:?}: {error}");
        }
    }
}
