//! The values of options, as text.

use std::path::PathBuf;
use std::str::FromStr;

#[cfg(feature = "clap")]
use clap::builder::{PossibleValuesParser, TypedValueParser};
use shardmill_core::{
    ByteSize, Diagnostic as _, Error, check_relative_path, escape, parse_sample_count,
};
use shardmill_mds::HashAlgo;
use shardmill_webdataset::{Consumer, WebdatasetError};
use shardmill_writer::{PatternError, ShardPattern};

/// A value that may be `none` or `auto`. As an alias, clap does not take it for an option that may be missing.
pub type OrNone<T> = Option<T>;
/// One value that holds several. As an alias, clap does not take it for a repeated option.
pub type List<T> = Vec<T>;

/// One column of the dataset to write, or all columns that others do not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Its name.
    pub name: String,
    /// The name of its encoding in the format. `None` means the default of its type.
    pub encoding: Option<String>,
    /// The expression that computes it. `None` means the source column with the same name.
    pub expr: Option<String>,
    /// Whether it stands for all columns that no other one names, as without specifications. The other fields then have
    /// no meaning.
    pub is_rest: bool,
}

impl ColumnSpec {
    /// Specifies the source column of that name, in the default encoding of its type.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            encoding: None,
            expr: None,
            is_rest: false,
        }
    }
}

/// One split: one of several datasets that the rows are divided among.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitSpec {
    /// Its name, which is also the name of its directory.
    pub name: String,
    /// Its share of the rows, above 0; shares sum to 1.
    pub share: f64,
}

type Parsed<T> = Result<T, Error>;

/// Returns the error that an option does not accept a value. The hint says what it accepts. It has no id: that is the
/// one of the option.
pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::usage("", message).with_hint(hint)
}

/// Returns the error that a text is not what an option accepts.
pub fn is_not(text: &str, what: &str, hint: impl Into<String>) -> Error {
    refused(format!("`{}` is not {what}", escape(text)), hint)
}

/// Accepts the names of these values.
#[cfg(feature = "clap")]
pub fn named<T>(all: &[T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    choice(all.iter().map(move |value| (name(*value), *value)))
}

/// Accepts these names of values.
#[cfg(feature = "clap")]
pub fn choice<T>(
    pairs: impl IntoIterator<Item = (&'static str, T)>,
) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    let pairs: Vec<(&'static str, T)> = pairs.into_iter().collect();
    let names: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
    PossibleValuesParser::new(names).try_map(move |typed| {
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

/// Parses a size in bytes.
pub fn byte_size(text: &str) -> Parsed<u64> {
    let size: Result<ByteSize, _> = text.parse();
    size.map(ByteSize::bytes)
        .map_err(|_| is_not(text, "a size", "write bytes or a unit: 1000, 64mb, 1.5GiB"))
}

/// Parses a size in bytes, or `none`. A size of 0 also means none.
pub fn byte_size_or_none(text: &str) -> Parsed<Option<u64>> {
    match text {
        "none" => Ok(None),
        _ => Ok(Some(byte_size(text)?).filter(|size| *size > 0)),
    }
}

/// Parses the path of a file. Callers check that it is not a URL.
pub fn path(text: &str) -> Parsed<PathBuf> {
    Ok(text.into())
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

/// Parses the pattern of the names of tar shards.
pub fn shard_pattern(text: &str) -> Parsed<ShardPattern> {
    text.parse().map_err(|error: PatternError| {
        refused(error.to_string(), "write a name such as train-%06d.tar")
    })
}

/// Parses `NAME[:ENCODING][=EXPR]`, or `*` for all other columns. The name ends at the first `:` or `=` outside double
/// quotes, the encoding at the first `=`. The rest is the expression, which may contain any character.
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

/// Parses the name of a compression, if there is one. `known` are those that the format has.
pub(crate) fn compression<T: FromStr>(
    name: Option<&str>,
    of: &str,
    known: &str,
) -> Result<Option<T>, Error> {
    let parsed = name.map(str::parse).transpose();
    parsed.map_err(|_| {
        let name = escape(name.unwrap_or_default());
        let fact = format!("`{name}` is not a compression{of}");
        Error::option_hint("config-compression", fact, format!("choose {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
