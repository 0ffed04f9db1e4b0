//! Writes JSON strings as Python does.

/// Appends a quoted JSON string in ASCII, as Python's `json.dumps` formats it.
///
/// `"` and `\` are escaped with a backslash, and `\n \r \t \b \f` have short escapes. Any other character outside
/// U+0020 to U+007E becomes `\uXXXX` with lower-case digits; above U+FFFF, a surrogate pair.
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    loop {
        let (plain, tail) = rest.split_at(plain_run(rest.as_bytes(), true));
        out.extend_from_slice(plain.as_bytes());
        let mut chars = tail.chars();
        let Some(first) = chars.next() else {
            break;
        };
        write_escape(first, out);
        // Non-ASCII characters usually come in runs.
        while let Some(character) = chars
            .clone()
            .next()
            .filter(|character| !character.is_ascii())
        {
            write_escape(character, out);
            chars.next();
        }
        rest = chars.as_str();
    }
    out.push(b'"');
}

fn write_escape(character: char, out: &mut Vec<u8>) {
    const HEX: [u8; 16] = *b"0123456789abcdef";
    let short = match character {
        '"' => b'"',
        '\\' => b'\\',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let digit = |shift: u16| HEX[usize::from((*unit >> shift) & 0xf)];
                out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
            }
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Sets the high bit of each byte that is below `least`, which is at most 128. Exact up to the first such byte; a
/// borrow may also mark bytes above it.
fn below(word: u64, min: u8) -> u64 {
    word.wrapping_sub(LOW_BITS * u64::from(min)) & !word & HIGH_BITS
}

/// Sets the high bit of each byte that equals `byte`, with the same limitation as [`below`].
fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ (LOW_BITS * u64::from(byte)), 1)
}

/// Returns how many bytes at the start need no escape in a JSON string: no control character, quote or backslash, and
/// only U+0020 to U+007E if `ascii`.
#[must_use]
pub fn plain_run(text: &[u8], ascii: bool) -> usize {
    // PERF: eight bytes at a time; most strings have nothing to escape.
    let (words, rest) = text.as_chunks::<8>();
    for (index, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        let mut special = below(word, b' ') | equal(word, b'"') | equal(word, b'\\');
        if ascii {
            special |= (word & HIGH_BITS) | equal(word, 0x7f);
        }
        if special != 0 {
            return index * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let plain = |byte: &&u8| match **byte {
        b'"' | b'\\' | 0..b' ' => false,
        0x7f.. => !ascii,
        _ => true,
    };
    words.len() * 8 + rest.iter().take_while(plain).count()
}
