//! `seal`: a manifest with the hashes of files and tensors.

use crate::args::{Common, Seal};
use crate::flags::flags;
use crate::output::{Output, human_bytes, human_counted};
use crate::{Failure, Outcome};
use std::io::Write;
use std::path::Path;
use weighbridge::Error;
use weighbridge::engine::LocalSink;
use weighbridge::ops::seal::{Manifest, SealOptions, SealReport, Sealed, seal};
use weighbridge::phrase::Worded;
use weighbridge::text::{escape, path_text};

pub(crate) fn run(args: &Seal, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let printed = args.output.as_deref() == Some(Path::new("-"));
    if printed && common.json {
        return Err(Error::usage("two-outputs", "-o - and --json both write to standard output")
            .hint("write the manifest to a file: -o FILE")
            .into());
    }
    let target = match &args.output {
        Some(given) => given.clone(),
        None => Manifest::default_path(&args.path)?,
    };
    let mut options = SealOptions::default();
    options.open = args.input.options()?;
    options.algorithms = args.algorithms;
    options.files_only = args.files_only;
    options.allow_symlinks = args.allow_symlinks;
    options.threads = args.threads;
    if !printed {
        // Checked before anything is read.
        LocalSink::check(&target, args.force)?;
        options.target = Some(target.clone());
    }
    options.progress = common.progress();
    let sealed = seal(&args.path, &options)?.worded(&flags);
    drop(options);
    if printed {
        sealed.manifest.write(&mut |line| output.write_all(line))?;
        return Ok(Outcome::Done);
    }
    sealed.save(&target, args.force)?;
    // The manifest of a damaged file does not cover all of it.
    if sealed.is_of_damaged() {
        output.outcome = Outcome::Finding;
    }
    if output.json {
        output.document(&sealed.to_json(&args.path, &target, args.algorithms))?;
    } else {
        text(args, &target, &sealed, output)?;
    }
    Ok(output.outcome)
}

fn text(args: &Seal, target: &Path, sealed: &Sealed, output: &mut Output) -> std::io::Result<()> {
    let report = &sealed.report;
    output.warn_of(&report.notes)?;
    output.first_rows(report.notes.iter().filter(|note| note.omission), |output, note| {
        output.warning("note", &format!("{}: {}", note.code, note.text))
    })?;
    let SealReport { files, tensors, bytes, .. } = report;
    let files_text = human_counted(*files, "file");
    let path = escape(&path_text(&args.path));
    let mut line = format!("sealed {path}: {files_text}, {}", human_bytes(*bytes));
    if !args.files_only {
        line.push_str(&format!(", {}", human_counted(*tensors, "tensor")));
    }
    writeln!(output, "{line}, {}", args.algorithms.names().join(" and "))?;
    if !report.left_out.is_empty() {
        let names: Vec<String> = report.left_out.iter().map(|name| escape(name)).collect();
        writeln!(output, "not sealed: {}", names.join(", "))?;
    }
    writeln!(output, "wrote {} (not signed)", escape(&path_text(target)))
}
