//! What a target cannot hold.

use crate::codes::LossCode;
use crate::phrase::{Face, Phrase, Worded};
use serde_json::{Value as Json, json};
use std::fmt;

/// Something that a target cannot hold, found while planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Stable, for programs.
    pub code: LossCode,
    /// The tensor or metadata key concerned, displayed.
    pub subject: String,
    /// What is lost, for people.
    pub detail: Phrase,
}

impl Loss {
    /// Codes of losses of which nothing is in the target: tensors, rows and their names, metadata, levels of
    /// sequences, programs. What any other code stands for is there, but not as it was: rounded, under another name,
    /// without its role.
    pub const LEFT_OUT: [LossCode; 24] = [
        LossCode::AttributeDropped,
        LossCode::Companion,
        LossCode::InfoEntries,
        LossCode::Lod,
        LossCode::MetadataConflict,
        LossCode::MetadataDropped,
        LossCode::MissingDamaged,
        LossCode::ModuleVersions,
        LossCode::Names,
        LossCode::NamesLeftOut,
        LossCode::NoPlace,
        LossCode::NotATable,
        LossCode::NotInProgram,
        LossCode::Omitted,
        LossCode::Program,
        LossCode::ReservedKey,
        LossCode::Rows,
        LossCode::RowsLeftOut,
        LossCode::StateDropped,
        LossCode::StateSlot,
        LossCode::TensorSkipped,
        LossCode::Tensors,
        LossCode::ValueDropped,
        LossCode::VersionUnread,
    ];

    /// Codes of losses of whole tensors: the source has a tensor that the target has not, without having been asked to leave it out.
    const WHOLE_TENSORS: [LossCode; 9] = [
        LossCode::MissingDamaged,
        LossCode::NoPlace,
        LossCode::NotATable,
        LossCode::NotInProgram,
        LossCode::StateDropped,
        LossCode::StateSlot,
        LossCode::TensorSkipped,
        LossCode::Tensors,
        LossCode::VersionUnread,
    ];

    /// A loss of `code` that concerns `subject`.
    pub fn new(code: impl Into<LossCode>, subject: impl fmt::Display, detail: impl Into<Phrase>) -> Self {
        Self { code: code.into(), subject: subject.to_string(), detail: detail.into() }
    }

    /// True where nothing of it is in the target; see [`LEFT_OUT`](Self::LEFT_OUT).
    pub fn is_left_out(&self) -> bool {
        Self::LEFT_OUT.contains(&self.code)
    }

    /// True where the loss is a tensor: `subject` is its name, and nothing of it is in the target.
    pub fn is_tensor(&self) -> bool {
        Self::WHOLE_TENSORS.contains(&self.code)
    }

    /// `{"code", "subject", "detail", "left_out", "tensor"}`.
    pub fn to_json(&self) -> Json {
        json!({
            "code": self.code.as_str(), "subject": self.subject, "detail": self.detail, "left_out": self.is_left_out(),
            "tensor": self.is_tensor(),
        })
    }
}

impl Worded for Loss {
    fn word(&mut self, face: Face<'_>) {
        self.detail.word(face);
    }
}
