// A client made with the TypeScript SDK: asks an agent something, allows what it asks leave for, loads the session again
// and prints what it learnt, as JSON.
//
// client.mjs PACKAGES PROGRAM ARGUMENT...

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [packages, program, ...args] = process.argv.slice(2);
const require = createRequire(packages + "/");
const name = require.resolve("@agentclientprotocol/sdk");
const { client, methods, ndJsonStream, PROTOCOL_VERSION } = await import(pathToFileURL(name));

const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const cwd = process.cwd();
const kinds = new Set();
let said = "";
let asked = 0;
const app = client({ name: "client" })
  .onNotification(methods.client.session.update, ({ params }) => {
    kinds.add(params.update.sessionUpdate);
    if (params.update.sessionUpdate === "agent_message_chunk") said += params.update.content.text;
  })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    asked += 1;
    const { optionId } = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId } };
  });
const learnt = await app.connectWith(stream, async (agent) => {
  const hello = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: {},
  });
  const opened = await agent.request(methods.agent.session.new, { cwd, mcpServers: [] });
  const { sessionId } = opened;
  const prompt = [{ type: "text", text: "Hello?" }];
  const { stopReason } = await agent.request(methods.agent.session.prompt, { sessionId, prompt });
  const first = said;
  said = "";
  await agent.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
  const { sessions } = await agent.request(methods.agent.session.list, {});
  return {
    version: hello.protocolVersion,
    mode: opened.modes.currentModeId,
    stop: stopReason,
    said: first,
    again: said,
    asked,
    listed: sessions.some((session) => session.sessionId === sessionId),
    kinds: [...kinds].sort(),
  };
});
child.stdin.end();
learnt.exit = await new Promise((resolve) => child.on("exit", resolve));
console.log(JSON.stringify(learnt));
