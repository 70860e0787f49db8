//! Losses: data that a target format cannot represent.

use crate::codes::LossCode;
use crate::phrase::{Face, Phrase, Worded};
use serde_json::{Value as Json, json};
use std::fmt;

/// Loss of a conversion, found while planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Stable code, for programs.
    pub code: LossCode,
    /// Display name of the affected tensor or metadata key.
    pub subject: String,
    /// Description for users.
    pub detail: Phrase,
}

impl Loss {
    /// Codes of complete losses, with nothing left in the target: tensors, rows and their names, metadata, levels of sequences,
    /// programs. With any other code the data is in the target, but changed: rounded, under another name, without its role.
    pub const LEFT_OUT: [LossCode; 26] = [
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
        LossCode::NotInGraph,
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
        LossCode::Unused,
        LossCode::ValueDropped,
        LossCode::VersionUnread,
    ];

    /// Codes of lost tensors: the target lacks a tensor of the source that the user did not drop.
    const WHOLE_TENSORS: [LossCode; 10] = [
        LossCode::MissingDamaged,
        LossCode::NoPlace,
        LossCode::NotATable,
        LossCode::NotInGraph,
        LossCode::NotInProgram,
        LossCode::StateDropped,
        LossCode::StateSlot,
        LossCode::TensorSkipped,
        LossCode::Tensors,
        LossCode::VersionUnread,
    ];

    /// Subject of a loss of tensors whose names and number are unknown.
    pub const UNKNOWN_TENSORS: &'static str = "tensors behind the damage";

    /// Creates a loss of `code` for `subject`.
    pub fn new(code: impl Into<LossCode>, subject: impl fmt::Display, detail: impl Into<Phrase>) -> Self {
        Self { code: code.into(), subject: subject.to_string(), detail: detail.into() }
    }

    /// Returns true for a complete loss; see [`LEFT_OUT`](Self::LEFT_OUT).
    pub fn is_left_out(&self) -> bool {
        Self::LEFT_OUT.contains(&self.code)
    }

    /// Returns true for a lost tensor: `subject` is its name or [`UNKNOWN_TENSORS`](Self::UNKNOWN_TENSORS), and the target does not contain it.
    pub fn is_tensor(&self) -> bool {
        Self::WHOLE_TENSORS.contains(&self.code)
    }

    /// Returns `{"code", "subject", "detail", "left_out", "tensor"}`.
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
