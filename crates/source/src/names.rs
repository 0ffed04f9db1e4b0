//! Suggests column names similar to a misspelled one.

use arrow::datatypes::Schema;

/// Returns up to three column names that are spelled like `name`, nearest first.
pub(crate) fn near_names(name: &str, schema: &Schema) -> Vec<String> {
    let wanted = name.to_lowercase();
    let mut near: Vec<(usize, &str)> = schema
        .fields()
        .iter()
        .map(|field| {
            (
                distance(&wanted, &field.name().to_lowercase()),
                field.name().as_str(),
            )
        })
        .filter(|(distance, candidate)| {
            let shorter = wanted.chars().count().min(candidate.chars().count());
            let is_near = *distance <= if shorter < 3 { 0 } else { shorter.div_ceil(3) };
            // A column of exactly this name is not a suggestion.
            is_near && *candidate != name
        })
        .collect();
    near.sort_unstable();
    near.into_iter()
        .take(3)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Returns the Levenshtein distance of the first 64 characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(64).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (to, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = *cell;
            *cell = replaced.min(diagonal + 1).min(left + 1);
            left = *cell;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn near_names_are_few_and_sorted() {
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
