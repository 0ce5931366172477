//! Sends a model call: one client per provider, retries before the answer begins, errors in the core's words.

use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use bytes::Bytes;
use nexus_core::logs::RAW_TARGET;
use nexus_core::provider::{EventStream, ProviderError};
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue,
    RETRY_AFTER,
};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::sync::OnceCell;
use tracing::Level;

use super::calls::random;
use super::errors::{self, Failure};
use super::redact::Secrets;
use super::stream::{self, Decode};
use super::{AuthMethod, Bounds, BuildError, ProviderSettings};

/// Longest wait a provider can impose with `Retry-After`: somebody waits for the turn.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Longest wait between two attempts of our own choosing.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Time to set a connection up. Shorter than the time to answer: a host that is not there will not be there later.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How much of an error page is read for its message.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

pub(super) struct Http {
    /// Made on the first call: to set TLS up takes longer than all else a server does when it starts.
    client: OnceCell<Client>,
    secure: bool,
    loopback: bool,
    headers: HeaderMap,
    secrets: Arc<Secrets>,
    bounds: Bounds,
    request_timeout: Duration,
    max_retries: u32,
    retry_backoff: Duration,
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
        if let Some((name, value)) = authentication(settings)? {
            headers.insert(name, value);
        }
        for (name, value) in &settings.extra_headers {
            let refused = || BuildError::Header(name.clone());
            let header = HeaderName::try_from(name.as_str()).map_err(|_| refused())?;
            headers.insert(header, sensitive(value).map_err(|_| refused())?);
        }
        Ok(Self {
            client: OnceCell::new(),
            secure: base.scheme() == "https",
            loopback: is_loopback(base),
            headers,
            secrets: Arc::new(Secrets::of(settings)),
            bounds: settings.bounds,
            request_timeout: settings.request_timeout,
            max_retries: settings.max_retries,
            retry_backoff: settings.retry_backoff,
        })
    }

    /// The events of an answer that `decode` reads.
    pub fn events<D: Decode>(&self, response: Response, decode: D) -> EventStream {
        stream::events(response, decode, self.bounds, self.secrets.clone())
    }

    /// Sends a call until an answer begins or there is no point in trying again.
    pub async fn post(&self, url: &Url, body: Vec<u8>) -> Result<Response, ProviderError> {
        let client = self.client.get_or_try_init(|| self.connect()).await?;
        let body = Bytes::from(body);
        if tracing::enabled!(target: RAW_TARGET, Level::DEBUG) {
            let body = self.secrets.redact(&String::from_utf8_lossy(&body));
            tracing::debug!(target: RAW_TARGET, kind = "request", endpoint = url.as_str(), body);
        }
        let backoff = ExponentialBuilder::default()
            .with_min_delay(self.retry_backoff)
            .with_max_delay(BACKOFF_MAX)
            .with_max_times(self.max_retries as usize)
            .with_jitter()
            // Seeded here: without its `std` feature backon gives every client the same jitter.
            .with_jitter_seed(random());
        (|| self.attempt(client, url, &body))
            .retry(backoff)
            .when(|failure| failure.retryable)
            .adjust(|failure, delay| delay.map(|delay| failure.retry_after.unwrap_or(delay)))
            .notify(|failure, delay| tracing::info!(error = %failure.error, ?delay, "the model call is tried again"))
            .await
            .map_err(|failure| failure.error)
    }

    async fn attempt(&self, client: &Client, url: &Url, body: &Bytes) -> Result<Response, Failure> {
        let request = client.post(url.clone()).headers(self.headers.clone()).body(body.clone());
        let response = request.send().await.map_err(errors::not_sent)?;
        let status = response.status();
        if status == StatusCode::OK && !is_page(&response) {
            raw_response(&response, "");
            return Ok(response);
        }
        let retry_after = response.headers().get(RETRY_AFTER).and_then(retry_after);
        let page = self.secrets.redact(&String::from_utf8_lossy(&self.error_body(response).await));
        Err(errors::refused(status, retry_after, &page, &self.secrets))
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
        // A page that drips would never be over by its pauses.
        let _ = tokio::time::timeout(self.request_timeout, reading).await;
        body.truncate(ERROR_BODY_BYTES_MAX);
        if tracing::enabled!(target: RAW_TARGET, Level::DEBUG) {
            raw_response(&response, &self.secrets.redact(&String::from_utf8_lossy(&body)));
        }
        body
    }

    async fn connect(&self) -> Result<Client, ProviderError> {
        let mut builder = Client::builder()
            .user_agent(concat!("nexus3/", env!("CARGO_PKG_VERSION")))
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_MAX.min(self.request_timeout))
            .read_timeout(self.request_timeout)
            // A redirect would carry the key to wherever it points.
            .redirect(reqwest::redirect::Policy::none());
        if self.loopback {
            builder = builder.no_proxy();
        }
        if !self.secure {
            // Without this the certificates of the system are read though none is ever looked at.
            builder = builder.tls_certs_only([]);
        }
        let build = move || {
            // Fails when one is installed already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            builder.build()
        };
        let built = if self.secure {
            // Reading the certificates takes milliseconds of file work.
            tokio::task::spawn_blocking(build)
                .await
                .map_err(|error| ProviderError::Unavailable(error.to_string()))?
        } else {
            build()
        };
        built.map_err(|error| {
            ProviderError::Unavailable(format!("no HTTP client: {}", errors::cause(&error)))
        })
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
        AuthMethod::None => None,
    })
}

/// A value that debug output leaves out.
fn sensitive(value: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(value)?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_loopback(url: &Url) -> bool {
    // An IPv6 address stands in brackets.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// Whether a 200 is a document instead of a stream: what a wrong base URL or a proxy's login page looks like.
fn is_page(response: &Response) -> bool {
    let content_type = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    content_type.starts_with("text/html") || content_type.starts_with("application/json")
}

/// `Retry-After` in either of its forms.
fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let value = value.to_str().ok()?.trim();
    let wait = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
            // A date that has passed means now.
            Duration::try_from(at.duration_since(jiff::Timestamp::now())).unwrap_or_default()
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

fn raw_response(response: &Response, body: &str) {
    let (endpoint, status) = (response.url().as_str(), response.status().as_u16());
    tracing::debug!(target: RAW_TARGET, kind = "response", endpoint, status, body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: Option<Duration>) {
        assert_eq!(retry_after(&HeaderValue::from_str(value).unwrap()), expected, "{value}");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_has_a_limit() {
        check("0", Some(Duration::ZERO));
        check(" 59 ", Some(Duration::from_secs(59)));
        check("61", Some(RETRY_AFTER_MAX));
        check("Wed, 21 Oct 2015 07:28:00 GMT", Some(Duration::ZERO));
        check("Wed, 21 Oct 2065 07:28:00 GMT", Some(RETRY_AFTER_MAX));
        check("soon", None);
        check("-1", None);
    }

    #[test]
    fn loopback_is_recognised() {
        for (url, expected) in [
            ("http://127.0.0.1:1/v1", true),
            ("http://localhost/v1", true),
            ("http://[::1]:1/v1", true),
            ("http://10.0.0.1/v1", false),
            ("https://example.com/v1", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
