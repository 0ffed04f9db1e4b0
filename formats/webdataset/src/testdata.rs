//! Builds headers and shards for tests, valid and invalid ones.

use crate::shard::{Profile, ShardBuilder};

/// A header block of any kind, with a valid checksum.
#[derive(Clone, Debug)]
pub(crate) struct RawHeader {
    pub(crate) name: Vec<u8>,
    pub(crate) size: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) magic: [u8; 8],
    pub(crate) prefix: Vec<u8>,
}

impl RawHeader {
    pub(crate) fn new(name: &str, size: u64) -> Self {
        Self {
            name: name.as_bytes().to_vec(),
            size: format!("{size:011o}\0").into_bytes(),
            kind: b'0',
            magic: *b"ustar\x0000",
            prefix: Vec::new(),
        }
    }

    pub(crate) fn kind(mut self, kind: u8) -> Self {
        self.kind = kind;
        self
    }

    pub(crate) fn size(mut self, size: &[u8]) -> Self {
        self.size = size.to_vec();
        self
    }

    pub(crate) fn magic(mut self, magic: &[u8; 8]) -> Self {
        self.magic = *magic;
        self
    }

    pub(crate) fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.as_bytes().to_vec();
        self
    }

    pub(crate) fn block(&self) -> Vec<u8> {
        let mut block = vec![0; 512];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.name);
        put(100, b"0000644\x000000000\x000000000\0");
        put(124, &self.size);
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, &[self.kind]);
        put(257, &self.magic);
        put(345, &self.prefix);
        seal(&mut block, 0);
        block
    }

    /// Returns the block, the content and its padding.
    pub(crate) fn with(&self, content: &[u8]) -> Vec<u8> {
        let mut member = self.block();
        member.extend_from_slice(content);
        member.resize(member.len().next_multiple_of(512), 0);
        member
    }
}

/// Writes the correct checksum into the block at `at`.
pub(crate) fn seal(bytes: &mut [u8], at: usize) {
    bytes[at + 148..at + 156].fill(b' ');
    let sum: u32 = bytes[at..at + 512]
        .iter()
        .map(|byte| u32::from(*byte))
        .sum();
    bytes[at + 148..at + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Builds a file member.
pub(crate) fn member(name: &str, content: &[u8]) -> Vec<u8> {
    RawHeader::new(name, content.len() as u64).with(content)
}

/// Builds an extension header of that kind.
pub(crate) fn extension(kind: u8, content: &[u8]) -> Vec<u8> {
    RawHeader::new("ext", content.len() as u64)
        .kind(kind)
        .with(content)
}

/// Builds PAX records.
pub(crate) fn records(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in pairs {
        let body = key.len() + value.len() + 3;
        let mut length = body + 1;
        while body + length.to_string().len() != length {
            length = body + length.to_string().len();
        }
        out.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
    }
    out
}

/// Builds an archive from parts, and appends its end.
pub(crate) fn archive(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = parts.concat();
    out.resize((out.len() + 1024).next_multiple_of(10_240), 0);
    out
}

/// Builds a canonical shard of samples with three fields of various sizes.
pub(crate) fn shard(samples: usize) -> Vec<u8> {
    let mut shard = ShardBuilder::new(Profile::default());
    for sample in 0..samples {
        let image = vec![b'i'; 700 * (sample % 3)];
        let text = format!("text of sample {sample}");
        let fields = [("txt", text.as_bytes()), ("cls", b"7"), ("jpg", &image)];
        shard.push(&format!("d/{sample:04}"), &fields).unwrap();
    }
    shard.finish().0
}
