//! Which homes are opened, and which are refused and left alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;

use super::super::OpenError;
use super::{SqliteStore, home, open};

#[test]
fn a_new_home_is_for_its_user_alone() {
    let root = home();
    let path = root.path().join("deep/home");
    let _store = SqliteStore::open(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let files: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.contains(&path.join("nexus3.db")));
    for file in files {
        assert!(!file.to_string_lossy().contains(".new-"), "{file:?}");
        assert_eq!(mode(&file), 0o600, "{file:?}");
    }
}

#[test]
fn processes_that_start_together_make_one_database() {
    let home = home();
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&home))).collect();
        let stores: Vec<_> = starts.into_iter().map(|start| start.join().unwrap()).collect();
        drop(stores);
    });
    let left: Vec<_> = fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["nexus3.db"]);
}

#[test]
fn the_journal_is_a_log_and_commits_are_flushed() {
    let home = home();
    let opened = super::super::open::open(home.path()).unwrap();
    let pragma = |name: &str| -> String {
        opened
            .db
            .query_row(&format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}"), [], |r| r.get(0))
            .unwrap()
    };
    assert_eq!(pragma("journal_mode"), "wal");
    assert_eq!(pragma("synchronous"), "2");
    assert_eq!(pragma("foreign_keys"), "1");
}

/// Opens a home whose database file has been spoilt, and returns the refusal. The file must be as before.
fn refusal(spoil: impl FnOnce(&Path)) -> OpenError {
    let home = home();
    let path = home.path().join("nexus3.db");
    spoil(&path);
    let before = fs::read(&path).unwrap();
    let error = SqliteStore::open(home.path()).err().unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    error
}

fn with_database(path: &Path, sql: &str) {
    drop(SqliteStore::open(path.parent().unwrap()).unwrap());
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_database_of_a_newer_version_is_refused() {
    let error = refusal(|path| with_database(path, "PRAGMA user_version = 1000"));
    assert!(matches!(error, OpenError::Newer { found: 1000, .. }), "{error:?}");
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let error = refusal(|path| fs::write(path, "not a database. ".repeat(1000)).unwrap());
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error:?}");
}

#[test]
fn the_database_of_another_program_is_refused() {
    let other = "CREATE TABLE bookmarks (url)";
    let error = refusal(|path| Connection::open(path).unwrap().execute_batch(other).unwrap());
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error:?}");
    let other = "CREATE TABLE bookmarks (url); PRAGMA user_version = 1";
    let error = refusal(|path| Connection::open(path).unwrap().execute_batch(other).unwrap());
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error:?}");
}

#[test]
fn a_truncated_database_is_refused() {
    let error = refusal(|path| {
        with_database(path, "");
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(8192).unwrap();
    });
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
}

#[test]
fn a_database_with_a_spoilt_schema_is_refused() {
    let error = refusal(|path| {
        with_database(path, "");
        let mut bytes = fs::read(path).unwrap();
        bytes[100..4096].fill(0xff);
        fs::write(path, bytes).unwrap();
    });
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
}

#[test]
fn an_empty_file_becomes_a_database() {
    let home = home();
    fs::write(home.path().join("nexus3.db"), "").unwrap();
    drop(open(&home));
    drop(open(&home));
}

#[test]
fn a_directory_in_the_place_of_the_database_is_refused() {
    let home = home();
    fs::create_dir(home.path().join("nexus3.db")).unwrap();
    let error = SqliteStore::open(home.path()).err().unwrap();
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
}

#[test]
fn a_home_that_is_a_file_is_refused() {
    let root = home();
    let path = root.path().join("file");
    fs::write(&path, "").unwrap();
    let error = SqliteStore::open(&path).err().unwrap();
    assert!(matches!(error, OpenError::Home { .. }), "{error:?}");
}

#[test]
fn a_home_that_cannot_be_written_is_refused() {
    let home = home();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o500)).unwrap();
    // Permission bits do not bind root; a kernel file system refuses everybody.
    let bound = fs::write(home.path().join("probe"), "").is_err();
    let place = if bound { home.path() } else { Path::new("/sys/kernel") };
    let error = SqliteStore::open(place).err().unwrap();
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
}
