//! Serves `shardmill order --json` without a dataset. Each line of standard input is a configuration, each line of
//! standard output an answer. Answers are written as soon as they are ready, in any order.
//!
//! One thread for each core takes turns in reading a line, and answers it. The calling thread writes. So neither a fast
//! nor a slow client increases memory use: each thread has one line. The threads are not joined: if the client stops
//! reading, the process ends, although a thread may still wait for a line.

use std::io::{self, BufRead, BufReader, Read as _};
use std::panic::catch_unwind;
use std::sync::mpsc::{SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shardmill_core::{Error, ErrorKind, io_error_id, lock};
use shardmill_order::{EpochConfig, Request, orders, weights};

use crate::args;
use crate::error::{Shown, Stop};
use crate::output::{Exit, Output, count};

/// The maximum length of a line in bytes: enough for the sizes of ten million shards.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// The maximum number of sample ids in an answer: 256 MiB of them.
const MAX_IDS: u64 = 1 << 25;
/// The maximum number of picks from which a part of a stream is drawn: 1 GiB of them.
const MAX_PICKS: u64 = 1 << 28;

/// Answers the configurations on standard input with this number of threads.
pub fn run(jobs: Option<usize>, out: &mut Output) -> Result<Exit, Stop> {
    let jobs = args::jobs(jobs);
    let input = BufReader::with_capacity(1 << 16, io::stdin());
    let input = Arc::new(Mutex::new(Some(input)));
    let (answers, answered) = sync_channel(jobs);
    for job in 0..jobs {
        let (input, answers) = (Arc::clone(&input), answers.clone());
        let started = Builder::new().spawn(move || work(&input, &answers));
        match started {
            Ok(_) => {}
            Err(error) if job == 0 => {
                let (id, message) = (io_error_id(&error), "cannot start a thread");
                return Err(Error::new(ErrorKind::Resource, id, message)
                    .because(error)
                    .into());
            }
            // Existing threads can do the work.
            Err(_) => break,
        }
    }
    drop(answers);

    let mut failed = None;
    loop {
        let mut answer = answered.try_recv();
        if matches!(answer, Err(TryRecvError::Empty)) {
            // No answer is ready, so buffered answers are sent to the client.
            out.flush()?;
            answer = answered.recv().map_err(Into::into);
        }
        match answer {
            Ok(Ok(line)) => out.bytes(&line)?,
            Ok(Err(error)) => failed = Some(error),
            Err(_) => break,
        }
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(Exit::Done),
    }
}

/// A line from standard input.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Text(Vec<u8>),
    /// The length of a line that was too long and was not kept.
    TooLong(u64),
}

/// Returns the next line without its line end, or `None` at the end of the input.
fn next_line(input: &mut impl BufRead, max: u64) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut bytes = input.by_ref().take(max + 1).read_until(b'\n', &mut line)? as u64;
    let has_end = line.pop_if(|last| *last == b'\n').is_some();
    if bytes <= max || has_end {
        return Ok((bytes > 0).then_some(Line::Text(line)));
    }
    // The rest of a line that is too long is counted, but not kept.
    loop {
        let rest = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            rest => rest?,
        };
        let end = rest.iter().position(|byte| *byte == b'\n');
        let length = end.unwrap_or(rest.len());
        bytes += length as u64;
        input.consume(length + usize::from(end.is_some()));
        if end.is_some() || length == 0 {
            return Ok(Some(Line::TooLong(bytes)));
        }
    }
}

/// Answers lines until the input or the writer has ended. `input` is `None` after the end of the input. The error is that
/// standard input cannot be read any more.
fn work(input: &Mutex<Option<impl BufRead>>, answers: &SyncSender<Result<Vec<u8>, Error>>) {
    while let Some(line) = take_line(input).transpose() {
        let answer = match line {
            Ok(line) => Ok(answer(&line)),
            Err(error) => Err(Error::io("cannot read", error).about("standard input")),
        };
        if answers.send(answer).is_err() {
            break;
        }
    }
}

/// Returns the next line that is not empty. After the end and after an error, there are no more lines.
fn take_line(input: &Mutex<Option<impl BufRead>>) -> io::Result<Option<Line>> {
    let mut input = lock(input);
    while let Some(reader) = &mut *input {
        match next_line(reader, MAX_LINE_BYTES) {
            Ok(Some(Line::Text(text))) if text.trim_ascii().is_empty() => {}
            Ok(Some(line)) => return Ok(Some(line)),
            ended => {
                *input = None;
                return ended;
            }
        }
    }
    Ok(None)
}

#[derive(Deserialize)]
struct Id {
    #[serde(default)]
    id: Value,
}

#[derive(Serialize)]
struct Orders {
    id: Value,
    orders: Vec<Vec<Vec<u64>>>,
}

#[derive(Serialize)]
struct Refusal {
    id: Value,
    error: String,
}

/// Returns the answer to one line, with its line end.
fn answer(line: &Line) -> Vec<u8> {
    let text = match line {
        Line::Text(text) => text,
        Line::TooLong(bytes) => {
            let fact = format!(
                "the line has {} bytes, more than the {} that are read",
                count(*bytes),
                count(MAX_LINE_BYTES)
            );
            return refuse(Value::Null, &Error::usage("limit-line-bytes", fact));
        }
    };
    // serde would accept an array as the fields in order.
    if text.trim_ascii_start().first() != Some(&b'{') {
        let error = Error::usage("json-line", "the line is not a JSON object");
        return refuse(Value::Null, &error);
    }
    let id = match serde_json::from_slice::<Id>(text) {
        Ok(Id { id }) => id,
        Err(error) => {
            let fact = format!("the line is not a JSON object: {error}");
            return refuse(Value::Null, &Error::usage("json-line", fact));
        }
    };
    // A defect in one answer must not prevent a reply to this line or the answers to others.
    let found = catch_unwind(|| answer_one(text)).unwrap_or_else(|_| {
        let fact = "a bug in shardmill stopped this configuration";
        Err(Error::usage("bug", fact))
    });
    match found {
        Ok(orders) => rendered(&Orders { id, orders }),
        Err(error) => refuse(id, &error),
    }
}

fn answer_one(text: &[u8]) -> Result<Vec<Vec<Vec<u64>>>, Error> {
    let request: Request = serde_json::from_slice(text).map_err(|error| {
        let fact = format!("the line is not a configuration: {error}");
        Error::usage("config-line", fact)
    })?;
    let config = request.config()?;
    check_size(&config)?;
    orders(&config)
}

/// Checks the size of an answer before it is built in memory.
fn check_size(config: &EpochConfig) -> Result<(), Error> {
    let shares = weights::shares(&config.streams, config.epoch_size, config.shuffle.seed)?;
    let chosen: u64 = shares.iter().map(|share| share.choose).sum();
    let ids = chosen.saturating_mul(config.replication.unwrap_or(1));
    if ids > MAX_IDS {
        let fact = format!(
            "{} sample ids are more than the {} of one answer",
            count(ids),
            count(MAX_IDS)
        );
        return Err(Error::usage("limit-order-ids", fact));
    }
    let samples: u64 = shares.iter().map(|share| share.samples).sum();
    if samples / config.sampling.granularity.max(1) > MAX_PICKS {
        let fact = format!(
            "{} samples are too many to choose from; the limit is {}",
            count(samples),
            count(MAX_PICKS)
        );
        return Err(Error::usage("limit-order-samples", fact));
    }
    Ok(())
}

fn refuse(id: Value, error: &Error) -> Vec<u8> {
    rendered(&Refusal {
        id,
        error: format!("error{}", Shown::from(error)),
    })
}

fn rendered(answer: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists of them can always be serialized.
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], max: u64, buffer: usize) -> Vec<Line> {
        let mut input = BufReader::with_capacity(buffer, text);
        let mut found = Vec::new();
        while let Some(line) = next_line(&mut input, max).unwrap() {
            found.push(line);
        }
        found
    }

    #[test]
    fn overlong_lines_are_reported_as_too_long() {
        let text = |text: &str| Line::Text(text.as_bytes().to_vec());
        for buffer in [1, 3, 100] {
            assert_eq!(lines(b"", 4, buffer), []);
            assert_eq!(lines(b"\n", 4, buffer), [text("")]);
            assert_eq!(
                lines(b"a\n\nbcde\nabcde\nab", 4, buffer),
                [
                    text("a"),
                    text(""),
                    text("bcde"),
                    Line::TooLong(5),
                    text("ab")
                ]
            );
            assert_eq!(lines(b"abcdef", 4, buffer), [Line::TooLong(6)]);
        }
    }

    fn answered(text: &str) -> Value {
        let line = answer(&Line::Text(text.as_bytes().to_vec()));
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        serde_json::from_slice(&line).unwrap()
    }

    const SMALL: &str = r#"{"id": "a", "streams": [{"shards": [4, 3]}], "batch_size": 2, "nodes": 1, "ranks_per_node": 2, "workers_per_rank": 2}"#;

    #[test]
    fn answer_repeats_the_request_id() {
        let expected =
            serde_json::json!({"id": "a", "orders": [[[0, 1], [2, 3]], [[4, 5], [6, 6]]]});
        let found = answered(SMALL);
        assert_eq!(found["id"], expected["id"]);
        assert_eq!(found["orders"].as_array().unwrap().len(), 2);
        for (text, id, error) in [
            ("{", Value::Null, "error[json-line]: "),
            ("[1]", Value::Null, "error[json-line]: "),
            ("null", Value::Null, "error[json-line]: "),
            (
                r#"{"id": 7}"#,
                7.into(),
                "error[config-line]: the line is not a configuration: missing field `streams`",
            ),
            (r#"{"id": 7, "id": 8}"#, Value::Null, "error[json-line]: "),
            (
                &SMALL.replace("[4, 3]", "[4000000000]"),
                "a".into(),
                "error[config-value]: shards: is 4000000000, which is not at most 2^31 samples in a shard",
            ),
            (
                &SMALL.replace("[4, 3]", "[40000000]"),
                "a".into(),
                "error[limit-order-ids]: 40,000,000 sample ids are more than the 33,554,432 of one answer",
            ),
            (
                &SMALL.replace("[4, 3]", "[1000000000], \"choose\": 5"),
                "a".into(),
                "error[limit-order-samples]: ",
            ),
            (
                &SMALL.replace("\"nodes\"", "\"replication\": 3, \"nodes\""),
                "a".into(),
                "error[config-value]: replication: is 3, which is not a divisor",
            ),
            (
                &SMALL.replace(": 1", ": 0"),
                "a".into(),
                "error[config-value]: nodes: is 0, which is not from 1 to 1048576",
            ),
        ] {
            let found = answered(text);
            assert_eq!(found["id"], id, "{text}");
            let message = found["error"].as_str().unwrap();
            assert!(message.starts_with(error), "{text}: {message}");
        }
        let long: Value = serde_json::from_slice(&answer(&Line::TooLong(100_000_000))).unwrap();
        assert_eq!(
            long["error"],
            "error[limit-line-bytes]: the line has 100,000,000 bytes, more than the 67,108,864 that are read"
        );
    }
}
