use shardmill_codec::seekable::*;
use shardmill_core::{Diagnostic as _, Limits};

use crate::shard::{Profile, ShardBuilder, ShardView};

/// Builds a shard of samples whose bytes compress partially.
fn shard(samples: u32) -> (Vec<u8>, Vec<u64>) {
    let mut shard = ShardBuilder::new(Profile::default());
    for sample in 0..samples {
        let noise: Vec<u8> = (0..3000_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(sample) >> 13).to_le_bytes()[0])
            .collect();
        let text = "text ".repeat(100);
        shard
            .push(
                &format!("{sample:04}"),
                &[("bin", &noise), ("txt", text.as_bytes())],
            )
            .unwrap();
    }
    let (bytes, map) = shard.finish();
    (bytes, map.offsets())
}

const BOTH: [TarCompression; 2] = [
    TarCompression::Gzip { level: 6 },
    TarCompression::Zstd { level: 3 },
];

#[test]
fn what_is_compressed_comes_back_whole_and_by_pieces() {
    let limits = Limits::default();
    let (raw, offsets) = shard(50);
    for compression in BOTH {
        for group_bytes in [1, 20_000, 1 << 30] {
            let zip = compress_shard(&raw, &offsets, compression, group_bytes).unwrap();
            assert_eq!(
                decompress(&zip, Some(raw.len() as u64), &limits).unwrap(),
                raw
            );
            assert_eq!(decompress(&zip, None, &limits).unwrap(), raw);
            let tail = usize::try_from(PieceTable::TAIL_BYTES).unwrap();
            let tail = &zip[zip.len().saturating_sub(tail)..];
            let table = PieceTable::read(tail, zip.len() as u64).unwrap().unwrap();
            assert_eq!(table.raw_bytes(), raw.len() as u64);
            let mut joined = Vec::new();
            for piece in table.pieces() {
                assert!(offsets.contains(&piece.raw.start), "{piece:?}");
                let bytes = &zip[usize::try_from(piece.zip.start).unwrap()
                    ..usize::try_from(piece.zip.end).unwrap()];
                let length = piece.raw.end - piece.raw.start;
                joined.extend(decompress_piece(compression, bytes, length, &limits).unwrap());
                assert!(decompress_piece(compression, bytes, length + 1, &limits).is_err());
                assert!(decompress_piece(compression, bytes, length - 1, &limits).is_err());
            }
            assert_eq!(joined, raw, "{compression} {group_bytes}");
            let pieces = table.pieces().len();
            assert_eq!(pieces == 1, group_bytes == 1 << 30, "{pieces}");
            assert_eq!(table.covering(&(offsets[7]..offsets[8])).len(), 1);
        }
    }
}

#[test]
fn a_sample_is_read_from_its_piece_alone() {
    let limits = Limits::default();
    let (raw, offsets) = shard(20);
    let zip = compress_shard(&raw, &offsets, BOTH[1], 1).unwrap();
    let table = PieceTable::read(&zip, zip.len() as u64).unwrap().unwrap();
    let [piece] = table.covering(&(offsets[7]..offsets[8])) else {
        panic!("{table:?}");
    };
    let bytes =
        &zip[usize::try_from(piece.zip.start).unwrap()..usize::try_from(piece.zip.end).unwrap()];
    let length = piece.raw.end - piece.raw.start;
    let alone = decompress_piece(BOTH[1], bytes, length, &limits).unwrap();
    let view = ShardView::open(&raw, &limits).unwrap();
    let field = &view.fields(7).unwrap()[1];
    let at = usize::try_from(field.offset - piece.raw.start).unwrap();
    assert_eq!(&alone[at..at + field.data.len()], field.data);
}

#[test]
fn damage_is_an_error_and_bombs_are_bounded() {
    let (raw, offsets) = shard(5);
    for compression in BOTH {
        let zip = compress_shard(&raw, &offsets, compression, 4096).unwrap();
        let table_at = usize::try_from(
            PieceTable::read(&zip, zip.len() as u64)
                .unwrap()
                .unwrap()
                .pieces()
                .last()
                .unwrap()
                .zip
                .end,
        )
        .unwrap();
        // A file that is cut within its content is always an error.
        for cut in (0..table_at).step_by(97) {
            assert!(
                decompress(&zip[..cut], Some(raw.len() as u64), &Limits::default()).is_err(),
                "{compression} {cut}"
            );
        }
        let mut small = Limits::default();
        small.expansion.ratio = 1;
        assert_eq!(
            decompress(&zip, None, &small).unwrap_err().id(),
            "limit-expansion"
        );
        let error = decompress(&zip, Some(1), &Limits::default()).unwrap_err();
        assert_eq!(error.id(), "compression-size");
        // A table that does not match the file.
        let longer = PieceTable::read(&zip, zip.len() as u64 + 1).unwrap_err();
        assert_eq!(longer.id(), "compression-table");
        assert_eq!(PieceTable::read(&raw, raw.len() as u64), Ok(None));
    }
    let error = decompress(b"nothing", None, &Limits::default()).unwrap_err();
    assert_eq!(error.id(), "compression-magic");
    for compression in [
        TarCompression::Gzip { level: 10 },
        TarCompression::Zstd { level: 0 },
    ] {
        let error = PieceCompressor::new(compression).unwrap_err();
        assert_eq!(error.id(), "compression-unknown");
    }
}

#[test]
fn what_comes_before_damage_is_kept_on_request() {
    let limits = Limits::default();
    let (raw, offsets) = shard(40);
    for compression in BOTH {
        let mut zip = compress_shard(&raw, &offsets, compression, 20_000).unwrap();
        let (whole, error) = decompress_partial(&zip, &limits).unwrap();
        assert_eq!((&whole, error), (&raw, None));
        zip.truncate(zip.len() / 2);
        let (part, error) = decompress_partial(&zip, &limits).unwrap();
        assert_eq!(error.unwrap().id(), "compression-truncated");
        assert!(raw.starts_with(&part), "{compression}");
        assert!(part.len() > raw.len() / 4, "{compression} {}", part.len());
        let saved = crate::lint::repair(&part, &limits);
        assert!(saved.map.samples.len() > 8 && !saved.lost.is_empty());
    }
}

#[test]
fn compressions_have_names() {
    for level in 0..=30 {
        let gzip = format!("gz:{level}").parse();
        let zstd = format!("zstd:{level}").parse();
        assert_eq!(gzip.is_ok(), level <= 9);
        assert_eq!(zstd.is_ok(), (1..=22).contains(&level));
        for one in [gzip, zstd].into_iter().flatten() {
            let one: TarCompression = one;
            assert_eq!(one.to_string().parse(), Ok(one));
        }
    }
    assert_eq!("gz".parse(), Ok(TarCompression::Gzip { level: 9 }));
    assert_eq!("zstd".parse(), Ok(TarCompression::Zstd { level: 3 }));
    for text in [
        "", "gz:", "gz:06", "zstd:+3", "zst", "br", "zstd:3:3", "gz:256",
    ] {
        let error = text.parse::<TarCompression>().unwrap_err();
        assert_eq!(error.id(), "compression-unknown", "{text}");
    }
}

#[test]
fn groups_are_whole_samples() {
    let offsets = [0, 1024, 2048, 4096, 8192];
    assert_eq!(
        sample_groups(&offsets, 10_240, 2048),
        [0..2048, 2048..4096, 4096..10_240]
    );
    let whole = 0..10_240;
    let all =
        |offsets: &[u64]| sample_groups(offsets, 10_240, 1 << 20) == std::slice::from_ref(&whole);
    assert!(all(&offsets) && all(&[0]));
}
