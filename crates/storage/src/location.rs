use std::fmt;
use std::path::{Path, PathBuf};

use shardmill_core::escape;
use url::Url;

use crate::error::StorageError;
use crate::fault::{UrlFault, has_user};

/// Schemes that are known by name and not served yet, or spelled in another way here.
const OTHER_SCHEMES: [&str; 14] = [
    "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "https", "http", "hf", "oci", "hdfs",
    "dbfs", "r2",
];

/// Where a data set lies: a directory of this machine, or a prefix of a bucket.
///
/// Displayed, a location is what it was parsed from, without anything that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path.
    Local(PathBuf),
    /// A prefix of a bucket.
    Remote(RemoteLocation),
}

/// A bucket, and the prefix that all names are beneath.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteLocation {
    bucket: String,
    /// Without a slash at either end; empty for the whole bucket.
    prefix: String,
}

impl Location {
    /// Reads `s3://bucket/prefix`, `file:///path`, or a path. A slash at the end of a URL does not count. Keys are taken as
    /// they are written: nothing in them is decoded.
    ///
    /// ```
    /// use shardmill_storage::Location;
    ///
    /// let location = Location::parse("s3://bucket/data")?;
    /// assert_eq!(location.join("train").to_string(), "s3://bucket/data/train");
    /// assert!(matches!(Location::parse("data/train")?, Location::Local(_)));
    /// assert!(Location::parse("s3://key:secret@bucket/data").is_err());
    /// # Ok::<(), shardmill_storage::StorageError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`StorageError::Url`], which is `InvalidInput`: a scheme that is not served, a bucket that is none, user information, a
    /// query or a fragment, control characters, and empty, `.` or `..` parts.
    pub fn parse(text: &str) -> Result<Self, StorageError> {
        let refuse = |fault| Err(StorageError::url(text, fault));
        if text.is_empty() {
            return refuse(UrlFault::Empty);
        }
        let Some((scheme, rest)) = split_scheme(text) else {
            if text.contains('\0') {
                return refuse(UrlFault::Control);
            }
            // `s3:/bucket` is a slip of the pen, not the name of a folder.
            let first = text.split('/').next().unwrap_or_default();
            let scheme = first.strip_suffix(':').unwrap_or_default();
            if matches!(scheme, "s3" | "file") || OTHER_SCHEMES.contains(&scheme) {
                return refuse(UrlFault::Syntax);
            }
            return Ok(Self::Local(PathBuf::from(text)));
        };
        if text.chars().any(char::is_control) {
            return refuse(UrlFault::Control);
        }
        match scheme.to_ascii_lowercase().as_str() {
            "s3" => remote(text, rest).map(Self::Remote),
            "file" => local(text).map(Self::Local),
            "s3a" | "s3n" => refuse(UrlFault::Scheme {
                scheme: scheme.to_ascii_lowercase(),
                hint: "write s3://",
            }),
            other => refuse(UrlFault::Scheme {
                scheme: other.to_owned(),
                hint: if OTHER_SCHEMES.contains(&other) {
                    "this store cannot be read yet; copy the data set to a directory or to S3"
                } else {
                    "write a path, or s3://BUCKET/PREFIX"
                },
            }),
        }
    }

    /// The location of what has the relative name `name` here. Without a name it is the same location.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let name = name.trim_matches('/');
        match self {
            _ if name.is_empty() => self.clone(),
            Self::Local(path) => Self::Local(path.join(name)),
            Self::Remote(remote) => Self::Remote(remote.join(name)),
        }
    }

    /// The path, where it is one of this machine.
    #[must_use]
    pub fn as_local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            Self::Remote(_) => None,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => f.write_str(&escape(&path.to_string_lossy())),
            Self::Remote(remote) => remote.fmt(f),
        }
    }
}

impl RemoteLocation {
    /// The name of the bucket.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The prefix, without a slash at either end; empty for the whole bucket.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of a name beneath the prefix.
    pub(crate) fn key(&self, name: &str) -> String {
        match (self.prefix.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}/{name}", self.prefix),
        }
    }

    fn join(&self, name: &str) -> Self {
        Self {
            bucket: self.bucket.clone(),
            prefix: self.key(name),
        }
    }

    /// The URL of a name beneath the prefix, for messages.
    pub(crate) fn display(&self, name: &str) -> String {
        escape(&format!("{self}/{name}")).into_owned()
    }
}

impl fmt::Display for RemoteLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", escape(&self.prefix))?;
        }
        Ok(())
    }
}

/// The scheme and what follows `://`.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let mut letters = scheme.chars();
    let valid = letters.next()?.is_ascii_alphabetic()
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    valid.then_some((scheme, rest))
}

fn remote(text: &str, rest: &str) -> Result<RemoteLocation, StorageError> {
    let refuse = |fault| Err(StorageError::url(text, fault));
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if has_user(rest) {
        return refuse(UrlFault::UserInfo);
    }
    if rest.contains(['?', '#']) {
        return refuse(UrlFault::Query);
    }
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if bucket.is_empty()
        || bucket.len() > 255
        || !bucket.chars().all(letter)
        || !bucket.starts_with(|c: char| c.is_ascii_alphanumeric())
        || bucket.contains("..")
    {
        return refuse(UrlFault::Bucket);
    }
    let prefix = key.strip_suffix('/').unwrap_or(key);
    if key == "/"
        || !prefix.is_empty()
            && prefix
                .split('/')
                .any(|part| matches!(part, "" | "." | ".."))
    {
        return refuse(UrlFault::Parts);
    }
    if prefix.len() > 1024 {
        return refuse(UrlFault::Long);
    }
    Ok(RemoteLocation {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
    })
}

/// A URL with nothing in it but a scheme, a host and a path.
pub(crate) fn bare_url(text: &str) -> Result<Url, StorageError> {
    let refuse = |fault| Err(StorageError::url(text, fault));
    let Ok(url) = Url::parse(text) else {
        return refuse(UrlFault::Syntax);
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse(UrlFault::UserInfo);
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse(UrlFault::Query);
    }
    Ok(url)
}

fn local(text: &str) -> Result<PathBuf, StorageError> {
    let refuse = |fault| Err(StorageError::url(text, fault));
    let url = bare_url(text)?;
    let parts = text.split('/').skip(3);
    if parts
        .clone()
        .any(|part| part == ".." || part.eq_ignore_ascii_case("%2e%2e"))
    {
        return refuse(UrlFault::Parts);
    }
    // Refuses another host than this one.
    url.to_file_path()
        .or_else(|()| refuse(UrlFault::Host))
        .and_then(|path| {
            if path.to_string_lossy().chars().any(char::is_control) {
                return refuse(UrlFault::Control);
            }
            Ok(path)
        })
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic as _;

    use super::*;

    fn shown(text: &str) -> String {
        Location::parse(text).unwrap().to_string()
    }

    #[test]
    fn buckets_prefixes_and_paths_are_read() {
        for (text, bucket, prefix) in [
            ("s3://bucket", "bucket", ""),
            ("s3://bucket/", "bucket", ""),
            ("S3://my.bucket-1/a", "my.bucket-1", "a"),
            ("s3://b/a/b%20c+d e/", "b", "a/b%20c+d e"),
            ("s3://Old_Bucket/x@y", "Old_Bucket", "x@y"),
        ] {
            let Location::Remote(remote) = Location::parse(text).unwrap() else {
                panic!("{text}");
            };
            assert_eq!((remote.bucket(), remote.prefix()), (bucket, prefix));
        }
        for (text, path) in [
            ("data/train", "data/train"),
            ("/data", "/data"),
            ("./s3", "./s3"),
            ("../up", "../up"),
            ("a:b/c", "a:b/c"),
            ("file:///data/a%20b", "/data/a b"),
            ("file://localhost/data", "/data"),
        ] {
            let location = Location::parse(text).unwrap();
            assert_eq!(location.as_local(), Some(Path::new(path)), "{text}");
        }
        assert_eq!(shown("s3://b/a/"), "s3://b/a");
        assert_eq!(shown("s3://b/"), "s3://b");
    }

    #[test]
    fn names_are_joined_with_one_slash() {
        let join = |text: &str, name: &str| Location::parse(text).unwrap().join(name).to_string();
        assert_eq!(join("s3://b", "train"), "s3://b/train");
        assert_eq!(join("s3://b/a/", "x/y"), "s3://b/a/x/y");
        assert_eq!(join("s3://b/a", ""), "s3://b/a");
        assert_eq!(join("/data", "train"), "/data/train");
        assert_eq!(join("/data", "/train"), "/data/train");
        assert_eq!(join("/data", ""), "/data");
    }

    #[test]
    fn what_is_no_location_is_refused_by_name() {
        for (text, id) in [
            ("", "url-empty"),
            ("gs://bucket/a", "url-scheme"),
            ("az://container", "url-scheme"),
            ("https://host/a", "url-scheme"),
            ("ftp://host/a", "url-scheme"),
            ("s3a://bucket", "url-scheme"),
            ("s3:/bucket", "url-syntax"),
            ("gs:/bucket", "url-syntax"),
            ("s3://", "url-bucket"),
            ("s3:///key", "url-bucket"),
            ("s3://.a/key", "url-bucket"),
            ("s3://a..b/key", "url-bucket"),
            ("s3://host:9000/key", "url-bucket"),
            ("s3://[::1]/key", "url-bucket"),
            ("s3://bücket/key", "url-bucket"),
            ("s3://bucket%2e/key", "url-bucket"),
            ("s3://key:secret@bucket/a", "url-user"),
            ("s3://key@bucket/a", "url-user"),
            ("s3://key:sec/ret@bucket/a", "url-user"),
            ("s3://key:sec?ret@bucket/a", "url-user"),
            ("s3://bucket/a?versionId=1", "url-query"),
            ("s3://bucket?x=1", "url-query"),
            ("s3://bucket/a#b", "url-query"),
            ("s3://bucket/a\nb", "url-control"),
            ("s3://bucket/a\u{7f}", "url-control"),
            ("s3://bucket/a\u{85}", "url-control"),
            ("a\0b", "url-control"),
            ("s3://bucket/a/../b", "url-path"),
            ("s3://bucket/./b", "url-path"),
            ("s3://bucket//b", "url-path"),
            ("s3://bucket//", "url-path"),
            ("s3://bucket/a//", "url-path"),
            ("s3://bucket/..", "url-path"),
            ("file://other/data", "url-host"),
            ("file:///a/../b", "url-path"),
            ("file:///a/%2e%2E/b", "url-path"),
            ("file:///a?b", "url-query"),
            ("file:///a%00b", "url-control"),
        ] {
            let error = Location::parse(text).unwrap_err();
            assert_eq!(error.id(), id, "{text}");
            assert_eq!(error.kind(), shardmill_core::ErrorKind::InvalidInput);
        }
        let long = format!("s3://b/{}", "k/".repeat(600));
        assert_eq!(Location::parse(&long).unwrap_err().id(), "url-long");
    }

    #[test]
    fn secrets_are_not_shown() {
        for text in [
            "s3://AKIA:hush@bucket/a",
            "s3://hush@bucket/a?x",
            "s3://AKIA:hu/sh@bucket/a",
            "s3://AKIA:hush/x@bucket/a",
            "s3://AKIA:a?hush@bucket/a",
            "s3://AKIA:hush",
            "s3://bucket/a?token=hush",
            "s3://bucket/a#hush",
            "gs://hush@bucket",
            "https://user:hush@host/a?sig=hush",
            "file://u:hush@host/a",
        ] {
            let error = Location::parse(text).unwrap_err();
            let all = format!("{error:?} {error} {:?} {:?}", error.object(), error.hint());
            assert!(!all.contains("hush"), "{all}");
        }
    }

    #[test]
    fn control_characters_are_shown_escaped() {
        let error = Location::parse("s3://bucket/a\u{1b}[2J").unwrap_err();
        assert!(!error.object().unwrap().contains('\u{1b}'));
        assert!(!shown("a\u{1b}b").contains('\u{1b}'));
    }
}
