//! What requests cost by the published rules of the services' caches.
//!
//! On `messages` a cache entry is written at each mark, and found from a mark by looking back over a few blocks. On
//! `chat`, `responses` and `generate_content` the longest prefix that was seen before is found by itself. Entries do not
//! grow old here: no test is that slow.

use std::collections::HashSet;
use std::iter::Sum;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::prompt::{self, Block, Prefix, Section};
use crate::reply::Usage;
use crate::wire::Wire;

/// Prefixes with fewer tokens than this are not cached on `messages`.
const MARKED_TOKENS_MIN: u64 = 512;
/// Blocks, from a mark back, among which an entry is found; the marked one is the first of them.
const LOOK_BACK_BLOCKS: usize = 20;
/// Automatic caches begin here and grow by the step.
const AUTOMATIC_TOKENS_MIN: u64 = 1024;
const AUTOMATIC_TOKENS_STEP: u64 = 128;

const READ_PRICE: f64 = 0.1;
const WRITE_PRICE: f64 = 1.25;
const LONG_WRITE_PRICE: f64 = 2.0;

/// What all requests that were answered came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bill {
    pub requests: u64,
    /// Tokens that were read and neither found in a cache nor written to one.
    pub input: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// What they cost together, in tokens of plain input.
    pub billed: f64,
    /// Tokens that were written, thoughts included.
    pub output: u64,
    /// The part of `output` that was thought, where the wire has a word for it.
    pub reasoning: u64,
}

impl Bill {
    /// What they would have cost without any cache.
    pub fn uncached_equivalent(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }

    /// What they cost against that.
    pub fn price_ratio(&self) -> f64 {
        self.billed / self.uncached_equivalent() as f64
    }
}

impl Sum for Bill {
    fn sum<I: Iterator<Item = Self>>(bills: I) -> Self {
        bills.fold(Self::default(), |sum, bill| Self {
            requests: sum.requests + bill.requests,
            input: sum.input + bill.input,
            cache_read: sum.cache_read + bill.cache_read,
            cache_write: sum.cache_write + bill.cache_write,
            billed: sum.billed + bill.billed,
            output: sum.output + bill.output,
            reasoning: sum.reasoning + bill.reasoning,
        })
    }
}

/// The cache of one model, and what its requests came to.
#[derive(Default)]
pub(crate) struct Billing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashSet<u64>,
    bill: Bill,
}

impl Billing {
    pub fn bill(&self) -> Bill {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).bill
    }

    /// Counts one request. How much the model wrote is what the reply says.
    pub fn count(&self, wire: Wire, body: &Value, reply: Usage) -> Usage {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = match wire {
            Wire::Messages => marked(&mut state.entries, body),
            Wire::Chat | Wire::GenerateContent => {
                // What is new is kept at no price, and nothing is said of it.
                let found = automatic(&mut state.entries, wire, body);
                Counted { write: 0, ..found }
            }
            Wire::Responses => automatic(&mut state.entries, wire, body),
            Wire::Ollama => Counted { all: automatic_prompt(wire, body).1, ..Counted::default() },
        };
        let plain = counted.all - counted.read - counted.write;
        let short_write = counted.write - counted.long_write;
        let bill = &mut state.bill;
        bill.requests += 1;
        bill.output += reply.output;
        bill.reasoning += if wire == Wire::Ollama { 0 } else { reply.reasoning };
        bill.input += plain;
        bill.cache_read += counted.read;
        bill.cache_write += counted.write;
        bill.billed += plain as f64
            + counted.read as f64 * READ_PRICE
            + short_write as f64 * WRITE_PRICE
            + counted.long_write as f64 * LONG_WRITE_PRICE;
        Usage {
            input: counted.all,
            cache_read: counted.read,
            cache_write: counted.write,
            long_cache_write: counted.long_write,
            ..reply
        }
    }
}

/// The tokens of one request. `read` and `write` are parts of `all`, and `long_write` of `write`.
#[derive(Clone, Copy, Default)]
struct Counted {
    all: u64,
    read: u64,
    write: u64,
    long_write: u64,
}

/// The end of a block: the digest of all up to it, and their tokens.
struct BlockEnd {
    digest: u64,
    tokens: u64,
}

fn marked(entries: &mut HashSet<u64>, body: &Value) -> Counted {
    let blocks = prompt::blocks(body);
    let places = places(body, &blocks);
    let is_cached =
        |index: &usize| blocks[*index].mark.is_some() && places[*index].tokens >= MARKED_TOKENS_MIN;
    let marks: Vec<usize> = (0..blocks.len()).filter(is_cached).collect();
    let found = |mark: &usize| {
        let back = (0..=*mark).rev().take(LOOK_BACK_BLOCKS);
        let hit = back.map(|index| &places[index]).find(|place| entries.contains(&place.digest));
        hit.map_or(0, |place| place.tokens)
    };
    let read = marks.iter().map(found).max().unwrap_or(0);
    let end_of = |ttl: Option<&str>| {
        let matching = marks.iter().filter(|mark| ttl.is_none() || blocks[**mark].mark == ttl);
        matching.map(|mark| places[*mark].tokens).max().unwrap_or(0)
    };
    let write = end_of(None).saturating_sub(read);
    let long_write = end_of(Some("1h")).saturating_sub(read);
    entries.extend(marks.iter().map(|mark| places[*mark].digest));
    let all = places.last().map_or(0, |place| place.tokens);
    Counted { all, read, write, long_write }
}

fn places(body: &Value, blocks: &[Block<'_>]) -> Vec<BlockEnd> {
    let (mut prefix, mut tokens) = (Prefix::default(), 0);
    prefix.push("messages");
    let mut in_messages = false;
    let place = |block: &Block<'_>| {
        if !in_messages && matches!(block.section, Section::User | Section::Assistant) {
            in_messages = true;
            // Who changes one of these loses what was kept of the messages.
            for setting in ["thinking", "tool_choice", "output_config"] {
                prefix.push(prompt::canonical(&body[setting]));
            }
        }
        prefix.push((block.section, &block.text));
        tokens += block.tokens();
        BlockEnd { digest: prefix.digest(), tokens }
    };
    blocks.iter().map(place).collect()
}

fn automatic(entries: &mut HashSet<u64>, wire: Wire, body: &Value) -> Counted {
    let (prompt, all) = automatic_prompt(wire, body);
    let mut prefix = Prefix::default();
    prefix.push(wire);
    let (mut read, mut kept) = (0, 0);
    let steps = prompt.as_bytes().chunks_exact(prompt::bytes(AUTOMATIC_TOKENS_STEP));
    for (index, step) in (1..).zip(steps) {
        prefix.push(step);
        let tokens = index * AUTOMATIC_TOKENS_STEP;
        if tokens < AUTOMATIC_TOKENS_MIN {
            continue;
        }
        kept = tokens;
        if !entries.insert(prefix.digest()) {
            read = tokens;
        }
    }
    Counted { all, read, write: kept - read, long_write: 0 }
}

/// All that the model reads, in one text, and its tokens.
fn automatic_prompt(wire: Wire, body: &Value) -> (String, u64) {
    let order: &[&str] = match wire {
        Wire::Chat | Wire::Ollama | Wire::Messages => &["tools", "messages"],
        Wire::Responses => &["tools", "instructions", "input"],
        Wire::GenerateContent => &["systemInstruction", "tools", "contents"],
    };
    let pieces = order.iter().flat_map(|name| prompt::pieces(&body[*name]));
    let prompt: String = pieces.map(|piece| prompt::canonical(piece) + "\n").collect();
    let tokens = prompt::tokens(prompt.len());
    (prompt, tokens)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const USAGE: Usage = Usage {
        input: 10,
        output: 5,
        cache_read: 0,
        cache_write: 0,
        long_cache_write: 0,
        reasoning: 0,
    };

    /// A text block of so many tokens, with whatever stands around the text.
    fn block(name: &str, tokens: u64) -> Value {
        let around = json!({"type": "text", "text": ""});
        let bytes = prompt::bytes(tokens) - prompt::canonical(&around).len();
        let text: String = name.chars().chain(std::iter::repeat('.')).take(bytes).collect();
        json!({"type": "text", "text": text})
    }

    /// How a client marks its requests.
    #[derive(Clone, Copy)]
    enum Marks {
        None,
        AtTheEnd,
        Four,
    }

    /// Conversations of `turns` turns of `steps` steps with so many calls each, as the price of caching is quoted for.
    fn conversation(marks: Marks, turns: u64, steps: u64, calls: u64, result: u64) -> Bill {
        let billing = Billing::default();
        let mut messages: Vec<(&str, Value)> = Vec::new();
        let mut previous_end = None;
        for turn in 0..turns {
            messages.push(("user", block(&format!("time {turn}"), 15)));
            messages.push(("user", block(&format!("user {turn}"), 200)));
            let began = messages.len() - 1;
            for step in 0..steps {
                let end = messages.len() - 1;
                let marked: Vec<usize> = match marks {
                    Marks::None => Vec::new(),
                    Marks::AtTheEnd => vec![end],
                    Marks::Four => {
                        [Some(end), previous_end, Some(began)].into_iter().flatten().collect()
                    }
                };
                billing.count(Wire::Messages, &request(&messages, &marked, marks), USAGE);
                previous_end = Some(end);
                let key = format!("{turn}.{step}");
                messages.push(("assistant", block(&format!("think {key}"), 50)));
                for call in 0..calls {
                    messages.push(("assistant", block(&format!("call {call} {key}"), 100)));
                }
                for call in 0..calls {
                    messages.push(("user", block(&format!("result {call} {key}"), result)));
                }
            }
            messages.push(("assistant", block(&format!("answer {turn}"), 300)));
        }
        billing.bill()
    }

    fn request(messages: &[(&str, Value)], marked: &[usize], marks: Marks) -> Value {
        let mark = json!({"type": "ephemeral"});
        let mut system = block("system", 4000);
        if !matches!(marks, Marks::None) {
            system["cache_control"] = mark.clone();
        }
        let message = |(index, (role, block)): (usize, &(&str, Value))| {
            let mut block = block.clone();
            if marked.contains(&index) {
                block["cache_control"] = mark.clone();
            }
            json!({"role": role, "content": [block]})
        };
        let messages: Vec<Value> = messages.iter().enumerate().map(message).collect();
        json!({"system": [system], "messages": messages})
    }

    #[test]
    fn the_quoted_prices_of_caching_come_out() {
        let check = |turns, steps, calls, result, at_the_end: f64, four: f64| {
            let ratio = |marks| conversation(marks, turns, steps, calls, result).price_ratio();
            assert_eq!(ratio(Marks::None), 1.0);
            for (marks, quoted) in [(Marks::AtTheEnd, at_the_end), (Marks::Four, four)] {
                let ratio = ratio(marks);
                assert!((ratio - quoted).abs() < 0.002, "{ratio} is not {quoted}");
            }
        };
        check(1, 40, 1, 1500, 0.154, 0.154);
        check(1, 40, 12, 300, 1.205, 0.156);
        check(10, 6, 1, 1500, 0.137, 0.137);
    }

    #[test]
    fn a_mark_finds_what_lies_twenty_blocks_back_and_no_further() {
        for (between, found) in [(19, 600), (20, 0)] {
            let billing = Billing::default();
            let mut first = block("first", 600);
            first["cache_control"] = json!({"type": "ephemeral"});
            let body = json!({"messages": [{"role": "user", "content": [first]}]});
            let usage = billing.count(Wire::Messages, &body, USAGE);
            assert_eq!((usage.input, usage.cache_read, usage.cache_write), (600, 0, 600));

            let mut content = vec![block("first", 600)];
            content.extend((0..between).map(|n| block(&format!("{n}"), 20)));
            content[between]["cache_control"] = json!({"type": "ephemeral"});
            let body = json!({"messages": [{"role": "user", "content": content}]});
            let usage = billing.count(Wire::Messages, &body, USAGE);
            let all = 600 + 20 * between as u64;
            assert_eq!((usage.input, usage.cache_read), (all, found), "{between}");
            assert_eq!(usage.cache_write, all - found, "{between}");
        }
    }

    #[test]
    fn a_prefix_below_the_least_length_is_not_kept() {
        for (tokens, written) in [(511, 0), (512, 512)] {
            let mut only = block("only", tokens);
            only["cache_control"] = json!({"type": "ephemeral"});
            let body = json!({"system": [only], "messages": []});
            assert_eq!(Billing::default().count(Wire::Messages, &body, USAGE).cache_write, written);
        }
    }

    #[test]
    fn a_long_life_costs_more_and_other_settings_lose_the_messages() {
        let billing = Billing::default();
        let body = |effort: &str| {
            let mut system = block("system", 1000);
            system["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
            let mut user = block("user", 1000);
            user["cache_control"] = json!({"type": "ephemeral"});
            let messages = json!([{"role": "user", "content": [user]}]);
            json!({"system": [system], "messages": messages, "output_config": {"effort": effort}})
        };
        let first = billing.count(Wire::Messages, &body("low"), USAGE);
        assert_eq!((first.cache_write, first.long_cache_write), (2000, 1000));
        assert_eq!(billing.bill().billed, 1000.0 * 2.0 + 1000.0 * 1.25);
        let again = billing.count(Wire::Messages, &body("low"), USAGE);
        assert_eq!((again.cache_read, again.cache_write), (2000, 0));
        let other = billing.count(Wire::Messages, &body("high"), USAGE);
        assert_eq!((other.cache_read, other.cache_write), (1000, 1000));
        assert_eq!(billing.bill().requests, 3);
    }

    #[test]
    fn automatic_caches_find_the_longest_prefix_by_steps() {
        let body = |wire, texts: &[&str]| match wire {
            Wire::Responses => json!({"input": texts}),
            Wire::GenerateContent => json!({"contents": texts}),
            _ => json!({"messages": texts}),
        };
        let long = "a".repeat(prompt::bytes(1500));
        let other = "b".repeat(prompt::bytes(1500));
        for wire in [Wire::Chat, Wire::Responses, Wire::GenerateContent] {
            let billing = Billing::default();
            let first = billing.count(wire, &body(wire, &[&long]), USAGE);
            assert_eq!(first.cache_read, 0, "{wire:?}");
            let longer = billing.count(wire, &body(wire, &[&long, &other]), USAGE);
            // 1,500 tokens and what stands around them end within the twelfth step.
            assert_eq!(longer.cache_read, 11 * 128, "{wire:?}");
            let written = if wire == Wire::Responses { 1408 } else { 0 };
            assert_eq!(first.cache_write, written, "{wire:?}");
            let changed = billing.count(wire, &body(wire, &[&other, &long]), USAGE);
            assert_eq!(changed.cache_read, 0, "{wire:?}");
        }
        for (tokens, found) in [(1000, 0), (1024, 1024)] {
            let billing = Billing::default();
            let text = "a".repeat(prompt::bytes(tokens));
            billing.count(Wire::Chat, &body(Wire::Chat, &[&text]), USAGE);
            let again = billing.count(Wire::Chat, &body(Wire::Chat, &[&text]), USAGE);
            assert_eq!(again.cache_read, found);
        }
    }
}
