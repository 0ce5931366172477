//! A look through the head of a GGUF file before it is read. The library that reads it believes what the head says of
//! itself as far as the file is long, and keeps 32 bytes for each value: a large file of nothing would fill the memory.

use std::io::{self, BufRead};

/// Largest head. Vocabularies of a quarter of a million tokens take some ten megabytes.
const HEAD_BYTES_MAX: u64 = 128 << 20;

/// Values in a head, those of lists included. A token has a text, a score, a kind and a merge or two.
const VALUES_MAX: u64 = 8 << 20;

/// Matrices that a file names. The largest models have some thousands.
const TENSORS_MAX: u64 = 64 * 1024;

/// Why a head is not read.
#[derive(Debug)]
pub enum Unread {
    /// It ends too early, or is none.
    Damaged(String),
    /// There is more of it than any model has.
    TooMuch(String),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// Goes through a head and keeps nothing of it.
pub fn check(reader: impl BufRead) -> Result<(), Unread> {
    let mut head = Head { reader, bytes: 0, values: 0, short: false };
    if head.take::<4>()? != *b"GGUF" {
        return Err(Unread::Damaged("it does not begin as one".into()));
    }
    // The first version had lengths of four bytes.
    head.short = u32::from_le_bytes(head.take()?) == 1;
    let (tensors, entries) = (head.length()?, head.length()?);
    if tensors > TENSORS_MAX {
        return Err(Unread::TooMuch(format!("its head names more than {TENSORS_MAX} matrices")));
    }
    for _ in 0..entries {
        head.text()?;
        let kind = u32::from_le_bytes(head.take()?);
        head.value(kind, true)?;
    }
    for _ in 0..tensors {
        head.text()?;
        let sides = u64::from(u32::from_le_bytes(head.take()?));
        let side_bytes = if head.short { 4 } else { 8 };
        // Behind the sides come the format and the place.
        head.skip(sides.saturating_mul(side_bytes).saturating_add(12))?;
    }
    Ok(())
}

struct Head<R> {
    reader: R,
    bytes: u64,
    values: u64,
    short: bool,
}

impl<R: BufRead> Head<R> {
    fn value(&mut self, kind: u32, lists_may: bool) -> Result<(), Unread> {
        self.count(1)?;
        match kind {
            TEXT => self.text(),
            LIST if lists_may => {
                let kind = u32::from_le_bytes(self.take()?);
                let length = self.length()?;
                match width(kind) {
                    Some(bytes) => {
                        self.count(length)?;
                        self.skip(length.saturating_mul(bytes))
                    }
                    None => (0..length).try_for_each(|_| self.value(kind, false)),
                }
            }
            LIST => Err(Unread::TooMuch("its head has a list of lists".into())),
            kind => match width(kind) {
                Some(bytes) => self.skip(bytes),
                None => Err(Unread::Damaged(format!("its head has a value of the kind {kind}"))),
            },
        }
    }

    fn text(&mut self) -> Result<(), Unread> {
        let length = self.length()?;
        self.skip(length)
    }

    fn length(&mut self) -> Result<u64, Unread> {
        Ok(match self.short {
            true => u32::from_le_bytes(self.take()?).into(),
            false => u64::from_le_bytes(self.take()?),
        })
    }

    fn count(&mut self, values: u64) -> Result<(), Unread> {
        self.values = self.values.saturating_add(values);
        if self.values > VALUES_MAX {
            return Err(Unread::TooMuch(format!("its head has more than {VALUES_MAX} values")));
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unread> {
        let mut bytes = [0; N];
        self.advance(N as u64)?;
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Unread> {
        self.advance(bytes)?;
        let mut left = bytes;
        while left > 0 {
            let buffered = self.reader.fill_buf()?.len();
            if buffered == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let part = usize::try_from(left).map_or(buffered, |left| left.min(buffered));
            self.reader.consume(part);
            left -= part as u64;
        }
        Ok(())
    }

    fn advance(&mut self, bytes: u64) -> Result<(), Unread> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > HEAD_BYTES_MAX {
            return Err(Unread::TooMuch(format!("its head is larger than {HEAD_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

/// The kinds of values that have no fixed width.
const TEXT: u32 = 8;
const LIST: u32 = 9;

/// The bytes of a value of the others.
fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head of one entry, whose value is `value`, that names `tensors` matrices.
    fn head(kind: u32, value: &[u8], tensors: u64) -> Vec<u8> {
        let mut head = [b"GGUF".as_slice(), &3u32.to_le_bytes()].concat();
        head.extend(tensors.to_le_bytes());
        head.extend(1u64.to_le_bytes());
        head.extend(1u64.to_le_bytes());
        head.extend(b"k");
        head.extend(kind.to_le_bytes());
        head.extend(value);
        head
    }

    fn list(kind: u32, length: u64) -> Vec<u8> {
        [kind.to_le_bytes().as_slice(), &length.to_le_bytes()].concat()
    }

    /// What is said of a head behind which there is nothing but zeros, as in a file with a hole.
    fn found(head: &[u8]) -> String {
        let endless = io::BufReader::new(io::Read::chain(head, io::repeat(0)));
        match check(endless) {
            Ok(()) => "ok".into(),
            Err(Unread::Damaged(reason) | Unread::TooMuch(reason)) => reason,
        }
    }

    #[test]
    fn each_bound_just_under_and_just_over() {
        assert_eq!(found(&head(0, &[1], 0)), "ok");
        // The list counts as one.
        assert_eq!(found(&head(LIST, &list(0, VALUES_MAX - 1), 0)), "ok");
        assert!(found(&head(LIST, &list(0, VALUES_MAX), 0)).contains("more than 8388608 values"));
        assert!(found(&head(LIST, &list(TEXT, u64::MAX), 0)).contains("more than 8388608 values"));
        let before = head(TEXT, &[], 0).len() as u64 + 8;
        let text = |bytes: u64| head(TEXT, &(bytes - before).to_le_bytes(), 0);
        assert_eq!(found(&text(HEAD_BYTES_MAX)), "ok");
        assert!(found(&text(HEAD_BYTES_MAX + 1)).contains("larger than 134217728 bytes"));
        assert!(found(&head(TEXT, &u64::MAX.to_le_bytes(), 0)).contains("larger than"));
        assert_eq!(found(&head(0, &[1], TENSORS_MAX)), "ok");
        assert!(found(&head(0, &[1], TENSORS_MAX + 1)).contains("more than 65536 matrices"));
        assert_eq!(found(&head(LIST, &list(LIST, 0), 0)), "ok", "a list that is empty");
        assert!(found(&head(LIST, &list(LIST, 1), 0)).contains("a list of lists"));
        assert!(found(&head(13, &[], 0)).contains("of the kind 13"));
    }

    #[test]
    fn what_ends_too_early_is_damaged() {
        let whole = head(LIST, &[list(4, 2), vec![0; 8]].concat(), 0);
        assert!(check(&*whole).is_ok());
        for end in 0..whole.len() {
            assert!(matches!(check(&whole[..end]), Err(Unread::Damaged(_))), "{end}");
        }
    }
}
