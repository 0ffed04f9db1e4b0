//! The address of a dataset repository or a bucket of the Hugging Face Hub, and the token that reads it.

use percent_encoding::percent_decode_str;

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::file::FileHandle;
use crate::location::RemoteLocation;
use crate::remote::credential_source::CredentialSource;
use crate::remote::profile::{config_file, is_nowhere};
use crate::remote::settings::{Settings, check_endpoint, is_graphic, setting};
use crate::remote::signing::{Access, Signing};

/// The revision that is read if the location names none.
const DEFAULT: &str = "main";

/// The maximum number of bytes of the file of a token.
const MAX_BYTES: u64 = 64 << 10;

pub(super) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let endpoint = known
        .text("HF_ENDPOINT")
        .unwrap_or("https://huggingface.co");
    let url = check_endpoint(endpoint, known.flag("ALLOW_HTTP")?)?;
    let host = url.as_str().trim_end_matches('/');
    let bucket = location.bucket();
    if location.kind() == StoreKind::HubBucket {
        let (signing, source) = login(known)?;
        let files = format!("{host}/{bucket}/resolve");
        return Ok(Access {
            folders: format!("{host}/api/{bucket}/tree"),
            ..Access::at(StoreKind::HubBucket, &files, signing, source)?
        });
    }
    let (repository, revision) = bucket.split_once('@').unwrap_or((bucket, DEFAULT));
    let revision = percent_decode_str(revision).decode_utf8();
    let revision = revision.map_err(|_| StorageError::UrlSyntax.at(location.to_string()))?;
    let (signing, source) = login(known)?;
    Ok(Access {
        folders: format!("{host}/api/{repository}"),
        account: Some(revision.into_owned()),
        ..Access::at(
            StoreKind::Hub,
            &format!("{host}/{repository}"),
            signing,
            source,
        )?
    })
}

/// Returns the token of the settings, or the one in the file where `hf auth login` writes it.
fn login(known: &Settings<'_>) -> Result<(Signing, CredentialSource), StorageError> {
    const OFF: &str = "HF_HUB_DISABLE_IMPLICIT_TOKEN";

    if known.flag(OFF)? {
        return Ok((Signing::ANONYMOUS, CredentialSource::anonymous(Some(OFF))));
    }
    if let Some(token) = known.header("HF_TOKEN")? {
        return Ok((
            Signing::bearer(token),
            CredentialSource::setting("HF_TOKEN"),
        ));
    }
    let anonymous = (Signing::ANONYMOUS, CredentialSource::anonymous(None));
    let path = match known.text("HF_TOKEN_PATH") {
        Some(_) => config_file(known, "HF_TOKEN_PATH", ""),
        None => config_file(known, "HF_HOME", ".cache/huggingface").map(|it| it.join("token")),
    };
    let Some(path) = path else {
        return Ok(anonymous);
    };
    let bytes = match FileHandle::open(&path) {
        Ok(handle) => handle.read_all(MAX_BYTES)?,
        Err(error) if is_nowhere(&error) => return Ok(anonymous),
        Err(error) => return Err(error),
    };
    let token = std::str::from_utf8(&bytes).map(str::trim);
    match token {
        Ok("") => Ok(anonymous),
        Ok(token) if is_graphic(token) => {
            let source = CredentialSource::new("file", path.display().to_string());
            Ok((Signing::bearer(token.to_owned()), source))
        }
        _ => Err(setting("HF_TOKEN_PATH")),
    }
}
