use std::io::Read as _;

use shardmill_codec::seekable::*;
use shardmill_core::{Diagnostic as _, Limits};

use crate::shard::{Profile, ShardBuilder};

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

/// Reads the compressed and raw lengths of the pieces from the table at the end of a file, and the offset of the first.
fn table(compression: TarCompression, zip: &[u8]) -> (usize, Vec<(usize, usize)>) {
    let number = |at: usize| u32::from_le_bytes(*zip[at..].first_chunk().unwrap()) as usize;
    let (begin, count_at) = match compression {
        TarCompression::Gzip { .. } => (10, zip.len() - 14),
        TarCompression::Zstd { .. } => (0, zip.len() - 9),
    };
    let entries = count_at - 8 * number(count_at)..count_at;
    let entries = entries.step_by(8).map(|at| (number(at), number(at + 4)));
    (begin, entries.collect())
}

fn inflate_piece(compression: TarCompression, zip: &[u8]) -> Vec<u8> {
    match compression {
        TarCompression::Zstd { .. } => decompress(zip, None, &Limits::default()).unwrap(),
        TarCompression::Gzip { .. } => {
            let mut out = Vec::new();
            let whole = [zip, &[3, 0]].concat();
            let mut decoder = flate2::read::DeflateDecoder::new(&whole[..]);
            decoder.read_to_end(&mut out).unwrap();
            out
        }
    }
}

const BOTH: [TarCompression; 2] = [
    TarCompression::Gzip { level: 6 },
    TarCompression::Zstd { level: 3 },
];

#[test]
fn compressed_shards_round_trip_whole_and_by_piece() {
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
            let (mut at, pieces) = table(compression, &zip);
            let mut joined = Vec::new();
            for (zip_bytes, raw_bytes) in &pieces {
                assert!(offsets.contains(&(joined.len() as u64)), "{at}");
                let piece = inflate_piece(compression, &zip[at..at + zip_bytes]);
                assert_eq!(piece.len(), *raw_bytes);
                joined.extend(piece);
                at += zip_bytes;
            }
            assert_eq!(joined, raw, "{compression} {group_bytes}");
            let pieces = pieces.len();
            assert_eq!(pieces == 1, group_bytes == 1 << 30, "{pieces}");
        }
    }
}

#[test]
fn damaged_or_expanding_compressed_shards_are_errors() {
    let (raw, offsets) = shard(5);
    for compression in BOTH {
        let zip = compress_shard(&raw, &offsets, compression, 4096).unwrap();
        let (begin, pieces) = table(compression, &zip);
        let table_at = begin + pieces.iter().map(|(zip_bytes, _)| zip_bytes).sum::<usize>();
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
fn compression_names_round_trip_and_invalid_are_rejected() {
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
fn sample_groups_contain_whole_samples() {
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
