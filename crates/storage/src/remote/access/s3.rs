//! Addresses and credentials of S3 and compatible stores.

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::location::RemoteLocation;

use crate::remote::settings::{Settings, check_endpoint, setting};
use crate::remote::signing::{Access, Signing};

/// Hosts that only support virtual-hosted-style addresses.
const HOSTED: [&str; 3] = [".aliyuncs.com", "cwobject.com", "cwlota.com"];

pub(super) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let mut region = "us-east-1";
    for name in ["AWS_DEFAULT_REGION", "AWS_REGION"] {
        if let Some(value) = known.text(name) {
            let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            if !value.bytes().all(letter) {
                return Err(setting(name));
            }
            region = value;
        }
    }
    // The first is an argument of MosaicML Streaming, which takes precedence over the environment.
    let endpoint = known.first(&[
        "S3_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT",
    ]);
    let hosted = known.flag("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")?;
    let allow_http = known.allows_http("AWS_ALLOW_HTTP")?;
    let bucket = location.bucket();
    let base = match endpoint {
        Some((_, text)) => {
            let url = check_endpoint(text, allow_http)?;
            let base = url.as_str().trim_end_matches('/');
            let host = url.host_str().unwrap_or_default();
            let told = known.text("AWS_VIRTUAL_HOSTED_STYLE_REQUEST").is_some();
            let hosted = hosted || !told && HOSTED.iter().any(|known| host.ends_with(known));
            if !hosted {
                format!("{base}/{bucket}")
            } else if host.starts_with(&format!("{bucket}.").to_ascii_lowercase()) {
                base.to_owned()
            } else if url.domain().is_some() && is_label(bucket) {
                base.replacen("://", &format!("://{bucket}."), 1)
            } else {
                return Err(StorageError::UrlBucket.in_text(text));
            }
        }
        None => amazon(bucket, region),
    };
    Ok(Access {
        region: region.to_owned(),
        request_payer: known.flag("AWS_REQUEST_PAYER")?,
        acl: known.header("S3_CANNED_ACL")?,
        ..Access::at(StoreKind::S3, &base, signing(known)?)?
    })
}

fn signing(known: &Settings<'_>) -> Result<Signing, StorageError> {
    if known.flag("AWS_SKIP_SIGNATURE")? {
        return Ok(Signing::Anonymous);
    }
    let key = known.header("AWS_ACCESS_KEY_ID")?;
    let secret = known.header("AWS_SECRET_ACCESS_KEY")?;
    match (key, secret) {
        (Some(key), Some(secret)) => Ok(Signing::Aws {
            key,
            secret,
            token: known.header("AWS_SESSION_TOKEN")?,
        }),
        (Some(_), None) => Err(setting("AWS_SECRET_ACCESS_KEY")),
        (None, Some(_)) => Err(setting("AWS_ACCESS_KEY_ID")),
        (None, None) => {
            known.flag("AWS_EC2_METADATA_DISABLED")?;
            Ok(Signing::AwsProvider(known.0.clone()))
        }
    }
}

/// Returns whether a bucket name can be part of a host name that certificates cover. They cover a single label, and
/// host names have no capitals.
fn is_label(bucket: &str) -> bool {
    let label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    bucket.len() <= 63 && bucket.bytes().all(label)
}

/// Returns the address of a bucket at Amazon.
fn amazon(bucket: &str, region: &str) -> String {
    let domain = if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    };
    if is_label(bucket) {
        format!("https://{bucket}.s3.{region}.{domain}")
    } else {
        format!("https://s3.{region}.{domain}/{bucket}")
    }
}
