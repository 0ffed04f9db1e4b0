//! What the environment says about a store, read into what requests need.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use url::{Host, Url};

use crate::error::StorageError;
use crate::fault::UrlFault;
use crate::location::{RemoteLocation, bare_url};

/// Names of the settings that [`settings_of`] picks: those of the tools of AWS, and two of MosaicML Streaming.
pub const SETTINGS: [&str; 23] = [
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
    "S3_CANNED_ACL",
    "S3_ENDPOINT_URL",
];

/// The settings among `vars`, usually the environment of the process.
pub fn settings_of(vars: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    vars.filter(|(name, value)| SETTINGS.contains(&name.as_str()) && !value.is_empty())
        .collect()
}

/// A bucket and how to speak to it. Has no `Debug`: there are secrets in it.
#[derive(Clone)]
pub(super) struct Access {
    /// Scheme, host and path of the bucket, without a slash at the end.
    base: String,
    /// Scheme, host and port: what connections lead to.
    pub(super) origin: String,
    /// On this machine: no proxy.
    pub(super) loopback: bool,
    pub(super) region: String,
    pub(super) request_payer: bool,
    /// Who may do what with objects that are put, by one of the names that the store has for that.
    pub(super) acl: Option<String>,
    pub(super) signing: Signing,
}

/// Where the credentials come from.
#[derive(Clone)]
pub(super) enum Signing {
    /// Requests are not signed.
    Anonymous,
    /// From the settings.
    Fixed {
        key: String,
        secret: String,
        token: Option<String>,
    },
    /// A role, a container or a machine has them; these settings say which.
    Provider(BTreeMap<String, String>),
}

struct Settings<'a>(&'a BTreeMap<String, String>);

impl Settings<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?.trim();
        (!value.is_empty()).then_some(value)
    }

    fn flag(&self, name: &'static str) -> Result<bool, StorageError> {
        match self.text(name).map(str::to_ascii_lowercase).as_deref() {
            None | Some("false" | "0" | "no" | "off") => Ok(false),
            Some("true" | "1" | "yes" | "on" | "requester") => Ok(true),
            Some(_) => Err(setting(name)),
        }
    }

    /// A value that becomes part of a header.
    fn header(&self, name: &'static str) -> Result<Option<String>, StorageError> {
        let value = self.text(name);
        if value.is_some_and(|value| !value.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(setting(name));
        }
        Ok(value.map(str::to_owned))
    }
}

/// The error of a setting, which does not show its value.
fn setting(name: &'static str) -> StorageError {
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
        let mut region = "us-east-1";
        for name in ["AWS_DEFAULT_REGION", "AWS_REGION"] {
            if let Some(value) = known.text(name) {
                let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                if !value.bytes().all(letter) {
                    return Err(setting(name));
                }
                region = value;
            }
        }
        // The first is an argument of MosaicML Streaming, and arguments come before the environment.
        let endpoint = [
            "S3_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT",
        ]
        .into_iter()
        .find_map(|name| known.text(name));
        let hosted = known.flag("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")?;
        let allow_http = known.flag("AWS_ALLOW_HTTP")?;
        let bucket = location.bucket();
        let base = match endpoint {
            Some(text) => {
                let url = check_endpoint(text, allow_http)?;
                let base = url.as_str().trim_end_matches('/');
                if hosted {
                    base.to_owned()
                } else {
                    format!("{base}/{bucket}")
                }
            }
            None => amazon(bucket, region),
        };
        let url = Url::parse(&base).map_err(|_| StorageError::url(&base, UrlFault::Syntax))?;
        Ok(Self {
            loopback: is_loopback(&url),
            origin: url.origin().ascii_serialization(),
            base,
            region: region.to_owned(),
            request_payer: known.flag("AWS_REQUEST_PAYER")?,
            acl: known.header("S3_CANNED_ACL")?,
            signing: signing(&known)?,
        })
    }

    /// The URL of a key, which is encoded once and not changed in any other way.
    pub(super) fn url(&self, key: &str) -> String {
        let mut url = String::with_capacity(self.base.len() + key.len() + 8);
        url.push_str(&self.base);
        url.push('/');
        encode(&mut url, key, true);
        url
    }

    /// The URL of a key with a query.
    pub(super) fn url_with(&self, key: &str, query: &[(&str, &str)]) -> String {
        let mut url = self.url(key);
        for (at, (name, value)) in query.iter().enumerate() {
            url.push(if at == 0 { '?' } else { '&' });
            encode(&mut url, name, false);
            url.push('=');
            encode(&mut url, value, false);
        }
        url
    }

    pub(super) fn is_plain(&self) -> bool {
        self.base.starts_with("http:")
    }
}

fn encode(url: &mut String, text: &str, is_path: bool) {
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

fn signing(known: &Settings<'_>) -> Result<Signing, StorageError> {
    if known.flag("AWS_SKIP_SIGNATURE")? {
        return Ok(Signing::Anonymous);
    }
    let key = known.header("AWS_ACCESS_KEY_ID")?;
    let secret = known.header("AWS_SECRET_ACCESS_KEY")?;
    match (key, secret) {
        (Some(key), Some(secret)) => Ok(Signing::Fixed {
            key,
            secret,
            token: known.header("AWS_SESSION_TOKEN")?,
        }),
        (Some(_), None) => Err(setting("AWS_SECRET_ACCESS_KEY")),
        (None, Some(_)) => Err(setting("AWS_ACCESS_KEY_ID")),
        (None, None) => {
            known.flag("AWS_EC2_METADATA_DISABLED")?;
            Ok(Signing::Provider(known.0.clone()))
        }
    }
}

/// Amazon's own address of a bucket.
fn amazon(bucket: &str, region: &str) -> String {
    let domain = if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    };
    // Certificates cover one label, and host names have no capitals.
    let label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if bucket.len() <= 63 && bucket.bytes().all(label) {
        format!("https://{bucket}.s3.{region}.{domain}")
    } else {
        format!("https://s3.{region}.{domain}/{bucket}")
    }
}

fn check_endpoint(text: &str, allow_http: bool) -> Result<Url, StorageError> {
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

fn is_loopback(url: &Url) -> bool {
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
            Signing::Fixed { token: None, .. } => "fixed",
            Signing::Fixed { .. } => "session",
            Signing::Provider(_) => "provider",
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
        let vars = [("HOME", "/root"), ("AWS_REGION", "r"), ("AWS_PROFILE", "p")];
        let picked = settings_of(vars.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        assert_eq!(picked.into_keys().collect::<Vec<_>>(), ["AWS_REGION"]);
        let access = access("b", &[("AWS_ENDPOINT", "https://s")]).unwrap();
        assert_eq!(
            access.url("a b/ü%20+~x"),
            "https://s/b/a%20b/%C3%BC%2520%2B~x"
        );
        assert_eq!(
            access.url_with("a", &[("prefix", "b/c d&"), ("uploads", "")]),
            "https://s/b/a?prefix=b%2Fc%20d%26&uploads="
        );
        assert!(SETTINGS.is_sorted());
    }
}
