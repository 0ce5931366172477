//! Which addresses a server elsewhere may have. A name that somebody else chose must not lead to services that only this
//! machine or its network can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use nexus_outward::{host, is_loopback};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Looks names up, and takes of the server's own no address that it may not have. A proxy's is the user's affair.
pub struct Guard {
    host: String,
    allowed: Allowed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    World,
    Loopback,
    Any,
}

impl Guard {
    /// For the server at `url`, unless that cannot be had. `private`: its network need not be the world's.
    pub fn new(url: &Url, private: bool) -> Result<Arc<Self>, String> {
        let loopback = is_loopback(url);
        match url.scheme() {
            "https" => {}
            "http" if loopback => {}
            "http" => return Err("url: http is for this machine alone: use https".into()),
            other => return Err(format!("url: {other} is not spoken here: use https")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("url: a name and a password belong in headers, as Authorization".into());
        }
        let allowed = match (loopback, private) {
            (true, _) => Allowed::Loopback,
            (false, true) => Allowed::Any,
            (false, false) => Allowed::World,
        };
        let host = host(url).to_owned();
        if let Ok(address) = host.parse() {
            allowed.check(&host, address)?;
        }
        Ok(Arc::new(Self { host, allowed }))
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        // With the dot at its end or without, it is the same name.
        let [asked, own] = [name.as_str(), &self.host].map(|it| it.trim_end_matches('.'));
        let own = asked.eq_ignore_ascii_case(own).then_some(self.allowed);
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if let Some(allowed) = own {
                found.iter().try_for_each(|it| allowed.check(name.as_str(), it.ip()))?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl Allowed {
    fn check(self, host: &str, address: IpAddr) -> Result<(), String> {
        let allowed = match self {
            Self::Any => true,
            Self::Loopback => address.is_loopback(),
            Self::World => is_of_world(address),
        };
        match allowed {
            true => Ok(()),
            false => {
                let leads = match host.parse() == Ok(address) {
                    true => String::new(),
                    false => format!("{host} leads to "),
                };
                Err(format!(
                    "{leads}{address}, which is no address of the world (private: true lets it have one)"
                ))
            }
        }
    }
}

/// Whether an address means the same machine for everybody.
fn is_of_world(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_of_world_4(address),
        IpAddr::V6(address) => match inner(address) {
            Some(inner) => is_of_world_4(inner),
            // 2000::/3 is all that was ever given out, but for what stands in examples.
            None => address.segments()[0] & 0xe000 == 0x2000 && !is_example(address),
        },
    }
}

fn is_of_world_4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        // This network and loopback, the providers' own, protocols' own, measurements', and all above the world's.
        || matches!((a, b, c), (0 | 127, ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18 | 19, _) | (224.., ..));
    !is_special
}

/// The older address that a newer one stands for: mapped, translated (NAT64), or wrapped (6to4).
fn inner(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let joined = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(joined(high, low))
        }
        [0x2002, high, low, ..] => Some(joined(high, low)),
        _ => None,
    }
}

fn is_example(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x2001, 0xdb8, ..] | [0x3fff, ..=0x0fff, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_world_are_told_from_others() {
        let world = [
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ];
        for address in world {
            assert!(is_of_world(address.parse().unwrap()), "{address}");
        }
        let others = [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "203.0.113.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "fec0::1",
            "2001:db8::1",
            "3fff::1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::",
            "::127.0.0.1",
        ];
        for address in others {
            assert!(!is_of_world(address.parse().unwrap()), "{address}");
        }
    }

    fn guard(url: &str, private: bool) -> Result<Allowed, String> {
        Guard::new(&Url::parse(url).unwrap(), private).map(|guard| guard.allowed)
    }

    #[test]
    fn only_what_cannot_be_overheard_is_spoken_with_others() {
        for (url, private, expected) in [
            ("https://example.com/mcp", false, Ok(Allowed::World)),
            ("https://example.com/mcp", true, Ok(Allowed::Any)),
            ("http://127.0.0.1:1/mcp", false, Ok(Allowed::Loopback)),
            ("https://[::1]/mcp", true, Ok(Allowed::Loopback)),
            ("https://10.0.0.1/mcp", true, Ok(Allowed::Any)),
            ("http://example.com/mcp", true, Err("https")),
            ("https://10.0.0.1/mcp", false, Err("private: true")),
            ("https://[fd00::1]/mcp", false, Err("private: true")),
            // An address in any other spelling is one all the same.
            ("https://0x0a000001/mcp", false, Err("private: true")),
            ("https://2852039166/", false, Err("169.254.169.254, which")),
            ("https://me:word@example.com/", false, Err("headers")),
            ("ftp://example.com/", false, Err("ftp")),
        ] {
            match (guard(url, private), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{url}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{url}: {why}"),
                (found, _) => panic!("{url}: {found:?}"),
            }
        }
    }

    /// A name that leads to this machine is not taken for one of the world.
    #[tokio::test]
    async fn names_are_judged_by_where_they_lead() {
        let resolve =
            async |guard: Guard| guard.resolve("localhost".parse().unwrap()).await.map(drop);
        let own = |allowed| Guard { host: "LocalHost".into(), allowed };
        assert!(resolve(own(Allowed::Loopback)).await.is_ok());
        assert!(resolve(own(Allowed::Any)).await.is_ok());
        let refused = resolve(own(Allowed::World)).await.unwrap_err().to_string();
        assert!(refused.contains("localhost leads to"), "{refused}");
        let dotted = Guard { host: "localhost.".into(), allowed: Allowed::World };
        assert!(resolve(dotted).await.is_err());
        let proxy = Guard { host: "example.com".into(), allowed: Allowed::World };
        assert!(resolve(proxy).await.is_ok());
    }
}
