//! Plans in memory.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::plan::{PlanId, PlanStatus, TaskRecord, TaskStatus};
use nexus_core::store::{
    Begun, Fence, LISTED_REQUEST_CHARS, ListedPlan, PlanPage, PlanQuery, PlanRecord, PlanRoom,
    PlanRun, StoreError, StoredPlan,
};

use super::data::Process;

#[derive(Default)]
pub(super) struct Plans {
    rows: BTreeMap<PlanId, Row>,
}

struct Row {
    record: PlanRecord,
    status: PlanStatus,
    touched_at: Timestamp,
    tasks: BTreeMap<String, TaskRecord>,
    owner: Option<Process>,
    fence: u64,
}

impl Row {
    fn status(&self, lives: &dyn Fn(Process) -> bool) -> PlanStatus {
        match self.status {
            PlanStatus::Running if !self.owner.is_some_and(lives) => PlanStatus::Interrupted,
            status => status,
        }
    }
}

fn weight(plan: &PlanRecord) -> u64 {
    let json = serde_json::to_string(&plan.plan).map_or(0, |json| json.len());
    (plan.request.len() + json) as u64
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Plans {
    pub(super) fn add(
        &mut self,
        record: PlanRecord,
        stale: Timestamp,
        room: PlanRoom,
        lives: &dyn Fn(Process) -> bool,
    ) {
        self.rows.retain(|_, row| row.touched_at >= stale || row.owner.is_some());
        self.make_room(&record, room, lives);
        let row = Row {
            touched_at: record.created_at,
            status: PlanStatus::Created,
            tasks: BTreeMap::new(),
            owner: None,
            fence: 0,
            record,
        };
        self.rows.insert(row.record.id.clone(), row);
    }

    fn make_room(&mut self, new: &PlanRecord, room: PlanRoom, lives: &dyn Fn(Process) -> bool) {
        if new.tree.is_none() {
            return;
        }
        let mut theirs: Vec<_> =
            self.rows.values().filter(|row| row.record.tree == new.tree).collect();
        theirs.sort_by_key(|row| {
            let runs = row.owner.is_some_and(lives);
            std::cmp::Reverse((runs, row.touched_at, row.record.id.clone()))
        });
        let (mut plans, mut bytes, mut beyond) = (1, weight(new), Vec::new());
        for row in theirs {
            plans += 1;
            bytes += weight(&row.record);
            let is_over = plans > room.count_max || bytes > room.bytes_max;
            if is_over && !row.owner.is_some_and(lives) {
                beyond.push(row.record.id.clone());
            }
        }
        self.rows.retain(|id, _| !beyond.contains(id));
    }

    pub(super) fn rename(&mut self, from: &AgentId, to: &AgentId) {
        for row in self.rows.values_mut().filter(|row| row.record.tree.as_ref() == Some(from)) {
            row.record.tree = Some(to.clone());
        }
    }

    pub(super) fn find(&self, id: &PlanId, lives: &dyn Fn(Process) -> bool) -> Option<StoredPlan> {
        let row = self.rows.get(id)?;
        let tasks = row.tasks.iter().map(|(id, record)| (id.clone(), record.clone()));
        Some(StoredPlan {
            record: row.record.clone(),
            status: row.status(lives),
            touched_at: row.touched_at,
            tasks: tasks.collect(),
        })
    }

    pub(super) fn page(&self, query: &PlanQuery, lives: &dyn Fn(Process) -> bool) -> PlanPage {
        let mut rows: Vec<_> = self.rows.values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.touched_at, row.record.id.clone())));
        if let Some(after) = &query.after {
            let at = rows.iter().position(|row| row.record.id == *after);
            rows.drain(..at.map_or(rows.len(), |at| at + 1));
        }
        rows.retain(|row| query.maker.as_ref().is_none_or(|maker| row.record.maker == *maker));
        let more = rows.len() > query.limit as usize;
        let listed = rows.iter().take(query.limit as usize).map(|row| ListedPlan {
            id: row.record.id.clone(),
            request: row.record.request.chars().take(LISTED_REQUEST_CHARS as usize).collect(),
            status: row.status(lives),
            created_at: row.record.created_at,
            touched_at: row.touched_at,
            task_count: count(row.record.plan.tasks.len()),
            done_count: count(
                row.tasks.values().filter(|it| it.status == TaskStatus::Success).count(),
            ),
        });
        PlanPage { plans: listed.collect(), more }
    }

    pub(super) fn begin(
        &mut self,
        me: Process,
        id: &PlanId,
        fence: u64,
        now: Timestamp,
        lives: &dyn Fn(Process) -> bool,
    ) -> Option<Begun> {
        let row = self.rows.get_mut(id)?;
        if let Some(other) = row.owner.filter(|other| *other != me && lives(*other)) {
            return Some(Begun::Runs { pid: other });
        }
        row.status = PlanStatus::Running;
        (row.owner, row.fence, row.touched_at) = (Some(me), fence, now);
        let run = PlanRun { plan: id.clone(), fence: Fence(fence) };
        Some(Begun::Taken(run, Box::new(self.find(id, lives)?)))
    }

    pub(super) fn note(
        &mut self,
        me: Process,
        run: &PlanRun,
        task: String,
        record: TaskRecord,
    ) -> Result<(), StoreError> {
        self.held(me, run)?.tasks.insert(task, record);
        Ok(())
    }

    pub(super) fn end(
        &mut self,
        me: Process,
        run: &PlanRun,
        status: PlanStatus,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let row = self.held(me, run)?;
        (row.status, row.owner, row.touched_at) = (status, None, now);
        Ok(())
    }

    fn held(&mut self, me: Process, run: &PlanRun) -> Result<&mut Row, StoreError> {
        let row = self.rows.get_mut(&run.plan).ok_or(StoreError::Ended)?;
        match row.owner == Some(me) && row.fence == run.fence.0 {
            true => Ok(row),
            false => Err(StoreError::LeaseLost),
        }
    }
}
