//! The configuration: keys, types, defaults, rules; read and written as upstream does.
//!
//! `config.json` is one JSON object, written with `json.dumps(config, indent=4)`: all keys in the order
//! of the fields of [`Config`], defaults filled in. The same text stands in the attribute `config/json`
//! of each file of a checkpoint. Of a Python file the literal dictionary is read; it is never executed.

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

/// Longest name of a type, in bytes: it is a part of the names of files, none of which is longer.
const MOST_TYPE_NAME: usize = 255;

/// Types that there may be: each is a table, and thousands of bytes wherever it is told. Upstream loads all of them at
/// once.
const MOST_TYPES: usize = 1 << 14;

/// The numbers of partitions of the two sides of edges: the extents of the table of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides {
    /// Partitions of left sides.
    pub lhs: u64,
    /// Partitions of right sides.
    pub rhs: u64,
}

impl Config {
    /// Reads the text of a configuration: JSON, or a Python file whose function returns a literal
    /// dictionary, which is not run. The findings tell what was taken though it is odd;
    /// where `lenient` is set also unknown keys and values of the wrong sort, in whose place the
    /// default stands.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `not-json`, or `config` with upstream's own words: an unknown key, a
    /// missing one, a value of the wrong sort or against the rule, a type whose name is too long for a
    /// file, or too many of them; [`weighbridge_core::Kind::Unsupported`], `python-config`, for Python code that is more
    /// than literals.
    pub fn parse(text: &str, lenient: bool) -> Result<(Self, Vec<Finding>)> {
        let json = match json::parse(text) {
            Ok(json) => json,
            Err(_) if python::is_python(text) => python::parse(text)?,
            Err(error) => return Err(error),
        };
        let mut loader = Loader::new(lenient);
        let config = Self::load(&json, &mut loader).map_err(field::Wrong::error)?;
        drop(json);
        config.check_types()?;
        config.check_whole(&mut loader)?;
        Ok((config, loader.findings))
    }

    /// Reads a file that holds a configuration.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and [`weighbridge_core::Kind::Limit`] past [`Limits::header_bytes`].
    pub fn read(source: &SourceRef, options: &OpenOptions) -> Result<(Self, Vec<Finding>)> {
        let limit = options.limits.header_bytes;
        let read = || {
            Limits::check("bytes of configuration", "header_bytes", source.len(), limit)?;
            let bytes = read_vec(&**source, 0, source.len())?;
            let text = String::from_utf8(bytes).map_err(|e| {
                Error::corrupt("not-json", "the configuration is not text in UTF-8")
                    .at(e.utf8_error().valid_up_to() as u64)
            })?;
            Self::parse(&text, options.lenient)
        };
        let (config, findings) = read().map_err(|e: Error| e.in_file(source.label()))?;
        Ok((config, findings.into_iter().map(|f| f.in_file(source.label())).collect()))
    }

    /// The text of `config.json`, byte for byte as upstream's last state writes it: no line end at
    /// the end.
    pub fn to_json(&self) -> String {
        let mut writer = Writer::new(false);
        self.dump(&mut writer);
        writer.text
    }

    /// The same for release 1.0.0, which refuses the keys that came later: they are left out.
    pub fn to_json_of_release(&self) -> String {
        let mut writer = Writer::new(true);
        self.dump(&mut writer);
        writer.text
    }

    /// The type of that name.
    pub fn entity(&self, name: &str) -> Option<&EntityType> {
        self.entities.iter().find(|(own, _)| own == name).map(|(_, entity)| entity)
    }

    /// All types by name, for who asks for more than one.
    pub(crate) fn by_name(&self) -> HashMap<&str, &EntityType> {
        let mut all = HashMap::with_capacity(self.entities.len());
        for (name, entity) in &self.entities {
            all.entry(name.as_str()).or_insert(entity);
        }
        all
    }

    /// The types of which a version has tables, in order: those that a relation uses. Upstream neither
    /// trains nor writes any other.
    pub fn stored_types(&self) -> impl Iterator<Item = (&str, &EntityType)> {
        let used: HashSet<&str> =
            self.relations.iter().flat_map(|r| [r.lhs.as_str(), r.rhs.as_str()]).collect();
        let all = self.entities.iter().map(|(name, entity)| (name.as_str(), entity));
        all.filter(move |(name, _)| used.contains(name))
    }

    /// The number of columns of the table of a type; `None` where there is no such type.
    pub fn dimension_of(&self, name: &str) -> Option<u64> {
        Some(self.entity(name)?.dimension.unwrap_or(self.dimension))
    }

    /// How many partitions the two sides of edges have.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `partitions-differ`, where the partitioned types of one side have
    /// different numbers. Upstream finds that when training starts.
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

    /// The same configuration with `parts` partitions for each of `types`. Without types: for those
    /// that are partitioned, or, where none is, for all that have no features.
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

    /// Names of types are repeated for each partition, among others: they must be such as files can have.
    fn check_types(&self) -> Result<()> {
        if self.entities.len() > MOST_TYPES {
            return Err(Error::corrupt("config", "the configuration has more types than any model")
                .expected(format_args!("at most {MOST_TYPES}"))
                .found(self.entities.len()));
        }
        let Some((name, _)) = self.entities.iter().find(|(name, _)| name.len() > MOST_TYPE_NAME) else {
            return Ok(());
        };
        Err(Error::corrupt("config", "a type has a longer name than a file can have")
            .expected(format_args!("at most {MOST_TYPE_NAME} bytes"))
            .found(format_args!("{} bytes", name.len())))
    }

    /// The rules that concern more than one key.
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

/// The JSON text of a configuration: `text` itself, or what the literals of a Python file are, with all
/// defaults filled in.
///
/// # Errors
/// As [`Config::parse`] where a Python file is more than literals.
pub(crate) fn json_text(text: String) -> Result<String> {
    if text.trim_start().starts_with('{') || !python::is_python(&text) {
        return Ok(text);
    }
    let json = json::write(&python::parse(&text)?);
    Ok(Config::parse(&json, false).map_or(json, |(config, _)| config.to_json()))
}
