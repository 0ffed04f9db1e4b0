//! The descriptors of the open claims, which a forked child gives up.
//!
//! A forked child shares the locks of its parent: if the parent is killed, its claims stay locked until the child ends,
//! and the child itself waits for them. So the child replaces these descriptors before it does anything else.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each descriptor. A higher descriptor is not recorded, and stays open in a child.
static OPEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Returns the word and the bit of a descriptor.
fn bit(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((OPEN.get(number / 64)?, 1 << (number % 64)))
}

/// Records the descriptor of a claim that was opened.
pub(crate) fn add(descriptor: RawFd) {
    if let Some((word, bit)) = bit(descriptor) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Forgets the descriptor of a claim, before it is closed.
pub(crate) fn remove(descriptor: RawFd) {
    if let Some((word, bit)) = bit(descriptor) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Returns the descriptors of the claims that a forked child inherited, and forgets them. To be called in the child,
/// before it opens claims of its own; whoever calls it replaces them by others (`dup2`), so that they hold no lock.
/// Takes no lock itself.
#[must_use]
pub fn take_inherited_claims() -> Vec<RawFd> {
    let mut found = Vec::new();
    for (word, first) in OPEN.iter().zip((0..).step_by(64)) {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            found.push(first + bits.trailing_zeros().cast_signed());
            bits &= bits - 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claim, Dir};

    #[test]
    fn open_claims_are_registered_until_dropped() {
        use std::os::fd::AsRawFd as _;

        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        // Tests of other threads open claims too: only these two are looked at.
        let kept = Claim::create(&dir, "1").unwrap().unwrap();
        let dropped = Claim::create(&dir, "2").unwrap().unwrap();
        let is_known = |descriptor| {
            let (word, bit) = bit(descriptor).unwrap();
            word.load(Ordering::Relaxed) & bit != 0
        };
        let descriptor = dropped.file().as_raw_fd();
        assert!(is_known(kept.file().as_raw_fd()) && is_known(descriptor));
        drop(dropped);
        assert!(is_known(kept.file().as_raw_fd()));
        add(65_535);
        add(65_536);
        add(-1);
        let taken = take_inherited_claims();
        assert!(taken.contains(&kept.file().as_raw_fd()) && taken.contains(&65_535));
        assert!(!taken.contains(&65_536) && !taken.contains(&-1));
        assert!(!is_known(kept.file().as_raw_fd()));
    }
}
