//! Whoever asks, however it asks and whatever it says of itself: it sees, counts, finds and removes what is its own, its
//! chat's and everybody's, and nothing else. Held against a list of what was added, over random callers.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::identity::{token, with_doors};
use super::{contents, with};
use crate::harness::wire::request;
use crate::harness::{Framed, Server};

const STEPS: usize = 400;
const USERS: [&str; 3] = ["u", "v", "w"];
const CHATS: [&str; 3] = ["c", "d", "u"];

/// How somebody calls. Those with an identity of their own also lie about it.
#[derive(Clone, Copy, Debug)]
enum Way {
    Http,
    Unix,
    HttpWithToken,
    UnixWithToken,
    /// Over a connection that was bound by its first call.
    Bound,
    /// Through a socket for one identity.
    Door,
    Agent,
}

const WAYS: [Way; 7] = [
    Way::Http,
    Way::Unix,
    Way::HttpWithToken,
    Way::UnixWithToken,
    Way::Bound,
    Way::Door,
    Way::Agent,
];

type Who = (Option<String>, Option<String>);

struct Kept {
    id: String,
    content: String,
    /// A user, a chat, or neither.
    scope: Who,
}

impl Kept {
    fn is_seen_by(&self, who: &Who) -> bool {
        match &self.scope {
            (None, None) => true,
            (Some(user), _) => who.0.as_ref() == Some(user),
            (None, Some(chat)) => who.1.as_ref() == Some(chat),
        }
    }
}

#[tokio::test]
async fn nobody_reaches_what_is_not_theirs() {
    let seed = RandomState::new().build_hasher().finish() | 1;
    let dir = tempfile::tempdir().unwrap();
    let (setup, doors) = with_doors(&dir);
    let server = setup.start().await;
    server.wire().ok("create_agent", json!({"agent_id": "top"})).await;
    let mut dice = Dice(seed);
    let mut kept: Vec<Kept> = Vec::new();
    for step in 0..STEPS {
        let way = WAYS[dice.below(WAYS.len())];
        let (who, mut params) = caller(way, &mut dice);
        let case = format!("seed {seed}, step {step}: {way:?} as {who:?} saying {params}");
        let is_agent = matches!(way, Way::Agent);
        match dice.below(4) {
            0 | 1 => {
                let content = format!("fact {step}");
                let shared = who.1.is_some() && dice.below(2) == 0;
                params = with(&params, json!({"content": content, "shared": shared}));
                let answer = ask(&server, &doors, way, &who, "memory.add", params).await;
                let id =
                    answer["result"]["id"].as_str().unwrap_or_else(|| panic!("{case}: {answer}"));
                let scope = match (shared, &who) {
                    (true, (_, chat)) => (None, chat.clone()),
                    (false, (user, _)) => (user.clone(), None),
                };
                kept.push(Kept { id: id.into(), content, scope });
            }
            2 if !kept.is_empty() => {
                let at = dice.below(kept.len());
                let id = &kept[at].id;
                let named = if dice.below(2) == 0 { &id[..8] } else { id };
                params = with(&params, json!({"memory_id": named}));
                let answer = ask(&server, &doors, way, &who, "memory.delete", params).await;
                let global = kept[at].scope == (None, None);
                let expected = kept[at].is_seen_by(&who) && !(is_agent && global);
                assert_eq!(answer["result"]["deleted"], expected, "{case}: {answer}");
                if expected {
                    kept.remove(at);
                }
            }
            _ => {}
        }
        let (_, params) = (&who, caller_params(way, &who, &mut dice));
        let visible: BTreeSet<&str> =
            kept.iter().filter(|it| it.is_seen_by(&who)).map(|it| &*it.content).collect();
        let list = with(&params, json!({"limit": 1000, "include_expired": true}));
        let listed = ask(&server, &doors, way, &who, "memory.list", list).await;
        let listed = contents(&listed["result"]);
        assert_eq!(listed.iter().map(String::as_str).collect::<BTreeSet<_>>(), visible, "{case}");
        assert_eq!(listed.len(), visible.len(), "{case}");
        let search = with(&params, json!({"query": "fact", "limit": 200}));
        let found = ask(&server, &doors, way, &who, "memory.search", search).await;
        for entry in found["result"].as_array().unwrap() {
            // Whatever others remember, the number is the same.
            assert_eq!(entry["similarity"], 1.0, "{case}");
        }
        let found = contents(&found["result"]);
        assert_eq!(found.len(), visible.len().min(200), "{case}");
        assert!(found.iter().all(|content| visible.contains(&**content)), "{case}");
    }
}

/// Who calls, and what that one says of itself.
fn caller(way: Way, dice: &mut Dice) -> (Who, Value) {
    let name = |names: &[&str], dice: &mut Dice| {
        names.get(dice.below(names.len() + 1)).map(|it| (*it).to_owned())
    };
    let who = match way {
        Way::Http | Way::Unix => (name(&USERS, dice), name(&CHATS, dice)),
        Way::HttpWithToken | Way::UnixWithToken | Way::Bound => {
            (Some(USERS[dice.below(3)].to_owned()), name(&CHATS, dice))
        }
        Way::Door if dice.below(2) == 0 => (Some("u".into()), Some("c".into())),
        Way::Door => (Some("v".into()), None),
        Way::Agent => (Some("agent:top".into()), Some("tree:top".into())),
    };
    let params = caller_params(way, &who, dice);
    (who, params)
}

fn caller_params(way: Way, who: &Who, dice: &mut Dice) -> Value {
    match way {
        Way::Http | Way::Unix => json!({"user_id": who.0, "chat_id": who.1}),
        _ => {
            let lie = |names: &[&str; 3], dice: &mut Dice| {
                [names[0], names[1], names[2], ""][dice.below(4)].to_owned()
            };
            json!({"user_id": lie(&USERS, dice), "chat_id": lie(&CHATS, dice)})
        }
    }
}

async fn ask(
    server: &Server,
    doors: &[PathBuf; 2],
    way: Way,
    who: &Who,
    method: &str,
    params: Value,
) -> Value {
    let own = || json!({"context_token": token(who.0.as_deref().unwrap(), who.1.as_deref(), 600)});
    let over_http =
        async |params: Value| server.ask(server.post(request(1, method, params))).await.answer();
    let over = async |mut connection: Framed, params: Value| {
        connection.send(request(1, method, params).as_bytes()).await;
        connection.message().await
    };
    match way {
        Way::Http => over_http(params).await,
        Way::HttpWithToken => over_http(with(&params, own())).await,
        Way::Unix => over(server.unix().await, params).await,
        Way::UnixWithToken => over(server.unix().await, with(&params, own())).await,
        Way::Bound => {
            let mut connection = server.unix().await;
            connection.send(request(0, "memory.list", own()).as_bytes()).await;
            connection.message().await;
            over(connection, params).await
        }
        Way::Door => {
            let door = if who.0.as_deref() == Some("u") { &doors[0] } else { &doors[1] };
            over(Framed::connect(door).await, params).await
        }
        Way::Agent => {
            let message = server.post(request(1, method, params)).header("X-Nexus-Agent", "top");
            server.ask(message).await.answer()
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
