//! Sends a model call: one client per provider, retries before the answer begins, errors in the core's words.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nexus_core::logs::RAW_TARGET;
use nexus_core::provider::{EventStream, ModelCall, ProviderError, ToolSpec};
use nexus_outward::{cause, is_loopback};
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue,
};
use reqwest::{
    Certificate, Client, ClientBuilder, Proxy, RequestBuilder, Response, StatusCode, Url,
};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tracing::Level;

use super::attempts::Attempts;
use super::errors::{self, Failure};
use super::lane::{Lane, Permit, RETRY};
use super::lowered::Lowered;
use super::redact::Secrets;
use super::silence::{Patience, Silence};
use super::stream::{self, Decode, Terms};
use super::{AuthMethod, Bounds, BuildError, Kind, ProviderSettings};

/// How much of an error page is read for its message, and for how long: one that drips would never be over.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
const ERROR_BODY_MAX: Duration = Duration::from_secs(10);

/// Certificates of one's own. A bundle of a whole system has a quarter of a megabyte.
const CA_FILE_BYTES_MAX: u64 = 4 << 20;

/// Headers whose names have one of these words carry what opens doors.
const OF_KEYS: [&str; 5] = ["auth", "key", "token", "secret", "cookie"];

/// OpenRouter sends the calls of one conversation to one of its providers, for the cache that it has there.
static SESSION: HeaderName = HeaderName::from_static("x-session-id");

/// How much of an answer to a question is taken. The largest router's list of models has 2 MB.
pub(super) const ASKED_BYTES_MAX: usize = 16 << 20;

pub(super) struct Http {
    /// Made on the first call: to set TLS up takes longer than all else a server does when it starts.
    client: OnceCell<Client>,
    way: Way,
    headers: HeaderMap,
    /// The service is told which calls belong to one conversation.
    names_session: bool,
    /// `None` for a router, which lowers by itself what a model cannot do.
    lowered: Option<Lowered>,
    secrets: Arc<Secrets>,
    bounds: Bounds,
    patience: Patience,
    max_retries: u32,
    lane: Arc<Lane>,
}

/// How the provider is reached.
struct Way {
    base: Url,
    connect_timeout: Duration,
    ca_file: Option<PathBuf>,
    proxy: Option<Url>,
}

/// An answer that has begun.
pub(super) struct Opened {
    response: Response,
    silence: Silence,
    permit: Permit,
}

impl Http {
    /// `fixed` are the headers the wire format itself asks for; the settings' own win over them.
    pub fn new(
        settings: &ProviderSettings,
        base: &Url,
        fixed: HeaderMap,
    ) -> Result<Self, BuildError> {
        let mut headers = fixed;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let authentication = authentication(settings)?;
        let has_key = authentication.is_some();
        headers.extend(authentication);
        for (name, value) in &settings.extra_headers {
            let refused = || BuildError::Header(name.clone());
            let header = HeaderName::try_from(name.as_str()).map_err(|_| refused())?;
            headers.insert(header, sensitive(value).map_err(|_| refused())?);
        }
        let way = Way::new(settings, base)?;
        let tells_key = has_key || settings.extra_headers.iter().any(|(name, _)| is_of_keys(name));
        let is_safe = base.scheme() == "https" || is_loopback(base);
        if tells_key && !is_safe && !settings.insecure_http {
            return Err(BuildError::PlainHttp);
        }
        Ok(Self {
            client: OnceCell::new(),
            way,
            names_session: settings.kind == Kind::OpenRouter && !headers.contains_key(&SESSION),
            headers,
            lowered: (settings.kind != Kind::OpenRouter).then(Lowered::default),
            secrets: Arc::new(Secrets::of(settings)),
            bounds: settings.bounds,
            patience: Patience {
                first_event: settings.first_event_timeout,
                idle: settings.idle_timeout,
            },
            max_retries: settings.max_retries,
            lane: Arc::new(Lane::new(settings, base.as_str())),
        })
    }

    /// The events of the answer to `call` that `decode` reads.
    pub fn events<D: Decode>(&self, opened: Opened, decode: D, call: &ModelCall) -> EventStream {
        let Opened { response, silence, permit } = opened;
        let terms = Terms {
            bounds: self.bounds,
            secrets: self.secrets.clone(),
            limit: call.max_tokens,
            silence,
            permit,
        };
        stream::events(response, decode, terms)
    }

    /// Sends a call until an answer begins or there is no point in trying again.
    pub async fn post(
        &self,
        url: &Url,
        body: Vec<u8>,
        call: &ModelCall,
    ) -> Result<Opened, ProviderError> {
        let client = self.client.get_or_try_init(|| self.way.connect()).await?;
        if let Some(lowered) = &self.lowered {
            lowered.warn(call);
        }
        let body = Bytes::from(body);
        if tracing::enabled!(target: RAW_TARGET, Level::DEBUG) {
            let body = self.secrets.redact(&String::from_utf8_lossy(&body));
            tracing::debug!(target: RAW_TARGET, kind = "request", endpoint = url.as_str(), body);
        }
        let mut place = self.lane.place(&call.asker, &call.model.id, tokens(call));
        let mut permit = place.pass().await?;
        let mut attempts = Attempts::begin(self.max_retries, call.asker.wait_max);
        let headers = self.headers_of(call);
        loop {
            let sent = Instant::now();
            let request = client.post(url.clone()).headers(headers.clone()).body(body.clone());
            let failure = match self.attempt(request, &mut permit).await {
                Ok(response) => {
                    let silence = Silence::since(sent, self.patience);
                    return Ok(Opened { response, silence, permit });
                }
                Err(failure) => failure,
            };
            permit.failed(&failure);
            drop(permit);

            let (error, request_id) = (&failure.error, failure.request_id.as_deref());
            let Some(wait) = attempts.failed(&failure, |times| self.lane.backoff(times)) else {
                tracing::info!(%error, request_id, "the model call failed");
                return Err(failure.error);
            };
            let asked = failure.retry_after;
            tracing::info!(%error, request_id, ?wait, ?asked, "the model call is tried again");
            if let Some(observer) = &call.asker.observer {
                observer.model_call_retried(&call.model, error.name());
            }
            if !wait.is_zero() {
                place.tell(RETRY, Some(wait));
                tokio::time::sleep(wait).await;
            }
            place.give_up_at(attempts.end());
            permit = match place.pass().await {
                Ok(permit) => permit,
                // Why it had to wait says more than that it did.
                Err(ProviderError::Crowded(_)) => return Err(failure.error),
                Err(error) => return Err(error),
            };
        }
    }

    /// What a service answers to a question that is no model call: asked once, read whole.
    pub async fn ask(&self, url: &Url, body: Option<Vec<u8>>) -> Result<Vec<u8>, ProviderError> {
        let asking = tokio::time::timeout(self.patience.first_event, self.answer_to(url, body));
        asking.await.unwrap_or(Err(ProviderError::Timeout))
    }

    async fn answer_to(&self, url: &Url, body: Option<Vec<u8>>) -> Result<Vec<u8>, ProviderError> {
        let client = self.client.get_or_try_init(|| self.way.connect()).await?;
        let request = match body {
            Some(body) => client.post(url.clone()).body(body),
            None => client.get(url.clone()),
        };
        let sent = request.headers(self.headers.clone()).send().await;
        let mut response = sent.map_err(|error| errors::not_sent(error).error)?;
        let status = response.status();
        if !status.is_success() {
            let headers = response.headers().clone();
            let page =
                self.secrets.redact(&String::from_utf8_lossy(&self.error_body(response).await));
            return Err(errors::refused(status, &headers, &page, &self.secrets).error);
        }
        let mut answer = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(bytes)) => answer.extend_from_slice(&bytes),
                Ok(None) => return Ok(answer),
                Err(error) => return Err(ProviderError::Broken(cause(&error))),
            }
            if answer.len() > ASKED_BYTES_MAX {
                return Err(ProviderError::Broken("the answer is too long".into()));
            }
        }
    }

    fn headers_of(&self, call: &ModelCall) -> HeaderMap {
        let mut headers = self.headers.clone();
        let session = HeaderValue::from_str(&call.asker.conversation);
        if self.names_session
            && let Ok(session) = session
            && !session.is_empty()
        {
            headers.insert(&SESSION, session);
        }
        headers
    }

    async fn attempt(
        &self,
        request: RequestBuilder,
        permit: &mut Permit,
    ) -> Result<Response, Failure> {
        let sending = tokio::time::timeout(self.patience.first_event, request.send());
        let response = sending.await.map_err(|_| errors::silent())?.map_err(errors::not_sent)?;
        let status = response.status();
        permit.told(status, response.headers());
        if status == StatusCode::OK && !is_page(&response) {
            raw_response(&response, "");
            return Ok(response);
        }
        let headers = response.headers().clone();
        let page = self.secrets.redact(&String::from_utf8_lossy(&self.error_body(response).await));
        Err(errors::refused(status, &headers, &page, &self.secrets))
    }

    /// What an error says, as far as it can be read: the status is known already and says most.
    async fn error_body(&self, mut response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        let reading = async {
            while body.len() < ERROR_BODY_BYTES_MAX
                && let Ok(Some(bytes)) = response.chunk().await
            {
                body.extend_from_slice(&bytes);
            }
        };
        // In time or not: what came is what there is.
        let _ = tokio::time::timeout(self.patience.idle.min(ERROR_BODY_MAX), reading).await;
        body.truncate(ERROR_BODY_BYTES_MAX);
        if tracing::enabled!(target: RAW_TARGET, Level::DEBUG) {
            raw_response(&response, &self.secrets.redact(&String::from_utf8_lossy(&body)));
        }
        body
    }
}

impl Way {
    fn new(settings: &ProviderSettings, base: &Url) -> Result<Self, BuildError> {
        let proxy = settings.proxy.as_deref().map(proxy_url).transpose()?;
        Ok(Self {
            base: base.clone(),
            connect_timeout: settings.connect_timeout.min(settings.first_event_timeout),
            ca_file: settings.ca_file.clone(),
            proxy,
        })
    }

    async fn connect(&self) -> Result<Client, ProviderError> {
        let Self { connect_timeout, ca_file, proxy, base } = self;
        let connect_timeout = *connect_timeout;
        let ca_file = ca_file.clone().filter(|_| base.scheme() == "https");
        // Not even one that is configured stands between this machine and itself.
        let proxy = proxy.clone().filter(|_| !is_loopback(base));
        let own = move |builder: ClientBuilder| {
            let builder = builder.tcp_nodelay(true).connect_timeout(connect_timeout);
            let builder = match proxy {
                Some(url) => builder.proxy(Proxy::all(url).map_err(|error| cause(&error))?),
                None => builder,
            };
            match ca_file {
                Some(file) => Ok(builder.tls_certs_merge(certificates(file)?)),
                None => Ok(builder),
            }
        };
        nexus_outward::client(base, own).await.map_err(ProviderError::Unavailable)
    }
}

/// The certificates in a file, each in PEM.
fn certificates(path: PathBuf) -> Result<Vec<Certificate>, String> {
    let refuse = |why: String| format!("the ca_file {} cannot be used: {why}", path.display());
    let read = || {
        use std::io::Read as _;
        let mut pem = Vec::new();
        let read = std::fs::File::open(&path)?.take(CA_FILE_BYTES_MAX + 1).read_to_end(&mut pem)?;
        Ok::<_, std::io::Error>((pem, read as u64))
    };
    let (pem, bytes) = read().map_err(|error| refuse(error.to_string()))?;
    if bytes > CA_FILE_BYTES_MAX {
        return Err(refuse(format!("it is larger than {CA_FILE_BYTES_MAX} bytes")));
    }
    let found = Certificate::from_pem_bundle(&pem).map_err(|error| refuse(cause(&error)))?;
    if found.is_empty() { Err(refuse("it holds no certificate".to_owned())) } else { Ok(found) }
}

fn proxy_url(text: &str) -> Result<Url, BuildError> {
    let url = Url::parse(text).map_err(|error| BuildError::Proxy(error.to_string()))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err(BuildError::Proxy("it must begin with http:// or https://".to_owned())),
    }
}

fn authentication(
    settings: &ProviderSettings,
) -> Result<Option<(HeaderName, HeaderValue)>, BuildError> {
    let Some(key) = &settings.api_key else { return Ok(None) };
    // The header type would take other bytes, but no service has such keys: it is a file of something else.
    if !key.is_ascii() {
        return Err(BuildError::ApiKey);
    }
    let value = |text: &str| sensitive(text).map_err(|_| BuildError::ApiKey);
    Ok(match settings.auth_method {
        AuthMethod::Bearer => Some((AUTHORIZATION, value(&format!("Bearer {key}"))?)),
        AuthMethod::ApiKey => Some((HeaderName::from_static("api-key"), value(key)?)),
        AuthMethod::XApiKey => Some((HeaderName::from_static("x-api-key"), value(key)?)),
        AuthMethod::XGoogApiKey => Some((HeaderName::from_static("x-goog-api-key"), value(key)?)),
        AuthMethod::None => None,
    })
}

/// A value that debug output leaves out.
fn sensitive(value: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(value)?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_of_keys(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    OF_KEYS.iter().any(|word| header.contains(word))
}

/// About how many tokens a call reads. Four bytes make one; providers that limit tokens count for themselves.
fn tokens(call: &ModelCall) -> u64 {
    let tools: usize = call.tools.iter().map(ToolSpec::text_bytes).sum();
    let messages: usize = call.messages.iter().map(|message| message.text_bytes()).sum();
    ((call.system.len() + tools + messages) / 4) as u64
}

/// Whether a 200 is a document instead of a stream: what a wrong base URL or a proxy's login page looks like.
fn is_page(response: &Response) -> bool {
    let content_type = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    content_type.starts_with("text/html")
}

fn raw_response(response: &Response, body: &str) {
    let (endpoint, status) = (response.url().as_str(), response.status().as_u16());
    tracing::debug!(target: RAW_TARGET, kind = "response", endpoint, status, body);
}
