//! The requests that the page makes, and the responses to them.
//!
//! A connection carries one `GET` or `HEAD` request. Bodies are not read.

use std::borrow::Cow;
use std::ops::Range;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, Method, http};
use percent_encoding::percent_decode_str;
use url::form_urlencoded;

/// The headers that every response has.
const PROTECTION: [(&str, &str); 6] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
    (
        "permissions-policy",
        "camera=(), microphone=(), geolocation=()",
    ),
];

/// The media type of bytes that browsers save instead of showing.
pub const UNKNOWN: &str = "application/octet-stream";

/// A request.
#[derive(Debug, Default)]
pub struct Request {
    /// The path, decoded. It begins with a slash.
    pub path: String,
    /// The names and values of the query, decoded, in order.
    pub query: Vec<(String, String)>,
    headers: HeaderMap,
}

impl Request {
    /// Decodes a request. An error is the response to one that is not supported.
    pub fn new<B>(request: &hyper::Request<B>) -> Result<Self, Response> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return Err(Response::refusal(405, "only GET and HEAD are supported"));
        }
        let target = request.uri();
        let path = percent_decode_str(target.path()).decode_utf8().ok();
        let path = path.filter(|path| path.starts_with('/') && target.authority().is_none());
        let wrong = || Response::refusal(400, "the address of the request is not a path");
        let query = target.query().unwrap_or_default();
        Ok(Self {
            path: path.ok_or_else(wrong)?.into_owned(),
            query: form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
            headers: request.headers().clone(),
        })
    }

    /// Returns the value of a header that occurs once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.get_all(name).iter();
        let value = found.next()?.to_str().ok()?;
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
    /// Returns the response as it is sent. `policy` is its content security policy.
    pub fn sent(self, policy: &str) -> http::Result<hyper::Response<Full<Bytes>>> {
        let mut builder = hyper::Response::builder()
            .status(self.status)
            .header(CONTENT_TYPE, &*self.content_type)
            .header("content-security-policy", policy);
        for (name, value) in PROTECTION {
            builder = builder.header(name, value);
        }
        for (name, value) in self.headers {
            builder = builder.header(name, value);
        }
        builder.body(Full::from(self.body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, headers: &[(&str, &str)]) -> Result<Request, u16> {
        let mut builder = hyper::Request::get(target);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        Request::new(&builder.body(()).unwrap()).map_err(|refused| refused.status)
    }

    #[test]
    fn request_path_query_and_headers_are_decoded() {
        let request = request("/api/find?key=a%2Fb+c&x", &[("X-A", "1")]).unwrap();
        assert_eq!(request.path, "/api/find");
        assert_eq!(request.value("key"), Some("a/b c"));
        assert_eq!(request.value("x"), Some(""));
        assert_eq!(request.header("x-a"), Some("1"));
    }

    #[test]
    fn byte_ranges_are_limited_to_the_value() {
        let range = |text: &str| {
            let request = request("/", &[("Range", text)]).unwrap();
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
        let request = request("/", &[("Host", "a"), ("Host", "b")]).unwrap();
        assert_eq!(request.header("host"), None);
    }

    #[test]
    fn unsupported_requests_are_rejected() {
        for (method, target, status) in [
            (Method::POST, "/", 405),
            (Method::DELETE, "/", 405),
            (Method::GET, "http://a/", 400),
            (Method::GET, "*", 400),
            (Method::GET, "/%ff", 400),
        ] {
            let request = hyper::Request::builder().method(&method).uri(target);
            let refused = Request::new(&request.body(()).unwrap()).unwrap_err();
            assert_eq!(refused.status, status, "{method} {target}");
        }
    }
}
