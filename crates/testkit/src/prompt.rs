//! What a model reads of a request, piece by piece, in the order in which caches and signatures see it.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// Bytes of text that count as one token. No tokenizer: what matters is that the same text always counts the same.
const BYTES_PER_TOKEN: usize = 4;

/// One piece of a prompt to Anthropic's messages.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub section: Section,
    /// The value in one spelling, without cache marks.
    pub text: String,
    /// The lifetime that its cache mark asks for.
    pub mark: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Section {
    Tools,
    System,
    User,
    Assistant,
}

impl<'a> Block<'a> {
    pub fn new(section: Section, value: &'a Value) -> Self {
        Self { section, text: canonical(value), mark: mark(value) }
    }

    pub fn tokens(&self) -> u64 {
        tokens(self.text.len())
    }
}

pub(crate) fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

/// The bytes that this many tokens take.
pub(crate) fn bytes(tokens: u64) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN)
}

/// Tools, system text and messages. A text that is no list of blocks is one block.
pub(crate) fn blocks(body: &Value) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    blocks.extend(pieces(&body["tools"]).map(|tool| Block::new(Section::Tools, tool)));
    blocks.extend(pieces(&body["system"]).map(|text| Block::new(Section::System, text)));
    for message in pieces(&body["messages"]) {
        let section =
            if message["role"] == "assistant" { Section::Assistant } else { Section::User };
        blocks.extend(pieces(&message["content"]).map(|block| Block::new(section, block)));
    }
    if let (Some(mark), Some(last)) = (mark(body), blocks.last_mut()) {
        last.mark = last.mark.or(Some(mark));
    }
    blocks
}

/// The elements of a list, or the value itself where it stands for a list of one.
pub(crate) fn pieces(value: &Value) -> impl Iterator<Item = &Value> {
    let (list, single) = match value {
        Value::Array(list) => (list.as_slice(), None),
        Value::Null => (&[][..], None),
        single => (&[][..], Some(single)),
    };
    list.iter().chain(single)
}

/// The value in one spelling: members by name, a text and a block of that text alike, and no cache marks.
pub(crate) fn canonical(value: &Value) -> String {
    let mut written = String::new();
    match value {
        Value::String(text) => {
            write(&serde_json::json!({"type": "text", "text": text}), &mut written);
        }
        other => write(other, &mut written),
    }
    written
}

fn write(value: &Value, to: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> =
                members.iter().filter(|(name, _)| *name != "cache_control").collect();
            members.sort_by_key(|(name, _)| *name);
            to.push('{');
            for (name, member) in members {
                to.push_str(&Value::from(name.as_str()).to_string());
                to.push(':');
                write(member, to);
                to.push(',');
            }
            to.push('}');
        }
        Value::Array(elements) => {
            to.push('[');
            for element in elements {
                write(element, to);
                to.push(',');
            }
            to.push(']');
        }
        plain => to.push_str(&plain.to_string()),
    }
}

fn mark(value: &Value) -> Option<&str> {
    let mark = value.get("cache_control").filter(|mark| !mark.is_null())?;
    Some(mark["ttl"].as_str().unwrap_or("5m"))
}

/// The digest of everything up to a place, which grows piece by piece.
#[derive(Clone, Default)]
pub(crate) struct Prefix(DefaultHasher);

impl Prefix {
    pub fn push(&mut self, piece: impl Hash) {
        piece.hash(&mut self.0);
    }

    pub fn digest(&self) -> u64 {
        self.0.finish()
    }
}
