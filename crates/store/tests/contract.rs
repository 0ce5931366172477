//! The store on SQLite keeps the contract of stores.

use nexus_store::SqliteStore;
use nexus_testkit::store::contract::Place;
use tempfile::TempDir;

struct Home(TempDir);

impl Place for Home {
    type Store = SqliteStore;

    async fn open(&self) -> SqliteStore {
        SqliteStore::open(self.0.path()).unwrap_or_else(|error| panic!("{error}"))
    }
}

nexus_testkit::store_contract!(Home(tempfile::tempdir().unwrap()));
