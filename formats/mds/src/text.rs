//! Formats numbers and strings exactly as Python does.

use std::io::Write as _;

use shardmill_core::escape;

use crate::encoding::Encoding;
use crate::error::{MdsError, MdsProblem};
use crate::limits;

/// Appends a number as Python's `str(float)` formats it: the fewest digits that parse to the same `f64`, such as `0.1`,
/// `1e+16`, `1e-05`, `inf`, `-inf`, `nan`.
///
/// 0 and numbers with 1e-4 ≤ |value| < 1e16 are in fixed notation, always with a `.`. Others have an exponent with a
/// sign and at least two digits. Convert an `f32` to `f64` first, as Python does; the text shows its extra digits.
pub fn write_float(value: f64, out: &mut Vec<u8>) {
    write_number(value, [b"nan", b"inf", b"-inf"], out);
}

/// Appends a number as Python's `json.dumps` formats it: as [`write_float`], but `NaN`, `Infinity`, `-Infinity`.
pub fn write_json_float(value: f64, out: &mut Vec<u8>) {
    write_number(value, [b"NaN", b"Infinity", b"-Infinity"], out);
}

fn write_number(value: f64, [nan, infinity, minus_infinity]: [&[u8]; 3], out: &mut Vec<u8>) {
    if value.is_finite() {
        write_finite(value, out);
    } else if value.is_nan() {
        // Python does not print the sign of a NaN.
        out.extend_from_slice(nan);
    } else if value > 0.0 {
        out.extend_from_slice(infinity);
    } else {
        out.extend_from_slice(minus_infinity);
    }
}

// Writing to a Vec cannot fail, so results of such writes are ignored below.

fn write_finite(value: f64, out: &mut Vec<u8>) {
    let start = out.len();
    let magnitude = value.abs();
    let fixed = magnitude == 0.0 || (1e-4..1e16).contains(&magnitude);
    // PERF: serde_json prints a float five times faster than core. If two shortest texts are equally close, it picks
    // the even one, as Python does and core does not. But its exponents begin elsewhere and look different.
    let _ = serde_json::to_writer(&mut *out, &value);
    match (fixed, after_e(start, out)) {
        (true, None) => {}
        (false, Some(at)) => finish_exponent(at, out),
        _ => change_notation(start, fixed, out),
    }
}

/// Converts the number from `start` to the end from fixed to exponent notation, or back.
fn change_notation(start: usize, fixed: bool, out: &mut Vec<u8>) {
    let text = out.split_off(start);
    let Some(parts) = std::str::from_utf8(&text)
        .ok()
        .and_then(|text| split_number(text.trim_start_matches('-')))
    else {
        return;
    };
    if text.starts_with(b"-") {
        out.push(b'-');
    }
    let exponent = parts
        .exponent
        .and_then(|exponent| exponent.parse::<i64>().ok())
        .unwrap_or(0);
    let digits = [parts.whole, parts.fraction].concat();
    let significant = digits.trim_start_matches('0');
    // The value is 0.digits × 10^point.
    let point = parts.whole.len() as i64 - (digits.len() - significant.len()) as i64 + exponent;
    let digits = significant.trim_end_matches('0').as_bytes();
    if fixed {
        let zeros = |count: i64| (0..count).map(|_| b'0');
        let (whole, fraction) =
            digits.split_at(usize::try_from(point).unwrap_or(0).min(digits.len()));
        out.extend_from_slice(whole);
        out.extend(zeros(point - whole.len() as i64));
        if point <= 0 {
            out.push(b'0');
        }
        out.push(b'.');
        out.extend(zeros(-point));
        out.extend_from_slice(if fraction.is_empty() { b"0" } else { fraction });
    } else {
        let (first, rest) = digits.split_at(digits.len().min(1));
        out.extend_from_slice(first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
        let _ = write!(out, "e{:+03}", point - 1);
    }
}

/// Returns the position after the `e` of the number from `start` to the end, if it has an exponent.
fn after_e(start: usize, out: &[u8]) -> Option<usize> {
    // At most a sign and three digits follow it.
    let tail = out.len().saturating_sub(5).max(start);
    let at = out.get(tail..)?.iter().position(|byte| *byte == b'e')?;
    Some(tail + at + 1)
}

/// Pads an exponent to a sign and two digits. `at` is the position of its sign or first digit.
fn finish_exponent(at: usize, out: &mut Vec<u8>) {
    if !matches!(out.get(at), Some(b'-' | b'+')) {
        out.insert(at, b'+');
    }
    if out.len() < at + 3 {
        out.insert(at + 1, b'0');
    }
}

/// Appends the decimal number ±`digits` × 10^−`scale` as Python's `str(Decimal)` formats it: `1.50`, `1E+5`, `0E-9`.
///
/// `digits` is at least one ASCII digit; leading zeros do not count. An exponent is used if `scale` is negative or the
/// number is below 1e-6.
pub fn write_decimal(negative: bool, digits: &str, scale: i32, out: &mut Vec<u8>) {
    let digits = digits.trim_start_matches('0').as_bytes();
    let digits = if digits.is_empty() { b"0" } else { digits };
    if negative {
        out.push(b'-');
    }
    let exponent = -i64::from(scale);
    // The number of digits before the point if no exponent is used.
    let point = exponent + digits.len() as i64;
    if exponent > 0 || point <= -6 {
        let (first, rest) = digits.split_at(1);
        out.extend_from_slice(first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
        let _ = write!(out, "E{:+}", point - 1);
        return;
    }
    // Within the digits, because the exponent is not positive here.
    let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
    out.extend_from_slice(if whole.is_empty() { b"0" } else { whole });
    if exponent < 0 {
        out.push(b'.');
        out.extend((point..0).map(|_| b'0'));
        out.extend_from_slice(fraction);
    }
}

/// Returns the number of decimal digits of an integer text; `None` if it is not one.
pub(crate) fn integer_digits(text: &str) -> Option<u64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sound = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    sound.then_some(digits.len() as u64)
}

/// Returns whether a text is an integer: an optional sign and decimal digits. Python's `int` also accepts surrounding
/// whitespace, `_` and digits of other scripts, none of which `str` writes.
pub(crate) fn is_integer_text(text: &str) -> bool {
    integer_digits(text).is_some()
}

/// The parts of an unsigned decimal number.
struct Parts<'a> {
    whole: &'a str,
    fraction: &'a str,
    exponent: Option<&'a str>,
}

/// Splits `12`, `12.`, `.5`, `12.5e-7`.
fn split_number(text: &str) -> Option<Parts<'_>> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let sound = !(whole.is_empty() && fraction.is_empty())
        && digits(whole)
        && digits(fraction)
        && exponent.is_none_or(is_integer_text);
    sound.then_some(Parts {
        whole,
        fraction,
        exponent,
    })
}

/// Parses a float: what `str(float)` writes, and other decimal forms without whitespace or `_`.
pub(crate) fn parse_float_text(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let word = ["inf", "infinity", "nan"]
        .iter()
        .any(|word| unsigned.eq_ignore_ascii_case(word));
    if !word {
        split_number(unsigned)?;
    }
    text.parse().ok()
}

/// Returns whether a text is a decimal number: what `str(Decimal)` writes, and other decimal forms without whitespace
/// or `_`.
pub(crate) fn is_decimal_text(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match split_number(unsigned) {
        Some(parts) => is_decimal_range(&parts),
        None => is_decimal_word(unsigned),
    }
}

/// Returns whether a text is `Infinity`, or `NaN` or `sNaN` with optional digits, in any case.
fn is_decimal_word(unsigned: &str) -> bool {
    if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        return true;
    }
    let word = unsigned.trim_end_matches(|c: char| c.is_ascii_digit());
    word.eq_ignore_ascii_case("nan") || word.eq_ignore_ascii_case("snan")
}

/// Returns whether CPython's `decimal` converts the exponent without a context.
fn is_decimal_range(parts: &Parts<'_>) -> bool {
    const MAX: i128 = 999_999_999_999_999_999;
    const MIN: i128 = -1_999_999_999_999_999_997;
    let exponent = match parts.exponent.map(str::parse::<i128>) {
        None => 0,
        Some(Ok(exponent)) => exponent,
        // The exponent has more digits than i128; leading zeros are not handled separately.
        Some(Err(_)) => return false,
    };
    let whole = parts.whole.trim_start_matches('0');
    let digits = match whole {
        "" => parts.fraction.trim_start_matches('0').len().max(1),
        whole => whole.len() + parts.fraction.len(),
    };
    let Some(last) = exponent.checked_sub(parts.fraction.len() as i128) else {
        return false;
    };
    let first = last.saturating_add(digits as i128 - 1);
    last >= MIN && first <= MAX
}

/// Returns the datum as text.
pub(crate) fn text<'a>(encoding: &Encoding, datum: &'a [u8]) -> Result<&'a str, MdsError> {
    // The fast check does not report the position of the error; the slow one does.
    simdutf8::basic::from_utf8(datum).map_err(|_| {
        let offset = std::str::from_utf8(datum).map_or_else(|error| error.valid_up_to(), |_| 0);
        MdsProblem::Utf8.because(format!(
            "a datum of encoding `{encoding}` is not UTF-8 from byte {offset} of {}",
            datum.len()
        ))
    })
}

pub(crate) fn not_a_number(encoding: &Encoding, datum: &[u8]) -> MdsError {
    MdsProblem::NumberText.because(format!(
        "a datum of encoding `{encoding}` is not the text of a number: `{}`",
        escape(&excerpt(datum))
    ))
}

/// Returns the first 40 characters of a text, for an error.
pub(crate) fn excerpt(text: &[u8]) -> String {
    const CHARACTERS: usize = 40;
    let head = text.get(..4 * CHARACTERS).unwrap_or(text);
    String::from_utf8_lossy(head)
        .chars()
        .take(CHARACTERS)
        .collect()
}

/// Checks that CPython converts an integer of that many digits.
pub(crate) fn check_digits(encoding: &Encoding, digits: u64) -> Result<(), MdsError> {
    if digits > limits::INTEGER_TEXT_DIGITS {
        return Err(MdsProblem::NumberDigits.because(format!(
            "an integer in a datum of encoding `{encoding}` has {digits} digits, of which CPython reads at most {}",
            limits::INTEGER_TEXT_DIGITS
        )));
    }
    Ok(())
}

/// Returns whether a value makes a separator or newline after it match too early. For example, `x|` before `||` gives
/// the line `x|||y`, which is read as `x` and `|y`. Such a value cannot be written, nor can one that contains the text.
#[must_use]
pub fn reaches_over(value: &[u8], text: &[u8]) -> bool {
    (1..text.len()).any(|over| {
        let (begin, end) = text.split_at(text.len() - over);
        // An early match that begins in the value ends with the first `over` bytes of the text after it.
        value.ends_with(begin) && text.starts_with(end)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::{plain_run, write_json_string};

    use super::*;
    use crate::testdata::{lines, unhex};

    fn spelled(write: impl FnOnce(&mut Vec<u8>)) -> String {
        // Callers append to a buffer, so do not start at its beginning.
        let mut out = b"e".to_vec();
        write(&mut out);
        assert_eq!(out.remove(0), b'e');
        String::from_utf8(out).unwrap()
    }

    fn float(value: f64) -> String {
        spelled(|out| write_float(value, out))
    }

    #[test]
    fn floats_are_formatted_like_python() {
        let mut count = 0;
        for line in lines(include_str!("testdata/floats.txt")) {
            let value = f64::from_bits(u64::from_str_radix(line[0], 16).unwrap());
            assert_eq!(float(value), line[1], "{}", line[0]);
            count += 1;
        }
        assert_eq!(count, 2000);
        assert_eq!(float(-f64::NAN), "nan");
        assert_eq!(float(f64::from(0.1_f32)), "0.10000000149011612");
    }

    #[test]
    fn change_notation_converts_fixed_and_exponent_floats() {
        for (from, fixed, to) in [
            ("0.000012", false, "1.2e-05"),
            ("-0.00001", false, "-1e-05"),
            ("123450.0", false, "1.2345e+05"),
            ("1e15", true, "1000000000000000.0"),
            ("-1.25e3", true, "-1250.0"),
            ("1.25e1", true, "12.5"),
            ("1.25e0", true, "1.25"),
            ("2.5e-1", true, "0.25"),
            ("2.5e-4", true, "0.00025"),
        ] {
            assert_eq!(
                spelled(|out| {
                    out.extend_from_slice(from.as_bytes());
                    change_notation(1, fixed, out);
                }),
                to
            );
        }
    }

    #[test]
    fn json_floats_use_nan_and_infinity_literals() {
        for (value, text) in [
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (1e16, "1e+16"),
            (-0.0, "-0.0"),
            (2.0, "2.0"),
        ] {
            assert_eq!(spelled(|out| write_json_float(value, out)), text);
        }
    }

    #[test]
    fn decimals_are_formatted_like_python() {
        let mut count = 0;
        for line in lines(include_str!("testdata/decimals.txt")) {
            let scale = line[2].parse().unwrap();
            let text = spelled(|out| write_decimal(line[0] == "1", line[1], scale, out));
            assert_eq!(text, line[3], "{line:?}");
            assert!(is_decimal_text(&text), "{text}");
            count += 1;
        }
        assert_eq!(count, 500);
        assert_eq!(spelled(|out| write_decimal(false, "00150", 2, out)), "1.50");
        assert_eq!(
            spelled(|out| write_decimal(true, "", i32::MIN, out)),
            "-0E+2147483648"
        );
    }

    #[test]
    fn json_strings_are_escaped_like_python() {
        let mut count = 0;
        for line in include_str!("testdata/strings.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
        {
            let (hex, expected) = line.split_once(' ').unwrap();
            let text = String::from_utf8(unhex(hex)).unwrap();
            assert_eq!(spelled(|out| write_json_string(&text, out)), expected);
            count += 1;
        }
        assert_eq!(count, 400);
    }

    #[test]
    fn number_texts_are_parsed_like_python() {
        let mut count = 0;
        for line in lines(include_str!("testdata/numbers.txt")) {
            let text = if line[0] == "-empty-" { "" } else { line[0] };
            assert_eq!(is_integer_text(text), line[1] == "1", "{text}");
            assert_eq!(is_decimal_text(text), line[3] == "1", "{text}");
            let value = parse_float_text(text).map(|value| {
                if value.is_nan() {
                    "nan".to_owned()
                } else {
                    format!("{:016x}", value.to_bits())
                }
            });
            assert_eq!(value.as_deref().unwrap_or("-"), line[2], "{text}");
            count += 1;
        }
        assert_eq!(count, 500);
    }

    #[test]
    fn number_spellings_python_never_writes_are_rejected() {
        for text in [
            " 1", "1 ", "1\n", "1_0", "\u{663}", "1\0", "\u{ff11}", "+-1",
        ] {
            assert!(!is_integer_text(text), "{text:?}");
            assert!(parse_float_text(text).is_none(), "{text:?}");
            assert!(!is_decimal_text(text), "{text:?}");
        }
        assert!(!is_decimal_text("NaN\u{663}"));
    }

    #[test]
    fn plain_run_ends_at_the_first_byte_to_escape() {
        for special in 0..=255_u8 {
            for before in 0..20 {
                let mut text = vec![b'a'; before];
                // Append bytes whose detection a borrow could disturb.
                text.extend([
                    special, b'!', b'#', b']', 0x1f, 0x21, 0x7e, b'a', b'a', b'a',
                ]);
                let expect = |plain: bool| if plain { before + 4 } else { before };
                let loud = special < b' ' || special == b'"' || special == b'\\';
                assert_eq!(plain_run(&text, false), expect(!loud), "{special} {before}");
                assert_eq!(
                    plain_run(&text, true),
                    expect(!loud && special < 0x7f),
                    "{special} {before}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn floats_round_trip(bits: u64) {
            let value = f64::from_bits(bits);
            let text = float(value);
            let back = parse_float_text(&text).unwrap();
            prop_assert!(back.to_bits() == bits || (back.is_nan() && value.is_nan()), "{}", text);
            // Another printer needs as many digits. (It may choose differently between two equally close texts.)
            if value.is_finite() {
                let digits = |text: &str| {
                    let mantissa = text.split('e').next().unwrap().replace(['.', '-'], "");
                    mantissa.trim_matches('0').len()
                };
                prop_assert_eq!(digits(&text), digits(&format!("{value:e}")));
            }
        }

        #[test]
        fn json_strings_round_trip(text: String) {
            let json = spelled(|out| write_json_string(&text, out));
            prop_assert!(json.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }

        #[test]
        fn formatted_decimals_keep_their_value(negative: bool, digits in "[0-9]{1,40}", scale in -400_i32..400) {
            let text = spelled(|out| write_decimal(negative, &digits, scale, out));
            prop_assert!(is_decimal_text(&text), "{}", text);
            let parts = split_number(text.trim_start_matches('-')).unwrap();
            let exponent: i64 = parts.exponent.map_or(0, |exponent| exponent.parse().unwrap());
            prop_assert_eq!(exponent - parts.fraction.len() as i64, -i64::from(scale));
            let joined = format!("{}{}", parts.whole, parts.fraction);
            prop_assert_eq!(joined.trim_start_matches('0'), digits.trim_start_matches('0'));
        }
    }

    proptest! {
        /// A value is refused exactly if the first separator of the line is not the one after it. Other values
        /// round-trip.
        #[test]
        fn values_before_a_separator_round_trip_or_are_rejected(
            values in proptest::collection::vec("[ab|]{0,5}", 1..4),
            separator in "[ab|]{1,4}",
        ) {
            let is_refused = |value: &String| {
                value.contains(&separator) || reaches_over(value.as_bytes(), separator.as_bytes())
            };
            for value in &values {
                let line = format!("{value}{separator}");
                prop_assert_eq!(line.find(&separator) != Some(value.len()), is_refused(value));
            }
            if !values.iter().any(is_refused) {
                let line = values.join(&separator);
                prop_assert_eq!(line.split(separator.as_str()).collect::<Vec<_>>(), values);
            }
        }
    }
}
