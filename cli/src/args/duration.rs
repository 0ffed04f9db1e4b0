//! Parses durations: `30s`, `1.5h`, `1h 30min`. All options with a duration accept the same texts.

use std::time::Duration;

use shardmill_core::escape;

use shardmill_core::Error;

use super::values::{is_not, refused};

/// The maximum number of bytes in the text of a duration, and of digits in one of its numbers. Longer ones can make
/// `humantime` panic.
const MAX_BYTES: usize = 64;
const MAX_DIGITS: usize = 10;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A duration, and the text that the user typed.
#[derive(Clone, Debug)]
pub struct TypedDuration {
    pub text: String,
    pub duration: Duration,
}

/// Parses a duration of at most a day. A number without a unit means seconds.
pub fn up_to_a_day(text: &str) -> Result<Duration, Error> {
    at_most(text, DAY, "a day", seconds_or_unit(text)?)
}

/// Parses a duration of at most an hour. A number without a unit means seconds.
pub fn up_to_an_hour(text: &str) -> Result<Duration, Error> {
    at_most(text, HOUR, "an hour", seconds_or_unit(text)?)
}

fn seconds_or_unit(text: &str) -> Result<Duration, Error> {
    seconds(text).map_or_else(|| with_unit(text), Ok)
}

/// Parses a duration of at most an hour that has a unit.
pub fn step(text: &str) -> Result<Duration, Error> {
    at_most(text, HOUR, "an hour", with_unit(text)?)
}

/// Parses a duration of any length that has a unit.
pub fn age(text: &str) -> Result<TypedDuration, Error> {
    Ok(TypedDuration {
        text: text.to_owned(),
        duration: with_unit(text)?,
    })
}

fn at_most(text: &str, max: Duration, name: &str, duration: Duration) -> Result<Duration, Error> {
    match duration > max {
        true => Err(refused(
            format!("`{}` is more than {name}", escape(text)),
            "write 30ms, 1.5s, 2min or 24h",
        )),
        false => Ok(duration),
    }
}

/// Returns the duration of a number without a unit.
fn seconds(text: &str) -> Option<Duration> {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds: f64 = text.parse().ok().filter(|_| is_plain)?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Parses a duration whose numbers have units. Zero needs none.
fn with_unit(text: &str) -> Result<Duration, Error> {
    match seconds(text) {
        Some(Duration::ZERO) => return Ok(Duration::ZERO),
        Some(_) => {
            return Err(refused(
                format!("`{}` has no unit", escape(text)),
                format!("write `{text}s` for seconds; other units are ms, min, h and d"),
            ));
        }
        None => {}
    }
    let numbers = || text.split(|character: char| !character.is_ascii_digit());
    let is_short = text.len() <= MAX_BYTES && numbers().all(|digits| digits.len() <= MAX_DIGITS);
    let parsed = is_short.then(|| humantime::parse_duration(text).ok());
    parsed
        .flatten()
        .ok_or_else(|| is_not(text, "a duration", "write 30ms, 1.5s, 2min, 24h or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_accept_units_and_default_to_seconds() {
        for (text, seconds) in [
            ("0", 0.0),
            ("15", 15.0),
            ("0.5", 0.5),
            ("500us", 0.0005),
            ("30ms", 0.03),
            ("30 ms", 0.03),
            ("1.5s", 1.5),
            ("2min", 120.0),
            ("2m", 120.0),
            ("1m 30s", 90.0),
            ("0.5h", 1800.0),
        ] {
            assert_eq!(
                up_to_an_hour(text).unwrap().as_secs_f64(),
                seconds,
                "{text}"
            );
            assert_eq!(up_to_a_day(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
        assert_eq!(up_to_a_day("24h").unwrap(), DAY);
        for text in [
            "", " ", "-1", "-1s", "s", "1x", "1,5s", "1e3", "inf", "nan", "1..5", "61min",
        ] {
            assert!(up_to_an_hour(text).is_err(), "{text}");
        }
        assert!(up_to_a_day("25h").is_err());
        assert!(up_to_a_day("86401").is_err());
    }

    #[test]
    fn step_and_age_without_unit_are_errors() {
        assert_eq!(step("100ms").unwrap(), Duration::from_millis(100));
        assert_eq!(step("0").unwrap(), Duration::ZERO);
        for (text, days) in [("36h", 1.5), ("7d", 7.0), ("2w", 14.0), ("36500d", 36500.0)] {
            let found = age(text).unwrap();
            assert_eq!(found.duration.as_secs_f64(), days * 86_400.0, "{text}");
            assert_eq!(found.text, text);
        }
        for text in ["100", "1.5"] {
            let error = step(text).unwrap_err().to_string();
            assert_eq!(error, format!("`{text}` has no unit"));
            assert!(age(text).is_err());
        }
    }

    #[test]
    fn overflowing_durations_are_errors() {
        for text in [
            "18446744073709551615s 500ms 500ms",
            "18446744073709551615s 999ms1ms",
            "213503982334601d25215s999ms1ms",
            "99999999999y",
            &"9999999999y".repeat(20),
        ] {
            assert!(age(text).is_err(), "{text}");
        }
        assert!(age("9999999999y 9999999999y 9999999999y 9999999999y 999999y").is_ok());
    }
}
