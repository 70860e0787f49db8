//! What was understood of a program, with the places where it stands in the text.

use std::ops::Range;
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{Attribute, VariableKind};

/// A program.
#[derive(Debug, Clone)]
pub(super) struct Model {
    /// `base_code.version`.
    pub(super) version: i64,
    /// `base_code.trainable`; false where it is not said.
    pub(super) trainable: bool,
    /// The block of the program first; bodies of control flow follow in the order of the file.
    pub(super) blocks: Vec<Block>,
}

/// A sequence of operators.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    pub(super) parent: Option<usize>,
    pub(super) arguments: Vec<Value>,
    pub(super) operators: Vec<Op>,
    /// The list of operators in the text.
    pub(super) list: Range<usize>,
}

/// An operator.
#[derive(Debug, Clone)]
pub(super) struct Op {
    /// Its full name, such as `pd_op.conv2d`.
    pub(super) name: String,
    pub(super) attributes: Vec<Attr>,
    /// Ids of the values that it reads; 0 is none.
    pub(super) operands: Vec<i64>,
    pub(super) results: Vec<Value>,
    /// Places in [`Model::blocks`] of its bodies.
    pub(super) blocks: Vec<usize>,
    /// What it says of a tensor that has a name of its own.
    pub(super) named: Option<Named>,
    /// The lists in which its attributes stand.
    pub(super) lists: Vec<Range<usize>>,
    /// Where it stands in the text.
    pub(super) span: Range<usize>,
}

/// A setting of an operator.
#[derive(Debug, Clone)]
pub(super) struct Attr {
    pub(super) attribute: Attribute,
    /// The list that it stands in, of [`Op::lists`].
    pub(super) list: usize,
    /// Where it stands in the text.
    pub(super) span: Range<usize>,
}

/// A name that an operator gives to a tensor, and what goes with it.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) name: String,
    /// The name in the text, with its quotes.
    pub(super) span: Range<usize>,
    /// True where the operator declares the tensor, false where it writes to one or reads it.
    pub(super) declares: bool,
}

/// A value: the result of an operator or the argument of a block.
#[derive(Debug, Clone)]
pub(super) struct Value {
    /// Positive for results, negative for arguments of blocks, 0 for none.
    pub(super) id: i64,
    pub(super) kind: Type,
    /// Where its type stands in the text.
    pub(super) text: Range<usize>,
    /// `None` where the file does not say.
    pub(super) persistable: Option<bool>,
    pub(super) stop_gradient: bool,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Type {
    pub(super) kind: VariableKind,
    pub(super) dtype_name: Option<String>,
    pub(super) dtype: Option<DType>,
    pub(super) shape: Option<Vec<i64>>,
    pub(super) lod_level: u32,
}

impl Op {
    /// The attribute of that name.
    pub(super) fn attribute(&self, name: &str) -> Option<&Attr> {
        self.attributes.iter().find(|a| a.attribute.name == name)
    }
}
