//! Programs as a summary, as text, as JSON, and as a graph.
//!
//! All functions take a [`Topology`], so they support every format of programs. Names from files are escaped in text and quoted
//! in graphs. The output for malformed programs is bounded: each block is shown once, at a bounded nesting depth.

mod dot;
mod json;
mod listing;
#[cfg(all(feature = "onnx", feature = "paddle"))]
mod operators;
#[cfg(feature = "paddle")]
mod rewrite;

pub use dot::to_dot;
pub use json::to_json;
pub(super) use json::value;
pub use listing::listing;
#[cfg(feature = "paddle")]
pub use rewrite::{Form, Removed, RewriteOptions, Rewritten, document, rewrite};

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::tensor::DType;
use crate::text::escape;
use crate::topology::{Block, Endpoint, Topology, Variable};
use serde_json::{Value as Json, json};
use std::fmt;
use std::sync::Arc;

/// Maximum nesting depth of shown blocks; deeper blocks follow after the others.
const MAX_NESTING: usize = 32;
/// Name of an omitted argument.
const EMPTY: &str = "@EMPTY@";

/// Returns the program of an opened checkpoint.
///
/// # Errors
/// [`crate::Kind::Mismatch`], code `no-program`, where there is none.
pub fn of(checkpoint: &Checkpoint) -> Result<&Arc<Topology>> {
    checkpoint.topology.as_ref().ok_or_else(|| {
        Error::mismatch("no-program", "the file has no program")
            .in_file(&checkpoint.label)
            .found(format_args!("{} {}", checkpoint.format, checkpoint.kind))
            .hint("a Paddle program is a file such as __model__, inference.pdmodel or inference.json")
    })
}

/// Summary of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The encoding of its bytes: `program-desc` or `pir`.
    pub form: &'static str,
    /// The version of the program that wrote it.
    pub writer: Option<String>,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its inputs, in order.
    pub feeds: Vec<Endpoint>,
    /// Its outputs, in order.
    pub fetches: Vec<Endpoint>,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of variables in all blocks.
    pub variables: u64,
    /// Number of operators in all blocks.
    pub operators: u64,
    /// Number of operators by type, most frequent first.
    pub histogram: Vec<(String, u64)>,
    /// Number of variables that are stored in parameter files.
    pub parameters: u64,
    /// Their elements, as far as the shapes are declared in full.
    pub parameter_elements: u64,
    /// Their bytes, as far as shapes and types are declared.
    pub parameter_bytes: u64,
}

/// Summarizes `topology`.
pub fn summary(topology: &Topology) -> Summary {
    let parameters = topology.parameters();
    let (mut elements, mut bytes) = (0u64, 0u64);
    for variable in &parameters {
        let count = elements_of(variable).unwrap_or(0);
        let bits = variable.dtype.map_or(0, |dtype| u64::from(dtype.bits()));
        elements = elements.saturating_add(count);
        bytes = bytes.saturating_add(count.saturating_mul(bits) / 8);
    }
    let sum = |count: fn(&Block) -> usize| topology.blocks.iter().map(|b| count(b) as u64).sum();
    Summary {
        form: topology.form,
        writer: topology.writer.clone(),
        bytes: topology.bytes.len() as u64,
        feeds: topology.feeds.clone(),
        fetches: topology.fetches.clone(),
        blocks: topology.blocks.len() as u64,
        variables: sum(|b| b.variables.len()),
        operators: sum(|b| b.operators.len()),
        histogram: topology.histogram().into_iter().map(|(kind, n)| (kind.to_owned(), n)).collect(),
        parameters: parameters.len() as u64,
        parameter_elements: elements,
        parameter_bytes: bytes,
    }
}

/// Returns the number of elements of a variable with a completely declared shape.
fn elements_of(variable: &Variable) -> Option<u64> {
    let dims = variable.shape.as_ref()?.iter().map(|&d| u64::try_from(d).ok()).collect::<Option<Vec<_>>>()?;
    crate::tensor::Shape::new(dims).elements()
}

impl Summary {
    /// Returns all fields. `operator_types` is a list of `{"type", "count"}`, `parameters` an object of `count`, `elements` and
    /// `bytes`.
    pub fn to_json(&self) -> Json {
        let types: Json =
            self.histogram.iter().map(|(kind, n)| json!({ "type": kind, "count": n })).collect();
        json!({
            "form": self.form,
            "writer": self.writer,
            "bytes": self.bytes,
            "inputs": self.feeds.iter().map(json::endpoint).collect::<Json>(),
            "outputs": self.fetches.iter().map(json::endpoint).collect::<Json>(),
            "blocks": self.blocks,
            "variables": self.variables,
            "operators": self.operators,
            "operator_types": types,
            "parameters": {
                "count": self.parameters,
                "elements": self.parameter_elements,
                "bytes": self.parameter_bytes,
            },
        })
    }
}

impl fmt::Display for Summary {
    /// Writes aligned lines; safe for terminals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writer = self.writer.as_deref().map_or_else(|| "unknown".to_owned(), escape);
        writeln!(f, "form         {}, {} bytes without tensors", self.form, self.bytes)?;
        writeln!(f, "written by   {writer}")?;
        for (label, endpoints) in [("inputs", &self.feeds), ("outputs", &self.fetches)] {
            if endpoints.is_empty() {
                writeln!(f, "{label:<12} none")?;
            }
            for (place, one) in endpoints.iter().enumerate() {
                let label = if place == 0 { label } else { "" };
                writeln!(
                    f,
                    "{label:<12} {}: {}",
                    name(&one.name),
                    type_text(one.dtype, None, one.shape.as_deref())
                )?;
            }
        }
        writeln!(f, "blocks       {}", self.blocks)?;
        writeln!(f, "variables    {}", self.variables)?;
        let (elements, bytes) = (self.parameter_elements, self.parameter_bytes);
        let count = self.parameters;
        writeln!(f, "parameters   {count} with {elements} elements ({bytes} bytes), including buffers")?;
        writeln!(f, "operators    {}", self.operators)?;
        let widest = self.histogram.first().map_or(0, |(_, n)| n.to_string().len());
        for (kind, n) in &self.histogram {
            writeln!(f, "             {n:>widest$} {}", escape(kind))?;
        }
        Ok(())
    }
}

/// Returns a name as text: unchanged, or in quotes where it would be ambiguous.
fn name(text: &str) -> String {
    let plain =
        |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '@' | '/' | '-' | ':' | '#' | '%' | '$');
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// Returns text in quotes, escaped.
fn quoted(text: &str) -> String {
    format!("\"{}\"", escape(&text.replace('\\', "\\\\")).replace('"', "\\\""))
}

/// Returns a type as text: `f32 [-1, 3]`.
fn type_text(dtype: Option<DType>, word: Option<&str>, shape: Option<&[i64]>) -> String {
    let mut text = match (dtype, word) {
        (Some(dtype), _) => dtype.to_string(),
        (None, Some(word)) => escape(word),
        (None, None) => "?".to_owned(),
    };
    if let Some(shape) = shape {
        text.push_str(&format!(" {shape:?}"));
    }
    text
}

#[cfg(test)]
mod tests;
