//! Gives access to the samples of a checked shard.

use shardmill_core::Limits;

use super::check::{self, Table, without_newline};
use super::line::{self, TextValue};
use crate::config::{Layout, ShardConfig};
use crate::decode::decode;
use crate::encoding::Encoding;
use crate::error::{MdsError, MdsProblem, no_part};
use crate::index::ShardEntry;
use crate::value::Value;

/// One column of an MDS sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The column.
    pub name: &'a str,
    /// Its encoding.
    pub encoding: &'a Encoding,
    /// The bytes of the value.
    pub datum: &'a [u8],
}

/// A value of a sample of any format.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue<'a> {
    /// A value of an MDS shard.
    Mds(Value<'a>),
    /// A value of a JSON or XSV shard.
    Text(TextValue<'a>),
}

/// A raw shard that matches its entry in the index, borrowing both.
///
/// These facts are already checked: the lengths of its files, the number of its samples, that samples are contiguous,
/// that its config equals that of the index, and, for lines of text, where they end. The contents of a sample are
/// checked when it is read. Access to a sample takes constant time and copies nothing.
#[derive(Clone, Debug)]
pub struct ShardView<'a> {
    config: &'a ShardConfig,
    table: Table<'a>,
    data: &'a [u8],
    limits: Limits,
}

impl<'a> ShardView<'a> {
    /// Checks a raw shard against its entry. `meta` is the raw `.meta` file, `None` for MDS.
    ///
    /// # Errors
    ///
    /// [`MdsError`], with an id that starts with `shard-`, `limit-` or, for a line without end, `sample-`.
    pub fn open(
        entry: &'a ShardEntry,
        data: &'a [u8],
        meta: Option<&'a [u8]>,
        limits: &Limits,
    ) -> Result<Self, MdsError> {
        Ok(Self {
            config: &entry.config,
            table: check::shard(entry, data, meta, limits)?,
            data,
            limits: limits.clone(),
        })
    }

    /// Returns the config.
    #[must_use]
    pub const fn config(&self) -> &'a ShardConfig {
        self.config
    }

    /// Returns the number of samples in the shard.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.table.samples()
    }

    /// Returns whether the shard has no samples, which is allowed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the raw file. The values of samples are parts of them.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Returns the bytes of a sample as stored. In the JSON and XSV formats, they include the newline.
    ///
    /// # Errors
    ///
    /// [`MdsProblem::NoSample`] (`InvalidInput`).
    pub fn sample(&self, sample: u64) -> Result<&'a [u8], MdsError> {
        let range = self.table.range(sample);
        let bytes = range.and_then(|(begin, end)| self.data.get(begin..end));
        bytes.ok_or_else(|| {
            let samples = self.len();
            let reason = format!("there is no sample {sample} in a shard of {samples}");
            MdsProblem::NoSample.because(reason)
        })
    }

    /// Returns the columns of an MDS sample, in the order of the config.
    ///
    /// # Errors
    ///
    /// [`MdsProblem::NoSample`] and [`MdsProblem::Part`]; `Corrupt` for a sample whose lengths do not add up.
    pub fn fields(&self, sample: u64) -> Result<Vec<Field<'a>>, MdsError> {
        let columns = self.config.mds_columns().map_or(0, Vec::len);
        let mut fields = Vec::with_capacity(columns);
        self.fields_into(sample, &mut fields)?;
        Ok(fields)
    }

    /// Writes [`fields`](Self::fields) into a list of the caller, which is cleared first.
    ///
    /// # Errors
    ///
    /// As for [`fields`](Self::fields).
    pub fn fields_into(&self, sample: u64, fields: &mut Vec<Field<'a>>) -> Result<(), MdsError> {
        fields.clear();
        let Layout::Mds { columns } = &self.config.layout else {
            return Err(no_part(self.config.format(), "columns of bytes"));
        };
        let bytes = self.sample(sample)?;
        let head_bytes = self.config.head_bytes();
        let Some((mut head, mut body)) = bytes.split_at_checked(head_bytes) else {
            let reason = format!(
                "has {} bytes, but the lengths of its columns alone need {head_bytes}",
                bytes.len()
            );
            return Err(MdsProblem::SampleHead.of_sample(sample, reason));
        };
        for column in columns {
            let size = match column.encoding.fixed_size() {
                Some(size) => size,
                None => {
                    // `head` has exactly four bytes for each of these columns.
                    let (size, rest) = head.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
                    head = rest;
                    u64::from(u32::from_le_bytes(*size))
                }
            };
            let parts = usize::try_from(size)
                .ok()
                .and_then(|size| body.split_at_checked(size));
            let Some((datum, rest)) = parts else {
                return Err(MdsError::SampleEnd {
                    sample,
                    column: column.name.clone(),
                    needed: size,
                    left: body.len() as u64,
                });
            };
            body = rest;
            fields.push(Field {
                name: &column.name,
                encoding: &column.encoding,
                datum,
            });
        }
        if !body.is_empty() {
            let reason = format!("has {} bytes after its last column", body.len());
            return Err(MdsProblem::SampleTrailing.of_sample(sample, reason));
        }
        Ok(())
    }

    /// Returns the columns of a sample of any format with their values, in the order of the config.
    ///
    /// The types of a JSON sample are those of its text. Like the original reader, this does not compare them with the
    /// declared types.
    ///
    /// # Errors
    ///
    /// As for [`fields`](Self::fields); also `Corrupt` for a value that its encoding does not allow, a line that is not
    /// a sample, or one whose columns differ from the config.
    pub fn values(&self, sample: u64) -> Result<Vec<(&'a str, SampleValue<'a>)>, MdsError> {
        let text = |(name, value)| (name, SampleValue::Text(value));
        match &self.config.layout {
            Layout::Mds { .. } => self
                .fields(sample)?
                .into_iter()
                .map(|field| {
                    let value = decode(field.encoding, field.datum, &self.limits);
                    let value = value.map_err(|problem| MdsError::Value {
                        sample,
                        column: field.name.to_owned(),
                        problem: Box::new(problem),
                    })?;
                    Ok((field.name, SampleValue::Mds(value)))
                })
                .collect(),
            Layout::Json { columns, newline } => {
                let line = self.line(sample, newline)?;
                let values = line::json(sample, line, columns, &self.limits)?;
                Ok(values.into_iter().map(text).collect())
            }
            Layout::Xsv {
                columns,
                newline,
                separator,
                ..
            } => {
                let line = self.line(sample, newline)?;
                let values = line::xsv(sample, line, columns, separator)?;
                Ok(values.into_iter().map(text).collect())
            }
        }
    }

    /// Returns a sample of a text format, without its newline.
    fn line(&self, sample: u64, newline: &str) -> Result<&'a [u8], MdsError> {
        let bytes = self.sample(sample)?;
        let line = bytes.strip_suffix(newline.as_bytes());
        line.ok_or_else(|| without_newline(sample))
    }
}

/// A checked shard that owns its bytes.
///
/// `B` owns the bytes, for example a `Vec` or a shared buffer. It must return the same bytes each time.
#[derive(Clone, Debug)]
pub struct OwnedShard<B = Vec<u8>> {
    entry: ShardEntry,
    data: B,
    meta: Option<B>,
    limits: Limits,
}

impl<B: AsRef<[u8]>> OwnedShard<B> {
    /// Checks a raw shard against its entry, as [`ShardView::open`] does, and keeps both.
    ///
    /// # Errors
    ///
    /// As for [`ShardView::open`].
    pub fn open(
        entry: &ShardEntry,
        data: B,
        meta: Option<B>,
        limits: &Limits,
    ) -> Result<Self, MdsError> {
        check::shard(
            entry,
            data.as_ref(),
            meta.as_ref().map(AsRef::as_ref),
            limits,
        )?;
        Ok(Self {
            entry: entry.clone(),
            data,
            meta,
            limits: limits.clone(),
        })
    }

    /// Returns the entry that the shard was checked against.
    #[must_use]
    pub const fn entry(&self) -> &ShardEntry {
        &self.entry
    }

    /// Returns a view of the shard, without checking it again.
    #[must_use]
    pub fn view(&self) -> ShardView<'_> {
        let data = self.data.as_ref();
        let head = self.meta.as_ref().map_or(data, AsRef::as_ref);
        let table = Table::read(head, check::META).map_or(Table::EMPTY, |(table, _)| table);
        ShardView {
            config: &self.entry.config,
            table,
            data,
            limits: self.limits.clone(),
        }
    }

    /// Returns the owner of the data bytes.
    #[must_use]
    pub const fn data(&self) -> &B {
        &self.data
    }

    /// Returns the bytes that begin with the number of samples and the offset table: the `.meta` file if the shard has
    /// one, else the data.
    #[must_use]
    pub fn table(&self) -> &[u8] {
        self.meta.as_ref().unwrap_or(&self.data).as_ref()
    }

    /// Returns the number of bytes that the shard keeps in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let meta = self.meta.as_ref().map_or(0, |meta| meta.as_ref().len());
        self.data.as_ref().len() as u64 + meta as u64
    }
}
