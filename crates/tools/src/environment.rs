//! The environment of commands: a short list of what programs need to find things, and nothing a secret could be in.

use std::collections::BTreeMap;

/// Variables that commands are given as the server has them. Everything else is left out: no list of names could say
/// which of a user's variables are secrets.
const KEPT: [&str; 26] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTPS_PROXY",
];

/// For programs that would otherwise draw, page or ask; and git stops where the system's configuration cannot be read,
/// which is closed to commands.
const SET: [(&str, &str); 6] = [
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
];

/// Without it no program is found.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// What of `variables`, the server's own, a command may see.
pub fn cleaned(variables: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let kept = variables.into_iter().filter(|(name, value)| {
        (KEPT.contains(&name.as_str()) || name.starts_with("LC_")) && !names_a_password(value)
    });
    let default = [("PATH".into(), PATH_DEFAULT.into())];
    let set = SET.map(|(name, value)| (name.into(), value.into()));
    default.into_iter().chain(kept).chain(set).collect()
}

/// Whether the value is a URL with a login, as proxies have them.
fn names_a_password(value: &str) -> bool {
    value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], name: &str, expected: Option<&str>) {
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(cleaned(variables).get(name).map(String::as_str), expected, "{name}");
    }

    #[test]
    fn only_what_is_known_to_be_harmless_is_kept() {
        for name in [
            "OPENAI_API_KEY",
            "NEXUS3_HOME",
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "SSH_AUTH_SOCK",
            "DATABASE_URL",
            "LD_PRELOAD",
            "BASH_ENV",
            "GIT_DIR",
            "SOMETHING",
        ] {
            check(&[(name, "x")], name, None);
        }
        check(&[("LANG", "de_DE.UTF-8")], "LANG", Some("de_DE.UTF-8"));
        check(&[("LC_ALL", "C")], "LC_ALL", Some("C"));
        check(&[("TERM", "xterm")], "TERM", Some("dumb"));
        check(&[], "PATH", Some(PATH_DEFAULT));
        check(&[("PATH", "/x")], "PATH", Some("/x"));
    }

    #[test]
    fn a_proxy_is_kept_unless_it_names_a_password() {
        check(&[("https_proxy", "http://p:3128")], "https_proxy", Some("http://p:3128"));
        check(&[("https_proxy", "http://u:secret@p:3128")], "https_proxy", None);
    }
}
