//! Simulates one node's cache over epochs of accesses, and counts the fetches under each policy.
//!
//! An access to a missing blob fetches and reads it; the blob is then kept or not. Time is the number of the access.
//! Belady's policy knows the current epoch and the given number of epochs after it.

use std::collections::VecDeque;

use crate::ranks::{Policy, Ranks};

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SimReport {
    /// Accesses to a blob that was missing.
    pub(crate) fetches: u64,
    /// Accesses to a blob that was in the cache.
    pub(crate) hits: u64,
    /// Fetched blobs that were not kept.
    pub(crate) bypasses: u64,
    /// Evicted blobs.
    pub(crate) evictions: u64,
    /// The most bytes of residents.
    pub(crate) max_bytes: u64,
    /// The counts of each epoch.
    pub(crate) epochs: Vec<SimEpoch>,
}

/// The counts of one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SimEpoch {
    /// Accesses to a blob that was missing.
    pub(crate) fetches: u64,
    /// Accesses to a blob that was in the cache.
    pub(crate) hits: u64,
    /// Fetched blobs that were not kept.
    pub(crate) bypasses: u64,
    /// Evicted blobs.
    pub(crate) evictions: u64,
}

impl SimReport {
    /// Returns the share of accesses that were hits, from epoch `first` on; 0 if there are none.
    pub(crate) fn hit_share(&self, first: usize) -> f64 {
        let epochs = self.epochs.get(first..).unwrap_or_default().iter();
        let (hits, all) = epochs.fold((0, 0), |(hits, all), epoch| {
            (hits + epoch.hits, all + epoch.hits + epoch.fetches)
        });
        share(hits, all)
    }
}

/// Returns `part / whole`; 0 if `whole` is 0.
#[expect(clippy::cast_precision_loss, reason = "a share has a few digits")]
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

/// Reads the blobs of `epochs`, each in the order of use, through a cache of `limit` bytes. Blobs without an entry in
/// `blob_bytes` take no space.
///
/// The result is deterministic. An access takes some hundred nanoseconds, for any size of the cache.
pub(crate) fn simulate(
    (policy, known_epochs): (Policy, usize),
    blob_bytes: &[u64],
    epochs: &[Vec<usize>],
    limit: u64,
) -> SimReport {
    let mut report = SimReport::default();
    let mut cache = Cache {
        policy,
        blob_bytes,
        limit,
        used: 0,
        ranks: Ranks::default(),
        coming: vec![VecDeque::new(); blob_bytes.len()],
    };
    let (mut now, mut known) = (0_u64, 0_u64);
    let mut ahead = epochs.iter();
    for next in ahead.by_ref().take(known_epochs.max(1) - 1) {
        cache.learn(next, &mut known);
    }
    for epoch in epochs {
        if let Some(next) = ahead.next() {
            cache.learn(next, &mut known);
        }
        let mut counts = SimEpoch::default();
        for blob in epoch {
            cache.access(*blob, now, &mut counts);
            report.max_bytes = report.max_bytes.max(cache.used);
            now += 1;
        }
        report.fetches += counts.fetches;
        report.hits += counts.hits;
        report.bypasses += counts.bypasses;
        report.evictions += counts.evictions;
        report.epochs.push(counts);
    }
    report
}

struct Cache<'a> {
    policy: Policy,
    blob_bytes: &'a [u64],
    limit: u64,
    used: u64,
    ranks: Ranks,
    /// The known future accesses of each blob.
    coming: Vec<VecDeque<u64>>,
}

impl Cache<'_> {
    fn bytes(&self, blob: usize) -> u64 {
        self.blob_bytes.get(blob).copied().unwrap_or(0)
    }

    /// Adds an epoch whose first access has the number `known`.
    fn learn(&mut self, epoch: &[usize], known: &mut u64) {
        for blob in epoch {
            if let Some(coming) = self.coming.get_mut(*blob) {
                coming.push_back(*known);
            }
            // This resident had no known next use until now.
            if self.policy != Policy::Lru && self.ranks.next_use(*blob) == Some(u64::MAX) {
                self.ranks.insert(*blob, self.bytes(*blob), *known);
            }
            *known += 1;
        }
    }

    fn access(&mut self, blob: usize, now: u64, counts: &mut SimEpoch) {
        let bytes = self.bytes(blob);
        let coming = self.coming.get_mut(blob);
        let next_use = coming.and_then(|coming| {
            coming.pop_front();
            coming.front().copied()
        });
        let (rank, wanted_at) = match self.policy {
            Policy::Belady => {
                let next_use = next_use.unwrap_or(u64::MAX);
                (next_use, next_use)
            }
            // Older uses rank as further away, and every resident ranks further away than the blob that is read now.
            Policy::Lru => (u64::MAX - now, 0),
        };
        if self.ranks.next_use(blob).is_some() {
            counts.hits += 1;
            self.ranks.insert(blob, bytes, rank);
            return;
        }
        counts.fetches += 1;
        let Some(leaving) = self
            .ranks
            .make_room(self.used, self.limit, bytes, wanted_at)
        else {
            counts.bypasses += 1;
            return;
        };
        for gone in leaving {
            self.ranks.remove(gone);
            self.used -= self.bytes(gone);
            counts.evictions += 1;
        }
        self.used += bytes;
        self.ranks.insert(blob, bytes, rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use shardmill_order::rng::Pcg64;

    /// Returns the epochs of one of `nodes` nodes, each with a new part of the blobs in a new order.
    fn epochs(seed: u128, blobs: usize, nodes: usize, epochs: usize) -> Vec<Vec<usize>> {
        let mut rng = Pcg64::new(seed);
        (0..epochs)
            .map(|_| {
                let mut all: Vec<usize> = (0..blobs).collect();
                rng.shuffle(&mut all);
                all.truncate(blobs / nodes);
                all
            })
            .collect()
    }

    /// The numbers that justify the choice of policy. The cache of *each node* holds the given share of the whole
    /// dataset, not of the part that the node reads in an epoch. With two nodes, two known epochs come close to knowing
    /// everything. With four nodes, most blobs are next needed after the following epoch, so each further known epoch
    /// helps.
    #[test]
    fn belady_hit_rate_exceeds_lru() {
        const ALL: usize = 24;
        let belady = |known| (Policy::Belady, known);
        for (nodes, percent, policy, expected) in [
            (2, 25, (Policy::Lru, 1), 7.0),
            (2, 25, belady(1), 25.0),
            (2, 25, belady(2), 49.0),
            (2, 25, belady(ALL), 49.0),
            (4, 50, (Policy::Lru, 1), 42.0),
            (4, 50, belady(1), 50.0),
            (4, 50, belady(2), 60.0),
            (4, 50, belady(4), 71.0),
            (4, 50, belady(ALL), 78.0),
        ] {
            let limit = 64 * 10 * percent;
            let mut percent_hit = 0.0;
            for seed in 0..4 {
                let epochs = epochs(seed, 1000, nodes, ALL);
                let report = simulate(policy, &[64; 1000], &epochs, limit);
                assert!(report.max_bytes <= limit);
                // The first epochs start with an empty cache; the last ones see the end of the run.
                let steady = SimReport {
                    epochs: report.epochs[4..ALL - 6].to_vec(),
                    ..report
                };
                percent_hit += steady.hit_share(0) * 100.0 / 4.0;
            }
            println!(
                "{nodes} nodes, cache {percent} % of the data, {policy:?}: {percent_hit:.1} %"
            );
            assert!(
                (percent_hit - expected).abs() <= 2.0,
                "{nodes} nodes, {policy:?}: {percent_hit:.1} %, not {expected} %"
            );
        }
    }

    #[test]
    fn cache_with_space_for_all_or_none_is_simulated() {
        let epochs = epochs(1, 50, 1, 3);
        for policy in [(Policy::Belady, 2), (Policy::Lru, 1)] {
            let all = simulate(policy, &[8; 50], &epochs, 400);
            assert_eq!((all.fetches, all.hits), (50, 100));
            assert_eq!((all.bypasses, all.evictions, all.max_bytes), (0, 0, 400));
            let none = simulate(policy, &[8; 50], &epochs, 7);
            assert_eq!((none.fetches, none.hits, none.bypasses), (150, 0, 150));
            assert_eq!(none.max_bytes, 0);
        }
    }

    #[test]
    fn belady_keeps_part_of_a_cyclic_scan() {
        let epochs = vec![vec![0, 1, 2, 3]; 5];
        let belady = simulate((Policy::Belady, 2), &[1; 4], &epochs, 3);
        let hits: Vec<u64> = belady.epochs.iter().map(|epoch| epoch.hits).collect();
        assert_eq!(hits, [0, 3, 3, 3, 3]);
        assert_eq!(belady.fetches, 8);
        let lru = simulate((Policy::Lru, 1), &[1; 4], &epochs, 3);
        assert_eq!((lru.hits, lru.fetches, lru.evictions), (0, 20, 17));
        assert_eq!(lru.epochs.len(), 5);
    }

    #[test]
    fn empty_simulation_has_no_hits() {
        let report = simulate((Policy::Belady, 2), &[], &[], 10);
        assert_eq!(report, SimReport::default());
        assert_eq!(report.hit_share(0).to_bits(), 0.0_f64.to_bits());
    }
}
