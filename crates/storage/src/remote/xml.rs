//! Reads the XML answers of stores.

use quick_xml::Reader;
use quick_xml::events::Event;

/// The maximum nesting depth. Answers have four levels.
const DEPTH: usize = 16;

const CUT: &str = "the XML is cut off";
const BROKEN: &str = "the XML is malformed";
const ENTITY: &str = "an entity in the XML";

/// Calls `each` at the end of each element, with the names from the root to the element, joined by `/`, and with its
/// direct text.
///
/// Attributes and namespace prefixes are ignored. Declarations, and therefore custom entities, are refused. The text is
/// not trimmed, because keys can begin or end with a space. (The serde support of `quick_xml` trims it.)
///
/// # Errors
///
/// A description of what is wrong with the text, or the error of `each`.
pub(super) fn read(
    text: &str,
    mut each: impl FnMut(&str, &str) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let (mut path, mut inside) = (String::new(), String::new());
    let (mut depth, mut roots) = (0_usize, 0_usize);
    loop {
        match reader.read_event().map_err(|_| BROKEN)? {
            Event::Start(tag) => {
                roots += usize::from(depth == 0);
                depth += 1;
                if depth > DEPTH || roots > 1 {
                    return Err("the XML has too many levels or roots");
                }
                if depth > 1 {
                    path.push('/');
                }
                path.push_str(std::str::from_utf8(tag.local_name().as_ref()).map_err(|_| BROKEN)?);
                inside.clear();
            }
            Event::End(_) => {
                each(&path, &inside)?;
                depth -= 1;
                path.truncate(path.rfind('/').unwrap_or_default());
                inside.clear();
            }
            Event::Text(text) => {
                let text = text.decode().map_err(|_| BROKEN)?;
                if depth == 0 && !text.trim().is_empty() {
                    return Err("text outside of the XML");
                }
                inside.push_str(&text);
            }
            Event::GeneralRef(entity) => match entity.resolve_char_ref().map_err(|_| ENTITY)? {
                Some(letter) => inside.push(letter),
                None => inside.push(match entity.as_ref() {
                    b"amp" => '&',
                    b"lt" => '<',
                    b"gt" => '>',
                    b"quot" => '"',
                    b"apos" => '\'',
                    _ => return Err(ENTITY),
                }),
            },
            Event::DocType(_) | Event::CData(_) | Event::Comment(_) => {
                return Err("a declaration in the XML");
            }
            Event::Decl(_) | Event::PI(_) | Event::Empty(_) => {}
            Event::Eof if depth > 0 || roots == 0 => return Err(CUT),
            Event::Eof => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<String>, &'static str> {
        let mut found = Vec::new();
        read(text, |path, inside| {
            found.push(format!("{path}={inside}"));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn elements_and_texts_are_parsed() {
        let text = "\u{feff}<?xml version=\"1.0\"?>\n<s:A xmlns:s=\"http://x/?a>b\"><B> x &amp;&#65;&#x42;&lt; </B>\n<C a='>'/><D></D ></s:A>\n";
        let expected = ["A/B= x &AB< ", "A/C=", "A/D=", "A="];
        assert_eq!(all(text).unwrap(), expected);
        assert_eq!(read("<A><B>x</B></A>", |_, _| Err("enough")), Err("enough"));
    }

    #[test]
    fn malformed_or_complex_xml_is_rejected() {
        for (text, what) in [
            ("", CUT),
            ("plain", "text outside of the XML"),
            ("plain<A/>", "text outside of the XML"),
            ("<A/>plain", "text outside of the XML"),
            ("<A>", CUT),
            ("<A", BROKEN),
            ("<A b='>'", BROKEN),
            ("<?xml", BROKEN),
            ("<A/><B/>", "the XML has too many levels or roots"),
            ("</A>", BROKEN),
            ("<A></B>", BROKEN),
            (
                "<!DOCTYPE a [<!ENTITY b \"c\">]><A>&b;</A>",
                "a declaration in the XML",
            ),
            ("<A><![CDATA[x]]></A>", "a declaration in the XML"),
            ("<A>&b;</A>", ENTITY),
            ("<A>a & b</A>", BROKEN),
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
