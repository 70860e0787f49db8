//! Verbs with several paths: one report each. The worst outcome decides the exit code.

use crate::flags::flags;
use crate::output::{HEADING, Output};
use crate::streams::{hide_spools, shown};
use crate::{Failure, Outcome};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weighbridge::Error;
use weighbridge::finding::Verdict;
use weighbridge::ops::several::{Counts, of_all, unread};
use weighbridge::phrase::Worded;
use weighbridge::text::escape;

/// Report of a verb on one path.
pub(crate) trait Report: Worded {
    /// Returns the verdict.
    fn verdict(&self) -> Verdict;
    /// Returns the JSON document.
    fn json(&self) -> impl Serialize;
    /// Prints the report as text.
    fn text(&self, output: &mut Output) -> io::Result<()>;
    /// Returns true if the first line of the text contains the path.
    fn begins_with_path(&self) -> bool;
    /// Returns the coloured word for a verdict of this verb.
    fn word(verdict: Verdict) -> String;
}

/// Runs `look` on each path and prints the reports.
///
/// One path gives one document or text. Several paths give a list of documents, or texts under headings and a line of
/// totals. With several paths, an unreadable one is reported and does not stop the others.
///
/// # Errors
/// For one path, the error of `look`; for several, only [`weighbridge::Kind::Cancelled`].
pub(crate) fn run<R: Report>(
    paths: &[PathBuf],
    output: &mut Output,
    look: impl Fn(&Path) -> Result<R, Error>,
) -> Result<Outcome, Failure> {
    if let [path] = paths {
        let report = look(path)?.worded(&flags);
        output.outcome = report.verdict().into();
        if output.json {
            output.document(&report.json())?;
        } else {
            report.text(output)?;
        }
        return Ok(output.outcome);
    }
    let mut documents = Vec::new();
    let mut counts = Counts::default();
    for path in paths {
        let looked = look(path).map(|report| report.worded(&flags)).map_err(|error| error.worded(&flags));
        counts.add(&looked.as_ref().map(Report::verdict))?;
        output.outcome = counts.worst(paths.len()).into();
        match looked {
            Ok(report) if output.json => {
                documents.push(serde_json::to_value(report.json()).map_err(io::Error::from)?)
            }
            Ok(report) => {
                if !report.begins_with_path() {
                    heading(path, output)?;
                }
                report.text(output)?;
                writeln!(output)?;
            }
            Err(error) if output.json => {
                let mut document = unread(&shown(path), &error);
                hide_spools(&mut document);
                documents.push(document);
            }
            Err(error) => {
                heading(path, output)?;
                writeln!(output, "unreadable: {}\n", escape(error.message()))?;
                output.error(&crate::suggest::with_similar_files(error.in_file(shown(path))));
            }
        }
    }
    if output.json {
        output.document(&of_all(documents))?;
    } else {
        writeln!(output, "{HEADING}paths    {HEADING:#} {}", text(&counts, <R as Report>::word))?;
    }
    Ok(output.outcome)
}

fn heading(path: &Path, output: &mut Output) -> io::Result<()> {
    writeln!(output, "{HEADING}{}{HEADING:#}", escape(&shown(path)))
}

/// Formats totals: `3: 1 sound, 1 unsound, 1 unreadable`.
fn text(counts: &Counts, word: impl Fn(Verdict) -> String) -> String {
    let each = [
        (counts.sound, word(Verdict::Sound)),
        (counts.unsound, word(Verdict::Unsound)),
        (counts.could_not_tell, word(Verdict::CouldNotTell)),
        (counts.failed, "unreadable".to_owned()),
    ];
    let each = each.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    format!("{}: {}", counts.all(), each.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_outcome_counts() {
        let of = |verdicts: &[Option<Verdict>], paths: usize| {
            let mut counts = Counts::default();
            let error = Error::usage("x", "y");
            for verdict in verdicts {
                assert!(counts.add(&verdict.ok_or(&error)).is_ok());
            }
            (Outcome::from(counts.worst(paths)), text(&counts, |verdict| verdict.as_str().to_owned()))
        };
        let (sound, open, unsound) =
            (Some(Verdict::Sound), Some(Verdict::CouldNotTell), Some(Verdict::Unsound));
        assert_eq!(of(&[sound, sound], 2), (Outcome::Done, "2: 2 sound".to_owned()));
        assert_eq!(of(&[sound], 2).0, Outcome::CouldNotTell);
        assert_eq!(of(&[sound, open], 2).0, Outcome::CouldNotTell);
        assert_eq!(of(&[open, None], 2), (Outcome::Failed, "2: 1 could-not-tell, 1 unreadable".to_owned()));
        assert_eq!(of(&[None, unsound, sound], 3).0, Outcome::Finding);
        assert!(Counts::default().add(&Err(&Error::cancelled())).is_err());
    }
}
