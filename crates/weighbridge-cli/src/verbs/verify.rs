//! `verify`: is a file whole and consistent?

use crate::args::{Common, Verify};
use crate::output::{DIM, HEADING, Output, human_bytes, verdict};
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use std::io::{self, Write};
use weighbridge::check::{Account, Use};
use weighbridge::ops::verify::{VerifyOptions, VerifyReport, verify};
use weighbridge::text::escape;

pub(crate) fn run(args: &Verify, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let options = VerifyOptions { open: args.input.options()?, values: args.values, threads: args.threads };
    let report = verify(&args.path, &options)?;
    output.outcome = report.verdict.into();
    if output.json {
        output.document(&report.to_json(args.account))?;
    } else {
        text(&report, args.account, output)?;
    }
    Ok(output.outcome)
}

fn text(report: &VerifyReport, account: bool, output: &mut Output) -> io::Result<()> {
    for finding in &report.findings {
        output.finding(finding)?;
    }
    if account {
        ranges(&report.files, output)?;
    }
    let mut line = |label: &str, text: String| writeln!(output, "{HEADING}{label:<9}{HEADING:#} {text}");
    line("path", escape(&report.label))?;
    let parts = [report.format, report.kind].into_iter().flatten().collect::<Vec<_>>();
    line("format", if parts.is_empty() { "not known".to_owned() } else { parts.join(" ") })?;
    line("checked", report.checked.join(", "))?;
    // A line a file, unless there are many and nobody asked.
    const MANY: usize = 8;
    let shown = if account { report.files.len() } else { MANY };
    for file in report.files.iter().take(shown) {
        // Where there is one file, its name stands above already.
        let name = if report.files.len() > 1 { format!("{}: ", escape(&file.file)) } else { String::new() };
        line("bytes", format!("{name}{}", sums(file)))?;
    }
    if report.files.len() > shown {
        line("", format!("and {} more files; --account lists them all", report.files.len() - shown))?;
    }
    line("verdict", verdict(report.verdict))
}

/// `1.2 KiB: tensors 1.0 KiB, header 200 B`.
fn sums(file: &Account) -> String {
    let mut text = human_bytes(file.bytes);
    let mut before = ":";
    for (used, word) in [
        (Use::Tensor, "tensors"),
        (Use::Header, "header"),
        (Use::Padding, "padding"),
        (Use::Unknown, "unknown"),
    ] {
        let bytes = file.bytes_of(used);
        if bytes > 0 {
            text.push_str(&format!("{before} {word} {}", human_bytes(bytes)));
            before = ",";
        }
    }
    text
}

fn ranges(files: &[Account], output: &mut Output) -> io::Result<()> {
    for file in files {
        writeln!(output, "{DIM}{}{DIM:#}", escape(&file.file))?;
        let mut table = Table::new(&[
            ("offset", Align::Right),
            ("bytes", Align::Right),
            ("use", Align::Left),
            ("what", Align::Left),
            ("tensor", Align::Left),
        ]);
        for span in &file.spans {
            table.row([
                span.offset.to_string(),
                span.len.to_string(),
                span.used.as_str().to_owned(),
                escape(&span.what),
                span.tensor.as_deref().map_or_else(String::new, escape),
            ]);
        }
        table.print(output)?;
        let all: u64 = Use::ALL.iter().map(|&used| file.bytes_of(used)).sum();
        writeln!(output, "{DIM}{all} of {} bytes are accounted for{DIM:#}", file.bytes)?;
    }
    Ok(())
}
