//! Shards that do not match their index, or that are not valid shards.

use std::fs;

use serde_json::{Value, json};
use shardmill_testing::mds::{RawShard, Spec, dialect, word};

use crate::case::{Case, TestDir, case, sweep};
use crate::sets::{SAMPLES, get_word, header, set_word, shards, spec};

/// The file that is damaged.
const SHARD: &str = "shard.00000.mds";

pub fn cases() -> Vec<Case> {
    let mut cases = files();
    cases.extend(headers());
    cases.extend(samples());
    cases.extend(lines());
    cases.extend(rebuilds());
    cases
}

/// A case in which the first shard is changed. The index, including its hashes, describes the changed bytes.
fn forged(name: &str, change: impl Fn(&mut RawShard) + Send + Sync + 'static) -> Case {
    case(name, move |dir: &TestDir| dir.forged(&change))
}

impl Case {
    /// Expects commands that verify or read samples to fail.
    fn unsound(self, ids: &'static str, says: &[&'static str]) -> Self {
        self.fails("verify shards", 3, ids, says)
            .fails("verify shards --deep", 3, ids, says)
            .fails("cat shards ..", 3, ids, says)
    }

    /// Expects commands that decode samples to fail.
    fn undecodable(self, ids: &'static str, says: &[&'static str]) -> Self {
        self.fails("verify shards --deep", 3, ids, says)
            .fails("cat shards ..", 3, ids, says)
    }
}

/// A case in which the first shard is changed, but not its entry in the index.
fn spoilt(name: &str, change: impl Fn(&TestDir) + Send + Sync + 'static) -> Case {
    case(name, move |dir: &TestDir| {
        dir.mds();
        change(dir);
    })
}

fn files() -> Vec<Case> {
    let bytes = shards(&spec())[0].data.len();
    let unhashed = shards(&spec().with("hashes", json!([])))[0].data.len();
    vec![
        spoilt("missing", |dir| dir.remove("shards/shard.00000.mds")).unsound("shard-missing", &[SHARD, "samples 0 to 19"]),
        spoilt("empty", |dir| dir.write("shards/shard.00000.mds", "")).unsound("shard-length", &[SHARD]),
        spoilt("short by one byte", |dir| dir.edit("shards/shard.00000.mds", |data| data.truncate(data.len() - 1)))
            .unsound("shard-length", &[SHARD]),
        spoilt("long by one byte", |dir| dir.edit("shards/shard.00000.mds", |data| data.push(0))).unsound("shard-length", &[SHARD]),
        spoilt("a directory", |dir| {
            dir.remove("shards/shard.00000.mds");
            dir.write("shards/shard.00000.mds/x", "");
        })
        .unsound("path-not-a-file", &[SHARD, "directory"]),
        spoilt("a named pipe", |dir| {
            dir.remove("shards/shard.00000.mds");
            dir.fifo("shards/shard.00000.mds");
        })
        .unsound("path-not-a-file", &[SHARD, "pipe"]),
        spoilt("a symbolic link", |dir| {
            fs::rename(dir.at("shards/shard.00000.mds"), dir.at("real.mds")).unwrap();
            dir.link("../real.mds", "shards/shard.00000.mds");
        })
        .unsound("path-symlink", &[SHARD]),
        spoilt("the other shard's bytes", |dir| dir.write("shards/shard.00000.mds", dir.read("shards/shard.00001.mds")))
            .fails("verify shards", 3, "hash-mismatch|shard-length", &[SHARD]),
        sweep("a bit flipped, every 97th byte", bytes.div_ceil(97), |dir, variant| {
            dir.mds();
            dir.edit("shards/shard.00000.mds", |data| data[variant * 97] ^= 1 << (variant % 8));
        })
        .fails("verify shards", 3, "hash-mismatch", &[SHARD, "sha256"]),
        sweep("a bit flipped where no hash tells, every 13th byte", unhashed.div_ceil(13), |dir, variant| {
            dir.mds_with(spec().with("hashes", json!([])));
            dir.edit("shards/shard.00000.mds", |data| data[variant * 13] ^= 1 << (variant % 8));
        })
        .survives("verify shards --deep", "shard-count|shard-offsets|shard-config|shard-truncated|sample-truncated|sample-trailing|sample-utf8")
        .survives("cat shards ..", "shard-count|shard-offsets|shard-config|shard-truncated|sample-truncated|sample-trailing|sample-utf8"),
        case("a raw copy that has another length beside the compressed file", |dir| {
            dir.zipped("zstd:3");
            dir.write("shards/shard.00000.mds", "short");
        })
        .fails("verify shards", 3, "shard-length", &[SHARD]),
    ]
}

/// Counts, offsets and configs in the header.
fn headers() -> Vec<Case> {
    let count =
        |name: &str, count: u64| forged(name, move |shard| set_word(&mut shard.data, 0, count));
    let config = |name: &str, change: fn(Spec) -> Spec| {
        // The header of another config, with the samples of this one.
        forged(name, move |shard| {
            let (start, first) = header(&shard.data);
            let config = dialect(&Value::Object(change(spec()).config)).into_bytes();
            let moved = config.len() as i64 - (first - start) as i64;
            let mut data = shard.data[..start].to_vec();
            for sample in 0..=SAMPLES as usize {
                let offset = get_word(&data, 1 + sample) as i64 + moved;
                set_word(&mut data, 1 + sample, offset as u64);
            }
            data.extend_from_slice(&config);
            data.extend_from_slice(&shard.data[first..]);
            shard.data = data;
        })
    };
    vec![
        count("one sample more in the header", SAMPLES + 1)
            .unsound("shard-count", &[SHARD, "21", "20"]),
        count("one sample less in the header", SAMPLES - 1)
            .unsound("shard-count", &[SHARD, "19", "20"]),
        count("no samples in the header", 0).unsound("shard-count", &[SHARD]),
        count(
            "all the samples that 32 bits count in the header",
            u64::from(u32::MAX),
        )
        .unsound("shard-count", &[SHARD, "4294967295"]),
        forged(
            "all the samples that 32 bits count, in the index too",
            |shard| {
                shard.samples = u64::from(u32::MAX);
                set_word(&mut shard.data, 0, shard.samples);
            },
        )
        .unsound("shard-truncated", &[SHARD]),
        forged("one sample more, in the index too", |shard| {
            shard.samples += 1;
            set_word(&mut shard.data, 0, shard.samples);
        })
        .unsound("shard-offsets|shard-config", &[SHARD]),
        forged("three bytes", |shard| shard.data.truncate(3)).unsound("shard-truncated", &[SHARD]),
        forged("ends within the offsets", |shard| shard.data.truncate(40))
            .unsound("shard-truncated", &[SHARD]),
        forged("ends within the config", |shard| shard.data.truncate(120))
            .unsound("shard-truncated|shard-offsets", &[SHARD]),
        forged("offsets that go back", |shard| {
            let (a, b) = (get_word(&shard.data, 5), get_word(&shard.data, 6));
            set_word(&mut shard.data, 5, b);
            set_word(&mut shard.data, 6, a);
        })
        .unsound("shard-offsets", &[SHARD, "sample 4"]),
        forged("an offset beyond the end", |shard| {
            set_word(&mut shard.data, 6, u64::from(u32::MAX))
        })
        .unsound("shard-offsets", &[SHARD]),
        forged("an offset of 0", |shard| set_word(&mut shard.data, 6, 0))
            .unsound("shard-offsets", &[SHARD]),
        forged("a first sample within the offsets", |shard| {
            set_word(&mut shard.data, 1, 20)
        })
        .unsound("shard-offsets", &[SHARD]),
        forged("a first sample within the config", |shard| {
            let first = get_word(&shard.data, 1);
            set_word(&mut shard.data, 1, first - 1);
        })
        .unsound("shard-config|shard-offsets", &[SHARD]),
        forged("a first sample beyond the end", |shard| {
            set_word(&mut shard.data, 1, u64::from(u32::MAX))
        })
        .unsound("shard-offsets|shard-truncated", &[SHARD]),
        forged("bytes after the last sample", |shard| {
            shard.data.extend_from_slice(b"more")
        })
        .unsound("shard-offsets", &[SHARD]),
        forged("ends within the last sample", |shard| {
            shard.data.truncate(shard.data.len() - 3)
        })
        .unsound("shard-offsets", &[SHARD]),
        config("another size limit in the header", |spec| {
            spec.with("size_limit", json!(1000))
        })
        .unsound("shard-config", &[SHARD, "size_limit", "1000"]),
        config("other hashes in the header", |spec| {
            spec.with("hashes", json!(["md5"]))
        })
        .unsound("shard-config", &[SHARD, "md5"]),
        config("another compression in the header", |spec| {
            spec.with("compression", "zstd:3")
        })
        .unsound("shard-config", &[SHARD, "zstd:3"]),
        config("other columns in the header", |spec| {
            spec.with(
                "column_names",
                json!(["blob", "id", "nome", "pair", "score"]),
            )
        })
        .unsound("shard-config", &[SHARD, "nome"]),
        config("the header of another format", |spec| {
            spec.with("format", "xsv")
        })
        .unsound("shard-config|shard-format", &[SHARD]),
        config("version 3 in the header", |spec| spec.with("version", 3))
            .unsound("index-version|shard-config", &[SHARD, "3"]),
        forged("a config that is no JSON", |shard| {
            let (start, _) = header(&shard.data);
            shard.data[start] = b'[';
        })
        .unsound("shard-config", &[SHARD]),
        forged("a config that is not UTF-8", |shard| {
            let (start, _) = header(&shard.data);
            shard.data[start + 3] = 0xff;
        })
        .unsound("shard-config", &[SHARD]),
    ]
}

/// Samples that do not match their columns.
fn samples() -> Vec<Case> {
    // A sample begins with the lengths of `blob` and `name`; then come blob, id, name, pair, score.
    let sample = |name: &str, change: fn(&mut [u8])| {
        forged(name, move |shard| {
            let begin = get_word(&shard.data, 1 + 7) as usize;
            let end = get_word(&shard.data, 1 + 8) as usize;
            change(&mut shard.data[begin..end]);
        })
    };
    vec![
        sample("a value longer than its sample", |sample| {
            sample[..4].copy_from_slice(&word(200))
        })
        .undecodable("sample-truncated", &[SHARD, "sample 7", "blob"]),
        sample("a value of 4 GiB", |sample| {
            sample[4..8].copy_from_slice(&word(u64::from(u32::MAX)))
        })
        .undecodable("sample-truncated", &[SHARD, "sample 7", "name"]),
        sample("a value shorter than it is", |sample| {
            sample[..4].copy_from_slice(&word(0))
        })
        .undecodable("sample-trailing", &[SHARD, "sample 7"]),
        sample("text that is not UTF-8", |sample| {
            let length = u32::from_le_bytes(sample[..4].try_into().unwrap()) as usize;
            sample[8 + length + 8] = 0xff;
        })
        .undecodable("sample-utf8", &[SHARD, "sample 7", "name"]),
        forged("samples without bytes", |shard| {
            let first = get_word(&shard.data, 1);
            for sample in 1..=SAMPLES as usize {
                set_word(&mut shard.data, 1 + sample, first);
            }
            shard.data.truncate(first as usize);
        })
        .undecodable("sample-truncated", &[SHARD, "sample 0"]),
        case("a sample above the limit", TestDir::mds)
            .fails(
                "verify shards --safety-limit sample-bytes=20",
                3,
                "limit-sample-bytes",
                &[SHARD],
            )
            .fails(
                "cat shards .. --safety-limit sample-bytes=20",
                3,
                "limit-sample-bytes",
                &[SHARD],
            ),
        case("a shard above the limit", TestDir::mds).fails(
            "verify shards --safety-limit shard-bytes=1000",
            3,
            "limit-shard-bytes",
            &["shard 0"],
        ),
    ]
}

/// The line formats and their meta files.
fn lines() -> Vec<Case> {
    const JSON: &str = "shard.00000.json";
    const CSV: &str = "shard.00000.csv";
    let json_meta = |name: &str, change: fn(&mut Vec<u8>)| {
        case(name, move |dir: &TestDir| {
            dir.forged_json(|shard| change(shard.meta.as_mut().unwrap()))
        })
    };
    // Replaces the fourth line by another one, padded with spaces, which may follow an object.
    let json_line = |name: &str, line: &'static [u8]| {
        case(name, move |dir: &TestDir| {
            dir.forged_json(|shard| {
                let begin = get_word(shard.meta.as_ref().unwrap(), 1 + 3) as usize;
                let end = get_word(shard.meta.as_ref().unwrap(), 1 + 4) as usize - 1;
                shard.data[begin..end].fill(b' ');
                shard.data[begin..begin + line.len()].copy_from_slice(line);
                assert_eq!(shard.data[end], b'\n');
            });
        })
    };
    let csv_line = |name: &str, line: &'static [u8]| {
        case(name, move |dir: &TestDir| {
            dir.forged_csv(|shard| {
                let begin = get_word(shard.meta.as_ref().unwrap(), 1 + 3) as usize;
                shard.data[begin..begin + line.len()].copy_from_slice(line);
            });
        })
    };
    vec![
        case("no meta file", |dir| {
            dir.json_lines();
            dir.remove("shards/shard.00000.json.meta");
        })
        .unsound("shard-missing", &["shard.00000.json.meta"]),
        case("a short meta file", |dir| {
            dir.json_lines();
            dir.edit("shards/shard.00000.json.meta", |meta| meta.truncate(20));
        })
        .unsound("shard-length", &["shard.00000.json.meta"]),
        json_meta("a meta file of two bytes", |meta| meta.truncate(2))
            .unsound("shard-truncated", &[JSON]),
        json_meta("a meta file with one line more", |meta| {
            set_word(meta, 0, SAMPLES + 1)
        })
        .unsound("shard-count", &[JSON, "21"]),
        json_meta("a meta file whose offsets go back", |meta| {
            let (a, b) = (get_word(meta, 5), get_word(meta, 6));
            set_word(meta, 5, b);
            set_word(meta, 6, a);
        })
        .unsound("shard-offsets", &[JSON, "sample 4"]),
        json_meta("a meta file that begins in the middle", |meta| {
            set_word(meta, 1, 3)
        })
        .unsound("shard-offsets", &[JSON]),
        json_meta("a meta file with an offset within a line", |meta| {
            let offset = get_word(meta, 4);
            set_word(meta, 4, offset - 1);
        })
        .unsound("sample-newline", &[JSON, "sample 2"]),
        json_line(
            "a line that is no JSON",
            b"{\"id\": 3, \"name\": \"row 3\"]",
        )
        .undecodable("sample-line|json-syntax", &[JSON, "sample 3"]),
        json_line("a line that is a list", b"[\"id\", 3, \"name\", 3]")
            .undecodable("sample-line|json-syntax", &[JSON, "sample 3"]),
        json_line("a line without a column", b"{\"id\": 3}")
            .undecodable("sample-columns", &[JSON, "sample 3", "name"]),
        json_line(
            "a line with a column that is not there",
            b"{\"id\": 3, \"nome\": \"row 3\"}",
        )
        .undecodable("sample-columns", &[JSON, "sample 3"]),
        json_line(
            "a line with a column twice",
            b"{\"id\":3,\"id\":3,\"name\":\"\"}",
        )
        .undecodable("sample-columns", &[JSON, "sample 3", "`id` twice"]),
        json_line(
            "a line that is not UTF-8",
            b"{\"id\": 3, \"name\": \"row \xff\"}",
        )
        .undecodable("sample-line|json-syntax", &[JSON, "sample 3"]),
        case("another header line", |dir| {
            dir.forged_csv(|shard| shard.data[..7].copy_from_slice(b"id,nome"))
        })
        .unsound("shard-header", &[CSV, "id,nome", "id,name"]),
        csv_line("a line with a value too few", b"3 row 3\n")
            .undecodable("sample-columns|sample-line", &[CSV, "sample 3"]),
        csv_line("a line with a value too many", b"3,row,3\n")
            .undecodable("sample-columns|sample-line", &[CSV, "sample 3"]),
        csv_line("a number that is none", b"x,row 3\n")
            .undecodable("sample-line|sample-columns", &[CSV, "sample 3"]),
        csv_line("a line of CSV that is not UTF-8", b"3,row \xff\n")
            .undecodable("sample-line", &[CSV, "sample 3"]),
    ]
}

/// Directories from which no index can be rebuilt.
fn rebuilds() -> Vec<Case> {
    const REBUILD: &str = "index rebuild shards";
    vec![
        case("rebuild: no shards", |dir| {
            dir.write("shards/readme.txt", "none")
        })
        .fails(REBUILD, 2, "index-no-shards", &["shards"]),
        case("rebuild: a gap", |dir| {
            dir.mds();
            dir.remove("shards/index.json");
            fs::rename(
                dir.at("shards/shard.00001.mds"),
                dir.at("shards/shard.00002.mds"),
            )
            .unwrap();
        })
        .fails(REBUILD, 3, "index-gap", &["shards", "shard 1"]),
        case("rebuild: an index that differs", |dir| {
            dir.mds();
            dir.set("size_limit", json!(1));
        })
        .fails(REBUILD, 4, "index-exists", &["shards/index.json"]),
        case("rebuild: two forms of a shard", |dir| {
            dir.zipped("zstd:3");
            dir.write(
                "shards/shard.00000.mds.gz",
                dir.read("shards/shard.00000.mds.zstd"),
            );
        })
        .fails(REBUILD, 3, "shard-ambiguous", &["shard.00000.mds"]),
        case(
            "rebuild: stored in another form than the header says",
            |dir| {
                dir.mds_with(spec().with("compression", "zstd:3"));
                for (number, shard) in shards(&spec().with("compression", "zstd:3"))
                    .iter()
                    .enumerate()
                {
                    dir.remove(&format!("shards/shard.{number:05}.mds.zstd"));
                    dir.write(&format!("shards/shard.{number:05}.mds"), &shard.data);
                }
            },
        )
        .fails(REBUILD, 3, "shard-stored-form", &["shard.00000.mds"]),
        case("rebuild: no meta file", |dir| {
            dir.json_lines();
            dir.remove("shards/shard.00001.json.meta");
        })
        .fails(REBUILD, 3, "shard-missing", &["shard.00001.json"]),
        case("rebuild: the header of another format", |dir| {
            dir.mds();
            for number in ["00000", "00001"] {
                let spec = Spec::mds(&[("x", "int", Some(8))]).with("format", "mds");
                let data = spec.shard(&[vec![0; 8]]).data;
                dir.write(&format!("shards/shard.{number}.json.meta"), &data);
                dir.write(&format!("shards/shard.{number}.json"), vec![0; 8]);
                dir.remove(&format!("shards/shard.{number}.mds"));
            }
        })
        .fails(
            REBUILD,
            3,
            "shard-format|shard-offsets|shard-config",
            &["shard.00000.json"],
        ),
        case("rebuild: truncated", |dir| {
            dir.mds();
            dir.edit("shards/shard.00001.mds", |data| data.truncate(100));
        })
        .fails(
            REBUILD,
            3,
            "shard-truncated|shard-offsets",
            &["shard.00001.mds"],
        ),
        case("rebuild: a shard of zeros", |dir| {
            dir.mds();
            dir.write("shards/shard.00001.mds", [0; 4096]);
        })
        .fails(
            REBUILD,
            3,
            "shard-offsets|shard-config|shard-truncated",
            &["shard.00001.mds"],
        ),
        case("rebuild: a shard of 0xff", |dir| {
            dir.mds();
            dir.write("shards/shard.00001.mds", [0xff; 4096]);
        })
        .fails(REBUILD, 3, "shard-truncated", &["shard.00001.mds"]),
        case("rebuild: a named pipe", |dir| {
            dir.mds();
            dir.remove("shards/shard.00001.mds");
            dir.fifo("shards/shard.00001.mds");
        })
        .fails(REBUILD, 3, "path-not-a-file|index-gap", &["shards"]),
        case("merge: nothing to merge", |dir| {
            dir.write("shards/a/readme.txt", "none")
        })
        .fails("index merge shards", 2, "merge-nothing", &["shards"]),
        case("merge: a broken index below", |dir| {
            dir.mds();
            fs::create_dir(dir.at("all")).unwrap();
            fs::rename(dir.at("shards"), dir.at("all/a")).unwrap();
            dir.write("all/b/index.json", "{");
        })
        .fails(
            "index merge all",
            3,
            "index-truncated",
            &["all/b/index.json"],
        ),
        case("merge: a dataset outside", TestDir::mds).fails(
            "index merge shards --out elsewhere",
            2,
            "merge-outside|not-found",
            &[],
        ),
    ]
}
