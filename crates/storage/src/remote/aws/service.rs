//! Requests to the services that give credentials: the security token service, and the portal of a single sign-on.

use std::time::Duration;

use reqwest::{Request, Response};
use url::Url;

use crate::error::StorageError;
use crate::remote::client::{client, root_of};
use crate::remote::renewal::{CREDENTIALS, NoToken};
use crate::remote::settings::{check_endpoint, is_loopback};

/// The timeout for making a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// The maximum number of bytes of an answer.
const MOST: usize = 64 << 10;

/// The maximum number of attempts, and the wait after the first one.
const ATTEMPTS: u32 = 3;
const WAIT: Duration = Duration::from_millis(250);

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
                let domain = match region.starts_with("cn-") {
                    true => "amazonaws.com.cn",
                    false => "amazonaws.com",
                };
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

/// Sends a request and returns the status and the body of the answer. `name` is that of the service.
pub(super) async fn answer(
    service: &Service,
    request: Request,
    name: &str,
) -> Result<(u16, Vec<u8>), NoToken> {
    let host = service.base.split("://").nth(1).unwrap_or_default();
    let failed = |what: &str| {
        NoToken::again(
            format!("cannot reach {name} at {host}: {what}"),
            "check the network, the region and the endpoint",
        )
    };
    let mut attempts = 1;
    loop {
        let request = request.try_clone().ok_or_else(NoToken::unknown)?;
        let sent = tokio::time::timeout(CREDENTIALS / 3, attempt(service, request)).await;
        match sent {
            Ok(Ok((status @ (429 | 500..), _))) if attempts < ATTEMPTS && status != 501 => {}
            Ok(Ok((300..400, _))) => {
                return Err(failed("it answered with a redirect, which is not followed"));
            }
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(_)) if attempts < ATTEMPTS => {}
            Ok(Err(error)) => return Err(failed(&root_of(&error))),
            Err(_) => return Err(failed("timed out")),
        }
        tokio::time::sleep(WAIT * attempts).await;
        attempts += 1;
    }
}

async fn attempt(service: &Service, request: Request) -> Result<(u16, Vec<u8>), reqwest::Error> {
    let mut response: Response = service.http.execute(request).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await? {
        // The parser refuses what is cut off.
        let room = MOST.saturating_sub(bytes.len());
        bytes.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
    }
    Ok((response.status().as_u16(), bytes))
}
