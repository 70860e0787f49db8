//! Protobuf of models that the exporter makes.
//!
//! Fields are written in ascending order. The elements of stored tensors are not copied: the plan refers to their sources.

use crate::constant::Constant;
use crate::dtype;
use crate::model::{Attr, Dim, Graph, Initializer, InitializerData, Model, Node, ValueInfo};
use crate::wire::push_length;
use buffa::encoding::{Tag, WireType, encode_varint};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::FileBuilder;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_io::source::SourceRef;

/// Maximum length of a protobuf message in bytes.
pub(crate) const MAX_MESSAGE: u64 = (1 << 31) - 1;

/// Message being written: bytes, and the elements of tensors between them.
#[derive(Default)]
pub(crate) struct Message {
    pieces: Vec<Piece>,
}

enum Piece {
    Bytes(Vec<u8>),
    Elements(Box<TensorEntry>),
    Copy(Copied),
}

/// Unchanged bytes of a source.
struct Copied {
    source: SourceRef,
    name: String,
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Elements(entry) => entry.shape.bytes(entry.dtype()).unwrap_or(u64::MAX),
            Self::Copy(copied) => copied.source.len(),
        }
    }
}

impl Message {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.len()))
    }

    /// Appends the message to a file.
    ///
    /// # Errors
    /// Errors of [`FileBuilder::tensor`].
    pub(crate) fn write(self, file: &mut FileBuilder) -> Result<()> {
        for piece in self.pieces {
            match piece {
                Piece::Bytes(bytes) => file.literal(bytes),
                Piece::Elements(entry) => file.tensor(&entry, Order::Row)?,
                Piece::Copy(Copied { source, name }) => file.embed(FileBuilder::copy_of(name, &source)),
            }
        }
        Ok(())
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        if !matches!(self.pieces.last(), Some(Piece::Bytes(_))) {
            self.pieces.push(Piece::Bytes(Vec::new()));
        }
        match self.pieces.last_mut() {
            Some(Piece::Bytes(bytes)) => bytes,
            _ => unreachable!("a piece of bytes was just added"),
        }
    }

    pub(crate) fn int(&mut self, field: u32, value: i64) {
        let bytes = self.bytes();
        Tag::new(field, WireType::Varint).encode(bytes);
        encode_varint(value.cast_unsigned(), bytes);
    }

    fn float(&mut self, field: u32, value: f32) {
        let bytes = self.bytes();
        Tag::new(field, WireType::Fixed32).encode(bytes);
        bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn length(&mut self, field: u32, length: u64) {
        let bytes = self.bytes();
        Tag::new(field, WireType::LengthDelimited).encode(bytes);
        encode_varint(length, bytes);
    }

    pub(crate) fn blob(&mut self, field: u32, value: &[u8]) {
        self.length(field, value.len() as u64);
        self.bytes().extend_from_slice(value);
    }

    pub(crate) fn text(&mut self, field: u32, value: &str) {
        self.blob(field, value.as_bytes());
    }

    /// Writes a text unless it is empty.
    fn optional(&mut self, field: u32, value: &str) {
        if !value.is_empty() {
            self.text(field, value);
        }
    }

    pub(crate) fn message(&mut self, field: u32, message: Self) {
        self.length(field, message.len());
        self.append(message);
    }

    /// Appends bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes().extend_from_slice(bytes);
    }

    /// Appends the beginning of a field: its tag, and a length that is longer by `excess` bytes than necessary.
    pub(crate) fn begin(&mut self, tag: &[u8], length: u64, excess: usize) {
        let bytes = self.bytes();
        bytes.extend_from_slice(tag);
        push_length(bytes, length, excess);
    }

    /// Appends all of another message.
    pub(crate) fn append(&mut self, message: Self) {
        for piece in message.pieces {
            match (piece, self.pieces.last_mut()) {
                (Piece::Bytes(more), Some(Piece::Bytes(bytes))) => bytes.extend_from_slice(&more),
                (piece, _) => self.pieces.push(piece),
            }
        }
    }

    /// Appends the elements of a tensor, without tag and length.
    pub(crate) fn put_elements(&mut self, entry: &TensorEntry) {
        self.pieces.push(Piece::Elements(Box::new(entry.clone())));
    }

    /// Appends all bytes of a source, which belong to the tensor `name`.
    pub(crate) fn put_copy(&mut self, source: SourceRef, name: String) {
        self.pieces.push(Piece::Copy(Copied { source, name }));
    }

    pub(crate) fn elements(&mut self, field: u32, entry: &TensorEntry) {
        self.length(field, entry.shape.bytes(entry.dtype()).unwrap_or(u64::MAX));
        self.pieces.push(Piece::Elements(Box::new(entry.clone())));
    }
}

/// Place of the elements of a tensor in the file of external data.
pub(crate) struct External {
    /// Name of the file, relative to the model.
    pub(crate) file: String,
    /// Builder of that file.
    pub(crate) data: FileBuilder,
}

/// Tensors of at least this many bytes are stored in the file of external data, if there is one.
pub(crate) const MIN_EXTERNAL: u64 = 1024;
/// Alignment of external data: that of memory pages, so that runtimes can map it.
pub(crate) const ALIGNMENT: u64 = 4096;

/// Encodes a model.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`] for a dtype that ONNX lacks.
pub(crate) fn model(model: &Model, external: Option<&mut External>) -> Result<Message> {
    let mut out = Message::default();
    out.int(1, model.ir_version);
    out.text(2, "weighbridge");
    out.text(3, env!("CARGO_PKG_VERSION"));
    out.message(7, graph(&model.graph, external)?);
    let mut opset = Message::default();
    opset.text(1, "");
    opset.int(2, model.opset);
    out.message(8, opset);
    for (key, value) in &model.metadata {
        let mut entry = Message::default();
        entry.text(1, key);
        entry.text(2, value);
        out.message(14, entry);
    }
    Ok(out)
}

fn graph(graph: &Graph, mut external: Option<&mut External>) -> Result<Message> {
    let mut out = Message::default();
    for node in &graph.nodes {
        out.message(1, self::node(node)?);
    }
    out.text(2, &graph.name);
    for initializer in &graph.initializers {
        out.message(5, tensor(initializer, external.as_deref_mut())?);
    }
    for input in &graph.inputs {
        out.message(11, value_info(input)?);
    }
    for output in &graph.outputs {
        out.message(12, value_info(output)?);
    }
    Ok(out)
}

fn node(node: &Node) -> Result<Message> {
    let mut out = Message::default();
    for name in &node.inputs {
        out.text(1, name);
    }
    for name in &node.outputs {
        out.text(2, name);
    }
    out.optional(3, &node.name);
    out.text(4, &node.kind);
    for (name, value) in &node.attributes {
        out.message(5, attribute(name, value)?);
    }
    out.optional(7, node.domain);
    Ok(out)
}

fn attribute(name: &str, value: &Attr) -> Result<Message> {
    let mut out = Message::default();
    out.text(1, name);
    let kind = match value {
        Attr::Float(value) => {
            out.float(2, *value);
            1
        }
        Attr::Int(value) => {
            out.int(3, *value);
            2
        }
        Attr::Text(value) => {
            out.text(4, value);
            3
        }
        Attr::Tensor(value) => {
            out.message(5, constant("", value)?);
            4
        }
        Attr::Graph(body) => {
            out.message(6, graph(body, None)?);
            5
        }
        Attr::Floats(values) => {
            values.iter().for_each(|value| out.float(7, *value));
            6
        }
        Attr::Ints(values) => {
            values.iter().for_each(|value| out.int(8, *value));
            7
        }
        Attr::Texts(values) => {
            values.iter().for_each(|value| out.text(9, value));
            8
        }
    };
    out.int(20, kind);
    Ok(out)
}

/// Returns the number of a dtype.
fn number(dtype: DType) -> Result<i64> {
    dtype::number(dtype).ok_or_else(|| Error::unsupported("onnx-dtype", "ONNX lacks this dtype").found(dtype))
}

fn constant(name: &str, constant: &Constant) -> Result<Message> {
    let mut out = Message::default();
    constant.shape.iter().for_each(|size| out.int(1, *size));
    out.int(2, number(constant.dtype)?);
    out.optional(8, name);
    out.blob(9, &constant.to_bytes()?);
    Ok(out)
}

fn tensor(initializer: &Initializer, external: Option<&mut External>) -> Result<Message> {
    let entry = match &initializer.data {
        InitializerData::Constant(value) => return constant(&initializer.name, value),
        InitializerData::Entry(entry) => entry,
    };
    let mut out = Message::default();
    for size in entry.shape.dims() {
        out.int(1, i64::try_from(*size).unwrap_or(i64::MAX));
    }
    out.int(2, number(entry.dtype())?);
    out.text(8, &initializer.name);
    let length = entry.shape.bytes(entry.dtype()).unwrap_or(u64::MAX);
    match external.filter(|_| length >= MIN_EXTERNAL) {
        None => out.elements(9, entry),
        Some(external) => {
            let gap = external.data.position().next_multiple_of(ALIGNMENT) - external.data.position();
            external.data.padding(0, gap);
            let offset = external.data.position();
            external.data.tensor(entry, Order::Row)?;
            for (key, value) in [
                ("location", external.file.clone()),
                ("offset", offset.to_string()),
                ("length", length.to_string()),
            ] {
                let mut pair = Message::default();
                pair.text(1, key);
                pair.text(2, &value);
                out.message(13, pair);
            }
            out.int(14, 1);
        }
    }
    Ok(out)
}

fn value_info(value: &ValueInfo) -> Result<Message> {
    let mut tensor = Message::default();
    tensor.int(1, number(value.dtype)?);
    if let Some(dims) = &value.shape {
        let mut shape = Message::default();
        for dim in dims {
            let mut one = Message::default();
            match dim {
                Dim::Size(size) => one.int(1, *size),
                Dim::Symbol(name) => one.text(2, name),
                Dim::Open => {}
            }
            shape.message(1, one);
        }
        tensor.message(2, shape);
    }
    let mut kind = Message::default();
    kind.message(1, tensor);
    if value.sequence {
        let mut list = Message::default();
        list.message(1, kind);
        kind = Message::default();
        kind.message(4, list);
    }
    let mut out = Message::default();
    out.text(1, &value.name);
    out.message(2, kind);
    Ok(out)
}
