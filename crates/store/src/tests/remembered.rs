//! What is remembered of model services, by one process and by those that come after it or stand beside it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use nexus_core::listing::{Learned as _, Lesson};
use nexus_core::provider::Pauses as _;

use super::super::Remembered;
use super::{home, open};

#[tokio::test]
async fn lessons_add_up_and_outlive_the_process() {
    let home = home();
    let store = Arc::new(open(&home));
    let memory = Remembered::load(store.clone()).await.unwrap();
    assert_eq!(memory.known("p", "m"), Lesson::default());
    memory.learn("p", "m", Lesson::thoughts_always());
    memory.learn("p", "m", Lesson::window(1_000));
    memory.learn("p", "m", Lesson::window(900));
    memory.learn("q", "m", Lesson::window(u32::MAX));
    let both = Lesson { window: Some(900), thoughts_always: true };
    assert_eq!(memory.known("p", "m"), both);
    written(&store).await;
    let again = Remembered::load(Arc::new(open(&home))).await.unwrap();
    assert_eq!(again.known("p", "m"), both);
    assert_eq!(again.known("q", "m"), Lesson::window(u32::MAX));
    assert_eq!(again.known("p", "other"), Lesson::default());
}

#[tokio::test]
async fn so_many_models_are_remembered_and_no_more() {
    let home = home();
    let store = Arc::new(open(&home));
    let memory = Remembered::load(store.clone()).await.unwrap();
    for number in 0..1_001 {
        memory.learn("p", &number.to_string(), Lesson::window(1));
    }
    assert_eq!(memory.known("p", "999"), Lesson::window(1));
    assert_eq!(memory.known("p", "1000"), Lesson::default());
    // One that is known is learned of further.
    memory.learn("p", "0", Lesson::window(2));
    assert_eq!(memory.known("p", "0"), Lesson::window(2));
}

#[tokio::test]
async fn a_pause_holds_for_the_processes_of_a_home() {
    let home = home();
    let (store, neighbour) = (Arc::new(open(&home)), Arc::new(open(&home)));
    let memory = Remembered::load(store.clone()).await.unwrap();
    let beside = Remembered::load(neighbour).await.unwrap();
    assert_eq!(beside.until("lane"), None);
    let now = Timestamp::now();
    let (soon, later) = (now + SignedDuration::from_mins(1), now + SignedDuration::from_mins(2));
    memory.pause("lane", later);
    memory.pause("lane", soon);
    written(&store).await;
    let again = Remembered::load(Arc::new(open(&home))).await.unwrap();
    assert_eq!(again.until("lane").map(Timestamp::as_microsecond), Some(later.as_microsecond()));
    // The neighbour reads it behind its next question.
    while beside.until("lane").is_none() {
        tokio::task::yield_now().await;
    }
}

/// Waits until what was handed to the writer before is on disk.
async fn written(store: &super::SqliteStore) {
    store.writer.submit(|_, _| Ok(())).await.unwrap();
}
