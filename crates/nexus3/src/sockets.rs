//! The Unix sockets that the command line names: the owner's, and those that are for one identity alone or for whoever
//! brings a token.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use nexus_core::memory::{Identity, NAME_BYTES_MAX};
use nexus_server::behalf::{DOOR_METHODS, Door, Whom};

#[derive(Clone, Debug, Default)]
pub struct Sockets {
    /// Whoever can connect to it is the administrator.
    pub own: Option<PathBuf>,
    pub doors: Vec<(PathBuf, Door)>,
}

const PATH: &str = "socket";
const IDENTITY: &str = "socket_identity";
const METHODS: &str = "socket_methods";

impl Args for Sockets {
    fn augment_args(command: Command) -> Command {
        let path = Arg::new(PATH)
            .long("socket")
            .value_name("PATH")
            .action(ArgAction::Append)
            .value_parser(OsStringValueParser::new().try_map(checked))
            .help("Path of the Unix socket; without it the variable ASH_RPC_SOCKET, else server.socket of the configuration");
        let identity = Arg::new(IDENTITY)
            .long("socket-identity")
            .value_name("user=U,chat=C|token")
            .action(ArgAction::Append)
            .requires(PATH)
            .value_parser(whom)
            .help("Open the --socket before it for one identity alone, or for whoever brings a context_token, beside the server's own; may be repeated with it");
        let methods = Arg::new(METHODS)
            .long("socket-methods")
            .value_name("METHODS")
            .action(ArgAction::Append)
            .requires(IDENTITY)
            .help("What the socket before it leads to instead of memory.*: names with commas between them, beginnings with a * behind them");
        command.arg(path).arg(identity).arg(methods)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Sockets {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given: Vec<Given> =
            placed(matches, PATH).into_iter().map(|(at, path)| Given::new(at, path)).collect();
        for (at, whom) in placed::<Whom>(matches, IDENTITY) {
            let socket = before(&mut given, at, "--socket-identity")?;
            if socket.whom.replace(whom).is_some() {
                return Err(wrong("--socket-identity: a socket is for one identity"));
            }
        }
        for (at, methods) in placed::<String>(matches, METHODS) {
            let socket = before(&mut given, at, "--socket-methods")?;
            if socket.whom.is_none() {
                return Err(wrong("--socket-methods: the socket before it has no identity"));
            }
            socket.methods.extend(methods.split(',').map(|name| name.trim().to_owned()));
        }
        let mut sockets = Self::default();
        for Given { path, whom, mut methods, .. } in given {
            let Some(whom) = whom else {
                if sockets.own.replace(path).is_some() {
                    return Err(wrong("--socket: only one can be without a --socket-identity"));
                }
                continue;
            };
            if methods.is_empty() {
                methods.push(DOOR_METHODS.into());
            }
            sockets.doors.push((path, Door::new(whom, methods)));
        }
        let off = matches.try_get_one::<bool>("no_socket").ok().flatten().copied();
        if sockets.own.is_some() && off == Some(true) {
            let why = "--no-socket cannot be used with a --socket that has no identity";
            return Err(Error::raw(ErrorKind::ArgumentConflict, format!("{why}\n")));
        }
        Ok(sockets)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A socket, and where it stands on the command line.
struct Given {
    at: usize,
    path: PathBuf,
    whom: Option<Whom>,
    methods: Vec<String>,
}

impl Given {
    fn new(at: usize, path: PathBuf) -> Self {
        Self { at, path, whom: None, methods: Vec::new() }
    }
}

/// The values of an option, each with its place.
fn placed<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Vec<(usize, T)> {
    let values = matches.get_many::<T>(name).into_iter().flatten().cloned();
    matches.indices_of(name).into_iter().flatten().zip(values).collect()
}

/// The socket that stands last before an option.
fn before<'a>(given: &'a mut [Given], at: usize, option: &str) -> Result<&'a mut Given, Error> {
    let found = given.iter_mut().filter(|socket| socket.at < at).max_by_key(|socket| socket.at);
    found.ok_or_else(|| wrong(&format!("{option}: there is no --socket before it")))
}

fn wrong(why: &str) -> Error {
    Error::raw(ErrorKind::ValueValidation, format!("{why}\n"))
}

fn checked(path: OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    nexus_config::check_socket_path(&path).map(|()| path)
}

/// `user=U,chat=C`, or one of them; or `token`.
fn whom(text: &str) -> Result<Whom, String> {
    if text == "token" {
        return Ok(Whom::Bearers);
    }
    let mut identity = Identity::default();
    for part in text.split(',') {
        let (name, value) =
            part.split_once('=').ok_or("it is user=U,chat=C, one of them, or token")?;
        let place = match name.trim() {
            "user" => &mut identity.user,
            "chat" => &mut identity.chat,
            other => return Err(format!("{other} is neither user nor chat")),
        };
        if value.trim().is_empty() || value.len() > NAME_BYTES_MAX {
            return Err(format!("{name} must be 1 to {NAME_BYTES_MAX} bytes long"));
        }
        if place.replace(value.to_owned()).is_some() {
            return Err(format!("{name} is there twice"));
        }
    }
    Ok(Whom::One(identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Sockets, Error> {
        let command = Sockets::augment_args(Command::new("x")).no_binary_name(true);
        Sockets::from_arg_matches(&command.try_get_matches_from(args)?)
    }

    #[test]
    fn an_identity_belongs_to_the_socket_before_it() {
        let sockets = parse(&[
            "--socket",
            "/a",
            "--socket-identity",
            "user=u,chat=c",
            "--socket",
            "/own",
            "--socket",
            "/b",
            "--socket-identity",
            "chat=d",
            "--socket-methods",
            "memory.search, rpc.*",
            "--socket",
            "/shared",
            "--socket-identity",
            "token",
        ])
        .unwrap();
        assert_eq!(sockets.own, Some("/own".into()));
        let [(a, door), (b, other), (_, shared)] = &sockets.doors[..] else {
            panic!("{sockets:?}")
        };
        assert_eq!((a.to_str(), b.to_str()), (Some("/a"), Some("/b")));
        let who = |user: Option<&str>, chat: &str| {
            Whom::One(Identity { user: user.map(Into::into), chat: Some(chat.into()) })
        };
        assert_eq!((&door.whom, &other.whom), (&who(Some("u"), "c"), &who(None, "d")));
        assert_eq!((&shared.whom, shared.admits("list_agents")), (&Whom::Bearers, false));
        for (method, own, others) in [
            ("memory.search", true, true),
            ("memory.add", true, false),
            ("rpc.version", false, true),
            ("list_agents", false, false),
            ("memory", false, false),
        ] {
            assert_eq!((door.admits(method), other.admits(method)), (own, others), "{method}");
        }
    }

    #[test]
    fn what_belongs_to_no_socket_is_refused() {
        for args in [
            &["--socket-identity", "user=u", "--socket", "/a"][..],
            &["--socket-identity", "user=u"],
            &["--socket", "/a", "--socket", "/b"],
            &["--socket", "/a", "--socket-methods", "rpc.*"],
            &["--socket", "/a", "--socket-identity", "user=u", "--socket-identity", "user=v"],
            &["--socket", "/a", "--socket-identity", ""],
            &["--socket", "/a", "--socket-identity", "user="],
            &["--socket", "/a", "--socket-identity", "u"],
            &["--socket", "/a", "--socket-identity", "user=u,user=v"],
            &["--socket", "/a", "--socket-identity", "user=u,other=v"],
            &["--socket", "/a", "--socket-identity", "token,user=u"],
            &["--socket", "/a", "--socket-identity", "token", "--socket-identity", "user=u"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
        let long = |bytes: usize| format!("user={}", "u".repeat(bytes));
        assert!(parse(&["--socket", "/a", "--socket-identity", &long(256)]).is_ok());
        assert!(parse(&["--socket", "/a", "--socket-identity", &long(257)]).is_err());
    }
}
