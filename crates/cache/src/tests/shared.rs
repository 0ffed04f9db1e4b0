//! Tests with several readers of one folder. Each has its own file descriptors, so the locks treat them like
//! processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shardmill_testing::draw::Draw;

use super::*;
use crate::Peers;
use crate::capacity::{Reserved, Scheduler as _, Wanted};

#[test]
fn one_process_fetches_while_the_other_waits() {
    let set = Set::new(1);
    let script = Script::new();
    script.hold(true);
    let threaded = CacheOptions {
        threads: 1,
        ..options(None)
    };
    let one = open(&set, &threaded, &script);
    let two = open(&set, &threaded, &script);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| read(&one, 0, 0));
        script.wait_for(1);
        let second = scope.spawn(|| read(&two, 0, 0));
        while two.waiters() < 1 {
            std::thread::yield_now();
        }
        script.answer(0);
        assert!(first.join().unwrap() && second.join().unwrap());
    });
    assert_eq!(script.calls(), [0]);
    assert_eq!(two.stats().found_shards, 1);
}

#[test]
fn wait_for_another_process_times_out_with_its_pid() {
    let set = Set::new(1);
    let script = Script::new();
    script.hold(true);
    let one = open(&set, &options(None), &script);
    std::thread::scope(|scope| {
        scope.spawn(|| read(&one, 0, 0));
        script.wait_for(1);
        let short = CacheOptions {
            timeout: Duration::ZERO,
            ..options(None)
        };
        let two = open(&set, &short, &script);
        let error = try_read(&two, 0, 0).unwrap_err();
        assert_eq!(error.id(), "cache-wait");
        let text = error.chain();
        assert!(
            text.contains(&format!("process {}", std::process::id())),
            "{text}"
        );
        script.answer(0);
    });
}

#[test]
fn fetch_of_a_dead_process_is_taken_over() {
    let set = Set::new(1);
    let script = Script::new();
    script.hold(true);
    let one = open(&set, &options(Some(set.limit(1))), &script);
    one.set_plan(access_plan(1, &[&[&[0]]]), Some(0));
    while one.turn() {}
    assert!(set.marker(0).exists());
    fs::write(set.own().join("tmp-0-0123456789abcdef"), [0; 3000]).unwrap();
    // Like a kill: descriptors are closed without any cleanup.
    let mut state = one.lock();
    let works = (state.clear(), std::mem::take(&mut state.to_drop));
    drop(state);
    drop(works);
    script.hold(false);
    let two = open(&set, &options(Some(set.limit(1))), &script);
    assert!(read(&two, 0, 0));
    assert_eq!((script.calls(), set.temps()), (vec![0, 0], 0));
    assert!(set.usage() <= set.limit(1));
}

#[test]
fn blob_in_use_by_another_process_is_not_evicted() {
    let set = Set::new(3);
    let script = Script::new();
    let limit = set.limit(2);
    let one = open(&set, &options(Some(limit)), &script);
    assert!(read(&one, 0, 0));
    let two = open(&set, &options(Some(limit)), &script);
    assert!(read(&two, 1, 0));
    two.move_to(1);
    assert!(read(&two, 2, 1));
    assert_eq!(set.resident(), [0, 2]);
    // The blob is pinned until its batch was delivered.
    one.move_to(1);
    two.move_to(2);
    assert!(read(&two, 1, 2));
    assert!(set.resident().contains(&1));
    assert!(set.usage() <= limit);
}

#[test]
fn blobs_needed_by_a_slower_rank_are_kept() {
    let set = Set::new(4);
    let script = Script::new();
    let ranks = |rank| CacheOptions {
        lookahead: Some(0),
        peers: Some(Peers {
            rank,
            ranks: 2,
            run: 7,
        }),
        ..options(Some(set.limit(2) + 64))
    };
    let future = access_plan(4, &[&[&[0], &[1], &[2], &[3], &[], &[], &[], &[], &[1]]]);
    let (fast, slow) = (
        open(&set, &ranks(0), &script),
        open(&set, &ranks(1), &script),
    );
    for cache in [&fast, &slow] {
        cache.set_plan(future.clone(), Some(0));
        assert!(read(cache, 0, 0));
        cache.move_to(1);
    }
    assert!(read(&fast, 1, 1));
    fast.move_to(2);
    // For the fast rank alone, 0 would be evicted before 1. The slow rank is still at 1, so 0 may be evicted but 1 may
    // not.
    assert!(read(&fast, 2, 2));
    assert_eq!(set.resident(), [1, 2]);
    fast.move_to(3);
    // The slow rank may still need both of these before 3.
    assert!(read(&fast, 3, 3));
    assert_eq!(set.resident(), [1, 2]);
    assert_eq!(fast.stats().bypasses, 1);
    assert!(read(&slow, 1, 1));
    assert_eq!(script.calls(), [0, 1, 2, 3]);
}

#[test]
fn ranks_in_different_epochs_do_not_mix_step_numbers() {
    let set = Set::new(4);
    let script = Script::new();
    let ranks = |rank| CacheOptions {
        lookahead: Some(0),
        peers: Some(Peers {
            rank,
            ranks: 2,
            run: 7,
        }),
        ..options(Some(set.limit(1) + 64))
    };
    let epoch: &[&[usize]] = &[&[0], &[1], &[2], &[3]];
    let (fast, slow) = (
        open(&set, &ranks(0), &script),
        open(&set, &ranks(1), &script),
    );
    slow.begin_epoch(0, 0);
    slow.set_plan(access_plan(4, &[epoch, epoch]), Some(0));
    // Resumed in epoch 1, so that its ticks begin with this epoch.
    fast.begin_epoch(1, 0);
    fast.set_plan(access_plan(4, &[epoch]), Some(0));
    fast.move_to(1);
    for (tick, blob) in (0_u64..).zip(0..4) {
        assert!(read(&slow, blob, tick));
        assert_eq!(set.resident(), [blob]);
        slow.move_to(tick + 1);
    }
    assert_eq!((slow.stats().evictions, slow.stats().bypasses), (3, 0));
    // A rank in the previous epoch needs all of this epoch.
    fast.move_to(3);
    assert!(read(&fast, 2, 3));
    assert_eq!(set.resident(), [3]);
    assert_eq!((fast.stats().evictions, fast.stats().bypasses), (0, 1));
    // In the same epoch, batches are compared, not ticks.
    slow.begin_epoch(1, 4);
    slow.move_to(5);
    assert!(read(&slow, 1, 5));
    assert_eq!((slow.stats().evictions, slow.stats().bypasses), (4, 0));
    slow.move_to(6);
    assert!(read(&fast, 0, 3));
    assert_eq!(set.resident(), [0]);
    assert_eq!((fast.stats().evictions, fast.stats().bypasses), (1, 1));
}

#[test]
fn rank_moving_during_a_count_records_its_position() {
    let set = Set::new(1);
    let script = Script::new();
    let ranks = |rank| CacheOptions {
        peers: Some(Peers {
            rank,
            ranks: 2,
            run: 7,
        }),
        ..options(Some(set.limit(1) + 64))
    };
    let one = open(&set, &ranks(1), &script);
    one.begin_epoch(0, 0);
    one.set_plan(access_plan(1, &[&[&[0], &[0]]]), Some(0));
    one.move_to(1);
    let counting = one.capacity.count_for_test();
    one.move_to(2);
    drop(counting);
    let bytes = fs::read(set.own().join("positions")).unwrap();
    assert_eq!(bytes[48..56], 2_u64.to_le_bytes());
}

#[test]
fn busy_lock_times_out_at_the_deadline() {
    let set = Set::new(1);
    let script = Script::new();
    let short = CacheOptions {
        timeout: Duration::from_millis(1),
        ..options(Some(set.limit(1)))
    };
    let one = open(&set, &short, &script);
    let folder = one.capacity.folder(0).unwrap().unwrap();
    let held = folder.capacity().unwrap().unwrap();
    assert_eq!(try_read(&one, 0, 0).unwrap_err().id(), "cache-wait");
    drop(held);
    assert!(read(&one, 0, 0));
}

#[test]
fn without_locks_concurrent_fetches_leave_one_file() {
    let set = Set::new(1);
    let script = Script::new();
    script.hold(true);
    let lockless = CacheOptions {
        locks: false,
        threads: 1,
        ..options(None)
    };
    let one = open(&set, &lockless, &script);
    let two = open(&set, &lockless, &script);
    std::thread::scope(|scope| {
        let readers = [
            scope.spawn(|| read(&one, 0, 0)),
            scope.spawn(|| read(&two, 0, 0)),
        ];
        script.wait_for(2);
        script.answer(0);
        script.answer(0);
        for reader in readers {
            assert!(reader.join().unwrap());
        }
    });
    assert_eq!(set.resident(), [0]);
    assert_eq!(set.temps(), 0);
}

#[test]
fn reservation_is_counted_before_the_fetch() {
    let set = Set::new(3);
    let script = Script::new();
    script.hold(true);
    let limit = set.limit(2);
    let one = open(&set, &options(Some(limit)), &script);
    one.set_plan(access_plan(3, &[&[&[0], &[1], &[2]]]), Some(0));
    while one.turn() {}
    assert_eq!(script.waiting(), [0, 1]);
    let two = open(&set, &options(Some(limit)), &script);
    let wanted = |blob| Wanted {
        blob,
        at: 0,
        now: 0,
        urgent: true,
    };
    let busy = two.capacity.reserve(wanted(0), &**two).unwrap();
    assert!(matches!(busy, Reserved::Busy { pid: Some(pid) } if pid == std::process::id()));
    let full = two.capacity.reserve(wanted(2), &**two).unwrap();
    assert!(matches!(full, Reserved::NoRoom), "{full:?}");
    assert!(!two.is_stopped());
}

/// Runs readers that start and stop, some of them without cleanup, in one folder with a tight limit.
fn war(seed: u64, locks: bool) {
    const BLOBS: usize = 8;
    const READERS: u64 = 4;

    let set = Set::with(BLOBS, seed.is_multiple_of(2), false);
    let stranger = set.root.path().join("local/notes.txt");
    let room = 3;
    let limit = set.limit(room);
    set.prepare();
    fs::write(&stranger, b"mine").unwrap();
    let max = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (set, max) = (&set, &max);
            scope.spawn(move || {
                let mut draw = Draw::new(seed * READERS + reader);
                for _ in 0..3 {
                    let own = CacheOptions {
                        locks,
                        threads: usize::try_from(draw.below(3)).unwrap(),
                        memory: draw.below(3) * 5000,
                        ..options(Some(limit))
                    };
                    let cache = open(set, &own, &Script::new());
                    let ticks: Vec<Vec<usize>> = (0..12)
                        .map(|_| {
                            let count = 1 + draw.below(3);
                            (0..count)
                                .map(|_| usize::try_from(draw.below(BLOBS as u64)).unwrap())
                                .collect()
                        })
                        .collect();
                    let borrowed: Vec<&[usize]> = ticks.iter().map(Vec::as_slice).collect();
                    if draw.below(2) == 0 {
                        cache.set_plan(access_plan(BLOBS, &[&borrowed]), Some(0));
                    }
                    for (tick, needed) in (0_u64..).zip(&ticks) {
                        for blob in needed {
                            read(&cache, *blob, tick);
                        }
                        cache.move_to(tick + 1);
                        // While the lock file is held, no blob is added or removed.
                        let capacity = loop {
                            let folder = cache.capacity.folder(0).unwrap().unwrap();
                            match folder.capacity().unwrap() {
                                Some(capacity) => break capacity,
                                None => std::thread::yield_now(),
                            }
                        };
                        max.fetch_max(set.usage(), Ordering::Relaxed);
                        drop(capacity);
                    }
                    if draw.below(2) == 0 {
                        // Stops without cleanup: descriptors are closed and threads are gone.
                        let mut state = cache.lock();
                        let works = (state.clear(), std::mem::take(&mut state.to_drop));
                        drop(state);
                        drop(works);
                    }
                }
            });
        }
    });
    // The foreign file does not belong to the cache.
    let max = max.load(Ordering::Relaxed) - 4;
    let heaviest = set.limit(1);
    // Without locks, the folder changes during the measurement, so removed and added blobs may both be counted.
    let allowed = if locks {
        limit
    } else {
        limit + 2 * READERS * heaviest
    };
    assert!(max <= allowed, "seed {seed}: {max} > {allowed}");
    assert_eq!(fs::read(&stranger).unwrap(), b"mine");
    // The remaining files are intact, and a later reader can use them.
    let script = Script::new();
    let cache = open(&set, &options(Some(limit)), &script);
    let left = set.resident();
    for (tick, blob) in (0_u64..).zip(0..BLOBS) {
        assert!(read(&cache, blob, tick));
        cache.move_to(tick + 1);
    }
    if locks {
        assert!(script.calls().len() >= BLOBS - left.len(), "seed {seed}");
        assert!(set.usage() - 4 <= limit, "seed {seed}");
    }
    assert_eq!(set.temps(), 0, "seed {seed}");
}

#[test]
fn competing_readers_get_correct_samples() {
    for seed in 0..12 {
        war(seed, true);
    }
}

#[test]
fn competing_readers_without_locks_get_correct_samples() {
    for seed in 0..12 {
        war(seed, false);
    }
}
