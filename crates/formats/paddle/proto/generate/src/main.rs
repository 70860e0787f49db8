//! Writes `src/program/framework.rs` from `proto/paddle/framework.proto`.
//!
//! Run in this folder: `cargo run`. Three departures from plain generation:
//!
//! - Required fields become optional: a missing field stays missing, and the check of the library
//!   (`program/check.rs`) can name it, for text as well.
//! - Enumerations are open: unknown numbers are preserved.
//! - Strings are bytes: Paddle does not check for UTF-8.
//!
//! In text, an unknown field is an error, as in Paddle; nothing is dropped silently. See `EDITS`.

use prost_types::field_descriptor_proto::Label;
use prost_types::{DescriptorProto, FileDescriptorSet};
use std::error::Error;
use std::path::Path;

/// Replacements in the generated code: unknown fields in text are rejected, and the names of Paddle 3 are
/// accepted as well as those of Paddle 2.
const EDITS: [(&str, &str); 5] = [
    ("_ => dec.skip_value()?", "_ => return ::core::result::Result::Err(dec.unknown_field())"),
    ("\"lod_tensor\" =>", "\"lod_tensor\" | \"dense_tensor\" =>"),
    ("\"lod_level\" =>", "\"lod_level\" | \"legacy_lod_level\" =>"),
    ("\"LOD_TENSOR\" =>", "\"LOD_TENSOR\" | \"DENSE_TENSOR\" =>"),
    ("\"LOD_TENSOR_ARRAY\" =>", "\"LOD_TENSOR_ARRAY\" | \"DENSE_TENSOR_ARRAY\" =>"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut set: FileDescriptorSet = protox::compile(["framework.proto"], [here.join("../paddle")])?;
    for message in set.file.iter_mut().flat_map(|file| &mut file.message_type) {
        relax(message);
    }
    let scratch = here.join("target/generated");
    std::fs::create_dir_all(&scratch)?;
    let descriptors = scratch.join("framework.bin");
    std::fs::write(&descriptors, encoded(&set))?;

    buffa_build::Config::new()
        .descriptor_set(&descriptors)
        .files(&["framework.proto"])
        .out_dir(&scratch)
        .file_per_package(true)
        .generate_views(false)
        .generate_with_setters(false)
        .generate_text(true)
        .open_enums_in(&["."])
        .strict_utf8_mapping(true)
        .preserve_unknown_fields(true)
        .compile()?;

    let mut code = std::fs::read_to_string(scratch.join("paddle.framework.proto.rs"))?;
    for (from, to) in EDITS {
        if !code.contains(from) {
            return Err(format!("the generated code has changed, and lacks {from}").into());
        }
        code = code.replace(from, to);
    }
    let target = here.join("../../src/program/framework.rs");
    std::fs::write(target, code)?;
    Ok(())
}

/// Makes the required fields of a message, and of those inside it, optional.
fn relax(message: &mut DescriptorProto) {
    for field in &mut message.field {
        if field.label() == Label::Required {
            field.set_label(Label::Optional);
        }
    }
    for inner in &mut message.nested_type {
        relax(inner);
    }
}

fn encoded(set: &FileDescriptorSet) -> Vec<u8> {
    use protox::prost::Message;
    set.encode_to_vec()
}
