//! `mcp_read`: long results, and resources of servers, for models. To read a resource is judged as a tool of the server
//! that has it; a result is its agent's own.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use nexus_core::Agent;
use nexus_core::mcp::{Lookup, Origin, OwnServers};
use nexus_core::permission::ToolClass;
use nexus_core::provider::ToolSpec;
use nexus_core::tool::{Invocation, Need, READ_TOOL, ServerUser, Tool, ToolOutput};
use rmcp::model::{ReadResourceResult, ResourceContents};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::listing::asks;
use crate::result::Shown;
use crate::results::{Keeper, PIECE_BYTES_MAX, Piece, SCHEME};
use crate::server::Server;
use crate::servers::Servers;

/// What reading is called where permissions name tools.
const READING: &str = "resources/read";

/// `mcp_read`.
pub struct Reader {
    spec: ToolSpec,
    servers: Weak<Servers>,
    /// Of the agent that reads.
    own: OwnServers,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    uri: String,
    server: Option<String>,
    offset: Option<u64>,
}

impl Reader {
    pub fn new(servers: Weak<Servers>, own: OwnServers) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "uri": {"type": "string", "description": "mcp-result:…, or the address of a resource."},
                "server": {"type": "string", "description": "The server that has the resource."},
                "offset": {"type": "integer", "minimum": 0, "description": "Byte to read on from."},
            },
            "required": ["uri"],
            "additionalProperties": false,
        });
        let description = "Reads on in a long result of a tool of an MCP server, or reads a resource of a server.";
        let spec = ToolSpec {
            name: READ_TOOL.into(),
            description: description.into(),
            parameters: parameters.to_string().into(),
        };
        Self { spec, servers, own }
    }

    fn server(&self, name: &str) -> Result<Arc<Server>, String> {
        let servers = self.servers.upgrade();
        let found = servers.and_then(|servers| servers.find(name, &self.own).ok());
        found.ok_or_else(|| format!("there is no MCP server {name}"))
    }
}

impl Reader {
    /// A piece of a result that is kept.
    async fn kept(&self, agent: &Agent, uri: String, offset: u64) -> Result<String, String> {
        let servers = self.servers.upgrade().ok_or("the program is stopping")?;
        let (results, keeper) = (servers.results().clone(), Keeper::of(agent));
        results.follow(agent);
        let read = tokio::task::spawn_blocking(move || results.read(keeper, &uri, offset)).await;
        Ok(shown_piece(&read.map_err(|error| error.to_string())??))
    }
}

/// What reading resources of a server is, for permissions and grants.
pub fn origin(server: &Server) -> Origin {
    Origin {
        server: server.entry.name.clone(),
        tool: READING.into(),
        asks: asks(&server.entry, READING),
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
        let Wanted { uri, server, .. } = wanted(arguments)?;
        match server {
            _ if uri.starts_with(SCHEME) => Ok(Vec::new()),
            Some(server) => Ok(vec![Need::Server(origin(&*self.server(&server)?))]),
            None => Err("server is missing: the one that has the resource".into()),
        }
    }

    async fn run(&self, call: Invocation) -> Result<ToolOutput, String> {
        let Wanted { uri, server, offset } = wanted(&call.arguments)?;
        let offset = offset.unwrap_or(0);
        let Some(server) = server.filter(|_| !uri.starts_with(SCHEME)) else {
            return self.kept(&call.agent, uri, offset).await.map(Into::into);
        };
        let server = self.server(&server)?.serving(ServerUser {
            agent: &call.agent,
            permissions: &call.access.permissions,
            own: &self.own,
        })?;
        let (user, lookup) = (call.agent.id(), Lookup::Resource { uri });
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
        Ok(ToolOutput { text: shown_piece(&piece(&text, offset)?), attachments, change: None })
    }
}

/// As much of a text as an answer has room for.
fn piece(text: &str, offset: u64) -> Result<Piece, String> {
    let bytes = text.len();
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    if from > bytes {
        return Err(format!("it has only {bytes} bytes"));
    }
    let from = text.floor_char_boundary(from);
    let until = text.floor_char_boundary((from + PIECE_BYTES_MAX).min(bytes));
    let (text, [from, until, bytes]) =
        (&text[from..until], [from, until, bytes].map(|it| it as u64));
    Ok(Piece { text: text.into(), from, until, bytes })
}

/// A piece as a model is shown it, and where to go on.
fn shown_piece(piece: &Piece) -> String {
    let Piece { text, from, until, bytes } = piece;
    match until == bytes {
        true if *bytes == 0 => "It is empty.".into(),
        true => text.clone(),
        false => {
            format!("{text}\n[bytes {from} to {until} of {bytes}; read on with offset {until}]")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_read_piece_by_piece() {
        let read = |text: &str, offset: u64| piece(text, offset).map(|piece| shown_piece(&piece));
        assert_eq!(read("", 0).unwrap(), "It is empty.");
        assert_eq!(read("abc", 1).unwrap(), "bc");
        assert_eq!(read("abc", 3).unwrap(), "");
        assert!(read("abc", 4).is_err());
        let longest = "a".repeat(PIECE_BYTES_MAX);
        assert_eq!(read(&longest, 0).unwrap(), longest);
        let longer = format!("{}éb", "a".repeat(PIECE_BYTES_MAX - 1));
        let first = read(&longer, 0).unwrap();
        let end = PIECE_BYTES_MAX - 1;
        let words = format!("\n[bytes 0 to {end} of {}; read on with offset {end}]", longer.len());
        assert!(first.ends_with(&words));
        assert_eq!(read(&longer, end as u64).unwrap(), "éb");
    }
}
