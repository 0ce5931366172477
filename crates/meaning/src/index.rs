//! Vectors in memory, each with an id and a scope, and the nearest among them.
//!
//! A search first compares signs only, a bit for each number, which for most rows is enough to see that they are far
//! away; those that may be near are compared by their bytes. Each scope has its rows for itself, so a search never
//! looks at what its caller may not see, and costs what is visible and not what is there.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use foldhash::fast::FixedState;
use pulp::Arch;

use crate::code::{Code, Distances, Products, VectorError, words};

/// Rows that are allocated together: memory grows by so much at most, and what is scanned stays in the nearest cache.
const BLOCK_ROWS: usize = 1024;

/// Rows that are compared by their bytes: this part of all,
const CANDIDATES_PART: usize = 8;
/// at least so many, because comparing them all is cheap,
const CANDIDATES_MIN: usize = 4_096;
/// and at most so many, because fetching them from memory is what a search among a million waits for. One row in 64, as
/// there, had 93 of the 100 nearest among 2,370 embeddings of texts; it has fewer of vectors without order.
const CANDIDATES_MAX: usize = 16_384;

/// Rows that are fetched from memory together.
const TOUCHED_ROWS: usize = 16;

/// What memory gives at once.
const LINE_BYTES: usize = 64;

/// An index of vectors of one embedding model.
pub struct Index {
    dims: usize,
    shelves: HashMap<u32, Shelf, FixedState>,
    places: HashMap<u64, Slot, FixedState>,
    arch: Arch,
}

#[derive(Clone, Copy)]
struct Slot {
    scope: u32,
    row: u32,
}

/// The rows of one scope. All blocks but the last are full, and the last is not empty.
#[derive(Default)]
struct Shelf {
    blocks: Vec<Block>,
}

/// Rows, column by column.
#[derive(Default)]
struct Block {
    ids: Vec<u64>,
    scales: Vec<f32>,
    signs: Vec<u64>,
    bytes: Vec<i8>,
}

impl Index {
    /// An empty index for vectors of so many numbers.
    pub fn new(dims: usize) -> Self {
        Self { dims, shelves: HashMap::default(), places: HashMap::default(), arch: Arch::new() }
    }

    pub fn dims(&self) -> usize {
        self.dims
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Puts a vector in, of any length but none; one that had this id goes.
    pub fn insert(&mut self, id: u64, scope: u32, vector: &[f32]) -> Result<(), VectorError> {
        let code = Code::of(vector, self.dims)?;
        self.remove(id);
        let row = self.shelves.entry(scope).or_default().push(id, &code);
        self.places.insert(id, Slot { scope, row });
        Ok(())
    }

    /// Takes a vector out. `false` if there was none.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some(Slot { scope, row }) = self.places.remove(&id) else { return false };
        let Some(shelf) = self.shelves.get_mut(&scope) else { return false };
        if let Some(moved) = shelf.remove(row as usize, self.dims) {
            self.places.insert(moved, Slot { scope, row });
        }
        if shelf.blocks.is_empty() {
            self.shelves.remove(&scope);
        }
        true
    }

    /// The ids of the `count` vectors nearest to `query` in any of `scopes`, and their cosine with it, nearest first.
    pub fn nearest(
        &self,
        query: &[f32],
        scopes: &[u32],
        count: usize,
    ) -> Result<Vec<(u64, f32)>, VectorError> {
        let blocks = self.visible(scopes);
        let part = rows(&blocks) / CANDIDATES_PART;
        let candidates = part.clamp(CANDIDATES_MIN, CANDIDATES_MAX);
        self.nearest_of(&blocks, query, count, candidates)
    }

    /// The same, where of so many candidates the bytes are compared: the fewer, the faster, and the more is missed.
    pub fn nearest_among(
        &self,
        query: &[f32],
        scopes: &[u32],
        count: usize,
        candidates: usize,
    ) -> Result<Vec<(u64, f32)>, VectorError> {
        self.nearest_of(&self.visible(scopes), query, count, candidates)
    }

    fn visible(&self, scopes: &[u32]) -> Vec<&Block> {
        let scopes: BTreeSet<_> = scopes.iter().collect();
        let shelves = scopes.into_iter().filter_map(|scope| self.shelves.get(scope));
        shelves.flat_map(|shelf| &shelf.blocks).collect()
    }

    fn nearest_of(
        &self,
        blocks: &[&Block],
        query: &[f32],
        count: usize,
        candidates: usize,
    ) -> Result<Vec<(u64, f32)>, VectorError> {
        let query = Code::of(query, self.dims)?;
        let mut nearest = Nearest { count, found: BinaryHeap::new() };
        let (apart, bound) = self.sift(blocks, &query, candidates.max(count));
        let mut apart = apart.as_slice();
        let mut near = Vec::with_capacity(BLOCK_ROWS);
        for block in blocks {
            let (own, rest) = apart.split_at(block.ids.len());
            near.clear();
            near.extend((0..own.len()).filter(|row| own[*row] <= bound));
            for some in near.chunks(TOUCHED_ROWS) {
                self.compare(block, some, &query, &mut nearest);
            }
            apart = rest;
        }
        Ok(nearest.in_order())
    }

    /// In how many signs each row differs from the query, and a bound within which at least `wanted` of them are.
    fn sift(&self, blocks: &[&Block], query: &Code, wanted: usize) -> (Vec<u32>, u32) {
        let mut apart = vec![0; rows(blocks)];
        let mut counts = vec![0_usize; self.dims + 1];
        let mut rest = apart.as_mut_slice();
        for block in blocks {
            let (own, behind) = rest.split_at_mut(block.ids.len());
            let (rows, query) = (&block.signs, &query.signs);
            self.arch.dispatch(Distances { rows, query, out: own });
            for distance in own {
                counts[*distance as usize] += 1;
            }
            rest = behind;
        }
        let mut within = 0;
        let bound = counts.iter().position(|count| {
            within += count;
            within >= wanted
        });
        (apart, bound.unwrap_or(self.dims) as u32)
    }

    /// Offers these rows, [`TOUCHED_ROWS`] at most.
    fn compare(&self, block: &Block, rows: &[usize], query: &Code, nearest: &mut Nearest) {
        block.touch(rows, self.dims);
        let mut products = [0; TOUCHED_ROWS];
        let (bytes, out) = (&block.bytes, &mut products);
        self.arch.dispatch(Products { bytes, rows, query: &query.bytes, out });
        for (row, product) in rows.iter().zip(products) {
            let cosine = product as f32 * (block.scales[*row] * query.scale);
            nearest.offer(Found { id: block.ids[*row], cosine });
        }
    }
}

fn rows(blocks: &[&Block]) -> usize {
    blocks.iter().map(|block| block.ids.len()).sum()
}

impl Shelf {
    /// Puts a row behind the last, and says where.
    fn push(&mut self, id: u64, code: &Code) -> u32 {
        if self.blocks.last().is_none_or(|block| block.ids.len() == BLOCK_ROWS) {
            self.blocks.push(Block::default());
        }
        let full = (self.blocks.len() - 1) * BLOCK_ROWS;
        let mut row = 0;
        if let Some(block) = self.blocks.last_mut() {
            row = block.ids.len();
            block.ids.push(id);
            block.scales.push(code.scale);
            block.signs.extend_from_slice(&code.signs);
            block.bytes.extend_from_slice(&code.bytes);
        }
        (full + row) as u32
    }

    /// Takes a row out and puts the last one in its place, whose id is returned if it is another.
    fn remove(&mut self, row: usize, dims: usize) -> Option<u64> {
        let last = self.blocks.last_mut()?;
        let (id, code) = last.pop(dims)?;
        let is_last = (self.blocks.len() - 1) * BLOCK_ROWS + last_len(&self.blocks) == row;
        if last_len(&self.blocks) == 0 {
            self.blocks.pop();
        }
        if is_last {
            return None;
        }
        self.blocks.get_mut(row / BLOCK_ROWS)?.put(row % BLOCK_ROWS, id, &code);
        Some(id)
    }
}

fn last_len(blocks: &[Block]) -> usize {
    blocks.last().map_or(0, |block| block.ids.len())
}

impl Block {
    fn pop(&mut self, dims: usize) -> Option<(u64, Code)> {
        let (id, scale) = (self.ids.pop()?, self.scales.pop()?);
        let rows = self.ids.len();
        let signs = self.signs.split_off(rows * words(dims));
        let bytes = self.bytes.split_off(rows * dims);
        Some((id, Code { signs, bytes, scale }))
    }

    fn put(&mut self, row: usize, id: u64, code: &Code) {
        self.ids[row] = id;
        self.scales[row] = code.scale;
        let place = |width: usize| row * width..(row + 1) * width;
        self.signs[place(code.signs.len())].copy_from_slice(&code.signs);
        self.bytes[place(code.bytes.len())].copy_from_slice(&code.bytes);
    }

    /// Reads a byte of each line of memory in these rows, so that they are all under way at once. Compared one after the
    /// other, each would be waited for.
    fn touch(&self, rows: &[usize], dims: usize) {
        let lines = |row: &usize| self.bytes[row * dims..][..dims].iter().step_by(LINE_BYTES);
        std::hint::black_box(rows.iter().flat_map(lines).fold(0, |all, byte| all ^ byte));
    }
}

/// The best so far.
struct Nearest {
    count: usize,
    found: BinaryHeap<Found>,
}

impl Nearest {
    fn offer(&mut self, found: Found) {
        if self.found.len() < self.count {
            self.found.push(found);
        } else if let Some(mut worst) = self.found.peek_mut()
            && found < *worst
        {
            *worst = found;
        }
    }

    fn in_order(self) -> Vec<(u64, f32)> {
        let found = self.found.into_sorted_vec().into_iter();
        found.map(|found| (found.id, found.cosine.clamp(-1.0, 1.0))).collect()
    }
}

/// The better comes first, and of equals the older.
#[derive(Clone, Copy)]
struct Found {
    id: u64,
    cosine: f32,
}

impl Ord for Found {
    fn cmp(&self, other: &Self) -> Ordering {
        other.cosine.total_cmp(&self.cosine).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Found {}

#[cfg(test)]
mod tests;
