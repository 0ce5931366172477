//! The one line every call leaves. No parameters, no prompt, no secret.

use std::time::{Duration, Instant};

use nexus_core::store::Door;
use nexus_protocol::Id;

/// A call that is over.
pub struct EndedCall<'a> {
    /// As the caller wrote it; empty where the message was no request.
    pub method: &'a str,
    pub id: Option<&'a Id>,
    /// The other protocol that it came by.
    pub door: Option<Door>,
    pub duration: Duration,
    pub ended: Instant,
    /// The code of the error it ended with.
    pub error: Option<i32>,
}

/// Where the lines go. Not through `tracing`: a small call would spend a tenth of its time there.
pub trait CallLog: Send + Sync {
    fn call(&self, call: &EndedCall<'_>);
}

/// No log, for servers inside another program.
impl CallLog for () {
    fn call(&self, _: &EndedCall<'_>) {}
}
