//! The gate: the one place, and the one order, in which a tool call is let through or refused.
//!
//! known → schema → enabled → level → mcp → pin → target agent → every path → approval → run. What is decided here on paths is for
//! the refusal's sake: tools open what they were allowed beneath an opened root, so nothing that changes between the
//! decision and the act can widen it.

mod case;
mod people;
mod refusal;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, Snapshot};
use crate::approval::{Announce, Approvals, Matter, Question, Recheck, Siblings, Verdict};
use crate::authority::Requester;
use crate::footprint::Footprint;
use crate::inquiry::People;
use crate::kin::{Kin, Rights};
use crate::mcp::{McpGrants, OwnServers};
use crate::memory::Memories;
use crate::message::{Attachment, ToolCall};
use crate::name::{AgentId, TurnId};
use crate::on_thread;
use crate::permission::{Grants, ToolClass};
use crate::preview::FileChange;
use crate::provider::ToolSpec;
use crate::sampling::Sampler;
use crate::store::StoreError;
use crate::tool::{Access, Colleagues, ENDING_MAX, Invocation, Need, Onlookers, Tool, ToolOutput};
use crate::toolbox::{Toolbox, offers_tool};

use people::Approvers;

pub use case::{Case, Ruling};
pub use refusal::{APPROVAL_RULE, Act, CONFIGURATION, Refusal, check_place};

pub struct Gate {
    pub(crate) kin: Arc<Kin>,
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) sampler: Arc<Sampler>,
    /// How long one tool call may take.
    pub(crate) tool_timeout: Duration,
    /// Whether the kernel can hold commands within an agent's permissions.
    pub(crate) commands_confined: bool,
    /// What the agent tools reach other agents by. Set once: those reach turns, which reach this gate.
    pub(crate) colleagues: OnceLock<Weak<dyn Colleagues>>,
}

/// What a tool call came to.
pub(crate) struct ToolOutcome {
    /// For the model.
    pub content: String,
    pub attachments: Vec<Attachment>,
    /// What became of the file that it changed.
    pub change: Option<FileChange>,
    /// The rule that refused it, where one did.
    pub refused_by: Option<&'static str>,
    /// It did not do what it was asked to.
    pub failed: bool,
}

/// What a call is made for.
pub(crate) struct Errand<'a> {
    pub turn: &'a TurnId,
    pub cancel: CancellationToken,
    /// Told of what has to be asked.
    pub announce: Announce,
    /// Told of the files that are changed.
    pub footprint: Option<&'a Arc<Footprint>>,
    pub onlookers: Arc<dyn Onlookers>,
    /// What the call had begun elsewhere before its turn was cut off.
    pub ticket: Option<String>,
}

/// A tool as one agent has it.
pub struct ToolStanding {
    pub spec: ToolSpec,
    pub class: ToolClass,
    /// It is not switched off.
    pub enabled: bool,
    /// A call could be let through.
    pub offered: bool,
}

/// A question is not kept waiting any longer for what is shown with it.
const PREVIEW_MAX: Duration = Duration::from_secs(2);

/// What the model is told of a call that a cancel ended, or kept from being begun.
const CANCELLED: &str = "Interrupted: the turn was cancelled.";

impl ToolOutcome {
    /// Of a call that was not carried out, or not to its end.
    pub fn failed(content: impl Into<String>) -> Self {
        let content = content.into();
        Self { content, attachments: Vec::new(), change: None, refused_by: None, failed: true }
    }

    fn interrupted() -> Self {
        Self::failed(CANCELLED)
    }
}

impl From<Refusal> for ToolOutcome {
    fn from(refusal: Refusal) -> Self {
        let refused_by = Some(refusal.rule());
        // What a person said ends as they ended it.
        let full_stop = if matches!(refusal, Refusal::Denied(_)) { "" } else { "." };
        Self { refused_by, ..Self::failed(format!("Refused: {refusal}{full_stop}")) }
    }
}

/// What the gate would say to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    Allowed,
    NeedsApproval(String),
    Refused(Refusal),
}

/// Why a tool that was begun is to end.
enum Stop {
    Cancelled,
    Late,
}

impl Gate {
    /// Carries out a tool call, or says why not. The text is for the model. After a cancel it returns when what the call
    /// started has ended, or could not be ended within [`ENDING_MAX`].
    pub(crate) async fn call(
        self: &Arc<Self>,
        agent: &Agent,
        call: &ToolCall,
        errand: Errand<'_>,
    ) -> ToolOutcome {
        let cancel = &errand.cancel;
        // What waits behind others of its step, and what waited for leave, may come to its turn after the cancel.
        if cancel.is_cancelled() {
            return ToolOutcome::interrupted();
        }
        match self.let_through(agent, call, &errand).await {
            Err(refusal) => refusal.into(),
            Ok(_) if cancel.is_cancelled() => ToolOutcome::interrupted(),
            Ok((tool, access)) => {
                let Some(colleagues) = self.colleagues.get().and_then(Weak::upgrade) else {
                    return ToolOutcome::failed("Failed: the server is stopping");
                };
                // Its own, so that a call whose time is over can be told so alone.
                let own = cancel.child_token();
                let open = watch::Sender::new(0);
                // Arguments may be a whole file: they are copied only for who may show them.
                let people: Arc<dyn People> = match tool.origin() {
                    None => Arc::new(()),
                    Some(_) => Arc::new(Approvers {
                        approvals: self.approvals.clone(),
                        sampler: self.sampler.clone(),
                        agent: agent.clone(),
                        turn: errand.turn.clone(),
                        tool: call.name.clone(),
                        arguments: call.arguments.clone(),
                        cancel: own.clone(),
                        announce: errand.announce.clone(),
                        open: open.clone(),
                    }),
                };
                let invocation = Invocation {
                    agent: agent.clone(),
                    id: call.id.clone(),
                    ticket: errand.ticket,
                    arguments: call.arguments.clone(),
                    access: Access { footprint: errand.footprint.cloned(), ..access },
                    cancel: own.clone(),
                    announce: errand.announce,
                    onlookers: errand.onlookers,
                    people,
                    colleagues,
                    memories: self.memories.clone(),
                };
                match self.run(&*tool, invocation, own, open.subscribe()).await {
                    Ok(ToolOutput { text: content, attachments, change }) => ToolOutcome {
                        content,
                        attachments,
                        change,
                        refused_by: None,
                        failed: false,
                    },
                    Err(content) => ToolOutcome::failed(content),
                }
            }
        }
    }

    /// What a tool says, and of one that failed how.
    async fn run(
        &self,
        tool: &dyn Tool,
        call: Invocation,
        cancel: CancellationToken,
        open: watch::Receiver<usize>,
    ) -> Result<ToolOutput, String> {
        let mut running = tool.run(call);
        let stop = tokio::select! {
            biased;
            done = &mut running => return done.map_err(|failure| format!("Failed: {failure}")),
            () = cancel.cancelled() => Stop::Cancelled,
            () = people::passed(self.tool_timeout, open) => Stop::Late,
        };
        cancel.cancel();
        let came_to = tokio::time::timeout(ENDING_MAX, running).await;
        let why = match stop {
            Stop::Cancelled => CANCELLED.to_owned(),
            Stop::Late => {
                format!("Failed: the tool took longer than {} s", self.tool_timeout.as_secs())
            }
        };
        Err(match came_to {
            Ok(Ok(ToolOutput { text, .. }) | Err(text)) if !text.is_empty() => {
                format!("{why}\n{text}")
            }
            Ok(_) => why,
            Err(_) => {
                let name = &tool.spec().name;
                tracing::warn!(tool = name, "a tool did not end when it was told to");
                why
            }
        })
    }

    async fn let_through(
        self: &Arc<Self>,
        agent: &Agent,
        call: &ToolCall,
        errand: &Errand<'_>,
    ) -> Result<(Arc<dyn Tool>, Access), Refusal> {
        let (tool, ruling) = self.decide(&agent.snapshot(), &call.name, &call.arguments).await?;
        let (reason, grant, before) = match ruling {
            Ruling::Allowed(access) => return Ok((tool, access)),
            // Leave was given when it was begun, and nothing is begun now.
            Ruling::Ask { access, .. } if errand.ticket.is_some() => return Ok((tool, access)),
            Ruling::Ask { reason, grant, before, .. } => (reason, grant, before),
        };
        let patience =
            self.approvals.patience(errand.announce.person()).map_err(Refusal::Approval)?;
        let Errand { turn, cancel, announce, .. } = errand;
        let preview = tokio::time::timeout(PREVIEW_MAX, tool.preview(&call.arguments, *before));
        let preview = cancel.run_until_cancelled(preview).await.and_then(Result::ok).flatten();
        let own = self.own_servers(&agent.snapshot()).await.map_err(unknown)?;
        let question = Question {
            tool: call.name.clone(),
            arguments: call.arguments.clone(),
            reason,
            turn: (*turn).clone(),
            patience,
            matter: Matter::Leave {
                grant: grant.clone(),
                preview,
                recheck: self.recheck(agent, call, &grant),
                siblings: self.siblings(&own, &grant),
            },
        };
        match self.approvals.ask(agent, question, cancel, announce).await {
            Ok(Verdict::Allowed) => {}
            // Perhaps because it could not even be asked for any more: then the model is told that.
            Ok(Verdict::Denied(why)) => {
                let again = self.decide_again(&agent.snapshot(), call, &grant).await;
                return Err(again.err().unwrap_or(Refusal::Approval(why)));
            }
            Ok(Verdict::DeniedWith(message)) => return Err(Refusal::Denied(message)),
            Err(error) => {
                tracing::error!(%error, "an approval could not be stored");
                return Err(Refusal::Approval("the request for approval could not be stored"));
            }
        }
        self.decide_again(&agent.snapshot(), call, &grant).await
    }

    /// Decides on a call that was approved, or is about to be. It may have waited for minutes: the agent may be trusted
    /// less by now, or a link lead elsewhere.
    async fn decide_again(
        &self,
        agent: &Snapshot,
        call: &ToolCall,
        asked: &Grants,
    ) -> Result<(Arc<dyn Tool>, Access), Refusal> {
        match self.decide(agent, &call.name, &call.arguments).await? {
            (tool, Ruling::Allowed(access)) => Ok((tool, access)),
            (tool, Ruling::Ask { access, grant, .. }) if grant == *asked => Ok((tool, access)),
            _ => Err(Refusal::Approval("it would touch something else by now than was approved")),
        }
    }

    fn recheck(self: &Arc<Self>, agent: &Agent, call: &ToolCall, asked: &Grants) -> Recheck {
        let (gate, agent) = (self.clone(), agent.clone());
        let (call, asked) = (Arc::new(call.clone()), Arc::new(asked.clone()));
        Arc::new(move || {
            let (gate, call, asked) = (gate.clone(), call.clone(), asked.clone());
            let now = agent.snapshot();
            async move {
                match gate.decide_again(&now, &call, &asked).await {
                    Ok(_) => Ok(Some(now)),
                    // Then nothing is decided: it can be answered again.
                    Err(Refusal::Unknown(why)) => Err(StoreError::Failed(why)),
                    Err(_) => Ok(None),
                }
            }
            .boxed()
        })
    }

    /// The tools of the servers that `asked` names tools of. One that waits to be looked at is none that could be allowed.
    fn siblings(&self, own: &OwnServers, asked: &Grants) -> Siblings {
        let (toolbox, asked, own) = (self.toolbox.clone(), asked.mcp.clone(), own.clone());
        Arc::new(move || {
            let tools = toolbox.source().tools(&own);
            let origins = tools.iter().filter_map(|tool| tool.origin());
            let of_server = origins.filter(|it| asked.names(&it.server) && !it.quarantined);
            let mut siblings = McpGrants::default();
            of_server.for_each(|origin| siblings.extend(McpGrants::one(origin)));
            siblings
        })
    }

    /// The MCP servers of an agent that are in no configuration.
    pub(crate) async fn own_servers(&self, agent: &Snapshot) -> Result<OwnServers, StoreError> {
        Ok(self.kin.rights(agent).await?.servers)
    }

    /// Decides on a call without carrying it out.
    pub async fn decide(
        &self,
        agent: &Snapshot,
        name: &str,
        arguments: &Value,
    ) -> Result<(Arc<dyn Tool>, Ruling), Refusal> {
        let (tool, case) = self.case(agent, name, arguments).await?;
        // Resolving paths touches the disk.
        Ok((tool, on_thread(move || case.decide()).await?))
    }

    /// Decides whether a file may be read for an agent that did not ask for it itself. Who asks in an agent's name gets
    /// no more than that agent may read.
    pub(crate) async fn reading(
        &self,
        agent: &Snapshot,
        requester: &Requester,
        path: &str,
    ) -> Result<Access, Refusal> {
        let mut case = self.case_of(agent, "", vec![Need::Read(path.into())]).await?;
        if let Requester::Agent(id) = requester {
            let line = self.kin.line(id).await.map_err(unknown)?;
            if line.is_empty() {
                return Err(unknown(StoreError::Ended));
            }
            case.base = line.iter().fold(case.base, |met, it| met.meet(&it.permissions));
        }
        match on_thread(move || case.decide()).await? {
            Ruling::Allowed(access) => Ok(access),
            Ruling::Ask { .. } => Err(Refusal::Read(path.into())),
        }
    }

    /// All tools, and of each what the agent could do with it.
    pub async fn tools(&self, agent: &Snapshot) -> Result<Vec<ToolStanding>, StoreError> {
        let Rights { effective: permissions, servers, .. } = self.kin.rights(agent).await?;
        let standing = |tool: &Arc<dyn Tool>| {
            let (spec, class) = (tool.spec().clone(), tool.class());
            let enabled = !permissions.disabled_tools.contains(&spec.name);
            let offered = offers_tool(&permissions, &**tool);
            ToolStanding { spec, class, enabled, offered }
        };
        Ok(self.toolbox.all(&servers).iter().map(standing).collect())
    }

    /// What a decision on a call rests on.
    pub async fn case(
        &self,
        agent: &Snapshot,
        name: &str,
        arguments: &Value,
    ) -> Result<(Arc<dyn Tool>, Case), Refusal> {
        let tool = match self.toolbox.fixed(name) {
            Some(tool) => Some(tool),
            None => {
                let own = self.own_servers(agent).await.map_err(unknown)?;
                self.toolbox.source().get(name, &own)
            }
        };
        let tool = tool.ok_or_else(|| Refusal::UnknownTool(name.into()))?;
        if let Value::String(text) = arguments
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text)
        {
            return Err(Refusal::Arguments(format!("they are no JSON: {error}")));
        }
        tool.prepare().await;
        let needs = tool.needs(arguments).map_err(Refusal::Arguments)?;
        Ok((tool, self.case_of(agent, name, needs).await?))
    }

    async fn case_of(
        &self,
        agent: &Snapshot,
        tool: &str,
        needs: Vec<Need>,
    ) -> Result<Case, Refusal> {
        let Rights { effective, ceiling, ancestors, .. } =
            self.kin.rights(agent).await.map_err(unknown)?;
        Ok(Case {
            tool: tool.into(),
            cwd: agent.settings.cwd.clone(),
            command_dir: agent.settings.cwd.clone(),
            base: effective,
            ceiling,
            grants: agent.settings.grants.clone(),
            parent: ancestors.first().map(|parent| parent.id.clone()),
            descendants: self.descendants(agent, &needs).await.map_err(unknown)?,
            confined: self.commands_confined,
            needs,
            reasons: Vec::new(),
            asked: Grants::default(),
        })
    }

    /// Of the agents that a call would message, those that descend from the calling one, or are it.
    async fn descendants(
        &self,
        agent: &Snapshot,
        needs: &[Need],
    ) -> Result<BTreeSet<AgentId>, StoreError> {
        let mut found = BTreeSet::new();
        for need in needs {
            let Need::Message(target) = need else { continue };
            let descends = *target == agent.id
                || self.kin.ancestors(target).await?.iter().any(|it| it.id == agent.id);
            found.extend(descends.then(|| target.clone()));
        }
        Ok(found)
    }

    /// What the gate would say to a call, without making it.
    pub async fn explain(&self, agent: &Agent, tool: &str, arguments: &Value) -> Explanation {
        match self.decide(&agent.snapshot(), tool, arguments).await {
            Ok((_, Ruling::Allowed(_))) => Explanation::Allowed,
            Ok((_, Ruling::Ask { reason, .. })) => Explanation::NeedsApproval(reason),
            Err(refusal) => Explanation::Refused(refusal),
        }
    }
}

fn unknown(error: StoreError) -> Refusal {
    Refusal::Unknown(error.to_string())
}
