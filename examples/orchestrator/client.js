// The client of the protocol's own document, as it stands there.

class JSONRPCClient {
  constructor(process) {
    this.process = process;
    this.pendingRequests = new Map();
    this.requestId = 0;
  }

  async request(method, params) {
    const id = ++this.requestId;
    const request = {
      jsonrpc: "2.0",
      method,
      params,
      id
    };

    return new Promise((resolve, reject) => {
      this.pendingRequests.set(id, { resolve, reject });
      this.process.stdin.write(JSON.stringify(request) + '\n');
    });
  }

  handleResponse(data) {
    const response = JSON.parse(data);
    if (this.pendingRequests.has(response.id)) {
      const { resolve, reject } = this.pendingRequests.get(response.id);
      if (response.error) {
        reject(response.error);
      } else {
        resolve(response.result);
      }
      this.pendingRequests.delete(response.id);
    }
  }
}

module.exports = { JSONRPCClient };
