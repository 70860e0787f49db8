#![allow(clippy::disallowed_methods)]

use crate::opening::open_source;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{MemorySource, SourceRef};
use weighbridge_io::testing::materialise;
use weighbridge_pickle::ObjectId;
use weighbridge_torch_archive::SavedBuilder;

/// Shape of a parameter's state; `None` for a parameter without state.
type Dims<'a> = Option<&'a [u64]>;

struct File(SavedBuilder);

impl File {
    fn new() -> Self {
        Self(SavedBuilder::new())
    }

    fn tensor(&mut self, dims: &[u64]) -> ObjectId {
        let shape = Shape::new(dims);
        let bytes = vec![0; usize::try_from(shape.bytes(DType::F32).unwrap()).unwrap()];
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let path = TensorPath::from_dotted("x");
        let entry = TensorEntry::dense(path, DType::F32, shape, &source, 0, Encoding::ROW).unwrap();
        self.0.tensor(&entry).unwrap()
    }

    fn dict(&mut self, pairs: &[(&str, ObjectId)]) -> ObjectId {
        let b = self.0.builder_mut();
        let pairs = pairs.iter().map(|&(key, value)| (b.text(key).unwrap(), value)).collect();
        b.dict(pairs).unwrap()
    }

    fn model(&mut self, tensors: &[(&str, &[u64])]) -> ObjectId {
        let pairs: Vec<_> = tensors.iter().map(|&(name, dims)| (name, self.tensor(dims))).collect();
        self.dict(&pairs)
    }

    /// State in the form of Adam, with number keys or `names` as keys; torch 2.6 writes names next to the numbers.
    fn adam(&mut self, groups: &[&[Dims<'_>]], names: Option<&[&str]>, as_keys: bool) -> ObjectId {
        let (mut state, mut list, mut next) = (Vec::new(), Vec::new(), 0);
        for group in groups {
            let (mut params, mut listed) = (Vec::new(), Vec::new());
            for dims in *group {
                let slots = dims.map(|dims| {
                    let slots = [("step", &[][..]), ("exp_avg", dims), ("exp_avg_sq", dims)];
                    slots.map(|(slot, dims)| (slot, self.tensor(dims)))
                });
                let slots = slots.map(|slots| self.dict(&slots));
                let b = self.0.builder_mut();
                let name = names.map(|names| b.text(names[next]).unwrap());
                let number = b.int(i64::try_from(next).unwrap()).unwrap();
                let key = if as_keys { name.unwrap() } else { number };
                state.extend(slots.map(|slots| (key, slots)));
                params.push(key);
                listed.extend(name);
                next += 1;
            }
            let b = self.0.builder_mut();
            let mut pairs = vec![("params", b.list(params).unwrap())];
            if !as_keys && names.is_some() {
                pairs.push(("param_names", b.list(listed).unwrap()));
            }
            list.push(self.dict(&pairs));
        }
        let b = self.0.builder_mut();
        let members = [("state", b.dict(state).unwrap()), ("param_groups", b.list(list).unwrap())];
        self.dict(&members)
    }

    fn open(mut self, root: &[(&str, ObjectId)]) -> Checkpoint {
        let root = self.dict(root);
        let file = self.0.finish(root, "").unwrap();
        let plan = WritePlan { format: "torch", kind: "object", files: vec![file], losses: Vec::new() };
        let source: SourceRef = Arc::new(MemorySource::new("m", materialise(&plan).remove(0)));
        open_source(source, &OpenOptions::default()).unwrap()
    }
}

/// Parameter of each `exp_avg`, with `?` for a guess, and `-` for an unassigned one.
fn assigned(checkpoint: &Checkpoint) -> Vec<String> {
    let state = checkpoint.tensors.iter().filter(|t| t.text().ends_with("exp_avg"));
    let of = |entry: &TensorEntry| {
        assert!(entry.role.is_state() && entry.role.as_str() == "optimizer");
        match entry.role.state_of() {
            Some(of) if of.guessed => format!("{}?", of.name),
            Some(of) => of.name.clone(),
            None => "-".to_owned(),
        }
    };
    state.map(of).collect()
}

/// A checkpoint of a model, and of Adam over parameters of these shapes.
fn one(model: &[(&str, &[u64])], groups: &[&[Dims<'_>]], names: Option<&[&str]>) -> Vec<String> {
    let mut file = File::new();
    let (model, adam) = (file.model(model), file.adam(groups, names, false));
    assigned(&file.open(&[("model", model), ("optimizer", adam)]))
}

const NET: [(&str, &[u64]); 7] = [
    ("fc.weight", &[4, 3]),
    ("fc.bias", &[4]),
    ("bn.weight", &[4]),
    ("bn.bias", &[4]),
    ("bn.running_mean", &[4]),
    ("bn.running_var", &[4]),
    ("out.weight", &[4, 3]),
];

#[test]
fn numbered_parameters_follow_the_order_of_the_model() {
    let (w, v): (Dims<'_>, Dims<'_>) = (Some(&[4, 3]), Some(&[4]));
    let all =
        ["model.fc.weight?", "model.fc.bias?", "model.bn.weight?", "model.bn.bias?", "model.out.weight?"];
    assert_eq!(one(&NET, &[&[w, v, v, v, w]], None), all);
    // A parameter that never had a gradient has no state.
    assert_eq!(one(&NET, &[&[w, v, None, v, w]], None), [all[0], all[1], all[3], all[4]]);
    // One parameter is missing, and two shapes match it.
    assert_eq!(one(&NET, &[&[w, v, v, w]], None), ["-"; 4]);
    assert_eq!(one(&NET, &[&[w, v, v, v, v, w]], None), ["-"; 6]);
    assert_eq!(one(&NET, &[&[w, v, v, v, Some(&[3, 4])]], None), ["-"; 5]);
    // Untrained tensors, with unambiguous shapes.
    let frozen = [("pe", &[9, 3][..]), NET[0], NET[1], ("mask", &[2, 2]), ("head.weight", &[7, 4])];
    assert_eq!(
        one(&frozen, &[&[w, v, Some(&[7, 4])]], None),
        ["model.fc.weight?", "model.fc.bias?", "model.head.weight?"]
    );
    assert_eq!(one(&frozen, &[&[Some(&[7, 4])]], None), ["model.head.weight?"]);
    // State that is not elementwise does not determine the shape.
    let mut file = File::new();
    let model = file.model(&[("w", &[4, 3])]);
    let slots = [("row", file.tensor(&[4])), ("col", file.tensor(&[3])), ("exp_avg", file.tensor(&[4, 3]))];
    let slots = file.dict(&slots);
    let b = file.0.builder_mut();
    let key = b.int(0).unwrap();
    let (state, params) = (b.dict(vec![(key, slots)]).unwrap(), b.list(vec![key]).unwrap());
    let group = file.dict(&[("params", params)]);
    let groups = file.0.builder_mut().list(vec![group]).unwrap();
    let adafactor = file.dict(&[("state", state), ("param_groups", groups)]);
    assert_eq!(assigned(&file.open(&[("model", model), ("optimizer", adafactor)])), ["-"]);
}

#[test]
fn groups_are_assigned_by_shape_only() {
    let (w, v): (Dims<'_>, Dims<'_>) = (Some(&[4, 3]), Some(&[4]));
    let decayed: &[&[Dims<'_>]] = &[&[w, w], &[v, v, v]];
    assert_eq!(
        one(&NET, decayed, None),
        ["model.fc.weight?", "model.out.weight?", "model.fc.bias?", "model.bn.weight?", "model.bn.bias?"]
    );
    // Ambiguous: the head may be first, or the body.
    assert_eq!(one(&NET, &[&[w], &[w, v, v, v]], None), ["-"; 5]);
    let names = ["out.weight", "fc.weight", "fc.bias", "bn.weight", "bn.bias"];
    let named = one(&NET, &[&[w], &[w, v, v, v]], Some(&names));
    assert_eq!(named[..2], ["model.out.weight", "model.fc.weight"]);
    // A named tensor of another shape belongs to another model.
    let names = ["fc.bias", "fc.weight", "out.weight", "bn.weight", "bn.bias"];
    assert_eq!(one(&NET, &[&[w], &[w, v, v, v]], Some(&names)), ["-"; 5]);
}

#[test]
fn several_optimizers_are_assigned_to_several_models() {
    let (w, v): (Dims<'_>, Dims<'_>) = (Some(&[4, 3]), Some(&[4]));
    let mut file = File::new();
    let (a, b) = (file.model(&[("w", &[4, 3]), ("b", &[4])]), file.model(&[("w", &[5, 5])]));
    let (of_a, of_b) = (file.adam(&[&[w, v]], None, false), file.adam(&[&[Some(&[5, 5])]], None, false));
    let list = file.0.builder_mut().list(vec![of_b, of_a]).unwrap();
    let checkpoint = file.open(&[("gen", a), ("disc", b), ("optimizer_states", list)]);
    assert_eq!(assigned(&checkpoint), ["disc.w?", "gen.w?", "gen.b?"]);
    assert!(checkpoint.tensor("optimizer_states.1.state.0.exp_avg").is_ok());
    // A running average has the names and shapes of the model, so the assignment is ambiguous.
    for names in [None, Some(&["w", "b"][..])] {
        let mut file = File::new();
        let models = [(); 2].map(|()| file.model(&[("w", &[4, 3]), ("b", &[4])]));
        let adam = file.adam(&[&[w, v]], names, false);
        let checkpoint = file.open(&[("model", models[0]), ("ema", models[1]), ("optimizer", adam)]);
        assert_eq!(assigned(&checkpoint), ["-"; 2]);
    }
    // Names as keys, as with FSDP.
    let mut file = File::new();
    let model = file.model(&NET);
    let names = ["bn.bias", "fc.weight"];
    let adam = file.adam(&[&[v], &[w]], Some(&names), true);
    let checkpoint = file.open(&[("model", model), ("optim", adam)]);
    assert_eq!(assigned(&checkpoint), ["model.bn.bias", "model.fc.weight"]);
    assert!(checkpoint.tensor("optim.state.fc.weight.exp_avg").is_ok());
}

#[test]
fn rejects_dicts_that_only_look_like_an_optimizer() {
    let mut file = File::new();
    let (state, other) = (file.model(&[("w", &[4, 3])]), file.tensor(&[2]));
    let groups = file.0.value(&Value::List(vec![Value::U64(3)])).unwrap();
    let checkpoint = file.open(&[("state", state), ("param_groups", groups), ("other", other)]);
    assert!(checkpoint.tensors.iter().all(|t| t.role == Role::Other), "{:?}", checkpoint.tensors);
}
