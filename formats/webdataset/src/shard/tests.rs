use proptest::prelude::*;
use shardmill_core::{Diagnostic, Limits};

use super::*;
use crate::error::WebdatasetError;
use crate::group::SampleEntry;
use crate::names::Consumer;
use crate::survey::Survey;
use crate::tar::{TarStyle, write_trailer};
use crate::testdata::{archive, extension, member, records};

const LIMITS: fn() -> Limits = Limits::default;

/// Returns the keys and the names of their fields.
fn keys(data: &[u8]) -> Result<Vec<(String, Vec<String>)>, WebdatasetError> {
    let map = ShardMap::read(data, &LIMITS())?;
    let names = |sample: &SampleEntry| {
        let fields = sample.fields.iter();
        fields.map(|field| field.name.to_string()).collect()
    };
    Ok(map
        .samples
        .iter()
        .map(|sample| (sample.key.to_string(), names(sample)))
        .collect())
}

#[test]
fn consecutive_members_with_one_key_form_a_sample() {
    let data = archive(&[
        member("a/1.jpg", b"1"),
        member("skipped", b""),
        member("a/1.Seg.PNG", b"2"),
        member("a/2.jpg", b"3"),
        member("__meta__/x.json", b""),
    ]);
    let found = keys(&data).unwrap();
    let pair = |key: &str, fields: &[&str]| {
        let fields = fields.iter().map(|field| (*field).to_owned());
        (key.to_owned(), fields.collect::<Vec<_>>())
    };
    assert_eq!(
        found,
        [pair("a/1", &["jpg", "seg.png"]), pair("a/2", &["jpg"])]
    );
    let map = ShardMap::read(&data, &LIMITS()).unwrap();
    assert_eq!((map.skipped, map.bytes), (2, 10_240));
    assert_eq!(map.offsets(), [0, 2560, 4096]);
    assert_eq!(map.content_bytes(), 3);
}

#[test]
fn split_or_duplicate_sample_members_are_rejected() {
    let mut limits = LIMITS();
    let id = |parts: &[Vec<u8>]| keys(&archive(parts)).unwrap_err().id();
    let one = |name: &str| member(name, b"x");
    assert_eq!(id(&[one("a.x"), one("b.x"), one("a.y")]), "tar-split");
    assert_eq!(id(&[one("a.x"), one("a.x")]), "tar-duplicate");
    assert_eq!(id(&[one("a.x"), one("a.X")]), "tar-duplicate");
    // Names that the original reserves.
    for field in ["__key__", "__URL__", "__local_path__"] {
        let name = format!("a.{field}");
        for parts in [[one("a.x"), one(&name)], [one(&name), one("a.x")]] {
            assert_eq!(id(&parts), "tar-duplicate", "{name}");
            let data = archive(&parts);
            let view = ShardView::with_offsets(&data, vec![0, 2048], &limits).unwrap();
            assert_eq!(view.fields(0).unwrap_err().id(), "tar-duplicate", "{name}");
        }
    }
    assert!(
        keys(&archive(&[
            one("a.x.__key__"),
            one("a.__key"),
            one("a.key")
        ]))
        .is_ok()
    );
    let many: Vec<Vec<u8>> = (0..1025).map(|n| one(&format!("a.{n}"))).collect();
    assert_eq!(id(&many), "limit-fields");
    // The limit applies without a scan, too.
    let flood = archive(&many);
    let offsets = vec![0, 1025 * 1024];
    let view = ShardView::with_offsets(&flood, offsets, &limits).unwrap();
    assert_eq!(view.fields(0).unwrap_err().id(), "limit-fields");
    limits.sample_bytes = 1;
    let data = archive(&[one("a.x"), one("a.y")]);
    assert_eq!(
        ShardMap::read(&data, &limits).unwrap_err().id(),
        "limit-sample-bytes"
    );
    limits.shard_bytes = 10;
    assert_eq!(
        ShardMap::read(&data, &limits).unwrap_err().id(),
        "limit-shard-bytes"
    );
}

#[test]
fn shard_view_returns_fields_by_sample_number() {
    let long = format!("{}/1.txt", "d".repeat(120));
    let data = archive(&[
        member("0.cls", b"7"),
        member("0.jpg", &[1; 600]),
        extension(b'x', &records(&[("path", &long)])),
        member("cut", b"long"),
        member("2.txt", b""),
    ]);
    let view = ShardView::open(&data, &LIMITS()).unwrap();
    assert_eq!(view.len(), 3);
    let fields = view.fields(0).unwrap();
    assert_eq!(fields[0].data, b"7");
    assert_eq!((&*fields[1].name, fields[1].data), ("jpg", &[1; 600][..]));
    assert_eq!(view.fields(1).unwrap()[0].data, b"long");
    assert_eq!(view.key(1).unwrap(), "d".repeat(120) + "/1");
    assert_eq!(view.fields(2).unwrap()[0].data, b"");
    let error = view.fields(3).unwrap_err();
    assert_eq!(error.to_string(), "there is no sample 3: the shard has 3");
    // The table alone, without a scan, gives the same samples.
    let offsets = view.offsets().to_vec();
    let owned = ShardView::with_offsets(data.clone(), offsets, &LIMITS()).unwrap();
    for sample in 0..3 {
        assert_eq!(owned.fields(sample), view.fields(sample));
    }
    // The range of each sample alone gives the same sample; another range gives an error.
    let mut fields = Vec::new();
    for (sample, range) in (0..).zip(view.offsets().windows(2)) {
        let [begin, end] = [0, 1].map(|at| usize::try_from(range[at]).unwrap());
        let key = read_sample(range[0], &data[begin..end], &mut fields, &LIMITS()).unwrap();
        assert_eq!(
            (key, &fields),
            (view.key(sample).unwrap(), &view.fields(sample).unwrap())
        );
        for bytes in [
            &data[begin..end - 512],
            &data[begin + 512..end],
            &data[begin..end + 512],
            &[],
        ] {
            assert!(read_sample(range[0], bytes, &mut fields, &LIMITS()).is_err());
        }
    }
}

#[test]
fn energon_offsets_with_global_headers_are_read() {
    let data = archive(&[
        extension(b'g', &records(&[("comment", "one")])),
        member("a.x", b"1"),
        extension(b'g', &records(&[("comment", "two")])),
        member("b.x", b"2"),
    ]);
    let scanned = ShardView::open(&data, &LIMITS()).unwrap();
    assert_eq!(scanned.offsets(), [0, 2048, 4096]);
    let survey = Survey::of(&data, &LIMITS());
    let (samples, _) = survey.samples(Consumer::Energon, &LIMITS());
    let offsets = [1024, 3072, 4096];
    assert_eq!(
        samples
            .iter()
            .map(|one| (one.begin, one.end))
            .collect::<Vec<_>>(),
        [(1024, 3072), (3072, 4096)]
    );
    let view = ShardView::with_offsets(&data, offsets.to_vec(), &LIMITS()).unwrap();
    let mut fields = Vec::new();
    for (sample, range) in (0..).zip(offsets.windows(2)) {
        assert_eq!(view.fields(sample), scanned.fields(sample));
        let [begin, end] = [0, 1].map(|at| usize::try_from(range[at]).unwrap());
        read_sample(range[0], &data[begin..end], &mut fields, &LIMITS()).unwrap();
        assert_eq!(Ok(&fields), scanned.fields(sample).as_ref());
    }
}

#[test]
fn wrong_offset_table_is_an_error() {
    let data = archive(&[
        member("a.x", b"1"),
        member("a.y", b"1"),
        member("b.x", b"1"),
    ]);
    let open = |offsets: &[u64]| {
        let view = ShardView::with_offsets(&data, offsets.to_vec(), &LIMITS())?;
        (0..view.len()).try_for_each(|sample| view.fields(sample).map(|_| ()))
    };
    assert_eq!(open(&[0, 2048, 3072]), Ok(()));
    for offsets in [
        &[][..],
        &[0, 2048],
        &[0, 2048, 4096, 3072],
        &[0, 2000, 3072],
        &[0, 3072],
        &[0, 1536, 3072],
        &[0, 1 << 60],
        &[512, 2048, 3072],
        &[0, 2048, 3072, u64::MAX - 511],
    ] {
        assert!(open(offsets).is_err(), "{offsets:?}");
    }
    // A file that changes while it is viewed gives errors.
    let mut changed = data.clone();
    changed[2048] = b'c';
    let view = ShardView::with_offsets(&changed, vec![0, 2048, 3072], &LIMITS()).unwrap();
    assert_eq!(view.fields(1).unwrap_err().id(), "tar-checksum");
}

#[test]
fn non_canonical_keys_and_fields_are_rejected() {
    let canonical = Profile::default();
    for key in ["a", "a/b", "train/n01_4", "a.b/c", "0001", "x-y"] {
        assert_eq!(canonical.check_key(key), Ok(()), "{key}");
    }
    for key in [
        "", "a.b", "/a", "./a", "a//b", "a/", "../a", "__a", "d/__a", "__m__/a", "a b", "a\n",
        "a\\b",
    ] {
        let error = canonical.check_key(key).unwrap_err();
        assert_eq!(error.id(), "sample-key", "{key}");
    }
    for field in ["jpg", "seg.png", "0", "json.gz"] {
        assert_eq!(canonical.field_problem(field), None, "{field}");
    }
    for field in ["", "a/b", "_x", "JPG", "a b", ".a", "a.", "a..b", "a\t"] {
        assert!(canonical.field_problem(field).is_some(), "{field}");
    }
    let mut out = Vec::new();
    let long = "k".repeat(97);
    let error = canonical.encode_sample(&long, &[("txt", b"")], &mut out);
    assert_eq!(error.unwrap_err().id(), "tar-long-name");
    let error = canonical
        .encode_sample("é", &[("txt", b"")], &mut out)
        .unwrap_err();
    assert_eq!(error.id(), "tar-long-name");
    let error = canonical.encode_sample("k", &[], &mut out).unwrap_err();
    assert_eq!(error, WebdatasetError::no_fields("k"));
    // If the second field of a sample fails, nothing is appended.
    let error = canonical.encode_sample("k", &[("a", b""), ("b c", b"")], &mut out);
    assert!(error.is_err() && out.is_empty());
    let twice = Profile::reference(0).encode_sample("k", &[("a", b""), ("A", b"")], &mut out);
    assert_eq!(twice.unwrap_err().id(), "sample-field");
    let mut shard = ShardBuilder::new(canonical);
    shard.push("a", &[("x", b"")]).unwrap();
    assert_eq!(
        shard.push("a", &[("x", b"")]).unwrap_err().id(),
        "sample-key-twice"
    );
    assert_eq!(shard.samples(), 1);
}

#[test]
fn long_names_are_written_if_the_profile_allows_them() {
    let profile = Profile {
        style: TarStyle {
            long_names: true,
            ..TarStyle::default()
        },
        ..Profile::default()
    };
    let key = "k/".repeat(80) + "é";
    let mut shard = ShardBuilder::new(profile);
    shard.push(&key, &[("txt", b"x")]).unwrap();
    let bytes = shard.bytes();
    let (data, map) = shard.finish();
    assert_eq!(bytes, data.len() as u64);
    assert_eq!(ShardMap::read(&data, &LIMITS()).unwrap(), map);
    let sample = profile.sample_bytes(&key, [("txt", 1)]).unwrap();
    assert_eq!(sample, map.end);
}

#[test]
fn shards_are_cut_before_they_exceed_the_limit() {
    // A sample of one small field takes 1,024 bytes, the end takes 1,024 more, and the file is padded to 10,240.
    let mut cut = tar_cutter(Some(10_240), None);
    let new: Vec<bool> = (0..20).map(|_| cut.push(1024)).collect();
    let starts: Vec<usize> = (0..20).filter(|at| new[*at]).collect();
    assert_eq!(starts, [9, 18]);
    let mut cut = tar_cutter(Some(10_240), None);
    assert!(!cut.push(1 << 20), "too large for any shard, and the first");
    assert!(cut.push(1024));
    let mut cut = tar_cutter(None, Some(2));
    assert_eq!(
        [1, 2, 3, 4, 5].map(|bytes| cut.push(bytes)),
        [false, false, true, false, true]
    );
    let mut cut = tar_cutter(None, None);
    assert!((0..100).all(|_| !cut.push(u64::MAX)));
}

/// A key and its fields.
type Keyed<'a> = (String, Vec<(&'a str, &'a [u8])>);

proptest! {
    /// Samples that are encoded separately, in any buffers, give the same shard as a single builder.
    #[test]
    fn separately_encoded_samples_give_the_same_shard(
        samples in proptest::collection::vec(
            proptest::collection::btree_map("[a-z]{1,5}", proptest::collection::vec(any::<u8>(), 0..1200), 1..4),
            0..12,
        ),
        together in 1..5_usize,
    ) {
        let profile = Profile::default();
        let (mut whole, mut joined) = (ShardBuilder::new(profile), Vec::new());
        let keyed: Vec<Keyed<'_>> = samples
            .iter()
            .enumerate()
            .map(|(n, fields)| {
                let fields = fields.iter().map(|(name, bytes)| (name.as_str(), &bytes[..]));
                (format!("{n:03}"), fields.collect())
            })
            .collect();
        let mut planned = 0;
        for (key, fields) in &keyed {
            whole.push(key, fields).unwrap();
            let sizes = fields.iter().map(|(name, bytes)| (*name, bytes.len() as u64));
            planned += profile.sample_bytes(key, sizes).unwrap();
        }
        for group in keyed.chunks(together) {
            let mut buffer = Vec::new();
            for (key, fields) in group {
                profile.encode_sample(key, fields, &mut buffer).unwrap();
            }
            joined.extend(buffer);
        }
        write_trailer(&mut joined);
        let (data, map) = whole.finish();
        prop_assert_eq!((&data, &map), (&joined, &ShardMap::read(&data, &LIMITS()).unwrap()));
        prop_assert_eq!(shard_bytes(planned), data.len() as u64);
        let view = ShardView::open(&data, &LIMITS()).unwrap();
        prop_assert_eq!(view.len(), samples.len() as u64);
        for (n, fields) in (0..).zip(&samples) {
            let found = view.fields(n).unwrap();
            let found: Vec<(&str, &[u8])> = found.iter().map(|field| (&*field.name, field.data)).collect();
            let expected: Vec<(&str, &[u8])> = fields.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
