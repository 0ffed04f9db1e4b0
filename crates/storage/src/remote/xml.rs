//! A minimal XML parser for the answers of stores: elements and their text, without declarations.

/// The maximum nesting depth. Answers have four levels.
const DEPTH: usize = 16;

/// Calls `each` at the end of each element, with its path from the root and its direct text.
///
/// Attributes and namespace prefixes are ignored. Declarations, and therefore custom entities, are refused.
///
/// # Errors
///
/// A description of what is wrong with the text, or the error of `each`.
pub(super) fn read<'a>(
    text: &'a str,
    mut each: impl FnMut(&[&'a str], &str) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let mut path: Vec<&str> = Vec::new();
    let mut inside = String::new();
    let mut rest = text;
    let mut roots = 0;
    while let Some((before, after)) = rest.split_once('<') {
        if path.is_empty() && !before.trim_start_matches('\u{feff}').trim().is_empty() {
            return Err("text outside of the XML");
        }
        decode(before, &mut inside)?;
        if let Some(instruction) = after.strip_prefix('?') {
            let (_, behind) = instruction.split_once("?>").ok_or(CUT)?;
            rest = behind;
            continue;
        }
        if after.starts_with('!') {
            return Err("a declaration in the XML");
        }
        let (tag, behind) = split_tag(after)?;
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            if path.last() != Some(&local(name)) {
                return Err("the XML ends an element that it did not begin");
            }
            each(&path, &inside)?;
            path.pop();
        } else {
            let is_empty = tag.ends_with('/');
            let tag = tag.trim_end_matches('/');
            if path.is_empty() {
                roots += 1;
            }
            path.push(local(tag));
            if path.len() > DEPTH || roots > 1 {
                return Err("the XML has too many levels or roots");
            }
            if is_empty {
                each(&path, "")?;
                path.pop();
            }
        }
        inside.clear();
    }
    if !path.is_empty() || roots == 0 || !rest.trim().is_empty() {
        return Err(CUT);
    }
    Ok(())
}

const CUT: &str = "the XML is cut off";

/// Splits at the `>` that ends a tag.
fn split_tag(text: &str) -> Result<(&str, &str), &'static str> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '>') => {
                let tag = text.get(..at).unwrap_or_default();
                return Ok((tag, text.get(at + 1..).unwrap_or_default()));
            }
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    Err(CUT)
}

/// Returns the name of a tag without its namespace prefix.
fn local(tag: &str) -> &str {
    let name = tag.split_ascii_whitespace().next().unwrap_or_default();
    name.rsplit_once(':').map_or(name, |(_, name)| name)
}

fn decode(text: &str, into: &mut String) -> Result<(), &'static str> {
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        into.push_str(before);
        let (name, behind) = after.split_once(';').ok_or(ENTITY)?;
        into.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => number(name).ok_or(ENTITY)?,
        });
        rest = behind;
    }
    into.push_str(rest);
    Ok(())
}

const ENTITY: &str = "an entity in the XML";

fn number(name: &str) -> Option<char> {
    let digits = name.strip_prefix('#')?;
    let code = match digits.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    char::from_u32(code.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<String>, &'static str> {
        let mut found = Vec::new();
        read(text, |path, inside| {
            found.push(format!("{}={inside}", path.join("/")));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn elements_and_their_texts() {
        let text = "\u{feff}<?xml version=\"1.0\"?>\n<s:A xmlns:s=\"http://x/?a>b\"><B>x &amp;&#65;&#x42;&lt;</B>\n<C a='>'/><D></D ></s:A>\n";
        assert_eq!(all(text).unwrap(), ["A/B=x &AB<", "A/C=", "A/D=", "A="]);
        assert_eq!(read("<A><B>x</B></A>", |_, _| Err("enough")), Err("enough"));
    }

    #[test]
    fn what_is_no_plain_xml_is_refused() {
        for (text, what) in [
            ("", CUT),
            ("plain", CUT),
            ("plain<A/>", "text outside of the XML"),
            ("<A/>plain", CUT),
            ("<A>", CUT),
            ("<A", CUT),
            ("<A b='>'", CUT),
            ("<?xml", CUT),
            ("<A/><B/>", "the XML has too many levels or roots"),
            ("</A>", "the XML ends an element that it did not begin"),
            ("<A></B>", "the XML ends an element that it did not begin"),
            (
                "<!DOCTYPE a [<!ENTITY b \"c\">]><A>&b;</A>",
                "a declaration in the XML",
            ),
            ("<A><![CDATA[x]]></A>", "a declaration in the XML"),
            ("<A>&b;</A>", ENTITY),
            ("<A>a & b</A>", ENTITY),
            ("<A>&#xd800;</A>", ENTITY),
            ("<A>&#99999999999;</A>", ENTITY),
        ] {
            assert_eq!(all(text).unwrap_err(), what, "{text}");
        }
        let deep = "<A>".repeat(1_000_000);
        assert_eq!(
            all(&deep).unwrap_err(),
            "the XML has too many levels or roots"
        );
    }
}
