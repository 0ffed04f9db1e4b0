//! Escaped surrogate pairs of JSON.

use std::borrow::Cow;

use memchr::{memchr, memmem};

/// Replaces the escaped surrogate pairs of characters beyond U+1FFFF with the characters themselves.
///
/// COMPAT: the decoder of arrow-json 59 adds the halves of such a pair in the wrong way: it reads `\ud840\udc00` as
/// U+10000 and not as U+20000, a Chinese character.
pub(crate) fn with_plain_pairs(text: &[u8]) -> Cow<'_, [u8]> {
    // Most texts escape no character beyond U+FFFF.
    if [b"\\ud", b"\\uD"]
        .iter()
        .all(|half| memmem::find(text, *half).is_none())
    {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = text.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        at += found;
        match pair_at(&text[at..]) {
            Some(character) => {
                plain.extend_from_slice(&text[copied..at]);
                plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                at += PAIR_BYTES;
                copied = at;
            }
            // The byte after a backslash may be another backslash, which begins no escape.
            None => at += 2,
        }
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => {
            plain.extend_from_slice(&text[copied..]);
            Cow::Owned(plain)
        }
    }
}

/// The length of two escapes, such as `\ud840\udc00`.
const PAIR_BYTES: usize = 12;

/// Returns the character beyond U+1FFFF that a text begins with, as a pair of escapes.
fn pair_at(text: &[u8]) -> Option<char> {
    let half = |start: usize| {
        let digits = text.get(start..start + 6)?.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok()?;
        // `from_str_radix` accepts a sign.
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    let halves = [half(0)?, half(PAIR_BYTES / 2)?];
    let character = char::decode_utf16(halves).next()?.ok()?;
    (character > '\u{1ffff}').then_some(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        String::from_utf8(with_plain_pairs(text.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn only_surrogate_pairs_beyond_plane_one_are_replaced() {
        assert_eq!(plain(r"\ud840\udc00"), "\u{20000}");
        assert_eq!(
            plain(r"a\n\uDBFF\uDFFFb\uD869\uDED6"),
            "a\\n\u{10ffff}b\u{2a6d6}"
        );
        for same in [
            r"\ud83d\ude00",
            r"\\ud840\\udc00",
            r"\\\ud83d\ude00 \\ud840\udc00",
            r"\ud840",
            r"\ud840\u0041",
            r"\ud840\udc0",
            r"\udc00\ud840",
            r"\u+d84\udc00",
            "\\",
            "text",
        ] {
            assert_eq!(plain(same), same);
        }
    }
}
