// An MCP host made with the TypeScript SDK: asks an agent something and prints what it learnt, as JSON.
//
// host.mjs PACKAGES stdio PROGRAM ARGUMENT...    host.mjs PACKAGES http URL    (the token in NEXUS3_KEY)

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, way, target, ...args] = process.argv.slice(2);
const require = createRequire(packages + "/");
const sdk = (name) => import(pathToFileURL(require.resolve("@modelcontextprotocol/sdk/" + name)));
const { Client } = await sdk("client/index.js");
const { StdioClientTransport } = await sdk("client/stdio.js");
const { StreamableHTTPClientTransport } = await sdk("client/streamableHttp.js");

const transport =
  way === "stdio"
    ? new StdioClientTransport({ command: target, args, env: process.env, cwd: process.cwd() })
    : new StreamableHTTPClientTransport(new URL(target), {
        requestInit: { headers: { Authorization: "Bearer " + process.env.NEXUS3_KEY } },
      });
const client = new Client({ name: "host", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
const answer = await client.callTool({ name: "nexus_send", arguments: { content: "Hello?" } });
const uri = `nexus3://agent/${answer.structuredContent.agent_id}/messages`;
const { contents } = await client.readResource({ uri });
await client.close();
const learnt = {
  tools: tools.length,
  content: answer.structuredContent.content,
  messages: JSON.parse(contents[0].text).messages.length,
};
console.log(JSON.stringify(learnt));
