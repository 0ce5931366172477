//! Whether a conversation is sent again as it was sent before. Providers read it from their caches, and take signed thoughts
//! back, only if not a byte of what stands before has changed; a break costs money and says nothing. So every request is
//! compared with the one before it, by hashes of its blocks.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

use foldhash::fast::FixedState;
use nexus_core::message::Role;
use nexus_core::provider::{ModelCall, Recurs};

/// Conversations that are kept in mind. With one more, those that were not sent since half of them came are forgotten.
const CONVERSATIONS_MAX: usize = 4_096;

/// The conversation within a request, block by block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocks {
    /// For each block, a hash of all up to its end.
    pub ends: Vec<u64>,
    /// How many stand before the last turn.
    pub turn: usize,
    /// How many stand up to the end of what began it, where that is more than one block.
    pub asked: usize,
}

/// The last requests to one provider.
#[derive(Default)]
pub(super) struct Prefixes(Mutex<Known>);

#[derive(Default)]
struct Known {
    now: HashMap<u64, Last>,
    /// From before there were too many.
    earlier: HashMap<u64, Last>,
}

/// What is compared of a request.
#[derive(Clone, Copy)]
struct Last {
    epoch: u64,
    before_turn: Place,
    /// Behind what began the turn.
    asked: Place,
    end: Place,
}

/// So many blocks, and the hash of them.
#[derive(Clone, Copy)]
struct Place {
    blocks: usize,
    hash: u64,
}

impl Prefixes {
    /// Whether a request keeps what the one before it said. It may leave out its last exchange, which was not answered or
    /// is not shown again, but not change a block of it.
    pub fn is_kept(&self, call: &ModelCall, blocks: &Blocks) -> bool {
        if call.asker.conversation.is_empty() {
            return true;
        }
        let last = Last::of(call, blocks);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match call.recurs {
            Recurs::Whole => known.put(name(call), last),
            Recurs::Beginning => known.get(name(call)),
            // What stands alone continues nothing.
            Recurs::Nothing => None,
        };
        drop(known);
        let Some(before) = before.filter(|before| before.epoch == last.epoch) else { return true };
        let kept = |place: Place| place.is_in(blocks);
        kept(before.end) || (kept(before.before_turn) && !kept(before.asked))
    }
}

impl Known {
    fn get(&self, name: u64) -> Option<Last> {
        self.now.get(&name).or_else(|| self.earlier.get(&name)).copied()
    }

    fn put(&mut self, name: u64, last: Last) -> Option<Last> {
        if self.now.len() >= CONVERSATIONS_MAX / 2 && !self.now.contains_key(&name) {
            self.earlier = std::mem::take(&mut self.now);
        }
        let before = self.earlier.remove(&name);
        self.now.insert(name, last).or(before)
    }
}

impl Last {
    fn of(call: &ModelCall, blocks: &Blocks) -> Self {
        let end = blocks.ends.len();
        Self {
            epoch: epoch(call),
            before_turn: Place::of(blocks, blocks.turn),
            asked: Place::of(blocks, blocks.asked.max(blocks.turn + 1).min(end)),
            end: Place::of(blocks, end),
        }
    }
}

impl Place {
    fn of(blocks: &Blocks, count: usize) -> Self {
        let last = count.checked_sub(1).and_then(|at| blocks.ends.get(at));
        Self { blocks: count, hash: last.copied().unwrap_or_default() }
    }

    fn is_in(self, blocks: &Blocks) -> bool {
        match self.blocks.checked_sub(1) {
            None => true,
            Some(at) => blocks.ends.get(at) == Some(&self.hash),
        }
    }
}

/// Whose conversation it is. An agent that was born anew under an old name has another.
fn name(call: &ModelCall) -> u64 {
    let asker = &call.asker;
    FixedState::default().hash_one((&*asker.conversation, &*asker.agent, asker.born))
}

/// Within an epoch a conversation only grows: it has one system text, one list of tools and one model, and begins with
/// one summary or with none.
fn epoch(call: &ModelCall) -> u64 {
    let mut hash = FixedState::default().build_hasher();
    call.model.id.hash(&mut hash);
    call.model.thinking.replayed_always.hash(&mut hash);
    (call.model.inputs.image, call.model.inputs.pdf).hash(&mut hash);
    call.earlier.hash(&mut hash);
    call.system.hash(&mut hash);
    for tool in call.tools.iter() {
        (&*tool.name, &*tool.description, &*tool.parameters).hash(&mut hash);
    }
    let summary = call.messages.iter().next().filter(|first| first.role == Role::Summary);
    summary.map(|it| it.text()).hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests;
