//! The differences between stores: their requests and the meaning of their answers. Everything else is independent of
//! the store: retries, budgets, deadlines, tags and resumed bodies.

use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use http::HeaderValue;
use reqwest::Method;

use super::answer::{Answer, Failure, again, inside, protocol_error};
use super::pages::{
    GoogleObject, Page, Paging, azure_page, google_page, hub_bucket_page, hub_page, s3_page,
    volume_page,
};
use super::payload::{Digest, Frame, Payload, hex};
use super::signing::Access;
use crate::entry::StoreKind;
use crate::error::StorageError;

/// The maximum number of bytes of a page: 1,000 keys of 1,024 bytes, with up to six per byte, and other fields.
const PAGE: usize = 16 << 20;

/// The maximum number of bytes of an answer to a write.
const ANSWER: usize = 64 << 10;

const SUM: &str = "x-amz-checksum-sha256";

/// The fields of an object of Google that are used.
const FIELDS: &str = "name,size,generation,md5Hash,updated";

/// The size of a part of a resumable upload of Google has to be a multiple of this.
const GRAIN: u64 = 256 << 10;

/// The kind of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlKind {
    /// An object, or the bucket if the key is empty.
    Object,
    /// A folder, for stores where folders have their own addresses.
    Folder,
    /// The revision that is read, for stores with revisions.
    Revision,
    /// An upload of Google. Its key is the path and the query.
    Session,
}

/// A request without its address and signature.
#[derive(Clone, Debug)]
pub(super) struct RequestSpec {
    pub(super) method: Method,
    pub(super) url_kind: UrlKind,
    pub(super) key: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) headers: Vec<(&'static str, String)>,
    /// The statuses that the reader of the answer handles.
    pub(super) accepts: &'static [u16],
    /// The maximum number of bytes of the answer.
    pub(super) max: usize,
    /// Whether the request changes data that readers and other writers see.
    pub(super) changes: bool,
    /// What surrounds the bytes of the body.
    pub(super) frame: Option<Frame>,
}

impl RequestSpec {
    fn new(method: Method, key: &str, accepts: &'static [u16]) -> Self {
        Self {
            changes: method != Method::GET && method != Method::HEAD,
            method,
            url_kind: UrlKind::Object,
            key: key.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            accepts,
            max: ANSWER,
            frame: None,
        }
    }

    fn at(mut self, url_kind: UrlKind) -> Self {
        self.url_kind = url_kind;
        self
    }

    fn session(method: Method, upload: &Upload, accepts: &'static [u16]) -> Self {
        Self::new(method, &upload.id, accepts).at(UrlKind::Session)
    }

    fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// The length, tag and checksum of an object.
#[derive(Debug)]
pub(super) struct Stat {
    pub(super) bytes: u64,
    pub(super) etag: Option<String>,
    pub(super) sum: Option<String>,
}

/// The result of an upload of an object or a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It is stored, with this tag.
    Done(String),
    /// The name exists already.
    Taken,
    /// The store does not support a header of the request.
    Unknown,
    /// The store ended the upload for this reason, so it has to begin again.
    Ended(String),
}

/// An object or a part to upload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Putting<'a> {
    pub(super) key: &'a str,
    pub(super) payload: &'a Payload,
    pub(super) only_new: bool,
    /// Whether to send the checksum of S3.
    pub(super) sums: bool,
    pub(super) acl: Option<&'a str>,
    /// The upload and the part, if it is not a whole object.
    pub(super) part: Option<(&'a Upload, PartId)>,
}

/// The number of a part, from 1, and its first byte in the object.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartId {
    pub(super) number: usize,
    pub(super) start: u64,
}

/// A multipart upload in progress.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub(super) key: String,
    /// For Google, the path and the query of its address.
    pub(super) id: String,
    /// The length of the object.
    pub(super) bytes: u64,
    /// Whether the parts have checksums.
    pub(super) sums: bool,
}

impl Upload {
    /// Returns the name of a block. All names of an upload have the same length.
    fn block(&self, number: usize) -> String {
        BASE64.encode(format!("{}-{number:05}", self.id))
    }
}

/// An uploaded part.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) etag: String,
    /// For Google, the checksum of the object up to the end of the part.
    pub(super) digest: Digest,
    pub(super) bytes: u64,
}

impl StoreKind {
    pub(super) const fn can_write(self) -> bool {
        !matches!(self, Self::Http | Self::Hub | Self::HubBucket)
    }

    pub(super) const fn can_list(self) -> bool {
        !matches!(self, Self::Http)
    }

    /// Returns whether the store supports multipart uploads.
    pub(super) const fn has_parts(self) -> bool {
        matches!(
            self,
            Self::S3 | Self::Google | Self::GoogleXml | Self::Azure
        )
    }

    /// Returns how many parts can be in flight at once, if `max` are configured.
    pub(super) fn parts_at_once(self, max: usize) -> usize {
        match self {
            Self::Google => 1,
            _ => max.max(1),
        }
    }

    /// Returns the size of all parts but the last, for an object of `bytes` bytes.
    pub(super) fn part_bytes(self, bytes: u64, max: u64) -> u64 {
        let part = part_bytes(bytes, max, self.max_parts());
        match self {
            Self::Google => part.next_multiple_of(GRAIN),
            _ => part,
        }
    }

    /// Returns whether a listing can begin after a key that need not exist.
    pub(super) const fn can_begin_anywhere(self) -> bool {
        matches!(self, Self::S3 | Self::Google | Self::GoogleXml)
    }

    /// Returns whether the tags in a listing are those of the answers with the objects.
    pub(super) const fn tags_are_etags(self) -> bool {
        matches!(
            self,
            Self::S3 | Self::Google | Self::GoogleXml | Self::Azure | Self::HubBucket
        )
    }

    /// Returns whether a listing covers a single folder.
    pub(super) const fn has_folders(self) -> bool {
        matches!(self, Self::Volumes | Self::Hub | Self::HubBucket)
    }

    /// Returns the maximum number of bytes of an object that is uploaded in one request.
    pub(super) const fn max_put(self) -> u64 {
        match self {
            Self::Azure => 5000 << 20,
            _ => 5 << 30,
        }
    }

    /// Returns the maximum number of parts of an object.
    const fn max_parts(self) -> u64 {
        match self {
            Self::Azure => 50_000,
            _ => 10_000,
        }
    }

    /// Returns the request that reads an object or a range of it, if it has the tag `etag`.
    pub(super) fn get(
        self,
        key: &str,
        range: Option<&Range<u64>>,
        etag: Option<&str>,
    ) -> RequestSpec {
        let mut ask = RequestSpec::new(Method::GET, key, &[]);
        if matches!(self, Self::Google | Self::GoogleXml) {
            // COMPAT: without this, Google decompresses objects stored as gzip, and their lengths and ranges are wrong.
            ask = ask.header("accept-encoding", "gzip");
        }
        if self == Self::Google {
            ask = ask.query("alt", "media");
        }
        if let Some(Range { start, end }) = range {
            ask = ask.header("range", format!("bytes={start}-{}", end.saturating_sub(1)));
        }
        match etag.filter(|etag| HeaderValue::from_str(etag).is_ok()) {
            Some(generation) if self == Self::Google => ask.query("ifGenerationMatch", generation),
            Some(etag) => ask.header("if-match", etag),
            None => ask,
        }
    }

    /// Returns the request for the commit of the revision, for stores with revisions.
    pub(super) fn revision() -> RequestSpec {
        let ask = RequestSpec::new(Method::GET, "", &[200]).at(UrlKind::Revision);
        let mut ask = ask.query("expand", "sha");
        ask.max = PAGE;
        ask
    }

    /// Returns the request for the length and tag of an object.
    pub(super) fn stat(self, key: &str) -> RequestSpec {
        if self == Self::Google {
            return RequestSpec::new(Method::GET, key, &[200, 404]).query("fields", FIELDS);
        }
        let mut ask = RequestSpec::new(Method::HEAD, key, &[200, 404]);
        ask.max = 0;
        match self {
            Self::S3 => ask.header("x-amz-checksum-mode", "ENABLED"),
            _ => ask,
        }
    }

    pub(super) fn stat_answer(self, answer: Answer) -> Result<Option<Stat>, Failure> {
        if answer.head.status == 404 {
            check_repository(&answer)?;
            return Ok(None);
        }
        if self == Self::Google {
            let found = GoogleObject::of(&answer.json()?)?;
            return Ok(Some(Stat {
                bytes: found.bytes,
                etag: Some(found.generation),
                sum: found.md5,
            }));
        }
        self.check_tag(answer.head.etag.as_deref(), answer.head.length)?;
        Ok(Some(Stat {
            bytes: answer
                .head
                .length
                .ok_or(Failure::ProtocolError(StorageError::NoLength))?,
            etag: answer.head.etag,
            sum: answer.head.sum,
        }))
    }

    /// Checks that an answer about an object of `bytes` bytes has a tag, if the store gives every object one.
    pub(super) fn check_tag(self, etag: Option<&str>, bytes: Option<u64>) -> Result<(), Failure> {
        match (self, etag) {
            (_, Some(_)) | (Self::Volumes | Self::Http | Self::Hub, None) => Ok(()),
            (Self::HubBucket, None) if bytes == Some(0) => Ok(()),
            (Self::HubBucket, None) => Err(protocol_error("it has no X-Xet-Hash")),
            (_, None) => Err(protocol_error("it has no ETag")),
        }
    }

    /// Returns the request that uploads an object or a part.
    pub(super) fn put(self, putting: Putting<'_>) -> RequestSpec {
        let Putting {
            key,
            payload,
            only_new,
            ..
        } = putting;
        let sum = payload.sum();
        match self {
            Self::Google => match putting.part {
                Some((upload, PartId { start, .. })) => {
                    let (end, bytes) = (start + payload.len(), upload.bytes);
                    let range = format!("bytes {start}-{}/{bytes}", end.saturating_sub(1));
                    let ask = RequestSpec::session(Method::PUT, upload, &PART_ANSWERS)
                        .header("content-range", range);
                    match end == bytes {
                        true => ask.header("x-goog-hash", format!("md5={sum}")),
                        false => ask,
                    }
                }
                None => google_put(key, payload, only_new),
            },
            Self::S3 | Self::GoogleXml => {
                let mut ask = RequestSpec::new(Method::PUT, key, &[200, 412, 501]);
                if let Some((upload, part)) = putting.part {
                    ask = ask
                        .query("partNumber", part.number.to_string())
                        .query("uploadId", &upload.id);
                }
                if self == Self::S3 && putting.sums {
                    ask = ask.header(SUM, sum);
                } else if self == Self::GoogleXml {
                    ask = ask.header("content-md5", sum);
                }
                if only_new && self == Self::S3 {
                    ask = ask.header("if-none-match", "*");
                } else if only_new {
                    ask = ask.header("x-goog-if-generation-match", "0");
                }
                match putting.acl {
                    Some(acl) if putting.part.is_none() && self == Self::S3 => {
                        ask.header("x-amz-acl", acl)
                    }
                    _ => ask,
                }
            }
            Self::Azure => {
                let ask =
                    RequestSpec::new(Method::PUT, key, &[201, 409, 412]).header("content-md5", sum);
                match putting.part {
                    Some((upload, part)) => ask
                        .query("comp", "block")
                        .query("blockid", upload.block(part.number)),
                    None if only_new => ask
                        .header("x-ms-blob-type", "BlockBlob")
                        .header("if-none-match", "*"),
                    None => ask.header("x-ms-blob-type", "BlockBlob"),
                }
            }
            Self::Volumes | Self::Http | Self::Hub | Self::HubBucket => {
                RequestSpec::new(Method::PUT, key, &[200, 201, 204, 409])
                    .query("overwrite", if only_new { "false" } else { "true" })
                    .header("content-type", "application/octet-stream")
            }
        }
    }

    pub(super) fn put_answer(self, answer: Answer, putting: &Putting<'_>) -> Result<Put, Failure> {
        let only_new = putting.only_new;
        if let (Self::Google, Some((_, part))) = (self, putting.part) {
            return part_answer(&answer, part.start + putting.payload.len());
        }
        match answer.head.status {
            412 if only_new => return Ok(Put::Taken),
            409 if only_new => {
                let code = answer.code().unwrap_or_default();
                return match code.as_str() {
                    "BlobAlreadyExists"
                    | "ALREADY_EXISTS"
                    | "RESOURCE_ALREADY_EXISTS"
                    | "FILE_ALREADY_EXISTS" => Ok(Put::Taken),
                    _ => Err(Failure::Transient(format!("status 409, {code}"))),
                };
            }
            409 => return Err(Failure::Transient("status 409".to_owned())),
            501 if only_new || putting.sums => return Ok(Put::Unknown),
            200 | 201 | 204 => {}
            status => {
                return Err(Failure::Final(StorageError::Refused {
                    status,
                    code: answer.code(),
                }));
            }
        }
        let sum = putting.payload.sum();
        if self == Self::Google {
            let stored = GoogleObject::of(&answer.json()?)?;
            stored.check(&sum)?;
            return Ok(Put::Done(stored.generation));
        }
        if self == Self::S3 && answer.head.sum.as_ref().is_some_and(|found| *found != sum) {
            return Err(protocol_error(
                "another checksum than that of what was sent",
            ));
        }
        if !answer.body.is_empty()
            && let Some(code) = answer.code()
        {
            return Err(inside(answer.head.status, Some(code)));
        }
        match (self, putting.part) {
            // A block has no tag, so its name is used.
            (Self::Azure, Some((upload, part))) => Ok(Put::Done(upload.block(part.number))),
            // A page of a proxy has the status 200 and a body.
            (Self::Volumes | Self::Http, _)
                if answer.head.status == 200 && !answer.body.is_empty() =>
            {
                Err(protocol_error("it has a body"))
            }
            (Self::Volumes | Self::Http, _) => Ok(Put::Done(String::new())),
            (Self::Azure, None) if answer.head.status != 201 => {
                Err(protocol_error("its status is not 201"))
            }
            _ => answer
                .head
                .etag
                .map(Put::Done)
                .ok_or(protocol_error("it has no ETag")),
        }
    }

    /// Returns the request that begins a multipart upload; `None` if the store needs none.
    pub(super) fn begin(self, key: &str, sums: bool, acl: Option<&str>) -> Option<RequestSpec> {
        if self == Self::Azure {
            return None;
        }
        if self == Self::Google {
            let ask = RequestSpec::new(Method::POST, "", &[200]).at(UrlKind::Folder);
            return Some(ask.query("uploadType", "resumable").query("name", key));
        }
        let mut ask = RequestSpec::new(Method::POST, key, &[200, 501]).query("uploads", "");
        if self == Self::S3 && sums {
            ask = ask.header("x-amz-checksum-algorithm", "SHA256");
        }
        if let Some(acl) = acl.filter(|_| self == Self::S3) {
            ask = ask.header("x-amz-acl", acl);
        }
        Some(ask)
    }

    /// Parses the id of a new multipart upload.
    pub(super) fn upload_id(self, answer: &Answer) -> Result<String, Failure> {
        if self == Self::Google {
            let address = answer.head.location().map(str::to_owned);
            return address.ok_or(protocol_error("it has no address of an upload"));
        }
        let mut id = String::new();
        // COMPAT: the second one is the answer of `rclone serve s3`.
        let roots = ["InitiateMultipartUploadResult", "InitiateMultipartUpload"];
        answer.xml(&roots, |path, inside| {
            if path.ends_with("/UploadId") {
                inside.clone_into(&mut id);
            }
            Ok(())
        })?;
        match id.is_empty() {
            true => Err(protocol_error("it has no id of an upload")),
            false => Ok(id),
        }
    }

    /// Returns the request that completes an upload, and its body.
    pub(super) fn complete(self, upload: &Upload, parts: &[Part]) -> (RequestSpec, String) {
        match self {
            // The last part completed it. This only returns the object.
            Self::Google => {
                let ask = RequestSpec::session(Method::PUT, upload, &PART_ANSWERS)
                    .header("content-range", format!("bytes */{}", upload.bytes));
                (ask, String::new())
            }
            Self::Azure => {
                let mut list =
                    String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
                for part in parts {
                    list.push_str(&format!("<Latest>{}</Latest>", part.etag));
                }
                list.push_str("</BlockList>");
                let ask = RequestSpec::new(Method::PUT, &upload.key, &[201])
                    .query("comp", "blocklist")
                    .header("content-md5", Digest::md5(list.as_bytes()).text());
                (ask, list)
            }
            _ => {
                let ask = RequestSpec::new(Method::POST, &upload.key, &[200, 404])
                    .query("uploadId", &upload.id);
                let list = list_of(parts, upload.sums && self == Self::S3);
                // For S3 the signature covers the checksum of the list.
                match self {
                    Self::GoogleXml => {
                        let sum = Digest::md5(list.as_bytes()).text();
                        (ask.header("content-md5", sum), list)
                    }
                    _ => (ask, list),
                }
            }
        }
    }

    /// Returns whether the store knew the upload.
    pub(super) fn completed(
        self,
        answer: &Answer,
        upload: &Upload,
        parts: &[Part],
    ) -> Result<bool, Failure> {
        match self {
            // Committing the same list of blocks again is not an error.
            Self::Azure => Ok(true),
            Self::Google => match part_answer(answer, upload.bytes)? {
                Put::Done(_) => {
                    let stored = GoogleObject::of(&answer.json()?)?;
                    stored.check(&self.sum_of(parts).unwrap_or_default())?;
                    Ok(true)
                }
                _ => Ok(false),
            },
            _ if answer.head.status == 404 => match answer.code() {
                Some(code) if code != "NoSuchUpload" => {
                    Err(Failure::Final(StorageError::NotFound { code: Some(code) }))
                }
                _ => Ok(false),
            },
            _ => completed(answer, self.sum_of(parts).as_deref()).map(|()| true),
        }
    }

    /// Returns the checksum that the store computes for an upload of these parts, if it does.
    pub(super) fn sum_of(self, parts: &[Part]) -> Option<String> {
        if self == Self::Google {
            return parts.last().map(|part| part.digest.text());
        }
        let mut all = Vec::with_capacity(parts.len() * 32);
        for part in parts {
            match &part.digest {
                Digest::Sha256(digest) => all.extend_from_slice(digest),
                _ => return None,
            }
        }
        let whole = Digest::sha256(&all)?;
        Some(format!("{}-{}", whole.text(), parts.len()))
    }

    /// Returns the request that discards the parts of an upload; `None` if the store removes them itself.
    pub(super) fn abort(self, upload: &Upload) -> Option<RequestSpec> {
        if self == Self::Google {
            // The status of success is 499.
            let accepts = &[200, 204, 404, 410, 499];
            return Some(RequestSpec::session(Method::DELETE, upload, accepts));
        }
        let ask = RequestSpec::new(Method::DELETE, &upload.key, &[200, 204, 404]);
        (self != Self::Azure).then(|| ask.query("uploadId", &upload.id))
    }

    /// Returns the request that removes an object.
    pub(super) fn remove(key: &str) -> RequestSpec {
        RequestSpec::new(Method::DELETE, key, &[200, 202, 204, 404])
    }

    /// Checks the answer to a removal. Not all stores distinguish a removed object from a missing one.
    pub(super) fn removed(answer: &Answer) -> Result<(), Failure> {
        match answer.code() {
            Some(code) if matches!(code.as_str(), "NoSuchBucket" | "ContainerNotFound") => {
                Err(Failure::Final(StorageError::NotFound { code: Some(code) }))
            }
            // A page of a proxy.
            _ if answer.head.status == 200 && !answer.body.is_empty() => {
                Err(protocol_error("it has a body"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the request for a page.
    pub(super) fn page(self, paging: Paging<'_>) -> RequestSpec {
        let max = paging.max.to_string();
        let mut ask = match self {
            Self::Azure => RequestSpec::new(Method::GET, "", &[200])
                .query("restype", "container")
                .query("comp", "list")
                .query("maxresults", max),
            Self::Google => {
                // The page begins with the key `after` itself.
                let more = u32::from(paging.after.is_some() && paging.token.is_none());
                RequestSpec::new(Method::GET, "", &[200])
                    .query("maxResults", (paging.max + more).min(1000).to_string())
                    .query("fields", format!("nextPageToken,prefixes,items({FIELDS})"))
            }
            Self::Volumes | Self::Hub | Self::HubBucket => {
                let name = match self {
                    Self::Volumes => "page_size",
                    _ => "limit",
                };
                let folder = paging.prefix.trim_end_matches('/');
                let ask = RequestSpec::new(Method::GET, folder, &[200, 404])
                    .at(UrlKind::Folder)
                    .query(name, max);
                match self {
                    // Without it, the Hub lists the folders below as well.
                    Self::HubBucket => ask.query("recursive", "false"),
                    _ => ask,
                }
            }
            _ => RequestSpec::new(Method::GET, "", &[200])
                .query("list-type", "2")
                .query("max-keys", max),
        };
        ask.max = PAGE;
        if !self.has_folders() {
            ask = ask.query("prefix", paging.prefix);
            if paging.folded {
                ask = ask.query("delimiter", "/");
            }
        }
        if let Some(token) = paging.token {
            let name = match self {
                Self::Azure => "marker",
                Self::Google => "pageToken",
                Self::Volumes => "page_token",
                Self::Hub | Self::HubBucket => "cursor",
                _ => "continuation-token",
            };
            return ask.query(name, token);
        }
        match paging.after {
            Some(after) if self == Self::Google => ask.query("startOffset", after),
            Some(after) if self.can_begin_anywhere() => ask.query("start-after", after),
            _ => ask,
        }
    }

    /// Parses the answer to the request for a page.
    pub(super) fn page_answer(
        self,
        answer: &Answer,
        access: &Access,
        paging: Paging<'_>,
    ) -> Result<Page, Failure> {
        match self {
            Self::Google => google_page(answer, paging.after),
            Self::Azure => azure_page(answer),
            Self::Volumes => volume_page(answer, access.account.as_deref().unwrap_or_default()),
            Self::Hub => {
                check_repository(answer)?;
                hub_page(answer)
            }
            Self::HubBucket => {
                check_repository(answer)?;
                hub_bucket_page(answer, paging.prefix)
            }
            _ => s3_page(answer),
        }
    }
}

/// Distinguishes a repository, a revision or a bucket of the Hub that does not exist from a file that does not.
fn check_repository(answer: &Answer) -> Result<(), Failure> {
    match &answer.head.code {
        Some(code) if matches!(code.as_str(), "RepoNotFound" | "RevisionNotFound") => {
            let code = Some(code.clone());
            Err(Failure::Final(StorageError::NotFound { code }))
        }
        _ => Ok(()),
    }
}

fn completed(answer: &Answer, sum: Option<&str>) -> Result<(), Failure> {
    let (mut etag, mut found) = (false, None);
    answer.xml(&["CompleteMultipartUploadResult"], |path, inside| {
        match path {
            "CompleteMultipartUploadResult/ETag" => etag = !inside.is_empty(),
            "CompleteMultipartUploadResult/ChecksumSHA256" => found = Some(inside.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    if !etag {
        return Err(protocol_error("it has no ETag"));
    }
    // Some stores return a checksum of the whole object, which cannot be compared.
    let found = found.filter(|found| found.contains('-'));
    if let (Some(sum), Some(found)) = (sum, found)
        && found != sum
    {
        return Err(Failure::Final(StorageError::Answer {
            what: "another checksum than that of what was sent".into(),
        }));
    }
    Ok(())
}

/// Returns the list of parts that completes an upload.
fn list_of(parts: &[Part], sums: bool) -> String {
    let mut list =
        String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (at, part) in parts.iter().enumerate() {
        let etag = part
            .etag
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('"', "&quot;");
        list.push_str(&format!(
            "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag>",
            at + 1
        ));
        if sums {
            let sum = part.digest.text();
            list.push_str(&format!("<ChecksumSHA256>{sum}</ChecksumSHA256>"));
        }
        list.push_str("</Part>");
    }
    list.push_str("</CompleteMultipartUpload>");
    list
}

/// The statuses of answers to a part of a resumable upload of Google: it is complete, it continues, or it is unknown. 400
/// is the answer to a wrong checksum.
const PART_ANSWERS: [u16; 6] = [200, 201, 308, 400, 404, 410];

/// Returns what an answer says about a resumable upload of Google, whose first `sent` bytes were sent.
fn part_answer(answer: &Answer, sent: u64) -> Result<Put, Failure> {
    match answer.head.status {
        200 | 201 => Ok(Put::Done(String::new())),
        308 if answer.head.kept() == Some(sent) => Ok(Put::Done(String::new())),
        // What is sent again is ignored up to the first missing byte.
        308 => Err(Failure::Transient(format!(
            "the store has {} of {sent} bytes",
            answer.head.kept().unwrap_or_default()
        ))),
        status => Ok(Put::Ended(format!(
            "the store ended the upload: {}",
            again(status, answer.code().as_deref())
        ))),
    }
}

/// Returns the request that uploads a whole object to Google, with its checksum.
fn google_put(key: &str, payload: &Payload, only_new: bool) -> RequestSpec {
    let sum = payload.sum();
    // No text can contain its own checksum.
    let border = hex(sum.as_bytes());
    let mut ask = RequestSpec::new(Method::POST, "", &[200, 412])
        .at(UrlKind::Folder)
        .query("uploadType", "multipart")
        .query("name", key)
        .query("fields", FIELDS)
        .header(
            "content-type",
            format!("multipart/related; boundary={border}"),
        );
    ask.frame = Some(Frame {
        head: format!(
            "--{border}\r\nContent-Type: application/json\r\n\r\n{{\"md5Hash\":\"{sum}\"}}\r\n\
             --{border}\r\nContent-Type: application/octet-stream\r\n\r\n"
        ),
        tail: format!("\r\n--{border}--\r\n"),
    });
    match only_new {
        true => ask.query("ifGenerationMatch", "0"),
        false => ask,
    }
}

/// Returns the size of all parts but the last, for an object of `bytes` bytes.
fn part_bytes(bytes: u64, max: u64, parts: u64) -> u64 {
    /// S3 and compatible stores refuse smaller parts, except as the last one.
    const MIN: u64 = 5 << 20;

    let count = bytes.div_ceil(max.max(1)).clamp(1, parts.max(1));
    bytes.div_ceil(count).max(max.min(MIN)).max(1)
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic as _;

    use super::super::answer::Head;
    use super::*;

    fn answer(body: &str) -> Answer {
        Answer {
            head: Head {
                status: 200,
                ..Head::default()
            },
            body: body.into(),
        }
    }

    #[test]
    fn upload_id_is_found_in_both_forms() {
        for root in ["InitiateMultipartUploadResult", "InitiateMultipartUpload"] {
            let body = format!("<{root}><Key>k</Key><UploadId>7</UploadId></{root}>");
            assert_eq!(StoreKind::S3.upload_id(&answer(&body)).unwrap(), "7");
        }
    }

    #[test]
    fn unexpected_root_element_is_an_error_naming_it() {
        let long = format!("<{0}></{0}>", "x".repeat(1000));
        for (body, found) in [
            ("<html><body>Sign in.</body></html>", "html"),
            ("<CompleteMultipartUpload/>", "CompleteMultipartUpload"),
            (&long, &"x".repeat(64)),
        ] {
            let upload_id = StoreKind::S3.upload_id(&answer(body)).map(drop);
            let completed = completed(&answer(body), None);
            for (result, expected) in [
                (upload_id, "InitiateMultipartUploadResult"),
                (completed, "CompleteMultipartUploadResult"),
            ] {
                let Err(Failure::ProtocolError(error)) = result else {
                    panic!("{result:?}");
                };
                assert_eq!(error.id(), "storage-answer");
                let message = format!(
                    "this is no answer of a store: its root element is `{found}`, not `{expected}`"
                );
                assert_eq!(error.to_string(), message);
            }
        }
    }
}
