//! Tests `convert --to parquet`: the files, their rows, resuming, and what it excludes.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use shardmill_convert::{ConvertOptions, Outcome};
use shardmill_core::Progress;
use shardmill_storage::Location;
use shardmill_writer::ShardFormat;

use crate::common::TestDir;

/// A place with a folder `rows` of 3,000 rows in three CSV files.
fn dir() -> TestDir {
    let dir = TestDir::new();
    for file in 0..3 {
        let rows = (file * 1000..(file + 1) * 1000).map(|id| match id % 10 {
            0 => format!("{id},\n"),
            _ => format!("{id},text {id}\n"),
        });
        let text = format!("id,text\n{}", rows.collect::<String>());
        dir.write(&format!("rows/{file}.csv"), text);
    }
    dir
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Reads the files of a table in the order of their names. Returns the numbers of rows of the row groups, too.
fn read(folder: &Path) -> (RecordBatch, Vec<i64>) {
    let mut batches = Vec::new();
    let mut groups = Vec::new();
    for name in files(folder)
        .iter()
        .filter(|name| name.ends_with(".parquet"))
    {
        let file = File::open(folder.join(name)).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let rows = builder.metadata().row_groups().iter();
        groups.extend(rows.map(|group| group.num_rows()));
        batches.extend(builder.build().unwrap().map(Result::unwrap));
    }
    let schema = batches[0].schema();
    (
        arrow::compute::concat_batches(&schema, &batches).unwrap(),
        groups,
    )
}

#[test]
fn rows_keep_types_order_and_nulls() {
    let dir = dir();
    let command = [
        "convert",
        "rows",
        "out",
        "--to",
        "parquet",
        "--samples-per-shard",
        "700",
    ];
    dir.ok(&[&command[..], &["--row-group-size", "10KiB"]].concat());
    let folder = dir.path().join("out");
    assert_eq!(
        files(&folder),
        [
            ".index.json",
            ".index.provenance",
            "shard-000000.parquet",
            "shard-000001.parquet",
            "shard-000002.parquet",
            "shard-000003.parquet",
            "shard-000004.parquet",
        ]
    );
    let (rows, groups) = read(&folder);
    assert!(
        groups.len() > 5 && groups.iter().sum::<i64>() == 3000,
        "{groups:?}"
    );
    let ids = rows
        .column_by_name("id")
        .unwrap()
        .as_primitive::<Int64Type>();
    assert!(ids.values().iter().copied().eq(0..3000));
    let texts = rows.column_by_name("text").unwrap().as_string::<i32>();
    assert_eq!(texts.null_count(), 300);
    assert_eq!(texts.value(2999), "text 2999");
    let index: Value = serde_json::from_slice(&dir.read("out/.index.json")).unwrap();
    assert_eq!(index["files"][4]["rows"], 200);
    assert_eq!(
        index["files"][0]["hashes"]["sha256"]
            .as_str()
            .unwrap()
            .len(),
        64
    );
    // It is a table again, and the same command finds nothing to do.
    assert_eq!(
        dir.ok(&["head", "out", "-n", "3", "--json"])
            .lines()
            .count(),
        3
    );
    let again = dir.ok(&[&command[..], &["--row-group-size", "10KiB", "--json"]].concat());
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["outcome"], "already_done");
    let ran = dir.run(&command);
    assert!(
        ran.code != 0 && ran.stderr.contains("row_group_bytes"),
        "{}",
        ran.stderr
    );
}

#[test]
fn bytes_do_not_depend_on_jobs_or_interruption() {
    let dir = dir();
    let options = |dest: &str, jobs: usize| {
        let source = Location::parse(dir.path().join("rows").to_str().unwrap()).unwrap();
        let dest = Location::parse(dir.path().join(dest).to_str().unwrap()).unwrap();
        let mut options = ConvertOptions::new(vec![source], dest);
        options.shards.to = ShardFormat::Parquet;
        options.shards.samples_per_shard = Some(40);
        options.source.resources.jobs = jobs;
        options
    };
    let run = |dest: &str, jobs: usize, progress: &Progress| {
        shardmill_convert::run(
            shardmill_convert::plan(options(dest, jobs)).unwrap(),
            progress,
        )
    };
    run("one", 1, &Progress::new()).unwrap();
    let index = dir.read("one/.index.json");
    run("four", 4, &Progress::new()).unwrap();
    assert_eq!(dir.read("four/.index.json"), index);
    let progress = Progress::new();
    let interrupted = std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.snapshot().shards < 5 {
                std::thread::yield_now();
            }
            progress.cancel();
        });
        run("stopped", 2, &progress)
    });
    assert!(
        interrupted.is_err(),
        "75 files are not written before 5 are counted"
    );
    assert!(!dir.path().join("stopped/.index.json").exists());
    let report = run("stopped", 3, &Progress::new()).unwrap();
    let Outcome::Resumed { reused_shards } = report.outcome else {
        panic!("{:?}", report.outcome);
    };
    assert!(reused_shards >= 5);
    assert_eq!(dir.read("stopped/.index.json"), index);
    assert_eq!(
        read(&dir.path().join("stopped")).0,
        read(&dir.path().join("one")).0
    );
}

#[test]
fn verify_finds_damaged_parquet_files() {
    let dir = dir();
    let command = [
        "convert",
        "rows",
        "out",
        "--to",
        "parquet",
        "--samples-per-shard",
        "900",
    ];
    dir.ok(&command);
    for how in [&[][..], &["--deep"]] {
        let shown = dir.ok(&[&["verify", "out"][..], how].concat());
        assert!(
            shown.contains("all is well: 3,000 samples in 4 shards"),
            "{shown}"
        );
    }
    let file = dir.path().join("out/shard-000002.parquet");
    let bytes = std::fs::read(&file).unwrap();
    let mut flipped = bytes.clone();
    flipped[100] ^= 1;
    for (damaged, id) in [
        (&flipped[..], "hash-mismatch"),
        (&bytes[1..], "shard-length"),
    ] {
        std::fs::write(&file, damaged).unwrap();
        let ran = dir.run(&["verify", "out"]);
        let line = format!("error[{id}]: out/shard-000002.parquet: ");
        assert!(
            ran.code == 3 && ran.stderr.contains(&line),
            "{}",
            ran.stderr
        );
        assert!(
            ran.stdout.contains("1 problem in 1 of 4 shards"),
            "{}",
            ran.stdout
        );
    }
    std::fs::remove_file(&file).unwrap();
    let ran = dir.run(&["verify", "out"]);
    assert!(
        ran.stderr.contains("error[shard-missing]"),
        "{}",
        ran.stderr
    );
    let ran = dir.run(&command);
    assert!(ran.stderr.contains("error[dest-damaged]"), "{}", ran.stderr);
    // An index without hashes, whose file is another table.
    dir.ok(&[
        "convert", "rows", "bare", "--to", "parquet", "--hashes", "none",
    ]);
    let index = String::from_utf8(dir.read("bare/.index.json")).unwrap();
    dir.write(
        "bare/.index.json",
        index.replace("\"rows\":3000", "\"rows\":2999"),
    );
    dir.ok(&["verify", "bare"]);
    let ran = dir.run(&["verify", "bare", "--deep"]);
    assert!(
        ran.stderr.contains("error[shard-samples]"),
        "{}",
        ran.stderr
    );
    dir.write("bare/.index.json", "{\"files\":[{}],\"version\":1}");
    let ran = dir.run(&["verify", "bare"]);
    assert!(ran.stderr.contains("error[index-syntax]"), "{}", ran.stderr);
}

#[test]
fn mds_arrays_round_trip_through_parquet_lists() {
    let dir = TestDir::new();
    let lists = |from: i32| format!("[{from}, {}]", from + 1);
    let rows = (0..50).map(|id| {
        let nested = format!("[{}, {}, {}]", lists(id), lists(id + 1), lists(id + 2));
        format!(
            "{{\"one\": {}, \"two\": {nested}, \"text\": \"t{id}\"}}\n",
            lists(id)
        )
    });
    dir.write("in.jsonl", rows.collect::<String>());
    let columns = [
        "--column",
        "one:ndarray:int32",
        "--column",
        "two:ndarray:int32",
        "--column",
        "text",
    ];
    dir.ok(&[&["convert", "in.jsonl", "mds"][..], &columns].concat());
    dir.ok(&["convert", "mds", "table", "--to", "parquet"]);
    let (rows, _) = read(&dir.path().join("table"));
    let two = rows.column_by_name("two").unwrap();
    let inner = two.as_list::<i32>().value(7);
    let numbers = inner.as_list::<i32>().value(2);
    assert_eq!(numbers.as_primitive::<Int32Type>().values(), &[9, 10]);
    assert_eq!(
        rows.column_by_name("text").unwrap().data_type(),
        &DataType::Utf8
    );
    dir.ok(&["convert", "table", "back"]);
    assert_eq!(
        dir.ok(&["cat", "mds", "0.."]),
        dir.ok(&["cat", "back", "0.."])
    );
}

#[test]
fn tar_fields_are_typed_by_extension() {
    let dir = TestDir::new();
    for key in ["a", "b"] {
        dir.write(&format!("tree/{key}.txt"), format!("text of {key}"));
        dir.write(&format!("tree/{key}.cls"), " 7\n");
        dir.write(&format!("tree/{key}.bin"), b"\xff\x00");
    }
    dir.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    dir.ok(&["convert", "tars", "table", "--to", "parquet"]);
    let (rows, _) = read(&dir.path().join("table"));
    let column = |name: &str| Arc::clone(rows.column_by_name(name).unwrap());
    assert_eq!(column("txt").as_string::<i32>().value(1), "text of b");
    assert_eq!(column("cls").as_primitive::<Int64Type>().values(), &[7, 7]);
    assert_eq!(column("bin").as_binary::<i32>().value(0), b"\xff\x00");
    assert_eq!(column("__key__").as_string::<i32>().value(0), "a");
    // Bytes that are not what their extension says are an error that names the column, and an option keeps them.
    std::fs::write(dir.path().join("tree/b.cls"), "seven").unwrap();
    dir.ok(&["convert", "tree", "odd", "--to", "webdataset"]);
    let ran = dir.run(&["convert", "odd", "bad", "--to", "parquet"]);
    assert!(
        ran.stderr.contains("error[value-range]: column cls"),
        "{}",
        ran.stderr
    );
    assert!(!dir.path().join("bad").exists());
    dir.ok(&[
        "convert",
        "odd",
        "kept",
        "--to",
        "parquet",
        "--column",
        "cls:bytes",
    ]);
    let (rows, _) = read(&dir.path().join("kept"));
    assert_eq!(rows.column(0).as_binary::<i32>().value(1), b"seven");
}

#[test]
fn options_of_other_formats_are_rejected() {
    let dir = dir();
    for (option, id) in [
        (&["--part", "0/2"][..], "config-part"),
        (&["--row-group-size", "0"], "config-row-group-size"),
        (&["--row-group-size", "2GiB"], "config-row-group-size"),
        (&["--compression", "bz2"], "config-compression"),
        (&["--column", "id:int32"], "config-column"),
        (&["--nulls", "omit"], "config-nulls"),
        (&["--lengths", "text"], "config-lengths"),
    ] {
        let ran = dir.run(&[&["convert", "rows", "out", "--to", "parquet"], option].concat());
        assert!(
            ran.stderr.contains(&format!("error[{id}]")),
            "{option:?}: {}",
            ran.stderr
        );
        assert!(!dir.path().join("out").exists());
    }
    let ran = dir.run(&["convert", "rows", "out", "--row-group-size", "1MiB"]);
    assert!(
        ran.stderr.contains("error[config-row-group-size]"),
        "{}",
        ran.stderr
    );
}

#[test]
fn overwrite_replaces_only_dataset_files() {
    let dir = dir();
    dir.ok(&["convert", "rows", "out", "--to", "parquet"]);
    dir.ok(&["convert", "rows", "out", "--overwrite", "--nulls", "drop"]);
    assert_eq!(
        files(&dir.path().join("out")),
        ["index.json", "index.provenance", "shard.00000.mds.zstd"]
    );
    dir.ok(&["convert", "rows", "out", "--to", "parquet", "--overwrite"]);
    let expected = [".index.json", ".index.provenance", "shard-000000.parquet"];
    assert_eq!(files(&dir.path().join("out")), expected);
    // A table of another program has no index of ours.
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let batch = RecordBatch::try_from_iter([("id", ids), ("word", words)]).unwrap();
    std::fs::create_dir(dir.path().join("theirs")).unwrap();
    let file = File::create(dir.path().join("theirs/shard-000000.parquet")).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let ran = dir.run(&[
        "convert",
        "rows",
        "theirs",
        "--overwrite",
        "--nulls",
        "drop",
    ]);
    assert!(
        ran.stderr.contains("error[dest-not-empty]"),
        "{}",
        ran.stderr
    );
}
