//! The command line: what was asked for, the request it makes, and what is printed.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::{Long, Short, Value as Positional, ValueExt as _};
use serde_json::{Map, Number, Value};
use thiserror::Error;

use crate::client::{CallError, Client};
use crate::environment::Environment;
use crate::{MAX_RETRIES, RETRY_DELAY, output};

const USAGE: &str = "ash: talks to the host of this sandbox

usage: ash memory search QUERY [-n LIMIT]
       ash memory list [-n LIMIT] [--include-expired]
       ash memory add CONTENT [-s SOURCE] [-e DAYS] [--shared] [-S SUBJECT]...
       ash memory delete ID
       ash call METHOD [JSON]

  -n, --limit LIMIT      at most so many (search 10, list 20)
      --query QUERY      the same as QUERY
      --include-expired  those too that are over
  -s, --source SOURCE    where it comes from (agent)
  -e, --expires DAYS     forget it after so many days
      --shared           for everybody in this chat, not for this user alone
  -S, --subject SUBJECT  whom or what it is about; may be repeated
      --json             print the result as JSON
  -h, --help, -V, --version
  --                     what follows is no option

environment: ASH_RPC_SOCKET     the host's socket (/run/ash/rpc.sock)
             ASH_USER_ID, ASH_CHAT_ID, ASH_CONTEXT_TOKEN  who calls
             ASH_RPC_TIMEOUT    seconds to wait for an answer (60)
";

/// The exit code of a command line that was not understood, as of most programs.
const EXIT_USAGE: u8 = 2;

const SEARCH_LIMIT: u64 = 10;
const LIST_LIMIT: u64 = 20;
const SOURCE: &str = "agent";

/// The program, in its process.
pub fn main() -> ExitCode {
    let mut out = io::stdout().lock();
    let done = Environment::of_process().map_err(Failure::from).and_then(|environment| {
        run(std::env::args_os().skip(1), &environment, &std::thread::sleep, &mut out)
    });
    let failure = match done {
        Ok(()) => return ExitCode::SUCCESS,
        // Who listened has heard enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::FAILURE;
        }
        Err(failure) => failure,
    };
    let mut text = format!("Error: {failure}");
    let mut cause = std::error::Error::source(&failure);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    // Where nobody can be told, the exit code still says it.
    let _ = writeln!(io::stderr(), "{}", output::line(&text));
    match failure {
        Failure::Usage(_) => ExitCode::from(EXIT_USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Why the program fails.
#[derive(Debug, Error)]
pub enum Failure {
    #[error("{0} (ash --help says more)")]
    Usage(String),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("memory not found: {0}")]
    NotFound(String),
    #[error("the result cannot be printed")]
    Output(#[from] io::Error),
}

/// Does what `arguments` ask for, and prints the result to `out`.
pub fn run(
    arguments: impl Iterator<Item = OsString>,
    environment: &Environment,
    pause: &dyn Fn(Duration),
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let Asked { command, json } = match parse(arguments)? {
        Some(asked) => asked,
        None => return Ok(out.write_all(USAGE.as_bytes())?),
    };
    if let Command::Version = command {
        return Ok(writeln!(out, "ash {}", env!("CARGO_PKG_VERSION"))?);
    }
    let (method, params) = command.request(environment);
    let client = Client::new(environment).pausing(pause);
    let result = client.call(method, params, MAX_RETRIES, RETRY_DELAY)?;
    if json {
        writeln!(out, "{result}")?;
    } else {
        match &command {
            Command::Search { .. } => output::found(&result, out)?,
            Command::List { .. } => output::listed(&result, out)?,
            Command::Add { .. } => output::added(&result, out)?,
            Command::Delete { .. } => output::deleted(&result, out)?,
            Command::Call { .. } | Command::Version => writeln!(out, "{result:#}")?,
        }
    }
    match command {
        Command::Delete { id } if result["deleted"] != true => Err(Failure::NotFound(id)),
        _ => Ok(()),
    }
}

struct Asked {
    command: Command,
    json: bool,
}

enum Command {
    Search {
        query: String,
        limit: u64,
    },
    List {
        limit: u64,
        include_expired: bool,
    },
    Add {
        content: String,
        source: String,
        expires_days: Option<Number>,
        shared: bool,
        subjects: Vec<String>,
    },
    Delete {
        id: String,
    },
    Call {
        method: String,
        params: Map<String, Value>,
    },
    Version,
}

impl Command {
    /// The method and its parameters. Whoever asks for memories says who they are; other methods would refuse that.
    fn request(&self, environment: &Environment) -> (&str, Map<String, Value>) {
        let mut params = Map::new();
        let mut put = |name: &str, value: Value| params.insert(name.into(), value);
        let method = match self {
            Self::Search { query, limit } => {
                put("query", query.as_str().into());
                put("limit", (*limit).into());
                "memory.search"
            }
            Self::List { limit, include_expired } => {
                put("limit", (*limit).into());
                if *include_expired {
                    put("include_expired", true.into());
                }
                "memory.list"
            }
            Self::Add { content, source, expires_days, shared, subjects } => {
                put("content", content.as_str().into());
                put("source", source.as_str().into());
                put("shared", (*shared).into());
                if let Some(days) = expires_days {
                    put("expires_days", days.clone().into());
                }
                if !subjects.is_empty() {
                    put("subjects", subjects.as_slice().into());
                }
                "memory.add"
            }
            Self::Delete { id } => {
                put("memory_id", id.as_str().into());
                "memory.delete"
            }
            Self::Call { method, params: given } => {
                params = given.clone();
                method.as_str()
            }
            Self::Version => "rpc.version",
        };
        if method.starts_with("memory.") {
            for (name, value) in [("user_id", &environment.user), ("chat_id", &environment.chat)] {
                if let (Some(value), false) = (value, params.contains_key(name)) {
                    params.insert(name.into(), value.as_str().into());
                }
            }
        }
        (method, params)
    }
}

/// What stood on the command line, whatever the command.
#[derive(Default)]
struct Given {
    words: std::collections::VecDeque<String>,
    json: bool,
    limit: Option<u64>,
    query: Option<String>,
    include_expired: bool,
    source: Option<String>,
    expires_days: Option<Number>,
    shared: bool,
    subjects: Vec<String>,
    /// The options that not every command has.
    options: Vec<&'static str>,
}

/// `None` when help is asked for.
fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Asked>, Failure> {
    let mut given = Given::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        let option = match argument {
            Positional(word) => {
                given.words.push_back(word.string()?);
                continue;
            }
            Short('h') | Long("help") => return Ok(None),
            Short('V') | Long("version") => {
                return Ok(Some(Asked { command: Command::Version, json: false }));
            }
            Long("json") => {
                given.json = true;
                continue;
            }
            Short('n') | Long("limit") => {
                given.limit = Some(parser.value()?.parse()?);
                "--limit"
            }
            Long("query") => {
                given.query = Some(parser.value()?.string()?);
                "--query"
            }
            Long("include-expired") => {
                given.include_expired = true;
                "--include-expired"
            }
            Short('s') | Long("source") => {
                given.source = Some(parser.value()?.string()?);
                "--source"
            }
            Short('e') | Long("expires") => {
                given.expires_days = Some(parser.value()?.parse()?);
                "--expires"
            }
            Long("shared") => {
                given.shared = true;
                "--shared"
            }
            Short('S') | Long("subject") => {
                given.subjects.push(parser.value()?.string()?);
                "--subject"
            }
            other => return Err(other.unexpected().into()),
        };
        given.options.push(option);
    }
    if given.words.is_empty() {
        return Ok(None);
    }
    let json = given.json;
    Ok(Some(Asked { command: given.command()?, json }))
}

impl Given {
    fn command(mut self) -> Result<Command, Failure> {
        let group = self.words.pop_front();
        match group.as_deref() {
            Some("memory") => self.memory(),
            Some("call") => {
                let method = self.word("METHOD")?;
                let params = self.words.pop_front().map(|json| object(&json)).transpose()?;
                self.only(&[])?;
                Ok(Command::Call { method, params: params.unwrap_or_default() })
            }
            other => Err(unknown(other)),
        }
    }

    fn memory(mut self) -> Result<Command, Failure> {
        let command = self.words.pop_front();
        match command.as_deref() {
            Some("search") => {
                let query = match self.query.take() {
                    Some(query) => query,
                    None => self.word("QUERY")?,
                };
                self.only(&["--limit", "--query"])?;
                Ok(Command::Search { query, limit: self.limit.unwrap_or(SEARCH_LIMIT) })
            }
            Some("list") => {
                self.only(&["--limit", "--include-expired"])?;
                let limit = self.limit.unwrap_or(LIST_LIMIT);
                Ok(Command::List { limit, include_expired: self.include_expired })
            }
            Some("add") => {
                let content = self.word("CONTENT")?;
                self.only(&["--source", "--expires", "--shared", "--subject"])?;
                Ok(Command::Add {
                    content,
                    source: self.source.unwrap_or_else(|| SOURCE.into()),
                    expires_days: self.expires_days,
                    shared: self.shared,
                    subjects: self.subjects,
                })
            }
            Some("delete") => {
                let id = self.word("ID")?;
                self.only(&[])?;
                Ok(Command::Delete { id })
            }
            other => Err(unknown(other)),
        }
    }

    fn word(&mut self, name: &str) -> Result<String, Failure> {
        self.words.pop_front().ok_or_else(|| Failure::Usage(format!("{name} is missing")))
    }

    /// Nothing is left over, and no option was given that means nothing here.
    fn only(&self, options: &[&str]) -> Result<(), Failure> {
        if let Some(word) = self.words.front() {
            return Err(Failure::Usage(format!("unexpected argument {word:?}")));
        }
        match self.options.iter().find(|option| !options.contains(option)) {
            Some(option) => Err(Failure::Usage(format!("{option} means nothing here"))),
            None => Ok(()),
        }
    }
}

fn unknown(command: Option<&str>) -> Failure {
    Failure::Usage(match command {
        Some(command) => format!("there is no command {command:?}"),
        None => "a command is missing".into(),
    })
}

fn object(json: &str) -> Result<Map<String, Value>, Failure> {
    serde_json::from_str(json)
        .map_err(|error| Failure::Usage(format!("JSON must be one object of parameters: {error}")))
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(error.to_string())
    }
}
