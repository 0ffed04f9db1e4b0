//! The kind of store that the server imitates: URLs, requests and the format of answers.

use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use super::answer::{Answer, escape};
use super::fault::Action;
use super::google;
use super::objects::Page;
use super::request::Request;

/// A kind of store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavor {
    /// Amazon S3.
    #[default]
    S3,
    /// Google Cloud Storage with its JSON API.
    Google,
    /// Google Cloud Storage with its XML API. The condition is `x-goog-if-generation-match: 0`, not `If-None-Match`.
    /// Headers of Amazon are refused.
    GoogleXml,
    /// Azure: blobs, blocks and block lists.
    Azure,
    /// The Databricks Files API; the bucket is `CATALOG/SCHEMA/VOLUME`.
    Files,
    /// A web server: read-only, without listings.
    Web,
}

impl Flavor {
    /// The kinds that take objects.
    pub const WRITABLE: [Self; 5] = [
        Self::S3,
        Self::Google,
        Self::GoogleXml,
        Self::Azure,
        Self::Files,
    ];

    /// Returns the key of a request; `None` for another bucket.
    pub(super) fn key(self, request: &Request, bucket: &str) -> Option<String> {
        let path = request.path.as_str();
        let path = match self {
            Self::Google => return google::key(request, bucket),
            Self::Web => return Some(path.to_owned()),
            Self::Files => path
                .strip_prefix("api/2.0/fs/files/Volumes/")
                .or_else(|| path.strip_prefix("api/2.0/fs/directories/Volumes/"))?,
            _ => path,
        };
        let rest = path.strip_prefix(bucket)?;
        // The first slash ends the bucket. Further ones belong to the key.
        match rest.strip_prefix('/') {
            Some(key) => Some(key.to_owned()),
            None => Some(String::new()).filter(|_| rest.is_empty()),
        }
    }

    /// Returns what a request for a key does.
    pub(super) fn action(self, request: &Request, key: Option<&str>) -> Action {
        match self {
            Self::S3 | Self::GoogleXml => return s3_action(request),
            Self::Google => return google::action(request, key.unwrap_or_default()),
            _ => {}
        }
        let is_folder = request.path.starts_with("api/2.0/fs/directories/");
        let comp = request.of("comp");
        let no_key = key.is_none_or(str::is_empty);
        match (self, request.method.as_str(), comp) {
            (Self::Files, "GET", _) if is_folder => Action::List,
            (Self::Files, "POST", _) if request.path == "oidc/v1/token" => Action::Login,
            (Self::Azure, "GET", Some("list")) => Action::List,
            _ if no_key || is_folder => Action::Other,
            (_, "GET", None) => Action::Get,
            (_, "HEAD", None) => Action::Head,
            (Self::Web, _, _) => Action::Other,
            (Self::Azure, "PUT", Some("block")) => Action::Part,
            (Self::Azure, "PUT", Some("blocklist")) => Action::Complete,
            (_, "PUT", None) => Action::Put,
            (_, "DELETE", None) => Action::Delete,
            _ => Action::Other,
        }
    }

    /// Returns the error for a write that the store would refuse.
    pub(super) fn refuses(self, request: &Request, action: Action) -> Option<Answer> {
        let wrong = match self {
            Self::GoogleXml => request
                .headers
                .keys()
                .any(|name| name.starts_with("x-amz-")),
            Self::Azure => {
                action == Action::Put && request.header("x-ms-blob-type") != Some("BlockBlob")
            }
            _ => false,
        };
        wrong.then(|| Answer::error(400, "InvalidArgument"))
    }

    /// Returns whether the request is conditional on a missing object.
    pub(super) fn only_new(self, request: &Request) -> bool {
        match self {
            Self::S3 | Self::Azure => request.header("if-none-match") == Some("*"),
            Self::Google => request.of("ifGenerationMatch") == Some("0"),
            Self::GoogleXml => request.header("x-goog-if-generation-match") == Some("0"),
            Self::Files => request.of("overwrite") == Some("false"),
            Self::Web => false,
        }
    }

    /// Returns a page of a listing.
    pub(super) fn page(self, bucket: &str, page: &Page) -> Answer {
        let body = match self {
            Self::Files if page.objects.is_empty() && page.prefixes.is_empty() => {
                return Answer::error(404, "NoSuchKey");
            }
            Self::Files => {
                let path = |key: &str| format!("/Volumes/{bucket}/{key}");
                let files = page.objects.iter().map(|(key, bytes, tag)| {
                    json!({"path": path(key), "is_directory": false, "file_size": bytes,
                        "last_modified": moment(tag)})
                });
                let folders = page.prefixes.iter().map(|prefix| {
                    json!({"path": path(prefix.trim_end_matches('/')), "is_directory": true})
                });
                let contents: Vec<_> = files.chain(folders).collect();
                let body = json!({"contents": contents,
                    "next_page_token": page.next.as_deref().unwrap_or_default()});
                return Answer::new(200, "application/json", body.to_string().into_bytes());
            }
            Self::Google => return google::page(page),
            Self::Azure => azure(page),
            _ => s3(bucket, page),
        };
        let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}");
        Answer::new(200, "application/xml", body.into_bytes())
    }

    /// Converts an answer to the format of the store.
    pub(super) fn dress(self, answer: &mut Answer, action: Action) {
        let etag = answer.header("ETag").map(str::to_owned);
        if let (Self::Files | Self::Web, Some(tag)) = (self, etag) {
            if self == Self::Files {
                answer.unset("ETag");
            }
            let hash = moment(&tag);
            let time = (hash / 3600 % 24, hash / 60 % 60, hash % 60);
            let date = format!(
                "Mon, 01 Jan 2024 {:02}:{:02}:{:02} GMT",
                time.0, time.1, time.2
            );
            answer.set("Last-Modified", date);
        }
        if self == Self::Google
            && let Some(tag) = answer.header("ETag")
        {
            answer.set("x-goog-generation", google::generation(tag));
        }
        if let Some(code) = answer.code.clone() {
            self.dress_error(answer, &code, action);
            return;
        }
        answer.status = match (self, action, answer.status) {
            (Self::Azure, Action::Put | Action::Part | Action::Complete, 200) => 201,
            (Self::Azure, Action::Delete, 204) => 202,
            (Self::Files, Action::Put, 200) => 204,
            (_, _, status) => status,
        };
    }

    fn dress_error(self, answer: &mut Answer, code: &str, action: Action) {
        let only_new = action == Action::Put && answer.status == 412;
        let (status, code) = match (self, code) {
            (Self::Azure | Self::Files, _) if only_new => (409, "AlreadyExists"),
            (_, code) => (answer.status, code),
        };
        let (kind, body) = match self {
            Self::S3 | Self::GoogleXml => return,
            Self::Google => ("application/json", google::error(answer.status, code)),
            Self::Azure => {
                let code = match code {
                    "NoSuchKey" => "BlobNotFound",
                    "NoSuchBucket" => "ContainerNotFound",
                    "AlreadyExists" => "BlobAlreadyExists",
                    "PreconditionFailed" => "ConditionNotMet",
                    "SlowDown" => "ServerBusy",
                    "BadDigest" => "Md5Mismatch",
                    "AccessDenied" => "AuthorizationFailure",
                    other => other,
                };
                answer.set("x-ms-error-code", code.to_owned());
                let body = format!(
                    "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code><Message>as the script says</Message></Error>"
                );
                ("application/xml", body)
            }
            Self::Files => {
                let code = match code {
                    "NoSuchKey" | "NoSuchBucket" => "NOT_FOUND",
                    "AlreadyExists" => "ALREADY_EXISTS",
                    "AccessDenied" => "PERMISSION_DENIED",
                    "Unauthorized" => "UNAUTHENTICATED",
                    "SlowDown" | "TooManyRequests" => "RESOURCE_EXHAUSTED",
                    _ => "INTERNAL_ERROR",
                };
                let body = json!({"error_code": code, "message": "as the script says"});
                ("application/json", body.to_string())
            }
            Self::Web => ("text/html", "<html><body>error</body></html>".to_owned()),
        };
        let (end, drip) = (answer.end, answer.drip);
        let kept: Vec<_> = answer
            .headers
            .iter()
            .filter(|(name, _)| !matches!(*name, "Content-Type" | "Content-Length"))
            .cloned()
            .collect();
        *answer = Answer::new(status, kind, body.into_bytes());
        answer.headers.extend(kept);
        (answer.end, answer.drip) = (end, drip);
    }
}

fn s3_action(request: &Request) -> Action {
    let (_, key) = request.path.split_once('/').unwrap_or_default();
    let has_upload = request.of("uploadId").is_some();
    match (request.method.as_str(), has_upload) {
        ("GET", false) if key.is_empty() => Action::List,
        _ if key.is_empty() => Action::Other,
        ("GET", false) => Action::Get,
        ("HEAD", false) => Action::Head,
        ("PUT", false) => Action::Put,
        ("PUT", true) => Action::Part,
        ("POST", true) => Action::Complete,
        ("POST", false) if request.of("uploads").is_some() => Action::Create,
        ("DELETE", true) => Action::Abort,
        ("DELETE", false) => Action::Delete,
        _ => Action::Other,
    }
}

/// Returns a second that is determined by a tag.
fn moment(tag: &str) -> u64 {
    xxh3_64(tag.as_bytes()) % 86_400
}

fn s3(bucket: &str, page: &Page) -> String {
    let mut contents = String::new();
    for (key, bytes, tag) in &page.objects {
        contents.push_str(&format!(
            "<Contents><Key>{}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>{}</ETag><Size>{bytes}</Size></Contents>",
            escape(key),
            tag.replace('"', "&quot;")
        ));
    }
    for prefix in &page.prefixes {
        let prefix = escape(prefix);
        contents.push_str(&format!(
            "<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>"
        ));
    }
    let token = page.next.as_ref().map_or_else(String::new, |next| {
        format!(
            "<NextContinuationToken>{}</NextContinuationToken>",
            escape(next)
        )
    });
    format!(
        "<ListBucketResult><Name>{bucket}</Name><IsTruncated>{}</IsTruncated>{token}{contents}</ListBucketResult>",
        page.next.is_some()
    )
}

fn azure(page: &Page) -> String {
    let mut blobs = String::new();
    for (key, bytes, tag) in &page.objects {
        blobs.push_str(&format!(
            "<Blob><Name>{}</Name><Properties><Last-Modified>Mon, 01 Jan 2024 00:00:00 GMT</Last-Modified><Etag>{}</Etag><Content-Length>{bytes}</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>",
            escape(key),
            tag.trim_matches('"')
        ));
    }
    for prefix in &page.prefixes {
        blobs.push_str(&format!(
            "<BlobPrefix><Name>{}</Name></BlobPrefix>",
            escape(prefix)
        ));
    }
    let next = page.next.as_deref().map(escape).unwrap_or_default();
    format!(
        "<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
    )
}
