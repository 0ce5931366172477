//! An MCP server on standard input and output that does nothing: this same program with `--bare-mcp`. It reads a line,
//! answers it and waits for the next, so that what is measured is the way there and back.

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

/// Serves so many tools until its input ends.
pub fn serve(tools: usize) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        // Notifications want no answer.
        let Some(id) = message.get("id") else { continue };
        let mut answer = json!({"jsonrpc": "2.0", "id": id});
        match result(&message, tools) {
            Some(result) => answer["result"] = result,
            None => answer["error"] = json!({"code": -32601, "message": "no such method"}),
        }
        // One write for a line: what comes in two pieces is read in two.
        output.write_all(format!("{answer}\n").as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

fn result(message: &Value, tools: usize) -> Option<Value> {
    let mut result = match message["method"].as_str()? {
        "server/discover" => json!({
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "ttlMs": 0, "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1"}},
        }),
        "tools/list" => {
            let tools: Vec<Value> = (0..tools).map(tool).collect();
            json!({"tools": tools, "ttlMs": 60_000, "cacheScope": "private"})
        }
        "tools/call" => json!({"content": [{"type": "text", "text": "Here it is."}]}),
        _ => return None,
    };
    result["resultType"] = "complete".into();
    Some(result)
}

/// As long as those of real servers are.
fn tool(number: usize) -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "name": format!("t{number}"),
        "description": format!("Looks up entry {number} of the register and says what stands there, with its sources."),
        "inputSchema": {
            "type": "object",
            "properties": {"name": text("Whose entry it is"), "since": text("Only what is younger")},
            "required": ["name"],
        },
    })
}
