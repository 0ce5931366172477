//! What a person can choose for a session: its permissions, as modes and as an option, its model, and how hard that thinks.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption, SessionMode,
    SessionModeState,
};
use nexus_protocol::model::ModelEntry;
use nexus_protocol::params::NoParams;
use nexus_protocol::permission::{
    GetPermissions, ListPresets, PresetEntry, SetPermissions, SetPermissionsParams,
};
use nexus_protocol::settings::{GetModel, GetModelResult, SetModel, SetModelParams};
use nexus_protocol::usage::{Effort, ReasoningChoice, ReasoningDetails};
use nexus_protocol::{Api, CallError, RpcError, Target};
use serde_json::{Value, json};

use crate::models;

pub const MODE: &str = "mode";
pub const MODEL: &str = "model";
pub const THOUGHT_LEVEL: &str = "thought_level";

/// Given by a person at the terminal, and by no door.
const YOLO: &str = "yolo";

/// From least to most, those that are given here.
const LEVELS: [&str; 2] = ["sandboxed", "trusted"];

/// Levels of thinking that are none of the model's own.
const AS_CONFIGURED: &str = "default";
const OFF: &str = "off";

pub struct Settings {
    pub cwd: PathBuf,
    preset: String,
    /// Those that it may be given.
    presets: Vec<PresetEntry>,
    /// Absent where no provider is configured.
    model: Option<GetModelResult>,
    models: Vec<ModelEntry>,
}

impl Settings {
    pub async fn of<A: Api>(api: &A, agent: &str) -> Result<Self, CallError> {
        let target = Target::Agent(agent.into());
        let permissions = api.call::<GetPermissions>(&target, NoParams {}).await?;
        let mut presets = api.call::<ListPresets>(&Target::Server, NoParams {}).await?.presets;
        let ceiling = permissions.ceiling_level.as_deref().map_or(LEVELS.len(), rank);
        presets.retain(|preset| rank(&preset.level) <= ceiling);
        let models = models::configured(api).await?;
        let model = api.call::<GetModel>(&target, NoParams {}).await.ok();
        let (preset, cwd) = (permissions.preset, permissions.policy.cwd.into());
        Ok(Self { cwd, preset, presets, model, models })
    }

    pub fn modes(&self) -> SessionModeState {
        let mode = |name: &str| SessionMode::new(name.to_owned(), name.to_owned());
        let modes = self.presets_offered();
        let modes = modes.into_iter().map(|(name, meant)| mode(name).description(meant)).collect();
        SessionModeState::new(self.preset.clone(), modes)
    }

    pub fn options(&self) -> Vec<SessionConfigOption> {
        let choice = |(name, meant): (&str, Option<String>)| {
            SessionConfigSelectOption::new(name.to_owned(), name.to_owned()).description(meant)
        };
        let presets: Vec<_> = self.presets_offered().into_iter().map(choice).collect();
        let mode = SessionConfigOption::select(MODE, "Permissions", self.preset.clone(), presets);
        let mut options = vec![mode.category(SessionConfigOptionCategory::Mode)];
        let Some(model) = &self.model else { return options };
        let mut names: Vec<&str> = self.models.iter().map(|it| it.alias.as_str()).collect();
        if !names.contains(&model.model.as_str()) {
            names.insert(0, &model.model);
        }
        let models: Vec<_> = names.into_iter().map(|name| choice((name, None))).collect();
        let chosen = SessionConfigOption::select(MODEL, "Model", model.model.clone(), models);
        options.push(chosen.category(SessionConfigOptionCategory::Model));
        let (mut levels, level) = (self.levels(), level(&model.reasoning));
        if !levels.is_empty() {
            // Of a model that nobody knows, nobody knows its levels either.
            if !levels.contains(&level.as_str()) {
                levels.push(&level);
            }
            let levels: Vec<_> = levels.into_iter().map(|level| choice((level, None))).collect();
            let thinks =
                SessionConfigOption::select(THOUGHT_LEVEL, "Thinking", level.clone(), levels);
            options.push(thinks.category(SessionConfigOptionCategory::ThoughtLevel));
        }
        options
    }

    /// What can be chosen, and what is; with what it means.
    fn presets_offered(&self) -> Vec<(&str, Option<String>)> {
        let meant = |preset: &PresetEntry| match &preset.extends {
            Some(extends) => format!("{}, narrowed from {extends}", preset.level),
            None => preset.level.clone(),
        };
        let offered = self.presets.iter().filter(|preset| LEVELS.contains(&preset.level.as_str()));
        let mut named: Vec<_> =
            offered.map(|preset| (preset.name.as_str(), Some(meant(preset)))).collect();
        if named.iter().all(|(name, _)| *name != self.preset) {
            named.push((&self.preset, None));
        }
        named
    }

    /// Those of the model, where it can be asked so.
    fn levels(&self) -> Vec<&str> {
        let model = self.model.as_ref().map(|it| it.model.as_str());
        let entry = self.models.iter().find(|it| model.is_some_and(|name| it.is_named(name)));
        let Some(thinks) = entry.map(|it| &it.reasoning).filter(|it| it.kind == "effort") else {
            return Vec::new();
        };
        let off = (!thinks.always_on).then_some(OFF);
        let own = thinks.efforts.iter().map(String::as_str).filter(|it| *it != "none");
        [AS_CONFIGURED].into_iter().chain(off).chain(own).collect()
    }
}

/// Where a level stands among those that are given; what is not among them stands above.
fn rank(level: &str) -> usize {
    LEVELS.iter().position(|it| *it == level).unwrap_or(LEVELS.len())
}

pub async fn set_mode<A: Api>(api: &A, agent: &str, preset: &str) -> Result<(), CallError> {
    if preset == YOLO {
        let why = "yolo is given by a person at the terminal, never through a door";
        return Err(RpcError::invalid_params(why).into());
    }
    let params = SetPermissionsParams { preset: Some(preset.into()), ..Default::default() };
    api.call::<SetPermissions>(&Target::Agent(agent.into()), params).await.map(drop)
}

pub async fn set_model<A: Api>(api: &A, agent: &str, model: &str) -> Result<(), CallError> {
    let params = SetModelParams { model: model.into(), reasoning: None };
    api.call::<SetModel>(&Target::Agent(agent.into()), params).await.map(drop)
}

pub async fn set_level<A: Api>(api: &A, agent: &str, level: &str) -> Result<(), CallError> {
    let target = Target::Agent(agent.into());
    let reasoning = match level {
        AS_CONFIGURED => None,
        OFF => Some(ReasoningChoice::Switch(false)),
        effort => {
            let effort: Result<Effort, _> = serde_json::from_value(effort.into());
            let unknown = |_| RpcError::invalid_params(format!("There is no level {level:?}"));
            let effort = Some(effort.map_err(unknown)?);
            Some(ReasoningChoice::Detailed(ReasoningDetails { effort, ..Default::default() }))
        }
    };
    let model = api.call::<GetModel>(&target, NoParams {}).await?.model;
    api.call::<SetModel>(&target, SetModelParams { model, reasoning }).await.map(drop)
}

fn level(choice: &ReasoningChoice) -> String {
    match choice {
        ReasoningChoice::Switch(false) => OFF.into(),
        ReasoningChoice::Detailed(ReasoningDetails { effort: Some(effort), .. }) => {
            match json!(effort) {
                Value::String(name) => name,
                _ => AS_CONFIGURED.into(),
            }
        }
        _ => AS_CONFIGURED.into(),
    }
}
