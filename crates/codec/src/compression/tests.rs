use std::io::Write as _;

use proptest::prelude::*;
use shardmill_core::{Diagnostic as _, ErrorKind, Limits};

use super::*;

fn parse(name: &str) -> Compression {
    name.parse().unwrap()
}

fn compress(name: &str, raw: &[u8]) -> Vec<u8> {
    let mut zip = Vec::new();
    parse(name)
        .compressor()
        .unwrap()
        .compress(raw, &mut zip)
        .unwrap();
    zip
}

fn decompress(name: &str, zip: &[u8], raw_bytes: Option<u64>) -> Result<Vec<u8>, &'static str> {
    parse(name)
        .decompress(zip, raw_bytes, &Limits::default())
        .map_err(|error| error.id())
}

/// Returns bytes that compress well, but not to almost nothing.
fn sample(bytes: usize) -> Vec<u8> {
    let mut seed = 1_u64;
    (0..bytes)
        .map(|at| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let [.., noise] = seed.to_le_bytes();
            if at % 3 == 0 { noise } else { b"abc"[at % 3] }
        })
        .collect()
}

#[test]
fn all_58_compression_names_round_trip() {
    let names: Vec<String> = Compression::all()
        .map(|compression| compression.to_string())
        .collect();
    assert_eq!(names.len(), 58);
    for name in &names {
        assert_eq!(&parse(name).to_string(), name);
    }
    for (name, level, extension) in [
        ("br", 11, "br"),
        ("bz2", 9, "bz2"),
        ("gz", 9, "gz"),
        ("snappy", 0, "snappy"),
        ("zstd", 3, "zstd"),
        ("zstd:19", 19, "zstd"),
        ("br:0", 0, "br"),
    ] {
        assert_eq!(
            (parse(name).level(), parse(name).extension()),
            (level, extension)
        );
    }
    for name in [
        "", "zstd:0", "zstd:23", "zstd:03", "zst", "lz4", "gzip", "snappy:1", "br:12", "bz2:0",
        "ZSTD", "gz:", "zstd: 3",
    ] {
        let error = name.parse::<Compression>().unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("compression-unknown", ErrorKind::Unsupported),
            "{name}"
        );
    }
    assert_eq!(parse("zstd").segment_bytes(), Some(8 << 20));
    assert_eq!(parse("zstd:12").segment_bytes(), Some(8 << 20));
    for name in ["zstd:13", "gz", "br", "bz2", "snappy"] {
        assert_eq!(parse(name).segment_bytes(), None);
    }
}

#[test]
fn compression_round_trips_at_every_level() {
    let limits = Limits::default();
    for compression in Compression::all() {
        let mut compressor = compression.compressor().unwrap();
        for raw in [sample(0), sample(1), sample(300_000), vec![0; 70_000]] {
            let mut zip = b"before".to_vec();
            compressor.compress(&raw, &mut zip).unwrap();
            let zip = zip.strip_prefix(b"before").unwrap();
            let back = compression.decompress(zip, Some(raw.len() as u64), &limits);
            assert_eq!(back.as_ref(), Ok(&raw), "{compression}");
            // A reused compressor and a new one write the same bytes.
            let mut again = Vec::new();
            compression
                .compressor()
                .unwrap()
                .compress(&raw, &mut again)
                .unwrap();
            assert_eq!(again, zip, "{compression}");
        }
    }
}

#[test]
fn concatenated_frames_and_members_are_read() {
    let (first, second) = (sample(1000), sample(77));
    for name in ["zstd:5", "gz:3", "bz2:2"] {
        let zip = [
            compress(name, &first),
            compress(name, b""),
            compress(name, &second),
        ]
        .concat();
        let raw = [&first[..], &second].concat();
        assert_eq!(
            decompress(name, &zip, Some(1077)).as_ref(),
            Ok(&raw),
            "{name}"
        );
        assert_eq!(decompress(name, &zip, None).as_ref(), Ok(&raw), "{name}");
        assert_eq!(
            decompress(name, &zip, Some(1076)),
            Err("compression-size"),
            "{name}"
        );
        assert_eq!(
            decompress(name, &zip, Some(1000)),
            Err("compression-size"),
            "{name}"
        );
        assert_eq!(
            decompress(name, &zip, Some(1078)),
            Err("compression-size"),
            "{name}"
        );
    }
    let zip = [compress("br", &first), compress("br", &second)].concat();
    assert_eq!(
        decompress("br", &zip, Some(1077)),
        Err("compression-trailing")
    );
}

#[test]
fn too_many_empty_members_are_an_error() {
    for name in ["gz", "bz2"] {
        let empty = compress(name, b"");
        assert_eq!(
            decompress(name, &empty.repeat(1000), Some(0)),
            Ok(Vec::new()),
            "{name}"
        );
        assert_eq!(
            decompress(name, &empty.repeat(1001), Some(0)),
            Err("compression-damaged"),
            "{name}"
        );
        let zip = [compress(name, &sample(5000)), empty.repeat(1000)].concat();
        assert_eq!(
            decompress(name, &zip, Some(5000)),
            Ok(sample(5000)),
            "{name}"
        );
    }
}

#[test]
fn wrong_declared_length_is_an_error() {
    let raw = sample(5000);
    for name in ["br:4", "bz2", "gz", "snappy", "zstd"] {
        let zip = compress(name, &raw);
        for declared in [0, 1, 4999, 5001, 1 << 33] {
            assert_eq!(
                decompress(name, &zip, Some(declared)),
                Err("compression-size"),
                "{name} {declared}"
            );
        }
        let beyond = Limits::default().shard_bytes + 1;
        assert_eq!(
            decompress(name, &zip, Some(beyond)),
            Err("limit-shard-bytes"),
            "{name}"
        );
    }
}

#[test]
fn every_truncation_is_an_error() {
    let raw = sample(3000);
    for name in ["br:4", "bz2", "gz", "snappy", "zstd"] {
        let zip = compress(name, &raw);
        for end in 0..zip.len() {
            for declared in [Some(3000), None] {
                let error = decompress(name, &zip[..end], declared).unwrap_err();
                // In a truncated Snappy block, another error may be found first.
                let expected = error == "compression-truncated"
                    || (name == "snappy" && error == "compression-damaged");
                assert!(expected, "{name} {end} {error}");
            }
        }
    }
}

#[test]
fn trailing_bytes_are_an_error() {
    let raw = sample(3000);
    for (name, id) in [
        ("br:4", "compression-trailing"),
        ("bz2", "compression-trailing"),
        ("gz", "compression-trailing"),
        ("zstd", "compression-trailing"),
        // To Snappy, trailing bytes are more elements.
        ("snappy", "compression-size"),
    ] {
        for tail in [&b"\0"[..], b"\0\0\0\0", b"x y z"] {
            let zip = [&compress(name, &raw)[..], tail].concat();
            let error = decompress(name, &zip, Some(3000)).unwrap_err();
            assert!(
                error == id || (name == "snappy" && error == "compression-damaged"),
                "{name} {tail:?} {error}"
            );
        }
        let again = [compress(name, &raw), b"\x1f".to_vec()].concat();
        assert!(decompress(name, &again, Some(3000)).is_err(), "{name}");
    }
    // The beginning of another frame is a truncation.
    let zip = [compress("zstd", &raw), vec![0x28, 0xb5]].concat();
    assert_eq!(
        decompress("zstd", &zip, Some(3000)),
        Err("compression-truncated")
    );
}

#[test]
fn data_of_another_compression_is_an_error() {
    let raw = sample(100);
    let zip = compress("gz", &raw);
    let error = parse("zstd")
        .decompress(&zip, Some(100), &Limits::default())
        .unwrap_err();
    assert_eq!(error.id(), "compression-magic");
    assert_eq!(
        error.to_string(),
        "the file begins with [1f, 8b, 08, 00], which is not zstd"
    );
    for name in ["gz", "bz2", "zstd"] {
        assert_eq!(decompress(name, &raw, Some(100)), Err("compression-magic"));
        assert_eq!(
            decompress(name, b"", Some(100)),
            Err("compression-truncated")
        );
    }
    assert!(decompress("br", &zip, Some(100)).is_err());
    assert!(decompress("snappy", &zip, Some(100)).is_err());
}

#[test]
fn decompression_bombs_stop_at_size_or_limits() {
    let raw = vec![0; 50 << 20];
    for name in ["br:5", "bz2:9", "gz:6", "zstd:1"] {
        let zip = compress(name, &raw);
        assert_eq!(
            decompress(name, &zip, Some(1 << 20)),
            Err("compression-size"),
            "{name}"
        );
        let mut limits = Limits::default();
        let error = parse(name).decompress(&zip, None, &limits).unwrap_err();
        // Deflate cannot exceed a ratio of 1 000 by much; the others can.
        assert_eq!(error.id(), "limit-expansion", "{name} {}", zip.len());
        limits.expansion.ratio = u64::MAX;
        assert_eq!(
            parse(name)
                .decompress(&zip, None, &limits)
                .as_ref()
                .map(Vec::len),
            Ok(raw.len())
        );
        limits.expansion.bytes = raw.len() as u64 - 1;
        let error = parse(name).decompress(&zip, None, &limits).unwrap_err();
        assert_eq!(error.id(), "limit-expansion", "{name}");
    }
    // Snappy declares its length first, and it cannot expand to much more than the file.
    for declared in [Some((4 << 30) - 1), Some(4), None] {
        assert_eq!(
            decompress("snappy", b"\xff\xff\xff\xff\x0f\0", declared),
            Err("compression-truncated")
        );
    }
    let zip = compress("snappy", &raw);
    assert_eq!(
        decompress("snappy", &zip, Some(1 << 20)),
        Err("compression-size")
    );
    let mut limits = Limits::default();
    limits.expansion.bytes = 1 << 20;
    let error = parse("snappy").decompress(&zip, None, &limits).unwrap_err();
    assert_eq!(error.id(), "limit-expansion");
}

/// Builds a frame of one raw block, without a content size.
fn frame(flags: u8, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, flags];
    frame.extend_from_slice(rest);
    frame
}

#[test]
fn zstd_headers_are_checked_before_decompression() {
    // Last block, raw, 3 bytes.
    let block = [1 | 3 << 3, 0, 0, b'a', b'b', b'c'];
    let with = |head: &[u8]| [head, &block].concat();
    let id = |zip: &[u8]| decompress("zstd", zip, Some(3));

    assert_eq!(id(&frame(0, &with(&[0]))), Ok(b"abc".to_vec()));
    assert_eq!(id(&frame(0x20, &with(&[3]))), Ok(b"abc".to_vec()));
    // A window of 2 GiB; then 128 MiB, which is the limit, and the next larger size.
    assert_eq!(id(&frame(0, &with(&[21 << 3]))), Err("limit-window"));
    assert_eq!(id(&frame(0, &with(&[17 << 3]))), Ok(b"abc".to_vec()));
    assert_eq!(id(&frame(0, &with(&[17 << 3 | 1]))), Err("limit-window"));
    // A dictionary; and dictionary 0, which means none.
    assert_eq!(id(&frame(1, &with(&[0, 7]))), Err("zstd-dictionary"));
    assert_eq!(
        id(&frame(3, &with(&[0, 0, 0, 0, 1]))),
        Err("zstd-dictionary")
    );
    assert_eq!(id(&frame(1, &with(&[0, 0]))), Ok(b"abc".to_vec()));
    assert_eq!(id(&frame(8, &with(&[0]))), Err("zstd-reserved"));
    // A content size above and below what the blocks contain.
    assert_eq!(id(&frame(0x20, &with(&[4]))), Err("zstd-frame-size"));
    assert_eq!(id(&frame(0x20, &with(&[2]))), Err("zstd-frame-size"));
    // Checksum: absent, wrong.
    assert_eq!(id(&frame(4, &with(&[0]))), Err("compression-truncated"));
    assert_eq!(
        id(&frame(4, &[&with(&[0])[..], &[1, 2, 3, 4]].concat())),
        Err("compression-damaged")
    );
    // A block of the reserved type.
    assert_eq!(id(&frame(0, &[0, 7, 0, 0])), Err("compression-damaged"));

    assert_eq!(
        id(&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]),
        Err("zstd-skippable")
    );
    assert_eq!(
        id(&[0x5f, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]),
        Err("zstd-skippable")
    );
    let mut later = frame(0x20, &with(&[3]));
    later.extend([0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]);
    assert_eq!(id(&later), Err("zstd-skippable"));
    for (magic, minor) in [(0x22, 2), (0x25, 5), (0x27, 7)] {
        let error =
            parse("zstd").decompress(&[magic, 0xb5, 0x2f, 0xfd, 0], Some(3), &Limits::default());
        let text = format!("the zstd frame at byte 0 has the format of version 0.{minor}");
        assert_eq!(error.unwrap_err().to_string(), text);
    }
    assert_eq!(id(&[0xfd, 0x2f, 0xb5, 0x1e, 0]), Err("zstd-legacy"));
}

#[test]
fn declared_size_alone_allocates_no_memory() {
    // Index and frame both declare 16 GiB, but there are no data. On a machine that overcommits memory, an allocation
    // would go unnoticed; the errors show that none was made.
    let declared = 16_u64 << 30;
    let small = frame(
        0x20 | 0xc0,
        &[
            &declared.to_le_bytes()[..],
            &[1 | 3 << 3, 0, 0, b'a', b'b', b'c'],
        ]
        .concat(),
    );
    assert_eq!(
        decompress("zstd", &small, Some(declared)),
        Err("zstd-frame-size")
    );
    for name in ["br:1", "gz", "bz2", "snappy"] {
        let zip = compress(name, b"abc");
        assert_eq!(
            decompress(name, &zip, Some(declared)),
            Err("compression-size"),
            "{name}"
        );
    }
}

#[test]
fn zstd_frames_without_content_size_are_read() {
    let raw = sample(400_000);
    for checksum in [false, true] {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(checksum).unwrap();
        for piece in raw.chunks(70_000) {
            encoder.write_all(piece).unwrap();
            encoder.flush().unwrap();
        }
        let zip = encoder.finish().unwrap();
        assert_eq!(zip[4] >> 6, 0, "no content size");
        assert_eq!(decompress("zstd", &zip, Some(400_000)).as_ref(), Ok(&raw));
        assert_eq!(decompress("zstd", &zip, None).as_ref(), Ok(&raw));
        assert_eq!(
            decompress("zstd", &zip, Some(399_999)),
            Err("compression-size")
        );
        assert_eq!(
            decompress("zstd", &zip, Some(400_001)),
            Err("compression-size")
        );
    }
}

#[test]
fn zstd_frames_have_a_size_and_no_checksum() {
    let zip = compress("zstd:3", &sample(1000));
    assert_eq!(zip[..4], [0x28, 0xb5, 0x2f, 0xfd]);
    assert_eq!(
        zip[4], 0x60,
        "content size in two bytes, single segment, no checksum, no dictionary"
    );
    let gz = compress("gz", b"x");
    assert_eq!(
        gz[..10],
        [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255],
        "no name, no time"
    );
}

fn any_compression() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "br:0", "br:5", "br:9", "bz2:1", "bz2:9", "gz:0", "gz:1", "gz:9", "snappy", "zstd",
        "zstd:1", "zstd:9", "zstd:19",
    ])
}

fn any_raw() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2000),
        (any::<u8>(), 0_usize..200_000).prop_map(|(byte, count)| vec![byte; count]),
        (prop::collection::vec(any::<u8>(), 1..40), 0_usize..500)
            .prop_map(|(piece, count)| piece.repeat(count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn compression_round_trips_for_any_input(name in any_compression(), raw in any_raw()) {
        let zip = compress(name, &raw);
        let back = decompress(name, &zip, Some(raw.len() as u64));
        prop_assert_eq!(back.as_ref(), Ok(&raw));
        let mut limits = Limits::default();
        limits.expansion.ratio = u64::MAX;
        let back = parse(name).decompress(&zip, None, &limits);
        prop_assert_eq!(back.as_ref(), Ok(&raw));
    }

    #[test]
    fn damaged_input_does_not_panic(
        name in any_compression(),
        raw in any_raw(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        end: prop::sample::Index,
        cut: bool,
    ) {
        let mut zip = compress(name, &raw);
        for (index, byte) in changes {
            let offset = index.index(zip.len());
            zip[offset] ^= byte;
        }
        if cut {
            zip.truncate(end.index(zip.len() + 1));
        }
        let declared = raw.len() as u64;
        if let Ok(back) = decompress(name, &zip, Some(declared)) {
            prop_assert_eq!(back.len(), raw.len());
        }
        let _ = decompress(name, &zip, None);
    }

    #[test]
    fn arbitrary_input_does_not_panic(name in any_compression(), zip: Vec<u8>, declared in 0_u64..5000) {
        let _ = decompress(name, &zip, Some(declared));
        let _ = decompress(name, &zip, None);
        let mut prefixed = compress(name, b"");
        prefixed.truncate(6);
        prefixed.extend(zip);
        let _ = decompress(name, &prefixed, Some(declared));
    }
}
