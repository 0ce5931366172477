//! The `git` tool. A subcommand that only looks may be used by agents that may run no commands, so it must not become
//! one: a repository can name programs (a pager, a file system monitor, filters, hooks, textconv…) that git then runs.
//! They are switched off one by one, and where the kernel holds commands, nothing beside git itself can be started.

mod blocked;
mod plan;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use nexus_core::permission::Level;
use nexus_core::permission::ToolClass;
use nexus_core::preview::{Preview, Program};
use nexus_core::tool::{Access, CommandKind, Invocation, Need};
use schemars::JsonSchema;
use serde::Deserialize;

use super::command::{Commands, Request};
use super::typed::TypedTool;
use blocked::Blocked;
use plan::Plan;

pub(super) struct Git {
    commands: Arc<Commands>,
    program: String,
    /// What git needs to start itself.
    programs: BTreeSet<PathBuf>,
}

impl Git {
    pub(super) fn new(commands: Arc<Commands>) -> Self {
        let found = commands.env.get("PATH").and_then(|path| find("git", path));
        let programs = found.iter().flat_map(|git| programs_of(git)).collect();
        let program = found.as_deref().and_then(Path::to_str).unwrap_or("git").into();
        Self { commands, program, programs }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GitArgs {
    args: Vec<String>,
    cwd: Option<String>,
}

#[async_trait]
impl TypedTool for Git {
    const NAME: &'static str = "git";
    const DESCRIPTION: &'static str = "Run git with args such as [\"log\",\"-3\"].";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = GitArgs;
    type Output = String;

    fn needs(&self, args: &GitArgs) -> Result<Vec<Need>, String> {
        let plan = Plan::parse(&args.args)?;
        let dir = plan.dir(args.cwd.as_deref());
        let kind = plan.kind();
        let touched = match kind {
            CommandKind::ReadOnly => Need::Read(dir.clone()),
            CommandKind::Any => Need::Write(dir.clone()),
        };
        let mut needs = vec![Need::Command(kind, Some(dir.clone())), touched];
        if kind == CommandKind::ReadOnly {
            let place = |word: &str| Path::new(&dir).join(word).to_string_lossy().into_owned();
            needs.extend(plan.compared().map(|word| Need::Read(place(word))));
        }
        needs.extend(plan.refused_below_yolo().map(|what| Need::Level(Level::Yolo, what)));
        Ok(needs)
    }

    async fn preview(&self, args: GitArgs, access: Access) -> Option<Preview> {
        let argv = ["git".into()].into_iter().chain(args.args).collect();
        Some(self.commands.preview(Program::Argv(argv), &access))
    }

    async fn run(&self, args: GitArgs, call: Invocation) -> Result<String, String> {
        let plan = Plan::parse(&args.args)?;
        if let (true, Some(why)) =
            (call.access.permissions.level < Level::Yolo, plan.refused_below_yolo())
        {
            return Err(format!("{why} is refused below the level yolo"));
        }
        let looks = plan.kind() == CommandKind::ReadOnly;
        let plan = if looks { self.narrowed(plan, &call.access).await? } else { plan };
        let request = Request {
            argv: self.argv(plan, looks),
            env: if looks { &LOOK_ENV } else { &ENV },
            looks_with: looks.then(|| self.programs.clone()),
            ..Request::default()
        };
        self.commands.run(request, &call).await
    }
}

impl Git {
    /// The plan without what is blocked for the agent.
    async fn narrowed(&self, plan: Plan, access: &Access) -> Result<Plan, String> {
        let dir = access.command_dir.clone();
        let blocked = self.commands.blocked(&access.permissions);
        let find = move || Blocked::find(&dir, &blocked);
        match tokio::task::spawn_blocking(find).await {
            Ok(Some(blocked)) => blocked.narrow(plan),
            Ok(None) => Ok(plan),
            Err(error) => Err(error.to_string()),
        }
    }

    fn argv(&self, plan: Plan, looks: bool) -> Vec<String> {
        let mut argv = vec![self.program.clone(), "--no-pager".into()];
        let mut set = |settings: &[&str]| {
            argv.extend(settings.iter().flat_map(|setting| ["-c".into(), setting.to_string()]));
        };
        set(&["protocol.ext.allow=never"]);
        if looks {
            set(&LOOK_CONFIG);
            if self.commands.confined() {
                // Git distrusts other people's directories for what it might start in them.
                set(&["safe.directory=*"]);
            }
        }
        argv.extend(plan.into_args(if looks { &["--no-ext-diff", "--no-textconv"] } else { &[] }));
        argv
    }
}

/// For git that looks: no configuration but the repository's own, no lock, no download.
const LOOK_ENV: [(&str, &str); 7] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_EDITOR", "false"),
];

/// For git that looks: of the repository's configuration, nothing that names a program.
const LOOK_CONFIG: [&str; 10] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.alternateRefsCommand=",
    "core.sshCommand=false",
    "credential.helper=",
    "gpg.program=false",
    "log.showSignature=false",
    "submodule.recurse=false",
    "diff.submodule=short",
];

/// Nobody is there to edit or to type a password. An editor that changes nothing accepts what git proposes.
const ENV: [(&str, &str); 4] = [
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_ASKPASS", "true"),
    ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
];

/// The program `name` in one of the directories of `path`, free of symlinks.
fn find(name: &str, path: &str) -> Option<PathBuf> {
    let candidates =
        path.split(':').filter(|dir| dir.starts_with('/')).map(|dir| Path::new(dir).join(name));
    candidates.filter_map(|path| path.canonicalize().ok()).find(|path| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

/// Git, its parts, and what the kernel needs to load them.
fn programs_of(git: &Path) -> Vec<PathBuf> {
    let prefix = git.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    let parts = ["libexec/git-core", "lib/git-core"].map(|dir| prefix.join(dir));
    let loaders = LOADERS.iter().map(PathBuf::from);
    let others = parts.into_iter().chain(loaders).filter_map(|path| path.canonicalize().ok());
    [git.to_path_buf()].into_iter().chain(others).collect()
}

/// The dynamic loaders of glibc and musl where we run.
const LOADERS: [&str; 5] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];
