//! Making an agent: what was asked for, held against what its parent has.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use thiserror::Error;

use super::{AccessError, Lifecycle, Room};
use crate::agent::{Agent, AgentSettings, Gone};
use crate::authority::{Action, Denied, Hand, Requester};
use crate::conversation::Conversation;
use crate::directory::Claim;
use crate::mcp::McpReach;
use crate::message::{Message, Meta, Role, SharedMessage};
use crate::model::Reasoning;
use crate::name::{AgentId, NameError};
use crate::paths::{self, PathError};
use crate::permission::{DEPTH_MAX, Exceeds, Grants, Level, Permissions, Preset};
use crate::provider::ModelError;
use crate::store::{AgentRecord, Lease, Progress, StoreError, StoredAgent, Window};
use crate::usage::Bill;
use crate::{detached, on_thread};

/// What is asked for. Everything absent has a default.
#[derive(Clone, Debug, Default)]
pub struct AgentSpec {
    /// `.` asks for a generated temporary name.
    pub name: Option<String>,
    pub preset: Option<String>,
    pub cwd: Option<String>,
    pub write_paths: Vec<String>,
    pub model: Option<String>,
    pub reasoning: Option<Reasoning>,
    pub system_prompt: Option<String>,
    pub disable_tools: Vec<String>,
    /// Replaces what the preset has of MCP servers.
    pub mcp: Option<McpReach>,
    pub parent: Option<AgentId>,
    /// What was said before, by turns: the first by the user, the last by the assistant. Of temporary agents alone.
    pub history: Vec<(Role, String)>,
    pub hand: Hand,
}

#[derive(Debug, Clone, Error)]
pub enum CreateError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("an agent named {0} exists already")]
    Exists(AgentId),
    #[error("a saved session named {0} exists already")]
    Saved(AgentId),
    #[error("a child of a temporary agent must be temporary too: its name must start with '.'")]
    OutlivesParent,
    #[error("unknown parent agent: {0}")]
    UnknownParent(AgentId),
    #[error("unknown preset: {name} (known: {known})")]
    UnknownPreset { name: String, known: String },
    #[error("preset yolo is given only from the interactive terminal")]
    Yolo,
    #[error("cwd: {0}")]
    Cwd(PathError),
    #[error("allowed_write_paths: {0}")]
    WritePath(PathError),
    #[error(
        "history: turns of user and assistant, the first of the user and the last of the assistant"
    )]
    Turns,
    #[error("history: it is for temporary agents, whose names start with '.'")]
    HistoryOfPermanent,
    #[error("{what}: at most {max} may be named")]
    TooMany { what: &'static str, max: usize },
    #[error("{what}: no tool has a name of more than {TOOL_NAME_BYTES_MAX} bytes")]
    NoTool { what: &'static str },
    #[error("agents nest at most {DEPTH_MAX} deep")]
    TooDeep,
    #[error("the parent's ceiling is exceeded: {0}")]
    Ceiling(#[from] Exceeds),
    #[error("the parent's ceiling is exceeded: a child's level must be below its parent's, so not {}", .0.name())]
    LevelNotBelow(Level),
    #[error("the parent's ceiling is exceeded: {0} lies outside what the parent may use")]
    PathOutside(String),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Store(StoreError),
}

/// What is built in and can be asked for.
const BUILT_IN: [&str; 3] = ["sandboxed", "worker", "trusted"];

/// Places that an agent may be given to write in, beside its directory. Each is looked at with every path that the agent
/// writes.
const WRITE_PATHS_MAX: usize = 1_000;

/// Tools that may be switched off for one agent: many times as many as there are. They are met with those of its
/// ancestors in every decision.
const DISABLED_TOOLS_MAX: usize = 1_000;

/// Longer than the name of any tool.
const TOOL_NAME_BYTES_MAX: usize = 128;

/// Messages that an agent may be made with.
const HISTORY_MAX: usize = 10_000;

/// What was said before, as messages, if the agent can have been told it.
fn past(name: &Name, history: &[(Role, String)]) -> Result<Vec<SharedMessage>, CreateError> {
    let is_temporary = match name {
        Name::Given(id) => id.is_temp(),
        Name::Random => false,
        Name::Temporary => true,
    };
    if history.len() > HISTORY_MAX {
        return Err(CreateError::TooMany { what: "history", max: HISTORY_MAX });
    }
    if !history.is_empty() && !is_temporary {
        return Err(CreateError::HistoryOfPermanent);
    }
    let turns = [Role::User, Role::Assistant].into_iter().cycle();
    let is_by_turns = history.iter().zip(turns).all(|((role, _), turn)| *role == turn);
    if !is_by_turns || !history.len().is_multiple_of(2) {
        return Err(CreateError::Turns);
    }
    let said = |(role, text): &(Role, String)| {
        let meta = Meta { at: crate::now(), ..Meta::default() };
        Arc::new(Message::new(*role, text.as_str(), meta))
    };
    Ok(history.iter().map(said).collect())
}

/// Whether these tools can be switched off, beside those that are.
pub(crate) fn check_tools(
    what: &'static str,
    named: &[String],
    already: usize,
) -> Result<(), CreateError> {
    if named.iter().any(|name| name.len() > TOOL_NAME_BYTES_MAX) {
        return Err(CreateError::NoTool { what });
    }
    match named.len().saturating_add(already) > DISABLED_TOOLS_MAX {
        true => Err(CreateError::TooMany { what, max: DISABLED_TOOLS_MAX }),
        false => Ok(()),
    }
}

impl From<StoreError> for CreateError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Exists(id) => Self::Exists(id),
            StoreError::Saved(id) => Self::Saved(id),
            StoreError::UnknownParent(id) => Self::UnknownParent(id),
            error => Self::Store(error),
        }
    }
}

impl From<Denied> for CreateError {
    fn from(denied: Denied) -> Self {
        Self::Access(denied.into())
    }
}

impl Lifecycle {
    /// Makes an agent. A permanent one is on disk when this returns.
    pub async fn create(
        self: &Arc<Self>,
        requester: &Requester,
        spec: AgentSpec,
    ) -> Result<Agent, CreateError> {
        check_tools("disable_tools", &spec.disable_tools, 0)?;
        if spec.write_paths.len() > WRITE_PATHS_MAX {
            let (what, max) = ("allowed_write_paths", WRITE_PATHS_MAX);
            return Err(CreateError::TooMany { what, max });
        }
        let parent = self.parent_for(requester, spec.parent.as_ref()).await?;
        check_handed_down(requester, spec.mcp.as_ref(), parent.as_ref())?;
        if let Some(model) = &spec.model {
            self.models.resolve(Some(model))?;
        }
        let temporary_parent = parent.as_ref().is_some_and(|parent| parent.id().is_temp());
        let name = Name::asked(spec.name.as_deref(), temporary_parent)?;
        let past = past(&name, &spec.history)?;
        let preset = self.preset_given(spec.preset.as_deref(), spec.hand, requester)?;
        // Whoever names a place that hangs waits for it alone: no name is taken yet.
        let draft = self.draft(spec, preset, parent.as_ref()).await?;
        let room = self.room(requester, parent.as_ref().map(Agent::id).as_ref()).await?;
        let this = self.clone();
        detached(async move {
            let made = this.clone().make(name, draft, past, parent, room).await?;
            this.tell_created(&made).await;
            Ok(made)
        })
        .await
    }

    /// Makes a permanent agent without a parent, which `write` writes down along with what belongs to it.
    pub(crate) async fn create_along<E: From<CreateError> + Send + 'static>(
        self: &Arc<Self>,
        requester: &Requester,
        spec: AgentSpec,
        write: impl FnOnce(AgentRecord) -> BoxFuture<'static, Result<Lease, E>> + Send + 'static,
    ) -> Result<Agent, E> {
        let name = Name::asked(spec.name.as_deref(), false)?;
        let preset = self.preset_given(spec.preset.as_deref(), spec.hand, requester)?;
        let draft = self.draft(spec, preset, None).await?;
        let room = self.room(requester, None).await.map_err(CreateError::from)?;
        let this = self.clone();
        detached(async move {
            let _room = room;
            let claim = this.take_name(name).await?;
            let mut record = AgentRecord { id: claim.id().clone(), ..draft };
            let lease = write(record.clone()).await?;
            record.born = lease.fence.0;
            let unknown = AccessError::Unknown(record.id.clone());
            let stored = StoredAgent { record, lease, window: Window::default() };
            let made = this.settle_in(&claim, stored, None).await;
            let made = made.ok_or_else(|| CreateError::from(unknown))?;
            drop(claim);
            this.tell_created(&made).await;
            Ok(made)
        })
        .await
    }

    /// An agent makes children of its own only; the administrator may put a child under any agent.
    async fn parent_for(
        self: &Arc<Self>,
        requester: &Requester,
        asked: Option<&AgentId>,
    ) -> Result<Option<Agent>, CreateError> {
        let parent = match requester {
            Requester::Administrator => asked,
            Requester::Agent(own) if asked.is_none_or(|asked| asked == own) => Some(own),
            Requester::Agent(own) => return Err(Denied::Parent(own.clone()).into()),
        };
        let Some(id) = parent else { return Ok(None) };
        let parent =
            self.find(requester, id, Action::Manage).await.map_err(|error| match error {
                AccessError::Unknown(id) => CreateError::UnknownParent(id),
                error => error.into(),
            })?;
        if *requester != Requester::Administrator && !parent.look().settings.permissions.agents {
            return Err(Denied::Create(id.clone()).into());
        }
        Ok(Some(parent))
    }

    async fn make(
        self: Arc<Self>,
        name: Name,
        draft: AgentRecord,
        past: Vec<SharedMessage>,
        parent: Option<Agent>,
        _room: Room,
    ) -> Result<Agent, CreateError> {
        let claim = self.take_name(name).await?;
        let parent = parent.as_ref();
        let named = parent.map(|parent| self.directory.name_of(parent, &claim));
        let mut record = AgentRecord { id: claim.id().clone(), parent: named.clone(), ..draft };
        let unknown = || match &record.parent {
            Some(parent) => CreateError::UnknownParent(parent.clone()),
            None => AccessError::Unknown(claim.id().clone()).into(),
        };
        if claim.id().is_temp() {
            record.born = crate::random_number();
            let unknown = unknown();
            let account = self.account(&record, parent).await;
            record.message_count = past.len() as u64;
            let conversation = Conversation::new(Window { first: 0, messages: past });
            let agent = self.start(record, account, conversation, None);
            return match self.directory.insert(&claim, agent.clone(), named, parent) {
                Ok(()) => Ok(agent),
                Err(_) => {
                    agent.end(Gone::Ended);
                    // A parent that only left memory, or is about to, can be had again.
                    let leaves = |parent: &Agent| match parent.gone() {
                        None => (!self.directory.has(parent)).then_some(Gone::Left),
                        gone => gone.filter(|gone| *gone != Gone::Ended),
                    };
                    let left = parent.and_then(leaves);
                    Err(left.map_or(unknown, |gone| CreateError::Store(gone.error())))
                }
            };
        }
        let unknown = unknown();
        // By its key: while it is renamed the store knows its new name before the directory does, and another may have the
        // old one by now.
        let lease = match parent.and_then(|parent| parent.look().lease) {
            Some(parent) => self.store.create_child(record.clone(), parent.agent).await?,
            None => self.store.create(record.clone()).await?,
        };
        // An agent is born with its first lease.
        record.born = lease.fence.0;
        let stored = StoredAgent { record, lease, window: Window::default() };
        self.settle_in(&claim, stored, parent).await.ok_or(unknown)
    }

    /// Takes a name that no agent here has. Of one that lies in the store only the store knows whether it still does:
    /// another process may have ended it.
    async fn take_name(&self, name: Name) -> Result<Claim, CreateError> {
        loop {
            let id = match &name {
                Name::Given(id) => id.clone(),
                Name::Random => AgentId::random(),
                Name::Temporary => self.directory.temporary_name(),
            };
            let claim = self.directory.claim(&id).await;
            match (self.directory.peek(&id), &name) {
                (None, _) => return Ok(claim),
                (Some(_), Name::Given(_)) => return Err(CreateError::Exists(id)),
                // Another caller was quicker, or chose such a name himself.
                (Some(_), Name::Random | Name::Temporary) => {}
            }
        }
    }

    /// What is to be stored, but for its name and its parent's.
    async fn draft(
        &self,
        spec: AgentSpec,
        preset: Preset,
        parent: Option<&Agent>,
    ) -> Result<AgentRecord, CreateError> {
        let parent = parent.map(Agent::snapshot);
        let depth = parent.as_ref().map_or(0, |parent| parent.depth + 1);
        if depth > DEPTH_MAX {
            return Err(CreateError::TooDeep);
        }
        let base = parent.as_ref().map(|parent| parent.settings.cwd.clone());
        let base = base.unwrap_or_else(|| self.rules.cwd.clone());
        let (preset, cwd, write_paths) = resolve(preset, base, spec.cwd, spec.write_paths).await?;
        let mut asked = self.applied(&preset, &cwd, &write_paths);
        asked.disabled_tools.extend(spec.disable_tools);
        let named = spec.mcp.is_some();
        if let Some(mcp) = spec.mcp {
            asked.mcp = mcp;
        }
        let (permissions, ceiling) = match &parent {
            None => (asked, None),
            Some(parent) => {
                let ceiling = parent.ceiling_for_children();
                let below = |level| CreateError::LevelNotBelow(level);
                let ceiling = ceiling.for_child().ok_or_else(|| below(ceiling.level))?;
                check_asked(&asked, &cwd, &write_paths, &ceiling)?;
                if named && !asked.mcp.within(&ceiling.mcp) {
                    return Err(Exceeds::Mcp.into());
                }
                let permissions = asked.meet(&ceiling);
                permissions.within(&ceiling)?;
                (permissions, Some(ceiling))
            }
        };
        Ok(AgentRecord {
            id: AgentId::default_agent(),
            created_at: crate::now(),
            born: 0,
            parent: None,
            depth,
            ceiling,
            settings: AgentSettings {
                permissions,
                grants: Grants::default(),
                model: spec.model,
                reasoning: spec.reasoning,
                cwd,
                directories: Default::default(),
                system_prompt: spec.system_prompt,
                tickets: Vec::new(),
                servers: Vec::new(),
            },
            progress: Progress::default(),
            bill: Bill::default(),
            root: 0,
            message_count: 0,
            last_action_at: None,
        })
    }

    /// The presets that agents can be given by this hand, those that are built in first, and the name of the one that
    /// they get.
    pub fn presets(&self, hand: Hand, requester: &Requester) -> (Vec<Preset>, &str) {
        let yolo = hand.gives_yolo(requester);
        let built_in = BUILT_IN.into_iter().chain(yolo.then_some("yolo"));
        let built_in = built_in.filter_map(Preset::built_in);
        let mut configured: Vec<_> = self.rules.presets.values().cloned().collect();
        configured.retain(|preset| yolo || preset.level != Level::Yolo);
        configured.sort_by(|a, b| a.name.cmp(&b.name));
        (built_in.chain(configured).collect(), &self.rules.default_preset)
    }

    /// The preset of this name, if it may be given by this hand.
    pub(crate) fn preset_given(
        &self,
        name: Option<&str>,
        hand: Hand,
        requester: &Requester,
    ) -> Result<Preset, CreateError> {
        let name = name.unwrap_or(&self.rules.default_preset);
        let preset = self.preset(name).ok_or_else(|| {
            let mut known = BUILT_IN.to_vec();
            known.extend(self.rules.presets.keys().map(String::as_str));
            CreateError::UnknownPreset { name: name.into(), known: known.join(", ") }
        })?;
        match preset.level == Level::Yolo && !hand.gives_yolo(requester) {
            true => Err(CreateError::Yolo),
            false => Ok(preset),
        }
    }

    pub(crate) fn preset(&self, name: &str) -> Option<Preset> {
        self.rules.presets.get(name).cloned().or_else(|| Preset::built_in(name))
    }

    /// What a preset gives an agent of this server.
    pub(crate) fn applied(
        &self,
        preset: &Preset,
        cwd: &Path,
        write_paths: &[PathBuf],
    ) -> Permissions {
        let mut permissions = preset.apply(cwd, write_paths);
        if preset.writes_nothing {
            permissions.disabled_tools.extend(self.rules.write_tools.iter().cloned());
        }
        permissions.blocked.extend(self.rules.protected.iter().cloned());
        permissions
    }
}

/// What a new agent is to be called.
enum Name {
    Given(AgentId),
    Random,
    Temporary,
}

impl Name {
    /// A child does not outlive its parent: a namesake of the parent would inherit it.
    fn asked(asked: Option<&str>, temporary_parent: bool) -> Result<Self, CreateError> {
        match asked {
            None if !temporary_parent => Ok(Self::Random),
            None | Some(".") => Ok(Self::Temporary),
            Some(name) => match AgentId::parse(name)? {
                id if temporary_parent && !id.is_temp() => Err(CreateError::OutlivesParent),
                id => Ok(Self::Given(id)),
            },
        }
    }
}

/// What was asked for in so many words is refused when the parent lacks it, rather than quietly made smaller.
fn check_asked(
    asked: &Permissions,
    cwd: &PathBuf,
    write_paths: &[PathBuf],
    ceiling: &Permissions,
) -> Result<(), CreateError> {
    if asked.level > ceiling.level {
        return Err(CreateError::LevelNotBelow(asked.level));
    }
    let outside = |path: &PathBuf| CreateError::PathOutside(path.display().to_string());
    if !ceiling.read.contains(cwd) || ceiling.blocked.iter().any(|blocked| cwd.starts_with(blocked))
    {
        return Err(outside(cwd));
    }
    match write_paths.iter().find(|path| !ceiling.write.contains(path)) {
        Some(path) => Err(outside(path)),
        None => Ok(()),
    }
}

/// A child that is handed a tool by name is not asked about. So an agent that is asked about hands on only what it was
/// granted: otherwise its child would spare it the question.
fn check_handed_down(
    requester: &Requester,
    asked: Option<&McpReach>,
    parent: Option<&Agent>,
) -> Result<(), CreateError> {
    let (Requester::Agent(id), Some(asked), Some(parent)) = (requester, asked, parent) else {
        return Ok(());
    };
    let settings = &parent.look().settings;
    match settings.permissions.level == Level::Trusted
        && !asked.within(&settings.grants.mcp.reach())
    {
        true => Err(Denied::HandedDown(id.clone()).into()),
        false => Ok(()),
    }
}

/// Makes every path what the disk says it is: a rule on a link would be a rule on nothing.
async fn resolve(
    mut preset: Preset,
    base: PathBuf,
    cwd: Option<String>,
    write_paths: Vec<String>,
) -> Result<(Preset, PathBuf, Vec<PathBuf>), CreateError> {
    let plain = preset.allowed_paths.is_none() && preset.blocked_paths.is_empty();
    if plain && cwd.is_none() && write_paths.is_empty() {
        return Ok((preset, base, Vec::new()));
    }
    let work = move || {
        let cwd = match cwd {
            Some(cwd) => paths::directory(&base, &cwd).map_err(CreateError::Cwd)?,
            None => base,
        };
        let places: Result<_, _> =
            write_paths.iter().map(|path| paths::place(&cwd, path)).collect();
        preset.resolve_links();
        Ok((preset, cwd, places.map_err(CreateError::WritePath)?))
    };
    on_thread(work).await
}
