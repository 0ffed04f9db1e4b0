//! Addresses, credentials and answers of Azure.

use std::collections::BTreeMap;

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::location::RemoteLocation;

use crate::remote::settings::{Settings, check_endpoint, setting};
use crate::remote::signing::{Access, Signing};

const ACCOUNT: &str = "set AZURE_STORAGE_ACCOUNT_NAME, or write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX";

const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";

/// The account of the emulators. Its name is public.
const EMULATED: &str = "devstoreaccount1";

pub(super) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let mut settings = known.0.clone();
    if let Some(text) = known.text(CONNECTION) {
        connection(text, &mut settings)?;
    }
    let known = &Settings(&settings);
    let allow_http = known.allows_http("AZURE_ALLOW_HTTP")?;
    let emulated = known.flag("AZURE_STORAGE_USE_EMULATOR")?;
    let named = known.first(&[
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT",
        "AZURE_ACCOUNT_NAME",
    ]);
    let named = named.map(|(_, name)| name.to_owned());
    let endpoint = known.first(&["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]);
    let (base, account) = match (location.host(), endpoint) {
        (Some(host), _) => {
            let url = check_endpoint(host, allow_http)?;
            let account = url.host_str().and_then(|host| host.split('.').next());
            let account = account.map(str::to_owned);
            (url, account)
        }
        (None, Some((_, endpoint))) => (check_endpoint(endpoint, allow_http)?, named),
        (None, None) if emulated => {
            let account = named.unwrap_or_else(|| EMULATED.to_owned());
            let url = format!("http://127.0.0.1:10000/{account}");
            (check_endpoint(&url, true)?, Some(account))
        }
        (None, None) => {
            let Some(account) = named else {
                let missing = StorageError::SettingMissing { hint: ACCOUNT };
                return Err(missing.at(location.to_string()));
            };
            let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            if !account.bytes().all(letter) {
                return Err(setting("AZURE_STORAGE_ACCOUNT_NAME"));
            }
            let url = format!("https://{account}.blob.core.windows.net");
            (check_endpoint(&url, false)?, Some(account))
        }
    };
    let base = base.as_str().trim_end_matches('/');
    let base = format!("{base}/{}", location.bucket());
    let signing = if known.flag("AZURE_SKIP_SIGNATURE")? {
        Signing::Anonymous
    } else {
        Signing::AzureProvider(settings.clone())
    };
    Ok(Access {
        account,
        ..Access::at(StoreKind::Azure, &base, signing)?
    })
}

/// Replaces a connection string by its settings. One that cannot be parsed is kept, and is an error where it is used.
pub(crate) fn expand_connection(settings: &mut BTreeMap<String, String>) {
    let mut expanded = settings.clone();
    if let Some(text) = expanded.remove(CONNECTION)
        && connection(&text, &mut expanded).is_ok()
    {
        *settings = expanded;
    }
}

/// Parses a connection string into settings. Existing settings take precedence.
fn connection(text: &str, settings: &mut BTreeMap<String, String>) -> Result<(), StorageError> {
    let mut pairs = BTreeMap::new();
    for pair in text.split(';').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| setting(CONNECTION))?;
        pairs.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut keep = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            settings.entry(name.to_owned()).or_insert(value);
        }
    };
    if pairs
        .get("usedevelopmentstorage")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    {
        keep("AZURE_STORAGE_USE_EMULATOR", Some("true".to_owned()));
        return Ok(());
    }
    let endpoint = match (pairs.remove("blobendpoint"), pairs.get("accountname")) {
        (Some(endpoint), _) => Some(endpoint),
        (None, Some(account)) => pairs
            .get("endpointsuffix")
            .map(|suffix| format!("https://{account}.blob.{suffix}")),
        (None, None) => return Err(setting(CONNECTION)),
    };
    keep("AZURE_STORAGE_ENDPOINT", endpoint);
    keep("AZURE_STORAGE_ACCOUNT_NAME", pairs.remove("accountname"));
    keep("AZURE_STORAGE_ACCOUNT_KEY", pairs.remove("accountkey"));
    keep(
        "AZURE_STORAGE_SAS_TOKEN",
        pairs.remove("sharedaccesssignature"),
    );
    Ok(())
}
