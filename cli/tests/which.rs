//! `shardmill which`: the samples of a step and the steps of a sample, against the output of `shardmill order`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::common::TestDir;

const WORLD: [&str; 9] = [
    "shards",
    "--shuffle",
    "--nodes",
    "2",
    "--ranks-per-node",
    "2",
    "--batch-size",
    "3",
    "--json",
];

/// Returns the lines of `shardmill order` with these options.
fn log(dir: &TestDir, options: &[&str]) -> Vec<Value> {
    let args = [&["order"][..], &WORLD, options].concat();
    let text = dir.ok(&args);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn which(dir: &TestDir, options: &[&str]) -> Value {
    dir.json(&[&["which"][..], &WORLD, options].concat())
}

/// Returns the samples of a step as `[rank, position, sample, repeated]`.
fn members(answer: &Value) -> Vec<Value> {
    let samples = answer["samples"].as_array().unwrap().iter();
    samples
        .map(|one| json!([one["rank"], one["position"], one["sample"], one["repeated"]]))
        .collect()
}

/// Returns the same from the lines of `shardmill order`.
fn logged(log: &[Value], step: u64) -> Vec<Value> {
    let lines = log.iter().filter(|line| line["batch"] == step);
    let each = lines.flat_map(|line| {
        let samples = line["samples"].as_array().unwrap().iter().enumerate();
        samples.map(|(position, sample)| {
            let repeated = line["repeated"].as_array().unwrap();
            let repeated = repeated.contains(&json!(position));
            json!([line["rank"], position, sample, repeated])
        })
    });
    each.collect()
}

#[test]
fn which_output_matches_the_order() {
    let dir = TestDir::with_shards();
    for options in [
        &["--epoch", "0"][..],
        &["--epoch", "2", "--shuffle-algo", "shardmill"],
        &[
            "--epoch",
            "1",
            "--shuffle-algo",
            "py1br",
            "--shuffle-block-size",
            "40",
        ],
        &["--epoch", "1", "--replication", "2", "--epoch-size", "150"],
    ] {
        let log = log(&dir, options);
        let steps = log
            .iter()
            .map(|line| line["batch"].as_u64().unwrap())
            .max()
            .unwrap()
            + 1;
        let mut delivered: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for step in 0..steps {
            let expected = logged(&log, step);
            let answer = which(&dir, &[options, &["--step", &step.to_string()]].concat());
            assert_eq!(members(&answer), expected, "step {step} of {options:?}");
            for member in &expected {
                let [rank, position, sample, repeated] = [0, 1, 2, 3].map(|at| member[at].clone());
                let found = json!([step, rank, position, repeated]);
                delivered
                    .entry(sample.as_u64().unwrap())
                    .or_default()
                    .push(found);
            }
        }
        for sample in [0, 29, 30, 77, 99] {
            let answer = which(
                &dir,
                &[options, &["--sample", &sample.to_string()]].concat(),
            );
            let found = answer["steps"].as_array().unwrap().iter();
            let found: Vec<Value> = found
                .map(|one| json!([one["step"], one["rank"], one["position"], one["repeated"]]))
                .collect();
            let mut expected = delivered.remove(&sample).unwrap_or_default();
            expected.sort_by_key(|one| (one[0].as_u64(), one[1].as_u64()));
            assert_eq!(found, expected, "sample {sample} of {options:?}");
        }
    }
}

#[test]
fn sample_is_reported_with_shard_key_and_source_row() {
    let dir = TestDir::with_shards();
    let answer = which(&dir, &["--sample", "65", "--key-column", "name"]);
    let expected = json!({
        "sample": 65, "stream": 0, "shard": 2, "shard_name": "shard.00002.mds.zstd", "index": 5,
        "key": "row 65", "file": "data/rows.parquet", "row": 65,
    });
    assert_eq!(answer["sample"], expected);
    assert_eq!(answer["streams"][0]["source"], "parquet");
    assert_eq!(answer["streams"][0]["unknown"], Value::Null);
    assert_eq!(
        (
            &answer["epoch"],
            &answer["epochs"],
            &answer["sample_in_epoch"]
        ),
        (&json!(0), &json!(1), &json!(0))
    );
    // Without a key column and with a condition, both are plainly unknown.
    dir.ok(&["convert", "data", "some", "--where", "id >= 40"]);
    let answer = dir.json(&["which", "some", "--sample", "5", "--json"]);
    let sample = &answer["sample"];
    assert_eq!(
        (&sample["key"], &sample["file"], &sample["row"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let unknown = answer["streams"][0]["unknown"].as_str().unwrap();
    assert_eq!(
        unknown,
        "file and row: the conversion selected rows with a query"
    );
    let ran = dir.run(&["which", "some", "--sample", "5"]);
    assert!(
        ran.stderr
            .contains("some: unknown file and row: the conversion selected")
    );
    // Samples of a mix are numbered through all datasets.
    let answer = dir.json(&["which", "shards", "some", "--sample", "105", "--json"]);
    let sample = &answer["sample"];
    assert_eq!(
        (&sample["stream"], &sample["index"]),
        (&json!(1), &json!(5))
    );
    assert_eq!(answer["streams"][1]["first_sample"], 100);
}

#[test]
fn step_is_printed_as_a_table() {
    let dir = TestDir::with_shards();
    let args = [
        "which",
        "shards",
        "--batch-size",
        "2",
        "--ranks-per-node",
        "2",
        "--step",
        "1",
    ];
    insta::assert_snapshot!(dir.shown(&args), @r"
    exit 0
    --- stdout
    rank  position  sample  shard                 index  key  file               row
       0         0       4  shard.00000.mds.zstd      4  -    data/rows.parquet    4
       0         1       6  shard.00000.mds.zstd      6  -    data/rows.parquet    6
       1         0       5  shard.00000.mds.zstd      5  -    data/rows.parquet    5
       1         1       7  shard.00000.mds.zstd      7  -    data/rows.parquet    7
    --- stderr
    epoch 0, step 1 of 25: 4 samples
    shards: from parquet
    ");
    let args = [
        "which",
        "shards",
        "--batch-size",
        "2",
        "--sample",
        "6",
        "--epochs",
        "2",
    ];
    insta::assert_snapshot!(dir.shown(&args), @r"
    exit 0
    --- stdout
    sample  shard                 index  key  file               row
         6  shard.00000.mds.zstd      6  -    data/rows.parquet    6

    epoch  step  rank  position
        0     3     0         0
        1     3     0         0
    --- stderr
    epochs 0 to 1: delivered 2 times
    shards: from parquet
    ");
}

#[test]
fn steps_are_counted_from_the_given_state() {
    let dir = TestDir::with_shards();
    let whole = log(&dir, &[]);
    dir.write(
        "state.json",
        r#"{"epoch": 0, "sample_in_epoch": 36, "num_canonical_nodes": 2, "shuffle_seed": 9176, "initial_physical_nodes": 2}"#,
    );
    let state = ["--state", "state.json"];
    let answer = which(&dir, &[&state[..], &["--step", "2"]].concat());
    assert_eq!(members(&answer), logged(&whole, 5));
    assert_eq!(answer["sample_in_epoch"], 60);
    // The same global batch in another world.
    let other = [
        "which",
        "shards",
        "--shuffle",
        "--batch-size",
        "12",
        "--json",
    ];
    let answer = dir.json(&[&other[..], &state, &["--step", "2"]].concat());
    let mut samples: Vec<_> = members(&answer).iter().map(|one| one[2].as_u64()).collect();
    let mut expected: Vec<_> = logged(&whole, 5)
        .iter()
        .map(|one| one[2].as_u64())
        .collect();
    samples.sort_unstable();
    expected.sort_unstable();
    assert_eq!(samples, expected);
}

#[test]
fn missing_step_or_sample_is_an_error() {
    let dir = TestDir::with_shards();
    dir.write(
        "foreign.json",
        r#"{"epoch": 0, "sample_in_epoch": 4, "num_canonical_nodes": 2, "shuffle_seed": 1, "shardmill": {"version": 1, "fingerprint": "00000000000000000000000000000000"}}"#,
    );
    let error = |args: &[&str]| {
        let ran = dir.run(&[&["which", "--json"][..], args].concat());
        let id = ran.error()["id"].as_str().unwrap().to_owned();
        (ran.code, id)
    };
    for (args, code, id) in [
        (&["shards", "--step", "4"][..], 2, "no-such-step"),
        (&["shards", "--sample", "100"], 2, "no-such-sample"),
        (&["shards", "--step", "0", "--rank", "1"], 2, "config-world"),
        (
            &["shards", "--sample", "0", "--rank", "1"],
            2,
            "config-world",
        ),
        (
            &["shards", "--step", "0", "--state", "foreign.json"],
            4,
            "state-foreign",
        ),
        (
            &["shards", "--step", "0", "--sample", "1"],
            2,
            "usage-conflict",
        ),
        (&["shards"], 2, "usage-missing-argument"),
        (&["--step", "1"], 2, "usage-missing-argument"),
        (&["nowhere", "--step", "1"], 2, "not-found"),
        (&["shards", "--step", "x"], 2, "config-step"),
    ] {
        assert_eq!(error(args), (code, id.to_owned()), "{args:?}");
    }
    let tars = TestDir::with_tars();
    let ran = tars.run(&["which", "tars", "--step", "0"]);
    assert!(
        ran.stderr.contains("StreamingDataset.which"),
        "{}",
        ran.stderr
    );
}
