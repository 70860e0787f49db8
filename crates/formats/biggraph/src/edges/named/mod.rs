//! Edges as records: the names of both entities and of the relation, and the weight.
//!
//! ```text
//! edges_0_1.h5  lhs 5  rhs 2  rel 0  weight 3      lhs = name 5 in entity_names_user_0.json
//!                                                  rhs = name 2 in entity_names_item_1.json
//!                                                  rel = name of relation 0
//! ```
//!
//! A section is a bucket: its edges refer to the names of one partition on each side. Ids of a type without names are written as
//! rows of the whole type, which does not depend on the partitions.

mod meaning;
mod section;

use super::super::layout::FileName;
use super::super::read::Entities;
use super::buckets::{self, Bucket, COLUMNS, Side, column_name};
use super::mover::weight_type;
use meaning::Meaning;
use section::NameCache;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::{
    AsRecords, Checkpoint, Loss, RecordColumn, RecordSection, Records, RecordsRef, TensorEntry,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::DType;
use weighbridge_core::text::counted;
use weighbridge_io::source::SourceRef;

/// View of edges as records.
#[derive(Debug)]
pub(crate) struct NamedEdges {
    /// Folder of the names, if found.
    pub(crate) entities: Option<Entities>,
    /// Limits of reading names.
    pub(crate) limits: Limits,
}

impl AsRecords for NamedEdges {
    fn records(&self, checkpoint: &Checkpoint, memory: u64) -> Result<Option<(RecordsRef, Vec<Loss>)>> {
        let buckets = match buckets::buckets(checkpoint) {
            Ok(buckets) => buckets,
            // Some columns of the edges, or none.
            Err(error) if [ErrorCode::NoSuchColumn, ErrorCode::NoEdges].contains(&error.code()) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let records = EdgeRecords::new(checkpoint, buckets, self, memory)?;
        let losses = records.losses();
        Ok(Some((Arc::new(records), losses)))
    }
}

/// Edges of all buckets, by name.
#[derive(Debug)]
struct EdgeRecords {
    label: String,
    columns: Vec<RecordColumn>,
    buckets: Vec<EdgeBucket>,
    meaning: Meaning,
    names: NameCache,
    /// Names of the tensors that are not written.
    dropped: Vec<String>,
}

/// Columns of a bucket.
#[derive(Debug)]
struct EdgeBucket {
    bucket: Bucket,
    /// Partitions of both sides.
    parts: [u64; 2],
    /// Ids of both sides.
    ids: [TensorEntry; 2],
    rel: TensorEntry,
    weight: Option<TensorEntry>,
}

impl EdgeRecords {
    fn new(checkpoint: &Checkpoint, buckets: Vec<Bucket>, view: &NamedEdges, memory: u64) -> Result<Self> {
        if let Some(lists) = buckets.iter().flat_map(lists_of).find(|lists| lists.elements() > 0) {
            return Err(featurised().on_tensor(lists.name()));
        }
        let dropped = dropped(checkpoint, &buckets);
        let weight = weight_type(&buckets)?;
        let meaning = Meaning::of(checkpoint, view.entities.as_ref(), &view.limits)?;
        let partitioned = meaning.is_partitioned();
        if let Some(parts) = meaning.parts() {
            super::buckets::check_none_outside(&buckets, parts).map_err(|e| e.in_file(&checkpoint.label))?;
        }
        let bucket = |bucket: Bucket| {
            let parts = bucket.parts.or_else(|| parts_in_name(&checkpoint.label));
            if parts.is_none() && partitioned {
                let text = "the partitions of the edges are unknown: the file name does not contain them";
                return Err(Error::mismatch("no-bucket", text).expected("edges_L_R.h5"));
            }
            let column = |name: &str| bucket.needed(name).cloned();
            let ids = [column(Side::Left.ids())?, column(Side::Right.ids())?];
            let (rel, weight) = (column("rel")?, bucket.column("weight").cloned());
            Ok(EdgeBucket { parts: parts.unwrap_or([0, 0]), ids, rel, weight, bucket })
        };
        let buckets = buckets.into_iter().map(bucket).collect::<Result<Vec<_>>>()?;
        meaning.check_rows(checkpoint, &buckets)?;
        let column = |name: &str, dtype: Option<DType>| RecordColumn { name: name.to_owned(), dtype };
        let number = |named: bool| if named { None } else { Some(DType::I64) };
        let mut columns = vec![
            column(Side::Left.ids(), number(meaning.is_named(Side::Left))),
            column("rel", number(meaning.has_relation_names())),
            column(Side::Right.ids(), number(meaning.is_named(Side::Right))),
        ];
        columns.extend(weight.map(|dtype| column("weight", Some(dtype))));
        let names = NameCache::new(memory, view.limits.clone());
        Ok(Self { label: checkpoint.label.clone(), columns, buckets, meaning, names, dropped })
    }

    fn edges(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.rel.elements()))
    }

    fn losses(&self) -> Vec<Loss> {
        let mut losses = self.meaning.losses();
        let detail = "tensor dropped: a list of edges has no column for it";
        losses.extend(self.dropped.iter().map(|name| Loss::new("no-place", name, detail)));
        let numbers = self.buckets.iter().flat_map(|bucket| bucket.ids.iter().chain([&bucket.rel]));
        let inexact = numbers.filter(|column| column.dtype().is_float() || column.dtype() == DType::U64);
        losses.extend(inexact.map(|column| {
            let detail = format!(
                "{} values are read as int64: fractions are truncated, large values clamped",
                column.dtype()
            );
            Loss::new("ids-changed", column.name(), detail)
        }));
        losses
    }

    fn fault(&self, code: &'static str, text: &str, bucket: &EdgeBucket, edge: u64) -> Error {
        Error::corrupt(code, format!("{text}: edge {edge} of {}", bucket.bucket)).in_file(&self.label)
    }
}

impl Records for EdgeRecords {
    fn describe(&self) -> String {
        let columns: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        format!("{}: {}", counted(self.edges(), "edge", "edges"), columns.join(", "))
    }

    fn columns(&self) -> &[RecordColumn] {
        &self.columns
    }

    fn sections(&self) -> Vec<u64> {
        self.buckets.iter().map(|bucket| bucket.rel.elements()).collect()
    }

    fn tensors(&self) -> Vec<&TensorEntry> {
        self.buckets.iter().flat_map(|b| b.ids.iter().chain([&b.rel]).chain(&b.weight)).collect()
    }

    fn sources(&self) -> Vec<SourceRef> {
        self.meaning.sources()
    }

    fn open(&self, section: usize) -> Result<Box<dyn RecordSection + '_>> {
        section::open(self, section)
    }
}

/// Names of the tensors that are not columns of a list of edges.
fn dropped(checkpoint: &Checkpoint, buckets: &[Bucket]) -> Vec<String> {
    let others = checkpoint.tensors.iter().filter(|tensor| !buckets::is_column(tensor));
    let mut dropped: Vec<String> = others.map(TensorEntry::name).collect();
    for bucket in buckets {
        for (place, column) in bucket.columns.iter().enumerate() {
            let name = column_name(column);
            let is_known = name.is_some_and(|name| COLUMNS.contains(&name));
            // Of two columns with one name, the first is written.
            let first = bucket.columns.iter().position(|own| column_name(own) == name);
            if !is_known || first != Some(place) {
                dropped.push(column.name());
            }
        }
    }
    dropped
}

/// Feature columns of a bucket.
fn lists_of(bucket: &Bucket) -> impl Iterator<Item = &TensorEntry> {
    Side::BOTH.into_iter().filter_map(|side| bucket.column(side.data()))
}

/// Partitions in the name of an edge file.
fn parts_in_name(label: &str) -> Option<[u64; 2]> {
    match FileName::parse(Path::new(label).file_name()?.to_str()?)? {
        FileName::Edges { lhs, rhs } => Some([lhs, rhs]),
        _ => None,
    }
}

/// Error for a side that is a list of features.
fn featurised() -> Error {
    let text = "edges of a featurised type have no names: a side is a list of features";
    Error::unsupported("featurised-edges", text).hint("write npz or safetensors instead; they keep the lists")
}
