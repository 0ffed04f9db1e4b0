//! Encodes samples of tar files as MDS samples: the key first, then the fields in the order of the schema.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use shardmill_core::{Limits, lock};
use shardmill_webdataset::{Field, FieldSet, WebdatasetError, read_sample};

use crate::schema::{Schema, in_order};

/// An error of encoding a sample of a tar file.
#[derive(Debug)]
pub enum TarProblem {
    /// The sample cannot be read.
    Read(WebdatasetError),
    /// The fields of the sample are not those of the index.
    Fields {
        /// The key of the sample.
        key: String,
        /// The fields of the sample.
        fields: Vec<String>,
    },
    /// The length of a value does not fit into 32 bits.
    Large {
        /// The length.
        bytes: u64,
    },
    /// The shard does not exist.
    Absent,
}

/// A parsed sample of a tar file.
#[derive(Debug, Default)]
pub struct TarSample<'a> {
    key: String,
    fields: Vec<Field<'a>>,
}

impl<'a> TarSample<'a> {
    /// Parses the headers of the sample in `bytes`, which begin at offset `begin` of their shard.
    pub fn read(begin: u64, bytes: &'a [u8], limits: &Limits) -> Result<Self, TarProblem> {
        let mut fields = Vec::new();
        match read_sample(begin, bytes, &mut fields, limits) {
            Ok(key) => Ok(Self { key, fields }),
            Err(error) => Err(TarProblem::Read(error)),
        }
    }

    /// Returns the key of the sample.
    pub fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// Appends the fields with these names to `cells`, in this order. The sample must have exactly these fields.
    pub fn cells(
        &self,
        names: impl ExactSizeIterator<Item = &'a str>,
        cells: &mut Vec<&'a [u8]>,
    ) -> Result<(), TarProblem> {
        if names.len() != self.fields.len() {
            return Err(self.unexpected());
        }
        for name in names {
            let mut fields = self.fields.iter();
            let field = fields.find(|field| field.name == name);
            cells.push(field.ok_or_else(|| self.unexpected())?.data);
        }
        Ok(())
    }

    /// Appends the sample to `out` as an MDS sample with the columns of `schema`: the lengths, then the values.
    pub fn encode(&self, schema: &'a Schema, out: &mut Vec<u8>) -> Result<(), TarProblem> {
        let Schema::Binary { columns, .. } = schema else {
            return Err(self.unexpected());
        };
        let mut cells = Vec::with_capacity(columns.len());
        cells.push(self.key());
        let names = columns.iter().skip(1).map(|column| column.name.as_str());
        self.cells(names, &mut cells)?;
        encode_values(&cells, out)
    }

    fn unexpected(&self) -> TarProblem {
        let names = self.fields.iter().map(|field| field.name.to_string());
        TarProblem::Fields {
            key: self.key.clone(),
            fields: names.collect(),
        }
    }
}

/// Appends values of variable length as an MDS sample: the lengths, then the values.
pub(crate) fn encode_values(values: &[&[u8]], out: &mut Vec<u8>) -> Result<(), TarProblem> {
    for value in values {
        let bytes = value.len() as u64;
        let length = u32::try_from(bytes).map_err(|_| TarProblem::Large { bytes })?;
        out.extend_from_slice(&length.to_le_bytes());
    }
    for value in values {
        out.extend_from_slice(value);
    }
    Ok(())
}

/// The schemas of samples that have only some fields of their shard. Equal sets of fields share one schema.
#[derive(Debug, Default)]
pub struct Subsets {
    known: Mutex<HashMap<Subset, Arc<Schema>>>,
}

/// The address of a field set, which the schema of its shard keeps alive, and positions of fields in it.
type Subset = (usize, Box<[u16]>);

impl Subsets {
    /// Returns the schema of a sample of a shard with these fields.
    pub fn schema_of(
        &self,
        set: &Arc<FieldSet>,
        sample: &TarSample<'_>,
    ) -> Result<Arc<Schema>, TarProblem> {
        let has = |name: &str| sample.fields.iter().any(|field| field.name == name);
        let all = in_order(set);
        let mut positions = Vec::with_capacity(sample.fields.len());
        for (position, (name, is_always)) in all.iter().enumerate() {
            if has(name) {
                positions.push(u16::try_from(position).unwrap_or(u16::MAX));
            } else if *is_always {
                return Err(sample.unexpected());
            }
        }
        if positions.len() != sample.fields.len() {
            return Err(sample.unexpected());
        }
        let key = (Arc::as_ptr(set).addr(), positions.into_boxed_slice());
        let mut known = lock(&self.known);
        let schema = known.entry(key).or_insert_with(|| {
            let names = all.iter().map(|(name, _)| *name);
            Arc::new(Schema::of_fields(names.filter(|name| has(name))))
        });
        Ok(Arc::clone(schema))
    }
}
