//! `/copy` and `/export`: what was said, for elsewhere.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use nexus_protocol::conversation::{GetMessages, GetMessagesParams, MessageEntry};
use nexus_protocol::params::Bounded;

use super::agents::place;
use super::files::{Target, There};
use super::flags::{optional, refuse_flags, split};
use super::messages::Backwards;
use crate::cx::{Cx, Done, Front, Refused, refuse};
use crate::figures::{count, counted};

/// Most bytes that are put on the clipboard; terminals drop longer ones without a word.
pub const COPY_BYTES_MAX: usize = 100_000;

/// Messages of a page.
const PAGE: u32 = 200;

/// Copies the last answer, or a code block of it.
pub async fn copy(cx: &Cx, rest: &str) -> Done {
    let words = split(rest)?;
    refuse_flags(&words)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let block = match words.as_slice() {
        [] => None,
        ["code"] => Some(1),
        [number] | [number, "code"] => match number.parse::<usize>() {
            Ok(number) if number > 0 => Some(number),
            _ => return refuse("Usage: /copy, /copy code, or /copy N code"),
        },
        _ => return refuse("Usage: /copy, /copy code, or /copy N code"),
    };
    let answer = last_answer(cx).await?;
    let text = match block {
        None => answer,
        Some(number) => {
            let blocks = code_blocks(&answer);
            let there = counted(blocks.len() as u64, "code block");
            match blocks.into_iter().nth(number - 1) {
                Some(block) => block,
                None => return refuse(format!("The last answer has {there}.")),
            }
        }
    };
    if text.len() > COPY_BYTES_MAX {
        let (has, most) = (count(text.len() as u64), count(COPY_BYTES_MAX as u64));
        return refuse(format!("It has {has} bytes, and {most} can be copied: try /export."));
    }
    cx.dim(format!("copied {}", counted(text.chars().count() as u64, "character")));
    cx.tell(Front::Copy(text));
    Ok(())
}

async fn last_answer(cx: &Cx) -> Result<String, Refused> {
    let mut pages = Backwards::new(cx, cx.shown()?);
    while let Some(page) = pages.next().await? {
        let is_answer = |message: &MessageEntry| {
            message.role == "assistant" && !message.content.trim().is_empty()
        };
        if let Some(answer) = page.into_iter().rev().find(is_answer) {
            return Ok(answer.content);
        }
    }
    refuse("No answer yet.")
}

/// What stands between fences, without the indentation that the fence has.
fn code_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, usize, String)> = None;
    for line in text.lines() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        match &mut open {
            None => open = fence_of(bare).map(|fence| (fence, indent, String::new())),
            Some((fence, _, _)) if closes(bare, fence) => {
                blocks.extend(open.take().map(|(_, _, block)| block));
            }
            Some((_, indented, block)) => {
                block.push_str(line.get(indent.min(*indented)..).unwrap_or(bare));
                block.push('\n');
            }
        }
    }
    // An answer that was cut off has a block without an end.
    blocks.extend(open.map(|(_, _, block)| block));
    blocks
}

/// The three or more marks with which a block of code begins.
fn fence_of(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = line.chars().take_while(|c| *c == mark).count();
    let is_inline = mark == '`' && line[length..].contains('`');
    (length >= 3 && !is_inline).then(|| &line[..length])
}

fn closes(line: &str, fence: &str) -> bool {
    let line = line.trim_end();
    line.starts_with(fence) && line.chars().all(|c| fence.starts_with(c))
}

/// Writes the conversation into a file.
pub async fn export(cx: &Cx, rest: &str) -> Done {
    let given = optional(rest, "/export [FILE]")?;
    let agent = cx.shown()?;
    let path = match &given {
        Some(file) if file.starts_with('~') => place(&cx.making.cwd, file),
        Some(file) => PathBuf::from(file),
        None => PathBuf::from(format!("{}.md", agent.trim_start_matches('.'))),
    };
    let shown = path.display();
    let failed = |error: std::io::Error| Refused::Said(format!("{shown}: {error}"));
    let place = Target::new(&cx.making.cwd, &path).map_err(failed)?;
    let may_replace = match place.there().map_err(failed)? {
        There::Nothing => false,
        There::File => match cx.confirm(format!("{shown} exists. Replace it?")).await {
            true => true,
            false => return Ok(()),
        },
        There::Other => return refuse(format!("{shown} is there, and is no file.")),
    };
    let mut draft = place.draft(0o600).map_err(failed)?;
    writeln!(draft, "# {agent}").map_err(failed)?;
    let mut written = 0;
    loop {
        let params = GetMessagesParams {
            offset: Some(written),
            limit: Bounded::new(PAGE),
            ..GetMessagesParams::default()
        };
        let page = cx.of::<GetMessages>(agent, params).await?;
        for message in &page.messages {
            draft.write_all(markdown(agent, message).as_bytes()).map_err(failed)?;
        }
        written += page.messages.len() as u64;
        if page.messages.is_empty() || written >= page.total {
            break;
        }
    }
    draft.keep(may_replace).map_err(failed)?;
    cx.note(format!("Wrote {} to {shown}.", counted(written, "message")));
    Ok(())
}

/// A message, its calls and results under headings of their own.
fn markdown(agent: &str, message: &MessageEntry) -> String {
    let mut text = String::new();
    let content = message.content.trim_end();
    let meta = message.meta.as_ref();
    let from = meta.and_then(|meta| meta.source_agent_id.as_deref());
    let heading = match message.role.as_str() {
        "user" => from.map_or_else(|| "You".to_owned(), |from| format!("From {from}")),
        "assistant" => agent.to_owned(),
        "system" => "Summary of what was said before".to_owned(),
        role => format!("Result ({role})"),
    };
    if message.role == "tool" {
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        let _ = write!(text, "\n### Result of `{id}`\n\n{}", fenced("", content));
        return text;
    }
    let said = if content.is_empty() { message.context.as_deref() } else { Some(content) };
    let _ = write!(text, "\n## {heading}\n");
    if let Some(said) = said.filter(|said| !said.is_empty()) {
        let _ = write!(text, "\n{said}\n");
    }
    for attached in &message.attachments {
        let name = attached.name.as_deref().unwrap_or("without a name");
        let _ = write!(text, "\n*{}: {name} ({})*\n", attached.r#type, attached.mime_type);
    }
    for call in &message.tool_calls {
        let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
        let _ = write!(text, "\n### {} `{}`\n\n{}", call.name, call.id, fenced("json", &arguments));
    }
    text
}

/// A block of code whose fence is longer than any within.
fn fenced(language: &str, text: &str) -> String {
    let runs = text.split(|c| c != '`').map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or(0).max(2) + 1);
    format!("{fence}{language}\n{text}\n{fence}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_code() {
        let check = |text: &str, blocks: &[&str]| assert_eq!(code_blocks(text), blocks, "{text}");
        check("no code, `inline` and ```inline``` too", &[]);
        check("```rust\nlet a = 1;\n```\nand\n~~~\n```\n~~~", &["let a = 1;\n", "```\n"]);
        check("- a list\n  ```sh\n  ls\n    -l\n  ```", &["ls\n  -l\n"]);
        check("````md\n```\nx\n```\n````", &["```\nx\n```\n"]);
        check("```\ncut off", &["cut off\n"]);
        check("   ```\n é\n```", &["é\n"]);
    }

    #[test]
    fn fences_are_longer_than_those_within() {
        assert_eq!(fenced("", "a"), "```\na\n```\n");
        assert_eq!(fenced("", "```"), "````\n```\n````\n");
    }
}
