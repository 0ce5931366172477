//! A model out of a GGUF file: its shape, its matrices and what its tokenizer is made of.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Seek as _};
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use candle_core::quantized::{GgmlDType, QTensor};

use crate::Fault;
use crate::head::{self, Unread};
use crate::kernels::{BLOCK, Matrix, Q4, Q8, weights_of};

/// The only architecture whose forward pass is written here.
const ARCHITECTURE: &str = "llama";

/// What a model is.
pub struct Weights {
    pub shape: Shape,
    pub embedding: Matrix,
    pub layers: Vec<Layer>,
    pub norm: Vec<f32>,
    /// `None` where the embedding serves as output too.
    pub output: Option<Matrix>,
    /// Cosine and sine step of each pair of a head's numbers, per position.
    pub rope_steps: Vec<f32>,
}

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_width: usize,
    pub vocabulary: usize,
    pub layers: usize,
    /// Most tokens the model was trained to see at once.
    pub window: usize,
    pub epsilon: f32,
}

impl Shape {
    /// Numbers that a key, or a value, of one token takes in one layer.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_width
    }
}

pub struct Layer {
    pub attention_norm: Vec<f32>,
    pub query: Matrix,
    pub key: Matrix,
    pub value: Matrix,
    pub output: Matrix,
    pub feed_norm: Vec<f32>,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
}

/// A GGUF file whose head was read.
pub struct Gguf {
    path: PathBuf,
    content: Content,
    reader: BufReader<File>,
}

impl Gguf {
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let file = File::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Fault::NoWeights { path: path.into() },
            _ => Fault::Unreadable { path: path.into(), reason: error.to_string() },
        })?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let path_buf = || path.to_path_buf();
        head::check(&mut reader).map_err(|unread| match unread {
            Unread::Damaged(reason) => Fault::Damaged { path: path_buf(), reason },
            Unread::TooMuch(reason) => Fault::Unsupported { path: path_buf(), reason },
        })?;
        reader.rewind().map_err(|error| damaged(path, &error.into()))?;
        let content = Content::read(&mut reader).map_err(|error| damaged(path, &error))?;
        Ok(Self { path: path.into(), content, reader })
    }

    /// Memory that the weights will take, from what the file says of them.
    pub fn bytes_needed(&self) -> u64 {
        let blocks = |info: &TensorInfo| {
            info.shape
                .dims()
                .iter()
                .fold(1, |product: u64, &side| product.saturating_mul(side as u64))
                / BLOCK as u64
        };
        let bytes = |info: &TensorInfo| match info.ggml_dtype {
            GgmlDType::Q4_1 => blocks(info).saturating_mul(size_of::<Q4>() as u64),
            _ => blocks(info).saturating_mul(size_of::<Q8>() as u64),
        };
        self.content.tensor_infos.values().fold(0, |sum: u64, info| sum.saturating_add(bytes(info)))
    }

    /// Reads every matrix. Takes a second for each gigabyte.
    pub fn weights(&mut self) -> Result<Weights, Fault> {
        let shape = self.shape()?;
        let layers =
            (0..shape.layers).map(|at| self.layer(at, &shape)).collect::<Result<_, _>>()?;
        let embedding = self.matrix("token_embd.weight", shape.vocabulary, shape.width)?;
        let output = match self.content.tensor_infos.contains_key("output.weight") {
            true => Some(self.matrix("output.weight", shape.vocabulary, shape.width)?),
            false => None,
        };
        let norm = self.vector("output_norm.weight", shape.width)?;
        let rope_steps = self.rope_steps(&shape)?;
        Ok(Weights { shape, embedding, layers, norm, output, rope_steps })
    }

    fn layer(&mut self, at: usize, shape: &Shape) -> Result<Layer, Fault> {
        let name = |part: &str| format!("blk.{at}.{part}.weight");
        let (width, kv) = (shape.width, shape.kv_width());
        let queries = shape.heads * shape.head_width;
        let feed = self.needed("llama.feed_forward_length")?;
        Ok(Layer {
            attention_norm: self.vector(&name("attn_norm"), width)?,
            query: self.matrix(&name("attn_q"), queries, width)?,
            key: self.matrix(&name("attn_k"), kv, width)?,
            value: self.matrix(&name("attn_v"), kv, width)?,
            output: self.matrix(&name("attn_output"), width, queries)?,
            feed_norm: self.vector(&name("ffn_norm"), width)?,
            gate: self.matrix(&name("ffn_gate"), feed, width)?,
            up: self.matrix(&name("ffn_up"), feed, width)?,
            down: self.matrix(&name("ffn_down"), width, feed)?,
        })
    }

    pub fn shape(&self) -> Result<Shape, Fault> {
        let architecture = self.text("general.architecture").unwrap_or("unknown");
        if architecture != ARCHITECTURE {
            return Err(self.unsupported(format!(
                "its architecture is {architecture:?}, and only {ARCHITECTURE:?} is supported"
            )));
        }
        if self.number("llama.expert_count").is_some_and(|experts| experts > 0) {
            return Err(self.unsupported("it is a mixture of experts".into()));
        }
        let heads = self.needed("llama.attention.head_count")?;
        let width = self.needed("llama.embedding_length")?;
        let head_width = match self.number("llama.attention.key_length") {
            Some(length) => length as usize,
            None => width / heads.max(1),
        };
        let shape = Shape {
            width,
            heads,
            kv_heads: self.number("llama.attention.head_count_kv").map_or(heads, |it| it as usize),
            head_width,
            vocabulary: self.strings("tokenizer.ggml.tokens")?.len(),
            layers: self.needed("llama.block_count")?,
            window: self.needed("llama.context_length")?,
            epsilon: self.decimal("llama.attention.layer_norm_rms_epsilon").unwrap_or(1e-5),
        };
        let Shape { heads, kv_heads, head_width, vocabulary, layers, window, .. } = shape;
        let sound = [width, heads, kv_heads, head_width, vocabulary, layers, window]
            .iter()
            .all(|&number| (1..=SHAPE_MAX).contains(&number))
            && heads % kv_heads == 0
            && head_width % 2 == 0
            && width % BLOCK == 0
            && (heads * head_width) % BLOCK == 0;
        if sound { Ok(shape) } else { Err(self.unsupported(format!("its shape is {shape:?}"))) }
    }

    fn rope_steps(&mut self, shape: &Shape) -> Result<Vec<f32>, Fault> {
        let rotated =
            self.number("llama.rope.dimension_count").map_or(shape.head_width, |it| it as usize);
        if rotated != shape.head_width {
            return Err(self.unsupported("it rotates only a part of each head".into()));
        }
        let scaling = self.text("llama.rope.scaling.type").unwrap_or("none");
        if scaling != "none" {
            return Err(self.unsupported(format!("its positions are scaled ({scaling})")));
        }
        let base = self.decimal("llama.rope.freq_base").unwrap_or(10_000.0);
        let pairs = shape.head_width / 2;
        let mut steps: Vec<f32> =
            (0..pairs).map(|pair| base.powf(-((2 * pair) as f32) / rotated as f32)).collect();
        if self.content.tensor_infos.contains_key("rope_freqs.weight") {
            let factors = self.vector("rope_freqs.weight", pairs)?;
            steps.iter_mut().zip(factors).for_each(|(step, factor)| *step /= factor);
        }
        Ok(steps)
    }

    fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Result<Matrix, Fault> {
        if !columns.is_multiple_of(BLOCK) {
            return Err(self.unsupported(format!("{name} has {columns} columns")));
        }
        let tensor = self.tensor(name, &[rows, columns])?;
        let broken = |error| damaged(&self.path, &error);
        match tensor.dtype() {
            GgmlDType::Q4_1 => Ok(q4_1(&tensor.data().map_err(broken)?, columns)),
            GgmlDType::Q8_0 => Ok(q8_0(&tensor.data().map_err(broken)?, columns)),
            // Whatever else there is becomes eight bits: nearly exact, and there is fast arithmetic for it.
            _ => {
                let values = plain(&tensor).map_err(broken)?;
                let (blocks, _) = values.as_chunks::<BLOCK>();
                Ok(Matrix::Q8 { blocks: blocks.iter().map(weights_of).collect(), columns })
            }
        }
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, Fault> {
        let tensor = self.tensor(name, &[length])?;
        plain(&tensor).map_err(|error| damaged(&self.path, &error))
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, Fault> {
        let Some(info) = self.content.tensor_infos.get(name) else {
            return Err(self.unsupported(format!("it has no {name}")));
        };
        if info.shape.dims() != shape {
            return Err(self.unsupported(format!("{name} has the shape {:?}", info.shape.dims())));
        }
        let read = info.read(&mut self.reader, self.content.tensor_data_offset, &Device::Cpu);
        read.map_err(|error| damaged(&self.path, &error))
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.content.metadata.get(key)?.to_string().ok().map(String::as_str)
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        self.content.metadata.get(key)?.to_bool().ok()
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        match self.content.metadata.get(key)? {
            Value::I32(number) => u64::try_from(*number).ok(),
            Value::I64(number) => u64::try_from(*number).ok(),
            value => value.to_u64().ok(),
        }
    }

    /// A list of strings, and a fault where there is none.
    pub fn strings(&self, key: &str) -> Result<Vec<&str>, Fault> {
        let list = self.content.metadata.get(key).and_then(|value| value.to_vec().ok());
        let texts = list.and_then(|list| {
            list.iter().map(|value| value.to_string().ok().map(String::as_str)).collect()
        });
        texts.ok_or_else(|| self.unsupported(format!("it has no {key}")))
    }

    /// The kind of each token, as far as the file says.
    pub fn token_kinds(&self) -> HashMap<usize, i32> {
        let list = self.content.metadata.get("tokenizer.ggml.token_type");
        let list = list.and_then(|value| value.to_vec().ok()).into_iter().flatten();
        list.enumerate().filter_map(|(at, kind)| Some((at, kind.to_i32().ok()?))).collect()
    }

    pub fn unsupported(&self, reason: String) -> Fault {
        Fault::Unsupported { path: self.path.clone(), reason }
    }

    fn decimal(&self, key: &str) -> Option<f32> {
        self.content.metadata.get(key)?.to_f32().ok()
    }

    fn needed(&self, key: &str) -> Result<usize, Fault> {
        let number = self.number(key).and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.unsupported(format!("it has no {key}")))
    }
}

/// No model has a dimension larger than this; a damaged file may claim one whose products overflow.
const SHAPE_MAX: usize = 1 << 24;

fn q4_1(bytes: &[u8], columns: usize) -> Matrix {
    let (blocks, _) = bytes.as_chunks::<20>();
    let block = |&[s0, s1, m0, m1, ref q @ ..]: &[u8; 20]| Q4 {
        scale: half([s0, s1]),
        min: half([m0, m1]),
        q: *q,
    };
    Matrix::Q4 { blocks: blocks.iter().map(block).collect(), columns }
}

fn q8_0(bytes: &[u8], columns: usize) -> Matrix {
    let (blocks, _) = bytes.as_chunks::<34>();
    let block = |&[s0, s1, ref q @ ..]: &[u8; 34]| Q8 {
        scale: half([s0, s1]),
        q: q.map(|byte| byte.cast_signed()),
    };
    Matrix::Q8 { blocks: blocks.iter().map(block).collect(), columns }
}

fn half(bytes: [u8; 2]) -> f32 {
    half::f16::from_le_bytes(bytes).to_f32()
}

fn plain(tensor: &QTensor) -> candle_core::Result<Vec<f32>> {
    tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()
}

fn damaged(path: &Path, error: &candle_core::Error) -> Fault {
    // What follows the first line is where in the reader it happened.
    let reason = error.to_string().lines().next().unwrap_or_default().to_owned();
    Fault::Damaged { path: path.into(), reason }
}
