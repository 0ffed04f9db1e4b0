//! Shards from other nodes, some of whose answers are damaged.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use shardmill_dataset::StreamOptions;
use shardmill_mds::{HashAlgo, hash_hex};
use shardmill_storage::Location;
use shardmill_testing::mds::{Spec, sample};

use crate::{ClusterOptions, Reader, ReaderOptions};

const NODES: u64 = 8;
const SHARDS: usize = 300;
const SAMPLES: usize = 4;
const TOKEN: &str = "a-secret-of-this-run";

fn encoded(shard: usize, at: usize) -> Vec<u8> {
    sample(&[(false, format!("{shard}:{at}:").repeat(50).as_bytes())])
}

fn write(folder: &Path, compression: Option<&str>, hashes: &[&str]) {
    let mut spec = Spec::mds(&[("a", "bytes", None)]).with("hashes", json!(hashes));
    if let Some(compression) = compression {
        spec = spec.with("compression", compression);
    }
    let shards: Vec<_> = (0..SHARDS)
        .map(|shard| {
            let samples: Vec<_> = (0..SAMPLES).map(|at| encoded(shard, at)).collect();
            spec.shard(&samples)
        })
        .collect();
    spec.write(folder, &shards).unwrap();
}

/// The answers of all peers, and those among them that were damaged so that only the index shows it.
#[derive(Default)]
struct Answers {
    all: AtomicU64,
    forged: AtomicU64,
    failed: AtomicU64,
}

/// Starts a node whose answers are damaged if their number is a multiple of ten.
fn start_peer(folder: PathBuf, answers: Arc<Answers>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(&mut stream.unwrap(), &folder, &answers);
        }
    });
    address
}

fn answer(stream: &mut TcpStream, folder: &Path, answers: &Answers) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(
        head.contains(&format!("Authorization: Bearer {TOKEN}\r\n")),
        "{head}"
    );
    let path = head.split(' ').nth(1).unwrap();
    let words: Vec<_> = path.split('/').collect();
    let [.., shard, "0"] = words.as_slice() else {
        panic!("{path}");
    };
    let names = std::fs::read_dir(folder).unwrap();
    let start = format!("shard.{:05}.mds", shard.parse::<usize>().unwrap());
    let file = names.map(|entry| entry.unwrap().path()).find(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(&start)
    });
    let mut body = std::fs::read(file.unwrap()).unwrap();
    let number = answers.all.fetch_add(1, Ordering::Relaxed);
    let fault = number.is_multiple_of(10).then_some(number / 10 % 6);
    if fault == Some(0) {
        body[20] ^= 1;
        answers.forged.fetch_add(1, Ordering::Relaxed);
    } else if fault.is_some() {
        answers.failed.fetch_add(1, Ordering::Relaxed);
    }
    let (hash, length) = (hash_hex(HashAlgo::Xxh3_128, &body), body.len());
    let mut status = 200;
    match fault {
        Some(1) => body[20] ^= 1,
        Some(2) => body.truncate(length / 2),
        Some(3) => status = 500,
        Some(4) => return,
        Some(5) => {
            stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").unwrap();
            return;
        }
        _ => {}
    }
    let head = format!(
        "HTTP/1.1 {status} OK\r\nContent-Length: {length}\r\nX-Content-XXH3-128: {hash}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
}

fn read(compression: Option<&str>, hashes: &[&str]) -> (Reader, Arc<Answers>) {
    let root = tempfile::tempdir().unwrap();
    let remote = root.path().join("remote");
    write(&remote, compression, hashes);
    let answers = Arc::<Answers>::default();
    // A free port for this node; nothing connects to it.
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let mut peers = vec![own.unwrap().to_string()];
    peers.extend((1..NODES).map(|_| start_peer(remote.clone(), Arc::clone(&answers))));
    let options = ReaderOptions {
        cluster: Some(ClusterOptions {
            peers,
            node: 0,
            nodes: NODES,
            tls: None,
            token: TOKEN.to_owned(),
        }),
        ..ReaderOptions::default()
    };
    let stream = StreamOptions::remote(Location::Local(remote), root.path().join("local"));
    let reader = Reader::open(&[stream], &options).unwrap();
    for number in 0..SHARDS * SAMPLES {
        let found = reader.sample(number as u64).unwrap();
        assert_eq!(found.bytes, encoded(number / SAMPLES, number % SAMPLES));
    }
    (reader, answers)
}

#[test]
fn corrupt_peer_responses_are_fetched_again() {
    for compression in [None, Some("zstd:3")] {
        let (reader, answers) = read(compression, &["xxh64"]);
        let [all, forged, failed] = [&answers.all, &answers.forged, &answers.failed]
            .map(|count| count.load(Ordering::Relaxed));
        // A node that failed is not asked for a while, so the faster the reader, the fewer answers.
        assert!(
            all > 100 && forged >= 2 && failed >= 8,
            "{all} {forged} {failed}"
        );
        let (cache, cluster) = (reader.cache_stats(), reader.cluster_stats());
        assert_eq!(cluster.failures, failed);
        assert_eq!(cluster.files, all - failed);
        assert_eq!(cache.bad_fetches, forged);
        assert_eq!(cache.fetched_shards, SHARDS as u64 + forged);
    }
}
