//! Records the cache size, download rate and waiting time of a simulated node, in at most 256 points.

use serde::Serialize;
use shardmill_core::number::{float, whole};

/// What a node did in an interval of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// The start of the interval, from the start of the run.
    pub seconds: f64,
    /// The most bytes in the cache, including shards in flight.
    pub resident_bytes: u64,
    /// Bytes that arrived, per second.
    pub fetched_bytes_per_second: f64,
    /// The share of the time that was spent waiting for shards, from 0 to 1.
    pub waiting: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    resident: u64,
    fetched: f64,
    waited: f64,
}

/// The maximum number of points. A long run uses at least half of them.
const MAX_POINTS: usize = 256;

/// Collects the points. When all points are in use, pairs are merged and each point covers twice the time.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    width: f64,
    bins: Vec<Bin>,
    /// Bytes in the cache, as last set.
    resident: u64,
    end: f64,
}

impl Timeline {
    pub(super) fn new() -> Self {
        Self {
            width: 1e-3,
            bins: Vec::new(),
            resident: 0,
            end: 0.0,
        }
    }

    /// Sets the number of bytes in the cache from now on.
    pub(super) fn resident(&mut self, bytes: u64) {
        self.resident = bytes;
        if let Some(bin) = self.bins.last_mut() {
            bin.resident = bin.resident.max(bytes);
        }
    }

    /// Records an interval in which bytes arrived and the node may have waited.
    pub(super) fn pass(&mut self, from: f64, to: f64, bytes: f64, waiting: bool) {
        if to <= from {
            return;
        }
        while to > self.width * float(MAX_POINTS as u64) {
            self.halve();
        }
        self.end = self.end.max(to);
        let mut at = from;
        // Splits the interval at the boundaries of bins; `bins` grows to include them.
        while at < to {
            let index = usize::try_from(whole(at / self.width)).unwrap_or(usize::MAX);
            while self.bins.len() <= index && self.bins.len() < MAX_POINTS {
                self.bins.push(Bin {
                    resident: self.resident,
                    ..Bin::default()
                });
            }
            let next = (float(index as u64) + 1.0) * self.width;
            // If the bin is too narrow for the precision of `at`, the loop ends here.
            let stop = if next > at { next.min(to) } else { to };
            let part = (stop - at) / (to - from);
            if let Some(bin) = self.bins.get_mut(index.min(MAX_POINTS - 1)) {
                bin.resident = bin.resident.max(self.resident);
                bin.fetched += bytes * part;
                if waiting {
                    bin.waited += stop - at;
                }
            }
            at = stop;
        }
    }

    fn halve(&mut self) {
        self.width *= 2.0;
        let pairs = self.bins.chunks(2).map(|pair| {
            pair.iter().fold(Bin::default(), |sum, bin| Bin {
                resident: sum.resident.max(bin.resident),
                fetched: sum.fetched + bin.fetched,
                waited: sum.waited + bin.waited,
            })
        });
        self.bins = pairs.collect();
    }

    pub(super) fn points(&self) -> Vec<Point> {
        let bins = self.bins.iter().enumerate();
        bins.map(|(index, bin)| {
            let seconds = float(index as u64) * self.width;
            let width = self.width.min(self.end - seconds).max(f64::MIN_POSITIVE);
            Point {
                seconds,
                resident_bytes: bin.resident,
                fetched_bytes_per_second: bin.fetched / width,
                waiting: (bin.waited / width).min(1.0),
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_kept_when_points_are_merged() {
        let mut line = Timeline::new();
        let (mut time, mut bytes, mut waited) = (0.0, 0.0, 0.0);
        for turn in 0..5000_u32 {
            let long = f64::from(turn % 7) * 0.01;
            line.resident(u64::from(turn % 100));
            line.pass(time, time + long, 10.0 * long, turn % 3 == 0);
            time += long;
            bytes += 10.0 * long;
            if turn % 3 == 0 {
                waited += long;
            }
        }
        let points = line.points();
        assert!(
            (MAX_POINTS / 2..=MAX_POINTS).contains(&points.len()),
            "{}",
            points.len()
        );
        let width = |index: usize| {
            let next = points.get(index + 1).map_or(time, |next| next.seconds);
            next - points[index].seconds
        };
        let sum = |of: fn(&Point) -> f64| -> f64 {
            let each = points.iter().enumerate();
            each.map(|(index, point)| of(point) * width(index)).sum()
        };
        assert!((sum(|point| point.fetched_bytes_per_second) - bytes).abs() < 1e-6 * bytes);
        assert!((sum(|point| point.waiting) - waited).abs() < 1e-6 * waited);
        assert!(points.iter().any(|point| point.resident_bytes == 99));
    }

    #[test]
    fn zero_duration_has_no_points() {
        let mut line = Timeline::new();
        line.resident(5);
        line.pass(0.0, 0.0, 0.0, true);
        assert!(line.points().is_empty());
    }
}
