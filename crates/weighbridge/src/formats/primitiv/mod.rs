//! primitiv: MessagePack files of the primitiv toolkit.
use super::{Facts, Format, OpenOptions, PlanOptions};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::plan::WritePlan;
use crate::source::SourceRef;
use crate::tensor::{DType, Order};

/// The format.
#[derive(Debug)]
pub struct Primitiv;

static FACTS: Facts = Facts {
    id: "primitiv",
    title: "primitiv File Format v0.1 (MessagePack)",
    extensions: &[
        ("model", "model"),
        ("param", "parameter"),
        ("optimizer", "optimizer"),
        ("tensor", "tensor"),
        ("shape", "shape"),
    ],
    dtypes: &[DType::F32],
    order: Some(Order::Column),
};

impl Format for Primitiv {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        head.starts_with(b"\xce\0\0\0\0\xce\0\0\0\x01")
    }
    fn open(&self, _source: SourceRef, _options: &OpenOptions) -> Result<Checkpoint> {
        Err(Error::usage("later", "later"))
    }
    fn plan(&self, _checkpoint: &Checkpoint, _options: &PlanOptions) -> Result<WritePlan> {
        Err(Error::usage("later", "later"))
    }
}
