//! Draws the progress of a conversion.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use shardmill_core::{Progress, Snapshot};

use super::{Console, bytes, count, percent, rate, seconds};
use crate::args::ProgressName;

/// The interval at which the counters are polled.
const POLL: Duration = Duration::from_millis(100);
/// The interval between lines in plain mode.
const PLAIN: Duration = Duration::from_secs(5);
/// The interval between objects in JSON mode.
const JSON: Duration = Duration::from_secs(1);

/// Shows `progress` in the given mode while `work` runs. `verb` names the work, e.g. `converting`.
pub fn show_progress<T>(
    progress: &Progress,
    mode: ProgressName,
    verb: &'static str,
    console: &Console,
    work: impl FnOnce() -> T,
) -> T {
    let (running, ended) = channel();
    thread::scope(|scope| {
        let follow = move || follow(progress, mode, verb, console, &ended);
        let thread = (mode != ProgressName::None).then(|| scope.spawn(follow));
        let result = work();
        drop(running);
        if let Some(thread) = thread {
            // A failed thread must not stop the work.
            let _ = thread.join();
        }
        result
    })
}

fn follow(
    progress: &Progress,
    mode: ProgressName,
    verb: &'static str,
    console: &Console,
    ended: &Receiver<()>,
) {
    let start = Instant::now();
    let is_running = |interval| ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout);
    match mode {
        ProgressName::None | ProgressName::Auto => {}
        ProgressName::Bar => {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            console.set_bar(Some(bar.clone()));
            while is_running(POLL) {
                let snapshot = progress.snapshot();
                let total = snapshot.input_bytes_total;
                bar.set_style(style(total > 0));
                if total > 0 {
                    bar.set_length(total);
                }
                bar.set_position(snapshot.input_bytes);
                let verb = if progress.is_cancelled() {
                    "stopping"
                } else {
                    verb
                };
                bar.set_prefix(verb);
                bar.set_message(bar_text(&snapshot, start.elapsed().as_secs_f64()));
            }
            console.set_bar(None);
            bar.finish_and_clear();
        }
        ProgressName::Plain => {
            let line = || plain_line(verb, &progress.snapshot(), start.elapsed().as_secs_f64());
            while is_running(PLAIN) {
                console.line(line());
            }
            // Short work needs no final line.
            if start.elapsed() >= PLAIN {
                console.line(line());
            }
        }
        ProgressName::Json => {
            while is_running(JSON) {
                let line = JsonLine::new(&progress.snapshot(), start.elapsed(), false);
                if !console.json(&line) {
                    // The program that started this one has ended.
                    progress.cancel();
                }
            }
            console.json(&JsonLine::new(&progress.snapshot(), start.elapsed(), true));
        }
    }
}

fn style(known: bool) -> ProgressStyle {
    let template = if known {
        "{prefix} {wide_bar:.cyan/dim} {percent:>3}%  {msg}  {eta} left"
    } else {
        "{prefix} {spinner} {msg}  {elapsed}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn bar_text(snapshot: &Snapshot, elapsed: f64) -> String {
    let done = if snapshot.input_bytes_total > 0 {
        format!(
            "{} of {}",
            bytes(snapshot.input_bytes),
            bytes(snapshot.input_bytes_total)
        )
    } else {
        bytes(snapshot.input_bytes)
    };
    let rate = rate(snapshot.input_bytes, elapsed);
    format!(
        "{done}  {rate}  {} samples  {} shards",
        of(snapshot.samples, snapshot.samples_total),
        of(snapshot.shards, snapshot.shards_total)
    )
}

fn of(done: u64, total: u64) -> String {
    if total > 0 {
        format!("{} of {}", count(done), count(total))
    } else {
        count(done)
    }
}

/// Formats one line for a log: the work done, the rate, and the estimated time left.
fn plain_line(verb: &str, snapshot: &Snapshot, elapsed: f64) -> String {
    let (done, total) = if snapshot.input_bytes_total > 0 {
        (snapshot.input_bytes, snapshot.input_bytes_total)
    } else {
        (snapshot.samples, snapshot.samples_total)
    };
    let mut line = format!("{verb}: ");
    if total > 0 {
        line.push_str(&percent(done.min(total), total));
        line.push_str(", ");
    }
    line.push_str(&bar_text(snapshot, elapsed).replace("  ", ", "));
    line.push_str(&format!(", {} elapsed", seconds(elapsed)));
    if let Some(left) = seconds_left(done, total, elapsed) {
        line.push_str(&format!(", {} left", seconds(left)));
    }
    line
}

/// Estimates the remaining seconds from the rate so far.
fn seconds_left(done: u64, total: u64, elapsed: f64) -> Option<f64> {
    if done == 0 || total <= done {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let share = (total - done) as f64 / done as f64;
    Some(elapsed * share)
}

#[derive(Serialize)]
struct JsonLine {
    progress: JsonFields,
}

#[derive(Serialize)]
struct JsonFields {
    elapsed_seconds: f64,
    input_bytes: u64,
    input_bytes_total: Option<u64>,
    samples: u64,
    samples_total: Option<u64>,
    shards: u64,
    shards_total: Option<u64>,
    output_bytes: u64,
    done: bool,
}

impl JsonLine {
    fn new(snapshot: &Snapshot, elapsed: Duration, done: bool) -> Self {
        let known = |total: u64| (total > 0).then_some(total);
        Self {
            progress: JsonFields {
                elapsed_seconds: (elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
                input_bytes: snapshot.input_bytes,
                input_bytes_total: known(snapshot.input_bytes_total),
                samples: snapshot.samples,
                samples_total: known(snapshot.samples_total),
                shards: snapshot.shards,
                shards_total: known(snapshot.shards_total),
                output_bytes: snapshot.output_bytes,
                done,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let progress = Progress::new();
        progress.set_totals(4 << 20, 1000, 0);
        progress.add_input_bytes(1 << 20);
        progress.add_samples(250);
        progress.add_shard(700);
        progress.snapshot()
    }

    #[test]
    fn plain_progress_line_has_rate_and_remaining_time() {
        assert_eq!(
            plain_line("converting", &snapshot(), 2.0),
            "converting: 25.0%, 1.0 MiB of 4.0 MiB, 0.5 MB/s, 250 of 1,000 samples, 1 shards, 2.0 s elapsed, 6.0 s left"
        );
    }

    #[test]
    fn unknown_totals_are_omitted_or_null() {
        let progress = Progress::new();
        assert_eq!(
            plain_line("verifying", &progress.snapshot(), 0.0),
            "verifying: 0 B, -, 0 samples, 0 shards, 0 ms elapsed"
        );
        let line =
            serde_json::to_string(&JsonLine::new(&progress.snapshot(), Duration::ZERO, true))
                .unwrap();
        assert_eq!(
            line,
            r#"{"progress":{"elapsed_seconds":0.0,"input_bytes":0,"input_bytes_total":null,"samples":0,"samples_total":null,"shards":0,"shards_total":null,"output_bytes":0,"done":true}}"#
        );
    }

    #[test]
    fn progress_bar_templates_are_valid() {
        for known in [true, false] {
            let _ = style(known);
        }
        assert!(
            ProgressStyle::with_template(
                "{prefix} {wide_bar:.cyan/dim} {percent:>3}%  {msg}  {eta} left"
            )
            .is_ok()
        );
    }

    #[test]
    fn progress_display_stops_when_work_ends() {
        let (progress, console) = (Progress::new(), Console::new(false, true));
        let start = Instant::now();
        let mode = ProgressName::Plain;
        show_progress(&progress, mode, "testing", &console, || ());
        assert!(start.elapsed() < PLAIN, "it waited for its next line");
    }
}
