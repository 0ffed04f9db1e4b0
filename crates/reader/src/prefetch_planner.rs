//! Computes the order of the next epoch while this one is read, and passes the accesses of both epochs to the cache.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use shardmill_core::{Error, lock};
use shardmill_order::{Epoch, EpochConfig};

use crate::context::FillContext;
use crate::walks::Walks;
use shardmill_cache::AccessPlan;
use shardmill_dataset::Catalog;

/// The known accesses of this epoch and the next.
#[derive(Debug)]
pub(crate) struct PrefetchPlanner {
    context: Arc<FillContext>,
    walks: Walks,
    known: Mutex<Known>,
    /// The order of the current epoch, until its checkpoints of the random generator are saved.
    unkept: Mutex<Option<Epoch>>,
    /// The order of the next epoch, while a thread computes it.
    ahead: Mutex<Option<Ahead>>,
}

#[derive(Debug)]
struct Ahead {
    config: EpochConfig,
    node: u64,
    thread: JoinHandle<Option<Epoch>>,
}

#[derive(Debug)]
struct Known {
    access_plan: AccessPlan,
    /// The epoch that was last added to the access plan, its node and its first tick.
    last: Option<(EpochConfig, u64, u64)>,
}

impl PrefetchPlanner {
    pub(crate) fn new(context: Arc<FillContext>) -> Self {
        let access_plan = AccessPlan::new(context.catalog.len());
        Self {
            walks: Walks::new(&context.catalog),
            unkept: Mutex::new(None),
            context,
            known: Mutex::new(Known {
                access_plan,
                last: None,
            }),
            ahead: Mutex::new(None),
        }
    }

    /// Returns the order of an epoch that a rank of `node` starts to read, and the tick of its first batch.
    pub(crate) fn begin(&self, config: &EpochConfig, node: u64) -> Result<(Epoch, u64), Error> {
        let ahead = lock(&self.ahead).take();
        let made = ahead.and_then(|ahead| {
            let wanted = ahead.node == node && ahead.config.is_same_order(config);
            let epoch = ahead.thread.join().ok().flatten();
            epoch.filter(|_| wanted)
        });
        let epoch = match made {
            Some(epoch) => epoch,
            None => self.walks.order(config)?,
        };
        // Saved later, by `prefetch_next`: a write must not delay the first batch.
        *lock(&self.unkept) = Some(epoch.clone());
        if !self.context.catalog.is_cached() {
            return Ok((epoch, 0));
        }
        let mut known = lock(&self.known);
        let tick = known.last.as_ref().and_then(|(last, of, tick)| {
            (*of == node && last.is_same_order(config)).then_some(*tick)
        });
        let engine = self.context.shard_cache.engine()?;
        // The cache must know the epoch before it evicts for the new plan. An epoch that was not predicted begins at
        // tick 0.
        engine.begin_epoch(epoch.resolved().epoch, tick.unwrap_or(0));
        let tick = match tick {
            Some(tick) => {
                // The prediction was right: shards that were prefetched for it stay.
                known.access_plan.forget(tick);
                engine.set_plan(known.access_plan.clone(), None);
                engine.move_to(tick);
                tick
            }
            None => {
                // The caller reads another epoch than predicted: discard the old plan.
                known.access_plan = AccessPlan::new(self.context.catalog.len());
                known.last = None;
                let tick = known.add(config, node, &epoch, &self.context.catalog);
                engine.set_plan(known.access_plan.clone(), Some(tick));
                tick
            }
        };
        Ok((epoch, tick))
    }

    /// Starts a thread that computes the order of the next epoch. If the thread cannot start, `begin` computes the
    /// order.
    pub(crate) fn prepare(self: &Arc<Self>, config: EpochConfig, node: u64) {
        let mut ahead = lock(&self.ahead);
        if ahead
            .as_ref()
            .is_some_and(|ahead| ahead.node == node && ahead.config.is_same_order(&config))
        {
            return;
        }
        let (own, wanted) = (Arc::clone(self), config.clone());
        let thread = std::thread::Builder::new()
            .name("shardmill-order".to_owned())
            .spawn(move || own.prefetch_next(&wanted, node));
        *ahead = thread.ok().map(|thread| Ahead {
            config,
            node,
            thread,
        });
    }

    /// Computes an order and passes its accesses to the cache. Errors are ignored: `begin` will report them.
    fn prefetch_next(&self, config: &EpochConfig, node: u64) -> Option<Epoch> {
        let unkept = lock(&self.unkept).take();
        if let Some(epoch) = unkept {
            self.walks.keep(&epoch);
        }
        let epoch = self.walks.order(config).ok()?;
        self.walks.keep(&epoch);
        if self.context.catalog.is_cached() {
            let mut known = lock(&self.known);
            known.add(config, node, &epoch, &self.context.catalog);
            let access_plan = known.access_plan.clone();
            drop(known);
            let engine = self.context.shard_cache.engine().ok()?;
            engine.set_plan(access_plan, None);
        }
        Some(epoch)
    }

    /// Waits for the thread that computes the next order.
    pub(crate) fn stop(&self) {
        let ahead = lock(&self.ahead).take();
        if let Some(ahead) = ahead {
            // The result is not needed any more.
            drop(ahead.thread.join());
        }
    }
}

impl Known {
    /// Appends an epoch to the access plan and returns its first tick.
    fn add(&mut self, config: &EpochConfig, node: u64, epoch: &Epoch, catalog: &Catalog) -> u64 {
        let tick = self.access_plan.end();
        let ranks = config.world.ranks_per_node;
        let is_file = |shard: usize| {
            catalog
                .entry(shard)
                .is_some_and(|entry| entry.raw_file().is_some())
        };
        let file_of = |sample: u64| {
            let (shard, _) = catalog.locate(sample)?;
            is_file(shard).then_some(shard)
        };
        let exact = catalog
            .has_files()
            .then(|| epoch.exact_access_schedule_of_node(node, ranks, &file_of, &is_file));
        let uses = match exact {
            Some(Ok(uses)) => uses,
            // Files whose accesses cannot be predicted are fetched on demand.
            Some(Err(_)) | None => epoch.access_schedule_of_node(node, ranks),
        };
        // A window needs the shards of the neighbours at the same time.
        let uses = match catalog.window() {
            Some(_) => uses.with_windows(&|shard| catalog.window_shards(shard)),
            None => uses,
        };
        self.access_plan.push(&uses, epoch.batches());
        self.last = Some((config.clone(), node, tick));
        tick
    }
}
