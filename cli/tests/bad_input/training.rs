//! Bad inputs of a training run other than its data: a state to resume from, a cache folder, a store.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;
use shardmill_testing::mds::Spec;
use shardmill_testing::s3::{Fault, Script};

use crate::case::{Case, TestDir, case};

/// Writes a dataset of two shards, without compression.
fn set(dir: &TestDir, name: &str) {
    write_set(dir, name, Spec::mds(&[("x", "int", Some(8))]));
}

fn write_set(dir: &TestDir, name: &str, spec: Spec) {
    let shard = |first: u64| {
        let samples: Vec<Vec<u8>> = (first..first + 50)
            .map(|x| x.to_le_bytes().to_vec())
            .collect();
        spec.shard(&samples)
    };
    spec.write(&dir.at(name), &[shard(0), shard(50)]).unwrap();
}

/// A case with a state for a dataset of 100 samples.
fn state(name: &str, contents: impl AsRef<[u8]> + Send + Sync + 'static) -> Case {
    case(&format!("state: {name}"), move |dir| {
        set(dir, "shards");
        dir.write("state.json", &contents);
    })
}

fn sound() -> serde_json::Value {
    json!({
        "epoch": 0, "sample_in_epoch": 32, "num_canonical_nodes": 1, "shuffle_seed": 9176,
        "initial_physical_nodes": 1
    })
}

fn with(key: &str, value: impl Into<serde_json::Value>) -> String {
    let mut state = sound();
    state[key] = value.into();
    state.to_string()
}

pub fn states() -> Vec<Case> {
    const RESUME: &str = "order shards --resume state.json";
    const FILE: &str = "state.json";
    let without = |key: &str| {
        let mut state = sound();
        state.as_object_mut().unwrap().remove(key);
        state.to_string()
    };
    let malformed =
        |name: &str, text: String| state(name, text).fails(RESUME, 3, "state-format", &[FILE]);
    vec![
        case("state: no file", |dir| set(dir, "shards")).fails(RESUME, 2, "not-found", &[FILE]),
        malformed("no bytes", String::new()),
        malformed("text", "resume".to_owned()),
        malformed("a list", "[]".to_owned()),
        malformed("cut", sound().to_string()[..40].to_owned()),
        malformed("something behind it", format!("{} {{}}", sound())),
        malformed(
            "a key twice",
            sound().to_string().replacen('{', "{\"epoch\": 0, ", 1),
        ),
        malformed("no epoch", without("epoch")),
        malformed("no sample", without("sample_in_epoch")),
        malformed("a negative sample", with("sample_in_epoch", -1)),
        malformed("half a sample", with("sample_in_epoch", 1.5)),
        malformed("a sample as text", with("sample_in_epoch", "32")),
        malformed("a list for a seed", with("shuffle_seed", json!([1]))),
        malformed("canonical nodes as text", with("num_canonical_nodes", "1")),
        state("beyond the epoch", with("sample_in_epoch", 1_000_000)).fails(
            RESUME,
            2,
            "state-position",
            &["1000000"],
        ),
        state("a pickle", b"\x80\x04\x95\x10\x00\x00\x00".to_vec()).fails(
            RESUME,
            3,
            "state-pickle",
            &[FILE],
        ),
        state(
            "a zip of torch.save",
            b"PK\x03\x04archive/data.pkl".to_vec(),
        )
        .fails(RESUME, 3, "state-pickle", &[FILE]),
        state("70 KiB", format!("{}{}", sound(), " ".repeat(70 << 10))).fails(
            RESUME,
            3,
            "state-size",
            &[FILE, "65536"],
        ),
        state(
            "of a later version",
            with("shardmill", json!({"version": 99})),
        )
        .fails(RESUME, 3, "state-newer", &[FILE, "99"]),
        state(
            "of another run",
            with(
                "shardmill",
                json!({"version": 1, "fingerprint": "00112233445566778899aabbccddeeff"}),
            ),
        )
        .fails(
            RESUME,
            4,
            "state-foreign",
            &[FILE, "00112233445566778899aabbccddeeff"],
        ),
    ]
}

/// A case with the dataset `store/set`, read through the folder `cache`.
fn cached(name: &str, make: impl Fn(&TestDir) + Send + Sync + 'static) -> Case {
    case(&format!("cache: {name}"), move |dir| {
        set(dir, "store/set");
        fs::create_dir(dir.at("cache")).unwrap();
        make(dir);
    })
}

pub fn caches() -> Vec<Case> {
    const READ: &str = "bench store/set --local cache";
    const SHARD: &str = "shard.00001.mds";
    vec![
        cached("another dataset's index", |dir| {
            dir.write("cache/index.json", "{}");
        })
        .fails(READ, 4, "cache-foreign", &["cache/index.json"]),
        cached("the user's file of another length", |dir| {
            dir.write("cache/shard.00001.mds", "mine");
        })
        .fails(READ, 4, "cache-foreign", &[SHARD]),
        cached("the user's file with other bytes", |dir| {
            let mut bytes = dir.read("store/set/shard.00001.mds");
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            dir.write("cache/shard.00001.mds", bytes);
        })
        .fails(READ, 4, "cache-foreign", &[SHARD]),
        cached("a link at a shard's place", |dir| {
            dir.write("outside", "mine");
            symlink("../outside", dir.at("cache/shard.00001.mds")).unwrap();
        })
        .fails(READ, 3, "path-symlink", &[SHARD]),
        cached("a link for its books", |dir| {
            fs::create_dir(dir.at("elsewhere")).unwrap();
            symlink("../elsewhere", dir.at("cache/.shardmill")).unwrap();
        })
        .fails(READ, 3, "path-symlink", &[".shardmill"]),
        cached("a limit below a shard that has to be unpacked", |dir| {
            let spec = Spec::mds(&[("x", "int", Some(8))]);
            write_set(dir, "store/set", spec.with("compression", "zstd:3"));
        })
        .fails(
            "bench store/set --local cache --cache-limit 10",
            2,
            "config-cache-limit",
            &["10 bytes"],
        ),
        cached("a limit that is no size", |_| {}).fails(
            "bench store/set --local cache --cache-limit much",
            2,
            "config-cache-limit",
            &["much"],
        ),
        cached("a shard that is missing at its origin", |dir| {
            dir.remove("store/set/shard.00001.mds");
        })
        .fails(READ, 3, "shard-missing", &[SHARD]),
        cached("a shard that is cut at its origin", |dir| {
            dir.edit("store/set/shard.00001.mds", |bytes| bytes.truncate(300));
        })
        .fails(READ, 3, "shard-length", &[SHARD]),
        cached("a shard with another hash at its origin", |dir| {
            dir.edit("store/set/shard.00001.mds", |bytes| {
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
            });
        })
        .fails(READ, 3, "hash-mismatch", &[SHARD]),
    ]
}

/// A case with the dataset `s3://bucket/set`.
fn remote(name: &str, faults: impl Fn() -> Script + Send + Sync + 'static) -> Case {
    case(&format!("remote: {name}"), move |dir| {
        set(dir, "store/set");
        dir.serve(faults());
    })
}

/// Faults of the requests for shards, and of no others.
fn of_shards(fault: Fault) -> Script {
    Script::by(move |asked| asked.key.ends_with(".mds").then(|| fault.clone()))
}

pub fn remotes() -> Vec<Case> {
    const READ: &str = "bench s3://bucket/set --local cache";
    let url = |name: &str, url: &str, id: &'static str| {
        case(&format!("remote: {name}"), |dir| {
            dir.serve(Script::default())
        })
        .fails(&format!("bench {url} --local cache"), 2, id, &[])
    };
    vec![
        url("a scheme of later", "oci://bucket/set", "url-scheme"),
        url("an unknown scheme", "gopher://bucket/set", "url-scheme"),
        url("no bucket", "s3:///set", "url-bucket"),
        url(
            "a secret in the address",
            "s3://key:secret@bucket/set",
            "url-user",
        ),
        url(
            "a query in the address",
            "s3://bucket/set?token=secret",
            "url-query",
        ),
        url("a way up in the address", "s3://bucket/../set", "url-path"),
        remote("nowhere to fetch to", Script::default).fails(
            "bench s3://bucket/set",
            2,
            "config-local",
            &["s3://bucket/set"],
        ),
        remote("no dataset there", Script::default).fails(
            "bench s3://bucket/nothing --local cache",
            2,
            "index-missing",
            &["s3://bucket/nothing"],
        ),
        remote("no bucket of that name", Script::default).fails(
            "bench s3://other/set --local cache",
            2,
            "not-found",
            &["s3://other/set", "bucket"],
        ),
        remote("401", || Script::always(Fault::status(401))).fails(
            READ,
            8,
            "credentials",
            &["s3://bucket/set"],
        ),
        remote("403", || Script::always(Fault::status(403))).fails(
            READ,
            8,
            "credentials",
            &["s3://bucket/set"],
        ),
        remote("403 for shards", || of_shards(Fault::status(403))).fails(
            READ,
            8,
            "credentials",
            &["shard.0000"],
        ),
        remote("404 for shards", || of_shards(Fault::status(404))).fails(
            READ,
            3,
            "shard-missing",
            &["shard.0000"],
        ),
        remote("409", || Script::always(Fault::status(409))).fails(READ, 6, "storage-gave-up", &[]),
        remote("a page instead of the index", || {
            Script::always(Fault::Page)
        })
        .fails(READ, 3, "index-not-json", &["index.json"]),
        remote("a page instead of shards", || of_shards(Fault::Page)).fails(
            READ,
            3,
            "body-length",
            &["shard.0000"],
        ),
        remote("redirected", || {
            Script::always(Fault::Redirect("http://169.254.169.254/latest".to_owned()))
        })
        .fails(READ, 2, "url-redirect", &[]),
        remote("shards that break off", || {
            // Far less each time than would add up to a shard.
            of_shards(Fault::CloseAfter(10))
        })
        .fails(READ, 6, "storage-gave-up|body-length", &["shard.0000"]),
        remote("shards that are longer than they are", || {
            of_shards(Fault::ContentLength(7))
        })
        .fails(READ, 3, "body-length", &["shard.0000"]),
        remote("shards with a flipped byte", || {
            of_shards(Fault::FlipByte(400))
        })
        .fails(READ, 3, "hash-mismatch", &["shard.0000"]),
        case("remote: plain http to another host", |dir| {
            dir.env("AWS_ENDPOINT_URL", "http://store.example");
            dir.env("AWS_ACCESS_KEY_ID", "test");
            dir.env("AWS_SECRET_ACCESS_KEY", "test");
        })
        .fails(READ, 2, "url-plain", &["store.example"]),
        case("remote: an endpoint with a secret in it", |dir| {
            dir.env("AWS_ENDPOINT_URL", "https://key:secret@store.example");
        })
        .fails(READ, 2, "url-user", &[]),
    ]
}
