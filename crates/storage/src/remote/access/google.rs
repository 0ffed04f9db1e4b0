//! Addresses and credentials of Google Cloud Storage. HMAC keys need its XML API, all others use its JSON API.

use std::path::Path;

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::location::RemoteLocation;

use crate::remote::credential_source::CredentialSource;
use crate::remote::settings::{HOME, Settings, check_endpoint, setting};
use crate::remote::signing::{Access, Credential, Signing};

/// The names of the setting for the file of a service account, the first of which wins.
pub(crate) const SERVICE_ACCOUNTS: [&str; 3] = [
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "SERVICE_ACCOUNT",
];

pub(super) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let allow_http = known.allows_http("GOOGLE_ALLOW_HTTP")?;
    let endpoint = known.text("GOOGLE_ENDPOINT_URL");
    let emulator = known
        .text("STORAGE_EMULATOR_HOST")
        .filter(|_| endpoint.is_none());
    let endpoint = match endpoint.or(emulator) {
        // Google's own tools accept an address without a scheme.
        Some(text) if !text.contains("://") => {
            check_endpoint(&format!("http://{text}"), allow_http)?
        }
        Some(text) => check_endpoint(text, allow_http)?,
        None => check_endpoint("https://storage.googleapis.com", false)?,
    };
    let endpoint = endpoint.as_str().trim_end_matches('/');
    let bucket = location.bucket();
    let (signing, source) = match emulator {
        // As for Google's own clients.
        Some(_) => (
            Signing::ANONYMOUS,
            CredentialSource::anonymous(Some("STORAGE_EMULATOR_HOST")),
        ),
        None => signing(known)?,
    };
    let access = match signing {
        Signing::Fixed(Credential::Hmac { .. }) => {
            let base = format!("{endpoint}/{bucket}");
            Access::at(StoreKind::GoogleXml, &base, signing, source)?
        }
        _ => {
            let base = format!("{endpoint}/storage/v1/b/{bucket}/o");
            Access {
                folders: format!("{endpoint}/upload/storage/v1/b/{bucket}/o"),
                ..Access::at(StoreKind::Google, &base, signing, source)?
            }
        }
    };
    Ok(Access {
        account: known.header("GOOGLE_USER_PROJECT")?,
        region: "auto".to_owned(),
        ..access
    })
}

fn signing(known: &Settings<'_>) -> Result<(Signing, CredentialSource), StorageError> {
    if known.flag("GOOGLE_SKIP_SIGNATURE")? {
        let source = CredentialSource::anonymous(Some("GOOGLE_SKIP_SIGNATURE"));
        return Ok((Signing::ANONYMOUS, source));
    }
    for name in ["GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"] {
        if let Some(token) = token(known, name)? {
            return Ok((Signing::bearer(token), CredentialSource::setting(name)));
        }
    }
    match (known.header("GCS_KEY")?, known.header("GCS_SECRET")?) {
        (Some(key), Some(secret)) => {
            let source = CredentialSource::setting("GCS_KEY");
            Ok((Signing::Fixed(Credential::Hmac { key, secret }), source))
        }
        (Some(_), None) => Err(setting("GCS_SECRET")),
        (None, Some(_)) => Err(setting("GCS_KEY")),
        (None, None) => Ok((Signing::GoogleProvider(known.0.clone()), source(known))),
    }
}

/// Returns where the credentials of a provider come from.
fn source(known: &Settings<'_>) -> CredentialSource {
    let file = known.first(&SERVICE_ACCOUNTS);
    let default = || known.first(&["GOOGLE_APPLICATION_CREDENTIALS"]);
    if file.is_none() && known.text("GOOGLE_SERVICE_ACCOUNT_KEY").is_some() {
        return CredentialSource::setting("GOOGLE_SERVICE_ACCOUNT_KEY");
    }
    if let Some((name, file)) = file.or_else(default) {
        return CredentialSource {
            facts: vec![name.to_owned()],
            ..CredentialSource::new("file", file)
        };
    }
    let gcloud = ".config/gcloud/application_default_credentials.json";
    let home = known.text(HOME).map(Path::new);
    match home.is_some_and(|home| home.join(gcloud).is_file()) {
        true => CredentialSource {
            facts: vec!["gcloud auth application-default login".to_owned()],
            ..CredentialSource::new("file", format!("~/{gcloud}"))
        },
        false => CredentialSource::new("machine", "the metadata service of the machine"),
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
