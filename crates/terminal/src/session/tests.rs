//! What becomes of a message, told to a session as its tasks would.

use nexus_protocol::error::RpcError;
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
        has_cwd: false,
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
            "load_session" => Err(RpcError::invalid_params("no")),
            _ => Err(RpcError::method_not_found(method)),
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

#[test]
fn who_turns_to_an_agent_sees_its_last_turn() {
    let check = |roles: &str, expected: &str| {
        let message = |(index, letter): (usize, char)| {
            let role = match letter {
                'u' => "user",
                'a' => "assistant",
                _ => "tool",
            };
            json!({"index": index, "role": role, "content": ""})
        };
        let messages: Vec<_> = roles.chars().enumerate().map(message).collect();
        let messages = serde_json::from_value(messages.into()).unwrap();
        let shown = last_turn(messages);
        let letters = shown.iter().map(|message| message.role.chars().next().unwrap());
        assert_eq!(letters.collect::<String>(), expected, "{roles}");
    };
    check("", "");
    check("uaua", "ua");
    check("uauatata", "uatata");
    // Asked just now, or of a turn that is long.
    check("uau", "au");
    check("atata", "a");
    check("tt", "");
}

#[tokio::test]
async fn the_first_message_is_sent_when_its_agent_is_watched() {
    let fake = Fake::start(|method, _| match method {
        "create_agent" => Ok(json!({"agent_id": "api", "url": "/agent/api"})),
        _ => Err(RpcError::method_not_found(method)),
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
    let fake = Fake::start(|_, _| Err(RpcError::invalid_params("no")));
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
        let elsewhere = RpcError::unavailable("elsewhere", "there", &[]);
        std::future::ready(if tries < 3 { Err(elsewhere.into()) } else { Ok(tries) })
    });
    assert_eq!(had.await.unwrap(), 3);
}

/// What happens to all agents.
fn all(agent: &str, event: serde_json::Value) -> News {
    let happened = json!({"agent_id": agent, "request_id": "r1", "at": "", "event": event});
    News::All(Box::new(serde_json::from_value(happened).unwrap()))
}

/// The first snapshot of the watch of the agent that is shown, which had so many messages.
fn snapshot(session: &Session, messages: u64) -> News {
    let agent = json!({"message_count": messages, "turns": []});
    let name = session.agent().unwrap();
    let agent = crate::testing::agent(name, agent);
    let event = json!({"type": "snapshot", "agents": [agent], "approvals": [], "watchers": []});
    let happened = json!({"agent_id": name, "at": "", "event": event});
    News::Shown(session.generation, Box::new(serde_json::from_value(happened).unwrap()))
}

/// A session that shows `api`, and has just said something to it, of which nothing was heard.
fn having_said(fake: &Fake, news: Sender<News>, front: UnboundedSender<Front>) -> Session {
    let choice = SessionChoice::Fresh { is_temporary: false };
    let mut session = beginning(fake, choice, news, front);
    session.show("api".into());
    session.take(snapshot(&session, 0));
    session.say("hello");
    assert!(session.sending.is_some());
    session
}

/// The names under which messages were sent to this server.
fn sent(fake: &Fake) -> Vec<String> {
    let calls = fake.calls(0).into_iter().filter(|call| call[0] == "send");
    calls.map(|call| call[1]["request_id"].as_str().unwrap().to_owned()).collect()
}

/// What was said to whom on this server.
fn addressed(fake: &Fake) -> Vec<(String, String)> {
    let calls = fake.calls(0).into_iter().filter(|call| call[0] == "send");
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    calls.map(|call| (text(&call[1]["agent_id"]), text(&call[1]["content"]))).collect()
}

/// The message that is on its way is refused: there are too many.
fn refused(session: &Session) -> News {
    let id = session.sending.as_ref().unwrap().id.clone();
    let error = CallError::Rpc(RpcError::overloaded("Too many turns are waiting.", 1));
    News::Answered { id, whispered_to: None, sent: Box::new(Err(error)) }
}

/// What was said last comes back into the input.
async fn filled(told: &mut tokio::sync::mpsc::UnboundedReceiver<Front>) -> String {
    loop {
        if let Front::Fill(text) = told.recv().await.unwrap() {
            return text;
        }
    }
}

fn knowing_nothing(method: &str, _: &serde_json::Value) -> Result<serde_json::Value, RpcError> {
    Err(RpcError::method_not_found(method))
}

/// The news in which a message was answered.
async fn answer(told: &mut tokio::sync::mpsc::Receiver<News>) -> News {
    loop {
        match told.recv().await.unwrap() {
            answered @ News::Answered { .. } => return answered,
            _ => continue,
        }
    }
}

#[tokio::test]
async fn what_was_on_its_way_when_the_server_went_is_sent_again_under_its_name() {
    let (first, next) = (Fake::start(knowing_nothing), Fake::start(knowing_nothing));
    let (news, mut told) = channel(100);
    let mut session = having_said(&first, news, unbounded_channel().0);
    let is_cut = CallError::Transport("gone".into());
    session.take(News::Lost(is_cut));
    assert!(session.sending.is_none());
    let name = session.unsent.front().unwrap().name.clone().unwrap();
    // The next one has caught up when all that was said before is printed.
    session.link = Arc::new(next.link(unbounded_channel().0));
    session.is_connected = true;
    session.take(snapshot(&session, 1));
    assert!(session.sending.is_none(), "it may be among what is not printed yet");
    let message = json!({"index": 0, "role": "user", "content": "other"});
    let message = json!({"type": "message", "index": 0, "message": message});
    let message = json!({"agent_id": "api", "at": "", "event": message});
    let message = Box::new(serde_json::from_value(message).unwrap());
    session.take(News::Shown(session.generation, message));
    answer(&mut told).await;
    assert_eq!(sent(&next), [name]);
}

#[tokio::test]
async fn what_had_arrived_when_the_server_went_is_not_sent_again() {
    let fake = Fake::start(knowing_nothing);
    let mut session = having_said(&fake, channel(100).0, unbounded_channel().0);
    session.take(News::Lost(CallError::Transport("gone".into())));
    let name = session.unsent.front().unwrap().name.clone().unwrap();
    session.is_connected = true;
    session.take(snapshot(&session, 1));
    let message = json!({
        "index": 0, "role": "user", "content": "hello", "meta": {"request_id": name, "at": ""},
    });
    let message = json!({"type": "message", "index": 0, "message": message});
    let message = json!({"agent_id": "api", "at": "", "event": message});
    let message = Box::new(serde_json::from_value(message).unwrap());
    let lines = session.take(News::Shown(session.generation, message));
    assert!(lines.iter().any(|line| line.text() == "you> hello"), "{lines:?}");
    assert!(session.sending.is_none() && session.unsent.is_empty());
}

#[tokio::test]
async fn what_cannot_be_sent_comes_back() {
    let fake = Fake::start(knowing_nothing);
    let (front, mut told) = unbounded_channel();
    let mut session = having_said(&fake, channel(100).0, front);
    let id = session.sending.as_ref().unwrap().id.clone();
    let gone = || Box::new(Err(CallError::Transport("gone".into())));
    let lines = session.take(News::Answered { id, whispered_to: None, sent: gone() });
    assert!(lines[0].text().starts_with("not sent: "), "{}", lines[0].text());
    assert_eq!(filled(&mut told).await, "hello");
    // Of what was heard of, nothing comes back.
    session.say("again");
    let id = session.sending.as_ref().unwrap().id.clone();
    session.heard_of(&id);
    let lines = session.take(News::Answered { id, whispered_to: None, sent: gone() });
    assert!(lines.is_empty());
    // And who leaves is told what nobody will ever hear.
    session.say("last words");
    session.is_stopping = true;
    let lines = session.take(News::Lost(CallError::Transport("gone".into())));
    assert_eq!(lines[0].text(), "not sent: last words");
}

#[tokio::test]
async fn what_was_said_to_one_agent_never_reaches_another() {
    // On its way when the connection was lost; and not sent yet, since the agent was not followed.
    for is_lost in [true, false] {
        let (first, next) = (Fake::start(knowing_nothing), Fake::start(knowing_nothing));
        let (news, mut told) = channel(100);
        let mut session = match is_lost {
            true => having_said(&first, news, unbounded_channel().0),
            false => session(&first, news),
        };
        if is_lost {
            session.take(News::Lost(CallError::Transport("gone".into())));
            session.link = Arc::new(next.link(unbounded_channel().0));
        } else {
            session.show("api".into());
            session.say("hello");
        }
        assert!(session.sending.is_none());
        session.show("b".into());
        session.is_connected = true;
        session.take(snapshot(&session, 0));
        let Some(Sending { unsent, .. }) = &session.sending else { panic!("it was not sent") };
        assert_eq!(unsent.to.as_deref(), Some("api"));
        let lines = session.take(answer(&mut told).await);
        assert!(lines[0].text().starts_with("api: "), "it says of whom: {}", lines[0].text());
        let server = if is_lost { &next } else { &first };
        assert_eq!(addressed(server), [("api".to_owned(), "hello".to_owned())]);
    }
}

#[tokio::test]
async fn what_was_said_before_there_is_an_agent_is_for_that_one() {
    let fake = Fake::start(knowing_nothing);
    let mut session = session(&fake, channel(100).0);
    session.say("hello");
    session.show("b".into());
    session.take(snapshot(&session, 0));
    assert!(session.is_making && session.sending.is_none());
    session.take(News::Made(Ok("api".into())));
    session.take(snapshot(&session, 0));
    assert_eq!(session.sending.as_ref().unwrap().unsent.to.as_deref(), Some("api"));
}

#[tokio::test]
async fn what_is_said_before_a_named_agent_is_shown_makes_no_other() {
    for choice in [SessionChoice::Named("api".into()), SessionChoice::Last] {
        let fake = Fake::start(knowing_nothing);
        let mut session = beginning(&fake, choice, channel(100).0, unbounded_channel().0);
        session.say("hello");
        assert!(!session.is_making);
        session.show("api".into());
        session.take(snapshot(&session, 0));
        assert_eq!(session.sending.as_ref().unwrap().unsent.to.as_deref(), Some("api"));
    }
}

#[tokio::test]
async fn what_was_said_to_an_agent_that_has_ended_comes_back_and_makes_no_other() {
    let fake = Fake::start(knowing_nothing);
    let (front, mut told) = unbounded_channel();
    let mut session = having_said(&fake, channel(100).0, front);
    session.say("and this");
    session.take(all("api", json!({"type": "agent_ended"})));
    assert!(session.view.is_none() && session.sending.is_some());
    session.take(refused(&session));
    assert_eq!(filled(&mut told).await, "hello\nand this");
    assert!(!session.is_making && session.sending.is_none() && session.unsent.is_empty());
    // While another is shown, that is said.
    session.show("b".into());
    session.say("for b");
    session.show("c".into());
    session.take(News::Lost(CallError::Transport("gone".into())));
    let lines = session.take(all("b", json!({"type": "agent_ended"})));
    assert_eq!(lines[0].text(), "not sent: b has ended");
    assert_eq!(filled(&mut told).await, "for b");
}

#[tokio::test]
async fn what_was_said_follows_an_agent_to_its_new_name() {
    let fake = Fake::start(knowing_nothing);
    let mut session = having_said(&fake, channel(100).0, unbounded_channel().0);
    session.say("and this");
    session.whisper = Some("api".into());
    session.take(all("api", json!({"type": "agent_renamed", "to": "web"})));
    assert_eq!(session.whisper.as_deref(), Some("web"));
    session.take(News::Lost(CallError::Transport("gone".into())));
    let to: Vec<_> = session.unsent.iter().map(|unsent| unsent.to.as_deref()).collect();
    assert_eq!(to, [Some("web"), Some("web")]);
}

#[tokio::test]
async fn what_is_refused_comes_back_with_what_was_to_follow_it() {
    let fake = Fake::start(knowing_nothing);
    let (front, mut told) = unbounded_channel();
    let mut session = having_said(&fake, channel(100).0, front);
    session.say("and this");
    session.whisper = Some("b".into());
    session.say("for b");
    let lines = session.take(refused(&session));
    assert_eq!(lines[0].text(), "The server is overloaded");
    assert_eq!(filled(&mut told).await, "hello\nand this");
    // To another agent there is nothing that it would follow.
    assert_eq!(session.sending.as_ref().unwrap().unsent.to.as_deref(), Some("b"));
    assert!(session.unsent.is_empty());
}

#[tokio::test]
async fn the_next_agent_is_one_with_something_to_look_at() {
    let fake = Fake::start(knowing_nothing);
    let mut session = session(&fake, channel(100).0);
    for name in ["a", "b", "c", "d"] {
        let agent = crate::testing::agent(name, json!({}));
        session.take(all(name, json!({"type": "agent_created", "agent": agent})));
    }
    assert_eq!(session.next_to_look_at(), None);
    session.show("b".into());
    let started = json!({"type": "turn_started", "content": "x", "resumed": false, "model": null});
    session.take(all("c", started));
    assert_eq!(session.next_to_look_at(), None, "c only runs");
    let ended = json!({
        "type": "turn_ended", "status": "done", "message_count": 2, "duration_ms": 1,
        "usage": {"input": 1, "cache_read": 0, "cache_write": 0, "output": 1, "reasoning": 0},
        "cost_usd": null,
    });
    session.take(all("a", ended.clone()));
    assert_eq!(session.next_to_look_at().as_deref(), Some("a"));
    // Behind the shown one first.
    session.take(all("d", ended));
    assert_eq!(session.next_to_look_at().as_deref(), Some("d"));
    session.show("d".into());
    assert_eq!(session.next_to_look_at().as_deref(), Some("a"));
}

#[tokio::test]
async fn an_agent_waits_until_the_last_approval_of_it_is_decided() {
    let fake = Fake::start(knowing_nothing);
    let mut session = having_said(&fake, channel(100).0, unbounded_channel().0);
    let started = json!({"type": "turn_started", "content": "x", "resumed": false, "model": null});
    let started = json!({"agent_id": "api", "request_id": "r1", "at": "", "event": started});
    let started = Box::new(serde_json::from_value(started).unwrap());
    session.take(News::Shown(session.generation, started));
    let approval = |id: &str, status: &str| {
        json!({
            "approval_id": id, "agent_id": "api", "tool": "exec", "arguments": {}, "reason": "",
            "created_at": "2026-11-17T03:00:00Z", "status": status,
        })
    };
    let activity = |session: &Session| {
        session.view.as_ref().and_then(View::activity).map(|(activity, _)| activity.clone())
    };
    // Those that were there before, too.
    let there = json!({
        "type": "snapshot", "agents": [], "approvals": [approval("1", "pending")], "watchers": [],
    });
    session.take(all("", there));
    let asked = json!({"type": "approval_requested", "approval": approval("2", "pending")});
    session.take(all("api", asked));
    assert_eq!(activity(&session), Some(crate::view::Activity::Approval));
    for (id, expected) in
        [("1", crate::view::Activity::Approval), ("2", crate::view::Activity::Waiting)]
    {
        let decided = json!({"type": "approval_decided", "approval": approval(id, "denied")});
        session.take(all("api", decided));
        assert_eq!(activity(&session), Some(expected));
    }
}

#[tokio::test]
async fn the_first_agent_that_is_shown_is_introduced_once() {
    let answer = |level: &'static str| {
        move |method: &str, params: &serde_json::Value| match method {
            "get_messages" => Ok(crate::testing::page(&[], params)),
            "get_context" => Ok(crate::testing::context(json!({}))),
            "list_agents" => {
                let members = json!({"permission_level": level});
                Ok(json!({"agents": [crate::testing::agent("api", members)]}))
            }
            _ => Err(RpcError::method_not_found(method)),
        }
    };
    for (level, expected) in [
        ("TRUSTED", &["agent api · opus · /src/api · trusted"][..]),
        (
            "YOLO",
            &[
                "agent api · opus · /src/api · yolo",
                "yolo: api may do whatever you may, and nobody is asked",
            ],
        ),
    ] {
        let fake = Fake::start(answer(level));
        let (news, mut told) = channel(100);
        let mut session = session(&fake, news);
        for times in 0..2 {
            session.show("api".into());
            let recent = loop {
                match told.recv().await.unwrap() {
                    recent @ News::Recent(..) => break recent,
                    _ => continue,
                }
            };
            let lines = session.take(recent);
            let lines: Vec<_> = lines.iter().map(Line::text).collect();
            assert_eq!(lines, if times == 0 { expected } else { &[] });
        }
    }
}

#[tokio::test]
async fn flags_for_agents_that_are_made_are_said_to_be_ignored() {
    let recent = || Recent {
        agents: serde_json::from_value(json!([crate::testing::agent("api", json!({}))])).ok(),
        messages: Vec::new(),
        total: 0,
        interrupted: None,
    };
    let fake = Fake::start(knowing_nothing);
    let said = |change: fn(&mut Options), made: Option<&str>| {
        let mut session = session(&fake, channel(100).0);
        change(&mut session.options);
        session.made = made.map(Into::into);
        session.show("api".into());
        let lines = session.take(News::Recent(session.generation, recent()));
        lines.iter().any(|line| line.text().contains("are for agents that are made"))
    };
    assert!(!said(|_| {}, None));
    assert!(said(|options| options.model = Some("haiku".into()), None));
    assert!(!said(|options| options.model = Some("opus".into()), None));
    assert!(said(|options| options.preset = Some("sandboxed".into()), None));
    let elsewhere = |options: &mut Options| {
        options.cwd = "/elsewhere".into();
        options.has_cwd = true;
    };
    assert!(said(elsewhere, None));
    assert!(!said(elsewhere, Some("api")));
}

#[tokio::test]
async fn an_agent_that_cannot_be_shown_is_followed_by_what_there_is() {
    let answer = |method: &str, _: &serde_json::Value| match method {
        "list_sessions" => Ok(json!({"total": 0, "offset": 0, "limit": 1, "sessions": []})),
        "list_agents" => Ok(json!({"agents": []})),
        _ => Err(RpcError::method_not_found(method)),
    };
    let fake = Fake::start(answer);
    let (front, mut told) = unbounded_channel();
    let mut session = beginning(&fake, SessionChoice::Lobby, channel(100).0, front);
    session.show("api".into());
    session.say("for api");
    let error = CallError::Rpc(RpcError::invalid_params("no"));
    session.take(News::Unshown(session.generation, error));
    assert_eq!(filled(&mut told).await, "for api");
    while !matches!(told.recv().await, Some(Front::LobbyAgain(_))) {}
}

#[tokio::test]
async fn main_is_there_on_a_server_that_was_named() {
    let answer = |method: &str, _: &serde_json::Value| match method {
        "list_agents" => Ok(json!({"agents": []})),
        _ => Err(RpcError::invalid_params("no")),
    };
    let fake = Fake::start(answer);
    let at = ServerChoice::At { url: "http://127.0.0.1:1".into(), token: None };
    for (server, name, is_there) in
        [(at.clone(), "main", true), (at, "other", false), (ServerChoice::Any, "main", false)]
    {
        let (front, mut told) = unbounded_channel();
        let named = SessionChoice::Named(name.into());
        let mut session = beginning(&fake, named, channel(100).0, front);
        session.options.server = server;
        begin_session(&session, true);
        match told.recv().await {
            Some(Front::Show(agent)) => assert!(is_there && agent == name),
            Some(Front::Fail(_)) => assert!(!is_there),
            _ => panic!("neither shown nor refused"),
        }
    }
}
