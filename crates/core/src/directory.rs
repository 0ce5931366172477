//! The agents that are live in this process, their lineage, and the names that are in motion.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use foldhash::fast::RandomState;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::account::{Account, Bounds};
use crate::agent::{Agent, Gone, Snapshot};
use crate::lock;
use crate::name::AgentId;
use crate::permission::DEPTH_MAX;
use crate::store::Fence;

/// Who is live here. No lock of it is ever held while anything is waited for: whoever makes, restores, renames or ends an
/// agent first claims its name, and others who want that name wait for the claim.
pub(crate) struct Directory {
    /// Every call looks an agent up: sharded, so that readers on different cores do not meet, and with a quick hash.
    live: ShardedLock<Live>,
    in_motion: Mutex<HashMap<AgentId, Motion>>,
    accounts: Mutex<Accounts>,
    /// What every tree may take.
    bounds: Bounds,
    /// Grows with every change to any agent that a list could show.
    version: Arc<AtomicU64>,
}

#[derive(Default)]
struct Live {
    entries: HashMap<AgentId, Entry, RandomState>,
    children: HashMap<AgentId, Children>,
    /// The temporary agents in the order in which they were made.
    temporary: BTreeSet<(Timestamp, AgentId)>,
    numbers: Numbers,
}

/// The children of one agent that are live here.
#[derive(Default)]
struct Children {
    names: BTreeSet<AgentId>,
    temporary: u64,
}

/// The accounts of the trees of which somebody is live here, by the name of the agent at the root.
#[derive(Default)]
struct Accounts {
    by_root: HashMap<AgentId, Weak<Account>>,
    /// At this number the dead are cleared away: twice as many as lived when that was last done.
    clear_at: usize,
}

/// The numbers that temporary names are generated from: the lowest that is free.
#[derive(Default)]
struct Numbers {
    last: u64,
    /// Those up to the last that were given back.
    free: BTreeSet<u64>,
}

struct Entry {
    agent: Agent,
    /// The parent's name as it is now. Lineage is asked of this and not of the agents, which learn of it later.
    parent: Option<AgentId>,
}

struct Motion {
    /// Dropped when the name is at rest again.
    at_rest: watch::Sender<()>,
    /// The agent was ended while its name was in motion: it must not appear.
    doomed: bool,
    /// What was renamed meanwhile: perhaps the parent of the agent that is on its way.
    renamed: Vec<(AgentId, AgentId)>,
}

/// The right to move a name. Given back when dropped.
pub(crate) struct Claim {
    directory: Arc<Directory>,
    id: AgentId,
}

/// The agent was ended, or its parent was, before it was there.
pub(crate) struct Doomed;

impl Directory {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            live: ShardedLock::default(),
            in_motion: Mutex::default(),
            accounts: Mutex::default(),
            bounds,
            version: Arc::default(),
        }
    }

    /// The account of the tree of which the agent `root` is the root.
    pub fn account(&self, root: &AgentId) -> Arc<Account> {
        let Accounts { by_root, clear_at } = &mut *lock(&self.accounts);
        if let Some(account) = by_root.get(root).and_then(Weak::upgrade) {
            return account;
        }
        if by_root.len() >= *clear_at {
            by_root.retain(|_, account| account.strong_count() > 0);
            *clear_at = 2 * by_root.len().max(64);
        }
        let account = Arc::new(Account::new(self.bounds));
        by_root.insert(root.clone(), Arc::downgrade(&account));
        account
    }

    /// The account of the tree of an agent that is live here.
    pub fn account_of(&self, id: &AgentId) -> Option<Arc<Account>> {
        Some(self.read().entries.get(id)?.agent.account().clone())
    }

    pub fn version(&self) -> &Arc<AtomicU64> {
        &self.version
    }

    /// The agent of that name, if it is live here. Noted as a sign that somebody wants it.
    pub fn live(&self, id: &AgentId) -> Option<Agent> {
        let live = self.read();
        let agent = &live.entries.get(id)?.agent;
        // Under the lock, so that an agent that somebody just found is not let out of memory.
        agent.touch();
        Some(agent.clone())
    }

    /// The agent of that name, if it is live here. Nobody wants it by this.
    pub fn agent(&self, id: &AgentId) -> Option<Agent> {
        Some(self.read().entries.get(id)?.agent.clone())
    }

    /// How the agent of that name is, if it is live here. Nobody wants it by this.
    pub fn peek(&self, id: &AgentId) -> Option<Arc<Snapshot>> {
        Some(self.read().entries.get(id)?.agent.snapshot())
    }

    pub fn len(&self) -> usize {
        self.read().entries.len()
    }

    pub fn agents(&self) -> Vec<Agent> {
        self.read().entries.values().map(|entry| entry.agent.clone()).collect()
    }

    /// Waits until nobody moves the name, and takes it.
    pub async fn claim(self: &Arc<Self>, id: &AgentId) -> Claim {
        loop {
            let mut at_rest = {
                let mut in_motion = lock(&self.in_motion);
                let Some(motion) = in_motion.get(id) else {
                    let at_rest = watch::channel(()).0;
                    let motion = Motion { at_rest, doomed: false, renamed: Vec::new() };
                    in_motion.insert(id.clone(), motion);
                    return Claim { directory: self.clone(), id: id.clone() };
                };
                motion.at_rest.subscribe()
            };
            // Resolves when the claim is given back.
            let _ = at_rest.changed().await;
        }
    }

    /// Takes two names, which differ. In their order, so that two who want the same two do not wait for each other.
    pub async fn claim_both(self: &Arc<Self>, a: &AgentId, b: &AgentId) -> (Claim, Claim) {
        debug_assert_ne!(a, b, "a name waits for itself");
        if a < b {
            let first = self.claim(a).await;
            (first, self.claim(b).await)
        } else {
            let second = self.claim(b).await;
            (self.claim(a).await, second)
        }
    }

    /// The name under which others find an agent; it may not know of it yet itself. From then on the claim follows what
    /// it is renamed to.
    pub fn name_of(&self, agent: &Agent, claim: &Claim) -> AgentId {
        let live = self.read();
        claim.follow();
        live.name_of(agent).unwrap_or_else(|| agent.id())
    }

    /// Whether others find the agent here, under whatever name.
    pub fn has(&self, agent: &Agent) -> bool {
        self.read().name_of(agent).is_some()
    }

    /// A temporary name that nobody was given, unless somebody chose it himself.
    pub fn temporary_name(&self) -> AgentId {
        let numbers = &mut self.write().numbers;
        AgentId::temporary(numbers.free.pop_first().unwrap_or_else(|| {
            numbers.last += 1;
            numbers.last
        }))
    }

    /// Puts an agent where others find it, unless it or its parent was ended meanwhile. `named` is what its parent was
    /// called when the claim began to [follow](Claim::follow).
    pub fn insert(
        &self,
        claim: &Claim,
        agent: Agent,
        named: Option<AgentId>,
        parent: Option<&Agent>,
    ) -> Result<(), Doomed> {
        let _changed = Changed(&self.version);
        let mut live = self.write();
        let parent_now = parent.and_then(|parent| live.name_of(parent));
        // Of a parent that is not here any more nobody here knows the name: another may have it by now. The store knows.
        let orphan = parent.is_some() && parent_now.is_none();
        if orphan || claim.is_doomed() {
            return Err(Doomed);
        }
        let parent = named.map(|named| parent_now.unwrap_or_else(|| claim.renamed(named)));
        if let Some(parent) = parent.as_ref().filter(|it| Some(*it) != agent.look().parent.as_ref())
        {
            agent.learn_parent(parent.clone());
        }
        live.put(&claim.id, Entry { agent, parent });
        Ok(())
    }

    /// Gives an agent another name; its children follow. Returns those that are live here.
    pub fn rename(&self, from: &Claim, to: &Claim) -> Vec<Agent> {
        let _changed = Changed(&self.version);
        let mut live = self.write();
        for motion in lock(&self.in_motion).values_mut() {
            motion.renamed.push((from.id.clone(), to.id.clone()));
        }
        lock(&self.accounts).rename(&from.id, &to.id);
        let Live { entries, children, .. } = &mut *live;
        let their = children.remove(&from.id).unwrap_or_default();
        let mut followers = Vec::new();
        for name in &their.names {
            if let Some(entry) = entries.get_mut(name) {
                entry.parent = Some(to.id.clone());
                followers.push(entry.agent.clone());
            }
        }
        if !their.names.is_empty() {
            // Some may be there already: the store knew the new name before, and whoever was read from it.
            let together = children.entry(to.id.clone()).or_default();
            together.names.extend(their.names);
            together.temporary += their.temporary;
        }
        if let Some(entry) = live.take(&from.id) {
            if from.is_doomed() || to.is_doomed() {
                entry.agent.end(Gone::Ended);
            } else {
                live.put(&to.id, entry);
            }
        }
        followers
    }

    /// Takes out agents that were ended, and what is live beneath them, and tells them. Names of theirs that are in
    /// motion come to nothing. Returns all of them, parents before their children.
    pub fn remove(&self, ended: &[AgentId]) -> Vec<(AgentId, Agent)> {
        let _changed = Changed(&self.version);
        let mut live = self.write();
        let mut in_motion = lock(&self.in_motion);
        let mut removed = Vec::new();
        let mut next: Vec<_> = ended.to_vec();
        let mut seen: HashSet<AgentId> = next.iter().cloned().collect();
        let mut index = 0;
        while let Some(id) = next.get(index).cloned() {
            index += 1;
            if let Some(motion) = in_motion.get_mut(&id) {
                motion.doomed = true;
            }
            let children = live.children(&id);
            let fresh: Vec<_> = children.filter(|child| !seen.contains(*child)).cloned().collect();
            seen.extend(fresh.iter().cloned());
            next.extend(fresh);
            if let Some(entry) = live.take(&id) {
                entry.agent.end(Gone::Ended);
                removed.push((id, entry.agent));
            }
        }
        removed
    }

    /// Takes out an agent that turned out to be gone.
    pub fn forget(&self, id: &AgentId, number: u64) {
        let _changed = Changed(&self.version);
        let mut live = self.write();
        if live.entries.get(id).is_some_and(|entry| entry.agent.number() == number) {
            live.take(id);
        }
    }

    /// Takes out the agents whose leases are lost, those with a fence up to this one. They are in the store, and whoever
    /// touches them finds out where they live now. Returns their names.
    pub fn lose(&self, void_through: Fence) -> Vec<AgentId> {
        let _changed = Changed(&self.version);
        let mut live = self.write();
        let lost = live.entries.iter().filter(|(_, it)| it.agent.is_held_through(void_through));
        let lost: Vec<_> = lost.map(|(id, _)| id.clone()).collect();
        for entry in lost.iter().filter_map(|id| live.take(id)) {
            entry.agent.end(Gone::Lost);
        }
        lost
    }

    /// The agents that have been idle for so long.
    pub fn idle(&self, idle: Duration) -> Vec<AgentId> {
        let live = self.read();
        let found = live.entries.iter().filter(|(_, entry)| entry.agent.is_idle(idle));
        found.map(|(id, _)| id.clone()).collect()
    }

    /// Takes out an agent that has been idle for so long and has no children here. It is the caller's to end.
    pub fn withdraw(&self, claim: &Claim, idle: Duration) -> Option<Agent> {
        let _changed = Changed(&self.version);
        let mut live = self.write();
        let entry = live.entries.get(&claim.id)?;
        let leaves = entry.agent.is_idle(idle) && !live.children.contains_key(&claim.id);
        leaves.then(|| live.take(&claim.id).map(|entry| entry.agent)).flatten()
    }

    /// The agent, if it is live here, and all its descendants that are, parents before their children.
    pub fn family(&self, id: &AgentId) -> Vec<Agent> {
        let live = self.read();
        let mut family: Vec<_> = live.entries.get(id).into_iter().collect();
        let mut names: Vec<&AgentId> = vec![id];
        let mut index = 0;
        while let Some(id) = names.get(index) {
            for child in live.children(id) {
                names.push(child);
                family.extend(live.entries.get(child));
            }
            index += 1;
        }
        family.into_iter().map(|entry| entry.agent.clone()).collect()
    }

    /// How many children of an agent are live here and not stored.
    pub fn temporary_children(&self, id: &AgentId) -> u64 {
        self.read().children.get(id).map_or(0, |children| children.temporary)
    }

    /// How many agents are not stored among the agent `root` and those that descend from it. Looks at no more than `most`
    /// of them, stored or not: whoever asks wants to know whether there are as many.
    pub fn temporary_in_tree(&self, root: &AgentId, most: usize) -> usize {
        let live = self.read();
        let mut names: Vec<&AgentId> = vec![root];
        let mut index = 0;
        while let Some(id) = names.get(index) {
            let room = most.saturating_sub(names.len());
            names.extend(live.children(id).take(room));
            index += 1;
        }
        names.into_iter().filter(|id| id.is_temp()).count()
    }

    /// The temporary agents behind `after`, or from the first on, in the order in which they were made. `None` when there
    /// is no such agent.
    pub fn temporary(&self, after: Option<&AgentId>, limit: usize) -> Option<Vec<Arc<Snapshot>>> {
        let live = self.read();
        let behind = match after {
            None => Bound::Unbounded,
            Some(id) => {
                Bound::Excluded((live.entries.get(id)?.agent.look().created_at, id.clone()))
            }
        };
        let page = live.temporary.range((behind, Bound::Unbounded)).take(limit);
        let page = page.filter_map(|(_, id)| live.entries.get(id));
        Some(page.map(|entry| entry.agent.snapshot()).collect())
    }

    /// The agent's lineage as far as it is live here.
    pub fn lineage(&self, id: &AgentId) -> Lineage {
        let live = self.read();
        let mut lineage = Lineage { live: Vec::new(), next: Some(id.clone()) };
        while let Some(entry) = lineage.next.as_ref().and_then(|id| live.entries.get(id))
            && lineage.live.len() <= DEPTH_MAX as usize
        {
            let id = std::mem::replace(&mut lineage.next, entry.parent.clone());
            lineage.live.extend(id.map(|id| (id, entry.agent.snapshot())));
        }
        lineage
    }

    fn read(&self) -> ShardedLockReadGuard<'_, Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> ShardedLockWriteGuard<'_, Live> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An agent and its ancestors, as far as they are live here.
pub(crate) struct Lineage {
    /// The agent first.
    pub live: Vec<(AgentId, Arc<Snapshot>)>,
    /// The first that is not.
    pub next: Option<AgentId>,
}

impl Live {
    /// The name of an agent, unless it is not to be found here any more.
    fn name_of(&self, agent: &Agent) -> Option<AgentId> {
        let is_it = |entry: &Entry| entry.agent.number() == agent.number();
        let known = agent.id();
        if self.entries.get(&known).is_some_and(is_it) {
            return Some(known);
        }
        self.entries.iter().find(|(_, entry)| is_it(entry)).map(|(id, _)| id.clone())
    }

    fn children(&self, id: &AgentId) -> impl Iterator<Item = &AgentId> {
        self.children.get(id).into_iter().flat_map(|children| &children.names)
    }

    fn put(&mut self, id: &AgentId, entry: Entry) {
        if let Some(parent) = &entry.parent {
            let siblings = self.children.entry(parent.clone()).or_default();
            if siblings.names.insert(id.clone()) {
                siblings.temporary += u64::from(id.is_temp());
            }
        }
        if id.is_temp() {
            self.temporary.insert((entry.agent.look().created_at, id.clone()));
        }
        self.entries.insert(id.clone(), entry);
    }

    fn take(&mut self, id: &AgentId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        if id.is_temp() {
            self.temporary.remove(&(entry.agent.look().created_at, id.clone()));
        }
        let number = id.as_str().strip_prefix('.').and_then(|number| number.parse::<u64>().ok());
        self.numbers.free.extend(number.filter(|number| *number <= self.numbers.last));
        if let Some(parent) = &entry.parent
            && let Some(siblings) = self.children.get_mut(parent)
        {
            if siblings.names.remove(id) {
                siblings.temporary -= u64::from(id.is_temp());
            }
            if siblings.names.is_empty() {
                self.children.remove(parent);
            }
        }
        Some(entry)
    }
}

impl Accounts {
    fn rename(&mut self, from: &AgentId, to: &AgentId) {
        if let Some(account) = self.by_root.remove(from) {
            self.by_root.insert(to.clone(), account);
        }
    }
}

impl Claim {
    pub fn id(&self) -> &AgentId {
        &self.id
    }

    /// Takes the doom back: it was another agent of that name that ended.
    pub fn spare(&self) {
        if let Some(motion) = lock(&self.directory.in_motion).get_mut(&self.id) {
            motion.doomed = false;
        }
    }

    /// Begins anew to note what is renamed. To be called before a parent's name is read: what was renamed before is in
    /// that name already, and a name may have been another's before.
    pub fn follow(&self) {
        if let Some(motion) = lock(&self.directory.in_motion).get_mut(&self.id) {
            motion.renamed.clear();
        }
    }

    /// What `id` is called now, if it was renamed since this claim follows.
    fn renamed(&self, id: AgentId) -> AgentId {
        let in_motion = lock(&self.directory.in_motion);
        let renamed = in_motion.get(&self.id).into_iter().flat_map(|motion| &motion.renamed);
        renamed.fold(id, |id, (from, to)| if id == *from { to.clone() } else { id })
    }

    fn is_doomed(&self) -> bool {
        lock(&self.directory.in_motion).get(&self.id).is_none_or(|motion| motion.doomed)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.directory.in_motion).remove(&self.id);
    }
}

/// Counts a change when it is made: whoever reads the version first and the agents then never takes old for new.
struct Changed<'a>(&'a AtomicU64);

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}
