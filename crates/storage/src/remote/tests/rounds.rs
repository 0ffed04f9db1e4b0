//! Measures how well a listing is cut, in simulated time, so that a busy machine does not affect the result.
//!
//! Each page takes one unit of time. Tasks run in one thread until all of them wait. Then the clock advances to the
//! next answer. The same keys give the same results on every machine.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};

use futures::executor::LocalPool;
use futures::task::LocalSpawnExt as _;
use shardmill_testing::draw::Draw;

use super::shapes::{OTHERS, SHAPES, Shape, keys};
use crate::error::StorageError;
use crate::remote::pages::{Listed, Page, Paging};
use crate::remote::walk::plan::Ways;
use crate::remote::walk::{Pages, Run};

/// The time of a page.
const PAGE: u64 = 1000;

/// The simulated clock, with the tasks to wake.
#[derive(Default)]
struct Clock {
    now: u64,
    next: u64,
    waiting: BinaryHeap<Reverse<(u64, u64)>>,
    wakers: BTreeMap<u64, (Waker, Arc<AtomicBool>)>,
}

/// A future that waits until a point in time.
struct Until {
    clock: Arc<Mutex<Clock>>,
    at: u64,
    done: Option<Arc<AtomicBool>>,
}

impl Future for Until {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(done) = &self.done {
            return if done.load(Ordering::Relaxed) {
                Poll::Ready(())
            } else {
                Poll::Pending
            };
        }
        let done = Arc::new(AtomicBool::new(false));
        {
            let mut clock = self.clock.lock().unwrap();
            let id = clock.next;
            clock.next += 1;
            clock.waiting.push(Reverse((self.at, id)));
            let waker = context.waker().clone();
            clock.wakers.insert(id, (waker, Arc::clone(&done)));
        }
        self.done = Some(done);
        Poll::Pending
    }
}

/// Advances the clock to the next task and wakes it. Returns whether there was one.
fn advance(clock: &Mutex<Clock>) -> bool {
    let (waker, done) = {
        let mut clock = clock.lock().unwrap();
        let Some(Reverse((at, id))) = clock.waiting.pop() else {
            return false;
        };
        clock.now = at;
        clock.wakers.remove(&id).unwrap()
    };
    done.store(true, Ordering::Relaxed);
    waker.wake();
    true
}

/// A store of sorted keys.
struct Store {
    keys: Arc<Vec<String>>,
    clock: Arc<Mutex<Clock>>,
    /// The variation of the times of pages, in hundredths.
    jitter: u64,
    draw: Mutex<Draw>,
}

impl Store {
    fn answer(&self, paging: Paging<'_>) -> Page {
        let mut page = Page::default();
        let after = paging.token.or(paging.after);
        let mut at = match after {
            Some(after) if after >= paging.prefix => {
                self.keys.partition_point(|key| key.as_str() <= after)
            }
            _ => self
                .keys
                .partition_point(|key| key.as_str() < paging.prefix),
        };
        let max = paging.max as usize;
        let mut last = String::new();
        while let Some(key) = self.keys.get(at)
            && let Some(rest) = key.strip_prefix(paging.prefix)
        {
            if page.objects.len() + page.prefixes.len() == max {
                page.next = Some(last);
                break;
            }
            if let Some(slash) = rest.find('/').filter(|_| paging.folded) {
                let prefix = key[..=paging.prefix.len() + slash].to_owned();
                last = format!("{prefix}\u{10ffff}");
                at = self.keys.partition_point(|key| *key <= last);
                page.prefixes.push(prefix);
            } else {
                last.clone_from(key);
                page.objects.push(Listed {
                    key: key.clone(),
                    bytes: 0,
                    tag: String::new(),
                    modified_ms: None,
                });
                at += 1;
            }
        }
        page
    }
}

impl Pages for Arc<Store> {
    async fn page(&self, paging: Paging<'_>) -> Result<Page, StorageError> {
        let (began, took) = {
            let clock = self.clock.lock().unwrap();
            let mut draw = self.draw.lock().unwrap();
            (
                clock.now,
                PAGE + PAGE * draw.below(self.jitter + 1) / 100 - PAGE * self.jitter / 200,
            )
        };
        Until {
            clock: Arc::clone(&self.clock),
            at: began + took,
            done: None,
        }
        .await;
        Ok(self.answer(paging))
    }
}

/// The cost of a listing.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// The number of pages of a sequential listing.
    alone: u64,
    calls: u64,
    /// The time, in units of a page.
    rounds: f64,
}

impl Took {
    fn times(&self) -> f64 {
        self.alone as f64 / self.rounds
    }

    fn calls_ratio(&self) -> f64 {
        self.calls as f64 / self.alone as f64
    }
}

#[derive(Clone, Copy)]
struct How {
    size: u32,
    jitter: u64,
    begins_anywhere: bool,
}

/// The number of concurrent requests.
const TASKS: usize = 32;

/// Lists all keys and compares the result.
fn simulate(keys: &Arc<Vec<String>>, how: How) -> Took {
    let clock = Arc::new(Mutex::new(Clock::default()));
    let store = Arc::new(Store {
        keys: Arc::clone(keys),
        clock: Arc::clone(&clock),
        jitter: how.jitter,
        draw: Mutex::new(Draw::new(7)),
    });
    let ways = Ways {
        size: how.size,
        begins_anywhere: how.begins_anywhere,
        has_folders: false,
    };
    let run = Arc::new(Run::new(store, ways, String::new(), String::new()));
    let (sender, receiver) = mpsc::channel();
    let mut pool = LocalPool::new();
    for _ in 0..TASKS {
        let (run, sender) = (Arc::clone(&run), sender.clone());
        let task = async move { run.work(&sender).await };
        pool.spawner().spawn_local(task).unwrap();
    }
    drop(sender);
    let mut found = Vec::new();
    loop {
        pool.run_until_stalled();
        let before = found.len();
        for sent in receiver.try_iter() {
            found.extend(sent.objects.into_iter().map(|listed| listed.key));
        }
        // Receiving pages may have unblocked a task.
        if found.len() == before && !advance(&clock) {
            break;
        }
    }
    let (fault, is_whole) = run.outcome();
    assert!(fault.is_none() && is_whole, "{fault:?}");
    found.sort_unstable();
    assert!(found == **keys, "other keys");
    let clock = clock.lock().unwrap();
    Took {
        alone: (keys.len() as u64).div_ceil(u64::from(how.size)),
        // Each page waits once.
        calls: clock.next,
        rounds: clock.now as f64 / PAGE as f64,
    }
}

/// Returns the worst result for several seeds, with and without variation: the speedup and the relative number of
/// requests.
fn worst(shape: Shape, count: u64, size: u32, seeds: u64) -> (f64, f64) {
    let (mut times, mut calls) = (f64::MAX, 0.0f64);
    for seed in 0..seeds {
        let keys = Arc::new(keys(shape, count, seed).into_iter().collect());
        for jitter in [0, 40] {
            let how = How {
                size,
                jitter,
                begins_anywhere: true,
            };
            let took = simulate(&keys, how);
            times = times.min(took.times());
            calls = calls.max(took.calls_ratio());
        }
    }
    (times, calls)
}

#[test]
fn two_hundred_pages_are_listed_eight_times_as_fast() {
    for shape in SHAPES.into_iter().chain(OTHERS) {
        let (times, calls) = worst(shape, 20_000, 100, 1);
        println!("{shape:?}: {times:.1} times as fast, {calls:.2} times the pages");
        assert!(times >= 8.0 && calls <= 1.6, "{shape:?}");
    }
}

#[test]
fn parallel_listing_of_few_pages_is_not_slower() {
    for shape in SHAPES.into_iter().chain(OTHERS) {
        for pages in [1, 2, 3, 10] {
            let (times, calls) = worst(shape, pages * 100, 100, 2);
            // The last cut may come with the last page, and varied times differ in each run.
            let max = pages as f64 + if pages < 10 { 1.0 } else { 0.0 };
            assert!(
                times * max * 1.2 >= pages as f64,
                "{shape:?}: {times:.2} with {pages} pages"
            );
            assert!(
                calls * pages as f64 <= pages as f64 * 1.5 + 24.0,
                "{shape:?}: {calls:.2}"
            );
        }
    }
}

#[test]
fn store_without_start_after_is_listed_completely() {
    for shape in SHAPES.into_iter().chain(OTHERS) {
        let keys = Arc::new(keys(shape, 5000, 0).into_iter().collect());
        let how = How {
            size: 100,
            jitter: 0,
            begins_anywhere: false,
        };
        let took = simulate(&keys, how);
        println!(
            "{shape:?}: {:.1} times as fast, {:.2} times the pages",
            took.times(),
            took.calls_ratio()
        );
    }
}

/// The table of the reference: seeds, page sizes and numbers of keys, for each shape.
#[test]
#[ignore = "prints figures, and takes a minute"]
fn table_of_shapes() {
    for shape in SHAPES.into_iter().chain(OTHERS) {
        let cases = [
            (200_000, 1000, 3),
            (20_000, 100, 3),
            (60_000, 1000, 1),
            (10_000, 1000, 1),
            (200_000, 100, 1),
        ];
        let cells = cases.map(|(count, size, seeds)| {
            let (times, calls) = worst(shape, count, size, seeds);
            format!("{times:.1} ({calls:.2})")
        });
        println!("| {shape:?} | {} |", cells.join(" | "));
    }
}
