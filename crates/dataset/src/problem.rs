//! The problems of datasets that one sentence describes: their kinds, ids and hints, and the places that they are about.

use std::fmt;
use std::path::{Path, PathBuf};

use shardmill_core::{ErrorKind, escape};

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

/// What an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The call as a whole.
    Call,
    /// A location, a file of a store or an option, by its name.
    Name(String),
    /// A file or folder.
    Path(PathBuf),
    /// A place in a dataset.
    Place(Place),
}

impl From<&str> for Subject {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
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

impl From<Place> for Subject {
    fn from(place: Place) -> Self {
        Self::Place(place)
    }
}

/// What is wrong with a dataset or a request, if a sentence says all that is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatasetProblem {
    /// A pattern whose tar files are in several stores or buckets.
    PatternApart,
    /// A pattern that names a file twice.
    PatternTwice,
    /// A pattern with an invalid name.
    PatternName,
    /// A tar file that a pattern names is missing.
    PatternShard,
    /// A pattern of tar files was combined with a split.
    PatternSplit,
    /// A folder without tar files and without an index.
    NoTars,
    /// An index of another format than tar files.
    OtherFormat,
    /// A directory without an index that contains tar files and other files, so that it may not be a dataset.
    Stray,
    /// The provenance is missing, although a file that belongs to one exists.
    ProvenanceMissing,
    /// The provenance is invalid.
    ProvenanceDamaged,
    /// The provenance belongs to another index.
    ProvenanceOther,
    /// The list of deleted samples is missing.
    TombstonesMissing,
    /// The list of deleted samples is invalid, or not the one that the provenance records.
    TombstonesDamaged,
    /// The index does not have the hash that the caller expects.
    IndexMismatch,
    /// An expected hash that cannot be parsed, or whose algorithm is not secure.
    ExpectIndex,
    /// Keys were requested of streams that have none.
    NoKeys,
    /// A tar file does not have the number of samples that its index declares.
    TarSamples,
    /// A sample of a tar file does not have the fields that the index declares.
    TarFields,
    /// The dataset has no sample of that number.
    NoSample,
    /// The dataset has no shard of that number.
    NoShard,
    /// A directory to index has no shards.
    NoShards,
    /// The numbers of the shards in a directory are not 0, 1, 2, ….
    Gap,
    /// Two files are candidates for the same shard.
    Ambiguous,
    /// The file of a shard is not compressed as its header declares.
    StoredForm,
    /// One of the two files of a shard is missing.
    PartnerMissing,
    /// The header of a shard declares another format than the name of its file.
    Format,
    /// No index to merge was found.
    NothingToMerge,
    /// An index to merge lies outside the directory of the merged index, which cannot name its shards.
    Outside,
    /// No stream was named, or a stream has no location.
    Streams,
    /// A stream of a store without a local folder to fetch shards to.
    StreamLocal,
    /// The folder that shards would be fetched to contains another dataset.
    CacheForeign,
    /// A file of a shard was truncated or written while it was read.
    ShardChanged,
    /// A file that changed, or became unreadable, while it was read.
    FileChanged,
    /// A tree without files.
    TreeEmpty,
    /// A tree without files that the patterns take.
    TreeFiltered,
    /// An invalid pattern of files.
    FilePattern,
    /// An object of a store whose name is also a folder of other objects, which a local folder cannot represent.
    TreeClash,
    /// The local folder contains the files of another tree, or of other patterns.
    OtherTree,
    /// The stored list of files is damaged.
    FileList,
    /// The list of files does not have the digest that the caller expects.
    FilesDigest,
    /// Files of the previous list are in use.
    FilesInUse,
    /// A listed file does not exist any more.
    FileMissing,
    /// A listed file has changed.
    ListedFileChanged,
    /// A listed object of a store has changed.
    ObjectChanged,
    /// A file in the local folder that the cache did not write, so that it may not be the listed one.
    FileUnknown,
    /// The list has no such file.
    NoSuchFile,
    /// Files were requested by name, but no stream is a tree of raw files.
    NoTree,
    /// The view selects samples of another dataset.
    ViewOther,
    /// The file of a view is damaged, or is none.
    ViewDamaged,
    /// The file of a view has a version that this program does not know.
    ViewVersion,
    /// Only the whole shard can be fetched, not parts of it.
    Indivisible,
    /// The offsets of a window are invalid.
    WindowOffsets,
    /// A column of a window or of episodes is missing, or cannot be used.
    WindowColumn,
    /// No episode has all samples of a window.
    WindowEmpty,
    /// Windows of raw files.
    WindowFiles,
    /// There is no file with the lengths of a column.
    LengthsMissing,
    /// The lengths are those of another dataset or column.
    LengthsOther,
    /// The file of lengths is damaged, or is none.
    LengthsDamaged,
    /// The file of lengths has a version that this program does not know.
    LengthsVersion,
    /// The column does not exist, or its lengths cannot be kept.
    LengthsColumn,
    /// The late columns belong to another dataset.
    ColumnsOther,
    /// The list of late columns is damaged, or does not fit its dataset.
    ColumnsDamaged,
    /// The index of videos of a dataset is damaged.
    VideoIndex,
    /// The column of videos does not exist, or the dataset has another format.
    VideoColumn,
    /// The tables of a video are invalid.
    VideoDamaged,
    /// A video has a format that is not read in parts.
    VideoFormat,
    /// A memory allocation failed.
    OutOfMemory,
}

/// The hint for a folder that mixes tar files with other files.
const STRAY_HINT: &str = "name the tar files, as in train-{000..146}.tar, or the folder that has nothing but them; `shardmill convert --from tree` and `FileDataset` take every file as it is";

impl DatasetProblem {
    /// Returns the kind, the stable id and the hint of the problem.
    pub(crate) const fn facts(self) -> (ErrorKind, &'static str, Option<&'static str>) {
        use ErrorKind::{Conflict, Corrupt, InvalidInput, NotFound, Resource, Unsupported};
        const REFETCH: Option<&str> =
            Some("fetch it again with the dataset, or convert the dataset again");
        const RESTORE: Option<&str> =
            Some("fetch it again, or run convert --incremental, which restores it");
        const REINDEX: Option<&str> = Some("make the index anew from the shards");
        const REMEASURE: Option<&str> = Some("write it again with `shardmill index lengths`");
        const READD: Option<&str> = Some(
            "remove index.columns, which leaves the dataset without these columns, and run `shardmill add-column` again",
        );
        const RELIST: Option<&str> =
            Some("list the files anew (`relist`), or name another local folder");
        match self {
            Self::PatternApart => (
                InvalidInput,
                "pattern-names",
                Some("give a stream for each"),
            ),
            Self::PatternTwice => (
                InvalidInput,
                "pattern-names",
                Some("a stream has each of its shards once; `repeat` has it twice"),
            ),
            Self::PatternName => (InvalidInput, "pattern-names", None),
            Self::PatternShard => (NotFound, "shard-missing", None),
            Self::PatternSplit => (
                InvalidInput,
                "config-split",
                Some("write the folder into the pattern"),
            ),
            Self::NoTars => (NotFound, "index-missing", None),
            Self::OtherFormat => (
                InvalidInput,
                "index-format",
                Some("`shardmill convert --to webdataset` makes tar files of it"),
            ),
            Self::Stray => (InvalidInput, "source-mixed", Some(STRAY_HINT)),
            Self::ProvenanceMissing => (Corrupt, "provenance-missing", REFETCH),
            Self::ProvenanceDamaged => (Corrupt, "provenance-damaged", REFETCH),
            Self::ProvenanceOther => (
                Corrupt,
                "provenance-other",
                Some(
                    "fetch index.json and index.provenance again, or convert the dataset again with --overwrite",
                ),
            ),
            Self::TombstonesMissing => (Corrupt, "tombstones-missing", RESTORE),
            Self::TombstonesDamaged => (Corrupt, "tombstones-damaged", RESTORE),
            Self::IndexMismatch => (Corrupt, "index-mismatch", None),
            Self::ExpectIndex => (
                InvalidInput,
                "config-expect-index",
                Some("as in sha256:9f86d081…"),
            ),
            Self::NoKeys => (InvalidInput, "no-keys", None),
            Self::TarSamples => (Corrupt, "tar-samples", REINDEX),
            Self::TarFields => (Corrupt, "tar-fields", REINDEX),
            Self::NoSample => (InvalidInput, "no-such-sample", None),
            Self::NoShard => (InvalidInput, "no-such-shard", None),
            Self::NoShards => (NotFound, "index-no-shards", None),
            Self::Gap => (
                Corrupt,
                "index-gap",
                Some(
                    "an index without it would number the samples differently; find the file first",
                ),
            ),
            Self::Ambiguous => (
                Corrupt,
                "shard-ambiguous",
                Some("move one of the files away"),
            ),
            Self::StoredForm => (Corrupt, "shard-stored-form", None),
            Self::PartnerMissing => (Corrupt, "shard-missing", None),
            Self::Format => (Corrupt, "shard-format", None),
            Self::NothingToMerge => (
                NotFound,
                "merge-nothing",
                Some("each part needs an index of its own"),
            ),
            Self::Outside => (InvalidInput, "merge-outside", None),
            Self::Streams => (InvalidInput, "config-streams", None),
            Self::StreamLocal => (InvalidInput, "config-local", None),
            Self::CacheForeign => (
                Conflict,
                "cache-foreign",
                Some("name another local folder, or remove this one if it is an old cache"),
            ),
            Self::ShardChanged => (
                Corrupt,
                "shard-changed",
                Some("shards may be replaced, but not written to; read again"),
            ),
            Self::FileChanged => (Corrupt, "file-changed", None),
            Self::TreeEmpty => (
                NotFound,
                "tree-empty",
                Some("see whether the place is the right one"),
            ),
            Self::TreeFiltered => (NotFound, "tree-empty", Some("see `include` and `exclude`")),
            Self::FilePattern => (InvalidInput, "config-pattern", None),
            Self::TreeClash => (
                Unsupported,
                "tree-clash",
                Some("leave one of them out with `exclude`"),
            ),
            Self::OtherTree => (Conflict, "cache-foreign", Some("name another local folder")),
            Self::FileList => (Corrupt, "files-list", RELIST),
            Self::FilesDigest => (
                Conflict,
                "files-digest",
                Some("go on with the files that the run began with, or begin anew"),
            ),
            Self::FilesInUse => (
                Conflict,
                "files-in-use",
                Some("end the processes that read them, or name another local folder"),
            ),
            Self::FileMissing => (NotFound, "file-missing", RELIST),
            Self::ListedFileChanged => (Corrupt, "file-changed", RELIST),
            Self::ObjectChanged => (Corrupt, "remote-changed", RELIST),
            Self::FileUnknown => (
                Corrupt,
                "file-untold",
                Some("move it away, or name another local folder"),
            ),
            Self::NoSuchFile => (NotFound, "no-such-file", None),
            Self::NoTree => (InvalidInput, "config-files", None),
            Self::ViewOther => (
                Conflict,
                "view-dataset",
                Some("select the samples again, from this dataset"),
            ),
            Self::ViewDamaged => (
                Corrupt,
                "view-damaged",
                Some("fetch the file again, or select the samples again"),
            ),
            Self::ViewVersion => (
                Unsupported,
                "view-version",
                Some("read it with a newer shardmill, or select the samples again"),
            ),
            Self::Indivisible => (
                Unsupported,
                "shard-indivisible",
                Some("read the whole sample, or convert without compression"),
            ),
            Self::WindowOffsets => (InvalidInput, "window-offsets", None),
            Self::WindowColumn => (InvalidInput, "window-column", None),
            Self::WindowEmpty => (
                InvalidInput,
                "window-empty",
                Some("pad the windows, or use smaller offsets"),
            ),
            Self::WindowFiles => (
                Unsupported,
                "window-files",
                Some("convert the files to shards first"),
            ),
            Self::LengthsMissing => (NotFound, "lengths-missing", REMEASURE),
            Self::LengthsOther => (Conflict, "lengths-dataset", REMEASURE),
            Self::LengthsDamaged => (Corrupt, "lengths-damaged", REMEASURE),
            Self::LengthsVersion => (
                Unsupported,
                "lengths-version",
                Some(
                    "read it with a newer shardmill, or write it again with `shardmill index lengths`",
                ),
            ),
            Self::LengthsColumn => (
                InvalidInput,
                "lengths-column",
                Some("name a column of text, bytes or arrays of an MDS dataset"),
            ),
            Self::ColumnsOther => (Conflict, "columns-dataset", READD),
            Self::ColumnsDamaged => (Corrupt, "columns-damaged", READD),
            Self::VideoIndex => (
                Corrupt,
                "video-index",
                Some("remove the file, and write it again with `shardmill convert --video`"),
            ),
            Self::VideoColumn => (
                InvalidInput,
                "video-column",
                Some("name a column of MP4 files of an MDS dataset"),
            ),
            Self::VideoDamaged => (Corrupt, "video-damaged", None),
            Self::VideoFormat => (Unsupported, "video-format", Some("decode it as a whole")),
            Self::OutOfMemory => (Resource, "out-of-memory", None),
        }
    }
}
