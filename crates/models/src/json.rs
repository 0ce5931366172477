//! Writes request bodies. A body is mostly the texts of a conversation, sent anew with every call, and serde_json looks
//! at a text byte by byte: with 2,000 messages that alone would take longer than the rest of a turn.

use std::hash::{BuildHasher as _, Hasher as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foldhash::fast::{FixedState, FoldHasher};
use serde::Serialize;

use super::prefix::Blocks;

/// Bytes looked at together; the compiler turns the comparison of a block into a few vector instructions.
const BLOCK_BYTES: usize = 32;

/// A JSON text in the making.
pub(super) struct Json {
    bytes: Vec<u8>,
    blocks: Blocks,
    hash: FoldHasher<'static>,
    /// What stands before is in the hash, or does not belong there.
    hashed: usize,
}

/// A request that is written.
pub(crate) struct Body {
    pub bytes: Vec<u8>,
    pub(super) blocks: Blocks,
}

impl Json {
    /// An object with these fields that is still open, with room for `bytes` more.
    pub fn open_object(fields: &impl Serialize, bytes: usize) -> serde_json::Result<Self> {
        let mut json = Self::with_capacity(bytes);
        json.value(fields)?;
        json.bytes.pop();
        Ok(json)
    }

    fn with_capacity(bytes: usize) -> Self {
        let hash = FixedState::default().build_hasher();
        Self { bytes: Vec::with_capacity(bytes), blocks: Blocks::default(), hash, hashed: 0 }
    }

    /// From here on stands the conversation. What stands before may change with each request.
    pub fn begin_blocks(&mut self) {
        self.hash = FixedState::default().build_hasher();
        self.hashed = self.bytes.len();
    }

    /// The blocks that follow are of the last turn.
    pub fn begin_turn(&mut self) {
        self.blocks.turn = self.blocks.ends.len();
    }

    /// The blocks of the last turn so far are what began it.
    pub fn asked_so_far(&mut self) {
        self.blocks.asked = self.blocks.ends.len();
    }

    /// A block of the conversation ends here, but for what closes it.
    pub fn end_block(&mut self) {
        self.take_in();
        self.blocks.ends.push(self.hash.finish());
    }

    /// Writes what need not be said again when its block is.
    pub fn aside<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        self.take_in();
        let written = write(self);
        self.hashed = self.bytes.len();
        written
    }

    fn take_in(&mut self) {
        // To the hasher nothing is something too.
        if self.hashed < self.bytes.len() {
            self.hash.write(&self.bytes[self.hashed..]);
            self.hashed = self.bytes.len();
        }
    }

    /// JSON as it stands.
    pub fn raw(&mut self, json: &str) {
        self.bytes.extend_from_slice(json.as_bytes());
    }

    /// What is small or rare, and no long text.
    pub fn value(&mut self, value: &impl Serialize) -> serde_json::Result<()> {
        serde_json::to_writer(&mut self.bytes, value)
    }

    pub fn text(&mut self, text: &str) {
        self.bytes.push(b'"');
        let mut rest = text.as_bytes();
        loop {
            let (plain, from_special) = rest.split_at(plain_bytes(rest));
            self.bytes.extend_from_slice(plain);
            let Some((special, after)) = from_special.split_first() else { break };
            self.escape(*special);
            rest = after;
        }
        self.bytes.push(b'"');
    }

    /// Bytes as a text of base64, with `before` in front of it.
    pub fn base64(&mut self, before: &[&str], bytes: &[u8]) {
        self.bytes.push(b'"');
        before.iter().for_each(|text| self.raw(text));
        let start = self.bytes.len();
        self.bytes.resize(start + bytes.len().div_ceil(3) * 4, 0);
        // There is room for all of it.
        let written = STANDARD.encode_slice(bytes, &mut self.bytes[start..]).unwrap_or_default();
        self.bytes.truncate(start + written);
        self.bytes.push(b'"');
    }

    /// `[…]` with what `write` makes of each item.
    pub fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> serde_json::Result<()>,
    ) -> serde_json::Result<()> {
        let mut before = "[";
        for item in items {
            self.raw(before);
            write(self, item)?;
            before = ",";
        }
        self.raw(if before == "[" { "[]" } else { "]" });
        Ok(())
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn into_body(self) -> Body {
        Body { bytes: self.bytes, blocks: self.blocks }
    }

    fn escape(&mut self, byte: u8) {
        match byte {
            b'"' => self.raw("\\\""),
            b'\\' => self.raw("\\\\"),
            b'\n' => self.raw("\\n"),
            b'\r' => self.raw("\\r"),
            b'\t' => self.raw("\\t"),
            other => self.raw(&format!("\\u{other:04x}")),
        }
    }
}

/// How many bytes from the start stand for themselves in a JSON text.
fn plain_bytes(bytes: &[u8]) -> usize {
    let special = |byte: &u8| (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\');
    // No early exit inside a block: that is what keeps the loop over it free of branches.
    let plain = |block: &&[u8]| !block.iter().fold(false, |found, byte| found | special(byte));
    let blocks = bytes.chunks_exact(BLOCK_BYTES).take_while(plain).count();
    let rest = &bytes[blocks * BLOCK_BYTES..];
    blocks * BLOCK_BYTES + rest.iter().position(special).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(write: impl FnOnce(&mut Json)) -> String {
        let mut json = Json::with_capacity(0);
        write(&mut json);
        String::from_utf8(json.into_body().bytes).unwrap()
    }

    #[test]
    fn lists_and_objects_are_joined() {
        let list =
            |items: &[u8]| written(|json| json.list(items, |json, item| json.value(item)).unwrap());
        assert_eq!([list(&[]), list(&[1]), list(&[1, 2])], ["[]", "[1]", "[1,2]"]);
        let open = Json::open_object(&serde_json::json!({"a": 1}), 0).unwrap();
        assert_eq!(open.into_body().bytes, b"{\"a\":1");
    }

    #[test]
    fn bytes_are_written_whole() {
        for (bytes, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            let written = written(|json| json.base64(&["data:", "x,"], bytes.as_bytes()));
            assert_eq!(written, format!("\"data:x,{expected}\""));
        }
    }

    proptest! {
        #[test]
        fn a_text_reads_as_it_was(text in "([a-zé🦀]{0,40}|[\"\\\\\n\r\t\u{0}-\u{1f}\u{7f}\u{2028}]){0,6}") {
            let json = written(|json| json.text(&text));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
