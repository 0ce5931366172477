//! Tool calls, gathered from the fragments in which models send them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use nexus_core::message::ToolCall;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Values that arguments may hold: files and commands are one each. What has more is left as the text it is, which no
/// tool takes.
const ARGUMENT_VALUES_MAX: usize = 64 * 1024;

/// The calls of one answer so far.
#[derive(Default)]
pub(super) struct Calls {
    begun: Vec<Partial>,
    /// What they take.
    bytes: usize,
}

struct Partial {
    index: usize,
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    /// A fragment of the call at `index`. Services leave out what they have already said, and some leave out or
    /// repeat the index: a fragment with another id begins another call.
    pub fn add(
        &mut self,
        index: Option<usize>,
        id: Option<String>,
        name: Option<String>,
        arguments: &str,
    ) {
        let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
        let begins = !id.is_empty() || !name.is_empty();
        self.bytes += id.len() + name.len() + arguments.len();
        let known = match index {
            Some(index) => self.begun.iter_mut().rev().find(|call| call.index == index),
            None if begins => None,
            None => self.begun.last_mut(),
        };
        match known {
            Some(call) if id.is_empty() || call.id.is_empty() || call.id == id => {
                if call.id.is_empty() {
                    call.id = id;
                }
                if call.name.is_empty() {
                    call.name = name;
                }
                call.arguments.push_str(arguments);
            }
            _ => self.begun.push(Partial {
                index: index.unwrap_or(self.begun.len()),
                id,
                name,
                arguments: arguments.to_owned(),
            }),
        }
    }

    /// A fragment of the call at `index`, where that is a call at all.
    pub fn append(&mut self, index: usize, arguments: &str) {
        if let Some(call) = self.begun.iter_mut().find(|call| call.index == index) {
            call.arguments.push_str(arguments);
            self.bytes += arguments.len();
        }
    }

    pub fn len(&self) -> usize {
        self.begun.len()
    }

    /// What the calls take, ids and names included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The calls, in the order in which they began.
    pub fn take(&mut self, ending: Ending) -> impl Iterator<Item = ToolCall> {
        let mut ids = HashSet::new();
        std::mem::take(&mut self.begun).into_iter().map(move |call| {
            let mut call = call.end(ending);
            // Results are told apart by the ids of their calls.
            while !ids.insert(call.id.clone()) {
                call.id = made_up_id();
            }
            call
        })
    }
}

/// How the answer ended that calls belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// The model would have said more.
    Cut,
}

/// What a call is called whose name never came: some name is needed to tell the model that there is no such tool.
const NAMELESS: &str = "nameless";

impl Partial {
    fn end(self, ending: Ending) -> ToolCall {
        let id = if self.id.is_empty() { made_up_id() } else { self.id };
        let name = if self.name.is_empty() { NAMELESS.to_owned() } else { self.name };
        let (arguments, cut) = match parse(&self.arguments, ending) {
            Parsed::Whole(arguments) => (arguments, None),
            // A model that writes broken JSON is told so by the core, which needs to see what it wrote.
            Parsed::Broken => (Value::String(self.arguments), None),
            Parsed::Cut => (Value::Object(Map::new()), Some(self.arguments.len() as u64)),
        };
        ToolCall { id, name, arguments, cut }
    }
}

enum Parsed {
    Whole(Value),
    Broken,
    Cut,
}

/// Whether a text holds more values than are made of what a tool is given.
pub(super) fn holds_too_much(text: &str) -> bool {
    nexus_json::values(text.as_bytes()) > ARGUMENT_VALUES_MAX
}

/// Reads arguments. What ends inside JSON was cut, whatever the service says of its end; ends are never invented.
fn parse(text: &str, ending: Ending) -> Parsed {
    let text = text.trim();
    if text.is_empty() {
        return match ending {
            Ending::Whole => Parsed::Whole(Value::Object(Map::new())),
            Ending::Cut => Parsed::Cut,
        };
    }
    if holds_too_much(text) {
        return Parsed::Broken;
    }
    let read = |text: &str| serde_json::from_str::<Value>(text);
    match read(text).or_else(|_| read(&mended(text))) {
        Ok(arguments) => Parsed::Whole(arguments),
        Err(error) if error.is_eof() => Parsed::Cut,
        Err(_) => Parsed::Broken,
    }
}

/// The text with control characters inside of its strings escaped, and backslashes that escape nothing doubled.
fn mended(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut letters = text.chars().peekable();
    let mut in_string = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                in_string = !in_string;
                out.push('"');
            }
            '\\' if in_string => match letters.peek() {
                Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u') => {
                    out.push('\\');
                    out.extend(letters.next());
                }
                _ => out.push_str("\\\\"),
            },
            control if in_string && control < ' ' => {
                out.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => out.push(other),
        }
    }
    out
}

fn made_up_id() -> String {
    format!("call_{:016x}", random())
}

/// Which ids of calls a service takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdForm {
    Any,
    /// At most 64 letters, digits, `_` and `-`.
    Plain,
    /// Nine letters and digits.
    Nine,
}

impl IdForm {
    /// An id as the service takes it: as it came, or a hash that is always the same.
    pub fn of(self, id: &str) -> Cow<'_, str> {
        let plain = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-');
        let (fits, length) = match self {
            Self::Any => (true, 0),
            Self::Plain => (!id.is_empty() && id.len() <= 64 && id.bytes().all(plain), 22),
            Self::Nine => (id.len() == 9 && id.bytes().all(|it| it.is_ascii_alphanumeric()), 9),
        };
        if fits {
            return Cow::Borrowed(id);
        }
        const LETTERS: &[u8; 62] =
            b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let hash = Sha256::digest(id);
        hash.iter().take(length).map(|byte| char::from(LETTERS[usize::from(*byte) % 62])).collect()
    }
}

/// Letters of a call's name that every service takes.
const NAME_BYTES_MAX: usize = 64;

/// A call's name as every service takes it: as it came, or with `_` for each letter that may not be in one. Models call
/// tools that there are not, by any name, and such a call goes back like all others.
pub(super) fn plain_name(name: &str) -> Cow<'_, str> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    if name.len() <= NAME_BYTES_MAX && !name.is_empty() && name.chars().all(plain) {
        return Cow::Borrowed(name);
    }
    let name = if name.is_empty() { NAMELESS } else { name };
    let letters = name.chars().take(NAME_BYTES_MAX);
    letters.map(|letter| if plain(letter) { letter } else { '_' }).collect()
}

/// Arguments as they are sent back. Services insist on an object, so what a model wrote instead of one is shown to it
/// inside one.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a>(pub &'a Value);

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_object() {
            self.0.serialize(serializer)
        } else {
            serializer.collect_map([("invalid_arguments", self.0)])
        }
    }
}

/// Random enough to tell calls and waiting clients apart; std seeds each hasher anew.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Fragment<'a> = (Option<usize>, &'a str, &'a str, &'a str);

    #[track_caller]
    fn check(fragments: &[Fragment], expected: &[(&str, &str, Value)]) {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut calls = Calls::default();
        for (index, id, name, arguments) in fragments {
            calls.add(*index, some(id), some(name), arguments);
        }
        let calls = calls.take(Ending::Whole);
        let found: Vec<_> = calls.map(|call| (call.id, call.name, call.arguments)).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(id, name, value)| ((*id).to_owned(), (*name).to_owned(), value.clone()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn fragments_are_joined_by_index() {
        check(
            &[
                (Some(0), "a", "read", ""),
                (Some(1), "b", "write", "{\"y"),
                (Some(0), "", "", "{\"x\":"),
                (Some(1), "", "", "\":2}"),
                (Some(0), "", "", "1}"),
            ],
            &[("a", "read", json!({"x": 1})), ("b", "write", json!({"y": 2}))],
        );
    }

    #[test]
    fn an_index_that_is_missing_or_repeated_is_borne() {
        check(
            &[(None, "a", "f", "{}"), (None, "b", "g", "{"), (None, "", "", "}")],
            &[("a", "f", json!({})), ("b", "g", json!({}))],
        );
        check(
            &[(Some(0), "a", "f", "{}"), (Some(0), "b", "f", "{}")],
            &[("a", "f", json!({})), ("b", "f", json!({}))],
        );
        check(&[(Some(0), "a", "f", "{"), (Some(0), "a", "f", "}")], &[("a", "f", json!({}))]);
    }

    #[test]
    fn a_name_that_no_service_takes_goes_back_as_one_that_all_take() {
        let long = "n".repeat(NAME_BYTES_MAX);
        for (name, expected) in [
            ("read_file", "read_file"),
            ("functions.exec<|channel|>", "functions_exec__channel__"),
            ("größe 7", "gr__e_7"),
            ("", NAMELESS),
            (&*format!("{long}n"), &*long),
            (&*long, &*long),
        ] {
            assert_eq!(plain_name(name), expected);
        }
    }

    #[test]
    fn arguments_are_json_or_the_words_themselves() {
        check(&[(Some(0), "a", "f", "")], &[("a", "f", json!({}))]);
        check(&[(Some(0), "a", "f", "{\"x\"!}")], &[("a", "f", json!("{\"x\"!}"))]);
        let sent = |value: &Value| serde_json::to_value(Arguments(value)).unwrap();
        assert_eq!(sent(&json!({"x": 1})), json!({"x": 1}));
        assert_eq!(sent(&json!("{\"x\":")), json!({"invalid_arguments": "{\"x\":"}));
    }

    #[test]
    fn how_many_values_arguments_may_hold() {
        let of = |values: usize| format!("[{}]", vec!["0"; values - 1].join(","));
        let parsed = |text: &str| {
            let mut calls = Calls::default();
            calls.add(Some(0), None, Some("f".to_owned()), text);
            calls.take(Ending::Whole).next().unwrap().arguments
        };
        assert!(parsed(&of(ARGUMENT_VALUES_MAX)).is_array());
        let over = of(ARGUMENT_VALUES_MAX + 1);
        assert!(parsed(&over) == json!(over));
        // A file is one value, however many commas it has.
        assert!(parsed(&json!({"content": ",".repeat(1 << 20)}).to_string()).is_object());
    }

    #[test]
    fn a_missing_id_is_made_up() {
        let mut calls = Calls::default();
        calls.add(Some(0), None, Some("f".to_owned()), "{}");
        calls.add(Some(1), None, Some("f".to_owned()), "{}");
        let ids: Vec<_> = calls.take(Ending::Whole).map(|call| call.id).collect();
        assert!(ids[0].starts_with("call_") && ids[0] != ids[1], "{ids:?}");
    }

    /// What becomes of arguments: `whole`, `broken` or how many bytes came before they were cut.
    #[track_caller]
    fn check_end(arguments: &str, ending: Ending, expected: &str) {
        let mut calls = Calls::default();
        calls.add(Some(0), None, Some("f".to_owned()), arguments);
        let call = calls.take(ending).next().unwrap();
        let found = match (call.cut, &call.arguments) {
            (Some(bytes), _) => bytes.to_string(),
            (None, Value::String(_)) => "broken".to_owned(),
            (None, _) => "whole".to_owned(),
        };
        assert_eq!(found, expected, "{arguments} {ending:?}");
    }

    #[test]
    fn a_call_is_cut_when_its_arguments_end_inside_json() {
        use Ending::{Cut, Whole};
        for ending in [Whole, Cut] {
            check_end("{\"path\":\"a", ending, "10");
            check_end("{\"path\":", ending, "8");
            check_end("{", ending, "1");
            check_end("{\"a\":1}", ending, "whole");
            check_end("{\"a\" 1}", ending, "broken");
            check_end("{\"a\":1}}", ending, "broken");
        }
        check_end("", Whole, "whole");
        check_end("", Cut, "0");
    }

    #[test]
    fn slips_of_the_pen_are_mended_and_nothing_else() {
        let parsed = |text: &str| {
            let mut calls = Calls::default();
            calls.add(Some(0), None, Some("f".to_owned()), text);
            calls.take(Ending::Whole).next().unwrap().arguments
        };
        assert_eq!(parsed("{\"a\": \"x\ny\tz\"}"), json!({"a": "x\ny\tz"}));
        assert_eq!(parsed(r#"{"a": "\d+ \\ \" \u00e9"}"#), json!({"a": "\\d+ \\ \" \u{e9}"}));
        assert_eq!(parsed(r#"{'a': 1}"#), json!("{'a': 1}"));
    }

    #[test]
    fn two_calls_of_one_id_get_two() {
        let mut calls = Calls::default();
        calls.add(Some(0), Some("a".into()), Some("f".into()), "{}");
        calls.add(Some(1), Some("a".into()), Some("g".into()), "{}");
        let ids: Vec<_> = calls.take(Ending::Whole).map(|call| call.id).collect();
        assert_eq!(ids[0], "a");
        assert_ne!(ids[1], "a");
    }

    #[test]
    fn ids_have_the_form_that_a_service_takes() {
        assert_eq!(IdForm::Any.of("a b"), "a b");
        assert_eq!(IdForm::Plain.of("toolu_01-x"), "toolu_01-x");
        assert_eq!(IdForm::Plain.of(&"x".repeat(64)), "x".repeat(64));
        for odd in ["", "functions.read:0", &"x".repeat(65)] {
            let id = IdForm::Plain.of(odd);
            assert_eq!((id.len(), &id), (22, &IdForm::Plain.of(odd)), "{odd}");
            assert!(id.bytes().all(|it| it.is_ascii_alphanumeric()), "{id}");
        }
        assert_eq!(IdForm::Nine.of("abcDEF123"), "abcDEF123");
        assert_eq!(IdForm::Nine.of("call_1").len(), 9);
    }
}
