//! Messages of ONNX that the exporter makes: model, graph, node, attribute, tensor.
//!
//! Field numbers are those of `onnx.proto3` (onnx 1.17).

use crate::constant::Constant;
use std::sync::Arc;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::tensor::DType;

/// Model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// Version of the file format.
    pub(crate) ir_version: i64,
    /// Version of the standard operators.
    pub(crate) opset: i64,
    /// Main graph.
    pub(crate) graph: Graph,
    /// Metadata: keys and values.
    pub(crate) metadata: Vec<(String, String)>,
}

/// Graph: nodes in order of execution.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    /// Name.
    pub(crate) name: String,
    /// Nodes.
    pub(crate) nodes: Vec<Node>,
    /// Stored tensors.
    pub(crate) initializers: Vec<Initializer>,
    /// Inputs.
    pub(crate) inputs: Vec<ValueInfo>,
    /// Outputs.
    pub(crate) outputs: Vec<ValueInfo>,
}

/// Call of an operator.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// Name.
    pub(crate) name: String,
    /// Operator, such as `Conv`.
    pub(crate) kind: String,
    /// Domain; empty for the standard operators.
    pub(crate) domain: &'static str,
    /// Names of inputs; an omitted one is empty.
    pub(crate) inputs: Vec<String>,
    /// Names of outputs; an unused one is empty.
    pub(crate) outputs: Vec<String>,
    /// Attributes.
    pub(crate) attributes: Vec<(&'static str, Attr)>,
}

/// Value of an attribute.
#[derive(Debug, Clone)]
pub(crate) enum Attr {
    /// Integer.
    Int(i64),
    /// Float.
    Float(f32),
    /// Text.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f32>),
    /// Texts.
    Texts(Vec<String>),
    /// Tensor.
    Tensor(Constant),
    /// Body of control flow.
    Graph(Box<Graph>),
}

/// Stored tensor of a graph.
#[derive(Debug, Clone)]
pub(crate) struct Initializer {
    /// Name.
    pub(crate) name: String,
    /// Elements.
    pub(crate) data: InitializerData,
}

/// Elements of a stored tensor.
#[derive(Debug, Clone)]
pub(crate) enum InitializerData {
    /// Tensor of the opened checkpoint.
    Entry(Box<TensorEntry>),
    /// Constant made by the exporter.
    Constant(Arc<Constant>),
}

/// Name and type of a value.
#[derive(Debug, Clone)]
pub(crate) struct ValueInfo {
    /// Name.
    pub(crate) name: String,
    /// Dtype of the elements.
    pub(crate) dtype: DType,
    /// Dimensions; `None` if the rank is unknown.
    pub(crate) shape: Option<Vec<Dim>>,
    /// True for a list of tensors.
    pub(crate) sequence: bool,
}

/// Dimension of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dim {
    /// Size.
    Size(i64),
    /// Name of a size known at run time.
    Symbol(Arc<str>),
    /// Size known at run time.
    Open,
}

impl Dim {
    /// Returns the size, if known.
    pub(crate) fn size(&self) -> Option<i64> {
        match self {
            Self::Size(size) => Some(*size),
            Self::Symbol(_) | Self::Open => None,
        }
    }
}
