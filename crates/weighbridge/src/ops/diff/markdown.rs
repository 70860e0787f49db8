//! Report as GitHub-flavored Markdown.

use super::{Alone, DiffReport, Status};
use crate::text::{counted, escape};
use std::fmt::Write;

/// Maximum number of lines of a table: a comment on a pull request is limited to 65,536 characters.
const MAX_LINES: usize = 100;

/// Returns the report. Names come from files: they are shown as code, where nothing in them is markup.
pub(super) fn markdown(report: &DiffReport) -> String {
    let mut out = String::new();
    let verdict = report.verdict();
    let _ = writeln!(out, "**{verdict}**: {} and {}\n", code(&report.left[0]), code(&report.right[0]));
    let different: Vec<_> = report.pairs.iter().filter(|pair| pair.status != Status::Same).collect();
    if !different.is_empty() {
        out.push_str("| tensor | status | max abs | max rel | cosine | elements beyond the tolerance | notes |\n| --- | --- | --- | --- | --- | --- | --- |\n");
        for pair in different.iter().take(MAX_LINES) {
            let name = match pair.left == pair.right {
                true => code(&pair.left),
                false => format!("{} → {}", code(&pair.left), code(&pair.right)),
            };
            let mut what = vec![pair.status.as_str().to_owned()];
            let side = |text: &Option<String>| text.as_deref().map_or_else(|| "(none)".to_owned(), code);
            what.extend(
                pair.changes.iter().map(|c| format!("{} {} → {}", c.what, side(&c.left), side(&c.right))),
            );
            what.extend(pair.unread.iter().map(|finding| code(&finding.told())));
            let _ = match &pair.values {
                Some(v) => {
                    let cosine = v.cosine.map_or_else(String::new, |x| format!("{x:.6}"));
                    let apart = format!("{} of {}", v.beyond, v.elements);
                    let what = what.join(", ");
                    writeln!(
                        out,
                        "| {name} | {what} | {:.3e} | {:.3e} | {cosine} | {apart} | {} |",
                        v.max_abs,
                        v.max_relative,
                        v.oddities().join(", ")
                    )
                }
                None => writeln!(out, "| {name} | {} | | | | | |", what.join(", ")),
            };
        }
        more(&mut out, different.len());
    }
    for (title, list) in
        [("Only on the left", &report.left_alone), ("Only on the right", &report.right_alone)]
    {
        let line = |alone: &Alone| format!("{} {} {:?}", code(&alone.name), alone.dtype, alone.shape);
        bullets(&mut out, title, list.iter().map(line).collect());
    }
    let side = |text: &Option<String>| text.as_deref().map_or_else(|| "(none)".to_owned(), code);
    let line = |what: &str, left: &Option<String>, right: &Option<String>| {
        format!("{}: {} → {}", code(what), side(left), side(right))
    };
    bullets(&mut out, "Metadata", report.metadata.iter().map(|c| line(&c.what, &c.left, &c.right)).collect());
    let programs = report.program.changes.iter().map(|c| {
        let part = c.part.as_ref().map_or_else(String::new, |part| format!(", {part}"));
        line(&format!("block {}: {}{part}", c.block, c.subject), &c.left, &c.right)
    });
    bullets_of(&mut out, "Program", programs.collect(), report.program.count());
    bullets(&mut out, "Notes", report.notes.iter().map(|note| code(note)).collect());
    let same = report.count(Status::Same);
    let _ = match report.values_compared {
        true => writeln!(out, "{} equal.", counted(same, "tensor is", "tensors are")),
        false => {
            let tensors = counted(same, "tensor has", "tensors have");
            writeln!(out, "{tensors} equal names, dtypes and shapes; values were not compared.")
        }
    };
    out
}

fn bullets(out: &mut String, title: &str, lines: Vec<String>) {
    let count = lines.len();
    bullets_of(out, title, lines, count);
}

/// Writes the first of `count` lines.
fn bullets_of(out: &mut String, title: &str, lines: Vec<String>, count: usize) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "**{title}**\n");
    for line in lines.iter().take(MAX_LINES) {
        let _ = writeln!(out, "- {line}");
    }
    more(out, count);
}

/// Writes the number of omitted lines, and a blank line.
fn more(out: &mut String, count: usize) {
    if count > MAX_LINES {
        let _ = writeln!(out, "\nand {} more", count - MAX_LINES);
    }
    out.push('\n');
}

/// Returns `text` as code in a line or a table cell.
fn code(text: &str) -> String {
    // A backtick would end the code, a bar the cell.
    format!("`{}`", escape(text).replace('`', "'").replace('|', "\\|"))
}
