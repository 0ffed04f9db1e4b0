//! Requests to the services that give credentials: the security token service, and the portal of a single sign-on.

use std::time::Duration;

use reqwest::Request;
use url::Url;

use crate::error::StorageError;
use crate::remote::client::client;
use crate::remote::credential_request;
use crate::remote::renewal::NoToken;
use crate::remote::settings::{check_endpoint, is_loopback};

/// The timeout for making a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// A service that gives credentials.
pub(super) struct Service {
    /// The URL without a trailing slash.
    pub(super) base: String,
    pub(super) region: String,
    http: reqwest::Client,
}

impl Service {
    /// Creates the client of a service. It follows the same rules as that of the store: no redirects, the same use of
    /// TLS. `host` is its name at Amazon, such as `sts`.
    pub(super) fn new(
        host: &str,
        region: &str,
        endpoint: Option<&str>,
        allow_http: bool,
    ) -> Result<Self, StorageError> {
        let url: Url = match endpoint {
            Some(endpoint) => check_endpoint(endpoint, allow_http)?,
            None => {
                let domain = domain(region);
                check_endpoint(&format!("https://{host}.{region}.{domain}"), false)?
            }
        };
        Ok(Self {
            http: client(CONNECT, 1, is_loopback(&url), url.scheme() == "http")?,
            base: url.as_str().trim_end_matches('/').to_owned(),
            region: region.to_owned(),
        })
    }
}

/// Returns the domain of the services of Amazon in a region.
pub(crate) fn domain(region: &str) -> &'static str {
    match region.starts_with("cn-") {
        true => "amazonaws.com.cn",
        false => "amazonaws.com",
    }
}

/// Sends a request and returns the status and the body of the answer. `name` is that of the service.
pub(super) async fn answer(
    service: &Service,
    request: Request,
    name: &str,
) -> Result<(u16, Vec<u8>), NoToken> {
    let host = service.base.split("://").nth(1).unwrap_or_default();
    let failed = |what: &str| {
        NoToken::of(
            format!("cannot reach {name} at {host}: {what}"),
            "check the network, the region and the endpoint",
        )
    };
    match credential_request::answer(&service.http, &request).await {
        Ok((300..400, _)) => Err(failed("it answered with a redirect, which is not followed")),
        Ok(answer) => Ok(answer),
        Err(what) => Err(failed(&what)),
    }
}
