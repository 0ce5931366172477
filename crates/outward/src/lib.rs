//! HTTP to services of others. Models, receivers of traces and MCP servers are asked with clients that are made in one way.

use std::error::Error;
use std::net::IpAddr;

use reqwest::{Client, ClientBuilder, Url, redirect, tls};

/// A client for the service at `url`, with what `own` adds to it, which may touch the disk.
pub async fn client(
    url: &Url,
    own: impl FnOnce(ClientBuilder) -> Result<ClientBuilder, String> + Send + 'static,
) -> Result<Client, String> {
    // Fails when one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("nexus3/", env!("CARGO_PKG_VERSION")))
        .tls_version_min(tls::Version::TLS_1_2)
        // A redirect would carry keys to wherever it points.
        .redirect(redirect::Policy::none());
    // No proxy stands between this machine and itself.
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    let build = |builder: ClientBuilder| {
        builder.build().map_err(|error| format!("no HTTP client: {}", cause(&error)))
    };
    if url.scheme() == "http" {
        // Without this the certificates of the system are read though none is ever looked at.
        return build(own(builder)?.tls_certs_only([]));
    }
    // Reading the certificates takes milliseconds of file work.
    let built = tokio::task::spawn_blocking(move || build(own(builder)?));
    built.await.map_err(|error| error.to_string())?
}

/// Whether a service is on this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = host(url);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The name or address of a service, as it is looked up.
pub fn host(url: &Url) -> &str {
    // An IPv6 address stands in brackets.
    url.host_str().unwrap_or_default().trim_matches(['[', ']'])
}

/// The innermost reason, which is the one that tells something ("Connection refused"); the outer ones repeat the URL.
pub fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match cause.downcast_ref::<reqwest::Error>() {
        // It has no inner error, so its own text must do, which without the URL it cannot be borrowed for.
        Some(outermost) if outermost.url().is_some() => "the request could not be sent".to_owned(),
        _ => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_recognised() {
        for (url, expected) in [
            ("http://127.0.0.1:1/v1", true),
            ("http://localhost/v1", true),
            ("http://[::1]:1/v1", true),
            ("http://10.0.0.1/v1", false),
            ("https://example.com/v1", false),
            ("https://localhost.example.com/v1", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
