//! Composes hints for errors of a source that need more than a fixed sentence.

use shardmill_core::{FileClass, escape};

/// The category of a mistake in a CSV record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvProblem {
    /// A quote that is never closed.
    Quote,
    /// A number of values that differs from the number of names in the header.
    FieldCount,
    /// Bytes that are not UTF-8.
    Utf8,
    /// A value that is not of the type of its column.
    Value,
    /// A whole number in a column of floats that no float equals.
    Inexact,
}

impl CsvProblem {
    /// Returns a hint for a mistake in that column.
    pub(crate) fn hint(self, column: Option<&str>) -> String {
        let text = format!("--column {}:str", escape(column.unwrap_or("NAME")));
        match self {
            Self::Quote => "close the quote, or double it (\"\") where it is part of a quoted value".to_owned(),
            Self::FieldCount => "give the line as many values as the header has names; --csv-delimiter says what stands between them".to_owned(),
            Self::Utf8 => "convert the file to UTF-8".to_owned(),
            Self::Value => format!("the type follows from the rows before: correct the value, or read the column as text with {text}"),
            Self::Inexact => format!("read the column as text with {text}"),
        }
    }
}

/// Returns the column at the start of a path, and whether the path continues below it.
pub(crate) fn column_of(reason: &str) -> (&str, bool) {
    let end = reason.find(['.', '[', ':']).unwrap_or(reason.len());
    let (column, rest) = reason.split_at(end);
    (column, !rest.starts_with(':'))
}

/// Returns how a user can choose between two classes of files.
pub(crate) fn choices(classes: [FileClass; 2]) -> String {
    let mut ways = Vec::new();
    for class in classes {
        let from = match class {
            FileClass::Parquet => "parquet",
            FileClass::Arrow => "arrow",
            FileClass::Csv => "csv",
            FileClass::Tsv => "tsv",
            FileClass::JsonLines => "jsonl",
            FileClass::Tar => "webdataset",
            FileClass::DeltaLog => {
                ways.push("name the folder of the Delta table".to_owned());
                continue;
            }
            FileClass::MdsShard => {
                ways.push("name the folder with the index.json of the MDS shards".to_owned());
                continue;
            }
            FileClass::Plain => continue,
        };
        ways.push(format!(
            "pass --from {from} to read the {} only",
            class.name()
        ));
    }
    ways.push("pass --from tree to take every file as it is".to_owned());
    ways.join(", or ")
}
