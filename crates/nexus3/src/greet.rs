//! `nexus3 serve --greet`: the first conversation, so that a fresh machine shows at once that everything works.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nexus_core::Requester;
use nexus_core::name::DEFAULT_AGENT;
use nexus_core::provider::ModelError;
use nexus_protocol::answer::StreamItem;
use nexus_protocol::api::CallError;
use nexus_protocol::params::NonBlank;
use nexus_protocol::stream::Event;
use nexus_protocol::turn::SendParams;
use nexus_server::DirectAgentApi;

use crate::model;
use crate::output::{complain, print, say};
use crate::signals::Signals;
use crate::wiring::Wired;

/// What is said. The answer comes from whichever model is configured.
const GREETING: &str = "Hello";

/// Fetches the built-in model where no other is configured. False when a signal came instead; what else goes wrong is
/// printed, and the server goes on.
pub async fn equip(wired: &Wired, models: &Path, signals: &mut Signals) -> bool {
    match wired.engine.models.resolve(None) {
        Err(ModelError::NoneConfigured) => match model::pull(models, None, signals).await {
            Ok(pulled) => {
                wired.weights.look().await;
                pulled
            }
            Err(error) => {
                complain(format_args!("Error: {error:#}"));
                true
            }
        },
        _ => true,
    }
}

/// Says hello to the default agent and prints what it answers, as it comes. What goes wrong is printed too: a server
/// that was not answered is still a server.
pub async fn greet(wired: &Wired) {
    if let Ok(model) = wired.engine.models.resolve(None) {
        let (alias, provider) = (model.alias.clone(), model.provider_name.clone());
        // Where nobody reads it the turn ends with the first word, and says so to nobody.
        let _ = say(format!("You to {alias} ({provider}): {GREETING}\n"));
    }
    if let Err(error) = turn(wired).await {
        complain(format_args!("Error: {error:#}"));
    }
}

async fn turn(wired: &Wired) -> anyhow::Result<()> {
    let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
    let content = NonBlank::new(GREETING.to_owned()).context("there is nothing to say")?;
    let mut stream = api.send_stream(DEFAULT_AGENT, SendParams::new(content))?;
    let mut printer = Printer { started: Instant::now(), first_word: None, output_tokens: 0 };
    while let Some(item) = stream.next().await {
        match item {
            Ok(item) => printer.item(item)?,
            Err(CallError::Rpc(error)) => bail!("{}", crate::rpc::refusal(&error)),
            Err(error) => return Err(error.into()),
        }
    }
    printer.finish()
}

struct Printer {
    started: Instant,
    first_word: Option<Duration>,
    output_tokens: u64,
}

impl Printer {
    fn item(&mut self, item: StreamItem) -> anyhow::Result<()> {
        match item {
            StreamItem::Text(text) => {
                self.first_word.get_or_insert_with(|| self.started.elapsed());
                say(&text)?;
            }
            StreamItem::Event(Event::Usage(usage)) => self.output_tokens += usage.output,
            _ => {}
        }
        Ok(())
    }

    /// How fast it was. Services that do not count tokens have no such line.
    fn finish(&self) -> anyhow::Result<()> {
        let mut text = "\n".to_string();
        let first = self.first_word.unwrap_or_default();
        let writing = self.started.elapsed().saturating_sub(first).as_secs_f64();
        if self.output_tokens > 1 && writing > 0.0 {
            let rate = (self.output_tokens - 1) as f64 / writing;
            let first = first.as_secs_f64();
            let tokens = self.output_tokens;
            text +=
                &format!("[{tokens} tokens, {rate:.0} tokens/s, first word after {first:.2} s]\n");
        }
        print(text)
    }
}
