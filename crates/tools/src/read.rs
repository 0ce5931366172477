//! Tools that look at one file or directory.

use std::fmt::Write as _;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use jiff::Timestamp;
use nexus_core::attach::plain_name;
use nexus_core::message::{Attachment, AttachmentKind, Blob, Source};
use nexus_core::permission::ToolClass;
use nexus_core::tool::{Need, ToolOutput};
use rustix::fs::{AtFlags, FileType, Stat};
use schemars::JsonSchema;
use serde::Deserialize;

use super::attach::{self, Picture};
use super::file_tool::FileTool;
use super::files::{Directory, Files, explain, kind, kind_name};
use super::text::{OUTPUT_BYTES_MAX, counted, is_binary, listed, readable, refuse_binary, start};

pub(super) struct ReadFile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFileArgs {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

impl FileTool for ReadFile {
    const NAME: &'static str = "read_file";
    const DESCRIPTION: &'static str =
        "Read a text file, or look at an image. offset (from 1) and limit are lines.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = ReadFileArgs;
    type Output = ToolOutput;

    fn needs(args: &ReadFileArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Read(args.path.clone())])
    }

    fn run(args: ReadFileArgs, files: &Files) -> Result<ToolOutput, String> {
        let mut opened = files.open(&args.path)?;
        match attach::picture(files, &mut opened, &args.path)? {
            Some(picture) => Ok(show(picture, &args.path)),
            None => read_lines(&args, &readable(&args.path, opened)?).map(Into::into),
        }
    }
}

fn show(picture: Picture, path: &str) -> ToolOutput {
    let Picture { media_type, bytes, words } = picture;
    let name = Path::new(path).file_name().map(|name| plain_name(&name.to_string_lossy()));
    ToolOutput {
        text: format!("{path} is an image: {words}."),
        attachments: vec![Attachment {
            kind: AttachmentKind::Image,
            media_type: media_type.into(),
            name,
            source: Source::Blob(Blob::new(bytes)),
        }],
        change: None,
    }
}

fn read_lines(args: &ReadFileArgs, text: &str) -> Result<String, String> {
    let lines_total = text.lines().count();
    let first = args.offset.unwrap_or(1).max(1);
    if first > lines_total.max(1) {
        return Err(format!("{} has only {}", args.path, counted(lines_total, "line")));
    }
    let wanted = text.split_inclusive('\n').skip(first - 1);
    let mut shown = String::new();
    let mut last = first - 1;
    for line in wanted.take(args.limit.unwrap_or(usize::MAX)) {
        if shown.len() + line.len() > OUTPUT_BYTES_MAX {
            break;
        }
        shown.push_str(line);
        last += 1;
    }
    if shown.is_empty() && args.limit != Some(0) && !text.is_empty() {
        return Ok(start_of_line(text, first));
    }
    if last == lines_total {
        return Ok(shown);
    }
    let next = last + 1;
    Ok(format!("[lines {first}-{last} of {lines_total}; read on with offset {next}]\n{shown}"))
}

/// A line that alone is more than a tool may hand over.
fn start_of_line(text: &str, number: usize) -> String {
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let shown = start(line, OUTPUT_BYTES_MAX);
    format!("[the first {} of {} bytes of line {number}]\n{shown}", shown.len(), line.len())
}

pub(super) struct Tail;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TailArgs {
    path: String,
    lines: Option<usize>,
}

impl FileTool for Tail {
    const NAME: &'static str = "tail";
    const DESCRIPTION: &'static str = "Read the last lines of a file.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = TailArgs;
    type Output = String;

    fn needs(args: &TailArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Read(args.path.clone())])
    }

    fn run(args: TailArgs, files: &Files) -> Result<String, String> {
        const LINES_DEFAULT: usize = 50;
        let mut opened = files.open(&args.path)?;
        let skipped = opened.len().saturating_sub(OUTPUT_BYTES_MAX as u64);
        let mut bytes = Vec::new();
        opened
            .file
            .seek(SeekFrom::Start(skipped))
            .and_then(|_| opened.file.take(OUTPUT_BYTES_MAX as u64).read_to_end(&mut bytes))
            .map_err(|error| format!("{}: {error}", args.path))?;
        refuse_binary(&args.path, &bytes)?;
        // The first bytes may be the rest of a character.
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let wanted = args.lines.unwrap_or(LINES_DEFAULT);
        let shown = lines[lines.len().saturating_sub(wanted)..].concat();
        match skipped > 0 && wanted >= lines.len() {
            true => Ok(format!("[the last {} bytes]\n{shown}", bytes.len())),
            false => Ok(shown),
        }
    }
}

pub(super) struct FileInfo;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileInfoArgs {
    path: String,
}

impl FileTool for FileInfo {
    const NAME: &'static str = "file_info";
    const DESCRIPTION: &'static str = "Kind, size, mode and time of a file.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = FileInfoArgs;
    type Output = String;

    fn needs(args: &FileInfoArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Read(args.path.clone())])
    }

    fn run(args: FileInfoArgs, files: &Files) -> Result<String, String> {
        let (stat, real) = files.stat(&args.path)?;
        let mut info = format!(
            "{}\nkind: {}\nmode: {:o}\nmodified: {}",
            real.display(),
            kind_name(kind(&stat)),
            stat.st_mode & 0o7777,
            modified(&stat),
        );
        if kind(&stat) == FileType::RegularFile {
            let _ = write!(info, "\nsize: {} bytes", stat.st_size);
            if let Ok(bytes) = files.open(&args.path).and_then(|opened| opened.bytes(&args.path)) {
                let _ = match is_binary(&bytes) {
                    true => write!(info, "\nbinary"),
                    false => write!(info, "\nlines: {}", lines(&bytes)),
                };
            }
        }
        Ok(info)
    }
}

fn modified(stat: &Stat) -> String {
    let seconds = Timestamp::from_second(stat.st_mtime);
    seconds.map_or_else(|_| "unknown".into(), |time| time.to_string())
}

fn lines(bytes: &[u8]) -> usize {
    let unfinished = bytes.last().is_some_and(|byte| *byte != b'\n');
    bytes.iter().filter(|byte| **byte == b'\n').count() + usize::from(unfinished)
}

pub(super) struct ListDirectory;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListDirectoryArgs {
    path: Option<String>,
}

impl ListDirectoryArgs {
    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(".")
    }
}

impl FileTool for ListDirectory {
    const NAME: &'static str = "list_directory";
    const DESCRIPTION: &'static str = "List a directory.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = ListDirectoryArgs;
    type Output = String;

    fn needs(args: &ListDirectoryArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Read(args.path().into())])
    }

    fn run(args: ListDirectoryArgs, files: &Files) -> Result<String, String> {
        let directory = files.directory(args.path())?;
        let (mut names, read_all) = entries(&directory, args.path(), files)?;
        names.sort();
        let (shown, count) = listed(&names);
        if count < names.len() || !read_all {
            let total = if read_all { names.len().to_string() } else { "many".into() };
            return Ok(format!("[{count} of {total} entries; glob finds others]\n{shown}"));
        }
        Ok(if shown.is_empty() { "The directory is empty.".into() } else { shown })
    }
}

/// Most entries of one directory that are looked at. Some caches have millions.
const ENTRIES_MAX: usize = 10_000;

/// A line for each entry, and whether that is all of them.
fn entries(
    directory: &Directory,
    path: &str,
    files: &Files,
) -> Result<(Vec<String>, bool), String> {
    let listed = rustix::fs::Dir::read_from(&directory.fd).map_err(|error| explain(path, error))?;
    let mut lines = Vec::new();
    for entry in listed {
        let entry = entry.map_err(|error| explain(path, error))?;
        let name = super::files::name(&entry);
        if name == Path::new(".") || name == Path::new("..") {
            continue;
        }
        if !files.readable(&directory.real.join(name)) {
            continue;
        }
        if lines.len() == ENTRIES_MAX || files.stopped() {
            return Ok((lines, false));
        }
        let stat = rustix::fs::statat(&directory.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        let mark = match stat.as_ref().map(|stat| (kind(stat), stat.st_size)) {
            Ok((FileType::Directory, _)) => "/".into(),
            Ok((FileType::Symlink, _)) => "@".into(),
            Ok((FileType::RegularFile, size)) => format!("  {size}"),
            Ok((other, _)) => format!("  {}", kind_name(other)),
            Err(_) => "  ?".into(),
        };
        lines.push(format!("{}{mark}", name.display()));
    }
    Ok((lines, true))
}
