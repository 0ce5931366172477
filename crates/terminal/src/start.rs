//! Which server: one that runs, or one that this terminal starts.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nexus_client::discovery::PROBE_TIMEOUT;
use nexus_client::home::{ANSWER, who_answers};
use nexus_client::token::Environment;
use nexus_client::{
    Api as _, Auth, ChannelClient, Detection, DiscoveredServer, HomeServer, NexusClient, Target,
    Way, discover_servers, discover_token_ports, find_home_server,
};
use nexus_protocol::agent::ListAgents;
use nexus_protocol::params::NoParams;
use nexus_protocol::server::{ServerInfoResult, ShutdownServer};
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

/// How long one that is started may take.
const START: Duration = Duration::from_secs(30);

/// How long another that has the place may take until it can be attached to, or is gone.
const OTHER: Duration = Duration::from_secs(40);

/// How often it is looked for before the place is tried again, and after how long each time.
const LOOKS: usize = 10;
const LOOK: Duration = Duration::from_millis(50);

/// How long one that is stopped may let its turns finish.
const STOP: Duration = Duration::from_secs(60);

/// Finds the server that the options name, or starts one.
pub async fn find(options: &Options, traced: &UnboundedSender<Traced>) -> Result<Found, String> {
    match &options.server {
        ServerChoice::At { url, token } => at(url, token.as_deref(), traced).await,
        ServerChoice::Any => match running(options, traced).await {
            Some(found) => Ok(found),
            None => start(options, traced).await,
        },
        ServerChoice::Own { .. } => start(options, traced).await,
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

/// Finds the server that the options name, or another of the same home in its place, and starts none: the one that was
/// there was somebody else's, who may be starting it again.
pub async fn find_again(
    options: &Options,
    traced: &UnboundedSender<Traced>,
) -> Result<Found, String> {
    match &options.server {
        ServerChoice::Any | ServerChoice::Own { .. } => {
            running(options, traced).await.ok_or_else(|| NONE.into())
        }
        ServerChoice::At { .. } | ServerChoice::Found { .. } => find(options, traced).await,
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
    if let Some(token) = token(options) {
        for server in found.iter_mut().filter(|server| server.auth != Some(Auth::Disabled)) {
            try_token(server, token).await;
        }
    }
    found
}

/// How the server takes the token that was given, which is the one that it would be told.
async fn try_token(server: &mut DiscoveredServer, token: &str) {
    let builder = NexusClient::builder().url(&server.base_url).token(token).timeout(ANSWER);
    let agents = match builder.build() {
        Ok(client) => client.call::<ListAgents>(&Target::Server, Default::default()).await.ok(),
        Err(_) => None,
    };
    server.auth = Some(if agents.is_some() { Auth::Ok } else { Auth::InvalidToken });
    server.agents = agents.map(|list| list.agents);
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
        ServerChoice::Any | ServerChoice::Own { .. } => None,
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
    let info = who_answers(&*link, ANSWER).await.map_err(|error| format!("{url}: {error}"))?;
    Ok(Found { link, info, own: None })
}

/// A server of this home, by its socket or one of its ports.
async fn running(options: &Options, traced: &UnboundedSender<Traced>) -> Option<Found> {
    let HomeServer { way, info } =
        find_home_server(&options.home, &options.sockets, &options.ports).await?;
    let link = match way {
        Way::Unix(client) => Link::unix(*client, info.url.clone(), traced.clone()),
        Way::Http { client, url } => Link::http(*client, url, traced.clone()),
    };
    Some(Found { link: Arc::new(link), info, own: None })
}

/// Starts a server. Two terminals that start at once have one; while one is about to stop, the next is started after it.
async fn start(options: &Options, traced: &UnboundedSender<Traced>) -> Result<Found, String> {
    let deadline = tokio::time::Instant::now() + OTHER;
    loop {
        let why = match start_once(options, traced).await {
            Ok(found) => return Ok(found),
            Err(Unstarted::Failed(why)) => return Err(why),
            Err(Unstarted::Another(why)) => why,
        };
        for _ in 0..LOOKS {
            if let Some(found) = running(options, traced).await {
                return Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
        if tokio::time::Instant::now() > deadline {
            return Err(why);
        }
    }
}

/// Why no server was started.
enum Unstarted {
    /// Another has the place, and may be starting or stopping.
    Another(String),
    Failed(String),
}

/// Starts a server, whose standard input is one end of a pair of sockets.
async fn start_once(
    options: &Options,
    traced: &UnboundedSender<Traced>,
) -> Result<Found, Unstarted> {
    let failed = |error: std::io::Error| {
        Unstarted::Failed(format!("{}: {error}", options.program.display()))
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(&options.program);
    command.args(["serve", "--terminal"]);
    if let ServerChoice::Own { port } = options.server {
        command.arg(port.unwrap_or(0).to_string());
    }
    let spawned = command
        .args(&options.server_arguments)
        .env("NEXUS3_HOME", &options.home)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(false)
        .spawn();
    let mut child = spawned.map_err(failed)?;
    // Its own end of the pair went to the child; dropped here, its end is the end of the child.
    drop(command);
    let client = ChannelClient::from_std(ours).map_err(failed)?;
    let mut link = Link::channel(client, traced.clone());
    let error = match who_answers(&link, START).await {
        Ok(info) => {
            link.url.clone_from(&info.url);
            return Ok(Found { link: Arc::new(link), info, own: Some(Own { child }) });
        }
        Err(error) => error,
    };
    let mut said = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = tokio::time::timeout(ANSWER, stderr.read_to_string(&mut said)).await;
    }
    let ended = tokio::time::timeout(ANSWER, child.wait()).await;
    let code = ended.ok().and_then(Result::ok).and_then(|status| status.code());
    let said = said.trim();
    let said = match said.strip_prefix("Error: ").unwrap_or(said) {
        "" => format!("the server did not start: {error}"),
        said => said.into(),
    };
    Err(match code == Some(i32::from(ANOTHER_RUNS)) {
        true => Unstarted::Another(said),
        false => Unstarted::Failed(said),
    })
}

/// Stops that server, and returns when its port is free.
pub async fn stop(
    options: &Options,
    url: &str,
    port: u16,
    traced: &UnboundedSender<Traced>,
) -> Result<(), String> {
    let found = at(url, token(options), traced).await?;
    let stopped = found.link.call::<ShutdownServer>(&Target::Server, NoParams {}).await;
    stopped.map_err(|error| format!("{url}: {error}"))?;
    let deadline = tokio::time::Instant::now() + STOP;
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
        if tokio::time::Instant::now() > deadline {
            return Err(format!("{url} does not stop; its turns may still run"));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
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
