//! For how long a provider wants to be left alone, in every form it says that.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{HeaderMap, HeaderName, RETRY_AFTER};

static RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Longest wait that is believed. Beyond it only the fact that one has to wait is of use.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest value of a header that is looked at. A date has 29 characters.
const VALUE_BYTES_MAX: usize = 64;

/// What stands before a wait in the text of an error, in small letters.
const ANNOUNCED: [&str; 4] = ["try again in ", "retry in ", "retry after ", "wait for "];

/// As the headers of an answer say it. Milliseconds are the more exact of the two.
pub(in super::super) fn of_headers(headers: &HeaderMap) -> Option<Duration> {
    let milliseconds = || value(headers, &RETRY_AFTER_MS)?.parse().ok().and_then(milliseconds);
    let seconds = || {
        let text = value(headers, &RETRY_AFTER)?;
        match text.parse() {
            Ok(count) => seconds(count),
            Err(_) => jiff::fmt::rfc2822::DateTimeParser::new()
                .parse_timestamp(text)
                .ok()
                .map(|at| until(at, Timestamp::now())),
        }
    };
    milliseconds().or_else(seconds)
}

/// As the text of an error says it: "Please try again in 1.2s."
pub(super) fn of_text(text: &str) -> Option<Duration> {
    let text = text.to_lowercase();
    ANNOUNCED.iter().filter_map(|words| text.split_once(words)).find_map(|(_, rest)| leading(rest))
}

/// A duration that is all there is: `6m0s`, `12ms`, `34.4s`.
pub(in super::super) fn written(text: &str) -> Option<Duration> {
    leading(&text.trim().to_ascii_lowercase())
}

/// How long it is until `at`. What has passed already means now.
pub(in super::super) fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default().min(WAIT_MAX)
}

/// The value of a header, if it is of a length that makes sense.
pub(in super::super) fn value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    (text.len() <= VALUE_BYTES_MAX).then_some(text)
}

/// The duration a text in small letters begins with: numbers, each with its unit.
fn leading(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = None;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        // The point behind "in 20 s." belongs to the sentence.
        let Ok(count) = rest[..digits].parse::<f64>() else { return sum };
        let behind = rest[digits..].trim_start();
        let letters = behind.find(|c: char| !c.is_alphabetic()).unwrap_or(behind.len());
        let Some(unit) = unit(&behind[..letters]) else { return sum };
        sum = Some((sum.unwrap_or_default() + seconds(count * unit)?).min(WAIT_MAX));
        rest = &behind[letters..];
    }
}

/// How many seconds one of a unit has.
fn unit(name: &str) -> Option<f64> {
    Some(match name {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" | "millisecond" | "milliseconds" => 1e-3,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

fn milliseconds(count: f64) -> Option<Duration> {
    seconds(count / 1000.0)
}

fn seconds(count: f64) -> Option<Duration> {
    // Not a number and less than nothing are both no wait.
    (count >= 0.0).then(|| Duration::from_secs_f64(count.min(WAIT_MAX.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[track_caller]
    fn check_headers(given: &[(&'static str, &str)], expected: Option<Duration>) {
        let pairs = given.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        assert_eq!(of_headers(&pairs.collect()), expected, "{given:?}");
    }

    #[test]
    fn retry_after_is_milliseconds_seconds_or_a_date() {
        check_headers(&[], None);
        for (value, expected) in [
            ("0", Some(ms(0))),
            (" 59 ", Some(ms(59_000))),
            ("1.5", Some(ms(1500))),
            ("3600", Some(ms(3_600_000))),
            ("1e300", Some(WAIT_MAX)),
            ("inf", Some(WAIT_MAX)),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Some(ms(0))),
            ("Wed, 21 Oct 2065 07:28:00 GMT", Some(WAIT_MAX)),
            ("soon", None),
            ("-1", None),
            ("NaN", None),
        ] {
            check_headers(&[("retry-after", value)], expected);
        }
        check_headers(&[("retry-after-ms", "250")], Some(ms(250)));
        check_headers(&[("retry-after-ms", "250"), ("retry-after", "1")], Some(ms(250)));
        check_headers(&[("retry-after-ms", "x"), ("retry-after", "1")], Some(ms(1000)));
    }

    #[test]
    fn a_value_of_odd_length_is_not_looked_at() {
        let padded = |bytes: usize| format!("{}1", "0".repeat(bytes - 1));
        check_headers(&[("retry-after", &padded(VALUE_BYTES_MAX))], Some(ms(1000)));
        check_headers(&[("retry-after", &padded(VALUE_BYTES_MAX + 1))], None);
    }

    #[test]
    fn the_text_of_an_error_may_say_it() {
        for (text, expected) in [
            ("Rate limit reached. Please try again in 1.2s. Visit us.", Some(ms(1200))),
            ("Please TRY AGAIN IN 20 ms.", Some(ms(20))),
            ("Please try again in 6m0s.", Some(ms(360_000))),
            ("try again in 1h2m3.5s", Some(ms(3_723_500))),
            ("Please retry in 34.400s.", Some(ms(34_400))),
            ("Try again in 20 seconds.", Some(ms(20_000))),
            ("Retry after 2 minutes", Some(ms(120_000))),
            ("try again in 5", None),
            ("try again in a minute", None),
            ("try again later", None),
            ("It took 5 s.", None),
        ] {
            assert_eq!(of_text(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_written_in_units() {
        for (text, expected) in [
            ("6m0s", Some(ms(360_000))),
            ("12ms", Some(ms(12))),
            ("34.4s", Some(ms(34_400))),
            ("1s500ms", Some(ms(1500))),
            ("", None),
            ("12", None),
            (".", None),
            ("s", None),
        ] {
            assert_eq!(written(text), expected, "{text}");
        }
    }
}
