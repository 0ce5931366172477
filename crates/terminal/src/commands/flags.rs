//! The words behind a command: names, and the flags that agents are made with.

use crate::cx::{Refused, refuse};

/// What was said behind the name of a command that makes agents.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub words: Vec<String>,
    pub preset: Option<String>,
    pub model: Option<String>,
    pub cwd: Option<String>,
}

impl Flags {
    /// `--trusted -t`, `--sandboxed -s`, `--worker -w`, `--yolo -y`, `--preset NAME`, `--model|-m ALIAS`, `--cwd DIR`; those
    /// with a value also with `=`. An unknown flag is refused.
    pub fn read(rest: &str) -> Result<Self, Refused> {
        let mut flags = Self::default();
        let mut words = split(rest)?.into_iter();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if name.starts_with('-') => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            let mut value = |name: &str| match value.clone().or_else(|| words.next()) {
                Some(value) => Ok(Some(value)),
                None => refuse(format!("{name} needs a value")),
            };
            match name {
                "--trusted" | "-t" => flags.preset = Some("trusted".into()),
                "--sandboxed" | "-s" => flags.preset = Some("sandboxed".into()),
                "--worker" | "-w" => flags.preset = Some("worker".into()),
                "--yolo" | "-y" => flags.preset = Some("yolo".into()),
                "--preset" => flags.preset = value(name)?,
                "--model" | "-m" => flags.model = value(name)?,
                "--cwd" => flags.cwd = value(name)?,
                _ if name.starts_with('-') && name.len() > 1 => {
                    return refuse(format!("Unknown flag: {name}"));
                }
                _ => flags.words.push(word),
            }
        }
        Ok(flags)
    }

    /// Whether anything is said beside the words.
    pub fn are_given(&self) -> bool {
        self.preset.is_some() || self.model.is_some() || self.cwd.is_some()
    }
}

/// So many words and no flag, or how the command is used.
pub fn exactly<const N: usize>(rest: &str, usage: &str) -> Result<[String; N], Refused> {
    let words = unflagged(rest)?;
    words.try_into().or_else(|_| refuse(format!("Usage: {usage}")))
}

/// One word or none.
pub fn optional(rest: &str, usage: &str) -> Result<Option<String>, Refused> {
    let mut words = unflagged(rest)?.into_iter();
    match (words.next(), words.next()) {
        (word, None) => Ok(word),
        _ => refuse(format!("Usage: {usage}")),
    }
}

pub fn nothing(rest: &str, usage: &str) -> Result<(), Refused> {
    exactly::<0>(rest, usage).map(|_| ())
}

fn unflagged(rest: &str) -> Result<Vec<String>, Refused> {
    let words = split(rest)?;
    refuse_flags(&words)?;
    Ok(words)
}

/// Takes `flag` out of `words`, and says whether it was there.
pub fn take(words: &mut Vec<String>, flag: &str) -> bool {
    let before = words.len();
    words.retain(|word| word != flag);
    words.len() < before
}

/// Refuses what is left of flags.
pub fn refuse_flags(words: &[String]) -> Result<(), Refused> {
    match words.iter().find(|word| word.starts_with('-') && word.len() > 1) {
        Some(flag) => refuse(format!("Unknown flag: {flag}")),
        None => Ok(()),
    }
}

/// Words between blanks; quotes hold one together.
pub fn split(rest: &str) -> Result<Vec<String>, Refused> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in rest.chars() {
        match quote {
            Some(open) if open == c => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return refuse("A quote is not closed.");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_words() {
        let flags = Flags::read("worker-1 -t --model=opus --cwd '/a b'").unwrap();
        assert_eq!(flags.words, ["worker-1"]);
        assert_eq!(flags.preset.as_deref(), Some("trusted"));
        assert_eq!(flags.model.as_deref(), Some("opus"));
        assert_eq!(flags.cwd.as_deref(), Some("/a b"));
        assert_eq!(Flags::read("x --nope").unwrap_err().to_string(), "Unknown flag: --nope");
        assert_eq!(Flags::read("x -m").unwrap_err().to_string(), "-m needs a value");
        assert_eq!(Flags::read("'x").unwrap_err().to_string(), "A quote is not closed.");
    }

    #[test]
    fn so_many_words_and_no_flag() {
        assert_eq!(exactly("a 'b c'", "/x").unwrap(), ["a", "b c"]);
        assert_eq!(exactly::<1>("a b", "/x A").unwrap_err().to_string(), "Usage: /x A");
        assert_eq!(exactly::<2>("a -f", "/x").unwrap_err().to_string(), "Unknown flag: -f");
        assert_eq!(optional("", "/x").unwrap(), None);
        assert_eq!(optional("-", "/x").unwrap().as_deref(), Some("-"));
        assert_eq!(optional("a b", "/x [A]").unwrap_err().to_string(), "Usage: /x [A]");
        let mut words = vec!["--all".to_owned(), "a".to_owned()];
        assert!(take(&mut words, "--all"));
        assert!(!take(&mut words, "--all"));
        assert_eq!(words, ["a"]);
    }
}
