//! Blobs in memory that are not in the table, because the cache has no space for them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::blobs::CachedBlob;

/// Open blobs, and the blobs that threads fetch now.
#[derive(Debug)]
pub(crate) struct UncachedBlobs<O> {
    /// Blobs and their bytes, least recently used first.
    kept: VecDeque<(Arc<CachedBlob<O>>, u64)>,
    loading: BTreeSet<usize>,
}

impl<O> Default for UncachedBlobs<O> {
    fn default() -> Self {
        Self {
            kept: VecDeque::new(),
            loading: BTreeSet::new(),
        }
    }
}

impl<O> UncachedBlobs<O> {
    /// Returns a blob, and marks it as used.
    pub(crate) fn get(&mut self, blob: usize) -> Option<Arc<CachedBlob<O>>> {
        let at = self
            .kept
            .iter()
            .position(|(open, _)| open.number() == blob)?;
        let found = self.kept.remove(at)?;
        let open = Arc::clone(&found.0);
        self.kept.push_back(found);
        Some(open)
    }

    /// Keeps a blob in memory. It replaces first the blobs that are no longer in use, then the least recently used
    /// ones. If all are in use (`Some(true)`) and there is no space, the new blob is not kept and may be fetched
    /// again.
    pub(crate) fn keep(
        &mut self,
        open: Arc<CachedBlob<O>>,
        bytes: u64,
        max: u64,
        in_use: impl Fn(usize) -> Option<bool>,
    ) {
        self.kept.retain(|(kept, _)| {
            kept.number() != open.number() && in_use(kept.number()) != Some(false)
        });
        while !self.kept.is_empty() && self.bytes().saturating_add(bytes) > max {
            let stays = |(kept, _): &(Arc<CachedBlob<O>>, u64)| in_use(kept.number()) == Some(true);
            if self.kept.iter().all(stays) {
                return;
            }
            self.kept.pop_front();
        }
        self.kept.push_back((open, bytes));
    }

    /// Records that a thread fetches a blob. Returns false if another one does.
    pub(crate) fn begin_load(&mut self, blob: usize) -> bool {
        self.loading.insert(blob)
    }

    /// Records that the fetch of a blob has ended.
    pub(crate) fn end_load(&mut self, blob: usize) {
        self.loading.remove(&blob);
    }

    fn bytes(&self) -> u64 {
        let bytes = self.kept.iter().map(|(_, bytes)| *bytes);
        bytes.fold(0, u64::saturating_add)
    }
}
