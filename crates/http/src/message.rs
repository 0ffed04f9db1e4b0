//! Reads requests and writes responses: the part of HTTP/1.1 that a page of this server needs.
//!
//! A connection carries one `GET` or `HEAD` request. Bodies are not read. The head of a request is limited in bytes, in
//! headers and in time, so that a slow or hostile client occupies one thread for a few seconds at most.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::socket::Connection;

/// The most bytes of the head of a request.
const HEAD_BYTES: usize = 16 << 10;

/// The most headers of a request.
const HEADERS: usize = 64;

/// The time in which the head of a request must arrive.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// The time without progress after which a response is given up.
const WRITE_TIME: Duration = Duration::from_secs(30);

/// The time in which a client closes the connection after a response.
const REST_TIME: Duration = Duration::from_secs(1);

/// The media type of bytes that browsers save instead of showing.
pub const UNKNOWN: &str = "application/octet-stream";

/// A request.
#[derive(Debug, Default)]
pub struct Request {
    /// The path, decoded. It begins with a slash.
    pub path: String,
    /// The names and values of the query, decoded, in order.
    pub query: Vec<(String, String)>,
    /// The headers, with names in lower case.
    headers: Vec<(String, String)>,
    /// Whether only the head of the response is wanted.
    pub is_head: bool,
}

impl Request {
    /// Returns the value of a header that occurs once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        let (_, value) = found.next()?;
        found.next().is_none().then_some(value)
    }

    /// Returns the token of an `Authorization: Bearer` header.
    pub fn bearer(&self) -> Option<&str> {
        self.header("authorization")?.strip_prefix("Bearer ")
    }

    /// Returns the first value of a name in the query.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a number of the query. A missing one is `default`.
    pub fn number(&self, name: &str, default: u64) -> Result<u64, Response> {
        match self.value(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Response::refusal(400, format!("`{name}` is not a number"))),
        }
    }
}

impl Request {
    /// Returns the part of a value of `total` bytes that the request is for, at most `most` bytes of it. `None` stands for the
    /// whole value.
    pub fn range(&self, total: u64, max: u64) -> Result<Option<Range<u64>>, Response> {
        let Some(text) = self.header("range") else {
            return Ok(None);
        };
        // Several ranges, and ranges from the end, are answered with the whole value, as the protocol allows.
        let pair = text
            .strip_prefix("bytes=")
            .and_then(|text| text.split_once('-'));
        let Some((start, end)) = pair else {
            return Ok(None);
        };
        let (Ok(start), Ok(last)) = (
            start.parse::<u64>(),
            match end {
                "" => Ok(u64::MAX),
                end => end.parse::<u64>(),
            },
        ) else {
            return Ok(None);
        };
        if start >= total || last < start {
            return Err(Response::refusal(416, "the value has no such range"));
        }
        let end = last.saturating_add(1).min(total);
        Ok(Some(start..end.min(start.saturating_add(max))))
    }
}

/// A response.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The media type of the body.
    pub content_type: Cow<'static, str>,
    /// Headers of this response only.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// Makes a successful response.
    pub fn new(content_type: impl Into<Cow<'static, str>>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            content_type: content_type.into(),
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// Makes a response with bytes that the browser saves instead of showing them.
    pub fn download(name: &str, body: impl Into<Vec<u8>>) -> Self {
        let disposition = format!("attachment; filename=\"{name}\"");
        Self {
            headers: vec![("Content-Disposition", disposition)],
            ..Self::new(UNKNOWN, body)
        }
    }

    /// Makes a response with a part of a value of `total` bytes.
    pub fn part(content_type: &'static str, body: Vec<u8>, range: &Range<u64>, total: u64) -> Self {
        let last = range.end.saturating_sub(1);
        Self {
            status: 206,
            headers: vec![
                (
                    "Content-Range",
                    format!("bytes {}-{last}/{total}", range.start),
                ),
                ("Accept-Ranges", "bytes".to_owned()),
            ],
            ..Self::new(content_type, body)
        }
    }

    /// Makes a response with a JSON value.
    pub fn json(value: &serde_json::Value) -> Self {
        Self::new("application/json", value.to_string())
    }

    /// Makes the response to a request that the server does not fulfil. The message goes to the reader.
    pub fn refusal(status: u16, message: impl Into<String>) -> Self {
        let error = serde_json::json!({ "error": { "message": message.into() } });
        Self {
            status,
            ..Self::json(&error)
        }
    }
}

/// Reads a request. An error is the response to a request that cannot be read.
pub fn read_request(stream: &mut dyn Connection) -> Result<Request, Response> {
    let late = || Response::refusal(408, "the request did not arrive in time");
    stream.limit(HEAD_TIME, HEAD_TIME);
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Err(Response::refusal(400, "the request is incomplete")),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(late()),
        };
        head.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if let Some(request) = parse(&head)? {
            return Ok(request);
        }
        if head.len() > HEAD_BYTES {
            return Err(Response::refusal(431, "the request is too long"));
        }
    }
}

/// Parses the head of a request. Returns `None` if its end is missing.
fn parse(head: &[u8]) -> Result<Option<Request>, Response> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Response::refusal(431, "the request has too many headers"));
        }
        Err(error) => {
            return Err(Response::refusal(
                400,
                format!("the request is not HTTP: {error}"),
            ));
        }
    }
    let is_head = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Response::refusal(405, "only GET and HEAD are supported")),
    };
    let not_a_target = || Response::refusal(400, "the address of the request is not a path");
    let target = parsed.path.filter(|target| target.starts_with('/'));
    let target = target.ok_or_else(not_a_target)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let decoded = |text: &str| {
        let text = percent_decode_str(text).decode_utf8();
        text.map(Cow::into_owned).map_err(|_| not_a_target())
    };
    let mut pairs = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(&value.replace('+', " "))?;
        pairs.push((decoded(name)?, value));
    }
    let headers = parsed.headers.iter().map(|header| {
        let value = String::from_utf8_lossy(header.value);
        (header.name.to_ascii_lowercase(), value.trim().to_owned())
    });
    Ok(Some(Request {
        path: decoded(path)?,
        query: pairs,
        headers: headers.collect(),
        is_head,
    }))
}

/// Writes a response and closes the connection. `is_head` leaves the body out.
pub fn write_response(
    stream: &mut dyn Connection,
    response: &Response,
    is_head: bool,
) -> io::Result<()> {
    stream.limit(WRITE_TIME, Duration::MAX);
    let mut head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n",
        response.status,
        reason(response.status),
        response.content_type,
        response.body.len(),
    );
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    if !is_head {
        stream.write_all(&response.body)?;
    }
    stream.end()?;
    // Closing a socket with unread bytes resets the connection, and the client would lose the response.
    stream.limit(REST_TIME, REST_TIME);
    let mut rest = [0; 4096];
    for _ in 0..64 {
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        416 => "Range Not Satisfiable",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_path_query_and_headers_are_decoded() {
        let head = b"GET /api/find?key=a%2Fb+c&x HTTP/1.1\r\nHost: a\r\nX-A:  1 \r\n\r\n";
        let request = parse(head).unwrap().unwrap();
        assert_eq!(request.path, "/api/find");
        assert_eq!(request.value("key"), Some("a/b c"));
        assert_eq!(request.value("x"), Some(""));
        assert_eq!(request.header("x-a"), Some("1"));
        assert!(parse(b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap().is_none());
    }

    #[test]
    fn byte_ranges_are_limited_to_the_value() {
        let range = |text: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\nRange: {text}\r\n\r\n");
            let request = parse(head.as_bytes()).unwrap().unwrap();
            request.range(100, 40).map_err(|refused| refused.status)
        };
        assert_eq!(range("bytes=0-9"), Ok(Some(0..10)));
        assert_eq!(range("bytes=90-"), Ok(Some(90..100)));
        assert_eq!(range("bytes=0-"), Ok(Some(0..40)));
        assert_eq!(range("bytes=-5"), Ok(None));
        assert_eq!(range("bytes=0-1,4-5"), Ok(None));
        assert_eq!(range("lines=1-2"), Ok(None));
        assert_eq!(range("bytes=100-"), Err(416));
        assert_eq!(range("bytes=9-8"), Err(416));
        assert_eq!(range("bytes=0-18446744073709551615"), Ok(Some(0..40)));
    }

    #[test]
    fn repeated_header_has_no_value() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
        assert_eq!(parse(head).unwrap().unwrap().header("host"), None);
    }

    #[test]
    fn unsupported_requests_are_rejected() {
        for (head, status) in [
            ("POST / HTTP/1.1\r\n\r\n", 405),
            ("DELETE / HTTP/1.1\r\n\r\n", 405),
            ("GET http://a/ HTTP/1.1\r\n\r\n", 400),
            ("GET * HTTP/1.1\r\n\r\n", 400),
            ("GET /%ff HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/9\r\n\r\n", 400),
            ("\u{1}\u{2}", 400),
        ] {
            assert_eq!(
                parse(head.as_bytes()).unwrap_err().status,
                status,
                "{head:?}"
            );
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        assert_eq!(parse(many.as_bytes()).unwrap_err().status, 431);
    }
}
