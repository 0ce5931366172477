//! How log entries look on paper. People show them on a terminal (`cat`, `tail -f`), so what others said must not steer
//! it.

use std::fmt::Write as _;

use nexus_core::message::{Message, Part, Role};
use nexus_core::visible;

/// An entry of `context.md`: what was said, by whom and when.
pub(super) fn context(message: &Message, out: &mut String) {
    if message.role == Role::User && !message.has_words() {
        // Words of ours alone: nobody said them.
        return;
    }
    heading(message, out);
    body(&message.text(), out);
    attachments(message, out);
    for call in message.calls() {
        push(
            out,
            format_args!("→ `{}` ({})\n\n", visible::line(&call.name), visible::line(&call.id)),
        );
    }
}

/// An entry of `verbose.md`: also where the message came from and with what arguments tools were called.
pub(super) fn verbose(message: &Message, out: &mut String) {
    heading(message, out);
    let meta = &message.meta;
    let facts = [
        ("turn", meta.turn.as_ref().map(ToString::to_string)),
        ("source", meta.source.clone()),
        ("source agent", meta.source_agent.as_ref().map(ToString::to_string)),
        ("answers call", message.tool_call_id.clone()),
        ("stands for messages", meta.covers.map(|count| count.to_string())),
    ];
    for (name, fact) in facts.iter().filter_map(|(name, fact)| Some((name, fact.as_ref()?))) {
        push(out, format_args!("- {name}: {}\n", visible::line(fact)));
    }
    if facts.iter().any(|(_, fact)| fact.is_some()) {
        out.push('\n');
    }
    for part in &message.parts {
        if let Part::Context(text) = part {
            push(out, format_args!("> {}\n\n", visible::line(text)));
        }
    }
    body(&message.text(), out);
    attachments(message, out);
    for call in message.calls() {
        let (name, id) = (visible::line(&call.name), visible::line(&call.id));
        let arguments = format!("{:#}", call.arguments);
        let arguments = visible::json(&arguments);
        push(out, format_args!("→ `{name}` ({id})\n\n```json\n{arguments}\n```\n\n"));
    }
}

fn heading(message: &Message, out: &mut String) {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Summary => "summary",
    };
    let interrupted = if message.meta.interrupted { " (interrupted)" } else { "" };
    push(out, format_args!("## {role} · {:.3}{interrupted}\n\n", message.meta.at));
}

fn body(content: &str, out: &mut String) {
    if !content.is_empty() {
        out.push_str(&visible::text(content.trim_end_matches('\n')));
        out.push_str("\n\n");
    }
}

/// What stands beside the text, by name.
fn attachments(message: &Message, out: &mut String) {
    for attachment in message.attachments() {
        push(out, format_args!("[{}]\n\n", visible::line(&attachment.words())));
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    out.write_fmt(text).ok();
}
