//! Addresses and credentials of S3 and compatible stores.

use std::sync::Arc;

use object_store::aws::AwsCredential;

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::location::RemoteLocation;

use crate::remote::aws::{self, Files, ProfileLogin, Profiles};
use crate::remote::credential_source::CredentialSource;
use crate::remote::settings::{Settings, check_endpoint, is_label, setting};
use crate::remote::signing::{Access, Credential, Signing};

/// Hosts that only support virtual-hosted-style addresses.
const HOSTED: [&str; 3] = [".aliyuncs.com", "cwobject.com", "cwlota.com"];

/// Names of the same value, the first of which wins.
pub(crate) const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];

/// The first is an argument of MosaicML Streaming, which takes precedence over the environment.
pub(crate) const ENDPOINTS: [&str; 4] = [
    "S3_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
];

pub(super) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let profiles = profiles(known)?;
    let of_profile = |read: fn(&Profiles) -> Result<Option<String>, StorageError>| match &profiles {
        Some(profiles) => read(profiles),
        None => Ok(None),
    };
    let region = match known.first(&REGIONS) {
        Some((name, value)) if !is_label(value) => return Err(setting(name)),
        Some((_, value)) => Some(value.to_owned()),
        None => of_profile(Profiles::region)?,
    };
    let region = region.unwrap_or_else(|| "us-east-1".to_owned());
    let endpoint = match known.first(&ENDPOINTS) {
        Some((_, text)) => Some(text.to_owned()),
        None => of_profile(|profiles| profiles.endpoint("s3"))?,
    };
    let hosted = known.flag("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")?;
    let allow_http = known.allows_http("AWS_ALLOW_HTTP")?;
    let bucket = location.bucket();
    let base = match endpoint {
        Some(text) => {
            let url = check_endpoint(&text, allow_http)?;
            let base = url.as_str().trim_end_matches('/');
            let host = url.host_str().unwrap_or_default();
            let is_set = known.text("AWS_VIRTUAL_HOSTED_STYLE_REQUEST").is_some();
            let hosted = hosted || !is_set && HOSTED.iter().any(|known| host.ends_with(known));
            if !hosted {
                format!("{base}/{bucket}")
            } else if host.starts_with(&format!("{bucket}.").to_ascii_lowercase()) {
                base.to_owned()
            } else if url.domain().is_some() && is_host_label(bucket) {
                base.replacen("://", &format!("://{bucket}."), 1)
            } else {
                return Err(StorageError::UrlBucket.in_text(&text));
            }
        }
        None => amazon(bucket, &region),
    };
    let (signing, source) = signing(known, profiles.as_ref())?;
    Ok(Access {
        region,
        request_payer: known.flag("AWS_REQUEST_PAYER")?,
        acl: known.header("S3_CANNED_ACL")?,
        ..Access::at(StoreKind::S3, &base, signing, source)?
    })
}

/// Reads the profiles, unless the settings contain everything that a profile can.
fn profiles(known: &Settings<'_>) -> Result<Option<Profiles>, StorageError> {
    let is_complete = known
        .first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"])
        .is_none()
        && known.first(&REGIONS).is_some()
        && known.first(&ENDPOINTS).is_some()
        && (known.text("AWS_ACCESS_KEY_ID").is_some() || known.flag("AWS_SKIP_SIGNATURE")?);
    match is_complete {
        true => Ok(None),
        false => Profiles::read(&Files::of(known)).map(Some),
    }
}

/// Returns the source of the credentials: keys and web identities of the settings, then the profile, then the container
/// and the machine.
fn signing(
    known: &Settings<'_>,
    profiles: Option<&Profiles>,
) -> Result<(Signing, CredentialSource), StorageError> {
    if known.flag("AWS_SKIP_SIGNATURE")? {
        let source = CredentialSource::anonymous(Some("AWS_SKIP_SIGNATURE"));
        return Ok((Signing::ANONYMOUS, source));
    }
    let key = known.header("AWS_ACCESS_KEY_ID")?;
    let secret = known.header("AWS_SECRET_ACCESS_KEY")?;
    match (key, secret) {
        (Some(key), Some(secret)) => {
            let credential = Credential::Aws(Arc::new(AwsCredential {
                key_id: key,
                secret_key: secret,
                token: known.header("AWS_SESSION_TOKEN")?,
            }));
            let source = CredentialSource::setting("AWS_ACCESS_KEY_ID");
            return Ok((Signing::Fixed(credential), source));
        }
        (Some(_), None) => return Err(setting("AWS_SECRET_ACCESS_KEY")),
        (None, Some(_)) => return Err(setting("AWS_ACCESS_KEY_ID")),
        (None, None) => {}
    }
    known.flag("AWS_EC2_METADATA_DISABLED")?;
    let source = aws::source(known.0);
    let login = match profiles {
        Some(profiles) if source.kind != "web-identity" => ProfileLogin::find(profiles)?,
        _ => None,
    };
    Ok(match login {
        Some(login) => {
            let source = login.source();
            (Signing::AwsProfile(login, known.0.clone()), source)
        }
        None => (Signing::AwsProvider(known.0.clone()), source),
    })
}

/// Returns whether a bucket name can be part of a host name that certificates cover. They cover a single label, and
/// host names have no capitals.
fn is_host_label(bucket: &str) -> bool {
    let label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    bucket.len() <= 63 && bucket.bytes().all(label)
}

/// Returns the address of a bucket at Amazon.
fn amazon(bucket: &str, region: &str) -> String {
    let domain = aws::domain(region);
    if is_host_label(bucket) {
        format!("https://{bucket}.s3.{region}.{domain}")
    } else {
        format!("https://s3.{region}.{domain}/{bucket}")
    }
}
