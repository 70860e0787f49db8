//! Acceptance rules of the HDF5 library: files of testdata/hdf5/rules, and damaged ones.

use super::{file, open};
use crate::{Contents, LinkTarget};
use weighbridge_core::checkpoint::{TensorPath, Value};
use weighbridge_core::error::Kind;
use weighbridge_core::tensor::Order;
use weighbridge_io::source::{SourceRef, read_vec};

/// Code of the first error of opening and reading a whole file.
fn code(bytes: Vec<u8>) -> Option<&'static str> {
    let contents = match open(bytes) {
        Ok(contents) => contents,
        Err(error) => return Some(error.code().as_str()),
    };
    let problem = contents.problems.iter().find(|problem| problem.error.kind() != Kind::Unsupported);
    if let Some(problem) = problem {
        return Some(problem.error.code().as_str());
    }
    let datasets = contents.items.iter().filter_map(|item| item.dataset.as_ref());
    let read = |source: SourceRef| read_vec(&*source, 0, source.len());
    let mut errors = datasets.filter_map(|dataset| dataset.bytes().and_then(read).err());
    errors.find(|error| error.kind() != Kind::Unsupported).map(|error| error.code().as_str())
}

fn bytes(contents: &Contents, path: &[&str]) -> Vec<u8> {
    let item = contents.items.iter().find(|item| item.path == path).unwrap();
    let entry = item.dataset.as_ref().unwrap().entry(TensorPath::value()).unwrap();
    entry.read_tensor(Order::Row).unwrap()
}

/// As `values` of judges/make_hdf5.py.
fn values(count: u16) -> impl Iterator<Item = u16> {
    (0..count).map(|n| (n * 37 + 11) % 251 % 120)
}

fn floats(count: u16) -> Vec<u8> {
    values(count).flat_map(|n| f32::from(n).to_le_bytes()).collect()
}

fn integers(count: u16) -> Vec<u8> {
    values(count).flat_map(|n| u32::from(n).to_le_bytes()).collect()
}

fn places(bytes: &[u8], mark: &[u8]) -> Vec<usize> {
    bytes.windows(mark.len()).enumerate().filter(|(_, found)| *found == mark).map(|(at, _)| at).collect()
}

#[test]
fn old_references_to_named_types_are_followed() {
    let contents = open(file("../rules/old_shared.h5")).unwrap();
    assert!(contents.problems.is_empty(), "{:?}", contents.problems);
    assert_eq!(bytes(&contents, &["of_type"]), floats(4));
}

#[test]
fn metadata_is_read_from_a_cache_image() {
    let whole = file("../rules/cache_image.h5");
    let contents = open(whole.clone()).unwrap();
    assert!(contents.problems.is_empty(), "{:?}", contents.problems);
    assert_eq!(bytes(&contents, &["group", "a"]), floats(12));
    assert_eq!(bytes(&contents, &["chunks"]), integers(30));
    assert_eq!(bytes(&contents, &["compact"]), integers(5));
    let group = contents.items.iter().find(|item| item.path == ["group"]).unwrap();
    assert_eq!(group.attributes, [("epoch".to_owned(), Value::I64(3))]);
    let mut damaged = whole;
    let image = places(&damaged, b"MDCI")[0];
    damaged[image + 100] ^= 1;
    assert!(code(damaged).is_some());
}

#[test]
fn a_file_of_a_killed_writer_is_marked_open() {
    assert!(open(file("../rules/killed.h5")).unwrap().is_open);
    assert!(!open(file("../rules/free_room.h5")).unwrap().is_open);
}

#[test]
fn free_space_lists_must_match_their_checksums() {
    let whole = file("../rules/free_room.h5");
    assert_eq!(code(whole.clone()), None);
    for mark in [b"FSHD", b"FSSE"] {
        let damaged = places(&whole, mark).into_iter().map(|at| {
            let mut damaged = whole.clone();
            damaged[at + 12] ^= 1;
            code(damaged)
        });
        // A stale copy remains from before the file was reopened.
        let codes: Vec<_> = damaged.flatten().collect();
        assert_eq!(codes, ["hdf5-checksum"], "{mark:?}");
    }
}

#[test]
fn index_blocks_must_match_their_checksums() {
    let whole = file("layouts_latest.h5");
    assert_eq!(code(whole.clone()), None);
    for mark in [b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EADB", b"BTHD", b"BTLF"] {
        let found = places(&whole, mark);
        assert!(!found.is_empty(), "{mark:?}");
        for at in found {
            for byte in [5, 9, 15, 17] {
                let mut damaged = whole.clone();
                damaged[at + byte] ^= 1;
                assert!(code(damaged).is_some(), "{mark:?} at {at} + {byte}");
            }
        }
    }
}

#[test]
fn soft_links_to_datasets_are_listed_as_items() {
    let contents = open(file("../rules/soft.h5")).unwrap();
    assert!(contents.problems.is_empty());
    for path in [&["g", "near"][..], &["far"], &["along"]] {
        assert_eq!(bytes(&contents, path), floats(3), "{path:?}");
    }
    let leads =
        |name: &str| contents.links.iter().find(|link| link.path.last().unwrap() == name).unwrap().leads;
    assert_eq!(leads("group"), LinkTarget::Group);
    assert_eq!((leads("circle"), leads("nothing")), (LinkTarget::Missing, LinkTarget::Missing));
    assert_eq!(leads("near"), LinkTarget::Dataset);
}

#[test]
fn enumerations_are_numbers_with_names() {
    let contents = open(file("types_default.h5")).unwrap();
    let item = contents.items.iter().find(|item| item.path == ["enum"]).unwrap();
    let names = item.dataset.as_ref().unwrap().names().unwrap();
    let value = |name: &str| names.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone());
    assert_eq!((value("RED"), value("BLUE")), (Some(Value::I64(1)), Some(Value::I64(2))));
}

/// h5py rejects each change, or reads other values.
#[test]
fn rejects_what_the_hdf5_library_rejects() {
    let whole = file("../rules/oldest.h5");
    assert_eq!(code(whole.clone()), None);
    let refused = |what: &str, changes: &[(usize, u8)]| {
        let mut damaged = whole.clone();
        for &(at, byte) in changes {
            assert_ne!(damaged[at], byte, "{what}");
            damaged[at] = byte;
        }
        assert!(code(damaged).is_some(), "{what}");
    };
    let [leaf, ..] = places(&whole, b"SNOD")[..] else { panic!() };
    let [heap, ..] = places(&whole, b"HEAP")[..] else { panic!() };
    let groups: Vec<usize> = places(&whole, b"TREE\0\0");
    let [chunks] = places(&whole, b"TREE\x01\0")[..] else { panic!() };
    for (what, at) in [("the version of free room", 9), ("of the root group", 10), ("of shared headers", 12)]
    {
        refused(what, &[(at, 1)]);
    }
    refused("unknown flags", &[(20, 8)]);
    refused("an end within the file", &[(41, 1)]);
    refused("an extension before version 2", &[(32, 0)]);
    refused("a root group of an unknown kind", &[(73, 1)]);
    refused("an entry of an unknown kind", &[(leaf + 8 + 16, 7)]);
    refused("more entries than there is room for", &[(leaf + 6, 99)]);
    refused("the version of a leaf", &[(leaf + 4, 2)]);
    refused("the version of a heap", &[(heap + 4, 1)]);
    refused("unused places that are elsewhere", &[(heap + 18, 0x7f)]);
    refused("a node beside the only one", &[(groups[0] + 8, 0)]);
    refused("a chunk beside the only node", &[(chunks + 16, 0)]);
    // A key: bytes, filters, three places; then the address.
    let key = 8 + 3 * 8;
    refused("a chunk at no place of one", &[(chunks + 24 + 8, 1)]);
    refused("chunks out of order", &[(chunks + 24 + key + 8 + 8 + 8, 40)]);
    let count = usize::from(whole[chunks + 6]);
    let last = chunks + 24 + count * (key + 8);
    refused("a last key before the last chunk", &[(last + 8, 0)]);
    refused("a chunk that is cut", &[(chunks + 24, whole[chunks + 24] - 1)]);
    // Names: the first of them is behind eight bytes.
    let names = usize::try_from(u64::from_le_bytes(whole[heap + 24..heap + 32].try_into().unwrap())).unwrap();
    refused("a name with a slash", &[(names + 8, b'/')]);
    refused("names out of order", &[(names + 8, b'z')]);
    // The dimensions of `a`, 6 and 5, and its equal maximum dimensions.
    let extents: Vec<u8> = [6u64, 5, 6, 5].iter().flat_map(|n| n.to_le_bytes()).collect();
    let [extents] = places(&whole, &extents)[..] else { panic!() };
    refused("more elements than there may be", &[(extents, 7)]);
    refused("33 dimensions", &[(extents - 7, 33)]);
    refused("an unknown dataspace type", &[(extents - 6, 2)]);
    refused("a message that is not aligned", &[(extents - 14, whole[extents - 14] + 1)]);
}
