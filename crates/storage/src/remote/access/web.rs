//! Addresses of web servers, which are read-only.

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::location::RemoteLocation;

use crate::remote::credential_source::CredentialSource;
use crate::remote::settings::{Settings, check_endpoint};
use crate::remote::signing::{Access, Signing};

pub(super) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let host = location.host().unwrap_or_default();
    let url = check_endpoint(host, known.flag("ALLOW_HTTP")?)?;
    let base = url.as_str().trim_end_matches('/');
    let source = CredentialSource::anonymous(None);
    Access::at(StoreKind::Http, base, Signing::ANONYMOUS, source)
}
