//! Parses and formats sizes in bytes.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, parsed from texts such as `67108864`, `64mb`, `64MiB` and `1.5 GB`.
///
/// All units are powers of 1,024, `mb` and `MiB` alike. MosaicML Streaming parses them in the same way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    /// Returns a size of this many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// A text that is not a size or a count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not {expected}", crate::escape(text))]
pub struct SizeError {
    /// The text as given.
    pub text: String,
    /// What is accepted.
    pub expected: &'static str,
}

const BYTE_UNITS: [(&str, i32); 17] = [
    ("kib", 1),
    ("mib", 2),
    ("gib", 3),
    ("tib", 4),
    ("pib", 5),
    ("eib", 6),
    ("zib", 7),
    ("yib", 8),
    ("kb", 1),
    ("mb", 2),
    ("gb", 3),
    ("tb", 4),
    ("pb", 5),
    ("eb", 6),
    ("zb", 7),
    ("yb", 8),
    ("b", 0),
];

/// The largest `f64` below 2^64.
const MAX_EXACT: f64 = 18_446_744_073_709_549_568.0;

/// Parses a non-negative decimal with an optional fraction and exponent, multiplies it by `scale` and rounds down.
fn scaled(number: &str, scale: f64) -> Option<u64> {
    let plain = number
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !plain || !number.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let value = number.parse::<f64>().ok()? * scale;
    if !value.is_finite() || !(0.0..=MAX_EXACT).contains(&value) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be within u64 above"
    )]
    let whole = value.trunc() as u64;
    Some(whole)
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || SizeError {
            text: text.to_owned(),
            expected: "a size in bytes such as 1000, 64mb, 1.5GiB",
        };
        let lower = text.trim().to_ascii_lowercase();
        let (number, power) = BYTE_UNITS
            .iter()
            .find_map(|(unit, power)| {
                lower
                    .strip_suffix(unit)
                    .map(|number| (number.trim_end(), *power))
            })
            .unwrap_or((lower.as_str(), 0));
        let bytes = if power == 0 {
            number
                .bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| number.parse().ok())
                .flatten()
        } else {
            scaled(number, 1024_f64.powi(power))
        };
        bytes.map(Self).ok_or_else(error)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut unit = 0;
        let mut whole = self.0;
        while whole >= 1024 * 1024 && unit + 1 < UNITS.len() {
            whole /= 1024;
            unit += 1;
        }
        // The value is below 2^20 here, so the conversion is exact.
        #[expect(clippy::cast_precision_loss, reason = "below 2^20")]
        let value = whole as f64 / 1024.0;
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

/// Parses a number of samples: digits, optionally with `k`, `m`, `b` or `t` for powers of 1,000 (`1.5k` is 1,500).
///
/// # Errors
///
/// [`SizeError`] for any other text.
pub fn parse_sample_count(text: &str) -> Result<u64, SizeError> {
    let lower = text.trim().to_ascii_lowercase();
    let unit = [("k", 3), ("m", 6), ("b", 9), ("t", 12)]
        .into_iter()
        .find_map(|(unit, power)| {
            lower
                .strip_suffix(unit)
                .map(|number| (number.trim_end(), power))
        });
    match unit {
        Some((number, power)) => scaled(number, 10_f64.powi(power)),
        None => lower
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| lower.parse().ok())
            .flatten(),
    }
    .ok_or_else(|| SizeError {
        text: text.to_owned(),
        expected: "a number of samples such as 1000, 10k, 1.5m",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_like_mosaicml() {
        for (text, bytes) in [
            ("0", 0),
            ("10b", 10),
            ("1kb", 1024),
            (" 1 KB ", 1024),
            ("1.5MB", 1_572_864),
            ("1e3kb", 1_024_000),
            ("64mb", 1 << 26),
            ("64MiB", 1 << 26),
            ("2GiB", 1 << 31),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(
                text.parse::<ByteSize>().map(ByteSize::bytes),
                Ok(bytes),
                "{text}"
            );
        }
        for text in [
            "", "1k", "-1", "1.5", "kb", "1.5b", "1e3", "nankb", "infkb", "-1kb", "1_000", "99zb",
            "0x10kb",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sample_count_suffixes_are_powers_of_a_thousand() {
        assert_eq!(parse_sample_count("1.5k"), Ok(1500));
        assert_eq!(parse_sample_count("10"), Ok(10));
        assert_eq!(parse_sample_count("2B"), Ok(2_000_000_000));
        assert!(parse_sample_count("1.5").is_err());
        assert!(parse_sample_count("-1k").is_err());
    }

    #[test]
    fn sizes_are_shown_with_one_decimal() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 26, "64.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            let shown = ByteSize::new(bytes).to_string();
            assert!(
                shown == text || (bytes == u64::MAX && shown.ends_with("EiB")),
                "{shown}"
            );
        }
    }
}
