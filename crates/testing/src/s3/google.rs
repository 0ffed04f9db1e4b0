//! The JSON API of Google Cloud Storage: its requests and answers.

use serde_json::{Value, json};

use super::answer::Answer;
use super::fault::Action;
use super::objects::Page;
use super::request::{Request, decode};

/// Returns the key of a request; `None` for another bucket. A key is one part of a path, so its slashes are encoded.
pub(super) fn key(request: &Request, bucket: &str) -> Option<String> {
    let path = request.encoded_path.as_str();
    let path = path.strip_prefix("upload/").unwrap_or(path);
    let rest = path.strip_prefix("storage/v1/b/")?.strip_prefix(bucket)?;
    match rest.strip_prefix("/o")?.strip_prefix('/') {
        None => Some(request.of("name").unwrap_or_default().to_owned()),
        Some(key) => Some(decode(key)).filter(|_| !key.contains('/')),
    }
}

/// Returns what a request for a key does.
pub(super) fn action(request: &Request, key: &str) -> Action {
    let is_upload = request.path.starts_with("upload/");
    let has_session = request.of("upload_id").is_some();
    let is_query = || {
        request
            .header("content-range")
            .unwrap_or_default()
            .starts_with("bytes */")
    };
    match (request.method.as_str(), is_upload, has_session) {
        ("GET", false, _) if key.is_empty() => Action::List,
        _ if key.is_empty() => Action::Other,
        ("GET", false, _) if request.of("alt") == Some("media") => Action::Get,
        ("GET", false, _) => Action::Head,
        ("DELETE", false, _) => Action::Delete,
        ("DELETE", true, true) => Action::Abort,
        ("PUT", true, true) if is_query() => Action::Complete,
        ("PUT", true, true) => Action::Part,
        ("POST", true, false) => match request.of("uploadType") {
            Some("multipart") => Action::Put,
            Some("resumable") => Action::Create,
            _ => Action::Other,
        },
        _ => Action::Other,
    }
}

/// Returns the generation of an object with this tag.
pub(super) fn generation(tag: &str) -> String {
    let hash = u64::from_str_radix(tag.trim_matches('"'), 16).unwrap_or_default();
    (hash >> 1).to_string()
}

/// Returns the description of an object.
pub(super) fn fields(key: &str, bytes: u64, tag: &str) -> Value {
    json!({"kind": "storage#object", "name": key, "size": bytes.to_string(),
        "generation": generation(tag), "updated": "2025-01-01T00:00:00.000Z"})
}

/// Returns an answer in JSON.
pub(super) fn answer(status: u16, body: &Value) -> Answer {
    Answer::new(status, "application/json", body.to_string().into_bytes())
}

/// Returns a page of a listing. Empty lists are left out.
pub(super) fn page(page: &Page) -> Answer {
    let mut body = json!({"kind": "storage#objects"});
    let objects = page.objects.iter();
    let items: Vec<_> = objects
        .map(|(key, bytes, tag)| fields(key, *bytes, tag))
        .collect();
    if !items.is_empty() {
        body["items"] = items.into();
    }
    if !page.prefixes.is_empty() {
        body["prefixes"] = page.prefixes.clone().into();
    }
    if let Some(next) = &page.next {
        body["nextPageToken"] = next.clone().into();
    }
    answer(200, &body)
}

/// Returns the body of an error.
pub(super) fn error(status: u16, code: &str) -> String {
    let reason = match code {
        "BadDigest" => "invalid",
        "NoSuchKey" | "NoSuchBucket" | "NoSuchUpload" => "notFound",
        "PreconditionFailed" => "conditionNotMet",
        "AccessDenied" => "forbidden",
        "Unauthorized" => "authError",
        "SlowDown" | "TooManyRequests" => "rateLimitExceeded",
        _ => "backendError",
    };
    let message = "as the script says";
    let errors = json!([{"domain": "global", "reason": reason, "message": message}]);
    json!({"error": {"code": status, "message": message, "errors": errors}}).to_string()
}
