//! A receiver of OTLP over HTTP, on a free port of loopback: remembers what it was sent, and answers as it was told.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite,
    AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::tls;

/// What is done with a request.
#[derive(Clone, Debug)]
pub enum Told {
    /// Answered with this status, these headers and this body.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// These bytes are sent, whatever they are.
    Bytes(&'static [u8]),
    /// Never answered.
    Silence,
}

impl Told {
    pub fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new(), Vec::new())
    }

    pub fn retry_after(status: u16, value: &str) -> Self {
        Self::Answer(status, vec![("Retry-After", value.to_owned())], Vec::new())
    }
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// `POST /v1/traces HTTP/1.1`
    pub line: String,
    /// By their names in small letters.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// Stops when it is dropped.
pub struct Receiver {
    address: SocketAddr,
    is_secure: bool,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    plan: Mutex<(VecDeque<Told>, Told)>,
    received: watch::Sender<Vec<Received>>,
}

impl Receiver {
    /// One that takes everything.
    pub async fn start() -> Self {
        Self::start_as(None).await
    }

    /// The same behind the certificate of [`tls`].
    pub async fn start_secure() -> Self {
        Self::start_as(Some(tls::acceptor())).await
    }

    async fn start_as(tls: Option<TlsAcceptor>) -> Self {
        let is_secure = tls.is_some();
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.unwrap_or_else(|error| panic!("no port: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        let plan = Mutex::new((VecDeque::new(), Told::status(200)));
        let shared = Arc::new(Shared { plan, received: watch::Sender::default() });
        let serving = shared.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, serving) = (tls.clone(), serving.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, serving).await,
                        // Who has no trust in the certificate goes away.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, serving).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, is_secure, shared, accepting }
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` is set to.
    pub fn url(&self) -> String {
        match self.is_secure {
            true => format!("https://localhost:{}", self.address.port()),
            false => format!("http://{}", self.address),
        }
    }

    /// What is done with the next request that nothing was said of yet.
    pub fn push(&self, told: Told) {
        self.plan().0.push_back(told);
    }

    /// What is done with all others.
    pub fn set_default(&self, told: Told) {
        self.plan().1 = told;
    }

    pub fn received(&self) -> Vec<Received> {
        self.shared.received.borrow().clone()
    }

    /// All requests, as soon as there are so many.
    pub async fn wait_for(&self, requests: usize) -> Vec<Received> {
        let mut received = self.shared.received.subscribe();
        let enough = received.wait_for(|received| received.len() >= requests).await;
        enough.map(|received| received.clone()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn plan(&self) -> MutexGuard<'_, (VecDeque<Told>, Told)> {
        self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite, shared: Arc<Shared>) {
    let (reading, mut writing) = tokio::io::split(stream);
    let mut reading = BufReader::new(reading);
    while let Some(request) = request(&mut reading).await {
        let told = {
            let mut plan = shared.plan.lock().unwrap_or_else(PoisonError::into_inner);
            plan.0.pop_front().unwrap_or_else(|| plan.1.clone())
        };
        shared.received.send_modify(|received| received.push(request));
        let bytes = match told {
            Told::Answer(status, headers, body) => {
                let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
                let head = format!("HTTP/1.1 {status} X\r\n{}", headers.collect::<String>());
                let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
                [head.into_bytes(), body].concat()
            }
            Told::Bytes(bytes) => bytes.to_vec(),
            Told::Silence => std::future::pending().await,
        };
        if writing.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// The next request of a connection; `None` at its end.
async fn request(reading: &mut (impl AsyncBufRead + Unpin)) -> Option<Received> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reading.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        lines.push(line.to_owned());
    }
    let line = lines.first()?.clone();
    let headers: BTreeMap<String, String> = (lines[1..].iter())
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reading.read_exact(&mut body).await.ok()?;
    Some(Received { line, headers, body })
}
