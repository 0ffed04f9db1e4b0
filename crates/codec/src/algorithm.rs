//! Names the algorithms for hashes and compression.

shardmill_core::named_enum! {
    /// A hash algorithm, with the name used in indexes. All algorithms are unkeyed or have seed 0.
    ///
    /// The order is that of the names, which is the order of the keys in an index.
    pub enum HashAlgo {
        /// `blake2b`, 64 bytes.
        Blake2b = "blake2b",
        /// `blake2s`, 32 bytes.
        Blake2s = "blake2s",
        /// `md5`.
        Md5 = "md5",
        /// `sha1`.
        Sha1 = "sha1",
        /// `sha224`.
        Sha224 = "sha224",
        /// `sha256`.
        Sha256 = "sha256",
        /// `sha384`.
        Sha384 = "sha384",
        /// `sha3_224`.
        Sha3_224 = "sha3_224",
        /// `sha3_256`.
        Sha3_256 = "sha3_256",
        /// `sha3_384`.
        Sha3_384 = "sha3_384",
        /// `sha3_512`.
        Sha3_512 = "sha3_512",
        /// `sha512`.
        Sha512 = "sha512",
        /// `xxh128`, an alias of `xxh3_128`.
        Xxh128 = "xxh128",
        /// `xxh32`.
        Xxh32 = "xxh32",
        /// `xxh3_128`.
        Xxh3_128 = "xxh3_128",
        /// `xxh3_64`.
        Xxh3_64 = "xxh3_64",
        /// `xxh64`.
        Xxh64 = "xxh64",
    }
}

impl HashAlgo {
    /// Returns the number of bytes of a digest. Its text has twice as many digits.
    #[must_use]
    pub const fn digest_bytes(self) -> usize {
        match self {
            Self::Xxh32 => 4,
            Self::Xxh3_64 | Self::Xxh64 => 8,
            Self::Md5 | Self::Xxh128 | Self::Xxh3_128 => 16,
            Self::Sha1 => 20,
            Self::Sha224 | Self::Sha3_224 => 28,
            Self::Blake2s | Self::Sha256 | Self::Sha3_256 => 32,
            Self::Sha384 | Self::Sha3_384 => 48,
            Self::Blake2b | Self::Sha3_512 | Self::Sha512 => 64,
        }
    }

    /// Returns the relative cost of the algorithm. The cheapest ones are as fast as reading memory.
    pub(crate) const fn cost(self) -> u8 {
        match self {
            Self::Xxh3_64 | Self::Xxh3_128 | Self::Xxh128 => 0,
            Self::Xxh64 => 1,
            Self::Xxh32 => 2,
            Self::Sha1 | Self::Sha224 | Self::Sha256 => 3,
            Self::Blake2b => 4,
            Self::Md5 | Self::Sha384 | Self::Sha512 | Self::Blake2s => 5,
            Self::Sha3_224 | Self::Sha3_256 | Self::Sha3_384 | Self::Sha3_512 => 6,
        }
    }

    /// Returns the position in [`HashAlgo::ALL`].
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

shardmill_core::named_enum! {
    /// A compression algorithm.
    pub enum Algorithm {
        /// Brotli, a raw stream.
        Brotli = "br",
        /// bzip2.
        Bzip2 = "bz2",
        /// gzip.
        Gzip = "gz",
        /// Snappy, a raw block without framing.
        Snappy = "snappy",
        /// Zstandard.
        Zstd = "zstd",
    }
}

impl Algorithm {
    /// Returns the level that the name without a level means; 0 for Snappy, which has no levels.
    #[must_use]
    pub const fn default_level(self) -> u8 {
        match self {
            Self::Brotli => 11,
            Self::Bzip2 | Self::Gzip => 9,
            Self::Snappy => 0,
            Self::Zstd => 3,
        }
    }

    /// Returns the levels that a name may specify.
    pub(crate) const fn levels(self) -> Option<std::ops::RangeInclusive<u8>> {
        match self {
            Self::Brotli => Some(0..=11),
            Self::Bzip2 => Some(1..=9),
            Self::Gzip => Some(0..=9),
            Self::Snappy => None,
            Self::Zstd => Some(1..=22),
        }
    }
}
