//! Arrow: false sizes of buffers and footers, names that share bytes, fields that share a table.

use crate::harness::{Opens, Range, Refused};
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, FixedSizeListArray, Float32Array, Int8Array, RecordBatch,
};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{CompressionType, FieldBuilder, FooterBuilder, MetadataVersion, SchemaBuilder, Utf8Builder};
use arrow_schema::{DataType, Field};
use flatbuffers::{FlatBufferBuilder, WIPOffset};
use std::sync::Arc;

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(
        [env!("CARGO_MANIFEST_DIR"), "..", "testdata", "tables", name].iter().collect::<std::path::PathBuf>(),
    )
    .unwrap()
}

fn put(bytes: &[u8], at: usize, word: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + word.len()].copy_from_slice(word);
    bytes
}

#[test]
fn arrow_claims() {
    let Some(mut range) = Range::alone("arrow") else { return };
    let zstd = golden("fixed.zstd.arrow");
    // A zstd frame is preceded by its uncompressed length.
    let frames: Vec<usize> =
        (8..zstd.len() - 4).filter(|&at| zstd[at..].starts_with(b"\x28\xb5\x2f\xfd")).collect();
    assert!(!frames.is_empty());
    for claim in [1i64 << 60, i64::MAX, 1 << 40] {
        let mut bytes = zstd.clone();
        frames.iter().for_each(|&at| bytes = put(&bytes, at - 8, &claim.to_le_bytes()));
        range.file(&format!("buffers of {claim} bytes"), bytes, Refused("inflated"));
    }
    let plain = golden("plain.uncompressed.arrow");
    let footer = plain.len() - 10;
    for (claim, code) in [(i32::MAX, "limit"), (-1, "limit"), (67_108_864, "truncated")] {
        range.file(&format!("a footer of {claim}"), put(&plain, footer, &claim.to_le_bytes()), Refused(code));
    }
}

/// Tests rows with a stated size larger than memory, which salvage could read whole.
#[test]
fn arrow_rows_without_end() {
    let Some(mut range) = Range::alone("arrow") else { return };
    range.any("rows of 4 GiB", golden("bad/row-of-4-gib.zstd.arrow"));
    range.any("rows of 200 MiB", golden("bad/row-of-200-mib.zstd.arrow"));
}

/// Tests small files with each number replaced by the largest value: in headers, footers, flatbuffers, buffers.
#[test]
fn arrow_every_number() {
    let Some(mut range) = Range::alone("arrow") else { return };
    for name in ["holes.arrow", "plain.zstd.arrow", "lists.lz4.arrow"] {
        let good = golden(name);
        for at in (8..good.len() - 8).step_by(4) {
            for word in [&i32::MAX.to_le_bytes()[..], &(1u64 << 60).to_le_bytes()] {
                range.any(&format!("{name} at {at}"), put(&good, at, word));
            }
        }
    }
}

/// Makes a file of a batch, repeated `times` times.
fn file(columns: Vec<(&str, ArrayRef)>, times: usize, compression: Option<CompressionType>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut file = Vec::new();
    let mut writer = FileWriter::try_new_with_options(&mut file, &batch.schema(), options).unwrap();
    (0..times).for_each(|_| writer.write(&batch).unwrap());
    writer.finish().unwrap();
    drop(writer);
    file
}

/// Makes rows of zeros.
fn zeros(rows: usize, width: i32) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Int8, false));
    let zeros = Int8Array::from(vec![0; rows * usize::try_from(width).unwrap()]);
    Arc::new(FixedSizeListArray::new(item, width, Arc::new(zeros), None))
}

/// Changes the stated length of every zstd buffer with this uncompressed length.
fn claim(mut file: Vec<u8>, from: i64, to: i64) -> Vec<u8> {
    let frames = (8..file.len() - 4).filter(|&at| file[at..].starts_with(b"\x28\xb5\x2f\xfd"));
    let places: Vec<usize> =
        frames.map(|at| at - 8).filter(|&at| file[at..].starts_with(&from.to_le_bytes())).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|&at| file[at..at + 8].copy_from_slice(&to.to_le_bytes()));
    file
}

#[test]
fn arrow_batches_that_multiply() {
    let Some(mut range) = Range::alone("arrow") else { return };
    let zstd = Some(CompressionType::ZSTD);
    // Each is within the limit of a batch; together they exceed the limit of a small file.
    let small = file(vec![("vector", zeros(1000, 1))], 50, zstd);
    range.file("50 batches of 24 MB", claim(small, 1000, 24_000_000), Refused("inflated"));
    // Another column does not raise the budget for the elements.
    let mut state = 1u64;
    let random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[3]
    };
    let noise: Vec<u8> = std::iter::repeat_with(random).take(2 << 20).collect();
    let other: ArrayRef = Arc::new(BinaryArray::from_iter_values(noise.chunks(2 << 11)));
    let rows = other.len();
    // Padded rows.
    let padded = file(vec![("vector", zeros(rows, 60_000)), ("other", other.clone())], 1, zstd);
    range.file("30 MB of zeros beside 2 MB", padded, Opens(1));
    let beside = file(vec![("vector", zeros(rows, 2)), ("other", other)], 1, zstd);
    range.file(
        "60 MB beside 2 MB",
        claim(beside, 2 * i64::try_from(rows).unwrap(), 60_000_000),
        Refused("limit"),
    );
    range.file("20 MB of zeros", file(vec![("vector", zeros(20, 1_000_000))], 1, zstd), Opens(1));
    let plain = (0..20).map(|_| Arc::new(Float32Array::from(vec![0.0; 300_000])) as ArrayRef);
    let names =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];
    range.file("24 MB in columns", file(names.into_iter().zip(plain).collect(), 1, zstd), Opens(1));
}

/// Changes the column type in the footer to text, which requires a check of every view.
fn as_text(mut file: Vec<u8>) -> Vec<u8> {
    let tail = file.len() - 10;
    let len = u32::from_le_bytes(file[tail..tail + 4].try_into().unwrap());
    let start = tail - usize::try_from(len).unwrap();
    let column = |footer: &[u8]| {
        let footer = arrow_ipc::root_as_footer(footer).ok()?;
        Some(footer.schema()?.fields()?.get(0).type_type())
    };
    for at in start..tail {
        if file[at] == arrow_ipc::Type::BinaryView.0 {
            file[at] = arrow_ipc::Type::Utf8View.0;
            if column(&file[start..tail]) == Some(arrow_ipc::Type::Utf8View) {
                return file;
            }
            file[at] = arrow_ipc::Type::BinaryView.0;
        }
    }
    panic!("no column of bytes");
}

#[test]
fn arrow_names_that_are_the_same_bytes() {
    let Some(mut range) = Range::alone("arrow") else { return };
    for (len, rows) in [(1_000_000u32, 1000), (2_000_000, 60_000), (240, 100_000)] {
        let view = u128::from(len) | u128::from(u32::from_le_bytes(*b"nnnn")) << 32;
        let views = ScalarBuffer::from(vec![view; rows]);
        let text = Buffer::from_vec(vec![b'n'; len as usize]);
        let names: ArrayRef = Arc::new(BinaryViewArray::new(views, vec![text], None));
        let names = as_text(file(vec![("name", names)], 1, None));
        range.file(&format!("{rows} views of {len} bytes"), names, Opens(1));
    }
    let empty: ArrayRef = Arc::new(arrow_array::StringArray::from(vec![""; 3_000_000]));
    let zstd = Some(CompressionType::ZSTD);
    range.file("3,000,000 names of nothing", file(vec![("name", empty)], 1, zstd), Opens(1));
}

/// Makes a schema of `fields` fields that share one table, with a name of this length.
pub(super) fn shared<'a>(
    flat: &mut FlatBufferBuilder<'a>,
    name: usize,
    fields: usize,
) -> WIPOffset<arrow_ipc::Schema<'a>> {
    let name = flat.create_string(&"n".repeat(name));
    let children = flat.create_vector::<WIPOffset<arrow_ipc::Field<'_>>>(&[]);
    let text = Utf8Builder::new(flat).finish();
    let mut field = FieldBuilder::new(flat);
    field.add_name(name);
    field.add_type_type(arrow_ipc::Type::Utf8);
    field.add_type_(text.as_union_value());
    field.add_children(children);
    let field = field.finish();
    let all = flat.create_vector(&vec![field; fields]);
    let mut schema = SchemaBuilder::new(flat);
    schema.add_fields(all);
    schema.finish()
}

/// Makes a footer with this schema.
fn fields(name: usize, fields: usize) -> Vec<u8> {
    let mut flat = FlatBufferBuilder::new();
    let schema = shared(&mut flat, name, fields);
    let mut footer = FooterBuilder::new(&mut flat);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    let footer = footer.finish();
    flat.finish(footer, None);
    let mut file = b"ARROW1\0\0".to_vec();
    file.extend_from_slice(flat.finished_data());
    file.extend_from_slice(&u32::try_from(flat.finished_data().len()).unwrap().to_le_bytes());
    file.extend_from_slice(b"ARROW1");
    file
}

#[test]
fn arrow_fields_that_are_one_table() {
    let Some(mut range) = Range::alone("arrow") else { return };
    range.file("one field", fields(10, 1), Opens(1));
    range.file("1,000 names of 1 MB", fields(1_000_000, 1000), Refused("shared-structure"));
    range.file("900,000 fields", fields(1, 900_000), Refused("shared-structure"));
}

/// Makes a batch whose columns share the same bytes, at an unaligned offset.
fn same_bytes(columns: usize, len: i64, place: i64) -> Vec<u8> {
    let message = |flat: &mut FlatBufferBuilder<'_>, body: i64| {
        let buffers: Vec<_> = (0..columns)
            .flat_map(|_| [arrow_ipc::Buffer::new(0, 0), arrow_ipc::Buffer::new(place, len)])
            .collect();
        let buffers = flat.create_vector(&buffers);
        let nodes = flat.create_vector(&vec![arrow_ipc::FieldNode::new(1, 0); columns]);
        let mut batch = arrow_ipc::RecordBatchBuilder::new(flat);
        batch.add_length(1);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        let batch = batch.finish();
        let mut message = arrow_ipc::MessageBuilder::new(flat);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(arrow_ipc::MessageHeader::RecordBatch);
        message.add_header(batch.as_union_value());
        message.add_bodyLength(body);
        let message = message.finish();
        flat.finish(message, None);
    };
    let body = len + 8;
    let mut flat = FlatBufferBuilder::new();
    message(&mut flat, body);
    let mut head = flat.finished_data().to_vec();
    head.resize(head.len().next_multiple_of(8), 0);
    let head = [&[0xff; 4][..], &i32::try_from(head.len()).unwrap().to_le_bytes(), &head].concat();

    let mut flat = FlatBufferBuilder::new();
    let fields: Vec<_> = (0..columns)
        .map(|_| {
            let name = flat.create_string("");
            let children = flat.create_vector::<WIPOffset<arrow_ipc::Field<'_>>>(&[]);
            let mut number = arrow_ipc::IntBuilder::new(&mut flat);
            number.add_bitWidth(32);
            number.add_is_signed(true);
            let number = number.finish();
            let mut field = FieldBuilder::new(&mut flat);
            field.add_name(name);
            field.add_type_type(arrow_ipc::Type::Int);
            field.add_type_(number.as_union_value());
            field.add_children(children);
            field.finish()
        })
        .collect();
    let fields = flat.create_vector(&fields);
    let mut schema = SchemaBuilder::new(&mut flat);
    schema.add_fields(fields);
    let schema = schema.finish();
    let block = arrow_ipc::Block::new(8, i32::try_from(head.len()).unwrap(), body);
    let blocks = flat.create_vector(&[block]);
    let mut footer = FooterBuilder::new(&mut flat);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_recordBatches(blocks);
    let footer = footer.finish();
    flat.finish(footer, None);
    let tail = u32::try_from(flat.finished_data().len()).unwrap().to_le_bytes();
    let bytes = vec![1; usize::try_from(body).unwrap()];
    [b"ARROW1\0\0", &head[..], &bytes, flat.finished_data(), &tail, b"ARROW1"].concat()
}

#[test]
fn arrow_buffers_that_are_the_same_bytes() {
    let Some(mut range) = Range::alone("arrow") else { return };
    range.file("one column", same_bytes(1, 500_000, 1), Opens(1));
    for columns in [2, 2000] {
        let what = format!("{columns} columns of the same 500,000 bytes");
        range.file(&what, same_bytes(columns, 500_000, 1), Refused("overlapping-buffers"));
    }
}
