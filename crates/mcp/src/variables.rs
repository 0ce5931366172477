//! `${NAME}` in what is configured: the value of a variable of this process, looked up when a server starts.

use std::collections::BTreeMap;

/// `text` with its variables filled in. `${NAME:-text}` has a text for where there is none. An error names what is missing.
pub fn fill(text: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        filled.push_str(before);
        let Some(end) = after.find('}') else {
            return Err(format!("{text:?} has a ${{ without its }}"));
        };
        let (name, otherwise) = match after[..end].split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (&after[..end], None),
        };
        match (variables.get(name).filter(|value| !value.is_empty()), otherwise) {
            (Some(value), _) => filled.push_str(value),
            (None, Some(otherwise)) => filled.push_str(otherwise),
            (None, None) => return Err(format!("the environment has no {name}")),
        }
        rest = &after[end + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let variables = BTreeMap::from([("A".into(), "x".into()), ("EMPTY".into(), String::new())]);
        let filled = fill(text, &variables);
        assert_eq!(filled.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn variables_are_filled_in_and_missing_ones_named() {
        check("plain $A {A}", Ok("plain $A {A}"));
        check("${A}", Ok("x"));
        check("-${A}-${A}-", Ok("-x-x-"));
        check("${B:-y}${A:-y}", Ok("yx"));
        check("${EMPTY:-y}", Ok("y"));
        check("${B}", Err("the environment has no B"));
        check("${EMPTY}", Err("the environment has no EMPTY"));
        check("a${A", Err("\"a${A\" has a ${ without its }"));
    }
}
