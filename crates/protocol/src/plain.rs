//! A quick eye for plain JSON objects: those that nearly every small call is.
//!
//! A call that costs a microsecond or two spends most of it in a general parser, on text that has no escapes, no
//! fractions and hardly any depth. Such text is cut into members here. Whatever is less than plain, right or wrong, is
//! `None` and goes to the general parser, which alone knows what JSON is and what to say of a mistake.

/// Deepest nesting of what is plain, the object itself included.
const DEPTH_MAX: u32 = 8;

/// Tells `each` the members of the object that `text` is, with their values as text. `None` when it is not plain, or
/// when `each` says so.
pub fn members<'a>(
    text: &'a str,
    mut each: impl FnMut(&'a str, &'a str) -> Option<()>,
) -> Option<()> {
    let mut cursor = Cursor { text, at: 0 };
    (cursor.next()? == b'{').then_some(())?;
    cursor.object(DEPTH_MAX, &mut each)?;
    // Nothing may follow but space.
    cursor.next().is_none().then_some(())
}

/// The inside of a string among the values of `members`: those have no escapes.
pub fn string(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

/// The bytes at which the plain part of a string ends: a quote, a backslash, a control character.
static ENDS_STRING: [bool; 256] = {
    let mut ends = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        ends[byte] = true;
        byte += 1;
    }
    ends[b'"' as usize] = true;
    ends[b'\\' as usize] = true;
    ends
};

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Goes past an object whose bracket was read.
    fn object(
        &mut self,
        depth: u32,
        each: &mut impl FnMut(&'a str, &'a str) -> Option<()>,
    ) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut next = self.next()?;
        if next == b'}' {
            return Some(());
        }
        loop {
            let name = (next == b'"').then(|| self.string())??;
            (self.next()? == b':').then_some(())?;
            let first = self.next()?;
            each(string(name)?, self.value(first, depth)?)?;
            match self.next()? {
                b',' => next = self.next()?,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Goes past an array whose bracket was read.
    fn array(&mut self, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut next = self.next()?;
        if next == b']' {
            return Some(());
        }
        loop {
            self.value(next, depth)?;
            match self.next()? {
                b',' => next = self.next()?,
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// The text of the value whose first byte, just read, is `first`.
    fn value(&mut self, first: u8, depth: u32) -> Option<&'a str> {
        let start = self.at - 1;
        match first {
            b'"' => return self.string(),
            b'{' => self.object(depth, &mut |_, _| Some(()))?,
            b'[' => self.array(depth)?,
            b'-' | b'0'..=b'9' => {
                self.at = start;
                self.integer()?;
            }
            _ => {
                let rest = &self.text.as_bytes()[start..];
                let word = ["true", "false", "null"]
                    .into_iter()
                    .find(|word| rest.starts_with(word.as_bytes()))?;
                self.at = start + word.len();
            }
        }
        self.text.get(start..self.at)
    }

    /// A string whose first quote was read, with both.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at - 1;
        let inside = self.rest();
        let end = inside.iter().position(|byte| ENDS_STRING[usize::from(*byte)])?;
        self.at += end + 1;
        (inside[end] == b'"').then(|| &self.text[start..self.at])
    }

    fn integer(&mut self) -> Option<()> {
        let sign = usize::from(self.rest().starts_with(b"-"));
        let digits = &self.rest()[sign..];
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // What would follow a fraction or an exponent is refused by whoever comes next.
        let leading_zero = count > 1 && digits[0] == b'0';
        self.at += sign + count;
        (count > 0 && !leading_zero).then_some(())
    }

    /// Goes past the next byte that is no space.
    fn next(&mut self) -> Option<u8> {
        loop {
            let next = *self.text.as_bytes().get(self.at)?;
            self.at += 1;
            if !matches!(next, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(next);
            }
        }
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    fn plain(text: &str) -> Option<Vec<(&str, &str)>> {
        let mut found = Vec::new();
        members(text, |name, value| {
            found.push((name, value));
            Some(())
        })?;
        Some(found)
    }

    #[test]
    fn cuts_an_object_into_its_members() {
        let text = " {\"a\" : -10,\n\"b\":{\"c\":[1,[],{}]} ,\"ä\":\"ö\",\"t\":true,\"n\":null}\t";
        let expected = [
            ("a", "-10"),
            ("b", "{\"c\":[1,[],{}]}"),
            ("ä", "\"ö\""),
            ("t", "true"),
            ("n", "null"),
        ];
        assert_eq!(plain(text).unwrap(), expected);
        assert_eq!(plain("{}").unwrap(), []);
    }

    #[test]
    fn leaves_the_rest_to_others() {
        let odd = [
            "",
            "7",
            "{",
            "{} x",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":1.5}"#,
            r#"{"a":1e3}"#,
            r#"{"a":01}"#,
            r#"{"a":-}"#,
            r#"{"a":tru}"#,
            r#"{"a":"\n"}"#,
            "{\"a\":\"\n\"}",
            r#"{"a":[1,]}"#,
            r#"{1:1}"#,
            r#"{"a":"}"#,
        ];
        for text in odd {
            assert_eq!(plain(text), None, "{text}");
        }
    }

    #[test]
    fn nesting_just_under_and_just_over() {
        let of = |depth: u32| {
            let inner = depth as usize - 1;
            format!("{{\"a\":{}{}}}", "[".repeat(inner), "]".repeat(inner))
        };
        assert!(plain(&of(DEPTH_MAX)).is_some());
        assert_eq!(plain(&of(DEPTH_MAX + 1)), None);
    }

    proptest! {
        /// Whatever is found plain is JSON, and means the same to the general parser.
        #[test]
        fn agrees_with_the_general_parser(text in r#"[{}\[\]",:a-b0-1\\ .e\n-]{0,24}|\{("[a-c]?"[: ]{1,2}([0-9e.-]{1,3}|"[a-c\\]{0,2}"|true|null|\[1?,?\]|\{\})[,} ]{1,2}){0,3}\}?"#) {
            if let Some(found) = plain(&text) {
                let parsed: BTreeMap<String, &RawValue> = serde_json::from_str(&text).unwrap();
                for (name, value) in &found {
                    prop_assert!(parsed.contains_key(*name));
                    let raw: &RawValue = serde_json::from_str(value).unwrap();
                    prop_assert_eq!(raw.get(), *value);
                }
                let last: BTreeMap<_, _> = found.into_iter().collect();
                prop_assert_eq!(parsed.len(), last.len());
                for (name, value) in last {
                    prop_assert_eq!(parsed[name].get(), value);
                }
            }
        }
    }
}
