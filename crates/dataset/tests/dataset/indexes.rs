//! Tests indexes that are rebuilt from shards or merged from parts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use shardmill_core::{Diagnostic, ErrorKind, Format, JOURNAL_NAME, Limits, Progress};
use shardmill_dataset::{
    DatasetError, RebuildOptions, merge_index_list, merge_indexes, rebuild_index,
};
use shardmill_mds::{HashAlgo, Index, ShardConfig};

use crate::support::{Fixture, id, mds, raw_shard, sample, text, write_dataset, write_shard};

fn rebuild(root: &Path) -> Result<Index, DatasetError> {
    rebuild_index(root, &RebuildOptions::default(), &Progress::new())
}

fn configs() -> Vec<ShardConfig> {
    let hashes = [HashAlgo::Md5, HashAlgo::Sha256, HashAlgo::Xxh3_64];
    let mut configs = Vec::new();
    for compression in [
        None,
        Some("zstd"),
        Some("zstd:7"),
        Some("gz"),
        Some("br:1"),
        Some("bz2:3"),
        Some("snappy"),
    ] {
        configs.push(mds(compression, &hashes));
        configs.push(mds(compression, &[]));
        for format in [Format::Json, Format::Csv, Format::Tsv, Format::Xsv] {
            configs.push(text(format, compression, &hashes));
        }
    }
    configs
}

#[test]
fn rebuilt_index_equals_the_written_one() {
    for config in configs() {
        let fixture = Fixture::new(config, &[3, 0, 1, 12]);
        let written = fs::read_to_string(fixture.path("index.json")).unwrap();
        fs::remove_file(fixture.path("index.json")).unwrap();
        let progress = Progress::new();
        let options = RebuildOptions {
            jobs: 3,
            ..RebuildOptions::default()
        };
        let rebuilt = rebuild_index(fixture.temp.path(), &options, &progress).unwrap();
        assert_eq!(rebuilt.to_json(), written);
        let snapshot = progress.snapshot();
        assert_eq!(
            (snapshot.shards, snapshot.shards_total, snapshot.samples),
            (4, 4, 16)
        );
    }
}

#[test]
fn only_shards_are_indexed() {
    let fixture = Fixture::new(mds(None, &[]), &[2, 2]);
    let written = fixture.index.to_json();
    for name in [
        "index.json",
        "shard.00002.mds.tmp",
        "shard.2.mds",
        "notes.txt",
        "shard.00007.mds.meta",
    ] {
        fs::write(fixture.path(name), b"nonsense").unwrap();
    }
    fs::create_dir(fixture.path("sub")).unwrap();
    fs::write(fixture.path("sub/shard.00002.mds"), b"nonsense").unwrap();
    assert_eq!(rebuild(fixture.temp.path()).unwrap().to_json(), written);
}

#[test]
fn directory_without_shards_is_an_error() {
    let temp = tempfile::tempdir().unwrap();
    let error = rebuild(temp.path()).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("index-no-shards", ErrorKind::NotFound)
    );
    assert_eq!(id(rebuild(&temp.path().join("nothing"))), "not-found");
}

#[test]
fn missing_shard_number_is_an_error() {
    for (missing, words) in [
        (
            0,
            "shard 0 is missing: the directory has 3 shards, the last of them number 3",
        ),
        (
            2,
            "shard 2 is missing: the directory has 3 shards, the last of them number 3",
        ),
    ] {
        let fixture = Fixture::new(mds(None, &[]), &[1, 1, 1, 1]);
        fs::remove_file(fixture.path(&format!("shard.0000{missing}.mds"))).unwrap();
        let error = rebuild(fixture.temp.path()).unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("index-gap", ErrorKind::Corrupt)
        );
        assert_eq!(error.to_string(), words);
    }
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join(format!("shard.{}.mds", u64::MAX)), b"").unwrap();
    assert_eq!(id(rebuild(temp.path())), "index-gap");
}

#[test]
fn ambiguous_or_mismatched_shards_are_errors() {
    // Two formats of one number.
    let fixture = Fixture::new(mds(None, &[]), &[1]);
    fs::write(fixture.path("shard.00000.csv"), b"").unwrap();
    assert_eq!(id(rebuild(fixture.temp.path())), "shard-ambiguous");
    // Two compressions of one number.
    let fixture = Fixture::new(mds(Some("zstd"), &[]), &[1]);
    fs::write(fixture.path("shard.00000.mds.gz"), b"").unwrap();
    assert_eq!(id(rebuild(fixture.temp.path())), "shard-ambiguous");
    // Another compression than the header says.
    let fixture = Fixture::new(mds(Some("zstd"), &[]), &[1]);
    let zip = fs::read(fixture.path("shard.00000.mds.zstd")).unwrap();
    let raw = fixture.index.shards[0]
        .config
        .compression
        .unwrap()
        .decompress(&zip, None, &Limits::default())
        .unwrap();
    fs::remove_file(fixture.path("shard.00000.mds.zstd")).unwrap();
    fs::write(fixture.path("shard.00000.mds"), &raw).unwrap();
    let error = rebuild(fixture.temp.path()).unwrap_err();
    assert_eq!(error.id(), "shard-stored-form");
    assert_eq!(
        error.to_string(),
        "its header says it is stored as `shard.00000.mds.zstd`, which is missing"
    );
    fs::remove_file(fixture.path("shard.00000.mds")).unwrap();
    let gz = crate::support::compress("gz".parse().unwrap(), &raw);
    fs::write(fixture.path("shard.00000.mds.gz"), gz).unwrap();
    assert_eq!(id(rebuild(fixture.temp.path())), "shard-stored-form");
    // Half of a shard.
    for name in ["shard.00000.csv", "shard.00000.csv.meta"] {
        let fixture = Fixture::new(text(Format::Csv, None, &[]), &[1]);
        fs::remove_file(fixture.path(name)).unwrap();
        let error = rebuild(fixture.temp.path()).unwrap_err();
        assert_eq!(error.id(), "shard-missing");
        assert_eq!(
            error.to_string(),
            format!("`{name}`, which belongs to it, is missing")
        );
    }
    // Another format than the name says.
    let fixture = Fixture::new(text(Format::Csv, None, &[]), &[1]);
    for end in ["", ".meta"] {
        fs::rename(
            fixture.path(&format!("shard.00000.csv{end}")),
            fixture.path(&format!("shard.00000.tsv{end}")),
        )
        .unwrap();
    }
    let error = rebuild(fixture.temp.path()).unwrap_err();
    assert_eq!(
        (error.id(), error.to_string().as_str()),
        ("shard-format", "its header is of a csv shard")
    );
    // A link.
    let fixture = Fixture::new(mds(None, &[]), &[1]);
    fs::rename(fixture.path("shard.00000.mds"), fixture.path("real")).unwrap();
    symlink("real", fixture.path("shard.00000.mds")).unwrap();
    assert_eq!(id(rebuild(fixture.temp.path())), "path-symlink");
}

#[test]
fn damaged_shards_are_not_indexed() {
    for config in [
        mds(None, &[]),
        mds(Some("zstd"), &[]),
        text(Format::Json, None, &[]),
    ] {
        let fixture = Fixture::new(config, &[1, 2]);
        let name = fixture.index.shards[1]
            .stored()
            .next()
            .unwrap()
            .basename
            .to_string();
        let sound = fs::read(fixture.path(&name)).unwrap();
        for len in 0..sound.len() {
            fs::write(fixture.path(&name), &sound[..len]).unwrap();
            let error = rebuild(fixture.temp.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
            assert_eq!(error.object().as_deref(), Some(name.as_str()));
        }
    }
}

#[test]
fn file_form_named_by_the_header_is_indexed() {
    // A cache beside compressed shards, of whatever age.
    let config = mds(Some("zstd"), &[HashAlgo::Sha256]);
    let fixture = Fixture::new(config.clone(), &[2]);
    let other = mds(None, &[]);
    for raw in [
        raw_shard(&config, &[sample(&config, 0), sample(&config, 1)]).0,
        raw_shard(&config, &[sample(&config, 5)]).0,
        raw_shard(&other, &[sample(&other, 5)]).0,
        b"nonsense".to_vec(),
    ] {
        fs::write(fixture.path("shard.00000.mds"), raw).unwrap();
        assert_eq!(
            rebuild(fixture.temp.path()).unwrap().to_json(),
            fixture.index.to_json()
        );
    }
    // A compressed copy beside raw shards.
    let fixture = Fixture::new(mds(None, &[HashAlgo::Sha256]), &[2]);
    let raw = fs::read(fixture.path("shard.00000.mds")).unwrap();
    let zip = crate::support::compress("zstd".parse().unwrap(), &raw);
    fs::write(fixture.path("shard.00000.mds.zstd"), zip).unwrap();
    assert_eq!(
        rebuild(fixture.temp.path()).unwrap().to_json(),
        fixture.index.to_json()
    );
}

#[test]
fn cancelled_rebuild_stops() {
    let fixture = Fixture::new(mds(None, &[]), &[2; 5]);
    let progress = Progress::new();
    progress.cancel();
    let result = rebuild_index(fixture.temp.path(), &RebuildOptions::default(), &progress);
    assert!(matches!(result, Err(DatasetError::Interrupted)));
}

// Merging.

fn parts(root: &Path, names: &[&str]) {
    for (number, name) in names.iter().enumerate() {
        fs::create_dir_all(root.join(name)).unwrap();
        write_dataset(&root.join(name), mds(None, &[]), &[number as u64 + 1]);
    }
}

fn names(index: &Index) -> Vec<String> {
    index
        .shards
        .iter()
        .map(|entry| entry.raw_data.basename.to_string())
        .collect()
}

#[test]
fn datasets_are_merged_in_path_order() {
    let temp = tempfile::tempdir().unwrap();
    parts(temp.path(), &["b", "a/c", "a-b", "a/B/d/e", "10", "9", "é"]);
    // Neither the index of the root, nor what is being written, nor what a link leads to.
    write_dataset(temp.path(), mds(None, &[]), &[9]);
    parts(temp.path(), &["x/.shardmill/tmp"]);
    let outside = tempfile::tempdir().unwrap();
    parts(outside.path(), &["part"]);
    symlink(outside.path(), temp.path().join("link")).unwrap();
    let index = merge_indexes(temp.path(), &Limits::default())
        .unwrap()
        .index;
    let expected = ["10", "9", "a-b", "a/B/d/e", "a/c", "b", "é"]
        .map(|part| format!("{part}/shard.00000.mds"));
    assert_eq!(names(&index), expected);
    assert_eq!(index.samples(), 5 + 6 + 3 + 4 + 2 + 1 + 7);
    assert!(
        index
            .to_merged_json()
            .starts_with("{\"version\": 2, \"shards\": [{")
    );
}

#[test]
fn merged_index_lists_data_meta_and_compressed_files() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("p")).unwrap();
    write_dataset(
        &temp.path().join("p"),
        text(Format::Json, Some("zstd"), &[]),
        &[1],
    );
    let index = merge_indexes(temp.path(), &Limits::default())
        .unwrap()
        .index;
    let files: Vec<_> = index.shards[0]
        .files()
        .map(|(_, info)| info.basename.to_string())
        .collect();
    let ends = ["", ".zstd", ".meta", ".meta.zstd"];
    assert_eq!(files, ends.map(|end| format!("p/shard.00000.json{end}")));
}

#[test]
fn nothing_to_merge_is_an_error() {
    let temp = tempfile::tempdir().unwrap();
    write_dataset(temp.path(), mds(None, &[]), &[1]);
    fs::create_dir(temp.path().join("empty")).unwrap();
    let error = merge_indexes(temp.path(), &Limits::default()).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("merge-nothing", ErrorKind::NotFound)
    );
    assert_eq!(
        id(merge_index_list(&[], temp.path(), &Limits::default()).map(|merged| merged.index)),
        "merge-nothing"
    );
}

#[test]
fn merge_error_names_the_invalid_index() {
    let temp = tempfile::tempdir().unwrap();
    parts(temp.path(), &["a", "b"]);
    fs::write(temp.path().join("b/index.json"), b"{").unwrap();
    let error = merge_indexes(temp.path(), &Limits::default()).unwrap_err();
    assert_eq!(error.id(), "index-truncated");
    assert!(error.object().unwrap().ends_with("/b/index.json"));
    fs::remove_file(temp.path().join("b/index.json")).unwrap();
    symlink("../a/index.json", temp.path().join("b/index.json")).unwrap();
    assert_eq!(
        id(merge_indexes(temp.path(), &Limits::default()).map(|merged| merged.index)),
        "path-symlink"
    );
}

#[test]
fn nested_merged_indexes_are_an_error() {
    let temp = tempfile::tempdir().unwrap();
    parts(temp.path(), &["a/x", "a/y"]);
    let inner = merge_indexes(&temp.path().join("a"), &Limits::default())
        .unwrap()
        .index;
    fs::write(temp.path().join("a/index.json"), inner.to_merged_json()).unwrap();
    let error = merge_indexes(temp.path(), &Limits::default()).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("index-duplicate-shard", ErrorKind::Corrupt)
    );
}

#[test]
fn listed_datasets_keep_their_order_without_duplicates() {
    let temp = tempfile::tempdir().unwrap();
    parts(temp.path(), &["a", "b/c", "d"]);
    let list = |parts: &[&str]| -> Vec<PathBuf> {
        parts.iter().map(|part| temp.path().join(part)).collect()
    };
    let merge = |parts: &[&str]| {
        let merged = merge_index_list(&list(parts), temp.path(), &Limits::default());
        merged.map(|merged| merged.index)
    };
    let index = merge(&["d/", "b/c/index.json", "b/../d", "a", "b/c", "a/index.json"]).unwrap();
    assert_eq!(
        names(&index),
        [
            "d/shard.00000.mds",
            "b/c/shard.00000.mds",
            "a/shard.00000.mds"
        ]
    );
    assert_eq!(names(&merge(&["b/c"]).unwrap()), ["b/c/shard.00000.mds"]);
    // An index of another name beside the result is a part like any other.
    write_dataset(temp.path(), mds(None, &[]), &[1]);
    fs::rename(
        temp.path().join("index.json"),
        temp.path().join("part.json"),
    )
    .unwrap();
    assert_eq!(
        names(&merge(&["part.json", "a"]).unwrap()),
        ["shard.00000.mds", "a/shard.00000.mds"]
    );
    assert_eq!(id(merge(&["a", "nothing"])), "not-found");
    assert_eq!(id(merge(&["a", "b"])), "index-missing");
}

#[test]
fn datasets_outside_the_merge_root_are_rejected() {
    let temp = tempfile::tempdir().unwrap();
    parts(temp.path(), &["out/a", "beside", "out-side"]);
    let out = temp.path().join("out");
    let merge = |part: &str| {
        let merged = merge_index_list(&[temp.path().join(part)], &out, &Limits::default());
        merged.map(|merged| merged.index)
    };
    merge("out/a").unwrap();
    for part in ["beside", "out-side", "out/../beside"] {
        let error = merge(part).unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("merge-outside", ErrorKind::InvalidInput),
            "{part}"
        );
    }
    write_dataset(&out, mds(None, &[]), &[1]);
    assert_eq!(id(merge("out")), "merge-outside");
    // The user's own paths may be links.
    symlink(&out, temp.path().join("link")).unwrap();
    let index = merge_index_list(&[temp.path().join("link/a")], &out, &Limits::default())
        .unwrap()
        .index;
    assert_eq!(names(&index), ["a/shard.00000.mds"]);
}

#[test]
fn equal_shard_configs_are_shared() {
    let temp = tempfile::tempdir().unwrap();
    let (one, two) = (mds(None, &[]).into(), mds(None, &[HashAlgo::Sha1]).into());
    for number in 0..6 {
        let config = if number == 3 { &two } else { &one };
        write_shard(temp.path(), number, config, &[sample(config, number)]);
    }
    let index = rebuild(temp.path()).unwrap();
    let shared = |a: usize, b: usize| {
        std::sync::Arc::ptr_eq(&index.shards[a].config, &index.shards[b].config)
    };
    assert!(shared(0, 1) && shared(0, 5) && !shared(0, 3));
}

#[test]
fn unfinished_conversion_cannot_be_indexed() {
    let fixture = Fixture::new(mds(Some("zstd"), &[]), &[3, 1]);
    let root = fixture.temp.path();
    fs::create_dir(root.join(".shardmill")).unwrap();
    fs::write(root.join(JOURNAL_NAME), b"{}\n").unwrap();
    let error = rebuild(root).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("dest-unfinished", ErrorKind::Conflict)
    );
    assert_eq!(error.object().unwrap(), root.to_string_lossy());
    assert!(error.hint().unwrap().contains("again"));
    // The folder alone says nothing: the next run would begin anew.
    fs::remove_file(root.join(JOURNAL_NAME)).unwrap();
    assert_eq!(rebuild(root).unwrap().samples(), 4);
}
