//! A vector as it is kept: its signs, one bit each, and its numbers in eight bits with one scale.

use pulp::NullaryFnOnce;
use thiserror::Error;

/// Bits in a word of signs.
const WORD: usize = u64::BITS as usize;

/// Why something is no vector of an index.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum VectorError {
    #[error("the vector has {found} numbers and not {expected}")]
    Dimensions { expected: usize, found: usize },
    #[error("the vector points nowhere: it is zero, or not of numbers")]
    Nowhere,
}

/// A vector of length one, coded.
pub struct Code {
    /// The bits behind the last sign are zero.
    pub signs: Vec<u64>,
    pub bytes: Vec<i8>,
    /// A byte times this is the number.
    pub scale: f32,
}

/// Words that hold so many signs.
pub fn words(dims: usize) -> usize {
    dims.div_ceil(WORD)
}

impl Code {
    /// Codes a vector of any length but none.
    pub fn of(vector: &[f32], dims: usize) -> Result<Self, VectorError> {
        if vector.len() != dims {
            return Err(VectorError::Dimensions { expected: dims, found: vector.len() });
        }
        let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let largest = vector.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        if !norm.is_finite() || norm == 0.0 {
            return Err(VectorError::Nowhere);
        }
        let steps = f32::from(i8::MAX) / largest;
        let bytes = vector.iter().map(|x| (x * steps).round() as i8).collect();
        let mut signs = vec![0; words(dims)];
        for (at, _) in vector.iter().enumerate().filter(|(_, x)| **x > 0.0) {
            signs[at / WORD] |= 1 << (at % WORD);
        }
        let scale = (f64::from(largest) / f64::from(i8::MAX) / norm) as f32;
        Ok(Self { signs, bytes, scale })
    }
}

/// In how many signs each row differs from `query`.
///
/// This is a type and not a function so that it is compiled for the widest instructions there are: what
/// `Arch::dispatch` calls has to be inlined there, which a closure is not.
pub struct Distances<'a> {
    pub rows: &'a [u64],
    pub query: &'a [u64],
    pub out: &'a mut [u32],
}

impl NullaryFnOnce for Distances<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        /// Words of the built-in embedder's vectors: known beforehand, the loop over them is none.
        const USUAL: usize = 6;
        let Self { rows, query, out } = self;
        if let Some(query) = query.as_array::<USUAL>() {
            for (row, out) in rows.as_chunks::<USUAL>().0.iter().zip(out) {
                *out = differing(row, query);
            }
        } else {
            for (row, out) in rows.chunks_exact(query.len()).zip(out) {
                *out = differing(row, query);
            }
        }
    }
}

#[inline(always)]
fn differing(a: &[u64], b: &[u64]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

/// The products of rows of bytes with `query`, without their scales. A type for the same reason.
pub struct Products<'a> {
    pub bytes: &'a [i8],
    /// Which of the rows.
    pub rows: &'a [usize],
    pub query: &'a [i8],
    pub out: &'a mut [i32],
}

impl NullaryFnOnce for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { bytes, rows, query, out } = self;
        for (row, out) in rows.iter().zip(out) {
            *out = product(&bytes[row * query.len()..][..query.len()], query);
        }
    }
}

#[inline(always)]
fn product(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}
