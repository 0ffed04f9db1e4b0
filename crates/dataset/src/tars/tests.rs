use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use shardmill_core::{Diagnostic as _, ErrorKind, Limits, Progress};
use shardmill_storage::RemoteOptions;
use shardmill_webdataset::{
    FieldSet, FileHashes, FileInfo, HashAlgo, Index, IndexShard, Profile, ShardBuilder, ShardMap,
    Survey, TarCompression, compress_shard, write_offsets,
};

use super::{TarPattern, TarSet, each_in_order, holds_tars, is_tar_name, verify_tars};
use crate::error::DatasetError;
use crate::shard_checks::VerifyOptions;

/// Builds a shard of some samples whose contents are larger than the window for headers.
fn shard(first: usize, samples: usize) -> (Vec<u8>, ShardMap) {
    let mut shard = ShardBuilder::new(Profile::default());
    for sample in first..first + samples {
        let large = vec![7; sample * 40_000];
        let fields: [(&str, &[u8]); 2] = [("bin", &large), ("cls", b"1")];
        shard.push(&format!("{sample:03}"), &fields).unwrap();
    }
    shard.finish()
}

fn write(root: &tempfile::TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = root.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

fn open(path: PathBuf) -> Result<TarSet, DatasetError> {
    TarSet::open(
        &[path.into()],
        &Limits::default(),
        &RemoteOptions::default(),
    )
}

/// Builds an index of one shard with a table of offsets.
fn index(name: &str, bytes: &[u8], map: &ShardMap) -> Index {
    let file = |basename: String, bytes: &[u8]| FileInfo {
        basename: basename.into(),
        bytes: bytes.len() as u64,
        hashes: shardmill_webdataset::FileHashes::default(),
    };
    Index {
        shards: vec![IndexShard {
            fields: FieldSet::of(&map.samples).into(),
            samples: map.samples.len() as u64,
            compression: None,
            raw_data: file(name.to_owned(), bytes),
            zip_data: None,
            offsets: Some(file(format!("{name}.idx"), &write_offsets(&map.offsets()))),
        }],
    }
}

#[test]
fn tars_are_detected_by_name_and_indexes_by_content() {
    for name in ["a.tar", "A.TAR", "b.tar.gz", "c.tgz", "d.tar.zst"] {
        assert!(is_tar_name(name), "{name}");
    }
    for name in [".tar", "a.tar.idx", "a.zip", "tar", "a.tar.bz2"] {
        assert!(!is_tar_name(name), "{name}");
    }
    let root = tempfile::tempdir().unwrap();
    write(&root, "loose/x/0.tar", "");
    write(&root, "mds/index.json", "{\"shards\": [], \"version\": 2}");
    write(&root, "mds/0.tar", "");
    write(&root, "wds/index.json", Index::default().to_json());
    write(&root, "none/a.txt", "");
    for (name, expected) in [
        ("loose", true),
        ("loose/x/0.tar", true),
        ("mds", false),
        ("mds/index.json", false),
        ("wds", true),
        ("wds/index.json", true),
        ("none", false),
        ("none/a.txt", false),
        // A folder of datasets is not a dataset.
        ("", false),
    ] {
        let found = holds_tars(&root.path().join(name)).unwrap();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn tar_shards_are_listed_in_order_and_surveyed() {
    let root = tempfile::tempdir().unwrap();
    let shards = [("b/1.tar", 3), ("a/2.tar", 0), ("a.tar", 9)].map(|(name, first)| {
        let (bytes, map) = shard(first, 4);
        write(&root, name, &bytes);
        (name, bytes, map)
    });
    write(&root, ".hidden/0.tar", "");
    let (zipped, map) = shard(1, 5);
    let zstd = TarCompression::Zstd { level: 1 };
    let zip = compress_shard(&zipped, &map.offsets(), zstd, 1000).unwrap();
    write(&root, "z.tar.zst", zip);
    let set = open(root.path().to_owned()).unwrap();
    let names: Vec<&str> = set.shards().iter().map(super::TarFile::name).collect();
    assert_eq!(names, ["a.tar", "a/2.tar", "b/1.tar", "z.tar.zst"]);
    let limits = Limits::default();
    for file in set.shards() {
        let raw = match shards.iter().find(|(name, ..)| *name == file.name()) {
            Some((_, bytes, _)) => bytes,
            None => &zipped,
        };
        assert_eq!(file.load(&limits).unwrap().as_ref(), raw);
        assert_eq!(file.survey(&limits).unwrap(), Survey::of(raw, &limits));
        let compressed = file.compression().unwrap().is_some();
        assert_eq!(compressed, file.name().ends_with(".zst"));
    }
    let report = verify_tars(&set, &VerifyOptions::default(), &limits, &Progress::new()).unwrap();
    assert_eq!(
        (report.shards, report.samples, report.read.files),
        (4, 17, 4)
    );
    // The shards overlap: each key of a later shard that an earlier one contains is a problem.
    assert_eq!((report.problem_count, report.warning_count), (6, 0));
    let found: Vec<&str> = report
        .problems
        .iter()
        .map(|it| it.object.as_str())
        .collect();
    assert!(
        found.is_sorted() && found.contains(&"z.tar.zst"),
        "{found:?}"
    );
    let ids = report.problems.iter().map(|problem| problem.id);
    assert_eq!(ids.collect::<Vec<_>>(), ["sample-key-twice"; 6]);
    assert_eq!(report.damaged_shards + 2, report.shards);
}

#[test]
fn missing_or_invalid_tar_index_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let error = open(root.path().to_owned()).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("index-missing", ErrorKind::NotFound)
    );
    let error = open(root.path().join("gone")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    write(
        &root,
        "index.json",
        "{\"format\": \"webdataset\", \"shards\": 1, \"version\": 1}",
    );
    let error = open(root.path().to_owned()).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("index-syntax", ErrorKind::Corrupt)
    );
    assert!(error.object().unwrap().ends_with("index.json"));
}

#[test]
fn verify_compares_tar_index_with_shards() {
    let (bytes, map) = shard(0, 3);
    let good = index("0.tar", &bytes, &map);
    let limits = Limits::default();
    let ids = |change: &dyn Fn(&mut IndexShard), bytes: &[u8], offsets: Option<&[u8]>| {
        let root = tempfile::tempdir().unwrap();
        let mut index = good.clone();
        change(&mut index.shards[0]);
        write(&root, "0.tar", bytes);
        let table = write_offsets(&map.offsets());
        if let Some(offsets) = offsets.or(Some(&table)).filter(|bytes| !bytes.is_empty()) {
            write(&root, "0.tar.idx", offsets);
        }
        write(&root, "index.json", index.to_json());
        let set = open(root.path().to_owned()).unwrap();
        let options = VerifyOptions {
            deep: true,
            ..VerifyOptions::default()
        };
        let report = verify_tars(&set, &options, &limits, &Progress::new()).unwrap();
        let problems = report.problems.iter();
        problems.map(|problem| problem.id).collect::<Vec<_>>()
    };
    let same: &dyn Fn(&mut IndexShard) = &|_| {};
    assert_eq!(ids(same, &bytes, None), Vec::<&str>::new());
    let lying: &dyn Fn(&mut IndexShard) = &|shard| {
        shard.samples = 4;
        shard.offsets = None;
    };
    assert_eq!(ids(lying, &bytes, None), ["shard-samples"]);
    let other = FieldSet {
        always: vec!["bin".into()],
        sometimes: vec!["cls".into()],
    };
    let found = ids(&|shard| shard.fields = other.clone().into(), &bytes, None);
    assert_eq!(found, ["shard-fields"]);
    let mut table = write_offsets(&map.offsets());
    table[8] ^= 1;
    assert_eq!(ids(same, &bytes, Some(&table)), ["tar-offsets"]);
    assert_eq!(ids(same, &bytes, Some(&[])).len(), 1);
    let found = ids(same, &bytes[..bytes.len() - 1024], None);
    assert_eq!(found, ["shard-length"]);
    let mut bad = bytes.clone();
    let at = usize::try_from(map.samples[1].field("cls").unwrap().offset).unwrap();
    bad[at] = b'x';
    assert_eq!(ids(same, &bad, None), ["field-number"]);
}

#[test]
fn samples_of_a_damaged_shard_are_counted_from_the_index() {
    let root = tempfile::tempdir().unwrap();
    let (bytes, map) = shard(0, 3);
    let mut index = index("0.tar", &bytes, &map);
    let other = FileHashes::of(&[HashAlgo::Sha256], b"other bytes");
    index.shards[0].raw_data.hashes = other;
    write(&root, "0.tar", &bytes);
    write(&root, "0.tar.idx", write_offsets(&map.offsets()));
    write(&root, "index.json", index.to_json());
    let set = open(root.path().to_owned()).unwrap();
    let options = VerifyOptions::default();
    let report = verify_tars(&set, &options, &Limits::default(), &Progress::new()).unwrap();
    let problems: Vec<&str> = report.problems.iter().map(|problem| problem.id).collect();
    assert_eq!(problems, ["hash-mismatch"]);
    assert_eq!((report.damaged_shards, report.shards), (1, 1));
    assert_eq!((report.samples, report.sound_samples), (3, 0));
}

#[test]
fn parallel_results_are_in_order() {
    for jobs in [1, 2, 5] {
        let mut taken = Vec::new();
        let done = each_in_order(
            100,
            jobs,
            &Progress::new(),
            |at| Ok::<_, DatasetError>(at * 2),
            |at, value| {
                taken.push((at, value));
                Ok(())
            },
        );
        assert!(done.is_ok());
        assert_eq!(taken, (0..100).map(|at| (at, at * 2)).collect::<Vec<_>>());
        let taken = AtomicUsize::new(0);
        let fail = |at: usize| match at {
            30 | 31 => Err(DatasetError::no_tars(at.to_string().as_ref())),
            _ => Ok(at),
        };
        let take = |_, _| {
            taken.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let error = each_in_order(100, jobs, &Progress::new(), fail, take).unwrap_err();
        assert!(error.object().as_deref() == Some("30"));
        assert_eq!(taken.load(Ordering::Relaxed), 30);
    }
    let progress = Progress::new();
    progress.cancel();
    let stopped = each_in_order(1, 1, &progress, Ok::<_, DatasetError>, |_, _| Ok(()));
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
}

#[test]
fn tar_patterns_split_into_folder_and_names() {
    for (text, folder, names) in [
        ("a/x-{0..1}.tar", "a", ["x-0.tar", "x-1.tar"].as_slice()),
        ("{a,b}/x.tar", ".", &["a/x.tar", "b/x.tar"]),
        ("../{1,0}.tar.gz", "..", &["1.tar.gz", "0.tar.gz"]),
        ("/{a,b}.tgz", "/", &["a.tgz", "b.tgz"]),
        (
            "a/b/{0,1}.tar::a/c.tar",
            "a",
            &["b/0.tar", "b/1.tar", "c.tar"],
        ),
        ("s3://b/p/{00..01}.tar", "s3://b/p", &["00.tar", "01.tar"]),
        (
            "s3://b/p/0.tar::s3://b/q/0.tar",
            "s3://b",
            &["p/0.tar", "q/0.tar"],
        ),
        (
            "https://[::1]:8/d/{0,1}.tar",
            "https://[::1]:8/d",
            &["0.tar", "1.tar"],
        ),
        (
            "https://h/d%20e/{a,b%20c}.tar",
            "https://h/d e",
            &["a.tar", "b c.tar"],
        ),
        ("file:///d/{0..1}.tar", "/d", &["0.tar", "1.tar"]),
        (
            "s3://b/x\\{0\\}-{1,2}.tar",
            "s3://b",
            &["x{0}-1.tar", "x{0}-2.tar"],
        ),
    ] {
        let pattern = TarPattern::parse(text).unwrap().expect(text);
        assert_eq!(pattern.folder().to_string(), folder, "{text}");
        assert_eq!(pattern.names(), names, "{text}");
        let locations: Vec<String> = pattern
            .locations()
            .map(|location| location.to_string())
            .collect();
        assert_eq!(locations.len(), names.len());
        assert!(
            locations[0].ends_with(&names[0]) && !locations[0].starts_with("./"),
            "{text}"
        );
    }
    for text in [
        "a/x.tar",
        "a/x-{0..1}",
        "a/{0..1}.tar.idx",
        "{.tar",
        "x{}.tar",
        "x{y}.tar",
        "a::b",
        "",
        "*.tar",
    ] {
        match TarPattern::parse(text) {
            Ok(None) => {}
            Err(error) => assert_eq!((error.id(), text), ("pattern-braces", "{.tar")),
            Ok(found) => panic!("{text}: {found:?}"),
        }
    }
    for text in [
        "{s3://a,s3://b}/x.tar",
        "s3://a/x.tar::y.tar",
        "s3://a/x.tar::s3://b/x.tar",
        "a/{x,/x}.tar",
        "a/{b/../c,d}.tar",
        "a/{x,x}.tar",
    ] {
        let error = TarPattern::parse(text).unwrap_err();
        assert_eq!(error.id(), "pattern-names", "{text}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    let root = tempfile::tempdir().unwrap();
    let path = write(&root, "x{0..1}.tar", "");
    assert_eq!(TarPattern::parse(path.to_str().unwrap()).unwrap(), None);
}

#[test]
fn single_tar_file_is_a_pattern_of_one_name() {
    let root = tempfile::tempdir().unwrap();
    let inside = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let braces = write(&root, "x{0..1}.tar", "");
    write(&root, "folder.tar/a.tar", "");
    let folder = root.path().to_str().unwrap();
    for (text, expected, names) in [
        ("k.tar", ".", &["k.tar"][..]),
        ("a/k.TGZ", "a", &["k.TGZ"]),
        ("/k.tar.gz", "/", &["k.tar.gz"]),
        ("s3://b/k.tar.zst", "s3://b", &["k.tar.zst"]),
        ("https://h/p/x%20y.tar", "https://h/p", &["x y.tar"]),
        ("file:///d/k.tar", "/d", &["k.tar"]),
        // A file whose name contains braces, and a missing file.
        (braces.to_str().unwrap(), folder, &["x{0..1}.tar"]),
        (&inside("gone.tar"), folder, &["gone.tar"]),
        // Patterns are parsed as such.
        ("a/{0..1}.tar", "a", &["0.tar", "1.tar"]),
    ] {
        let pattern = TarPattern::named(text).unwrap().expect(text);
        assert_eq!(pattern.folder().to_string(), expected, "{text}");
        assert_eq!(pattern.names(), names, "{text}");
        assert_eq!(pattern.text(), text);
    }
    for text in [
        "",
        "a",
        ".tar",
        "a/.tar",
        "k.tar.idx",
        "k.tar/",
        "s3://b/k.tar/",
        "s3://b",
        &inside("folder.tar"),
        folder,
    ] {
        assert_eq!(TarPattern::named(text).unwrap(), None, "{text}");
    }
}
