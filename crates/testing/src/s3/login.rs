//! Tokens of a Databricks workspace.

use serde_json::json;

use super::answer::Answer;
use super::checksum::base64;
use super::fault::Action;
use super::request::Request;
use super::settings::Login;
use super::shared::Shared;

/// Returns a token, or the refusal of a request without a valid one; `None` if the request is allowed.
pub(super) fn answer(shared: &Shared, request: &Request, action: Action) -> Option<Answer> {
    let login = shared.settings().login?;
    if action == Action::Login {
        return Some(token(shared, request, login));
    }
    let given = request.header("authorization").unwrap_or_default();
    let given = given.strip_prefix("Bearer ").unwrap_or_default();
    if login.personal.as_deref() == Some(given) {
        return None;
    }
    let mut state = shared.state();
    let is_good = match state.tokens.get_mut(given) {
        Some(used) => {
            *used += 1;
            login.uses.is_none_or(|max| *used <= max)
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
    if request.header("authorization") != Some(&format!("Basic {pair}")) {
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
