//! Calls that are carried out once, however often they are made. Whoever serves them says which calls those are; what
//! was answered is kept here.

use std::sync::Arc;

use crate::authority::Requester;
use crate::now;
use crate::store::{AnswerRoom, CallDigest, Earlier, Store, StoreError};

/// Ten minutes of some hundred and fifty calls a second, and of answers a page long. What does not fit is refused: to
/// forget an answer before its time could have a call carried out twice.
const ROOM: AnswerRoom = AnswerRoom { calls_max: 100_000, bytes_max: 256 << 20 };

/// What of it agents may fill: an eighth is the administrator's, whatever they do.
const ROOM_OF_AGENTS: AnswerRoom =
    AnswerRoom { calls_max: ROOM.calls_max / 8 * 7, bytes_max: ROOM.bytes_max / 8 * 7 };

/// Rows that one write removes: others wait for it.
const REMOVED_AT_ONCE: u32 = 500;

pub struct Answers {
    pub(crate) store: Arc<dyn Store>,
}

impl Answers {
    /// Notes that a call begins, unless it was made before. It is on disk when this returns.
    pub async fn begin(
        &self,
        requester: &Requester,
        call: CallDigest,
    ) -> Result<Earlier, StoreError> {
        let room = match requester {
            Requester::Administrator => ROOM,
            Requester::Agent(_) => ROOM_OF_AGENTS,
        };
        self.store.begin_answer(call, room, now()).await
    }

    pub async fn keep(&self, call: CallDigest, answer: String) -> Result<(), StoreError> {
        self.store.keep_answer(call, answer, now()).await
    }

    /// Lets a call be made again that came to nothing.
    pub async fn forget(&self, call: CallDigest) -> Result<(), StoreError> {
        self.store.forget_answer(call).await
    }

    /// Removes what is old enough.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        while self.store.remove_answers(now(), REMOVED_AT_ONCE).await? == u64::from(REMOVED_AT_ONCE)
        {
        }
        Ok(())
    }
}
