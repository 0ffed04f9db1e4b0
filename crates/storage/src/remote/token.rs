//! OAuth tokens of a Databricks workspace, requested with a client id and secret (machine-to-machine).

use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use serde_json::Value;

use super::client::client;
use super::credential_request::{ANSWER, answer};
use super::renewal::{Issued, NoToken, Renewal};
use super::settings::is_graphic;
use super::signing::{Access, Client};
use crate::error::StorageError;

/// The body of a token request.
const FORM: &str = "grant_type=client_credentials&scope=all-apis";

/// The timeout for making a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Error codes that are safe to display (RFC 6749, 5.2). Other parts of an answer may echo the credentials.
const CODES: [&str; 8] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "access_denied",
    "temporarily_unavailable",
];

const CLIENT: &str = "check DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET, or the client of the profile, and that the client belongs to the workspace";

const HOST: &str = "check DATABRICKS_HOST, the network, and whether a proxy answers in its place";

/// The token of a client, renewed before it expires. Has no `Debug`, because it is secret.
pub(super) struct Tokens {
    client: Client,
    http: reqwest::Client,
    kept: Renewal<String>,
}

impl Tokens {
    /// Creates the HTTP client. It follows the same rules as that of the store: no redirects, the same use of TLS.
    pub(super) fn new(of: Client, access: &Access) -> Result<Self, StorageError> {
        Ok(Self {
            client: of,
            http: client(CONNECT, 1, access.loopback, access.is_plain())?,
            kept: Renewal::default(),
        })
    }

    /// Returns the token, or requests a new one if it is about to expire. The caller ensures that calls are not
    /// concurrent.
    pub(super) async fn token(&self) -> Result<String, NoToken> {
        self.kept.get(self.fetch()).await
    }

    /// Returns when the token expires, if it does.
    pub(super) fn expires(&self) -> Option<SystemTime> {
        self.kept.expires()
    }

    async fn fetch(&self) -> Result<Issued<String>, NoToken> {
        let requested_at = Instant::now();
        let request = self
            .http
            .post(format!("{}/oidc/v1/token", self.client.host))
            .basic_auth(&self.client.id, Some(&self.client.secret))
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(
                CONTENT_TYPE,
                HeaderValue::from_static("application/x-www-form-urlencoded"),
            )
            .body(FORM)
            .build()
            .map_err(|_| NoToken::unknown())?;
        let answer = answer(&self.http, &request).await;
        let (status, body) = answer.map_err(|what| NoToken::of(format!("failed: {what}"), HOST))?;
        match status {
            200 => read(&body, requested_at),
            300..400 => Err(NoToken::of(
                "answered with a redirect, which is not followed",
                HOST,
            )),
            400 | 401 | 403 => {
                let code = code(&body).map(|code| format!(", {code}"));
                let code = code.unwrap_or_default();
                Err(NoToken::of(
                    format!("refused the client ({status}{code})"),
                    CLIENT,
                ))
            }
            _ => Err(NoToken::of(format!("answered with status {status}"), HOST)),
        }
    }
}

fn bad_answer(what: &str) -> NoToken {
    NoToken::of(format!("gave an answer without a token: {what}"), HOST)
}

/// Parses the token in an answer.
fn read(body: &[u8], requested_at: Instant) -> Result<Issued<String>, NoToken> {
    if body.len() > ANSWER {
        return Err(bad_answer("it is too long"));
    }
    let json: Value = serde_json::from_slice(body).map_err(|_| bad_answer("it is not JSON"))?;
    let text = json.get("access_token").and_then(Value::as_str);
    let text = text
        .filter(|text| !text.is_empty() && is_graphic(text))
        .ok_or_else(|| bad_answer("it has no access_token"))?;
    match json.get("token_type") {
        None => {}
        Some(Value::String(kind)) if kind.eq_ignore_ascii_case("bearer") => {}
        Some(_) => return Err(bad_answer("its token_type is not Bearer")),
    }
    let life = match json.get("expires_in") {
        None | Some(Value::Null) => None,
        Some(seconds) => {
            let seconds = seconds.as_u64().filter(|seconds| *seconds > 0);
            Some(seconds.ok_or_else(|| bad_answer("its expires_in is no number of seconds"))?)
        }
    };
    Ok(Issued::new(
        text.to_owned(),
        requested_at,
        life.map(Duration::from_secs),
    ))
}

/// Returns the error code of an answer, if it is a known one.
fn code(body: &[u8]) -> Option<&'static str> {
    let json: Value = serde_json::from_slice(body).ok()?;
    let found = json.get("error")?.as_str()?;
    CODES.into_iter().find(|code| *code == found)
}

#[cfg(test)]
mod tests {
    use shardmill_testing::s3::{
        Action, Fault, Flavor, Login, Objects, S3Server, Script, Settings,
    };

    use super::*;
    use crate::tests::remote_location;

    fn server(faults: Script) -> S3Server {
        let settings = Settings {
            flavor: Flavor::Files,
            login: Some(Login::new("app", "hush")),
            faults,
            ..Settings::default()
        };
        S3Server::start(Objects::memory("a/b/c", []), settings).unwrap()
    }

    fn tokens(server: &S3Server) -> Tokens {
        let location = remote_location("dbfs:/Volumes/a/b/c");
        let access = super::super::access::access(&location, &server.environment()).unwrap();
        let client = Client {
            host: server.endpoint(),
            id: "app".to_owned(),
            secret: "hush".to_owned(),
        };
        Tokens::new(client, &access).unwrap()
    }

    fn wait(tokens: &Tokens) -> Result<String, NoToken> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(tokens.token())
    }

    /// Returns a token that is due for renewal, with this much of its life left.
    fn old(left: Duration) -> Issued<String> {
        let now = Instant::now();
        Issued {
            value: "old".to_owned(),
            renew: Some(now),
            end: Some(now + left),
        }
    }

    #[test]
    fn valid_token_is_kept_if_renewal_fails() {
        let hour = Duration::from_secs(3600);
        let refuses = server(Script::on(Action::Login, None, Fault::status(403)));
        let kept = tokens(&refuses);
        *kept.kept.kept() = Some(old(hour));
        for _ in 0..3 {
            assert_eq!(wait(&kept).unwrap(), "old");
        }
        // The failure is cached for a while.
        assert_eq!(refuses.counts().requests, 1);
        *kept.kept.kept() = Some(old(Duration::ZERO));
        assert_eq!(wait(&kept).unwrap_err().what, "refused the client (403)");

        let gives = server(Script::default());
        let kept = tokens(&gives);
        *kept.kept.kept() = Some(old(hour));
        for _ in 0..3 {
            assert_eq!(wait(&kept).unwrap(), "token-1");
        }
        assert_eq!(gives.counts().requests, 1);
    }

    #[test]
    fn token_response_without_token_is_an_error() {
        let requested_at = Instant::now();
        for (body, what) in [
            ("", "it is not JSON"),
            ("<html>", "it is not JSON"),
            ("[]", "it has no access_token"),
            (r#"{"token_type":"Bearer"}"#, "it has no access_token"),
            (r#"{"access_token":""}"#, "it has no access_token"),
            (r#"{"access_token":"hush\n"}"#, "it has no access_token"),
            (r#"{"access_token":7}"#, "it has no access_token"),
            (
                r#"{"access_token":"hush","token_type":"mac"}"#,
                "its token_type is not Bearer",
            ),
            (
                r#"{"access_token":"hush","expires_in":"soon"}"#,
                "its expires_in is no number of seconds",
            ),
            (
                r#"{"access_token":"hush","expires_in":0}"#,
                "its expires_in is no number of seconds",
            ),
        ] {
            let error = read(body.as_bytes(), requested_at).err().unwrap();
            assert_eq!(
                error.what,
                format!("gave an answer without a token: {what}")
            );
            assert!(!format!("{error:?}").contains("hush"));
        }
        for body in [
            r#"{"access_token":"hush"}"#,
            r#"{"access_token":"hush","token_type":"bearer","expires_in":3600,"scope":"all-apis"}"#,
        ] {
            assert_eq!(
                read(body.as_bytes(), requested_at).ok().unwrap().value,
                "hush"
            );
        }
        let known = br#"{"error":"invalid_client","error_description":"hush"}"#;
        assert_eq!(code(known), Some("invalid_client"));
        assert_eq!(code(br#"{"error":"hush"}"#), None);
    }
}
