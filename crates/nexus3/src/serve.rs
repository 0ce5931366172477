//! `nexus3 serve` and `nexus3 --stdio`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nexus_config::Config;
use nexus_core::store::{Contact, Store};
use nexus_core::{AgentId, paths};
use nexus_server::auth::{self, Auth, TokenFile};
use nexus_server::behalf::Door;
use nexus_server::descriptors;
use nexus_server::transport::http::{HttpServer, Limits};
use nexus_server::transport::scrape::MetricsServer;
use nexus_server::transport::stdio;
use nexus_server::transport::unix::{self, BindError, UnixServer};
use nexus_store::agent_logs::{AgentLogFiles, Options as LogOptions};
use nexus_tools::sandbox::Launcher;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::ServeOptions;
use crate::greet;
use crate::home;
use crate::logging::{self, Log};
use crate::port::{InUse, Port};
use crate::signals::Signals;
use crate::standard;
use crate::terminal::{self, AnotherRuns, Started};
use crate::wiring::{self, Logs, OpenStore, Wired};

/// Where sandboxed programs look for the socket.
const DEFAULT_SOCKET: &str = "/run/ash/rpc.sock";

/// Connections that do not end after the turns' grace period are left behind after this long.
const CONNECTIONS_GRACE: Duration = Duration::from_secs(2);

/// Who is there when the server starts.
pub enum Company<'a> {
    Nobody,
    /// A person who is shown that the model answers.
    Greeted,
    /// The terminal that started it.
    Terminal(&'a mut Started),
}

pub async fn serve(
    port: Option<u16>,
    company: Company<'_>,
    options: ServeOptions,
    open_store: OpenStore<'_>,
) -> anyhow::Result<ExitCode> {
    let greets = matches!(company, Company::Greeted);
    let terminal = match company {
        Company::Terminal(started) => Some(started),
        Company::Nobody | Company::Greeted => None,
    };
    let mut signals = match terminal {
        Some(_) => Signals::listen_beside_terminal()?,
        None => Signals::listen()?,
    };
    let home = wiring::home()?;
    let mut config = wiring::load_config(&home, options.model.clone())?;
    if terminal.is_some() {
        config.permissions.ask_who_watches();
    }
    // Whoever can connect is then the administrator, and an agent's command must not be.
    config.permissions.network &= !options.no_auth;
    let (agent_logs, log) = start_logs(&home, &options)?;
    config.server.max_connections = connections_max(&config);
    // The port first: a second server on it must fail before it touches anything.
    let host = options.host.as_deref().unwrap_or(&config.server.host);
    // A terminal that names no port wants the one server of its home.
    let only = terminal.is_some() && port.is_none();
    let port = match only {
        true => usual_or_free(&home, host, config.server.port).await?,
        false => Port::take(host, port.unwrap_or(config.server.port))?,
    };
    let address = port.address();
    let metrics = metrics_port(&config, &options)?;
    let socket = match open_socket(&config, &options) {
        Err(BindError::Live(path)) if only => bail!(AnotherRuns::at_socket(&path)),
        Err(error @ BindError::Live(_)) if terminal.is_some() => {
            tracing::warn!("running without a socket: {error}");
            None
        }
        socket => socket?,
    };
    let doors = open_doors(&options)?;
    let wired = wire(open_store, &home, &config, &agent_logs, &log).await?;
    let token = if options.no_auth { None } else { Some(auth::generate_token()?) };
    let token_file =
        token.as_ref().map(|token| TokenFile::write(&home, address.port(), token)).transpose();
    let token_file = token_file
        .with_context(|| format!("the token file in {} cannot be written", home.display()))?;
    if greets && !greet::equip(&wired, &wiring::models_dir(&home)?, &mut signals).await {
        return close(&wired, Some(&agent_logs.files)).await.map(|()| ExitCode::SUCCESS);
    }
    // After the token: who waits for the port and then reads the file must not find that of a server that died.
    let listeners = port.listen()?;
    let stop = CancellationToken::new();
    let metrics = serve_metrics(metrics, &wired, &stop)?;
    announce(
        address,
        token_file.as_ref().map(TokenFile::path),
        socket.as_ref().map(UnixServer::path),
        &wired.models(),
    );

    let contact = Contact {
        url: Some(format!("http://{address}")),
        socket: socket.as_ref().map(|socket| socket.path().to_path_buf()),
    };
    let _ = wired.dispatcher.services().site.contact.set(contact.clone());
    tokio::spawn(be_found(wired.engine.store.clone(), contact.clone()));

    let agents = wired.engine.agents.clone();
    let born = move |id: AgentId| agents.clone().birth(id);
    let server = HttpServer::new(
        listeners,
        wired.dispatcher.clone(),
        Auth::new(token, wired.agent_tokens.clone(), born)
            .counting(wired.dispatcher.services().failures.clone()),
        limits(&config),
        crate::doors::open(&config, &wired, &stop),
    )
    .with_websocket(config.doors.websocket);
    let http = tokio::spawn(server.run(stop.clone()));
    let mut others = serve_sockets(socket, doors, &wired, &config, &stop);
    others.extend(metrics);
    let mut company = match terminal {
        Some(started) => {
            let token_file = token_file.as_ref().map(TokenFile::path);
            let (company, answered) =
                started.begin(&wired, address.port(), &contact, token_file, &stop)?;
            others.push(answered);
            Some(company)
        }
        None => None,
    };
    let left = terminal::left(company.as_mut(), &wired);
    let greeting = async {
        if greets {
            // The conversation stands below what the server said of itself.
            log.flush();
            greet::greet(&wired).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = signals.next() => {}
        () = wired.engine.agents.stop_requested().cancelled() => {}
        () = greeting => {}
        () = left => {}
    }
    tracing::info!("stopping");
    // Before the port is free: who starts next on this home is the one that is to be found.
    drop(company);
    stop.cancel();
    let ending = async {
        end_turns(&wired, config.server.shutdown_grace).await;
        let connections = async {
            let _ = http.await;
            for other in others {
                let _ = other.await;
            }
        };
        let _ = tokio::time::timeout(CONNECTIONS_GRACE, connections).await;
        drop(token_file);
        close(&wired, Some(&agent_logs.files)).await
    };
    tokio::select! {
        ended = ending => ended.map(|()| ExitCode::SUCCESS),
        () = signals.next() => bail!("stopped at once, on a second signal"),
    }
}

pub async fn stdio(options: ServeOptions, open_store: OpenStore<'_>) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let home = wiring::home()?;
    let mut config = wiring::load_config(&home, options.model.clone())?;
    let (agent_logs, log) = start_logs(&home, &options)?;
    config.server.max_connections = connections_max(&config);
    let metrics = metrics_port(&config, &options)?;
    let socket = match &options.sockets.own {
        Some(_) => open_socket(&config, &options)?,
        None => None,
    };
    let doors = open_doors(&options)?;
    let wired = wire(open_store, &home, &config, &agent_logs, &log).await?;
    tracing::info!(models = wired.models(), "serving standard input");
    let stop = CancellationToken::new();
    let mut others = serve_sockets(socket, doors, &wired, &config, &stop);
    others.extend(serve_metrics(metrics, &wired, &stop)?);
    let parent = stdio::serve(
        wired.dispatcher.clone(),
        standard::input(),
        standard::output(),
        config.server.answer_bytes_max,
        stop.clone(),
    );
    let grace = tokio::select! {
        // The parent is gone or wants no more: nobody waits for what still runs.
        () = parent.gone.cancelled() => Duration::ZERO,
        () = signals.next() => config.server.shutdown_grace,
        () = wired.engine.agents.stop_requested().cancelled() => config.server.shutdown_grace,
    };
    stop.cancel();
    end_turns(&wired, grace).await;
    let answered = async {
        let _ = parent.answered.await;
        for other in others {
            let _ = other.await;
        }
    };
    let _ = tokio::time::timeout(CONNECTIONS_GRACE, answered).await;
    close(&wired, Some(&agent_logs.files)).await?;
    Ok(ExitCode::SUCCESS)
}

/// The usual port; a free one where something else has that, unless it is a server of this home.
async fn usual_or_free(home: &Path, host: &str, usual: u16) -> anyhow::Result<Port> {
    match Port::take(host, usual) {
        Err(error) if error.is::<InUse>() => {
            if let Some(other) = terminal::server_of(home, usual).await {
                bail!(other);
            }
            tracing::warn!("port {usual} is somebody else's: a free one is taken");
            Port::take(host, 0)
        }
        port => port,
    }
}

/// Lets turns come to their end, and then those who watch.
async fn end_turns(wired: &Wired, grace: Duration) {
    let watches = wired.engine.watching.watches();
    watches.stopping(grace);
    wired.engine.turns.stop(grace).await;
    watches.close();
}

async fn wire(
    open_store: OpenStore<'_>,
    home: &Path,
    config: &Config,
    agent_logs: &AgentLogs,
    log: &Log,
) -> anyhow::Result<Wired> {
    let logs = Logs {
        agents: Arc::new(agent_logs.files.clone()),
        agents_dir: Some(agent_logs.dir.clone()),
        calls: log.calls(),
    };
    let store = open_store(home)?;
    let wired =
        wiring::wire_on(store, home, &wiring::cwd()?, config, logs, Launcher::own()).await?;
    wired.engine.servers.start();
    Ok(wired)
}

/// Serves the owner's socket, and those for one identity.
fn serve_sockets(
    own: Option<UnixServer>,
    doors: Vec<(UnixServer, Arc<Door>)>,
    wired: &Wired,
    config: &Config,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let limits = unix::Limits {
        connections_max: config.server.max_connections,
        idle_timeout: config.server.socket_idle_timeout,
    };
    let own = own.map(|socket| (socket, None));
    let doors = doors.into_iter().map(|(socket, door)| (socket, Some(door)));
    own.into_iter()
        .chain(doors)
        .map(|(socket, door)| {
            tokio::spawn(socket.run(wired.dispatcher.clone(), door, limits, stop.clone()))
        })
        .collect()
}

/// The port for figures, where one was asked for.
fn metrics_port(config: &Config, options: &ServeOptions) -> anyhow::Result<Option<Port>> {
    let port = options.metrics.or(config.server.metrics_port);
    let take = |port| Port::take("127.0.0.1", port).context("the port for metrics");
    port.map(take).transpose()
}

fn serve_metrics(
    port: Option<Port>,
    wired: &Wired,
    stop: &CancellationToken,
) -> anyhow::Result<Option<JoinHandle<()>>> {
    let Some(port) = port else { return Ok(None) };
    let url = format!("http://{}/metrics", port.address());
    let server = MetricsServer::new(port.listen()?, wired.dispatcher.clone());
    tracing::info!(url, "serving metrics");
    Ok(Some(tokio::spawn(server.run(stop.clone()))))
}

/// Everything on disk, then the traces and the logs.
pub async fn close(wired: &Wired, agent_logs: Option<&AgentLogFiles>) -> anyhow::Result<()> {
    let closed = wired.engine.close().await;
    wired.traces.close().await;
    if let Some(logs) = agent_logs.cloned() {
        let _ = tokio::task::spawn_blocking(move || logs.flush()).await;
    }
    closed.context("the store could not be closed")
}

/// The agents' logs and where they lie.
struct AgentLogs {
    files: AgentLogFiles,
    dir: PathBuf,
}

/// Starts the logs: of the agents, and of the server, in which the first thing may be a warning.
fn start_logs(home: &Path, options: &ServeOptions) -> anyhow::Result<(AgentLogs, Log)> {
    let dir = log_dir(home, options)?;
    let logs = LogOptions { dir: dir.clone(), verbose: options.verbose, raw: options.raw_log };
    let files =
        AgentLogFiles::start(logs).context("the thread of the agents' logs cannot be started")?;
    let log = logging::init(options.log_format, options.verbose, &files);
    if let Some(warning) = home::warning(home) {
        tracing::warn!("{warning}");
    }
    Ok((AgentLogs { files, dir }, log))
}

/// Where the agents' logs lie, free of links: a person may name one, and whatever stands there later is none of ours.
fn log_dir(home: &Path, options: &ServeOptions) -> anyhow::Result<PathBuf> {
    let Some(named) = &options.log_dir else {
        return Ok(home.canonicalize().unwrap_or_else(|_| home.to_path_buf()).join("logs"));
    };
    let cwd = wiring::cwd()?;
    let named = named.to_str().context("--log-dir: the path is not UTF-8")?;
    let dir = paths::place(&cwd, named).context("--log-dir")?;
    ensure!(
        !cwd.canonicalize()?.starts_with(&dir),
        "--log-dir: {} holds the directory that agents work in, and logs are closed to them; name another",
        dir.display()
    );
    Ok(dir)
}

/// The Unix socket. One that was asked for must be had; the default one is a courtesy.
fn open_socket(config: &Config, options: &ServeOptions) -> Result<Option<UnixServer>, BindError> {
    if options.no_socket {
        return Ok(None);
    }
    if let Some(path) = options.sockets.own.as_ref().or(config.server.socket.as_ref()) {
        return Ok(Some(UnixServer::bind(path)?));
    }
    for path in default_sockets() {
        match UnixServer::bind(&path) {
            Ok(server) => return Ok(Some(server)),
            Err(error @ BindError::Io { .. }) => {
                tracing::warn!("{:#}", anyhow::anyhow!(error))
            }
            Err(error) => {
                tracing::warn!("running without a socket: {error}");
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// Where a server is looked for whose socket is there, or where the configuration says.
pub fn socket_candidates(config: &Config, named: Option<&PathBuf>) -> Vec<PathBuf> {
    match named.or(config.server.socket.as_ref()) {
        Some(path) => vec![path.clone()],
        None => default_sockets(),
    }
}

fn default_sockets() -> Vec<PathBuf> {
    let fallback = std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|dir| !dir.is_empty())
        .map(|dir| PathBuf::from(dir).join("ash").join("rpc.sock"));
    [Some(PathBuf::from(DEFAULT_SOCKET)), fallback].into_iter().flatten().collect()
}

/// The sockets for one identity each. All of them were asked for.
fn open_doors(options: &ServeOptions) -> anyhow::Result<Vec<(UnixServer, Arc<Door>)>> {
    let doors = options.sockets.doors.iter();
    doors.map(|(path, door)| Ok((UnixServer::bind(path)?, Arc::new(door.clone())))).collect()
}

/// Lets other processes on the home tell their callers where the agents of this one are to be had.
async fn be_found(store: Arc<dyn Store>, contact: Contact) {
    if let Err(error) = store.announce(contact).await {
        tracing::warn!(%error, "other processes on this home cannot say how to reach this one");
    }
}

fn announce(address: SocketAddr, token_file: Option<&Path>, socket: Option<&Path>, models: &str) {
    let text = |path: Option<&Path>| path.map(|path| path.display().to_string());
    if token_file.is_none() {
        tracing::warn!(
            "running WITHOUT A TOKEN (--no-auth): anyone on this machine can drive this server; agents' commands get no network. Start it without --no-auth to have one"
        );
    }
    tracing::info!(
        url = format!("http://{address}"),
        token_file = text(token_file),
        socket = text(socket),
        models,
        "listening"
    );
}

fn limits(config: &Config) -> Limits {
    let server = &config.server;
    Limits {
        body_bytes_max: server.body_bytes_max,
        answer_bytes_max: server.answer_bytes_max,
        header_bytes_max: server.header_bytes_max,
        header_count_max: server.header_count_max,
        read_timeout: server.request_read_timeout,
        connections_max: server.max_connections,
    }
}

/// Connections that each listener may have: no more than the process has descriptors for.
fn connections_max(config: &Config) -> usize {
    let (wanted, limit) = (config.server.max_connections, descriptors::raise());
    let most = descriptors::connections_max(wanted, limit);
    if most < wanted {
        tracing::warn!(
            "only {most} of {wanted} connections are taken: this process may have {limit} open files (ulimit -n)"
        );
    }
    most
}
