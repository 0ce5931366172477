//! Text to tokens and back, with the vocabulary of the file.

use std::collections::HashMap;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use crate::Fault;
use crate::weights::Gguf;

pub struct Vocabulary {
    plain: Box<dyn Plain>,
    /// The bytes each token stands for; empty for those that stand for no text.
    bytes: Vec<Vec<u8>>,
    /// Tokens that shape the conversation and are no text of it, by how a template writes them, longest first.
    special: Vec<(String, u32)>,
    /// The tokens that end an answer.
    pub stops: Vec<u32>,
    pub bos: Option<u32>,
}

/// Cuts plain text into tokens.
pub trait Plain: Send + Sync {
    /// Whatever `text` spells, it makes no token that shapes the conversation.
    fn encode(&self, text: &str, out: &mut Vec<u32>);
}

impl Plain for tokenizers::Tokenizer {
    fn encode(&self, text: &str, out: &mut Vec<u32>) {
        // Fails only on what a vocabulary with every byte in it does not contain.
        if let Ok(encoding) = self.encode_fast(text, false) {
            out.extend_from_slice(encoding.get_ids());
        }
    }
}

/// A part of a prompt.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    /// What the template wrote: here a token that shapes the conversation is meant.
    Template(&'a str),
    /// What somebody wrote: whatever it spells, nobody ends their own turn and begins the model's.
    Text(&'a str),
    /// What the model wrote, as it wrote it.
    Tokens(&'a [u32]),
}

/// The kinds of tokens that are no text, in GGUF's numbering: control and unused.
const CONTROL_KINDS: [i32; 2] = [3, 5];

/// How known chat formats end a turn, beside what the file names as its end.
const TURN_ENDS: [&str; 4] = ["<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>"];

impl Vocabulary {
    pub fn read(gguf: &Gguf) -> Result<Self, Fault> {
        let kind = gguf.text("tokenizer.ggml.model").unwrap_or("none");
        if kind != "gpt2" {
            return Err(gguf.unsupported(format!(
                "its tokenizer is of the kind {kind:?}, and only \"gpt2\" is supported"
            )));
        }
        let tokens = gguf.strings("tokenizer.ggml.tokens")?;
        let kinds = gguf.token_kinds();
        let is_special =
            |id: usize| kinds.get(&id).is_some_and(|kind| CONTROL_KINDS.contains(kind));
        let special: Vec<(String, u32)> = (0..tokens.len())
            .filter(|&id| is_special(id))
            .map(|id| (tokens[id].to_owned(), id as u32))
            .collect();
        let id = |key: &str| {
            let id = gguf.number(key).filter(|&id| id < tokens.len() as u64);
            id.and_then(|id| u32::try_from(id).ok())
        };
        let mut stops: Vec<u32> = special
            .iter()
            .filter(|(text, _)| TURN_ENDS.contains(&text.as_str()))
            .map(|it| it.1)
            .collect();
        stops.extend(id("tokenizer.ggml.eos_token_id"));
        stops.extend(id("tokenizer.ggml.eot_token_id"));
        stops.sort_unstable();
        stops.dedup();
        let alphabet = alphabet();
        let bytes = tokens
            .iter()
            .enumerate()
            .map(|(id, text)| if is_special(id) { Vec::new() } else { bytes_of(text, &alphabet) })
            .collect();
        let bos = id("tokenizer.ggml.bos_token_id")
            .filter(|_| gguf.flag("tokenizer.ggml.add_bos_token").unwrap_or(false));
        Ok(Self::new(Box::new(bpe(gguf, &tokens)?), bytes, special, stops, bos))
    }

    pub fn new(
        plain: Box<dyn Plain>,
        bytes: Vec<Vec<u8>>,
        mut special: Vec<(String, u32)>,
        stops: Vec<u32>,
        bos: Option<u32>,
    ) -> Self {
        special.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Self { plain, bytes, special, stops, bos }
    }

    pub fn bytes(&self, token: u32) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], Vec::as_slice)
    }

    /// Tokens of a prompt. What lies between two tokens that shape it is cut in one piece, as the model learned it.
    pub fn encode<'a>(&self, parts: impl IntoIterator<Item = Part<'a>>, out: &mut Vec<u32>) {
        let mut plain = String::new();
        for part in parts {
            let mut text = match part {
                Part::Text(text) => {
                    plain.push_str(text);
                    continue;
                }
                Part::Tokens(tokens) => {
                    self.plain.encode(&plain, out);
                    plain.clear();
                    out.extend_from_slice(tokens);
                    continue;
                }
                Part::Template(text) => text,
            };
            while let Some((at, length, id)) = self.first_special(text) {
                plain.push_str(&text[..at]);
                self.plain.encode(&plain, out);
                plain.clear();
                out.push(id);
                text = &text[at + length..];
            }
            plain.push_str(text);
        }
        self.plain.encode(&plain, out);
    }

    /// Where the first token that shapes a conversation stands, how long it is, and which it is.
    fn first_special(&self, text: &str) -> Option<(usize, usize, u32)> {
        let found = self.special.iter().filter_map(|(special, id)| {
            text.find(special.as_str()).map(|at| (at, special.len(), *id))
        });
        found.min_by_key(|&(at, length, _)| (at, std::cmp::Reverse(length)))
    }

    /// What llguidance calls a special token begins with a byte that no text contains.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let mut words = self.bytes.clone();
        for (text, id) in &self.special {
            let marked = [&[0xff], text.as_bytes()].concat();
            words[*id as usize] = marked;
        }
        words
    }
}

/// Turns tokens into text that ends where a character ends.
#[derive(Default)]
pub struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// The text that is complete with these bytes; nothing while a character is half there.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.pending[..valid]));
                    let Some(length) = error.error_len() else {
                        self.pending.drain(..valid);
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending.drain(..valid + length);
                }
            }
        }
    }

    /// What is left when nothing more comes.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

fn bpe(gguf: &Gguf, tokens: &[&str]) -> Result<tokenizers::Tokenizer, Fault> {
    let unusable =
        |error: tokenizers::Error| gguf.unsupported(format!("its tokenizer is unusable ({error})"));
    let vocabulary = tokens.iter().enumerate().map(|(id, text)| (text.to_string(), id as u32));
    let merges: Option<Vec<_>> = gguf
        .strings("tokenizer.ggml.merges")?
        .into_iter()
        .map(|merge| merge.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())))
        .collect();
    let Some(merges) = merges else {
        return Err(gguf.unsupported("its tokenizer has a broken merge".into()));
    };
    let model = BPE::builder()
        .vocab_and_merges(vocabulary.collect::<Vocab>(), merges)
        .ignore_merges(gguf.flag("tokenizer.ggml.ignore_merges").unwrap_or(false))
        .build()
        .map_err(unusable)?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    let pre = gguf.text("tokenizer.ggml.pre").unwrap_or("gpt-2");
    tokenizer.with_pre_tokenizer(Some(splitter(pre).map_err(unusable)?));
    if pre == "qwen2" {
        tokenizer.with_normalizer(Some(NFC));
    }
    Ok(tokenizer)
}

/// How text is cut before its pieces are looked up, by the name the file gives to the manner.
fn splitter(pre: &str) -> Result<PreTokenizerWrapper, tokenizers::Error> {
    let bytes_alone = || ByteLevel::new(false, true, false);
    let by = |digits: &str| {
        let pattern = format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        let split =
            Split::new(SplitPattern::Regex(pattern), SplitDelimiterBehavior::Isolated, false)?;
        Ok::<_, tokenizers::Error>(Sequence::new(vec![split.into(), bytes_alone().into()]).into())
    };
    match pre {
        "smollm" => {
            let words = ByteLevel::new(false, true, true);
            Ok(Sequence::new(vec![Digits::new(true).into(), words.into()]).into())
        }
        "llama-bpe" | "llama3" | "smaug-bpe" => by(r"\p{N}{1,3}"),
        "qwen2" => by(r"\p{N}"),
        _ => Ok(ByteLevel::new(false, true, true).into()),
    }
}

/// Which byte each character of a byte-level vocabulary stands for.
fn alphabet() -> HashMap<char, u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let plain = (0..=u8::MAX).filter(printable).map(|byte| (char::from(byte), byte));
    let shifted = (0..=u8::MAX).filter(|byte| !printable(byte)).zip(0x100u32..);
    let shifted = shifted.filter_map(|(byte, code)| Some((char::from_u32(code)?, byte)));
    plain.chain(shifted).collect()
}

fn bytes_of(text: &str, alphabet: &HashMap<char, u8>) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = text.chars().map(|char| alphabet.get(&char).copied()).collect();
    // A token of the user's own is written as it reads.
    bytes.unwrap_or_else(|| text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_leaves_whole_characters_at_a_time() {
        let pieces = |bytes: &[&[u8]]| {
            let mut decoder = Decoder::default();
            let mut texts: Vec<_> = bytes.iter().map(|bytes| decoder.push(bytes)).collect();
            texts.push(decoder.finish());
            texts
        };
        let euro = "€".as_bytes();
        assert_eq!(pieces(&[b"ab", euro]), ["ab", "€", ""]);
        assert_eq!(pieces(&[&euro[..1], &euro[1..2], &euro[2..]]), ["", "", "€", ""]);
        assert_eq!(pieces(&[b"a\xe2", b"b"]), ["a", "\u{fffd}b", ""]);
        assert_eq!(pieces(&[b"a\xff\xffb"]), ["a\u{fffd}\u{fffd}b", ""]);
        assert_eq!(pieces(&[&euro[..2]]), ["", "\u{fffd}"]);
    }

    #[test]
    fn every_byte_has_its_character() {
        let alphabet = alphabet();
        assert_eq!(alphabet.len(), 256);
        assert_eq!(bytes_of("ĠHello", &alphabet), b" Hello");
        assert_eq!(bytes_of("Ċ", &alphabet), b"\n");
    }
}
