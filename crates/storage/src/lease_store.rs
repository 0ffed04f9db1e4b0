//! The claim of one writer on a folder, wherever it is.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::StorageError;
use crate::fault::RemoteFault;
use crate::heartbeat::{Heartbeat, LeaseWait, Moment, Sign};
use crate::lease::Lease;
use crate::place::Place;
use crate::remote::{GoOn, Remote, random_number};

/// How long a lease in a store may go without a sign of life before another writer takes it.
pub const LEASE_PATIENCE: Duration = Duration::from_secs(15);

/// The shortest time that a lease is thought to last by who has it, however short others are told to wait: a slow store or
/// a busy machine is no reason to stop.
const LEAST: Duration = Duration::from_secs(5);

/// The shortest time between two signs of life.
const OFTEN: Duration = Duration::from_millis(20);

/// Most bytes of a lease.
const MOST: u64 = 1 << 10;

/// How often somebody who waits reads the lease, at least.
const LOOK: Duration = Duration::from_millis(500);

/// How often somebody who waits is asked whether to go on.
const SLICE: Duration = Duration::from_millis(50);

/// The shortest wait that is announced.
const ANNOUNCED: Duration = Duration::from_secs(1);

/// The claim of one writer on a folder of a [`Place`]. It saves work and names the other writer; correctness rests on
/// publishing, not on it.
///
/// In a directory it is a [`Lease`]. In a store it is an object that is put where there is none, and put again four times
/// in `patience` (of 15 seconds, where that is longer): a writer that finds it waits that long for a change, and takes it
/// where there is none. No clock is compared with that of another machine.
///
/// What is put or removed by way of the place of a lease in a store asks for it before each request. Where no sign of life
/// was given for half of `patience` (of 5 seconds at least), by clocks that go on while the machine sleeps, the lease is read first: one that is
/// another's, or gone, is lost, and `other-writer` is what the request ends with.
#[derive(Debug)]
pub struct PlaceLease(Kind);

#[derive(Debug)]
enum Kind {
    Local(Lease),
    Store(StoreLease),
}

#[derive(Debug)]
struct StoreLease {
    /// For the lease itself …
    remote: Remote,
    /// … and for what else is in its folder.
    data: Remote,
    name: String,
    owner: String,
    heartbeat: Arc<Heartbeat>,
    heart: Option<JoinHandle<()>>,
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
        let remote = store.remote().for_lease();
        let owner = format!("{:016x}", random_number());
        let last = claim(&remote, name, &owner, patience, go_on)?;
        // Others may wait for less than we do.
        let every = (patience.min(LEASE_PATIENCE) / 4).max(OFTEN);
        let lasts = patience.clamp(LEAST, LEASE_PATIENCE);
        let heartbeat = Arc::new(Heartbeat::new(every, lasts, last));
        store.remote().leases().add(Arc::downgrade(&heartbeat));
        let beating = Beating {
            remote: remote.clone(),
            name: name.to_owned(),
            owner: owner.clone(),
            heartbeat: Arc::clone(&heartbeat),
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
            remote,
            data: store.remote().clone(),
            name: name.to_owned(),
            owner,
            heartbeat,
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

    /// Whether another writer is known to have taken the lease meanwhile: this one was silent for too long.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &self.0 {
            Kind::Local(_) => false,
            Kind::Store(lease) => lease.heartbeat.is_lost(),
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
        // While others are kept away.
        match lease.clear_folder(spared, go_on) {
            // What is there now is another's.
            Err(_) if lease.heartbeat.is_lost() => {}
            cleared => cleared?,
        }
        lease.stop();
        lease.release(go_on)
    }
}

impl StoreLease {
    /// Removes all that is in the folder of the lease but the lease and what is in folders called `spared`.
    fn clear_folder(&self, spared: &[&str], go_on: &mut GoOn<'_>) -> Result<(), StorageError> {
        if let Some((folder, _)) = self.name.rsplit_once('/') {
            let inside = format!("{folder}/");
            let objects = self.data.list(&inside, Remote::LIST_MOST, go_on)?;
            let is_spared = |name: &str| {
                let name = name.strip_prefix(&inside).unwrap_or(name);
                let first = name.split('/').next();
                first.is_some_and(|first| spared.contains(&first))
            };
            // A log goes from its end, so that what is left of it in between is a log.
            for object in objects.into_iter().rev() {
                // What is no name of ours was not put by a writer.
                if object.name != self.name
                    && !is_spared(&object.name)
                    && shardmill_core::check_relative_path(&object.name).is_ok()
                {
                    self.data.remove(&object.name, go_on)?;
                }
            }
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.heartbeat.end();
        if let Some(heart) = self.heart.take() {
            // It does not panic, and there would be nothing to do about it.
            let _ = heart.join();
        }
    }

    fn release(&self, go_on: &mut GoOn<'_>) -> Result<(), StorageError> {
        // INVARIANT: one that is another's by now stays. `stop` has ended the pulse, so that only the clock can tell.
        if self.heartbeat.is_lost() {
            return Ok(());
        }
        if self.heartbeat.is_old() {
            match read(&self.remote, &self.name, go_on)? {
                Some(Some((owner, _))) if owner == self.owner => {}
                _ => return Ok(()),
            }
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

/// Puts the lease where there is none, or where the one that is there shows no sign of life; answers when.
fn claim(
    remote: &Remote,
    name: &str,
    owner: &str,
    patience: Duration,
    go_on: &mut GoOn<'_>,
) -> Result<Moment, StorageError> {
    /// Each one loses to another writer that came in this moment.
    const ATTEMPTS: usize = 8;

    let other = || StorageError::Remote {
        url: remote.display(name),
        fault: RemoteFault::OtherWriter,
    };
    let mut was_silent = false;
    let mut is_announced = patience < ANNOUNCED;
    for _ in 0..ATTEMPTS {
        let at = Moment::now();
        match remote.put_new(name, sign(owner, 0).into_bytes(), go_on) {
            Ok(_) if was_silent => {
                // The other one may be back, and may have read its lease just before it went.
                wait(remote, LOOK.min(patience / 8), go_on)?;
                return match read(remote, name, go_on)? {
                    Some(Some((found, _))) if found == owner => Ok(at),
                    _ => Err(other()),
                };
            }
            Ok(_) => return Ok(at),
            Err(StorageError::Remote {
                fault: RemoteFault::Exists,
                ..
            }) => {}
            Err(error) => return Err(error),
        }
        let Some(mut first) = read(remote, name, go_on)? else {
            continue;
        };
        if !std::mem::replace(&mut is_announced, true) {
            remote.lease_wait(&LeaseWait {
                url: remote.display(name),
                owner: first.as_ref().map(|(owner, _)| owner.clone()),
                patience,
            });
        }
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
            was_silent = true;
            remote.remove(name, go_on)?;
        }
    }
    Err(other())
}

/// Waits, as long as the caller wants to go on.
fn wait(remote: &Remote, time: Duration, go_on: &mut GoOn<'_>) -> Result<(), StorageError> {
    let began = Instant::now();
    while began.elapsed() < time {
        if !go_on(0) {
            return Err(remote.interrupted());
        }
        std::thread::sleep(SLICE.min(time));
    }
    Ok(())
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
    heartbeat: Arc<Heartbeat>,
}

impl Beating {
    fn run(&self) {
        let mut beat = 0_u64;
        let mut has_failed = false;
        while self.heartbeat.wait(has_failed) {
            beat += 1;
            match self.beat(beat) {
                Sign::Held => has_failed = false,
                // A store that does not answer now may do so the next time. Whoever wants to write waits for that.
                Sign::Silent => has_failed = true,
                Sign::Lost => {
                    self.heartbeat.lose();
                    return;
                }
            }
        }
    }

    /// Reads the lease, and puts it again where it is still ours.
    fn beat(&self, beat: u64) -> Sign {
        let began = Moment::now();
        // An answer that took longer says what was, not what is.
        let lasts = self.heartbeat.lasts();
        let is_recent = || began.elapsed() < lasts / 2;
        let go_on = &mut |_| !self.heartbeat.is_ended() && is_recent();
        let mut read = || read(&self.remote, &self.name, go_on);
        let found = match read() {
            // Nobody but us takes it away, or somebody who has found us silent. Some proxies say so of what they cannot reach.
            Ok(None) => read(),
            found => found,
        };
        match found {
            Ok(Some(Some((owner, _)))) if owner == self.owner => {}
            Ok(Some(Some(_)) | None) => return Sign::Lost,
            // What says nothing is a page of a proxy.
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
            // It may have taken the place of the lease of another. Neither of the two goes on.
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
