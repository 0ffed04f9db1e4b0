//! Reads fields of JSON objects as their JSON text.

use std::borrow::Cow;

use serde::de::{DeserializeOwned, IgnoredAny};

/// A field whose values are read as their text in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawField {
    /// The field's name.
    pub name: String,
    /// Whether string values remain strings. Otherwise they become JSON text like other values, including their quotes.
    pub keeps_texts: bool,
}

/// Returns a line in which the values of some fields are replaced by strings that contain their JSON text, byte for
/// byte, without surrounding whitespace. Nulls stay null. A line that is not an object or does not parse is returned
/// unchanged.
pub(crate) fn quoted<'a>(line: &'a [u8], fields: &[RawField]) -> Cow<'a, [u8]> {
    if fields.is_empty() {
        return Cow::Borrowed(line);
    }
    rewrite(line, fields).map_or(Cow::Borrowed(line), Cow::Owned)
}

fn rewrite(line: &[u8], fields: &[RawField]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len().saturating_add(64));
    let mut rest = Rest { line, at: 0 };
    let mut copied = 0;
    rest.expect(b'{')?;
    if rest.peek()? == b'}' {
        return None;
    }
    loop {
        rest.peek()?;
        let name: String = rest.value()?.0;
        rest.expect(b':')?;
        rest.peek()?;
        let begin = rest.at;
        let (IgnoredAny, end) = rest.value()?;
        if let Some(field) = fields.iter().find(|field| field.name == name) {
            let text = std::str::from_utf8(line.get(begin..end)?).ok()?;
            let stays = text == "null" || (field.keeps_texts && text.starts_with('"'));
            if !stays {
                out.extend_from_slice(line.get(copied..begin)?);
                serde_json::to_writer(&mut out, text).ok()?;
                copied = end;
            }
        }
        if rest.peek()? != b',' {
            break;
        }
        rest.expect(b',')?;
    }
    // The JSON reader checks the rest of the line.
    out.extend_from_slice(line.get(copied..)?);
    Some(out)
}

/// The unread part of a line.
struct Rest<'a> {
    line: &'a [u8],
    at: usize,
}

impl Rest<'_> {
    /// Skips whitespace and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        while self.line.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.line.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Parses the value that begins here, and returns it with the offset of its end.
    fn value<T: DeserializeOwned>(&mut self) -> Option<(T, usize)> {
        let rest = self.line.get(self.at..)?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<T>();
        let value = values.next()?.ok()?;
        self.at += values.byte_offset();
        Some((value, self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str, fields: &[&str]) -> String {
        let field = |&name: &&str| RawField {
            name: name.trim_start_matches('=').to_owned(),
            keeps_texts: name.starts_with('='),
        };
        let fields: Vec<RawField> = fields.iter().map(field).collect();
        String::from_utf8(quoted(line.as_bytes(), &fields).into_owned()).unwrap()
    }

    #[test]
    fn selected_values_become_strings_of_their_json_text() {
        for (line, fields, expected) in [
            (r#"{"a": 1, "b":2}"#, &["a"][..], r#"{"a": "1", "b":2}"#),
            (r#"{"a": "x"}"#, &["a"], r#"{"a": "\"x\""}"#),
            (r#"{"a": "x"}"#, &["=a"], r#"{"a": "x"}"#),
            (r#"{"a": 1.0}"#, &["=a"], r#"{"a": "1.0"}"#),
            (
                r#" { "a" : [1, {"b": "}"} ] , "b" : {} } "#,
                &["b", "a"],
                r#" { "a" : "[1, {\"b\": \"}\"} ]" , "b" : "{}" } "#,
            ),
            (
                r#"{"a":null,"b":true}"#,
                &["a", "b"],
                r#"{"a":null,"b":"true"}"#,
            ),
            (r#"{"\u0061":-1.5e3}"#, &["a"], r#"{"\u0061":"-1.5e3"}"#),
            (r#"{"a":{"b":1}}"#, &["b"], r#"{"a":{"b":1}}"#),
            ("{}", &["a"], "{}"),
            ("  ", &["a"], "  "),
            ("[1]", &["a"], "[1]"),
            (r#"{"a":1,}"#, &["a"], r#"{"a":1,}"#),
            (r#"{"a":1"#, &["a"], r#"{"a":1"#),
            (r#"{"a":1} x"#, &["a"], r#"{"a":"1"} x"#),
            (r#"{"a":1,"a":2}"#, &["a"], r#"{"a":"1","a":"2"}"#),
        ] {
            assert_eq!(of(line, fields), expected, "{line}");
        }
    }

    #[test]
    fn raw_json_text_is_preserved_exactly() {
        let line = "{\"a\": {\"ä\\n\":\t[1.0, \"\\u00e4\"]}}";
        let value: serde_json::Value = serde_json::from_str(&of(line, &["a"])).unwrap();
        assert_eq!(value["a"], "{\"ä\\n\":\t[1.0, \"\\u00e4\"]}");
    }
}
