//! The first SIGINT or SIGTERM asks the library to stop where the work can be resumed; the second stops at
//! once.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use shardmill_core::Progress;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::output::{Console, Signal};

static FIRST: AtomicU8 = AtomicU8::new(0);

/// The signal that asked for the stop, if one did.
pub fn first() -> Option<Signal> {
    match FIRST.load(Ordering::Acquire) {
        0 => None,
        1 => Some(Signal::Interrupt),
        _ => Some(Signal::Terminate),
    }
}

/// A file that would get larger than the process may make it is an error of the write, not the end of the process.
pub fn survive_file_limit() {
    // It is never looked at: that there is a handler is enough. Where there can be none, the default stays.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// From now on a signal cancels `progress`, and no longer the one before. Where signals cannot be caught, they
/// keep their default.
pub fn cancel_on_signal(progress: &Arc<Progress>, console: &Arc<Console>) {
    *current() = Some(Arc::clone(progress));
    // Between two pieces of work there is nothing to cancel; the next one is.
    if first().is_some() {
        progress.cancel();
    }
    static START: Once = Once::new();
    START.call_once(|| {
        let console = Arc::clone(console);
        if let Ok(signals) = Signals::new([SIGINT, SIGTERM]) {
            // Not joined: it waits for signals until the process ends.
            std::thread::spawn(move || wait(signals, &console));
        }
    });
}

static CURRENT: Mutex<Option<Arc<Progress>>> = Mutex::new(None);

fn current() -> MutexGuard<'static, Option<Arc<Progress>>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(mut signals: Signals, console: &Console) {
    for signal in signals.forever() {
        let code = if signal == SIGTERM { 2 } else { 1 };
        if FIRST
            .compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            if let Some(progress) = &*current() {
                progress.cancel();
            }
            console.note("stopping at the next safe point; a second signal stops at once");
        } else {
            // Fails only for a signal without a default, which neither of the two is.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    }
}
