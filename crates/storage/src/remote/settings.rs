//! Settings of stores: converts environment variables to what requests need.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use url::{Host, Url};

use super::credential::Signing;
use super::store_provider::{StoreProvider, azure, files, google, s3, web};
use crate::error::StorageError;
use crate::fault::UrlFault;
use crate::location::{RemoteLocation, StoreKind, bare_url};

/// The names of the settings that [`settings_of`] selects: those that the tools of each store use, and those of
/// MosaicML Streaming.
pub const SETTINGS: [&str; 74] = [
    "ALLOW_HTTP",
    "AWS_ACCESS_KEY_ID",
    "AWS_ALLOW_HTTP",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
    "AWS_REGION",
    "AWS_REQUEST_PAYER",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SKIP_SIGNATURE",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_ACCOUNT_ACCESS_KEY",
    "AZURE_ACCOUNT_NAME",
    "AZURE_ALLOW_HTTP",
    "AZURE_AUTHORITY_HOST",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_ENDPOINT",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_MSI_ENDPOINT",
    "AZURE_MSI_RESOURCE_ID",
    "AZURE_OBJECT_ID",
    "AZURE_SKIP_SIGNATURE",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TENANT_ID",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_USE_EMULATOR",
    "AZURE_TENANT_ID",
    "CLOUDSDK_AUTH_ACCESS_TOKEN",
    "DATABRICKS_AUTH_TYPE",
    "DATABRICKS_CLIENT_ID",
    "DATABRICKS_CLIENT_SECRET",
    "DATABRICKS_CONFIG_FILE",
    "DATABRICKS_CONFIG_PROFILE",
    "DATABRICKS_HOST",
    "DATABRICKS_TOKEN",
    "GCS_KEY",
    "GCS_SECRET",
    "GOOGLE_ALLOW_HTTP",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_ENDPOINT_URL",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SKIP_SIGNATURE",
    "GOOGLE_USER_PROJECT",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "S3_CANNED_ACL",
    "S3_ENDPOINT_URL",
    "SERVICE_ACCOUNT",
    "STORAGE_EMULATOR_HOST",
];

/// The home directory, where the Databricks profile file is searched. It is not a setting of a store, so no option
/// changes it.
pub(super) const HOME: &str = "HOME";

/// Returns the settings among `vars`, which is usually the environment of the process, and the home directory.
pub fn settings_of(vars: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let known = |name: &str| name == HOME || SETTINGS.contains(&name);
    vars.filter(|(name, value)| known(name) && !value.is_empty())
        .collect()
}

/// Parses a setting from a `NAME=VALUE` text. Names may be in lower case.
///
/// # Errors
///
/// `url-setting`: an unknown name, or a text without `=`. The value is not shown.
pub(super) fn option(text: &str) -> Result<(String, String), StorageError> {
    let name = text.split('=').next().unwrap_or_default();
    let upper = name.trim().to_ascii_uppercase();
    match text.split_once('=') {
        Some((_, value)) if SETTINGS.contains(&upper.as_str()) => {
            Ok((upper, value.trim().to_owned()))
        }
        _ => Err(StorageError::Url {
            shown: "--storage-option".to_owned(),
            fault: UrlFault::Unknown {
                // Without an equals sign the text may be a secret value.
                name: match text.contains('=') {
                    true => name.trim().to_owned(),
                    false => "a text without =".to_owned(),
                },
            },
        }),
    }
}

/// A bucket, its address and its credentials. Has no `Debug`, because it contains secrets.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) store_provider: StoreProvider,
    /// Scheme, host and path of the bucket, without a trailing slash.
    pub(super) base: String,
    /// The same for folders of the bucket, for stores where folders have their own addresses.
    pub(super) folders: String,
    /// Scheme, host and port of the connections.
    pub(super) origin: String,
    /// The host is this machine, so no proxy is used.
    pub(super) loopback: bool,
    pub(super) region: String,
    pub(super) request_payer: bool,
    /// The canned ACL for uploaded objects.
    pub(super) acl: Option<String>,
    /// The account that signs requests (Azure), or the project that pays for them (Google).
    pub(super) account: Option<String>,
    pub(super) signing: Signing,
}

/// The given settings.
pub(super) struct Settings<'a>(pub(super) &'a BTreeMap<String, String>);

impl Settings<'_> {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// Returns the first of `names` that has a value, with the value.
    pub(super) fn first(&self, names: &[&'static str]) -> Option<(&'static str, &str)> {
        names
            .iter()
            .find_map(|name| Some((*name, self.text(name)?)))
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<bool, StorageError> {
        match self.text(name).map(str::to_ascii_lowercase).as_deref() {
            None | Some("false" | "0" | "no" | "off") => Ok(false),
            Some("true" | "1" | "yes" | "on" | "requester") => Ok(true),
            Some(_) => Err(setting(name)),
        }
    }

    /// Returns whether connections without TLS to other machines are allowed. The setting `name` of the store takes
    /// precedence over `ALLOW_HTTP`.
    pub(super) fn allows_http(&self, name: &'static str) -> Result<bool, StorageError> {
        match self.text(name) {
            Some(_) => self.flag(name),
            None => self.flag("ALLOW_HTTP"),
        }
    }

    /// Returns a value that is used in a header, after checking its characters.
    pub(super) fn header(&self, name: &'static str) -> Result<Option<String>, StorageError> {
        let value = self.text(name);
        if value.is_some_and(|value| !value.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(setting(name));
        }
        Ok(value.map(str::to_owned))
    }
}

/// Returns the error for an invalid setting. It does not contain the value.
pub(super) fn setting(name: &'static str) -> StorageError {
    StorageError::Url {
        shown: name.to_owned(),
        fault: UrlFault::Setting { name },
    }
}

impl Access {
    pub(super) fn new(
        location: &RemoteLocation,
        settings: &BTreeMap<String, String>,
    ) -> Result<Self, StorageError> {
        let known = Settings(settings);
        match location.kind() {
            StoreKind::S3 => s3::access(location, &known),
            StoreKind::Google => google::access(location, &known),
            StoreKind::Azure => azure::access(location, &known),
            StoreKind::Volumes => files::access(location, &known),
            StoreKind::Http => web::access(location, &known),
        }
    }

    /// Returns the access to a bucket at the URL `base`.
    pub(super) fn at(
        store_provider: StoreProvider,
        base: &str,
        signing: Signing,
    ) -> Result<Self, StorageError> {
        let url = Url::parse(base).map_err(|_| StorageError::url(base, UrlFault::Syntax))?;
        Ok(Self {
            store_provider,
            loopback: is_loopback(&url),
            origin: url.origin().ascii_serialization(),
            base: base.to_owned(),
            folders: base.to_owned(),
            region: "us-east-1".to_owned(),
            request_payer: false,
            acl: None,
            account: None,
            signing,
        })
    }

    /// Returns the URL of a key. The key is percent-encoded once and not normalised.
    pub(super) fn url(&self, key: &str) -> String {
        join(&self.base, key)
    }

    /// Returns the URL of a folder.
    pub(super) fn folder_url(&self, key: &str) -> String {
        join(&self.folders, key)
    }

    pub(super) fn is_plain(&self) -> bool {
        self.base.starts_with("http:")
    }
}

fn join(base: &str, key: &str) -> String {
    let mut url = String::with_capacity(base.len() + key.len() + 8);
    url.push_str(base);
    url.push('/');
    encode(&mut url, key, true);
    url
}

/// Appends a query to a URL.
pub(super) fn with_query(mut url: String, query: &[(&'static str, String)]) -> String {
    for (at, (name, value)) in query.iter().enumerate() {
        url.push(if at == 0 { '?' } else { '&' });
        encode(&mut url, name, false);
        url.push('=');
        encode(&mut url, value, false);
    }
    url
}

pub(super) fn encode(url: &mut String, text: &str, is_path: bool) {
    for byte in text.bytes() {
        let is_plain = matches!(byte, b'-' | b'.' | b'_' | b'~') || is_path && byte == b'/';
        if byte.is_ascii_alphanumeric() || is_plain {
            url.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
}

pub(super) fn check_endpoint(text: &str, allow_http: bool) -> Result<Url, StorageError> {
    let refuse = |fault| Err(StorageError::url(text, fault));
    if text.chars().any(char::is_control) {
        return refuse(UrlFault::Control);
    }
    let url = bare_url(text)?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if allow_http || is_loopback(&url) => Ok(url),
        "http" => refuse(UrlFault::Plain),
        other => refuse(UrlFault::Scheme {
            scheme: other.to_owned(),
            hint: "write an endpoint as https://HOST",
        }),
    }
}

pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic as _;

    use super::*;
    use crate::Location;

    fn access(bucket: &str, settings: &[(&str, &str)]) -> Result<Access, StorageError> {
        let Location::Remote(location) = Location::parse(&format!("s3://{bucket}")).unwrap() else {
            panic!("{bucket}");
        };
        let vars = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Access::new(&location, &settings_of(vars))
    }

    fn url(bucket: &str, settings: &[(&str, &str)]) -> String {
        access(bucket, settings).unwrap().url("a/b")
    }

    #[test]
    fn addresses_follow_region_and_endpoint() {
        for (bucket, settings, expected) in [
            ("b-1", &[][..], "https://b-1.s3.us-east-1.amazonaws.com/a/b"),
            (
                "b.c",
                &[("AWS_REGION", "eu-west-1"), ("AWS_DEFAULT_REGION", "x")],
                "https://s3.eu-west-1.amazonaws.com/b.c/a/b",
            ),
            (
                "b",
                &[("AWS_DEFAULT_REGION", "cn-north-1")],
                "https://b.s3.cn-north-1.amazonaws.com.cn/a/b",
            ),
            (
                "b",
                &[
                    ("AWS_ENDPOINT_URL", "https://general"),
                    ("AWS_ENDPOINT_URL_S3", "https://minio.lan:9000/"),
                ],
                "https://minio.lan:9000/b/a/b",
            ),
            (
                "b",
                &[
                    ("AWS_ENDPOINT_URL_S3", "https://two"),
                    ("S3_ENDPOINT_URL", "http://127.0.0.1:9000/s3"),
                ],
                "http://127.0.0.1:9000/s3/b/a/b",
            ),
            (
                "b",
                &[("AWS_ENDPOINT_URL", ""), ("AWS_ENDPOINT", "http://[::1]:1")],
                "http://[::1]:1/b/a/b",
            ),
            (
                "b",
                &[
                    ("AWS_ENDPOINT_URL", "http://store.lan"),
                    ("AWS_ALLOW_HTTP", "true"),
                ],
                "http://store.lan/b/a/b",
            ),
            (
                "b",
                &[
                    ("AWS_ENDPOINT_URL", "https://b.store.lan"),
                    ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "1"),
                ],
                "https://b.store.lan/a/b",
            ),
        ] {
            assert_eq!(url(bucket, settings), expected, "{settings:?}");
        }
    }

    #[test]
    fn endpoints_and_settings_are_checked() {
        for (name, value, id) in [
            ("AWS_ENDPOINT_URL", "http://store.lan", "url-plain"),
            ("AWS_ENDPOINT_URL", "http://10.0.0.1", "url-plain"),
            ("AWS_ENDPOINT_URL", "http://localhost.evil.com", "url-plain"),
            ("AWS_ENDPOINT_URL", "ftp://store", "url-scheme"),
            ("AWS_ENDPOINT_URL", "store:9000", "url-scheme"),
            ("AWS_ENDPOINT_URL", "store", "url-syntax"),
            ("AWS_ENDPOINT_URL", "https://u:hush@store", "url-user"),
            ("AWS_ENDPOINT_URL", "https://store?hush", "url-query"),
            ("AWS_ENDPOINT_URL", "https://st\u{1b}ore", "url-control"),
            ("AWS_REGION", "eu.evil.com/", "url-setting"),
            ("AWS_ALLOW_HTTP", "hush", "url-setting"),
            ("AWS_SKIP_SIGNATURE", "maybe", "url-setting"),
            ("AWS_ACCESS_KEY_ID", "hush", "url-setting"),
            ("AWS_SECRET_ACCESS_KEY", "hush", "url-setting"),
            ("S3_CANNED_ACL", "hush\r\nx: y", "url-setting"),
        ] {
            let Err(error) = access("b", &[(name, value)]) else {
                panic!("{name}={value}");
            };
            assert_eq!(error.id(), id, "{name}={value}");
            let all = format!("{error:?} {error} {:?}", error.object());
            assert!(!all.contains("hush"), "{all}");
        }
        let keys = [
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_SESSION_TOKEN", "hu sh"),
        ];
        assert_eq!(access("b", &keys).err().unwrap().id(), "url-setting");
    }

    #[test]
    fn credentials_come_from_the_settings_first() {
        let kind = |settings: &[(&str, &str)]| match access("b", settings).unwrap().signing {
            Signing::Anonymous => "anonymous",
            Signing::Aws { token: None, .. } => "fixed",
            Signing::Aws { .. } => "session",
            Signing::AwsProvider(_) => "provider",
            _ => "other",
        };
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        assert_eq!(kind(&[]), "provider");
        assert_eq!(kind(&keys), "fixed");
        assert_eq!(
            kind(&[keys[0], keys[1], ("AWS_SESSION_TOKEN", "c")]),
            "session"
        );
        assert_eq!(
            kind(&[keys[0], keys[1], ("AWS_SKIP_SIGNATURE", "True")]),
            "anonymous"
        );
    }

    #[test]
    fn only_known_settings_are_picked_and_keys_are_encoded_once() {
        let vars = [
            ("HOME", "/root"),
            ("PATH", "/bin"),
            ("AWS_REGION", "r"),
            ("AWS_PROFILE", "p"),
        ];
        let picked = settings_of(vars.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        assert_eq!(
            picked.into_keys().collect::<Vec<_>>(),
            ["AWS_REGION", "HOME"]
        );
        assert_eq!(option("HOME=/root").unwrap_err().id(), "url-setting");
        let access = access("b", &[("AWS_ENDPOINT", "https://s")]).unwrap();
        assert_eq!(
            access.url("a b/ü%20+~x"),
            "https://s/b/a%20b/%C3%BC%2520%2B~x"
        );
        assert_eq!(
            with_query(
                access.url("a"),
                &[("prefix", "b/c d&".to_owned()), ("uploads", String::new())]
            ),
            "https://s/b/a?prefix=b%2Fc%20d%26&uploads="
        );
        assert!(SETTINGS.is_sorted());
    }

    fn of(url: &str, settings: &[(&str, &str)]) -> Result<Access, StorageError> {
        let Location::Remote(location) = Location::parse(url).unwrap() else {
            panic!("{url}");
        };
        let vars = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Access::new(&location, &settings_of(vars))
    }

    #[test]
    fn each_store_has_its_address() {
        let lake = "abfss://c@acc.dfs.core.windows.net/x";
        let connection = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn";
        let emulator = ("STORAGE_EMULATOR_HOST", "localhost:4443");
        let coreweave = ("AWS_ENDPOINT_URL", "https://cwobject.com");
        for (url, settings, expected) in [
            ("gs://b/x", &[][..], "https://storage.googleapis.com/b/k"),
            ("gs://b/x", &[emulator], "http://localhost:4443/b/k"),
            (
                "gs://b/x",
                &[("GOOGLE_ENDPOINT_URL", "https://one"), emulator],
                "https://one/b/k",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_ACCOUNT_NAME", "acc")],
                "https://acc.blob.core.windows.net/c/k",
            ),
            (lake, &[], "https://acc.blob.core.windows.net/c/k"),
            // The URL takes precedence.
            (
                lake,
                &[("AZURE_STORAGE_ENDPOINT", "https://other")],
                "https://acc.blob.core.windows.net/c/k",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_USE_EMULATOR", "true")],
                "http://127.0.0.1:10000/devstoreaccount1/c/k",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_CONNECTION_STRING", connection)],
                "https://acc.blob.core.chinacloudapi.cn/c/k",
            ),
            ("https://host:8443/x", &[], "https://host:8443/k"),
            (
                "s3://b/x",
                &[("AWS_ENDPOINT_URL", "https://oss-cn-hangzhou.aliyuncs.com")],
                "https://b.oss-cn-hangzhou.aliyuncs.com/k",
            ),
            ("s3://b/x", &[coreweave], "https://b.cwobject.com/k"),
            (
                "s3://b/x",
                &[coreweave, ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false")],
                "https://cwobject.com/b/k",
            ),
        ] {
            let access = of(url, settings).unwrap();
            assert_eq!(access.url("k"), expected, "{url} {settings:?}");
        }
        let volume = [("DATABRICKS_HOST", "adb.net"), ("DATABRICKS_TOKEN", "t")];
        let access = of("dbfs:/Volumes/c/s/v w/x", &volume).unwrap();
        let root = "https://adb.net/api/2.0/fs";
        assert_eq!(access.url("k"), format!("{root}/files/Volumes/c/s/v%20w/k"));
        let folder = format!("{root}/directories/Volumes/c/s/v%20w/k");
        assert_eq!(access.folder_url("k"), folder);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_and_not_shown() {
        let plain = ("DATABRICKS_HOST", "http://adb.net");
        for (url, settings, id) in [
            ("az://c/x", &[][..], "url-setting"),
            (
                "az://c/x",
                &[("AZURE_STORAGE_ACCOUNT_NAME", "hush/")],
                "url-setting",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_CONNECTION_STRING", "hush")],
                "url-setting",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_ENDPOINT", "http://other")],
                "url-plain",
            ),
            ("gs://b/x", &[("GCS_KEY", "hush")], "url-setting"),
            ("gs://b/x", &[("GCS_SECRET", "hush")], "url-setting"),
            (
                "gs://b/x",
                &[("GOOGLE_OAUTH_ACCESS_TOKEN", "hush\u{7f}x")],
                "url-setting",
            ),
            (
                "gs://b/x",
                &[("STORAGE_EMULATOR_HOST", "other:1")],
                "url-plain",
            ),
            ("dbfs:/Volumes/c/s/v", &[], "url-setting"),
            (
                "dbfs:/Volumes/c/s/v",
                &[("DATABRICKS_HOST", "a")],
                "url-setting",
            ),
            ("dbfs:/Volumes/c/s/v", &[plain], "url-plain"),
            ("http://other/x", &[], "url-plain"),
            ("http://other/x", &[("ALLOW_HTTP", "true")], "ok"),
        ] {
            match of(url, settings) {
                Ok(_) => assert_eq!(id, "ok", "{url} {settings:?}"),
                Err(error) => {
                    assert_eq!(error.id(), id, "{url} {settings:?}");
                    let all = format!("{error:?} {error} {:?} {:?}", error.object(), error.hint());
                    assert!(!all.contains("hush"), "{all}");
                }
            }
        }
        for text in ["AWS_SECRET_KEY=hush", "hush", "=hush", ""] {
            let error = option(text).unwrap_err();
            assert_eq!(error.id(), "url-setting");
            let all = format!("{error:?} {error} {:?}", error.object());
            assert!(!all.contains("hush"), "{all}");
        }
    }
}
