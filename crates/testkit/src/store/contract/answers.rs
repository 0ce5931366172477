//! Calls that are carried out once.

use jiff::Timestamp;
use nexus_core::store::{
    ANSWER_KEPT, AgentStore as _, AnswerRoom, AnswersStore as _, CallDigest, Contact, Earlier,
    Store,
};

use super::{Place, made};

const ROOM: AnswerRoom = AnswerRoom { calls_max: 1_000, bytes_max: 1 << 20 };

fn call(id: u8, params: u8) -> CallDigest {
    CallDigest { id: [id; 32], params: [params; 32] }
}

/// So many microseconds after the answers of moment 0 are forgotten.
fn later(micros: i64) -> Timestamp {
    let at = i64::try_from(ANSWER_KEPT.as_micros()).unwrap_or(0) + micros;
    Timestamp::from_microsecond(at).unwrap_or(Timestamp::MAX)
}

fn start() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

async fn begin(store: &impl Store, call: CallDigest) -> Earlier {
    begin_at(store, call, start()).await
}

async fn begin_at(store: &impl Store, call: CallDigest, now: Timestamp) -> Earlier {
    made(store.begin_answer(call, ROOM, now).await)
}

pub async fn a_call_is_begun_once_and_answered_again(place: impl Place) {
    let store = place.open().await;
    assert_eq!(begin(&store, call(1, 1)).await, Earlier::Nothing);
    made(store.keep_answer(call(1, 1), "é\n{}".into(), start()).await);
    for _ in 0..2 {
        assert_eq!(begin(&store, call(1, 1)).await, Earlier::Answered("é\n{}".into()));
    }
    assert_eq!(begin(&store, call(2, 1)).await, Earlier::Nothing, "another call");
    made(store.keep_answer(call(1, 1), "other".into(), start()).await);
    assert_eq!(begin(&store, call(1, 1)).await, Earlier::Answered("é\n{}".into()), "the first");
}

pub async fn a_call_with_other_parameters_is_told_so(place: impl Place) {
    let (store, other) = (place.open().await, place.open().await);
    assert_eq!(begin(&store, call(1, 1)).await, Earlier::Nothing);
    assert_eq!(begin(&other, call(1, 2)).await, Earlier::OtherParams, "while it is under way");
    made(store.keep_answer(call(1, 1), "a".into(), start()).await);
    assert_eq!(begin(&store, call(1, 2)).await, Earlier::OtherParams);
    made(store.forget_answer(call(1, 2)).await);
    made(store.keep_answer(call(1, 2), "b".into(), start()).await);
    assert_eq!(begin(&other, call(1, 1)).await, Earlier::Answered("a".into()));
}

pub async fn what_came_to_nothing_may_be_made_again(place: impl Place) {
    let store = place.open().await;
    assert_eq!(begin(&store, call(1, 1)).await, Earlier::Nothing);
    made(store.forget_answer(call(1, 1)).await);
    assert_eq!(begin(&store, call(1, 2)).await, Earlier::Nothing);
    made(store.keep_answer(call(1, 2), "a".into(), start()).await);
    made(store.forget_answer(call(1, 2)).await);
    assert_eq!(begin(&store, call(1, 2)).await, Earlier::Answered("a".into()), "it came to that");
}

pub async fn what_a_dead_process_began_is_cut_off(place: impl Place) {
    let (dying, living) = (place.open().await, place.open().await);
    let contact = Contact { url: Some("http://dying".into()), socket: None };
    made(dying.announce(contact.clone()).await);
    for id in 1..=2 {
        assert_eq!(begin(&dying, call(id, 1)).await, Earlier::Nothing);
    }
    match begin(&living, call(1, 1)).await {
        Earlier::UnderWay(holder) => assert_eq!(holder.contact, contact),
        other => panic!("{other:?}"),
    }
    made(dying.keep_answer(call(2, 1), "a".into(), start()).await);
    drop(dying);
    assert_eq!(begin(&living, call(1, 1)).await, Earlier::CutOff);
    assert_eq!(begin(&living, call(1, 1)).await, Earlier::CutOff);
    assert_eq!(begin(&living, call(2, 1)).await, Earlier::Answered("a".into()));
    let third = place.open().await;
    assert_eq!(begin(&third, call(1, 1)).await, Earlier::CutOff);
}

pub async fn what_was_answered_is_forgotten_in_time(place: impl Place) {
    let store = place.open().await;
    for id in 1..=3 {
        assert_eq!(begin(&store, call(id, 1)).await, Earlier::Nothing);
    }
    made(store.keep_answer(call(1, 1), "a".into(), start()).await);
    assert_eq!(begin_at(&store, call(1, 1), later(0)).await, Earlier::Answered("a".into()));
    assert_eq!(begin_at(&store, call(1, 2), later(1)).await, Earlier::Nothing, "made anew");
    made(store.keep_answer(call(2, 1), "b".into(), start()).await);
    assert_eq!(made(store.remove_answers(later(0), 9).await), 0);
    assert_eq!(made(store.remove_answers(later(1), 9).await), 1);
    assert_eq!(made(store.remove_answers(later(1), 9).await), 0);
    // What is under way is kept for as long as it takes.
    made(store.keep_answer(call(3, 1), "c".into(), later(5)).await);
    assert_eq!(begin_at(&store, call(3, 1), later(6)).await, Earlier::Answered("c".into()));
}

pub async fn what_was_cut_off_is_refused_for_as_long(place: impl Place) {
    let (dying, living) = (place.open().await, place.open().await);
    for id in 1..=4 {
        assert_eq!(begin(&dying, call(id, 1)).await, Earlier::Nothing);
    }
    drop(dying);
    // Long after it was begun: its end is what counts, and that is seen now.
    assert_eq!(made(living.remove_answers(later(1), 9).await), 0);
    assert_eq!(begin_at(&living, call(1, 1), later(2)).await, Earlier::CutOff);
    let end = ANSWER_KEPT.as_micros() as i64;
    assert_eq!(begin_at(&living, call(1, 1), later(1 + end)).await, Earlier::CutOff);
    assert_eq!(begin_at(&living, call(1, 1), later(2 + end)).await, Earlier::Nothing);
    assert_eq!(made(living.remove_answers(later(2 + end), 2).await), 2, "in portions");
    assert_eq!(made(living.remove_answers(later(2 + end), 2).await), 1);
}

pub async fn answers_have_room_for_so_many(place: impl Place) {
    let store = place.open().await;
    let begin = async |id, room, now| made(store.begin_answer(call(id, 1), room, now).await);
    let two = AnswerRoom { calls_max: 2, bytes_max: 1 << 20 };
    assert_eq!(begin(1, two, start()).await, Earlier::Nothing);
    assert_eq!(begin(2, two, start()).await, Earlier::Nothing);
    assert_eq!(begin(3, two, start()).await, Earlier::Full);
    made(store.forget_answer(call(2, 1)).await);
    assert_eq!(begin(3, two, start()).await, Earlier::Nothing);

    let few = AnswerRoom { calls_max: 1_000, bytes_max: 4 };
    made(store.keep_answer(call(1, 1), "abc".into(), start()).await);
    assert_eq!(begin(4, few, start()).await, Earlier::Nothing, "a byte is left");
    made(store.keep_answer(call(3, 1), "d".into(), start()).await);
    assert_eq!(begin(5, few, start()).await, Earlier::Full);
    assert_eq!(begin(1, few, start()).await, Earlier::Answered("abc".into()), "it has its place");
    assert_eq!(begin(5, few, later(1)).await, Earlier::Nothing, "what is old makes room");
    assert_eq!(begin(6, two, later(1)).await, Earlier::Full, "4 and 5 are under way");
}
