//! Models transfers that share a connection: each waits for its first byte, then all active ones share the bandwidth
//! equally.

/// A transfer in flight.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    shard: usize,
    /// The time of its first byte.
    begins: f64,
    /// Bytes that remain.
    left: f64,
}

/// The network connection of a node.
#[derive(Clone, Debug)]
pub(super) struct Net {
    bandwidth: f64,
    latency: f64,
    now: f64,
    /// In the order in which they started.
    transfers: Vec<Transfer>,
}

impl Net {
    pub(super) fn new(bandwidth: f64, latency: f64) -> Self {
        Self {
            bandwidth: bandwidth.max(1.0),
            latency: latency.max(0.0),
            now: 0.0,
            transfers: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> f64 {
        self.now
    }

    pub(super) fn transfers(&self) -> usize {
        self.transfers.len()
    }

    pub(super) fn start(&mut self, shard: usize, bytes: f64) {
        self.transfers.push(Transfer {
            shard,
            begins: self.now + self.latency,
            left: bytes,
        });
    }

    fn running(&self) -> impl Iterator<Item = &Transfer> {
        let now = self.now;
        self.transfers.iter().filter(move |one| one.begins <= now)
    }

    /// Returns the bytes per second of each active transfer.
    fn rate(&self) -> f64 {
        self.bandwidth
            / self
                .running()
                .fold(0.0, |count, _| count + 1.0_f64)
                .max(1.0)
    }

    /// Returns the time of the next event, and the shard whose transfer ends then. Otherwise a transfer begins.
    fn next(&self) -> Option<(f64, Option<usize>)> {
        let rate = self.rate();
        let waiting = self.transfers.iter().filter(|one| one.begins > self.now);
        let begins = waiting.map(|one| one.begins).min_by(f64::total_cmp);
        let min = self
            .running()
            .min_by(|one, other| one.left.total_cmp(&other.left));
        let ends = min.map(|one| (self.now + one.left.max(0.0) / rate, Some(one.shard)));
        match (begins, ends) {
            (Some(begins), Some((ends, _))) if begins < ends => Some((begins, None)),
            (_, Some(ends)) => Some(ends),
            (begins, None) => Some((begins?, None)),
        }
    }

    /// Advances to the end of the next transfer, or to `until` if that is earlier. Returns the shard of the finished
    /// transfer, if any. `moved` is called with each interval of time and the bytes that arrived in it.
    pub(super) fn advance(
        &mut self,
        until: f64,
        mut moved: impl FnMut(f64, f64, f64),
    ) -> Option<usize> {
        loop {
            let next = self.next().filter(|(at, _)| *at <= until);
            let (to, ended) = next.unwrap_or((until.max(self.now), None));
            let each = self.rate() * (to - self.now);
            let mut bytes = 0.0;
            let now = self.now;
            for one in self.transfers.iter_mut().filter(|one| one.begins <= now) {
                one.left -= each;
                bytes += each;
            }
            moved(now, to, bytes);
            self.now = to;
            if let Some(shard) = ended {
                self.transfers.retain(|one| one.shard != shard);
                return Some(shard);
            }
            next?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the end of each transfer, and all transferred bytes.
    fn run(net: &mut Net) -> (Vec<(usize, f64)>, f64) {
        let mut ends = Vec::new();
        let mut came = 0.0;
        while let Some(shard) = net.advance(1e9, |_, _, bytes| came += bytes) {
            ends.push((shard, net.now()));
        }
        (ends, came)
    }

    #[test]
    fn single_transfer_gets_full_bandwidth_after_latency() {
        let mut net = Net::new(100.0, 0.5);
        net.start(7, 200.0);
        let (ends, came) = run(&mut net);
        assert_eq!(ends, [(7, 2.5)]);
        assert!((came - 200.0).abs() < 1e-6);
    }

    #[test]
    fn transfers_share_the_bandwidth() {
        let mut net = Net::new(100.0, 1.0);
        net.start(0, 100.0);
        net.start(1, 300.0);
        // Both have 50 bytes per second until 3 s, then the second one has all.
        assert_eq!(run(&mut net).0, [(0, 3.0), (1, 5.0)]);
    }

    #[test]
    fn advance_stops_at_the_given_time() {
        let mut net = Net::new(100.0, 0.0);
        net.start(0, 100.0);
        assert_eq!(net.advance(0.25, |_, _, _| {}), None);
        assert_eq!((net.now(), net.transfers()), (0.25, 1));
        net.start(1, 37.5);
        assert_eq!(run(&mut net).0, [(1, 1.0), (0, 1.375)]);
    }
}
