use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::config::StreamConfig;
use crate::error;

fn options(form: RowForm, tokens: u32, pool: u64) -> PackingOptions {
    PackingOptions {
        form,
        tokens,
        pool,
        long: LongDocument::Split,
        last: LastRows::Repeat,
    }
}

fn config(samples: u64, ranks: u64, batch_size: u64) -> EpochConfig {
    let world = World {
        nodes: 1,
        ranks_per_node: ranks,
        workers_per_rank: 1,
    };
    let half = samples / 2;
    let streams = vec![StreamConfig::new(&[half, samples - half])];
    let mut config = EpochConfig::new(streams, batch_size, world);
    config.num_canonical_nodes = Some(1);
    config.shuffle.enabled = true;
    config
}

fn packed(config: &EpochConfig, lengths: &[u32], options: PackingOptions) -> PackedEpoch {
    let base = Epoch::new(&PackedEpoch::base_config(config).unwrap()).unwrap();
    PackedEpoch::new(base, config, lengths.into(), options).unwrap()
}

/// Returns the rows of all ranks: step by step, rank by rank.
fn rows(epoch: &PackedEpoch) -> Vec<Row> {
    let ranks = 0..epoch.ranks;
    let mut cursors: Vec<_> = ranks
        .map(|rank| epoch.rank(rank * epoch.replication).unwrap())
        .collect();
    (0..epoch.steps())
        .flat_map(|step| {
            let read = cursors.iter_mut().map(move |cursor| cursor.read(step));
            read.flat_map(Result::unwrap).collect::<Vec<_>>()
        })
        .collect()
}

/// Checks that the rows that are not repeated have every token once, and that no row is too long.
fn check_tokens(rows: &[Row], lengths: &[u32], options: PackingOptions) {
    let mut found: BTreeMap<u64, Vec<(u32, u32)>> = BTreeMap::new();
    for row in rows {
        let tokens = row.pieces.iter().map(|piece| u64::from(piece.tokens));
        let used = match options.form {
            RowForm::Padded => tokens.clone().max().unwrap() * tokens.count() as u64,
            RowForm::Context | RowForm::Summed => tokens.sum(),
        };
        assert!((1..=u64::from(options.tokens)).contains(&used));
        for piece in row.pieces.iter().filter(|_| !row.repeated) {
            let pieces = found.entry(piece.sample.0).or_default();
            pieces.push((piece.start, piece.tokens));
        }
    }
    for (sample, length) in lengths.iter().enumerate() {
        let mut pieces = found.remove(&(sample as u64)).unwrap_or_default();
        pieces.sort_unstable();
        let mut end = 0;
        for (start, tokens) in pieces {
            assert_eq!(start, end, "sample {sample}");
            end += tokens;
        }
        assert_eq!(end, *length, "sample {sample}");
    }
    assert!(found.is_empty());
}

fn forms() -> impl Strategy<Value = RowForm> {
    prop_oneof![
        Just(RowForm::Context),
        Just(RowForm::Padded),
        Just(RowForm::Summed)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_world_delivers_each_token_once_and_resumes(
        lengths in prop::collection::vec(0_u32..300, 2..400),
        form in forms(),
        tokens in 1_u32..200,
        pool in 1_u64..100,
        (ranks, batch_size) in (1_u64..6, 1_u64..5),
        (other_ranks, other_batch) in (1_u64..6, 1_u64..5),
        stop in 0_u64..40,
    ) {
        let options = options(form, tokens, pool);
        let config = config(lengths.len() as u64, ranks, batch_size);
        let epoch = packed(&config, &lengths, options);
        let all = rows(&epoch);
        check_tokens(&all, &lengths, options);
        // Every rank has a full batch in every step.
        prop_assert_eq!(all.len() as u64, epoch.steps() * ranks * batch_size);
        // The unbroken rows, without those that are repeated at the end.
        let unique: Vec<Row> = all.iter().filter(|row| !row.repeated).cloned().collect();
        prop_assert_eq!(unique.len() as u64, epoch.rows());
        // A run that stops after some steps continues with the next rows in another world.
        let delivered = (stop.min(epoch.steps()) * ranks * batch_size).min(epoch.rows());
        let mut other = config.clone();
        other.world.ranks_per_node = other_ranks;
        other.batch_size = other_batch;
        other.resume = Some(State {
            epoch: 0,
            sample_in_epoch: delivered,
            num_canonical_nodes: Some(1),
            shuffle_seed: config.shuffle.seed,
            initial_physical_nodes: Some(1),
        });
        let short = PackingOptions { last: LastRows::Short, ..options };
        let rest = rows(&packed(&other, &lengths, short));
        prop_assert_eq!(&rest[..], &unique[index(delivered)..]);
        // Without the incomplete last step, no row is repeated.
        let drop = PackingOptions { last: LastRows::Drop, ..options };
        let dropped = packed(&config, &lengths, drop);
        prop_assert_eq!(dropped.steps(), epoch.rows() / (ranks * batch_size));
        let dropped = rows(&dropped);
        prop_assert_eq!(&dropped[..], &unique[..dropped.len()]);
    }
}

#[test]
fn contexts_are_nearly_full() {
    // Lengths as of text: many short documents, and a few very long ones.
    let lengths: Vec<u32> = (0..20_000_u32)
        .map(|number| 20 + number.wrapping_mul(2_654_435_761) % 1500 * (1 + number % 97 / 96 * 40))
        .collect();
    let options = options(RowForm::Context, 8192, 4096);
    let epoch = packed(&config(20_000, 1, 1), &lengths, options);
    let tokens: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    let fill = tokens as f64 / (epoch.rows() * 8192) as f64;
    assert!(fill > 0.995, "{fill}");
}

#[test]
fn rows_do_not_depend_on_nodes_or_replication() {
    let lengths: Vec<u32> = (0..500).map(|number| 1 + number * 7 % 90).collect();
    let mut one = config(500, 8, 2);
    one.num_canonical_nodes = Some(4);
    let options = options(RowForm::Context, 128, 50);
    let expected = rows(&packed(&one, &lengths, options));
    let mut other = one.clone();
    other.world = World {
        nodes: 4,
        ranks_per_node: 4,
        workers_per_rank: 3,
    };
    other.replication = Some(2);
    let replicated = packed(&other, &lengths, options);
    assert_eq!(rows(&replicated), expected);
    let [mut first, mut second] = [2, 3].map(|rank| replicated.rank(rank).unwrap());
    assert_eq!(first.read(1).unwrap(), second.read(1).unwrap());
    assert!(replicated.rank(16).is_err());
    // Steps may be read in any order.
    let later = first.read(2).unwrap();
    first.read(0).unwrap();
    assert_eq!(first.read(2).unwrap(), later);
}

#[test]
fn long_document_is_split_truncated_or_rejected() {
    let lengths = [10, 25, 3];
    let mut one = config(3, 1, 1);
    one.shuffle.enabled = false;
    let with = |long| PackingOptions {
        long,
        ..options(RowForm::Context, 10, 8)
    };
    let pieces = |long| {
        let rows = rows(&packed(&one, &lengths, with(long)));
        let each = |row: Row| {
            let pieces = row.pieces.into_iter();
            pieces
                .map(|piece| (piece.sample.0, piece.start, piece.tokens))
                .collect::<Vec<_>>()
        };
        rows.into_iter().map(each).collect::<Vec<_>>()
    };
    let split = vec![
        vec![(0, 0, 10)],
        vec![(1, 0, 10)],
        vec![(1, 10, 10)],
        vec![(1, 20, 5), (2, 0, 3)],
    ];
    assert_eq!(pieces(LongDocument::Split), split);
    let truncated = vec![vec![(0, 0, 10)], vec![(1, 0, 10)], vec![(2, 0, 3)]];
    assert_eq!(pieces(LongDocument::Truncate), truncated);
    let base = || Epoch::new(&PackedEpoch::base_config(&one).unwrap()).unwrap();
    let refused = PackedEpoch::new(
        base(),
        &one,
        lengths.to_vec().into(),
        with(LongDocument::Refuse),
    );
    let expected = "sample 1 has 25 tokens, more than the 10 of a row";
    assert_eq!(refused.unwrap_err().to_string(), expected);
    let few = PackedEpoch::new(base(), &one, vec![1].into(), with(LongDocument::Split));
    let expected = error::lengths_count(1, 3);
    assert_eq!(few.unwrap_err(), expected);
}

proptest! {
    #[test]
    fn step_contains_the_rows_of_its_ranks(
        lengths in prop::collection::vec(0_u32..40, 1..120),
        ranks in 1_u64..5,
        batch_size in 1_u64..4,
        start in 0_u64..20,
        last in prop::sample::select(vec![LastRows::Repeat, LastRows::Drop, LastRows::Short]),
    ) {
        let mut config = config(lengths.len() as u64, ranks, batch_size);
        let options = PackingOptions { last, ..options(RowForm::Context, 32, 8) };
        prop_assume!(config.streams[0].shards[0] > 0 && lengths.iter().any(|length| *length > 0));
        config.resume = Some(State {
            epoch: 0,
            sample_in_epoch: start,
            num_canonical_nodes: Some(1),
            shuffle_seed: 9176,
            initial_physical_nodes: Some(1),
        });
        let epoch = packed(&config, &lengths, options);
        for step in 0..epoch.steps() {
            let found = epoch.step(step).unwrap();
            prop_assert_eq!(found.len() as u64, ranks);
            prop_assert_eq!(epoch.rows_before(step), start + step * ranks * batch_size);
            for (rank, rows) in (0_u64..).zip(found) {
                prop_assert_eq!(rows, epoch.rank(rank).unwrap().read(step).unwrap());
            }
        }
        let steps = epoch.steps();
        prop_assert_eq!(epoch.step(steps), Err(error::no_such_step(steps, steps)));
        // The way back from a sample names exactly the rows that have it.
        let mut expected: BTreeMap<u64, Vec<Delivery>> = BTreeMap::new();
        for step in 0..epoch.steps() {
            for (rank, rows) in (0_u64..).zip(epoch.step(step).unwrap()) {
                for (position, row) in (0_u64..).zip(rows) {
                    let found = Delivery { step, rank, position, repeated: row.repeated };
                    for piece in row.pieces {
                        let deliveries = expected.entry(piece.sample.0).or_default();
                        if deliveries.last() != Some(&found) {
                            deliveries.push(found);
                        }
                    }
                }
            }
        }
        for sample in 0..lengths.len() as u64 {
            let expected = expected.remove(&sample).unwrap_or_default();
            prop_assert_eq!(epoch.deliveries(SampleId(sample)).unwrap(), expected);
        }
        let samples = lengths.len() as u64;
        let beyond = epoch.deliveries(SampleId(samples));
        prop_assert_eq!(beyond, Err(error::no_such_sample(samples, samples)));
    }
}

#[test]
fn skip_ranges_count_packed_rows() {
    let lengths = [10; 40];
    let one = config(40, 2, 2);
    let epoch = packed(&one, &lengths, options(RowForm::Context, 10, 8));
    assert_eq!((epoch.rows(), epoch.steps()), (40, 10));
    let kept = epoch.clone().without(&Skip::new([4..12, 36..40], vec![3]));
    let kept = kept.unwrap();
    assert_eq!(kept.steps(), 7);
    let steps: Vec<u64> = (0..7).map(|number| kept.step(number)).collect();
    assert_eq!(steps, [0, 3, 4, 5, 6, 7, 8]);
    assert_eq!((kept.passed(1), kept.passed(2), kept.passed(7)), (1, 4, 10));
    assert!(kept.is_skipped(SampleId(3)) && !kept.is_skipped(SampleId(4)));
    let part = Skip::new(std::iter::once(4..10), Vec::new());
    let error = epoch.clone().without(&part).unwrap_err();
    assert!(error.to_string().contains("the rows 4 to 10"), "{error}");
    let beyond = epoch.without(&Skip::new([], vec![40])).unwrap_err();
    assert_eq!(beyond, error::no_such_sample(40, 40));
}
