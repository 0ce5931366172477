//! A plan: tasks with dependencies for one request. What one has to be, and how a model's answer becomes one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use crate::usage::Bill;

/// Tasks of one plan. More than that is several plans.
pub const TASKS_MAX: usize = 200;

/// Tasks that a planner is allowed when nobody says otherwise.
pub const TASKS_USUAL: usize = 20;

/// Tasks that a small model may plan: it would go round in circles otherwise.
const SMALL_TASKS_MAX: usize = 8;

/// Longest id of a task, in characters.
pub const TASK_ID_CHARS_MAX: usize = 64;

/// Longest description of a task, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 64 << 10;

/// All descriptions of a plan together, in bytes: a plan is told in one answer.
pub const DESCRIPTIONS_BYTES_MAX: usize = 1 << 20;

/// How often one task may be tried in a run.
pub const ATTEMPTS_MAX: u32 = 5;

/// What kind of work a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskType {
    CodeGeneration,
    Refactoring,
    Analysis,
    Testing,
}

impl TaskType {
    pub const ALL: [Self; 4] =
        [Self::CodeGeneration, Self::Refactoring, Self::Analysis, Self::Testing];

    pub fn name(self) -> &'static str {
        match self {
            Self::CodeGeneration => "code_generation",
            Self::Refactoring => "refactoring",
            Self::Analysis => "analysis",
            Self::Testing => "testing",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub tasks: Vec<PlannedTask>,
    #[serde(default)]
    pub estimated_time_seconds: u64,
    #[serde(default)]
    pub explanation: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTask {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: TaskType,
    pub description: String,
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// 1 is the most urgent.
    #[serde(default = "one")]
    pub priority: u32,
    /// How often it may be tried, where that is not left to the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

fn one() -> u32 {
    1
}

/// What a plan must keep to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constraints {
    pub max_tasks: Option<u32>,
    pub time_limit_seconds: Option<u64>,
}

impl Constraints {
    fn tasks_max(&self) -> usize {
        self.max_tasks.map_or(TASKS_MAX, |max| TASKS_MAX.min(max as usize))
    }

    /// How many tasks a planner is told it may make.
    pub fn tasks_told(&self) -> usize {
        self.max_tasks.map_or(TASKS_USUAL, |max| TASKS_MAX.min(max as usize))
    }
}

/// The rule that a plan breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanFault {
    #[error("it is no plan: {0}")]
    NoPlan(String),
    #[error("it has no tasks")]
    Empty,
    #[error("it has {count} tasks, and at most {max} are allowed")]
    TooMany { count: usize, max: usize },
    #[error(
        "a task's id is 1 to {TASK_ID_CHARS_MAX} characters without spaces and control characters, not {0:?}"
    )]
    Id(String),
    #[error("two tasks have the id {0}")]
    Duplicate(String),
    #[error(
        "task {0} has no description, or one of more than {DESCRIPTION_BYTES_MAX} bytes or with a NUL character"
    )]
    Description(String),
    #[error("its descriptions have more than {DESCRIPTIONS_BYTES_MAX} bytes together")]
    Descriptions,
    #[error("the priority of task {0} is not 1 or more")]
    Priority(String),
    #[error("task {0} may be tried 1 to {ATTEMPTS_MAX} times")]
    Attempts(String),
    #[error("task {task} depends on {dependency}, which is not in the plan")]
    Dependency { task: String, dependency: String },
    #[error("tasks depend on each other in a circle: {}", .0.join(" -> "))]
    Circle(Vec<String>),
    #[error("it takes {estimate} s by its own estimate, and {limit} s are allowed")]
    TooLong { estimate: u64, limit: u64 },
}

impl Plan {
    pub fn check(&self, constraints: &Constraints) -> Result<(), PlanFault> {
        if self.tasks.is_empty() {
            return Err(PlanFault::Empty);
        }
        let (count, max) = (self.tasks.len(), constraints.tasks_max());
        if count > max {
            return Err(PlanFault::TooMany { count, max });
        }
        let mut ids = BTreeSet::new();
        for task in &self.tasks {
            task.check()?;
            if !ids.insert(task.id.as_str()) {
                return Err(PlanFault::Duplicate(task.id.clone()));
            }
        }
        let described: usize = self.tasks.iter().map(|task| task.description.len()).sum();
        if described > DESCRIPTIONS_BYTES_MAX {
            return Err(PlanFault::Descriptions);
        }
        for task in &self.tasks {
            let missing = task.dependencies.iter().find(|it| !ids.contains(it.as_str()));
            if let Some(dependency) = missing {
                let (task, dependency) = (task.id.clone(), dependency.clone());
                return Err(PlanFault::Dependency { task, dependency });
            }
        }
        if let Some(circle) = self.circle() {
            return Err(PlanFault::Circle(circle));
        }
        let (estimate, limit) = (self.estimated_time_seconds, constraints.time_limit_seconds);
        match limit {
            Some(limit) if estimate > limit => Err(PlanFault::TooLong { estimate, limit }),
            _ => Ok(()),
        }
    }

    /// Tasks that wait for each other for ever, where there are any; the first stands at the end again.
    fn circle(&self) -> Option<Vec<String>> {
        let by_id: HashMap<&str, &PlannedTask> =
            self.tasks.iter().map(|task| (task.id.as_str(), task)).collect();
        let mut left: BTreeMap<&str, usize> =
            self.tasks.iter().map(|task| (task.id.as_str(), task.needs().len())).collect();
        // Whoever waits for nobody goes, until none of those is left.
        while let Some(free) = left.iter().find(|(_, waits)| **waits == 0).map(|(id, _)| *id) {
            left.remove(free);
            for (id, waits) in &mut left {
                *waits -= usize::from(by_id[id].needs().contains(free));
            }
        }
        let mut at = *left.keys().next()?;
        let mut path = Vec::new();
        while !path.contains(&at) {
            path.push(at);
            at = by_id[at].needs().into_iter().find(|id| left.contains_key(id))?;
        }
        let start = path.iter().position(|id| *id == at)?;
        let circle = path[start..].iter().chain([&at]);
        Some(circle.map(|id| (*id).to_owned()).collect())
    }

    /// All tasks that have to be done before this one.
    pub fn before(&self, id: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let task = self.tasks.iter().find(|task| task.id == id);
            for id in task.into_iter().flat_map(PlannedTask::needs) {
                if found.insert(id) {
                    open.push(id);
                }
            }
        }
        found
    }

    /// Reads what a planner said: an object of JSON, alone, in a fence, or among words.
    pub fn read(answer: &str, constraints: &Constraints) -> Result<Self, PlanFault> {
        let value = object_in(answer)?;
        // Some models wrap it, as the method's own answer does.
        let value = match value {
            Value::Object(mut object) if !object.contains_key("tasks") => {
                object.remove("plan").unwrap_or(Value::Object(object))
            }
            value => value,
        };
        let mut plan: Self =
            serde_json::from_value(value).map_err(|error| PlanFault::NoPlan(error.to_string()))?;
        for task in &mut plan.tasks {
            let mut known = BTreeSet::new();
            task.dependencies.retain(|id| known.insert(id.clone()));
        }
        plan.check(constraints)?;
        Ok(plan)
    }

    /// The schema that a small model is held to: whatever satisfies it is a plan by all rules but the time it takes. Each task
    /// has the id of its place and depends on earlier ones, and texts end. Services refuse such schemas, and their models
    /// need none.
    pub fn strict_schema(constraints: &Constraints) -> Value {
        let mut schema = Self::schema(constraints);
        let ids: Vec<_> = (1..=constraints.tasks_told().min(SMALL_TASKS_MAX))
            .map(|n| format!("task_{n:03}"))
            .collect();
        let tasks = &mut schema["properties"]["tasks"];
        let item = tasks["items"].take();
        let places = (0..ids.len()).map(|at| {
            let mut item = item.clone();
            let fields = &mut item["properties"];
            fields["id"] = json!({"const": ids[at]});
            fields["dependencies"] = match at {
                0 => json!({"type": "array", "maxItems": 0}),
                _ => json!({"type": "array", "items": {"enum": ids[..at]}, "maxItems": 2}),
            };
            fields["description"] = json!({"type": "string", "minLength": 10, "maxLength": 200});
            fields["priority"] = json!({"type": "integer", "minimum": 1, "maximum": 9});
            item
        });
        *tasks = json!({
            "type": "array", "prefixItems": places.collect::<Vec<_>>(), "items": false,
            "minItems": 1, "maxItems": ids.len(),
        });
        schema["properties"]["explanation"] = json!({"type": "string", "maxLength": 200});
        schema["properties"]["estimated_time_seconds"] = json!({"type": "integer", "minimum": 1, "maximum": constraints.time_limit_seconds.unwrap_or(3600)});
        schema["x-guidance"] = json!({"whitespace_flexible": false});
        schema
    }

    /// The schema that a planner is held to.
    pub fn schema(constraints: &Constraints) -> Value {
        let types: Vec<_> = TaskType::ALL.map(TaskType::name).into();
        json!({
            "type": "object",
            "properties": {
                "explanation": {"type": "string"},
                "estimated_time_seconds": {"type": "integer"},
                "tasks": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": constraints.tasks_told(),
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string"},
                            "type": {"type": "string", "enum": types},
                            "description": {"type": "string"},
                            "dependencies": {"type": "array", "items": {"type": "string"}},
                            "priority": {"type": "integer"},
                        },
                        "required": ["id", "type", "description", "dependencies", "priority"],
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["explanation", "estimated_time_seconds", "tasks"],
            "additionalProperties": false,
        })
    }
}

impl PlannedTask {
    fn check(&self) -> Result<(), PlanFault> {
        let id = &self.id;
        let plain = id.chars().all(|c| !c.is_control() && !c.is_whitespace());
        if id.is_empty() || id.chars().count() > TASK_ID_CHARS_MAX || !plain {
            return Err(PlanFault::Id(id.chars().take(TASK_ID_CHARS_MAX).collect()));
        }
        let said = self.description.trim();
        let unfit = self.description.len() > DESCRIPTION_BYTES_MAX || said.contains('\0');
        if said.is_empty() || unfit {
            return Err(PlanFault::Description(id.clone()));
        }
        if self.priority == 0 {
            return Err(PlanFault::Priority(id.clone()));
        }
        match self.max_attempts {
            Some(attempts) if !(1..=ATTEMPTS_MAX).contains(&attempts) => {
                Err(PlanFault::Attempts(id.clone()))
            }
            _ => Ok(()),
        }
    }

    /// What has to be done before it, each once.
    pub fn needs(&self) -> BTreeSet<&str> {
        self.dependencies.iter().map(String::as_str).collect()
    }
}

/// The object in an answer.
fn object_in(answer: &str) -> Result<Value, PlanFault> {
    let none = || PlanFault::NoPlan("there is no object of JSON in it".into());
    let (start, end) = (answer.find('{').ok_or_else(none)?, answer.rfind('}').ok_or_else(none)?);
    let text = answer.get(start..=end).ok_or_else(none)?;
    serde_json::from_str(text).map_err(|error| PlanFault::NoPlan(format!("no JSON: {error}")))
}

/// Names a plan: nobody can guess it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanId(String);

impl PlanId {
    pub fn random() -> Self {
        Self(format!("plan_{:016x}", crate::random_number()))
    }

    /// `None` when no plan is called so.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("plan_")?;
        let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (digits.len() == 16 && digits.bytes().all(plain)).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How far a task of a plan got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskStatus {
    #[default]
    Pending,
    Running,
    Success,
    /// It ended, and not all that was asked for is done.
    Partial,
    Failed,
    /// Something it depends on is not done, or the run was to stop.
    Skipped,
    Cancelled,
}

impl TaskStatus {
    const ALL: [Self; 7] = [
        Self::Pending,
        Self::Running,
        Self::Success,
        Self::Partial,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// What became of a task so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskRecord {
    pub status: TaskStatus,
    /// How often it was begun.
    pub attempts: u32,
    pub output: Option<TaskOutput>,
    /// Why it is not done.
    pub reason: Option<String>,
    pub model: Option<String>,
    /// All that its attempts used.
    pub bill: Bill,
}

/// What a task came to. Paths are relative to the directory it worked in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutput {
    /// All that was said.
    pub text: String,
    /// What stood in fences.
    pub code: String,
    /// The rest.
    pub explanation: String,
    pub files_modified: Vec<String>,
    pub files_created: Vec<String>,
    pub files_deleted: Vec<String>,
}

impl TaskOutput {
    /// The same, in which each text has at most so many bytes; what is cut off is said.
    pub fn bounded(mut self, bytes_max: usize) -> Self {
        for text in [&mut self.text, &mut self.code, &mut self.explanation] {
            if text.len() > bytes_max {
                let more = text.len() - bytes_max;
                text.truncate(text.floor_char_boundary(bytes_max));
                text.push_str(&format!("\n[{more} bytes more were said]"));
            }
        }
        self
    }
}

/// How far a plan got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStatus {
    /// Nobody has run it.
    Created,
    Running,
    /// The process that ran it is gone; it can go on.
    Interrupted,
    Success,
    /// Some of it is done.
    Partial,
    Failed,
    Cancelled,
}

impl PlanStatus {
    const ALL: [Self; 7] = [
        Self::Created,
        Self::Running,
        Self::Interrupted,
        Self::Success,
        Self::Partial,
        Self::Failed,
        Self::Cancelled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Success => "success",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, dependencies: &[&str]) -> PlannedTask {
        PlannedTask {
            id: id.into(),
            kind: TaskType::Analysis,
            description: "look".into(),
            dependencies: dependencies.iter().map(|it| (*it).to_owned()).collect(),
            priority: 1,
            max_attempts: None,
        }
    }

    fn plan(tasks: Vec<PlannedTask>) -> Plan {
        Plan { tasks, estimated_time_seconds: 10, explanation: String::new() }
    }

    fn checked(tasks: Vec<PlannedTask>) -> Result<(), PlanFault> {
        plan(tasks).check(&Constraints::default())
    }

    #[test]
    fn every_rule_is_named() {
        let told = |fault: Result<(), PlanFault>| fault.unwrap_err().to_string();
        assert_eq!(checked(vec![task("a", &[]), task("b", &["a", "a"])]), Ok(()));
        assert_eq!(checked(vec![]), Err(PlanFault::Empty));
        let twice = told(checked(vec![task("a", &[]), task("a", &[])]));
        assert_eq!(twice, "two tasks have the id a");
        let nothing = told(checked(vec![task("a", &["b"])]));
        assert_eq!(nothing, "task a depends on b, which is not in the plan");
        for bad in ["", "a b", "a\n", &"x".repeat(65)] {
            assert!(matches!(checked(vec![task(bad, &[])]), Err(PlanFault::Id(_))), "{bad:?}");
        }
        assert_eq!(checked(vec![task(&"x".repeat(64), &[])]), Ok(()));
        let with = |change: fn(&mut PlannedTask)| {
            let mut changed = task("a", &[]);
            change(&mut changed);
            checked(vec![changed])
        };
        assert_eq!(with(|task| task.priority = 0), Err(PlanFault::Priority("a".into())));
        assert_eq!(with(|task| task.max_attempts = Some(5)), Ok(()));
        for attempts in [0, 6] {
            let mut changed = task("a", &[]);
            changed.max_attempts = Some(attempts);
            assert_eq!(checked(vec![changed]), Err(PlanFault::Attempts("a".into())));
        }
        assert_eq!(with(|task| task.description = "x".repeat(DESCRIPTION_BYTES_MAX)), Ok(()));
        let longer = with(|task| task.description = "x".repeat(DESCRIPTION_BYTES_MAX + 1));
        assert_eq!(longer, Err(PlanFault::Description("a".into())));
        assert!(with(|task| task.description = " \n".into()).is_err());
        assert!(with(|task| task.description = "a\0b".into()).is_err());
    }

    #[test]
    fn a_circle_is_shown_whole() {
        let circle = checked(vec![
            task("a", &["c"]),
            task("b", &["a"]),
            task("c", &["b"]),
            task("d", &["a"]),
            task("free", &[]),
        ]);
        assert_eq!(
            circle.unwrap_err().to_string(),
            "tasks depend on each other in a circle: a -> c -> b -> a"
        );
        let own = checked(vec![task("a", &["a"])]).unwrap_err();
        assert_eq!(own, PlanFault::Circle(vec!["a".into(), "a".into()]));
    }

    #[test]
    fn limits_just_under_and_just_over() {
        let many = |count: usize| plan((0..count).map(|n| task(&n.to_string(), &[])).collect());
        let constraints = Constraints { max_tasks: Some(3), time_limit_seconds: Some(10) };
        assert_eq!(many(3).check(&constraints), Ok(()));
        assert_eq!(many(4).check(&constraints), Err(PlanFault::TooMany { count: 4, max: 3 }));
        assert_eq!(many(TASKS_MAX).check(&Constraints::default()), Ok(()));
        let wide = Constraints { max_tasks: Some(1_000), ..Constraints::default() };
        let over = PlanFault::TooMany { count: TASKS_MAX + 1, max: TASKS_MAX };
        assert_eq!(many(TASKS_MAX + 1).check(&wide), Err(over));
        let described = |last: usize| {
            let mut plan = many(DESCRIPTIONS_BYTES_MAX / DESCRIPTION_BYTES_MAX + 1);
            plan.tasks.iter_mut().for_each(|it| it.description = "x".repeat(DESCRIPTION_BYTES_MAX));
            plan.tasks[0].description = "x".repeat(last);
            plan.tasks[1].description = "x".repeat(DESCRIPTION_BYTES_MAX - 1);
            plan.check(&Constraints::default())
        };
        assert_eq!(described(1), Ok(()));
        assert_eq!(described(2), Err(PlanFault::Descriptions));
        let late = Constraints { time_limit_seconds: Some(9), ..Constraints::default() };
        assert_eq!(many(1).check(&late), Err(PlanFault::TooLong { estimate: 10, limit: 9 }));
    }

    #[test]
    fn an_answer_is_read_wherever_it_stands() {
        let json = r#"{"tasks": [{"id": "a", "type": "testing", "description": "try it",
                       "dependencies": [], "priority": 2}], "estimated_time_seconds": 5, "explanation": "so"}"#;
        let read = |answer: &str| Plan::read(answer, &Constraints::default());
        let plan = read(json).unwrap();
        assert_eq!(plan.tasks[0].kind, TaskType::Testing);
        assert_eq!(
            read(&format!("Here it is:\n```json\n{json}\n```\nGood luck.")),
            Ok(plan.clone())
        );
        assert_eq!(read(&format!("{{\"plan\": {json}}}")), Ok(plan));
        for bad in ["I will think about it.", "{\"tasks\": [", "}{", "[]", "{\"tasks\": 3}", "{}"] {
            assert!(matches!(read(bad), Err(PlanFault::NoPlan(_))), "{bad}");
        }
        let unknown = json.replace("testing", "cooking");
        let fault = read(&unknown).unwrap_err().to_string();
        assert!(fault.contains("cooking") && fault.contains("code_generation"), "{fault}");
    }

    #[test]
    fn whatever_a_small_model_may_say_is_a_plan() {
        let constraints = Constraints { max_tasks: Some(3), time_limit_seconds: Some(60) };
        let schema = Plan::strict_schema(&constraints);
        let places = schema["properties"]["tasks"]["prefixItems"].as_array().unwrap();
        assert_eq!(places.len(), 3);
        assert_eq!(places[2]["properties"]["id"]["const"], "task_003");
        let earlier = &places[2]["properties"]["dependencies"]["items"]["enum"];
        assert_eq!(*earlier, json!(["task_001", "task_002"]));
        assert_eq!(places[0]["properties"]["dependencies"]["maxItems"], 0);
        assert_eq!(schema["properties"]["estimated_time_seconds"]["maximum"], 60);
        let wide = Plan::strict_schema(&Constraints::default());
        assert_eq!(wide["properties"]["tasks"]["maxItems"], SMALL_TASKS_MAX);
    }

    #[test]
    fn all_that_comes_before_is_known() {
        let plan = plan(vec![task("a", &[]), task("b", &["a"]), task("c", &["b"]), task("d", &[])]);
        assert_eq!(plan.before("c"), BTreeSet::from(["a", "b"]));
        assert!(plan.before("d").is_empty());
    }

    #[test]
    fn texts_are_cut_just_over_the_bound() {
        let output = |bytes: usize| TaskOutput { code: "x".repeat(bytes), ..TaskOutput::default() };
        assert_eq!(output(10).bounded(10), output(10));
        assert_eq!(output(11).bounded(10).code, "xxxxxxxxxx\n[1 bytes more were said]");
        let wide = TaskOutput { text: "ä".into(), ..TaskOutput::default() };
        assert_eq!(wide.bounded(1).text, "\n[1 bytes more were said]");
    }

    #[test]
    fn names_are_read_back() {
        for status in TaskStatus::ALL {
            assert_eq!(TaskStatus::parse(status.name()), Some(status));
        }
        for status in PlanStatus::ALL {
            assert_eq!(PlanStatus::parse(status.name()), Some(status));
        }
        let id = PlanId::random();
        assert_eq!(PlanId::parse(id.as_str()), Some(id));
        for bad in ["", "plan_", "plan_00", "plan_000000000000000G", "plan_00000000000000000"] {
            assert_eq!(PlanId::parse(bad), None);
        }
    }
}
