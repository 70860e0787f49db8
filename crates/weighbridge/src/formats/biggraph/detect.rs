//! Which HDF5 files are BigGraph's, by what stands in them.

use crate::containers::hdf5::{Contents, read};
use crate::limits::Limits;
use crate::source::SourceRef;

/// What an HDF5 file begins with.
const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// True where `source` is an HDF5 file of BigGraph: for the format that takes all other HDF5 files.
pub(in crate::formats) fn looks_like_biggraph(source: &SourceRef) -> bool {
    let mut head = [0; SIGNATURE.len()];
    source.len() >= head.len() as u64
        && source.read_at(0, &mut head).is_ok()
        && head == *SIGNATURE
        && read(source, &Limits::default()).is_ok_and(|contents| is_biggraph(&contents))
}

/// Three columns make a file of edges, whatever else it has. The others are told by their datasets
/// and by one of the attributes that all of them have: `embeddings` alone could be anybody's.
fn is_biggraph(contents: &Contents) -> bool {
    let stands = |name: &str| contents.items.iter().find(|item| item.path.as_slice() == [name]);
    let dataset = |name: &str| stands(name).is_some_and(|item| item.dataset.is_some());
    let marked =
        contents.attributes.iter().any(|(name, _)| name == "format_version" || name == "config/json");
    let columns = ["lhs", "rhs", "rel"].into_iter().filter(|name| dataset(name)).count();
    columns == 3 || marked && (columns > 0 || dataset("embeddings") || stands("model").is_some())
}
