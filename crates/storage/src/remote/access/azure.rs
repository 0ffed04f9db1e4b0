//! Addresses, credentials and answers of Azure.

use std::collections::BTreeMap;

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::location::RemoteLocation;

use crate::remote::credential_source::CredentialSource;
use crate::remote::settings::{Settings, check_endpoint, is_label, no_address, setting};
use crate::remote::signing::{Access, Signing};

const ACCOUNT: &str = "set AZURE_STORAGE_ACCOUNT_NAME, or write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX";

const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";

// The names of each setting, the first of which wins.
pub(crate) const ACCOUNTS: [&str; 3] = [
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_ACCOUNT_NAME",
];
pub(crate) const ENDPOINTS: [&str; 2] = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"];
pub(crate) const ACCOUNT_KEYS: [&str; 4] = [
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_KEY",
    "AZURE_ACCOUNT_ACCESS_KEY",
];
pub(crate) const SIGNATURES: [&str; 2] = ["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"];
pub(crate) const CLIENTS: [&str; 2] = ["AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID"];
pub(crate) const SECRETS: [&str; 2] = ["AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET"];
pub(crate) const TENANTS: [&str; 2] = ["AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID"];

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
    let given = known;
    let known = &Settings(&settings);
    let allow_http = known.allows_http("AZURE_ALLOW_HTTP")?;
    let emulated = known.flag("AZURE_STORAGE_USE_EMULATOR")?;
    let named = known.first(&ACCOUNTS);
    let named = named.map(|(_, name)| name.to_owned());
    let endpoint = known.first(&ENDPOINTS);
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
                return Err(no_address(location, ACCOUNT));
            };
            if !is_label(&account) {
                return Err(setting("AZURE_STORAGE_ACCOUNT_NAME"));
            }
            let url = format!("https://{account}.blob.core.windows.net");
            (check_endpoint(&url, false)?, Some(account))
        }
    };
    let base = base.as_str().trim_end_matches('/');
    let base = format!("{base}/{}", location.bucket());
    known.flag("AZURE_USE_AZURE_CLI")?;
    let (signing, source) = if known.flag("AZURE_SKIP_SIGNATURE")? {
        let source = CredentialSource::anonymous(Some("AZURE_SKIP_SIGNATURE"));
        (Signing::ANONYMOUS, source)
    } else {
        let mut source = source(known);
        if source.kind == "environment" && !given.0.contains_key(&source.name) {
            CONNECTION.clone_into(&mut source.name);
        }
        (Signing::AzureProvider(settings.clone()), source)
    };
    Ok(Access {
        account,
        ..Access::at(StoreKind::Azure, &base, signing, source)?
    })
}

/// Returns where the credentials come from, in the order in which `object_store` chooses among them.
fn source(known: &Settings<'_>) -> CredentialSource {
    let application = |kind, name: &str| {
        let client = known.first(&CLIENTS).map(|(_, id)| format!("client {id}"));
        CredentialSource {
            facts: client.into_iter().collect(),
            ..CredentialSource::new(kind, name)
        }
    };
    let is_application = known.first(&CLIENTS).is_some() && known.first(&TENANTS).is_some();
    let token = known.first(&["AZURE_STORAGE_TOKEN"]);
    if let Some((name, _)) = token.or_else(|| known.first(&ACCOUNT_KEYS)) {
        return CredentialSource::setting(name);
    }
    if is_application && let Some(file) = known.text("AZURE_FEDERATED_TOKEN_FILE") {
        return application("web-identity", &format!("the workload identity in {file}"));
    }
    if is_application && let Some((name, _)) = known.first(&SECRETS) {
        return application("environment", name);
    }
    match known.first(&SIGNATURES) {
        Some((name, _)) => CredentialSource::setting(name),
        None if known.flag("AZURE_USE_AZURE_CLI").unwrap_or(false) => {
            CredentialSource::new("program", "the Azure CLI (az account get-access-token)")
        }
        None => application("machine", "the managed identity of the machine"),
    }
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
