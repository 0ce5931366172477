//! Text on its way from a file to the model and back: recognised, bounded, and with its line endings kept.

use super::files::{Files, Opened};

/// Most that a tool hands to the model, which pays for every byte of it in every later call.
pub(super) const OUTPUT_BYTES_MAX: usize = 50_000;

/// How far a file is looked at to tell text from other data, as git and ripgrep do.
const BINARY_PROBE_BYTES: usize = 8 << 10;

/// A text file taken apart, to be changed and put together again as it was.
pub(super) struct Text {
    /// With `\n` alone at line ends, unless the file mixes both kinds.
    pub body: String,
    crlf: bool,
    bom: bool,
}

impl Text {
    pub fn decode(path: &str, bytes: Vec<u8>) -> Result<Self, String> {
        refuse_binary(path, &bytes)?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8 text"))?;
        let bom = text.starts_with(BOM);
        let text = text.strip_prefix(BOM).map(str::to_owned).unwrap_or(text);
        let crlf = text.contains("\r\n") && !text.replace("\r\n", "").contains('\n');
        let body = if crlf { lf(&text) } else { text };
        Ok(Self { body, crlf, bom })
    }

    /// The file's bytes with another body.
    pub fn encode(&self, body: &str) -> Vec<u8> {
        let bom = if self.bom { BOM } else { "" };
        match self.crlf {
            true => format!("{bom}{}", lf(body).replace('\n', "\r\n")).into_bytes(),
            false => format!("{bom}{body}").into_bytes(),
        }
    }

    /// A piece of text that a model gave, in the form of `body`.
    pub fn adapt(&self, piece: &str) -> String {
        if self.crlf { lf(piece) } else { piece.into() }
    }
}

pub(super) const BOM: &str = "\u{feff}";

pub(super) fn lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// A whole text file for reading; bytes that are not UTF-8 are replaced.
pub(super) fn read_text(files: &Files, path: &str) -> Result<String, String> {
    readable(path, files.open(path)?)
}

pub(super) fn readable(path: &str, opened: Opened) -> Result<String, String> {
    let bytes = opened.bytes(path)?;
    refuse_binary(path, &bytes)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

pub(super) fn refuse_binary(path: &str, bytes: &[u8]) -> Result<(), String> {
    match is_binary(bytes) {
        true => Err(format!("{path} is a binary file ({} bytes)", bytes.len())),
        false => Ok(()),
    }
}

pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(BINARY_PROBE_BYTES).any(|byte| *byte == 0)
}

/// The start of `text`, at most `bytes_max` long and never half a character.
pub(super) fn start(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// As many of `names` as may be handed over, one to a line, and their number.
pub(super) fn listed(names: &[String]) -> (String, usize) {
    let mut list = String::new();
    for (count, name) in names.iter().enumerate() {
        if list.len() + name.len() >= OUTPUT_BYTES_MAX {
            return (list, count);
        }
        list.push_str(name);
        list.push('\n');
    }
    (list, names.len())
}

/// "1 line", "2 lines".
pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
