//! Connections whose reads and writes have a deadline.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// A connection that carries one request, in the clear or encrypted.
pub trait Connection: Read + Write {
    /// Sets the longest time of one read or write, and the longest time of all that follow. A later one fails with `TimedOut`.
    fn limit(&mut self, idle: Duration, total: Duration);

    /// Ends the direction of this side. The other side can still send.
    ///
    /// # Errors
    ///
    /// The error of the connection.
    fn end(&mut self) -> io::Result<()>;
}

/// A connection in the clear. It has no limits until [`Connection::limit`] sets them.
#[derive(Debug)]
pub struct Socket<'a> {
    stream: &'a TcpStream,
    idle: Option<Duration>,
    deadline: Option<Instant>,
}

impl<'a> Socket<'a> {
    /// Wraps a connection.
    #[must_use]
    pub const fn new(stream: &'a TcpStream) -> Self {
        Self {
            stream,
            idle: None,
            deadline: None,
        }
    }

    /// Returns the longest time of the next read or write.
    fn timeout(&self) -> io::Result<Option<Duration>> {
        let now = Instant::now();
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(now));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left.into_iter().chain(self.idle).min())
    }
}

/// Names a timeout, which the system may report as `WouldBlock`.
fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.timeout()?)?;
        self.stream.read(buffer).map_err(late)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.timeout()?)?;
        self.stream.write(bytes).map_err(late)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Connection for Socket<'_> {
    fn limit(&mut self, idle: Duration, total: Duration) {
        self.idle = Some(idle);
        self.deadline = Instant::now().checked_add(total);
    }

    fn end(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }
}
