//! The client against servers of every kind, over a real socket. No test waits between attempts: what a pause is, the
//! test says.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::client::{CallError, Client};
use crate::command::{Failure, run};
use crate::environment::Environment;
use crate::frame::FRAME_BYTES_MAX;

const DELAY: Duration = Duration::from_millis(500);

/// What a server does with one connection.
enum Act {
    /// Reads the request and sends these bytes.
    Send(Vec<u8>),
    /// Closes without reading, so that the client is reset.
    Reset,
    /// Answers without reading, and closes.
    Refuse(Vec<u8>),
    /// Reads the request and holds the connection until the client goes.
    Hold,
}

/// A socket in its own directory, and what was asked of it.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("rpc.sock")
    }

    /// Serves one connection for each of `acts`; the requests it read are the thread's result.
    fn serve(&self, acts: Vec<Act>) -> JoinHandle<Vec<Value>> {
        serve(&self.path(), acts)
    }

    fn environment(&self, more: &[(&str, &str)]) -> Environment {
        let path = self.path().to_str().unwrap().to_owned();
        Environment::read(|name| match name {
            "ASH_RPC_SOCKET" => Some(path.clone()),
            _ => more.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
        })
        .unwrap()
    }

    /// Calls `method` once and, where the connection fails, up to three times more.
    fn call(&self, method: &str) -> Result<Value, CallError> {
        let environment = self.environment(&[]);
        Client::new(&environment).pausing(&|_| {}).call(method, Map::new(), 3, DELAY)
    }

    /// Runs the program, and returns what it printed.
    fn ash(&self, words: &[&str], environment: &[(&str, &str)]) -> Result<String, Failure> {
        let mut out = Vec::new();
        let words = words.iter().map(OsString::from);
        run(words, &self.environment(environment), &|_| {}, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }
}

fn serve(path: &Path, acts: Vec<Act>) -> JoinHandle<Vec<Value>> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let mut requests = Vec::new();
        for act in acts {
            let (mut stream, _) = listener.accept().unwrap();
            match act {
                Act::Send(bytes) => {
                    requests.push(request(&mut stream));
                    // A client that has seen enough may be gone.
                    let _ = stream.write_all(&bytes);
                }
                Act::Reset => {}
                Act::Refuse(bytes) => stream.write_all(&bytes).unwrap(),
                Act::Hold => {
                    requests.push(request(&mut stream));
                    let _ = stream.read(&mut [0]);
                }
            }
        }
        requests
    })
}

fn request(stream: &mut UnixStream) -> Value {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes(), body].concat()
}

fn answer(result: Value) -> Act {
    Act::Send(frame(json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string().as_bytes()))
}

fn error(id: Value, code: i64, message: &str) -> Vec<u8> {
    let error = json!({"code": code, "message": message, "data": {"rule": "x"}});
    frame(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().as_bytes())
}

#[test]
fn a_result_is_returned_as_it_is() {
    for result in [json!([{"id": "a"}]), json!(null), json!(false), json!({"x": 1.5})] {
        let place = Place::new();
        let server = place.serve(vec![answer(result.clone())]);
        assert_eq!(place.call("memory.list").unwrap(), result);
        let asked = json!({"jsonrpc": "2.0", "method": "memory.list", "params": {}, "id": 1});
        assert_eq!(server.join().unwrap(), [asked]);
    }
}

#[test]
fn notifications_before_the_answer_are_passed_over() {
    let place = Place::new();
    let notice = json!({"jsonrpc": "2.0", "method": "stream_data", "params": {"chunk": "a"}});
    let done = json!({"jsonrpc": "2.0", "id": 1, "result": 7});
    let bytes = [frame(notice.to_string().as_bytes()), frame(done.to_string().as_bytes())].concat();
    let server = place.serve(vec![Act::Send(bytes)]);
    assert_eq!(place.call("send").unwrap(), 7);
    server.join().unwrap();
}

#[test]
fn an_answered_error_is_not_tried_again() {
    for id in [json!(1), json!(null)] {
        let place = Place::new();
        let server = place.serve(vec![Act::Send(error(id, -32602, "limit: too large"))]);
        let Err(CallError::Rpc(error)) = place.call("memory.list") else { panic!("no error") };
        assert_eq!((error.code, error.data), (-32602, json!({"rule": "x"})));
        assert_eq!(error.message, "limit: too large");
        assert_eq!(server.join().unwrap().len(), 1);
    }
}

#[test]
fn who_is_turned_away_unread_hears_why() {
    let place = Place::new();
    let server = place.serve(vec![Act::Refuse(error(json!(null), -32001, "too many"))]);
    let content = json!("x".repeat(4 * 1024 * 1024));
    let environment = place.environment(&[]);
    let params = Map::from_iter([("content".to_owned(), content)]);
    let refused = Client::new(&environment).pausing(&|_| {}).call("memory.add", params, 0, DELAY);
    assert!(matches!(refused, Err(CallError::Rpc(error)) if error.code == -32001));
    server.join().unwrap();
}

#[test]
fn a_server_that_comes_later_is_found() {
    let place = Place::new();
    let environment = place.environment(&[]);
    let server = RefCell::new(None);
    let pauses = RefCell::new(Vec::new());
    let pause = |delay| {
        pauses.borrow_mut().push(delay);
        if pauses.borrow().len() == 2 {
            *server.borrow_mut() = Some(place.serve(vec![answer(json!(1))]));
        }
    };
    let result = Client::new(&environment).pausing(&pause).call("any", Map::new(), 3, DELAY);
    assert_eq!(result.unwrap(), 1);
    assert_eq!(pauses.take(), [DELAY, DELAY * 2]);
    server.take().unwrap().join().unwrap();
}

/// The pauses of a call that never finds a server, and how it ends.
fn pauses(place: &Place, max_retries: u32) -> (Vec<Duration>, CallError) {
    let environment = place.environment(&[]);
    let pauses = RefCell::new(Vec::new());
    let pause = |delay| pauses.borrow_mut().push(delay);
    let client = Client::new(&environment).pausing(&pause);
    let error = client.call("memory.list", Map::new(), max_retries, DELAY).unwrap_err();
    (pauses.take(), error)
}

#[test]
fn a_server_that_never_comes_is_given_up() {
    let place = Place::new();
    let (paused, error) = pauses(&place, 3);
    assert_eq!(paused, [DELAY, DELAY * 2, DELAY * 4]);
    assert!(matches!(error, CallError::Connection { attempts: 4, .. }), "{error}");
    assert_eq!(pauses(&place, 0).0, []);
}

#[test]
fn a_socket_that_nobody_listens_on_is_tried_again() {
    let place = Place::new();
    drop(UnixListener::bind(place.path()).unwrap());
    let (paused, error) = pauses(&place, 2);
    assert_eq!(paused, [DELAY, DELAY * 2]);
    let CallError::Connection { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn what_can_never_be_a_socket_is_not_tried_again() {
    let place = Place::new();
    let long = "x".repeat(200);
    let environment = Environment::read(|name| (name == "ASH_RPC_SOCKET").then(|| long.clone()));
    let client_environment = environment.unwrap();
    let client = Client::new(&client_environment).pausing(&|_| panic!("tried again"));
    let error = client.call("memory.list", Map::new(), 3, DELAY).unwrap_err();
    assert!(matches!(error, CallError::Closed { .. }), "{error}");
    drop(place);
}

#[test]
fn a_connection_that_breaks_is_tried_again() {
    let whole = frame(json!({"jsonrpc": "2.0", "id": 1, "result": 1}).to_string().as_bytes());
    let breaks = || {
        [
            Act::Reset,
            Act::Send(Vec::new()),
            Act::Send(whole[..2].to_vec()),
            Act::Send(whole[..whole.len() - 1].to_vec()),
        ]
    };
    for act in breaks() {
        let place = Place::new();
        let server = place.serve(vec![act, answer(json!("here"))]);
        assert_eq!(place.call("memory.add").unwrap(), "here");
        server.join().unwrap();
    }
    let place = Place::new();
    let server = place.serve(breaks().into());
    let given_up = place.call("memory.add");
    assert!(matches!(given_up, Err(CallError::Connection { attempts: 4, .. })));
    server.join().unwrap();
}

#[test]
fn what_may_have_run_is_not_sent_again() {
    let place = Place::new();
    let server = place.serve(vec![Act::Send(Vec::new())]);
    assert!(matches!(place.call("send"), Err(CallError::Lost(method, _)) if method == "send"));
    assert_eq!(server.join().unwrap().len(), 1);
}

#[test]
fn what_has_a_key_is_sent_again() {
    for params in [json!({"idempotency_key": "k"}), json!({"options": {"idempotency_key": "k"}})] {
        let place = Place::new();
        let server = place.serve(vec![Act::Send(Vec::new()), answer(json!("here"))]);
        let environment = place.environment(&[]);
        let client = Client::new(&environment).pausing(&|_| {});
        let params = params.as_object().unwrap().clone();
        assert_eq!(client.call("send", params, 3, DELAY).unwrap(), "here");
        assert_eq!(server.join().unwrap().len(), 2);
    }
}

#[test]
fn a_silent_server_is_waited_for_only_so_long() {
    let place = Place::new();
    let server = place.serve(vec![Act::Hold]);
    let environment = place.environment(&[("ASH_RPC_TIMEOUT", "0.5")]);
    let client = Client::new(&environment).pausing(&|_| panic!("tried again"));
    let error = client.call("memory.list", Map::new(), 3, DELAY).unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    server.join().unwrap();
}

#[test]
fn a_server_that_accepts_nobody_is_waited_for_only_so_long() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let place = Place::new();
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(place.path()).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let _waits = UnixStream::connect(place.path()).unwrap();
    let environment = place.environment(&[("ASH_RPC_TIMEOUT", "0.05")]);
    let client = Client::new(&environment).pausing(&|_| panic!("tried again"));
    let error = client.call("memory.list", Map::new(), 3, DELAY).unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
}

#[test]
fn a_server_that_reads_nothing_is_waited_for_only_so_long() {
    let place = Place::new();
    let _listener = UnixListener::bind(place.path()).unwrap();
    let environment = place.environment(&[("ASH_RPC_TIMEOUT", "0.05")]);
    let client = Client::new(&environment).pausing(&|_| panic!("tried again"));
    let params = Map::from_iter([("content".to_owned(), json!("x".repeat(8 * 1024 * 1024)))]);
    let error = client.call("memory.add", params, 3, DELAY).unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
}

/// An answer of so many bytes.
fn answer_of(bytes: usize) -> Vec<u8> {
    let around = json!({"jsonrpc": "2.0", "id": 1, "result": ""}).to_string().len();
    let text = "x".repeat(bytes - around);
    json!({"jsonrpc": "2.0", "id": 1, "result": text}).to_string().into_bytes()
}

#[test]
fn the_largest_answer_is_read_and_a_larger_one_refused() {
    let place = Place::new();
    let server = place.serve(vec![Act::Send(frame(&answer_of(FRAME_BYTES_MAX)))]);
    assert!(place.call("memory.list").unwrap().is_string());
    server.join().unwrap();

    let place = Place::new();
    let server = place.serve(vec![Act::Send(frame(&answer_of(FRAME_BYTES_MAX + 1)))]);
    let error = place.call("memory.list").unwrap_err();
    assert!(matches!(error, CallError::AnswerTooLarge(bytes) if bytes == FRAME_BYTES_MAX + 1));
    server.join().unwrap();
}

#[test]
fn the_largest_request_is_sent_and_a_larger_one_refused() {
    let params = |text: &str| Map::from_iter([("a".to_owned(), json!(text))]);
    let request = json!({"jsonrpc": "2.0", "method": "m", "params": params(""), "id": 1});
    let room = FRAME_BYTES_MAX - request.to_string().len();
    let place = Place::new();
    let environment = place.environment(&[]);
    let client = Client::new(&environment).pausing(&|_| {});
    let server = place.serve(vec![answer(json!(1))]);
    assert_eq!(client.call("m", params(&"x".repeat(room)), 0, DELAY).unwrap(), 1);
    server.join().unwrap();
    let error = client.call("m", params(&"x".repeat(room + 1)), 0, DELAY).unwrap_err();
    assert!(matches!(error, CallError::RequestTooLarge(bytes) if bytes == FRAME_BYTES_MAX + 1));
}

#[test]
fn what_is_no_response_is_an_error_and_not_tried_again() {
    let broken: [&[u8]; 8] = [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"7",
        br#"{"jsonrpc": "2.0", "id": 1}"#,
        br#"{"jsonrpc": "2.0", "id": 2, "result": 1}"#,
        br#"{"jsonrpc": "2.0", "id": 1, "error": "no"}"#,
    ];
    for body in broken {
        let place = Place::new();
        let server = place.serve(vec![Act::Send(frame(body))]);
        let error = place.call("memory.list").unwrap_err();
        assert!(matches!(error, CallError::Answer(_)), "{error}");
        assert_eq!(server.join().unwrap().len(), 1);
    }
}

/// The method and the parameters that a command line sends.
#[track_caller]
fn sends(words: &[&str], environment: &[(&str, &str)], method: &str, params: Value) {
    let place = Place::new();
    let server = place.serve(vec![answer(json!({"deleted": true}))]);
    place.ash(words, environment).unwrap();
    let request = json!({"jsonrpc": "2.0", "method": method, "params": params, "id": 1});
    assert_eq!(server.join().unwrap(), [request]);
}

#[test]
fn each_command_sends_what_servers_expect() {
    let nobody = &[];
    sends(
        &["memory", "search", "a b"],
        nobody,
        "memory.search",
        json!({"query": "a b", "limit": 10}),
    );
    for limit in [["-n", "3"], ["--limit", "3"]] {
        let words = [&["memory", "search", "--query", "q"], &limit[..]].concat();
        sends(&words, nobody, "memory.search", json!({"query": "q", "limit": 3}));
    }
    sends(
        &["memory", "search", "--", "-n"],
        nobody,
        "memory.search",
        json!({"query": "-n", "limit": 10}),
    );
    sends(&["memory", "list"], nobody, "memory.list", json!({"limit": 20}));
    sends(
        &["--json", "memory", "list", "-n1", "--include-expired"],
        nobody,
        "memory.list",
        json!({"limit": 1, "include_expired": true}),
    );
    sends(
        &["memory", "add", "likes tea"],
        nobody,
        "memory.add",
        json!({"content": "likes tea", "source": "agent", "shared": false}),
    );
    sends(
        &["memory", "add", "x", "-s", "cli", "-e", "7", "--shared", "-S", "Ann", "--subject=Bo"],
        nobody,
        "memory.add",
        json!({
            "content": "x", "source": "cli", "shared": true, "expires_days": 7, "subjects": ["Ann", "Bo"],
        }),
    );
    sends(
        &["memory", "add", "x", "--expires", "0.5"],
        nobody,
        "memory.add",
        json!({"content": "x", "source": "agent", "shared": false, "expires_days": 0.5}),
    );
    sends(
        &["memory", "delete", "0123abcd"],
        nobody,
        "memory.delete",
        json!({"memory_id": "0123abcd"}),
    );
    sends(&["call", "rpc.version"], nobody, "rpc.version", json!({}));
    sends(&["call", "send", r#"{"content": "hi"}"#], nobody, "send", json!({"content": "hi"}));
}

#[test]
fn memories_are_asked_for_under_the_callers_identity() {
    let ann = &[("ASH_USER_ID", "ann"), ("ASH_CHAT_ID", "c1"), ("ASH_CONTEXT_TOKEN", " t.o.k \n")];
    let identity = json!({"user_id": "ann", "chat_id": "c1", "context_token": "t.o.k"});
    let with = |mut params: Value| {
        params.as_object_mut().unwrap().extend(identity.as_object().unwrap().clone());
        params
    };
    sends(&["memory", "list"], ann, "memory.list", with(json!({"limit": 20})));
    sends(
        &["memory", "search", "q"],
        ann,
        "memory.search",
        with(json!({"query": "q", "limit": 10})),
    );
    sends(&["memory", "delete", "x"], ann, "memory.delete", with(json!({"memory_id": "x"})));
    sends(&["call", "memory.list", "{}"], ann, "memory.list", with(json!({})));
    let said = json!({"user_id": "bo", "chat_id": "c1", "context_token": "t.o.k"});
    sends(&["call", "memory.list", r#"{"user_id": "bo"}"#], ann, "memory.list", said);
    sends(&["call", "list_agents"], ann, "list_agents", json!({"context_token": "t.o.k"}));
    let blank = &[("ASH_USER_ID", ""), ("ASH_CHAT_ID", " "), ("ASH_CONTEXT_TOKEN", "")];
    sends(&["memory", "list"], blank, "memory.list", json!({"limit": 20}));
}

/// What a command line prints of `result`.
#[track_caller]
fn prints(words: &[&str], result: Value, expected: &str) {
    let place = Place::new();
    let server = place.serve(vec![answer(result)]);
    assert_eq!(place.ash(words, &[]).unwrap(), expected);
    server.join().unwrap();
}

#[test]
fn results_are_printed_for_people_and_for_programs() {
    let rows = json!([
        {"id": "0123456789", "content": "likes\ngreen \u{1b}[31mtea", "similarity": 0.876, "source": "cli"},
        {"id": "1", "content": "ä".repeat(61), "similarity": 0.5, "source": "agent"},
    ]);
    let whole = format!("[0.88] likes green  [31mtea\n[0.50] {}\n", "ä".repeat(61));
    prints(&["memory", "search", "q"], rows.clone(), &whole);
    let table = format!(
        "ID          Source  Content\n0123456789  cli     likes green  [31mtea\n1           agent   {}…\nTotal: 2\n",
        "ä".repeat(60)
    );
    prints(&["memory", "list"], rows.clone(), &table);
    prints(&["memory", "list", "--json"], rows.clone(), &format!("{rows}\n"));
    for command in [&["memory", "search", "q"][..], &["memory", "list"]] {
        prints(command, json!([]), "No memories found.\n");
    }
    prints(&["memory", "add", "x"], json!({"id": "9f"}), "Memory added: 9f\n");
    let shared = json!({"id": "9f", "shared": true});
    prints(&["memory", "add", "x", "--shared"], shared, "Memory added (shared): 9f\n");
    prints(&["memory", "delete", "9f"], json!({"deleted": true}), "Memory deleted.\n");
    prints(&["call", "m"], json!({"a": [1]}), "{\n  \"a\": [\n    1\n  ]\n}\n");
    prints(&["call", "m", "--json"], json!({"a": [1]}), "{\"a\":[1]}\n");
}

#[test]
fn deleting_nothing_is_an_error() {
    let place = Place::new();
    let server = place.serve(vec![answer(json!({"deleted": false}))]);
    let failure = place.ash(&["memory", "delete", "9f"], &[]).unwrap_err();
    assert_eq!(failure.to_string(), "memory not found: 9f");
    server.join().unwrap();
}

#[test]
fn a_command_line_that_is_not_understood_names_what_is_wrong() {
    let cases: [(&[&str], &str); 11] = [
        (&["memory"], "a command is missing"),
        (&["memory", "forget"], "there is no command \"forget\""),
        (&["remember"], "there is no command \"remember\""),
        (&["memory", "search"], "QUERY is missing"),
        (&["memory", "search", "a", "b"], "unexpected argument \"b\""),
        (&["memory", "list", "-n", "many"], "many"),
        (&["memory", "list", "-n", "-1"], "-1"),
        (&["memory", "list", "--shared"], "--shared means nothing here"),
        (&["memory", "add", "x", "-e", "soon"], "soon"),
        (&["memory", "list", "--all"], "--all"),
        (&["call", "m", "[1]"], "JSON must be one object"),
    ];
    let place = Place::new();
    for (words, expected) in cases {
        let failure = place.ash(words, &[]).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{words:?}: {failure}");
        assert!(failure.to_string().contains(expected), "{words:?}: {failure}");
    }
}

#[test]
fn help_and_version_ask_nobody() {
    let place = Place::new();
    for words in [&[][..], &["-h"], &["memory", "--help"]] {
        assert!(place.ash(words, &[]).unwrap().starts_with("ash: talks to"));
    }
    let version = place.ash(&["--version"], &[]).unwrap();
    assert_eq!(version, format!("ash {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_time_to_wait_is_a_number_within_bounds() {
    let read = |value: &str| {
        let value = value.to_owned();
        Environment::read(move |name| (name == "ASH_RPC_TIMEOUT").then(|| value.clone()))
    };
    assert_eq!(read("86400").unwrap().timeout, Duration::from_secs(86_400));
    assert_eq!(read("0.001").unwrap().timeout, Duration::from_millis(1));
    assert_eq!(read("").unwrap().timeout, Duration::from_secs(60));
    for wrong in ["86400.1", "0", "-1", "NaN", "soon"] {
        let error = read(wrong).unwrap_err().to_string();
        assert_eq!(error, "ASH_RPC_TIMEOUT must be a number of seconds above 0 and up to 86400");
    }
}

#[test]
fn without_a_word_the_socket_is_where_servers_put_it() {
    let unset = Environment::read(|_| None).unwrap();
    assert_eq!(unset.sockets, [Path::new("/run/ash/rpc.sock")]);
    let place = Place::new();
    let runtime = place.directory.path().to_str().unwrap().to_owned();
    let environment =
        Environment::read(|name| (name == "XDG_RUNTIME_DIR").then(|| runtime.clone())).unwrap();
    let ours = place.directory.path().join("ash/rpc.sock");
    assert_eq!(environment.sockets, [Path::new("/run/ash/rpc.sock"), &ours]);
}
