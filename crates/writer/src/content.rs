//! Finds the samples of an input that a dataset already contains, by comparing their content.

use shardmill_mds::Content;

/// An index of the existing samples of a dataset by content.
///
/// Each existing sample matches at most one sample of the input. Samples with the same content match in the order of
/// their numbers.
#[derive(Debug)]
pub struct DedupIndex {
    /// The content and the number of each sample, sorted.
    samples: Vec<(Content, u64)>,
    /// For each run of equal contents, the number of matches so far; it is stored at the first sample of the run.
    used: Vec<u64>,
    /// For each prefix of `bits` bits, the position of the first sample whose content has this prefix.
    ///
    /// PERF: a binary search through all samples would wait for memory about twenty times.
    starts: Vec<usize>,
    bits: u32,
}

impl DedupIndex {
    /// Creates an index of samples, each with its number.
    #[must_use]
    pub fn new(mut samples: Vec<(Content, u64)>) -> Self {
        samples.sort_unstable();
        // On average, four samples share a prefix.
        let bits = (samples.len() / 4).checked_ilog2().unwrap_or(0);
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (at, (content, _)) in samples.iter().enumerate() {
            let bucket = content.first_bits(bits);
            if starts.len() <= bucket {
                starts.resize(bucket + 1, at);
            }
        }
        starts.resize((1 << bits) + 1, samples.len());
        Self {
            used: vec![0; samples.len()],
            samples,
            starts,
            bits,
        }
    }

    /// Returns the number of a sample with this content that has not been matched yet, and marks it as matched.
    pub(crate) fn take(&mut self, content: Content) -> Option<u64> {
        let bucket = content.first_bits(self.bits);
        let start = *self.starts.get(bucket)?;
        let alike = self.samples.get(start..*self.starts.get(bucket + 1)?)?;
        let first = start + alike.partition_point(|(own, _)| *own < content);
        let used = self.used.get_mut(first)?;
        let at = first.checked_add(usize::try_from(*used).ok()?)?;
        let (own, number) = self.samples.get(at)?;
        if *own != content {
            return None;
        }
        *used += 1;
        Some(*number)
    }

    /// Returns the samples that have not been matched.
    pub fn left(&self) -> impl Iterator<Item = (Content, u64)> {
        let mut left_of_run = 0;
        self.samples
            .iter()
            .zip(&self.used)
            .enumerate()
            .filter_map(move |(at, (sample, used))| {
                let before = at.checked_sub(1).map(|before| &self.samples[before]);
                if before.is_none_or(|(content, _)| *content != sample.0) {
                    left_of_run = *used;
                }
                if left_of_run > 0 {
                    left_of_run -= 1;
                    return None;
                }
                Some(*sample)
            })
    }
}

/// What happened to the samples of one unit of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitSamples {
    /// The number of the first sample that was added to the dataset. The numbers of the others follow it.
    pub first: u64,
    /// The number of added samples.
    pub added: u64,
    /// The numbers of the samples that already existed.
    pub known: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Content {
        Content::of(text.as_bytes())
    }

    #[test]
    fn dedup_index_matches_each_duplicate_once() {
        let mut dedup_index = DedupIndex::new(vec![
            (content("a"), 7),
            (content("b"), 3),
            (content("a"), 5),
            (content("c"), 1),
        ]);
        assert_eq!(dedup_index.take(content("a")), Some(5));
        assert_eq!(dedup_index.take(content("b")), Some(3));
        assert_eq!(dedup_index.take(content("b")), None);
        assert_eq!(dedup_index.take(content("x")), None);
        let mut left: Vec<u64> = dedup_index.left().map(|(_, number)| number).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 7]);
        assert_eq!(dedup_index.take(content("a")), Some(7));
        assert_eq!(dedup_index.take(content("a")), None);
        assert_eq!(dedup_index.left().collect::<Vec<_>>(), [(content("c"), 1)]);
    }

    #[test]
    fn dedup_index_finds_all_entries_at_any_size() {
        for count in [0_u64, 1, 3, 4, 5, 100, 5000] {
            let own = |number: u64| Content::of(&(number / 2).to_le_bytes());
            let mut dedup_index = DedupIndex::new(
                (0..count)
                    .rev()
                    .map(|number| (own(number), number))
                    .collect(),
            );
            for number in (0..count).step_by(3) {
                let found = dedup_index.take(own(number)).unwrap();
                assert_eq!(found / 2, number / 2);
            }
            assert_eq!(dedup_index.take(content("another")), None);
            let left = dedup_index.left().count() as u64;
            assert_eq!(left, count - count.div_ceil(3));
        }
    }
}
