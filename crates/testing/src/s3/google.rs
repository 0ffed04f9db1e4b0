//! The JSON API of Google Cloud Storage.

use std::io;

use serde_json::{Value, json};

use super::answer::Answer;
use super::checksum::md5;
use super::fault::Action;
use super::objects::{Page, Wanted};
use super::request::{Request, decode};
use super::shared::Shared;

/// The size of all parts of a resumable upload but the last is a multiple of this.
const GRAIN: usize = 256 << 10;

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

fn fields(key: &str, bytes: u64, tag: &str) -> Value {
    json!({"kind": "storage#object", "name": key, "size": bytes.to_string(),
        "generation": generation(tag), "updated": "2025-01-01T00:00:00.000Z"})
}

fn answer(status: u16, body: &Value) -> Answer {
    Answer::new(status, "application/json", body.to_string().into_bytes())
}

/// Returns the description of an object.
pub(super) fn resource(shared: &Shared, key: &str) -> io::Result<Answer> {
    let Some(mut found) = shared.objects.find(key)? else {
        return Ok(Answer::error(404, "NoSuchKey"));
    };
    let mut object = fields(key, found.bytes, &found.etag);
    object["md5Hash"] = md5(&found.read(0..found.bytes)?).into();
    Ok(answer(200, &object))
}

/// Adds the object `begin` to the page after it.
pub(super) fn include(
    shared: &Shared,
    page: &mut Page,
    wanted: &Wanted<'_>,
    begin: &str,
) -> io::Result<()> {
    let rest = begin.strip_prefix(wanted.prefix);
    if rest.is_some_and(|rest| !wanted.folded || !rest.contains('/'))
        && let Some(found) = shared.objects.find(begin)?
    {
        page.objects
            .insert(0, (begin.to_owned(), found.bytes, found.etag));
        if page.objects.len() > wanted.max {
            page.objects.pop();
            page.next = page.objects.last().map(|(key, _, _)| key.clone());
        }
    }
    Ok(())
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

/// Handles uploads of whole objects and of parts.
pub(super) fn write(
    shared: &Shared,
    request: &mut Request,
    action: Action,
    key: &str,
    only_new: bool,
) -> io::Result<Answer> {
    let body = std::mem::take(&mut request.body);
    let id = request.of("upload_id").unwrap_or_default();
    match action {
        Action::Put => {
            let kind = request.header("content-type").unwrap_or_default();
            match related(kind, &body) {
                Some((sum, contents)) if sum == md5(&contents) => {
                    match shared.objects.write(key, contents, only_new, None)? {
                        Some(_) => resource(shared, key),
                        None => Ok(Answer::error(412, "PreconditionFailed")),
                    }
                }
                _ => Ok(Answer::error(400, "BadDigest")),
            }
        }
        Action::Create => {
            let id = shared.uploads.create(key);
            let name =
                percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC);
            let mut answer = Answer::new(200, "", Vec::new());
            // Clients may not follow it to another host.
            let path = format!("upload/storage/v1/b/{}/o", shared.objects.bucket());
            let query = format!("uploadType=resumable&name={name}&upload_id={id}");
            answer.set("Location", format!("https://elsewhere/{path}?{query}"));
            Ok(answer)
        }
        Action::Part | Action::Complete => {
            let range = request.header("content-range").and_then(|range| {
                let (range, whole) = range.strip_prefix("bytes ")?.split_once('/')?;
                let start = range.split_once('-').map_or("0", |(start, _)| start);
                Some((start.parse::<u64>().ok()?, whole.parse::<u64>().ok()?))
            });
            let Some((start, whole)) = range else {
                return Ok(Answer::error(400, "InvalidRequest"));
            };
            session(shared, request, key, id, (start, whole), &body)
        }
        _ if shared.uploads.abort(id, key) => Ok(Answer::new(499, "", Vec::new())),
        _ => Ok(Answer::error(404, "NoSuchUpload")),
    }
}

/// Adds bytes to a resumable upload of `whole` bytes, and completes it with the last of them.
fn session(
    shared: &Shared,
    request: &Request,
    key: &str,
    id: &str,
    (start, whole): (u64, u64),
    body: &[u8],
) -> io::Result<Answer> {
    if shared.uploads.is_done(id, key) {
        return resource(shared, key);
    }
    if start + (body.len() as u64) < whole && !body.len().is_multiple_of(GRAIN) {
        return Ok(Answer::error(400, "InvalidRequest"));
    }
    let Some(kept) = shared.uploads.append(id, key, start, body) else {
        return Ok(Answer::error(404, "NoSuchUpload"));
    };
    if kept < whole {
        let mut answer = Answer::new(308, "", Vec::new());
        if kept > 0 {
            answer.set("Range", format!("bytes=0-{}", kept - 1));
        }
        return Ok(answer);
    }
    let bytes = shared.uploads.finish(id).unwrap_or_default();
    if request.header("x-goog-hash") != Some(&format!("md5={}", md5(&bytes))) {
        return Ok(Answer::error(400, "BadDigest"));
    }
    shared.objects.write(key, bytes, false, None)?;
    resource(shared, key)
}

/// Returns the checksum and the contents in a body of two parts.
fn related(kind: &str, body: &[u8]) -> Option<(String, Vec<u8>)> {
    let border = kind.strip_prefix("multipart/related; boundary=")?;
    let body = body.strip_prefix(format!("--{border}\r\n").as_bytes())?;
    let body = body.strip_suffix(format!("\r\n--{border}--\r\n").as_bytes())?;
    let (_, body) = split(body, b"\r\n\r\n")?;
    let (description, body) = split(body, format!("\r\n--{border}\r\n").as_bytes())?;
    let (_, contents) = split(body, b"\r\n\r\n")?;
    let description: Value = serde_json::from_slice(description).ok()?;
    let sum = description.get("md5Hash")?.as_str()?.to_owned();
    Some((sum, contents.to_vec()))
}

fn split<'a>(bytes: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = bytes.windows(at.len()).position(|window| window == at)?;
    Some((bytes.get(..found)?, bytes.get(found + at.len()..)?))
}
