//! The conversation in tmux, which breaks lines anew when its width changes, and keeps what scrolled away itself.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nexus_testkit::{Gate, Reply};
use tokio::process::Command;

use super::screen::Desk;
use crate::harness::{WAIT_MAX, process};

/// A tmux server of its own, on a socket of the desk. It ends when it is dropped.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// `None` where there is no tmux.
    async fn open(desk: &Desk, args: &[&str]) -> Option<Self> {
        let socket = desk.world.path("tmux.sock");
        let tmux = Self { socket };
        if tmux.command(&["-V"]).output().await.is_err() {
            eprintln!("passed over: tmux is not installed");
            return None;
        }
        let mut command =
            tmux.command(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24"]);
        // The server of tmux keeps the environment that it was started with.
        let program = desk.piped();
        let program = program.as_std();
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8");
        command.current_dir(desk.world.work());
        let words: Vec<OsString> = desk.arguments(args);
        command.arg("--").arg(program.get_program()).args(words);
        command.arg(";").args(["set-option", "-g", "history-limit", "50000"]);
        let said = process::run(command).await;
        assert_eq!(said.code, Some(0), "{said:?}");
        Some(tmux)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").arg("-S").arg(&self.socket).args(args);
        command
    }

    async fn run(&self, args: &[&str]) -> String {
        let said = process::run(self.command(args)).await;
        assert_eq!(said.code, Some(0), "{args:?}: {said:?}");
        said.stdout
    }

    async fn resize(&self, columns: &str, rows: &str) {
        self.run(&["resize-window", "-x", columns, "-y", rows]).await;
    }

    /// Scrollback and screen; lines that tmux broke are one again.
    async fn everything(&self) -> Vec<String> {
        let all = self.run(&["capture-pane", "-p", "-J", "-S", "-"]).await;
        all.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    async fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let seen = self.everything().await;
            if seen.iter().any(|line| line.contains(text)) {
                return;
            }
            assert!(Instant::now() < deadline, "waited for {text}:\n{}", seen.join("\n"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let mut command = std::process::Command::new("tmux");
        let _ = command.arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

#[tokio::test]
async fn lines_stand_once_after_six_resizes() {
    let desk = Desk::new().await;
    let Some(tmux) = Tmux::open(&desk, &["--fresh"]).await else { return };
    let gates: Vec<Gate> = (0..6).map(|_| Gate::new()).collect();
    let mut reply = Reply::text("```\n");
    for (at, gate) in gates.iter().enumerate() {
        let rows = (at * 10 + 1..=(at + 1) * 10).map(|number| format!("row {number} of many\n"));
        reply = reply.then_text(rows.collect::<String>()).then_gate(gate);
    }
    desk.model().push(reply.then_text("```\n\nDone."));
    tmux.wait_for("own, ").await;
    tmux.run(&["send-keys", "-l", "Count for me."]).await;
    tmux.wait_for("> Count for me.").await;
    tmux.run(&["send-keys", "Enter"]).await;
    let sizes =
        [("60", "20"), ("100", "30"), ("40", "12"), ("120", "40"), ("50", "15"), ("80", "24")];
    for (at, (gate, (columns, rows))) in gates.iter().zip(sizes).enumerate() {
        tmux.wait_for(&format!("row {} of many", (at + 1) * 10 - 1)).await;
        tmux.resize(columns, rows).await;
        gate.release();
    }
    tmux.wait_for("Done.").await;
    tmux.wait_for("─ ").await;
    let seen = tmux.everything().await;
    let rows: Vec<&String> = seen.iter().filter(|line| line.starts_with("row ")).collect();
    let is_right = |(at, row): (usize, &&String)| **row == format!("row {} of many", at + 1);
    assert!(rows.len() == 60 && rows.iter().enumerate().all(is_right), "{}", seen.join("\n"));
    for line in ["you> Count for me.", "Done."] {
        assert_eq!(seen.iter().filter(|it| *it == line).count(), 1, "{}", seen.join("\n"));
    }
    // One input and one status: nothing of the live part was left behind.
    for part in ["work>", "work · "] {
        let count = seen.iter().filter(|line| line.starts_with(part)).count();
        assert_eq!(count, 1, "{part}:\n{}", seen.join("\n"));
    }
    for part in ["Esc cancels", "looking for the server", "new session"] {
        assert!(!seen.iter().any(|line| line.contains(part)), "{part}:\n{}", seen.join("\n"));
    }
}
