//! Parses the values of options and arguments to the types of the libraries.

use std::path::PathBuf;

use shardmill_convert::Part;
pub use shardmill_convert::parse::{
    List, OrNone, byte_size, choice, column, consumers, hashes, is_not, named, not_empty, number,
    refused, samples,
};
use shardmill_core::{Error, Limits, escape, parse_sample_count};
use shardmill_dataset::TarPattern;
use shardmill_mds::HashAlgo;
use shardmill_storage::Location;

type Parsed<T> = Result<T, Error>;

/// Parses a port; 0 stands for any free one.
pub fn port(text: &str) -> Parsed<u16> {
    let port = number(text)?;
    u16::try_from(port).map_err(|_| {
        let hint = "pass a number from 1 to 65535, or 0 for any free port";
        refused(format!("{port} is not a port"), hint)
    })
}

/// Returns a parser of whole numbers from 1 to `most`.
pub fn up_to(max: u64) -> impl Fn(&str) -> Parsed<u64> + Clone {
    move |text| match number(text)? {
        number if (1..=max).contains(&number) => Ok(number),
        number => Err(refused(
            format!("{number} is out of range"),
            format!("pass a number from 1 to {max}"),
        )),
    }
}

/// The maximum number of threads.
pub const MAX_JOBS: usize = 1024;

/// Parses a number of threads. 0 lets the calling thread do the work.
pub fn threads(text: &str) -> Parsed<usize> {
    let threads = usize::try_from(number(text)?).unwrap_or(usize::MAX);
    match threads > MAX_JOBS {
        true => Err(refused(
            format!("{threads} threads are too many"),
            "at most 1024",
        )),
        false => Ok(threads),
    }
}

/// Parses a number of threads.
pub fn jobs(text: &str) -> Parsed<usize> {
    let jobs = text.parse().ok();
    jobs.filter(|jobs| (1..=MAX_JOBS).contains(jobs))
        .ok_or_else(|| {
            is_not(
                text,
                "a number of threads",
                format!("pass a number from 1 to {MAX_JOBS}"),
            )
        })
}

/// Parses `NAME=VALUE`: the value of a limit.
pub fn limit(text: &str) -> Parsed<(String, u64)> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        is_not(
            text,
            "NAME=VALUE",
            format!("the limits are {}", Limits::NAMES.join(", ")),
        )
    })?;
    if !Limits::default().set(name, 1) {
        return Err(refused(
            format!("there is no limit `{}`", escape(name)),
            format!("the limits are {}", Limits::NAMES.join(", ")),
        ));
    }
    Ok((name.to_owned(), byte_size(value)?))
}

/// Parses a memory limit.
pub fn memory_limit(text: &str) -> Parsed<u64> {
    match byte_size(text)? {
        0 => Err(refused(
            "0 bytes are not enough",
            "omit it, or write a size such as 2GiB",
        )),
        limit => Ok(limit),
    }
}

/// Parses a bandwidth such as `1GB/s`. The `/s` is optional.
pub fn bandwidth(text: &str) -> Parsed<u64> {
    match byte_size(text.strip_suffix("/s").unwrap_or(text)) {
        Ok(0) => Err(refused(
            "nothing would arrive",
            "pass at least 1 byte a second",
        )),
        Ok(bandwidth) => Ok(bandwidth),
        Err(_) => Err(is_not(
            text,
            "a size for each second",
            "write 500MB/s or 1GiB/s",
        )),
    }
}

/// Parses a local path. URLs are rejected with a message that leaves out possible secrets.
pub fn local_path(text: &str) -> Result<PathBuf, Error> {
    if let Some((scheme, rest)) = text.split_once(':')
        && rest.starts_with("//")
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    {
        let message = format!("only local folders and files are supported here, not `{scheme}:`");
        return Err(Error::usage("url-scheme", message)
            .about(without_secrets(scheme, rest))
            .with_hint("pass the path of a local directory"));
    }
    if text.is_empty() {
        return Err(Error::usage("usage-value", "a location is empty")
            .with_hint("pass the path of a file or directory"));
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

/// Parses a path or a prefix in a store.
pub fn location(text: &str) -> Result<Location, Error> {
    match text.is_empty() {
        true => Ok(Location::Local(local_path(text)?)),
        false => Ok(Location::parse(text)?),
    }
}

/// Parses a destination, or the location of a check.
pub fn dest(text: &str) -> Result<Location, Error> {
    Ok(Location::parse(text)?)
}

/// Parses a location, or a pattern of tar files. A pattern has several locations.
pub fn locations(text: &str) -> Result<Vec<Location>, Error> {
    match TarPattern::parse(text)? {
        Some(pattern) => Ok(pattern.locations().collect()),
        None => Ok(vec![location(text)?]),
    }
}

/// Parses a version of a Delta table.
pub fn table_version(text: &str) -> Parsed<u64> {
    text.parse()
        .map_err(|_| is_not(text, "a version", "versions are whole numbers from 0"))
}

/// Parses a time of a Delta table. Returns milliseconds since 1970.
pub fn table_time(text: &str) -> Parsed<i64> {
    shardmill_source::parse_timestamp(text)
        .map_err(|error| refused(error.to_string(), "without a zone a time is UTC"))
}

/// Parses `I/N`.
pub fn part(text: &str) -> Parsed<Part> {
    let parsed = text.split_once('/').and_then(|(number, count)| {
        Some(Part {
            number: number.parse().ok()?,
            count: count.parse().ok()?,
        })
    });
    parsed.ok_or_else(|| {
        is_not(
            text,
            "I/N",
            "write the number of the part, from 0, and how many there are: 0/4",
        )
    })
}

/// Parses a hash.
pub fn hash(text: &str) -> Result<HashAlgo, Error> {
    Ok(text.parse::<HashAlgo>()?)
}

/// Parses a number of samples or rows.
pub fn sample_count(text: &str) -> Parsed<u64> {
    parse_sample_count(text).map_err(|_| is_not(text, "a whole number", "write 1000, 10k or 1.5m"))
}

/// Parses the number of rows that determine column types.
pub fn infer_rows(text: &str) -> Parsed<usize> {
    match usize::try_from(sample_count(text)?) {
        Ok(rows) if rows > 0 => Ok(rows),
        _ => Err(refused(
            "types need at least one row",
            "write a number of rows, such as 100000",
        )),
    }
}

/// Parses the delimiter of CSV: one byte, except a quote or a line break.
pub fn csv_delimiter(text: &str) -> Parsed<u8> {
    match unescaped(text)?.as_bytes() {
        [byte] if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err(refused(
            format!("`{}` cannot stand between values", escape(text)),
            "write one ASCII character, such as ; or \\t",
        )),
    }
}

/// Replaces the escapes `\n`, `\r`, `\t` and `\\` by one character each.
fn unescaped(text: &str) -> Parsed<String> {
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
                return Err(refused(
                    format!("`{}` has an unknown escape", escape(text)),
                    r"the escapes are \n, \r, \t and \\",
                ));
            }
        });
    }
    match plain.is_empty() {
        true => Err(refused("the text is empty", "pass at least one character")),
        false => Ok(plain),
    }
}

/// Parses `DIMENSION=NUMBER,...`: sizes or steps of windows.
pub fn windows(text: &str) -> Parsed<Vec<(String, u64)>> {
    let one = |part: &str| {
        let (name, number) = part.trim().rsplit_once('=')?;
        let number = number.parse().ok().filter(|number| *number > 0)?;
        (!name.is_empty()).then(|| (name.to_owned(), number))
    };
    let all = text.split(',').map(|part| {
        let fact = || format!("`{}` is not DIMENSION=NUMBER", escape(part));
        one(part).ok_or_else(|| refused(fact(), "write it as time=24,lat=64"))
    });
    all.collect()
}

/// Parses a comma-separated list of shard sizes.
pub fn sizes(text: &str) -> Parsed<Vec<u64>> {
    let sizes: Result<Vec<u64>, _> = text.split(',').map(|size| size.trim().parse()).collect();
    sizes.map_err(|_| {
        is_not(
            text,
            "a list of sizes",
            "write the samples of each shard: 4,3,5",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safety_limit_parses_name_and_size() {
        assert_eq!(
            limit("shard-bytes=32GiB").unwrap(),
            ("shard-bytes".to_owned(), 32 << 30)
        );
        for bad in ["shard-bytes", "shards=many", "shard=1", "=1", "shards="] {
            assert!(limit(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn invalid_job_counts_are_errors() {
        assert_eq!(jobs("3").unwrap(), 3);
        for bad in ["0", "-1", "1.5", "", "100000", "99999999999999999999999"] {
            assert!(jobs(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn url_as_local_path_is_an_error_without_secrets() {
        let Err(error) = local_path("s3://key:secret@bucket/a/b?sig=secret#frag") else {
            unreachable!();
        };
        assert_eq!(error.id(), "url-scheme");
        assert_eq!(error.object(), Some("s3://bucket/a/b"));
        assert!(local_path("").is_err());
        for path in ["a:b", "c:/x", "/a//b", "a/b://c", "://x", "1s://x"] {
            assert_eq!(local_path(path).unwrap(), PathBuf::from(path));
        }
    }

    #[test]
    fn escape_sequences_are_decoded() {
        assert_eq!(unescaped(r"\t|\\n").unwrap(), "\t|\\n");
        assert_eq!(unescaped("\\r\\n").unwrap(), "\r\n");
        for bad in ["", "\\", "\\x"] {
            assert!(unescaped(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bandwidth_parses_size_per_second() {
        assert_eq!(bandwidth("1GB/s").unwrap(), 1 << 30);
        assert_eq!(bandwidth("2MiB").unwrap(), 2 << 20);
        for bad in ["0", "0MB/s", "1GB/h", "", "/s", "fast", "-1MB/s"] {
            assert!(bandwidth(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn size_list_accepts_only_whole_numbers() {
        assert_eq!(sizes("4,3, 0").unwrap(), [4, 3, 0]);
        for bad in ["", "4,,3", "4,", "-1", "1.5", "x"] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
    }
}
