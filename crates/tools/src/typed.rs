//! A tool whose arguments are a type: the schema the model is shown and the check of what it sends are one.

use std::sync::Arc;

use async_trait::async_trait;
use nexus_core::permission::ToolClass;
use nexus_core::preview::Preview;
use nexus_core::provider::ToolSpec;
use nexus_core::tool::{Access, Invocation, Need, Tool, ToolOutput};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a tool's file writes; [`tool`] makes a `Tool` of it.
#[async_trait]
pub trait TypedTool: Send + Sync + 'static {
    const NAME: &'static str;
    /// One short paragraph that helps a model use the tool well. Every agent pays for its length in every call.
    const DESCRIPTION: &'static str;
    const CLASS: ToolClass;
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// What the model gets: a text, or more than that.
    type Output: Into<ToolOutput>;

    fn needs(&self, args: &Self::Args) -> Result<Vec<Need>, String>;

    /// As [`Tool::preview`].
    async fn preview(&self, _args: Self::Args, _access: Access) -> Option<Preview> {
        None
    }

    async fn run(&self, args: Self::Args, call: Invocation) -> Result<Self::Output, String>;
}

pub fn tool<T: TypedTool>(tool: T) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        name: T::NAME.into(),
        description: T::DESCRIPTION.into(),
        parameters: compact(schemars::schema_for!(T::Args).to_value()).to_string().into(),
    };
    Arc::new(Typed { tool, spec })
}

struct Typed<T> {
    tool: T,
    spec: ToolSpec,
}

#[async_trait]
impl<T: TypedTool> Tool for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self) -> ToolClass {
        T::CLASS
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, String> {
        self.tool.needs(&decode(arguments)?)
    }

    async fn preview(&self, arguments: &Value, access: Access) -> Option<Preview> {
        self.tool.preview(decode(arguments).ok()?, access).await
    }

    async fn run(&self, call: Invocation) -> Result<ToolOutput, String> {
        let args = decode(&call.arguments)?;
        self.tool.run(args, call).await.map(Into::into)
    }
}

fn decode<A: DeserializeOwned>(arguments: &Value) -> Result<A, String> {
    // serde would fill a struct from an array too.
    if !arguments.is_object() {
        return Err("the arguments must be a JSON object".into());
    }
    A::deserialize(arguments).map_err(|error| error.to_string())
}

/// The schema without what tells a model nothing: each byte is paid for in every call.
fn compact(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(members) => {
            for noise in ["$schema", "title", "format", "default", "additionalProperties"] {
                members.remove(noise);
            }
            if members.get("minimum") == Some(&Value::from(0)) {
                members.remove("minimum");
            }
            // An optional argument may be null; a model need not know.
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    members["type"] = only.clone();
                }
            }
            for (name, member) in members.iter_mut() {
                match member {
                    // Here the names are the arguments', which may be called as what is noise elsewhere.
                    Value::Object(arguments) if name == "properties" => {
                        arguments.values_mut().for_each(|it| *it = compact(it.take()));
                    }
                    member => *member = compact(member.take()),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = compact(item.take())),
        _ => {}
    }
    schema
}
