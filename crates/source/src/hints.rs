//! Builds the hints of source errors: suggests similar column names, and quotes column names for SQL.

use arrow::datatypes::Schema;
use datafusion::common::utils::datafusion_strsim::levenshtein;
use shardmill_core::FileClass;

use crate::options::SourceKind;

/// The hint for a column that cannot be read as it is written, because an expression or a query may use it.
pub(crate) const USED: &str = "an expression uses the column, or a query all of them, so its values need one type: \
    correct them, or omit the column there";

/// Returns the column at the start of a path, and whether the path continues below it.
pub(crate) fn column_of(reason: &str) -> (String, bool) {
    let (column, rest) = match reason.strip_prefix('"').and_then(end_of_quoted) {
        Some((quoted, rest)) => (quoted.replace("\"\"", "\""), rest),
        None => {
            let end = reason.find(['.', '[', ':']).unwrap_or(reason.len());
            let (column, rest) = reason.split_at(end);
            (column.to_owned(), rest)
        }
    };
    (column, !rest.starts_with(':'))
}

/// Splits a text after its closing double quote. Two of them are one in the text.
fn end_of_quoted(text: &str) -> Option<(&str, &str)> {
    let mut at = 0;
    loop {
        at += text.get(at..)?.find('"')?;
        match text.get(at + 1..)?.strip_prefix('"') {
            Some(_) => at += 2,
            None => return text.get(..at).zip(text.get(at + 1..)),
        }
    }
}

/// Returns how a user can choose between two classes of files.
pub(crate) fn choices(classes: [FileClass; 2]) -> String {
    let mut ways = Vec::new();
    for class in classes {
        ways.push(match (class, SourceKind::of_class(class)) {
            (FileClass::DeltaLog, _) => "name the folder of the Delta table".to_owned(),
            (FileClass::MdsShard, _) => {
                "name the folder with the index.json of the MDS shards".to_owned()
            }
            (_, Some(kind)) => format!("pass --from {kind} to read the {} only", class.name()),
            (_, None) => continue,
        });
    }
    ways.push("pass --from tree to take every file as it is".to_owned());
    ways.join(", or ")
}

/// Returns up to three column names that are spelled like `name`, nearest first.
pub(crate) fn near_names(name: &str, schema: &Schema) -> Vec<String> {
    // The distance of long names takes long.
    let head = |name: &str| -> String { name.to_lowercase().chars().take(64).collect() };
    let wanted = head(name);
    let names = schema.fields().iter().map(|field| field.name());
    // A column of exactly this name is not a suggestion.
    let names = names.filter(|candidate| *candidate != name);
    let distances = names.map(|candidate| (levenshtein(&wanted, &head(candidate)), candidate));
    let is_near = |(distance, candidate): &(usize, &String)| {
        let shorter = wanted.chars().count().min(candidate.chars().count());
        *distance <= if shorter < 3 { 0 } else { shorter.div_ceil(3) }
    };
    let mut near: Vec<(usize, &String)> = distances.filter(is_near).collect();
    near.sort_unstable();
    near.into_iter()
        .take(3)
        .map(|(_, name)| name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};

    #[test]
    fn near_names_returns_only_similar_columns() {
        let fields: Vec<Field> = ["label", "Text", "texts", "image"]
            .iter()
            .map(|name| Field::new(*name, DataType::Null, true))
            .collect();
        let schema = Schema::new(fields);
        assert_eq!(near_names("text", &schema), ["Text", "texts"]);
        assert_eq!(near_names("lable", &schema), ["label"]);
        assert!(near_names("zzzz", &schema).is_empty());
    }
}
