//! Formats tables as text.

use std::fmt;

use shardmill_core::escape;

/// The alignment of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A table with aligned cells. Columns are separated by two spaces; lines have no trailing spaces.
#[derive(Debug)]
pub struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns and no rows.
    pub fn new(align: &[Align]) -> Self {
        Self {
            align: align.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Creates a table with these headings, separated by `|`. A `>` before a heading aligns its column to the right.
    pub fn headed(headings: &str) -> Self {
        let headings = headings.split('|');
        let (align, names) = headings
            .map(|heading| match heading.strip_prefix('>') {
                Some(name) => (Align::Right, name.to_owned()),
                None => (Align::Left, heading.to_owned()),
            })
            .unzip();
        Self {
            align,
            rows: vec![names],
        }
    }

    /// Creates a table of facts: a name and a value on each line, after `indent`.
    pub fn facts(indent: &str, facts: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let mut table = Self::new(&[Align::Left, Align::Left]);
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
        let widths: Vec<usize> = (0..self.align.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, align), width) in row.iter().zip(&self.align).zip(&widths) {
                let spaces = width.saturating_sub(cell.chars().count());
                if !line.is_empty() {
                    line.push_str("  ");
                }
                if *align == Align::Right {
                    line.extend(std::iter::repeat_n(' ', spaces));
                }
                line.push_str(cell);
                if *align == Align::Left {
                    line.extend(std::iter::repeat_n(' ', spaces));
                }
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
    fn cells_line_up() {
        let mut table = Table::headed("name|>samples|hash");
        table.row(["é".to_owned(), "1,000".to_owned(), "ab".to_owned()]);
        table.row(["long name".to_owned(), "1".to_owned(), String::new()]);
        assert_eq!(
            table.to_string(),
            "name       samples  hash\né            1,000  ab\nlong name        1\n"
        );
    }
}
