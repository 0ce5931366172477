//! Grants and requests for leave.

use jiff::Timestamp;
use nexus_core::permission::Grants;
use nexus_core::store::{
    AgentRecord, ApprovalRecord, ApprovalStatus, SettingsRecord, Store, StoreError,
};
use serde_json::json;

use super::{agent, home, id, open};

fn approval(name: &str, status: ApprovalStatus) -> ApprovalRecord {
    ApprovalRecord {
        id: name.into(),
        agent: id("a"),
        tool: "exec".into(),
        arguments: json!({"argv": ["ls", "\u{e4}\0"]}),
        reason: "run a command".into(),
        created_at: Timestamp::UNIX_EPOCH,
        status,
    }
}

#[tokio::test]
async fn changed_settings_come_back_and_need_the_lease() {
    let home = home();
    let store = open(&home);
    let old = store.create(agent("a")).await.unwrap();
    let grants = Grants {
        write_paths: ["/w/out".into()].into(),
        exec_dirs: [("exec".into(), ["/w".into()].into())].into(),
    };
    let mut permissions = agent("a").permissions;
    permissions.disabled_tools.insert("exec".into());
    let settings = SettingsRecord {
        permissions,
        grants,
        model: Some("m".into()),
        cwd: "/elsewhere".into(),
        system_prompt: Some("Be brief.".into()),
    };
    store.update(&id("a"), old, settings.clone()).await.unwrap();
    let AgentRecord { permissions, grants, model, cwd, system_prompt, .. } =
        store.acquire(&id("a")).await.unwrap().unwrap().record;
    let back = SettingsRecord { permissions, grants, model, cwd, system_prompt };
    assert_eq!(back, settings);
    let lost = store.update(&id("a"), old, settings).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost(_))));
}

#[tokio::test]
async fn an_approval_keeps_its_last_status() {
    let home = home();
    let store = open(&home);
    store.create(agent("a")).await.unwrap();
    store.put_approval(approval("x", ApprovalStatus::Pending)).await.unwrap();
    for status in ApprovalStatus::ALL {
        store.settle_approval("x", status).await.unwrap();
        assert_eq!(store.approvals().await.unwrap(), [approval("x", status)]);
    }
}

#[tokio::test]
async fn what_waited_in_a_process_that_is_gone_is_denied_by_that() {
    let home = home();
    let (dying, living) = (open(&home), open(&home));
    dying.create(agent("a")).await.unwrap();
    dying.put_approval(approval("x", ApprovalStatus::Pending)).await.unwrap();
    dying.put_approval(approval("y", ApprovalStatus::AllowedOnce)).await.unwrap();
    assert_eq!(living.approvals().await.unwrap()[0].status, ApprovalStatus::Pending);
    let waits = living.approval("x").await.unwrap().unwrap().waits_in;
    assert_eq!(waits, Some(format!("process {}", std::process::id())));
    assert_eq!(dying.approval("x").await.unwrap().unwrap().waits_in, None);
    assert_eq!(living.approval("y").await.unwrap().unwrap().waits_in, None);
    assert_eq!(living.approval("z").await.unwrap(), None);
    drop(dying);
    let statuses: Vec<_> = living.approvals().await.unwrap().iter().map(|it| it.status).collect();
    assert_eq!(statuses, [ApprovalStatus::DeniedByRestart, ApprovalStatus::AllowedOnce]);
    let found = living.approval("x").await.unwrap().unwrap();
    assert_eq!((found.record.status, found.waits_in), (ApprovalStatus::DeniedByRestart, None));
}

#[tokio::test]
async fn approvals_go_with_their_agent_and_stay_gone() {
    let home = home();
    let store = open(&home);
    store.create(agent("a")).await.unwrap();
    store.put_approval(approval("x", ApprovalStatus::Pending)).await.unwrap();
    store.destroy(vec![id("a")]).await.unwrap();
    // The turn that waited is told only then.
    store.settle_approval("x", ApprovalStatus::Cancelled).await.unwrap();
    let late = store.put_approval(approval("y", ApprovalStatus::Pending)).await;
    assert!(matches!(late, Err(StoreError::LeaseLost(_))), "{late:?}");
    store.create(agent("a")).await.unwrap();
    assert!(store.approvals().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_temporary_agent_asked_ends_with_it_and_is_not_its_namesakes() {
    let home = home();
    let asked =
        |name: &str| ApprovalRecord { agent: id(".1"), ..approval(name, ApprovalStatus::Denied) };
    let (one, other) = (open(&home), open(&home));
    one.put_approval(asked("x")).await.unwrap();
    other.put_approval(asked("y")).await.unwrap();
    assert_eq!(one.approvals().await.unwrap(), [asked("x")]);
    one.destroy(vec![id(".1")]).await.unwrap();
    assert!(one.approvals().await.unwrap().is_empty());
    assert_eq!(other.approvals().await.unwrap(), [asked("y")]);
    drop(other);
    assert!(one.approval("y").await.unwrap().is_some());
    let _next = open(&home);
    assert!(one.approval("y").await.unwrap().is_none(), "a start removes what the dead left");
}

#[tokio::test]
async fn of_what_was_decided_the_last_hundred_are_kept() {
    let home = home();
    let store = open(&home);
    store.create(agent("a")).await.unwrap();
    store.create(agent("b")).await.unwrap();
    let other = ApprovalRecord { agent: id("b"), ..approval("other", ApprovalStatus::Denied) };
    store.put_approval(other).await.unwrap();
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let put = async |number: i64, status| {
        let record = approval(&format!("x{number:03}"), status);
        store.put_approval(ApprovalRecord { created_at: at(number), ..record }).await.unwrap();
    };
    put(0, ApprovalStatus::Pending).await;
    for number in 1..=100 {
        put(number, ApprovalStatus::AllowedOnce).await;
    }
    assert_eq!(store.approvals().await.unwrap().len(), 102);
    put(101, ApprovalStatus::Pending).await;
    assert_eq!(store.approvals().await.unwrap().len(), 103, "one that waits counts for nothing");
    put(102, ApprovalStatus::Denied).await;
    let kept: Vec<_> = store.approvals().await.unwrap().into_iter().map(|it| it.id).collect();
    assert_eq!(kept.len(), 103);
    assert_eq!(kept[..3], ["other", "x000", "x002"], "the oldest went, and nothing that waits");
}
