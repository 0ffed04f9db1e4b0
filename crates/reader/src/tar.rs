//! Samples of tar files in the form of those of MDS: the key first, then the fields in the order of the schema.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::Limits;
use shardmill_webdataset::{Field, FieldSet, TarError, read_sample};

use crate::schema::Schema;

/// The column that holds the keys of samples.
pub const KEY_COLUMN: &str = "__key__";

/// Why a sample of a tar file cannot be given out.
#[derive(Debug)]
pub(crate) enum TarProblem {
    /// It cannot be read.
    Read(TarError),
    /// Its fields are not those of the index.
    Fields { key: String, fields: Vec<String> },
    /// A value is longer than its length can say.
    Large { bytes: u64 },
    /// There is no such shard.
    Absent,
}

/// A sample as it lies in a tar file, taken apart.
#[derive(Debug, Default)]
pub(crate) struct TarSample<'a> {
    key: String,
    fields: Vec<Field<'a>>,
}

impl<'a> TarSample<'a> {
    /// Reads the headers of the sample that lies in `bytes`, which begin at `begin` in their shard.
    pub(crate) fn read(begin: u64, bytes: &'a [u8], limits: &Limits) -> Result<Self, TarProblem> {
        let mut fields = Vec::new();
        match read_sample(begin, bytes, &mut fields, limits) {
            Ok(key) => Ok(Self { key, fields }),
            Err(error) => Err(TarProblem::Read(error)),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// The fields of these names, in this order, into `cells`; the sample has to have these and no others.
    pub(crate) fn cells(
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

    /// The values behind their lengths, as a sample of MDS with the columns of `schema`.
    pub(crate) fn encode(&self, schema: &'a Schema, out: &mut Vec<u8>) -> Result<(), TarProblem> {
        let Schema::Binary { columns, .. } = schema else {
            return Err(self.unexpected());
        };
        let mut cells = Vec::with_capacity(columns.len());
        cells.push(self.key());
        let names = columns.iter().skip(1).map(|column| column.name.as_str());
        self.cells(names, &mut cells)?;
        for cell in &cells {
            let bytes = cell.len() as u64;
            let length = u32::try_from(bytes).map_err(|_| TarProblem::Large { bytes })?;
            out.extend_from_slice(&length.to_le_bytes());
        }
        for cell in cells {
            out.extend_from_slice(cell);
        }
        Ok(())
    }

    fn unexpected(&self) -> TarProblem {
        let names = self.fields.iter().map(|field| field.name.to_string());
        TarProblem::Fields {
            key: self.key.clone(),
            fields: names.collect(),
        }
    }
}

/// All fields, by code point, and whether every sample has them: so that a field stands at the same place among the others
/// in every shard.
pub(crate) fn in_order(set: &FieldSet) -> Vec<(&str, bool)> {
    let always = set.always.iter().map(|name| (&**name, true));
    let sometimes = set.sometimes.iter().map(|name| (&**name, false));
    let mut all: Vec<(&str, bool)> = always.chain(sometimes).collect();
    all.sort_unstable();
    all
}

/// The schemas of samples that have only some of the fields of their shard: the same one for the same fields.
#[derive(Debug, Default)]
pub(crate) struct Subsets {
    known: Mutex<HashMap<Subset, Arc<Schema>>>,
}

/// The address of a field set, which the schema of its shard keeps alive, and the places of fields in it.
type Subset = (usize, Box<[u16]>);

impl Subsets {
    /// The schema of a sample of a shard with these fields.
    pub(crate) fn schema_of(
        &self,
        set: &Arc<FieldSet>,
        sample: &TarSample<'_>,
    ) -> Result<Arc<Schema>, TarProblem> {
        let has = |name: &str| sample.fields.iter().any(|field| field.name == name);
        let all = in_order(set);
        let mut places = Vec::with_capacity(sample.fields.len());
        for (place, (name, is_always)) in all.iter().enumerate() {
            if has(name) {
                places.push(u16::try_from(place).unwrap_or(u16::MAX));
            } else if *is_always {
                return Err(sample.unexpected());
            }
        }
        if places.len() != sample.fields.len() {
            return Err(sample.unexpected());
        }
        let key = (Arc::as_ptr(set).addr(), places.into_boxed_slice());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let schema = known.entry(key).or_insert_with(|| {
            let names = all.iter().map(|(name, _)| *name);
            Arc::new(Schema::of_fields(names.filter(|name| has(name))))
        });
        Ok(Arc::clone(schema))
    }
}
