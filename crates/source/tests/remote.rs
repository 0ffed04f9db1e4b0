//! Tests sources in stores: they give the same rows as directories, without unnecessary requests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{BinaryArray, Int64Array, RecordBatch, StringArray};
use shardmill_core::{Error, ErrorKind};
use shardmill_source::{
    SelectColumn, Source, SourceKind, SourceOptions, detect, expand_patterns, open,
};
use shardmill_storage::{Location, RemoteOptions};
use shardmill_testing::s3::{Action, Fault, Flavor, Objects, S3Server, Script, Settings};

use crate::help::{TestDir, array, batch, batches, check_error, rows_per_group};

/// A directory, and the same files in a store.
struct StoreCopy {
    dir: TestDir,
    server: S3Server,
}

impl StoreCopy {
    fn with(settings: Settings) -> Self {
        let dir = TestDir::new();
        let server = S3Server::start(Objects::folder("bucket", &dir.path("")), settings).unwrap();
        Self { dir, server }
    }

    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn options(&self) -> SourceOptions {
        let mut remote = RemoteOptions {
            settings: self.server.environment(),
            ..RemoteOptions::default()
        };
        remote.retry.back_off = Duration::from_millis(1);
        remote.retry.budget_percent = 100;
        SourceOptions {
            remote,
            ..SourceOptions::default()
        }
    }

    fn at(&self, name: &str) -> Location {
        Location::parse(&format!("{}/{name}", self.server.url())).unwrap()
    }

    fn local(&self, name: &str) -> Location {
        self.dir.path(name).into()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Source>, Error> {
        open(&[self.at(name)], &self.options())
    }

    fn refused(&self, name: &str) -> Error {
        check_error(self.open(name).err().unwrap())
    }

    /// Reads both, and checks that they agree in rows, schema and description.
    fn compare(&self, name: &str, change: impl Fn(&mut SourceOptions)) -> Vec<RecordBatch> {
        let mut options = self.options();
        change(&mut options);
        let local = open(&[self.local(name)], &options).unwrap();
        let remote = open(&[self.at(name)], &options).unwrap();
        assert_eq!(local.schema(), remote.schema(), "{name}");
        assert_eq!(local.units(), remote.units(), "{name}");
        let (ours, theirs) = (local.description(), remote.description());
        assert_eq!((ours.kind, ours.rows), (theirs.kind, theirs.rows), "{name}");
        assert_eq!((ours.bytes, &ours.tree), (theirs.bytes, &theirs.tree));
        let names = |source: &dyn Source, root: &Location| -> Vec<String> {
            let root = match root {
                Location::Local(path) => path.display().to_string(),
                Location::Remote(remote) => remote.to_string(),
            };
            let files = source.description().files.iter();
            files
                .map(|file| file.path.strip_prefix(&root).unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            names(local.as_ref(), &self.local("")),
            names(remote.as_ref(), &self.at(""))
                .iter()
                .map(|name| name.trim_start_matches('/').to_owned())
                .collect::<Vec<_>>(),
        );
        let found = batches(remote.as_ref()).unwrap();
        assert_eq!(batches(local.as_ref()).unwrap(), found, "{name}");
        // Read twice, to check cached and prefetched data as well.
        assert_eq!(batches(remote.as_ref()).unwrap(), found, "{name}");
        found
    }
}

fn rows(from: i64, count: i64) -> RecordBatch {
    let numbers = from..from + count;
    let text = |number: i64| format!("row {number} {}", "x".repeat(100));
    batch(vec![
        ("id", array(Int64Array::from_iter_values(numbers.clone()))),
        (
            "text",
            array(StringArray::from_iter_values(numbers.map(text))),
        ),
    ])
}

/// Writes `count` Parquet files, each with 4 row groups of 25 rows.
fn tables(store_copy: &StoreCopy, count: i64) {
    for number in 0..count {
        let name = format!("t/k={}/part-{number}.parquet", number % 3);
        let rows = rows(number * 100, 100);
        store_copy.dir.parquet(&name, &rows, rows_per_group(25));
    }
    store_copy.dir.write("t/_SUCCESS", "");
    store_copy.dir.write("t/_delta/part-9.parquet", "not read");
}

#[test]
fn parquet_reads_equally_from_store_and_directory() {
    let store_copy = StoreCopy::with(Settings {
        page: Some(5),
        ..Settings::default()
    });
    tables(&store_copy, 12);
    let found = store_copy.compare("t", |_| {});
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 1200);
    assert_eq!(found[0].schema().field(2).name(), "k");
    store_copy.compare("t/k=1/part-1.parquet", |_| {});
    store_copy.compare("t/k=1", |options| options.resources.jobs = 3);
    store_copy.compare("t", |options| {
        options.query.columns = vec![SelectColumn::named("k")]
    });
    store_copy.compare("t", |options| {
        options.query.filter = Some("id >= 1150".to_owned())
    });
    store_copy.compare("t", |options| {
        options.query.select = Some("id + 1 AS next".to_owned())
    });
    store_copy.compare("t", |options| {
        options.query.sql = Some("SELECT id FROM source WHERE id % 100 = 7 ORDER BY id".to_owned());
    });
}

#[test]
fn glob_patterns_match_names_and_folders_in_a_store() {
    let store_copy = StoreCopy::new();
    tables(&store_copy, 6);
    for pattern in [
        "t/k*/*.parquet",
        "t/k=*",
        "t/k=[01]/part-[0-9].parquet",
        "t/k=2*",
        "t/k=0/**/*.parquet",
    ] {
        store_copy.compare(pattern, |options| options.kind = Some(SourceKind::Parquet));
    }
    let options = store_copy.options();
    let expanded = expand_patterns(&[store_copy.at("t/k=*")], &options.remote).unwrap();
    assert_eq!(
        expanded,
        ["t/k=0", "t/k=1", "t/k=2"].map(|name| store_copy.at(name))
    );
    assert_eq!(store_copy.refused("t/z*.parquet").id(), "source-not-found");
    assert_eq!(store_copy.refused("t/k=[1").id(), "source-option");
}

#[test]
fn only_selected_columns_and_row_groups_are_fetched() {
    let store_copy = StoreCopy::new();
    let text: Vec<String> = (0..20_000).map(|n| format!("{n:x}").repeat(40)).collect();
    let rows = batch(vec![
        ("text", array(StringArray::from_iter_values(&text))),
        ("id", array(Int64Array::from_iter_values(0..20_000))),
    ]);
    store_copy
        .dir
        .parquet("x.parquet", &rows, rows_per_group(5000));
    let whole = std::fs::metadata(store_copy.dir.path("x.parquet"))
        .unwrap()
        .len();
    let mut options = store_copy.options();
    options.query.columns = vec![SelectColumn::named("id")];
    options.query.filter = Some("id >= 15000".to_owned());
    let source = open(&[store_copy.at("x.parquet")], &options).unwrap();
    // Three requests: for the kind, for the length, and for the end of the file.
    assert_eq!(store_copy.server.counts().requests, 3);
    let opened = store_copy.server.counts().bytes;
    assert!(opened <= 64 << 10, "{opened} bytes");
    let found = batches(source.as_ref()).unwrap();
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 5000);
    let counts = store_copy.server.counts();
    assert_eq!(counts.requests, 4, "{counts:?}");
    // A quarter of the column of 160,000 bytes, in a file with more bytes than that.
    assert!(
        whole > 200_000 && counts.bytes - opened < 60_000,
        "{whole} {counts:?}"
    );
}

#[test]
fn text_and_arrow_read_equally_from_store_and_directory() {
    let store_copy = StoreCopy::new();
    for number in 0..5 {
        let lines: String = (0..200)
            .map(|row| format!("{number},{row},text {row}\n"))
            .collect();
        store_copy
            .dir
            .write(&format!("c/{number}.csv"), format!("a,b,c\n{lines}"));
        let lines: String = (0..200)
            .map(|row| format!("{{\"a\": {number}, \"b\": [{row}]}}\n"))
            .collect();
        store_copy.dir.write(&format!("j/d/{number}.jsonl"), lines);
        let mut bytes = Vec::new();
        let rows = rows(number * 100, 100);
        let mut writer =
            arrow::ipc::writer::FileWriter::try_new(&mut bytes, &rows.schema()).unwrap();
        for from in [0, 50] {
            writer.write(&rows.slice(from, 50)).unwrap();
        }
        writer.finish().unwrap();
        drop(writer);
        store_copy.dir.write(&format!("a/{number}.arrow"), bytes);
    }
    for name in ["c", "j", "a", "c/3.csv", "j/d/*.jsonl", "a/4.arrow"] {
        store_copy.compare(name, |_| {});
    }
    // Each file is requested once, and then read from disk.
    store_copy.server.forget_counts();
    let source = store_copy.open("c").unwrap();
    batches(source.as_ref()).unwrap();
    let counts = store_copy.server.counts();
    assert_eq!(counts.by_action[&Action::Get], 5, "{counts:?}");
}

#[test]
fn record_files_read_equally_from_store_and_directory() {
    let store_copy = StoreCopy::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    for (from, to) in [
        ("tfrecord-1.14.6/examples.tfrecord", "records/a.tfrecord"),
        (
            "tfrecord-1.14.6/examples.tfrecord.gz",
            "records/b.tfrecord.gz",
        ),
    ] {
        let bytes = std::fs::read(fixtures.join(from)).unwrap();
        store_copy.dir.write(to, bytes);
    }
    for (name, kind, rows) in [
        ("records", SourceKind::Tfrecord, 10),
        ("records", SourceKind::TfrecordRaw, 10),
    ] {
        let found = store_copy.compare(name, |options| options.kind = Some(kind));
        let count: usize = found.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(count, rows, "{name}");
    }
}

#[test]
fn large_json_lines_read_equally_from_store_and_directory() {
    let store_copy = StoreCopy::new();
    let lines: String = (0..300_000)
        .map(|row| format!("{{\"n\": {row}, \"text\": \"{}\"}}\n", "y".repeat(60)))
        .collect();
    store_copy.dir.write("big.jsonl", lines);
    let found = store_copy.compare("big.jsonl", |_| {});
    assert_eq!(
        found.iter().map(RecordBatch::num_rows).sum::<usize>(),
        300_000
    );
}

#[test]
fn trees_read_equally_from_store_and_directory() {
    let store_copy = StoreCopy::with(Settings {
        page: Some(7),
        ..Settings::default()
    });
    for number in 0..40 {
        store_copy
            .dir
            .write(&format!("t/a/{number:02}.jpg"), vec![number; 100]);
        store_copy
            .dir
            .write(&format!("t/a/{number:02}.txt"), format!("text {number}"));
    }
    store_copy.dir.write("t/b/only.json", "{}");
    store_copy.dir.write("t/.hidden", "1");
    store_copy.compare("t", |options| options.kind = Some(SourceKind::Tree));
    store_copy.compare("t/a", |_| {});
    store_copy.compare("t/*", |options| options.kind = Some(SourceKind::Tree));
    store_copy.compare("t/a", |options| {
        options.query.columns = vec![SelectColumn::named("txt")]
    });
}

#[test]
fn source_kind_is_detected_from_a_listing() {
    let store_copy = StoreCopy::new();
    for (folder, names, kind) in [
        (
            "d",
            &["_delta_log/0.json", "x.parquet"][..],
            SourceKind::Delta,
        ),
        ("m", &["index.json", "shard.00000.mds"], SourceKind::Mds),
        (
            "p",
            &["k=1/a.parquet", "_SUCCESS", "readme.txt"],
            SourceKind::Parquet,
        ),
        ("c", &["a.csv", "b.csv.gz"], SourceKind::Csv),
        ("v", &["a.tsv", "README.md"], SourceKind::Tsv),
        ("t", &["a.txt", "a.jpg"], SourceKind::Tree),
        ("w", &["0.tar", "1.tar"], SourceKind::Webdataset),
    ] {
        for name in names {
            store_copy.dir.write(&format!("{folder}/{name}"), "x");
        }
        let found = detect(&[store_copy.at(folder)], &store_copy.options().remote).unwrap();
        assert_eq!(found, kind, "{folder}");
    }
    store_copy.dir.write(
        "i/index.json",
        "{\"format\": \"webdataset\", \"shards\": []}",
    );
    let detected = |name: &str| detect(&[store_copy.at(name)], &store_copy.options().remote);
    assert_eq!(detected("i").unwrap(), SourceKind::Webdataset);
    assert_eq!(detected("p/k=1/a.parquet").unwrap(), SourceKind::Parquet);
    assert_eq!(detected("p/k=*").unwrap(), SourceKind::Parquet);
    store_copy.dir.write("p/photo.jpg", "x");
    let error = detected("p").unwrap_err();
    assert!(error.to_string().contains("photo.jpg"), "{error}");
    // A stray file counts wherever it is in the listing.
    for number in 0..1001 {
        store_copy.dir.write(&format!("s/A{number:04}.jpg"), "");
    }
    assert_eq!(detected("s").unwrap(), SourceKind::Tree);
    store_copy.dir.write("s/b/old.tar", "");
    let error = detected("s").unwrap_err();
    assert_eq!(error.id(), "source-mixed");
    let text = error.to_string();
    assert!(
        text.contains("s3://bucket/s/b/old.tar") && text.contains("A0000.jpg"),
        "{text}"
    );
    assert_eq!(detected("s*").unwrap_err().id(), "source-mixed");
    store_copy
        .dir
        .write("u/train/index.json", "{\"shards\": []}");
    let error = detected("u").unwrap_err().to_string();
    assert!(error.contains("such as train"), "{error}");
    assert_eq!(detected("gone").unwrap_err().id(), "source-not-found");
    // A log and an index that come after the first page of the listing.
    for number in 0..1001 {
        store_copy.dir.write(&format!("long/A{number:04}"), "");
    }
    store_copy.dir.write("long/index.json", "{}");
    assert_eq!(detected("long").unwrap(), SourceKind::Mds);
    store_copy.dir.write("long/_delta_log/0.json", "{}");
    assert_eq!(detected("long").unwrap(), SourceKind::Delta);
}

#[test]
fn object_changed_after_opening_is_an_error() {
    for text in ["the same length", "another length"] {
        let store_copy = StoreCopy::new();
        let at = "the same height";
        store_copy.dir.write("c/a.csv", format!("h\n{at}\n"));
        store_copy.dir.write("c/b.csv", "h\n1\n");
        store_copy.dir.write("t/a.txt", at);
        tables(&store_copy, 2);
        let before = store_copy
            .open("c")
            .unwrap()
            .description()
            .fingerprint
            .clone();
        let tree = store_copy.open("t/a.txt").err();
        assert!(tree.is_some(), "a single file is no tree");
        let mut options = store_copy.options();
        options.kind = Some(SourceKind::Tree);
        let tree = open(&[store_copy.at("t")], &options).unwrap();
        let table = store_copy.open("t/k=0").unwrap();
        store_copy.dir.write("t/a.txt", text);
        store_copy.dir.write("c/a.csv", format!("h\n{text}\n"));
        let other = rows(7, 100);
        store_copy
            .dir
            .parquet("t/k=0/part-0.parquet", &other, rows_per_group(25));
        for source in [tree, table] {
            let error = check_error(batches(source.as_ref()).unwrap_err());
            assert_eq!(
                (error.id(), error.kind()),
                ("source-changed", ErrorKind::Corrupt),
                "{error}"
            );
            assert!(error.object().unwrap().starts_with("s3://bucket/t/"));
        }
        let after = store_copy
            .open("c")
            .unwrap()
            .description()
            .fingerprint
            .clone();
        assert_ne!(before, after);
    }
}

#[test]
fn fingerprint_of_store_source_depends_on_contents() {
    let store_copy = StoreCopy::new();
    store_copy.dir.write("c/a.csv", "h\n1\n");
    let of = |name: &str| {
        store_copy
            .open(name)
            .unwrap()
            .description()
            .fingerprint
            .clone()
    };
    let first = of("c");
    assert_eq!(of("c"), first);
    assert_eq!(of("c/*.csv"), first);
    store_copy.dir.write("c/a.csv", "h\n2\n");
    assert_ne!(of("c"), first);
}

#[test]
fn missing_or_forbidden_object_is_an_error() {
    let store_copy = StoreCopy::new();
    tables(&store_copy, 3);
    for name in ["nothing", "nothing.parquet", "nothing/*.csv"] {
        let error = store_copy.refused(name);
        assert_eq!(error.id(), "source-not-found", "{name}");
        assert!(error.object().unwrap().contains("s3://bucket/nothing"));
    }
    let source = store_copy.open("t").unwrap();
    std::fs::remove_file(store_copy.dir.path("t/k=1/part-1.parquet")).unwrap();
    let error = check_error(batches(source.as_ref()).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.object().unwrap(), "s3://bucket/t/k=1/part-1.parquet");
    store_copy.server.set(Settings {
        faults: Script::always(Fault::status(403)),
        ..Settings::default()
    });
    let error = store_copy.refused("t");
    assert_eq!(
        (error.id(), error.kind()),
        ("credentials", ErrorKind::Permission)
    );
    let mut options = store_copy.options();
    options
        .remote
        .settings
        .retain(|name, _| name == "AWS_ENDPOINT_URL");
    options
        .remote
        .settings
        .insert("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned());
    let error = open(&[store_copy.at("t")], &options).err().unwrap();
    assert_eq!(error.id(), "credentials", "{error}");
}

#[test]
fn object_names_invalid_as_paths_are_rejected() {
    let objects = [
        ("t/a.csv", "h\n1\n"),
        ("t/", ""),
        ("t/sub/", ""),
        ("u/a//b.csv", "h\n1\n"),
        ("v/x", ""),
        ("v/a//b.csv", "h\n1\n"),
    ];
    let objects = objects.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    let server = S3Server::start(Objects::memory("bucket", objects), Settings::default()).unwrap();
    let options = SourceOptions {
        remote: RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        },
        ..SourceOptions::default()
    };
    let at = |name: &str| Location::parse(&format!("s3://bucket/{name}")).unwrap();
    let found = open(&[at("t")], &options).unwrap();
    assert_eq!(found.description().files.len(), 1);
    let error = check_error(open(&[at("u")], &options).err().unwrap());
    assert_eq!(error.id(), "path-traversal", "{error}");
    assert!(error.object().unwrap().contains("a//b.csv"), "{error:?}");
    let tree = SourceOptions {
        kind: Some(SourceKind::Tree),
        ..options.clone()
    };
    assert!(
        open(&[at("v")], &tree)
            .err()
            .unwrap()
            .object()
            .unwrap()
            .contains("a//b.csv")
    );
    // For an explicit table, names need not be checked.
    let parquet = SourceOptions {
        kind: Some(SourceKind::Parquet),
        ..options
    };
    assert_eq!(
        open(&[at("v")], &parquet).unwrap_err_id(),
        "parquet-truncated"
    );
}

/// Returns the id of an expected error.
trait UnwrapErrId {
    fn unwrap_err_id(self) -> &'static str;
}

impl UnwrapErrId for Result<Arc<dyn Source>, Error> {
    fn unwrap_err_id(self) -> &'static str {
        self.err().unwrap().id()
    }
}

#[test]
fn overlapping_source_and_destination_are_an_error() {
    let store_copy = StoreCopy::new();
    tables(&store_copy, 1);
    let with = |exclude: Location, name: &str| {
        let mut options = store_copy.options();
        options.files.destination = Some(exclude);
        open(&[store_copy.at(name)], &options).map(|_| ())
    };
    with(store_copy.at("out"), "t").unwrap();
    with(store_copy.at("tt"), "t").unwrap();
    with(store_copy.local("t"), "t").unwrap();
    with(store_copy.at("t/out"), "t/k=*/*.parquet").unwrap();
    for (exclude, name) in [
        ("t/out", "t"),
        ("t", "t"),
        ("", "t"),
        ("t/k=0", "t/k=0/part-0.parquet"),
        ("t/k=0/x", "t/k=*"),
    ] {
        let error = with(store_copy.at(exclude), name).unwrap_err();
        assert_eq!(error.id(), "tree-overlap", "{exclude} {name}");
        assert!(
            error.object().unwrap().starts_with("s3://bucket"),
            "{error:?}"
        );
    }
}

#[test]
fn transient_server_errors_do_not_change_the_rows() {
    let store_copy = StoreCopy::new();
    tables(&store_copy, 8);
    for number in 0..50 {
        store_copy
            .dir
            .write(&format!("tree/{number}.txt"), format!("text {number}"));
    }
    for (seed, name) in [(1, "t"), (2, "tree"), (3, "t/k=0")] {
        store_copy.server.set(Settings {
            faults: Script::random(seed, 10, vec![Fault::status(500), Fault::status(503)]),
            ..Settings::default()
        });
        store_copy.compare(name, |_| {});
    }
    assert!(store_copy.server.counts().faults > 5);
}

#[test]
fn web_server_serves_single_files_but_not_patterns() {
    let store_copy = StoreCopy::with(Settings {
        flavor: Flavor::Web,
        ..Settings::default()
    });
    tables(&store_copy, 1);
    let found = store_copy.compare("t/k=0/part-0.parquet", |_| {});
    assert_eq!(found.len(), 4);
    assert_eq!(
        store_copy.refused("t/k=0/gone.parquet").id(),
        "source-not-found"
    );
    let error = store_copy.refused("t/k=0/*.parquet");
    assert_eq!(error.id(), "store-unsupported", "{error}");
}

#[test]
fn every_store_kind_reads_like_a_directory() {
    for flavor in Flavor::WRITABLE {
        let settings = Settings {
            flavor,
            ..Settings::default()
        };
        let dir = TestDir::new();
        let bucket = if flavor == Flavor::Files {
            "c/s/v"
        } else {
            "bucket"
        };
        let server = S3Server::start(Objects::folder(bucket, &dir.path("")), settings).unwrap();
        let store_copy = StoreCopy { dir, server };
        tables(&store_copy, 4);
        store_copy.dir.write("c/a.csv", "h\n1\n");
        store_copy.compare("t", |_| {});
        store_copy.compare("c", |_| {});
        let source = store_copy.open("c").unwrap();
        let found = batches(source.as_ref()).unwrap();
        assert_eq!(found.len(), 1);
    }
}

/// Reads small objects with a latency of 20 ms. With `SHARDMILL_OBJECTS=20000` there are 20,000 of them, which take 400
/// s one after the other.
#[test]
fn small_objects_are_read_concurrently() {
    let count = std::env::var("SHARDMILL_OBJECTS").ok();
    let count = count.and_then(|text| text.parse().ok());
    let count: usize = count.unwrap_or(if cfg!(debug_assertions) { 500 } else { 4000 });
    let objects = (0..count).map(|number| (format!("t/{number:05}.bin"), vec![1; 4096]));
    let settings = Settings {
        latency: Duration::from_millis(20),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::memory("bucket", objects), settings).unwrap();
    let options = SourceOptions {
        kind: Some(SourceKind::Tree),
        remote: RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        },
        ..SourceOptions::default()
    };
    let start = Instant::now();
    let source = open(&[Location::parse("s3://bucket/t").unwrap()], &options).unwrap();
    let listed = start.elapsed();
    let found = batches(source.as_ref()).unwrap();
    let read = start.elapsed() - listed;
    println!("{count} objects: listed in {listed:?}, read in {read:?}");
    let rows: usize = found.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, count);
    let data = found[0]
        .column(1)
        .as_any()
        .downcast_ref::<BinaryArray>()
        .unwrap();
    assert_eq!(data.value(0), vec![1; 4096]);
    let in_turn = Duration::from_millis(20) * u32::try_from(count).unwrap();
    assert!(read < in_turn / 16, "{read:?} of {in_turn:?}");
}

#[test]
fn temporary_files_are_unnamed() {
    let store_copy = StoreCopy::new();
    tables(&store_copy, 3);
    store_copy.dir.write("c/a.csv", "h\n1\n");
    let room = TestDir::new();
    let mut options = store_copy.options();
    options.resources.temp_dir = Some(room.path(""));
    let empty = |path: &Path| std::fs::read_dir(path).unwrap().next().is_none();
    for name in ["t", "c"] {
        let source = open(&[store_copy.at(name)], &options).unwrap();
        assert!(empty(&room.path("")));
        let mut rows = source.open_unit(0).unwrap();
        assert!(empty(&room.path("")));
        rows.next_batch().unwrap();
    }
    options.resources.temp_dir = Some(room.path("gone"));
    let error = open(&[store_copy.at("t")], &options).err().unwrap();
    assert!(error.object().unwrap().ends_with("gone"), "{error:?}");
}
