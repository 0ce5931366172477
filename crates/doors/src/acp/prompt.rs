//! A prompt: a turn of the agent, told to the editor while it is made.

use std::convert::Infallible;
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    ContentBlock, Cost, Error, PromptResponse, SessionInfoUpdate, SessionUpdate, StopReason,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, UsageUpdate,
};
use jiff::Timestamp;
use nexus_protocol::answer::WatchItem;
use nexus_protocol::api::Happenings;
use nexus_protocol::content::Content;
use nexus_protocol::conversation::GetMessagesParams;
use nexus_protocol::params::Bounded;
use nexus_protocol::permission::{ApprovalEntry, ApprovalKind, ListApprovals, ListApprovalsParams};
use nexus_protocol::turn::{RequestId, SendParams, SendResult, TurnApprovals};
use nexus_protocol::usage::{GetUsage, GetUsageParams};
use nexus_protocol::watch::{Event, Happened, TurnFailure, WatchParams};
use nexus_protocol::{CallError, RpcError, Target, WatchApi};
use tokio_util::sync::CancellationToken;

use super::commands::Command;
use super::door::Door;
use super::kept::Place;
use super::questions::{Question, Questions, shown_of};
use super::replay::turn_of;
use super::session::Session;
use super::subagents::Subagents;
use super::told::{Told, chunks};
use super::{SOURCE, content, fault, prompts};
use crate::begun;

/// What the end of a turn may take to be told behind its answer.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A watch that ended, and a cancel that came before its turn, are tried again after this.
const AGAIN: Duration = Duration::from_millis(50);

/// How the names of tools of MCP servers begin.
const MCP_TOOLS: &str = "mcp_";

/// Longest title of a session, in characters.
const TITLE_CHARS_MAX: usize = 80;

/// Carries a prompt to its end. `watch` is that of the session, or takes it.
pub async fn run<A: WatchApi + Clone + Send + 'static>(
    door: &Door<A>,
    session: &Session,
    prompt: Vec<ContentBlock>,
    cancel: &CancellationToken,
    watch: &mut Option<A::Watch>,
) -> Result<PromptResponse, Error> {
    if cancel.is_cancelled() {
        return Ok(PromptResponse::new(StopReason::Cancelled));
    }
    let mut content = content::said(prompt)?;
    if let Content::Text(text) = &content {
        if let Some(command) = Command::of(text.as_str()) {
            return command_run(door, session, command, cancel).await;
        }
        let filled = tokio::select! {
            filled = prompts::asked(&door.api, &session.id, text.as_str()) => filled?,
            () = cancel.cancelled() => return Ok(PromptResponse::new(StopReason::Cancelled)),
        };
        content = filled.unwrap_or(content);
    }
    let turn = door.random_name()?;
    let title = title(&content);
    let mut prompted = Prompted {
        door,
        session,
        request: RequestId::Text(turn.clone()),
        told: Told::new(turn, session.cwd.clone()),
        questions: Questions::default(),
        subagents: Subagents::default(),
        index_next: None,
        has_begun: false,
        is_over: false,
        ended: None,
        has_changed: false,
        is_first: false,
        model: None,
        filled: None,
    };
    let outcome = prompted.run(content, cancel, watch).await;
    let ended = prompted.ended.take();
    prompted.finish(title, outcome.as_ref().ok()).await;
    let reason = match outcome {
        Ok(answer) => Ok(stop_reason(&answer)),
        Err(_) if cancel.is_cancelled() => Ok(StopReason::Cancelled),
        Err(error) => ended.unwrap_or(Err(error)),
    };
    reason.map(PromptResponse::new).map_err(|error| fault::of(&error))
}

async fn command_run<A: WatchApi + Clone + Send + 'static>(
    door: &Door<A>,
    session: &Session,
    command: Command,
    cancel: &CancellationToken,
) -> Result<PromptResponse, Error> {
    let said = tokio::select! {
        said = command.run(&door.api, &session.id) => said.map_err(|error| fault::of(&error))?,
        () = cancel.cancelled() => return Ok(PromptResponse::new(StopReason::Cancelled)),
    };
    for chunk in chunks(door.random_name()?, &said) {
        door.tell(&session.id, SessionUpdate::AgentMessageChunk(chunk)).await;
    }
    tell_usage(door, session).await;
    Ok(PromptResponse::new(StopReason::EndTurn))
}

/// A turn while it is made.
struct Prompted<'a, A> {
    door: &'a Door<A>,
    session: &'a Session,
    request: RequestId,
    told: Told,
    questions: Questions,
    subagents: Subagents,
    /// Behind the last of its messages that were told.
    index_next: Option<u64>,
    has_begun: bool,
    is_over: bool,
    /// How it ended, as those are told who watch.
    ended: Option<Result<StopReason, CallError>>,
    /// The agent's settings were changed meanwhile.
    has_changed: bool,
    /// The session had none before.
    is_first: bool,
    /// The agent's.
    model: Option<String>,
    /// How many tokens there were in the last model call, with its answer, as far as the provider says.
    filled: Option<u64>,
}

/// What came next.
enum Seen {
    Happened(Box<Happened>),
    /// Something was missed.
    Gap,
}

impl<A: WatchApi + Clone + Send + 'static> Prompted<'_, A> {
    async fn run(
        &mut self,
        content: Content,
        cancel: &CancellationToken,
        watch: &mut Option<A::Watch>,
    ) -> Result<SendResult, CallError> {
        let (door, agent) = (self.door, self.session.id.as_str());
        let params = SendParams {
            request_id: Some(self.request.clone()),
            source: Some(SOURCE.into()),
            // Somebody sits at the editor.
            approvals: Some(TurnApprovals::Ask),
            ..SendParams::new(content)
        };
        // It is watched before it is begun, so that nothing of it is missed. Where no more may be watched, it runs all the
        // same, and is looked at as soon as there is room.
        if watch.is_none() {
            *watch = self.watch().await.ok();
        }
        let (answered, failed) = (CancellationToken::new(), CancellationToken::new());
        let request = self.request.clone();
        let sending = async {
            let outcome = tokio::select! {
                outcome = held(&door.api, agent, params, &request) => outcome,
                never = give_up(&door.api, agent, &request, cancel) => match never {},
            };
            if outcome.is_err() {
                failed.cancel();
            }
            answered.cancel();
            outcome
        };
        // Side by side: an editor that reads slowly holds up neither the turn nor its cancel.
        tokio::join!(sending, self.tell_all(watch, &answered, &failed)).0
    }

    /// Tells the turn to its end. What comes behind the answer may take a moment; what was missed was written down.
    async fn tell_all(
        &mut self,
        watch: &mut Option<A::Watch>,
        answered: &CancellationToken,
        failed: &CancellationToken,
    ) {
        while !self.is_over {
            let late = async {
                answered.cancelled().await;
                tokio::time::sleep(LAST_WORDS).await;
            };
            let seen = tokio::select! {
                biased;
                seen = self.next(watch) => seen,
                // A turn that did not begin has no last words.
                () = failed.cancelled(), if !self.has_begun => return,
                () = late => return self.catch_up().await,
            };
            match seen {
                Seen::Happened(happened) => self.take(*happened).await,
                Seen::Gap => self.catch_up().await,
            }
        }
    }

    async fn watch(&self) -> Result<A::Watch, CallError> {
        let params = WatchParams {
            agents: Some(vec![self.session.id.clone()]),
            descendants: Some(true),
            name: Some(SOURCE.into()),
            ..WatchParams::default()
        };
        begun::watch(&self.door.api, params).await
    }

    /// What happens next. A watch that was left behind is opened again.
    async fn next(&self, watch: &mut Option<A::Watch>) -> Seen {
        loop {
            match watch {
                Some(open) => match open.next().await {
                    Some(Ok(WatchItem::Event(event))) => {
                        return Seen::Happened(Box::new(event.happened));
                    }
                    Some(Ok(WatchItem::Unknown(_))) => {}
                    Some(Ok(WatchItem::Done(_)) | Err(_)) | None => *watch = None,
                },
                None => {
                    tokio::time::sleep(AGAIN).await;
                    *watch = self.watch().await.ok();
                    if watch.is_some() {
                        return Seen::Gap;
                    }
                }
            }
        }
    }

    async fn take(&mut self, happened: Happened) {
        let is_own = happened.request_id.as_ref() == Some(&self.request);
        match &happened.event {
            Event::ApprovalRequested { approval } => self.ask(approval.clone()).await,
            Event::ApprovalDecided { approval } => self.decided(approval).await,
            Event::AgentChanged { .. } if happened.agent_id.as_ref() == Some(&self.session.id) => {
                self.has_changed = true;
            }
            Event::TurnStarted { model, .. } if is_own => {
                self.model = model.clone();
                self.begun();
            }
            Event::TurnEnded { status, error, .. } if is_own => {
                self.is_over = true;
                self.ended = Some(match error {
                    Some(TurnFailure { code, message, data }) => {
                        let (code, message, data) = (*code, message.clone(), data.clone());
                        Err(RpcError { code, message, data }.into())
                    }
                    None => Ok(status_reason(status)),
                });
            }
            Event::Message { index, .. } if is_own => self.index_next = Some(index + 1),
            Event::Usage(used) if is_own => {
                self.filled = Some(used.input + used.output).filter(|tokens| *tokens > 0);
            }
            _ => {}
        }
        let is_session = happened.agent_id.as_ref() == Some(&self.session.id);
        if !is_session && self.door.shows_subagents() {
            self.subagents.happened(self.door, &happened).await;
        }
        if is_own {
            for update in self.told.happened(&happened.event) {
                self.tell(update).await;
            }
        }
    }

    fn begun(&mut self) {
        self.has_begun = true;
        self.is_first |= self.door.prompted(self.session);
    }

    /// Tells what was written down of the turn and not heard of, and asks what is still asked.
    async fn catch_up(&mut self) {
        while let Ok(page) = self.written().await {
            let last = page.last().map(|message| message.index);
            for message in &page {
                if RequestId::Text(turn_of(message)) != self.request {
                    continue;
                }
                self.begun();
                for update in self.told.message(message) {
                    self.tell(update).await;
                }
            }
            match last {
                Some(last) => self.index_next = Some(last + 1),
                None => break,
            }
        }
        let params = ListApprovalsParams::default();
        let Ok(open) = self.door.api.call::<ListApprovals>(&Target::Server, params).await else {
            return;
        };
        let open = open.approvals;
        for asked in self.questions.asked() {
            if open.iter().all(|approval| approval.approval_id != asked) {
                self.questions.decided(&asked);
            }
        }
        for approval in open {
            if self.session.id == approval.agent_id || approval.lineage.contains(&self.session.id) {
                self.ask(approval).await;
            }
        }
    }

    /// The next messages of the agent; the last ones, where nothing was heard of the turn yet.
    async fn written(&self) -> Result<Vec<nexus_protocol::conversation::MessageEntry>, CallError> {
        let params = GetMessagesParams {
            offset: self.index_next,
            from_end: self.index_next.is_none().then_some(true),
            limit: Bounded::new(2_000),
            include_reasoning: None,
        };
        Ok(self.door.api.for_agent(&self.session.id).get_messages(params).await?.messages)
    }

    /// What the agent asks in a turn of somebody else is theirs; its children ask for whoever made them work.
    async fn ask(&mut self, approval: ApprovalEntry) {
        let is_child = approval.agent_id != self.session.id;
        if !is_child && approval.request_id.as_ref() != Some(&self.request) {
            return;
        }
        let call = match is_child {
            true => None,
            false => self.told.open_call(&approval.tool, &approval.arguments),
        };
        let question = Question {
            session: self.session.id.clone(),
            call,
            elicitation: self.door.elicitation(),
            approval,
        };
        self.questions.ask(&self.door.api, &self.door.client, question);
    }

    /// The question is withdrawn. A call that was shown for its sake alone is over.
    async fn decided(&mut self, approval: &ApprovalEntry) {
        let was_asked = self.questions.asked().contains(&approval.approval_id);
        self.questions.decided(&approval.approval_id);
        let is_call = approval.kind == ApprovalKind::Call;
        if was_asked && is_call && approval.agent_id != self.session.id {
            let is_allowed = approval.status.starts_with("allowed");
            let status =
                if is_allowed { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
            let fields = ToolCallUpdateFields::new().status(status);
            let update = ToolCallUpdate::new(shown_of(approval), fields);
            self.tell(SessionUpdate::ToolCallUpdate(update)).await;
        }
    }

    async fn tell(&self, update: SessionUpdate) {
        self.door.tell(&self.session.id, update).await;
    }

    /// How full the context is, and what the session has cost. Where the price of the turn is not known, that of the session
    /// is not either.
    async fn used(&self, answer: Option<&SendResult>) -> Option<SessionUpdate> {
        let model = self.model.as_deref().filter(|_| !self.has_changed);
        let known = model.and_then(|model| self.session.window_of(model)).zip(self.filled);
        let context = async {
            if let Some((size, filled)) = known {
                return Some((filled, size));
            }
            let (counted, size) = context(self.door, self.session).await?;
            if let Some(model) = model {
                self.session.has_window(model, size);
            }
            Some((self.filled.unwrap_or(counted), size))
        };
        let cost = async {
            match answer.is_none_or(|answer| answer.cost_usd.is_some()) {
                true => cost(self.door, self.session).await,
                false => None,
            }
        };
        let (context, cost) = tokio::join!(context, cost);
        let (filled, size) = context?;
        Some(SessionUpdate::UsageUpdate(UsageUpdate::new(filled, size).cost(cost)))
    }

    /// What is to be said at the end of a turn, however it ended.
    async fn finish(mut self, title: Option<String>, answer: Option<&SendResult>) {
        self.subagents.left(self.door).await;
        for update in self.told.left() {
            self.tell(update).await;
        }
        if !self.has_begun {
            return;
        }
        let info = SessionInfoUpdate::new().updated_at(Timestamp::now().to_string());
        let title = title.filter(|_| self.is_first);
        let info = title.into_iter().fold(info, |info, title| info.title(title));
        self.tell(SessionUpdate::SessionInfoUpdate(info)).await;
        if let Some(used) = self.used(answer).await {
            self.tell(used).await;
        }
        if self.has_changed {
            self.door.tell_settings(&self.session.id).await;
        }
        // Servers start when one of their tools is used, and have prompts then.
        if self.told.has_called(MCP_TOOLS) {
            self.door.tell_commands(self.session).await;
        }
    }
}

/// Sends what was said, and waits until the turn is over.
async fn held<A: WatchApi>(
    api: &A,
    agent: &str,
    params: SendParams,
    request: &RequestId,
) -> Result<SendResult, CallError> {
    let outcome = api.send_held(agent, params).await;
    let runs = async || match api.for_agent(agent).get_context().await {
        Ok(context) => context.turns.iter().any(|turn| turn.request_id == *request),
        Err(_) => false,
    };
    while outcome.is_err() && runs().await {
        tokio::time::sleep(AGAIN).await;
    }
    outcome
}

/// Cancels the turn when that is wanted. A cancel that comes before its turn is said again.
async fn give_up<A: WatchApi>(
    api: &A,
    agent: &str,
    request: &RequestId,
    cancel: &CancellationToken,
) -> Infallible {
    cancel.cancelled().await;
    loop {
        match api.for_agent(agent).cancel(request.clone()).await {
            Ok(answer) if answer.cancelled => std::future::pending().await,
            _ => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Tells how full the context is, and what the session has cost.
pub async fn tell_usage<A: WatchApi + Clone + Send + 'static>(door: &Door<A>, session: &Session) {
    let (context, cost) = tokio::join!(context(door, session), cost(door, session));
    if let Some((filled, size)) = context {
        let update = UsageUpdate::new(filled, size).cost(cost);
        door.tell(&session.id, SessionUpdate::UsageUpdate(update)).await;
    }
}

/// How many tokens the next model call would have, and how many it may.
async fn context<A: WatchApi>(door: &Door<A>, session: &Session) -> Option<(u64, u64)> {
    let tokens = door.api.for_agent(&session.id).get_tokens().await.ok()?;
    Some((tokens.total, tokens.budget))
}

async fn cost<A: WatchApi>(door: &Door<A>, session: &Session) -> Option<Cost> {
    let of = Some(session.id.clone());
    let params = GetUsageParams { agent_id: of, ..GetUsageParams::default() };
    let used = door.api.call::<GetUsage>(&Target::Server, params).await.ok()?;
    used.cost_usd.map(|usd| Cost::new(usd, "USD"))
}

/// Passes over what happens while nothing is asked, until the watch ends or its place is another's.
pub async fn pass_over<W: Happenings>(watch: &mut Option<W>, place: Option<Place<'_>>) {
    let (Some(watch), Some(place)) = (watch, place) else { return std::future::pending().await };
    let passed_over = async {
        while let Some(Ok(WatchItem::Event(_) | WatchItem::Unknown(_))) = watch.next().await {}
    };
    tokio::select! {
        () = passed_over => {}
        () = place.given_up() => {}
    }
}

fn stop_reason(answer: &SendResult) -> StopReason {
    match answer.stop_reason.as_str() {
        _ if answer.cancelled => StopReason::Cancelled,
        _ if answer.halted_at_iteration_limit => StopReason::MaxTurnRequests,
        "max_tokens" | "context_window" => StopReason::MaxTokens,
        "refusal" | "content_filter" => StopReason::Refusal,
        _ => StopReason::EndTurn,
    }
}

/// The same from the word that those are told who watch.
fn status_reason(status: &str) -> StopReason {
    match status {
        "cancelled" => StopReason::Cancelled,
        "halted" => StopReason::MaxTurnRequests,
        "truncated" => StopReason::MaxTokens,
        _ => StopReason::EndTurn,
    }
}

/// The first line of what was said.
fn title(content: &Content) -> Option<String> {
    let text = match content {
        Content::Text(text) => Some(text.as_str()),
        Content::Parts(parts) => parts.iter().find_map(|part| part.text.as_deref()),
    };
    let line = text?.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(TITLE_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(more: serde_json::Value, expected: StopReason) {
        let mut answer = json!({
            "content": "", "request_id": "r", "halted_at_iteration_limit": false,
            "stop_reason": "end_turn", "cost_usd": null, "model": "m", "steps": 1,
            "usage": {"input": 0, "cache_read": 0, "cache_write": 0, "output": 0, "reasoning": 0},
        });
        for (name, value) in more.as_object().unwrap() {
            answer[name] = value.clone();
        }
        let answer = serde_json::from_value(answer).unwrap();
        assert_eq!(stop_reason(&answer), expected, "{more}");
    }

    #[test]
    fn stop_reasons() {
        check(json!({}), StopReason::EndTurn);
        check(json!({"stop_reason": "other"}), StopReason::EndTurn);
        check(json!({"stop_reason": "max_tokens"}), StopReason::MaxTokens);
        check(json!({"stop_reason": "context_window"}), StopReason::MaxTokens);
        check(json!({"stop_reason": "refusal"}), StopReason::Refusal);
        check(json!({"stop_reason": "content_filter"}), StopReason::Refusal);
        let halted = json!({"stop_reason": "iteration_limit", "halted_at_iteration_limit": true});
        check(halted, StopReason::MaxTurnRequests);
        check(json!({"stop_reason": "cancelled", "cancelled": true}), StopReason::Cancelled);
    }

    #[test]
    fn a_title_is_the_first_line() {
        let check = |said: serde_json::Value, expected: Option<&str>| {
            let content = serde_json::from_value(said).unwrap();
            assert_eq!(title(&content).as_deref(), expected);
        };
        check(json!("\n  Mend it \nnow"), Some("Mend it"));
        let most = "x".repeat(TITLE_CHARS_MAX);
        check(json!(most), Some(&most));
        check(json!(format!("{most}x")), Some(&most));
        check(json!([{"type": "image", "path": "a"}]), None);
    }
}
