//! Meaning of the numbers of edges: entity types and relations, and the files of their names.

use super::super::super::config::Config;
use super::super::super::layout::FileName;
use super::super::super::read::{Entities, lists_of, numbers};
use super::super::super::text::read_names;
use super::super::buckets::Side;
use super::super::{CONFIG, COUNTS, counts};
use super::EdgeBucket;
use std::collections::HashMap;
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, Loss, RowNameList, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Opt, Phrase};
use weighbridge_io::source::SourceRef;

/// Entity types and relations of edges.
#[derive(Debug)]
pub(super) struct Meaning {
    types: Vec<EntityType>,
    /// Types of both sides of each relation; a single pair if it applies to every relation.
    pairs: Vec<[usize; 2]>,
    /// True where the first pair applies to every relation.
    same: bool,
    /// Number of relations, if known.
    relations: Option<u64>,
    relation_names: Option<RowNameList>,
    relation_source: Option<SourceRef>,
}

/// Entity type.
#[derive(Debug)]
pub(super) struct EntityType {
    /// Name; `None` for unknown types.
    name: Option<String>,
    pub(super) featurised: bool,
    parts: u64,
    /// Number of rows of each partition, if known.
    counts: Vec<Option<u64>>,
    /// First row of each partition, if all counts are known.
    starts: Option<Vec<u64>>,
    /// Name file of each partition, if all exist.
    names: Option<Vec<SourceRef>>,
    /// First missing name file.
    missing: Option<String>,
}

/// Rows of a type that the ids of a bucket refer to.
#[derive(Debug, Clone)]
pub(super) struct Partition {
    /// Index of the partition.
    pub(super) part: u64,
    /// Index of its first row in the whole type.
    pub(super) start: u64,
    /// Number of rows, if known.
    pub(super) rows: Option<u64>,
    /// Name file.
    pub(super) names: Option<SourceRef>,
}

impl Meaning {
    /// Meaning of the edges of a checkpoint, with the names in the folder `entities`.
    ///
    /// # Errors
    /// Errors of the configuration and of the relation names.
    pub(super) fn of(checkpoint: &Checkpoint, entities: Option<&Entities>, limits: &Limits) -> Result<Self> {
        let config = match checkpoint.metadata.get(CONFIG) {
            Some(Value::Text(text)) => {
                Some(Config::parse(text, true).map_err(|e| e.in_file(&checkpoint.label))?.0)
            }
            _ => None,
        };
        let counts = lists_of(checkpoint.metadata.get(COUNTS));
        let counts_of = |name: &str| counts.get(name).copied().map(numbers).unwrap_or_default();
        let mut meaning = Self {
            types: Vec::new(),
            pairs: Vec::new(),
            same: true,
            relations: None,
            relation_names: None,
            relation_source: None,
        };
        match &config {
            Some(config) => {
                let mut places: HashMap<&str, usize> = HashMap::new();
                let all = config.by_name();
                for relation in &config.relations {
                    let mut pair = [0; 2];
                    for (place, name) in pair.iter_mut().zip([&relation.lhs, &relation.rhs]) {
                        let entity = all.get(name.as_str()).ok_or_else(|| {
                            Error::mismatch("no-such-type", "a relation uses an unknown entity type")
                                .found(name)
                        })?;
                        *place = match places.get(name.as_str()) {
                            Some(known) => *known,
                            None => {
                                let (parts, counts) = (entity.num_partitions, counts_of(name));
                                let own = EntityType::new(name, entity.featurized, parts, counts, entities)?;
                                meaning.types.push(own);
                                places.insert(name, meaning.types.len() - 1);
                                meaning.types.len() - 1
                            }
                        };
                    }
                    meaning.pairs.push(pair);
                }
                meaning.same = config.dynamic_relations;
            }
            None => {
                // A single type is the type of every edge.
                let single = match checkpoint.metadata.get(COUNTS) {
                    Some(Value::Map(types)) => match types.as_slice() {
                        [(name, _)] => name.as_str(),
                        _ => None,
                    },
                    _ => None,
                };
                let kind = match single {
                    Some(name) => {
                        let counts = counts_of(name);
                        EntityType::new(name, false, (counts.len() as u64).max(1), counts, entities)?
                    }
                    None => EntityType::unknown(),
                };
                meaning.types.push(kind);
                meaning.pairs.push([0, 0]);
            }
        }
        if meaning.same {
            let count = match checkpoint.metadata.get("dynamic_relations") {
                Some(Value::U64(count)) => Some(*count),
                _ => None,
            };
            meaning.take_relation_names(entities, limits)?;
            meaning.relations = meaning.relation_names.as_ref().map(|names| names.len() as u64).or(count);
        } else if let Some(config) = &config {
            meaning.relations = Some(meaning.pairs.len() as u64);
            let names = config.relations.iter().map(|relation| relation.name.as_str());
            meaning.relation_names = Some(names.collect());
        }
        Ok(meaning)
    }

    fn take_relation_names(&mut self, entities: Option<&Entities>, limits: &Limits) -> Result<()> {
        let name = FileName::RelationNames.to_string();
        let Some(source) = entities.map(|e| e.folder.open(Path::new(&name))).transpose()?.flatten() else {
            return Ok(());
        };
        Limits::check("bytes of names", "header_bytes", source.len(), limits.header_bytes)?;
        let mut list = RowNameList::new();
        read_names(&source, limits, None, &mut list)?;
        self.relation_names = Some(list);
        self.relation_source = Some(source);
        Ok(())
    }

    /// Fails if the rows of ids without names cannot be counted.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-config`, `no-counts`.
    pub(super) fn check_rows(&self, checkpoint: &Checkpoint, buckets: &[EdgeBucket]) -> Result<()> {
        for kind in self.types.iter().filter(|kind| kind.names.is_none()) {
            match &kind.name {
                Some(name) if kind.parts > 1 && kind.starts.is_none() => {
                    return Err(counts(checkpoint, name).err().unwrap_or_else(|| {
                        Error::mismatch(
                            "no-counts",
                            format!("the counts of type {name} are not those of {} partitions", kind.parts),
                        )
                    }));
                }
                None if buckets.iter().any(|bucket| bucket.parts != [0, 0]) => {
                    let text = "the entity types of partitioned edges are unknown";
                    return Err(Error::mismatch("no-config", text)
                        .in_file(&checkpoint.label)
                        .hint(phrase![
                            Opt::Entities.any("FOLDER"),
                            " is the folder with the counts and names of entities; several entity types also need ",
                            Opt::Config.any("FILE"),
                            " (config.json)"
                        ]));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// True where a type has several partitions.
    pub(super) fn is_partitioned(&self) -> bool {
        self.types.iter().any(|kind| kind.parts > 1)
    }

    /// Numbers of partitions of both sides; `None` where the types of the edges are unknown.
    pub(super) fn parts(&self) -> Option<[u64; 2]> {
        let known = self.types.iter().all(|kind| kind.name.is_some());
        let most = |side: usize| self.pairs.iter().map(|pair| self.types[pair[side]].parts).max();
        known.then(|| [most(0).unwrap_or(1), most(1).unwrap_or(1)])
    }

    /// True where a type on this side has names.
    pub(super) fn is_named(&self, side: Side) -> bool {
        self.pairs.iter().any(|pair| self.types[pair[side as usize]].names.is_some())
    }

    pub(super) fn has_relation_names(&self) -> bool {
        self.relation_names.is_some()
    }

    /// Name of a relation.
    pub(super) fn relation_name(&self, rel: i64) -> Option<&str> {
        self.relation_names.as_ref()?.get(usize::try_from(rel).ok()?)
    }

    /// Maximum bytes of a relation name.
    pub(super) fn longest_relation(&self) -> u64 {
        self.relation_names.as_ref().map_or(0, |names| names.iter().map(str::len).max().unwrap_or(0)) as u64
    }

    /// Types of both sides of a relation; `None` for an undefined relation.
    #[inline]
    pub(super) fn pair(&self, rel: i64) -> Option<[usize; 2]> {
        let number = u64::try_from(rel).ok().filter(|rel| self.relations.is_none_or(|count| *rel < count))?;
        let place = if self.same { 0 } else { usize::try_from(number).ok()? };
        self.pairs.get(place).copied()
    }

    /// Valid relations, for messages.
    pub(super) fn expected_relation(&self) -> String {
        match self.relations {
            Some(count) => format!("0 to {} ({count} relations)", count.saturating_sub(1)),
            None => "0 or more".to_owned(),
        }
    }

    pub(super) fn types(&self) -> &[EntityType] {
        &self.types
    }

    /// True for each type on this side.
    pub(super) fn used(&self, side: Side) -> Vec<bool> {
        let mut used = vec![false; self.types.len()];
        self.pairs.iter().for_each(|pair| used[pair[side as usize]] = true);
        used
    }

    /// Losses: names that are unknown.
    pub(super) fn losses(&self) -> Vec<Loss> {
        let mut losses: Vec<Loss> = self.types.iter().filter_map(EntityType::loss).collect();
        if self.relation_names.is_none() {
            let detail = phrase![
                "written as numbers, as the names were not found; use ",
                Opt::Entities.any("FOLDER"),
                " (the folder with dynamic_rel_names.json) or ",
                Opt::Config.any("FILE"),
                " (config.json)"
            ];
            losses.push(Loss::new("no-names", "rel", detail));
        }
        losses
    }

    pub(super) fn sources(&self) -> Vec<SourceRef> {
        let names = self.types.iter().flat_map(|kind| kind.names.iter().flatten());
        names.chain(&self.relation_source).cloned().collect()
    }
}

impl EntityType {
    fn new(
        name: &str,
        featurised: bool,
        parts: u64,
        counts: Vec<Option<u64>>,
        entities: Option<&Entities>,
    ) -> Result<Self> {
        let mut kind = Self { name: Some(name.to_owned()), featurised, parts, counts, ..Self::unknown() };
        kind.starts = kind.starts();
        let (Some(entities), false) = (entities, featurised) else { return Ok(kind) };
        // A configuration can claim any number of partitions: the search ends at the first missing file.
        let mut names = Vec::new();
        for part in 0..parts {
            let file = FileName::EntityNames { entity: name.to_owned(), part }.to_string();
            match entities.folder.open(Path::new(&file))? {
                Some(source) => names.push(source),
                None => {
                    kind.missing = Some(file);
                    return Ok(kind);
                }
            }
        }
        kind.names = Some(names);
        Ok(kind)
    }

    fn unknown() -> Self {
        Self {
            name: None,
            featurised: false,
            parts: 1,
            counts: Vec::new(),
            starts: None,
            names: None,
            missing: None,
        }
    }

    /// First row of each partition; `None` if a count is missing, or the sum is not an `i64`.
    fn starts(&self) -> Option<Vec<u64>> {
        let mut starts = vec![0u64];
        for count in self.counts.iter().take(usize::try_from(self.parts).ok()?) {
            let sum = starts.last()?.checked_add((*count)?)?;
            starts.push(i64::try_from(sum).ok()?.unsigned_abs());
        }
        (starts.len() as u64 > self.parts).then_some(starts)
    }

    /// Partition of this type in a bucket with partition `part` on its side; `None` if the type does not have it.
    pub(super) fn partition(&self, part: u64) -> Option<Partition> {
        // An unpartitioned type is whole in every bucket.
        let part = if self.parts == 1 { 0 } else { part };
        let place = usize::try_from(part).ok().filter(|_| part < self.parts)?;
        let start = self.starts.as_ref().and_then(|starts| starts.get(place).copied()).unwrap_or(0);
        let names = self.names.as_ref().and_then(|names| names.get(place)).cloned();
        Some(Partition { part, start, rows: self.counts.get(place).copied().flatten(), names })
    }

    /// Name, for messages.
    pub(super) fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or("(unknown)")
    }

    fn loss(&self) -> Option<Loss> {
        if self.names.is_some() || self.featurised {
            return None;
        }
        let entities = || Opt::Entities.any("FOLDER");
        let (subject, detail): (_, Phrase) = match (&self.name, &self.missing) {
            (Some(name), Some(file)) => (
                name.as_str(),
                phrase![
                    format_args!("written as row numbers, as {file} is missing; use "),
                    entities(),
                    " (the folder with the file)"
                ],
            ),
            (Some(name), None) => (
                name.as_str(),
                phrase![
                    "written as row numbers, as the names were not found; use ",
                    entities(),
                    " (the folder with entity_names_TYPE_PART.json)"
                ],
            ),
            (None, _) => (
                "lhs, rhs",
                phrase![
                    "written as row numbers, as the names were not found; use ",
                    entities(),
                    " (the folder with entity_names_TYPE_PART.json), with several entity types also ",
                    Opt::Config.any("FILE"),
                    " (config.json)"
                ],
            ),
        };
        Some(Loss::new("no-names", subject, detail))
    }
}
