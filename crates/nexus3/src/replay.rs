//! `nexus3 replay`: what was said and done in a session, at the pace at which it was.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use nexus_client::{Api as _, NexusClient};
use nexus_protocol::conversation::{GetMessagesParams, MessageEntry};

use crate::output::print;
use crate::printed;
use crate::rpc::{self, ServerArgs};

/// Longest pause, however long it was: a night between two messages is said and not waited for.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Fastest that can be asked for, beside 0.
const SPEED_MAX: f64 = 1_000_000.0;

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Name of the agent, which may be one that lies on disk. A saved session is replayed once it is loaded
    name: String,
    /// How many times as fast as it was; 0 without any pause. No pause is longer than 5 seconds
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    #[command(flatten)]
    server: ServerArgs,
}

pub async fn run(args: ReplayArgs) -> ExitCode {
    let done = replay(&args).await.map(|()| ExitCode::SUCCESS);
    rpc::concluded(done, &args.server)
}

/// Reads only: the agent is what it was.
async fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    let client = rpc::client(&args.server, None)?;
    let mut last: Option<Timestamp> = None;
    let (mut offset, mut end) = (0, None);
    loop {
        let (total, page) = page(&client, &args.name, offset).await?;
        // What is said meanwhile is no part of it.
        let end = *end.get_or_insert(total);
        if page.is_empty() || offset >= end {
            return Ok(());
        }
        offset += page.len() as u64;
        for message in page.iter().take_while(|message| message.index < end) {
            let at = message.meta.as_ref().and_then(|meta| meta.at.parse::<Timestamp>().ok());
            if let Some(at) = at {
                wait(last, at, args.speed).await?;
                last = Some(at);
            }
            let text = printed::message(&args.name, message);
            let stamp = at.map(printed::clock).unwrap_or_default();
            if !text.is_empty() {
                print(format!("{stamp} {text}"))?;
            }
        }
    }
}

async fn page(
    client: &NexusClient,
    name: &str,
    offset: u64,
) -> anyhow::Result<(u64, Vec<MessageEntry>)> {
    let params = GetMessagesParams { offset: Some(offset), ..GetMessagesParams::default() };
    let page = client.for_agent(name).get_messages(params).await?;
    Ok((page.total, page.messages))
}

/// Waits as long as it took, and says what was left out of that, and on which day it was.
async fn wait(last: Option<Timestamp>, at: Timestamp, speed: f64) -> anyhow::Result<()> {
    let between = last.and_then(|last| Duration::try_from(at.duration_since(last)).ok());
    let (pause, is_cut) = pause(between.unwrap_or_default(), speed);
    tokio::time::sleep(pause).await;
    if let (Some(between), true) = (between, is_cut) {
        print(format!("… {} later\n", spoken(between)))?;
    }
    if last.map(printed::day) != Some(printed::day(at)) {
        print(format!("── {} ──\n", printed::day(at)))?;
    }
    Ok(())
}

/// How long is waited, and whether that is less than it should be.
fn pause(between: Duration, speed: f64) -> (Duration, bool) {
    if speed == 0.0 {
        return (Duration::ZERO, false);
    }
    let pause = Duration::try_from_secs_f64(between.as_secs_f64() / speed).unwrap_or(Duration::MAX);
    (pause.min(PAUSE_MAX), pause > PAUSE_MAX)
}

/// A time in the largest unit that has it.
fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let wrong = || format!("a number from 0 to {SPEED_MAX}");
    let speed: f64 = text.parse().map_err(|_| wrong())?;
    if (0.0..=SPEED_MAX).contains(&speed) { Ok(speed) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_as_long_as_they_were_up_to_a_bound() {
        let seconds = Duration::from_secs_f64;
        for (between, speed, expected) in [
            (3.0, 1.0, (seconds(3.0), false)),
            (5.0, 1.0, (PAUSE_MAX, false)),
            (5.1, 1.0, (PAUSE_MAX, true)),
            (50.0, 10.0, (PAUSE_MAX, false)),
            (3.0, 0.5, (PAUSE_MAX, true)),
            (1e9, 0.0, (Duration::ZERO, false)),
            (0.0, 1.0, (Duration::ZERO, false)),
            (1e15, f64::MIN_POSITIVE, (PAUSE_MAX, true)),
        ] {
            assert_eq!(pause(seconds(between), speed), expected, "{between} {speed}");
        }
    }

    #[test]
    fn speeds() {
        for good in ["0", "0.5", "1", "1000000"] {
            speed(good).unwrap();
        }
        for bad in ["-1", "1000000.1", "NaN", "inf", "fast", ""] {
            speed(bad).unwrap_err();
        }
    }

    #[test]
    fn times_in_words() {
        let check = |seconds, expected: &str| {
            assert_eq!(spoken(Duration::from_secs(seconds)), expected);
        };
        check(119, "119 s");
        check(120, "2 min");
        check(7_199, "119 min");
        check(7_200, "2 h");
        check(172_799, "47 h");
        check(172_800, "2 days");
    }
}
