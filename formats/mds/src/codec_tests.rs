use shardmill_codec::{Compression, Digest, HashAlgo, digest, hash_hex};
use shardmill_core::Limits;

use crate::testdata::{lines, unhex};

#[test]
fn digests_match_mosaicml_streaming() {
    let mut count = 0;
    for line in lines(include_str!("testdata/hashes.txt")) {
        let algo: HashAlgo = line[0].parse().unwrap();
        let data = unhex(line[1]);
        assert_eq!(hash_hex(algo, &data), line[2], "{algo}");
        assert_eq!(Digest::parse(algo, line[2]), Ok(digest(algo, &data)));
        assert_eq!(line[2].len(), 2 * algo.digest_bytes());
        count += 1;
    }
    assert_eq!(count, 3 * 17);
}

#[test]
fn files_compressed_by_mosaicml_streaming_are_decompressed() {
    let mut names = std::collections::BTreeSet::new();
    for line in lines(include_str!("testdata/compressed.txt")) {
        let (raw, zip) = (unhex(line[1]), unhex(line[2]));
        let compression: Compression = line[0].parse().unwrap();
        for raw_bytes in [Some(raw.len() as u64), None] {
            let found = compression.decompress(&zip, raw_bytes, &Limits::default());
            assert_eq!(found.as_ref(), Ok(&raw), "{compression}");
        }
        names.insert(line[0]);
    }
    assert_eq!(names.len(), 58);
}
