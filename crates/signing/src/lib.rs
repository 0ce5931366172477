//! Signed requests: what of a request is signed, and with what. The server and every client in Rust use it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use sha2::Sha256;
use thiserror::Error;

/// Stands before what is signed, so that a signature of ours is one of nothing else.
const DOMAIN: &[u8] = b"jsonrpc-hmac-v1\n";

/// Seconds by which a signed request may be older or younger than the server's clock.
pub const WINDOW_SECONDS: u64 = 300;

/// Of a key's id.
const ID_BYTES_MAX: usize = 255;

/// Holds the key that a client signs with, where it is not given one: `ID:SECRET`.
const KEY_VARIABLE: &str = "NEXUS3_SIGNING_KEY";

/// Shorter secrets could be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

/// The member `auth` of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// When it was signed, in seconds since 1970.
    pub timestamp: u64,
    /// Standard base64 of the HMAC-SHA256.
    pub signature: String,
    /// Which key; the server's own where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// Anything that was not sent before: the same request within a second would have the same signature without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}

/// Why a request has no form that could be signed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsignable {
    #[error("{0}")]
    Json(String),
    /// Two numbers that are the same to RFC 8785 could be exchanged without breaking the signature.
    #[error("{0} cannot be signed: no double is this integer and no other")]
    Number(String),
    #[error("this machine gave no random bytes")]
    Random,
}

/// The bytes of which a signature is made: the request in the form of RFC 8785, without `auth.signature`.
pub fn signed_bytes(request: &str) -> Result<Vec<u8>, Unsignable> {
    if let Some(number) = ambiguous_integer(request) {
        return Err(Unsignable::Number(number.into()));
    }
    let Unique(mut value) =
        serde_json::from_str(request).map_err(|error| Unsignable::Json(error.to_string()))?;
    if let Some(Value::Object(auth)) = value.get_mut("auth") {
        auth.shift_remove("signature");
    }
    canonical(&value)
}

fn canonical(value: &Value) -> Result<Vec<u8>, Unsignable> {
    let mut bytes = DOMAIN.to_vec();
    serde_json_canonicalizer::to_writer(value, &mut bytes)
        .map_err(|error| Unsignable::Json(error.to_string()))?;
    Ok(bytes)
}

/// The first integer outside of strings that its double does not stand for alone.
fn ambiguous_integer(text: &str) -> Option<&str> {
    /// Every integer of so many digits is a double, and its own shortest form.
    const DIGITS_SAFE: usize = 15;
    let bytes = text.as_bytes();
    let (mut at, mut in_string) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'-' | b'0'..=b'9' if !in_string => {
                let rest = &text[at..];
                let of_number = |it: char| it.is_ascii_digit() || "+-.eE".contains(it);
                let number = &rest[..rest.find(|it| !of_number(it)).unwrap_or(rest.len())];
                let is_integer = !number.contains(['.', 'e', 'E']);
                if is_integer && number.len() > DIGITS_SAFE && !stands_alone(number) {
                    return Some(number);
                }
                at += number.len() - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn stands_alone(integer: &str) -> bool {
    let Ok(double) = integer.parse::<f64>() else { return false };
    serde_json_canonicalizer::to_string(&double).is_ok_and(|form| form == integer)
}

/// JSON in which no object has two members of one name: to one reader the first would count, to another the last.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UniqueVisitor;
        impl<'de> Visitor<'de> for UniqueVisitor {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
                Ok(Value::Bool(it))
            }

            fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
                Ok(Value::Number(it.into()))
            }

            fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
                Ok(Value::Number(it.into()))
            }

            fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
                Ok(Number::from_f64(it).map_or(Value::Null, Value::Number))
            }

            fn visit_str<E>(self, it: &str) -> Result<Value, E> {
                Ok(Value::String(it.into()))
            }

            fn visit_string<E>(self, it: String) -> Result<Value, E> {
                Ok(Value::String(it))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut array = Vec::new();
                while let Some(Unique(item)) = items.next_element()? {
                    array.push(item);
                }
                Ok(Value::Array(array))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
                let mut object = Map::new();
                while let Some((name, Unique(value))) = members.next_entry::<String, _>()? {
                    if object.contains_key(&name) {
                        return Err(A::Error::custom(format_args!("duplicate member: {name}")));
                    }
                    object.insert(name, value);
                }
                Ok(Value::Object(object))
            }
        }
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

/// What signatures are made and checked with.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// The bytes of the text are the key.
    pub fn new(secret: &str) -> Self {
        // A key of any length is one to HMAC.
        Self(Hmac::new_from_slice(secret.as_bytes()).unwrap_or_else(|_| unreachable!()))
    }

    pub fn sign(&self, signed: &[u8]) -> String {
        STANDARD.encode(self.mac(signed).finalize().into_bytes())
    }

    /// The signature's own bytes, if it is that of what was signed. Takes as long for any that is not.
    pub fn verify(&self, signed: &[u8], signature: &str) -> Option<[u8; 32]> {
        let signature: [u8; 32] = STANDARD.decode(signature).ok()?.try_into().ok()?;
        self.mac(signed).verify_slice(&signature).ok()?;
        Some(signature)
    }

    fn mac(&self, signed: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(signed);
        mac
    }
}

/// What a client signs its requests with.
#[derive(Clone)]
pub struct SigningKey {
    /// `None` for the server's own secret.
    id: Option<String>,
    secret: Secret,
}

/// Does not repeat what was given: it holds a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a signing key must be ID:SECRET, or :SECRET for the server's own")]
pub struct NoSigningKey;

impl SigningKey {
    /// The key in the environment of this process, if there is one.
    pub fn of_process() -> Option<Result<Self, NoSigningKey>> {
        let key = std::env::var(KEY_VARIABLE).ok().filter(|key| !key.trim().is_empty())?;
        Some(Self::parse(&key))
    }

    /// The key that is written `ID:SECRET`.
    pub fn parse(text: &str) -> Result<Self, NoSigningKey> {
        let (id, secret) = text.trim().split_once(':').ok_or(NoSigningKey)?;
        if secret.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(NoSigningKey);
        }
        let id = Some(id.to_owned()).filter(|id| !id.is_empty());
        Ok(Self { id, secret: Secret::new(secret) })
    }

    /// The same request, which must have no `auth` yet, signed now. For each time it is sent: a server takes a signature
    /// once.
    pub fn sign(&self, request: &str) -> Result<String, Unsignable> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|_| Unsignable::Random)?;
        self.sign_at(request, now.as_secs(), URL_SAFE_NO_PAD.encode(nonce))
    }

    fn sign_at(&self, request: &str, timestamp: u64, nonce: String) -> Result<String, Unsignable> {
        let (key_id, signature) = (self.id.clone(), String::new());
        let mut auth = Auth { timestamp, signature, key_id, nonce: Some(nonce) };
        let signed = signed_bytes(&with_auth(request, &auth)?)?;
        auth.signature = self.secret.sign(&signed);
        with_auth(request, &auth)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn with_auth(request: &str, auth: &Auth) -> Result<String, Unsignable> {
    let no_json = |error: serde_json::Error| Unsignable::Json(error.to_string());
    let members = request.trim_end().strip_suffix('}');
    let members = members.ok_or_else(|| Unsignable::Json("a request must be an object".into()))?;
    Ok(format!("{members},\"auth\":{}}}", serde_json::to_string(auth).map_err(no_json)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Vector {
        name: String,
        secret: String,
        request: String,
        canonical: String,
        signature: String,
    }

    fn vectors() -> Vec<Vector> {
        serde_json::from_str(include_str!("../../../docs/signing/vectors.json")).unwrap()
    }

    #[test]
    fn the_vectors_hold() {
        for vector in vectors() {
            let signed = signed_bytes(&vector.request).unwrap();
            let form = str::from_utf8(&signed[DOMAIN.len()..]).unwrap();
            assert_eq!(form, vector.canonical, "{}", vector.name);
            let secret = Secret::new(&vector.secret);
            assert_eq!(secret.sign(&signed), vector.signature, "{}", vector.name);
            // With its signature in place it is still the same.
            let mut request: Value = serde_json::from_str(&vector.request).unwrap();
            request["auth"]["signature"] = vector.signature.clone().into();
            let signed = signed_bytes(&request.to_string()).unwrap();
            assert!(secret.verify(&signed, &vector.signature).is_some(), "{}", vector.name);
        }
    }

    #[test]
    fn what_a_client_signs_a_server_finds_signed() {
        let key = SigningKey::parse("ci:a secret: with a colon").unwrap();
        let request = r#"{"jsonrpc":"2.0","method":"m","params":{"b":1.0,"a":"é"},"id":7}"#;
        let sent = key.sign_at(request, 1_700_000_000, "n".into()).unwrap();
        let auth: Value = serde_json::from_str(&sent).unwrap();
        let auth: Auth = serde_json::from_value(auth["auth"].clone()).unwrap();
        assert_eq!((auth.timestamp, auth.key_id.as_deref()), (1_700_000_000, Some("ci")));
        let secret = Secret::new("a secret: with a colon");
        assert!(secret.verify(&signed_bytes(&sent).unwrap(), &auth.signature).is_some());
        let other = sent.replace("1.0", "1.5");
        assert!(secret.verify(&signed_bytes(&other).unwrap(), &auth.signature).is_none());
        for cut in 0..auth.signature.len() {
            let cut = &auth.signature[..cut];
            assert!(secret.verify(&signed_bytes(&sent).unwrap(), cut).is_none(), "{cut}");
        }
        assert!(!format!("{key:?}").contains("colon"));
    }

    #[test]
    fn numbers_that_could_be_exchanged_are_not_signed() {
        let of = |number: &str| {
            signed_bytes(&format!(r#"{{"a\"7":"12345678901234567890","n":[{number}, 1]}}"#))
        };
        for good in [
            "9007199254740992",
            "-9007199254740991",
            "100000000000000000000",
            "1e20",
            "123456789012345.75",
            "0",
        ] {
            assert!(of(good).is_ok(), "{good}");
        }
        for bad in
            ["9007199254740993", "-9007199254740993", "1152921504606846976", "18446744073709551617"]
        {
            assert_eq!(of(bad), Err(Unsignable::Number(bad.into())), "{bad}");
        }
    }

    #[test]
    fn two_members_of_one_name_are_not_signed() {
        for twice in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"\u0061":2}]}"#] {
            assert!(
                matches!(signed_bytes(twice), Err(Unsignable::Json(why)) if why.contains("duplicate member: a"))
            );
        }
    }

    #[test]
    fn keys_are_written_in_one_way() {
        for bad in ["", "secret", "id:", ":"] {
            assert_eq!(SigningKey::parse(bad).err(), Some(NoSigningKey), "{bad}");
        }
        assert!(SigningKey::parse(":secret").unwrap().id.is_none());
        assert!(SigningKey::parse(&format!("{}:s", "i".repeat(ID_BYTES_MAX))).is_ok());
        assert!(SigningKey::parse(&format!("{}:s", "i".repeat(ID_BYTES_MAX + 1))).is_err());
    }
}
