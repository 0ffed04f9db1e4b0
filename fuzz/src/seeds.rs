//! Finds the seeds of a target in `fuzz/corpus/` and `fixtures/`.

use std::io;
use std::path::{Path, PathBuf};

use crate::target::{Seeds, Target};

/// The largest seed. Larger files make a fuzzer slow, and have no other structure.
const MAX_BYTES: usize = 64 << 10;

/// Returns the seeds of a target: the files of its corpus, and what it takes from the fixtures.
///
/// # Errors
///
/// A folder or file that cannot be read. A target may lack a corpus.
pub fn seeds(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = root.join("corpus").join(target.name);
    let mut found = Vec::new();
    if corpus.is_dir() {
        for path in files(&corpus)? {
            found.push(std::fs::read(path)?);
        }
    }
    for path in files(&root.join("../fixtures"))? {
        let name = path.to_string_lossy();
        match target.seeds {
            Seeds::Files(endings) if endings.iter().any(|ending| name.ends_with(ending)) => {
                found.push(std::fs::read(&path)?);
            }
            Seeds::TextShards => {
                if let Some(data) = name.strip_suffix(".meta") {
                    found.push(text_shard(std::fs::read(data)?, &std::fs::read(&path)?));
                }
            }
            Seeds::Files(_) => {}
        }
    }
    found.retain(|bytes| bytes.len() <= MAX_BYTES);
    Ok(found)
}

fn text_shard(mut samples: Vec<u8>, offsets: &[u8]) -> Vec<u8> {
    let length = u32::try_from(offsets.len()).unwrap_or(u32::MAX);
    samples.extend_from_slice(offsets);
    samples.extend_from_slice(&length.to_le_bytes());
    samples
}

/// Lists the files below a folder, sorted.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
