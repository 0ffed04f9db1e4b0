//! The claim of one writer on a folder, wherever it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::StorageError;
use crate::fault::RemoteFault;
use crate::lease::Lease;
use crate::place::Place;
use crate::remote::{GoOn, Remote, random_number};

/// How long a lease in a store may go without a sign of life before another writer takes it.
pub const LEASE_PATIENCE: Duration = Duration::from_secs(15);

/// Most bytes of a lease.
const MOST: u64 = 1 << 10;

/// How often somebody who waits reads the lease, at least.
const LOOK: Duration = Duration::from_millis(500);

/// How often somebody who waits is asked whether to go on.
const SLICE: Duration = Duration::from_millis(50);

/// The claim of one writer on a folder of a [`Place`]. It saves work and names the other writer; correctness rests on
/// publishing, not on it.
///
/// In a directory it is a [`Lease`]. In a store it is an object that is put where there is none, and put again four times
/// in `patience`: a writer that finds it waits that long for a change, and takes it where there is none. No clock is
/// compared with that of another machine.
#[derive(Debug)]
pub struct PlaceLease(Kind);

#[derive(Debug)]
enum Kind {
    Local(Lease),
    Store(StoreLease),
}

#[derive(Debug)]
struct StoreLease {
    remote: Remote,
    name: String,
    shared: Arc<Shared>,
    heart: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ended: Mutex<bool>,
    wake: Condvar,
    lost: AtomicBool,
}

impl PlaceLease {
    /// Claims the lease `name` of a place.
    ///
    /// # Errors
    ///
    /// `other-writer`, which is a conflict, when somebody else has it; `interrupted`; what the disk or the store says.
    pub fn acquire(
        place: &Place,
        name: &str,
        patience: Duration,
        go_on: &mut GoOn<'_>,
    ) -> Result<Self, StorageError> {
        let store = match place {
            Place::Local(dir) => return Lease::acquire(dir, name).map(|it| Self(Kind::Local(it))),
            Place::Store(store) => store,
        };
        let remote = store.remote();
        let owner = format!("{:016x}", random_number());
        claim(remote, name, &owner, patience, go_on)?;
        let shared = Arc::new(Shared::default());
        let beating = Beating {
            remote: remote.clone(),
            name: name.to_owned(),
            owner,
            every: patience / 4,
            shared: Arc::clone(&shared),
        };
        let heart = std::thread::Builder::new()
            .name("shardmill-lease".to_owned())
            .spawn(move || beating.run())
            .map_err(|error| StorageError::Remote {
                url: remote.display(name),
                fault: RemoteFault::NoStart {
                    reason: error.to_string(),
                },
            })?;
        Ok(Self(Kind::Store(StoreLease {
            remote: remote.clone(),
            name: name.to_owned(),
            shared,
            heart: Some(heart),
        })))
    }

    /// Whether other writers are kept away: some file systems have no locks, and in a store a lease may be lost.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        match &self.0 {
            Kind::Local(lease) => lease.is_exclusive(),
            Kind::Store(_) => !self.is_lost(),
        }
    }

    /// Whether another writer has taken the lease meanwhile: this one was silent for too long.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &self.0 {
            Kind::Local(_) => false,
            Kind::Store(lease) => lease.shared.lost.load(Ordering::Relaxed),
        }
    }

    /// Ends the lease, and removes the folder that it is in if nothing else is there.
    ///
    /// # Errors
    ///
    /// As [`Lease::end`] and [`Remote::remove`].
    pub fn end(self, go_on: &mut GoOn<'_>) -> Result<(), StorageError> {
        match self.0 {
            Kind::Local(lease) => lease.end(),
            Kind::Store(mut lease) => {
                lease.stop();
                lease.release(go_on)
            }
        }
    }

    /// Ends the lease and removes the folder that it is in, with all that is in it, the lease last.
    ///
    /// # Errors
    ///
    /// As [`Lease::remove_folder`], [`Remote::list`] and [`Remote::remove`].
    pub fn remove_folder(self, spared: &[&str], go_on: &mut GoOn<'_>) -> Result<(), StorageError> {
        let mut lease = match self.0 {
            Kind::Local(lease) => return lease.remove_folder(spared),
            Kind::Store(lease) => lease,
        };
        lease.stop();
        if let Some((folder, _)) = lease.name.rsplit_once('/') {
            let inside = format!("{folder}/");
            let objects = lease.remote.list(&inside, Remote::LIST_MOST, go_on)?;
            let is_spared = |name: &str| {
                let name = name.strip_prefix(&inside).unwrap_or(name);
                let first = name.split('/').next();
                first.is_some_and(|first| spared.contains(&first))
            };
            // A log goes from its end, so that what is left of it in between is a log.
            for object in objects.into_iter().rev() {
                // What is no name of ours was not put by a writer.
                if object.name != lease.name
                    && !is_spared(&object.name)
                    && shardmill_core::check_relative_path(&object.name).is_ok()
                {
                    lease.remote.remove(&object.name, go_on)?;
                }
            }
        }
        lease.release(go_on)
    }
}

impl StoreLease {
    fn stop(&mut self) {
        *self
            .shared
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.wake.notify_all();
        if let Some(heart) = self.heart.take() {
            // It does not panic, and there would be nothing to do about it.
            let _ = heart.join();
        }
    }

    fn release(&self, go_on: &mut GoOn<'_>) -> Result<(), StorageError> {
        if self.shared.lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.remote.remove(&self.name, go_on)
    }
}

impl Drop for StoreLease {
    fn drop(&mut self) {
        if self.heart.is_none() {
            return;
        }
        self.stop();
        // The next writer takes it after a while, where this fails.
        let began = Instant::now();
        let _ = self.release(&mut |_| began.elapsed() < Duration::from_secs(2));
    }
}

/// Puts the lease where there is none, or where the one that is there shows no sign of life.
fn claim(
    remote: &Remote,
    name: &str,
    owner: &str,
    patience: Duration,
    go_on: &mut GoOn<'_>,
) -> Result<(), StorageError> {
    /// Each one loses to another writer that came in this moment.
    const ATTEMPTS: usize = 8;

    let other = || StorageError::Remote {
        url: remote.display(name),
        fault: RemoteFault::OtherWriter,
    };
    for _ in 0..ATTEMPTS {
        match remote.put_new(name, sign(owner, 0).into_bytes(), go_on) {
            Ok(_) => return Ok(()),
            Err(StorageError::Remote {
                fault: RemoteFault::Exists,
                ..
            }) => {}
            Err(error) => return Err(error),
        }
        let Some(mut first) = read(remote, name, go_on)? else {
            continue;
        };
        let began = Instant::now();
        let mut looked = began;
        let is_gone = loop {
            if !go_on(0) {
                return Err(remote.interrupted());
            }
            std::thread::sleep(SLICE.min(patience));
            let is_over = began.elapsed() >= patience;
            if !is_over && looked.elapsed() < LOOK.min(patience / 8) {
                continue;
            }
            looked = Instant::now();
            match read(remote, name, go_on)? {
                None => break true,
                Some(Some(now)) => match &first {
                    Some(first) if *first != now => return Err(other()),
                    _ => first = Some(now),
                },
                Some(None) => {}
            }
            if is_over {
                break false;
            }
        };
        if !is_gone {
            remote.remove(name, go_on)?;
        }
    }
    Err(other())
}

/// What a lease says: who has it, and how often it was put.
fn sign(owner: &str, beat: u64) -> String {
    format!("{owner} {beat}\n")
}

/// Reads what a lease says. `Some(None)` is an object that says nothing of the kind: an answer may be a page of a proxy.
fn read(
    remote: &Remote,
    name: &str,
    go_on: &mut GoOn<'_>,
) -> Result<Option<Option<(String, u64)>>, StorageError> {
    match remote.read_anew(name, MOST, go_on) {
        Ok(bytes) => Ok(Some(std::str::from_utf8(&bytes).ok().and_then(parse))),
        Err(StorageError::Remote {
            fault: RemoteFault::TooLarge { .. },
            ..
        }) => Ok(Some(None)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse(text: &str) -> Option<(String, u64)> {
    let (owner, beat) = text.strip_suffix('\n')?.split_once(' ')?;
    let is_owner = owner.len() == 16 && owner.bytes().all(|byte| byte.is_ascii_hexdigit());
    let beat = beat.parse().ok()?;
    is_owner.then(|| (owner.to_owned(), beat))
}

/// The thread that gives signs of life.
struct Beating {
    remote: Remote,
    name: String,
    owner: String,
    every: Duration,
    shared: Arc<Shared>,
}

impl Beating {
    fn run(&self) {
        let mut beat = 0_u64;
        loop {
            let ended = self
                .shared
                .ended
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let (ended, _) = self
                .shared
                .wake
                .wait_timeout_while(ended, self.every, |ended| !*ended)
                .unwrap_or_else(PoisonError::into_inner);
            if *ended {
                return;
            }
            drop(ended);
            beat += 1;
            let go_on = &mut |_| {
                !*self
                    .shared
                    .ended
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
            };
            // A store that does not answer now may do so the next time; the lease is not what data rests on.
            let Ok(found) = read(&self.remote, &self.name, go_on) else {
                continue;
            };
            if let Some(Some((owner, _))) = found
                && owner != self.owner
            {
                self.shared.lost.store(true, Ordering::Relaxed);
                return;
            }
            let text = sign(&self.owner, beat).into_bytes();
            let _ = self.remote.put(&self.name, text, go_on);
        }
    }
}
