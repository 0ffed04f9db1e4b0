//! Consolidated metadata: that of all arrays of a store in one object, for stores that cannot be listed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::ZarrError;
use crate::json::json;

/// Returns the objects that consolidated metadata has copies of, by name: from the bytes of `.zmetadata` of version 2, or
/// of the `zarr.json` of a group of version 3, which is one of them.
///
/// # Errors
///
/// [`ZarrError::Metadata`] if the bytes are not JSON.
pub fn consolidated(bytes: &[u8], name: &str) -> Result<BTreeMap<String, Vec<u8>>, ZarrError> {
    let value = json(bytes, name)?;
    let inline = value.get("consolidated_metadata");
    let metadata = inline
        .unwrap_or(&value)
        .get("metadata")
        .and_then(Value::as_object);
    let name_of = |own: &str| match inline {
        Some(_) => format!("{own}/zarr.json"),
        None => own.to_owned(),
    };
    let objects = metadata.into_iter().flatten();
    let copies = objects.map(|(name, value)| (name_of(name), value.to_string().into_bytes()));
    Ok(copies.chain([(name.to_owned(), bytes.to_vec())]).collect())
}

/// Returns the attributes of a group, from the bytes of its `zarr.json` or `.zattrs`.
///
/// # Errors
///
/// [`ZarrError::Metadata`] if the bytes are not JSON.
pub fn attributes(bytes: &[u8], name: &str) -> Result<Map<String, Value>, ZarrError> {
    let mut value = json(bytes, name)?;
    let value = match name.ends_with("zarr.json") {
        true => value
            .get_mut("attributes")
            .map(Value::take)
            .unwrap_or_default(),
        false => value,
    };
    Ok(match value {
        Value::Object(attributes) => attributes,
        _ => Map::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_both_versions_are_found() {
        let names = |bytes: &[u8], name| {
            consolidated(bytes, name)
                .unwrap()
                .into_keys()
                .collect::<Vec<_>>()
        };
        let old = br#"{"zarr_consolidated_format": 1, "metadata": {".zgroup": {}, "g/t/.zarray": {"fill_value": NaN}}}"#;
        assert_eq!(
            names(old, ".zmetadata"),
            [".zgroup", ".zmetadata", "g/t/.zarray"]
        );
        let new = br#"{"zarr_format": 3, "consolidated_metadata": {"kind": "inline", "metadata": {"g/t": {}}}}"#;
        assert_eq!(names(new, "zarr.json"), ["g/t/zarr.json", "zarr.json"]);
        assert_eq!(
            names(br#"{"consolidated_metadata": null}"#, "zarr.json"),
            ["zarr.json"]
        );
        consolidated(b"<html>", "zarr.json").unwrap_err();
        let found = attributes(
            br#"{"attributes": {"title": "NaN \" NaN", "valid_max": [-Infinity]}}"#,
            "zarr.json",
        );
        assert_eq!(
            Value::Object(found.unwrap()),
            serde_json::json!({"title": "NaN \" NaN", "valid_max": ["-Infinity"]})
        );
    }
}
