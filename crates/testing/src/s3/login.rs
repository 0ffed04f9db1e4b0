//! Tokens of a Databricks workspace.

use serde_json::json;

use super::Shared;
use super::answer::Answer;
use super::connection::Request;
use super::fault::Action;
use super::sha256::base64;

/// A client that requests tokens with `POST /oidc/v1/token`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The client id.
    pub id: String,
    /// The client secret.
    pub secret: String,
    /// The lifetime of a token in seconds, as the answer declares it.
    pub expires_in: u64,
    /// The number of requests for which a token is really valid; `None` for any number.
    pub uses: Option<u64>,
    /// A personal token, which is always valid.
    pub personal: Option<String>,
    /// An answer with status 200 that replaces that with the token.
    pub answer: Option<String>,
}

impl Login {
    /// Creates a client whose tokens are valid for an hour.
    #[must_use]
    pub fn new(id: &str, secret: &str) -> Self {
        Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
            expires_in: 3600,
            uses: None,
            personal: None,
            answer: None,
        }
    }
}

/// Returns a token, or the refusal of a request without a valid one; `None` if the request is allowed.
pub(super) fn answer(shared: &Shared, request: &Request, action: Action) -> Option<Answer> {
    let login = shared.settings().login?;
    if action == Action::Login {
        return Some(token(shared, request, login));
    }
    let given = request.authorization.as_deref().unwrap_or_default();
    let given = given.strip_prefix("Bearer ").unwrap_or_default();
    if login.personal.as_deref() == Some(given) {
        return None;
    }
    let mut state = shared.state();
    let is_good = match state.tokens.get_mut(given) {
        Some(used) => {
            *used += 1;
            login.uses.is_none_or(|most| *used <= most)
        }
        None => false,
    };
    if is_good {
        return None;
    }
    state.counts.denied += 1;
    Some(Answer::error(401, "Unauthorized"))
}

fn token(shared: &Shared, request: &Request, login: Login) -> Answer {
    let json = |status, body: String| Answer::new(status, "application/json", body.into_bytes());
    let refused = |status, code: &str| {
        let body = json!({"error": code, "error_description": "as the script says"});
        json(status, body.to_string())
    };
    let pair = base64(format!("{}:{}", login.id, login.secret).as_bytes());
    if request.authorization != Some(format!("Basic {pair}")) {
        return refused(401, "invalid_client");
    }
    let mut fields: Vec<_> = request.body.split(|byte| *byte == b'&').collect();
    fields.sort_unstable();
    if fields
        != [
            &b"grant_type=client_credentials"[..],
            &b"scope=all-apis"[..],
        ]
    {
        return refused(400, "invalid_request");
    }
    if let Some(body) = login.answer {
        return json(200, body);
    }
    let mut state = shared.state();
    state.given += 1;
    state.counts.tokens += 1;
    let token = format!("token-{}", state.given);
    state.tokens.insert(token.clone(), 0);
    let body = json!({"access_token": token, "token_type": "Bearer", "scope": "all-apis",
        "expires_in": login.expires_in});
    json(200, body.to_string())
}
