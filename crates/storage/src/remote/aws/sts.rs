//! Roles that are assumed with other credentials: `AssumeRole` of the security token service (STS).

use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequestBody;
use reqwest::Request;
use ring::digest;
use url::Url;

use super::issue::{AwsIssued, Keys, time};
use super::login::Role;
use super::service::{Service, answer};
use crate::remote::renewal::NoToken;
use crate::remote::settings::encode;
use crate::remote::xml;

const HINT: &str = "check role_arn of the profile, and whether the trust policy of the role allows the source profile";

/// Assumes a role.
pub(super) async fn assume_role(
    service: &Service,
    credential: &AwsCredential,
    role: &Role,
) -> Result<AwsIssued, NoToken> {
    let mut form = String::from("Action=AssumeRole&Version=2011-06-15");
    let mut add = |name: &str, value: &str| {
        form.push('&');
        form.push_str(name);
        form.push('=');
        encode(&mut form, value, false);
    };
    add("RoleArn", &role.arn);
    add("RoleSessionName", &role.session);
    if let Some(id) = &role.external_id {
        add("ExternalId", id);
    }
    if let Some(seconds) = role.seconds {
        add("DurationSeconds", &seconds.to_string());
    }
    let request = signed(service, credential, form).ok_or_else(NoToken::unknown)?;
    let (status, body) = answer(service, request, "the security token service").await?;
    let text = String::from_utf8(body).unwrap_or_default();
    if status != 200 {
        let code = code(&text).map(|code| format!(", {code}"));
        return Err(NoToken::of(
            format!(
                "may not assume the role {} ({status}{})",
                role.arn,
                code.unwrap_or_default()
            ),
            HINT,
        ));
    }
    credentials(&text).ok_or_else(|| {
        NoToken::of(
            format!("got no credentials for the role {}", role.arn),
            "check the endpoint of the security token service (AWS_ENDPOINT_URL_STS)",
        )
    })
}

/// Returns a signed request with a form.
fn signed(service: &Service, credential: &AwsCredential, form: String) -> Option<Request> {
    let url = Url::parse(&format!("{}/", service.base)).ok()?;
    let mut request = http::Request::post(url.as_str())
        .header("accept", "text/xml")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(HttpRequestBody::empty())
        .ok()?;
    let digest = digest::digest(&digest::SHA256, form.as_bytes());
    AwsAuthorizer::new(credential, "sts", &service.region)
        .authorize(&mut request, Some(digest.as_ref()));
    let mut sent = Request::new(reqwest::Method::POST, url);
    *sent.headers_mut() = std::mem::take(request.headers_mut());
    *sent.body_mut() = Some(form.into());
    Some(sent)
}

/// Parses the credentials of an answer.
fn credentials(text: &str) -> Option<AwsIssued> {
    const PREFIX: &str = "AssumeRoleResponse/AssumeRoleResult/Credentials/";
    let (mut key, mut secret, mut token, mut end) = (None, None, None, None);
    xml::read(text, |path, value| {
        let field = match path.strip_prefix(PREFIX) {
            Some("AccessKeyId") => &mut key,
            Some("SecretAccessKey") => &mut secret,
            Some("SessionToken") => &mut token,
            Some("Expiration") => &mut end,
            _ => return Ok(()),
        };
        *field = Some(value.trim().to_owned());
        Ok(())
    })
    .ok()?;
    let keys = Keys {
        key: key?,
        secret: secret?,
        token,
    };
    keys.issued(Some(time(&end?)?))
}

/// Returns the code of an error. Other parts of the answer may echo the request.
fn code(text: &str) -> Option<String> {
    let mut code = None;
    let read = xml::read(text, |path, value| {
        if path.ends_with("Error/Code") {
            code = Some(value.trim().to_owned());
        }
        Ok(())
    });
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    read.ok()?;
    code.filter(|code| code.len() <= 64 && code.bytes().all(letter))
}
