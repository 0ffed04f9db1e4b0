//! Tests of the exchange between the caller and the threads, and of the prediction of the next epoch.

use std::path::Path;

use shardmill_order::{Skip, World};
use shardmill_storage::Location;
use shardmill_testing::mds::{Spec, sample};
use tempfile::TempDir;

use super::*;
use crate::{Reader, ReaderOptions};
use shardmill_dataset::StreamOptions;

/// Shards of eight samples of eight bytes.
fn write(dir: &Path, shards: u64) {
    let spec = Spec::mds(&[("id", "int", Some(8))]);
    let shard = |shard: u64| {
        let ids = shard * 8..(shard + 1) * 8;
        let samples: Vec<_> = ids.map(|id| sample(&[(true, &id.to_le_bytes())])).collect();
        spec.shard(&samples)
    };
    let shards: Vec<_> = (0..shards).map(shard).collect();
    spec.write(dir, &shards).unwrap();
}

fn open(stream: StreamOptions) -> Reader {
    Reader::open(&[stream], &ReaderOptions::default()).unwrap()
}

fn in_place(temp: &TempDir, shards: u64) -> Reader {
    write(temp.path(), shards);
    open(StreamOptions::local(temp.path()))
}

fn cached(temp: &TempDir, shards: u64) -> Reader {
    let remote = temp.path().join("remote");
    write(&remote, shards);
    let remote = Location::Local(remote);
    open(StreamOptions::remote(remote, temp.path().join("local")))
}

/// Waits until the thread has filled all that it may, and is idle.
fn wait_for_rest(batches: &Batches) {
    let start = Instant::now();
    loop {
        {
            let queue = batches.shared.lock();
            if queue.idle == 1 && matches!(queue.ready.front(), Some(Some(_))) {
                return;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no thread fills");
        std::thread::yield_now();
    }
}

#[test]
fn queue_of_one_batch_is_refilled_after_every_take() {
    let temp = tempfile::tempdir().unwrap();
    let reader = in_place(&temp, 4);
    let config = reader.epoch_config(2, World::SINGLE);
    let options = BatchOptions {
        queue: 1,
        ..BatchOptions::default()
    };
    let mut batches = reader.epoch(&config, options).unwrap();
    batches.next_batch().unwrap().unwrap();
    for step in 1..8 {
        wait_for_rest(&batches);
        let batch = match step % 2 {
            0 => batches.next_batch().unwrap().unwrap(),
            // This is the path for a batch that becomes ready while the caller waits for it.
            _ => batches.take_or_fill(None).unwrap(),
        };
        assert_eq!(batch.step, step);
    }
}

#[test]
fn caller_with_fill_threads_pins_no_shards() {
    let temp = tempfile::tempdir().unwrap();
    let reader = in_place(&temp, 4);
    let config = reader.epoch_config(8, World::SINGLE);
    let read = |threads| {
        let options = BatchOptions {
            threads,
            ..BatchOptions::default()
        };
        let mut batches = reader.epoch(&config, options).unwrap();
        batches.next_batch().unwrap().unwrap();
        batches
    };
    assert_eq!(read(1).collator.holds(), 0);
    let mut alone = read(0);
    alone.collator.release_old();
    assert_eq!(alone.collator.holds(), 1);
    // The cache releases the shard.
    alone.shared.context.shard_cache.forget_verification(0);
    alone.collator.release_old();
    assert_eq!(alone.collator.holds(), 0);
}

#[test]
fn resume_at_epoch_start_reuses_the_access_plan() {
    let temp = tempfile::tempdir().unwrap();
    let reader = cached(&temp, 4);
    let mut config = reader.epoch_config(4, World::SINGLE);
    config.shuffle.enabled = true;
    for epoch in 0..3 {
        config.epoch = epoch;
        config.num_canonical_nodes = Some(1);
        config.shuffle.block_size = Some(4_000_000);
        config.resume = Some(State {
            epoch,
            sample_in_epoch: 0,
            num_canonical_nodes: Some(1),
            shuffle_seed: config.shuffle.seed,
            initial_physical_nodes: None,
        });
        let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
        // The tick advances, and the order is the prefetched one: only that one records the initial number of nodes.
        assert_eq!(batches.shared.tick, epoch * 8);
        let nodes = batches.epoch().resolved().initial_nodes;
        assert_eq!(nodes, (epoch > 0).then_some(1));
        while batches.next_batch().unwrap().is_some() {}
    }
    // Any other epoch starts with a new plan.
    config.epoch = 7;
    config.resume = None;
    let batches = reader.epoch(&config, BatchOptions::default()).unwrap();
    assert_eq!(batches.shared.tick, 0);
}

#[test]
fn run_resumed_on_other_nodes_keeps_its_initial_nodes() {
    let temp = tempfile::tempdir().unwrap();
    let reader = in_place(&temp, 12);
    let world = World {
        nodes: 3,
        ..World::SINGLE
    };
    let mut config = reader.epoch_config(4, world);
    config.shuffle.enabled = true;
    config.resume = Some(State {
        epoch: 0,
        sample_in_epoch: 12,
        num_canonical_nodes: Some(2),
        shuffle_seed: config.shuffle.seed,
        initial_physical_nodes: Some(2),
    });
    for epoch in 0..3 {
        let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
        let resolved = *batches.epoch().resolved();
        assert_eq!((resolved.epoch, resolved.initial_nodes), (epoch, Some(2)));
        while batches.next_batch().unwrap().is_some() {}
        config = batches.next_config();
    }
}

#[test]
fn worker_outside_the_world_is_an_error() {
    let temp = tempfile::tempdir().unwrap();
    let reader = in_place(&temp, 1);
    let world = World {
        workers_per_rank: 2,
        ..World::SINGLE
    };
    let config = reader.epoch_config(2, world);
    let begin = |worker| {
        let options = BatchOptions {
            worker,
            ..BatchOptions::default()
        };
        reader.epoch(&config, options)
    };
    assert_eq!(begin(1).unwrap().len(), 2);
    let error = begin(2).unwrap_err();
    assert_eq!(error.id(), "config-world");
    assert!(error.chain().contains("worker 2 of 2"), "{}", error.chain());
}

#[test]
fn skipped_steps_and_samples_do_not_move_the_others() {
    let temp = tempfile::tempdir().unwrap();
    for reader in [in_place(&temp, 6), cached(&temp, 6)] {
        let world = World {
            workers_per_rank: 2,
            ..World::SINGLE
        };
        let mut config = reader.epoch_config(4, world);
        config.shuffle.enabled = true;
        let given = |skip: &Skip| {
            let mut workers: Vec<_> = (0..2)
                .map(|worker| {
                    let options = BatchOptions {
                        worker,
                        threads: 2,
                        ..BatchOptions::default()
                    };
                    reader.epoch_without(&config, options, skip).unwrap()
                })
                .collect();
            let steps = workers.iter().map(Batches::len).sum();
            let read = |number: u64| {
                let worker = &mut workers[usize::try_from(number % 2).unwrap()];
                let batch = worker.next_batch().unwrap().unwrap();
                let ids: Vec<u64> = batch.entries.iter().map(|entry| entry.sample.0).collect();
                (batch.step, ids)
            };
            let batches: Vec<_> = (0..steps).map(read).collect();
            let states = workers.iter().map(Batches::state).collect::<Vec<_>>();
            (batches, states)
        };
        let (all, _) = given(&Skip::default());
        assert_eq!(all.len(), 12);
        let (kept, states) = given(&Skip::new([4..12, 32..36], vec![all[5].1[1]]));
        let mut expected: Vec<_> = all
            .iter()
            .filter(|(step, _)| ![1, 2, 8].contains(step))
            .cloned()
            .collect();
        let replaced = expected.iter_mut().find(|(step, _)| *step == 5).unwrap();
        replaced.1[1] = replaced.1[0];
        assert_eq!(kept, expected);
        // The first worker has returned one batch more, and a state assumes that all have returned as many.
        let positions: Vec<_> = states
            .iter()
            .map(|state| (state.epoch, state.sample_in_epoch))
            .collect();
        assert_eq!(positions, [(1, 0), (0, 44)]);
        let part = std::iter::once(2..6);
        let error =
            reader.epoch_without(&config, BatchOptions::default(), &Skip::new(part, vec![]));
        assert_eq!(error.unwrap_err().id(), "config-skip");
    }
}
