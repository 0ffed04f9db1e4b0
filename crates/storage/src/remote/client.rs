//! The HTTP client of a store.

use std::time::Duration;

use reqwest::redirect::Policy;

use crate::error::StorageError;

/// How long an idle connection is kept.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// Returns a client that follows no redirects, uses HTTP/1.1 and does not decompress bodies.
pub(super) fn client(
    connect_timeout: Duration,
    connections: usize,
    loopback: bool,
    plain: bool,
) -> Result<reqwest::Client, StorageError> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("shardmill/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .referer(false)
        .http1_only()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .connect_timeout(connect_timeout)
        .pool_max_idle_per_host(connections)
        .pool_idle_timeout(IDLE_CONNECTION)
        .https_only(!plain);
    if loopback {
        builder = builder.no_proxy();
    }
    if plain {
        // Nothing is encrypted, so the certificates need not be loaded.
        builder = builder.tls_built_in_root_certs(false);
    }
    builder.build().map_err(|error| StorageError::NoStart {
        reason: root_of(&error),
    })
}

/// Returns the root cause of an error as a text without URLs.
pub(super) fn root_of(error: &reqwest::Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    if std::ptr::addr_eq(root, error) {
        // The text of the error itself would contain the URL.
        return if error.is_timeout() {
            "timed out".to_owned()
        } else if error.is_builder() {
            "the HTTP client could not be made".to_owned()
        } else {
            "the request could not be sent".to_owned()
        };
    }
    if error.is_timeout() && error.is_connect() {
        return "the connection timed out".to_owned();
    }
    root.to_string()
}
