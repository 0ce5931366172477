//! `/mcp`: the MCP servers whose tools the shown agent may use.

use nexus_protocol::mcp::{
    McpConnect, McpConnectParams, McpDisconnect, McpDisconnectParams, McpListServers,
    McpListServersParams, McpPrompts, McpPromptsParams, McpResources, McpResourcesParams,
    McpServerEntry, McpStatus, McpStatusParams,
};

use serde_json::{Map, Value};

use super::flags::{refuse_flags, split};
use crate::cx::{Cx, Done, refuse};
use crate::figures::counted;
use crate::style::{Colour, Line, Style};

/// Pages of resources that are shown. A server may have them without end.
const PAGES_MAX: usize = 64;

pub async fn mcp(cx: &Cx, rest: &str) -> Done {
    let words = split(rest)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // They were the original's: what they asked for is decided elsewhere here.
    for flag in &words {
        match *flag {
            "--allow-all" | "--per-tool" => {
                return refuse(
                    "Leave is asked for with the first call of each tool, and `a` gives it for the session.",
                );
            }
            _ => {}
        }
    }
    let (shared, words) = whose(&words);
    refuse_flags(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())?;
    match words.as_slice() {
        [] => list(cx).await,
        ["connect" | "retry", server] => connect(cx, server, shared).await,
        ["disconnect", server] => disconnect(cx, server).await,
        ["tools"] => tools(cx, None).await,
        ["tools", server] => tools(cx, Some((*server).to_owned())).await,
        ["prompts"] => prompts(cx, None).await,
        ["prompts", server] => prompts(cx, Some((*server).to_owned())).await,
        ["resources"] => resources(cx, None).await,
        ["resources", server] => resources(cx, Some((*server).to_owned())).await,
        _ => refuse(
            "Usage: /mcp [connect|retry|disconnect NAME] or /mcp tools|prompts|resources [NAME]; connect takes --shared or --private",
        ),
    }
}

/// Whether `connect` is to have the process of all agents or one of this agent alone, where its flags say so; and the other
/// words. The last of several flags holds.
fn whose<'a>(words: &[&'a str]) -> (Option<bool>, Vec<&'a str>) {
    if words.first() != Some(&"connect") {
        return (None, words.to_vec());
    }
    let is_flag = |word: &&str| matches!(*word, "--shared" | "--private");
    let shared = words.iter().rfind(|word| is_flag(word)).map(|word| *word == "--shared");
    (shared, words.iter().copied().filter(|word| !is_flag(word)).collect())
}

async fn list(cx: &Cx) -> Done {
    let params = McpListServersParams::default();
    let servers = cx.of::<McpListServers>(cx.shown()?, params).await?.servers;
    if servers.is_empty() {
        cx.note("No MCP servers: mcp_servers of the configuration names them.");
    }
    cx.say_all(servers.iter().flat_map(describe).collect());
    Ok(())
}

fn describe(server: &McpServerEntry) -> Vec<Line> {
    let style = match server.state.as_str() {
        "ready" => Style::colour(Colour::Green),
        "failed" | "untrusted" => Style::colour(Colour::Red),
        _ => Style::DIM,
    };
    let tools = match server.visible {
        true => counted(u64::from(server.tool_count), "tool"),
        false => "none for this agent".into(),
    };
    let head = Line::styled(server.name.as_str(), Style::BOLD)
        .with(format!("  {}", server.state), style)
        .with(format!("  {tools}  {}", server.source), Style::PLAIN);
    let why = server.last_error.iter().flat_map(|why| why.lines());
    [head]
        .into_iter()
        .chain(why.map(|line| Line::styled(format!("  {line}"), Style::DIM)))
        .collect()
}

async fn connect(cx: &Cx, server: &str, shared: Option<bool>) -> Done {
    let params = McpConnectParams {
        server: Some(server.into()),
        config: None,
        source: None,
        shared,
        wait_ms: None,
    };
    let said = cx.of::<McpConnect>(cx.shown()?, params).await?;
    cx.note(match said.connected {
        true => format!("{server}: ready, {}", counted(said.tools.len() as u64, "tool")),
        false => format!("{server}: {}; it goes on starting", said.state),
    });
    Ok(())
}

async fn disconnect(cx: &Cx, server: &str) -> Done {
    let params = McpDisconnectParams { server: server.into() };
    let said = cx.of::<McpDisconnect>(cx.shown()?, params).await?;
    cx.note(match said.disconnected {
        true => format!("{server}: disconnected"),
        false => format!("{server} is not used by this agent"),
    });
    Ok(())
}

async fn tools(cx: &Cx, server: Option<String>) -> Done {
    let servers = cx.of::<McpStatus>(cx.shown()?, McpStatusParams { server }).await?.servers;
    let mut lines = Vec::new();
    for server in &servers {
        let said = counted(server.tools.len() as u64, "tool");
        lines.push(
            Line::styled(server.name.as_str(), Style::BOLD).with(format!("  {said}"), Style::DIM),
        );
        lines.extend(server.tools.iter().map(|tool| {
            Line::plain(format!("  {}", tool.name)).with(format!("  {}", tool.state), Style::DIM)
        }));
    }
    if lines.is_empty() {
        cx.note("No MCP servers: mcp_servers of the configuration names them.");
    }
    cx.say_all(lines);
    Ok(())
}

async fn prompts(cx: &Cx, server: Option<String>) -> Done {
    let params = McpPromptsParams { server };
    let prompts = cx.of::<McpPrompts>(cx.shown()?, params).await?.prompts;
    if prompts.is_empty() {
        cx.note("No prompts: of servers that do not run, only those that are named are asked.");
    }
    cx.say_all(prompts.iter().map(|prompt| had(prompt, "name")).collect());
    Ok(())
}

async fn resources(cx: &Cx, server: Option<String>) -> Done {
    let mut params = McpResourcesParams { server, cursor: None };
    for _ in 0..PAGES_MAX {
        let page = cx.of::<McpResources>(cx.shown()?, params).await?;
        if page.resources.is_empty() {
            cx.note(
                "No resources: of servers that do not run, only those that are named are asked.",
            );
        }
        let server = page.resources.first().map(|it| said(it, "server").to_owned());
        cx.say_all(page.resources.iter().map(|resource| had(resource, "uri")).collect());
        match page.next_cursor {
            Some(cursor) if server.is_some() => {
                params = McpResourcesParams { server, cursor: Some(cursor) };
            }
            _ => break,
        }
    }
    Ok(())
}

/// A line for something that a server has.
fn had(entry: &Map<String, Value>, name: &str) -> Line {
    let words = match said(entry, "description") {
        "" => said(entry, "title"),
        words => words,
    };
    Line::styled(said(entry, "server"), Style::BOLD)
        .with(format!("  {}", said(entry, name)), Style::PLAIN)
        .with(format!("  {}", words.lines().next().unwrap_or_default()), Style::DIM)
}

fn said<'a>(entry: &'a Map<String, Value>, name: &str) -> &'a str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}
