//! Runs the same work for many shards in parallel, and takes the results in the order of the shards.

use shardmill_core::{Progress, parallel};

use crate::error::DatasetError;

/// The number of results per thread that may wait for earlier ones.
const AHEAD: usize = 4;

/// Calls `work` for every number below `count` on several threads, and `take` with the results, in order. At most a few
/// results per thread are in memory.
///
/// # Errors
///
/// The first error of either function, by number; [`DatasetError::Interrupted`] after a cancellation.
pub fn each_in_order<T: Send, E: From<DatasetError> + Send>(
    count: usize,
    jobs: usize,
    progress: &Progress,
    work: impl Fn(usize) -> Result<T, E> + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    let step = parallel::threads(jobs).saturating_mul(AHEAD).max(1);
    let mut first = 0;
    while first < count {
        let end = count.min(first.saturating_add(step));
        // Errors are among the results, so that all earlier results are taken first.
        let results = parallel::map(end - first, jobs, |at| {
            let is_wanted = !progress.is_cancelled();
            Ok::<_, E>(is_wanted.then(|| work(first + at)))
        })?;
        for (number, result) in (first..).zip(results) {
            take(number, result.ok_or(DatasetError::Interrupted)??)?;
        }
        first = end;
    }
    Ok(())
}
