//! Tools with which an agent remembers: what is its own, what its tree shares, and what is everybody's to read.

use std::sync::Arc;

use async_trait::async_trait;
use nexus_core::Requester;
use nexus_core::memory::{Identity, NewMemory};
use nexus_core::permission::ToolClass;
use nexus_core::tool::{Invocation, Need, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed::{TypedTool, tool};

/// Memories that a search returns.
const FOUND_MAX: u32 = 10;

/// Signs of each that the model is shown: a fact is shorter, and ten of them stay within what a tool may return.
const SHOWN_SIGNS_MAX: usize = 1_000;

/// Who told a memory that an agent keeps.
const SOURCE: &str = "agent";

pub fn memory_tools() -> Vec<Arc<dyn Tool>> {
    vec![tool(Search), tool(Add), tool(Delete)]
}

struct Search;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchArgs {
    query: String,
}

#[async_trait]
impl TypedTool for Search {
    const NAME: &'static str = "memory_search";
    const DESCRIPTION: &'static str = "Find what was remembered earlier.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = SearchArgs;
    type Output = String;

    fn needs(&self, _: &SearchArgs) -> Result<Vec<Need>, String> {
        Ok(Vec::new())
    }

    async fn run(&self, args: SearchArgs, call: Invocation) -> Result<String, String> {
        let who = identity(&call).await?;
        let found = call.memories.search(&who, &args.query, FOUND_MAX).await.map_err(words)?;
        if found.is_empty() {
            return Ok("Nothing found.".into());
        }
        let lines = found.iter().map(|found| {
            let id = found.memory.id.to_string();
            let content: String = found.memory.content.chars().take(SHOWN_SIGNS_MAX).collect();
            format!("{} [{:.2}] {content}", &id[..8], found.similarity)
        });
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }
}

struct Add;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddArgs {
    content: String,
    /// People or things it is about.
    subjects: Option<Vec<String>>,
    /// Also for your parent, its other children and yours.
    shared: Option<bool>,
    expires_days: Option<f64>,
}

#[async_trait]
impl TypedTool for Add {
    const NAME: &'static str = "memory_add";
    const DESCRIPTION: &'static str = "Remember a fact for later conversations.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = AddArgs;
    type Output = String;

    fn needs(&self, _: &AddArgs) -> Result<Vec<Need>, String> {
        Ok(Vec::new())
    }

    async fn run(&self, args: AddArgs, call: Invocation) -> Result<String, String> {
        let who = identity(&call).await?;
        let new = NewMemory {
            content: args.content,
            source: SOURCE.into(),
            expires_days: args.expires_days,
            subjects: args.subjects.unwrap_or_default(),
            shared: args.shared.unwrap_or(false),
            of_guest: false,
        };
        let kept = call.memories.add(&requester(&call), &who, new).await.map_err(words)?;
        Ok(format!("Remembered as {}.", &kept.id.to_string()[..8]))
    }
}

struct Delete;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteArgs {
    memory_id: String,
}

#[async_trait]
impl TypedTool for Delete {
    const NAME: &'static str = "memory_delete";
    const DESCRIPTION: &'static str = "Forget something that was remembered.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = DeleteArgs;
    type Output = String;

    fn needs(&self, _: &DeleteArgs) -> Result<Vec<Need>, String> {
        Ok(Vec::new())
    }

    async fn run(&self, args: DeleteArgs, call: Invocation) -> Result<String, String> {
        let who = identity(&call).await?;
        let id = &args.memory_id;
        match call.memories.delete(&requester(&call), &who, id).await.map_err(words)? {
            true => Ok(format!("Forgot {id}.")),
            false => Err(format!("no memory of yours or your tree's has the id {id}")),
        }
    }
}

fn requester(call: &Invocation) -> Requester {
    Requester::Agent(call.agent.id())
}

async fn identity(call: &Invocation) -> Result<Identity, String> {
    call.memories.identity_of(&call.agent.id()).await.map_err(words)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
