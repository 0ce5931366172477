//! The variables of OpenTelemetry, as far as they have a meaning here.
//!
//! As their specification has it: an empty variable is one that is not set, and a value that cannot be used is named in
//! a warning and then as good as not set. Whatever would send spans elsewhere or otherwise than was meant sends none.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use nexus_outward::is_loopback;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING,
};

use super::names::{
    SDK_LANGUAGE, SDK_NAME, SDK_VERSION, SERVICE_INSTANCE, SERVICE_NAME, SERVICE_VERSION,
};
use super::otlp::Protocol;
use super::span::{Attribute, Value};

const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOL: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const TIMEOUT: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const SERVICE: &str = "OTEL_SERVICE_NAME";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const QUEUE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
const BATCH: &str = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
const DELAY: &str = "OTEL_BSP_SCHEDULE_DELAY";
const EXPORT_TIMEOUT: &str = "OTEL_BSP_EXPORT_TIMEOUT";

/// Where a receiver on this machine listens, by the protocol.
const USUAL_ENDPOINT: &str = "http://localhost:4318";

/// A span has about a kilobyte, so these are at most 64 MB that wait and 8 MB in one request.
const QUEUE_MAX: u64 = 65_536;
const BATCH_MAX: u64 = 8_192;

/// What these say is true of the body, and nobody else's to say.
const OWN_HEADERS: [HeaderName; 4] =
    [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING];

/// An hour between batches, and ten minutes for one, are more than anybody means.
const DELAY_MILLIS_MAX: u64 = 3_600_000;
const TIMEOUT_MILLIS_MAX: u64 = 600_000;

#[derive(Debug)]
pub struct Settings {
    pub endpoint: Url,
    pub protocol: Protocol,
    pub headers: HeaderMap,
    /// For one request.
    pub timeout: Duration,
    /// For a batch with all its requests.
    pub export_max: Duration,
    pub resource: Vec<Attribute>,
    /// The share of traces that is sent.
    pub ratio: f64,
    /// Spans that may wait.
    pub queue_max: usize,
    /// Spans in one request.
    pub batch_max: usize,
    /// How long a span waits for others.
    pub delay: Duration,
    /// Tells this process from others.
    pub nonce: [u8; 16],
}

impl Settings {
    /// Where spans go, without what may be secret in it.
    pub fn shown(&self) -> String {
        let mut url = self.endpoint.clone();
        // It has a host, so these cannot fail.
        let _ = (url.set_username(""), url.set_password(None));
        url.set_query(None);
        url.into()
    }
}

/// What the variables say.
#[derive(Debug, Default)]
pub struct Reading {
    /// `None` when no spans are to be sent.
    pub settings: Option<Settings>,
    pub warnings: Vec<String>,
}

pub fn read(env: &dyn Fn(&str) -> Option<String>) -> Reading {
    let mut variables = Variables { env, warnings: Vec::new() };
    let settings = variables.settings();
    Reading { settings, warnings: variables.warnings }
}

struct Variables<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Variables<'_> {
    fn settings(&mut self) -> Option<Settings> {
        if self.get(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let is_wanted = self.exporter()?;
        let endpoint = self.endpoint(is_wanted)?;
        let protocol = self.protocol()?;
        let ratio = self.ratio();
        if ratio == 0.0 {
            return None;
        }
        let headers = self.headers()?;
        if !headers.is_empty() && endpoint.scheme() == "http" && !is_loopback(&endpoint) {
            self.warn(
                "the headers go to another machine over plain http, where others can read them",
            );
        }
        let queue_max = self.whole(QUEUE, 1..=QUEUE_MAX, 2_048);
        let batch_max = self.whole(BATCH, 1..=BATCH_MAX, 512).min(queue_max);
        let mut nonce = [0; 16];
        if let Err(error) = getrandom::fill(&mut nonce) {
            self.warn(format!("no traces are sent: the system gives no random bytes: {error}"));
            return None;
        }
        Some(Settings {
            endpoint,
            protocol,
            headers,
            timeout: self.millis(&TIMEOUT, 1..=TIMEOUT_MILLIS_MAX, 10_000),
            export_max: self.millis(&[EXPORT_TIMEOUT], 1..=TIMEOUT_MILLIS_MAX, 30_000),
            resource: self.resource(&nonce),
            ratio,
            queue_max: queue_max as usize,
            batch_max: batch_max as usize,
            delay: self.millis(&[DELAY], 0..=DELAY_MILLIS_MAX, 5_000),
            nonce,
        })
    }

    fn get(&self, name: &str) -> Option<String> {
        let value = (self.env)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// The first that is set, with its name.
    fn first(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    fn warn(&mut self, text: impl Display) {
        self.warnings.push(text.to_string());
    }

    /// Whether an exporter is asked for by name; `None` when ours is not among those that are.
    fn exporter(&mut self) -> Option<bool> {
        let Some(value) = self.get(EXPORTER) else { return Some(false) };
        let mut named = value.split(',').map(str::trim);
        if named.clone().any(|name| name == "otlp") {
            return Some(true);
        }
        if named.any(|name| name != "none") {
            self.warn(format!(
                "{EXPORTER} is {value:?}; only otlp and none are known here, so no traces are sent"
            ));
        }
        None
    }

    fn endpoint(&mut self, is_wanted: bool) -> Option<Url> {
        let (name, text, path) = match (self.get(TRACES_ENDPOINT), self.get(ENDPOINT)) {
            (Some(text), _) => (TRACES_ENDPOINT, text, ""),
            (None, Some(text)) => (ENDPOINT, text, "v1/traces"),
            (None, None) if is_wanted => (ENDPOINT, USUAL_ENDPOINT.to_owned(), "v1/traces"),
            (None, None) => return None,
        };
        // The value itself is not shown: it may have a password in it.
        let mut url = match Url::parse(&text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
            _ => {
                self.warn(format!(
                    "{name} is no URL with http:// or https://, so no traces are sent"
                ));
                return None;
            }
        };
        if !path.is_empty() {
            let base = url.path().trim_end_matches('/').to_owned();
            url.set_path(&format!("{base}/{path}"));
        }
        Some(url)
    }

    fn protocol(&mut self) -> Option<Protocol> {
        let Some((name, value)) = self.first(&PROTOCOL) else { return Some(Protocol::Protobuf) };
        match &*value {
            "http/protobuf" => Some(Protocol::Protobuf),
            "http/json" => Some(Protocol::Json),
            _ => {
                self.warn(format!("{name} is {value:?}; only http/protobuf and http/json are spoken here, so no traces are sent"));
                None
            }
        }
    }

    fn headers(&mut self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        let Some((name, value)) = self.first(&HEADERS) else { return Some(headers) };
        for (place, pair) in pairs(&value).enumerate() {
            let header = pair.and_then(|(key, value)| {
                let mut value = HeaderValue::from_str(&value).ok()?;
                // Left out of whatever prints it.
                value.set_sensitive(true);
                Some((HeaderName::from_str(&key).ok()?, value))
            });
            let Some((key, value)) = header else {
                self.warn(format!("{name}: entry {} is no header (key=value, percent-encoded), so no traces are sent", place + 1));
                return None;
            };
            if OWN_HEADERS.contains(&key) {
                self.warn(format!(
                    "{name}: {key} is set by the program itself, so no traces are sent"
                ));
                return None;
            }
            headers.insert(key, value);
        }
        Some(headers)
    }

    fn resource(&mut self, nonce: &[u8; 16]) -> Vec<Attribute> {
        let instance: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut resource = Vec::new();
        let mut set = |key: String, value: String| {
            resource.retain(|it: &Attribute| it.key != key);
            resource.push(Attribute { key: key.into(), value: Value::Text(value) });
        };
        let version = env!("CARGO_PKG_VERSION");
        for (key, value) in [
            (SERVICE_NAME, "nexus3"),
            (SERVICE_VERSION, version),
            (SERVICE_INSTANCE, &instance),
            (SDK_NAME, "nexus3"),
            (SDK_LANGUAGE, "rust"),
            (SDK_VERSION, version),
        ] {
            set(key.to_owned(), value.to_owned());
        }
        let written = self.get(RESOURCE).unwrap_or_default();
        match pairs(&written).collect::<Option<Vec<_>>>() {
            Some(pairs) => pairs.into_iter().for_each(|(key, value)| set(key, value)),
            None => self.warn(format!(
                "{RESOURCE} is no list of key=value, percent-encoded, and is not used"
            )),
        }
        if let Some(name) = self.get(SERVICE) {
            set(SERVICE_NAME.to_owned(), name);
        }
        resource
    }

    /// The share of traces that is sent. No call has a trace from elsewhere, so whoever goes by the parent decides alone.
    fn ratio(&mut self) -> f64 {
        let Some(sampler) = self.get(SAMPLER) else { return 1.0 };
        match sampler.strip_prefix("parentbased_").unwrap_or(&sampler) {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let Some(value) = self.get(SAMPLER_ARG) else { return 1.0 };
                match value.parse() {
                    Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
                    _ => {
                        self.warn(format!(
                            "{SAMPLER_ARG} is {value:?} and not within 0 and 1; every trace is sent"
                        ));
                        1.0
                    }
                }
            }
            _ => {
                self.warn(format!(
                    "{SAMPLER} is {sampler:?}, which is not known here; every trace is sent"
                ));
                1.0
            }
        }
    }

    fn whole(&mut self, name: &'static str, range: RangeInclusive<u64>, usual: u64) -> u64 {
        self.number(&[name], range, usual)
    }

    fn millis(
        &mut self,
        names: &[&'static str],
        range: RangeInclusive<u64>,
        usual: u64,
    ) -> Duration {
        Duration::from_millis(self.number(names, range, usual))
    }

    fn number(&mut self, names: &[&'static str], range: RangeInclusive<u64>, usual: u64) -> u64 {
        let Some((name, value)) = self.first(names) else { return usual };
        match value.parse() {
            Ok(number) if range.contains(&number) => number,
            _ => {
                let (least, most) = range.into_inner();
                self.warn(format!("{name} is {value:?} and not a whole number within {least} and {most}; {usual} is used"));
                usual
            }
        }
    }
}

/// The pairs of `key=value,key=value`, whose values are percent-encoded; `None` for what is no pair.
fn pairs(text: &str) -> impl Iterator<Item = Option<(String, String)>> {
    text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let decode = |text: &str| {
            percent_decode_str(text.trim()).decode_utf8().ok().map(|text| text.into_owned())
        };
        let (key, value) = (decode(key)?, decode(value)?);
        (!key.is_empty()).then_some((key, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");

    fn reading(variables: &[(&str, &str)]) -> Reading {
        let find = |name: &str| variables.iter().rev().find(|it| it.0 == name);
        read(&|name| find(name).map(|it| it.1.to_owned()))
    }

    /// What is sent, with no warning.
    fn sent(variables: &[(&str, &str)]) -> Settings {
        let Reading { settings, warnings } = reading(variables);
        assert_eq!(warnings, Vec::<String>::new(), "{variables:?}");
        settings.unwrap_or_else(|| panic!("nothing is sent: {variables:?}"))
    }

    /// Nothing is sent, and this is said of it.
    fn unsent(variables: &[(&str, &str)], said: &[&str]) {
        let Reading { settings, warnings } = reading(variables);
        assert!(settings.is_none(), "{variables:?}");
        check_said(&warnings, said);
    }

    /// What is sent though one value cannot be used.
    fn warned(variable: (&str, &str)) -> Settings {
        let Reading { settings, warnings } = reading(&[AT, variable]);
        check_said(&warnings, &[variable.0]);
        settings.unwrap_or_else(|| panic!("nothing is sent: {variable:?}"))
    }

    fn check_said(warnings: &[String], said: &[&str]) {
        assert_eq!(warnings.len(), said.len(), "{warnings:?}");
        for (warning, said) in warnings.iter().zip(said) {
            assert!(warning.contains(said), "{warning} has no {said}");
        }
    }

    #[test]
    fn nothing_is_sent_unless_it_is_asked_for() {
        unsent(&[], &[]);
        unsent(&[("OTEL_SERVICE_NAME", "x"), ("OTEL_TRACES_SAMPLER", "always_on")], &[]);
        unsent(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], &[]);
        unsent(&[AT, ("OTEL_SDK_DISABLED", "True")], &[]);
        unsent(&[AT, ("OTEL_TRACES_EXPORTER", "none")], &[]);
        unsent(&[AT, ("OTEL_TRACES_EXPORTER", "console")], &["OTEL_TRACES_EXPORTER"]);
        unsent(&[AT, ("OTEL_TRACES_SAMPLER", "always_off")], &[]);
        unsent(&[AT, ("OTEL_TRACES_SAMPLER", "parentbased_always_off")], &[]);
        sent(&[AT, ("OTEL_SDK_DISABLED", "1")]);
        sent(&[AT, ("OTEL_TRACES_EXPORTER", "console, otlp")]);
    }

    #[test]
    fn spans_go_where_the_variables_say() {
        let check = |variables: &[(&str, &str)], expected: &str| {
            assert_eq!(sent(variables).endpoint.as_str(), expected);
        };
        check(&[("OTEL_TRACES_EXPORTER", "otlp")], "http://localhost:4318/v1/traces");
        check(&[AT], "http://127.0.0.1:4318/v1/traces");
        let base = "OTEL_EXPORTER_OTLP_ENDPOINT";
        check(&[(base, "https://a.example/x/")], "https://a.example/x/v1/traces");
        check(&[(base, "https://a.example/x?y=z")], "https://a.example/x/v1/traces?y=z");
        let own = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        check(&[AT, (own, "https://a.example/in")], "https://a.example/in");
        check(&[AT, (own, "https://a.example")], "https://a.example/");
        for wrong in ["127.0.0.1:4318", "ftp://a.example", "unix:///x", "http://", "x"] {
            unsent(&[(base, wrong)], &[base]);
            unsent(&[AT, (own, wrong)], &[own]);
        }
        let shown = sent(&[(base, "https://me:secret@a.example/x?key=secret")]).shown();
        assert_eq!(shown, "https://a.example/x/v1/traces");
    }

    #[test]
    fn a_protocol_that_is_not_spoken_sends_nothing() {
        let (all, own) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL");
        assert_eq!(sent(&[AT]).protocol, Protocol::Protobuf);
        assert_eq!(sent(&[AT, (all, "http/protobuf")]).protocol, Protocol::Protobuf);
        assert_eq!(sent(&[AT, (all, "grpc"), (own, "http/json")]).protocol, Protocol::Json);
        unsent(&[AT, (all, "grpc")], &[all]);
        unsent(&[AT, (all, "http/json"), (own, "HTTP/JSON")], &[own]);
    }

    #[test]
    fn headers_are_decoded_and_stay_secret() {
        let (all, own) = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS");
        let settings = sent(&[AT, (all, " a = b%20c , D=e=f,")]);
        let header = |name: &str| settings.headers[name].to_str().unwrap().to_owned();
        assert_eq!((header("a"), header("d")), ("b c".to_owned(), "e=f".to_owned()));
        assert!(!format!("{settings:?}").contains("b c"), "{settings:?}");
        assert_eq!(sent(&[AT, (all, "a=b"), (own, "c=d")]).headers.len(), 1);
        for wrong in ["secret", "=secret", "a b=secret", "a=secret%0a", "a=%ff", "a=b,secret"] {
            let Reading { settings, warnings } = reading(&[AT, (all, wrong)]);
            assert!(settings.is_none(), "{wrong}");
            check_said(&warnings, &[all]);
            assert!(!warnings[0].contains("secret"), "{warnings:?}");
        }
        unsent(&[AT, (all, "a=b,Content-Type=text/plain")], &["content-type"]);
        sent(&[AT, (all, "content-types=x")]);
        let plain = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a.example"), (all, "a=b")];
        let Reading { settings, warnings } = reading(&plain);
        assert!(settings.is_some());
        check_said(&warnings, &["plain http"]);
    }

    #[test]
    fn numbers_have_their_limits() {
        let millis = Duration::from_millis;
        type Read = fn(&Settings) -> Duration;
        let cases: [(&str, Read, [u64; 2], u64); 5] = [
            ("OTEL_EXPORTER_OTLP_TIMEOUT", |it| it.timeout, [1, TIMEOUT_MILLIS_MAX], 10_000),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", |it| it.timeout, [1, TIMEOUT_MILLIS_MAX], 10_000),
            ("OTEL_BSP_EXPORT_TIMEOUT", |it| it.export_max, [1, TIMEOUT_MILLIS_MAX], 30_000),
            ("OTEL_BSP_SCHEDULE_DELAY", |it| it.delay, [0, DELAY_MILLIS_MAX], 5_000),
            (
                "OTEL_BSP_MAX_QUEUE_SIZE",
                |it| Duration::from_millis(it.queue_max as u64),
                [1, QUEUE_MAX],
                2_048,
            ),
        ];
        for (name, read, bounds, usual) in cases {
            assert_eq!(read(&sent(&[AT])), millis(usual), "{name}");
            for bound in bounds {
                assert_eq!(read(&sent(&[AT, (name, &bound.to_string())])), millis(bound), "{name}");
            }
            let over = (bounds[1] + 1).to_string();
            let under = bounds[0].checked_sub(1).map_or("-1".to_owned(), |it| it.to_string());
            for wrong in [&*over, &*under, "1.5", "x", "99999999999999999999"] {
                assert_eq!(read(&warned((name, wrong))), millis(usual), "{name} {wrong}");
            }
        }
        let batch = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
        let large = ("OTEL_BSP_MAX_QUEUE_SIZE", "65536");
        assert_eq!(sent(&[AT]).batch_max, 512);
        assert_eq!(sent(&[AT, large, (batch, "8192")]).batch_max, 8_192);
        assert_eq!(warned((batch, "8193")).batch_max, 512);
        assert_eq!(warned((batch, "0")).batch_max, 512);
        // No more than can wait.
        assert_eq!(sent(&[AT, ("OTEL_BSP_MAX_QUEUE_SIZE", "9"), (batch, "10")]).batch_max, 9);
    }

    #[test]
    fn the_sampler_is_one_that_is_known() {
        let (sampler, arg) = ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG");
        let ratio = |name: &str, value: &str| sent(&[AT, (sampler, name), (arg, value)]).ratio;
        assert_eq!(ratio("always_on", "0.5"), 1.0);
        assert_eq!(ratio("traceidratio", "0.25"), 0.25);
        assert_eq!(ratio("parentbased_traceidratio", "1"), 1.0);
        assert_eq!(sent(&[AT, (sampler, "traceidratio")]).ratio, 1.0);
        unsent(&[AT, (sampler, "traceidratio"), (arg, "0")], &[]);
        assert_eq!(warned((sampler, "jaeger_remote")).ratio, 1.0);
        for wrong in ["1.1", "-0.1", "NaN", "x"] {
            let Reading { settings, warnings } =
                reading(&[AT, (sampler, "traceidratio"), (arg, wrong)]);
            check_said(&warnings, &[arg]);
            assert_eq!(settings.unwrap().ratio, 1.0);
        }
    }

    #[test]
    fn a_resource_that_cannot_be_read_is_left_out() {
        let settings = warned(("OTEL_RESOURCE_ATTRIBUTES", "a=b,c"));
        assert!(!settings.resource.iter().any(|it| it.key == "a"), "{:?}", settings.resource);
    }
}
