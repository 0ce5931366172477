//! Requests that are made again: OpenAI's clients repeat a call by themselves, and it must not be carried out twice.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::HeaderMap;
use sha2::{Digest as _, Sha256};

use super::Visitor;
use super::failure::Failure;
use super::turns::Turn;
use crate::shares::greediest;

/// How long an answer is given again.
const KEPT_FOR: Duration = Duration::from_secs(10 * 60);

/// The AI SDK makes a failed call again after two and then after four seconds and does not say so, whatever it was told of
/// retries. By this in its `User-Agent` it is known, and for so long a turn that failed answers it.
const SILENT: &str = "ai-sdk";
const FAILED_FOR: Duration = Duration::from_secs(10);

/// Turns that are remembered, and bytes of what they said. Of those that ended, and of the tree that has the most, the
/// oldest is forgotten first.
const KEPT_MAX: usize = 1_024;
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Longest key of a caller.
const KEY_BYTES_MAX: usize = 255;

#[derive(Default)]
pub struct Repeats(Mutex<VecDeque<Kept>>);

struct Kept {
    tree: String,
    name: Digest,
    body: Digest,
    turn: Arc<Turn>,
}

type Digest = [u8; 32];

/// What a request says of being one that was made before.
pub struct Request {
    tree: String,
    /// What it is found by: the caller's own key, or all that it says.
    name: Digest,
    body: Digest,
    /// The caller says that it is made again.
    is_repeat: bool,
    /// The caller would not say so.
    is_silent: bool,
    /// The caller gave it a key: whoever hangs up comes back for its answer.
    pub is_keyed: bool,
}

impl Request {
    pub fn of(
        visitor: &Visitor,
        path: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Self, Failure> {
        let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        let key = text("idempotency-key").filter(|key| !key.is_empty());
        if key.is_some_and(|key| key.len() > KEY_BYTES_MAX) {
            let message = format!("Idempotency-Key must be at most {KEY_BYTES_MAX} bytes long");
            return Err(Failure::malformed(message));
        }
        let count = text("x-stainless-retry-count").and_then(|it| it.parse::<u32>().ok());
        let body = digest(&[path.as_bytes(), body]);
        let name = match key {
            Some(key) => digest(&[b"key", visitor.name.as_bytes(), key.as_bytes()]),
            None => digest(&[b"body", visitor.name.as_bytes(), &body]),
        };
        let is_repeat = key.is_some() || count.is_some_and(|count| count > 0);
        let is_silent = text("user-agent").is_some_and(|it| it.contains(SILENT));
        Ok(Self {
            tree: visitor.tree.clone(),
            name,
            body,
            is_repeat,
            is_silent,
            is_keyed: key.is_some(),
        })
    }
}

impl Repeats {
    /// The turn of a request that was made before, or the one that `begin` begins.
    pub fn find_or(
        &self,
        request: &Request,
        begin: impl FnOnce() -> Arc<Turn>,
    ) -> Result<Arc<Turn>, Failure> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|it| it.turn.over_for().is_none_or(|over| over < KEPT_FOR));
        // The last that was begun so: the same may be asked for on purpose, and often.
        let known = kept.iter().rev().find(|it| it.name == request.name);
        let is_again = |turn: &Turn| {
            request.is_repeat
                || (request.is_silent && turn.failed_for().is_some_and(|it| it < FAILED_FOR))
        };
        if let Some(known) = known.filter(|it| is_again(&it.turn) && it.turn.answers_repeats()) {
            return match known.body == request.body {
                true => Ok(known.turn.clone()),
                false => {
                    Err(Failure::malformed("this Idempotency-Key came with another request before"))
                }
            };
        }
        make_room(&mut kept);
        let turn = begin();
        let Request { tree, name, body, .. } = request;
        let (tree, name, body) = (tree.clone(), *name, *body);
        kept.push_back(Kept { tree, name, body, turn: turn.clone() });
        Ok(turn)
    }
}

/// Forgets turns that ended until another can be remembered.
fn make_room(kept: &mut VecDeque<Kept>) {
    let mut bytes: usize = kept.iter().map(|it| it.turn.bytes()).sum();
    while kept.len() >= KEPT_MAX || bytes > KEPT_BYTES_MAX {
        let by_bytes = bytes > KEPT_BYTES_MAX;
        let ended = |it: &&Kept| it.turn.over_for().is_some();
        let shares = kept.iter().filter(ended).map(|it| {
            let share = if by_bytes { it.turn.bytes() } else { 1 };
            (it.tree.as_str(), share)
        });
        let greediest = greediest(shares).map(str::to_owned);
        let place = kept.iter().position(|it| ended(&it) && Some(&it.tree) == greediest.as_ref());
        let Some(forgotten) = place.and_then(|place| kept.remove(place)) else { return };
        // It may have said more since they were summed up.
        bytes = bytes.saturating_sub(forgotten.turn.bytes());
    }
}

/// Of texts that are told apart.
pub fn digest(texts: &[&[u8]]) -> Digest {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::super::turns::Wishes;
    use super::*;

    fn request(key: Option<&str>, count: &str, body: &str) -> Request {
        let mut headers = HeaderMap::new();
        headers.insert("x-stainless-retry-count", count.parse().unwrap());
        if let Some(key) = key {
            headers.insert("idempotency-key", key.parse().unwrap());
        }
        Request::of(&Visitor::sample("v", "v"), "/p", &headers, body.as_bytes()).unwrap()
    }

    fn keyed(visitor: &Visitor, key: &str) -> Request {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", key.parse().unwrap());
        Request::of(visitor, "/p", &headers, b"").unwrap()
    }

    fn ended(id: &str) -> Arc<Turn> {
        let turn = turn(id);
        turn.end(Err(Failure::cancelled()));
        turn
    }

    /// However many agents of a tree ask.
    #[test]
    fn who_asks_much_loses_its_own() {
        let repeats = Repeats::default();
        let modest = Visitor::sample("modest", "modest");
        for key in ["k", "l"] {
            repeats.find_or(&keyed(&modest, key), || ended("m")).unwrap();
        }
        for number in 0..=KEPT_MAX {
            let greedy = Visitor::sample(&number.to_string(), "greedy");
            repeats.find_or(&keyed(&greedy, "k"), || ended("g")).unwrap();
        }
        let kept = repeats.0.lock().unwrap();
        assert_eq!(kept.len(), KEPT_MAX);
        assert_eq!(kept.iter().filter(|it| it.tree == "modest").count(), 2);
    }

    fn turn(id: &str) -> Arc<Turn> {
        Turn::new(id.into(), Wishes { goes_on: true, ..Wishes::default() })
    }

    #[track_caller]
    fn check(repeats: &Repeats, request: Request, expected: &str) {
        let found = repeats.find_or(&request, || turn("new")).unwrap();
        assert_eq!(found.id, expected);
    }

    #[test]
    fn what_says_that_it_is_a_repeat_finds_the_last_of_its_kind() {
        let repeats = Repeats::default();
        repeats.find_or(&request(None, "0", "x"), || turn("first")).unwrap();
        check(&repeats, request(None, "1", "x"), "first");
        check(&repeats, request(None, "1", "y"), "new");
        repeats.find_or(&request(None, "0", "x"), || turn("second")).unwrap();
        check(&repeats, request(None, "2", "x"), "second");
        repeats.find_or(&request(Some("k"), "0", "x"), || turn("keyed")).unwrap();
        check(&repeats, request(Some("k"), "0", "x"), "keyed");
        check(&repeats, request(Some("l"), "0", "x"), "new");
        assert!(repeats.find_or(&request(Some("k"), "0", "y"), || turn("no")).is_err());
    }

    #[test]
    fn a_turn_that_nobody_waits_for_is_begun_anew() {
        let repeats = Repeats::default();
        let left = Turn::new("left".into(), Wishes::default());
        drop(left.read());
        repeats.find_or(&request(None, "0", "x"), || left).unwrap();
        check(&repeats, request(None, "1", "x"), "new");
    }

    #[test]
    fn keys_are_so_long_and_no_longer() {
        let of_length = |bytes: usize| {
            let mut headers = HeaderMap::new();
            headers.insert("idempotency-key", "k".repeat(bytes).parse().unwrap());
            Request::of(&Visitor::sample("v", "v"), "/p", &headers, b"").is_ok()
        };
        assert!(of_length(KEY_BYTES_MAX) && !of_length(KEY_BYTES_MAX + 1));
    }
}
