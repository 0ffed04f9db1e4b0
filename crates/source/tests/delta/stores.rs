//! Tests Delta tables in stores: they have the same versions, files and rows as on disk.

use std::fs;
use std::path::{Path, PathBuf};

use shardmill_core::Error;
use shardmill_source::{SourceKind, SourceOptions, detect, open};
use shardmill_storage::{Location, RemoteOptions, RetryOptions};
use shardmill_testing::s3::{Fault, Objects, S3Server, Script, Settings};

use super::table::{Add, Table, stored_deletions};
use super::{rows, table};
use crate::help::{batches, check_error};

fn server(root: &Path, faults: Script) -> S3Server {
    let settings = Settings {
        faults,
        page: Some(3),
        ..Settings::default()
    };
    S3Server::start(Objects::folder("bucket", root), settings).unwrap()
}

fn options(server: &S3Server) -> SourceOptions {
    SourceOptions {
        remote: RemoteOptions {
            retry: RetryOptions {
                back_off: std::time::Duration::from_millis(1),
                budget_percent: 100,
                ..RetryOptions::default()
            },
            settings: server.environment(),
            ..RemoteOptions::default()
        },
        ..SourceOptions::default()
    }
}

fn at(name: &str) -> Location {
    Location::parse(&format!("s3://bucket/{name}")).unwrap()
}

fn flaky() -> Script {
    Script::random(5, 10, vec![Fault::status(500), Fault::status(503)])
}

#[test]
fn fixture_tables_read_equally_from_store_and_directory() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/delta");
    for faults in [Script::default(), flaky()] {
        let server = server(&folder, faults);
        for (name, versions) in [("versions", 5), ("types", 1), ("evolved", 2)] {
            assert_eq!(
                detect(&[at(name)], &options(&server).remote).unwrap(),
                SourceKind::Delta
            );
            for version in 0..versions {
                let mut options = options(&server);
                options.delta.choice.version = Some(version);
                let here = open(&[folder.join(name).into()], &options);
                let there = open(&[at(name)], &options);
                let (here, there) = match (here, there) {
                    (Ok(here), Ok(there)) => (here, there),
                    (Err(here), Err(there)) => {
                        assert_eq!(here.id(), there.id());
                        continue;
                    }
                    (here, there) => panic!("{:?} {:?}", here.err(), there.err()),
                };
                assert_eq!(here.schema(), there.schema());
                assert_eq!(here.units(), there.units());
                let (ours, theirs) = (here.description(), there.description());
                assert_eq!((ours.rows, ours.bytes), (theirs.rows, theirs.bytes));
                assert_eq!(ours.fingerprint, theirs.fingerprint);
                assert_eq!(
                    batches(here.as_ref()).unwrap(),
                    batches(there.as_ref()).unwrap(),
                    "{name} {version}"
                );
            }
        }
    }
}

#[test]
fn deleted_rows_and_unusual_names_read_equally_from_store() {
    let mut table = Table::with(table_fields(), &["deletionVectors"], serde_json::json!({}));
    let vectors = stored_deletions(&table, &[&[1, 5], &[0]]);
    let mut actions = Vec::new();
    for (number, (name, vector)) in ["a b.parquet", "k=x%20y/c.parquet"]
        .into_iter()
        .zip(vectors)
        .enumerate()
    {
        let from = number as i64 * 10;
        let bytes = table.file(name, &rows(from..from + 10));
        let path = name.replace('%', "%25").replace(' ', "%20");
        actions.push(Add::new(&path).deletion(vector).records(10).action(bytes));
    }
    table.commit(&actions);
    let root = table.path();
    let (parent, name) = (root.parent().unwrap(), root.file_name().unwrap());
    let server = server(parent, Script::default());
    let options = options(&server);
    let there = at(name.to_str().unwrap());
    let here = open(&[root.clone().into()], &options).unwrap();
    let found = open(std::slice::from_ref(&there), &options).unwrap();
    assert_eq!(
        batches(here.as_ref()).unwrap(),
        batches(found.as_ref()).unwrap()
    );
    let delta = found.description().delta.clone().unwrap();
    assert_eq!((delta.deleted_rows, delta.files_with_deletions), (3, 2));
    // The error names the missing file.
    let gone: PathBuf = root.join("a b.parquet");
    fs::remove_file(gone).unwrap();
    let error = check_error(open(&[there], &options).err().unwrap());
    assert_eq!(error.id(), refused_here(&root).id());
    assert!(
        error.object().unwrap().ends_with("a b.parquet"),
        "{error:?}"
    );
}

fn refused_here(root: &Path) -> Error {
    open(&[root.into()], &SourceOptions::default())
        .err()
        .unwrap()
}

fn table_fields() -> serde_json::Value {
    serde_json::json!([table::field("id", "long"), table::field("name", "string")])
}

#[test]
fn missing_table_or_forbidden_log_in_store_is_an_error() {
    let mut table = Table::plain(table_fields());
    table.append("x.parquet", &rows(0..3));
    let root = table.path();
    let (parent, name) = (root.parent().unwrap(), root.file_name().unwrap());
    let name = name.to_str().unwrap();
    let server = server(parent, Script::default());
    let mut options = options(&server);
    options.kind = Some(SourceKind::Delta);
    let error = open(&[at("nothing")], &options).err().unwrap();
    assert_eq!(error.id(), "delta-no-table", "{error}");
    options.files.destination = Some(at(&format!("{name}/out")));
    assert_eq!(
        open(&[at(name)], &options).err().unwrap().id(),
        "tree-overlap"
    );
    options.files.destination = None;
    let log = format!("{name}/_delta_log/");
    server.set(Settings {
        faults: Script::by(move |request| {
            (request.key.starts_with(&log)).then(|| Fault::status(403))
        }),
        ..Settings::default()
    });
    let error = check_error(open(&[at(name)], &options).err().unwrap());
    assert_eq!(error.id(), "credentials", "{error}");
    assert!(error.object().unwrap().contains("_delta_log"), "{error:?}");
}
