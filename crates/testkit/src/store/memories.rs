//! Memories in memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::store::{
    Deletion, IdPrefix, MemoriesWeight, MemoryId, MemoryKey, MemoryQuery, MemoryRecord, MemoryRoom,
    MemoryScope, Said, ScopeKey, StoredVector, Unembedded,
};
use nexus_core::words;

/// Memories that a new one is held against, as the store in SQLite does it.
const COMPARED_MAX: usize = 32;

#[derive(Default)]
pub(super) struct Memories {
    rows: BTreeMap<i64, Row>,
    last: i64,
    scopes: HashMap<MemoryScope, ScopeKey>,
    last_scope: i64,
}

struct Row {
    record: MemoryRecord,
    superseded_by: Option<i64>,
    vector: Option<(String, Vec<u8>)>,
}

impl Memories {
    pub(super) fn add(
        &mut self,
        new: MemoryRecord,
        room: Option<MemoryRoom>,
    ) -> Option<MemoryRecord> {
        let now = new.created_at;
        self.keep(new, now, Said::Now, room)
    }

    pub(super) fn restore(&mut self, memory: MemoryRecord, now: Timestamp) -> Option<MemoryRecord> {
        self.keep(memory, now, Said::Earlier, None)
    }

    fn keep(
        &mut self,
        new: MemoryRecord,
        now: Timestamp,
        said: Said,
        room: Option<MemoryRoom>,
    ) -> Option<MemoryRecord> {
        if let Some(row) = self.rows.values().find(|row| row.record.id == new.id) {
            return Some(row.record.clone());
        }
        match self.same(&new) {
            Some((seq, there)) if there.is_expired(now) => self.expire(seq),
            Some((seq, there)) => {
                let renewed = there.renewed(&new, said);
                let bytes = renewed.bytes().saturating_sub(there.bytes());
                return self
                    .has_room(&new.scope, room, MemoriesWeight { count: 0, bytes })
                    .then(|| self.replace(seq, renewed));
            }
            None => {}
        }
        if !self.has_room(&new.scope, room, MemoriesWeight { count: 1, bytes: new.bytes() }) {
            return None;
        }
        self.last += 1;
        let seq = self.last;
        let next = ScopeKey(self.last_scope + 1);
        let scope = self.scopes.entry(new.scope.clone()).or_insert(next);
        self.last_scope = self.last_scope.max(scope.0);
        let mut record = new;
        let own = keys(&record.subjects);
        let about_same = |row: &Row| {
            row.superseded_by.is_none()
                && row.record.scope == record.scope
                && !own.is_disjoint(&keys(&row.record.subjects))
        };
        let compared = self.rows.values_mut().rev().filter(|row| about_same(row));
        let mut supersedes = Vec::new();
        for row in compared.take(COMPARED_MAX) {
            let is_newer = said == Said::Earlier && row.record.created_at > record.created_at;
            if !is_newer && words::nearly_same(&row.record.content, &record.content) {
                row.superseded_by = Some(seq);
                row.vector = None;
                supersedes.insert(0, row.record.id);
            }
        }
        record.supersedes = supersedes;
        let row = Row { record: record.clone(), superseded_by: None, vector: None };
        self.rows.insert(seq, row);
        Some(record)
    }

    /// The memory of a text that no other took the place of.
    fn same(&self, like: &MemoryRecord) -> Option<(i64, MemoryRecord)> {
        let same = |it: &MemoryRecord| (&it.scope, &it.content) == (&like.scope, &like.content);
        let found = self.shown().find(|(_, row)| same(&row.record));
        found.map(|(seq, row)| (seq, row.record.clone()))
    }

    fn replace(&mut self, seq: i64, by: MemoryRecord) -> MemoryRecord {
        if let Some(row) = self.rows.get_mut(&seq) {
            row.record = by.clone();
        }
        by
    }

    fn has_room(
        &self,
        scope: &MemoryScope,
        room: Option<MemoryRoom>,
        more: MemoriesWeight,
    ) -> bool {
        let mut there = MemoriesWeight::default();
        for row in self.rows.values().filter(|row| row.record.scope == *scope) {
            there.count += 1;
            there.bytes += row.record.bytes();
        }
        room.is_none_or(|room| room.takes(there, more))
    }

    pub(super) fn with(
        &self,
        scopes: &[MemoryScope],
        words: &[String],
        now: Timestamp,
    ) -> Vec<MemoryRecord> {
        let text = |it: &MemoryRecord| format!("{} {}", it.content, it.subjects.join(" "));
        let found = self.visible(scopes, Some(now));
        found.filter(|it| words::holds_any(words, &text(it))).cloned().collect()
    }

    pub(super) fn by_id(
        &self,
        scopes: &[MemoryScope],
        ids: &[MemoryId],
        now: Timestamp,
    ) -> Vec<MemoryRecord> {
        self.visible(scopes, Some(now)).filter(|it| ids.contains(&it.id)).cloned().collect()
    }

    pub(super) fn page(&self, query: &MemoryQuery) -> Vec<MemoryRecord> {
        let mut found: Vec<_> = self.visible(&query.scopes, query.alive_at).cloned().collect();
        found.reverse();
        found.sort_by_key(|memory| std::cmp::Reverse(memory.created_at));
        found.truncate(query.limit as usize);
        // As JSON has them, without its brackets.
        let subjects = |it: &MemoryRecord| {
            let quoted: usize = it.subjects.iter().map(|subject| subject.len() + 3).sum();
            quoted.saturating_sub(1)
        };
        let sizes = found.iter().map(|it| it.content.len() + subjects(it));
        query.fitting(sizes).into_iter().map(|at| found[at].clone()).collect()
    }

    pub(super) fn delete(&mut self, scopes: &[MemoryScope], prefix: IdPrefix) -> Deletion {
        let meant = |row: &Row| scopes.contains(&row.record.scope) && prefix.covers(row.record.id);
        let found: Vec<_> = self
            .shown()
            .filter(|(_, row)| meant(row))
            .map(|(seq, row)| (seq, row.record.id))
            .collect();
        match found.as_slice() {
            [] => Deletion::NotFound,
            [(seq, id)] => {
                let (seq, id) = (*seq, *id);
                self.remove(seq);
                Deletion::Deleted(id)
            }
            _ => Deletion::Ambiguous,
        }
    }

    /// What agents had that are gone, and their trees.
    pub(super) fn forget(&mut self, agents: &[AgentId]) {
        let scopes: HashSet<_> = agents.iter().flat_map(MemoryScope::of_agent).collect();
        self.rows.retain(|_, row| !scopes.contains(&row.record.scope));
    }

    /// What an agent has, and its tree, from now on under its new name.
    pub(super) fn rename(&mut self, from: &AgentId, to: &AgentId) {
        for (old, new) in MemoryScope::of_agent(from).iter().zip(&MemoryScope::of_agent(to)) {
            for row in self.rows.values_mut().filter(|row| row.record.scope == *old) {
                row.record.scope = new.clone();
            }
            if let Some(scope) = self.scopes.remove(old) {
                self.scopes.insert(new.clone(), scope);
            }
        }
    }

    pub(super) fn remove_expired(&mut self, before: Timestamp, limit: u32) -> u64 {
        let over = |row: &Row| row.record.expires_at.is_some_and(|at| at < before);
        let expired: Vec<i64> = self
            .shown()
            .filter(|(_, row)| over(row))
            .map(|(seq, _)| seq)
            .take(limit as usize)
            .collect();
        for seq in &expired {
            self.expire(*seq);
        }
        expired.len() as u64
    }

    pub(super) fn gone(&self, ids: Vec<MemoryId>) -> Vec<MemoryId> {
        let there: HashSet<_> = self.shown().map(|(_, row)| row.record.id).collect();
        ids.into_iter().filter(|id| !there.contains(id)).collect()
    }

    pub(super) fn scope_keys(&self, scopes: &[MemoryScope]) -> Vec<ScopeKey> {
        scopes.iter().filter_map(|scope| self.scopes.get(scope).copied()).collect()
    }

    fn scope_key(&self, row: &Row) -> Option<ScopeKey> {
        self.scopes.get(&row.record.scope).copied()
    }

    pub(super) fn unembedded(&self, model: &str, after: MemoryKey, limit: u32) -> Vec<Unembedded> {
        let missing = |row: &Row| row.vector.as_ref().is_none_or(|(by, _)| by != model);
        self.shown()
            .filter(|(seq, row)| *seq > after.0 && missing(row))
            .filter_map(|(seq, row)| {
                Some(Unembedded {
                    key: MemoryKey(seq),
                    id: row.record.id,
                    scope: self.scope_key(row)?,
                    content: row.record.content.clone(),
                    subjects: row.record.subjects.clone(),
                })
            })
            .take(limit as usize)
            .collect()
    }

    pub(super) fn put_vectors(&mut self, model: &str, vectors: Vec<(MemoryKey, Vec<u8>)>) {
        for (key, vector) in vectors {
            let row = self.rows.get_mut(&key.0).filter(|row| row.superseded_by.is_none());
            if let Some(row) = row {
                row.vector = Some((model.to_owned(), vector));
            }
        }
    }

    pub(super) fn vectors(&self, model: &str, after: MemoryKey, limit: u32) -> Vec<StoredVector> {
        let vectors = self.shown().filter(|(seq, _)| *seq > after.0).filter_map(|(seq, row)| {
            let (by, vector) = row.vector.as_ref()?;
            let scope = self.scope_key(row)?;
            let (key, id, vector) = (MemoryKey(seq), row.record.id, vector.clone());
            (by == model).then_some(StoredVector { key, id, scope, vector })
        });
        vectors.take(limit as usize).collect()
    }

    /// What was not superseded, the oldest first.
    fn shown(&self) -> impl Iterator<Item = (i64, &Row)> {
        self.rows
            .iter()
            .filter(|(_, row)| row.superseded_by.is_none())
            .map(|(seq, row)| (*seq, row))
    }

    fn visible(
        &self,
        scopes: &[MemoryScope],
        alive_at: Option<Timestamp>,
    ) -> impl Iterator<Item = &MemoryRecord> {
        self.shown().map(|(_, row)| &row.record).filter(move |it| {
            scopes.contains(&it.scope) && alive_at.is_none_or(|now| !it.is_expired(now))
        })
    }

    /// Removes what expired; what it took the place of is back.
    fn expire(&mut self, seq: i64) {
        for old in self.superseded_by(seq) {
            self.bring_back(old);
        }
        self.remove(seq);
    }

    /// As the newest that was added, or as one with what says the same by now.
    fn bring_back(&mut self, old: i64) {
        let Some(mut row) = self.rows.remove(&old) else { return };
        let place = match self.same(&row.record) {
            Some((twin, there)) => {
                self.replace(twin, there.renewed(&row.record, Said::Earlier));
                twin
            }
            None => {
                self.last += 1;
                row.superseded_by = None;
                self.rows.insert(self.last, row);
                self.last
            }
        };
        for older in self.rows.values_mut().filter(|row| row.superseded_by == Some(old)) {
            older.superseded_by = Some(place);
        }
        let older = self.superseded_by(place);
        let supersedes = older.iter().filter_map(|seq| Some(self.rows.get(seq)?.record.id));
        let supersedes = supersedes.collect();
        if let Some(row) = self.rows.get_mut(&place) {
            row.record.supersedes = supersedes;
        }
    }

    fn superseded_by(&self, seq: i64) -> Vec<i64> {
        let older = self.rows.iter().filter(|(_, row)| row.superseded_by == Some(seq));
        older.map(|(seq, _)| *seq).collect()
    }

    fn remove(&mut self, seq: i64) {
        self.rows.remove(&seq);
        for older in self.superseded_by(seq) {
            self.remove(older);
        }
    }
}

fn keys(subjects: &[String]) -> HashSet<String> {
    subjects.iter().map(|subject| words::subject_key(subject)).collect()
}
