//! Tokens by which a host says for whom a sandbox speaks: JWTs signed with HS256, as programs in the field make them.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use nexus_core::memory::Identity;
use serde_json::{Map, Value, json};
use sha2::Sha256;
use thiserror::Error;

/// What a token's header may say it is, if it says so.
const TYPES: [&str; 2] = [TYPE, "JWT"];
const TYPE: &str = "ASH_CONTEXT";

/// Whom a token may be for, if it says so.
const AUDIENCES: [&str; 2] = ["ash", AUDIENCE];
const AUDIENCE: &str = "nexus3";

/// How far ahead the clock may be of whoever signed.
const AHEAD_SECONDS_MAX: i64 = 30;

/// Longer ones are not looked at. Those in the field carry a user's message.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Makes and checks tokens.
#[derive(Clone)]
pub struct ContextTokens {
    mac: Hmac<Sha256>,
}

/// What a token says that is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub identity: Identity,
    /// In seconds since 1970.
    pub expires_at: i64,
}

impl Claims {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now.as_second()
    }
}

/// One text for every reason: a guesser learns nothing from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the context token is not valid here")]
pub struct InvalidToken;

impl ContextTokens {
    /// With the key of a secret; `None` when it says nothing.
    pub fn new(secret: &str) -> Option<Self> {
        let secret = secret.trim();
        if secret.is_empty() {
            return None;
        }
        let mac = Hmac::<Sha256>::new_from_slice(&key(secret)).ok()?;
        Some(Self { mac })
    }

    pub fn mint(&self, identity: &Identity, now: Timestamp, seconds: i64) -> String {
        let header = json!({"alg": "HS256", "typ": TYPE, "ver": 1});
        let mut claims = json!({
            "ver": 1,
            "aud": AUDIENCE,
            "iat": now.as_second(),
            "exp": now.as_second().saturating_add(seconds),
        });
        for (name, value) in [("sub", &identity.user), ("chat_id", &identity.chat)] {
            if let Some(value) = value {
                claims[name] = json!(value);
            }
        }
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let mut mac = self.mac.clone();
        mac.update(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    pub fn verify(&self, token: &str, now: Timestamp) -> Result<Claims, InvalidToken> {
        self.read(token.trim(), now).ok_or(InvalidToken)
    }

    fn read(&self, token: &str, now: Timestamp) -> Option<Claims> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        // Before anything that somebody else may have written is read.
        let mut mac = self.mac.clone();
        mac.update(signed.as_bytes());
        mac.verify_slice(&decode(signature)?).ok()?;
        let object = |part| serde_json::from_slice::<Map<String, Value>>(&decode(part)?).ok();
        let (header, claims) = (object(header)?, object(claims)?);
        let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
        if header.get("alg")? != "HS256" || !header.get("typ").is_none_or(is_type) {
            return None;
        }
        if !claims.get("aud").is_none_or(is_for_us) {
            return None;
        }
        let ahead = match claims.get("iat") {
            Some(issued) => seconds(issued)? - now.as_second(),
            None => 0,
        };
        let (identity, expires_at) = (identity(&claims)?, seconds(claims.get("exp")?)?);
        let claims = Claims { identity, expires_at };
        (ahead <= AHEAD_SECONDS_MAX && !claims.is_expired(now)).then_some(claims)
    }
}

/// A token must say who it speaks for: one without would speak for nobody, and see what is everybody's.
fn identity(claims: &Map<String, Value>) -> Option<Identity> {
    let text = |name: &str| match claims.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) => {
            Some(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
        }
        Some(Value::Number(number)) => Some(Some(number.to_string())),
        Some(_) => None,
    };
    let identity = Identity { user: text("sub")?, chat: text("chat_id")? };
    (identity != Identity::default()).then_some(identity)
}

fn is_for_us(audience: &Value) -> bool {
    let ours = |value: &Value| value.as_str().is_some_and(|name| AUDIENCES.contains(&name));
    match audience {
        Value::Array(several) => several.iter().any(ours),
        one => ours(one),
    }
}

/// A moment in a claim: a number, or the digits of one.
fn seconds(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|it| it as i64)),
        Value::String(digits) => digits.trim().parse().ok(),
        _ => None,
    }
}

fn decode(part: &str) -> Option<Vec<u8>> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&alphabet::URL_SAFE, config).decode(part).ok()
}

/// The bytes that a secret stands for, as the programs that sign read it: hexadecimal digits, else URL-safe base64, in
/// which what is no digit is passed over, else the text itself.
fn key(secret: &str) -> Vec<u8> {
    hexadecimal(secret).or_else(|| loose_base64(secret)).unwrap_or_else(|| secret.into())
}

fn hexadecimal(secret: &str) -> Option<Vec<u8>> {
    if !secret.chars().count().is_multiple_of(2) {
        return None;
    }
    let mut bytes = Vec::new();
    for run in secret.split_ascii_whitespace() {
        let digits: Option<Vec<u8>> =
            run.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
        bytes.extend(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]));
    }
    Some(bytes)
}

fn loose_base64(secret: &str) -> Option<Vec<u8>> {
    if !secret.is_ascii() {
        return None;
    }
    let missing = (4 - secret.len() % 4) % 4;
    let (mut digits, mut pads) = (Vec::new(), 0);
    for byte in secret.bytes().chain(std::iter::repeat_n(b'=', missing)) {
        match byte {
            b'=' => {
                pads += 1;
                if digits.len() % 4 >= 2 && digits.len() % 4 + pads >= 4 {
                    break;
                }
            }
            b'-' | b'_' | b'+' | b'/' => {
                digits.push(if byte == b'+' || byte == b'-' { b'-' } else { b'_' });
                pads = 0;
            }
            byte if byte.is_ascii_alphanumeric() => {
                digits.push(byte);
                pads = 0;
            }
            _ => {}
        }
    }
    // A last group that is not full needs its padding.
    let rest = digits.len() % 4;
    if rest == 1 || (rest > 1 && rest + pads < 4) {
        return None;
    }
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let bytes = GeneralPurpose::new(&alphabet::URL_SAFE, config).decode(digits).ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn identity(user: Option<&str>, chat: Option<&str>) -> Identity {
        Identity { user: user.map(Into::into), chat: chat.map(Into::into) }
    }

    /// A token with this header and these claims, signed as they should be.
    fn signed(tokens: &ContextTokens, header: &str, claims: &str) -> String {
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let mut mac = tokens.mac.clone();
        mac.update(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    #[test]
    fn a_token_is_valid_until_it_expires() {
        let tokens = ContextTokens::new("a secret").unwrap();
        for who in [identity(Some("u"), Some("c")), identity(Some("u"), None)] {
            let token = tokens.mint(&who, at(1000), 10);
            for (second, valid) in [(970, true), (969, false), (1009, true), (1010, false)] {
                let claims = tokens.verify(&token, at(second)).map(|claims| claims.identity);
                assert_eq!(claims, if valid { Ok(who.clone()) } else { Err(InvalidToken) });
            }
            let other = ContextTokens::new("another").unwrap();
            assert_eq!(other.verify(&token, at(1000)), Err(InvalidToken));
            for cut in 0..token.len() {
                assert_eq!(tokens.verify(&token[..cut], at(1000)), Err(InvalidToken));
            }
        }
    }

    #[test]
    fn what_is_signed_must_also_be_meant_for_us() {
        let tokens = ContextTokens::new("a secret").unwrap();
        let check = |header: &str, claims: &str, expected: Option<Identity>| {
            let token = signed(&tokens, header, claims);
            let read = tokens.verify(&token, at(1000)).ok().map(|claims| claims.identity);
            assert_eq!(read, expected, "{header} {claims}");
        };
        let ash = r#"{"alg":"HS256","typ":"ASH_CONTEXT","ver":1}"#;
        let u = || Some(identity(Some("u"), None));
        check(ash, r#"{"sub":"u","iat":999,"exp":1001}"#, u());
        check(ash, r#"{"sub":" u ","chat_id":"","exp":"1001"}"#, u());
        check(
            ash,
            r#"{"sub":7,"chat_id":-100,"exp":1001}"#,
            Some(identity(Some("7"), Some("-100"))),
        );
        check(ash, r#"{"sub":"u","aud":"ash","exp":1001}"#, u());
        check(ash, r#"{"sub":"u","aud":["x","nexus3"],"exp":1001}"#, u());
        check(r#"{"alg":"HS256","typ":"JWT"}"#, r#"{"sub":"u","exp":1001}"#, u());
        check(r#"{"alg":"HS256"}"#, r#"{"sub":"u","exp":1001}"#, u());
        check(ash, r#"{"sub":"u","aud":"other","exp":1001}"#, None);
        check(ash, r#"{"sub":"u","aud":7,"exp":1001}"#, None);
        check(ash, r#"{"sub":"u"}"#, None);
        check(ash, r#"{"sub":"u","exp":true}"#, None);
        check(ash, r#"{"sub":"u","iat":1031,"exp":2000}"#, None);
        check(ash, r#"{"exp":1001}"#, None);
        check(ash, r#"{"sub":" ","exp":1001}"#, None);
        check(ash, r#"{"sub":["u"],"exp":1001}"#, None);
        check(ash, r#"["u"]"#, None);
        check(r#"{"alg":"none"}"#, r#"{"sub":"u","exp":1001}"#, None);
        check(r#"{"alg":"HS256","typ":"OTHER"}"#, r#"{"sub":"u","exp":1001}"#, None);
    }

    #[test]
    fn long_tokens_are_not_looked_at() {
        let tokens = ContextTokens::new("a secret").unwrap();
        let token = |length: usize| {
            let claims = format!(r#"{{"sub":"u","exp":1001,"x":"{}"}}"#, "x".repeat(length));
            signed(&tokens, r#"{"alg":"HS256"}"#, &claims)
        };
        let (short, long) = (token(48_000), token(50_000));
        assert!(short.len() <= TOKEN_BYTES_MAX && long.len() > TOKEN_BYTES_MAX);
        assert!(tokens.verify(&short, at(1000)).is_ok());
        assert!(tokens.verify(&long, at(1000)).is_err());
    }

    #[test]
    fn a_secret_is_read_as_those_who_sign_read_it() {
        assert!(ContextTokens::new(" \n").is_none());
        for (secret, expected) in [
            ("00ff", &b"\x00\xff"[..]),
            ("00  FF", b"\x00\xff"),
            ("test-secret", b"\xb5\xeb-\xfa\xc7\x9c\xad\xeb"),
            ("a b", b"a b"),
            ("abc", b"i\xb7"),
            ("my secret!", b"\x9b+\x1er\xb7\xad"),
            ("abcde", b"abcde"),
            ("pässe", "pässe".as_bytes()),
            ("!!!!", b"!!!!"),
            ("AAAA=BBBB", b"\x00\x00\x00\x04\x10A"),
        ] {
            assert_eq!(key(secret), expected, "{secret}");
        }
    }
}
