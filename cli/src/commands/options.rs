//! Values of options that several commands share, and what they need from the environment.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::SystemTime;

use shardmill_core::{Limits, escape};
use shardmill_storage::{LeaseWait, RemoteOptions, StorageError, settings_of};

use crate::args::{MOST_JOBS, StorageArgs};
use crate::output::{Output, seconds};

/// Returns the limits with the values of `--limit`.
pub fn limits(typed: &[(String, u64)]) -> Limits {
    let mut limits = Limits::default();
    for (name, value) in typed {
        // The parser of the option has checked the name.
        let _ = limits.set(name, *value);
    }
    limits
}

/// Returns the number of threads. The default is one for each core.
pub fn jobs(typed: Option<usize>) -> usize {
    let cores = || available_parallelism().map_or(1, usize::from);
    typed.unwrap_or_else(|| cores().min(MOST_JOBS))
}

/// Returns the storage options from the environment and the command line.
pub fn remote(args: &StorageArgs) -> Result<RemoteOptions, StorageError> {
    let options = RemoteOptions {
        settings: settings_of(std::env::vars()),
        ..RemoteOptions::default()
    };
    options.with_options(&args.storage_options)
}

/// Formats the time of day, as in `12:30:59 UTC`.
fn time_of_day(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs()) % 86_400;
    let (minutes, hours) = (seconds / 60 % 60, seconds / 3600);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}

/// Prints a message to standard error while a writer waits for the lease of another one.
pub fn announce_waits(remote: &mut RemoteOptions, out: &Output) {
    if out.is_quiet() {
        return;
    }
    let console = Arc::clone(out.console());
    remote.on_lease_wait = Some(Arc::new(move |wait: &LeaseWait| {
        let owner = wait.owner.as_deref().unwrap_or("unknown");
        let patience = seconds(wait.patience.as_secs_f64());
        let until = time_of_day(SystemTime::now() + wait.patience);
        console.warning(
            "lease-wait",
            Some(escape(&wait.url).into_owned()),
            format!(
                "writer {owner} has this lease; waiting until {until} for its heartbeat; without one, this run takes the lease over"
            ),
            Some(format!(
                "--takeover-after SECONDS waits for another time than {patience}"
            )),
        );
    }));
}
