//! Parses and prints timestamps.

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::temporal_conversions::timestamp_ms_to_datetime;

/// Parses a timestamp into milliseconds since 1970. Accepts RFC 3339, or a date with or without a time, which is
/// interpreted as UTC.
///
/// # Errors
///
/// A sentence with an example, if the text is no time.
pub fn parse_time(text: &str) -> Result<i64, String> {
    let utc: Tz = "+00:00".parse().map_err(|_| "there is no UTC".to_owned())?;
    string_to_datetime(&utc, text.trim())
        .map(|at| at.timestamp_millis())
        .map_err(|_| {
            format!(
                "`{}` is not a time such as 2026-01-31T12:00:00Z or 2026-01-31",
                shardmill_core::escape(text)
            )
        })
}

/// Formats milliseconds since 1970 as RFC 3339.
pub(crate) fn shown_time(milliseconds: i64) -> String {
    timestamp_ms_to_datetime(milliseconds).map_or_else(
        || format!("{milliseconds} ms since 1970"),
        |at| format!("{}Z", at.format("%Y-%m-%dT%H:%M:%S%.3f")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip_and_invalid_ones_are_errors() {
        for (text, milliseconds) in [
            ("2026-01-31T12:00:00Z", 1_769_860_800_000),
            ("2026-01-31T12:00:00.250+02:00", 1_769_853_600_250),
            ("2026-01-31 12:00:00", 1_769_860_800_000),
            ("2026-01-31", 1_769_817_600_000),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(parse_time(text), Ok(milliseconds), "{text}");
            assert_eq!(parse_time(&shown_time(milliseconds)), Ok(milliseconds));
        }
        assert_eq!(shown_time(-1), "1969-12-31T23:59:59.999Z");
        for text in ["", "yesterday", "2026-13-01", "12:00"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
