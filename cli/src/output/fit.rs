//! Tables of values that fit the width of the terminal.

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

/// A table whose cells are cut to fit a width.
pub struct FitTable {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl FitTable {
    /// Creates a table. Its texts may contain anything.
    pub fn new(headings: impl IntoIterator<Item = String>) -> Self {
        Self {
            headings: headings.into_iter().map(|name| one_line(&name)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| one_line(&cell));
        self.rows.push(cells.collect());
    }

    /// Returns the lines of the table, and the headings of the columns that have no room.
    pub fn fit(&self, width: usize) -> (Vec<String>, Vec<&str>) {
        let wanted: Vec<usize> = self
            .headings
            .iter()
            .enumerate()
            .map(|(at, heading)| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                let widest = cells.map(|cell| columns(cell)).max().unwrap_or(0);
                widest.max(columns(heading))
            })
            .collect();
        let widths = fitted(&wanted, width);
        let numeric: Vec<bool> = (0..widths.len()).map(|at| self.is_numeric(at)).collect();
        let line = |cells: &[String]| {
            let mut line = String::new();
            for ((cell, width), numeric) in cells.iter().zip(&widths).zip(&numeric) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let cell = cut(cell, *width);
                let spaces = " ".repeat(width.saturating_sub(columns(&cell)));
                match numeric {
                    true => line.extend([spaces, cell]),
                    false => line.extend([cell, spaces]),
                }
            }
            line.trim_end().to_owned()
        };
        let lines = std::iter::once(&self.headings).chain(&self.rows);
        let hidden = self.headings.iter().skip(widths.len());
        (
            lines.map(|cells| line(cells)).collect(),
            hidden.map(String::as_str).collect(),
        )
    }

    fn is_numeric(&self, at: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(at));
        let is_number = |cell: &String| {
            cell.is_empty() || *cell == "null" || cell.replace(',', "").parse::<f64>().is_ok()
        };
        !self.rows.is_empty() && cells.all(is_number)
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
    if columns(text) <= width {
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

/// Returns the number of columns that a terminal uses for a text.
fn columns(text: &str) -> usize {
    text.width()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cells: &[&[&str]]) -> FitTable {
        let mut rows = cells
            .iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()));
        let mut table = FitTable::new(rows.next().unwrap());
        for row in rows {
            table.row(row);
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
        assert!(lines.iter().all(|line| columns(line) <= 30));
    }

    #[test]
    fn columns_that_do_not_fit_are_reported() {
        let name = "column_with_a_name";
        let table = table(&[&[name, "b234567890", "c234567890"], &["1", "2", "3"]]);
        let (lines, hidden) = table.fit(20);
        assert_eq!(lines, ["column_w…  b2345678…", "        1          2"]);
        assert_eq!(hidden, ["c234567890"]);
        let (lines, hidden) = table.fit(1);
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
