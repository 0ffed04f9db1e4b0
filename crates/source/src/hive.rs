//! Turns directories called `key=value` into columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;

use crate::files::InputFile;
use crate::{SourceError, SourceProblem};

/// The directory name that Hive and Spark use for a null key.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The columns that directories form, sorted by name, and their values for each file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Partitions {
    pub fields: Vec<FieldRef>,
    /// For each file, a value for each field.
    pub values: Vec<Vec<Option<String>>>,
}

impl Partitions {
    /// Reads the partitions of files whose relative paths have `key=value` directories.
    pub(crate) fn of(files: &[InputFile]) -> Result<Self, SourceError> {
        let mut all = Vec::with_capacity(files.len());
        for file in files {
            all.push(keys_of(file)?);
        }
        let Some((first, first_file)) = all.first().zip(files.first()) else {
            return Ok(Self::default());
        };
        for (own, file) in all.iter().zip(files) {
            if !own.keys().eq(first.keys()) {
                return Err(SourceProblem::Partition.at(
                    file.shown.clone(),
                    format!(
                        "has the partitions {}, and {} has {}",
                        names(own),
                        shardmill_core::escape(&first_file.shown),
                        names(first)
                    ),
                ));
            }
        }
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

    /// Returns the value that a field has in all rows of a file.
    pub(crate) fn value(&self, file: usize, field: usize) -> ScalarValue {
        let value = self
            .values
            .get(file)
            .and_then(|values| values.get(field))
            .and_then(Option::as_deref);
        let is_integer = self
            .fields
            .get(field)
            .is_some_and(|field| field.data_type() == &DataType::Int64);
        if is_integer {
            ScalarValue::Int64(value.map(|value| integer(value).unwrap_or_default()))
        } else {
            ScalarValue::Utf8(value.map(str::to_owned))
        }
    }

    /// Returns whether a field is null in all rows of a file.
    pub(crate) fn is_null(&self, file: usize, field: usize) -> bool {
        self.values
            .get(file)
            .and_then(|values| values.get(field))
            .is_none_or(Option::is_none)
    }
}

fn names(own: &BTreeMap<String, Option<String>>) -> String {
    if own.is_empty() {
        return "none".to_owned();
    }
    own.keys()
        .map(|key| format!("`{}`", shardmill_core::escape(key)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn integer(value: &str) -> Option<i64> {
    if value.starts_with('+') {
        return None;
    }
    value.parse().ok()
}

fn keys_of(file: &InputFile) -> Result<BTreeMap<String, Option<String>>, SourceError> {
    let error = |reason: &str| SourceProblem::Partition.at(file.shown.clone(), reason);
    let mut keys = BTreeMap::new();
    let directories = file
        .relative
        .rsplit_once('/')
        .map_or("", |(directories, _)| directories);
    for directory in directories.split('/') {
        let Some((key, value)) = directory.split_once('=') else {
            continue;
        };
        let key = decode(key).ok_or_else(|| error("a partition's key is not URL-encoded UTF-8"))?;
        if key.is_empty() {
            return Err(error("a partition has no key"));
        }
        let value = if value == NULL {
            None
        } else {
            Some(
                decode(value)
                    .ok_or_else(|| error("a partition's value is not URL-encoded UTF-8"))?,
            )
        };
        if keys.insert(key, value).is_some() {
            return Err(error("a partition's key appears twice"));
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
    use crate::files::Origin;
    use crate::walk::FileVersion;
    use shardmill_core::Diagnostic as _;

    fn files(paths: &[&str]) -> Vec<InputFile> {
        let file = |path: &&str| InputFile {
            origin: Origin::Local(path.into()),
            shown: (*path).to_owned(),
            relative: (*path).to_owned(),
            file_version: FileVersion::default(),
        };
        paths.iter().map(file).collect()
    }

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
    fn directories_become_columns() {
        let partitions = Partitions::of(&files(&[
            "year=2024/lang=en/x",
            "lang=a%20b%2Fc/year=02/x",
            "year=__HIVE_DEFAULT_PARTITION__/lang=100%/x",
        ]))
        .unwrap();
        assert_eq!(
            types(&partitions),
            [
                ("lang", &DataType::Utf8, false),
                ("year", &DataType::Int64, true)
            ]
        );
        let text = |value: &str| ScalarValue::Utf8(Some(value.to_owned()));
        assert_eq!(partitions.value(1, 0), text("a b/c"));
        assert_eq!(partitions.value(1, 1), ScalarValue::Int64(Some(2)));
        assert_eq!(partitions.value(2, 0), text("100%"));
        assert_eq!(partitions.value(2, 1), ScalarValue::Int64(None));
        assert!(partitions.is_null(2, 1) && !partitions.is_null(1, 1));
    }

    #[test]
    fn one_value_that_is_no_integer_makes_text() {
        let partitions = Partitions::of(&files(&["k=1/x", "k=1.5/x"])).unwrap();
        assert_eq!(types(&partitions), [("k", &DataType::Utf8, false)]);
        let partitions = Partitions::of(&files(&["k=__HIVE_DEFAULT_PARTITION__/x"])).unwrap();
        assert_eq!(types(&partitions), [("k", &DataType::Utf8, true)]);
    }

    #[test]
    fn files_must_agree_on_keys() {
        for paths in [
            &["k=1/x", "x"][..],
            &["k=1/x", "l=1/x"],
            &["k=1/k=2/x"],
            &["=1/x"],
            &["k=%ff/x"],
        ] {
            let error = Partitions::of(&files(paths)).unwrap_err();
            assert_eq!(error.id(), "source-partition", "{paths:?}");
        }
        let error = Partitions::of(&files(&["k=1/x", "y"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "has the partitions none, and k=1/x has `k`"
        );
        assert_eq!(
            Partitions::of(&files(&["a/x", "y"])).unwrap(),
            Partitions {
                fields: vec![],
                values: vec![vec![], vec![]]
            }
        );
    }
}
