//! Formats tables as text.

use std::fmt;
use std::io::{self, IsTerminal as _};

use shardmill_core::escape;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The width of a table that is not written to a terminal.
const PLAIN_WIDTH: usize = 100;

/// The smallest width to which a column is cut.
const SMALLEST: usize = 8;

/// The spaces between columns.
const GAP: usize = 2;

/// Returns the width of standard output: that of the terminal, or `COLUMNS`.
pub fn terminal_width() -> usize {
    let set = std::env::var("COLUMNS").ok();
    if let Some(columns) = set.and_then(|columns| columns.parse().ok()) {
        return columns;
    }
    let stdout = io::stdout();
    if stdout.is_terminal()
        && let Ok(size) = rustix::termios::tcgetwinsize(&stdout)
        && size.ws_col > 0
    {
        return size.ws_col.into();
    }
    PLAIN_WIDTH
}

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

    /// Creates a table of values that may contain anything. Its columns are aligned when it is fitted.
    pub fn of_values(headings: impl IntoIterator<Item = String>) -> Self {
        let mut table = Self {
            is_right: Vec::new(),
            rows: Vec::new(),
        };
        table.values(headings);
        table
    }

    /// Adds a row of values that may contain anything.
    pub fn values(&mut self, cells: impl IntoIterator<Item = String>) {
        self.row(cells.into_iter().map(|cell| one_line(&cell)));
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Returns the lines of the table, cut to a width, and the headings of the columns that have no room. Columns of numbers are
    /// aligned to the right.
    pub fn fit(mut self, width: usize) -> (Vec<String>, Vec<String>) {
        let headings = self.rows.first().cloned().unwrap_or_default();
        self.is_right = (0..headings.len()).map(|at| self.is_numeric(at)).collect();
        let widths = fitted(&self.widths(), width);
        let lines = self.rows.iter().map(|row| self.line(row, &widths));
        let hidden = headings.into_iter().skip(widths.len());
        (lines.collect(), hidden.collect())
    }

    /// Returns whether all values of a column are numbers.
    fn is_numeric(&self, at: usize) -> bool {
        let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(at));
        let is_number = |cell: &String| {
            cell.is_empty() || *cell == "null" || cell.replace(',', "").parse::<f64>().is_ok()
        };
        self.rows.len() > 1 && cells.all(is_number)
    }

    /// Returns the widths that the columns need.
    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        (0..self.is_right.len()).map(width).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, is_right), width) in row.iter().zip(&self.is_right).zip(widths) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let cell = cut(cell, *width);
            let spaces = " ".repeat(width.saturating_sub(cell.width()));
            if *is_right {
                line.extend([spaces, cell]);
            } else {
                line.extend([cell, spaces]);
            }
        }
        line.trim_end().to_owned()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let mut lines = self.rows.iter().map(|row| self.line(row, &widths));
        lines.try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Returns the widths of the columns that fit: the widest ones are cut first, then the last ones are left out.
fn fitted(wanted: &[usize], width: usize) -> Vec<usize> {
    let mut widths = wanted.to_vec();
    let total = |widths: &[usize]| {
        let gaps = GAP * widths.len().saturating_sub(1);
        widths.iter().sum::<usize>() + gaps
    };
    let min = |wanted: &usize| (*wanted).min(SMALLEST);
    loop {
        let smallest: Vec<usize> = widths.iter().map(min).collect();
        if widths.len() <= 1 || total(&smallest) <= width {
            break;
        }
        widths.pop();
    }
    // The widest columns share what is left.
    while total(&widths) > width {
        let Some(widest) = widths
            .iter()
            .copied()
            .max()
            .filter(|widest| *widest > SMALLEST)
        else {
            break;
        };
        let next = widths.iter().copied().filter(|width| *width < widest).max();
        let next = next.unwrap_or(SMALLEST).max(SMALLEST);
        let many = widths.iter().filter(|width| **width == widest).count();
        let over = total(&widths) - width;
        let each = over.div_ceil(many).min(widest - next).max(1);
        for width in widths.iter_mut().filter(|width| **width == widest) {
            *width -= each;
        }
    }
    widths
}

/// Replaces line breaks and tabs with spaces, and escapes other control characters.
fn one_line(text: &str) -> String {
    let spaced = text.replace(['\n', '\r', '\t'], " ");
    escape(&spaced).into_owned()
}

/// Cuts a text to a width. The last character then is `…`.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 0;
    for letter in text.chars() {
        let wide = letter.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        cut.push(letter);
    }
    cut.push('…');
    cut
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

    fn table(cells: &[&[&str]]) -> Table {
        let mut rows = cells
            .iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()));
        let mut table = Table::of_values(rows.next().unwrap());
        for row in rows {
            table.values(row);
        }
        table
    }

    #[test]
    fn widest_column_is_truncated_first() {
        let table = table(&[
            &["id", "text", "note"],
            &["7", "a text that is much too long for this", "short"],
            &["12", "b", "\u{1b}[2J\n"],
        ]);
        let (lines, hidden) = table.fit(30);
        assert_eq!(
            lines,
            [
                "id  text            note",
                " 7  a text that i…  short",
                "12  b               \\u{1b}[2J",
            ]
        );
        assert!(hidden.is_empty());
        assert!(lines.iter().all(|line| line.width() <= 30));
    }

    #[test]
    fn columns_that_do_not_fit_are_reported() {
        let name = "column_with_a_name";
        let rows: &[&[&str]] = &[&[name, "b234567890", "c234567890"], &["1", "2", "3"]];
        let (lines, hidden) = table(rows).fit(20);
        assert_eq!(lines, ["column_w…  b2345678…", "        1          2"]);
        assert_eq!(hidden, ["c234567890"]);
        let (lines, hidden) = table(rows).fit(1);
        assert_eq!((lines.len(), hidden.len()), (2, 2));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let table = table(&[&["a", "b"], &["日本語", "e\u{301}"], &["x", "y"]]);
        let (lines, _) = table.fit(80);
        assert_eq!(lines, ["a       b", "日本語  e\u{301}", "x       y"]);
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
    }
}
