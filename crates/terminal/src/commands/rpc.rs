//! `/rpc`, `/trace` and `/curl`: everything here is a call that anybody can make.

use std::path::Path;

use nexus_client::token::file_name;
use nexus_client::{Environment, PORT_DEFAULT, Target};
use nexus_protocol::Method;
use nexus_protocol::conversation::{Compact, GetContext, GetMessages, GetTokens};
use nexus_protocol::mcp::{
    McpConnect, McpDisconnect, McpGetPrompt, McpListServers, McpPrompts, McpReadResource,
    McpResources, McpReview, McpStatus,
};
use nexus_protocol::permission::{ExplainPermission, GetPermissions, ListTools, SetPermissions};
use nexus_protocol::settings::{GetModel, GetSystemPrompt, SetCwd, SetModel, SetSystemPrompt};
use nexus_protocol::turn::{Cancel, ResumeTurn, Send};
use nexus_protocol::watch::Watch;
use serde_json::{Value, json};

use super::flags::{exactly, nothing};
use super::permissions::object;
use crate::cx::{Cx, Done, refuse};
use crate::figures::lines;
use crate::link::Call;
use crate::style::Line;

/// The methods of one agent, as which the shown one is meant. `shutdown` is not among them: without an agent it stops
/// the server, and who says that has to say which he means.
const OF_AN_AGENT: [&str; 25] = [
    Cancel::NAME,
    Compact::NAME,
    ExplainPermission::NAME,
    GetContext::NAME,
    GetMessages::NAME,
    GetModel::NAME,
    GetPermissions::NAME,
    GetSystemPrompt::NAME,
    GetTokens::NAME,
    ListTools::NAME,
    McpConnect::NAME,
    McpDisconnect::NAME,
    McpGetPrompt::NAME,
    McpListServers::NAME,
    McpPrompts::NAME,
    McpReadResource::NAME,
    McpResources::NAME,
    McpReview::NAME,
    McpStatus::NAME,
    ResumeTurn::NAME,
    Send::NAME,
    SetCwd::NAME,
    SetModel::NAME,
    SetPermissions::NAME,
    SetSystemPrompt::NAME,
];

pub async fn rpc(cx: &Cx, rest: &str) -> Done {
    let (method, said) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if method.is_empty() {
        return refuse("Usage: /rpc METHOD [JSON]");
    }
    if method == Watch::NAME {
        return refuse("watch stays open: nexus3 rpc watch prints what it tells.");
    }
    let params = match said.trim() {
        "" => json!({}),
        said => object(said)?,
    };
    let target = match &cx.agent {
        Some(agent) if OF_AN_AGENT.contains(&method) && params.get("agent_id").is_none() => {
            Target::Agent(agent.clone())
        }
        _ => Target::Server,
    };
    let answer = match cx.link.value(&target, method, params).await {
        Ok(answer) => answer,
        Err(error) => return Err(error.into()),
    };
    cx.say_all(lines(&serde_json::to_string_pretty(&answer).unwrap_or_default()));
    Ok(())
}

pub async fn trace(cx: &Cx, rest: &str) -> Done {
    let [word] = exactly(rest, "/trace on|off")?;
    match word.as_str() {
        "on" => {
            cx.link.trace(true);
            cx.dim("each call and its answer are printed from here on");
        }
        "off" => {
            cx.link.trace(false);
            cx.dim("calls are no longer printed");
        }
        _ => return refuse("Usage: /trace on|off"),
    }
    Ok(())
}

pub async fn curl(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/curl")?;
    let Some(call) = cx.link.last() else { return refuse("Nothing was called yet.") };
    let Some(url) = &cx.link.url else {
        return refuse("This server is reached by its socket alone, which curl does not speak.");
    };
    let home = Environment::of_process().home;
    let usual = std::env::home_dir().map(|home| home.join(".nexus3"));
    let home = home.filter(|home| usual.as_ref() != Some(home));
    cx.say_all(
        for_shell(url, home.as_deref(), &call)
            .iter()
            .map(|line| Line::plain(line.as_str()))
            .collect(),
    );
    Ok(())
}

/// Two lines for a shell. The token is read from its file, and reaches curl on its standard input: a command line can be
/// read by everybody on the machine. `home` is where that file is, if not where it usually is.
fn for_shell(url: &str, home: Option<&Path>, call: &Call) -> [String; 2] {
    let url = url.trim_end_matches('/');
    let port = url.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let file = file_name(port.unwrap_or(PORT_DEFAULT));
    let file = match home {
        Some(home) => quoted(&home.join(file).display().to_string()),
        None => format!("~/.nexus3/{file}"),
    };
    let address = match &call.target {
        Target::Server => format!("{url}/rpc"),
        Target::Agent(agent) => format!("{url}/agent/{agent}"),
    };
    let mut body = json!({"jsonrpc": "2.0", "method": call.method});
    if call.params.as_object().is_some_and(|params| !params.is_empty()) {
        body["params"] = call.params.clone();
    }
    body["id"] = Value::from(1);
    [
        format!("token=$(cat {file})"),
        format!(
            r#"printf 'Authorization: Bearer %s\n' "$token" | curl -sw '\n' {} -H @- -d {}"#,
            quoted(&address),
            quoted(&body.to_string())
        ),
    ]
}

/// One word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_a_shell() {
        let call = |target, params| Call { target, method: "send".into(), params };
        let printf = r#"printf 'Authorization: Bearer %s\n' "$token" | curl -sw '\n'"#;
        let check = |url, home: Option<&str>, call: &Call, lines: [String; 2]| {
            assert_eq!(for_shell(url, home.map(Path::new), call), lines);
        };
        check(
            "http://127.0.0.1:8765/",
            None,
            &call(Target::Agent("main".into()), json!({"content": "it's"})),
            [
                "token=$(cat ~/.nexus3/rpc.token)".into(),
                format!(
                    r#"{printf} 'http://127.0.0.1:8765/agent/main' -H @- -d '{{"jsonrpc":"2.0","method":"send","params":{{"content":"it'\''s"}},"id":1}}'"#
                ),
            ],
        );
        check(
            "http://127.0.0.1:9000",
            Some("/a b"),
            &call(Target::Server, json!({})),
            [
                "token=$(cat '/a b/rpc-9000.token')".into(),
                format!(
                    r#"{printf} 'http://127.0.0.1:9000/rpc' -H @- -d '{{"jsonrpc":"2.0","method":"send","id":1}}'"#
                ),
            ],
        );
    }

    /// The reference is made from the method table, so a new method is missed here by name.
    #[test]
    fn all_methods_of_agents_are_known() {
        let reference = include_str!("../../../../docs/rpc.md");
        let (_, of_agents) = reference.split_once("## Methods of agent scope").unwrap();
        let headings = of_agents.lines().filter_map(|line| line.strip_prefix("### `"));
        let mut named: Vec<_> = headings.map(|name| name.trim_end_matches('`')).collect();
        named.retain(|name| *name != "shutdown");
        assert_eq!(named, OF_AN_AGENT);
    }
}
