//! Formats tables as text.

use std::fmt;

use shardmill_core::escape;

/// A table with aligned cells. Columns are separated by two spaces; lines have no trailing spaces.
#[derive(Debug)]
pub struct Table {
    /// Whether the cells of each column are aligned to the right.
    is_right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these headings, separated by `|`. A `>` before a heading aligns its column to the right.
    pub fn headed(headings: &str) -> Self {
        let mut table = Self::aligned(headings);
        let names = headings.split('|');
        table.row(names.map(|name| name.trim_start_matches('>').to_owned()));
        table
    }

    /// Creates a table without headings: `>` aligns a column to the right, and `|` separates columns.
    pub fn aligned(columns: &str) -> Self {
        let columns = columns.split('|').map(|column| column.starts_with('>'));
        Self {
            is_right: columns.collect(),
            rows: Vec::new(),
        }
    }

    /// Creates a table of facts: a name and a value on each line, after `indent`.
    pub fn facts(indent: &str, facts: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let mut table = Self::aligned("|");
        for (name, value) in facts {
            table.row([format!("{indent}{name}"), escape(&value).into_owned()]);
        }
        table
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.is_right.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, is_right), width) in row.iter().zip(&self.is_right).zip(&widths) {
                let gap = if line.is_empty() { "" } else { "  " };
                line.push_str(&match is_right {
                    true => format!("{gap}{cell:>width$}"),
                    false => format!("{gap}{cell:<width$}"),
                });
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_by_column() {
        let mut table = Table::headed("name|>samples|hash");
        table.row(["é".to_owned(), "1,000".to_owned(), "ab".to_owned()]);
        table.row(["long name".to_owned(), "1".to_owned(), String::new()]);
        assert_eq!(
            table.to_string(),
            "name       samples  hash\né            1,000  ab\nlong name        1\n"
        );
    }
}
