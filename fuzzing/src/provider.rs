//! A provider that sends what it likes: the call ends, with an error or with one `Done` as its last event.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use nexus_core::provider::{ModelCall, Provider, ProviderEvent};
use nexus_models::{Kind, ProviderSettings, build};
use nexus_testkit::Reply;
use tokio::time::timeout;

use crate::house::{HOUSE, HUNG};
use crate::must;

pub const STREAMS: &[&[u8]] = &[
    b"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
    b"data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"git\",\"arguments\":\"{\\\"a\"}}]}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\":1}\"}}]}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
    b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n: ping\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"git\",\"input\":{}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":1}\"}}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
];

/// Pieces the answer comes in.
const PIECE_BYTES: usize = 61;

pub fn run(bytes: &[u8]) {
    let _alone = HOUSE.alone_with_model();
    for kind in [Kind::OpenAi, Kind::Anthropic] {
        HOUSE.runtime.block_on(async {
            let settings = ProviderSettings {
                base_url: HOUSE.model.url(),
                request_timeout: Duration::from_secs(10),
                max_retries: 0,
                ..ProviderSettings::new(kind)
            };
            let provider = must(build(&settings));
            let pieces: Vec<Vec<u8>> = bytes.chunks(PIECE_BYTES).map(<[u8]>::to_vec).collect();
            HOUSE.model.push(Reply::raw(pieces));
            must(timeout(HUNG, drain(provider)).await);
        });
    }
}

async fn drain(provider: Arc<dyn Provider>) {
    let call = ModelCall {
        model_id: "m".into(),
        reasoning: false,
        system: "".into(),
        tools: Arc::default(),
        messages: Default::default(),
        volatile: None,
        max_tokens: None,
        schema: None,
    };
    let Ok(mut events) = provider.stream(call).await else { return };
    let mut done = false;
    while let Some(event) = events.next().await {
        assert!(!done, "something follows the end: {event:?}");
        match event {
            Ok(ProviderEvent::Text(text)) => assert!(!text.is_empty()),
            Ok(ProviderEvent::ToolCall(_)) => {}
            Ok(ProviderEvent::Done(_)) => done = true,
            Err(_) => return,
        }
    }
    assert!(done, "a call ended without an end");
}
