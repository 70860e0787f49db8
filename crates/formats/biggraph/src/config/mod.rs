//! Configuration: keys, types, defaults and rules, read and written as upstream does.
//!
//! `config.json` is one JSON object, written with `json.dumps(config, indent=4)`: all keys in the order
//! of the fields of [`Config`], with defaults filled in. The same text is the attribute `config/json`
//! of each checkpoint file. From a Python file only the literal dictionary is read; it is never executed.

mod field;
mod parameters;
mod problems;
mod python;
mod schema;
#[cfg(test)]
mod tests;

pub use parameters::{Initial, ModelParameter, Side};
pub use schema::{BucketOrder, Config, EntityType, Relation};

use super::text::json;
use field::{Field, Loader, Writer};
use std::collections::{HashMap, HashSet};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum length of a type name in bytes: it is a part of file names, which are no longer.
const MAX_TYPE_NAME_LEN: usize = 255;

/// Maximum number of entity types: each is a table, and costs thousands of bytes wherever it is reported. Upstream loads all of
/// them at once.
const MAX_TYPES: usize = 1 << 14;

/// Numbers of partitions of the two sides of edges: the dimensions of the table of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides {
    /// Number of partitions of left sides.
    pub lhs: u64,
    /// Number of partitions of right sides.
    pub rhs: u64,
}

impl Config {
    /// Parses a configuration: JSON, or a Python file whose function returns a literal
    /// dictionary (which is not executed). The findings list accepted oddities; with
    /// `lenient` also unknown keys and invalid values, which are replaced by their
    /// defaults.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `not-json`, or `config` with upstream's own wording: an unknown or
    /// missing key, an invalid value, a type name too long for a
    /// file name, or too many types; [`weighbridge_core::Kind::Unsupported`], `python-config`, for Python code other
    /// than literals.
    pub fn parse(text: &str, lenient: bool) -> Result<(Self, Vec<Finding>)> {
        let json = match json::parse(text) {
            Ok(json) => json,
            Err(_) if python::is_python(text) => python::parse(text)?,
            Err(error) => {
                let forms = "JSON, or Python with a function `get_torchbiggraph_config`";
                return Err(error.hint(format!("a configuration is {forms}")));
            }
        };
        let mut loader = Loader::new(lenient);
        let config = Self::load(&json, &mut loader).map_err(field::InvalidValue::error)?;
        drop(json);
        config.check_types()?;
        config.check_whole(&mut loader)?;
        Ok((config, loader.findings))
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// Like [`parse`](Self::parse), and [`weighbridge_core::Kind::Limit`] past [`Limits::header_bytes`].
    pub fn read(source: &SourceRef, options: &OpenOptions) -> Result<(Self, Vec<Finding>)> {
        let limit = options.limits.header_bytes;
        let read = || {
            Limits::check("bytes of configuration", "header_bytes", source.len(), limit)?;
            let bytes = read_vec(&**source, 0, source.len())?;
            let text = String::from_utf8(bytes).map_err(|e| {
                Error::corrupt("not-json", "the configuration is not UTF-8")
                    .at(e.utf8_error().valid_up_to() as u64)
            })?;
            Self::parse(&text, options.lenient)
        };
        let (config, findings) = read().map_err(|e: Error| e.in_file(source.label()))?;
        Ok((config, findings.into_iter().map(|f| f.in_file(source.label())).collect()))
    }

    /// Returns the text of `config.json`, byte for byte as upstream's last state writes it: no final
    /// newline.
    pub fn to_json(&self) -> String {
        let mut writer = Writer::new(false);
        self.dump(&mut writer);
        writer.text
    }

    /// Returns the text for release 1.0.0, without the keys of later versions, which it refuses.
    pub fn to_json_of_release(&self) -> String {
        let mut writer = Writer::new(true);
        self.dump(&mut writer);
        writer.text
    }

    /// Returns the text for all releases: that of 1.0.0 where it holds everything, else that of upstream's last state.
    pub fn to_json_for_all(&self) -> String {
        let (last, release) = (self.to_json(), self.to_json_of_release());
        match Self::parse(&release, false) {
            Ok((same, _)) if same.to_json() == last => release,
            _ => last,
        }
    }

    /// Entity type of this name.
    pub fn entity(&self, name: &str) -> Option<&EntityType> {
        self.entities.iter().find(|(own, _)| own == name).map(|(_, entity)| entity)
    }

    /// All entity types by name, for repeated lookups.
    pub(crate) fn by_name(&self) -> HashMap<&str, &EntityType> {
        let mut all = HashMap::with_capacity(self.entities.len());
        for (name, entity) in &self.entities {
            all.entry(name.as_str()).or_insert(entity);
        }
        all
    }

    /// Entity types with tables in a version, in order: those used by a relation. Upstream neither
    /// trains nor writes any other.
    pub fn stored_types(&self) -> impl Iterator<Item = (&str, &EntityType)> {
        let used: HashSet<&str> =
            self.relations.iter().flat_map(|r| [r.lhs.as_str(), r.rhs.as_str()]).collect();
        let all = self.entities.iter().map(|(name, entity)| (name.as_str(), entity));
        all.filter(move |(name, _)| used.contains(name))
    }

    /// Number of columns of the table of a type; `None` for an unknown type.
    pub fn dimension_of(&self, name: &str) -> Option<u64> {
        Some(self.entity(name)?.dimension.unwrap_or(self.dimension))
    }

    /// Numbers of partitions of the two sides of edges.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `partitions-differ`, if the partitioned types of one side have
    /// different numbers. Upstream detects that when training starts.
    pub fn sides(&self) -> Result<Sides> {
        let types = self.by_name();
        let parts = |side: Side| {
            let mut parts = 1;
            for relation in &self.relations {
                let own = types.get(relation.side(side)).map_or(1, |entity| entity.num_partitions);
                if own > 1 && parts > 1 && own != parts {
                    let what = "Currently num_partitions must be a single value across all \
                                partitioned entities.";
                    return Err(Error::mismatch("partitions-differ", what)
                        .expected(format_args!("{parts} partitions on the {side} side"))
                        .found(format_args!("{own} of {}", relation.side(side))));
                }
                parts = parts.max(own);
            }
            Ok(parts)
        };
        Ok(Sides { lhs: parts(Side::Lhs)?, rhs: parts(Side::Rhs)? })
    }

    /// Returns the configuration with `parts` partitions for each of `types`. Without types: for the
    /// partitioned ones, or, if there are none, for all without features.
    #[must_use]
    pub fn with_partitions(mut self, parts: u64, types: &[&str]) -> Self {
        let any = self.entities.iter().any(|(_, entity)| entity.num_partitions > 1);
        for (name, entity) in &mut self.entities {
            let meant = match types {
                [] if any => entity.num_partitions > 1,
                [] => !entity.featurized,
                types => types.contains(&name.as_str()),
            };
            if meant {
                entity.num_partitions = parts.max(1);
            }
        }
        self
    }

    /// Checks the type names, which are repeated for each partition and must be valid in file names.
    fn check_types(&self) -> Result<()> {
        if self.entities.len() > MAX_TYPES {
            return Err(Error::corrupt("config", "the configuration has too many entity types")
                .expected(format_args!("at most {MAX_TYPES}"))
                .found(self.entities.len()));
        }
        let Some((name, _)) = self.entities.iter().find(|(name, _)| name.len() > MAX_TYPE_NAME_LEN) else {
            return Ok(());
        };
        Err(Error::corrupt("config", "an entity type name is too long for a file name")
            .expected(format_args!("at most {MAX_TYPE_NAME_LEN} bytes"))
            .found(format_args!("{} bytes", name.len())))
    }

    /// Checks the rules that concern several keys.
    fn check_whole(&self, loader: &mut Loader) -> Result<()> {
        let types = self.by_name();
        for (number, relation) in self.relations.iter().enumerate() {
            for (side, word) in [(Side::Lhs, "left"), (Side::Rhs, "right")] {
                let entity = relation.side(side);
                if !types.contains_key(entity) {
                    loader.odd(format!(
                        "Relation type {} (#{number}) has an unknown {word}-hand side entity type {entity}",
                        relation.name
                    ))?;
                }
            }
        }
        if self.dynamic_relations && self.relations.len() != 1 {
            loader.odd("When dynamic relations are in use only one relation type must be defined.".into())?;
        }
        if self.disable_lhs_negs && self.disable_rhs_negs {
            loader.odd("Cannot disable negative sampling on both sides.".into())?;
        }
        Ok(())
    }
}

/// JSON text of a configuration: `text` itself, or the literals of a Python file with all
/// defaults filled in.
///
/// # Errors
/// Like [`Config::parse`] if a Python file contains more than literals.
pub(crate) fn json_text(text: String) -> Result<String> {
    if text.trim_start().starts_with('{') || !python::is_python(&text) {
        return Ok(text);
    }
    let json = json::write(&python::parse(&text)?);
    Ok(Config::parse(&json, false).map_or(json, |(config, _)| config.to_json_for_all()))
}
