//! What leaves the screen for a while: editor, pager, suspension; and what goes past it, to the clipboard.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use rustix::process::Signal;

use super::App;
use crate::style::Line;

/// The most that goes to the clipboard.
const COPY_BYTES_MAX: usize = 100_000;

impl App {
    /// Shows a text in the pager, or in the editor where there is none.
    pub(super) async fn page(&mut self, text: &str) {
        let pager = self.options.settings.pager.clone().or_else(|| variable("PAGER"));
        let pager = words(&pager.unwrap_or_else(|| "less".into()));
        if let Err(error) = self.outside(&pager, text).await {
            let editor = self.editor_words();
            if self.outside(&editor, text).await.is_err() {
                self.hint(&format!("{}: {error}", pager.join(" ")));
            }
        }
    }

    /// Lets a person change a text in the editor; `None` when that failed.
    pub(super) async fn edit(&mut self, text: &str) -> Option<String> {
        let editor = self.editor_words();
        match self.outside(&editor, text).await {
            Ok(edited) => Some(edited),
            Err(error) => {
                self.hint(&format!("{}: {error}", editor.join(" ")));
                None
            }
        }
    }

    pub(super) async fn edit_input(&mut self) {
        let text = self.editor.text();
        if let Some(edited) = self.edit(&text).await {
            self.editor.set(edited.trim_end_matches('\n'));
        }
    }

    fn editor_words(&self) -> Vec<String> {
        let named = self.options.settings.editor.clone();
        let named = named.or_else(|| variable("VISUAL")).or_else(|| variable("EDITOR"));
        words(&named.unwrap_or_else(|| "vi".into()))
    }

    /// Gives the terminal to a program with a file of this text, and returns what the file says afterwards. The program is
    /// started by its words, never by a shell.
    async fn outside(&mut self, program: &[String], text: &str) -> std::io::Result<String> {
        let Some((name, arguments)) = program.split_first() else {
            return Err(std::io::Error::other("no program is named"));
        };
        let file = Private::new(&self.options.home, text)?;
        self.redraw();
        self.tty.restore();
        let ended =
            tokio::process::Command::new(name).args(arguments).arg(&file.path).status().await;
        self.tty.raw()?;
        self.screen.forget();
        self.resize();
        let ended = ended?;
        match ended.success() {
            true => fs::read_to_string(&file.path),
            false => Err(std::io::Error::other(format!("{ended}"))),
        }
    }

    /// As Ctrl-Z elsewhere. What happens meanwhile is printed afterwards.
    pub(super) async fn suspend(&mut self) {
        self.redraw();
        self.tty.restore();
        let _ = rustix::process::kill_current_process_group(Signal::TSTP);
        // Here again, some time later.
        let _ = self.tty.raw();
        self.screen.forget();
        self.resize();
    }

    pub(super) fn copy(&mut self, text: &str) {
        let mut end = text.len().min(COPY_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let encoded = base64::engine::general_purpose::STANDARD.encode(&text[..end]);
        let _ = self.tty.write(&format!("\x1b]52;c;{encoded}\x07"));
        self.hint(&format!("copied {end} bytes"));
    }

    /// Pushes the screen up by printing lines: what was there stays in the scrollback.
    pub(super) fn clear(&mut self) {
        self.finished.extend(std::iter::repeat_n(Line::default(), self.rows));
    }

    pub(super) fn theme(&mut self, name: &str) {
        self.options.settings.theme = name.to_owned();
        self.options.settings.colours = name != "mono" && self.has_colours;
        self.screen.set_colours(self.options.settings.colours);
        self.look_anew();
        self.redraw();
    }
}

/// A file for one program and one moment, in a directory of its own; both go with it.
struct Private {
    directory: PathBuf,
    path: PathBuf,
}

impl Private {
    fn new(home: &Path, text: &str) -> std::io::Result<Self> {
        let number = jiff::Timestamp::now().as_nanosecond();
        let directory = home.join(format!("terminal-{}-{number}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&directory)?;
        let path = directory.join("message.md");
        let private = Self { directory, path };
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&private.path)?;
        file.write_all(text.as_bytes())?;
        Ok(private)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(ToOwned::to_owned).collect()
}
