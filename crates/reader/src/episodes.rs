//! Finds the episodes of a dataset.

use std::borrow::Cow;

use shardmill_core::Error;
use shardmill_dataset::{
    DatasetProblem, KEY_COLUMN, LiveSamples, Schema, StreamOptions, View, ViewTarget,
};

use crate::reader::{Reader, ReaderOptions};

/// How many shards are fetched ahead of the one whose episodes are found.
const SHARDS_AHEAD: usize = 8;

/// Finds the episodes of a dataset: runs of consecutive stored samples with equal values in a column. Returns a view of
/// the first sample of each, for [`Window::with_episodes`](crate::Window::with_episodes).
///
/// Of keys of tar files (`__key__`), the part before the last slash or dot is compared. Of MDS shards on this machine
/// only the lengths and this column are read. Shards in a store are fetched whole, through the cache.
///
/// # Errors
///
/// [`DatasetProblem::WindowColumn`] if the column does not exist or cannot be compared; errors of reading the shards.
pub fn find_episodes(
    stream: &StreamOptions,
    column: &str,
    options: &ReaderOptions,
) -> Result<View, Error> {
    let stream = StreamOptions {
        view: None,
        with_deleted: true,
        ..stream.clone()
    };
    let options = ReaderOptions {
        window: None,
        ..options.clone()
    };
    let reader = Reader::open(&[stream], &options)?;
    let catalog = reader.catalog();
    let refused = |reason: String| DatasetProblem::WindowColumn.of_call(reason);
    let known = catalog.schemas().iter().flat_map(|schema| schema.names());
    if catalog.has_files() {
        return Err(DatasetProblem::WindowFiles
            .of_call("raw files have no episodes")
            .into());
    }
    if !known.into_iter().any(|name| name == column) {
        let reason = format!("no sample has the column `{column}`, which names the episodes");
        return Err(refused(reason).into());
    }
    if let Some(Schema::Text(_)) = catalog.schemas().first().map(AsRef::as_ref) {
        let reason = "samples of JSON and CSV shards are lines of text: select the first sample of each episode as a view";
        return Err(refused(reason.to_owned()).into());
    }
    let cache = reader.shard_cache();
    let engine = cache.engine()?;
    let mut firsts = Vec::new();
    let mut before: Option<Vec<u8>> = None;
    let mut ahead = 0;
    for shard in 0..catalog.len() {
        let wanted: Vec<usize> =
            (ahead.max(shard + 1)..(shard + 1 + SHARDS_AHEAD).min(catalog.len())).collect();
        ahead = wanted.last().map_or(ahead, |last| last + 1);
        if catalog.is_cached() {
            engine.preload(&wanted);
        }
        let open = engine.whole(shard)?;
        let first = catalog.first_sample(shard);
        let samples = catalog.first_sample(shard + 1) - first;
        for at in 0..samples {
            let value = open.value(catalog, at, column)?;
            let value = match value {
                Some(value) if column == KEY_COLUMN => {
                    Some(episode_of(&value).ok_or_else(|| {
                        let key = String::from_utf8_lossy(&value).into_owned();
                        refused(format!(
                            "the key `{key}` has no slash and no dot, so that it names no episode"
                        ))
                    })?)
                }
                value => value,
            };
            if at == 0 && shard == 0 || value.as_deref() != before.as_deref() {
                firsts.push(first + at);
                before = value.map(Cow::into_owned);
            }
        }
        open.check(catalog)?;
    }
    let digest = catalog.streams().first().map(|stream| stream.index_digest);
    let target = ViewTarget {
        digest: digest.unwrap_or_default(),
        live: LiveSamples::all(catalog.samples()),
    };
    Ok(View::new(&target, firsts))
}

/// Returns the part of a key before its last slash or dot.
fn episode_of<'a>(key: &Cow<'a, [u8]>) -> Option<Cow<'a, [u8]>> {
    let end = key.iter().rposition(|byte| matches!(byte, b'/' | b'.'))?;
    Some(match key {
        Cow::Borrowed(key) => Cow::Borrowed(key.get(..end)?),
        Cow::Owned(key) => Cow::Owned(key.get(..end)?.to_vec()),
    })
}
