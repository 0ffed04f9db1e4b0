//! Reads the batches of a dataset in shuffled order, stops in the middle of an epoch, and resumes.
//!
//! ```sh
//! seq 0 999 | sed 's/.*/{"number": &, "text": "sample &"}/' > numbers.jsonl
//! shardmill convert numbers.jsonl numbers/
//! cargo run --package shardmill-example -- numbers/ state.json 3
//! cargo run --package shardmill-example -- numbers/ state.json
//! ```
//!
//! It prints:
//!
//! ```text
//! numbers/: 1,000 samples in 1 shard
//! ...
//! stopped in epoch 0 after 96 samples, sum of `number` 49673
//! resumed in epoch 0 after 96 samples
//! finished epoch 0, sum of `number` 449827
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use shardmill_dataset::{Schema, StreamOptions};
use shardmill_mds::{Value, decode};
use shardmill_order::World;
use shardmill_reader::{
    Batch, BatchData, BatchOptions, OrderIdentity, Reader, ReaderOptions, RunState,
};

const BATCH_SIZE: u64 = 32;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (folder, checkpoint, stop_after) = match words.as_slice() {
        [folder, checkpoint] => (folder, checkpoint, None),
        [folder, checkpoint, batches] => (folder, checkpoint, Some(batches.parse::<u64>()?)),
        _ => return Err("the arguments are FOLDER CHECKPOINT [STOP_AFTER]".into()),
    };
    let checkpoint = Path::new(checkpoint);

    let reader = Reader::open(&[StreamOptions::local(folder)], &ReaderOptions::default())?;
    let mut config = reader.epoch_config(BATCH_SIZE, World::SINGLE);
    config.shuffle.enabled = true;
    if checkpoint.exists() {
        // `resume` is an error if the state belongs to another order, or to another dataset.
        let state = RunState::load(checkpoint)?.resume(&config)?;
        println!(
            "resumed in epoch {} after {} samples",
            state.epoch, state.sample_in_epoch
        );
        config.epoch = state.epoch;
        config.resume = Some(state);
    }

    let mut batches = reader.epoch(&config, BatchOptions::default())?;
    let mut sum = 0;
    while let Some(batch) = batches.next_batch()? {
        sum += sum_of(&batch, "number")?;
        if stop_after == Some(batches.stats().batches) {
            let state = batches.state();
            // The file holds the position, and the order that it belongs to.
            let identity = OrderIdentity::new(&config, state.num_canonical_nodes)?;
            fs::write(checkpoint, RunState::new(state, identity).render())?;
            println!(
                "stopped in epoch {} after {} samples, sum of `number` {sum}",
                state.epoch, state.sample_in_epoch
            );
            return Ok(());
        }
    }
    println!("finished epoch {}, sum of `number` {sum}", config.epoch);
    Ok(())
}

/// Adds up an integer column of a batch.
fn sum_of(batch: &Batch, name: &str) -> Result<i64, Box<dyn Error>> {
    let BatchData::Columns { schema, .. } = &batch.data else {
        return Err("the shards have different columns".into());
    };
    let Schema::Binary { columns, .. } = schema.as_ref() else {
        return Err("the shards are JSON lines or CSV, not MDS".into());
    };
    let position = columns
        .iter()
        .position(|column| column.name == name)
        .ok_or_else(|| format!("no column `{name}`"))?;
    let encoding = &columns[position].encoding;
    let mut sum = 0;
    for (sample, entry) in batch.entries.iter().enumerate() {
        let bytes = batch.value(sample, position).ok_or("a sample is missing")?;
        match decode(encoding, bytes, &Default::default())? {
            // Padding: a sample that an epoch repeats so that all ranks get equally many.
            Value::I64(_) if entry.repeated => {}
            Value::I64(number) => sum += number,
            _ => return Err(format!("`{name}` is {encoding}, not int64").into()),
        }
    }
    Ok(sum)
}
