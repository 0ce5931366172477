//! A turn's place among those that run.

use std::sync::Mutex;

use super::slots::{Admission, Slot};
use crate::lock;

/// A turn that was admitted, and the slot it runs in while it has one.
pub(super) struct Standing {
    admission: Admission,
    /// It runs in the slot of the turn that started it.
    nested: bool,
    slot: Mutex<Option<Slot>>,
}

impl Standing {
    pub fn new(admission: Admission, nested: bool) -> Self {
        Self { admission, nested, slot: Mutex::default() }
    }

    /// Waits for a slot, unless the turn has one.
    pub async fn enter(&self) {
        if self.nested || lock(&self.slot).is_some() {
            return;
        }
        let slot = self.admission.slot().await;
        *lock(&self.slot) = slot;
    }

    /// Gives the slot to whoever comes next, for as long as the turn waits for others.
    pub fn leave(&self) {
        drop(lock(&self.slot).take());
    }
}
