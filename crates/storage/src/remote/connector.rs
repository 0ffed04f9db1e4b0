//! The HTTP client of `object_store`'s providers of credentials.

use std::time::Duration;

use object_store::client::{HttpClient, HttpConnector};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::renewal::CREDENTIALS;

/// The HTTP client for providers of credentials, which use plain HTTP to local addresses of the machine.
#[derive(Debug)]
pub(super) struct Connector {
    /// Bypass any proxy, because the address is local to the machine.
    pub(super) direct: bool,
    /// The timeout for making a connection.
    pub(super) connect: Duration,
    /// The timeout of a request.
    pub(super) total: Duration,
}

impl Connector {
    /// Returns a client for a service on the machine or in the network.
    pub(super) const fn new(direct: bool) -> Self {
        Self {
            direct,
            connect: Duration::from_secs(2),
            total: Duration::from_secs(CREDENTIALS.as_secs() / 2),
        }
    }

    /// Returns a client for a service that only machines of a provider have, so most machines wait in vain.
    pub(super) const fn brief() -> Self {
        Self {
            direct: true,
            connect: Duration::from_secs(1),
            total: Duration::from_secs(2),
        }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.connect)
            .timeout(self.total);
        if self.direct {
            builder = builder.no_proxy();
        }
        let client = builder
            .build()
            .map_err(|error| object_store::Error::Generic {
                store: "credentials",
                source: Box::new(error.without_url()),
            })?;
        Ok(HttpClient::new(client))
    }
}

/// Returns the retries of a provider.
pub(super) fn retry(max: usize) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: max,
        retry_timeout: CREDENTIALS,
    }
}
