//! The two forms of the design notes: handwritten files, round trips, and detection.

use super::*;
use crate::stream::unshipped::{design_note, size_prefixed};
use crate::stream::{StreamKind, detect, lod};
use weighbridge_core::tensor::{DType, Order};

/// A [2, 3] of i16 with one LoD level, as the note "Model Format" has it.
const NOTE: [u8; 58] = [
    0, 0, 0, 0, // version
    6, 0, 0, 0, // bytes of the desc
    0x08, 0x01, 0x10, 0x02, 0x10, 0x03, // INT16, 2, 3
    1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, // the elements
    1, 0, 0, 0, 0, 0, 0, 0, // LoD levels
    16, 0, 0, 0, 0, 0, 0, 0, // bytes of the level
    0, 0, 0, 0, 0, 0, 0, 0, // 0
    2, 0, 0, 0, 0, 0, 0, 0, // 2
];

fn read_note(bytes: &[u8]) -> Result<Dense> {
    design_note::read_file(&memory(bytes), &TensorPath::value(), &Limits::default())
}

fn read_sized(bytes: &[u8]) -> Result<Vec<Dense>> {
    size_prefixed::read_all(&memory(bytes), &Limits::default())
}

fn kind(bytes: &[u8]) -> Option<StreamKind> {
    detect(&memory(bytes), &Limits::default())
}

#[test]
fn reads_handwritten_design_note_file() {
    let read = read_note(&NOTE).unwrap();
    assert_eq!((read.entry.stored, read.entry.shape.dims()), (DType::I16, &[2, 3][..]));
    assert_eq!(read.entry.read_tensor(Order::Row).unwrap(), NOTE[14..26]);
    assert_eq!(lod::levels(&read.entry).unwrap(), [[0, 2]]);
    assert_eq!((read.header.data_offset, read.header.stream_bytes), (14, 58));
    assert_eq!(written(|file| design_note::write(file, &read.entry)), NOTE);
    assert_eq!(kind(&NOTE), Some(StreamKind::DesignNote));
    // The released form differs.
    assert_ne!(rewritten(std::slice::from_ref(&read)), NOTE);
    assert_eq!(read_all(&NOTE).unwrap_err().code().as_str(), "lod-too-long");

    for end in 0..NOTE.len() {
        assert!(read_note(&NOTE[..end]).is_err(), "{end}");
        assert_eq!(kind(&NOTE[..end]), None, "{end}");
    }
    let long = [&NOTE[..], &[0]].concat();
    assert_eq!(read_note(&long).unwrap_err().code().as_str(), "trailing-bytes");
    assert_eq!(kind(&long), None);
}

#[test]
fn reads_handwritten_size_prefixed_file() {
    let one = floats(2);
    assert_eq!(one.len(), 32);
    let mut bytes = vec![32, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(&one);
    // The second: a scalar of type BOOL.
    bytes.extend([23, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(stream(&[0x08, 0x00], &[1]));
    let read = read_sized(&bytes).unwrap();
    assert_eq!(read.len(), 2);
    assert_eq!((read[0].header.stream_offset, read[0].header.data_offset), (8, 32));
    assert_eq!((read[1].header.stream_offset, read[1].entry.stored), (48, DType::Bool));
    assert_eq!(written(|file| size_prefixed::write(file, read.iter().map(|t| &t.entry))), bytes);
    assert_eq!(kind(&bytes), Some(StreamKind::SizePrefixed));

    for (k, tensor) in read.iter().enumerate() {
        let nth = size_prefixed::nth(&memory(&bytes), k, &Limits::default()).unwrap();
        assert_eq!((&nth.entry.path, nth.header), (&tensor.entry.path, tensor.header));
    }
    for k in [2, usize::MAX] {
        let error = size_prefixed::nth(&memory(&bytes), k, &Limits::default()).unwrap_err();
        assert_eq!((error.code().as_str(), error.found_text()), ("no-such-tensor", Some("2 tensors")));
    }

    for end in (0..40).chain(41..bytes.len()) {
        assert!(read_sized(&bytes[..end]).is_err(), "{end}");
    }
    assert_eq!(read_sized(&bytes[..40]).unwrap().len(), 1);
    for wrong in [0, 31, 33, 255] {
        bytes[0] = wrong;
        assert_eq!(read_sized(&bytes).unwrap_err().code().as_str(), "size-prefix", "{wrong}");
        assert_ne!(kind(&bytes), Some(StreamKind::SizePrefixed), "{wrong}");
    }
}

#[test]
fn round_trips_golden_tensors() {
    let bytes = damaged("size_prefixed.pdiparams");
    let read = read_sized(&bytes).unwrap();
    assert_eq!(written(|file| size_prefixed::write(file, read.iter().map(|t| &t.entry))), bytes);
    let real = good("p262/cnn_static_infer/model.pdiparams");
    assert_eq!(rewritten(&read), real);

    let mut count = 0;
    for file in std::fs::read_dir(testdata("paddle/good/p262/lod_tensors")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|e| e != "bin") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let entry = &read_all(&bytes).unwrap()[0].entry;
        let note = written(|file| design_note::write(file, entry));
        assert_eq!(kind(&note), Some(StreamKind::DesignNote), "{path:?}");
        let back = read_note(&note).unwrap();
        assert_eq!(back.header.stream_bytes, note.len() as u64);
        assert_eq!(rewritten(&[back]), bytes, "{path:?}");

        let sized = written(|file| size_prefixed::write(file, [entry, entry]));
        assert_eq!(kind(&sized), Some(StreamKind::SizePrefixed), "{path:?}");
        assert_eq!(rewritten(&read_sized(&sized).unwrap()), [&bytes[..], &bytes].concat());
        count += 1;
    }
    assert_eq!(count, 59);
}
