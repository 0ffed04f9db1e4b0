//! Parses requests.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::ops::Range;

use percent_encoding::percent_decode_str;

/// The maximum number of bytes of a request line and its headers.
const HEAD: u64 = 64 << 10;

/// A parsed request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Decoded, without the leading slash.
    pub(super) path: String,
    /// The same as it was sent.
    pub(super) encoded_path: String,
    pub(super) query: Vec<(String, String)>,
    /// By their names in lower case.
    pub(super) headers: BTreeMap<String, String>,
    /// The length of the body.
    pub(super) length: u64,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// Reads the request line and the headers; `None` at the end of the connection.
    pub(super) fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Self>> {
        let mut limited = reader.take(HEAD);
        let mut line = String::new();
        if limited.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let mut words = line.split_whitespace();
        let method = words.next().ok_or_else(bad)?.to_owned();
        let target = words.next().ok_or_else(bad)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            if limited.read_line(&mut line)? == 0 {
                return Err(bad());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(bad)?;
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        if headers.contains_key("transfer-encoding") {
            return Err(bad());
        }
        let length = headers.get("content-length").map(|text| text.parse());
        Ok(Some(Self {
            method,
            path: decode(path.trim_start_matches('/')),
            encoded_path: path.trim_start_matches('/').to_owned(),
            query: query
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
            length: length.transpose().map_err(|_| bad())?.unwrap_or(0),
            headers,
            body: Vec::new(),
        }))
    }

    /// Returns a parameter of the query.
    pub(super) fn of(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns the first byte of `Range`, and the last one if it is given.
    pub(super) fn range(&self) -> Option<(u64, Option<u64>)> {
        let (from, last) = self
            .header("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        let last = match last {
            "" => None,
            last => Some(last.parse().ok()?),
        };
        Some((from.parse().ok()?, last))
    }

    /// Returns whether the checksum of the object is requested.
    pub(super) fn wants_sum(&self) -> bool {
        self.header("x-amz-checksum-mode")
            .is_some_and(|mode| mode.eq_ignore_ascii_case("enabled"))
    }
}

pub(super) fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns the bytes of a range within an object; `None` if it starts after the end.
pub(super) fn within(range: (u64, Option<u64>), bytes: u64) -> Option<Range<u64>> {
    let end = range
        .1
        .map_or(bytes, |last| last.saturating_add(1).min(bytes));
    (range.0 < end).then_some(range.0..end)
}
