//! The errors of datasets.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use shardmill_core::{
    Diagnostic, ErrorKind, FileClass, LimitExceeded, NameError, Unfinished, escape,
};
use shardmill_mds::{CodecError, HashAlgo, MdsError};
use shardmill_storage::StorageError;
use shardmill_webdataset::WebdatasetError;

/// A place in a dataset: a file, and optionally a sample and a column of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, relative to the dataset.
    pub file: String,
    /// The number of the sample in the dataset, from 0, if the place is one sample.
    pub sample: Option<u64>,
    /// The column, if the place is one value.
    pub column: Option<String>,
}

impl Place {
    /// Returns the place of a whole file of a shard.
    #[must_use]
    pub fn file(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            sample: None,
            column: None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.file))?;
        if let Some(sample) = self.sample {
            write!(f, " sample {sample}")?;
        }
        if let Some(column) = &self.column {
            write!(f, " column `{}`", escape(column))?;
        }
        Ok(())
    }
}

/// An error of opening or reading a dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// A file or directory could not be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A pattern of tar files that cannot be expanded.
    #[error(transparent)]
    Braces(#[from] WebdatasetError),
    /// A pattern whose tar files are in several stores or buckets.
    #[error(
        "the pattern `{}` names tar files that have no folder in common",
        escape(pattern)
    )]
    PatternApart {
        /// The pattern.
        pattern: String,
    },
    /// A pattern that names a file twice.
    #[error("the pattern `{}` names `{}` twice", escape(pattern), escape(name))]
    PatternTwice {
        /// The pattern.
        pattern: String,
        /// The name of the file.
        name: String,
    },
    /// A pattern with an invalid name.
    #[error("the pattern `{}` names `{}`", escape(pattern), escape(name))]
    PatternName {
        /// The pattern.
        pattern: String,
        /// The name.
        name: String,
        /// The rule that it breaks.
        source: NameError,
    },
    /// A folder without tar files and without an index.
    #[error("there is neither a tar file nor an index.json here")]
    NoTars {
        /// The folder.
        path: PathBuf,
    },
    /// An index of another format than tar files.
    #[error("the index is of {format} shards, and not of tar files")]
    OtherFormat {
        /// The path of the index.
        path: PathBuf,
        /// The format of its shards.
        format: &'static str,
    },
    /// A directory without an index.
    #[error("there is no index.json in this directory{}", uncommitted(*.unfinished))]
    IndexMissing {
        /// The directory.
        path: PathBuf,
        /// What an unfinished conversion into the directory left there.
        unfinished: Option<Unfinished>,
    },
    /// A directory without an index that contains tar files and other files, so that it may not be a dataset.
    #[error(
        "holds tar files such as {}, and other files such as {}",
        escape(tar),
        escape(other)
    )]
    Stray {
        /// The directory.
        path: PathBuf,
        /// The first tar file.
        tar: String,
        /// The first file of another kind.
        other: String,
    },
    /// A directory without an index that contains the shards that an unfinished conversion has written so far.
    #[error("{found}")]
    Unfinished {
        /// The directory.
        path: PathBuf,
        /// What the conversion left there.
        found: Unfinished,
        /// Whether the shards are tar files, which can be read one by one.
        tars: bool,
    },
    /// An index that cannot be used.
    #[error("cannot read the index{}", at(source))]
    Index {
        /// The index.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: Box<MdsError>,
    },
    /// An index of a WebDataset dataset that cannot be used.
    #[error("cannot read the index")]
    TarIndex {
        /// The index.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: Box<shardmill_webdataset::WebdatasetError>,
    },
    /// The provenance is missing, although a file that belongs to one exists.
    #[error("there is none, though {name} belongs to one")]
    ProvenanceMissing {
        /// The path of the provenance.
        path: PathBuf,
        /// The existing file.
        name: &'static str,
    },
    /// The provenance is invalid.
    #[error("it cannot be read: {reason}")]
    ProvenanceDamaged {
        /// The path of the provenance.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The provenance belongs to another index.
    #[error(
        "the conversion noted {} samples in {} shards, and the index has {} in {}",
        noted.0, noted.1, found.0, found.1
    )]
    ProvenanceOther {
        /// The path of the provenance.
        path: PathBuf,
        /// The samples and shards that the conversion recorded.
        noted: (u64, u64),
        /// The samples and shards of the index.
        found: (u64, u64),
    },
    /// The list of deleted samples is missing.
    #[error("the file is missing; it lists the {count} samples that are no longer in the table")]
    TombstonesMissing {
        /// The path of the list.
        path: PathBuf,
        /// The number of deleted samples.
        count: u64,
    },
    /// The list of deleted samples is invalid, or not the one that the provenance records.
    #[error("{reason}")]
    TombstonesDamaged {
        /// The path of the list.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Indexes that cannot be merged.
    #[error("cannot merge the indexes beneath this directory{}", at(source))]
    Merge {
        /// The directory.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: Box<MdsError>,
    },
    /// The index does not have the hash that the caller expects.
    #[error("{algo} of the index is {found}, not {expected} as requested")]
    IndexMismatch {
        /// The index.
        path: PathBuf,
        /// The hash.
        algo: HashAlgo,
        /// The hash that the caller expects.
        expected: String,
        /// The hash of the file.
        found: String,
    },
    /// An expected hash that cannot be parsed, or whose algorithm is not secure.
    #[error(
        "`{}` is not the name of a cryptographic hash, a colon and its digits",
        escape(text)
    )]
    ExpectIndex {
        /// The text as given.
        text: String,
    },
    /// A file demands more than the limits allow.
    #[error("it asks for too much")]
    Limit {
        /// The file.
        path: PathBuf,
        /// The limit that it exceeds.
        #[source]
        source: LimitExceeded,
    },
    /// A file of a shard is missing.
    #[error("the file is missing, and with it {}", samples_of(*first_sample, *samples))]
    ShardMissing {
        /// The place in the dataset.
        place: Place,
        /// The first sample of the shard, in the dataset.
        first_sample: u64,
        /// Samples in the shard.
        samples: u64,
    },
    /// Keys were requested of streams that have none.
    #[error("samples have keys in tar files only, and no stream is one of those")]
    NoKeys,
    /// A tar file that a pattern names is missing.
    #[error(
        "there is no such tar file, and the pattern `{}` names it",
        escape(pattern)
    )]
    PatternShard {
        /// The file.
        path: PathBuf,
        /// The pattern.
        pattern: String,
    },
    /// A pattern of tar files was combined with a split.
    #[error(
        "it names tar files, and there is no split `{}` beneath those",
        escape(split)
    )]
    PatternSplit {
        /// The pattern.
        pattern: String,
        /// The split.
        split: String,
    },
    /// A file of a shard does not have the length that the index declares.
    #[error("the file has {found} bytes, not {expected} as the index says")]
    ShardLength {
        /// The place in the dataset.
        place: Place,
        /// The length in the index.
        expected: u64,
        /// The length of the file.
        found: u64,
    },
    /// A file of a shard does not have the hash that the index declares.
    #[error("{}", if *raw { "after decompression the hash is wrong" } else { "the hash is wrong" })]
    Hash {
        /// The place in the dataset.
        place: Place,
        /// Whether it is the hash of the raw bytes of a compressed file.
        raw: bool,
        /// The hash, and how it differs.
        #[source]
        source: Box<CodecError>,
    },
    /// The index has no hash of the algorithm that was to be checked.
    #[error("its hash cannot be checked")]
    HashAbsent {
        /// The place in the dataset.
        place: Place,
        /// The missing hash.
        #[source]
        source: Box<CodecError>,
    },
    /// A compressed file does not decompress.
    #[error("cannot decompress")]
    Decompress {
        /// The place in the dataset.
        place: Place,
        /// The underlying error.
        #[source]
        source: Box<CodecError>,
    },
    /// A tar file or a sample of it cannot be read.
    #[error("cannot read {}", if place.sample.is_some() { "the sample" } else { "the shard" })]
    Tar {
        /// The place in the dataset.
        place: Place,
        /// The underlying error.
        #[source]
        source: Box<WebdatasetError>,
    },
    /// A tar file does not have the number of samples that its index declares.
    #[error("it holds {found} samples, and the index says {expected}")]
    TarSamples {
        /// The place in the dataset.
        place: Place,
        /// The number in the index.
        expected: u64,
        /// The number in the file.
        found: u64,
    },
    /// A sample of a tar file does not have the fields that the index declares.
    #[error(
        "the sample `{}` has the fields {}, and the index says otherwise",
        escape(key),
        listed(fields)
    )]
    TarFields {
        /// The place in the dataset.
        place: Place,
        /// The key of the sample.
        key: String,
        /// The fields of the sample.
        fields: Vec<String>,
    },
    /// A shard or a sample violates its format.
    #[error("cannot read {}", if place.sample.is_some() { "the sample" } else { "the shard" })]
    Shard {
        /// The place in the dataset.
        place: Place,
        /// The underlying error.
        #[source]
        source: Box<MdsError>,
    },
    /// A value violates its encoding.
    #[error("cannot decode the value")]
    Value {
        /// The place in the dataset.
        place: Place,
        /// The underlying error.
        #[source]
        source: Box<MdsError>,
    },
    /// The dataset has no sample of that number.
    #[error("there is no sample {sample}: the dataset has {samples}")]
    NoSample {
        /// The dataset.
        path: PathBuf,
        /// The requested number.
        sample: u64,
        /// Samples in the dataset.
        samples: u64,
    },
    /// The dataset has no shard of that number.
    #[error("there is no shard {shard}: the dataset has {shards}")]
    NoShard {
        /// The dataset.
        path: PathBuf,
        /// The requested number.
        shard: u64,
        /// Shards in the dataset.
        shards: u64,
    },
    /// A directory to index has no shards.
    #[error("there are no shards in this directory")]
    NoShards {
        /// The directory.
        path: PathBuf,
    },
    /// The numbers of the shards in a directory are not 0, 1, 2, ….
    #[error(
        "shard {missing} is missing: the directory has {found} shards, the last of them number {last}"
    )]
    Gap {
        /// The directory.
        path: PathBuf,
        /// The first missing number.
        missing: u64,
        /// Shards found.
        found: u64,
        /// The highest number found.
        last: u64,
    },
    /// Two files are candidates for the same shard.
    #[error("`{}` could be the same shard; only one can be indexed", escape(other))]
    Ambiguous {
        /// One file.
        place: Place,
        /// The other.
        other: String,
    },
    /// The file of a shard is not compressed as its header declares.
    #[error(
        "its header says it is stored as `{}`, which is missing",
        escape(expected)
    )]
    StoredForm {
        /// The existing file.
        place: Place,
        /// The name of the expected file.
        expected: String,
    },
    /// One of the two files of a shard is missing.
    #[error("`{}`, which belongs to it, is missing", escape(partner))]
    PartnerMissing {
        /// The existing file.
        place: Place,
        /// The missing file.
        partner: String,
    },
    /// The header of a shard declares another format than the name of its file.
    #[error("its header is of a {found} shard")]
    Format {
        /// The file.
        place: Place,
        /// The format in the header.
        found: &'static str,
    },
    /// No index to merge was found.
    #[error("there is no index.json in any directory beneath this one")]
    NothingToMerge {
        /// The directory.
        path: PathBuf,
    },
    /// An index to merge lies outside the directory of the merged index, so that the merged index cannot name its
    /// shards.
    #[error("it is not beneath `{}`, where the merged index is to be", escape(&out.to_string_lossy()))]
    Outside {
        /// The index.
        path: PathBuf,
        /// The directory of the result.
        out: PathBuf,
    },
    /// A directory whose name no index can contain.
    #[error("an index cannot name this directory")]
    DirectoryName {
        /// The directory.
        path: PathBuf,
        /// The rule that the name breaks; `None` if it is not UTF-8.
        #[source]
        source: Option<NameError>,
    },
    /// No stream was named.
    #[error("there is no stream to read")]
    NoStreams,
    /// A stream without a location.
    #[error("a stream needs a remote, a local folder, or both")]
    StreamNowhere,
    /// A stream of a store without a local folder to fetch shards to.
    #[error("its shards need a local folder to be fetched into")]
    StreamLocal {
        /// The remote.
        remote: String,
    },
    /// The folder that shards would be fetched to contains another dataset.
    #[error("it is not the index of the dataset in {}", escape(remote))]
    CacheForeign {
        /// The index in the folder.
        path: PathBuf,
        /// The remote.
        remote: String,
    },
    /// A file of a shard was truncated or written while it was read.
    #[error("the file was changed while it was read")]
    ShardChanged {
        /// The place in the dataset.
        place: Place,
    },
    /// A file that changed, or became unreadable, while it was read.
    #[error("the file changed, or could not be read, while it was read")]
    FileChanged {
        /// The path of the file.
        path: PathBuf,
    },
    /// A tree without files to read.
    #[error("there are no files{}", if *filtered { " that the patterns take" } else { "" })]
    TreeEmpty {
        /// The tree.
        location: String,
        /// Whether patterns were given, which may exclude all files.
        filtered: bool,
    },
    /// An invalid pattern of files.
    #[error("`{}` is no pattern: {reason}", escape(pattern))]
    FilePattern {
        /// The option that it was passed in.
        option: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An object of a store whose name is also a folder of other objects, which a local folder cannot represent.
    #[error("it is a file, and `{}` lies in a folder of that name", escape(other))]
    TreeClash {
        /// The object.
        object: String,
        /// An object in the folder of that name.
        other: String,
    },
    /// The local folder contains the files of another tree, or of other patterns.
    #[error(
        "the folder keeps the files of {}, by other patterns or from another place",
        escape(kept)
    )]
    OtherTree {
        /// The list in the folder.
        path: PathBuf,
        /// The source of those files.
        kept: String,
    },
    /// The stored list of files is damaged.
    #[error("the list of files cannot be read: {what}")]
    FileList {
        /// The list.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The list of files does not have the digest that the caller expects.
    #[error(
        "the list of files has the digest {found}, not {expected}: files were added or removed, or their lengths changed"
    )]
    FilesDigest {
        /// The tree, or all trees.
        location: String,
        /// The expected digest.
        expected: String,
        /// The digest of the list.
        found: String,
    },
    /// Files of the previous list are in use.
    #[error("{files} files of the old list are in use")]
    FilesInUse {
        /// The list.
        path: PathBuf,
        /// The number of files in use.
        files: u64,
    },
    /// A listed file does not exist any more.
    #[error("the file is gone since it was listed")]
    FileMissing {
        /// The place of the file.
        place: Place,
    },
    /// A listed file has changed.
    #[error(
        "the file has changed since it was listed: {listed} bytes then, {found} now{}",
        match (listed == found, store) {
            (false, _) => "",
            (true, false) => ", and another time of change",
            (true, true) => ", and another ETag",
        }
    )]
    ListedFileChanged {
        /// The place of the file.
        place: Place,
        /// Its length in the list.
        listed: u64,
        /// Its length now.
        found: u64,
        /// Whether it is an object of a store.
        store: bool,
    },
    /// A listed object of a store has changed.
    #[error("the object has changed since it was listed: it has another ETag")]
    ObjectChanged {
        /// The place of the file.
        place: Place,
    },
    /// A file in the local folder that the cache did not write, so that it may not be the listed one.
    #[error("it cannot be checked whether it is the listed file")]
    FileUnknown {
        /// The place of the file.
        place: Place,
    },
    /// The list has no such file.
    #[error("the list of {} has no such file", escape(location))]
    NoSuchFile {
        /// The path.
        path: String,
        /// The tree.
        location: String,
    },
    /// Files were requested by name, but no stream is a tree of raw files.
    #[error("the dataset has no raw files")]
    NoTree,
    /// The streams have no shard of that number.
    #[error("there is no shard {shard}: the streams have {shards}")]
    NoSuchShard {
        /// The requested number.
        shard: u64,
        /// Shards of all streams.
        shards: u64,
    },
    /// A memory allocation failed.
    #[error("{bytes} bytes of memory are not available")]
    OutOfMemory {
        /// The size of the allocation.
        bytes: u64,
    },
    /// The caller requested to stop.
    #[error("stopped before the end")]
    Interrupted,
}

/// Returns the place in an index, which its error does not include in its message.
fn at(error: &MdsError) -> String {
    error
        .place()
        .map_or_else(String::new, |place| format!(" at {place}"))
}

/// Formats a range of samples for a message.
#[must_use]
pub fn samples_of(first: u64, samples: u64) -> String {
    match samples {
        0 => "no samples".to_owned(),
        1 => format!("sample {first}"),
        _ => format!("samples {first} to {}", first.saturating_add(samples - 1)),
    }
}

/// Formats the names of fields for a message.
fn listed(fields: &[String]) -> String {
    let names: Vec<String> = fields
        .iter()
        .map(|field| format!("`{}`", escape(field)))
        .collect();
    names.join(", ")
}

/// Returns the part of the message that explains why an index is missing.
fn uncommitted(unfinished: Option<Unfinished>) -> &'static str {
    match unfinished {
        Some(Unfinished::Parts) => ", but uncommitted parts of a conversion",
        Some(Unfinished::Conversion) => ", and a conversion into it is not finished",
        None => "",
    }
}

/// The hint for a folder that mixes tar files with other files.
const STRAY_HINT: &str = "name the tar files, as in train-{000..146}.tar, or the folder that has nothing but them; `shardmill convert --from tree` and `FileDataset` take every file as it is";

impl DatasetError {
    /// Makes an error about a shard from one of the format crate. Sample numbers within the shard become numbers in the
    /// dataset, both in the place and in the message.
    pub fn shard(place: Place, first_sample: u64, source: MdsError) -> Self {
        Self::shard_with(place, |at| at.saturating_add(first_sample), source)
    }

    /// Like [`Self::shard`], with `number` to convert a position in the shard to a number in the dataset.
    pub fn shard_with(
        mut place: Place,
        number: impl FnOnce(u64) -> u64,
        mut source: MdsError,
    ) -> Self {
        if let MdsError::Offsets { sample, .. }
        | MdsError::SampleNewline { sample }
        | MdsError::SampleHead { sample, .. }
        | MdsError::SampleEnd { sample, .. }
        | MdsError::SampleTrailing { sample, .. }
        | MdsError::Value { sample, .. }
        | MdsError::Line { sample, .. }
        | MdsError::LineColumns { sample, .. } = &mut source
        {
            *sample = number(*sample);
            place.sample = Some(*sample);
        }
        match source {
            MdsError::Value {
                column, problem, ..
            } => {
                place.column = Some(column);
                Self::Value {
                    place,
                    source: problem,
                }
            }
            source => {
                if let MdsError::SampleEnd { column, .. } = &source {
                    place.column = Some(column.clone());
                }
                Self::Shard {
                    place,
                    source: Box::new(source),
                }
            }
        }
    }

    /// Makes an error about a damaged tar file.
    #[must_use]
    pub fn tar_file(path: &Path, source: WebdatasetError) -> Self {
        Self::Tar {
            place: Place::file(&path.to_string_lossy()),
            source: Box::new(source),
        }
    }

    /// Makes an error about the sample of a tar file with this number.
    pub fn tar(mut place: Place, sample: u64, source: WebdatasetError) -> Self {
        place.sample = Some(sample);
        Self::Tar {
            place,
            source: Box::new(source),
        }
    }

    /// Returns the place in the dataset, if the error has one.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::ShardMissing { place, .. }
            | Self::ShardLength { place, .. }
            | Self::Hash { place, .. }
            | Self::HashAbsent { place, .. }
            | Self::Decompress { place, .. }
            | Self::Tar { place, .. }
            | Self::TarSamples { place, .. }
            | Self::TarFields { place, .. }
            | Self::Shard { place, .. }
            | Self::Value { place, .. }
            | Self::Ambiguous { place, .. }
            | Self::StoredForm { place, .. }
            | Self::PartnerMissing { place, .. }
            | Self::ShardChanged { place }
            | Self::FileMissing { place }
            | Self::ListedFileChanged { place, .. }
            | Self::ObjectChanged { place }
            | Self::FileUnknown { place }
            | Self::Format { place, .. } => Some(place),
            _ => None,
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Storage(error) => error.path(),
            Self::IndexMissing { path, .. }
            | Self::Stray { path, .. }
            | Self::Unfinished { path, .. }
            | Self::Index { path, .. }
            | Self::TarIndex { path, .. }
            | Self::ProvenanceMissing { path, .. }
            | Self::ProvenanceDamaged { path, .. }
            | Self::ProvenanceOther { path, .. }
            | Self::TombstonesMissing { path, .. }
            | Self::TombstonesDamaged { path, .. }
            | Self::NoTars { path }
            | Self::OtherFormat { path, .. }
            | Self::FileChanged { path }
            | Self::OtherTree { path, .. }
            | Self::FileList { path, .. }
            | Self::FilesInUse { path, .. }
            | Self::Merge { path, .. }
            | Self::IndexMismatch { path, .. }
            | Self::Limit { path, .. }
            | Self::NoSample { path, .. }
            | Self::NoShard { path, .. }
            | Self::NoShards { path }
            | Self::Gap { path, .. }
            | Self::NothingToMerge { path }
            | Self::Outside { path, .. }
            | Self::CacheForeign { path, .. }
            | Self::PatternShard { path, .. }
            | Self::DirectoryName { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Replaces the path of an error about a side file of an index.
    #[must_use]
    pub fn with_side_path(mut self, path_of: impl FnOnce(&str) -> PathBuf) -> Self {
        if let Self::ProvenanceMissing { path, .. }
        | Self::ProvenanceDamaged { path, .. }
        | Self::ProvenanceOther { path, .. }
        | Self::TombstonesMissing { path, .. }
        | Self::TombstonesDamaged { path, .. } = &mut self
            && let Some(name) = path.file_name()
        {
            *path = path_of(&name.to_string_lossy());
        }
        self
    }

    /// Returns the name of the side file that the error is about.
    #[must_use]
    pub const fn side_name(&self) -> &'static str {
        match self {
            Self::TombstonesMissing { .. } | Self::TombstonesDamaged { .. } => "index.tombstones",
            _ => "index.provenance",
        }
    }

    /// Returns whether a raw file at the source differs from the listed one, so that retries cannot help.
    #[must_use]
    pub const fn is_file_change(&self) -> bool {
        matches!(
            self,
            Self::ListedFileChanged { .. } | Self::ObjectChanged { .. }
        )
    }

    /// Returns the object of the error. A path within `root` is shown relative to it.
    pub fn object_beneath(&self, root: &Path) -> Option<String> {
        match self.path().and_then(|path| path.strip_prefix(root).ok()) {
            Some(path) if !path.as_os_str().is_empty() => {
                Some(escape(&path.to_string_lossy()).into_owned())
            }
            _ => self.object(),
        }
    }

    /// Returns the diagnostic of the crate that found the error, which is the most specific one.
    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Storage(source) => Some(source),
            Self::Braces(source) => Some(source),
            Self::Index { source, .. } | Self::Merge { source, .. } => Some(source.as_ref()),
            Self::Hash { source, .. } | Self::HashAbsent { source, .. } => Some(source.as_ref()),
            Self::Decompress { source, .. } => Some(source.as_ref()),
            Self::TarIndex { source, .. } => Some(source.as_ref()),
            Self::Tar { source, .. } => Some(source.as_ref()),
            Self::Shard { source, .. } => Some(source.as_ref()),
            Self::Value { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }

    /// Returns the message and those of its sources, as `error[id]: object: …` shows them.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}

impl Diagnostic for DatasetError {
    fn kind(&self) -> ErrorKind {
        if let Some(inner) = self.inner() {
            return inner.kind();
        }
        match self {
            Self::IndexMissing {
                unfinished: Some(Unfinished::Parts),
                ..
            } => ErrorKind::Conflict,
            Self::IndexMissing { .. }
            | Self::NoShards { .. }
            | Self::NothingToMerge { .. }
            | Self::PatternShard { .. }
            | Self::NoTars { .. }
            | Self::TreeEmpty { .. }
            | Self::FileMissing { .. }
            | Self::NoSuchFile { .. } => ErrorKind::NotFound,
            Self::Limit { .. } | Self::TreeClash { .. } => ErrorKind::Unsupported,
            Self::NoStreams
            | Self::Stray { .. }
            | Self::StreamNowhere
            | Self::StreamLocal { .. }
            | Self::PatternSplit { .. }
            | Self::PatternApart { .. }
            | Self::PatternTwice { .. }
            | Self::PatternName { .. }
            | Self::OtherFormat { .. }
            | Self::FilePattern { .. }
            | Self::NoTree
            | Self::NoKeys
            | Self::NoSuchShard { .. }
            | Self::ExpectIndex { .. }
            | Self::NoSample { .. }
            | Self::NoShard { .. }
            | Self::Outside { .. }
            | Self::DirectoryName { .. } => ErrorKind::InvalidInput,
            Self::CacheForeign { .. }
            | Self::Unfinished { .. }
            | Self::OtherTree { .. }
            | Self::FilesDigest { .. }
            | Self::FilesInUse { .. } => ErrorKind::Conflict,
            Self::OutOfMemory { .. } => ErrorKind::Resource,
            Self::Interrupted => ErrorKind::Interrupted,
            _ => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        if let Some(inner) = self.inner() {
            return inner.id();
        }
        match self {
            Self::IndexMissing {
                unfinished: Some(found @ Unfinished::Parts),
                ..
            }
            | Self::Unfinished { found, .. } => found.id(),
            Self::IndexMissing { .. } | Self::NoTars { .. } => "index-missing",
            Self::OtherFormat { .. } => "index-format",
            Self::PatternApart { .. } | Self::PatternTwice { .. } | Self::PatternName { .. } => {
                "pattern-names"
            }
            Self::ProvenanceMissing { .. } => "provenance-missing",
            Self::ProvenanceDamaged { .. } => "provenance-damaged",
            Self::ProvenanceOther { .. } => "provenance-other",
            Self::TombstonesMissing { .. } => "tombstones-missing",
            Self::TombstonesDamaged { .. } => "tombstones-damaged",
            Self::FileChanged { .. } | Self::ListedFileChanged { .. } => "file-changed",
            Self::TreeEmpty { .. } => "tree-empty",
            Self::FilePattern { .. } => "config-pattern",
            Self::TreeClash { .. } => "tree-clash",
            Self::FileList { .. } => "files-list",
            Self::FilesDigest { .. } => "files-digest",
            Self::FilesInUse { .. } => "files-in-use",
            Self::FileMissing { .. } => "file-missing",
            Self::ObjectChanged { .. } => "remote-changed",
            Self::FileUnknown { .. } => "file-untold",
            Self::NoSuchFile { .. } => "no-such-file",
            Self::NoTree => "config-files",
            Self::Stray { .. } => "source-mixed",
            Self::IndexMismatch { .. } => "index-mismatch",
            Self::ExpectIndex { .. } => "config-expect-index",
            Self::Limit { source, .. } => source.id(),
            Self::ShardMissing { .. } | Self::PartnerMissing { .. } | Self::PatternShard { .. } => {
                "shard-missing"
            }
            Self::PatternSplit { .. } => "config-split",
            Self::NoKeys => "no-keys",
            Self::ShardLength { .. } => "shard-length",
            Self::TarSamples { .. } => "tar-samples",
            Self::TarFields { .. } => "tar-fields",
            Self::NoSample { .. } => "no-such-sample",
            Self::NoShard { .. } | Self::NoSuchShard { .. } => "no-such-shard",
            Self::NoStreams | Self::StreamNowhere => "config-streams",
            Self::StreamLocal { .. } => "config-local",
            Self::CacheForeign { .. } | Self::OtherTree { .. } => "cache-foreign",
            Self::ShardChanged { .. } => "shard-changed",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::NoShards { .. } => "index-no-shards",
            Self::Gap { .. } => "index-gap",
            Self::Ambiguous { .. } => "shard-ambiguous",
            Self::StoredForm { .. } => "shard-stored-form",
            Self::Format { .. } => "shard-format",
            Self::NothingToMerge { .. } => "merge-nothing",
            Self::Outside { .. } => "merge-outside",
            Self::DirectoryName { source, .. } => source.map_or("path-not-utf8", NameError::id),
            Self::Interrupted => "interrupted",
            _ => "reader",
        }
    }

    fn object(&self) -> Option<String> {
        if let Some(place) = self.place() {
            return Some(place.to_string());
        }
        match self {
            Self::Storage(source) => source.object(),
            Self::ExpectIndex { .. } => Some("--expect-index".to_owned()),
            Self::StreamLocal { remote } => Some(escape(remote).into_owned()),
            Self::PatternSplit { pattern, .. } => Some(escape(pattern).into_owned()),
            Self::TreeEmpty { location, .. } | Self::FilesDigest { location, .. } => {
                Some(escape(location).into_owned())
            }
            Self::FilePattern { option, .. } => Some((*option).to_owned()),
            Self::TreeClash { object, .. } => Some(escape(object).into_owned()),
            Self::NoSuchFile { path, .. } => Some(escape(path).into_owned()),
            _ => Some(escape(&self.path()?.to_string_lossy()).into_owned()),
        }
    }

    fn hint(&self) -> Option<String> {
        if let Some(hint) = self.inner().and_then(Diagnostic::hint) {
            return Some(hint);
        }
        Some(
            match self {
                Self::IndexMissing {
                    path,
                    unfinished: Some(found),
                }
                | Self::Unfinished {
                    path,
                    found,
                    tars: false,
                } => {
                    return Some(found.hint(&path.to_string_lossy()));
                }
                Self::Unfinished { path, found, .. } => {
                    let hint = found.hint(&path.to_string_lossy());
                    return Some(match found {
                        Unfinished::Conversion => {
                            format!("{hint}; name tar files to read those that are there")
                        }
                        Unfinished::Parts => hint,
                    });
                }
                Self::IndexMissing { .. } => {
                    "name the directory that holds index.json; `shardmill index rebuild` makes one from shards"
                }
                Self::Stray { .. } => STRAY_HINT,
                Self::ExpectIndex { .. } => "as in sha256:9f86d081…",
                Self::ShardMissing { .. } => "fetch or write the file again",
                Self::PatternSplit { .. } => "write the folder into the pattern",
                Self::TarSamples { .. } | Self::TarFields { .. } => "make the index anew from the shards",
                Self::ShardLength { place, .. } if FileClass::of(&place.file) == FileClass::Tar => {
                    "write or fetch the shard again, or keep the samples that are whole with `shardmill repair`"
                }
                Self::OtherFormat { .. } => "`shardmill convert --to webdataset` makes tar files of it",
                Self::PatternApart { .. } => "give a stream for each",
                Self::PatternTwice { .. } => "a stream has each of its shards once; `repeat` has it twice",
                Self::ProvenanceMissing { .. } | Self::ProvenanceDamaged { .. } => {
                    "fetch it again with the dataset, or convert the dataset again"
                }
                Self::ProvenanceOther { .. } => {
                    "fetch index.json and index.provenance again, or convert the dataset again with --overwrite"
                }
                Self::TombstonesMissing { .. } | Self::TombstonesDamaged { .. } => {
                    "fetch it again, or run convert --incremental, which restores it"
                }
                Self::TreeEmpty { filtered: true, .. } => "see `include` and `exclude`",
                Self::TreeEmpty { .. } => "see whether the place is the right one",
                Self::TreeClash { .. } => "leave one of them out with `exclude`",
                Self::OtherTree { .. } => "name another local folder",
                Self::FileList { .. }
                | Self::FileMissing { .. }
                | Self::ListedFileChanged { .. }
                | Self::ObjectChanged { .. } => {
                    "list the files anew (`relist`), or name another local folder"
                }
                Self::FilesDigest { .. } => {
                    "go on with the files that the run began with, or begin anew"
                }
                Self::FilesInUse { .. } => {
                    "end the processes that read them, or name another local folder"
                }
                Self::FileUnknown { .. } => "move it away, or name another local folder",
                Self::ShardLength { .. } => "the file was cut short, or belongs to another index; fetch or write it again",
                Self::Gap { .. } => "an index without it would number the samples differently; find the file first",
                Self::Ambiguous { .. } => "move one of the files away",
                Self::NothingToMerge { .. } => "each part needs an index of its own",
                Self::Limit { source, .. } => return Some(source.hint()),
                Self::CacheForeign { .. } => "name another local folder, or remove this one if it is an old cache",
                Self::ShardChanged { .. } => "shards may be replaced, but not written to; read again",
                _ => return None,
            }
            .to_owned(),
        )
    }
}
