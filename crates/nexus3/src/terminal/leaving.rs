//! When a server ends that a terminal started.

use std::time::{Duration, Instant};

use nexus_core::Engine;
use nexus_protocol::terminal::LeftTurns;
use nexus_server::terminal::Wish;
use nexus_server::transport::channel::Channel;
use tokio::sync::watch;

use super::place::Place;
use crate::wiring::Wired;

/// How long turns may still run when nobody is there any more who waits for them.
const TURNS_MAX: Duration = Duration::from_secs(30 * 60);

/// Between two looks at who watches and what runs, once the terminal has left.
const PAUSE: Duration = Duration::from_millis(200);

/// The terminal, and what it wants when it is gone.
pub struct Leaving {
    pub channel: Channel,
    pub wished: watch::Receiver<Wish>,
    /// Held for as long as others are to find this server.
    pub _place: Option<Place>,
}

/// Returns when the terminal has left and nobody needs the server any more; never where no terminal started it.
pub async fn left(leaving: Option<&mut Leaving>, wired: &Wired) {
    let Some(leaving) = leaving else { return std::future::pending().await };
    loop {
        let turns = leaving.begun().await;
        tracing::info!(?turns, "the terminal has left");
        if leaving.is_needed_no_more(turns, &wired.engine).await {
            return;
        }
    }
}

/// Whether a server is needed no more that nobody has watched for so long.
fn is_over(running: bool, alone: Duration) -> bool {
    !running || alone >= TURNS_MAX
}

impl Leaving {
    /// Waits until the terminal has left, and returns what is to become of turns.
    async fn begun(&mut self) -> LeftTurns {
        loop {
            let gone = self.channel.is_gone();
            match *self.wished.borrow_and_update() {
                Wish::Leave(turns) => return turns,
                Wish::Unsaid if gone => return LeftTurns::Finish,
                Wish::Stay if gone => {
                    tracing::info!("the terminal is gone, and this server stays");
                    return std::future::pending().await;
                }
                Wish::Stay | Wish::Unsaid => {}
            }
            tokio::select! {
                () = self.channel.gone() => {}
                Ok(()) = self.wished.changed() => {}
            }
        }
    }

    /// True when no turn runs and nobody else watches; false when the terminal has thought better of it.
    async fn is_needed_no_more(&self, turns: LeftTurns, engine: &Engine) -> bool {
        let mut cancels = turns == LeftTurns::Cancel;
        let mut alone_since = Instant::now();
        loop {
            if *self.wished.borrow() == Wish::Stay {
                return false;
            }
            let running = engine.load().turns > 0;
            cancels &= running;
            if cancels {
                // Again and again: one may have been on its way.
                engine.turns.cancel_all();
            }
            if self.channel.others_watch(engine.watching.watches()) {
                alone_since = Instant::now();
            } else if is_over(running, alone_since.elapsed()) {
                return true;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_may_run_for_half_an_hour_with_nobody_there() {
        assert!(is_over(false, Duration::ZERO));
        assert!(!is_over(true, Duration::from_secs(30 * 60 - 1)));
        assert!(is_over(true, Duration::from_secs(30 * 60)));
    }
}
