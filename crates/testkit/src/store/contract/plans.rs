//! Plans, and how far they got.

use jiff::{SignedDuration, Timestamp};
use nexus_core::AgentId;
use nexus_core::plan::{
    Plan, PlanId, PlanStatus, PlannedTask, TaskOutput, TaskRecord, TaskStatus, TaskType,
};
use nexus_core::store::{
    AgentStore as _, Begun, Maker, PlanQuery, PlanRecord, PlanRoom, PlanRun, PlanStore as _,
    SessionStore as _, Store, StoreError, StoredPlan,
};
use nexus_core::usage::{Bill, Cost, Usage};

use super::{Place, made};
use crate::store::sample::{self, id as agent_id};

/// For as many as there are.
const ROOM: PlanRoom = PlanRoom { count_max: u64::MAX, bytes_max: u64::MAX };

pub async fn a_plan_comes_back_as_it_was_made(place: impl Place) {
    let plans = [plan(1, Maker::Administrator), plan(2, Maker::Agent(agent_id("a"), u64::MAX))];
    let store = place.open().await;
    for plan in &plans {
        made(store.add_plan(plan.clone(), at(0), ROOM).await);
    }
    drop(store);
    let store = place.open().await;
    for plan in plans {
        let (status, touched_at) = (PlanStatus::Created, plan.created_at);
        let stored = StoredPlan { record: plan, status, touched_at, tasks: Vec::new() };
        assert_eq!(made(store.plan(&stored.record.id).await), Some(stored));
    }
    assert_eq!(made(store.plan(&name(3)).await), None);
}

pub async fn how_far_a_plan_got_is_kept(place: impl Place) {
    let store = place.open().await;
    made(store.add_plan(plan(1, Maker::Administrator), at(0), ROOM).await);
    let (run, stored) = taken(made(store.begin_plan(&name(1), at(20)).await));
    assert_eq!((stored.status, stored.touched_at), (PlanStatus::Running, at(20)));
    let begun = TaskRecord { status: TaskStatus::Running, attempts: 1, ..TaskRecord::default() };
    made(store.note_task(&run, "a".into(), begun.clone()).await);
    made(store.note_task(&run, "b".into(), begun).await);
    made(store.note_task(&run, "a".into(), done()).await);
    drop(store);
    let store = place.open().await;
    let stored = found(&store, 1).await;
    assert_eq!(stored.status, PlanStatus::Interrupted, "its process is gone");
    assert_eq!(stored.tasks[0], ("a".into(), done()));
    assert_eq!(stored.tasks[1].1.status, TaskStatus::Running);
    let (run, _) = taken(made(store.begin_plan(&name(1), at(30)).await));
    made(store.end_plan(&run, PlanStatus::Partial, at(40)).await);
    let stored = found(&store, 1).await;
    assert_eq!((stored.status, stored.touched_at), (PlanStatus::Partial, at(40)));
    assert_eq!(stored.tasks.len(), 2);
}

pub async fn one_process_runs_a_plan(place: impl Place) {
    let (one, other) = (place.open().await, place.open().await);
    made(one.add_plan(plan(1, Maker::Administrator), at(0), ROOM).await);
    assert!(made(one.begin_plan(&name(2), at(1)).await).is_none());
    let (run, _) = taken(made(one.begin_plan(&name(1), at(1)).await));
    assert!(matches!(made(other.begin_plan(&name(1), at(2)).await), Some(Begun::Runs { .. })));
    assert_eq!(found(&other, 1).await.status, PlanStatus::Running);
    // In its own process a later run takes the place of the one before.
    let (later, _) = taken(made(one.begin_plan(&name(1), at(3)).await));
    let lost = one.note_task(&run, "a".into(), done()).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost)));
    let lost = one.end_plan(&run, PlanStatus::Success, at(4)).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost)));
    made(one.end_plan(&later, PlanStatus::Cancelled, at(4)).await);
    let (theirs, _) = taken(made(other.begin_plan(&name(1), at(5)).await));
    let lost = one.note_task(&later, "a".into(), done()).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost)));
    made(other.note_task(&theirs, "a".into(), done()).await);
}

pub async fn plans_come_by_page_the_last_touched_first(place: impl Place) {
    let store = place.open().await;
    let own = Maker::Agent(agent_id("a"), 7);
    for number in 1..=4 {
        let maker = if number % 2 == 0 { own.clone() } else { Maker::Administrator };
        made(store.add_plan(plan(number, maker), at(0), ROOM).await);
    }
    let (run, _) = taken(made(store.begin_plan(&name(1), at(50)).await));
    made(store.note_task(&run, "a".into(), done()).await);
    let page = async |maker: Option<Maker>, after: Option<u64>, limit| {
        let query = PlanQuery { maker, after: after.map(name), limit };
        let page = made(store.plans(query).await);
        let numbers: Vec<_> = page.plans.iter().map(|it| number(&it.id)).collect();
        (numbers, page.more)
    };
    assert_eq!(page(None, None, 3).await, (vec![1, 4, 3], true));
    assert_eq!(page(None, Some(3), 3).await, (vec![2], false));
    assert_eq!(page(None, None, 4).await, (vec![1, 4, 3, 2], false));
    assert_eq!(page(None, Some(9), 4).await, (vec![], false));
    assert_eq!(page(Some(own), None, 1).await, (vec![4], true));
    assert_eq!(page(Some(Maker::Agent(agent_id("a"), 8)), None, 9).await, (vec![], false));
    let query = PlanQuery { maker: None, after: None, limit: 1 };
    let first = made(store.plans(query).await).plans.remove(0);
    assert_eq!((first.task_count, first.done_count), (2, 1));
    assert_eq!((first.status, first.touched_at), (PlanStatus::Running, at(50)));
    let long = PlanRecord { request: "é".repeat(501), ..plan(9, Maker::Administrator) };
    made(store.add_plan(long, at(0), ROOM).await);
    let query = PlanQuery { maker: None, after: None, limit: 9 };
    let listed = made(store.plans(query).await).plans;
    assert!(listed.iter().any(|it| it.request == "é".repeat(500)));
}

pub async fn what_nobody_touches_is_removed(place: impl Place) {
    let store = place.open().await;
    for number in 1..=2 {
        made(store.add_plan(plan(number, Maker::Administrator), at(0), ROOM).await);
    }
    let (run, _) = taken(made(store.begin_plan(&name(2), at(20)).await));
    made(store.note_task(&run, "a".into(), done()).await);
    made(store.end_plan(&run, PlanStatus::Success, at(20)).await);
    made(store.add_plan(plan(3, Maker::Administrator), at(20), ROOM).await);
    assert_eq!(made(store.plan(&name(1)).await), None);
    assert_eq!(found(&store, 2).await.tasks.len(), 1);
}

/// Of a tree there is so much, whoever in it made it, and it takes nothing from others.
pub async fn a_tree_keeps_so_many_plans(place: impl Place) {
    let store = place.open().await;
    let [root, child] = ["root", "child"].map(agent_id);
    let of = |number, maker: &AgentId, tree: &AgentId| PlanRecord {
        maker: Maker::Agent(maker.clone(), 7),
        tree: Some(tree.clone()),
        ..plan(number, Maker::Administrator)
    };
    let room = |count_max| PlanRoom { count_max, bytes_max: u64::MAX };
    let add = async |plan, room| made(store.add_plan(plan, at(0), room).await);
    let left = async || {
        let query = PlanQuery { maker: None, after: None, limit: 99 };
        let mut left: Vec<_> =
            made(store.plans(query).await).plans.iter().map(|it| number(&it.id)).collect();
        left.sort_unstable();
        left
    };
    add(plan(1, Maker::Administrator), room(1)).await;
    add(of(2, &agent_id("other"), &agent_id("other")), room(1)).await;
    for (number, maker) in [(3, &root), (4, &child), (5, &root)] {
        add(of(number, maker, &root), room(3)).await;
    }
    assert_eq!(left().await, [1, 2, 3, 4, 5]);
    // The one that runs is the oldest now, and stays.
    let (run, _) = taken(made(store.begin_plan(&name(3), at(0)).await));
    add(of(6, &child, &root), room(3)).await;
    assert_eq!(left().await, [1, 2, 3, 5, 6]);
    made(store.end_plan(&run, PlanStatus::Success, at(0)).await);
    add(of(7, &child, &root), room(3)).await;
    assert_eq!(left().await, [1, 2, 5, 6, 7]);
    // By bytes, of just as many and of one less. Each of these plans is as long as the others.
    let json = serde_json::to_string(&of(8, &root, &root).plan).unwrap_or_default();
    let bytes = (of(8, &root, &root).request.len() + json.len()) as u64;
    let bytes_of = |count: u64, less| PlanRoom { count_max: 99, bytes_max: count * bytes - less };
    add(of(8, &root, &root), bytes_of(4, 0)).await;
    assert_eq!(left().await, [1, 2, 5, 6, 7, 8]);
    add(of(9, &root, &root), bytes_of(5, 1)).await;
    assert_eq!(left().await, [1, 2, 6, 7, 8, 9]);
}

pub async fn a_trees_plans_stay_its_own_under_another_name(place: impl Place) {
    let store = place.open().await;
    made(store.create(sample::agent("root")).await);
    let of = |number, tree: &str| plan(number, Maker::Agent(agent_id(tree), 7));
    let room = PlanRoom { count_max: 1, ..ROOM };
    made(store.add_plan(of(1, "root"), at(0), room).await);
    made(store.rename(&agent_id("root"), &agent_id("renamed")).await);
    made(store.add_plan(of(2, "renamed"), at(0), room).await);
    assert_eq!(made(store.plan(&name(1)).await), None);
}

async fn found(store: &impl Store, number: u64) -> StoredPlan {
    let Some(plan) = made(store.plan(&name(number)).await) else { panic!("no plan {number}") };
    plan
}

fn taken(begun: Option<Begun>) -> (PlanRun, StoredPlan) {
    match begun {
        Some(Begun::Taken(run, stored)) => (run, *stored),
        other => panic!("{other:?}"),
    }
}

fn name(number: u64) -> PlanId {
    let Some(id) = PlanId::parse(&format!("plan_{number:016x}")) else { panic!("no name") };
    id
}

fn number(id: &PlanId) -> u64 {
    let digits = id.as_str().trim_start_matches("plan_");
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

/// The `number`th plan, made so many seconds after the first.
fn plan(number: u64, maker: Maker) -> PlanRecord {
    let task = |id: &str, dependencies: Vec<String>| PlannedTask {
        id: id.into(),
        kind: TaskType::Analysis,
        description: "look".into(),
        dependencies,
        priority: 1,
        max_attempts: None,
    };
    PlanRecord {
        id: name(number),
        request: format!("request {number}"),
        plan: Plan {
            tasks: vec![task("a", vec![]), task("b", vec!["a".into()])],
            estimated_time_seconds: 5,
            explanation: "so".into(),
        },
        tree: match &maker {
            Maker::Administrator => None,
            Maker::Agent(id, _) => Some(id.clone()),
        },
        maker,
        created_at: at(i64::try_from(number).unwrap_or_default()),
    }
}

fn done() -> TaskRecord {
    let usage = Usage { input: 3, output: 4, ..Usage::default() };
    TaskRecord {
        status: TaskStatus::Success,
        attempts: 2,
        output: Some(TaskOutput {
            text: "all of it".into(),
            code: "x".into(),
            explanation: "y".into(),
            files_created: vec!["new".into()],
            ..TaskOutput::default()
        }),
        reason: Some("why".into()),
        model: Some("m".into()),
        bill: Bill::of(usage, Some(Cost(5))),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
}
