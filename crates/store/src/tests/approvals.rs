//! Which requests for leave are kept.

use jiff::Timestamp;
use nexus_core::store::{AgentStore, ApprovalQuery, ApprovalRecord, ApprovalStatus, ApprovalStore};
use nexus_testkit::store::sample::asked;

use super::{SqliteStore, agent, home, id, open};

fn approval(name: &str, status: ApprovalStatus) -> ApprovalRecord {
    ApprovalRecord { answer: status.into(), ..asked(name, "a", 0) }
}

async fn all(store: &SqliteStore) -> Vec<ApprovalRecord> {
    let query = ApprovalQuery { limit: 1000, ..ApprovalQuery::default() };
    store.approvals(query).await.unwrap().approvals
}

#[tokio::test]
async fn what_a_temporary_agent_asked_ends_with_it_and_is_not_its_namesakes() {
    let home = home();
    let asked =
        |name: &str| ApprovalRecord { agent: id(".1"), ..approval(name, ApprovalStatus::Denied) };
    let (one, other) = (open(&home), open(&home));
    one.put_approval(asked("x")).await.unwrap();
    other.put_approval(asked("y")).await.unwrap();
    assert_eq!(all(&one).await, [asked("x")]);
    one.destroy(vec![id(".1")]).await.unwrap();
    assert!(all(&one).await.is_empty());
    assert_eq!(all(&other).await, [asked("y")]);
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
    assert_eq!(all(&store).await.len(), 102);
    put(101, ApprovalStatus::Pending).await;
    assert_eq!(all(&store).await.len(), 103, "one that waits counts for nothing");
    put(102, ApprovalStatus::Denied).await;
    let kept: Vec<_> = all(&store).await.into_iter().map(|it| it.id).collect();
    assert_eq!(kept.len(), 103);
    assert_eq!(kept[..3], ["other", "x000", "x002"], "the oldest went, and nothing that waits");
}
