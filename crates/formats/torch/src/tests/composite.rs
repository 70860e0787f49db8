//! Quantized and sparse tensors, and numpy arrays.

use super::*;
use weighbridge::formats::safetensors::Safetensors;
use weighbridge_core::checkpoint::{Checkpoint, Loss};

fn planned(format: &dyn Format, checkpoint: &Checkpoint) -> (Vec<u8>, Vec<Loss>) {
    let plan = format.plan(checkpoint, &PlanOptions::default()).unwrap();
    (materialise(&plan).remove(0), plan.losses)
}

/// Number of calls of that torch function in the file.
fn calls(bytes: &[u8], name: &str) -> usize {
    let saved = weighbridge_torch_archive::read(&memory(bytes), &Limits::default()).unwrap();
    let graph = saved.graph();
    graph.iter().filter(|&(id, _)| graph.call(id).is_some_and(|((_, own), _)| own == name)).count()
}

#[test]
fn composite_tensors_are_restored_after_another_format() {
    for (name, function, count) in
        [("quantized", "_rebuild_qtensor", 3), ("sparse", "_rebuild_sparse_tensor", 5)]
    {
        for form in ["", "_legacy"] {
            let checkpoint = good(&format!("{name}{form}.pt"));
            let (bytes, losses) = planned(&Safetensors, &checkpoint);
            assert_eq!(losses, [], "{name}");
            let between = open_bytes(&bytes).unwrap();
            let (bytes, losses) = planned(&Torch, &between);
            assert_eq!((losses.as_slice(), calls(&bytes, function)), (&[][..], count), "{name}");
            let again = open_bytes(&bytes).unwrap();
            assert_eq!(tensors_as_json(&again), tensors_as_json(&checkpoint), "{name}");
            let attributes = |side: &Checkpoint| -> Vec<_> {
                side.tensors.iter().map(|tensor| tensor.attributes.clone()).collect()
            };
            assert_eq!(attributes(&again), attributes(&checkpoint), "{name}");
        }
    }
}

#[test]
fn incomplete_composites_are_written_as_plain_tensors() {
    for (name, drop, function, count, subject) in [
        ("quantized.pt", "q.scale", "_rebuild_qtensor", 2, "q"),
        ("quantized.pt", "rows.zero_point", "_rebuild_qtensor", 2, "rows"),
        ("sparse.pt", "coo.indices", "_rebuild_sparse_tensor", 4, "coo.values"),
    ] {
        let mut checkpoint = good(name);
        checkpoint.tensors.retain(|tensor| tensor.text() != drop);
        let (bytes, losses) = planned(&Torch, &checkpoint);
        let found: Vec<_> = losses.iter().map(|loss| (loss.code.as_str(), loss.subject.as_str())).collect();
        assert_eq!(found, [("parts-missing", subject)], "{name}");
        assert!(!losses[0].is_tensor());
        assert_eq!(calls(&bytes, function), count, "{name}");
        assert_eq!(tensors_as_json(&open_bytes(&bytes).unwrap()), tensors_as_json(&checkpoint), "{name}");
    }
}

#[test]
fn numpy_arrays_are_tensors_at_any_depth() {
    for name in ["arrays.pt", "arrays_legacy.pt"] {
        let checkpoint = good(name);
        assert!(checkpoint.notes.is_empty(), "{:?}", checkpoint.notes);
        let class = |name: &str| checkpoint.tensor(name).unwrap().text_attribute("class").map(str::to_owned);
        assert_eq!((class("w"), class("deep.0.x").as_deref()), (None, Some("numpy.ndarray")));
        assert_eq!(checkpoint.tensor("again").unwrap().text_attribute(Attributes::ALIAS_OF), Some("a"));
        let path = folder("good").join(name);
        let report = weighbridge::ops::verify::verify(&path, &Default::default()).unwrap();
        assert_eq!(report.verdict, Verdict::Sound, "{name}: {:?}", report.findings);
    }
}

/// Damaged pickles of composite tensors.
#[test]
fn damaged_composites_do_not_panic() {
    let mut opened = 0;
    for name in ["quantized.pt", "sparse_legacy.pt", "arrays_legacy.pt"] {
        let bytes = std::fs::read(folder("good").join(name)).unwrap();
        for at in (0..bytes.len().min(4000)).step_by(3) {
            let mut changed = bytes.clone();
            changed[at] = changed[at].wrapping_add(1);
            let lenient = OpenOptions { lenient: true, ..OpenOptions::default() };
            if let Ok(checkpoint) = weighbridge::formats::registry().open_source(memory(&changed), &lenient) {
                opened += 1;
                checkpoint.tensors.iter().for_each(|tensor| drop(tensor.read_tensor(Order::Row)));
                if let Ok(plan) = Torch.plan(&checkpoint, &PlanOptions::default()) {
                    drop(plan);
                }
            }
        }
    }
    assert!(opened > 50, "{opened}");
}

/// A plain pickle of tensors; each holds its storage as a file in the legacy form.
#[test]
fn tensors_in_a_plain_pickle_are_read() {
    let bytes = std::fs::read(folder("pickled.pkl")).unwrap();
    let checkpoint = open_bytes(&bytes).unwrap();
    let floats = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    for (name, shape, expected) in [
        ("w", &[2, 3][..], floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])),
        ("turned", &[3, 2][..], floats(&[0.0, 3.0, 1.0, 4.0, 2.0, 5.0])),
        ("p", &[2][..], floats(&[1.0, 1.0])),
        ("deep.0.n", &[300][..], (0i64..300).flat_map(i64::to_le_bytes).collect()),
    ] {
        let tensor = checkpoint.tensor(name).unwrap();
        assert_eq!(
            (tensor.shape.dims(), tensor.read_tensor(Order::Row).unwrap()),
            (shape, expected),
            "{name}"
        );
    }
    let skipped: Vec<_> = checkpoint.notes.iter().filter_map(|note| note.skipped.as_ref()).collect();
    assert_eq!(skipped.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), ["skipped"]);
    let report = weighbridge::ops::verify::verify(folder("pickled.pkl"), &Default::default()).unwrap();
    assert_eq!(report.verdict, Verdict::CouldNotTell, "{:?}", report.findings);
    // Damaged bytes.
    for at in (0..bytes.len()).step_by(7) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x15;
        if let Ok(checkpoint) =
            weighbridge::formats::registry().open_source(memory(&changed), &OpenOptions::default())
        {
            checkpoint.tensors.iter().for_each(|tensor| drop(tensor.read_tensor(Order::Row)));
        }
    }
}
