//! Parses sample ranges: `INDEX`, `-1`, `A..B`, `A..`, `..B`.

use std::ops::Range;

use shardmill_core::escape;

use crate::error::CliError;

/// The typed sample range. Negative numbers count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    One(i64),
    Range(Option<i64>, Option<i64>),
}

impl Samples {
    pub fn parse(text: &str) -> Result<Self, CliError> {
        // Options with a typo reach this parser, because negative numbers are allowed here.
        if text
            .strip_prefix('-')
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Err(CliError::Usage {
                id: "usage-unknown-option".into(),
                object: Some(text.to_owned()),
                message: "there is no such option or argument".to_owned(),
                hint: Some("see `shardmill cat --help`".to_owned()),
            });
        }
        let error = || CliError::Usage {
            id: "config-range".into(),
            object: Some(escape(text).into_owned()),
            message: "it is neither a sample number nor a range".to_owned(),
            hint: Some("write 7, -1, 10..20, 10.. or ..20".to_owned()),
        };
        let number = |text: &str| text.parse::<i64>().map_err(|_| error());
        let end = |text: &str| {
            if text.is_empty() {
                Ok(None)
            } else {
                number(text).map(Some)
            }
        };
        match text.split_once("..") {
            Some((first, last)) => Ok(Self::Range(end(first)?, end(last)?)),
            None => number(text).map(Self::One),
        }
    }

    /// Returns the selected samples of a dataset with `samples` samples. All typed numbers must be in range.
    pub fn resolve(self, dataset: &str, samples: u64) -> Result<Range<u64>, CliError> {
        let error = |number: i64| CliError::SampleOutOfRange {
            dataset: dataset.to_owned(),
            sample: number.to_string(),
            samples,
        };
        let place = |number: i64, most: u64| {
            let place = if number < 0 {
                samples.checked_sub(number.unsigned_abs())
            } else {
                Some(number.unsigned_abs())
            };
            place
                .filter(|place| *place <= most)
                .ok_or_else(|| error(number))
        };
        match self {
            Self::One(number) => {
                let most = samples.checked_sub(1).ok_or_else(|| error(number))?;
                let place = place(number, most)?;
                Ok(place..place + 1)
            }
            Self::Range(first, last) => {
                let start = first.map_or(Ok(0), |first| place(first, samples))?;
                let end = last.map_or(Ok(samples), |last| place(last, samples))?;
                if start > end {
                    return Err(CliError::Usage {
                        id: "config-range".into(),
                        object: Some(format!("{start}..{end}")),
                        message: "the range ends before it begins".to_owned(),
                        hint: None,
                    });
                }
                Ok(start..end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str, samples: u64) -> Option<Range<u64>> {
        Samples::parse(text).ok()?.resolve("ds", samples).ok()
    }

    #[test]
    fn numbers_and_ranges_count_from_both_ends() {
        for (text, range) in [
            ("0", 0..1),
            ("9", 9..10),
            ("-1", 9..10),
            ("-10", 0..1),
            ("2..5", 2..5),
            ("..5", 0..5),
            ("5..", 5..10),
            ("..", 0..10),
            ("-3..", 7..10),
            ("-3..-1", 7..9),
            ("10..", 10..10),
            ("4..4", 4..4),
            ("..10", 0..10),
        ] {
            assert_eq!(resolved(text, 10), Some(range), "{text}");
        }
        for text in [
            "10",
            "-11",
            "..11",
            "11..",
            "5..4",
            "x",
            "1..x",
            "1...2",
            "1.5",
            "",
            "-",
            "--jsn",
            "-x",
            "9223372036854775808",
        ] {
            assert_eq!(resolved(text, 10), None, "{text}");
        }
        assert_eq!(resolved("0", 0), None);
        assert_eq!(resolved("..", 0), Some(0..0));
        assert_eq!(resolved("-9223372036854775808", 10), None);
    }

    #[test]
    fn a_word_that_looks_like_an_option_is_called_one() {
        for text in ["--jsn", "-x", "--5"] {
            assert!(
                matches!(Samples::parse(text), Err(CliError::Usage { id, .. }) if id == "usage-unknown-option"),
                "{text}"
            );
        }
    }
}
