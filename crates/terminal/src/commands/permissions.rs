//! `/permissions`: what an agent may do, and changing it.

use nexus_protocol::params::NoParams;
use nexus_protocol::permission::{
    ExplainPermission, ExplainPermissionParams, GetPermissions, GetPermissionsResult, ListTools,
    SetPermissions, SetPermissionsParams, ToolEntry,
};
use serde_json::Value;

use super::flags::split;
use crate::cx::{Cx, Done, Refused, refuse};
use crate::figures::field;
use crate::style::{Colour, Line, Style};

/// The preset that is allowed everything.
const YOLO: &str = "yolo";

const USAGE: &str = "Usage: /permissions [PRESET] [--enable TOOL] [--disable TOOL], \
                     /permissions --list-tools, or /permissions --explain TOOL [JSON]";

pub async fn permissions(cx: &Cx, rest: &str) -> Done {
    let agent = cx.shown()?;
    match read(rest)? {
        Wish::Show => {
            let permissions = cx.of::<GetPermissions>(agent, NoParams {}).await?;
            cx.say_all(describe(agent, &permissions));
        }
        Wish::Tools => cx.say_all(tools(cx, agent).await?),
        Wish::Explain(params) => explain(cx, agent, params).await?,
        Wish::Change(params) => change(cx, agent, params).await?,
    }
    Ok(())
}

enum Wish {
    Show,
    Tools,
    Explain(ExplainPermissionParams),
    Change(SetPermissionsParams),
}

fn read(rest: &str) -> Result<Wish, Refused> {
    // The rest of the line is JSON, whose quotes are its own.
    if let Some(("--explain", asked)) = rest.split_once(char::is_whitespace) {
        let asked = asked.trim_start();
        let (tool, json) = asked.split_once(char::is_whitespace).unwrap_or((asked, ""));
        let arguments = match json.trim() {
            "" => None,
            json => Some(object(json)?),
        };
        return Ok(Wish::Explain(ExplainPermissionParams { tool: tool.into(), arguments }));
    }
    let (mut words, mut params) = (split(rest)?.into_iter(), SetPermissionsParams::default());
    let (mut is_changed, mut is_list) = (false, false);
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        match name {
            "--list-tools" if value.is_none() => is_list = true,
            "--enable" | "--disable" => {
                let tools = match name {
                    "--enable" => &mut params.enable_tools,
                    _ => &mut params.disable_tools,
                };
                match value.or_else(|| words.next()) {
                    Some(tool) => tools.get_or_insert_default().push(tool),
                    None => return refuse(format!("{name} needs the name of a tool")),
                }
                is_changed = true;
            }
            "--explain" => return refuse(USAGE),
            _ if name.starts_with('-') => return refuse(format!("Unknown flag: {name}")),
            _ if params.preset.is_some() => return refuse(USAGE),
            _ => {
                params.preset = Some(word);
                is_changed = true;
            }
        }
    }
    match (is_changed, is_list) {
        (true, true) => refuse(USAGE),
        (true, false) => Ok(Wish::Change(params)),
        (false, true) => Ok(Wish::Tools),
        (false, false) => Ok(Wish::Show),
    }
}

/// Parameters that were typed.
pub fn object(json: &str) -> Result<Value, Refused> {
    match serde_json::from_str(json) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => refuse("Not an object: what is given is written as {\"name\": value}."),
        Err(error) => refuse(format!("Not JSON: {error}")),
    }
}

async fn change(cx: &Cx, agent: &str, params: SetPermissionsParams) -> Done {
    if let Some(preset) = &params.preset
        && !is_wanted(cx, agent, preset).await
    {
        return Ok(());
    }
    let now = cx.of::<SetPermissions>(agent, params).await?;
    let text = format!("{agent} is now {} ({}).", now.preset, now.permission_level);
    match now.permission_level == YOLO {
        true => cx.say(Line::styled(text, Style::colour(Colour::Red).bold())),
        false => cx.note(text),
    }
    Ok(())
}

/// Asks before an agent is allowed everything. Whether it can be is the server's to say.
pub async fn is_wanted(cx: &Cx, agent: &str, preset: &str) -> bool {
    if preset != YOLO {
        return true;
    }
    let what = format!("yolo lets '{agent}' do everything, unasked and without a sandbox.");
    cx.confirm(format!("{what} Is that what you want?")).await
}

async fn explain(cx: &Cx, agent: &str, params: ExplainPermissionParams) -> Done {
    let tool = params.tool.clone();
    let said = cx.of::<ExplainPermission>(agent, params).await?;
    let outcome = match (said.allowed, said.needs_approval) {
        (_, true) => "needs approval",
        (true, false) => "is allowed",
        (false, false) => "is refused",
    };
    let rule = said.rule.map(|rule| format!(" by the rule '{rule}'")).unwrap_or_default();
    let reason = said.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    cx.note(format!("{tool} {outcome}{rule}{reason}"));
    Ok(())
}

fn describe(agent: &str, permissions: &GetPermissionsResult) -> Vec<Line> {
    let GetPermissionsResult { preset, permission_level, policy, session_allowances, .. } =
        permissions;
    let style = match permission_level == YOLO {
        true => Style::colour(Colour::Red).bold(),
        false => Style::PLAIN,
    };
    let able = |is_able: bool| if is_able { "yes" } else { "no" };
    let mut lines = vec![
        Line::styled(agent, Style::BOLD).with(format!("  {preset} ({permission_level})"), style),
        field("directory", policy.cwd.as_str()),
        field("reads", paths(policy.allowed_paths.as_deref())),
        field("writes", paths(policy.write_paths.as_deref())),
    ];
    if !policy.blocked_paths.is_empty() {
        lines.push(field("never", policy.blocked_paths.join(", ")));
    }
    let (network, commands) = (able(permissions.network), able(permissions.commands));
    lines.push(field("network", network));
    lines.push(field("commands", commands));
    lines.push(field("sandbox", permissions.sandbox.as_str()));
    lines.push(field("limits", permissions.limits.as_str()));
    if !permissions.disabled_tools.is_empty() {
        lines.push(field("off", permissions.disabled_tools.join(", ")));
    }
    let writes = session_allowances.write_paths.iter();
    lines.extend(writes.map(|path| field("granted", format!("write {path}"))));
    for (tool, directories) in &session_allowances.exec_dirs {
        lines.push(field("granted", format!("{tool} in {}", directories.join(", "))));
    }
    lines
}

fn paths(paths: Option<&[String]>) -> String {
    match paths {
        None => "anywhere".into(),
        Some([]) => "nowhere".into(),
        Some(paths) => paths.join(", "),
    }
}

/// A line for each tool of the server, and whether the agent has any use of it.
pub async fn tools(cx: &Cx, agent: &str) -> Result<Vec<Line>, Refused> {
    let tools = cx.of::<ListTools>(agent, NoParams {}).await?.tools;
    let line = |tool: &ToolEntry| {
        let state = match (tool.offered, tool.rule.as_deref()) {
            (true, _) => "on".to_owned(),
            (false, Some(rule)) => format!("off by the rule '{rule}'"),
            (false, None) => "off".to_owned(),
        };
        let style = if tool.offered { Style::PLAIN } else { Style::DIM };
        Line::styled(format!("  {:<16} {:<8} {state}", tool.name, tool.kind), style)
    };
    Ok(tools.iter().map(line).collect())
}
