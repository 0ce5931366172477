//! Calls that are carried out once, however often they are made, and what was answered to them.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{Holder, StoreError};

/// How long what was answered is given again, and how long what was cut off is refused.
pub const ANSWER_KEPT: Duration = Duration::from_secs(10 * 60);

/// A call has a row from the moment before it is carried out, so that a process that dies in the middle leaves word.
#[async_trait]
pub trait AnswersStore: Send + Sync {
    /// Notes that a call begins in this process, unless it was made before.
    async fn begin_answer(
        &self,
        call: CallDigest,
        room: AnswerRoom,
        now: Timestamp,
    ) -> Result<Earlier, StoreError>;

    /// Keeps what was answered to a call that was begun.
    async fn keep_answer(
        &self,
        call: CallDigest,
        answer: String,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Takes back that a call was begun: nothing came of it, and it may be made again.
    async fn forget_answer(&self, call: CallDigest) -> Result<(), StoreError>;

    /// Removes what ended long enough before `now`, no more than `limit` of it, and says how many went. What was under
    /// way in a process that is gone ended when it is first seen to be.
    async fn remove_answers(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError>;
}

/// A call, as far as a store has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDigest {
    /// Who calls what, where, under which key.
    pub id: [u8; 32],
    /// With which parameters.
    pub params: [u8; 32],
}

/// What may be kept when another call begins.
#[derive(Clone, Copy, Debug)]
pub struct AnswerRoom {
    pub calls_max: u64,
    pub bytes_max: u64,
}

/// What is known of a call that is about to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// It was not made before, and is noted as begun.
    Nothing,
    Answered(String),
    /// The same key came with other parameters.
    OtherParams,
    /// Another process that lives is at it.
    UnderWay(Holder),
    /// It was begun, and nobody will say what came of it.
    CutOff,
    /// Not made before, and not noted: too much is kept already.
    Full,
}

/// Whether a call that ended at this moment is forgotten.
pub fn is_forgotten(ended_at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(ended_at).unsigned_abs() > ANSWER_KEPT && now > ended_at
}
