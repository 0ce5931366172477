//! Custom permission presets. Each starts from another one and can only take away from it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use nexus_core::approval::ApprovalMode;
use nexus_core::mcp::McpReach;
use nexus_core::permission::{Level, Preset, Reach};

use super::schema;
use super::value::{Object, Table, Text};
use super::{Fault, Permissions};

/// More presets than people tell apart; it also bounds what a long chain of `extends` can add up to.
const PRESETS_MAX: usize = 256;

/// What the most careful start is: the preset for agents and presets that name no other.
const LEAST: &str = "sandboxed";

/// Long enough for a person to notice and read what is asked.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) fn resolve(
    written: schema::Permissions,
    user_home: Option<&Path>,
) -> Result<Permissions, Fault> {
    let table = written.presets.unwrap_or(Table(Vec::new()));
    let presets = Presets::new(table, user_home)?.resolve_all()?;

    let default_preset =
        written.default_preset.map_or_else(|| LEAST.to_string(), |Text(name)| name);
    let key = ["permissions", "default_preset"];
    let timeout = written.approval_timeout.map_or(APPROVAL_TIMEOUT, |it| it.0);
    let written = written.approvals.map(|it| it.0);
    let approvals = match written {
        Some("ask") => ApprovalMode::Ask { timeout },
        Some("auto") => ApprovalMode::Auto { timeout },
        _ => ApprovalMode::Deny,
    };
    let permissions = Permissions {
        default_preset,
        approvals,
        approval_timeout: timeout,
        approvals_unsaid: written.is_none(),
        network: true,
        presets,
    };
    match check_default(&permissions, &permissions.default_preset) {
        Ok(()) => Ok(permissions),
        Err(reason) => Err(Fault::new(&key, reason)),
    }
}

/// Whether agents may have this preset without anybody asking for it; if not, why.
pub(super) fn check_default(permissions: &Permissions, name: &str) -> Result<(), String> {
    match permissions.preset(name) {
        Some(preset) if preset.level == Level::Yolo => {
            Err("yolo is given by a person at the terminal, never by default".into())
        }
        Some(_) => Ok(()),
        None => Err(format!("there is no preset {name:?}")),
    }
}

struct Presets {
    written: BTreeMap<String, Written>,
}

/// A preset as written, with its paths made absolute.
struct Written {
    extends: String,
    allowed_paths: Option<BTreeSet<PathBuf>>,
    blocked_paths: BTreeSet<PathBuf>,
    tools: Vec<(String, bool)>,
    mcp: Option<McpReach>,
}

impl Presets {
    fn new(table: Table<Object<schema::Preset>>, user_home: Option<&Path>) -> Result<Self, Fault> {
        let mut written = BTreeMap::new();
        for (name, Object(preset)) in table.into_entries() {
            if Preset::built_in(&name).is_some() {
                let reason = format!("{name} is built in and cannot be redefined");
                return Err(Fault::new(&["permissions", "presets", &name], reason));
            }
            let paths = |key: &str, paths| {
                absolute(paths, user_home)
                    .map_err(|reason| Fault::new(&["permissions", "presets", &name, key], reason))
            };
            let tools = preset.tool_permissions.into_iter().flat_map(Table::into_entries);
            let preset = Written {
                extends: preset.extends.map_or_else(|| LEAST.to_string(), |Text(base)| base),
                allowed_paths: paths("allowed_paths", preset.allowed_paths)?,
                blocked_paths: paths("blocked_paths", preset.blocked_paths)?.unwrap_or_default(),
                tools: tools
                    .map(|(tool, Object(rule))| (tool, rule.enabled.unwrap_or(true)))
                    .collect(),
                mcp: preset.mcp.map(mcp).transpose().map_err(|reason| {
                    Fault::new(&["permissions", "presets", &name, "mcp"], reason)
                })?,
            };
            written.insert(name, preset);
        }
        if written.len() > PRESETS_MAX {
            return Err(Fault::new(
                &["permissions", "presets"],
                format!("more than {PRESETS_MAX} presets"),
            ));
        }
        Ok(Self { written })
    }

    fn resolve_all(&self) -> Result<BTreeMap<String, Preset>, Fault> {
        let mut done = BTreeMap::new();
        for name in self.written.keys() {
            let mut chain = Vec::new();
            let mut base = self.start(name, &mut chain, &done)?;
            for (name, written) in chain.into_iter().rev() {
                base = narrow(name, written, &base)?;
                done.insert(name.clone(), base.clone());
            }
        }
        Ok(done)
    }

    /// Follows `extends` from `name` to a preset that is known, noting what lies between.
    fn start<'a>(
        &'a self,
        name: &'a str,
        chain: &mut Vec<(&'a String, &'a Written)>,
        done: &BTreeMap<String, Preset>,
    ) -> Result<Preset, Fault> {
        let mut current = name;
        loop {
            if let Some(preset) = done.get(current).cloned().or_else(|| Preset::built_in(current)) {
                return Ok(preset);
            }
            let last = chain.last().map_or(name, |(last, _)| last.as_str());
            let key = ["permissions", "presets", last, "extends"];
            let Some((known, written)) = self.written.get_key_value(current) else {
                return Err(Fault::new(&key, format!("there is no preset {current:?}")));
            };
            if chain.iter().any(|(name, _)| *name == known) {
                return Err(Fault::new(&key, "the presets extend each other in a circle".into()));
            }
            chain.push((known, written));
            current = &written.extends;
        }
    }
}

/// The tools that change files: what a preset that extends `worker` cannot enable. A test of the tools holds it to what
/// they say of themselves.
pub const WRITE_TOOLS: [&str; 9] = [
    "append_file",
    "copy_file",
    "edit_file",
    "edit_lines",
    "mkdir",
    "patch",
    "regex_replace",
    "rename",
    "write_file",
];

/// `base` with what `written` takes away. Anything that would add to it is refused.
fn narrow(name: &str, written: &Written, base: &Preset) -> Result<Preset, Fault> {
    let extends = Some(written.extends.clone());
    let mut preset = Preset { name: name.into(), extends, ..base.clone() };
    if let Some(paths) = &written.allowed_paths {
        let outside = match &base.allowed_paths {
            Some(allowed) => {
                paths.iter().find(|path| !Reach::Beneath(allowed.clone()).contains(path))
            }
            None => None,
        };
        if let Some(path) = outside {
            let reason = format!("{} lies outside what {} allows", path.display(), base.name);
            return Err(Fault::new(&["permissions", "presets", name, "allowed_paths"], reason));
        }
        preset.allowed_paths = Some(paths.clone());
    }
    if let Some(mcp) = &written.mcp {
        // A level without any has no such bound: what is handed out by name is this.
        if base.mcp.as_ref().is_some_and(|base| !mcp.within(base)) {
            let reason =
                format!("a tool lies outside what {} has; a preset can only narrow", base.name);
            return Err(Fault::new(&["permissions", "presets", name, "mcp"], reason));
        }
        preset.mcp = Some(mcp.clone());
    }
    preset.blocked_paths.extend(written.blocked_paths.iter().cloned());
    for (tool, enabled) in &written.tools {
        if !enabled {
            preset.disabled_tools.insert(tool.clone());
        } else if base.disabled_tools.contains(tool)
            || (base.writes_nothing && WRITE_TOOLS.contains(&tool.as_str()))
        {
            let key = ["permissions", "presets", name, "tool_permissions", tool, "enabled"];
            return Err(Fault::new(
                &key,
                format!("{} disables this tool; a preset can only narrow", base.name),
            ));
        }
    }
    Ok(preset)
}

/// Tools of MCP servers as they are named.
fn mcp(written: Table<Vec<Text>>) -> Result<McpReach, String> {
    let named = written
        .into_entries()
        .map(|(server, tools)| (server, tools.into_iter().map(|Text(tool)| tool).collect()));
    McpReach::parse(named.collect())
}

fn absolute(
    paths: Option<Vec<Text>>,
    user_home: Option<&Path>,
) -> Result<Option<BTreeSet<PathBuf>>, String> {
    let Some(paths) = paths else { return Ok(None) };
    paths
        .iter()
        .map(|Text(path)| expand(path, user_home).map(|path| real(&path)))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// An absolute path, or one in the user's home. Relative paths are refused: files from several directories are
/// merged, so it could not be told what they are relative to.
pub(super) fn expand(text: &str, user_home: Option<&Path>) -> Result<PathBuf, String> {
    let path = match (text.strip_prefix('~'), user_home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(text),
    };
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!(
            "{text:?} is not an absolute path (or one that starts with ~/) without .."
        ));
    }
    Ok(path)
}

/// The path with the symbolic links of its existing part resolved, since it is compared with resolved paths.
fn real(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (existing.canonicalize(), path.strip_prefix(existing)) {
            return real.join(rest).components().collect();
        }
    }
    path.components().collect()
}
