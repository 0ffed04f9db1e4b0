//! Tests the supported dialects, and what is refused.

use proptest::prelude::*;
use shardmill_codec::Content;
use shardmill_core::{Diagnostic, ErrorKind, Limits};

use super::*;
use crate::error::{MemberKind, WebdatasetError};
use crate::shard::ShardMap;
use crate::testdata::{RawHeader, archive, extension, member, records, seal, shard};

/// Returns the names and contents of all files of an archive.
fn files(data: &[u8]) -> Result<Vec<(String, Vec<u8>)>, WebdatasetError> {
    let mut scanner = Scanner::new(data.len() as u64, &Limits::default());
    let mut files = Vec::new();
    loop {
        match scanner.step(0, data)? {
            Step::Member(member) => {
                check_member(&member)?;
                let at = usize::try_from(member.data).unwrap();
                let bytes = usize::try_from(member.bytes).unwrap();
                if member.kind == MemberKind::File {
                    files.push((member.name.into_owned(), data[at..at + bytes].to_vec()));
                }
            }
            Step::End(_) => return Ok(files),
            Step::Need(range) => panic!("{range:?} of {}", data.len()),
        }
    }
}

fn names(data: &[u8]) -> Vec<String> {
    files(data)
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

fn id(data: &[u8]) -> (&'static str, ErrorKind) {
    let error = files(data).unwrap_err();
    (error.id(), error.kind())
}

#[test]
fn every_tar_dialect_is_read() {
    let long = format!("{}/name.txt", "long".repeat(40));
    let path = records(&[("mtime", "1.5"), ("path", &long)]);
    let size = records(&[("size", "3")]);
    let mut terminated = long.clone().into_bytes();
    terminated.push(0);
    for (what, parts, expected) in [
        ("ustar", vec![member("a.txt", b"1")], "a.txt"),
        (
            "prefix",
            vec![RawHeader::new("a.txt", 1).prefix("dir/sub").with(b"1")],
            "dir/sub/a.txt",
        ),
        (
            "v7",
            vec![RawHeader::new("a.txt", 1).magic(&[0; 8]).kind(0).with(b"1")],
            "a.txt",
        ),
        (
            "gnu: no prefix, what lies there is something else",
            vec![
                RawHeader::new("a.txt", 1)
                    .magic(b"ustar  \0")
                    .prefix("12345670123")
                    .with(b"1"),
            ],
            "a.txt",
        ),
        (
            "gnu long name and link",
            vec![
                extension(b'K', b"target\0"),
                extension(b'L', &terminated),
                member("cut", b"1"),
            ],
            &long,
        ),
        (
            "pax",
            vec![extension(b'x', &path), member("cut", b"1")],
            &long,
        ),
        (
            "pax with the size that the header has",
            vec![extension(b'x', &size), member("a.txt", b"123")],
            "a.txt",
        ),
        (
            "pax for all",
            vec![
                extension(b'g', &records(&[("comment", "x")])),
                member("a.txt", b"1"),
            ],
            "a.txt",
        ),
        (
            "base 256",
            vec![
                RawHeader::new("a.txt", 0)
                    .size(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
                    .with(b"1"),
            ],
            "a.txt",
        ),
        (
            "blanks around a number",
            vec![RawHeader::new("a.txt", 0).size(b"         1 \0").with(b"1")],
            "a.txt",
        ),
        (
            "contiguous",
            vec![RawHeader::new("a.txt", 1).kind(b'7').with(b"1")],
            "a.txt",
        ),
        (
            "directories",
            vec![
                RawHeader::new("d/", 0).kind(b'5').block(),
                RawHeader::new("e/", 0).magic(&[0; 8]).kind(0).block(),
                member("d/a.txt", b"1"),
            ],
            "d/a.txt",
        ),
        (
            "a name of just 100 bytes",
            vec![member(&"n".repeat(100), b"1")],
            &"n".repeat(100),
        ),
    ] {
        assert_eq!(names(&archive(&parts)), [expected], "{what}");
    }
    assert_eq!(names(&archive(&[])), Vec::<String>::new());
}

#[test]
fn signed_header_checksums_are_accepted() {
    let mut data = archive(&[member("é.txt", b"")]);
    let sum: i32 = (0..512)
        .map(|at| match at {
            148..156 => i32::from(b' '),
            _ => i32::from(data[at].cast_signed()),
        })
        .sum();
    data[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    assert_eq!(names(&data), ["é.txt"]);
}

#[test]
fn invalid_tar_files_are_errors_with_specific_ids() {
    use ErrorKind::{Corrupt, Unsupported};
    let one = || member("a.txt", b"1");
    let pax = |pairs: &[(&str, &str)]| extension(b'x', &records(pairs));
    let flip = |at: usize, to: u8, sealed: bool| {
        let mut data = archive(&[one()]);
        data[at] = to;
        if sealed {
            seal(&mut data, 0);
        }
        data
    };
    let kind = |kind: u8| archive(&[RawHeader::new("a.txt", 0).kind(kind).block()]);
    let named = |name: &str| archive(&[member(name, b"1")]);
    let sized = |size: &[u8]| archive(&[RawHeader::new("a.txt", 0).size(size).with(b"1")]);
    let mut unaligned = archive(&[one()]);
    unaligned.truncate(700);
    let mut behind = archive(&[one()]);
    behind.extend(archive(&[member("b.txt", b"2")]));
    let mut hidden = one();
    hidden.extend([0; 512]);
    for (what, data, expected) in [
        ("no magic", flip(257, b'x', true), ("tar-magic", Corrupt)),
        ("HTML", b"<html>".repeat(200), ("tar-magic", Corrupt)),
        (
            "a flipped bit",
            flip(1, b'x', false),
            ("tar-checksum", Corrupt),
        ),
        (
            "a checksum of letters",
            flip(148, b'x', false),
            ("tar-number", Corrupt),
        ),
        ("an empty file", Vec::new(), ("tar-end", Corrupt)),
        (
            "half a header",
            one()[..300].to_vec(),
            ("tar-torn", Corrupt),
        ),
        ("half a content", unaligned, ("tar-end", Corrupt)),
        ("no end", one(), ("tar-end", Corrupt)),
        ("half an end", hidden.clone(), ("tar-end", Corrupt)),
        (
            "a member between the zeros",
            archive(&[hidden, one()]),
            ("tar-trailing", Corrupt),
        ),
        ("a second archive", behind, ("tar-trailing", Corrupt)),
        (
            "a size beyond the file",
            sized(b"77777777777\0"),
            ("tar-short", Corrupt),
        ),
        (
            "a size beyond 2^64",
            sized(&[0xbf; 12]),
            ("tar-number", Corrupt),
        ),
        (
            "a size near 2^64",
            sized(&[0x80, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]),
            ("tar-short", Corrupt),
        ),
        (
            "a negative size",
            sized(&[0xff; 12]),
            ("tar-number", Corrupt),
        ),
        (
            "a size of letters",
            sized(b"1x\0\0\0\0\0\0\0\0\0\0"),
            ("tar-number", Corrupt),
        ),
        (
            "a size with something behind it",
            sized(b"1\x001\0\0\0\0\0\0\0\0\0"),
            ("tar-number", Corrupt),
        ),
        (
            "a PAX size unlike the header",
            archive(&[pax(&[("size", "2")]), one()]),
            ("tar-size", Corrupt),
        ),
        (
            "a PAX size beyond the file",
            archive(&[pax(&[("size", "99999999999")]), one()]),
            ("tar-short", Corrupt),
        ),
        (
            "two paths in PAX",
            archive(&[pax(&[("path", "a.b"), ("path", "c.d")]), one()]),
            ("tar-extension", Corrupt),
        ),
        (
            "two PAX headers",
            archive(&[pax(&[("path", "a.b")]), pax(&[]), one()]),
            ("tar-extension", Corrupt),
        ),
        (
            "two GNU names",
            archive(&[extension(b'L', b"a.b"), extension(b'L', b"a.b"), one()]),
            ("tar-extension", Corrupt),
        ),
        (
            "PAX and GNU disagree",
            archive(&[pax(&[("path", "a.b")]), extension(b'L', b"c.d"), one()]),
            ("tar-extension", Corrupt),
        ),
        (
            "a GNU name of nothing",
            archive(&[extension(b'L', b"\0"), one()]),
            ("tar-extension", Corrupt),
        ),
        (
            "one name for all",
            archive(&[extension(b'g', &records(&[("path", "a.b")])), one()]),
            ("tar-extension", Corrupt),
        ),
        (
            "records that are none",
            archive(&[extension(b'x', b"12 broken\n"), one()]),
            ("tar-extension", Corrupt),
        ),
        (
            "PAX without a member",
            archive(&[one(), pax(&[("path", "a.b")])]),
            ("tar-extension", Corrupt),
        ),
        (
            "a prefix without magic",
            archive(&[RawHeader::new("a.txt", 1)
                .magic(&[0; 8])
                .prefix("p")
                .with(b"1")]),
            ("tar-name", Corrupt),
        ),
        (
            "a directory with content",
            archive(&[RawHeader::new("d/", 1).kind(b'5').with(b"1")]),
            ("tar-size", Corrupt),
        ),
        ("a hard link", kind(b'1'), ("tar-kind", Unsupported)),
        ("a symbolic link", kind(b'2'), ("tar-kind", Unsupported)),
        ("a character device", kind(b'3'), ("tar-kind", Unsupported)),
        ("a block device", kind(b'4'), ("tar-kind", Unsupported)),
        ("a pipe", kind(b'6'), ("tar-kind", Unsupported)),
        (
            "a sparse file of GNU",
            kind(b'S'),
            ("tar-kind", Unsupported),
        ),
        (
            "a sparse file of PAX",
            archive(&[pax(&[("GNU.sparse.major", "1")]), one()]),
            ("tar-kind", Unsupported),
        ),
        ("a part of a volume", kind(b'M'), ("tar-kind", Unsupported)),
        (
            "an absolute name",
            named("/etc/passwd.txt"),
            ("tar-name", Corrupt),
        ),
        (
            "a name that climbs",
            named("a/../../b.txt"),
            ("tar-name", Corrupt),
        ),
        (
            "a name that ends in `..`",
            named("a/.."),
            ("tar-name", Corrupt),
        ),
        ("no name", named(""), ("tar-name", Corrupt)),
        (
            "a control character",
            named("a\n.txt"),
            ("tar-name", Corrupt),
        ),
        (
            "a flood of PAX",
            archive(&[extension(b'x', &vec![b'x'; (1 << 20) + 1]), one()]),
            ("limit-pax", Unsupported),
        ),
        (
            "a flood of a name",
            archive(&[extension(b'L', &vec![b'x'; 4097]), one()]),
            ("limit-tar-name", Unsupported),
        ),
    ] {
        assert_eq!(id(&data), expected, "{what}");
    }
    let mut latin = archive(&[member("a.txt", b"1")]);
    latin[0] = 0xe9;
    seal(&mut latin, 0);
    assert_eq!(id(&latin), ("tar-name", Corrupt));
}

#[test]
fn unusual_but_valid_names_are_accepted() {
    for name in [
        "./a.txt",
        "a//b.txt",
        "..a/b.txt",
        "nul.txt",
        "a b.txt",
        "é.txt",
    ] {
        assert_eq!(names(&archive(&[member(name, b"1")])), [name]);
    }
}

#[test]
fn truncated_shard_is_an_error_at_any_length() {
    let whole = shard(4);
    let limits = Limits::default();
    let map = ShardMap::read(&whole, &limits).unwrap();
    let end = usize::try_from(map.end).unwrap();
    for cut in (0..whole.len())
        .step_by(512)
        .chain((0..whole.len()).step_by(97))
    {
        let result = ShardMap::read(&whole[..cut], &limits);
        if cut >= end + 1024 {
            // Only zeros after a complete end are missing, so every sample is present.
            assert_eq!(result.unwrap().samples, map.samples, "{cut}");
        } else {
            let error = result.unwrap_err();
            assert!(
                matches!(error.id(), "tar-end" | "tar-short" | "tar-torn"),
                "{cut} {error}"
            );
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
    }
}

/// Name, offset and bytes of a member.
type Found = (String, u64, u64);

/// Scans by ranges of at least `least` bytes. Returns the members and the number of requested bytes.
fn scan_by_ranges(data: &[u8], min: u64) -> (Result<Vec<Found>, WebdatasetError>, u64) {
    let mut scanner = Scanner::new(data.len() as u64, &Limits::default());
    let (mut members, mut read) = (Vec::new(), 0);
    let mut window = 0..0;
    loop {
        let bytes = &data[window.clone()];
        match scanner.step(window.start as u64, bytes) {
            Err(error) => return (Err(error), read),
            Ok(Step::End(_)) => return (Ok(members), read),
            Ok(Step::Member(member)) => {
                members.push((member.name.into_owned(), member.data, member.bytes));
            }
            Ok(Step::Need(range)) => {
                assert!(range.end <= data.len() as u64, "{range:?}");
                let end = range.end.max(range.start + min).min(data.len() as u64);
                read += end - range.start;
                window = usize::try_from(range.start).unwrap()..usize::try_from(end).unwrap();
            }
        }
    }
}

#[test]
fn scan_by_ranges_skips_member_contents() {
    let big = vec![b'x'; 1 << 20];
    let data = archive(&[member("a.bin", &big), member("b.bin", &big)]);
    let (members, read) = scan_by_ranges(&data, 0);
    assert_eq!(members.unwrap().len(), 2);
    assert!(read < 20_000, "{read} bytes of {}", data.len());
}

proptest! {
    /// A sample that is numbered later equals one that was written with that number.
    #[test]
    fn renumbered_sample_equals_one_written_with_that_number(
        members in proptest::collection::vec(("[a-zé]{1,150}", proptest::collection::vec(any::<u8>(), 0..1200)), 1..5),
        before in "[a-z]{0,5}",
        number in 0..1_000_000_000_u64,
    ) {
        let style = TarStyle { long_names: true, ..TarStyle::default() };
        let packed = |key: &str| {
            let mut out = Vec::new();
            for (field, content) in &members {
                write_member(style, &format!("{key}.{field}"), content, &mut out).unwrap();
            }
            out
        };
        let key = format!("{before}{number:0KEY_DIGITS$}");
        let mut given = packed(&format!("{before}{:0KEY_DIGITS$}", 0));
        prop_assert!(renumber(&mut given, key.len(), &key));
        prop_assert!(given == packed(&key));
        // Its content digest does not depend on the number.
        let numbered = packed(&format!("{number:0KEY_DIGITS$}"));
        let content = content_of_numbered(&numbered, KEY_DIGITS, &mut Vec::new());
        prop_assert_eq!(content, Content::of(&packed(&format!("{:0KEY_DIGITS$}", 0))));
        // Not every name has space for a longer key; those that have equal ones written with that key.
        let mut longer = packed(&format!("{:0KEY_DIGITS$}", 0));
        if renumber(&mut longer, KEY_DIGITS, &key) {
            prop_assert!(longer == packed(&key));
        }
    }
}

proptest! {
    #[test]
    fn scans_by_ranges_and_at_once_agree(
        data in mutant(),
        min in prop_oneof![Just(0_u64), Just(512), 1..5000_u64],
    ) {
        let (by_ranges, _) = scan_by_ranges(&data, min);
        let (at_once, _) = scan_by_ranges(&data, u64::MAX / 2);
        prop_assert_eq!(by_ranges, at_once);
    }

    #[test]
    fn arbitrary_bytes_give_an_error_or_members_in_bounds(data in mutant()) {
        if let (Ok(members), _) = scan_by_ranges(&data, 0) {
            for (_, at, bytes) in members {
                prop_assert!(at + bytes <= data.len() as u64);
            }
        }
    }

    #[test]
    fn written_members_round_trip(
        members in proptest::collection::vec(("[a-zé/]{1,150}", proptest::collection::vec(any::<u8>(), 0..2000)), 0..6),
        mtime: u32,
    ) {
        let style = TarStyle::reference(mtime);
        let mut out = Vec::new();
        for (name, content) in &members {
            let before = out.len() as u64;
            write_member(style, name, content, &mut out).unwrap();
            let bytes = member_bytes(style, name, content.len() as u64).unwrap();
            prop_assert_eq!(out.len() as u64 - before, bytes);
        }
        write_trailer(&mut out);
        prop_assert_eq!(out.len() % 10_240, 0);
        let legal = members.iter().all(|(name, _)| !name.starts_with('/'));
        match files(&out) {
            Ok(found) => prop_assert_eq!(found, members),
            Err(error) => prop_assert!(!legal && error.id() == "tar-name", "{}", error),
        }
    }
}

/// Generates a valid archive with some changed bytes, with or without corrected checksums, and possibly truncated.
fn mutant() -> impl Strategy<Value = Vec<u8>> {
    let change = (0..5000_usize, any::<u8>());
    (
        0..4_usize,
        proptest::collection::vec(change, 0..4),
        any::<bool>(),
        proptest::option::of(0..6000_usize),
    )
        .prop_map(|(samples, changes, mend, cut)| {
            let path = records(&[("path", "dir/long.name")]);
            let mut data = [
                extension(b'x', &path),
                member("cut", b"content"),
                extension(b'L', b"other.name\0"),
                member("cut", &[7; 600]),
            ]
            .concat();
            data.extend(shard(samples));
            for (at, to) in changes {
                let at = at % data.len();
                data[at] = to;
                if mend {
                    seal(&mut data, at / 512 * 512);
                }
            }
            data.truncate(cut.unwrap_or(usize::MAX));
            data
        })
}
