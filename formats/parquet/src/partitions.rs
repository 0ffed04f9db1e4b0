//! Turns directories called `key=value` into columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use shardmill_core::escape;

/// The directory name that Hive and Spark use for a null key.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The columns that directories form, sorted by name, and their values for each file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// The columns: integers if all values are integers in the shortest form, else texts.
    pub fields: Vec<FieldRef>,
    /// For each file, a value for each field.
    values: Vec<Vec<Option<String>>>,
}

/// A file whose directories form no columns, or other ones than those of the first file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionProblem {
    /// The number of the file.
    pub file: usize,
    /// What is wrong.
    pub reason: String,
}

impl Partitions {
    /// Reads the partitions of files, by their paths in the table.
    ///
    /// # Errors
    ///
    /// A [`PartitionProblem`] if a directory is no valid partition, or files have different ones.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<Self, PartitionProblem> {
        let mut all: Vec<BTreeMap<String, Option<String>>> = Vec::new();
        let mut first_path = "";
        for (file, path) in paths.into_iter().enumerate() {
            let problem = |reason: String| PartitionProblem { file, reason };
            let own = keys_of(path).map_err(|reason| problem(reason.to_owned()))?;
            match all.first() {
                None => first_path = path,
                Some(first) if !own.keys().eq(first.keys()) => {
                    return Err(problem(format!(
                        "has the partitions {}, and {} has {}",
                        names(&own),
                        escape(first_path),
                        names(first)
                    )));
                }
                Some(_) => {}
            }
            all.push(own);
        }
        let Some(first) = all.first() else {
            return Ok(Self::default());
        };
        let fields = first
            .keys()
            .map(|key| {
                let mut values = all
                    .iter()
                    .filter_map(|own| own.get(key).and_then(Option::as_deref))
                    .peekable();
                let integers =
                    values.peek().is_some() && values.all(|value| integer(value).is_some());
                let data_type = if integers {
                    DataType::Int64
                } else {
                    DataType::Utf8
                };
                let nullable = all
                    .iter()
                    .any(|own| own.get(key).is_none_or(Option::is_none));
                Arc::new(Field::new(key, data_type, nullable))
            })
            .collect();
        let values = all
            .into_iter()
            .map(|own| own.into_values().collect())
            .collect();
        Ok(Self { fields, values })
    }

    /// Returns the value that a field has in all rows of a file, as an array of one value.
    #[must_use]
    pub fn value(&self, file: usize, field: usize) -> ArrayRef {
        let value = self.values.get(file).and_then(|values| values.get(field));
        let value = value.and_then(Option::as_deref);
        let is_integer = self
            .fields
            .get(field)
            .is_some_and(|field| field.data_type() == &DataType::Int64);
        if is_integer {
            let value = value.map(|value| integer(value).unwrap_or_default());
            Arc::new(Int64Array::from(vec![value]))
        } else {
            Arc::new(StringArray::from(vec![value]))
        }
    }

    /// Returns whether a field is null in all rows of a file.
    #[must_use]
    pub fn is_null(&self, file: usize, field: usize) -> bool {
        self.values
            .get(file)
            .and_then(|values| values.get(field))
            .is_none_or(Option::is_none)
    }
}

/// Returns a column with the same value in all rows. `value` has one row.
///
/// # Errors
///
/// An error of Arrow if `value` has no rows.
pub fn repeated(value: &ArrayRef, rows: usize) -> Result<ArrayRef, ArrowError> {
    take(value, &UInt32Array::from(vec![0; rows]), None)
}

fn names(own: &BTreeMap<String, Option<String>>) -> String {
    if own.is_empty() {
        return "none".to_owned();
    }
    own.keys()
        .map(|key| format!("`{}`", escape(key)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the integer that a text writes in the shortest way. Others, such as `01730`, `+1` or `-0`, are identifiers.
fn integer(value: &str) -> Option<i64> {
    let number: i64 = value.parse().ok()?;
    (number.to_string() == value).then_some(number)
}

fn keys_of(path: &str) -> Result<BTreeMap<String, Option<String>>, &'static str> {
    let mut keys = BTreeMap::new();
    let directories = path
        .rsplit_once('/')
        .map_or("", |(directories, _)| directories);
    for directory in directories.split('/') {
        let Some((key, value)) = directory.split_once('=') else {
            continue;
        };
        let key = decode(key).ok_or("a partition's key is not URL-encoded UTF-8")?;
        if key.is_empty() {
            return Err("a partition has no key");
        }
        let value = if value == NULL {
            None
        } else {
            Some(decode(value).ok_or("a partition's value is not URL-encoded UTF-8")?)
        };
        if keys.insert(key, value).is_some() {
            return Err("a partition's key appears twice");
        }
    }
    Ok(keys)
}

/// Decodes `%41` and the like. A percent sign without two hexadecimal digits is literal, as some writers leave it.
fn decode(text: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8();
    Some(text.ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    fn types(partitions: &Partitions) -> Vec<(&str, &DataType, bool)> {
        partitions
            .fields
            .iter()
            .map(|field| {
                (
                    field.name().as_str(),
                    field.data_type(),
                    field.is_nullable(),
                )
            })
            .collect()
    }

    #[test]
    fn hive_directories_become_partition_columns() {
        let partitions = Partitions::of([
            "year=2024/lang=en/x",
            "lang=a%20b%2Fc/year=-2/x",
            "year=__HIVE_DEFAULT_PARTITION__/lang=100%/x",
        ])
        .unwrap();
        assert_eq!(
            types(&partitions),
            [
                ("lang", &DataType::Utf8, false),
                ("year", &DataType::Int64, true)
            ]
        );
        let text = |value: &str| -> ArrayRef { Arc::new(StringArray::from(vec![value])) };
        let number = |value: Option<i64>| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
        assert_eq!(&partitions.value(1, 0), &text("a b/c"));
        assert_eq!(&partitions.value(1, 1), &number(Some(-2)));
        assert_eq!(&partitions.value(2, 0), &text("100%"));
        assert_eq!(&partitions.value(2, 1), &number(None));
        assert!(partitions.is_null(2, 1) && !partitions.is_null(1, 1));
    }

    #[test]
    fn one_non_integer_value_makes_the_partition_text() {
        for other in [
            "1.5",
            "01730",
            "00",
            "+1",
            "-0",
            "-01",
            "9223372036854775808",
            "",
            " 1",
        ] {
            let path = format!("k={other}/x");
            let partitions = Partitions::of(["k=1730/x", &path]).unwrap();
            assert_eq!(
                types(&partitions),
                [("k", &DataType::Utf8, false)],
                "{other}"
            );
            let text: ArrayRef = Arc::new(StringArray::from(vec![other]));
            assert_eq!(&partitions.value(1, 0), &text);
        }
        let partitions = Partitions::of(["k=__HIVE_DEFAULT_PARTITION__/x"]).unwrap();
        assert_eq!(types(&partitions), [("k", &DataType::Utf8, true)]);
    }

    #[test]
    fn files_with_different_partition_keys_are_an_error() {
        for paths in [
            &["k=1/x", "x"][..],
            &["k=1/x", "l=1/x"],
            &["k=1/k=2/x"],
            &["=1/x"],
            &["k=%ff/x"],
        ] {
            assert!(Partitions::of(paths.iter().copied()).is_err(), "{paths:?}");
        }
        let error = Partitions::of(["k=1/x", "y"]).unwrap_err();
        assert_eq!(error.reason, "has the partitions none, and k=1/x has `k`");
        assert_eq!(
            Partitions::of(["a/x", "y"]).unwrap(),
            Partitions {
                fields: vec![],
                values: vec![vec![], vec![]]
            }
        );
    }
}
