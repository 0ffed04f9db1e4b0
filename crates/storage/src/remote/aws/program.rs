//! The programs of `credential_process`, which print credentials. They are started without a shell.

use std::io::{ErrorKind, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::issue::{AwsIssued, of_program};
use crate::remote::renewal::{CREDENTIALS, NoToken};

/// The maximum number of bytes of the output. It fits into a pipe, so the program never waits for the reader.
const MAX_BYTES: usize = 64 << 10;

const HINT: &str = "run the credential_process of the profile by hand to see why";

/// The interval at which a running program is checked.
const SLICE: Duration = Duration::from_millis(20);

/// Runs a program and returns the credentials that it prints. Blocks.
pub(super) fn run(words: &[String]) -> Result<AwsIssued, NoToken> {
    let failed = |what: String| NoToken::of(what, HINT);
    let (name, arguments) = words
        .split_first()
        .ok_or_else(|| failed("has an empty credential_process".to_owned()))?;
    let child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| {
        failed(format!(
            "has a credential_process that cannot be started: {error}"
        ))
    })?;
    let deadline = Instant::now() + CREDENTIALS * 3 / 4;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(SLICE),
            Ok(None) => {
                // A program that has ended meanwhile cannot be killed, and needs not be.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!(
                    "has a credential_process that did not end within {} s",
                    (CREDENTIALS * 3 / 4).as_secs()
                )));
            }
            Err(error) => {
                return Err(failed(format!(
                    "has a credential_process that is lost: {error}"
                )));
            }
        }
    };
    if !status.success() {
        return Err(failed(format!(
            "has a credential_process that failed ({status})"
        )));
    }
    let output = output(&mut child).map_err(|error| {
        failed(format!(
            "has a credential_process whose output cannot be read: {error}"
        ))
    })?;
    of_program(&output).map_err(|what| {
        failed(format!(
            "has a credential_process whose output is refused: {what}"
        ))
    })
}

/// Reads what a program that has ended wrote. One of its children may still have the pipe open, so it is not read to its
/// end.
fn output(child: &mut Child) -> std::io::Result<Vec<u8>> {
    let Some(mut pipe) = child.stdout.take() else {
        return Ok(Vec::new());
    };
    let flags = fcntl_getfl(&pipe)?;
    fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while all.len() <= MAX_BYTES {
        match pipe.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => all.extend_from_slice(piece.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}
