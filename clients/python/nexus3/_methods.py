"""The methods of the interface, each with its types.

Written by generate.py; change that instead."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ._stream import Stream, Watch
from .types import (
    All,
    ApprovalDecision,
    ApprovalScope,
    CancelPlanResult,
    CancelResult,
    CloneSessionResult,
    CompactResult,
    Content,
    ContextAction,
    ContextType,
    CreateAgentResult,
    CreateAgentTokenResult,
    CreateKeyResult,
    CreatePlanResult,
    CurrentState,
    DeleteSessionResult,
    DestroyAgentResult,
    Door,
    ExecuteTaskResult,
    ExplainPermissionResult,
    FoundMemory,
    GetAgentSummariesResult,
    GetContextResult,
    GetContextStateResult,
    GetMessagesResult,
    GetMetricsResult,
    GetModelResult,
    GetPermissionsResult,
    GetSystemPromptResult,
    GetTokensResult,
    GetUsageResult,
    ListAgentsResult,
    ListApprovalsResult,
    ListKeysResult,
    ListModelsResult,
    ListPlansResult,
    ListPresetsResult,
    ListSessionsResult,
    ListToolsResult,
    ListedMemory,
    LoadSessionResult,
    McpAccept,
    McpConnectResult,
    McpDisconnectResult,
    McpGetPromptResult,
    McpListServersResult,
    McpPromptsResult,
    McpReadResourceResult,
    McpResourcesResult,
    McpReviewResult,
    McpSource,
    McpStatusResult,
    MemoryDeleteResult,
    MemoryEntry,
    PastMessage,
    PlanConstraints,
    PlanEntry,
    PlanOptions,
    PlanStanding,
    ReasoningChoice,
    RenameSessionResult,
    RequestId,
    RespondApprovalResult,
    RevokeKeyResult,
    RunOptions,
    RunPlanResult,
    SaveSessionResult,
    SendResult,
    ServerInfoResult,
    SetCwdResult,
    SetModelResult,
    SetPermissionsResult,
    SetSystemPromptResult,
    ShutdownResult,
    ShutdownServerResult,
    TaskContext,
    TaskOptions,
    TaskType,
    TurnApprovals,
    UnloadAgentResult,
    UnwatchResult,
    UpdateContextResult,
    UsageBy,
    ValidateCodeOptions,
    ValidateCodeResult,
    VersionResult,
)


class ServerMethods:
    """The methods of the server."""

    async def _call(self, method: str, params: Dict[str, Any]) -> Any:
        raise NotImplementedError

    def _stream(self, method: str, params: Dict[str, Any]) -> Stream[Any]:
        raise NotImplementedError

    def _watch(self, params: Dict[str, Any]) -> Watch:
        raise NotImplementedError

    async def cancel_plan(self, plan_id: str) -> CancelPlanResult:
        """Ends the run of a plan: what runs is cancelled, and what is done stays done."""
        result: CancelPlanResult = await self._call("cancel_plan", {"plan_id": plan_id})
        return result

    async def clone_session(
        self,
        src_session: str,
        dest_session: str,
        *,
        upto: Optional[int] = None,
    ) -> CloneSessionResult:
        """Makes a saved copy of a session: messages, permissions, ceiling, grants, model, directory and prompt.
        The two share their past and go on apart. Of a temporary agent it makes another temporary agent.

        dest_session: Starts with `.` where `src_session` does, and only there.
        upto: The index of the last message that the copy keeps; all when absent. It must not lie between a tool
        call and its results."""
        result: CloneSessionResult = await self._call("clone_session", {
            "src_session": src_session,
            "dest_session": dest_session,
            "upto": upto,
        })
        return result

    async def create_agent(
        self,
        agent_id: Optional[str] = None,
        *,
        preset: Optional[str] = None,
        cwd: Optional[str] = None,
        allowed_write_paths: Optional[List[str]] = None,
        model: Optional[str] = None,
        reasoning: Optional[ReasoningChoice] = None,
        system_prompt: Optional[str] = None,
        disable_tools: Optional[List[str]] = None,
        mcp: Optional[Dict[str, List[str]]] = None,
        parent_agent_id: Optional[str] = None,
        history: Optional[List[PastMessage]] = None,
        initial_message: Optional[str] = None,
        wait_for_initial_response: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
    ) -> CreateAgentResult:
        """Makes an agent. It is on disk when this answers, unless its name starts with `.` (temporary).

        agent_id: Name of the agent; generated when absent. A name that starts with `.` is temporary; `.` alone
        asks for a generated temporary name.
        preset: `sandboxed` (default), `worker`, `trusted`, or one from the configuration.
        cwd: Working directory; the parent's or the server's when absent.
        allowed_write_paths: Where it may write without asking.
        reasoning: What is asked of the model's thinking; as the configuration has it when absent.
        system_prompt: Replaces the layered system prompt.
        disable_tools: Tools to switch off.
        mcp: Tools of MCP servers that it may use, by server, in place of what its preset has: `{"git":
        ["git_status"]}`. `*` stands for all tools of a server, or alone for all servers. No more than its
        parent has.
        parent_agent_id: The agent it belongs to; it can never do more than that one.
        history: What was said before, elsewhere: by turns, the first by the user and the last by the assistant,
        at most 10,000. For temporary agents alone.
        initial_message: Sent to the agent at once; not blank.
        wait_for_initial_response: Answer only when the initial message was answered.
        idempotency_key: Names the call for whoever makes it again: it is carried out once, and its answer given
        again for 10 minutes. At most 255 bytes."""
        result: CreateAgentResult = await self._call("create_agent", {
            "agent_id": agent_id,
            "preset": preset,
            "cwd": cwd,
            "allowed_write_paths": allowed_write_paths,
            "model": model,
            "reasoning": reasoning,
            "system_prompt": system_prompt,
            "disable_tools": disable_tools,
            "mcp": mcp,
            "parent_agent_id": parent_agent_id,
            "history": history,
            "initial_message": initial_message,
            "wait_for_initial_response": wait_for_initial_response,
            "idempotency_key": idempotency_key,
        })
        return result

    async def create_agent_token(self, agent_id: str) -> CreateAgentTokenResult:
        """Returns a token that can act only as this agent, for a program that works on the agent's behalf. It
        is valid until the server stops or the agent is destroyed."""
        result: CreateAgentTokenResult = await self._call("create_agent_token", {"agent_id": agent_id})
        return result

    async def create_key(
        self,
        name: str,
        *,
        methods: Optional[List[str]] = None,
        doors: Optional[List[Door]] = None,
        agent_id: Optional[str] = None,
        preset: Optional[str] = None,
        cwd: Optional[str] = None,
        expires_days: Optional[int] = None,
    ) -> CreateKeyResult:
        """Makes a key for signing requests (`auth`), which may be for some methods or for one agent alone. Its
        secret is told here and never again. The administrator's alone.

        name: What requests call it in `auth.key_id`: 1 to 64 letters, digits, `.`, `_` and `-`.
        methods: The methods it is for: names, or beginnings of names with a `*` behind them; at most 100. All
        when absent.
        doors: Makes a key for these doors instead: a bearer token that is good there, across restarts, and acts
        as an agent.
        agent_id: Calls signed with it have the rights of this agent, and no more. The key ends with it, and
        when it is renamed. A key for doors acts as this agent; when absent, as one that is made for it,
        `door-NAME`.
        preset: Preset of the agent that is made; the default one when absent.
        cwd: Its working directory; the server's when absent.
        expires_days: Days until it ends; 90 when absent."""
        result: CreateKeyResult = await self._call("create_key", {
            "name": name,
            "methods": methods,
            "doors": doors,
            "agent_id": agent_id,
            "preset": preset,
            "cwd": cwd,
            "expires_days": expires_days,
        })
        return result

    async def create_plan(
        self,
        user_request: str,
        *,
        current_state: Optional[CurrentState] = None,
        constraints: Optional[PlanConstraints] = None,
        options: Optional[PlanOptions] = None,
    ) -> CreatePlanResult:
        """Asks the planner for a plan, which is kept for 30 days. What it answers is held to the rules of a
        plan, and asked for again at most twice; one that breaks a rule even then is -32000 with the type
        `PARSE_ERROR`.

        user_request: At most 524,288 bytes, without NUL."""
        result: CreatePlanResult = await self._call("create_plan", {
            "user_request": user_request,
            "current_state": current_state,
            "constraints": constraints,
            "options": options,
        })
        return result

    def create_plan_stream(
        self,
        user_request: str,
        *,
        current_state: Optional[CurrentState] = None,
        constraints: Optional[PlanConstraints] = None,
        options: Optional[PlanOptions] = None,
    ) -> Stream[CreatePlanResult]:
        """`create_plan`, with its text and events as they are made."""
        return self._stream("create_plan", {
            "user_request": user_request,
            "current_state": current_state,
            "constraints": constraints,
            "options": {**(options or {}), "stream": True},
        })

    async def delete_session(self, session_name: str) -> DeleteSessionResult:
        """Removes a session for good. An agent that works on it ends, and its descendants with it; copies keep
        what they share with it."""
        result: DeleteSessionResult = await self._call("delete_session", {"session_name": session_name})
        return result

    async def destroy_agent(self, agent_id: str) -> DestroyAgentResult:
        """Ends an agent and its descendants for good. Allowed to the agent itself, its ancestors and the
        administrator."""
        result: DestroyAgentResult = await self._call("destroy_agent", {"agent_id": agent_id})
        return result

    async def execute_task(
        self,
        task_type: TaskType,
        prompt: str,
        *,
        context: Optional[TaskContext] = None,
        options: Optional[TaskOptions] = None,
    ) -> ExecuteTaskResult:
        """Has a temporary agent carry out a task in a directory, beyond which it sees nothing and in which it
        changes files only with `options.write`. Which files it changed is what differs on disk. With
        `options.stream` what it says arrives in pieces before the response. Takes at most 30 s unless
        `options.timeout_ms` says otherwise.

        prompt: At most 524,288 bytes, without NUL."""
        result: ExecuteTaskResult = await self._call("execute_task", {
            "task_type": task_type,
            "prompt": prompt,
            "context": context,
            "options": options,
        })
        return result

    def execute_task_stream(
        self,
        task_type: TaskType,
        prompt: str,
        *,
        context: Optional[TaskContext] = None,
        options: Optional[TaskOptions] = None,
    ) -> Stream[ExecuteTaskResult]:
        """`execute_task`, with its text and events as they are made."""
        return self._stream("execute_task", {
            "task_type": task_type,
            "prompt": prompt,
            "context": context,
            "options": {**(options or {}), "stream": True},
        })

    async def get_agent_summaries(
        self,
        *,
        include_tokens: Optional[bool] = None,
        include_context: Optional[bool] = None,
    ) -> GetAgentSummariesResult:
        """Returns a short account of each agent the caller may see.

        include_tokens: Count the tokens of each agent that is in memory; false when absent.
        include_context: Changes nothing: what it asks for is always there."""
        result: GetAgentSummariesResult = await self._call("get_agent_summaries", {
            "include_tokens": include_tokens,
            "include_context": include_context,
        })
        return result

    async def get_context_state(self) -> GetContextStateResult:
        """Returns the context that planners and executors are given, all of one version. The administrator's
        alone."""
        result: GetContextStateResult = await self._call("get_context_state", {})
        return result

    async def get_metrics(self) -> GetMetricsResult:
        """Returns what the server has counted and measured since it started: the figures that it also serves to
        Prometheus. For the administrator."""
        result: GetMetricsResult = await self._call("get_metrics", {})
        return result

    async def get_plan(self, plan_id: str) -> PlanStanding:
        """A plan, and how far it got."""
        result: PlanStanding = await self._call("get_plan", {"plan_id": plan_id})
        return result

    async def get_usage(
        self,
        *,
        agent_id: Optional[str] = None,
        tree: Optional[bool] = None,
        by: Optional[UsageBy] = None,
        since: Optional[str] = None,
    ) -> GetUsageResult:
        """Returns what model calls used and cost: of one agent, of its whole tree, or (to the administrator) of
        all agents.

        agent_id: All agents when absent, which only the administrator may ask for.
        tree: Its descendants too, those that are gone included; false when absent.
        by: Rows by this, the dearest first. By `model` and `day`, agents that are gone are left out.
        since: Only since this moment, ISO 8601; agents that are gone are then left out."""
        result: GetUsageResult = await self._call("get_usage", {
            "agent_id": agent_id,
            "tree": tree,
            "by": by,
            "since": since,
        })
        return result

    async def list_agents(
        self,
        *,
        after: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> ListAgentsResult:
        """Lists the agents the caller may see, those of earlier runs included: permanent ones in the order in
        which they were made, then temporary ones.

        after: Only those behind this agent: the last of the page before.
        limit: Most agents to return, all when absent."""
        result: ListAgentsResult = await self._call("list_agents", {"after": after, "limit": limit})
        return result

    async def list_approvals(
        self,
        *,
        agent_id: Optional[str] = None,
        include_decided: Optional[bool] = None,
    ) -> ListApprovalsResult:
        """Lists what waits for a person's leave, oldest first.

        agent_id: Only this agent's.
        include_decided: Those that were decided too."""
        result: ListApprovalsResult = await self._call("list_approvals", {
            "agent_id": agent_id,
            "include_decided": include_decided,
        })
        return result

    async def list_keys(self) -> ListKeysResult:
        """Returns the keys for signing, without their secrets. The administrator's alone."""
        result: ListKeysResult = await self._call("list_keys", {})
        return result

    async def list_models(
        self,
        *,
        provider: Optional[str] = None,
        all: Optional[bool] = None,
        offset: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> ListModelsResult:
        """Lists the models that agents can have, those that the configuration names first, and says of each
        figure where it comes from. A model that is not listed can be asked for all the same, as `provider/id`.

        provider: Those of this provider alone, by its name in the configuration.
        all: Also those that the providers have beside the configured ones, as far as they are known; false when
        absent.
        offset: How many to leave out from the start, 0 when absent.
        limit: Most models to return, 100 when absent."""
        result: ListModelsResult = await self._call("list_models", {
            "provider": provider,
            "all": all,
            "offset": offset,
            "limit": limit,
        })
        return result

    async def list_plans(self, *, limit: Optional[int] = None, after: Optional[str] = None) -> ListPlansResult:
        """Plans, those touched last first.

        limit: 100 when absent.
        after: Only those behind this one, as the last page ended."""
        result: ListPlansResult = await self._call("list_plans", {"limit": limit, "after": after})
        return result

    async def list_presets(self) -> ListPresetsResult:
        """Lists the presets that agents can be given."""
        result: ListPresetsResult = await self._call("list_presets", {})
        return result

    async def list_sessions(
        self,
        *,
        offset: Optional[int] = None,
        limit: Optional[int] = None,
        include_temp: Optional[bool] = None,
    ) -> ListSessionsResult:
        """Lists sessions, the most recently changed first: every permanent agent and every saved session that
        the caller may see. With `include_temp` the live temporary agents come before them.

        offset: How many to leave out from the start, 0 when absent.
        limit: Most sessions to return, 50 when absent."""
        result: ListSessionsResult = await self._call("list_sessions", {
            "offset": offset,
            "limit": limit,
            "include_temp": include_temp,
        })
        return result

    async def load_session(
        self,
        session_name: str,
        *,
        agent_id: Optional[str] = None,
        preset: Optional[str] = None,
        model: Optional[str] = None,
    ) -> LoadSessionResult:
        """Makes an agent of a session, with all it had. Under another name than the session's the agent is a
        copy and the session stays. Refused when an agent of that name is live; a preset above the session's
        ceiling is refused.

        agent_id: Name of the agent; the session's own when absent. One that starts with `.` is temporary.
        preset: Replaces the session's permissions.
        model: Replaces the session's model."""
        result: LoadSessionResult = await self._call("load_session", {
            "session_name": session_name,
            "agent_id": agent_id,
            "preset": preset,
            "model": model,
        })
        return result

    async def memory_add(
        self,
        content: str,
        *,
        source: Optional[str] = None,
        expires_days: Optional[float] = None,
        subjects: Optional[List[str]] = None,
        shared: Optional[bool] = None,
        user_id: Optional[str] = None,
        chat_id: Optional[str] = None,
        context_token: Optional[str] = None,
    ) -> MemoryEntry:
        """Remembers something: for a chat (`shared`), for a user, or for everybody when neither is named. It is
        on disk when this answers. The same text in the same scope is renewed instead of kept twice; what it
        contradicts (the same subject, nearly the same words) is hidden.

        content: At most 65,536 bytes.
        source: Who told it; `rpc` when absent.
        expires_days: More than 0 and at most 36,500; it stays when absent.
        subjects: People and things it is about, at most 32.
        shared: For all of the chat; needs `chat_id`.
        user_id: Nothing when absent, null or empty, as `chat_id`.
        context_token: Signed by the host; says who calls, in place of `user_id` and `chat_id`, in this call and
        in those that follow on the connection."""
        result: MemoryEntry = await self._call("memory.add", {
            "content": content,
            "source": source,
            "expires_days": expires_days,
            "subjects": subjects,
            "shared": shared,
            "user_id": user_id,
            "chat_id": chat_id,
            "context_token": context_token,
        })
        return result

    async def memory_delete(
        self,
        memory_id: str,
        *,
        user_id: Optional[str] = None,
        chat_id: Optional[str] = None,
        context_token: Optional[str] = None,
    ) -> MemoryDeleteResult:
        """Removes a memory that the caller sees, and what it took the place of.

        memory_id: The whole id, or the beginning of it: at least 8 digits that no other memory's id begins
        with."""
        result: MemoryDeleteResult = await self._call("memory.delete", {
            "memory_id": memory_id,
            "user_id": user_id,
            "chat_id": chat_id,
            "context_token": context_token,
        })
        return result

    async def memory_list(
        self,
        *,
        limit: Optional[int] = None,
        include_expired: Optional[bool] = None,
        user_id: Optional[str] = None,
        chat_id: Optional[str] = None,
        context_token: Optional[str] = None,
    ) -> List[ListedMemory]:
        """Lists what is the user's, the chat's, and everybody's, the newest first; fewer than asked for when
        more would not fit into an answer.

        limit: 20 when absent.
        include_expired: Shows what expired within the last day as well."""
        result: List[ListedMemory] = await self._call("memory.list", {
            "limit": limit,
            "include_expired": include_expired,
            "user_id": user_id,
            "chat_id": chat_id,
            "context_token": context_token,
        })
        return result

    async def memory_search(
        self,
        query: str,
        *,
        limit: Optional[int] = None,
        user_id: Optional[str] = None,
        chat_id: Optional[str] = None,
        context_token: Optional[str] = None,
    ) -> List[FoundMemory]:
        """Finds what has to do with a query, the best first: what is the user's, the chat's, and everybody's.

        query: At most 65,536 bytes.
        limit: 10 when absent."""
        result: List[FoundMemory] = await self._call("memory.search", {
            "query": query,
            "limit": limit,
            "user_id": user_id,
            "chat_id": chat_id,
            "context_token": context_token,
        })
        return result

    async def rename_session(self, old_name: str, new_name: str) -> RenameSessionResult:
        """Gives a session another name. A live agent follows it, running turns included; tokens made for the
        old name end."""
        result: RenameSessionResult = await self._call("rename_session", {
            "old_name": old_name,
            "new_name": new_name,
        })
        return result

    async def respond_approval(
        self,
        approval_id: str,
        decision: ApprovalDecision,
        *,
        message: Optional[str] = None,
        content: Optional[Dict[str, Any]] = None,
        scope: Optional[ApprovalScope] = None,
    ) -> RespondApprovalResult:
        """Answers an approval. Allowed to the administrator and to the agent's ancestors, not to the agent
        itself. A request for leave is answered by `allow_once`, `allow_session` or `deny`, a question of an MCP
        server by `accept`, `decline` or `cancel`.

        message: With `deny` only: what the model is told beside it. At most 2,000 characters, and not blank.
        content: With `accept` only: what stands in the form. What is left out of it has the default that its
        schema gives.
        scope: With `allow_session` only: what is allowed; `tool` when absent. `server` is for approvals whose
        `grant` is a tool of an MCP server."""
        result: RespondApprovalResult = await self._call("respond_approval", {
            "approval_id": approval_id,
            "decision": decision,
            "message": message,
            "content": content,
            "scope": scope,
        })
        return result

    async def revoke_key(self, name: str) -> RevokeKeyResult:
        """Ends a key: what is signed with it is refused from now on, on connections that are open too. The
        administrator's alone."""
        result: RevokeKeyResult = await self._call("revoke_key", {"name": name})
        return result

    async def rpc_discover(self) -> Any:
        """Returns the OpenRPC document of this interface."""
        result: Any = await self._call("rpc.discover", {})
        return result

    async def rpc_version(self) -> VersionResult:
        """Returns the server's name, version, protocol revision and features."""
        result: VersionResult = await self._call("rpc.version", {})
        return result

    async def run_plan(
        self,
        *,
        plan: Optional[PlanEntry] = None,
        plan_id: Optional[str] = None,
        context: Optional[TaskContext] = None,
        options: Optional[RunOptions] = None,
    ) -> RunPlanResult:
        """Runs what is not done of a plan: a task begins when those it depends on are done, independent ones
        run side by side. How far each got is on disk: after a crash the same `plan_id` goes on with what is not
        done. With `options.stream` what becomes of each task arrives as `stream_event` before the response.

        plan: This or `plan_id`.
        context: For every task, as `execute_task` has it."""
        result: RunPlanResult = await self._call("run_plan", {
            "plan": plan,
            "plan_id": plan_id,
            "context": context,
            "options": options,
        })
        return result

    def run_plan_stream(
        self,
        *,
        plan: Optional[PlanEntry] = None,
        plan_id: Optional[str] = None,
        context: Optional[TaskContext] = None,
        options: Optional[RunOptions] = None,
    ) -> Stream[RunPlanResult]:
        """`run_plan`, with its text and events as they are made."""
        return self._stream("run_plan", {
            "plan": plan,
            "plan_id": plan_id,
            "context": context,
            "options": {**(options or {}), "stream": True},
        })

    async def save_session(self, agent_id: str, session_name: str) -> SaveSessionResult:
        """Saves an agent under a name. A temporary agent becomes permanent under it; of a permanent one it
        makes a saved copy, which a later save of the same agent replaces; under the agent's own name the
        session stays when the agent is destroyed."""
        result: SaveSessionResult = await self._call("save_session", {
            "agent_id": agent_id,
            "session_name": session_name,
        })
        return result

    async def server_info(self) -> ServerInfoResult:
        """Returns which process this is, where it works and how it is reached, and what it is busy with. The
        administrator's alone."""
        result: ServerInfoResult = await self._call("server_info", {})
        return result

    async def shutdown_server(self) -> ShutdownServerResult:
        """Stops the server. Running turns get a grace period and are then cancelled; everything is on disk
        before it exits."""
        result: ShutdownServerResult = await self._call("shutdown_server", {})
        return result

    async def unload_agent(self, agent_id: str) -> UnloadAgentResult:
        """Lets an agent and its descendants out of memory and gives them free: another process of this home can
        take them up. The next call restores them. Who works or is temporary stays, and so does everybody
        above."""
        result: UnloadAgentResult = await self._call("unload_agent", {"agent_id": agent_id})
        return result

    async def unwatch(self, watch_id: str) -> UnwatchResult:
        """Ends a watch of the caller's, or any as the administrator. It answers then, to whoever opened it."""
        result: UnwatchResult = await self._call("unwatch", {"watch_id": watch_id})
        return result

    async def update_context(
        self,
        action: ContextAction,
        context_type: ContextType,
        data: Dict[str, Any],
        *,
        if_version: Optional[int] = None,
    ) -> UpdateContextResult:
        """Changes the context that planners and executors are given. It is on disk when this answers. The
        administrator's alone.

        action: `add` puts an entry, in place of one with the same key; `modify` needs that one to be there, and
        is a merge patch (RFC 7396) of state; `remove` changes nothing where there is none.
        data: Named by `path` (a file, relative to the directory in which tasks work), `name` (a dependency) or
        `key` (state, with its `value`). What else a file or a dependency has is kept with it. At most 65,536
        bytes an entry, 1,000 entries and 1,048,576 bytes in all, 32 levels deep.
        if_version: Changes nothing and is refused unless the context has this version."""
        result: UpdateContextResult = await self._call("update_context", {
            "action": action,
            "context_type": context_type,
            "data": data,
            "if_version": if_version,
        })
        return result

    async def validate_code(
        self,
        code: str,
        language: str,
        *,
        rules: Optional[List[str]] = None,
        options: Optional[ValidateCodeOptions] = None,
    ) -> ValidateCodeResult:
        """Parses code and checks it by rules of a linter. The code is never run. Code that cannot be read is no
        error of the call but a diagnostic of the rule `syntax`.

        code: At most 2,097,152 bytes, without NUL.
        language: `javascript`, `typescript`, `jsx`, `tsx`, `python`, `rust`, `go`, `java`, `c`, `cpp`, `bash`,
        `json`, `yaml`, `toml`, `html`, `css`, `sql`, or another name of one of these, such as `js` or `c++`.
        rules: Rules of the language's linter by their own names, at most 256 of at most 128 bytes, or
        `recommended`; the syntax alone when absent."""
        result: ValidateCodeResult = await self._call("validate_code", {
            "code": code,
            "language": language,
            "rules": rules,
            "options": options,
        })
        return result

    def watch(
        self,
        agents: Optional[List[str]] = None,
        *,
        descendants: Optional[bool] = None,
        deltas: Optional[bool] = None,
        after: Optional[Dict[str, int]] = None,
        approver: Optional[bool] = None,
        name: Optional[str] = None,
    ) -> Watch:
        """Tells all that happens to agents, by notifications `watch_event`: first how things stand
        (`snapshot`), then each event as it comes. The call stays open until the caller hangs up, which ends the
        watch and nothing else, or until `unwatch`; its answer comes last. Over HTTP it needs `Accept:
        text/event-stream`. On the Unix socket it has its connection for itself. It cannot stand in a batch.

        agents: These; all that the caller may read when absent, later ones included.
        descendants: With `agents`: those that descend from them, too, later ones included; false when absent.
        deltas: Text, thoughts and what commands print as they come; true when absent. False: states and whole
        messages only.
        after: For an agent, the index of the last message that the client has, -1 for none: what it has missed
        is sent after `snapshot`, before anything else of it.
        approver: This client shows approvals to a person, which is the administrator's to say; false when
        absent. While one is there, a server with `approvals: auto` asks.
        name: What other watchers see, as `pts/3`; at most 64 characters, none of them a control character."""
        return self._watch({
            "agents": agents,
            "descendants": descendants,
            "deltas": deltas,
            "after": after,
            "approver": approver,
            "name": name,
        })


class AgentMethods:
    """The methods of an agent."""

    async def _call(self, method: str, params: Dict[str, Any]) -> Any:
        raise NotImplementedError

    def _stream(self, method: str, params: Dict[str, Any]) -> Stream[Any]:
        raise NotImplementedError

    async def cancel(self, request_id: RequestId) -> CancelResult:
        """Cancels a turn that runs or waits. The turn's own call answers with what had been generated."""
        result: CancelResult = await self._call("cancel", {"request_id": request_id})
        return result

    async def compact(self, *, force: Optional[bool] = None) -> CompactResult:
        """Summarises the older part of the conversation so that the context gets shorter. The history itself is
        kept.

        force: Compact even when the context is not near its limit; true when absent."""
        result: CompactResult = await self._call("compact", {"force": force})
        return result

    async def explain_permission(self, tool: str, *, arguments: Any = None) -> ExplainPermissionResult:
        """Says whether a tool call would be let through, without making it, and if not which rule refuses it.

        arguments: The tool's arguments; an empty object when absent."""
        result: ExplainPermissionResult = await self._call("explain_permission", {
            "tool": tool,
            "arguments": arguments,
        })
        return result

    async def get_context(self) -> GetContextResult:
        """Returns the state of the agent's context."""
        result: GetContextResult = await self._call("get_context", {})
        return result

    async def get_messages(
        self,
        *,
        offset: Optional[int] = None,
        from_end: Optional[bool] = None,
        limit: Optional[int] = None,
        include_reasoning: Optional[bool] = None,
    ) -> GetMessagesResult:
        """Returns a page of the conversation, oldest first. It ends before its `limit` where its messages would
        be larger than 4 MiB together, but holds one at least: the next page begins at `offset` and the number
        of messages on this. With `from_end` it begins later for the same reason, and holds the last one.

        offset: Index of the first message, 0 when absent. With `from_end`: how many messages at the end to
        leave out.
        from_end: The last messages instead of the first, still oldest first; false when absent. The result's
        `offset` is the index of the first of them.
        limit: Most messages to return, 200 when absent.
        include_reasoning: Show what the model thought, too; false when absent."""
        result: GetMessagesResult = await self._call("get_messages", {
            "offset": offset,
            "from_end": from_end,
            "limit": limit,
            "include_reasoning": include_reasoning,
        })
        return result

    async def get_model(self) -> GetModelResult:
        """Returns the model that the agent's next turn asks."""
        result: GetModelResult = await self._call("get_model", {})
        return result

    async def get_permissions(self) -> GetPermissionsResult:
        """Returns what the agent may do, what was granted to it, and how its commands are confined."""
        result: GetPermissionsResult = await self._call("get_permissions", {})
        return result

    async def get_system_prompt(self) -> GetSystemPromptResult:
        """Returns the prompt that the agent's next turn begins with."""
        result: GetSystemPromptResult = await self._call("get_system_prompt", {})
        return result

    async def get_tokens(self) -> GetTokensResult:
        """Counts the tokens of the agent's context."""
        result: GetTokensResult = await self._call("get_tokens", {})
        return result

    async def list_tools(self) -> ListToolsResult:
        """Lists the tools of this server, and of each whether the agent may have any use of it."""
        result: ListToolsResult = await self._call("list_tools", {})
        return result

    async def mcp_connect(
        self,
        *,
        server: Optional[str] = None,
        config: Optional[Dict[str, Any]] = None,
        source: Optional[McpSource] = None,
        shared: Optional[bool] = None,
        wait_ms: Optional[int] = None,
    ) -> McpConnectResult:
        """Starts an MCP server that the agent may use, unless it runs, and waits until it is ready. Allowed to
        the administrator and to the agent's ancestors. A server starts by itself with the first call of one of
        its tools. With `config`, which only the administrator may give, the agent is connected to a server that
        is in no configuration and is its own from then on.

        server: One of those that `mcp_list_servers` lists.
        config: Instead: the entry of a server as it stands in `mcp_servers`, with its `name`. Values of `env`
        and `headers` are never returned, and not kept over a restart unless they name variables (`${TOKEN}`).
        source: With `config`: `agent` when absent. `client` is for what a client of the agent brings along: it
        is not kept, and has no network.
        shared: False: the process is this agent's own, though the server's entry says otherwise. Absent: as the
        entry says.
        wait_ms: How long to wait until it is ready; 30000 when absent."""
        result: McpConnectResult = await self._call("mcp_connect", {
            "server": server,
            "config": config,
            "source": source,
            "shared": shared,
            "wait_ms": wait_ms,
        })
        return result

    async def mcp_disconnect(self, server: str) -> McpDisconnectResult:
        """Says that the agent has no more use for an MCP server, which ends with the last agent that used it,
        with all that it started. It starts again when it is needed; one that the agent was connected to with
        `config` is gone. Allowed to the administrator and to the agent's ancestors."""
        result: McpDisconnectResult = await self._call("mcp_disconnect", {"server": server})
        return result

    async def mcp_get_prompt(
        self,
        server: str,
        name: str,
        *,
        arguments: Optional[Dict[str, Any]] = None,
    ) -> McpGetPromptResult:
        """Returns a prompt of an MCP server, filled in. Allowed to the administrator and to the agent's
        ancestors."""
        result: McpGetPromptResult = await self._call("mcp_get_prompt", {
            "server": server,
            "name": name,
            "arguments": arguments,
        })
        return result

    async def mcp_list_servers(self, *, include_tools: Optional[bool] = None) -> McpListServersResult:
        """Lists the MCP servers of the configuration and those that the agent was connected to alone, and of
        each whether the agent may use any of its tools. An agent is told of those that it may use.

        include_tools: With the names of the tools."""
        result: McpListServersResult = await self._call("mcp_list_servers", {"include_tools": include_tools})
        return result

    async def mcp_prompts(self, *, server: Optional[str] = None) -> McpPromptsResult:
        """Lists the prompts of an MCP server, which is started if it does not run; without one, of all that
        run. Allowed to the administrator and to the agent's ancestors."""
        result: McpPromptsResult = await self._call("mcp_prompts", {"server": server})
        return result

    async def mcp_read_resource(self, server: str, uri: str) -> McpReadResourceResult:
        """Returns what a resource of an MCP server holds. Allowed to the administrator and to the agent's
        ancestors; the agent has the tool `mcp_read`."""
        result: McpReadResourceResult = await self._call("mcp_read_resource", {"server": server, "uri": uri})
        return result

    async def mcp_resources(
        self,
        *,
        server: Optional[str] = None,
        cursor: Optional[str] = None,
    ) -> McpResourcesResult:
        """Lists the resources of an MCP server, which is started if it does not run; without one, the first
        page of each that runs. Allowed to the administrator and to the agent's ancestors.

        cursor: Of `next_cursor`, for the next page of that server."""
        result: McpResourcesResult = await self._call("mcp_resources", {"server": server, "cursor": cursor})
        return result

    async def mcp_review(self, server: str, accept: McpAccept) -> McpReviewResult:
        """Accepts tools of an MCP server as they are now: those that `mcp_status` shows as quarantined, because
        they are new or say something else of themselves than when they were first listed. Only the
        administrator may."""
        result: McpReviewResult = await self._call("mcp_review", {"server": server, "accept": accept})
        return result

    async def mcp_status(self, *, server: Optional[str] = None) -> McpStatusResult:
        """Returns how MCP servers stand: one, or all that `mcp_list_servers` lists.

        server: Only this one."""
        result: McpStatusResult = await self._call("mcp_status", {"server": server})
        return result

    async def resume_turn(
        self,
        *,
        request_id: Optional[RequestId] = None,
        response_schema: Optional[Dict[str, Any]] = None,
        timeout_ms: Optional[int] = None,
    ) -> SendResult:
        """Goes on with the turn that was cut off last, by a restart, a cancel, its iteration limit or a
        provider that failed, from its last finished step. A tool call whose effect is not known is not run
        again; the model is told so. Answers as `send`.

        request_id: The turn that is expected to be unfinished, as `get_context` names it. Another is not
        resumed.
        response_schema: JSON Schema of the answer, as for `send`: it is not kept with the turn.
        timeout_ms: Cancels the turn and answers -32000 when it takes longer."""
        result: SendResult = await self._call("resume_turn", {
            "request_id": request_id,
            "response_schema": response_schema,
            "timeout_ms": timeout_ms,
        })
        return result

    def resume_turn_stream(
        self,
        *,
        request_id: Optional[RequestId] = None,
        response_schema: Optional[Dict[str, Any]] = None,
        timeout_ms: Optional[int] = None,
    ) -> Stream[SendResult]:
        """`resume_turn`, with its text and events as they are made."""
        return self._stream("resume_turn", {
            "request_id": request_id,
            "response_schema": response_schema,
            "timeout_ms": timeout_ms,
            "stream": True,
        })

    async def send(
        self,
        content: Content,
        request_id: Optional[RequestId] = None,
        *,
        source: Optional[str] = None,
        source_agent_id: Optional[str] = None,
        response_schema: Optional[Dict[str, Any]] = None,
        max_output_tokens: Optional[int] = None,
        timeout_ms: Optional[int] = None,
        idempotency_key: Optional[str] = None,
        approvals: Optional[TurnApprovals] = None,
    ) -> SendResult:
        """Sends a message to the agent and returns its answer. Turns of one agent run one after another. With
        `stream: true` (over HTTP also `Accept: text/event-stream`) the answer arrives in pieces before the
        response.

        content: What is said: a text that is not blank, or parts, with at most 20 images and files among them.
        request_id: Names the turn for `cancel`; generated when absent. Refused while a turn of this name is in
        flight.
        source: Where the message comes from, for the history.
        response_schema: JSON Schema of the answer: `content` is then JSON that satisfies it.
        max_output_tokens: The most tokens of one answer. One that is cut by it is answered as it is, with the
        stop reason `max_tokens`.
        timeout_ms: Cancels the turn and answers -32000 when it takes longer.
        idempotency_key: Names the call for whoever makes it again: it is carried out once, and its answer given
        again for 10 minutes. At most 255 bytes. With it, who hangs up does not cancel the turn.
        approvals: `ask`: somebody is there who answers `list_approvals`, so what needs leave is asked for
        whatever `permissions.approvals` says, in this turn and in the turns of other agents that it waits for.
        Administrator only, with `stream` and without `idempotency_key`: who hangs up takes the turn along."""
        result: SendResult = await self._call("send", {
            "content": content,
            "request_id": request_id,
            "source": source,
            "source_agent_id": source_agent_id,
            "response_schema": response_schema,
            "max_output_tokens": max_output_tokens,
            "timeout_ms": timeout_ms,
            "idempotency_key": idempotency_key,
            "approvals": approvals,
        })
        return result

    def send_stream(
        self,
        content: Content,
        request_id: Optional[RequestId] = None,
        *,
        source: Optional[str] = None,
        source_agent_id: Optional[str] = None,
        response_schema: Optional[Dict[str, Any]] = None,
        max_output_tokens: Optional[int] = None,
        timeout_ms: Optional[int] = None,
        idempotency_key: Optional[str] = None,
        approvals: Optional[TurnApprovals] = None,
    ) -> Stream[SendResult]:
        """`send`, with its text and events as they are made."""
        return self._stream("send", {
            "content": content,
            "request_id": request_id,
            "source": source,
            "source_agent_id": source_agent_id,
            "response_schema": response_schema,
            "max_output_tokens": max_output_tokens,
            "timeout_ms": timeout_ms,
            "idempotency_key": idempotency_key,
            "approvals": approvals,
            "stream": True,
        })

    async def set_cwd(self, cwd: str, *, additional_directories: Optional[List[str]] = None) -> SetCwdResult:
        """Lets the agent work in another directory. Where it may read and write follows, and so does its
        prompt. Refused outside its ceiling, and to the agent itself outside of what it may already use.

        cwd: An existing directory; a relative path starts at the agent's present one.
        additional_directories: Existing directories beside that, at most 64, which the agent may read and,
        where it writes in its own without asking, write. They take the place of those that it had; absent: it
        keeps them. A relative path starts at `cwd`."""
        result: SetCwdResult = await self._call("set_cwd", {
            "cwd": cwd,
            "additional_directories": additional_directories,
        })
        return result

    async def set_model(self, model: str, *, reasoning: Optional[ReasoningChoice] = None) -> SetModelResult:
        """Gives the agent another model, from its next turn on. One whose window is too small for the
        conversation is refused.

        model: An alias, or `provider/model-id`.
        reasoning: What is asked of its thinking; as the configuration has it when absent."""
        result: SetModelResult = await self._call("set_model", {"model": model, "reasoning": reasoning})
        return result

    async def set_permissions(
        self,
        *,
        preset: Optional[str] = None,
        disable_tools: Optional[List[str]] = None,
        enable_tools: Optional[List[str]] = None,
    ) -> SetPermissionsResult:
        """Changes what the agent may do, never above its ceiling. Takes back what was granted before."""
        result: SetPermissionsResult = await self._call("set_permissions", {
            "preset": preset,
            "disable_tools": disable_tools,
            "enable_tools": enable_tools,
        })
        return result

    async def set_system_prompt(self, system_prompt: str) -> SetSystemPromptResult:
        """Replaces the agent's system prompt, from its next turn on."""
        result: SetSystemPromptResult = await self._call("set_system_prompt", {"system_prompt": system_prompt})
        return result

    async def shutdown(self) -> ShutdownResult:
        """Marks the agent as done; when the administrator has marked the last of all agents, the server stops.
        At server scope without `agent_id` it stops the server, which is the administrator's to do."""
        result: ShutdownResult = await self._call("shutdown", {})
        return result
