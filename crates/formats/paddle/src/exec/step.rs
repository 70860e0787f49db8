//! Steps of a program, for display before and after they are run.

use serde_json::{Value as Json, json};
use std::fmt;
use std::path::PathBuf;
use weighbridge_core::text::{escape, first_and_more};

/// Step that one operator performs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Index of the operator in the main block, counted from 0.
    pub place: usize,
    /// Operator type, such as `load`.
    pub operator: String,
    /// Variables that it reads.
    pub inputs: Vec<String>,
    /// Variables that it writes.
    pub outputs: Vec<String>,
    /// File that it reads, relative to the folder.
    pub reads: Option<PathBuf>,
    /// File that it writes, relative to the folder.
    pub writes: Option<PathBuf>,
    /// True if an existing file is replaced.
    pub replaces: bool,
}

/// Maximum number of variables in a line; JSON contains all.
const MAX_NAMES_SHOWN: usize = 4;

impl Step {
    /// Returns `place`, `operator`, `inputs`, `outputs`; `reads`, or `writes` and `replaces`, if there is
    /// a file.
    pub fn to_json(&self) -> Json {
        let mut json = json!({
            "place": self.place,
            "operator": self.operator,
            "inputs": self.inputs,
            "outputs": self.outputs,
        });
        if let Some(file) = &self.reads {
            json["reads"] = json!(file.display().to_string());
        }
        if let Some(file) = &self.writes {
            json["writes"] = json!(file.display().to_string());
            json["replaces"] = json!(self.replaces);
        }
        json
    }
}

impl fmt::Display for Step {
    /// Formats one line, safe for terminals: `3 load -> w, reads net/w`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place, escape(&self.operator))?;
        if !self.inputs.is_empty() {
            write!(f, " {}", list(&self.inputs))?;
        }
        if !self.outputs.is_empty() {
            write!(f, " -> {}", list(&self.outputs))?;
        }
        if let Some(file) = &self.reads {
            write!(f, ", reads {}", escape(&file.display().to_string()))?;
        }
        if let Some(file) = &self.writes {
            let how = if self.replaces { "writes" } else { "writes (if absent)" };
            write!(f, ", {how} {}", escape(&file.display().to_string()))?;
        }
        Ok(())
    }
}

fn list(names: &[String]) -> String {
    first_and_more(names.iter().map(|name| escape(name)), MAX_NAMES_SHOWN)
}
