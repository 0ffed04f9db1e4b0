//! Makes one request to a server whose address the user gave.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::socket::Connection;

/// The most headers of an answer.
const HEADERS: usize = 64;

/// The most bytes of the status line and the headers of an answer.
const HEAD_BYTES: u64 = 16 << 10;

/// What an answer may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most bytes of the body.
    pub body_bytes: u64,
    /// The longest time without new bytes.
    pub idle: Duration,
    /// The longest time in all.
    pub total: Duration,
}

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The names, in lower case, and the values of the headers.
    headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Connects to `host:port`.
///
/// # Errors
///
/// The error of resolving the host, or of the last of its addresses.
pub fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends a `GET` request over a new connection, and returns the answer, whatever its status. Redirections are not followed.
///
/// # Errors
///
/// The error of the connection; `TimedOut`; `FileTooLarge` for a body beyond the bounds; `UnexpectedEof` for an answer that
/// is shorter than announced; `Other` for an answer that is not HTTP.
pub fn get(
    stream: &mut dyn Connection,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
    bounds: Bounds,
) -> io::Result<Answer> {
    stream.limit(bounds.idle, bounds.total);
    // A server answers HTTP/1.0 without chunks, and closes the connection at the end.
    let mut request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let (mut answer, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if answer.len() as u64 > bounds.body_bytes.saturating_add(HEAD_BYTES) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    parse(answer, bounds.body_bytes)
}

fn parse(mut bytes: Vec<u8>, max: u64) -> io::Result<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(&bytes).map_err(io::Error::other)?;
    let httparse::Status::Complete(head) = parsed else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let headers = response.headers.iter().map(|header| {
        let value = String::from_utf8_lossy(header.value);
        (header.name.to_ascii_lowercase(), value.trim().to_owned())
    });
    let mut answer = Answer {
        status: response.code.unwrap_or_default(),
        headers: headers.collect(),
        body: Vec::new(),
    };
    bytes.drain(..head);
    let found = bytes.len() as u64;
    if found > max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    if let Some(announced) = answer.header("content-length")
        && announced.parse() != Ok(found)
    {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    answer.body = bytes;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_length_must_match_content_length() {
        let parse = |text: &str, max| parse(text.as_bytes().to_vec(), max);
        let kind = |text: &str| parse(text, 3).unwrap_err().kind();
        let full = parse(
            "HTTP/1.1 404 No\r\nContent-Length: 3\r\nX-A: b\r\n\r\nabc",
            3,
        )
        .unwrap();
        assert_eq!((full.status, &*full.body), (404, &b"abc"[..]));
        assert_eq!(full.header("x-a"), Some("b"));
        assert_eq!(parse("HTTP/1.0 200 OK\r\n\r\nabc", 3).unwrap().body, b"abc");
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n",
        ] {
            assert_eq!(kind(text), io::ErrorKind::UnexpectedEof, "{text}");
        }
        assert_eq!(
            kind("HTTP/1.0 200 OK\r\n\r\nabcd"),
            io::ErrorKind::FileTooLarge
        );
        assert_eq!(kind("SSH-2.0-OpenSSH\r\n"), io::ErrorKind::Other);
    }
}
