//! Measures how long fetches and batches take.

use std::time::{Duration, Instant};

/// The duration of a fetch and of a batch, as moving averages with a weight of 1/8 for the newest value.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    fetch: Option<Duration>,
    tick: Option<Duration>,
    last_tick: Option<Instant>,
}

impl Pace {
    fn average(old: Option<Duration>, new: Duration) -> Duration {
        old.map_or(new, |old| (old * 7 + new) / 8)
    }

    pub(crate) fn fetched(&mut self, lasted: Duration) {
        self.fetch = Some(Self::average(self.fetch, lasted));
    }

    /// Records that `ticks` batches have passed since the last call.
    pub(crate) fn ticked(&mut self, ticks: u64, now: Instant) {
        if let Some(last) = self.last_tick.replace(now) {
            let ticks = u32::try_from(ticks).unwrap_or(u32::MAX).max(1);
            let each = now.saturating_duration_since(last) / ticks;
            self.tick = Some(Self::average(self.tick, each));
        }
    }

    /// Returns twice the number of batches that a fetch takes; 8 as long as nothing was measured.
    pub(crate) fn slack(&self) -> u64 {
        const UNKNOWN: u64 = 8;
        const MAX: u64 = 1 << 16;

        let (Some(fetch), Some(tick)) = (self.fetch, self.tick) else {
            return UNKNOWN;
        };
        let ticks = fetch.as_nanos() * 2 / tick.as_nanos().max(1);
        u64::try_from(ticks).map_or(MAX, |ticks| ticks.saturating_add(1).min(MAX))
    }
}
