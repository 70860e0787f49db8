//! Security scan: code that a Paddle file would run in Paddle, and information that it discloses.

use weighbridge_format::ReadFormat;
mod effects;

use super::any_program::{Form, Program, SourceLeak};
use super::program::is_source;
use super::state;
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Job, Opt};
use weighbridge_core::text::{counted, escape};
use weighbridge_core::topology::Topology;
use weighbridge_format::shards::scan as scan_index;
use weighbridge_format::{HEAD, OpenOptions, Scan};
use weighbridge_io::source::SourceRef;
use weighbridge_scan::{found, leads_out, pickles};

/// Maximum number of operators shown for a finding; further ones are counted.
const MAX_SHOWN: usize = 5;

/// Scans one file.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(HEAD))];
    source.read_at(0, &mut head)?;
    if Form::of(&head, source.len()).is_some() {
        return match Program::read(source, &options.limits) {
            Ok(program) => {
                let topology = program.topology();
                let mut findings = effects::effects(&topology, source.label());
                findings.extend(names(&topology, source.label()));
                findings.extend(leaks(&program, source));
                Ok(Scan::of_findings(findings))
            }
            Err(error) => Scan::of_error(error),
        };
    }
    if super::read::is_index(&head, source) {
        return scan_index(source, &options.limits).or_else(Scan::of_error);
    }
    if state::looks_like_pickle(&head, source) {
        let mut scan = Scan::default();
        pickles(source, 0, 1, false, &options.limits, &mut scan);
        return Ok(scan);
    }
    // Streams contain numbers only: a stream that is read to its end cannot contain code.
    match super::Paddle.open(source.clone(), options) {
        Ok(checkpoint) => Ok(Scan::of_notes(&checkpoint)),
        Err(error) => Scan::of_error(error),
    }
}

/// Reports variable names that lead out of the folder: the framework opens a file for each variable.
fn names(program: &Topology, label: &str) -> Vec<Finding> {
    let variables = || program.blocks.iter().flat_map(|block| &block.variables);
    let odd = || variables().filter(|variable| variable.persistable && leads_out(&variable.name));
    let mut findings: Vec<Finding> = odd()
        .take(MAX_SHOWN)
        .map(|variable| {
            let text = format!("the variable {} is stored in a file with this name", escape(&variable.name));
            found("name-leads-out", text).in_file(label)
        })
        .collect();
    let count = odd().count();
    if count > MAX_SHOWN {
        findings.push(found("name-leads-out", format!("{count} variables in total")).in_file(label));
    }
    findings
}

/// Reports the author's paths and lines of code in a program.
fn leaks(program: &Program, source: &SourceRef) -> Vec<Finding> {
    let (names, leaks): (Vec<_>, Vec<_>) = program.source_leaks().into_iter().partition(is_class_name);
    let mut findings = Vec::new();
    if let Some(first) = names.first() {
        let sample = first.sample.as_deref().unwrap_or_default();
        let operators = counted(names.len(), "operator discloses", "operators disclose");
        let text = format!("{operators} the names of the author's classes: {sample}");
        findings.push(Finding::warning("class-names", text).in_file(source.label()).hint(phrase![
            "use ",
            Job::Program.call().with(Opt::Strip.with("source")),
            " to remove them"
        ]));
    }
    for leak in leaks.iter().take(MAX_SHOWN) {
        let sample = leak.sample.as_ref().map_or_else(String::new, |line| format!(": {line}"));
        let text = format!(
            "attribute {} of {} contains source paths or code{sample}",
            leak.attribute, leak.operator
        );
        findings.push(found("source-code", text).in_file(source.label()).hint(phrase![
            "use ",
            Job::Program.call().with(Opt::Strip.with("source")),
            " to remove it"
        ]));
    }
    if leaks.len() > MAX_SHOWN {
        let bytes: u64 = leaks.iter().map(|leak| leak.bytes).sum();
        let text =
            format!("{} operators in total contain {bytes} bytes of source paths or code", leaks.len());
        findings.push(found("source-code", text).in_file(source.label()));
    }
    findings
}

/// True for a leak that is only the position of a layer among its classes, such as `/Net/Conv2D/`.
fn is_class_name(leak: &SourceLeak) -> bool {
    let whole = |sample: &String| sample.len() as u64 == leak.bytes && !is_source(sample.as_bytes());
    leak.attribute == "struct_name" && leak.sample.as_ref().is_some_and(whole)
}
