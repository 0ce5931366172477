//! Languages of data, and SQL. Their parsers stop at the first thing that they cannot read.

use saphyr_parser::Parser as YamlParser;
use serde::de::IgnoredAny;
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::{Parser as SqlParser, ParserError};

use super::lines::Unit;
use super::{Findings, Trouble};

pub fn json(code: &str, findings: &mut Findings<'_>) {
    // Reads without making anything of it, and so without calling itself for each level.
    let Err(error) = serde_json::from_str::<IgnoredAny>(code) else { return };
    let at = match error.is_eof() {
        true => code.len(),
        false => findings.lines.byte(error.line(), error.column(), Unit::Bytes),
    };
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
    findings.syntax(at..end_of_character(code, at), message);
}

pub fn yaml(code: &str, findings: &mut Findings<'_>) {
    for event in YamlParser::new_from_str(code) {
        let Err(error) = event else { continue };
        let marker = error.marker();
        let at = findings.lines.byte(marker.line(), marker.col() + 1, Unit::Characters);
        findings.syntax(at..end_of_character(code, at), error.info());
        break;
    }
}

pub fn toml(code: &str, findings: &mut Findings<'_>) -> Result<(), Trouble> {
    let Err(error) = toml::de::DeTable::parse(code) else { return Ok(()) };
    if error.message().contains("recursion limit") {
        return Err(Trouble::TooDeep);
    }
    let at = error.span().unwrap_or(0..0);
    findings.syntax(at.start..at.end.max(end_of_character(code, at.start)), error.message());
    Ok(())
}

/// Levels of an expression or a query. The parser's own stack is large here.
const SQL_DEPTH_MAX: usize = 1_000;

pub fn sql(code: &str, findings: &mut Findings<'_>) -> Result<(), Trouble> {
    let parsed = SqlParser::new(&GenericDialect {})
        .with_recursion_limit(SQL_DEPTH_MAX)
        .try_with_sql(code)
        .and_then(|mut parser| parser.parse_statements());
    let message = match parsed {
        Ok(_) => return Ok(()),
        Err(ParserError::RecursionLimitExceeded) => return Err(Trouble::TooDeep),
        Err(ParserError::ParserError(message) | ParserError::TokenizerError(message)) => message,
    };
    // `…, found: EOF at Line: 1, Column: 8`; without a place it is the end.
    let (message, place) = message.rsplit_once(" at Line: ").unwrap_or((&message, ""));
    let mut numbers = place.split(", Column: ").map(|number| number.trim().parse::<usize>().ok());
    let at = match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(line), Some(column)) => findings.lines.byte(line, column, Unit::Characters),
        _ => code.len(),
    };
    findings.syntax(at..end_of_character(code, at), message);
    Ok(())
}

/// Where the character at a byte ends: what cannot be read is shown by its first.
fn end_of_character(code: &str, at: usize) -> usize {
    let next = code.get(at..).and_then(|rest| rest.chars().next());
    at + next.filter(|next| *next != '\n').map_or(0, char::len_utf8)
}
