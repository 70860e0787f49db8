//! `scan`: code that loading a file elsewhere would run, leaked source code, suspicious content.

use crate::args::{Common, Scan};
use crate::flags::flags;
use crate::output::{BAD, DIM, HEADING, MAX_ROWS, Output, dangerous, human_counted, scan_verdict};
use crate::several::{self, Report};
use crate::streams::shown_of;
use crate::{Failure, Outcome};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::path::Path;
use weighbridge::OpenOptions;
use weighbridge::finding::{Finding, Severity, Verdict};
use weighbridge::ops::scan::{Category, Rule, ScanReport, ScannedFile, sarif_of_all, scan};
use weighbridge::ops::several::Counts;
use weighbridge::phrase::Worded;
use weighbridge::pickle::{GlobalFinding, ImportVerdict};
use weighbridge::text::{escape, first_and_more, path_text};

/// Maximum dangerous names in the headline of a file.
const MAX_CALLS: usize = 3;

pub(crate) fn run(args: &Scan, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    if args.list_rules {
        rules(output)?;
        return Ok(Outcome::Done);
    }
    let options = args.input.options()?;
    if args.sarif {
        return sarif(args, &options, output);
    }
    several::run(&args.paths, output, |path| look(args, path, &options))
}

/// Scans a path; warnings of denied categories become errors.
fn look(args: &Scan, path: &Path, options: &OpenOptions) -> weighbridge::Result<ScanReport> {
    let mut report = scan(path, options)?;
    report.deny(&args.deny);
    for file in &mut report.files {
        if file.label == report.label {
            file.label = shown_of(path, std::mem::take(&mut file.label));
        }
    }
    report.label = shown_of(path, report.label);
    Ok(report.worded(&flags))
}

/// Prints one SARIF log with one run for all paths.
fn sarif(args: &Scan, options: &OpenOptions, output: &mut Output) -> Result<Outcome, Failure> {
    if let [path] = args.paths.as_slice() {
        let report = look(args, path, options)?;
        output.outcome = report.verdict.into();
        output.document(&report.to_sarif())?;
        return Ok(output.outcome);
    }
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    let mut counts = Counts::default();
    for path in &args.paths {
        let scanned = look(args, path, options).map_err(|error| error.worded(&flags));
        counts.add(&scanned.as_ref().map(|report| report.verdict))?;
        match scanned {
            Ok(report) => reports.push(report),
            Err(error) => {
                let error = error.in_file(path_text(path));
                output.error(&error);
                failed.push((path.clone(), error));
            }
        }
    }
    output.outcome = counts.worst(args.paths.len()).into();
    output.document(&sarif_of_all(&reports, &failed))?;
    Ok(output.outcome)
}

impl Report for ScanReport {
    fn verdict(&self) -> Verdict {
        self.verdict
    }

    fn json(&self) -> impl Serialize {
        self.as_json()
    }

    fn text(&self, output: &mut Output) -> io::Result<()> {
        text(self, output)
    }

    fn begins_with_path(&self) -> bool {
        self.files.first().is_some_and(|file| file.label == self.label)
    }

    fn word(verdict: Verdict) -> String {
        // After a number of paths.
        if verdict == Verdict::Unsound {
            return format!("{BAD}with problems{BAD:#}");
        }
        scan_verdict(verdict)
    }
}

/// Prints every rule on one line, and its test file.
fn rules(output: &mut Output) -> io::Result<()> {
    if output.json {
        return output.document(&json!({ "rules": Rule::ALL.iter().map(Rule::to_json).collect::<Vec<_>>() }));
    }
    for rule in Rule::ALL {
        let (severity, category) = (rule.severity.as_str(), rule.category().as_str());
        writeln!(output, "{HEADING}{:<22}{HEADING:#} {severity:<9} {category:<9} {}", rule.code, rule.what)?;
        writeln!(output, "{DIM}{:42} test file: {}{DIM:#}", "", rule.proof)?;
    }
    Ok(())
}

fn text(report: &ScanReport, output: &mut Output) -> io::Result<()> {
    let many = report.files.len() > 1;
    // The first files of each verdict, so that clean files do not hide dangerous ones.
    let mut shown: Vec<(Verdict, usize)> = Vec::new();
    for file in &report.files {
        let verdict = file.verdict();
        let place = shown.iter().position(|(of, _)| *of == verdict).unwrap_or_else(|| {
            shown.push((verdict, 0));
            shown.len() - 1
        });
        if let Some((_, count)) = shown.get_mut(place) {
            *count += 1;
            if *count > MAX_ROWS {
                continue;
            }
        }
        headline(file, output)?;
        // Clean files among many take one line each, and their warnings.
        if many && verdict == Verdict::Sound {
            if file.scan.findings.iter().any(|finding| finding.severity == Severity::Warning) {
                findings(file, output)?;
            }
            continue;
        }
        imports(file, output)?;
        output.first_rows(&file.scan.calls, |output, call| {
            // Module and name, as in imports.
            let what = call.callable.as_deref().map(|what| what.replacen(' ', ".", 1));
            let what = what.unwrap_or_else(|| "a computed callable".to_owned());
            let times = if call.count > 1 { format!(" ({} times)", call.count) } else { String::new() };
            let (does, with) = match call.how {
                "NEWOBJ" => ("creates", ""),
                "NEWOBJ_EX" => ("creates", " with keyword arguments"),
                "INST" => ("instantiates", ""),
                "BUILD" => ("sets the state of", ""),
                _ => ("calls", ""),
            };
            writeln!(output, "  {does} {}{with}{times}", escape(&what))
        })?;
        findings(file, output)?;
    }
    for (verdict, count) in shown {
        let what = format!("files: {}", scan_verdict(verdict));
        output.more_rows(count.saturating_sub(MAX_ROWS), &what)?;
    }
    if many {
        let count = |verdict| report.files.iter().filter(|file| file.verdict() == verdict).count();
        let counts = [
            (count(Verdict::Sound), "clean"),
            (count(Verdict::Unsound), "with problems"),
            (count(Verdict::CouldNotTell), "could not tell"),
        ];
        let counts = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let counts = counts.collect::<Vec<_>>().join(", ");
        let files = human_counted(report.files.len(), "file");
        writeln!(
            output,
            "{HEADING}verdict  {HEADING:#} {}{}  {files}: {counts}",
            scan_verdict(report.verdict),
            warned(report.files.iter().map(warnings).sum())
        )?;
        let found = report.files.iter().filter(|file| file.verdict() == Verdict::Unsound);
        output.first_rows(found, |output, file| {
            let label = if running(file).next().is_some() { "dangerous" } else { "problems" };
            writeln!(output, "{HEADING}{label:<9}{HEADING:#} {}", escape(&file.label))
        })?;
    }
    Ok(())
}

/// Prints the verdict on a file: `evil.pt: DANGEROUS, loading it calls posix.system`, or the consequences of its findings.
fn headline(file: &ScannedFile, output: &mut Output) -> io::Result<()> {
    let (label, verdict) = (escape(&file.label), file.verdict());
    let dangerous_imports =
        file.scan.imports.iter().filter(|import| matches!(import.judgement, ImportVerdict::Dangerous(_)));
    let imports: BTreeSet<(&str, &str)> =
        dangerous_imports.map(|import| (import.module.as_str(), import.name.as_str())).collect();
    let called: HashSet<&str> = file.scan.calls.iter().filter_map(|call| call.callable.as_deref()).collect();
    let is_called = |(module, name): &&(&str, &str)| called.contains(format!("{module} {name}").as_str());
    let calls: Vec<_> = imports.iter().filter(is_called).collect();
    let (verb, names) =
        if calls.is_empty() { ("imports", imports.iter().collect()) } else { ("calls", calls) };
    let names = names.iter().map(|(module, name)| format!("{}.{}", escape(module), escape(name)));
    let mut categories: Vec<&str> = file
        .scan
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| consequence(Category::of(finding.code.as_str())))
        .collect();
    categories.sort_unstable();
    categories.dedup();
    let why = match (verdict, file.format) {
        (Verdict::Unsound, _) if !imports.is_empty() => {
            format!(", loading it {verb} {}", first_and_more(names, MAX_CALLS))
        }
        (Verdict::Unsound, _) => match running(file).next() {
            Some(finding) => format!(": {}", escape(&finding.text)),
            None => format!(": {}", categories.join(", ")),
        },
        (_, Some(format)) => format!("{} ({format})", warned(warnings(file))),
        (_, None) => format!("{} (unknown format)", warned(warnings(file))),
    };
    let word = if running(file).next().is_some() { dangerous() } else { scan_verdict(verdict) };
    writeln!(output, "{HEADING}{label}:{HEADING:#} {word}{why}")
}

/// Returns the consequence of the findings of a category, for the verdict on a file.
fn consequence(category: Category) -> &'static str {
    match category {
        Category::Code => "code may run",
        Category::Files => "it reaches other files or the network",
        Category::Privacy => "it discloses its author's code or paths",
        Category::Deception => "programs may read it differently",
        Category::Resources => "loading it may exhaust memory or time",
        Category::Unread => "a part was not scanned",
        Category::Remark => "see below",
    }
}

/// Number of warnings on a file.
fn warnings(file: &ScannedFile) -> usize {
    file.scan.findings.iter().filter(|finding| finding.severity == Severity::Warning).count()
}

/// Returns the number of warnings, for a verdict that does not tell of them.
fn warned(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", {}", human_counted(count, "warning")) }
}

/// Findings of code that runs when the file is loaded or used.
fn running(file: &ScannedFile) -> impl Iterator<Item = &Finding> {
    let runs = |finding: &&Finding| {
        finding.severity == Severity::Error && Category::of(finding.code.as_str()) == Category::Code
    };
    file.scan.findings.iter().filter(runs)
}

/// Prints findings; one that repeats at several places is printed once.
fn findings(file: &ScannedFile, output: &mut Output) -> io::Result<()> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    let mut places = HashMap::new();
    for found in &file.scan.findings {
        let what = (found.severity, found.code, &found.text, &found.file, &found.hint);
        let place = *places.entry(what).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(found),
            None => groups.push(vec![found]),
        }
    }
    output.first_rows(groups, |output, group| match group.as_slice() {
        [first, others @ ..] => output.finding_again(first, others),
        [] => Ok(()),
    })
}

/// Prints each import once, with the number of its uses.
fn imports(file: &ScannedFile, output: &mut Output) -> io::Result<()> {
    let mut seen: Vec<(&GlobalFinding, usize)> = Vec::new();
    let mut places = HashMap::new();
    for found in &file.scan.imports {
        let what = (&found.module, &found.name, found.judgement.as_str());
        let place = *places.entry(what).or_insert(seen.len());
        match seen.get_mut(place) {
            Some((_, count)) => *count += 1,
            None => seen.push((found, 1)),
        }
    }
    output.first_rows(seen, |output, (GlobalFinding { module, name, judgement, .. }, count)| {
        let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
        let word = if let ImportVerdict::Pattern(_) = judgement { "conditional" } else { judgement.as_str() };
        let line = format!("{word} {}.{}{times}", escape(module), escape(name));
        match judgement.text() {
            "" => writeln!(output, "  import {line}"),
            text => writeln!(output, "  import {line}{DIM}  {}{DIM:#}", escape(text)),
        }
    })
}
