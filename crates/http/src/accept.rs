//! Accepts connections.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Accepts connections until the process ends, and answers each on a thread of its own. Connections beyond `most` at a
/// time are closed.
pub fn accept(
    listener: &TcpListener,
    max: usize,
    answer: impl Fn(&TcpStream) + Send + Sync + 'static,
) {
    let shared = Arc::new((answer, AtomicUsize::new(0)));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Mostly too many open files: connections that end make room.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if shared.1.fetch_add(1, Ordering::AcqRel) >= max {
            shared.1.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let of_thread = Arc::clone(&shared);
        let started = thread::Builder::new().spawn(move || {
            (of_thread.0)(&stream);
            of_thread.1.fetch_sub(1, Ordering::AcqRel);
        });
        if started.is_err() {
            shared.1.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
