//! Pages of listings.

use chrono::DateTime;
use serde_json::Value;
use url::Url;

use super::answer::{Answer, Failure, protocol_error};

/// An object on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) key: String,
    pub(super) bytes: u64,
    /// The version tag; empty if the store has none.
    pub(super) tag: String,
    /// The time of the last change, if the store reports it in a known format.
    pub(super) modified_ms: Option<i64>,
}

/// One page of a listing.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<Listed>,
    /// Common prefixes of further keys, up to a slash.
    pub(super) prefixes: Vec<String>,
    pub(super) next: Option<String>,
}

/// The page to request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paging<'a> {
    pub(super) prefix: &'a str,
    /// Whether to fold keys at the next slash.
    pub(super) folded: bool,
    /// Return only keys after this one.
    pub(super) after: Option<&'a str>,
    pub(super) token: Option<&'a str>,
    pub(super) max: u32,
}

/// Parses a page in the format of S3 and of Google's XML API.
pub(super) fn s3_page(answer: &Answer) -> Result<Page, Failure> {
    let (mut page, truncated) = xml_page(answer, "ListBucketResult")?;
    if truncated && page.next.is_none() {
        return Err(protocol_error(
            "a listing continues, but does not say where",
        ));
    }
    page.next = page.next.filter(|_| truncated);
    Ok(page)
}

/// Parses a page of Azure.
pub(super) fn azure_page(answer: &Answer) -> Result<Page, Failure> {
    Ok(xml_page(answer, "EnumerationResults")?.0)
}

/// Parses a page in the format with this root element. Returns it with whether it says that the listing continues (S3).
fn xml_page(answer: &Answer, root: &str) -> Result<(Page, bool), Failure> {
    let (mut page, mut truncated) = (Page::default(), false);
    let (mut key, mut bytes, mut tag, mut modified) = (None, None, String::new(), None);
    let mut is_folder = false;
    answer.xml(&[root], |path, inside| {
        match path {
            "ListBucketResult/Contents/Key" | "EnumerationResults/Blobs/Blob/Name" => {
                key = Some(inside.to_owned());
            }
            "ListBucketResult/Contents/Size"
            | "EnumerationResults/Blobs/Blob/Properties/Content-Length" => {
                let size = inside.trim().parse::<u64>();
                bytes = Some(size.map_err(|_| "a size that is no number")?);
            }
            "ListBucketResult/Contents/ETag"
            | "EnumerationResults/Blobs/Blob/Properties/Etag"
            | "EnumerationResults/Blobs/Blob/Properties/ETag" => {
                inside.trim().clone_into(&mut tag);
            }
            "ListBucketResult/Contents/LastModified" => {
                modified = DateTime::parse_from_rfc3339(inside.trim()).ok();
            }
            "EnumerationResults/Blobs/Blob/Properties/Last-Modified" => {
                modified = DateTime::parse_from_rfc2822(inside.trim()).ok();
            }
            "EnumerationResults/Blobs/Blob/Properties/ResourceType" => {
                is_folder = inside.trim() == "directory";
            }
            "ListBucketResult/Contents" | "EnumerationResults/Blobs/Blob" => {
                let listed = (key.take(), bytes.take(), std::mem::take(&mut tag));
                let modified_ms = modified.take().map(|time| time.timestamp_millis());
                match listed {
                    // In accounts of Azure with a hierarchical namespace, folders are listed too.
                    _ if std::mem::take(&mut is_folder) => {}
                    (Some(key), Some(bytes), tag) => page.objects.push(Listed {
                        key,
                        bytes,
                        tag,
                        modified_ms,
                    }),
                    _ => return Err("an object without a key or a size"),
                }
            }
            "ListBucketResult/CommonPrefixes/Prefix"
            | "EnumerationResults/Blobs/BlobPrefix/Name" => page.prefixes.push(inside.to_owned()),
            "ListBucketResult/IsTruncated" => truncated = inside.trim() == "true",
            "ListBucketResult/NextContinuationToken" | "EnumerationResults/NextMarker" => {
                page.next = Some(inside.to_owned()).filter(|next| !next.is_empty());
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok((page, truncated))
}

/// An object of Google's JSON API.
#[derive(Debug)]
pub(super) struct GoogleObject {
    pub(super) bytes: u64,
    pub(super) generation: String,
    /// An object that was composed of others has none.
    pub(super) md5: Option<String>,
}

impl GoogleObject {
    pub(super) fn of(json: &Value) -> Result<Self, Failure> {
        let text = |name: &str| Some(json.get(name)?.as_str()?.to_owned());
        // COMPAT: numbers are texts. One emulator has numbers, and Google's own test bench leaves out a size of 0.
        let bytes = match json.get("size") {
            None => Some(0),
            Some(Value::String(size)) => size.parse().ok(),
            Some(size) => size.as_u64(),
        };
        Ok(Self {
            bytes: bytes.ok_or(protocol_error("an object without a key or a size"))?,
            generation: text("generation").ok_or(protocol_error("it has no generation"))?,
            md5: text("md5Hash"),
        })
    }

    /// Checks that the object has the checksum of what was sent.
    pub(super) fn check(&self, sum: &str) -> Result<(), Failure> {
        match &self.md5 {
            Some(found) if found != sum => Err(protocol_error(
                "another checksum than that of what was sent",
            )),
            _ => Ok(()),
        }
    }
}

/// Parses a page of Google. It begins with the key `after`, which is left out.
pub(super) fn google_page(answer: &Answer, after: Option<&str>) -> Result<Page, Failure> {
    let json = answer.json()?;
    let list = |name: &str| match json.get(name) {
        None if json.is_object() => Ok(&[][..]),
        Some(Value::Array(entries)) => Ok(&entries[..]),
        _ => Err(protocol_error("it is no listing")),
    };
    let mut page = Page::default();
    for item in list("items")? {
        let text = |name: &str| item.get(name).and_then(Value::as_str);
        let key = text("name").ok_or(protocol_error("an object without a key or a size"))?;
        let object = GoogleObject::of(item)?;
        let modified = text("updated").and_then(|time| DateTime::parse_from_rfc3339(time).ok());
        if Some(key) != after {
            page.objects.push(Listed {
                key: key.to_owned(),
                bytes: object.bytes,
                tag: object.generation,
                modified_ms: modified.map(|time| time.timestamp_millis()),
            });
        }
    }
    for prefix in list("prefixes")? {
        let prefix = prefix.as_str().ok_or(protocol_error("it is no listing"))?;
        page.prefixes.push(prefix.to_owned());
    }
    let next = json.get("nextPageToken").and_then(Value::as_str);
    page.next = next.filter(|next| !next.is_empty()).map(str::to_owned);
    Ok(page)
}

/// Parses the entries of a folder. `root` is the path of the volume with a trailing slash.
pub(super) fn volume_page(answer: &Answer, root: &str) -> Result<Page, Failure> {
    let mut page = Page::default();
    if answer.head.status == 404 {
        return Ok(page);
    }
    let json = answer.json()?;
    let json = json.as_object().ok_or(protocol_error("it is no listing"))?;
    let entries = match json.get("contents") {
        None => &[][..],
        Some(entries) => entries
            .as_array()
            .ok_or(protocol_error("it is no listing"))?,
    };
    for entry in entries {
        let path = entry.get("path").and_then(Value::as_str);
        let key = path
            .and_then(|path| path.strip_prefix(root))
            .ok_or(protocol_error("a key that was not asked for"))?;
        if entry.get("is_directory").and_then(Value::as_bool) == Some(true) {
            page.prefixes
                .push(format!("{}/", key.trim_end_matches('/')));
        } else {
            let bytes = entry.get("file_size").and_then(Value::as_u64);
            page.objects.push(Listed {
                key: key.to_owned(),
                bytes: bytes.ok_or(protocol_error("an object without a key or a size"))?,
                tag: entry
                    .get("last_modified")
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                modified_ms: entry.get("last_modified").and_then(Value::as_i64),
            });
        }
    }
    page.next = json
        .get("next_page_token")
        .and_then(Value::as_str)
        .filter(|token| !token.is_empty())
        .map(str::to_owned);
    Ok(page)
}

/// Parses the entries of a folder of a repository of the Hugging Face Hub.
pub(super) fn hub_page(answer: &Answer) -> Result<Page, Failure> {
    hub_entries(answer, |entry| {
        let large = entry.get("lfs").and_then(|lfs| lfs.get("oid")?.as_str());
        let tag = large.or_else(|| entry.get("oid")?.as_str());
        Some(tag.unwrap_or_default().to_owned())
    })
}

/// Parses the entries of the folder `prefix` of a bucket of the Hugging Face Hub. Their tags are the hashes that the
/// answers with the files have as well.
pub(super) fn hub_bucket_page(answer: &Answer, prefix: &str) -> Result<Page, Failure> {
    let mut page = hub_entries(answer, |entry| {
        let hash = entry.get("xetHash").and_then(Value::as_str);
        let is_empty = entry.get("size").and_then(Value::as_u64) == Some(0);
        hash.or(is_empty.then_some("")).map(str::to_owned)
    })?;
    // COMPAT: the Hub compares texts, so a listing of `a` also has what is in `ab`.
    page.objects.retain(|listed| listed.key.starts_with(prefix));
    page.prefixes.retain(|folder| folder.starts_with(prefix));
    Ok(page)
}

/// Parses the entries of a folder of the Hugging Face Hub. `tag` returns the tag of a file.
fn hub_entries(answer: &Answer, tag: impl Fn(&Value) -> Option<String>) -> Result<Page, Failure> {
    let mut page = Page::default();
    if answer.head.status == 404 {
        return Ok(page);
    }
    let json = answer.json()?;
    let entries = json.as_array().ok_or(protocol_error("it is no listing"))?;
    for entry in entries {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let path = text("path").ok_or(protocol_error("an object without a key or a size"))?;
        match text("type") {
            Some("directory") => page.prefixes.push(format!("{path}/")),
            Some("file") => {
                let bytes = entry.get("size").and_then(Value::as_u64);
                page.objects.push(Listed {
                    key: path.to_owned(),
                    bytes: bytes.ok_or(protocol_error("an object without a key or a size"))?,
                    tag: tag(entry).ok_or(protocol_error("an object without a hash"))?,
                    modified_ms: None,
                });
            }
            // A submodule has no bytes.
            _ => {}
        }
    }
    page.next = answer.head.link.as_deref().and_then(next_cursor);
    Ok(page)
}

/// Returns the cursor of the next page in a `Link` header.
fn next_cursor(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let (_, rest) = next.split_once('<')?;
    let url = Url::parse(rest.split_once('>')?.0).ok()?;
    let mut query = url.query_pairs();
    let (_, cursor) = query.find(|(name, _)| name == "cursor")?;
    Some(cursor.into_owned())
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic as _;

    use super::super::answer::Head;
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let link = "<https://h/api/buckets/o/n/tree/a?limit=2&cursor=c%3D>; rel=\"next\"";
        Answer {
            head: Head {
                status,
                link: Some(link.into()),
                ..Head::default()
            },
            body: body.into(),
        }
    }

    #[test]
    fn hub_bucket_page_filters_entries_by_prefix() {
        let body = r#"[
            {"type": "file", "path": "a", "size": 1, "xetHash": "00"},
            {"type": "file", "path": "a.txt", "size": 1, "xetHash": "01"},
            {"type": "directory", "path": "ab"},
            {"type": "directory", "path": "a/b"},
            {"type": "file", "path": "a/c", "size": 2, "xetHash": "02"},
            {"type": "file", "path": "a/empty", "size": 0}
        ]"#;
        let page = hub_bucket_page(&answer(200, body), "a/").unwrap();
        let found: Vec<(&str, u64, &str)> = page
            .objects
            .iter()
            .map(|listed| (listed.key.as_str(), listed.bytes, listed.tag.as_str()))
            .collect();
        assert_eq!(found, [("a/c", 2, "02"), ("a/empty", 0, "")]);
        assert_eq!(page.prefixes, ["a/b/"]);
        assert_eq!(page.next.as_deref(), Some("c="));
        let missing = hub_bucket_page(&answer(404, ""), "a/").unwrap();
        assert!(missing.objects.is_empty() && missing.next.is_none());
    }

    #[test]
    fn hub_bucket_file_without_hash_is_an_error() {
        let body = r#"[{"type": "file", "path": "a", "size": 1, "oid": "00"}]"#;
        let error = hub_bucket_page(&answer(200, body), "").unwrap_err();
        let Failure::ProtocolError(error) = error else {
            panic!("{error:?}");
        };
        assert_eq!(error.id(), "storage-answer");
    }
}
