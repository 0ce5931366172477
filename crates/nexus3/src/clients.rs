//! `nexus3 doors`: the lines that the settings of other programs need, with the addresses of this machine. Nothing is
//! written, and no secret is printed: keys are made with `nexus3 key create`, and clients read them from the environment.

mod lines;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use nexus_client::{HomeServer, PORT_DEFAULT};
use nexus_config::{Config, Doors};
use serde::Serialize;

use crate::home::find_server;
use crate::output::{print_json, say};
use crate::wiring;
use lines::Entry;

#[derive(Args)]
pub struct DoorsArgs {
    /// Only what is for this client: zed, jetbrains, neovim, acpx, vscode, cursor, claude-code, openai-python, openai-node, langchain, litellm, open-webui or websocket
    client: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Where a client comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// Started by the client, on standard input and output; this is never closed.
    Acp,
    /// The same for MCP hosts.
    #[serde(rename = "mcp_stdio")]
    Started,
    Mcp,
    OpenAi,
    WebSocket,
}

/// What the lines depend on.
pub struct Facts {
    /// This program.
    pub program: String,
    /// A shell finds it by its name.
    pub is_found: bool,
    /// Of the server's port.
    pub url: String,
    pub is_running: bool,
    /// Where the variable names another home than the usual one, clients that start the program have to say so too.
    pub home: Option<String>,
    pub doors: Doors,
}

#[derive(Serialize)]
struct Printed<'a> {
    url: &'a str,
    running: bool,
    program: &'a str,
    clients: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    /// False where the configuration has closed the door.
    open: bool,
}

pub async fn run(args: DoorsArgs) -> anyhow::Result<ExitCode> {
    let facts = facts().await?;
    let mut entries = lines::all(&facts);
    if let Some(client) = &args.client {
        let names = names(&entries);
        entries.retain(|entry| entry.client == client);
        if entries.is_empty() {
            bail!("there is nothing for {client:?}; the clients are {}", names.join(", "));
        }
    }
    match args.json {
        true => {
            let shown = |entry| Shown { entry, open: facts.is_open(entry.door) };
            let printed = Printed {
                url: &facts.url,
                running: facts.is_running,
                program: &facts.program,
                clients: entries.iter().map(shown).collect(),
            };
            print_json(format!("{}\n", serde_json::to_string_pretty(&printed)?))?;
        }
        false => say(text(&facts, &entries))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn facts() -> anyhow::Result<Facts> {
    let home = wiring::home()?;
    let config = wiring::load_config(&home, None)?;
    let found = find_server(&home, &config).await;
    let url = found.and_then(|HomeServer { info, .. }| info.url);
    let program: PathBuf = std::env::current_exe().context("this program")?;
    let named = std::env::var_os("NEXUS3_HOME").filter(|name| !name.is_empty());
    Ok(Facts {
        is_found: is_found(&program),
        program: program.display().to_string(),
        is_running: url.is_some(),
        url: url.unwrap_or_else(|| usual(&config)),
        home: named.map(|_| home.display().to_string()),
        doors: config.doors,
    })
}

/// Whether the first of this name that a shell finds is this program.
fn is_found(program: &Path) -> bool {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&dirs).map(|dir| dir.join("nexus3")).find(|it| it.is_file());
    first.and_then(|found| found.canonicalize().ok()).is_some_and(|found| found == program)
}

/// Where a server of this configuration would listen.
fn usual(config: &Config) -> String {
    let port = if config.server.port == 0 { PORT_DEFAULT } else { config.server.port };
    match config.server.host.as_str() {
        "::1" | "[::1]" => format!("http://[::1]:{port}"),
        _ => format!("http://127.0.0.1:{port}"),
    }
}

impl Facts {
    fn is_open(&self, door: Door) -> bool {
        match door {
            Door::Acp | Door::Started => true,
            Door::Mcp => self.doors.mcp,
            Door::OpenAi => self.doors.openai,
            Door::WebSocket => self.doors.websocket,
        }
    }
}

impl Door {
    /// Whoever comes over the port needs a server there and a key.
    fn is_on_port(self) -> bool {
        !matches!(self, Self::Acp | Self::Started)
    }

    /// The switch in the configuration.
    fn switch(self) -> &'static str {
        match self {
            Self::Acp | Self::Started => "",
            Self::Mcp => "doors.mcp",
            Self::OpenAi => "doors.openai",
            Self::WebSocket => "doors.websocket",
        }
    }
}

/// Each once, in the order of the list.
fn names(entries: &[Entry]) -> Vec<&'static str> {
    let mut names: Vec<_> = entries.iter().map(|entry| entry.client).collect();
    names.dedup();
    names
}

fn text(facts: &Facts, entries: &[Entry]) -> String {
    let mut text = String::new();
    if entries.iter().any(|entry| entry.door.is_on_port()) {
        let _ = match facts.is_running {
            true => writeln!(text, "The server of this home is at {}.", facts.url),
            false => writeln!(
                text,
                "No server of this home runs; start one with: {} serve\nIt will be at {}.",
                facts.called(),
                facts.url
            ),
        };
        text.push('\n');
    }
    for entry in entries {
        let _ = writeln!(text, "## {} ({})", entry.title, entry.client);
        if !facts.is_open(entry.door) {
            let _ =
                writeln!(text, "\nOff: {} is false in the configuration.\n", entry.door.switch());
            continue;
        }
        if let Some(key) = &entry.key {
            let _ = match entry.variable {
                "" => writeln!(text, "\nFirst a key, which is shown once:\n\n    {key}"),
                variable => writeln!(
                    text,
                    "\nFirst a key, which is shown once, for the client's environment:\n\n    {key}\n    \
                     read -rs {variable} && export {variable}"
                ),
            };
        }
        let _ = writeln!(text, "\n{}:\n", entry.place);
        for line in entry.lines.lines() {
            let _ = match line.is_empty() {
                true => writeln!(text),
                false => writeln!(text, "    {line}"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn facts(mcp: bool) -> Facts {
        let doors = Doors { mcp, openai: true, websocket: true, expose: BTreeMap::new() };
        Facts {
            program: "/opt/a b/nexus3".into(),
            is_found: false,
            url: "http://127.0.0.1:1234".into(),
            is_running: false,
            home: Some("/h/'x'".into()),
            doors,
        }
    }

    #[test]
    fn json_is_json_whatever_the_paths_are() {
        let entries = lines::all(&facts(true));
        let json = entries.iter().filter(|entry| entry.form == "json");
        let parsed: Vec<serde_json::Value> =
            json.map(|entry| serde_json::from_str(&entry.lines).unwrap()).collect();
        assert_eq!(parsed.len(), 6);
        let zed = &parsed[0]["agent_servers"]["nexus3"];
        assert_eq!(
            (&zed["command"], &zed["env"]["NEXUS3_HOME"]),
            (&"/opt/a b/nexus3".into(), &"/h/'x'".into())
        );
    }

    #[test]
    fn a_closed_door_is_said_to_be_closed() {
        let facts = facts(false);
        let entries: Vec<_> =
            lines::all(&facts).into_iter().filter(|entry| entry.client == "cursor").collect();
        let text = text(&facts, &entries);
        assert!(text.contains("Off: doors.mcp is false"), "{text}");
        assert!(!text.contains("/mcp\""), "{text}");
        // The client can still start it.
        assert!(text.contains("\"serve\""), "{text}");
    }

    #[test]
    fn a_program_that_no_shell_finds_is_called_by_its_path() {
        let check = |is_found: bool, expected: &str| {
            let facts = Facts { is_found, ..facts(true) };
            let entries = lines::all(&facts);
            let cursor = entries.iter().find(|it| it.client == "cursor" && it.key.is_some());
            let key = cursor.and_then(|it| it.key.as_deref()).unwrap();
            assert_eq!(key, format!("{expected} key create cursor --door mcp"));
            assert!(text(&facts, &entries).contains(&format!("with: {expected} serve\n")));
        };
        check(true, "nexus3");
        check(false, "'/opt/a b/nexus3'");
    }

    #[test]
    fn the_help_names_every_client() {
        let names = names(&lines::all(&facts(true)));
        let command = <DoorsArgs as clap::Args>::augment_args(clap::Command::new("doors"));
        let help = command.get_arguments().next().unwrap().get_help().unwrap().to_string();
        let (last, others) = names.split_last().unwrap();
        assert!(help.ends_with(&format!("{} or {last}", others.join(", "))), "{help}");
    }
}
