//! Where credentials came from, for reports. Nothing here is secret.

use std::fmt;
use std::time::{Duration, SystemTime};

/// Where the credentials of a location came from. It contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialSource {
    /// The kind of the source: `anonymous`, `option`, `environment`, `profile`, `web-identity`, `container`, `machine`,
    /// `file`, `program` or `service`.
    pub kind: &'static str,
    /// The source, as in `profile "train" in ~/.aws/config`.
    pub name: String,
    /// The name of the profile.
    pub profile: Option<String>,
    /// The role that was assumed last.
    pub role: Option<String>,
    /// Further facts, such as the account of a single sign-on.
    pub facts: Vec<String>,
    /// When the credentials expire, if they do and the time is known.
    pub expires: Option<SystemTime>,
}

impl CredentialSource {
    /// Returns a source with a kind and a name.
    pub(crate) fn new(kind: &'static str, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            profile: None,
            role: None,
            facts: Vec::new(),
            expires: None,
        }
    }

    /// Returns the source of requests that are not signed.
    pub(crate) fn anonymous(setting: Option<&str>) -> Self {
        let facts = setting.map(|name| format!("{name} is set"));
        Self {
            facts: facts.into_iter().collect(),
            ..Self::new("anonymous", "none, requests are not signed")
        }
    }

    /// Returns the source of credentials that are the value of a setting.
    pub(crate) fn setting(name: &'static str) -> Self {
        Self::new("environment", name)
    }

    /// Returns the text for a report that is made at `now`.
    #[must_use]
    pub fn describe(&self, now: SystemTime) -> String {
        let mut facts = self.facts.clone();
        facts.extend(self.role.as_ref().map(|role| format!("role {role}")));
        facts.extend(self.expires.map(|end| match end.duration_since(now) {
            Ok(left) => format!("expires in {}", duration(left)),
            Err(_) => "expired".to_owned(),
        }));
        let from = match self.kind {
            "option" => format!("{} of the storage options", self.name),
            "environment" => format!("{} in the environment", self.name),
            _ => self.name.clone(),
        };
        match facts.is_empty() {
            true => from,
            false => format!("{from} ({})", facts.join(", ")),
        }
    }
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(SystemTime::now()))
    }
}

/// Returns a duration in the unit that a reader needs, rounded down.
fn duration(left: Duration) -> String {
    match left.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describe_shows_source_role_and_expiry() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let mut source = CredentialSource::new("profile", "profile \"train\" in ~/.aws/config");
        assert_eq!(source.describe(now), "profile \"train\" in ~/.aws/config");
        source.role = Some("arn:aws:iam::1:role/r".to_owned());
        for (left, text) in [
            (0, "0 s"),
            (119, "119 s"),
            (52 * 60 + 59, "52 min"),
            (7200, "2 h"),
            (9 * 86_400, "9 days"),
        ] {
            source.expires = Some(now + Duration::from_secs(left));
            assert_eq!(
                source.describe(now),
                format!(
                    "profile \"train\" in ~/.aws/config (role arn:aws:iam::1:role/r, expires in {text})"
                )
            );
        }
        source.expires = Some(now - Duration::from_secs(1));
        assert!(source.describe(now).ends_with(", expired)"));
        let option = CredentialSource {
            kind: "option",
            ..CredentialSource::setting("AWS_ACCESS_KEY_ID")
        };
        assert_eq!(
            option.describe(now),
            "AWS_ACCESS_KEY_ID of the storage options"
        );
    }
}
