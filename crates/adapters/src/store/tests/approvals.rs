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
    for status in ApprovalStatus::ALL {
        store.put_approval(approval("x", status)).await.unwrap();
        assert_eq!(store.approvals().await.unwrap(), [approval("x", status)]);
    }
}

#[tokio::test]
async fn what_waited_in_a_process_that_is_gone_is_denied_by_that() {
    let home = home();
    let (dying, living) = (open(&home), open(&home));
    dying.put_approval(approval("x", ApprovalStatus::Pending)).await.unwrap();
    dying.put_approval(approval("y", ApprovalStatus::AllowedOnce)).await.unwrap();
    assert_eq!(living.approvals().await.unwrap()[0].status, ApprovalStatus::Pending);
    drop(dying);
    let statuses: Vec<_> = living.approvals().await.unwrap().iter().map(|it| it.status).collect();
    assert_eq!(statuses, [ApprovalStatus::DeniedByRestart, ApprovalStatus::AllowedOnce]);
}

#[tokio::test]
async fn approvals_go_with_their_agent() {
    let home = home();
    let store = open(&home);
    store.create(agent("a")).await.unwrap();
    store.put_approval(approval("x", ApprovalStatus::Denied)).await.unwrap();
    store.destroy(vec![id("a")]).await.unwrap();
    assert!(store.approvals().await.unwrap().is_empty());
}
