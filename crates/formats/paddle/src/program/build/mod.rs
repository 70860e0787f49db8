//! Construction of new programs.
//!
//! A [`Builder`] collects variables and operators of one block, in the neutral types of
//! [`weighbridge_core::topology`], and returns a [`ProgramDesc`] that Paddle 2.x runs. It supports the four operators
//! with which Paddle saves and loads parameter files:
//!
//! ```
//! use weighbridge::formats::paddle::program::build::{Builder, dense};
//! use weighbridge::tensor::DType;
//! # fn main() -> weighbridge::Result<()> {
//! let mut builder = Builder::new(2_006_002);
//! builder.variable(&dense("fc.w", DType::F32, &[2, 3]))?.variable(&dense("fc.b", DType::F32, &[3]))?;
//! builder.load_combine(&["fc.b", "fc.w"], "model.pdiparams")?;
//! let program = builder.finish()?;
//! assert_eq!(program.topology().blocks[0].operators[0].kind, "load_combine");
//! # Ok(()) }
//! ```

mod attribute;
mod files;

use super::framework::op_desc::Var;
use super::framework::var_type::{LoDTensorArrayDesc, LoDTensorDesc, TensorDesc, Type};
use super::framework::{self, AttrType, BlockDesc, OpDesc, VarDesc, VarType, Version};
use super::{ProgramDesc, check};
use crate::dtype;
use buffa::{EnumValue, Enumeration, MessageField};
use std::collections::HashSet;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{Operator, Slot, Variable, VariableKind};

/// Returns a persistable dense tensor: a parameter as a program declares it. -1 is an open dimension.
pub fn dense(name: &str, dtype: DType, shape: &[i64]) -> Variable {
    Variable {
        name: name.to_owned(),
        kind: VariableKind::Tensor,
        dtype: Some(dtype),
        dtype_name: None,
        shape: Some(shape.to_vec()),
        lod_level: 0,
        persistable: true,
        parameter: false,
        stop_gradient: false,
    }
}

/// Builder for a program of one block.
#[derive(Debug, Clone)]
pub struct Builder {
    version: i64,
    names: HashSet<String>,
    vars: Vec<VarDesc>,
    ops: Vec<OpDesc>,
    feeds: Vec<String>,
    fetches: Vec<String>,
}

impl Builder {
    /// Creates a builder for a version of Paddle: 2006002 for 2.6.2.
    pub fn new(version: i64) -> Self {
        Self {
            version,
            names: HashSet::new(),
            vars: Vec::new(),
            ops: Vec::new(),
            feeds: Vec::new(),
            fetches: Vec::new(),
        }
    }

    /// Declares a variable. Its element type is `dtype`; `dtype_name` is ignored.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] for an empty or duplicate name, for a tensor without element type or
    /// shape, and for LoD on a kind without LoD;
    /// [`weighbridge_core::Kind::Unsupported`] for an element type or a kind that Paddle lacks.
    pub fn variable(&mut self, variable: &Variable) -> Result<&mut Self> {
        let name = &variable.name;
        let desc = self::variable(variable)?;
        if !self.names.insert(name.clone()) {
            return Err(Error::usage("name-collision", "duplicate variable name").found(name));
        }
        self.vars.push(desc);
        Ok(self)
    }

    /// Adds an operator. Its `blocks` are ignored: a body is an attribute.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] for an attribute value that does not match its kind, and for an
    /// argument that is not a declared variable.
    pub fn operator(&mut self, operator: &Operator) -> Result<&mut Self> {
        for name in operator.inputs.iter().chain(&operator.outputs).flat_map(|slot| &slot.arguments) {
            self.declared(name)?;
        }
        self.ops.push(self::operator(operator)?);
        Ok(self)
    }

    /// Makes a declared variable the next input of the program.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] for an undeclared variable.
    pub fn feed(&mut self, name: &str) -> Result<&mut Self> {
        self.declared(name)?;
        self.feeds.push(name.to_owned());
        Ok(self)
    }

    /// Makes a declared variable the next output of the program.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] for an undeclared variable.
    pub fn fetch(&mut self, name: &str) -> Result<&mut Self> {
        self.declared(name)?;
        self.fetches.push(name.to_owned());
        Ok(self)
    }

    /// Returns the program: feeds, then the operators in the order of addition, then fetches.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] if a variable has the name of the list of feeds or
    /// fetches; [`weighbridge_core::Kind::Limit`] above the default limits.
    pub fn finish(mut self) -> Result<ProgramDesc> {
        let ops = std::mem::take(&mut self.ops);
        let feeds = std::mem::take(&mut self.feeds);
        let fetches = std::mem::take(&mut self.fetches);
        if !feeds.is_empty() {
            self.holder("feed", VariableKind::Feed)?;
        }
        if !fetches.is_empty() {
            self.holder("fetch", VariableKind::Fetch)?;
        }
        for (column, name) in feeds.iter().enumerate() {
            self.operator(&files::endpoint("feed", ("X", "feed"), ("Out", name), column)?)?;
        }
        self.ops.extend(ops);
        for (column, name) in fetches.iter().enumerate() {
            self.operator(&files::endpoint("fetch", ("X", name), ("Out", "fetch"), column)?)?;
        }
        let block = BlockDesc {
            idx: Some(0),
            parent_idx: Some(-1),
            vars: self.vars,
            ops: self.ops,
            forward_block_idx: Some(-1),
            ..BlockDesc::default()
        };
        let version = Version { version: Some(self.version), ..Version::default() };
        let program = ProgramDesc::of(framework::ProgramDesc {
            blocks: vec![block],
            version: MessageField::some(version),
            ..framework::ProgramDesc::default()
        })?;
        check::check(program.bytes(), &Limits::default(), false)?;
        Ok(program)
    }

    fn declared(&self, name: &str) -> Result<()> {
        if self.names.contains(name) {
            return Ok(());
        }
        Err(Error::usage("no-such-variable", "the variable is not declared").found(name))
    }

    /// Declares the list of inputs or outputs of the executor.
    fn holder(&mut self, name: &str, kind: VariableKind) -> Result<()> {
        let list = Variable { kind, dtype: None, shape: None, ..dense(name, DType::F32, &[]) };
        self.variable(&list).map(|_| ())
    }
}

/// Encodes a variable as a message.
pub(super) fn variable(variable: &Variable) -> Result<VarDesc> {
    if variable.name.is_empty() {
        return Err(Error::usage("empty-name", "the variable name is empty"));
    }
    Ok(VarDesc {
        name: Some(variable.name.clone().into_bytes()),
        r#type: MessageField::some(var_type(variable)?),
        persistable: Some(variable.persistable),
        // False flags are omitted, as in Paddle.
        is_parameter: variable.parameter.then_some(true),
        stop_gradient: variable.stop_gradient.then_some(true),
        ..VarDesc::default()
    })
}

fn operator(operator: &Operator) -> Result<OpDesc> {
    let attrs: Result<Vec<_>> = operator.attributes.iter().map(attribute::attribute).collect();
    Ok(OpDesc {
        inputs: operator.inputs.iter().map(slot).collect(),
        outputs: operator.outputs.iter().map(slot).collect(),
        r#type: Some(operator.kind.clone().into_bytes()),
        attrs: attrs?,
        ..OpDesc::default()
    })
}

/// Encodes an operator `feed` or `fetch` as a message.
pub(super) fn endpoint(
    kind: &str,
    input: (&str, &str),
    output: (&str, &str),
    column: usize,
) -> Result<OpDesc> {
    operator(&files::endpoint(kind, input, output, column)?)
}

fn slot(slot: &Slot) -> Var {
    Var {
        parameter: Some(slot.name.clone().into_bytes()),
        arguments: slot.arguments.iter().map(|a| a.clone().into_bytes()).collect(),
        ..Var::default()
    }
}

fn var_type(variable: &Variable) -> Result<VarType> {
    let number = match &variable.kind {
        VariableKind::Tensor => Type::LOD_TENSOR,
        VariableKind::SelectedRows => Type::SELECTED_ROWS,
        VariableKind::TensorArray => Type::LOD_TENSOR_ARRAY,
        VariableKind::Feed => Type::FEED_MINIBATCH,
        VariableKind::Fetch => Type::FETCH_LIST,
        VariableKind::Vocab => Type::VOCAB,
        VariableKind::Reader => Type::READER,
        VariableKind::Raw => Type::RAW,
        VariableKind::Other(word) => <Type as Enumeration>::from_proto_name(word)
            .ok_or_else(|| Error::unsupported("unknown-kind", "unknown kind of variable").found(word))?,
    };
    let mut desc = VarType { r#type: Some(EnumValue::Known(number)), ..VarType::default() };
    let lod_level = i32::try_from(variable.lod_level)
        .map_err(|_| Error::usage("bad-lod-level", "the number of LoD levels exceeds 2^31 - 1"))?;
    match variable.kind {
        VariableKind::Tensor => {
            desc.lod_tensor = MessageField::some(LoDTensorDesc {
                tensor: MessageField::some(tensor(variable)?),
                lod_level: Some(lod_level),
                ..LoDTensorDesc::default()
            });
            return Ok(desc);
        }
        VariableKind::TensorArray => {
            desc.tensor_array = MessageField::some(LoDTensorArrayDesc {
                tensor: MessageField::some(tensor(variable)?),
                lod_level: Some(lod_level),
                ..LoDTensorArrayDesc::default()
            });
            return Ok(desc);
        }
        VariableKind::SelectedRows => desc.selected_rows = MessageField::some(tensor(variable)?),
        _ => {}
    }
    if lod_level != 0 {
        return Err(Error::usage("bad-lod-level", "LoD is not supported for this kind of variable")
            .found(&variable.name));
    }
    Ok(desc)
}

fn tensor(variable: &Variable) -> Result<TensorDesc> {
    let (Some(dtype), Some(shape)) = (variable.dtype, &variable.shape) else {
        return Err(Error::usage(
            "incomplete-variable",
            "the tensor variable has no element type or no shape",
        )
        .found(&variable.name));
    };
    let number = dtype::number(dtype).ok_or_else(|| {
        Error::unsupported("dtype", "Paddle does not support the element type")
            .found(dtype)
            .on_tensor(&variable.name)
    })?;
    Ok(TensorDesc { data_type: Some(EnumValue::from(number)), dims: shape.clone(), ..TensorDesc::default() })
}
