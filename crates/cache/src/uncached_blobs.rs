//! Blobs in memory that are not in the table, because the cache has no space for them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::blobs::CachedBlob;

/// Open blobs and their bytes, least recently used first.
#[derive(Debug)]
pub(crate) struct UncachedBlobs<O>(VecDeque<(Arc<CachedBlob<O>>, u64)>);

impl<O> Default for UncachedBlobs<O> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<O> UncachedBlobs<O> {
    /// Returns a blob, and marks it as used.
    pub(crate) fn get(&mut self, blob: usize) -> Option<Arc<CachedBlob<O>>> {
        let at = self.0.iter().position(|(open, _)| open.number() == blob)?;
        let found = self.0.remove(at)?;
        let open = Arc::clone(&found.0);
        self.0.push_back(found);
        Some(open)
    }

    /// Keeps a blob in memory. It replaces first the blobs that are no longer in use, then the least recently used
    /// ones. If all are in use (`Some(true)`) and there is no space, the new blob is not kept and may be fetched
    /// again.
    pub(crate) fn keep(
        &mut self,
        open: Arc<CachedBlob<O>>,
        bytes: u64,
        most: u64,
        in_use: impl Fn(usize) -> Option<bool>,
    ) {
        self.0.retain(|(kept, _)| {
            kept.number() != open.number() && in_use(kept.number()) != Some(false)
        });
        while !self.0.is_empty() && self.bytes().saturating_add(bytes) > most {
            let stays = |(kept, _): &(Arc<CachedBlob<O>>, u64)| in_use(kept.number()) == Some(true);
            if self.0.iter().all(stays) {
                return;
            }
            self.0.pop_front();
        }
        self.0.push_back((open, bytes));
    }

    fn bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|(_, bytes)| *bytes);
        bytes.fold(0, u64::saturating_add)
    }
}
