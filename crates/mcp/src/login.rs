//! A person logs in at a server elsewhere (OAuth): in a browser, beside us. rmcp knows the protocol; here is what of it is a
//! person's, and what is kept.

use std::collections::BTreeSet;
use std::time::Duration;

use nexus_core::mcp::{Auth, Remote, ServerEntry, Way};
use reqwest::Url;
use rmcp::transport::AuthorizationManager;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationMetadata, OAuthClientConfig,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::credentials::Credentials;
use crate::ground::Ground;
use crate::remote::{Address, Http, Unknown};
use crate::transport::Breach;

/// For a person to come back.
const BACK_MAX: Duration = Duration::from_secs(600);

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// For a browser to say what it wants, and how much of that is read.
const REQUEST_MAX: Duration = Duration::from_secs(5);
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// As what we make ourselves known.
const CLIENT_NAME: &str = "nexus3";

/// A login that was begun.
pub struct Login {
    /// Where the person goes.
    pub url: String,
    /// Where the browser brings them back to.
    redirect: String,
    listener: TcpListener,
    manager: AuthorizationManager,
    credentials: Credentials,
}

/// What knows how to be let in at a server, with the login that is kept for it.
pub async fn manager(
    address: &Address,
    remote: &Remote,
    ground: &Ground,
    credentials: &Credentials,
) -> Result<AuthorizationManager, String> {
    let mut manager = new_manager(address, remote).await?;
    let kept = credentials.read().await?;
    if address.has_authorization() || !kept.is_login() {
        return Ok(manager);
    }
    manager.set_credential_store(credentials.clone());
    match manager.initialize_from_store().await {
        Ok(true) => {
            let secret = secret(&remote.auth, ground)?.or(kept.client_secret.clone());
            if let (Some(secret), Some(client)) = (secret, kept.client_id()) {
                let config = OAuthClientConfig::new(client, address.url.as_str());
                let configured = manager.configure_client(config.with_client_secret(secret));
                configured.map_err(|error| error.to_string())?;
            }
        }
        Ok(false) => {}
        // As long as the token holds, nobody has to be asked.
        Err(error) => tracing::warn!(%error, "where a login is renewed cannot be found out"),
    }
    Ok(manager)
}

async fn new_manager(address: &Address, remote: &Remote) -> Result<AuthorizationManager, String> {
    // What stands behind it may be a secret, and is no part of what a login is for.
    let mut resource = address.url.clone();
    resource.set_query(None);
    resource.set_fragment(None);
    let made = match remote.private {
        true => AuthorizationManager::new_allowing_private_addresses(resource).await,
        false => AuthorizationManager::new(resource).await,
    };
    made.map_err(|error| error.to_string())
}

impl Login {
    /// Finds out where a person logs in at the server, and as what we are known there.
    pub async fn begin(entry: &ServerEntry, ground: &Ground) -> Result<Self, String> {
        let Way::Remote(remote) = &entry.way else {
            return Err("it is a program of this machine, where nobody logs in".into());
        };
        let address = Address::new(remote, ground)?;
        if address.has_authorization() {
            return Err("headers.Authorization says who asks: nobody logs in".into());
        }
        let credentials = Credentials::of(entry, &ground.home);
        let kept = credentials.read().await?;
        let http = Http::new(&address, Breach::default(), Unknown::default()).await?;
        let challenge = match kept.challenge.clone() {
            Some(challenge) => challenge,
            None => {
                http.challenge(&address).await?.ok_or("it lets everybody in: nobody logs in")?
            }
        };
        let mut manager = new_manager(&address, remote).await?;
        manager.set_credential_store(credentials.clone());
        let found = manager.resolve_metadata_from_challenge(Some(&challenge)).await;
        let metadata = found.map_err(|error| format!("where one logs in is not known: {error}"))?;
        let metadata = metadata.metadata;
        manager.set_metadata(metadata.clone());

        let mut scopes = remote.auth.scopes.clone();
        if scopes.is_empty() {
            // What was granted before is asked for again: a login takes the place of the last.
            scopes = manager.select_initial_scopes(&[]).await;
            scopes.extend_from_slice(kept.scopes());
        }
        let scopes: BTreeSet<String> = scopes.into_iter().collect();
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();

        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(|error| format!("no port of this machine: {error}"))?;
        let at = listener.local_addr().map_err(|error| error.to_string())?;
        let redirect = format!("http://{at}/callback");
        let client = match &remote.auth.client_id {
            Some(id) if is_taken(id, &metadata) => {
                let client = OAuthClientConfig::new(id, &redirect);
                match secret(&remote.auth, ground)? {
                    Some(secret) => client.with_client_secret(secret),
                    None => client,
                }
            }
            _ => {
                let made = manager.register_client(CLIENT_NAME, &redirect, &scopes).await;
                made.map_err(|error| {
                    format!(
                        "it does not know us, and does not let us make ourselves known \
                             (auth.client_id): {error}"
                    )
                })?
            }
        };
        let secret = client.client_secret.clone();
        let begin = async {
            manager.configure_client(client)?;
            manager.get_authorization_url(&scopes).await
        };
        let url = begin.await.map_err(|error| error.to_string())?;
        credentials.change(|kept| kept.client_secret = secret).await?;
        Ok(Self { url, redirect, listener, manager, credentials })
    }

    /// Waits until the person comes back with a browser of this machine.
    pub async fn wait(self) -> Result<(), String> {
        let back = async {
            loop {
                let Ok((stream, _)) = self.listener.accept().await else {
                    // There may be too many files open, for a moment.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                // Who says nothing of use, or what was not asked for, is not the person.
                if let Some(done) = self.receive(stream).await {
                    return done;
                }
            }
        };
        let waited = tokio::time::timeout(BACK_MAX, back).await;
        let minutes = BACK_MAX.as_secs() / 60;
        waited.unwrap_or_else(|_| Err(format!("nobody came back within {minutes} minutes")))
    }

    /// Takes the address that a browser elsewhere was brought to.
    pub async fn conclude(&self, address: &str) -> Result<(), String> {
        self.take(address.trim())
            .await
            .unwrap_or_else(|| Err("that is not the address that this login leads back to".into()))
    }

    async fn receive(&self, mut stream: TcpStream) -> Option<Result<(), String>> {
        let mut line = String::new();
        let mut request = BufReader::new((&mut stream).take(REQUEST_BYTES_MAX));
        let read = tokio::time::timeout(REQUEST_MAX, request.read_line(&mut line)).await;
        read.ok()?.ok()?;
        let target = line.strip_prefix("GET ")?.split(' ').next()?;
        let origin = self.redirect.strip_suffix("/callback")?;
        let done = match target.starts_with("/callback?") {
            true => self.take(&format!("{origin}{target}")).await,
            false => None,
        };
        let (status, said) = match &done {
            Some(Ok(())) => ("200 OK", "You are logged in. This window can be closed.".to_owned()),
            Some(Err(_)) => ("400 Bad Request", "The login failed: see the terminal.".into()),
            None => ("404 Not Found", "This is not what was waited for.".into()),
        };
        let page = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{said}",
            said.len()
        );
        // The person sees it in the terminal too.
        let _ = tokio::time::timeout(REQUEST_MAX, stream.write_all(page.as_bytes())).await;
        done
    }

    /// What an address says that a person was brought back to; `None` if it is not of this login.
    async fn take(&self, address: &str) -> Option<Result<(), String>> {
        let url = Url::parse(address).ok()?;
        let said = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, it)| it);
        let expected = Url::parse(&self.url).ok()?;
        let state = expected.query_pairs().find(|(key, _)| key == "state").map(|(_, it)| it)?;
        if said("state")? != state {
            return None;
        }
        if let Some(error) = said("error") {
            let more = said("error_description").map(|it| format!(": {it}")).unwrap_or_default();
            return Some(Err(format!("the login was refused ({error}{more})")));
        }
        let exchange = async {
            let AuthorizationCallback { code, csrf_token, issuer, .. } =
                AuthorizationCallback::from_redirect_url(address)?;
            let issuer = issuer.as_deref();
            self.manager.exchange_code_for_token_with_issuer(&code, &csrf_token, issuer).await?;
            Ok::<_, AuthError>(())
        };
        if let Err(error) = exchange.await {
            return Some(Err(error.to_string()));
        }
        Some(self.credentials.change(|kept| kept.challenge = None).await)
    }
}

/// Whether we can be known there by this name: one that is an address only where that is looked up.
fn is_taken(client_id: &str, metadata: &AuthorizationMetadata) -> bool {
    let looked_up = metadata.additional_fields.get("client_id_metadata_document_supported");
    !client_id.starts_with("https://") || looked_up.is_some_and(|it| it.as_bool() == Some(true))
}

fn secret(auth: &Auth, ground: &Ground) -> Result<Option<String>, String> {
    let Some(name) = &auth.client_secret_env else { return Ok(None) };
    let secret = ground.variables.get(name).filter(|secret| !secret.is_empty()).cloned();
    secret.map(Some).ok_or_else(|| format!("auth.client_secret_env: the environment has no {name}"))
}
