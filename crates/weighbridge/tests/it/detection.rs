//! Detection of files beside others.

use crate::support::{testdata, walk};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use weighbridge::formats::{OpenOptions, registry};
use weighbridge::source::{FolderRef, MemoryFolder};

/// A network of ncnn without weights, which fits any weights if trailing bytes are allowed.
const NETWORK: &[u8] = b"7767517\n1 1\nInput data 0 1 data\n";

/// Returns the format by the content alone, and the one that opens the content as the weights of [`NETWORK`].
fn formats_of(content: Vec<u8>) -> (Option<&'static str>, Option<&'static str>) {
    let folder: FolderRef =
        Arc::new(MemoryFolder::new("m").with("a.param", NETWORK.to_vec()).with("a.bin", content));
    let name = Path::new("a.bin");
    let source = folder.open(name).unwrap().unwrap();
    let own = registry().detect(&source).ok().map(|format| format.info().id);
    let options = OpenOptions { lenient: true, ..OpenOptions::default() };
    let opened = registry().open_in_folder(source, &folder, name, &options);
    (own, opened.ok().map(|opened| opened.format))
}

#[test]
fn files_with_content_of_a_format_are_not_weights_of_the_network_beside_them() {
    assert_eq!(formats_of(b"\x01\x02\x03\x04".to_vec()), (None, Some("ncnn")));
    let mut all = Vec::new();
    walk(&testdata(""), &mut all);
    let (mut count, mut formats) = (0, BTreeSet::new());
    for path in all {
        let (own, opened) = formats_of(fs::read(&path).unwrap());
        if let (Some(own), Some(opened)) = (own, opened)
            && own != "ncnn"
        {
            assert_ne!(opened, "ncnn", "{}", path.display());
            count += 1;
            formats.insert(own);
        }
    }
    assert!(count > 200 && formats.len() > 15, "{count} {formats:?}");
}
