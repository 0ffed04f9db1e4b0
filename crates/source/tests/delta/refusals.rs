//! Tests tables that are refused, each with an error that names the cause.

use std::fs;

use serde_json::json;
use shardmill_core::ErrorKind;

use super::rows;
use super::table::{Add, Table, field, inline_deletion, metadata, protocol, stored_deletions};
use crate::help::refused;

fn fields() -> serde_json::Value {
    json!([field("id", "long"), field("name", "string")])
}

#[test]
fn unknown_reader_feature_is_an_error_naming_it() {
    for feature in [
        "telepathy",
        "catalogManaged",
        "catalogOwned-preview",
        "geospatial",
        "adaptiveMetadata-preview",
    ] {
        let mut table = Table::new();
        table.commit(&[
            json!({"protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [feature],
                "writerFeatures": [feature, "inCommitTimestamp"],
            }}),
            metadata(
                fields(),
                &[],
                json!({"delta.enableInCommitTimestamps": "true"}),
            ),
        ]);
        table.append("x.parquet", &rows(0..3));
        let error = refused(&table.path(), |_| ());
        assert_eq!(
            (error.id(), error.kind()),
            ("delta-feature", ErrorKind::Unsupported),
            "{feature}: {error}"
        );
        assert!(error.to_string().contains(feature), "{error}");
    }
    let mut table = Table::new();
    table.commit(&[
        json!({"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}}),
        metadata(fields(), &[], json!({})),
    ]);
    let error = refused(&table.path(), |_| ());
    assert!(
        matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Corrupt),
        "{error:?}"
    );
    assert!(error.to_string().contains('4'), "{error}");
    // Writer features do not concern a reader.
    let mut table = Table::new();
    table.commit(&[
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["telepathy"]}}),
        metadata(fields(), &[], json!({})),
    ]);
    table.append("x.parquet", &rows(0..3));
    crate::help::open_one(&table.path());
}

#[test]
fn missing_data_file_is_an_error_naming_file_and_version() {
    let mut table = Table::plain(fields());
    table.append("x.parquet", &rows(0..3));
    table.append("y.parquet", &rows(3..6));
    fs::remove_file(table.path().join("x.parquet")).unwrap();
    let error = refused(&table.path(), |_| ());
    assert_eq!(
        (error.id(), error.kind()),
        ("delta-file-missing", ErrorKind::NotFound)
    );
    assert!(error.object().unwrap().ends_with("t/x.parquet"));
    assert_eq!(
        error.to_string(),
        "version 2 of the table consists of this file among others, and it does not exist: vacuumed?"
    );
    let mut table = Table::with(fields(), &["deletionVectors"], json!({}));
    let bytes = table.file("x.parquet", &rows(0..3));
    let deletion = stored_deletions(&table, &[&[1]]).remove(0);
    table.commit(&[Add::new("x.parquet").deletion(deletion).action(bytes)]);
    fs::remove_dir_all(table.path().join("ab")).unwrap();
    let error = refused(&table.path(), |_| ());
    assert_eq!(error.id(), "delta-file-missing", "{error}");
    assert!(
        error.object().unwrap().contains("deletion_vector_"),
        "{error:?}"
    );
}

#[test]
fn incomplete_or_corrupt_log_is_rejected() {
    let dir = Table::new();
    dir.dir.write("t/_delta_log/.keep", "");
    let error = refused(&dir.path(), |_| ());
    assert_eq!(
        (error.id(), error.kind()),
        ("delta-no-table", ErrorKind::NotFound),
        "{error}"
    );

    let mut table = Table::plain(fields());
    table.append("x.parquet", &rows(0..3));
    table.append("y.parquet", &rows(3..6));
    fs::remove_file(table.log("00000000000000000001.json")).unwrap();
    assert_eq!(refused(&table.path(), |_| ()).kind(), ErrorKind::Corrupt);

    let mut table = Table::new();
    table.commit(&[protocol(&[])]);
    let error = refused(&table.path(), |_| ());
    assert_eq!(error.id(), "delta-log", "{error}");
    assert!(error.to_string().contains("metadata"), "{error}");

    let mut table = Table::new();
    table.commit(&[metadata(fields(), &[], json!({}))]);
    let error = refused(&table.path(), |_| ());
    assert!(error.to_string().contains("protocol"), "{error}");

    for broken in ["{", "[1]", "\u{0}\u{1}", "{\"add\": 5}"] {
        let mut table = Table::plain(fields());
        table.append("x.parquet", &rows(0..3));
        fs::write(table.log("00000000000000000001.json"), broken).unwrap();
        let error = refused(&table.path(), |_| ());
        assert_eq!(error.id(), "delta-log", "{broken}: {error}");
    }
}

#[test]
fn file_or_deletion_vector_differing_from_log_is_an_error() {
    let with = |add: fn(Add) -> Add| {
        let mut table = Table::with(fields(), &["deletionVectors"], json!({}));
        let bytes = table.file("x.parquet", &rows(0..10));
        table.commit(&[add(Add::new("x.parquet")).action(bytes)]);
        refused(&table.path(), |_| ())
    };
    let error = with(|add| add.records(11));
    assert_eq!(error.id(), "delta-row-count");
    assert_eq!(error.to_string(), "has 10 rows, and the table log says 11");
    let error = with(|add| add.deletion(inline_deletion(&[3, 10])));
    assert_eq!(error.id(), "delta-deletion-vector");
    assert_eq!(error.to_string(), "deletion vector: deletes row 10 of 10");
    for change in [
        |deletion: &mut serde_json::Value| deletion["cardinality"] = json!(3),
        |deletion: &mut serde_json::Value| deletion["pathOrInlineDv"] = json!("!!!!"),
        |deletion: &mut serde_json::Value| deletion["storageType"] = json!("q"),
        |deletion: &mut serde_json::Value| deletion["sizeInBytes"] = json!(-4),
    ] {
        let mut table = Table::with(fields(), &["deletionVectors"], json!({}));
        let bytes = table.file("x.parquet", &rows(0..10));
        let mut deletion = inline_deletion(&[3, 4]);
        change(&mut deletion);
        table.commit(&[Add::new("x.parquet")
            .deletion(deletion.clone())
            .action(bytes)]);
        let error = refused(&table.path(), |_| ());
        assert!(
            ["delta-deletion-vector", "delta-log"].contains(&error.id()),
            "{deletion}: {error:?}"
        );
    }
    // Flip a bit of the stored vector.
    let mut table = Table::with(fields(), &["deletionVectors"], json!({}));
    let bytes = table.file("x.parquet", &rows(0..10));
    let deletion = stored_deletions(&table, &[&[1]]).remove(0);
    table.commit(&[Add::new("x.parquet").deletion(deletion).action(bytes)]);
    let file = fs::read_dir(table.path().join("ab"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut stored = fs::read(&file).unwrap();
    let last = stored.len() - 6;
    stored[last] ^= 1;
    fs::write(&file, stored).unwrap();
    assert_eq!(refused(&table.path(), |_| ()).id(), "delta-deletion-vector");
}

#[test]
fn paths_outside_the_table_are_rejected() {
    for path in [
        "../x.parquet",
        "a/../../x.parquet",
        "s3://bucket/x.parquet",
        "x.parquet?version=1",
        " x.parquet",
        "x.parquet ",
        "x\n.parquet",
        "x.parquet%00",
        "",
    ] {
        let mut table = Table::plain(fields());
        table.dir.write("x.parquet", "");
        table.commit(&[Add::new(path).action(1)]);
        let error = refused(&table.path(), |_| ());
        assert_eq!(error.id(), "delta-path", "{path}: {error}");
    }
}

#[test]
fn partition_value_of_wrong_type_is_an_error() {
    let mut table = Table::new();
    table.commit(&[
        protocol(&[]),
        metadata(
            json!([
                field("id", "long"),
                field("name", "string"),
                field("p", "date")
            ]),
            &["p"],
            json!({}),
        ),
    ]);
    let bytes = table.file("x.parquet", &rows(0..3));
    table.commit(&[Add::new("x.parquet")
        .partition(json!({"p": "tomorrow"}))
        .action(bytes)]);
    let error = refused(&table.path(), |_| ());
    assert_eq!(error.id(), "delta-partition-value");
    assert!(error.to_string().contains("`tomorrow`"), "{error}");
}

#[test]
fn version_options_are_rejected_for_other_sources() {
    let dir = Table::new();
    let path = dir
        .dir
        .parquet("x.parquet", &rows(0..3), Default::default());
    for error in [
        refused(&path, |options| options.delta.choice.version = Some(1)),
        refused(&path, |options| options.delta.choice.timestamp_ms = Some(1)),
    ] {
        assert_eq!(
            (error.id(), error.kind()),
            ("source-option", ErrorKind::InvalidInput)
        );
    }
    let mut table = Table::plain(fields());
    table.append("x.parquet", &rows(0..3));
    let two = [table.path().into(), table.path().into()];
    let Err(error) = shardmill_source::open(&two, &Default::default()) else {
        panic!("two tables were opened");
    };
    assert_eq!(error.id(), "source-option");
    let error = refused(&table.path(), |options| {
        options.files.destination = Some(table.path().join("out").into());
    });
    assert_eq!(error.id(), "tree-overlap");
}
