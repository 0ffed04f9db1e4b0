use crate::common::TestDir;

/// A dataset of which only the index is there: `plan` reads nothing else.
fn with_index(name: &str, shards: usize, samples: u64, raw: u64, zip: Option<u64>) -> TestDir {
    let dir = TestDir::new();
    write_index(&dir, name, shards, samples, raw, zip);
    dir
}

fn write_index(dir: &TestDir, name: &str, shards: usize, samples: u64, raw: u64, zip: Option<u64>) {
    let file = |shard: usize, suffix: &str, bytes: u64| {
        serde_json::json!({
            "basename": format!("shard.{shard:05}.mds{suffix}"), "bytes": bytes, "hashes": {}
        })
    };
    let shards: Vec<serde_json::Value> = (0..shards)
        .map(|shard| {
            serde_json::json!({
                "column_encodings": ["int"],
                "column_names": ["id"],
                "column_sizes": [8],
                "compression": zip.map(|_| "zstd:3"),
                "format": "mds",
                "hashes": [],
                "raw_data": file(shard, "", raw),
                "samples": samples,
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": zip.map(|bytes| file(shard, ".zstd", bytes)),
            })
        })
        .collect();
    let index = serde_json::json!({ "shards": shards, "version": 2 });
    dir.write(&format!("{name}/index.json"), index.to_string());
}

const MIB: u64 = 1 << 20;

/// Two nodes of eight devices that read 100 compressed shards of 40 MiB.
fn run(more: &[&'static str]) -> Vec<&'static str> {
    let mut args = vec![
        "plan",
        "shards",
        "--nodes",
        "2",
        "--ranks-per-node",
        "8",
        "--batch-size",
        "10",
        "--shuffle",
        "--shuffle-block-size",
        "5000",
    ];
    args.extend(more);
    args
}

fn dir() -> TestDir {
    with_index("shards", 100, 1000, 40 * MIB, Some(10 * MIB))
}

#[test]
fn everything_is_kept_without_a_cache_limit() {
    let args = run(&["--epochs", "2", "--latency", "1ms", "--step-time", "1s"]);
    insta::assert_snapshot!(dir().shown(&args), @r"
    exit 0
    --- stdout
    shards: 100,000 samples in 100 shards
      raw        3.9 GiB
      stored     1000.0 MiB
      world      2 nodes of 8 ranks, 10 samples each in a step
      order      py1e, seed 9176, 2 canonical nodes, blocks of 5,000
      cache      no limit
      bandwidth  1.0 GiB/s, first byte after 1 ms, 64 shards at a time
      step       1.0 s

    epoch  samples  steps  padded  dropped
        0  100,000    625       0        0
        1  100,000    625       0        0

    node  epoch    fetched  shards  uses    hits  hit by LRU  evicted  uncached  waited         took
       0      0  500.0 MiB      50    50    0.0%        0.0%        0         0    0 ms  10 min 25 s
       0      1        0 B       0    50  100.0%      100.0%        0         0    0 ms  10 min 25 s
       1      0  500.0 MiB      50    50    0.0%        0.0%        0         0    0 ms  10 min 25 s
       1      1        0 B       0    50  100.0%      100.0%        0         0    0 ms  10 min 25 s

    node  first batch  most resident  needed at once  in an epoch  in the run
       0       245 ms        2.2 GiB       480.0 MiB    480.0 MiB     2.0 GiB
       1       245 ms        2.2 GiB       480.0 MiB    480.0 MiB     2.0 GiB

    Without --cache-limit, a node keeps everything that it reads: 2.0 GiB.
    After the first batch, no node waits for data.
    ");
}

#[test]
fn advice_reports_the_needed_cache_limit() {
    let dir = dir();
    let stdout = dir.ok(&run(&["--cache-limit", "1GiB"]));
    for part in [
        "With --cache-limit 2010MiB nothing would be fetched twice.",
        "of the uses find their shard in the cache. LRU eviction would reach",
        "hit by LRU",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let stdout = dir.ok(&run(&["--cache-limit", "2010MiB"]));
    assert!(stdout.contains("nothing is fetched twice"), "{stdout}");
    let tiny = dir.ok(&run(&["--cache-limit", "100MiB"]));
    assert!(tiny.contains("cannot hold all shards"), "{tiny}");
    // What it says would help does.
    let said = tiny.split("--cache-limit ").nth(1).unwrap();
    let limit = said.split_whitespace().next().unwrap();
    let mut args = run(&["--json", "--cache-limit"]);
    args.push(limit);
    for node in dir.json(&args)["nodes"].as_array().unwrap() {
        for epoch in node["belady"]["epochs"].as_array().unwrap() {
            assert_eq!(epoch["bypasses"], 0);
        }
    }
}

#[test]
fn peers_option_shares_caches_between_nodes() {
    let dir = dir();
    let args = |more: &[&'static str]| {
        let mut args = run(&["--shuffle-algo", "naive", "--epochs", "2"]);
        args.extend(more);
        args
    };
    let plan = dir.json(&args(&["--peers", "--json"]));
    let epochs = plan["peers"].as_array().unwrap();
    assert_eq!(epochs.len(), 2);
    assert_eq!(epochs[0]["store_bytes"], 1000 * MIB);
    assert_eq!(plan["raw_bytes"], 4000 * MIB);
    // Every node reads all shards, and fetches those that it does not own from the other.
    assert_eq!(epochs[0]["peer_shards"], 100);
    assert_eq!(epochs[0]["peer_bytes"], 1000 * MIB);
    assert_eq!(epochs[1]["store_shards"], 0);
    // Compressed shards are kept in both forms.
    assert_eq!(plan["nodes"][0]["distinct_bytes"], 5000 * MIB);
    assert!(dir.json(&args(&["--json"])).get("peers").is_none());
    let text = dir.ok(&args(&["--peers"]));
    let table = text
        .split("\n\n")
        .find(|table| table.contains("from the store"));
    insta::assert_snapshot!(table.unwrap(), @r"
    epoch  from the store  shards  from other nodes  shards
        0      1000.0 MiB     100        1000.0 MiB     100
        1             0 B       0               0 B       0
    ");
}

#[test]
fn json_plan_has_all_values() {
    let dir = dir();
    let plan = dir.json(&run(&["--json", "--cache-limit", "1GiB", "--epochs", "4"]));
    assert_eq!(plan["samples"], 100_000);
    assert_eq!(plan["shards"], 100);
    assert_eq!(plan["stored_bytes"], 1000 * MIB);
    assert_eq!(plan["raw_bytes"], 4000 * MIB);
    assert_eq!(plan["global_batch"], 160);
    assert_eq!(plan["cache_limit"], 1 << 30);
    assert_eq!(plan["epochs"].as_array().unwrap().len(), 4);
    assert_eq!(plan["epochs"][3]["steps"], 625);
    assert_eq!(plan["epochs"][3]["dropped"], 0);
    let nodes = plan["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        let sum = |cache: &str, what: &str| -> u64 {
            let epochs = node[cache]["epochs"].as_array().unwrap();
            epochs
                .iter()
                .map(|epoch| epoch[what].as_u64().unwrap())
                .sum()
        };
        for cache in ["belady", "lru"] {
            assert!(node[cache]["most_resident_bytes"].as_u64().unwrap() <= 1 << 30);
            assert_eq!(
                sum(cache, "fetched_bytes"),
                10 * MIB * sum(cache, "fetched_shards")
            );
            let points = node[cache]["timeline"].as_array().unwrap().len();
            assert!((128..=256).contains(&points), "{points}");
        }
        assert!(sum("belady", "hits") > sum("lru", "hits"));
        assert!(sum("belady", "fetched_bytes") < sum("lru", "fetched_bytes"));
    }
    assert!(!plan["advice"].as_array().unwrap().is_empty());
}

#[test]
fn plan_mixes_weighted_streams() {
    let dir = dir();
    write_index(&dir, "more", 10, 100, MIB, None);
    let two = dir.json(&["plan", "shards", "more", "--json"]);
    assert_eq!(two["samples"], 101_000);
    assert_eq!(two["epochs"][0]["samples"], 101_000);
    let mix = dir.json(&[
        "plan",
        "--stream",
        "shards,choose=500",
        "--stream",
        "more,repeat=2",
        "--json",
    ]);
    assert_eq!(mix["epochs"][0]["samples"], 2500);
    assert_eq!(mix["streams"][1]["dataset"], "more");
    let stdout = dir.ok(&["plan", "shards", "more"]);
    assert!(stdout.starts_with("2 datasets: 101,000 samples in 110 shards\n"));
    assert!(stdout.contains("  stream     more: 1,000 samples in 10 shards\n"));
}

#[test]
fn padding_is_reported() {
    let dir = with_index("shards", 1, 7, MIB, None);
    let args = ["plan", "shards", "--nodes", "4", "--batch-size", "1"];
    let stdout = dir.ok(&args);
    assert!(stdout.contains("repeats 1 sample"), "{stdout}");
}

#[test]
fn invalid_options_are_rejected_before_any_work() {
    let dir = TestDir::new();
    for (option, value, id) in [
        ("--nodes", "x", "config-nodes"),
        ("--nodes", "0", "config-value"),
        ("--batch-size", "-1", "config-batch-size"),
        ("--epochs", "0", "config-epochs"),
        ("--epochs", "1001", "config-epochs"),
        ("--cache-limit", "much", "config-cache-limit"),
        ("--bandwidth", "0", "config-bandwidth"),
        ("--bandwidth", "1GB/h", "config-bandwidth"),
        ("--latency", "61min", "config-latency"),
        ("--step-time", "-1s", "config-step-time"),
        ("--connections", "0", "config-connections"),
        ("--shuffle-algo", "py1b", "config-shuffle-algo"),
        ("--replication", "3", "config-value"),
    ] {
        let ran = dir.run(&["plan", "nowhere", option, value, "--json"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{option} {value}");
        assert_eq!(ran.error()["id"], id, "{option} {value}");
    }
    insta::assert_snapshot!(dir.shown(&["plan", "--stream", "a,repeats=2"]), @r"
    exit 2
    --- stderr
    error[config-stream]: --stream: `repeats` is not a part of a stream; write DATASET, or DATASET,proportion=X, DATASET,repeat=X or DATASET,choose=N, each with or without ,view=FILE
    ");
    insta::assert_snapshot!(dir.shown(&["plan", "nowhere"]), @r"
    exit 2
    --- stderr
    error[not-found]: nowhere: cannot open the directory: No such file or directory (os error 2)
    ");
}
