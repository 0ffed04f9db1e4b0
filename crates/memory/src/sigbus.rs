//! What happens when a page of a mapped file is gone: the signal `SIGBUS`, made harmless for the regions of this crate.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// More regions than Linux lets a process have (`vm.max_map_count` is 65,530 unless it was raised).
const SLOTS: usize = 1 << 16;

/// A mapped region as the handler finds it.
///
/// INVARIANT: `start` is zero unless the region is mapped and `bytes` is its length.
struct Slot {
    /// Whether it belongs to somebody. No lock: a fork could copy it held, and the child would wait for ever.
    taken: AtomicBool,
    start: AtomicUsize,
    bytes: AtomicUsize,
    damaged: AtomicBool,
}

impl Slot {
    /// Whether it was free, and is the caller's now.
    fn take(&self) -> bool {
        !self.taken.load(Ordering::Relaxed) && !self.taken.swap(true, Ordering::Acquire)
    }
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        damaged: AtomicBool::new(false),
    }
}; SLOTS];
/// No slot from here on was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Where looking for a free slot begins: all before it are taken, but for those that were given back at this very moment.
static FREE: AtomicUsize = AtomicUsize::new(0);
static DAMAGES: AtomicU64 = AtomicU64::new(0);
static PAGE: AtomicUsize = AtomicUsize::new(4096);
/// What handled the signal before; never freed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// How many pages have vanished under mappings of this process so far. While it stays the same no mapping was damaged.
#[must_use]
pub fn damages() -> u64 {
    DAMAGES.load(Ordering::Acquire)
}

/// A region known to the handler, by its place in the table.
#[derive(Debug)]
pub(crate) struct Guarded(usize);

impl Guarded {
    /// Makes the pages of a region harmless to read.
    ///
    /// # Errors
    ///
    /// When the handler cannot be installed, or there are too many regions.
    pub(crate) fn new(start: usize, bytes: usize) -> io::Result<Self> {
        install()?;
        let none = || io::Error::from_raw_os_error(libc::ENOMEM);
        // PERF: with tens of thousands of regions, looking at all of them each time shows.
        let begin = FREE.load(Ordering::Relaxed);
        let (place, slot) = (begin..SLOTS)
            .chain(0..begin)
            .filter_map(|place| Some((place, TABLE.get(place)?)))
            .find(|(_, slot)| slot.take())
            .ok_or_else(none)?;
        FREE.fetch_max(place + 1, Ordering::Relaxed);
        // Before the region is there: the handler looks no further.
        USED.fetch_max(place + 1, Ordering::AcqRel);
        slot.damaged.store(false, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Ok(Self(place))
    }

    /// Whether a page of the region was gone when somebody read it.
    pub(crate) fn is_damaged(&self) -> bool {
        TABLE
            .get(self.0)
            .is_some_and(|slot| slot.damaged.load(Ordering::Acquire))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(slot) = TABLE.get(self.0) {
            slot.start.store(0, Ordering::Release);
            slot.taken.store(false, Ordering::Release);
            FREE.fetch_min(self.0, Ordering::Relaxed);
        }
    }
}

/// Installs the handler once in the life of a process; children of a fork have it, too.
fn install() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let install = || {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        PAGE.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a null action asks for the present one, which is written to `before`.
        let asked = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) };
        if asked != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        // SAFETY: sigaction succeeded and has filled it.
        let before = Box::new(unsafe { before.assume_init() });
        // Known to the handler before the handler can run. Leaked: a signal may come at any time until the end.
        BEFORE.store(Box::into_raw(before), Ordering::Release);
        // SAFETY: all-zero is a valid sigaction; its fields are set below.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the mask is a field of a valid struct; the handler has the type that SA_SIGINFO asks for and calls
        // only what may be called in a handler.
        let set = unsafe {
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut())
        };
        if set == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
        }
    };
    DONE.get_or_init(install)
        .map_err(io::Error::from_raw_os_error)
}

/// Puts zeros where a page of one of our regions is gone; leaves any other fault to who had the signal before.
///
/// Everything called here may be called in a signal handler: atomics, mmap, sigaction.
extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo, and for a fault it has the address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 && mend(address) {
        return;
    }
    let own_process = || {
        // SAFETY: signals sent by kill and tkill carry the sender.
        let sender = unsafe { (*info).si_pid() };
        // SAFETY: getpid has no preconditions.
        sender == unsafe { libc::getpid() }
    };
    if code == libc::SI_TKILL && own_process() {
        // A handler that was installed after this one passes the fault on by raising the signal again. It has restored
        // this handler; going back to the faulting instruction brings the fault here, with its address.
        return;
    }
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: set before this handler was installed, never freed.
    let Some(before) = (unsafe { before.as_ref() }) else {
        return;
    };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // A fault cannot be ignored. With the default restored, the instruction faults again and ends the process.
            // SAFETY: `before` is a valid action; all-zero is the default.
            unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                if code <= 0 {
                    // No instruction comes back to it.
                    libc::raise(signal);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO the handler is of this type.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the handler is of this type.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

/// Replaces the page of one of our regions by zeros; false when the address is in none.
fn mend(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire);
    for slot in TABLE.iter().take(used) {
        let start = slot.start.load(Ordering::Acquire);
        let bytes = slot.bytes.load(Ordering::Relaxed);
        if start == 0 || address < start || address - start >= bytes {
            continue;
        }
        let page = PAGE.load(Ordering::Relaxed);
        let at = address & !(page - 1);
        slot.damaged.store(true, Ordering::Release);
        DAMAGES.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the page lies in a region that this crate has mapped and not unmapped, because somebody is reading
        // it just now; errno, which the interrupted code may be about to read, is kept.
        unsafe {
            let errno = *libc::__errno_location();
            let mapped = libc::mmap(
                at as *mut c_void,
                page,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            );
            *libc::__errno_location() = errno;
            return mapped != libc::MAP_FAILED;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_place_of_their_own_and_leaves_it_to_the_next() {
        // Nothing is ever read at these addresses.
        let region = |number: usize| Guarded::new((number + 1) << 12, 1).unwrap();
        let many = || (0..200).map(region).collect::<Vec<_>>();
        for _ in 0..3 {
            let sets: Vec<Vec<Guarded>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(many)).collect();
                let ends = threads.into_iter().map(|thread| thread.join().unwrap());
                ends.collect()
            });
            let mut places: Vec<usize> = sets.iter().flatten().map(|found| found.0).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), 800);
        }
        // Others of this process may have some as well.
        assert!(USED.load(Ordering::Relaxed) < 1600);
    }
}
