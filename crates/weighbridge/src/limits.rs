//! What a file may ask for before it is refused.
//!
//! No allocation, recursion or loop is sized by a number from a file before that number was held
//! against the length of the file and against these limits. The defaults fit any honest model
//! known to us; an honest user with a larger one raises them.

use crate::error::{Error, Result};

/// Bounds on what reading an index may cost. `Limits::default()` is safe for files of strangers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Largest header in bytes that is read into memory at once (default 100 MB, as in the
    /// original reader of safetensors).
    pub header_bytes: u64,
    /// Largest number of tensors in one checkpoint (default 4,000,000).
    pub tensors: u64,
    /// Longest name of one tensor in bytes, all parts together (default 1 MiB).
    pub name_bytes: u64,
    /// Largest number of dimensions of one tensor (default 64).
    pub dimensions: u64,
    /// Deepest path, in parts (default 4096).
    pub path_parts: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 100_000_000,
            tensors: 4_000_000,
            name_bytes: 1 << 20,
            dimensions: 64,
            path_parts: 4096,
        }
    }
}

impl Limits {
    /// Refuses a `claim` above `limit`; `what` names the thing and `field` the limit to raise.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] when `claim > limit`.
    pub fn check(what: &str, field: &str, claim: u64, limit: u64) -> Result<()> {
        if claim <= limit {
            return Ok(());
        }
        Err(Error::limit("limit", format!("the file asks for more {what} than is allowed"))
            .expected(format_args!("at most {limit}"))
            .found(claim)
            .hint(format_args!("if you trust the file, raise the limit `{field}`")))
    }

    /// Sets the limit of that field name; for options of the command.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`] for an unknown name, with the names there are.
    pub fn set(&mut self, field: &str, value: u64) -> Result<()> {
        let slot = match field {
            "header_bytes" => &mut self.header_bytes,
            "tensors" => &mut self.tensors,
            "name_bytes" => &mut self.name_bytes,
            "dimensions" => &mut self.dimensions,
            "path_parts" => &mut self.path_parts,
            _ => {
                return Err(Error::usage("unknown-limit", "there is no such limit")
                    .found(field)
                    .hint("the limits are header_bytes, tensors, name_bytes, dimensions, path_parts"));
            }
        };
        *slot = value;
        Ok(())
    }
}
