//! The arithmetic of a forward pass: products of quantised matrices, and the small vector work around them.
//!
//! Weights stay as they lie in the file (4 or 8 bits with a scale for each block of 32), activations are brought to 8
//! bits, and their products are summed as integers. On x86-64 with AVX2, found out at run time, the inner products are
//! written out with `pulp`'s safe intrinsics; elsewhere the compiler makes what it can of the plain loops. Every weight
//! row is read once for all rows of the batch: a step for sixteen agents moves no more memory than a step for one.

mod wide;

use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

/// Weights and activations share one scale per so many values.
pub const BLOCK: usize = 32;

/// Rows whose sums are held in registers at once; more would spill.
const TILE: usize = 4;

/// Thirty-two weights of four bits: `scale * q + min`. The first sixteen are the low halves of the bytes.
#[derive(Clone, Copy)]
pub struct Q4 {
    pub scale: f32,
    pub min: f32,
    pub q: [u8; BLOCK / 2],
}

/// Thirty-two weights of eight bits: `scale * q`.
#[derive(Clone, Copy)]
pub struct Q8 {
    pub scale: f32,
    pub q: [i8; BLOCK],
}

/// Thirty-two activations: `scale * q`, and their sum, which the minimum of a [`Q4`] block is multiplied by.
#[derive(Clone, Copy)]
pub struct X8 {
    scale: f32,
    sum: f32,
    q: [i8; BLOCK],
}

/// A matrix of weights, row after row; a row makes one output.
pub enum Matrix {
    Q4 { blocks: Vec<Q4>, columns: usize },
    Q8 { blocks: Vec<Q8>, columns: usize },
}

impl Matrix {
    pub fn columns(&self) -> usize {
        match self {
            Self::Q4 { columns, .. } | Self::Q8 { columns, .. } => *columns,
        }
    }

    pub fn rows(&self) -> usize {
        let blocks = match self {
            Self::Q4 { blocks, .. } => blocks.len(),
            Self::Q8 { blocks, .. } => blocks.len(),
        };
        blocks / (self.columns() / BLOCK)
    }

    /// One row as plain numbers: what a token's embedding is.
    pub fn row(&self, index: usize, out: &mut [f32]) {
        let width = self.columns() / BLOCK;
        let (blocks, _) = out.as_chunks_mut::<BLOCK>();
        match self {
            Self::Q4 { blocks: weights, .. } => {
                for (out, block) in blocks.iter_mut().zip(&weights[index * width..]) {
                    for (at, byte) in block.q.iter().enumerate() {
                        out[at] = block.scale * f32::from(byte & 15) + block.min;
                        out[at + BLOCK / 2] = block.scale * f32::from(byte >> 4) + block.min;
                    }
                }
            }
            Self::Q8 { blocks: weights, .. } => {
                for (out, block) in blocks.iter_mut().zip(&weights[index * width..]) {
                    for (out, q) in out.iter_mut().zip(block.q) {
                        *out = block.scale * f32::from(q);
                    }
                }
            }
        }
    }
}

/// Does the arithmetic, on as many threads as it was given.
pub struct Machine {
    arch: Arch,
    simd: Option<wide::Simd>,
    threads: Option<rayon::ThreadPool>,
}

impl Machine {
    pub fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let pool = |count| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(count)
                .thread_name(|at| format!("local-{at}"))
                .build()
        };
        // One thread needs no pool: the caller is one already.
        let threads = if threads > 1 { Some(pool(threads)?) } else { None };
        Ok(Self { arch: Arch::new(), simd: wide::find(), threads })
    }

    /// Runs `work` where [`Machine::each`] finds the threads.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.threads {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Fills `out` piece by piece, on all threads.
    pub fn each(&self, out: &mut [f32], piece: usize, fill: impl Fn(usize, &mut [f32]) + Sync) {
        let fill = |(at, out): (usize, &mut [f32])| fill(at, out);
        match &self.threads {
            Some(_) => out.par_chunks_mut(piece).enumerate().for_each(fill),
            None => out.chunks_mut(piece).enumerate().for_each(fill),
        }
    }

    /// Runs plain loops with the widest instructions there are.
    pub fn vectorise<T>(&self, loops: impl NullaryFnOnce<Output = T>) -> T {
        self.arch.dispatch(loops)
    }

    /// Brings rows of activations to eight bits.
    pub fn quantise(&self, values: &[f32]) -> Vec<X8> {
        let (blocks, _) = values.as_chunks::<BLOCK>();
        let mut out = vec![X8 { scale: 0.0, sum: 0.0, q: [0; BLOCK] }; blocks.len()];
        self.arch.dispatch(|| {
            for (out, block) in out.iter_mut().zip(blocks) {
                *out = quantise_block(block);
            }
        });
        out
    }

    /// The products of a matrix with each of `count` rows of activations: `count` rows of outputs.
    pub fn multiply(&self, matrix: &Matrix, activations: &[X8], count: usize) -> Vec<f32> {
        let outputs = matrix.rows();
        let mut by_output = vec![0.0; outputs * count];
        let piece = self.piece(outputs);
        let columns = matrix.columns();
        self.each(&mut by_output, piece * count, |at, out| {
            let first = at * piece * (columns / BLOCK);
            match matrix {
                Matrix::Q4 { blocks, .. } => {
                    let weights = &blocks[first..];
                    Products { weights, columns, activations, count, out }.compute(self.simd);
                }
                Matrix::Q8 { blocks, .. } => {
                    let weights = &blocks[first..];
                    Products { weights, columns, activations, count, out }.compute(self.simd);
                }
            }
        });
        if count == 1 { by_output } else { transposed(&by_output, count) }
    }

    /// Outputs that one thread computes at a time: small enough to share evenly, large enough to be worth handing out.
    fn piece(&self, outputs: usize) -> usize {
        const PIECES_PER_THREAD: usize = 4;
        let threads = self.threads.as_ref().map_or(1, rayon::ThreadPool::current_num_threads);
        if threads == 1 { outputs } else { outputs.div_ceil(threads * PIECES_PER_THREAD).max(1) }
    }

    /// Scales each row to unit mean square, then each column by its weight.
    pub fn normalise(&self, rows: &[f32], weights: &[f32], epsilon: f32) -> Vec<f32> {
        let mut out = rows.to_vec();
        self.arch.dispatch(|| {
            for row in out.chunks_exact_mut(weights.len()) {
                let mean = dot(row, row) / weights.len() as f32;
                let scale = 1.0 / (mean + epsilon).sqrt();
                for (value, weight) in row.iter_mut().zip(weights) {
                    *value *= scale * weight;
                }
            }
        });
        out
    }

    /// `gate` becomes `silu(gate) * up`.
    pub fn activate(&self, gate: &mut [f32], up: &[f32]) {
        self.arch.dispatch(|| {
            for (gate, up) in gate.iter_mut().zip(up) {
                *gate = *gate / (1.0 + (-*gate).exp()) * up;
            }
        });
    }

    pub fn add(&self, to: &mut [f32], what: &[f32]) {
        self.arch.dispatch(|| {
            for (to, what) in to.iter_mut().zip(what) {
                *to += what;
            }
        });
    }
}

/// What a block of weights can do with activations.
trait Weights: Copy + Sync {
    /// The product of one block with one block.
    fn times(&self, x: &X8) -> f32;

    /// The products of one row of weights with `N` rows of activations, by wide instructions.
    fn dots<const N: usize>(simd: wide::Simd, weights: &[Self], rows: [&[X8]; N]) -> [f32; N];
}

/// The products of all rows of `weights` that `out` has room for. `out` holds `count` values for each row.
struct Products<'a, W> {
    weights: &'a [W],
    columns: usize,
    activations: &'a [X8],
    count: usize,
    out: &'a mut [f32],
}

impl<W: Weights> Products<'_, W> {
    fn compute(self, simd: Option<wide::Simd>) {
        if let Some(simd) = simd {
            return wide::vectorise(simd, self);
        }
        let width = self.columns / BLOCK;
        let rows = self.weights.chunks_exact(width).zip(self.out.chunks_exact_mut(self.count));
        for (weights, out) in rows {
            for (x, value) in self.activations.chunks_exact(width).zip(out) {
                *value = weights.iter().zip(x).map(|(block, x)| block.times(x)).sum();
            }
        }
    }
}

impl<W: Weights> wide::Kernel for Products<'_, W> {
    #[inline(always)]
    fn run(self, simd: wide::Simd) {
        let width = self.columns / BLOCK;
        let row = |at: usize| &self.activations[at * width..(at + 1) * width];
        let rows = self.weights.chunks_exact(width).zip(self.out.chunks_exact_mut(self.count));
        for (weights, out) in rows {
            let (tiles, rest) = out.as_chunks_mut::<TILE>();
            let first_of_rest = tiles.len() * TILE;
            for (at, tile) in tiles.iter_mut().enumerate() {
                let rows =
                    [row(at * TILE), row(at * TILE + 1), row(at * TILE + 2), row(at * TILE + 3)];
                *tile = W::dots(simd, weights, rows);
            }
            for (at, value) in rest.iter_mut().enumerate() {
                [*value] = W::dots(simd, weights, [row(first_of_rest + at)]);
            }
        }
    }
}

impl Weights for Q4 {
    #[inline(always)]
    fn times(&self, x: &X8) -> f32 {
        let (low, high) = x.q.split_at(BLOCK / 2);
        let sum: i32 = self
            .q
            .iter()
            .zip(low.iter().zip(high))
            .map(|(&w, (&l, &h))| {
                i32::from(w & 15) * i32::from(l) + i32::from(w >> 4) * i32::from(h)
            })
            .sum();
        self.scale * x.scale * sum as f32 + self.min * x.sum
    }

    #[inline(always)]
    fn dots<const N: usize>(simd: wide::Simd, weights: &[Self], rows: [&[X8]; N]) -> [f32; N] {
        wide::q4(simd, weights, rows)
    }
}

impl Weights for Q8 {
    #[inline(always)]
    fn times(&self, x: &X8) -> f32 {
        let sum: i32 = self.q.iter().zip(&x.q).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
        self.scale * x.scale * sum as f32
    }

    #[inline(always)]
    fn dots<const N: usize>(simd: wide::Simd, weights: &[Self], rows: [&[X8]; N]) -> [f32; N] {
        wide::q8(simd, weights, rows)
    }
}

/// A block of weights in eight bits, from plain numbers.
pub fn weights_of(values: &[f32; BLOCK]) -> Q8 {
    let X8 { scale, q, .. } = quantise_block(values);
    Q8 { scale, q }
}

#[inline(always)]
fn quantise_block(values: &[f32; BLOCK]) -> X8 {
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let q = values.map(|value| (value * inverse).round_ties_even() as i8);
    let sum: i32 = q.iter().map(|&q| i32::from(q)).sum();
    X8 { scale, sum: scale * sum as f32, q }
}

/// The inner product, in eight sums so that it can be done eight at a time.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let (a_whole, a_rest) = a.as_chunks::<LANES>();
    let (b_whole, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_whole.iter().zip(b_whole) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

fn transposed(by_output: &[f32], count: usize) -> Vec<f32> {
    let outputs = by_output.len() / count;
    let mut by_row = vec![0.0; by_output.len()];
    for (output, values) in by_output.chunks_exact(count).enumerate() {
        for (row, value) in values.iter().enumerate() {
            by_row[row * outputs + output] = *value;
        }
    }
    by_row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    fn q8(values: &[f32], columns: usize) -> Matrix {
        let (blocks, _) = values.as_chunks::<BLOCK>();
        Matrix::Q8 { blocks: blocks.iter().map(weights_of).collect(), columns }
    }

    fn q4(count: usize, columns: usize) -> Matrix {
        let bytes = values(count / 2, 3);
        let (halves, _) = bytes.as_chunks::<{ BLOCK / 2 }>();
        let block = |half: &[f32; BLOCK / 2]| Q4 {
            scale: 0.1,
            min: -0.7,
            q: half.map(|value| ((value + 1.0) * 127.0) as u8),
        };
        Matrix::Q4 { blocks: halves.iter().map(block).collect(), columns }
    }

    /// What comes out is what plain arithmetic on the same numbers gives, but for the eight bits of the activations.
    fn check(matrix: &Matrix, count: usize, threads: usize) {
        let machine = Machine::new(threads).unwrap();
        let x = values(count * matrix.columns(), 7);
        let quantised = machine.quantise(&x);
        let got = machine.enter(|| machine.multiply(matrix, &quantised, count));
        let mut weights = vec![0.0; matrix.columns()];
        for row in 0..count {
            for output in 0..matrix.rows() {
                matrix.row(output, &mut weights);
                let x = &x[row * matrix.columns()..(row + 1) * matrix.columns()];
                let (expected, got) = (dot(&weights, x), got[row * matrix.rows() + output]);
                assert!((expected - got).abs() < 0.2, "{row} {output}: {expected} {got}");
            }
        }
    }

    #[test]
    fn products_are_right_for_every_format_batch_and_thread_count() {
        for (count, threads) in [(1, 1), (3, 1), (4, 2), (9, 1), (17, 3)] {
            check(&q8(&values(40 * 96, 1), 96), count, threads);
            check(&q4(40 * 96, 96), count, threads);
        }
    }

    #[test]
    fn a_row_comes_out_the_same_whoever_is_in_the_batch() {
        let (machine, matrix) = (Machine::new(1).unwrap(), q4(64 * 64, 64));
        let x = machine.quantise(&values(6 * 64, 5));
        let together = machine.multiply(&matrix, &x, 6);
        for row in 0..6 {
            let alone = machine.multiply(&matrix, &x[row * 2..row * 2 + 2], 1);
            assert_eq!(alone, together[row * 64..(row + 1) * 64]);
        }
    }

    #[test]
    fn the_plain_way_and_the_wide_way_agree() {
        let wide = Machine::new(1).unwrap();
        let plain = Machine { simd: None, ..Machine::new(1).unwrap() };
        let x = wide.quantise(&values(5 * 256, 9));
        for matrix in [q4(8 * 256, 256), q8(&values(8 * 256, 2), 256)] {
            let (wide, plain) = (wide.multiply(&matrix, &x, 5), plain.multiply(&matrix, &x, 5));
            for (wide, plain) in wide.iter().zip(plain) {
                assert!((wide - plain).abs() < 1e-3, "{wide} {plain}");
            }
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        let machine = Machine::new(1).unwrap();
        let x = machine.quantise(&[0.0; 64]);
        assert_eq!(machine.multiply(&q8(&values(64, 1), 64), &x, 1), [0.0]);
    }
}
