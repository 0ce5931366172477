//! `mcp_read`: resources of servers, for models. Judged as a tool of the server that has them.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use nexus_core::mcp::{Lookup, Origin};
use nexus_core::permission::ToolClass;
use nexus_core::provider::ToolSpec;
use nexus_core::tool::{Invocation, Need, READ_TOOL, Tool, ToolOutput};
use rmcp::model::{ReadResourceResult, ResourceContents};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::result::Shown;
use crate::server::Server;
use crate::servers::Servers;

/// What reading is called where permissions name tools.
const READING: &str = "resources/read";

/// Of one answer: about what a model can make use of.
const ANSWER_BYTES_MAX: usize = 50_000;

/// `mcp_read`.
pub struct Reader {
    spec: ToolSpec,
    servers: Weak<Servers>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    uri: String,
    server: String,
    offset: Option<usize>,
}

impl Reader {
    pub fn new(servers: Weak<Servers>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "server": {"type": "string"},
                "uri": {"type": "string", "description": "The resource's address, as a tool or the server gave it."},
                "offset": {"type": "integer", "minimum": 0, "description": "Byte to read on from."},
            },
            "required": ["server", "uri"],
            "additionalProperties": false,
        });
        let description = "Reads a resource of an MCP server. Servers that have some:";
        let spec = ToolSpec {
            name: READ_TOOL.into(),
            description: description.into(),
            parameters: parameters.to_string().into(),
        };
        Self { spec, servers }
    }

    fn server(&self, name: &str) -> Result<Arc<Server>, String> {
        let servers = self.servers.upgrade();
        let found = servers.and_then(|servers| servers.server(name).ok().cloned());
        found.ok_or_else(|| format!("there is no MCP server {name}"))
    }
}

/// What reading resources of a server is, for permissions and grants.
pub fn origin(server: &Server) -> Origin {
    Origin {
        server: server.entry.name.clone(),
        tool: READING.into(),
        asks: server.entry.asks,
        // Whatever is read is the server's, and changes with it.
        pin: READING.into(),
        quarantined: false,
        defer: server.entry.defer,
    }
}

fn wanted(arguments: &Value) -> Result<Wanted, String> {
    serde_json::from_value(arguments.clone()).map_err(|error| error.to_string())
}

#[async_trait]
impl Tool for Reader {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self) -> ToolClass {
        ToolClass::Look
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, String> {
        let server = self.server(&wanted(arguments)?.server)?;
        Ok(vec![Need::Server(origin(&server))])
    }

    async fn run(&self, call: Invocation) -> Result<ToolOutput, String> {
        let Wanted { uri, server, offset } = wanted(&call.arguments)?;
        let server = self.server(&server)?;
        let user = call.agent.id();
        let lookup = Lookup::Resource { uri };
        let read = server.look_up(&user, &lookup);
        let read = call.cancel.run_until_cancelled(read).await.ok_or("cancelled")?;
        let read = read.map_err(|error| error.to_string())?;
        let read: ReadResourceResult =
            serde_json::from_value(read).map_err(|error| error.to_string())?;
        let mut shown = Shown::default();
        for contents in read.contents {
            match contents {
                ResourceContents::TextResourceContents { text, .. } => shown.text(text),
                ResourceContents::BlobResourceContents { mime_type, blob, .. } => {
                    let kind = mime_type.as_deref().unwrap_or("data");
                    shown.blob("resource", kind, &blob, &*server.ground.intake).await;
                }
                _ => shown.text("[contents of an unknown kind: not shown]".into()),
            }
        }
        let (text, attachments) = shown.parts();
        Ok(ToolOutput { text: piece(&text, offset.unwrap_or(0))?, attachments, change: None })
    }
}

/// As much of a text as an answer has room for, and where to go on.
fn piece(text: &str, offset: usize) -> Result<String, String> {
    let bytes = text.len();
    if offset > bytes {
        return Err(format!("it has only {bytes} bytes"));
    }
    let from = text.floor_char_boundary(offset);
    let until = text.floor_char_boundary((from + ANSWER_BYTES_MAX).min(bytes));
    let piece = &text[from..until];
    Ok(match (from, until == bytes) {
        (0, true) if bytes == 0 => "It is empty.".into(),
        (_, true) => piece.to_owned(),
        (_, false) => {
            format!("{piece}\n[bytes {from} to {until} of {bytes}; read on with offset {until}]")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_read_piece_by_piece() {
        assert_eq!(piece("", 0).unwrap(), "It is empty.");
        assert_eq!(piece("abc", 1).unwrap(), "bc");
        assert_eq!(piece("abc", 3).unwrap(), "");
        assert!(piece("abc", 4).is_err());
        let longest = "a".repeat(ANSWER_BYTES_MAX);
        assert_eq!(piece(&longest, 0).unwrap(), longest);
        let longer = format!("{}éb", "a".repeat(ANSWER_BYTES_MAX - 1));
        let first = piece(&longer, 0).unwrap();
        let end = ANSWER_BYTES_MAX - 1;
        assert!(first.ends_with(&format!(
            "\n[bytes 0 to {end} of {}; read on with offset {end}]",
            longer.len()
        )));
        assert_eq!(piece(&longer, end).unwrap(), "éb");
    }
}
