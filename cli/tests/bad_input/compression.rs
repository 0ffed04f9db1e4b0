//! Compressed shards that are bombs, make false claims, or do not match their names.

use serde_json::json;
use shardmill_testing::mds::Spec;

use crate::case::{Case, TestDir, case, sweep};
use crate::sets::{shards, spec};

fn zipped(compression: &str) -> Spec {
    spec().with("compression", compression)
}

/// A case in which the compressed file of the first shard is another one; the index describes it, hash and all.
fn forged(
    name: &str,
    compression: &'static str,
    zip: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
) -> Case {
    case(name, move |dir: &TestDir| {
        let spec = zipped(compression);
        dir.forged_with(spec.clone(), |shard| {
            shard.zip = Some(zip(spec.compress(&shard.data).unwrap()))
        });
    })
}

impl Case {
    /// Expects what decompresses to fail, whether or not an index says how long the raw shard is.
    fn bad_zip(self, ids: &'static str, rebuild_ids: &'static str, file: &'static str) -> Self {
        self.fails("verify shards", 3, ids, &[file])
            .fails("cat shards ..", 3, ids, &[file])
            .fails("index rebuild shards", 3, rebuild_ids, &[file])
    }
}

/// A zstd frame: its header after the magic number, and blocks of one byte repeated 128 Ki times.
fn frame(header: &[u8], blocks: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd];
    frame.extend_from_slice(header);
    for block in 1..=blocks {
        let word = (128_u32 << 10) << 3 | 1 << 1 | u32::from(block == blocks);
        frame.extend_from_slice(&word.to_le_bytes()[..3]);
        frame.push(b'x');
    }
    frame
}

const ZSTD: &str = "shard.00000.mds.zstd";
/// A window of 8 MiB, no content size.
const PLAIN: [u8; 2] = [0x00, 13 << 3];

pub fn cases() -> Vec<Case> {
    let mut cases = zstd_cases();
    cases.extend(others());
    cases
}

fn zstd_cases() -> Vec<Case> {
    let size = |frame: &mut Vec<u8>, size: u64| {
        // Single segment, eight bytes of content size.
        let blocks = frame.split_off(6);
        frame.truncate(4);
        frame.push(0xe0);
        frame.extend_from_slice(&size.to_le_bytes());
        frame.extend(blocks);
    };
    vec![
        forged("zstd: a bomb that does not say so", "zstd:3", |_| {
            frame(&PLAIN, 20_000)
        })
        .bad_zip("compression-size", "limit-expansion", ZSTD),
        forged("zstd: a bomb that says so", "zstd:3", move |_| {
            let mut bomb = frame(&PLAIN, 20_000);
            size(&mut bomb, 20_000 << 17);
            bomb
        })
        .bad_zip("compression-size", "limit-expansion", ZSTD),
        forged("zstd: a bomb of many frames", "zstd:3", |_| {
            frame(&PLAIN, 20).repeat(1000)
        })
        .bad_zip("compression-size", "limit-expansion", ZSTD),
        forged("zstd: a window of 2 TiB", "zstd:3", |_| {
            frame(&[0x00, 31 << 3], 1)
        })
        .bad_zip("limit-window", "limit-window", ZSTD),
        forged("zstd: a content size of 2^63", "zstd:3", move |_| {
            let mut lie = frame(&PLAIN, 1);
            size(&mut lie, 1 << 63);
            lie
        })
        .bad_zip("zstd-frame-size", "zstd-frame-size", ZSTD),
        forged(
            "zstd: a content size that is too small",
            "zstd:3",
            move |_| {
                let mut lie = frame(&PLAIN, 2);
                size(&mut lie, 100);
                lie
            },
        )
        .bad_zip(
            "zstd-frame-size|compression-damaged|compression-size",
            "zstd-frame-size|compression-damaged|compression-size",
            ZSTD,
        ),
        case("zstd: a content size that is too large", move |dir| {
            dir.forged_with(zipped("zstd:3"), |shard| {
                let mut lie = frame(&PLAIN, 1);
                size(&mut lie, shard.data.len() as u64);
                // One block of 128 KiB in less space.
                shard.zip = Some(lie);
            });
        })
        .bad_zip(
            "zstd-frame-size|compression-damaged|compression-size",
            "zstd-frame-size|compression-damaged|compression-size",
            ZSTD,
        ),
        forged("zstd: an empty file", "zstd:3", |_| Vec::new()).bad_zip(
            "compression-truncated",
            "compression-truncated",
            ZSTD,
        ),
        sweep("zstd: truncated", 12, |dir, variant| {
            let spec = zipped("zstd:3");
            dir.forged_with(spec.clone(), |shard| {
                let mut zip = spec.compress(&shard.data).unwrap();
                zip.truncate(variant * (zip.len() - 1) / 11);
                shard.zip = Some(zip);
            });
        })
        .bad_zip("compression-truncated", "compression-truncated", ZSTD),
        forged("zstd: garbage behind it", "zstd:3", |zip| {
            [zip, b"garbage!".to_vec()].concat()
        })
        .bad_zip("compression-trailing", "compression-trailing", ZSTD),
        forged("zstd: one byte behind it", "zstd:3", |zip| {
            [zip, vec![0]].concat()
        })
        .bad_zip("compression-trailing", "compression-trailing", ZSTD),
        forged("zstd: a dictionary", "zstd:3", |_| {
            frame(&[0x01, 13 << 3, 7], 1)
        })
        .bad_zip("zstd-dictionary", "zstd-dictionary", ZSTD),
        forged("zstd: a skippable frame", "zstd:3", |zip| {
            [b"\x50\x2a\x4d\x18\x04\0\0\0skip".to_vec(), zip].concat()
        })
        .bad_zip("zstd-skippable", "zstd-skippable", ZSTD),
        forged("zstd: a frame of version 0.7", "zstd:3", |mut zip| {
            zip[0] = 0x27;
            zip
        })
        .bad_zip("zstd-legacy", "zstd-legacy", ZSTD),
        forged("zstd: a reserved bit", "zstd:3", |mut zip| {
            zip[4] |= 0x08;
            zip
        })
        .bad_zip("zstd-reserved", "zstd-reserved", ZSTD),
        forged("zstd: a block of a reserved type", "zstd:3", |_| {
            let mut bad = frame(&PLAIN, 1);
            bad[6] |= 3 << 1;
            bad
        })
        .bad_zip("compression-damaged", "compression-damaged", ZSTD),
        forged("zstd: another shard in it", "zstd:3", |_| {
            let spec = zipped("zstd:3");
            spec.compress(&shards(&spec)[1].data[..500]).unwrap()
        })
        .fails("verify shards", 3, "compression-size", &[ZSTD])
        .fails("cat shards ..", 3, "compression-size", &[ZSTD]),
        sweep(
            "zstd: a bit flipped where no hash tells, every 7th byte",
            shard_bytes("zstd:3").div_ceil(7),
            |dir, variant| {
                let spec = zipped("zstd:3").with("hashes", json!([]));
                dir.mds_with(spec);
                dir.edit("shards/shard.00000.mds.zstd", |zip| {
                    zip[variant * 7] ^= 1 << (variant % 8)
                });
            },
        )
        .survives("verify shards --deep", FLIPPED)
        .survives("cat shards ..", FLIPPED),
    ]
}

/// What a flipped bit in a compressed shard may look like.
const FLIPPED: &str = "compression-magic|compression-truncated|compression-trailing|compression-damaged|compression-size|\
                       zstd-frame-size|zstd-dictionary|zstd-skippable|zstd-legacy|zstd-reserved|limit-window|limit-expansion|\
                       shard-count|shard-offsets|shard-config|shard-truncated|sample-truncated|sample-trailing|sample-utf8";

fn shard_bytes(compression: &str) -> usize {
    let spec = zipped(compression).with("hashes", json!([]));
    spec.compress(&shards(&spec)[0].data).unwrap().len()
}

fn others() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, compression, file) in [
        ("gzip", "gz:6", "shard.00000.mds.gz"),
        ("bzip2", "bz2:9", "shard.00000.mds.bz2"),
        ("brotli", "br:5", "shard.00000.mds.br"),
        ("snappy", "snappy", "shard.00000.mds.snappy"),
    ] {
        let bomb = move |_| {
            let zeros = vec![0; 64 << 20];
            zipped(compression).compress(&zeros).unwrap()
        };
        // Snappy cannot be denser than 22 to 1, so that its bomb is within what may be expanded: a shard of zeros.
        let rebuilt = match name {
            "snappy" => "shard-offsets|shard-truncated|shard-config",
            _ => "limit-expansion|shard-offsets|shard-truncated|shard-config",
        };
        cases.push(
            forged(&format!("{name}: a bomb"), compression, bomb).bad_zip(
                "compression-size",
                rebuilt,
                file,
            ),
        );
        cases.push(
            sweep(&format!("{name}: truncated"), 6, move |dir, variant| {
                let spec = zipped(compression);
                dir.forged_with(spec.clone(), |shard| {
                    let mut zip = spec.compress(&shard.data).unwrap();
                    zip.truncate(variant * (zip.len() - 1) / 5);
                    shard.zip = Some(zip);
                });
            })
            .bad_zip(
                "compression-truncated|compression-damaged",
                "compression-truncated|compression-damaged",
                file,
            ),
        );
        let trailing = "compression-trailing|compression-damaged|compression-size";
        cases.push(
            forged(&format!("{name}: garbage behind it"), compression, |zip| {
                [zip, b"garbage!".to_vec()].concat()
            })
            .bad_zip(trailing, trailing, file),
        );
        // Brotli and Snappy have no magic number.
        let garbage = "compression-magic|compression-damaged|compression-truncated";
        cases.push(
            forged(&format!("{name}: garbage"), compression, |_| {
                b"\xfe\xff\xfd garbage all over".to_vec()
            })
            .bad_zip(garbage, garbage, file),
        );
        cases.push(
            sweep(
                &format!("{name}: a bit flipped where no hash tells, every 31st byte"),
                shard_bytes(compression).div_ceil(31),
                move |dir, variant| {
                    let spec = zipped(compression).with("hashes", json!([]));
                    dir.mds_with(spec);
                    dir.edit(&format!("shards/{file}"), |zip| {
                        zip[variant * 31] ^= 1 << (variant % 8)
                    });
                },
            )
            .survives("verify shards --deep", FLIPPED)
            .survives("cat shards ..", FLIPPED),
        );
    }
    cases.push(
        forged("gzip: a checksum that is wrong", "gz:6", |mut zip| {
            let at = zip.len() - 6;
            zip[at] ^= 1;
            zip
        })
        .bad_zip(
            "compression-damaged",
            "compression-damaged",
            "shard.00000.mds.gz",
        ),
    );
    // 4 GiB in a length of five bytes.
    cases.push(
        forged("snappy: a length of 4 GiB", "snappy", |_| {
            b"\xff\xff\xff\xff\x0f\x00x".to_vec()
        })
        .bad_zip(
            "compression-truncated|compression-size",
            "compression-truncated|limit-expansion",
            "shard.00000.mds.snappy",
        ),
    );
    cases.push(
        forged("snappy: a length that is too small", "snappy", |mut zip| {
            zip[0] = 0x80;
            zip[1] = 0x01;
            zip
        })
        .bad_zip(
            "compression-size|compression-damaged",
            "compression-size|compression-damaged",
            "shard.00000.mds.snappy",
        ),
    );
    cases.push(
        forged("gzip in a file called zstd", "zstd:3", |_| {
            zipped("gz:6")
                .compress(&shards(&zipped("zstd:3"))[0].data)
                .unwrap()
        })
        .bad_zip("compression-magic", "compression-magic", ZSTD),
    );
    cases.push(
        forged("zstd in a file called gz", "gz:6", |_| {
            zipped("zstd:3")
                .compress(&shards(&zipped("gz:6"))[0].data)
                .unwrap()
        })
        .bad_zip(
            "compression-magic",
            "compression-magic",
            "shard.00000.mds.gz",
        ),
    );
    cases.push(
        forged("not compressed at all", "zstd:3", |_| {
            shards(&zipped("zstd:3"))[0].data.clone()
        })
        .bad_zip("compression-magic", "compression-magic", ZSTD),
    );
    cases
}
