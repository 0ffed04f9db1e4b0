//! Parses option values that several commands share. They are checked before any work begins.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, SystemTime};

use shardmill_convert::Part;
use shardmill_core::{ByteSize, Diagnostic as _, Limits, escape};
use shardmill_storage::{
    LEASE_PATIENCE, LeaseWait, Location, RemoteOptions, StorageError, settings_of,
};
use shardmill_webdataset::Consumer;

use crate::args::{StorageArgs, TakeoverArgs};
use crate::error::{CliError, Stop};
use crate::output::{Output, seconds};

/// The maximum number of threads.
const MOST_JOBS: usize = 1024;

/// Parses `--limit NAME=VALUE ...`.
pub fn limits(typed: &[String]) -> Result<Limits, CliError> {
    let mut limits = Limits::default();
    for text in typed {
        let known = || format!("the limits are {}", Limits::NAMES.join(", "));
        let Some((name, value)) = text.split_once('=') else {
            return Err(CliError::option(
                "limit",
                format!("`{}` is not NAME=VALUE", escape(text)),
                known(),
            ));
        };
        let value = byte_size("limit", value)?;
        if !limits.set(name, value) {
            return Err(CliError::option(
                "limit",
                format!("there is no limit `{}`", escape(name)),
                known(),
            ));
        }
    }
    Ok(limits)
}

/// Parses `--jobs N`. The default is one for each core.
pub fn jobs(typed: Option<&str>) -> Result<usize, CliError> {
    let Some(text) = typed else {
        return Ok(available_parallelism()
            .map_or(1, usize::from)
            .min(MOST_JOBS));
    };
    match text.parse() {
        Ok(jobs) if (1..=MOST_JOBS).contains(&jobs) => Ok(jobs),
        _ => Err(CliError::option(
            "jobs",
            format!("`{}` is not a number of threads", escape(text)),
            format!("pass a number from 1 to {MOST_JOBS}"),
        )),
    }
}

/// Parses a comma-separated list of tar readers.
pub fn consumers(option: &'static str, text: &str) -> Result<Vec<Consumer>, CliError> {
    let mut readers = Vec::new();
    for name in text.split(',').map(str::trim) {
        let reader: Consumer =
            name.parse()
                .map_err(|error: shardmill_webdataset::WebdatasetError| {
                    CliError::option(option, error.to_string(), error.hint().unwrap_or_default())
                })?;
        if !readers.contains(&reader) {
            readers.push(reader);
        }
    }
    Ok(readers)
}

/// Parses `--version N` of a Delta table.
pub fn table_version(text: &str) -> Result<u64, CliError> {
    text.parse().map_err(|_| {
        CliError::option(
            "version",
            format!("`{}` is not a version", escape(text)),
            "versions are whole numbers from 0",
        )
    })
}

/// Parses `--timestamp TIME` of a Delta table. Returns milliseconds since 1970.
pub fn table_time(text: &str) -> Result<i64, CliError> {
    shardmill_source::parse_timestamp(text).map_err(|error| {
        CliError::option(
            "timestamp",
            error.to_string(),
            "without a zone a time is UTC",
        )
    })
}

/// Parses a size in bytes.
pub fn byte_size(option: &'static str, text: &str) -> Result<u64, CliError> {
    let size: Result<ByteSize, _> = text.parse();
    size.map(ByteSize::bytes).map_err(|_| {
        CliError::option(
            option,
            format!("`{}` is not a size", escape(text)),
            "write bytes or a unit: 1000, 64mb, 1.5GiB",
        )
    })
}

/// Parses a path or a prefix in a store.
pub fn place(text: &str) -> Result<Location, Stop> {
    if text.is_empty() {
        return Ok(Location::Local(location(text)?));
    }
    Ok(Location::parse(text)?)
}

/// Returns the storage options from the environment and the command line.
pub fn remote(args: &StorageArgs) -> Result<RemoteOptions, StorageError> {
    let options = RemoteOptions {
        settings: settings_of(std::env::vars()),
        ..RemoteOptions::default()
    };
    options.with_options(&args.storage_options)
}

/// Parses `--part I/N`.
pub fn part(text: &str) -> Result<Part, CliError> {
    let parsed = text.split_once('/').and_then(|(number, count)| {
        Some(Part {
            number: number.parse().ok()?,
            count: count.parse().ok()?,
        })
    });
    parsed.ok_or_else(|| {
        CliError::option(
            "part",
            format!("`{}` is not I/N", escape(text)),
            "write the number of the part, from 0, and how many there are: 0/4",
        )
    })
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

/// Parses a duration with a unit.
pub fn age(option: &'static str, text: &str) -> Result<Duration, CliError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(60 * 60),
        "d" => Some(24 * 60 * 60),
        "" if number == "0" => Some(1),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let parsed = number
        .zip(seconds)
        .and_then(|(number, unit)| number.checked_mul(unit));
    parsed.map(Duration::from_secs).ok_or_else(|| {
        CliError::option(
            option,
            format!("`{}` is not a length of time", escape(text)),
            "write a whole number with s, m, h or d: 24h",
        )
    })
}

/// Parses `--takeover-after SECONDS`.
pub fn takeover_after(args: &TakeoverArgs) -> Result<Duration, CliError> {
    let Some(text) = args.takeover_after.as_deref() else {
        return Ok(LEASE_PATIENCE);
    };
    let seconds = text.parse().ok().filter(|seconds| *seconds <= 86_400.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| {
        CliError::option(
            "takeover-after",
            format!("`{}` is not a number of seconds", escape(text)),
            "pass a number from 0 to 86400",
        )
    })
}

/// Parses a local path. URLs are rejected with a message that leaves out possible secrets.
pub fn location(text: &str) -> Result<PathBuf, CliError> {
    if let Some((scheme, rest)) = text.split_once(':')
        && rest.starts_with("//")
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    {
        return Err(CliError::Scheme {
            location: without_secrets(scheme, rest),
            scheme: scheme.to_owned(),
        });
    }
    if text.is_empty() {
        return Err(CliError::Usage {
            id: "usage-value".into(),
            object: None,
            message: "a location is empty".to_owned(),
            hint: Some("give the path of a file or directory".to_owned()),
        });
    }
    Ok(PathBuf::from(text))
}

/// Returns a URL without user info, query and fragment.
fn without_secrets(scheme: &str, rest: &str) -> String {
    let path = rest
        .trim_start_matches('/')
        .split(['?', '#'])
        .next()
        .unwrap_or_default();
    let (host, path) = path.split_at(path.find('/').unwrap_or(path.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Replaces the escapes `\n`, `\r`, `\t` and `\\` by one character each.
pub fn unescape(option: &'static str, text: &str) -> Result<String, CliError> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        plain.push(match characters.next() {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('\\') => '\\',
            _ => {
                return Err(CliError::option(
                    option,
                    format!("`{}` has an escape that is not known", escape(text)),
                    r"the escapes are \n, \r, \t and \\",
                ));
            }
        });
    }
    if plain.is_empty() {
        return Err(CliError::option(
            option,
            "the text is empty",
            "give at least one character",
        ));
    }
    Ok(plain)
}

/// Rejects an empty value.
pub fn not_blank(option: &'static str, text: Option<&String>) -> Result<Option<String>, CliError> {
    match text {
        Some(text) if text.trim().is_empty() => Err(CliError::option(
            option,
            "the value is empty",
            format!("leave out --{option} or give it a value"),
        )),
        other => Ok(other.cloned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_names_and_sizes() {
        let set = limits(&["shard-bytes=32GiB".to_owned(), "array-dims=64".to_owned()]).unwrap();
        assert_eq!((set.shard_bytes, set.array_dims), (32 << 30, 64));
        for bad in ["shard-bytes", "shards=many", "shard=1", "=1", "shards="] {
            assert!(
                matches!(
                    limits(&[bad.to_owned()]),
                    Err(CliError::Option {
                        option: "limit",
                        ..
                    })
                ),
                "{bad}"
            );
        }
    }

    #[test]
    fn jobs_are_at_least_one() {
        assert_eq!(jobs(Some("3")).unwrap(), 3);
        assert!(jobs(None).unwrap() >= 1);
        for bad in ["0", "-1", "1.5", "", "100000", "99999999999999999999999"] {
            assert!(jobs(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn urls_are_refused_without_their_secrets() {
        let Err(CliError::Scheme { location, scheme }) =
            location("s3://key:secret@bucket/a/b?sig=secret#frag")
        else {
            unreachable!();
        };
        assert_eq!(
            (location.as_str(), scheme.as_str()),
            ("s3://bucket/a/b", "s3")
        );
        assert!(super::location("").is_err());
        for path in ["a:b", "c:/x", "/a//b", "a/b://c", "://x", "1s://x"] {
            assert_eq!(super::location(path).unwrap(), PathBuf::from(path));
        }
    }

    #[test]
    fn escapes_are_one_character() {
        assert_eq!(unescape("separator", r"\t|\\n").unwrap(), "\t|\\n");
        assert_eq!(unescape("newline", "\\r\\n").unwrap(), "\r\n");
        for bad in ["", "\\", "\\x"] {
            assert!(unescape("newline", bad).is_err(), "{bad}");
        }
    }
}
