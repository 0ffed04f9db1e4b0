//! Computes the answer to a request, including faults.

use std::io;

use super::answer::{Answer, End, escape};
use super::checksum::{base64, hex, md5, sha256};
use super::fault::{Action, Fault};
use super::flavor::Flavor;
use super::google;
use super::google_objects;
use super::login;
use super::objects::Wanted;
use super::request::{Request, within};
use super::shared::Shared;

/// Returns the answer to a request, in the format of the store that the server imitates.
pub(super) fn answer(
    shared: &Shared,
    request: &mut Request,
    action: Action,
    key: Option<&str>,
    fault: Option<&Fault>,
) -> io::Result<Answer> {
    let mut answer = plain(shared, request, action, key, fault)?;
    if !matches!(fault, Some(Fault::Page)) {
        shared.flavor.dress(&mut answer, action);
    }
    if let Some(fault) = fault.filter(|fault| spoils_success(fault))
        && answer.status < 300
    {
        spoil(&mut answer, fault);
    }
    Ok(answer)
}

fn plain(
    shared: &Shared,
    request: &mut Request,
    action: Action,
    key: Option<&str>,
    fault: Option<&Fault>,
) -> io::Result<Answer> {
    match fault {
        Some(Fault::Status {
            status,
            code,
            retry_after,
        }) => {
            let mut answer = Answer::error(*status, code);
            if let Some(seconds) = retry_after {
                answer.set("Retry-After", seconds.to_string());
            }
            return Ok(answer);
        }
        Some(Fault::CloseBefore) => return Ok(ended(End::CloseFirst)),
        Some(Fault::StallBefore) => return Ok(ended(End::StallFirst)),
        Some(Fault::Redirect(to)) => {
            let mut answer = Answer::error(307, "TemporaryRedirect");
            answer.set("Location", to.clone());
            return Ok(answer);
        }
        Some(Fault::Page) => {
            let page = "<!DOCTYPE html><html><body>Please sign in to the network.</body></html>";
            return Ok(Answer::new(200, "text/html", page.into()));
        }
        Some(Fault::ErrorInside(code)) => {
            let mut answer = Answer::error(500, code);
            answer.status = 200;
            return Ok(answer);
        }
        _ => {}
    }
    if let Some(answer) = login::answer(shared, request, action) {
        return Ok(answer);
    }
    let whole = matches!(fault, Some(Fault::WholeObject));
    let answer = match (key, action) {
        (_, Action::Other | Action::Login) => Answer::error(405, "MethodNotAllowed"),
        (None, _) => Answer::error(404, "NoSuchBucket"),
        (Some(key), Action::List) => list(shared, request, key)?,
        (Some(key), Action::Delete) => {
            let known = shared.objects.delete(key)?;
            let missing = !known && !matches!(shared.flavor, Flavor::S3);
            if missing {
                Answer::error(404, "NoSuchKey")
            } else {
                Answer::new(204, "", Vec::new())
            }
        }
        (Some(key), Action::Get | Action::Head) => object(shared, request, key, whole)?,
        (Some(key), _) => write(shared, request, action, key)?,
    };
    if matches!(fault, Some(Fault::AnswerLost)) {
        return Ok(ended(End::CloseFirst));
    }
    Ok(answer)
}

fn ended(end: End) -> Answer {
    Answer {
        end,
        ..Answer::new(200, "", Vec::new())
    }
}

fn object(shared: &Shared, request: &Request, key: &str, whole: bool) -> io::Result<Answer> {
    let Some(mut found) = shared.objects.find(key)? else {
        return Ok(Answer::error(404, "NoSuchKey"));
    };
    let wrong = |expected: &str| expected != found.etag && expected != "*";
    let generation = request.of("ifGenerationMatch");
    if request.header("if-match").is_some_and(wrong)
        || generation.is_some_and(|expected| expected != google::generation(&found.etag))
    {
        return Ok(Answer::error(412, "PreconditionFailed"));
    }
    if shared.flavor == Flavor::Google && request.of("alt").is_none() {
        return google_objects::resource(shared, key);
    }
    let bytes = found.bytes;
    let range = match request.range().filter(|_| !whole) {
        None => None,
        Some(requested) => match within(requested, bytes) {
            Some(range) => Some(range),
            None => {
                let mut answer = Answer::error(416, "InvalidRange");
                answer.set("Content-Range", format!("bytes */{bytes}"));
                return Ok(answer);
            }
        },
    };
    let sum = shared.objects.sum(key, &found.etag);
    let body = found.read(range.clone().unwrap_or(0..bytes))?;
    let status = if range.is_some() { 206 } else { 200 };
    let mut answer = Answer::new(status, "binary/octet-stream", body);
    answer.set("ETag", found.etag.clone());
    answer.set("Accept-Ranges", "bytes".to_owned());
    if let Some(sum) = sum.filter(|_| request.wants_sum()) {
        answer.set("x-amz-checksum-sha256", sum);
    }
    if let Some(range) = range {
        answer.set(
            "Content-Range",
            format!("bytes {}-{}/{bytes}", range.start, range.end - 1),
        );
    }
    Ok(answer)
}

/// Handles uploads of whole objects and of parts.
fn write(shared: &Shared, request: &mut Request, action: Action, key: &str) -> io::Result<Answer> {
    let settings = shared.settings();
    let flavor = shared.flavor;
    if let Some(refusal) = flavor.refuses(request, action) {
        return Ok(refusal);
    }
    let only_new = flavor.only_new(request) && !settings.ignores_conditions;
    if flavor == Flavor::Google {
        return google_objects::write(shared, request, action, key, only_new);
    }
    let body = std::mem::take(&mut request.body);
    let sent_sum = request.header("x-amz-checksum-sha256");
    if only_new && settings.no_conditions || sent_sum.is_some() && settings.no_sums {
        return Ok(Answer::error(501, "NotImplemented"));
    }
    let sum = sha256(&body);
    let differs = |name: &str, sum: String| request.header(name).is_some_and(|value| value != sum);
    let signed = request.header("x-amz-content-sha256");
    if signed.is_some_and(|signed| signed.len() == 64 && signed != hex(&sum)) {
        return Ok(Answer::error(400, "XAmzContentSHA256Mismatch"));
    }
    if differs("content-md5", md5(&body)) || differs("x-amz-checksum-sha256", base64(&sum)) {
        return Ok(Answer::error(400, "BadDigest"));
    }
    let id = request.of("uploadId").unwrap_or_default();
    let xml = |name: &str, inner: String| {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{name} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inner}</{name}>"
        );
        Answer::new(200, "application/xml", body.into_bytes())
    };
    let stored = |etag: String| {
        let mut answer = Answer::new(200, "", Vec::new());
        answer.set("ETag", etag);
        if let Some(sum) = sent_sum {
            answer.set("x-amz-checksum-sha256", sum.to_owned());
        }
        answer
    };
    if let (Action::Put | Action::Create, Some(acl)) = (action, request.header("x-amz-acl")) {
        let mut state = shared.state();
        state.counts.acls.insert(key.to_owned(), acl.to_owned());
    }
    Ok(match action {
        Action::Put => {
            let sum = sent_sum.map(str::to_owned);
            match shared.objects.write(key, body, only_new, sum)? {
                Some(etag) => stored(etag),
                None => Answer::error(412, "PreconditionFailed"),
            }
        }
        Action::Create => {
            let id = shared.uploads.create(key);
            let (bucket, key) = (shared.objects.bucket(), escape(key));
            xml(
                "InitiateMultipartUploadResult",
                format!("<Bucket>{bucket}</Bucket><Key>{key}</Key><UploadId>{id}</UploadId>"),
            )
        }
        Action::Part if flavor == Flavor::Azure => {
            let block = request.of("blockid").unwrap_or_default();
            shared.uploads.block(key, block, body);
            Answer::new(200, "", Vec::new())
        }
        Action::Complete if flavor == Flavor::Azure => {
            match shared.uploads.commit(key, &String::from_utf8_lossy(&body)) {
                None => Answer::error(400, "InvalidBlockList"),
                Some(bytes) => stored(
                    shared
                        .objects
                        .write(key, bytes, false, None)?
                        .unwrap_or_default(),
                ),
            }
        }
        Action::Part => {
            let number = request.of("partNumber").and_then(|text| text.parse().ok());
            match number.filter(|number| (1..=10_000).contains(number)) {
                None => Answer::error(400, "InvalidArgument"),
                Some(number) => match shared.uploads.part(id, key, number, body) {
                    Some(etag) => stored(etag),
                    None => Answer::error(404, "NoSuchUpload"),
                },
            }
        }
        Action::Complete => {
            let list = String::from_utf8_lossy(&body);
            match shared.uploads.complete(id, key, &list) {
                Ok(whole) => {
                    let sum = whole.sum;
                    let etag = shared
                        .objects
                        .write(key, whole.bytes, false, Some(sum.clone()))?
                        .unwrap_or_default();
                    let (key, etag) = (escape(key), etag.replace('"', "&quot;"));
                    xml(
                        "CompleteMultipartUploadResult",
                        format!(
                            "<Key>{key}</Key><ETag>{etag}</ETag><ChecksumSHA256>{sum}</ChecksumSHA256>"
                        ),
                    )
                }
                Err("NoSuchUpload") => Answer::error(404, "NoSuchUpload"),
                Err(code) => Answer::error(400, code),
            }
        }
        _ if shared.uploads.abort(id, key) => Answer::new(204, "", Vec::new()),
        _ => Answer::error(404, "NoSuchUpload"),
    })
}

fn list(shared: &Shared, request: &Request, folder: &str) -> io::Result<Answer> {
    if let Some(text) = shared.settings().listing {
        return Ok(Answer::new(200, "application/xml", text.into_bytes()));
    }
    let of = |name: &str| request.of(name);
    let first = |names: &[&str]| names.iter().find_map(|name| of(name));
    let max = first(&["max-keys", "maxresults", "page_size", "maxResults"]);
    let max = max.and_then(|text| text.parse().ok());
    let token = first(&["continuation-token", "marker", "page_token", "pageToken"]);
    let begin = match shared.flavor {
        Flavor::S3 | Flavor::GoogleXml => of("start-after"),
        Flavor::Google => of("startOffset"),
        _ => None,
    };
    let prefix = match shared.flavor {
        Flavor::Files if folder.is_empty() => String::new(),
        Flavor::Files => format!("{}/", folder.trim_end_matches('/')),
        _ => of("prefix").unwrap_or_default().to_owned(),
    };
    let wanted = Wanted {
        prefix: &prefix,
        after: token.max(begin),
        folded: of("delimiter") == Some("/") || shared.flavor == Flavor::Files,
        max: shared.settings().page.or(max).unwrap_or(1000).max(1),
    };
    let mut page = shared.objects.page(&wanted)?;
    if let (Flavor::Google, Some(begin), None) = (shared.flavor, begin, token) {
        google_objects::include(shared, &mut page, &wanted, begin)?;
    }
    Ok(shared.flavor.page(shared.objects.bucket(), &page))
}

/// Applies a fault to a correct answer.
fn spoil(answer: &mut Answer, fault: &Fault) {
    let moved = |value: u64, by: i64| value.saturating_add_signed(by);
    match fault {
        Fault::CloseAfter(bytes) => answer.end = End::CloseAfter(*bytes),
        Fault::StallAfter(bytes) => answer.end = End::StallAfter(*bytes),
        Fault::FlipByte(at) => {
            let len = answer.body.len().max(1) as u64;
            let at = usize::try_from(at % len).unwrap_or_default();
            if let Some(byte) = answer.body.get_mut(at) {
                *byte ^= 0x20;
            }
        }
        Fault::ContentLength(by) => {
            answer.set(
                "Content-Length",
                moved(answer.body.len() as u64, *by).to_string(),
            );
            answer.end = End::Close;
        }
        Fault::NoContentLength => {
            answer.unset("Content-Length");
            answer.end = End::Close;
        }
        Fault::ContentRange(by) => {
            let shifted = answer
                .headers
                .iter()
                .find(|(name, _)| *name == "Content-Range")
                .and_then(|(_, value)| shift(value, *by));
            if let Some(value) = shifted {
                answer.set("Content-Range", value);
            }
        }
        Fault::RangeAsWhole => answer.status = 200,
        Fault::OtherEtag => answer.set("ETag", "\"another\"".to_owned()),
        Fault::NoEtag => answer.unset("ETag"),
        Fault::Drip { bytes, every } => answer.drip = Some((*bytes, *every)),
        _ => {}
    }
}

fn shift(value: &str, by: i64) -> Option<String> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let first = first.parse::<u64>().ok()?.saturating_add_signed(by);
    let last = last.parse::<u64>().ok()?.saturating_add_signed(by);
    Some(format!("bytes {first}-{last}/{total}"))
}

/// Returns whether a fault applies to a successful answer.
const fn spoils_success(fault: &Fault) -> bool {
    !matches!(
        fault,
        Fault::Status { .. } | Fault::CloseBefore | Fault::StallBefore | Fault::ErrorInside(_)
    )
}
