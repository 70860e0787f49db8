//! Content of a program, with byte ranges in the text.

use std::ops::Range;
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{Attribute, VariableKind};

/// Program.
#[derive(Debug, Clone)]
pub(super) struct Model {
    /// `base_code.version`.
    pub(super) version: i64,
    /// `base_code.trainable`; false if it is missing.
    pub(super) trainable: bool,
    /// Main block first; bodies of control flow follow in file order.
    pub(super) blocks: Vec<Block>,
}

/// Sequence of operators.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    pub(super) parent: Option<usize>,
    pub(super) arguments: Vec<Value>,
    pub(super) operators: Vec<Op>,
    /// Byte range of the operator list.
    pub(super) list: Range<usize>,
}

/// Operator.
#[derive(Debug, Clone)]
pub(super) struct Op {
    /// Full name, such as `pd_op.conv2d`.
    pub(super) name: String,
    pub(super) attributes: Vec<Attr>,
    /// Ids of the operands; 0 means no value.
    pub(super) operands: Vec<i64>,
    pub(super) results: Vec<Value>,
    /// Indices of the bodies in [`Model::blocks`].
    pub(super) blocks: Vec<usize>,
    /// Name of a tensor, if the operator has one.
    pub(super) named: Option<Named>,
    /// Byte ranges of the attribute lists.
    pub(super) lists: Vec<Range<usize>>,
    /// Byte range of the operator.
    pub(super) span: Range<usize>,
}

/// Attribute of an operator.
#[derive(Debug, Clone)]
pub(super) struct Attr {
    pub(super) attribute: Attribute,
    /// Index of the containing list in [`Op::lists`].
    pub(super) list: usize,
    /// Byte range of the attribute.
    pub(super) span: Range<usize>,
}

/// Tensor name used by an operator.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) name: String,
    /// Byte range of the name with its quotes.
    pub(super) span: Range<usize>,
    /// True if the operator declares the tensor, false if it writes or reads it.
    pub(super) declares: bool,
}

/// Value: the result of an operator or the argument of a block.
#[derive(Debug, Clone)]
pub(super) struct Value {
    /// Positive for results, negative for block arguments, 0 for no value.
    pub(super) id: i64,
    pub(super) kind: Type,
    /// Byte range of the type.
    pub(super) text: Range<usize>,
    /// `None` if the file has no flag.
    pub(super) persistable: Option<bool>,
    pub(super) stop_gradient: bool,
}

/// Type of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Type {
    pub(super) kind: VariableKind,
    pub(super) dtype_name: Option<String>,
    pub(super) dtype: Option<DType>,
    pub(super) shape: Option<Vec<i64>>,
    pub(super) lod_level: u32,
}

impl Op {
    /// Returns the attribute with a name.
    pub(super) fn attribute(&self, name: &str) -> Option<&Attr> {
        self.attributes.iter().find(|a| a.attribute.name == name)
    }
}
