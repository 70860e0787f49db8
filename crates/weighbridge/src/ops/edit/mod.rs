//! Edits: names, types, shapes and metadata by rules that people can write down and share.
//!
//! A rule is a word and what follows it, the same on the command line and in a [file of rules](read_rules):
//!
//! | rule | what it does |
//! | --- | --- |
//! | `keep PATTERN`, `drop PATTERN` | keeps or leaves out tensors; state goes with its parameter |
//! | `no-state yes` | leaves out optimizer state |
//! | `strip-prefix NAME` | takes leading parts away where they stand |
//! | `rename OLD=NEW` | a whole path, or whole leading parts of it |
//! | `rename-glob PATTERN=NEW` | a pattern that covers the whole name; `{1}` is what its first `*` or `?` stood for |
//! | `rename-regex PATTERN=NEW` | an expression that covers the whole name; `{1}` or `{name}` is a group of it |
//! | `prefix NAME` | puts everything below a name |
//! | `transpose PATTERN`, `transpose PATTERN=1,0,2` | turns matrices, or gives the order of dimensions |
//! | `cast DTYPE`, `cast PATTERN=DTYPE` | floating-point tensors to f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8 |
//! | `tie NAME=OTHER`, `untie PATTERN` | names that have their bytes in common |
//! | `set-metadata KEY=VALUE`, `remove-metadata KEY` | what the file says besides |
//!
//! Rules are applied in order, each upon what the one before left. A rule that fits nothing is an error.
//! No rename replaces something in the middle of a name.

mod apply;
mod casts;
#[cfg(feature = "rules")]
mod file;
mod in_place;
mod overlay;
#[cfg(feature = "rules")]
mod pattern;
#[cfg(not(feature = "rules"))]
#[path = "no_pattern.rs"]
mod pattern;
mod permuted;
mod renaming;
mod report;
#[cfg_attr(not(feature = "rules"), allow(dead_code))] // Places in files of rules.
mod rule;
mod rule_options;
#[cfg(test)]
mod tests;
mod to_file;
mod transpose;

pub use apply::{Applied, apply};
pub(crate) use casts::cast_reports;
#[cfg(feature = "rules")]
pub use file::{parse_rules, read_rules};
pub use in_place::{InPlace, PreparedInPlace, prepare_in_place, write_in_place};
pub use report::{EditMode, EditReport, MetadataChange, TensorChange, TensorSummary, undone_document};
pub use rule::Rule;
pub use rule_options::RuleOptions;
pub use to_file::{EditOptions, Prepared, edit, prepare, write};
