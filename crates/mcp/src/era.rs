//! Of which era a server is: 2026-07-28, which is asked for with `server/discover`, or one that shakes hands with `initialize`.
//!
//! rmcp asks for the newer and falls back to the older. A server of the older era may say nothing to what it does not know, and
//! one of the newer may only be slow to start.

use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, ErrorCode, ErrorData, Implementation, InitializeResult, JsonRpcMessage,
    ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::TxJsonRpcMessage;
use tokio::time::Instant;

/// For the answer to `server/discover`. Then it is answered in the server's place.
const DISCOVER_MAX: Duration = Duration::from_secs(3);

/// How far it is known.
#[derive(Default)]
pub struct Era {
    /// The question for it that was not answered yet, and until when it is waited for.
    asked: Option<(RequestId, Instant)>,
    given_up: Option<GivenUp>,
}

/// A question for the era that was answered in the server's place. A server that only started slowly answers both: what it
/// says to the handshake of the older era decides, and where it says no, or nothing, what it said to the question.
struct GivenUp {
    question: RequestId,
    /// The handshake that followed.
    initialize: Option<RequestId>,
    /// What it said of itself, as one of the newer era.
    newer: Option<ServerResult>,
    /// Its no to the handshake.
    refused: Option<ServerJsonRpcMessage>,
    /// One of the two is there, and the other is waited for until then.
    until: Option<Instant>,
    /// Nothing more is heard of the two.
    is_settled: bool,
}

impl Era {
    /// Notes what is said to the server.
    pub fn said(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else { return };
        match (&request.request, &mut self.given_up) {
            (ClientRequest::DiscoverRequest(_), _) => {
                self.asked = Some((request.id.clone(), Instant::now() + DISCOVER_MAX));
            }
            (ClientRequest::InitializeRequest(_), Some(given_up)) => {
                given_up.initialize = Some(request.id.clone());
            }
            _ => {}
        }
    }

    /// When the server's silence says something.
    pub fn until(&self) -> Option<Instant> {
        let asked = self.asked.as_ref().map(|(_, until)| *until);
        asked.or_else(|| self.given_up.as_ref()?.until)
    }

    /// What rmcp is told when nothing came until then.
    pub fn silence(&mut self) -> Option<ServerJsonRpcMessage> {
        match self.asked.take() {
            Some((question, _)) => {
                self.given_up = Some(GivenUp::new(question.clone()));
                Some(unknown_method(question))
            }
            None => self.ended(),
        }
    }

    /// What it is told when nothing more comes.
    pub fn ended(&mut self) -> Option<ServerJsonRpcMessage> {
        self.given_up.as_mut()?.settled()
    }

    /// What it is told of a message; nothing of what it must not hear, or not yet.
    pub fn heard(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        if let Some((question, _)) =
            self.asked.take_if(|(question, _)| id_of(&message) == Some(question))
        {
            return Some(of_era(message, &question));
        }
        match &mut self.given_up {
            Some(given_up) => given_up.heard(message),
            None => Some(message),
        }
    }
}

impl GivenUp {
    fn new(question: RequestId) -> Self {
        Self {
            question,
            initialize: None,
            newer: None,
            refused: None,
            until: None,
            is_settled: false,
        }
    }

    fn heard(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let id = id_of(&message);
        let is_question = id == Some(&self.question);
        let is_handshake = id.is_some() && id == self.initialize.as_ref();
        if !is_question && !is_handshake {
            return Some(message);
        }
        if self.is_settled {
            return None;
        }
        match message {
            _ if is_question => {
                self.newer = newer(message);
                let is_older = self.newer.is_none();
                if is_older && self.refused.is_none() {
                    // Whatever it says to the handshake is its last word.
                    self.initialize = None;
                    return None;
                }
            }
            JsonRpcMessage::Error(_) => self.refused = Some(message),
            _ => {
                self.is_settled = true;
                return Some(message);
            }
        }
        match self.until.replace(Instant::now() + DISCOVER_MAX) {
            Some(_) => self.settled(),
            None => None,
        }
    }

    /// With what is known by now.
    fn settled(&mut self) -> Option<ServerJsonRpcMessage> {
        self.is_settled = true;
        self.until = None;
        match self.newer.take().zip(self.initialize.clone()) {
            Some((known, id)) => Some(JsonRpcMessage::response(known, id)),
            None => self.refused.take(),
        }
    }
}

/// What a server of the newer era said of itself, as the handshake of the older would have it.
fn newer(answer: ServerJsonRpcMessage) -> Option<ServerResult> {
    let JsonRpcMessage::Response(answer) = answer else { return None };
    let ServerResult::DiscoverResult(known) = answer.result else { return None };
    let version = ProtocolVersion::V_2026_07_28;
    if !known.supported_versions.contains(&version) {
        return None;
    }
    let named = known.server_info().unwrap_or_else(|| Implementation::new("", ""));
    let mut result = InitializeResult::new(known.capabilities).with_server_info(named);
    result.protocol_version = version;
    result.instructions = known.instructions;
    Some(ServerResult::InitializeResult(result))
}

fn id_of(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

/// The answer to the question for the era. Who answers something else has not understood it, and is of the older one.
pub fn of_era(answer: ServerJsonRpcMessage, asked: &RequestId) -> ServerJsonRpcMessage {
    match &answer {
        JsonRpcMessage::Response(response)
            if !matches!(response.result, ServerResult::DiscoverResult(_)) =>
        {
            unknown_method(asked.clone())
        }
        _ => answer,
    }
}

fn unknown_method(id: RequestId) -> ServerJsonRpcMessage {
    let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer to server/discover", None);
    JsonRpcMessage::error(error, Some(id))
}
