//! Phrases of reports, worded for the command or another user interface.

use crate::checkpoint::Checkpoint;
use crate::ops::diff::DiffReport;
use crate::ops::edit::{EditReport, Prepared, PreparedInPlace};
use crate::ops::info::Info;
use crate::ops::merge::PreparedMerge;
#[cfg(feature = "scan")]
use crate::ops::scan::ScanReport;
#[cfg(feature = "seal")]
use crate::ops::seal::{SealReport, Sealed};
#[cfg(feature = "safetensors")]
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
    EditReport: notes, losses;
    PreparedInPlace: edit;
    PreparedMerge: plan, notes;
}

#[cfg(feature = "seal")]
words_of! {
    SealReport: notes;
    Sealed: report;
}

#[cfg(feature = "safetensors")]
words_of! {
    PreparedShards: plan, notes;
}

impl Worded for Prepared {
    fn word(&mut self, face: Face<'_>) {
        self.report.word(face);
        self.plan.word(face);
        Checkpoint::word(&mut self.checkpoint, face);
    }
}

#[cfg(feature = "scan")]
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
