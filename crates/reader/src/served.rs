//! The shards of this node, for the other nodes of the run.

use std::sync::Arc;

use shardmill_cache::{BlobPart, Blobs, Cache, Cancel};
use shardmill_dataset::Catalog;
use shardmill_peers::{Cluster, PeerFile, PeerFiles};

use crate::origin;

/// The shards of a cache that other nodes can fetch, in their stored form.
pub(crate) struct ServedShards<B: Blobs> {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) cache: Arc<Cache<B>>,
    pub(crate) cluster: Arc<Cluster>,
}

impl<B: Blobs> PeerFiles for ServedShards<B> {
    fn read(&self, file: &PeerFile) -> Option<Vec<u8>> {
        let number = usize::try_from(file.number).ok()?;
        let part = match file.part {
            0 => BlobPart::Data,
            1 => BlobPart::Table,
            _ => return None,
        };
        let (stream, shard, info) = self.catalog.streams().iter().find_map(|stream| {
            stream.shards.get(number)?;
            let shard = stream.first_shard + number;
            let (known, info) = origin::peer_file(&self.catalog, shard, part)?;
            (known == *file).then_some((stream, shard, info))
        })?;
        let engine = self.cache.engine().ok()?;
        let is_present = engine.has(shard).ok()?;
        // Only the owner fetches, so two nodes with different lists of peers never wait for each other. An error of the
        // fetch is not lost: the other node then fetches the shard itself.
        if !is_present && !self.cluster.is_own(file) {
            return None;
        }
        let held = engine.need_for_peer(shard, &Cancel::default()).ok()?;
        let found = stream.local.open_file(&info.basename).ok()?;
        let fits = found.len() == info.bytes;
        let bytes = fits.then(|| found.read_all(info.bytes).ok()).flatten();
        drop(held);
        // A shard that only other nodes read is the first to be evicted.
        engine.close(shard);
        bytes
    }
}
