//! Operators that save and load parameters, and the operators `feed` and `fetch`.

use super::{Builder, dense};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{Attribute, AttributeValue, Operator, Slot, Variable, VariableKind};

impl Builder {
    /// Saves one variable, a dense tensor or selected rows, to a separate file. Paddle 2.6 cannot
    /// save bool and complex tensors this way.
    ///
    /// # Errors
    /// Same as [`operator`](Self::operator).
    pub fn save(&mut self, name: &str, path: &str) -> Result<&mut Self> {
        let mut op = operator("save", path);
        op.inputs = vec![slot("X", &[name])];
        op.attributes.extend([truth("overwrite", true), truth("save_as_fp16", false)]);
        self.operator(&op)
    }

    /// Loads one variable from a separate file.
    ///
    /// # Errors
    /// Same as [`operator`](Self::operator).
    pub fn load(&mut self, name: &str, path: &str) -> Result<&mut Self> {
        let mut op = operator("load", path);
        op.outputs = vec![slot("Out", &[name])];
        op.attributes.push(truth("load_as_fp16", false));
        self.operator(&op)
    }

    /// Saves dense tensors to one combined file, in the given order. Loading by name expects the tensors sorted by the
    /// bytes of their names.
    ///
    /// # Errors
    /// Same as [`operator`](Self::operator).
    pub fn save_combine(&mut self, names: &[&str], path: &str) -> Result<&mut Self> {
        let mut op = operator("save_combine", path);
        op.inputs = vec![slot("X", names)];
        // Paddle 2.6 requires an output for the bytes even if they go to a file.
        let memory = self.scratch("save_combine.memory");
        let raw = VariableKind::Raw;
        let sink = Variable { kind: raw, dtype: None, shape: None, ..dense(&memory, DType::F32, &[]) };
        self.variable(&Variable { persistable: false, ..sink })?;
        op.outputs = vec![slot("Y", &[&memory])];
        let flags = [("overwrite", true), ("save_as_fp16", false), ("save_to_memory", false)];
        op.attributes.extend(flags.map(|(name, value)| truth(name, value)));
        self.operator(&op)
    }

    /// Loads dense tensors from one combined file, in file order.
    ///
    /// # Errors
    /// Same as [`operator`](Self::operator).
    pub fn load_combine(&mut self, names: &[&str], path: &str) -> Result<&mut Self> {
        let mut op = operator("load_combine", path);
        op.outputs = vec![slot("Out", names)];
        op.attributes.extend([truth("load_as_fp16", false), truth("model_from_memory", false)]);
        self.operator(&op)
    }

    /// Returns an unused variable name.
    fn scratch(&self, base: &str) -> String {
        let free = |name: &String| !self.names.contains(name);
        (0..=self.names.len()).map(|k| format!("{base}_{k}")).find(free).unwrap_or_else(|| base.to_owned())
    }
}

/// Returns an operator that moves one variable between the program and a list of the executor.
pub(super) fn endpoint(
    kind: &str,
    input: (&str, &str),
    output: (&str, &str),
    column: usize,
) -> Result<Operator> {
    let column = i32::try_from(column)
        .map_err(|_| Error::usage("too-many-endpoints", "the program has too many inputs or outputs"))?;
    let value = AttributeValue::Int(column.into());
    Ok(Operator {
        kind: kind.to_owned(),
        inputs: vec![slot(input.0, &[input.1])],
        outputs: vec![slot(output.0, &[output.1])],
        attributes: vec![
            Attribute { name: "col".to_owned(), kind: "INT".to_owned(), value },
            Attribute { name: "op_role".to_owned(), kind: "INT".to_owned(), value: AttributeValue::Int(0) },
        ],
        blocks: Vec::new(),
    })
}

fn operator(kind: &str, path: &str) -> Operator {
    let path = AttributeValue::Text(path.to_owned());
    Operator {
        kind: kind.to_owned(),
        attributes: vec![
            Attribute { name: "file_path".to_owned(), kind: "STRING".to_owned(), value: path },
            Attribute { name: "op_role".to_owned(), kind: "INT".to_owned(), value: AttributeValue::Int(0) },
        ],
        ..Operator::default()
    }
}

fn slot(name: &str, arguments: &[&str]) -> Slot {
    Slot { name: name.to_owned(), arguments: arguments.iter().map(|&a| a.to_owned()).collect() }
}

fn truth(name: &str, value: bool) -> Attribute {
    Attribute { name: name.to_owned(), kind: "BOOLEAN".to_owned(), value: AttributeValue::Bool(value) }
}
