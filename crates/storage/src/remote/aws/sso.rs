//! Single sign-on: the token that `aws sso login` stored, and the credentials of a role that the portal gives for it.

use std::path::Path;
use std::time::SystemTime;

use http::HeaderValue;
use reqwest::{Method, Request};
use ring::digest;
use serde_json::Value;
use url::Url;

use super::issue::{AwsIssued, of_portal, shown, time};
use super::login::Sso;
use super::service::{Service, answer};
use crate::error::StorageError;
use crate::file::FileHandle;
use crate::remote::payload::hex;
use crate::remote::renewal::NoToken;
use crate::remote::settings::with_query;

/// The maximum number of bytes of a file with a token.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the credentials of the role. `profile` is for the command that logs in.
pub(super) async fn credentials(
    service: &Service,
    home: &Path,
    sso: &Sso,
    profile: &str,
) -> Result<AwsIssued, NoToken> {
    let login = || format!("run `aws sso login` for the profile {profile:?}");
    let token = token(home, sso).map_err(|what| NoToken::of(what, login()))?;
    let url = with_query(
        format!("{}/federation/credentials", service.base),
        &[
            ("account_id", sso.account.clone()),
            ("role_name", sso.role.clone()),
        ],
    );
    let url = Url::parse(&url).map_err(|_| NoToken::unknown())?;
    let mut value = HeaderValue::from_str(&token).map_err(|_| NoToken::unknown())?;
    value.set_sensitive(true);
    let mut request = Request::new(Method::GET, url);
    request
        .headers_mut()
        .insert("x-amz-sso_bearer_token", value);
    let (status, body) = answer(service, request, "the portal of the single sign-on").await?;
    match status {
        200 => of_portal(&body).ok_or_else(|| {
            NoToken::of(
                "got an answer of the single sign-on without credentials",
                "check the endpoint of the single sign-on (AWS_ENDPOINT_URL_SSO)",
            )
        }),
        401 => Err(NoToken::of(
            "has a single sign-on whose login was refused (401)",
            login(),
        )),
        _ => Err(NoToken::of(
            format!(
                "may not use the role {} of account {} ({status})",
                sso.role, sso.account
            ),
            "check sso_account_id and sso_role_name of the profile",
        )),
    }
}

/// Reads the token that `aws sso login` stored. The error says what is wrong.
fn token(home: &Path, sso: &Sso) -> Result<String, String> {
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, sso.key.as_bytes());
    let name = hex(digest.as_ref());
    let kind = match sso.is_session {
        true => "session",
        false => "start URL",
    };
    let path = home.join(".aws/sso/cache").join(format!("{name}.json"));
    let bytes = match FileHandle::open(&path).and_then(|handle| handle.read_all(MAX_BYTES)) {
        Ok(bytes) => bytes,
        Err(StorageError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!(
                "has no login for the single sign-on {kind} {:?}",
                sso.key
            ));
        }
        Err(error) => {
            return Err(format!(
                "has a login in ~/.aws/sso/cache/{name}.json that cannot be read: {error}"
            ));
        }
    };
    let json: Option<Value> = serde_json::from_slice(&bytes).ok();
    let text = |name: &str| json.as_ref()?.get(name)?.as_str();
    let (Some(token), Some(end)) = (text("accessToken"), text("expiresAt").and_then(time)) else {
        return Err(format!(
            "has a login in ~/.aws/sso/cache/{name}.json without a token and its end"
        ));
    };
    if end <= SystemTime::now() {
        return Err(format!(
            "has a login for the single sign-on {kind} {:?} that expired at {}",
            sso.key,
            shown(end)
        ));
    }
    Ok(token.to_owned())
}
