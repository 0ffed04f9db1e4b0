use serde_json::json;

use crate::common::TestDir;

fn keys(dir: &TestDir, dataset: &str) -> Vec<String> {
    let samples = dir.ok(&["cat", dataset, "0..", "--json"]);
    let key = |line: &str| {
        let sample: serde_json::Value = serde_json::from_str(line).unwrap();
        sample["__key__"].as_str().unwrap().to_owned()
    };
    samples.lines().map(key).collect()
}

#[test]
fn include_and_exclude_select_tree_files() {
    let dir = TestDir::with_tree();
    let convert = |dest: &str, more: &[&str]| {
        dir.ok(&[
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
        keys(&dir, dest)
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
    let texts = dir.ok(&["cat", "some", "-1"]);
    assert!(texts.contains("txt") && !texts.contains("cls"), "{texts}");
}

#[test]
fn exclude_skips_table_files() {
    let dir = TestDir::new();
    for year in 2023..2026 {
        dir.write(&format!("t/year={year}/rows.csv"), format!("id\n{year}\n"));
    }
    dir.ok(&["convert", "t", "shards", "--exclude", "year=2024/*"]);
    let shown = dir.ok(&["cat", "shards"]);
    assert!(
        shown.contains("2023") && !shown.contains("2024") && shown.contains("2025"),
        "{shown}"
    );
}

#[test]
fn changed_file_patterns_are_a_conflict() {
    let dir = TestDir::with_tree();
    let convert = |more: &[&str]| {
        let args = ["convert", "tree", "shards", "--column", "txt"];
        dir.run(&[&args[..], more].concat())
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
fn invalid_or_empty_patterns_are_errors() {
    let dir = TestDir::with_tree();
    dir.write("rows.csv", "id\n1\n");
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
        let ran = dir.run(&[&["convert"], args, &["--json"]].concat());
        let error = ran.error();
        assert_eq!((ran.code, &error["id"]), (2, &json!(id)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(hint), "{error}");
        assert!(!dir.exists("x"));
    }
    let dir = TestDir::with_shards();
    let ran = dir.run(&["convert", "shards", "x", "--include", "*.mds", "--json"]);
    assert_eq!(
        (ran.code, &ran.error()["id"]),
        (2, &json!("config-include"))
    );
}

#[test]
fn inspect_accepts_the_tree_options_of_convert() {
    let dir = TestDir::new();
    for name in ["a/0.seg.png", "a/0.jpg", "a/1.jpg", "b/2.jpg", "b/2.txt"] {
        dir.write(&format!("tree/{name}"), "x");
    }
    let samples = |args: &[&str]| {
        let found = dir.json(&[&["inspect", "tree", "--json"], args].concat());
        let columns = found["columns"].as_array().unwrap().iter();
        let columns: Vec<String> = columns
            .map(|column| column["name"].as_str().unwrap().to_owned())
            .collect();
        (found["rows"].as_u64().unwrap(), columns.join(" "))
    };
    let expected = |rows, columns: &str| (rows, columns.to_owned());
    assert_eq!(samples(&[]), expected(4, "__key__ jpg png txt"));
    assert_eq!(
        samples(&["--group", "key"]),
        expected(3, "__key__ jpg seg.png txt")
    );
    assert_eq!(samples(&["--group", "file"]), expected(5, "__key__ data"));
    assert_eq!(
        samples(&["--include", "*.jpg", "--exclude", "b/**"]),
        expected(2, "__key__ jpg")
    );
    dir.write("rows.csv", "id\n1\n");
    dir.ok(&["convert", "rows.csv", "shards"]);
    for (args, id) in [
        (&["shards", "--include", "*.mds"][..], "config-include"),
        (&["shards", "--exclude", "*.mds"], "config-exclude"),
        (&["shards", "--group", "file"], "config-group"),
        (&["rows.csv", "--group", "key"], "config-group"),
        (&["rows.csv", "--follow-links"], "config-follow-links"),
        (
            &["tree", "--include", "*.png", "--exclude", "*"],
            "tree-empty",
        ),
    ] {
        let ran = dir.run(&[&["inspect", "--json"], args].concat());
        assert_eq!((ran.code, &ran.error()["id"]), (2, &json!(id)), "{args:?}");
        let (source, options) = args.split_first().unwrap();
        let ran = dir.run(&[&["convert", source, "none", "--json"], options].concat());
        assert_eq!((ran.code, &ran.error()["id"]), (2, &json!(id)), "{args:?}");
    }
}

#[test]
fn tree_value_errors_name_the_sample() {
    let dir = TestDir::new();
    for (name, text) in [("a/0", "1"), ("b/1", "2"), ("b/2", "many"), ("c/3", "4")] {
        dir.write(&format!("tree/{name}.cls"), text);
    }
    let column = "n:int64=CAST(CAST(cls AS STRING) AS BIGINT)";
    let small = "n:uint8=length(__key__) + 254";
    for (args, named) in [
        (&["--column", small][..], "sample a/0: "),
        (
            &["--column", small, "--where", "__key__ >= 'b/2'"],
            "sample b/2: ",
        ),
    ] {
        let ran = dir.run(&[&["convert", "tree", "out"], args].concat());
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert!(ran.stderr.contains(named), "{}", ran.stderr);
    }
    let ran = dir.run(&["convert", "tree", "out", "--column", column]);
    assert!(ran.stderr.contains("many"), "{}", ran.stderr);
    // Tar files have keys as well.
    dir.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    let ran = dir.run(&["convert", "tars", "out", "--column", "cls:jpeg"]);
    assert!(ran.stderr.contains("sample a/0: "), "{}", ran.stderr);
}
