//! nexus3: one binary that runs many LLM agents and lets any program drive them by JSON-RPC.
//!
//! A library only so that the end-to-end tests can wire an engine as the program does; `main` is all the binary calls.

mod cli;
mod doctor;
mod exec;
mod logging;
mod rpc;
mod serve;
mod session;
pub mod wiring;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use nexus_adapters::sandbox::{LAUNCHER_ARGUMENT, confine_main};

use cli::{Cli, Command, SchemaArgs, TrustArgs};

pub fn main() -> ExitCode {
    // The program is also the launcher of its agents' commands, which must start quickly and touch nothing else.
    if std::env::args_os().nth(1).is_some_and(|first| first == LAUNCHER_ARGUMENT) {
        confine_main();
    }
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Some(Command::Serve(args)) => on_runtime(serve::serve(args.port, args.options)),
        Some(Command::Exec(args)) => on_runtime(exec::exec(args)),
        Some(Command::Rpc(args)) => on_runtime(async { Ok(rpc::run(args).await) }),
        Some(Command::Session(args)) => on_runtime(session::run(args)),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Schema(args)) => schema(&args),
        Some(Command::Trust(args)) => trust(&args),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "nexus3", &mut script);
            io::stdout().write_all(&script)?;
            Ok(ExitCode::SUCCESS)
        }
        None if cli.stdio => on_runtime(serve::stdio(cli.options)),
        None => match cli.serve {
            Some(port) => on_runtime(serve::serve(port, cli.options)),
            None => {
                Cli::command().print_help()?;
                Ok(ExitCode::from(2))
            }
        },
    }
}

fn on_runtime(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // A read of standard input that never returns must not keep the program from ending.
    runtime.shutdown_background();
    done
}

fn schema(args: &SchemaArgs) -> anyhow::Result<ExitCode> {
    let methods = nexus_server::methods();
    let text = if args.markdown {
        nexus_server::openrpc::reference(&methods)
    } else {
        format!("{:#}\n", nexus_server::openrpc::document(&methods))
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn trust(args: &TrustArgs) -> anyhow::Result<ExitCode> {
    use nexus_adapters::config;
    let home = wiring::home()?;
    let dir = args.dir.as_deref().unwrap_or_else(|| ".".as_ref());
    if args.list {
        for dir in config::trusted(&home)? {
            println!("{}", dir.display());
        }
    } else if args.remove {
        let removed = config::untrust(&home, dir)?;
        println!("{}", if removed { "no longer trusted" } else { "was not trusted" });
    } else {
        println!("trusted: {}", config::trust(&home, dir)?.display());
    }
    Ok(ExitCode::SUCCESS)
}
