//! From bytes of a text to its lines and characters.

use nexus_core::code::Position;

pub struct Lines<'a> {
    text: &'a str,
    /// Where each line begins.
    starts: Vec<usize>,
    /// The last place that was asked for: findings come in order, and a line may be as long as the text.
    last: std::cell::Cell<(usize, Position)>,
}

impl<'a> Lines<'a> {
    pub fn new(text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        Self { text, starts, last: std::cell::Cell::new((0, Position { line: 1, column: 1 })) }
    }

    /// The place of a byte; that of the text's end when it has no such byte.
    pub fn place(&self, byte: usize) -> Position {
        let byte = byte.min(self.text.len());
        let line = self.starts.partition_point(|start| *start <= byte).max(1);
        let (known_byte, known) = self.last.get();
        let (from, column) = match known.line == number(line) && known_byte <= byte {
            true => (known_byte, known.column),
            false => (self.starts[line - 1], 1),
        };
        // A byte within a character is that character's.
        let before = self.text.as_bytes()[from..byte].iter().filter(|byte| !is_inside(**byte));
        let inside = self.text.as_bytes().get(byte).is_some_and(|byte| is_inside(*byte));
        let column = column + number(before.count()) - u32::from(inside);
        let place = Position { line: number(line), column };
        if !inside {
            self.last.set((byte, place));
        }
        place
    }

    /// The byte of a place that counts bytes or characters of its line; within the text.
    pub fn byte(&self, line: usize, column: usize, unit: Unit) -> usize {
        let Some(start) = line.checked_sub(1).and_then(|line| self.starts.get(line)) else {
            return self.text.len();
        };
        let (line, skip) = (&self.text[*start..], column.saturating_sub(1));
        let offset = match unit {
            Unit::Bytes => skip,
            Unit::Characters => {
                line.char_indices().nth(skip).map_or(line.len(), |(offset, _)| offset)
            }
        };
        (start + offset).min(self.text.len())
    }
}

/// What a column counts, from 1.
#[derive(Clone, Copy)]
pub enum Unit {
    Bytes,
    Characters,
}

/// Whether a byte goes on with a character.
fn is_inside(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_in_lines_of_characters() {
        let lines = Lines::new("añb\r\n\ncd");
        for (byte, line, column) in [
            (0, 1, 1),
            (3, 1, 3),
            (2, 1, 2),
            (1, 1, 2),
            (6, 2, 1),
            (7, 3, 1),
            (8, 3, 2),
            (99, 3, 3),
        ] {
            assert_eq!(lines.place(byte), Position { line, column }, "{byte}");
        }
        assert_eq!(lines.byte(1, 3, Unit::Characters), 3);
        assert_eq!(lines.byte(1, 4, Unit::Bytes), 3);
        assert_eq!(lines.byte(3, 99, Unit::Characters), 9);
        assert_eq!(lines.byte(9, 1, Unit::Bytes), 9);
        assert_eq!(Lines::new("").place(0), Position { line: 1, column: 1 });
    }
}
