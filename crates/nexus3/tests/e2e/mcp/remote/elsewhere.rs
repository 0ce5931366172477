//! An MCP server on a port of its own that misbehaves as it is told, byte by byte.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub struct Elsewhere {
    pub url: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    /// Words with blanks between them.
    behaviour: String,
    heard: Mutex<Vec<Heard>>,
    /// How many sessions there were; the last is the one that is known.
    sessions: AtomicUsize,
    forgotten: AtomicUsize,
    /// Tokens and what they are renewed with are numbers that only grow: those up to this one are not known any more.
    logins: Mutex<Logins>,
}

#[derive(Default)]
struct Logins {
    given: usize,
    tokens_forgotten: usize,
    renewed: usize,
    renewals_forgotten: usize,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Heard {
    pub verb: String,
    pub path: String,
    headers: HashMap<String, String>,
    text: String,
    body: Value,
}

impl Heard {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

impl Elsewhere {
    pub async fn start(behaviour: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let state = Arc::new(State {
            behaviour: behaviour.into(),
            heard: Mutex::default(),
            sessions: AtomicUsize::new(0),
            forgotten: AtomicUsize::new(0),
            logins: Mutex::default(),
        });
        let serving = state.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = serving.clone();
                connections.spawn(async move { state.serve(stream).await });
            }
        });
        Self { url, state, task }
    }

    /// An address where nobody listens.
    pub async fn closed() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}/mcp", listener.local_addr().unwrap())
    }

    pub fn origin(&self) -> &str {
        self.url.strip_suffix("/mcp").unwrap()
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.state.heard.lock().unwrap().clone()
    }

    /// Takes no token any more that it gave.
    pub fn forget_tokens(&self) {
        let mut logins = self.state.logins.lock().unwrap();
        logins.tokens_forgotten = logins.given;
    }

    /// Renews nothing any more that it gave, either.
    pub fn forget_logins(&self) {
        self.forget_tokens();
        let mut logins = self.state.logins.lock().unwrap();
        logins.renewals_forgotten = logins.given;
    }

    pub fn renewals(&self) -> usize {
        self.state.logins.lock().unwrap().renewed
    }

    pub fn forget_sessions(&self) {
        let known = self.state.sessions.load(Ordering::SeqCst);
        self.state.forgotten.store(known, Ordering::SeqCst);
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn is(&self, word: &str) -> bool {
        self.behaviour.split(' ').any(|it| it == word)
    }

    async fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let heard = read(&mut stream).await?;
            self.heard.lock().unwrap().push(heard.clone());
            let (bytes, stays) = self.answer(&heard).await;
            stream.write_all(&bytes).await.ok()?;
            if !stays {
                return stream.shutdown().await.ok();
            }
        }
    }

    /// What is sent, and whether the connection stays.
    async fn answer(&self, heard: &Heard) -> (Vec<u8>, bool) {
        match heard.path.as_str() {
            "/away" => return (away(), true),
            "/page" => return (page("200 OK", "text/html", "<html>"), true),
            "/unknown" => return (page("401 Unauthorized", "text/plain", ""), true),
            "/forbidden" => return (page("403 Forbidden", "text/plain", ""), true),
            "/mute" => std::future::pending().await,
            "/moved" => {
                let head = "HTTP/1.1 307 Moved\r\nlocation: /mcp\r\ncontent-length: 0\r\n\r\n";
                return (head.into(), true);
            }
            _ => {}
        }
        if self.is("login")
            && let Some(answer) = self.let_in(heard)
        {
            return (answer, true);
        }
        if heard.verb != "POST" {
            return (page("405 Not Allowed", "text/plain", ""), true);
        }
        if heard.body.get("id").is_none() {
            return (page("202 Accepted", "text/plain", ""), true);
        }
        let known = format!("session-{}", self.sessions.load(Ordering::SeqCst));
        let forgotten =
            self.sessions.load(Ordering::SeqCst) == self.forgotten.load(Ordering::SeqCst);
        let in_session = heard.header("mcp-session-id") == known && !forgotten;
        match heard.method() {
            "server/discover" if self.is("modern") => self.say(heard, discovered(), ""),
            "initialize" if self.is("older") => {
                let number = self.sessions.fetch_add(1, Ordering::SeqCst) + 1;
                self.say(heard, initialized(), &format!("mcp-session-id: session-{number}\r\n"))
            }
            _ if self.is("older") && heard.header("mcp-session-id").is_empty() => {
                (page("400 Bad Request", "text/plain", "no session"), true)
            }
            _ if self.is("older") && !in_session => (page("404 Not Found", "text/plain", ""), true),
            "tools/list" => self.say(heard, tools(), ""),
            "tools/call" => self.call(heard).await,
            _ => (page("404 Not Found", "text/plain", ""), true),
        }
    }

    /// What is said to somebody who is not known, or wants to be.
    fn let_in(&self, heard: &Heard) -> Option<Vec<u8>> {
        let mut logins = self.logins.lock().unwrap();
        let origin = format!("http://{}", heard.header("host"));
        let json = |value: Value| page("200 OK", "application/json", &value.to_string());
        let (path, query) = heard.path.split_once('?').unwrap_or((&heard.path, ""));
        let form: HashMap<&str, &str> = heard
            .text
            .split('&')
            .chain(query.split('&'))
            .filter_map(|it| it.split_once('='))
            .collect();
        Some(match path {
            "/.well-known/oauth-protected-resource/mcp" => json(
                json!({"resource": format!("{origin}/mcp"), "authorization_servers": [origin]}),
            ),
            "/.well-known/oauth-authorization-server" => json(json!({
                "issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"), "registration_endpoint": format!("{origin}/register"),
                "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
            })),
            "/register" => json(json!({"client_id": "client", "redirect_uris": []})),
            "/authorize" => {
                let back = form["redirect_uri"].replace("%3A", ":").replace("%2F", "/");
                let state = form["state"];
                format!("HTTP/1.1 302 Found\r\nlocation: {back}?code=1&state={state}\r\ncontent-length: 0\r\n\r\n")
                    .into()
            }
            "/token" => {
                if form["grant_type"] == "refresh_token" {
                    let number: usize =
                        form["refresh_token"].strip_prefix("renew-").unwrap().parse().unwrap();
                    // Each is taken once.
                    if number <= logins.renewals_forgotten || number != logins.given {
                        return Some(page(
                            "400 Bad Request",
                            "application/json",
                            r#"{"error": "invalid_grant"}"#,
                        ));
                    }
                    logins.renewed += 1;
                }
                logins.given += 1;
                let number = logins.given;
                json(
                    json!({"access_token": format!("token-{number}"), "token_type": "Bearer", "expires_in": 3600,
                    "refresh_token": format!("renew-{number}")}),
                )
            }
            _ => {
                let number = heard.header("authorization").strip_prefix("Bearer token-");
                let number = number.and_then(|it| it.parse::<usize>().ok());
                if number.is_some_and(|number| number > logins.tokens_forgotten) {
                    return None;
                }
                let metadata = format!("{origin}/.well-known/oauth-protected-resource/mcp");
                format!(
                    "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer resource_metadata=\"{metadata}\"\r\n\
                     content-length: 0\r\n\r\n"
                )
                .into()
            }
        })
    }

    /// An answer in the way that the server has.
    fn say(&self, heard: &Heard, result: Value, headers: &str) -> (Vec<u8>, bool) {
        let message = message(heard, &result);
        let (kind, body) = match self.is("events") {
            true => ("text/event-stream", format!(": hello\n\nid: 1\ndata: {message}\n\n")),
            false => ("application/json", message),
        };
        let bytes = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\n{headers}content-type: {kind}\r\ncontent-length: {bytes}\r\n\r\n"
        );
        ([head, body].concat().into(), true)
    }

    async fn call(&self, heard: &Heard) -> (Vec<u8>, bool) {
        let params = &heard.body["params"];
        let text = |text: String| json!({"resultType": "complete", "content": [{"type": "text", "text": text}]});
        let streamed = |body: &str| {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            [head, body].concat().into_bytes()
        };
        match params["name"].as_str().unwrap() {
            "echo" => {
                let said = params["arguments"]["text"].as_str().unwrap_or_default();
                self.say(heard, text(format!("echo: {said}")), "")
            }
            "broken" => (page("200 OK", "application/json", "{\"jsonrpc\": "), true),
            "html" => (page("200 OK", "text/html", "<html>"), true),
            "error" => (page("500 Oh", "text/plain", "out of\norder"), true),
            "unknown" => (page("401 Unauthorized", "text/plain", ""), true),
            "refused" => {
                let error = json!({"jsonrpc": "2.0", "id": heard.body["id"],
                    "error": {"code": -32602, "message": "no such luck"}});
                (page("400 Bad Request", "application/json", &error.to_string()), true)
            }
            "hang" => std::future::pending().await,
            "huge" => {
                let huge = message(heard, &text("h".repeat(17 << 20)));
                (page("200 OK", "application/json", &huge), true)
            }
            "huge-event" => (streamed(&format!("data: {}", "h".repeat(17 << 20))), false),
            "cut" => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
                (head.into(), false)
            }
            "cut-events" => (streamed(": nothing yet\n\n"), false),
            "away" => (away(), true),
            other => panic!("there is no {other}"),
        }
    }
}

fn message(heard: &Heard, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": heard.body["id"], "result": result}).to_string()
}

fn page(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let bytes = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {bytes}\r\n\r\n{body}")
        .into()
}

/// To where the clouds keep their keys.
fn away() -> Vec<u8> {
    "HTTP/1.1 307 Moved\r\nlocation: http://169.254.169.254/latest\r\ncontent-length: 0\r\n\r\n"
        .into()
}

fn discovered() -> Value {
    json!({
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
        "capabilities": {"tools": {}},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "elsewhere", "version": "2"}},
    })
}

fn initialized() -> Value {
    json!({
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "elsewhere", "version": "1"},
    })
}

fn tools() -> Value {
    let names = [
        "echo",
        "broken",
        "html",
        "error",
        "unknown",
        "refused",
        "hang",
        "huge",
        "huge-event",
        "cut",
        "cut-events",
        "away",
    ];
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": names.map(tool)})
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Heard> {
    let mut line = String::new();
    let mut next = async || {
        line.clear();
        match stream.read_line(&mut line).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim().to_owned()),
        }
    };
    let first = next().await?;
    let mut words = first.split(' ').map(str::to_owned);
    let (verb, path) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        let line = next().await?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let bytes = headers.get("content-length").map_or(0, |it: &String| it.parse().unwrap());
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body).await.ok()?;
    let text = String::from_utf8(body).unwrap();
    let body = serde_json::from_str(&text).unwrap_or_default();
    Some(Heard { verb, path, headers, text, body })
}
