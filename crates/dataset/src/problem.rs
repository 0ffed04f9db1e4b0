//! The problems of datasets that one sentence describes: their kinds, ids and hints, and what they are about.

use std::fmt;
use std::path::{Path, PathBuf};

use shardmill_core::escape;

/// A location in a dataset: a file, and optionally a sample and a column of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueLocation {
    /// The file, relative to the dataset.
    pub file: String,
    /// The number of the sample in the dataset, from 0, if the location is one sample.
    pub sample: Option<u64>,
    /// The column, if the location is one value.
    pub column: Option<String>,
}

impl ValueLocation {
    /// Returns the location of a whole file of a shard.
    #[must_use]
    pub fn file(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            sample: None,
            column: None,
        }
    }
}

impl fmt::Display for ValueLocation {
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

/// What an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The call as a whole.
    Call,
    /// A file or folder, by its path or URL, or an option, by its name.
    Path(PathBuf),
    /// A location in a dataset.
    ValueLocation(ValueLocation),
}

impl From<&str> for Subject {
    fn from(name: &str) -> Self {
        Self::Path(name.into())
    }
}

impl From<&Path> for Subject {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<PathBuf> for Subject {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<ValueLocation> for Subject {
    fn from(location: ValueLocation) -> Self {
        Self::ValueLocation(location)
    }
}

const RELIST: &str = "list the files anew (`relist`), or name another local folder";
const READD: &str = "remove index.columns, which leaves the dataset without these columns, and run `shardmill add-column` again";
const REMEASURE: &str = "write it again with `shardmill index lengths`";
const REINDEX: &str = "make the index anew from the shards";
const RESTORE: &str = "fetch it again, or run convert --incremental, which restores it";
const REFETCH: &str = "fetch it again with the dataset, or convert the dataset again";

shardmill_core::problems! {
    /// What is wrong with a dataset or a request, if a sentence says all that is known about it.
    #[non_exhaustive]
    pub enum DatasetProblem {
        /// A pattern whose tar files are in several stores or buckets.
        PatternApart => (InvalidInput, "pattern-names", "pass a stream for each"),
        /// A pattern that names a file twice.
        PatternTwice => (InvalidInput, "pattern-names", "a stream has each of its shards once; `repeat` has it twice"),
        /// A pattern with an invalid name.
        PatternName => (InvalidInput, "pattern-names"),
        /// A tar file that a pattern names is missing.
        PatternShard => (NotFound, "shard-missing"),
        /// A pattern of tar files was combined with a split.
        PatternSplit => (InvalidInput, "config-split", "write the folder into the pattern"),
        /// A folder without tar files and without an index.
        NoTars => (NotFound, "index-missing"),
        /// A directory without an index.
        IndexMissing => (NotFound, "index-missing", "name the directory that holds index.json; `shardmill index rebuild` makes one from shards"),
        /// A directory without an index that contains the shards that an unfinished conversion has written so far.
        Unfinished => (Conflict, "dest-unfinished"),
        /// A directory without an index that contains uncommitted parts of a conversion.
        Uncommitted => (Conflict, "parts-uncommitted"),
        /// An index of another format than tar files.
        OtherFormat => (InvalidInput, "index-format", "`shardmill convert --to webdataset` makes tar files of it"),
        /// A directory without an index that contains tar files and other files, so that it may not be a dataset.
        Stray => (InvalidInput, "source-mixed", STRAY_HINT),
        /// The provenance is missing, although a file that belongs to one exists.
        ProvenanceMissing => (Corrupt, "provenance-missing", REFETCH),
        /// The provenance is invalid.
        ProvenanceDamaged => (Corrupt, "provenance-damaged", REFETCH),
        /// The provenance belongs to another index.
        ProvenanceOther => (Corrupt, "provenance-other", "fetch index.json and index.provenance again, or convert the dataset again with --overwrite"),
        /// The list of deleted samples is missing.
        TombstonesMissing => (Corrupt, "tombstones-missing", RESTORE),
        /// The list of deleted samples is invalid, or not the one that the provenance records.
        TombstonesDamaged => (Corrupt, "tombstones-damaged", RESTORE),
        /// The index does not have the hash that the caller expects.
        IndexMismatch => (Corrupt, "index-mismatch"),
        /// An expected hash that cannot be parsed, or whose algorithm is not secure.
        ExpectIndex => (InvalidInput, "config-expect-index", "as in sha256:9f86d081…"),
        /// Keys were requested of streams that have none.
        NoKeys => (InvalidInput, "no-keys"),
        /// A tar file does not have the number of samples that its index declares.
        TarSamples => (Corrupt, "tar-samples", REINDEX),
        /// A sample of a tar file does not have the fields that the index declares.
        TarFields => (Corrupt, "tar-fields", REINDEX),
        /// A file of a shard is missing.
        ShardMissing => (Corrupt, "shard-missing", "fetch or write the file again; if the dataset was replaced meanwhile, open it again"),
        /// A file of a shard does not have the length that the index declares.
        ShardLength => (Corrupt, "shard-length", "the file was cut short, or belongs to another index; fetch or write it again"),
        /// A tar file does not have the length that the index declares.
        TarLength => (Corrupt, "shard-length", "write or fetch the shard again"),
        /// The dataset has no sample of that number.
        NoSample => (InvalidInput, "no-such-sample"),
        /// The dataset has no shard of that number.
        NoShard => (InvalidInput, "no-such-shard"),
        /// A directory to index has no shards.
        NoShards => (NotFound, "index-no-shards"),
        /// The numbers of the shards in a directory are not 0, 1, 2, ….
        Gap => (Corrupt, "index-gap", "an index without it would number the samples differently; find the file first"),
        /// Two files are candidates for the same shard.
        Ambiguous => (Corrupt, "shard-ambiguous", "move one of the files away"),
        /// The file of a shard is not compressed as its header declares.
        StoredForm => (Corrupt, "shard-stored-form"),
        /// One of the two files of a shard is missing.
        PartnerMissing => (Corrupt, "shard-missing"),
        /// The header of a shard declares another format than the name of its file.
        Format => (Corrupt, "shard-format"),
        /// No index to merge was found.
        NothingToMerge => (NotFound, "merge-nothing", "each part needs an index of its own"),
        /// An index to merge lies outside the directory of the merged index, which cannot name its shards.
        Outside => (InvalidInput, "merge-outside"),
        /// No stream was named, or a stream has no location.
        Streams => (InvalidInput, "config-streams"),
        /// A stream of a store without a local folder to fetch shards to.
        StreamLocal => (InvalidInput, "config-local"),
        /// The folder that shards would be fetched to contains another dataset.
        CacheForeign => (Conflict, "cache-foreign", "name another local folder, or remove this one if it is an old cache"),
        /// A file of a shard was truncated or written while it was read.
        ShardChanged => (Corrupt, "shard-changed", "shards may be replaced, but not written to; read again"),
        /// A file that changed, or became unreadable, while it was read.
        FileChanged => (Corrupt, "file-changed"),
        /// A tree without files.
        TreeEmpty => (NotFound, "tree-empty", "see whether the place is the right one"),
        /// A tree without files that the patterns take.
        TreeFiltered => (NotFound, "tree-empty", "see `include` and `exclude`"),
        /// An invalid pattern of files.
        FilePattern => (InvalidInput, "config-pattern"),
        /// An object of a store whose name is also a folder of other objects, which a local folder cannot represent.
        TreeClash => (Unsupported, "tree-clash", "omit one of them with `exclude`"),
        /// The local folder contains the files of another tree, or of other patterns.
        OtherTree => (Conflict, "cache-foreign", "name another local folder"),
        /// The stored list of files is damaged.
        FileList => (Corrupt, "files-list", RELIST),
        /// The list of files does not have the digest that the caller expects.
        FilesDigest => (Conflict, "files-digest", "go on with the files that the run began with, or begin anew"),
        /// Files of the previous list are in use.
        FilesInUse => (Conflict, "files-in-use", "end the processes that read them, or name another local folder"),
        /// A listed file does not exist any more.
        FileMissing => (NotFound, "file-missing", RELIST),
        /// A listed file has changed.
        ListedFileChanged => (Corrupt, "file-changed", RELIST),
        /// A listed object of a store has changed.
        ObjectChanged => (Corrupt, "remote-changed", RELIST),
        /// A file in the local folder that the cache did not write, so that it may not be the listed one.
        FileUnknown => (Corrupt, "file-untold", "move it away, or name another local folder"),
        /// The list has no such file.
        NoSuchFile => (NotFound, "no-such-file"),
        /// Files were requested by name, but no stream is a tree of raw files.
        NoTree => (InvalidInput, "config-files"),
        /// The view selects samples of another dataset.
        ViewOther => (Conflict, "view-dataset", "select the samples again, from this dataset"),
        /// The file of a view is damaged, or is none.
        ViewDamaged => (Corrupt, "view-damaged", "fetch the file again, or select the samples again"),
        /// The file of a view has a version that this program does not know.
        ViewVersion => (Unsupported, "view-version", "read it with a newer shardmill, or select the samples again"),
        /// Only the whole shard can be fetched, not parts of it.
        Indivisible => (Unsupported, "shard-indivisible", "read the whole sample, or convert without compression"),
        /// The offsets of a window are invalid.
        WindowOffsets => (InvalidInput, "window-offsets"),
        /// A column of a window or of episodes is missing, or cannot be used.
        WindowColumn => (InvalidInput, "window-column"),
        /// No episode has all samples of a window.
        WindowEmpty => (InvalidInput, "window-empty", "pad the windows, or use smaller offsets"),
        /// Windows of raw files.
        WindowFiles => (Unsupported, "window-files", "convert the files to shards first"),
        /// There is no file with the lengths of a column.
        LengthsMissing => (NotFound, "lengths-missing", REMEASURE),
        /// The lengths are those of another dataset or column.
        LengthsOther => (Conflict, "lengths-dataset", REMEASURE),
        /// The file of lengths is damaged, or is none.
        LengthsDamaged => (Corrupt, "lengths-damaged", REMEASURE),
        /// The file of lengths has a version that this program does not know.
        LengthsVersion => (Unsupported, "lengths-version", "read it with a newer shardmill, or write it again with `shardmill index lengths`"),
        /// The column does not exist, or its lengths cannot be kept.
        LengthsColumn => (InvalidInput, "lengths-column", "name a column of text, bytes or arrays of an MDS dataset"),
        /// The late columns belong to another dataset.
        ColumnsOther => (Conflict, "columns-dataset", READD),
        /// The list of late columns is damaged, or does not fit its dataset.
        ColumnsDamaged => (Corrupt, "columns-damaged", READD),
        /// The index of videos of a dataset is damaged.
        VideoIndex => (Corrupt, "video-index", "remove the file, and write it again with `shardmill convert --video`"),
        /// The column of videos does not exist, or the dataset has another format.
        VideoColumn => (InvalidInput, "video-column", "name a column of MP4 files of an MDS dataset"),
        /// The tables of a video are invalid.
        VideoDamaged => (Corrupt, "video-damaged"),
        /// A video has a format that is not read in parts.
        VideoFormat => (Unsupported, "video-format", "decode it as a whole"),
        /// A directory whose name is not UTF-8, so that no index can contain it.
        DirectoryName => (InvalidInput, "path-not-utf8"),
        /// A memory allocation failed.
        OutOfMemory => (Resource, "out-of-memory"),
    }
}

/// The hint for a folder that mixes tar files with other files.
const STRAY_HINT: &str = "name the tar files, as in train-{000..146}.tar, or the folder that has nothing but them; `shardmill convert --from tree` and `FileDataset` take every file as it is";
