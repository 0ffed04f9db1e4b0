//! The columns of a shard, in a form that makes reading many samples fast.

use std::sync::Arc;

use shardmill_mds::{Encoding, Layout};
use shardmill_webdataset::FieldSet;

use crate::entry::Entry;
use crate::files::DATA_COLUMN;

/// The column of the keys of samples.
pub const KEY_COLUMN: &str = "__key__";

/// The end of the name of a column that marks the nulls of another one.
pub const NULL_MASK_SUFFIX: &str = "__is_null";

/// A column of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaColumn {
    /// The name of the column.
    pub name: String,
    /// How its values are encoded.
    pub encoding: Encoding,
    /// The length of every value in bytes; `None` if values have different lengths.
    pub size: Option<usize>,
    /// The position of the column that marks nulls of this one: a `uint8` that is 1 for a null, 2 for a list with a null
    /// inside, and else 0. In place of a null there is a zero. `None` if the column has no nulls.
    pub null_mask: Option<usize>,
}

impl SchemaColumn {
    fn new(name: &str, encoding: Encoding) -> Self {
        let size = encoding.fixed_size();
        Self {
            name: name.to_owned(),
            size: size.map(|size| usize::try_from(size).unwrap_or(usize::MAX)),
            encoding,
            null_mask: None,
        }
    }
}

/// The kind of shard that contains the samples of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleForm {
    /// MDS: the encoding of each column is known.
    Mds,
    /// WebDataset: the column `__key__`, and the bytes of each field.
    WebDataset,
    /// Raw files: their paths and bytes.
    File,
}

/// The columns of a shard. Shards with equal columns share one schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schema {
    /// MDS, raw files, and tar files whose samples all have the same fields. Values are bytes.
    Binary {
        /// The kind of shard.
        form: SampleForm,
        /// The columns, in the order of the index.
        columns: Vec<SchemaColumn>,
        /// Bytes before the first value of a sample: four for each column without a fixed size.
        head: usize,
        /// The length of a sample without its values of variable size, in bytes.
        fixed: usize,
    },
    /// Tar files whose samples have different fields. Each sample that is read has its own [`Schema::Binary`].
    Fields(Arc<FieldSet>),
    /// JSON, CSV, TSV and XSV: each sample is a line of text.
    Text(Layout),
}

impl Schema {
    /// Makes the schema of a shard.
    pub fn new(entry: Entry<'_>) -> Self {
        match entry {
            Entry::Mds(entry) => match &entry.config.layout {
                Layout::Mds { columns } => {
                    let columns = columns.iter();
                    let columns =
                        columns.map(|own| SchemaColumn::new(&own.name, own.encoding.clone()));
                    Self::binary(SampleForm::Mds, columns.collect())
                }
                layout => Self::Text(layout.clone()),
            },
            Entry::Tar(entry) if entry.fields.sometimes.is_empty() => {
                Self::of_fields(entry.fields.always.iter().map(|name| &**name))
            }
            Entry::Tar(entry) => Self::Fields(Arc::clone(&entry.fields)),
            Entry::File(_, form) => {
                let column = |name: &&str| match *name {
                    DATA_COLUMN => SchemaColumn::new(name, Encoding::Bytes),
                    _ => SchemaColumn::new(name, Encoding::Str),
                };
                let columns = form.names().iter().map(column);
                Self::binary(SampleForm::File, columns.collect())
            }
        }
    }

    fn binary(form: SampleForm, columns: Vec<SchemaColumn>) -> Self {
        let sizes = || columns.iter().map(|column| column.size);
        let head = 4 * sizes().filter(Option::is_none).count();
        let fixed = sizes().flatten().fold(head, usize::saturating_add);
        Self::Binary {
            form,
            columns,
            head,
            fixed,
        }
    }

    /// Returns the schema where these columns mark the nulls of others.
    pub fn with_null_masks(mut self, masks: &[String]) -> Self {
        if let Self::Binary { columns, .. } = &mut self {
            for mask in masks {
                let position = columns.iter().position(|column| column.name == *mask);
                let own = mask.strip_suffix(NULL_MASK_SUFFIX);
                if let Some(column) = columns.iter_mut().find(|column| Some(&*column.name) == own) {
                    column.null_mask = position;
                }
            }
        }
        self
    }

    /// Returns the schema of samples of tar files with these fields.
    pub fn of_fields<'a>(fields: impl Iterator<Item = &'a str>) -> Self {
        let key = SchemaColumn::new(KEY_COLUMN, Encoding::Str);
        let fields = fields.map(|field| SchemaColumn::new(field, Encoding::Bytes));
        let columns = std::iter::once(key).chain(fields);
        Self::binary(SampleForm::WebDataset, columns.collect())
    }

    /// Returns whether samples must be re-encoded as MDS samples. That is so for tar files and raw files.
    pub const fn needs_encoding(&self) -> bool {
        matches!(
            self,
            Self::Fields(_)
                | Self::Binary {
                    form: SampleForm::WebDataset | SampleForm::File,
                    ..
                }
        )
    }

    /// Returns the names of the columns.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Binary { columns, .. } => {
                columns.iter().map(|column| column.name.as_str()).collect()
            }
            Self::Fields(fields) => std::iter::once(KEY_COLUMN)
                .chain(in_order(fields).into_iter().map(|(name, _)| name))
                .collect(),
            Self::Text(Layout::Json { columns, .. } | Layout::Xsv { columns, .. }) => {
                columns.iter().map(|column| column.name.as_str()).collect()
            }
            Self::Text(Layout::Mds { .. }) => Vec::new(),
        }
    }
}

/// Returns all fields by code point, and whether every sample has them. The sorting gives fields the same relative
/// order in every shard.
pub fn in_order(set: &FieldSet) -> Vec<(&str, bool)> {
    let always = set.always.iter().map(|name| (&**name, true));
    let sometimes = set.sometimes.iter().map(|name| (&**name, false));
    let mut all: Vec<(&str, bool)> = always.chain(sometimes).collect();
    all.sort_unstable();
    all
}
