//! Aligned columns.
//!
//! Written here because a listing may have 100,000 rows and must stay quick, and because names never wrap: users copy them.
//! One long name does not widen its column, and a repeated long name is shortened.

use crate::output::HEADING;
use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Maximum column width. A wider cell does not count: it moves the rest of its row.
const MAX_WIDTH: usize = 100;

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A heading and rows of cells.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    /// Text of all cells, row by row, and the end of each.
    text: String,
    ends: Vec<usize>,
    /// Hashes of the long cells so far.
    seen: HashSet<u64>,
    marks: RandomState,
}

/// Text of a cell, escaped if it comes from a file.
pub(crate) type Cell = Cow<'static, str>;

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        let (seen, marks) = (HashSet::new(), RandomState::new());
        Self { columns: columns.to_vec(), text: String::new(), ends: Vec::new(), seen, marks }
    }

    /// Adds cells; each row has as many as there are columns. A long cell that repeats is shortened.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<Cell>>) {
        for cell in cells {
            let cell = cell.into();
            let again = width(&cell) > MAX_WIDTH && !self.seen.insert(self.marks.hash_one(&cell));
            self.text.push_str(&if again { short(&cell) } else { cell });
            self.ends.push(self.text.len());
        }
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(title, _)| title.len()).collect();
        for row in self.rows() {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest =
                    Some(width(cell)).filter(|&width| width <= MAX_WIDTH).map_or(*widest, |w| w.max(*widest));
            }
        }
        let mut line = String::new();
        self.line(self.columns.iter().map(|(title, _)| *title), &widths, &mut line);
        writeln!(out, "{HEADING}{line}{HEADING:#}")?;
        for row in self.rows() {
            self.line(row, &widths, &mut line);
            out.write_all(line.as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Returns the rows as cells.
    fn rows(&self) -> impl Iterator<Item = impl Iterator<Item = &str>> {
        let mut start = 0;
        self.ends.chunks(self.columns.len()).map(move |ends| {
            let first = start;
            start = ends.last().copied().unwrap_or(start);
            let starts = std::iter::once(first).chain(ends.iter().copied());
            starts.zip(ends).map(|(from, &to)| self.text.get(from..to).unwrap_or_default())
        })
    }

    /// Writes the aligned cells into `line`.
    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize], line: &mut String) {
        line.clear();
        // Blanks are written only before a cell, so that lines have no trailing blanks.
        let mut blanks = 0;
        for (place, (cell, (_, align))) in cells.zip(&self.columns).enumerate() {
            let gap = widths.get(place).copied().unwrap_or_default().saturating_sub(width(cell));
            let (before, behind) = if *align == Align::Right { (gap, 0) } else { (0, gap) };
            blanks += before;
            if !cell.is_empty() {
                line.extend(std::iter::repeat_n(' ', blanks));
                line.push_str(cell);
                blanks = 0;
            }
            blanks += behind + 2;
        }
        line.truncate(line.trim_end().len());
    }
}

/// Returns the cell, shortened with `...` to the maximum width.
pub(crate) fn short(cell: &str) -> Cell {
    const MARK: &str = "...";
    if width(cell) <= MAX_WIDTH {
        return cell.to_owned().into();
    }
    let mut columns = MARK.len();
    let fits = |c: &char| {
        columns += width(c.encode_utf8(&mut [0; 4]));
        columns <= MAX_WIDTH
    };
    cell.chars().take_while(fits).chain(MARK.chars()).collect::<String>().into()
}

/// Returns the width of `text` on a terminal, in columns.
fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(["重み", "1"]);
        table.row(["a", "100"]);
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap().replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
        assert_eq!(text, "name    n\n重み    1\na     100\n");
    }

    /// A table of names and numbers as it is printed, without styles.
    fn printed(rows: &[[&str; 3]]) -> String {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right), ("", Align::Left)]);
        for row in rows {
            table.row(row.map(str::to_owned));
        }
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        String::from_utf8(out).unwrap().replace("\u{1b}[1m", "").replace("\u{1b}[0m", "")
    }

    #[test]
    fn long_cells_do_not_widen_columns_and_repeats_are_shortened() {
        let long = "x".repeat(5000);
        let text = printed(&[["a", "1", ""], [&long, "2", ""]]);
        assert!(text.contains("\na     1\n"), "{text}");
        let text = printed(&[["a", "1", ""], [&long, "2", "odd"], ["b", "3", ""], [&long, "4", ""]]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], format!("{long}  2  odd"));
        assert_eq!(lines[4], format!("{}...  4", "x".repeat(MAX_WIDTH - 3)));
        assert!(text.len() < 6000, "{}", text.len());
    }

    #[test]
    fn lines_have_no_trailing_blanks() {
        let long = "x".repeat(5000);
        let text = printed(&[["a", "1", &long], ["b", "", ""]]);
        assert!(text.ends_with("x\nb\n"), "{text}");
    }
}
