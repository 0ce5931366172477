//! What the scheduler needs of whatever computes: the seam between the two ways to run a model, our own arithmetic
//! ([`crate::forward`]) and llama.cpp.

/// One token to be read by one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which of the sequences it belongs to.
    pub sequence: usize,
    pub token: u32,
    /// Whether what comes next is asked for; computing it costs a fifth of the whole row.
    pub wants_next: bool,
}

/// A model that can be run.
pub trait Arithmetic {
    type Memory: Memory;

    /// Tokens that can be remembered at once, of all sequences together.
    fn tokens_max(&self) -> usize;

    /// Sequences that can be remembered at once.
    fn sequences_max(&self) -> usize;

    /// The memory of a sequence of which nothing was read.
    fn begin(&self) -> Self::Memory;

    /// Reads `rows`, in order, and returns the logits of those that want to know what comes next. Rows of one sequence
    /// follow each other. After a failure the memories are good for nothing.
    fn forward(
        &mut self,
        rows: &[Row],
        memories: &mut [&mut Self::Memory],
    ) -> Result<Vec<Vec<f32>>, String>;
}

/// What a sequence remembers of the tokens that were read.
pub trait Memory {
    fn tokens(&self) -> &[u32];

    /// The memory of the first `length` tokens alone; of none where the model cannot go back.
    fn copied(&self, length: usize) -> Self;

    /// Forgets what comes behind `length` tokens; everything where the model cannot go back.
    fn truncate(&mut self, length: usize);

    /// Gives back what it holds in reserve: it is put away for some time.
    fn settle(&mut self) {}
}
