//! What is piped into a command.

use std::io::Read;

use anyhow::{Context as _, bail, ensure};

/// Most that is read from stdin or a file: as much as the largest message of any transport.
pub const BYTES_MAX: u64 = 10 << 20;

/// The whole text of `source`, which people know as `name`.
pub fn read_all(source: impl Read, name: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let length = source.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    let length = length.with_context(|| format!("reading {name}"))?;
    ensure!(
        length as u64 <= BYTES_MAX,
        "{name} has more than {BYTES_MAX} bytes; give a part of it"
    );
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            bail!(
                "{name} is not UTF-8 text (from byte {valid} on); convert it, or give it as a file to read"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Result<&str, &str>) {
        let got = read_all(bytes, "stdin").map_err(|error| error.to_string());
        match expected {
            Ok(text) => assert_eq!(got.as_deref(), Ok(text)),
            Err(start) => assert!(got.as_ref().is_err_and(|it| it.starts_with(start)), "{got:?}"),
        }
    }

    #[test]
    fn text_is_read_and_all_else_is_named() {
        check(b"", Ok(""));
        check("a\nä".as_bytes(), Ok("a\nä"));
        check(b"ab\xff", Err("stdin is not UTF-8 text (from byte 2 on)"));
    }

    #[test]
    fn there_is_a_most() {
        let most = vec![b'x'; BYTES_MAX as usize];
        assert_eq!(read_all(&most[..], "stdin").unwrap().len(), most.len());
        let more = [&most[..], b"x"].concat();
        check(&more, Err("stdin has more than 10485760 bytes"));
    }
}
