//! Tests sources and datasets in stores: commands report the same about them as about local ones.

use std::time::Duration;

use shardmill_mds::{HashAlgo, hash_hex};
use shardmill_testing::s3::{Fault, Flavor, Objects, S3Server, Script, Settings};

use super::common::{Place, rows};

/// A place whose files are in a store as well.
struct Shelf {
    place: Place,
    server: S3Server,
}

/// What a command did: status, output, errors.
type Told = (i32, String, String);

impl Shelf {
    fn new(place: Place) -> Self {
        let objects = Objects::folder("bucket", place.path());
        let server = S3Server::start(objects, Settings::default()).unwrap();
        Self { place, server }
    }

    fn told(&self, args: &[&str]) -> Told {
        let output = self
            .place
            .command()
            .args(args)
            .envs(self.server.environment())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Says the same of a place here and there; answers how many requests that took.
    fn same(&self, verb: &str, place: &str, more: &[&str]) -> (Told, u64) {
        let remote = format!("s3://bucket/{place}");
        let args = |place: &str| {
            let mut args: Vec<String> = verb.split(' ').map(str::to_owned).collect();
            args.push(place.to_owned());
            args.extend(more.iter().map(|&text| text.to_owned()));
            args
        };
        let run = |args: &[String]| {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            self.told(&args)
        };
        let local = run(&args(place));
        self.server.forget_counts();
        let told = run(&args(&remote));
        let requests = self.server.counts().requests;
        let bare = |(code, out, errors): &Told| {
            let plain = |text: &str| timeless(&text.replace("s3://bucket/", ""));
            (*code, plain(out), plain(errors))
        };
        assert_eq!(bare(&local), bare(&told), "{verb} {place} {more:?}");
        (told, requests)
    }
}

/// Without what differs from run to run, and the line of an error about a source, which names its object otherwise.
fn timeless(text: &str) -> String {
    let mut plain = String::new();
    for line in text.lines() {
        let line = line.split(", in ").next().unwrap_or_default();
        if !line.contains("elapsed_seconds") {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

#[test]
fn an_mds_dataset_looks_the_same() {
    let shelf = Shelf::new(Place::with_shards());
    let (told, requests) = shelf.same("inspect", "shards", &[]);
    assert_eq!(told.0, 0, "{told:?}");
    // The index, the provenance, the list of late columns, and the note of an interrupted increment.
    assert_eq!(requests, 4);
    let (_, requests) = shelf.same("ls", "shards", &["--json"]);
    assert_eq!(requests, 4);
    shelf.same("ls", "shards/index.json", &[]);
    let (_, requests) = shelf.same("cat", "shards", &["7"]);
    assert!(requests <= 6, "{requests}");
    shelf.same("cat", "shards", &["25..65", "--column", "id"]);
    shelf.same("cat", "shards", &["-1"]);
    let (told, _) = shelf.same("verify", "shards", &["--deep", "--jobs", "3"]);
    assert!(told.1.contains("all is well"), "{told:?}");
    assert!(told.1.contains("content compared"), "{told:?}");
    shelf.place.write("shards/extra.bin", "x");
    let (told, _) = shelf.same("verify", "shards", &[]);
    assert!(told.2.contains("file-unlisted"), "{told:?}");
}

#[test]
fn a_sample_of_a_raw_shard_is_a_few_bytes() {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(5000));
    place.ok(&["convert", "data", "raw", "--compression", "none"]);
    let shelf = Shelf::new(place);
    shelf.same("cat", "raw", &["4000"]);
    let counts = shelf.server.counts();
    let whole = std::fs::metadata(shelf.place.path().join("raw/shard.00000.mds"));
    assert!(counts.bytes * 4 < whole.unwrap().len(), "{counts:?}");
}

#[test]
fn damage_is_found_there_too() {
    let shelf = Shelf::new(Place::with_shards());
    let name = "shards/shard.00002.mds.zstd";
    let mut bytes = shelf.place.read(name);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    shelf.place.write(name, &bytes);
    let (told, _) = shelf.same("verify", "shards", &[]);
    assert_eq!(told.0, 3, "{told:?}");
    std::fs::remove_file(shelf.place.path().join("shards/shard.00001.mds.zstd")).unwrap();
    let (told, _) = shelf.same("verify", "shards", &["--jobs", "2"]);
    assert!(told.2.contains("shard-missing"), "{told:?}");
    let pin = format!("sha256:{}", "0".repeat(64));
    let (told, _) = shelf.same("verify", "shards", &["--expect-index", &pin]);
    assert!(told.2.contains("index-mismatch"), "{told:?}");
}

#[test]
fn tar_shards_look_the_same() {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(60));
    let args = ["convert", "data", "tars", "--to", "webdataset"];
    place.ok(&[&args[..], &["--samples-per-shard", "25"]].concat());
    let shelf = Shelf::new(place);
    for _ in 0..2 {
        for (verb, more) in [
            ("inspect", &[][..]),
            ("ls", &["--json"]),
            ("cat", &["30..33"]),
            ("verify", &["--deep"]),
        ] {
            let (told, _) = shelf.same(verb, "tars", more);
            assert_eq!(told.0, 0, "{told:?}");
        }
        // The second time without an index, by what is there.
        let _ = std::fs::remove_file(shelf.place.path().join("tars/index.json"));
    }
    let names = std::fs::read_dir(shelf.place.path().join("tars")).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".tar"))
        .collect();
    names.sort();
    shelf.same("inspect", &format!("tars/{}", names[0]), &[]);
}

#[test]
fn tar_shards_are_looked_through_there_too() {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(60));
    for (to, more) in [("tars", "none"), ("packed", "zstd")] {
        let args = ["convert", "data", to, "--to", "webdataset"];
        let more = ["--compression", more, "--samples-per-shard", "25"];
        place.ok(&[&args[..], &more].concat());
    }
    let mut cut = place.read("tars/shard-000001.tar");
    cut.truncate(cut.len() / 2 + 100);
    place.write("cut/0.tar", cut);
    let shelf = Shelf::new(place);
    for (name, code) in [
        ("tars", 0),
        ("packed", 3),
        ("tars/shard-000002.tar", 0),
        ("tars/index.json", 0),
        ("cut", 3),
        ("cut/0.tar", 3),
    ] {
        let (told, _) = shelf.same(
            "tar lint",
            name,
            &["--for", "wids,hf,open_clip", "--show-keys"],
        );
        assert_eq!(told.0, code, "{name}: {}", told.2);
        shelf.same("tar lint", name, &["--json"]);
    }
    // The index; and of each shard how long it is, and its bytes.
    let (_, requests) = shelf.same("tar lint", "tars", &[]);
    assert_eq!(requests, 1 + 3 * 2);
    let told = shelf.told(&["tar", "lint", "s3://bucket/nothing"]);
    assert_eq!(told.0, 2, "{told:?}");
    assert!(
        told.2.contains("error[index-missing]: s3://bucket/nothing"),
        "{told:?}"
    );
}

#[test]
fn large_members_are_ignored() {
    let place = Place::new();
    for number in 0..3 {
        place.write(&format!("tree/{number}.bin"), vec![number; 20 << 20]);
    }
    place.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    let shelf = Shelf::new(place);
    shelf.same("tar lint", "tars", &[]);
    let counts = shelf.server.counts();
    assert!(counts.bytes < 36 << 20, "{counts:?}");
    let export = ["index", "export", "s3://bucket/tars", "--for", "dali"];
    shelf.server.forget_counts();
    assert_eq!(shelf.told(&export).0, 0);
    let counts = shelf.server.counts();
    assert!(counts.bytes < 36 << 20, "{counts:?}");
}

#[test]
fn indexes_of_other_readers_are_written_there_too() {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(60));
    let args = ["convert", "data", "tars", "--to", "webdataset"];
    place.ok(&[&args[..], &["--samples-per-shard", "25"]].concat());
    let names = |place: &Place, folder: &str| {
        let entries = std::fs::read_dir(place.path().join(folder)).unwrap();
        let files = entries.filter(|entry| entry.as_ref().unwrap().path().is_file());
        let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .map(|name| format!("{folder}/{name}"))
            .collect::<Vec<_>>()
    };
    let objects = names(&place, "tars").into_iter().map(|name| {
        let bytes = place.read(&name);
        (name, bytes)
    });
    let objects = Objects::memory("bucket", objects);
    let server = S3Server::start(objects, Settings::default()).unwrap();
    let shelf = Shelf { place, server };
    let readers = ["--for", "wids,dali,energon,open_clip"];
    let export =
        |place: &str, more: &[&str]| shelf.told(&[&["index", "export", place], more].concat());
    let local = export("tars", &readers);
    let there = export("s3://bucket/tars", &readers);
    assert_eq!((local.0, &local.2), (0, &String::new()));
    assert_eq!(there.1.replace("s3://bucket/", ""), local.1, "{there:?}");
    let mut wanted = names(&shelf.place, "tars");
    wanted.extend(names(&shelf.place, "tars/.nv-meta"));
    wanted.sort();
    let all = shelf.server.objects().all();
    assert!(all.keys().eq(wanted.iter()), "{:?}", all.keys());
    for name in &wanted {
        assert!(all[name] == shelf.place.read(name), "{name}");
    }
    // The same again is no conflict; another object is.
    shelf.server.forget_counts();
    assert_eq!(export("s3://bucket/tars/index.json", &readers).0, 0);
    assert_eq!(shelf.server.counts().received, 0);
    shelf
        .server
        .objects()
        .put("tars/sizes.json", b"{}".to_vec());
    let told = export("s3://bucket/tars", &readers);
    assert_eq!(told.0, 4, "{told:?}");
    assert!(
        told.2
            .contains("error[index-exists]: s3://bucket/tars/sizes.json: another file is there"),
        "{told:?}"
    );
    let told = export("s3://bucket/tars", &["--for", "open_clip", "--force"]);
    assert_eq!(told.0, 0, "{told:?}");
    assert!(shelf.server.objects().all() == all);
    // Shards that a reader cannot read are named.
    let packed = ["convert", "data", "packed", "--to", "webdataset"];
    shelf
        .place
        .ok(&[&packed[..], &["--compression", "zstd"]].concat());
    for name in names(&shelf.place, "packed") {
        shelf.server.objects().put(&name, shelf.place.read(&name));
    }
    let told = export("s3://bucket/packed", &["--for", "wids"]);
    assert_eq!(told.0, 2, "{told:?}");
    assert!(
        told.2.contains("s3://bucket/packed/shard-000000.tar"),
        "{told:?}"
    );
    // A web server takes no objects, which is known before anything is read.
    let web = S3Server::start(
        Objects::folder("bucket", shelf.place.path()),
        Settings {
            flavor: Flavor::Web,
            ..Settings::default()
        },
    )
    .unwrap();
    let output = shelf
        .place
        .command()
        .args([
            "index",
            "export",
            &format!("{}/tars", web.url()),
            "--for",
            "wids",
        ])
        .envs(web.environment())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("error[store-unsupported]"), "{errors}");
    assert_eq!(web.counts().requests, 0);
}

#[test]
fn splits_are_found_beneath_a_prefix() {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(60));
    place.ok(&["convert", "data", "splits", "--split", "train=0.8,val=0.2"]);
    let shelf = Shelf::new(place);
    let (told, _) = shelf.same("inspect", "splits", &[]);
    assert!(
        told.1.contains("train") && told.1.contains("val"),
        "{told:?}"
    );
    shelf.same("verify", "splits", &[]);
    let (told, _) = shelf.same("ls", "splits", &[]);
    assert!(told.2.contains("several-datasets"), "{told:?}");
    shelf.same("ls", "splits/train", &[]);
}

#[test]
fn sources_are_inspected_where_they_are() {
    let place = Place::new();
    place.parquet("data/k=1/rows.parquet", &rows(60));
    place.write("text/a.csv", "a,b\n1,x\n");
    place.write("tree/1.txt", "one");
    let shelf = Shelf::new(place);
    for name in [
        "data",
        "data/k=1/rows.parquet",
        "text",
        "tree",
        "text/*.csv",
    ] {
        let (told, _) = shelf.same("inspect", name, &[]);
        assert_eq!(told.0, 0, "{told:?}");
    }
    let told = shelf.told(&["inspect", "s3://bucket/nothing"]);
    assert_eq!(told.0, 2, "{told:?}");
    assert!(told.2.contains("s3://bucket/nothing"), "{told:?}");
}

/// The files of a folder that hold data.
fn contents(place: &Place, folder: &str) -> Vec<(String, Vec<u8>)> {
    let names = std::fs::read_dir(place.path().join(folder)).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "index.provenance" && name != ".shardmill")
        .collect();
    names.sort();
    let read = |name: String| {
        let bytes = place.read(&format!("{folder}/{name}"));
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn a_conversion_from_a_store_has_the_same_bytes() {
    let place = Place::with_shards();
    place.parquet("data/more.parquet", &rows(500));
    place.write("text/a.csv", "a,b\n1,x\n2,y\n");
    place.write("lines/a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
    for number in 0..30 {
        place.write(&format!("tree/{number}.txt"), format!("text {number}"));
    }
    place.ok(&["convert", "data", "tars", "--to", "webdataset"]);
    let shelf = Shelf::new(place);
    let flaky = Settings {
        faults: Script::random(3, 10, vec![Fault::status(500), Fault::status(503)]),
        ..Settings::default()
    };
    let slow = Settings {
        latency: Duration::from_millis(5),
        ..Settings::default()
    };
    for settings in [flaky, slow] {
        shelf.server.set(settings);
        for source in [
            "data",
            "text",
            "lines",
            "tree",
            "shards",
            "tars",
            "data/*.parquet",
        ] {
            let remote = format!("s3://bucket/{source}");
            for (from, to) in [(source, "here"), (remote.as_str(), "there")] {
                let _ = std::fs::remove_dir_all(shelf.place.path().join(to));
                let told = shelf.told(&["convert", from, to, "--samples-per-shard", "70"]);
                assert_eq!(told.0, 0, "{source}: {told:?}");
            }
            let (here, there) = (
                contents(&shelf.place, "here"),
                contents(&shelf.place, "there"),
            );
            assert!(here.len() > 1);
            assert!(here == there, "{source}");
        }
    }
}

#[test]
fn a_store_that_refuses_is_named() {
    let shelf = Shelf::new(Place::with_shards());
    shelf.server.set(Settings {
        faults: Script::always(Fault::status(403)),
        ..Settings::default()
    });
    for verb in ["inspect", "ls", "cat", "verify"] {
        let told = shelf.told(&[verb, "s3://bucket/shards"]);
        assert!(
            told.0 != 0 && told.2.contains("credentials"),
            "{verb}: {told:?}"
        );
        assert!(told.2.contains("s3://bucket/shards"), "{verb}: {told:?}");
    }
    let told = shelf.told(&["convert", "s3://bucket/data", "out"]);
    assert!(told.0 != 0 && told.2.contains("credentials"), "{told:?}");
    let told = shelf.told(&["ls", "s3://bucket/shards", "--storage-option", "NONSENSE=1"]);
    assert!(told.2.contains("url-setting"), "{told:?}");
}

/// Verbs that need no shard read the index, the provenance, the list of late columns and the note of an interrupted
/// increment.
#[test]
fn orders_and_plans_are_the_same() {
    let shelf = Shelf::new(Place::with_shards());
    let (_, requests) = shelf.same("order", "shards", &["--shuffle", "--nodes", "2"]);
    assert_eq!(requests, 4);
    let (_, requests) = shelf.same("plan", "shards", &["--shuffle", "--nodes", "2", "--json"]);
    assert_eq!(requests, 4);
    let told = shelf.told(&["order", "s3://bucket/nowhere"]);
    assert!(told.2.contains("error[index-missing]"), "{told:?}");
}

/// The index of tar files is the root of what is believed, as that of MDS is.
#[test]
fn the_index_of_tar_files_is_pinned() {
    let place = Place::new();
    for sample in 0..5 {
        place.write(&format!("tree/{sample}.txt"), format!("text {sample}"));
    }
    place.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    let digest = hash_hex(HashAlgo::Sha256, &place.read("tars/index.json"));
    let shelf = Shelf::new(place);
    let pin = format!("sha256:{digest}");
    for named in ["tars", "tars/index.json"] {
        let (told, _) = shelf.same("verify", named, &["--expect-index", &pin]);
        assert!(told.1.contains("all is well"), "{told:?}");
    }
    let wrong = format!("sha256:{}", "0".repeat(64));
    let (told, _) = shelf.same("verify", "tars", &["--expect-index", &wrong]);
    assert_eq!(told.0, 3, "{told:?}");
    assert!(told.2.contains("error[index-mismatch]"), "{told:?}");
    let file = "tars/shard-000000.tar";
    let (told, _) = shelf.same("verify", file, &["--expect-index", &pin]);
    assert!(told.2.contains("a tar file has no index"), "{told:?}");
    std::fs::remove_file(shelf.place.path().join("tars/index.json")).unwrap();
    let (told, _) = shelf.same("verify", "tars", &["--expect-index", &pin]);
    assert!(told.2.contains("error[index-missing]"), "{told:?}");
}

#[test]
fn what_an_unfinished_conversion_has_written_is_no_dataset() {
    let place = Place::with_tars();
    std::fs::remove_file(place.path().join("tars/index.json")).unwrap();
    place.write("tars/.shardmill/journal", "x");
    place.write("begun/.shardmill/journal", "x");
    let shelf = Shelf::new(place);
    for verb in ["inspect", "ls", "cat", "verify", "tar lint"] {
        let (told, _) = shelf.same(verb, "tars", &[]);
        let errors = &told.2;
        assert_eq!(told.0, 4, "{verb}: {errors}");
        assert!(
            errors.contains("error[dest-unfinished]"),
            "{verb}: {errors}"
        );
        assert!(told.1.is_empty(), "{verb}: {}", told.1);
        // The tar files that are there can be looked at one by one.
        let (told, _) = shelf.same(verb, "tars/shard-000000.tar", &[]);
        assert_eq!(told.0, 0, "{verb}: {}", told.2);
    }
    for verb in ["ls", "cat", "verify"] {
        let (told, _) = shelf.same(verb, "begun", &[]);
        assert_eq!(told.0, 2, "{verb}: {}", told.2);
        assert!(
            told.2.contains("a conversion into it is not finished"),
            "{verb}: {}",
            told.2
        );
    }
    for args in [
        &["convert", "s3://bucket/tars", "again"][..],
        &["convert", "tars", "again"],
        &["tar", "fix", "tars", "again"],
        &["tar", "repair", "tars", "again"],
        &["index", "export", "s3://bucket/tars", "--for", "wids"],
    ] {
        let told = shelf.told(args);
        assert_eq!(told.0, 4, "{args:?}: {told:?}");
        assert!(
            told.2.contains("error[dest-unfinished]"),
            "{args:?}: {told:?}"
        );
        assert!(!shelf.place.exists("again"), "{args:?}");
    }
}
