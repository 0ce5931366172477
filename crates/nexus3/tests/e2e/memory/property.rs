//! Whoever asks, however it asks and whatever it says of itself: it sees, counts, finds and removes what is its own, its
//! chat's and everybody's, and nothing else. Held against a list of what was added, over random callers.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::identity::{forged, token, with_doors};
use super::with;
use crate::doors::ws::Socket;
use crate::harness::wire::{Transport, request};
use crate::harness::{Framed, Server, Setup, Wire};

const STEPS: usize = 400;
const USERS: [&str; 3] = ["u", "v", "w"];
const CHATS: [&str; 3] = ["c", "d", "u"];

/// Whom and what memories are about. Texts differ in a number alone, so a newer one takes the place of the older whose
/// subject it shares.
const SUBJECTS: [&str; 4] = ["Sarah", "the garden", "@bob", "rent"];

/// How somebody calls. Those with an identity of their own also lie about it.
#[derive(Clone, Copy, Debug)]
enum Way {
    Http,
    Unix,
    /// From a second process on the home.
    Stdio,
    /// In this process, a third one on the home.
    InProcess,
    Typed,
    WebSocket,
    HttpWithToken,
    UnixWithToken,
    WebSocketWithToken,
    /// Beside somebody else's call.
    BatchWithToken,
    /// Over a connection that was bound by its first call.
    Bound,
    /// The same, bound to another: the call's own token is for the call.
    BoundToAnother,
    /// Through a socket for one identity.
    Door,
    /// With a token that leads to less than the socket does.
    DoorNarrowed,
    /// Through one for whoever brings a token.
    DoorWithToken,
    Agent,
    AgentToken,
    Child,
}

const WAYS: [Way; 18] = [
    Way::Http,
    Way::Unix,
    Way::Stdio,
    Way::InProcess,
    Way::Typed,
    Way::WebSocket,
    Way::HttpWithToken,
    Way::UnixWithToken,
    Way::WebSocketWithToken,
    Way::BatchWithToken,
    Way::Bound,
    Way::BoundToAnother,
    Way::Door,
    Way::DoorNarrowed,
    Way::DoorWithToken,
    Way::Agent,
    Way::AgentToken,
    Way::Child,
];

type Who = (Option<String>, Option<String>);

struct Kept {
    id: String,
    content: String,
    /// A user, a chat, or neither.
    scope: Who,
    subjects: Vec<&'static str>,
    is_expired: bool,
}

impl Kept {
    fn is_seen_by(&self, who: &Who) -> bool {
        match &self.scope {
            (None, None) => true,
            (Some(user), _) => who.0.as_ref() == Some(user),
            (None, Some(chat)) => who.1.as_ref() == Some(chat),
        }
    }

    fn takes_place_of(&self, older: &Self) -> bool {
        let shares = |subject| older.subjects.contains(subject);
        older.scope == self.scope && self.subjects.iter().any(shares)
    }

    /// Becomes what it is when its text is kept again.
    fn renew(&mut self, new: Self) {
        self.is_expired = new.is_expired;
        let more = new.subjects.into_iter().filter(|subject| !self.subjects.contains(subject));
        let more: Vec<_> = more.collect();
        self.subjects.extend(more);
    }
}

/// All ways to one home.
struct Ways {
    server: Server,
    doors: [PathBuf; 2],
    shared: PathBuf,
    stdio: Wire,
    in_process: Wire,
    typed: Wire,
    agent_token: String,
}

impl Ways {
    async fn open(dir: &tempfile::TempDir) -> Self {
        let (setup, doors) = with_doors(dir);
        let shared = dir.path().join("shared").join("rpc.sock");
        let setup = setup.arg("--socket").arg(&shared).arg("--socket-identity").arg("token");
        let server = setup.start().await;
        let wire = server.wire();
        wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
        wire.ok("create_agent", json!({"agent_id": "child", "parent_agent_id": "top"})).await;
        let issued = wire.ok("create_agent_token", json!({"agent_id": "top"})).await;
        let beside = async |transport| Wire::beside(transport, Setup::new(), &server.world).await;
        Self {
            stdio: beside(Transport::Stdio).await,
            in_process: beside(Transport::Memory).await,
            typed: beside(Transport::Direct).await,
            agent_token: issued["token"].as_str().unwrap().to_owned(),
            server,
            doors,
            shared,
        }
    }

    async fn ask(&self, way: Way, who: &Who, method: &str, params: Value) -> Value {
        let own =
            || json!({"context_token": token(who.0.as_deref().unwrap(), who.1.as_deref(), 600)});
        let server = &self.server;
        let message = |params: Value| request(1, method, params);
        let over_http = async |body: String| server.ask(server.post(body)).await.answer();
        let over = async |mut connection: Framed, params: Value| {
            connection.send(message(params).as_bytes()).await;
            connection.message().await
        };
        let as_agent = async |agent: &str, params: Value| {
            let call = server.post(message(params)).header("X-Nexus-Agent", agent);
            server.ask(call).await.answer()
        };
        let over_ws = async |params: Value| {
            let mut socket = Socket::of(server).await;
            socket.send(message(params)).await;
            socket.next().await.unwrap()
        };
        match way {
            Way::Http => over_http(message(params)).await,
            Way::HttpWithToken => over_http(message(with(&params, own()))).await,
            Way::BatchWithToken => {
                let others = request(2, "memory.list", json!({"user_id": "w", "chat_id": "d"}));
                let batch = format!("[{others},{}]", message(with(&params, own())));
                let answers = over_http(batch).await;
                let mut answers = answers.as_array().unwrap().iter();
                answers.find(|answer| answer["id"] == 1).unwrap().clone()
            }
            Way::Stdio => self.stdio.exchange(message(params)).await,
            Way::InProcess => self.in_process.exchange(message(params)).await,
            Way::Typed => self.typed.exchange(message(params)).await,
            Way::WebSocket => over_ws(params).await,
            Way::WebSocketWithToken => over_ws(with(&params, own())).await,
            Way::Unix => over(server.unix().await, params).await,
            Way::UnixWithToken => over(server.unix().await, with(&params, own())).await,
            Way::Bound => over(bound(server, own()).await, params).await,
            Way::BoundToAnother => {
                let another = json!({"context_token": token("w", Some("d"), 600)});
                over(bound(server, another).await, with(&params, own())).await
            }
            Way::Door => {
                let door =
                    if who.0.as_deref() == Some("u") { &self.doors[0] } else { &self.doors[1] };
                over(Framed::connect(door).await, params).await
            }
            Way::DoorNarrowed => {
                over(Framed::connect(&self.doors[0]).await, with(&params, own())).await
            }
            Way::DoorWithToken => {
                over(Framed::connect(&self.shared).await, with(&params, own())).await
            }
            Way::Agent => as_agent("top", params).await,
            Way::Child => as_agent("child", params).await,
            Way::AgentToken => {
                let call = server.post(message(params)).bearer(Some(&self.agent_token));
                server.ask(call).await.answer()
            }
        }
    }

    /// Asks as somebody whose token is not valid, wherever tokens are taken.
    async fn ask_as_nobody(&self, dice: &mut Dice, method: &str, params: Value) -> Value {
        let wrong = [token("u", Some("c"), -1), forged("u"), "x".into()][dice.below(3)].clone();
        let message = request(1, method, with(&params, json!({"context_token": wrong})));
        let mut connection = match dice.below(6) {
            0 => return self.server.ask(self.server.post(message)).await.answer(),
            1 => return self.stdio.exchange(message).await,
            2 => self.server.unix().await,
            3 => Framed::connect(&self.doors[0]).await,
            4 => {
                let mut socket = Socket::of(&self.server).await;
                socket.send(message).await;
                return socket.next().await.unwrap();
            }
            _ => Framed::connect(&self.shared).await,
        };
        connection.send(message.as_bytes()).await;
        connection.message().await
    }

    async fn close(self) {
        for wire in [self.stdio, self.in_process, self.typed] {
            wire.finish().await;
        }
    }
}

/// A connection whose first call had a token.
async fn bound(server: &Server, token: Value) -> Framed {
    let mut connection = server.unix().await;
    connection.send(request(0, "memory.list", token).as_bytes()).await;
    connection.message().await;
    connection
}

#[tokio::test]
async fn nobody_reaches_what_is_not_theirs() {
    let seed = RandomState::new().build_hasher().finish() | 1;
    let dir = tempfile::tempdir().unwrap();
    let ways = Ways::open(&dir).await;
    let mut dice = Dice(seed);
    let mut kept: Vec<Kept> = Vec::new();
    for step in 0..STEPS {
        let way = WAYS[dice.below(WAYS.len())];
        let (who, params) = caller(way, &mut dice);
        let case = format!("seed {seed}, step {step}: {way:?} as {who:?} saying {params}");
        match dice.below(5) {
            0..=2 => {
                let (added, memory) = addition(step, &who, &kept, &mut dice);
                let answer = ways.ask(way, &who, "memory.add", with(&params, added)).await;
                let id = answer["result"]["id"].as_str();
                let id = id.unwrap_or_else(|| panic!("{case}: {answer}")).to_owned();
                let at = kept.iter().position(|it| it.id == id);
                let same = |it: &Kept| it.scope == memory.scope && it.content == memory.content;
                assert_eq!(at, kept.iter().position(same), "{case}: {answer}");
                if let Some(at) = at {
                    kept[at].renew(memory);
                } else {
                    kept.retain(|older| !memory.takes_place_of(older));
                    kept.push(Kept { id, ..memory });
                }
            }
            3 if !kept.is_empty() => {
                let at = dice.below(kept.len());
                let id = &kept[at].id;
                let named = if dice.below(2) == 0 { &id[..8] } else { id };
                let params = with(&params, json!({"memory_id": named}));
                let answer = ways.ask(way, &who, "memory.delete", params).await;
                let is_agent = matches!(way, Way::Agent | Way::AgentToken | Way::Child);
                let global = kept[at].scope == (None, None);
                let expected = kept[at].is_seen_by(&who) && !(is_agent && global);
                assert_eq!(answer["result"]["deleted"], expected, "{case}: {answer}");
                if expected {
                    kept.remove(at);
                }
            }
            _ => {
                let id = kept.first().map_or("01234567", |first| &first.id);
                let params =
                    with(&params, json!({"query": "fact", "content": "x", "memory_id": id}));
                let methods = ["memory.add", "memory.search", "memory.list", "memory.delete"];
                let method = methods[dice.below(4)];
                let answer = ways.ask_as_nobody(&mut dice, method, params).await;
                assert_eq!(answer["error"]["code"], -32003, "{case}: {method} {answer}");
            }
        }
        let params = caller_params(way, &who, &mut dice);
        let subject = SUBJECTS[dice.below(SUBJECTS.len())];
        let all = dice.below(2) == 0;
        let own = |all: bool| kept.iter().filter(move |it| all || !it.is_expired);
        let visible = |all: bool| -> BTreeSet<&str> {
            own(all).filter(|it| it.is_seen_by(&who)).map(|it| &*it.id).collect()
        };
        let list = with(&params, json!({"limit": 1000, "include_expired": all}));
        let listed = ways.ask(way, &who, "memory.list", list).await;
        let listed = ids(&listed["result"]);
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), visible(all), "{case}");
        assert_eq!(listed.len(), visible(all).len(), "{case}");

        let visible = visible(false);
        let search = with(&params, json!({"query": "fact", "limit": 200}));
        let found = ways.ask(way, &who, "memory.search", search).await;
        for entry in found["result"].as_array().unwrap() {
            // Whatever others remember, the number is the same.
            assert_eq!(entry["similarity"], 1.0, "{case}");
        }
        let found = ids(&found["result"]);
        assert_eq!(found.len(), visible.len().min(200), "{case}");
        assert!(found.iter().all(|id| visible.contains(id)), "{case}");

        let search = with(&params, json!({"query": subject, "limit": 200}));
        let found = ways.ask(way, &who, "memory.search", search).await;
        let found = ids(&found["result"]);
        assert!(found.iter().all(|id| visible.contains(id)), "{case} about {subject}");
        let mut about =
            own(false).filter(|it| it.is_seen_by(&who) && it.subjects.contains(&subject));
        assert!(about.all(|it| found.contains(&&*it.id)), "{case} about {subject}");
    }
    ways.close().await;
}

fn ids(entries: &Value) -> Vec<&str> {
    entries.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect()
}

/// The parameters of a memory, and what is to be expected of it. Some say what is there already, be it one's own or
/// somebody else's.
fn addition(step: usize, who: &Who, kept: &[Kept], dice: &mut Dice) -> (Value, Kept) {
    let again = (dice.below(3) == 0 && !kept.is_empty()).then(|| &kept[dice.below(kept.len())]);
    // What expired is another memory when it is said again.
    let is_gone = |content: &str| kept.iter().any(|it| it.is_expired && it.content == content);
    let again = again.map(|it| it.content.clone()).filter(|content| !is_gone(content));
    let content = again.unwrap_or_else(|| format!("fact {step}"));
    let shared = who.1.is_some() && dice.below(2) == 0;
    let subjects: Vec<_> = SUBJECTS.into_iter().filter(|_| dice.below(8) == 0).collect();
    let is_expired = dice.below(6) == 0;
    // About a tenth of a millisecond.
    let expires_days =
        if is_expired { json!(1e-9) } else { [json!(1), Value::Null][dice.below(2)].clone() };
    let params = json!({
        "content": content, "shared": shared, "subjects": subjects, "expires_days": expires_days
    });
    let scope = match (shared, who) {
        (true, (_, chat)) => (None, chat.clone()),
        (false, (user, _)) => (user.clone(), None),
    };
    (params, Kept { id: String::new(), content, scope, subjects, is_expired })
}

/// Who calls, and what that one says of itself.
fn caller(way: Way, dice: &mut Dice) -> (Who, Value) {
    let name = |names: &[&str], dice: &mut Dice| {
        names.get(dice.below(names.len() + 1)).map(|it| (*it).to_owned())
    };
    let who = match way {
        Way::Http | Way::Unix | Way::Stdio | Way::InProcess | Way::Typed | Way::WebSocket => {
            (name(&USERS, dice), name(&CHATS, dice))
        }
        Way::HttpWithToken
        | Way::UnixWithToken
        | Way::WebSocketWithToken
        | Way::BatchWithToken
        | Way::DoorWithToken
        | Way::Bound
        | Way::BoundToAnother => (Some(USERS[dice.below(3)].to_owned()), name(&CHATS, dice)),
        Way::Door if dice.below(2) == 0 => (Some("u".into()), Some("c".into())),
        Way::Door => (Some("v".into()), None),
        Way::DoorNarrowed => (Some("u".into()), None),
        Way::Agent | Way::AgentToken => (Some("agent:top".into()), Some("tree:top".into())),
        Way::Child => (Some("agent:child".into()), Some("tree:top".into())),
    };
    let params = caller_params(way, &who, dice);
    (who, params)
}

fn caller_params(way: Way, who: &Who, dice: &mut Dice) -> Value {
    match way {
        Way::Http | Way::Unix | Way::Stdio | Way::InProcess | Way::Typed | Way::WebSocket => {
            json!({"user_id": who.0, "chat_id": who.1})
        }
        _ => {
            let lie = |names: &[&str; 3], dice: &mut Dice| {
                [names[0], names[1], names[2], ""][dice.below(4)].to_owned()
            };
            json!({"user_id": lie(&USERS, dice), "chat_id": lie(&CHATS, dice)})
        }
    }
}

/// Numbers that depend on the seed alone.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}
