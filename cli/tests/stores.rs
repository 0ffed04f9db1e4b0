//! Tests sources and datasets in stores: commands report the same about them as about local ones.

use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use shardmill_mds::{HashAlgo, hash_hex};
use shardmill_testing::s3::{Action, Fault, Flavor, Objects, S3Server, Script, Settings};

use super::common::{TestDir, rows};

/// A place whose files are in a store as well.
struct StoreCopy {
    dir: TestDir,
    server: S3Server,
}

/// What a command did: status, output, errors.
type CommandOutput = (i32, String, String);

impl StoreCopy {
    fn new(dir: TestDir) -> Self {
        let objects = Objects::folder("bucket", dir.path());
        let server = S3Server::start(objects, Settings::default()).unwrap();
        Self { dir, server }
    }

    fn output_of(&self, args: &[&str]) -> CommandOutput {
        let output = self
            .dir
            .command()
            .args(args)
            .envs(self.server.environment())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Says the same of a place here and there; answers how many requests that took.
    fn same(&self, verb: &str, dir: &str, more: &[&str]) -> (CommandOutput, u64) {
        let remote = format!("s3://bucket/{dir}");
        let args = |dir: &str| {
            let mut args: Vec<String> = verb.split(' ').map(str::to_owned).collect();
            args.push(dir.to_owned());
            args.extend(more.iter().map(|&text| text.to_owned()));
            args
        };
        let run = |args: &[String]| {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            self.output_of(&args)
        };
        let local = run(&args(dir));
        self.server.forget_counts();
        let output = run(&args(&remote));
        let requests = self.server.counts().requests;
        let bare = |(code, out, errors): &CommandOutput| {
            let plain = |text: &str| timeless(&text.replace("s3://bucket/", ""));
            (*code, plain(out), plain(errors))
        };
        assert_eq!(bare(&local), bare(&output), "{verb} {dir} {more:?}");
        (output, requests)
    }
}

/// Without what differs from run to run, and the line of an error about a source, which names its object otherwise.
fn timeless(text: &str) -> String {
    let mut plain = String::new();
    for line in text.lines() {
        let line = line.split(", in ").next().unwrap_or_default();
        if !line.contains("elapsed_seconds") {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

#[test]
fn mds_in_a_store_gives_the_same_output_as_local() {
    let store_copy = StoreCopy::new(TestDir::with_shards());
    let (output, requests) = store_copy.same("inspect", "shards", &[]);
    assert_eq!(output.0, 0, "{output:?}");
    // The index, the provenance, the list of late columns, and the note of an interrupted increment.
    assert_eq!(requests, 4);
    let (_, requests) = store_copy.same("inspect --shards", "shards", &["--json"]);
    assert_eq!(requests, 4);
    store_copy.same("inspect --shards", "shards/index.json", &[]);
    let (_, requests) = store_copy.same("cat", "shards", &["7"]);
    assert!(requests <= 6, "{requests}");
    store_copy.same("cat", "shards", &["25..65", "--column", "id"]);
    store_copy.same("cat", "shards", &["-1"]);
    let (output, _) = store_copy.same("verify", "shards", &["--deep", "--jobs", "3"]);
    assert!(output.1.contains("all is well"), "{output:?}");
    assert!(output.1.contains("content compared"), "{output:?}");
    store_copy.dir.write("shards/extra.bin", "x");
    let (output, _) = store_copy.same("verify", "shards", &[]);
    assert!(output.2.contains("file-unlisted"), "{output:?}");
}

#[test]
fn one_sample_of_a_raw_shard_reads_few_bytes() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(5000));
    dir.ok(&["convert", "data", "raw", "--compression", "none"]);
    let store_copy = StoreCopy::new(dir);
    store_copy.same("cat", "raw", &["4000"]);
    let counts = store_copy.server.counts();
    let whole = std::fs::metadata(store_copy.dir.path().join("raw/shard.00000.mds"));
    assert!(counts.bytes * 4 < whole.unwrap().len(), "{counts:?}");
}

#[test]
fn verify_finds_damage_in_a_store() {
    let store_copy = StoreCopy::new(TestDir::with_shards());
    let name = "shards/shard.00002.mds.zstd";
    let mut bytes = store_copy.dir.read(name);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    store_copy.dir.write(name, &bytes);
    let (output, _) = store_copy.same("verify", "shards", &[]);
    assert_eq!(output.0, 3, "{output:?}");
    std::fs::remove_file(store_copy.dir.path().join("shards/shard.00001.mds.zstd")).unwrap();
    let (output, _) = store_copy.same("verify", "shards", &["--jobs", "2"]);
    assert!(output.2.contains("shard-missing"), "{output:?}");
    let pin = format!("sha256:{}", "0".repeat(64));
    let (output, _) = store_copy.same("verify", "shards", &["--expect-index", &pin]);
    assert!(output.2.contains("index-mismatch"), "{output:?}");
}

#[test]
fn tars_in_a_store_give_the_same_output_as_local() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(60));
    let args = ["convert", "data", "tars", "--to", "webdataset"];
    dir.ok(&[&args[..], &["--samples-per-shard", "25"]].concat());
    let store_copy = StoreCopy::new(dir);
    for _ in 0..2 {
        for (verb, more) in [
            ("inspect", &[][..]),
            ("inspect --shards", &["--json"]),
            ("cat", &["30..33"]),
            ("verify", &["--deep"]),
        ] {
            let (output, _) = store_copy.same(verb, "tars", more);
            assert_eq!(output.0, 0, "{output:?}");
        }
        // The second time without an index, by what is there.
        let _ = std::fs::remove_file(store_copy.dir.path().join("tars/index.json"));
    }
    let names = std::fs::read_dir(store_copy.dir.path().join("tars")).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".tar"))
        .collect();
    names.sort();
    store_copy.same("inspect", &format!("tars/{}", names[0]), &[]);
}

#[test]
fn damaged_tars_in_a_store_give_the_same_output_as_local() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(60));
    for (to, more) in [("tars", "none"), ("packed", "zstd")] {
        let args = ["convert", "data", to, "--to", "webdataset"];
        let more = ["--compression", more, "--samples-per-shard", "25"];
        dir.ok(&[&args[..], &more].concat());
    }
    let mut cut = dir.read("tars/shard-000001.tar");
    cut.truncate(cut.len() / 2 + 100);
    dir.write("cut/0.tar", cut);
    let store_copy = StoreCopy::new(dir);
    for (name, code) in [
        ("tars", 0),
        ("packed", 3),
        ("tars/shard-000002.tar", 0),
        ("tars/index.json", 0),
        ("cut", 3),
        ("cut/0.tar", 3),
    ] {
        let (output, _) = store_copy.same("verify", name, &["--for", "wids,hf,open_clip"]);
        assert_eq!(output.0, code, "{name}: {}", output.2);
    }
    let output = store_copy.output_of(&["verify", "s3://bucket/nothing"]);
    assert_eq!(output.0, 2, "{output:?}");
    assert!(
        output
            .2
            .contains("error[index-missing]: s3://bucket/nothing"),
        "{output:?}"
    );
}

#[test]
fn large_tar_members_are_not_downloaded() {
    let dir = TestDir::new();
    for number in 0..3 {
        dir.write(&format!("tree/{number}.bin"), vec![number; 20 << 20]);
    }
    dir.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    let store_copy = StoreCopy::new(dir);
    let export = ["index", "export", "s3://bucket/tars", "--for", "dali"];
    assert_eq!(store_copy.output_of(&export).0, 0);
    let counts = store_copy.server.counts();
    assert!(counts.bytes < 36 << 20, "{counts:?}");
}

#[test]
fn index_export_writes_to_a_store() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(60));
    let args = ["convert", "data", "tars", "--to", "webdataset"];
    dir.ok(&[&args[..], &["--samples-per-shard", "25"]].concat());
    let names = |dir: &TestDir, folder: &str| {
        let entries = std::fs::read_dir(dir.path().join(folder)).unwrap();
        let files = entries.filter(|entry| entry.as_ref().unwrap().path().is_file());
        let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .map(|name| format!("{folder}/{name}"))
            .collect::<Vec<_>>()
    };
    let objects = names(&dir, "tars").into_iter().map(|name| {
        let bytes = dir.read(&name);
        (name, bytes)
    });
    let objects = Objects::memory("bucket", objects);
    let server = S3Server::start(objects, Settings::default()).unwrap();
    let store_copy = StoreCopy { dir, server };
    let readers = ["--for", "wids,dali,open_clip"];
    let export = |dir: &str, more: &[&str]| {
        store_copy.output_of(&[&["index", "export", dir], more].concat())
    };
    let local = export("tars", &readers);
    let there = export("s3://bucket/tars", &readers);
    assert_eq!((local.0, &local.2), (0, &String::new()));
    assert_eq!(there.1.replace("s3://bucket/", ""), local.1, "{there:?}");
    let mut wanted = names(&store_copy.dir, "tars");
    wanted.sort();
    let all = store_copy.server.objects().all();
    assert!(all.keys().eq(wanted.iter()), "{:?}", all.keys());
    for name in &wanted {
        assert!(all[name] == store_copy.dir.read(name), "{name}");
    }
    // The same again is no conflict; another object is.
    store_copy.server.forget_counts();
    assert_eq!(export("s3://bucket/tars/index.json", &readers).0, 0);
    assert_eq!(store_copy.server.counts().received, 0);
    store_copy
        .server
        .objects()
        .put("tars/sizes.json", b"{}".to_vec());
    let output = export("s3://bucket/tars", &readers);
    assert_eq!(output.0, 4, "{output:?}");
    assert!(
        output
            .2
            .contains("error[index-exists]: s3://bucket/tars/sizes.json: another file exists"),
        "{output:?}"
    );
    let output = export("s3://bucket/tars", &["--for", "open_clip", "--force"]);
    assert_eq!(output.0, 0, "{output:?}");
    assert!(store_copy.server.objects().all() == all);
    // Shards that a reader cannot read are named.
    let packed = ["convert", "data", "packed", "--to", "webdataset"];
    store_copy
        .dir
        .ok(&[&packed[..], &["--compression", "zstd"]].concat());
    for name in names(&store_copy.dir, "packed") {
        store_copy
            .server
            .objects()
            .put(&name, store_copy.dir.read(&name));
    }
    let output = export("s3://bucket/packed", &["--for", "wids"]);
    assert_eq!(output.0, 2, "{output:?}");
    assert!(
        output.2.contains("s3://bucket/packed/shard-000000.tar"),
        "{output:?}"
    );
    // A web server takes no objects, which is known before anything is read.
    let web = S3Server::start(
        Objects::folder("bucket", store_copy.dir.path()),
        Settings {
            flavor: Flavor::Web,
            ..Settings::default()
        },
    )
    .unwrap();
    let output = store_copy
        .dir
        .command()
        .args([
            "index",
            "export",
            &format!("{}/tars", web.url()),
            "--for",
            "wids",
        ])
        .envs(web.environment())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("error[store-unsupported]"), "{errors}");
    assert_eq!(web.counts().requests, 0);
}

#[test]
fn splits_are_found_below_a_store_prefix() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(60));
    dir.ok(&["convert", "data", "splits", "--split", "train=0.8,val=0.2"]);
    let store_copy = StoreCopy::new(dir);
    let (output, _) = store_copy.same("inspect", "splits", &[]);
    assert!(
        output.1.contains("train") && output.1.contains("val"),
        "{output:?}"
    );
    store_copy.same("verify", "splits", &[]);
    let (output, _) = store_copy.same("inspect --shards", "splits", &[]);
    assert!(output.2.contains("several-datasets"), "{output:?}");
    store_copy.same("inspect --shards", "splits/train", &[]);
}

#[test]
fn sources_in_a_store_are_inspected() {
    let dir = TestDir::new();
    dir.parquet("data/k=1/rows.parquet", &rows(60));
    dir.write("text/a.csv", "a,b\n1,x\n");
    dir.write("tree/1.txt", "one");
    let store_copy = StoreCopy::new(dir);
    for name in [
        "data",
        "data/k=1/rows.parquet",
        "text",
        "tree",
        "text/*.csv",
    ] {
        let (output, _) = store_copy.same("inspect", name, &[]);
        assert_eq!(output.0, 0, "{output:?}");
    }
    let output = store_copy.output_of(&["inspect", "s3://bucket/nothing"]);
    assert_eq!(output.0, 2, "{output:?}");
    assert!(output.2.contains("s3://bucket/nothing"), "{output:?}");
}

/// The files of a folder that hold data.
fn contents(dir: &TestDir, folder: &str) -> Vec<(String, Vec<u8>)> {
    let names = std::fs::read_dir(dir.path().join(folder)).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "index.provenance" && name != ".shardmill")
        .collect();
    names.sort();
    let read = |name: String| {
        let bytes = dir.read(&format!("{folder}/{name}"));
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn conversion_from_a_store_writes_the_same_bytes_as_local() {
    let dir = TestDir::with_shards();
    dir.parquet("data/more.parquet", &rows(500));
    dir.write("text/a.csv", "a,b\n1,x\n2,y\n");
    dir.write("lines/a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
    for number in 0..30 {
        dir.write(&format!("tree/{number}.txt"), format!("text {number}"));
    }
    dir.ok(&["convert", "data", "tars", "--to", "webdataset"]);
    let store_copy = StoreCopy::new(dir);
    let flaky = Settings {
        faults: Script::random(3, 10, vec![Fault::status(500), Fault::status(503)]),
        ..Settings::default()
    };
    let slow = Settings {
        latency: Duration::from_millis(5),
        ..Settings::default()
    };
    for settings in [flaky, slow] {
        store_copy.server.set(settings);
        for source in [
            "data",
            "text",
            "lines",
            "tree",
            "shards",
            "tars",
            "data/*.parquet",
        ] {
            let remote = format!("s3://bucket/{source}");
            for (from, to) in [(source, "here"), (remote.as_str(), "there")] {
                let _ = std::fs::remove_dir_all(store_copy.dir.path().join(to));
                let output =
                    store_copy.output_of(&["convert", from, to, "--samples-per-shard", "70"]);
                assert_eq!(output.0, 0, "{source}: {output:?}");
            }
            let (here, there) = (
                contents(&store_copy.dir, "here"),
                contents(&store_copy.dir, "there"),
            );
            assert!(here.len() > 1);
            assert!(here == there, "{source}");
        }
    }
}

#[test]
fn access_denied_error_names_the_store() {
    let store_copy = StoreCopy::new(TestDir::with_shards());
    store_copy.server.set(Settings {
        faults: Script::always(Fault::status(403)),
        ..Settings::default()
    });
    for verb in ["inspect", "cat", "verify"] {
        let output = store_copy.output_of(&[verb, "s3://bucket/shards"]);
        assert!(
            output.0 != 0 && output.2.contains("credentials"),
            "{verb}: {output:?}"
        );
        assert!(
            output.2.contains("s3://bucket/shards"),
            "{verb}: {output:?}"
        );
    }
    let output = store_copy.output_of(&["convert", "s3://bucket/data", "out"]);
    assert!(
        output.0 != 0 && output.2.contains("credentials"),
        "{output:?}"
    );
    let output = store_copy.output_of(&[
        "inspect",
        "--shards",
        "s3://bucket/shards",
        "--storage-option",
        "NONSENSE=1",
    ]);
    assert!(output.2.contains("url-setting"), "{output:?}");
}

/// Verbs that need no shard read the index, the provenance, the list of late columns and the note of an interrupted
/// increment.
#[test]
fn order_and_plan_in_a_store_equal_local() {
    let store_copy = StoreCopy::new(TestDir::with_shards());
    let (_, requests) = store_copy.same("order", "shards", &["--shuffle", "--nodes", "2"]);
    assert_eq!(requests, 4);
    let (_, requests) = store_copy.same("plan", "shards", &["--shuffle", "--nodes", "2", "--json"]);
    assert_eq!(requests, 4);
    let output = store_copy.output_of(&["order", "s3://bucket/nowhere"]);
    assert!(output.2.contains("error[index-missing]"), "{output:?}");
}

/// The index of tar files is the root of what is believed, as that of MDS is.
#[test]
fn expect_index_pins_the_tar_index() {
    let dir = TestDir::new();
    for sample in 0..5 {
        dir.write(&format!("tree/{sample}.txt"), format!("text {sample}"));
    }
    dir.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    let digest = hash_hex(HashAlgo::Sha256, &dir.read("tars/index.json"));
    let store_copy = StoreCopy::new(dir);
    let pin = format!("sha256:{digest}");
    for named in ["tars", "tars/index.json"] {
        let (output, _) = store_copy.same("verify", named, &["--expect-index", &pin]);
        assert!(output.1.contains("all is well"), "{output:?}");
    }
    let wrong = format!("sha256:{}", "0".repeat(64));
    let (output, _) = store_copy.same("verify", "tars", &["--expect-index", &wrong]);
    assert_eq!(output.0, 3, "{output:?}");
    assert!(output.2.contains("error[index-mismatch]"), "{output:?}");
    let file = "tars/shard-000000.tar";
    let (output, _) = store_copy.same("verify", file, &["--expect-index", &pin]);
    assert!(output.2.contains("a tar file has no index"), "{output:?}");
    std::fs::remove_file(store_copy.dir.path().join("tars/index.json")).unwrap();
    let (output, _) = store_copy.same("verify", "tars", &["--expect-index", &pin]);
    assert!(output.2.contains("error[index-missing]"), "{output:?}");
}

#[test]
fn unfinished_conversion_is_rejected_by_all_commands() {
    let dir = TestDir::with_tars();
    std::fs::remove_file(dir.path().join("tars/index.json")).unwrap();
    dir.write("tars/.shardmill/journal", "x");
    dir.write("begun/.shardmill/journal", "x");
    let store_copy = StoreCopy::new(dir);
    for verb in ["inspect", "inspect --shards", "cat", "verify"] {
        let (output, _) = store_copy.same(verb, "tars", &[]);
        let errors = &output.2;
        assert_eq!(output.0, 4, "{verb}: {errors}");
        assert!(
            errors.contains("error[dest-unfinished]"),
            "{verb}: {errors}"
        );
        assert!(output.1.is_empty(), "{verb}: {}", output.1);
        // The tar files that are there can be looked at one by one.
        let (output, _) = store_copy.same(verb, "tars/shard-000000.tar", &[]);
        assert_eq!(output.0, 0, "{verb}: {}", output.2);
    }
    for verb in ["inspect --shards", "cat", "verify"] {
        let (output, _) = store_copy.same(verb, "begun", &[]);
        assert_eq!(output.0, 2, "{verb}: {}", output.2);
        assert!(
            output.2.contains("a conversion into it is not finished"),
            "{verb}: {}",
            output.2
        );
    }
    for args in [
        &["convert", "s3://bucket/tars", "again"][..],
        &["convert", "tars", "again"],
        &["index", "export", "s3://bucket/tars", "--for", "wids"],
    ] {
        let output = store_copy.output_of(args);
        assert_eq!(output.0, 4, "{args:?}: {output:?}");
        assert!(
            output.2.contains("error[dest-unfinished]"),
            "{args:?}: {output:?}"
        );
        assert!(!store_copy.dir.exists("again"), "{args:?}");
    }
}

/// The options of two conversions that give the same names to different shards.
const RIVALS: [&str; 2] = ["7", "9"];

/// Starts both rivals at the same moment with the same destination.
fn race(dir: &TestDir, server: &S3Server, dest: &str, more: &[&str]) -> [CommandOutput; 2] {
    std::thread::scope(|scope| {
        let running = RIVALS.map(|samples| {
            scope.spawn(move || {
                let args = [
                    "convert",
                    "data",
                    dest,
                    "--compression",
                    "none",
                    "--jobs",
                    "1",
                ];
                let samples = ["--samples-per-shard", samples];
                command(dir, server, &[&args[..], &samples, more].concat())
            })
        });
        running.map(|running| running.join().unwrap())
    })
}

fn ended(output: &Output) -> CommandOutput {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Starts a store with an empty bucket, and a table of `files` files, the last of which has more rows.
fn with_rivals(files: usize, settings: Settings) -> (TestDir, S3Server) {
    let dir = TestDir::new();
    for file in 0..files {
        let count = if file + 1 == files { 60 } else { 40 };
        dir.parquet(&format!("data/{file}.parquet"), &rows(count));
    }
    let server = S3Server::start(Objects::memory("bucket", []), settings).unwrap();
    (dir, server)
}

fn command(dir: &TestDir, server: &S3Server, args: &[&str]) -> CommandOutput {
    ended(
        &dir.command()
            .args(args)
            .envs(server.environment())
            .output()
            .unwrap(),
    )
}

const PAIRS: usize = 12;

#[test]
fn store_that_honours_conditions_has_one_winner() {
    let (dir, server) = with_rivals(3, Settings::default());
    for pair in 0..PAIRS {
        let dest = format!("s3://bucket/{pair}");
        let both = race(&dir, &server, &dest, &[]);
        let winners = both.iter().filter(|(code, ..)| *code == 0).count();
        assert_eq!(winners, 1, "{both:?}");
        for (_, _, errors) in both.iter().filter(|(code, ..)| *code != 0) {
            let known = ["other-writer", "dest-conflict", "dest-not-empty"];
            let is_known = |id: &&str| errors.contains(&format!("error[{id}]"));
            assert!(known.iter().any(is_known), "{errors}");
        }
        let verified = command(&dir, &server, &["verify", &dest, "--deep"]);
        assert_eq!(verified.0, 0, "{verified:?}");
    }
}

#[test]
fn store_that_ignores_conditions_loses_nothing() {
    let settings = Settings {
        ignores_conditions: true,
        ..Settings::default()
    };
    let (dir, server) = with_rivals(3, settings);
    let dest = "s3://bucket/set";
    let made = command(&dir, &server, &["convert", "data", dest, "--single-writer"]);
    assert_eq!(made.0, 0, "{made:?}");
    let before = server.objects().all();
    for pair in 0..PAIRS {
        for (dest, more) in [(dest, &["--overwrite"][..]), ("s3://bucket/new", &[])] {
            for (code, _, errors) in race(&dir, &server, dest, more) {
                assert_eq!(code, 2, "{pair}: {errors}");
                assert!(errors.contains("error[store-unguarded]"), "{errors}");
                assert!(errors.contains("--single-writer"), "{errors}");
            }
            assert!(server.objects().all() == before, "{pair}");
        }
    }
    let verified = command(&dir, &server, &["verify", dest, "--deep"]);
    assert_eq!(verified.0, 0, "{verified:?}");
    // `doctor` says the same.
    let (code, shown, _) = command(&dir, &server, &["doctor", dest]);
    assert_eq!(code, 0);
    assert!(
        shown.contains("the existing object is overwritten"),
        "{shown}"
    );
    assert!(shown.contains("with --single-writer"), "{shown}");
    // So does `commit`, which writes under a lease as well.
    let part = ["convert", "data", "s3://bucket/parts", "--part", "0/1"];
    assert_eq!(command(&dir, &server, &part).0, 0);
    let (code, _, errors) = command(&dir, &server, &["commit", "s3://bucket/parts"]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("error[store-unguarded]"), "{errors}");
    let commit = ["commit", "s3://bucket/parts", "--single-writer"];
    assert_eq!(command(&dir, &server, &commit).0, 0);
}

/// The setting in the environment, as a storage option, and on the command line mean the same.
#[test]
fn single_writer_can_be_declared_in_three_ways() {
    let settings = Settings {
        ignores_conditions: true,
        ..Settings::default()
    };
    let (dir, server) = with_rivals(1, settings);
    let option = "SHARDMILL_SINGLE_WRITER=true";
    for (dest, more) in [
        ("s3://bucket/a", &["--single-writer"][..]),
        ("s3://bucket/b", &["--storage-option", option]),
        ("s3://bucket/c", &[]),
    ] {
        let mut command = dir.command();
        command.args(["convert", "data", dest]).args(more);
        command.envs(server.environment());
        if more.is_empty() {
            command.env("SHARDMILL_SINGLE_WRITER", "true");
        }
        let output = ended(&command.output().unwrap());
        assert_eq!(output.0, 0, "{dest}: {output:?}");
        assert!(
            server
                .objects()
                .all()
                .keys()
                .all(|key| !key.contains(".shardmill"))
        );
    }
}

/// While a conversion runs, another program replaces one of its shards and adds one. After the failure both are kept,
/// and everything else is gone.
#[test]
fn failed_conversion_removes_only_its_own_objects() {
    let (dir, server) = with_rivals(10, Settings::default());
    let server = Arc::new(server);
    let foreign = [
        "set/shard.00001.mds",
        "set/shard.99999.mds",
        "set/notes.txt",
    ];
    let store = Arc::downgrade(&server);
    server.set(Settings {
        ignores_conditions: true,
        faults: Script::by(move |asked| {
            if asked.action == Action::Put
                && asked.key == "set/shard.00008.mds"
                && let Some(server) = store.upgrade()
            {
                for key in foreign {
                    server.objects().put(key, b"theirs".to_vec());
                }
            }
            None
        }),
        ..Settings::default()
    });
    let args = [
        "convert",
        "data",
        "s3://bucket/set",
        "--compression",
        "none",
    ];
    // Only the last file has such rows.
    let column = ["--column", "id:int64=CASE WHEN id < 50 THEN id END"];
    let more = [
        "--samples-per-shard",
        "10",
        "--jobs",
        "1",
        "--single-writer",
    ];
    let output = command(&dir, &server, &[&args[..], &column, &more].concat());
    assert_eq!(output.0, 3, "{output:?}");
    assert!(output.2.contains("error[value-null]"), "{output:?}");
    let left: Vec<String> = server.objects().all().into_keys().collect();
    let mut foreign = foreign.to_vec();
    foreign.sort_unstable();
    assert_eq!(left, foreign);
}
