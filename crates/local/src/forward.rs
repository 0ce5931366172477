//! Our own arithmetic: one step of a llama model for rows of several sequences at once, each with its own memory of keys
//! and values.

use std::path::Path;

use crate::arithmetic::{Arithmetic, Memory as _, Row};
use crate::engine::{Engine, Loaded};
use crate::kernels::{Machine, dot};
use crate::kv::Kv;
use crate::sample::Sampling;
use crate::template::Template;
use crate::tokenizer::Vocabulary;
use crate::weights::{Gguf, Layer, Shape, Weights};
use crate::{Fault, memory};

/// Memory for keys and values, of answers being written and of conversations that may go on: some 11,000 tokens of the
/// default model, which are ten turns of each of sixteen agents.
const KV_BYTES_MAX: usize = 512 << 20;

/// Reads a file and starts an engine that runs it.
pub fn load(path: &Path, threads: usize) -> Result<Engine, Fault> {
    let mut gguf = Gguf::open(path)?;
    memory::check(gguf.bytes_needed(), memory::available())?;
    let vocabulary = Vocabulary::read(&gguf)?;
    let template = Template::read(&gguf)?;
    let weights = gguf.weights()?;
    let token_bytes = Kv::token_bytes(&weights.shape);
    let tokens_max = tokens_max(weights.shape.window, token_bytes, memory::available());
    let loaded = Loaded::new(weights.shape.window.min(tokens_max), vocabulary, template);
    Engine::start(loaded, Sampling::default(), move |desk| {
        let machine =
            Machine::new(threads).map_err(|error| Fault::Threads { reason: error.to_string() })?;
        desk.serve(Own { machine, weights, tokens_max });
        Ok(())
    })
}

/// For how many tokens there is memory: for a window at least, but for no more than half of what the weights left.
fn tokens_max(window: usize, token_bytes: usize, available: Option<u64>) -> usize {
    let available = available.map_or(usize::MAX, |bytes| bytes as usize);
    (KV_BYTES_MAX / token_bytes).max(window).min(available / 2 / token_bytes)
}

/// The arithmetic of our own.
struct Own {
    machine: Machine,
    weights: Weights,
    tokens_max: usize,
}

impl Arithmetic for Own {
    type Memory = Kv;

    fn tokens_max(&self) -> usize {
        self.tokens_max
    }

    fn sequences_max(&self) -> usize {
        usize::MAX
    }

    fn begin(&self) -> Kv {
        Kv::new(&self.weights.shape)
    }

    fn forward(&mut self, rows: &[Row], memories: &mut [&mut Kv]) -> Result<Vec<Vec<f32>>, String> {
        Ok(self.machine.enter(|| step(&self.machine, &self.weights, rows, memories)))
    }
}

fn step(
    machine: &Machine,
    weights: &Weights,
    rows: &[Row],
    sequences: &mut [&mut Kv],
) -> Vec<Vec<f32>> {
    let shape = &weights.shape;
    let mut positions = Vec::with_capacity(rows.len());
    let mut next: Vec<usize> = sequences.iter().map(|sequence| sequence.tokens().len()).collect();
    for row in rows {
        positions.push(next[row.sequence]);
        next[row.sequence] += 1;
    }
    let mut x = vec![0.0; rows.len() * shape.width];
    for (row, out) in rows.iter().zip(x.chunks_exact_mut(shape.width)) {
        weights.embedding.row(row.token as usize, out);
    }
    let turns = turns(&weights.rope_steps, &positions);
    for (at, layer) in weights.layers.iter().enumerate() {
        let attended =
            attention(machine, shape, layer, at, &x, rows, &positions, &turns, sequences);
        machine.add(&mut x, &attended);
        let fed = feed(machine, shape, layer, &x, rows.len());
        machine.add(&mut x, &fed);
    }
    for row in rows {
        sequences[row.sequence].push(row.token);
    }
    logits(machine, weights, rows, &x)
}

#[expect(clippy::too_many_arguments, reason = "a layer of attention is a function of just these")]
fn attention(
    machine: &Machine,
    shape: &Shape,
    layer: &Layer,
    at: usize,
    x: &[f32],
    rows: &[Row],
    positions: &[usize],
    turns: &[(f32, f32)],
    sequences: &mut [&mut Kv],
) -> Vec<f32> {
    let count = rows.len();
    let input = machine.quantise(&machine.normalise(x, &layer.attention_norm, shape.epsilon));
    let mut queries = machine.multiply(&layer.query, &input, count);
    let mut keys = machine.multiply(&layer.key, &input, count);
    let values = machine.multiply(&layer.value, &input, count);
    let (width, pairs) = (shape.head_width, shape.head_width / 2);
    for (row, turns) in turns.chunks_exact(pairs).enumerate() {
        let (q, k) = (shape.heads * width, shape.kv_width());
        queries[row * q..(row + 1) * q]
            .chunks_exact_mut(width)
            .for_each(|head| rotate(head, turns));
        keys[row * k..(row + 1) * k].chunks_exact_mut(width).for_each(|head| rotate(head, turns));
    }
    let kv = shape.kv_width();
    for (row, (key, value)) in rows.iter().zip(keys.chunks_exact(kv).zip(values.chunks_exact(kv))) {
        sequences[row.sequence].extend_layer(at, key, value);
    }
    let group = shape.heads / shape.kv_heads * width;
    let mut out = vec![0.0; count * shape.heads * width];
    let sequences = &*sequences;
    // One piece is what one key-value head of one row is asked: its queries share all that is read.
    machine.each(&mut out, group, |piece, out| {
        let (row, kv_head) = (piece / shape.kv_heads, piece % shape.kv_heads);
        let (keys, values) = sequences[rows[row].sequence].layer(at);
        machine.vectorise(Attend {
            queries: &queries[piece * group..(piece + 1) * group],
            keys,
            values,
            stride: kv,
            offset: kv_head * width,
            width,
            length: positions[row] + 1,
            out,
        });
    });
    let out = machine.quantise(&out);
    machine.multiply(&layer.output, &out, count)
}

/// What the queries of one row find among the keys of one head, and the values there.
struct Attend<'a> {
    queries: &'a [f32],
    keys: &'a [f32],
    values: &'a [f32],
    /// Numbers from one token's key to the next one's.
    stride: usize,
    /// Where this head's part of them begins.
    offset: usize,
    width: usize,
    /// Tokens to look back at.
    length: usize,
    out: &'a mut [f32],
}

impl pulp::NullaryFnOnce for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { queries, keys, values, stride, offset, width, length, out } = self;
        let scale = 1.0 / (width as f32).sqrt();
        let mut scores = vec![0.0f32; length];
        for (query, out) in queries.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            let mut largest = f32::NEG_INFINITY;
            for (score, keys) in scores.iter_mut().zip(keys.chunks_exact(stride)) {
                *score = dot(query, &keys[offset..offset + width]) * scale;
                largest = largest.max(*score);
            }
            let mut sum = 0.0;
            for score in &mut scores {
                *score = (*score - largest).exp();
                sum += *score;
            }
            out.fill(0.0);
            for (score, values) in scores.iter().zip(values.chunks_exact(stride)) {
                let share = score / sum;
                for (out, value) in out.iter_mut().zip(&values[offset..offset + width]) {
                    *out += share * value;
                }
            }
        }
    }
}

fn feed(machine: &Machine, shape: &Shape, layer: &Layer, x: &[f32], count: usize) -> Vec<f32> {
    let input = machine.quantise(&machine.normalise(x, &layer.feed_norm, shape.epsilon));
    let mut gate = machine.multiply(&layer.gate, &input, count);
    let up = machine.multiply(&layer.up, &input, count);
    machine.activate(&mut gate, &up);
    machine.multiply(&layer.down, &machine.quantise(&gate), count)
}

fn logits(machine: &Machine, weights: &Weights, rows: &[Row], x: &[f32]) -> Vec<Vec<f32>> {
    let wanted: Vec<f32> = rows
        .iter()
        .zip(x.chunks_exact(weights.shape.width))
        .filter(|(row, _)| row.wants_next)
        .flat_map(|(_, x)| x.iter().copied())
        .collect();
    let count = wanted.len() / weights.shape.width;
    if count == 0 {
        return Vec::new();
    }
    let output = weights.output.as_ref().unwrap_or(&weights.embedding);
    let input = machine.quantise(&machine.normalise(&wanted, &weights.norm, weights.shape.epsilon));
    let all = machine.multiply(output, &input, count);
    all.chunks_exact(weights.shape.vocabulary).map(<[f32]>::to_vec).collect()
}

/// Cosine and sine by which each pair of a head is turned at each position.
fn turns(steps: &[f32], positions: &[usize]) -> Vec<(f32, f32)> {
    let angles = positions.iter().flat_map(|&at| steps.iter().map(move |step| at as f32 * step));
    angles.map(|angle| (angle.cos(), angle.sin())).collect()
}

fn rotate(head: &mut [f32], turns: &[(f32, f32)]) {
    let (pairs, _) = head.as_chunks_mut::<2>();
    for ([a, b], (cosine, sine)) in pairs.iter_mut().zip(turns) {
        (*a, *b) = (*a * cosine - *b * sine, *a * sine + *b * cosine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_have_room_for_a_window_and_at_most_half_of_what_is_free() {
        let token = 1 << 20;
        assert_eq!(tokens_max(100, token, None), 512);
        assert_eq!(tokens_max(1000, token, None), 1000);
        assert_eq!(tokens_max(1000, token, Some(2000 << 20)), 1000);
        assert_eq!(tokens_max(1000, token, Some((2000 << 20) - 1)), 999);
        assert_eq!(tokens_max(100, token, Some(300 << 20)), 150);
    }
}
