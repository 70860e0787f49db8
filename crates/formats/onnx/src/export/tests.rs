//! Malformed and expensive programs, built in memory.

use super::builder::{Attrs, Value};
use super::table::supported;
use super::{export, fold};
use crate::constant::Constant;
use crate::model::Model;
use std::sync::Arc;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology};

fn slots(slots: &[(&str, &[&str])]) -> Vec<Slot> {
    let slot = |(name, names): &(&str, &[&str])| Slot {
        name: (*name).to_owned(),
        arguments: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    slots.iter().map(slot).collect()
}

fn op(kind: &str, inputs: &[(&str, &[&str])], outputs: &[(&str, &[&str])]) -> Operator {
    Operator { kind: kind.to_owned(), inputs: slots(inputs), outputs: slots(outputs), ..Operator::default() }
}

fn with(mut operator: Operator, name: &str, value: AttributeValue) -> Operator {
    operator.attributes.push(Attribute { name: name.to_owned(), kind: String::new(), value });
    operator
}

fn int(value: i64) -> AttributeValue {
    AttributeValue::Int(value)
}

fn ints(values: &[i64]) -> AttributeValue {
    AttributeValue::List(values.iter().map(|value| int(*value)).collect())
}

fn running(mut operator: Operator, blocks: &[usize]) -> Operator {
    operator.blocks = blocks.to_vec();
    operator
}

fn endpoint(name: &str, dtype: DType, shape: &[i64]) -> Endpoint {
    Endpoint { name: name.to_owned(), dtype: Some(dtype), shape: Some(shape.to_vec()) }
}

/// Exports a program of blocks with the output `y`.
fn exported(form: &'static str, blocks: Vec<Vec<Operator>>, feeds: &[Endpoint]) -> Result<Model> {
    let block = |(number, operators): (usize, Vec<Operator>)| Block {
        parent: number.checked_sub(1),
        operators,
        ..Block::default()
    };
    let topology = Topology {
        form,
        writer: None,
        bytes: Arc::new([]),
        blocks: blocks.into_iter().enumerate().map(block).collect(),
        feeds: feeds.to_vec(),
        fetches: vec![Endpoint { name: "y".to_owned(), dtype: None, shape: None }],
        operator_versions: Vec::new(),
    };
    export(&Checkpoint::new("paddle", "program", "test"), &topology, 17)
}

fn desc(operators: Vec<Operator>, feeds: &[Endpoint]) -> Result<Model> {
    exported("program-desc", vec![operators], feeds)
}

fn x(shape: &[i64]) -> Endpoint {
    endpoint("x", DType::F32, shape)
}

fn identity() -> Operator {
    op("assign", &[("X", &["x"])], &[("Out", &["y"])])
}

fn loop_of(block: usize) -> Operator {
    running(op("while", &[("X", &["x"]), ("Condition", &["c"])], &[("Out", &["y"])]), &[block])
}

/// Feeds of programs with loops.
fn fed() -> [Endpoint; 2] {
    [x(&[1]), endpoint("c", DType::Bool, &[1])]
}

#[test]
fn rejects_blocks_that_two_operators_run() {
    let blocks = 24;
    let mut program: Vec<Vec<Operator>> =
        (1..blocks).map(|next| vec![loop_of(next), loop_of(next)]).collect();
    program[0].insert(0, identity());
    program.push(vec![identity()]);
    let error = exported("program-desc", program, &fed()).unwrap_err();
    assert_eq!((error.kind(), error.code().as_str()), (Kind::Corrupt, "bad-program"));
}

#[test]
fn rejects_blocks_that_run_themselves() {
    for block in [0, 1] {
        let program = vec![vec![identity(), loop_of(1)], vec![loop_of(block)]];
        assert_eq!(exported("program-desc", program, &fed()).unwrap_err().kind(), Kind::Corrupt);
    }
}

#[test]
fn rejects_deep_nesting_without_recursion() {
    let mut program: Vec<Vec<Operator>> = (1..100_000).map(|next| vec![loop_of(next)]).collect();
    program[0].insert(0, identity());
    program.push(vec![identity()]);
    let error = exported("program-desc", program, &fed()).unwrap_err();
    assert_eq!((error.kind(), error.code().as_str()), (Kind::Limit, "nested-too-deep"));
}

#[test]
fn nested_loops_carry_the_variables_of_their_bodies() {
    let more = with(op("scale", &[("X", &["y"])], &[("Out", &["y"])]), "scale", AttributeValue::Float(2.0));
    let program = vec![vec![identity(), loop_of(1)], vec![loop_of(2)], vec![more]];
    let model = exported("program-desc", program, &fed()).unwrap();
    let last = model.graph.nodes.iter().find(|node| node.kind == "Loop").unwrap();
    assert_eq!((last.inputs.len(), last.outputs.len()), (3, 1));
}

#[test]
fn operators_on_lists_have_an_output_for_each_part() {
    let unbind = |names: &[&str]| op("unbind", &[("X", &["x"])], &[("Out", names)]);
    let few = desc(vec![unbind(&["y", "b"])], &[x(&[16384, 2])]).unwrap_err();
    assert_eq!((few.kind(), few.code().as_str()), (Kind::Corrupt, "bad-program"));
    assert!(desc(vec![unbind(&["y", "b"])], &[x(&[2, 3])]).is_ok());
    assert!(desc(vec![unbind(&["y", "b"])], &[x(&[-1, 3])]).is_ok());
    let split = |num| with(op("split", &[("X", &["x"])], &[("Out", &["y", "b"])]), "num", int(num));
    assert_eq!(desc(vec![split(10_000)], &[x(&[10_000, 2])]).unwrap_err().kind(), Kind::Corrupt);
    assert!(desc(vec![split(2)], &[x(&[10_000, 2])]).is_ok());
}

/// Operators that each make many nodes or large constants.
#[test]
fn small_programs_do_not_make_large_graphs() {
    let im2sequence = |k: i64| {
        let x = op("im2sequence", &[("X", &["x"])], &[("Out", &["z"])]);
        with(with(x, "kernels", ints(&[32, 64 - k % 32])), "strides", ints(&[1 + k / 32, 1]))
    };
    let images: Vec<Operator> = (0..40).map(im2sequence).collect();
    let window = |_| {
        let x = op("sequence_enumerate", &[("X", &["x"])], &[("Out", &["z"])]);
        with(x, "win_size", int(1024))
    };
    let windows: Vec<Operator> = (0..400).map(window).collect();
    let long = with(op("fill_constant", &[], &[("Out", &["k"])]), "value", AttributeValue::Float(1.0));
    let long = with(with(long, "shape", ints(&[4096])), "dtype", int(3));
    let names: Vec<&str> = vec!["k"; 100_000];
    let sums = vec![long, op("concat", &[("X", &names)], &[("Out", &["z"])])];
    for (mut program, shape, is_limited) in
        [(images, &[1, 1, 64, 64][..], true), (windows, &[8, 1], true), (sums, &[1], false)]
    {
        // All results are needed.
        let mut all = vec!["x".to_owned()];
        for (place, operator) in program.iter_mut().enumerate() {
            for name in
                operator.outputs.iter_mut().flat_map(|slot| &mut slot.arguments).filter(|name| *name == "z")
            {
                *name = format!("z{place}");
                all.push(name.clone());
            }
        }
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        program.push(op("sum", &[("X", &all)], &[("Out", &["y"])]));
        match desc(program, &[x(shape)]) {
            Err(error) => assert_eq!(error.kind(), Kind::Limit, "{error}"),
            Ok(_) => assert!(!is_limited),
        }
    }
}

#[test]
fn rejects_values_with_too_many_dimensions() {
    let error = desc(vec![identity()], &[x(&[1; 65])]).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
    let many = with(op("unsqueeze2", &[("X", &["x"])], &[("Out", &["y"])]), "axes", ints(&[0; 1000]));
    assert_eq!(desc(vec![many], &[x(&[1])]).unwrap_err().kind(), Kind::Limit);
}

#[test]
fn sequence_conv_needs_rows() {
    let conv = op("sequence_conv", &[("X", &["x"]), ("Filter", &["f"])], &[("Out", &["y"])]);
    let conv = with(with(conv, "contextLength", int(3)), "contextStart", int(-1));
    let filter = endpoint("f", DType::F32, &[6, 4]);
    for shape in [&[][..], &[5]] {
        let error = desc(vec![conv.clone()], &[x(shape), filter.clone()]).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
    }
    assert!(desc(vec![conv], &[x(&[5, 2]), filter]).is_ok());
}

#[test]
fn values_without_dimensions_have_one_scale() {
    let restored = op("dequantize_linear", &[("X", &["x"]), ("Scale", &["s"])], &[("Y", &["y"])]);
    let restored = with(restored, "quant_axis", int(0));
    assert!(desc(vec![restored], &[x(&[]), endpoint("s", DType::F32, &[1])]).is_ok());
}

#[test]
fn ranges_beyond_64_bits_are_not_computed() {
    let scalar = |value| Value::of(Constant::of_ints(&[value], DType::I64, &[]));
    let range = |start, limit, step| {
        let (start, limit, step) = (scalar(start), scalar(limit), scalar(step));
        fold::fold("Range", &[&start, &limit, &step], &Attrs::new())
    };
    assert_eq!(range(0, 6, 2), Some(Constant::ints(&[0, 2, 4])));
    assert_eq!(range(i64::MIN, i64::MAX, i64::MAX), None);
}

#[test]
fn operators_that_are_always_refused_are_not_listed() {
    let (desc, pir) = supported();
    for name in ["array_pop", "constant"] {
        assert!(!desc.contains(&name) && !pir.contains(&name));
        assert!(
            !super::is_supported(&format!("pd_op.{name}"))
                && !super::is_supported(&format!("builtin.{name}"))
        );
    }
}

/// Attributes that translations read, for generated operators.
const NAMES: &str = "axis dim axes Axis Repeats Include_self accumulate adaptive align_corners align_mode aligned alpha anchor_sizes \
    anchors aspect_ratios asvector axis1 axis2 begin_norm_axis bit_length blank box_normalized class_num code_type col combiner \
    contextLength contextStart cols data_format decrease_axes decrease_axis deformable_groups densities depth descending diagonal \
    dilations dim1 dim2 dtype downscale_factor ends equation exclusive expand_times factor fixed_ratios fixed_sizes flatten \
    flatten_to_2d flip forward frame_length groups group hidden_size head_number hop_length in_num_col_dims input_dim_idx \
    output_dim_idx is_bidirec is_reverse is_test k keep_dim keepdim keepdims keep_top_k kernel_sizes kernels ksize largest \
    last_dim_size length max_level max_range maxlen max_sizes merge_repeated min_level min_sizes minlength mode n new_dim nms_top_k \
    none_axes normalized nshards num num_columns num_layers num_rows offset offsets onesided out_dtype output_padding output_shape \
    output_size output_sizes overwrite p pad_value padded_length padding_algorithm padding_idx padding_mode padding_value \
    paddingTrainable paddings pixel_offset pooled_height pooled_width pooltype pooling_type post_nms_topN power_iters quant_axis \
    quant_bits reduce_all reduction refer_level refer_scale repeat_times return_softmax right round_type row rows sampling_ratio \
    scale score_threshold sections seg_num shape shard_id index_num shift_ratio shifts size slot_dim soft_label spatial_scale split_channels \
    start_axis start_index starts stop_axis step step_h step_w stride strides target_lod target_shape tokens trans_x trans_y \
    transpose_X transpose_Y upscale_factor use_peepholes use_softmax use_stack value values variances win_size x_num_col_dims \
    y_num_col_dims fused_squeeze2_axes fused_unsqueeze2_axes infer_flags out_h out_w perm axis_x";

/// Numbers without a pattern, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    fn int(&mut self) -> i64 {
        self.of(&[0, 0, 0, 1, 1, 1, -1, -1, 2, 3, -2, 4, 8, 1024, i64::from(i32::MAX), i64::MAX, i64::MIN])
    }

    fn attribute(&mut self) -> AttributeValue {
        match self.below(10) {
            0..=3 => int(self.int()),
            4 => AttributeValue::Bool(self.below(2) == 0),
            5 => AttributeValue::Float(self.of(&[0.0, 1.0, -1.0, 0.5, f32::NAN, f32::INFINITY, 1e30])),
            6 => AttributeValue::Text(
                self.of(&[
                    "NHWC",
                    "SAME",
                    "sum",
                    "avg",
                    "ij,jk->ik",
                    "LAST",
                    "max",
                    "VALID",
                    "NDHWC",
                    "reflect",
                ])
                .to_owned(),
            ),
            _ => {
                let count = self.below(6);
                ints(&(0..count).map(|_| self.int()).collect::<Vec<_>>())
            }
        }
    }
}

/// Returns an operator with inputs of these slots, and its program: inputs, and operators that make small constants.
fn generated(
    kind: &str,
    slots: [&str; 2],
    rank: usize,
    numbers: &mut Numbers,
) -> (Vec<Operator>, Vec<Endpoint>) {
    let (mut feeds, mut program, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
    for (place, slot) in slots[0].split_ascii_whitespace().enumerate() {
        let name = format!("x{place}");
        let rank = if numbers.below(3) == 0 { numbers.below(6) } else { rank };
        let dtype = numbers.of(&[DType::F32, DType::F32, DType::I64, DType::I32, DType::Bool]);
        match numbers.below(4) {
            0 => {
                let values: Vec<i64> = (0..numbers.below(5)).map(|_| numbers.int()).collect();
                let count = i64::try_from(values.len()).unwrap();
                let value = op("assign_value", &[], &[("Out", &[&name])]);
                let shape = if count == 1 && rank == 0 { ints(&[]) } else { ints(&[count]) };
                let value = with(with(value, "values", ints(&values)), "shape", shape);
                program.push(with(value, "dtype", int(numbers.of(&[2, 3]))));
            }
            _ => {
                let shape: Vec<i64> = (0..rank).map(|_| numbers.of(&[1, 2, 3, -1, 4, 0])).collect();
                feeds.push(endpoint(&name, dtype, &shape));
            }
        }
        if numbers.below(8) > 0 {
            let count = if numbers.below(4) == 0 { 2 } else { 1 };
            inputs.push(Slot { name: slot.to_owned(), arguments: vec![name; count] });
        }
    }
    let mut outputs: Vec<&str> = slots[1].split_ascii_whitespace().collect();
    if !outputs.is_empty() {
        let first = numbers.below(outputs.len());
        outputs.swap(0, first);
    }
    let output = |(place, slot): (usize, &str)| Slot {
        name: slot.to_owned(),
        arguments: vec![if place == 0 { "y".to_owned() } else { format!("y{place}") }],
    };
    let outputs = outputs.into_iter().enumerate().map(output).collect();
    let mut operator = Operator { kind: kind.to_owned(), inputs, outputs, ..Operator::default() };
    let rarity = numbers.of(&[2, 4, 16]);
    for name in NAMES.split_ascii_whitespace() {
        if numbers.below(rarity) == 0 {
            operator = with(operator, name, numbers.attribute());
        }
    }
    program.push(operator);
    (program, feeds)
}

#[test]
fn no_operator_panics_on_few_dimensions_and_odd_attributes() {
    let (mut numbers, mut found) = (Numbers(1), Vec::new());
    for row in super::table::rows() {
        for kind in row.desc.split_ascii_whitespace() {
            for round in 0..ROUNDS {
                let (program, feeds) = generated(kind, [row.inputs, row.outputs], round % 5, &mut numbers);
                let done = std::panic::catch_unwind(|| drop(desc(program.clone(), &feeds)));
                if done.is_err() {
                    found.push(format!("{program:?} {feeds:?}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Programs for each operator.
const ROUNDS: usize = 10;
