//! Answers questions about the dataset with the `shardmill` command itself, in a process of its own.
//!
//! The page shows what the commands print with `--json`, so both always agree, and an error has the same words. A
//! command that takes too long, or whose reader has left, is killed, and its memory is not that of the server. Only the
//! commands and options of a fixed list can be run, all of which only read.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::message::Response;

/// The most bytes that a command may print.
const OUTPUT_BYTES: u64 = 32 << 20;

/// The time after which a command is killed.
const MAX_TIME: Duration = Duration::from_secs(300);

/// How often a running command is checked.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// The most commands at a time.
const AT_A_TIME: usize = 4;

/// The most bytes of the value of an option.
const VALUE_BYTES: usize = 4096;

/// The program and the dataset.
#[derive(Debug)]
pub struct Program {
    /// The path of the program.
    pub path: PathBuf,
    /// The location of the dataset as the user typed it.
    pub location: String,
    /// The file of the view whose samples are shown.
    pub view: Option<String>,
    /// Options for the store and limits, which every command needs.
    pub options: Vec<OsString>,
    /// Those of them that are shown to the reader. They contain no secrets.
    pub shown_options: Vec<String>,
}

/// A command that the page may run.
struct Verb {
    /// The last part of the path of its request.
    name: &'static str,
    /// The words on the command line, separated by spaces.
    words: &'static str,
    /// The options with a value.
    options: &'static [&'static str],
    /// The options without a value.
    flags: &'static [&'static str],
}

const WORLD: [&str; 13] = [
    "nodes",
    "ranks-per-node",
    "workers-per-rank",
    "batch-size",
    "replication",
    "epoch-size",
    "shuffle-algo",
    "shuffle-seed",
    "shuffle-block-size",
    "num-canonical-nodes",
    "sampling-method",
    "sampling-granularity",
    "partition-algo",
];

const VERBS: [Verb; 8] = [
    verb("inspect", "inspect", &[], &[]),
    verb("shards", "inspect --shards", &[], &[]),
    verb("verify", "verify", &["for"], &["deep"]),
    verb("stats", "stats", &["limit", "column"], &[]),
    verb(
        "order",
        "order",
        &["epoch", "rank", "batches"],
        &["shuffle"],
    ),
    verb(
        "which",
        "which",
        &["epoch", "epochs", "rank", "step", "sample"],
        &["shuffle"],
    ),
    verb(
        "plan",
        "plan",
        &[
            "epochs",
            "cache-limit",
            "bandwidth",
            "latency",
            "connections",
            "step-time",
        ],
        &["shuffle"],
    ),
    verb(SELECT, SELECT, &["where"], &["with-deleted"]),
];

/// The command that writes a view to standard output. It prints no JSON, so it is not for the page.
const SELECT: &str = "select";

const fn verb(
    name: &'static str,
    words: &'static str,
    options: &'static [&'static str],
    flags: &'static [&'static str],
) -> Verb {
    Verb {
        name,
        words,
        options,
        flags,
    }
}

/// The number of running commands.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// One of the commands that may run at the same time.
struct Slot;

impl Slot {
    fn take() -> Option<Self> {
        let taken = RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, |running| {
            (running < AT_A_TIME).then_some(running + 1)
        });
        taken.ok().map(|_| Self)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a command printed.
struct Ran {
    code: i32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Program {
    /// Runs the command that a request names, and returns what it printed. `is_gone` returns whether the reader left.
    pub fn answer(
        &self,
        name: &str,
        query: &[(String, String)],
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Response, Response> {
        if name == SELECT {
            return Err(Response::refusal(404, "there is no such page"));
        }
        let (command, ran) = self.ran(name, query, is_gone)?;
        let body = format!(
            "{{\"command\":{},\"exit_code\":{},\"output\":[{}],\"errors\":[{}]}}",
            serde_json::Value::from(command),
            ran.code,
            json_lines(&ran.stdout).join(","),
            json_lines(&ran.stderr).join(",")
        );
        Ok(Response::new("application/json", body))
    }

    /// Runs `select`, and returns its command line and the view that it wrote. Its failure is the response with its error.
    pub fn select(
        &self,
        query: &[(String, String)],
        is_gone: &dyn Fn() -> bool,
    ) -> Result<(String, Vec<u8>), Response> {
        let (command, ran) = self.ran(SELECT, query, is_gone)?;
        if ran.code == 0 {
            return Ok((command, ran.stdout));
        }
        let lines = json_lines(&ran.stderr).into_iter();
        let error = lines.rev().find(|line| line.starts_with("{\"error\""));
        let message = || Response::refusal(500, format!("the command ended with {}", ran.code));
        Err(Response {
            status: 422,
            ..Response::new("application/json", error.ok_or_else(message)?)
        })
    }

    fn ran(
        &self,
        name: &str,
        query: &[(String, String)],
        is_gone: &dyn Fn() -> bool,
    ) -> Result<(String, Ran), Response> {
        let verb = VERBS.iter().find(|verb| verb.name == name);
        let verb = verb.ok_or_else(|| Response::refusal(404, "there is no such page"))?;
        let typed = typed_options(verb, query)?;
        let slot = Slot::take();
        if slot.is_none() {
            return Err(Response::refusal(
                503,
                "other commands are still running; try again",
            ));
        }
        let ran = self
            .run(verb, &typed, is_gone)
            .map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => {
                    Response::refusal(504, "the command took too long and was stopped")
                }
                io::ErrorKind::FileTooLarge => {
                    Response::refusal(422, "the command printed too much")
                }
                _ => Response::refusal(500, format!("the command cannot be run: {error}")),
            })?;
        Ok((self.shown(verb, &typed), ran))
    }

    /// Returns the option with the view.
    fn view_option(&self) -> Option<String> {
        self.view.as_ref().map(|file| format!("--view={file}"))
    }

    /// Returns the command line that prints the same.
    fn shown(&self, verb: &Verb, typed: &[String]) -> String {
        let words = verb.words.split(' ').map(str::to_owned);
        let words = words.chain([self.location.clone()]);
        // An option and its value are two words, unless the value looks like an option.
        let view = self.view_option();
        let options = typed.iter().chain(&view).chain(&self.shown_options);
        let options = options.flat_map(|option| match option.split_once('=') {
            Some((name, value)) if !value.starts_with('-') => {
                vec![name.to_owned(), value.to_owned()]
            }
            _ => vec![option.clone()],
        });
        let words = std::iter::once("shardmill".to_owned()).chain(words);
        let words: Vec<String> = words.chain(options).collect();
        // A NUL cannot be in an argument, so quoting cannot fail.
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
    }

    fn run(&self, verb: &Verb, typed: &[String], is_gone: &dyn Fn() -> bool) -> io::Result<Ran> {
        let mut child = Command::new(&self.path)
            .args(verb.words.split(' '))
            .args(["--json", "--progress=none"])
            .args((verb.name == SELECT).then_some("--out=-"))
            .args(typed)
            .args(self.view_option())
            .args(&self.options)
            .arg("--")
            .arg(&self.location)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        thread::scope(|scope| {
            let stdout = scope.spawn(|| read(stdout));
            let stderr = scope.spawn(|| read(stderr));
            let status = wait(&mut child, is_gone);
            let joined = |thread: thread::ScopedJoinHandle<'_, io::Result<Vec<u8>>>| {
                thread
                    .join()
                    .map_err(|_| io::Error::other("a thread failed"))?
            };
            let (stdout, stderr) = (joined(stdout), joined(stderr));
            let code = status?.code().unwrap_or(-1);
            Ok(Ran {
                code,
                stdout: stdout?,
                stderr: stderr?,
            })
        })
    }
}

/// Returns the lines of a stream. Each is one JSON value; anything else is the message of a defect.
fn json_lines(stream: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(stream);
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines = lines.map(|line| match line.starts_with('{') {
        true => line.to_owned(),
        false => serde_json::json!({ "error": { "message": line } }).to_string(),
    });
    lines.collect()
}

/// Reads the output of a command. Closing it early makes the command end.
fn read(stream: Option<impl io::Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(OUTPUT_BYTES + 1).read_to_end(&mut bytes)?;
    }
    match bytes.len() as u64 > OUTPUT_BYTES {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

/// Waits for the end of a command. Kills it after too much time, or when the reader has left.
fn wait(child: &mut Child, is_gone: &dyn Fn() -> bool) -> io::Result<std::process::ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > MAX_TIME || is_gone() {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(CHECK_EVERY);
    }
}

/// Returns the options of a request as words of a command line. A value cannot become an option: it follows a `=`.
fn typed_options(verb: &Verb, query: &[(String, String)]) -> Result<Vec<String>, Response> {
    let has_world = verb.flags.contains(&"shuffle");
    let mut typed = Vec::new();
    for (name, value) in query.iter().filter(|(name, _)| name != "token") {
        let is_option =
            verb.options.contains(&name.as_str()) || has_world && WORLD.contains(&name.as_str());
        if verb.flags.contains(&name.as_str()) {
            if value == "true" {
                typed.push(format!("--{name}"));
            }
        } else if !is_option {
            return Err(Response::refusal(
                400,
                format!("`{name}` is not an option of this page"),
            ));
        } else if value.len() > VALUE_BYTES || value.contains('\0') {
            return Err(Response::refusal(
                400,
                format!("the value of `{name}` is not text, or too long"),
            ));
        } else {
            typed.push(format!("--{name}={value}"));
        }
    }
    Ok(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(name: &str, query: &[(&str, &str)]) -> Result<Vec<String>, u16> {
        let verb = VERBS.iter().find(|verb| verb.name == name).unwrap();
        let query: Vec<_> = query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        typed_options(verb, &query).map_err(|response| response.status)
    }

    #[test]
    fn only_allowed_options_reach_the_command_line() {
        assert_eq!(
            options(
                "plan",
                &[("nodes", "2"), ("shuffle", "true"), ("token", "x")]
            ),
            Ok(vec!["--nodes=2".to_owned(), "--shuffle".to_owned()])
        );
        assert_eq!(
            options("plan", &[("nodes", "--svg=x")]),
            Ok(vec!["--nodes=--svg=x".to_owned()])
        );
        for (name, query) in [
            ("plan", ("svg", "/tmp/x")),
            ("which", ("state", "/etc/passwd")),
            ("order", ("resume", "/etc/passwd")),
            ("inspect", ("nodes", "1")),
            ("stats", ("storage-option", "a=b")),
            ("select", ("out", "/tmp/x")),
            ("plan", ("nodes", "1\0")),
        ] {
            assert_eq!(options(name, &[query]), Err(400), "{name} {query:?}");
        }
    }

    #[test]
    fn disconnected_client_ends_the_command() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let ended = wait(&mut child, &|| true);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
