//! A list that grows at its end and is cheap to copy: what is shown of an agent is a copy of it, made with each commit.

use std::sync::Arc;

/// Items in one chunk. A push into a list that somebody else holds a copy of copies this many at most, and every so many
/// pushes the list of the chunks: with more, ordinary conversations cost more, with fewer, very long ones.
const CHUNK: usize = 16;

/// A list whose copies share what they have in common.
#[derive(Clone)]
pub struct List<T> {
    /// Full chunks.
    chunks: Arc<Vec<Arc<Vec<T>>>>,
    tail: Arc<Vec<T>>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { chunks: Arc::default(), tail: Arc::default() }
    }
}

impl<T: Clone> List<T> {
    pub fn len(&self) -> usize {
        self.chunks.len() * CHUNK + self.tail.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn push(&mut self, item: T) {
        Arc::make_mut(&mut self.tail).push(item);
        if self.tail.len() == CHUNK {
            let full = std::mem::take(&mut self.tail);
            Arc::make_mut(&mut self.chunks).push(full);
        }
    }

    pub fn pop(&mut self) -> Option<T> {
        if self.tail.is_empty() {
            self.tail = Arc::make_mut(&mut self.chunks).pop()?;
        }
        Arc::make_mut(&mut self.tail).pop()
    }

    pub fn last(&self) -> Option<&T> {
        self.tail.last().or_else(|| self.chunks.last()?.last())
    }

    /// The items from index `start` on.
    pub fn from(&self, start: usize) -> impl DoubleEndedIterator<Item = &T> {
        let chunks = self.chunks.get(start / CHUNK..).unwrap_or_default();
        let skipped = match chunks.is_empty() {
            true => start.saturating_sub(self.chunks.len() * CHUNK).min(self.tail.len()),
            false => 0,
        };
        let whole = chunks.iter().enumerate().flat_map(move |(index, chunk)| {
            let skipped = if index == 0 { start % CHUNK } else { 0 };
            chunk[skipped..].iter()
        });
        whole.chain(self.tail[skipped..].iter())
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.from(0)
    }
}

impl<T: Clone> Extend<T> for List<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

impl<T: Clone> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Self::default();
        list.extend(items);
        list
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A list does what a vector does, and a copy does not follow its original.
        #[test]
        fn is_a_vector(pushed in 0_usize..400, popped in 0_usize..420, start in 0_usize..450) {
            let mut list: List<usize> = (0..pushed).collect();
            let copy = list.clone();
            let mut vector: Vec<_> = (0..pushed).collect();
            for _ in 0..popped {
                prop_assert_eq!(list.pop(), vector.pop());
            }
            list.push(7);
            vector.push(7);
            let from: Vec<_> = list.from(start).copied().collect();
            prop_assert_eq!(&from[..], vector.get(start..).unwrap_or_default());
            let reversed: Vec<_> = list.iter().rev().copied().collect();
            prop_assert_eq!(reversed, vector.iter().rev().copied().collect::<Vec<_>>());
            prop_assert_eq!((list.len(), list.last()), (vector.len(), vector.last()));
            prop_assert!(copy.iter().copied().eq(0..pushed));
        }
    }
}
