//! Memories in memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::store::{
    Deletion, IdPrefix, MemoryId, MemoryKey, MemoryQuery, MemoryRecord, MemoryScope, ScopeKey,
    StoredVector, Unembedded,
};
use nexus_core::words;

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
    pub(super) fn add(&mut self, new: MemoryRecord) -> MemoryRecord {
        if let Some(row) = self.rows.values().find(|row| row.record.id == new.id) {
            return row.record.clone();
        }
        let same = |row: &Row| row.record.scope == new.scope && row.record.content == new.content;
        let there = self.shown().find(|(_, row)| same(row)).map(|(seq, _)| seq);
        if let Some(seq) = there {
            match self.rows.get_mut(&seq) {
                Some(row) if !row.record.is_expired(new.created_at) => {
                    let mut known = keys(&row.record.subjects);
                    let further = new.subjects.into_iter();
                    let further =
                        further.filter(|subject| known.insert(words::subject_key(subject)));
                    row.record.subjects.extend(further);
                    row.record.expires_at = new.expires_at;
                    return row.record.clone();
                }
                _ => self.remove(seq),
            }
        }
        self.last += 1;
        let seq = self.last;
        let next = ScopeKey(self.last_scope + 1);
        let scope = self.scopes.entry(new.scope.clone()).or_insert(next);
        self.last_scope = self.last_scope.max(scope.0);
        let mut record = new;
        let own = keys(&record.subjects);
        for row in self.rows.values_mut().filter(|row| row.superseded_by.is_none()) {
            let about_same = !own.is_disjoint(&keys(&row.record.subjects));
            if row.record.scope == record.scope
                && about_same
                && words::nearly_same(&row.record.content, &record.content)
            {
                row.superseded_by = Some(seq);
                record.supersedes.push(row.record.id);
            }
        }
        let row = Row { record: record.clone(), superseded_by: None, vector: None };
        self.rows.insert(seq, row);
        record
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
        let mut bytes = 0;
        let fits = |memory: &MemoryRecord| {
            let first = bytes == 0;
            bytes += memory.content.len();
            first || bytes <= query.bytes_max
        };
        let fitting: Vec<bool> = found.iter().map(fits).collect();
        let count = fitting.iter().take_while(|fits| **fits).count();
        found.truncate(count);
        found
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
            self.remove(*seq);
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

    fn remove(&mut self, seq: i64) {
        self.rows.remove(&seq);
        let older = self.rows.iter().filter(|(_, row)| row.superseded_by == Some(seq));
        for older in older.map(|(seq, _)| *seq).collect::<Vec<_>>() {
            self.remove(older);
        }
    }
}

fn keys(subjects: &[String]) -> HashSet<String> {
    subjects.iter().map(|subject| words::subject_key(subject)).collect()
}
