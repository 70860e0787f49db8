//! Rules from separate options, one per rule word.

use super::Rule;
#[cfg(feature = "rules")]
use super::read_rules;
use crate::error::Result;
#[cfg(feature = "rules")]
use std::path::PathBuf;

/// Rules by kind. They are applied in the order of these fields, each to the result of the previous one.
#[derive(Debug, Clone, Default)]
pub struct RuleOptions {
    /// Files of rules.
    #[cfg(feature = "rules")]
    pub files: Vec<PathBuf>,
    /// Patterns of the tensors to keep.
    pub keep: Vec<String>,
    /// Patterns of tensors to drop.
    pub drop: Vec<String>,
    /// Drop optimizer state.
    pub no_state: bool,
    /// Leading name parts to remove.
    pub strip_prefix: Vec<String>,
    /// New names, `OLD=NEW`.
    pub rename: Vec<String>,
    /// New names by patterns, `PATTERN=NEW`.
    pub rename_glob: Vec<String>,
    /// New names by expressions, `REGEX=NEW`.
    pub rename_regex: Vec<String>,
    /// A name to prepend to all names.
    pub prefix: Option<String>,
    /// Matrices to transpose, `PATTERN` or `PATTERN=AXES`.
    pub transpose: Vec<String>,
    /// Types, `DTYPE` or `PATTERN=DTYPE`.
    pub cast: Vec<String>,
    /// Pairs of names to share storage, `NAME=OTHER`.
    pub tie: Vec<String>,
    /// Patterns of names to give separate storage.
    pub untie: Vec<String>,
    /// Metadata to set, `KEY=VALUE`.
    pub set_metadata: Vec<String>,
    /// Keys of metadata to remove.
    pub remove_metadata: Vec<String>,
}

impl RuleOptions {
    /// Returns the rules, in order.
    ///
    /// # Errors
    /// As `read_rules` and [`Rule::parse`].
    pub fn rules(&self) -> Result<Vec<Rule>> {
        let mut rules = Vec::new();
        #[cfg(feature = "rules")]
        for file in &self.files {
            rules.extend(read_rules(file)?);
        }
        let no_state: Vec<String> = self.no_state.then(|| "yes".to_owned()).into_iter().collect();
        let prefix: Vec<String> = self.prefix.iter().cloned().collect();
        for (word, arguments) in [
            ("keep", &self.keep),
            ("drop", &self.drop),
            ("no-state", &no_state),
            ("strip-prefix", &self.strip_prefix),
            ("rename", &self.rename),
            ("rename-glob", &self.rename_glob),
            ("rename-regex", &self.rename_regex),
            ("prefix", &prefix),
            ("transpose", &self.transpose),
            ("cast", &self.cast),
            ("tie", &self.tie),
            ("untie", &self.untie),
            ("set-metadata", &self.set_metadata),
            ("remove-metadata", &self.remove_metadata),
        ] {
            if !arguments.is_empty() {
                rules.extend(Rule::parse(word, arguments)?);
            }
        }
        Ok(rules)
    }
}
