//! Images and files that come with messages, or that tools return.

use std::path::PathBuf;

use nexus_core::attach::{ATTACHMENTS_MAX, AttachError, Given, Piece, Wanted};
use nexus_core::lifecycle::AgentSpec;
use nexus_core::message::{ATTACHED_BYTES_MAX, Content, Message, Part, Source};
use nexus_core::provider::ModelCall;
use nexus_core::turn::{TurnError, TurnInput};
use nexus_core::{Agent, Requester};
use serde_json::json;

use crate::fakes::{ADMIN, Script, World, id, picture};

fn base() -> PathBuf {
    std::env::temp_dir().canonicalize().unwrap()
}

/// Works in `base`, and has a model that can look at everything.
fn seeing(name: &str, preset: &str) -> AgentSpec {
    AgentSpec {
        name: Some(name.into()),
        preset: Some(preset.into()),
        cwd: Some(base().display().to_string()),
        model: Some("sees".into()),
        ..AgentSpec::default()
    }
}

fn text(text: &str) -> Piece {
    Piece::Text(text.into())
}

fn path(path: &str) -> Piece {
    Piece::Attached { wanted: Wanted::Any, name: None, given: Given::Path(path.into()) }
}

fn bytes(bytes: impl Into<Vec<u8>>) -> Piece {
    Piece::Attached { wanted: Wanted::Any, name: None, given: Given::Bytes(bytes.into()) }
}

fn address(url: &str) -> Piece {
    Piece::Attached { wanted: Wanted::Image, name: None, given: Given::Address(url.into()) }
}

async fn take(world: &World, agent: &Agent, pieces: Vec<Piece>) -> Result<Content, AttachError> {
    world.engine.attacher.take(&ADMIN, agent, pieces).await
}

/// Expects what is made of the pieces, in short: `[word]` for each attachment.
async fn check(world: &World, agent: &Agent, pieces: Vec<Piece>, expected: &str) {
    let got = match take(world, agent, pieces).await {
        Ok(content) => content.parts().iter().map(short).collect::<Vec<_>>().join("|"),
        Err(error) => format!("no: {error}"),
    };
    assert_eq!(got, expected);
}

fn short(part: &Part) -> String {
    match part {
        Part::Text(text) => text.clone(),
        Part::Attachment(attachment) => format!("[{}]", attachment.words()),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn pieces_become_parts_in_their_order() {
    let world = World::new();
    let agent = world.make(seeing("a", "sandboxed")).await;
    let check = async |pieces, expected| check(&world, &agent, pieces, expected).await;
    let size = base().join("x.png").as_os_str().len();
    let image = format!("[An image, x.png, {size} bytes]");
    check(vec![text("a"), text("b")], "a\n\nb").await;
    let between = format!("a\n\n|{image}|b");
    check(vec![text("a"), path("x.png"), text("b")], &between).await;
    check(vec![path("x.png")], &image).await;
    check(vec![text(" \n"), path("x.png")], &image).await;
    let notes = format!("a\n\nFile notes.md:\n\n{}", base().join("notes.md").display());
    check(vec![text("a"), path("notes.md")], &notes).await;
    check(vec![bytes("x.pdf")], "[A file, application/pdf, 5 bytes]").await;
    check(vec![], "no: it says nothing").await;
    check(vec![text(" "), text("")], "no: it says nothing").await;
    let wrong = Piece::Attached {
        wanted: Wanted::Image,
        name: Some("a\nb".into()),
        given: Given::Bytes(b"words".to_vec()),
    };
    check(vec![wrong], "no: a\\nb is no image").await;
}

#[tokio::test]
async fn a_path_is_read_with_the_agents_permissions_whoever_names_it() {
    let world = World::new();
    let agent = world.make(seeing("a", "sandboxed")).await;
    for outside in ["/etc/passwd.png", "../../etc/x.png", "/protected/x.png"] {
        let refused = take(&world, &agent, vec![text("look"), path(outside)]).await;
        let Err(AttachError::Refused { at: 1, refusal }) = refused else {
            panic!("{outside}: {refused:?}")
        };
        assert_eq!(refusal.rule(), "path", "{outside}: {refusal}");
    }
    // The server's own files are closed also to who may read everywhere.
    let trusted = world.make(seeing("t", "trusted")).await;
    let refused = take(&world, &trusted, vec![path("/protected/x.png")]).await;
    assert_eq!(refused.unwrap_err().to_string(), "/protected/x.png is a blocked path");
}

/// A child speaks to its parent, which may read more. What it names is read only as far as the child itself may.
#[tokio::test]
async fn an_agent_shows_others_no_more_than_it_may_read() {
    let world = World::new();
    let parent = world.make(seeing("p", "trusted")).await;
    let child = AgentSpec { parent: Some(id("p")), ..seeing("c", "sandboxed") };
    let child = world.make(child).await;
    let attacher = &world.engine.attacher;
    let asks = Requester::Agent(child.id());
    let (within, outside) = (base().join("x.png"), "/usr/x.png");
    let within = within.to_str().unwrap();
    assert!(take(&world, &parent, vec![path(outside)]).await.is_ok());
    assert!(attacher.take(&asks, &parent, vec![path(within)]).await.is_ok());
    let refused = attacher.take(&asks, &parent, vec![path(outside)]).await;
    assert!(matches!(refused, Err(AttachError::Refused { at: 0, .. })), "{refused:?}");
    world.engine.agents.destroy(&ADMIN, &id("c")).await.unwrap();
    let refused = attacher.take(&asks, &parent, vec![path(within)]).await;
    assert!(matches!(refused, Err(AttachError::Refused { at: 0, .. })), "{refused:?}");
}

#[tokio::test]
async fn a_message_has_its_bounds() {
    let world = World::new();
    let agent = world.make(seeing("a", "sandboxed")).await;
    let mut pieces = vec![path("x.png"); ATTACHMENTS_MAX];
    pieces.push(text("look"));
    assert!(take(&world, &agent, pieces.clone()).await.is_ok());
    pieces.push(path("x.png"));
    let refused = take(&world, &agent, pieces).await.unwrap_err();
    assert_eq!(refused.to_string(), "a message has at most 20 attachments, and this one 21");

    let half = ATTACHED_BYTES_MAX / 2;
    assert!(take(&world, &agent, vec![sized(half), sized(half)]).await.is_ok());
    let refused = take(&world, &agent, vec![sized(half), sized(half + 1)]).await.unwrap_err();
    assert!(matches!(refused, AttachError::TooLarge { bytes: 20_000_001 }), "{refused}");
}

#[tokio::test]
async fn a_model_that_cannot_look_is_not_asked_to() {
    let world = World::new();
    let agent = world.make(AgentSpec { model: None, ..seeing("a", "sandboxed") }).await;
    let check = async |pieces, expected| check(&world, &agent, pieces, expected).await;
    check(vec![path("x.png")], "no: model m takes no images; these do: sees").await;
    check(vec![bytes("x.pdf")], "no: model m takes no PDF documents; these do: sees").await;
    check(vec![bytes("words")], "File without a name:\n\nwords").await;
}

#[tokio::test]
async fn addresses_are_handed_on_only_where_they_may_be() {
    let refuses = World::new();
    let agent = refuses.make(seeing("a", "sandboxed")).await;
    let refused = take(&refuses, &agent, vec![address("https://x/a.png")]).await.unwrap_err();
    assert!(matches!(refused, AttachError::Address { at: 0, .. }));
    assert!(refused.to_string().contains("images.allow_urls"), "{refused}");

    let world = World::with(|settings| settings.allow_urls = true);
    let agent = world.make(seeing("a", "sandboxed")).await;
    let check = async |pieces, expected| check(&world, &agent, pieces, expected).await;
    check(vec![address("https://x/a.png")], "[An image, https://x/a.png]").await;
    let odd = "no: this is not an address that could be handed on";
    check(vec![address("https://x/a b")], odd).await;
    let most = format!("https://x/{}", "a".repeat((8 << 10) - 10));
    let longest = format!("[An image, {most}]");
    check(vec![address(&most)], &longest).await;
    check(vec![address(&format!("{most}a"))], odd).await;
    check(vec![address("ftp://x/a")], "no: an address begins with http:// or https://").await;
}

/// What each message of the last call shows.
fn shown(world: &World) -> Vec<Vec<Vec<u8>>> {
    let bytes = |message: &Message| {
        let attachments = message.attachments().map(|attachment| match &attachment.source {
            Source::Blob(blob) => blob.bytes.to_vec(),
            Source::Address(url) => url.clone().into(),
        });
        attachments.collect()
    };
    world.model.calls().last().unwrap().messages.iter().map(|it| bytes(it)).collect()
}

#[tokio::test]
async fn what_is_attached_is_shown_also_after_a_restart() {
    let world = World::new();
    let agent = world.make(seeing("a", "sandboxed")).await;
    let content = take(&world, &agent, vec![text("look"), bytes("x.png")]).await.unwrap();
    let input = TurnInput { content, ..TurnInput::default() };
    world.engine.turns.start(&agent, input).await.unwrap().wait(None).await.unwrap();
    assert_eq!(shown(&world), [[b"x.png"]]);
    assert_eq!(agent.look().conversation.attached_bytes(), 5);

    let again = world.restarted(|_| {});
    let agent = again.find("a").await.unwrap();
    again.start(&agent, "and now").await.unwrap().wait(None).await.unwrap();
    assert_eq!(shown(&again), [vec![b"x.png".to_vec()], vec![], vec![]]);
    let first = again.model.calls()[0].messages.iter().next().unwrap().clone();
    assert_eq!(first.text(), "look");
}

#[tokio::test]
async fn what_a_tool_returns_is_shown_with_its_result() {
    let world = World::new();
    let agent = world.make(seeing("a", "sandboxed")).await;
    world.model.script([
        Script::Call(vec![("echo", json!({"text": "see", "picture": "p.png"}))]),
        Script::Say("seen"),
    ]);
    world.start(&agent, "look").await.unwrap().wait(None).await.unwrap();
    assert_eq!(shown(&world), [vec![], vec![], vec![b"p.png".to_vec()]]);
    let history = world.engine.agents.history(&agent, 2, 1, usize::MAX).await.unwrap().messages;
    assert_eq!(history[0].attachments().collect::<Vec<_>>(), [&picture("p.png")]);
    assert_eq!(history[0].text(), "see");
}

#[tokio::test]
async fn a_summary_takes_attachments_out_of_sight() {
    let world = World::with(|settings| settings.compaction.recent_preserve_ratio = 0.0);
    let agent = world.make(seeing("a", "sandboxed")).await;
    let content = take(&world, &agent, vec![text("look"), bytes("x.png")]).await.unwrap();
    let input = TurnInput { content, ..TurnInput::default() };
    world.engine.turns.start(&agent, input).await.unwrap().wait(None).await.unwrap();
    world.start(&agent, "more").await.unwrap().wait(None).await.unwrap();
    world.model.script([Script::Say("sum")]);
    let asked_by = nexus_core::authority::AskedBy::Administrator;
    world.engine.turns.compact(&agent, true, asked_by).await.unwrap();
    assert_eq!(agent.look().conversation.attached_bytes(), 0);
    // What was said is still what was said.
    let history = world.engine.agents.history(&agent, 0, 1, usize::MAX).await.unwrap().messages;
    assert_eq!(history[0].attachments().count(), 1);
}

/// An image of so many bytes.
fn sized(size: u64) -> Piece {
    let mut image = vec![b' '; usize::try_from(size).unwrap() - 4];
    image.extend(b".png");
    bytes(image)
}

async fn show(world: &World, agent: &Agent, size: u64) -> Result<(), TurnError> {
    let content = take(world, agent, vec![text("look"), sized(size)]).await.unwrap();
    let input = TurnInput { content, ..TurnInput::default() };
    world.engine.turns.start(agent, input).await?.wait(None).await.map(drop)
}

fn attached(world: &World) -> Vec<u64> {
    let calls = world.model.calls();
    let sum = |call: &ModelCall| call.messages.iter().map(|it| it.attached_bytes()).sum();
    calls.iter().map(sum).collect()
}

/// What a request holds stays within what services take, whatever there is room for in the window.
#[tokio::test]
async fn too_many_bytes_of_attachments_are_summarised_away() {
    let world = World::new();
    let agent = world.make(seeing("a", "sandboxed")).await;
    let half = ATTACHED_BYTES_MAX / 2;
    show(&world, &agent, half).await.unwrap();
    show(&world, &agent, half).await.unwrap();
    assert_eq!(attached(&world), [half, 2 * half], "as many as may be");
    world.model.script([Script::Say("They looked at two images.")]);
    show(&world, &agent, 5).await.unwrap();
    // The summary is asked for with the images in sight, and the turn goes on without them.
    assert_eq!(attached(&world)[2..], [2 * half, 5]);
    let context = world.model.last_context();
    assert!(context[0].contains("They looked at two images."), "{context:?}");
    assert_eq!(agent.look().conversation.attached_bytes(), 5);
}

/// Also in the middle of a turn, where a tool brings too many at once: then none of them is sent.
#[tokio::test]
async fn what_tools_bring_is_bounded_too() {
    let world = World::new();
    let agent = world.make(seeing("a", "sandboxed")).await;
    let third = " ".repeat(usize::try_from(ATTACHED_BYTES_MAX / 3).unwrap());
    let call = || ("echo", json!({"text": "see", "picture": third.clone() + "1234"}));
    world.model.script([
        Script::Call(vec![call(), call(), call()]),
        Script::Say("Three images were looked at."),
        Script::Say("done"),
    ]);
    world.start(&agent, "look").await.unwrap().wait(None).await.unwrap();
    assert_eq!(attached(&world), [0, 0, 0]);
}

#[tokio::test]
async fn without_compaction_too_many_bytes_are_refused() {
    let world = World::with(|settings| settings.compaction.enabled = false);
    let agent = world.make(seeing("a", "sandboxed")).await;
    show(&world, &agent, ATTACHED_BYTES_MAX).await.unwrap();
    let refused = show(&world, &agent, 5).await.unwrap_err();
    assert!(matches!(refused, TurnError::Attached { bytes: 20_000_005 }), "{refused}");
    assert_eq!(attached(&world), [ATTACHED_BYTES_MAX]);
}
