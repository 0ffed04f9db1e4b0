//! Runs the same work for many shards in parallel, and takes the results in the order of the shards.

use std::sync::{Mutex, PoisonError};

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
pub fn each_in_order<T: Send>(
    count: usize,
    jobs: usize,
    progress: &Progress,
    work: impl Fn(usize) -> Result<T, DatasetError> + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let step = parallel::threads(jobs).saturating_mul(AHEAD).max(1);
    let mut first = 0;
    while first < count {
        let end = count.min(first.saturating_add(step));
        let results: Vec<Mutex<Option<Result<T, DatasetError>>>> =
            (first..end).map(|_| Mutex::new(None)).collect();
        // Errors are stored with the results, so that all earlier results are taken first.
        let done = parallel::for_each(end - first, jobs, |at, _: &mut ()| {
            if progress.is_cancelled() {
                return Ok(());
            }
            let result = work(first + at);
            if let Some(place) = results.get(at) {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
            Ok::<(), DatasetError>(())
        });
        if done.is_err() {
            return Err(DatasetError::Interrupted);
        }
        for (at, result) in results.into_iter().enumerate() {
            match result.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(result) => take(first + at, result?)?,
                None => return Err(DatasetError::Interrupted),
            }
        }
        first = end;
    }
    Ok(())
}
