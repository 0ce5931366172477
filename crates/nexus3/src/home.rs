//! The directory of the program's own files. Whoever can write there is the administrator of its agents.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nexus_client::{HomeServer, PORT_DEFAULT, Way, find_home_server};
use nexus_config::Config;

use crate::serve;

/// Where the program keeps its own files. One that belongs to another user is refused: he could put his own database,
/// token and configuration in place of ours. The superuser can do that anywhere.
pub fn home() -> anyhow::Result<PathBuf> {
    let home = named()?;
    let owner = match home.metadata() {
        Ok(found) => found.uid(),
        // It is made when there is something to put into it; and what else is wrong, whoever opens it says.
        Err(_) => return Ok(home),
    };
    let us = rustix::process::geteuid().as_raw();
    if !may_own(owner, us) {
        bail!(
            "{} belongs to another user ({owner}, and this is {us}), who could replace everything in it; \
             name a directory of your own with NEXUS3_HOME",
            home.display()
        );
    }
    Ok(home)
}

/// The way to the server of this home, if one runs.
pub async fn home_server(home: &Path, config: &Config) -> Option<Way> {
    find_server(home, config).await.map(|HomeServer { way, .. }| way)
}

/// The same with what it says of itself.
pub async fn find_server(home: &Path, config: &Config) -> Option<HomeServer> {
    let sockets = serve::socket_candidates(config, None);
    let ports = [config.server.port, PORT_DEFAULT];
    find_home_server(home, &sockets, &ports).await
}

/// What a person should know of the home: that others can change what is in it.
pub fn warning(home: &Path) -> Option<String> {
    let mode = home.metadata().ok()?.mode() & 0o777;
    let home = home.display();
    is_shared(mode).then(|| {
        format!(
            "others may write to {home} (mode {mode:04o}), and who can is the administrator of your agents; \
             make it private with: chmod 700 {home}"
        )
    })
}

fn named() -> anyhow::Result<PathBuf> {
    if let Some(home) = std::env::var_os("NEXUS3_HOME").filter(|home| !home.is_empty()) {
        return std::path::absolute(home).context("NEXUS3_HOME");
    }
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    Ok(home.context("there is no home directory: set HOME or NEXUS3_HOME")?.join(".nexus3"))
}

fn may_own(owner: u32, us: u32) -> bool {
    owner == us || owner == 0
}

fn is_shared(mode: u32) -> bool {
    mode & 0o022 != 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_home_is_ours_or_the_superusers() {
        for (owner, us, expected) in
            [(1000, 1000, true), (0, 1000, true), (1001, 1000, false), (1000, 0, false)]
        {
            assert_eq!(may_own(owner, us), expected, "{owner} {us}");
        }
    }

    #[test]
    fn a_home_that_others_may_write_is_warned_of() {
        let home = tempfile::tempdir().unwrap();
        for (mode, expected) in [(0o700, false), (0o755, false), (0o770, true), (0o702, true)] {
            fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(warning(home.path()).is_some(), expected, "{mode:o}");
        }
        assert_eq!(warning(&home.path().join("missing")), None);
    }
}
