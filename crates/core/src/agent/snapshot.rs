//! An agent as of one moment.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::{AgentSettings, Live};
use crate::account::Account;
use crate::brief::Brief;
use crate::conversation::{Conversation, Unfinished};
use crate::mcp::OwnServer;
use crate::name::{AgentId, TurnId};
use crate::permission::Permissions;
use crate::prompt::PromptPlace;
use crate::provider::{Asker, Urgency};
use crate::store::{AgentRecord, Lease, Progress};
use crate::usage::Bill;
use crate::watch::Asked;

/// Everything a read method, a list or the gate asks of an agent, of one moment. Never changed: the next one takes its
/// place. Making one costs the same however long the conversation is.
#[derive(Clone)]
pub struct Snapshot {
    pub id: AgentId,
    pub created_at: Timestamp,
    /// Tells this agent from others that had its name.
    pub born: u64,
    pub parent: Option<AgentId>,
    pub depth: u32,
    /// The most this agent may ever hold; `None` when an administrator made it without a parent.
    pub ceiling: Option<Arc<Permissions>>,
    pub settings: Arc<AgentSettings>,
    pub conversation: Conversation,
    pub progress: Progress,
    /// The turn that runs, if one does, and those that wait behind it, in their order.
    pub turns: Arc<[TurnCard]>,
    /// The turn that runs waits until its provider takes a call. One for all snapshots of the agent: it changes without
    /// a new one.
    pub(crate) waits_for_provider: Arc<AtomicBool>,
    /// Proof that this process may write the agent; a temporary agent is not stored and has none.
    pub(crate) lease: Option<Lease>,
    /// All that its model calls used.
    pub bill: Bill,
    /// Tells this conversation and its copies from all others.
    pub(crate) root: u64,
    /// What its model was told last. `None` before the first turn in this process.
    pub(crate) brief: Option<Arc<Brief>>,
    /// The layered prompt. Another place takes this one's when the agent moves.
    pub(crate) prompt: Arc<PromptPlace>,
}

/// A turn that runs or waits.
#[derive(Clone)]
pub struct TurnCard {
    pub id: TurnId,
    pub running: bool,
    pub asked: Arc<Asked>,
    pub live: Arc<Live>,
    pub(crate) cancel: CancellationToken,
    /// Says whose the provider traffic inside it is, so it has to learn a new name.
    pub(super) span: tracing::Span,
}

impl Snapshot {
    /// An agent that does nothing yet, from what lies in the store or would lie there.
    pub(crate) fn new(
        record: AgentRecord,
        conversation: Conversation,
        lease: Option<Lease>,
    ) -> Self {
        Self {
            id: record.id,
            created_at: record.created_at,
            born: record.born,
            parent: record.parent,
            depth: record.depth,
            ceiling: record.ceiling.map(Arc::new),
            settings: Arc::new(record.settings),
            conversation,
            progress: record.progress,
            turns: Arc::from([]),
            waits_for_provider: Arc::default(),
            bill: record.bill,
            root: match (record.root, lease) {
                (0, Some(lease)) => lease.agent.0.unsigned_abs(),
                (0, None) => crate::random_number(),
                (root, _) => root,
            },
            lease,
            brief: None,
            prompt: Arc::default(),
        }
    }

    /// The agent as the store keeps it.
    pub fn record(&self) -> AgentRecord {
        AgentRecord {
            id: self.id.clone(),
            created_at: self.created_at,
            born: self.born,
            parent: self.parent.clone(),
            depth: self.depth,
            ceiling: self.ceiling.as_deref().cloned(),
            settings: (*self.settings).clone(),
            progress: self.progress,
            bill: self.bill,
            root: self.root,
            message_count: self.conversation.len(),
            last_action_at: self.last_action_at(),
        }
    }

    /// When the last message was written.
    pub fn last_action_at(&self) -> Option<Timestamp> {
        self.conversation.history_from(0).next_back().map(|it| it.meta.at)
    }

    /// About how much memory the settings and the ceiling take: some of it is text that callers chose.
    pub(super) fn settings_bytes(&self) -> usize {
        let AgentSettings {
            permissions,
            grants,
            model,
            reasoning: _,
            cwd,
            directories,
            system_prompt,
            tickets,
            servers,
        } = &*self.settings;
        let texts = [model, system_prompt].into_iter().flatten().map(String::len);
        let texts = texts.chain(tickets.iter().map(|it| it.call.len() + it.what.len()));
        let ceiling = self.ceiling.as_deref().map_or(0, Permissions::memory_bytes);
        let own = permissions.memory_bytes() + grants.memory_bytes() + cwd.as_os_str().len();
        let directories = directories.iter().map(|dir| dir.as_os_str().len());
        let texts = texts.chain(directories);
        let servers = servers.iter().map(OwnServer::memory_bytes);
        own + ceiling + texts.sum::<usize>() + servers.sum::<usize>()
    }

    /// On whose behalf its model is called.
    pub(crate) fn asker(&self, account: &Account, urgency: Urgency) -> Asker {
        let hash = Sha256::digest(format!("nexus3 conversation {}", self.root));
        let conversation: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Asker {
            root: account.number().to_string().into(),
            agent: self.id.as_str().into(),
            conversation: conversation.into(),
            urgency,
            wait_max: None,
            waiting: None,
            observer: None,
        }
    }

    /// The turn that was cut off, unless one runs.
    pub fn interrupted(&self) -> Option<Unfinished> {
        self.turns.is_empty().then(|| self.conversation.unfinished()).flatten()
    }

    /// Cancels the turn of that name. False when there is none.
    pub(super) fn cancel(&self, turn: &TurnId) -> bool {
        let found = self.turns.iter().find(|card| card.id == *turn);
        found.inspect(|card| card.cancel.cancel()).is_some()
    }

    /// The most a child of this agent may hold.
    pub fn ceiling_for_children(&self) -> Permissions {
        match &self.ceiling {
            Some(ceiling) => self.settings.permissions.meet(ceiling),
            None => self.settings.permissions.clone(),
        }
    }
}
