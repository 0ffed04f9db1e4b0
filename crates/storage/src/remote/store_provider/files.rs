//! Databricks volumes through the Files API: one request per file, and one listing per folder.

mod login;

use serde_json::Value;

use crate::error::StorageError;
use crate::location::RemoteLocation;

use super::{Listed, Page, StoreProvider};
use crate::remote::send::{Answer, protocol_error};
use crate::remote::settings::{Access, Settings, encode};
use crate::remote::transfer::Failure;

pub(in crate::remote) const HINT: &str = "set DATABRICKS_HOST with DATABRICKS_TOKEN, or with DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET, or write them into ~/.databrickscfg, or run where /Volumes is mounted";

pub(in crate::remote) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let (url, signing) = login::login(location, known)?;
    let host = url.as_str().trim_end_matches('/');
    let mut volume = String::new();
    encode(&mut volume, location.bucket(), true);
    let base = format!("{host}/api/2.0/fs/files/Volumes/{volume}");
    Ok(Access {
        folders: format!("{host}/api/2.0/fs/directories/Volumes/{volume}"),
        account: Some(format!("/Volumes/{}/", location.bucket())),
        ..Access::at(StoreProvider::Files, &base, signing)?
    })
}

/// Parses the entries of a folder. `root` is the path of the volume with a trailing slash.
pub(in crate::remote) fn page(answer: &Answer, root: &str) -> Result<Page, Failure> {
    let mut page = Page::default();
    if answer.status == 404 {
        return Ok(page);
    }
    let json: Value =
        serde_json::from_slice(&answer.body).map_err(|_| protocol_error("it is not JSON"))?;
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

/// Returns the error code in the body of an error.
pub(in crate::remote) fn code(body: &[u8]) -> Option<String> {
    let json: Value = serde_json::from_slice(body).ok()?;
    Some(json.get("error_code")?.as_str()?.to_owned())
}
