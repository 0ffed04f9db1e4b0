//! JSON as Python writes it, which has numbers that JSON does not have.

use serde_json::Value;

use crate::error::ZarrError;

/// Parses JSON of an object called `name`. `NaN` and infinities, which Python writes, become texts.
pub(crate) fn json(bytes: &[u8], name: &str) -> Result<Value, ZarrError> {
    let parsed = serde_json::from_slice(bytes);
    let parsed = parsed.or_else(|error| serde_json::from_slice(&quoted(bytes)).map_err(|_| error));
    parsed.map_err(|error| ZarrError::metadata(format!("`{name}` is not JSON: {error}")))
}

/// Returns JSON with quotes around numbers that JSON does not have.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let (mut rest, mut in_text) = (bytes, false);
    while let [first, after @ ..] = rest {
        let names: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
        let name = names
            .into_iter()
            .find(|name| !in_text && rest.starts_with(name));
        let taken = match (name, first) {
            (Some(name), _) => name.len(),
            (None, b'\\') if !after.is_empty() => 2,
            _ => 1,
        };
        in_text ^= *first == b'"';
        let (own, after) = rest.split_at(taken);
        let quote: &[u8] = if name.is_some() { b"\"" } else { b"" };
        out.extend([quote, own, quote].concat());
        rest = after;
    }
    out
}
