//! The store in memory keeps the contract of stores.

use nexus_testkit::store::MemoryStore;
use nexus_testkit::store::contract::Place;

/// Data that outlives the processes on it.
#[derive(Default)]
struct Memory(MemoryStore);

impl Place for Memory {
    type Store = MemoryStore;

    async fn open(&self) -> MemoryStore {
        self.0.neighbour()
    }
}

nexus_testkit::store_contract!(Memory::default());
