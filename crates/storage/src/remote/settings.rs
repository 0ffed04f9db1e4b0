//! Settings of stores: converts environment variables to what requests need.

use std::collections::BTreeMap;
use std::net::IpAddr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::{Host, Url};

use crate::error::StorageError;
use crate::location::{RemoteLocation, bare_url, has_control, refuse_if};

/// The names of the settings that [`settings_of`] selects: those that the tools of each store use, and those of
/// MosaicML Streaming.
pub const SETTINGS: [&str; 86] = [
    "ALLOW_HTTP",
    "AWS_ACCESS_KEY_ID",
    "AWS_ALLOW_HTTP",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_DEFAULT_PROFILE",
    "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_SSO",
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_REQUEST_PAYER",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SHARED_CREDENTIALS_FILE",
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
    "AZURE_USE_AZURE_CLI",
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
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "S3_CANNED_ACL",
    "S3_ENDPOINT_URL",
    "SERVICE_ACCOUNT",
    SINGLE_WRITER,
    "STORAGE_EMULATOR_HOST",
];

/// The setting by which the user declares that no other process writes to a destination. It allows to write where
/// nothing keeps a second writer out.
pub const SINGLE_WRITER: &str = "SHARDMILL_SINGLE_WRITER";

/// The home directory, where the files of profiles are searched. It is not a setting of a store, so no option
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
    const OBJECT: &str = "--storage-option";
    match text.split_once('=') {
        Some((name, value)) => Ok((known_name(name, OBJECT)?, value.trim().to_owned())),
        // Without an equals sign the text may be a secret value.
        None => Err(unknown("a text without =", OBJECT)),
    }
}

/// Returns the name of a setting in upper case.
///
/// # Errors
///
/// `url-setting`, which names `object`: an unknown name.
pub(super) fn known_name(name: &str, object: &str) -> Result<String, StorageError> {
    let upper = name.trim().to_ascii_uppercase();
    match SETTINGS.contains(&upper.as_str()) {
        true => Ok(upper),
        false => Err(unknown(name.trim(), object)),
    }
}

fn unknown(name: &str, object: &str) -> StorageError {
    StorageError::Setting {
        message: format!("{name} is no setting of a store"),
        hint: Some("the guide to stores lists the names that are known"),
    }
    .at(object)
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
        match self.text(name) {
            Some(value) if !is_graphic(value) => Err(setting(name)),
            value => Ok(value.map(str::to_owned)),
        }
    }
}

/// Returns whether all characters are visible ASCII characters, as those of a header that is a secret.
pub(super) fn is_graphic(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns whether all characters are letters, digits and `-`, as those of a region or an account.
pub(super) fn is_label(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text.bytes().all(letter)
}

/// Returns the error for an invalid setting. It does not contain the value.
pub(super) fn setting(name: &'static str) -> StorageError {
    let message = format!("{name} cannot have this value");
    StorageError::Setting {
        message,
        hint: None,
    }
    .at(name)
}

/// Returns the error for a location whose settings do not name its store.
pub(super) fn no_address(location: &RemoteLocation, hint: &'static str) -> StorageError {
    StorageError::Setting {
        message: "the store has no address".to_owned(),
        hint: Some(hint),
    }
    .at(location.to_string())
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

/// Appends a percent-encoded text to a URL.
pub(super) fn encode(url: &mut String, text: &str, is_path: bool) {
    const QUERY: AsciiSet = NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    const PATH: AsciiSet = QUERY.remove(b'/');

    let set = if is_path { &PATH } else { &QUERY };
    url.extend(utf8_percent_encode(text, set));
}

/// Parses the URL of an endpoint. Without TLS, it has to be on this machine.
pub(super) fn check_endpoint(text: &str, allow_http: bool) -> Result<Url, StorageError> {
    let checked = || {
        refuse_if(has_control(text), StorageError::UrlControl)?;
        let url = bare_url(text)?;
        match url.scheme() {
            "https" => Ok(url),
            "http" if allow_http || is_loopback(&url) => Ok(url),
            "http" => Err(StorageError::UrlPlain),
            other => Err(StorageError::UrlScheme {
                scheme: other.to_owned(),
                hint: "write an endpoint as https://HOST",
            }),
        }
    };
    checked().map_err(|fault: StorageError| fault.in_text(text))
}

pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}
