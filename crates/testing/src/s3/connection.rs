//! Serves one connection at the configured speed.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::answer::{Answer, End};
use super::fault::{Asked, Fault};
use super::handler::answer;
use super::request::Request;
use super::settings::Settings;
use super::shared::Shared;

/// The bytes written at once if the bandwidth is limited.
const STEP: usize = 32 << 10;

/// Serves a connection until either side closes it.
pub(super) fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(mut request) = Request::read(&mut reader)? {
        let settings = shared.settings();
        let closes = request
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let key = shared.flavor.key(&request, shared.objects.bucket());
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
        if !send(stream, transfer, &settings, &request, answer)? || closes {
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
    let action = shared.flavor.action(request, key);
    let key = key.unwrap_or_default();
    counts.heads += u64::from(request.method == "HEAD");
    *counts.by_action.entry(action).or_default() += 1;
    counts.signed += u64::from(request.header("authorization").is_some());
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
            .range()
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
    settings: &Settings,
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

/// Reads the body of a request as far as the fault allows. Returns `false` if the connection has to be closed.
fn read_body(
    reader: &mut BufReader<&TcpStream>,
    shared: &Shared,
    request: &mut Request,
    fault: Option<&Fault>,
) -> io::Result<bool> {
    if request.header("expect").is_some() {
        reader
            .get_mut()
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let max = match fault {
        Some(Fault::CloseWithin(bytes) | Fault::StallWithin(bytes)) => *bytes,
        _ => u64::MAX,
    };
    let wanted = request.length.min(max);
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
