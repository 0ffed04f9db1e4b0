//! Concurrent listings of very many objects.
//!
//! The key space is divided into adjacent intervals, so no key is lost wherever the cuts are. A task lists an interval
//! page by page. An idle task cuts the interval that seems to have the most left in its middle, and takes the second
//! part. For that, keys are numbers, whose digits are the letters at which keys were seen to differ. A bad cut costs a
//! request that finds nothing, and such requests have a budget.

pub(super) mod plan;

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use plan::{Interval, Job, State, Ways};

use shardmill_core::{CancelToken, lock};

use super::engine::Task;
use super::handle::{Remote, SLICE};
use super::list::{EMPTY_PAGES, endless, first_prefix, page, roots, stray};
use super::live::Live;
use super::pages::{Listed, Page, Paging};
use super::sorted::{SortedListing, Spool};
use crate::error::StorageError;

/// The maximum number of pages that are waiting to be written to the disk.
const MAX_WAITING_PAGES: usize = 64;

/// The maximum number of folders that are listed separately, for stores where a listing cannot begin at any key.
const FOLDERS: usize = 1000;

/// Options of a listing.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ListOptions {
    /// The maximum number of concurrent requests.
    pub tasks: usize,
    /// The number of objects per page. Stores support at most 1,000.
    pub page: u32,
    /// The maximum number of objects.
    pub max: u64,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self {
            tasks: 32,
            page: 1000,
            max: Remote::MAX_LISTED,
        }
    }
}

/// The source of pages.
pub(super) trait Pages {
    fn page(&self, paging: Paging<'_>) -> impl Future<Output = Result<Page, StorageError>> + Send;
}

impl Pages for Arc<Live> {
    async fn page(&self, paging: Paging<'_>) -> Result<Page, StorageError> {
        page(self, paging).await
    }
}

/// The state that the tasks of a listing share.
pub(super) struct Run<P> {
    pages: P,
    pub(super) ways: Ways,
    wanted: String,
    state: Mutex<State>,
    changed: Notify,
    waiting_pages: Arc<Semaphore>,
}

/// A page that is waiting to be written to the disk.
pub(super) struct Sent {
    pub(super) objects: Vec<Listed>,
    _permit: OwnedSemaphorePermit,
}

impl<P: Pages> Run<P> {
    /// Creates a listing of the keys that begin with `begin`, of which those that begin with `wanted` are kept.
    pub(super) fn new(pages: P, ways: Ways, begin: String, wanted: String) -> Self {
        let run = Self {
            pages,
            ways,
            wanted,
            state: Mutex::default(),
            changed: Notify::new(),
            waiting_pages: Arc::new(Semaphore::new(MAX_WAITING_PAGES)),
        };
        run.state().add(Interval {
            prefix: begin,
            ..Interval::default()
        });
        run
    }

    /// Returns the failure, and whether everything was listed.
    pub(super) fn outcome(&self) -> (Option<StorageError>, bool) {
        let mut state = self.state();
        (state.failed.take(), state.intervals.is_empty())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    async fn send(&self, out: &Sender<Sent>, objects: Vec<Listed>) -> Result<(), StorageError> {
        if objects.is_empty() {
            return Ok(());
        }
        let permit = Arc::clone(&self.waiting_pages).acquire_owned().await;
        let sent = Sent {
            objects,
            _permit: permit.map_err(|_| StorageError::NoAnswer)?,
        };
        // The receiver was dropped: the task is being cancelled.
        out.send(sent).map_err(|_| StorageError::Interrupted)
    }

    async fn ask(&self, paging: Paging<'_>) -> Result<Page, StorageError> {
        self.state().requests.active += 1;
        let answer = self.pages.page(paging).await;
        let mut state = self.state();
        state.requests.active -= 1;
        state.requests.answered += 1;
        answer
    }

    /// Runs jobs until nothing is left.
    pub(super) async fn work(&self, out: &Sender<Sent>) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let job = {
                let mut state = self.state();
                if state.is_over() {
                    return;
                }
                match state.waiting.pop() {
                    Some(id) => Some(Job::List(id)),
                    None => state.steal(self.ways),
                }
            };
            // PERF: only a task that found a job wakes the next one. The search for a job is expensive, and all tasks
            // would do it after each page.
            if job.is_some() {
                self.changed.notify_one();
            }
            let done = match job {
                None => {
                    changed.await;
                    continue;
                }
                Some(Job::List(id)) => self.list(id, out).await,
                Some(Job::Fold(id, folder)) => {
                    let done = self.fold(id, &folder, out).await;
                    self.state().folders.active.remove(&folder);
                    done
                }
            };
            let is_over = {
                let mut state = self.state();
                if let Err(fault) = done {
                    state.failed.get_or_insert(fault);
                }
                state.is_over()
            };
            if is_over {
                self.changed.notify_waiters();
            }
            self.changed.notify_one();
        }
    }

    /// Lists an interval to its end.
    async fn list(&self, id: u64, out: &Sender<Sent>) -> Result<(), StorageError> {
        let mut empty = 0;
        loop {
            let Some(interval) = self.state().intervals.get(&id).cloned() else {
                return Ok(());
            };
            let after = interval.pos.as_deref().or(interval.after.as_deref());
            let answer = self
                .ask(Paging {
                    prefix: &interval.prefix,
                    folded: false,
                    after: after.filter(|_| self.ways.begins_anywhere),
                    token: interval.token.as_deref(),
                    max: self.ways.size,
                })
                .await?;
            let Page {
                mut objects,
                prefixes,
                next,
            } = answer;
            empty = if objects.is_empty() && prefixes.is_empty() {
                empty + 1
            } else {
                0
            };
            if empty > EMPTY_PAGES || next.is_some() && next == interval.token {
                return Err(endless());
            }
            self.check(&interval, after, &objects)?;
            let more = {
                let mut state = self.state();
                if self.ways.has_folders {
                    objects.retain(|listed| listed.key.starts_with(&self.wanted));
                    for prefix in prefixes {
                        let leads =
                            prefix.starts_with(&self.wanted) || self.wanted.starts_with(&prefix);
                        if leads && prefix.len() > interval.prefix.len() {
                            state.add(Interval {
                                prefix,
                                ..Interval::default()
                            });
                        }
                    }
                }
                state.learn(&interval, &objects);
                // Another task may have cut the interval while the request was in flight.
                let end = state.intervals.get(&id).and_then(|known| known.end.clone());
                let was_past = end.as_ref().is_some_and(|end| {
                    let past = objects.partition_point(|listed| listed.key <= *end);
                    let is_past = past < objects.len();
                    objects.truncate(past);
                    is_past
                });
                state.keys += objects.len() as u64;
                // The first page after a cut shows whether the cut was good.
                if let (None, Some(cut), true) = (&interval.pos, after, objects.is_empty()) {
                    state.refute(cut);
                }
                let has_more = next.is_some() && !was_past;
                if has_more {
                    if let Some(known) = state.intervals.get_mut(&id) {
                        if let (Some(first), Some(last)) = (objects.first(), objects.last()) {
                            known.from.clone_from(&first.key);
                            known.pos = Some(last.key.clone());
                            known.pages += 1;
                        }
                        known.token = next.filter(|_| !self.ways.begins_anywhere);
                    }
                } else {
                    state.intervals.remove(&id);
                }
                has_more && state.failed.is_none()
            };
            self.send(out, objects).await?;
            self.changed.notify_one();
            if !more {
                return Ok(());
            }
        }
    }

    /// Checks that a page is valid: sorted, in the interval and after the previous page.
    fn check(
        &self,
        interval: &Interval,
        after: Option<&str>,
        objects: &[Listed],
    ) -> Result<(), StorageError> {
        let strays = |listed: &Listed| !listed.key.starts_with(&interval.prefix);
        if objects.iter().any(strays) {
            return Err(stray());
        }
        if self.ways.has_folders {
            return Ok(());
        }
        if !objects.is_sorted_by(|a, b| a.key < b.key) {
            return Err(StorageError::Answer {
                what: "a listing out of order".into(),
            });
        }
        let begins = objects.first().map(|listed| listed.key.as_str());
        if self.ways.begins_anywhere && begins.is_some() && begins <= after {
            return Err(endless());
        }
        Ok(())
    }

    /// Lists the folders below a prefix, and cuts the interval by them.
    async fn fold(&self, id: u64, folder: &str, out: &Sender<Sent>) -> Result<(), StorageError> {
        let mut all = Page::default();
        loop {
            let found = self
                .ask(Paging {
                    prefix: folder,
                    folded: true,
                    after: None,
                    token: all.next.as_deref(),
                    max: self.ways.size,
                })
                .await?;
            all.prefixes.extend(found.prefixes);
            all.objects.extend(found.objects);
            all.next = found.next;
            if all.next.is_none() {
                break;
            }
            if all.prefixes.len() + all.objects.len() > FOLDERS {
                // Too many to list one by one: the interval continues as before.
                return Ok(());
            }
        }
        let objects = {
            let mut state = self.state();
            let objects = state.part_by_folders(id, folder, all);
            state.keys += objects.len() as u64;
            objects
        };
        self.send(out, objects).await
    }
}

impl Remote {
    /// Lists the objects whose names begin with `prefix`, sorted by the bytes of their names. Pages are written at once
    /// to an unnamed file in `temp_dir`, or in the temporary directory of the system, so the listing needs only some
    /// hundred bytes of memory per page. `cancel` is called with the number of objects so far.
    ///
    /// # Errors
    ///
    /// [`StorageError::At`]; `limit-list` if there are more objects than the options allow.
    /// Errors of writing the file.
    pub fn list_sorted(
        &self,
        prefix: &str,
        temp_dir: Option<&Path>,
        options: &ListOptions,
        cancel: &mut CancelToken<'_>,
    ) -> Result<SortedListing, StorageError> {
        let failed = |fault| self.error(prefix, fault);
        let live = self.live().map_err(failed)?;
        if std::thread::current().id() == live.engine.thread {
            return Err(failed(StorageError::NoAnswer));
        }
        let kind = live.signer.kind();
        let (root, wanted) = roots(&live, prefix);
        let has_folders = kind.has_folders();
        let begin = first_prefix(&live, &wanted);
        let ways = Ways {
            size: options.page.clamp(1, 1000),
            begins_anywhere: kind.can_begin_anywhere(),
            has_folders,
        };
        let run = Arc::new(Run::new(Arc::clone(&live), ways, begin, wanted));
        let (sender, receiver) = mpsc::channel::<Sent>();
        let tasks = (0..options.tasks.clamp(1, 1024)).map(|_| {
            let (run, sender) = (Arc::clone(&run), sender.clone());
            let task = live
                .engine
                .handle
                .spawn(async move { run.work(&sender).await });
            Task(task.abort_handle())
        });
        let _tasks: Vec<Task> = tasks.collect();
        drop(sender);
        let mut spool = Spool::new(temp_dir)?;
        let mut count = 0;
        loop {
            match receiver.recv_timeout(SLICE) {
                Ok(sent) => {
                    count += sent.objects.len() as u64;
                    if count > options.max {
                        let max = options.max;
                        return Err(failed(StorageError::TooMany { max }));
                    }
                    spool.push(&root, sent.objects)?;
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !cancel(count) {
                return Err(failed(StorageError::Interrupted));
            }
        }
        match run.outcome() {
            (Some(fault), _) => Err(failed(fault)),
            (None, false) => Err(failed(StorageError::NoAnswer)),
            (None, true) => Ok(spool.sorted()),
        }
    }
}
