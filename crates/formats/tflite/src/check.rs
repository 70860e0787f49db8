//! Outline of a file: its tables, texts and lists, and the buffers that are not elements of a listed tensor.

use crate::flat::{File, List, Table};
use crate::read::{Model, skipped};
use crate::schema::Kind;
use std::collections::HashSet;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, check_range, read_vec};

/// Maximum bytes of alignment between two objects.
const ALIGNMENT: u64 = 63;
/// Memory of a range.
const RANGE: u64 = 64;
/// Beginning of a zip archive.
const ZIP: &[u8] = b"PK\x03\x04";

/// Returns the ranges of a file without elements.
pub(crate) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let limits = limits.with_budget_of(source);
    let file = File::new(source, &limits.budget_of(source));
    let model = Model::new(&file)?;
    let mut walk = Walk { file: &file, seen: HashSet::new(), ranges: Vec::new() };
    walk.add(0, 8)?;
    walk.table(&model.root)?;
    let mut outline = Outline::new(Gaps::Zeros(ALIGNMENT));
    walk.ranges.sort_unstable();
    for &(at, len) in &walk.ranges {
        outline.header(at, len, "tables");
    }
    let mut end = walk.ranges.iter().map(|&(at, len)| at.saturating_add(len)).max().unwrap_or(0);
    for subgraph in model.subgraphs.iter() {
        for tensor in subgraph?.tables("tensors")?.iter() {
            file.budget.take_memory(RANGE)?;
            let tensor = tensor?;
            let Some(list) = model.constant(&tensor)? else { continue };
            end = end.max(list.at.saturating_add(list.count));
            if skipped(&tensor)?.is_some() {
                outline.unread(list.at, list.count, "elements of a skipped tensor");
            }
        }
    }
    for entry in model.root.tables("metadata")?.iter() {
        file.budget.take_memory(RANGE)?;
        let entry = entry?;
        if let Some(List { at, count }) = model.buffer(entry.uint("buffer")?, entry.at)? {
            outline.header(at, count, "metadata");
            end = end.max(at.saturating_add(count));
        }
    }
    // A tool for metadata appends files, such as labels, as a zip archive.
    let rest = source.len().saturating_sub(end);
    let head = read_vec(&**source, end, rest.min(ALIGNMENT))?;
    if head.starts_with(ZIP) {
        outline.header(end, rest, "zip archive of associated files");
    } else if rest <= ALIGNMENT && head.iter().all(|&byte| byte == 0) {
        outline.padding(end, rest, "zeros");
    }
    Ok(outline)
}

/// Walk over all tables. Several tables may share a table, a text or a list.
struct Walk<'a> {
    file: &'a File,
    seen: HashSet<(u64, &'static str)>,
    ranges: Vec<(u64, u64)>,
}

impl<'a> Walk<'a> {
    fn add(&mut self, at: u64, len: u64) -> Result<()> {
        self.file.budget.take_memory(RANGE)?;
        check_range(&*self.file.source, at, len).map_err(|error| error.at(at))?;
        self.ranges.push((at, len));
        Ok(())
    }

    /// Adds the ranges of a table. No type of table contains itself, so the depth is that of the schema.
    fn table(&mut self, table: &Table<'a>) -> Result<()> {
        self.file.budget.take_memory(RANGE)?;
        if !self.seen.insert((table.at, table.kind)) {
            return Ok(());
        }
        self.add(table.vtable.0, table.vtable.1)?;
        self.add(table.at, table.len)?;
        for field in self.file.schema.fields(table.kind) {
            match &field.kind {
                Kind::Scalar(_) | Kind::Enum(..) => {}
                Kind::Text => {
                    if let Some(at) = table.place(field.slot, 4)? {
                        let list = self.file.list(self.file.target(at)?, 1)?;
                        // A zero follows the text.
                        self.add(list.at - 4, list.count + 5)?;
                    }
                }
                Kind::Table(_) => {
                    if let Some(inner) = table.table(field.name)? {
                        self.table(&inner)?;
                    }
                }
                Kind::Union(_) => {
                    if let Some((_, Some(inner))) = table.union(field.name)? {
                        self.table(&inner)?;
                    }
                }
                Kind::List(_) => self.list(table, field.name)?,
            }
        }
        Ok(())
    }

    fn list(&mut self, table: &Table<'a>, name: &'static str) -> Result<()> {
        let Some((list, item)) = table.list(name)? else { return Ok(()) };
        match *item {
            // Elements of a buffer belong to a tensor.
            _ if table.kind == "Buffer" => self.add(list.at - 4, 4),
            Kind::Scalar(scalar) | Kind::Enum(_, scalar) => {
                self.add(list.at - 4, 4 + list.count * scalar.width())
            }
            Kind::Table(_) => {
                self.add(list.at - 4, 4 + 4 * list.count)?;
                for inner in table.tables(name)?.iter() {
                    self.table(&inner?)?;
                }
                Ok(())
            }
            _ => self.add(list.at - 4, 4 + 4 * list.count),
        }
    }
}
