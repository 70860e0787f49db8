//! The tables of formats in the README, in the overview of the book and on the pages of formats say what the formats say of themselves.
//!
//! `SNAPSHOTS=overwrite cargo test -p weighbridge --test it format_tables` writes them anew.

use std::path::PathBuf;
use weighbridge::formats::{FormatInfo, registry};
use weighbridge_testkit::testdata;

const README: &str = "| format | read | written | not read |\n";
const OVERVIEW: &str = "| format | `--from`, `--to` | extensions | read | written | not read |\n";
const PAGE: &str = "| extensions | read | written | not read |\n";

fn book(page: &str) -> PathBuf {
    testdata("../docs/src").join(page)
}

/// Replaces the table with this head in a page, and returns the page; a page without it gets the table before its first section.
fn with_table(page: &str, head: &str, rows: &str) -> String {
    let columns = head.matches('|').count() - 1;
    let table = format!("{head}|{}\n{rows}", " --- |".repeat(columns));
    let Some(start) = page.find(head) else {
        let section = page.find("\n## ").unwrap();
        return format!("{}\n{table}{}", &page[..section], &page[section..]);
    };
    let length = page[start..].find("\n\n").map_or(page.len() - start, |at| at + 1);
    format!("{}{table}{}", &page[..start], &page[start + length..])
}

fn written(info: &FormatInfo) -> &str {
    if info.coverage.written.is_empty() { "no" } else { info.coverage.written }
}

fn extensions(info: &FormatInfo) -> String {
    let all: Vec<_> = info.extensions.iter().map(|(extension, _)| format!("`.{extension}`")).collect();
    if all.is_empty() { "none: a folder".to_owned() } else { all.join(" ") }
}

/// Formats in the order of their pages in the book.
fn formats() -> Vec<&'static FormatInfo> {
    let summary = std::fs::read_to_string(book("SUMMARY.md")).unwrap();
    let place = |info: &FormatInfo| summary.find(&format!("](formats/{}.md)", info.id)).unwrap();
    let mut all: Vec<_> = registry().iter().map(|format| format.info()).collect();
    all.sort_by_key(|info| place(info));
    all
}

/// Compares a file with its generated text, or writes it.
fn hold(path: PathBuf, generate: impl Fn(&str) -> String) {
    let page = std::fs::read_to_string(&path).unwrap();
    let generated = generate(&page);
    if std::env::var("SNAPSHOTS").is_ok_and(|mode| mode == "overwrite") {
        std::fs::write(&path, &generated).unwrap();
    } else {
        assert_eq!(page, generated, "{}", path.display());
    }
}

#[test]
fn tables_of_formats_are_those_of_the_formats() {
    let (mut readme, mut overview) = (String::new(), String::new());
    for info in formats() {
        let (coverage, extensions) = (&info.coverage, extensions(info));
        let row = format!("{} | {} | {} |\n", coverage.read, written(info), coverage.not_read)
            .replace("|  |", "| |");
        readme.push_str(&format!("| {} | {row}", coverage.name));
        overview.push_str(&format!("| [{}]({1}.md) | `{1}` | {extensions} | {row}", coverage.name, info.id));
        let page = book(&format!("formats/{}.md", info.id));
        hold(page, |page| with_table(page, PAGE, &format!("| {extensions} | {row}")));
    }
    hold(testdata("../README.md"), |page| with_table(page, README, &readme));
    let count =
        |writes: bool| formats().iter().filter(|info| !writes || !info.coverage.written.is_empty()).count();
    let sentence = format!("Weighbridge reads {} formats and writes {} of them.", count(false), count(true));
    hold(book("formats/overview.md"), |page| {
        let start = page.find("Weighbridge reads ").unwrap();
        let end = start + page[start..].find('.').unwrap() + 1;
        let page = format!("{}{sentence}{}", &page[..start], &page[end..]);
        with_table(&page, OVERVIEW, &overview)
    });
}

#[test]
fn a_format_that_says_so_has_a_writer() {
    for format in registry().iter() {
        let info = format.info();
        assert_eq!(format.writer().is_some(), !info.coverage.written.is_empty(), "{}", info.id);
    }
}
