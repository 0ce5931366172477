//! `nexus3 session`: sessions to files and back, straight from the store; no server is needed, and one may run.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::session_file::{self, Import, SessionFile};
use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use nexus_config::{Config, ModelCatalog};
use nexus_core::permission::{Level, Preset};
use nexus_core::provider::Models as _;
use nexus_core::store::{AgentStore as _, SessionStore as _};
use nexus_core::{AgentId, paths};
use nexus_store::SqliteStore;
use rustix::fs::{AtFlags, Mode, OFlags};
use serde_json::json;

use crate::output::{complain, print_json};
use crate::wiring;

/// What an imported session may do unless somebody says otherwise.
const PRESET_DEFAULT: &str = "sandboxed";

#[derive(Args)]
pub struct SessionArgs {
    #[command(subcommand)]
    command: SessionCommand,
}

#[derive(Subcommand)]
enum SessionCommand {
    /// Write a session to a file, as JSON
    ///
    /// The form is described in docs/guide/sessions.md. The file holds the whole conversation and is made for you alone
    /// to read.
    Export {
        /// Name of the session
        name: String,
        /// File to write; standard output when absent
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Make saved sessions of files: of export, or of the Python original (~/.nexus3/sessions/*.json)
    ///
    /// What an imported session may do is not taken from the file: it is sandboxed to your directory unless you say
    /// otherwise, and never gets more than it was exported with. Nothing is granted, and it has no parent. Prints one
    /// line of JSON for each; load a session with: nexus3 rpc sessions load NAME
    Import(ImportArgs),
}

#[derive(Args)]
struct ImportArgs {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Name of the session, with one file; that in the file when absent
    #[arg(long)]
    name: Option<String>,
    /// Permission preset instead of sandboxed; still within the ceiling of an exported session
    #[arg(long)]
    preset: Option<String>,
    /// Working directory instead of yours
    #[arg(long, value_name = "DIR", conflicts_with = "own_cwd")]
    cwd: Option<PathBuf>,
    /// Work where the file says, instead of in your directory
    #[arg(long)]
    own_cwd: bool,
}

pub async fn run(args: SessionArgs) -> anyhow::Result<ExitCode> {
    let home = wiring::home()?;
    let store = SqliteStore::open(&home)?;
    let done = match args.command {
        SessionCommand::Export { name, output } => export(&store, &name, output.as_deref()).await,
        SessionCommand::Import(args) => import(&store, &home, args).await,
    };
    store.close().await?;
    done.map(|()| ExitCode::SUCCESS)
}

async fn export(store: &SqliteStore, name: &str, output: Option<&Path>) -> anyhow::Result<()> {
    let id = AgentId::parse(name)?;
    let found = store.read_session(&id).await?;
    let (session, messages) = found.with_context(|| format!("there is no session {name}"))?;
    let text = format!("{:#}\n", session_file::export(&session, &messages)?);
    match output {
        None => print_json(text)?,
        Some(path) => write_private(path, &text)
            .with_context(|| format!("{} cannot be written", path.display()))?,
    }
    Ok(())
}

/// Writes a file that is its owner's alone, whatever had the name before: it is made beside it and takes the name when it
/// is whole. So who may read the old file, or has it open, sees nothing of the new one, and a link that somebody laid
/// there is replaced and not followed. What is no file, such as a pipe or /dev/stdout, is written to as it is.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let found = fs::symlink_metadata(path);
    let is_channel = found.is_ok_and(|found| !found.is_file() && !found.is_symlink())
        || paths::of_kernel(&std::path::absolute(path)?);
    if is_channel {
        return File::options().write(true).open(path)?.write_all(text.as_bytes());
    }
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = File::open(parent.unwrap_or(Path::new(".")))?;
    let draft = format!(".nexus3-{:016x}.tmp", RandomState::new().build_hasher().finish());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(&dir, &draft, flags, Mode::RUSR | Mode::WUSR)?);
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(rustix::fs::renameat(&dir, &draft, &dir, name)?));
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&dir, &draft, AtFlags::empty());
    }
    written.and_then(|()| dir.sync_all())
}

async fn import(store: &SqliteStore, home: &Path, args: ImportArgs) -> anyhow::Result<()> {
    ensure!(
        args.name.is_none() || args.files.len() == 1,
        "--name is for one file; {} were given",
        args.files.len()
    );
    let config = wiring::load_config(home, None)?;
    let preset = preset(&config, args.preset.as_deref().unwrap_or(PRESET_DEFAULT))?;
    let catalog = wiring::catalog(home, &config)?;
    let protected: Vec<_> = wiring::protected(home).into_iter().collect();
    for path in &args.files {
        let file = SessionFile::read(path)?;
        let import = Import {
            name: args.name.as_deref(),
            preset: &preset,
            preset_was_named: args.preset.is_some(),
            cwd: directory(&args, &file)?,
            protected: &protected,
        };
        let mut record = file.record(&import).with_context(|| format!("{}", path.display()))?;
        record.settings.model = known_model(&catalog, record.settings.model.take());
        let (name, cwd, level) =
            (record.id.clone(), record.settings.cwd.clone(), record.settings.permissions.level);
        store
            .put_saved(record, &file.messages)
            .await
            .with_context(|| format!("{} was not imported", path.display()))?;
        let imported = json!({"imported": true, "session_name": name.as_str(), "message_count": file.messages.len(),
            "permission_level": level.name(), "cwd": cwd});
        print_json(format!("{imported}\n"))?;
    }
    Ok(())
}

fn preset(config: &Config, name: &str) -> anyhow::Result<Preset> {
    let Some(mut preset) = config.permissions.preset(name) else {
        bail!("unknown preset: {name}");
    };
    ensure!(preset.level != Level::Yolo, "preset yolo is given only from the interactive terminal");
    preset.resolve_links();
    Ok(preset)
}

/// Where the session is to work. A file could name any place, so what it names has to be asked for.
fn directory(args: &ImportArgs, file: &SessionFile) -> anyhow::Result<PathBuf> {
    let path = match &args.cwd {
        Some(path) => path.clone(),
        None if args.own_cwd => file.cwd.clone(),
        None => wiring::cwd()?,
    };
    let found = path.canonicalize().ok().filter(|found| found.is_dir());
    found.with_context(|| format!("there is no directory {}: name one with --cwd", path.display()))
}

/// A model that is not configured here would make every turn fail.
fn known_model(catalog: &ModelCatalog, model: Option<String>) -> Option<String> {
    let name = model?;
    match catalog.resolve(Some(&name)) {
        Ok(_) => Some(name),
        Err(error) => {
            complain(format_args!("Warning: {error}; the session will use the default model"));
            None
        }
    }
}
