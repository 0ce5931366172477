//! Servers that are one agent's: made of what is kept with it, when somebody looks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use nexus_core::mcp::{OwnServer, ServerEntry};

use crate::ground::{Entries, Ground};
use crate::lock;
use crate::server::{Common, Server};

/// That are remembered at once; of more, those without a process are made again when somebody looks.
const REMEMBERED_MAX: usize = 1_024;

/// By the numbers that tell them apart.
#[derive(Clone, Default)]
pub struct Owned(Arc<Mutex<BTreeMap<u64, Arc<Server>>>>);

impl Owned {
    /// The server that an agent was connected to.
    pub fn get(&self, own: &OwnServer, common: &Common) -> Arc<Server> {
        let mut all = lock(&self.0);
        if let Some(server) = all.get(&own.id) {
            return server.clone();
        }
        if all.len() >= REMEMBERED_MAX {
            all.retain(|_, server| !lock(&server.apart).is_empty());
        }
        let (this, id) = (Arc::downgrade(&self.0), own.id);
        let emptied = move || {
            if let Some(all) = this.upgrade() {
                lock(&all).remove(&id);
            }
        };
        let server = Server::own(entry(own, &common.ground), common.clone(), Box::new(emptied));
        all.insert(own.id, server.clone());
        let kept = server.clone();
        tokio::spawn(async move { kept.look_for_kept().await });
        server
    }

    /// Ends all processes of a server, which nobody has any more.
    pub async fn forget(&self, own: &OwnServer) {
        let server = lock(&self.0).remove(&own.id);
        if let Some(server) = server {
            server.end_all_apart().await;
        }
    }
}

/// The entry of a server, or that it cannot be used any more.
fn entry(own: &OwnServer, ground: &Ground) -> ServerEntry {
    let entries: &dyn Entries = &*ground.entries;
    let lost = own.lost();
    if !lost.is_empty() {
        let why = format!(
            "{} was given as it is, and such values are not kept: disconnect it and connect it again, or let its entry \
             name variables (${{NAME}})",
            lost.join(", ")
        );
        return entries.unusable(&own.name, own.source, why);
    }
    let read = entries.read(&own.name, own.source, own.entry());
    read.unwrap_or_else(|why| entries.unusable(&own.name, own.source, why))
}
