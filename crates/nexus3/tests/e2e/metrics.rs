//! What the server counts: exactly right, the same for Prometheus and for `get_metrics`, and bounded whatever callers make
//! up. And that who scrapes badly is nobody else's trouble.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use nexus_protocol::metrics::MetricKind;
use nexus_server::metrics::{NAMES, Name};
use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use crate::doors::host::{Era, Host};
use crate::harness::wire::request;
use crate::harness::{Http, HttpRequest, Response, Server, Setup, Wire, eventually};
use crate::support::{as_agent, create};

over_every_wire! {
    the_figures_come_as_json: Setup::new(),
}

/// Scrapers that the server serves at once.
const SCRAPERS_MAX: usize = 8;

/// What the head of a scrape may have.
const HEAD_BYTES_MAX: usize = 16 * 1024;

fn measured() -> Setup {
    Setup::new().arg("--metrics").arg("0")
}

/// Where the server said that its figures are.
async fn place(server: &Server) -> SocketAddr {
    let line = server.log().wait_for("metrics", |line| line["message"] == "serving metrics").await;
    let url = line["data"]["url"].as_str().unwrap();
    url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().parse().unwrap()
}

fn get(place: SocketAddr) -> HttpRequest {
    HttpRequest::post(place, "/metrics", "").verb("GET").without("Content-Type")
}

async fn ask(place: SocketAddr, request: &HttpRequest) -> Response {
    let mut connection = Http::connect(place).await;
    connection.write(&request.bytes()).await;
    connection.response().await
}

async fn scrape(place: SocketAddr) -> Exposition {
    let response = ask(place, &get(place)).await;
    assert_eq!(response.status, 200);
    let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(response.header("content-type"), Some(form));
    Exposition::parse(std::str::from_utf8(&response.body).unwrap())
}

/// The text that Prometheus reads, taken apart to the letter.
#[derive(Debug, Default, PartialEq)]
pub struct Exposition {
    /// The type and the help of each metric, as it is declared.
    pub declared: BTreeMap<String, (String, String)>,
    /// Each sample by its name and labels.
    pub samples: BTreeMap<(String, Labels), f64>,
}

type Labels = BTreeMap<String, String>;

impl Exposition {
    pub fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        let body = text.strip_suffix("# EOF\n").expect("the end is said");
        let mut lines = body.lines().peekable();
        while let Some(line) = lines.next() {
            let help = line.strip_prefix("# HELP ").unwrap_or_else(|| panic!("no help: {line}"));
            let (name, help) = help.split_once(' ').unwrap();
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).unwrap();
            let kind = kind.strip_prefix(name).and_then(|it| it.strip_prefix(' ')).unwrap();
            assert!(is_name(name) && !help.is_empty(), "{line}");
            let ends: &[&str] = match kind {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_sum", "_count", "_bucket"],
                other => panic!("{other}"),
            };
            let declared = (kind.to_owned(), help.to_owned());
            assert!(parsed.declared.insert(name.to_owned(), declared).is_none(), "{name} twice");
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let (sample, mut labels, value) = sample(line);
                if let Some(le) = labels.get_mut("le") {
                    *le = bound(le.parse().unwrap());
                }
                let end = sample.strip_prefix(name).unwrap_or_else(|| panic!("{name}: {line}"));
                assert!(ends.contains(&end), "{line}");
                assert_eq!(labels.contains_key("le"), end == "_bucket", "{line}");
                let twice = parsed.samples.insert((sample, labels), value);
                assert!(twice.is_none(), "twice: {line}");
            }
        }
        parsed.check_histograms();
        parsed
    }

    /// The buckets of a histogram count what those before them do, and the last of them all.
    fn check_histograms(&self) {
        for ((name, labels), count) in &self.samples {
            let Some(name) = name.strip_suffix("_count") else { continue };
            let of_it = |(other, all): &&(String, Labels)| {
                let mut own = all.clone();
                own.remove("le");
                other.strip_suffix("_bucket") == Some(name) && own == *labels
            };
            let mut buckets: Vec<(f64, f64)> = (self.samples.keys().filter(of_it))
                .map(|key| (key.1["le"].parse().unwrap(), self.samples[key]))
                .collect();
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.len() > 2 && buckets.is_sorted_by_key(|it| it.1), "{buckets:?}");
            assert_eq!(*buckets.last().unwrap(), (f64::INFINITY, *count), "{name}");
            let sum = self.samples[&(format!("{name}_sum"), labels.clone())];
            assert!(sum >= 0.0 && (sum == 0.0 || *count > 0.0), "{name}: {sum}");
        }
    }

    /// The value of a sample; 0 where there is none.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        self.samples.get(&(name.to_owned(), labels.collect())).copied().unwrap_or_default()
    }

    /// The samples of a name, by the value of one of their labels.
    fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let of_it = self.samples.iter().filter(|((other, _), _)| other == name);
        of_it.map(|((_, labels), value)| (labels[label].clone(), *value)).collect()
    }
}

/// A bound of a bucket, however it was written.
fn bound(le: f64) -> String {
    format!("{le:?}")
}

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    first
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn sample(line: &str) -> (String, Labels, f64) {
    let (head, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    let Some((name, rest)) = head.split_once('{') else {
        assert!(is_name(head), "{line}");
        return (head.to_owned(), Labels::new(), value);
    };
    assert!(is_name(name), "{line}");
    let mut rest = rest.strip_suffix('}').unwrap_or_else(|| panic!("not closed: {line}"));
    let mut labels = Labels::new();
    loop {
        let (label, quoted) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        assert!(is_name(label), "{line}");
        let mut text = String::new();
        let mut letters = quoted.char_indices();
        let end = loop {
            match letters.next().unwrap_or_else(|| panic!("no end: {line}")) {
                (end, '"') => break end,
                (_, '\\') => text.push(match letters.next().unwrap().1 {
                    'n' => '\n',
                    it @ ('"' | '\\') => it,
                    other => panic!("\\{other}: {line}"),
                }),
                (_, letter) => text.push(letter),
            }
        };
        assert!(labels.insert(label.to_owned(), text).is_none(), "{line}");
        match quoted[end + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None if quoted[end + 1..].is_empty() => return (name.to_owned(), labels, value),
            None => panic!("behind a label: {line}"),
        }
    }
}

/// What `get_metrics` says, as the text would say it.
fn as_text(result: &Value) -> Exposition {
    let mut all = Exposition::default();
    for metric in result["metrics"].as_array().unwrap() {
        let text = |key: &str| metric[key].as_str().unwrap().to_owned();
        let (name, kind) = (text("name"), text("type"));
        let declared = name.strip_suffix("_total").unwrap_or(&name).to_owned();
        all.declared.insert(declared, (kind.clone(), text("help")));
        for sample in metric["samples"].as_array().unwrap() {
            let labels: Labels = serde_json::from_value(sample["labels"].clone()).unwrap();
            let mut put = |end: &str, labels: Labels, value: &Value| {
                all.samples.insert((format!("{name}{end}"), labels), value.as_f64().unwrap());
            };
            if kind != "histogram" {
                put("", labels, &sample["value"]);
                continue;
            }
            let spread = &sample["spread"];
            put("_sum", labels.clone(), &spread["sum"]);
            put("_count", labels.clone(), &spread["count"]);
            for bucket in spread["buckets"].as_array().unwrap() {
                let le = bound(bucket["le"].as_f64().unwrap_or(f64::INFINITY));
                let labels = labels.clone().into_iter().chain([("le".into(), le)]).collect();
                put("_bucket", labels, &bucket["count"]);
            }
        }
    }
    all
}

async fn the_figures_come_as_json(wire: &Wire) {
    for _ in 0..3 {
        wire.ok("rpc.version", json!({})).await;
    }
    wire.model().push(Reply::text("hi"));
    wire.ok("send", json!({"content": "x"})).await;
    wire.refused("get_context", json!({"agent_id": "nobody"})).await;
    let figures = as_text(&wire.ok("get_metrics", json!({})).await);
    figures.check_histograms();
    let calls = |method| figures.value("nexus_rpc_duration_seconds_count", &[("method", method)]);
    // Those of the harness itself are among them.
    assert!(calls("rpc.version") >= 3.0);
    assert_eq!((calls("send"), calls("get_context"), calls("get_metrics")), (1.0, 1.0, 0.0));
    assert_eq!(figures.by("nexus_rpc_errors_total", "method")["get_context"], 1.0);
    assert_eq!(figures.value("nexus_turns_total", &[("outcome", "done")]), 1.0);
    assert!(figures.value("nexus_store_writes_total", &[]) > 0.0);
    let fault = wire.refused("get_metrics", json!({"x": 1})).await;
    assert_eq!(fault.code, -32602);
}

#[tokio::test]
async fn what_is_done_is_counted_exactly_and_both_forms_agree() {
    let price = json!({"input": 2, "output": 10, "cache_read": 0.5});
    let server = measured()
        .provider_keys(json!({"max_retries": 2, "retry_backoff": 0.01, "models": {"scripted": {"price": price}}}))
        .start()
        .await;
    let (wire, place) = (server.wire(), place(&server).await);
    let before = scrape(place).await;
    assert_eq!(before.by("nexus_rpc_duration_seconds_count", "method"), BTreeMap::new());

    // Three calls, one of them in a batch with one that fails; a notification; a message that is none.
    for _ in 0..2 {
        wire.ok("rpc.version", json!({})).await;
    }
    let batch: Vec<Value> = ["rpc.version", "nope"]
        .map(|method| serde_json::from_str(&request(1, method, json!({}))).unwrap())
        .to_vec();
    wire.exchange(Value::from(batch).to_string()).await;
    wire.silent(r#"{"jsonrpc":"2.0","method":"rpc.version"}"#).await;
    wire.exchange("{").await;
    wire.refused("send", json!({})).await;

    // A turn of two steps, streamed: a tool that there is and one that there is not; its first call is sent again.
    create(&wire, "a").await;
    wire.model().push(Reply::status(503));
    let calls = Reply::tool_call("list_directory", json!({"path": "."}));
    wire.model()
        .push(calls.then_tool_call("made_up", json!({})).usage(1_000_000, 100_000).cached(400_000));
    wire.model().push(Reply::chunks(["It ", "works."]).usage(10, 5));
    let streaming = json!({"agent_id": "a", "content": "x", "stream": true});
    let (notifications, answer) = wire.open(request(1, "send", streaming)).await.all().await;
    assert!(!notifications.is_empty());
    assert_eq!(answer["result"]["content"], "It works.", "{answer}");
    // And one that fails.
    wire.model().push(Reply::status(400));
    wire.refused("send", json!({"agent_id": "a", "content": "x"})).await;

    let text = scrape(place).await;
    let calls = text.by("nexus_rpc_duration_seconds_count", "method");
    let expected = [("create_agent", 1.0), ("rpc.version", 4.0), ("send", 3.0), ("unknown", 2.0)];
    assert_eq!(calls, expected.map(|(name, count)| (name.to_owned(), count)).into());
    let errors =
        |method, code| text.value("nexus_rpc_errors_total", &[("method", method), ("code", code)]);
    assert_eq!((errors("unknown", "-32601"), errors("unknown", "-32700")), (1.0, 1.0));
    assert_eq!(errors("send", "-32602"), 1.0);
    let all: f64 =
        text.samples.iter().filter(|it| it.0.0 == "nexus_rpc_errors_total").map(|it| it.1).sum();
    assert_eq!(all, 4.0, "{:?}", text.samples);
    let messages = text.by("nexus_rpc_message_bytes_count", "direction");
    // The notification has no answer.
    assert_eq!((messages["received"], messages["sent"]), (9.0, 8.0));

    assert_eq!(
        text.by("nexus_turns_total", "outcome"),
        [("done".into(), 1.0), ("failed".into(), 1.0)].into()
    );
    assert_eq!(text.value("nexus_turn_duration_seconds_count", &[]), 2.0);
    let model = |name: &str| text.value(name, &[("model", "scripted")]);
    let outcomes = text.by("nexus_model_calls_total", "outcome");
    assert_eq!(outcomes, [("done".into(), 2.0), ("rejected".into(), 1.0)].into());
    assert_eq!(model("nexus_model_call_duration_seconds_count"), 3.0);
    assert_eq!(model("nexus_model_first_token_seconds_count"), 2.0);
    assert_eq!(
        text.by("nexus_model_retries_total", "reason"),
        [("unavailable".into(), 1.0)].into()
    );
    assert_eq!(model("nexus_prefix_breaks_total"), 0.0);
    let tokens = text.by("nexus_model_tokens_total", "kind");
    let expected = [
        ("input", 600_010.0),
        ("cache_read", 400_000.0),
        ("cache_write", 0.0),
        ("output", 100_005.0),
        ("reasoning", 0.0),
    ];
    assert_eq!(tokens, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
    // As get_usage says it.
    let used = wire.ok("get_usage", json!({"agent_id": "a"})).await;
    let cost = model("nexus_model_cost_usd_total");
    assert!((cost - used["cost_usd"].as_f64().unwrap()).abs() < 1e-9, "{cost} {used}");
    assert_eq!(model("nexus_model_unpriced_calls_total"), 0.0);

    let tool = |tool, outcome| {
        text.value("nexus_tool_calls_total", &[("tool", tool), ("outcome", outcome)])
    };
    assert_eq!((tool("list_directory", "done"), tool("other", "refused")), (1.0, 1.0));
    assert_eq!(text.by("nexus_tool_duration_seconds_count", "tool").len(), 2);

    assert_eq!(text.value("nexus_agents_live", &[]), 1.0);
    assert_eq!(text.value("nexus_turns_in_flight", &[]), 0.0);
    let (writes, groups) = (
        text.value("nexus_store_writes_total", &[]),
        text.value("nexus_store_commit_duration_seconds_count", &[]),
    );
    assert!(writes >= groups && groups > 0.0, "{writes} {groups}");
    assert_eq!(text.value("nexus_store_commit_failures_total", &[]), 0.0);
    assert_eq!(text.by("nexus_sandbox_sufficient", "strength").len(), 1);
    assert_eq!(
        text.by("nexus_build_info", "version"),
        [(env!("CARGO_PKG_VERSION").into(), 1.0)].into()
    );

    // One and the same, when nothing happens in between but the asking itself.
    let json = as_text(&wire.ok("get_metrics", json!({})).await);
    let (mut json, mut text) = (json, scrape(place).await);
    assert_eq!(json.declared, text.declared);
    let moved = |(name, labels): &(String, Labels)| {
        labels.get("method").is_some_and(|method| method == "get_metrics")
            || name.starts_with("nexus_rpc_message_bytes")
    };
    json.samples.retain(|key, _| !moved(key));
    text.samples.retain(|key, _| !moved(key));
    let differ = text.samples.iter().find(|(key, value)| json.samples.get(key) != Some(value));
    assert_eq!((differ, text.samples.len()), (None, json.samples.len()));
}

#[tokio::test]
async fn what_runs_and_what_waits_is_seen_while_it_does() {
    let server = measured().config(json!({"permissions": {"approvals": "ask"}})).start().await;
    let (wire, place) = (server.wire(), place(&server).await);
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted"})).await;
    let outside = server.world.path("outside.txt");
    wire.model().push(Reply::tool_call("write_file", json!({"path": outside, "content": "x"})));
    wire.model().push(Reply::text("done"));
    let gate = Gate::new();
    wire.model().push(Reply::text("held").held_by(&gate));
    let send = || wire.ok("send", json!({"agent_id": "a", "content": "x"}));
    let state = async |waiting: f64, in_flight: f64, queued: f64| {
        eventually("the state", async || {
            let now = scrape(place).await;
            now.value("nexus_approvals_waiting", &[]) == waiting
                && now.value("nexus_turns_in_flight", &[]) == in_flight
                && now.value("nexus_turns_queued", &[]) == queued
        })
        .await;
    };
    state(0.0, 0.0, 0.0).await;
    let watching = async {
        // The first waits for leave, the second for the first.
        state(1.0, 2.0, 1.0).await;
        let approval = &wire.ok("list_approvals", json!({})).await["approvals"][0];
        let allow = json!({"approval_id": approval["approval_id"], "decision": "allow_once"});
        wire.ok("respond_approval", allow).await;
        state(0.0, 1.0, 0.0).await;
        gate.release();
    };
    tokio::join!(send(), send(), watching);
    state(0.0, 0.0, 0.0).await;
    let now = scrape(place).await;
    assert_eq!(
        now.value("nexus_tool_calls_total", &[("tool", "write_file"), ("outcome", "done")]),
        1.0
    );
}

#[tokio::test]
async fn names_that_callers_make_up_are_one_series() {
    let server = measured().start().await;
    let (wire, place) = (server.wire(), place(&server).await);
    for n in 0..100 {
        assert_eq!(wire.refused(&format!("made_up_{n}\"}}\n"), json!({})).await.code, -32601);
    }
    let text = scrape(place).await;
    let calls = text.by("nexus_rpc_duration_seconds_count", "method");
    assert_eq!(calls, [("unknown".to_owned(), 100.0)].into());
    let labels = [("method", "unknown"), ("code", "-32601")];
    assert_eq!(text.value("nexus_rpc_errors_total", &labels), 100.0);
}

/// What comes by the MCP door is told apart in both forms and in the log; plain calls have the rows and lines they had.
#[tokio::test]
async fn calls_through_a_door_have_its_label() {
    let server = measured().start().await;
    let (wire, place) = (server.wire(), place(&server).await);
    wire.ok("list_agents", json!({})).await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    for _ in 0..2 {
        host.ok("tools/call", json!({"name": "nexus_list", "arguments": {}})).await;
    }
    let refused = json!({"name": "nexus_status", "arguments": {"agent_id": "nobody"}});
    assert_eq!(host.ok("tools/call", refused).await["isError"], true);
    let json = as_text(&wire.ok("get_metrics", json!({})).await);
    for figures in [scrape(place).await, json] {
        let calls =
            |labels: &[(&str, &str)]| figures.value("nexus_rpc_duration_seconds_count", labels);
        assert_eq!(calls(&[("method", "list_agents")]), 1.0);
        assert_eq!(calls(&[("method", "list_agents"), ("door", "mcp")]), 2.0);
        let errors = figures.samples.iter().filter(|it| it.0.0 == "nexus_rpc_errors_total");
        let doors: Vec<_> = errors.map(|((_, labels), _)| labels.get("door").cloned()).collect();
        assert_eq!(doors, [Some("mcp".to_owned())]);
    }
    let lines = server.log().lines();
    let of = |door: Option<&str>| {
        let lists = lines.iter().map(|line| &line["data"]);
        let lists = lists.filter(|data| data["method"] == "list_agents");
        lists.filter(|data| data.get("door") == door.map(Value::from).as_ref()).count()
    };
    assert_eq!((of(None), of(Some("mcp"))), (1, 2));
}

#[tokio::test]
async fn an_agent_does_not_see_what_all_spend() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let (code, message) = as_agent(&server, "a", "get_metrics", json!({})).await.unwrap_err();
    assert_eq!(code, -32003);
    assert!(message.contains("administrator") && message.contains("metrics"), "{message}");
}

#[tokio::test]
async fn figures_are_served_only_where_they_were_asked_for() {
    let server = Server::start().await;
    assert!(!server.log().text().contains("serving metrics"));
    // By the configuration, and over stdio too.
    let server = Setup::new().server(json!({"metrics_port": 0})).start().await;
    scrape(place(&server).await).await;
    let mut stdio = Setup::new().arg("--metrics").arg("0").stdio().await;
    let line =
        stdio.process.log().wait_for("metrics", |it| it["message"] == "serving metrics").await;
    let url = line["data"]["url"].as_str().unwrap().trim_start_matches("http://");
    scrape(url.trim_end_matches("/metrics").parse().unwrap()).await;
    stdio.finish().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_said_before_anything_is_touched() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let setup = Setup::new().arg("--metrics").arg(port.to_string());
    let world = setup.world().await;
    let output = setup.fails_in(&world).await;
    assert!(output.stderr.contains("the port for metrics"), "{output:?}");
    assert!(output.stderr.contains(&format!("port {port} is in use")), "{output:?}");
    assert!(!world.home().join("nexus3.db").exists());
}

#[tokio::test]
async fn only_a_scraper_of_this_machine_is_answered_and_only_there() {
    let server = measured().start().await;
    let place = place(&server).await;
    assert!(place.ip().is_loopback());
    for (request, status) in [
        (get(place).header("Origin", "http://evil.example"), 403),
        (get(place).header("Host", "evil.example"), 403),
        (get(place).without("Host"), 403),
        (get(place).header("Host", "localhost:9"), 200),
        (get(place).path("/"), 404),
        (get(place).path("/metrics/"), 404),
        (get(place).path("/rpc"), 404),
        (get(place).path("/metrics?name[]=x"), 200),
        (get(place).verb("POST"), 405),
        (get(place).verb("HEAD"), 405),
        (get(place).verb("DELETE"), 405),
    ] {
        let mut connection = Http::connect(place).await;
        connection.write(&request.bytes()).await;
        let head = connection.head().await.unwrap();
        assert_eq!(head.status, status, "{:?}", String::from_utf8_lossy(&request.bytes()));
        assert_eq!(head.header("allow"), (status == 405).then_some("GET"));
    }
    // And the other port does not show them.
    let main = HttpRequest::post(server.address, "/metrics", "").bearer(server.token.as_deref());
    assert_eq!(server.ask(main.verb("GET")).await.status, 404);
}

#[tokio::test]
async fn scrapers_that_stall_cost_nobody_else_anything() {
    let server = measured().start().await;
    let place = place(&server).await;
    let half = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    let mut stalled = Vec::new();
    for n in 0..SCRAPERS_MAX - 1 {
        let mut connection = Http::connect(place).await;
        // Some say nothing at all, some half of it.
        connection.write(if n % 2 == 0 { b"" } else { half }).await;
        stalled.push(connection);
    }
    // There is a place for one more.
    scrape(place).await;
    let mut last = Http::connect(place).await;
    last.write(half).await;
    // And now there is none, so that whoever came first has to go.
    scrape(place).await;
    let first = stalled.remove(0).rest().await;
    assert_eq!(first, b"", "it had not asked for anything");
    // Calls go on, and who asked and does not read holds nobody up.
    let mut unread = Http::connect(place).await;
    unread.write(&get(place).bytes()).await;
    server.wire().ok("rpc.version", json!({})).await;
    scrape(place).await;
    // All the others are let go in time, without an answer.
    for mut connection in stalled.into_iter().chain([last]) {
        assert_eq!(connection.rest().await, b"");
    }
    drop(unread);
    scrape(place).await;
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_the_next_is_served() {
    let server = measured().start().await;
    let place = place(&server).await;
    let head = |bytes: usize| {
        let start = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ";
        format!("{start}{}\r\n\r\n", "x".repeat(bytes - start.len() - 4))
    };
    let mut connection = Http::connect(place).await;
    connection.write(head(HEAD_BYTES_MAX - 1).as_bytes()).await;
    assert_eq!(connection.response().await.status, 200);
    // The buffer is filled in steps, so what is a little too long may still be taken.
    let large = head(2 * HEAD_BYTES_MAX);
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
        large.as_bytes(),
        b"GET\r\n\r\n",
    ] {
        let mut connection = Http::connect(place).await;
        connection.write_some(bytes).await;
        let answer = connection.rest().await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
    scrape(place).await;
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn kind(name: &Name) -> &'static str {
    match name.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

#[test]
fn the_guide_lists_every_metric_as_it_is() {
    let guide = fs::read_to_string(root().join("docs/guide/observing.md")).unwrap();
    let rows: Vec<&str> = guide.lines().filter(|line| line.starts_with("| `nexus_")).collect();
    let row = |name: &Name| {
        let labels: Vec<_> = name.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |", name.name, kind(name), labels.join(", "), name.help)
    };
    let expected: Vec<String> = NAMES.iter().map(row).collect();
    assert_eq!(rows, expected);
}

#[test]
fn names_are_as_prometheus_wants_them() {
    let mut seen = BTreeSet::new();
    for name in NAMES {
        assert!(is_name(name.name) && name.name.starts_with("nexus_"), "{name:?}");
        assert!(seen.insert(name.name), "twice: {name:?}");
        assert_eq!(name.name.ends_with("_total"), kind(name) == "counter", "{name:?}");
        let has_unit = ["_seconds", "_bytes"].iter().any(|unit| name.name.ends_with(unit));
        assert!(has_unit || kind(name) != "histogram", "{name:?}");
        assert!(!name.help.ends_with('.') && !name.help.contains(['\n', '\\', '|']), "{name:?}");
        assert!(name.labels.iter().all(|label| is_name(label) && *label != "le"), "{name:?}");
    }
}

/// What an expression of Prometheus names: metrics, and the labels it looks at.
fn check_expression(expression: &str) {
    let words = |text: &str| -> BTreeSet<String> {
        let split = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        split.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let mut labels = BTreeSet::from(["instance", "job"]);
    let mut metrics = 0;
    for word in words(expression).iter().filter(|word| word.starts_with("nexus_")) {
        let ends = ["_bucket", "_sum", "_count"];
        let of_histogram = ends.iter().find_map(|end| word.strip_suffix(end));
        let found = NAMES.iter().find(|name| match kind(name) {
            "histogram" => of_histogram == Some(name.name),
            _ => name.name == word,
        });
        let found = found.unwrap_or_else(|| panic!("there is no {word}: {expression}"));
        labels.extend(found.labels);
        labels.extend(word.ends_with("_bucket").then_some("le"));
        metrics += 1;
    }
    assert!(metrics > 0 || expression.starts_with("up{"), "{expression}");
    let inside = |open: &'static str, close: char| {
        let parts = expression.split(open).skip(1);
        parts.map(move |part| part.split(close).next().unwrap())
    };
    let selected = inside("{", '}').flat_map(|selector| selector.split(", "));
    let selected = selected.map(|pair| pair.split(['=', '!']).next().unwrap());
    let grouped = inside("by (", ')').flat_map(|list| list.split(", "));
    for label in selected.chain(grouped) {
        assert!(labels.contains(label), "no label {label} here: {expression}");
    }
}

/// The labels that a text for people asks for must be left by its expression.
fn check_text(text: &str, open: &str, expression: &str) {
    for label in text.split(open).skip(1).filter_map(|part| part.split([' ', '}']).next()) {
        let grouped_by = |before| expression.contains(&format!("{before}{label}"));
        let left = !expression.contains("by (") || grouped_by("by (") || grouped_by(", ");
        assert!(left, "{label} is not left: {expression}");
        let known = NAMES.iter().flat_map(|name| name.labels).any(|other| *other == label);
        assert!(known || label == "instance", "there is no label {label}: {text}");
    }
}

#[test]
fn what_is_contributed_names_only_what_there_is() {
    let alerts = fs::read_to_string(root().join("contrib/prometheus/alerts.yml")).unwrap();
    let mut expressions = Vec::new();
    for line in alerts.lines().map(str::trim) {
        if let Some(expression) = line.strip_prefix("expr: ") {
            check_expression(expression);
            expressions.push(expression);
        } else if let Some(text) = line.strip_prefix("description: ") {
            check_text(text, "$labels.", expressions.last().unwrap());
        }
    }
    assert_eq!(expressions.len(), alerts.matches("- alert: ").count());
    assert_eq!(expressions.len(), alerts.matches("description: ").count());

    let board = fs::read_to_string(root().join("contrib/grafana/nexus3.json")).unwrap();
    let board: Value = serde_json::from_str(&board).unwrap();
    let mut shown = String::new();
    for panel in board["panels"].as_array().unwrap().iter().filter(|it| it["type"] != "row") {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            check_expression(expression);
            check_text(target["legendFormat"].as_str().unwrap(), "{{", expression);
            shown += expression;
        }
    }
    for name in NAMES {
        assert!(shown.contains(name.name), "{} is on no panel", name.name);
    }
}

/// By Prometheus's own reading, where its tool is on this machine.
#[test]
fn prometheus_takes_the_rules() {
    let place = root().join("contrib/prometheus");
    for (check, file) in [("rules", "alerts.yml"), ("config", "scrape.yml")] {
        let mut tool = std::process::Command::new("promtool");
        match tool.args(["check", check]).arg(place.join(file)).output() {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(_) => eprintln!("promtool is not on this machine: {file} was not tried"),
        }
    }
}
