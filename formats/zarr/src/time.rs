//! Times and durations: the units of the CF conventions, and those of NumPy.
//!
//! Source: xarray 2026.9.0, `coding/times.py`. Nanoseconds are its own, which depend on the order of its operations.
//! Times that it leaves to `cftime` have microseconds, as there.

use serde_json::{Map, Value};
use shardmill_core::DType;

use crate::dtype::text_of;
use crate::error::ZarrError;
use crate::number::{Number, rounded};

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The units of durations, and their nanoseconds.
const UNITS: [(&str, i64); 7] = [
    ("nanoseconds", 1),
    ("microseconds", 1_000),
    ("milliseconds", 1_000_000),
    ("seconds", SECOND),
    ("minutes", MINUTE),
    ("hours", HOUR),
    ("days", DAY),
];

/// 1582-10-15, the first day of the Gregorian calendar, in days since 1970.
const REFORM: i128 = -141_427;

/// A time or duration that is missing, in Arrow's and NumPy's bytes.
pub const NOT_A_TIME: i64 = i64::MIN;

/// The unit of times and durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Second,
    /// Microseconds.
    Microsecond,
    /// Nanoseconds.
    Nanosecond,
}

impl TimeUnit {
    const fn nanoseconds(self) -> i64 {
        match self {
            Self::Second => SECOND,
            Self::Microsecond => 1_000,
            Self::Nanosecond => 1,
        }
    }
}

/// What the numbers of an array mean as times or durations.
#[derive(Clone, Debug)]
pub(crate) struct TimeDecoder {
    pub is_duration: bool,
    pub target: TimeUnit,
    /// The nanoseconds of a number of 1.
    unit: i64,
    /// The time of 0, in nanoseconds since 1970.
    origin: i128,
    /// The first time, in nanoseconds since 1970. Earlier days are those of another calendar.
    first: Option<i128>,
    /// The units, for messages.
    units: String,
}

impl TimeDecoder {
    /// Returns the meaning of numbers with these attributes; `None` if they are no times.
    pub(crate) fn of(attributes: &Map<String, Value>) -> Result<Option<Self>, ZarrError> {
        let text = |name| attributes.get(name).and_then(Value::as_str);
        let Some(units) = text("units") else {
            return Ok(None);
        };
        if units.contains("since") {
            let calendar = attributes.get("calendar");
            let calendar = calendar.map_or_else(|| "standard".to_owned(), text_of);
            return Self::since(units, &calendar).map(Some);
        }
        let is_duration = text("dtype").is_some_and(|dtype| dtype.starts_with("timedelta64"));
        let unit = UNITS.iter().find(|(name, _)| is_duration && *name == units);
        Ok(unit.map(|(_, unit)| Self::new(true, TimeUnit::Nanosecond, *unit, units)))
    }

    /// Returns the meaning of NumPy's times and durations with this unit, such as `D` or `25s`.
    pub(crate) fn of_numpy(is_duration: bool, units: &str) -> Option<Self> {
        let name = units.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let count = units.strip_suffix(name).filter(|count| !count.is_empty());
        let count: i64 = count.map_or(Ok(1), str::parse).ok()?;
        let (unit, target) = match name {
            "W" => (7 * DAY, TimeUnit::Second),
            "D" => (DAY, TimeUnit::Second),
            "h" => (HOUR, TimeUnit::Second),
            "m" => (MINUTE, TimeUnit::Second),
            "s" => (SECOND, TimeUnit::Second),
            "ms" => (1_000_000, TimeUnit::Microsecond),
            "us" => (1_000, TimeUnit::Microsecond),
            "ns" => (1, TimeUnit::Nanosecond),
            _ => return None,
        };
        Some(Self::new(
            is_duration,
            target,
            unit.checked_mul(count)?,
            units,
        ))
    }

    fn new(is_duration: bool, target: TimeUnit, unit: i64, units: &str) -> Self {
        Self {
            is_duration,
            target,
            unit,
            origin: 0,
            first: None,
            units: units.to_owned(),
        }
    }

    /// Returns the meaning of units such as `days since 1970-01-01`.
    fn since(units: &str, calendar: &str) -> Result<Self, ZarrError> {
        let is_proleptic = match calendar.to_lowercase().as_str() {
            "proleptic_gregorian" => true,
            "standard" | "gregorian" => false,
            _ => {
                return Err(ZarrError::Time(format!(
                    "its times have the calendar `{calendar}`, whose days are not those of timestamps"
                )));
            }
        };
        let parsed = units.rsplit_once(" since ").and_then(|(unit, origin)| {
            let (unit, is_usual) = unit_of(unit.trim())?;
            Some((unit, is_usual, reference(origin.trim(), is_proleptic)?))
        });
        let unknown = || {
            ZarrError::Time(format!(
                "its times have the units `{units}`, which are unknown"
            ))
        };
        let (unit, is_usual, origin) = parsed.ok_or_else(unknown)?;
        let mut found = Self::new(false, TimeUnit::Nanosecond, unit, units);
        found.origin = origin;
        found.first = (!is_proleptic).then_some(REFORM * i128::from(DAY));
        let is_early = found.first.is_some_and(|first| origin < first);
        if !is_usual || is_early || i64::try_from(origin).is_err() {
            found.widen();
        }
        Ok(found)
    }

    /// Decodes into microseconds, which reach further than nanoseconds.
    pub(crate) fn widen(&mut self) {
        if self.target == TimeUnit::Nanosecond {
            self.target = TimeUnit::Microsecond;
            self.origin -= self.origin.rem_euclid(1_000);
        }
    }

    /// Returns the time or duration of a number of this type, in the target unit.
    pub(crate) fn decode(&self, number: Number, dtype: DType) -> Result<i64, ZarrError> {
        let nanoseconds = match number {
            Number::Float(number) if number.is_nan() => return Ok(NOT_A_TIME),
            Number::Whole(number) if number == i128::from(NOT_A_TIME) => return Ok(NOT_A_TIME),
            Number::Whole(number) => number.checked_mul(self.unit.into()),
            Number::Float(number) if self.is_duration => self.duration(number, dtype),
            Number::Float(number) if self.target == TimeUnit::Microsecond => {
                self.microseconds(number)
            }
            Number::Float(number) => Some(truncated(number * float(self.unit))),
        };
        let target = i128::from(self.target.nanoseconds());
        nanoseconds
            .and_then(|own| own.checked_add(self.origin))
            .filter(|time| self.first.is_none_or(|first| *time >= first))
            .and_then(|time| i64::try_from(time.div_euclid(target)).ok())
            .filter(|time| *time != NOT_A_TIME)
            .ok_or_else(|| {
                let (number, units) = (number.float(), &self.units);
                let reason = match self.first {
                    Some(_) => "before 1582-10-15, or too far from 1970 for a timestamp",
                    None => "too large for its unit",
                };
                ZarrError::Time(format!("{number} {units} is {reason}"))
            })
    }

    /// Returns the nanoseconds of a duration, in the first unit of which it is a whole number.
    fn duration(&self, number: f64, dtype: DType) -> Option<i128> {
        let (mut number, mut unit) = (number, self.unit);
        let dtype = match unit > SECOND {
            true => DType::Float64,
            false => dtype,
        };
        if unit > SECOND {
            number *= float(unit / SECOND);
            unit = SECOND;
        }
        while unit > 1 && number.fract() != 0.0 {
            // A short float that overflows keeps its value here.
            let next = rounded(dtype, number * 1_000.0);
            number = if next.is_finite() {
                next
            } else {
                number * 1_000.0
            };
            unit /= 1_000;
        }
        truncated(number).checked_mul(unit.into())
    }

    /// Returns the nanoseconds of the nearest microsecond, as `cftime` does.
    fn microseconds(&self, number: f64) -> Option<i128> {
        let unit = self.unit / 1_000;
        let whole = truncated(number).checked_mul(unit.into())?;
        let rest = number.fract() * float(unit);
        let nearest = whole.checked_add(truncated(rest.round_ties_even()))?;
        // COMPAT: microseconds next to a whole second are rounded towards it.
        let nearest = match nearest.rem_euclid(1_000_000) {
            1 if unit > 1_000 => whole + truncated(rest.floor()),
            999_999 if unit > 1_000 => whole + truncated(rest.ceil()),
            _ => nearest,
        };
        nearest.checked_mul(1_000)
    }
}

/// Returns whether this is a unit of durations.
pub(crate) fn is_unit(name: &str) -> bool {
    UNITS.iter().any(|(own, _)| *own == name)
}

/// Returns the nanoseconds of a unit, and whether it is one that pandas knows.
fn unit_of(name: &str) -> Option<(i64, bool)> {
    let mut name = name.to_lowercase();
    if !name.ends_with('s') {
        name.push('s');
    }
    if let Some((_, unit)) = UNITS.iter().find(|(own, _)| *own == name) {
        return Some((*unit, true));
    }
    let unit = match name.as_str() {
        "microsecs" => 1_000,
        "millisecs" | "msecs" | "ms" => 1_000_000,
        "secs" | "s" => SECOND,
        "mins" => MINUTE,
        "hrs" | "hs" => HOUR,
        "ds" => DAY,
        _ => return None,
    };
    Some((unit, false))
}

/// Returns a time such as `1992-10-8 15:15:42.5 -6:00`, in nanoseconds since 1970.
fn reference(text: &str, is_proleptic: bool) -> Option<i128> {
    let (date, clock) = text.split_at(text.find([' ', 'T', 't']).unwrap_or(text.len()));
    let fields: Option<Vec<i64>> = date.split('-').map(digits).collect();
    let (year, month, day) = match *fields?.as_slice() {
        [all] if date.len() == 8 => (all / 10_000, all / 100 % 100, all % 100),
        [year] => (year, 1, 1),
        [year, month] => (year, month, 1),
        [year, month, day] => (year, month, day),
        _ => return None,
    };
    let clock = clock.trim_start_matches([' ', 'T', 't']);
    let zones = ["Z", "z", "UTC", "GMT"];
    let utc = zones.iter().find_map(|zone| clock.strip_suffix(zone));
    let (clock, zone) = match (utc, clock.rfind(['+', '-'])) {
        (Some(clock), _) => (clock, ""),
        (None, Some(at)) => clock.split_at(at),
        (None, None) => (clock, ""),
    };
    let (hours, minutes) = match zone.get(1..).unwrap_or("0") {
        zone if zone.len() == 4 && !zone.contains(':') => zone.split_at(2),
        zone => zone.split_once(':').unwrap_or((zone, "0")),
    };
    let offset = digits(hours)? * HOUR + digits(minutes)? * MINUTE;
    let offset = if zone.starts_with('-') {
        -offset
    } else {
        offset
    };
    let clock = if clock.trim().is_empty() {
        "0"
    } else {
        clock.trim()
    };
    let mut parts = clock.split(':');
    let hour = digits(parts.next()?).filter(|hour| *hour < 24)?;
    let minute = digits(parts.next().unwrap_or("0")).filter(|minute| *minute < 60)?;
    let seconds = parts.next().unwrap_or("0");
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let second = digits(second).filter(|second| *second < 60)?;
    let fraction = digits(format!("{fraction:0<9}").get(..9)?)?;
    let time = hour * HOUR + minute * MINUTE + second * SECOND + fraction - offset;
    let day = day_number(year, month, day, is_proleptic)?;
    (parts.next().is_none()).then(|| i128::from(day) * i128::from(DAY) + i128::from(time))
}

/// Returns a short number of decimal digits.
fn digits(text: &str) -> Option<i64> {
    let is_number = text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// Returns the days of a date since 1970. Before the reform, the dates of the standard calendar are Julian.
fn day_number(year: i64, month: i64, day: i64, is_proleptic: bool) -> Option<i64> {
    let is_julian = !is_proleptic && (year, month, day) < (1582, 10, 5);
    let is_leap = year % 4 == 0 && (is_julian || year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        _ => return None,
    };
    let is_skipped = !is_proleptic && !is_julian && (year, month, day) < (1582, 10, 15);
    if !(1..=length).contains(&day) || is_skipped || (year == 0 && !is_proleptic) {
        return None;
    }
    // Years that begin in March end with the leap day.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year.div_euclid(4) + (153 * month + 2) / 5 + day - 1;
    Some(match is_julian {
        true => days - 719_470,
        false => days - year.div_euclid(100) + year.div_euclid(400) - 719_468,
    })
}

#[expect(clippy::cast_precision_loss, reason = "units are far below 2^53")]
const fn float(unit: i64) -> f64 {
    unit as f64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the part before the point is wanted; it saturates"
)]
const fn truncated(number: f64) -> i128 {
    number as i128
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn since(units: &str, calendar: &str) -> Result<TimeDecoder, ZarrError> {
        TimeDecoder::since(units, calendar)
    }

    #[test]
    fn reference_times_are_parsed() {
        for (text, expected) in [
            ("1970-01-01", 0),
            ("1970-1-1 0:0:0", 0),
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01 00:00:00 UTC", 0),
            ("19700102", 86_400),
            ("1970", 0),
            ("1970-01-01 12", 43_200),
            ("1969-12-31 23:59:59.0", -1),
            ("1970-01-01 01:30 +01:30", 0),
            ("1970-01-01 01:30:00+0130", 0),
            ("1992-10-8 15:15:42 -6:00", 718_578_942),
            ("2000-02-29", 951_782_400),
            ("1582-10-15", -12_219_292_800),
            ("1582-10-04", -12_219_379_200),
            ("1-1-1 00:00:0.0", -62_135_769_600),
        ] {
            assert_eq!(
                reference(text, false),
                Some(expected * i128::from(SECOND)),
                "{text}"
            );
        }
        assert_eq!(
            reference("0001-01-01", true),
            Some(-62_135_596_800 * i128::from(SECOND))
        );
        for text in [
            "",
            "launch",
            "2001-02-29",
            "2000-13-01",
            "2000-01-32",
            "0000-01-01",
            "1582-10-10",
            "2000-01-01 24:00",
            "2000-01-01 00:00:00:00",
            "2000-01-01 00:00:61",
            "-2000-01-01",
            "2000-01-01 +aa:00",
            "01-02-2000",
        ] {
            assert_eq!(reference(text, false), None, "{text}");
        }
    }

    #[test]
    fn times_are_decoded_as_xarray_decodes_them() {
        for (units, number, expected) in [
            (
                "days since 1970-01-01",
                Number::Float(1.0 / 3.0),
                "28800000000000",
            ),
            (
                "seconds since 1992-10-8 15:15:42.5 -6:00",
                Number::Float(f64::from(5.3_f32)),
                "718578947800000190",
            ),
            (
                "days since 0001-01-01",
                Number::Float(735_001.3),
                "1368342720000004",
            ),
            ("hrs since 1970-01-01", Number::Whole(5), "18000000000"),
            ("Day since 1970-01-01", Number::Whole(-1), "-86400000000000"),
            (
                "hours since 1970-01-01",
                Number::Float(f64::NAN),
                "-9223372036854775808",
            ),
        ] {
            let found = since(units, "standard")
                .unwrap()
                .decode(number, DType::Float64);
            assert_eq!(found.unwrap().to_string(), expected, "{units}");
        }
        let mut far = since("days since 1970-01-01", "Gregorian").unwrap();
        far.decode(Number::Whole(500_000), DType::Int32)
            .unwrap_err();
        far.widen();
        assert_eq!(
            far.decode(Number::Whole(500_000), DType::Int32).unwrap(),
            43_200_000_000_000_000
        );
        let error = far
            .decode(Number::Whole(-200_000), DType::Int32)
            .unwrap_err();
        assert!(error.to_string().contains("before 1582-10-15"), "{error}");
        for (units, calendar, named) in [
            ("days since 1970-01-01", "noleap", "`noleap`"),
            (
                "months since 1970-01-01",
                "standard",
                "`months since 1970-01-01`",
            ),
            ("days since launch", "standard", "`days since launch`"),
        ] {
            let error = since(units, calendar).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn durations_are_decoded_as_xarray_decodes_them() {
        let attributes = |value: Value| value.as_object().unwrap().clone();
        let of = |value| TimeDecoder::of(&attributes(value)).unwrap();
        assert!(of(json!({"units": "days"})).is_none());
        assert!(of(json!({"units": "K", "dtype": "timedelta64[s]"})).is_none());
        let hours = of(json!({"units": "hours", "dtype": "timedelta64[s]"})).unwrap();
        assert_eq!(
            hours.decode(Number::Float(5.5), DType::Float32).unwrap(),
            19_800_000_000_000
        );
        let seconds = of(json!({"units": "seconds", "dtype": "timedelta64[ns]"})).unwrap();
        let number = Number::Float(f64::from(5.1_f32));
        assert_eq!(
            seconds.decode(number, DType::Float32).unwrap(),
            5_100_000_000
        );
        let numpy = TimeDecoder::of_numpy(true, "25m").unwrap();
        assert_eq!(numpy.decode(Number::Whole(2), DType::Int64).unwrap(), 3_000);
        assert!(TimeDecoder::of_numpy(false, "Y").is_none());
    }
}
