//! How a provider is reached: plainly or not, through proxies, past redirects, and whom it has to be.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use nexus_testkit::{ScriptedModel, tls};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::super::BuildError;
use super::*;

/// Says "Hi" as chat completions do.
const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A server that answers every request alike and keeps the head of each.
struct Server {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
    accepting: JoinHandle<()>,
}

impl Server {
    async fn start(answer: &'static str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (heads, connections) =
            (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<usize>>::default());
        let (kept, counted) = (heads.clone(), connections.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *counted.lock().unwrap() += 1;
                match &tls {
                    None => serve(stream, answer, &kept).await,
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => serve(stream, answer, &kept).await,
                        Err(_) => continue,
                    },
                }
            }
        });
        Self { port, heads, connections, accepting }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &str,
    heads: &Mutex<Vec<String>>,
) {
    let mut request = Vec::new();
    // The body is one that ends with the object it holds.
    while !request.ends_with(b"}") && stream.read_buf(&mut request).await.unwrap() > 0 {}
    let request = String::from_utf8(request).unwrap();
    heads.lock().unwrap().push(request.split("\r\n\r\n").next().unwrap().to_owned());
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// A server whose certificate an authority of these tests has signed.
async fn secure_server() -> Server {
    Server::start(ANSWER, Some(tls::acceptor())).await
}

async fn answer(settings: &ProviderSettings) -> Result<String, String> {
    let heard = hear(&*build(settings).unwrap(), call([user("Hi")])).await;
    heard.end.as_ref().map(|_| heard.text()).map_err(ToString::to_string)
}

fn reached_at(base_url: String) -> ProviderSettings {
    ProviderSettings {
        wire: Wire::usual(Kind::OpenAi, &base_url),
        base_url,
        api_key: Some(KEY.to_owned()),
        max_retries: 1,
        retry_backoff: Duration::from_millis(1),
        ..ProviderSettings::new(Kind::OpenAi)
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_not_taken_and_not_tried_again() {
    let server = secure_server().await;
    let strict = reached_at(format!("https://localhost:{}/v1", server.port));
    let failure = answer(&strict).await.unwrap_err();
    let start = format!(
        "the provider is not available (no trust in the connection to https://localhost:{}: ",
        server.port
    );
    assert!(failure.starts_with(&start), "{failure}");
    assert!(failure.contains("ca_file names further certificates to trust"), "{failure}");
    assert_eq!(*server.connections.lock().unwrap(), 1);

    let trusting = ProviderSettings { ca_file: Some(tls::authority()), ..strict };
    assert_eq!(answer(&trusting).await.as_deref(), Ok("Hi"));
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn a_ca_file_that_cannot_be_used_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("authority.pem");
    let failure = async || {
        let settings = ProviderSettings {
            ca_file: Some(path.clone()),
            ..reached_at("https://localhost:1/v1".to_owned())
        };
        answer(&settings).await.unwrap_err()
    };
    let start =
        format!("the provider is not available (the ca_file {} cannot be used: ", path.display());
    for (contents, why) in [
        (None, "No such file"),
        (Some(String::new()), "it holds no certificate"),
        (Some("x".repeat(4 << 20)), "it holds no certificate"),
        (Some("x".repeat((4 << 20) + 1)), "it is larger than 4194304 bytes"),
    ] {
        if let Some(contents) = contents {
            std::fs::write(&path, contents).unwrap();
        }
        let failure = failure().await;
        assert!(failure.starts_with(&start) && failure.contains(why), "{why}: {failure}");
    }
}

#[tokio::test]
async fn a_redirect_is_an_error_and_the_key_goes_nowhere() {
    let elsewhere = Server::start(ANSWER, None).await;
    let moved: &'static str = Box::leak(
        format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{}/v1\r\nconnection: close\r\n\r\n",
            elsewhere.port
        )
        .into_boxed_str(),
    );
    let server = Server::start(moved, None).await;
    let failure = answer(&reached_at(format!("http://127.0.0.1:{}/v1", server.port))).await;
    assert_eq!(
        failure.unwrap_err(),
        format!(
            "the provider refused the request (307: it redirects to http://127.0.0.1:{}, which is not followed; \
             is the base_url right?)",
            elsewhere.port
        )
    );
    assert_eq!((server.heads().len(), elsewhere.heads().len()), (1, 0));
}

#[tokio::test]
async fn a_proxy_is_taken_for_others_and_never_for_this_machine() {
    let proxy = Server::start(ANSWER, None).await;
    let proxied = ProviderSettings {
        proxy: Some(format!("http://me:word-to-pass@127.0.0.1:{}", proxy.port)),
        insecure_http: true,
        ..reached_at("http://provider.invalid/v1".to_owned())
    };
    assert_eq!(answer(&proxied).await.as_deref(), Ok("Hi"));
    let [head] = &proxy.heads()[..] else { panic!("{:?}", proxy.heads()) };
    assert!(
        head.starts_with("POST http://provider.invalid/v1/chat/completions HTTP/1.1"),
        "{head}"
    );
    assert!(head.to_ascii_lowercase().contains("proxy-authorization: basic "), "{head}");

    let model = ScriptedModel::start().await;
    let local = ProviderSettings { base_url: model.url(), ..proxied };
    assert!(answer(&local).await.is_ok());
    assert_eq!((model.request_count(), proxy.heads().len()), (1, 1));
}

#[test]
fn keys_do_not_travel_where_everybody_can_read_them() {
    let refusal = |settings: &ProviderSettings| build(settings).err();
    let plain = reached_at("http://10.0.0.1/v1".to_owned());
    assert_eq!(refusal(&plain), Some(BuildError::PlainHttp));
    assert!(BuildError::PlainHttp.to_string().contains("set insecure_http to true"));
    let with = |change: fn(&mut ProviderSettings)| {
        let mut settings = plain.clone();
        change(&mut settings);
        refusal(&settings)
    };
    assert_eq!(with(|it| it.insecure_http = true), None);
    assert_eq!(with(|it| it.base_url = "https://10.0.0.1/v1".to_owned()), None);
    for here in ["http://127.0.0.1/v1", "http://localhost:8000/v1", "http://[::1]/v1"] {
        assert_eq!(refusal(&reached_at(here.to_owned())), None, "{here}");
    }
    assert_eq!(with(|it| it.api_key = None), None, "there is nothing to read");
    assert_eq!(with(|it| it.auth_method = super::super::AuthMethod::None), None);
    let header = |name: &str| {
        let extra_headers = vec![(name.to_owned(), "value".to_owned())];
        refusal(&ProviderSettings { api_key: None, extra_headers, ..plain.clone() })
    };
    for name in ["X-Api-Key", "Proxy-Authorization", "x-goog-token", "Cookie", "client-secret"] {
        assert_eq!(header(name), Some(BuildError::PlainHttp), "{name}");
    }
    assert_eq!(header("X-Title"), None);
}

#[test]
fn a_proxy_that_is_none_is_refused() {
    let refusal = |proxy: &str| {
        let proxy = Some(proxy.to_owned());
        build(&ProviderSettings { proxy, ..ProviderSettings::new(Kind::OpenAi) }).err()
    };
    assert_eq!(refusal("http://proxy:3128"), None);
    assert_eq!(refusal("https://me:secret@proxy"), None);
    for odd in ["socks5://proxy", "proxy:3128", "not a url", ""] {
        assert!(matches!(refusal(odd), Some(BuildError::Proxy(_))), "{odd}");
    }
}
