// Writes the types and methods of the client from the OpenRPC document:
//
//   nexus3 schema | node clients/node/scripts/generate.mjs > clients/node/src/methods.ts
//
// The types of what a watch tells are those of docs/nexus3.schema.json, since OpenRPC has no notifications.

import { readFileSync } from "node:fs";

/** Written by hand, in caller.ts and client.ts. */
const WRITTEN = ["send", "cancel", "watch"];

const document = JSON.parse(readFileSync(0, "utf8"));
const { $defs } = JSON.parse(readFileSync(new URL("../../../docs/nexus3.schema.json", import.meta.url), "utf8"));
const lines = [];
lines.push("/** The methods and their types. Generated from the OpenRPC document by scripts/generate.mjs. */");
lines.push("", 'import { Caller, type CallOptions, type Unbound } from "./caller.js";');

for (const [name, schema] of Object.entries(document.components.schemas)) declare(name, schema);
for (const [name, schema] of Object.entries(watchTypes())) declare(name, schema);
for (const method of document.methods) {
  const { properties, required } = membersOf(method);
  declare(`${pascal(method.name)}Params`, { type: "object", properties, required });
  if (!isShared(method.result.schema)) declare(resultName(method), method.result.schema);
}
for (const scope of ["agent", "server"]) {
  lines.push("", `/** Every method of ${scope} scope, by its name. */`, `export interface ${pascal(scope)}Table {`);
  for (const method of methodsOf(scope)) {
    lines.push(`  ${JSON.stringify(method.name)}: { params: ${pascal(method.name)}Params; result: ${resultName(method)} };`);
  }
  lines.push("}");
}
const streaming = document.methods.flatMap((method) => {
  const member = streamMember(method);
  return member ? [`  ${method.name}: ${JSON.stringify(member)},`] : [];
});
lines.push("", "/** The methods that can stream, and whether `stream` stands in their `params` or in the `options` there. */");
lines.push("export const STREAM_MEMBER = {", ...streaming, "} as const;");
lines.push("", "export type StreamingMethod = keyof typeof STREAM_MEMBER;");
declareMethods("agent", "abstract class AgentMethods<Bound extends string> extends Caller<Bound>");
declareMethods("server", "abstract class ServerMethods extends AgentMethods<never>");
process.stdout.write(`${lines.join("\n")}\n`);

/** The notification `watch_event`, and what it holds that has no type yet. */
function watchTypes() {
  const found = { WatchEvent: $defs.watch_event.properties.params };
  const known = document.components.schemas;
  for (;;) {
    const named = [...JSON.stringify(found).matchAll(/"#\/\$defs\/(\w+)"/g)].map((match) => match[1]);
    const missing = named.filter((name) => !(name in found) && !(name in known));
    if (missing.length === 0) return found;
    for (const name of missing) found[name] = $defs[name];
  }
}

function declareMethods(scope, head) {
  lines.push("", `/** The methods of ${scope} scope. */`, `export ${head} {`);
  const own = methodsOf(scope).filter((method) => !WRITTEN.includes(method.name));
  own.forEach((method, index) => {
    if (index > 0) lines.push("");
    comment(method.description, "  ");
    const params = `${pascal(method.name)}Params`;
    const type = scope === "agent" ? `Unbound<${params}, Bound>` : params;
    const optional = method.params.some((param) => param.required) ? "" : "?";
    lines.push(`  ${camel(method.name)}(params${optional}: ${type}, options?: CallOptions): Promise<${resultName(method)}> {`);
    lines.push(`    return this.invoke(${JSON.stringify(method.name)}, params, options);`, "  }");
  });
  lines.push("}");
}

function declare(name, schema) {
  lines.push("");
  comment(schema.description, "");
  if (schema.properties) {
    lines.push(`export interface ${name} {`);
    members(schema, "  ");
    lines.push("}");
  } else if (schema.type === "object" && name.endsWith("Params")) {
    lines.push(`export interface ${name} {}`);
  } else if (schema.oneOf?.every((branch) => branch.type === "object")) {
    lines.push(`export type ${name} =`);
    schema.oneOf.forEach((branch, index) => {
      comment(branch.description, "  ");
      lines.push(`  | ${typeOf(branch)}${index === schema.oneOf.length - 1 ? ";" : ""}`);
    });
  } else {
    lines.push(`export type ${name} = ${typeOf(schema)};`);
  }
}

function members(schema, indent) {
  for (const [name, property] of Object.entries(schema.properties)) {
    comment(property.description, indent);
    const optional = schema.required?.includes(name) ? "" : "?";
    lines.push(`${indent}${/^\w+$/.test(name) ? name : JSON.stringify(name)}${optional}: ${typeOf(property)};`);
  }
}

/** The TypeScript type of a schema. What it says of lengths and ranges the server checks. */
function typeOf(schema) {
  if (schema === true) return "unknown";
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    return schema.properties ? `${objectType(schema)} & ${name}` : name;
  }
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const either = schema.anyOf ?? schema.oneOf;
  if (either) return [...new Set(either.map(typeOf))].join(" | ");
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type })).join(" | ");
  switch (schema.type) {
    case "string": return "string";
    case "integer":
    case "number": return "number";
    case "boolean": return "boolean";
    case "null": return "null";
    case "array": return `Array<${typeOf(schema.items ?? true)}>`;
    case "object": return objectType(schema);
    default: return "unknown";
  }
}

function objectType({ properties, required = [], additionalProperties }) {
  if (!properties) return `Record<string, ${typeof additionalProperties === "object" ? typeOf(additionalProperties) : "unknown"}>`;
  const inner = Object.entries(properties).map(([name, property]) => {
    return `${JSON.stringify(name)}${required.includes(name) ? "" : "?"}: ${typeOf(property)}`;
  });
  return `{ ${inner.join("; ")} }`;
}

function comment(text, indent) {
  if (!text) return;
  const words = text.split("\n").map((line) => line.trim());
  if (words.length === 1) lines.push(`${indent}/** ${words[0]} */`);
  else lines.push(`${indent}/**`, ...words.map((line) => `${indent} * ${line}`.trimEnd()), `${indent} */`);
}

function membersOf(method) {
  const properties = Object.fromEntries(method.params.map((param) => [param.name, param.schema]));
  return { properties, required: method.params.filter((param) => param.required).map((param) => param.name) };
}

function streamMember(method) {
  const { properties } = membersOf(method);
  if (properties.stream) return "params";
  const options = properties.options && typeOf(properties.options).split(" | ")[0];
  return document.components.schemas[options]?.properties?.stream ? "options" : undefined;
}

function methodsOf(scope) {
  return document.methods.filter((method) => method["x-scope"] === scope);
}

/** Whether a result is one of the named types already. */
function isShared({ title }) {
  return title in document.components.schemas;
}

function resultName(method) {
  return isShared(method.result.schema) ? method.result.schema.title : `${pascal(method.name)}Result`;
}

function pascal(name) {
  return name.split(/[._]/).map((word) => word[0].toUpperCase() + word.slice(1)).join("");
}

function camel(name) {
  const joined = pascal(name);
  return joined[0].toLowerCase() + joined.slice(1);
}
