use serde_json::{Value, json};

use crate::common::TestDir;
use crate::snapshot;

/// The answers to these lines, as they came.
fn answers(input: impl Into<Vec<u8>>) -> Vec<Value> {
    let dir = TestDir::new();
    let mut command = dir.command();
    let output = command
        .args(["order", "--json"])
        .write_stdin(input)
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), &*output.stderr),
        (Some(0), &b""[..]),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Twelve samples in three shards for two ranks.
fn configuration(id: impl Into<Value>) -> Value {
    json!({
        "id": id.into(), "streams": [{"shards": [4, 3, 5]}], "batch_size": 2, "nodes": 1, "ranks_per_node": 2,
        "workers_per_rank": 2, "other": null,
    })
}

#[test]
fn order_prints_one_line_per_rank_and_batch() {
    let dir = TestDir::with_shards();
    let args = [
        "--batch-size",
        "25",
        "--ranks-per-node",
        "2",
        "--shuffle",
        "--batches",
        "..1",
    ];
    let shown = dir.shown(&[&["order", "shards"][..], &args].concat());
    snapshot!(shown.clone(), @r"
    exit 0
    --- stdout
    rank 0 batch 0: 74 99 57 69 5 66 61 26 29 21 20 64 25 49 40 11 83 37 2 71 89 23 80 13 46
    rank 1 batch 0: 27 45 48 82 96 4 93 72 32 7 92 70 81 16 30 76 17 34 54 15 47 44 19 73 38
    --- stderr
    epoch 0: 100 samples, 1 of 2 batches of 50, 2 ranks, 1 canonical node
    ");
    // Only the sizes of the shards matter.
    let sizes = [&["order", "--shards", "30,30,30,10"][..], &args].concat();
    assert_eq!(dir.shown(&sizes), shown);
    let stream = [&["order", "--stream", "shards,repeat=1"][..], &args].concat();
    assert_eq!(dir.shown(&stream), shown);
}

#[test]
fn repeated_samples_that_fill_a_batch_are_marked() {
    let args = [
        "order",
        "--shards",
        "4,3",
        "--batch-size",
        "2",
        "--ranks-per-node",
        "3",
    ];
    let dir = TestDir::new();
    insta::assert_snapshot!(dir.shown(&args), @r"
    exit 0
    --- stdout
    rank 0 batch 0: 0 3
    rank 1 batch 0: 1 4
    rank 2 batch 0: 2 5
    rank 0 batch 1: 6
    rank 1 batch 1: 3*
    rank 2 batch 1: 4*
    --- stderr
    epoch 0: 7 samples, 2 batches of 6, 3 ranks, 1 canonical node; * marks repeated samples that fill a batch
    ");
    let json = [&args[..], &["--json", "--workers-per-rank", "2"]].concat();
    insta::assert_snapshot!(dir.shown(&json), @r#"
    exit 0
    --- stdout
    {"rank":0,"batch":0,"worker":0,"samples":[0,3],"repeated":[]}
    {"rank":1,"batch":0,"worker":0,"samples":[1,4],"repeated":[]}
    {"rank":2,"batch":0,"worker":0,"samples":[2,5],"repeated":[]}
    {"rank":0,"batch":1,"worker":1,"samples":[6],"repeated":[]}
    {"rank":1,"batch":1,"worker":1,"samples":[3],"repeated":[0]}
    {"rank":2,"batch":1,"worker":1,"samples":[4],"repeated":[0]}
    "#);
    let one = [&args[..], &["--rank", "2", "--batches", "1", "-q"]].concat();
    insta::assert_snapshot!(dir.shown(&one), @r"
    exit 0
    --- stdout
    rank 2 batch 1: 4*
    ");
}

/// The golden values of the original for two streams.
#[test]
fn mixed_streams_match_mosaicml_order() {
    let shown = TestDir::new().shown(&[
        "order",
        "--shards",
        "4,3,5",
        "--shards",
        "6",
        "--shuffle",
        "--shuffle-block-size",
        "8",
        "--ranks-per-node",
        "2",
        "--batch-size",
        "2",
        "--batching-method",
        "stratified",
        "-q",
    ]);
    insta::assert_snapshot!(shown, @r"
    exit 0
    --- stdout
    rank 0 batch 0: 1 2
    rank 1 batch 0: 3 13
    rank 0 batch 1: 0 6
    rank 1 batch 1: 5 14
    rank 0 batch 2: 4 9
    rank 1 batch 2: 7 17
    rank 0 batch 3: 10 11
    rank 1 batch 3: 8 15
    ");
}

#[test]
fn resume_continues_from_a_saved_state() {
    let dir = TestDir::new();
    dir.write(
        "state.json",
        r#"{"epoch": 0, "sample_in_epoch": 4, "num_canonical_nodes": 2, "shuffle_seed": 9176, "initial_physical_nodes": 2}"#,
    );
    let resume = |state: &str| {
        dir.shown(&[
            "order",
            "--shards",
            "4,3",
            "--batch-size",
            "2",
            "--resume",
            state,
        ])
    };
    insta::assert_snapshot!(resume("state.json"), @r"
    exit 0
    --- stdout
    rank 0 batch 0: 2 5
    rank 0 batch 1: 2* 6
    --- stderr
    epoch 0 from sample 4 on: 7 samples, 2 batches of 2, 1 rank, 2 canonical nodes; * marks repeated samples that fill a batch
    ");
    dir.write("newer.json", r#"{"shardmill": {"version": 9}}"#);
    insta::assert_snapshot!(resume("newer.json"), @r"
    exit 3
    --- stderr
    error[state-newer]: newer.json: its version is 9, and the newest that is known is 1; read it with the version that wrote it, or a later one
    ");
    dir.write(
        "foreign.json",
        r#"{"epoch": 0, "sample_in_epoch": 4, "num_canonical_nodes": 2, "shuffle_seed": 1, "shardmill": {"version": 1, "fingerprint": "00000000000000000000000000000000"}}"#,
    );
    snapshot!(resume("foreign.json"), @r"
    exit 4
    --- stderr
    error[state-foreign]: foreign.json: it was made for the order [HASH], and this run has the order [HASH]; use the datasets, weights, shuffle, sampling and batching of the run that made it, or begin anew
    ");
    dir.write("pickle.json", b"\x80\x04}\x94.");
    insta::assert_snapshot!(resume("pickle.json"), @r"
    exit 3
    --- stderr
    error[state-pickle]: pickle.json: it is a pickle, which is not read because it could run code; store the dictionary that state_dict() returns as JSON
    ");
    insta::assert_snapshot!(resume("nowhere.json"), @r"
    exit 2
    --- stderr
    error[not-found]: nowhere.json: cannot open: No such file or directory (os error 2)
    ");
}

#[test]
fn invalid_order_options_are_errors() {
    let dir = TestDir::new();
    for (args, error) in [
        (
            &["order"][..],
            "error[usage-missing-argument]: missing: <DATASET>...; name a dataset, pass sizes with --shards, or pass configurations on standard input with --json",
        ),
        (
            &["order", "data", "--shards", "4"],
            "error[usage-conflict]: [DATASET]...: it cannot be used with --shards <N,...>; see `shardmill --help`",
        ),
        (
            &["order", "--shards", "4,x"],
            "error[config-shards]: --shards: `4,x` is not a list of sizes; write the samples of each shard: 4,3,5",
        ),
        (
            &["order", "--shards", "4,3,5", "--rank", "2", "--nodes", "2"],
            "error[config-world]: rank 2 of 2",
        ),
        (
            &["order", "--shards", "4,3,5", "--batches", "1..3"],
            "error[config-batches]: --batches: batch 3 does not exist; there are 1; omit it to see all of them",
        ),
        (
            &["order", "--shards", "4", "--batches", "x"],
            "error[config-range]: x: it is neither a number nor a range; write 7, -1, 10..20, 10.. or ..20",
        ),
        (
            &["order", "--shards", "4", "--resume", "x", "--epoch", "2"],
            "error[usage-conflict]: --resume: it cannot be used with --epoch <N>; see `shardmill --help`",
        ),
        (
            &[
                "order",
                "--shards",
                "4,3",
                "--nodes",
                "3",
                "--num-canonical-nodes",
                "2",
            ],
            "error[config-world]: 2 canonical and 3 physical nodes: neither divides the other; choose num_canonical_nodes so that one divides the other",
        ),
    ] {
        let ran = dir.run(args);
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.trim_end()),
            (2, "", error),
            "{args:?}"
        );
    }
    // Options do not describe what comes on standard input.
    let error = dir.run(&["order", "--json", "--rank", "0"]).error();
    assert_eq!(error["id"], "usage-conflict");
}

#[test]
fn every_json_request_is_answered_once() {
    let mut lines = Vec::new();
    for id in 0..500 {
        lines.push(configuration(id).to_string());
        // Blank lines are no configurations.
        lines.push("  ".to_owned());
    }
    let answers = answers(lines.join("\n"));
    let mut ids: Vec<u64> = answers
        .iter()
        .map(|answer| answer["id"].as_u64().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..500).collect::<Vec<_>>());
    let orders = json!([[[0, 2, 8, 10], [4, 6]], [[1, 3, 9, 11], [5, 7]]]);
    assert!(answers.iter().all(|answer| answer["orders"] == orders));
}

#[test]
fn invalid_json_requests_are_answered_with_errors() {
    let mut unknown = configuration("b");
    unknown["shuffle_algo"] = "py1b".into();
    let mut missing = configuration(json!([1, "c"]));
    missing.as_object_mut().unwrap().remove("batch_size");
    let input = [
        configuration("a").to_string().as_bytes(),
        b"\nnot JSON\n",
        unknown.to_string().as_bytes(),
        b"\n\xff\n",
        missing.to_string().as_bytes(),
    ]
    .concat();
    let mut answers = answers(input);
    answers.sort_by_key(|answer| answer["id"].to_string());
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(
        ids,
        [
            &json!("a"),
            &json!("b"),
            &json!([1, "c"]),
            &Value::Null,
            &Value::Null
        ]
    );
    assert!(answers[0]["error"].is_null() && answers[0]["orders"].is_array());
    assert_eq!(
        answers[1]["error"],
        "error[config-value]: shuffle_algo: \"py1b\" is none of naive, py1s, py2s, py1br, py1e, shardmill"
    );
    let missing = answers[2]["error"].as_str().unwrap();
    assert!(
        missing.starts_with(
            "error[config-line]: the line is not a configuration: missing field `batch_size`"
        ),
        "{missing}"
    );
    for answer in &answers[3..] {
        let error = answer["error"].as_str().unwrap();
        assert!(error.starts_with("error[json-line]: "), "{error}");
    }
}

#[test]
fn overlong_request_is_an_error_and_the_next_is_answered() {
    let mut input = vec![b'['; 70_000_000];
    input.push(b'\n');
    input.extend_from_slice(configuration(1).to_string().as_bytes());
    let mut answers = answers(input);
    answers.sort_by_key(|answer| answer["id"].is_null());
    assert_eq!(answers[0]["id"], 1);
    assert_eq!(
        answers[1],
        json!({"id": null, "error": "error[limit-line-bytes]: the line has 70,000,000 bytes, more than the 67,108,864 that are read"})
    );
}

#[test]
fn answers_are_flushed_before_the_next_request() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    let mut child = Command::new(assert_cmd::cargo::cargo_bin("shardmill"))
        .args(["order", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut questions = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    for id in 0..20 {
        writeln!(questions, "{}", configuration(id)).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], id);
    }
    // A closed pipe is not a failure.
    drop(answers);
    writeln!(questions, "{}", configuration(20)).unwrap();
    assert!(child.wait().unwrap().success());
}
