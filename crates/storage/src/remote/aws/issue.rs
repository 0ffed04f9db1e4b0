//! Credentials with their life, and the JSON documents that contain them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, NaiveDateTime, Utc};
use object_store::aws::AwsCredential;
use serde_json::Value;

use crate::remote::renewal::Issued;
use crate::remote::settings::is_graphic;

/// Credentials and their life.
pub(super) type AwsIssued = Issued<Arc<AwsCredential>>;

/// The parts of credentials. Has no `Debug`, because it is secret.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) key: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

impl Keys {
    /// Returns the credentials, or `None` if they cannot be part of a header.
    pub(super) fn issued(self, end: Option<SystemTime>) -> Option<AwsIssued> {
        let is_header = !self.key.is_empty()
            && is_graphic(&self.key)
            && !self.secret.is_empty()
            && self.token.as_deref().is_none_or(is_graphic);
        let credential = AwsCredential {
            key_id: self.key,
            secret_key: self.secret,
            token: self.token.filter(|token| !token.is_empty()),
        };
        is_header.then(|| Issued::until(Arc::new(credential), end))
    }
}

/// Parses a time such as `2026-01-31T12:00:00Z`. Old tools wrote `UTC` instead of `Z`.
pub(super) fn time(text: &str) -> Option<SystemTime> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.to_utc().into());
    }
    let naive = NaiveDateTime::parse_from_str(text.strip_suffix("UTC")?, "%Y-%m-%dT%H:%M:%S");
    Some(DateTime::<Utc>::from_naive_utc_and_offset(naive.ok()?, Utc).into())
}

/// Formats a time like that.
pub(super) fn shown(time: SystemTime) -> String {
    let time = DateTime::<Utc>::from(time);
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Parses the output of a program: `AccessKeyId`, `SecretAccessKey`, `SessionToken` and `Expiration`.
pub(super) fn of_program(bytes: &[u8]) -> Result<AwsIssued, &'static str> {
    let json: Value = serde_json::from_slice(bytes).map_err(|_| "it is not JSON")?;
    if json.get("Version").and_then(Value::as_u64) != Some(1) {
        return Err("its Version is not 1");
    }
    let end = match json.get("Expiration") {
        None | Some(Value::Null) => None,
        Some(end) => Some(
            end.as_str()
                .and_then(time)
                .ok_or("its Expiration is no time")?,
        ),
    };
    let text = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
    let keys = Keys {
        key: text("AccessKeyId").ok_or("it has no AccessKeyId")?,
        secret: text("SecretAccessKey").ok_or("it has no SecretAccessKey")?,
        token: text("SessionToken"),
    };
    if end.is_some_and(|end| end <= SystemTime::now()) {
        return Err("its credentials have expired");
    }
    keys.issued(end)
        .ok_or("its credentials have invalid characters")
}

/// Parses the answer of the portal of a single sign-on.
pub(super) fn of_portal(bytes: &[u8]) -> Option<AwsIssued> {
    let json: Value = serde_json::from_slice(bytes).ok()?;
    let given = json.get("roleCredentials")?;
    let text = |name: &str| given.get(name).and_then(Value::as_str).map(str::to_owned);
    let end = Duration::from_millis(given.get("expiration")?.as_u64()?);
    let keys = Keys {
        key: text("accessKeyId")?,
        secret: text("secretAccessKey")?,
        token: text("sessionToken"),
    };
    keys.issued(Some(SystemTime::UNIX_EPOCH.checked_add(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiration_times_are_parsed() {
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_860_800);
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00UTC",
            "2026-01-31T13:00:00+01:00",
        ] {
            assert_eq!(time(text), Some(noon), "{text}");
        }
        assert_eq!(shown(noon), "2026-01-31T12:00:00Z");
        for text in ["", "tomorrow", "2026-01-31", "2026-13-31T12:00:00Z"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn credential_documents_are_parsed_or_rejected() {
        let good = br#"{"Version":1,"AccessKeyId":"a","SecretAccessKey":"b","SessionToken":"c","Expiration":"2999-01-01T00:00:00Z"}"#;
        let issued = of_program(good).ok().unwrap();
        assert_eq!(issued.value.token.as_deref(), Some("c"));
        assert!(issued.end.is_some());
        let static_keys = br#"{"Version":1,"AccessKeyId":"a","SecretAccessKey":"b"}"#;
        assert!(of_program(static_keys).ok().unwrap().end.is_none());
        for (text, what) in [
            ("", "it is not JSON"),
            ("hush", "it is not JSON"),
            (r#"{"AccessKeyId":"hush"}"#, "its Version is not 1"),
            (r#"{"Version":2}"#, "its Version is not 1"),
            (r#"{"Version":1}"#, "it has no AccessKeyId"),
            (
                r#"{"Version":1,"AccessKeyId":"hush"}"#,
                "it has no SecretAccessKey",
            ),
            (
                r#"{"Version":1,"AccessKeyId":"hush\n","SecretAccessKey":"hush"}"#,
                "its credentials have invalid characters",
            ),
            (
                r#"{"Version":1,"AccessKeyId":"a","SecretAccessKey":"b","Expiration":"soon"}"#,
                "its Expiration is no time",
            ),
            (
                r#"{"Version":1,"AccessKeyId":"a","SecretAccessKey":"b","Expiration":"2020-01-01T00:00:00Z"}"#,
                "its credentials have expired",
            ),
        ] {
            assert_eq!(of_program(text.as_bytes()).err(), Some(what), "{text}");
        }
        let portal = br#"{"roleCredentials":{"accessKeyId":"a","secretAccessKey":"b","sessionToken":"c","expiration":32472144000000}}"#;
        assert!(of_portal(portal).is_some());
        assert!(of_portal(b"{}").is_none());
        assert!(of_portal(br#"{"roleCredentials":{"accessKeyId":"a"}}"#).is_none());
    }
}
