//! The errors of conversions.

use std::borrow::Cow;

use shardmill_core::{Diagnostic, ErrorKind, Unfinished, escape, shell_word};
use shardmill_dataset::DatasetError;
use shardmill_mds::MdsError;
use shardmill_source::SourceError;
use shardmill_storage::StorageError;
use shardmill_tokenize::TokenizeError;
use shardmill_webdataset::WebdatasetError;
use shardmill_writer::WriteError;

/// The error of a conversion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ConvertError {
    /// An option is invalid or cannot be used here.
    #[error("{reason}")]
    Option {
        /// The option, as on the command line without dashes.
        option: &'static str,
        reason: String,
        hint: Option<String>,
    },
    /// No shard can have this configuration.
    #[error(transparent)]
    Config(#[from] MdsError),
    /// An encoding does not exist.
    #[error("{reason}")]
    Encoding {
        column: String,
        reason: String,
        id: &'static str,
        hint: Option<String>,
    },
    /// Columns have nulls, and no option says what to do with them.
    #[error("{}", null_columns(.columns))]
    Nulls {
        source_name: String,
        /// The columns, with the number of nulls and the location of the first one.
        columns: Vec<(String, u64, Option<String>)>,
        /// Whether the source is a file tree whose samples have different fields.
        tree: bool,
        /// Whether the format allows samples to lack a field.
        may_omit: bool,
        hint: String,
    },
    /// The source has no columns: an empty file of a format without a schema.
    #[error("there are no columns, because there is no data")]
    NoColumns { source_name: String },
    /// The destination is in a state that the operation cannot use.
    #[error("{reason}")]
    Conflict {
        dest: String,
        reason: String,
        id: &'static str,
        hint: Cow<'static, str>,
    },
    /// Columns cannot be added to a dataset.
    #[error("{reason}")]
    Late {
        dataset: String,
        /// The cause, such as a key without a row.
        reason: String,
        id: &'static str,
        hint: Option<&'static str>,
    },
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// A dataset cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The index format of another reader cannot express the dataset.
    #[error(transparent)]
    Sidecar(#[from] WebdatasetError),
    /// The SQLite database of an index could not be created, for lack of memory.
    #[error("the SQLite database could not be created")]
    Database {
        name: String,
        #[source]
        source: Box<rusqlite::Error>,
    },
    /// A tar file can only be rewritten after a decision of the user.
    #[error("the shard cannot be rewritten")]
    Fix {
        path: String,
        #[source]
        source: Box<WebdatasetError>,
    },
    /// Encoding or writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The destination holds parts that wait for a commit.
    #[error("{}", Unfinished::Parts)]
    Uncommitted { dest: String },
    /// The part to remove does not exist.
    #[error("there is no part {part} to remove")]
    NoSuchPart {
        dest: String,
        /// The part, as `I/N`.
        part: String,
        known: Vec<String>,
    },
    /// The destination holds no parts to commit.
    #[error("there are no parts to publish")]
    NoParts { dest: String },
    /// A manifest of a part cannot be read.
    #[error("it is not a manifest of a part: {reason}")]
    Manifest { path: String, reason: String },
    /// A storage operation failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn null_columns(columns: &[(String, u64, Option<String>)]) -> String {
    let shown: Vec<String> = columns
        .iter()
        .take(10)
        .map(|(name, count, first)| match first {
            Some(first) => format!(
                "column {} has {count} nulls, the first in {first}",
                escape(name)
            ),
            None => format!("column {} has {count} nulls", escape(name)),
        })
        .collect();
    let more = columns.len().saturating_sub(shown.len());
    let tail = if more > 0 {
        format!(", and {more} more columns have some")
    } else {
        String::new()
    };
    format!("{}{tail}", shown.join(", "))
}

impl ConvertError {
    pub(crate) fn option(option: &'static str, reason: impl Into<String>) -> Self {
        Self::Option {
            option,
            reason: reason.into(),
            hint: None,
        }
    }

    pub(crate) fn option_hint(
        option: &'static str,
        reason: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Option {
            option,
            reason: reason.into(),
            hint: Some(hint.into()),
        }
    }

    /// Builds the error of a destination in a state that the operation cannot use.
    pub(crate) fn conflict(
        dest: String,
        id: &'static str,
        reason: impl Into<String>,
        hint: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Conflict {
            dest,
            reason: reason.into(),
            id,
            hint: hint.into(),
        }
    }

    /// Returns whether a run that failed with this error can be resumed: the cause is outside the data and the
    /// configuration.
    pub(crate) fn is_resumable(&self) -> bool {
        match self.kind() {
            ErrorKind::Storage
            | ErrorKind::Resource
            | ErrorKind::Permission
            | ErrorKind::Interrupted => true,
            ErrorKind::InvalidInput
            | ErrorKind::NotFound
            | ErrorKind::Corrupt
            | ErrorKind::Unsupported
            | ErrorKind::Conflict
            | ErrorKind::Bug => false,
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Config(error) => Some(error),
            Self::Source(error) => Some(error),
            Self::Tokenize(error) => Some(error),
            Self::Dataset(error) => Some(error),
            Self::Sidecar(error) => Some(error),
            Self::Fix { source, .. } => Some(&**source),
            Self::Write(error) => Some(error),
            Self::Storage(error) => Some(error),
            Self::Option { .. }
            | Self::Encoding { .. }
            | Self::Nulls { .. }
            | Self::NoColumns { .. }
            | Self::NoParts { .. }
            | Self::NoSuchPart { .. }
            | Self::Uncommitted { .. }
            | Self::Manifest { .. }
            | Self::Database { .. }
            | Self::Late { .. }
            | Self::Conflict { .. } => None,
        }
    }
}

impl Diagnostic for ConvertError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Option { .. }
            | Self::Encoding { .. }
            | Self::NoColumns { .. }
            | Self::NoSuchPart { .. }
            | Self::Late { .. }
            | Self::NoParts { .. } => ErrorKind::InvalidInput,
            Self::Nulls { .. } | Self::Manifest { .. } => ErrorKind::Corrupt,
            Self::Conflict { .. } | Self::Uncommitted { .. } => ErrorKind::Conflict,
            Self::Database { .. } => ErrorKind::Resource,
            _ => self.inner().map_or(ErrorKind::Bug, Diagnostic::kind),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Option { option, .. } => option_id(option),
            Self::Encoding { id, .. } | Self::Conflict { id, .. } | Self::Late { id, .. } => id,
            Self::Nulls { .. } => "value-null",
            Self::NoColumns { .. } => "config-no-columns",
            Self::NoParts { .. } => "parts-none",
            Self::NoSuchPart { .. } => "part-missing",
            Self::Uncommitted { .. } => Unfinished::Parts.id(),
            Self::Manifest { .. } => "parts-manifest",
            Self::Database { .. } => "sidecar-database",
            _ => self.inner().map_or("internal", Diagnostic::id),
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Option { option, .. } => Some(format!("--{option}")),
            Self::Encoding { column, .. } => Some(format!("column {}", escape(column))),
            Self::Nulls { source_name, .. } | Self::NoColumns { source_name } => {
                Some(escape(source_name).into_owned())
            }
            Self::Late { dataset: dest, .. }
            | Self::Conflict { dest, .. }
            | Self::NoParts { dest }
            | Self::NoSuchPart { dest, .. }
            | Self::Uncommitted { dest } => Some(escape(dest).into_owned()),
            Self::Manifest { path, .. } => Some(escape(path).into_owned()),
            Self::Database { name, .. } => Some(name.clone()),
            Self::Fix { path, .. } => Some(escape(path).into_owned()),
            _ => self.inner().and_then(Diagnostic::object),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Option { hint, .. } | Self::Encoding { hint, .. } => hint.clone(),
            Self::Nulls {
                may_omit: true,
                tree: true,
                ..
            } => Some(
                "choose --group key where names have several extensions (1.seg.png), --nulls omit to leave fields out of samples, --nulls mask, or drop"
                    .to_owned(),
            ),
            Self::Nulls { may_omit: true, .. } => Some(
                "choose --nulls omit to leave the field out of the sample, --nulls mask, drop, or --null-as NAME=VALUE"
                    .to_owned(),
            ),
            Self::Nulls { tree: true, .. } => Some(
                "samples have different files: choose --group key where names have several extensions (1.seg.png), --nulls mask, or --group file to make every file a sample"
                    .to_owned(),
            ),
            Self::Nulls { hint, .. } => Some(hint.clone()),
            Self::Late { hint, .. } => hint.map(str::to_owned),
            Self::Conflict { hint, .. } => Some(hint.clone().into_owned()),
            Self::NoParts { dest } => Some(format!(
                "write them with `shardmill convert SOURCE {} --part I/N`",
                shell_word(dest)
            )),
            Self::NoSuchPart { known, .. } if known.is_empty() => {
                Some("there are no uncommitted parts".to_owned())
            }
            Self::NoSuchPart { known, .. } => {
                Some(format!("the uncommitted parts are {}", known.join(", ")))
            }
            Self::Uncommitted { dest } => Some(Unfinished::Parts.hint(dest)),
            Self::Manifest { .. } => Some("write the part again".to_owned()),
            // A rewrite for all readers cannot allow long names.
            Self::Fix { source, .. } if source.id() == "tar-long-name" => Some(
                "give the member a name of at most 100 ASCII characters; `shardmill convert --to webdataset --names any` keeps long names, which not every reader understands"
                    .to_owned(),
            ),
            _ => self.inner().and_then(Diagnostic::hint),
        }
    }
}

/// Returns the error id of an option. Ids are static so that they can be listed.
fn option_id(option: &str) -> &'static str {
    match option {
        "split" => "config-split",
        "split-key" => "config-split-key",
        "null-as" => "config-null-as",
        "compression" => "config-compression",
        "row-group-size" => "config-row-group-size",
        "keep-row-groups" => "config-keep-row-groups",
        "nulls" => "config-nulls",
        "lengths" => "config-lengths",
        "text" => "config-text",
        "tokens" => "config-tokens",
        "column" => "config-column",
        "separator" => "config-separator",
        "sql" => "config-sql",
        "memory-limit" => "config-memory-limit",
        "jobs" => "config-jobs",
        "key-column" => "config-key",
        "index-for" => "config-index-for",
        "group" => "config-group",
        "schema" => "config-schema",
        "part" => "config-part",
        "csv-delimiter" => "config-csv-delimiter",
        "csv-null" => "config-csv-null",
        "csv-no-header" => "config-csv-no-header",
        "infer-rows" => "config-infer-rows",
        "variable" => "config-variable",
        "window" => "config-window",
        "follow-links" => "config-follow-links",
        "include" => "config-include",
        "exclude" => "config-exclude",
        _ => "config-option",
    }
}
