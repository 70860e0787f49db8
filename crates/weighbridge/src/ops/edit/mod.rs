//! Edits of names, types, shapes and metadata, by rules that can be stored and shared.
//!
//! A rule is a word and its arguments, the same on the command line and in a [file of rules](read_rules):
//!
//! | rule | effect |
//! | --- | --- |
//! | `keep PATTERN`, `drop PATTERN` | keeps or drops tensors; state follows its parameter |
//! | `no-state yes` | drops optimizer state |
//! | `strip-prefix NAME` | removes leading name parts where present |
//! | `rename OLD=NEW` | renames a whole path, or whole leading parts of it |
//! | `rename-glob PATTERN=NEW` | renames by a pattern for the whole name; `{1}` is the text of its first `*` or `?` |
//! | `rename-regex PATTERN=NEW` | renames by an expression for the whole name; `{1}` or `{name}` is a group |
//! | `prefix NAME` | prepends a name to all names |
//! | `transpose PATTERN`, `transpose PATTERN=1,0,2` | transposes matrices, or permutes dimensions |
//! | `cast DTYPE`, `cast PATTERN=DTYPE` | casts floating-point tensors to f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8 |
//! | `tie NAME=OTHER`, `untie PATTERN` | shares storage between tensors, or separates it |
//! | `set-metadata KEY=VALUE`, `remove-metadata KEY` | changes the metadata of the file |
//!
//! Rules are applied in order, each to the result of the previous one. A rule that matches nothing is an error. No rename
//! replaces a part in the middle of a name.
//!
//! ```
//! # fn main() -> weighbridge::Result<()> {
//! # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
//! # let folder = tempfile::tempdir().unwrap();
//! # let target = folder.path().join("edited.safetensors");
//! use weighbridge::ops::edit::{EditOptions, Rule, edit};
//!
//! let rules = Rule::parse("rename", &["w1=layer1.weight".to_owned()])?;
//! let report = edit(&path, &target, &EditOptions { rules, ..EditOptions::default() })?;
//! println!("{} of {} tensors changed", report.changes.len(), report.tensors);
//! assert!(weighbridge::open(&target)?.tensor("layer1.weight").is_ok());
//! # Ok(())
//! # }
//! ```

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

pub(crate) use apply::suggest;
pub use apply::{Applied, apply};
pub(crate) use casts::cast_reports;
#[cfg(feature = "rules")]
pub use file::{parse_rules, read_rules};
pub use in_place::{InPlace, PreparedInPlace, prepare_in_place, write_in_place};
pub use report::{EditMode, EditReport, MetadataChange, TensorChange, TensorSummary, undone_document};
pub use rule::Rule;
pub use rule_options::RuleOptions;
pub use to_file::{EditOptions, Prepared, edit, prepare, write};
