//! What is typed: bytes from the terminal made into keys and pastes.

/// What a person did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Key(Key),
    /// A bracketed paste, with its ends of lines made one and its control characters gone.
    Paste(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub code: Code,
    pub ctrl: bool,
    pub alt: bool,
    pub shift: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Char(char),
    Enter,
    Tab,
    Backspace,
    Delete,
    Escape,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
}

impl Key {
    pub const fn plain(code: Code) -> Self {
        Self { code, ctrl: false, alt: false, shift: false }
    }

    pub const fn ctrl(letter: char) -> Self {
        Self { ctrl: true, ..Self::plain(Code::Char(letter)) }
    }

    pub const fn alt(letter: char) -> Self {
        Self { alt: true, ..Self::plain(Code::Char(letter)) }
    }
}

/// Longest paste that is kept; what is longer could not be sent anyway.
const PASTE_BYTES_MAX: usize = 4 << 20;

/// Longest sequence that can be a key.
const SEQUENCE_BYTES_MAX: usize = 64;

const PASTE_BEGIN: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

/// Bytes may be cut anywhere. What could still become a longer key is held until more comes, or until
/// [`settle`](Self::settle) says that nothing will: an Esc that was pressed is the beginning of many a sequence.
#[derive(Default)]
pub struct Decoder {
    held: Vec<u8>,
    paste: Option<Vec<u8>>,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Input> {
        self.held.extend_from_slice(bytes);
        self.take(false)
    }

    /// Whether something is held that time decides.
    pub fn waits(&self) -> bool {
        self.paste.is_none() && !self.held.is_empty()
    }

    /// Nothing more came: what is held is what it looks like.
    pub fn settle(&mut self) -> Vec<Input> {
        if self.waits() { self.take(true) } else { Vec::new() }
    }

    fn take(&mut self, is_all: bool) -> Vec<Input> {
        let mut inputs = Vec::new();
        loop {
            if self.paste.is_some() {
                let Some(text) = self.pasted() else { return inputs };
                inputs.push(Input::Paste(text));
                continue;
            }
            if self.held.starts_with(PASTE_BEGIN) {
                self.held.drain(..PASTE_BEGIN.len());
                self.paste = Some(Vec::new());
                continue;
            }
            let (length, key) = match next(&self.held, is_all) {
                Next::Key(length, key) => (length, key),
                Next::More => return inputs,
            };
            self.held.drain(..length);
            inputs.extend(key.map(Input::Key));
        }
    }

    /// The paste, once its end is there. Emulators that let `CSI 201~` through in what is pasted would end it early; what
    /// follows it in the same breath and ends again was pasted too.
    fn pasted(&mut self) -> Option<String> {
        let paste = self.paste.as_mut()?;
        let begin_next = find(&self.held, PASTE_BEGIN).unwrap_or(self.held.len());
        let end = (0..begin_next).rev().find(|&at| self.held[at..].starts_with(PASTE_END));
        let Some(end) = end else {
            // The end itself may be cut.
            let kept = self.held.len().min(PASTE_END.len() - 1);
            let whole = self.held.len() - kept;
            keep(paste, &self.held[..whole]);
            self.held.drain(..whole);
            return None;
        };
        keep(paste, &self.held[..end]);
        self.held.drain(..end + PASTE_END.len());
        let bytes = self.paste.take()?;
        Some(clean(&String::from_utf8_lossy(&bytes)))
    }
}

fn keep(paste: &mut Vec<u8>, bytes: &[u8]) {
    let room = PASTE_BYTES_MAX.saturating_sub(paste.len());
    paste.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// One kind of line end, and no control characters; sequences that were pasted lose their beginning and stay as text.
fn clean(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n").replace(PASTE_END_TEXT, "");
    text.chars().filter(|&c| c == '\n' || c == '\t' || !c.is_control()).collect()
}

const PASTE_END_TEXT: &str = "\u{1b}[201~";

enum Next {
    /// So many bytes are a key; one that means nothing to us is none.
    Key(usize, Option<Key>),
    More,
}

fn next(bytes: &[u8], is_all: bool) -> Next {
    let Some(&first) = bytes.first() else { return Next::More };
    match first {
        0x1b => match bytes.get(1) {
            None if is_all => Next::Key(1, Some(Key::plain(Code::Escape))),
            None => Next::More,
            Some(b'[') => sequence(bytes, is_all),
            Some(b'O') => match bytes.get(2) {
                None if is_all => Next::Key(2, Some(Key::alt('O'))),
                None => Next::More,
                Some(&letter) => Next::Key(3, named(letter).map(Key::plain)),
            },
            // Esc twice is twice Esc; Esc before a key is that key with Alt.
            Some(0x1b) => Next::Key(1, Some(Key::plain(Code::Escape))),
            Some(_) => match next(&bytes[1..], is_all) {
                Next::Key(length, key) => {
                    Next::Key(length + 1, key.map(|key| Key { alt: true, ..key }))
                }
                Next::More => Next::More,
            },
        },
        b'\r' => Next::Key(1, Some(Key::plain(Code::Enter))),
        b'\t' => Next::Key(1, Some(Key::plain(Code::Tab))),
        0x7f | 0x08 => Next::Key(1, Some(Key::plain(Code::Backspace))),
        0x1f => Next::Key(1, Some(Key::ctrl('_'))),
        1..=26 => Next::Key(1, Some(Key::ctrl(char::from(first - 1 + b'a')))),
        0..0x20 => Next::Key(1, None),
        _ => character(bytes, is_all),
    }
}

fn character(bytes: &[u8], is_all: bool) -> Next {
    let length = match bytes[0] {
        0..0x80 => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Next::Key(1, None),
    };
    match bytes.get(..length).map(str::from_utf8) {
        Some(Ok(text)) => {
            let shown = text.chars().next().filter(|c| !c.is_control());
            Next::Key(length, shown.map(|c| Key::plain(Code::Char(c))))
        }
        Some(Err(_)) => Next::Key(1, None),
        None if is_all => Next::Key(bytes.len(), None),
        None => Next::More,
    }
}

/// `CSI parameters final`.
fn sequence(bytes: &[u8], is_all: bool) -> Next {
    let end = bytes[2..].iter().position(|byte| (0x40..=0x7e).contains(byte));
    let Some(end) = end.map(|end| end + 2) else {
        return match bytes.len() > SEQUENCE_BYTES_MAX || is_all {
            true if bytes.len() == 2 => Next::Key(2, Some(Key::alt('['))),
            true => Next::Key(bytes.len(), None),
            false => Next::More,
        };
    };
    let parameters = str::from_utf8(&bytes[2..end]).unwrap_or_default();
    let mut numbers = parameters.split(';').map(|number| {
        // Kitty may add alternates behind a colon.
        number.split(':').next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(1)
    });
    let (first, second, third) = (numbers.next().unwrap_or(1), numbers.next(), numbers.next());
    let (code, modifiers) = match bytes[end] {
        b'u' => (spoken(first), second),
        b'~' if first == 27 => (spoken(third.unwrap_or(0)), second),
        b'~' => (numbered(first), second),
        b'Z' => (Some(Code::Tab), Some(2)),
        letter => (named(letter), second),
    };
    Next::Key(end + 1, code.map(|code| modified(code, modifiers.unwrap_or(1))))
}

fn modified(code: Code, modifiers: u32) -> Key {
    let bits = modifiers.saturating_sub(1);
    let key = Key { code, shift: bits & 1 != 0, alt: bits & 2 != 0, ctrl: bits & 4 != 0 };
    match code {
        // A character is what it is with Shift.
        Code::Char(c) if key.shift && !key.ctrl => {
            let upper = c.to_uppercase().next().unwrap_or(c);
            Key { code: Code::Char(upper), shift: false, ..key }
        }
        _ => key,
    }
}

fn spoken(code: u32) -> Option<Code> {
    Some(match code {
        13 | 57414 => Code::Enter,
        9 => Code::Tab,
        27 => Code::Escape,
        127 | 8 => Code::Backspace,
        // Kitty's private keys that are none of ours.
        57344..=63743 => return None,
        _ => Code::Char(char::from_u32(code).filter(|c| !c.is_control())?),
    })
}

fn numbered(number: u32) -> Option<Code> {
    Some(match number {
        1 | 7 => Code::Home,
        3 => Code::Delete,
        4 | 8 => Code::End,
        5 => Code::PageUp,
        6 => Code::PageDown,
        _ => return None,
    })
}

fn named(letter: u8) -> Option<Code> {
    Some(match letter {
        b'A' => Code::Up,
        b'B' => Code::Down,
        b'C' => Code::Right,
        b'D' => Code::Left,
        b'H' => Code::Home,
        b'F' => Code::End,
        b'M' => Code::Enter,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(pieces: &[&[u8]]) -> Vec<Input> {
        let mut decoder = Decoder::default();
        let mut inputs: Vec<Input> = pieces.iter().flat_map(|bytes| decoder.push(bytes)).collect();
        inputs.extend(decoder.settle());
        inputs
    }

    fn check(bytes: &[u8], expected: Key) {
        assert_eq!(decode(&[bytes]), [Input::Key(expected)], "{bytes:?}");
    }

    #[test]
    fn keys() {
        let shift = |code| Key { shift: true, ..Key::plain(code) };
        let alt = |code| Key { alt: true, ..Key::plain(code) };
        let ctrl = |code| Key { ctrl: true, ..Key::plain(code) };
        check(b"a", Key::plain(Code::Char('a')));
        check("é".as_bytes(), Key::plain(Code::Char('é')));
        check("😀".as_bytes(), Key::plain(Code::Char('😀')));
        check(b"\r", Key::plain(Code::Enter));
        check(b"\n", Key::ctrl('j'));
        check(b"\x1b\r", alt(Code::Enter));
        check(b"\x1b[13;2u", shift(Code::Enter));
        check(b"\x1b[27;2;13~", shift(Code::Enter));
        check(b"\x1b[27u", Key::plain(Code::Escape));
        check(b"\x1b[99;5u", Key::ctrl('c'));
        check(b"\x1b[97;2u", Key::plain(Code::Char('A')));
        check(b"\x1b", Key::plain(Code::Escape));
        check(b"\x1ba", Key::alt('a'));
        check("\u{1b}é".as_bytes(), Key::alt('é'));
        check(b"\x1b[A", Key::plain(Code::Up));
        check(b"\x1bOA", Key::plain(Code::Up));
        check(b"\x1b[1;5D", ctrl(Code::Left));
        check(b"\x1b[1;3C", alt(Code::Right));
        check(b"\x1b[Z", shift(Code::Tab));
        check(b"\x1b[3~", Key::plain(Code::Delete));
        check(b"\x7f", Key::plain(Code::Backspace));
        check(b"\x1b\x7f", alt(Code::Backspace));
        check(b"\x03", Key::ctrl('c'));
        check(b"\x1f", Key::ctrl('_'));
    }

    #[test]
    fn what_is_no_key_is_passed_over() {
        // Answers of emulators, mouse, focus, broken text: nothing of it may look like typing.
        for bytes in [
            &b"\x1b[?62;4c"[..],
            b"\x1b[12;40R",
            b"\x1b[<0;3;4M\x1b[<0;3;4m",
            b"\x1b[I\x1b[O",
            b"\xff\xfe",
            b"\xc3",
            b"\x00",
            b"\x1b[57441;5u",
        ] {
            let keys = decode(&[bytes]);
            let typed = keys.iter().any(|input| {
                matches!(input, Input::Paste(_))
                    || matches!(input, Input::Key(Key { code: Code::Char(_), .. }))
            });
            assert!(!typed, "{bytes:?}: {keys:?}");
        }
    }

    #[test]
    fn pastes() {
        let paste = |text: &str| vec![Input::Paste(text.into())];
        assert_eq!(decode(&[b"\x1b[200~a\r\nb\rc\x1b[201~"]), paste("a\nb\nc"));
        assert_eq!(decode(&[b"\x1b[200~a\x1b]0;x\x07\x03b\x1b[201~"]), paste("a]0;xb"));
        // An end that was pasted ends nothing.
        assert_eq!(decode(&[b"\x1b[200~a\x1b[201~\rrm -rf\r\x1b[201~"]), paste("a\nrm -rf\n"));
        let two = decode(&[b"\x1b[200~a\x1b[201~\x1b[200~b\x1b[201~"]);
        assert_eq!(two, [Input::Paste("a".into()), Input::Paste("b".into())]);
        assert_eq!(decode(&[b"\x1b[200~a\x1b[20", b"1~x"]).len(), 2);
    }

    #[test]
    fn a_paste_is_kept_up_to_its_limit() {
        for (length, kept) in
            [(PASTE_BYTES_MAX, PASTE_BYTES_MAX), (PASTE_BYTES_MAX + 1, PASTE_BYTES_MAX)]
        {
            let text = vec![b'x'; length];
            let inputs = decode(&[PASTE_BEGIN, &text, PASTE_END]);
            assert!(matches!(&inputs[..], [Input::Paste(text)] if text.len() == kept));
        }
    }

    proptest! {
        /// Wherever the bytes are cut, they are the same keys, as long as no time passes.
        #[test]
        fn cuts_change_nothing(bytes in proptest::collection::vec(prop_oneof![
            Just(0x1b_u8), Just(b'['), Just(b'O'), Just(b';'), Just(b'~'), Just(b'u'), 0_u8..,
        ], 0..40), cut in 0_usize..40) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(decode(&[&bytes]), decode(&[&bytes[..cut], &bytes[cut..]]));
        }

        #[test]
        fn pasted_text_comes_whole(text in "[ -~äöü\n]{0,60}", cut in 0_usize..90) {
            let mut bytes = PASTE_BEGIN.to_vec();
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(PASTE_END);
            let cut = cut.min(bytes.len());
            prop_assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), [Input::Paste(text)]);
        }
    }
}
