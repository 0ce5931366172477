//! Embeddings by the built-in model.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{get, json_of, post, refused};
use crate::harness::Server;

const PATH: &str = "/v1/embeddings";

/// The name of the model that embeds.
async fn model(server: &Server) -> String {
    let listed = json_of(&server.ask(get(server, "/v1/models")).await);
    listed["data"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned()
}

async fn embed(server: &Server, body: &Value) -> Value {
    let response = server.ask(post(server, PATH, body)).await;
    assert_eq!(response.status, 200, "{:?}", String::from_utf8_lossy(&response.body));
    json_of(&response)
}

fn numbers(entry: &Value) -> Vec<f32> {
    match &entry["embedding"] {
        Value::String(text) => {
            let bytes = STANDARD.decode(text).unwrap();
            bytes.chunks(4).map(|it| f32::from_le_bytes(it.try_into().unwrap())).collect()
        }
        list => list.as_array().unwrap().iter().map(|it| it.as_f64().unwrap() as f32).collect(),
    }
}

fn near(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

#[tokio::test]
async fn texts_and_tokens_become_vectors_in_both_forms() {
    let server = Server::start().await;
    let model = model(&server).await;
    let text = "The disk was full.";
    let answer = embed(&server, &json!({"model": model, "input": text})).await;
    assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!(model)));
    assert!(answer["usage"]["total_tokens"].as_u64().unwrap() > 0);
    let plain = numbers(&answer["data"][0]);
    assert_eq!(plain.len(), 384);
    assert!((near(&plain, &plain) - 1.0).abs() < 1e-3);
    let body = json!({"model": model, "input": [text, "x"], "encoding_format": "base64", "dimensions": 384});
    let coded = embed(&server, &body).await;
    assert_eq!(coded["data"][1]["index"], 1);
    assert!(near(&numbers(&coded["data"][0]), &plain) > 0.9999);
    // The same, cut into tokens as LangChain does: cl100k of "The disk was full."
    for input in [json!([791, 13668, 574, 2539, 13]), json!([[791, 13668, 574, 2539, 13]])] {
        let listed = embed(&server, &json!({"model": model, "input": input})).await;
        assert!(near(&numbers(&listed["data"][0]), &plain) > 0.9999);
    }
    // Of a long text all of it counts, and not its beginning alone.
    let long = format!(
        "{}{}",
        "The disk was full. ".repeat(100),
        "My cat sleeps in the sun. ".repeat(100)
    );
    let body = json!({"model": model, "input": [long, "My cat sleeps in the sun."]});
    let both = embed(&server, &body).await;
    let (long, cat) = (numbers(&both["data"][0]), numbers(&both["data"][1]));
    assert!(
        near(&long, &cat) > 0.4 && near(&long, &plain) > 0.4,
        "{} {}",
        near(&long, &cat),
        near(&long, &plain)
    );
}

#[tokio::test]
async fn what_cannot_be_embedded_is_named() {
    let server = Server::start().await;
    let model = model(&server).await;
    let many = |count: usize| json!(vec!["x"; count]);
    for (change, status, param) in [
        (json!({"model": "text-embedding-3-small"}), 404, "model"),
        (json!({"model": null}), 400, "model"),
        (json!({"input": null}), 400, "input"),
        (json!({"input": []}), 400, "input"),
        (json!({"input": " "}), 400, "input"),
        (json!({"input": ["x", ""]}), 400, "input"),
        (json!({"input": {"text": "x"}}), 400, "input"),
        (json!({"input": [4_000_000_000_u32]}), 400, "input"),
        (json!({"input": many(2_049)}), 400, "input"),
        (json!({"input": vec![vec![791]; 2_049]}), 400, "input"),
        (json!({"input": "x".repeat(64 * 1024 + 1)}), 400, "input"),
        (json!({"input": vec!["x ".repeat(32 * 1024); 10]}), 400, "input"),
        (json!({"dimensions": 256}), 400, "dimensions"),
        (json!({"encoding_format": "hex"}), 400, "encoding_format"),
    ] {
        let mut body = json!({"model": model, "input": "x"});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let (got, error) = refused(&server, post(&server, PATH, &body)).await;
        assert_eq!((got, error["param"].as_str()), (status, Some(param)), "{error}");
    }
    // As many and as long as they may be: then it is something else that is wrong.
    let last = |input: Value| json!({"model": model, "input": input});
    let blank = |mut texts: Vec<String>| {
        texts.push(" ".into());
        json!(texts)
    };
    for (input, words) in [
        (blank(vec!["x".into(); 2_047]), "blank"),
        (blank(vec!["x".into(); 2_048]), "2048 texts"),
        (blank(vec!["x".repeat(64 * 1024)]), "blank"),
        (blank(vec!["x".repeat(64 * 1024 + 1)]), "65536 bytes"),
    ] {
        let (_, error) = refused(&server, post(&server, PATH, &last(input))).await;
        assert!(error["message"].as_str().unwrap().contains(words), "{words}: {error}");
    }
}

#[tokio::test]
async fn large_answers_are_packed_for_those_who_take_it() {
    let server = Server::start().await;
    let texts: Vec<_> = (0..8).map(|number| format!("Text number {number}.")).collect();
    let body = json!({"model": model(&server).await, "input": texts});
    let plain = server.ask(post(&server, PATH, &body)).await;
    assert_eq!((plain.status, plain.header("content-encoding")), (200, None));
    let request = post(&server, PATH, &body).header("Accept-Encoding", "gzip, deflate");
    let packed = server.ask(request).await;
    assert_eq!((packed.status, packed.header("content-encoding")), (200, Some("gzip")));
    assert!(packed.body.len() < plain.body.len());
    let unpacked: Value = serde_json::from_reader(GzDecoder::new(&*packed.body)).unwrap();
    assert_eq!(unpacked, json_of(&plain));
    // What is small goes as it is.
    let request = get(&server, "/v1/models").header("Accept-Encoding", "gzip");
    assert_eq!(server.ask(request).await.header("content-encoding"), None);
}
