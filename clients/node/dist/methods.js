/** The methods and their types. Generated from the OpenRPC document by scripts/generate.mjs. */
import { Caller } from "./caller.js";
/** The methods that can stream, and whether `stream` stands in their `params` or in the `options` there. */
export const STREAM_MEMBER = {
    create_plan: "options",
    execute_task: "options",
    resume_turn: "params",
    run_plan: "options",
    send: "params",
};
/** The methods of agent scope. */
export class AgentMethods extends Caller {
    /** Summarises the older part of the conversation so that the context gets shorter. The history itself is kept. */
    compact(params, options) {
        return this.invoke("compact", params, options);
    }
    /** Says whether a tool call would be let through, without making it, and if not which rule refuses it. */
    explainPermission(params, options) {
        return this.invoke("explain_permission", params, options);
    }
    /** Returns the state of the agent's context. */
    getContext(params, options) {
        return this.invoke("get_context", params, options);
    }
    /**
     * Returns a page of the conversation, oldest first. It ends before its `limit` where its messages would be larger
     * than 4 MiB together, but holds one at least: the next page begins at `offset` and the number of messages on this.
     * With `from_end` it begins later for the same reason, and holds the last one.
     */
    getMessages(params, options) {
        return this.invoke("get_messages", params, options);
    }
    /** Returns the model that the agent's next turn asks. */
    getModel(params, options) {
        return this.invoke("get_model", params, options);
    }
    /** Returns what the agent may do, what was granted to it, and how its commands are confined. */
    getPermissions(params, options) {
        return this.invoke("get_permissions", params, options);
    }
    /** Returns the prompt that the agent's next turn begins with. */
    getSystemPrompt(params, options) {
        return this.invoke("get_system_prompt", params, options);
    }
    /** Counts the tokens of the agent's context. */
    getTokens(params, options) {
        return this.invoke("get_tokens", params, options);
    }
    /** Lists the tools of this server, and of each whether the agent may have any use of it. */
    listTools(params, options) {
        return this.invoke("list_tools", params, options);
    }
    /**
     * Starts an MCP server that the agent may use, unless it runs, and waits until it is ready. Allowed to the
     * administrator and to the agent's ancestors. A server starts by itself with the first call of one of its tools.
     *
     * With `config`, which only the administrator may give, the agent is connected to a server that is in no configuration
     * and is its own from then on.
     */
    mcpConnect(params, options) {
        return this.invoke("mcp_connect", params, options);
    }
    /**
     * Says that the agent has no more use for an MCP server, which ends with the last agent that used it, with all that
     * it started. It starts again when it is needed; one that the agent was connected to with `config` is gone. Allowed to the administrator and to the agent's ancestors.
     */
    mcpDisconnect(params, options) {
        return this.invoke("mcp_disconnect", params, options);
    }
    /** Returns a prompt of an MCP server, filled in. Allowed to the administrator and to the agent's ancestors. */
    mcpGetPrompt(params, options) {
        return this.invoke("mcp_get_prompt", params, options);
    }
    /**
     * Lists the MCP servers of the configuration and those that the agent was connected to alone, and of each whether the
     * agent may use any of its tools. An agent is told of those that it may use.
     */
    mcpListServers(params, options) {
        return this.invoke("mcp_list_servers", params, options);
    }
    /**
     * Lists the prompts of an MCP server, which is started if it does not run; without one, of all that run. Allowed to the
     * administrator and to the agent's ancestors.
     */
    mcpPrompts(params, options) {
        return this.invoke("mcp_prompts", params, options);
    }
    /**
     * Returns what a resource of an MCP server holds. Allowed to the administrator and to the agent's ancestors; the agent
     * has the tool `mcp_read`.
     */
    mcpReadResource(params, options) {
        return this.invoke("mcp_read_resource", params, options);
    }
    /**
     * Lists the resources of an MCP server, which is started if it does not run; without one, the first page of each that
     * runs. Allowed to the administrator and to the agent's ancestors.
     */
    mcpResources(params, options) {
        return this.invoke("mcp_resources", params, options);
    }
    /**
     * Accepts tools of an MCP server as they are now: those that `mcp_status` shows as quarantined, because they are new or
     * say something else of themselves than when they were first listed. Only the administrator may.
     */
    mcpReview(params, options) {
        return this.invoke("mcp_review", params, options);
    }
    /** Returns how MCP servers stand: one, or all that `mcp_list_servers` lists. */
    mcpStatus(params, options) {
        return this.invoke("mcp_status", params, options);
    }
    /**
     * Goes on with the turn that was cut off last, by a restart, a cancel, its iteration limit or a provider that
     * failed, from its last finished step. A tool call whose effect is not known is not run again; the model is told
     * so. Answers as `send`.
     */
    resumeTurn(params, options) {
        return this.invoke("resume_turn", params, options);
    }
    /**
     * Lets the agent work in another directory. Where it may read and write follows, and so does its prompt. Refused
     * outside its ceiling, and to the agent itself outside of what it may already use.
     */
    setCwd(params, options) {
        return this.invoke("set_cwd", params, options);
    }
    /**
     * Gives the agent another model, from its next turn on. One whose window is too small for the conversation is
     * refused.
     */
    setModel(params, options) {
        return this.invoke("set_model", params, options);
    }
    /** Changes what the agent may do, never above its ceiling. Takes back what was granted before. */
    setPermissions(params, options) {
        return this.invoke("set_permissions", params, options);
    }
    /** Replaces the agent's system prompt, from its next turn on. */
    setSystemPrompt(params, options) {
        return this.invoke("set_system_prompt", params, options);
    }
    /**
     * Marks the agent as done; when the administrator has marked the last of all agents, the server stops. At server
     * scope without `agent_id` it stops the server, which is the administrator's to do.
     */
    shutdown(params, options) {
        return this.invoke("shutdown", params, options);
    }
}
/** The methods of server scope. */
export class ServerMethods extends AgentMethods {
    /** Ends the run of a plan: what runs is cancelled, and what is done stays done. */
    cancelPlan(params, options) {
        return this.invoke("cancel_plan", params, options);
    }
    /**
     * Makes a saved copy of a session: messages, permissions, ceiling, grants, model, directory and prompt. The two
     * share their past and go on apart. Of a temporary agent it makes another temporary agent.
     */
    cloneSession(params, options) {
        return this.invoke("clone_session", params, options);
    }
    /** Makes an agent. It is on disk when this answers, unless its name starts with `.` (temporary). */
    createAgent(params, options) {
        return this.invoke("create_agent", params, options);
    }
    /**
     * Returns a token that can act only as this agent, for a program that works on the agent's behalf. It is valid
     * until the server stops or the agent is destroyed.
     */
    createAgentToken(params, options) {
        return this.invoke("create_agent_token", params, options);
    }
    /**
     * Makes a key for signing requests (`auth`), which may be for some methods or for one agent alone. Its secret is
     * told here and never again. The administrator's alone.
     */
    createKey(params, options) {
        return this.invoke("create_key", params, options);
    }
    /**
     * Asks the planner for a plan, which is kept for 30 days. What it answers is held to the rules of a plan, and asked for
     * again at most twice; one that breaks a rule even then is -32000 with the type `PARSE_ERROR`.
     */
    createPlan(params, options) {
        return this.invoke("create_plan", params, options);
    }
    /**
     * Removes a session for good. An agent that works on it ends, and its descendants with it; copies keep what they
     * share with it.
     */
    deleteSession(params, options) {
        return this.invoke("delete_session", params, options);
    }
    /** Ends an agent and its descendants for good. Allowed to the agent itself, its ancestors and the administrator. */
    destroyAgent(params, options) {
        return this.invoke("destroy_agent", params, options);
    }
    /**
     * Has a temporary agent carry out a task in a directory, beyond which it sees nothing and in which it changes files
     * only with `options.write`. Which files it changed is what differs on disk. With `options.stream` what it says
     * arrives in pieces before the response. Takes at most 30 s unless `options.timeout_ms` says otherwise.
     */
    executeTask(params, options) {
        return this.invoke("execute_task", params, options);
    }
    /** Returns a short account of each agent the caller may see. */
    getAgentSummaries(params, options) {
        return this.invoke("get_agent_summaries", params, options);
    }
    /** Returns the context that planners and executors are given, all of one version. The administrator's alone. */
    getContextState(params, options) {
        return this.invoke("get_context_state", params, options);
    }
    /**
     * Returns what the server has counted and measured since it started: the figures that it also serves to Prometheus. For
     * the administrator.
     */
    getMetrics(params, options) {
        return this.invoke("get_metrics", params, options);
    }
    /** A plan, and how far it got. */
    getPlan(params, options) {
        return this.invoke("get_plan", params, options);
    }
    /** Returns what model calls used and cost: of one agent, of its whole tree, or (to the administrator) of all agents. */
    getUsage(params, options) {
        return this.invoke("get_usage", params, options);
    }
    /**
     * Lists the agents the caller may see, those of earlier runs included: permanent ones in the order in which they
     * were made, then temporary ones.
     */
    listAgents(params, options) {
        return this.invoke("list_agents", params, options);
    }
    /** Lists what waits for a person's leave, oldest first. */
    listApprovals(params, options) {
        return this.invoke("list_approvals", params, options);
    }
    /** Returns the keys for signing, without their secrets. The administrator's alone. */
    listKeys(params, options) {
        return this.invoke("list_keys", params, options);
    }
    /**
     * Lists the models that agents can have, those that the configuration names first, and says of each figure where it
     * comes from. A model that is not listed can be asked for all the same, as `provider/id`.
     */
    listModels(params, options) {
        return this.invoke("list_models", params, options);
    }
    /** Plans, those touched last first. */
    listPlans(params, options) {
        return this.invoke("list_plans", params, options);
    }
    /** Lists the presets that agents can be given. */
    listPresets(params, options) {
        return this.invoke("list_presets", params, options);
    }
    /**
     * Lists sessions, the most recently changed first: every permanent agent and every saved session that the caller
     * may see. With `include_temp` the live temporary agents come before them.
     */
    listSessions(params, options) {
        return this.invoke("list_sessions", params, options);
    }
    /**
     * Makes an agent of a session, with all it had. Under another name than the session's the agent is a copy and the
     * session stays. Refused when an agent of that name is live; a preset above the session's ceiling is refused.
     */
    loadSession(params, options) {
        return this.invoke("load_session", params, options);
    }
    /**
     * Remembers something: for a chat (`shared`), for a user, or for everybody when neither is named. It is on disk when
     * this answers. The same text in the same scope is renewed instead of kept twice; what it contradicts (the same
     * subject, nearly the same words) is hidden.
     */
    memoryAdd(params, options) {
        return this.invoke("memory.add", params, options);
    }
    /** Removes a memory that the caller sees, and what it took the place of. */
    memoryDelete(params, options) {
        return this.invoke("memory.delete", params, options);
    }
    /**
     * Lists what is the user's, the chat's, and everybody's, the newest first; fewer than asked for when more would not
     * fit into an answer.
     */
    memoryList(params, options) {
        return this.invoke("memory.list", params, options);
    }
    /** Finds what has to do with a query, the best first: what is the user's, the chat's, and everybody's. */
    memorySearch(params, options) {
        return this.invoke("memory.search", params, options);
    }
    /** Gives a session another name. A live agent follows it, running turns included; tokens made for the old name end. */
    renameSession(params, options) {
        return this.invoke("rename_session", params, options);
    }
    /**
     * Answers an approval. Allowed to the administrator and to the agent's ancestors, not to the agent itself. A request
     * for leave is answered by `allow_once`, `allow_session` or `deny`, a question of an MCP server by `accept`, `decline`
     * or `cancel`.
     */
    respondApproval(params, options) {
        return this.invoke("respond_approval", params, options);
    }
    /**
     * Ends a key: what is signed with it is refused from now on, on connections that are open too. The
     * administrator's alone.
     */
    revokeKey(params, options) {
        return this.invoke("revoke_key", params, options);
    }
    /** Returns the OpenRPC document of this interface. */
    rpcDiscover(params, options) {
        return this.invoke("rpc.discover", params, options);
    }
    /** Returns the server's name, version, protocol revision and features. */
    rpcVersion(params, options) {
        return this.invoke("rpc.version", params, options);
    }
    /**
     * Runs what is not done of a plan: a task begins when those it depends on are done, independent ones run side by side.
     * How far each got is on disk: after a crash the same `plan_id` goes on with what is not done. With `options.stream`
     * what becomes of each task arrives as `stream_event` before the response.
     */
    runPlan(params, options) {
        return this.invoke("run_plan", params, options);
    }
    /**
     * Saves an agent under a name. A temporary agent becomes permanent under it; of a permanent one it makes a saved
     * copy, which a later save of the same agent replaces; under the agent's own name the session stays when the agent
     * is destroyed.
     */
    saveSession(params, options) {
        return this.invoke("save_session", params, options);
    }
    /**
     * Returns which process this is, where it works and how it is reached, and what it is busy with. The
     * administrator's alone.
     */
    serverInfo(params, options) {
        return this.invoke("server_info", params, options);
    }
    /** Stops the server. Running turns get a grace period and are then cancelled; everything is on disk before it exits. */
    shutdownServer(params, options) {
        return this.invoke("shutdown_server", params, options);
    }
    /**
     * Lets an agent and its descendants out of memory and gives them free: another process of this home can take them
     * up. The next call restores them. Who works or is temporary stays, and so does everybody above.
     */
    unloadAgent(params, options) {
        return this.invoke("unload_agent", params, options);
    }
    /** Ends a watch of the caller's, or any as the administrator. It answers then, to whoever opened it. */
    unwatch(params, options) {
        return this.invoke("unwatch", params, options);
    }
    /**
     * Changes the context that planners and executors are given. It is on disk when this answers. The administrator's
     * alone.
     */
    updateContext(params, options) {
        return this.invoke("update_context", params, options);
    }
    /**
     * Parses code and checks it by rules of a linter. The code is never run. Code that cannot be read is no error of the
     * call but a diagnostic of the rule `syntax`.
     */
    validateCode(params, options) {
        return this.invoke("validate_code", params, options);
    }
}
