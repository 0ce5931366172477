//! Whoever reaches the port without a token: silent, slow, wrong, and many.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::rpc::Address;

/// Connections that never say who they are.
const STRANGERS: usize = 1_200;

/// What every tenth of them says.
const WORDS: [&str; 5] = [
    "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n[",
    "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer nxk_wrong\r\nContent-Length: 2\r\n\r\n{}",
    "GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: evil.example\r\nX-Long: ",
    "\u{16}\u{3}\u{1}\u{0}\u{0}",
];

/// Opens connections, and others when those are closed. Returns how many.
pub async fn crowd(address: Address, stop: impl Fn() -> bool) -> u64 {
    let (mut open, mut opened) = (Vec::new(), 0_usize);
    while !stop() {
        if open.len() >= STRANGERS {
            open.drain(..STRANGERS / 2);
        }
        match TcpStream::connect(address.http).await {
            Ok(mut connection) => {
                opened += 1;
                if opened % 10 == 0 {
                    let word = WORDS[opened / 10 % WORDS.len()];
                    // It may have been closed by now.
                    let _ = connection.write_all(word.as_bytes()).await;
                }
                open.push(connection);
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        if opened.is_multiple_of(50) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    opened as u64
}
