//! Reads samples of a tree as record batches; each file is opened, read and checked once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, BooleanBufferBuilder, RecordBatch, StringArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, SchemaRef};

use super::files::Shared;
use crate::SourceProblem;
use crate::base::batch;
use crate::error;
use shardmill_core::{Error, omit_option};

/// The samples of one unit.
pub(super) struct SampleRows {
    pub shared: Arc<Shared>,
    pub samples: Range<usize>,
    pub schema: SchemaRef,
    /// For each column, its field; `None` for the key.
    pub columns: Vec<Option<usize>>,
}

impl SampleRows {
    pub(super) fn pull(&mut self) -> Result<Option<RecordBatch>, Error> {
        if self.samples.is_empty() {
            return Ok(None);
        }
        let samples = self.next_samples();
        self.read(samples).map(Some)
    }

    /// Returns the samples of the next batch, at least one.
    fn next_samples(&mut self) -> Range<usize> {
        let start = self.samples.start;
        let mut end = start;
        let mut bytes = 0;
        while end < self.samples.end && (end == start || bytes < self.shared.batch_bytes) {
            let members = self.shared.samples.members(end);
            let wanted = members.filter(|(field, _)| self.columns.contains(&Some(*field)));
            bytes += wanted
                .map(|(_, file)| self.shared.file_version(file).bytes)
                .sum::<u64>();
            end += 1;
        }
        self.samples.start = end;
        start..end
    }

    fn read(&self, samples: Range<usize>) -> Result<RecordBatch, Error> {
        let members = samples
            .clone()
            .flat_map(|sample| self.shared.samples.members(sample));
        let wanted = members.filter(|(field, _)| self.columns.contains(&Some(*field)));
        let wanted: Vec<usize> = wanted.map(|(_, file)| file).collect();
        let fetched = self.shared.fetch(&wanted)?;
        let mut columns = Vec::with_capacity(self.columns.len());
        for (column, field) in self.columns.iter().zip(self.schema.fields()) {
            let text = (field.data_type() == &DataType::Utf8).then(|| field.name().as_str());
            columns.push(match column {
                None => self.keys(samples.clone()),
                Some(number) => self.values(samples.clone(), *number, text, &fetched)?,
            });
        }
        batch(&self.schema, columns, samples.len())
    }

    fn keys(&self, samples: Range<usize>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            samples.map(|sample| self.shared.key(sample)),
        ))
    }

    fn values(
        &self,
        samples: Range<usize>,
        field: usize,
        // The name of a column of text.
        text: Option<&str>,
        fetched: &BTreeMap<usize, Vec<u8>>,
    ) -> Result<ArrayRef, Error> {
        let file_of = |sample: usize| {
            let mut members = self.shared.samples.members(sample);
            members.find(|(own, _)| *own == field).map(|(_, file)| file)
        };
        let total: u64 = samples
            .clone()
            .filter_map(file_of)
            .map(|file| self.shared.file_version(file).bytes)
            .sum();
        let too_large = || error::bug(format!("a batch of {total} bytes"));
        // A file is at most as large as the sample limit, and a full batch takes no further files.
        let mut bytes = Vec::with_capacity(usize::try_from(total).map_err(|_| too_large())?);
        let mut offsets = Vec::with_capacity(samples.len() + 1);
        let mut present = BooleanBufferBuilder::new(samples.len());
        offsets.push(0_i32);
        for sample in samples {
            let file = file_of(sample);
            if let Some(file) = file {
                let start = bytes.len();
                match fetched.get(&file) {
                    // This is the second copy of bytes that come over the network.
                    Some(fetched) => bytes.extend_from_slice(fetched),
                    None => self.shared.read(file, &mut bytes)?,
                }
                if let Some(column) = text {
                    self.check_text(column, file, bytes.get(start..).unwrap_or_default())?;
                }
            }
            present.append(file.is_some());
            offsets.push(i32::try_from(bytes.len()).map_err(|_| too_large())?);
        }
        let nulls = Some(NullBuffer::new(present.finish())).filter(|nulls| nulls.null_count() > 0);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let bytes = Buffer::from_vec(bytes);
        let failed =
            |error: arrow::error::ArrowError| error::bug(format!("a column of files: {error}"));
        Ok(if text.is_some() {
            Arc::new(StringArray::try_new(offsets, bytes, nulls).map_err(failed)?)
        } else {
            Arc::new(BinaryArray::try_new(offsets, bytes, nulls).map_err(failed)?)
        })
    }

    fn check_text(&self, column: &str, file: usize, bytes: &[u8]) -> Result<(), Error> {
        std::str::from_utf8(bytes).map(|_| ()).map_err(|error| {
            let error = SourceProblem::TreeText.at(
                self.shared.shown(file),
                format!("is not UTF-8 at byte {}", error.valid_up_to()),
            );
            error.with_hint(format!(
                "write --to webdataset, which takes files as they are, or omit the field with {}",
                omit_option(column)
            ))
        })
    }
}
