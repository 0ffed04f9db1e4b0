//! Tests how the kind of a source is detected, and that its values are converted unchanged.

use crate::common::TestDir;

/// The samples of a conversion, one JSON object a line.
fn converted(dir: &TestDir, source: &str, options: &[&str]) -> String {
    let dest = format!("{}-out", source.replace('/', "-"));
    dir.ok(&[&["convert", source, &dest, "--overwrite"][..], options].concat());
    dir.ok(&["verify", &dest, "--deep"]);
    dir.ok(&["cat", &dest, ".."])
}

/// The bytes of the first shard of a conversion without compression.
fn stored(dir: &TestDir, source: &str, options: &[&str]) -> String {
    let plain = ["--compression", "none"];
    converted(dir, source, &[options, &plain].concat());
    let dest = format!("{source}-out");
    let entries = std::fs::read_dir(dir.path().join(&dest));
    let files = entries.into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    let is_shard = |name: &String| name.ends_with(".mds") || name.ends_with(".tar");
    let shards: Vec<String> = names.filter(is_shard).collect();
    assert_eq!(shards.len(), 1, "{dest}: {shards:?}");
    let bytes = dir.read(&format!("{dest}/{}", shards[0]));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The error of a conversion.
fn refused(dir: &TestDir, source: &str, options: &[&str]) -> String {
    let dest = format!("{source}-refused");
    let shown = dir.shown(&[&["convert", source, &dest][..], options].concat());
    assert!(!shown.starts_with("exit 0"), "{shown}");
    assert!(!dir.exists(&dest), "{dest}");
    shown
}

#[test]
fn tar_file_among_plain_files_is_an_error() {
    let dir = TestDir::with_tars();
    let tar = dir.read("tars/shard-000000.tar");
    for number in 0..20 {
        dir.write(&format!("s/img/{number}.jpg"), "x");
    }
    for (name, bytes) in [("old.tar", tar.clone()), ("old.tar.gz", tar.clone())] {
        dir.write(&format!("s/img/a/b/{name}"), bytes);
        let shown = refused(&dir, "s", &[]);
        assert!(shown.contains("error[source-mixed]"), "{shown}");
        for text in [
            "tar files such as",
            name,
            "plain files such as",
            "s/img/0.jpg",
            "--from webdataset",
            "--from tree",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        let inspected = dir.shown(&["inspect", "s"]);
        assert!(inspected.contains("error[source-mixed]"), "{inspected}");
        std::fs::remove_file(dir.path().join(format!("s/img/a/b/{name}"))).unwrap();
    }
    dir.write("s/img/a/b/old.tar", &tar);
    let files = converted(&dir, "s", &["--from", "tree", "--group", "file"]);
    assert_eq!(files.lines().count(), 21);
    dir.ok(&["convert", "s", "one", "--from", "webdataset"]);

    dir.write("c/rows.csv", "id\n1\n");
    dir.write("c/d/old.tar", &tar);
    let shown = refused(&dir, "c", &[]);
    assert!(
        shown.contains("CSV files such as") && shown.contains("--from csv"),
        "{shown}"
    );
    assert_eq!(converted(&dir, "c", &["--from", "csv"]), "{\"id\":1}\n");

    // Lists that writers of tar files leave beside them, and descriptions.
    dir.write("t/0.tar", &tar);
    dir.write("t/sizes.json", "{}");
    dir.write("t/0_stats.json", "{}");
    dir.write("t/README.md", "x");
    dir.ok(&["inspect", "t"]);
    converted(&dir, "t", &[]);
}

#[test]
fn sources_of_mixed_kinds_are_rejected() {
    let dir = TestDir::with_tars();
    dir.write("tree/1.jpg", "x");
    let shown = dir.shown(&["convert", "tars", "tree", "out"]);
    assert!(shown.contains("error[source-mixed]"), "{shown}");
}

#[test]
fn delta_table_in_a_subfolder_is_an_error() {
    let dir = TestDir::new();
    dir.parquet("d/t/0.parquet", &crate::common::rows(1));
    dir.write("d/t/_delta_log/00000000000000000000.json", "{}");
    let shown = refused(&dir, "d", &[]);
    assert!(
        shown.contains("a Delta table such as") && shown.contains("name the folder"),
        "{shown}"
    );
}

#[test]
fn csv_source_ignores_readmes_and_empty_files() {
    let dir = TestDir::new();
    dir.write("c/a.csv", "id\n1\n");
    dir.write("c/b.csv", "");
    dir.write("c/c.csv", "\n\n");
    dir.write("c/0.csv", "");
    for name in [
        "README.md",
        "LICENSE",
        ".DS_Store",
        "_SUCCESS",
        "SHA256SUMS",
    ] {
        dir.write(&format!("c/{name}"), "x");
    }
    assert_eq!(converted(&dir, "c", &[]), "{\"id\":1}\n");
    dir.write("e/a.csv", "");
    assert!(refused(&dir, "e", &[]).contains("error[csv-header]"));

    dir.write("t/a.tsv", "id\tname\n1\ta,b\n");
    dir.write("t/b.tsv", "id\tname\n2\tc\n");
    let rows = "{\"id\":1,\"name\":\"a,b\"}\n{\"id\":2,\"name\":\"c\"}\n";
    assert_eq!(converted(&dir, "t", &[]), rows);
    assert_eq!(converted(&dir, "t", &["--from", "tsv"]), rows);
    assert_eq!(
        converted(&dir, "t/a.tsv", &[]),
        rows[..rows.find('\n').unwrap() + 1]
    );
    dir.write("t/c.csv", "id,name\n3,d\n");
    assert!(refused(&dir, "t", &[]).contains("TSV files such as"));
}

#[test]
fn json_objects_are_stored_verbatim() {
    let dir = TestDir::new();
    let objects = [
        r#"{"city":"Paris"}"#,
        r#"{"q":"x","n":2}"#,
        "{}",
        r#"{"z": 1.0, "a": [1e5, {"y":null,"b":"\u00e4\/"}] , "big":123456789012345678901234567890}"#,
        r#"{"q":{"mixed":true}}"#,
    ];
    let mut rows = String::new();
    for object in objects {
        rows.push_str(&format!("{{\"id\":1, \"a\" :  {object} }}\n"));
    }
    dir.write("o/rows.jsonl", &rows);
    for options in [
        &[][..],
        &["--column", "a:json"],
        &["--column", "a"],
        &["--where", "id > 0"],
        &["--to", "webdataset"],
        &["--to", "webdataset", "--column", "a:json"],
    ] {
        let shard = stored(&dir, "o", options);
        for object in objects {
            assert!(shard.contains(object), "{options:?}: {object}");
        }
        let samples = dir.ok(&["cat", "o-out", ".."]);
        assert_eq!(samples.lines().count(), objects.len(), "{options:?}");
    }

    // Objects in lists, and values of any kind where JSON is asked for.
    dir.write(
        "l/rows.jsonl",
        "{\"m\": [{\"role\":\"u\", \"content\":\"x\"}], \"n\": [1, 2]}\n{\"m\": [{\"content\":[{\"t\":1}]},{}], \"n\": [3]}\n",
    );
    let shard = stored(&dir, "l", &[]);
    assert!(
        shard.contains(r#"[{"role":"u", "content":"x"}]"#),
        "{shard}"
    );
    assert!(shard.contains(r#"[{"content":[{"t":1}]},{}]"#), "{shard}");
    let plan = dir.json(&["convert", "l", "planned", "--dry-run", "--json"]);
    assert_eq!(plan["columns"][1]["encoding"], "ndarray:int64", "{plan}");
    dir.write(
        "m/rows.jsonl",
        "{\"a\": 1.50}\n{\"a\": \"x\"}\n{\"a\": [9007199254740993, 0.5]}\n{\"a\": null}\n",
    );
    assert!(refused(&dir, "m", &[]).contains("--column a:json"));
    assert_eq!(
        converted(&dir, "m", &["--column", "a:json"]),
        "{\"a\":1.50}\n{\"a\":\"x\"}\n{\"a\":[9007199254740993,0.5]}\n{\"a\":null}\n"
    );
    dir.write("k/rows.jsonl", "{\"a\": {\"b\": {\"x\": 1, \"x\": 2}}}\n");
    let shown = refused(&dir, "k", &[]);
    assert!(shown.contains("has the key `x` twice"), "{shown}");

    // Values of CSV are JSON already.
    dir.write(
        "v/rows.csv",
        "a,b\n1.50,\"{\"\"z\"\": 1, \"\"b\"\": 1e5}\"\n2,{}\n",
    );
    assert_eq!(
        converted(&dir, "v", &["--column", "a:json", "--column", "b:json"]),
        "{\"a\":1.50,\"b\":{\"z\":1,\"b\":1e5}}\n{\"a\":2,\"b\":{}}\n"
    );
}

#[test]
fn expressions_can_access_json_fields() {
    let dir = TestDir::new();
    dir.write(
        "o/rows.jsonl",
        "{\"id\": 1, \"a\": {\"c\": \"x\"}, \"b\": {\"z\": 1, \"y\": 2}}\n{\"id\": 2, \"a\": {\"c\": \"y\"}, \"b\": {}}\n",
    );
    let samples = converted(&dir, "o", &["--where", "a['c'] = 'x'"]);
    assert!(
        samples.contains(r#""b":{"z":1,"y":2}"#) && samples.lines().count() == 1,
        "{samples}"
    );
    let samples = converted(&dir, "o", &["--sql", "SELECT a['c'] AS c FROM source"]);
    assert_eq!(samples, "{\"c\":\"x\"}\n{\"c\":\"y\"}\n");
}

#[test]
fn large_integers_are_exact_or_rejected() {
    let dir = TestDir::new();
    dir.write("c/a.csv", "id,x\n1,1\n2,9007199254740993\n");
    assert!(converted(&dir, "c", &[]).contains("9007199254740993"));
    dir.write("c/b.csv", "id,x\n3,0.5\n");
    let shown = refused(&dir, "c", &[]);
    for text in [
        "error[csv-row]",
        "a.csv line 3 column `x`",
        "9007199254740993 is a whole number",
        "--column x:str",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert_eq!(
        converted(&dir, "c", &["--column", "x:str"]),
        "{\"x\":\"1\"}\n{\"x\":\"9007199254740993\"}\n{\"x\":\"0.5\"}\n"
    );
    // Exact in a float, and a number that only rounds.
    dir.write(
        "e/a.csv",
        "x\n9007199254740992\n0.1000000000000000055511151231257827\n",
    );
    assert_eq!(
        converted(&dir, "e", &[]),
        "{\"x\":9007199254740992.0}\n{\"x\":0.1}\n"
    );
    dir.write("i/a.csv", "x\n1e999\n18446744073709551616\n0.5\n");
    assert_eq!(
        converted(&dir, "i", &[]),
        "{\"x\":\"1e999\"}\n{\"x\":\"18446744073709551616\"}\n{\"x\":\"0.5\"}\n"
    );

    dir.write("j/a.jsonl", "{\"x\": 9007199254740993}\n");
    dir.write("j/b.jsonl", "{\"x\": 0.5}\n");
    let shown = refused(&dir, "j", &[]);
    for text in [
        "error[jsonl-row]",
        "a.jsonl line 1",
        "x: a whole number",
        "--column x:str",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert_eq!(
        converted(&dir, "j", &["--column", "x:str"]),
        "{\"x\":\"9007199254740993\"}\n{\"x\":\"0.5\"}\n"
    );
    dir.write("n/a.jsonl", "{\"x\": [9007199254740993, 0.5]}\n");
    assert!(refused(&dir, "n", &[]).contains("--column x:json"));
    dir.write("b/a.jsonl", "{\"x\": 18446744073709551616}\n");
    assert!(refused(&dir, "b", &[]).contains("64 bits do not hold"));
    assert_eq!(
        converted(&dir, "b", &["--column", "x:str_int"]),
        "{\"x\":18446744073709551616}\n"
    );
}

#[test]
fn large_integers_after_inferred_rows_are_rejected() {
    let dir = TestDir::new();
    let mut csv = String::from("x,t\n");
    let mut json = String::new();
    let filler = "t".repeat(1000);
    for row in 0..70_000 {
        let x = if row == 60_000 {
            "9007199254740993"
        } else {
            "0.5"
        };
        csv.push_str(&format!("{x},{filler}\n"));
        json.push_str(&format!("{{\"x\": {x}, \"t\": \"{filler}\"}}\n"));
    }
    dir.write("c/a.csv", &csv);
    dir.write("j/a.jsonl", &json);
    for (source, line) in [("c", "line 60002"), ("j", "line 60001")] {
        let dest = format!("{source}-out");
        let shown = dir.shown(&["convert", source, &dest, "--infer-rows", "1000"]);
        assert!(
            shown.contains(line)
                && shown.contains("does not hold exactly")
                && shown.contains("--column x:str"),
            "{shown}"
        );
    }
}

#[test]
fn csv_null_and_empty_text_are_distinct() {
    let dir = TestDir::new();
    dir.write("c/a.csv", "n,t\n1,\"\"\n\"\",x\n3,\n");
    let shown = refused(&dir, "c", &[]);
    assert!(
        shown.contains("column n") || shown.contains("`n`"),
        "{shown}"
    );
    let fill = ["--null-as", "n=-1", "--null-as", "t=NULL"];
    assert_eq!(
        converted(&dir, "c", &fill),
        "{\"n\":1,\"t\":\"\"}\n{\"n\":-1,\"t\":\"x\"}\n{\"n\":3,\"t\":\"NULL\"}\n"
    );
    dir.write("d/a.csv", "n,t\n1,NA\nNA,\"NA\"\n3,\n,x\n");
    let options = [&["--csv-null", "NA"][..], &fill].concat();
    assert_eq!(
        converted(&dir, "d", &options),
        "{\"n\":1,\"t\":\"NULL\"}\n{\"n\":-1,\"t\":\"NA\"}\n{\"n\":3,\"t\":\"\"}\n{\"n\":-1,\"t\":\"x\"}\n"
    );
    let options = [&["--csv-null", "NA", "--csv-null", ""][..], &fill].concat();
    assert!(converted(&dir, "d", &options).contains("{\"n\":3,\"t\":\"NULL\"}"));
    dir.write("j/a.jsonl", "{}\n");
    assert!(refused(&dir, "j", &["--csv-null", "NA"]).contains("error[config-csv-null]"));
}

#[test]
fn csv_error_hints_match_the_error() {
    let dir = TestDir::new();
    for (text, hint) in [
        (
            &b"a,b\n1,2\n3\n"[..],
            "as many values in the line as the header",
        ),
        (b"a,b\n1,\xff\n", "convert the file to UTF-8"),
        (b"a,b\n1,\"2\n", "close the quote"),
    ] {
        dir.write("c/a.csv", text);
        let shown = refused(&dir, "c", &[]);
        assert!(shown.contains(hint), "{shown}");
        assert!(!shown.contains("quote the column"), "{shown}");
        let is_about_quotes = hint.contains("quote");
        let (_, advice) = shown.split_once("; ").unwrap();
        let says_quote = advice.contains("quote");
        assert_eq!(says_quote, is_about_quotes, "{shown}");
    }
}

#[test]
fn tfrecord_features_are_columns() {
    let dir = TestDir::new();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/tfrecord-1.14.6");
    for name in [
        "examples.tfrecord",
        "missing.tfrecord",
        "flipped-data.tfrecord",
    ] {
        dir.write(name, std::fs::read(format!("{fixtures}/{name}")).unwrap());
    }
    let columns = ["--column", "label", "--column", "tokens:json"];
    assert_eq!(
        converted(&dir, "examples.tfrecord", &columns),
        "{\"label\":-2,\"tokens\":[]}\n\
         {\"label\":-1,\"tokens\":[0]}\n\
         {\"label\":0,\"tokens\":[0,1]}\n\
         {\"label\":1,\"tokens\":[0,1,2]}\n\
         {\"label\":2,\"tokens\":[0,1,2,3]}\n"
    );
    let shown = refused(&dir, "missing.tfrecord", &[]);
    assert!(shown.contains("error[value-null]"), "{shown}");
    let drop = ["--nulls", "drop", "--column", "id", "--column", "score"];
    assert_eq!(
        converted(&dir, "missing.tfrecord", &drop),
        "{\"id\":1,\"score\":0.5}\n"
    );
    let shown = refused(&dir, "flipped-data.tfrecord", &[]);
    assert!(
        shown.contains("error[tfrecord-checksum]: flipped-data.tfrecord: at byte 116: "),
        "{shown}"
    );
    let raw = converted(&dir, "examples.tfrecord", &["--from", "tfrecord-raw"]);
    assert_eq!(raw.lines().count(), 5);
}

#[test]
fn zarr_windows_are_samples() {
    let dir = TestDir::new();
    let store = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/zarr-3.1.6/weather3"
    );
    std::os::unix::fs::symlink(store, dir.path().join("weather")).unwrap();
    let store = "weather";
    let windows = [
        "--from",
        "zarr",
        "--variable",
        "t2m",
        "--window",
        "lat=1,lon=2,time=2",
    ];
    let shown = [
        "--stride",
        "lon=6",
        "--where",
        "time_start = 4 AND lat_start = 5",
        "--column",
        "t2m:json",
        "--column",
        "lon_start",
    ];
    assert_eq!(
        converted(&dir, store, &[&windows[..], &shown].concat()),
        "{\"lon_start\":0,\"t2m\":[[[58.0,58.25]],[[70.0,70.25]]]}\n\
         {\"lon_start\":6,\"t2m\":[[[59.5,59.75]],[[71.5,71.75]]]}\n"
    );
    let packed = |options: &[&str]| {
        let shown = [
            "--from",
            "zarr",
            "--variable",
            "rain",
            "--window",
            "time=2",
            "--where",
            "time_start = 2",
        ];
        converted(
            &dir,
            store,
            &[&shown[..], &["--column", "time"], options].concat(),
        )
    };
    assert_eq!(
        packed(&[]),
        "{\"time\":[\"2026-01-01T12:00:00\",\"2026-01-01T18:00:00\"]}\n"
    );
    assert_eq!(
        packed(&["--raw-values"]),
        "{\"time\":{\"dtype\":\"int64\",\"shape\":[2],\"data\":[12,18]}}\n"
    );
    let shown = refused(&dir, store, &["--raw-values"]);
    assert!(shown.contains("error[config-raw-values]"), "{shown}");
    let shown = refused(&dir, store, &["--variable", "t2m"]);
    assert!(shown.contains("error[config-variable]"), "{shown}");
    let shown = refused(&dir, store, &["--from", "zarr", "--variable", "t2m"]);
    assert!(
        shown.contains("error[source-option]: --from zarr: "),
        "{shown}"
    );
    let shown = refused(&dir, store, &["--from", "zarr", "--window", "time"]);
    assert!(shown.contains("`time` is not DIMENSION=NUMBER"), "{shown}");
    let shown = refused(
        &dir,
        store,
        &["--from", "zarr", "--variable", "rian", "--window", "time=2"],
    );
    assert!(shown.contains("error[zarr-variable]"), "{shown}");
}
