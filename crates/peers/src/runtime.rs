//! The threads of this process that send and answer requests.

use shardmill_core::PerProcess;
use tokio::runtime::{Builder, Runtime};

/// The threads that move bytes.
const WORKERS: usize = 4;

/// The most connections of the server at a time. Each waits for one file.
pub(crate) const CONNECTIONS: usize = 1024;

/// The runtime of each process.
static RUNTIMES: PerProcess<Option<Runtime>, 64> = PerProcess::new();

/// Returns the runtime of this process, and starts it if necessary. Returns `None` if its threads cannot be started.
pub(crate) fn runtime() -> Option<&'static Runtime> {
    let start = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(WORKERS).enable_all();
        // The threads that wait for files.
        builder.max_blocking_threads(CONNECTIONS);
        builder.thread_name("shardmill-peers").build().ok()
    };
    RUNTIMES.get(start)?.as_ref()
}
