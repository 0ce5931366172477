//! Where links lead that name a file: to one of the agent's directory, or nowhere.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::shown::Shown;
use crate::style::Line;

/// Whether an address has no scheme, and so could be the path of a file.
pub fn may_be_file(address: &str) -> bool {
    let head = address.split('/').next().unwrap_or_default();
    !address.is_empty()
        && !address.starts_with('#')
        && !address.starts_with("//")
        && !head.contains(':')
        && !address.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Gives links to files the addresses that an emulator can open, and takes away those that lead out of the directory.
pub fn place(lines: &mut [Line], dir: Option<&Path>) {
    for span in lines.iter_mut().flat_map(|line| &mut line.spans) {
        if let Some(link) = &span.link
            && may_be_file(link.as_str())
        {
            let file = dir.and_then(|dir| inside(dir, link.as_str()));
            span.link = file.map(|file| Shown::from(url(&file)));
        }
    }
}

/// The file that is meant, where there is one below the directory. What says a line behind it is left out.
fn inside(dir: &Path, address: &str) -> Option<PathBuf> {
    let path = address.split('#').next()?;
    let path = match path.rsplit_once(':') {
        Some((path, line)) if line.bytes().all(|digit| digit.is_ascii_digit()) => path,
        _ => path,
    };
    let dir = dir.canonicalize().ok()?;
    let file = dir.join(path).canonicalize().ok()?;
    file.starts_with(&dir).then_some(file)
}

fn url(file: &Path) -> String {
    let mut url = "file://".to_owned();
    for byte in file.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => url.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => url.push(char::from(*byte)),
            byte => {
                let _ = write!(url, "%{byte:02X}");
            }
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::{Span, Style};

    #[test]
    fn links_to_files_stay_in_the_directory() {
        let around = tempfile::tempdir().unwrap();
        let dir = around.path().canonicalize().unwrap().join("work");
        std::fs::create_dir_all(dir.join("src")).unwrap();
        std::fs::write(dir.join("src/ü.rs"), "").unwrap();
        std::fs::write(around.path().join("secret"), "").unwrap();
        std::os::unix::fs::symlink("../secret", dir.join("out")).unwrap();
        let placed = |address: &str, dir: Option<&Path>| {
            let span = Span { text: "x".into(), style: Style::PLAIN, link: Some(address.into()) };
            let mut lines = [Line { spans: vec![span] }];
            place(&mut lines, dir);
            lines[0].spans[0].link.as_ref().map(|link| link.as_str().to_owned())
        };
        let here = format!("file://{}/src/%C3%BC.rs", dir.display());
        for address in ["src/ü.rs", "./src/ü.rs", "src/ü.rs:42", "src/ü.rs#L42", "src/../src/ü.rs"]
        {
            assert_eq!(placed(address, Some(&dir)).as_deref(), Some(here.as_str()), "{address}");
        }
        let absolute = format!("{}/src/ü.rs", dir.display());
        assert_eq!(placed(&absolute, Some(&dir)), Some(here));
        for address in ["../secret", "out", "/etc/passwd", "src/none.rs", "~/x"] {
            assert_eq!(placed(address, Some(&dir)), None, "{address}");
        }
        assert_eq!(placed("src/ü.rs", None), None);
        assert_eq!(placed("https://x.y/src", Some(&dir)).as_deref(), Some("https://x.y/src"));
    }

    #[test]
    fn an_address_with_a_scheme_is_no_file() {
        for address in
            ["", "#part", "//host/x", "file:///etc/passwd", "javascript:x", "a b", "mailto:x"]
        {
            assert!(!may_be_file(address), "{address}");
        }
        assert!(may_be_file("src/main.rs:3"));
    }
}
