//! Parses ranges of samples or batches: `7`, `-1` (the last), `A..B`, `A..`, `..B`. All verbs accept the same texts.

use std::ops::Range;

use shardmill_core::Error;

use crate::error::unknown_sample;

use crate::output::count;

/// The typed range. Negative numbers count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexRange {
    One(i64),
    Range(Option<i64>, Option<i64>),
}

impl IndexRange {
    pub fn parse(text: &str) -> Result<Self, Error> {
        // Options with a typo reach this parser, because negative numbers are allowed here.
        if text
            .strip_prefix('-')
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            let error = Error::usage(
                "usage-unknown-option",
                "there is no such option or argument",
            );
            return Err(error.about(text).with_hint("see `shardmill --help`"));
        }
        let error = || {
            Error::usage("config-range", "it is neither a number nor a range")
                .about(text)
                .with_hint("write 7, -1, 10..20, 10.. or ..20")
        };
        let number = |text: &str| text.parse::<i64>().map_err(|_| error());
        let end = |text: &str| match text.is_empty() {
            true => Ok(None),
            false => number(text).map(Some),
        };
        match text.split_once("..") {
            Some((first, last)) => Ok(Self::Range(end(first)?, end(last)?)),
            None => Ok(Self::One(number(text)?)),
        }
    }

    /// Returns the selected samples of a dataset with `samples` samples. All typed numbers must be in range.
    pub fn samples_of(self, dataset: &str, samples: u64) -> Result<Range<u64>, Error> {
        self.resolve(samples, |number| unknown_sample(dataset, number, samples))
    }

    /// Returns the selected batches of an epoch with `batches` batches. All typed numbers must be in range.
    pub fn batches_of(self, batches: u64) -> Result<Range<u64>, Error> {
        self.resolve(batches, |number| {
            Error::option_hint(
                "config-batches",
                format!(
                    "batch {number} does not exist; there are {}",
                    count(batches)
                ),
                "omit it to see all of them",
            )
        })
    }

    /// Returns the selected numbers below `total`.
    fn resolve(self, total: u64, error: impl Fn(i64) -> Error) -> Result<Range<u64>, Error> {
        let index_of = |number: i64, max: u64| {
            let index = if number < 0 {
                total.checked_sub(number.unsigned_abs())
            } else {
                Some(number.unsigned_abs())
            };
            index
                .filter(|index| *index <= max)
                .ok_or_else(|| error(number))
        };
        match self {
            Self::One(number) => {
                let max = total.checked_sub(1).ok_or_else(|| error(number))?;
                let index = index_of(number, max)?;
                Ok(index..index + 1)
            }
            Self::Range(first, last) => {
                let start = first.map_or(Ok(0), |first| index_of(first, total))?;
                let end = last.map_or(Ok(total), |last| index_of(last, total))?;
                if start > end {
                    let error = Error::usage("config-range", "the range ends before it begins");
                    return Err(error.about(format!("{start}..{end}")));
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
        IndexRange::parse(text).ok()?.samples_of("ds", samples).ok()
    }

    #[test]
    fn negative_indexes_and_ranges_count_from_the_end() {
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
    fn range_with_leading_dashes_is_an_unknown_option() {
        for text in ["--jsn", "-x", "--5"] {
            assert!(
                matches!(IndexRange::parse(text), Err(error) if error.id() == "usage-unknown-option"),
                "{text}"
            );
        }
    }
}
