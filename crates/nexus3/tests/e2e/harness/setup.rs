//! What a server is started with.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use nexus_testkit::ScriptedModel;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::process::{self, Output};
use super::{Server, Stdio};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_nexus3");

/// Where a server lives: a directory of its own, and the model it asks.
pub struct World {
    dir: TempDir,
    pub model: ScriptedModel,
}

impl World {
    /// A path directly below the world's directory, which is also the server's `HOME`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `NEXUS3_HOME`.
    pub fn home(&self) -> PathBuf {
        self.path(".nexus3")
    }

    /// The server's working directory.
    pub fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// Where the server opens its socket unless told otherwise. Its directory is left to the server to make.
    pub fn socket(&self) -> PathBuf {
        self.path("run").join("rpc.sock")
    }

    /// The program with `args`, in this world.
    pub fn command<S: Into<OsString>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        self.command_of(PROGRAM, args)
    }

    /// The same as the first process of a session whose terminal is its standard input.
    pub fn command_on_terminal<S: Into<OsString>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        let all = [OsString::from("-c"), PROGRAM.into()].into_iter();
        self.command_of("setsid", all.chain(args.into_iter().map(Into::into)))
    }

    /// A shell as the first process of such a session, in which `$0` is the program.
    pub fn shell_on_terminal(&self, script: &str) -> Command {
        self.command_of("setsid", ["-c", "sh", "-c", script, PROGRAM])
    }

    /// A shell that runs `script`, in which `$0` is the program.
    pub fn shell(&self, script: &str) -> Command {
        self.command_of("sh", ["-c", script, PROGRAM])
    }

    fn command_of<S: Into<OsString>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        process::command(program, self.dir.path(), &self.home(), &self.work(), args)
    }
}

/// How the scripted model is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    #[default]
    OpenAi,
    Anthropic,
}

/// The variable and the value of the key that an Anthropic provider needs.
pub const KEY: (&str, &str) = ("SCRIPTED_KEY", "sk-ant-scripted-0123456789abcdef");

/// What the command line says of the socket.
#[derive(Clone, Default)]
enum Socket {
    #[default]
    OfTheWorld,
    At(PathBuf),
    Off,
    Unsaid,
}

/// What a server is started with, where it differs from the usual.
#[derive(Clone, Default)]
pub struct Setup {
    provider: Provider,
    provider_keys: Value,
    config: Value,
    unconfigured: bool,
    port: u16,
    socket: Socket,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    ulimit: Option<&'static str>,
}

impl Setup {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn provider(mut self, provider: Provider) -> Self {
        self.provider = provider;
        self
    }

    /// Keys of the provider in the configuration, such as `max_retries`.
    pub fn provider_keys(mut self, keys: Value) -> Self {
        merge(&mut self.provider_keys, keys);
        self
    }

    /// Keys of the `server` section.
    pub fn server(self, keys: Value) -> Self {
        self.config(json!({"server": keys}))
    }

    /// Any keys of the configuration.
    pub fn config(mut self, keys: Value) -> Self {
        merge(&mut self.config, keys);
        self
    }

    /// No configuration file, no provider, and no home directory before the program makes it.
    pub fn unconfigured(mut self) -> Self {
        self.unconfigured = true;
        self
    }

    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    pub fn no_socket(mut self) -> Self {
        self.socket = Socket::Off;
        self
    }

    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Socket::At(path.into());
        self
    }

    /// Nothing on the command line. Then the environment or the configuration must say where the socket is: the
    /// default place is outside of the world.
    pub fn unsaid_socket(mut self) -> Self {
        self.socket = Socket::Unsaid;
        self
    }

    /// A further argument of the command line.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Limits of its process, as the shell's `ulimit` takes them.
    pub fn ulimit(mut self, arguments: &'static str) -> Self {
        self.ulimit = Some(arguments);
        self
    }

    /// A fresh world with this configuration.
    pub async fn world(&self) -> Arc<World> {
        let world =
            World { dir: tempfile::tempdir().unwrap(), model: ScriptedModel::start().await };
        fs::create_dir(world.work()).unwrap();
        if !self.unconfigured {
            fs::DirBuilder::new().mode(0o700).create(world.home()).unwrap();
            let config = self.config_text(&world);
            fs::write(world.home().join("config.json"), config).unwrap();
        }
        Arc::new(world)
    }

    /// Starts a server in a fresh world.
    pub async fn start(self) -> Server {
        let world = self.world().await;
        self.start_in(&world).await
    }

    /// Starts a server in a world that may have another one. The world keeps the configuration it was made with.
    pub async fn start_in(self, world: &Arc<World>) -> Server {
        Server::start_with(self, world.clone()).await
    }

    /// Starts a server that is expected to give up.
    pub async fn fails_in(self, world: &World) -> Output {
        process::run(self.command(world)).await
    }

    /// Starts `nexus3 --stdio` in a fresh world. It opens a socket only when told where, below the world's directory.
    pub async fn stdio(self) -> Stdio {
        let world = self.world().await;
        self.stdio_in(&world)
    }

    /// The same in a world that may have a server.
    pub fn stdio_in(self, world: &Arc<World>) -> Stdio {
        let mut command = world.command(["--stdio"]);
        if let Socket::At(path) = &self.socket {
            command.arg("--socket").arg(world.path("").join(path));
        }
        command.args(&self.args).envs(self.env.iter().cloned()).env(KEY.0, KEY.1);
        Stdio::start(command, world.clone())
    }

    /// `nexus3 serve --terminal` in a world, but for its standard input.
    pub fn terminal_server(&self, world: &World) -> Command {
        let mut command = world.command(["serve", "--terminal"]);
        match &self.socket {
            Socket::OfTheWorld => command.arg("--socket").arg(world.socket()),
            Socket::At(path) => command.arg("--socket").arg(path),
            Socket::Off | Socket::Unsaid => command.arg("--no-socket"),
        };
        command.args(&self.args).envs(self.env.iter().cloned()).env(KEY.0, KEY.1);
        command
    }

    pub(super) fn command(&self, world: &World) -> Command {
        let mut command = match self.ulimit {
            Some(arguments) => world.shell(&format!("ulimit {arguments} && exec \"$0\" \"$@\"")),
            None => world.command([""; 0]),
        };
        command.arg("serve").arg(self.port.to_string());
        match &self.socket {
            Socket::OfTheWorld => command.arg("--socket").arg(world.socket()),
            Socket::At(path) => command.arg("--socket").arg(path),
            Socket::Off => command.arg("--no-socket"),
            Socket::Unsaid => &mut command,
        };
        command.args(&self.args).envs(self.env.iter().cloned()).env(KEY.0, KEY.1);
        command
    }

    fn config_text(&self, world: &World) -> String {
        let mut provider = match self.provider {
            Provider::OpenAi => json!({"type": "openai"}),
            Provider::Anthropic => json!({"type": "anthropic", "api_key_env": KEY.0}),
        };
        provider["base_url"] = world.model.url().into();
        provider["models"] = json!({"scripted": {"context_window": 200_000}});
        merge(&mut provider, self.provider_keys.clone());
        let mut config = json!({"providers": {"scripted": provider}});
        merge(&mut config, self.config.clone());
        config.to_string()
    }
}

/// Objects merge, everything else replaces.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
