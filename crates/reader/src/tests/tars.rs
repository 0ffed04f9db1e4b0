//! Tests of WebDataset datasets, and of damaged ones.

use std::fs;
use std::path::Path;

use shardmill_core::Error;
use shardmill_order::World;
use shardmill_storage::{Location, RemoteOptions};
use shardmill_testing::s3::{Objects, S3Server, Settings};
use shardmill_webdataset::{
    FieldSet, FileHashes, FileInfo, HashAlgo, Index, IndexShard, Profile, ShardBuilder,
    TarCompression, compress_shard, offsets_name, write_offsets,
};

use crate::{BatchData, BatchOptions, Reader, ReaderOptions};
use shardmill_dataset::{Schema, StreamOptions};

/// How a dataset of tar files is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TarSet {
    pub(crate) compression: Option<TarCompression>,
    pub(crate) offsets: bool,
}

impl Default for TarSet {
    fn default() -> Self {
        Self {
            compression: None,
            offsets: true,
        }
    }
}

/// A key, and the fields by name.
pub(crate) type TarSample = (String, Vec<(&'static str, Vec<u8>)>);

impl TarSet {
    /// Writes shards and their index.
    pub(crate) fn write(self, dir: &Path, shards: &[Vec<TarSample>]) {
        fs::create_dir_all(dir).unwrap();
        let mut index = Index::default();
        for (number, samples) in shards.iter().enumerate() {
            let mut builder = ShardBuilder::new(Profile::default());
            for (key, fields) in samples {
                let fields: Vec<(&str, &[u8])> = fields
                    .iter()
                    .map(|(name, value)| (*name, value.as_slice()))
                    .collect();
                builder.push(key, &fields).unwrap();
            }
            let (raw, map) = builder.finish();
            let name = format!("shard-{number:06}.tar");
            let file = |name: &str, bytes: &[u8]| FileInfo {
                basename: name.into(),
                bytes: bytes.len() as u64,
                hashes: FileHashes::of(&[HashAlgo::Sha256], bytes),
            };
            let zip_data = self.compression.map(|compression| {
                let zip = compress_shard(&raw, &map.offsets(), compression, 1 << 14).unwrap();
                let name = format!("{name}{}", compression.ending());
                fs::write(dir.join(&name), &zip).unwrap();
                file(&name, &zip)
            });
            if zip_data.is_none() {
                fs::write(dir.join(&name), &raw).unwrap();
            }
            let offsets = self.offsets.then(|| {
                let table = write_offsets(&map.offsets());
                let name = offsets_name(&name);
                fs::write(dir.join(&name), &table).unwrap();
                file(&name, &table)
            });
            index.shards.push(IndexShard {
                fields: FieldSet::of(&map.samples).into(),
                samples: map.samples.len() as u64,
                compression: self.compression,
                raw_data: file(&name, &raw),
                zip_data,
                offsets,
            });
        }
        fs::write(dir.join("index.json"), index.to_json()).unwrap();
    }
}

pub(crate) fn plain(shards: usize) -> Vec<Vec<TarSample>> {
    let sample = |shard: usize, at: usize| {
        let text = format!("{shard}:{at}").into_bytes();
        (
            format!("{shard}-{at}"),
            vec![("txt", text), ("bin", vec![7; 100 * at])],
        )
    };
    (0..shards)
        .map(|shard| (0..10).map(|at| sample(shard, at)).collect())
        .collect()
}

fn read(dir: &Path) -> Result<u64, Error> {
    let reader = Reader::open(&[StreamOptions::local(dir)], &ReaderOptions::default())?;
    let config = reader.epoch_config(4, World::SINGLE);
    let mut batches = reader.epoch(&config, BatchOptions::default())?;
    let mut seen = 0;
    while let Some(batch) = batches.next_batch()? {
        seen += batch.len() as u64;
    }
    Ok(seen)
}

#[test]
fn tar_samples_with_different_fields_get_own_schemas() {
    let temp = tempfile::tempdir().unwrap();
    let mut shards = plain(1);
    shards[0][3].1.push(("cls", b"7".to_vec()));
    shards[0][5].1.push(("cls", b"8".to_vec()));
    TarSet::default().write(temp.path(), &shards);
    let streams = [StreamOptions::local(temp.path())];
    let reader = Reader::open(&streams, &ReaderOptions::default()).unwrap();
    assert_eq!(
        reader.catalog().schemas()[0].names(),
        ["__key__", "bin", "cls", "txt"]
    );
    let config = reader.epoch_config(10, World::SINGLE);
    let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
    let batch = batches.next_batch().unwrap().unwrap();
    let BatchData::Samples { schemas, .. } = batch.data else {
        panic!("in columns");
    };
    for (at, schema) in schemas.iter().enumerate() {
        let expected: &[&str] = match at {
            3 | 5 => &["__key__", "bin", "cls", "txt"],
            _ => &["__key__", "bin", "txt"],
        };
        assert_eq!(schema.names(), expected, "{at}");
        assert!(matches!(**schema, Schema::Binary { .. }));
        assert!(std::sync::Arc::ptr_eq(
            schema,
            &reader.sample(at as u64).unwrap().schema
        ));
    }
}

#[test]
fn damaged_tar_shards_indexes_and_tables_are_errors() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let shard = dir.join("shard-000001.tar");
    let table = dir.join("shard-000001.tar.idx");
    let index = dir.join("index.json");
    let flip = |path: &Path, at: usize, mask: u8| {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= mask;
        fs::write(path, bytes).unwrap();
    };
    let swap = |from: &str, to: &str| {
        let text = fs::read_to_string(&index).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&index, text.replace(from, to)).unwrap();
    };
    let spoils: [(&str, &dyn Fn()); 8] = [
        ("shard-missing", &|| fs::remove_file(&shard).unwrap()),
        ("shard-missing", &|| fs::remove_file(&table).unwrap()),
        ("shard-length", &|| fs::write(&shard, b"short").unwrap()),
        // A wrong checksum of a header, and a name with another key.
        ("tar-checksum", &|| flip(&shard, 0, 1)),
        ("tar-offsets", &|| flip(&table, 9, 1)),
        ("tar-fields", &|| swap(r#""bin", "txt""#, r#""bin", "tot""#)),
        ("tar-offsets", &|| {
            swap(r#""samples": 10"#, r#""samples": 11"#)
        }),
        ("index-format", &|| swap("webdataset", "webdataset2")),
    ];
    for (id, spoil) in spoils {
        TarSet::default().write(dir, &plain(2));
        assert_eq!(read(dir).unwrap(), 20);
        spoil();
        let error = read(dir).unwrap_err();
        assert_eq!(error.id(), id, "{}", error.chain());
    }
}

#[test]
fn wrong_sample_count_in_index_is_an_error() {
    let temp = tempfile::tempdir().unwrap();
    let bare = TarSet {
        offsets: false,
        ..TarSet::default()
    };
    bare.write(temp.path(), &plain(1));
    let index = temp.path().join("index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace(r#""samples": 10"#, r#""samples": 9"#)).unwrap();
    let error = read(temp.path()).unwrap_err();
    assert_eq!(error.id(), "tar-samples", "{}", error.chain());
}

#[test]
fn tar_files_without_an_index_are_scanned() {
    let root = tempfile::tempdir().unwrap();
    for compression in [
        None,
        Some(TarCompression::Zstd { level: 3 }),
        Some(TarCompression::Gzip { level: 6 }),
    ] {
        let set = TarSet {
            compression,
            offsets: false,
        };
        let dir = root.path().join(format!("{compression:?}"));
        set.write(&dir, &plain(3));
        fs::remove_file(dir.join("index.json")).unwrap();
        fs::write(dir.join("notes.txt"), b"no shard").unwrap();
        assert_eq!(read(&dir).unwrap(), 30);
        // Nothing is written next to a dataset that is read in place, except decompressed shards.
        assert!(!dir.join("index.json").exists());
    }
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(read(empty.path()).unwrap_err().id(), "index-missing");
}

#[test]
fn scan_is_cached_while_tar_files_are_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let remote = root.path().join("remote");
    let local = root.path().join("local");
    let bare = TarSet {
        offsets: false,
        ..TarSet::default()
    };
    bare.write(&remote, &plain(3));
    fs::remove_file(remote.join("index.json")).unwrap();
    let streams = [StreamOptions::remote(
        Location::Local(remote.clone()),
        &local,
    )];
    let open = || Reader::open(&streams, &ReaderOptions::default());
    let reader = open().unwrap();
    assert_eq!(
        (reader.catalog().samples(), reader.catalog().len()),
        (30, 3)
    );
    assert_eq!(
        reader.sample(29).unwrap().schema.names(),
        ["__key__", "bin", "txt"]
    );
    drop(reader);
    // The headers are not read again, so damage to this one is found when its shard is opened.
    let path = remote.join("shard-000001.tar");
    let sound = fs::read(&path).unwrap();
    let mut bytes = sound.clone();
    bytes[0] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let reader = open().unwrap();
    assert_eq!(reader.catalog().samples(), 30);
    drop(reader);
    // A file of another length belongs to another dataset.
    fs::write(
        &path,
        sound.iter().chain(&[0; 512]).copied().collect::<Vec<_>>(),
    )
    .unwrap();
    assert_eq!(open().unwrap_err().id(), "cache-foreign");
    fs::write(&path, &bytes).unwrap();
    fs::remove_file(local.join("index.json")).unwrap();
    let error = open().unwrap_err();
    assert_eq!(error.id(), "tar-checksum");
    assert_eq!(error.object().unwrap(), "shard-000001.tar");
}

#[test]
fn single_remote_sample_is_read_without_fetching_its_shard() {
    let root = tempfile::tempdir().unwrap();
    let remote = root.path().join("remote");
    let shards = plain(4);
    TarSet::default().write(&remote, &shards);
    let location = Location::Local(remote);
    let streams = [StreamOptions::remote(location, root.path().join("local"))];
    let reader = Reader::open(&streams, &ReaderOptions::default()).unwrap();
    let found = reader.sample(27).unwrap();
    let (key, fields) = &shards[2][7];
    let expected = shardmill_testing::mds::sample(&[
        (false, key.as_bytes()),
        (false, &fields[1].1),
        (false, &fields[0].1),
    ]);
    assert_eq!(found.bytes, expected);
    let stats = reader.cache_stats();
    assert_eq!((stats.alone_samples, stats.fetched_shards), (1, 0));
}

/// Writes tar files of ten samples each below a folder, and files that must not be read as tar shards.
fn nested(root: &Path) -> Vec<String> {
    let bare = TarSet {
        offsets: false,
        ..TarSet::default()
    };
    let names = ["a.tar", "b/c/1.tar", "b/c.tar", "z/0.tar"];
    let made = tempfile::tempdir().unwrap();
    bare.write(made.path(), &plain(names.len()));
    for (number, name) in names.iter().enumerate() {
        let to = root.join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(made.path().join(format!("shard-{number:06}.tar")), to).unwrap();
    }
    for hidden in [".cache", ".shardmill/cache-0"] {
        bare.write(&root.join(hidden), &plain(1));
    }
    fs::write(root.join("b/.hidden.tar"), b"no shard").unwrap();
    // Sorted by the bytes of the names: a dot comes before a slash.
    ["a.tar", "b/c.tar", "b/c/1.tar", "z/0.tar"]
        .map(str::to_owned)
        .to_vec()
}

#[test]
fn nested_tar_files_are_found_and_read() {
    let root = tempfile::tempdir().unwrap();
    let tars = root.path().join("tars");
    let names = nested(&tars);
    let set = shardmill_dataset::TarSet::open(
        &[tars.clone().into()],
        &shardmill_core::Limits::default(),
        &RemoteOptions::default(),
    );
    let set = set.unwrap();
    let found: Vec<&str> = set
        .shards()
        .iter()
        .map(shardmill_dataset::TarFile::name)
        .collect();
    assert_eq!(found, names);
    assert!(shardmill_dataset::holds_tars(&tars).unwrap());

    let server = S3Server::start(Objects::folder("bucket", &tars), Settings::default()).unwrap();
    let options = ReaderOptions {
        remote: RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        },
        ..ReaderOptions::default()
    };
    let local = |name: &str| root.path().join(name);
    let store = Location::parse("s3://bucket").unwrap();
    for (stream, copy) in [
        (StreamOptions::local(&tars), None),
        (
            StreamOptions::remote(Location::Local(tars.clone()), local("copy")),
            Some("copy"),
        ),
        (
            StreamOptions::remote(store, local("fetched")),
            Some("fetched"),
        ),
    ] {
        // The second time, the list of the first time is used.
        for _ in 0..2 {
            let reader = Reader::open(std::slice::from_ref(&stream), &options).unwrap();
            assert_eq!(
                (reader.catalog().samples(), reader.catalog().len()),
                (40, 4),
                "{copy:?}"
            );
            // The numbers in which the shards were written, in the order of their names.
            for (position, written) in [0, 2, 1, 3].into_iter().enumerate() {
                let key = format!("{written}-3");
                assert_eq!(
                    reader.key_of(position as u64 * 10 + 3).unwrap(),
                    Some(key),
                    "{copy:?}"
                );
            }
            let config = reader.epoch_config(4, World::SINGLE);
            let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
            let mut seen = 0;
            while let Some(batch) = batches.next_batch().unwrap() {
                seen += batch.len();
            }
            assert_eq!(seen, 40, "{copy:?}");
        }
        if let Some(copy) = copy {
            assert!(local(copy).join("b/c/1.tar").is_file());
            assert!(!local(copy).join(".cache").exists());
        }
    }
}

#[test]
fn folder_mixing_tar_and_other_files_is_not_a_dataset() {
    let root = tempfile::tempdir().unwrap();
    let tars = root.path().join("tars");
    nested(&tars);
    // Files that writers leave next to tar files.
    for name in [
        "a.json",
        "b/c_stats.json",
        "b/c.parquet",
        "README.md",
        "meta.yaml",
    ] {
        fs::write(tars.join(name), "x").unwrap();
    }
    assert_eq!(read(&tars).unwrap(), 40);
    fs::create_dir(tars.join("images")).unwrap();
    fs::write(tars.join("images/0.jpg"), "x").unwrap();
    for error in [
        read(&tars).unwrap_err().to_string(),
        shardmill_dataset::holds_tars(&tars)
            .unwrap_err()
            .to_string(),
    ] {
        assert_eq!(
            error,
            "holds tar files such as a.tar, and other files such as images/0.jpg"
        );
    }
    assert_eq!(read(&tars).unwrap_err().id(), "source-mixed");
    let server = S3Server::start(Objects::folder("bucket", &tars), Settings::default()).unwrap();
    let options = ReaderOptions {
        remote: RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        },
        ..ReaderOptions::default()
    };
    let store = Location::parse("s3://bucket").unwrap();
    let streams = [StreamOptions::remote(store, root.path().join("local"))];
    let error = Reader::open(&streams, &options).unwrap_err();
    assert_eq!(error.id(), "source-mixed");
}

#[test]
fn folder_that_contains_a_dataset_is_not_scanned_for_tars() {
    let root = tempfile::tempdir().unwrap();
    let bare = TarSet {
        offsets: false,
        ..TarSet::default()
    };
    nested(root.path());
    TarSet::default().write(&root.path().join("train"), &plain(1));
    assert!(!shardmill_dataset::holds_tars(root.path()).unwrap());
    assert_eq!(read(root.path()).unwrap_err().id(), "index-missing");
    let server = S3Server::start(Objects::folder("bucket", root.path()), Settings::default());
    let options = ReaderOptions {
        remote: RemoteOptions {
            settings: server.as_ref().unwrap().environment(),
            ..RemoteOptions::default()
        },
        ..ReaderOptions::default()
    };
    let copy = tempfile::tempdir().unwrap();
    let store = Location::parse("s3://bucket").unwrap();
    let streams = [StreamOptions::remote(store, copy.path().join("local"))];
    let error = Reader::open(&streams, &options).unwrap_err();
    assert_eq!(error.id(), "index-missing");
    // A hidden folder is a cache of another program.
    fs::rename(root.path().join("train"), root.path().join(".train")).unwrap();
    assert!(shardmill_dataset::holds_tars(root.path()).unwrap());
    assert_eq!(read(root.path()).unwrap(), 40);
    bare.write(&root.path().join("deep/er"), &plain(1));
    fs::remove_file(root.path().join("deep/er/index.json")).unwrap();
    assert_eq!(read(root.path()).unwrap(), 50);
}

#[test]
fn tar_files_of_an_unfinished_conversion_are_rejected() {
    let root = tempfile::tempdir().unwrap();
    let tars = root.path().join("tars");
    TarSet::default().write(&tars, &plain(2));
    fs::create_dir(tars.join(".shardmill")).unwrap();
    fs::write(tars.join(shardmill_core::JOURNAL_NAME), b"{}\n").unwrap();
    // A journal next to an index does not prevent reading: the dataset is being changed.
    assert_eq!(read(&tars).unwrap(), 20);
    fs::remove_file(tars.join("index.json")).unwrap();
    let names_the_conversion = |error: Error| {
        assert_eq!(error.id(), "index-missing");
        let message = error.to_string();
        assert!(message.contains("not finished"), "{message}");
        let hint = error.hint().unwrap();
        assert!(!hint.contains("rebuild"), "{hint}");
    };
    names_the_conversion(read(&tars).unwrap_err());
    let opened =
        shardmill_dataset::Dataset::open(&tars, &shardmill_dataset::OpenOptions::default());
    names_the_conversion(opened.unwrap_err().into());

    // In a store, the same is a prefix with objects.
    let journal = fs::read(tars.join(shardmill_core::JOURNAL_NAME)).unwrap();
    let shard = fs::read(tars.join("shard-000000.tar")).unwrap();
    let server = S3Server::start(
        Objects::memory(
            "bucket",
            [
                (".shardmill/journal/0000000000".to_owned(), journal),
                ("shard-000000.tar".to_owned(), shard),
            ],
        ),
        Settings::default(),
    )
    .unwrap();
    let options = ReaderOptions {
        remote: RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        },
        ..ReaderOptions::default()
    };
    let store = Location::parse("s3://bucket").unwrap();
    let streams = [StreamOptions::remote(store, root.path().join("local"))];
    names_the_conversion(Reader::open(&streams, &options).unwrap_err());

    fs::remove_file(tars.join(shardmill_core::JOURNAL_NAME)).unwrap();
    assert_eq!(read(&tars).unwrap(), 20);
}

#[test]
fn single_tar_file_is_read_as_a_dataset() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    TarSet::default().write(&path("tars"), &plain(2));
    let tar = path("tars/shard-000001.tar");
    let text = tar.to_str().unwrap();
    let gone = path("tars/gone.tar");
    for (remote, local) in [
        (None, tar.clone()),
        (Some(text), path("copy")),
        // The second time, the copy is read.
        (Some(text), path("copy")),
    ] {
        let stream = StreamOptions::named(remote, Some(local)).unwrap();
        let reader = Reader::open(&[stream], &ReaderOptions::default()).unwrap();
        // An index next to the tar file is ignored.
        assert_eq!(
            (reader.catalog().samples(), reader.catalog().len()),
            (10, 1)
        );
        assert_eq!(reader.key_of(4).unwrap().unwrap(), "1-4");
    }
    assert!(path("copy/index.json").is_file());
    let stream = StreamOptions::named(None, Some(gone)).unwrap();
    let error = Reader::open(&[stream], &ReaderOptions::default()).unwrap_err();
    assert_eq!(error.id(), "shard-missing");
}
