//! Answers that are valid by construction: a JSON Schema becomes the set of tokens that may come next.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::tokenizer::Vocabulary;

/// What every answer under a schema needs of the vocabulary. Made when the first schema comes: it takes a fifth of a
/// second and some memory.
pub struct Grammars {
    factory: ParserFactory,
    /// How far each token brings an answer to its end.
    ends: Arc<[End]>,
}

impl Grammars {
    pub fn new(vocabulary: &Vocabulary) -> Result<Self, String> {
        let words = vocabulary.words();
        let stop = vocabulary.stops.first().copied().ok_or("the model has no end of an answer")?;
        let end = |word: &Vec<u8>| match word.first() {
            Some(b'"' | b'}' | b']') => End::Closes,
            Some(b',') => End::GoesOn,
            _ => End::No,
        };
        let ends = words.iter().map(end).collect();
        let info = TokRxInfo::new(words.len() as u32, stop);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&vocabulary.stops);
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&tokens).map_err(|error| error.to_string())?;
        factory.quiet();
        Ok(Self { factory, ends })
    }

    /// A fresh start on `schema`, or what is wrong with it.
    pub fn start(&self, schema: &Value) -> Result<Grammar, String> {
        if nodes(schema) > NODES_MAX {
            return Err(format!("it has more than {NODES_MAX} values"));
        }
        let mut schema = schema.clone();
        if let Value::Object(keys) = &mut schema {
            // Free whitespace is an invitation to a small model to write nothing else.
            keys.entry("x-guidance").or_insert_with(|| json!({"whitespace_flexible": false}));
        }
        let parser = self.factory.create_parser(TopLevelGrammar::from_json_schema(schema));
        let matcher = Matcher::new(parser);
        match matcher.get_error() {
            Some(error) => Err(first_line(&error)),
            None => Ok(Grammar { matcher, ends: self.ends.clone() }),
        }
    }
}

/// JSON values in a schema. What the library does with one is bounded by its own limits (`ParserLimits`), but with
/// thousands of members it takes seconds to get there.
const NODES_MAX: usize = 2048;

/// How many values a value holds, itself included.
fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(nodes).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

/// Where one answer stands in its grammar.
pub struct Grammar {
    matcher: Matcher,
    ends: Arc<[End]>,
}

/// What a token does by its first character.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    No,
    /// Ends a number, in front of the next thing.
    GoesOn,
    /// Ends a string, a list or an object.
    Closes,
}

impl Grammar {
    /// Leaves of `logits` only what may come next. With `hurry`, what ends something is preferred wherever it may come:
    /// an answer that is running out of room is brought to its end rather than cut.
    pub fn restrict(&mut self, logits: &mut [f32], hurry: bool) -> Result<(), String> {
        let mask =
            self.matcher.compute_mask_or_eos().map_err(|error| first_line(&error.to_string()))?;
        let ends = |at: usize| hurry.then(|| self.ends.get(at).copied()).flatten();
        let allowed = |at: &usize| mask.is_allowed(*at as u32);
        let soonest = (0..logits.len()).filter(allowed).filter_map(ends).max();
        for (at, logit) in logits.iter_mut().enumerate() {
            if !allowed(&at) || ends(at) < soonest {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    /// Goes on behind `token`; true when the answer is whole.
    pub fn accept(&mut self, token: u32) -> Result<bool, String> {
        self.matcher.consume_token(token).map_err(|error| first_line(&error.to_string()))?;
        Ok(self.matcher.is_stopped())
    }

    /// Whether the answer could end here.
    pub fn complete(&mut self) -> bool {
        self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether a token is part of the form rather than of what is said in it.
    pub fn is_form(&self, token: u32) -> bool {
        self.ends.get(token as usize).is_some_and(|end| *end != End::No)
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
