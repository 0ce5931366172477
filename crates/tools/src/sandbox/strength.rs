//! How well this kernel can hold a command.

use std::fmt;
use std::sync::OnceLock;

use landlock::{ABI, Access as _, AccessFs, LandlockStatus, Ruleset, RulesetAttr as _};

use super::syscalls::{self, Calls};

/// What this kernel was found to enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strength {
    /// The version of Landlock in force.
    pub files: Option<u32>,
    /// Whether it filters system calls.
    pub syscalls: bool,
}

/// Before Linux 6.12 a command could send signals to any process of its user, the server and its own launcher among
/// them. One that can kill what watches over it is not confined.
const LANDLOCK_MIN: u32 = 6;

impl Strength {
    /// Whether files, network and processes outside an agent's permissions are all out of its commands' reach.
    pub fn sufficient(self) -> bool {
        self.files.is_some_and(|version| version >= LANDLOCK_MIN) && self.syscalls
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.files {
            Some(version) => write!(f, "landlock {version}")?,
            None => f.write_str("no landlock")?,
        }
        f.write_str(if self.syscalls { ", seccomp" } else { ", no seccomp" })
    }
}

/// Tries both on a thread of its own, which ends afterwards; what the kernel claims to have may still be switched off.
pub fn strength() -> Strength {
    static FOUND: OnceLock<Strength> = OnceLock::new();
    let none = Strength { files: None, syscalls: false };
    let probe = || std::thread::spawn(probe).join().unwrap_or(none);
    *FOUND.get_or_init(probe)
}

fn probe() -> Strength {
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    let files = status.ok().and_then(|status| match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => Some(effective_abi as u32),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => None,
    });
    let calls = Calls { network: false, metadata: false };
    Strength { files, syscalls: syscalls::refuse(calls).is_ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_of_it_is_sufficient() {
        for (files, syscalls, sufficient) in [
            (Some(6), true, true),
            (Some(7), true, true),
            (Some(5), true, false),
            (Some(7), false, false),
            (None, true, false),
        ] {
            assert_eq!(Strength { files, syscalls }.sufficient(), sufficient, "{files:?}");
        }
    }

    #[test]
    fn probing_takes_no_rights_from_this_process() {
        let found = strength();
        assert!(std::fs::read_dir("/").is_ok());
        assert!(std::net::TcpListener::bind("127.0.0.1:0").is_ok());
        assert_eq!(found, strength());
    }
}
