//! What becomes of a message, told to a session as its tasks would.

use serde_json::json;
use tokio::sync::mpsc::{channel, unbounded_channel};

use super::*;
use crate::app::begin_session;
use crate::code::Theme;
use crate::cx::Front;
use crate::markdown::Wrap;
use crate::options::{ServerChoice, Settings};
use crate::testing::Fake;

/// A session on a server that makes agents and knows nothing else.
fn session(fake: &Fake, news: Sender<News>) -> Session {
    let choice = SessionChoice::Fresh { is_temporary: false };
    beginning(fake, choice, news, unbounded_channel().0)
}

/// The same, that begins with what was chosen.
fn beginning(
    fake: &Fake,
    session: SessionChoice,
    news: Sender<News>,
    front: UnboundedSender<Front>,
) -> Session {
    let options = Options {
        home: "/home".into(),
        cwd: "/src/api".into(),
        program: "/nexus3".into(),
        sockets: Vec::new(),
        ports: Vec::new(),
        server_arguments: Vec::new(),
        server: ServerChoice::Any,
        session,
        model: None,
        preset: None,
        system_prompt: None,
        settings: Settings::default(),
    };
    let info = json!({
        "name": "nexus3", "version": "0", "pid": 1, "home": "/home", "cwd": "/src/api", "url": null,
        "socket": null, "started_at": "", "approvals": "auto", "agents": 0, "turns": 0,
        "turns_running": 0, "watches": 0, "watchers": [],
    });
    let (traced, _) = unbounded_channel();
    let found = Found {
        link: Arc::new(fake.link(traced.clone())),
        info: serde_json::from_value(info).unwrap(),
        own: None,
    };
    let look = Look { width: 80, wrap: Wrap::Word, theme: Theme::Mono };
    Session::new(options, found, look, news, front, traced)
}

#[tokio::test]
async fn a_server_that_goes_away_is_asked_again_what_there_is_to_begin_with() {
    for choice in [SessionChoice::Lobby, SessionChoice::Last, SessionChoice::Named("a".into())] {
        let answer = |method: &str, _: &serde_json::Value| match method {
            "list_sessions" => Ok(json!({"total": 0, "offset": 0, "limit": 1, "sessions": []})),
            "list_agents" => Ok(json!({"agents": []})),
            "load_session" => Err(nexus_protocol::error::RpcError::invalid_params("no")),
            _ => Err(nexus_protocol::error::RpcError::method_not_found(method)),
        };
        let gone = Fake::start(answer);
        let (front, mut told) = unbounded_channel();
        let mut session = beginning(&gone, choice.clone(), channel(100).0, front);
        drop(gone);
        begin_session(&session, true);
        assert!(matches!(told.recv().await, Some(Front::Begin)), "{choice:?}");
        session.is_connected = false;
        begin_session(&session, true);
        assert!(matches!(told.recv().await, Some(Front::Begin)), "{choice:?}");

        let next = Fake::start(answer);
        session.link = Arc::new(next.link(unbounded_channel().0));
        session.is_connected = true;
        begin_session(&session, true);
        let said = told.recv().await;
        match choice {
            SessionChoice::Lobby => assert!(matches!(said, Some(Front::Lobby(_)))),
            _ => assert!(matches!(said, Some(Front::Fail(_))), "{choice:?}"),
        }
    }
}

#[tokio::test]
async fn the_first_message_is_sent_when_its_agent_is_watched() {
    let fake = Fake::start(|method, _| match method {
        "create_agent" => Ok(json!({"agent_id": "api", "url": "/agent/api"})),
        _ => Err(nexus_protocol::error::RpcError::method_not_found(method)),
    });
    let (news, mut told) = channel(100);
    let mut session = session(&fake, news);
    session.say("hello");
    let made = loop {
        match told.recv().await.unwrap() {
            made @ News::Made(_) => break made,
            _ => continue,
        }
    };
    session.take(made);
    assert_eq!(session.agent(), Some("api"));
    assert!(session.sending.is_none(), "it was sent before anybody could be told what comes of it");
    let snapshot = json!({
        "at": "", "event": {"type": "snapshot", "agents": [], "approvals": [], "watchers": []},
    });
    let snapshot = Box::new(serde_json::from_value(snapshot).unwrap());
    session.take(News::Shown(session.generation, snapshot));
    assert!(session.sending.is_some());
}

#[tokio::test]
async fn an_agent_that_cannot_be_shown_costs_nothing_else() {
    let fake = Fake::start(|_, _| Err(nexus_protocol::error::RpcError::invalid_params("no")));
    let (news, mut told) = channel(100);
    let mut session = session(&fake, news);
    session.show("api".into());
    let unshown = loop {
        match told.recv().await.unwrap() {
            unshown @ News::Unshown(..) => break unshown,
            _ => continue,
        }
    };
    let lines = session.take(unshown);
    assert!(lines[0].text().contains("api cannot be shown: no"), "{}", lines[0].text());
    assert!(session.view.is_none() && session.is_connected);
}

#[tokio::test]
async fn what_another_process_has_is_had_when_that_is_gone() {
    let mut tries = 0;
    let had = crate::follow::soon(|| {
        tries += 1;
        let elsewhere = nexus_protocol::error::RpcError::unavailable("elsewhere", "there", &[]);
        std::future::ready(if tries < 3 { Err(elsewhere.into()) } else { Ok(tries) })
    });
    assert_eq!(had.await.unwrap(), 3);
}
