//! What the server knows of a dataset: the answers of its requests, without the network.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use shardmill_core::parallel;
use shardmill_dataset::DatasetError;

use crate::http::{Request, Response, UNKNOWN};
use crate::preview::{PreviewSize, preview, raw, short_text};
use crate::program::Program;
use crate::samples::Samples;
use crate::selections::{Selection, Selections};

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
    /// The samples that met the last conditions.
    pub selections: Selections,
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
            "/api/samples" => self.list(request, is_gone),
            "/api/select" => self.select(request, is_gone),
            "/api/view" => self.view(request, is_gone),
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

    /// Describes the first samples of a range: as many as one read returns, but at least one. A sample that cannot be read has
    /// an error instead of fields.
    fn run(&self, numbers: Range<u64>, size: PreviewSize) -> Vec<Json> {
        let (first, is_one) = (numbers.start, numbers.end - numbers.start <= 1);
        let mut fields: BTreeMap<u64, Vec<Json>> = BTreeMap::new();
        let visited = self.samples.visit_run(numbers, &mut |number, field| {
            let fields = fields.entry(number).or_default();
            fields.push(preview(field, size));
        });
        match visited {
            Ok(positions) => (first..)
                .zip(positions)
                .map(|(number, position)| {
                    json!({
                        "number": number,
                        "shard": position.shard,
                        "file": position.file,
                        "at": position.at,
                        "fields": fields.remove(&number).unwrap_or_default(),
                    })
                })
                .collect(),
            Err(error) if is_one => {
                vec![json!({ "number": first, "error": (self.explain)(error) })]
            }
            // One of them cannot be read: the first one is read alone, and the caller continues with the others.
            Err(_) => self.run(first..first + 1, size),
        }
    }

    /// Describes samples, given by ascending numbers. The first ones make the dataset cache what their neighbours share, such
    /// as offsets. The others are read at the same time, because each read may be a request to a store.
    fn describe(&self, numbers: &[u64], size: PreviewSize) -> Vec<Json> {
        let neighbours = numbers.chunk_by(|one, next| one + 1 == *next);
        let mut neighbours = neighbours.filter_map(|run| Some(*run.first()?..run.last()? + 1));
        let Some(mut run) = neighbours.next() else {
            return Vec::new();
        };
        let mut samples = self.run(run.clone(), size);
        let step = samples.len() as u64;
        run.start += step;
        let parts: Vec<Range<u64>> = std::iter::once(run)
            .chain(neighbours)
            .flat_map(|run| {
                let starts = run
                    .clone()
                    .step_by(usize::try_from(step).unwrap_or(usize::MAX));
                starts.map(move |start| start..run.end.min(start + step))
            })
            .collect();
        let read = |at: usize| {
            let mut part = parts.get(at).cloned().unwrap_or_default();
            let mut samples = Vec::new();
            while part.start < part.end {
                let run = self.run(part.clone(), size);
                part.start += run.len() as u64;
                samples.extend(run);
            }
            Ok::<_, Infallible>(samples)
        };
        let Ok(others) = parallel::map(parts.len(), READERS, read);
        samples.extend(others.into_iter().flatten());
        samples
    }

    /// Describes consecutive samples, of those that meet a condition if there is one.
    fn list(&self, request: &Request, is_gone: &dyn Fn() -> bool) -> Result<Response, Response> {
        let from = request.number("from", 0)?;
        let count = request.number("count", 1)?.min(MOST_SAMPLES);
        let size = match request.value("full") {
            Some("true") => PreviewSize::FULL,
            _ => PreviewSize::TILE,
        };
        let range = |samples: u64| from..from.saturating_add(count).min(samples);
        let numbers: Vec<u64> = match request.value("where") {
            None => range(self.samples.len()).collect(),
            Some(condition) => {
                let selection = self.selection(condition, is_gone)?;
                let range = range(selection.len());
                range.map(|at| selection.number(at)).collect()
            }
        };
        Ok(Response::json(
            &json!({ "samples": self.describe(&numbers, size) }),
        ))
    }

    /// Returns the samples that meet a condition.
    fn selection(
        &self,
        condition: &str,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Arc<Selection>, Response> {
        self.selections.get(condition, || {
            let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            let with_deleted = self.samples.with_deleted().to_string();
            let query = [
                pair("where", condition),
                pair("with-deleted", &with_deleted),
            ];
            let (command, file) = self.program.bytes("select", &query, is_gone)?;
            let target = self.samples.view_target();
            let location = &self.program.location;
            target
                .and_then(|target| Selection::new(command, file, target, location))
                .map_err(|error| self.failed(error))
        })
    }

    /// Returns how many samples meet a condition.
    fn select(&self, request: &Request, is_gone: &dyn Fn() -> bool) -> Result<Response, Response> {
        let condition = request.value("where").unwrap_or_default();
        let selection = self.selection(condition, is_gone)?;
        Ok(Response::json(&json!({
            "command": selection.command,
            "samples": selection.len(),
            "bytes": selection.file.len(),
        })))
    }

    /// Returns the view of the samples that meet a condition, for the browser to save.
    fn view(&self, request: &Request, is_gone: &dyn Fn() -> bool) -> Result<Response, Response> {
        let condition = request.value("where").unwrap_or_default();
        let selection = self.selection(condition, is_gone)?;
        Ok(Response::download("selection.view", selection.file.clone()))
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
        Ok(match mime {
            UNKNOWN => Response::download("value.bin", bytes),
            _ => Response::new(mime, bytes),
        })
    }

    /// Searches for the first sample with a key.
    fn find(&self, request: &Request, is_gone: &dyn Fn() -> bool) -> Result<Response, Response> {
        let wanted = request.value("key").unwrap_or_default();
        let started = Instant::now();
        let mut numbers = request.number("from", 0)?..self.samples.len();
        while numbers.start < numbers.end {
            let keys = self.samples.keys(numbers.clone());
            let keys = keys.map_err(|error| self.failed(error))?;
            if let Some(at) = keys.iter().position(|key| !key.is_empty() && key == wanted) {
                let number = numbers.start + at as u64;
                return Ok(Response::json(&json!({ "number": number })));
            }
            numbers.start += keys.len() as u64;
            if started.elapsed() > SEARCH_TIME || is_gone() {
                let next = numbers.start;
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
        let most = most.min(self.samples.len());
        while rows < most {
            let visited = self.samples.visit_run(rows..most, &mut |_, field| {
                if field.name == column {
                    match short_text(field) {
                        Some(text) => *counts.entry(text).or_default() += 1,
                        None => other += 1,
                    }
                }
            });
            rows += visited.map_err(|error| self.failed(error))?.len() as u64;
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
            "samples": self.describe(&shown.collect::<Vec<_>>(), PreviewSize::FULL),
            "media": media,
        }))
    }
}
