//! The columns of a shard, compiled for reading many samples.

use shardmill_mds::{Encoding, Layout, ShardConfig};

/// A column as a batch shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaColumn {
    /// Its name.
    pub name: String,
    /// How its values are encoded.
    pub encoding: Encoding,
    /// The length of every value in bytes; `None` where each has its own.
    pub size: Option<usize>,
}

/// The columns of a shard. Shards that differ only in how they are stored share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schema {
    /// Of MDS: values as bytes.
    Binary {
        /// The columns, in the order of the index.
        columns: Vec<SchemaColumn>,
        /// Bytes before the first value of a sample: four for each column without a fixed size.
        head: usize,
        /// The length of a sample without its values of variable size.
        fixed: usize,
    },
    /// Of JSON, CSV, TSV and XSV: a line of text.
    Text(Layout),
}

impl Schema {
    pub(crate) fn new(config: &ShardConfig) -> Self {
        let Layout::Mds { columns } = &config.layout else {
            return Self::Text(config.layout.clone());
        };
        let columns: Vec<SchemaColumn> = columns
            .iter()
            .map(|column| SchemaColumn {
                name: column.name.clone(),
                encoding: column.encoding.clone(),
                size: column
                    .encoding
                    .fixed_size()
                    .map(|size| usize::try_from(size).unwrap_or(usize::MAX)),
            })
            .collect();
        let head = 4 * columns
            .iter()
            .filter(|column| column.size.is_none())
            .count();
        let fixed = columns
            .iter()
            .filter_map(|column| column.size)
            .fold(head, usize::saturating_add);
        Self::Binary {
            columns,
            head,
            fixed,
        }
    }

    /// Whether it is that of a shard.
    pub(crate) fn is_of(&self, config: &ShardConfig) -> bool {
        match (self, &config.layout) {
            (Self::Binary { columns, .. }, Layout::Mds { columns: others }) => {
                let same = |(own, other): (&SchemaColumn, &shardmill_mds::Column)| {
                    own.name == other.name && own.encoding == other.encoding
                };
                columns.len() == others.len() && columns.iter().zip(others).all(same)
            }
            (Self::Text(layout), other) => layout == other,
            (Self::Binary { .. }, _) => false,
        }
    }

    /// The names of its columns.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Binary { columns, .. } => {
                columns.iter().map(|column| column.name.as_str()).collect()
            }
            Self::Text(Layout::Json { columns, .. } | Layout::Xsv { columns, .. }) => {
                columns.iter().map(|column| column.name.as_str()).collect()
            }
            Self::Text(Layout::Mds { .. }) => Vec::new(),
        }
    }
}
