//! Detection of files beside others.

use crate::support::{testdata, walk};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use weighbridge::formats::OpenOptions;
use weighbridge::formats::registry;
use weighbridge::source::{FileSource, FolderRef, MemoryFolder, SourceRef};

/// A network of ncnn without weights, which fits any weights if trailing bytes are allowed.
const NETWORK: &[u8] = b"7767517\n1 1\nInput data 0 1 data\n";

/// Returns the format that opens `content` as the weights of [`NETWORK`].
fn format_beside_a_network(content: Vec<u8>) -> Option<&'static str> {
    let folder: FolderRef =
        Arc::new(MemoryFolder::new("m").with("a.param", NETWORK.to_vec()).with("a.bin", content));
    let name = Path::new("a.bin");
    let source = folder.open(name).unwrap().unwrap();
    let options = OpenOptions { lenient: true, ..OpenOptions::default() };
    registry().open_in_folder(source, &folder, name, &options).ok().map(|opened| opened.format)
}

#[test]
fn files_with_content_of_a_format_are_not_weights_of_the_network_beside_them() {
    assert_eq!(format_beside_a_network(b"\x01\x02\x03\x04".to_vec()), Some("ncnn"));
    let mut all = Vec::new();
    walk(&testdata(""), &mut all);
    let (mut count, mut formats) = (0, BTreeSet::new());
    for path in all {
        let source: SourceRef = Arc::new(FileSource::open(&path).unwrap());
        let Ok(format) = registry().detect(&source) else { continue };
        let format = format.info().id;
        let content = fs::read(&path).unwrap();
        if let Some(opened) = format_beside_a_network(content).filter(|_| format != "ncnn") {
            assert_ne!(opened, "ncnn", "{}", path.display());
            count += 1;
            formats.insert(format);
        }
    }
    assert!(count > 200 && formats.len() > 15, "{count} {formats:?}");
}
