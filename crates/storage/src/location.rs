//! Parses locations: local paths and URLs of stores.

use std::fmt;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use shardmill_core::escape;
use url::Url;

use crate::entry::StoreKind;
use crate::error::{FORMS, StorageError, has_user};

/// Known schemes that are not supported, with what to write instead.
const OTHER_SCHEMES: [(&str, &str); 9] = [
    ("s3a", "write s3://"),
    ("s3n", "write s3://"),
    ("abfs", "write abfss://"),
    ("azure", "write az://CONTAINER/PREFIX"),
    ("azure-dl", "write az://CONTAINER/PREFIX"),
    ("adl", "write az://CONTAINER/PREFIX"),
    (
        "oci",
        "write s3://BUCKET/PREFIX, and set AWS_ENDPOINT_URL=https://NAMESPACE.compat.objectstorage.REGION.oraclecloud.com",
    ),
    (
        "r2",
        "write s3://BUCKET/PREFIX, and set AWS_ENDPOINT_URL=https://ACCOUNT.r2.cloudflarestorage.com",
    ),
    (
        "oss",
        "write s3://BUCKET/PREFIX, and set AWS_ENDPOINT_URL=https://oss-REGION.aliyuncs.com",
    ),
];

/// Supported schemes.
const SCHEMES: [&str; 9] = [
    "s3", "gs", "gcs", "az", "abfss", "hf", "https", "http", "file",
];

/// The location of a dataset: a local directory or a prefix in a store.
///
/// `Display` shows the text it was parsed from, with possible secrets removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path.
    Local(PathBuf),
    /// A prefix in a store.
    Remote(RemoteLocation),
}

/// A bucket, and a prefix that all names are relative to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteLocation {
    kind: StoreKind,
    /// The URL of the bucket for display, without a trailing slash.
    root: String,
    bucket: String,
    /// Scheme and host of the account, if the URL names it.
    host: Option<String>,
    /// The prefix without a leading or trailing slash; empty for the whole bucket.
    prefix: String,
}

impl Location {
    /// Parses the URL of a store, `file:///path`, or a path. A trailing slash of a URL is ignored.
    ///
    /// | form | store |
    /// |---|---|
    /// | `s3://BUCKET/PREFIX` | S3 and compatible stores |
    /// | `gs://BUCKET/PREFIX`, `gcs://…` | Google Cloud Storage |
    /// | `az://CONTAINER/PREFIX`, `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX`, `https://ACCOUNT.blob.core.windows.net/CONTAINER/PREFIX` | Azure |
    /// | `dbfs:/Volumes/CATALOG/SCHEMA/VOLUME/PREFIX`, `/Volumes/…` | a volume: a path where the catalog is mounted, else the Files API |
    /// | `hf://datasets/OWNER/NAME[@REVISION]/PREFIX` | a dataset repository of the Hugging Face Hub, read-only |
    /// | `hf://buckets/OWNER/NAME/PREFIX` | a bucket of the Hugging Face Hub, read-only |
    /// | `https://HOST/PATH`, `http://HOST/PATH` | a web server, read-only |
    ///
    /// Keys are used as written, except in `https://` and `http://` URLs, which are percent-decoded (`%20` is a space).
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
    /// [`StorageError::At`], which is `InvalidInput`: an unsupported scheme, an invalid bucket name, user information,
    /// a query or a fragment, control characters, and empty, `.` or `..` parts.
    pub fn parse(text: &str) -> Result<Self, StorageError> {
        Self::parse_where(text, &|path| path.is_dir())
    }

    /// Parses as [`Location::parse`] does; `is_mounted` returns whether the folder of a catalog exists.
    fn parse_where(text: &str, is_mounted: &dyn Fn(&Path) -> bool) -> Result<Self, StorageError> {
        Self::parse_text(text, is_mounted).map_err(|fault| fault.in_text(text))
    }

    fn parse_text(text: &str, is_mounted: &dyn Fn(&Path) -> bool) -> Result<Self, StorageError> {
        refuse_if(text.is_empty(), StorageError::UrlEmpty)?;
        if let Some(path) = dbfs(text) {
            return volume(path, true, is_mounted);
        }
        let Some((scheme, rest)) = split_scheme(text) else {
            refuse_if(text.contains('\0'), StorageError::UrlControl)?;
            if text.starts_with("/Volumes/") {
                return volume(text, false, is_mounted);
            }
            // `s3:/bucket` is a typing error, not the name of a folder.
            let first = text.split('/').next().unwrap_or_default();
            let scheme = first.strip_suffix(':').unwrap_or_default();
            let mut others = OTHER_SCHEMES.iter().map(|(other, _)| *other);
            let is_scheme = SCHEMES.contains(&scheme) || others.any(|other| other == scheme);
            refuse_if(is_scheme, StorageError::UrlSyntax)?;
            return Ok(Self::Local(PathBuf::from(text)));
        };
        refuse_if(has_control(text), StorageError::UrlControl)?;
        let lower = scheme.to_ascii_lowercase();
        match lower.as_str() {
            "s3" => bucket(rest, StoreKind::S3, "s3").map(Self::Remote),
            "gs" | "gcs" => bucket(rest, StoreKind::Google, "gs").map(Self::Remote),
            "az" => bucket(rest, StoreKind::Azure, "az").map(Self::Remote),
            "abfss" => lake(rest).map(Self::Remote),
            "hf" => hub(rest).map(Self::Remote),
            "https" | "http" => web(text).map(Self::Remote),
            "file" => local(text).map(Self::Local),
            other => Err(StorageError::UrlScheme {
                scheme: other.to_owned(),
                hint: OTHER_SCHEMES
                    .iter()
                    .find(|(known, _)| *known == other)
                    .map_or(FORMS, |(_, hint)| hint),
            }),
        }
    }

    /// Returns the location of the relative name `name` below this one. An empty name returns the same location.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let name = name.trim_matches('/');
        match self {
            _ if name.is_empty() => self.clone(),
            Self::Local(path) => Self::Local(path.join(name)),
            Self::Remote(remote) => Self::Remote(remote.join(name)),
        }
    }

    /// Returns the path, if the location is local.
    #[must_use]
    pub fn as_local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            Self::Remote(_) => None,
        }
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self::Local(path)
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Self {
        Self::Local(path.to_owned())
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
    /// Returns the kind of the store.
    #[must_use]
    pub const fn kind(&self) -> StoreKind {
        self.kind
    }

    /// Returns the name of the bucket, the container, the host, the volume with its catalog and schema, or the repository
    /// with its owner and revision. Buckets of the Hugging Face Hub are `buckets/OWNER/NAME`.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the prefix without a leading or trailing slash; empty for the whole bucket.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the location of the whole bucket.
    #[must_use]
    pub fn root(&self) -> Self {
        Self {
            prefix: String::new(),
            ..self.clone()
        }
    }

    /// Returns this prefix relative to that of `other`, if it is the same or lies below it. Returns `Some("")` for the
    /// same.
    #[must_use]
    pub fn strip_prefix(&self, other: &Self) -> Option<&str> {
        let is_same_store = (self.kind, &self.root, &self.host, &self.bucket)
            == (other.kind, &other.root, &other.host, &other.bucket);
        if !is_same_store {
            return None;
        }
        let rest = self.prefix.strip_prefix(&other.prefix)?;
        if rest.is_empty() || other.prefix.is_empty() {
            return Some(rest);
        }
        rest.strip_prefix('/')
    }

    /// Returns the parent location and the last part of the prefix; `None` for the whole bucket.
    ///
    /// ```
    /// use shardmill_storage::Location;
    ///
    /// let Location::Remote(file) = Location::parse("gs://bucket/a/b")? else {
    ///     unreachable!()
    /// };
    /// let (folder, name) = file.split_name().unwrap();
    /// assert_eq!((folder.to_string().as_str(), name), ("gs://bucket/a", "b"));
    /// # Ok::<(), shardmill_storage::StorageError>(())
    /// ```
    #[must_use]
    pub fn split_name(&self) -> Option<(Self, &str)> {
        if self.prefix.is_empty() {
            return None;
        }
        let (folder, name) = self.prefix.rsplit_once('/').unwrap_or(("", &self.prefix));
        let folder = Self {
            prefix: folder.to_owned(),
            ..self.clone()
        };
        Some((folder, name))
    }

    /// Returns scheme and host of the account or the server, if the URL names them.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Returns the key of a name below the prefix.
    pub(crate) fn key(&self, name: &str) -> String {
        match (self.prefix.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}/{name}", self.prefix),
        }
    }

    /// Returns the location of the relative name `name` below this one.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        Self {
            prefix: self.key(name),
            ..self.clone()
        }
    }

    /// Returns the URL of a name below the prefix, for messages.
    pub(crate) fn display(&self, name: &str) -> String {
        match name.is_empty() {
            true => self.to_string(),
            false => escape(&format!("{self}/{name}")).into_owned(),
        }
    }
}

impl fmt::Display for RemoteLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", escape(&self.prefix))?;
        }
        Ok(())
    }
}

/// Splits a URL into the scheme and the text after `://`.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let mut letters = scheme.chars();
    let valid = letters.next()?.is_ascii_alphabetic()
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    valid.then_some((scheme, rest))
}

/// Returns the path after `dbfs:`, with one leading slash.
fn dbfs(text: &str) -> Option<&str> {
    let (scheme, path) = text.split_at_checked(5)?;
    let path = path.strip_prefix("//").unwrap_or(path);
    (scheme.eq_ignore_ascii_case("dbfs:") && path.starts_with('/')).then_some(path)
}

/// Returns whether a part of a path is empty, or would leave its folder.
fn is_odd(part: &str) -> bool {
    matches!(part, "" | "." | "..")
}

/// Checks the key after a bucket and returns it as a prefix.
fn prefix_of(key: &str) -> Result<String, StorageError> {
    let prefix = key.strip_suffix('/').unwrap_or(key);
    let is_odd = key == "/" || !prefix.is_empty() && prefix.split('/').any(is_odd);
    refuse_if(is_odd, StorageError::UrlPath)?;
    refuse_if(prefix.len() > 1024, StorageError::UrlTooLong)?;
    Ok(prefix.to_owned())
}

fn is_bucket(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    // Azure reserves container names that begin with a dollar sign: `$web`, `$root`.
    let first = |c: char| c.is_ascii_alphanumeric();
    !name.is_empty()
        && name.len() <= 255
        && name.chars().all(letter)
        && name.starts_with(first)
        && !name.contains("..")
}

/// Returns `error` if the text has the fault.
pub(crate) fn refuse_if(has_fault: bool, error: StorageError) -> Result<(), StorageError> {
    if has_fault { Err(error) } else { Ok(()) }
}

pub(crate) fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

fn bucket(rest: &str, kind: StoreKind, scheme: &str) -> Result<RemoteLocation, StorageError> {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    refuse_if(has_user(rest), StorageError::UrlUser)?;
    refuse_if(rest.contains(['?', '#']), StorageError::UrlQuery)?;
    refuse_if(!is_bucket(bucket), StorageError::UrlBucket)?;
    Ok(RemoteLocation {
        kind,
        root: format!("{scheme}://{bucket}"),
        bucket: bucket.to_owned(),
        host: None,
        prefix: prefix_of(key)?,
    })
}

/// Returns the blob host for `ACCOUNT.blob.core.windows.net`, `ACCOUNT.dfs.core.windows.net` and the same in other
/// clouds.
fn blob_host(host: &str) -> Option<String> {
    const DOMAINS: [&str; 4] = [
        "core.windows.net",
        "core.chinacloudapi.cn",
        "core.usgovcloudapi.net",
        "fabric.microsoft.com",
    ];
    let host = host.to_ascii_lowercase();
    let (account, rest) = host.split_once('.')?;
    let (service, domain) = rest.split_once('.')?;
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let known = matches!(service, "blob" | "dfs") && DOMAINS.contains(&domain);
    (known && !account.is_empty() && account.chars().all(letter))
        .then(|| format!("{account}.blob.{domain}"))
}

/// Parses `CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX` or `CONTAINER/PREFIX`.
fn lake(rest: &str) -> Result<RemoteLocation, StorageError> {
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let Some((container, host)) = authority.split_once('@') else {
        return bucket(rest, StoreKind::Azure, "abfss");
    };
    let has_user = container.contains(':') || host.contains('@');
    refuse_if(has_user, StorageError::UrlUser)?;
    refuse_if(rest.contains(['?', '#']), StorageError::UrlQuery)?;
    refuse_if(!is_bucket(container), StorageError::UrlBucket)?;
    let blobs = blob_host(host).ok_or(StorageError::UrlHost)?;
    Ok(RemoteLocation {
        kind: StoreKind::Azure,
        root: format!("abfss://{container}@{}", host.to_ascii_lowercase()),
        bucket: container.to_owned(),
        host: Some(format!("https://{blobs}")),
        prefix: prefix_of(key)?,
    })
}

/// Parses the URL of a web server or of an Azure blob container.
fn web(text: &str) -> Result<RemoteLocation, StorageError> {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    refuse_if(has_user(rest), StorageError::UrlUser)?;
    let url = bare_url(text)?;
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let path = percent_decode_str(path).decode_utf8();
    let path = path.map_err(|_| StorageError::UrlSyntax)?;
    refuse_if(has_control(&path), StorageError::UrlControl)?;
    let origin = url.origin().ascii_serialization();
    let host = url.host_str().ok_or(StorageError::UrlSyntax)?;
    if let Some(blobs) = blob_host(host) {
        let (container, key) = path.split_once('/').unwrap_or((&path, ""));
        refuse_if(!is_bucket(container), StorageError::UrlBucket)?;
        return Ok(RemoteLocation {
            kind: StoreKind::Azure,
            root: format!("{origin}/{container}"),
            bucket: container.to_owned(),
            host: Some(format!("{}://{blobs}", url.scheme())),
            prefix: prefix_of(key)?,
        });
    }
    Ok(RemoteLocation {
        kind: StoreKind::Http,
        root: origin.clone(),
        bucket: host.to_owned(),
        host: Some(origin),
        prefix: prefix_of(&path)?,
    })
}

/// Parses `/Volumes/CATALOG/SCHEMA/VOLUME/PREFIX`. Returns a local path if the catalog is mounted.
fn volume(
    path: &str,
    is_url: bool,
    is_mounted: &dyn Fn(&Path) -> bool,
) -> Result<Location, StorageError> {
    refuse_if(has_control(path), StorageError::UrlControl)?;
    let mut parts = path.trim_end_matches('/').splitn(6, '/').skip(1);
    let (first, catalog) = (parts.next(), parts.next());
    if first != Some("Volumes") {
        return Err(StorageError::UrlScheme {
            scheme: "dbfs".to_owned(),
            hint: "write dbfs:/Volumes/CATALOG/SCHEMA/VOLUME/PREFIX, or a path below /dbfs",
        });
    }
    let mounted = catalog.is_some_and(|catalog| is_mounted(&Path::new("/Volumes").join(catalog)));
    let (Some(catalog), Some(schema), Some(name)) = (catalog, parts.next(), parts.next()) else {
        return if is_url && !mounted {
            Err(StorageError::UrlBucket)
        } else {
            Ok(Location::Local(PathBuf::from(path)))
        };
    };
    if mounted {
        return Ok(Location::Local(PathBuf::from(path)));
    }
    let is_odd = [catalog, schema, name].into_iter().any(is_odd);
    refuse_if(is_odd, StorageError::UrlPath)?;
    let bucket = format!("{catalog}/{schema}/{name}");
    Ok(Location::Remote(RemoteLocation {
        kind: StoreKind::Volumes,
        root: format!("dbfs:/Volumes/{bucket}"),
        bucket,
        host: None,
        prefix: prefix_of(parts.next().unwrap_or_default())?,
    }))
}

/// Parses `datasets/OWNER/NAME[@REVISION]/PREFIX` or `buckets/OWNER/NAME/PREFIX`. A revision is one part, or
/// `refs/convert/NAME` or `refs/pr/NUMBER`.
fn hub(rest: &str) -> Result<RemoteLocation, StorageError> {
    let (kind, path) = match rest.split_once('/') {
        Some(("datasets", path)) => (StoreKind::Hub, path),
        Some(("buckets", path)) => (StoreKind::HubBucket, path),
        _ => {
            return Err(StorageError::UrlScheme {
                scheme: "hf".to_owned(),
                hint: "write hf://datasets/OWNER/NAME[@REVISION]/PREFIX or hf://buckets/OWNER/NAME/PREFIX",
            });
        }
    };
    refuse_if(rest.contains(['?', '#']), StorageError::UrlQuery)?;
    let mut parts = path.split('/');
    let (owner, name) = (parts.next(), parts.next());
    let (Some(owner), Some(name)) = (owner, name.filter(|name| !name.is_empty())) else {
        return Err(StorageError::UrlBucket);
    };
    let (name, revision) = match name.split_once('@') {
        Some((name, revision)) => (name, Some(revision)),
        None => (name, None),
    };
    let is_named = is_repository(owner) && is_repository(name);
    refuse_if(!is_named, StorageError::UrlBucket)?;
    let folder = match kind {
        StoreKind::HubBucket => "buckets",
        _ => "datasets",
    };
    let mut bucket = format!("{folder}/{owner}/{name}");
    if let Some(first) = revision {
        if kind == StoreKind::HubBucket {
            let bucket = format!("{owner}/{name}");
            return Err(StorageError::UrlRevision { bucket });
        }
        let is_odd_or_two = is_odd(first) || first.contains('@');
        refuse_if(is_odd_or_two, StorageError::UrlBucket)?;
        bucket.push_str(&format!("@{first}"));
        if first == "refs" {
            for _ in 0..2 {
                let part = parts.next().filter(|part| !is_odd(part));
                bucket.push_str(&format!("/{}", part.ok_or(StorageError::UrlBucket)?));
            }
        }
    }
    let prefix: Vec<&str> = parts.collect();
    Ok(RemoteLocation {
        kind,
        root: format!("hf://{bucket}"),
        bucket,
        host: None,
        prefix: prefix_of(&prefix.join("/"))?,
    })
}

/// Returns whether a text can be the name of an owner or a repository of the Hub.
fn is_repository(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !name.is_empty()
        && name.len() <= 96
        && name.chars().all(letter)
        && !name.starts_with(['-', '.'])
        && !name.contains("..")
}

/// Parses a URL that consists only of a scheme, a host and a path.
pub(crate) fn bare_url(text: &str) -> Result<Url, StorageError> {
    let url = Url::parse(text).map_err(|_| StorageError::UrlSyntax)?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    refuse_if(has_user, StorageError::UrlUser)?;
    let has_query = url.query().is_some() || url.fragment().is_some();
    refuse_if(has_query, StorageError::UrlQuery)?;
    Ok(url)
}

fn local(text: &str) -> Result<PathBuf, StorageError> {
    let url = bare_url(text)?;
    let leads_up = |part: &str| part == ".." || part.eq_ignore_ascii_case("%2e%2e");
    refuse_if(text.split('/').skip(3).any(leads_up), StorageError::UrlPath)?;
    // This refuses a URL of another host.
    let path = url.to_file_path().map_err(|()| StorageError::UrlHost)?;
    refuse_if(
        has_control(&path.to_string_lossy()),
        StorageError::UrlControl,
    )?;
    Ok(path)
}

#[cfg(test)]
mod tests;
