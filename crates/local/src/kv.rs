//! What a sequence remembers of its tokens, and the store of such memories for conversations that may go on.

use crate::arithmetic::Memory;
use crate::weights::Shape;

/// The keys and values of one sequence, layer by layer, and the tokens they stand for.
pub struct Kv {
    tokens: Vec<u32>,
    layers: Vec<(Vec<f32>, Vec<f32>)>,
    /// Numbers of one token in one layer, of keys or of values.
    width: usize,
}

impl Kv {
    pub fn new(shape: &Shape) -> Self {
        let layers = (0..shape.layers).map(|_| (Vec::new(), Vec::new())).collect();
        Self { tokens: Vec::new(), layers, width: shape.kv_width() }
    }

    /// Bytes that one token takes.
    pub fn token_bytes(shape: &Shape) -> usize {
        shape.layers * shape.kv_width() * 2 * size_of::<f32>()
    }

    pub fn layer(&self, at: usize) -> (&[f32], &[f32]) {
        let (keys, values) = &self.layers[at];
        (keys, values)
    }

    pub fn extend_layer(&mut self, at: usize, key: &[f32], value: &[f32]) {
        let (keys, values) = &mut self.layers[at];
        keys.extend_from_slice(key);
        values.extend_from_slice(value);
    }

    /// Notes a token whose keys and values are in every layer.
    pub fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }
}

impl Memory for Kv {
    fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    fn copied(&self, length: usize) -> Self {
        let cut = |numbers: &[f32]| numbers[..length * self.width].to_vec();
        Self {
            tokens: self.tokens[..length].to_vec(),
            layers: self.layers.iter().map(|(keys, values)| (cut(keys), cut(values))).collect(),
            width: self.width,
        }
    }

    fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        for (keys, values) in &mut self.layers {
            keys.truncate(length * self.width);
            values.truncate(length * self.width);
        }
    }

    fn settle(&mut self) {
        for (keys, values) in &mut self.layers {
            keys.shrink_to_fit();
            values.shrink_to_fit();
        }
    }
}

/// Memories of sequences that have ended, the one used last at the end.
pub struct Shelf<M> {
    kept: Vec<M>,
    tokens_max: usize,
    sequences_max: usize,
}

impl<M: Memory> Shelf<M> {
    pub fn new(tokens_max: usize, sequences_max: usize) -> Self {
        Self { kept: Vec::new(), tokens_max, sequences_max }
    }

    /// The longest memory that `tokens` begins with, to be continued. At least the last token is left to be read,
    /// since somebody wants to know what follows it.
    pub fn take(&mut self, tokens: &[u32]) -> Option<M> {
        let usable = tokens.len().saturating_sub(1);
        let common = |memory: &M| {
            let same = memory.tokens().iter().zip(&tokens[..usable]).take_while(|(a, b)| a == b);
            same.count()
        };
        let best = (0..self.kept.len()).max_by_key(|&at| common(&self.kept[at]));
        let (at, length) =
            best.map(|at| (at, common(&self.kept[at]))).filter(|(_, length)| *length > 0)?;
        // A conversation that goes on takes its memory along. One that only begins alike (the same instructions) gets a
        // copy: the other will go on too.
        let mut memory = self.kept.remove(at);
        let rest = memory.tokens().len() - length;
        if rest <= length / TAKEN_WHOLE_SHARE {
            memory.truncate(length);
            Some(memory)
        } else {
            let copy = memory.copied(length);
            self.kept.push(memory);
            Some(copy)
        }
    }

    /// Keeps a memory, if there is something in it and room for it.
    pub fn put(&mut self, mut memory: M) {
        if memory.tokens().is_empty() {
            return;
        }
        // One that another contains can serve for nothing the other could not.
        self.kept.retain(|other| !memory.tokens().starts_with(other.tokens()));
        memory.settle();
        self.kept.push(memory);
        self.limit(self.tokens_max);
    }

    /// Sets how many tokens may be kept; what was unused for longest goes when that is too much.
    pub fn limit(&mut self, tokens_max: usize) {
        self.tokens_max = tokens_max;
        while !self.kept.is_empty()
            && (self.tokens() > self.tokens_max || self.kept.len() > self.sequences_max)
        {
            self.kept.remove(0);
        }
    }

    fn tokens(&self) -> usize {
        self.kept.iter().map(|memory| memory.tokens().len()).sum()
    }
}

/// A memory is taken and cut, not copied, when what it would lose is at most this part of what it keeps: the end of an
/// answer, which was tokenised otherwise when it came back.
const TAKEN_WHOLE_SHARE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        width: 32,
        heads: 1,
        kv_heads: 1,
        head_width: 4,
        vocabulary: 10,
        layers: 2,
        window: 100,
        epsilon: 1e-5,
    };

    fn kv(tokens: &[u32]) -> Kv {
        let mut kv = Kv::new(&SHAPE);
        for &token in tokens {
            for layer in 0..SHAPE.layers {
                kv.extend_layer(layer, &[token as f32; 4], &[0.0; 4]);
            }
            kv.push(token);
        }
        kv
    }

    /// What is taken for `asked` when `kept` lie on the shelf, and what stays there.
    fn check(kept: &[&[u32]], asked: &[u32], taken: &[u32], left: &[&[u32]]) {
        let mut shelf = Shelf::new(usize::MAX, usize::MAX);
        kept.iter().for_each(|tokens| shelf.put(kv(tokens)));
        let kv = shelf.take(asked).unwrap_or_else(|| Kv::new(&SHAPE));
        assert_eq!(kv.tokens, taken);
        assert_eq!(kv.layer(1).0.len(), taken.len() * 4);
        assert_eq!(shelf.kept.iter().map(|kv| &kv.tokens[..]).collect::<Vec<_>>(), left);
    }

    #[test]
    fn a_conversation_finds_what_it_has_said_before() {
        check(&[], &[1, 2], &[], &[]);
        check(&[&[1, 2, 3]], &[1, 2, 3, 4], &[1, 2, 3], &[]);
        check(&[&[9, 8], &[1, 2, 3]], &[1, 2, 3, 4], &[1, 2, 3], &[&[9, 8]]);
        check(&[&[5, 6]], &[1, 2], &[], &[&[5, 6]]);
    }

    #[test]
    fn two_conversations_that_begin_alike_both_keep_their_memory() {
        check(&[&[1, 2, 3, 4]], &[1, 2, 9, 9], &[1, 2], &[&[1, 2, 3, 4]]);
    }

    #[test]
    fn the_last_token_is_always_read_anew() {
        check(&[&[1, 2, 3]], &[1, 2, 3], &[1, 2], &[&[1, 2, 3]]);
    }

    #[test]
    fn a_memory_that_another_contains_is_not_kept_twice() {
        let mut shelf = Shelf::new(usize::MAX, usize::MAX);
        shelf.put(kv(&[1, 2]));
        shelf.put(kv(&[1, 2, 3]));
        assert_eq!(shelf.kept.len(), 1);
    }

    #[test]
    fn what_was_unused_for_longest_goes_first() {
        let left =
            |shelf: &Shelf<Kv>| shelf.kept.iter().map(|kv| kv.tokens.clone()).collect::<Vec<_>>();
        let mut shelf = Shelf::new(6, 2);
        shelf.put(kv(&[1, 2, 3]));
        shelf.put(kv(&[4, 5, 6]));
        assert_eq!(shelf.tokens(), 6);
        drop(shelf.take(&[1, 9, 9, 9, 9]));
        shelf.put(kv(&[7]));
        assert_eq!(left(&shelf), [vec![1, 2, 3], vec![7]]);
        shelf.put(kv(&[8]));
        assert_eq!(left(&shelf), [vec![7], vec![8]]);
        shelf.put(kv(&[9; 7]));
        assert_eq!(shelf.tokens(), 0);
    }
}
