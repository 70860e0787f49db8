//! Check of every edge of a bucket.

use super::super::read::LISTS;
use super::column::{Id, ids};
use super::edges::{Bucket, Meaning, Side};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::text::counted;

/// Number of edges or features checked together.
const BLOCK_EDGES: u64 = 1 << 17;
/// Column names of the sides.
const SIDES: [&str; 2] = ["lhs", "rhs"];

/// Checks the edges of a bucket; reports at most one finding per fault and column.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] if bytes cannot be read.
pub(super) fn check_bucket(bucket: &Bucket, meaning: Option<&Meaning>) -> Result<Vec<Finding>> {
    let (Some(&lhs), Some(&rhs), Some(&rel)) =
        (bucket.columns.get("lhs"), bucket.columns.get("rhs"), bucket.columns.get("rel"))
    else {
        return Ok(Vec::new());
    };
    let mut bucket_check = BucketCheck { bucket, meaning, faults: BTreeMap::new() };
    let mut lists = LISTS.map(|(offsets, data)| {
        let both = bucket.columns.get(offsets).zip(bucket.columns.get(data));
        both.map(|(&offsets, &data)| Lists {
            offsets,
            data,
            starts: Vec::new(),
            block: Vec::new(),
            block_at: 0,
            looked: 0,
        })
    });
    let (mut left, mut right, mut relations) = (Vec::new(), Vec::new(), Vec::new());
    let mut start = 0;
    while start < rel.elements() {
        let count = BLOCK_EDGES.min(rel.elements() - start);
        ids(lhs, start, count, &mut left)?;
        ids(rhs, start, count, &mut right)?;
        ids(rel, start, count, &mut relations)?;
        for (side, list) in lists.iter_mut().enumerate() {
            if let Some(list) = list {
                list.read(start, count)?;
                bucket_check.offsets(list, LISTS[side].0, start);
            }
        }
        for (at, rel) in relations.iter().enumerate() {
            let edge = start + at as u64;
            let sides = meaning.and_then(|meaning| meaning.relation(*rel));
            if (meaning.is_some() && sides.is_none()) || !matches!(rel, Id::Whole(0..)) {
                bucket_check
                    .fault("rel-out-of-range", "rel")
                    .add(edge, || format!("relation {}", shown(*rel)));
            }
            for (side, block) in [&left, &right].into_iter().enumerate() {
                let Some(id) = block.get(at) else { continue };
                let entity = sides.map(|sides| &*sides[side]);
                bucket_check.side(edge, at, side, *id, entity, lists[side].as_mut())?;
            }
        }
        start += count;
    }
    Ok(bucket_check.findings())
}

/// Fault in a column: number of edges, and the first one.
#[derive(Default)]
struct Fault {
    count: u64,
    first: Option<(u64, String)>,
}

impl Fault {
    fn add(&mut self, edge: u64, what: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some((edge, what()));
        }
        self.count += 1;
    }
}

struct BucketCheck<'a> {
    bucket: &'a Bucket<'a>,
    meaning: Option<&'a Meaning>,
    faults: BTreeMap<(&'static str, &'static str), Fault>,
}

impl BucketCheck<'_> {
    fn fault(&mut self, code: &'static str, column: &'static str) -> &mut Fault {
        self.faults.entry((code, column)).or_default()
    }

    /// Checks one side of the edge at index `at` of its block.
    fn side(
        &mut self,
        edge: u64,
        at: usize,
        side: usize,
        id: Id,
        means: Option<&Side>,
        lists: Option<&mut Lists>,
    ) -> Result<()> {
        let column = SIDES[side];
        let list = lists.as_ref().and_then(|lists| lists.of(at));
        let bound = means.and_then(|means| means.bound(self.bucket.parts.map(|p| [p.0, p.1][side])));
        let filled = list.is_some_and(|(from, to)| from < to);
        if filled || means.is_some_and(|means| means.featurized) {
            // Upstream stops where an edge has both a list and an id.
            if id != Id::Whole(-1) {
                let what = || format!("id {}, expected -1 for an edge with features", shown(id));
                self.fault("featurised-id", column).add(edge, what);
            }
            if filled && means.is_some_and(|means| !means.featurized) {
                let entity = means.map_or("", |means| &means.entity);
                let what = || format!("a feature list, but {entity} is not featurised");
                self.fault("not-featurised", column).add(edge, what);
            }
            if let (Some(lists), Some((from, to)), Some(bound)) = (lists, list, bound) {
                return self.features(lists, edge, LISTS[side].1, from..to, bound);
            }
            return Ok(());
        }
        let sound = match id {
            Id::Whole(number) => u64::try_from(number).is_ok_and(|n| bound.is_none_or(|bound| n < bound)),
            Id::Broken => false,
        };
        // Without a configuration, -1 with an empty list may be an entity without features.
        let no_features = self.meaning.is_none() && list.is_some() && id == Id::Whole(-1);
        // An undefined relation has no entity types.
        if !sound && !no_features {
            let what = || match (means, bound) {
                (Some(means), Some(bound)) => {
                    format!("id {}, but {} has {bound} rows", shown(id), means.entity)
                }
                _ => format!("id {}", shown(id)),
            };
            self.fault("id-out-of-range", column).add(edge, what);
        }
        Ok(())
    }

    /// Checks the features of an edge.
    fn features(
        &mut self,
        lists: &mut Lists,
        edge: u64,
        column: &'static str,
        range: std::ops::Range<u64>,
        bound: u64,
    ) -> Result<()> {
        for at in range {
            let Some(feature) = lists.feature(at)? else { break };
            let sound = matches!(feature, Id::Whole(n) if u64::try_from(n).is_ok_and(|n| n < bound));
            if !sound {
                let what = || format!("feature {}, but there are {bound}", shown(feature));
                self.fault("feature-out-of-range", column).add(edge, what);
            }
        }
        Ok(())
    }

    /// Checks the list offsets of a block.
    fn offsets(&mut self, lists: &Lists, column: &'static str, start: u64) {
        let total = lists.data.elements();
        if start == 0 && lists.starts.first() != Some(&Some(0)) {
            self.fault("list-offsets", column).add(0, || "the first list does not start at 0".to_owned());
        }
        let end = start + lists.starts.len() as u64;
        if end == lists.offsets.elements() && lists.starts.last() != Some(&Some(total)) {
            let what = || format!("the last list does not end at the number of features ({total})");
            self.fault("list-offsets", column).add(end.saturating_sub(2), what);
        }
        for (at, pair) in lists.starts.windows(2).enumerate() {
            if !matches!(pair, [Some(from), Some(to)] if from <= to && *to <= total) {
                let what = || format!("the list extends beyond the {total} features");
                self.fault("list-offsets", column).add(start + at as u64, what);
            }
        }
    }

    fn findings(self) -> Vec<Finding> {
        let place = self.bucket.parts.map_or_else(String::new, |(l, r)| format!("bucket ({l}, {r}): "));
        let one = |((code, column), fault): ((&'static str, &'static str), Fault)| {
            let (edge, what) = fault.first.unwrap_or_default();
            let fault_of_all = match code {
                "featurised-id" => "with both features and an id",
                "not-featurised" => "with unexpected features",
                "feature-out-of-range" => "with a feature out of range",
                "list-offsets" => "with a wrong feature list",
                "rel-out-of-range" => "with a relation out of range",
                _ => "with an id out of range",
            };
            let edges = counted(fault.count, "edge", "edges");
            let text = format!("{place}{edges} {fault_of_all}; the first is edge {edge}: {what}");
            let finding = Finding::error(code, text);
            match self.bucket.columns.get(column) {
                Some(entry) => finding.on_tensor(entry.name()),
                None => finding,
            }
        };
        self.faults.into_iter().map(one).collect()
    }
}

/// Feature lists of one side.
struct Lists<'a> {
    offsets: &'a TensorEntry,
    data: &'a TensorEntry,
    /// List offsets of the block, including the end of the last list.
    starts: Vec<Option<u64>>,
    /// Buffered features, and the index of the first one.
    block: Vec<Id>,
    block_at: u64,
    /// Number of features read. Overlapping lists would read features repeatedly.
    looked: u64,
}

impl Lists<'_> {
    /// Reads the list offsets of a block of edges.
    fn read(&mut self, start: u64, count: u64) -> Result<()> {
        let mut found = Vec::new();
        ids(self.offsets, start, count + 1, &mut found)?;
        let whole = |id: Id| match id {
            Id::Whole(n) => u64::try_from(n).ok(),
            Id::Broken => None,
        };
        self.starts = found.into_iter().map(whole).collect();
        Ok(())
    }

    /// Feature range of the edge at index `at` of the block, if within the features.
    fn of(&self, at: usize) -> Option<(u64, u64)> {
        let (from, to) = (*self.starts.get(at)?, *self.starts.get(at + 1)?);
        from.zip(to).filter(|(from, to)| from <= to && *to <= self.data.elements())
    }

    /// Reads a feature, usually the one behind the previous. `None` once as many were read as
    /// exist: overlapping lists are a fault already.
    fn feature(&mut self, at: u64) -> Result<Option<Id>> {
        if self.looked == self.data.elements() {
            return Ok(None);
        }
        self.looked += 1;
        let within = |block: &[Id], first: u64| {
            let place = usize::try_from(at.checked_sub(first)?).ok()?;
            block.get(place).copied()
        };
        if let Some(id) = within(&self.block, self.block_at) {
            return Ok(Some(id));
        }
        let count = BLOCK_EDGES.min(self.data.elements().saturating_sub(at));
        ids(self.data, at, count, &mut self.block)?;
        self.block_at = at;
        Ok(within(&self.block, at))
    }
}

fn shown(id: Id) -> String {
    match id {
        Id::Whole(number) => number.to_string(),
        Id::Broken => "(not an integer)".to_owned(),
    }
}
