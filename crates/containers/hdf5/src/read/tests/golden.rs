//! Comparison with the values that h5py reads.

use super::{file, folder, open};
use crate::{Attributes, Item, Kind, read};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_io::source::{CountingSource, FileSource, MemorySource, SourceRef};

fn expected() -> serde_json::Map<String, Json> {
    let text = std::fs::read_to_string(folder().join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn name(path: &[String]) -> String {
    format!("/{}", path.join("/"))
}

/// Compares attributes with those of h5py, except those marked as unreadable.
fn same_attributes(place: &str, found: &Attributes, expected: &Json) {
    let mut wanted = 0;
    for (name, value) in expected.as_object().unwrap() {
        let own = found.iter().find(|(own, _)| own == name);
        if value.get("unreadable").is_some() {
            assert!(own.is_none(), "{place}: {name}");
            continue;
        }
        wanted += 1;
        assert_eq!(
            &own.unwrap_or_else(|| panic!("{place}: no {name}")).1.to_json(),
            value,
            "{place}: {name}"
        );
    }
    assert_eq!(found.len(), wanted, "{place}");
}

fn same_item(place: &str, item: &Item, expected: &Json) {
    same_attributes(place, &item.attributes, &expected["attributes"]);
    let Some(dataset) = &item.dataset else {
        assert!(expected.get("shape").is_none(), "{place}: a group");
        return;
    };
    let path = TensorPath::from_dotted("a.b");
    if let Some(texts) = expected.get("texts") {
        assert_eq!(dataset.kind, Kind::Text, "{place}");
        assert_eq!(&serde_json::json!(dataset.texts(1 << 20).unwrap()), texts, "{place}");
        assert_eq!(dataset.texts(3).unwrap_err().kind(), weighbridge_core::Kind::Limit, "{place}");
    } else if expected.get("other").is_some() {
        assert!(matches!(dataset.kind, Kind::Other(_)), "{place}: {:?}", dataset.kind);
        assert_eq!(dataset.entry(path).unwrap_err().code().as_str(), "hdf5-type", "{place}");
    } else if let Some(code) = expected.get("unread") {
        assert_eq!(dataset.entry(path).unwrap_err().code().as_str(), code.as_str().unwrap(), "{place}");
    } else {
        let entry = dataset.entry(path).unwrap();
        assert_eq!(entry.stored.name(), expected["dtype"].as_str().unwrap(), "{place}");
        assert_eq!(serde_json::json!(entry.shape.dims()), expected["shape"], "{place}");
        let bytes = entry.read_tensor(Order::Row).unwrap();
        let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, expected["sha256"].as_str().unwrap(), "{place}");
        // Any part of an extent equals that part of the whole.
        for extent in &entry.extents {
            let mut whole = vec![0; extent.len as usize];
            extent.source.read_at(extent.offset, &mut whole).unwrap();
            for (from, len) in [(0, 1), (1, 7), (3, 30), (whole.len() / 2, 5)] {
                let Some(part) = whole.get(from..from + len) else { continue };
                let mut buffer = vec![0xAA; len];
                extent.source.read_at(extent.offset + from as u64, &mut buffer).unwrap();
                assert_eq!(buffer, part, "{place} {from} {len}");
            }
        }
    }
}

/// Expected items: nested groups without attributes are not listed.
fn listed_items(expected: &Json) -> Vec<&Json> {
    let bare = |item: &Json| {
        item.as_object()
            .unwrap()
            .iter()
            .all(|(key, value)| key == "attributes" && value.as_object().unwrap().is_empty())
    };
    let deep = |path: &Json| path.as_str().unwrap().matches('/').count() > 1;
    expected["items"].as_array().unwrap().iter().filter(|item| !(bare(&item[1]) && deep(&item[0]))).collect()
}

fn same_file(file: &str, source: &SourceRef, expected: &Json) {
    let contents = read(source, &Limits::default()).unwrap();
    same_attributes(file, &contents.attributes, &expected["attributes"]);
    assert_eq!(contents.user_block, expected["user_block"].as_u64().unwrap(), "{file}");
    assert_eq!(contents.end, source.len(), "{file}");
    let items = listed_items(expected);
    let names: Vec<String> = contents.items.iter().map(|item| name(&item.path)).collect();
    let wanted: Vec<&str> = items.iter().map(|item| item[0].as_str().unwrap()).collect();
    assert_eq!(names, wanted, "{file}");
    for (item, wanted) in contents.items.iter().zip(&items) {
        same_item(&format!("{file} {}", name(&item.path)), item, &wanted[1]);
    }
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    let list = |key: &str| {
        let list = expected[key].as_array().unwrap();
        sorted(list.iter().map(|text| text.as_str().unwrap().to_owned()).collect())
    };
    assert_eq!(sorted(contents.links.iter().map(|link| name(&link.path)).collect()), list("links"), "{file}");
    // Unreadable attributes are problems, too, at the path of a listed dataset.
    let problems = contents.problems.iter().map(|problem| name(&problem.path));
    let problems: Vec<String> = problems.filter(|path| !names.contains(path)).collect();
    assert_eq!(sorted(problems), list("problems"), "{file}");
}

#[test]
fn files_read_as_h5py_reads_them() {
    let expected = expected();
    assert_eq!(expected.len(), 10);
    for (name, wanted) in &expected {
        let memory: SourceRef = Arc::new(MemorySource::new(name.clone(), file(name)));
        same_file(name, &memory, wanted);
        let opened: SourceRef = Arc::new(FileSource::open(folder().join(name)).unwrap());
        same_file(name, &opened, wanted);
    }
}

/// See `make_heaps` in judges/make_hdf5.py.
#[test]
fn nested_fractal_heap_tables_read_as_h5py_reads_them() {
    let contents = open(file("../heaps/large_latest.h5")).unwrap();
    assert!(contents.problems.is_empty() && contents.links.is_empty());
    let [d, group, wide @ ..] = &contents.items[..] else { panic!("{}", contents.items.len()) };
    assert_eq!((name(&d.path), name(&group.path)), ("/d".to_owned(), "/wide".to_owned()));
    let numbers: serde_json::Map<String, Json> =
        (0..180).map(|n| (format!("a{n:03}"), serde_json::json!(vec![n; 800]))).collect();
    same_attributes("/d", &d.attributes, &numbers.into());
    assert_eq!(wide.len(), 1000);
    for (item, n) in wide.iter().zip(0..) {
        let rest = if n == 0 { String::new() } else { "n".repeat(600) };
        assert_eq!(item.path, ["wide".to_owned(), format!("{n:04}{rest}")]);
    }
}

#[test]
fn listing_a_long_file_does_not_read_its_elements() {
    // Trailing bytes make the file too long to be read whole.
    let mut bytes = file("types_default.h5");
    bytes.resize(bytes.len() + (8 << 20), 7);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("long.h5"), bytes).unwrap();
    let opened: SourceRef = Arc::new(FileSource::open(folder.path().join("long.h5")).unwrap());
    let counted = Arc::new(CountingSource::new(opened));
    let source: SourceRef = counted.clone();
    let contents = read(&source, &Limits::default()).unwrap();
    assert_eq!(contents.items.len(), listed_items(&expected()["types_default.h5"]).len());
    assert!(counted.bytes_read() < 1 << 20, "{}", counted.bytes_read());
}

#[test]
fn reports_unsupported_objects_as_problems() {
    let contents = open(file("layouts_latest.h5")).unwrap();
    let codes: Vec<_> = contents.problems.iter().map(|problem| problem.error.code().as_str()).collect();
    assert_eq!(codes, ["hdf5-external-storage", "hdf5-virtual"]);
    let contents = open(file("groups_default.h5")).unwrap();
    let codes: Vec<_> = contents.problems.iter().map(|problem| problem.error.code().as_str()).collect();
    assert_eq!(codes, ["hdf5-external-link"]);
    let soft = contents.links.iter().find(|link| link.path == ["soft"]).unwrap();
    assert_eq!(soft.target, "/twelve/d01");
    assert_eq!(open(b"no such file".to_vec()).unwrap_err().code().as_str(), "hdf5-magic");
}

#[test]
fn contiguous_elements_are_ranges_of_the_file() {
    let source: SourceRef = Arc::new(MemorySource::new("layouts", file("layouts_default.h5")));
    let contents = read(&source, &Limits::default()).unwrap();
    let entry = |name: &str| {
        let item = contents.items.iter().find(|item| item.path == [name]).unwrap();
        item.dataset.as_ref().unwrap().entry(TensorPath::value()).unwrap()
    };
    for name in ["contiguous", "rows", "rows_grow", "one", "single_plain", "compact"] {
        let entry = entry(name);
        assert!(entry.extents.iter().all(|extent| Arc::ptr_eq(&extent.source, &source)), "{name}");
    }
    assert!(entry("boxes").extents.iter().all(|extent| !Arc::ptr_eq(&extent.source, &source)));
}

/// See `make_narrow` in judges/make_hdf5.py.
#[test]
fn index_checksums_are_not_read_as_chunks() {
    let contents = open(file("../forms/narrow.h5")).unwrap();
    assert!(contents.problems.is_empty() && contents.items.len() == 3);
    for item in &contents.items {
        let entry = item.dataset.as_ref().unwrap().entry(TensorPath::value()).unwrap();
        let count = if item.path == ["fixed"] { 2300 } else { 300 };
        let counted: Vec<u8> = (0..count).flat_map(i16::to_le_bytes).collect();
        assert_eq!(entry.read_tensor(Order::Row).unwrap(), counted, "{}", name(&item.path));
    }
}

#[test]
fn threads_can_share_a_filtered_dataset() {
    let contents = open(file("layouts_latest.h5")).unwrap();
    let item = contents.items.iter().find(|item| item.path == ["all"]).unwrap();
    let entry = item.dataset.as_ref().unwrap().entry(TensorPath::value()).unwrap();
    let whole = entry.read_tensor(Order::Row).unwrap();
    let extent = &entry.extents[0];
    std::thread::scope(|scope| {
        for first in 0..8usize {
            let whole = &whole;
            scope.spawn(move || {
                for at in (first..whole.len() - 9).step_by(3) {
                    let mut buffer = [0; 9];
                    extent.source.read_at(at as u64, &mut buffer).unwrap();
                    assert_eq!(buffer, whole[at..at + 9]);
                }
            });
        }
    });
}
