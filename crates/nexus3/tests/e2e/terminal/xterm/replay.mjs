// Shows a recording to xterm.js, and prints what it has on its screen and above it.
//
// Standard input: {"columns", "rows", "steps": [{"write": base64} | {"resize": [columns, rows]}]}. Standard output: a JSON
// list of lines; what the emulator broke is one line again.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const [modules] = process.argv.slice(2);
const { Terminal } = createRequire(`${modules}/`)("@xterm/headless");
const { columns, rows, steps } = JSON.parse(readFileSync(0, "utf8"));
const terminal = new Terminal({ cols: columns, rows, scrollback: 200_000, allowProposedApi: true });

for (const { write, resize } of steps) {
  if (resize) {
    terminal.resize(...resize);
  } else {
    await new Promise((done) => terminal.write(Buffer.from(write, "base64"), done));
  }
}

const buffer = terminal.buffer.active;
const lines = [];
for (let at = 0; at < buffer.length; at += 1) {
  const line = buffer.getLine(at);
  const text = line.translateToString(false);
  if (line.isWrapped) {
    lines[lines.length - 1] += text;
  } else {
    lines.push(text);
  }
}
process.stdout.write(JSON.stringify(lines.map((line) => line.trimEnd())));
