//! Opening the database file: made when missing, refused when it is not ours to write.
//!
//! While a store is open, nothing else in this process may open its files, not even to read them: closing any handle on
//! a file frees the locks that SQLite has on it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};
use thiserror::Error;

use super::owner::random_hex;
use super::schema;

pub(super) const FILE_NAME: &str = "nexus3.db";

/// How long a write waits for another process on the same home. Its groups take milliseconds; one that holds the
/// database for seconds is stuck, and the caller should hear of it.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// After a burst the write-ahead log is cut back to this, so that it does not keep the size of the largest burst.
const WAL_KEPT_BYTES_MAX: i64 = 16 << 20;

/// What the writer may keep of the database in memory; as long as it touches little, it is little. With SQLite's own 2 MiB
/// ending a family of 16,000 reads most pages several times.
const CACHE_KIB_MAX: i64 = 16 << 10;

/// Statements that a connection keeps compiled: all that this crate has, with room. One more than it keeps, and each
/// would be compiled anew each time.
const STATEMENTS_MAX: usize = 128;

/// Of a new database; an older one keeps what it has. A commit writes whole pages, and what one appends is small: with
/// SQLite's own 4096 a short turn wrote twice as much (`nexus-bench sessions`).
const PAGE_BYTES: i64 = 1024;

/// Pages in the write-ahead log before they are moved into the database: 4 MiB, as with SQLite's own numbers. Each move
/// is two flushes.
const WAL_PAGES: i64 = 4096;

/// Why the store cannot be opened. The binary prints it at start, so each sentence names the place.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("cannot use {} as the home directory", .path.display())]
    Home { path: PathBuf, source: io::Error },
    #[error(
        "the store {} cannot be written: look at the permissions of the file and of its directory",
        .path.display()
    )]
    ReadOnly { path: PathBuf },
    #[error(
        "there is no space left on the disk for the store {}: make room there, or name a home elsewhere with NEXUS3_HOME",
        .path.display()
    )]
    DiskFull { path: PathBuf },
    #[error(
        "{} was written by a newer nexus3: it has store version {found}, this program knows up to {known}",
        .path.display()
    )]
    Newer { path: PathBuf, found: usize, known: usize },
    #[error("{} is not a nexus3 database; it was left as it is", .path.display())]
    NotOurs { path: PathBuf },
    #[error(
        "the store {} is damaged; it was left as it is (nexus3 doctor says what can be saved)",
        .path.display()
    )]
    Damaged { path: PathBuf, source: rusqlite::Error },
    #[error("cannot make the store {}", .path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot open the store {}", .path.display())]
    Failed { path: PathBuf, source: rusqlite::Error },
    #[error("cannot start the thread that writes the store {}", .path.display())]
    Thread { path: PathBuf, source: io::Error },
}

pub(super) struct Opened {
    pub(super) db: Connection,
    pub(super) home: PathBuf,
    pub(super) path: PathBuf,
}

/// Opens the database under `home` for writing.
pub(super) fn open(home: &Path) -> Result<Opened, OpenError> {
    // Absolute, because readers open the file later, perhaps from another working directory, and because SQLite takes
    // a name that starts with `file:` for a URI.
    let home = std::path::absolute(home)
        .map_err(|source| OpenError::Home { path: home.to_path_buf(), source })?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&home)
        .map_err(|source| OpenError::Home { path: home.clone(), source })?;
    let path = home.join(FILE_NAME);
    let classify = |error| OpenError::from_cause(error, &path);
    if !path.try_exists().map_err(|error| classify(error.into()))? {
        make(&path).map_err(classify)?;
    }
    let mut db =
        connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|e| classify(e.into()))?;
    adopt(&mut db, &path)?;
    Ok(Opened { db, home, path })
}

/// A connection that only reads.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

pub(super) fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    // Each connection is used by one thread at a time; SQLite's own mutex would be a second lock around it.
    let db = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY_MAX)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Otherwise SQLite compiles some statements anew whenever they are given other values.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(db)
}

/// Makes an empty database aside and links it into place, so that no process ever sees half of one and the whole
/// costs one flush. When another process was quicker, its database is the one that stays.
pub(super) fn make(path: &Path) -> Result<(), Cause> {
    let aside = path.with_file_name(format!("{FILE_NAME}.new-{}", random_hex()));
    let made = make_aside(&aside).and_then(|()| match fs::hard_link(&aside, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => Ok(linked?),
    });
    // Best effort: a leftover is small, and the failure that matters is the one above.
    fs::remove_file(&aside).ok();
    made
}

fn make_aside(aside: &Path) -> Result<(), Cause> {
    // The mode is set at birth; SQLite gives the files it puts beside the database the same one.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(aside)?;
    let mut db = connect(aside, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.pragma_update(None, "page_size", PAGE_BYTES)?;
    db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    schema::make(&mut db)?;
    db.execute_batch("PRAGMA journal_mode = WAL;")?;
    db.close().map_err(|(_, error)| error)?;
    // The directory entry needs no flush of its own: SQLite flushes the directory with the first commit.
    Ok(file.sync_all()?)
}

/// Checks that the database is ours and whole at first sight, and brings it up to date. Nothing is written before the
/// checks are through.
fn adopt(db: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let classify = |error: rusqlite::Error| OpenError::from_sql(error, path);
    if db.is_readonly(MAIN_DB).map_err(classify)? {
        return Err(OpenError::ReadOnly { path: path.to_path_buf() });
    }
    let found = check_version(db, path)?;
    prepare(db, found < schema::STEPS.len()).map_err(classify)
}

/// The version of a database that is ours and not from the future.
pub(super) fn check_version(db: &Connection, path: &Path) -> Result<usize, OpenError> {
    let classify = |error: rusqlite::Error| OpenError::from_sql(error, path);
    let (found, known) = (schema::version(db).map_err(classify)?, schema::STEPS.len());
    if !is_ours(db, found).map_err(classify)? {
        return Err(OpenError::NotOurs { path: path.to_path_buf() });
    }
    if found > known {
        return Err(OpenError::Newer { path: path.to_path_buf(), found, known });
    }
    Ok(found)
}

/// An empty file counts as ours: it is what an interrupted copy or a `touch` leaves behind, and holds nothing to lose.
fn is_ours(db: &Connection, version: usize) -> rusqlite::Result<bool> {
    if version == 0 {
        return db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0));
    }
    let id: i32 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    Ok(id == schema::APPLICATION_ID)
}

fn prepare(db: &mut Connection, outdated: bool) -> rusqlite::Result<()> {
    // FULL flushes the log at each commit: without it an answered write could be gone after a power cut. Temporary
    // storage holds the undo pages of savepoints, which need no file.
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY;",
    )?;
    db.pragma_update(None, "cache_size", -CACHE_KIB_MAX)?;
    db.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES_MAX)?;
    db.pragma_update(None, "wal_autocheckpoint", WAL_PAGES)?;
    if outdated {
        schema::migrate(db, schema::STEPS)?;
    }
    // Loads the schema and the first page of the table, so that damage there is found now and not by a caller.
    db.query_row("SELECT count(*) FROM (SELECT 1 FROM agents LIMIT 1)", [], |_| Ok(()))
}

/// What stood in the way, before it is known to which sentence it belongs.
#[derive(Debug, Error)]
pub(super) enum Cause {
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl OpenError {
    pub(super) fn from_sql(error: rusqlite::Error, path: &Path) -> Self {
        Self::from_cause(error.into(), path)
    }

    fn from_cause(cause: Cause, path: &Path) -> Self {
        let path = path.to_path_buf();
        match cause {
            Cause::Sql(source) => match source.sqlite_error_code() {
                Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                    Self::ReadOnly { path }
                }
                Some(ErrorCode::DiskFull) => Self::DiskFull { path },
                Some(ErrorCode::NotADatabase) => Self::NotOurs { path },
                Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, source },
                _ => Self::Failed { path, source },
            },
            Cause::Io(source) => match source.kind() {
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                    Self::ReadOnly { path }
                }
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Self::DiskFull { path }
                }
                _ => Self::Make { path, source },
            },
        }
    }
}
