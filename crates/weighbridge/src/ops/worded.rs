//! The phrases of reports, in the words of a face.

use crate::checkpoint::Checkpoint;
use crate::ops::diff::DiffReport;
use crate::ops::edit::{EditReport, Prepared, PreparedInPlace};
use crate::ops::info::Info;
use crate::ops::merge::PreparedMerge;
use crate::ops::scan::ScanReport;
use crate::ops::seal::{SealReport, Sealed};
use crate::ops::shard::PreparedShards;
use crate::ops::verify::VerifyReport;
use crate::phrase::{Face, Worded};

macro_rules! words_of {
    ($($of:ty: $($field:ident).+ $(, $more:ident)*;)*) => {$(
        impl Worded for $of {
            fn word(&mut self, face: Face<'_>) {
                self.$($field).+.word(face);
                $(self.$more.word(face);)*
            }
        }
    )*};
}

words_of! {
    Info: notes;
    VerifyReport: findings;
    SealReport: notes;
    Sealed: report;
    EditReport: notes, losses;
    PreparedInPlace: edit;
    PreparedMerge: plan, notes;
    PreparedShards: plan, notes;
}

impl Worded for Prepared {
    fn word(&mut self, face: Face<'_>) {
        self.report.word(face);
        self.plan.word(face);
        Checkpoint::word(&mut self.checkpoint, face);
    }
}

impl Worded for ScanReport {
    fn word(&mut self, face: Face<'_>) {
        for file in &mut self.files {
            file.scan.findings.word(face);
        }
    }
}

impl Worded for DiffReport {
    fn word(&mut self, face: Face<'_>) {
        self.notes.word(face);
        for pair in &mut self.pairs {
            if let Some(finding) = &mut pair.unread {
                finding.word(face);
            }
        }
    }
}
