//! Tests versions, files and deleted rows.

use std::fs;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use serde_json::{Value, json};
use shardmill_source::{SelectColumn, Source, SourceKind, detect};

use super::table::{Add, Table, field, inline_deletion, metadata, protocol, stored_deletions};
use super::{ids, rows};
use crate::help::{array, batch, batches, open_one, open_with, read, refused, rows_per_group};

fn fields() -> Value {
    json!([field("id", "long"), field("name", "string")])
}

fn id_column(source: &dyn Source) -> Vec<i64> {
    read(source)
        .column_by_name("id")
        .unwrap()
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

#[test]
fn files_are_read_in_path_order_not_commit_order() {
    let mut table = Table::plain(fields());
    table.append("b.parquet", &rows(10..20));
    table.append("c/a.parquet", &rows(20..30));
    table.append("a.parquet", &rows(0..10));
    // A file that no version lists is not part of the table.
    table.file("zzz.parquet", &rows(900..910));
    assert_eq!(
        detect(&[table.path().into()], &Default::default()).unwrap(),
        SourceKind::Delta
    );
    let source = open_one(&table.path());
    assert_eq!(read(source.as_ref()), rows(0..30));
    let description = source.description();
    assert_eq!(
        (description.kind, description.rows),
        (SourceKind::Delta, Some(30))
    );
    let delta = description.delta.as_ref().unwrap();
    assert_eq!(
        (delta.version, delta.earliest_version, delta.latest_version),
        (3, Some(0), Some(3))
    );
    assert_eq!(source.null_count(0), Some(0));
}

#[test]
fn version_or_timestamp_selects_the_snapshot() {
    let mut table = Table::plain(fields());
    for (version, at) in [(1, 0), (2, 10), (3, 20)] {
        assert_eq!(
            table.append(&format!("{version}.parquet"), &rows(at..at + 10)),
            version
        );
    }
    let remove =
        json!({"remove": {"path": "1.parquet", "dataChange": true, "deletionTimestamp": 0}});
    table.commit(&[remove]);
    // The file of version 2 is older than that of version 1, so its timestamp is 1 ms after that one.
    for (version, at) in [(0, 1000), (1, 2000), (2, 1500), (3, 3000), (4, 4000)] {
        table.touch(version, at);
    }
    let at = |version: Option<u64>, time: Option<i64>| {
        let source = open_with(&table.path(), |options| {
            options.delta.choice.version = version;
            options.delta.choice.timestamp_ms = time;
        })
        .unwrap();
        let delta = source.description().delta.clone().unwrap();
        (delta.version, id_column_or_none(source.as_ref()))
    };
    let range = |from: i64, to: i64| (from..to).collect::<Vec<_>>();
    assert_eq!(at(None, None), (4, range(10, 30)));
    assert_eq!(at(Some(0), None), (0, vec![]));
    assert_eq!(at(Some(1), None), (1, range(0, 10)));
    assert_eq!(at(Some(3), None), (3, range(0, 30)));
    assert_eq!(at(None, Some(1000)), (0, vec![]));
    assert_eq!(at(None, Some(1999)), (0, vec![]));
    assert_eq!(at(None, Some(2000)), (1, range(0, 10)));
    assert_eq!(at(None, Some(2001)), (2, range(0, 20)));
    assert_eq!(at(None, Some(3999)), (3, range(0, 30)));
    assert_eq!(at(None, Some(i64::MAX / 2)), (4, range(10, 30)));

    let error = refused(&table.path(), |options| {
        options.delta.choice.version = Some(9)
    });
    assert_eq!(error.id(), "delta-version");
    assert_eq!(
        error.to_string(),
        "there is no version 9: versions 0 to 4 can be read"
    );
    let error = refused(&table.path(), |options| {
        options.delta.choice.timestamp_ms = Some(999)
    });
    assert_eq!(error.id(), "delta-timestamp");
    assert_eq!(
        error.to_string(),
        "no version that can be read is as old as 1970-01-01T00:00:00.999Z: \
         the oldest is version 0 of 1970-01-01T00:00:01.000Z"
    );
    let error = refused(&table.path(), |options| {
        options.delta.choice.timestamp_ms = Some(999);
        options.delta.choice.version = Some(1);
    });
    assert_eq!(error.id(), "source-option");
}

fn id_column_or_none(source: &dyn Source) -> Vec<i64> {
    if source.units().is_empty() {
        return Vec::new();
    }
    id_column(source)
}

#[test]
fn in_commit_timestamps_win_over_modification_times() {
    let mut table = Table::new();
    let info = |at: i64| json!({"commitInfo": {"inCommitTimestamp": at, "timestamp": at, "operation": "WRITE"}});
    let protocol = json!({"protocol": {
        "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"],
    }});
    let properties = json!({"delta.enableInCommitTimestamps": "true"});
    table.commit(&[info(10_000), protocol, metadata(fields(), &[], properties)]);
    for (version, at, time) in [(1, 0, 20_000), (2, 10, 30_000)] {
        let path = format!("{version}.parquet");
        let bytes = table.file(&path, &rows(at..at + 10));
        table.commit(&[info(time), Add::new(&path).action(bytes)]);
    }
    // The modification times of the files are in the opposite order.
    for (version, at) in [(0, 3_000_000), (1, 2_000_000), (2, 1_000_000)] {
        table.touch(version, at);
    }
    for (time, version) in [(10_000, 0), (29_999, 1), (30_000, 2)] {
        let source = open_with(&table.path(), |options| {
            options.delta.choice.timestamp_ms = Some(time)
        })
        .unwrap();
        let delta = source.description().delta.clone().unwrap();
        assert_eq!(delta.version, version, "{time}");
        assert_eq!(
            delta.timestamp_ms,
            Some([10_000, 20_000, 30_000][version as usize])
        );
    }
}

/// Builds a table with rows 0..100 in row groups of 30, of which `deletion` deletes some.
fn deleted(deletion: impl FnOnce(&Table) -> Value) -> Table {
    let mut table = Table::with(
        fields(),
        &["deletionVectors"],
        json!({"delta.enableDeletionVectors": "true"}),
    );
    let bytes = table.file_with("x.parquet", &rows(0..100), rows_per_group(30));
    let deletion = deletion(&table);
    table.commit(&[Add::new("x.parquet")
        .records(100)
        .deletion(deletion)
        .action(bytes)]);
    table
}

#[test]
fn deletion_vectors_skip_rows_by_position() {
    let cases: [(&str, Vec<u64>); 7] = [
        ("one", vec![42]),
        ("first and last", vec![0, 99]),
        ("across row groups", (25..65).collect()),
        ("a row group", (30..60).collect()),
        ("every other", (0..100).step_by(2).collect()),
        ("all", (0..100).collect()),
        ("none", vec![]),
    ];
    for (what, gone) in cases {
        let left: Vec<i64> = (0..100)
            .filter(|id| !gone.contains(&(*id as u64)))
            .collect();
        let whole = rows(0..100);
        for table in [
            deleted(|_| inline_deletion(&gone)),
            deleted(|table| stored_deletions(table, &[&[1, 2, 3], &gone]).remove(1)),
        ] {
            let source = open_one(&table.path());
            let found = batches(source.as_ref()).unwrap();
            let found = arrow::compute::concat_batches(&source.schema(), &found).unwrap();
            assert_eq!(found.column(0), &ids(left.clone()), "{what}");
            let keep = arrow::array::BooleanArray::from_iter(
                (0..100_u64).map(|row| Some(!gone.contains(&row))),
            );
            let expected = arrow::compute::filter_record_batch(&whole, &keep).unwrap();
            assert_eq!(found, expected, "{what}");
            let description = source.description();
            assert_eq!(description.rows, Some(left.len() as u64), "{what}");
            let delta = description.delta.as_ref().unwrap();
            assert_eq!(
                (delta.deleted_rows, delta.files_with_deletions),
                (gone.len() as u64, 1)
            );
        }
    }
}

#[test]
fn filters_columns_and_queries_exclude_deleted_rows() {
    let gone: Vec<u64> = (0..100).filter(|row| row % 3 == 0).collect();
    let table = deleted(|_| inline_deletion(&gone));
    let filtered = open_with(&table.path(), |options| {
        options.query.filter = Some("id >= 58 AND id < 70".to_owned());
    })
    .unwrap();
    let expected: Vec<i64> = (58..70).filter(|id| id % 3 != 0).collect();
    assert_eq!(id_column(filtered.as_ref()), expected);
    assert!(
        filtered.units().len() < 4,
        "row groups are left out by statistics"
    );
    let chosen = open_with(&table.path(), |options| {
        options.query.columns = vec![
            SelectColumn::named("name"),
            crate::computed("double", "id * 2"),
        ];
    })
    .unwrap();
    let found = read(chosen.as_ref());
    assert_eq!(found.column(0).as_string::<i32>().value(0), "row 1");
    assert_eq!(
        found.column(1).as_primitive::<Int64Type>().value(65),
        98 * 2
    );
    let counted = open_with(&table.path(), |options| {
        options.query.sql =
            Some("SELECT count(*) AS n, min(id) AS least, max(id) AS most FROM source".to_owned());
    })
    .unwrap();
    let found = read(counted.as_ref());
    let number = |column: usize| found.column(column).as_primitive::<Int64Type>().value(0);
    assert_eq!([number(0), number(1), number(2)], [66, 1, 98]);
}

#[test]
fn first_null_is_located_with_deleted_rows() {
    let mut table = Table::with(json!([field("v", "long")]), &["deletionVectors"], json!({}));
    let values: Vec<Option<i64>> = (0..50)
        .map(|row| (row != 3 && row != 40).then_some(row))
        .collect();
    let bytes = table.file_with(
        "x.parquet",
        &batch(vec![("v", array(Int64Array::from(values)))]),
        rows_per_group(20),
    );
    let gone: Vec<u64> = vec![2, 3, 20, 30, 39];
    table.commit(&[Add::new("x.parquet")
        .deletion(inline_deletion(&gone))
        .action(bytes)]);
    let source = open_one(&table.path());
    assert_eq!(source.null_count(0), None, "statistics count deleted rows");
    let dir = source.first_null(0).unwrap().unwrap();
    assert_eq!(dir.row, 40);
    // The only null that remained is deleted, so there is none.
    let table2 = {
        let mut table = Table::with(json!([field("v", "long")]), &["deletionVectors"], json!({}));
        let values: Vec<Option<i64>> = (0..50).map(|row| (row != 3).then_some(row)).collect();
        let bytes = table.file(
            "x.parquet",
            &batch(vec![("v", array(Int64Array::from(values)))]),
        );
        table.commit(&[Add::new("x.parquet")
            .deletion(inline_deletion(&gone))
            .action(bytes)]);
        table
    };
    assert_eq!(open_one(&table2.path()).first_null(0).unwrap(), None);
}

#[test]
fn new_deletion_vector_replaces_the_previous_file_entry() {
    let mut table = Table::with(fields(), &["deletionVectors"], json!({}));
    let bytes = table.file("x.parquet", &rows(0..10));
    table.commit(&[Add::new("x.parquet").action(bytes)]);
    let remove = |deletion: Option<Value>| {
        let mut remove = json!({"path": "x.parquet", "dataChange": true, "deletionTimestamp": 0});
        if let Some(deletion) = deletion {
            remove["deletionVector"] = deletion;
        }
        json!({ "remove": remove })
    };
    let first = inline_deletion(&[1]);
    table.commit(&[
        remove(None),
        Add::new("x.parquet").deletion(first.clone()).action(bytes),
    ]);
    table.commit(&[
        remove(Some(first)),
        Add::new("x.parquet")
            .deletion(inline_deletion(&[1, 5]))
            .action(bytes),
    ]);
    for (version, left) in [(1, 10), (2, 9), (3, 8)] {
        let source = open_with(&table.path(), |options| {
            options.delta.choice.version = Some(version)
        })
        .unwrap();
        assert_eq!(source.description().rows, Some(left), "{version}");
    }
}

#[test]
fn relative_absolute_and_url_paths_are_read() {
    let mut table = Table::plain(fields());
    let elsewhere = table.dir.path("clone source");
    fs::create_dir_all(&elsewhere).unwrap();
    for (at, on_disk, in_log) in [
        (0, "a b%20c.parquet", "a%20b%2520c.parquet"),
        (10, "d=x y/ü#1?.parquet", "d=x%20y/%C3%BC%231%3F.parquet"),
    ] {
        let bytes = table.file(on_disk, &rows(at..at + 10));
        table.commit(&[Add::new(in_log).records(10).action(bytes)]);
    }
    let other = Table::plain(fields());
    for (at, name) in [(20, "e.parquet"), (30, "f.parquet")] {
        other.file(name, &rows(at..at + 10));
    }
    let url = url::Url::from_file_path(other.path().join("e.parquet")).unwrap();
    table.commit(&[
        Add::new(url.as_str()).action(1),
        Add::new(other.path().join("f.parquet").to_str().unwrap()).action(1),
    ]);
    let source = open_one(&table.path());
    let mut found = id_column(source.as_ref());
    found.sort_unstable();
    assert_eq!(found, (0..40).collect::<Vec<_>>());
    assert_eq!(source.description().files.len(), 4);
}

#[test]
fn remove_action_matches_another_spelling_of_the_path() {
    let (a, b) = ("file:/nowhere/x%20y.parquet", "/nowhere/x%20y.parquet");
    let remove = |path: &str| json!({"remove": {"path": path, "dataChange": true}});
    for (add, other) in [(a, b), (b, a), ("file:///nowhere/x%20y.parquet", b)] {
        let mut table = Table::plain(fields());
        table.append("here.parquet", &rows(0..3));
        table.commit(&[Add::new(add).action(1)]);
        table.commit(&[remove(other)]);
        let source = open_one(&table.path());
        assert_eq!(read(source.as_ref()), rows(0..3), "{add} {other}");
        // The file that was added again belongs to the table, so it is reported as missing.
        table.commit(&[Add::new(add).action(1)]);
        assert_eq!(refused(&table.path(), |_| ()).id(), "delta-file-missing");
    }
}

#[test]
fn fingerprint_depends_on_rows_and_schema_only() {
    let mut table = Table::with(fields(), &["deletionVectors"], json!({}));
    let bytes = table.file("x.parquet", &rows(0..10));
    table.commit(&[Add::new("x.parquet").action(bytes)]);
    let of = |table: &Table| open_one(&table.path()).description().fingerprint.clone();
    let before = of(&table);
    table.commit(&[json!({"txn": {"appId": "x", "version": 1}})]);
    assert_eq!(of(&table), before, "a commit without data changes nothing");
    let copy = Table::new();
    copy_all(&table.path(), &copy.path());
    assert_eq!(of(&copy), before, "nor does a copy");
    table.commit(&[
        json!({"remove": {"path": "x.parquet", "dataChange": true}}),
        Add::new("x.parquet")
            .deletion(inline_deletion(&[1]))
            .action(bytes),
    ]);
    assert_ne!(of(&table), before, "a deletion does");
    table.commit(&[metadata(json!([field("id", "long")]), &[], json!({}))]);
    let narrow = of(&table);
    table.commit(&[metadata(fields(), &[], json!({}))]);
    assert_ne!(of(&table), narrow, "and so does another schema");
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Builds a table of three versions with ten rows each, and returns the actions that added them.
fn three_versions(features: &[&str]) -> (Table, Vec<Value>) {
    let mut table = Table::with(fields(), features, json!({}));
    let mut adds = Vec::new();
    for at in [0, 10, 20] {
        let name = format!("{at}.parquet");
        let bytes = table.file(&name, &rows(at..at + 10));
        adds.push(Add::new(&name).records(10).action(bytes));
        table.commit(&adds[adds.len() - 1..]);
    }
    (table, adds)
}

fn write_lines(table: &Table, name: &str, actions: &[Value]) {
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    fs::write(table.log(name), lines.join("\n") + "\n").unwrap();
}

#[test]
fn compacted_log_is_equivalent_to_its_commits() {
    let (table, adds) = three_versions(&[]);
    write_lines(
        &table,
        "00000000000000000001.00000000000000000002.compacted.json",
        &adds[..2],
    );
    let source = open_one(&table.path());
    assert_eq!(read(source.as_ref()), rows(0..30));
    assert_eq!(source.description().delta.as_ref().unwrap().version, 3);
}

#[test]
fn v2_checkpoint_replaces_earlier_commits() {
    let (mut table, adds) = three_versions(&["v2Checkpoint"]);
    let mut actions = vec![
        json!({"checkpointMetadata": {"version": 2}}),
        protocol(&["v2Checkpoint"]),
        metadata(fields(), &[], json!({})),
    ];
    actions.extend(adds[..2].iter().cloned());
    write_lines(
        &table,
        "00000000000000000002.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        &actions,
    );
    for version in 0..2 {
        fs::remove_file(table.log(&format!("{version:020}.json"))).unwrap();
    }
    table.append("30.parquet", &rows(30..40));
    let source = open_one(&table.path());
    assert_eq!(read(source.as_ref()), rows(0..40));
    let delta = source.description().delta.clone().unwrap();
    assert_eq!(
        (delta.version, delta.earliest_version, delta.latest_version),
        (4, Some(2), Some(4))
    );
    let early = open_with(&table.path(), |options| {
        options.delta.choice.version = Some(2)
    })
    .unwrap();
    assert_eq!(read(early.as_ref()), rows(0..20));
    let error = refused(&table.path(), |options| {
        options.delta.choice.version = Some(1)
    });
    assert_eq!(
        error.to_string(),
        "there is no version 1: versions 2 to 4 can be read"
    );
}

#[test]
fn columns_added_later_are_null_in_older_files() {
    let mut table = Table::plain(json!([field("id", "long")]));
    table.append("a.parquet", &batch(vec![("id", ids(0..3))]));
    table.commit(&[protocol(&[]), metadata(fields(), &[], json!({}))]);
    table.append("b.parquet", &rows(3..5));
    let source = open_one(&table.path());
    let found = read(source.as_ref());
    assert_eq!(found.column(0), &ids(0..5));
    assert_eq!(found.column(1).null_count(), 3);
    assert_eq!(source.null_count(1), Some(3));
    let found: RecordBatch = read(
        open_with(&table.path(), |options| {
            options.query.filter = Some("name IS NULL".to_owned());
        })
        .unwrap()
        .as_ref(),
    );
    assert_eq!(found.column(0), &ids(0..3));
    let expected: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3));
    assert_eq!(found.column(0), &expected);
}
