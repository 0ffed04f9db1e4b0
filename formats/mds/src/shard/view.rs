//! Samples of a shard that has been checked.

use shardmill_core::Limits;

use super::ShardError;
use super::check::{self, Table};
use super::line::{self, TextValue};
use crate::config::{Layout, ShardConfig};
use crate::decode::decode;
use crate::encoding::Encoding;
use crate::index::ShardEntry;
use crate::value::Value;

/// One column of one MDS sample.
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
    /// Of an MDS shard.
    Mds(Value<'a>),
    /// Of a JSON or XSV shard.
    Text(TextValue<'a>),
}

/// A raw shard that fits its entry in the index, borrowing both.
///
/// What is known of it: the lengths of its files, the number of its samples, that they lie one after the other
/// without gaps, that its config is that of the index, and for lines of text where they end. What is inside a sample
/// is checked when it is asked for. Access to a sample takes constant time and copies nothing.
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
    /// [`ShardError`], with an id that starts with `shard-`, `limit-` or, for a line without end, `sample-`.
    pub fn open(
        entry: &'a ShardEntry,
        data: &'a [u8],
        meta: Option<&'a [u8]>,
        limits: &Limits,
    ) -> Result<Self, ShardError> {
        Ok(Self {
            config: &entry.config,
            table: check::shard(entry, data, meta, limits)?,
            data,
            limits: limits.clone(),
        })
    }

    /// The config.
    #[must_use]
    pub const fn config(&self) -> &'a ShardConfig {
        self.config
    }

    /// Samples in the shard.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.table.samples()
    }

    /// Whether there are none, which is allowed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of a sample as stored: in the JSON and XSV formats with the newline at the end.
    ///
    /// # Errors
    ///
    /// [`ShardError::NoSample`] (`InvalidInput`).
    pub fn sample(&self, sample: u64) -> Result<&'a [u8], ShardError> {
        let range = self.table.range(sample);
        range
            .and_then(|(begin, end)| self.data.get(begin..end))
            .ok_or(ShardError::NoSample {
                sample,
                samples: self.len(),
            })
    }

    /// The columns of an MDS sample, in the order of the config.
    ///
    /// # Errors
    ///
    /// [`ShardError::NoSample`] and [`ShardError::Part`] (`InvalidInput`); a sample whose lengths do not add up
    /// (`Corrupt`).
    pub fn fields(&self, sample: u64) -> Result<Vec<Field<'a>>, ShardError> {
        let mut fields = Vec::new();
        self.fields_into(sample, &mut fields)?;
        Ok(fields)
    }

    /// [`fields`](Self::fields) into a list of the caller, which is emptied first.
    ///
    /// # Errors
    ///
    /// As for [`fields`](Self::fields).
    pub fn fields_into(&self, sample: u64, fields: &mut Vec<Field<'a>>) -> Result<(), ShardError> {
        fields.clear();
        let Layout::Mds { columns } = &self.config.layout else {
            return Err(ShardError::Part {
                format: self.config.format(),
                part: "columns of bytes",
            });
        };
        let bytes = self.sample(sample)?;
        let variable = columns
            .iter()
            .filter(|column| column.encoding.fixed_size().is_none());
        let head_bytes = variable.count() * 4;
        let Some((mut head, mut body)) = bytes.split_at_checked(head_bytes) else {
            return Err(ShardError::SampleHead {
                sample,
                needed: head_bytes as u64,
                found: bytes.len() as u64,
            });
        };
        for column in columns {
            let size = match column.encoding.fixed_size() {
                Some(size) => size,
                None => {
                    // The head was cut to four bytes for each of these columns.
                    let (size, rest) = head.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
                    head = rest;
                    u64::from(u32::from_le_bytes(*size))
                }
            };
            let parts = usize::try_from(size)
                .ok()
                .and_then(|size| body.split_at_checked(size));
            let Some((datum, rest)) = parts else {
                return Err(ShardError::SampleEnd {
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
            return Err(ShardError::SampleTrailing {
                sample,
                bytes: body.len() as u64,
            });
        }
        Ok(())
    }

    /// The columns of a sample of any format and their values, in the order of the config.
    ///
    /// The types of a JSON sample are those of its text: the original reader does not compare them with the declared
    /// ones either.
    ///
    /// # Errors
    ///
    /// As for [`fields`](Self::fields), and a value that its encoding does not allow, a line that is not a sample, or
    /// one without just the columns of the config (`Corrupt`).
    pub fn values(&self, sample: u64) -> Result<Vec<(&'a str, SampleValue<'a>)>, ShardError> {
        let text = |(name, value)| (name, SampleValue::Text(value));
        match &self.config.layout {
            Layout::Mds { .. } => self
                .fields(sample)?
                .into_iter()
                .map(|field| {
                    let value = decode(field.encoding, field.datum, &self.limits);
                    let value = value.map_err(|problem| ShardError::Value {
                        sample,
                        column: field.name.to_owned(),
                        problem,
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

    /// A sample of a text format, without its newline.
    fn line(&self, sample: u64, newline: &str) -> Result<&'a [u8], ShardError> {
        let bytes = self.sample(sample)?;
        bytes
            .strip_suffix(newline.as_bytes())
            .ok_or(ShardError::Newline { sample })
    }
}

/// A checked shard together with its bytes, to keep for later.
///
/// `B` is what holds the bytes: a `Vec`, a shared buffer. It has to give the same bytes each time it is asked.
#[derive(Clone, Debug)]
pub struct OwnedShard<B = Vec<u8>> {
    entry: ShardEntry,
    data: B,
    meta: Option<B>,
    limits: Limits,
}

impl<B: AsRef<[u8]>> OwnedShard<B> {
    /// Checks a raw shard against its entry, as [`ShardView::open`] does, and keeps it.
    ///
    /// # Errors
    ///
    /// As for [`ShardView::open`].
    pub fn open(
        entry: &ShardEntry,
        data: B,
        meta: Option<B>,
        limits: &Limits,
    ) -> Result<Self, ShardError> {
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

    /// The entry that the shard was checked against.
    #[must_use]
    pub const fn entry(&self) -> &ShardEntry {
        &self.entry
    }

    /// The shard, without checking it again.
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

    /// What holds the bytes of the data.
    #[must_use]
    pub const fn data(&self) -> &B {
        &self.data
    }

    /// The bytes that begin with the number of samples and the table of offsets: those of the offsets where they are a
    /// file of their own, else those of the data.
    #[must_use]
    pub fn table(&self) -> &[u8] {
        self.meta.as_ref().unwrap_or(&self.data).as_ref()
    }

    /// Bytes that the shard holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let meta = self.meta.as_ref().map_or(0, |meta| meta.as_ref().len());
        self.data.as_ref().len() as u64 + meta as u64
    }
}
