//! The program of a server: found as a shell would, and what lies around it that it is loaded from.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The kernel reads no more of a first line.
const FIRST_LINE_MAX: u64 = 256;

/// The file that `name` means in `cwd` with this `PATH`. Touches the disk.
pub fn find(name: &str, cwd: &Path, path: &str) -> Result<PathBuf, String> {
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let file = cwd.join(name);
        return match is_program(&file) {
            true => Ok(file),
            false => Err(format!("there is no program {}", file.display())),
        };
    }
    let places = path.split(':').filter(|dir| dir.starts_with('/'));
    let mut found = places.map(|dir| Path::new(dir).join(name)).filter(is_program);
    found.next().ok_or_else(|| format!("there is no program {name} in PATH"))
}

/// What a script is read by: what its first line names, found in `path` where that asks for it. Touches the disk.
pub fn interpreter(program: &Path, path: &str) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(program).ok()?.take(FIRST_LINE_MAX).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
    let named = Path::new(words.next()?);
    match named.file_name()? == "env" {
        true => {
            let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
            find(name, Path::new("/"), path).ok()
        }
        false => Some(named.to_owned()),
    }
}

/// What a program is loaded from: the tree it is installed in, as it is called and where that leads. Never what holds
/// `home`, or a whole directory of the user's: then the program's own directory alone.
pub fn trees(program: &Path, homes: &[PathBuf]) -> Vec<PathBuf> {
    let real = program.canonicalize().ok();
    let called = program.parent().and_then(|dir| dir.canonicalize().ok());
    let called = called.and_then(|dir| Some(dir.join(program.file_name()?)));
    [called, real].into_iter().flatten().filter_map(|file| tree(&file, homes)).collect()
}

fn tree(file: &Path, homes: &[PathBuf]) -> Option<PathBuf> {
    let dir = file.parent()?;
    let modules =
        file.ancestors().filter(|it| it.file_name().is_some_and(|it| it == "node_modules"));
    // A package of Node finds others beside it; a program in `bin` finds its libraries in `lib`.
    let installed =
        modules.last().or_else(|| match dir.file_name().is_some_and(|it| it == "bin") {
            true => dir.parent(),
            false => None,
        });
    let too_wide =
        |tree: &Path| tree.parent().is_none() || homes.iter().any(|home| home.starts_with(tree));
    let tree = installed.filter(|tree| !too_wide(tree)).unwrap_or(dir);
    match too_wide(tree) {
        true => Some(file.to_owned()),
        false => Some(tree.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_brings_what_it_was_installed_with_and_no_more() {
        let homes = [PathBuf::from("/home/me/.nexus3"), "/home/me".into()];
        for (file, expected) in [
            ("/opt/node/bin/node", "/opt/node"),
            ("/opt/x/server", "/opt/x"),
            ("/w/node_modules/a/node_modules/b/x.js", "/w/node_modules"),
            ("/w/node_modules/.bin/x", "/w/node_modules"),
            ("/home/me/venv/bin/python", "/home/me/venv"),
            ("/home/me/bin/server", "/home/me/bin"),
            ("/home/me/server", "/home/me/server"),
            ("/home/bin/server", "/home/bin"),
            ("/bin/sh", "/bin"),
        ] {
            assert_eq!(tree(Path::new(file), &homes), Some(expected.into()), "{file}");
        }
    }

    #[test]
    fn a_script_says_what_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("x");
        for (first, expected) in [
            ("#!/opt/venv/bin/python\nprint()", Some("/opt/venv/bin/python")),
            ("#! /bin/sh -e\n", Some("/bin/sh")),
            ("#!/usr/bin/env sh\n", Some("/bin/sh")),
            ("#!/usr/bin/env -S A=b sh -e\n", Some("/bin/sh")),
            ("#!/usr/bin/env no-such-program\n", None),
            ("#!\n", None),
            ("print()", None),
            ("\u{7f}ELF", None),
        ] {
            std::fs::write(&script, first).unwrap();
            assert_eq!(interpreter(&script, "/bin"), expected.map(PathBuf::from), "{first}");
        }
    }

    #[test]
    fn programs_are_found_in_path_or_by_their_place() {
        let (dir, path) = (Path::new("/"), "/nowhere:relative:/usr/bin:/bin");
        assert!(find("sh", dir, path).is_ok_and(|file| file.ends_with("sh")));
        assert!(find("bin/sh", dir, "").is_ok());
        assert!(find("no-such-program", dir, path).is_err_and(|why| why.contains("in PATH")));
        assert!(find("etc/passwd", dir, path).is_err(), "it is no program");
    }
}
