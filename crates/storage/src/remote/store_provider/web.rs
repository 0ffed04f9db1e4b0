//! Addresses of web servers, which are read-only.

use crate::error::StorageError;
use crate::location::RemoteLocation;

use super::StoreProvider;
use crate::remote::credential::Signing;
use crate::remote::settings::{Access, Settings, check_endpoint};

pub(in crate::remote) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let host = location.host().unwrap_or_default();
    let url = check_endpoint(host, known.flag("ALLOW_HTTP")?)?;
    let base = url.as_str().trim_end_matches('/');
    Access::at(StoreProvider::Http, base, Signing::Anonymous)
}
