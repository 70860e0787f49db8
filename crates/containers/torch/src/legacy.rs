//! Legacy form: consecutive pickles and storages.

use super::storage::{Storage, reference};
use std::collections::HashMap;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::escape;
use weighbridge_io::source::{Cursor, SourceRef};
use weighbridge_pickle::{self as pickle, Graph, Object, ObjectId, Options, Pickle};

/// Magic number of the form as a pickle opcode: `LONG1`, ten bytes.
const MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
/// Version of the form.
const VERSION: i64 = 1001;
/// Number of pickles before the storages.
pub(super) const PICKLES: usize = 5;

/// Returns true for the first bytes of a file in the legacy form.
pub fn is_legacy(head: &[u8]) -> bool {
    let [0x80, _, rest @ ..] = head else { return false };
    // From protocol 4 on, a frame header comes first.
    let framed = rest.split_first_chunk::<9>().filter(|(frame, _)| frame[0] == 0x95).map(|(_, rest)| rest);
    framed.unwrap_or(rest).starts_with(MAGIC)
}

/// A file of the legacy form, without the pickle of the object.
#[derive(Debug)]
pub(super) struct Legacy {
    /// Offsets of the pickles in order.
    pub(super) starts: [u64; PICKLES],
    /// Storages by key.
    pub(super) storages: HashMap<String, Storage>,
    /// Offset after the last storage.
    pub(super) end: u64,
}

/// Reads the pickles and skips the storages. The returned pickle is that of the object.
pub(super) fn read(source: &SourceRef, options: &Options) -> Result<(Pickle, Legacy)> {
    let mut whole = Ok(());
    let read = read_until(source, options, |error| whole = Err(error))?;
    whole.map(|()| read)
}

/// Same as [`read`] for a damaged file: returns the storages before the first incomplete one.
pub(super) fn salvage(source: &SourceRef, options: &Options) -> Result<(Pickle, Legacy)> {
    read_until(source, options, |_| {})
}

/// Reads up to the first incomplete storage; calls `broken` with its error.
fn read_until(source: &SourceRef, options: &Options, broken: impl FnOnce(Error)) -> Result<(Pickle, Legacy)> {
    let next = |offset: u64| pickle::read(source, offset, options);
    let mut starts = [0; PICKLES];
    starts[1] = next(0)?.end;
    let version = next(starts[1])?;
    if version.graph.int(version.root) != Some(VERSION) {
        return Err(Error::unsupported("torch-version", "unknown version of the legacy form")
            .in_file(source.label())
            .at(starts[1])
            .expected(VERSION));
    }
    starts[2] = version.end;
    drop(version);
    starts[3] = next(starts[2])?.end;
    let pickle = next(starts[3])?;
    starts[4] = pickle.end;
    let keys = next(starts[4])?;
    let mut cursor = Cursor::new(source.clone(), keys.end);
    let mut whole = HashMap::new();
    storages(&mut cursor, source, &pickle.graph, (&keys.graph, keys.root), &mut whole)
        .unwrap_or_else(|error| broken(error.in_file(source.label())));
    let storages = whole;
    Ok((pickle, Legacy { starts, storages, end: cursor.position() }))
}

/// Locates the storages in the order of their keys; those before an error stay in `storages`.
fn storages(
    cursor: &mut Cursor,
    source: &SourceRef,
    graph: &Graph,
    (keys, root): (&Graph, ObjectId),
    storages: &mut HashMap<String, Storage>,
) -> Result<()> {
    let mut known = HashMap::new();
    for (_, object) in graph.iter().filter(|(_, object)| matches!(object, Object::PersistentId(_))) {
        if let Some(found) = reference(graph, object) {
            known.entry(found.key).or_insert((found.class.element_size(found.class_name), found.elements));
        }
    }
    let keys_at = cursor.position();
    let bad = |message: &str| Error::corrupt("torch-storages", message).at(keys_at);
    let list = keys.sequence(root).ok_or_else(|| bad("the storage keys are not a list"))?;
    for &key in list {
        let key = keys.text(key).ok_or_else(|| bad("a storage key is not a short text"))?;
        let Some(&(size, elements)) = known.get(key) else {
            return Err(bad("no tensor refers to the storage").found(escape(key)));
        };
        let size = size.ok_or_else(|| {
            Error::unsupported("torch-storage-class", "unknown storage class").at(cursor.position())
        })?;
        let at = cursor.position();
        let count = u64::from_le_bytes(cursor.array("the length of a storage")?);
        if count != elements {
            return Err(Error::corrupt(
                "torch-storage-length",
                "the storage length differs from the length in the pickle",
            )
            .at(at)
            .expected(format_args!("{elements} elements"))
            .found(count));
        }
        let len =
            count.checked_mul(size).ok_or_else(|| bad("the storage has 2^64 bytes or more").found(count))?;
        let offset = cursor.position();
        cursor.skip(len, "a storage")?;
        let storage = Storage { source: source.clone(), offset, len, check: None };
        if storages.insert(key.to_owned(), storage).is_some() {
            return Err(bad("duplicate storage key").found(escape(key)));
        }
    }
    Ok(())
}
