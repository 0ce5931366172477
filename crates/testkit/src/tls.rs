//! A certificate of `localhost`, and the authority that has signed it, which nobody trusts unless told to.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The certificate of the authority, in PEM.
pub fn authority() -> PathBuf {
    file("authority.pem")
}

/// Shows the certificate to whoever connects.
pub fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(file("server.pem"));
    let certificate = certificate.unwrap_or_else(|error| panic!("no certificate: {error}"));
    let key = PrivateKeyDer::from_pem_file(file("server.key.pem"));
    let key = key.unwrap_or_else(|error| panic!("no key: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key));
    TlsAcceptor::from(Arc::new(config.unwrap_or_else(|error| panic!("no TLS: {error}"))))
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tls")).join(name)
}
