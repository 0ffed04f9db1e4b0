//! WebDataset data sets, and what is wrong with them.

use std::fs;
use std::path::Path;

use shardmill_core::Diagnostic as _;
use shardmill_order::World;
use shardmill_storage::Location;
use shardmill_webdataset::{
    FieldSet, FileHashes, FileInfo, HashAlgo, Index, IndexShard, Profile, ShardBuilder,
    TarCompression, compress_shard, offsets_name, write_offsets,
};

use crate::{BatchData, BatchOptions, Reader, ReaderError, ReaderOptions, Schema, StreamOptions};

/// How a data set of tar files is stored.
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

fn plain(shards: usize) -> Vec<Vec<TarSample>> {
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

fn read(dir: &Path) -> Result<u64, ReaderError> {
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
fn samples_of_different_fields_have_schemas_of_their_own() {
    let temp = tempfile::tempdir().unwrap();
    let mut shards = plain(1);
    shards[0][3].1.push(("cls", b"7".to_vec()));
    shards[0][5].1.push(("cls", b"8".to_vec()));
    TarSet::default().write(temp.path(), &shards);
    let streams = [StreamOptions::local(temp.path())];
    let reader = Reader::open(&streams, &ReaderOptions::default()).unwrap();
    assert_eq!(
        reader.single_schema().unwrap().names(),
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
fn damaged_shards_are_named() {
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
        // The checksum of a header, and a name that is another key.
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
fn a_count_that_the_tar_file_does_not_have_is_named() {
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
        // Nothing is written beside what is read in place, but what was unpacked.
        assert!(!dir.join("index.json").exists());
    }
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(read(empty.path()).unwrap_err().id(), "index-missing");
}

#[test]
fn beside_a_cache_a_scan_is_kept_while_the_tar_files_are_the_same() {
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
    assert_eq!((reader.samples(), reader.shards()), (30, 3));
    assert_eq!(
        reader.sample(29).unwrap().schema.names(),
        ["__key__", "bin", "txt"]
    );
    drop(reader);
    // The headers are not read again: that this one is damaged is found when its shard is.
    let path = remote.join("shard-000001.tar");
    let sound = fs::read(&path).unwrap();
    let mut bytes = sound.clone();
    bytes[0] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let reader = open().unwrap();
    assert_eq!(reader.samples(), 30);
    drop(reader);
    // Another length is another data set.
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
fn single_samples_of_another_folder_are_read_by_their_bytes() {
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
