//! Who calls: the server token, the tokens bound to agents, and the file a client finds the server token in.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use nexus_core::{AgentId, Requester};
use nexus_protocol::RpcError;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::rates::Failures;

/// The port whose token lies in `rpc.token`.
pub const DEFAULT_PORT: u16 = 8765;

/// How a server knows its callers.
pub struct Auth {
    /// `None` with `--no-auth`.
    server_token: Option<String>,
    agent_tokens: AgentTokens,
    /// What tells an agent from others that had its name, if it exists.
    born: Born,
    failures: Arc<Failures>,
}

type Born = Box<dyn Fn(AgentId) -> BoxFuture<'static, Option<u64>> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// No token was sent.
    Missing,
    /// A token was sent, and it is not one of ours; or a header that cannot be.
    Wrong,
}

impl Auth {
    pub fn new(
        server_token: Option<String>,
        agent_tokens: AgentTokens,
        born: impl Fn(AgentId) -> BoxFuture<'static, Option<u64>> + Send + Sync + 'static,
    ) -> Self {
        Self { server_token, agent_tokens, born: Box::new(born), failures: Arc::default() }
    }

    /// With those who were not let in counted here.
    pub fn counting(self, failures: Arc<Failures>) -> Self {
        Self { failures, ..self }
    }

    /// What a caller is told that was not let in.
    pub fn refusal(&self) -> RpcError {
        self.failures.refusal(RpcError::authentication_failed())
    }

    /// Who a caller with this `Authorization` header is. `acting_as` (the `X-Nexus-Agent` header) beside the server
    /// token lowers the caller to that agent; it never raises one.
    pub async fn identify(
        &self,
        authorization: Option<&[u8]>,
        acting_as: Option<&[u8]>,
    ) -> Result<Requester, AuthError> {
        let caller = match &self.server_token {
            None => Requester::Administrator,
            Some(server_token) => {
                let token = authorization.ok_or(AuthError::Missing)?;
                let token = bearer(token).ok_or(AuthError::Wrong)?;
                if bool::from(token.ct_eq(server_token.as_bytes())) {
                    Requester::Administrator
                } else {
                    Requester::Agent(
                        self.agent_tokens
                            .verify(token, &self.born)
                            .await
                            .ok_or(AuthError::Wrong)?,
                    )
                }
            }
        };
        let Some(name) = acting_as else { return Ok(caller) };
        let name = str::from_utf8(name)
            .ok()
            .and_then(|name| AgentId::parse(name).ok())
            .ok_or(AuthError::Wrong)?;
        match caller {
            Requester::Administrator if (self.born)(name.clone()).await.is_some() => {
                Ok(Requester::Agent(name))
            }
            Requester::Administrator => Err(AuthError::Wrong),
            // An agent may say who it is, not that it is another.
            Requester::Agent(own) if own == name => Ok(Requester::Agent(own)),
            Requester::Agent(_) => Err(AuthError::Wrong),
        }
    }
}

/// The token of an `Authorization` header. The name of its scheme has no case.
pub(crate) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(b"Bearer".len())?;
    let named = scheme.eq_ignore_ascii_case(b"Bearer") && token.first()?.is_ascii_whitespace();
    named.then(|| token.trim_ascii())
}

/// Makes and checks tokens that can act only as one agent: `nxa_NAME~MAC`. The key lives as long as the server and the
/// MAC covers what tells the agent from others of its name, so a token dies with the server, with its agent and with its
/// agent's name, and nothing is stored.
#[derive(Clone)]
pub struct AgentTokens {
    key: [u8; 64],
}

const AGENT_TOKEN_PREFIX: &str = "nxa_";

impl AgentTokens {
    pub fn new() -> io::Result<Self> {
        Ok(Self { key: random()? })
    }

    pub fn mint(&self, agent: &AgentId, born: u64) -> String {
        let mac = self.mac(agent, born).finalize().into_bytes();
        format!("{AGENT_TOKEN_PREFIX}{agent}~{}", URL_SAFE_NO_PAD.encode(mac))
    }

    async fn verify(&self, token: &[u8], born: &Born) -> Option<AgentId> {
        let token = str::from_utf8(token).ok()?.strip_prefix(AGENT_TOKEN_PREFIX)?;
        let (name, mac) = token.split_once('~')?;
        let agent = AgentId::parse(name).ok()?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
        self.mac(&agent, born(agent.clone()).await?).verify_slice(&mac).ok()?;
        Some(agent)
    }

    fn mac(&self, agent: &AgentId, born: u64) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.key.into());
        mac.update(&born.to_be_bytes());
        mac.update(agent.as_str().as_bytes());
        mac
    }
}

/// A fresh server token: `nxk_` and 32 random bytes.
pub fn generate_token() -> io::Result<String> {
    Ok(format!("nxk_{}", URL_SAFE_NO_PAD.encode(random::<32>()?)))
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// The file a client finds the server token in. Removed when dropped, unless another server has replaced it.
pub struct TokenFile {
    path: PathBuf,
    token: String,
}

impl TokenFile {
    /// Writes `token` for `port`. Called once the port is bound: whoever holds the port owns the file.
    pub fn write(home: &Path, port: u16, token: &str) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
        let name =
            if port == DEFAULT_PORT { "rpc.token".into() } else { format!("rpc-{port}.token") };
        let path = home.join(name);
        let draft = home.join(format!(".token-{port}-{}", std::process::id()));
        let _ = fs::remove_file(&draft);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let written = file.write_all(token.as_bytes()).and_then(|()| fs::rename(&draft, &path));
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written.map(|()| Self { path, token: token.into() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|token| token == self.token) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use futures_util::FutureExt as _;

    use super::*;

    fn id(name: &str) -> AgentId {
        AgentId::parse(name).unwrap()
    }

    #[test]
    fn callers_are_who_their_token_says() {
        let tokens = AgentTokens::new().unwrap();
        let (born, reborn) = (7, 8);
        let living = move |id: AgentId| -> BoxFuture<'static, Option<u64>> {
            Box::pin(async move { (id.as_str() == "w").then_some(born) })
        };
        let auth = Auth::new(Some("nxk_secret".into()), tokens.clone(), living);
        let bearer = |token: &str| format!("Bearer {token}").into_bytes();
        let identify = |header: Option<&[u8]>, acting_as: Option<&str>| {
            auth.identify(header, acting_as.map(str::as_bytes)).now_or_never().unwrap()
        };
        let agent = |name| Ok(Requester::Agent(id(name)));

        assert_eq!(identify(None, None), Err(AuthError::Missing));
        assert_eq!(identify(None, Some("w")), Err(AuthError::Missing));
        assert_eq!(identify(Some(&bearer("nxk_secret")), None), Ok(Requester::Administrator));
        assert_eq!(identify(Some(&bearer("nxk_secret")), Some("w")), agent("w"));
        assert_eq!(identify(Some(&bearer("nxk_secret")), Some("nobody")), Err(AuthError::Wrong));
        assert_eq!(
            identify(Some(&bearer("nxk_secret")), Some("not a name")),
            Err(AuthError::Wrong)
        );
        for wrong in ["", "nxk_secreT", "nxk_secret1", "nxa_w~", "nxa_w~AAAA", "nxk_secr\u{e9}t"] {
            assert_eq!(identify(Some(&bearer(wrong)), None), Err(AuthError::Wrong), "{wrong}");
        }
        for scheme in ["Bearer", "bearer", "BEARER", "Bearer  ", "bearer\t"] {
            let header = format!("{scheme} nxk_secret ").into_bytes();
            assert_eq!(identify(Some(&header), None), Ok(Requester::Administrator), "{scheme}");
        }
        for header in ["Basic nxk_secret", "Bearernxk_secret", "Bearer", "", "nxk_secret"] {
            assert_eq!(identify(Some(header.as_bytes()), None), Err(AuthError::Wrong), "{header}");
        }
        assert_eq!(identify(Some(b"Bearer \xff\xfe"), None), Err(AuthError::Wrong));

        let own = bearer(&tokens.mint(&id("w"), born));
        assert_eq!(identify(Some(&own), None), agent("w"));
        assert_eq!(identify(Some(&own), Some("w")), agent("w"));
        assert_eq!(identify(Some(&own), Some("other")), Err(AuthError::Wrong));
        let forged = String::from_utf8(own).unwrap().replace("nxa_w", "nxa_v");
        assert_eq!(identify(Some(forged.as_bytes()), None), Err(AuthError::Wrong));
        let elsewhere = bearer(&AgentTokens::new().unwrap().mint(&id("w"), born));
        assert_eq!(identify(Some(&elsewhere), None), Err(AuthError::Wrong));
        for ended in [tokens.mint(&id("w"), reborn), tokens.mint(&id("gone"), born)] {
            assert_eq!(identify(Some(&bearer(&ended)), None), Err(AuthError::Wrong));
        }
    }

    #[test]
    fn the_token_file_is_private_and_goes_with_its_server() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let default = TokenFile::write(&home, DEFAULT_PORT, "a").unwrap();
        let other = TokenFile::write(&home, 9000, "b").unwrap();
        assert_eq!(default.path(), home.join("rpc.token"));
        assert_eq!(other.path(), home.join("rpc-9000.token"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&home), mode(default.path())), (0o700, 0o600));

        let replaced = TokenFile::write(&home, 9000, "c").unwrap();
        drop(other);
        assert!(replaced.path().exists());
        drop(replaced);
        drop(default);
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
    }
}
