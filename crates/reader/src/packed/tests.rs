//! Tests of token batches: their arrays, skipped steps and samples, and columns that are no tokens.

use std::collections::BTreeMap;

use shardmill_dataset::StreamOptions;
use shardmill_order::{LastRows, LongDocument, World};
use shardmill_testing::mds::{Spec, sample};
use tempfile::TempDir;

use super::*;
use crate::{Reader, ReaderOptions};

/// The tokens of a row.
const ROW: u32 = 16;
const PADDING: i64 = -7;
/// The forms of rows, each with a batch size that it allows.
const FORMS: [(RowForm, u64); 3] = [
    (RowForm::Context, 2),
    (RowForm::Padded, 1),
    (RowForm::Summed, 1),
];
/// The documents, in shards of eight.
const DOCUMENTS: u64 = 64;

/// Returns the tokens of a document: no other one has any of them.
fn document(number: u64) -> Vec<u16> {
    let length = u16::try_from(number * 5 % 19).unwrap();
    let first = u16::try_from(number * 100).unwrap();
    (0..length).map(|token| first + token).collect()
}

fn open(temp: &TempDir) -> Reader {
    let spec = Spec::mds(&[("text", "str", None), ("tokens", "bytes", None)]);
    let shard = |shard: u64| {
        let documents = shard * 8..(shard + 1) * 8;
        let samples: Vec<_> = documents
            .map(|number| {
                let words = document(number).into_iter().flat_map(u16::to_le_bytes);
                let tokens: Vec<u8> = words.collect();
                sample(&[(false, b"a text"), (false, &tokens)])
            })
            .collect();
        spec.shard(&samples)
    };
    let shards: Vec<_> = (0..DOCUMENTS / 8).map(shard).collect();
    spec.write(temp.path(), &shards).unwrap();
    let stream = StreamOptions::local(temp.path());
    Reader::open(&[stream], &ReaderOptions::default()).unwrap()
}

fn options(form: RowForm) -> TokenOptions {
    let lengths = (0..DOCUMENTS).map(|number| u32::try_from(document(number).len()).unwrap());
    TokenOptions {
        column: "tokens".to_owned(),
        dtype: Some(DType::U16),
        lengths: lengths.collect(),
        padding_id: PADDING,
        packing: PackingOptions {
            form,
            tokens: ROW,
            pool: 10,
            long: LongDocument::Split,
            last: LastRows::Repeat,
        },
    }
}

fn config(reader: &Reader, batch_size: u64, workers_per_rank: u64) -> EpochConfig {
    let world = World {
        workers_per_rank,
        ..World::SINGLE
    };
    let mut config = reader.epoch_config(batch_size, world);
    config.shuffle.enabled = true;
    config
}

/// Returns the batches of an epoch, dealt by its workers in turn.
fn read(
    reader: &Reader,
    config: &EpochConfig,
    tokens: &TokenOptions,
    skip: &Skip,
) -> Vec<TokenBatch> {
    let begin = |worker| {
        let options = BatchOptions {
            worker,
            ..BatchOptions::default()
        };
        let tokens = tokens.clone();
        reader.token_batches(config, options, tokens, skip).unwrap()
    };
    let mut workers: Vec<_> = (0..config.world.workers_per_rank).map(begin).collect();
    let mut batches = Vec::new();
    loop {
        let at = batches.len() % workers.len();
        match workers[at].next_batch().unwrap() {
            Some(batch) => batches.push(batch),
            None => break,
        }
    }
    // No worker has more.
    for worker in &mut workers {
        assert!(worker.next_batch().unwrap().is_none());
    }
    batches
}

fn wide(buffer: &Buffer) -> Vec<i64> {
    let (words, _) = buffer.as_slice().as_chunks::<8>();
    words.iter().map(|word| i64::from_le_bytes(*word)).collect()
}

fn documents(batch: &TokenBatch) -> Vec<i32> {
    let (words, _) = batch.document_ids.as_slice().as_chunks::<4>();
    words.iter().map(|word| i32::from_le_bytes(*word)).collect()
}

/// Everything of a batch but its step.
#[derive(Debug, PartialEq)]
struct Arrays {
    ids: Vec<i64>,
    labels: Vec<i64>,
    positions: Vec<i64>,
    documents: Vec<i32>,
    bounds: Vec<i32>,
    repeated: Vec<bool>,
}

fn arrays(batch: &TokenBatch) -> Arrays {
    Arrays {
        ids: wide(&batch.input_ids),
        labels: wide(&batch.labels),
        positions: wide(&batch.position_ids),
        documents: documents(batch),
        bounds: batch.cu_seqlens.clone(),
        repeated: batch.repeated.clone(),
    }
}

#[test]
fn arrays_describe_every_token_once() {
    let temp = tempfile::tempdir().unwrap();
    let reader = open(&temp);
    for (form, batch_size) in FORMS {
        let config = config(&reader, batch_size, 1);
        let batches = read(&reader, &config, &options(form), &Skip::default());
        let mut found: BTreeMap<i64, u32> = BTreeMap::new();
        for batch in &batches {
            let Arrays {
                ids,
                labels,
                positions,
                documents,
                bounds,
                repeated,
            } = arrays(batch);
            let size = batch.rows * batch.width;
            assert_eq!(
                (ids.len(), labels.len(), documents.len()),
                (size, size, size)
            );
            assert_eq!(repeated.len(), batch.rows);
            assert_eq!(
                (bounds[0], bounds.last()),
                (0, Some(&i32::try_from(size).unwrap()))
            );
            let mut tokens = 0;
            for piece in bounds.windows(2) {
                let piece = piece[0] as usize..piece[1] as usize;
                let is_padding = documents[piece.start] == PADDING_DOCUMENT;
                for (at, index) in piece.clone().enumerate() {
                    assert_eq!(documents[index], documents[piece.start]);
                    if is_padding {
                        let padding = (ids[index], labels[index], positions[index]);
                        assert_eq!(padding, (PADDING, IGNORED_LABEL, 0));
                        continue;
                    }
                    assert_eq!(positions[index], at as i64);
                    assert_eq!(ids[index], ids[piece.start] + at as i64);
                    let label = if at == 0 { IGNORED_LABEL } else { ids[index] };
                    assert_eq!(labels[index], label);
                    tokens += 1;
                    if !repeated[index / batch.width] {
                        *found.entry(ids[index]).or_default() += 1;
                    }
                }
            }
            assert_eq!(tokens, batch.tokens);
        }
        let expected = (0..DOCUMENTS).flat_map(document);
        let expected: BTreeMap<i64, u32> = expected.map(|token| (token.into(), 1)).collect();
        assert_eq!(found, expected, "{form:?}");
    }
}

#[test]
fn skipped_steps_are_omitted_and_others_unchanged() {
    let temp = tempfile::tempdir().unwrap();
    let reader = open(&temp);
    let tokens = options(RowForm::Context);
    for workers in [1, 2] {
        let config = config(&reader, 2, workers);
        let all = read(&reader, &config, &tokens, &Skip::default());
        let kept = read(
            &reader,
            &config,
            &tokens,
            &Skip::new([2..6, 14..16], vec![]),
        );
        let expected = all.iter().filter(|batch| ![1, 2, 7].contains(&batch.step));
        let expected: Vec<_> = expected.map(|batch| (batch.step, arrays(batch))).collect();
        let kept: Vec<_> = kept
            .iter()
            .map(|batch| (batch.step, arrays(batch)))
            .collect();
        assert_eq!(kept, expected);
    }
    let part = Skip::new(std::iter::once(1..3), vec![]);
    let options = BatchOptions::default();
    let refused = reader.token_batches(&config(&reader, 2, 1), options, tokens, &part);
    assert_eq!(refused.unwrap_err().id(), "config-skip");
}

#[test]
fn tokens_of_skipped_samples_become_padding() {
    let temp = tempfile::tempdir().unwrap();
    let reader = open(&temp);
    for (form, batch_size) in FORMS {
        let tokens = options(form);
        let config = config(&reader, batch_size, 1);
        let all = read(&reader, &config, &tokens, &Skip::default());
        // A document of two pieces, some of one, an empty one, and all of the first batch.
        let of_first = wide(&all[0].input_ids).into_iter().filter(|id| *id >= 0);
        let gone: Vec<u64> = of_first
            .map(|id| id as u64 / 100)
            .chain([0, 7, 11, 30])
            .collect();
        let kept = read(&reader, &config, &tokens, &Skip::new([], gone.clone()));
        assert_eq!(kept.len(), all.len());
        assert_eq!(kept[0].tokens, 0);
        for (before, after) in all.iter().zip(&kept) {
            let Arrays {
                ids,
                labels,
                positions,
                documents,
                bounds,
                repeated,
            } = arrays(before);
            let is_gone = |index: usize| {
                documents[index] != PADDING_DOCUMENT && gone.contains(&(ids[index] as u64 / 100))
            };
            let padded = |values: &[i64], padding: i64| -> Vec<i64> {
                let values = values.iter().enumerate();
                values
                    .map(|(at, value)| if is_gone(at) { padding } else { *value })
                    .collect()
            };
            let numbers = documents.iter().enumerate();
            let numbers = numbers.map(|(at, number)| {
                if is_gone(at) {
                    PADDING_DOCUMENT
                } else {
                    *number
                }
            });
            let expected = Arrays {
                ids: padded(&ids, PADDING),
                labels: padded(&labels, IGNORED_LABEL),
                positions: padded(&positions, 0),
                documents: numbers.collect(),
                bounds,
                repeated,
            };
            assert_eq!(arrays(after), expected, "{form:?}");
            let left = expected
                .documents
                .iter()
                .filter(|number| **number >= 0)
                .count();
            assert_eq!(after.tokens, left as u64);
        }
    }
}

#[test]
fn wrong_token_column_or_length_is_an_error() {
    let temp = tempfile::tempdir().unwrap();
    let reader = open(&temp);
    let first = |tokens: TokenOptions| {
        let config = config(&reader, 1, 1);
        let batches =
            reader.token_batches(&config, BatchOptions::default(), tokens, &Skip::default());
        batches.unwrap().next_batch().unwrap_err()
    };
    let good = options(RowForm::Context);
    for (column, dtype, reason) in [
        ("text", Some(DType::U16), "its encoding is str"),
        ("none", Some(DType::U16), "no such column"),
        ("tokens", None, "the type of the tokens is not given"),
    ] {
        let error = first(TokenOptions {
            column: column.to_owned(),
            dtype,
            ..good.clone()
        });
        assert_eq!(error.id(), "tokens-column");
        assert!(error.chain().contains(reason), "{}", error.chain());
    }
    let mut lengths = good.lengths.to_vec();
    lengths.iter_mut().for_each(|length| *length += 1);
    let error = first(TokenOptions {
        lengths: lengths.into(),
        ..good.clone()
    });
    assert_eq!(error.id(), "tokens-length");
    let measured = reader.token_lengths("tokens", Some(DType::U16)).unwrap();
    assert_eq!(measured, good.lengths.to_vec());
}
