//! The conversation on a terminal, as the person at it has it: through a pty, with a scripted model behind the server.

mod answers;
mod load;
mod pty;
mod start;
mod typing;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use nexus_testkit::Reply;
use serde_json::Value;

use crate::Bench;
use crate::model::Model;
use crate::server::{Place, binary, config};
use crate::table::Table;
use pty::Pty;

/// Longest wait for a server whose terminal has left.
const END_MAX: Duration = Duration::from_secs(30);

const FRAME_END: &str = "\x1b[?2026l";

/// The line that ends a turn begins with this.
const TURN_END: &str = "\x1b[2m─ ";

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("Certainly.")).await?;
    start::run(bench, &model, table)?;
    load::run(bench, &model, table)
}

/// A terminal and the server that it started or found.
struct Conversation {
    pty: Pty,
    /// From the exec to the first frame, and to the server's first answer.
    prompt: Duration,
    answer: Duration,
    server: u32,
}

impl Conversation {
    fn begin(place: &Place) -> anyhow::Result<Self> {
        let mut pty = Pty::run(command(place)?)?;
        let prompt = pty.until(FRAME_END)? - pty.began;
        Self::take_up(pty, prompt)
    }

    /// Goes on when the prompt is there.
    fn take_up(mut pty: Pty, prompt: Duration) -> anyhow::Result<Self> {
        let answer = pty.until("(pid ")? - pty.began;
        let server = pty.before(',')?.parse()?;
        Ok(Self { pty, prompt, answer, server })
    }

    /// Says something.
    fn ask(&mut self) -> anyhow::Result<()> {
        self.pty.press("Tell me a long story.\r")
    }

    /// Waits until the turn is over.
    fn answered(&mut self) -> anyhow::Result<()> {
        self.pty.until(TURN_END)?;
        Ok(())
    }

    /// Leaves as a person does.
    fn leave(mut self) -> anyhow::Result<()> {
        self.pty.press("\x15\x04")?;
        self.pty.until("Goodbye!")?;
        self.pty.end()
    }

    /// Leaves, and waits for the server that goes with it: it has files in the place.
    fn close(self) -> anyhow::Result<()> {
        let server = format!("/proc/{}", self.server);
        self.leave()?;
        let deadline = Instant::now() + END_MAX;
        while Path::new(&server).exists() {
            ensure!(Instant::now() < deadline, "the server goes on without its terminal");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// A home for terminals: its servers take any port and a socket of their own.
fn place(model: &Model) -> anyhow::Result<Place> {
    let place = Place::new(&Value::Null)?;
    let mut config = config(&model.url());
    config["server"]["port"] = 0.into();
    config["server"]["socket"] = place.socket().to_string_lossy().into();
    std::fs::write(place.home().join("config.json"), config.to_string())?;
    Ok(place)
}

fn command(place: &Place) -> anyhow::Result<Command> {
    let mut command = Command::new(binary()?);
    command.arg("--fresh").env("NEXUS3_HOME", place.home()).env("TERM", "xterm-256color");
    command.env_remove("NO_COLOR").env_remove("ACCESSIBLE").current_dir(place.cwd());
    Ok(command)
}
