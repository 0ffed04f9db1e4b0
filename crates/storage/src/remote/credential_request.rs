//! Requests to services that give credentials.

use std::time::Duration;

use reqwest::Request;

use super::client::root_of;
use super::renewal::CREDENTIALS;

/// The maximum number of bytes of an answer. Credentials have about a thousand.
pub(super) const ANSWER: usize = 64 << 10;

/// The maximum number of attempts, and the wait after the first one. The wait after the second one is twice as long.
const ATTEMPTS: u32 = 3;
const WAIT: Duration = Duration::from_millis(250);

/// Sends a request, and repeats it after a failure that may be temporary. Returns the status and the body, which is cut
/// off if it is longer than [`ANSWER`], after one more byte.
///
/// # Errors
///
/// The cause, without URLs.
pub(super) async fn answer(
    http: &reqwest::Client,
    request: &Request,
) -> Result<(u16, Vec<u8>), String> {
    let mut attempts = 1;
    loop {
        let sent = request.try_clone().ok_or("it cannot be repeated")?;
        let ended = match tokio::time::timeout(CREDENTIALS / 4, attempt(http, sent)).await {
            Ok(ended) => ended.map_err(|error| root_of(&error)),
            Err(_) => Err("timed out".to_owned()),
        };
        let may_be_over = matches!(ended, Ok((408 | 429 | 500 | 502.., _)) | Err(_));
        if !may_be_over || attempts == ATTEMPTS {
            return ended;
        }
        tokio::time::sleep(WAIT * attempts).await;
        attempts += 1;
    }
}

async fn attempt(
    http: &reqwest::Client,
    request: Request,
) -> Result<(u16, Vec<u8>), reqwest::Error> {
    let mut response = http.execute(request).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await? {
        let room = (ANSWER + 1).saturating_sub(bytes.len());
        bytes.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
    }
    Ok((response.status().as_u16(), bytes))
}
