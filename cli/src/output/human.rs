//! Formats numbers for users.

use shardmill_core::ByteSize;
use shardmill_core::number::{float, whole};

/// Formats a count with commas between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 shard`, `1,000 hashes`.
pub fn many(number: u64, what: &str) -> String {
    let plural = match (number, what.ends_with('h')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {what}{plural}", count(number))
}

/// Formats the size of a dataset: `1,000 samples in 1 shard`.
pub fn amount(samples: u64, shards: u64) -> String {
    format!("{} in {}", many(samples, "sample"), many(shards, "shard"))
}

/// Formats a size with one decimal.
pub fn bytes(number: u64) -> String {
    ByteSize::new(number).to_string()
}

/// Formats `whole / part` as `3.14`, or as `-` if `part` is 0.
pub fn ratio(whole: u64, part: u64) -> String {
    if part == 0 {
        return "-".to_owned();
    }
    format!("{:.2}", float(whole) / float(part))
}

/// Formats `part` of `whole` as a percentage.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}%", 100.0 * float(part) / float(whole))
}

/// Formats a duration with a suitable precision.
pub fn seconds(seconds: f64) -> String {
    if seconds < 1.0 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let seconds = whole(seconds.round());
    if seconds < 3600 {
        return format!("{} min {:02} s", seconds / 60, seconds % 60);
    }
    format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60)
}

/// Formats bytes over seconds in MB/s of 10^6 bytes.
pub fn rate(bytes: u64, seconds: f64) -> String {
    if seconds <= 0.0 {
        return "-".to_owned();
    }
    format!("{:.1} MB/s", float(bytes) / 1e6 / seconds)
}

/// Formats a size as an option value, rounded up.
pub fn needed(size: u64) -> String {
    let (unit, name) = match size {
        0..0x10_0000 => (1 << 10, "KiB"),
        0x10_0000..0x2_8000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    format!("{}{name}", size.div_ceil(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn count_of_one_is_singular() {
        assert_eq!(many(1, "shard"), "1 shard");
        assert_eq!(many(0, "sample"), "0 samples");
        assert_eq!(many(2000, "hash"), "2,000 hashes");
    }

    #[test]
    fn zero_denominator_is_formatted_as_dash() {
        assert_eq!(ratio(100, 40), "2.50");
        assert_eq!(ratio(100, 0), "-");
        assert_eq!(percent(1, 0), "-");
        assert_eq!(percent(1, 8), "12.5%");
        assert_eq!(rate(5, 0.0), "-");
        assert_eq!(rate(5_000_000, 2.0), "2.5 MB/s");
    }

    #[test]
    fn longer_durations_have_less_precision() {
        for (time, text) in [
            (0.0, "0 ms"),
            (0.041, "41 ms"),
            (1.04, "1.0 s"),
            (59.9, "59.9 s"),
            (61.2, "1 min 01 s"),
            (7384.0, "2 h 03 min"),
        ] {
            assert_eq!(seconds(time), text);
        }
    }

    #[test]
    fn needed_size_is_rounded_up() {
        for size in [0, 1, 1023, 1 << 20, (1 << 20) + 1, 20 << 30, u64::MAX] {
            let text = needed(size);
            let parsed = text.parse::<shardmill_core::ByteSize>();
            // 2^64 - 1 rounded up does not fit into 64 bits.
            assert!(
                parsed.map_or(size == u64::MAX, |parsed| parsed.bytes() >= size),
                "{text}"
            );
        }
        assert_eq!(needed(300 << 20), "300MiB");
        assert_eq!(needed((300 << 30) + 1), "301GiB");
    }
}
