//! The `SIGBUS` handler, which replaces missing pages of this crate's mappings by zeros.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// More regions than Linux allows a process by default (`vm.max_map_count` is 65,530).
const SLOTS: usize = 1 << 16;

/// A mapped region, as the handler sees it.
///
/// INVARIANT: `start` is zero unless the region is mapped and `bytes` is its length.
struct Slot {
    /// Whether the slot is in use. Not a lock, because a fork could copy a held lock and the child would wait forever.
    taken: AtomicBool,
    start: AtomicUsize,
    bytes: AtomicUsize,
    damaged: AtomicBool,
}

impl Slot {
    /// Takes the slot if it is free, and returns whether it was.
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
/// All slots from this index on are unused.
static USED: AtomicUsize = AtomicUsize::new(0);
/// A hint for where the search for a free slot begins.
static FREE: AtomicUsize = AtomicUsize::new(0);
static PAGE: AtomicUsize = AtomicUsize::new(4096);
/// The previous signal action; never freed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// A region that the handler protects, by its index in the table.
#[derive(Debug)]
pub(crate) struct Guarded(usize);

impl Guarded {
    /// Makes the pages of a region safe to read.
    ///
    /// # Errors
    ///
    /// Returns an error if the handler cannot be installed, or if there are too many regions.
    pub(crate) fn new(start: usize, bytes: usize) -> io::Result<Self> {
        install()?;
        let none = || io::Error::from_raw_os_error(libc::ENOMEM);
        // PERF: with tens of thousands of regions, a search of the whole table is measurably slow.
        let begin = FREE.load(Ordering::Relaxed);
        let (index, slot) = (begin..SLOTS)
            .chain(0..begin)
            .filter_map(|index| Some((index, TABLE.get(index)?)))
            .find(|(_, slot)| slot.take())
            .ok_or_else(none)?;
        FREE.fetch_max(index + 1, Ordering::Relaxed);
        // Before the region is set, because the handler looks no further.
        USED.fetch_max(index + 1, Ordering::AcqRel);
        slot.damaged.store(false, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Ok(Self(index))
    }

    /// Returns whether a page of the region was missing when it was read.
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

/// Installs the handler once per process; forked children inherit it.
fn install() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let install = || {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        PAGE.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a null action queries the current one, which is written to `before`.
        let status = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) };
        if status != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        // SAFETY: sigaction succeeded and has filled it.
        let before = Box::new(unsafe { before.assume_init() });
        // The handler needs it as soon as it is installed. It is leaked, because a signal may arrive at any time.
        BEFORE.store(Box::into_raw(before), Ordering::Release);
        // SAFETY: all-zero is a valid sigaction; its fields are set below.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the mask is a field of a valid struct. The handler has the type that SA_SIGINFO requires and calls
        // only async-signal-safe functions.
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

/// Maps zeros over a missing page of this crate's regions, and forwards all other faults to the previous handler.
///
/// It uses only atomics and async-signal-safe calls: mmap, sigaction, getpid and raise.
extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo, and for a fault it has the address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 && zero_page(address) {
        return;
    }
    let own_process = || {
        // SAFETY: signals sent by kill and tkill carry the sender.
        let sender = unsafe { (*info).si_pid() };
        // SAFETY: getpid has no preconditions.
        sender == unsafe { libc::getpid() }
    };
    if code == libc::SI_TKILL && own_process() {
        // A handler that was installed later forwards the fault by raising the signal again, after it has restored
        // this handler. Returning to the faulting instruction repeats the fault, which brings its address.
        return;
    }
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: set before this handler was installed, never freed.
    let Some(before) = (unsafe { before.as_ref() }) else {
        return;
    };
    match before.sa_sigaction {
        // The process ignored this signal before, and another process sent it.
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // A fault cannot be ignored. With the default restored, the instruction faults again and ends the process.
            // SAFETY: `before` is a valid action; all-zero is the default.
            unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                if code <= 0 {
                    // The signal was sent by a process, so no instruction repeats it.
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

/// Replaces a page of a protected region by zeros; false if the address is in none of the regions.
fn zero_page(address: usize) -> bool {
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
        // SAFETY: the page lies in a region of this crate that is still mapped, because a thread is reading it now.
        // The interrupted code may be about to read errno, so it is restored.
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
    fn each_region_has_its_own_reusable_slot() {
        // The test reads nothing at these addresses.
        let region = |number: usize| Guarded::new((number + 1) << 12, 1).unwrap();
        let many = || (0..200).map(region).collect::<Vec<_>>();
        for _ in 0..3 {
            let sets: Vec<Vec<Guarded>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(many)).collect();
                let ends = threads.into_iter().map(|thread| thread.join().unwrap());
                ends.collect()
            });
            let mut indexes: Vec<usize> = sets.iter().flatten().map(|found| found.0).collect();
            indexes.sort_unstable();
            indexes.dedup();
            assert_eq!(indexes.len(), 800);
        }
        // Other tests in this process may use slots as well.
        assert!(USED.load(Ordering::Relaxed) < 1600);
    }

    /// Runs a test of this file again, in a process that ignores `SIGBUS`. Returns how it ended; `None` if it did not end
    /// within 10 seconds.
    fn run_ignoring(test: &str) -> Option<std::process::ExitStatus> {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_secs(10) {
            if let Some(status) = child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        None
    }

    const CHILD: &str = "SHARDMILL_TEST_SIGBUS_CHILD";

    fn ignore_then_install() {
        // SAFETY: ignoring a signal has no preconditions.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
        install().unwrap();
    }

    #[test]
    fn a_fault_elsewhere_ends_a_process_that_ignores_the_signal() {
        use std::os::fd::AsRawFd as _;
        use std::os::unix::process::ExitStatusExt as _;

        if std::env::var_os(CHILD).is_none() {
            let status = run_ignoring(
                "sigbus::tests::a_fault_elsewhere_ends_a_process_that_ignores_the_signal",
            );
            assert_eq!(status.unwrap().signal(), Some(libc::SIGBUS));
            return;
        }
        ignore_then_install();
        let file = tempfile::tempfile().unwrap();
        // SAFETY: maps a page beyond the end of the file, at an address that the system chooses, and reads it.
        unsafe {
            let fd = file.as_raw_fd();
            let start = libc::mmap(
                ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            ptr::read_volatile(start.cast::<u8>());
        }
    }

    #[test]
    fn a_sent_signal_stays_ignored() {
        if std::env::var_os(CHILD).is_none() {
            let status = run_ignoring("sigbus::tests::a_sent_signal_stays_ignored");
            assert!(status.unwrap().success(), "{status:?}");
            return;
        }
        ignore_then_install();
        // SAFETY: sends a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
    }
}
