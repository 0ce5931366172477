//! Tools that run commands, each through a launcher that holds it within the calling agent's permissions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nexus_core::permission::{Permissions, ToolClass};
use nexus_core::preview::{Preview, Program};
use nexus_core::tool::{Access, CommandKind, Invocation, Need, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use super::git::Git;
use super::typed::{TypedTool, tool};
use super::{environment, words};
use crate::sandbox::{Command, End, Launcher, Limits, Outcome, Policy, Strength};

/// How this server runs commands.
pub struct CommandSettings {
    pub launcher: Launcher,
    pub strength: Strength,
    /// What no command below `yolo` may open, whatever its agent may read: the server's own tokens and store, with
    /// which it could become the administrator.
    pub hidden: BTreeSet<PathBuf>,
    /// The server's own variables. Commands see few of them.
    pub variables: Vec<(String, String)>,
    /// How long the gate lets a tool call take.
    pub tool_timeout: Duration,
    pub limits: Limits,
}

pub fn command_tools(settings: CommandSettings) -> Vec<Arc<dyn Tool>> {
    let longest = settings.tool_timeout.saturating_sub(TIMEOUT_MARGIN).max(TIMEOUT_MIN);
    let commands = Arc::new(Commands {
        launcher: settings.launcher,
        strength: settings.strength,
        hidden: settings.hidden,
        env: environment::cleaned(settings.variables),
        tmp: std::env::temp_dir().canonicalize().ok(),
        shell: if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" },
        timeout_max: longest,
        limits: settings.limits,
    });
    vec![
        tool(Exec(commands.clone())),
        tool(BashSafe(commands.clone())),
        tool(Shell(commands.clone())),
        tool(RunPython(commands.clone())),
        tool(Git::new(commands)),
        tool(Sleep { longest }),
    ]
}

/// Enough to end a command and say so before the gate gives the call up and what was printed is lost.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(2);
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// For a command that names no time: long enough for a test run, short enough to notice one that waits for input.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);

struct Exec(Arc<Commands>);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecArgs {
    argv: Vec<String>,
    cwd: Option<String>,
    timeout_s: Option<u64>,
}

#[async_trait]
impl TypedTool for Exec {
    const NAME: &'static str = "exec";
    const DESCRIPTION: &'static str = "Run a program without a shell.";
    const CLASS: ToolClass = ToolClass::Command;
    type Args = ExecArgs;
    type Output = String;

    fn needs(&self, args: &ExecArgs) -> Result<Vec<Need>, String> {
        match args.argv.first() {
            Some(program) if !program.is_empty() => Ok(needs(args.cwd.as_deref())),
            _ => Err("argv: the program is missing".into()),
        }
    }

    async fn preview(&self, args: ExecArgs, access: Access) -> Option<Preview> {
        Some(self.0.preview(Program::Argv(args.argv), &access))
    }

    async fn run(&self, args: ExecArgs, call: Invocation) -> Result<String, String> {
        let ExecArgs { argv, timeout_s, .. } = args;
        self.0.run(Request { argv, timeout_s, ..Request::default() }, &call).await
    }
}

struct BashSafe(Arc<Commands>);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LineArgs {
    command: String,
    cwd: Option<String>,
    timeout_s: Option<u64>,
}

#[async_trait]
impl TypedTool for BashSafe {
    const NAME: &'static str = "bash_safe";
    const DESCRIPTION: &'static str =
        "Run one simple command: no pipes, globs, variables or redirections.";
    const CLASS: ToolClass = ToolClass::Command;
    type Args = LineArgs;
    type Output = String;

    fn needs(&self, args: &LineArgs) -> Result<Vec<Need>, String> {
        words::split(&args.command)?;
        Ok(needs(args.cwd.as_deref()))
    }

    async fn preview(&self, args: LineArgs, access: Access) -> Option<Preview> {
        Some(self.0.preview(Program::Argv(words::split(&args.command).ok()?), &access))
    }

    async fn run(&self, args: LineArgs, call: Invocation) -> Result<String, String> {
        let LineArgs { command, timeout_s, .. } = args;
        let argv = words::split(&command)?;
        self.0.run(Request { argv, timeout_s, ..Request::default() }, &call).await
    }
}

struct Shell(Arc<Commands>);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScriptArgs {
    command: String,
    timeout_s: Option<u64>,
}

#[async_trait]
impl TypedTool for Shell {
    const NAME: &'static str = "shell_UNSAFE";
    const DESCRIPTION: &'static str = "Run a shell script.";
    const CLASS: ToolClass = ToolClass::Command;
    type Args = ScriptArgs;
    type Output = String;

    fn needs(&self, _: &ScriptArgs) -> Result<Vec<Need>, String> {
        Ok(needs(None))
    }

    async fn preview(&self, args: ScriptArgs, access: Access) -> Option<Preview> {
        Some(self.0.preview(Program::Line(args.command), &access))
    }

    async fn run(&self, args: ScriptArgs, call: Invocation) -> Result<String, String> {
        let ScriptArgs { command, timeout_s } = args;
        let argv = vec![self.0.shell.into(), "-c".into(), command];
        self.0.run(Request { argv, timeout_s, ..Request::default() }, &call).await
    }
}

struct RunPython(Arc<Commands>);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PythonArgs {
    code: String,
    timeout_s: Option<u64>,
}

#[async_trait]
impl TypedTool for RunPython {
    const NAME: &'static str = "run_python";
    const DESCRIPTION: &'static str = "Run Python 3 code; print what you want to see.";
    const CLASS: ToolClass = ToolClass::Command;
    type Args = PythonArgs;
    type Output = String;

    fn needs(&self, _: &PythonArgs) -> Result<Vec<Need>, String> {
        Ok(needs(None))
    }

    async fn preview(&self, args: PythonArgs, access: Access) -> Option<Preview> {
        Some(self.0.preview(Program::Python(args.code), &access))
    }

    async fn run(&self, args: PythonArgs, call: Invocation) -> Result<String, String> {
        let PythonArgs { code, timeout_s } = args;
        // As input it may be longer than an argument.
        let (argv, stdin) = (vec!["python3".into(), "-".into()], Some(code));
        self.0.run(Request { argv, stdin, timeout_s, ..Request::default() }, &call).await
    }
}

struct Sleep {
    longest: Duration,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SleepArgs {
    seconds: f64,
}

#[async_trait]
impl TypedTool for Sleep {
    const NAME: &'static str = "sleep";
    const DESCRIPTION: &'static str = "Wait.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = SleepArgs;
    type Output = String;

    fn needs(&self, args: &SleepArgs) -> Result<Vec<Need>, String> {
        self.duration(args).map(|_| Vec::new())
    }

    async fn run(&self, args: SleepArgs, call: Invocation) -> Result<String, String> {
        tokio::select! {
            () = tokio::time::sleep(self.duration(&args)?) => Ok(format!("Waited {} s.", args.seconds)),
            () = call.cancel.cancelled() => Err("cancelled".into()),
        }
    }
}

impl Sleep {
    fn duration(&self, args: &SleepArgs) -> Result<Duration, String> {
        let asked = Duration::try_from_secs_f64(args.seconds).ok();
        asked
            .filter(|asked| *asked <= self.longest)
            .ok_or_else(|| format!("seconds must be between 0 and {}", self.longest.as_secs()))
    }
}

fn needs(cwd: Option<&str>) -> Vec<Need> {
    let read = cwd.map(|cwd| Need::Read(cwd.into()));
    [Need::Command(CommandKind::Any, cwd.map(Into::into))].into_iter().chain(read).collect()
}

/// Runs commands for agents.
pub(super) struct Commands {
    launcher: Launcher,
    strength: Strength,
    hidden: BTreeSet<PathBuf>,
    /// What every command sees of the server's environment.
    pub(super) env: BTreeMap<String, String>,
    /// Where private directories are made.
    tmp: Option<PathBuf>,
    /// What runs scripts.
    shell: &'static str,
    timeout_max: Duration,
    limits: Limits,
}

#[derive(Default)]
pub(super) struct Request {
    pub argv: Vec<String>,
    pub stdin: Option<String>,
    pub timeout_s: Option<u64>,
    pub env: &'static [(&'static str, &'static str)],
    /// The command only looks, and these are all the programs it needs.
    pub looks_with: Option<BTreeSet<PathBuf>>,
}

impl Commands {
    pub(super) async fn run(&self, request: Request, call: &Invocation) -> Result<String, String> {
        let command = self.command(request, &call.access);
        let outcome = self.launcher.run(&command, &call.cancel, &*call.onlookers).await;
        shown(&outcome.map_err(|error| error.to_string())?, &command)
    }

    /// What a person is shown who is asked for leave.
    pub(super) fn preview(&self, program: Program, access: &Access) -> Preview {
        let cwd = access.command_dir.display().to_string();
        Preview::Command { program, cwd, sandbox: self.strength.to_string() }
    }

    fn command(&self, request: Request, access: &Access) -> Command {
        let Request { argv, stdin, timeout_s, env: added, looks_with } = request;
        let looks = looks_with.is_some();
        let policy = match looks_with {
            Some(programs) => {
                Some(Policy::to_look(&access.permissions, &self.hidden, programs, self.strength))
            }
            None => Policy::of(&access.permissions, &self.hidden, self.strength),
        };
        let mut env = self.env.clone();
        // Programs that find a home they cannot read fail in odd ways; without one they do without.
        let readable = |home: &String| policy.as_ref().is_none_or(|p| p.reads(Path::new(home)));
        if !env.get("HOME").is_some_and(readable) {
            env.remove("HOME");
        }
        env.extend(added.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        let asked = timeout_s.map_or(TIMEOUT_DEFAULT, Duration::from_secs);
        Command {
            argv,
            cwd: access.command_dir.clone(),
            env,
            stdin: stdin.into(),
            tmp: self.tmp.clone().filter(|_| policy.is_some() && !looks),
            policy,
            limits: self.limits,
            timeout: asked.clamp(TIMEOUT_MIN, self.timeout_max),
        }
    }

    /// What commands of an agent may not open, whatever else it may.
    pub(super) fn blocked(&self, permissions: &Permissions) -> BTreeSet<PathBuf> {
        permissions.blocked.union(&self.hidden).cloned().collect()
    }

    /// Whether a command that only looks is held to that.
    pub(super) fn confined(&self) -> bool {
        self.strength.sufficient()
    }
}

/// What the model is told. An exit code other than 0 is an answer, not a failure of the tool.
fn shown(outcome: &Outcome, command: &Command) -> Result<String, String> {
    let took = outcome.took.as_secs_f64();
    let (failed, mut text) = match outcome.end {
        End::Exited(code) => (false, format!("exit {code}, {took:.2} s")),
        End::Killed(signal) => (false, format!("killed by signal {signal}, {took:.2} s")),
        End::Exceeded(bound) => {
            (true, format!("it {} and was ended", command.limits.exceeded(bound)))
        }
        End::TimedOut => {
            (true, format!("timed out after {} s and was ended", command.timeout.as_secs()))
        }
        End::Cancelled => (true, "cancelled".into()),
    };
    for (title, kept) in [("", &outcome.stdout), ("--- stderr\n", &outcome.stderr)] {
        if !kept.is_empty() {
            let line_break = if text.ends_with('\n') { "" } else { "\n" };
            // Writing to a string does not fail.
            let _ = write!(text, "{line_break}{title}{kept}");
        }
    }
    if failed { Err(text) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use nexus_core::permission::Preset;

    use super::*;

    fn sleep(seconds: f64) -> Result<Vec<Need>, String> {
        Sleep { longest: Duration::from_secs(60) }.needs(&SleepArgs { seconds })
    }

    #[test]
    fn sleep_is_bounded() {
        for seconds in [0.0, 0.001, 60.0] {
            assert_eq!(sleep(seconds), Ok(vec![]), "{seconds}");
        }
        for seconds in [-1.0, 60.1, f64::NAN, f64::INFINITY, f64::MAX] {
            assert!(sleep(seconds).is_err(), "{seconds}");
        }
    }

    fn settings() -> CommandSettings {
        CommandSettings {
            launcher: Launcher::own(),
            strength: Strength { files: None, syscalls: false },
            hidden: BTreeSet::new(),
            variables: Vec::new(),
            tool_timeout: Duration::from_secs(600),
            limits: Limits::default(),
        }
    }

    #[tokio::test]
    async fn a_person_is_shown_what_would_run_and_where() {
        let words = |words: &[&str]| Program::Argv(words.iter().map(|it| it.to_string()).collect());
        let cases = [
            ("exec", serde_json::json!({"argv": ["ls", "a b"]}), words(&["ls", "a b"])),
            ("bash_safe", serde_json::json!({"command": "ls 'a b'"}), words(&["ls", "a b"])),
            (
                "shell_UNSAFE",
                serde_json::json!({"command": "ls | wc"}),
                Program::Line("ls | wc".into()),
            ),
            (
                "run_python",
                serde_json::json!({"code": "print(1)"}),
                Program::Python("print(1)".into()),
            ),
            ("git", serde_json::json!({"args": ["push"]}), words(&["git", "push"])),
        ];
        let tools = command_tools(settings());
        for (name, arguments, program) in cases {
            let tool = tools.iter().find(|known| known.spec().name == name).unwrap();
            let permissions = Preset::built_in("trusted").unwrap().apply("/w".as_ref(), &[]);
            let (cwd, command_dir) = ("/w".into(), "/w/in".into());
            let access = Access { cwd, command_dir, permissions, footprint: None };
            let (cwd, sandbox) = ("/w/in".into(), settings().strength.to_string());
            let expected = Preview::Command { program, cwd, sandbox };
            assert_eq!(tool.preview(&arguments, access).await, Some(expected), "{name}");
        }
    }

    #[test]
    fn every_agent_pays_little_for_these_tools() {
        let specs = command_tools(settings()).iter().map(|tool| {
            let spec = tool.spec();
            let parameters: serde_json::Value = serde_json::from_str(&spec.parameters).unwrap();
            serde_json::json!({"name": spec.name, "description": spec.description, "parameters": parameters})
        }).collect::<Vec<_>>();
        let text = serde_json::to_string(&specs).unwrap();
        assert!(text.len() <= 1250, "{} bytes: {text}", text.len());
    }
}
