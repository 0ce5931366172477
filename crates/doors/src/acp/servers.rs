//! MCP servers of an editor's settings: connections of the session's agent alone, for as long as the session is open here.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, McpServer, Notice, NoticeSeverity, SessionUpdate, TextContent,
};
use futures_util::future::join_all;
use nexus_protocol::error::{EXECUTION, INVALID_PARAMS};
use nexus_protocol::mcp::{
    McpConnect, McpConnectParams, McpDisconnect, McpDisconnectParams, McpListServers,
    McpListServersParams, McpSource,
};
use nexus_protocol::params::Bounded;
use nexus_protocol::{CallError, Target, WatchApi};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::door::Door;
use super::session::Session;
use crate::sentence::sentence;

/// How long one may take to start before its editor is not told any more.
const START_MAX_MS: u32 = 60_000;

/// Those who wait until what the editor brought along runs, to tell of it.
#[derive(Default)]
pub struct Brought(Mutex<JoinSet<()>>);

impl Brought {
    fn waiting(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is nobody to be told any more.
    pub fn stop_waiting(&self) {
        self.waiting().abort_all();
    }
}

/// Those that are connected and may still be starting, and what is wrong with the others.
pub struct Begun {
    /// As the editor calls them, and as they are known here.
    starting: Vec<(String, String)>,
    failed: Vec<String>,
}

impl<A: WatchApi + Clone + Send + Sync + 'static> Door<A> {
    /// Connects the session's agent to what its editor brings along, and to nothing that an editor did before. It does not
    /// wait until they run: the first prompt does, for a moment.
    pub async fn bring(&self, session: &Session, servers: &[McpServer]) -> Begun {
        self.let_go(&session.id).await;
        let mut begun = Begun { starting: Vec::new(), failed: Vec::new() };
        for server in servers {
            match entry(server, &session.cwd) {
                Ok(config) => match self.connect(&session.id, brought(config)).await {
                    Ok(known) => begun.starting.push((name(server).into(), known)),
                    Err(error) => begun.failed.push(words(name(server), &error)),
                },
                Err(why) => begun.failed.push(format!("The MCP server {}: {why}", name(server))),
            }
        }
        begun
    }

    /// Tells the editor which of them cannot be had.
    pub async fn follow_up(self: &Arc<Self>, session: &Session, begun: Begun) {
        for why in begun.failed {
            self.tell_failed(&session.id, why).await;
        }
        let session = session.id.clone();
        for (name, server) in begun.starting {
            let (door, session) = (self.clone(), session.clone());
            self.brought.waiting().spawn(async move {
                let connected = door.connect(&session, started(server.clone())).await;
                match connected {
                    // It was let go of meanwhile.
                    Err(CallError::Rpc(error)) if error.code == INVALID_PARAMS => {}
                    Err(error) if door.is_open(&session) => {
                        door.disconnect(&session, server).await;
                        door.tell_failed(&session, words(&name, &error)).await;
                    }
                    _ => {}
                }
            });
        }
    }

    /// The agent has no more use for what an editor brought along, whichever did.
    pub async fn let_go(&self, session: &str) {
        let target = Target::Agent(session.into());
        let listed = self.api.call::<McpListServers>(&target, McpListServersParams::default());
        // Of an agent that is gone, they are too.
        let Ok(listed) = listed.await else { return };
        let brought = listed.servers.iter().filter(|it| it.source == "client");
        join_all(brought.map(|server| self.disconnect(session, server.name.clone()))).await;
    }

    /// The name that the server is known by.
    async fn connect(&self, session: &str, params: McpConnectParams) -> Result<String, CallError> {
        let connected = self.api.call::<McpConnect>(&Target::Agent(session.into()), params).await;
        connected.map(|it| it.server)
    }

    async fn disconnect(&self, session: &str, server: String) {
        let params = McpDisconnectParams { server };
        let _ = self.api.call::<McpDisconnect>(&Target::Agent(session.into()), params).await;
    }

    /// An editor that knows no notices reads it as the agent's.
    async fn tell_failed(&self, session: &str, why: String) {
        tracing::warn!(session, "{why}");
        let update = match self.shows_notices() {
            true => SessionUpdate::Notice(Notice::new(NoticeSeverity::Warning, why)),
            false => {
                let text = ContentBlock::Text(TextContent::new(format!("{why}\n\n")));
                SessionUpdate::AgentMessageChunk(ContentChunk::new(text))
            }
        };
        self.tell(session, update).await;
    }
}

/// Connects a server and does not wait for it.
fn brought(config: Map<String, Value>) -> McpConnectParams {
    let (config, source) = (Some(config), Some(McpSource::Client));
    McpConnectParams { server: None, config, source, shared: None, wait_ms: Bounded::new(0) }
}

/// Waits for one that is connected.
fn started(server: String) -> McpConnectParams {
    McpConnectParams {
        server: Some(server),
        config: None,
        source: None,
        shared: None,
        wait_ms: Bounded::new(START_MAX_MS),
    }
}

fn words(name: &str, error: &CallError) -> String {
    let why = match error {
        // It names the server first, as that is known here.
        CallError::Rpc(refused) if refused.code == EXECUTION => {
            let said = refused.details().unwrap_or(&refused.message);
            said.split_once(" cannot be had: ").map_or(said, |(_, why)| why).to_owned()
        }
        other => sentence(other),
    };
    format!("The MCP server {name} is not used: {why}")
}

fn name(server: &McpServer) -> &str {
    match server {
        McpServer::Http(server) => &server.name,
        McpServer::Sse(server) => &server.name,
        McpServer::Stdio(server) => &server.name,
        _ => "",
    }
}

/// The entry of a server as our configuration has them; or why there can be none.
fn entry(server: &McpServer, cwd: &Path) -> Result<Map<String, Value>, String> {
    let pairs = |pairs: Vec<(&String, &String)>| -> Value {
        let pair = |(name, value): (&String, &String)| (name.clone(), Value::from(value.clone()));
        Value::Object(pairs.into_iter().map(pair).collect())
    };
    let mut entry = Map::from_iter([("name".to_owned(), name(server).into())]);
    match server {
        McpServer::Stdio(server) => {
            let command = server.command.to_str().ok_or("the path of its program is not UTF-8")?;
            let cwd = cwd.to_str().ok_or("the path of the directory is not UTF-8")?;
            let env = server.env.iter().map(|it| (&it.name, &it.value)).collect();
            entry.insert("command".into(), command.into());
            entry.insert("args".into(), server.args.clone().into());
            entry.insert("env".into(), pairs(env));
            entry.insert("cwd".into(), cwd.into());
        }
        McpServer::Http(server) => {
            let headers = server.headers.iter().map(|it| (&it.name, &it.value)).collect();
            entry.insert("url".into(), server.url.clone().into());
            entry.insert("headers".into(), pairs(headers));
        }
        McpServer::Sse(_) => {
            return Err(
                "the transport of 2024 (sse) is not spoken here; most servers have another".into(),
            );
        }
        _ => return Err("its transport is not spoken here".into()),
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use nexus_protocol::RpcError;
    use serde_json::json;

    use super::*;

    fn check(server: Value, expected: Result<Value, &str>) {
        let server: McpServer = serde_json::from_value(server).unwrap();
        let entry = entry(&server, Path::new("/w"));
        match (entry, expected) {
            (Ok(entry), Ok(expected)) => assert_eq!(Value::Object(entry), expected),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (entry, expected) => panic!("{entry:?} {expected:?}"),
        }
    }

    #[test]
    fn who_cannot_be_had_is_named_once() {
        let said = "The MCP server a-b cannot be had: there is no program /x";
        let refused = RpcError::failed("EXECUTION_ERROR", said, &[]);
        let expected = "The MCP server A B is not used: there is no program /x";
        assert_eq!(words("A B", &refused.into()), expected);
    }

    #[test]
    fn servers_become_entries_of_ours() {
        check(
            json!({"name": "a b", "command": "/x", "args": ["-y"], "env": [{"name": "K", "value": "v"}]}),
            Ok(
                json!({"name": "a b", "command": "/x", "args": ["-y"], "env": {"K": "v"}, "cwd": "/w"}),
            ),
        );
        check(
            json!({"type": "http", "name": "h", "url": "https://x", "headers": [{"name": "A", "value": "b"}]}),
            Ok(json!({"name": "h", "url": "https://x", "headers": {"A": "b"}})),
        );
        check(json!({"type": "sse", "name": "s", "url": "https://x", "headers": []}), Err("2024"));
    }
}
