//! The MCP servers that agents may use: found in the files that name them, and made into entries.
//!
//! They stand in `mcp_servers` of a configuration, in a `mcp.json` beside it, and in the `.mcp.json` that other programs
//! read too. The nearer entry of a name takes the place of the farther one as a whole. What a project wrote wrongly is
//! that server's affair; what the user did stops the start.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::Glob;
use nexus_core::mcp::{
    Asks, Auth, Defer, Eligibility, Pins, Program, Remote, SERVER_NAME_RULE, SERVERS_MAX, Sandbox,
    ServerEntry, ServerSource, Way, server_name,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ConfigError;
use super::presets::expand;
use super::value::{Choice, Choices, Object, Seconds, Text};

/// What one file says of servers.
#[derive(Debug)]
pub(super) struct Source {
    pub file: PathBuf,
    /// The key that they stand under.
    pub key: &'static str,
    pub servers: Value,
    /// Whose file it is, unless it is the user's own.
    pub project: Option<Project>,
}

#[derive(Clone, Debug)]
pub(super) struct Project {
    pub dir: PathBuf,
    pub trusted: bool,
}

/// Keys of an entry that mean something in MCP's world, and nothing here yet: to pass over one would be to do something
/// else than was asked for.
pub(super) const NOT_YET: [&str; 1] = ["oauth"];

/// Keys of other programs by which they are told not to ask. Here nobody but the user says that.
const PASSED_OVER: [&str; 3] = ["alwaysAllow", "autoApprove", "trust"];

/// An entry as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    command: Option<Words>,
    args: Option<Vec<String>>,
    cwd: Option<Text>,
    env: Option<BTreeMap<String, String>>,
    env_passthrough: Option<Vec<Text>>,
    sandbox: Option<Object<WrittenSandbox>>,
    url: Option<Text>,
    headers: Option<BTreeMap<String, String>>,
    private: Option<bool>,
    auth: Option<Object<WrittenAuth>>,
    enabled: Option<bool>,
    disabled: Option<bool>,
    fail_if_no_tools: Option<bool>,
    eager: Option<bool>,
    share: Option<bool>,
    startup_timeout: Option<Seconds<100, 600_000>>,
    timeout: Option<Seconds<100, 86_400_000>>,
    idle_timeout: Option<Seconds<100, 86_400_000>>,
    approve: Option<Approve>,
    pin: Option<Choice<PinWords>>,
    defer: Option<Choice<DeferWords>>,
    elicitation: Option<Choice<AskWords>>,
    sampling: Option<Choice<AskWords>>,
    roots: Option<bool>,
    tools: Option<Object<Tools>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a list of texts")]
enum Words {
    One(String),
    List(Vec<String>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tools {
    allow: Option<Vec<Text>>,
    deny: Option<Vec<Text>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSandbox {
    read: Option<Vec<Text>>,
    write: Option<Vec<Text>>,
    network: Option<bool>,
    required: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAuth {
    scopes: Option<Vec<Text>>,
    client_id: Option<Text>,
    client_secret_env: Option<Text>,
}

/// When calls need a person's leave: of all tools, or by patterns of their names.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected ask, never or always, or an object of those by patterns of tools"
)]
enum Approve {
    All(Choice<Approvals>),
    By(BTreeMap<String, Choice<Approvals>>),
}

#[derive(Debug)]
struct Approvals;

impl Choices for Approvals {
    const ALL: &'static [&'static str] = &["ask", "never", "always"];
}

/// What is done with tools that changed.
#[derive(Debug)]
struct PinWords;

impl Choices for PinWords {
    const ALL: &'static [&'static str] = &["strict", "off"];
}

/// Whether the model is shown the tools.
#[derive(Debug)]
struct DeferWords;

impl Choices for DeferWords {
    const ALL: &'static [&'static str] = &["auto", "never", "always"];
}

/// Whether a server may ask people.
#[derive(Debug)]
struct AskWords;

impl Choices for AskWords {
    const ALL: &'static [&'static str] = &["ask", "deny"];
}

/// The servers of all files, weakest first, by name.
pub(super) fn resolve(
    sources: &[Source],
    user_home: Option<&Path>,
) -> Result<Vec<ServerEntry>, ConfigError> {
    let mut merged: BTreeMap<String, ServerEntry> = BTreeMap::new();
    for source in sources {
        for (name, entry) in of(source, user_home)? {
            // What nobody trusted does not take the place of what somebody did.
            let untrusted = source.project.as_ref().is_some_and(|project| !project.trusted);
            let taken = merged.get(&name).is_some_and(|it| it.standing != Eligibility::Untrusted);
            match entry {
                _ if untrusted && taken => {}
                Some(entry) => drop(merged.insert(name, entry)),
                None => drop(merged.remove(&name)),
            }
        }
        if merged.len() > SERVERS_MAX {
            return Err(fault(source, "", format!("more than {SERVERS_MAX} servers")));
        }
    }
    Ok(merged.into_values().collect())
}

/// Whether servers can stand in a file of the user's, as they are written there under `key`.
pub fn check_servers(
    file: &Path,
    key: &'static str,
    servers: Value,
    user_home: Option<&Path>,
) -> Result<(), ConfigError> {
    let source = Source { file: file.to_path_buf(), key, servers, project: None };
    of(&source, user_home).map(drop)
}

/// The entry of a server that one agent is connected to, beside those of the configuration; or what is wrong with it, without
/// the values that it has. What a client brings along is trusted as a project's is: it runs in the agent's directory, and
/// without the network.
pub fn own_server(
    name: &str,
    origin: ServerSource,
    config: &Map<String, Value>,
    user_home: Option<&Path>,
) -> Result<ServerEntry, String> {
    let Some(name) = server_name(name) else {
        return Err(format!("{name:?} cannot be the name of a server: {SERVER_NAME_RULE}"));
    };
    let mut config = config.clone();
    // As a client says where it runs; everybody else's has a directory of its own.
    let dir = config.get("cwd").and_then(Value::as_str).map(PathBuf::from);
    let project = match origin {
        ServerSource::Client => Some(Project { dir: dir.unwrap_or_default(), trusted: true }),
        _ => None,
    };
    let source = Source { file: PathBuf::new(), key: "config", servers: Value::Null, project };
    for key in ["share", "approve", "pin"] {
        let refused = match (key, config.get(key)) {
            ("share", Some(Value::Bool(true))) => "it is the agent's own, and so not shared",
            ("approve", Some(approve)) if says_never(approve) => {
                "never counts only in the user's own files"
            }
            ("pin", Some(pin)) if pin == "off" => "off counts only in the user's own files",
            _ => continue,
        };
        return Err(format!("{key}: {refused}"));
    }
    config.insert("share".into(), false.into());
    let mut entry = read(&source, &name, Value::Object(config), user_home)
        .map_err(|(key, reason)| named_fault(&key, &reason))?;
    entry.source = origin;
    Ok(entry)
}

fn says_never(approve: &Value) -> bool {
    match approve {
        Value::Object(by) => by.values().any(says_never),
        approve => approve == "never",
    }
}

/// What is wrong with an entry. What is said of a value may repeat it, and those of `env` and `headers` are secret.
fn named_fault(key: &str, reason: &str) -> String {
    let top = key.split(['.', '[']).next().unwrap_or_default();
    match top {
        "" => reason.to_owned(),
        "env" | "headers" => format!("{key}: must be an object of texts by name"),
        _ => format!("{key}: {reason}"),
    }
}

/// A server of one agent whose entry cannot be used any more, and why.
pub fn unusable_server(name: &str, origin: ServerSource, why: String) -> ServerEntry {
    let source =
        Source { file: PathBuf::new(), key: "config", servers: Value::Null, project: None };
    ServerEntry {
        source: origin,
        standing: Eligibility::Wrong(why),
        share: false,
        ..blank(&source, name)
    }
}

/// The servers of one file; one that is null takes that of a farther file away.
pub(super) fn of(
    source: &Source,
    user_home: Option<&Path>,
) -> Result<Vec<(String, Option<ServerEntry>)>, ConfigError> {
    let mut found: BTreeMap<String, (String, Option<ServerEntry>)> = BTreeMap::new();
    for (written, entry) in named(source)? {
        let Some(name) = server_name(&written) else {
            let reason = format!("{written:?} cannot be the name of a server: {SERVER_NAME_RULE}");
            return Err(fault(source, "", reason));
        };
        let entry = match entry {
            Value::Null => None,
            entry => Some(made(source, &name, entry, user_home)?),
        };
        if let Some((other, _)) = found.insert(name.clone(), (written.clone(), entry)) {
            let reason = format!("{other:?} and {written:?} are the same server, {name}");
            return Err(fault(source, "", reason));
        }
    }
    Ok(found.into_iter().map(|(name, (_, entry))| (name, entry)).collect())
}

/// The entries with their names, from an object by name or a list of entries that name themselves.
fn named(source: &Source) -> Result<Vec<(String, Value)>, ConfigError> {
    match source.servers.clone() {
        Value::Null => Ok(Vec::new()),
        Value::Object(entries) => Ok(entries.into_iter().collect()),
        Value::Array(entries) => {
            let name = |(at, mut entry): (usize, Value)| {
                let name = entry.as_object_mut().and_then(|entry| entry.shift_remove("name"));
                match name {
                    Some(Value::String(name)) => Ok((name, entry)),
                    _ => {
                        Err(fault(source, &at.to_string(), "an entry of a list has a name".into()))
                    }
                }
            };
            entries.into_iter().enumerate().map(name).collect()
        }
        _ => Err(fault(source, "", "is an object by name, or a list".into())),
    }
}

/// The entry of one server. A project's that is wrong is there, and says so.
fn made(
    source: &Source,
    name: &str,
    entry: Value,
    user_home: Option<&Path>,
) -> Result<ServerEntry, ConfigError> {
    match read(source, name, entry, user_home) {
        Ok(entry) => Ok(entry),
        Err((key, reason)) if source.project.is_none() => {
            let key = if key.is_empty() { name.to_owned() } else { format!("{name}.{key}") };
            Err(fault(source, &key, reason))
        }
        Err((key, reason)) => {
            let mut entry = blank(source, name);
            if entry.standing == Eligibility::Usable {
                let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
                entry.standing =
                    Eligibility::Wrong(format!("{}: {key}{reason}", source.file.display()));
            }
            Ok(entry)
        }
    }
}

/// The entry, or the key that is wrong and how.
fn read(
    source: &Source,
    name: &str,
    entry: Value,
    user_home: Option<&Path>,
) -> Result<ServerEntry, (String, String)> {
    let Value::Object(mut members) = entry else {
        return Err((String::new(), "an entry is an object".into()));
    };
    check_keys(&members)?;
    let kind = members.shift_remove("type");
    for key in PASSED_OVER {
        if members.shift_remove(key).is_some() {
            let file = source.file.display();
            tracing::warn!("{file}: {name}.{key} is passed over: nexus3 asks its user (approve)");
        }
    }
    let written: Result<Written, _> = serde_path_to_error::deserialize(Value::Object(members));
    let mut written = written
        .map_err(|error| (error.path().to_string(), error.inner().to_string()))
        .map_err(|(key, reason)| (if key == "." { String::new() } else { key }, reason))?;
    let mut entry = blank(source, name);
    entry.way = match &written.url {
        Some(_) => Way::Remote(remote(&mut written)?),
        None if is_http(kind.as_ref()) => return Err(("url".into(), "is missing".into())),
        None => Way::Program(program(source, &mut written, user_home)?),
    };
    if entry.standing == Eligibility::Usable
        && (written.enabled == Some(false) || written.disabled == Some(true))
    {
        entry.standing = Eligibility::Disabled;
    }
    entry.fail_if_no_tools = written.fail_if_no_tools.unwrap_or(false);
    let given = |given: Option<Duration>, otherwise| given.unwrap_or(otherwise);
    entry.startup_timeout = given(written.startup_timeout.map(|it| it.0), entry.startup_timeout);
    entry.timeout = given(written.timeout.map(|it| it.0), entry.timeout);
    entry.idle_timeout = given(written.idle_timeout.map(|it| it.0), entry.idle_timeout);
    match written.approve {
        None => {}
        Some(Approve::All(approve)) => entry.asks = asks(source, name, &approve),
        Some(Approve::By(tools)) => {
            check_patterns("approve", tools.keys())?;
            let by = |(tool, approve)| (tool, asks(source, name, &approve));
            entry.asks_by = tools.into_iter().map(by).collect();
        }
    }
    entry.eager = written.eager.unwrap_or(false);
    entry.share = written.share.unwrap_or(true);
    if entry.eager && !entry.share {
        let reason =
            "is of no use with share: false: a process of each agent starts when that needs it";
        return Err(("eager".into(), reason.into()));
    }
    // A project does not say that nobody has to look at what changes in it.
    if written.pin.is_some_and(|it| it.0 == "off") && source.project.is_none() {
        entry.pins = Pins::Off;
    }
    entry.defer = match written.defer.map(|it| it.0) {
        Some("never") => Defer::Never,
        Some("always") => Defer::Always,
        _ => Defer::Auto,
    };
    entry.elicitation = written.elicitation.is_none_or(|it| it.0 != "deny");
    entry.sampling = written.sampling.is_some_and(|it| it.0 == "ask");
    entry.roots = written.roots.unwrap_or(false);
    if let Some(Object(tools)) = written.tools {
        entry.allow = patterns("tools.allow", tools.allow)?;
        entry.deny = patterns("tools.deny", tools.deny)?;
    }
    Ok(entry)
}

/// A program, or the key that is wrong and how.
fn program(
    source: &Source,
    written: &mut Written,
    user_home: Option<&Path>,
) -> Result<Program, (String, String)> {
    let of_remotes = [
        ("headers", written.headers.is_some()),
        ("private", written.private.is_some()),
        ("auth", written.auth.is_some()),
    ];
    check_absent(of_remotes, "is for servers with a url")?;
    let mut argv = argv(written.command.take(), written.args.take())?;
    if argv[0].starts_with("~/") {
        let program = expand(&argv[0], user_home).map_err(|why| ("command".to_owned(), why))?;
        argv[0] = program.display().to_string();
    }
    let path = |key: &str, Text(text): &Text| match (&source.project, text.starts_with(['/', '~']))
    {
        (Some(project), false) => Ok(project.dir.join(text)),
        _ => expand(text, user_home).map_err(|reason| (key.to_owned(), reason)),
    };
    let paths = |key: &str, written: Option<Vec<Text>>| {
        written.iter().flatten().map(|text| path(key, text)).collect::<Result<BTreeSet<_>, _>>()
    };
    let mut program = unknown_program(source);
    program.argv = argv;
    if let Some(cwd) = &written.cwd {
        program.cwd = Some(path("cwd", cwd)?);
    }
    program.env = written.env.take().unwrap_or_default();
    program.env_passthrough = texts(written.env_passthrough.take());
    if let Some(Object(sandbox)) = written.sandbox.take() {
        program.sandbox = Sandbox {
            read: paths("sandbox.read", sandbox.read)?,
            write: paths("sandbox.write", sandbox.write)?,
            network: sandbox.network.unwrap_or(program.sandbox.network),
            required: sandbox.required.unwrap_or(program.sandbox.required),
        };
    }
    Ok(program)
}

/// A server elsewhere, or the key that is wrong and how. Its address may still have variables in it.
fn remote(written: &mut Written) -> Result<Remote, (String, String)> {
    let of_programs = [
        ("command", written.command.is_some()),
        ("args", written.args.is_some()),
        ("cwd", written.cwd.is_some()),
        ("env", written.env.is_some()),
        ("env_passthrough", written.env_passthrough.is_some()),
        ("sandbox", written.sandbox.is_some()),
        ("roots", written.roots.is_some()),
    ];
    check_absent(of_programs, "is for programs, and this server has a url")?;
    let url = written.url.take().map(|Text(url)| url).unwrap_or_default();
    let spoken = ["https://", "http://", "${"].iter().any(|start| url.starts_with(start));
    if !spoken {
        return Err((
            "url".into(),
            "must begin with https://, or with http:// on this machine".into(),
        ));
    }
    let headers = written.headers.take().unwrap_or_default();
    let auth = written.auth.take().map(|Object(auth)| auth).unwrap_or_default();
    let text = |text: Option<Text>| text.map(|Text(text)| text);
    if auth.client_secret_env.is_some() && auth.client_id.is_none() {
        return Err(("auth.client_secret_env".into(), "is of use only with client_id".into()));
    }
    Ok(Remote {
        url,
        headers,
        private: written.private.unwrap_or(false),
        auth: Auth {
            scopes: texts(auth.scopes),
            client_id: text(auth.client_id),
            client_secret_env: text(auth.client_secret_env),
        },
    })
}

/// Keys that mean nothing beside others are not passed over: something else was meant.
fn check_absent<const N: usize>(
    keys: [(&str, bool); N],
    reason: &str,
) -> Result<(), (String, String)> {
    match keys.into_iter().find(|(_, present)| *present) {
        Some((key, _)) => Err((key.into(), reason.into())),
        None => Ok(()),
    }
}

/// A server of which only the name is known.
fn blank(source: &Source, name: &str) -> ServerEntry {
    let project = source.project.as_ref();
    ServerEntry {
        name: name.into(),
        source: if project.is_some() { ServerSource::Project } else { ServerSource::User },
        standing: match project {
            Some(project) if !project.trusted => Eligibility::Untrusted,
            _ => Eligibility::Usable,
        },
        way: Way::Program(unknown_program(source)),
        startup_timeout: Duration::from_secs(30),
        timeout: Duration::from_secs(120),
        idle_timeout: Duration::from_secs(600),
        asks: Asks::default(),
        asks_by: Vec::new(),
        eager: false,
        share: true,
        pins: Pins::default(),
        defer: Defer::default(),
        allow: Vec::new(),
        deny: Vec::new(),
        fail_if_no_tools: false,
        elicitation: true,
        sampling: false,
        roots: false,
    }
}

/// A program of which only is known who brings it along.
fn unknown_program(source: &Source) -> Program {
    let project = source.project.as_ref();
    Program {
        argv: Vec::new(),
        cwd: project.map(|project| project.dir.clone()),
        env: BTreeMap::new(),
        env_passthrough: Vec::new(),
        sandbox: Sandbox {
            read: BTreeSet::new(),
            write: BTreeSet::new(),
            network: project.is_none(),
            required: true,
        },
    }
}

/// As other programs' files call the transport.
fn is_http(kind: Option<&Value>) -> bool {
    matches!(kind.and_then(Value::as_str), Some("http" | "streamable-http" | "streamableHttp"))
}

fn check_keys(members: &Map<String, Value>) -> Result<(), (String, String)> {
    match members.get("type") {
        None => {}
        Some(kind) if is_http(Some(kind)) || kind == "stdio" => {}
        Some(kind) if kind == "sse" => {
            let reason =
                "the transport of 2024 (sse) is not spoken here; most servers have another";
            return Err(("type".into(), reason.into()));
        }
        Some(other) => {
            return Err(("type".into(), format!("{other} is not spoken here: stdio or http")));
        }
    }
    match NOT_YET.iter().find(|key| members.contains_key(**key)) {
        Some(key) => Err(((*key).into(), "is not built into this version yet".into())),
        None => Ok(()),
    }
}

fn argv(
    command: Option<Words>,
    args: Option<Vec<String>>,
) -> Result<Vec<String>, (String, String)> {
    let words = match command {
        None => return Err(("command".into(), "is missing".into())),
        Some(Words::One(program)) => vec![program],
        Some(Words::List(words)) => words,
    };
    let argv: Vec<String> = words.into_iter().chain(args.into_iter().flatten()).collect();
    match argv.first().is_none_or(|program| program.trim().is_empty()) {
        true => Err(("command".into(), "names no program".into())),
        false => Ok(argv),
    }
}

/// Leave that a project gives its own servers is none.
fn asks(source: &Source, name: &str, written: &Choice<Approvals>) -> Asks {
    let asks = match written.0 {
        "never" => Asks::Never,
        "always" => Asks::Always,
        _ => Asks::Once,
    };
    if source.project.is_some() && asks == Asks::Never {
        let file = source.file.display();
        tracing::warn!(
            "{file}: {name}.approve is passed over: only the user's own files say never"
        );
        return Asks::Once;
    }
    asks
}

fn patterns(key: &str, written: Option<Vec<Text>>) -> Result<Vec<String>, (String, String)> {
    let patterns = texts(written);
    check_patterns(key, patterns.iter())?;
    Ok(patterns)
}

fn check_patterns<'a>(
    key: &str,
    mut patterns: impl Iterator<Item = &'a String>,
) -> Result<(), (String, String)> {
    match patterns.find(|pattern| Glob::new(pattern).is_err()) {
        Some(pattern) => Err((key.into(), format!("{pattern:?} is no pattern"))),
        None => Ok(()),
    }
}

fn texts(written: Option<Vec<Text>>) -> Vec<String> {
    written.into_iter().flatten().map(|Text(text)| text).collect()
}

fn fault(source: &Source, key: &str, reason: String) -> ConfigError {
    let dot = if key.is_empty() { "" } else { "." };
    ConfigError::Key { file: source.file.clone(), key: format!("{}{dot}{key}", source.key), reason }
}

/// What an `mcp.json` holds: its servers, under the one name or the other.
pub(super) fn servers_of(
    file: &Path,
    value: Value,
) -> Result<Option<(&'static str, Value)>, ConfigError> {
    let fault = |key: &str, reason: &str| ConfigError::Key {
        file: file.to_path_buf(),
        key: key.into(),
        reason: reason.into(),
    };
    let Value::Object(mut members) = value else {
        return Err(fault("", "the file must hold an object"));
    };
    let [theirs, ours] = ["mcpServers", "servers"].map(|key| members.shift_remove(key));
    if let Some(key) = members.keys().next() {
        return Err(fault(key, "unknown key, expected servers or mcpServers"));
    }
    let says = |value: &Value| match value {
        Value::Object(entries) => !entries.is_empty(),
        Value::Array(entries) => !entries.is_empty(),
        Value::Null => false,
        _ => true,
    };
    Ok(match (theirs.filter(says), ours) {
        (Some(theirs), _) => Some(("mcpServers", theirs)),
        (None, Some(ours)) => Some(("servers", ours)),
        (None, None) => None,
    })
}
