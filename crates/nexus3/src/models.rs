//! `nexus3 models`: what models there are, what is known of each and from whom, and asking their services anew.

mod table;

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use nexus_config::{ModelCatalog, ProviderEntry, said};
use nexus_core::listing::ModelQuery;
use nexus_core::provider::Models as _;
use nexus_models::Kind;
use nexus_models::ask::{self, Answer};
use nexus_models::catalogue::said::{Asked, Said};
use nexus_protocol::model::ListModelsResult;
use nexus_server::model_entry;

use crate::output::{complain, print_json, say};
use crate::wiring;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ModelsArgs {
    #[command(subcommand)]
    command: Option<ModelsCommand>,
    /// Only models of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Also what the providers have beside the models that are configured, as far as it is known
    #[arg(long)]
    all: bool,
    /// Print them as JSON, as the method list_models answers
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum ModelsCommand {
    /// Ask the providers what their models can, and keep the answers
    ///
    /// Nothing else ever asks them. Anthropic, OpenRouter, Gemini, Ollama, vLLM, llama.cpp and some others say it; those
    /// that do not are passed over. A server that runs takes the answers with its next start.
    Refresh {
        /// Only this provider
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
    },
}

pub async fn run(args: ModelsArgs) -> anyhow::Result<ExitCode> {
    let home = wiring::home()?;
    let config = wiring::load_config(&home, None)?;
    let catalog = wiring::catalog(&home, &config)?;
    match args.command {
        Some(ModelsCommand::Refresh { provider }) => {
            let (said, code) = refresh(&catalog, said::read(&home), provider.as_deref()).await?;
            said::write(&home, &said)?;
            return Ok(code);
        }
        None => {
            let query =
                ModelQuery { provider: args.provider, all: args.all, offset: 0, limit: u32::MAX };
            let page = catalog.list(&query)?;
            let models: Vec<_> = page.models.into_iter().map(model_entry).collect();
            if args.json {
                let limit = u32::MAX;
                let (total, default) = (page.total, page.default);
                let list = ListModelsResult { total, offset: 0, limit, default, models };
                print_json(format!("{}\n", serde_json::to_string_pretty(&list)?))?;
            } else if models.is_empty() {
                complain(catalog.describe(&home));
            } else {
                say(table::draw(&models))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the providers one after the other. What one said before stays when it does not answer now.
async fn refresh(
    catalog: &ModelCatalog,
    mut said: Said,
    name: Option<&str>,
) -> anyhow::Result<(Said, ExitCode)> {
    let wanted = |provider: &&ProviderEntry| name.is_none_or(|name| provider.name == name);
    let providers: Vec<_> = catalog.providers().filter(wanted).collect();
    if let (Some(name), true) = (name, providers.is_empty()) {
        let known: Vec<_> = catalog.providers().map(|provider| provider.name.as_str()).collect();
        bail!("unknown provider: {name} (known: {})", known.join(", "));
    }
    let mut code = ExitCode::SUCCESS;
    for provider in providers {
        let Some(settings) = catalog.settings(provider) else { continue };
        // OpenRouter answers everybody.
        let needs_key = provider.key_required && settings.kind != Kind::OpenRouter;
        if let (true, None, Some(variable)) = (needs_key, &settings.api_key, &provider.key_env) {
            code = ExitCode::FAILURE;
            complain(format_args!(
                "{}: the environment variable {variable} is not set",
                provider.name
            ));
            continue;
        }
        let line = match ask::models(&settings).await {
            Ok(Answer::Models(models)) => {
                let line = match models.len() {
                    1 => "1 model".to_owned(),
                    count => format!("{count} models"),
                };
                let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let asked = Asked { base_url: settings.base_url.clone(), at };
                said = said.with(&provider.name, asked, models);
                line
            }
            Ok(Answer::Silent) => "says nothing of what its models can".to_owned(),
            Err(error) => {
                code = ExitCode::FAILURE;
                complain(format_args!("{}: {error}", provider.name));
                continue;
            }
        };
        say(format!("{}: {line}\n", provider.name))?;
    }
    Ok((said, code))
}
