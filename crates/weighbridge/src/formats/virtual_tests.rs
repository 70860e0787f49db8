//! Virtual datasets when a file is opened; the golden files are those of the container's tests.
#![allow(clippy::disallowed_methods)]

use super::{OpenOptions, files_of, hdf5, open_with};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    weighbridge_testkit::testdata("hdf5/virtual")
}

/// 96 chunks of a megabyte side by side: row by row, each would be decompressed a million times.
#[test]
fn rejects_chunks_decompressed_once_per_row() {
    let following = OpenOptions::default().with_own(hdf5::ReadOptions { follow_virtual: true });
    let error = open_with(folder().join("side_by_side.h5"), &following).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Limit, "{error:?}");
}

#[test]
fn opening_follows_external_files_and_names_missing_ones() {
    let path = folder().join("maps_latest.h5");
    let (plain, following) =
        (OpenOptions::default(), OpenOptions::default().with_own(hdf5::ReadOptions { follow_virtual: true }));
    let checkpoint = open_with(&path, &plain).unwrap();
    assert_eq!(checkpoint.tensors.len(), 1);
    let notes = checkpoint.notes.iter().filter(|note| note.text.contains("; `follow-virtual` reads it"));
    assert_eq!(notes.count(), 16);
    let checkpoint = open_with(&path, &following).unwrap();
    let codes: Vec<_> = checkpoint.notes.iter().map(|note| note.code.as_str()).collect();
    assert_eq!((checkpoint.tensors.len(), &codes[..]), (17, &["opaque"][..]));
    let mut files = Vec::new();
    files_of(&checkpoint, &mut |source, _| files.push(source.label().to_owned()));
    files.sort();
    let names = ["100%.h5", "maps_latest.h5", "part_0.h5", "part_1.h5"];
    assert_eq!(files, names.map(|name| folder().join(name).display().to_string()));
    let dir = tempfile::tempdir().unwrap();
    let lone = dir.path().join("small.h5");
    std::fs::copy(folder().join("small_latest.h5"), &lone).unwrap();
    std::fs::copy(folder().join("part_0.h5"), dir.path().join("part_0.h5")).unwrap();
    let error = open_with(&lone, &following).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("hdf5-virtual-missing", Some("v")));
    assert_eq!(error.found_text(), Some("no part_1.h5"));
    let lenient = open_with(&lone, &OpenOptions { lenient: true, ..following.clone() }).unwrap();
    assert!(lenient.tensors.is_empty() && lenient.notes[0].omission);
}

#[cfg(unix)]
#[test]
fn links_out_of_the_folder_are_not_followed() {
    use std::os::unix::fs::symlink;
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = |name: &str, to: &Path| std::fs::copy(folder().join(name), to).map(drop).unwrap();
    let following = OpenOptions::default().with_own(hdf5::ReadOptions { follow_virtual: true });
    let path = dir.path().join("small.h5");
    copy("small_latest.h5", &path);
    copy("part_1.h5", &dir.path().join("part_1.h5"));
    copy("part_0.h5", &outside.path().join("part_0.h5"));
    symlink(outside.path().join("part_0.h5"), dir.path().join("part_0.h5")).unwrap();
    let opened = open_with(&path, &following).unwrap();
    assert!(opened.tensors.is_empty() && opened.notes.iter().any(|note| note.omission));
    assert!(
        opened.notes.iter().any(|note| note.text.contains("outside of the folder")),
        "{:?}",
        opened.notes
    );
    // A link within the folder is a name of a file there.
    std::fs::remove_file(dir.path().join("part_0.h5")).unwrap();
    copy("part_0.h5", &dir.path().join("other.h5"));
    symlink("other.h5", dir.path().join("part_0.h5")).unwrap();
    assert_eq!(open_with(&path, &following).unwrap().tensors.len(), 1);
}
