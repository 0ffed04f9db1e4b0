use proptest::prelude::*;
use shardmill_codec::seekable::TarCompression;
use shardmill_core::Limits;

use super::*;
use crate::names::Consumer;
use crate::survey::Survey;
use crate::testdata::{RawHeader, archive, extension, member, records, shard};

fn lint_with(consumers: &[Consumer], data: &[u8]) -> Vec<Finding> {
    let limits = Limits::default();
    let readers = consumers.iter().copied().collect();
    let facts = ShardFacts {
        is_first: true,
        ..ShardFacts::default()
    };
    let survey = Survey::of(data, &limits);
    let mut findings = lint(&survey, &facts, &readers, &limits);
    let mut sets = FieldSets::default();
    let (samples, _) = survey.samples(Consumer::Webdataset, &limits);
    sets.add(0, &samples);
    findings.extend(sets.findings(samples.len() as u64));
    findings
}

fn ids(consumers: &[Consumer], data: &[u8]) -> Vec<(&'static str, Severity)> {
    lint_with(consumers, data)
        .iter()
        .map(|finding| (finding.id, finding.severity))
        .collect()
}

fn one(name: &str) -> Vec<u8> {
    member(name, b"x")
}

use Severity::{Error, Warning};

#[test]
fn canonical_shard_has_no_findings_for_any_reader() {
    let clean: Vec<Consumer> = Consumer::ALL.into_iter().collect();
    assert_eq!(lint_with(&clean, &shard(7)), []);
}

#[test]
fn general_defects_are_found() {
    let path = records(&[("path", "long.name")]);
    for (what, data, expected) in [
        (
            "cut",
            shard(3)[..2048].to_vec(),
            vec![
                ("tar-short", Error),
                ("sample-torn", Error),
                ("dataset-empty", Warning),
            ],
        ),
        (
            "split",
            archive(&[one("a.x"), one("b.x"), one("a.x")]),
            vec![("tar-split", Error)],
        ),
        (
            "twice",
            archive(&[one("a.x"), one("a.X")]),
            vec![("tar-duplicate", Error), ("field-case", Warning)],
        ),
        (
            "reserved",
            archive(&[one("a.x"), one("a.__key__"), one("b.x")]),
            vec![("tar-duplicate", Error)],
        ),
        (
            "links",
            archive(&[one("a.x"), RawHeader::new("b.x", 0).kind(b'2').block()]),
            vec![("tar-kind", Error)],
        ),
        (
            "climbs",
            archive(&[one("a/../b.x")]),
            vec![("tar-name", Error)],
        ),
        (
            "no dot",
            archive(&[one("README"), one("a.x")]),
            vec![("member-skipped", Warning)],
        ),
        (
            "hidden",
            archive(&[one("a/.x"), one("b.x")]),
            vec![("sample-hidden", Warning)],
        ),
        (
            "pickle",
            archive(&[one("a.pkl")]),
            vec![("encoding-unsafe", Warning)],
        ),
        (
            "fields",
            archive(&[one("a.x"), one("b.y")]),
            vec![("sample-fields", Warning), ("sample-fields", Warning)],
        ),
        (
            "pax",
            archive(&[extension(b'x', &path), one("cut")]),
            vec![],
        ),
        (
            "short end",
            archive(&[one("a.x")])[..4096].to_vec(),
            vec![("tar-padding", Warning)],
        ),
        ("empty", archive(&[]), vec![("dataset-empty", Warning)]),
    ] {
        assert_eq!(ids(&[], &data), expected, "{what}");
    }
}

#[test]
fn reader_specific_defects_are_found() {
    let long = format!("{}/a.txt", "d".repeat(120));
    let pax = |name: &str| extension(b'x', &records(&[("path", name)]));
    let has = |consumer: Consumer, data: &[u8], id: &str, severity: Severity| {
        let findings = lint_with(&[consumer], data);
        let found = findings.iter().any(|finding| {
            finding.consumer == Some(consumer) && finding.id == id && finding.severity == severity
        });
        assert!(found, "{consumer} {id} {findings:#?}");
    };
    let long_names = archive(&[pax(&long), one("cut.txt"), pax("é.txt"), one("cut.txt")]);
    has(Consumer::Wids, &long_names, "tar-long-name", Error);
    // wids sees both members as `cut.txt`.
    has(Consumer::Wids, &long_names, "tar-duplicate", Error);
    // wids ignores directories and files without a dot.
    let skipped = archive(&[
        RawHeader::new("d/", 0).kind(b'5').block(),
        one("README"),
        one("d/a.x"),
        RawHeader::new("d/", 0).kind(b'5').block(),
    ]);
    let findings = lint_with(&[Consumer::Wids], &skipped);
    assert!(
        findings.iter().all(|finding| finding.consumer.is_none()),
        "{findings:#?}"
    );
    has(Consumer::Dali, &long_names, "sidecar-name", Error);
    has(
        Consumer::Dali,
        &archive(&[one("a b.x")]),
        "sidecar-name",
        Error,
    );
    has(
        Consumer::Dali,
        &archive(&[one("a.x"), one("a.y"), one("b.x")]),
        "sample-fields",
        Warning,
    );
    has(
        Consumer::Dali,
        &archive(&[one("a/.x"), one("b.x")]),
        "split-differs",
        Warning,
    );
    has(
        Consumer::Hf,
        &archive(&[one("__a.x"), one("b.x")]),
        "split-differs",
        Warning,
    );
    has(
        Consumer::Hf,
        &archive(&[one("a.x"), one("b.y")]),
        "sample-fields",
        Error,
    );
    let late: Vec<Vec<u8>> = (0..5)
        .map(|n| one(&format!("{n}.x")))
        .chain([one("9.y")])
        .collect();
    has(Consumer::Hf, &archive(&late), "sample-fields", Warning);
    has(Consumer::Energon, &archive(&[]), "sidecar-empty", Error);
    has(
        Consumer::Energon,
        &archive(&[one("a.X")]),
        "split-differs",
        Warning,
    );
    has(
        Consumer::OpenClip,
        &archive(&[one("a.txt")]),
        "sample-fields",
        Warning,
    );
    for (fields, expected) in [
        (&["jpg", "txt"][..], 0),
        (&["WEBP", "txt", "json"], 0),
        (&["jpg", "json"], 1),
        (&["jpg", "text"], 1),
        (&["tif", "txt"], 1),
        (&["seg.png", "cap.txt"], 2),
    ] {
        let members: Vec<Vec<u8>> = fields
            .iter()
            .map(|field| one(&format!("a.{field}")))
            .collect();
        let findings = lint_with(&[Consumer::OpenClip], &archive(&members));
        let left_out = findings.iter().filter(|finding| {
            (finding.consumer, finding.id) == (Some(Consumer::OpenClip), "sample-fields")
        });
        assert_eq!(left_out.count(), expected, "{fields:?}");
    }
    // In open_clip, a repeated field starts a new sample; elsewhere it is an error.
    has(
        Consumer::OpenClip,
        &archive(&[one("a.jpg"), one("a.jpg")]),
        "tar-split",
        Error,
    );
    has(
        Consumer::Webdataset,
        &archive(&[one("a.x"), one("a.x")]),
        "tar-duplicate",
        Error,
    );

    let limits = Limits::default();
    for (consumer, expected) in [
        (Consumer::Dali, Some(Error)),
        (Consumer::Hf, Some(Error)),
        (Consumer::Wids, Some(Error)),
        (Consumer::Energon, Some(Error)),
        (Consumer::Webdataset, Some(Warning)),
    ] {
        let facts = ShardFacts {
            compression: Some(TarCompression::Zstd { level: 3 }),
            ..ShardFacts::default()
        };
        let survey = Survey::of(&shard(6), &limits);
        let findings = lint(&survey, &facts, &[consumer].into(), &limits);
        let found = findings
            .iter()
            .find(|finding| finding.id == "shard-compressed");
        assert_eq!(
            found.map(|finding| finding.severity),
            expected,
            "{consumer}"
        );
    }
}

#[test]
fn hugging_face_warns_about_tgz_extension() {
    let limits = Limits::default();
    for (name, expected) in [
        ("a.tar.gz", None),
        ("a.tar", None),
        ("a.tgz", Some(Warning)),
    ] {
        let facts = ShardFacts {
            name,
            compression: Some(TarCompression::Gzip { level: 6 }),
            ..ShardFacts::default()
        };
        let survey = Survey::of(&shard(6), &limits);
        let findings = lint(&survey, &facts, &[Consumer::Hf].into(), &limits);
        let found = findings
            .iter()
            .find(|finding| finding.id == "shard-compressed");
        assert_eq!(found.map(|finding| finding.severity), expected, "{name}");
    }
}

#[test]
fn field_sets_are_counted_in_any_order_of_shards() {
    let limits = Limits::default();
    let samples = |members: &[Vec<u8>]| {
        let survey = Survey::of(&archive(members), &limits);
        survey.samples(Consumer::Webdataset, &limits).0
    };
    let shards = [
        samples(&[one("a.x"), one("b.y")]),
        samples(&[one("c.y"), one("d.x")]),
    ];
    let mut sets = FieldSets::default();
    for shard in [1, 0] {
        sets.add(shard, &shards[shard]);
    }
    let texts: Vec<_> = sets
        .findings(4)
        .into_iter()
        .map(|finding| finding.text)
        .collect();
    assert_eq!(
        texts,
        [
            "2 of 4 samples have the fields x, the first of them `a`",
            "2 of 4 samples have the fields y, the first of them `b`"
        ]
    );
}

#[test]
fn only_some_field_sets_are_kept() {
    let limits = Limits::default();
    let members: Vec<_> = (0..50).map(|n| one(&format!("k{n}.f{n:02}"))).collect();
    let survey = Survey::of(&archive(&members), &limits);
    let (samples, _) = survey.samples(Consumer::Webdataset, &limits);
    let texts = |order: &[usize]| {
        let mut sets = FieldSets::default();
        for at in order {
            sets.add(*at, &samples[*at..=*at]);
        }
        let findings = sets.findings(50).into_iter();
        findings.map(|finding| finding.text).collect::<Vec<_>>()
    };
    let ascending: Vec<usize> = (0..50).collect();
    let found = texts(&ascending);
    assert_eq!(found.len(), 21);
    assert_eq!(
        found[19],
        "1 of 50 samples have the fields f19, the first of them `k19`"
    );
    assert_eq!(found[20], "30 of 50 samples have other fields");
    let descending: Vec<usize> = (0..50).rev().collect();
    assert_eq!(texts(&descending), found);
}

#[test]
fn repeated_findings_are_truncated_and_counted() {
    let data = archive(
        &(0..100)
            .map(|n| one(&format!("noext{n}")))
            .collect::<Vec<_>>(),
    );
    let findings = lint_with(&[], &data);
    let skipped: Vec<_> = findings
        .iter()
        .filter(|finding| finding.id == "member-skipped")
        .collect();
    assert_eq!(skipped.len(), 21);
    assert_eq!(skipped[20].text, "80 more of this kind");
}

#[test]
fn name_splits_match_each_reader() {
    let of = |consumer: Consumer| {
        ["a.X", "__b.y", "c"].map(|name| {
            let split = consumer.split(name);
            split.map(|(key, field)| (key.to_owned(), field.into_owned()))
        })
    };
    let pair = |key: &str, field: &str| Some((key.to_owned(), field.to_owned()));
    assert_eq!(
        of(Consumer::Webdataset),
        [pair("a", "x"), pair("__b", "y"), None]
    );
    assert_eq!(of(Consumer::Hf), [pair("a", "X"), None, None]);
    assert_eq!(
        of(Consumer::Wids),
        [pair("a", ".X"), pair("__b", ".y"), None]
    );
}

/// Surveys a shard, providing exactly the requested ranges.
fn survey_by_ranges(data: &[u8]) -> Survey {
    let mut surveyor = crate::survey::Surveyor::new(data.len() as u64, &Limits::default());
    let mut window = 0..0;
    while let Some(range) = surveyor.step(window.start as u64, &data[window.clone()]) {
        window = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
    }
    surveyor.finish()
}

proptest! {
    #[test]
    fn lint_never_panics(changes in proptest::collection::vec((0..9000_usize, any::<u8>()), 0..6)) {
        let mut data = shard(5);
        for (at, to) in changes {
            let at = at % data.len();
            data[at] = to;
            crate::testdata::seal(&mut data, at / 512 * 512);
        }
        let limits = Limits::default();
        prop_assert_eq!(survey_by_ranges(&data), Survey::of(&data, &limits));
        lint_with(&Consumer::ALL, &data);
    }
}
