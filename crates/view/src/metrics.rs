//! The metrics of a running job, from the one address that the command line names.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use crate::error::ViewError;

/// The most bytes of an answer.
const MOST_BYTES: u64 = 4 << 20;

/// The time in which the whole answer must arrive.
const MOST_TIME: Duration = Duration::from_secs(5);

/// The most headers of an answer.
const HEADERS: usize = 64;

/// The address of an endpoint of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    url: String,
    host: String,
    path: String,
}

impl Metrics {
    /// Parses an address such as `http://127.0.0.1:9100/metrics`.
    ///
    /// # Errors
    ///
    /// [`ViewError::Value`] for anything but `http://`, a host and a path.
    pub fn parse(url: &str) -> Result<Self, ViewError> {
        let wrong = |reason: &str| ViewError::Value {
            object: "--metrics".to_owned(),
            reason: reason.to_owned(),
            hint: "give an address such as http://127.0.0.1:9100/metrics",
        };
        let rest = url.strip_prefix("http://");
        let rest = rest.ok_or_else(|| wrong("the address does not begin with http://"))?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("the address has a space or a character beyond ASCII"));
        }
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() || host.contains(['@', '?', '#']) {
            return Err(wrong("the address has no host, or a user"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
            !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
        });
        Ok(Self {
            url: url.to_owned(),
            host: match has_port {
                true => host.to_owned(),
                false => format!("{host}:80"),
            },
            path: match path {
                "" => "/".to_owned(),
                path => path.to_owned(),
            },
        })
    }

    /// Returns the address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests the metrics, and returns them as text. A redirection is an error, because the address is fixed.
    pub fn fetch(&self) -> io::Result<String> {
        let deadline = Instant::now() + MOST_TIME;
        let address = self.host.to_socket_addrs()?.next();
        let address = address.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut stream = TcpStream::connect_timeout(&address, MOST_TIME)?;
        stream.set_write_timeout(Some(MOST_TIME))?;
        // A server answers HTTP/1.0 without chunks, and closes the connection at the end.
        let (path, host) = (&self.path, &self.host);
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: text/plain\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 16 << 10]);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut buffer)? {
                0 => break,
                read => answer.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            }
            if answer.len() as u64 > MOST_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        body(&answer)
    }
}

/// Returns the body of a response.
fn body(answer: &[u8]) -> io::Result<String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(answer).map_err(io::Error::other)?;
    let httparse::Status::Complete(head) = parsed else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    match response.code {
        Some(200) => {
            let body = answer.get(head..).unwrap_or_default();
            Ok(String::from_utf8_lossy(body).into_owned())
        }
        code => Err(io::Error::other(format!(
            "the endpoint answered {}",
            code.unwrap_or_default()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        let metrics = Metrics::parse("http://127.0.0.1:9100/metrics?a=b").unwrap();
        assert_eq!(
            (&*metrics.host, &*metrics.path),
            ("127.0.0.1:9100", "/metrics?a=b")
        );
        assert_eq!(Metrics::parse("http://node").unwrap().host, "node:80");
        assert_eq!(Metrics::parse("http://[::1]").unwrap().host, "[::1]:80");
        for wrong in [
            "https://node/metrics",
            "file:///etc/passwd",
            "http:///metrics",
            "http://user@node/",
            "http://node/a\r\nX: y",
            "http://node/a b",
        ] {
            assert!(Metrics::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_a_complete_answer_has_a_body() {
        assert_eq!(
            body(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nx 1\n").unwrap(),
            "x 1\n"
        );
        for wrong in [
            &b"HTTP/1.0 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n"[..],
            b"HTTP/1.0 200 OK\r\nA: b\r\n",
            b"no HTTP\r\n\r\n",
        ] {
            assert!(body(wrong).is_err(), "{wrong:?}");
        }
    }
}
