//! Fields of JSON objects as the text that they are.

use std::borrow::Cow;

use serde::de::{DeserializeOwned, IgnoredAny};

/// A field whose values are read as the text that they are in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawField {
    /// Its name.
    pub name: String,
    /// Whether values that are strings stay so. Otherwise they become JSON text like others, quotes included.
    pub keeps_texts: bool,
}

/// A line in which the values of some fields of its object are strings with the JSON text that they were, byte by byte, without
/// the whitespace around them; nulls stay nulls. A line that is no object, or that is damaged, stays as it is.
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
    // What follows is looked at with the rest.
    out.extend_from_slice(line.get(copied..)?);
    Some(out)
}

/// What of a line was not read.
struct Rest<'a> {
    line: &'a [u8],
    at: usize,
}

impl Rest<'_> {
    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        while self.line.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.line.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// The value that begins here, and where it ends.
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
    fn values_become_their_text() {
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
    fn the_text_is_what_was_there() {
        let line = "{\"a\": {\"ä\\n\":\t[1.0, \"\\u00e4\"]}}";
        let value: serde_json::Value = serde_json::from_str(&of(line, &["a"])).unwrap();
        assert_eq!(value["a"], "{\"ä\\n\":\t[1.0, \"\\u00e4\"]}");
    }
}
