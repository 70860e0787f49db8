//! Row names of a table.
//!
//! A table of embeddings is one tensor. Its row names are stored elsewhere: in a list of names, or in a column of their own. They
//! are read on demand, not when the table is opened.

use super::TensorEntry;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::SourceRef;
use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Shared row names. Cheap to clone.
pub type RowNamesRef = Arc<dyn RowNames>;

/// Row names of a table, in order, in any storage.
pub trait RowNames: Debug + Send + Sync {
    /// Returns the display name of their source.
    fn label(&self) -> &str;

    /// Reads all names. Implementations cache them.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]; [`crate::Kind::Corrupt`] for an invalid list of names; [`crate::Kind::Mismatch`] if the number of
    /// names is not the number of rows.
    fn read(&self) -> Result<Arc<RowNameList>>;

    /// Passes all names in order to `take`, in chunks, without caching. For single passes: the names of a large table take much
    /// memory.
    ///
    /// # Errors
    /// As [`read`](Self::read), and errors of `take`.
    fn each(&self, take: &mut dyn FnMut(&RowNameList) -> Result<()>) -> Result<()> {
        take(&*self.read()?)
    }

    /// Returns the sources that they are read from, to detect outputs that overwrite them.
    fn sources(&self) -> Vec<SourceRef>;

    /// Returns the tensors that store them, if any. These are not in the list of tensors, but checks count their bytes as used.
    fn tensors(&self) -> Vec<&TensorEntry> {
        Vec::new()
    }
}

/// Maximum ratio of the names to the length of their file: dictionaries, views and compression make them longer. A quarter of
/// the limit `header_bytes` is always allowed.
const MAX_RATIO: u64 = 8;
const PARTS: u64 = 4;
/// Bytes of a name besides its text.
const END: u64 = size_of::<usize>() as u64;

/// Minimum growth of the list, in bytes of text and in names.
const MIN_GROWTH: usize = 1024;

/// Row names in memory: one text, and the end of each name in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowNameList {
    text: String,
    ends: Vec<usize>,
}

impl RowNameList {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a list of the names in `text` with these `ends`. `None` unless the ends ascend to the end of the text, at
    /// character boundaries.
    pub fn from_parts(text: String, ends: Vec<usize>) -> Option<Self> {
        let whole = ends.last().copied().unwrap_or(0) == text.len();
        let cut = ends.is_sorted() && ends.iter().all(|&end| text.is_char_boundary(end));
        (whole && cut).then_some(Self { text, ends })
    }

    /// Returns all names, concatenated.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the end of each name in the [`text`](Self::text), in bytes.
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// Appends a name.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// Appends a name, as [`push`](Self::push), within a maximum of bytes from [`most`](Self::most). For formats in which many
    /// names can share a few bytes of the file.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] if the list would be longer.
    pub fn push_within(&mut self, name: &str, most: u64) -> Result<()> {
        let text = (self.text.len() as u64).saturating_add(name.len() as u64);
        let ends = (self.ends.len() as u64).saturating_add(1).saturating_mul(END);
        Limits::check_part("bytes of row names", "header_bytes", text.saturating_add(ends), most, PARTS)?;
        // Grow by a quarter, not to twice the length, so that the capacity stays near the limit.
        if self.text.capacity() - self.text.len() < name.len() {
            self.text.reserve_exact((self.text.len() / 4).max(name.len()).max(MIN_GROWTH));
        }
        if self.ends.capacity() == self.ends.len() {
            self.ends.reserve_exact((self.ends.len() / 4).max(MIN_GROWTH));
        }
        self.push(name);
        Ok(())
    }

    /// Returns the maximum bytes of names from a file of `len` bytes. Each name counts eight bytes more than its text.
    pub fn most(len: u64, limits: &Limits) -> u64 {
        len.saturating_mul(MAX_RATIO).max(limits.header_bytes / PARTS)
    }

    /// Returns the bytes of the names, counted as in [`most`](Self::most).
    pub fn bytes(&self) -> u64 {
        (self.text.len() as u64).saturating_add((self.ends.len() as u64).saturating_mul(END))
    }

    /// Removes all names and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there are no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the name of a row; `None` past the end.
    pub fn get(&self, row: usize) -> Option<&str> {
        let end = *self.ends.get(row)?;
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end)
    }

    /// Returns all names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|row| self.get(row))
    }

    /// Returns the names of a range of rows; rows past the end are skipped.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        rows.filter_map(|row| self.get(row)).collect()
    }

    /// Returns a map from each name to its first row.
    pub fn index(&self) -> HashMap<&str, usize> {
        let mut index = HashMap::with_capacity(self.len());
        for (row, name) in self.iter().enumerate() {
            index.entry(name).or_insert(row);
        }
        index
    }

    /// Returns the first row of that name.
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

/// Row names that are already in memory.
#[derive(Debug)]
pub struct MemoryRowNames {
    label: String,
    list: Arc<RowNameList>,
}

impl MemoryRowNames {
    /// Creates shared row names from a list; `label` is the display name of their source.
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

/// Bytes of names, with their ends, in one chunk.
const PART: usize = 1 << 20;

/// Implements [`RowNames::each`]: passes names to `take` in chunks of about 1 MiB. `append` reads all names into the list and
/// calls its argument after each one.
///
/// # Errors
/// Errors of `take` and of `append`.
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

/// Fails if the number of names is not the number of rows.
///
/// # Errors
/// [`crate::Kind::Mismatch`], code `names-differ`.
pub fn check_count(row_names: &dyn RowNames, names: u64, rows: u64) -> Result<()> {
    if names == rows {
        return Ok(());
    }
    Err(Error::mismatch("names-differ", "the number of row names does not match the number of rows")
        .in_file(row_names.label())
        .expected(format_args!("{rows} names"))
        .found(format_args!("{names}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_by_row_and_rows_by_name() {
        let list: RowNameList = ["a", "", "süß", "a"].into_iter().collect();
        assert_eq!(list.len(), 4);
        assert_eq!(list.iter().collect::<Vec<_>>(), ["a", "", "süß", "a"]);
        assert_eq!((list.get(2), list.get(4)), (Some("süß"), None));
        assert_eq!((list.find("a"), list.find("süß"), list.find("b")), (Some(0), Some(2), None));
        assert_eq!(list.index()["a"], 0);
        assert_eq!(list.slice(1..3).iter().collect::<Vec<_>>(), ["", "süß"]);
    }
    #[test]
    fn the_size_of_a_name_list_is_limited_by_the_file() {
        let limits = Limits { header_bytes: 400, ..Limits::default() };
        assert_eq!((RowNameList::most(1, &limits), RowNameList::most(1000, &limits)), (100, 8000));
        let mut list = RowNameList::new();
        (0..10).for_each(|_| list.push_within("ab", 100).unwrap());
        let error = list.push_within("", 100).unwrap_err();
        assert_eq!((error.kind(), list.len()), (crate::Kind::Limit, 10));
        assert!(error.hint_text().unwrap().contains("`header_bytes`"));
    }
}
