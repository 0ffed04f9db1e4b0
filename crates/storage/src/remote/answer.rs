//! The answers of stores, and what their failures mean.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use chrono::DateTime;
use http::HeaderName;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, LAST_MODIFIED, LOCATION, RANGE, RETRY_AFTER,
    TRANSFER_ENCODING,
};
use reqwest::Response;
use serde_json::Value;
use shardmill_core::escape;
use url::{Position, Url};

use super::xml;
use crate::entry::StoreKind;
use crate::error::{HUB, HUB_BUCKET, StorageError};

/// The maximum number of bytes of an error body that are read to find its code.
const ERROR_BODY: usize = 8 << 10;

/// An answer with one of the statuses that the caller handles.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Returns the error code in the answer, if it is an error.
    pub(super) fn code(&self) -> Option<String> {
        self.head.code.clone().or_else(|| code_in(&self.body))
    }

    /// Parses the body as JSON.
    pub(super) fn json(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.body).map_err(|_| protocol_error("it is not JSON"))
    }

    /// Reads the body as XML, as [`xml::read`] does. Fails if its root element is none of `expected`, of which the
    /// message names the first.
    pub(super) fn xml(
        &self,
        expected: &[&str],
        mut each: impl FnMut(&str, &str) -> Result<(), &'static str>,
    ) -> Result<(), Failure> {
        /// The characters of another name that a message shows.
        const SHOWN: usize = 64;

        let text =
            std::str::from_utf8(&self.body).map_err(|_| protocol_error("it is not UTF-8"))?;
        let mut root = String::new();
        let read = xml::read(text.trim_start(), |path, inside| {
            if !path.contains('/') {
                path.clone_into(&mut root);
            }
            each(path, inside)
        });
        read.map_err(protocol_error)?;
        match root.as_str() {
            found if expected.contains(&found) => Ok(()),
            "Error" => Err(inside(self.head.status, self.code())),
            other => {
                let shown: String = other.chars().take(SHOWN).collect();
                let shown = escape(&shown);
                let expected = expected.first().copied().unwrap_or_default();
                Err(protocol_error(format!(
                    "its root element is `{shown}`, not `{expected}`"
                )))
            }
        }
    }
}

/// Returns the failure for an invalid answer. It is retried a few times.
pub(super) fn protocol_error(what: impl Into<Cow<'static, str>>) -> Failure {
    Failure::ProtocolError(StorageError::Answer { what: what.into() })
}

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A retry would not help.
    Final(StorageError),
    /// The answer is invalid. A few retries may help.
    ProtocolError(StorageError),
    /// The credentials have expired.
    Expired(StorageError),
    /// The store answered with an error. A retry may help.
    Transient(String),
    /// There was no connection, or a proxy found no store. A retry helps when the store is back.
    Unreachable(String),
    /// The connection was closed without an answer. The store may have closed an idle connection just before the
    /// request.
    Unanswered(String),
    Stalled,
    Throttled {
        status: u16,
        retry_after: Option<Duration>,
    },
}

/// Classifies an answer with a status that the caller does not handle.
pub(super) async fn refused(
    kind: StoreKind,
    patience: Duration,
    response: Response,
    head: Head,
) -> Failure {
    let status = head.status;
    let code = match (status, head.code) {
        (300..400, _) => None,
        (_, Some(code)) => Some(code),
        _ => code_of(response, patience).await,
    };
    let hint = match kind {
        StoreKind::Hub => Some(HUB),
        StoreKind::HubBucket => Some(HUB_BUCKET),
        _ => None,
    };
    let has_tokens = matches!(
        kind,
        StoreKind::Google | StoreKind::Azure | StoreKind::Volumes
    );
    let is = |codes: &[&str]| code.as_deref().is_some_and(|code| codes.contains(&code));
    match status {
        // Probably a page of a proxy: the store uses another status for success.
        200..300 => protocol_error("another status than that of a success"),
        300..400 => Failure::Final(StorageError::Redirect {
            host: head
                .target
                .and_then(|url| url.host_str().map(str::to_owned)),
            region: head.region,
        }),
        // If the credentials can be tokens, a 401 can mean that a token has expired.
        400 | 401 | 403
            if is(&["ExpiredToken", "ExpiredTokenException", "RequestExpired"])
                || status == 401 && has_tokens =>
        {
            Failure::Expired(StorageError::Credentials { status, code, hint })
        }
        401 | 403 => Failure::Final(StorageError::Credentials { status, code, hint }),
        404 | 410 => Failure::Final(StorageError::NotFound { code }),
        429 | 503 => Failure::Throttled {
            status,
            retry_after: head.retry_after,
        },
        // The bytes were corrupted in transfer.
        400 if is(&[
            "BadDigest",
            "InvalidDigest",
            "XAmzContentChecksumMismatch",
            "XAmzContentSHA256Mismatch",
            "Md5Mismatch",
            "InvalidMd5",
            // Google's answer to another checksum.
            "invalid",
        ]) =>
        {
            Failure::ProtocolError(StorageError::Refused { status, code })
        }
        400 if is(&["AuthorizationHeaderMalformed"]) && head.region.is_some() => {
            Failure::Final(StorageError::Redirect {
                host: None,
                region: head.region,
            })
        }
        400 if is(&["RequestTimeout", "IncompleteBody"]) => {
            Failure::Transient(again(status, code.as_deref()))
        }
        502 | 504 => Failure::Unreachable(again(status, code.as_deref())),
        408 | 409 | 425 | 500 | 505..600 => Failure::Transient(again(status, code.as_deref())),
        _ => Failure::Final(StorageError::Refused { status, code }),
    }
}

/// Classifies an error code in the body of an answer with a status of success.
pub(super) fn inside(status: u16, code: Option<String>) -> Failure {
    match code.as_deref() {
        Some("InternalError" | "SlowDown" | "ServiceUnavailable" | "RequestTimeout") => {
            Failure::Transient(again(status, code.as_deref()))
        }
        _ => Failure::Final(StorageError::Refused { status, code }),
    }
}

pub(super) fn again(status: u16, code: Option<&str>) -> String {
    match code {
        Some(code) => format!("status {status}, {code}"),
        None => format!("status {status}"),
    }
}

/// The relevant part of the head of an answer.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
    pub(super) length: Option<u64>,
    /// The body is chunked, so its end is marked in it.
    pub(super) chunked: bool,
    /// `Content-Range` unparsed, for messages; `Range` of an answer about a resumable upload of Google.
    pub(super) range_text: Option<String>,
    /// The first byte, the end (exclusive), and the length of the whole object.
    pub(super) range: Option<(u64, u64, Option<u64>)>,
    pub(super) retry_after: Option<Duration>,
    /// The header `Location`.
    pub(super) target: Option<Url>,
    pub(super) region: Option<String>,
    /// The error code, if a header has it.
    pub(super) code: Option<String>,
    /// The header `x-amz-checksum-sha256`.
    pub(super) sum: Option<String>,
    /// The header `Link`.
    pub(super) link: Option<String>,
}

impl Head {
    pub(super) fn of(kind: StoreKind, response: &Response) -> Self {
        let headers = response.headers();
        let text = |name: &HeaderName| text_of(headers, name.as_str());
        let range_text = text(&CONTENT_RANGE).or_else(|| text(&RANGE));
        Self {
            status: response.status().as_u16(),
            // COMPAT: volumes and many web servers have no ETags. The time as a weak tag is compared, but never sent.
            etag: match kind {
                StoreKind::Google => text_of(headers, "x-goog-generation"),
                _ => text(&ETAG).or_else(|| Some(format!("W/\"{}\"", text(&LAST_MODIFIED)?))),
            },
            length: text(&CONTENT_LENGTH).and_then(|value| value.parse().ok()),
            chunked: text(&TRANSFER_ENCODING)
                .is_some_and(|value| value.to_ascii_lowercase().contains("chunked")),
            range: range_text.as_deref().and_then(parse_content_range),
            range_text,
            retry_after: text(&RETRY_AFTER).and_then(|value| parse_retry_after(value.trim())),
            target: text(&LOCATION).and_then(|to| response.url().join(&to).ok()),
            region: text_of(headers, "x-amz-bucket-region").filter(|value| is_code(value)),
            code: text_of(headers, "x-ms-error-code")
                .or_else(|| text_of(headers, "x-error-code"))
                .filter(|value| is_code(value)),
            sum: text_of(headers, "x-amz-checksum-sha256"),
            link: text_of(headers, "link"),
        }
    }

    /// Returns the length of the object, from `Content-Range: bytes */LENGTH`.
    pub(super) fn whole(&self) -> Option<u64> {
        let range = self.range_text.as_deref()?;
        range.strip_prefix("bytes */")?.parse().ok()
    }

    /// Returns how many bytes of a resumable upload the store has, from `Range: bytes=0-LAST`.
    pub(super) fn kept(&self) -> Option<u64> {
        let last = self.range_text.as_deref()?.strip_prefix("bytes=0-")?;
        last.parse::<u64>().ok()?.checked_add(1)
    }

    /// Returns path and query of `Location`.
    pub(super) fn location(&self) -> Option<&str> {
        Some(&self.target.as_ref()?[Position::BeforePath..])
    }
}

pub(super) fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// Parses a number of seconds or a date. A date in the past is a wait of zero.
fn parse_retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until: SystemTime = DateTime::parse_from_rfc2822(value).ok()?.into();
    Some(until.duration_since(SystemTime::now()).unwrap_or_default())
}

fn parse_content_range(value: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, whole) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let whole = match whole {
        "*" => None,
        digits => Some(digits.parse().ok()?),
    };
    let (first, end) = (
        first.parse().ok()?,
        last.parse::<u64>().ok()?.checked_add(1)?,
    );
    (first < end && whole.is_none_or(|whole| end <= whole)).then_some((first, end, whole))
}

/// Reads the error code from the body of an answer. The time and the number of bytes are limited.
pub(super) async fn code_of(mut response: Response, max: Duration) -> Option<String> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(piece)) = response.chunk().await {
            body.extend_from_slice(&piece);
            if body.len() >= ERROR_BODY {
                break;
            }
        }
    };
    // If the time runs out, the code is searched in the bytes received so far.
    let _ = tokio::time::timeout(max.min(Duration::from_secs(2)), read).await;
    code_in(&body)
}

/// Returns the error code in the text of an error.
pub(super) fn code_in(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let code = match text.split_once("<Code>") {
        Some((_, rest)) => rest.split_once("</Code>")?.0.to_owned(),
        None => json_code(body)?,
    };
    is_code(&code).then_some(code)
}

/// Returns whether a word from an answer is safe to display.
fn is_code(word: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !word.is_empty() && word.len() <= 64 && word.bytes().all(letter)
}

/// Returns the error code in the body of an error.
fn json_code(body: &[u8]) -> Option<String> {
    let json: Value = serde_json::from_slice(body).ok()?;
    let code = json
        .get("error_code")
        // Google.
        .or_else(|| json.pointer("/error/errors/0/reason"));
    Some(code?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_range_is_parsed_strictly() {
        for (value, expected) in [
            ("bytes 0-9/100", Some((0, 10, Some(100)))),
            ("bytes 5-5/*", Some((5, 6, None))),
            ("bytes 5-4/100", None),
            ("bytes 0-100/100", None),
            ("bytes 0-18446744073709551615/*", None),
            ("bytes */100", None),
            ("bytes a-b/c", None),
            ("0-9/100", None),
        ] {
            assert_eq!(parse_content_range(value), expected, "{value}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let parsed = |value: &str| parse_retry_after(value);
        assert_eq!(parsed("0"), Some(Duration::ZERO));
        assert_eq!(parsed("7"), Some(Duration::from_secs(7)));
        let past = "Wed, 21 Oct 2015 07:28:00 GMT";
        assert_eq!(parsed(past), Some(Duration::ZERO));
        let day: DateTime<chrono::Utc> = (SystemTime::now() + Duration::from_secs(86_400)).into();
        let wait = parsed(&day.format("%a, %d %b %Y %H:%M:%S GMT").to_string()).unwrap();
        assert!(wait > Duration::from_secs(86_000), "{wait:?}");
        assert_eq!(parsed("soon"), None);
    }

    #[test]
    fn is_code_accepts_only_short_plain_words() {
        assert!(is_code("NoSuchKey") && is_code("eu-west-1"));
        assert!(
            !is_code("") && !is_code("a b") && !is_code("\u{1b}[2J") && !is_code(&"a".repeat(65))
        );
    }
}
