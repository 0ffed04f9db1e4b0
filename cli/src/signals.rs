//! The first SIGINT or SIGTERM cancels the work at a point where it can be resumed. The second ends the process.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Once};

use shardmill_core::{Progress, lock};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::output::{Console, Output, Signal, show_progress};

static FIRST: AtomicU8 = AtomicU8::new(0);

/// Returns the first signal, if there was one.
pub fn first() -> Option<Signal> {
    match FIRST.load(Ordering::Acquire) {
        0 => None,
        1 => Some(Signal::Interrupt),
        _ => Some(Signal::Terminate),
    }
}

/// Makes writes beyond the file size limit of the process fail, instead of ending the process.
pub fn survive_file_limit() {
    // The flag is never read; a handler is enough. If none can be installed, the default applies.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Runs work that shows its progress and that signals cancel. `verb` names the work, as in `reading`.
pub fn with_progress<T>(verb: &'static str, out: &Output, work: impl FnOnce(&Progress) -> T) -> T {
    let progress = cancelled_by_signals(out.console());
    let (mode, console) = (out.progress_mode(), out.console());
    show_progress(&progress, mode, verb, console, || work(&progress))
}

/// Returns the progress of a piece of work, which signals cancel from now on instead of the previous one. If signals
/// cannot be caught, their default applies.
pub fn cancelled_by_signals(console: &Arc<Console>) -> Arc<Progress> {
    let progress = Arc::new(Progress::new());
    *lock(&CURRENT) = Some(Arc::clone(&progress));
    // A signal between two pieces of work cancels the next one.
    if first().is_some() {
        progress.cancel();
    }
    static START: Once = Once::new();
    START.call_once(|| {
        let console = Arc::clone(console);
        if let Ok(signals) = Signals::new([SIGINT, SIGTERM]) {
            // The thread is not joined: it waits for signals until the process ends.
            std::thread::spawn(move || wait(signals, &console));
        }
    });
    progress
}

static CURRENT: Mutex<Option<Arc<Progress>>> = Mutex::new(None);

fn wait(mut signals: Signals, console: &Console) {
    for signal in signals.forever() {
        let code = if signal == SIGTERM { 2 } else { 1 };
        if FIRST
            .compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            if let Some(progress) = &*lock(&CURRENT) {
                progress.cancel();
            }
            console.note("stopping at the next safe point; a second signal stops at once");
        } else {
            // This fails only for signals without a default, and both have one.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    }
}
