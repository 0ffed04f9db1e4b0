use serde_json::json;

use crate::common::Place;

fn keys(place: &Place, dataset: &str) -> Vec<String> {
    let samples = place.ok(&["cat", dataset, "0..", "--json"]);
    let key = |line: &str| {
        let sample: serde_json::Value = serde_json::from_str(line).unwrap();
        sample["__key__"].as_str().unwrap().to_owned()
    };
    samples.lines().map(key).collect()
}

#[test]
fn files_of_a_tree_are_selected_by_patterns() {
    let place = Place::with_tree();
    let convert = |dest: &str, more: &[&str]| {
        place.ok(&[
            &[
                "convert",
                "tree",
                dest,
                "--to",
                "webdataset",
                "--nulls",
                "omit",
            ],
            more,
        ]
        .concat());
        keys(&place, dest)
    };
    assert_eq!(convert("all", &[]), ["a/0", "a/2", "a/4", "b/1", "b/3"]);
    assert_eq!(convert("a", &["--include", "a/*"]), ["a/0", "a/2", "a/4"]);
    assert_eq!(convert("b", &["--exclude", "a/**"]), ["b/1", "b/3"]);
    assert_eq!(
        convert(
            "some",
            &[
                "--include",
                "0.*",
                "--include",
                "*.txt",
                "--exclude",
                "b/3.txt"
            ]
        ),
        ["a/0", "a/2", "a/4", "b/1"]
    );
    let texts = place.ok(&["cat", "some", "-1"]);
    assert!(texts.contains("txt") && !texts.contains("cls"), "{texts}");
}

#[test]
fn files_of_a_table_are_selected_by_patterns() {
    let place = Place::new();
    for year in 2023..2026 {
        place.write(&format!("t/year={year}/rows.csv"), format!("id\n{year}\n"));
    }
    place.ok(&["convert", "t", "shards", "--exclude", "year=2024/*"]);
    let shown = place.ok(&["cat", "shards"]);
    assert!(
        shown.contains("2023") && !shown.contains("2024") && shown.contains("2025"),
        "{shown}"
    );
}

#[test]
fn another_selection_is_another_conversion() {
    let place = Place::with_tree();
    let convert = |more: &[&str]| {
        let args = ["convert", "tree", "shards", "--column", "txt"];
        place.run(&[&args[..], more].concat())
    };
    assert_eq!(convert(&["--include", "a/*"]).code, 0);
    let again = convert(&["--include", "a/*"]);
    assert!(
        again.stdout.contains("nothing was written"),
        "{}",
        again.stdout
    );
    let other = convert(&["--include", "b/*", "--json"]);
    assert_eq!(other.code, 4);
    let message = other.error()["message"].to_string();
    assert!(
        message.contains("include was") && message.contains("b/*"),
        "{message}"
    );
    let all = convert(&["--json"]);
    let message = all.error()["message"].to_string();
    assert!(
        all.code == 4 && message.contains("include was"),
        "{message}"
    );
}

#[test]
fn patterns_that_cannot_work_are_errors() {
    let place = Place::with_tree();
    place.write("rows.csv", "id\n1\n");
    for (args, id, hint) in [
        (
            &["tree", "x", "--include", "*.png"][..],
            "tree-empty",
            "--include and --exclude",
        ),
        (
            &["tree", "x", "--include", "a["],
            "source-option",
            "is not a pattern",
        ),
        (
            &["rows.csv", "x", "--exclude", "rows.*"],
            "source-empty",
            "--include and --exclude",
        ),
    ] {
        let ran = place.run(&[&["convert"], args, &["--json"]].concat());
        let error = ran.error();
        assert_eq!((ran.code, &error["id"]), (2, &json!(id)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(hint), "{error}");
        assert!(!place.exists("x"));
    }
    let place = Place::with_shards();
    let ran = place.run(&["convert", "shards", "x", "--include", "*.mds", "--json"]);
    assert_eq!(
        (ran.code, &ran.error()["id"]),
        (2, &json!("config-include"))
    );
}
