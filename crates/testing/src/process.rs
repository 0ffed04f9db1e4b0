//! A program run as a user does, and what it cost.

use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// How often a running process is looked at. Its peak of memory is kept by the kernel, so that only what comes
/// in the last moment before the end can be missed, and touching a gigabyte takes longer than that.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Clock ticks a second in `/proc`, the same on every Linux.
const TICKS: u64 = 100;

/// A process that runs.
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
    /// How.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub wall: Duration,
    /// Processor time of all its threads, in steps of 10 ms.
    pub cpu: Duration,
    /// The most memory that it had at a time.
    pub peak_bytes: u64,
    /// Whether it was killed for taking too long.
    pub timed_out: bool,
}

impl Ended {
    /// The exit code; `None` for a process that died of a signal.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Standard error as text.
    #[must_use]
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Standard output as text.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl Running {
    /// Starts a command. What it writes is collected.
    ///
    /// # Errors
    ///
    /// What starting it runs into.
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

    /// Sends a signal. A process that has ended is left alone: it has not been waited for, so its number is still its own.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    fn pid(&self) -> io::Result<Pid> {
        let number = i32::try_from(self.child.id()).ok();
        number
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("a process without a number"))
    }

    /// Whether it has ended.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        if let Some(peak) = peak_bytes(self.child.id()) {
            self.peak_bytes = self.peak_bytes.max(peak);
        }
        // Looked at only: its processor time can be read until it is waited for.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid()?), options)?.is_some())
    }

    /// Waits until `done` says so or the process has ended or the time is over; answers whether `done` did.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn until(&mut self, most: Duration, mut done: impl FnMut() -> bool) -> io::Result<bool> {
        let began = Instant::now();
        loop {
            if done() {
                return Ok(true);
            }
            if self.has_ended()? || began.elapsed() >= most {
                return Ok(false);
            }
            std::thread::sleep(LOOK_EVERY.min(most.saturating_sub(began.elapsed())));
        }
    }

    /// Waits for the end, and kills what has not ended `most` after its start.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn end(mut self, most: Duration) -> io::Result<Ended> {
        let left = most.saturating_sub(self.began.elapsed());
        self.until(left, || false)?;
        let timed_out = !self.has_ended()?;
        if timed_out {
            self.child.kill()?;
            while !self.has_ended()? {
                std::thread::sleep(LOOK_EVERY);
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
/// What starting it and waiting for it run into.
pub fn run(command: &mut Command, most: Duration) -> io::Result<Ended> {
    Running::start(command)?.end(most)
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before a broken pipe is still worth having.
        let _ = stream.read_to_end(&mut bytes);
        bytes
    })
}

/// The high-water mark of resident memory.
fn peak_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// User and system time.
fn cpu_time(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold blanks; times are the 14th and 15th field of all.
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
    fn status_and_streams_are_collected() {
        let ended = run(&mut shell("echo out; echo err >&2; exit 3"), LONG).unwrap();
        assert_eq!(
            (
                ended.code(),
                ended.output().as_str(),
                ended.errors().as_str()
            ),
            (Some(3), "out\n", "err\n")
        );
        // It may have ended before anybody could look how large it was.
        assert!(!ended.timed_out);
    }

    #[test]
    fn time_and_memory_are_measured() {
        // A variable of 64 MiB in the shell, made by doubling.
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
    fn a_signal_reaches_it() {
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
