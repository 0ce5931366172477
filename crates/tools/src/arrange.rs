//! Tools that copy, move and make files and directories. None of them replaces what is there.

use nexus_core::permission::ToolClass;
use nexus_core::tool::Need;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::FileTool;
use super::files::Files;
use super::files::write::Before;

pub(super) struct CopyFile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FromTo {
    from: String,
    to: String,
}

impl FileTool for CopyFile {
    const NAME: &'static str = "copy_file";
    const DESCRIPTION: &'static str = "Copy a file.";
    const CLASS: ToolClass = ToolClass::Write;
    type Args = FromTo;
    type Output = String;

    fn needs(args: &FromTo) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Read(args.from.clone()), Need::Write(args.to.clone())])
    }

    fn run(args: FromTo, files: &Files) -> Result<String, String> {
        let from = files.open(&args.from)?;
        let to = files.slot(&args.to)?;
        to.stage_copy(from)?.commit(Before::Nothing)?;
        Ok(format!("Copied {} to {}.", args.from, args.to))
    }
}

pub(super) struct Rename;

impl FileTool for Rename {
    const NAME: &'static str = "rename";
    const DESCRIPTION: &'static str = "Move a file or directory.";
    const CLASS: ToolClass = ToolClass::Write;
    type Args = FromTo;
    type Output = String;

    fn needs(args: &FromTo) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Write(args.from.clone()), Need::Write(args.to.clone())])
    }

    fn run(args: FromTo, files: &Files) -> Result<String, String> {
        let from = files.slot_of_link(&args.from)?;
        // Under another name the blocked place would be open.
        if files.blocked_beneath(&from.real).next().is_some() {
            return Err(format!("{} holds a blocked path and stays where it is", args.from));
        }
        if from.stat()?.is_none() {
            return Err(format!("{}: no such file or directory", args.from));
        }
        from.rename(&files.slot(&args.to)?)?;
        Ok(format!("Renamed {} to {}.", args.from, args.to))
    }
}

pub(super) struct Mkdir;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MkdirArgs {
    path: String,
}

impl FileTool for Mkdir {
    const NAME: &'static str = "mkdir";
    const DESCRIPTION: &'static str = "Make a directory.";
    const CLASS: ToolClass = ToolClass::Write;
    type Args = MkdirArgs;
    type Output = String;

    fn needs(args: &MkdirArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Write(args.path.clone())])
    }

    fn run(args: MkdirArgs, files: &Files) -> Result<String, String> {
        Ok(match files.make_directory(&args.path)? {
            true => format!("Made {}.", args.path),
            false => format!("{} is there already.", args.path),
        })
    }
}
