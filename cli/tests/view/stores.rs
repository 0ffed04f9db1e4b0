//! `view` of datasets in stores: which requests it sends.

use shardmill_testing::s3::{Objects, S3Server, Settings};

use super::*;

#[test]
fn only_requested_bytes_of_a_video_in_a_store_are_read() {
    let dir = TestDir::new();
    let names = ["a", "b"];
    for name in names {
        let video = [&b"\0\0\0\x18ftypisom"[..], &[7; 3_000_000]].concat();
        dir.write(&format!("tree/{name}.mp4"), &video);
        dir.write(&format!("tree/{name}.txt"), name);
    }
    dir.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    dir.ok(&["convert", "tree", "mds", "--compression", "none"]);
    for folder in ["tars", "mds"] {
        let (server, view) = of_store(&dir, folder);
        // The player of the page requests these parts after the sample is shown.
        let part = |range: &str| {
            view.send(
                format!(
                    "GET /api/media?sample=1&column=mp4&token={TOKEN} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={range}\r\n\r\n"
                )
                .as_bytes(),
            )
        };
        server.forget_counts();
        let head = part("0-11");
        assert_eq!((head.status, &head.body[4..]), (206, &b"ftypisom"[..]));
        assert_eq!(part("2000000-2000099").body, [7; 100]);
        let counts = server.counts();
        assert!(counts.bytes < 500_000, "{folder}: {counts:?}");
        assert_eq!(counts.heads, 0, "{folder}: {counts:?}");
        server.forget_counts();
        let fields = view.fields(1);
        assert_eq!(fields["mp4"]["kind"], "video", "{fields}");
        assert_eq!(fields["mp4"]["bytes"], 3_000_012);
        assert_eq!(fields["txt"]["text"], "b");
        if folder == "mds" {
            let bytes = server.counts().bytes;
            assert!(bytes < 100_000, "{bytes}");
        }
        let all = view.get("/api/raw?sample=1&column=mp4");
        assert_eq!((all.status, all.body.len()), (200, 3_000_012));
    }
}

/// Starts a server of objects and a page over one of its folders.
fn of_store(dir: &TestDir, folder: &str) -> (S3Server, View) {
    let objects = Objects::folder("bucket", dir.path());
    let server = S3Server::start(objects, Settings::default()).unwrap();
    let environment = server.environment();
    let environment: Vec<(&str, &str)> = environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let view = View::start(dir, &format!("s3://bucket/{folder}"), &environment);
    (server, view)
}

#[test]
fn dataset_in_a_store_is_read_by_ranges() {
    let dir = TestDir::with_shards();
    let each = ["--samples-per-shard", "30"];
    let tars = [
        "convert",
        "data",
        "tars",
        "--to",
        "webdataset",
        "--key",
        "id",
    ];
    dir.ok(&[&tars[..], &each].concat());
    let raw = ["convert", "data", "raw", "--compression", "none"];
    dir.ok(&[&raw[..], &each].concat());
    // The requests that open the dataset, that show a sample of a new shard, and one of a shard read before.
    for (folder, opened, first, next) in [("shards", 4, 1, 1), ("tars", 4, 2, 1), ("raw", 4, 4, 2)]
    {
        let (server, view) = of_store(&dir, folder);
        assert_eq!(view.get("/api/dataset").json()["samples"], 100);
        assert_eq!(server.counts().requests, opened, "{folder}");
        server.forget_counts();
        let from = view.fields(3);
        assert_eq!(server.counts().requests, first, "{folder}");
        let to = view.fields(99);
        assert_ne!(from, to, "{folder}");
        assert!(to.as_object().unwrap().len() > 4, "{folder}: {to}");
        server.forget_counts();
        // A shard that was read before, after another one.
        let again = view.fields(4);
        assert!(again != from && again != to, "{folder}: {again}");
        let counts = server.counts();
        assert_eq!((counts.requests, counts.heads), (next, 0), "{folder}");
        let inspected = view.get("/api/run/inspect").json();
        assert_eq!(inspected["output"][0]["samples"], 100, "{inspected}");
    }
}

#[test]
fn mismatched_shard_in_a_store_is_an_error_with_its_name() {
    let dir = TestDir::with_shards();
    dir.ok(&[
        "convert",
        "data",
        "raw",
        "--compression",
        "none",
        "--samples-per-shard",
        "30",
    ]);
    let shard = dir.read("raw/shard.00001.mds");
    dir.write("raw/shard.00001.mds", &shard[..shard.len() - 1]);
    std::fs::remove_file(dir.path().join("raw/shard.00002.mds")).unwrap();
    let (_server, view) = of_store(&dir, "raw");
    for (number, id, shard) in [
        (30, "shard-length", "00001"),
        (60, "shard-missing", "00002"),
    ] {
        let sample = view.get(&format!("/api/samples?from={number}")).json();
        let error = &sample["samples"][0]["error"];
        assert_eq!(error["id"], id, "{error}");
        assert!(error.to_string().contains(shard), "{error}");
    }
    assert_eq!(view.fields(0)["id"]["text"], "0");
}
