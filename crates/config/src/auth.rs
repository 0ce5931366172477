//! How requests are signed.

use nexus_core::AgentId;
use nexus_core::keys::{check_methods, check_name};

use super::schema;
use super::value::Table;
use super::{Fault, Hmac, HmacKey, HmacMode, text};

pub(super) fn hmac(written: schema::Hmac) -> Result<Hmac, Fault> {
    let mode = match written.mode.map(|it| it.0) {
        Some("optional") => HmacMode::Optional,
        Some("required") => HmacMode::Required,
        _ => HmacMode::Off,
    };
    let keys = written.keys.into_iter().flat_map(Table::into_entries);
    let keys = keys.map(|(name, it)| key(&name, it.0).map(|key| (name, key)));
    Ok(Hmac {
        mode,
        secret_env: written.secret_env.map(text),
        keys: keys.collect::<Result<_, _>>()?,
    })
}

fn key(name: &str, written: schema::HmacKey) -> Result<HmacKey, Fault> {
    let at = |last: &[&str], reason: String| {
        Fault::new(&[&["auth", "hmac", "keys", name], last].concat(), reason)
    };
    check_name(name).map_err(|error| at(&[], error.to_string()))?;
    let methods: Option<Vec<_>> = written.methods.map(|it| it.into_iter().map(text).collect());
    if let Some(Err(error)) = methods.as_deref().map(check_methods) {
        return Err(at(&["methods"], error.to_string()));
    }
    let agent = written.agent_id.map(|id| AgentId::parse(&id.0)).transpose();
    let agent = agent.map_err(|error| at(&["agent_id"], error.to_string()))?;
    Ok(HmacKey { secret_env: text(written.secret_env), methods, agent })
}
