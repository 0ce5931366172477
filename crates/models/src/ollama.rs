//! Finds out whether an Ollama answers on this machine, and with which model.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use serde::Deserialize;

/// An Ollama that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ollama {
    pub base_url: String,
    /// The model it lists first: the one used last.
    pub model: String,
}

/// Where it listens unless `OLLAMA_HOST` says otherwise.
const USUAL_HOST: &str = "127.0.0.1";
const USUAL_PORT: u16 = 11434;

/// A loopback port without a listener refuses at once; only a filter that swallows packets makes anybody wait.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(20);

/// The list of models is in its memory. What needs longer than this is not ready to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);

const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Asks the Ollama at `host` (as in `OLLAMA_HOST`: a host, with or without port or `http://`), or at the usual place. A
/// machine without one pays a tenth of a millisecond. Only this machine is asked: another host is named in the
/// configuration.
pub fn find(host: Option<&str>) -> Option<Ollama> {
    let address = address(host.filter(|host| !host.trim().is_empty()).unwrap_or(USUAL_HOST))?;
    let model = first_model(address)?;
    Some(Ollama { base_url: format!("http://{address}/v1"), model })
}

fn address(host: &str) -> Option<SocketAddr> {
    let host = host.trim().trim_start_matches("http://").trim_end_matches('/');
    let mut addresses = match host.to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(_) => (host, USUAL_PORT).to_socket_addrs().ok()?,
    };
    let mut found =
        addresses.find(|address| address.ip().is_loopback() || address.ip().is_unspecified())?;
    if found.ip().is_unspecified() {
        // The address it listens on, which is not one that can be called.
        found.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    Some(found)
}

fn first_model(address: SocketAddr) -> Option<String> {
    #[derive(Deserialize)]
    struct Tags {
        models: Vec<Tag>,
    }

    #[derive(Deserialize)]
    struct Tag {
        name: String,
    }

    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    // Version 1.0: the answer is then not in chunks and ends with the connection. In one write, so that nobody answers
    // and closes between two.
    let request = format!("GET /api/tags HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split_whitespace().nth(1).filter(|status| *status == "200")?;
    let tags: Tags = serde_json::from_str(body).ok()?;
    tags.models.into_iter().next().map(|tag| tag.name)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What is made of an Ollama that answers with `answer`.
    fn check(answer: &'static str, expected: Option<&str>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let found = find(Some(&format!("http://{address}/")));
        let expected = expected
            .map(|model| Ollama { base_url: format!("http://{address}/v1"), model: model.into() });
        assert_eq!(found, expected);
        assert!(server.join().unwrap().starts_with("GET /api/tags HTTP/1.0\r\n"));
    }

    #[test]
    fn an_ollama_that_has_a_model_is_found() {
        check(
            "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"models\":[{\"name\":\"llama3.2:latest\",\"size\":1},{\"name\":\"b\"}]}",
            Some("llama3.2:latest"),
        );
    }

    #[test]
    fn one_without_models_or_something_else_is_not() {
        check("HTTP/1.0 200 OK\r\n\r\n{\"models\":[]}", None);
        check("HTTP/1.0 404 Not Found\r\n\r\n{\"models\":[{\"name\":\"a\"}]}", None);
        check("HTTP/1.0 200 OK\r\n\r\nhello", None);
        check("nonsense", None);
    }

    #[test]
    fn nothing_is_found_where_nothing_listens_and_nobody_else_is_asked() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert_eq!(find(Some(&format!("127.0.0.1:{port}"))), None);
        assert_eq!(address("192.0.2.1:80"), None);
        let usual = Some(SocketAddr::from(([127, 0, 0, 1], USUAL_PORT)));
        assert_eq!(address("127.0.0.1"), usual);
        assert_eq!(address("0.0.0.0:11434"), usual);
    }
}
