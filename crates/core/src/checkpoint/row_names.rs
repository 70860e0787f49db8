//! Names of the rows of a table.
//!
//! A table of embeddings is one tensor; who its rows are stands elsewhere: in lists of names, in a
//! column of its own. They are read when somebody asks, not when the table is opened.

use super::TensorEntry;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::SourceRef;
use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Shared names of rows. Cheap to clone.
pub type RowNamesRef = Arc<dyn RowNames>;

/// The names of the rows of a table, in their order, wherever they are kept.
pub trait RowNames: Debug + Send + Sync {
    /// What people call the place that they come from.
    fn label(&self) -> &str;

    /// Reads all names. Implementations keep what they read, so that this is cheap the second time.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]; [`crate::Kind::Corrupt`] where it is no list of names;
    /// [`crate::Kind::Mismatch`] where the names are not as many as the rows.
    fn read(&self) -> Result<Arc<RowNameList>>;

    /// Goes through all names in their order, a part of them at a time, and keeps none: for those who look at each
    /// once, as the names of a large table take much memory.
    ///
    /// # Errors
    /// As [`read`](Self::read), and what `take` says.
    fn each(&self, take: &mut dyn FnMut(&RowNameList) -> Result<()>) -> Result<()> {
        take(&*self.read()?)
    }

    /// The sources that they are read from, so that an output is not one of them.
    fn sources(&self) -> Vec<SourceRef>;

    /// The tensors that they are kept as, where they are: these stand in no list of tensors, and their bytes are of
    /// use all the same.
    fn tensors(&self) -> Vec<&TensorEntry> {
        Vec::new()
    }
}

/// Names may be so many times as long as the file that they are read from: by dictionaries, views and compression.
/// A quarter of the limit `header_bytes` is free.
const LONGER: u64 = 8;
const PARTS: u64 = 4;
/// What a name takes beside its text.
const END: u64 = size_of::<usize>() as u64;

/// Room that is taken at once, in bytes of text and in names.
const LEAST: usize = 1024;

/// Names in memory: one text and where each name ends in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowNameList {
    text: String,
    ends: Vec<usize>,
}

impl RowNameList {
    /// No names.
    pub fn new() -> Self {
        Self::default()
    }

    /// The list whose names are cut out of `text` at these ends; `None` where they do not follow each
    /// other to its end.
    pub fn from_parts(text: String, ends: Vec<usize>) -> Option<Self> {
        let whole = ends.last().copied().unwrap_or(0) == text.len();
        let cut = ends.is_sorted() && ends.iter().all(|&end| text.is_char_boundary(end));
        (whole && cut).then_some(Self { text, ends })
    }

    /// All names, one behind the other.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where each name ends in the [`text`](Self::text), in bytes.
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// Appends a name.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// As [`push`](Self::push), where the list may take `most` bytes, as [`most`](Self::most) gives them: for formats in
    /// which many names can be the same few bytes of the file.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] where the list would be longer.
    pub fn push_within(&mut self, name: &str, most: u64) -> Result<()> {
        let text = (self.text.len() as u64).saturating_add(name.len() as u64);
        let ends = (self.ends.len() as u64).saturating_add(1).saturating_mul(END);
        Limits::check_part("bytes of names of rows", "header_bytes", text.saturating_add(ends), most, PARTS)?;
        // By a quarter, not to twice the length, so that the list is about as long as it may be.
        if self.text.capacity() - self.text.len() < name.len() {
            self.text.reserve_exact((self.text.len() / 4).max(name.len()).max(LEAST));
        }
        if self.ends.capacity() == self.ends.len() {
            self.ends.reserve_exact((self.ends.len() / 4).max(LEAST));
        }
        self.push(name);
        Ok(())
    }

    /// How many bytes the names that are read from a file of `len` bytes may take, and eight more each.
    pub fn most(len: u64, limits: &Limits) -> u64 {
        len.saturating_mul(LONGER).max(limits.header_bytes / PARTS)
    }

    /// How many bytes the names take, and eight more each, as [`most`](Self::most) counts them.
    pub fn bytes(&self) -> u64 {
        (self.text.len() as u64).saturating_add((self.ends.len() as u64).saturating_mul(END))
    }

    /// Takes all names out, and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name of a row; `None` past the end.
    pub fn get(&self, row: usize) -> Option<&str> {
        let end = *self.ends.get(row)?;
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end)
    }

    /// All names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|row| self.get(row))
    }

    /// The names of some rows; those past the end are left out.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        rows.filter_map(|row| self.get(row)).collect()
    }

    /// The first row of each name.
    pub fn index(&self) -> HashMap<&str, usize> {
        let mut index = HashMap::with_capacity(self.len());
        for (row, name) in self.iter().enumerate() {
            index.entry(name).or_insert(row);
        }
        index
    }

    /// The first row of that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.iter().position(|own| own == name)
    }
}

impl<'a> FromIterator<&'a str> for RowNameList {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut list = Self::new();
        names.into_iter().for_each(|name| list.push(name));
        list
    }
}

/// Names that are in memory anyway.
#[derive(Debug)]
pub struct MemoryRowNames {
    label: String,
    list: Arc<RowNameList>,
}

impl MemoryRowNames {
    /// These names, from a place that people call `label`.
    pub fn shared(label: impl Into<String>, list: RowNameList) -> RowNamesRef {
        Arc::new(Self { label: label.into(), list: Arc::new(list) })
    }
}

impl RowNames for MemoryRowNames {
    fn label(&self) -> &str {
        &self.label
    }
    fn read(&self) -> Result<Arc<RowNameList>> {
        Ok(self.list.clone())
    }
    fn sources(&self) -> Vec<SourceRef> {
        Vec::new()
    }
}

/// Bytes of names, with where each ends, that are together in memory where none is kept.
const PART: usize = 1 << 20;

/// Gives names to `take` in parts of some 1 MiB, as [`RowNames::each`] does. `append` reads them all into a list, which it shows after
/// each name.
///
/// # Errors
/// What both say.
pub fn each_part(
    take: &mut dyn FnMut(&RowNameList) -> Result<()>,
    append: impl FnOnce(&mut RowNameList, &mut dyn FnMut(&mut RowNameList) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let mut list = RowNameList::new();
    append(&mut list, &mut |list| {
        if list.text().len() + size_of_val(list.ends()) >= PART {
            take(list)?;
            list.clear();
        }
        Ok(())
    })?;
    take(&list)
}

/// Fails unless there are as many names as rows.
///
/// # Errors
/// [`crate::Kind::Mismatch`], code `names-differ`.
pub fn check_count(labels: &dyn RowNames, names: u64, rows: u64) -> Result<()> {
    if names == rows {
        return Ok(());
    }
    Err(Error::mismatch("names-differ", "there are not as many names as rows")
        .in_file(labels.label())
        .expected(format_args!("{rows} names"))
        .found(format_args!("{names}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_row_and_rows_by_name() {
        let list: RowNameList = ["a", "", "süß", "a"].into_iter().collect();
        assert_eq!(list.len(), 4);
        assert_eq!(list.iter().collect::<Vec<_>>(), ["a", "", "süß", "a"]);
        assert_eq!((list.get(2), list.get(4)), (Some("süß"), None));
        assert_eq!((list.find("a"), list.find("süß"), list.find("b")), (Some(0), Some(2), None));
        assert_eq!(list.index()["a"], 0);
        assert_eq!(list.slice(1..3).iter().collect::<Vec<_>>(), ["", "süß"]);
    }
    #[test]
    fn a_list_of_names_is_held_against_the_file() {
        let limits = Limits { header_bytes: 400, ..Limits::default() };
        assert_eq!((RowNameList::most(1, &limits), RowNameList::most(1000, &limits)), (100, 8000));
        let mut list = RowNameList::new();
        (0..10).for_each(|_| list.push_within("ab", 100).unwrap());
        let error = list.push_within("", 100).unwrap_err();
        assert_eq!((error.kind(), list.len()), (crate::Kind::Limit, 10));
        assert!(error.hint_text().unwrap().contains("`header_bytes`"));
    }
}
