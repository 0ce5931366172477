//! A plan that an agent writes down for whoever looks on. Nothing is kept of it but the call itself.

use std::sync::Arc;

use async_trait::async_trait;
use nexus_core::permission::ToolClass;
use nexus_core::tool::{Invocation, Need, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed::{TypedTool, tool};

/// Steps of a plan, and characters of each.
const STEPS_MAX: usize = 50;
const STEP_CHARS_MAX: usize = 500;

pub fn plan_tool() -> Arc<dyn Tool> {
    tool(UpdatePlan)
}

struct UpdatePlan;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanArgs {
    steps: Vec<Step>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Step {
    step: String,
    status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Status {
    Pending,
    InProgress,
    Completed,
}

#[async_trait]
impl TypedTool for UpdatePlan {
    const NAME: &'static str = "update_plan";
    const DESCRIPTION: &'static str = "Show your plan for work of several steps, all of it, and again whenever a step begins or ends.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = PlanArgs;
    type Output = String;

    fn needs(&self, args: &PlanArgs) -> Result<Vec<Need>, String> {
        let count = args.steps.len();
        if count == 0 || count > STEPS_MAX {
            return Err(format!("a plan has 1 to {STEPS_MAX} steps, and this one has {count}"));
        }
        for (index, Step { step, .. }) in args.steps.iter().enumerate() {
            let is_blank = step.trim().is_empty();
            if is_blank || step.chars().count() > STEP_CHARS_MAX {
                let rule = format!("a step has 1 to {STEP_CHARS_MAX} characters and is not blank");
                return Err(format!("steps[{index}]: {rule}"));
            }
        }
        Ok(Vec::new())
    }

    async fn run(&self, args: PlanArgs, _: Invocation) -> Result<String, String> {
        let done = args.steps.iter().filter(|it| it.status == Status::Completed).count();
        Ok(format!("The plan is shown: {done} of {} steps done.", args.steps.len()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plan(steps: Vec<Value>) -> Result<(), String> {
        plan_tool().needs(&json!({"steps": steps})).map(|needs| assert_eq!(needs, []))
    }

    fn step(text: &str) -> Value {
        json!({"step": text, "status": "pending"})
    }

    #[test]
    fn a_plan_is_bounded() {
        plan(vec![step("Look")]).unwrap();
        plan(vec![step("Look"); STEPS_MAX]).unwrap();
        let why = plan(vec![step("Look"); STEPS_MAX + 1]).unwrap_err();
        assert_eq!(why, "a plan has 1 to 50 steps, and this one has 51");
        plan(Vec::new()).unwrap_err();
        plan(vec![step(&"ä".repeat(STEP_CHARS_MAX))]).unwrap();
        let why = plan(vec![step("Look"), step(&"ä".repeat(STEP_CHARS_MAX + 1))]).unwrap_err();
        assert_eq!(why, "steps[1]: a step has 1 to 500 characters and is not blank");
        plan(vec![step(" ")]).unwrap_err();
        plan(vec![json!({"step": "Look", "status": "begun"})]).unwrap_err();
    }

    /// All agents pay for it in every call.
    #[test]
    fn it_is_short() {
        assert!(plan_tool().spec().text_bytes() < 400, "{}", plan_tool().spec().text_bytes());
    }
}
