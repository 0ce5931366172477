// Plans a request, carries the plan out in the current directory, and checks the code that came of it.
//
//   node examples/orchestrator/orchestrate.js "Add a function that parses dates, with tests"

const { spawn } = require('child_process');
const readline = require('readline');
const { JSONRPCClient } = require('./client.js');

async function main(request) {
  const server = spawn('nexus3', ['--stdio'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const client = new JSONRPCClient(server);
  // A line is a message; a chunk may be half of one, or two.
  readline.createInterface({ input: server.stdout }).on('line', (line) => client.handleResponse(line));

  await client.request('update_context', {
    action: 'add', context_type: 'state', data: { key: 'style', value: 'no semicolons' },
  });
  const { plan } = await client.request('create_plan', {
    user_request: request, constraints: { max_tasks: 5 }, options: { timeout_ms: 300000 },
  });
  for (const task of plan.tasks) {
    console.log(`${task.id}: ${task.description}`);
  }
  const run = await client.request('run_plan', {
    plan_id: plan.plan_id, options: { write: true, on_failure: 'continue', timeout_ms: 3600000 },
  });
  for (const [id, task] of Object.entries(run.tasks)) {
    const files = task.output ? [...task.output.files_created, ...task.output.files_modified] : [];
    console.log(`${id} ${task.status}${task.error ? ` (${task.error})` : ''} ${files.join(' ')}`.trimEnd());
    if (!task.output?.code) continue;
    const checked = await client.request('validate_code', {
      code: task.output.code, language: 'javascript', rules: ['no-unused-vars', 'no-console'],
    });
    for (const { line, rule, message } of checked.diagnostics) {
      console.log(`  line ${line}: ${message} (${rule})`);
    }
  }
  console.log(`${run.status}: ${run.metadata.tokens_used} tokens`);
  server.stdin.end();
}

main(process.argv[2] ?? 'Write a function that adds two numbers').catch((error) => {
  console.error(`Error: ${error.message}`, error.data?.details ?? '');
  process.exit(1);
});
