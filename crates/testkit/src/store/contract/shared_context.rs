//! What planners and executors share.

use nexus_core::store::{
    CONTEXT_BYTES_MAX, ContextAction, ContextChange, ContextKind, ContextOutcome, ContextRefusal,
    ContextStore as _, ENTRIES_MAX, ENTRY_BYTES_MAX, Store,
};
use serde_json::{Value, json};

use super::{Place, made};

fn change(kind: ContextKind, key: &str, action: ContextAction) -> ContextChange {
    ContextChange { kind, key: key.into(), action, if_version: None }
}

fn put(key: &str, value: Value) -> ContextChange {
    change(ContextKind::State, key, ContextAction::Put(value))
}

fn remove(key: &str) -> ContextChange {
    change(ContextKind::State, key, ContextAction::Remove)
}

async fn done(store: &impl Store, change: ContextChange) -> (bool, u64) {
    match made(store.change_context(change).await) {
        ContextOutcome::Done { changed, version } => (changed, version),
        ContextOutcome::Refused(refusal) => panic!("refused: {refusal:?}"),
    }
}

async fn refused(store: &impl Store, change: ContextChange) -> ContextRefusal {
    match made(store.change_context(change).await) {
        ContextOutcome::Refused(refusal) => refusal,
        done @ ContextOutcome::Done { .. } => panic!("{done:?}"),
    }
}

/// The version, and the entries as `kind key value`.
async fn seen(store: &impl Store) -> (u64, Vec<String>) {
    let context = made(store.shared_context().await);
    let entry = |((kind, key), value): (&(ContextKind, String), &Value)| {
        format!("{} {key} {value}", kind.name())
    };
    (context.version, context.entries.iter().map(entry).collect())
}

pub async fn a_context_grows_by_its_changes_alone(place: impl Place) {
    let store = place.open().await;
    assert_eq!(seen(&store).await, (0, vec![]));
    assert_eq!(done(&store, remove("a")).await, (false, 0));
    assert_eq!(done(&store, put("a", json!({"x": 1, "y": 2}))).await, (true, 1));
    assert_eq!(done(&store, put("a", json!({"y": 2, "x": 1}))).await, (false, 1));
    assert_eq!(done(&store, put("a", json!(null))).await, (true, 2));
    let file = change(ContextKind::File, "a", ContextAction::Put(json!({"path": "a"})));
    assert_eq!(done(&store, file).await, (true, 3));
    assert_eq!(done(&store, put("b", json!("é\n"))).await, (true, 4));
    let expected = [r#"file a {"path":"a"}"#, "state a null", r#"state b "é\n""#];
    assert_eq!(seen(&store).await, (4, expected.map(Into::into).to_vec()));
    assert_eq!(done(&store, remove("a")).await, (true, 5));
    assert_eq!(done(&store, remove("a")).await, (false, 5));
    assert_eq!(seen(&store).await.1.len(), 2);
}

pub async fn a_change_is_refused_at_another_version(place: impl Place) {
    let store = place.open().await;
    let at = |version, change| ContextChange { if_version: Some(version), ..change };
    assert_eq!(done(&store, at(0, put("a", json!(1)))).await, (true, 1));
    for version in [0, 2, u64::MAX] {
        // What would change nothing is refused as well.
        for change in [put("a", json!(2)), put("a", json!(1)), remove("a"), remove("b")] {
            let refusal = refused(&store, at(version, change)).await;
            assert_eq!(refusal, ContextRefusal::Version { wanted: version, current: 1 });
        }
    }
    assert_eq!(seen(&store).await, (1, vec!["state a 1".into()]));
    assert_eq!(done(&store, at(1, put("a", json!(1)))).await, (false, 1));
    assert_eq!(done(&store, at(1, remove("a"))).await, (true, 2));
}

pub async fn what_is_modified_has_to_be_there(place: impl Place) {
    let store = place.open().await;
    made(store.change_context(put("a", json!(1))).await);
    for (kind, key) in [(ContextKind::State, "b"), (ContextKind::File, "a")] {
        for action in [ContextAction::Patch(json!(1)), ContextAction::Replace(json!({}))] {
            let refusal = refused(&store, change(kind, key, action)).await;
            assert_eq!(refusal, ContextRefusal::Missing { kind, key: key.into() });
        }
    }
    assert_eq!(seen(&store).await, (1, vec!["state a 1".into()]));
}

pub async fn state_is_patched_and_the_rest_replaced(place: impl Place) {
    let store = place.open().await;
    made(store.change_context(put("a", json!({"x": {"y": 1, "z": 2}}))).await);
    let patch = |value| change(ContextKind::State, "a", ContextAction::Patch(value));
    assert_eq!(done(&store, patch(json!({"x": {"y": null}, "w": []}))).await, (true, 2));
    assert_eq!(seen(&store).await.1, [r#"state a {"x":{"z":2},"w":[]}"#]);
    assert_eq!(done(&store, patch(json!({"v": null}))).await, (false, 2));
    assert_eq!(done(&store, patch(json!({}))).await, (false, 2));
    let replace = change(ContextKind::State, "a", ContextAction::Replace(json!({"v": 1})));
    assert_eq!(done(&store, replace).await, (true, 3));
    assert_eq!(seen(&store).await.1, [r#"state a {"v":1}"#]);
}

pub async fn the_context_is_bounded(place: impl Place) {
    let store = place.open().await;
    // Entries that fill the context to the byte: a key of two, and two quotes.
    let text = |bytes: u64| json!("x".repeat(usize::try_from(bytes).unwrap_or(0) - 4));
    let over = refused(&store, put("k0", text(ENTRY_BYTES_MAX + 1))).await;
    assert_eq!(over, ContextRefusal::EntryBytes(ENTRY_BYTES_MAX + 1));
    for n in 0..CONTEXT_BYTES_MAX / ENTRY_BYTES_MAX {
        done(&store, put(&format!("k{n:x}"), text(ENTRY_BYTES_MAX))).await;
    }
    let over = refused(&store, put("l", json!(1))).await;
    assert_eq!(over, ContextRefusal::Bytes(CONTEXT_BYTES_MAX + 2));
    done(&store, put("k0", text(ENTRY_BYTES_MAX - 2))).await;
    done(&store, put("l", json!(1))).await;
    let grown = change(ContextKind::State, "l", ContextAction::Patch(json!(12)));
    assert_eq!(refused(&store, grown).await, ContextRefusal::Bytes(CONTEXT_BYTES_MAX + 1));
    for n in 0..CONTEXT_BYTES_MAX / ENTRY_BYTES_MAX {
        done(&store, remove(&format!("k{n:x}"))).await;
    }
    for n in 1..ENTRIES_MAX {
        done(&store, put(&format!("e{n}"), json!(0))).await;
    }
    assert_eq!(refused(&store, put("one more", json!(0))).await, ContextRefusal::Entries);
    done(&store, put("e1", json!(1))).await;
    done(&store, remove("e1")).await;
    done(&store, put("one more", json!(0))).await;
}

pub async fn of_writers_at_one_version_one_writes(place: impl Place) {
    let (one, other) = (place.open().await, place.open().await);
    for version in 0..20 {
        let at =
            |key: &str| ContextChange { if_version: Some(version), ..put(key, json!(version)) };
        let (a, b) = tokio::join!(one.change_context(at("a")), other.change_context(at("b")));
        let won = [made(a), made(b)].map(|it| matches!(it, ContextOutcome::Done { .. }));
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
        assert_eq!(seen(&other).await.0, version + 1);
    }
}

pub async fn what_one_process_changed_the_other_sees(place: impl Place) {
    let (one, other) = (place.open().await, place.open().await);
    assert_eq!(done(&one, put("a", json!(1))).await, (true, 1));
    assert_eq!(done(&other, put("b", json!(2))).await, (true, 2));
    drop(one);
    let third = place.open().await;
    assert_eq!(seen(&third).await, (2, vec!["state a 1".into(), "state b 2".into()]));
    assert_eq!(seen(&other).await, seen(&third).await);
}
