//! Turns whose course is known beforehand: what is said to an agent is also the script of its model, and each tool call
//! leaves a trace that shows how often it was run.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nexus_testkit::{Reply, last_user_text};
use serde_json::{Value, json};

/// Calls whose tokens begin like this write where their agent may write only with somebody's leave.
const OUTSIDE: &str = "out-";

/// A turn of `steps` model calls with `width` tool calls each, and one that ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub id: String,
    pub steps: usize,
    pub width: usize,
}

impl Turn {
    /// What is said to the agent.
    pub fn text(&self) -> String {
        format!("work {} {} {}", self.id, self.steps, self.width)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix("work ")?.split(' ');
        let id = words.next()?.to_string();
        Some(Self { id, steps: words.next()?.parse().ok()?, width: words.next()?.parse().ok()? })
    }

    /// What the agent says in the end.
    pub fn answer(&self) -> String {
        format!("done {}", self.id)
    }

    /// The calls of one step. A call's id is also its token: the name and the only line of the file it writes.
    fn calls(&self, step: usize) -> Vec<String> {
        (0..self.width).map(|call| format!("{}.{step}.{call}", self.id)).collect()
    }

    /// Whether its calls need somebody's leave.
    pub fn asks(&self) -> bool {
        self.id.starts_with(OUTSIDE)
    }

    pub fn tokens(&self) -> Vec<String> {
        (0..self.steps).flat_map(|step| self.calls(step)).collect()
    }

    /// The history of the turn, when nothing comes between.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("user {}", self.text())];
        lines.extend(self.lines_from(0));
        lines
    }

    fn lines_from(&self, step: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for step in step..self.steps {
            let calls = self.calls(step);
            lines.push(format!("calls {}", calls.join(" ")));
            lines.extend(calls.iter().map(|call| format!("tool {call} ok")));
        }
        lines.push(format!("said {}", self.answer()));
        lines
    }
}

/// The answer of the model to what it is shown: the next step of the turn that the last user message describes.
pub fn script(request: &Value) -> Reply {
    let none = Vec::new();
    let messages = request["messages"].as_array().unwrap_or(&none);
    let last = messages.iter().rposition(|message| message["role"] == "user");
    let text = last_user_text(request).unwrap_or_default();
    let Some(turn) = Turn::parse(text) else { return Reply::text("I do not understand.") };
    let after = messages.iter().skip(last.unwrap_or_default());
    let step = after.filter(|message| message["tool_calls"].is_array()).count();
    if step >= turn.steps {
        return Reply::text(turn.answer());
    }
    turn.calls(step).into_iter().fold(Reply::chunks::<String>([]), |reply, token| {
        let path = trace(Path::new(""), &token);
        let arguments = json!({"path": path, "content": format!("{token}\n")});
        reply.then_tool_call_as(token, "append_file", arguments.to_string())
    })
}

/// What the model is told when nobody could be asked because the question could not be written down.
const NOT_ASKED: &str = "the request for approval could not be stored";

/// What is left of an answer when a caller lets go of its stream.
const PARTIAL: &str = "partial";

/// A message of `get_messages` as a line.
pub fn line(message: &Value) -> anyhow::Result<String> {
    let content = message["content"].as_str().context("a message without content")?;
    let interrupted = message["meta"]["interrupted"] == true;
    Ok(match message["role"].as_str() {
        Some("user") => format!("user {content}"),
        Some("tool") => {
            let call = message["tool_call_id"].as_str().unwrap_or("?");
            match interrupted {
                true => format!("tool {call} interrupted"),
                // With the turn, by a caller that let go of its stream.
                false if content.starts_with("Interrupted") => format!("tool {call} interrupted"),
                false if content.starts_with("Created") => format!("tool {call} ok"),
                false if content.contains(NOT_ASKED) => format!("tool {call} denied"),
                false => format!("tool {call} failed: {content}"),
            }
        }
        Some("system") => "summary".into(),
        Some("assistant") if !interrupted => match message["tool_calls"].as_array() {
            Some(calls) if !calls.is_empty() => {
                let ids: Vec<_> = calls.iter().filter_map(|call| call["id"].as_str()).collect();
                format!("calls {}", ids.join(" "))
            }
            _ => format!("said {content}"),
        },
        Some("assistant") => PARTIAL.into(),
        _ => format!("unexpected {message}"),
    })
}

/// What `resume_turn` adds to a history; nothing when its last turn is finished.
pub fn continuation(lines: &[String]) -> Vec<String> {
    let Some(start) = lines.iter().rposition(|line| line.starts_with("user ")) else {
        return Vec::new();
    };
    let tail = &lines[start + 1..];
    let Some(turn) = Turn::parse(&lines[start]["user ".len()..]) else { return Vec::new() };
    if tail.iter().any(|line| line.starts_with("said ")) {
        return Vec::new();
    }
    let steps = tail.iter().filter(|line| line.starts_with("calls ")).count();
    let mut more = Vec::new();
    if steps > 0 {
        let ended = |call: &String| {
            tail.iter().any(|line| line.strip_prefix("tool ").and_then(first_word) == Some(call))
        };
        let open = turn.calls(steps - 1).into_iter().filter(|call| !ended(call));
        more.extend(open.map(|call| format!("tool {call} interrupted")));
    }
    more.extend(turn.lines_from(steps));
    more
}

fn first_word(text: &str) -> Option<&str> {
    text.split(' ').next()
}

/// The same history whichever of the calls that ran side by side ended first.
pub fn normal(lines: &[String]) -> Vec<String> {
    let mut lines = lines.to_vec();
    for run in lines.chunk_by_mut(|a, b| a.starts_with("tool ") && b.starts_with("tool ")) {
        run.sort();
    }
    lines
}

/// Whether `seen` is `full` cut off after `least` lines or later, at a place where a process can die: of calls that ran
/// side by side any may have ended.
pub fn is_cut(full: &[String], seen: &[String], least: usize) -> bool {
    if seen.len() < least || seen.len() > full.len() {
        return false;
    }
    let (full, seen) = (normal(full), normal(seen));
    let same = full.iter().zip(&seen).take_while(|(a, b)| a == b).count();
    // What differs can only be tool lines at the end, each of which is in the run that was cut.
    let run: Vec<_> = full[same..].iter().take_while(|line| line.starts_with("tool ")).collect();
    seen[same..].iter().all(|line| run.contains(&line))
}

/// The same for a turn that was cancelled on the way: its calls may have been interrupted, and its answer.
pub fn is_cancelled(full: &[String], seen: &[String], least: usize) -> bool {
    let seen = match seen.split_last() {
        Some((last, rest)) if last == PARTIAL => rest,
        _ => seen,
    };
    let ended = |line: &String| match full.contains(line) {
        true => line.clone(),
        false => line.replace(" interrupted", " ok"),
    };
    let seen: Vec<_> = seen.iter().map(ended).collect();
    is_cut(full, &seen, least)
}

/// How often the call with this token took effect, in an agent that works in `dir`.
pub fn effects(dir: &Path, token: &str) -> anyhow::Result<usize> {
    count_lines(&trace(dir, token), token)
}

/// Where the call with this token leaves its trace.
fn trace(dir: &Path, token: &str) -> PathBuf {
    let dir = if token.starts_with(OUTSIDE) { dir.join("../outside") } else { dir.into() };
    dir.join(format!("{token}.txt"))
}

/// Whether an agent that has said this was granted leave for its session: `None` when a turn was cut off while it asked.
pub fn granted(lines: &[String]) -> Option<bool> {
    let mut asked = lines.iter().filter(|line| line.contains(OUTSIDE));
    if asked.clone().next().is_none() {
        return Some(false);
    }
    asked.any(|line| line.starts_with("tool ") && line.ends_with(" ok")).then_some(true)
}

fn count_lines(path: &PathBuf, token: &str) -> anyhow::Result<usize> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let count = text.lines().count();
            let whole = text == format!("{token}\n").repeat(count);
            anyhow::ensure!(whole, "{} holds {text:?}", path.display());
            Ok(count)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Turn {
        Turn { id: "t".into(), steps: 2, width: 2 }
    }

    #[test]
    fn a_turn_may_be_cut_between_any_two_of_its_writes_and_nowhere_else() {
        let full = work().lines();
        for length in 0..=full.len() {
            assert!(is_cut(&full, &full[..length], 0), "{length}");
            assert_eq!(is_cut(&full, &full[..length], 3), length >= 3);
        }
        let mut other_first = full[..4].to_vec();
        other_first[2] = full[3].clone();
        other_first.pop();
        assert!(is_cut(&full, &other_first, 0), "of two calls either may end first");
        for broken in [vec![full[1].clone()], vec![full[0].clone(), full[2].clone()]] {
            assert!(!is_cut(&full, &broken, 0), "{broken:?}");
        }
        let mut skipped = full.clone();
        skipped.remove(3);
        assert!(!is_cut(&full, &skipped, 0), "a call without a result in the middle");
    }

    #[test]
    fn a_turn_goes_on_where_it_was_cut() {
        let full = work().lines();
        assert_eq!(continuation(&full), [""; 0]);
        assert_eq!(continuation(&full[..1]), full[1..]);
        let more = continuation(&full[..3]);
        assert_eq!(more[0], "tool t.0.1 interrupted");
        assert_eq!(more[1..], full[4..]);
    }

    #[test]
    fn a_cancelled_turn_may_have_interrupted_calls_and_half_an_answer() {
        let full = work().lines();
        let mut cancelled = full[..4].to_vec();
        cancelled[3] = "tool t.0.1 interrupted".into();
        assert!(!is_cut(&full, &cancelled, 0));
        assert!(is_cancelled(&full, &cancelled, 0));
        assert_eq!(continuation(&cancelled), full[4..]);
        cancelled.push(PARTIAL.into());
        assert!(is_cancelled(&full, &cancelled, 0));
        assert_eq!(continuation(&cancelled), full[4..]);
        cancelled[2] = "tool t.0.0 failed: no".into();
        assert!(!is_cancelled(&full, &cancelled, 0));
        let resumed: Vec<_> = full[..3].iter().cloned().chain(continuation(&full[..3])).collect();
        assert!(is_cancelled(&resumed, &resumed[..6], 3));
    }
}
