//! Objects and uploads of Google Cloud Storage by its JSON API.

use std::io;

use serde_json::Value;

use super::answer::Answer;
use super::checksum::md5;
use super::fault::Action;
use super::google::{answer, fields};
use super::objects::{Page, Wanted};
use super::request::Request;
use super::shared::Shared;

/// The size of all parts of a resumable upload but the last is a multiple of this.
const GRAIN: usize = 256 << 10;

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
