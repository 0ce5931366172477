//! What goes to a server in the end, and why it did not.

use std::error::Error;

use bytes::Bytes;
use nexus_protocol::CallError;
use nexus_signing::SigningKey;

/// The request as it is sent: signed, if there is a key.
pub(crate) fn signed(key: Option<&SigningKey>, request: &Bytes) -> Result<Bytes, CallError> {
    let Some(key) = key else { return Ok(request.clone()) };
    let unsignable = |error: &dyn std::fmt::Display| CallError::Call(error.to_string());
    let request = str::from_utf8(request).map_err(|error| unsignable(&error))?;
    Ok(key.sign(request).map_err(|error| unsignable(&error))?.into())
}

/// The innermost cause, which is the one a person can act on: `Connection refused`, not `client error (Connect)`.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .last()
        .map_or_else(String::new, ToString::to_string)
}
