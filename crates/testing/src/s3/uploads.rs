//! Multipart uploads in progress.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::checksum::{base64, sha256};
use super::objects::tag;

/// The uploads of a server, by their ids.
#[derive(Debug, Default)]
pub(super) struct Uploads(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    started: u64,
    /// Blocks of Azure that are not part of an object yet, by key and name.
    blocks: BTreeMap<(String, String), Vec<u8>>,
    open: BTreeMap<String, Upload>,
    /// The keys of resumable uploads that are complete.
    done: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Upload {
    key: String,
    parts: BTreeMap<u32, Part>,
}

#[derive(Debug, Default)]
struct Part {
    bytes: Vec<u8>,
    tag: String,
    sum: [u8; 32],
}

/// A completed upload.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) bytes: Vec<u8>,
    /// The checksum of the checksums of the parts, and the number of parts.
    pub(super) sum: String,
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.lock().open.len()
    }

    pub(super) fn create(&self, key: &str) -> String {
        let mut state = self.lock();
        state.started += 1;
        let id = format!("upload-{}", state.started);
        let upload = Upload {
            key: key.to_owned(),
            parts: BTreeMap::new(),
        };
        state.open.insert(id.clone(), upload);
        id
    }

    /// Stores a part and returns its tag; `None` if the upload does not exist.
    pub(super) fn part(&self, id: &str, key: &str, number: u32, bytes: Vec<u8>) -> Option<String> {
        let (tag, sum) = (tag(xxh3_64(&bytes)), sha256(&bytes));
        let mut state = self.lock();
        let upload = state.open.get_mut(id).filter(|upload| upload.key == key)?;
        let part = Part {
            bytes,
            tag: tag.clone(),
            sum,
        };
        upload.parts.insert(number, part);
        Some(tag)
    }

    /// Joins the listed parts. Returns an error code if that is not possible.
    pub(super) fn complete(&self, id: &str, key: &str, list: &str) -> Result<Whole, &'static str> {
        let mut state = self.lock();
        let upload = state
            .open
            .get(id)
            .filter(|upload| upload.key == key)
            .ok_or("NoSuchUpload")?;
        let (mut bytes, mut sums, mut count, mut last) = (Vec::new(), Vec::new(), 0, 0);
        for part in list.split("<Part>").skip(1) {
            let number = field(part, "PartNumber")
                .and_then(|text| text.parse().ok())
                .ok_or("MalformedXML")?;
            if number <= last {
                return Err("InvalidPartOrder");
            }
            last = number;
            let known = upload.parts.get(&number).ok_or("InvalidPart")?;
            let sum = field(part, "ChecksumSHA256");
            if field(part, "ETag").map(|tag| tag.replace("&quot;", "\"")) != Some(known.tag.clone())
                || sum.is_some_and(|sum| sum != base64(&known.sum))
            {
                return Err("InvalidPart");
            }
            bytes.extend_from_slice(&known.bytes);
            sums.extend_from_slice(&known.sum);
            count += 1;
        }
        if count == 0 {
            return Err("MalformedXML");
        }
        state.open.remove(id);
        Ok(Whole {
            bytes,
            sum: format!("{}-{count}", base64(&sha256(&sums))),
        })
    }

    /// Appends bytes from `start` to a resumable upload, except those that it has. Returns how many it has; `None` if it
    /// does not exist.
    pub(super) fn append(&self, id: &str, key: &str, start: u64, bytes: &[u8]) -> Option<u64> {
        let mut state = self.lock();
        let upload = state.open.get_mut(id).filter(|upload| upload.key == key)?;
        let part = upload.parts.entry(1).or_default();
        let known = (part.bytes.len() as u64).checked_sub(start);
        if let Some(new) = known.and_then(|known| bytes.get(usize::try_from(known).ok()?..)) {
            part.bytes.extend_from_slice(new);
        }
        Some(part.bytes.len() as u64)
    }

    /// Ends a resumable upload, and returns its bytes.
    pub(super) fn finish(&self, id: &str) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let mut upload = state.open.remove(id)?;
        state.done.insert(id.to_owned(), upload.key);
        Some(upload.parts.remove(&1).unwrap_or_default().bytes)
    }

    /// Returns whether a resumable upload is complete.
    pub(super) fn is_done(&self, id: &str, key: &str) -> bool {
        self.lock().done.get(id).is_some_and(|known| known == key)
    }

    /// Stores a block of Azure.
    pub(super) fn block(&self, key: &str, name: &str, bytes: Vec<u8>) {
        let at = (key.to_owned(), name.to_owned());
        self.lock().blocks.insert(at, bytes);
    }

    /// Joins the listed blocks; `None` if one is missing. They are kept, like those of an object.
    pub(super) fn commit(&self, key: &str, list: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        let mut bytes = Vec::new();
        for block in list.split("<Latest>").skip(1) {
            let (name, _) = block.split_once("</Latest>")?;
            let found = state.blocks.get(&(key.to_owned(), name.to_owned()))?;
            bytes.extend_from_slice(found);
        }
        Some(bytes)
    }

    /// Aborts an upload. Returns `false` if it does not exist.
    pub(super) fn abort(&self, id: &str, key: &str) -> bool {
        let mut state = self.lock();
        let known = state.open.get(id).is_some_and(|upload| upload.key == key);
        known && state.open.remove(id).is_some()
    }
}

fn field<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.trim())
}
