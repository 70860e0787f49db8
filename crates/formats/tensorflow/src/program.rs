//! Program of a file: the graph of a frozen model, or the graphs and signatures of a SavedModel.

use crate::graph::{Constant, Graph, Parser, dims_text, type_name};
use crate::read::{TF_DTYPE, is_damage};
use crate::values::{self, Elements};
use crate::wire::{Reader, Value as Wire};
use crate::{dtype, table};
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Checkpoint, Name, Note, Role, TensorEntry, Value, escape_text};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{Encoding, Shape};
use weighbridge_core::text::counted;
use weighbridge_core::topology::{Block, Endpoint, Topology};
use weighbridge_io::source::SourceRef;

/// Form of a program that is a graph of TensorFlow.
pub(crate) const FORM: &str = "tensorflow";
/// Metadata key of the signatures of a SavedModel.
pub(crate) const SIGNATURES: &str = "signatures";
/// Maximum number of fields read to recognize a file.
const MAX_FIELDS: usize = 64;
/// Memory of a signature or of one of its tensors, besides its texts.
const ENTRY: u64 = 200;

/// Constants that are listed as tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constants {
    /// All, with notes on those that are not numbers: a frozen graph.
    All,
    /// All numbers: a SavedModel without variables.
    Numbers,
    /// Numbers of the main graph, which functions capture: a SavedModel with a graph of objects.
    Captured,
    /// None: those of a SavedModel of TensorFlow 1 are initial values and shapes.
    None,
}

/// Content of a file with graphs.
pub(crate) struct Program {
    /// Graphs.
    pub(crate) graph: Graph,
    /// Signatures: name, inputs and outputs.
    pub(crate) signatures: Vec<Signature>,
    /// Version of TensorFlow that wrote a SavedModel.
    pub(crate) version: Option<String>,
    /// Tags of the graphs of a SavedModel.
    pub(crate) tags: Vec<String>,
    /// Number of graphs besides the first one.
    pub(crate) other_graphs: u64,
}

/// Signature of a SavedModel.
#[derive(Debug, Default, Clone)]
pub(crate) struct Signature {
    name: String,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

/// Input or output of a signature.
#[derive(Debug, Default, Clone)]
struct Port {
    name: String,
    tensor: String,
    dtype: u64,
    dims: Vec<i64>,
}

impl Port {
    fn endpoint(&self) -> Endpoint {
        Endpoint {
            name: self.tensor.strip_suffix(":0").unwrap_or(&self.tensor).to_owned(),
            dtype: dtype::of_number(self.dtype),
            shape: Some(self.dims.clone()),
        }
    }

    fn shown(&self) -> (Name, Value) {
        let text = format!("{} {} {}", self.tensor, type_name(self.dtype), dims_text(&self.dims));
        (Name::from(self.name.as_str()), Value::Text(text))
    }
}

/// Returns true for a file whose fields are those of a `GraphDef`: operators, functions and versions, the first operator with a name
/// and a kind.
pub(crate) fn is_graph(head: &[u8], source: &SourceRef) -> bool {
    // The first field of an operator is its name.
    if !matches!(head, [0x0a, ..] | [0x12, ..]) || table::ends_as_table(source) {
        return false;
    }
    let mut reader = Reader::new(source);
    let mut has_operator = false;
    for _ in 0..MAX_FIELDS {
        let stop = match reader.next(source.len()) {
            Ok(None) => break,
            Ok(Some((1, Wire::Bytes(stop)))) => {
                if !begins_as_operator(&mut reader, stop).unwrap_or(false) {
                    return false;
                }
                has_operator = true;
                stop
            }
            Ok(Some((2 | 4 | 5, Wire::Bytes(stop)))) => stop,
            Ok(Some((3, Wire::Varint(_)))) => continue,
            // A truncated file.
            Err(error) if error.code() == "truncated" => break,
            _ => return false,
        };
        if reader.skip_to(stop).is_err() {
            break;
        }
    }
    has_operator
}

/// Reads a name and a kind.
fn begins_as_operator(reader: &mut Reader, end: u64) -> Result<bool> {
    for expected in [1, 2] {
        let Some((number, Wire::Bytes(stop))) = reader.next(end)? else { return Ok(false) };
        let len = stop.saturating_sub(reader.position());
        if number != expected || len == 0 || len > 4096 {
            return Ok(false);
        }
        let text = reader.bytes_to(stop)?;
        let is_plain = text.iter().all(|byte| byte.is_ascii_graphic());
        let is_kind =
            text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'>' | b':'));
        if !is_plain || (expected == 2 && !is_kind) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true for a file whose first fields are those of a `SavedModel`: the version of its schema, and a `MetaGraphDef`.
pub(crate) fn is_saved_model(head: &[u8]) -> bool {
    let Some(rest) = head.strip_prefix(&[0x08, 0x01, 0x12]) else { return false };
    let Some((_, rest)) = crate::wire::varint(rest) else { return false };
    // Its description is the first field, and begins with a version, operators, a type, a tag, or a version of TensorFlow.
    let Some(rest) = rest.strip_prefix(&[0x0a]) else { return rest.is_empty() };
    crate::wire::varint(rest).is_some_and(|(_, rest)| {
        rest.first().is_none_or(|tag| matches!(tag, 0x0a | 0x12 | 0x1a | 0x22 | 0x2a | 0x32 | 0x38 | 0x42))
    })
}

/// Reads the graphs of a frozen graph, or of a SavedModel. `salvage` keeps what precedes the damage.
///
/// # Errors
/// [`Kind::Corrupt`], with the offset; [`Kind::Limit`].
pub(crate) fn read(
    source: &SourceRef,
    is_saved: bool,
    limits: &Limits,
    budget: &Budget,
    salvage: bool,
) -> Result<Program> {
    let mut program = Program {
        graph: Graph::new(),
        signatures: Vec::new(),
        version: None,
        tags: Vec::new(),
        other_graphs: 0,
    };
    let mut reader = Reader::new(source);
    let mut parser = Parser { reader: &mut reader, budget, limits, graph: Graph::new() };
    let result = match is_saved {
        true => saved(&mut parser, source.len(), &mut program),
        false => parser.graph(source.len()),
    };
    program.graph = parser.graph;
    match result {
        Err(error) if salvage && error.kind() == Kind::Corrupt => program.graph.damage = Some(error),
        result => result?,
    }
    program.graph.finish();
    Ok(program)
}

fn saved(parser: &mut Parser<'_>, end: u64, program: &mut Program) -> Result<()> {
    let mut is_first = true;
    while let Some((number, value)) = parser.reader.next(end)? {
        match (number, value) {
            (2, Wire::Bytes(stop)) if is_first => {
                is_first = false;
                meta_graph(parser, stop, program)?;
            }
            (2, Wire::Bytes(stop)) => {
                program.other_graphs += 1;
                parser.reader.skip_to(stop)?;
            }
            (_, Wire::Bytes(stop)) => parser.reader.skip_to(stop)?,
            _ => {}
        }
    }
    Ok(())
}

fn meta_graph(parser: &mut Parser<'_>, end: u64, program: &mut Program) -> Result<()> {
    while let Some((number, value)) = parser.reader.next(end)? {
        match (number, value) {
            (1, Wire::Bytes(stop)) => {
                while let Some((number, value)) = parser.reader.next(stop)? {
                    match (number, value) {
                        (4, Wire::Bytes(stop)) => program.tags.push(parser.text(stop)?),
                        (5, Wire::Bytes(stop)) => program.version = Some(parser.text(stop)?),
                        (_, Wire::Bytes(stop)) => parser.reader.skip_to(stop)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(stop)) => parser.graph(stop)?,
            (5, Wire::Bytes(stop)) => {
                parser.budget.take_memory(ENTRY)?;
                let mut signature = Signature::default();
                while let Some((number, value)) = parser.reader.next(stop)? {
                    match (number, value) {
                        (1, Wire::Bytes(stop)) => signature.name = parser.text(stop)?,
                        (2, Wire::Bytes(stop)) => ports(parser, stop, &mut signature)?,
                        (_, Wire::Bytes(stop)) => parser.reader.skip_to(stop)?,
                        _ => {}
                    }
                }
                program.signatures.push(signature);
            }
            (_, Wire::Bytes(stop)) => parser.reader.skip_to(stop)?,
            _ => {}
        }
    }
    Ok(())
}

fn ports(parser: &mut Parser<'_>, end: u64, signature: &mut Signature) -> Result<()> {
    while let Some((number, value)) = parser.reader.next(end)? {
        match (number, value) {
            (1, Wire::Bytes(stop)) => signature.inputs.push(port(parser, stop)?),
            (2, Wire::Bytes(stop)) => signature.outputs.push(port(parser, stop)?),
            (_, Wire::Bytes(stop)) => parser.reader.skip_to(stop)?,
            _ => {}
        }
    }
    Ok(())
}

fn port(parser: &mut Parser<'_>, end: u64) -> Result<Port> {
    parser.budget.take_memory(ENTRY)?;
    let mut port = Port::default();
    while let Some((number, value)) = parser.reader.next(end)? {
        match (number, value) {
            (1, Wire::Bytes(stop)) => port.name = parser.text(stop)?,
            (2, Wire::Bytes(stop)) => {
                while let Some((number, value)) = parser.reader.next(stop)? {
                    match (number, value) {
                        (1, Wire::Bytes(stop)) => port.tensor = parser.text(stop)?,
                        (2, Wire::Varint(value)) => port.dtype = value,
                        (3, Wire::Bytes(stop)) => {
                            let len = stop.saturating_sub(parser.reader.position());
                            Limits::check("bytes in a name", "name_bytes", len, parser.limits.name_bytes)?;
                            parser.budget.take_memory(4 * len)?;
                            port.dims = crate::bundle::dims(&parser.reader.bytes_to(stop)?)?;
                        }
                        (_, Wire::Bytes(stop)) => parser.reader.skip_to(stop)?,
                        _ => {}
                    }
                }
            }
            (_, Wire::Bytes(stop)) => parser.reader.skip_to(stop)?,
            _ => {}
        }
    }
    Ok(port)
}

impl Program {
    /// Returns the program as a topology. The bytes stay in the file.
    pub(crate) fn topology(&mut self) -> Topology {
        let (mut feeds, mut fetches) = (Vec::new(), Vec::new());
        if self.signatures.is_empty() {
            feeds = self.graph.placeholders();
            fetches = self.graph.sinks();
        }
        // Several signatures may have one tensor.
        let (mut fed, mut fetched) = (HashSet::new(), HashSet::new());
        for signature in &self.signatures {
            let values = |ports: &[Port]| -> Vec<Endpoint> {
                // That of initialization names an operator without a value.
                ports
                    .iter()
                    .filter(|port| port.dtype != 0 && !port.tensor.is_empty())
                    .map(Port::endpoint)
                    .collect()
            };
            let inputs = values(&signature.inputs).into_iter();
            feeds.extend(inputs.filter(|endpoint| fed.insert(endpoint.name.clone())));
            let outputs = values(&signature.outputs).into_iter();
            fetches.extend(outputs.filter(|endpoint| fetched.insert(endpoint.name.clone())));
        }
        self.refer(&fetches);
        Topology {
            form: FORM,
            writer: self.version.as_ref().map(|version| format!("TensorFlow {version}")),
            bytes: Arc::new([]),
            blocks: std::mem::take(&mut self.graph.blocks),
            feeds,
            fetches,
            operator_versions: Vec::new(),
        }
    }

    /// Adds the second and later outputs of operators that only signatures name.
    fn refer(&mut self, fetches: &[Endpoint]) {
        let Some(main) = self.graph.blocks.first_mut() else { return };
        for endpoint in fetches.iter().filter(|endpoint| endpoint.name.contains(':')) {
            let node = endpoint.name.split(':').next().unwrap_or_default();
            let operator =
                main.operators.iter_mut().find(|operator| crate::graph::node_name(operator) == Some(node));
            if let Some(slot) = operator.and_then(|operator| operator.outputs.first_mut())
                && !slot.arguments.contains(&endpoint.name)
            {
                slot.arguments.push(endpoint.name.clone());
            }
        }
    }

    /// Sets metadata about the program.
    pub(crate) fn describe(&self, checkpoint: &mut Checkpoint) {
        if let Some(version) = &self.version {
            checkpoint.metadata.set("tensorflow_version", Value::Text(version.clone()));
        }
        if let Some(producer) = self.graph.producer {
            checkpoint.metadata.set("producer", Value::U64(producer));
        }
        if !self.tags.is_empty() {
            let tags = self.tags.iter().map(|tag| Value::Text(tag.clone())).collect();
            checkpoint.metadata.set("tags", Value::List(tags));
        }
        if !self.signatures.is_empty() {
            let one = |signature: &Signature| {
                let inputs = Value::Map(signature.inputs.iter().map(Port::shown).collect());
                let outputs = Value::Map(signature.outputs.iter().map(Port::shown).collect());
                let ports = vec![(Name::from("inputs"), inputs), (Name::from("outputs"), outputs)];
                (Name::from(signature.name.as_str()), Value::Map(ports))
            };
            checkpoint.metadata.set(SIGNATURES, Value::Map(self.signatures.iter().map(one).collect()));
        }
        if self.other_graphs > 0 {
            let text = format!(
                "{} of the SavedModel not read",
                counted(self.other_graphs, "other graph is", "other graphs are")
            );
            checkpoint.notes.push(Note::omission("more-programs", text));
        }
    }

    /// Lists constants as tensors.
    ///
    /// # Errors
    /// As [`entry`], unless `salvage` loses the tensor.
    pub(crate) fn list(
        &self,
        which: Constants,
        blocks: &[Block],
        source: &SourceRef,
        checkpoint: &mut Checkpoint,
        (limits, budget): (&Limits, &Budget),
        salvage: bool,
    ) -> Result<()> {
        let weights = weights(blocks);
        let (mut repeated, mut others) = (0, 0u64);
        let mut names = weighbridge_core::checkpoint::Distinct::default();
        for tensor in &mut checkpoint.tensors {
            names.add(tensor);
        }
        for constant in &self.graph.constants {
            let is_listed = match which {
                Constants::All => true,
                Constants::Numbers => dtype::of_number(constant.dtype).is_some(),
                Constants::Captured => constant.block == 0 && dtype::of_number(constant.dtype).is_some(),
                Constants::None => false,
            };
            if !is_listed {
                others += 1;
                continue;
            }
            if let Some(reason) = dtype::skipped(constant.dtype) {
                checkpoint.notes.push(Note::skipped_tensor(constant.path.to_text(), reason));
                continue;
            }
            match entry(constant, source, &mut repeated, limits, budget) {
                Ok(mut tensor) => {
                    let is_weight = weights.contains(&(constant.block, constant.node.as_str()));
                    tensor.role =
                        if is_weight && tensor.stored.is_float() { Role::Parameter } else { Role::Buffer };
                    checkpoint.notes.extend(names.add(&mut tensor));
                    checkpoint.tensors.push(tensor);
                }
                Err(error) if salvage && is_damage(&error) => checkpoint.lose(&constant.path, &error),
                Err(error) => {
                    return Err(error
                        .in_file(source.label())
                        .on_tensor(escape_text(&constant.path.to_text())));
                }
            }
        }
        if others > 0 {
            let count = counted(others, "constant of the graphs is", "constants of the graphs are");
            checkpoint
                .notes
                .push(Note::new("value-left-out", format!("{count} part of the program, and not listed")));
        }
        Ok(())
    }
}

/// Returns the constants that were variables before the graph was frozen: an operator `Identity` reads them.
fn weights(blocks: &[Block]) -> HashSet<(usize, &str)> {
    let mut weights = HashSet::new();
    for (number, block) in blocks.iter().enumerate() {
        for operator in block.operators.iter().filter(|operator| operator.kind == "Identity") {
            let input = operator.inputs.first().and_then(|slot| slot.arguments.first());
            // In functions, inputs name the output of an operator: `w:output:0`.
            weights.extend(input.and_then(|name| name.split(':').next()).map(|name| (number, name)));
        }
    }
    weights
}

/// Creates the tensor of a constant.
fn entry(
    constant: &Constant,
    source: &SourceRef,
    repeated: &mut u64,
    limits: &Limits,
    budget: &Budget,
) -> Result<TensorEntry> {
    Limits::check("dimensions", "dimensions", constant.dims.len() as u64, limits.dimensions)?;
    let dtype = dtype::of_number(constant.dtype)
        .ok_or_else(|| Error::unsupported("dtype", "unknown dtype").found(constant.dtype.cast_signed()))?;
    let dims: Option<Vec<u64>> = constant.dims.iter().map(|&size| u64::try_from(size).ok()).collect();
    let Some(shape) = dims.map(Shape::new) else {
        return Err(Error::corrupt("negative-dimension", "a dimension is negative")
            .at(constant.at)
            .expected("0 or more")
            .found(format_args!("{:?}", constant.dims)));
    };
    let Some(count) = shape.bytes(dtype).and_then(|_| shape.elements()) else {
        return Err(Error::corrupt("shape-overflow", "the tensor exceeds 2^64 bytes")
            .at(constant.at)
            .found(format_args!("{dtype} {shape}")));
    };
    let (from, offset): (SourceRef, u64) =
        match values::find(source, &constant.runs, dtype, count, constant.at, budget)? {
            Elements::Plain(at) => (source.clone(), at),
            Elements::Values(values) => {
                *repeated = repeated.saturating_add(values.repeated());
                Limits::check(
                    "bytes of repeated elements",
                    "repeated_bytes",
                    *repeated,
                    limits.repeated_bytes,
                )
                .map_err(|error| error.at(constant.at))?;
                (Arc::new(values), 0)
            }
        };
    let mut tensor = TensorEntry::dense(constant.path.clone(), dtype, shape, &from, offset, Encoding::ROW)?;
    if let Some(name) = dtype::other_name(constant.dtype) {
        tensor.attributes.insert(TF_DTYPE.to_owned(), Value::Text(name.to_owned()));
    }
    Ok(tensor)
}
