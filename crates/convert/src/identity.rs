//! The identity of a conversion: its configuration and its source.

use serde_json::{Value, json};
use shardmill_source::SourceDescription;
use xxhash_rust::xxh3::xxh3_128;

/// The identity of a conversion. Two runs are the same conversion if their identities are equal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Identity {
    pub(crate) config: Value,
    pub(crate) config_fingerprint: String,
    pub(crate) source_fingerprint: String,
}

impl Identity {
    pub(crate) fn new(config: Value, source: &SourceDescription) -> Self {
        let config_fingerprint = format!("{:032x}", xxh3_128(config.to_string().as_bytes()));
        Self {
            config,
            config_fingerprint,
            source_fingerprint: source.fingerprint.clone(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "config": self.config,
            "config_fingerprint": self.config_fingerprint,
            "source_fingerprint": self.source_fingerprint,
        })
    }

    /// Returns whether a value can be the result of [`to_json`](Self::to_json).
    pub(crate) fn is_in(value: &Value) -> bool {
        value["config_fingerprint"].is_string()
    }

    /// Describes how `other`, the identity of an earlier run, differs. Returns `None` if it does not differ.
    pub(crate) fn difference(&self, other: &Value) -> Option<String> {
        let text = |key: &str| other.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("config_fingerprint") != self.config_fingerprint {
            let empty = serde_json::Map::new();
            let theirs = other["config"].as_object().unwrap_or(&empty);
            let ours = self.config.as_object().unwrap_or(&empty);
            let mut changes: Vec<String> = Vec::new();
            for (key, value) in ours {
                let before = theirs.get(key).unwrap_or(&Value::Null);
                if before != value {
                    let (at, before, now) = first_difference(before, value);
                    changes.push(format!("{key}{at} was {before}, is {now}"));
                }
            }
            let mut gone = theirs.iter().filter(|(key, _)| !ours.contains_key(*key));
            for (key, before) in gone.by_ref().filter(|(_, before)| !before.is_null()) {
                let (at, before, _) = first_difference(before, &Value::Null);
                changes.push(format!("{key}{at} was {before}, is not given"));
            }
            if changes.is_empty() {
                changes.push("it was made by another version".to_owned());
            }
            return Some(changes.join("; "));
        }
        (text("source_fingerprint") != self.source_fingerprint)
            .then(|| "the source has changed since (names, sizes or modification times)".to_owned())
    }
}

/// The maximum number of characters of a value in a message.
const MAX_SHOWN: usize = 120;

/// Returns the path of the first difference between two values, and both values there. Short values are returned whole.
fn first_difference(before: &Value, now: &Value) -> (String, String, String) {
    let (shown, is) = (before.to_string(), now.to_string());
    let is_short = |text: &str| text.chars().count() <= MAX_SHOWN;
    if is_short(&shown) && is_short(&is) {
        return (String::new(), shown, is);
    }
    let inner = |at: String, before: Option<&Value>, now: Option<&Value>| {
        let (before, now) = (before.unwrap_or(&Value::Null), now.unwrap_or(&Value::Null));
        let (rest, before, now) = first_difference(before, now);
        (at + &rest, before, now)
    };
    match (before, now) {
        (Value::Array(before), Value::Array(now)) => {
            let pairs = before.iter().zip(now);
            let at = pairs.take_while(|(before, now)| before == now).count();
            inner(format!("[{at}]"), before.get(at), now.get(at))
        }
        (Value::Object(before), Value::Object(now)) => {
            let mut names = before.keys().chain(now.keys());
            match names.find(|name| before.get(*name) != now.get(*name)) {
                Some(name) => inner(format!(".{name}"), before.get(name), now.get(name)),
                None => (String::new(), short(&shown, 0), short(&is, 0)),
            }
        }
        _ => {
            let pairs = shown.chars().zip(is.chars());
            let same = pairs.take_while(|(before, now)| before == now).count();
            let from = match is_short(&shown) || is_short(&is) {
                true => 0,
                false => same.saturating_sub(MAX_SHOWN / 4),
            };
            (String::new(), short(&shown, from), short(&is, from))
        }
    }
}

/// Returns at most [`MAX_SHOWN`] characters of a text, starting at character `from`.
fn short(text: &str, from: usize) -> String {
    let rest = text.chars().skip(from);
    let shown: String = rest.clone().take(MAX_SHOWN).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = match rest.count() > MAX_SHOWN {
        true => "…",
        false => "",
    };
    format!("{before}{shown}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(before: &Value, now: &Value) -> String {
        let (at, before, now) = first_difference(before, now);
        format!("{at} was {before}, is {now}")
    }

    #[test]
    fn difference_in_long_values_is_shown() {
        assert_eq!(difference(&json!(1), &json!([2])), " was 1, is [2]");
        let columns: Vec<Value> = (0..50).map(|at| json!([format!("c{at}"), "int"])).collect();
        let mut other = columns.clone();
        other[47] = json!(["c47", "str"]);
        assert_eq!(
            difference(&json!(columns), &json!(other)),
            r#"[47] was ["c47","int"], is ["c47","str"]"#
        );
        assert_eq!(
            difference(&json!(columns[..49]), &json!(columns)),
            r#"[49] was null, is ["c49","int"]"#
        );
        let object = |last: &str| json!({"a": columns, "b": {"c": last}});
        assert_eq!(
            difference(&object("x"), &object("y")),
            r#".b was {"c":"x"}, is {"c":"y"}"#
        );
        let text = |last: &str| json!(format!("{}{last}", "é".repeat(300)));
        let same = "é".repeat(30);
        assert_eq!(
            difference(&text("x"), &text("y")),
            format!(r#" was …{same}x", is …{same}y""#)
        );
    }
}
