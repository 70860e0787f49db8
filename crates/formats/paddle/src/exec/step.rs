//! A step of a program, as it is told to people before and after it is run.

use serde_json::{Value as Json, json};
use std::fmt;
use std::path::PathBuf;
use weighbridge_core::text::{escape, first_and_more};

/// What one operator does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The place of the operator in the main block, from 0 on.
    pub place: usize,
    /// Its type, such as `load`.
    pub operator: String,
    /// The variables that it reads.
    pub inputs: Vec<String>,
    /// The variables that it gives values.
    pub outputs: Vec<String>,
    /// The file that it reads, relative to the folder.
    pub reads: Option<PathBuf>,
    /// The file that it writes, relative to the folder.
    pub writes: Option<PathBuf>,
    /// True where a file that stands there is replaced.
    pub replaces: bool,
}

/// Variables that a line names; JSON has them all.
const SHOWN: usize = 4;

impl Step {
    /// `place`, `operator`, `inputs`, `outputs`; `reads`, or `writes` and `replaces`, where there is
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
    /// One line, safe for terminals: `3 load -> w, reads net/w`.
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
            let how = if self.replaces { "writes" } else { "writes, if it is not there," };
            write!(f, ", {how} {}", escape(&file.display().to_string()))?;
        }
        Ok(())
    }
}

fn list(names: &[String]) -> String {
    first_and_more(names.iter().map(|name| escape(name)), SHOWN)
}
