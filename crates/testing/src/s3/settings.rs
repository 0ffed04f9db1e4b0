//! The behaviour of a server.

use std::time::Duration;

use super::fault::Script;
use super::flavor::Flavor;

/// The behaviour of the server.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The time from the end of a request to the first byte of its answer.
    pub latency: Duration,
    /// The bandwidth of a connection in bytes of bodies per second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// The faults.
    pub faults: Script,
    /// The number of objects on a page of a listing; `None` for 1,000.
    pub page: Option<usize>,
    /// The body of the answer to every listing.
    pub listing: Option<String>,
    /// The kind of store. It cannot be changed after the start.
    pub flavor: Flavor,
    /// Conditions such as `If-None-Match` are answered with an error.
    pub no_conditions: bool,
    /// Conditions are silently ignored.
    pub ignores_conditions: bool,
    /// `x-amz-checksum-sha256` is answered with an error.
    pub no_sums: bool,
    /// The login of a Databricks volume, whose tokens all requests need. `None` if no token is needed.
    pub login: Option<Login>,
}

/// A client that requests tokens with `POST /oidc/v1/token`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The client id.
    pub id: String,
    /// The client secret.
    pub secret: String,
    /// The lifetime of a token in seconds, as the answer declares it.
    pub expires_in: u64,
    /// The number of requests for which a token is really valid; `None` for any number.
    pub uses: Option<u64>,
    /// A personal token, which is always valid.
    pub personal: Option<String>,
    /// An answer with status 200 that replaces that with the token.
    pub answer: Option<String>,
}

impl Login {
    /// Creates a client whose tokens are valid for an hour.
    #[must_use]
    pub fn new(id: &str, secret: &str) -> Self {
        Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
            expires_in: 3600,
            uses: None,
            personal: None,
            answer: None,
        }
    }
}
