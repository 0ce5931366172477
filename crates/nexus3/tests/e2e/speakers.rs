//! What others made that speaks MCP: the conformance suite, SDKs, reference servers. `make mcp-servers` installs it; where it
//! is not, what needs it is passed over, unless `NEXUS3_MCP_SERVERS=required`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

/// Where it is all installed.
pub fn installed() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mcp-servers");
    match target.join("python/bin/node").exists() && target.join("installed").exists() {
        true => Some(target.canonicalize().unwrap()),
        false => {
            let required =
                std::env::var_os("NEXUS3_MCP_SERVERS").is_some_and(|it| it == "required");
            assert!(!required, "what speaks MCP is not installed: make mcp-servers");
            eprintln!("what speaks MCP is not installed: passed over");
            None
        }
    }
}

/// MCP's conformance suite, ready to be told what to do.
pub fn suite() -> Option<Command> {
    let installed = installed()?;
    let mut command = Command::new(installed.join("python/bin/node"));
    command.arg(installed.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"));
    command.stdin(Stdio::null()).kill_on_drop(true);
    Some(command)
}

/// A program made with one of the SDKs.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/mcp-servers").join(name)
}
