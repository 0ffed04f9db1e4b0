//! What the server knows of a dataset: the answers of its requests, without the network.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use shardmill_core::parallel;
use shardmill_dataset::DatasetError;

use crate::http::{Request, Response};
use crate::preview::{PreviewSize, UNKNOWN, preview, raw, short_text};
use crate::program::Program;
use crate::samples::Samples;

/// The most samples of one response.
const MOST_SAMPLES: u64 = 200;

/// The threads that read the samples of one response.
const READERS: usize = 12;

/// The time that the search for a key may take.
const SEARCH_TIME: Duration = Duration::from_secs(20);

/// The most samples in which frequent values are counted, and the most values that are returned.
const MOST_COUNTED: u64 = 100_000;
const MOST_FREQUENT: usize = 20;

/// The samples of a report.
const REPORT_SAMPLES: u64 = 24;

/// The rows that a report measures.
const REPORT_ROWS: &str = "10000";

/// The most bytes of images and sounds in a report, of one and of all.
const REPORT_MEDIA_BYTES: (usize, usize) = (1 << 20, 16 << 20);

/// A dataset that is shown.
#[derive(Debug)]
pub struct Viewed {
    /// Its samples.
    pub samples: Samples,
    /// Answers all questions that are not about single samples.
    pub program: Program,
    /// Describes an error as the command line does.
    pub explain: fn(DatasetError) -> Json,
}

impl Viewed {
    /// Answers a request for data. `is_gone` returns whether the reader has left.
    pub fn answer(
        &self,
        request: &Request,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Response, Response> {
        match request.path.as_str() {
            "/api/dataset" => Ok(Response::json(&self.facts())),
            "/api/samples" => self.list(request),
            "/api/raw" => self.raw(request),
            "/api/find" => self.find(request, is_gone),
            "/api/frequent" => self.frequent(request, is_gone),
            path => match path.strip_prefix("/api/run/") {
                Some(verb) => self.program.answer(verb, &request.query, is_gone),
                None => Err(Response::refusal(404, "there is no such page")),
            },
        }
    }

    fn facts(&self) -> Json {
        json!({
            "location": self.program.location,
            "samples": self.samples.len(),
            "shards": self.samples.shards(),
            "options": self.program.shown_options,
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// Returns the response for an error of the dataset.
    fn failed(&self, error: DatasetError) -> Response {
        Response {
            status: 422,
            ..Response::json(&json!({ "error": (self.explain)(error) }))
        }
    }

    /// Describes one sample. A sample that cannot be read has an error instead of fields.
    fn sample(&self, number: u64, size: PreviewSize) -> Json {
        let mut fields = Vec::new();
        let position = self
            .samples
            .visit(number, &mut |field| fields.push(preview(field, size)));
        match position {
            Ok(position) => json!({
                "number": number,
                "shard": position.shard,
                "file": position.file,
                "at": position.at,
                "fields": fields,
            }),
            Err(error) => json!({ "number": number, "error": (self.explain)(error) }),
        }
    }

    /// Describes consecutive samples. The first one makes the dataset cache what its neighbours share, such as the headers
    /// of a shard. The others are read at the same time, because each may be a request to a store.
    fn consecutive(&self, numbers: Range<u64>, size: PreviewSize) -> Vec<Json> {
        let mut numbers: Vec<u64> = numbers.collect();
        let rest = numbers.split_off(numbers.len().min(1));
        let mut samples: Vec<Json> = numbers.iter().map(|n| self.sample(*n, size)).collect();
        let read = |at: usize| Ok::<_, Infallible>(rest.get(at).map(|n| self.sample(*n, size)));
        let Ok(others) = parallel::map(rest.len(), READERS, read);
        samples.extend(others.into_iter().flatten());
        samples
    }

    /// Describes consecutive samples.
    fn list(&self, request: &Request) -> Result<Response, Response> {
        let from = request.number("from", 0)?;
        let count = request.number("count", 1)?.min(MOST_SAMPLES);
        let size = match request.value("full") {
            Some("true") => PreviewSize::FULL,
            _ => PreviewSize::TILE,
        };
        let end = from.saturating_add(count).min(self.samples.len());
        Ok(Response::json(
            &json!({ "samples": self.consecutive(from..end, size) }),
        ))
    }

    /// Returns the bytes of one value, with a type that the browser can show or only save.
    fn raw(&self, request: &Request) -> Result<Response, Response> {
        let column = request.value("column").unwrap_or_default();
        let item = usize::try_from(request.number("item", 0)?).unwrap_or(usize::MAX);
        let mut found = None;
        let visited = self
            .samples
            .visit(request.number("sample", 0)?, &mut |field| {
                if field.name == column && found.is_none() {
                    found = raw(field, item);
                }
            });
        visited.map_err(|error| self.failed(error))?;
        let (mime, bytes) =
            found.ok_or_else(|| Response::refusal(404, "the sample has no such value"))?;
        let mut response = Response::new(mime, bytes);
        if mime == UNKNOWN {
            let disposition = "attachment; filename=\"value.bin\"".to_owned();
            response.headers.push(("Content-Disposition", disposition));
        }
        Ok(response)
    }

    /// Searches for the first sample with a key.
    fn find(&self, request: &Request, is_gone: &dyn Fn() -> bool) -> Result<Response, Response> {
        let wanted = request.value("key").unwrap_or_default();
        let started = Instant::now();
        for number in request.number("from", 0)?..self.samples.len() {
            let key = self.samples.key(number);
            if key.map_err(|error| self.failed(error))?.as_deref() == Some(wanted) {
                return Ok(Response::json(&json!({ "number": number })));
            }
            if started.elapsed() > SEARCH_TIME || is_gone() {
                let next = number + 1;
                return Ok(Response::json(&json!({ "number": null, "next": next })));
            }
        }
        Ok(Response::json(&json!({ "number": null })))
    }

    /// Counts the values of a column in the first samples, and returns the most frequent ones.
    fn frequent(
        &self,
        request: &Request,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Response, Response> {
        let column = request.value("column").unwrap_or_default();
        let most = request.number("limit", 1000)?.min(MOST_COUNTED);
        let started = Instant::now();
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let (mut rows, mut other) = (0_u64, 0_u64);
        for number in 0..most.min(self.samples.len()) {
            let visited = self.samples.visit(number, &mut |field| {
                if field.name == column {
                    match short_text(field) {
                        Some(text) => *counts.entry(text).or_default() += 1,
                        None => other += 1,
                    }
                }
            });
            visited.map_err(|error| self.failed(error))?;
            rows += 1;
            if started.elapsed() > SEARCH_TIME || is_gone() {
                break;
            }
        }
        let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
        // The sort is stable: equally frequent values are in the order of their text.
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.truncate(MOST_FREQUENT);
        let values: Vec<Json> = counts
            .iter()
            .map(|(text, count)| json!({ "text": text, "count": count }))
            .collect();
        Ok(Response::json(
            &json!({ "rows": rows, "values": values, "other": other }),
        ))
    }

    /// Returns the data of a report: the first samples, statistics and the shards.
    pub fn report(&self) -> Result<Json, Response> {
        let run = |verb: &str, query: &[(String, String)]| -> Result<Json, Response> {
            let response = self.program.answer(verb, query, &|| false)?;
            serde_json::from_slice(&response.body)
                .map_err(|_| Response::refusal(500, "the command did not print JSON"))
        };
        let rows = [("limit".to_owned(), REPORT_ROWS.to_owned())];
        let shown = 0..self.samples.len().min(REPORT_SAMPLES);
        let mut left = REPORT_MEDIA_BYTES.1;
        let mut media = serde_json::Map::new();
        for number in shown.clone() {
            // An error is in the description of the sample.
            let _ = self.samples.visit(number, &mut |field| {
                let Some((mime, bytes)) = raw(field, 0).filter(|(mime, _)| *mime != UNKNOWN) else {
                    return;
                };
                if bytes.len() <= REPORT_MEDIA_BYTES.0.min(left) {
                    left -= bytes.len();
                    let url = format!("data:{mime};base64,{}", STANDARD.encode(&bytes));
                    media.insert(format!("{number}/{}", field.name), url.into());
                }
            });
        }
        Ok(json!({
            "dataset": self.facts(),
            "inspect": run("inspect", &[])?,
            "shards": run("shards", &[])?,
            "stats": run("stats", &rows)?,
            "samples": self.consecutive(shown, PreviewSize::FULL),
            "media": media,
        }))
    }
}
