//! Parsed operators: arguments, attributes and paths are read and checked before any operator runs.

use super::arguments::{
    dims, input, inputs, int, no_input, number, optional_input, output, outputs, required_int, text,
    text_or_empty, truth,
};
use super::number::read;
use super::path::below;
use super::step::Step;
use crate::dtype;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{DType, Shape};
use weighbridge_core::text::first_and_more;
use weighbridge_core::topology::{Operator, Topology};

/// Supported operators.
const KNOWN: [&str; 10] = [
    "feed",
    "fetch",
    "save",
    "load",
    "save_combine",
    "load_combine",
    "fill_constant",
    "assign",
    "cast",
    "scale",
];
/// Maximum number of unknown operators named in an error.
const MAX_NAMED: usize = 100;
/// Number of FP32, the default type of `fill_constant`.
const FP32: i64 = 5;

/// Action of an operator.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Feed {
        to: String,
    },
    Fetch {
        from: String,
        col: i64,
    },
    Save(Save),
    Load {
        to: String,
        file: PathBuf,
        part: Option<Part>,
        as_f16: bool,
    },
    LoadCombine {
        to: Vec<String>,
        file: PathBuf,
        as_f16: bool,
    },
    Fill {
        to: String,
        shape: Shape,
        dtype: DType,
        number: f64,
    },
    Assign {
        from: String,
        to: String,
    },
    Cast {
        from: String,
        to: String,
        dtype: DType,
    },
    Scale {
        from: String,
        to: String,
        scale: f64,
        scale_from: Option<String>,
        bias: f64,
        bias_after_scale: bool,
    },
}

/// Variables that are saved to one file.
#[derive(Debug, Clone)]
pub(super) struct Save {
    pub(super) from: Vec<String>,
    pub(super) file: PathBuf,
    pub(super) overwrite: bool,
    pub(super) as_f16: bool,
    pub(super) combined: bool,
}

/// Range of elements of a tensor, in storage order.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Index of the first element.
    pub(super) seek: u64,
    /// Shape of the range.
    pub(super) shape: Shape,
}

/// Parses the operators of the main block, in order.
pub(super) fn parse(topology: &Topology, folder: &Path) -> Result<Vec<(Step, Action)>> {
    let Some(main) = topology.blocks.first() else {
        return Err(Error::corrupt("no-main-block", "the program has no main block"));
    };
    refuse_unknown(&main.operators)?;
    let understood = |(place, operator): (usize, &Operator)| {
        let action = Action::of(operator, folder).map_err(|e| e.within(name(place, operator)))?;
        Ok((action.step(place, operator), action))
    };
    main.operators.iter().enumerate().map(understood).collect()
}

/// Returns the name of an operator for errors.
fn name(place: usize, operator: &Operator) -> String {
    format!("operator {place} ({})", operator.kind)
}

impl Step {
    /// Returns the name of the operator for errors.
    pub(super) fn name(&self) -> String {
        format!("operator {} ({})", self.place, self.operator)
    }
}

fn refuse_unknown(operators: &[Operator]) -> Result<()> {
    let mut unknown = BTreeMap::<&str, usize>::new();
    for operator in operators.iter().filter(|o| !KNOWN.contains(&o.kind.as_str())) {
        *unknown.entry(&operator.kind).or_default() += 1;
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let one = |(kind, count): (&&str, &usize)| match count {
        1 => (*kind).to_owned(),
        _ => format!("{kind} ({count} times)"),
    };
    Err(Error::unsupported("unknown-operators", "the program has unsupported operators")
        .expected(KNOWN.join(", "))
        .found(first_and_more(unknown.iter().map(one), MAX_NAMED))
        .hint("no operator was run; use a program that only loads, converts and saves tensors"))
}

impl Action {
    fn of(operator: &Operator, folder: &Path) -> Result<Self> {
        Ok(match operator.kind.as_str() {
            "feed" => {
                required_int(operator, "col")?;
                Self::Feed { to: output(operator, "Out")? }
            }
            "fetch" => Self::Fetch { from: input(operator, "X")?, col: required_int(operator, "col")? },
            "save" => Self::Save(Save::of(operator, vec![input(operator, "X")?], false, folder)?),
            "save_combine" => {
                refuse(operator, "save_to_memory")?;
                Self::Save(Save::of(operator, inputs(operator, "X")?, true, folder)?)
            }
            "load" => Self::Load {
                to: output(operator, "Out")?,
                file: file(operator, folder)?,
                part: part(operator)?,
                as_f16: truth(operator, "load_as_fp16", false)?,
            },
            "load_combine" => {
                refuse(operator, "model_from_memory")?;
                Self::LoadCombine {
                    to: outputs(operator, "Out")?,
                    file: file(operator, folder)?,
                    as_f16: truth(operator, "load_as_fp16", false)?,
                }
            }
            "fill_constant" => fill(operator)?,
            "assign" => Self::Assign { from: input(operator, "X")?, to: output(operator, "Out")? },
            "cast" => Self::Cast {
                from: input(operator, "X")?,
                to: output(operator, "Out")?,
                dtype: element_type("out_dtype", required_int(operator, "out_dtype")?)?,
            },
            "scale" => Self::Scale {
                from: input(operator, "X")?,
                to: output(operator, "Out")?,
                scale: number(operator, "scale", 1.0)?,
                scale_from: optional_input(operator, "ScaleTensor")?,
                bias: number(operator, "bias", 0.0)?,
                bias_after_scale: truth(operator, "bias_after_scale", true)?,
            },
            _ => return Err(Error::unsupported("unknown-operators", "unsupported operator")),
        })
    }

    /// Returns the variables that must have values before the action.
    pub(super) fn reads(&self) -> Vec<&String> {
        match self {
            Self::Feed { .. } | Self::Load { .. } | Self::LoadCombine { .. } | Self::Fill { .. } => {
                Vec::new()
            }
            Self::Fetch { from, .. } | Self::Assign { from, .. } | Self::Cast { from, .. } => vec![from],
            Self::Save(save) => save.from.iter().collect(),
            Self::Scale { from, scale_from, .. } => [from].into_iter().chain(scale_from).collect(),
        }
    }

    /// Returns the variables that have values after the action.
    pub(super) fn writes(&self) -> &[String] {
        match self {
            Self::Fetch { .. } | Self::Save(_) => &[],
            Self::LoadCombine { to, .. } => to,
            Self::Feed { to }
            | Self::Load { to, .. }
            | Self::Fill { to, .. }
            | Self::Assign { to, .. }
            | Self::Cast { to, .. }
            | Self::Scale { to, .. } => std::slice::from_ref(to),
        }
    }

    fn step(&self, place: usize, operator: &Operator) -> Step {
        let (reads, writes, replaces) = match self {
            Self::Load { file, .. } | Self::LoadCombine { file, .. } => (Some(file.clone()), None, false),
            Self::Save(save) => (None, Some(save.file.clone()), save.overwrite),
            _ => (None, None, false),
        };
        Step {
            place,
            operator: operator.kind.clone(),
            inputs: self.reads().into_iter().cloned().collect(),
            outputs: self.writes().to_vec(),
            reads,
            writes,
            replaces,
        }
    }
}

impl Save {
    fn of(operator: &Operator, from: Vec<String>, combined: bool, folder: &Path) -> Result<Self> {
        Ok(Self {
            from,
            file: file(operator, folder)?,
            overwrite: truth(operator, "overwrite", true)?,
            as_f16: truth(operator, "save_as_fp16", false)?,
            combined,
        })
    }
}

fn file(operator: &Operator, folder: &Path) -> Result<PathBuf> {
    below(folder, text(operator, "file_path")?)
}

fn part(operator: &Operator) -> Result<Option<Part>> {
    match int(operator, "seek")? {
        None | Some(-1) => Ok(None),
        Some(seek) => {
            let seek = u64::try_from(seek).map_err(|_| {
                Error::corrupt("attribute-value", "the attribute `seek` is negative")
                    .expected("0 or more, or -1 for the whole tensor")
                    .found(seek)
            })?;
            Ok(Some(Part { seek, shape: Shape::new(dims(operator, "shape")?) }))
        }
    }
}

fn fill(operator: &Operator) -> Result<Action> {
    for slot in ["ValueTensor", "ShapeTensor", "ShapeTensorList"] {
        no_input(operator, slot)?;
    }
    let value = number(operator, "value", 0.0)?;
    let number = match text_or_empty(operator, "str_value")? {
        "" => value,
        text => read(text),
    };
    Ok(Action::Fill {
        to: output(operator, "Out")?,
        shape: Shape::new(dims(operator, "shape")?),
        dtype: element_type("dtype", int(operator, "dtype")?.unwrap_or(FP32))?,
        number,
    })
}

fn element_type(attribute: &str, number: i64) -> Result<DType> {
    let narrow = i32::try_from(number).ok();
    narrow.and_then(dtype::from_number).ok_or_else(|| {
        let word = narrow.and_then(dtype::word).unwrap_or("?");
        Error::corrupt("attribute-value", format!("the attribute `{attribute}` is not an element type"))
            .expected("an element type such as 5 (FP32)")
            .found(format_args!("{number} ({word})"))
    })
}

/// Fails if a flag requests unsupported behaviour.
fn refuse(operator: &Operator, name: &str) -> Result<()> {
    if !truth(operator, name, false)? {
        return Ok(());
    }
    Err(Error::unsupported("in-memory", format!("`{name}` is not supported; the tensors must be in a file")))
}
