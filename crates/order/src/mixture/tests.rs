use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::num::count;
use crate::{Epoch, EpochConfig, SampleId, ShuffleAlgo, State, StreamConfig, World};

fn point(from_sample: u64, weights: &[f64], ramp: bool) -> WeightPoint {
    WeightPoint {
        from_sample,
        weights: weights.to_vec(),
        ramp,
    }
}

fn curriculum() -> Mixture {
    Mixture {
        schedule: vec![
            point(0, &[0.9, 0.1], false),
            point(1000, &[0.5, 0.5], false),
            point(3000, &[0.2, 0.8], true),
        ],
        ..Mixture::constant(Vec::new())
    }
}

fn taken(windows: &[MixtureWindow]) -> Vec<(u64, u64, Vec<u64>)> {
    let all = windows.iter();
    all.map(|window| (window.from_sample, window.to_sample, window.taken.clone()))
        .collect()
}

#[test]
fn steps_and_ramps_have_exact_shares() {
    let windows = curriculum().windows(&[10_000, 10_000], 4000, 0).unwrap();
    assert_eq!(
        taken(&windows),
        [
            (0, 1000, vec![900, 100]),
            (1000, 3000, vec![700, 1300]),
            (3000, 4000, vec![200, 800]),
        ]
    );
    // An epoch ends a window, also within a ramp.
    let windows = curriculum().windows(&[10_000, 10_000], 2000, 0).unwrap();
    assert_eq!(windows[1].taken, [425, 575]);
    let windows = curriculum().windows(&[10_000, 10_000], 2000, 1).unwrap();
    assert_eq!(windows[0].taken, [275, 725]);
}

#[test]
fn change_replaces_the_rest_of_the_schedule() {
    let mut mixture = curriculum();
    mixture.changes = vec![vec![point(2000, &[0.0, 1.0], false)]];
    let windows = mixture.windows(&[10_000, 10_000], 4000, 0).unwrap();
    assert_eq!(
        taken(&windows),
        [
            (0, 1000, vec![900, 100]),
            (1000, 2000, vec![425, 575]),
            (2000, 4000, vec![0, 2000]),
        ]
    );
    let differs = |sample| curriculum().differs_before(&mixture, 2, sample).unwrap();
    assert_eq!((differs(2000), differs(2001)), (None, Some(2000)));
    // A later change may start earlier.
    mixture.changes.push(vec![point(500, &[1.0, 0.0], false)]);
    assert_eq!(
        taken(&mixture.windows(&[10_000, 10_000], 4000, 0).unwrap()),
        [(0, 500, vec![450, 50]), (500, 4000, vec![3500, 0])]
    );
}

#[test]
fn exhausted_stream_is_dropped_or_stops_the_run() {
    let mut mixture = Mixture::constant(vec![1.0, 1.0, 2.0]);
    mixture.epochs = vec![Some(2), None, None];
    let dropped = taken(&mixture.windows(&[10, 10, 10], 120, 0).unwrap());
    assert_eq!(dropped.len(), 2);
    assert_eq!(dropped[0].2[0], 20);
    assert_eq!(dropped[1].2[0], 0);
    assert_eq!(dropped[1].1, 120);
    // The others keep their relation.
    assert!(dropped[1].2[2].abs_diff(2 * dropped[1].2[1]) <= 2);
    mixture.when_exhausted = WhenExhausted::Stop;
    let stopped = taken(&mixture.windows(&[10, 10, 10], 120, 0).unwrap());
    assert_eq!(stopped.len(), 1);
    assert_eq!(stopped[0].2[0], 20);
    assert!(stopped[0].1 < 90, "{stopped:?}");
    // Later epochs have no samples.
    assert_eq!(mixture.windows(&[10, 10, 10], 120, 1).unwrap(), []);
    mixture.epochs = vec![Some(2), Some(1), Some(1)];
    mixture.when_exhausted = WhenExhausted::Drop;
    let windows = mixture.windows(&[10, 10, 10], 120, 0).unwrap();
    assert_eq!(windows.last().unwrap().to_sample, 40);
}

#[test]
fn invalid_mixtures_are_errors() {
    let errors = |mixture: Mixture| mixture.windows(&[5, 5], 10, 0).unwrap_err().to_string();
    let scheduled = |schedule: Vec<WeightPoint>| {
        errors(Mixture {
            schedule,
            ..Mixture::constant(Vec::new())
        })
    };
    assert_eq!(scheduled(vec![]), "the schedule has no points");
    assert_eq!(
        scheduled(vec![point(1, &[1.0, 1.0], false)]),
        "the first point must start at sample 0"
    );
    assert_eq!(
        scheduled(vec![point(0, &[1.0, 1.0], true)]),
        "the first point cannot be a ramp"
    );
    assert_eq!(
        scheduled(vec![point(0, &[1.0], false)]),
        "the point at sample 0 has 1 weights for 2 streams"
    );
    for weights in [
        [0.0, 0.0],
        [-1.0, 2.0],
        [f64::NAN, 1.0],
        [f64::INFINITY, 1.0],
    ] {
        let error = scheduled(vec![point(0, &weights, false)]);
        assert!(
            error.ends_with("they must be numbers from 0 on, and not all 0"),
            "{error}"
        );
    }
    assert_eq!(
        scheduled(vec![
            point(0, &[1.0, 1.0], false),
            point(7, &[1.0, 1.0], false),
            point(7, &[1.0, 1.0], false)
        ]),
        "the point at sample 7 follows one at sample 7: points must be in order"
    );
    let mut mixture = curriculum();
    mixture.epochs = vec![None];
    assert_eq!(
        errors(mixture),
        "there are 1 numbers of epochs for 2 streams"
    );
    let mut mixture = curriculum();
    mixture.changes = vec![vec![point(7, &[1.0, 1.0], false)]; 1000];
    assert_eq!(
        errors(mixture),
        "1003 points with those of changes are more than 1000"
    );
    // Ten samples of one stream would be read a hundred million times.
    let mut config = config(
        &[1, 1 << 30],
        8,
        World::SINGLE,
        Mixture::constant(vec![1.0, 1.0]),
    );
    assert!(Epoch::new(&config).is_err());
    config.streams[0].weight = crate::Weight::Proportion(1.0);
    let error = Epoch::new(&config).unwrap_err().to_string();
    assert_eq!(
        error,
        "streams with weights over time have no proportion, repeat or choose"
    );
    config.batching_method = crate::BatchingMethod::Stratified;
    let error = Epoch::new(&config).unwrap_err().to_string();
    assert_eq!(
        error,
        "the weights over time go with batching `random` only"
    );
}

fn config(sizes: &[u64], batch_size: u64, world: World, mixture: Mixture) -> EpochConfig {
    // Shards of at most 7 samples.
    let streams = sizes.iter().map(|size| {
        let largest = size.div_ceil(20).max(7);
        let shards = (0..size.div_ceil(largest)).map(|shard| largest.min(size - shard * largest));
        StreamConfig::new(&shards.collect::<Vec<_>>())
    });
    let mut config = EpochConfig::new(streams.collect(), batch_size, world);
    config.sampling.mixture = Some(Arc::new(mixture));
    config.shuffle.enabled = true;
    config.shuffle.block_size = Some(60);
    config
}

/// Returns the samples of the steps, rank by rank.
fn read(epoch: &Epoch, steps: u64) -> Vec<u64> {
    let mut ids = Vec::new();
    let mut entries = Vec::new();
    let mut cursor = epoch.all_ranks();
    for step in 0..steps {
        assert!(cursor.read(step, &mut entries));
        let own = entries.iter().filter(|entry| !entry.repeated);
        ids.extend(own.map(|entry| entry.sample.0));
    }
    ids
}

fn worlds() -> impl Strategy<Value = (World, u64)> {
    (1_u64..4, 1_u64..4, 1_u64..5).prop_map(|(nodes, ranks_per_node, batch_size)| {
        let world = World {
            nodes,
            ranks_per_node,
            workers_per_rank: 1,
        };
        (world, batch_size)
    })
}

fn mixtures(streams: usize, max: u64) -> impl Strategy<Value = Mixture> {
    let weights = move || {
        let each = prop_oneof![Just(0.0), 0.0..1.0_f64, (1_u32..10).prop_map(f64::from)];
        prop::collection::vec(each, streams).prop_filter("a sum of 0", |weights| {
            weights.iter().any(|one| *one > 1e-6)
        })
    };
    let point = move || {
        (1..max, weights(), any::<bool>())
            .prop_map(|(from, weights, ramp)| point(from, &weights, ramp))
    };
    let limit = prop_oneof![3 => Just(None), 1 => (1_u64..4).prop_map(Some)];
    (
        weights(),
        prop::collection::vec(point(), 0..5),
        prop::collection::vec(point(), 0..3),
        prop::collection::vec(limit, streams),
    )
        .prop_map(|(first, mut schedule, changes, epochs)| {
            schedule.push(super::tests::point(0, &first, false));
            schedule.sort_by_key(|point| point.from_sample);
            schedule.dedup_by_key(|point| point.from_sample);
            Mixture {
                schedule,
                changes: changes
                    .into_iter()
                    .map(|mut change| {
                        change.ramp = false;
                        vec![change]
                    })
                    .collect(),
                epochs,
                when_exhausted: WhenExhausted::Drop,
            }
        })
}

fn runs() -> impl Strategy<Value = (Vec<u64>, Mixture)> {
    (1_usize..6).prop_flat_map(|streams| {
        let sizes = prop::collection::vec(1_u64..90, streams);
        (sizes, mixtures(streams, 400))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn shares_are_within_one_sample_in_every_window(
        (sizes, mixture) in runs(), epoch_size in 1_u64..300,
    ) {
        let mut next = 0;
        for epoch in 0..3 {
            let windows = mixture.windows(&sizes, epoch_size, epoch).unwrap();
            for window in windows {
                prop_assert_eq!(window.from_sample, next);
                next = window.to_sample;
                prop_assert_eq!(window.taken.iter().sum::<u64>(), window.to_sample - window.from_sample);
                // A window that a change or a used up stream cuts short may be a little further off.
                let is_cut = mixture.epochs.iter().any(Option::is_some) || !mixture.changes.is_empty();
                for (taken, planned) in window.taken.iter().zip(&window.planned) {
                    let max = if is_cut { 2.0 } else { 1.0 };
                    prop_assert!((real(*taken) - planned).abs() <= max, "{taken} {planned}");
                }
            }
        }
    }

    #[test]
    fn each_pass_reads_every_sample_once_and_resumes_in_any_world(
        (sizes, mixture) in runs(), (first, size) in worlds(), (second, next_size) in worlds(),
        done in 0_u64..40, algo in 0_usize..6, epoch_size in 20_u64..300,
    ) {
        let mut config = config(&sizes, size, first, mixture);
        config.shuffle.algo = ShuffleAlgo::ALL[algo];
        // The block of each stream must not be empty.
        config.shuffle.block_size = Some(600);
        config.epoch_size = Some(epoch_size);
        let mut whole = Vec::new();
        for number in 0..3 {
            config.epoch = number;
            let epoch = Epoch::new(&config).unwrap();
            let ids = read(&epoch, epoch.batches());
            prop_assert_eq!(count(ids.len()), epoch.samples());
            // Another world resumes with the same sequence.
            let done = done.min(epoch.batches().saturating_sub(1));
            let state = epoch.state_after(done);
            let mut other = config.clone();
            (other.world, other.batch_size, other.resume) = (second, next_size, Some(state));
            let rest = Epoch::new(&other).unwrap();
            let given = usize::try_from(state.sample_in_epoch).unwrap();
            prop_assert_eq!(&read(&rest, rest.batches())[..], &ids[given..]);
            // Lineage inverts the order.
            for step in [0, done] {
                for (rank, entries) in (0..).zip(if step < rest.batches() { rest.step(step).unwrap() } else { vec![] }) {
                    for (position, entry) in (0..).zip(entries) {
                        let found = rest.deliveries(entry.sample).unwrap();
                        let here = crate::Delivery { step, rank, position, repeated: entry.repeated };
                        prop_assert!(found.contains(&here), "{found:?} {here:?}");
                    }
                }
            }
            // The access schedule contains every use.
            let uses = epoch.access_schedule_of_node(0, first.ranks_per_node);
            for step in 0..epoch.batches() {
                for entry in epoch.step_of_rank(step, 0).unwrap().iter().filter(|entry| !entry.repeated) {
                    let (shard, _) = epoch.shards().locate(entry.sample.0).unwrap();
                    let listed = uses.of(shard).iter().any(|found| found.first <= step && step <= found.last);
                    prop_assert!(listed, "shard {shard} in step {step}");
                }
            }
            whole.extend(ids);
        }
        // Each pass over a stream is a permutation of it.
        let mut start = 0;
        for size in sizes {
            let own: Vec<u64> = whole.iter().copied().filter(|id| (start..start + size).contains(id)).collect();
            for pass in own.chunks(usize::try_from(size).unwrap()) {
                let mut sorted = pass.to_vec();
                sorted.sort_unstable();
                sorted.dedup();
                prop_assert_eq!(sorted.len(), pass.len());
            }
            start += size;
        }
    }

    #[test]
    fn change_does_not_affect_earlier_samples(
        (sizes, mixture) in runs(), at in 0_u64..300, epoch_size in 20_u64..300,
    ) {
        let mut changed = mixture.clone();
        changed.changes.push(vec![point(at, &vec![1.0; sizes.len()], false)]);
        let read = |mixture: &Mixture| {
            let mut config = config(&sizes, 3, World::SINGLE, mixture.clone());
            config.shuffle.algo = ShuffleAlgo::Shardmill;
            config.epoch_size = Some(epoch_size);
            let epoch = Epoch::new(&config).unwrap();
            read(&epoch, epoch.batches())
        };
        let (before, after) = (read(&mixture), read(&changed));
        let same = before.len().min(after.len()).min(usize::try_from(at).unwrap());
        prop_assert_eq!(&before[..same], &after[..same]);
        prop_assert_eq!(mixture.differs_before(&changed, sizes.len(), at).unwrap(), None);
    }
}

#[test]
fn resume_is_fast_for_billions_of_samples() {
    let streams = vec![
        StreamConfig::new(&vec![1_000_000; 900]),
        StreamConfig::new(&vec![1_000_000; 100]),
    ];
    let mut config = EpochConfig::new(streams, 256, World::SINGLE);
    config.shuffle.enabled = true;
    config.shuffle.algo = ShuffleAlgo::Shardmill;
    config.sampling.mixture = Some(Arc::new(Mixture {
        schedule: vec![
            point(0, &[0.9, 0.1], false),
            point(1 << 29, &[0.1, 0.9], true),
        ],
        ..Mixture::constant(Vec::new())
    }));
    config.resume = Some(State {
        epoch: 0,
        sample_in_epoch: 999_999_744,
        num_canonical_nodes: Some(1),
        shuffle_seed: 9176,
        initial_physical_nodes: Some(1),
    });
    let epoch = Epoch::new(&config).unwrap();
    assert_eq!(epoch.batches(), 1);
    let last = epoch.step_of_rank(0, 0).unwrap();
    let of_first = last
        .iter()
        .filter(|entry| entry.sample < SampleId(900_000_000));
    assert!((25..=26).contains(&of_first.count()));
}

#[test]
fn resumed_run_may_change_the_rest_of_the_schedule() {
    let mut given = curriculum();
    given.schedule.push(point(5000, &[1.0, 0.0], false));
    let spliced = curriculum().resumed_with(&given, 2, 2000).unwrap();
    let spliced = spliced.unwrap();
    let windows = spliced.windows(&[10_000, 10_000], 6000, 0).unwrap();
    assert_eq!(
        taken(&windows),
        [
            (0, 1000, vec![900, 100]),
            (1000, 3000, vec![700, 1300]),
            (3000, 5000, vec![400, 1600]),
            (5000, 6000, vec![1000, 0]),
        ]
    );
    // The rest of a ramp that is in progress is a ramp.
    let other = curriculum().followed_by(&given, 2, 2000).unwrap();
    let windows = other.windows(&[10_000, 10_000], 6000, 0).unwrap();
    assert_eq!(
        taken(&windows)[1..3],
        [(1000, 2000, vec![425, 575]), (2000, 3000, vec![275, 725]),]
    );
    // The next resume adds nothing, whether the program gives the new or the old schedule.
    assert_eq!(
        spliced.resumed_with(&given, 2, 4000).unwrap(),
        Ok(spliced.clone())
    );
    assert_eq!(
        spliced.resumed_with(&curriculum(), 2, 4000).unwrap(),
        Ok(spliced.clone())
    );
    // A schedule that differs in the past is refused.
    assert_eq!(
        curriculum().resumed_with(&given, 2, 5001).unwrap(),
        Err(5000)
    );
    let constant = Mixture::constant(vec![0.9, 0.1]);
    assert_eq!(
        curriculum().resumed_with(&constant, 2, 1001).unwrap(),
        Err(1000)
    );
    assert!(
        curriculum()
            .resumed_with(&constant, 2, 1000)
            .unwrap()
            .is_ok()
    );
    assert_eq!(
        curriculum().resumed_with(&constant, 2, 0).unwrap(),
        Ok(constant)
    );
    let json = spliced.to_json();
    assert_eq!(Mixture::from_json(json.as_bytes()).unwrap(), spliced);
    let error = Mixture::from_json(br#"{"schedule": [], "ramp": true}"#).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("it is not a mixture: unknown field `ramp`"),
        "{error}"
    );
}
