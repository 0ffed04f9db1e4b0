//! The catalog of a mix of streams: numbers their shards and samples consecutively, and returns the entry, the schema and the
//! windows of each.

use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use shardmill_core::{Limits, escape};
use shardmill_mds::HashAlgo;
use shardmill_order::StreamConfig;

use crate::computed::ComputeShards;
use crate::entry::{Entry, Shards, check_hashes_present};
use crate::error::DatasetError;
use crate::files::{FileList, KnownFiles};
use crate::mapped::Piece;
use crate::problem::{DatasetProblem, ValueLocation};
use crate::schema::Schema;
use crate::stream::{CatalogOptions, Stream, StreamOptions, open_stream};
use crate::tar::{Subsets, TarProblem, TarSample};
use crate::view::ViewTarget;
use crate::windows::{StreamWindows, Window};

/// The shards of all streams. Sample numbers exclude samples that are deleted, or that no view selects.
#[derive(Debug)]
pub struct Catalog {
    streams: Vec<Stream>,
    /// Whether any stream has samples that are not read.
    has_deleted: bool,
    /// The number of the first sample of each shard, then the number of samples.
    starts: Vec<u64>,
    /// For each range of `1 << bucket_bits` samples, the shard that contains its first sample.
    buckets: Vec<u32>,
    bucket_bits: u32,
    /// The distinct sets of columns, then for each shard the position of its set.
    schemas: Vec<Arc<Schema>>,
    schema_of: Vec<u32>,
    subsets: Subsets,
    /// The window of each sample, and the episodes of each stream.
    windows: Option<(Arc<Window>, Vec<StreamWindows>)>,
    limits: Limits,
}

impl Catalog {
    /// Opens all streams.
    ///
    /// # Errors
    ///
    /// [`DatasetError`] for the first stream that cannot be opened.
    pub fn open(streams: &[StreamOptions], options: &CatalogOptions) -> Result<Self, DatasetError> {
        if streams.is_empty() {
            return Err(DatasetProblem::Streams.of_call("there is no stream to read"));
        }
        let mut opened: Vec<Stream> = Vec::with_capacity(streams.len());
        let mut windows = Vec::new();
        let mut first_shard = 0;
        for (number, stream) in streams.iter().enumerate() {
            let (stream, own) = open_stream(stream, (number, first_shard), options)?;
            windows.extend(own);
            first_shard += stream.shards.len();
            if let Some(algo) = stream.validate {
                check_hashes_present(stream.shards.iter(), algo)?;
            }
            opened.push(stream);
        }
        let mut catalog = Self::new(opened, options)?;
        if let Some(window) = &options.window {
            window.check(&catalog.schemas)?;
            catalog.windows = Some((Arc::clone(window), windows));
        }
        let wanted = streams
            .iter()
            .filter_map(|stream| stream.files.as_ref()?.options.expect.as_ref());
        for expected in wanted {
            let found = catalog.files_digest().unwrap_or_default();
            if found != *expected {
                let trees = catalog.streams.iter();
                let trees = trees.filter(|stream| matches!(stream.shards, Shards::Files(_)));
                let names: Vec<&str> = trees.map(|stream| stream.shown.as_str()).collect();
                let reason = format!(
                    "the list of files has the digest {found}, not {expected}: files were added or removed, or their lengths changed"
                );
                return Err(DatasetProblem::FilesDigest.at(&*names.join(", "), reason));
            }
        }
        Ok(catalog)
    }

    fn new(streams: Vec<Stream>, options: &CatalogOptions) -> Result<Self, DatasetError> {
        let shards = streams.iter().map(|stream| stream.shards.len()).sum();
        let mut starts = Vec::with_capacity(shards + 1);
        let mut samples = 0_u64;
        let mut schemas: Vec<Arc<Schema>> = Vec::new();
        let mut schema_of = Vec::with_capacity(shards);
        for stream in &streams {
            let null_masks = stream.computed().map_or(&[][..], |own| &own.null_masks);
            let mut last: Option<(Entry<'_>, u32)> = None;
            for (size, entry) in stream.shard_sizes().zip(stream.shards.iter()) {
                starts.push(samples);
                samples = samples.saturating_add(size);
                // PERF: neighbouring shards mostly share their columns.
                let same = last.filter(|(before, _)| entry.shares_columns(*before));
                let schema_index = same.map_or_else(
                    || {
                        let schema = Schema::new(entry).with_null_masks(null_masks);
                        let known = schemas.iter().rposition(|known| **known == schema);
                        let schema_index = known.unwrap_or_else(|| {
                            schemas.push(Arc::new(schema));
                            schemas.len() - 1
                        });
                        u32::try_from(schema_index).unwrap_or(u32::MAX)
                    },
                    |(_, schema_index)| schema_index,
                );
                last = Some((entry, schema_index));
                schema_of.push(schema_index);
            }
        }
        starts.push(samples);
        // About as many buckets as shards, so that a lookup takes one or two steps.
        let per_shard = samples / (shards.max(1) as u64);
        let bucket_bits = per_shard.max(1).ilog2();
        let mut buckets = Vec::new();
        let mut shard = 0_usize;
        let mut start = 0_u64;
        while start < samples {
            while starts.get(shard + 1).is_some_and(|next| *next <= start) {
                shard += 1;
            }
            buckets.push(u32::try_from(shard).unwrap_or(u32::MAX));
            start = start.saturating_add(1 << bucket_bits);
        }
        Ok(Self {
            has_deleted: streams.iter().any(|stream| !stream.samples.live.is_all()),
            streams,
            starts,
            buckets,
            bucket_bits,
            schemas,
            schema_of,
            subsets: Subsets::default(),
            windows: None,
            limits: options.limits.clone(),
        })
    }

    /// Returns the number of shards of all streams.
    pub fn len(&self) -> usize {
        self.schema_of.len()
    }

    /// Returns whether there are no shards.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the error for a shard whose file changed while it was read.
    #[must_use]
    pub fn changed(&self, shard: usize) -> DatasetError {
        DatasetError::shard_changed(self.location(shard))
    }

    /// Returns the error for a shard that no stream has.
    #[must_use]
    pub fn no_shard(&self, shard: usize) -> DatasetError {
        let shards = self.len();
        let reason = format!("there is no shard {shard}: the streams have {shards}");
        DatasetProblem::NoShard.of_call(reason)
    }

    /// Returns the number of samples of all streams.
    pub fn samples(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns whether shards of any stream are fetched from a source, or decompressed before they are read.
    pub fn is_cached(&self) -> bool {
        self.streams
            .iter()
            .any(|stream| stream.origin.is_some() || stream.shards.iter().any(Entry::is_packed))
    }

    /// Returns the streams, in the order of the mix.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Returns the limits for files and indexes.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the hash that a shard must match before it is used.
    pub fn validate(&self, shard: usize) -> Option<HashAlgo> {
        self.stream_of(shard)?.0.validate
    }

    /// Returns the stream of a shard, and the number of the shard in it.
    pub fn stream_of(&self, shard: usize) -> Option<(&Stream, usize)> {
        let stream = self.streams.get(self.stream_number(shard)?)?;
        let number = shard - stream.first_shard;
        (number < stream.shards.len()).then_some((stream, number))
    }

    /// Returns the number of the stream of a shard. Of several streams with the same first shard, all but the last are
    /// empty.
    fn stream_number(&self, shard: usize) -> Option<usize> {
        let starts_before = |stream: &Stream| stream.first_shard <= shard;
        self.streams.partition_point(starts_before).checked_sub(1)
    }

    /// Returns what computes a shard, and its number in its stream; `None` if the shard is a file.
    pub fn computed(&self, shard: usize) -> Option<(&dyn ComputeShards, usize)> {
        let (stream, number) = self.stream_of(shard)?;
        Some((&*stream.computed()?.shards, number))
    }

    /// Returns whether a shard is computed.
    pub fn is_computed(&self, shard: usize) -> bool {
        self.computed(shard).is_some()
    }

    /// Returns the index entry of a shard.
    pub fn entry(&self, shard: usize) -> Option<Entry<'_>> {
        let (stream, number) = self.stream_of(shard)?;
        stream.shards.get(number)
    }

    /// Returns the schema of a sample. Samples of tar files and raw files are also encoded as MDS samples, and appended
    /// to `out`.
    pub fn encode(
        &self,
        shard: usize,
        sample: Piece<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Arc<Schema>, TarProblem> {
        let Some(schema) = self.schema(shard) else {
            return Err(TarProblem::Absent);
        };
        if !schema.needs_encoding() {
            return Ok(Arc::clone(schema));
        }
        if let Some(Entry::File(file, form)) = self.entry(shard) {
            let local = self.file_path(shard).unwrap_or_default();
            let path = &file.info.basename;
            for value in form.values(sample.bytes, &local, path) {
                let bytes = value.len() as u64;
                let length = u32::try_from(bytes).map_err(|_| TarProblem::Large { bytes })?;
                out.extend_from_slice(&length.to_le_bytes());
            }
            for value in form.values(sample.bytes, &local, path) {
                out.extend_from_slice(value);
            }
            return Ok(Arc::clone(schema));
        }
        let sample = TarSample::read(sample.begin, sample.bytes, &self.limits)?;
        let schema = match schema.as_ref() {
            Schema::Fields(fields) => self.subsets.schema_of(fields, &sample)?,
            _ => Arc::clone(schema),
        };
        sample.encode(&schema, out)?;
        Ok(schema)
    }

    /// Returns the local path of a raw file when it is on this machine; `None` for other shards.
    pub fn file_path(&self, shard: usize) -> Option<String> {
        let (stream, number) = self.stream_of(shard)?;
        let file = stream.shards.get(number)?.raw_file()?;
        let path = stream.local.path_of(&file.info.basename);
        // INVARIANT: the path is UTF-8; this was checked when the stream was opened.
        path.into_os_string().into_string().ok()
    }

    /// Returns the sample number of a raw file, by its path in the first stream that is a tree of raw files.
    pub fn find_file(&self, path: &str) -> Result<u64, DatasetError> {
        let mut trees = self
            .streams
            .iter()
            .filter_map(|stream| match &stream.shards {
                Shards::Files(files) => Some((stream, files)),
                _ => None,
            });
        let (stream, files) = trees.next().ok_or_else(DatasetError::no_tree)?;
        match files.find(path) {
            Some(number) => Ok(self.first_sample(stream.first_shard + number)),
            None => {
                let reason = format!("the list of {} has no such file", escape(&stream.shown));
                Err(DatasetProblem::NoSuchFile.at(path, reason))
            }
        }
    }

    /// Returns whether any stream is a tree of raw files.
    pub fn has_files(&self) -> bool {
        let is_tree = |stream: &Stream| matches!(stream.shards, Shards::Files(_));
        self.streams.iter().any(is_tree)
    }

    /// Returns what views of a stream refer to; `None` if there is no such stream.
    pub fn view_target(&self, stream: usize) -> Option<ViewTarget> {
        let stream = self.streams.get(stream)?;
        Some(ViewTarget {
            digest: stream.shards.view_digest().unwrap_or(stream.index_digest),
            live: stream.samples.live.clone(),
        })
    }

    /// Returns the list of the files of a stream; `None` if it is neither a tree of raw files nor computed from files.
    pub fn known_files(&self, stream: usize) -> Option<KnownFiles> {
        self.streams.get(stream)?.files().map(FileList::known)
    }

    /// Returns a digest of the paths and lengths of all listed files, which is equal for copies of the same trees.
    /// Returns `None` if no files were listed.
    pub fn files_digest(&self) -> Option<String> {
        let mut hasher = Sha256::new();
        let mut any = false;
        for (number, stream) in self.streams.iter().enumerate() {
            if let Some(files) = stream.files() {
                any = true;
                hasher.update((number as u64).to_le_bytes());
                hasher.update((files.len() as u64).to_le_bytes());
                files.hash_into(&mut hasher);
            }
        }
        any.then(|| {
            let digest = hasher.finalize();
            digest.iter().map(|byte| format!("{byte:02x}")).collect()
        })
    }

    /// Returns the error for a sample that cannot be encoded.
    pub fn refused(&self, shard: usize, at: u64, problem: TarProblem) -> DatasetError {
        let location = self.location(shard);
        let number = self.number_of(shard, at);
        match problem {
            TarProblem::Read(source) => DatasetError::tar(location, number, source),
            TarProblem::Fields { key, fields } => {
                let names: Vec<String> = fields
                    .iter()
                    .map(|field| format!("`{}`", escape(field)))
                    .collect();
                let reason = format!(
                    "the sample `{}` has the fields {}, and the index says otherwise",
                    escape(&key),
                    names.join(", ")
                );
                let sample = Some(number);
                DatasetProblem::TarFields.at(ValueLocation { sample, ..location }, reason)
            }
            TarProblem::Large { bytes } => DatasetError::out_of_memory(bytes),
            TarProblem::Absent => DatasetError::shard_changed(location),
        }
    }

    /// Returns the columns of a shard.
    pub fn schema(&self, shard: usize) -> Option<&Arc<Schema>> {
        let schema_index = usize::try_from(*self.schema_of.get(shard)?).ok()?;
        self.schemas.get(schema_index)
    }

    /// Returns the distinct sets of columns of all shards.
    pub fn schemas(&self) -> &[Arc<Schema>] {
        &self.schemas
    }

    /// Returns the number of the first sample of a shard, over all streams.
    pub fn first_sample(&self, shard: usize) -> u64 {
        self.starts
            .get(shard)
            .copied()
            .unwrap_or_else(|| self.samples())
    }

    /// Returns the number of the sample at position `at` of a shard, over all streams. For a deleted sample it is the
    /// number of the next live one.
    pub fn number_of(&self, shard: usize, at: u64) -> u64 {
        let before = match self.stream_of(shard) {
            Some((stream, number)) => stream.samples.live_before(number, at),
            None => at,
        };
        self.first_sample(shard).saturating_add(before)
    }

    /// Returns whether the sample at position `at` of a shard is live.
    pub fn has_sample(&self, shard: usize, at: u64) -> bool {
        let stream = self.stream_of(shard);
        stream.is_none_or(|(stream, number)| stream.samples.has(number, at))
    }

    /// Returns the shard of a sample, and the position of the sample in it.
    #[inline]
    pub fn locate(&self, sample: u64) -> Option<(usize, u64)> {
        let bucket = usize::try_from(sample >> self.bucket_bits).ok()?;
        let mut shard = usize::try_from(*self.buckets.get(bucket)?).ok()?;
        let mut start = *self.starts.get(shard)?;
        loop {
            let next = *self.starts.get(shard + 1)?;
            if sample < next {
                let number = sample - start;
                if !self.has_deleted {
                    return Some((shard, number));
                }
                let (stream, own) = self.stream_of(shard)?;
                return Some((shard, stream.samples.stored_at(own, number)));
            }
            shard += 1;
            start = next;
        }
    }

    /// Returns the neighbours that are read with each sample.
    pub fn window(&self) -> Option<&Arc<Window>> {
        self.windows.as_ref().map(|(window, _)| window)
    }

    /// Calls `found` for each offset of the window of a sample: with the shard, the position in it, and whether it is
    /// padding. Without a window, only the sample itself is found.
    pub fn each_neighbour(
        &self,
        (shard, at): (usize, u64),
        mut found: impl FnMut(usize, u64, bool),
    ) {
        let Some((window, windows, first)) = self.windows_of(shard) else {
            return found(shard, at, false);
        };
        windows.each(window, (shard - first, at), |shard, at, padded| {
            found(first + shard, at, padded);
        });
    }

    /// Returns the shards that the windows of the samples of a shard need.
    pub fn window_shards(&self, shard: usize) -> Range<usize> {
        let samples = self.first_sample(shard)..self.first_sample(shard + 1);
        let own = shard..shard + 1;
        let (Some((window, windows, first)), Some(last)) =
            (self.windows_of(shard), samples.end.checked_sub(1))
        else {
            return own;
        };
        let (Some((_, start)), Some((_, end))) = (self.locate(samples.start), self.locate(last))
        else {
            return own;
        };
        if samples.is_empty() {
            return own;
        }
        let reach = windows.reach(window, (shard - first, start), (shard - first, end));
        first + reach.start..first + reach.end
    }

    /// Returns the window, the episodes of the stream of a shard, and the first shard of the stream.
    fn windows_of(&self, shard: usize) -> Option<(&Window, &StreamWindows, usize)> {
        let (window, windows) = self.windows.as_ref()?;
        let number = self.stream_number(shard)?;
        let first = self.streams.get(number)?.first_shard;
        Some((window, windows.get(number)?, first))
    }

    /// Returns the location of a shard in messages: its file, with the root of its stream. A raw file of a single
    /// stream is shown by its listed name alone.
    pub fn location(&self, shard: usize) -> ValueLocation {
        if let Some((computed, number)) = self.computed(shard) {
            return ValueLocation::file(&computed.name(number));
        }
        let file = self.stream_of(shard).and_then(|(stream, number)| {
            let entry = stream.shards.get(number)?;
            let name = &entry.parts().next()?.stored().basename;
            // A raw file of a single stream is shown as it was listed.
            let is_file = matches!(entry, Entry::File(..));
            Some(if is_file && self.streams.len() == 1 {
                name.to_string()
            } else {
                format!("{}/{name}", stream.root.trim_end_matches('/'))
            })
        });
        ValueLocation::file(file.as_deref().unwrap_or("?"))
    }

    /// Returns the configurations of the streams for `shardmill-order`.
    pub fn stream_configs(&self) -> Vec<StreamConfig> {
        let config = |stream: &Stream| {
            let sizes: Vec<u64> = stream.shard_sizes().collect();
            let config = StreamConfig::new(&sizes).with_weight(stream.weight);
            config.with_deleted(stream.samples.live.digest())
        };
        self.streams.iter().map(config).collect()
    }
}
