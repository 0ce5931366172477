//! `/approvals`: what waits for somebody's leave, and what became of the rest.

use jiff::Timestamp;
use nexus_protocol::form::Form;
use nexus_protocol::permission::{
    ApprovalEntry, ApprovalGrant, ListApprovals, ListApprovalsParams, Preview,
};

use super::flags::{refuse_flags, split, take};
use crate::app::is_question;
use crate::cx::{Cx, Done, refuse};
use crate::figures::{count, field};
use crate::shown::Shown;
use crate::style::{Colour, Line, Style};
use crate::toolview::{for_shell, raw_line};

pub async fn approvals(cx: &Cx, rest: &str) -> Done {
    let mut words = split(rest)?;
    let is_of_all = take(&mut words, "--all");
    refuse_flags(&words)?;
    if !words.is_empty() {
        return refuse("Usage: /approvals [--all]");
    }
    let params = ListApprovalsParams { agent_id: None, include_decided: is_of_all.then_some(true) };
    let approvals = cx.server::<ListApprovals>(params).await?.approvals;
    if approvals.is_empty() {
        cx.note(if is_of_all { "No approvals." } else { "Nothing waits for approval." });
    }
    let now = Timestamp::now();
    cx.say_all(approvals.iter().flat_map(|approval| describe(approval, now)).collect());
    Ok(())
}

fn describe(approval: &ApprovalEntry, now: Timestamp) -> Vec<Line> {
    let path: Vec<_> = approval.lineage.iter().chain([&approval.agent_id]).cloned().collect();
    let style = match approval.status == "pending" {
        true => Style::colour(Colour::Yellow),
        false => Style::DIM,
    };
    let mut lines = vec![
        Line::styled(approval.approval_id.as_str(), Style::BOLD)
            .with(format!("  {}  {}  ", path.join(" › "), approval.tool), Style::PLAIN)
            .with(state(approval, now), style),
        field("reason", approval.reason.as_str()),
    ];
    let asked = match &approval.preview {
        _ if is_question(approval) => asked(approval),
        Some(preview) => shown(preview),
        None => vec![judged("arguments", &[("", &approval.arguments.to_string())])],
    };
    lines.extend(asked);
    match &approval.grant {
        Some(ApprovalGrant::Write { path }) => {
            lines.push(judged("session", &[("may write ", path)]));
        }
        Some(ApprovalGrant::Command { tool, dir }) => {
            lines.push(judged("session", &[("", tool), (" may run commands in ", dir)]));
        }
        Some(ApprovalGrant::Mcp { server, tool }) => {
            let granted = [("may use ", tool.as_str()), (" of the MCP server ", server)];
            lines.push(judged("session", &granted));
        }
        None => {}
    }
    if let Some(message) = approval.message.as_ref().filter(|_| !is_question(approval)) {
        lines.push(field("said", message.as_str()));
    }
    lines
}

fn state(approval: &ApprovalEntry, now: Timestamp) -> String {
    let status = approval.status.replace('_', " ");
    let by = approval.decided_by.as_ref().map(|who| format!(" by {who}")).unwrap_or_default();
    let expires_at = approval.expires_at.as_deref().filter(|_| approval.status == "pending");
    match expires_at.and_then(|at| at.parse::<Timestamp>().ok()) {
        Some(at) => format!("{status}, {} s left", (at.as_second() - now.as_second()).max(0)),
        None => format!("{status}{by}"),
    }
}

/// What a server wants to know.
fn asked(approval: &ApprovalEntry) -> Vec<Line> {
    let message = approval.message.as_deref().unwrap_or_default();
    let mut lines = vec![field("asks", "")];
    lines.extend(message.lines().map(Line::plain));
    lines.extend(approval.url.iter().map(|url| judged("address", &[("", url)])));
    let form = approval.schema.as_ref().map(Form::of);
    let fields = form.into_iter().flat_map(|form| form.fields);
    lines.extend(fields.map(|it| field("field", format!("{}: {}", it.label, it.kind.hint()))));
    lines
}

/// What the call would do. Lines of a change stand without a prefix, so that they can be copied.
fn shown(preview: &Preview) -> Vec<Line> {
    match preview {
        Preview::Diff(change) => {
            let cut = if change.truncated { ", cut" } else { "" };
            let size = format!("+{} -{}{cut}", change.added, change.removed);
            let head =
                judged("change", &[("", &change.path)]).with(format!(" ({size})"), Style::PLAIN);
            [head].into_iter().chain(change.diff.lines().map(raw_line)).collect()
        }
        Preview::Command { argv, command, code, cwd, sandbox } => {
            let said =
                argv.as_ref().map(for_shell).or_else(|| command.clone()).or_else(|| code.clone());
            let mut lines = vec![field("command", "")];
            lines.extend(said.unwrap_or_default().lines().map(|line| judged("", &[("", line)])));
            lines.extend([judged("directory", &[("", cwd)]), field("sandbox", sandbox.as_str())]);
            lines
        }
        Preview::Agent { target, content } => {
            let head = field("tells", target.as_str());
            [head].into_iter().chain(content.lines().map(Line::plain)).collect()
        }
        Preview::Write { path, bytes } => {
            let size = format!(", {} bytes", count(*bytes));
            vec![judged("writes", &[("", path)]).with(size, Style::PLAIN)]
        }
    }
}

/// Commands and paths that somebody decides on, each behind words of ours: what only looks like a letter of them is
/// underlined.
fn judged(name: &str, pieces: &[(&str, &str)]) -> Line {
    let mut line = if name.is_empty() { Line::default() } else { field(name, "") };
    for (words, text) in pieces {
        line.push(*words, Style::PLAIN);
        line.spans.extend(Shown::suspicious(text, Style::PLAIN));
    }
    line
}
