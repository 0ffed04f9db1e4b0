//! Runs programs as a user does, and measures what they cost.

use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// The polling interval of a running process. The kernel records the peak of its memory, so only memory allocated in
/// the last moment can be missed. Touching a gigabyte takes longer than that.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Clock ticks per second in `/proc`, the same on every Linux.
const TICKS: u64 = 100;

/// A running process.
#[derive(Debug)]
pub struct Running {
    child: Child,
    began: Instant,
    peak_bytes: u64,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// The time from start to end.
    pub wall: Duration,
    /// The CPU time of all its threads, in steps of 10 ms.
    pub cpu: Duration,
    /// The peak of its resident memory.
    pub peak_bytes: u64,
    /// Whether it was killed because it took too long.
    pub timed_out: bool,
}

impl Ended {
    /// Returns the exit code; `None` if a signal ended the process.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Returns standard error as text.
    #[must_use]
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Returns standard output as text.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl Running {
    /// Starts a command and collects its output.
    ///
    /// # Errors
    ///
    /// Returns errors of starting it.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Ok(Self {
            child,
            began: Instant::now(),
            peak_bytes: 0,
            stdout,
            stderr,
        })
    }

    /// Sends a signal. This is safe after the process has ended: it was not reaped, so its id was not reused.
    ///
    /// # Errors
    ///
    /// Returns errors of the system call.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    /// Returns the number of the process.
    ///
    /// # Errors
    ///
    /// Returns an error for a number beyond the range of the system.
    pub fn pid(&self) -> io::Result<Pid> {
        let number = i32::try_from(self.child.id()).ok();
        number
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("a process without a number"))
    }

    /// Returns whether the process has ended.
    ///
    /// # Errors
    ///
    /// Returns errors of the system call.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        if let Some(peak) = peak_bytes(self.child.id()) {
            self.peak_bytes = self.peak_bytes.max(peak);
        }
        // Not reaped yet, so its CPU time can still be read.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid()?), options)?.is_some())
    }

    /// Waits until `done` returns `true`, the process ends, or `most` has passed. Returns whether `done` returned
    /// `true`.
    ///
    /// # Errors
    ///
    /// Returns errors of system calls.
    pub fn until(&mut self, max: Duration, mut done: impl FnMut() -> bool) -> io::Result<bool> {
        let began = Instant::now();
        loop {
            if done() {
                return Ok(true);
            }
            if self.has_ended()? || began.elapsed() >= max {
                return Ok(false);
            }
            std::thread::sleep(POLL_INTERVAL.min(max.saturating_sub(began.elapsed())));
        }
    }

    /// Waits for the end of the process, and kills it if it runs longer than `most` since its start.
    ///
    /// # Errors
    ///
    /// Returns errors of system calls.
    pub fn end(mut self, max: Duration) -> io::Result<Ended> {
        let left = max.saturating_sub(self.began.elapsed());
        self.until(left, || false)?;
        let timed_out = !self.has_ended()?;
        if timed_out {
            self.child.kill()?;
            while !self.has_ended()? {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        let wall = self.began.elapsed();
        let cpu = cpu_time(self.child.id()).unwrap_or_default();
        let status = self.child.wait()?;
        let collected = |stream: Option<JoinHandle<Vec<u8>>>| match stream.map(JoinHandle::join) {
            Some(Ok(bytes)) => bytes,
            _ => Vec::new(),
        };
        let (stdout, stderr) = (collected(self.stdout.take()), collected(self.stderr.take()));
        Ok(Ended {
            status,
            stdout,
            stderr,
            wall,
            cpu,
            peak_bytes: self.peak_bytes,
            timed_out,
        })
    }
}

/// Runs a command to its end.
///
/// # Errors
///
/// Returns errors of starting it and waiting for it.
pub fn run(command: &mut Command, max: Duration) -> io::Result<Ended> {
    Running::start(command)?.end(max)
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output before a broken pipe is still useful.
        let _ = stream.read_to_end(&mut bytes);
        bytes
    })
}

/// Returns the high-water mark of resident memory.
fn peak_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Returns user and system time.
fn cpu_time(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain spaces. The times are fields 14 and 15.
    let fields: Vec<&str> = stat
        .get(stat.rfind(')')? + 1..)?
        .split_whitespace()
        .collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Duration::from_millis(
        (ticks(11)? + ticks(12)?) * 1000 / TICKS,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn run_collects_exit_status_and_output() {
        let ended = run(&mut shell("echo out; echo err >&2; exit 3"), LONG).unwrap();
        assert_eq!(
            (
                ended.code(),
                ended.output().as_str(),
                ended.errors().as_str()
            ),
            (Some(3), "out\n", "err\n")
        );
        // The process may have ended before its memory could be measured.
        assert!(!ended.timed_out);
    }

    #[test]
    fn run_measures_time_and_peak_memory() {
        // A shell variable of 64 MiB, made by doubling.
        let script = "x=0123456789abcdef; while [ ${#x} -lt 67108864 ]; do x=$x$x; done; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let ended = run(&mut shell(script), LONG).unwrap();
        assert_eq!(ended.code(), Some(0));
        assert!(ended.peak_bytes > 64 << 20, "{}", ended.peak_bytes);
        assert!(
            ended.cpu > Duration::ZERO && ended.cpu <= ended.wall + Duration::from_millis(50),
            "{ended:?}"
        );
    }

    #[test]
    fn what_takes_too_long_is_killed() {
        let ended = run(&mut shell("while :; do :; done"), Duration::from_millis(50)).unwrap();
        assert!(ended.timed_out && ended.code().is_none());
    }

    #[test]
    fn signal_is_delivered_to_the_process() {
        let mut running = Running::start(&mut shell("while :; do :; done")).unwrap();
        assert!(!running.has_ended().unwrap());
        running.signal(Signal::TERM).unwrap();
        let ended = running.end(LONG).unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&ended.status),
            Some(15)
        );
    }
}
