//! A table and what reads its log.

use std::path::PathBuf;
use std::sync::Arc;

use delta_kernel::Engine;
use shardmill_storage::Remote;
use url::Url;

use crate::store::KernelStore;

/// A folder, or a prefix of a store, that has the log of a table.
pub struct DeltaTable {
    pub(super) shown: String,
    pub(super) root: Url,
    pub(super) directory: PathBuf,
    /// For a table in a store: the whole bucket, so that the path of a file is its key.
    pub(super) bucket: Option<Remote>,
    pub(super) kernel: Option<KernelStore>,
    pub(super) engine: Arc<dyn Engine>,
}
