//! Tests parts and their commit, in a directory and in a store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use proptest::prelude::*;
use shardmill_core::{Error, ErrorKind, Limits};
use shardmill_mds::{HashAlgo, ShardConfig};
use shardmill_storage::{Destination, Location, PublishMode, RemoteOptions};
use shardmill_testing::s3::{Objects, S3Server, Settings};
use shardmill_webdataset::{FieldSet, Profile, ShardView, TarCompression};
use shardmill_writer::parts::{
    CommitOptions, Committed, GcOptions, GcReason, Manifest, NameForm, PartWriter, SaveMode,
    Staging, Verify, abort, commit, gc,
};
use shardmill_writer::{
    ColumnEncoder, DatasetIndex, FieldEncoding, IndexEntry, RowEncoder, ShardForm, ShardPattern,
    TarForm, TarKeys, TarRows, Target,
};
use tempfile::TempDir;

/// A destination, and the folder that its files are in.
pub(crate) struct Spot {
    pub(crate) root: TempDir,
    pub(crate) destination: Destination,
    pub(crate) server: Option<S3Server>,
}

impl Spot {
    pub(crate) fn local() -> Self {
        let root = tempfile::tempdir().unwrap();
        let location = Location::Local(root.path().join("set"));
        let destination = Destination::create(&location, &RemoteOptions::default(), None).unwrap();
        Self {
            root,
            destination,
            server: None,
        }
    }

    pub(crate) fn store() -> Self {
        let root = tempfile::tempdir().unwrap();
        let objects = Objects::folder("bucket", root.path());
        let server = S3Server::start(objects, Settings::default()).unwrap();
        let location = Location::parse(&format!("{}/set", server.url())).unwrap();
        let options = RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        };
        let destination = Destination::create(&location, &options, None).unwrap();
        Self {
            root,
            destination,
            server: Some(server),
        }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.root.path().join("set")
    }

    /// All files, by path.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.folder()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(self.folder()).unwrap();
                let bytes = std::fs::read(&path).unwrap();
                files.insert(name.to_string_lossy().into_owned(), bytes);
            }
        }
        files
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.files().into_keys().collect()
    }

    pub(crate) fn index(&self) -> Option<DatasetIndex> {
        let text = std::fs::read(self.folder().join("index.json")).ok()?;
        Some(DatasetIndex::parse(&text, &Limits::default()).unwrap())
    }

    /// The samples of the dataset in their order.
    pub(crate) fn numbers(&self) -> Vec<i32> {
        let mut numbers = Vec::new();
        for entry in self.index().unwrap().entries {
            let IndexEntry::Streaming(entry) = entry else {
                panic!("not of MDS");
            };
            let bytes = self.files()[&*entry.raw_data.basename].clone();
            assert_eq!(u64::try_from(bytes.len()).unwrap(), entry.raw_data.bytes);
            let values = &bytes[bytes.len() - 4 * usize::try_from(entry.samples).unwrap()..];
            let values = values.chunks_exact(4);
            numbers.extend(values.map(|four| i32::from_le_bytes(four.try_into().unwrap())));
        }
        numbers
    }

    pub(crate) fn begin(&self, job: &str, mode: SaveMode) -> Result<Staging, Error> {
        let limits = Limits::default();
        Staging::begin(&self.destination, job, names(), mode, &limits, &mut || true)
    }

    pub(crate) fn commit(
        &self,
        staging: &Staging,
        manifests: Vec<Manifest>,
    ) -> Result<Committed, Error> {
        let options = CommitOptions::default();
        // What travels is text.
        let manifests = manifests
            .iter()
            .map(|manifest| Manifest::parse(&manifest.to_json(), &Limits::default()).unwrap());
        commit(
            &self.destination,
            staging,
            manifests.collect(),
            &options,
            &mut || true,
        )
    }
}

pub(crate) fn both(test: impl Fn(Spot)) {
    test(Spot::local());
    test(Spot::store());
}

pub(crate) fn names() -> NameForm {
    NameForm::Mds
}

pub(crate) fn batch(numbers: &[i32]) -> RecordBatch {
    let array: ArrayRef = Arc::new(Int32Array::from_iter_values(numbers.iter().copied()));
    RecordBatch::try_from_iter([("n", array)]).unwrap()
}

/// MDS of a column of numbers, a few to a shard.
pub(crate) fn mds(limit: u64) -> (RowEncoder, ShardForm) {
    mds_with(limit, None)
}

pub(crate) fn mds_with(limit: u64, compression: Option<&str>) -> (RowEncoder, ShardForm) {
    let batch = batch(&[]);
    let target = Target::Mds("int32".parse().unwrap());
    let schema = batch.schema();
    let column = ColumnEncoder::compile(0, schema.field(0), target, &Limits::default()).unwrap();
    let columns = vec![shardmill_mds::Column {
        name: "n".to_owned(),
        encoding: "int32".parse().unwrap(),
    }];
    let config = ShardConfig::new_mds(
        columns,
        compression.map(|name| name.parse().unwrap()),
        vec![HashAlgo::Xxh64],
        Some(limit),
    )
    .unwrap();
    let encoder = RowEncoder::new(vec![column], &config.layout, 1 << 20);
    (encoder, ShardForm::from(Arc::new(config)))
}

pub(crate) fn writer(spot: &Spot, staging: &Staging, part: u64, attempt: &str) -> PartWriter {
    let (encoder, form) = mds(250);
    let destination = spot.destination.clone();
    PartWriter::new(destination, staging, part, attempt, encoder, form, None).unwrap()
}

pub(crate) fn write(
    spot: &Spot,
    staging: &Staging,
    part: u64,
    attempt: &str,
    numbers: &[i32],
) -> Manifest {
    let mut writer = writer(spot, staging, part, attempt);
    for numbers in numbers.chunks(7) {
        writer.push(&batch(numbers), &mut || true).unwrap();
    }
    writer.finish(&mut || true).unwrap()
}

/// The rows of a part.
pub(crate) fn share(part: u64) -> Vec<i32> {
    let first = i32::try_from(part).unwrap() * 1000;
    (first..first + 30).collect()
}

/// Parts of a job, from the last to the first.
pub(crate) fn parts(spot: &Spot, staging: &Staging, count: u64) -> Vec<Manifest> {
    let parts = (0..count).rev();
    parts
        .map(|part| write(spot, staging, part, "a", &share(part)))
        .collect()
}

pub(crate) fn shares(parts: std::ops::Range<u64>) -> Vec<i32> {
    parts.flat_map(share).collect()
}

#[test]
fn committed_parts_form_a_dataset_in_part_order() {
    both(|spot| {
        let staging = spot.begin("job", SaveMode::Create).unwrap();
        let manifests = parts(&spot, &staging, 3);
        assert!(spot.index().is_none(), "nothing is there before the commit");
        let done = spot.commit(&staging, manifests.clone()).unwrap();
        assert_eq!(
            (done.samples, done.total_samples, done.was_done),
            (90, 90, false)
        );
        assert_eq!(spot.numbers(), shares(0..3));
        assert!(done.shards >= 6, "parts of several shards");
        let files: Vec<String> = spot.names();
        assert_eq!(files.len() as u64, done.shards + 1, "{files:?}");
        // Once more, as after an answer that was lost.
        let again = spot.commit(&staging, manifests).unwrap();
        assert_eq!((again.was_done, again.total_samples), (true, 90));
        assert_eq!(spot.numbers(), shares(0..3));
    });
}

#[test]
fn output_does_not_depend_on_attempt_names_or_job() {
    let make = |attempts: [&str; 3], job: &str| {
        let spot = Spot::local();
        let staging = spot.begin(job, SaveMode::Create).unwrap();
        let mut manifests = Vec::new();
        for (part, attempt) in (0..).zip(attempts) {
            manifests.push(write(&spot, &staging, part, attempt, &share(part)));
        }
        manifests.rotate_left(1);
        spot.commit(&staging, manifests).unwrap();
        spot.files()
    };
    let files = make(["a", "b", "c"], "one");
    assert_eq!(files, make(["x", "a", "0"], "two"));
    assert!(
        files.contains_key("shard.00002-00001.mds"),
        "{:?}",
        files.keys()
    );
}

#[test]
fn store_and_directory_shards_are_byte_identical() {
    let contents = |spot: Spot| {
        let staging = spot.begin("job", SaveMode::Create).unwrap();
        let manifests = parts(&spot, &staging, 2);
        spot.commit(&staging, manifests).unwrap();
        let mut files = spot.files();
        files.remove("index.json");
        files.into_values().collect::<Vec<_>>()
    };
    assert_eq!(contents(Spot::local()), contents(Spot::store()));
}

#[test]
fn discarded_attempts_leave_no_files() {
    both(|spot| {
        let staging = spot.begin("job", SaveMode::Create).unwrap();
        let mut manifests = parts(&spot, &staging, 2);
        // One too many, which even saw its rows in another order; one that is dropped half way; one that is of another job.
        let mut other = share(1);
        other.reverse();
        let speculative = write(&spot, &staging, 1, "b", &other);
        let before = spot.names().len();
        let mut half = writer(&spot, &staging, 0, "c");
        half.push(&batch(&share(0)), &mut || true).unwrap();
        assert!(spot.names().len() > before, "it has written something");
        drop(half);
        assert_eq!(spot.names().len(), before);
        let error = spot
            .commit(&staging, [manifests.clone(), vec![speculative]].concat())
            .unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("part-twice", ErrorKind::InvalidInput)
        );
        assert!(error.to_string().contains("attempts a and b"), "{error}");
        let foreign = Staging::fresh("job2", names()).unwrap();
        let stray = write(&spot, &foreign, 0, "a", &share(7));
        manifests.rotate_left(1);
        let done = spot.commit(&staging, manifests).unwrap();
        assert_eq!(spot.numbers(), shares(0..2));
        // Another job's attempt is its own.
        let left = spot.names().len() as u64 - done.shards - 1;
        assert_eq!(left, stray.shards.len() as u64);
        assert!(
            abort(&spot.destination, &foreign, &Limits::default(), &mut || {
                true
            })
            .unwrap()
                > 0
        );
        assert_eq!(spot.names().len() as u64, done.shards + 1);
        assert_eq!(spot.numbers(), shares(0..2));
    });
}

#[test]
fn missing_or_foreign_parts_are_rejected() {
    both(|spot| {
        let staging = spot.begin("job", SaveMode::Create).unwrap();
        let manifests = parts(&spot, &staging, 3);
        let refused = |manifests: Vec<Manifest>, options: &CommitOptions| {
            let error = commit(&spot.destination, &staging, manifests, options, &mut || {
                true
            })
            .unwrap_err();
            assert!(spot.index().is_none());
            (error.id(), error.kind())
        };
        let all = CommitOptions::default();
        let without = |part: u64| {
            let others = manifests.iter().filter(|manifest| manifest.part != part);
            others.cloned().collect::<Vec<_>>()
        };
        let invalid = ErrorKind::InvalidInput;
        assert_eq!(refused(without(1), &all), ("part-missing", invalid));
        let four = CommitOptions {
            parts: Some(4),
            ..all.clone()
        };
        assert_eq!(refused(manifests.clone(), &four), ("part-missing", invalid));
        let two = CommitOptions {
            parts: Some(2),
            ..all.clone()
        };
        assert_eq!(refused(manifests.clone(), &two), ("limit-parts", invalid));
        let other = Staging::fresh("job2", names()).unwrap();
        let stray = write(&spot, &other, 1, "a", &share(1));
        assert_eq!(
            refused([without(1), vec![stray]].concat(), &all),
            ("part-job", invalid)
        );
        let (encoder, form) = mds(500);
        let destination = spot.destination.clone();
        let mut odd =
            PartWriter::new(destination, &staging, 1, "odd", encoder, form, None).unwrap();
        odd.push(&batch(&share(1)), &mut || true).unwrap();
        let odd = odd.finish(&mut || true).unwrap();
        assert_eq!(
            refused([without(1), vec![odd]].concat(), &all),
            ("part-form", invalid)
        );
        spot.commit(&staging, manifests).unwrap();
        assert_eq!(spot.numbers(), shares(0..3));
    });
}

#[test]
fn missing_or_changed_part_files_are_rejected() {
    both(|spot| {
        let staging = spot.begin("job", SaveMode::Create).unwrap();
        let manifests = parts(&spot, &staging, 2);
        let path = spot.folder().join(&manifests[0].shards[0].files[0].at);
        let bytes = std::fs::read(&path).unwrap();
        let hashes = CommitOptions {
            verify: Verify::Hashes,
            ..CommitOptions::default()
        };
        let mut wrong = bytes.clone();
        *wrong.last_mut().unwrap() ^= 1;
        for (contents, id) in [
            (None, "part-file-missing"),
            (Some(&bytes[1..]), "part-file-length"),
            (Some(&wrong[..]), "part-file-hash"),
        ] {
            match contents {
                Some(contents) => std::fs::write(&path, contents).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let error = commit(
                &spot.destination,
                &staging,
                manifests.clone(),
                &hashes,
                &mut || true,
            );
            let error = error.unwrap_err();
            assert_eq!((error.id(), error.kind()), (id, ErrorKind::Corrupt));
            assert!(
                error.object().unwrap().contains("shard."),
                "{:?}",
                error.object()
            );
            assert!(spot.index().is_none());
        }
        if spot.server.is_some() {
            // The store has another tag for it, so nothing needs to be read.
            let error = spot.commit(&staging, manifests.clone()).unwrap_err();
            assert_eq!(error.id(), "part-file-hash");
        }
        std::fs::write(&path, bytes).unwrap();
        commit(&spot.destination, &staging, manifests, &hashes, &mut || {
            true
        })
        .unwrap();
        assert_eq!(spot.numbers(), shares(0..2));
    });
}

#[test]
fn a_commit_that_was_killed_is_finished_by_the_next() {
    let spot = Spot::local();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    let manifests = parts(&spot, &staging, 2);
    let file = &manifests[0].shards[0].files[0];
    let (at, name) = (
        spot.folder().join(&file.at),
        spot.folder().join(&file.check.name),
    );
    std::fs::rename(&at, &name).unwrap();
    spot.commit(&staging, manifests.clone()).unwrap();
    assert_eq!(spot.numbers(), shares(0..2));

    // Another run of the same job finds what a dead commit of the first has left, with other contents.
    let spot = Spot::local();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    let manifests = parts(&spot, &staging, 2);
    let name = spot
        .folder()
        .join(&manifests[0].shards[0].files[0].check.name);
    std::fs::write(&name, b"left by another").unwrap();
    spot.commit(&staging, manifests).unwrap();
    assert_eq!(spot.numbers(), shares(0..2));
}

#[test]
fn already_moved_file_with_wrong_hash_is_rejected() {
    let spot = Spot::local();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    let manifests = parts(&spot, &staging, 1);
    let file = &manifests[0].shards[0].files[0];
    let (at, name) = (
        spot.folder().join(&file.at),
        spot.folder().join(&file.check.name),
    );
    let mut bytes = std::fs::read(&at).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::remove_file(&at).unwrap();
    std::fs::write(&name, bytes).unwrap();
    let error = spot.commit(&staging, manifests).unwrap_err();
    assert_eq!(error.id(), "part-file-hash");
    assert!(spot.index().is_none());
}

#[test]
fn dataset_can_be_appended_to_and_overwritten() {
    both(|spot| {
        let first = spot.begin("one", SaveMode::Create).unwrap();
        let manifests = parts(&spot, &first, 2);
        spot.commit(&first, manifests.clone()).unwrap();
        let error = spot.begin("two", SaveMode::Create).unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("dest-exists", ErrorKind::Conflict)
        );

        let append = spot.begin("two", SaveMode::Append).unwrap();
        assert_eq!(append.first_part(), 2);
        let more = vec![write(&spot, &append, 0, "a", &share(5))];
        let stale = spot.begin("three", SaveMode::Append).unwrap();
        let late = vec![write(&spot, &stale, 0, "a", &share(6))];
        assert_eq!(
            spot.commit(&append, more.clone()).unwrap().total_samples,
            90
        );
        assert!(spot.commit(&append, more).unwrap().was_done);
        let wanted = [shares(0..2), share(5)].concat();
        assert_eq!(spot.numbers(), wanted);
        let error = spot.commit(&stale, late).unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("dest-changed", ErrorKind::Conflict)
        );
        assert_eq!(spot.numbers(), wanted);
        assert!(abort(&spot.destination, &stale, &Limits::default(), &mut || true).unwrap() > 0);

        let before = spot.names();
        let overwrite = spot.begin("four", SaveMode::Overwrite).unwrap();
        assert_eq!(overwrite.first_part(), 3);
        let new = parts(&spot, &overwrite, 2);
        // The side files of the old dataset do not belong to the new one.
        let sides = ["index.provenance", "index.tombstones", "index.columns"];
        for name in sides {
            let (mode, cancel) = (PublishMode::Replace, &mut |_| true);
            let published = spot
                .destination
                .publish_bytes(None, name, b"{}", mode, cancel);
            published.unwrap();
        }
        assert_eq!(spot.commit(&overwrite, new).unwrap().total_samples, 60);
        assert_eq!(spot.numbers(), shares(0..2));
        assert!(
            !sides
                .iter()
                .any(|name| spot.names().contains(&(*name).to_owned()))
        );
        // Readers that have the old index still find its shards.
        assert!(before.iter().all(|name| spot.names().contains(name)));

        // What is not needed any more is found, and removed when that is asked for.
        let mut options = GcOptions::default();
        let report = gc(&spot.destination, &options, &mut || true).unwrap();
        assert!(!report.deleted);
        let unlisted = report.entries.iter().map(|entry| entry.reason);
        assert!(unlisted.clone().all(|reason| reason == GcReason::Unlisted));
        assert_eq!(unlisted.count(), before.len() - 1);
        assert!(report.entries.iter().all(|entry| entry.bytes > 0));
        assert!(before.iter().all(|name| spot.names().contains(name)));
        options.delete = true;
        assert_eq!(
            gc(&spot.destination, &options, &mut || true)
                .unwrap()
                .entries,
            report.entries
        );
        assert_eq!(spot.numbers(), shares(0..2));
        assert_eq!(
            gc(&spot.destination, &options, &mut || true)
                .unwrap()
                .entries,
            []
        );
        let listed = spot.index().unwrap().stored_files().len();
        assert_eq!(spot.names().len(), listed + 1, "{:?}", spot.names());
    });
}

#[test]
fn append_with_different_columns_is_rejected() {
    let spot = Spot::local();
    let staging = spot.begin("one", SaveMode::Create).unwrap();
    let manifests = parts(&spot, &staging, 1);
    spot.commit(&staging, manifests).unwrap();
    let array: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let other = RecordBatch::try_from_iter([("m", array)]).unwrap();
    let target = Target::Mds("int32".parse().unwrap());
    let schema = other.schema();
    let column = ColumnEncoder::compile(0, schema.field(0), target, &Limits::default()).unwrap();
    let columns = vec![shardmill_mds::Column {
        name: "m".to_owned(),
        encoding: "int32".parse().unwrap(),
    }];
    let config = ShardConfig::new_mds(columns, None, Vec::new(), None).unwrap();
    let encoder = RowEncoder::new(vec![column], &config.layout, 1 << 20);
    let staging = spot.begin("two", SaveMode::Append).unwrap();
    let form = ShardForm::from(Arc::new(config));
    let destination = spot.destination.clone();
    let mut writer = PartWriter::new(destination, &staging, 0, "a", encoder, form, None).unwrap();
    writer.push(&other, &mut || true).unwrap();
    let manifest = writer.finish(&mut || true).unwrap();
    let error = spot.commit(&staging, vec![manifest]).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("dest-format", ErrorKind::Conflict)
    );
    assert_eq!(
        error.to_string(),
        "the dataset has shards of mds (n int32), the job writes mds (m int32)"
    );
}

#[test]
fn parts_without_rows_are_committed() {
    both(|spot| {
        let staging = spot.begin("job", SaveMode::Create).unwrap();
        let manifests = vec![
            write(&spot, &staging, 0, "a", &[]),
            write(&spot, &staging, 1, "a", &share(1)),
            write(&spot, &staging, 2, "a", &[]),
        ];
        assert_eq!(manifests[0].form, None);
        spot.commit(&staging, manifests).unwrap();
        assert_eq!(spot.numbers(), share(1));
        let staging = spot.begin("two", SaveMode::Overwrite).unwrap();
        let manifests = vec![write(&spot, &staging, 0, "a", &[])];
        assert_eq!(spot.commit(&staging, manifests).unwrap().total_samples, 0);
        assert_eq!(spot.numbers(), Vec::<i32>::new());
    });
}

#[test]
fn invalid_row_closes_the_part_writer() {
    let spot = Spot::local();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    let mut writer = writer(&spot, &staging, 0, "a");
    writer.push(&batch(&share(0)), &mut || true).unwrap();
    let array: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let hole = RecordBatch::try_from_iter([("n", array)]).unwrap();
    let error = writer.push(&hole, &mut || true).unwrap_err();
    assert_eq!(error.id(), "value-null");
    assert_eq!(error.to_string(), "row 31 is null");
    assert_eq!(
        writer.push(&batch(&[1]), &mut || true).unwrap_err().id(),
        "writer-closed"
    );
    assert_eq!(
        writer.finish(&mut || true).unwrap_err().id(),
        "writer-closed"
    );
    assert_eq!(spot.names(), Vec::<String>::new());
}

#[test]
fn duplicate_attempt_conflicts_and_cancelled_attempt_stops() {
    let spot = Spot::local();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    let first = writer(&spot, &staging, 0, "a");
    let (encoder, form) = mds(250);
    let destination = spot.destination.clone();
    let second = PartWriter::new(destination, &staging, 0, "a", encoder, form, None);
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Conflict);
    drop(first);
    let mut writer = writer(&spot, &staging, 0, "a");
    let numbers: Vec<i32> = (0..1000).collect();
    let error = writer.push(&batch(&numbers), &mut || false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
}

#[test]
fn concurrent_commit_or_gc_is_a_conflict() {
    let spot = Spot::local();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    let manifests = parts(&spot, &staging, 1);
    let dir = spot.destination.as_local().unwrap();
    let lease = shardmill_storage::Lease::acquire(dir, ".shardmill/commit/lease").unwrap();
    let error = spot.commit(&staging, manifests.clone()).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("other-writer", ErrorKind::Conflict)
    );
    let options = GcOptions {
        delete: true,
        ..GcOptions::default()
    };
    let error = gc(&spot.destination, &options, &mut || true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    drop(lease);
    spot.commit(&staging, manifests).unwrap();
    assert_eq!(spot.numbers(), share(0));
}

#[test]
fn tampered_manifests_are_rejected() {
    let spot = Spot::local();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    let text = write(&spot, &staging, 0, "a", &share(0)).to_json();
    assert_eq!(
        Manifest::parse(&text, &Limits::default())
            .unwrap()
            .to_json(),
        text
    );
    for (from, to, id) in [
        ("\"version\":1", "\"version\":2", "manifest-syntax"),
        ("\"job\":\"job\"", "\"job\":\"../job\"", "config-value"),
        ("\"samples\":30", "\"samples\":31", "manifest-syntax"),
        (".shardmill/parts/", "../parts/", "manifest-syntax"),
        ("\"name\":\"shard.", "\"name\":\"/shard.", "manifest-syntax"),
        ("\"name\":\"shard.", "\"name\":\"other.", "manifest-syntax"),
        ("\"part\":0", "\"part\":99999999", "limit-parts"),
        ("\"form\":", "\"from\":", "manifest-syntax"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Manifest::parse(&text.replace(from, to), &Limits::default()).unwrap_err();
        assert_eq!(error.id(), id, "{to}");
    }
}

pub(crate) fn tar() -> (RowEncoder, ShardForm) {
    let batch = batch(&[]);
    let target = Target::Field(FieldEncoding::Int);
    let schema = batch.schema();
    let field = schema.field(0).clone().with_name("cls");
    let column = ColumnEncoder::compile(0, &field, target, &Limits::default()).unwrap();
    let profile = Profile::default();
    let keys = TarKeys::Number;
    let form = TarForm {
        pattern: ShardPattern::default(),
        profile,
        fields: Arc::new(FieldSet {
            always: vec!["cls".into()],
            sometimes: Vec::new(),
        }),
        compression: None::<TarCompression>,
        hashes: vec![HashAlgo::Sha256],
        size_limit: Some(20_000),
    };
    let encoder = RowEncoder::tar(vec![column], TarRows { profile, keys }, 1 << 20);
    (encoder, ShardForm::Tar(Arc::new(form)))
}

#[test]
fn tar_sample_keys_are_unique_across_parts() {
    both(|spot| {
        let names = NameForm::Tar(ShardPattern::default());
        let limits = Limits::default();
        let mode = SaveMode::Create;
        let staging =
            Staging::begin(&spot.destination, "job", names, mode, &limits, &mut || true).unwrap();
        let mut manifests = Vec::new();
        for part in 0..2 {
            let (encoder, form) = tar();
            let destination = spot.destination.clone();
            let mut writer =
                PartWriter::new(destination, &staging, part, "a", encoder, form, None).unwrap();
            writer.push(&batch(&share(part)), &mut || true).unwrap();
            manifests.push(writer.finish(&mut || true).unwrap());
        }
        spot.commit(&staging, manifests).unwrap();
        let mut found = Vec::new();
        for entry in spot.index().unwrap().entries {
            let IndexEntry::Tar(entry) = entry else {
                panic!("not a tar file");
            };
            let files = spot.files();
            assert!(files.contains_key(&*entry.offsets.unwrap().basename));
            let bytes = &files[&*entry.raw_data.basename];
            let view = ShardView::open(bytes, &limits).unwrap();
            for at in 0..view.len() {
                let fields = view.fields(at).unwrap();
                let text = std::str::from_utf8(fields[0].data).unwrap();
                found.push((view.key(at).unwrap(), text.parse::<i32>().unwrap()));
            }
        }
        let wanted = (0..2_u64).flat_map(|part| {
            let keys = (0..).map(move |number: u64| format!("{part:05}-{number:09}"));
            keys.zip(share(part))
        });
        assert_eq!(found, wanted.collect::<Vec<_>>());
    });
}

pub(crate) fn is_tidy(folder: &Path) -> bool {
    !folder.join(".shardmill").exists()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn commit_neither_loses_nor_duplicates_samples(
        sizes in prop::collection::vec(0_usize..80, 1..6),
        losers in prop::collection::vec((0_usize..6, 0_usize..80), 0..4),
        order in any::<u64>(),
    ) {
        let spot = Spot::local();
        let staging = spot.begin("job", SaveMode::Create).unwrap();
        let mut next = 0_i32;
        let mut wanted = Vec::new();
        let mut manifests = Vec::new();
        for (part, size) in sizes.iter().enumerate() {
            let numbers: Vec<i32> = (next..).take(*size).collect();
            next += i32::try_from(*size).unwrap();
            manifests.push(write(&spot, &staging, part as u64, "winner", &numbers));
            wanted.extend(numbers);
        }
        for (at, (part, size)) in losers.iter().enumerate() {
            let numbers: Vec<i32> = (-1000..).take(*size).collect();
            write(&spot, &staging, *part as u64, &format!("loser{at}"), &numbers);
        }
        let turns = usize::try_from(order % manifests.len() as u64).unwrap();
        manifests.rotate_left(turns);
        let done = spot.commit(&staging, manifests).unwrap();
        prop_assert_eq!(spot.numbers(), wanted);
        prop_assert_eq!(spot.names().len() as u64, done.shards + 1);
        prop_assert!(is_tidy(&spot.folder()));
    }
}
