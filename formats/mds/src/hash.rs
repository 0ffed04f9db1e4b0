//! Re-exports the hashes, which all formats share.

pub use shardmill_codec::*;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{lines, unhex};

    #[test]
    fn digests_are_those_of_the_original() {
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
}
