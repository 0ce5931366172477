//! The newer wires over HTTP: addresses and keys, answers as the scripted model gives them, and tool loops that it would
//! refuse to go on with if anything came back otherwise than it was given out.

use nexus_core::message::{Made, Origin, Stop, StopReason};
use nexus_core::model::{Reasoning, ThinkingKind};
use nexus_core::provider::ToolSpec;
use nexus_core::usage::Bill;
use nexus_testkit::{Odd, Reply, StopSaid, vendors};
use serde_json::{Value, json};

use super::*;
use crate::{AuthMethod, Bounds};

const WIRES: [Wire; 3] = [Wire::Responses, Wire::GenerateContent, Wire::Ollama];

/// Settings of a provider that speaks this wire to the scripted model.
fn speaking(wire: Wire, model: &ScriptedModel) -> ProviderSettings {
    let (kind, base_url) = match wire {
        Wire::GenerateContent => (Kind::Gemini, format!("{}/v1beta", model.root())),
        Wire::Ollama => (Kind::Ollama, model.url()),
        _ => (Kind::OpenAi, model.url()),
    };
    ProviderSettings { wire, base_url, ..settings(kind, model) }
}

fn call_of(wire: Wire, messages: impl IntoIterator<Item = SharedMessage>) -> ModelCall {
    let mut call = ModelCall { reasoning: Reasoning::On, ..call(messages) };
    let model = Arc::make_mut(&mut call.model);
    model.wire = wire.name();
    model.thinking.kind = ThinkingKind::Effort;
    call
}

async fn ask_over(wire: Wire, model: &ScriptedModel) -> Heard {
    let provider = build(&speaking(wire, model)).unwrap();
    hear(&*provider, call_of(wire, [user("Hi")])).await
}

#[tokio::test]
async fn each_wire_has_its_address_and_its_way_to_send_the_key() {
    let model = ScriptedModel::start().await;
    let root = model.root();
    let sent = async |kind, wire, base_url: String, change: fn(&mut ProviderSettings)| {
        let mut settings = ProviderSettings { wire, base_url, ..settings(kind, &model) };
        change(&mut settings);
        let mut call = call_of(wire, [user("Hi")]);
        Arc::make_mut(&mut call.model).id = "models/m 1".into();
        let heard = hear(&*build(&settings).unwrap(), call).await;
        assert!(heard.end.is_ok(), "{:?}", heard.end);
        let request = model.last_request();
        let headers = ["authorization", "api-key", "x-goog-api-key"];
        let headers = headers.iter().filter_map(|name| request.header(name));
        format!("{} {}", request.path, headers.collect::<String>())
    };
    let none = |_: &mut ProviderSettings| {};
    let bearer = format!("/v1/responses Bearer {KEY}");
    for base_url in [root.clone(), format!("{root}/v1/")] {
        assert_eq!(sent(Kind::OpenAi, Wire::Responses, base_url, none).await, bearer);
    }
    for path in ["", "/openai", "/openai/v1/"] {
        let base_url = format!("{root}{path}");
        let expected = format!("/openai/v1/responses {KEY}");
        assert_eq!(sent(Kind::Azure, Wire::Responses, base_url, none).await, expected, "{path}");
    }
    let named = |settings: &mut ProviderSettings| {
        settings.deployment = Some("mine".into());
        settings.api_version = Some("preview".into());
    };
    let expected = format!("/openai/v1/responses?api-version=preview {KEY}");
    assert_eq!(sent(Kind::Azure, Wire::Responses, root.clone(), named).await, expected);
    assert_eq!(model.last_request().body["model"], "mine");

    let expected = format!("/v1beta/models/m%201:streamGenerateContent?alt=sse {KEY}");
    for base_url in [root.clone(), format!("{root}/v1beta/")] {
        assert_eq!(sent(Kind::Gemini, Wire::GenerateContent, base_url, none).await, expected);
    }
    let tuned = format!("/v1/models/m%201:streamGenerateContent?alt=sse {KEY}");
    assert_eq!(sent(Kind::Gemini, Wire::GenerateContent, model.url(), none).await, tuned);

    for path in ["", "/", "/v1", "/v1/", "/api"] {
        let base_url = format!("{root}{path}");
        assert_eq!(sent(Kind::Ollama, Wire::Ollama, base_url, none).await, "/api/chat ", "{path}");
    }
    let behind = format!("{root}/ollama/v1");
    let keyed = |settings: &mut ProviderSettings| settings.auth_method = AuthMethod::Bearer;
    let expected = format!("/ollama/api/chat Bearer {KEY}");
    assert_eq!(sent(Kind::Ollama, Wire::Ollama, behind, keyed).await, expected);
}

#[tokio::test]
async fn ollama_keeps_a_model_for_as_long_as_it_is_told() {
    for (configured, expected) in [(None, "30m"), (Some("1h30m"), "1h30m")] {
        let model = ScriptedModel::start().await;
        let keep_alive = configured.map(str::to_owned);
        let settings = ProviderSettings { keep_alive, ..speaking(Wire::Ollama, &model) };
        let heard = hear(&*build(&settings).unwrap(), call_of(Wire::Ollama, [user("Hi")])).await;
        assert!(heard.end.is_ok());
        assert_eq!(model.last_request().body["keep_alive"], expected);
    }
}

#[tokio::test]
async fn text_thoughts_and_calls_arrive_in_any_pieces() {
    let reply = || {
        Reply::thought("Hm, 🦀?")
            .then_ping()
            .then_chunks(["Grüße ", "und 日本"])
            .then_tool_call_as("call_a", "read_file", "{\"path\": \"ü\"}")
            .then_tool_call_as("call_b", "now", "")
            .usage(100, 30)
            .cached(60)
            .reasoning_tokens(9)
    };
    for wire in WIRES {
        for reply in
            [reply(), reply().split_every(1), reply().split_every(7), reply().as_document()]
        {
            let model = ScriptedModel::start().await;
            model.push(reply);
            let heard = ask_over(wire, &model).await;
            assert_eq!((heard.text(), &*heard.thoughts), ("Grüße und 日本".into(), "Hm, 🦀?"));
            let calls = [
                ToolCall::new("call_a", "read_file", json!({"path": "ü"})),
                ToolCall::new("call_b", "now", json!({})),
            ];
            assert_eq!(heard.calls, calls, "{wire:?}");
            let answer = heard.end.unwrap();
            assert_eq!(answer.stop, StopReason::EndTurn.into(), "{wire:?}");
            let used = match wire {
                Wire::Ollama => Usage { input: 100, output: 30, ..Usage::default() },
                _ => Usage {
                    input: 100,
                    cache_read: 60,
                    output: 30,
                    reasoning: 9,
                    ..Usage::default()
                },
            };
            assert_eq!(answer.usage, used, "{wire:?}");
        }
    }
}

#[tokio::test]
async fn why_the_model_stopped_is_never_guessed() {
    use StopReason::{ContentFilter, Empty, EndTurn, MaxTokens, Other, Pause, Refusal};
    let refusal = || StopSaid::Refusal { category: None, explanation: None };
    // For responses, generate_content and ollama.
    for (said, expected) in [
        (StopSaid::End, [EndTurn, EndTurn, EndTurn]),
        (StopSaid::MaxTokens, [MaxTokens, MaxTokens, MaxTokens]),
        (refusal(), [Refusal, ContentFilter, EndTurn]),
        (StopSaid::ContentFilter, [ContentFilter, ContentFilter, EndTurn]),
        (StopSaid::Pause, [EndTurn, Pause, EndTurn]),
        (StopSaid::MalformedCall, [EndTurn, Empty, EndTurn]),
        (StopSaid::Raw("brand_new".into()), [Other, Other, Other]),
    ] {
        for (wire, expected) in WIRES.into_iter().zip(expected) {
            for is_document in [false, true] {
                let model = ScriptedModel::start().await;
                let reply = Reply::text("So far").stop(said.clone());
                model.push(if is_document { reply.as_document() } else { reply });
                let Stop { reason, details } = ask_over(wire, &model).await.end.unwrap().stop;
                assert_eq!(reason, expected, "{wire:?} {said:?}");
                if expected == Other {
                    assert_eq!(details, Some(json!({"raw": "brand_new"})), "{wire:?}");
                }
            }
        }
    }
    let model = ScriptedModel::start().await;
    model.push(Reply::nothing().stop(StopSaid::ContentFilter));
    let blocked = ask_over(Wire::GenerateContent, &model).await.end.unwrap().stop;
    assert_eq!(
        (blocked.reason, blocked.details),
        (ContentFilter, Some(json!({"raw": "PROHIBITED_CONTENT"})))
    );
}

#[tokio::test]
async fn a_call_that_was_cut_is_told_from_one_that_is_whole() {
    let model = ScriptedModel::start().await;
    let cut = || Reply::text("I write.").then_cut_call("write_file", "{\"path\": \"a");
    for reply in [cut(), cut().as_document(), cut().stop(StopSaid::End)] {
        model.push(reply);
        let heard = ask_over(Wire::Responses, &model).await;
        assert_eq!((heard.calls[0].cut, &heard.calls[0].arguments), (Some(11), &json!({})));
    }
    // On the others calls come whole or not at all, so that one without arguments has none.
    for wire in [Wire::GenerateContent, Wire::Ollama] {
        model.push(cut().then_tool_call_as("c", "now", ""));
        let heard = ask_over(wire, &model).await;
        assert_eq!(heard.calls, [ToolCall::new("c", "now", json!({}))], "{wire:?}");
        assert_eq!(heard.end.unwrap().stop.reason, StopReason::MaxTokens, "{wire:?}");
    }
}

#[tokio::test]
async fn a_stream_that_goes_wrong_is_an_error_and_keeps_what_came() {
    for wire in WIRES {
        let word = match wire {
            Wire::GenerateContent => "UNAVAILABLE",
            _ => "server_error",
        };
        for (reply, expected) in [
            (Reply::text("So far").then_error(word, "Something broke."), "Something broke."),
            (Reply::text("So far").then_garbage(), "an event could not be read"),
            (Reply::text("So far").then_cut(), "broke off"),
            (
                Reply::text("So far").then_error(word, "Something broke.").odd(Odd::NestedError),
                "Something broke.",
            ),
        ] {
            let model = ScriptedModel::start().await;
            model.push(reply);
            let heard = ask_over(wire, &model).await;
            assert_eq!(heard.text(), "So far", "{wire:?}");
            assert!(heard.failure().contains(expected), "{wire:?}: {}", heard.failure());
        }
    }
}

#[tokio::test]
async fn answers_have_their_bounds() {
    let with = async |wire, bounds, reply| {
        let model = ScriptedModel::start().await;
        model.push(reply);
        let settings = ProviderSettings { bounds, ..speaking(wire, &model) };
        hear(&*build(&settings).unwrap(), call_of(wire, [user("Hi")])).await
    };
    for wire in WIRES {
        let bounds = Bounds { calls_max: 3, ..Bounds::default() };
        let of = |count: usize| {
            let add =
                |reply: Reply, at: usize| reply.then_tool_call_as(format!("c{at}"), "now", "{}");
            (0..count).fold(Reply::nothing(), add)
        };
        assert_eq!(with(wire, bounds, of(3)).await.calls.len(), 3, "{wire:?}");
        let failure = with(wire, bounds, of(4)).await.failure();
        assert!(failure.contains("more than 3 tool calls"), "{wire:?}: {failure}");

        let bounds = Bounds { answer_bytes_max: 200, ..Bounds::default() };
        // What the wire keeps of a text counts as well.
        let kept = if wire == Wire::Responses { "{\"phase\":\"final_answer\"}" } else { "" };
        let just = Reply::chunks(["x".repeat(150), "x".repeat(50 - kept.len())]);
        assert!(with(wire, bounds, just.clone()).await.end.is_ok(), "{wire:?}");
        let failure = with(wire, bounds, just.then_text("x")).await.failure();
        assert!(failure.contains("the answer is larger than 200 bytes"), "{wire:?}: {failure}");
        let thoughts = Reply::thought("x".repeat(201)).then_text("Hi");
        assert!(with(wire, bounds, thoughts).await.end.is_err(), "{wire:?}: thoughts count");
    }
}

/// A conversation that goes on for as long as there are replies.
struct Loop {
    wire: Wire,
    model: ScriptedModel,
    provider: Arc<dyn Provider>,
    messages: Vec<SharedMessage>,
}

impl Loop {
    async fn new(wire: Wire) -> Self {
        let model = ScriptedModel::start().await;
        model.strict();
        let provider = build(&speaking(wire, &model)).unwrap();
        Self { wire, model, provider, messages: vec![user("Look around.")] }
    }

    /// One step: asks, and runs what was called.
    async fn step(&mut self, reply: Reply) -> Heard {
        self.model.push(reply);
        let tool = ToolSpec {
            name: "list".into(),
            description: "Lists.".into(),
            parameters: r#"{"type":"object","properties":{"path":{"type":"string"}}}"#.into(),
        };
        let messages = self.messages.iter().cloned();
        let call = ModelCall { tools: vec![tool].into(), ..call_of(self.wire, messages) };
        let heard = hear(&*self.provider, call.clone()).await;
        let answer = heard.end.as_ref().unwrap_or_else(|error| panic!("{:?}: {error}", self.wire));
        let origin = Origin {
            provider: call.model.provider_name.clone(),
            wire: self.wire.name().into(),
            model: call.model.id.clone(),
        };
        let made = Made { origin, briefing: 0, stop: answer.stop.clone(), bill: Bill::default() };
        let meta = Meta { made: Some(Arc::new(made)), ..Meta::default() };
        let said = Message::of_parts(Role::Assistant, answer.parts.clone(), meta);
        self.messages.push(Arc::new(said));
        for call in &heard.calls {
            let result = Message::tool_result(&call.id, "nothing there", Meta::default());
            self.messages.push(Arc::new(result));
        }
        heard
    }

    /// Each request begins with all of the one before it, to the byte. Gives back their bodies.
    fn check(&self) -> Vec<Value> {
        assert_eq!(self.model.rejections(), Vec::<String>::new(), "{:?}", self.wire);
        let requests = self.model.requests();
        let open = |bytes: &[u8]| bytes.strip_suffix(b"]}").map(<[u8]>::to_vec).unwrap();
        for pair in requests.windows(2) {
            let before = open(&pair[0].bytes);
            assert!(pair[1].bytes.starts_with(&before), "{:?}: {:#}", self.wire, pair[1].body);
        }
        requests.into_iter().map(|request| request.body).collect()
    }
}

/// The vendor's own types take what was sent.
fn check_types(wire: Wire, bodies: &[Value]) {
    let vendor = nexus_testkit::Wire::ALL.into_iter().find(|it| it.name() == wire.name());
    vendors::assert_valid(vendor.unwrap(), bodies, |_| false);
}

#[tokio::test]
async fn a_loop_with_thoughts_is_taken_back_to_the_letter() {
    for wire in WIRES {
        let mut turn = Loop::new(wire).await;
        let arguments = json!({"path": "a \"b\" ü"});
        turn.step(
            Reply::thought("First, a list.")
                .then_text("I look.")
                .then_tool_call("list", arguments.clone())
                .then_tool_call("list", json!({})),
        )
        .await;
        turn.step(Reply::nothing().then_redacted("aGlkZGVu").then_tool_call("list", json!({})))
            .await;
        turn.step(Reply::tool_call("list", arguments.clone())).await;
        turn.step(Reply::thought("Another.").then_tool_call_as("", "list", "{}")).await;
        let heard = turn.step(Reply::thought("Enough.").then_text("Nothing is there.")).await;
        assert_eq!(heard.text(), "Nothing is there.", "{wire:?}");
        turn.messages.push(user("And now?"));
        turn.step(Reply::text("Still nothing.")).await;
        check_types(wire, &turn.check());
    }
}

#[tokio::test]
async fn what_other_servers_do_otherwise_is_taken_back_too() {
    let mut bodies = Vec::new();
    for odd in [Odd::EncryptedAtEnd, Odd::RotatedIds, Odd::OpenThoughts] {
        let mut turn = Loop::new(Wire::Responses).await;
        let step = || Reply::thought("Hm.").then_text("I look.").then_tool_call("list", json!({}));
        turn.step(step().odd(odd)).await;
        turn.step(step().as_document().odd(odd)).await;
        turn.step(Reply::text("Done.")).await;
        let requests = turn.model.requests();
        let last = &requests[2].body["input"];
        assert_eq!(last[1]["type"], "reasoning", "{odd:?}: {last:#}");
        assert_eq!(last[5]["type"], "reasoning", "{odd:?}: {last:#}");
        bodies.extend(turn.check());
    }
    check_types(Wire::Responses, &bodies);
}

/// Another service took over for a step: its thoughts stay with it.
#[tokio::test]
async fn a_conversation_of_another_service_goes_on() {
    for wire in WIRES {
        for other in WIRES.into_iter().filter(|other| *other != wire) {
            let mut first = Loop::new(other).await;
            let step =
                Reply::thought("Secret.").then_text("I look.").then_tool_call("list", json!({}));
            first.step(step).await;
            let mut turn = Loop::new(wire).await;
            turn.messages = first.messages;
            turn.step(Reply::thought("Mine.").then_tool_call("list", json!({}))).await;
            turn.step(Reply::text("Done.")).await;
            let sent = String::from_utf8(turn.model.last_request().bytes.to_vec()).unwrap();
            assert!(!sent.contains("Secret."), "{wire:?} after {other:?}");
            turn.check();
        }
    }
}
