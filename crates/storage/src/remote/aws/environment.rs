//! Credentials of the environment in which a process runs: a web identity, a container, or a machine.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider};

use crate::remote::connector::{Connector, retry};
use crate::remote::credential_source::CredentialSource;
use crate::remote::renewal::NoToken;
use crate::remote::settings::Settings;

const CONTAINER: &str =
    "set AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, or AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";

/// The hint for a machine without credentials.
pub(crate) const HINT: &str = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket";

/// Returns where the credentials of the environment come from.
pub(crate) fn source(settings: &BTreeMap<String, String>) -> CredentialSource {
    let known = Settings(settings);
    let role = known.text("AWS_ROLE_ARN");
    if let (Some(file), Some(role)) = (known.text("AWS_WEB_IDENTITY_TOKEN_FILE"), role) {
        return CredentialSource {
            role: Some(role.to_owned()),
            ..CredentialSource::new("web-identity", format!("the web identity in {file}"))
        };
    }
    let container = known.first(&[
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ]);
    match container {
        Some((name, _)) => CredentialSource {
            facts: vec![name.to_owned()],
            ..CredentialSource::new("container", "the container")
        },
        None => CredentialSource::new("machine", "the metadata service of the machine"),
    }
}

/// Returns the provider of the credentials of the environment.
pub(crate) fn environment(
    settings: &BTreeMap<String, String>,
    region: &str,
) -> Result<AwsCredentialProvider, NoToken> {
    let known = Settings(settings);
    let source = source(settings);
    let is_machine = source.kind == "machine";
    if is_machine && known.flag("AWS_EC2_METADATA_DISABLED").unwrap_or(false) {
        return Err(NoToken::of(
            "is not asked, because AWS_EC2_METADATA_DISABLED is set, and there are no others",
            HINT,
        ));
    }
    let has = |name| known.text(name).is_some();
    if source.kind == "container"
        && !has("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        && !has("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    {
        return Err(NoToken::of("has no token for its credentials", CONTAINER));
    }
    let (connector, retries) = match source.kind {
        "machine" => (Connector::brief(), 1),
        "container" => (Connector::new(true), 2),
        _ => (Connector::new(false), 2),
    };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name("credentials")
        .with_region(region)
        .with_http_connector(connector)
        .with_retry(retry(retries));
    for (setting, value) in settings {
        let about_credentials = ["_CONTAINER_", "_ROLE_", "_IDENTITY_", "_METADATA_", "_STS"]
            .iter()
            .any(|part| setting.contains(part));
        if let Ok(key) = AmazonS3ConfigKey::from_str(&setting.to_ascii_lowercase())
            && about_credentials
            && setting.starts_with("AWS_")
        {
            builder = builder.with_config(key, value);
        }
    }
    let store = builder.build().map_err(|_| NoToken::unknown())?;
    Ok(Arc::clone(store.credentials()))
}
