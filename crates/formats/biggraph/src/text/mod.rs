//! Small text files: counts, versions, lists of names, training statistics; and JSON in Python's
//! form.
//!
//! ```text
//! entity_count_{type}_{part}.txt, dynamic_rel_count.txt, checkpoint_version.txt
//!     a decimal number and \n; read as Python's int(text.strip())
//! entity_names_{type}_{part}.json, dynamic_rel_names.json
//!     one JSON array of strings: [\n    "a",\n    "b"\n]
//! training_stats.json
//!     one JSON object a line
//! ```

mod number;
mod stats;

pub(crate) use number::{number_text, parse_number, read_count, read_version};
pub(crate) use stats::summarise_stats;
pub(crate) use weighbridge_format::json;
pub(crate) use weighbridge_format::names_json::{NameFiles, NamesJson, read_names};
