//! Tests of trees in stores.

use std::fs;

use shardmill_storage::{Location, RemoteOptions};
use shardmill_testing::mds::sample;
use shardmill_testing::s3::{Objects, S3Server, Settings};

use crate::{Reader, ReaderOptions};
use shardmill_dataset::{StreamFiles, StreamOptions};

/// Starts a store with these objects, and returns the options to read them.
fn store(objects: &[(&str, &[u8])]) -> (S3Server, tempfile::TempDir, StreamOptions, ReaderOptions) {
    let objects = objects
        .iter()
        .map(|(name, bytes)| (format!("tree/{name}"), bytes.to_vec()));
    let server = S3Server::start(Objects::memory("bucket", objects), Settings::default()).unwrap();
    let root = tempfile::tempdir().unwrap();
    let stream = StreamOptions {
        remote: Some(Location::parse("s3://bucket/tree").unwrap()),
        local: Some(root.path().join("local")),
        files: Some(StreamFiles::default()),
        ..StreamOptions::default()
    };
    let options = ReaderOptions {
        remote: RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        },
        ..ReaderOptions::default()
    };
    (server, root, stream, options)
}

#[test]
fn object_changed_since_listing_is_an_error() {
    let (server, root, stream, options) = store(&[
        ("b/ü +%.txt", b"1"),
        ("a.txt", b"22"),
        ("folder/", b""),
        ("folder/c", b"333"),
        ("changed", b"before"),
        ("longer", b"short"),
        ("gone", b"4"),
        ("empty", b""),
    ]);
    let reader = Reader::open(std::slice::from_ref(&stream), &options).unwrap();
    let path = |number| reader.file_path(number).unwrap();
    let paths: Vec<&str> = (0..reader.catalog().samples()).map(path).collect();
    assert_eq!(
        paths,
        [
            "a.txt",
            "b/ü +%.txt",
            "changed",
            "empty",
            "folder/c",
            "gone",
            "longer"
        ]
    );
    let names: Vec<_> = fs::read_dir(root.path().join(".local.shardmill"))
        .unwrap()
        .collect();
    assert_eq!(names.len(), 1, "the list and nothing else");
    server.objects().put("tree/changed", b"behind".to_vec());
    server.objects().put("tree/longer", b"much longer".to_vec());
    server.objects().remove("tree/gone");
    let get = |name: &str| reader.sample(reader.catalog().find_file(name).unwrap());
    assert_eq!(
        get("b/ü +%.txt").unwrap().bytes,
        sample(&[(false, b"1"), (false, "b/ü +%.txt".as_bytes())])
    );
    assert_eq!(
        get("empty").unwrap().bytes,
        sample(&[(false, b""), (false, b"empty")])
    );
    // A change is detected at once, with and without a change of length, and the error names the file.
    for name in ["changed", "longer"] {
        server.forget_counts();
        let error = get(name).unwrap_err();
        assert_eq!(
            (error.id(), error.object().unwrap()),
            ("remote-changed", name)
        );
        let text = format!("{error} {}", error.hint().unwrap());
        assert!(
            text.contains("since it was listed") && text.contains("relist"),
            "{text}"
        );
        assert!(!text.contains("times"), "{text}");
        assert_eq!(server.counts().requests, 1, "{name}");
    }
    let error = get("gone").unwrap_err();
    assert_eq!(
        (error.id(), error.object().unwrap()),
        ("file-missing", "gone")
    );
    let check = |name: &str| reader.check_file(reader.catalog().find_file(name).unwrap());
    check("a.txt").unwrap();
    let error = check("changed").unwrap_err();
    assert_eq!(error.id(), "file-changed");
    assert_eq!(
        error.to_string(),
        "the file has changed since it was listed: 6 bytes then, 6 now, and another ETag"
    );
    let error = check("longer").unwrap_err();
    assert!(
        error.to_string().ends_with("5 bytes then, 11 now"),
        "{error}"
    );
    assert_eq!(check("gone").unwrap_err().id(), "file-missing");
}

#[test]
fn keys_invalid_as_paths_are_errors_unless_filtered_out() {
    for (key, id) in [
        ("a//b", "path-traversal"),
        ("../up", "path-traversal"),
        ("x/../../up", "path-traversal"),
        ("line\nfeed", "path-character"),
        ("back\\slash", "path-character"),
        ("good/beneath", "tree-clash"),
    ] {
        let (_server, root, mut stream, options) = store(&[("good", b"1"), (key, b"2")]);
        let error = Reader::open(std::slice::from_ref(&stream), &options).unwrap_err();
        assert_eq!(error.id(), id, "{key}: {error}");
        assert!(!root.path().join("up").exists());
        stream.files.as_mut().unwrap().options.include = vec!["good".to_owned()];
        let reader = Reader::open(std::slice::from_ref(&stream), &options).unwrap();
        assert_eq!(reader.catalog().samples(), 1, "{key}");
        assert_eq!(
            reader.sample(0).unwrap().bytes,
            sample(&[(false, b"1"), (false, b"good")])
        );
    }
}
