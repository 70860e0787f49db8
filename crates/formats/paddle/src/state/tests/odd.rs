//! States that users write and Paddle itself does not.

use super::*;
use weighbridge_core::tensor::{DType, Endian, Shape};
use weighbridge_pickle::{Content, NumpyModules, ObjectId};

fn array(
    b: &mut Builder,
    dtype: DType,
    endian: Endian,
    dims: &[u64],
    bytes: &[u8],
) -> weighbridge_core::Result<ObjectId> {
    let content = Content::Bytes(bytes.to_vec());
    b.ndarray((dtype, endian), &Shape::new(dims), false, content, NumpyModules::Core)
}

pub(super) fn floats(b: &mut Builder, n: u8) -> weighbridge_core::Result<ObjectId> {
    array(b, DType::F32, Endian::Little, &[1], &[0, 0, n, 0x40])
}

#[test]
fn parameters_named_like_state_stay_parameters() {
    let state = |names: [&str; 2]| {
        let bytes = pickled(
            |b| {
                let (mut pairs, mut table) = (vec![], vec![]);
                for (n, key) in ["fc_moment1_0", "fc_velocity_0"].into_iter().enumerate() {
                    let (key, value) = (b.text(key)?, floats(b, u8::try_from(n).unwrap())?);
                    pairs.push((key, value));
                    table.push((key, b.text(names[n])?));
                }
                let (key, table) = (b.text(TABLE)?, b.dict(table)?);
                pairs.push((key, table));
                b.dict(pairs)
            },
            4,
        );
        (open(&bytes).unwrap(), bytes)
    };
    let (parameters, bytes) = state(["linear_0.w_0", "linear_1.w_0"]);
    assert!(parameters.tensors.iter().all(|t| t.role.slot().is_none()));
    assert_eq!(rewrite(&parameters, &[]), bytes);
    let (optimizer, _) = state(["fc_moment1_0", "fc_velocity_0"]);
    assert!(optimizer.tensors.iter().all(|t| t.role.slot().is_some()));
}

#[test]
fn round_trips_every_kind_of_value() {
    for protocol in [2, 3, 4] {
        let bytes = pickled(
            |b| {
                let (minus, big, half) = (b.int(-7)?, b.int(i64::MAX)?, b.float(0.5)?);
                let bytes = [7; 300];
                let huge = [b.big_int(&[0, 0, 0, 0, 0, 0, 0, 0, 1])?, b.big_int(&bytes)?];
                let (text, raw, none) = (b.text("größe 重み")?, b.bytes(vec![0, 200, 255])?, b.none());
                let list = b.list(vec![minus, big, half, none, ObjectId::TRUE, huge[0], huge[1]])?;
                let tuple = b.tuple(&[text, raw, ObjectId::EMPTY_TUPLE])?;
                let key = b.int(3)?;
                let numbered = b.dict(vec![(key, tuple)])?;
                let marked_key = b.text("@odd one")?;
                let marker = b.dict(vec![(marked_key, list)])?;
                let weight_key = b.text("a.weight")?;
                let weight = floats(b, 7)?;
                let ordered = b.ordered_dict(&[(weight_key, weight)])?;
                let scalar = b.scalar(DType::F32, vec![0, 0, 0x80, 0x3f], NumpyModules::Core)?;
                let class = b.global("collections", "OrderedDict")?;
                let mut pairs = vec![];
                for (key, value) in [
                    ("numbered", numbered),
                    ("marker", marker),
                    ("layer", ordered),
                    ("scalar", scalar),
                    ("class", class),
                    ("paddle.protocol", minus),
                ] {
                    pairs.push((b.interned(key)?, value));
                }
                b.dict(pairs)
            },
            protocol,
        );
        let checkpoint = open(&bytes).unwrap();
        assert_eq!(checkpoint.notes, []);
        assert_eq!(checkpoint.tensors[0].text(), "layer.a.weight");
        assert_eq!(checkpoint.metadata.get(PROTOCOL), Some(&Value::U32(protocol.into())));
        let plan = plan(&checkpoint, &PlanOptions::default()).unwrap();
        assert_eq!(plan.losses, []);
        let again = materialise(&plan).remove(0);
        // Written by this library's own pickle writer, which other tests compare with CPython.
        let back = open(&again).unwrap();
        assert_eq!(back.metadata, checkpoint.metadata, "protocol {protocol}");
        assert_eq!(again.len(), bytes.len());
    }
}

#[test]
fn round_trips_integers_beyond_64_bits() {
    let path = good().join("../made/bigint.pdparams");
    #[allow(clippy::disallowed_methods)]
    let bytes = std::fs::read(path).unwrap();
    let checkpoint = open(&bytes).unwrap();
    assert_eq!(plan(&checkpoint, &PlanOptions::default()).unwrap().losses, []);
    assert_eq!(rewrite(&checkpoint, &[]), bytes);
}

#[test]
fn distinguishes_colliding_names() {
    let bytes = pickled(
        |b| {
            let (inner_key, inner) = (b.text("b.c")?, floats(b, 1)?);
            let (a, inner) = (b.interned("a")?, b.dict(vec![(inner_key, inner)])?);
            let (outer_key, outer) = (b.text("a.b.c")?, floats(b, 2)?);
            b.dict(vec![(a, inner), (outer_key, outer)])
        },
        4,
    );
    let checkpoint = open(&bytes).unwrap();
    checkpoint.check_unique().unwrap();
    assert_eq!(checkpoint.notes[0].code.as_str(), "name-collision");
    assert_eq!(rewrite(&checkpoint, &[]), bytes);
}

#[test]
fn preserves_shared_arrays() {
    let bytes = pickled(
        |b| {
            let (one, two, array) = (b.text("a.weight")?, b.text("b.weight")?, floats(b, 1)?);
            b.dict(vec![(one, array), (two, array)])
        },
        4,
    );
    let checkpoint = open(&bytes).unwrap();
    assert_eq!(checkpoint.tensors[1].text_attribute("alias_of"), Some("a.weight"));
    assert_eq!(rewrite(&checkpoint, &[]), bytes);
}

#[test]
fn keeps_the_last_of_duplicate_keys() {
    let bytes = pickled(
        |b| {
            let (one, two, first, last) = (b.text("a.b")?, b.text("a.b")?, floats(b, 1)?, floats(b, 2)?);
            b.dict(vec![(one, first), (two, last)])
        },
        4,
    );
    let checkpoint = open(&bytes).unwrap();
    assert_eq!(checkpoint.tensors.len(), 1);
    assert_eq!(checkpoint.tensors[0].read_tensor(Order::Row).unwrap(), [0, 0, 2, 0x40]);
    assert_eq!(checkpoint.notes[0].code.as_str(), "duplicate-key");
}

#[test]
fn reads_big_endian_arrays_and_empty_names() {
    let bytes = pickled(
        |b| {
            let value = array(b, DType::U32, Endian::Big, &[2], &[0, 0, 0, 1, 0, 0, 0, 2])?;
            let (tuple, name) = (b.global("builtins", "tuple")?, b.interned("")?);
            let pair = b.tuple(&[name, value])?;
            let args = b.tuple(&[pair])?;
            b.reduce(tuple, args)
        },
        4,
    );
    let checkpoint = open(&bytes).unwrap();
    assert_eq!(checkpoint.tensors[0].text(), "value");
    assert_eq!(checkpoint.tensors[0].read_tensor(Order::Row).unwrap(), [1, 0, 0, 0, 2, 0, 0, 0]);
    let plan = plan(&checkpoint, &PlanOptions::default()).unwrap();
    assert_eq!(plan.losses[0].code.as_str(), "dtype-refused");
    let again = open(&materialise(&plan)[0]).unwrap();
    assert_eq!(again.tensors[0].text_attribute(Attributes::VARIABLE_NAME), Some(""));
}

#[test]
fn notes_trailing_bytes() {
    let mut bytes = golden("p262/nested_ckpt/plain_dict.pdparams");
    bytes.extend(b"more");
    let checkpoint = open(&bytes).unwrap();
    assert_eq!(checkpoint.notes[0].code.as_str(), "trailing-bytes");
}

#[test]
fn rejects_invalid_split_parameters() {
    let good = golden("p262/split_big_param/big.pdparams");
    // The list of the parts of `big`: three that are fetched from the memo.
    let at = good.windows(6).rposition(|w| w == [b'h', 30, b'h', 39, b'h', 48]).unwrap();
    let mut bad = good.clone();
    bad[at + 5] = 57; // a part of the other one, of another type
    let error = open(&bad).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("split-parameter", Some("big")));
    // The shape of the last one: (4, 6).
    let at = good.windows(4).rposition(|w| w == [b'K', 4, b'K', 6]).unwrap();
    let mut bad = good;
    bad[at + 1] = 5;
    assert_eq!(open(&bad).unwrap_err().code().as_str(), "split-parameter");
}

/// Arrays without names, as in user code that saves a modified state dict and optimizer state.
#[test]
fn detects_state_of_renamed_parameters() {
    let keys = ["0.weight", "linear_0.w_0_velocity_0", "linear_0.w_0_velocity_0_scale", "my_velocity_0"];
    let bytes = pickled(
        |b| {
            let mut pairs = Vec::new();
            for (n, key) in keys.into_iter().enumerate() {
                pairs.push((b.text(key)?, floats(b, u8::try_from(n).unwrap())?));
            }
            b.dict(pairs)
        },
        4,
    );
    let checkpoint = open(&bytes).unwrap();
    let found: Vec<_> = checkpoint.tensors.iter().map(|t| (t.text(), t.role.as_str())).collect();
    let wanted = ["parameter", "optimizer", "parameter", "parameter"];
    assert_eq!(found, keys.map(str::to_owned).into_iter().zip(wanted).collect::<Vec<_>>());
    let again = plan(&checkpoint, &PlanOptions::default()).unwrap();
    assert_eq!((materialise(&again).remove(0), again.losses), (bytes, vec![]));
}

/// Elements stored as text in a pickle of protocol 2 may begin like a pickle or a stream, but they are not files.
#[test]
fn elements_that_resemble_a_file_are_not_nested_files() {
    for first in [[0x80, 0x3f, 0x80, 0x3f], [0x80, 2, b'.', 0], [0, 0, 0, 0], *b"{\"ba"] {
        let bytes = pickled(
            |b| {
                let (key, value) = (b.text("w")?, floats(b, 1)?);
                b.dict(vec![(key, value)])
            },
            4,
        );
        let mut checkpoint = open(&bytes).unwrap();
        let shape = checkpoint.tensors[0].shape.clone();
        let (path, dtype) = (checkpoint.tensors[0].path.clone(), checkpoint.tensors[0].dtype());
        let len = usize::try_from(checkpoint.tensors[0].bytes()).unwrap();
        let elements: Vec<u8> = first.into_iter().cycle().take(len).collect();
        checkpoint.tensors[0] = TensorEntry::dense(
            path,
            dtype,
            shape,
            &memory(&elements),
            0,
            weighbridge_core::tensor::Encoding::ROW,
        )
        .unwrap();
        let again = open(&rewrite(&checkpoint, &[("protocol", "2")])).unwrap();
        let options = weighbridge::ops::verify::VerifyOptions::default();
        let report = weighbridge::ops::verify::verify_checkpoint(&again, &options).unwrap();
        assert_eq!(report.findings, [], "{first:?}");
    }
}
