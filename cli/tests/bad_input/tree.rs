//! File trees with entries that are not allowed, and destinations that are occupied.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use crate::case::{Case, TestDir, case};

pub fn cases() -> Vec<Case> {
    let mut cases = trees();
    cases.extend(destinations());
    cases
}

/// A tree `in` of two samples with two files each.
fn good(dir: &TestDir) {
    for name in ["a/1", "a/2"] {
        dir.write(&format!("in/{name}.txt"), "text");
        dir.write(&format!("in/{name}.bin"), "bytes");
    }
}

/// A case in which something is added to a valid tree.
fn with(name: &str, change: impl Fn(&TestDir) + Send + Sync + 'static) -> Case {
    case(name, move |dir: &TestDir| {
        good(dir);
        change(dir);
    })
}

fn trees() -> Vec<Case> {
    vec![
        with("a named pipe", |dir| dir.fifo("in/a/3.txt")).unconvertible(
            "",
            2,
            "tree-special",
            &["in/a/3.txt", "pipe"],
        ),
        with("a socket", |dir| {
            drop(std::os::unix::net::UnixListener::bind(dir.at("in/s")).unwrap())
        })
        .unconvertible("", 2, "tree-special", &["in/s", "socket"]),
        with("a symbolic link", |dir| dir.link("1.txt", "in/a/3.txt")).unconvertible(
            "",
            2,
            "tree-symlink",
            &["in/a/3.txt", "--follow-links"],
        ),
        with("a link to a directory", |dir| dir.link("a", "in/b")).unconvertible(
            "",
            2,
            "tree-symlink",
            &["in/b", "--follow-links"],
        ),
        with("a link to the directory around it", |dir| {
            dir.link("..", "in/a/up")
        })
        .unconvertible("--follow-links", 2, "tree-loop", &["in/a/up"]),
        with("links that lead to each other", |dir| {
            dir.link("y", "in/x");
            dir.link("x", "in/y");
        })
        .unconvertible("--follow-links", 6, "io", &["in/x"]),
        with("a link to nowhere", |dir| dir.link("nowhere", "in/a/3.txt")).unconvertible(
            "--follow-links",
            2,
            "not-found",
            &["in/a/3.txt"],
        ),
        with("a link to a device", |dir| {
            dir.link("/dev/zero", "in/a/3.txt")
        })
        .unconvertible(
            "--follow-links",
            2,
            "tree-special",
            &["in/a/3.txt", "device"],
        ),
        with("a name that is not UTF-8", |dir| {
            fs::write(dir.at("in").join(OsStr::from_bytes(b"\xff.txt")), "x").unwrap()
        })
        .unconvertible("", 2, "tree-name", &["UTF-8"]),
        with("a name with a line break", |dir| {
            dir.write("in/a\nb.txt", "x")
        })
        .unconvertible("", 2, "tree-name", &["control character"]),
        with("a name that moves the cursor", |dir| {
            dir.write("in/\u{1b}[2J.txt", "x")
        })
        .unconvertible("", 2, "tree-name", &["control character"]),
        with("extensions that differ by case alone", |dir| {
            dir.write("in/a/1.TXT", "x")
        })
        .unconvertible("", 2, "tree-collision", &["a/1.", "--group file"]),
        with("an extension that is called as the key", |dir| {
            dir.write("in/a/1.__key__", "x");
            dir.write("in/a/2.__key__", "x");
        })
        .unconvertible("", 2, "tree-collision", &["__key__"]),
        case("no files", |dir| {
            fs::create_dir_all(dir.at("in/a/b")).unwrap()
        })
        .unconvertible("", 2, "tree-empty", &["in"]),
        case("150 directories deep", |dir| {
            let deep = vec!["d"; 150].join("/");
            dir.write(&format!("in/{deep}/f.txt"), "x");
        })
        .unconvertible("", 2, "tree-depth", &["128"]),
        with("text that is not UTF-8", |dir| {
            dir.write("in/a/2.txt", b"text \xff")
        })
        .unconvertible("", 3, "tree-text", &["in/a/2.txt", "byte 5"]),
        with("a sample without one of the files", |dir| {
            dir.write("in/a/3.txt", "x")
        })
        .unconvertible("", 3, "value-null", &["bin", "a/3", "--nulls mask"]),
        with("JSON that is none", |dir| {
            dir.write("in/a/1.json", "{}");
            dir.write("in/a/2.json", "{'a': 1}");
        })
        .unconvertible(
            "--column json:json",
            3,
            "json-syntax",
            &["column json", "a/2"],
        ),
        with("a picture that is none", |dir| {
            dir.write("in/a/1.jpg", b"\xff\xd8\xff\xe0");
            dir.write("in/a/2.jpg", "GIF89a");
        })
        .unconvertible(
            "--column jpg:jpeg",
            3,
            "image-magic",
            &["column jpg", "a/2"],
        ),
        with("a file above the limit", |dir| {
            dir.write("in/a/2.bin", vec![0; 10_000])
        })
        .unconvertible(
            "--safety-limit sample-bytes=5000",
            3,
            "limit-sample-bytes",
            &["a/2"],
        ),
        case("a file of 3 GB that is not there on the disk", |dir| {
            dir.write("in/a.bin", "");
            fs::File::options()
                .write(true)
                .open(dir.at("in/a.bin"))
                .unwrap()
                .set_len(3_000_000_000)
                .unwrap();
        })
        .unconvertible("", 3, "limit-sample-bytes", &["3000000000"]),
        with("a column that is not there", |_| {}).unconvertible(
            "--column png",
            2,
            "source-column",
            &["png", "--column"],
        ),
        with("a group that is not there", |_| {}).unconvertible(
            "--group stems",
            2,
            "config-group",
            &["--group", "stems"],
        ),
    ]
}

/// Locations of the destination, and their existing contents.
fn destinations() -> Vec<Case> {
    let table = |name: &str, change: fn(&TestDir)| {
        case(name, move |dir: &TestDir| {
            dir.source();
            change(dir);
        })
    };
    let done = |dir: &TestDir| dir.ok("convert in out");
    vec![
        with("the destination inside the source", |_| {}).fails(
            "convert in in/out",
            4,
            "dest-overlap",
            &["in/out"],
        ),
        with("the destination is the source", |_| {}).fails(
            "convert in in",
            4,
            "dest-overlap",
            &["in"],
        ),
        with("the source inside the destination", |_| {}).fails(
            "convert in/a in",
            4,
            "dest-overlap",
            &["in"],
        ),
        with(
            "the destination inside the source by way of a link",
            |dir| dir.link("in", "there"),
        )
        .fails("convert in there/out", 4, "dest-overlap", &["there/out"]),
        table("the destination is a file", |dir| dir.write("out", "x")).unconvertible(
            "",
            4,
            "dest-not-directory",
            &["out"],
        ),
        table("the destination is the source's file", |_| {}).fails(
            "convert in/rows.parquet in/rows.parquet",
            4,
            "dest-overlap|dest-not-directory",
            &["in/rows.parquet"],
        ),
        table("the destination lies below a file", |dir| {
            dir.write("file", "x")
        })
        .fails("convert in file/out", 4, "dest-not-directory", &["file"]),
        table("the destination is a named pipe", |dir| dir.fifo("out")).unconvertible(
            "",
            4,
            "dest-not-directory",
            &["out"],
        ),
        table("the destination holds a foreign file", |dir| {
            dir.write("out/thesis.tex", "x")
        })
        .unconvertible("", 4, "dest-not-empty", &["out", "thesis.tex"]),
        table("the destination holds a foreign directory", |dir| {
            dir.write("out/thesis/a.tex", "x")
        })
        .unconvertible("", 4, "dest-not-empty", &["out", "thesis"])
        .unconvertible("--overwrite", 4, "dest-not-empty", &["out", "thesis"]),
        table("to overwrite what is not ours", |dir| {
            dir.ok("convert in out");
            dir.write("out/thesis.tex", "x");
        })
        .unconvertible("--overwrite", 4, "dest-not-empty", &["out", "thesis.tex"]),
        table("shards without an index", |dir| {
            dir.write("out/shard.00000.mds", "x")
        })
        .unconvertible("", 4, "dest-not-empty", &["out"]),
        table("another compression at the destination", done).unconvertible(
            "--compression none",
            4,
            "dest-conflict",
            &["out", "compression", "--overwrite"],
        ),
        table("other hashes at the destination", done).unconvertible(
            "--hashes sha1",
            4,
            "dest-conflict",
            &["out", "hashes"],
        ),
        table("another condition at the destination", done).unconvertible(
            "--where id>3",
            4,
            "dest-conflict",
            &["out", "where"],
        ),
        table("other splits at the destination", done).unconvertible(
            "--split a=0.5,b=0.5",
            4,
            "dest-conflict|dest-not-empty",
            &["out"],
        ),
        table("another source at the destination", |dir| {
            dir.ok("convert in out");
            dir.parquet("in/more.parquet", &crate::tables::rows(3));
        })
        .unconvertible("", 4, "dest-conflict", &["out", "source has changed"]),
        table("a dataset of another program at the destination", |dir| {
            dir.mds();
            fs::rename(dir.at("shards"), dir.at("out")).unwrap();
        })
        .unconvertible("", 4, "dest-conflict", &["out", "index.provenance"]),
        table("a shard is missing at the destination", |dir| {
            dir.ok("convert in out");
            dir.remove("out/shard.00000.mds.zstd");
        })
        .unconvertible(
            "",
            4,
            "dest-damaged",
            &["out", "shard.00000.mds.zstd", "--overwrite"],
        ),
        table("a shard is short at the destination", |dir| {
            dir.ok("convert in out");
            dir.edit("out/shard.00000.mds.zstd", |zip| zip.truncate(10));
        })
        .unconvertible("", 4, "dest-damaged", &["out", "shard.00000.mds.zstd"]),
        table("the index is broken at the destination", |dir| {
            dir.ok("convert in out");
            dir.write("out/index.json", "{");
        })
        .unconvertible("", 4, "dest-conflict|dest-damaged", &["out", "index.json"]),
        table("a link in the place of the work folder", |dir| {
            dir.write("elsewhere/x", "");
            dir.link("../elsewhere", "out/.shardmill");
        })
        .unconvertible("", 3, "path-symlink", &[".shardmill"]),
        table("a place where nothing can be written", |_| {}).fails(
            "convert in /sys/shardmill",
            8,
            "permission",
            &["/sys/shardmill"],
        ),
        table("a place that does not exist", |_| {}).fails(
            "convert in /proc/1/shardmill",
            2,
            "not-found",
            &["/proc/1/shardmill"],
        ),
    ]
}
