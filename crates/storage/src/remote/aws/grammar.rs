//! The grammar of `~/.aws/config` and `~/.aws/credentials`, as botocore reads it.
//!
//! A line is `[SECTION]`, `KEY = VALUE` or `KEY: VALUE`, empty, or a comment that begins with `#` or `;`. A line that is
//! indented more than the key above it continues the value. Comments after a value are a part of it. Keys are not
//! case-sensitive. A section or a key that occurs twice is an error.
//!
//! Source: Python's `RawConfigParser` (3.12) and botocore 1.44, `configloader.py`. Unlike there, `[DEFAULT]` is an
//! ordinary section.

use std::collections::BTreeMap;

use crate::remote::profile::utf8;

/// The keys and values of a section. Has secrets.
pub(super) type Section = BTreeMap<String, String>;

/// Parses a file into its sections, in their order. The error is the number of the first invalid line.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<(String, Section)>, usize> {
    let mut sections: Vec<(String, Section)> = Vec::new();
    // The key that a continuation belongs to, and its indentation.
    let mut open: Option<String> = None;
    let mut indent = 0;
    for (at, line) in utf8(bytes)?.lines().enumerate() {
        let number = at + 1;
        let text = line.trim();
        let section = sections.last_mut().map(|(_, section)| section);
        let value = section.zip(open.as_deref());
        let value = value.and_then(|(section, key)| section.get_mut(key));
        if text.starts_with(['#', ';']) {
            continue;
        }
        if text.is_empty() {
            if let Some(value) = value {
                value.push('\n');
            }
            continue;
        }
        let indented = line.len() - line.trim_start().len();
        if let Some(value) = value
            && indented > indent
        {
            value.push('\n');
            value.push_str(text);
            continue;
        }
        indent = indented;
        if let Some(name) = header(text) {
            if sections.iter().any(|(known, _)| known == name) {
                return Err(number);
            }
            sections.push((name.to_owned(), Section::new()));
            open = None;
            continue;
        }
        let (key, value) = text.split_once(['=', ':']).ok_or(number)?;
        let key = key.trim().to_lowercase();
        let (_, section) = sections.last_mut().ok_or(number)?;
        if key.is_empty() || section.contains_key(&key) {
            return Err(number);
        }
        section.insert(key.clone(), value.trim().to_owned());
        open = Some(key);
    }
    for (_, section) in &mut sections {
        for value in section.values_mut() {
            value.truncate(value.trim_end().len());
        }
    }
    Ok(sections)
}

/// Returns the name in `[NAME]`. What follows the last bracket is ignored.
fn header(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('[')?.rsplit_once(']')?;
    (!name.is_empty()).then_some(name)
}

/// Parses the lines of a nested value, such as those below `s3 =`. The error is that of a line without `=`.
pub(super) fn nested(value: &str) -> Option<Section> {
    let lines = value.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (key, value) = line.split_once('=')?;
            Some((key.trim().to_lowercase(), value.trim().to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, Vec<(String, String)>)> {
        parse(text.as_bytes())
            .unwrap()
            .into_iter()
            .map(|(name, section)| (name, section.into_iter().collect()))
            .collect()
    }

    #[test]
    fn config_sections_keys_and_values_are_parsed() {
        let text = "\u{feff}# c\n ; c\n[default]  # x\nRegion: eu-west-1\r\nkey=a=b # c\nempty =\n\n[profile b c]\nx = 1\n";
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            of(text),
            [
                (
                    "default".to_owned(),
                    vec![
                        pair("empty", ""),
                        pair("key", "a=b # c"),
                        pair("region", "eu-west-1")
                    ]
                ),
                ("profile b c".to_owned(), vec![pair("x", "1")]),
            ]
        );
    }

    #[test]
    fn values_continue_on_indented_lines() {
        let found = of(
            "[a]\ns3 =\n  max = 1\n  # c\n\n  style = path\n  [b]\nother = 2\n  indented = 3\n[c]\n  k = v\n    w\n  l = x\n",
        );
        let value = |at: usize, key: &str| {
            let found = found[at].1.iter().find(|(known, _)| known == key);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(value(0, "s3"), Some("\nmax = 1\n\nstyle = path\n[b]"));
        assert_eq!(value(0, "other"), Some("2\nindented = 3"));
        assert_eq!((value(1, "k"), value(1, "l")), (Some("v\nw"), Some("x")));
        let nested = nested("\nmax = 1\n\nStyle= path ").unwrap();
        assert_eq!(
            nested.into_iter().collect::<Vec<_>>(),
            [("max", "1"), ("style", "path")].map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        assert!(super::nested("\nhush\n").is_none());
    }

    #[test]
    fn parse_error_has_the_line_number() {
        for (text, line) in [
            ("key = before any section\n", 1),
            ("[a]\nhush\n", 2),
            ("[a]\n\n[a\n", 3),
            ("[a]\n= hush\n", 2),
            ("[a]\nk = 1\nK = 2\n", 3),
            ("[a]\nk = 1\n[b]\n[a]\n", 4),
            ("[]\n", 1),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), line, "{text}");
        }
        assert_eq!(parse(b"[a]\n\nk = \xff\n").unwrap_err(), 3);
        assert!(parse(b"").unwrap().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn parser_never_panics(text in "[\\[\\]a-z =:#;\n\t\"]{0,60}") {
            let _ = parse(text.as_bytes());
            let _ = nested(&text);
        }
    }
}
