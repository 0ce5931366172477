//! A provider that sends what it likes, on any wire, streamed or whole: the call ends, with an error or with one `Done` as
//! its last event, and what was heard can be sent back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use nexus_core::message::{Made, Message, Meta, Origin, Part, Role, SharedMessage};
use nexus_core::model::ModelInfo;
use nexus_core::provider::{Answer, ModelCall, Provider, ProviderEvent};
use nexus_core::usage::Bill;
use nexus_models::{Kind, ProviderSettings, Wire, build};
use nexus_testkit::Reply;
use tokio::time::timeout;

use crate::house::{HOUSE, HUNG};
use crate::must;

pub const STREAMS: &[&[u8]] = &[
    b"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
    b"data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"git\",\"arguments\":\"{\\\"a\"}}]}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\":1}\"}}]}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
    b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n: ping\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"git\",\"input\":{}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":1}\"}}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    b"data: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"status\":\"in_progress\",\"output\":[]}}\n\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[]}}\n\ndata: {\"type\":\"response.reasoning_summary_text.delta\",\"output_index\":0,\"summary_index\":0,\"delta\":\"Hm\"}\n\ndata: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"Hm\"}],\"encrypted_content\":\"e\"}}\n\ndata: {\"type\":\"response.output_item.added\",\"output_index\":1,\"item\":{\"type\":\"message\",\"id\":\"m\",\"content\":[],\"phase\":\"commentary\"}}\n\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":1,\"delta\":\"Hi\"}\n\ndata: {\"type\":\"response.refusal.delta\",\"output_index\":1,\"delta\":\"no\"}\n\ndata: {\"type\":\"response.output_item.added\",\"output_index\":2,\"item\":{\"type\":\"function_call\",\"id\":\"fc\",\"call_id\":\"c\",\"name\":\"git\",\"arguments\":\"\"}}\n\ndata: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":2,\"delta\":\"{\\\"a\\\":1}\"}\n\ndata: {\"type\":\"response.output_item.done\",\"output_index\":3,\"item\":{\"type\":\"brand_new\",\"id\":\"x\",\"n\":[1]}}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[],\"usage\":{\"input_tokens\":3,\"input_tokens_details\":{\"cached_tokens\":1},\"output_tokens\":2}}}\n\n",
    b"{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"output\":[{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"text\":\"Hm\"}]},{\"type\":\"message\",\"phase\":\"final_answer\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hi\"}]},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"git\",\"arguments\":\"{\\\"a\"}],\"usage\":{\"output_tokens\":9}}",
    b"data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"Hm\",\"thought\":true},{\"text\":\"H\"},{\"text\":\"i\",\"thoughtSignature\":\"cw==\"}]},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":3}}\n\ndata: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"git\",\"args\":{\"a\":1},\"id\":\"c\"},\"thoughtSignature\":\"dA==\"},{\"functionCall\":{\"name\":\"git\"}},{\"executableCode\":{\"code\":\"1\"}},{\"text\":\"\",\"thoughtSignature\":\"dQ==\"}]}}]}\n\ndata: {\"candidates\":[{\"finishReason\":\"STOP\",\"finishMessage\":\"done\"}],\"usageMetadata\":{\"candidatesTokenCount\":2,\"thoughtsTokenCount\":1}}\n\ndata: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n",
    b"[{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"git\",\"args\":{\"a\":1},\"id\":\"c\"},\"thoughtSignature\":\"dA==\"},{\"functionCall\":{\"name\":\"git\"}},{\"executableCode\":{\"code\":\"1\"}},{\"text\":\"\",\"thoughtSignature\":\"dQ==\"}]}}]},{\"candidates\":[{\"finishReason\":\"STOP\",\"finishMessage\":\"done\"}],\"usageMetadata\":{\"candidatesTokenCount\":2,\"thoughtsTokenCount\":1}}]",
    b"{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"Hm\"},\"done\":false}\n{\"message\":{\"content\":\"Hi\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"index\":0,\"name\":\"git\",\"arguments\":{\"a\":1}}},{\"function\":{}}]},\"done\":false}\n{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":3,\"eval_count\":2}\n",
];

/// Pieces the answer comes in.
const PIECE_BYTES: usize = 61;

/// Who is asked, and how.
const WIRES: [(Kind, Wire); 5] = [
    (Kind::OpenAi, Wire::Chat),
    (Kind::Anthropic, Wire::Messages),
    (Kind::OpenAi, Wire::Responses),
    (Kind::Gemini, Wire::GenerateContent),
    (Kind::Ollama, Wire::Ollama),
];

pub fn run(bytes: &[u8]) {
    let _alone = HOUSE.alone_with_model();
    let pieces: Vec<Vec<u8>> = bytes.chunks(PIECE_BYTES).map(<[u8]>::to_vec).collect();
    for (kind, wire) in WIRES {
        HOUSE.runtime.block_on(async {
            let settings = ProviderSettings {
                wire,
                base_url: HOUSE.model.url(),
                first_event_timeout: Duration::from_secs(10),
                idle_timeout: Duration::from_secs(10),
                max_retries: 0,
                ..ProviderSettings::new(kind)
            };
            let provider = must(build(&settings));
            for reply in [Reply::raw(pieces.clone()), Reply::raw(pieces.clone()).as_document()] {
                HOUSE.model.push(reply);
                let heard = must(timeout(HUNG, listen(&*provider, wire, [])).await);
                if let Some(answer) = heard {
                    must(timeout(HUNG, send_back(&*provider, wire, answer)).await);
                }
            }
        });
    }
}

/// What was heard goes back to who said it.
async fn send_back(provider: &dyn Provider, wire: Wire, answer: Answer) {
    let origin = Origin { provider: "fuzzed".into(), wire: wire.name().into(), model: "m".into() };
    let made = Made { origin, briefing: 0, stop: answer.stop, bill: Bill::default() };
    let meta = Meta { made: Some(Arc::new(made)), ..Meta::default() };
    let results: Vec<SharedMessage> = answer
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Call(call) => {
                Some(Message::tool_result(&call.id, "done", Meta::default()).into())
            }
            _ => None,
        })
        .collect();
    let said = Message::of_parts(Role::Assistant, answer.parts, meta);
    let asked = Message::new(Role::User, "Hi", Meta::default());
    let heard =
        listen(provider, wire, [asked.into(), said.into()].into_iter().chain(results)).await;
    assert!(heard.is_some(), "it was not taken back");
    assert!(HOUSE.model.last_request().body.is_object(), "what was sent back is no JSON");
}

/// The answer to these messages, if there is one.
async fn listen(
    provider: &dyn Provider,
    wire: Wire,
    messages: impl IntoIterator<Item = SharedMessage>,
) -> Option<Answer> {
    let mut model = ModelInfo::undescribed("fuzzed", wire.name(), "m");
    if wire == Wire::Chat {
        model.extra_body.insert("logprobs".into(), true.into());
    }
    let mut events = provider.stream(ModelCall::of(Arc::new(model), messages)).await.ok()?;
    let mut done = None;
    while let Some(event) = events.next().await {
        assert!(done.is_none(), "something follows the end: {event:?}");
        match event {
            Ok(ProviderEvent::Text(text) | ProviderEvent::Reasoning(text)) => {
                assert!(!text.is_empty());
            }
            Ok(ProviderEvent::Logprobs(entries)) => assert!(!entries.is_empty()),
            Ok(ProviderEvent::Usage(_)) => {}
            Ok(ProviderEvent::Done(answer)) => done = Some(*answer),
            Err(_) => return None,
        }
    }
    assert!(done.is_some(), "a call ended without an end");
    done
}
