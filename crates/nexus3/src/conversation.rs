//! `nexus3` without a command: the conversation, on a terminal or piped.

mod settings;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _};
use nexus_terminal::options::{Options, ServerChoice, SessionChoice};

use crate::cli::{Cli, ExecArgs, ServeOptions, first};
use crate::output::say;
use crate::serve::socket_candidates;
use crate::{exec, input, rpc, wiring};
use settings::Surroundings;

/// What the conversation is begun with.
#[derive(Args, Clone, Debug, Default)]
pub struct TerminalArgs {
    /// Begin a new session without asking
    #[arg(long, group = "which")]
    pub fresh: bool,
    /// Begin a new session that is gone with the server
    #[arg(long, group = "which")]
    pub temp: bool,
    /// Go on with the session that changed last, of this directory if there is one
    #[arg(long, group = "which")]
    pub resume: bool,
    /// Go on with this agent or saved session
    #[arg(long, value_name = "NAME", group = "which")]
    pub session: Option<String>,
    /// Talk to a server that runs, that at the URL or one to be chosen, and start none
    #[arg(long, value_name = "URL", num_args = 0..=1, value_parser = of_this_machine)]
    pub connect: Option<Option<String>>,
    /// With --connect: the agent to talk to; main when absent and a URL is named
    #[arg(long, value_name = "ID", requires = "connect", conflicts_with = "which")]
    pub agent: Option<String>,
    /// With --connect: the token, instead of the one that is found
    #[arg(long, value_name = "KEY", requires = "connect")]
    pub api_key: Option<String>,
    /// With --connect and no URL: ports to look at besides, as 8000-8100,9000
    #[arg(long, value_name = "PORTS", requires = "connect", value_parser = rpc::ports)]
    pub scan: Option<rpc::Ports>,
    /// Start a server of its own although one runs
    #[arg(long, conflicts_with = "connect")]
    pub own: bool,
    /// Working directory of agents that are made
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Permission preset of agents that are made; terminal.preset of the configuration, or trusted, when absent
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// File with the system prompt of the agent that is made
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// Lines and words alone: no colours, no keys, nothing drawn twice
    #[arg(long)]
    pub plain: bool,
    /// No colours
    #[arg(long)]
    pub no_color: bool,
    /// Write a configuration and instructions to begin with into the home, and end
    #[arg(long, exclusive = true)]
    pub init_global: bool,
    /// The same, in place of those that are there
    #[arg(long, exclusive = true)]
    pub init_global_force: bool,
}

/// Talks with a person, or carries out one turn where none is there.
pub fn run(args: TerminalArgs, serve: ServeOptions) -> anyhow::Result<ExitCode> {
    if args.init_global || args.init_global_force {
        return init_global(args.init_global_force);
    }
    let is_piped = !std::io::stdin().is_terminal();
    if let Some(why) = refusal(&args, &serve, is_piped) {
        Cli::command().error(ErrorKind::ArgumentConflict, why).print()?;
        return Ok(ExitCode::from(2));
    }
    if is_piped {
        return crate::on_runtime(exec::exec(piped(args, serve)));
    }
    let options = options(args, &serve.with_environment()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(nexus_terminal::run(options))?;
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}

fn init_global(is_forced: bool) -> anyhow::Result<ExitCode> {
    let written = nexus_terminal::init_global(&wiring::home()?, is_forced, "--init-global-force");
    for line in written.map_err(anyhow::Error::msg)? {
        say(format!("{line}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Why a flag is refused: nothing would come of it.
fn refusal(args: &TerminalArgs, serve: &ServeOptions, is_piped: bool) -> Option<String> {
    if let Some(option) = serve.of_serving() {
        return Some(format!(
            "{option} says how to serve, and nothing says to: put it behind nexus3 serve"
        ));
    }
    let of_a_server = serve.of_a_started_server();
    if is_piped {
        let of_a_person = [
            ("--resume", args.resume),
            ("--connect", args.connect.is_some()),
            ("--own", args.own),
            ("--template", args.template.is_some()),
        ];
        if let Some(option) = first(of_a_person) {
            return Some(format!(
                "{option} needs a terminal as standard input; what is piped in is one turn, as by nexus3 exec"
            ));
        }
        return of_a_server.map(|option| {
            format!(
                "{option} says how to serve, and what is piped in is one turn without a server: \
                 put it behind nexus3 serve"
            )
        });
    }
    if !matches!(args.connect, Some(Some(_))) {
        return None;
    }
    if args.scan.is_some() {
        return Some("--scan looks for servers, and --connect names one".into());
    }
    of_a_server.map(|option| {
        format!("{option} is for a server that is started, and --connect starts none")
    })
}

/// One turn of what is piped in.
fn piped(args: TerminalArgs, serve: ServeOptions) -> ExecArgs {
    ExecArgs {
        prompt: Some("-".into()),
        model: serve.model,
        preset: args.preset,
        approve: None,
        cwd: args.cwd,
        agent: args.session,
        attach: Vec::new(),
        timeout: None,
        json: false,
    }
}

/// What `--connect` takes: the terminal shows what a server says and sends it what a person types, so both stay here.
fn of_this_machine(url: &str) -> Result<String, String> {
    match nexus_client::is_of_this_machine(url) {
        Ok(true) => Ok(url.into()),
        Ok(false) => Err("servers are on this machine: http://127.0.0.1:PORT, http://localhost:PORT or http://[::1]:PORT".into()),
        Err(why) => Err(why),
    }
}

fn options(args: TerminalArgs, serve: &ServeOptions) -> anyhow::Result<Options> {
    let home = wiring::home()?;
    let config = wiring::load_config(&home, serve.model.clone())?;
    let here = std::env::current_dir().context("the working directory")?;
    let cwd = match &args.cwd {
        Some(cwd) => here.join(cwd).canonicalize().with_context(|| format!("{}", cwd.display()))?,
        None => here,
    };
    let system_prompt = args.template.as_deref().map(template).transpose()?;
    let around = Surroundings {
        variable: &|name| std::env::var_os(name),
        is_shown: std::io::stdout().is_terminal(),
    };
    let settings = settings::settings(&config.terminal, &args, &around)?;
    Ok(Options {
        cwd,
        has_cwd: args.cwd.is_some(),
        program: std::env::current_exe().context("this program")?,
        sockets: match serve.no_socket {
            true => Vec::new(),
            false => socket_candidates(&config, serve.sockets.own.as_ref()),
        },
        ports: vec![config.server.port, nexus_client::PORT_DEFAULT],
        server_arguments: server_arguments(serve),
        server: server(&args),
        session: session(&args),
        model: serve.model.clone(),
        preset: args.preset,
        system_prompt,
        settings,
        home,
    })
}

fn template(file: &Path) -> anyhow::Result<String> {
    let name = file.display().to_string();
    let opened = std::fs::File::open(file).with_context(|| name.clone())?;
    input::read_all(opened, &name)
}

fn server(args: &TerminalArgs) -> ServerChoice {
    let token = args.api_key.clone();
    match &args.connect {
        None if args.own => ServerChoice::Own { port: None },
        None => ServerChoice::Any,
        Some(Some(url)) => ServerChoice::At { url: url.clone(), token },
        Some(None) => {
            let ports = args.scan.clone().map_or_else(Vec::new, |it| it.0);
            ServerChoice::Found { ports, token }
        }
    }
}

fn session(args: &TerminalArgs) -> SessionChoice {
    match (&args.session, &args.agent, &args.connect) {
        (Some(name), ..) => SessionChoice::Named(name.clone()),
        (None, Some(agent), _) => SessionChoice::Named(agent.clone()),
        (None, None, Some(Some(_))) => SessionChoice::Named("main".into()),
        _ if args.resume => SessionChoice::Last,
        _ if args.fresh || args.temp => SessionChoice::Fresh { is_temporary: args.temp },
        _ => SessionChoice::Lobby,
    }
}

/// What a server that the terminal starts is told.
fn server_arguments(serve: &ServeOptions) -> Vec<String> {
    let mut arguments = Vec::new();
    if let Some(socket) = &serve.sockets.own {
        arguments.extend(["--socket".to_owned(), socket.display().to_string()]);
    }
    if let Some(dir) = &serve.log_dir {
        arguments.extend(["--log-dir".to_owned(), dir.display().to_string()]);
    }
    for (name, is_given) in [
        ("--no-socket", serve.no_socket),
        ("--no-auth", serve.no_auth),
        ("--verbose", serve.verbose),
        ("--raw-log", serve.raw_log),
    ] {
        if is_given {
            arguments.push(name.into());
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// What is said on a terminal to these flags; nothing when they are taken.
    fn check(line: &[&str], expected: Option<&str>) {
        let cli = Cli::try_parse_from([&["nexus3"], line].concat()).unwrap();
        assert_eq!(refusal(&cli.terminal, &cli.options, false).as_deref(), expected, "{line:?}");
    }

    #[test]
    fn the_model_is_for_agents_that_are_made_and_no_server_is_told() {
        let cli = Cli::try_parse_from(["nexus3", "-m", "opus", "--no-auth"]).unwrap();
        assert_eq!(server_arguments(&cli.options), ["--no-auth"]);
    }

    #[test]
    fn on_a_terminal_flags_are_taken_that_something_comes_of() {
        const URL: &str = "http://127.0.0.1:8765";
        let server = ["-v", "--raw-log", "--no-auth", "--no-socket", "--log-dir", "logs"];
        check(&[], None);
        check(&["--resume", "--template", "prompt.md", "--plain"], None);
        check(&server, None);
        check(&[&["--own"], &server[..]].concat(), None);
        check(&["--connect", "--scan", "8000-8100", "--socket", "/tmp/x"], None);
        check(&["--connect", URL, "--agent", "a", "--api-key", "k", "-m", "x"], None);
        check(
            &["--connect", URL, "--scan", "9000"],
            Some("--scan looks for servers, and --connect names one"),
        );
        check(
            &["--connect", URL, "--no-auth"],
            Some("--no-auth is for a server that is started, and --connect starts none"),
        );
        check(
            &["--metrics", "0", "--fresh"],
            Some("--metrics says how to serve, and nothing says to: put it behind nexus3 serve"),
        );
    }
}
