//! Documents of strangers: how many pages a PDF has, without reading what is on them.
//!
//! The objects of a document are looked through from the first byte to the last, packed ones too. The tree of pages says
//! how many there are; who lies there gets the refusal of a service instead of ours.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

/// Most pages: what services take of one document.
pub(super) const PAGES_MAX: u32 = 100;

/// Most bytes that packed objects are unpacked to. Those of a hundred pages have a thousandth of it.
const UNPACKED_BYTES_MAX: u64 = 64_000_000;

/// How deep dictionaries may lie in each other; those of pages lie in none.
const DEPTH_MAX: usize = 64;

/// Where the end is looked for.
const END_BYTES: usize = 2048;

/// The number of pages of a document that can be handed to a service.
pub(super) fn check(bytes: &[u8]) -> Result<u32, String> {
    let end = &bytes[bytes.len().saturating_sub(END_BYTES)..];
    if find(end, b"%%EOF").is_none() {
        return Err("it is cut off: its end is missing".into());
    }
    let mut found = Found { unpacked_left: UNPACKED_BYTES_MAX, ..Found::default() };
    scan(bytes, &mut found, Packed::No)?;
    if found.encrypted {
        return Err("it is encrypted".into());
    }
    match found.in_tree.unwrap_or(found.pages) {
        0 => Err("its pages cannot be counted".into()),
        pages if pages > PAGES_MAX => Err(format!("it has {pages} pages, more than {PAGES_MAX}")),
        pages => Ok(pages),
    }
}

#[derive(Default)]
struct Found {
    encrypted: bool,
    /// As many as the root of their tree says, which no branch of it has more than.
    in_tree: Option<u32>,
    pages: u32,
    unpacked_left: u64,
}

/// Whether what is looked through was packed itself: such holds nothing packed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packed {
    No,
    Yes,
}

/// A dictionary, as far as it is of interest.
#[derive(Clone, Copy, Default)]
struct Dictionary<'a> {
    kind: &'a [u8],
    count: Option<u32>,
}

/// Looks through objects. Linear: every byte is passed once, but for those that are unpacked.
fn scan(bytes: &[u8], found: &mut Found, packed: Packed) -> Result<(), String> {
    let mut lexer = Lexer { bytes, at: 0 };
    let mut open: Vec<Dictionary<'_>> = Vec::new();
    let mut closed = Dictionary::default();
    while let Some(token) = lexer.next() {
        match token {
            Token::Open if open.len() == DEPTH_MAX => {
                return Err("its dictionaries are nested too deep".into());
            }
            Token::Open => open.push(Dictionary::default()),
            Token::Close => {
                closed = open.pop().unwrap_or_default();
                match closed.kind {
                    b"Page" => found.pages = found.pages.saturating_add(1),
                    b"Pages" => found.in_tree = found.in_tree.max(closed.count),
                    _ => {}
                }
            }
            Token::Name(b"Encrypt") if !open.is_empty() => found.encrypted = true,
            Token::Name(name) => {
                let Some(dictionary) = open.last_mut() else { continue };
                match name {
                    b"Type" if dictionary.kind.is_empty() => {
                        dictionary.kind = lexer.value_name().unwrap_or_default();
                    }
                    b"Count" => dictionary.count = lexer.value_number(),
                    _ => {}
                }
            }
            Token::Stream => {
                let data = lexer.stream();
                if packed == Packed::No && closed.kind == b"ObjStm" {
                    unpack(data, found)?;
                }
                closed = Dictionary::default();
            }
        }
    }
    Ok(())
}

/// Looks through objects that are packed together. What is packed in other ways than the usual stays uncounted.
fn unpack(data: &[u8], found: &mut Found) -> Result<(), String> {
    let mut objects = Vec::new();
    let mut unpacked = ZlibDecoder::new(data).take(found.unpacked_left + 1);
    // What was unpacked before it broke is looked through.
    let _ = unpacked.read_to_end(&mut objects);
    found.unpacked_left = found
        .unpacked_left
        .checked_sub(objects.len() as u64)
        .ok_or_else(|| format!("its objects unpack to more than {UNPACKED_BYTES_MAX} bytes"))?;
    scan(&objects, found, Packed::Yes)
}

enum Token<'a> {
    /// `<<`
    Open,
    /// `>>`
    Close,
    Name(&'a [u8]),
    /// The word before the bytes of a stream.
    Stream,
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = self.bytes.get(self.at..)?;
            match rest {
                [] => return None,
                [b'<', b'<', ..] => {
                    self.at += 2;
                    return Some(Token::Open);
                }
                [b'>', b'>', ..] => {
                    self.at += 2;
                    return Some(Token::Close);
                }
                [b'/', ..] => {
                    self.at += 1;
                    return Some(Token::Name(self.word()));
                }
                [b'(', ..] => self.skip_text(),
                [b'%', ..] => {
                    let line = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                    self.at += line.unwrap_or(rest.len());
                }
                [byte, ..] if is_regular(*byte) => {
                    if self.word() == b"stream" {
                        return Some(Token::Stream);
                    }
                }
                [byte, ..] if is_space(*byte) => self.skip_space(),
                _ => self.at += 1,
            }
        }
    }

    /// Regular characters up to the next that is none.
    fn word(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| !is_regular(*byte)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn skip_space(&mut self) {
        let rest = &self.bytes[self.at..];
        let space = rest.iter().position(|byte| !is_space(*byte));
        self.at += space.unwrap_or(rest.len());
    }

    /// The name that stands next, if one does.
    fn value_name(&mut self) -> Option<&'a [u8]> {
        self.skip_space();
        (self.bytes.get(self.at) == Some(&b'/')).then(|| {
            self.at += 1;
            self.word()
        })
    }

    /// The number that stands next, if one does; `5 0 R` is none, but says where one is.
    fn value_number(&mut self) -> Option<u32> {
        self.skip_space();
        let number = std::str::from_utf8(self.word()).ok()?.parse().ok()?;
        let mut after = Lexer { ..*self };
        after.skip_space();
        let generation = after.word();
        after.skip_space();
        let refers = !generation.is_empty() && generation.iter().all(u8::is_ascii_digit);
        (!(refers && after.word() == b"R")).then_some(number)
    }

    /// A text in parentheses, which may hold others.
    fn skip_text(&mut self) {
        let mut depth = 0usize;
        while let Some(byte) = self.bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// The bytes of a stream, whose word was passed, up to their end.
    fn stream(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let rest = rest.strip_prefix(b"\r").unwrap_or(rest);
        let rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        let length = find(rest, b"endstream").unwrap_or(rest.len());
        self.at = self.bytes.len() - rest.len() + length;
        &rest[..length]
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\0' | b'\t' | b'\n' | 0x0c | b'\r' | b' ')
}

fn is_regular(byte: u8) -> bool {
    !is_space(byte) && !b"()<>[]{}/%".contains(&byte)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
