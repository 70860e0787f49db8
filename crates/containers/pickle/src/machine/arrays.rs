//! joblib arrays: the description of an array is followed by its bytes, or by a pickle of its objects.

use super::Machine;
use crate::decode::Opcodes;
use crate::graph::ObjectId;
use crate::inspect::ARRAY_OF_JOBLIB;
use crate::known_calls::element_size;
use crate::opened::JoblibArray;
use std::collections::HashMap;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Severity;

/// State of the outer pickle while the pickle of an object array is read.
#[derive(Debug)]
pub(super) struct OuterPickle {
    stack: Vec<ObjectId>,
    marks: Vec<usize>,
    memo: Vec<ObjectId>,
    far: HashMap<u64, ObjectId>,
    protocol: Option<u8>,
}

impl Machine<'_> {
    /// Skips the bytes of an array if the top of the stack is its complete description.
    pub(super) fn array(&mut self, opcodes: &mut Opcodes) -> Result<()> {
        let top = self.top()?;
        let Some(made) = self.graph.made(top).filter(|_| self.outer.is_none()) else { return Ok(()) };
        let (Some(ARRAY_OF_JOBLIB), Some(state)) = (self.graph.global(made.callable), made.state()) else {
            return Ok(());
        };
        let entry = |name: &str| {
            let pairs = self.graph.pairs(state)?;
            pairs.iter().rev().find(|&&(key, _)| self.graph.text(key) == Some(name)).map(|&(_, value)| value)
        };
        let wrong = || Error::corrupt("joblib-array", "the joblib array has no valid shape or dtype");
        let shape = entry("shape").and_then(|shape| self.graph.sequence(shape)).ok_or_else(wrong)?;
        let count = shape
            .iter()
            .try_fold(1u64, |count, &dim| count.checked_mul(u64::try_from(self.graph.int(dim)?).ok()?));
        let kind = entry("dtype").and_then(|kind| element_size(&self.graph, kind, self.at));
        let padded = entry("numpy_array_alignment_bytes").is_some_and(|id| id != ObjectId::NONE);
        let ((size, objects), count) = kind.zip(count).ok_or_else(wrong)?;
        // The frame must end before the bytes: joblib reads them from the file, after the whole frame.
        if self.frame_end.take().is_some_and(|end| end > Opcodes::position(opcodes)) {
            let text = "the frame of a joblib array description does not end at the array bytes";
            self.note(Severity::Error, "unusual-call", self.at, text);
        }
        self.held.take(size_of::<JoblibArray>() as u64)?;
        if objects {
            let offset = Opcodes::position(opcodes);
            self.arrays.push(JoblibArray { object: top, offset, content: None });
            self.outer = Some(Box::new(OuterPickle {
                stack: std::mem::take(&mut self.stack),
                marks: std::mem::take(&mut self.marks),
                memo: std::mem::take(&mut self.memo),
                far: std::mem::take(&mut self.far),
                protocol: self.protocol,
            }));
            return Ok(());
        }
        let what = "a joblib array";
        if padded {
            let padding = opcodes.data_byte(what)?;
            opcodes.skip_data(u64::from(padding), what)?;
        }
        let offset = Opcodes::position(opcodes);
        self.arrays.push(JoblibArray { object: top, offset, content: None });
        opcodes.skip_data(count.checked_mul(size).ok_or_else(wrong)?, what)
    }

    /// Returns to the outer pickle at the end of the pickle of an object array; false without an outer pickle.
    pub(super) fn resume_outer(&mut self) -> bool {
        let Some(outer) = self.outer.take() else { return false };
        if let Some(array) = self.arrays.last_mut() {
            array.content = Some(self.root);
        }
        let OuterPickle { stack, marks, memo, far, protocol } = *outer;
        (self.stack, self.marks, self.memo, self.far) = (stack, marks, memo, far);
        self.protocol = protocol;
        self.frame_end = None;
        true
    }
}
