//! Tests trees of files.

use std::fs;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::DataType;
use shardmill_core::ErrorKind;
use shardmill_source::{
    ENCODING_KEY, SelectColumn, Source, SourceKind, SourceOptions, TreeGroup, open, shuffled,
};

use crate::help::{TestDir, batches, check_error, open_one, open_with, read, refused};

fn images(dir: &TestDir) -> std::path::PathBuf {
    for (name, bytes) in [
        ("t/b/002.jpg", "jpeg two"),
        ("t/a/001.jpg", "jpeg one"),
        ("t/a/001.json", "{\"label\": 1}"),
        ("t/b/002.json", "{}"),
        ("t/b/003.jpg", "jpeg three"),
        ("t/b/003.txt", "é"),
    ] {
        dir.write(name, bytes);
    }
    dir.path("t")
}

#[test]
fn files_with_a_common_stem_are_one_sample() {
    let dir = TestDir::new();
    let source = open_one(&images(&dir));
    let schema = source.schema();
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| {
            (
                field.name().as_str(),
                field.data_type(),
                field.is_nullable(),
                field.metadata()[ENCODING_KEY].as_str(),
            )
        })
        .collect();
    assert_eq!(
        fields,
        [
            ("__key__", &DataType::Utf8, false, "str"),
            ("jpg", &DataType::Binary, false, "jpeg"),
            ("json", &DataType::Binary, true, "json"),
            ("txt", &DataType::Utf8, true, "str"),
        ]
    );
    let found = read(source.as_ref());
    let keys: Vec<_> = found
        .column(0)
        .as_string::<i32>()
        .iter()
        .flatten()
        .collect();
    assert_eq!(keys, ["a/001", "b/002", "b/003"]);
    assert_eq!(found.column(1).as_binary::<i32>().value(2), b"jpeg three");
    assert_eq!(
        found.column(2).as_binary::<i32>().value(0),
        b"{\"label\": 1}"
    );
    assert!(found.column(2).is_null(2) && found.column(3).is_null(0));
    assert_eq!(found.column(3).as_string::<i32>().value(2), "é");
    assert_eq!(
        (
            source.null_count(0),
            source.null_count(1),
            source.null_count(2),
            source.null_count(3)
        ),
        (Some(0), Some(0), Some(1), Some(2))
    );
    let first = source.first_null(2).unwrap().unwrap();
    assert_eq!(
        (first.key.as_deref(), first.row, first.to_string().as_str()),
        (Some("b/003"), 2, "sample b/003")
    );
    assert_eq!(source.first_null(1).unwrap(), None);
    let description = source.description();
    assert_eq!(
        (description.kind, description.rows, description.files.len()),
        (SourceKind::Tree, Some(3), 1)
    );
    let tree = description.tree.as_ref().unwrap();
    assert_eq!((tree.files, tree.samples), (6, 3));
    let counts: Vec<_> = tree
        .fields
        .iter()
        .map(|field| (field.name.as_str(), field.samples))
        .collect();
    assert_eq!(counts, [("jpg", 3), ("json", 2), ("txt", 1)]);
}

#[test]
fn group_by_file_makes_each_file_a_sample() {
    let dir = TestDir::new();
    let path = images(&dir);
    let source = open_with(&path, |options| {
        options.tree.group = TreeGroup::File;
        options.tree.key_column = "path".to_owned();
    })
    .unwrap();
    let found = read(source.as_ref());
    let keys: Vec<_> = found
        .column(0)
        .as_string::<i32>()
        .iter()
        .flatten()
        .collect();
    assert_eq!(
        keys,
        [
            "a/001.jpg",
            "a/001.json",
            "b/002.jpg",
            "b/002.json",
            "b/003.jpg",
            "b/003.txt"
        ]
    );
    assert_eq!(source.schema().field(0).name(), "path");
    assert_eq!(found.column(1).as_binary::<i32>().value(5), "é".as_bytes());
}

#[test]
fn filters_and_columns_read_only_needed_files() {
    let dir = TestDir::new();
    let path = images(&dir);
    // This file is replaced by a directory, so opening it fails.
    let source = open_with(&path, |options| {
        options.query.filter = Some("__key__ LIKE 'b/%'".to_owned());
        options.query.columns = vec![SelectColumn::named("__key__"), SelectColumn::named("json")];
    })
    .unwrap();
    fs::remove_file(dir.path("t/b/003.jpg")).unwrap();
    fs::create_dir(dir.path("t/b/003.jpg")).unwrap();
    let found = read(source.as_ref());
    assert_eq!(found.column(0).as_string::<i32>().value(0), "b/002");
    assert_eq!(found.num_rows(), 2);
    let source = open_with(&path, |options| {
        options.query.sql =
            Some("SELECT count(*) AS n, max(length(__key__)) AS most FROM source".to_owned())
    });
    assert_eq!(read(source.unwrap().as_ref()).num_rows(), 1);
}

#[test]
fn tree_units_are_limited_in_files_and_bytes() {
    let dir = TestDir::new();
    for number in 0..2500 {
        dir.write(&format!("t/{number:05}.txt"), format!("text {number}"));
    }
    let source = open_one(&dir.path("t"));
    let units: Vec<_> = source
        .units()
        .iter()
        .map(|unit| (unit.first_row, unit.rows))
        .collect();
    assert_eq!(
        units,
        [
            (Some(0), Some(1024)),
            (Some(1024), Some(1024)),
            (Some(2048), Some(452))
        ]
    );
    for number in 0..10 {
        dir.write(&format!("u/{number}.bin"), vec![number; 1_500_000]);
    }
    let source = open_with(&dir.path("u"), |options| {
        options.resources.batch_bytes = 1 << 20
    })
    .unwrap();
    let rows: Vec<_> = source
        .units()
        .iter()
        .map(|unit| unit.rows.unwrap())
        .collect();
    assert_eq!(rows, [3, 3, 3, 1]);
    let found = batches(source.as_ref()).unwrap();
    assert_eq!(found.len(), 10);
    assert!(
        (0..10).all(|number| found[number].column(1).as_binary::<i32>().value(0)
            == vec![number as u8; 1_500_000])
    );
    // Several locations, one after the other.
    let source = open(
        &[dir.path("u").into(), dir.path("t").into()],
        &SourceOptions::default(),
    )
    .unwrap();
    assert_eq!(
        (source.description().files.len(), source.description().rows),
        (2, Some(2510))
    );
    assert_eq!(source.units().last().unwrap().file, Some(1));
    assert_eq!(source.units()[4].first_row, Some(0));
    assert_eq!(read(source.as_ref()).num_rows(), 2510);
}

#[test]
fn file_changed_after_listing_is_an_error() {
    let dir = TestDir::new();
    for change in ["grow", "shrink", "touch", "remove", "link"] {
        dir.write("t/a.bin", "0123456789");
        let source = open_one(&dir.path("t"));
        let path = dir.path("t/a.bin");
        match change {
            "grow" => fs::write(&path, "0123456789x").unwrap(),
            "shrink" => fs::write(&path, "012345678").unwrap(),
            "touch" => {
                let file = fs::File::options().write(true).open(&path).unwrap();
                file.set_modified(std::time::UNIX_EPOCH).unwrap();
            }
            "remove" => fs::remove_file(&path).unwrap(),
            _ => {
                fs::remove_file(&path).unwrap();
                std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
            }
        }
        let error = check_error(batches(source.as_ref()).unwrap_err());
        let id = match change {
            "remove" => "not-found",
            "link" => "tree-symlink",
            _ => "source-changed",
        };
        assert_eq!(error.id(), id, "{change}: {error}");
        assert!(error.object().unwrap().ends_with("t/a.bin"));
        fs::remove_dir_all(dir.path("t")).unwrap();
    }
}

#[test]
fn invalid_trees_are_errors() {
    let dir = TestDir::new();
    let id = |name: &str| {
        refused(&dir.path(name), |options| {
            options.kind = Some(SourceKind::Tree)
        })
        .id()
    };
    fs::create_dir_all(dir.path("empty/below")).unwrap();
    assert_eq!(id("empty"), "tree-empty");
    assert_eq!(id("gone"), "source-not-found");
    dir.write("file", "x");
    assert_eq!(id("file"), "source-unsupported");
    dir.write("case/a.jpg", "");
    dir.write("case/a.JPG", "");
    assert_eq!(id("case"), "tree-collision");
    dir.write("key/a.__key__", "");
    assert_eq!(id("key"), "tree-collision");
    dir.write("link/a", "x");
    std::os::unix::fs::symlink("a", dir.path("link/b")).unwrap();
    assert_eq!(id("link"), "tree-symlink");
    let source = open_with(&dir.path("link"), |options| {
        options.tree.follow_links = true
    })
    .unwrap();
    assert_eq!(read(source.as_ref()).num_rows(), 2);
    let error = refused(&dir.path("link"), |options| {
        options.tree.follow_links = true;
        options.files.destination = Some(dir.path("link/out").into());
    });
    assert_eq!(
        (error.id(), error.kind()),
        ("tree-overlap", ErrorKind::InvalidInput)
    );
    dir.write("text/a.txt", b"abc\xffdef");
    let error = check_error(batches(open_one(&dir.path("text")).as_ref()).unwrap_err());
    assert_eq!(
        (error.id(), error.to_string().as_str()),
        ("tree-text", "is not UTF-8 at byte 3")
    );
    dir.write("big/a.bin", vec![0; 2000]);
    let error = refused(&dir.path("big"), |options| {
        options.limits.sample_bytes = 1000
    });
    assert_eq!(error.id(), "limit-sample-bytes");
    for number in 0..20 {
        dir.write(&format!("many/a.x{number}"), "");
    }
    assert_eq!(
        refused(&dir.path("many"), |options| options.limits.columns = 10).id(),
        "limit-columns"
    );
    for parts in [&["t1/a.x"][..], &["t2/a.x"]] {
        dir.write(parts[0], "");
    }
    let error = open(
        &[dir.path("t1").into(), dir.path("t2").into()],
        &SourceOptions::default(),
    )
    .err()
    .unwrap();
    assert_eq!(error.to_string(), "the key `a` is in two locations");
}

#[test]
fn rows_and_fingerprint_do_not_depend_on_jobs_or_location() {
    let dir = TestDir::new();
    let first = images(&dir);
    let one = open_one(&first);
    let expected = (read(one.as_ref()), one.description().fingerprint.clone());
    for jobs in [1, 2, 7] {
        let source = open_with(&first, |options| options.resources.jobs = jobs).unwrap();
        assert_eq!(
            (
                read(source.as_ref()),
                source.description().fingerprint.clone()
            ),
            expected
        );
    }
    fs::rename(&first, dir.path("moved")).unwrap();
    let source = open_one(&dir.path("moved"));
    assert_eq!(source.description().fingerprint, expected.1);
    dir.write("moved/new.jpg", "x");
    assert_ne!(
        open_one(&dir.path("moved")).description().fingerprint,
        expected.1
    );
}

#[test]
fn row_origins_name_the_sample_key() {
    let dir = TestDir::new();
    let path = images(&dir);
    let keys_of = |source: &dyn Source| -> Vec<(String, String)> {
        let mut found = Vec::new();
        for unit in 0..source.units().len() {
            let mut rows = source.open_unit(unit).unwrap();
            let mut row = 0;
            while let Some(batch) = rows.next_batch().unwrap() {
                for key in batch.column(0).as_string::<i32>().iter().flatten() {
                    found.push((
                        format!("sample {key}"),
                        source.row_origin(unit, row).to_string(),
                    ));
                    row += 1;
                }
            }
        }
        found
    };
    let plain = open_one(&path);
    let computed = open_with(&path, |options| {
        options.query.select = Some("__key__, jpg IS NULL AS missing".to_owned());
    })
    .unwrap();
    let filtered = open_with(&path, |options| {
        options.query.filter = Some("json IS NULL OR __key__ LIKE 'a%'".to_owned());
    })
    .unwrap();
    let random = shuffled(open_one(&path), 7, &SourceOptions::default().resources);
    for (source, rows) in [(plain, 3), (computed, 3), (filtered, 2), (random, 3)] {
        let found = keys_of(&*source);
        assert_eq!(found.len(), rows);
        for (key, dir) in found {
            assert_eq!(dir, key);
        }
    }
    // A query has rows of its own.
    let query = open_with(&path, |options| {
        options.query.sql = Some("SELECT count(*) AS samples FROM source".to_owned());
    })
    .unwrap();
    assert_eq!(query.row_origin(0, 0).to_string(), "row 0 of the result");
}
