//! Tar files as sources and under `verify`, and samples that cannot become tar files.

use shardmill_webdataset::{Profile, ShardBuilder, TarCompression, compress_shard};

use crate::case::{Case, TestDir, case, sweep};

const BLOCK: usize = 512;

/// The end of the archive of [`shard`]: three samples of two members, each with one block of content.
const END: usize = 3 * 2 * 2 * BLOCK;

/// Damage to the structure of an archive.
const DAMAGE: &str =
    "tar-end|tar-short|tar-torn|tar-magic|tar-checksum|tar-number|tar-size|sample-torn";

fn shard() -> Vec<u8> {
    let mut shard = ShardBuilder::new(Profile::default());
    for sample in 0..3 {
        let fields: [(&str, &[u8]); 2] = [("cls", b"7"), ("txt", b"some text")];
        shard.push(&format!("{sample:03}"), &fields).unwrap();
    }
    shard.finish().0
}

/// Changes the header of a member, and corrects its checksum.
fn header(bytes: &mut [u8], member: usize, change: impl FnOnce(&mut [u8])) {
    let at = member * 2 * BLOCK;
    let head = &mut bytes[at..at + BLOCK];
    change(head);
    head[148..156].fill(b' ');
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn rename(bytes: &mut [u8], member: usize, name: &str) {
    header(bytes, member, |head| {
        head[..100].fill(0);
        head[..name.len()].copy_from_slice(name.as_bytes());
    });
}

fn damaged(name: &str, change: impl Fn(&mut Vec<u8>) + Send + Sync + 'static) -> Case {
    case(name, move |dir| {
        let mut bytes = shard();
        change(&mut bytes);
        dir.write("in/0.tar", bytes);
    })
}

/// Expects every command that reads tar files to report the damage.
fn found(case: Case, ids: &'static str) -> Case {
    case.fails("verify in", 3, ids, &["0.tar"])
        .unconvertible("", 3, ids, &["0.tar"])
        .unconvertible("--to webdataset", 3, ids, &["0.tar"])
        .fails("index export in --for open_clip", 3, ids, &["0.tar"])
}

/// A dataset `shards` of tar files, with an index.
fn indexed(dir: &TestDir, options: &str) {
    dir.write("in/0.tar", shard());
    dir.ok(&format!("convert in shards --to webdataset {options}"));
}

fn table(dir: &TestDir, text: &str) {
    dir.write("in/rows.csv", text);
}

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        found(
            sweep("a cut at a block", END / BLOCK + 2, |dir, blocks| {
                dir.write("in/0.tar", &shard()[..blocks * BLOCK]);
            }),
            DAMAGE,
        ),
        found(
            sweep("a cut within a block", 4, |dir, variant| {
                let at = [1, 100, BLOCK + 20, END - 300][variant];
                dir.write("in/0.tar", &shard()[..at]);
            }),
            DAMAGE,
        ),
        sweep("a dataset whose shard is cut", 20, |dir, blocks| {
            indexed(dir, "");
            dir.edit("shards/shard-000000.tar", |bytes| bytes.truncate(blocks * BLOCK));
        })
        .fails("verify shards", 3, "shard-length|hash-mismatch", &["shard-000000.tar"])
        .fails("convert shards out", 3, "shard-length", &["shard-000000.tar"]),
        sweep("a dataset with a bit flipped", 24, |dir, variant| {
            indexed(dir, "");
            dir.edit("shards/shard-000000.tar", |bytes| {
                let at = variant * 311 % bytes.len();
                bytes[at] ^= 1 << (variant % 8);
            });
        })
        .fails("verify shards", 3, "hash-mismatch", &["shard-000000.tar", "sha256"]),
        case("a dataset whose offsets lie", |dir| {
            indexed(dir, "--hashes none");
            dir.edit("shards/shard-000000.tar.idx", |bytes| bytes[9] ^= 2);
        })
        .fails("verify shards", 3, "tar-offsets", &["shard-000000.tar.idx"]),
        case("a dataset whose offsets are gone", |dir| {
            indexed(dir, "");
            dir.remove("shards/shard-000000.tar.idx");
        })
        .fails("verify shards", 3, "file-missing|not-found|file-not-found|storage-not-found|io-not-found", &["shard-000000.tar.idx"]),
        case("a dataset whose shard is gone", |dir| {
            indexed(dir, "");
            dir.remove("shards/shard-000000.tar");
        })
        .fails("verify shards", 3, "file-missing|not-found|file-not-found|storage-not-found|io-not-found", &["shard-000000.tar"]),
        sweep("a compressed dataset that is damaged", 2, |dir, variant| {
            indexed(dir, &format!("--compression {} --hashes none", ["zstd:3", "gz:6"][variant]));
            let name = ["shards/shard-000000.tar.zst", "shards/shard-000000.tar.gz"][variant];
            dir.edit(name, |bytes| bytes[30] ^= 0x55);
        })
        .fails(
            "verify shards",
            3,
            "compression-damaged|compression-size|compression-truncated|tar-checksum|tar-magic|tar-number|shard-samples|shard-fields|sample-torn|tar-short",
            &["shard-000000.tar"],
        ),
        case("a zstd file that is cut", |dir| {
            let raw = shard();
            let offsets = [0, 2048, 4096, 6144];
            let zstd = TarCompression::Zstd { level: 1 };
            let mut zip = compress_shard(&raw, &offsets, zstd, 2048).unwrap();
            zip.truncate(zip.len() / 2);
            dir.write("in/0.tar.zst", zip);
        })
        .fails("verify in", 3, "compression-truncated|compression-damaged", &["0.tar.zst"])
        .unconvertible("", 3, "compression-truncated|compression-damaged", &["0.tar.zst"]),
        case("an index of another version", |dir| {
            dir.write("shards/index.json", "{\"format\": \"webdataset\", \"shards\": [], \"version\": 9}");
        })
        .fails("verify shards", 3, "index-version", &["index.json"])
        .fails("convert shards out", 3, "index-version", &["index.json"]),
        case("an index that names a file elsewhere", |dir| {
            indexed(dir, "");
            dir.edit("shards/index.json", |bytes| {
                let text = String::from_utf8(bytes.clone()).unwrap();
                *bytes = text.replace("shard-000000.tar", "../in/0.tar").into();
            });
        })
        .fails("verify shards", 3, "path-traversal|name-traversal|index-name", &["index.json"]),
        case("a folder without tar files", |dir| dir.write("in/a.txt", "x"))
            .fails("index export in --for wids", 2, "index-missing", &["in"])
            .unconvertible("--from webdataset", 2, "index-missing", &["in"]),
        case("tar files without a sample", |dir| dir.write("in/0.tar", [0; 1024]))
            .unconvertible("", 2, "config-no-columns", &["0.tar"]),
    ];
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, &str, Change); 14] = [
        (
            "no magic of a tar file",
            "tar-magic|tar-checksum",
            |bytes| {
                header(bytes, 0, |head| head[257..265].copy_from_slice(b"nothing!"));
            },
        ),
        ("a checksum that is wrong", "tar-checksum", |bytes| {
            bytes[150] ^= 1
        }),
        ("a size that lies", "tar-short|sample-torn", |bytes| {
            header(bytes, 1, |head| {
                head[124..135].copy_from_slice(b"77777777777")
            });
        }),
        (
            "a size that is no number",
            "tar-number|sample-torn",
            |bytes| {
                header(bytes, 1, |head| {
                    head[124..135].copy_from_slice(b"some number")
                });
            },
        ),
        ("a symbolic link", "tar-kind|tar-size", |bytes| {
            header(bytes, 2, |head| {
                head[124..135].copy_from_slice(b"00000000000");
                head[156] = b'2';
            });
            // Its content is removed as well.
            bytes.drain(5 * BLOCK..6 * BLOCK);
            bytes.extend([0; BLOCK]);
        }),
        ("a device", "tar-kind|tar-size", |bytes| {
            header(bytes, 2, |head| {
                head[124..135].copy_from_slice(b"00000000000");
                head[156] = b'3';
            });
            bytes.drain(5 * BLOCK..6 * BLOCK);
            bytes.extend([0; BLOCK]);
        }),
        ("a sparse file", "tar-kind|sample-torn", |bytes| {
            header(bytes, 2, |head| head[156] = b'S')
        }),
        ("a name that leaves the folder", "tar-name", |bytes| {
            rename(bytes, 2, "../001.cls")
        }),
        ("a name from the root", "tar-name", |bytes| {
            rename(bytes, 2, "/001.cls")
        }),
        ("something behind the end", "tar-trailing", |bytes| {
            let last = bytes.len() - 1;
            bytes[last] = 1;
        }),
        ("a field twice", "tar-duplicate", |bytes| {
            rename(bytes, 3, "001.cls")
        }),
        ("a field twice but for capitals", "tar-duplicate", |bytes| {
            rename(bytes, 3, "001.CLS")
        }),
        (
            "a long name that never comes",
            "tar-extension|tar-short|tar-end|sample-torn|tar-magic",
            |bytes| {
                header(bytes, 5, |head| head[156] = b'L');
            },
        ),
        (
            "an extension header of garbage",
            "tar-extension|sample-torn",
            |bytes| {
                header(bytes, 4, |head| head[156] = b'x');
            },
        ),
    ];
    for (name, ids, change) in changes {
        cases.push(
            damaged(name, change)
                .fails("verify in", 3, ids, &["0.tar"])
                .unconvertible("", 3, ids, &["0.tar"]),
        );
    }
    cases.push(
        damaged("a sample in two runs", |bytes| rename(bytes, 5, "000.jpg"))
            .fails("verify in", 3, "tar-split", &["0.tar", "000"])
            .unconvertible("", 3, "tar-split", &["0.tar", "000"]),
    );
    cases.extend([
        case("a key twice", |dir| table(dir, "id,txt\na,x\nb,y\na,z\n")).unconvertible(
            "--to webdataset --key-column id",
            3,
            "sample-key-twice",
            &["column id", "row 2", "`a`"],
        ),
        case("a key with a dot", |dir| table(dir, "id,txt\na,x\na.b,y\n")).unconvertible(
            "--to webdataset --key-column id",
            3,
            "sample-key",
            &["column id", "row 1", "a.b"],
        ),
        case("a key that leaves the shard", |dir| {
            table(dir, "id,txt\n../a,x\n")
        })
        .unconvertible(
            "--to webdataset --key-column id",
            3,
            "sample-key",
            &["column id", "row 0"],
        ),
        case("a key that is missing", |dir| {
            table(dir, "id,txt\na,x\n,y\n")
        })
        .unconvertible(
            "--to webdataset --key-column id",
            3,
            "value-null",
            &["column id", "row 1"],
        ),
        case("a key of more than 100 bytes", |dir| {
            table(dir, &format!("id,txt\n{},x\n", "k".repeat(120)));
        })
        .unconvertible(
            "--to webdataset --key-column id",
            3,
            "tar-long-name",
            &["row 0"],
        ),
        case("a key that is a fraction", |dir| {
            table(dir, "id,txt\n0.5,x\n")
        })
        .unconvertible(
            "--to webdataset --key-column id",
            3,
            "type-unsupported",
            &["column id"],
        ),
        case("a key column that is not there", |dir| {
            table(dir, "id,txt\na,x\n")
        })
        .unconvertible(
            "--to webdataset --key-column no",
            2,
            "config-key",
            &["--key-column", "no"],
        ),
        case("a field with capitals", |dir| table(dir, "id,Txt\na,x\n")).unconvertible(
            "--to webdataset",
            2,
            "config-column",
            &["--column", "Txt"],
        ),
        case("an encoding that fields do not have", |dir| {
            table(dir, "id,txt\na,x\n")
        })
        .unconvertible(
            "--to webdataset --column txt:jpeg",
            2,
            "config-column",
            &["txt", "npy"],
        ),
        case("a compression that tar files do not have", |dir| {
            table(dir, "id,txt\na,x\n")
        })
        .unconvertible(
            "--to webdataset --compression br:3",
            2,
            "config-compression",
            &["br:3"],
        ),
        case("names of shards without a number", |dir| {
            table(dir, "id,txt\na,x\n")
        })
        .unconvertible(
            "--to webdataset --shard-pattern a.tar",
            2,
            "config-shard-pattern",
            &["a.tar"],
        ),
        case("an index for a reader that has none", |dir| {
            table(dir, "id,txt\na,x\n")
        })
        .unconvertible(
            "--to webdataset --index-for hf",
            2,
            "config-index-for",
            &["hf"],
        ),
        case("an index for a reader of raw shards", |dir| {
            table(dir, "id,txt\na,x\n")
        })
        .unconvertible(
            "--to webdataset --index-for dali --compression zstd",
            2,
            "config-index-for",
            &["dali"],
        ),
        case("options of tar files for MDS", |dir| {
            table(dir, "id,txt\na,x\n")
        })
        .unconvertible("--index-for wids", 2, "config-index-for", &["mds"])
        .unconvertible(
            "--shard-pattern %d.tar",
            2,
            "config-shard-pattern",
            &["mds"],
        )
        .unconvertible("--nulls omit", 2, "config-nulls", &["mds"]),
        case("a pattern of braces without partners", |dir| {
            dir.write("in/0.tar", shard())
        })
        .fails(
            "inspect --shards in/{0..1.tar",
            2,
            "pattern-braces",
            &["in/{0..1.tar"],
        )
        .fails(
            "convert in/{0..1.tar out",
            2,
            "pattern-braces",
            &["in/{0..1.tar"],
        ),
        case("a pattern that stands for too much", |dir| {
            dir.write("in/0.tar", shard())
        })
        .fails("cat in/{0..9999999}.tar", 2, "pattern-size", &["1000000"])
        .fails(
            "inspect --shards in/{0..99999}{0..99999}{0..99999}.tar",
            2,
            "pattern-size",
            &["1000000"],
        ),
        case("a pattern that names a shard twice", |dir| {
            dir.write("in/0.tar", shard())
        })
        .fails("verify in/{0,0}.tar", 2, "pattern-names", &["0.tar"]),
        case("a pattern that names what is not there", |dir| {
            dir.write("in/0.tar", shard())
        })
        .fails("cat in/{0..1}.tar", 2, "not-found", &["in/1.tar"])
        .fails("bench in/{0..1}.tar", 2, "shard-missing", &["in/1.tar"]),
        case("a shard compressed and not", |dir| {
            dir.write("in/0.tar", shard());
            dir.write("in/0.tar.gz", "");
        })
        .fails("index rebuild in", 4, "shard-ambiguous", &["in/0.tar"]),
        case("an unknown reader", |dir| dir.write("in/0.tar", shard())).fails(
            "verify in --for absent",
            2,
            "config-for",
            &["absent"],
        ),
    ]);
    cases
}
