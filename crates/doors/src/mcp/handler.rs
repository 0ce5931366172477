//! What an MCP host asks of us, and the methods that answer it.

use std::num::NonZeroU64;
use std::sync::Arc;

use nexus_protocol::agent::{CreateAgent, CreateAgentParams, ListAgents, ListAgentsParams};
use nexus_protocol::conversation::GetMessagesParams;
use nexus_protocol::params::Bounded;
use nexus_protocol::permission::ApprovalEntry;
use nexus_protocol::{CallError, RpcError, Target, WatchApi};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CompleteRequestParams, CompleteResult, CompletionInfo, GetTaskParams, GetTaskResult,
    Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::approve::{self, Ask};
use super::call::{Failure, arguments, structured};
use super::http::Answers;
use super::send::knows_tasks;
use super::subscriptions::{Changes, SUBSCRIPTIONS_MAX, Subscriptions};
use super::tasks::parts;
use super::turns::{self, Turn, Turns};
use super::{Exposed, Ground, Visitor, resources, tools};
use crate::sentence::sentence;

const INSTRUCTIONS: &str = "nexus3 runs agents. nexus_send gives one work and waits for its answer; an agent keeps its \
                            conversation, so say to the same one what belongs together. nexus_create makes more of them.";

/// The door as one visitor has it.
#[derive(Clone)]
pub struct Door<A> {
    pub(super) api: A,
    /// Answers approvals, for the person at the host.
    pub(super) person: A,
    pub(super) visitor: Arc<Visitor>,
    pub(super) turns: Arc<Turns<A>>,
    exposed: Arc<Exposed>,
    subscriptions: Subscriptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendArguments {
    content: String,
    agent_id: Option<String>,
    response_schema: Option<Map<String, Value>>,
    timeout_s: Option<NonZeroU64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskArguments {
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    agent_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessagesArguments {
    agent_id: String,
    offset: Option<u64>,
    limit: Option<Bounded<1, 2000>>,
}

impl<A: WatchApi + Clone + Send + 'static> Door<A> {
    /// `api` calls as the visitor, `person` as whoever may answer approvals.
    pub fn new(api: A, person: A, visitor: Visitor, exposed: Arc<Exposed>) -> Self {
        let turns = Arc::new(Turns::new(api.clone(), person.clone()));
        let (visitor, subscriptions) = (Arc::new(visitor), Subscriptions::default());
        Self { api, person, visitor, turns, exposed, subscriptions }
    }

    /// The visitor's own agent, which is made when there is none yet.
    async fn own_agent(&self) -> Result<String, CallError> {
        let Ground::Made { name, preset, cwd } = &self.visitor.ground else {
            return Ok(self.visitor.ground.agent().into());
        };
        if let Some(own) = self.made_before(name).await? {
            return Ok(own);
        }
        let params = CreateAgentParams {
            agent_id: Some(name.clone()),
            preset: Some(preset.clone()),
            cwd: cwd.clone(),
            ..CreateAgentParams::default()
        };
        match self.api.create_agent(params).await {
            Ok(made) => Ok(made.agent_id),
            // Another call of this visitor may have been first.
            Err(error) => self.made_before(name).await?.ok_or(error),
        }
    }

    /// The agent of this name, if there is one. One that another agent made is none of ours: that one would read along.
    async fn made_before(&self, name: &str) -> Result<Option<String>, CallError> {
        let all = self.api.list_agents().await?;
        let Some(found) = all.agents.iter().find(|agent| agent.agent_id == name) else {
            return Ok(None);
        };
        match &found.parent_agent_id {
            None => Ok(Some(name.into())),
            Some(parent) => {
                let why = format!("the agent {name} is one of {parent}'s: name another (agent_id)");
                Err(RpcError::invalid_param("/agent_id", why).into())
            }
        }
    }

    async fn send(
        &self,
        request: CallToolRequestParams,
        exposed: Option<&str>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(state) = &request.request_state {
            return self.go_on(state, &request, context).await;
        }
        let begun = async {
            let given = match exposed {
                None => arguments::<SendArguments>(request.arguments)?,
                Some(agent) => {
                    let AskArguments { content } = arguments(request.arguments)?;
                    let agent_id = Some(agent.to_owned());
                    SendArguments { content, agent_id, response_schema: None, timeout_s: None }
                }
            };
            let agent = match given.agent_id {
                Some(agent) => agent,
                None => self.own_agent().await?,
            };
            let ask = turns::Ask {
                agent,
                content: given.content,
                response_schema: given.response_schema,
                timeout_s: given.timeout_s,
                source: self.visitor.source.clone(),
                has_person: Ask::of(&self.visitor, &context) != Ask::Never,
                is_task: knows_tasks(&context),
            };
            Ok::<_, Failure>(self.turns.begin(ask).await?)
        };
        match begun.await {
            Ok(turn) => self.follow(turn, context).await,
            Err(failure) => Ok(CallToolResult::from(failure).into()),
        }
    }

    /// Goes on with a turn that waited for a person, who has answered.
    async fn go_on(
        &self,
        state: &str,
        request: &CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let gone = || ErrorData::invalid_params("requestState names no turn of this caller", None);
        let (agent, id) = parts(state).map_err(|_| gone())?;
        let turn = self.turns.find(agent, id).ok_or_else(gone)?;
        let responses = request.input_responses.clone().unwrap_or_default();
        let asked = self.asked_of(&turn);
        approve::answered(&self.person, &asked, &responses).await.map_err(internal)?;
        // What was answered is not asked again before the turn has heard of it.
        let mut state = turn.watch();
        let is_heard = |state: &turns::State| {
            state.outcome.is_some()
                || !state.asked.iter().any(|it| responses.contains_key(&it.approval_id))
        };
        let _ = tokio::time::timeout(approve::HEARD, state.wait_for(is_heard)).await;
        self.follow(turn, context).await
    }

    /// What the person at the host may answer: nothing, where there is none.
    pub(super) fn asked_of(&self, turn: &Turn) -> Vec<ApprovalEntry> {
        if self.visitor.has_person { turn.now().asked } else { Vec::new() }
    }

    async fn tool(
        &self,
        name: &str,
        request: CallToolRequestParams,
    ) -> Result<CallToolResult, Failure> {
        let given = request.arguments;
        match name {
            tools::CREATE => {
                let made = self.api.call::<CreateAgent>(&Target::Server, arguments(given)?).await?;
                structured(&json!({"agent_id": made.agent_id}))
            }
            tools::LIST => {
                let NoArguments {} = arguments(given)?;
                let params = ListAgentsParams::default();
                structured(&self.api.call::<ListAgents>(&Target::Server, params).await?)
            }
            tools::STATUS => {
                let Named { agent_id } = arguments(given)?;
                structured(&self.api.for_agent(agent_id).get_context().await?)
            }
            tools::MESSAGES => {
                let MessagesArguments { agent_id, offset, limit } = arguments(given)?;
                let page = GetMessagesParams { offset, limit, ..GetMessagesParams::default() };
                structured(&self.api.for_agent(agent_id).get_messages(page).await?)
            }
            tools::CANCEL => {
                let Named { agent_id } = arguments(given)?;
                let scope = self.api.for_agent(agent_id);
                let mut cancelled = Vec::new();
                for turn in scope.get_context().await?.turns {
                    if scope.cancel(turn.request_id.clone()).await?.cancelled {
                        cancelled.push(turn.request_id);
                    }
                }
                structured(&json!({"cancelled": cancelled}))
            }
            tools::DESTROY => {
                let Named { agent_id } = arguments(given)?;
                structured(&self.api.destroy_agent(agent_id).await?)
            }
            _ => Err(Failure(format!("there is no tool {name}"))),
        }
    }
}

impl<A: WatchApi + Clone + Send + 'static> Answers for Door<A> {
    fn for_session(&self) -> Self {
        Self { subscriptions: Subscriptions::default(), ..self.clone() }
    }
}

fn internal(error: CallError) -> ErrorData {
    ErrorData::internal_error(sentence(&error), None)
}

impl<A: WatchApi + Clone + Send + 'static> ServerHandler for Door<A> {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_tasks()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("nexus3", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.into());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all(&self.exposed)))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all(&self.exposed).into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.clone();
        if self.get_tool(&name).is_none() {
            return Err(ErrorData::invalid_params(format!("there is no tool {name}"), None));
        }
        match name.strip_prefix(tools::ASK) {
            Some(agent) => self.send(request, Some(agent), context).await,
            None if name == tools::SEND => self.send(request, None, context).await,
            None => {
                let done = self.tool(&name, request).await;
                Ok(done.unwrap_or_else(CallToolResult::from).into())
            }
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.task(&request.task_id).await?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (agent, id) = parts(&request.task_id)?;
        let Some(turn) = self.turns.find(agent, id) else {
            // Unknown ones are told so; one that the store has wants nothing any more.
            return self.task(&request.task_id).await.map(drop);
        };
        let asked = self.asked_of(&turn);
        approve::answered(&self.person, &asked, &request.input_responses).await.map_err(internal)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.task(&request.task_id).await?;
        let (agent, id) = parts(&request.task_id)?;
        self.turns.cancel(agent, id).await.map(drop).map_err(internal)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let agents = self.api.list_agents().await.map_err(internal)?.agents;
        let names = agents.iter().map(|agent| agent.agent_id.as_str());
        Ok(ListResourcesResult::with_all_items(names.flat_map(resources::of_agent).collect()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(resources::read(&self.api, &request.uri).await?.into())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let wanted = requested.resource_subscriptions.iter().flatten();
        let wanted = wanted.filter(|uri| resources::place(uri).is_some());
        let uris: Vec<_> = wanted.take(SUBSCRIPTIONS_MAX).cloned().collect();
        let mut accepted = SubscriptionFilter::default();
        accepted.resource_subscriptions = (!uris.is_empty()).then_some(uris);
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let uris = context.sink().accepted().resource_subscriptions.clone().unwrap_or_default();
        if uris.is_empty() {
            context.cancelled().await;
            return Ok(());
        }
        let mut changes = Changes::of(&self.api, uris).await.map_err(internal)?;
        let telling = async {
            while let Some(uri) = changes.next().await {
                if context.sink().notify_resource_updated(uri).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = telling => {}
            () = context.cancelled() => {}
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = request.uri;
        if resources::place(&uri).is_none() {
            let why = format!("{uri}: no such resource");
            return Err(ErrorData::resource_not_found(why, None));
        }
        let mut changes = Changes::of(&self.api, vec![uri.clone()]).await.map_err(internal)?;
        let telling = || {
            AbortOnDropHandle::new(tokio::spawn(async move {
                while let Some(uri) = changes.next().await {
                    let told = ResourceUpdatedNotificationParam::new(uri);
                    if context.peer.notify_resource_updated(told).await.is_err() {
                        return;
                    }
                }
            }))
        };
        match self.subscriptions.add(uri, telling) {
            true => Ok(()),
            false => Err(ErrorData::invalid_params(
                format!("a session has at most {SUBSCRIPTIONS_MAX} subscriptions"),
                None,
            )),
        }
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.remove(&request.uri);
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        if request.argument.name != "agent_id" {
            return Ok(CompleteResult::default());
        }
        let agents = self.api.list_agents().await.map_err(internal)?.agents;
        let names = agents.iter().map(|agent| agent.agent_id.clone());
        let mut names: Vec<_> =
            names.filter(|name| name.starts_with(&request.argument.value)).collect();
        names.sort();
        names.truncate(CompletionInfo::MAX_VALUES);
        let completion =
            CompletionInfo::new(names).map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(completion))
    }
}
