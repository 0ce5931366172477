//! Services that never stop: each bound, just under it and just over it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use nexus_testkit::{Reply, ScriptedModel};

use super::*;
use crate::Bounds;

/// What comes of `reply` within `bounds`: the text, or the failure.
async fn said(kind: Kind, bounds: Bounds, reply: Reply) -> Result<String, String> {
    let model = ScriptedModel::start().await;
    model.push(reply);
    let settings = ProviderSettings { bounds, ..settings(kind, &model) };
    let heard = hear(&*build(&settings).unwrap(), call([user("Hi")])).await;
    assert_eq!(model.request_count(), 1, "{kind:?}: what is too much is not asked for again");
    heard.end.as_ref().map(|_| heard.text()).map_err(ToString::to_string)
}

#[tokio::test]
async fn text_and_calls_of_an_answer_are_counted_together() {
    let bounds = Bounds { answer_bytes_max: 100, ..Bounds::default() };
    for kind in FORMATS {
        // The id, the name and the arguments of the call are nine bytes.
        let of = |bytes: usize| {
            Reply::chunks(["x".repeat(50), "x".repeat(bytes - 50)])
                .then_tool_call_as("c", "tool", "null")
        };
        assert_eq!(said(kind, bounds, of(91)).await.unwrap().len(), 91);
        let failure = said(kind, bounds, of(92)).await.unwrap_err();
        assert_eq!(
            failure, "the provider broke off (the answer is larger than 100 bytes)",
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn tool_calls_are_counted() {
    let bounds = Bounds { calls_max: 3, ..Bounds::default() };
    for kind in FORMATS {
        let of = |calls: usize| {
            let reply = Reply::text("So be it.");
            (0..calls).fold(reply, |reply, at| reply.then_tool_call_as(at.to_string(), "f", "{}"))
        };
        assert_eq!(said(kind, bounds, of(3)).await.unwrap(), "So be it.");
        let failure = said(kind, bounds, of(4)).await.unwrap_err();
        assert_eq!(
            failure, "the provider broke off (the answer has more than 3 tool calls)",
            "{kind:?}"
        );
    }
}

/// The shortest whole answer of a format.
fn whole(kind: Kind) -> &'static str {
    match kind {
        Kind::Anthropic => "data: {\"type\":\"message_stop\"}\n\n",
        _ => "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    }
}

#[tokio::test]
async fn what_says_nothing_has_its_bound_too() {
    let bounds = Bounds { body_bytes_max: 2000, ..Bounds::default() };
    for kind in FORMATS {
        let ping = match kind {
            Kind::Anthropic => "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            _ => "data: {\"choices\":[]}\n\n",
        };
        for idle in [": nothing yet\n", "\n", "event: x\n\n", "id: 7\n", ping] {
            let of = |bytes: usize| {
                let end = whole(kind);
                let mut body = idle.repeat((bytes - end.len()) / idle.len());
                while body.len() + end.len() < bytes {
                    body.insert(0, '\n');
                }
                Reply::raw([body, end.to_owned()])
            };
            assert_eq!(said(kind, bounds, of(2000)).await.unwrap(), "", "{kind:?} {idle:?}");
            let failure = said(kind, bounds, of(2001)).await.unwrap_err();
            assert_eq!(
                failure,
                "the provider broke off (all that was sent for it is larger than 2000 bytes)",
                "{kind:?} {idle:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_event_has_its_bound() {
    let bounds = Bounds { event_bytes_max: 500, ..Bounds::default() };
    for kind in FORMATS {
        let of = |bytes: usize| {
            let event = format!("{{\"type\":\"ping\",\"choices\":[],\"pad\":\"{}\"}}", "x");
            let pad = "x".repeat(bytes - event.len() + 1);
            let event = event.replace("\"x\"", &format!("\"{pad}\""));
            Reply::raw([format!("data: {event}\n\n"), whole(kind).to_owned()])
        };
        assert_eq!(said(kind, bounds, of(500)).await.unwrap(), "");
        let failure = said(kind, bounds, of(501)).await.unwrap_err();
        assert_eq!(failure, "the provider broke off (an event is larger than 500 bytes)");
        // One line that never ends, of whatever it is.
        for line in ["data: ", ": ", "{\"choices\":"] {
            let endless = Reply::raw([format!("{line}{}", "x".repeat(600))]);
            let failure = said(kind, bounds, endless).await.unwrap_err();
            assert_eq!(failure, "the provider broke off (an event is larger than 500 bytes)");
        }
    }
}

/// A document instead of a stream, and the page of an error: their start is read, whatever their length.
#[tokio::test]
async fn of_a_page_only_the_start_is_read() {
    for kind in FORMATS {
        for (status, expected) in [(400, "refused the request"), (500, "not available")] {
            let model = ScriptedModel::start().await;
            let page =
                || Reply::status(status).body(format!("{{\"error\":{}", "[".repeat(8 << 20)));
            model.push(page());
            model.push(page());
            let failure = ask(kind, &model).await.failure();
            assert!(failure.contains(expected), "{failure}");
        }
    }
}

/// hyper stops reading a head after 100 headers or some 400 KiB.
#[tokio::test]
async fn headers_have_their_bound() {
    for (headers, expected) in [
        ("x: y\r\n".repeat(90), Ok(())),
        ("x: y\r\n".repeat(200), Err("the provider is not available")),
        (format!("x: {}\r\n", "y".repeat(300 << 10)), Ok(())),
        (format!("x: {}\r\n", "y".repeat(1 << 20)), Err("the provider is not available")),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let end = whole(Kind::OpenAi);
        let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{headers}\r\n{end}");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 8192];
            while !stream.read(&mut request).map(|bytes| request[..bytes].ends_with(b"}")).unwrap()
            {
            }
            // Whoever has enough hangs up.
            let _ = stream.write_all(answer.as_bytes());
        });
        let model = ScriptedModel::start().await;
        let settings =
            ProviderSettings { base_url, max_retries: 0, ..settings(Kind::OpenAi, &model) };
        let heard = hear(&*build(&settings).unwrap(), call([user("Hi")])).await;
        server.join().unwrap();
        match (heard.end, expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(start)) if error.to_string().starts_with(start) => {}
            (end, expected) => panic!("{end:?} instead of {expected:?}"),
        }
    }
}

/// The amount is what a service sends in a second; nothing of it may stay.
#[tokio::test]
async fn the_bounds_that_hold_by_default() {
    let Bounds { answer_bytes_max, event_bytes_max, body_bytes_max, calls_max } = Bounds::default();
    assert_eq!((answer_bytes_max, event_bytes_max), (4 << 20, 4 << 20));
    assert_eq!((body_bytes_max, calls_max), (256 << 20, 256));
    for kind in FORMATS {
        let endless = Reply::chunks(vec!["x".repeat(1 << 20); 6]);
        let failure = said(kind, Bounds::default(), endless).await.unwrap_err();
        assert_eq!(failure, "the provider broke off (the answer is larger than 4194304 bytes)");
    }
}
