//! Whom a connection speaks for when memories are asked for, beside the one whose rights it has.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use nexus_core::account::{Account, Bounds};
use nexus_core::keys::leads_to;
use nexus_core::memory::Identity;
use nexus_protocol::RpcError;

use crate::context_token::Claims;

/// A socket that was opened for others than the owner, as a host gives them to containers.
#[derive(Clone, Debug)]
pub struct Door {
    pub whom: Whom,
    /// The methods it leads to: names, or beginnings of names with a `*` behind them.
    methods: Vec<String>,
    /// What all who come through it have under way.
    account: Arc<Account>,
}

/// Whom such a socket is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// One identity alone, whoever calls.
    One(Identity),
    /// Whoever brings a token: several share it, and who brings none is nobody.
    Bearers,
}

/// What such a socket leads to unless somebody says otherwise.
pub const DOOR_METHODS: &str = "memory.*";

impl Door {
    pub fn new(whom: Whom, methods: Vec<String>) -> Self {
        Self { whom, methods, account: Arc::new(Account::new(Bounds::default())) }
    }

    pub fn admits(&self, method: &str) -> bool {
        leads_to(&self.methods, method)
    }
}

static NOBODY: Identity = Identity { user: None, chat: None };

/// Kept for as long as the connection.
#[derive(Debug, Default)]
pub struct Behalf {
    door: Option<Arc<Door>>,
    /// The first token that came with a call. Later calls are on the same behalf.
    bound: OnceLock<Claims>,
}

impl Behalf {
    pub fn through(door: Option<Arc<Door>>) -> Self {
        Self { door, bound: OnceLock::new() }
    }

    /// The one identity that its socket is for; where that is for bearers of tokens, whoever the first one named, and
    /// nobody in particular before.
    pub(crate) fn door(&self) -> Option<&Identity> {
        self.door.as_ref().map(|door| match &door.whom {
            Whom::One(identity) => identity,
            Whom::Bearers => self.bound.get().map_or(&NOBODY, |claims| &claims.identity),
        })
    }

    /// What is counted for its socket, if that was opened for others than the owner.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.door.as_ref().map(|door| &door.account)
    }

    /// Which of the sockets for bearers of tokens it came through.
    pub(crate) fn bearers(&self) -> Option<u64> {
        let door = self.door.as_ref().filter(|door| door.whom == Whom::Bearers);
        door.map(|door| door.account.number())
    }

    /// Refuses what the connection's socket does not lead to, whether or not there is such a method.
    pub fn check(&self, method: &str) -> Result<(), RpcError> {
        match &self.door {
            Some(door) if !door.admits(method) => Err(RpcError::closed_here(format!(
                "this socket leads to {} and nothing else (socket-methods)",
                door.methods.join(", ")
            ))),
            _ => Ok(()),
        }
    }

    /// Whom a call speaks for, by its own token, that of its connection or its socket; `None` when none of them says so.
    /// A token never leads past the socket.
    pub fn speaker(
        &self,
        token: Option<Claims>,
        now: Timestamp,
    ) -> Result<Option<Identity>, RpcError> {
        let claims = token.as_ref().or(self.bound.get());
        if claims.is_some_and(|claims| claims.is_expired(now)) {
            return Err(RpcError::identity_failed());
        }
        let claimed = claims.map(|claims| claims.identity.clone());
        let speaker = match (self.door.as_ref().map(|door| &door.whom), claimed) {
            (Some(Whom::One(identity)), Some(claimed)) if !claimed.is_within(identity) => {
                return Err(RpcError::identity_failed());
            }
            (Some(Whom::Bearers), None) => return Err(RpcError::identity_failed()),
            (Some(Whom::One(identity)), None) => Some(identity.clone()),
            (_, claimed) => claimed,
        };
        if let Some(token) = token {
            let _ = self.bound.set(token);
        }
        Ok(speaker)
    }
}
