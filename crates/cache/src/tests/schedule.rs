//! Tests of the order and the limits of fetches.

use std::time::Duration;

use super::*;

/// Moves through the ticks like a consumer, and checks the disk usage before and after each.
fn run(set: &Set, cache: &TestCache, ticks: &[&[usize]], limit: u64) {
    for (tick, needed) in (0_u64..).zip(ticks) {
        for &blob in *needed {
            read(cache, blob, tick);
            assert!(set.usage() <= limit, "{} > {limit} at {tick}", set.usage());
        }
        cache.move_to(tick + 1);
        while cache.turn() {
            assert!(
                set.usage() <= limit,
                "{} > {limit} after {tick}",
                set.usage()
            );
        }
    }
}

const SCAN: &[&[usize]] = &[&[0], &[1], &[2], &[3], &[4], &[5]];
const MIXED: &[&[usize]] = &[&[0, 1], &[1, 2], &[2, 3, 0], &[4], &[5, 0], &[1, 5], &[3]];

#[test]
fn fetches_match_the_simulated_policy() {
    for (ticks, room) in [
        (SCAN, 3),
        (SCAN, 1),
        (SCAN, 6),
        (MIXED, 2),
        (MIXED, 3),
        (MIXED, 4),
    ] {
        let set = Set::new(6);
        let access_plan = access_plan(6, &[ticks, ticks, ticks]);
        let ticks = [ticks, ticks, ticks].concat();
        // All blobs have about the same size; the limit is for the largest.
        let limit = set.limit(room);
        let script = Script::new();
        let on_demand = CacheOptions {
            lookahead: Some(0),
            // A blob without space on disk is not kept at all, as in the policy.
            memory: 0,
            ..options(Some(limit))
        };
        let expected = policy_fetches(&ticks, &access_plan, room as u64);
        let cache = open(&set, &on_demand, &script);
        cache.set_plan(access_plan.clone(), Some(0));
        run(&set, &cache, &ticks, limit);
        let alone = cache.stats().alone_samples;
        assert!(
            script.calls().len() as u64 + alone <= expected as u64,
            "{:?} and {alone} alone, not {expected} with room for {room}",
            script.calls(),
        );
        drop(cache);
        // Prefetching needs no additional fetches.
        let set = Set::new(6);
        let ahead_script = Script::new();
        let ahead = CacheOptions {
            lookahead: None,
            ..on_demand
        };
        let cache = open(&set, &ahead, &ahead_script);
        cache.set_plan(access_plan, Some(0));
        run(&set, &cache, &ticks, limit);
        let alone = cache.stats().alone_samples;
        assert!(
            ahead_script.calls().len() as u64 + alone <= expected as u64,
            "ahead: {:?} and {alone} alone, not {expected} with room for {room}",
            ahead_script.calls(),
        );
    }
}

#[test]
fn each_blob_is_fetched_once_when_all_fit() {
    let set = Set::packed(6);
    let script = Script::new();
    let limit = set.limit(6);
    let cache = open(&set, &options(Some(limit)), &script);
    cache.set_plan(access_plan(6, &[MIXED, SCAN]), Some(0));
    run(&set, &cache, &[MIXED, SCAN].concat(), limit);
    // In the order of their use.
    assert_eq!(script.calls(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(cache.stats().evictions, 0);
}

#[test]
fn prefetching_respects_lookahead_and_bytes_in_flight() {
    let set = Set::new(6);
    let script = Script::new();
    script.hold(true);
    let three = CacheOptions {
        in_flight: 3 * 4500,
        ..options(None)
    };
    let cache = open(&set, &three, &script);
    cache.set_plan(access_plan(6, &[SCAN]), Some(0));
    while cache.turn() {}
    assert_eq!(script.waiting(), [0, 1, 2]);
    script.answer(1);
    while cache.turn() {}
    assert_eq!(script.waiting(), [0, 2, 3]);
    drop(cache);

    let script = Script::new();
    script.hold(true);
    let near = CacheOptions {
        lookahead: Some(1),
        ..options(None)
    };
    let set = Set::new(6);
    let cache = open(&set, &near, &script);
    cache.set_plan(access_plan(6, &[SCAN]), Some(0));
    while cache.turn() {}
    assert_eq!(script.waiting(), [0, 1]);
    cache.move_to(2);
    while cache.turn() {}
    assert_eq!(script.waiting(), [0, 1, 2, 3]);
    // Stopping cancels fetches in flight and leaves no files.
    cache.stop();
    script.hold(false);
    assert_eq!(set.resident(), [0_usize; 0]);
    assert!(!set.marker(0).exists());
    assert_eq!(try_read(&cache, 0, 2).unwrap_err().id(), "reader-closed");
}

#[test]
fn peer_request_does_not_wait_for_bytes_in_flight() {
    let set = Set::new(6);
    let script = Script::new();
    script.hold(true);
    let one = CacheOptions {
        in_flight: 1,
        ..options(None)
    };
    let cache = open(&set, &one, &script);
    cache.set_plan(access_plan(6, &[SCAN]), Some(0));
    while cache.turn() {}
    assert_eq!(script.waiting(), [0]);
    // The fetch in flight may wait for the node that waits for this blob.
    std::thread::scope(|scope| {
        let other = scope.spawn(|| cache.need_for_peer(4, &Cancel::default()));
        script.wait_for(2);
        assert_eq!(script.waiting(), [0, 4]);
        script.answer(4);
        assert!(matches!(other.join().unwrap(), Ok(Access::Open(_))));
    });
    assert_eq!(script.calls(), [0, 4]);
}

#[test]
fn needed_blob_is_fetched_before_prefetches() {
    let set = Set::new(6);
    let script = Script::new();
    let one = CacheOptions {
        in_flight: 1,
        ..options(None)
    };
    let cache = open(&set, &one, &script);
    cache.set_plan(access_plan(6, &[SCAN]), Some(0));
    assert!(read(&cache, 4, 0));
    // The first prefetch had already taken the budget; the blob that the caller waits for is next.
    assert_eq!(script.calls()[..2], [0, 4]);
}

#[test]
fn blobs_without_space_are_held_in_memory_or_read_uncached() {
    let set = Set::new(5);
    let script = Script::new();
    let limit = set.limit(2);
    let tight = CacheOptions {
        memory: 4200,
        ..options(Some(limit))
    };
    let cache = open(&set, &tight, &script);
    // A batch that needs more than the available space.
    let all: &[usize] = &[0, 1, 2, 3, 4];
    cache.set_plan(access_plan(5, &[&[all, all, &[4]]]), Some(0));
    for tick in 0..2 {
        let found = cache.need(all, tick, &Cancel::default()).unwrap();
        let open = found
            .iter()
            .filter(|access| matches!(access, Access::Open(_)))
            .count();
        assert_eq!(open, 3, "{found:?}");
        for blob in all {
            read(&cache, *blob, tick);
        }
        assert!(set.usage() <= limit);
        cache.move_to(tick + 1);
    }
    let stats = cache.stats();
    assert_eq!((stats.bypasses, stats.evictions), (1, 0));
    assert_eq!(stats.alone_samples, 2 * 2);
    assert_eq!(stats.memory_bytes, 0);
    // Now there is space.
    assert!(read(&cache, 4, 2));
}

#[test]
fn compressed_blobs_without_space_are_read_by_sample() {
    let set = Set::packed(3);
    let script = Script::new();
    let tight = CacheOptions {
        memory: 0,
        ..options(Some(set.limit(1)))
    };
    let cache = open(&set, &tight, &script);
    cache.set_plan(access_plan(3, &[&[&[0, 1, 2]]]), Some(0));
    let found = cache.need(&[0, 1, 2], 0, &Cancel::default()).unwrap();
    // One blob on disk, one in memory, however large, and the third sample by sample.
    assert_eq!(
        found
            .iter()
            .filter(|access| matches!(access, Access::Open(_)))
            .count(),
        2
    );
    for blob in 0..3 {
        read(&cache, blob, 0);
    }
    assert!(set.usage() <= set.limit(1));
}

#[test]
fn unplanned_blob_is_fetched_and_kept_while_in_use() {
    let set = Set::new(4);
    let script = Script::new();
    let limit = set.limit(2);
    let no_memory = CacheOptions {
        lookahead: Some(0),
        ..options(Some(limit))
    };
    let cache = open(&set, &no_memory, &script);
    cache.set_plan(access_plan(4, &[&[&[0], &[1], &[2]]]), Some(0));
    // Padding repeats a sample of blob 3 in the first batch.
    assert!(read(&cache, 0, 0) && read(&cache, 3, 0));
    assert!(cache.get(3).is_some());
    cache.move_to(1);
    assert!(read(&cache, 1, 1));
    assert!(cache.get(3).is_none());
    assert!(set.usage() <= limit);
}

#[test]
fn failed_prefetch_is_an_error_only_when_needed() {
    let set = Set::new(2);
    let script = Script::new();
    script.faults(0, &[Fault::GiveUp]);
    script.faults(1, &[Fault::Flip; 3]);
    let cache = open(&set, &options(None), &script);
    cache.set_plan(access_plan(2, &[&[&[0], &[1]]]), Some(0));
    while cache.turn() {}
    assert_eq!(script.calls(), [0, 1, 1, 1]);
    assert!(read(&cache, 0, 0));
    // Corrupt data is reported without three further fetches.
    assert_eq!(try_read(&cache, 1, 1).unwrap_err().id(), "test-content");
    assert_eq!(script.calls(), [0, 1, 1, 1, 0]);
}

#[test]
fn concurrent_threads_fetch_a_blob_once() {
    let set = Set::new(1);
    let script = Script::new();
    script.hold(true);
    let threaded = CacheOptions {
        threads: 2,
        ..options(None)
    };
    let cache = open(&set, &threaded, &script);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(read(&cache, 0, 0)));
        }
        script.wait_for(1);
        script.answer(0);
    });
    assert_eq!(script.calls(), [0]);
}

#[test]
fn all_waiting_threads_receive_a_failure() {
    let set = Set::new(1);
    let script = Script::new();
    script.hold(true);
    script.faults(0, &[Fault::GiveUp]);
    let threaded = CacheOptions {
        threads: 1,
        ..options(None)
    };
    let cache = open(&set, &threaded, &script);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| try_read(&cache, 0, 0).unwrap_err().id()))
            .collect();
        script.wait_for(1);
        // Until all threads wait for the same fetch.
        while cache.waiters() < 3 {
            std::thread::yield_now();
        }
        script.answer(0);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), "io");
        }
    });
    assert_eq!(script.calls(), [0]);
}

#[test]
fn cancel_ends_a_wait() {
    let set = Set::new(1);
    let script = Script::new();
    script.hold(true);
    let cache = open(&set, &options(None), &script);
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cache.need(&[0], 0, &cancel).unwrap_err().id());
        script.wait_for(1);
        cancel.set();
        cache.wake();
        assert_eq!(waiter.join().unwrap(), "interrupted");
    });
}

#[test]
fn cache_starts_on_first_need() {
    let set = Set::new(1);
    let script = Script::new();
    let cache = open(&set, &CacheOptions::default(), &script);
    assert!(cache.0.get(0).is_none());
    assert_eq!(
        (cache.0.generation(), cache.0.stats()),
        (0, super::super::CacheStats::default())
    );
    assert!(cache.0.started().is_none());
    assert!(!set.root.path().join(".local.shardmill").exists());
    cache.0.stop();
    drop(cache);
    assert!(!set.root.path().join(".local.shardmill").exists());
}

#[test]
fn existing_blobs_are_verified_when_needed_soon() {
    let set = Set::new(3);
    let script = Script::new();
    drop({
        let cache = open(&set, &options(None), &script);
        assert!((0..3).all(|blob| read(&cache, blob, 0)));
        cache
    });
    let cache = open(&set, &options(None), &script);
    let mut far: Vec<&[usize]> = vec![&[0], &[1]];
    far.resize(200, &[]);
    far.push(&[2]);
    cache.set_plan(access_plan(3, &[&far]), Some(0));
    while cache.turn() {}
    let known = |cache: &TestCache| {
        cache
            .lock()
            .checks
            .known
            .keys()
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(known(&cache), [0, 1]);
    cache.move_to(150);
    while cache.turn() {}
    assert_eq!(known(&cache), [0, 1, 2]);
    assert!((0..3).all(|blob| read(&cache, blob, 200)));
    assert_eq!(script.calls(), [0, 1, 2]);
}

#[test]
fn lowered_limit_evicts_existing_blobs() {
    let set = Set::new(5);
    let script = Script::new();
    drop({
        let cache = open(&set, &options(None), &script);
        assert!((0..5).all(|blob| read(&cache, blob, 0)));
        cache
    });
    let limit = set.limit(2);
    let cache = open(&set, &options(Some(limit)), &script);
    cache.set_plan(access_plan(5, &[&[&[3], &[1], &[0], &[2], &[4]]]), Some(0));
    assert!(read(&cache, 3, 0));
    assert!(set.usage() <= limit, "{} > {limit}", set.usage());
    assert_eq!(set.resident(), [1, 3]);
}

/// A set of compressed blobs, and a cache without space for the last one.
fn without_space(script: &Arc<Script>, timeout: Duration) -> (Set, TestCache) {
    let set = Set::packed(4);
    let tight = CacheOptions {
        memory: 0,
        timeout,
        ..options(Some(set.limit(1)))
    };
    let cache = open(&set, &tight, script);
    cache.set_plan(access_plan(4, &[&[&[0, 1, 2, 3]]]), Some(0));
    let found = cache.need(&[0, 1, 2, 3], 0, &Cancel::default()).unwrap();
    assert!(matches!(found[2..], [Access::Uncached, Access::Uncached]));
    (set, cache)
}

#[test]
fn uncached_fetch_timeout_has_its_own_error() {
    let script = Script::new();
    let (_set, cache) = without_space(&script, Duration::from_millis(20));
    script.hold(true);
    assert_eq!(cache.whole(3).unwrap_err().id(), "cache-timeout");
    script.hold(false);
    assert_eq!(cache.whole(3).unwrap().bytes, content(3));
}

#[test]
fn uncached_fetch_does_not_block_other_blobs() {
    let script = Script::new();
    let (_set, cache) = without_space(&script, Duration::from_secs(20));
    script.hold(true);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| cache.whole(3).unwrap());
        script.wait_for(1);
        let second = scope.spawn(|| cache.whole(2).unwrap());
        let again = scope.spawn(|| cache.whole(3).unwrap());
        // The second fetch begins while the first one waits.
        script.wait_for(2);
        assert_eq!(script.waiting(), [3, 2]);
        script.answer(2);
        assert_eq!(second.join().unwrap().bytes, content(2));
        script.answer(3);
        assert_eq!(first.join().unwrap().bytes, content(3));
        // This thread finds the blob, or fetches it because it was not kept.
        while !again.is_finished() {
            if script.waiting() == [3] {
                script.answer(3);
            }
            std::thread::yield_now();
        }
        assert_eq!(again.join().unwrap().bytes, content(3));
    });
}

#[test]
fn batch_may_need_more_blobs_than_the_open_limit() {
    for is_remote in [false, true] {
        let mut set = Set::new(4);
        set.is_remote = is_remote;
        let few = CacheOptions {
            open_shards: 2,
            ..options(None)
        };
        let cache = open(&set, &few, &Script::new());
        let cancel = Cancel::default();
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let cancel = &cancel;
            let guard = scope.spawn(move || {
                // Otherwise the test would not end.
                if is_done.recv_timeout(Duration::from_secs(10)).is_err() {
                    cancel.set();
                }
            });
            for tick in 0..3 {
                let found = cache.need(&[0, 1, 2, 3], tick, cancel).unwrap();
                for (blob, access) in found.iter().enumerate() {
                    assert!(matches!(access, Access::Open(open) if open.bytes == content(blob)));
                }
                assert_eq!(cache.stats().open_shards, 2);
                drop(found);
                cache.move_to(tick + 1);
            }
            done.send(()).unwrap();
            guard.join().unwrap();
        });
    }
}
