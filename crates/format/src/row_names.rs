//! Row names in formats of tensors only: stored as two more tensors per table.
//!
//! ```text
//! embeddings.user               f32 (rows, dim)   table
//! embeddings.user.names.text    u8 (bytes)        all names, concatenated, UTF-8
//! embeddings.user.names.ends    i64 (rows)        end of each name in the text
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use weighbridge_core::checkpoint::{
    Checkpoint, Loss, Name, Note, Role, RowNameList, RowNames, TensorEntry, TensorPath,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
use weighbridge_io::engine::is_encoded;
use weighbridge_io::source::{MemorySource, SourceRef};

const NAMES: &str = "names";
const TEXT: &str = "text";
const ENDS: &str = "ends";
/// Bytes of text, and number of ends, in memory while names are streamed.
const PART: u64 = 1 << 20;
const ENDS_AT_ONCE: u64 = PART / 8;

/// Support of a format for row names of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowNameSupport {
    /// Stored natively.
    Column,
    /// Stored as two more tensors per table.
    Tensors,
    /// Not supported.
    Nowhere,
}

/// Encodes row names as two tensors of role [`Role::Names`] after each table. Reads the names.
///
/// # Errors
/// As [`RowNames::read`].
pub fn spread(checkpoint: &mut Checkpoint) -> Result<()> {
    let mut tensors = Vec::with_capacity(checkpoint.tensors.len());
    for mut table in std::mem::take(&mut checkpoint.tensors) {
        let Some(row_names) = table.row_names.take() else {
            tensors.push(table);
            continue;
        };
        let list = row_names.read()?;
        let (text, ends) = (list.text(), list.ends());
        let beside = |part: &str, dtype, count: usize, bytes: Vec<u8>| {
            let source: SourceRef = Arc::new(MemorySource::new(row_names.label(), bytes));
            let path = beside(&table.path, part);
            let mut entry =
                TensorEntry::dense(path, dtype, Shape::from([count as u64]), &source, 0, Encoding::ROW)?;
            entry.role = Role::Names;
            Ok::<_, Error>(entry)
        };
        let text = beside(TEXT, DType::U8, text.len(), text.as_bytes().to_vec())?;
        let ends = ends.iter().flat_map(|&end| (end as u64).to_le_bytes()).collect::<Vec<_>>();
        let ends = beside(ENDS, DType::I64, list.len(), ends)?;
        tensors.extend([table, text, ends]);
    }
    checkpoint.tensors = tensors;
    Ok(())
}

/// Removes the row names of all tables, with a loss for each.
pub fn drop(checkpoint: &mut Checkpoint) -> Vec<Loss> {
    let named = checkpoint.tensors.iter_mut().filter(|t| t.row_names.is_some());
    named
        .map(|table| {
            table.row_names = None;
            Loss::new("names-left-out", table.name(), "row names dropped: the format has no place for them")
        })
        .collect()
}

/// Reverts [`spread`] for each table with both tensors, if they match it.
pub fn gather(checkpoint: &mut Checkpoint) {
    let ends: Vec<usize> =
        (0..checkpoint.tensors.len()).filter(|&i| checkpoint.tensors[i].role == Role::Names).collect();
    if ends.is_empty() {
        return;
    }
    let own = checkpoint.tensors.iter().enumerate().filter(|(_, t)| t.role.slot().is_none());
    let places: HashMap<TensorPath, usize> = own.map(|(place, t)| (t.path.clone(), place)).collect();
    let mut gone = HashSet::new();
    for place in ends {
        let ends = &checkpoint.tensors[place];
        let Some(table) = table_of(&ends.path, ENDS) else { continue };
        let (text_at, table_at) = (places.get(&beside(&table, TEXT)), places.get(&table));
        let (Some(&text_at), Some(&table_at)) = (text_at, table_at) else { continue };
        let (text, target) = (&checkpoint.tensors[text_at], &checkpoint.tensors[table_at]);
        let fits = text.role == Role::Names
            && text.stored == DType::U8
            && text.shape.rank() == 1
            && ends.stored == DType::I64;
        if !fits || ends.shape.dims() != &target.shape.dims()[..target.shape.rank().min(1)] {
            checkpoint.notes.push(Note::new(
                "names-differ",
                format!("{}: the row names do not match the table and stay tensors", ends.name()),
            ));
            continue;
        }
        let row_names = EncodedRowNames { text: text.clone(), ends: ends.clone(), list: OnceLock::new() };
        checkpoint.tensors[table_at].row_names = Some(Arc::new(row_names));
        gone.extend([text_at, place]);
    }
    let mut place = 0..;
    checkpoint.tensors.retain(|_| place.next().is_none_or(|place| !gone.contains(&place)));
}

/// Returns the path of a tensor with names of a table.
fn beside(table: &TensorPath, part: &str) -> TensorPath {
    let parts = table.parts().iter().cloned().chain([Name::from(NAMES), Name::from(part)]);
    TensorPath::new(parts.collect::<Vec<_>>())
}

/// Returns the path of the table whose names are stored at `path`, as `part`.
fn table_of(path: &TensorPath, part: &str) -> Option<TensorPath> {
    match path.parts() {
        [table @ .., names, last] if *names == Name::from(NAMES) && *last == Name::from(part) => {
            Some(TensorPath::new(table.to_vec()))
        }
        _ => None,
    }
}

/// Row names stored as two tensors.
#[derive(Debug)]
struct EncodedRowNames {
    text: TensorEntry,
    ends: TensorEntry,
    list: OnceLock<Arc<RowNameList>>,
}

impl RowNames for EncodedRowNames {
    fn label(&self) -> &str {
        self.text.extents.first().map_or("names", |extent| extent.source.label())
    }

    fn read(&self) -> Result<Arc<RowNameList>> {
        if let Some(list) = self.list.get() {
            return Ok(list.clone());
        }
        let list = self.read_whole()?;
        Ok(self.list.get_or_init(|| Arc::new(list)).clone())
    }

    fn each(&self, take: &mut dyn FnMut(&RowNameList) -> Result<()>) -> Result<()> {
        let extents = || self.text.extents.iter().chain(&self.ends.extents);
        // A range with a checksum is always read as a whole.
        if extents().any(|extent| extent.check.is_some()) {
            return take(&self.read_whole()?);
        }
        // Packed text may be of any length; plain text is no longer than the file.
        let packed = extents().any(|extent| is_encoded(&extent.source));
        let most = if packed { Limits::default().name_bytes } else { u64::MAX };
        let rows = self.ends.elements();
        let (mut row, mut at) = (0, 0);
        while row < rows {
            let count = ENDS_AT_ONCE.min(rows - row);
            let ends = self.ends_of(&self.ends.rows(row..row + count)?)?;
            let mut rest = ends.as_slice();
            while !rest.is_empty() {
                // Names of up to PART bytes in total, at least one.
                let fits = rest.iter().take_while(|&&end| end.saturating_sub(at) <= PART).count();
                let (now, later) = rest.split_at(fits.max(1));
                let end = now.last().copied().unwrap_or(at);
                if end < at || end > self.text.elements() {
                    return Err(self.bad(BAD_ENDS));
                }
                if fits == 0 {
                    Limits::check("bytes in a name", "name_bytes", end - at, most)?;
                }
                take(&self.list_of(&self.text.rows(at..end)?, now, at)?)?;
                (at, rest) = (end, later);
            }
            row += count;
        }
        if at == self.text.elements() { Ok(()) } else { Err(self.bad(BAD_ENDS)) }
    }

    fn sources(&self) -> Vec<SourceRef> {
        [&self.text, &self.ends].into_iter().flat_map(|t| &t.extents).map(|p| p.source.clone()).collect()
    }

    fn tensors(&self) -> Vec<&TensorEntry> {
        vec![&self.text, &self.ends]
    }
}

const BAD_ENDS: &str = "the ends of the names do not ascend to the end of the text";

impl EncodedRowNames {
    fn bad(&self, what: &str) -> Error {
        Error::corrupt("bad-names", what).in_file(self.label()).on_tensor(self.ends.name())
    }

    fn ends_of(&self, ends: &TensorEntry) -> Result<Vec<u64>> {
        let ends = ends.read_tensor(Order::Row)?;
        let ends = ends.as_chunks::<8>().0.iter().map(|end| u64::try_from(i64::from_le_bytes(*end)));
        ends.collect::<Result<_, _>>().map_err(|_| self.bad("the end of a name is negative"))
    }

    fn read_whole(&self) -> Result<RowNameList> {
        self.list_of(&self.text, &self.ends_of(&self.ends)?, 0)
    }

    /// Returns the names in `text`, which follows `before` other bytes of text.
    fn list_of(&self, text: &TensorEntry, ends: &[u64], before: u64) -> Result<RowNameList> {
        let text = String::from_utf8(text.read_tensor(Order::Row)?)
            .map_err(|_| self.bad("the text of the names is not UTF-8"))?;
        let ends = ends.iter().map(|end| usize::try_from(end.checked_sub(before)?).ok());
        let list = ends.collect::<Option<_>>().and_then(|ends| RowNameList::from_parts(text, ends));
        list.ok_or_else(|| self.bad(BAD_ENDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::checkpoint::MemoryRowNames;

    fn named() -> Checkpoint {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 24]));
        let path = TensorPath::new(vec![Name::from("embeddings"), Name::from("user")]);
        let mut table =
            TensorEntry::dense(path, DType::F32, Shape::from([3, 2]), &source, 0, Encoding::ROW).unwrap();
        table.row_names = Some(MemoryRowNames::shared("names", ["a", "", "süß"].into_iter().collect()));
        let mut checkpoint = Checkpoint::new("biggraph", "checkpoint", "c");
        checkpoint.tensors = vec![table];
        checkpoint
    }

    #[test]
    fn gather_reverts_spread() {
        let mut checkpoint = named();
        spread(&mut checkpoint).unwrap();
        let names: Vec<_> = checkpoint.tensors.iter().map(TensorEntry::name).collect();
        assert_eq!(names, ["embeddings.user", "embeddings.user.names.text", "embeddings.user.names.ends"]);
        assert_eq!(checkpoint.tensors[1].read_tensor(Order::Row).unwrap(), "asüß".as_bytes());
        gather(&mut checkpoint);
        assert_eq!(checkpoint.tensors.len(), 1);
        let list = checkpoint.tensors[0].row_names.as_ref().unwrap().read().unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), ["a", "", "süß"]);
    }

    fn in_parts(row_names: &dyn RowNames) -> Result<(Vec<String>, usize)> {
        let (mut names, mut parts) = (Vec::new(), 0);
        row_names.each(&mut |part| {
            names.extend(part.iter().map(str::to_owned));
            parts += 1;
            Ok(())
        })?;
        Ok((names, parts))
    }

    #[test]
    fn long_and_many_names_are_streamed_in_chunks() {
        let long = "ü".repeat(900_000);
        let many: Vec<String> = (0..ENDS_AT_ONCE * 2 + 5).map(|n| (n % 10).to_string()).collect();
        let lists: [(Vec<&str>, usize); 4] = [
            (vec!["", &long, "a", &long, &long, "", ""], 6),
            (many.iter().map(String::as_str).collect(), 3),
            (vec![""; 3], 1),
            (vec![], 0),
        ];
        for (names, parts) in lists {
            let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; names.len() * 4]));
            let shape = Shape::from([names.len() as u64, 1]);
            let mut table =
                TensorEntry::dense(TensorPath::value(), DType::F32, shape, &source, 0, Encoding::ROW)
                    .unwrap();
            table.row_names = Some(MemoryRowNames::shared("names", names.iter().copied().collect()));
            let mut checkpoint = Checkpoint::new("m", "m", "m");
            checkpoint.tensors = vec![table];
            spread(&mut checkpoint).unwrap();
            gather(&mut checkpoint);
            let row_names = checkpoint.tensors[0].row_names.clone().unwrap();
            assert_eq!(row_names.tensors().len(), 2);
            let found = in_parts(&*row_names).unwrap();
            assert!(found.0 == names && found.1 == parts, "{} of {parts} parts", found.1);
            assert!(row_names.read().unwrap().iter().eq(names));
        }
    }

    #[test]
    fn rejects_bad_ends_when_streamed_too() {
        let of = |text: &[u8], ends: &[i64]| {
            let tensor = |bytes: Vec<u8>, dtype, count: usize| {
                let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
                let shape = Shape::from([count as u64]);
                TensorEntry::dense(TensorPath::value(), dtype, shape, &source, 0, Encoding::ROW).unwrap()
            };
            let bytes = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
            let (text, ends) =
                (tensor(text.to_vec(), DType::U8, text.len()), tensor(bytes, DType::I64, ends.len()));
            let row_names = EncodedRowNames { text, ends, list: OnceLock::new() };
            let parts = in_parts(&row_names).map(|(names, _)| names);
            let whole = row_names.read().map(|list| list.iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(parts.as_ref().ok(), whole.as_ref().ok());
            parts.map_err(|error| (error.code().as_str(), whole.unwrap_err().code().as_str()))
        };
        assert_eq!(of(b"abc", &[1, 3]).unwrap(), ["a", "bc"]);
        for (text, ends) in [
            (&b"abc"[..], &[2, 1, 3][..]),
            (b"abc", &[1, 2]),
            (b"abc", &[1, 4]),
            (b"abc", &[-1, 3]),
            (b"abc", &[]),
            ("ü".as_bytes(), &[1, 2]),
            (b"\xff", &[1]),
        ] {
            assert_eq!(of(text, ends).unwrap_err(), ("bad-names", "bad-names"), "{ends:?}");
        }
    }

    #[test]
    fn names_that_do_not_match_stay_tensors() {
        let mut checkpoint = named();
        spread(&mut checkpoint).unwrap();
        checkpoint.tensors[2] = checkpoint.tensors[2].rows(0..2).unwrap();
        gather(&mut checkpoint);
        assert_eq!((checkpoint.tensors.len(), checkpoint.notes.len()), (3, 1));
        assert!(RowNameList::from_parts("ab".into(), vec![2, 1]).is_none());
        assert!(RowNameList::from_parts("ü".into(), vec![1, 2]).is_none());
    }

    #[test]
    fn dropped_names_are_losses() {
        let mut checkpoint = named();
        assert_eq!(drop(&mut checkpoint).len(), 1);
        assert!(checkpoint.tensors[0].row_names.is_none());
    }
}
