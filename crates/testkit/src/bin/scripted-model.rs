//! The scripted model as a program, for the tests of clients in other languages. It prints its URL and serves until its
//! standard input ends. What it answers is what the last message of the user orders:
//!
//! | message | answer |
//! | --- | --- |
//! | `say TEXT` | the text, a word at a time |
//! | `slowly N` | `1 ` to `N `, one every 20 ms |
//! | `hang` | the word `hanging`, and then nothing |
//! | `call TOOL JSON` | a call of the tool; when its result is there, `done` |
//! | `status N` | that HTTP status |
//! | anything else | the message itself |

use std::io::{Write as _, stdout};
use std::time::Duration;

use nexus_testkit::{Reply, ScriptedModel, last_user_text};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

/// Between two pieces of a slow answer.
const PAUSE: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let model = ScriptedModel::start().await;
    model.set_script(answer);
    let mut out = stdout().lock();
    writeln!(out, "{}", model.url())?;
    out.flush()?;
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}

fn answer(request: &Value) -> Reply {
    let text = last_user_text(request).unwrap_or_default();
    let (order, rest) = text.split_once(' ').unwrap_or((text, ""));
    match order {
        "say" => Reply::chunks(rest.split_inclusive(' ')),
        "slowly" => {
            let count: u32 = rest.parse().unwrap_or(1);
            Reply::chunks((1..=count).map(|number| format!("{number} "))).chunk_delay(PAUSE)
        }
        "hang" => Reply::text("hanging").then_hang(),
        "call" if has_result(request) => Reply::text("done"),
        "call" => {
            let (tool, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
            Reply::tool_call(tool, serde_json::from_str(arguments).unwrap_or_default())
        }
        "status" => Reply::status(rest.parse().unwrap_or(500)),
        _ => Reply::echo(),
    }
}

/// Whether the last message is a tool's, in the words of chat completions.
fn has_result(request: &Value) -> bool {
    let last = request["messages"].as_array().and_then(|messages| messages.last());
    last.is_some_and(|message| message["role"] == "tool")
}
