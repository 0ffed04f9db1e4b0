//! The metadata of an array.

use serde_json::{Map, Value};
use shardmill_core::{DType, Limits};

use crate::codec::Codecs;
use crate::error::ZarrError;
use crate::region::{elements, ravel};
use crate::shard::Shard;

/// The metadata of an array.
#[derive(Clone, Debug)]
pub struct ZarrArray {
    /// The lengths of its dimensions.
    pub shape: Vec<u64>,
    /// The names of its dimensions; `None` if they have none.
    pub dimensions: Option<Vec<String>>,
    /// The type of its elements.
    pub dtype: DType,
    /// The shape of each chunk. Chunks at the end of a dimension may reach beyond it.
    pub chunk_shape: Vec<u64>,
    /// How chunks lie in shards, if they do.
    pub shard: Option<Shard>,
    /// The little-endian bytes of an element that no chunk has.
    pub fill: Vec<u8>,
    /// Its attributes.
    pub attributes: Map<String, Value>,
    /// The element that means a missing value. In version 3, an attribute names it.
    pub(crate) mask: Option<Vec<u8>>,
    /// Whether elements are durations of NumPy and not times, and their unit; `None` for numbers.
    pub(crate) numpy_time: Option<(bool, String)>,
    pub(crate) codecs: Codecs,
    pub(crate) keys: Keys,
}

/// How indexes of chunks become names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Whether names begin with `c`, as in version 3.
    pub has_prefix: bool,
    pub separator: char,
}

/// Where a chunk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkLocation {
    /// The name of the object, relative to the array.
    pub object: String,
    /// The number of the object in row-major order.
    pub object_number: u64,
    /// The number of the chunk in the shard; `None` if the object is the chunk.
    pub in_shard: Option<u64>,
}

impl ZarrArray {
    /// Checks what the parts of the metadata state together.
    pub(crate) fn checked(self, limits: &Limits) -> Result<Self, ZarrError> {
        let rank = self.shape.len();
        Limits::check("array-dims", rank as u64, limits.array_dims)?;
        let named = self.dimensions.as_ref().map_or(rank, Vec::len);
        let sharded = self.shard.as_ref().map_or(rank, |shard| shard.chunks.len());
        if [self.chunk_shape.len(), named, sharded] != [rank; 3] {
            let reason = "shape, chunks and names have different numbers of dimensions";
            return Err(ZarrError::metadata(reason));
        }
        let chunks = self.shard.as_ref().map_or(&[][..], |shard| &shard.chunks);
        if self.chunk_shape.contains(&0) || chunks.contains(&0) {
            return Err(ZarrError::metadata("a chunk has no elements"));
        }
        let bytes = |shape: &[u64]| elements(shape).and_then(|all| all.checked_mul(16));
        // The index of a shard has 16 bytes for each chunk, and no element has more.
        let all = [&self.shape[..], &self.chunk_shape, chunks].map(bytes);
        if all.iter().any(Option::is_none) {
            return Err(ZarrError::metadata("its shape has too many elements"));
        }
        Limits::check("sample-bytes", self.chunk_bytes(), limits.sample_bytes)?;
        Limits::check("sample-bytes", all[2].unwrap_or(0), limits.sample_bytes)?;
        Ok(self)
    }

    /// Returns the number of bytes of a decoded chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        let all = elements(&self.chunk_shape).unwrap_or(u64::MAX);
        all.saturating_mul(self.dtype.size() as u64)
    }

    /// Returns the number of chunks along each dimension.
    #[must_use]
    pub fn grid(&self) -> Vec<u64> {
        let pairs = self.shape.iter().zip(&self.chunk_shape);
        pairs
            .map(|(length, chunk)| length.div_ceil(*chunk))
            .collect()
    }

    /// Returns where the chunk with this index is.
    #[must_use]
    pub fn place(&self, chunk: &[u64]) -> ChunkLocation {
        let ones = vec![1; chunk.len()];
        let per_object = self.shard.as_ref().map_or(&ones, |shard| &shard.chunks);
        let pairs = || chunk.iter().zip(per_object);
        let object: Vec<u64> = pairs().map(|(at, chunks)| at / chunks).collect();
        let objects: Vec<u64> = self
            .grid()
            .iter()
            .zip(per_object)
            .map(|(all, own)| all.div_ceil(*own))
            .collect();
        let mut parts: Vec<String> = object.iter().map(u64::to_string).collect();
        if self.keys.has_prefix {
            parts.insert(0, "c".to_owned());
        } else if parts.is_empty() {
            parts.push("0".to_owned());
        }
        ChunkLocation {
            object: parts.join(&self.keys.separator.to_string()),
            object_number: ravel(object, &objects),
            in_shard: self
                .shard
                .as_ref()
                .map(|shard| ravel(pairs().map(|(at, chunks)| at % chunks), &shard.chunks)),
        }
    }

    /// Decodes the bytes of a chunk into little-endian values in row-major order.
    ///
    /// # Errors
    ///
    /// [`ZarrError::Chunk`] if they are corrupt, [`ZarrError::Codec`] if they need a codec that is not supported.
    pub fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<Vec<u8>, ZarrError> {
        self.codecs
            .decode(bytes, &self.chunk_shape, self.dtype.size(), limits)
    }
}
