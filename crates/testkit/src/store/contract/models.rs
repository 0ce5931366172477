//! What is kept of model calls: what they began with, what they used, and what was shown beside the text.

use std::sync::Arc;

use nexus_core::brief::{Brief, BriefSource};
use nexus_core::message::{
    Attachment, AttachmentKind, Blob, Made, Message, Meta, Origin, Part, Role, SharedMessage,
    Source, StopReason, Thought,
};
use nexus_core::store::{
    AgentStore as _, Append, Progress, SessionStore as _, SpendingBy, SpendingQuery, Spent,
};
use nexus_core::usage::{Bill, Cost, Usage};

use super::super::sample::{agent, child, copy, id, step};
use super::{Place, found, made};

fn bill(input: u64) -> Bill {
    Bill::of(Usage { input, output: 1, ..Usage::default() }, Some(Cost(input)))
}

fn answer(model: &str, input: u64) -> SharedMessage {
    let origin = Origin { provider: "p".into(), wire: "w".into(), model: model.into() };
    let made = Made { origin, briefing: 7, stop: StopReason::EndTurn.into(), bill: bill(input) };
    let meta = Meta { made: Some(Arc::new(made)), ..Meta::default() };
    let thought = Thought { text: "hm".into(), payload: Some("{\"s\":1}".into()) };
    let parts = vec![Part::Context("noon".into()), Part::Thought(thought), Part::text("hi")];
    Arc::new(Message::of_parts(Role::Assistant, parts, meta))
}

fn said(message: SharedMessage, total: Bill) -> Append {
    let progress = Some(Progress::default());
    Append { messages: vec![message], progress, bill: Some(total), ..Append::default() }
}

/// The sums of a query, as `key input` lines.
fn lines(spent: Vec<Spent>) -> Vec<String> {
    spent.into_iter().map(|it| format!("{} {}", it.key, it.bill.usage.input)).collect()
}

pub async fn what_was_used_is_kept_and_bequeathed(place: impl Place) {
    let store = place.open().await;
    let root = made(store.create(agent("root")).await);
    let inner = made(store.create(child("inner", "root")).await);
    let beneath = made(store.create(child("beneath", "inner")).await);
    made(store.append(root, said(answer("m1", 100), bill(100))).await);
    made(store.append(inner, said(answer("m2", 20), bill(20))).await);
    made(store.append(beneath, said(answer("m1", 3), bill(3))).await);
    assert_eq!(made(store.lineage(&id("inner")).await)[0].bill, bill(20));
    let ask = async |of: Option<&str>, tree, by| {
        let query = SpendingQuery { of: of.map(id), tree, by, since: None };
        lines(made(store.spending(query).await))
    };
    let (agents, models) = (SpendingBy::Agent, SpendingBy::Model);
    assert_eq!(ask(Some("root"), false, agents).await, ["root 100"]);
    let all = ["beneath 3", "inner 20", "root 100"];
    assert_eq!(ask(Some("root"), true, agents).await, all);
    assert_eq!(ask(None, false, agents).await, all);
    assert_eq!(ask(None, false, models).await, ["p/m1 103", "p/m2 20"]);
    assert_eq!(ask(Some("inner"), true, SpendingBy::Day).await, ["1970-01-01 23"]);
    // A copy says the same, and was paid for once.
    assert!(made(store.load_copy(&id("root"), copy("twin")).await).is_some());
    assert_eq!(ask(None, false, models).await, ["p/m1 103", "p/m2 20"]);
    assert_eq!(made(store.lineage(&id("twin")).await)[0].bill, Bill::default());
    // Who goes leaves it to who stays.
    made(store.destroy(vec![id("inner")]).await);
    assert_eq!(ask(Some("root"), true, agents).await, ["root 123"]);
    assert_eq!(ask(Some("root"), false, agents).await, ["root 100"]);
    made(store.absorb(&id("root"), bill(1000)).await);
    made(store.absorb(&id("nobody"), bill(1000)).await);
    assert_eq!(ask(Some("root"), true, agents).await, ["root 1123"]);
}

pub async fn what_a_conversation_began_with_is_found(place: impl Place) {
    let store = place.open().await;
    let brief = |system: &str| {
        Arc::new(Brief::new(system.into(), Arc::default(), BriefSource::Directory("/w".into())))
    };
    let (one, two) = (brief("one"), brief("two"));
    let lease = made(store.create(agent("a")).await);
    let with = |first_index, brief: &Arc<Brief>| {
        let append = step(first_index, &["x"]);
        Append { brief: Some(brief.clone()), ..append }
    };
    made(store.append(lease, with(0, &one)).await);
    made(store.append(lease, with(1, &two)).await);
    made(store.append(lease, with(2, &one)).await);
    assert_eq!(made(store.briefing(one.digest).await).as_ref(), Some(&*one));
    assert_eq!(made(store.briefing(two.digest).await).as_ref(), Some(&*two));
    assert_eq!(made(store.briefing(1).await), None);
    // A copy needs it as well.
    assert!(made(store.load_copy(&id("a"), copy("b")).await).is_some());
    made(store.destroy(vec![id("a")]).await);
    assert_eq!(made(store.briefing(one.digest).await).as_ref(), Some(&*one));
}

pub async fn what_was_shown_comes_back(place: impl Place) {
    let store = place.open().await;
    let image = |byte: u8| {
        let source = Source::Blob(Blob::new(vec![byte; 9]));
        let (kind, media_type) = (AttachmentKind::Image, "image/png".to_owned());
        Part::Attachment(Attachment { kind, media_type, name: Some("a.png".into()), source })
    };
    let shown = |byte| {
        let parts = vec![Part::text("look"), image(byte), Part::text(" here")];
        Arc::new(Message::of_parts(Role::User, parts, Meta::default()))
    };
    let (a, b) = (made(store.create(agent("a")).await), made(store.create(agent("b")).await));
    let append = |messages| Append { messages, ..Append::default() };
    made(store.append(a, append(vec![shown(1), answer("m", 1)])).await);
    made(store.append(b, append(vec![shown(1)])).await);
    made(store.destroy(vec![id("a")]).await);
    made(store.release(b).await);
    let window = found(store.acquire(&id("b")).await).window;
    assert_eq!(window.messages[0].parts, shown(1).parts);
    assert_eq!(window.messages[0].text(), "look here");
}
