//! `--column '*'`: all columns that no other one names.

use crate::common::TestDir;

/// Rows with the columns `id`, `n`, `t` and `*`.
fn dir() -> TestDir {
    let dir = TestDir::new();
    let rows = "{\"t\":\"a\",\"id\":1,\"n\":1.5,\"*\":\"x\"}\n{\"t\":\"b\",\"id\":2,\"n\":2.5,\"*\":\"y\"}\n";
    dir.write("in/a.jsonl", rows);
    dir
}

/// Converts to JSON shards or a table, which keep the order of the columns, and returns the first row.
fn first(dir: &TestDir, options: &[&str]) -> String {
    let table = ["convert", "in", "out", "--to", "parquet", "--overwrite"];
    dir.ok(&[&table, options].concat());
    let printed = dir.ok(&["head", "out", "--json"]);
    printed.lines().next().unwrap().to_owned()
}

#[test]
fn star_stands_for_the_other_columns_at_its_position() {
    let dir = dir();
    for (options, row) in [
        (
            &["--column", "*"][..],
            r#"{"*":"x","id":1,"n":1.5,"t":"a"}"#,
        ),
        (
            &["--column", "*", "--column", "id:str"],
            r#"{"*":"x","n":1.5,"t":"a","id":"1"}"#,
        ),
        (
            &["--column", "t", "--column", "*"],
            r#"{"t":"a","*":"x","id":1,"n":1.5}"#,
        ),
        // A computed column is one more; a renamed one is the same.
        (
            &["--column", "*", "--column", "m=n * 2"],
            r#"{"*":"x","id":1,"n":1.5,"t":"a","m":3.0}"#,
        ),
        (
            &["--column", "m=n", "--column", "*"],
            r#"{"m":1.5,"*":"x","id":1,"t":"a"}"#,
        ),
        (
            &["--column", "n=n * 2", "--column", "*"],
            r#"{"n":3.0,"*":"x","id":1,"t":"a"}"#,
        ),
        (
            &["--column", "n", "--column", "m=n", "--column", "*"],
            r#"{"n":1.5,"m":1.5,"*":"x","id":1,"t":"a"}"#,
        ),
        // A column of that name.
        (&["--column", "\"*\""], r#"{"*":"x"}"#),
        (
            &["--column", "*", "--column", "\"*\":bytes"],
            r#"{"id":1,"n":1.5,"t":"a","*":{"bytes":1,"base64":"eA=="}}"#,
        ),
        // After a query.
        (
            &[
                "--select",
                "id, t AS u",
                "--column",
                "*",
                "--column",
                "u:bytes",
            ],
            r#"{"id":1,"u":{"bytes":1,"base64":"YQ=="}}"#,
        ),
        (
            &[
                "--sql",
                "SELECT id, n FROM source ORDER BY id DESC",
                "--column",
                "m=n",
                "--column",
                "*",
            ],
            r#"{"m":2.5,"id":2}"#,
        ),
        (
            &["--where", "id = 2", "--column", "n", "--column", "*"],
            r#"{"n":2.5,"*":"y","id":2,"t":"b"}"#,
        ),
    ] {
        assert_eq!(first(&dir, options), row, "{options:?}");
    }
}

#[test]
fn star_alone_is_the_same_conversion_as_no_column() {
    let dir = dir();
    dir.ok(&["convert", "in", "out"]);
    let again = dir.ok(&["convert", "in", "out", "--column", "*", "--json"]);
    assert!(again.contains("\"outcome\":\"already_done\""), "{again}");
}

#[test]
fn star_with_an_encoding_or_twice_is_an_error() {
    let dir = dir();
    for (options, text) in [
        (
            &["--column", "*:json"][..],
            "`*` stands for all other columns",
        ),
        (&["--column", "*=id"], "`*` stands for all other columns"),
        (&["--column", "*", "--column", "*"], "`*` is given twice"),
        (
            &["--column", "*", "--column", "id", "--column", "id:str"],
            "`id` is given twice",
        ),
        (&["--column", "*", "--column", "nothing"], "nothing"),
    ] {
        let ran = dir.run(&[&["convert", "in", "out"], options].concat());
        assert_eq!(ran.code, 2, "{options:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(text), "{options:?}: {}", ran.stderr);
        assert!(!dir.exists("out"));
    }
}

#[test]
fn keys_split_keys_and_texts_stay_as_without_columns() {
    let dir = dir();
    for options in [
        &["--to", "webdataset", "--key-column", "t"][..],
        &["--split", "train=0.5,val=0.5", "--split-key", "t"],
    ] {
        dir.ok(&[&["convert", "in", "a"], options].concat());
        dir.ok(&[&["convert", "in", "b", "--column", "*"], options].concat());
        let columns = |out: &str| dir.json(&["inspect", out, "--json"])["columns"].clone();
        assert_eq!(columns("a"), columns("b"), "{options:?}");
        for out in ["a", "b"] {
            std::fs::remove_dir_all(dir.path().join(out)).unwrap();
        }
    }
}

#[test]
fn config_file_has_the_star_and_a_column_of_that_name() {
    let dir = dir();
    dir.write(
        "c.toml",
        "sources = [\"in\"]\ndest = \"out\"\nto = \"parquet\"\n[columns]\n\"*\" = \"\"\n'\"*\"' = \"bytes\"\nid = \"str\"\n",
    );
    let row = r#"{"n":1.5,"t":"a","*":{"bytes":1,"base64":"eA=="},"id":"1"}"#;
    dir.ok(&["convert", "--config", "c.toml"]);
    assert_eq!(dir.ok(&["head", "out", "-n", "1", "--json"]).trim(), row);
    let printed = dir.ok(&["convert", "--config", "c.toml", "--print-config"]);
    dir.write("again.toml", printed.replace("\"out\"", "\"again\""));
    dir.ok(&["convert", "--config", "again.toml"]);
    assert_eq!(dir.ok(&["head", "again", "-n", "1", "--json"]).trim(), row);
}

#[test]
fn star_adds_all_other_columns_of_a_table() {
    let dir = dir();
    dir.ok(&["convert", "in", "out", "--column", "id"]);
    dir.ok(&[
        "add-column",
        "out",
        "in",
        "--on",
        "id",
        "--column",
        "*",
        "--column",
        "n:float32",
    ]);
    let printed = dir.ok(&["cat", "out", "0"]);
    assert_eq!(printed.trim(), r#"{"id":1,"*":"x","n":1.5,"t":"a"}"#);
}
