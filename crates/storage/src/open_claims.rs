//! The descriptors of the open claims, which a forked child gives up.
//!
//! A forked child shares the locks of its parent: if the parent is killed, its claims stay locked until the child ends,
//! and the child itself waits for them. So the child replaces these descriptors before it does anything else. A fork
//! waits until each descriptor that another thread has just opened is recorded.

use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A bit for each descriptor. A higher descriptor is not recorded, and stays open in a child.
static OPEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// How many threads are opening a claim, whose descriptor is not recorded yet.
static OPENING: AtomicUsize = AtomicUsize::new(0);

/// How many threads are forking. Others wait before they open a claim.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Returns the word and the bit of a descriptor.
fn bit(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((OPEN.get(number / 64)?, 1 << (number % 64)))
}

/// How long threads that open a claim and threads that fork wait for each other at most: a file system may not answer,
/// and a thread that forks may wait for the one that opens.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens a claim with `open`, and records its descriptor. Waits while another thread forks.
pub(crate) fn open<E>(open: impl FnOnce() -> Result<File, E>) -> Result<File, E> {
    let start = Instant::now();
    loop {
        OPENING.fetch_add(1, Ordering::SeqCst);
        if FORKING.load(Ordering::SeqCst) == 0 || start.elapsed() >= PATIENCE {
            break;
        }
        OPENING.fetch_sub(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(1));
    }
    let file = open();
    if let Ok(file) = &file {
        add(file.as_raw_fd());
    }
    OPENING.fetch_sub(1, Ordering::SeqCst);
    file
}

/// Waits until the descriptors of all claims are recorded, and lets no thread open another claim. To be called before a
/// fork.
pub fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let start = Instant::now();
    while OPENING.load(Ordering::SeqCst) > 0 && start.elapsed() < PATIENCE {
        thread::yield_now();
    }
}

/// Lets threads open claims again. To be called in the parent after a fork.
pub fn after_fork_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Records the descriptor of a claim that was opened.
fn add(descriptor: RawFd) {
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

/// Returns how many lock files this process has open.
#[must_use]
pub fn open_claims() -> usize {
    let words = OPEN.iter().map(|word| word.load(Ordering::Relaxed));
    words.map(|word| word.count_ones() as usize).sum()
}

/// Returns the descriptors of the claims that a forked child inherited, and forgets them. To be called in the child,
/// before it opens claims of its own; whoever calls it replaces them by others (`dup2`), so that they hold no lock.
/// Takes no lock itself.
#[must_use]
pub fn take_inherited_claims() -> Vec<RawFd> {
    // The threads that were opening a claim or forking are not in this process.
    OPENING.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
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
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{Claim, Dir};

    #[test]
    fn fork_waits_for_claims_that_are_being_opened_and_delays_others() {
        let root = tempfile::tempdir().unwrap();
        let (begun, is_open) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let opened = open(|| {
                    begun.wait();
                    thread::sleep(Duration::from_millis(50));
                    is_open.store(true, Ordering::SeqCst);
                    File::create(root.path().join("claim"))
                });
                remove(opened.unwrap().as_raw_fd());
            });
            begun.wait();
            before_fork();
            assert!(is_open.load(Ordering::SeqCst));
            let dir = Dir::open(root.path()).unwrap();
            let is_forked = AtomicBool::new(false);
            thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let claim = Claim::create(&dir, "other").unwrap();
                    claim.is_some() && is_forked.load(Ordering::SeqCst)
                });
                thread::sleep(Duration::from_millis(50));
                is_forked.store(true, Ordering::SeqCst);
                after_fork_in_parent();
                assert!(other.join().unwrap());
            });
        });
    }

    #[test]
    fn open_claims_are_registered_until_dropped() {
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
