//! Logins on disk: what a server elsewhere gave us to be known by. A file for each server in the home, which is closed to
//! agents and servers, and to other users.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use nexus_core::mcp::{LoginState, ServerEntry};
use rmcp::transport::auth::{
    AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials,
};
use serde::{Deserialize, Serialize};

use crate::kept;

/// Of one file. Tokens have some kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The login at one server. All processes of this home have the same.
#[derive(Clone)]
pub struct Credentials {
    file: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    login: Option<StoredCredentials>,
    /// What belongs to the client that the login was made with, where that has one.
    pub client_secret: Option<String>,
    /// What the server said when it wanted more than it was shown.
    pub challenge: Option<String>,
}

impl Kept {
    /// What was granted so far.
    pub fn scopes(&self) -> &[String] {
        self.login.as_ref().map_or(&[], |login| &login.granted_scopes)
    }

    pub fn client_id(&self) -> Option<&str> {
        self.login.as_ref().map(|login| login.client_id.as_str())
    }

    /// What others may know of it.
    pub fn state(&self) -> LoginState {
        let login = self.login.as_ref();
        let Some((login, given)) = login.and_then(|it| Some((it, it.token_response.as_ref()?)))
        else {
            return LoginState::None;
        };
        let expires_at = login.token_received_at.and_then(|at| {
            let given = serde_json::to_value(given).ok()?;
            let end = at.checked_add(given.get("expires_in")?.as_u64()?)?;
            Timestamp::from_second(end.try_into().ok()?).ok()
        });
        LoginState::Kept { expires_at, scopes: login.granted_scopes.clone() }
    }

    pub fn is_login(&self) -> bool {
        self.login.as_ref().is_some_and(|login| login.token_response.is_some())
    }
}

impl Credentials {
    /// By the server's name and its address: another server of the same name is told nothing.
    pub fn of(entry: &ServerEntry, home: &Path) -> Self {
        let name = format!("{}-{}.json", entry.name, entry.digest());
        Self { file: home.join("mcp").join("auth").join(name) }
    }

    pub async fn read(&self) -> Result<Kept, String> {
        let file = self.file.clone();
        away(move || read(&file)).await
    }

    /// Changes what is kept, while no other process of this home does.
    pub async fn change(
        &self,
        edit: impl FnOnce(&mut Kept) + Send + 'static,
    ) -> Result<(), String> {
        let file = self.file.clone();
        let change = move || {
            let _alone = lock(&file)?;
            change(&file, edit)
        };
        away(change).await
    }

    /// Forgets the login; whether there was one.
    pub async fn forget(&self) -> Result<bool, String> {
        let file = self.file.clone();
        let forget = move || {
            let _alone = lock(&file)?;
            match fs::remove_file(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                removed => removed.map(|()| true),
            }
        };
        away(forget).await
    }
}

#[async_trait]
impl CredentialStore for Credentials {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.read().await.map_err(AuthError::CredentialStoreError)?.login)
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        // Whoever renews has the lock already.
        let file = self.file.clone();
        let save = move || change(&file, |kept| kept.login = Some(credentials));
        away(save).await.map_err(AuthError::CredentialStoreError)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let file = self.file.clone();
        let clear = move || change(&file, |kept| kept.login = None);
        away(clear).await.map_err(AuthError::CredentialStoreError)
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let file = self.file.clone();
        let alone = away(move || lock(&file)).await.map_err(AuthError::CredentialStoreError)?;
        Ok(Some(CredentialRefreshGuard::new(alone)))
    }
}

fn read(file: &Path) -> io::Result<Kept> {
    match fs::metadata(file) {
        Ok(found) if found.len() <= FILE_BYTES_MAX => {}
        Ok(_) => return Err(io::ErrorKind::FileTooLarge.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(error) => return Err(error),
    }
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

fn change(file: &Path, edit: impl FnOnce(&mut Kept)) -> io::Result<()> {
    let mut kept = read(file)?;
    edit(&mut kept);
    kept::replace(file, &serde_json::to_vec(&kept)?)
}

/// Held until it is dropped, also by the end of the process.
fn lock(file: &Path) -> io::Result<File> {
    if let Some(dir) = file.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let lock = file.with_extension("lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(lock)?;
    lock.lock()?;
    Ok(lock)
}

/// Does what touches the disk where nobody waits for it.
async fn away<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
    done.map_err(|error| format!("the login cannot be kept in the home: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::server::tests::entry;

    #[tokio::test]
    async fn a_login_is_kept_closed_and_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let credentials = Credentials::of(&entry("s"), home.path());
        assert!(!credentials.read().await.unwrap().is_login());
        assert!(!credentials.forget().await.unwrap());
        credentials.change(|kept| kept.client_secret = Some("x".into())).await.unwrap();
        let login = StoredCredentials::new("me".into(), None, vec!["a".into()], None);
        credentials.save(login).await.unwrap();
        let kept = credentials.read().await.unwrap();
        assert_eq!((kept.client_id(), kept.scopes()), (Some("me"), &["a".to_owned()][..]));
        assert_eq!(
            kept.client_secret.as_deref(),
            Some("x"),
            "one does not take the place of the other"
        );
        let mode = fs::metadata(&credentials.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = Credentials::of(&entry("t"), home.path());
        assert!(other.read().await.unwrap().client_id().is_none());
        assert!(credentials.forget().await.unwrap());
        assert!(credentials.read().await.unwrap().client_id().is_none());
        fs::write(&credentials.file, "{").unwrap();
        assert!(credentials.read().await.is_err());
    }

    #[test]
    fn of_a_login_others_know_its_end_and_what_it_is_for() {
        let kept = |login: serde_json::Value| -> Kept {
            serde_json::from_value(serde_json::json!({"login": login})).unwrap()
        };
        assert_eq!(Kept::default().state(), LoginState::None);
        let begun = serde_json::json!({"client_id": "me", "token_response": null});
        assert_eq!(kept(begun).state(), LoginState::None);
        let mut login = serde_json::json!({"client_id": "me", "granted_scopes": ["a", "b"],
            "token_response": {"access_token": "hush", "token_type": "bearer", "expires_in": 60}});
        let scopes = vec!["a".to_owned(), "b".into()];
        let state = |expires_at| LoginState::Kept { expires_at, scopes: scopes.clone() };
        assert_eq!(kept(login.clone()).state(), state(None), "nobody knows when it was given");
        login["token_received_at"] = 1_000.into();
        let end = Timestamp::from_second(1_060).unwrap();
        assert_eq!(kept(login.clone()).state(), state(Some(end)));
        login["token_received_at"] = u64::MAX.into();
        assert_eq!(kept(login).state(), state(None), "a moment that there is not");
    }

    /// Two who renew at once do so one after the other.
    #[tokio::test]
    async fn renewals_wait_for_each_other() {
        let home = tempfile::tempdir().unwrap();
        let credentials = Credentials::of(&entry("s"), home.path());
        let guard = credentials.acquire_refresh_guard().await.unwrap();
        let other = credentials.clone();
        let waiting = tokio::spawn(async move { other.acquire_refresh_guard().await.map(drop) });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(!waiting.is_finished());
        drop(guard);
        waiting.await.unwrap().unwrap();
    }
}
