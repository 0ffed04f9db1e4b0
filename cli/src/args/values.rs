//! Parses the values of options and arguments to the types of the libraries.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shardmill_convert::{ColumnSpec, Part, SplitSpec};
use shardmill_core::{
    ByteSize, Diagnostic, Limits, check_relative_path, escape, parse_sample_count,
};
use shardmill_dataset::TarPattern;
use shardmill_mds::HashAlgo;
use shardmill_storage::Location;
use shardmill_webdataset::{Consumer, WebdatasetError};
use shardmill_writer::ShardPattern;

use crate::error::CliError;

type Parsed<T> = Result<T, CliError>;

/// A value that may be `none` or `auto`. As an alias, clap does not take it for an option that may be missing.
pub type OrNone<T> = Option<T>;
/// One value that holds several. As an alias, clap does not take it for a repeated option.
pub type List<T> = Vec<T>;

/// Returns the error that an option does not accept a value. It has no id: [`usage_error`](super::usage_error) adds the
/// option and its id.
pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> CliError {
    CliError::usage("", &message.into()).with_hint(&hint.into())
}

/// Returns the error that a text is not what an option accepts.
pub fn is_not(text: &str, what: &str, hint: impl Into<String>) -> CliError {
    refused(format!("`{}` is not {what}", escape(text)), hint)
}

/// Accepts the names of these values.
pub fn named<T>(all: &[T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + PartialEq + Send + Sync + 'static,
{
    choice(all.iter().map(move |value| (name(*value), *value)))
}

/// Accepts these names of values. A second name of a value is not shown.
pub fn choice<T>(
    pairs: impl IntoIterator<Item = (&'static str, T)>,
) -> impl TypedValueParser<Value = T>
where
    T: Clone + PartialEq + Send + Sync + 'static,
{
    let pairs: Vec<(&'static str, T)> = pairs.into_iter().collect();
    let names = pairs.iter().enumerate().map(|(index, (name, value))| {
        let is_second = pairs.iter().take(index).any(|(_, other)| other == value);
        PossibleValue::new(*name).hide(is_second)
    });
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(move |typed| {
        let found = pairs.iter().find(|(name, _)| *name == typed);
        let found = found.map(|(_, value)| value.clone());
        found.ok_or_else(|| refused("it is not one of the values", "see `shardmill --help`"))
    })
}

/// Parses a whole number.
pub fn number(text: &str) -> Parsed<u64> {
    text.parse()
        .map_err(|_| is_not(text, "a whole number", "write digits only, as in 1000"))
}

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

/// Parses a size in bytes.
pub fn byte_size(text: &str) -> Parsed<u64> {
    let size: Result<ByteSize, _> = text.parse();
    size.map(ByteSize::bytes)
        .map_err(|_| is_not(text, "a size", "write bytes or a unit: 1000, 64mb, 1.5GiB"))
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

/// Parses a size in bytes, or `none`. A size of 0 also means none.
pub fn byte_size_or_none(text: &str) -> Parsed<Option<u64>> {
    match text {
        "none" => Ok(None),
        _ => Ok(Some(byte_size(text)?).filter(|size| *size > 0)),
    }
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

/// Parses a text that is not empty.
pub fn not_empty(text: &str) -> Parsed<String> {
    match text.trim().is_empty() {
        true => Err(refused(
            "the value is empty",
            "omit the option, or pass a value",
        )),
        false => Ok(text.to_owned()),
    }
}

/// Parses a local path. URLs are rejected with a message that leaves out possible secrets.
pub fn local_path(text: &str) -> Parsed<PathBuf> {
    if let Some((scheme, rest)) = text.split_once(':')
        && rest.starts_with("//")
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    {
        let message = format!("only local folders and files are supported here, not `{scheme}:`");
        return Err(CliError::usage("url-scheme", &message)
            .about(&without_secrets(scheme, rest))
            .with_hint("pass the path of a local directory"));
    }
    if text.is_empty() {
        return Err(CliError::usage("usage-value", "a location is empty")
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
pub fn location(text: &str) -> Parsed<Location> {
    match text.is_empty() {
        true => Ok(Location::Local(local_path(text)?)),
        false => Ok(Location::parse(text)?),
    }
}

/// Parses a destination, or the location of a check.
pub fn dest(text: &str) -> Parsed<Location> {
    Ok(Location::parse(text)?)
}

/// Parses a location, or a pattern of tar files. A pattern has several locations.
pub fn locations(text: &str) -> Parsed<Vec<Location>> {
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

/// Parses a comma-separated list of tar readers.
pub fn consumers(text: &str) -> Parsed<Vec<Consumer>> {
    let mut readers = Vec::new();
    for name in text.split(',').map(str::trim) {
        let reader: Consumer = name.parse().map_err(|error: WebdatasetError| {
            refused(error.to_string(), error.hint().unwrap_or_default())
        })?;
        if !readers.contains(&reader) {
            readers.push(reader);
        }
    }
    Ok(readers)
}

/// Parses a comma-separated list of hashes, or `none`.
pub fn hashes(text: &str) -> Parsed<Vec<HashAlgo>> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let hash = |name: &str| {
        name.trim().parse().map_err(|_| {
            let known = HashAlgo::ALL.map(HashAlgo::name).join(", ");
            refused(
                format!("`{}` is not a hash", escape(name.trim())),
                format!("choose from {known}, or none"),
            )
        })
    };
    text.split(',').map(hash).collect()
}

/// Parses a hash.
pub fn hash(text: &str) -> Parsed<HashAlgo> {
    Ok(text.parse::<HashAlgo>()?)
}

/// Parses a number of samples or rows.
pub fn sample_count(text: &str) -> Parsed<u64> {
    parse_sample_count(text).map_err(|_| is_not(text, "a whole number", "write 1000, 10k or 1.5m"))
}

/// Parses a number of samples above 0.
pub fn samples(text: &str) -> Parsed<u64> {
    match parse_sample_count(text) {
        Ok(samples) if samples > 0 => Ok(samples),
        _ if text.contains('=') => Err(is_not(
            text,
            "a number of samples",
            "limits for reading files are set by --safety-limit NAME=VALUE",
        )),
        _ => Err(is_not(
            text,
            "a number of samples above 0",
            "write 1000, 10k or 1.5m",
        )),
    }
}

/// Parses the pattern of the names of tar shards.
pub fn shard_pattern(text: &str) -> Parsed<ShardPattern> {
    text.parse()
        .map_err(|error: shardmill_writer::PatternError| {
            refused(error.to_string(), "write a name such as train-%06d.tar")
        })
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

/// Parses `NAME[:ENCODING][=EXPR]`, or `*` for all other columns. The name ends at the first `:` or `=` outside double quotes, the encoding at the
/// first `=`. The rest is the expression, which may contain any character.
pub fn column(text: &str) -> Parsed<ColumnSpec> {
    let error = |fact: &str| {
        refused(
            format!("`{}` has {fact}", escape(text)),
            "write NAME[:ENCODING][=EXPR], e.g. image:jpeg or 'label:int32=CAST(class AS INT)'",
        )
    };
    let (name, rest) =
        quoted_name(text, &[':', '=']).ok_or_else(|| error("no closing quote after its name"))?;
    if name.is_empty() {
        return Err(error("no name"));
    }
    let (encoding, expr) = match rest.strip_prefix(':') {
        Some(rest) => match rest.split_once('=') {
            Some((encoding, expr)) => (Some(encoding), Some(expr)),
            None => (Some(rest), None),
        },
        None => (None, rest.strip_prefix('=')),
    };
    if encoding.is_some_and(str::is_empty) {
        return Err(error("no encoding after the `:`"));
    }
    if expr.is_some_and(|expr| expr.trim().is_empty()) {
        return Err(error("no expression after the `=`"));
    }
    let is_rest = name == "*" && !text.starts_with('"');
    if is_rest && !rest.is_empty() {
        return Err(refused(
            format!(
                "`{}`: `*` stands for all other columns, in the encodings of their types",
                escape(text)
            ),
            "write it alone, or in double quotes for a column of that name: '\"*\":json'",
        ));
    }
    Ok(ColumnSpec {
        encoding: encoding.map(str::to_owned),
        expr: expr.map(str::to_owned),
        is_rest,
        ..ColumnSpec::named(name)
    })
}

/// Splits `text` into the name and the rest. The rest is empty or begins with one of `stops`. In a name in double
/// quotes, `""` means one double quote.
fn quoted_name<'a>(text: &'a str, stops: &[char]) -> Option<(String, &'a str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (name, rest) = text.split_at_checked(text.find(stops).unwrap_or(text.len()))?;
        return Some((name.to_owned(), rest));
    };
    let mut name = String::new();
    let mut rest = quoted;
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None if after.is_empty() || after.starts_with(stops) => return Some((name, after)),
            None => return None,
        }
    }
}

/// Parses `NAME=VALUE`: the value that replaces the nulls of a column.
pub fn null_as(text: &str) -> Parsed<(String, String)> {
    let parts = quoted_name(text, &['='])
        .and_then(|(name, rest)| Some((name, rest.strip_prefix('=')?.to_owned())));
    parts
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| is_not(text, "NAME=VALUE", "write NAME=VALUE, e.g. label=-1"))
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

/// Parses `NAME=SHARE,...`: the splits and their shares, which must add up to 1.
pub fn splits(text: &str) -> Parsed<Vec<SplitSpec>> {
    const FORM: &str = "write NAME=SHARE,... with shares that add up to 1, e.g. train=0.9,val=0.1";
    let error = |fact: String| refused(fact, FORM);
    let mut splits: Vec<SplitSpec> = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (name, share) = part
            .split_once('=')
            .ok_or_else(|| error(format!("`{}` is not NAME=SHARE", escape(part))))?;
        if let Err(fact) = check_relative_path(name) {
            return Err(error(format!(
                "`{}` cannot be a directory: {fact}",
                escape(name)
            )));
        }
        if name.contains('/') || name.starts_with('.') {
            return Err(error(format!(
                "`{}` cannot be a directory of its own beside the others",
                escape(name)
            )));
        }
        if splits.iter().any(|split| split.name == name) {
            return Err(error(format!("`{}` is given twice", escape(name))));
        }
        let value = share
            .parse::<f64>()
            .ok()
            .filter(|share| share.is_finite() && *share > 0.0);
        splits.push(SplitSpec {
            name: name.to_owned(),
            share: value
                .ok_or_else(|| error(format!("`{}` is not a share above 0", escape(share))))?,
        });
    }
    let sum: f64 = splits.iter().map(|split| split.share).sum();
    if (sum - 1.0).abs() > 1e-9 {
        return Err(error(format!("the shares add up to {sum}, not 1")));
    }
    Ok(splits)
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
        let Err(cli_error) = local_path("s3://key:secret@bucket/a/b?sig=secret#frag") else {
            unreachable!();
        };
        assert_eq!(cli_error.id, "url-scheme");
        assert_eq!(cli_error.object.as_deref(), Some("s3://bucket/a/b"));
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

    fn typed(name: &str, encoding: Option<&str>, expr: Option<&str>) -> ColumnSpec {
        ColumnSpec {
            encoding: encoding.map(str::to_owned),
            expr: expr.map(str::to_owned),
            ..ColumnSpec::named(name)
        }
    }

    #[test]
    fn column_parses_name_encoding_and_expression() {
        for (text, expected) in [
            ("a", typed("a", None, None)),
            ("a:str", typed("a", Some("str"), None)),
            (
                "a:ndarray:float32:2,3",
                typed("a", Some("ndarray:float32:2,3"), None),
            ),
            ("a=b", typed("a", None, Some("b"))),
            ("a=b::text", typed("a", None, Some("b::text"))),
            ("a=b:c=d", typed("a", None, Some("b:c=d"))),
            ("a:int=b=c", typed("a", Some("int"), Some("b=c"))),
            (
                "a:ndarray:int8:2=x = ':'",
                typed("a", Some("ndarray:int8:2"), Some("x = ':'")),
            ),
            ("\"a:b=c\":str=d", typed("a:b=c", Some("str"), Some("d"))),
            ("\"say \"\"hi\"\"\"", typed("say \"hi\"", None, None)),
            ("a\"b", typed("a\"b", None, None)),
            ("a b", typed("a b", None, None)),
            ("\"*\":json", typed("*", Some("json"), None)),
            (
                "*",
                ColumnSpec {
                    is_rest: true,
                    ..ColumnSpec::named("*")
                },
            ),
        ] {
            assert_eq!(column(text).unwrap(), expected, "{text}");
        }
        for text in [
            "", ":str", "=x", "a:", "a:=x", "a=", "a:str= ", "\"a", "\"a\"b", "\"\"", "*:json",
            "*=x",
        ] {
            assert!(column(text).is_err(), "{text}");
        }
    }

    #[test]
    fn null_as_accepts_an_empty_value() {
        for (text, name, value) in [
            ("a=", "a", ""),
            ("b=x=y", "b", "x=y"),
            ("\"c=d\"=1", "c=d", "1"),
        ] {
            assert_eq!(null_as(text).unwrap(), (name.to_owned(), value.to_owned()));
        }
        for text in ["a", "=1", "\"a\"", ""] {
            assert!(null_as(text).is_err(), "{text}");
        }
    }

    #[test]
    fn split_shares_must_sum_to_one() {
        let found = splits("train=0.9, val=0.1").unwrap();
        let found: Vec<_> = found.iter().map(|one| (&*one.name, one.share)).collect();
        assert_eq!(found, [("train", 0.9), ("val", 0.1)]);
        assert!(splits("a=0.3333333333,b=0.3333333333,c=0.3333333334").is_ok());
        for text in [
            "",
            "train",
            "train=",
            "train=x",
            "train=0,val=1",
            "train=-1,val=2",
            "train=nan",
            "train=0.5",
            "a=0.5,a=0.5",
            "../a=1",
            "a/b=1",
            ".shardmill=1",
            "=1",
            "a=inf",
        ] {
            assert!(splits(text).is_err(), "{text}");
        }
    }
}
