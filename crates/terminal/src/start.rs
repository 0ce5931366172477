//! Which server: one that runs, or one that this terminal starts.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nexus_client::discovery::PROBE_TIMEOUT;
use nexus_client::token::Environment;
use nexus_client::{
    Api as _, Auth, ChannelClient, Detection, DiscoveredServer, NexusClient, Target, UnixClient,
    discover_servers, discover_token_ports,
};
use nexus_protocol::params::NoParams;
use nexus_protocol::server::{ServerInfo, ServerInfoResult};
use nexus_protocol::terminal::ANOTHER_RUNS;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;

use crate::link::{Link, Traced};
use crate::options::{Options, ServerChoice};

/// A server that answers.
pub struct Found {
    pub link: Arc<Link>,
    pub info: ServerInfoResult,
    pub own: Option<Own>,
}

/// A server that this terminal started. It is a process of its own, and goes on when the terminal is gone.
pub struct Own {
    child: Child,
}

/// How long one that runs may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// How long one that is started may take.
const START: Duration = Duration::from_secs(30);

/// How long another that was started at the same time may take until it can be attached to.
const OTHER: Duration = Duration::from_secs(10);

/// Finds the server that the options name, or starts one.
pub async fn find(options: &Options, traced: &UnboundedSender<Traced>) -> Result<Found, String> {
    match &options.server {
        ServerChoice::At { url, token } => at(url, token.as_deref(), traced).await,
        ServerChoice::Any => match running(options, traced).await {
            Some(found) => Ok(found),
            None => start(options, traced).await,
        },
        ServerChoice::Own => start(options, traced).await,
        ServerChoice::Found { .. } => {
            let mut ready = discover(options).await;
            ready.retain(is_ready);
            match ready.as_slice() {
                [one] => at(&one.base_url, token(options), traced).await,
                [] => Err(NONE.into()),
                several => {
                    let urls: Vec<&str> = several.iter().map(|it| it.base_url.as_str()).collect();
                    Err(format!("there are several servers: --connect {}", urls.join(" or ")))
                }
            }
        }
    }
}

/// What is said where none is found and none is to be started.
pub const NONE: &str = "No server was found. nexus3 without --connect starts one.";

/// The servers on the ports of this home and those that are to be looked at besides.
pub async fn discover(options: &Options) -> Vec<DiscoveredServer> {
    let mut ports = options.ports.clone();
    ports.extend(discover_token_ports(&options.home).unwrap_or_default().into_keys());
    if let ServerChoice::Found { ports: more, .. } = &options.server {
        ports.extend(more);
    }
    ports.sort_unstable();
    ports.dedup();
    let mut environment = Environment::of_process();
    environment.home = Some(options.home.clone());
    let mut found = discover_servers("127.0.0.1", &ports, PROBE_TIMEOUT, &environment).await;
    found.retain(|server| server.detection == Detection::NexusServer);
    found
}

/// Whether it would take a call.
pub fn is_ready(server: &DiscoveredServer) -> bool {
    matches!(server.auth, Some(Auth::Ok | Auth::Disabled))
}

/// A server in a line, with how it took the token.
pub fn describe(server: &DiscoveredServer) -> String {
    let state = match server.auth {
        Some(Auth::Ok) => "[ready]",
        Some(Auth::Disabled) => "[no auth]",
        Some(Auth::Required) => "[auth required]",
        Some(Auth::InvalidToken) => "[token rejected]",
        None => "",
    };
    match server.agents.as_ref().map(|agents| agents.len()) {
        Some(1) => format!("{} {state} 1 agent", server.base_url),
        Some(agents) => format!("{} {state} {agents} agents", server.base_url),
        None => format!("{} {state}", server.base_url),
    }
}

/// The token that was given for it.
pub fn token(options: &Options) -> Option<&str> {
    match &options.server {
        ServerChoice::At { token, .. } | ServerChoice::Found { token, .. } => token.as_deref(),
        ServerChoice::Any | ServerChoice::Own => None,
    }
}

async fn at(
    url: &str,
    token: Option<&str>,
    traced: &UnboundedSender<Traced>,
) -> Result<Found, String> {
    let mut builder = NexusClient::builder().url(url);
    if let Some(token) = token {
        builder = builder.token(token);
    }
    let client = builder.build().map_err(|error| error.to_string())?;
    let link = Arc::new(Link::http(client, url.into(), traced.clone()));
    let info = ask(&link, ANSWER).await.map_err(|error| format!("{url}: {error}"))?;
    Ok(Found { link, info, own: None })
}

/// A server of this home, by its socket or one of its ports.
async fn running(options: &Options, traced: &UnboundedSender<Traced>) -> Option<Found> {
    for socket in options.sockets.iter().filter(|socket| socket.exists()) {
        let link = Arc::new(Link::unix(UnixClient::new(socket), None, traced.clone()));
        if let Ok(info) = ask(&link, ANSWER).await
            && is_home(&info, &options.home)
        {
            return Some(Found { link, info, own: None });
        }
    }
    // Where a server listens, its home has the token for it; one without a token is where it is configured to be.
    let mut ports: Vec<u16> =
        discover_token_ports(&options.home).unwrap_or_default().into_keys().collect();
    ports.extend(options.ports.iter().filter(|port| **port != 0));
    ports.sort_unstable();
    ports.dedup();
    for port in ports {
        let url = format!("http://127.0.0.1:{port}");
        if let Ok(found) = at(&url, None, traced).await
            && is_home(&found.info, &options.home)
        {
            return Some(found);
        }
    }
    None
}

/// Starts a server, whose standard input is one end of a pair of sockets. Two terminals that start at once have one.
async fn start(options: &Options, traced: &UnboundedSender<Traced>) -> Result<Found, String> {
    let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
    let mut command = Command::new(&options.program);
    command.args(["serve", "--terminal"]);
    if options.server == ServerChoice::Own {
        command.arg("0");
    }
    let spawned = command
        .args(&options.server_arguments)
        .env("NEXUS3_HOME", &options.home)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(false)
        .spawn();
    let failed = |error: std::io::Error| format!("{}: {error}", options.program.display());
    let mut child = spawned.map_err(failed)?;
    // Its own end of the pair went to the child; dropped here, its end is the end of the child.
    drop(command);
    let client = ChannelClient::from_std(ours).map_err(failed)?;
    let link = Arc::new(Link::channel(client, None, traced.clone()));
    match ask(&link, START).await {
        Ok(info) => Ok(Found { link, info, own: Some(Own { child }) }),
        Err(error) => {
            let mut said = String::new();
            if let Some(stderr) = &mut child.stderr {
                let _ = tokio::time::timeout(ANSWER, stderr.read_to_string(&mut said)).await;
            }
            let ended = tokio::time::timeout(ANSWER, child.wait()).await;
            let code = ended.ok().and_then(Result::ok).and_then(|status| status.code());
            if code == Some(i32::from(ANOTHER_RUNS))
                && let Some(found) = other(options, traced).await
            {
                return Ok(found);
            }
            let said = said.trim();
            let said = said.strip_prefix("Error: ").unwrap_or(said);
            Err(if said.is_empty() {
                format!("the server did not start: {error}")
            } else {
                said.into()
            })
        }
    }
}

/// The server that another terminal is starting.
async fn other(options: &Options, traced: &UnboundedSender<Traced>) -> Option<Found> {
    let deadline = tokio::time::Instant::now() + OTHER;
    while tokio::time::Instant::now() < deadline {
        if let Some(found) = running(options, traced).await {
            return Some(found);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

impl Own {
    /// How it ended, once its connection is lost.
    pub async fn end(mut self) -> String {
        use std::os::unix::process::ExitStatusExt as _;
        let Ok(Ok(status)) = tokio::time::timeout(ANSWER, self.child.wait()).await else {
            return "connection lost".into();
        };
        match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, code) => format!("exit code {}", code.unwrap_or_default()),
        }
    }
}

async fn ask(link: &Link, wait: Duration) -> Result<ServerInfoResult, String> {
    let asked = link.call::<ServerInfo>(&Target::Server, NoParams {});
    match tokio::time::timeout(wait, asked).await {
        Ok(Ok(info)) => Ok(info),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {wait:?}")),
    }
}

/// Another home's server has other agents.
fn is_home(info: &ServerInfoResult, home: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    real(Path::new(&info.home)) == real(home)
}
