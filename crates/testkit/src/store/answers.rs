//! Calls that are carried out once, in memory.

use std::collections::HashMap;

use jiff::Timestamp;
use nexus_core::store::{AnswerRoom, CallDigest, Earlier, Holder, is_forgotten};

use super::data::Process;

#[derive(Default)]
pub(super) struct Answers(HashMap<[u8; 32], Row>);

struct Row {
    params: [u8; 32],
    owner: Process,
    ended_at: Option<Timestamp>,
    answer: Option<String>,
}

impl Answers {
    /// `holder` says who a process is that lives and is not the one that asks.
    pub(super) fn begin(
        &mut self,
        me: Process,
        call: CallDigest,
        room: AnswerRoom,
        now: Timestamp,
        holder: impl Fn(Process) -> Option<Holder>,
    ) -> Earlier {
        let forgotten = |row: &Row| row.ended_at.is_some_and(|at| is_forgotten(at, now));
        if let Some(row) = self.0.get_mut(&call.id).filter(|row| !forgotten(row)) {
            return match &row.answer {
                _ if row.params != call.params => Earlier::OtherParams,
                Some(answer) => Earlier::Answered(answer.clone()),
                None if row.ended_at.is_some() => Earlier::CutOff,
                None => match holder(row.owner) {
                    Some(holder) => Earlier::UnderWay(holder),
                    None => {
                        row.ended_at = Some(now);
                        Earlier::CutOff
                    }
                },
            };
        }
        self.0.remove(&call.id);
        if self.is_full(room) {
            self.0.retain(|_, row| !forgotten(row));
            if self.is_full(room) {
                return Earlier::Full;
            }
        }
        let row = Row { params: call.params, owner: me, ended_at: None, answer: None };
        self.0.insert(call.id, row);
        Earlier::Nothing
    }

    fn is_full(&self, room: AnswerRoom) -> bool {
        let bytes = self.0.values().filter_map(|row| row.answer.as_ref()).map(String::len);
        self.0.len() as u64 >= room.calls_max || bytes.sum::<usize>() as u64 >= room.bytes_max
    }

    pub(super) fn keep(&mut self, call: CallDigest, answer: String, now: Timestamp) {
        let row = self.0.get_mut(&call.id);
        if let Some(row) = row.filter(|it| it.params == call.params && it.answer.is_none()) {
            (row.answer, row.ended_at) = (Some(answer), Some(now));
        }
    }

    pub(super) fn forget(&mut self, call: CallDigest) {
        self.0
            .retain(|id, row| *id != call.id || row.params != call.params || row.answer.is_some());
    }

    /// `lives` says whether a process does.
    pub(super) fn remove(
        &mut self,
        now: Timestamp,
        limit: u32,
        lives: impl Fn(Process) -> bool,
    ) -> u64 {
        for row in self.0.values_mut().filter(|row| row.ended_at.is_none() && !lives(row.owner)) {
            row.ended_at = Some(now);
        }
        let old = |(id, row): (&[u8; 32], &Row)| {
            row.ended_at.is_some_and(|at| is_forgotten(at, now)).then_some(*id)
        };
        let old: Vec<_> = self.0.iter().filter_map(old).take(limit as usize).collect();
        for id in &old {
            self.0.remove(id);
        }
        old.len() as u64
    }
}
