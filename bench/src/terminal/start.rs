//! From the exec to a prompt, and to the server's first answer.

use std::process::Command;
use std::time::Duration;

use super::pty::Pty;
use super::typing::echo;
use super::{Conversation, FRAME_END, command, place};
use crate::Bench;
use crate::model::Model;
use crate::stats::{Latencies, ms};
use crate::table::{Row, Table};

pub fn run(bench: &Bench, model: &Model, table: &mut Table) -> anyhow::Result<()> {
    let runs = bench.count(25);
    let (mut bare, mut prompts, mut keys, mut answers) = (vec![], vec![], vec![], vec![]);
    let mut attached = vec![];
    for _ in 0..runs {
        bare.push(one_byte()?);
        let place = place(model)?;
        let own = Conversation::begin(&place)?;
        bare.push(one_byte()?);
        let other = Conversation::begin(&place)?;
        prompts.extend([own.prompt, other.prompt]);
        answers.push(own.answer);
        attached.push(other.answer);
        other.leave()?;
        own.close()?;
        keys.push(first_key(model)?);
    }
    let (bare, prompts) = (Latencies::new(bare), Latencies::new(prompts));
    let (took, alone) = (ms(prompts.p50()), ms(bare.p50()));
    table.add(
        Row::new("exec to the terminal's prompt")
            .measured(worst(&prompts))
            .baseline(format!("{alone:.1} ms a program of one byte"))
            .ratio(took / alone)
            .reach("< 10 ms", took < 10.0),
    );
    let keys = Latencies::new(keys);
    let key = ms(keys.p50());
    table.add(
        Row::new("  to the echo of a key pressed there")
            .measured(worst(&keys))
            .baseline(format!("{alone:.1} ms"))
            .ratio(key / alone)
            .reach("< 10 ms", key < 10.0),
    );
    for (what, times) in [("that it starts", answers), ("that runs", attached)] {
        let times = Latencies::new(times);
        let took = ms(times.p50());
        table.add(
            Row::new(format!("  to the first answer of a server {what}"))
                .measured(worst(&times))
                .baseline(format!("{alone:.1} ms"))
                .ratio(took / alone)
                .reach("< 30 ms", took < 30.0),
        );
    }
    Ok(())
}

/// From the exec to the first byte of a program that does nothing else.
fn one_byte() -> anyhow::Result<Duration> {
    let mut command = Command::new("printf");
    command.arg("x");
    let mut pty = Pty::run(command)?;
    let took = pty.until("x")? - pty.began;
    pty.end()?;
    Ok(took)
}

/// From the exec to the echo of a key that is pressed when the prompt is there.
fn first_key(model: &Model) -> anyhow::Result<Duration> {
    let place = place(model)?;
    let mut pty = Pty::run(command(&place)?)?;
    let prompt = pty.until(FRAME_END)? - pty.began;
    pty.press("A")?;
    let took = echo(&mut pty, 'A')? - pty.began;
    Conversation::take_up(pty, prompt)?.close()?;
    Ok(took)
}

fn worst(times: &Latencies) -> String {
    format!("{:.1} ms, worst of {} {:.1} ms", ms(times.p50()), times.len(), ms(times.max()))
}
