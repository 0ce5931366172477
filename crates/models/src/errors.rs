//! What goes wrong with a provider, in the core's words, and what is to be done about it.

mod report;
mod too_long;
pub(super) mod wait;

use std::error::Error;
use std::io;
use std::time::Duration;

use nexus_core::provider::ProviderError;
use nexus_core::visible;
use nexus_outward::cause;
use reqwest::header::{HeaderMap, HeaderName, LOCATION};
use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::redact::Secrets;
use report::Report;

/// One attempt that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub error: ProviderError,
    /// Whether the same request may go well later.
    pub retryable: bool,
    /// How long the provider wants to be left alone.
    pub retry_after: Option<Duration>,
    /// The service as a whole may be down: enough of these in a row, and it is left to rest.
    pub counts_for_breaker: bool,
    /// There is too much for the provider: it has to be asked less.
    pub is_overload: bool,
    /// What the provider calls the request, for whoever asks it about one.
    pub request_id: Option<String>,
}

/// Headers by which providers name a request.
static REQUEST_IDS: [HeaderName; 5] = [
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-amzn-requestid"),
    HeaderName::from_static("x-goog-request-id"),
    HeaderName::from_static("cf-ray"),
];

static SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// What a refusal that names no status is taken for, by words among its codes; the first counts.
const STATUSES: [(&str, u16); 26] = [
    ("authentication", 401),
    ("unauthenticated", 401),
    ("invalid_api_key", 401),
    ("permission", 403),
    ("insufficient_quota", 429),
    ("billing", 402),
    ("quota", 429),
    ("rate_limit", 429),
    ("resource_exhausted", 429),
    ("throttl", 429),
    ("too_many_requests", 429),
    ("overloaded", 529),
    ("slow_down", 529),
    ("timeout", 504),
    ("deadline_exceeded", 504),
    ("unavailable", 503),
    ("server_error", 500),
    ("api_error", 500),
    ("internal", 500),
    ("invalid_", 400),
    ("validation", 400),
    ("_policy", 400),
    ("failed_precondition", 400),
    ("not_found", 404),
    ("too_large", 413),
    ("exceeded", 400),
];

/// Codes of a limit that does not pass while somebody waits: money, or the rest of the day.
const LASTING_CODES: [&str; 4] = ["insufficient_quota", "billing", "spend_limit", "perday"];

/// Words of one, in small letters.
const LASTING_WORDS: [&str; 8] = [
    "billing hard limit",
    "spend limit",
    "spending limit",
    "credit balance",
    "insufficient balance",
    "per day",
    "daily limit",
    // More than a minute's worth in a single request.
    "must be reduced in order to run",
];

/// Said of every limit of some services, and then a wait stands beside it; else of money.
const LASTING_WITHOUT_WAIT: &str = "exceeded your current quota";

/// Codes of a filter that has found something in what was said, in small letters.
const FILTER_CODES: [&str; 3] = ["content_filter", "responsibleaipolicy", "_policy"];

/// Words of one, in small letters.
const FILTER_WORDS: [&str; 5] = [
    "content filtering policy",
    "content management policy",
    "input was flagged",
    "prompt was flagged",
    "flagged as potentially violating",
];

/// What says that the thoughts sent back were not taken, or missed; small letters, without backticks.
const THOUGHTS_REFUSED: [&[&str]; 4] = [
    &["invalid signature in thinking block"],
    &["invalid_encrypted_content"],
    &["thought_signature"],
    &["thought signature"],
];

/// Thoughts have to go back with more messages than they went with.
const THOUGHTS_MISSED: [&str; 2] = ["reasoning_content", "must be passed back"];

/// The provider answered with something else than a stream.
pub(super) fn refused(
    status: StatusCode,
    headers: &HeaderMap,
    page: &str,
    secrets: &Secrets,
) -> Failure {
    let report = Report::of_page(page);
    let code = status.as_u16();
    let said = if status.is_redirection() {
        format!("{code}: {}", redirected(headers))
    } else if status.is_success() && (report.status.is_none() && report.codes.trim().is_empty()) {
        format!("{code}: not an event stream; is the base_url right?")
    } else if report.message.is_empty() {
        status.to_string()
    } else {
        format!("{code}: {}", secrets.message(&report.message))
    };
    let meaning = if status.is_success() { report_status(&report) } else { Some(code) };
    // One service refuses what is too long without a word.
    let wordless = matches!(code, 400 | 413) && page.trim().is_empty();
    let mut failure = understood(meaning.unwrap_or(400), said, &report, wordless, secrets);
    if let Some(wait) = wait::of_headers(headers) {
        failure.wait_for(wait);
    }
    let same_again =
        matches!(failure.error, ProviderError::TooLong { .. } | ProviderError::Thoughts { .. });
    match wait::value(headers, &SHOULD_RETRY) {
        Some("false") => failure.retryable = false,
        Some("true") => failure.retryable = !same_again && !is_lasting(&report),
        _ => {}
    }
    failure.request_id = request_id(headers);
    failure
}

/// The provider sent an error in the middle of a stream: the event, or the error object in it.
pub(super) fn in_stream(error: &Value, secrets: &Secrets) -> Failure {
    let report = Report::of(error);
    let said = secrets.message(&report.message);
    match report_status(&report) {
        Some(status) => understood(status, said, &report, false, secrets),
        // What is known by its words alone.
        None if too_long::says(&report.codes, &report.message)
            || is_filtered(&report)
            || of_thoughts(&report).is_some() =>
        {
            understood(400, said, &report, false, secrets)
        }
        None => Failure { retryable: true, ..Failure::of(ProviderError::Broken(said)) },
    }
}

/// The request did not get an answer at all.
pub(super) fn not_sent(error: reqwest::Error) -> Failure {
    let refused_certificate = certificate(&error);
    let down = |error| Failure { retryable: true, counts_for_breaker: true, ..Failure::of(error) };
    let origin = || error.url().map_or_else(String::new, |url| format!(" to {}", origin(url)));
    if let Some(why) = refused_certificate {
        // It will be the same certificate in a moment.
        let (origin, why) = (origin(), visible::line(&why).into_owned());
        return Failure::of(ProviderError::Unavailable(format!(
            "no trust in the connection{origin}: {why}; ca_file names further certificates to trust"
        )));
    }
    if error.is_connect() {
        let (origin, cause) = (origin(), cause(&error));
        return down(ProviderError::Unavailable(format!(
            "cannot connect{origin}: {cause}; is it running, and is its base_url right?"
        )));
    }
    if error.is_timeout() {
        return silent();
    }
    down(ProviderError::Unavailable(cause(&error)))
}

/// Nothing came for too long.
pub(super) fn silent() -> Failure {
    Failure { retryable: true, counts_for_breaker: true, ..Failure::of(ProviderError::Timeout) }
}

/// Reading the answer failed after it had begun.
pub(super) fn broken(error: &reqwest::Error) -> Failure {
    if error.is_timeout() { silent() } else { ProviderError::Broken(cause(error)).into() }
}

/// One that says nothing about the service as a whole.
impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        Self::of(error)
    }
}

impl Failure {
    fn of(error: ProviderError) -> Self {
        Self {
            error,
            retryable: false,
            retry_after: None,
            counts_for_breaker: false,
            is_overload: false,
            request_id: None,
        }
    }

    /// What the provider said of it, or what can be said for it.
    pub fn reason(&self) -> String {
        match &self.error {
            ProviderError::Unavailable(said) | ProviderError::Broken(said) => said.clone(),
            error => error.to_string(),
        }
    }

    fn wait_for(&mut self, wait: Duration) {
        self.retry_after = Some(wait);
        if let ProviderError::RateLimited { retry_after, .. } = &mut self.error {
            *retry_after = Some(wait);
        }
    }
}

/// What an error of this status means.
fn understood(
    status: u16,
    said: String,
    report: &Report,
    wordless: bool,
    secrets: &Secrets,
) -> Failure {
    let codes = &report.codes;
    let overloaded = ["overloaded", "slow_down"].iter().any(|word| codes.contains(word));
    let lasting = is_lasting(report);
    let wait = report.wait.or_else(|| wait::of_text(&report.message));

    let mut failure = match status {
        _ if codes.contains("api_key_invalid") => credentials(said, secrets),
        400 | 403 | 422 if is_filtered(report) => Failure::of(ProviderError::Filtered(said)),
        401 | 403 => credentials(said, secrets),
        _ if let Some(missed) = of_thoughts(report) => {
            Failure::of(ProviderError::Thoughts { message: said, missed })
        }
        // Codes are certain; words of a limit that time lifts are not looked at for a length.
        _ if wordless
            || status == 413
            || !matches!(status, 429 | 503 | 529) && is_too_long(report) =>
        {
            let window = report.window.or_else(|| too_long::window(&report.message));
            Failure::of(ProviderError::TooLong { message: said, window })
        }
        429 => Failure {
            retryable: !lasting,
            is_overload: !lasting,
            ..Failure::of(ProviderError::RateLimited { message: said, retry_after: None })
        },
        408 | 409 => Failure { retryable: true, ..Failure::of(ProviderError::Unavailable(said)) },
        500..=599 => Failure {
            retryable: matches!(status, 500 | 502..=504 | 520..=524 | 529),
            counts_for_breaker: true,
            is_overload: matches!(status, 503 | 529) || overloaded,
            ..Failure::of(ProviderError::Unavailable(said))
        },
        _ if overloaded => Failure {
            retryable: true,
            is_overload: true,
            ..Failure::of(ProviderError::Unavailable(said))
        },
        _ => Failure::of(ProviderError::Rejected(said)),
    };
    if let Some(wait) = wait {
        failure.wait_for(wait);
    }
    failure
}

fn credentials(said: String, secrets: &Secrets) -> Failure {
    Failure::of(ProviderError::Credentials(said + secrets.key_hint()))
}

fn report_status(report: &Report) -> Option<u16> {
    let by_word = || STATUSES.iter().find(|(word, _)| report.codes.contains(word));
    report.status.or_else(|| by_word().map(|(_, status)| *status))
}

fn is_too_long(report: &Report) -> bool {
    too_long::says(&report.codes, &report.message)
}

fn is_lasting(report: &Report) -> bool {
    let message = report.message.to_lowercase();
    let wait = report.wait.or_else(|| wait::of_text(&message));
    LASTING_CODES.iter().any(|code| report.codes.contains(code))
        || LASTING_WORDS.iter().any(|words| message.contains(words))
        || message.contains(LASTING_WITHOUT_WAIT) && wait.is_none()
}

fn is_filtered(report: &Report) -> bool {
    let message = report.message.to_lowercase();
    FILTER_CODES.iter().any(|code| report.codes.contains(code))
        || FILTER_WORDS.iter().any(|words| message.contains(words))
}

/// Whether it is thoughts that are refused, and then whether they were missed.
fn of_thoughts(report: &Report) -> Option<bool> {
    let message = report.message.to_lowercase().replace('`', "");
    let says = |pieces: &[&str]| {
        pieces.iter().all(|piece| message.contains(piece) || report.codes.contains(piece))
    };
    if says(&THOUGHTS_MISSED) {
        return Some(true);
    }
    THOUGHTS_REFUSED.iter().any(|pieces| says(pieces)).then_some(false)
}

/// Where it was sent on to. It is not followed: that would carry the key to wherever it points.
fn redirected(headers: &HeaderMap) -> String {
    let place = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    match place.and_then(|place| Url::parse(place).ok()) {
        Some(url) => format!(
            "it redirects to {}, which is not followed; is the base_url right?",
            visible::line(&origin(&url))
        ),
        None => "it redirects, which is not followed; is the base_url right?".to_owned(),
    }
}

/// Where a request went, without what stands behind the host.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let value = REQUEST_IDS.iter().find_map(|name| wait::value(headers, name))?;
    Some(visible::line(value).into_owned())
}

/// Why the other side's certificate was not taken, if that is what failed.
fn certificate(error: &reqwest::Error) -> Option<String> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found @ rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return Some(found.to_string());
        }
        // An input error holds its reason without naming it as its source.
        cause = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests;
