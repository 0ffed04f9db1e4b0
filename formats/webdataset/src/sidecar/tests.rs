use shardmill_core::{Diagnostic, Limits};

use super::*;
use crate::Consumer;
use crate::shard::ShardMap;
use crate::survey::Survey;
use crate::testdata::{RawHeader, archive, extension, member, records};

/// Returns two samples, the first of which has two fields.
fn map() -> ShardMap {
    let data = archive(&[
        member("d/0.cls", b"7"),
        member("d/0.txt", &[b'x'; 600]),
        member("d/1.cls", b""),
    ]);
    ShardMap::read(&data, &Limits::default()).unwrap()
}

fn shard<'a>(name: &'a str, map: &'a ShardMap) -> SidecarShard<'a> {
    SidecarShard {
        name,
        bytes: map.bytes,
        md5: Some("00ff"),
        samples: &map.samples,
    }
}

#[test]
fn dali_index_has_a_line_per_sample() {
    let map = map();
    assert_eq!(
        dali_index(&shard("a.tar", &map)).unwrap(),
        "v1.2 2\ncls 512 1 d/0.cls txt 1536 600 d/0.txt\ncls 3072 0 d/1.cls\n"
    );
    assert_eq!(dali_name("a.b/c.d.tar"), "a.b/c.idx");
    assert_eq!(dali_name("a"), "a.idx");
    let empty = ShardMap::default();
    assert_eq!(
        dali_index(&shard("a.tar", &empty)).unwrap_err().id(),
        "sidecar-empty"
    );
    for name in ["a b.txt", "é.txt", "a."] {
        let data = archive(&[member(name, b"")]);
        let map = ShardMap::read(&data, &Limits::default()).unwrap();
        assert_eq!(
            dali_index(&shard("a.tar", &map)).unwrap_err().id(),
            "sidecar-name"
        );
    }
}

#[test]
fn wids_index_lists_shards_sorted_by_name() {
    let map = map();
    let json = wids_index(
        &[shard("b.tar", &map), shard("a.tar", &map)],
        Some("set"),
        None,
    );
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "__kind__": "wids-shard-index-v1", "wids_version": 1, "name": "set",
            "shardlist": [
                {"url": "a.tar", "md5sum": "00ff", "nsamples": 2, "filesize": 10240},
                {"url": "b.tar", "md5sum": "00ff", "nsamples": 2, "filesize": 10240},
            ],
        })
    );
    let empty: serde_json::Value =
        serde_json::from_str(&wids_index(&[], None, Some("s3://b"))).unwrap();
    assert_eq!(
        (&empty["shardlist"], &empty["base"]),
        (&serde_json::json!([]), &serde_json::json!("s3://b"))
    );
}

#[test]
fn open_clip_sizes_use_names_without_folders() {
    let map = map();
    let sizes = open_clip_sizes(&[shard("x/a.tar", &map), shard("x/b.tar", &map)]).unwrap();
    assert_eq!(sizes, r#"{"a.tar": 2, "b.tar": 2}"#);
    let error = open_clip_sizes(&[shard("x/a.tar", &map), shard("y/a.tar", &map)]).unwrap_err();
    assert_eq!(error.id(), "sidecar-shard-twice");
}

/// Checks what the index of each reader contains for a shard of another writer.
#[test]
fn sidecar_samples_match_each_reader() {
    let data = archive(&[
        extension(b'g', &records(&[("comment", "x")])),
        RawHeader::new("d", 0).kind(b'5').block(),
        member("A.JPG", b"1"),
        member("A.b.txt", b"22"),
        RawHeader::new("d/", 0).kind(b'5').block(),
        member("LICENSE", b"text"),
        member("d/.DS_Store", b"3"),
        member("__MACOSX__/._a.txt", b"4"),
        RawHeader::new("c.txt", 0).kind(b'7').block(),
    ]);
    let limits = Limits::default();
    let survey = Survey::of(&data, &limits);
    let of = |reader| {
        let (samples, problems) = survey.samples(reader, &limits);
        assert_eq!(problems, []);
        samples
    };
    let side = |samples: &'static [SampleEntry]| SidecarShard {
        name: "a.tar",
        bytes: data.len() as u64,
        md5: None,
        samples,
    };
    let wids = of(Consumer::Wids);
    let keys: Vec<&str> = wids.iter().map(|sample| &*sample.key).collect();
    assert_eq!(keys, ["A", "d/", "__MACOSX__/"]);
    let dali = of(Consumer::Dali).leak();
    assert_eq!(
        dali_index(&side(dali)).unwrap(),
        "v1.2 1\nJPG 2048 1 A.JPG b.txt 3072 2 A.b.txt\n"
    );
    let energon = of(Consumer::Energon);
    let begins: Vec<_> = energon
        .iter()
        .map(|sample| (&*sample.key, sample.begin))
        .collect();
    assert_eq!(begins, [("A", 1536), ("d/", 5120), ("c", 7168)]);
    let fields = energon.iter().flat_map(|sample| &sample.fields);
    let names: Vec<&str> = fields.map(|field| &*field.name).collect();
    assert_eq!(names, ["JPG", "b.txt", "DS_Store", "txt"]);
}

#[test]
fn wids_ignores_repeated_names() {
    let long = format!("{}.txt", "n".repeat(120));
    let data = archive(&[
        member("a.txt", b"1"),
        member("b.txt", b"2"),
        member("a.txt", b"3"),
        member("b.cls", b"4"),
        extension(b'x', &records(&[("path", &long)])),
        member(&long[..100], b"5"),
    ]);
    let (samples, problems) =
        Survey::of(&data, &Limits::default()).samples(Consumer::Wids, &Limits::default());
    assert_eq!(problems, []);
    let keys: Vec<(&str, usize)> = samples
        .iter()
        .map(|one| (&*one.key, one.fields.len()))
        .collect();
    // The long name is cut before its dot.
    assert_eq!(keys, [("a", 1), ("b", 2)]);
}
