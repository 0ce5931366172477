//! Commands about an agent's directory, model, prompt and context, and the colours of code.

use std::io::Read as _;

use nexus_protocol::conversation::{Compact, CompactParams};
use nexus_protocol::model::{ListModels, ListModelsParams, ModelEntry};
use nexus_protocol::params::{Bounded, NoParams};
use nexus_protocol::permission::GetPermissions;
use nexus_protocol::settings::{
    GetModel, GetSystemPrompt, SetCwd, SetCwdParams, SetModel, SetModelParams, SetSystemPrompt,
    SetSystemPromptParams,
};

use super::agents::place;
use super::flags::{nothing, optional, refuse_flags, split, take};
use crate::cx::{Choice, Chosen, Cx, Done, Front, Refused, refuse};
use crate::figures::{brief, count, counted, lines};

/// Longest prompt that is read from a file. What is longer was not meant to be said before every turn.
const PROMPT_BYTES_MAX: u64 = 1 << 20;

/// How much of a prompt is shown, in characters.
const PROMPT_CHARS_SHOWN: usize = 200;

/// The themes that are built in.
const THEMES: [&str; 4] = ["ansi", "mono", "light", "dark"];

pub async fn cwd(cx: &Cx, rest: &str) -> Done {
    let Some(directory) = optional(rest, "/cwd [DIR]")? else {
        let cwd = match &cx.agent {
            Some(agent) => cx.of::<GetPermissions>(agent, NoParams {}).await?.policy.cwd,
            None => cx.making.cwd.display().to_string(),
        };
        cx.note(cwd);
        return Ok(());
    };
    // A relative one begins at the agent's own directory, which the server knows.
    let cwd = match directory.starts_with('~') {
        true => place(&cx.making.cwd, &directory).display().to_string(),
        false => directory,
    };
    let now =
        cx.of::<SetCwd>(cx.shown()?, SetCwdParams { cwd, additional_directories: None }).await?;
    cx.note(format!("Works in {}.", now.cwd));
    Ok(())
}

pub async fn model(cx: &Cx, rest: &str) -> Done {
    let given = optional(rest, "/model [NAME]")?;
    let agent = cx.shown()?;
    let model = match given {
        Some(model) => model,
        None => match choose_model(cx, agent).await? {
            Some(model) => model,
            None => return Ok(()),
        },
    };
    let set = cx.of::<SetModel>(agent, SetModelParams { model, reasoning: None }).await?;
    cx.note(format!("{agent} asks {} from its next turn on.", set.model));
    Ok(())
}

async fn choose_model(cx: &Cx, agent: &str) -> Result<Option<String>, Refused> {
    let now = cx.of::<GetModel>(agent, NoParams {}).await?;
    let params = ListModelsParams { limit: Bounded::new(1_000), ..ListModelsParams::default() };
    let models = cx.server::<ListModels>(params).await?.models;
    let item = |model: &ModelEntry| {
        let ModelEntry { alias, provider, context_window, .. } = model;
        let window = count(u64::from(*context_window));
        let key = if model.key_set { "" } else { ", no key" };
        let mark = if *alias == now.model { " *" } else { "" };
        format!("{alias}{mark} ({provider}, {window} tokens{key})")
    };
    let title = format!("Model of {agent}");
    let choice = Choice { title, items: models.iter().map(item).collect(), can_delete: false };
    Ok(match cx.choose(choice).await {
        Some(Chosen::Item(number)) => models.into_iter().nth(number).map(|model| model.alias),
        _ => None,
    })
}

pub async fn prompt(cx: &Cx, rest: &str) -> Done {
    let mut words = split(rest)?;
    let is_edited = take(&mut words, "--edit");
    refuse_flags(&words)?;
    let agent = cx.shown()?;
    let text = match (words.as_slice(), is_edited) {
        ([], false) => return show_prompt(cx, agent).await,
        ([], true) => {
            let before = cx.of::<GetSystemPrompt>(agent, NoParams {}).await?.system_prompt;
            match cx.edit(before.clone()).await {
                Some(text) if text != before => text,
                _ => {
                    cx.dim("The prompt stays as it is.");
                    return Ok(());
                }
            }
        }
        ([file], false) => read(cx, file)?,
        _ => return refuse("Usage: /prompt, /prompt FILE, or /prompt --edit"),
    };
    let length = counted(text.chars().count() as u64, "character");
    let params = SetSystemPromptParams { system_prompt: text };
    cx.of::<SetSystemPrompt>(agent, params).await?;
    cx.note(format!("{agent} has a prompt of {length} from its next turn on."));
    Ok(())
}

async fn show_prompt(cx: &Cx, agent: &str) -> Done {
    let prompt = cx.of::<GetSystemPrompt>(agent, NoParams {}).await?;
    let length = counted(prompt.system_prompt.chars().count() as u64, "character");
    let source = prompt.system_prompt_path.unwrap_or_else(|| "no file".into());
    cx.dim(format!("{length}, from {source}"));
    let shown: String = prompt.system_prompt.chars().take(PROMPT_CHARS_SHOWN).collect();
    let is_cut = shown.len() < prompt.system_prompt.len();
    cx.say_all(lines(&shown));
    if is_cut {
        cx.dim("… (/prompt --edit shows all of it)");
    }
    Ok(())
}

fn read(cx: &Cx, file: &str) -> Result<String, Refused> {
    let path = place(&cx.making.cwd, file);
    let failed = |error: std::io::Error| Refused::Said(format!("{}: {error}", path.display()));
    // A pipe would keep us waiting, and a device has no end.
    if !std::fs::metadata(&path).map_err(failed)?.is_file() {
        return refuse(format!("{} is not a file.", path.display()));
    }
    let mut text = String::new();
    let mut opened = std::fs::File::open(&path).map_err(failed)?.take(PROMPT_BYTES_MAX + 1);
    opened.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > PROMPT_BYTES_MAX {
        return refuse(format!("{} is over 1 MiB: too long for a prompt.", path.display()));
    }
    Ok(text)
}

pub async fn compact(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/compact")?;
    let done = cx.of::<Compact>(cx.shown()?, CompactParams::default()).await?;
    // Of one that was done the watch tells the figures, whoever asked for it.
    if !done.compacted {
        let reason = done.reason.unwrap_or_else(|| "there is too little to compact".into());
        cx.note(format!("Not compacted: {}", brief(&reason.replace('_', " "), 200)));
    }
    Ok(())
}

pub async fn theme(cx: &Cx, rest: &str) -> Done {
    let Some(name) = optional(rest, "/theme [NAME]")? else {
        let themes = THEMES.join(", ");
        cx.note(format!("{} (there are {themes})", cx.settings.theme));
        return Ok(());
    };
    if !THEMES.contains(&name.as_str()) {
        let themes = THEMES.join(", ");
        return refuse(format!("Unknown theme: {name}. There are {themes}."));
    }
    cx.tell(Front::Theme(name));
    Ok(())
}
