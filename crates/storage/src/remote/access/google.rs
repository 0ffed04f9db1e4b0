//! Addresses and credentials of Google Cloud Storage, for its XML API.

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::location::RemoteLocation;

use crate::remote::settings::{Settings, check_endpoint, setting};
use crate::remote::signing::{Access, Signing};

pub(super) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let allow_http = known.allows_http("GOOGLE_ALLOW_HTTP")?;
    let emulator = known.text("STORAGE_EMULATOR_HOST");
    let endpoint = known.text("GOOGLE_ENDPOINT_URL").or(emulator);
    let base = match endpoint {
        // Google's own tools accept an address without a scheme.
        Some(text) if !text.contains("://") => {
            check_endpoint(&format!("http://{text}"), allow_http)?
        }
        Some(text) => check_endpoint(text, allow_http)?,
        None => check_endpoint("https://storage.googleapis.com", false)?,
    };
    let base = base.as_str().trim_end_matches('/');
    let base = format!("{base}/{}", location.bucket());
    Ok(Access {
        account: known.header("GOOGLE_USER_PROJECT")?,
        region: "auto".to_owned(),
        ..Access::at(
            StoreKind::Google,
            &base,
            signing(known, emulator.is_some())?,
        )?
    })
}

fn signing(known: &Settings<'_>, emulated: bool) -> Result<Signing, StorageError> {
    const PROVIDED: [&str; 5] = [
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "SERVICE_ACCOUNT",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ];
    if known.flag("GOOGLE_SKIP_SIGNATURE")? {
        return Ok(Signing::Anonymous);
    }
    for name in ["GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"] {
        if let Some(token) = token(known, name)? {
            return Ok(Signing::Bearer(token));
        }
    }
    match (known.header("GCS_KEY")?, known.header("GCS_SECRET")?) {
        (Some(key), Some(secret)) => Ok(Signing::Hmac { key, secret }),
        (Some(_), None) => Err(setting("GCS_SECRET")),
        (None, Some(_)) => Err(setting("GCS_KEY")),
        (None, None) if emulated && known.first(&PROVIDED).is_none() => Ok(Signing::Anonymous),
        (None, None) => Ok(Signing::GoogleProvider(known.0.clone())),
    }
}

/// Returns a token, which may contain spaces.
fn token(known: &Settings<'_>, name: &'static str) -> Result<Option<String>, StorageError> {
    let value = known.text(name);
    let letter = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if value.is_some_and(|value| !value.bytes().all(letter)) {
        return Err(setting(name));
    }
    Ok(value.map(str::to_owned))
}
