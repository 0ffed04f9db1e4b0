use crate::common::{Place, rows};

#[test]
fn a_lost_index_is_made_again() {
    let place = Place::with_shards();
    let index = place.read("shards/index.json");
    std::fs::remove_file(place.path().join("shards/index.json")).unwrap();
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "shards"]), @r"
    exit 0
    --- stdout
    shards/index.json: written: 100 samples in 4 shards
    ");
    assert_eq!(place.read("shards/index.json"), index);
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "shards"]), @r"
    exit 0
    --- stdout
    shards/index.json: is right as it is: 100 samples in 4 shards
    ");
}

#[test]
fn an_index_that_differs_stays_until_forced() {
    let place = Place::with_shards();
    let index = place.read("shards/index.json");
    place.write("shards/index.json", "{}");
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "shards"]), @r"
    exit 4
    --- stderr
    error[index-exists]: shards/index.json: another index is there; replace it with --force
    ");
    assert_eq!(place.read("shards/index.json"), b"{}");
    let report = place.json(&["index", "rebuild", "shards", "--force", "--json"]);
    assert_eq!(
        (&report["outcome"], &report["shards"]),
        (&"written".into(), &4.into())
    );
    assert_eq!(place.read("shards/index.json"), index);
}

#[test]
fn shards_that_miss_one_are_refused() {
    let place = Place::with_shards();
    std::fs::remove_file(place.path().join("shards/index.json")).unwrap();
    std::fs::remove_file(place.path().join("shards/shard.00001.mds.zstd")).unwrap();
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "shards"]), @r"
    exit 3
    --- stderr
    error[index-gap]: shards: shard 1 is missing: the directory has 3 shards, the last of them number 3; an index without it would number the samples differently; find the file first
    ");
}

fn two() -> Place {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(10));
    for name in ["root/b", "root/a/deep"] {
        place.ok(&["convert", "data", name]);
    }
    place
}

#[test]
fn all_data_sets_below_a_directory_are_merged() {
    let place = two();
    insta::assert_snapshot!(place.shown(&["index", "merge", "root"]), @r"
    exit 0
    --- stdout
    root/index.json: written: 20 samples in 2 shards
    ");
    let names = place.ok(&["ls", "root", "--json"]);
    assert!(names.contains("a/deep/shard.00000.mds.zstd"), "{names}");
    assert_eq!(place.ok(&["cat", "root", ".."]).lines().count(), 20);
    insta::assert_snapshot!(place.shown(&["index", "merge", "root"]), @r"
    exit 0
    --- stdout
    root/index.json: is right as it is: 20 samples in 2 shards
    ");
}

#[test]
fn listed_data_sets_are_merged_in_their_order() {
    let place = two();
    let merge = [
        "index",
        "merge",
        "root/b",
        "root/a/deep",
        "--out",
        "root",
        "--json",
    ];
    assert_eq!(place.json(&merge)["samples"], 20);
    let names = place.ok(&["ls", "root"]);
    assert!(
        names
            .lines()
            .next()
            .unwrap()
            .contains(" b/shard.00000.mds.zstd"),
        "{names}"
    );
    insta::assert_snapshot!(place.shown(&["index", "merge", "root/b", "root/a/deep"]), @r"
    exit 2
    --- stderr
    error[config-out]: --out: 2 directories are to be merged; say with --out where the index goes
    ");
    insta::assert_snapshot!(place.shown(&["index", "merge", "root/b", "--out", "root/a"]), @r"
    exit 2
    --- stderr
    error[merge-outside]: root/b/index.json: it is not beneath `root/a`, where the merged index is to be
    ");
}
