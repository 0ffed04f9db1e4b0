//! Encodes record batches as one MDS shard in memory.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use shardmill_core::Error;
use shardmill_mds::{ShardConfig, encode_header};

use crate::chunk::{BufferPool, Origin};
use crate::error::{self, check_size};
use crate::rows::RowEncoder;

/// An MDS shard in memory, to which batches are added.
///
/// The number of samples must be known in advance: it determines where the first sample begins.
#[derive(Debug)]
pub struct MemoryShard<'a> {
    encoder: &'a RowEncoder,
    config: &'a ShardConfig,
    config_json: String,
    buffers: Arc<BufferPool>,
    /// The header, which is filled in last, then the samples.
    bytes: Vec<u8>,
    sizes: Vec<u32>,
    samples: usize,
    max_bytes: u64,
}

impl<'a> MemoryShard<'a> {
    /// Creates a shard of `samples` samples and at most `max_bytes` bytes.
    #[must_use]
    pub fn new(
        encoder: &'a RowEncoder,
        config: &'a ShardConfig,
        samples: usize,
        max_bytes: u64,
    ) -> Self {
        let config_json = config.to_json();
        let header = 8 + 4 * samples + config_json.len();
        Self {
            encoder,
            config,
            config_json,
            buffers: BufferPool::new(1),
            bytes: vec![0; header],
            sizes: Vec::with_capacity(samples),
            samples,
            max_bytes,
        }
    }

    /// Encodes the rows of a batch. `describe_row` describes a row of the batch, for errors.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a value does not fit its encoding, or if the shard becomes too large.
    pub fn push(
        &mut self,
        batch: &RecordBatch,
        describe_row: impl Fn(usize) -> String,
    ) -> Result<(), Error> {
        let (bytes, sizes) = (&mut self.bytes, &mut self.sizes);
        let origin = Origin::default();
        (self.encoder).encode(batch, origin, &self.buffers, describe_row, |chunk| {
            let mut begin = 0;
            for sample in 0..chunk.samples() {
                let end = chunk.end(sample);
                sizes.push(end - begin);
                begin = end;
            }
            bytes.extend_from_slice(chunk.slice(0..chunk.len()));
        })?;
        check_size(self.bytes.len(), self.max_bytes, || "the shard".to_owned())
    }

    /// Returns the bytes of the shard.
    ///
    /// # Errors
    ///
    /// `Bug` if there are more or fewer samples than announced, or too many bytes.
    pub fn finish(mut self) -> Result<Vec<u8>, Error> {
        if self.sizes.len() != self.samples {
            return Err(error::internal(
                "a shard in memory has another number of samples than announced",
            ));
        }
        let mut header = Vec::new();
        let sizes = self.sizes.iter().copied();
        encode_header(self.config, &self.config_json, sizes, &mut header)
            .map_err(|source| error::not_encoded(0, source))?;
        let space = self.bytes.get_mut(..header.len());
        let space = space.ok_or_else(|| error::internal("a header has an unexpected length"))?;
        space.copy_from_slice(&header);
        Ok(self.bytes)
    }
}
