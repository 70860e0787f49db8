//! Aligned columns. Own, because a listing may have 100,000 rows and must stay quick, and because
//! names never wrap: they are there to be copied.

use crate::output::HEADING;
use std::borrow::Cow;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A heading and rows of cells.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    /// Row after row.
    cells: Vec<Cell>,
}

/// The text of a cell, escaped where it comes from a file.
pub(crate) type Cell = Cow<'static, str>;

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), cells: Vec::new() }
    }

    /// Adds cells; a row is as many as there are columns.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<Cell>>) {
        self.cells.extend(cells.into_iter().map(Into::into));
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(title, _)| title.len()).collect();
        for row in self.cells.chunks(self.columns.len()) {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width(cell));
            }
        }
        let titles: Vec<Cell> = self.columns.iter().map(|(title, _)| Cell::from(*title)).collect();
        let mut line = String::new();
        self.line(&titles, &widths, &mut line);
        writeln!(out, "{HEADING}{line}{HEADING:#}")?;
        for row in self.cells.chunks(self.columns.len()) {
            self.line(row, &widths, &mut line);
            out.write_all(line.as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Puts the aligned cells into `line`.
    fn line(&self, cells: &[Cell], widths: &[usize], line: &mut String) {
        line.clear();
        for (place, (cell, (_, align))) in cells.iter().zip(&self.columns).enumerate() {
            if place > 0 {
                line.push_str("  ");
            }
            let gap = std::iter::repeat_n(' ', widths[place] - width(cell));
            match align {
                Align::Left => {
                    line.push_str(cell);
                    line.extend(gap);
                }
                Align::Right => {
                    line.extend(gap);
                    line.push_str(cell);
                }
            }
        }
        line.truncate(line.trim_end().len());
    }
}

/// Columns that `text` takes on a terminal.
fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(["重み", "1"]);
        table.row(["a", "100"]);
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap().replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
        assert_eq!(text, "name    n\n重み    1\na     100\n");
    }
}
