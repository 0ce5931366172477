//! A server in this process, wired as the program wires its own, for targets that need one. It lives as long as the
//! process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nexus_config::Config;
use nexus_server::auth::Auth;
use nexus_server::transport::http::{self, HttpServer};
use nexus_server::transport::listeners::Listeners;
use nexus_server::transport::unix::{Limits, UnixServer};
use nexus_testkit::ScriptedModel;
use nexus_tools::sandbox::Launcher;
use nexus3::doors;
use nexus3::wiring::{self, Logs, Wired};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::must;

pub struct House {
    pub runtime: Runtime,
    pub model: ScriptedModel,
    pub wired: Wired,
    pub socket: PathBuf,
    /// The port, with every door, and what opens it.
    pub http: SocketAddr,
    /// Where agents work.
    pub work: PathBuf,
    /// Held by who has told the model what to say, until it has said it.
    script: Mutex<()>,
    _dir: TempDir,
}

impl House {
    /// Waits until nobody else has the model's ear.
    pub fn alone_with_model(&self) -> MutexGuard<'_, ()> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long anything may take before it counts as hung. No promise: a reader that ends, ends in a moment.
pub const HUNG: Duration = Duration::from_secs(60);

pub static HOUSE: LazyLock<House> = LazyLock::new(|| {
    let runtime = must(Runtime::new());
    let dir = must(tempfile::tempdir());
    let root = must(dir.path().canonicalize());
    let (home, work, socket) = (root.join("home"), root.join("work"), root.join("rpc.sock"));
    must(std::fs::create_dir(&home));
    must(std::fs::create_dir(&work));
    let (model, wired, http) = runtime.block_on(async {
        let model = ScriptedModel::start().await;
        let models = json!({"m": {"id": "m", "context_window": 100_000}});
        let provider = json!({"type": "openai", "base_url": model.url(), "auth_method": "none", "models": models});
        // Calls that are signed have their signature looked at.
        let config = json!({"default_model": "m", "providers": {"p": provider},
            "auth": {"hmac": {"mode": "optional"}}});
        must(std::fs::write(home.join("config.json"), config.to_string()));
        let config = must(Config::load(&home, &work, &|_| None));
        let launcher = Launcher::new("/bin/false".into());
        let wired = must(wiring::wire(&home, &work, &config, Logs::none(), launcher).await);
        let server = must(UnixServer::bind(&socket));
        let limits = Limits { connections_max: 64, idle_timeout: HUNG };
        tokio::spawn(server.run(wired.dispatcher.clone(), None, limits, CancellationToken::new()));
        let http = must(serve_http(&config, &wired).await);
        (model, wired, http)
    });
    House { runtime, model, wired, socket, http, work, script: Mutex::default(), _dir: dir }
});

/// Opens the doors of the port.
pub const TOKEN: &str = "nxk_fuzzed";

async fn serve_http(config: &Config, wired: &Wired) -> std::io::Result<SocketAddr> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = first.local_addr()?;
    let agents = wired.engine.agents.clone();
    let auth = Auth::new(Some(TOKEN.into()), wired.agent_tokens.clone(), move |id| {
        agents.clone().birth(id)
    });
    let limits = http::Limits {
        body_bytes_max: config.server.body_bytes_max,
        answer_bytes_max: config.server.answer_bytes_max,
        header_bytes_max: config.server.header_bytes_max,
        header_count_max: config.server.header_count_max,
        read_timeout: HUNG,
        connections_max: 64,
    };
    let stop = CancellationToken::new();
    let listeners = Listeners { first, second: None };
    let doors = doors::open(config, wired, &stop);
    let server = HttpServer::new(listeners, wired.dispatcher.clone(), auth, limits, doors);
    tokio::spawn(server.with_websocket(true).run(stop));
    Ok(address)
}
