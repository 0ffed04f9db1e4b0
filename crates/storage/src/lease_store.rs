//! The lease of one writer on a folder, in a directory or in a store.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shardmill_core::CancelToken;

use crate::destination::Destination;
use crate::error::StorageError;
use crate::heartbeat::{Heartbeat, LeaseWait, Moment, Sign};
use crate::lease::Lease;
use crate::random::random_number;
use crate::remote::Remote;

/// How long a lease in a store may be without a heartbeat before another writer takes it over.
pub const LEASE_PATIENCE: Duration = Duration::from_secs(15);

/// The shortest time that its holder assumes a lease to last, even if other writers wait for less. A slow store or a
/// busy machine is no reason to stop.
const MIN_WAIT: Duration = Duration::from_secs(5);

/// The shortest interval between two heartbeats.
const OFTEN: Duration = Duration::from_millis(20);

/// The maximum number of bytes of a lease object.
const MAX_BYTES: u64 = 1 << 10;

/// The longest interval at which a waiting writer reads the lease.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The interval at which a waiting writer checks for cancellation.
const SLICE: Duration = Duration::from_millis(50);

/// The shortest wait that is announced.
const ANNOUNCED: Duration = Duration::from_secs(1);

/// An exclusive lock of one writer on a folder of a [`Destination`]. It avoids wasted work and names the other writer.
/// Correctness depends on atomic publishing, not on the lease.
///
/// In a directory it is a [`Lease`]. In a store it is an object that the writer creates only if it does not exist. The
/// writer renews the object four times per `patience`, or four times per 15 seconds if `patience` is longer. Another
/// writer that finds the object waits `patience` for a change, and takes the lease over if there is none. The clocks of
/// different machines are never compared.
///
/// Each request that uploads or removes data through this destination first checks the lease. If the last heartbeat is
/// older than half of `patience`, the lease object is read first. Here `patience` counts as at least 5 and at most 15
/// seconds, and the clocks include the time that the machine is suspended. If the object is missing or belongs to
/// another writer, the lease is lost, and the request fails with `other-writer`.
#[derive(Debug)]
pub struct DestinationLease(Kind);

#[derive(Debug)]
enum Kind {
    Local(Lease),
    Store(StoreLease),
}

#[derive(Debug)]
struct StoreLease {
    held: HeldLease,
    /// For the other objects in the folder.
    data: Remote,
    heart: Option<JoinHandle<()>>,
}

/// A lease that this writer acquired, as the thread of its heartbeat sees it too.
#[derive(Clone, Debug)]
struct HeldLease {
    /// For the lease object.
    remote: Remote,
    name: String,
    owner: String,
    heartbeat: Arc<Heartbeat>,
}

impl DestinationLease {
    /// Acquires the lease `name` of a destination. Calls `cancel` while it waits; `false` cancels the wait.
    ///
    /// # Errors
    ///
    /// `other-writer`, a conflict, when another writer holds it; `store-unguarded` when a store overwrites the lease
    /// although it exists, unless the setting [`SINGLE_WRITER`](crate::SINGLE_WRITER) is true; `interrupted`; errors of
    /// the file system or the store.
    pub fn acquire(
        destination: &Destination,
        name: &str,
        patience: Duration,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Self, StorageError> {
        let store = match destination {
            Destination::Local(dir) => {
                return Lease::acquire(dir, name).map(|it| Self(Kind::Local(it)));
            }
            Destination::Store(store) => store,
        };
        let remote = store.remote().for_lease();
        let owner = format!("{:016x}", random_number());
        let last = claim(&remote, name, &owner, patience, cancel)?;
        // Other writers may wait for less time than this one does.
        let every = (patience.min(LEASE_PATIENCE) / 4).max(OFTEN);
        let lasts = patience.clamp(MIN_WAIT, LEASE_PATIENCE);
        let heartbeat = Arc::new(Heartbeat::new(every, lasts, last));
        store.remote().leases().add(Arc::downgrade(&heartbeat));
        let held = HeldLease {
            remote,
            name: name.to_owned(),
            owner,
            heartbeat,
        };
        let beating = held.clone();
        let heart = std::thread::Builder::new()
            .name("shardmill-lease".to_owned())
            .spawn(move || beating.run())
            .map_err(|error| {
                let reason = error.to_string();
                StorageError::NoStart { reason }.at(held.remote.display(name))
            })?;
        Ok(Self(Kind::Store(StoreLease {
            held,
            data: store.remote().clone(),
            heart: Some(heart),
        })))
    }

    /// Returns whether other writers are excluded. Some file systems have no locks, and a lease in a store can be lost.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        match &self.0 {
            Kind::Local(lease) => lease.is_exclusive(),
            Kind::Store(_) => !self.is_lost(),
        }
    }

    /// Returns whether another writer is known to have taken the lease over because this one sent no heartbeat for too
    /// long.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &self.0 {
            Kind::Local(_) => false,
            Kind::Store(lease) => lease.held.heartbeat.is_lost(),
        }
    }

    /// Ends the lease, and removes its folder if nothing else is in it.
    /// Errors are those of [`Lease::end`] and [`Remote::remove`].
    pub fn end(self, cancel: &mut CancelToken<'_>) -> Result<(), StorageError> {
        match self.0 {
            Kind::Local(lease) => lease.end(),
            Kind::Store(mut lease) => {
                lease.stop();
                lease.held.release(cancel)
            }
        }
    }

    /// Ends the lease and removes its folder with all contents except the entries named in `spared`. The lease is
    /// removed last. Errors are those of [`Lease::remove_folder`], [`Remote::list`] and [`Remote::remove`].
    pub fn remove_folder(
        self,
        spared: &[&str],
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError> {
        let mut lease = match self.0 {
            Kind::Local(lease) => return lease.remove_folder(spared),
            Kind::Store(lease) => lease,
        };
        // The lease still excludes other writers here.
        match lease.clear_folder(spared, cancel) {
            // The contents belong to another writer now.
            Err(_) if lease.held.heartbeat.is_lost() => {}
            cleared => cleared?,
        }
        lease.stop();
        lease.held.release(cancel)
    }
}

impl StoreLease {
    /// Removes all objects in the folder of the lease, except the lease itself and everything below the names in
    /// `spared`.
    fn clear_folder(
        &self,
        spared: &[&str],
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError> {
        if let Some((folder, _)) = self.held.name.rsplit_once('/') {
            let inside = format!("{folder}/");
            let objects = self.data.list(&inside, Remote::MAX_LISTED, cancel)?;
            let is_spared = |name: &str| {
                let name = name.strip_prefix(&inside).unwrap_or(name);
                let first = name.split('/').next();
                first.is_some_and(|first| spared.contains(&first))
            };
            // Remove a log from its end, so that the remaining objects are always a prefix of the log.
            for object in objects.into_iter().rev() {
                // No writer uploads objects with invalid names, so these are kept.
                if object.name != self.held.name
                    && !is_spared(&object.name)
                    && shardmill_core::check_relative_path(&object.name).is_ok()
                {
                    self.data.remove(&object.name, cancel)?;
                }
            }
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.held.heartbeat.end();
        if let Some(heart) = self.heart.take() {
            // The thread does not panic, and a panic could not be handled here.
            let _ = heart.join();
        }
    }
}

impl Drop for StoreLease {
    fn drop(&mut self) {
        if self.heart.is_none() {
            return;
        }
        self.stop();
        // If this fails, the next writer takes the lease over after its `patience`.
        let began = Instant::now();
        let _ = self
            .held
            .release(&mut |_| began.elapsed() < Duration::from_secs(2));
    }
}

/// Creates the lease, or takes it over if its holder sends no heartbeat. Returns a time before the upload.
fn claim(
    remote: &Remote,
    name: &str,
    owner: &str,
    patience: Duration,
    cancel: &mut CancelToken<'_>,
) -> Result<Moment, StorageError> {
    /// An attempt fails only if another writer acquires the lease at the same moment.
    const ATTEMPTS: usize = 8;

    let other = || StorageError::LeaseHeld.at(remote.display(name));
    let mut was_silent = false;
    let mut is_announced = patience < ANNOUNCED;
    for _ in 0..ATTEMPTS {
        let at = Moment::now();
        // It is read first, because a store may overwrite the lease of another writer.
        let Some(mut first) = read(remote, name, cancel)? else {
            match remote.put_new(name, sign(owner, 0).into_bytes(), cancel) {
                Ok(_) => check_guard(remote, name, owner, cancel)?,
                Err(error) if matches!(error.fault(), StorageError::ObjectExists) => continue,
                Err(error) => return Err(error),
            }
            if was_silent {
                // The previous holder may be running again, and may have read its lease just before it was removed.
                wait(remote, POLL_INTERVAL.min(patience / 8), cancel)?;
                if !is_of(remote, name, owner, cancel)? {
                    return Err(other());
                }
            }
            return Ok(at);
        };
        if !std::mem::replace(&mut is_announced, true) {
            remote.lease_wait(&LeaseWait {
                url: remote.display(name),
                owner: first.as_ref().map(|(owner, _)| owner.clone()),
                patience,
            });
        }
        let began = Instant::now();
        let mut checked = began;
        let is_gone = loop {
            if !cancel(0) {
                return Err(remote.interrupted());
            }
            std::thread::sleep(SLICE.min(patience));
            let is_over = began.elapsed() >= patience;
            if !is_over && checked.elapsed() < POLL_INTERVAL.min(patience / 8) {
                continue;
            }
            checked = Instant::now();
            match read(remote, name, cancel)? {
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
            was_silent = true;
            remote.remove(name, cancel)?;
        }
    }
    Err(other())
}

/// Checks that the store refuses to create the lease again, unless the user declares that there is one writer. Otherwise
/// removes the lease, and fails.
fn check_guard(
    remote: &Remote,
    name: &str,
    owner: &str,
    cancel: &mut CancelToken<'_>,
) -> Result<(), StorageError> {
    if remote.is_single_writer() {
        return Ok(());
    }
    let bytes = || sign(owner, 0).into_bytes();
    // Another writer that waited for the previous lease may just have removed this one. It does so once.
    let first = remote.try_overwrite(name, bytes(), cancel)?;
    let Some(why) = first.map_or(Ok(None), |_| remote.try_overwrite(name, bytes(), cancel))? else {
        return Ok(());
    };
    if is_of(remote, name, owner, cancel)? {
        remote.remove(name, cancel)?;
    }
    Err(StorageError::Unguarded { why }.at(remote.display("")))
}

/// Returns whether this writer holds the lease.
fn is_of(
    remote: &Remote,
    name: &str,
    owner: &str,
    cancel: &mut CancelToken<'_>,
) -> Result<bool, StorageError> {
    let found = read(remote, name, cancel)?.flatten();
    Ok(found.is_some_and(|(found, _)| found == owner))
}

/// Waits for `time`, or until the caller cancels.
fn wait(remote: &Remote, time: Duration, cancel: &mut CancelToken<'_>) -> Result<(), StorageError> {
    let began = Instant::now();
    while began.elapsed() < time {
        if !cancel(0) {
            return Err(remote.interrupted());
        }
        std::thread::sleep(SLICE.min(time));
    }
    Ok(())
}

/// Returns the contents of a lease: its owner and the number of its heartbeat.
fn sign(owner: &str, beat: u64) -> String {
    format!("{owner} {beat}\n")
}

/// Reads the contents of a lease. `Some(None)` is an object with other contents, such as an error page of a proxy.
fn read(
    remote: &Remote,
    name: &str,
    cancel: &mut CancelToken<'_>,
) -> Result<Option<Option<(String, u64)>>, StorageError> {
    match remote.read_anew(name, MAX_BYTES, cancel) {
        Ok(bytes) => Ok(Some(std::str::from_utf8(&bytes).ok().and_then(parse))),
        Err(error) if matches!(error.fault(), StorageError::ObjectTooLarge { .. }) => {
            Ok(Some(None))
        }
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

impl HeldLease {
    fn release(&self, cancel: &mut CancelToken<'_>) -> Result<(), StorageError> {
        // INVARIANT: a lease that another writer holds by now is kept. `stop` has ended the heartbeat, so only the
        // clock tells whether that is possible.
        if self.heartbeat.is_lost() {
            return Ok(());
        }
        let is_sure = !self.heartbeat.is_old() && !self.remote.is_single_writer();
        match is_sure || is_of(&self.remote, &self.name, &self.owner, cancel)? {
            true => self.remote.remove(&self.name, cancel),
            false => Ok(()),
        }
    }

    /// Sends heartbeats until the lease ends.
    fn run(&self) {
        let mut beat = 0_u64;
        let mut has_failed = false;
        while self.heartbeat.wait(has_failed) {
            beat += 1;
            match self.beat(beat) {
                Sign::Held => has_failed = false,
                // The store may answer the next attempt. Writers wait for that.
                Sign::Silent => has_failed = true,
                Sign::Lost => {
                    self.heartbeat.lose();
                    return;
                }
            }
        }
    }

    /// Reads the lease, and renews it if this writer still holds it.
    fn beat(&self, beat: u64) -> Sign {
        let began = Moment::now();
        // A slow answer describes the past, not the present.
        let lasts = self.heartbeat.lasts();
        let is_recent = || began.elapsed() < lasts / 2;
        let cancel = &mut |_| !self.heartbeat.is_ended() && is_recent();
        let mut read = || read(&self.remote, &self.name, cancel);
        let found = match read() {
            // Only this writer, or one that found it silent, removes the lease. Some proxies answer 404 for hosts they
            // cannot reach, so it is read twice.
            Ok(None) => read(),
            found => found,
        };
        match found {
            Ok(Some(Some((owner, _)))) if owner == self.owner => {}
            Ok(Some(Some(_)) | None) => return Sign::Lost,
            // Other contents are a page of a proxy.
            Ok(Some(None)) | Err(_) => return Sign::Silent,
        }
        if !is_recent() {
            return Sign::Silent;
        }
        let text = sign(&self.owner, beat).into_bytes();
        let put = self.remote.put(&self.name, text, &mut |_| {
            !self.heartbeat.is_ended() && began.elapsed() < lasts * 3 / 4
        });
        if began.elapsed() >= lasts {
            // The upload may have overwritten the lease of another writer, so both stop.
            return Sign::Lost;
        }
        match put {
            Ok(()) => {
                self.heartbeat.beaten(began);
                Sign::Held
            }
            Err(_) => Sign::Silent,
        }
    }
}
