//! A caller over HTTP or the socket that hangs up: in the middle of its call, while it runs, or in the middle of the
//! answer.

use std::time::Duration;

use fastrand::Rng;
use nexus_protocol::Method as _;
use nexus_protocol::turn::{ResumeTurn, Send};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::ended::fresh_id;
use crate::rpc::{Address, Answer, frame, request};

/// The longest a caller waits before it hangs up: some calls are over by then.
const DELAY_MICROS_MAX: u64 = 5_000;

/// A call that has not ended after so long is left alone until its server is killed: some never begin, because their
/// connection was gone first. Longer than any call of a healthy server takes; only time is lost by it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of the answer that are read at most. The shortest answers are hardly longer.
const ANSWER_BYTES_MAX: usize = 60;

pub async fn call(
    address: &Address,
    method: &str,
    params: &Value,
    rng: &mut Rng,
) -> anyhow::Result<Answer> {
    let id = fresh_id();
    let mut params = params.clone();
    // Only a caller that streams takes its turn along when it goes.
    if [Send::NAME, ResumeTurn::NAME].contains(&method) {
        params["stream"] = rng.bool().into();
    }
    let message = request(id, method, &params);
    let sent = match rng.bool() {
        true => {
            let socket = UnixStream::connect(&address.socket).await?;
            hang_up(socket, &frame(&message)?, rng).await?
        }
        false => {
            let socket = TcpStream::connect(address.http).await?;
            hang_up(socket, &post(address, &message), rng).await?
        }
    };
    Ok(match sent {
        false => Answer::Unsent,
        true if address.ended.wait(&id.to_string(), PATIENCE).await => Answer::Dropped,
        true => Answer::Gone,
    })
}

/// Sends a call, and lets the connection go at some moment. False when that was before the call was whole.
async fn hang_up(
    mut connection: impl AsyncRead + AsyncWrite + Unpin,
    call: &[u8],
    rng: &mut Rng,
) -> anyhow::Result<bool> {
    let moment = rng.u8(..4);
    if moment == 0 {
        connection.write_all(&call[..rng.usize(..call.len())]).await?;
        return Ok(false);
    }
    connection.write_all(call).await?;
    match moment {
        1 => {
            let mut part = vec![0; rng.usize(1..ANSWER_BYTES_MAX)];
            connection.read_exact(&mut part).await?;
        }
        _ => tokio::time::sleep(Duration::from_micros(rng.u64(..DELAY_MICROS_MAX))).await,
    }
    Ok(true)
}

fn post(address: &Address, message: &str) -> Vec<u8> {
    let Address { http, token, .. } = address;
    let length = message.len();
    format!(
        "POST / HTTP/1.1\r\nHost: {http}\r\nAuthorization: Bearer {token}\r\n\
         Accept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{message}"
    )
    .into_bytes()
}
