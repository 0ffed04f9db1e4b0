//! Serves one connection at the configured speed.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;

use super::Shared;
use super::answer::{Answer, End, answer};
use super::fault::{Action, Asked, Fault};
use super::flavor::Flavor;

/// The bytes written at once if the bandwidth is limited.
const STEP: usize = 32 << 10;

/// The maximum number of bytes of a request line and its headers.
const HEAD: u64 = 64 << 10;

/// A parsed request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Decoded, without the leading slash.
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) range: Option<(u64, Option<u64>)>,
    pub(super) if_match: Option<String>,
    /// `If-None-Match: *`.
    pub(super) only_new: bool,
    /// `x-amz-checksum-sha256`.
    pub(super) sum: Option<String>,
    /// `x-amz-content-sha256`.
    pub(super) content: Option<String>,
    /// Whether the checksum of the object is requested.
    pub(super) wants_sum: bool,
    /// `x-amz-acl`.
    pub(super) acl: Option<String>,
    /// `Content-MD5`.
    pub(super) md5: Option<String>,
    /// `x-ms-blob-type`.
    pub(super) blob: Option<String>,
    /// Whether there are headers that begin with `x-amz-`.
    pub(super) amazon: bool,
    /// `x-goog-if-generation-match: 0`.
    pub(super) no_generation: bool,
    /// `Authorization`.
    pub(super) authorization: Option<String>,
    pub(super) close: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(super) asks: bool,
    /// The length of the body.
    pub(super) length: u64,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn of(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn action(&self, flavor: Flavor, key: Option<&str>) -> Action {
        if flavor != Flavor::S3 && flavor != Flavor::Google {
            return flavor.action(self, key);
        }
        let (_, key) = self.path.split_once('/').unwrap_or_default();
        let (method, upload) = (self.method.as_str(), self.of("uploadId").is_some());
        match (method, upload) {
            ("GET", false) if key.is_empty() => Action::List,
            _ if key.is_empty() => Action::Other,
            ("GET", false) => Action::Get,
            ("HEAD", false) => Action::Head,
            ("PUT", false) => Action::Put,
            ("PUT", true) => Action::Part,
            ("POST", true) => Action::Complete,
            ("POST", false) if self.of("uploads").is_some() => Action::Create,
            ("DELETE", true) => Action::Abort,
            ("DELETE", false) => Action::Delete,
            _ => Action::Other,
        }
    }
}

/// Serves a connection until either side closes it.
pub(super) fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(mut request) = read_request(&mut reader)? {
        let settings = shared.settings();
        let key = shared.flavor.key(&request.path, shared.objects.bucket());
        let asked = count(shared, &request, key.as_deref());
        let fault = settings.faults.decide(&asked);
        if fault.is_some() {
            shared.state().counts.faults += 1;
        }
        if !read_body(&mut reader, shared, &mut request, fault.as_ref())? {
            break;
        }
        let transfer = Transfer::begin(shared);
        if !shared.wait(settings.latency) {
            break;
        }
        let answer = answer(
            shared,
            &mut request,
            asked.action,
            key.as_deref(),
            fault.as_ref(),
        )?;
        if !send(stream, transfer, &settings, &request, answer)? || request.close {
            break;
        }
    }
    Ok(())
}

fn count(shared: &Shared, request: &Request, key: Option<&str>) -> Asked {
    let mut state = shared.state();
    let counts = &mut state.counts;
    let number = counts.requests;
    counts.requests += 1;
    let action = request.action(shared.flavor, key);
    let key = key.unwrap_or_default();
    counts.heads += u64::from(request.method == "HEAD");
    counts.lists += u64::from(action == Action::List);
    *counts.by_action.entry(action).or_default() += 1;
    counts.signed += u64::from(request.authorization.is_some());
    let of_key = counts.by_key.entry(key.to_owned()).or_default();
    let nth = *of_key;
    *of_key += 1;
    let of_action = state.of_action.entry((key.to_owned(), action)).or_default();
    let nth_action = *of_action;
    *of_action += 1;
    Asked {
        number,
        nth,
        action,
        nth_action,
        key: key.to_owned(),
        range: request
            .range
            .map(|(from, last)| from..last.map_or(u64::MAX, |last| last.saturating_add(1))),
    }
}

/// An answer in flight. It ends before its last bytes are sent, so a client that has the answer finds it counted.
struct Transfer<'a> {
    shared: &'a Shared,
    ended: bool,
}

impl<'a> Transfer<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.transfer(true);
        let ended = false;
        Self { shared, ended }
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.shared.transfer(false);
        }
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends an answer. Returns `false` if the connection has to be closed after it.
fn send(
    mut stream: &TcpStream,
    mut transfer: Transfer<'_>,
    settings: &super::Settings,
    request: &Request,
    answer: Answer,
) -> io::Result<bool> {
    match answer.end {
        End::CloseFirst => return Ok(false),
        End::StallFirst => {
            wait_for_the_end(stream);
            return Ok(false);
        }
        _ => {}
    }
    let mut head = format!("HTTP/1.1 {} Answer\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    if request.method == "HEAD" || answer.body.is_empty() {
        transfer.end();
    }
    stream.write_all(head.as_bytes())?;
    if request.method == "HEAD" {
        return Ok(true);
    }
    let limit = match answer.end {
        End::CloseAfter(bytes) | End::StallAfter(bytes) => usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(answer.body.len()),
        _ => answer.body.len(),
    };
    let body = answer.body.get(..limit).unwrap_or_default();
    let pace = match (&answer.drip, settings.bytes_per_second) {
        (Some((bytes, every)), _) => Pace::Drip(*bytes, *every),
        (None, Some(speed)) => Pace::Speed(speed.max(1)),
        (None, None) => Pace::Free,
    };
    if !write_body(stream, &mut transfer, body, pace)? {
        return Ok(false);
    }
    match answer.end {
        End::KeepAlive => Ok(true),
        End::StallAfter(_) => {
            wait_for_the_end(stream);
            Ok(false)
        }
        _ => Ok(false),
    }
}

#[derive(Clone, Copy)]
enum Pace {
    Free,
    Speed(u64),
    Drip(usize, Duration),
}

/// Writes a body at its pace. Returns `false` if the server stops.
fn write_body(
    mut stream: &TcpStream,
    transfer: &mut Transfer<'_>,
    body: &[u8],
    pace: Pace,
) -> io::Result<bool> {
    let step = match pace {
        Pace::Free => 1 << 20,
        Pace::Speed(_) => STEP,
        Pace::Drip(bytes, _) => bytes.max(1),
    };
    let began = Instant::now();
    let shared = transfer.shared;
    let mut sent = 0_u64;
    for piece in body.chunks(step) {
        sent += piece.len() as u64;
        // Counted before the client can receive it.
        shared.state().counts.bytes += piece.len() as u64;
        if sent == body.len() as u64 {
            transfer.end();
        }
        stream.write_all(piece)?;
        let wait = match pace {
            Pace::Free => Duration::ZERO,
            // The time at which this many bytes are due. So a wait that took too long shortens the next one.
            Pace::Speed(speed) => Duration::from_micros(sent.saturating_mul(1_000_000) / speed)
                .saturating_sub(began.elapsed()),
            Pace::Drip(_, every) => every,
        };
        if !wait.is_zero() && !shared.wait(wait) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Blocks until the client closes the connection or the server stops.
fn wait_for_the_end(mut stream: &TcpStream) {
    let mut buffer = [0; 256];
    while matches!(stream.read(&mut buffer), Ok(read) if read > 0) {}
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
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
    let mut request = Request {
        method,
        path: decode(path.trim_start_matches('/')),
        query: query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decode(name), decode(value)))
            .collect(),
        range: None,
        if_match: None,
        only_new: false,
        sum: None,
        content: None,
        wants_sum: false,
        acl: None,
        md5: None,
        blob: None,
        amazon: false,
        no_generation: false,
        authorization: None,
        close: false,
        asks: false,
        length: 0,
        body: Vec::new(),
    };
    loop {
        let mut line = String::new();
        if limited.read_line(&mut line)? == 0 {
            return Err(bad());
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(Some(request));
        }
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        let value = value.trim();
        let name = name.to_ascii_lowercase();
        request.amazon |= name.starts_with("x-amz-");
        match name.as_str() {
            "content-md5" => request.md5 = Some(value.to_owned()),
            "x-ms-blob-type" => request.blob = Some(value.to_owned()),
            "x-goog-if-generation-match" => request.no_generation = value == "0",
            "range" => request.range = parse_range(value),
            "if-match" => request.if_match = Some(value.to_owned()),
            "if-none-match" => request.only_new = value == "*",
            "x-amz-checksum-sha256" => request.sum = Some(value.to_owned()),
            "x-amz-content-sha256" => request.content = Some(value.to_owned()),
            "x-amz-checksum-mode" => request.wants_sum = value.eq_ignore_ascii_case("enabled"),
            "x-amz-acl" => request.acl = Some(value.to_owned()),
            "content-length" => request.length = value.parse().map_err(|_| bad())?,
            "transfer-encoding" => return Err(bad()),
            "expect" => request.asks = true,
            "authorization" => request.authorization = Some(value.to_owned()),
            "connection" => request.close = value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
}

/// Reads the body of a request as far as the fault allows. Returns `false` if the connection has to be closed.
fn read_body(
    reader: &mut BufReader<&TcpStream>,
    shared: &Shared,
    request: &mut Request,
    fault: Option<&Fault>,
) -> io::Result<bool> {
    if request.asks {
        reader
            .get_mut()
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let most = match fault {
        Some(Fault::CloseWithin(bytes) | Fault::StallWithin(bytes)) => *bytes,
        _ => u64::MAX,
    };
    let wanted = request.length.min(most);
    let read = reader.take(wanted).read_to_end(&mut request.body)?;
    shared.state().counts.received += read as u64;
    if (read as u64) < wanted {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match fault {
        Some(Fault::CloseWithin(_)) => return Ok(false),
        Some(Fault::StallWithin(_)) => {
            while shared.wait(Duration::from_millis(100)) {}
            return Ok(false);
        }
        Some(Fault::FlipWithin(at)) => {
            let len = request.body.len().max(1) as u64;
            let at = usize::try_from(at % len).unwrap_or_default();
            if let Some(byte) = request.body.get_mut(at) {
                *byte ^= 0x20;
            }
        }
        _ => {}
    }
    Ok(true)
}

fn parse_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (from, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() {
        None
    } else {
        Some(last.parse().ok()?)
    };
    Some((from.parse().ok()?, last))
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns the bytes of a range within an object; `None` if it starts after the end.
pub(super) fn within(range: (u64, Option<u64>), bytes: u64) -> Option<Range<u64>> {
    let end = range
        .1
        .map_or(bytes, |last| last.saturating_add(1).min(bytes));
    (range.0 < end).then_some(range.0..end)
}

/// Returns whether a fault applies to a successful answer.
pub(super) const fn spoils_success(fault: &Fault) -> bool {
    !matches!(
        fault,
        Fault::Status { .. } | Fault::CloseBefore | Fault::StallBefore | Fault::ErrorInside(_)
    )
}
