//! `nexus3 memory`: what is remembered, straight from the store; no server is needed, and one may run.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use futures_util::TryStreamExt as _;
use futures_util::stream::FuturesOrdered;
use jiff::Timestamp;
use nexus_core::Requester;
use nexus_core::memory::{CONTENT_BYTES_MAX, Identity, Memories, NAME_BYTES_MAX, NewMemory};
use nexus_core::store::{
    AgentStore as _, MemoriesStore as _, MemoryId, MemoryKey, MemoryRecord, MemoryScope,
    SUBJECTS_MAX,
};
use nexus_store::SqliteStore;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::meanings::Meanings;
use crate::output::{complain, print_json, say};
use crate::wiring;

#[derive(Args)]
pub struct MemoryArgs {
    #[command(subcommand)]
    command: MemoryCommand,
}

#[derive(Subcommand)]
enum MemoryCommand {
    /// Find memories, the best first
    Search {
        /// What to look for
        query: String,
        /// How many at most
        #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=200))]
        limit: u32,
        #[command(flatten)]
        who: Who,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List memories, the newest first
    List {
        /// How many at most
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Also what expired within the last day
        #[arg(long)]
        include_expired: bool,
        #[command(flatten)]
        who: Who,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remember something
    Add {
        /// What to remember
        content: String,
        /// Who told it
        #[arg(short, long, default_value = "cli")]
        source: String,
        /// Days until it expires
        #[arg(short = 'e', long = "expires", value_name = "DAYS")]
        expires_days: Option<f64>,
        /// For all of the chat
        #[arg(long)]
        shared: bool,
        /// Whom or what it is about; may be repeated
        #[arg(short = 'S', long = "subject", value_name = "SUBJECT")]
        subjects: Vec<String>,
        #[command(flatten)]
        who: Who,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a memory
    Delete {
        /// Its id, or at least 8 digits of the beginning of it
        id: String,
        #[command(flatten)]
        who: Who,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print everybody's memories, one line of JSON for each, the oldest first
    ///
    /// What was superseded and what has expired is left out.
    Export,
    /// Keep the memories of export; what is there already stays, and what expired is passed over
    Import {
        /// Files of export; standard input when absent or -
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print a token with which a sandbox speaks for a user and a chat
    ///
    /// Signed with the key in ASH_CONTEXT_TOKEN_SECRET, which the server needs as well.
    Token {
        #[command(flatten)]
        who: Who,
        /// Days until it expires
        #[arg(long, value_name = "N", default_value_t = 1.0)]
        days: f64,
    },
}

/// For whom it is asked; without a user and a chat, what is everybody's.
#[derive(Args)]
struct Who {
    /// The user; without one, what is everybody's
    #[arg(long, value_name = "U", env = "ASH_USER_ID")]
    user: Option<String>,
    /// The chat
    #[arg(long, value_name = "C", env = "ASH_CHAT_ID")]
    chat: Option<String>,
}

impl From<Who> for Identity {
    fn from(who: Who) -> Self {
        let given = |name: Option<String>| name.filter(|name| !name.is_empty());
        Self { user: given(who.user), chat: given(who.chat) }
    }
}

/// A year, as a token that is never renewed is never taken back either.
const TOKEN_DAYS_MAX: f64 = 366.0;

const SECONDS_A_DAY: f64 = 86_400.0;

pub async fn run(args: MemoryArgs) -> anyhow::Result<ExitCode> {
    if let MemoryCommand::Token { who, days } = args.command {
        return token(&who.into(), days);
    }
    let store = Arc::new(SqliteStore::open(&wiring::home()?)?);
    let done = on_store(&store, args.command).await;
    store.close().await?;
    done
}

fn token(who: &Identity, days: f64) -> anyhow::Result<ExitCode> {
    ensure!(*who != Identity::default(), "--user or --chat: a token speaks for somebody");
    ensure!(
        days > 0.0 && days <= TOKEN_DAYS_MAX,
        "--days must be more than 0 and at most {TOKEN_DAYS_MAX}"
    );
    let tokens = wiring::context_tokens()
        .with_context(|| format!("{} is not set", wiring::CONTEXT_SECRET))?;
    let seconds = (days * SECONDS_A_DAY).ceil() as i64;
    say(format!("{}\n", tokens.mint(who, Timestamp::now(), seconds)))?;
    Ok(ExitCode::SUCCESS)
}

async fn on_store(store: &Arc<SqliteStore>, command: MemoryCommand) -> anyhow::Result<ExitCode> {
    let memories = Memories::alone(store.clone());
    match command {
        MemoryCommand::Search { query, limit, who, json } => {
            let home = wiring::home()?;
            let config = wiring::load_config(&home, None)?;
            let embedder = wiring::embedder(&wiring::catalog(&home, &config)?, &config)?;
            memories.find_by(Meanings::new(store.clone(), embedder));
            let found = memories.search(&who.into(), &query, limit).await?;
            if json {
                let entries = found.iter().map(|found| {
                    let mut entry = entry(&found.memory);
                    entry["similarity"] = json!(found.similarity);
                    entry
                });
                print_all(entries.collect())?;
            } else {
                for found in found {
                    let (memory, id) = (&found.memory, short(found.memory.id));
                    say(format!("{id} [{:.2}] {}\n", found.similarity, memory.content))?;
                }
            }
        }
        MemoryCommand::List { limit, include_expired, who, json } => {
            let listed = memories.list(&who.into(), limit, include_expired, usize::MAX).await?;
            if json {
                print_all(listed.iter().map(entry).collect())?;
            } else {
                for memory in listed {
                    say(format!(
                        "{} {:<12} {}\n",
                        short(memory.id),
                        memory.source,
                        memory.content
                    ))?;
                }
            }
        }
        MemoryCommand::Add { content, source, expires_days, shared, subjects, who, json } => {
            let new =
                NewMemory { content, source, expires_days, subjects, shared, of_guest: false };
            let kept = memories.add(&Requester::Administrator, &who.into(), new).await?;
            match json {
                true => print_json(format!("{}\n", entry(&kept)))?,
                false => say(format!("Memory added: {}\n", short(kept.id)))?,
            }
        }
        MemoryCommand::Delete { id, who, json } => {
            let deleted = memories.delete(&Requester::Administrator, &who.into(), &id).await?;
            match (json, deleted) {
                (true, _) => print_json(format!("{}\n", json!({"deleted": deleted})))?,
                (false, true) => say(format!("Memory deleted: {id}\n"))?,
                (false, false) => complain(format_args!("Memory not found: {id}")),
            }
            if !deleted {
                return Ok(ExitCode::FAILURE);
            }
        }
        MemoryCommand::Export => export(store).await?,
        MemoryCommand::Import { files } => import(store, &files).await?,
        MemoryCommand::Token { .. } => bail!("a token needs no store"),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_all(entries: Vec<Value>) -> anyhow::Result<()> {
    print_json(format!("{}\n", Value::Array(entries)))
}

fn entry(memory: &MemoryRecord) -> Value {
    json!(ExportedMemory::from(memory.clone()))
}

fn short(id: MemoryId) -> String {
    id.to_string()[..8].to_owned()
}

/// Memories that are read at once.
const PAGE: u32 = 1_000;

async fn export(store: &SqliteStore) -> anyhow::Result<()> {
    let (now, mut after) = (Timestamp::now(), MemoryKey::default());
    loop {
        let page = store.every_memory(after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = *last;
        let mut lines = String::new();
        for (_, memory) in page.into_iter().filter(|(_, memory)| !memory.is_expired(now)) {
            lines.push_str(&serde_json::to_string(&ExportedMemory::from(memory))?);
            lines.push('\n');
        }
        print_json(lines)?;
    }
}

async fn import(store: &SqliteStore, files: &[PathBuf]) -> anyhow::Result<()> {
    let mut import =
        Import { store, now: Timestamp::now(), waiting: Vec::new(), kept: 0, expired: 0 };
    let read = import.read(files).await;
    // What stands before a wrong line is kept.
    import.write().await?;
    read?;
    if import.expired > 0 {
        complain(format_args!("Passed over what has expired: {}", import.expired));
    }
    print_json(format!("{}\n", json!({"memories": import.kept})))
}

/// Lines that are written together, and share a flush of the disk: one after another, each would wait for its own.
const WRITTEN_AT_ONCE: usize = 256;

struct Import<'a> {
    store: &'a SqliteStore,
    now: Timestamp,
    waiting: Vec<MemoryRecord>,
    kept: usize,
    expired: u64,
}

impl Import<'_> {
    async fn read(&mut self, files: &[PathBuf]) -> anyhow::Result<()> {
        let standard = [PathBuf::from("-")];
        for path in if files.is_empty() { &standard } else { files } {
            let named = || format!("{}", path.display());
            let input: Box<dyn io::BufRead + Send> = match path == Path::new("-") {
                true => Box::new(BufReader::new(io::stdin())),
                false => Box::new(BufReader::new(File::open(path).with_context(named)?)),
            };
            for (number, line) in (1_u64..).zip(input.lines()) {
                let line = line.with_context(named)?;
                if line.trim().is_empty() {
                    continue;
                }
                let memory = read(&line).with_context(|| format!("{}, line {number}", named()))?;
                if memory.is_expired(self.now) {
                    self.expired += 1;
                    continue;
                }
                self.waiting.push(memory);
                if self.waiting.len() == WRITTEN_AT_ONCE {
                    self.write().await?;
                }
            }
        }
        Ok(())
    }

    async fn write(&mut self) -> anyhow::Result<()> {
        let some = self.waiting.drain(..).map(|memory| self.store.restore_memory(memory, self.now));
        // In their order, as the store is given them.
        let mut writes: FuturesOrdered<_> = some.collect();
        while writes.try_next().await?.is_some() {
            self.kept += 1;
        }
        Ok(())
    }
}

fn read(line: &str) -> anyhow::Result<MemoryRecord> {
    let line: ExportedMemory = serde_json::from_str(line)?;
    let id = MemoryId::parse(&line.id).context("id is not 32 hexadecimal digits")?;
    let scope = match (line.user_id, line.chat_id) {
        (None, None) => MemoryScope::Global,
        (Some(user), None) => MemoryScope::User(user),
        (None, Some(chat)) => MemoryScope::Chat(chat),
        (Some(_), Some(_)) => bail!("a memory is a user's or a chat's"),
    };
    let names = match &scope {
        MemoryScope::Global => None,
        MemoryScope::User(name) | MemoryScope::Chat(name) => Some(name),
    };
    for name in names.into_iter().chain([&line.source]).chain(&line.subjects) {
        ensure!(
            !name.trim().is_empty() && name.len() <= NAME_BYTES_MAX,
            "a name must be 1 to {NAME_BYTES_MAX} bytes long"
        );
    }
    ensure!(
        !line.content.trim().is_empty() && line.content.len() <= CONTENT_BYTES_MAX,
        "content must be 1 to {CONTENT_BYTES_MAX} bytes long"
    );
    ensure!(line.subjects.len() <= SUBJECTS_MAX, "subjects must be at most {SUBJECTS_MAX}");
    let moment = |text: &str| text.parse::<Timestamp>().with_context(|| format!("{text:?}"));
    Ok(MemoryRecord {
        id,
        scope,
        content: line.content,
        source: line.source,
        subjects: line.subjects,
        created_at: moment(&line.created_at)?,
        expires_at: line.expires_at.as_deref().map(moment).transpose()?,
        supersedes: Vec::new(),
    })
}

/// A line of export.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportedMemory {
    id: String,
    content: String,
    source: String,
    created_at: String,
    expires_at: Option<String>,
    subjects: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chat_id: Option<String>,
}

impl From<MemoryRecord> for ExportedMemory {
    fn from(memory: MemoryRecord) -> Self {
        let (user_id, chat_id) = match memory.scope {
            MemoryScope::Global => (None, None),
            MemoryScope::User(user) => (Some(user), None),
            MemoryScope::Chat(chat) => (None, Some(chat)),
        };
        Self {
            id: memory.id.to_string(),
            content: memory.content,
            source: memory.source,
            created_at: memory.created_at.to_string(),
            expires_at: memory.expires_at.map(|at| at.to_string()),
            subjects: memory.subjects,
            user_id,
            chat_id,
        }
    }
}
