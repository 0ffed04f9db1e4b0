//! Measures what a reader spends time on: the totals of each activity, and on request a trace of every step.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use shardmill_core::lock;

/// The most steps that a trace keeps.
pub const MAX_TRACE_STEPS: usize = 1 << 20;

shardmill_core::named_enum! {
    /// What a reader spends time on.
    #[non_exhaustive]
    pub enum Activity {
        /// Opening the streams: listing files and reading indexes.
        Open = "open",
        /// Fetching a file from a store or a folder, including retries.
        Fetch = "fetch",
        /// Checking the hash of a file.
        Hash = "hash",
        /// Decompressing a file.
        Decompress = "decompress",
        /// Writing a file to the cache's folder.
        Store = "store",
        /// Copying samples from shards into a batch.
        Fill = "fill",
        /// The caller waits for a batch or fills it.
        Wait = "wait",
    }
}

/// One step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// What was done.
    pub activity: Activity,
    /// Tells steps of an activity apart that overlap in time: the lowest number that was free.
    pub lane: usize,
    /// The time from the start of the trace; zero for what began earlier.
    pub start: Duration,
    /// The time that it took, within the trace.
    pub duration: Duration,
}

/// The times of a reader. Threads share it.
#[derive(Debug, Default)]
pub struct Timings {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    totals: [Total; Activity::ALL.len()],
    trace: Option<(Instant, Vec<TraceStep>)>,
}

#[derive(Debug, Default)]
struct Total {
    /// Which lanes are in use.
    lanes: Vec<bool>,
    active: usize,
    /// When the first of the active steps began.
    since: Option<Instant>,
    busy: Duration,
}

/// A step that ends when this value is dropped.
#[derive(Debug)]
pub struct Step {
    timings: Arc<Timings>,
    activity: Activity,
    lane: usize,
    start: Instant,
}

impl Timings {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Begins a step.
    #[must_use]
    pub fn start(self: &Arc<Self>, activity: Activity) -> Step {
        let start = Instant::now();
        let mut state = self.lock();
        let total = state.total(activity);
        total.active += 1;
        total.since.get_or_insert(start);
        let free = total.lanes.iter().position(|used| !used);
        let lane = free.unwrap_or(total.lanes.len());
        match total.lanes.get_mut(lane) {
            Some(used) => *used = true,
            None => total.lanes.push(true),
        }
        drop(state);
        Step {
            timings: Arc::clone(self),
            activity,
            lane,
            start,
        }
    }

    /// Returns for how long at least one step of the activity was in progress.
    #[must_use]
    pub fn busy(&self, activity: Activity) -> Duration {
        let mut state = self.lock();
        let total = state.total(activity);
        total.busy + total.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Begins a trace, and discards an earlier one.
    pub fn start_trace(&self) {
        self.lock().trace = Some((Instant::now(), Vec::new()));
    }

    /// Ends the trace and returns its steps, ordered by their ends.
    #[must_use]
    pub fn end_trace(&self) -> Vec<TraceStep> {
        let trace = self.lock().trace.take();
        trace.map_or_else(Vec::new, |(_, steps)| steps)
    }

    fn end(&self, step: &Step) {
        let end = Instant::now();
        let mut state = self.lock();
        let total = state.total(step.activity);
        total.active = total.active.saturating_sub(1);
        if let Some(used) = total.lanes.get_mut(step.lane) {
            *used = false;
        }
        if total.active == 0
            && let Some(since) = total.since.take()
        {
            total.busy += end.saturating_duration_since(since);
        }
        if let Some((started, steps)) = &mut state.trace
            && steps.len() < MAX_TRACE_STEPS
        {
            let start = step.start.max(*started);
            steps.push(TraceStep {
                activity: step.activity,
                lane: step.lane,
                start: start.saturating_duration_since(*started),
                duration: end.saturating_duration_since(start),
            });
        }
    }
}

impl State {
    fn total(&mut self, activity: Activity) -> &mut Total {
        // INVARIANT: one total for each activity.
        &mut self.totals[activity as usize]
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.timings.end(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(5);

    #[test]
    fn overlapping_steps_are_counted_once_in_separate_lanes() {
        let timings = Arc::new(Timings::default());
        timings.start_trace();
        let started = Instant::now();
        let first = timings.start(Activity::Fetch);
        let second = timings.start(Activity::Fetch);
        std::thread::sleep(TICK);
        drop(first);
        let third = timings.start(Activity::Fetch);
        std::thread::sleep(TICK);
        drop((second, third));
        let busy = timings.busy(Activity::Fetch);
        assert!(busy >= 2 * TICK && busy <= started.elapsed(), "{busy:?}");
        let lanes: Vec<usize> = timings.end_trace().iter().map(|step| step.lane).collect();
        assert_eq!(lanes, [0, 1, 0]);
        std::thread::sleep(TICK);
        assert_eq!(timings.busy(Activity::Fetch), busy);
        assert_eq!(timings.busy(Activity::Hash), Duration::ZERO);
    }

    #[test]
    fn step_in_progress_is_counted() {
        let timings = Arc::new(Timings::default());
        let step = timings.start(Activity::Hash);
        std::thread::sleep(TICK);
        assert!(timings.busy(Activity::Hash) >= TICK);
        timings.start_trace();
        drop(step);
        let steps = timings.end_trace();
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0].start, Duration::ZERO);
        drop(timings.start(Activity::Hash));
        assert!(timings.end_trace().is_empty());
    }
}
