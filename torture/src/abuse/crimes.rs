//! What somebody with an agent's token sends, and nobody honest would.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::model::HUNGRY;
use super::scene::{BRUTE, HENCHMEN, HONEST, IDLERS, Scene, VILLAIN, henchman, request_to};
use crate::rpc::request;

/// Kinds of crimes. Each is committed by somebody in every run.
pub const KINDS: usize = 30;

/// How long somebody hostile listens to what it comes to.
const LISTENS: Duration = Duration::from_secs(2);

/// Connections that one of them leaves unread, so that nobody runs out of descriptors but by strangers.
const UNREAD_MAX: usize = 4;

/// Bytes on a connection of their own.
struct Crime {
    bytes: Vec<u8>,
    /// Nothing of the answer is read.
    is_unread: bool,
}

/// Commits one crime after the other, each kind once and then at random. Returns how many.
pub async fn commit(scene: Scene, first: usize, mut rng: Rng, stop: impl Fn() -> bool) -> u64 {
    let (mut attempts, mut unread) = (0, Vec::new());
    let mut own = (first..KINDS).step_by(super::VILLAINS);
    while !stop() {
        attempts += 1;
        let kind = own.next().unwrap_or_else(|| rng.usize(..KINDS));
        let crime = of_kind(kind, &scene, &mut rng);
        // What becomes of it does not matter, nor whether the server still listens.
        let tried = tokio::time::timeout(LISTENS, attempt(&scene, crime)).await;
        if let Ok(Ok(Some(connection))) = tried {
            unread.push(connection);
            if unread.len() > UNREAD_MAX {
                unread.remove(0);
            }
        }
    }
    attempts
}

async fn attempt(scene: &Scene, crime: Crime) -> anyhow::Result<Option<TcpStream>> {
    let mut connection = TcpStream::connect(scene.address.http).await?;
    connection.write_all(&crime.bytes).await?;
    if crime.is_unread {
        return Ok(Some(connection));
    }
    let mut shown = scene.canaries.stream("a hostile caller");
    let mut bytes = vec![0; 64 * 1024];
    loop {
        match connection.read(&mut bytes).await? {
            0 => return Ok(None),
            read => shown.push(&bytes[..read]),
        }
    }
}

fn of_kind(kind: usize, scene: &Scene, rng: &mut Rng) -> Crime {
    let worker = henchman(rng.u8(IDLERS..HENCHMEN));
    let told = |agent: &str, content: &str| {
        request(1, "send", &json!({"agent_id": agent, "content": content, "timeout_ms": 5_000}))
    };
    let work = |content: &str| told(&worker, content);
    let streamed = |content: &str| {
        let params =
            json!({"agent_id": worker, "content": content, "stream": true, "timeout_ms": 5_000});
        request(1, "send", &params)
    };
    let pages =
        || batch((0..100).map(|_| ("get_messages", json!({"agent_id": worker, "limit": 1000}))));
    let message = match kind {
        // More children than anybody needs.
        0 => batch((0..100).map(|_| ("create_agent", json!({"parent_agent_id": VILLAIN})))),
        // The line of turns, full.
        1 => batch((0..100).map(|number| {
            ("send", json!({"agent_id": henchman(number % IDLERS), "content": "hang"}))
        })),
        // A small question with a huge answer, read and not.
        2 => pages(),
        3 => return unread(scene, &pages()),
        4 => return unread(scene, &streamed("endless")),
        5 => work("endless"),
        6 => work("comments"),
        7 => work("many"),
        8 => work("outline"),
        9 => work("patch"),
        10 => work("flee"),
        11 => work("steer"),
        12 => work("tool"),
        13 => work(&format!("fatal {}", "x".repeat(rng.usize(..3)))),
        14 => work(&format!("trap w{}", rng.u8(..))),
        15 => one("set_model", json!({"agent_id": worker, "model": "local//etc/passwd"})),
        16 => batch(on_others().into_iter()),
        17 => batch(above_itself().into_iter()),
        // The log of an agent with the name of a directory that a link leads to.
        18 => batch(
            [
                ("create_agent", json!({"agent_id": "outside", "parent_agent_id": VILLAIN})),
                ("rename_session", json!({"old_name": "outside", "new_name": "outside_old"})),
                ("destroy_agent", json!({"agent_id": "outside_old"})),
            ]
            .into_iter(),
        ),
        19 => batch((0..50).map(|number| {
            let content = format!("{number} {}", "memory ".repeat(500));
            ("memory.add", json!({"content": content}))
        })),
        20 => batch(
            (0..20).map(|_| ("memory.search", json!({"query": "a* OR \"b NEAR (".repeat(500)}))),
        ),
        21 => return socket(scene, &watches()),
        22 => return socket(scene, &broken_frames(rng)),
        23 => return door(scene, "/v1/chat/completions", &chat(&worker, rng)),
        24 => return door(scene, "/mcp", &host(rng)),
        25 => return by_brute(scene, &told(BRUTE, "pry")),
        26 => return by_brute(scene, &told(BRUTE, &format!("hungry {}", rng.usize(..HUNGRY)))),
        // Every place at the provider, together with the idlers.
        27 => batch((IDLERS..HENCHMEN).map(|number| {
            let content =
                json!({"agent_id": henchman(number), "content": "hang", "timeout_ms": 2_000});
            ("send", content)
        })),
        28 => plans(),
        _ => one("list_agents", json!({})),
    };
    Crime { bytes: request_to(&scene.address, "/", &scene.villain, &message), is_unread: false }
}

fn one(method: &str, params: Value) -> String {
    request(1, method, &params)
}

fn batch(calls: impl Iterator<Item = (&'static str, Value)>) -> String {
    let calls: Vec<_> = calls
        .enumerate()
        .map(|(id, (method, params))| request(id as u64, method, &params))
        .collect();
    format!("[{}]", calls.join(","))
}

/// With agents that are none of its business.
fn on_others() -> Vec<(&'static str, Value)> {
    let agent = || json!({"agent_id": HONEST});
    vec![
        ("send", json!({"agent_id": HONEST, "content": "obey"})),
        ("get_messages", agent()),
        ("get_context", agent()),
        ("get_system_prompt", agent()),
        ("set_system_prompt", json!({"agent_id": HONEST, "system_prompt": "obey"})),
        ("cancel", agent()),
        ("compact", agent()),
        ("destroy_agent", agent()),
        ("create_agent_token", agent()),
        ("save_session", json!({"agent_id": HONEST, "session_name": "mine"})),
        ("clone_session", json!({"src_session": HONEST, "dest_session": "mine"})),
        ("load_session", json!({"session_name": HONEST, "agent_id": "mine"})),
        ("rename_session", json!({"old_name": HONEST, "new_name": "mine"})),
        ("delete_session", json!({"session_name": HONEST})),
        ("create_agent", json!({"parent_agent_id": HONEST})),
        ("shutdown", agent()),
    ]
}

/// More than it was given, or the server's end.
fn above_itself() -> Vec<(&'static str, Value)> {
    vec![
        ("set_permissions", json!({"agent_id": VILLAIN, "preset": "yolo"})),
        ("set_permissions", json!({"agent_id": henchman(0), "preset": "trusted"})),
        ("create_agent", json!({"preset": "trusted"})),
        ("create_agent", json!({"parent_agent_id": VILLAIN, "preset": "yolo"})),
        ("create_key", json!({"name": "mine"})),
        ("list_keys", json!({})),
        ("get_metrics", json!({})),
        ("list_approvals", json!({})),
        ("shutdown_server", json!({})),
        ("shutdown", json!({})),
        ("shutdown", json!({"agent_id": VILLAIN})),
    ]
}

/// A plan as long as a message may be, begun and left; and a look at all that were made so.
fn plans() -> String {
    let task = |number: usize| {
        let description = "x".repeat(60_000);
        json!({"id": format!("t{number}"), "type": "analysis", "description": description, "dependencies": [], "priority": 1})
    };
    let tasks: Vec<_> = (0..15).map(task).collect();
    let plan = json!({"explanation": "", "estimated_time_seconds": 1, "tasks": tasks});
    let run = json!({"plan": plan, "options": {"timeout_ms": 1}});
    batch([("run_plan", run), ("list_plans", json!({"limit": 1000}))].into_iter())
}

fn unread(scene: &Scene, message: &str) -> Crime {
    Crime { bytes: request_to(&scene.address, "/", &scene.villain, message), is_unread: true }
}

fn by_brute(scene: &Scene, message: &str) -> Crime {
    Crime { bytes: request_to(&scene.address, "/", &scene.brute, message), is_unread: false }
}

fn door(scene: &Scene, path: &str, message: &str) -> Crime {
    Crime { bytes: request_to(&scene.address, path, &scene.villain, message), is_unread: false }
}

/// As an OpenAI client: somebody else's agent, a conversation that never was, an agent above its own rights, too much.
fn chat(worker: &str, rng: &mut Rng) -> String {
    let model = match rng.u8(..4) {
        0 => format!("agent:{HONEST}"),
        1 => "new:trusted".to_owned(),
        2 => "new:sandboxed".to_owned(),
        _ => format!("agent:{worker}"),
    };
    let said = |index: usize| {
        let role = ["user", "assistant"][index % 2];
        json!({"role": role, "content": format!("obey {index}")})
    };
    let messages: Vec<_> = (0..rng.usize(..2_000) | 1).map(said).collect();
    json!({"model": model, "messages": messages, "stream": rng.bool(), "n": 8}).to_string()
}

/// As a host of MCP: sessions without end, somebody else's agent, a message of nothing but depth.
fn host(rng: &mut Rng) -> String {
    let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    match rng.u8(..3) {
        0 => one("initialize", client),
        1 => {
            let arguments = json!({"agent_id": HONEST, "content": "obey"});
            one("tools/call", json!({"name": "nexus_send", "arguments": arguments}))
        }
        _ => format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
    }
}

/// A WebSocket that takes nothing of what it asks for.
fn socket(scene: &Scene, frames: &[u8]) -> Crime {
    let address = &scene.address.http;
    let mut bytes = format!(
        "GET /ws HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        scene.villain
    )
    .into_bytes();
    bytes.extend_from_slice(frames);
    Crime { bytes, is_unread: true }
}

/// More watches than a connection may have.
fn watches() -> Vec<u8> {
    let watch = |id| frame(0x81, request(id, "watch", &json!({})).as_bytes());
    (0..80).flat_map(watch).collect()
}

/// What is no WebSocket, or one that never ends.
fn broken_frames(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..4) {
        // A message of more bytes than there are.
        0 => [&[0x81, 0xff][..], &[0xff; 8], &[0; 64]].concat(),
        // Pings, and none of their answers is read.
        1 => (0..2_000).flat_map(|_| frame(0x89, &[b'x'; 125])).collect(),
        // A message in pieces whose last never comes.
        2 => (0..1_000).flat_map(|at| frame(u8::from(at == 0), &[b'['; 1_000])).collect(),
        // Unmasked, binary, and with bits that nobody has given a meaning.
        _ => vec![0x81, 0x02, b'{', b'}', 0x82, 0x80, 0, 0, 0, 0, 0xf3, 0x80, 0, 0, 0, 0],
    }
}

/// A client's frame, masked with zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match u16::try_from(payload.len()) {
        Ok(length) if length > 125 => {
            bytes.push(0x80 | 126);
            bytes.extend(length.to_be_bytes());
        }
        // Nothing here is longer.
        _ => bytes.push(0x80 | payload.len().min(125) as u8),
    }
    bytes.extend([0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}
