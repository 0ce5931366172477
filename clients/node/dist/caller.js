/** What the client and its agents have in common: the calls that people make most, and how all calls are made. */
/** `Bound` names the parameters that the object fills in itself. */
export class Caller {
    /** Sends a message to the agent and waits for its answer. */
    send(content, params, options) {
        return this.invoke("send", { content, ...params }, options);
    }
    /** Sends a message and gives its answer as it is made. */
    stream(content, params, options) {
        return this.open("send", { content, ...params }, options);
    }
    /** Cancels a turn by the `request_id` of its `send`. */
    cancel(requestId, params, options) {
        return this.invoke("cancel", { request_id: requestId, ...params }, options);
    }
}
