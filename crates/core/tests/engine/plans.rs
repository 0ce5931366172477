//! Plans on a store that fails.

use std::time::{Duration, Instant};

use nexus_core::executor::Terms;
use nexus_core::plan::{Plan, PlanStatus, PlannedTask, TaskType};
use nexus_core::plans::{OnFailure, RunError, RunOptions, RunReport, Which};
use nexus_core::store::{PlanQuery, PlanStore as _, StoreError};
use tokio_util::sync::CancellationToken;

use crate::fakes::{ADMIN, LONG, World};

fn plan() -> Plan {
    let task = |id: &str, dependencies: &[&str]| PlannedTask {
        id: id.into(),
        kind: TaskType::Analysis,
        description: "look".into(),
        dependencies: dependencies.iter().map(|it| (*it).into()).collect(),
        priority: 1,
        max_attempts: None,
    };
    Plan {
        tasks: vec![task("first", &[]), task("second", &["first"])],
        estimated_time_seconds: 1,
        explanation: String::new(),
    }
}

async fn run(world: &World, which: Which) -> Result<RunReport, RunError> {
    let options = RunOptions {
        max_parallel: 2,
        on_failure: OnFailure::Continue,
        max_attempts: 1,
        task_timeout: None,
        terms: Terms::default(),
    };
    let deadline = Instant::now() + LONG;
    let plans = &world.engine.plans;
    plans.run(&ADMIN, which, options, CancellationToken::new(), deadline, None).await
}

/// The only plan that is kept, and how far it got.
async fn kept(world: &World) -> Option<(String, PlanStatus)> {
    let query = PlanQuery { maker: None, after: None, limit: 9 };
    let plan = world.store.plans(query).await.unwrap().plans.pop()?;
    Some((plan.id.to_string(), plan.status))
}

#[tokio::test(start_paused = true)]
async fn wherever_the_store_fails_nobody_seems_to_run_the_plan_and_it_goes_on() {
    let whole = World::new();
    let before = whole.store.calls();
    run(&whole, Which::Brought(plan(), None)).await.unwrap();
    for nth in 1..=whole.store.calls() - before {
        let world = World::new();
        world.store.fail_next(nth, StoreError::Busy);
        let ran = run(&world, Which::Brought(plan(), None)).await;
        let Some((id, mut status)) = kept(&world).await else {
            assert!(ran.is_err(), "call {nth}");
            continue;
        };
        while status == PlanStatus::Running {
            tokio::time::sleep(Duration::from_secs(1)).await;
            status = kept(&world).await.unwrap().1;
        }
        let again = run(&world, Which::Known(id)).await.unwrap();
        assert_eq!(again.status, PlanStatus::Success, "call {nth}: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_broke_off_is_said_when_the_store_is_back() {
    let world = World::new();
    let mut left = 5;
    world.store.fail_when(move |call| {
        let fails = call.method == "end_plan" && left > 0;
        left -= u32::from(fails);
        fails.then_some(StoreError::DiskFull)
    });
    let ran = run(&world, Which::Brought(plan(), None)).await;
    assert!(matches!(ran, Err(RunError::Store(StoreError::DiskFull))), "{ran:?}");
    assert_eq!(kept(&world).await.unwrap().1, PlanStatus::Running);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (id, status) = kept(&world).await.unwrap();
    assert_eq!(status, PlanStatus::Interrupted);
    // What was done stays done.
    let asked = world.model.calls().len();
    assert_eq!(run(&world, Which::Known(id)).await.unwrap().status, PlanStatus::Success);
    assert_eq!(world.model.calls().len(), asked);
}
