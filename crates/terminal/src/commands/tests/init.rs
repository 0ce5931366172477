//! `/init`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use super::super::init::global;
use crate::testing::Stage;

fn stage(directory: &Path) -> Stage {
    let mut stage = Stage::new(&[]);
    stage.making.cwd = directory.into();
    stage
}

#[tokio::test]
async fn writes_what_a_project_tells_agents() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = stage(dir.path());
    let told = ["Wrote AGENTS.md.", "Wrote .nexus3/config.json."];
    stage.check("/init", json!([]), &told).await;
    let text = fs::read_to_string(dir.path().join("AGENTS.md")).unwrap();
    assert!(text.starts_with("# What agents should know here\n"));
    assert_eq!(fs::read_to_string(dir.path().join(".nexus3/config.json")).unwrap(), "{}\n");
    let exists = ["There already: AGENTS.md, .nexus3/config.json. --force replaces."];
    stage.check("/init", json!([]), &exists).await;
    let told = ["Wrote NEXUS.md.", ".nexus3/config.json exists, and stays as it is."];
    stage.check("/init NEXUS.md", json!([]), &told).await;
}

#[tokio::test]
async fn force_replaces_files_and_nothing_else_does() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("AGENTS.md"), "mine").unwrap();
    let mut stage = stage(dir.path());
    let told = ["Wrote .nexus3/config.json.", "AGENTS.md exists, and stays as it is."];
    stage.check("/init", json!([]), &told).await;
    assert_eq!(fs::read_to_string(dir.path().join("AGENTS.md")).unwrap(), "mine");
    let told = ["Wrote AGENTS.md.", "Wrote .nexus3/config.json."];
    stage.check("/init --force", json!([]), &told).await;
    assert_ne!(fs::read_to_string(dir.path().join("AGENTS.md")).unwrap(), "mine");
}

#[tokio::test]
async fn refuses_paths_and_unknown_words() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = stage(dir.path());
    for file in ["../x.md", "/etc/x.md", "sub/x.md", "..", "."] {
        let refused = format!("{file} is not the name of a file in this directory.");
        stage.check(&format!("/init {file}"), json!([]), &[&refused]).await;
    }
    let usage = ["Usage: /init [FILE] [--force], or /init --global [--force]"];
    stage.check("/init a b", json!([]), &usage).await;
    stage.check("/init a --global", json!([]), &usage).await;
    stage.check("/init --nope", json!([]), &["Unknown flag: --nope"]).await;
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn follows_no_links() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let victim = outside.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    symlink(&victim, dir.path().join("AGENTS.md")).unwrap();
    let refused = ["AGENTS.md is there, and is no file."];
    stage(dir.path()).check("/init --force", json!([]), &refused).await;
    fs::remove_file(dir.path().join("AGENTS.md")).unwrap();
    fs::remove_dir(dir.path().join(".nexus3")).unwrap();
    symlink(outside.path(), dir.path().join(".nexus3")).unwrap();
    let told = stage(dir.path()).run("/init --force").await.told;
    assert!(told.len() == 1 && told[0].starts_with(".nexus3: "), "{told:?}");
    assert!(!dir.path().join("AGENTS.md").exists());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn writes_what_a_person_tells_agents() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join(".nexus3");
    let (prompt, configuration) = (home.join("NEXUS.md"), home.join("config.json"));
    let wrote =
        [format!("Wrote {}.", prompt.display()), format!("Wrote {}.", configuration.display())];
    assert_eq!(global(&home, false, "--force").unwrap(), wrote);
    fs::write(&prompt, "mine").unwrap();
    let (one, other) = (prompt.display(), configuration.display());
    let exists = format!("There already: {one}, {other}. --force replaces.");
    assert_eq!(global(&home, false, "--force").unwrap_err(), exists);
    assert_eq!(fs::read_to_string(&prompt).unwrap(), "mine");
    assert_eq!(global(&home, true, "--force").unwrap(), wrote);
    assert!(fs::read_to_string(&prompt).unwrap().starts_with("# What agents"));
}
