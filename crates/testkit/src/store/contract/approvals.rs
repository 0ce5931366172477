//! Requests for leave.

use std::sync::Arc;

use nexus_core::TurnId;
use nexus_core::preview::{FileChange, Grant, Preview};
use nexus_core::store::{
    AgentStore, ApprovalAnswer, ApprovalPage, ApprovalQuery, ApprovalRecord, ApprovalStatus,
    ApprovalStore, Contact, SessionStore, Settlement, Store, StoreError,
};

use super::{Place, found, made, refused};
use crate::store::sample::{agent, asked, child, copy, id, settings, settled, step};

pub async fn an_approval_keeps_its_last_status(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("a")).await);
    made(store.put_approval(asked("x", "a", 0)).await);
    for status in ApprovalStatus::ALL {
        made(store.settle_approval(settled("x", status)).await);
        let expected = ApprovalRecord { answer: status.into(), ..asked("x", "a", 0) };
        assert_eq!(found(store.approval("x").await).record, expected);
        assert_eq!(all(&store).await, [expected]);
    }
    assert!(made(store.approval("nothing").await).is_none());
}

pub async fn who_answered_and_what_was_said_is_kept(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("a")).await);
    made(store.put_approval(asked("x", "a", 0)).await);
    let (by, message) = (Some("administrator".into()), Some("not \u{e4}\nthere".into()));
    let answer = ApprovalAnswer { status: ApprovalStatus::Denied, by, message };
    let settlement = Settlement { answer: answer.clone(), ..settled("x", answer.status) };
    made(store.settle_approval(settlement).await);
    let expected = ApprovalRecord { answer, ..asked("x", "a", 0) };
    assert_eq!(found(store.approval("x").await).record, expected);
    assert_eq!(all(&store).await, [expected]);
}

pub async fn what_a_person_is_shown_is_kept(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("a")).await);
    let change = FileChange {
        path: "/w/a".into(),
        diff: "@@ -1 +1 @@\n-a\n+\u{e4}\n".into(),
        added: 1,
        removed: 1,
        truncated: true,
    };
    let previews = [
        None,
        Some(Preview::Diff(change)),
        Some(Preview::Agent { target: "b".into(), content: "go".into() }),
        Some(Preview::Write { path: "/w/a".into(), bytes: u64::from(u32::MAX) }),
    ];
    for (number, preview) in previews.into_iter().enumerate() {
        let record = ApprovalRecord {
            lineage: Vec::new(),
            turn: Some(TurnId::Text("7".into())),
            expires_at: None,
            grant: preview.as_ref().map(|_| Grant::Write { path: "/w/a".into() }),
            preview: preview.map(Arc::new),
            ..asked(&format!("x{number}"), "a", 0)
        };
        made(store.put_approval(record.clone()).await);
        assert_eq!(found(store.approval(&record.id).await).record, record);
    }
}

pub async fn only_an_agent_can_ask(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("a")).await);
    made(store.copy_session(&id("a"), copy("saved"), false).await);
    for name in ["nobody", "saved"] {
        refused!(store.put_approval(asked("x", name, 0)).await, StoreError::Ended);
    }
    made(store.put_approval(asked("x", ".1", 0)).await);
}

pub async fn a_grant_and_its_answer_are_one_step(place: impl Place) {
    let store = place.open().await;
    let lost = made(store.create(agent("a")).await);
    let held = found(store.acquire(&id("a")).await).lease;
    made(store.put_approval(asked("x", "a", 0)).await);
    let mut granted = settings();
    granted.grants.write_paths.insert("/w/out".into());
    let answer = |lease| Settlement {
        grant: Some((lease, granted.clone())),
        ..settled("x", ApprovalStatus::AllowedSession)
    };
    refused!(store.settle_approval(answer(lost)).await, StoreError::LeaseLost);
    assert_eq!(found(store.approval("x").await).record.answer.status, ApprovalStatus::Pending);
    assert_eq!(made(store.lineage(&id("a")).await)[0].settings, settings());
    made(store.settle_approval(answer(held)).await);
    assert_eq!(
        found(store.approval("x").await).record.answer.status,
        ApprovalStatus::AllowedSession
    );
    assert_eq!(made(store.lineage(&id("a")).await)[0].settings, granted);
    made(store.append(held, step(0, &["0"])).await);
    made(store.destroy(vec![id("a")]).await);
    refused!(store.settle_approval(answer(held)).await, StoreError::Ended);
}

pub async fn approvals_end_with_their_agent(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("p")).await);
    let kept = made(store.create(child("k", "p")).await);
    made(store.keep(kept).await);
    made(store.put_approval(asked("x", "p", 0)).await);
    made(store.put_approval(asked("y", "k", 0)).await);
    made(store.destroy(vec![id("p")]).await);
    // The turn that waited is told only then.
    made(store.settle_approval(settled("x", ApprovalStatus::Cancelled)).await);
    refused!(store.put_approval(asked("z", "p", 0)).await, StoreError::Ended);
    made(store.create(agent("p")).await);
    assert!(all(&store).await.is_empty());
}

pub async fn an_approval_waits_in_one_process(place: impl Place) {
    let (dying, living) = (place.open().await, place.open().await);
    made(dying.create(agent("a")).await);
    made(dying.put_approval(asked("x", "a", 0)).await);
    made(dying.put_approval(asked("y", "a", 1)).await);
    made(dying.settle_approval(settled("y", ApprovalStatus::AllowedOnce)).await);
    let contact = Contact { url: Some("http://dying".into()), socket: None };
    made(dying.announce(contact.clone()).await);
    let waits = found(living.approval("x").await).waits_in;
    assert_eq!(waits.map(|holder| holder.contact), Some(contact));
    assert_eq!(found(dying.approval("x").await).waits_in, None);
    assert_eq!(found(living.approval("y").await).waits_in, None, "it does not wait");
    assert_eq!(all(&living).await[0].answer.status, ApprovalStatus::Pending);
    drop(dying);
    let statuses: Vec<_> = all(&living).await.iter().map(|it| it.answer.status).collect();
    assert_eq!(statuses, [ApprovalStatus::DeniedByRestart, ApprovalStatus::AllowedOnce]);
    let denied = found(living.approval("x").await);
    assert_eq!(
        (denied.record.answer.status, denied.waits_in),
        (ApprovalStatus::DeniedByRestart, None)
    );
}

pub async fn approvals_come_by_page_the_oldest_first(place: impl Place) {
    let store = place.open().await;
    for name in ["a", "b"] {
        made(store.create(agent(name)).await);
    }
    for (name, of, at) in [("z", "a", 1), ("x", "b", 2), ("y", "a", 2), ("w", "a", 3)] {
        made(store.put_approval(asked(name, of, at)).await);
    }
    let page = async |after: Option<&str>, limit: u32, agent: Option<&str>| {
        let query = ApprovalQuery {
            agent: agent.map(id),
            after: after.map(str::to_owned),
            limit,
            ..ApprovalQuery::default()
        };
        let ApprovalPage { approvals, more } = made(store.approvals(query).await);
        (approvals.iter().map(|it| it.id.as_str()).collect::<String>(), more)
    };
    assert_eq!(page(None, 3, None).await, ("zxy".into(), true));
    assert_eq!(page(Some("x"), 3, None).await, ("yw".into(), false));
    assert_eq!(page(None, 4, None).await, ("zxyw".into(), false));
    assert_eq!(page(None, 2, Some("a")).await, ("zy".into(), true));
    assert_eq!(page(Some("y"), 2, Some("a")).await, ("w".into(), false));
    assert_eq!(page(Some("nothing"), 9, None).await, (String::new(), false));
}

pub async fn what_waits_elsewhere_is_found_among_all_the_rest(place: impl Place) {
    let (here, there, dying) = (place.open().await, place.open().await, place.open().await);
    for name in ["a", "b"] {
        made(here.create(agent(name)).await);
    }
    for (name, at) in [("u", 0), ("v", 2), ("w", 4), ("x", 6)] {
        made(there.put_approval(asked(name, if name == "w" { "b" } else { "a" }, at)).await);
    }
    made(there.put_approval(asked("temp", ".1", 1)).await);
    made(there.settle_approval(settled("v", ApprovalStatus::AllowedOnce)).await);
    made(here.put_approval(asked("own", "a", 3)).await);
    made(dying.put_approval(asked("dead", "a", 5)).await);
    drop(dying);
    let page = async |query: ApprovalQuery| {
        let query = ApprovalQuery { elsewhere: true, ..query };
        let ApprovalPage { approvals, more } = made(here.approvals(query).await);
        assert!(approvals.iter().all(|it| it.answer.status == ApprovalStatus::Pending));
        (approvals.iter().map(|it| it.id.as_str()).collect::<String>(), more)
    };
    let of = |limit| ApprovalQuery { limit, ..ApprovalQuery::default() };
    assert_eq!(page(of(9)).await, ("uwx".into(), false));
    assert_eq!(page(of(3)).await, ("uwx".into(), false));
    assert_eq!(page(of(2)).await, ("uw".into(), true));
    let behind = ApprovalQuery { after: Some("w".into()), ..of(2) };
    assert_eq!(page(behind).await, ("x".into(), false));
    assert_eq!(page(ApprovalQuery { agent: Some(id("b")), ..of(9) }).await.0, "w");
    assert_eq!(page(ApprovalQuery { line_of: Some(id("a")), ..of(9) }).await.0, "ux");
}

pub async fn a_line_shows_those_of_the_agent_and_beneath(place: impl Place) {
    let store = place.open().await;
    for record in [agent("p"), child("k", "p"), agent("other")] {
        made(store.create(record).await);
    }
    for (name, of) in [("x", "p"), ("y", "k"), ("z", "other"), ("t", ".1")] {
        made(store.put_approval(asked(name, of, 0)).await);
    }
    let line = async |of: &str| {
        let query = ApprovalQuery { line_of: Some(id(of)), limit: 9, ..ApprovalQuery::default() };
        let page = made(store.approvals(query).await);
        page.approvals.iter().map(|it| it.id.as_str()).collect::<String>()
    };
    assert_eq!(line("p").await, "xy");
    assert_eq!(line("k").await, "y");
    assert_eq!(line(".1").await, "t");
    assert_eq!(line("nobody").await, "");
}

pub async fn what_temporary_agents_ask_is_their_processs_alone(place: impl Place) {
    let (one, other) = (place.open().await, place.open().await);
    made(one.put_approval(asked("x", ".1", 0)).await);
    made(other.put_approval(asked("y", ".1", 0)).await);
    assert_eq!(all(&one).await, [asked("x", ".1", 0)]);
    made(one.destroy(vec![id(".1")]).await);
    assert!(all(&one).await.is_empty());
    assert_eq!(all(&other).await, [asked("y", ".1", 0)], "its namesake's");
}

pub async fn approvals_follow_the_name(place: impl Place) {
    let (store, other) = (place.open().await, place.open().await);
    made(store.create(agent("a")).await);
    made(store.put_approval(asked("x", "a", 0)).await);
    made(store.rename(&id("a"), &id("b")).await);
    assert_eq!(found(store.approval("x").await).record.agent, id("b"));
    made(store.put_approval(asked("y", ".1", 0)).await);
    made(other.put_approval(asked("z", ".1", 0)).await);
    made(store.settle(&id(".1"), agent("c"), Vec::new()).await);
    assert_eq!(found(store.approval("y").await).record.agent, id("c"));
    assert_eq!(found(store.approval("z").await).record.agent, id(".1"), "its namesake's");
}

async fn all(store: &impl Store) -> Vec<ApprovalRecord> {
    let query = ApprovalQuery { limit: 1000, ..ApprovalQuery::default() };
    made(store.approvals(query).await).approvals
}
