//! nexus3: one binary that runs many LLM agents and lets any program drive them by JSON-RPC.
//!
//! A library only so that the end-to-end tests can wire an engine as the program does, and the fault harness can run the
//! program on a store that breaks; `main` is all the binary calls.

mod acp;
mod bare;
mod begun;
mod check;
mod cli;
mod clients;
mod conversation;
mod doctor;
pub mod doors;
mod exec;
mod greet;
mod guard;
mod home;
mod input;
mod key;
mod logging;
mod mcp;
mod meanings;
mod memory;
mod model;
mod models;
mod output;
mod plan;
mod port;
mod printed;
mod replay;
mod rpc;
mod serve;
mod session;
pub mod session_file;
mod signals;
mod sockets;
mod standard;
mod stdio_door;
mod streamed;
mod terminal;
mod trace;
mod traces;
mod unused;
pub mod wiring;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use nexus_check::{WORKER_ARGUMENT, worker_main};
use nexus_local::{WRITER_ARGUMENT, writer_main};
use nexus_store::SqliteStore;
use nexus_tools::sandbox::{LAUNCHER_ARGUMENT, close_in, confine_main};

use cli::{Cli, Command, SchemaArgs, TrustArgs};
use output::{READER_GONE, ReaderGone, complain, print, say};
use serve::Company;
use wiring::OpenStore;

pub fn main() -> ExitCode {
    // The program is also the launcher of its agents' commands, which must start quickly and touch nothing else, what
    // checks code, what runs the templates of model files, and what puts a terminal in order.
    let first = std::env::args_os().nth(1).unwrap_or_default();
    let is_launcher = first == LAUNCHER_ARGUMENT;
    // A heap of huge pages would be three times as large as what an idle server has in it. Programs inherit the choice,
    // and the built-in model needs the other one (`nexus_local`).
    let _ = rustix::thread::disable_transparent_huge_pages(!is_launcher);
    if is_launcher {
        confine_main();
    }
    if first == WORKER_ARGUMENT {
        worker_main(close_in);
    }
    if first == WRITER_ARGUMENT {
        writer_main(close_in);
    }
    if first == guard::ARGUMENT {
        return guard::main();
    }
    main_on(&SqliteStore::open, std::env::args_os())
}

/// The program with these arguments, its own name first; its servers work on the store that `open_store` opens.
pub fn main_on(open_store: OpenStore<'_>, args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(Cli::parse_from(args), open_store) {
        Ok(code) => code,
        Err(error) if error.is::<ReaderGone>() => ExitCode::from(READER_GONE),
        Err(error) => {
            complain(format_args!("Error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli, open_store: OpenStore<'_>) -> anyhow::Result<ExitCode> {
    match cli.command {
        Some(Command::Serve(args)) => {
            let options = args.options.with_environment()?;
            match args.terminal {
                true => terminal::serve(args.port, options, open_store),
                false => {
                    let company = if args.greet { Company::Greeted } else { Company::Nobody };
                    on_runtime(serve::serve(args.port, company, options, open_store))
                }
            }
        }
        Some(Command::Exec(args)) => on_runtime(exec::exec(args)),
        Some(Command::Plan(args)) => on_runtime(plan::plan(args)),
        Some(Command::RunPlan(args)) => on_runtime(plan::run_plan(args)),
        Some(Command::Rpc(args)) => on_runtime(async { Ok(rpc::run(args).await) }),
        Some(Command::Replay(args)) => on_runtime(async { Ok(replay::run(args).await) }),
        Some(Command::Trace(args)) => on_runtime(async { Ok(trace::run(args).await) }),
        Some(Command::Session(args)) => on_runtime(session::run(args)),
        Some(Command::Memory(args)) => on_runtime(memory::run(args)),
        Some(Command::Key(args)) => on_runtime(key::run(args)),
        Some(Command::Mcp(args)) => on_runtime(mcp::run(args)),
        Some(Command::Acp(args)) => on_runtime(acp::run(args)),
        Some(Command::Doors(args)) => on_runtime(clients::run(args)),
        Some(Command::Check(args)) => on_runtime(check::run(args)),
        Some(Command::Model(args)) => on_runtime(model::run(args)),
        Some(Command::Models(args)) => on_runtime(models::run(args)),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Schema(args)) => schema(&args),
        Some(Command::Trust(args)) => trust(&args),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "nexus3", &mut script);
            print(script)?;
            Ok(ExitCode::SUCCESS)
        }
        None if cli.stdio => on_runtime(serve::stdio(cli.options.with_environment()?, open_store)),
        None => match cli.serve {
            Some(port) => {
                let options = cli.options.with_environment()?;
                on_runtime(serve::serve(port, Company::Nobody, options, open_store))
            }
            None => conversation::run(cli.terminal, cli.options),
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
    } else if args.json_schema {
        format!("{:#}\n", nexus_server::json_schema::document(&methods))
    } else {
        format!("{:#}\n", nexus_server::openrpc::document(&methods))
    };
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn trust(args: &TrustArgs) -> anyhow::Result<ExitCode> {
    let home = wiring::home()?;
    let dir = args.dir.as_deref().unwrap_or_else(|| ".".as_ref());
    if args.list {
        for dir in nexus_config::trusted(&home)? {
            say(format!("{}\n", dir.display()))?;
        }
    } else if args.remove {
        let removed = nexus_config::untrust(&home, dir)?;
        print(if removed { "no longer trusted\n" } else { "was not trusted\n" })?;
    } else {
        let user_home = std::env::home_dir();
        let servers = nexus_config::servers_of_project(dir, user_home.as_deref())?;
        say(mcp::shown_for_trust(&servers))?;
        say(format!("trusted: {}\n", nexus_config::trust(&home, dir)?.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
