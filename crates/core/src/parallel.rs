//! Runs a function for many items on several threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::lock;

/// Returns the number of threads to use: `jobs`, or one per core if it is 0.
#[must_use]
pub fn threads(jobs: usize) -> usize {
    match jobs {
        0 => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        jobs => jobs,
    }
}

/// Calls `work` for every number below `count`, on `jobs` threads. Each thread has its own `M`.
///
/// Numbers are taken in order, and none are taken after an error. If several calls fail, the error of the lowest number
/// is returned. It does not depend on scheduling, because all lower numbers were tried.
///
/// # Errors
///
/// Returns the error of `work` with the lowest number.
pub fn for_each<M: Default, E: Send>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize, &mut M) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let failed: Mutex<Option<(usize, E)>> = Mutex::new(None);
    let run = || {
        let mut memory = M::default();
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            if let Err(error) = work(number, &mut memory) {
                stop.store(true, Ordering::Relaxed);
                let mut failed = lock(&failed);
                if failed.as_ref().is_none_or(|(lowest, _)| number < *lowest) {
                    *failed = Some((number, error));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads(jobs).min(count) {
            // If the system has no more threads, the existing ones do all the work.
            if thread::Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// Calls `work` for every number below `count`, on `jobs` threads, and returns the results in the order of the numbers.
///
/// # Errors
///
/// As [`for_each`].
pub fn map<T: Send, E: Send>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    for_each(count, jobs, |number, (): &mut ()| {
        let result = work(number)?;
        if let Some(slot) = results.get(number) {
            *lock(slot) = Some(result);
        }
        Ok(())
    })?;
    let results = results.into_iter();
    Ok(results
        .filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_results_are_in_input_order() {
        for jobs in [1, 4] {
            let squares = map(1000, jobs, |number| Ok::<_, ()>(number * number)).unwrap();
            assert!(
                squares
                    .into_iter()
                    .eq((0..1000).map(|number| number * number))
            );
            assert_eq!(
                map(10, jobs, |number| if number < 3 {
                    Ok(())
                } else {
                    Err(number)
                }),
                Err(3)
            );
        }
    }

    #[test]
    fn for_each_processes_every_number_once() {
        for (count, jobs) in [(0, 4), (1, 4), (1000, 4), (1000, 1), (3, 0)] {
            let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            for_each(count, jobs, |number, calls: &mut usize| {
                *calls += 1;
                seen[number].fetch_add(1, Ordering::Relaxed);
                Ok::<(), ()>(())
            })
            .unwrap();
            assert!(seen.iter().all(|calls| calls.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn lowest_numbered_error_is_returned() {
        for _ in 0..50 {
            let error = for_each(1000, 8, |number, (): &mut ()| match number {
                17 | 18 | 40 | 999 => Err(number),
                _ => Ok(()),
            });
            assert_eq!(error, Err(17));
        }
    }
}
