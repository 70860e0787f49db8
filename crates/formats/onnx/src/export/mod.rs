//! Export of Paddle programs to ONNX graphs.
//!
//! [`export`] walks the operators of a [`Topology`] in order. For each it looks up a row of the [`table`] and calls its
//! translation, which adds nodes to the [`builder::Builder`]. Dtypes and dimensions of all values are tracked ([`infer`]), and
//! shape arithmetic on known numbers is computed at once ([`fold`]).
//!
//! | module | contents |
//! | --- | --- |
//! | [`operator`] | an operator in one vocabulary, for both forms of programs |
//! | [`table`] | all operators with their translations |
//! | [`builder`], [`names`] | values and nodes of the graph |
//! | [`infer`], [`fold`] | types of results; computed constants |
//! | [`control`] | branches, loops, lists of tensors |
//! | `math`, `shapes`, `layers`, `pool`, `norm`, `vision`, `resize`, `detection`, `segment`, `sequence`, `quantized`, `fused` | translations |

pub(crate) mod builder;
mod control;
mod detection;
pub(crate) mod fold;
mod fused;
mod infer;
mod layers;
mod liveness;
mod math;
mod names;
mod norm;
mod operator;
mod pool;
mod quantized;
mod resize;
mod segment;
mod sequence;
mod shapes;
mod table;
#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests;
mod vision;

use crate::model::{Dim, Graph, Model, ValueInfo};
use builder::{Builder, Value, value_info};
use operator::{Lists, Op};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::check::variable_names;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::DType;
use weighbridge_core::text::counted;
use weighbridge_core::topology::{AttributeValue, Endpoint, Topology};

pub(crate) use table::{is_supported, supported};

/// Default version of the standard operators.
pub(crate) const OPSET: i64 = 17;
/// Range of versions that can be written.
pub(crate) const OPSETS: std::ops::RangeInclusive<i64> = 17..=21;
/// Maximum number of operators in an error message.
const MAX_SHOWN: usize = 20;
/// Maximum number of operators in the translations of bodies. Bodies of loops are translated several times, bodies in them more often.
const MAX_IN_BODIES: usize = 200_000;

/// Size of a program in bytes whose budget smaller ones have too: an operator of 100 bytes may become hundreds of nodes.
const PROGRAM: u64 = 8 << 20;

/// Exports the program of a checkpoint with its parameters.
///
/// # Errors
/// [`Kind::Unsupported`], `unsupported-operators`, with every operator that has no translation, its count and its first use;
/// [`Kind::Corrupt`] for an inconsistent program; [`Kind::Limit`] for a graph that is too large for the size of the program.
pub(crate) fn export(checkpoint: &Checkpoint, topology: &Topology, opset: i64) -> Result<Model> {
    if topology.fetches.is_empty() {
        return Err(Error::unsupported("no-outputs", "the program has no outputs")
            .hint("export an inference program: one that save_inference_model or jit.save has written"));
    }
    let names = variable_names(topology, &checkpoint.tensors);
    let mut parameters = HashMap::new();
    for (name, entry) in names.into_iter().zip(&checkpoint.tensors) {
        parameters.entry(name).or_insert(entry);
    }
    let mut exporter = Exporter::new(topology)?;
    exporter.check_supported()?;
    let budget = Budget::new(PROGRAM.max(topology.bytes.len() as u64), &Limits::default());
    let mut builder = Builder::new(topology, parameters, opset, budget);
    let mut inputs = Vec::new();
    for feed in &topology.feeds {
        builder::check_rank(feed.shape.as_ref().map_or(0, Vec::len))?;
        let info = input(feed);
        let value = builder.formal(&info.name, info.dtype, info.shape.clone(), false);
        builder.set(&feed.name, value.clone());
        inputs.push(ValueInfo { shape: value.dims.clone(), ..value_info(&value) });
    }
    builder.control.is_pir = topology.form == "pir";
    exporter.run_block(&mut builder, 0)?;
    if let Some(error) = exporter.refused() {
        return Err(error);
    }
    let mut outputs = Vec::new();
    let (made, fetched) = (builder.made(), fetched(topology));
    for fetch in &topology.fetches {
        let source = fetched.get(fetch.name.as_str()).copied().unwrap_or(&fetch.name);
        let value = output(&mut builder, fetch, source, &made)?;
        outputs.push(value_info(&value));
    }
    builder.check_budget()?;
    let (nodes, initializers) = builder.finish();
    let mut graph = Graph { name: "main".to_owned(), nodes, initializers, inputs, outputs };
    liveness::prune(&mut graph);
    let metadata = topology.writer.iter().map(|writer| ("paddle_version".to_owned(), writer.clone()));
    Ok(Model { ir_version: 8, opset, graph, metadata: metadata.collect() })
}

/// Returns the input of the graph for an input of the program. Each open dimension has a name of its own.
fn input(feed: &Endpoint) -> ValueInfo {
    let dim = |(axis, size): (usize, &i64)| match size {
        size if *size < 0 => Dim::Symbol(Arc::from(format!("{}_{axis}", feed.name))),
        size => Dim::Size(*size),
    };
    ValueInfo {
        name: feed.name.clone(),
        dtype: feed.dtype.unwrap_or(DType::F32),
        shape: feed.shape.as_ref().map(|shape| shape.iter().enumerate().map(dim).collect()),
        sequence: false,
    }
}

/// State of an export besides the graph.
struct Exporter<'a> {
    topology: &'a Topology,
    lists: Lists<'a>,
    live: Vec<Vec<bool>>,
    /// Refused operators: count and reason of the first use.
    refused: BTreeMap<String, (u64, String)>,
    index: table::Index,
    /// Operators in the translations of bodies so far.
    in_bodies: usize,
}

impl<'a> Exporter<'a> {
    fn new(topology: &'a Topology) -> Result<Self> {
        let mut lists = Lists::default();
        topology.blocks.iter().for_each(|block| lists.add(block));
        let live = liveness::of(topology)?;
        let index = table::Index::new();
        Ok(Self { topology, lists, live, refused: BTreeMap::new(), index, in_bodies: 0 })
    }

    /// Fails if operators that contribute to the outputs have no translation.
    fn check_supported(&mut self) -> Result<()> {
        let mut missing: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
        for (number, block) in self.topology.blocks.iter().enumerate() {
            for (place, operator) in block.operators.iter().enumerate() {
                if self.live[number][place] && !self.index.has(&operator.kind) {
                    let output = operator.outputs.iter().flat_map(|slot| &slot.arguments).next();
                    let first = output.map_or("", String::as_str);
                    missing.entry(&operator.kind).or_insert((0, first)).0 += 1;
                }
            }
        }
        for (kind, (count, first)) in missing {
            let first = format!("first result {}", weighbridge_core::text::escape(first));
            self.refused.insert(kind.to_owned(), (count, first));
        }
        self.refused().map_or(Ok(()), Err)
    }

    /// Returns the error for all refused operators.
    fn refused(&self) -> Option<Error> {
        if self.refused.is_empty() {
            return None;
        }
        let mut shown: Vec<String> = self
            .refused
            .iter()
            .take(MAX_SHOWN)
            .map(|(kind, (count, why))| {
                format!(
                    "{} ({}, {why})",
                    weighbridge_core::text::escape(kind),
                    counted(*count, "time", "times")
                )
            })
            .collect();
        if self.refused.len() > MAX_SHOWN {
            shown.push(format!("and {} more", self.refused.len() - MAX_SHOWN));
        }
        Some(
            Error::unsupported(
                "unsupported-operators",
                "the program has operators that cannot be exported to ONNX",
            )
            .found(shown.join("; "))
            .hint("replace these operators in the model, and save the program again with Paddle"),
        )
    }

    /// Counts the translation of a body.
    ///
    /// # Errors
    /// [`Kind::Limit`] for loops in loops that multiply the work.
    fn count_body(&mut self, number: usize) -> Result<()> {
        self.in_bodies += self.topology.blocks.get(number).map_or(0, |block| block.operators.len());
        if self.in_bodies <= MAX_IN_BODIES {
            return Ok(());
        }
        Err(Error::limit("nested-too-deep", "the loops and branches of the program have too many operators")
            .expected(format_args!("at most {MAX_IN_BODIES} operators in the translations of bodies")))
    }

    /// Translates the operators of a block, in order.
    fn run_block(&mut self, builder: &mut Builder<'a>, number: usize) -> Result<()> {
        let topology = self.topology;
        let Some(block) = topology.blocks.get(number) else {
            return Err(
                Error::corrupt("bad-program", "an operator runs a block that does not exist").found(number)
            );
        };
        for (place, operator) in block.operators.iter().enumerate() {
            if !self.live[number][place] {
                continue;
            }
            let row = self.index.find(&operator.kind, topology.form == "pir");
            let op = if topology.form == "pir" {
                Op::of_pir(operator, row, &self.lists)
            } else {
                Op::of_desc(operator)
            };
            builder.begin(number, &op);
            builder.take_operator(&op).map_err(|error| within(error, &op))?;
            if let Err(error) = math::mishandles_complex(builder, &op) {
                self.refuse(builder, &op, &error);
                continue;
            }
            let done = match control::translate(self, builder, &op, number, place)? {
                true => Ok(()),
                false => match row {
                    Some(row) => {
                        (row.translate)(builder, &op).and_then(|()| control::alias(builder, operator))
                    }
                    None => Err(op.refuse("no translation")),
                },
            };
            let done = done.and_then(|()| match op.unread() {
                Some(name) => Err(op.refuse(format_args!("its attribute {name} is computed by the program"))),
                None => Ok(()),
            });
            match done {
                Err(error) if error.kind() == Kind::Unsupported => self.refuse(builder, &op, &error),
                done => done.map_err(|error| within(error, &op))?,
            }
            builder.take_results(&op).map_err(|error| within(error, &op))?;
        }
        Ok(())
    }

    /// Notes a refused operator and gives its results their declared types, so that the others can be examined.
    fn refuse(&mut self, builder: &mut Builder<'a>, op: &Op<'a>, error: &Error) {
        let first = op.outputs.iter().flat_map(|(_, names)| names).next().copied().unwrap_or("");
        let message = error.message().trim_start_matches(op.shown).trim_start_matches(": ").to_owned();
        let why = format!("first for {}: {message}", weighbridge_core::text::escape(first));
        self.refused.entry(op.shown.to_owned()).or_insert((0, why)).0 += 1;
        for (_, names) in &op.outputs {
            for name in names {
                let declared = builder.declaration(name);
                let dtype = declared.and_then(|v| v.dtype).unwrap_or(DType::F32);
                let dims = declared.and_then(|v| v.shape.as_ref()).map(|shape| {
                    shape.iter().map(|s| if *s < 0 { Dim::Open } else { Dim::Size(*s) }).collect()
                });
                let value = builder.formal("refused", dtype, dims, false);
                builder.set(name, value);
            }
        }
    }
}

/// Returns the value of an output of the program under the name of the output. `source` is the variable that it reads, `made` the
/// values that nodes make.
fn output(
    builder: &mut Builder<'_>,
    fetch: &Endpoint,
    source: &str,
    made: &HashSet<String>,
) -> Result<Value> {
    let value = builder.get(source)?;
    if value.dtype.name().starts_with('c') {
        return Err(Error::unsupported("onnx-dtype", "ONNX Runtime lacks the dtype of an output")
            .found(format_args!("{} {}", weighbridge_core::text::escape(&fetch.name), value.dtype)));
    }
    let is_own = value.name == fetch.name && value.constant.is_none();
    if is_own && made.contains(&value.name) && builder.fetched.insert(value.name.clone()) {
        return Ok(value);
    }
    let mut copy = builder.identity(&value);
    let name = builder.unique(&fetch.name);
    builder.rename_last(&copy.name, &name);
    copy.name.clone_from(&name);
    builder.fetched.insert(name);
    Ok(copy)
}

/// Returns the variables that outputs read, by the names of the outputs: in PIR, the operands of the fetches.
fn fetched(topology: &Topology) -> HashMap<&str, &str> {
    let mut found = HashMap::new();
    for operator in topology.blocks.iter().flat_map(|block| &block.operators) {
        if !matches!(operator.kind.as_str(), "pd_op.fetch" | "builtin.shadow_output") {
            continue;
        }
        let named = match operator.attribute("name").or(operator.attribute("output_name")) {
            Some(AttributeValue::Text(name)) => Some(name),
            _ => None,
        };
        for name in operator.output("").iter().chain(named) {
            let source = operator.input("").first().unwrap_or(name);
            found.entry(name.as_str()).or_insert(source.as_str());
        }
    }
    found
}

/// Adds the operator to an error.
fn within(error: Error, op: &Op<'_>) -> Error {
    let output = op.outputs.iter().flat_map(|(_, names)| names).next().copied().unwrap_or("");
    error.within(format_args!("translating {} for {}", op.shown, weighbridge_core::text::escape(output)))
}
