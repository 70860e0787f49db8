//! Arrays of joblib: behind the description of each stand its bytes, or a pickle of its objects.

use super::Machine;
use crate::decode::Opcodes;
use crate::graph::ObjectId;
use crate::inspect::ARRAY_OF_JOBLIB;
use crate::known_calls::element_size;
use std::collections::HashMap;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Severity;

/// What a machine goes on with behind the pickle of the objects of an array.
#[derive(Debug)]
pub(super) struct Around {
    stack: Vec<ObjectId>,
    marks: Vec<usize>,
    memo: Vec<ObjectId>,
    far: HashMap<u64, ObjectId>,
    protocol: Option<u8>,
}

impl Machine<'_> {
    /// Goes behind the bytes of the array whose description is complete, where the top of the stack is one.
    pub(super) fn array(&mut self, opcodes: &mut Opcodes) -> Result<()> {
        let top = self.top()?;
        let Some(made) = self.graph.made(top).filter(|_| self.around.is_none()) else { return Ok(()) };
        let (Some(ARRAY_OF_JOBLIB), Some(state)) = (self.graph.global(made.callable), made.state()) else {
            return Ok(());
        };
        let entry = |name: &str| {
            let pairs = self.graph.pairs(state)?;
            pairs.iter().rev().find(|&&(key, _)| self.graph.text(key) == Some(name)).map(|&(_, value)| value)
        };
        let wrong =
            || Error::corrupt("joblib-array", "the description of an array of joblib has no shape or type");
        let shape = entry("shape").and_then(|shape| self.graph.sequence(shape)).ok_or_else(wrong)?;
        let count = shape
            .iter()
            .try_fold(1u64, |count, &extent| count.checked_mul(u64::try_from(self.graph.int(extent)?).ok()?));
        let kind = entry("dtype").and_then(|kind| element_size(&self.graph, kind, self.at));
        let padded = entry("numpy_array_alignment_bytes").is_some_and(|id| id != ObjectId::NONE);
        let ((size, objects), count) = kind.zip(count).ok_or_else(wrong)?;
        // A frame ends before the bytes: joblib reads them from the file, in which the frame was read to its end.
        if self.frame_end.take().is_some_and(|end| end > Opcodes::position(opcodes)) {
            let text = "an array of joblib is described within a frame, and its bytes are behind the frame";
            self.note(Severity::Error, "unusual-call", self.at, text);
        }
        if objects {
            self.around = Some(Box::new(Around {
                stack: std::mem::take(&mut self.stack),
                marks: std::mem::take(&mut self.marks),
                memo: std::mem::take(&mut self.memo),
                far: std::mem::take(&mut self.far),
                protocol: self.protocol,
            }));
            return Ok(());
        }
        let what = "an array of joblib";
        if padded {
            let padding = opcodes.one(what)?;
            opcodes.hop_over(u64::from(padding), what)?;
        }
        opcodes.hop_over(count.checked_mul(size).ok_or_else(wrong)?, what)
    }

    /// At the end of the pickle of the objects of an array, goes back to the pickle around it; false where there is none.
    pub(super) fn go_on_behind(&mut self) -> bool {
        let Some(around) = self.around.take() else { return false };
        let Around { stack, marks, memo, far, protocol } = *around;
        (self.stack, self.marks, self.memo, self.far) = (stack, marks, memo, far);
        self.protocol = protocol;
        self.frame_end = None;
        true
    }
}
