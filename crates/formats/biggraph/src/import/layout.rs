//! Folders and edge files of an import.

use super::MAX_BUCKETS;
use super::relabel::{BucketColumn, Column, Relabeled, starts_in};
use super::segment::Schema;
use crate::config::Config;
use crate::edges::integers::as_integers;
use crate::layout::{FileName, plain_path};
use crate::write::FORMAT_VERSION;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Name, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, PlannedFile};
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_hdf5::write::{Data, Hdf5Builder};
use weighbridge_io::source::SourceRef;

/// Folders and buckets of an import, for a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportLayout {
    /// Folders below the target.
    pub folders: Folders,
    /// Numbers of partitions of left and right sides.
    pub buckets: [u64; 2],
}

impl ImportLayout {
    /// Returns the layout of a configuration.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `edge-sets`, for edge paths that are equal, or none;
    /// [`weighbridge_core::Kind::Unsupported`]: `featurised` for partitioned entity types with features, `url`;
    /// [`weighbridge_core::Kind::Mismatch`], `partitions-differ`; [`weighbridge_core::Kind::Limit`], `too-many-buckets`.
    pub fn of(config: &Config) -> Result<Self> {
        let folders = Folders::of(config)?;
        let featurized =
            config.entities.iter().find(|(_, entity)| entity.featurized && entity.num_partitions > 1);
        if let Some((name, _)) = featurized {
            return Err(Error::unsupported("featurised", "entity types with features cannot be partitioned")
                .found(name)
                .hint("set num_partitions to 1 in the configuration"));
        }
        let sides = config.sides()?;
        if sides.lhs.saturating_mul(sides.rhs) > MAX_BUCKETS {
            return Err(Error::limit("too-many-buckets", "the partitions make too many buckets of edges")
                .expected(format_args!("at most {MAX_BUCKETS}"))
                .found(format_args!("{} times {}", sides.lhs, sides.rhs)));
        }
        if let Some((name, entity)) =
            config.entities.iter().find(|(_, entity)| entity.num_partitions > MAX_BUCKETS)
        {
            return Err(Error::limit("too-many-buckets", "an entity type has too many partitions")
                .expected(format_args!("at most {MAX_BUCKETS}"))
                .found(format_args!("{} of {name}", entity.num_partitions)));
        }
        Ok(Self { folders, buckets: [sides.lhs, sides.rhs] })
    }
}

/// Folders below the target. Empty names are the target itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// Folder of the counts and names of entities.
    pub entities: String,
    /// Folders of edges, in the order of the edge paths.
    pub edges: Vec<String>,
}

impl Folders {
    /// Folders of a configuration: its paths without what they have in common.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `edge-sets`, for edge paths that are equal, or none; [`weighbridge_core::Kind::Unsupported`],
    /// `url`.
    fn of(config: &Config) -> Result<Self> {
        let mut paths = vec![parts(plain_path(&config.entity_path)?)];
        for path in &config.edge_paths {
            paths.push(parts(plain_path(path)?));
        }
        let edges = &paths[1..];
        if edges.is_empty() || edges.iter().enumerate().any(|(at, path)| edges[..at].contains(path)) {
            return Err(Error::usage("edge-sets", "the configuration needs edge paths that differ")
                .expected("a path for each set of edges")
                .found(config.edge_paths.join(", ")));
        }
        let first = &paths[0];
        let common = (0..first.len())
            .take_while(|at| paths.iter().all(|path| path.get(*at) == first.get(*at)))
            .count();
        let mut below = paths.iter().map(|path| path[common..].join("/"));
        let entities = below.next().unwrap_or_default();
        let folders = Self { entities, edges: below.collect() };
        if paths.iter().any(|path| path[common..].contains(&"..")) {
            return Err(Error::usage(
                "edge-sets",
                "the paths of the configuration lead above the folder that they share",
            )
            .expected("an entity path and edge paths inside one folder")
            .found(format_args!("{}, {}", config.entity_path, config.edge_paths.join(", "))));
        }
        Ok(folders)
    }
}

/// Parts of a path, without `.` and `x/..`.
fn parts(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts
}

/// Name of a file in a folder below the target.
pub(super) fn below(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Plans all files that an import may write, without their content.
pub(super) fn planned_names(config: &Config, folders: &Folders) -> Result<Vec<PlannedFile>> {
    let mut names = Vec::new();
    for (entity, kind) in &config.entities {
        for part in 0..kind.num_partitions {
            names.push(below(
                &folders.entities,
                &FileName::EntityCount { entity: entity.clone(), part }.to_string(),
            ));
            names.push(below(
                &folders.entities,
                &FileName::EntityNames { entity: entity.clone(), part }.to_string(),
            ));
        }
    }
    if config.dynamic_relations {
        names.push(below(&folders.entities, &FileName::RelationCount.to_string()));
    }
    names.push(below(&folders.entities, &FileName::RelationNames.to_string()));
    let sides = config.sides()?;
    for folder in &folders.edges {
        for lhs in 0..sides.lhs {
            names.extend((0..sides.rhs).map(|rhs| below(folder, &FileName::Edges { lhs, rhs }.to_string())));
        }
    }
    Ok(names.into_iter().map(|name| FileBuilder::new(name).finish()).collect())
}

/// Plans the file of each bucket; with `like_upstream` only of those with edges.
pub(super) fn edge_files(
    folder: &str,
    chunks: &Arc<Vec<Relabeled>>,
    buckets: [u64; 2],
    schema: &Schema,
    like_upstream: bool,
) -> Result<Vec<PlannedFile>> {
    let mut files = Vec::new();
    let all = (0..buckets[0]).flat_map(|lhs| (0..buckets[1]).map(move |rhs| (lhs, rhs)));
    for (bucket, (lhs, rhs)) in all.enumerate() {
        let starts = Arc::new(starts_in(chunks, Column::Relation, bucket));
        let edges = starts.last().copied().unwrap_or(0);
        if edges == 0 && like_upstream {
            continue;
        }
        let name = below(folder, &FileName::Edges { lhs, rhs }.to_string());
        let mut file = Hdf5Builder::new(name.clone());
        file.attribute(&[], FORMAT_VERSION, &Value::I64(1))?;
        let column = |column, starts: &Arc<Vec<u64>>, dataset: &str, dtype| {
            let source: SourceRef = Arc::new(BucketColumn::new(chunks, starts, bucket, column, name.clone()));
            let path = TensorPath::new([Name::from(dataset)]);
            let rows = source.len() / if dtype == DType::I64 { 8 } else { 4 };
            TensorEntry::dense(path, dtype, Shape::new([rows]), &source, 0, Encoding::ROW)
        };
        for (kind, dataset) in [(Column::Lhs, "lhs"), (Column::Rhs, "rhs"), (Column::Relation, "rel")] {
            file.dataset(&[dataset], Data::Tensor(column(kind, &starts, dataset, DType::I64)?))?;
        }
        for (side, names) in [["lhsd_offsets", "lhsd_data"], ["rhsd_offsets", "rhsd_data"]].iter().enumerate()
        {
            let features = Arc::new(starts_in(chunks, Column::Features(side), bucket));
            if features.last().is_none_or(|count| *count == 0) {
                continue;
            }
            let ends = column(Column::Ends(side), &starts, names[0], DType::I64)?;
            file.dataset(&[names[0]], Data::Tensor(ends))?;
            let features = column(Column::Features(side), &features, names[1], DType::I64)?;
            file.dataset(&[names[1]], Data::Tensor(features))?;
        }
        if schema.weighted {
            let weights = column(Column::Weight, &starts, "weight", DType::F32)?;
            let weights = if like_upstream { as_integers(&weights)? } else { weights };
            file.dataset(&["weight"], Data::Tensor(weights))?;
        }
        files.push(file.finish()?);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(entities: &str, edges: &[&str]) -> Result<Folders> {
        let json = serde_json::json!({
            "entities": {"user": {"num_partitions": 1}},
            "relations": [{"name": "r", "lhs": "user", "rhs": "user"}],
            "dimension": 4, "entity_path": entities, "edge_paths": edges, "checkpoint_path": "m",
        });
        Folders::of(&Config::parse(&json.to_string(), false)?.0)
    }

    #[test]
    fn folders_are_the_paths_below_what_they_share() {
        let of = |entities: &str, edges: &[&str]| {
            let folders = folders(entities, edges).unwrap();
            (folders.entities, folders.edges)
        };
        assert_eq!(
            of("data/FB15k", &["data/FB15k/train", "data/FB15k/valid"]),
            ("".into(), vec!["train".into(), "valid".into()])
        );
        assert_eq!(of("file:///x/entities", &["/x/edges"]), ("entities".into(), vec!["edges".into()]));
        assert_eq!(of("data", &["data"]), (String::new(), vec![String::new()]));
        assert_eq!(of("./data/./a", &["data/b/../c"]), ("a".into(), vec!["c".into()]));
        for (entities, edges) in [("a", vec![]), ("a", vec!["b", "./b"]), ("../a", vec!["b"])] {
            assert_eq!(folders(entities, &edges).unwrap_err().code().as_str(), "edge-sets");
        }
        assert_eq!(folders("a", &["s3://b"]).unwrap_err().code().as_str(), "url");
    }
}
