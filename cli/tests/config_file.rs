use crate::common::TestDir;

const FILE: &str = r#"
# One conversion for the CI job.
sources = ["data"]
dest = "shards"
compression = "gz:5"
samples-per-shard = 30
hashes = "sha256,xxh64"
where = "id < 50"

[columns]
name = ""
id = "int32"
double = { encoding = "float64", expr = "score * 2" }
"a:b" = { expr = "id + 1" }
"#;

fn dir() -> TestDir {
    let dir = TestDir::with_shards();
    std::fs::remove_dir_all(dir.path().join("shards")).unwrap();
    dir.write("convert.toml", FILE);
    dir
}

fn columns(dir: &TestDir, dataset: &str) -> Vec<String> {
    let summary = dir.json(&["inspect", dataset, "--json"]);
    let columns = summary["columns"].as_array().unwrap().iter();
    let shown = columns.map(|column| {
        format!(
            "{}:{}",
            column["name"].as_str().unwrap(),
            column["encoding"].as_str().unwrap()
        )
    });
    shown.collect()
}

#[test]
fn config_file_options_are_applied() {
    let dir = dir();
    dir.ok(&["convert", "--config", "convert.toml"]);
    let summary = dir.json(&["inspect", "shards", "--json"]);
    assert_eq!(
        (&summary["samples"], &summary["shards"]),
        (&50.into(), &2.into())
    );
    assert_eq!(summary["compression"], "gz:5");
    assert_eq!(
        columns(&dir, "shards"),
        ["a:b:int64", "double:float64", "id:int32", "name:str"]
    );
}

#[test]
fn command_line_overrides_config_file() {
    let dir = dir();
    dir.ok(&[
        "convert",
        "data/rows.parquet",
        "other",
        "--config=convert.toml",
        "--compression",
        "none",
        "--where",
        "id < 10",
        "--column",
        "id",
    ]);
    let summary = dir.json(&["inspect", "other", "--json"]);
    assert_eq!(
        (&summary["samples"], &summary["compression"]),
        (&10.into(), &serde_json::Value::Null)
    );
    assert_eq!(columns(&dir, "other"), ["id:int64"]);
    assert!(!dir.exists("shards"));
}

#[test]
fn printed_config_round_trips() {
    let dir = dir();
    let printed = dir.ok(&[
        "convert",
        "--config",
        "convert.toml",
        "--print-config",
        "--jobs",
        "2",
    ]);
    assert!(!dir.exists("shards"));
    insta::assert_snapshot!(printed, @r#"
    sources = ["data"]
    dest = "shards"
    from = "auto"
    to = "mds"
    group = "stem"
    where = "id < 50"
    key-column = "__key__"
    schema = "widen"
    infer-rows = 100000
    nulls = "error"
    compression = "gz:5"
    hashes = "sha256,xxh64"
    size-limit = "64MiB"
    samples-per-shard = 30
    names = "portable"
    jobs = 2

    [columns]
    "name" = ""
    "id" = "int32"
    "double" = { encoding = "float64", expr = "score * 2" }
    "a:b" = { expr = "id + 1" }
    "#);
    dir.write("again.toml", &printed);
    assert_eq!(
        dir.ok(&["convert", "--config", "again.toml", "--print-config"]),
        printed
    );
    dir.ok(&["convert", "--config", "again.toml"]);
    // The very same conversion, so there is nothing left to do.
    let again = dir.ok(&["convert", "--config", "convert.toml"]);
    assert!(again.contains("nothing was written"), "{again}");
}

#[test]
fn print_config_hides_secrets() {
    let dir = dir();
    let printed = dir.ok(&[
        "convert",
        "data",
        "s3://bucket/x",
        "--storage-option",
        "AWS_SECRET_ACCESS_KEY=hush",
        "--print-config",
    ]);
    assert!(
        !printed.contains("hush") && printed.contains("# storage-option"),
        "{printed}"
    );
}

#[test]
fn config_file_errors_name_the_line() {
    let dir = dir();
    for (text, object, message, hint) in [
        (
            "a = 1",
            "x.toml:1",
            "convert has no option `a`",
            "did you mean",
        ),
        (
            "\n\nsize_limit = \"1MiB\"",
            "x.toml:3",
            "`size_limit`",
            "did you mean `size-limit`?",
        ),
        ("jobs = 1\njobs = 2", "x.toml:2", "not TOML", ""),
        (
            "overwrite = \"yes\"",
            "x.toml:1",
            "`overwrite` is of type string",
            "true or false",
        ),
        (
            "jobs = true",
            "x.toml:1",
            "`jobs` is of type boolean",
            "a text or a number",
        ),
        (
            "columns = 1",
            "x.toml:1",
            "`columns` is of type integer",
            "encodings",
        ),
        (
            "[columns]\na = { encodin = \"str\" }",
            "x.toml:2",
            "a column has no `encodin`",
            "`encoding` and `expr`",
        ),
        (
            "json = true",
            "x.toml:1",
            "convert has no option `json`",
            "did you mean",
        ),
    ] {
        dir.write("x.toml", text);
        let ran = dir.run(&["convert", "data", "x", "--config", "x.toml", "--json"]);
        let error = ran.error();
        assert_eq!(
            (ran.code, &error["id"], &error["object"]),
            (2, &"config-config".into(), &object.into()),
            "{error}"
        );
        assert!(
            error["message"].as_str().unwrap().contains(message),
            "{error}"
        );
        assert!(
            error["hint"].as_str().unwrap_or_default().contains(hint),
            "{error}"
        );
    }
    // A value is checked as if it were typed.
    dir.write("x.toml", "jobs = 0");
    let ran = dir.run(&["convert", "data", "x", "--config", "x.toml", "--json"]);
    assert_eq!((ran.code, &ran.error()["id"]), (2, &"config-jobs".into()));
    let ran = dir.run(&["convert", "data", "x", "--config", "missing.toml", "--json"]);
    assert_eq!(
        (ran.code, &ran.error()["object"]),
        (2, &"missing.toml".into())
    );
}
