//! Decides where one shard ends and the next begins.

use shardmill_codec::Cutter;
use shardmill_core::Format;

use crate::config::ShardConfig;

impl ShardConfig {
    /// Returns a cutter at the start of the first shard. `samples_per_shard` is the most samples in a shard; `None` or
    /// 0 for no limit.
    ///
    /// For MDS, the limit applies to the raw bytes of the file. For the other formats it applies to the bytes of the lines,
    /// without the header line and the `.meta` file.
    #[must_use]
    pub fn cutter(&self, samples_per_shard: Option<u64>) -> Cutter {
        let (shard_overhead, sample_overhead) = match self.format() {
            // The count, the first offset and the config; then one offset for each sample.
            Format::Mds => (8 + self.to_json().len() as u64, 4),
            Format::Json | Format::Csv | Format::Tsv | Format::Xsv => (0, 0),
        };
        let is_limit = |limit: &u64| *limit > 0;
        let size_limit = self.size_limit.filter(is_limit);
        Cutter::new(size_limit, samples_per_shard.filter(is_limit))
            .with_overhead(shard_overhead, sample_overhead)
    }

    /// Returns a cutter that cuts exactly where the original writer does.
    ///
    /// COMPAT: the original flushes an empty shard if the very first sample alone exceeds the size limit. A later
    /// sample above the limit gets its own shard, without an empty one before it. Source: MosaicML Streaming 0.13,
    /// `streaming/base/format/base/writer.py`, `Writer.write`.
    #[must_use]
    pub fn cutter_like_original(&self) -> Cutter {
        self.cutter(None).with_empty_first()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{Column, TextColumn, TextEncoding};
    use crate::encoding::Encoding;

    fn mds(size_limit: Option<u64>) -> ShardConfig {
        let column = Column {
            name: "a".to_owned(),
            encoding: Encoding::Bytes,
        };
        ShardConfig::new_mds(vec![column], None, Vec::new(), size_limit).unwrap()
    }

    fn json(size_limit: Option<u64>) -> ShardConfig {
        let column = TextColumn {
            name: "a".to_owned(),
            encoding: TextEncoding::Str,
        };
        ShardConfig::new_json(vec![column], "\n", None, Vec::new(), size_limit).unwrap()
    }

    /// Returns the number of samples in each shard.
    fn cut(config: &ShardConfig, samples_per_shard: Option<u64>, sizes: &[u64]) -> Vec<usize> {
        cut_with(config.cutter(samples_per_shard), sizes)
    }

    fn cut_with(mut cutter: Cutter, sizes: &[u64]) -> Vec<usize> {
        let (mut shards, mut current) = (Vec::new(), 0);
        for size in sizes {
            if cutter.push(*size) {
                shards.push(std::mem::take(&mut current));
            }
            current += 1;
            assert_eq!(cutter.samples(), current as u64);
        }
        if current > 0 {
            shards.push(current);
        }
        shards
    }

    #[test]
    fn shards_are_never_empty() {
        assert_eq!(cut(&mds(Some(10)), None, &[10, 10, 10]), [1, 1, 1]);
        assert_eq!(cut(&json(Some(10)), None, &[11, 5, 5, 11, 1]), [1, 2, 1, 1]);
        assert_eq!(cut(&mds(Some(10)), Some(5), &[10]), [1]);
    }

    #[test]
    fn like_original_oversized_first_sample_leaves_empty_shard() {
        let cut =
            |config: &ShardConfig, sizes: &[u64]| cut_with(config.cutter_like_original(), sizes);
        assert_eq!(cut(&mds(Some(10)), &[10, 10, 10]), [0, 1, 1, 1]);
        assert_eq!(cut(&json(Some(10)), &[11, 5, 5, 11, 1]), [0, 1, 2, 1, 1]);
        assert_eq!(cut(&json(Some(10)), &[5, 11, 11]), [1, 1, 1]);
    }

    #[test]
    fn shard_may_be_exactly_as_large_as_the_limit() {
        let header = 8 + mds(Some(999)).to_json().len() as u64;
        let limit = header + 3 * (50 + 4);
        assert_eq!(cut(&mds(Some(limit)), None, &[50; 7]), [3, 3, 1]);
        assert_eq!(cut(&mds(Some(limit - 1)), None, &[50; 5]), [2, 2, 1]);
        assert_eq!(cut(&json(Some(100)), None, &[50; 5]), [2, 2, 1]);
    }

    #[test]
    fn missing_or_zero_limit_means_unlimited() {
        assert_eq!(cut(&mds(None), None, &[u64::MAX, u64::MAX, 1]), [3]);
        assert_eq!(cut(&mds(Some(0)), Some(0), &[1; 9]), [9]);
    }

    proptest! {
        #[test]
        fn shards_are_filled_up_to_the_limits(
            sizes in prop::collection::vec(0_u64..60, 0..60),
            limit in 1_u64..300,
            samples_limit in prop::option::of(1_u64..10),
            is_mds: bool,
        ) {
            let config = if is_mds { mds(Some(limit)) } else { json(Some(limit)) };
            let base = if is_mds { 8 + config.to_json().len() as u64 } else { 0 };
            let cost = |size: &u64| size + if is_mds { 4 } else { 0 };

            // Apply the rule of the specification sample by sample, without the exception for an empty first shard.
            let mut expected = Vec::new();
            let (mut acc, mut count) = (base, 0);
            for size in &sizes {
                let full = samples_limit.is_some_and(|limit| count as u64 == limit);
                if count > 0 && (acc + cost(size) > limit || full) {
                    expected.push(count);
                    (acc, count) = (base, 0);
                }
                acc += cost(size);
                count += 1;
            }
            if count > 0 {
                expected.push(count);
            }
            let found = cut(&config, samples_limit, &sizes);
            prop_assert_eq!(&found, &expected);
            if samples_limit.is_none() {
                let alike = cut_with(config.cutter_like_original(), &sizes);
                let begins_empty = sizes.first().is_some_and(|size| base + cost(size) > limit);
                prop_assert_eq!(alike.first() == Some(&0), begins_empty);
                prop_assert_eq!(&alike[usize::from(begins_empty)..], &expected[..]);
            }
            prop_assert_eq!(found.iter().sum::<usize>(), sizes.len());

            // A shard is above the limit only if it has a single sample, and the next sample would not have fitted into
            // it.
            let mut start = 0;
            for shard in &found {
                let bytes = base + sizes[start..start + shard].iter().map(cost).sum::<u64>();
                prop_assert!(bytes <= limit || *shard <= 1);
                prop_assert!(*shard > 0);
                if let Some(next) = sizes.get(start + shard) {
                    let room = samples_limit.is_none_or(|limit| (*shard as u64) < limit);
                    prop_assert!(bytes + cost(next) > limit || !room);
                }
                start += shard;
            }
        }
    }
}
