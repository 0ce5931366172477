//! A server of another program's own methods on a Unix socket, with the framing, the limits and the errors of ours.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use nexus_protocol::envelope::{self, Incoming};
use nexus_protocol::{Request, RpcError};
use serde_json::{Map, Value};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::begin::guarded;
use crate::dispatcher::{Caller, Class, Reply, Room, encode, error_body, settle};
use crate::freight::Freight;
use crate::host::Host;
use crate::transport::unix::{BindError, Limits, UnixServer};

/// As of the server of agents.
const LIMITS: Limits = Limits { connections_max: 1024, idle_timeout: Duration::from_secs(300) };

/// How long [`RpcServer::stop`] waits for calls that run.
const GRACE: Duration = Duration::from_secs(10);

/// Serves methods by JSON-RPC 2.0 on a Unix socket: frames of up to 10 MiB, batches and notifications, many connections
/// at once. The socket can be opened by its owner only, and other users are turned away.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("rpc.sock");
/// use nexus_protocol::RpcError;
/// use nexus_server::RpcServer;
/// use serde_json::json;
///
/// let mut server = RpcServer::new(&path);
/// server.register("greet", async |params| match params.get("name") {
///     Some(name) => Ok(json!({"text": format!("Hello, {name}!")})),
///     None => Err(RpcError::invalid_param("name", "is missing")),
/// });
/// server.start()?;
/// assert!(server.is_running());
///
/// // From any program, here with the call of `ash`:
/// let socket = path.display().to_string();
/// let greeting = tokio::task::spawn_blocking(move || {
///     let host = ash::Environment::read(|name| (name == "ASH_RPC_SOCKET").then(|| socket.clone()))?;
///     let params = json!({"name": "Ann"}).as_object().cloned().unwrap_or_default();
///     ash::Client::new(&host).call("greet", params, ash::MAX_RETRIES, ash::RETRY_DELAY)
/// });
/// assert_eq!(greeting.await??, json!({"text": "Hello, \"Ann\"!"}));
///
/// server.stop().await;
/// assert!(!path.exists());
/// # Ok(())
/// # }
/// ```
pub struct RpcServer {
    path: PathBuf,
    methods: Arc<Methods>,
    running: Option<Running>,
}

struct Running {
    serving: JoinHandle<()>,
    /// Whoever drops the server ends it.
    stop: DropGuard,
}

impl RpcServer {
    /// A server that will listen at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), methods: Arc::default(), running: None }
    }

    /// Answers calls of `method` by `handler`, from now on. Its parameters are an object, an empty one where the call
    /// has none. A handler that panics fails its call and nothing else.
    pub fn register<F, Fut>(&self, method: impl Into<String>, handler: F)
    where
        F: Fn(Map<String, Value>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, RpcError>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |params| handler(params).boxed());
        let mut methods = self.methods.by_name.write().unwrap_or_else(PoisonError::into_inner);
        methods.insert(method.into(), handler);
    }

    /// Listens. A stale socket is replaced; one that a server listens on, this one too, is not, and neither is anything
    /// else that is there. Must be called within a tokio runtime.
    pub fn start(&mut self) -> Result<(), BindError> {
        let server = UnixServer::bind(&self.path)?;
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.run(self.methods.clone(), None, LIMITS, stop.clone()));
        self.running = Some(Running { serving, stop: stop.drop_guard() });
        Ok(())
    }

    /// Closes idle connections, lets running calls finish for ten seconds and removes the socket.
    pub async fn stop(&mut self) {
        let Some(Running { serving, stop }) = self.running.take() else { return };
        drop(stop);
        // Calls that take longer go on; nobody waits for them.
        let _ = tokio::time::timeout(GRACE, serving).await;
    }

    pub fn is_running(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.serving.is_finished())
    }

    pub fn socket_path(&self) -> &Path {
        &self.path
    }
}

type Handler =
    Arc<dyn Fn(Map<String, Value>) -> BoxFuture<'static, Result<Value, RpcError>> + Send + Sync>;

#[derive(Default)]
struct Methods {
    by_name: RwLock<HashMap<String, Handler>>,
    freight: Arc<Freight>,
}

impl Methods {
    /// Carries out one call; `None` for a notification.
    async fn one(&self, request: Result<Request<'_>, RpcError>) -> Option<Vec<u8>> {
        let Request { id, method, params, .. } = match request {
            Ok(request) => request,
            Err(error) => return Some(error_body(None, &error)),
        };
        let result = self.result(&method, params).await;
        let id = id?;
        let body = result.and_then(|result| encode(Some(&id), &result));
        Some(body.unwrap_or_else(|error| error_body(Some(&id), &error)))
    }

    async fn result(&self, method: &str, params: Option<&str>) -> Result<Value, RpcError> {
        let handler = {
            let methods = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
            methods.get(method).cloned()
        };
        let handler = handler.ok_or_else(|| RpcError::method_not_found(method))?;
        let params = match params {
            None => Map::new(),
            Some(params) => serde_json::from_str(params)
                .map_err(|_| RpcError::invalid_params("params must be an object"))?,
        };
        guarded(method, async { handler(params).await }).await
    }
}

impl Host for Methods {
    async fn handle(self: &Arc<Self>, caller: Caller, message: &[u8]) -> Reply {
        match envelope::parse(message) {
            Err(error) => {
                Reply { body: Some(error_body(None, &error)), class: Class::Malformed, load: None }
            }
            Ok(Incoming::Single(request)) => {
                let id = request.id.clone();
                let body = self.one(Ok(request)).await;
                settle(&self.freight, &caller, id.as_ref(), body, Class::Answered)
            }
            Ok(Incoming::Batch(batch)) => {
                let room = Room::new(caller.answer_bytes_max, self.freight.load(&caller.requester));
                let answers = batch.into_iter().map(async |element| {
                    let id = element.as_ref().ok().and_then(|request| request.id.clone());
                    let body = self.one(element).await?;
                    Some(room.take(body).unwrap_or_else(|error| error_body(id.as_ref(), &error)))
                });
                let bodies = join_all(answers).await;
                room.reply(bodies.into_iter().flatten().collect())
            }
        }
    }

    fn for_connection(self: &Arc<Self>) -> Arc<Self> {
        self.clone()
    }

    fn freight(&self) -> &Arc<Freight> {
        &self.freight
    }
}

#[cfg(test)]
mod tests;
