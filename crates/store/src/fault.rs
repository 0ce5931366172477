//! What goes wrong in here, in the words of the core.

use std::fmt::Display;
use std::io;

use nexus_core::store::StoreError;
use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_FSYNC, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE};

/// A `StoreError` on its way out. It exists because both ends of the conversion are foreign types, and `?` needs a
/// `From`.
#[derive(Debug)]
pub(super) struct Fault(StoreError);

impl Fault {
    /// The database holds something that this program did not write, or asks for what it cannot hold.
    pub(super) fn unfit(detail: impl Into<String>) -> Self {
        Self(StoreError::Failed(detail.into()))
    }

    /// Says in the detail what it was about.
    pub(super) fn about(self, subject: impl Display) -> Self {
        Self(match self.0 {
            StoreError::Failed(detail) => StoreError::Failed(format!("{subject}: {detail}")),
            other => other,
        })
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        fault.0
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self(match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::DiskFull,
            Some(ErrorCode::DatabaseBusy) => StoreError::Busy,
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => StoreError::ReadOnly,
            // A quota or a limit on the size of files, most likely.
            Some(ErrorCode::SystemIoFailure) if is_write(&error) => StoreError::ReadOnly,
            _ => StoreError::Failed(error.to_string()),
        })
    }
}

fn is_write(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_WRITE | SQLITE_IOERR_FSYNC | SQLITE_IOERR_TRUNCATE))
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self(match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::DiskFull,
            io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::FileTooLarge => StoreError::ReadOnly,
            _ => StoreError::Failed(error.to_string()),
        })
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self(StoreError::Failed(error.to_string()))
    }
}
