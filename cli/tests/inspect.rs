use crate::common::{Place, rows};
use crate::snapshot;

#[test]
fn a_data_set() {
    snapshot!(Place::with_shards().shown(&["inspect", "shards"]), @"");
}

#[test]
fn a_data_set_as_json() {
    let summary = Place::with_shards().json(&["inspect", "shards", "--json"]);
    assert_eq!(summary["samples"], 100);
    assert_eq!(summary["columns"][1]["name"], "id");
    assert_eq!(summary["columns"][1]["bytes"], 8);
    assert_eq!(summary["provenance"]["source"]["kind"], "parquet");
    assert_eq!(summary["layout_shards"], 4);
    let stored = summary["stored_bytes"].as_u64().unwrap();
    assert!(stored > 0 && summary["raw_bytes"].as_u64().unwrap() > stored);
}

#[test]
fn the_hash_of_the_index_is_what_verify_expects() {
    let place = Place::with_shards();
    let summary = place.json(&["inspect", "shards", "--json"]);
    place.ok(&[
        "verify",
        "shards",
        "--expect-index",
        summary["index_hash"].as_str().unwrap(),
    ]);
}

#[test]
fn a_directory_of_splits() {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(100));
    place.ok(&[
        "convert",
        "data",
        "out",
        "--split",
        "train=0.75,val=0.25",
        "--split-key",
        "name",
    ]);
    snapshot!(place.shown(&["inspect", "out"]), @"");
    let all = place.json(&["inspect", "out", "--json"]);
    assert_eq!(all["samples"], 100);
    assert_eq!(all["datasets"][0]["name"], "train");
}

#[test]
fn shards_that_differ() {
    let place = Place::with_shards();
    place.parquet("more/rows.parquet", &rows(5));
    std::fs::create_dir(place.path().join("all")).unwrap();
    std::fs::rename(place.path().join("shards"), place.path().join("all/a")).unwrap();
    place.ok(&[
        "convert",
        "more",
        "all/b",
        "--column",
        "id:int",
        "--compression",
        "none",
        "--hashes",
        "none",
    ]);
    place.ok(&["index", "merge", "all"]);
    snapshot!(place.shown(&["inspect", "all"]), @"");
    assert_eq!(
        place.json(&["inspect", "all", "--json"])["other_layouts"][0]["columns"][0]["encoding"],
        "int"
    );
}

#[test]
fn an_empty_data_set() {
    let place = Place::new();
    place.write("empty/index.json", r#"{"shards": [], "version": 2}"#);
    snapshot!(place.shown(&["inspect", "empty"]), @"");
}

#[test]
fn a_parquet_source() {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(100));
    snapshot!(place.shown(&["inspect", "data"]), @"");
    let source = place.json(&["inspect", "data/rows.parquet", "--json"]);
    assert_eq!(
        (&source["kind"], &source["rows"]),
        (&"parquet".into(), &100.into())
    );
    assert_eq!(source["columns"][4]["encoding"], "ndarray:float32:2");
}

#[test]
fn a_csv_source() {
    let place = Place::new();
    place.write("rows.csv", "id,name\n1,a\n2,b\n");
    snapshot!(place.shown(&["inspect", "rows.csv"]), @"");
}

#[test]
fn a_tree_of_files() {
    let place = Place::new();
    place.write("tree/a/1.jpg", "\u{ff}");
    place.write("tree/a/1.json", "{}");
    place.write("tree/a/2.json", "{}");
    snapshot!(place.shown(&["inspect", "tree"]), @"");
}
