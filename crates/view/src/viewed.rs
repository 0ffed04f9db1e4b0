//! What the server knows of a dataset: the answers of its requests, without the network.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use shardmill_core::parallel;
use shardmill_dataset::DatasetError;
use shardmill_tokenize::Tokenizer;

use crate::cached::cached;
use crate::media::{MEDIA_HEAD_BYTES, MediaKind, media_type};
use crate::message::{Request, Response, UNKNOWN};
use crate::metrics::Metrics;
use crate::preview::{PreviewSize, preview, raw, short_text};
use crate::program::Program;
use crate::samples::{SampleError, Samples};
use crate::selections::{Selection, Selections};

/// The most samples of one response.
const MAX_SAMPLES: u64 = 200;

/// The threads that read the samples of one response.
const READERS: usize = 12;

/// The time that the search for a key may take.
const SEARCH_TIME: Duration = Duration::from_secs(20);

/// The most samples in which frequent values are counted, and the most values that are returned.
const MAX_COUNTED: u64 = 100_000;
const MAX_FREQUENT: usize = 20;

/// The most bytes of a part of a sound or a video.
const MEDIA_PART_BYTES: u64 = 4 << 20;

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
    /// The folder of a cache.
    pub cache: Option<PathBuf>,
    /// The metrics of a running job.
    pub metrics: Option<Metrics>,
    /// Decodes columns of token ids.
    pub tokens: Option<Box<Tokenizer>>,
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
            "/api/media" => self.media(request),
            "/api/cache" => self.cache(),
            "/api/metrics" => self.metrics(),
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
            "samples": self.samples.count(),
            "shards": self.samples.shards(),
            "options": self.program.shown_options,
            "version": env!("CARGO_PKG_VERSION"),
            "kind": self.samples.kind(),
            "format": self.samples.format(),
            "view": self.program.view,
            "cache": self.cache,
            "metrics": self.metrics.as_ref().map(Metrics::url),
        })
    }

    /// Describes an error of samples.
    fn described(&self, error: SampleError) -> Json {
        match error {
            SampleError::Dataset(error) => (self.explain)(*error),
            SampleError::Described(described) => described,
        }
    }

    /// Returns the response for an error of samples.
    fn failed(&self, error: impl Into<SampleError>) -> Response {
        Response {
            status: 422,
            ..Response::json(&json!({ "error": self.described(error.into()) }))
        }
    }

    /// Describes the first samples of a range: as many as one read returns, but at least one. A sample that cannot be read has
    /// an error instead of fields.
    fn run(&self, numbers: Range<u64>, size: PreviewSize) -> Vec<Json> {
        let (first, is_one) = (numbers.start, numbers.end - numbers.start <= 1);
        let mut fields: BTreeMap<u64, Vec<Json>> = BTreeMap::new();
        let tokens = self.tokens.as_deref();
        let visited = self.samples.visit_run(numbers, &mut |number, field| {
            let fields = fields.entry(number).or_default();
            fields.push(preview(field, size, tokens));
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
                vec![json!({ "number": first, "error": self.described(error) })]
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
        let mut shown = self.run(run.clone(), size);
        let step = shown.len() as u64;
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
            let mut shown = Vec::new();
            while part.start < part.end {
                let run = self.run(part.clone(), size);
                part.start += run.len() as u64;
                shown.extend(run);
            }
            Ok::<_, Infallible>(shown)
        };
        let Ok(others) = parallel::map(parts.len(), READERS, read);
        shown.extend(others.into_iter().flatten());
        shown
    }

    /// Describes consecutive samples, of those that meet a condition if there is one.
    fn list(&self, request: &Request, is_gone: &dyn Fn() -> bool) -> Result<Response, Response> {
        let from = request.number("from", 0)?;
        let count = request.number("count", 1)?.min(MAX_SAMPLES);
        let size = match request.value("full") {
            Some("true") => PreviewSize::FULL,
            _ => PreviewSize::TILE,
        };
        let range = |samples: u64| from..from.saturating_add(count).min(samples);
        let numbers: Vec<u64> = match request.value("where") {
            None => range(self.samples.count()).collect(),
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
            let (command, file) = self.program.select(&query, is_gone)?;
            let target = self.samples.view_target();
            let location = &self.program.location;
            target
                .and_then(|target| Ok(Selection::new(command, file, target, location)?))
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
        let number = request.number("sample", 0)?;
        let mut found = None;
        let visited = self.samples.visit(number, &mut |field| {
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

    /// Returns a part of a sound or a video, for an element that plays it.
    fn media(&self, request: &Request) -> Result<Response, Response> {
        let column = request.value("column").unwrap_or_default();
        let number = request.number("sample", 0)?;
        let part = |range: Range<u64>| {
            let part = self.samples.part(number, column, &range);
            let part = part.map_err(|error| self.failed(error))?;
            part.ok_or_else(|| Response::refusal(404, "the sample has no such value"))
        };
        let (head, total) = part(0..MEDIA_HEAD_BYTES)?;
        let mime = match media_type(&head) {
            Some((MediaKind::Audio | MediaKind::Video, mime)) => mime,
            _ => return Err(Response::refusal(404, "the value is no sound or video")),
        };
        let Some(range) = request.range(total, MEDIA_PART_BYTES)? else {
            return Ok(Response::new(mime, part(0..total)?.0));
        };
        let (bytes, _) = part(range.clone())?;
        Ok(Response::part(mime, bytes, &range, total))
    }

    /// Returns which shards are in the folder of the cache.
    fn cache(&self) -> Result<Response, Response> {
        let folder = self.cache.as_ref();
        let folder = folder.ok_or_else(|| Response::refusal(404, "no --cache was given"))?;
        let found = cached(&self.samples, folder).map_err(|error| self.failed(error))?;
        Ok(Response::json(&found))
    }

    /// Returns the metrics of the running job.
    fn metrics(&self) -> Result<Response, Response> {
        let metrics = self.metrics.as_ref();
        let metrics = metrics.ok_or_else(|| Response::refusal(404, "no --metrics was given"))?;
        let text = metrics.fetch().map_err(|error| {
            Response::refusal(
                502,
                format!("{}: no metrics can be read: {error}", metrics.url()),
            )
        })?;
        Ok(Response::json(&json!({ "text": text })))
    }

    /// Searches for the first sample with a key.
    fn find(&self, request: &Request, is_gone: &dyn Fn() -> bool) -> Result<Response, Response> {
        let wanted = request.value("key").unwrap_or_default();
        let started = Instant::now();
        let mut numbers = request.number("from", 0)?..self.samples.count();
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
        let max = request.number("limit", 1000)?.min(MAX_COUNTED);
        let started = Instant::now();
        // The missing value has no text.
        let mut counts: BTreeMap<Option<String>, u64> = BTreeMap::new();
        let (mut rows, mut other) = (0_u64, 0_u64);
        let max = max.min(self.samples.count());
        while rows < max {
            let visited = self.samples.visit_run(rows..max, &mut |_, field| {
                if field.name == column {
                    match short_text(field) {
                        _ if field.is_null() => *counts.entry(None).or_default() += 1,
                        None => other += 1,
                        text => *counts.entry(text).or_default() += 1,
                    }
                }
            });
            rows += visited.map_err(|error| self.failed(error))?.len() as u64;
            if started.elapsed() > SEARCH_TIME || is_gone() {
                break;
            }
        }
        let mut counts: Vec<(Option<String>, u64)> = counts.into_iter().collect();
        // The sort is stable: equally frequent values are in the order of their text.
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.truncate(MAX_FREQUENT);
        let values: Vec<Json> = counts
            .iter()
            .map(|(text, count)| json!({ "text": text, "count": count }))
            .collect();
        Ok(Response::json(
            &json!({ "rows": rows, "values": values, "other": other }),
        ))
    }

    /// Returns the data of a report: the first samples, statistics and the shards. What commands printed is text,
    /// because JSON values would round large numbers.
    pub fn report(&self) -> Result<Json, Response> {
        let run = |verb: &str, query: &[(String, String)]| {
            let response = self.program.answer(verb, query, &|| false)?;
            Ok::<_, Response>(String::from_utf8_lossy(&response.body).into_owned())
        };
        let rows = [("limit".to_owned(), REPORT_ROWS.to_owned())];
        let shown = 0..self.samples.count().min(REPORT_SAMPLES);
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
            "ran": {
                "inspect": run("inspect", &[])?,
                "shards": run("shards", &[])?,
                "stats": run("stats", &rows)?,
            },
            "samples": self.describe(&shown.collect::<Vec<_>>(), PreviewSize::FULL),
            "media": media,
        }))
    }
}
