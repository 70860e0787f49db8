//! Damaged files: salvaged tensors equal those of the complete file.
//!
//! Every prefix of every small good file is opened, and every byte of it is damaged once. The salvaged tensors must have the bytes
//! of the complete file, name by name; a table may have fewer rows where it states so.

use crate::support::{testdata, walk};
use std::collections::HashMap;
use std::path::PathBuf;
use weighbridge::checkpoint::{Checkpoint, Loss, TensorEntry, Value};
use weighbridge::formats::{OpenOptions, registry};
use weighbridge::tensor::Order;
use weighbridge_testkit::memory;

/// Larger files are not cut at every byte.
const LARGEST: usize = 6 << 10;
/// HDF5 files are never small.
const LARGEST_HDF5: usize = 26 << 10;
/// Beginnings of one file that are opened, at most.
const CUTS: usize = 300;

/// The good files of a family, with their bytes.
fn good(family: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let root = testdata(family);
    let folder =
        ["good", "alt"].iter().map(|name| root.join(name)).find(|path| path.is_dir()).unwrap_or(root);
    walk(&folder, &mut files);
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        let most = if family == "hdf5" { LARGEST_HDF5 } else { LARGEST };
        (bytes.len() <= most).then_some((path, bytes))
    };
    files.into_iter().filter_map(read).collect()
}

fn options(format: &str, salvage: bool) -> OpenOptions {
    OpenOptions { format: Some(format.to_owned()), salvage, ..OpenOptions::default() }
}

/// What a tensor is: type, shape and bytes in row-major order.
type FormatInfo = (String, Vec<u64>, Vec<u8>);

fn facts(tensor: &TensorEntry) -> FormatInfo {
    let bytes = tensor.read_tensor(Order::Row).unwrap_or_else(|e| panic!("what is given is readable: {e}"));
    (tensor.dtype().name().to_owned(), tensor.shape.dims().to_vec(), bytes)
}

/// The whole file: names and facts, in order. `None` for files that do not open alone.
fn whole(bytes: &[u8]) -> Option<(&'static str, Vec<(String, FormatInfo)>)> {
    let checkpoint = registry().open_source(memory(bytes), &OpenOptions::default()).ok()?;
    if checkpoint.tensors.is_empty() {
        return None;
    }
    let readable = |tensor: &TensorEntry| tensor.read_tensor(Order::Row).is_ok();
    if !checkpoint.tensors.iter().all(readable) {
        return None;
    }
    Some((checkpoint.format, checkpoint.tensors.iter().map(|t| (t.text(), facts(t))).collect()))
}

/// Fails unless every tensor of `given` is identical in the complete file.
fn hold(given: &Checkpoint, whole: &[(String, FormatInfo)], what: &str) {
    let by_name: HashMap<&str, &FormatInfo> =
        whole.iter().map(|(name, facts)| (name.as_str(), facts)).collect();
    for tensor in &given.tensors {
        let found = facts(tensor);
        let name = tensor.text();
        // Names that the file does not hold are places in it, and state whose parameter is lost goes by
        // its own key.
        let alike = || whole.iter().map(|(_, facts)| facts).find(|facts| **facts == found);
        let by_any_name = || alike().filter(|_| ["paddle", "mxnet"].contains(&given.format));
        let wanted = by_name.get(name.as_str()).copied().or_else(by_any_name);
        let wanted = wanted.unwrap_or_else(|| panic!("{what}: {name} is not in the whole file"));
        let (dtype, shape, bytes) = found;
        let rows = tensor.attributes.contains_key("salvaged_rows") || given.format == "tsv";
        if rows {
            assert_eq!((&dtype, &shape[1..]), (&wanted.0, &wanted.1[1..]), "{what}: {name}");
            // `FIRST to LAST`: rows of a text may be missing at the front, too.
            let first: usize = match tensor.attributes.get("salvaged_rows") {
                Some(Value::Text(kept)) => kept.split(' ').next().unwrap().parse().unwrap(),
                _ => 0,
            };
            let row = wanted.2.len() / usize::try_from(wanted.1[0].max(1)).unwrap();
            // A line end that is damaged makes one line of two, so that fewer are counted.
            let last = if first > 0 { usize::try_from(wanted.1[0]).unwrap() } else { 0 };
            let stands = (first..=last).any(|from| wanted.2[from * row..].starts_with(&bytes));
            assert!(stands, "{what}: {name} has rows that the whole file has not");
        } else {
            assert_eq!((&dtype, &shape), (&wanted.0, &wanted.1), "{what}: {name}");
            assert!(bytes == wanted.2, "{what}: {name} has other bytes than in the whole file");
        }
    }
}

/// Marked as salvaged, so that it is not mistaken for the complete file.
fn marked(given: &Checkpoint, what: &str) {
    let damage = given.damage.as_ref().unwrap_or_else(|| panic!("{what}: it is not marked"));
    assert!(given.notes.iter().any(|note| note.code == "damaged" && note.omission), "{what}");
    assert!(!damage.losses(given.tensors.len()).is_empty(), "{what}");
}

/// True where a longer beginning may give less: of a vocabulary among tensors, which cannot be distinguished from
/// a damaged tensor until it is whole, and of a tuple, whose first dict looks like the root at first.
fn loose(what: &str) -> bool {
    what.contains("mixed") || what.contains("tuple")
}

/// Opens every beginning of the files of a family. Gives how many files and how often tensors came back.
fn cut(family: &str) -> (usize, usize) {
    let (mut files, mut saved) = (0, 0);
    for (path, bytes) in good(family) {
        let Some((format, whole)) = whole(&bytes) else { continue };
        files += 1;
        let all = registry().open_source(memory(&bytes), &options(format, true)).unwrap();
        assert!(all.damage.is_none(), "{}: nothing is wrong with the whole", path.display());
        assert_eq!(all.tensors.len(), whole.len(), "{}", path.display());
        hold(&all, &whole, &path.display().to_string());
        let step = bytes.len().div_ceil(CUTS);
        let mut before = 0;
        for end in (0..bytes.len()).filter(|end| end % step == 0 || bytes.len() - end < 64) {
            let what = format!("{} cut at {end} of {}", path.display(), bytes.len());
            let found = registry().open_source(memory(&bytes[..end]), &options(format, true));
            let Ok(given) = found else {
                // By its length an array that is cut may be one of another shape.
                let uncertain = format == "npy";
                assert!(
                    before == 0 || loose(&what) || uncertain,
                    "{what}: a shorter beginning gave more: {}",
                    found.unwrap_err()
                );
                continue;
            };
            hold(&given, &whole, &what);
            // A beginning that opens is a file of its own.
            if registry().open_source(memory(&bytes[..end]), &options(format, false)).is_err() {
                marked(&given, &what);
            }
            let bytes = given.tensors.iter().map(TensorEntry::bytes).sum();
            assert!(
                bytes >= before || loose(&what),
                "{what}: {bytes} bytes, and a shorter beginning gave {before}"
            );
            before = bytes;
            saved += usize::from(given.damage.is_some() && before > 0);
        }
    }
    (files, saved)
}

/// Changes every byte of the files of a family, one at a time: what a salvage opening gives of a file
/// that does not open is what the whole file holds.
fn flip(family: &str) -> usize {
    let mut saved = 0;
    for (path, bytes) in good(family) {
        let Some((format, whole)) = whole(&bytes) else { continue };
        let step = bytes.len().div_ceil(CUTS);
        for at in (0..bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            // What no reader could see is not to be seen here either: values without checksums, letters
            // of names.
            if registry().open_source(memory(&damaged), &options(format, false)).is_ok() {
                continue;
            }
            let Ok(given) = registry().open_source(memory(&damaged), &options(format, true)) else {
                continue;
            };
            let what = format!("{} with byte {at} changed", path.display());
            marked(&given, &what);
            hold(&given, &whole, &what);
            saved += usize::from(!given.tensors.is_empty());
        }
    }
    saved
}

/// One bit of the first line makes it narrower: the others say how wide rows are.
#[test]
fn a_damaged_first_line_loses_only_that_line() {
    let lines: Vec<String> = (0..50).map(|row| format!("w{row}\t{row}.5\t1.25\n")).collect();
    let good = lines.concat().into_bytes();
    let mut damaged = good.clone();
    damaged[2] = b'I';
    let given = registry().open_source(memory(&damaged), &options("tsv", true)).unwrap();
    marked(&given, "a damaged first line");
    let (_, shape, bytes) = facts(&given.tensors[0]);
    let whole = registry().open_source(memory(&good), &options("tsv", false)).unwrap();
    let (.., all) = facts(&whole.tensors[0]);
    assert_eq!((shape, &bytes[..]), (vec![49, 2], &all[8..]));
    assert_eq!(given.tensors[0].attributes.get("salvaged_rows"), Some(&Value::Text("1 to 50".to_owned())));
    assert_eq!(given.damage.unwrap().lost.len(), 1);
}

/// Where an archive is cut no directory confirms names: what comes back is said to be not proved.
#[test]
fn names_without_a_directory_entry_are_unconfirmed() {
    for (family, format) in [("npz", "npz"), ("torch", "torch")] {
        let mut seen = 0;
        for (path, bytes) in good(family) {
            // Within the end record: a comment that is cut takes no directory away.
            let end = bytes.windows(4).rposition(|mark| mark == b"PK\x05\x06");
            let cut = &bytes[..end.map_or(bytes.len() - 1, |end| end + 21)];
            let Ok(given) = registry().open_source(memory(cut), &options(format, true)) else { continue };
            if given.tensors.is_empty() || !cut.starts_with(b"PK") {
                continue;
            }
            seen += 1;
            let reported = given.notes.iter().find(|note| note.code == "not-proved");
            let reported = reported.unwrap_or_else(|| panic!("{}: {:?}", path.display(), given.notes));
            let all = match given.tensors.len() {
                1 => "the readable tensor is ".to_owned(),
                count => format!("all {count} readable tensors are "),
            };
            assert!(reported.text.starts_with(&all), "{}", reported.text);
        }
        assert!(seen > 3, "{family}: {seen}");
    }
}

/// Letters of several bytes where JSON breaks, in a header that goes on behind them.
#[test]
fn broken_json_does_not_hide_later_entries() {
    let header =
        "{\u{11f}\u{700}\"__metad\":{},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([7, 8]);
    let given = registry().open_source(memory(&bytes), &options("safetensors", true)).unwrap();
    marked(&given, "broken JSON");
    assert_eq!(given.tensors.len(), 1);
    assert_eq!(facts(&given.tensors[0]).2, [7, 8]);
    for end in 0..bytes.len() {
        if let Ok(given) = registry().open_source(memory(&bytes[..end]), &options("safetensors", true)) {
            assert!(given.tensors.is_empty(), "cut at {end}");
        }
    }
}

/// Of a large group each node of its tree and each block of its heap is damaged once, and the file is cut at many places:
/// what the others hold comes back.
#[test]
fn a_damaged_group_part_loses_only_its_members() {
    let files: [(&str, &[&[u8; 4]]); 2] =
        [("many_default.h5", &[b"SNOD", b"TREE"]), ("many_latest.h5", &[b"BTLF", b"FHDB", b"BTIN"])];
    for (name, marks) in files {
        let bytes = std::fs::read(testdata("hdf5/good").join(name)).unwrap();
        let (_, all) = whole(&bytes).unwrap();
        for mark in marks {
            let places: Vec<usize> =
                (0..bytes.len() - 4).filter(|&at| bytes[at..].starts_with(&mark[..])).collect();
            // A tree has one root; the group above has a node and a tree, too.
            let shared = usize::from(*mark == b"SNOD");
            let (mut lost, mut nothing) = (0, 0);
            for &at in &places {
                let mut damaged = bytes.clone();
                damaged[at..at + 4].fill(b'?');
                let what = format!("{name} without the mark at {at}");
                assert!(registry().open_source(memory(&damaged), &options("hdf5", false)).is_err(), "{what}");
                let Ok(given) = registry().open_source(memory(&damaged), &options("hdf5", true)) else {
                    nothing += 1;
                    continue;
                };
                marked(&given, &what);
                hold(&given, &all, &what);
                let reported = given.damage.as_ref().unwrap();
                assert!(
                    reported.lost.first().is_some_and(|lost| lost.offset.is_some()),
                    "{what}: {:?}",
                    reported.lost
                );
                let is_told = |loss: &Loss| loss.subject.contains("a part of the group");
                let losses = reported.losses(given.tensors.len());
                assert!(losses.iter().any(is_told), "{what}: {losses:?}");
                nothing += usize::from(given.tensors.is_empty());
                lost += if given.tensors.is_empty() { 0 } else { all.len() - given.tensors.len() };
            }
            println!("{name} {mark:?}: {} places, {nothing} cost all, {lost} members", places.len());
            match *mark {
                // Without the root of the tree nothing says which objects of the heap are links.
                b"BTIN" => assert_eq!((places.len(), nothing), (1, 1)),
                b"BTLF" => assert!(nothing == 0 && lost < all.len() && lost > all.len() - places.len()),
                b"FHDB" => assert_eq!((nothing, lost), (0, all.len())),
                b"SNOD" => assert_eq!((nothing, lost), (shared, all.len())),
                _ => assert!(nothing < places.len(), "{nothing} of {}", places.len()),
            }
        }
        let (mut before, mut saved) = (0, 0);
        for end in (0..bytes.len()).step_by(bytes.len() / 60) {
            let what = format!("{name} cut at {end}");
            let given = registry().open_source(memory(&bytes[..end]), &options("hdf5", true));
            let count = given.map_or(0, |given| {
                hold(&given, &all, &what);
                given.tensors.len()
            });
            assert!(count >= before, "{what}: {count} tensors, and a shorter beginning gave {before}");
            before = count;
            saved += usize::from(count > 0);
        }
        println!("{name}: {saved} beginnings with tensors");
        // The newer form has the head of the tree near the end of this file.
        assert!(saved > 0 || name == "many_latest.h5", "{name}");
    }
}

macro_rules! families {
    ($($name:ident: $family:literal, $flips:literal);* $(;)?) => {
        mod beginnings { $(
            #[test]
            fn $name() {
                let (files, saved) = super::cut($family);
                println!("{files} files, {saved} beginnings with tensors");
                assert!(files > 0 && saved > 0, "{files} files, {saved} beginnings with tensors");
            }
        )* }
        mod flips { $(
            #[test]
            fn $name() {
                let saved = super::flip($family);
                println!("{saved} damaged files with tensors");
                assert_eq!(saved > 0, $flips, "{saved} damaged files with tensors");
            }
        )* }
    };
}

// Of an npy file that does not open nothing comes back: its header is damaged, or there is none.
families! {
    safetensors: "safetensors", true;
    npz: "npz", true;
    torch: "torch", true;
    primitiv: "primitiv", true;
    paddle: "paddle", true;
    hdf5: "hdf5", true;
    onnx: "onnx", true;
    gguf: "gguf", true;
    mxnet: "mxnet", true;
    caffe: "caffe", true;
    tensorflow: "tensorflow", true;
    tflite: "tflite", true;
    coreml: "coreml", true;
    flax: "flax", true;
    tables: "tables", true;
    npy: "npy", false;
}

/// All tensors of a storage share its checksum, also those that are not contiguous.
#[test]
fn tied_tensors_are_as_intact_as_their_bytes() {
    for (name, lost) in [("tied.pt", 3), ("views.pt", 6)] {
        let mut bytes = std::fs::read(testdata("torch/good").join(name)).unwrap();
        let of = |bytes: &[u8]| registry().open_source(memory(bytes), &options("torch", true)).unwrap();
        let all = of(&bytes);
        assert!(all.notes.iter().all(|note| note.code != "not-proved"), "{name}: {:?}", all.notes);
        let at = usize::try_from(all.tensors[0].extents[0].offset).unwrap();
        bytes[at] ^= 0xff;
        let damaged = of(&bytes);
        assert_eq!(all.tensors.len() - damaged.tensors.len(), lost, "{name}: {:?}", damaged.damage);
        assert_eq!(damaged.damage.unwrap().lost.len(), lost);
        let intact: HashMap<String, FormatInfo> = all.tensors.iter().map(|t| (t.text(), facts(t))).collect();
        assert!(damaged.tensors.iter().all(|tensor| intact[&tensor.text()] == facts(tensor)));
    }
}
