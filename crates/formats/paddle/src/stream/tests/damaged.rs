//! Each damaged file leads to a specific error with its offset.

use super::*;
use crate::stream::{Kind, StreamKind, Wanted, detect};
use weighbridge_core::error::{Error, Kind as Situation};

/// The tensors that the undamaged file holds.
const TENSORS: usize = 13;

fn wanted() -> Vec<Wanted> {
    let wanted = |k: usize| Wanted { path: TensorPath::parse(&format!("t{k}")), kind: Kind::Dense };
    (0..TENSORS).map(wanted).collect()
}

/// Reads a file with a program.
fn read(bytes: &[u8]) -> Result<Vec<combined::Stream>> {
    combined::read_with(&memory(bytes), &wanted(), &Limits::default())
}

#[test]
fn reports_faults_of_damaged_files() {
    let cases = [
        ("empty", Situation::Corrupt, "empty-file", 0, None),
        ("last_tensor_short_1", Situation::Corrupt, "truncated-data", 6286, Some("is 1 byte short")),
        ("last_tensor_data_missing", Situation::Corrupt, "truncated-data", 6286, Some("has no data")),
        ("cut_in_middle", Situation::Corrupt, "truncated-data", 424, None),
        ("trailing_byte", Situation::Corrupt, "trailing-bytes", 6926, Some("1 byte after")),
        ("stream_version_1", Situation::Corrupt, "stream-version", 0, None),
        ("tensor_version_7", Situation::Corrupt, "tensor-version", 12, None),
        ("desc_len_negative", Situation::Corrupt, "negative-desc-length", 16, None),
        ("desc_len_huge", Situation::Corrupt, "desc-too-long", 16, None),
        ("dtype_99", Situation::Corrupt, "unknown-dtype", 20, None),
        ("dtype_not_pod", Situation::Corrupt, "not-an-element-type", 20, None),
        ("negative_dim", Situation::Corrupt, "negative-dimension", 20, None),
        ("dims_overflow", Situation::Corrupt, "shape-overflow", 20, None),
        ("size_prefixed", Situation::Unsupported, "size-prefixed", 0, None),
    ];
    for (name, situation, code, at, text) in cases {
        let bytes = damaged(&format!("{name}.pdiparams"));
        let error = read_all(&bytes).unwrap_err();
        let place = |e: &Error| (e.kind(), e.offset(), e.file().map(str::to_owned));
        assert_eq!(error.code().as_str(), code, "{name}: {error}");
        assert_eq!(place(&error), (situation, Some(at), Some("m".into())), "{name}: {error}");
        assert!(error.message().contains(text.unwrap_or("")), "{name}: {error}");
        let error = read(&bytes).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{name}");
        assert_eq!(place(&error), (situation, Some(at), Some("m".into())), "{name}: {error}");
    }
}

#[test]
fn reports_faults_that_require_the_program() {
    let whole = good("p262/cnn_static_infer/model.pdiparams");
    assert_eq!(read(&whole).unwrap().len(), TENSORS);

    let cut = damaged("cut_at_boundary.pdiparams");
    let count = read_all(&cut).unwrap().len();
    let error = read(&cut).unwrap_err();
    assert_eq!((error.code().as_str(), error.offset()), ("missing-tensors", Some(400)));
    assert_eq!(error.tensor(), Some(format!("t{count}").as_str()));
    assert_eq!(error.found_text(), Some(format!("{count} tensors").as_str()));

    let extra = damaged("extra_tensor.pdiparams");
    assert_eq!(read_all(&extra).unwrap().len(), TENSORS + 1);
    let error = read(&extra).unwrap_err();
    assert_eq!((error.code().as_str(), error.offset()), ("extra-tensors", Some(6926)));
    assert_eq!(error.found_text(), Some("14 tensors"));

    // Truncated in the middle, more than the last tensor is missing, and Paddle detects it.
    let cut = damaged("cut_in_middle.pdiparams");
    assert!(read_all(&cut).unwrap_err().message().contains("is 59 bytes short"));
    let error = read(&cut).unwrap_err();
    assert_eq!(error.message(), "the file ends within tensor 7 of 13; the later tensors are missing");
    assert_eq!(error.expected_text(), Some("64 bytes for f32 [16]"));

    // A few bytes after the tensors are trailing bytes; if another tensor is expected, they are its header.
    let mut short = whole.clone();
    short.extend([0; 3]);
    assert_eq!(read(&short).unwrap_err().code().as_str(), "trailing-bytes");
    let more: Vec<_> = wanted().into_iter().chain(wanted().into_iter().take(1)).collect();
    let error = combined::read_with(&memory(&short), &more, &Limits::default()).unwrap_err();
    assert_eq!((error.code().as_str(), error.offset()), ("truncated-header", Some(6926)));
}

#[test]
fn round_trips_unusual_valid_files() {
    for name in ["packed_dims", "fields_reversed", "unknown_field", "bad_lod", "shape_differs"] {
        let bytes = damaged(&format!("{name}.pdiparams"));
        let read = read_all(&bytes).unwrap();
        assert_eq!(read.len(), TENSORS, "{name}");
        let first = &read[0].entry;
        let kept = ["packed_dims", "fields_reversed", "unknown_field"].contains(&name);
        assert_eq!(first.attributes.contains_key("desc"), kept, "{name}");
        assert_eq!(first.shape.dims(), if name == "shape_differs" { &[4, 2][..] } else { &[8] }, "{name}");
        let problem = lod_problem(first);
        assert_eq!(
            problem.as_deref().map(|p| p.contains("ends with 99")),
            (name == "bad_lod").then_some(true)
        );
        assert_eq!(rewritten(&read), bytes, "{name}");
    }
}

#[test]
fn salvages_complete_streams() {
    let whole = read_all(&good("p262/cnn_static_infer/model.pdiparams")).unwrap();
    for (name, streams) in
        [("last_tensor_short_1", TENSORS - 1), ("trailing_byte", TENSORS), ("stream_version_1", 0)]
    {
        let source = memory(damaged(&format!("{name}.pdiparams")));
        let salvage = combined::salvage(&source, &Limits::default());
        assert!(salvage.error.is_some(), "{name}");
        assert_eq!(salvage.streams.len(), streams, "{name}");
        for (kept, tensor) in salvage.streams.iter().zip(&whole) {
            assert_eq!((kept.header, &kept.entry.shape), (tensor.header, &tensor.entry.shape));
        }
        assert_eq!(combined::salvage_with(&source, &wanted(), &Limits::default()).streams.len(), streams);
    }
}

#[test]
fn detects_damaged_files() {
    let mut count = 0;
    for file in std::fs::read_dir(testdata("paddle/bad/p262/damaged")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|e| e != "pdiparams") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let expected = match name {
            "empty" => None,
            "size_prefixed" => Some(StreamKind::SizePrefixed),
            _ => Some(StreamKind::Combined),
        };
        let source = memory(std::fs::read(&path).unwrap());
        assert_eq!(detect(&source, &Limits::default()), expected, "{name}");
        count += 1;
    }
    assert_eq!(count, 21);
}
