//! A command line split into words as a shell would, for a command that needs no shell.

/// Splits one simple command. What only a shell could do is refused by name, unless it is quoted.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.trim_matches(' ').chars();
    while let Some(char) = chars.next() {
        match char {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let quoted = word.get_or_insert_default();
                until('\'', &mut chars, |char, _| {
                    quoted.push(char);
                    Ok(())
                })?;
            }
            '"' => {
                let quoted = word.get_or_insert_default();
                until('"', &mut chars, |char, rest| {
                    quoted.push(in_double_quotes(char, rest)?);
                    Ok(())
                })?;
            }
            '\\' => match chars.next() {
                Some(escaped) if escaped != '\n' => word.get_or_insert_default().push(escaped),
                _ => return Err(refusal("\\ at the end of a line")),
            },
            // Only at the start of a word do these mean anything.
            '~' | '#' if word.is_some() => word.get_or_insert_default().push(char),
            char if META.contains(char) => return Err(refusal(&named(char))),
            char => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    match words.first() {
        None => Err("the command is empty".into()),
        Some(first) if assigns(first) => Err(format!("{first}: variables cannot be set here")),
        Some(_) => Ok(words),
    }
}

/// What a shell would act on: pipes, lists, redirections, substitutions, patterns, comments, history.
const META: &str = "|&;<>()$`*?[]{}~#!\n\r\0";

fn until<'a>(
    quote: char,
    chars: &mut std::str::Chars<'a>,
    mut take: impl FnMut(char, &mut std::str::Chars<'a>) -> Result<(), String>,
) -> Result<(), String> {
    while let Some(char) = chars.next() {
        match char {
            char if char == quote => return Ok(()),
            '\0' => return Err(refusal(&named(char))),
            char => take(char, chars)?,
        }
    }
    Err(format!("the quote {quote} is not closed"))
}

fn in_double_quotes(char: char, rest: &mut std::str::Chars<'_>) -> Result<char, String> {
    match char {
        '$' | '`' => Err(refusal(&named(char))),
        '\\' => {
            let mut ahead = rest.clone();
            match ahead.next() {
                Some(escaped @ ('"' | '\\' | '$' | '`')) => {
                    *rest = ahead;
                    Ok(escaped)
                }
                _ => Ok('\\'),
            }
        }
        char => Ok(char),
    }
}

fn named(char: char) -> String {
    match char {
        '\n' => "a line break".into(),
        '\r' => "a carriage return".into(),
        '\0' => "NUL".into(),
        char => char.to_string(),
    }
}

fn refusal(what: &str) -> String {
    format!(
        "{what} needs a shell: put it in single quotes if it is meant literally, or use shell_UNSAFE"
    )
}

/// Whether a shell would take the word for `NAME=value`.
fn assigns(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[&str]) {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(split(line), Ok(expected), "{line}");
    }

    #[test]
    fn words_are_what_a_shell_makes_of_them() {
        check("ls -la  src", &["ls", "-la", "src"]);
        check(" cat\t'a b' ", &["cat", "a b"]);
        check(r#"grep "a \"b\" \x" f"#, &["grep", r#"a "b" \x"#, "f"]);
        check(r"touch a\ b\*", &["touch", "a b*"]);
        check("echo '$HOME | * `x`'", &["echo", "$HOME | * `x`"]);
        check(r#"echo "\$HOME" "*;|&""#, &["echo", "$HOME", "*;|&"]);
        check("printf '' \"\"", &["printf", "", ""]);
        check("a'b'\"c\"d", &["abcd"]);
        check("git show HEAD~1 a#b", &["git", "show", "HEAD~1", "a#b"]);
        check("cmake -DX=1 --flag=a=b", &["cmake", "-DX=1", "--flag=a=b"]);
        check("grep -c ü Größe", &["grep", "-c", "ü", "Größe"]);
    }

    #[test]
    fn what_needs_a_shell_is_refused_by_name() {
        for (line, named) in [
            ("ls | wc", "|"),
            ("ls||rm", "|"),
            ("a & b", "&"),
            ("a; b", ";"),
            ("a > f", ">"),
            ("a < f", "<"),
            ("a 2>&1", ">"),
            ("(a)", "("),
            ("a )", ")"),
            ("echo $HOME", "$"),
            ("echo \"$HOME\"", "$"),
            ("echo `id`", "`"),
            ("echo \"`id`\"", "`"),
            ("ls *", "*"),
            ("ls a?", "?"),
            ("ls [ab]", "["),
            ("ls a]", "]"),
            ("echo {a,b}", "{"),
            ("echo a}", "}"),
            ("ls ~", "~"),
            ("ls ~/x", "~"),
            ("ls # all", "#"),
            ("!ls", "!"),
            ("a\nb", "a line break"),
            ("a \\\nb", "\\"),
            ("a\rb", "a carriage return"),
            ("a\0b", "NUL"),
            ("a '\0'", "NUL"),
            ("a \\", "\\"),
        ] {
            let refusal = split(line).unwrap_err();
            assert!(refusal.starts_with(&format!("{named} ")), "{line:?}: {refusal}");
        }
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for line in ["", "   ", "'a", "\"a", "a 'b\"", "X=1 env", "_a1=2"] {
            assert!(split(line).is_err(), "{line:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn single_quotes_keep_anything(word in "[^'\0]{0,20}") {
            assert_eq!(split(&format!("x '{word}'")), Ok(vec!["x".into(), word]));
        }

        #[test]
        fn splitting_never_panics(line in ".{0,40}") {
            let _ = split(&line);
        }
    }
}
