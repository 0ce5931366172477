//! How much a JSON text holds, counted before anything is made of it: two bytes of text can be a value, and a value takes
//! some seventy in memory, more where it is read into something else.

/// Values that one message of a stranger may hold. Large ones have some ten thousand; lists of tokens to embed have a
/// quarter of a million.
pub const MESSAGE_VALUES_MAX: usize = 512 * 1024;

/// What reading a value may take in memory for a while: itself, and what is made of it.
pub const VALUE_BYTES: usize = 128;

/// How many values a text holds at most. One that is no JSON is counted all the same; its parser refuses it.
pub fn values(text: &[u8]) -> usize {
    let mut count = Count::default();
    count.add(text);
    count.values()
}

/// The values of a text that comes in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// What begins another value.
    marks: usize,
    depth: usize,
    depth_most: usize,
    in_string: bool,
    escaped: bool,
}

impl Count {
    pub fn add(&mut self, piece: &[u8]) {
        let Self { mut marks, mut depth, mut depth_most, mut in_string, mut escaped } = *self;
        for byte in piece {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b',' => marks += 1,
                b'[' | b'{' => {
                    marks += 1;
                    depth += 1;
                    depth_most = depth_most.max(depth);
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        *self = Self { marks, depth, depth_most, in_string, escaped };
    }

    /// What follows is in no string: none of JSON goes on over the end of a line.
    pub fn end_line(&mut self) {
        (self.in_string, self.escaped) = (false, false);
    }

    /// At most so many.
    pub fn values(&self) -> usize {
        self.marks + 1
    }

    /// How deep brackets nest.
    pub fn deepest(&self) -> usize {
        self.depth_most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: (usize, usize)) {
        let mut whole = Count::default();
        whole.add(text.as_bytes());
        assert_eq!((whole.values(), whole.deepest()), expected, "{text}");
        assert_eq!(values(text.as_bytes()), expected.0);
        let mut pieces = Count::default();
        text.as_bytes().chunks(1).for_each(|piece| pieces.add(piece));
        assert_eq!((pieces.values(), pieces.deepest()), expected, "{text} in pieces");
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        check("1", (1, 0));
        check("[]", (2, 1));
        check("[0,0,0]", (4, 1));
        check(r#"{"a": [1, {"b": 2}], "c": "x"}"#, (6, 3));
        check(r#""[{,\",[""#, (1, 0));
        check(r#"["\\", ",", "\\\"["]"#, (4, 1));
    }

    #[test]
    fn a_quote_hides_nothing_of_the_next_line() {
        let mut count = Count::default();
        count.add(b": \"\\");
        count.end_line();
        count.add(b"data: [0,0]");
        assert_eq!(count.values(), 3);
    }

    #[test]
    fn what_is_no_json_is_counted_all_the_same() {
        check("]]]]", (1, 0));
        check("[[[[", (5, 4));
        check("][", (2, 1));
    }
}
