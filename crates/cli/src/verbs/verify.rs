//! `verify`: integrity of a file or folder.

use crate::args::{Common, Verify};
use crate::output::{DIM, HEADING, Output, human_bytes, human_count, human_counted, verdict};
use crate::several::{self, Report};
use crate::streams::shown_of;
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use serde::Serialize;
use std::collections::HashSet;
use std::io::{self, Write};
use weighbridge::Error;
use weighbridge::check::{Account, Use};
use weighbridge::finding::Verdict;
use weighbridge::formats::OtherFile;
use weighbridge::ops::seal::{Checked, verify_sealed};
use weighbridge::ops::verify::{VerifyOptions, VerifyReport, verify};
use weighbridge::phrase::{Face, Worded};
use weighbridge::text::{counted, escape, first_and_more};

pub(crate) fn run(args: &Verify, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let options = VerifyOptions {
        open: args.input.options()?,
        values: args.values,
        deny_nonfinite: args.deny_nonfinite,
        threads: args.threads,
    };
    if args.manifest.is_some() && args.paths.len() > 1 {
        return Err(Error::usage(
            "several-paths",
            "a manifest describes one file or folder, but several paths are given",
        )
        .found(args.paths.len())
        .hint("verify each path with its own manifest, or seal and verify their folder")
        .into());
    }
    several::run(&args.paths, output, |path| {
        let (mut report, sealed) = match &args.manifest {
            Some(manifest) => {
                let progress = common.progress();
                let (report, checked) = verify_sealed(path, manifest, &options, args.tensors_only, progress)?;
                (report, Some(checked))
            }
            None => (verify(path, &options)?, None),
        };
        report.label = shown_of(path, report.label);
        Ok(Verified { report, sealed, account: args.account })
    })
}

/// Report on one path.
struct Verified {
    report: VerifyReport,
    sealed: Option<Checked>,
    account: bool,
}

impl Worded for Verified {
    fn word(&mut self, face: Face<'_>) {
        self.report.word(face);
    }
}

impl Report for Verified {
    fn verdict(&self) -> Verdict {
        self.report.verdict
    }

    fn json(&self) -> impl Serialize {
        self.report.as_json_with(self.account, self.sealed.as_ref())
    }

    fn text(&self, output: &mut Output) -> io::Result<()> {
        text(&self.report, self.sealed.as_ref(), self.account, output)
    }

    fn begins_with_path(&self) -> bool {
        false
    }

    fn word(verdict: Verdict) -> String {
        crate::output::verdict(verdict)
    }
}

fn text(
    report: &VerifyReport,
    sealed: Option<&Checked>,
    account: bool,
    output: &mut Output,
) -> io::Result<()> {
    output.first_rows(&report.findings, |output, finding| output.finding(finding))?;
    if account {
        ranges(&report.files, output)?;
    }
    let mut line = |label: &str, text: String| writeln!(output, "{HEADING}{label:<9}{HEADING:#} {text}");
    line("path", escape(&report.label))?;
    let mut parts = [report.format, report.kind].into_iter().flatten().collect::<Vec<_>>();
    parts.dedup();
    line("format", if parts.is_empty() { "unknown".to_owned() } else { parts.join(" ") })?;
    // The JSON report has the old name of extents.
    let checked = report.checked.iter().map(|&part| if part == "pieces" { "extents" } else { part });
    line("checked", checked.collect::<Vec<_>>().join(", "))?;
    // One line per file, for at most this number of files without --account.
    const MANY: usize = 8;
    let shown = if account { report.files.len() } else { MANY };
    let mut before = HashSet::new();
    for file in report.files.iter().take(shown) {
        let name = match (report.files.len(), before.insert(&file.file)) {
            // The name of a single file is printed above already.
            (1, _) => String::new(),
            (_, true) => format!("{}: ", escape(&file.file)),
            // For example tensors that are numbers in a pickle.
            (_, false) => format!("{}, made while reading: ", escape(&file.file)),
        };
        line("bytes", format!("{name}{}", sums(file)))?;
    }
    if report.files.len() > shown {
        let more = human_counted(report.files.len() - shown, "more file");
        line("", format!("and {more}; --account lists them all"))?;
    }
    if !report.other_files.is_empty() {
        line("others", others(&report.other_files))?;
    }
    if let Some(checked) = sealed {
        line("manifest", counts(checked))?;
    }
    let about = match report.other_models() {
        0 => "",
        1 => " (this model only; the folder contains another model file)",
        _ => " (this model only; the folder contains other model files)",
    };
    // Without checksums, a changed value is not a finding.
    let unproved = match (report.verdict, sealed.is_some() || report.checked.contains(&"checksums")) {
        (Verdict::Sound, false) if report.format.is_some() => {
            ", but its tensors have no checksums of their own"
        }
        _ => "",
    };
    line("verdict", format!("{}{unproved}{about}", verdict(report.verdict)))
}

/// Formats `2 files of the folder are not part of the model: README.md 1.2 KiB, a.pt 4.4 KiB`.
fn others(files: &[OtherFile]) -> String {
    const MOST: usize = 8;
    let one = |file: &OtherFile| format!("{} {}", escape(&file.path), human_bytes(file.bytes));
    let shown = first_and_more(files.iter().map(one), MOST);
    let all = if files.len() > MOST { "; --json lists them all" } else { "" };
    let what = counted(files.len(), "file of the folder is", "files of the folder are");
    format!("{what} not part of the model: {shown}{all}")
}

/// Formats `files: 3 unchanged, 1 changed; tensors: 12 unchanged`.
fn counts(checked: &Checked) -> String {
    let side = |what: &str, counts: &[(usize, &str)]| {
        let shown = counts.iter().enumerate().filter(|(place, (n, _))| *place == 0 || *n > 0);
        let shown: Vec<String> =
            shown.map(|(_, (n, word))| format!("{} {word}", human_count(*n as u64))).collect();
        format!("{what}: {}", shown.join(", "))
    };
    let files = checked.files.map(|c| {
        let counts =
            [(c.equal, "unchanged"), (c.changed, "changed"), (c.missing, "missing"), (c.extra, "extra")];
        side("files", &counts)
    });
    let tensors = checked.tensors.map(|c| {
        let counts = [
            (c.equal, "unchanged"),
            (c.changed, "changed"),
            (c.renamed, "renamed"),
            (c.missing, "missing"),
            (c.extra, "extra"),
            (c.unchecked, "without a hash"),
        ];
        side("tensors", &counts)
    });
    let parts: Vec<String> = [files, tensors].into_iter().flatten().collect();
    if parts.is_empty() { "nothing was compared".to_owned() } else { parts.join("; ") }
}

/// Formats `1.2 KiB: tensors 1.0 KiB, header 200 B`.
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
