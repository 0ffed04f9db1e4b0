use super::*;

use proptest::prelude::*;
use shardmill_order::{Epoch, EpochConfig, ShuffleAlgo, StreamConfig, World};

fn access_window(first: u64, last: u64, blob: usize) -> AccessWindow {
    AccessWindow { first, last, blob }
}

/// Two epochs of ten ticks: blob 0 throughout, blob 1 in several windows, blob 2 in the second only, blob 3 never.
fn two_epochs() -> AccessPlan {
    let mut access_plan = AccessPlan::new(4);
    let first = [(0, 0, 4), (0, 3, 9), (1, 0, 1), (1, 2, 2), (1, 6, 8)];
    access_plan.append(first.into_iter(), 10);
    access_plan.append([(0, 2, 3), (2, 0, 0)].into_iter(), 10);
    access_plan
}

fn resident(blob: usize, bytes: u64) -> Resident {
    Resident {
        blob,
        bytes,
        pinned: false,
    }
}

#[test]
fn next_access_window_is_found_across_epochs() {
    let access_plan = two_epochs();
    assert_eq!(access_plan.end(), 20);
    for (blob, tick, expected) in [
        (0, 0, Some(access_window(0, 9, 0))),
        (0, 9, Some(access_window(0, 9, 0))),
        (0, 10, Some(access_window(12, 13, 0))),
        (0, 14, None),
        (1, 1, Some(access_window(0, 2, 1))),
        (1, 3, Some(access_window(6, 8, 1))),
        (1, 9, None),
        (2, 0, Some(access_window(10, 10, 2))),
        (2, 11, None),
        (3, 0, None),
        (4, 0, None),
        (usize::MAX, 0, None),
    ] {
        assert_eq!(access_plan.next(blob, tick), expected, "{blob} at {tick}");
    }
    assert_eq!(access_plan.next_use(1, 1), Some(1));
    assert_eq!(access_plan.next_use(1, 4), Some(6));
    assert_eq!(access_plan.next_use(0, 19), None);
}

#[test]
fn access_windows_are_listed_in_fetch_order() {
    let all = [
        access_window(0, 2, 1),
        access_window(0, 9, 0),
        access_window(6, 8, 1),
        access_window(10, 10, 2),
        access_window(12, 13, 0),
    ];
    let access_plan = two_epochs();
    assert_eq!(access_plan.in_order(0).collect::<Vec<_>>(), all);
    assert_eq!(
        access_plan.in_order(9).collect::<Vec<_>>(),
        [all[1], all[3], all[4]]
    );
    assert_eq!(access_plan.in_order(10).collect::<Vec<_>>(), all[3..]);
    assert_eq!(access_plan.in_order(14).count(), 0);
}

#[test]
fn forgotten_steps_free_their_memory() {
    let mut access_plan = AccessPlan::new(1000);
    for _ in 0..3 {
        let uses = (0..1000).map(|blob| (blob, blob as u64, blob as u64));
        access_plan.append(uses, 1000);
    }
    let held = |access_plan: &AccessPlan| -> usize {
        let spans = access_plan.epochs.iter();
        spans
            .map(|span| span.order.capacity() + span.ends.capacity() + span.positions.capacity())
            .sum()
    };
    let full = held(&access_plan);
    assert_eq!(full, 9000);
    let mut left = access_plan.clone();
    left.forget(1000);
    assert_eq!((left.len(), held(&left)), (2000, 6000));
    // Forgets half of the current epoch.
    access_plan.forget(800);
    assert_eq!((access_plan.len(), held(&access_plan)), (2200, 6600));
    // Future accesses do not change.
    for blob in [0, 799, 800, 999] {
        for tick in [800, 900, 1500, 2700] {
            let fresh = (0..3)
                .map(|epoch| epoch * 1000 + blob as u64)
                .find(|first| *first >= tick)
                .map(|first| access_window(first, first, blob));
            assert_eq!(access_plan.next(blob, tick), fresh, "{blob} at {tick}");
        }
    }
    assert_eq!(
        access_plan.in_order(990).take(11).last(),
        Some(access_window(1000, 1000, 0))
    );
    access_plan.forget(3000);
    assert!(access_plan.is_empty());
    assert_eq!((access_plan.epochs.len(), access_plan.end()), (0, 3000));
    // An epoch that is pushed later starts where the last one ended.
    access_plan.append([(7, 0, 1)].into_iter(), 5);
    assert_eq!(access_plan.next(7, 0), Some(access_window(3000, 3001, 7)));
}

/// The access windows equal the access schedule of the order.
#[test]
fn access_plan_equals_the_access_schedule_of_the_order() {
    for algo in [
        ShuffleAlgo::Py1e,
        ShuffleAlgo::Py1s,
        ShuffleAlgo::Naive,
        ShuffleAlgo::Shardmill,
    ] {
        let world = World {
            nodes: 2,
            ranks_per_node: 2,
            workers_per_rank: 1,
        };
        let mut config = EpochConfig::new(vec![StreamConfig::new(&[50; 40])], 5, world);
        config.shuffle.enabled = true;
        config.shuffle.algo = algo;
        config.shuffle.block_size = Some(200);
        config.num_canonical_nodes = Some(4);
        let mut access_plan = AccessPlan::new(40);
        let mut base = 0;
        let mut known = Vec::new();
        for epoch in 0..2 {
            config.epoch = epoch;
            let order = Epoch::new(&config).unwrap();
            let uses = order.access_schedule_of_node(1, 2);
            access_plan.push(&uses, order.batches());
            known.push((base, uses));
            base += order.batches();
        }
        for blob in 0..40 {
            for tick in 0..base {
                let expected = known
                    .iter()
                    .filter(|(base, _)| base + access_plan.end() / 2 > tick)
                    .find_map(|(base, uses)| {
                        let tick = tick.saturating_sub(*base);
                        let ahead = uses.of(blob).iter().filter(|one| one.last >= tick);
                        Some(base + ahead.map(|one| one.first.max(tick)).min()?)
                    });
                let found = access_plan.next_use(blob, tick);
                assert_eq!(found, expected, "{algo} blob {blob} at {tick}");
                if let Some(next) = access_plan.next(blob, tick) {
                    assert!(next.last >= tick && next.blob == blob);
                    assert!(access_plan.in_order(tick).any(|one| one == next));
                }
            }
        }
        let firsts: Vec<_> = access_plan.in_order(0).map(|one| one.first).collect();
        assert!(firsts.is_sorted());
    }
}

#[test]
fn make_room_handles_free_and_impossible_requests() {
    let residents = [resident(0, 10)];
    let never = |_| unreachable!("there is enough space");
    assert_eq!(make_room(&residents, 10, 20, 10, 0, never), Some(vec![]));
    assert_eq!(make_room(&residents, 10, 20, 21, 0, never), None);
    assert_eq!(make_room(&[], 0, 0, 0, 0, never), Some(vec![]));
    let later = |_| Some(9);
    // Bytes in flight take space too, and cannot be evicted.
    assert_eq!(make_room(&residents, 19, 20, 10, 0, later), Some(vec![0]));
    assert_eq!(make_room(&residents, 25, 20, 10, 0, later), None);
    assert_eq!(
        make_room(&residents, u64::MAX, u64::MAX, u64::MAX, 0, later),
        None
    );
}

#[test]
fn furthest_next_use_is_evicted_first() {
    let residents = [0, 1, 2, 3].map(|blob| resident(blob, 10));
    let next = |blob: usize| [Some(5), None, Some(7), Some(3)][blob];
    for (bytes, leaving) in [
        (1, vec![1]),
        (10, vec![1]),
        (11, vec![1, 2]),
        (30, vec![1, 2, 0]),
    ] {
        assert_eq!(
            make_room(&residents, 40, 40, bytes, 0, next),
            Some(leaving),
            "{bytes}"
        );
    }
}

#[test]
fn blob_is_not_evicted_for_one_needed_no_sooner() {
    let residents = [0, 1].map(|blob| resident(blob, 10));
    let next = |blob: usize| [Some(5), Some(7)][blob];
    assert_eq!(make_room(&residents, 20, 20, 10, 6, next), Some(vec![1]));
    assert_eq!(make_room(&residents, 20, 20, 20, 6, next), None);
    assert_eq!(make_room(&residents, 20, 20, 10, 7, next), None);
    // Without a known next use, eviction gains nothing.
    assert_eq!(make_room(&residents, 20, 20, 10, u64::MAX, |_| None), None);
    let pinned = [Resident {
        pinned: true,
        ..resident(0, 10)
    }];
    assert_eq!(make_room(&pinned, 10, 10, 10, 0, |_| None), None);
}

#[test]
fn evicting_a_large_blob_spares_small_ones() {
    let residents = [resident(0, 1), resident(1, 2), resident(2, 10)];
    let next = |blob: usize| [None, Some(9), Some(8)][blob];
    assert_eq!(make_room(&residents, 13, 13, 10, 0, next), Some(vec![2]));
    assert_eq!(make_room(&residents, 13, 13, 11, 0, next), Some(vec![0, 2]));
    assert_eq!(
        make_room(&residents, 13, 13, 13, 0, next),
        Some(vec![0, 1, 2])
    );
}

/// Counts the fetches of a cache that reads `accesses` in turn, with blobs of one byte. At each miss the blob is
/// fetched and read, and kept if the policy decides so.
fn fetches(accesses: &[usize], limit: u64) -> u64 {
    let next_use = |blob: usize, from: usize| -> Option<u64> {
        let rest = accesses.get(from..)?;
        let found = rest.iter().position(|other| *other == blob)?;
        Some((from + found) as u64)
    };
    let mut held: Vec<Resident> = Vec::new();
    let mut fetched = 0;
    for (now, blob) in accesses.iter().enumerate() {
        if held.iter().any(|resident| resident.blob == *blob) {
            continue;
        }
        fetched += 1;
        let wanted_at = next_use(*blob, now + 1).unwrap_or(u64::MAX);
        let used = held.len() as u64;
        let leaving = make_room(&held, used, limit, 1, wanted_at, |other| {
            next_use(other, now + 1)
        });
        if let Some(leaving) = leaving {
            held.retain(|resident| !leaving.contains(&resident.blob));
            held.push(resident(*blob, 1));
        }
        assert!(held.len() as u64 <= limit);
    }
    fetched
}

/// Returns the fewest fetches of all policies, by trying all of them: at each miss, keep the blob or not, and evict
/// any set of residents that makes space. `held` is a set of bits.
fn fewest(
    accesses: &[usize],
    held: u32,
    limit: u32,
    known: &mut std::collections::BTreeMap<(usize, u32), u64>,
) -> u64 {
    let Some((blob, rest)) = accesses.split_first() else {
        return 0;
    };
    let bit = 1_u32 << blob;
    if held & bit != 0 {
        return fewest(rest, held, limit, known);
    }
    if let Some(found) = known.get(&(accesses.len(), held)) {
        return *found;
    }
    // Either the blob is not kept, or it is kept with any subset of the residents.
    let mut best = fewest(rest, held, limit, known);
    let mut kept = held;
    loop {
        if kept.count_ones() < limit {
            best = best.min(fewest(rest, kept | bit, limit, known));
        }
        if kept == 0 {
            break;
        }
        kept = (kept - 1) & held;
    }
    known.insert((accesses.len(), held), best + 1);
    best + 1
}

#[test]
fn cyclic_scan_needs_fewer_fetches_than_lru() {
    // Least recently used eviction would fetch all twelve times.
    let round = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];
    assert_eq!(fewest(&round, 0, 3, &mut Default::default()), 6);
    assert_eq!(fetches(&round, 3), 6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// With blobs of one size, no policy fetches less often.
    #[test]
    fn fetches_are_minimal_for_equal_sizes(
        accesses in prop::collection::vec(0_usize..6, 0..14),
        limit in 0_u32..5,
    ) {
        let min = fewest(&accesses, 0, limit, &mut Default::default());
        prop_assert_eq!(fetches(&accesses, u64::from(limit)), min);
    }

    /// For all sizes: enough blobs are evicted, no pinned ones, and none unnecessarily.
    #[test]
    fn eviction_frees_enough_and_no_more(
        blobs in prop::collection::vec((0_u64..20, any::<bool>(), prop::option::of(0_u64..12)), 0..12),
        in_flight in 0_u64..10,
        limit in 0_u64..120,
        bytes in 0_u64..40,
        wanted_at in prop_oneof![0_u64..12, Just(u64::MAX)],
        turn in 0_usize..12,
    ) {
        let residents: Vec<Resident> = blobs
            .iter()
            .enumerate()
            .map(|(blob, (bytes, pinned, _))| Resident { blob, bytes: *bytes, pinned: *pinned })
            .collect();
        let used = in_flight + residents.iter().map(|resident| resident.bytes).sum::<u64>();
        let next = |blob: usize| blobs[blob].2;
        let far = |blob: usize| next(blob).unwrap_or(u64::MAX);
        let may_leave = |resident: &&Resident| !resident.pinned && far(resident.blob) > wanted_at;
        let max: u64 = residents.iter().filter(may_leave).map(|resident| resident.bytes).sum();
        let found = make_room(&residents, used, limit, bytes, wanted_at, next);
        let mut turned = residents.clone();
        turned.rotate_left(turn.min(residents.len()));
        prop_assert_eq!(&make_room(&turned, used, limit, bytes, wanted_at, next), &found);
        let Some(leaving) = found else {
            prop_assert!(bytes > limit || used - max + bytes > limit);
            return Ok(());
        };
        let freed: u64 = leaving.iter().map(|blob| residents[*blob].bytes).sum();
        prop_assert!(used - freed + bytes <= limit);
        for blob in &leaving {
            prop_assert!(may_leave(&&residents[*blob]));
            prop_assert!(used - freed + residents[*blob].bytes + bytes > limit, "{} in vain", blob);
        }
        prop_assert!(leaving.is_sorted_by(|one, other| far(*one) >= far(*other)));
    }

    /// An access plan equals a plain list of uses, before and after `forget`.
    #[test]
    fn access_plan_equals_a_sorted_list(
        epochs in prop::collection::vec(
            (prop::collection::vec((0_usize..5, 0_u64..20, 0_u64..6), 0..20), 1_u64..25),
            1..4,
        ),
        forget in prop::collection::vec(0_u64..80, 0..3),
        from in 0_u64..80,
    ) {
        let mut access_plan = AccessPlan::new(5);
        let mut needed = vec![std::collections::BTreeSet::new(); 5];
        let mut base = 0;
        for (uses, batches) in &epochs {
            let mut uses: Vec<_> = uses
                .iter()
                .filter(|(_, first, _)| first < batches)
                .map(|(blob, first, more)| (*blob, *first, (first + more).min(batches - 1)))
                .collect();
            uses.sort_unstable();
            access_plan.append(uses.iter().copied(), *batches);
            for (blob, first, last) in uses {
                needed[blob].extend(base + first..=base + last);
            }
            base += batches;
        }
        let mut start = 0;
        let mut forget = forget;
        forget.sort_unstable();
        for before in forget {
            access_plan.forget(before);
            start = before;
        }
        let from = from.max(start);
        let mut seen = vec![std::collections::BTreeSet::new(); 5];
        for one in access_plan.in_order(from) {
            prop_assert!(one.last >= from);
            for tick in one.first..=one.last {
                prop_assert!(seen[one.blob].insert(tick), "{:?} overlaps another", one);
            }
        }
        for (blob, needed) in needed.iter().enumerate() {
            let next = needed.range(from..).next().copied();
            prop_assert_eq!(access_plan.next_use(blob, from), next);
            prop_assert_eq!(
                seen[blob].range(from..).collect::<Vec<_>>(),
                needed.range(from..).collect::<Vec<_>>()
            );
        }
        prop_assert_eq!(access_plan.end(), base);
    }
}
