//! Check of an exported graph: its inputs and outputs against those of the program, and a run with random inputs.

use crate::error::{Error, Result};
use crate::text::{counted, escape};
use crate::topology::{Endpoint, Topology};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphCheck {
    /// Number of inputs.
    pub inputs: usize,
    /// Number of outputs.
    pub outputs: usize,
    /// Differences between program and graph: numbers of inputs and outputs, dtypes, shapes.
    pub differences: Vec<String>,
    /// Reason why the graph was not run: this build cannot run graphs, or tract lacks an operator. `None` if it ran.
    pub not_run: Option<String>,
}

impl GraphCheck {
    /// Compares the graph in the file or folder `target` with the program it was exported from, and runs it once where this build can.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `not-an-export`, if the target is not an ONNX graph; errors of opening it.
    pub fn of(program: &Topology, target: &Path) -> Result<Self> {
        if program.form == "onnx" {
            return Err(Error::usage(
                "not-an-export",
                "only a program that was exported to ONNX can be checked",
            )
            .found("an ONNX model as the source"));
        }
        let graph = crate::formats::open(target)?;
        let Some(exported) = graph.topology.as_ref().filter(|topology| topology.form == "onnx") else {
            return Err(Error::usage(
                "not-an-export",
                "only a program that was exported to ONNX can be checked",
            )
            .in_file(target.display())
            .found(graph.format));
        };
        let mut differences = Vec::new();
        ends("input", &program.feeds, &exported.feeds, &mut differences);
        ends("output", &program.fetches, &exported.fetches, &mut differences);
        Ok(Self {
            inputs: exported.feeds.len(),
            outputs: exported.fetches.len(),
            differences,
            not_run: run(target),
        })
    }

    /// Returns true if program and graph agree.
    pub fn agrees(&self) -> bool {
        self.differences.is_empty()
    }
}

impl fmt::Display for GraphCheck {
    /// Writes a line for the ends of the graph and one for the run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.agrees() {
            let inputs = counted(self.inputs, "input", "inputs");
            let outputs = counted(self.outputs, "output", "outputs");
            writeln!(f, "checked: {inputs} and {outputs} have the dtypes and shapes of the program")?;
        }
        for difference in &self.differences {
            writeln!(f, "difference: {difference}")?;
        }
        match &self.not_run {
            None => writeln!(f, "run: the graph runs with random inputs in tract"),
            Some(reason) => writeln!(f, "not run: {reason}"),
        }
    }
}

/// Compares inputs or outputs, in order.
fn ends(what: &str, program: &[Endpoint], graph: &[Endpoint], differences: &mut Vec<String>) {
    if program.len() != graph.len() {
        let (expected, found) = (program.len(), graph.len());
        differences.push(format!("the graph has {found} {what}s, the program {expected}"));
        return;
    }
    for (expected, found) in program.iter().zip(graph) {
        let name = escape(&found.name);
        if let (Some(expected), Some(found)) = (expected.dtype, found.dtype)
            && expected != found
        {
            differences.push(format!(
                "{what} {name}: {found} in the graph, {expected} as declared in the program (Paddle does not check \
                 declarations, so compare the outputs of both)"
            ));
        }
        if let (Some(expected), Some(found)) = (&expected.shape, &found.shape) {
            // A size of -1 is known only at run time.
            let same = |(a, b): (&i64, &i64)| a == b || *a < 0 || *b < 0;
            if expected.len() != found.len() || !expected.iter().zip(found).all(same) {
                differences.push(format!(
                    "{what} {name}: shape {found:?} in the graph, {expected:?} as declared in the program"
                ));
            }
        }
    }
}

#[cfg(not(feature = "tract"))]
fn run(_: &Path) -> Option<String> {
    Some(
        "this build cannot run ONNX models; to run the graph, build weighbridge with cargo's feature `tract`"
            .to_owned(),
    )
}

/// Runs the graph once in tract.
#[cfg(feature = "tract")]
fn run(target: &Path) -> Option<String> {
    let file = if target.is_dir() { target.join("model.onnx") } else { target.to_owned() };
    match weighbridge_io::catch_panic(|| in_tract::run(&file)) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            let reason = format!("{error:#}");
            Some(format!("tract cannot run the graph: {}", reason.lines().next().unwrap_or("")))
        }
        Err(_) => Some("tract cannot run the graph: it stopped with a panic".to_owned()),
    }
}

#[cfg(feature = "tract")]
mod in_tract {
    use std::path::Path;
    use tract_onnx::prelude::*;
    use tract_onnx::tract_core::internal::DimLike as _;
    use tract_onnx::tract_hir::infer::{Factoid as _, GenericFactoid};

    /// Size of an open dimension that is not the first.
    const OPEN: usize = 32;

    /// Loads a model and runs it with random inputs.
    pub(super) fn run(file: &Path) -> TractResult<()> {
        let mut model = tract_onnx::onnx().model_for_path(file)?;
        let mut inputs: TVec<TValue> = tvec![];
        for place in 0..model.input_outlets()?.len() {
            let outlet = model.input_outlets()?[place];
            let fact = model.outlet_fact(outlet)?.clone();
            let dtype = fact.datum_type.concretize().unwrap_or(f32::datum_type());
            let size = |(axis, dim): (usize, GenericFactoid<TDim>)| {
                let known = dim.concretize().and_then(|dim| dim.to_usize().ok());
                known.unwrap_or(if axis == 0 { 1 } else { OPEN })
            };
            let shape: Vec<usize> = fact.shape.dims().cloned().enumerate().map(size).collect();
            model.set_input_fact(place, InferenceFact::dt_shape(dtype, &shape))?;
            inputs.push(random(dtype, &shape, place)?.into_tvalue());
        }
        model.into_optimized()?.into_runnable()?.run(inputs)?;
        Ok(())
    }

    /// Returns a tensor of values from 0 to 1; integers are 0 or 1.
    fn random(dtype: DatumType, shape: &[usize], seed: usize) -> TractResult<Tensor> {
        let mut state = seed as u64 + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| next()).collect();
        let values = if dtype.is_float() { values } else { values.iter().map(|v| v.round()).collect() };
        let tensor = Tensor::from_shape(shape, &values)?;
        Ok(tensor.cast_to_dt(dtype)?.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn end(name: &str, dtype: DType, shape: &[i64]) -> Endpoint {
        Endpoint { name: name.to_owned(), dtype: Some(dtype), shape: Some(shape.to_vec()) }
    }

    #[test]
    fn ends_differ_by_number_dtype_and_known_sizes() {
        let found = |graph: &[Endpoint]| {
            let mut differences = Vec::new();
            ends("output", &[end("y", DType::F32, &[-1, 10])], graph, &mut differences);
            differences
        };
        assert!(found(&[end("y", DType::F32, &[-1, 10])]).is_empty());
        assert!(found(&[end("y", DType::F32, &[4, -1])]).is_empty());
        assert_eq!(found(&[]), ["the graph has 0 outputs, the program 1"]);
        let dtypes = found(&[end("y", DType::F64, &[-1, 10])]);
        assert!(
            dtypes[0].starts_with("output y: f64 in the graph, f32 as declared in the program"),
            "{dtypes:?}"
        );
        assert_eq!(
            found(&[end("y", DType::F32, &[-1, 11])]),
            ["output y: shape [-1, 11] in the graph, [-1, 10] as declared in the program"]
        );
        assert_eq!(found(&[end("y", DType::F32, &[10])]).len(), 1);
    }
}
